"""What can go wrong in the demo cluster: names, the operator's notation, and which node each fault hits."""

from __future__ import annotations

import difflib
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop.demo.plan import NODES_PER_FEED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clustertop.demo.plan import Plan

START_SECONDS = 3.0
"""After the first frame, unless the operator says otherwise."""

FAULTS = {
    "x8": "a GPU's link trains at x8, expected x16",
    "x8-switch": "the uplink of a PCIe switch trains at x8, and everything below it shares that",
    "hot-x8": "a GPU heats up, its link has AER errors, and 40 seconds on it drops to x8",
    "aer": "a GPU's link has corrected errors, of which the kernel's log tells, and 30 seconds on a fatal one",
    "rdma-errors": "symbol errors, link recoveries and out-of-sequence packets rise on one port",
    "port-flap": "an InfiniBand port goes down and comes back, again and again",
    "port-unused": "an InfiniBand port has no cable and never had one: no fault",
    "old-firmware": "the adapters of a node have another firmware than those of its peers",
    "gpu-lost": "a GPU falls off the bus",
    "x8-lost": "a GPU's link trains at x8, and 20 seconds on the GPU falls off the bus",
    "gpu-hung": "an NVML call does not return; the other groups go on",
    "hot-gpu": "a GPU heats up to its slowdown limit and is slowed down",
    "straggler": "a GPU stays behind its peers (its alert takes two minutes)",
    "node-down": "a node goes away: its connections end and new ones are refused",
    "rack-down": "every node of a rack goes away at once, as when its power feed trips",
    "noisy-shell": "greetings, JSON-like noise and escape sequences before, between and after the frames",
    "pdu-overload": "the load of a node's feed A climbs steadily, over four to five minutes, past its breaker's rating",
    "feed-loss": "feed A of a node's group has no voltage any more, and feed B carries all of it",
    "breaker-trip": "the breaker of four nodes that have no second feed trips, and they go down",
    "bmc-hang": "a node's BMC takes requests and answers none",
    "psu-fail": "a power supply of a node fails, and the other one carries it alone",
    "cross-rack": "a job's ranks are in a bad order: each sends to a node in another rack",
    "incast": "the nodes of a job all send to one of them, whose port is full and discards",
    "uplink-down": "an uplink of a node's leaf switch goes down, and the others carry its load",
}
POWERED = ("pdu-overload", "feed-loss", "breaker-trip", "psu-fail")
"""Faults of a node's feed or supply: two of them would blur each other within one group of nodes."""
FABRIC = ("cross-rack", "incast")
"""Faults that show only where a job spans racks, best leaves."""
_PLACES = {
    "x8-switch": "switch of GPU", "pdu-overload": "", "feed-loss": "", "breaker-trip": "", "bmc-hang": "",
    "cross-rack": "", "incast": "", "node-down": "", "rack-down": "", "noisy-shell": "", "old-firmware": "",
    "psu-fail": "PSU", "uplink-down": "uplink",
}
"""What the number of a fault's device counts; empty: nothing."""

_FORM = re.compile(r"^(?P<name>[^@:]*)(?:@(?P<node>[^:]*))?(?::(?P<start>.*))?$", re.DOTALL)


class FaultError(ValueError):
    """A fault that the operator asked for makes no sense. The text says which, and what would."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as the operator asked for it: ``NAME``, ``NAME@NODE``, ``NAME:SECONDS`` or ``NAME@NODE:SECONDS``."""

    name: str
    node: str = ""
    """Empty: one is picked by the seed."""
    start_seconds: float = START_SECONDS
    """After the first frame."""

    def __str__(self) -> str:
        node = f"@{self.node}" if self.node else ""
        return f"{self.name}{node}:{self.start_seconds:g}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A fault with its place: the node, and the GPU or port there."""

    name: str
    node: int
    device: int
    """Number of the GPU, or of the compute port, from 0 to 7."""
    start_seconds: float


def parse(text: str) -> Fault:
    """Return the fault that *text* names. Raises FaultError."""
    match = _FORM.match(text.strip())
    name = match["name"].strip().lower() if match else ""
    if match is None or name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, 1, 0.0)
        raise FaultError(
            f"--fault {text}: there is no fault {name!r}; did you mean {near[0]}? There are: {', '.join(FAULTS)}"
        )
    start = START_SECONDS
    if match["start"] is not None:
        try:
            start = float(match["start"])
        except ValueError:
            start = -1.0
        if not 0.0 <= start <= 86400.0:
            raise FaultError(
                f"--fault {text}: {match['start']!r} is no start; it is seconds after the first frame, 0 to 86400"
            )
    if match["node"] == "":
        raise FaultError(f"--fault {text}: no node after '@'; for example {name}@gpu001")
    return Fault(name, match["node"] or "", start)


def place(faults: Iterable[Fault], plan: Plan, seed: int) -> list[Placed]:
    """Return *faults* with the places that they hit; each has a node of its own while there are enough.

    Raises:
        FaultError: a fault names a node that the plan does not have.
    """
    names = [node.name for node in plan.nodes]
    rng = random.Random(f"{seed}/faults")  # noqa: S311 - a repeatable choice, not a secret
    wanted = list(faults)
    taken = {_find(fault, names) for fault in wanted if fault.node}
    out: list[Placed] = []
    for fault in wanted:
        if fault.node:
            node = _find(fault, names)
        else:
            node = _pick(fault.name, plan, taken, {one.node for one in out if one.name in POWERED}, rng)
            taken.add(node)
        if fault.name in FABRIC and fault.node:
            _spans(fault, node, plan)
        out.append(Placed(fault.name, node, rng.randrange(8), fault.start_seconds))
    return out


def words(one: Placed, plan: Plan) -> str:
    """A placed fault for people: ``x8 on gpu005, GPU or port 3, 3 s after the first frame``."""
    what = _PLACES.get(one.name, "GPU or port")
    number = one.device % 2 + 1 if what == "PSU" else one.device
    place = f", {what} {number}" if what else ""
    return f"{one.name} on {plan.nodes[one.node].name}{place}, {one.start_seconds:g} s after the first frame"


def _find(fault: Fault, names: Sequence[str]) -> int:
    if fault.node in names:
        return names.index(fault.node)
    if fault.node.isdecimal() and 1 <= int(fault.node) <= len(names):
        return int(fault.node) - 1
    raise FaultError(
        f"--fault {fault.name}@{fault.node}: the demo has no such node; its nodes are {names[0]} to {names[-1]}"
    )


def _pick(name: str, plan: Plan, taken: set[int], powered: set[int], rng: random.Random) -> int:
    # A fault is easier to see where there is work; some show nowhere else.
    busy = [number for number, node in enumerate(plan.nodes) if node.job >= 0]
    able = busy or list(range(len(plan.nodes)))
    if name in FABRIC:
        able = _wide(plan, "leaf") or _wide(plan, "rack") or able
    free = [number for number in able if number not in taken]
    if name in POWERED:
        groups = {number // NODES_PER_FEED for number in powered}
        free = [number for number in free if number // NODES_PER_FEED not in groups] or free
    return rng.choice(free or able)


def _wide(plan: Plan, domain: str) -> list[int]:
    """Nodes whose job stands in more than one rack, or hangs on more than one leaf."""
    found: dict[int, set[str]] = {}
    for node in plan.nodes:
        found.setdefault(node.job, set()).add(getattr(node, domain))
    return [number for number, node in enumerate(plan.nodes) if node.job >= 0 and len(found[node.job]) > 1]


def _spans(fault: Fault, node: int, plan: Plan) -> None:
    """Refuse a fabric fault on a node whose job stays in one rack. Raises FaultError."""
    wide = _wide(plan, "rack")
    if node not in wide:
        instead = f"take {plan.nodes[wide[0]].name}" if wide else "take more nodes"
        raise FaultError(
            f"--fault {fault.name}@{fault.node}: the job of {plan.nodes[node].name} does not leave its rack; {instead}")
