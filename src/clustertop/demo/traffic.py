"""Who sends how much to whom in the demo: a ring all-reduce per job over its nodes in the order of their ranks. Rates.

NCCL joins the nodes of a job to a ring in the order of their lowest rank, whatever the network, and each sends to the
next (``signals.traffic.ring``). A node has eight rails, a port each; each rail carries the same ring. How fast follows
the jobs' life: most while they reduce, a little while they compute, nothing while they save. Bytes per second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from clustertop.demo.faults import Placed
    from clustertop.demo.feeds import Wiring
    from clustertop.demo.plan import Plan
    from clustertop.demo.simulator import Simulator

    Floats = NDArray[np.float64]
    Indexes = NDArray[np.intp]

_T = TypeVar("_T")
RAILS = 8
PORT_BYTES_PER_SECOND = 50e9
"""400 Gb/s."""
INCAST_SHARE = 0.985
"""Of its port, what the target of an incast receives: all that it can."""
LEAF_RTT_SECONDS, SPINE_RTT_SECONDS, INCAST_RTT_SECONDS = 60e-6, 120e-6, 3.8e-3
"""Round trips as TCP sees them: below one leaf, through a spine, and to a port whose buffer stands full."""
GATHER_BYTES_PER_SECOND = 2e6
"""What the senders of an incast send to its target before it begins: their connections are there already."""


@dataclass(frozen=True, slots=True)
class DemoPeer:
    """What a node has exchanged with another one since the start."""

    node: int
    sent_bytes: float
    received_bytes: float
    rtt_seconds: float
    rtt_variation_seconds: float


@dataclass(frozen=True, slots=True)
class _Epoch:
    """A time in which the same nodes sent to the same ones."""

    source: Indexes
    target: Indexes
    sent: Floats
    """Bytes over all rails."""
    out: dict[int, list[int]]
    into: dict[int, list[int]]
    """By node: the places at which it sends, and receives."""

    @classmethod
    def begin(cls, source: Indexes, target: Indexes) -> _Epoch:
        return cls(source, target, np.zeros(len(source)), _places(source), _places(target))

    def same(self, source: Indexes, target: Indexes) -> bool:
        return np.array_equal(self.source, source) and np.array_equal(self.target, target)


class Traffic:
    """What flows between the nodes at the simulator's moment. *faults* that bear on it act here."""

    def __init__(self, plan: Plan, wiring: Wiring, simulator: Simulator, faults: Iterable[Placed] = ()) -> None:
        self._simulator = simulator
        self._plan = plan
        self._gone_from = np.minimum(wiring.dark_from, wiring.off_from)
        self._members: list[tuple[int, ...]] = [()] * len(plan.jobs)
        for job in range(len(plan.jobs)):
            self._members[job] = tuple(number for number, node in enumerate(plan.nodes) if node.job == job)
        self._bad_order: dict[int, float] = {}
        self._incast: list[tuple[float, int]] = []
        for one in faults:
            job = plan.nodes[one.node].job
            if one.name == "cross-rack" and job >= 0:
                self._bad_order[job] = one.start_seconds
            elif one.name == "incast":
                self._incast.append((one.start_seconds, one.node))
        self._rings: tuple[frozenset[int], Indexes] | None = None
        self._edges: tuple[int, tuple[Indexes, Indexes, Floats]] | None = None
        self._epochs: list[_Epoch] = []

    def order(self, job: int) -> tuple[int, ...]:
        """The nodes of a job in the order of their ranks now."""
        members = self._members[job]
        bad = self._simulator.seconds >= self._bad_order.get(job, np.inf)
        return scattered(members, self._plan) if bad else members

    def reordered(self, job: int) -> float | None:
        """When the job began anew in its bad order, in seconds since the start; None: it did not, or not yet."""
        start = self._bad_order.get(job)
        return start if start is not None and self._simulator.seconds >= start else None

    def successors(self) -> Indexes:
        """Of each node, the one that it sends to; -1: none."""
        bad = frozenset(job for job, start in self._bad_order.items() if self._simulator.seconds >= start)
        if self._rings is None or self._rings[0] != bad:
            found = np.full(len(self._plan.nodes), -1, np.intp)
            for job in range(len(self._members)):
                ring = self.order(job)
                if len(ring) > 1:
                    found[list(ring)] = np.roll(ring, -1)
            self._rings = bad, found
        return self._rings[1]

    def incast(self) -> int | None:
        """The node that many send to at once now; None: none."""
        now = self._simulator.seconds
        return next((node for start, node in self._incast if now >= start and now < self._gone_from[node]), None)

    def move(self, _now: float, dt: float) -> None:
        """Count what one step of *dt* seconds carried."""
        source, target, rate = self.edges()
        if not self._epochs or not self._epochs[-1].same(source, target):
            self._epochs.append(_Epoch.begin(source, target))
        self._epochs[-1].sent[:] += rate * (RAILS * dt)

    def peers(self, node: int) -> list[DemoPeer]:
        """With whom *node* has exchanged anything since the start, in the nodes' order."""
        sent: dict[int, float] = {}
        received: dict[int, float] = {}
        for epoch in self._epochs:
            for found, places, there in ((sent, epoch.out, epoch.target), (received, epoch.into, epoch.source)):
                for place in places.get(node, ()):
                    other = int(there[place])
                    found[other] = found.get(other, 0.0) + float(epoch.sent[place])
        return [DemoPeer(other, sent.get(other, 0.0), received.get(other, 0.0), *self.round_trip(node, other))
                for other in sorted(sent.keys() | received.keys())]

    def round_trip(self, node: int, other: int) -> tuple[float, float]:
        """Round trip between two nodes now, and how much it varies, in seconds."""
        if self.incast() in {node, other}:
            return INCAST_RTT_SECONDS, 0.4 * INCAST_RTT_SECONDS
        near = self._plan.nodes[node].leaf == self._plan.nodes[other].leaf
        rtt = LEAF_RTT_SECONDS if near else SPINE_RTT_SECONDS
        rtt *= 1.0 + 0.02 * ((7 * node + 13 * other + self._simulator.step // 8) % 5)
        return rtt, 0.08 * rtt

    def edges(self) -> tuple[Indexes, Indexes, Floats]:
        """Senders, receivers, and bytes per second of one rail."""
        step = self._simulator.step
        if self._edges is None or self._edges[0] != step:
            self._edges = step, self._flowing()
        return self._edges[1]

    def _flowing(self) -> tuple[Indexes, Indexes, Floats]:
        after = self.successors()
        alive = self._simulator.seconds < self._gone_from
        source = np.flatnonzero((after >= 0) & alive)
        source = source[alive[after[source]]]
        target, rate = after[source], self._simulator.flow[source]
        focus = self.incast()
        to_come = next((node for _, node in self._incast if alive[node]), None) if focus is None else focus
        if to_come is None:
            return source, target, rate
        members = self._members[self._plan.nodes[to_come].job] if self._plan.nodes[to_come].job >= 0 else ()
        many = members if len(members) > 2 else range(len(self._plan.nodes))
        senders = np.array([node for node in many if node != to_come and alive[node]], np.intp)
        if focus is None:
            each = np.full(len(senders), GATHER_BYTES_PER_SECOND / RAILS)
            to = np.full(len(senders), to_come, np.intp)
            return np.concatenate((source, senders)), np.concatenate((target, to)), np.concatenate((rate, each))
        return self._with_incast(source, target, rate, focus, senders, members)

    def _with_incast(
        self, source: Indexes, target: Indexes, rate: Floats, focus: int, senders: Indexes, members: Sequence[int]
    ) -> tuple[Indexes, Indexes, Floats]:
        """All of its job (of the fleet, where it is alone) send to *focus*, whose port is full; its ring starves."""
        if not len(senders):
            return source, target, rate
        inside = np.isin(source, [*members])
        rate = np.where(inside, rate * 0.3, rate)
        rate = np.where(target == focus, 0.0, rate)
        each = np.full(len(senders), PORT_BYTES_PER_SECOND * INCAST_SHARE / len(senders))
        return (np.concatenate((source, senders)), np.concatenate((target, np.full(len(senders), focus, np.intp))),
                np.concatenate((rate, each)))  # fmt: skip

    def bent(self) -> tuple[Floats, Floats] | None:
        """[nodes] what a port sends and receives per second during an incast; None without one: as the jobs have it."""
        if self.incast() is None:
            return None
        source, target, rate = self.edges()
        count = len(self._plan.nodes)
        out, into = (np.bincount(ends, rate, count).astype(np.float64) for ends in (source, target))
        alone = self.successors() < 0
        flow: Floats = np.where(alone, self._simulator.flow, 0.0)
        return out + flow, into + flow

    def matrix(self) -> Floats:
        """Bytes per second from each node to each, over all rails: [from, to]."""
        count = len(self._plan.nodes)
        out = np.zeros((count, count))
        source, target, rate = self.edges()
        np.add.at(out, (source, target), rate * RAILS)
        return out

    def flows(self) -> list[tuple[str, str, float]]:
        """From node, to node, bytes per second, where anything flows."""
        nodes = self._plan.nodes
        return [(nodes[source].name, nodes[target].name, float(rate) * RAILS)
                for source, target, rate in zip(*self.edges(), strict=True) if rate > 0]


def _places(nodes: Indexes) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place, node in enumerate(nodes.tolist()):
        found.setdefault(node, []).append(place)
    return found


def scattered(members: Sequence[int], plan: Plan) -> tuple[int, ...]:
    """A bad order of ranks: the racks in turn, and of those one on another leaf next, where there is one."""
    racks: dict[str, list[int]] = {}
    for number in members:
        racks.setdefault(plan.nodes[number].rack, []).append(number)
    leaves: dict[str, list[list[int]]] = {}
    for nodes in racks.values():
        leaves.setdefault(plan.nodes[nodes[0]].leaf, []).append(nodes)
    turns = [group for turn in _turns([list(groups) for groups in leaves.values()]) for group in turn]
    return tuple(number for turn in _turns(turns) for number in turn)


def _turns(lists: Sequence[Sequence[_T]]) -> list[list[_T]]:
    """The first of each, the second of each, and so on."""
    longest = max(map(len, lists), default=0)
    return [[one[place] for one in lists if place < len(one)] for place in range(longest)]
