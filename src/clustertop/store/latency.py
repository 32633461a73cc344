"""Round trips between nodes by the kernel's TCP measurements: per link, per node, and where many rise at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import intern
from clustertop.signals import traffic_flows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.signals.traffic_flows import Layers, Pairs
    from clustertop.store.table import Table

    Floats = NDArray[np.float64]

FLOOR_BYTES_PER_SECOND = 1e5
"""A link that moves less says nothing: a socket that is idle keeps what it last measured, or a delayed answer."""
RISEN_SECONDS = 0.3e-3
"""The report's limit of jitter between nodes."""
RISEN_TIMES = 3.0
"""And so many times what is usual on the link."""
USUAL_SECONDS, NEW_USUAL_SECONDS = 300.0, 3600.0
"""What is usual follows over so long; what has risen becomes usual more slowly."""
INCAST_PEERS = 4
"""So many of a node's links, and more than half of them, rise together."""
_EXPLAINED = intern("explained by the other end")
_QUIET = intern("too little TCP traffic to tell")


class Latency:
    """Keeps the newest figures, and what is usual on each link."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._rtt = self._jitter = np.empty(0)
        self._usual = np.empty(0)
        self._codes: NDArray[np.intp] = np.empty(0, np.intp)
        self._by_scope: dict[str, Floats] = {}
        self._at = float("-inf")
        self._across: NDArray[np.int8] = np.empty(0, np.int8)
        self._members: list[NDArray[np.intp]] = []
        """By scope: its links."""
        self.worst_peer: NDArray[np.intp] = np.full(nodes, -1, np.intp)

    def move(self, after: Pairs, rack: NDArray[np.intp]) -> None:
        """The links are others now; what is usual on those that stay is kept. *rack* is [nodes]."""
        old, self._usual = self._usual, np.full(len(after.ends), np.nan)
        was, self._codes = self._codes, after.ends[:, 0] * (after.nodes + 1) + after.ends[:, 1]
        if len(old) == len(was) and len(old):
            place = np.minimum(np.searchsorted(was, self._codes), len(old) - 1)
            same = was[place] == self._codes
            self._usual[same] = old[place[same]]
        placed = np.append(rack, -1)[after.ends]
        self._across = np.where((placed < 0).any(axis=1), -1, placed[:, 0] != placed[:, 1]).astype(np.int8)
        self._rtt = self._jitter = np.full(len(after.ends), np.nan)

    def scope(self, layers: Layers, pairs: Pairs) -> None:
        """Whose links are asked for from now on."""
        self._members = [np.empty(0, np.intp)] * layers.count
        for layer in layers.layers:
            first = layer[pairs.ends[:, 0]]
            inside = np.flatnonzero((first >= 0) & (first == layer[pairs.ends[:, 1]]))
            order = inside[np.argsort(first[inside], kind="stable")]
            which, starts = np.unique(first[order], return_index=True)
            for number, mine in zip(which.tolist(), np.split(order, starts[1:]), strict=False):
                self._members[number] = mine
        for number in layers.whole:
            self._members[number] = np.flatnonzero(pairs.ends[:, 1] < self._nodes)

    def derive(self, peers: Table, sent: Floats, received: Floats, pairs: Pairs, nodes: Table, now: float) -> None:
        """Take the newest readings in and fill the node table's columns.

        Args:
            peers: the table of peers.
            sent: [rows joined so far] bytes per second, NaN where unknown or old.
            received: the same the other way.
            pairs: who they are about.
            nodes: the node table.
            now: our monotonic clock.
        """
        rows = slice(0, len(sent))
        busy = np.nan_to_num(sent) + np.nan_to_num(received) >= FLOOR_BYTES_PER_SECOND
        self._rtt = traffic_flows.of_links(pairs, np.where(busy, peers.columns.col("rtt_seconds")[rows], np.nan))
        jitter = self._jitter = traffic_flows.of_links(
            pairs, np.where(busy, peers.columns.col("rtt_variation_seconds")[rows], np.nan))
        jitter[pairs.ends[:, 1] >= self._nodes] = np.nan  # what is no node is no link of the cluster
        count = self._nodes
        blame = traffic_flows.worse_end(pairs, jitter)
        worst, where = traffic_flows.largest(blame, jitter, count)
        best = np.full(count, np.nan)
        known = ~np.isnan(jitter)
        for end in (0, 1):
            np.fmin.at(best, pairs.ends[known, end], jitter[known])
        links = sum(np.bincount(pairs.ends[known, end], minlength=count)[:count] for end in (0, 1))
        # A node whose links are all better explained by their other ends has what its best link has; where that is bad
        # as well, nothing is known of the node itself.
        with np.errstate(invalid="ignore"):
            own = np.where(np.isnan(worst), np.where(best > RISEN_SECONDS, np.nan, best), worst)
        ends = pairs.ends[np.maximum(where, 0)] if len(pairs.ends) else np.full((count, 2), -1)
        self.worst_peer = np.where(where < 0, -1, np.where(ends[:, 0] == np.arange(count), ends[:, 1], ends[:, 0]))
        risen = self._risen(jitter, now)
        together = np.bincount(blame[risen], minlength=count + 1)[:count]
        many = (together >= INCAST_PEERS) & (together * 2 > links)
        columns = nodes.columns
        columns.put("tcp_jitter_seconds", own, np.where(links > 0, _EXPLAINED, _QUIET))
        rtt = self._rtt[where] if len(self._rtt) else np.full(count, np.nan)
        columns.put("tcp_rtt_seconds", np.where(where < 0, np.nan, rtt), _QUIET)
        columns.put("tcp_incast_peers", np.where(links > 0, np.where(many, together, 0), np.nan), _QUIET)

    def _risen(self, jitter: Floats, now: float) -> NDArray[np.bool_]:
        """[links] whether the jitter is far above what is usual there."""
        usual = np.where(np.isnan(self._usual), jitter, self._usual)
        with np.errstate(invalid="ignore"):
            risen: NDArray[np.bool_] = jitter > np.maximum(RISEN_TIMES * usual, RISEN_SECONDS)
        passed = max(now - self._at, 0.0)
        self._at = now
        part = np.where(risen, 1 - math.exp(-passed / NEW_USUAL_SECONDS), 1 - math.exp(-passed / USUAL_SECONDS))
        self._usual = np.where(np.isnan(jitter), usual, usual + part * (jitter - usual))
        return risen

    def medians(self) -> None:
        """Bring :meth:`by_scope` up to what was read last."""
        for name, values in (("rtt", self._rtt), ("jitter", self._jitter)):
            for word, crosses in (("within", 0), ("across", 1)):
                column = np.full(len(self._members), np.nan)
                there = (self._across == crosses) & ~np.isnan(values)
                for number, mine in enumerate(self._members):
                    known = values[mine[there[mine]]]
                    if len(known):
                        column[number] = np.partition(known, len(known) // 2)[len(known) // 2]
                self._by_scope[f"{name}_{word}_seconds"] = column

    def by_scope(self) -> Mapping[str, Floats]:
        """By column of table ``traffic``: [scopes] the median over the links of each, within racks and across."""
        return {name: column for name, column in self._by_scope.items() if len(column) == len(self._members)}

    def of(self, source: int, target: int) -> tuple[float | None, float | None]:
        """(round trip, jitter) between two nodes; None: not known."""
        low, high = min(source, target), max(source, target)
        code = low * (self._nodes + 1) + high
        place = int(np.searchsorted(self._codes, code))
        if place >= len(self._codes) or self._codes[place] != code:
            return None, None
        rtt, jitter = float(self._rtt[place]), float(self._jitter[place])
        return (None if rtt != rtt else rtt), (None if jitter != jitter else jitter)
