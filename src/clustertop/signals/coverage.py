"""Means and sums over things that do not all tell: over how many they are, and when they may be judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_COVERAGE = 0.8
"""A mean over a smaller share of its things is shown, but is not judged to be low."""


@dataclass(frozen=True, slots=True)
class Covered:
    """A figure over some of the things that it is about."""

    value: float | None
    """None: none of them tells."""
    known: int
    of: int

    @property
    def whole(self) -> bool:
        """Whether it is over all of them."""
        return self.known == self.of

    @property
    def share(self) -> float:
        """Of the things, 0 to 1."""
        return self.known / self.of if self.of else 0.0

    @property
    def judged(self) -> float | None:
        """The value, where enough of the things tell to call it low."""
        return self.value if self.share >= LEAST_COVERAGE else None

    @property
    def note(self) -> str:
        """``2/4``; empty where it is over all of them."""
        return "" if self.whole else f"{self.known}/{self.of}"


def mean(values: NDArray[np.float64]) -> Covered:
    """The mean of what is known; NaN is unknown and counts for nothing, least of all for 0."""
    known = values[~np.isnan(values)]
    return Covered(float(known.mean()) if len(known) else None, len(known), len(values))


def total(values: NDArray[np.float64]) -> Covered:
    """The sum of what is known: at least that much."""
    known = values[~np.isnan(values)]
    return Covered(float(known.sum()) if len(known) else None, len(known), len(values))
