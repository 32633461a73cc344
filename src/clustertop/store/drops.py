"""Links that became narrower while we watched: when, from how many lanes, and what was read in the minutes around it.

The rings of :mod:`clustertop.store.history` forget after five minutes; what they held around a drop is copied once the
minute after it is in, and kept as long as the link stays narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns
    from clustertop.store.history import History

    class Readings(Protocol):
        """A table, at work or frozen."""

        def col(self, name: str) -> NDArray[np.float64]:
            """The column *name*, [rows]."""
            ...

AFTER_SECONDS = 60.0
"""So much of what came after a drop is kept with what came before."""
MOST = 256
"""Drops that are kept; a fleet with more has another problem. The oldest go first."""
_AER = ("aer_correctable_per_second", "aer_nonfatal_per_second", "aer_fatal_per_second")


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """What was read around a drop. All arrays [samples], oldest first, NaN where unknown."""

    seconds: NDArray[np.float64]
    """Since the drop; negative before it."""
    whose: str
    """Whose temperature and power it is: ``GPU 3``, or ``hottest of 8 GPUs`` for a device that is none."""
    temperature_celsius: NDArray[np.float64]
    power_watts: NDArray[np.float64]
    """Of one GPU, or of all GPUs of the node."""
    aer_per_second: NDArray[np.float64]
    """AER errors on the path of the device, all kinds; of a path that counts none all NaN."""
    complete: bool
    """The minute after the drop is in it."""


@dataclass(slots=True)
class _Drop:
    at: float
    gpus: tuple[int, ...]
    whose: str
    path: tuple[int, ...]
    trace: Trace | None = None


class Bursts:
    """Samples of a rate that is nearly always 0, by row: only those that are not 0 are kept, as long as a ring does."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._kept: list[tuple[float, NDArray[np.intp], NDArray[np.float64]]] = []

    def push(self, at: float, rate: NDArray[np.float64]) -> None:
        """Add one sample of all rows."""
        rows = np.flatnonzero(rate > 0)
        self._kept.append((at, rows, rate[rows]))
        del self._kept[: -self._samples]

    def series(self, rows: Sequence[int], times: NDArray[np.float64]) -> NDArray[np.float64]:
        """[times] sum over *rows* at each of the ring's *times*, 0 where nothing was kept."""
        out = np.zeros(len(times))
        wanted = np.array(rows, np.intp)
        for at, mine, rates in self._kept:
            found = np.isin(mine, wanted)
            if found.any():
                out[times == at] += float(rates[found].sum())
        return out

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows stand for other things now."""
        for place, (at, mine, rates) in enumerate(self._kept):
            keep = ~np.isin(mine, rows)
            self._kept[place] = (at, mine[keep], rates[keep])


class WidthDrops:
    """The path width of every PCIe device over time, [rows] of the PCIe table."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._width = np.empty(0)
        self._from = np.empty(0)
        self._at = np.empty(0)
        self._keys: list[str] = []
        self._listed = -1
        self._drops: dict[int, _Drop] = {}
        self._bursts = Bursts(history.length)

    def derive(
        self, t: Columns, chain: NDArray[np.intp], join: NDArray[np.intp], gpus: Columns, labels: Sequence[str],
        listed: int, now: float,
    ) -> None:
        """Fill the columns ``width_drop_seconds`` and ``width_before_lanes``.

        Args:
            t: the PCIe table; its path widths are worked out.
            chain: [hops, rows] the rows of each device's path, itself first, negative beyond its end.
            join: [rows] the device's row in the GPU table, negative where it is none.
            gpus: the GPU table.
            labels: of the GPU table's rows.
            listed: a number that moves when rows of the PCIe table may stand for other devices.
            now: our monotonic clock.
        """
        self._relist(t, listed)
        width = t.col("path_width_lanes")
        narrower = width < self._width
        for row in np.flatnonzero(narrower & (t.col("endpoint") == 1)).tolist():
            self._take(row, now, t, chain, join, gpus, labels)
        self._from = np.where(narrower, self._width, self._from)
        self._at = np.where(narrower, now, self._at)
        over = width >= self._from
        self._from[over] = self._at[over] = np.nan
        for row in np.flatnonzero(over).tolist():
            self._drops.pop(row, None)
        self._width = np.where(np.isnan(width), self._width, width)
        # While nothing is known of the width it may be as it was; the drop is not over.
        known = ~np.isnan(width)
        t.put("width_drop_seconds", np.where(known, now - self._at, np.nan), Why.NOT_JUDGED)
        t.put("width_before_lanes", np.where(known, self._from, np.nan), Why.NOT_JUDGED)

    def sample(self, t: Columns, now: float) -> None:
        """Take a sample of the AER rates, when the rings take theirs; copy what drops have become complete."""
        total = np.zeros(len(t))
        for name in _AER:
            total += np.nan_to_num(t.col(name))
        self._bursts.push(now, total)
        for drop in self._drops.values():
            if drop.trace is None and now - drop.at >= AFTER_SECONDS:
                drop.trace = self._read(drop, t, complete=True)

    def trace(self, t: Readings, row: int) -> Trace | None:
        """What was read around the drop of *row*; None where no drop of it was seen."""
        drop = self._drops.get(row)
        if drop is None:
            return None
        return drop.trace or self._read(drop, t, complete=False)

    def _take(
        self, row: int, now: float, t: Columns, chain: NDArray[np.intp], join: NDArray[np.intp], gpus: Columns,
        labels: Sequence[str],
    ) -> None:
        own = int(join[row])
        mine = (own,) if own >= 0 else tuple(np.flatnonzero(gpus.row_node == t.row_node[row]).tolist())
        whose = labels[own] if own >= 0 else f"hottest of {len(mine)} GPUs" if mine else ""
        path = tuple(hop for hop in chain[:, row].tolist() if hop >= 0)
        self._drops.pop(row, None)
        self._drops[row] = _Drop(now, mine, whose, path)
        while len(self._drops) > MOST:
            del self._drops[next(iter(self._drops))]

    def _read(self, drop: _Drop, t: Readings, *, complete: bool) -> Trace:
        times = self._history.times("gpu")
        heat, power = np.full(len(times), np.nan), np.full(len(times), np.nan)
        for gpu in drop.gpus:
            heat = np.fmax(heat, self._history.series("gpu", "temperature_celsius", gpu))
            watts = self._history.series("gpu", "power_watts", gpu).astype(float)
            power = np.where(np.isnan(power), watts, power + np.nan_to_num(watts))
        counted = any(not np.isnan(t.col(name)[hop]) for hop in drop.path for name in _AER)
        aer = self._bursts.series(drop.path, times) if counted else np.full(len(times), np.nan)
        aer[np.isnan(times)] = np.nan
        return Trace(times - drop.at, drop.whose, heat, power, aer, complete)

    def _relist(self, t: Columns, listed: int) -> None:
        if listed == self._listed:
            return
        self._listed = listed
        more = len(t) - len(self._width)
        if more > 0:
            for name in ("_width", "_from", "_at"):
                setattr(self, name, np.concatenate([getattr(self, name), np.full(more, np.nan)]))
        other = np.array([row for row, key in enumerate(self._keys) if key != t.keys[row]], np.intp)
        if len(other):
            for place in (self._width, self._from, self._at):
                place[other] = np.nan
            self._bursts.forget(other)
            for row in other.tolist():
                self._drops.pop(row, None)
        self._keys = list(t.keys)
