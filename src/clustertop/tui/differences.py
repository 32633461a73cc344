"""What sets nodes apart from their peers, worked out only while somebody looks, and no oftener than it is cheap."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from clustertop.rules.outliers import Outlier, outliers

if TYPE_CHECKING:
    from clustertop.store.view import FleetView

LEAST_SECONDS = 5.0
"""What differs is configuration: it does not change by the second."""
SHARE = 0.02
"""At most this part of the console's time goes into it."""


class Differences:
    """The list of outliers of the view that was last compared."""

    def __init__(self) -> None:
        self.found: tuple[Outlier, ...] = ()
        self.at = float("-inf")
        """When it was made, our monotonic clock (that of the view)."""
        self._nodes: object = None
        self._next = float("-inf")
        self._by_node: dict[str, list[Outlier]] = {}

    def take(self, view: FleetView) -> tuple[Outlier, ...]:
        """The differences of *view*, or of one a few seconds older."""
        if view.at < self._next and view.nodes is self._nodes and self.at <= view.at:
            return self.found
        begun = time.perf_counter()
        self.found = tuple(outliers(view))
        cost = time.perf_counter() - begun
        self._nodes, self.at = view.nodes, view.at
        self._next = view.at + max(LEAST_SECONDS, cost / SHARE)
        self._by_node = {}
        for one in self.found:
            self._by_node.setdefault(one.node, []).append(one)
        return self.found

    def of(self, view: FleetView, node: str, label: str | None = None) -> list[Outlier]:
        """Those of one node, or of one thing on it."""
        self.take(view)
        return [one for one in self._by_node.get(node, []) if label is None or one.label == label]
