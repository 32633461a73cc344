"""What RDMA ports add up to: errors by class and in the last second, minute and hour, expected rates, nodes cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals import rdma
from clustertop.signals.rdma_catalogue import NARROW
from clustertop.signals.rdma_counters import BY_COLUMN
from clustertop.store.flaps import PortFlaps
from clustertop.store.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns
    from clustertop.store.table import Table

_TOTALS = (("hard", "hard_errors_total"), ("soft", "soft_errors_total"), ("congestion", "congestion_total"))
SECONDS = 10.0
"""What "per second" is the mean of."""
MINUTE_SECONDS = 60.0
HOUR_SECONDS = 3600.0
_PACES = (("second", "transport_errors_per_second", SECONDS, 10), ("minute", "link_recoveries_last_minute",
          MINUTE_SECONDS, 60), ("hour", "symbol_errors_last_hour", HOUR_SECONDS, 60))
_LINK_DOWNS = ("link_downed", "hw_link_downed")


class Ports:
    """Derived columns of the port table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        names = table.counter_names
        spec = table.spec

        def places(*wanted: str) -> NDArray[np.intp]:
            return np.array([names.index(name) for name in wanted], np.intp)

        self._members = {cls: places(*(name for name in names if spec.metric(name).cls == cls))
                         for cls, _ in _TOTALS}
        self._paced = {pace: places(*(name for name in names if BY_COLUMN[name].pace == pace))
                       for pace, *_ in _PACES}
        self._columns = np.array([spec.index[name] for name in names], np.intp)
        self._limits = np.array([spec.metric(name).saturation for name in names])[:, None]
        self._narrow = [(spec.index[name], (2.0**32 - 1) * spec.metric(name).scale) for name in NARROW]
        # What is only shown stops at its end as well.
        self._narrow += [(spec.index[metric.name], metric.saturation) for metric in spec.metrics
                         if metric.bits and metric.name not in names]
        self._downs = places(*_LINK_DOWNS)
        self._minute = Window(3, MINUTE_SECONDS, 60)
        self._windows = [Window(1, seconds, slots) for _, _, seconds, slots in _PACES]
        self._flaps = PortFlaps()
        self._keys: list[str] = []
        self._listed = -1
        self._seen = np.zeros((len(_PACES), 0))
        self._counted = np.zeros((len(_PACES), 0))
        self._time = np.full(0, np.nan)
        self._reads = np.zeros(0, np.int64)
        self._model = np.zeros(0, np.intp)
        self._infiniband = np.zeros(0, np.bool_)
        self._rates: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def derive(self, now: float) -> None:
        """Fill the derived columns at *now*; :func:`clustertop.signals.rdma.derive` comes first."""
        self._relist()
        table, rows = self._table, slice(0, self._table.rows)
        columns = table.columns
        fresh = table.reads[rows] != self._reads
        downs = table.grown[self._downs, rows].sum(axis=0)
        self._flaps.derive(columns, table.read_at[rows], fresh, downs, now)
        self._totals(columns, now, downs)
        self._pace(columns, now, fresh)
        self._judge_rates(columns)
        self._reads = table.reads[rows].copy()

    def forget(self, rows: NDArray[np.intp]) -> None:
        """Drop what *rows* did so far: they stand for other ports now, or their node has just settled after a boot."""
        rows = rows[rows < len(self._time)]
        self._seen[:, rows] = self._counted[:, rows] = 0.0
        self._time[rows] = np.nan
        self._flaps.forget(rows)
        for window in (self._minute, *self._windows):
            window.forget(rows)

    def _relist(self) -> None:
        """Follow the table's rows: new ones, and ones that stand for another port now."""
        table = self._table
        if table.listed == self._listed:
            return
        self._listed = table.listed
        more = table.rows - len(self._time)
        if more > 0:
            self._seen = np.pad(self._seen, ((0, 0), (0, more)))
            self._counted = np.pad(self._counted, ((0, 0), (0, more)))
            self._time = np.pad(self._time, (0, more), constant_values=np.nan)
            self._reads = np.pad(self._reads, (0, more))
        self._flaps.grow(table.rows)
        other = np.array([row for row, key in enumerate(self._keys) if key != table.keys[row]], np.intp)
        if len(other):
            self.forget(other)
        self._keys = list(table.keys)
        models: dict[object, int] = {}
        self._model = np.full(table.rows, -1, np.intp)
        for row, attrs in enumerate(table.attrs):
            board, hca = attrs.get("board"), attrs.get("hca")
            if (board or hca) and not attrs.get("physfn"):
                key = (board or (hca, attrs.get("driver")), attrs.get("link_layer"))
                self._model[row] = models.setdefault(key, len(models))
        self._infiniband = np.array([attrs.get("link_layer") == "InfiniBand" for attrs in table.attrs], np.bool_)
        self._rates = None

    def _totals(self, columns: Columns, now: float, downs: NDArray[np.float64]) -> None:
        """A port that gives no counter of a class has no total of it: unknown, not 0."""
        table, rows = self._table, slice(0, self._table.rows)
        sums, known = [], []
        for cls, total in _TOTALS:
            members = self._members[cls]
            known.append((~np.isnan(table.values[self._columns[members], rows])).any(axis=0))
            sums.append(table.grown[members, rows].sum(axis=0))
            columns.put(total, np.where(known[-1], sums[-1], np.nan))
        hard, soft, down = self._minute.growth(now, np.array([sums[0], sums[1], downs]))
        # Where the port is down, or flaps, that says it; its link downs are not another fault.
        told = (columns.col("down") == 1) | (columns.col("flap") == 1)
        columns.put("hard_errors_last_minute", np.where(known[0], hard - np.where(told, down, 0.0), np.nan))
        columns.put("soft_errors_last_minute", np.where(known[1], soft, np.nan))
        full = (table.last[:, rows] >= self._limits).sum(axis=0).astype(float)
        for column, end in self._narrow:
            full += table.values[column, rows] == end
        some = (~np.isnan(table.values[self._columns, rows])).any(axis=0)
        columns.put("saturated_counters", np.where(some, full, np.nan))

    def _pace(self, columns: Columns, now: float, fresh: NDArray[np.bool_]) -> None:
        """Soft errors by the second, minute and hour.

        What grew over a gap longer than the window counts in it only by the window's share of the gap: an hour's
        worth of errors that arrive in one reading is no storm.
        """
        table, rows = self._table, slice(0, self._table.rows)
        seconds = table.node_time[rows] - self._time
        for number, ((pace, name, span, _), window) in enumerate(zip(_PACES, self._windows, strict=True)):
            members = self._paced[pace]
            known = (~np.isnan(table.values[self._columns[members], rows])).any(axis=0)
            total = table.grown[members, rows].sum(axis=0)
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(seconds > span, span / seconds, 1.0)
            self._counted[number] += np.where(fresh, (total - self._seen[number]) * share, 0.0)
            self._seen[number] = np.where(fresh, total, self._seen[number])
            grown = window.growth(now, self._counted[number : number + 1])[0]
            columns.put(name, np.where(known, grown / span if pace == "second" else grown, np.nan))
        self._time = np.where(fresh, table.node_time[rows], self._time)

    def _judge_rates(self, columns: Columns) -> None:
        rate, lanes = columns.col("rate_bits_per_second"), columns.col("lanes")
        if self._rates is None or not np.array_equal(rate, self._rates[0], equal_nan=True):
            self._rates = (rate.copy(), rdma.expected_rates(self._model, rate, lanes, self._infiniband))
        rdma.judge_rates(columns, self._rates[1])


def judge_nodes(nodes: Columns, ports: Columns, wanted: NDArray[np.float64]) -> None:
    """Count each node's ports, and take those of a node that lost all of them together as one fault.

    Args:
        nodes: the node table.
        ports: the port table.
        wanted: [nodes] ports that the config expects in use; NaN where it says nothing, or nobody could look.
    """
    count = len(nodes)
    down = ports.col("down")
    judged = ~np.isnan(down)
    expected = np.bincount(ports.row_node[judged], minlength=count).astype(float)
    lost = np.bincount(ports.row_node[down == 1], minlength=count).astype(float)
    none = expected == 0
    nodes.put("ports_expected", np.where(none, np.nan, expected))
    nodes.put("ports_down", np.where(none, np.nan, lost))
    every = (expected >= 2) & (lost == expected)
    nodes.put("all_ports_down", np.where(none, np.nan, every.astype(float)), Why.NOT_JUDGED)
    # A port that was in use and is down now has an alert of its own; here are those that never came.
    used = (ports.col("was_up") == 1) & (ports.col("virtual") == 0)
    came = np.bincount(ports.row_node[used], minlength=count)
    nodes.put("ports_expected_missing", np.maximum(wanted - came, 0), Why.NOT_JUDGED)
    ports.put("down_apart", np.where(every[ports.row_node], np.nan, down), Why.NOT_JUDGED)
