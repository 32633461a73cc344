"""One rule's state over all rows of its table: ok, pending, firing. Cost grows with the rows near a limit.

Only rows that breach, are on their way, or fire are looked at one by one: the rest of a tick is one comparison over
the column. An unknown value neither raises nor clears, and counts as no reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.model import Severity
    from clustertop.rules.spec import Level, Rule

    Rows = NDArray[np.intp]
    Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Change:
    """What one evaluation changed, by row."""

    raised: list[int] = field(default_factory=list)
    worsened: list[int] = field(default_factory=list)
    eased: list[int] = field(default_factory=list)
    cleared: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.raised or self.worsened or self.eased or self.cleared)


class _Streak:
    """Per row: since when, and at how many readings, a condition has held."""

    __slots__ = ("count", "seen", "since")

    def __init__(self) -> None:
        self.since = np.full(0, np.nan)
        self.count = np.zeros(0, np.int64)
        self.seen = np.zeros(0, np.int64)

    def grow(self, more: int) -> None:
        self.since = np.concatenate([self.since, np.full(more, np.nan)])
        self.count = np.concatenate([self.count, np.zeros(more, np.int64)])
        self.seen = np.concatenate([self.seen, np.full(more, -1, np.int64)])

    def update(
        self, rows: Rows, now: float, reads: NDArray[np.int64], holds: Mask, known: Mask, seconds: float, polls: int,
    ) -> Mask:
        """Take this moment's truth about *rows*; returns where it has held long enough and holds now."""
        since, count, seen = self.since[rows], self.count[rows], self.seen[rows]
        begin = holds & np.isnan(since)
        since[begin] = now
        count[begin] = 0
        seen[begin] = -1
        since[known & ~holds] = np.nan
        again = holds & (reads != seen)
        count[again] += 1
        seen[again] = reads[again]
        self.since[rows], self.count[rows], self.seen[rows] = since, count, seen
        with np.errstate(invalid="ignore"):
            return holds & (now - since >= seconds) & (count >= polls)


class Verdicts:
    """State of one rule, [rows of its table].

    Attributes:
        level: severity that fires, 0: none.
        since: when it was last raised, our monotonic clock; NaN where it never was.
        since_wall: the same for display.
        value: the reading of the last change.
        values: what was compared last.
        touched: rows looked at one by one in the last evaluation: what the work grows with.
    """

    def __init__(self, name: str, rule: Rule) -> None:
        self.name, self.rule = name, rule
        self.levels: list[tuple[Severity, Level]] = rule.levels()
        limits = [level.limit for _, level in self.levels]
        self._nearest = min(limits) if rule.op in {">", ">="} else max(limits)
        self._raising = [_Streak() for _ in self.levels]
        self._clearing, self._easing = _Streak(), _Streak()
        self.level = np.zeros(0, np.uint8)
        self.since = np.full(0, np.nan)
        self.since_wall = np.full(0, np.nan)
        self.value = np.full(0, np.nan)
        self._active: Rows = np.empty(0, np.intp)
        self._dismissed: Rows = np.empty(0, np.intp)
        self.values = np.full(0, np.nan)
        self.touched = 0

    def _grow(self, rows: int) -> None:
        more = rows - len(self.level)
        if more <= 0:
            return
        self.level = np.concatenate([self.level, np.zeros(more, np.uint8)])
        for name in ("since", "since_wall", "value"):
            setattr(self, name, np.concatenate([getattr(self, name), np.full(more, np.nan)]))
        for streak in (*self._raising, self._clearing, self._easing):
            streak.grow(more)

    @property
    def firing(self) -> Rows:
        """Rows that fire."""
        out: Rows = self._active[self.level[self._active] > 0]
        return out

    @property
    def pending(self) -> Rows:
        """Rows that breach but have not done so for long enough."""
        rows = self._active
        held = np.zeros(len(rows), np.bool_)
        for streak in self._raising:
            held |= ~np.isnan(streak.since[rows])
        out: Rows = rows[held & (self.level[rows] == 0)]
        return out

    def restore(self, row: int, severity: Severity, since: float, since_wall: float, value: float) -> None:
        """Take up an alert of before a restart: only a reading inside the clear limit ends it.

        A severity that the rule has no level for becomes the mildest it has.
        """
        self._grow(row + 1)
        known = [at for at, _ in self.levels]
        self.level[row] = severity if severity in known else known[0]
        self.since[row], self.since_wall[row], self.value[row] = since, since_wall, value
        self._active = np.union1d(self._active, [row]).astype(np.intp)

    def dismiss(self, rows: Rows) -> None:
        """What these rows say is as it should be, until they have read well and fail again."""
        self.forget(rows)
        self._dismissed = np.union1d(self._dismissed, rows).astype(np.intp)

    def forget(self, rows: Rows) -> None:
        """These rows stand for other things now."""
        rows = rows[rows < len(self.level)]
        self.level[rows] = 0
        self.since[rows] = self.since_wall[rows] = self.value[rows] = np.nan
        for streak in (*self._raising, self._clearing, self._easing):
            streak.since[rows] = np.nan
        self._active = np.setdiff1d(self._active, rows)
        self._dismissed = np.setdiff1d(self._dismissed, rows)

    def restart(self, rows: Mask) -> None:
        """What is on its way in *rows* starts anew: nothing was watched in between."""
        for streak in (*self._raising, self._clearing, self._easing):
            streak.since[: len(rows)][rows[: len(streak.since)]] = np.nan

    def evaluate(
        self, values: NDArray[np.float64], reads: NDArray[np.int64], now: float, wall: float,
        scope: Mask | None = None, settling: Mask | None = None,
    ) -> Change:
        """Judge *values*, [rows].

        Args:
            values: what the rule compares; NaN where unknown.
            reads: [rows] how many readings there were so far: only a new one counts for ``for_polls``.
            now: our monotonic clock.
            wall: seconds since the epoch, for display.
            scope: [rows] what the rule is for; None: everything. What fires when it leaves the scope stays.
            settling: [rows] where nothing is raised or worsened yet.
        """
        self._grow(len(values))
        self.values = values
        with np.errstate(invalid="ignore"):
            near = np.asarray(self.rule.breach(values, self._nearest), np.bool_)
        if scope is not None:
            near &= scope
        if len(self._dismissed):
            well = ~np.isnan(values[self._dismissed]) & ~near[self._dismissed]
            self._dismissed = self._dismissed[~well]
            near[self._dismissed] = False
        near[self._active] = True
        rows = np.flatnonzero(near)
        self.touched = len(rows)
        change = Change()
        if not len(rows):
            return change
        mine, read = values[rows], reads[rows]
        known = ~np.isnan(mine)
        if scope is not None:
            known &= scope[rows]
        with np.errstate(invalid="ignore"):
            breaches = [np.asarray(self.rule.breach(mine, level.limit), np.bool_) & known for _, level in self.levels]
        held = np.zeros(len(rows), np.bool_) if settling is None else settling[rows]
        target = np.zeros(len(rows), np.uint8)
        for (severity, level), streak, breach in zip(self.levels, self._raising, breaches, strict=True):
            target[streak.update(rows, now, read, breach, known, level.for_seconds, level.for_polls)] = severity
        self._raise(rows, mine, np.where(held, 0, target), now, wall, change)
        self._relax(rows, mine, read, known, breaches, target, now, change)
        keep = self.level[rows] > 0
        for streak in self._raising:
            keep |= ~np.isnan(streak.since[rows])
        self._active = rows[keep]
        return change

    def _raise(
        self, rows: Rows, values: NDArray[np.float64], target: NDArray[np.uint8], now: float, wall: float,
        change: Change,
    ) -> None:
        up = target > self.level[rows]
        if not up.any():
            return
        new = up & (self.level[rows] == 0)
        change.raised = rows[new].tolist()
        change.worsened = rows[up & ~new].tolist()
        self.since[rows[new]], self.since_wall[rows[new]] = now, wall
        self.level[rows[up]] = target[up]
        self.value[rows[up]] = values[up]

    def _relax(
        self, rows: Rows, values: NDArray[np.float64], reads: NDArray[np.int64], known: Mask, breaches: list[Mask],
        target: NDArray[np.uint8], now: float, change: Change,
    ) -> None:
        level = self.level[rows]
        firing = level > 0
        if not firing.any():
            return
        clear = self.rule.clear
        limit = self.levels[0][1].limit if clear.limit is None else clear.limit
        with np.errstate(invalid="ignore"):
            inside = known & firing & ~np.asarray(self.rule.breach(values, limit), np.bool_)
        done = self._clearing.update(rows, now, reads, inside, known, clear.seconds, clear.polls)
        if done.any():
            change.cleared = rows[done].tolist()
            self.level[rows[done]] = 0
            self.value[rows[done]] = values[done]
            for streak in (self._clearing, self._easing):
                streak.since[rows[done]] = np.nan
        at_level = np.zeros(len(rows), np.bool_)
        for (severity, _), breach in zip(self.levels, breaches, strict=True):
            at_level |= breach & (level == severity)
        milder = known & firing & ~done & ~at_level & (target > 0) & (target < level)
        eased = self._easing.update(rows, now, reads, milder, known, clear.seconds, clear.polls)
        if eased.any():
            change.eased = rows[eased].tolist()
            self.level[rows[eased]] = target[eased]
            self.value[rows[eased]] = values[eased]
            self._easing.since[rows[eased]] = np.nan
