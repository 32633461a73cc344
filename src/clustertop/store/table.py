"""One table of the store: growing columns, filled frame by frame, made into meaning once a tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why, intern
from clustertop.signals import counters as counters_module
from clustertop.signals.columns import Columns
from clustertop.signals.units import number
from clustertop.store.layout import Layout, runs_index
from clustertop.store.view import FRESH, LATE, STALE, Freshness, TableView
from clustertop.text import clean
from clustertop.wire.frame import MAX_PORTS, MAX_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.signals.metric import TableSpec
    from clustertop.wire.frame import Row, TablePart

    Labeller = Callable[[str, Mapping[str, Attr]], str]

_USUAL = Freshness()
GRACE_SECONDS = 1.5
"""Added to both: a frame that is a tick late on a slow link is not old news."""

_NO_STAMP = (float("-inf"), float("nan"), float("nan"), 0)
_ALIASES = {
    "GPU is lost": Why.GPU_LOST,
    "Not Supported": Why.NOT_SUPPORTED,
    "Function Not Found": Why.NOT_SUPPORTED,
    "Insufficient Permissions": Why.NO_PERMISSION,
    "EACCES": Why.NO_PERMISSION,
    "EPERM": Why.NO_PERMISSION,
    "ENOENT": Why.NOT_PROVIDED,
    "absent": Why.NOT_PROVIDED,
}


class Table:
    """Values of one kind of thing over the whole fleet.

    ``raw`` holds what the nodes sent; ``columns.values`` what it means: scaled, in range, with derived columns.
    """

    def __init__(self, spec: TableSpec, label: Labeller, *, reuse: bool = False) -> None:
        """Make an empty table.

        Args:
            spec: its columns.
            label: makes a row's label of its key and attributes.
            reuse: whether the row of a thing that has gone may be another's at once, not only when there is no room
                left: for things that come and go all day.
        """
        self.spec = spec
        self._reuse = reuse
        self._most = MAX_PORTS if spec.name == "uplink" else MAX_ROWS
        """Rows of one owner."""
        self._free: dict[int, list[int]] = {}
        """By node: rows of things that have gone, where they may be used again."""
        self._label = label
        metrics = spec.metrics
        # Multiplied or divided, never multiplied by 0.01: 95 % is 0.95 and nothing beside it.
        self._times = np.array([max(metric.scale, 1.0) for metric in metrics])[:, None]
        self._over = np.array([1.0 if metric.scale >= 1 else round(1 / metric.scale) for metric in metrics])[:, None]
        self._lo = np.array([metric.lo for metric in metrics])[:, None]
        self._hi = np.array([metric.hi for metric in metrics])[:, None]
        self._sent = sum(bool(metric.raw) for metric in metrics)
        """The first columns are those that nodes send; the first of these, the counters."""
        if any(metric.raw for metric in metrics[self._sent :]):
            raise ValueError(f"table {spec.name}: columns that nodes send must stand first")
        self._has_aliases = any(metric.aliases for metric in metrics)
        self.counter_names = tuple(metric.name for metric in metrics if metric.kind == "counter")
        self._saturation = np.array([spec.metric(name).saturation for name in self.counter_names])[:, None]
        self._rate_column = [spec.index.get(spec.metric(name).rate, -1) for name in self.counter_names]
        self._is_rated = np.array([column >= 0 for column in self._rate_column], np.bool_)
        self.show_growth: tuple[str, ...] = ()
        """Counters whose increase since first seen is in every view."""
        self.rows = 0
        self.keys: list[str] = []
        self.attrs: list[Mapping[str, Attr]] = []
        self.labels: list[str] = []
        self._names: tuple[tuple[str, ...], tuple[Mapping[str, Attr], ...], tuple[str, ...]] | None = None
        self.index: dict[tuple[int, str], int] = {}
        self.of_node: dict[int, list[int]] = {}
        self._layouts: dict[int, Layout] = {}
        self._stamps: dict[int, tuple[float, float, float, int]] = {}
        self._held: set[int] = set()
        self.out_of_range = 0
        self.listed = 0
        """Grows whenever a row or its attributes change."""
        self.changed = True
        self._empty: TableView | None = None
        """The view of no rows: it is the same at any moment."""
        self._capacity = 0
        self._allocate(64)

    # -- storage -------------------------------------------------------------------------------------------------

    def _allocate(self, capacity: int) -> None:
        width, tall = self._capacity, len(self.spec.metrics)

        def grown(old: NDArray[np.generic] | None, fill: object, dtype: type, *lead: int) -> NDArray[np.generic]:
            new: NDArray[np.generic] = np.full((*lead, capacity), fill, dtype)
            if old is not None:
                new[..., :width] = old
            return new

        first = self._capacity == 0
        old = None if first else self.__dict__
        buffer = np.full(tall * capacity + 1, np.nan)
        why_buffer = np.full(tall * capacity + 1, Why.NEVER_READ, np.uint16)
        raw, raw_why = buffer[:-1].reshape(tall, capacity), why_buffer[:-1].reshape(tall, capacity)
        if old is not None:
            raw[:, :width], raw_why[:, :width] = self.raw, self.raw_why
        self.buffer, self.why_buffer, self.raw, self.raw_why = buffer, why_buffer, raw, raw_why
        count = len(self.counter_names)
        spec: tuple[tuple[str, object, type, tuple[int, ...]], ...] = (
            ("values", np.nan, np.float64, (tall,)), ("why", Why.NEVER_READ, np.uint16, (tall,)),
            ("node", -1, np.int32, ()), ("present", True, np.bool_, ()), ("read_at", -np.inf, np.float64, ()),
            ("node_time", np.nan, np.float64, ()), ("interval", np.nan, np.float64, ()), ("reads", 0, np.int64, ()),
            ("other_reads", 0, np.int64, ()),
            ("_advanced", 0, np.int64, ()), ("last", np.nan, np.float64, (count,)),
            ("last_time", np.nan, np.float64, (count,)), ("grown", 0.0, np.float64, (count,)),
            ("growth", np.nan, np.float64, (count,)),
        )
        for name, fill, dtype, lead in spec:
            setattr(self, name, grown(old[name] if old else None, fill, dtype, *lead))
        self._capacity = capacity

    buffer: NDArray[np.float64]
    why_buffer: NDArray[np.uint16]
    raw: NDArray[np.float64]
    raw_why: NDArray[np.uint16]
    values: NDArray[np.float64]
    why: NDArray[np.uint16]
    node: NDArray[np.int32]
    present: NDArray[np.bool_]
    read_at: NDArray[np.float64]
    node_time: NDArray[np.float64]
    interval: NDArray[np.float64]
    reads: NDArray[np.int64]
    other_reads: NDArray[np.int64]
    """[rows] readings that another table lends to this one (a GPU's link is also read by NVML)."""
    _advanced: NDArray[np.int64]
    last: NDArray[np.float64]
    last_time: NDArray[np.float64]
    grown: NDArray[np.float64]
    growth: NDArray[np.float64]
    """[counters, rows]: increase since first seen (``grown``) and at the last reading (``growth``)."""

    @property
    def columns(self) -> Columns:
        """The working columns, cut to the rows in use."""
        rows = slice(0, self.rows)
        return Columns(self.spec, self.values[:, rows], self.why[:, rows], self.node[rows], self.present[rows],
                       self.keys, self.attrs)

    def add(self, node: int, key: str, attrs: Mapping[str, Attr]) -> int | None:
        """Return the row of *key* on *node*, made if need be; None when the node has too many rows."""
        row = self.index.get((node, key))
        if row is None:
            mine = self.of_node.setdefault(node, [])
            row = self._freed(node, mine)
            if row is None and len(mine) >= self._most:
                return None
            if row is not None:
                del self.index[node, self.keys[row]]
                self._wipe(row)
                self.keys[row] = key
            else:
                row = self.rows
                if row == self._capacity:
                    self._allocate(2 * self._capacity)
                self.rows += 1
                mine.append(row)
                self.keys.append(key)
                self.attrs.append({})
                self.labels.append("")
            self.index[node, key] = row
            self.node[row] = node
        self.present[row] = True
        self.attrs[row] = attrs
        self.labels[row] = self._label(key, attrs)
        self._names = None
        self.listed += 1
        self.changed = True
        return row

    def _freed(self, node: int, mine: list[int]) -> int | None:
        """A row of *node* whose thing has gone and that may be another's now."""
        free = self._free.get(node)
        while free:
            row = free.pop()
            if not self.present[row]:
                return row
        return next((old for old in mine if not self.present[old]), None) if len(mine) >= self._most else None

    def expect(self, node: int, key: str, attrs: Mapping[str, Attr]) -> int | None:
        """Return the row of a thing that *node* had before; it is missing until the node lists it."""
        row = self.index.get((node, key))
        if row is None:
            row = self.add(node, key, attrs)
            if row is not None:
                self.present[row] = False
                self.raw_why[:, row] = Why.MISSING
        return row

    def say(self, row: int, attrs: Mapping[str, Attr]) -> None:
        """Replace a row's attributes."""
        self.attrs[row] = attrs
        self._names = None

    def rename(self, row: int, key: str, attrs: Mapping[str, Attr]) -> None:
        """From now on *row* stands for another thing of its owner, of which nothing is known yet.

        Only for tables that the console fills itself.
        """
        node = int(self.node[row])
        self.index.pop((node, self.keys[row]), None)
        self._wipe(row)
        self.read_at[row], self.reads[row] = -np.inf, 0
        self.keys[row] = key
        self.index[node, key] = row
        self.add(node, key, attrs)

    def relabel(self, row: int, label: str) -> None:
        """Call a row something else."""
        self.labels[row] = label
        self._names = None

    def hold(self, node: int, held: bool) -> None:
        """From now on nothing is known of *node*'s rows, because the operator had them let go; or that is over."""
        if held != (node in self._held):
            (self._held.add if held else self._held.discard)(node)
            self.changed = True

    def held(self) -> NDArray[np.bool_]:
        """[rows] those of which nothing is known because the operator had them let go."""
        if not self._held:
            return np.zeros(self.rows, np.bool_)
        return np.isin(self.node[: self.rows], list(self._held))

    def seal(self) -> None:
        """Make what was worked out of the rows that are held unknown, too."""
        if self._held:
            rows = np.flatnonzero(self.held())
            self.values[:, rows], self.why[:, rows] = np.nan, Why.RELEASED

    def _wipe(self, row: int) -> None:
        self.raw[:, row], self.raw_why[:, row] = np.nan, Why.NEVER_READ
        self.values[:, row], self.why[:, row] = np.nan, Why.NEVER_READ
        self.last[:, row] = self.last_time[:, row] = self.growth[:, row] = np.nan
        self.grown[:, row] = 0.0

    def new_baseline(self, node: int, *, forget: bool = False) -> None:
        """The node booted: its counters start again, whatever they show.

        Args:
            node: index of the node.
            forget: what they grew by so far is no longer growth since they were first seen.
        """
        rows = self.of_node.get(node, [])
        if forget:
            self.grown[:, rows] = 0.0
        self.last[:, rows] = np.nan
        self.last_time[:, rows] = np.nan

    # -- frames --------------------------------------------------------------------------------------------------

    def layout_of(self, node: int) -> Layout | None:
        """The node's layout from its last full frame."""
        return self._layouts.get(node)

    def based_on(self, node: int, sequence: int) -> bool:
        """Whether a later frame counted from full frame *sequence* can be read."""
        layout = self._layouts.get(node)
        return layout is not None and layout.sequence == sequence

    def remember(self, node: int, sent: list[Row], *, complete: bool) -> None:
        """Keep the rows as they were sent: the next full part with the same ones needs no second look."""
        self._layouts[node].sent, self._layouts[node].complete = sent, complete

    def ingest_same(self, node: int, sequence: int, part: TablePart) -> None:
        """Take a full part whose rows are exactly those of the last one."""
        old = self._layouts[node]
        columns = np.array([self.spec.raw_index.get(name, -1) for name in part.c or ()], np.intp)
        layout = Layout(sequence, old.rows, columns)
        layout.sent, layout.complete, layout.names = old.sent, old.complete, old.names
        self._layouts[node] = layout
        self._fill(layout, part)

    def ingest_full(self, node: int, sequence: int, part: TablePart, rows: list[Row], *, gone: bool) -> bool:
        """Take a full part. Returns True if the set of rows or their attributes changed.

        Args:
            node: index of the node.
            sequence: the frame's number.
            part: the part; its cells count over ``part.c`` columns and *rows*.
            rows: the rows, keys and attributes already cleaned and made canonical.
            gone: whether rows that are not listed are gone (the listing worked).
        """
        changed, store_rows = False, []
        for row in rows:
            known = self.index.get((node, row.k))
            if known is None or self.attrs[known] != row.a or not self.present[known]:
                changed = True
                known = self.add(node, row.k, row.a)
            store_rows.append(-1 if known is None else known)
        if gone:
            missing = set(self.of_node.get(node, ())) - set(store_rows)
            went = any(self.present[row] for row in missing)
            changed |= went
            self.listed += went
            lost = list(missing)
            self.present[lost] = False
            self.raw[:, lost], self.raw_why[:, lost] = np.nan, Why.MISSING
            if self._reuse:
                self._free[node] = lost
        columns = [self.spec.raw_index.get(name, -1) for name in part.c or ()]
        layout = Layout(sequence, np.array(store_rows, np.intp), np.array(columns, np.intp))
        layout.names = part.c or []
        self._layouts[node] = layout
        self._fill(layout, part)
        return changed

    def _fill(self, layout: Layout, part: TablePart) -> None:
        """Write every cell of a full part."""
        cells = len(layout.rows) * len(layout.columns)
        index = runs_index(part.i, cells)
        values = np.full(cells, np.nan)
        values[index] = part.x
        why = np.full(cells, Why.NOT_PROVIDED, np.uint16)
        why[index] = Why.KNOWN
        layout.base, layout.base_why = values, why
        self._texts(layout, part, values, why)
        layout.base_has_text = bool(part.j)
        if self._has_aliases:
            layout.spare = _spare(layout.columns, why, len(layout.rows))
        # What this listing has no column for is no longer provided.
        rows = layout.rows if layout.all_stored else layout.rows[layout.rows >= 0]
        self.raw[: self._sent, rows] = np.nan
        self.raw_why[: self._sent, rows] = Why.NOT_PROVIDED
        targets = layout.cells(self._capacity, self.buffer.size)
        self.buffer[targets] = values
        self.why_buffer[targets] = why
        self.changed = True

    def ingest_delta(self, node: int, part: TablePart) -> None:
        """Take what differs from the last full part. Raises ValueError: cells that the layout does not have."""
        layout = self._layouts[node]
        targets = layout.cells(self._capacity, self.buffer.size)
        if part.i != layout.runs:
            self._restore(layout, targets)
            layout.runs = part.i
            layout.touched = runs_index(part.i, len(targets))
            layout.touched_cells = targets[layout.touched]
        elif layout.moved:
            layout.touched_cells = targets[layout.touched]
        layout.moved = False
        self.buffer[layout.touched_cells] = part.x
        if layout.base_has_text or layout.text_cells is not None:
            self._restore_texts(layout, targets)
            self.why_buffer[layout.touched_cells] = Why.KNOWN
        if part.j:
            values, why = np.full(len(targets), np.nan), np.zeros(len(targets), np.uint16)
            cells = self._texts(layout, part, values, why)
            self.buffer[targets[cells]] = values[cells]
            self.why_buffer[targets[cells]] = why[cells]
            layout.text_cells = cells
        self.changed = True

    def _restore(self, layout: Layout, targets: NDArray[np.intp]) -> None:
        touched = layout.touched
        self.buffer[targets[touched]] = layout.base[touched]
        self.why_buffer[targets[touched]] = layout.base_why[touched]

    def _restore_texts(self, layout: Layout, targets: NDArray[np.intp]) -> None:
        cells = layout.text_cells
        if cells is not None:
            # Cells that are also in the new runs have just been written; only the others go back to the base.
            stale = np.setdiff1d(cells, layout.touched)
            self.buffer[targets[stale]] = layout.base[stale]
            self.why_buffer[targets[stale]] = layout.base_why[stale]
            layout.text_cells = None

    def _texts(
        self, layout: Layout, part: TablePart, values: NDArray[np.float64], why: NDArray[np.uint16]
    ) -> NDArray[np.intp]:
        """Write the cells that came as text or as a reason; returns their numbers."""
        tall = len(layout.rows)
        for cell, text in zip(part.j, part.s, strict=True):
            if not 0 <= cell < len(values):
                raise ValueError(f"cell {cell} of a table of {len(values)}")
            column = int(layout.columns[cell // tall])
            values[cell], why[cell] = _reading(text, None if column < 0 else self.spec.metrics[column].parse)
        return np.array(part.j, np.intp)

    def stamp(self, node: int, read_at: float, node_time: float, interval: float) -> None:
        """Note when the readings of *node* that were just ingested were made."""
        reads = self._stamps.get(node, _NO_STAMP)[3]
        self._stamps[node] = (read_at, node_time, interval, reads + 1)
        self.changed = True

    def _gather(self) -> None:
        """Spread the nodes' stamps over their rows; rows that a listing no longer has count its readings too."""
        if not self._stamps:
            return
        stamps = np.full((max(self._stamps) + 1, 4), (-np.inf, np.nan, np.nan, 0.0))
        stamps[list(self._stamps)] = list(self._stamps.values())
        rows = slice(0, self.rows)
        owner = np.minimum(self.node[rows], len(stamps) - 1)
        mine = self.node[rows] < len(stamps)
        for place, column in ((self.read_at, 0), (self.node_time, 1), (self.interval, 2), (self.reads, 3)):
            place[rows][mine] = stamps[owner[mine], column]

    # -- meaning -------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring ``values`` up to what the nodes sent: scale, valid range, counter growth, rates."""
        if not self.changed:
            return
        self.changed = False
        self._gather()
        rows, sent = slice(0, self.rows), slice(0, self._sent)
        values, why = self.values[sent, rows], self.why[sent, rows]
        with np.errstate(over="ignore"):  # a node may send any number; what overflows is out of range
            np.multiply(self.raw[sent, rows], self._times[sent], out=values)
        np.divide(values, self._over[sent], out=values)
        np.copyto(why, self.raw_why[sent, rows])
        out = values < self._lo[sent]
        out |= values > self._hi[sent]
        if out.any():
            self.out_of_range += int(out.sum())
            values[out] = np.nan
            why[out] = Why.OUT_OF_RANGE
        if self._held:
            held = self.held()
            values[:, held], why[:, held] = np.nan, Why.RELEASED
        if self.counter_names:
            self._advance()

    def _advance(self) -> None:
        """Take the counters of the rows that have a new reading."""
        rows = self.rows
        fresh = self.reads[:rows] != self._advanced[:rows]
        if fresh.all():
            self._count(slice(0, rows))
        elif fresh.any():
            self._count(np.flatnonzero(fresh))
        self._advanced[:rows] = self.reads[:rows]

    def _count(self, rows: slice | NDArray[np.intp]) -> None:
        counters = len(self.counter_names)
        now, last = self.values[:counters, rows], self.last[:, rows]
        seconds = self.node_time[rows] - self.last_time[:, rows]
        # Most counters of a healthy fleet stand still; only the columns that moved anywhere are worked through.
        moved = (now.view(np.int64) != last.view(np.int64)) | (now >= self._saturation)
        busy = moved.any(axis=1) | self._is_rated
        backwards = bool((seconds <= 0).any())
        if backwards:
            busy[:] = True
        self.growth[:, rows] = np.where(np.isnan(now), np.nan, 0.0)
        for position in np.flatnonzero(busy).tolist():
            growth, why = counters_module.increase(last[position], now[position], self._saturation[position])
            unread = np.isnan(now[position])
            if unread.any():
                why[unread] = self.why[position, rows][unread]
            if backwards:
                again = seconds[position] <= 0
                growth[again] = np.nan
                why[again & (why == Why.KNOWN)] = Why.RESET
            self.growth[position, rows] = growth
            self.grown[position, rows] += np.nan_to_num(growth)
            column = self._rate_column[position]
            if column >= 0:
                rate = growth / np.where(seconds[position] > 0, seconds[position], np.nan)
                self.values[column, rows] = rate
                self.why[column, rows] = np.where(np.isnan(rate), why, Why.KNOWN)
            seen = ~np.isnan(now[position])
            self.last[position, rows] = np.where(seen, now[position], last[position])
        self.last_time[:, rows] = np.where(np.isnan(now), self.last_time[:, rows], self.node_time[rows])

    def fresh(self, now: float, freshness: Freshness) -> NDArray[np.bool_]:
        """[rows] whether the last reading is within the stale limit."""
        rows = slice(0, self.rows)
        interval = np.where(np.isnan(self.interval[rows]), 1.0, self.interval[rows])
        out: NDArray[np.bool_] = now - self.read_at[rows] <= freshness.stale_intervals * interval + GRACE_SECONDS
        return out

    def view(self, now: float, keep: tuple[str, ...] = (), freshness: Freshness = _USUAL) -> TableView:
        """Return the frozen picture at *now*. Rows past the stale limit lose their values, but for columns *keep*."""
        if not self.rows and self._empty is not None:
            return self._empty
        rows = slice(0, self.rows)
        values, why = self.values[:, rows].copy(), self.why[:, rows].copy()
        age = now - self.read_at[rows]
        interval = np.where(np.isnan(self.interval[rows]), 1.0, self.interval[rows])
        level = np.full(self.rows, FRESH, np.uint8)
        level[age > freshness.late_intervals * interval + GRACE_SECONDS] = LATE
        stale = ~self.fresh(now, freshness)
        level[stale] = STALE
        # What is no longer listed keeps what was said of it; what was never heard of on this run says nothing.
        gone = stale & (self.present[rows] | np.isinf(age))
        if gone.any():
            kept = [self.spec.index[name] for name in keep]
            columns = np.setdiff1d(np.arange(len(values)), kept)
            where = np.ix_(columns, np.flatnonzero(gone))
            values[where] = np.nan
            why[where] = np.where(np.isinf(age[gone]), Why.NEVER_READ, Why.STALE)
        if self._names is None:
            self._names = (tuple(self.keys), tuple(self.attrs), tuple(self.labels))
        keys, attrs, labels = self._names
        out = TableView(self.spec, self.node[rows].copy(), keys, attrs, labels, values, why, age, level,
                        self.present[rows].copy(), self.reads[rows] + self.other_reads[rows],
                        {name: self.grown[self.counter_names.index(name), rows].copy() for name in self.show_growth})
        if not self.rows:
            self._empty = out
        return out


def _spare(columns: NDArray[np.intp], why: NDArray[np.uint16], tall: int) -> NDArray[np.intp]:
    """Cells that say nothing, of store columns that several local columns fill: they must not undo the one that does.

    A row has at most one of the counters that share a column.
    """
    known, counts = np.unique(columns, return_counts=True)
    shared = np.isin(columns, known[(counts > 1) & (known >= 0)])
    if not shared.any():
        return np.empty(0, np.intp)
    return np.flatnonzero(np.repeat(shared, tall) & (why == Why.NOT_PROVIDED))


def _reading(text: str, parse: Callable[[str], float] | None) -> tuple[float, int]:
    """What a text cell means: (number, 0), or (NaN, why)."""
    mark, body = text[:1], text[1:].strip()
    if mark == "!":
        return float("nan"), _ALIASES.get(body) or intern(_short(body))
    if mark != "=":
        return float("nan"), Why.UNREADABLE
    try:
        return (parse or number)(body), Why.KNOWN
    except ValueError:
        return float("nan"), intern(f"unreadable: {_short(body)}") if body else Why.UNREADABLE


def _short(text: str) -> str:
    return clean(text, 48)
