"""How much a total has grown in the last so many seconds, for every row of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Window:
    """Samples of totals, [kinds, rows], over the last *seconds*, one every ``seconds / slots``.

    A row's total starts at 0, so what it has when it is first seen has grown within the window.
    """

    def __init__(self, kinds: int, seconds: float, slots: int) -> None:
        self.seconds = seconds
        self._step = seconds / slots
        self._times = np.full(slots + 2, -np.inf)
        self._data = np.zeros((slots + 2, kinds, 0))
        self._next = 0
        self._last = float("-inf")

    def growth(self, now: float, totals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how much each total has grown in the window that ends at *now*, and remember them."""
        rows = totals.shape[1]
        if rows > self._data.shape[2]:
            wider = np.zeros((*self._data.shape[:2], max(rows, 2 * self._data.shape[2])))
            wider[:, :, : self._data.shape[2]] = self._data
            self._data = wider
        old = np.flatnonzero(self._times <= now - self.seconds)
        then = self._data[old[self._times[old].argmax()], :, :rows] if len(old) else 0.0
        out: NDArray[np.float64] = totals - then
        # A shade early rather than a whole step late: ticks are not exact.
        if now - self._last >= self._step - 0.05:
            self._last = now
            self._data[self._next, :, :rows] = totals
            self._times[self._next] = now
            self._next = (self._next + 1) % len(self._times)
        return out

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows stand for other things now, whose totals start at 0."""
        self._data[:, :, rows[rows < self._data.shape[2]]] = 0.0
