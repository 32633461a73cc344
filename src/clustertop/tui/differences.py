"""What sets nodes apart from their peers, worked out only while somebody looks, and no oftener than it is cheap."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop.rules.outliers import Outlier, outliers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clustertop.store.view import FleetView

LEAST_SECONDS = 5.0
"""What differs is configuration: it does not change by the second."""
SHARE = 0.02
"""At most this part of the console's time goes into it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The same difference on one or several things of a node."""

    first: Outlier
    labels: tuple[str, ...]

    @property
    def things(self) -> str:
        """``mlx5_0/1 +7``; ``node`` for the node itself."""
        more = f" +{len(self.labels) - 1}" if len(self.labels) > 1 else ""
        return f"{self.first.label or 'node'}{more}"

    @property
    def peers(self) -> str:
        """What the peers have, and how many of them."""
        return f"{self.first.usual} ({self.first.common} of {self.first.of})"

    def words(self) -> str:
        """The difference without the node's name."""
        one = self.first
        return f"{one.what} {one.value}, {one.common} of {one.of} peers have {one.usual}"


def fold(found: Iterable[Outlier]) -> tuple[Difference, ...]:
    """One :class:`Difference` for what several things of a node have in common."""
    groups: dict[tuple[object, ...], list[Outlier]] = {}
    for one in found:
        groups.setdefault((one.node, one.what, one.value, one.usual, one.common, one.of), []).append(one)
    return tuple(Difference(mine[0], tuple(one.label for one in mine)) for mine in groups.values())


class Differences:
    """The list of outliers of the view that was last compared."""

    def __init__(self) -> None:
        self.found: tuple[Difference, ...] = ()
        self.at = float("-inf")
        """When it was made, our monotonic clock (that of the view)."""
        self._nodes: object = None
        self._next = float("-inf")
        self._by_node: dict[str, list[Difference]] = {}

    def take(self, view: FleetView) -> tuple[Difference, ...]:
        """The differences of *view*, or of one a few seconds older."""
        if view.at < self._next and view.nodes is self._nodes and self.at <= view.at:
            return self.found
        begun = time.perf_counter()
        self.found = fold(outliers(view))
        cost = time.perf_counter() - begun
        self._nodes, self.at = view.nodes, view.at
        self._next = view.at + max(LEAST_SECONDS, cost / SHARE)
        self._by_node = {}
        for one in self.found:
            self._by_node.setdefault(one.first.node, []).append(one)
        return self.found

    def of(self, view: FleetView, node: str, label: str | None = None) -> list[Difference]:
        """Those of one node, or of one thing on it."""
        self.take(view)
        return [one for one in self._by_node.get(node, []) if label is None or label in one.labels]
