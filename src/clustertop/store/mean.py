"""Running means of arrays in which some values are unknown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_NONE = np.empty(0, np.intp)
MEAN_SECONDS = 15.0
"""Bytes are a running mean over about so long: a collective is a burst, and meters are read at different moments."""


class Mean:
    """A running mean over about :data:`MEAN_SECONDS`, from its first value on. What is unknown now is unknown."""

    def __init__(self) -> None:
        self.value = np.empty(0)
        self._at = float("-inf")

    def update(self, values: Floats, now: float) -> Floats:
        """Take new values in; returns the mean, which is good until the next ones."""
        if len(values) != len(self.value):
            self.value = np.full(len(values), np.nan)
        part = 1 - math.exp(-max(now - self._at, 0.0) / MEAN_SECONDS)
        self._at = now
        change = values - self.value
        change *= part
        self.value += change
        new = np.isnan(self.value)
        if new.any():
            self.value[new] = values[new]
        return self.value

    def move(self, before: NDArray[np.intp], after: NDArray[np.intp], anew: NDArray[np.intp] = _NONE) -> None:
        """The places are others now; both are sorted codes. Those of *anew* begin with their next value."""
        old, self.value = self.value, np.full(len(after), np.nan)
        if len(old) == len(before) and len(old):
            place = np.minimum(np.searchsorted(before, after), len(before) - 1)
            same = before[place] == after
            if len(anew):
                same &= ~np.isin(after, anew)
            self.value[same] = old[place[same]]


def known_or_zero(values: Floats) -> Floats:
    """The values, 0 where one is unknown; the same array where none is."""
    unknown = np.isnan(values)
    return np.where(unknown, 0.0, values) if unknown.any() else values
