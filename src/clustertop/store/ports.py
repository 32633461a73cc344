"""Increases of RDMA counters by class: since first seen, and in the last minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.store.history import Ring

if TYPE_CHECKING:
    from clustertop.store.table import Table

_CLASSES = (("hard", "hard_errors_total", "hard_errors_last_minute"),
            ("soft", "soft_errors_total", "soft_errors_last_minute"), ("congestion", "congestion_total", ""))
MINUTE_SECONDS = 60.0
_SLOT_SECONDS = 1.0


class PortTotals:
    """Sums over the counters of each class, with a minute of them kept."""

    def __init__(self, table: Table) -> None:
        self._table = table
        spec = table.spec
        self._members = {
            cls: np.array([position for position, name in enumerate(table.counter_names)
                           if spec.metric(name).cls == cls], np.intp)
            for cls, _, _ in _CLASSES
        }
        self._columns = {cls: np.array([spec.index[table.counter_names[position]] for position in members], np.intp)
                         for cls, members in self._members.items()}
        self._all = np.array([spec.index[name] for name in table.counter_names], np.intp)
        self._limits = np.array([spec.metric(name).saturation for name in table.counter_names])[:, None]
        self._ring = Ring((spec.index["hard_errors_total"], spec.index["soft_errors_total"]), 64)
        self._last = float("-inf")

    def derive(self, now: float) -> None:
        """Fill the totals at *now*. A port that gives no counter of a class has no total of it: unknown, not 0."""
        table, rows = self._table, slice(0, self._table.rows)
        columns = table.columns
        for cls, total, _ in _CLASSES:
            known = (~np.isnan(table.values[self._columns[cls], rows])).any(axis=0)
            grown = table.grown[self._members[cls], rows].sum(axis=0)
            columns.put(total, np.where(known, grown, np.nan))
        before = self._ring.before(now - MINUTE_SECONDS, table.rows)
        for position, (_, total, minute) in enumerate(_CLASSES[:2]):
            then = before[position].astype(np.float64)
            grown = columns.col(total)
            columns.put(minute, np.where(np.isnan(then), np.where(np.isnan(grown), np.nan, grown), grown - then))
        full = (table.last[:, rows] >= self._limits).sum(axis=0).astype(float)
        some = (~np.isnan(table.values[self._all, rows])).any(axis=0)
        columns.put("saturated_counters", np.where(some, full, np.nan))
        if now - self._last >= _SLOT_SECONDS - 0.05:
            self._last = now
            self._ring.push(now, table.values[:, rows])
