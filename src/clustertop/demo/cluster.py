"""The simulated cluster as a whole: plan, machines, faults and clock in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.demo.faults import Fault, place
from clustertop.demo.feeds import Wiring
from clustertop.demo.machine import build
from clustertop.demo.plan import make_plan
from clustertop.demo.power import Power
from clustertop.demo.readings import GROUPS, Node, Schedule
from clustertop.demo.simulator import Simulator
from clustertop.demo.switches import Switches
from clustertop.demo.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_NODES = 64
DEFAULT_SEED = 7
INTERVALS = {"gpu": 2.0, "pcie": 10.0, "rdma": 2.0, "host": 2.0, "net": 10.0, "sockets": 2.0, "nccl": 5.0,
             "screen": 60.0}
"""Seconds, for what the console leaves open."""


class Cluster:
    """A demo cluster of *count* nodes; the same seed and the same faults give the same life.

    Raises:
        ValueError: *count* is outside 1 to 2,048.
        FaultError: a fault names a node that there is not.
    """

    def __init__(self, count: int = DEFAULT_NODES, seed: int = DEFAULT_SEED, faults: Iterable[Fault] = ()) -> None:
        self.plan = make_plan(count, seed)
        self.faults = place(faults, self.plan, seed)
        self.simulator = Simulator(self.plan, seed, self.faults)
        self.wiring = Wiring(self.plan, self.faults)
        self.power = Power(self.wiring, self.simulator, seed)
        self.traffic = Traffic(self.plan, self.wiring, self.simulator, self.faults)
        self.switches = Switches(self.plan, self.traffic, self.simulator, seed, self.faults)
        self.simulator.bent = self.traffic.bent
        self.simulator.followers += [self.power.move, self.traffic.move, self.switches.move]
        self.nodes = [
            Node(number, build(node, seed, number), self.simulator,
                 [one for one in self.faults if one.node == number], self.traffic, self.plan)
            for number, node in enumerate(self.plan.nodes)
        ]

    def fault(self, name: str, node: int) -> float | None:
        """Return when fault *name* begins on *node*, or None where it does not; before that it may be asked for."""
        for one in self.faults:
            if one.name == name and one.node == node:
                return one.start_seconds
        return None


def schedule(args: Mapping[str, object]) -> Schedule:
    """Return the groups that the probe's *args* ask for, with their intervals."""
    wanted = args.get("groups")
    without = args.get("without")
    names = [name for name in GROUPS if (not isinstance(wanted, list) or name in wanted)
             and not (isinstance(without, list) and name in without)]
    if not args.get("nccl"):  # as the probe: logs are read only where the console names them
        names = [name for name in names if name != "nccl"]
    every = {name: INTERVALS[name] for name in names}
    for key in ("every", "intervals"):
        given = args.get(key)
        if isinstance(given, dict):
            every.update((name, seconds(given[name])) for name in names if name in given)
    return Schedule(every)


def seconds(value: object) -> float:
    """An interval within what the probe allows: 0.1 to 3600 s; 2 s for what is no number."""
    return min(max(float(value), 0.1), 3600.0) if isinstance(value, (int, float)) else 2.0
