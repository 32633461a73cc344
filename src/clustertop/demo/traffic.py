"""Who sends how much to whom in the demo: a ring all-reduce per job over its nodes in the order of their ranks. Rates.

NCCL joins the nodes of a job to a ring in the order of their lowest rank, whatever the network, and each sends to the
next (``signals.traffic.ring``). A node has eight rails, a port each; each rail carries the same ring. How fast follows
the jobs' life: most while they reduce, a little while they compute, nothing while they save. Bytes per second.
"""

from __future__ import annotations

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

    def order(self, job: int) -> tuple[int, ...]:
        """The nodes of a job in the order of their ranks now."""
        members = self._members[job]
        bad = self._simulator.seconds >= self._bad_order.get(job, np.inf)
        return scattered(members, self._plan) if bad else members

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

    def edges(self) -> tuple[Indexes, Indexes, Floats]:
        """Senders, receivers, and bytes per second of one rail."""
        after = self.successors()
        alive = self._simulator.seconds < self._gone_from
        source = np.flatnonzero((after >= 0) & alive)
        source = source[alive[after[source]]]
        target, rate = after[source], self._simulator.flow[source]
        focus = self.incast()
        if focus is None:
            return source, target, rate
        return self._with_incast(source, target, rate, focus, alive)

    def _with_incast(
        self, source: Indexes, target: Indexes, rate: Floats, focus: int, alive: NDArray[np.bool_]
    ) -> tuple[Indexes, Indexes, Floats]:
        """All of its job (of the fleet, where it is alone) send to *focus*, whose port is full; its ring starves."""
        members = self._members[self._plan.nodes[focus].job] if self._plan.nodes[focus].job >= 0 else ()
        many = members if len(members) > 2 else range(len(self._plan.nodes))
        senders = np.array([node for node in many if node != focus and alive[node]], np.intp)
        if not len(senders):
            return source, target, rate
        inside = np.isin(source, [*members])
        rate = np.where(inside, rate * 0.3, rate)
        rate = np.where(target == focus, 0.0, rate)
        each = np.full(len(senders), PORT_BYTES_PER_SECOND * INCAST_SHARE / len(senders))
        return (np.concatenate((source, senders)), np.concatenate((target, np.full(len(senders), focus, np.intp))),
                np.concatenate((rate, each)))  # fmt: skip

    def matrix(self) -> Floats:
        """Bytes per second from each node to each, over all rails: [from, to]."""
        count = len(self._plan.nodes)
        out = np.zeros((count, count))
        source, target, rate = self.edges()
        np.add.at(out, (source, target), rate * RAILS)
        return out

    def flows(self) -> list[tuple[str, str, float]]:
        """The same as ``signals.traffic`` takes it: from node, to node, bytes per second, where anything flows."""
        nodes = self._plan.nodes
        return [(nodes[source].name, nodes[target].name, float(rate) * RAILS)
                for source, target, rate in zip(*self.edges(), strict=True) if rate > 0]


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
