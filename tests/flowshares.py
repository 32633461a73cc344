"""A second count of shares, over plain lists of flows, to hold the arrays of the console against. Written apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Flow = tuple[str, str, float]
"""From node, to node, bytes."""


@dataclass(frozen=True)
class Share:
    """Bytes that cross, of those whose both ends are placed; ``ratio`` is None where none are."""

    crossing_bytes: float
    placed_bytes: float
    unplaced_bytes: float

    @property
    def ratio(self) -> float | None:
        return self.crossing_bytes / self.placed_bytes if self.placed_bytes else None

    @property
    def unplaced_ratio(self) -> float | None:
        total = self.placed_bytes + self.unplaced_bytes
        return self.unplaced_bytes / total if total else None


def rack_share(flows: Iterable[Flow], racks: Mapping[str, str]) -> Share:
    """What crosses racks; a node that is not in *racks* is unplaced."""

    def crosses(source: str, target: str) -> bool | None:
        return racks[source] != racks[target] if racks.get(source) and racks.get(target) else None

    return _share(flows, crosses)


def spine_share(flows: Iterable[Flow], leaves: Mapping[str, frozenset[str]]) -> Share:
    """What goes through a spine; where nodes on several leaves share some, it is not told which a flow takes."""

    def crosses(source: str, target: str) -> bool | None:
        here, there = leaves.get(source), leaves.get(target)
        if not here or not there:
            return None
        if not here & there:
            return True
        return False if len(here) == len(there) == 1 else None

    return _share(flows, crosses)


def _share(flows: Iterable[Flow], crosses: Callable[[str, str], bool | None]) -> Share:
    crossing = placed = lost = 0.0
    for source, target, amount in flows:
        if source == target:
            continue
        answer = crosses(source, target)
        if answer is None:
            lost += amount
        else:
            placed += amount
            crossing += amount if answer else 0.0
    return Share(crossing, placed, lost)


def once(told: Mapping[str, Mapping[str, tuple[float, float]]]) -> list[Flow]:
    """Each byte once, of what every node that is asked tells: peer to bytes sent and received.

    A byte is counted where it was sent; by its receiver only where the sender was not asked.
    """
    total: dict[tuple[str, str], float] = {}
    for node, peers in told.items():
        for other, (sent, received) in peers.items():
            if other == node:
                continue
            total[node, other] = total.get((node, other), 0.0) + sent
            if other not in told:
                total[other, node] = total.get((other, node), 0.0) + received
    return [(source, target, amount) for (source, target), amount in total.items() if amount]
