"""Fixed rings of recent values: what sparklines, "in the last minute" and "the minutes before" are read from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.signals.metric import TableSpec

SAMPLES = 150
STEP_SECONDS = 2.0
"""Five minutes at two seconds a sample."""


class Ring:
    """The last samples of a few columns of one table, [samples, columns, rows], newest overwriting oldest."""

    def __init__(self, columns: tuple[int, ...], samples: int) -> None:
        self.columns = np.array(columns, np.intp)
        self.times = np.full(samples, np.nan)
        self._data = np.full((samples, len(columns), 0), np.nan, np.float32)
        self._next = 0

    def push(self, at: float, values: NDArray[np.float64]) -> None:
        """Add one sample of all rows; *values* is [table columns, rows]."""
        rows = values.shape[1]
        if rows > self._data.shape[2]:
            grown = np.full((*self._data.shape[:2], max(rows, 2 * self._data.shape[2])), np.nan, np.float32)
            grown[:, :, : self._data.shape[2]] = self._data
            self._data = grown
        self._data[self._next, :, :rows] = values[self.columns]
        self.times[self._next] = at
        self._next = (self._next + 1) % len(self.times)

    def order(self) -> NDArray[np.intp]:
        """Slots from oldest to newest."""
        return (np.arange(len(self.times)) + self._next) % len(self.times)

    def series(self, position: int, row: int) -> NDArray[np.float32]:
        """One row's samples of the *position*-th column, oldest first; NaN where unknown."""
        if row >= self._data.shape[2]:
            return np.full(len(self.times), np.nan, np.float32)
        out: NDArray[np.float32] = self._data[self.order(), position, row]
        return out

    def samples(self, position: int, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """The times of all samples, oldest first, and the *position*-th column at each, [samples, rows]."""
        order = self.order()
        order = order[~np.isnan(self.times[order])]
        out = np.full((len(order), rows), np.nan, np.float32)
        width = min(rows, self._data.shape[2])
        out[:, :width] = self._data[order, position, :width]
        return self.times[order], out

    def before(self, at: float, rows: int) -> NDArray[np.float32]:
        """[columns, rows] of the newest sample not younger than *at*, or of the oldest there is; NaN if none."""
        order = self.order()
        times = self.times[order]
        usable = np.flatnonzero(~np.isnan(times))
        if not len(usable):
            return np.full((len(self.columns), rows), np.nan, np.float32)
        older = usable[times[usable] <= at]
        slot = order[older[-1] if len(older) else usable[0]]
        out = np.full((len(self.columns), rows), np.nan, np.float32)
        width = min(rows, self._data.shape[2])
        out[:, :width] = self._data[slot, :, :width]
        return out

    def forget(self, rows: NDArray[np.intp]) -> None:
        """Drop the past of *rows* (they now stand for other things)."""
        rows = rows[rows < self._data.shape[2]]
        self._data[:, :, rows] = np.nan


class History:
    """The rings of every table, as read by front ends."""

    def __init__(self, specs: tuple[TableSpec, ...]) -> None:
        self._rings: dict[str, Ring] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._last = float("-inf")
        for spec in specs:
            # Of a counter the rate is kept, not the total.
            columns = tuple(
                number for number, metric in enumerate(spec.metrics) if metric.history and metric.kind != "counter")
            self._rings[spec.name] = Ring(columns, SAMPLES)
            for position, number in enumerate(columns):
                self._positions[spec.name, spec.metrics[number].name] = position

    @property
    def length(self) -> int:
        """How many samples are kept."""
        return SAMPLES

    def times(self, table: str) -> NDArray[np.float64]:
        """When each sample of *table* was taken, our monotonic clock, oldest first; NaN where there is none yet."""
        ring = self._rings[table]
        out: NDArray[np.float64] = ring.times[ring.order()]
        return out

    def due(self, now: float) -> bool:
        """Whether a sample is due at *now*."""
        return now - self._last >= STEP_SECONDS - 0.05

    def push(self, now: float, tables: dict[str, NDArray[np.float64]]) -> None:
        """Add one sample of every table."""
        self._last = now
        for name, values in tables.items():
            self._rings[name].push(now, values)

    def series(self, table: str, metric: str, row: int) -> NDArray[np.float32]:
        """Samples of one value, oldest first, STEP_SECONDS apart, NaN where unknown.

        Raises:
            KeyError: no history is kept of it.
        """
        return self._rings[table].series(self._positions[table, metric], row)

    def kept(self, table: str, metric: str) -> bool:
        """Whether the past of a column is kept."""
        return (table, metric) in self._positions

    def samples(self, table: str, metric: str, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """When the kept samples were taken (our monotonic clock), oldest first, and their values, [samples, rows].

        Raises:
            KeyError: no history is kept of it.
        """
        return self._rings[table].samples(self._positions[table, metric], rows)

    def forget(self, table: str, rows: NDArray[np.intp]) -> None:
        """Drop the past of *rows* of *table*."""
        self._rings[table].forget(rows)
