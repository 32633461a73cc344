"""How the demo's nodes are fed: feeds, PDUs and supplies, and when which of them fails. Fixed by plan and faults.

Each four nodes of a rack hang on a pair of three-phase feeds, A and B, 400/230 V with a 63 A breaker and a metered rack
PDU each. A node of the demo (eight H100) takes 7 to 8 kW at work by two three-phase supplies, one on A and one on B.
So a feed runs at 30 to 38 % of its breaker (less where a node is idle, or while a job saves), and one alone carries all
four nodes at up to 76 %: below the 80 % that a continuous load may have. Where the demo is told to trip a breaker, the
four nodes in question have no feed B: both of their supplies hang on A, which runs at 60 to 76 % all the time, and
nothing is left when it trips.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.demo.plan import NODES_PER_FEED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from clustertop.demo.faults import Placed
    from clustertop.demo.plan import Plan

RATING_AMPS = 63.0
VOLTS = 230.0
"""Line to neutral."""
PHASES = 3
SUPPLIES = 2
SUPPLY_NAMES = ("PSU1", "PSU2")
SUPPLY_WATTS = 9_000.0
"""Rating of a node's supply; one alone carries the node."""


@dataclass(frozen=True, slots=True)
class DemoFeed:
    """One feed with its PDU."""

    name: str
    rack: str
    pair: str
    """Name of the other feed; empty: there is none."""
    nodes: tuple[int, ...]

    @property
    def pdu(self) -> str:
        """Name of its PDU."""
        return f"pdu-{self.name.lower()}"


class Wiring:
    """Which supply hangs on which feed, and from when on it has no power. Times in seconds; infinite: never."""

    def __init__(self, plan: Plan, faults: Iterable[Placed] = ()) -> None:
        placed = list(faults)
        count = len(plan.nodes)
        alone = {one.node // NODES_PER_FEED for one in placed if one.name == "breaker-trip"}
        self.feeds: list[DemoFeed] = []
        self.feed_of: NDArray[np.intp] = np.zeros((count, SUPPLIES), np.intp)
        """Feed of each node's two supplies: [nodes, 2]."""
        seen: dict[str, int] = {}
        for group, first in enumerate(range(0, count, NODES_PER_FEED)):
            nodes = tuple(range(first, min(first + NODES_PER_FEED, count)))
            rack = plan.nodes[first].rack
            seen[rack] = seen.get(rack, 0) + 1
            names = [f"{rack}-{side}{seen[rack]}" for side in ("A" if group in alone else "AB")]
            for side, name in enumerate(names):
                pair = names[1 - side] if len(names) > 1 else ""
                self.feed_of[list(nodes), side:] = len(self.feeds)
                self.feeds.append(DemoFeed(name, rack, pair, nodes))
        self.dead_from: NDArray[np.float64] = np.full(len(self.feeds), math.inf)
        """Of each feed."""
        self.failed_from: NDArray[np.float64] = np.full((count, SUPPLIES), math.inf)
        """Of each supply, by itself."""
        self.off_from: NDArray[np.float64] = np.full(count, math.inf)
        """When a node is switched off with its supplies live."""
        self.overload: dict[int, float] = {}
        """Feeds that are loaded more and more, and from when on."""
        for one in placed:
            self._fail(plan, one)
        gone = np.minimum(self.dead_from[self.feed_of], self.failed_from)
        self.dark_from: NDArray[np.float64] = gone.max(axis=1)
        """When a node has no live supply any more."""

    def _fail(self, plan: Plan, one: Placed) -> None:
        main = int(self.feed_of[one.node, 0])
        start = one.start_seconds
        if one.name in {"feed-loss", "breaker-trip"}:
            self.dead_from[main] = min(self.dead_from[main], start)
        elif one.name == "rack-down":
            for number, feed in enumerate(self.feeds):
                if feed.rack == plan.nodes[one.node].rack:
                    self.dead_from[number] = min(self.dead_from[number], start)
        elif one.name == "psu-fail":
            self.failed_from[one.node, one.device % SUPPLIES] = start
        elif one.name == "node-down":
            self.off_from[one.node] = start
        elif one.name == "pdu-overload":
            self.overload[main] = start
