"""Whose rank is where, and how many channels go to whom: what rows of table ``nccl`` say together. Pure.

A node's probe names the ranks of a communicator by host (``members``: ``gpu7 56-63``) and its network channels by peer
(``peers``: ``gpu8 2``, or ``#64 2`` where the host of rank 64 is not in its log). The node's own ranks come first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from clustertop.model import Attr

MAX_RANKS = 65_536
"""Most ranks that one node may name, over all of its communicators: beyond that it means harm."""


@dataclass(slots=True)
class Communicator:
    """One communicator, as the nodes that log it say together."""

    size: int
    ranks: dict[int, int] = field(default_factory=dict)
    """Rank to node; negative: two nodes say that they are it."""

    def order(self) -> list[int]:
        """The nodes by their lowest rank, those known."""
        return list(dict.fromkeys(node for _, node in sorted(self.ranks.items()) if node >= 0))


@dataclass(frozen=True, slots=True)
class Ranks:
    """All communicators of a fleet, and the channels between its nodes."""

    communicators: tuple[Communicator, ...] = ()
    """The largest first."""
    channels: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """(node, node) to network channels; the second is negative where the peer is no known node."""
    nodes: frozenset[int] = frozenset()
    """Nodes that have a log with ranks."""

    def order_of(self, members: Iterable[int]) -> list[int] | None:
        """The order of ranks of exactly these nodes; None where no communicator has all of them and no other."""
        wanted = frozenset(members)
        for one in self.communicators:
            found = one.order()
            if frozenset(found) == wanted and len(one.ranks) == one.size:
                return found
        return None


def work_out(rows: Iterable[tuple[int, str, Mapping[str, Attr]]], numbers: Mapping[str, int]) -> Ranks:
    """Return what rows of table ``nccl`` say.

    Args:
        rows: (node, key, attributes) of the rows that are about a communicator and current.
        numbers: host name to node, in every spelling that logs use.
    """
    comms: dict[tuple[str, int], Communicator] = {}
    said: list[tuple[int, tuple[str, int], list[tuple[str, int]]]] = []
    nodes = set()
    room: dict[int, int] = {}
    for node, key, attrs in rows:
        ident = _ident(key, attrs)
        if ident is None:
            continue
        comm = comms.setdefault(ident, Communicator(ident[1]))
        for place, (host, ranks) in enumerate(_members(attrs)):
            where = node if place == 0 else numbers.get(host, -1)
            left = room.get(node, MAX_RANKS)
            if where < 0 or not left:
                continue
            named = _unfolded(ranks, min(left, ident[1]))
            room[node] = left - len(named)
            for rank in named:
                known = comm.ranks.setdefault(rank, where)
                # Without an id two communicators of one size look alike: a rank of two nodes is nobody's.
                comm.ranks[rank] = where if known == where else -1
        nodes.add(node)
        said.append((node, ident, list(_counts(attrs))))
    channels: dict[tuple[int, int], int] = {}
    for node, ident, counts in said:
        for peer, count in counts:
            if peer.startswith("#"):
                rank = int(peer[1:]) if peer[1:].isdecimal() and len(peer) < 8 else -1
                target = comms[ident].ranks.get(rank, -1)
            else:
                target = numbers.get(peer, -1)
            if target != node:
                channels[node, target] = channels.get((node, target), 0) + count
    ordered = sorted(comms.values(), key=lambda one: (-one.size, -len(one.ranks)))
    return Ranks(tuple(ordered), channels, frozenset(nodes))


def _ident(key: str, attrs: Mapping[str, Attr]) -> tuple[str, int] | None:
    """(id, size) of the row's communicator; None: the row is about a file."""
    if "members" not in attrs:
        return None
    size = key.rpartition("/")[2]
    if not size.isdecimal() or len(size) > 6:
        return None
    return str(attrs.get("comm") or ""), int(size)


def _members(attrs: Mapping[str, Attr]) -> Iterable[tuple[str, str]]:
    listed = attrs.get("members")
    for item in listed if isinstance(listed, list) else ():
        host, _, ranks = item.rpartition(" ")
        yield host, ranks


def _unfolded(text: str, most: int) -> list[int]:
    """``0-3,8`` to its numbers, of at most *most*; what is none, or would be more, is left out."""
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and len(first) <= 6 and len(last) <= 6):
            continue
        if int(last) - int(first) < most - len(out):
            out += range(int(first), int(last) + 1)
    return out


def _counts(attrs: Mapping[str, Attr]) -> Iterable[tuple[str, int]]:
    listed = attrs.get("peers")
    for item in listed if isinstance(listed, list) else ():
        peer, _, count = item.rpartition(" ")
        if peer and count.isdecimal() and len(count) <= 9 and int(count):
            yield peer, int(count)
