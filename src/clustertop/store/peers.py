"""From when a peer's counters count, and which node its address belongs to."""

from __future__ import annotations

import functools
import ipaddress
import itertools
import operator
from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals import peer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.store.table import Table

UNPLACED = -1
"""No node of ours has the address, or several have it."""
_SEVERAL = -2
_SERVICES = frozenset({"kube-ipvs0", "nodelocaldns"})
"""Interfaces that hold addresses of services, not of their node."""


class Starts:
    """Has the counters of new rows of the table ``peer`` count from 0 at the moment that the probe tells.

    A peer's row comes with the first bytes to it: without this they would be in no growth and no rate. A row that went
    and came back, or that another run of the probe tells of, says another moment, and starts anew there.
    """

    def __init__(self, peers: Table) -> None:
        self._peers = peers
        self._began: dict[int, tuple[str, float]] = {}
        """By row: its key and the moment."""

    def listed(self, node: int, now: float) -> None:
        """Take a changed listing of *node*, read at *now* by its monotonic clock; before the table is refreshed."""
        peers = self._peers
        for row in peers.of_node.get(node, ()):
            began = peer.since(peers.attrs[row])
            if began is None or not peers.present[row] or self._began.get(row) == (peers.keys[row], began):
                continue
            self._began[row] = (peers.keys[row], began)
            # At its very start nothing can have moved yet: that is a baseline, no rate.
            peers.last[:, row], peers.last_time[:, row] = (0.0, began) if began < now else (np.nan, np.nan)


class Addresses:
    """Every address of every node, from what the nodes tell of their interfaces, and whose the peers' addresses are.

    An address that several nodes have (a service, a container bridge, a virtual router) says nothing and is nobody's;
    one that means something on its own link or machine only is not taken at all.
    """

    def __init__(self, links: Table, peers: Table) -> None:
        self._links, self._peers = links, peers
        self._taken = -1
        self._listed = (-1, -1)
        self._attrs: list[Mapping[str, Attr]] = []
        """Of each row of the link table, as they were when its addresses were taken."""
        self._of_row: list[tuple[str, ...]] = []
        self._owners: dict[str, dict[int, int]] = {}
        """Address to node to how many of its interfaces have it."""
        self._node: dict[str, int] = {}
        self._moves = self._placed = 0
        """How often addresses have moved, and with which of these the peers were placed."""
        self._keys: list[str] = []
        self._places: list[str] = []
        """Of each row of the peer table: its key, and the address in its one spelling."""
        self._found: NDArray[np.intp] = np.empty(0, np.intp)

    def node(self, address: str) -> int:
        """Return the number of the node that has *address*, in any spelling; ``UNPLACED`` where there is not one."""
        self._take()
        return max(self._node.get(_place(address), UNPLACED), UNPLACED)

    def of_peers(self) -> NDArray[np.intp]:
        """[rows of the peer table]: the number of the peer's node, ``UNPLACED`` where that is not known."""
        peers, listed = self._peers, (self._links.listed, self._peers.listed)
        if listed == self._listed:
            return self._found
        self._listed = listed
        self._take()
        before = len(self._keys)
        # Keys are never made anew for a row that stays: those that are other objects are other keys.
        other = np.fromiter(map(operator.is_not, peers.keys, self._keys), np.bool_, before)
        changed = np.flatnonzero(other).tolist() + list(range(before, peers.rows))
        self._places += [""] * (peers.rows - before)
        for row in changed:
            self._places[row] = _place(peers.keys[row])
        self._keys = list(peers.keys)
        find, places = self._node.get, self._places
        if self._moves != self._placed:
            self._placed = self._moves
            found = np.fromiter(map(find, places, itertools.repeat(UNPLACED)), np.intp, len(places))
        else:
            # Few come at a time; what was given out before stays as it was.
            found = np.concatenate([self._found, np.full(peers.rows - before, UNPLACED, np.intp)])
            found[changed] = [find(places[row], UNPLACED) for row in changed]
        self._found = np.maximum(found, UNPLACED)
        return self._found

    def _take(self) -> None:
        """Take the interfaces whose attributes, or presence, are not those of before."""
        links = self._links
        if links.listed == self._taken:
            return
        self._taken = links.listed
        present = links.present[: links.rows].tolist()
        for row, attrs in enumerate(links.attrs):
            if not present[row]:
                attrs = _NOTHING
            if row < len(self._attrs):
                if self._attrs[row] is attrs:
                    continue
                self._attrs[row] = attrs
            else:
                self._attrs.append(attrs)
                self._of_row.append(())
            self._change(row, int(links.node[row]), _addresses(attrs))

    def _change(self, row: int, node: int, addresses: tuple[str, ...]) -> None:
        before, self._of_row[row] = self._of_row[row], addresses
        if before == addresses:
            return
        self._moves += 1
        for address in addresses:
            owners = self._owners.setdefault(address, {})
            owners[node] = owners.get(node, 0) + 1
        for address in before:
            owners = self._owners[address]
            owners[node] -= 1
            if not owners[node]:
                del owners[node]
        for address in {*before, *addresses}:
            owners = self._owners[address]
            if owners:
                self._node[address] = next(iter(owners)) if len(owners) == 1 else _SEVERAL
            else:
                del self._owners[address], self._node[address]


_NOTHING: Mapping[str, Attr] = {}


def _addresses(attrs: Mapping[str, Attr]) -> tuple[str, ...]:
    listed = attrs.get("addresses")
    if not isinstance(listed, list) or attrs.get("name") in _SERVICES:
        return ()
    return tuple(dict.fromkeys(place for one in listed if (place := _place(one))))


@functools.lru_cache(1 << 17)
def _place(text: str) -> str:
    """Return the one spelling of an address, without prefix length and scope; empty: it is none, or is no place.

    IPv4 mapped into IPv6 is IPv4.
    """
    try:
        found = ipaddress.ip_address(text.partition("/")[0].partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast:
        return ""
    return str(found)
