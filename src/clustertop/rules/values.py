"""What a rule holds against its limits: a reading, its growth, its distance from its peers, its absence, its trend.

Each kind keeps what it must in arrays over the rows of its table. Whatever is not known is NaN, never 0. A plain
threshold is the column itself; the others are dearer, and all but the absence are worked out at a slower step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from clustertop.model import Why
from clustertop.rules.sanity import MOST_SECONDS
from clustertop.rules.scope import NO_GROUP, peer_groups
from clustertop.signals.coverage import LEAST_COVERAGE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.rules.spec import Rule
    from clustertop.store.view import FleetView, TableView

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

SLOTS = 30
"""Samples kept of a window."""
MOST_STEP_SECONDS = 10.0
"""Longest time between two workings-out of growth, and the time between two of a trend."""
PEER_STEP_SECONDS = 5.0
LEAST_PEERS = 3
"""With fewer known peers beside it a thing is not judged."""
LEAST_SAMPLES = 12
"""Fewer readings than this, of those that are kept, show no trend."""
TREND_SECONDS = 300.0
TREND_NOISE = 3.0
"""A trend has moved by at least so many times the scatter around it."""
_EXPLAINED = np.zeros(1 << 16, np.bool_)
"""By reason code: not a gap, as other rules tell of it (a stale group, a lost GPU) or as no reading has failed."""
_EXPLAINED[[Why.STALE, Why.GPU_LOST, Why.MIG, Why.MISSING, Why.NEVER_READ, Why.NOT_JUDGED, Why.PATH_UNKNOWN,
            Why.FIRST_READING, Why.RESET, Why.SATURATED, Why.RELEASED]] = True


class Source(Protocol):
    """Gives a rule its values, view by view."""

    def read(self, view: FleetView) -> tuple[Floats, Counts]:
        """Return the values, [rows], NaN where unknown, and how many readings there were so far, [rows]."""
        ...

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows stand for other things now."""
        ...


def source(rule: Rule) -> Source:
    """Return what gives *rule* its values."""
    match rule.kind:
        case "increase":
            return Increase(rule)
        case "peers":
            return Among(rule)
        case "absence":
            return Absence(rule)
        case "trend":
            return Trend(rule)
    return Threshold(rule)


def step_seconds(rule: Rule) -> float:
    """Time between two workings-out of the rule's values; 0: at every tick."""
    match rule.kind:
        case "increase":
            return _window_step(rule)
        case "peers":
            return PEER_STEP_SECONDS
        case "trend":
            return MOST_STEP_SECONDS
    return 0.0


def _window_step(rule: Rule) -> float:
    return min(max(rule.window_seconds / SLOTS, 1.0), MOST_STEP_SECONDS)


class Threshold:
    """The column itself. A mean or a sum over too few of its things says nothing about being low."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def read(self, view: FleetView) -> tuple[Floats, Counts]:
        """The column."""
        table = view[self._rule.table]
        values = table.col(self._rule.metric)
        share = table.spec.metric(self._rule.metric).coverage
        if share and not self._rule.upward:
            with np.errstate(invalid="ignore"):
                values = np.where(table.col(share) >= LEAST_COVERAGE, values, np.nan)
        return values, table.reads

    def forget(self, rows: NDArray[np.intp]) -> None:
        """It remembers nothing."""


class _Stepped:
    """Values that are worked out every so often and stand in between."""

    def __init__(self, seconds: float) -> None:
        self._step = seconds
        self._at = float("-inf")
        self._values: Floats = np.empty(0)
        self._reads: Counts = np.empty(0, np.int64)

    def due(self, now: float, rows: int) -> bool:
        # A shade early rather than a whole tick late: ticks are not exact.
        return now - self._at >= self._step - 0.05 or len(self._values) != rows

    def keep(self, now: float, values: Floats, reads: Counts) -> tuple[Floats, Counts]:
        self._at, self._values, self._reads = now, values, reads.copy()
        return self._values, self._reads

    def last(self) -> tuple[Floats, Counts]:
        return self._values, self._reads

    def forget(self, rows: NDArray[np.intp]) -> None:
        self._values[rows[rows < len(self._values)]] = np.nan


class Growth:
    """By how much a column has grown in the last *seconds*; a reset is a new beginning, not a fall.

    Of a counter its increases are added up, so a wrap, a reload or a boot costs nothing but one step; what grew over
    a gap longer than the window counts only by the window's share of the gap. Of a gauge it is the difference, which
    may be negative. The first reading of a thing has no growth.
    """

    def __init__(self, table: str, metric: str, seconds: float) -> None:
        self._table, self._metric, self._seconds = table, metric, seconds
        self._times = np.full(SLOTS + 2, -np.inf)
        self._samples = np.full((SLOTS + 2, 0), np.nan)
        self._next, self._sampled = 0, float("-inf")
        self._total = np.zeros(0)
        self._counted = np.full(0, np.nan)
        self._read_at = np.full(0, np.nan)
        self._first = np.full(0, np.nan)
        """[rows] when the first reading of all was made."""
        self._settle: Floats = np.empty(0)

    def of(self, view: FleetView) -> Floats:
        """[rows] growth in the window that ends now; NaN where unknown."""
        table = view[self._table]
        self._grow(len(table))
        self._booted(view)
        values = table.col(self._metric)
        metric = table.spec.metric(self._metric)
        if metric.kind == "counter":
            values = np.where(values >= metric.saturation, np.nan, values)
            self._count(view, table, ~np.isnan(values))
            current = self._counted
        else:
            current = values
        read_at = view.at - table.age
        begun = np.isnan(self._first) & ~np.isnan(values)
        self._first[begun] = read_at[begun]
        known = ~np.isnan(values) & (read_at > self._first)
        out: Floats = np.where(known, current - self._then(view.at), np.nan)
        step = self._seconds / SLOTS
        if view.at - self._sampled >= step - 0.05:
            self._sampled = view.at
            self._samples[self._next] = current
            self._times[self._next] = view.at
            self._next = (self._next + 1) % len(self._times)
        return out

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows begin anew."""
        rows = rows[rows < len(self._total)]
        self._samples[:, rows] = np.nan
        self._total[rows] = 0.0
        self._counted[rows] = self._read_at[rows] = self._first[rows] = np.nan

    def _grow(self, rows: int) -> None:
        more = rows - len(self._total)
        if more > 0:
            self._samples = np.pad(self._samples, ((0, 0), (0, more)), constant_values=np.nan)
            self._total = np.pad(self._total, (0, more))
            self._counted = np.pad(self._counted, (0, more), constant_values=np.nan)
            self._read_at = np.pad(self._read_at, (0, more), constant_values=np.nan)
            self._first = np.pad(self._first, (0, more), constant_values=np.nan)

    def _booted(self, view: FleetView) -> None:
        settle = view.settling_of(self._table)
        known = min(len(settle), len(self._settle))
        booted = np.flatnonzero(settle[:known] != self._settle[:known])
        if len(booted):
            self.forget(booted)
        self._settle = settle

    def _count(self, view: FleetView, table: TableView, known: NDArray[np.bool_]) -> None:
        total, read_at = table.grown[self._metric], view.at - table.age
        fallen = total < self._total
        if fallen.any():
            # The store began to count anew: so do we.
            self.forget(np.flatnonzero(fallen))
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = read_at - self._read_at
            share = np.where(gap > self._seconds, self._seconds / gap, 1.0)
        more = (total - self._total) * share
        first = np.isnan(self._counted)
        self._counted = np.where(known, np.where(first, 0.0, self._counted + more), self._counted)
        self._total = np.where(known, total, self._total)
        self._read_at = np.where(known, read_at, self._read_at)

    def _then(self, now: float) -> Floats:
        """[rows] the newest sample that is at least a window old, else the oldest that there is."""
        order = np.argsort(self._times, kind="stable")
        order = order[self._times[order] > -np.inf]
        old = int((self._times[order] <= now - self._seconds + 0.05).sum())
        out: Floats = np.full(self._samples.shape[1], np.nan)
        for slot in order[max(old - 1, 0) :]:
            missing = np.isnan(out)
            if not missing.any():
                break
            out[missing] = self._samples[slot][missing]
        return out


class Increase:
    """Growth over a window."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._growth = Growth(rule.table, rule.metric, rule.window_seconds)
        self._stepped = _Stepped(_window_step(rule))

    def read(self, view: FleetView) -> tuple[Floats, Counts]:
        """The growth, worked out anew where it is due."""
        table = view[self._rule.table]
        if not self._stepped.due(view.at, len(table)):
            return self._stepped.last()
        return self._stepped.keep(view.at, self._growth.of(view), table.reads)

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows begin anew."""
        self._growth.forget(rows)
        self._stepped.forget(rows)


class Among:
    """The distance from the median of its peers: the difference, or how many times it."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._growth = Growth(rule.table, rule.metric, rule.window_seconds) if rule.window_seconds else None
        self._stepped = _Stepped(PEER_STEP_SECONDS)
        self._keys: tuple[object, object] = (None, None)
        self._groups: NDArray[np.intp] = np.empty(0, np.intp)

    def read(self, view: FleetView) -> tuple[Floats, Counts]:
        """The distance, worked out anew where it is due."""
        rule, table = self._rule, view[self._rule.table]
        if not self._stepped.due(view.at, len(table)):
            return self._stepped.last()
        listed = (table.keys, view["gpu"].keys)
        if self._keys[0] is not listed[0] or self._keys[1] is not listed[1]:
            # A PCIe device's model may be known by the GPU that it is.
            self._keys = listed
            self._groups = peer_groups(view, rule.table, rule.peers)
        values = table.col(rule.metric) if self._growth is None else self._growth.of(view)
        middle = medians(values, self._groups)
        if rule.compare == "difference":
            return self._stepped.keep(view.at, values - middle, table.reads)
        middle = np.maximum(middle, rule.floor)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(middle > 0, values / middle, np.nan)
        return self._stepped.keep(view.at, ratio, table.reads)

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows begin anew."""
        if self._growth is not None:
            self._growth.forget(rows)
        self._stepped.forget(rows)


def medians(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """[rows] the median of the row's group, itself included; NaN with fewer than LEAST_PEERS known others.

    Args:
        values: [rows] NaN where unknown.
        groups: [rows] number of the group; NO_GROUP: none.
    """
    out = np.full(values.shape, np.nan)
    known = np.flatnonzero(~np.isnan(values) & (groups != NO_GROUP))
    if not len(known):
        return out
    order = known[np.lexsort((values[known], groups[known]))]
    _, start, count = np.unique(groups[order], return_index=True, return_counts=True)
    ranked = values[order]
    middle = (ranked[start + (count - 1) // 2] + ranked[start + count // 2]) / 2
    middle[count <= LEAST_PEERS] = np.nan
    out[order] = np.repeat(middle, count)
    return out


class Absence:
    """Seconds without a value that was known before; 0 while it is known or only a few readings lack it.

    NaN, which neither raises nor clears: what was never known here, and what another rule tells of (a stale group,
    a lost GPU). Such a time is no reading, so it is not counted as a gap either.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._parts = [_Silence(rule, name) for name in (rule.metric, *rule.also)]

    def read(self, view: FleetView) -> tuple[Floats, Counts]:
        """The longest silence of the rule's columns."""
        table = view[self._rule.table]
        values = [part.read(view.at, table) for part in self._parts]
        out = values[0]
        for more in values[1:]:
            out = np.fmax(out, more)
        return out, table.reads

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows begin anew."""
        for part in self._parts:
            part.forget(rows)


class _Silence:
    """Of one column."""

    def __init__(self, rule: Rule, metric: str) -> None:
        self._rule, self._metric = rule, metric
        self._quiet: Floats = np.empty(0)
        """[rows] 0 where the value has been known, NaN where it never was."""
        self._since: Floats = np.empty(0)
        self._gaps: Counts = np.empty(0, np.int64)
        self._seen: Counts = np.empty(0, np.int64)
        self._last = float("nan")
        self._counting = False

    def read(self, now: float, table: TableView) -> Floats:
        more = len(table) - len(self._quiet)
        if more > 0:
            self._quiet = np.pad(self._quiet, (0, more), constant_values=np.nan)
            self._since = np.pad(self._since, (0, more), constant_values=np.nan)
            self._gaps = np.pad(self._gaps, (0, more))
            self._seen = np.pad(self._seen, (0, more), constant_values=-1)
        last, self._last = self._last, now
        unknown = np.isnan(table.col(self._metric))
        self._quiet[~unknown] = 0.0
        if self._counting:
            self._since[~unknown], self._gaps[~unknown] = np.nan, 0
        rows = np.flatnonzero(unknown & ~np.isnan(self._quiet))
        if not len(rows):
            self._counting = False
            return self._quiet.copy()
        self._counting = True
        out = self._quiet.copy()
        why = table.why_of(self._metric)[rows]
        explained = _EXPLAINED[why] | ~table.present[rows]
        out[rows[explained]] = np.nan
        rows = rows[~explained]
        new = np.isnan(self._since[rows])
        self._since[rows[new]] = last if last == last else now
        again = table.reads[rows] != self._seen[rows]
        self._gaps[rows[again]] += 1
        self._seen[rows] = table.reads[rows]
        seconds = now - self._since[rows]
        long = (self._gaps[rows] >= self._rule.gaps) | (seconds >= self._rule.gap_seconds)
        out[rows] = np.where(long, np.maximum(seconds, 1e-3), 0.0)
        return out

    def forget(self, rows: NDArray[np.intp]) -> None:
        rows = rows[rows < len(self._quiet)]
        self._quiet[rows] = self._since[rows] = np.nan
        self._gaps[rows] = 0
        self._seen[rows] = -1


class Trend:
    """Seconds until the value is at ``reach`` if it goes on rising as in the last minutes, at most MOST_SECONDS.

    The slope is that of Tukey's resistant line (J. W. Tukey, Exploratory Data Analysis, 1977): through the medians of
    the first and the last third of the kept readings, so that a few wild ones do not turn it. A value that stands or
    falls is MOST_SECONDS away: it is known not to come, which also ends an alert. Where the readings scatter more than
    they rise, or are too few, nothing is known.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._stepped = _Stepped(MOST_STEP_SECONDS)

    def read(self, view: FleetView) -> tuple[Floats, Counts]:
        """The forecast, worked out anew where it is due."""
        table = view[self._rule.table]
        if not self._stepped.due(view.at, len(table)):
            return self._stepped.last()
        times, samples = view.history.samples(self._rule.table, self._rule.metric, len(table))
        recent = times >= view.at - TREND_SECONDS
        values = arrival(times[recent], samples[recent].astype(np.float64), table.col(self._rule.metric),
                         float(self._rule.reach or 0.0))
        return self._stepped.keep(view.at, values, table.reads)

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows begin anew."""
        self._stepped.forget(rows)


def arrival(times: Floats, samples: Floats, now: Floats, reach: float) -> Floats:
    """[rows] seconds until *reach*, 0 where it is reached, NaN where nothing can be said.

    Args:
        times: [samples] when each was taken, rising.
        samples: [samples, rows] NaN where unknown.
        now: [rows] the value now.
        reach: what is being reached from below.
    """
    out = np.full(samples.shape[1], np.nan)
    third = len(times) // 3
    known = ~np.isnan(samples)
    usable = (known.sum(axis=0) >= LEAST_SAMPLES) & known[:third].any(axis=0) & known[len(times) - third :].any(axis=0)
    rows = np.flatnonzero(usable & ~np.isnan(now))
    if third and len(rows):
        values = samples[:, rows]
        when = np.where(known[:, rows], times[:, None], np.nan)
        rise = _middle(values[-third:]) - _middle(values[:third])
        slope = rise / (_middle(when[-third:]) - _middle(when[:third]))
        away = values - slope * (times - times[-1])[:, None]
        scatter = _middle(np.abs(away - _middle(away)))
        ahead = np.where(slope > 0, (reach - now[rows]) / np.where(slope > 0, slope, 1.0), MOST_SECONDS)
        poor = (rise > 0) & (rise <= TREND_NOISE * scatter)
        out[rows] = np.where(poor, np.nan, np.clip(ahead, 0.0, MOST_SECONDS))
    out[now >= reach] = 0.0
    return out


def _middle(samples: Floats) -> Floats:
    """[rows] the median of what is known of each; there is something of each."""
    count = (~np.isnan(samples)).sum(axis=0)
    ranked = np.sort(samples, axis=0)
    out: Floats = (np.take_along_axis(ranked, ((count - 1) // 2)[None], 0)[0]
                   + np.take_along_axis(ranked, (count // 2)[None], 0)[0]) / 2
    return out
