"""Which node is at the other end of each row of table ``peer``, and which two nodes each row is about."""

from __future__ import annotations

from operator import ne
from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals import traffic_flows
from clustertop.signals.peer import OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from clustertop.store.table import Table

    Numbers = NDArray[np.intp]
    Mask = NDArray[np.bool_]

LARGE = 20_000
"""Rows of a large table of peers."""
JOIN_SECONDS = 5.0
"""Least time between two joins of a large table of peers to its nodes; those that are new wait as long."""
_NOWHERE = np.empty(0, np.intp)


class Ends:
    """Keeps the pairs of nodes, and finds them anew where rows or the places of addresses change."""

    def __init__(self, nodes: int, places: Callable[[], Numbers]) -> None:
        """Begin.

        Args:
            nodes: how many there are.
            places: gives [rows of table ``peer``] the number of the peer's node, negative where it is none; the same
                object for as long as nothing changes.
        """
        self._count, self._places = nodes, places
        self.pairs = traffic_flows.pair_up(_NOWHERE, _NOWHERE, nodes)
        self.peer: Numbers = _NOWHERE
        """[rows joined] the node at the other end; as many as there are nodes where none of ours is known to be."""
        self.keys: list[str] = []
        """[rows joined] the peers' addresses."""
        self.others: Mask | None = None
        """[rows joined] those that stand for another peer since; None: none does."""
        self._joined, self._asked, self._listed = float("-inf"), float("-inf"), -1
        self._place = self._found = self._alone = _NOWHERE
        """Who has the address of each row, and rows whose peer, a node, has no row of theirs."""
        self._doubted: Mask = np.empty(0, np.bool_)
        """[rows joined]"""

    def join(self, peers: Table, now: float, read: Callable[[], Mask]) -> bool:
        """Find the nodes behind the peers' addresses; returns whether the pairs are others now.

        Args:
            peers: the table.
            now: our monotonic clock.
            read: gives [nodes] whether the node's sockets are known now; asked only where it matters.
        """
        if peers.listed != self._listed:
            self._listed, before = peers.listed, len(self.keys)
            same = peers.keys[:before] == self.keys
            self.others = None if same else np.fromiter(map(ne, peers.keys, self.keys), np.bool_, before)
        if peers.rows > LARGE and now - self._joined < JOIN_SECONDS:
            return False
        places, others = self._places(), self.others
        if places is self._place and others is None and len(self.keys) == peers.rows:
            if peers.rows > LARGE and now - self._asked < JOIN_SECONDS:
                return False
            self._asked = now
            if not self._doubt(peers, read):
                return False
        self._joined, self._place, count = now, places, self._count
        found = np.full(peers.rows, count, np.intp)
        places = places[: peers.rows]
        found[: len(places)] = np.where(places < 0, count, places)
        reporter, pairs, was = peers.node[: peers.rows].astype(np.intp), None, self.peer
        if others is not None or len(found) != len(self._found) or not np.array_equal(found, self._found):
            pairs = traffic_flows.pair_up(reporter, found, count)
            self._alone = pairs.rows[pairs.unheard[pairs.sends] & (pairs.target[pairs.sends] < count)]
            stays = np.zeros(peers.rows, np.bool_)
            stays[: len(self._doubted)] = self._doubted if others is None else self._doubted & ~others
            self._doubted = np.zeros(peers.rows, np.bool_)
            self._doubted[self._alone] = stays[self._alone]
            self.keys, self._found, self.peer, self.others = list(peers.keys), found, found, None
        self._doubt(peers, read)
        doubted = bool(self._doubted.any())
        self.peer = np.where(self._doubted, count, found) if doubted else found
        if others is None and len(was) == len(found) and np.array_equal(self.peer, was):
            self.peer = was
            return False
        self.pairs = traffic_flows.pair_up(reporter, self.peer, count) if doubted or pairs is None else pairs
        return True

    def _doubt(self, peers: Table, read: Callable[[], Mask]) -> bool:
        """Find rows whose address leads to another machine than the node that has it; returns whether there are more.

        Behind masquerade or DNAT an address is that of a router or a service, though a node may have it: then that node
        has no socket with the other end. Such bytes are not placed until both ends know each other.
        """
        rows = self._alone[~self._doubted[self._alone]]
        if not len(rows):
            return False
        rows = rows[(peers.columns.col("sockets")[rows] > 0) & peers.present[rows] & read()[self._found[rows]]]
        there = self._found[rows]
        # One that adds up its least peers may have it all the same.
        adds_up = [node for node in np.unique(there).tolist() if (node, OTHERS) in peers.index]
        rows = rows[~np.isin(there, adds_up)]
        self._doubted[rows] = True
        return bool(len(rows))
