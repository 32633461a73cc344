"""Who talks most between racks, and how much goes to what is in no rack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals import traffic_flows
from clustertop.store.mean import known_or_zero
from clustertop.store.traffic_picture import Talker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clustertop.model import NodeInfo
    from clustertop.signals.traffic_flows import Pairs
    from clustertop.store.latency import Latency

    Floats = NDArray[np.float64]

TALKERS = 50
STRANGERS = 20
"""Most that are listed."""


class Talkers:
    """Lists them; what it needs of the peers' addresses is kept until the peers are others."""

    def __init__(self, nodes: Sequence[NodeInfo], rack: NDArray[np.intp], *, racked: bool) -> None:
        """Begin: *rack* is [nodes], negative where a node is in none; *racked*: there is a rack map."""
        self._nodes, self._rack, self._racked = nodes, rack, racked
        self._peer: NDArray[np.intp] | None = None
        self._far: tuple[NDArray[np.intp], list[str], NDArray[np.intp]] = (
            np.empty(0, np.intp), [], np.empty(0, np.intp))
        """Rows of peers that are no node, their addresses, each once, and which of these each row has."""

    def update(
        self, pairs: Pairs, crosses: NDArray[np.int8], amount: Floats, latency: Latency,
        peers: tuple[list[str], NDArray[np.intp]], sent: Floats,
    ) -> tuple[tuple[Talker, ...], tuple[tuple[str, float], ...]]:
        """Return (pairs of nodes in different racks, names in no rack with their bytes), most bytes first.

        Args:
            pairs: who talks with whom.
            crosses: [pairs] 1: between racks.
            amount: [pairs] bytes per second, 0 where unknown.
            latency: of the links.
            peers: [rows joined] the peers' addresses and nodes; other arrays where anything in them is another.
            sent: [rows joined] bytes per second to each, NaN where unknown.
        """
        return self._most(pairs, crosses, amount, latency), self._strangers(pairs, amount, peers, sent)

    def _most(self, pairs: Pairs, crosses: NDArray[np.int8], amount: Floats, latency: Latency) -> tuple[Talker, ...]:
        worth = np.where(crosses == 1, amount, 0.0)
        order = _top(worth, TALKERS)
        out = []
        for pair in order.tolist():
            source, target = int(pairs.source[pair]), int(pairs.target[pair])
            rtt, jitter = latency.of(source, target)
            out.append(Talker(source, target, self._nodes[source].rack, self._nodes[target].rack, float(worth[pair]),
                              rtt, jitter))
        return tuple(out)

    def _strangers(
        self, pairs: Pairs, amount: Floats, peers: tuple[list[str], NDArray[np.intp]], sent: Floats
    ) -> tuple[tuple[str, float], ...]:
        """What is in no rack: addresses of no node by themselves, and nodes that the map leaves out."""
        total: dict[str, float] = {}
        keys, peer = peers
        if len(peer):
            if self._peer is not peer:
                outside = np.flatnonzero(peer == len(self._nodes))
                number: dict[str, int] = {}
                place = [number.setdefault(keys[row], len(number)) for row in outside.tolist()]
                self._peer, self._far = peer, (outside, list(number), np.array(place, np.intp))
            outside, names, places = self._far
            each = traffic_flows.total(places, np.maximum(known_or_zero(sent[outside]), 0.0), len(names))
            # By name where they are alike: more than are shown are taken only to be sorted.
            total = {names[one]: float(each[one]) for one in np.flatnonzero(each > 0).tolist()}
        loose = np.flatnonzero(self._rack < 0)
        if len(loose) and self._racked:
            moved = traffic_flows.total(pairs.source, amount, len(self._nodes) + 1)
            moved += traffic_flows.total(pairs.target, amount, len(self._nodes) + 1)
            total.update((self._nodes[node].name, float(moved[node])) for node in loose.tolist() if moved[node] > 0)
        return tuple(sorted(total.items(), key=lambda one: (-one[1], one[0]))[:STRANGERS])


def _top(worth: Floats, most: int) -> NDArray[np.intp]:
    """Positions of the largest positive values, largest first."""
    some = np.argpartition(-worth, most)[:most] if len(worth) > most else np.arange(len(worth))
    some = some[worth[some] > 0]
    return some[np.lexsort((some, -worth[some]))]
