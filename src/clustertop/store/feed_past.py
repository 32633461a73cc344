"""The last minutes of every feed, at the times of its readings: where its current goes, and where its load went."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why, intern
from clustertop.signals import feed, power

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

SAMPLES = 64
WINDOW_SECONDS = 600.0
STEP_SECONDS = WINDOW_SECONDS / (SAMPLES - 4)
"""Readings nearer in time than this are one sample of the forecast."""
BUSY_RATIO = 0.5
RISEN_RATIO = 0.05
"""A forecast is made of a feed above that share of its rating, or that has risen by that much in the window."""
STEP_READINGS = 2
JUMP_SHARE = 0.7
"""A step of more than this of the whole rise is one. Of a steady climb over six readings it would be two fifths."""
AT_ONCE = 32
"""Forecasts of one tick; the rest has its turn in the next ones."""
BACK_RATIO = 0.5
"""A load is back when it is so much of what it was, also where that is little of the breaker."""
BEFORE_SECONDS = 60.0
"""A load that goes within this time went at once."""
SETTLED_SECONDS = 180.0
"""So long after a load went what else happened can still say why: nodes are given up later than a PDU is read."""
_ASSUMED_RATING = 16.0
_IDLE = intern("neither busy nor rising")
_FELL = intern("it has just fallen")
_JUMPED = intern("it has just jumped")
_FAR = intern("far from the limit")
_FEW = intern("too few readings yet")
_EVENTS = {"": feed.NO_EVENT, "feed lost": feed.LOST, "breaker tripped": feed.TRIPPED, "load gone": feed.GONE}


class Past:
    """Rings of readings, [feeds, samples], newest overwriting oldest."""

    def __init__(self, feeds: int) -> None:
        self._times, self._amps = np.full((feeds, SAMPLES), np.nan), np.full((feeds, SAMPLES), np.nan)
        self._place = np.zeros(feeds, np.intp)
        self._sampled = np.full(feeds, -np.inf)
        self.last, self.before = np.full(feeds, np.nan), np.full(feeds, np.nan)
        """[feeds] the last known current and the one at the reading before it, A."""
        self.last_at, self.before_at = np.full(feeds, -np.inf), np.full(feeds, -np.inf)
        self._due = np.zeros(feeds, np.bool_)
        self._foretold = np.full(feeds, -np.inf)
        self.slope, self.gap = np.full(feeds, np.nan), np.full(feeds, np.nan)
        """[feeds] of the last forecast: A/s, and A from the level to the rating; the gap is infinite if not rising."""
        self.seen_seconds = np.full(feeds, np.nan)
        """[feeds] how much of the past the last forecast is made of."""
        self.confidence = np.full(feeds, np.nan)
        self.reason = np.full(feeds, Why.NEVER_READ, np.uint16)
        """[feeds] why there is no forecast; of one that reaches no limit soon why that is."""

    def push(self, new: Mask, at: Floats, amps: Floats, usable: Mask) -> None:
        """Take the readings of the feeds *new*; *usable*: of which the past tells the future."""
        rows = np.flatnonzero(new & ~np.isnan(amps))
        self.before[rows], self.before_at[rows] = self.last[rows], self.last_at[rows]
        self.last[rows], self.last_at[rows] = amps[rows], at[rows]
        self.forget(~usable & ~np.isnan(amps))
        rows = rows[usable[rows] & (at[rows] - self._sampled[rows] >= STEP_SECONDS - 0.05)]
        self._times[rows, self._place[rows]], self._amps[rows, self._place[rows]] = at[rows], amps[rows]
        self._place[rows] = (self._place[rows] + 1) % SAMPLES
        self._sampled[rows] = at[rows]
        self._due[rows] = True

    def forget(self, rows: Mask) -> None:
        """What was read of *rows* tells nothing of what comes."""
        if rows.any():
            self._times[rows] = self._amps[rows] = np.nan
            self._sampled[rows] = -np.inf
            self.reason[rows] = _FEW
            for out in (self.slope, self.gap, self.confidence):
                out[rows] = np.nan
            self._due[rows] = False

    def highest(self, row: int, at: float) -> float:
        """The highest current of a feed in the minute before *at* but for its last reading; NaN if there is none."""
        near = (self._times[row] >= at - BEFORE_SECONDS) & (self._times[row] < at)
        known = self._amps[row][near]
        return float(np.nanmax(np.append(known, self.before[row]))) if len(known) else float(self.before[row])

    def foretell(self, ratings: Floats, now: float) -> None:
        """Bring the forecasts up to date: of those with new readings, as many as a tick has time for."""
        due = np.flatnonzero(self._due)
        if not len(due):
            return
        old = self._times[due] < now - WINDOW_SECONDS
        amps = np.where(old, np.nan, self._amps[due])
        with np.errstate(invalid="ignore"):
            low = np.nanmin(np.where(np.isnan(amps), np.inf, amps), axis=1)
            busy = (self.last[due] >= BUSY_RATIO * ratings[due]) | (self.last[due] - low >= RISEN_RATIO * ratings[due])
        idle = due[~busy]
        self._due[idle] = False
        self.slope[idle], self.confidence[idle], self.gap[idle] = np.nan, np.nan, np.inf
        self.reason[idle] = _IDLE
        turn = np.flatnonzero(busy)
        for place in turn[np.argsort(self._foretold[due[turn]], kind="stable")][:AT_ONCE].tolist():
            self._foretold[due[place]] = now
            self._one(int(due[place]), amps[place], float(ratings[due[place]]))

    def _one(self, row: int, amps: Floats, rating: float) -> None:
        self._due[row] = False
        order = np.argsort(self._times[row])
        times, amps = self._times[row][order], amps[order]
        fell = self.reason[row] == _FELL
        known = np.flatnonzero(~np.isnan(amps))
        jump = _jump(amps[known])
        if jump:
            # A load that moved here, a job that started at once: a step is no climb.
            self.slope[row] = self.gap[row] = self.confidence[row] = math.nan
            self.reason[row] = _JUMPED
            if len(known) - jump >= STEP_READINGS:
                old = order[known[:jump]]
                self._times[row, old] = self._amps[row, old] = np.nan
            return
        found = power.forecast(times, amps, rating, horizon_seconds=math.inf)
        if math.isnan(found.slope_per_second) and fell:
            return
        self.slope[row], self.confidence[row] = found.slope_per_second, found.confidence
        self.seen_seconds[row] = float(times[known[-1]] - times[known[0]])
        self.reason[row] = intern(found.reason) if found.reason else _FAR
        if math.isnan(found.slope_per_second):
            self.gap[row] = self.confidence[row] = math.nan
            self.reason[row] = _FEW
            return
        # Not shown is: it does not rise.
        self.gap[row] = math.inf if found.seconds is None else found.seconds * found.slope_per_second
        if found.seconds is not None:
            self._step(row, amps[~np.isnan(amps)][-STEP_READINGS:], rating - self.gap[row], rating)

    def _step(self, row: int, last: Floats, level: float, rating: float) -> None:
        """The newest readings lie all on one side of the trend: it ended, and what was before tells nothing."""
        away = last - level
        if (away < -RISEN_RATIO * rating).all():
            self.gap[row], self.reason[row] = math.inf, _FELL
        elif (away > RISEN_RATIO * rating).all():
            self.gap[row], self.reason[row] = math.nan, _FEW
        else:
            return
        newest = np.argsort(np.nan_to_num(self._times[row], nan=-np.inf))[-STEP_READINGS:]
        old = np.setdiff1d(np.arange(SAMPLES), newest)
        self._times[row, old] = self._amps[row, old] = np.nan


def _jump(amps: Floats) -> int:
    """How many of the readings *amps* lie before a step up that is most of their whole rise; 0: there is none."""
    if len(amps) < power.MIN_POINTS:
        return 0  # too few to tell, and to foretell
    rise = float(amps.max() - amps.min())
    # Of two readings on each side: what one alone does may be its own.
    after = np.append((amps[1:-1] + amps[2:]) / 2, amps[-1])
    before = np.append(amps[0], (amps[:-2] + amps[1:-1]) / 2)
    step = after - before
    at = int(step.argmax())
    return at + 1 if step[at] > JUMP_SHARE * rise and rise > 0 else 0


class Events:
    """What became of the load of every feed, [feeds]; an event stands until the load is back."""

    def __init__(self, feeds: int) -> None:
        self.kind = np.zeros(feeds, np.int8)
        self.at, self.before = np.full(feeds, np.nan), np.full(feeds, np.nan)
        self._other_before = np.full(feeds, np.nan)
        self.seen = np.zeros(feeds, np.bool_)
        """A load was seen on it since the console runs."""

    @staticmethod
    def none(ratings: Floats) -> Floats:
        """[feeds] A: a current of no more than that is none."""
        out: Floats = power.GONE_RATIO * _scale(ratings)
        return out

    def update(
        self, past: Past, new: Mask, amps: Floats, volts: Floats, nominal: Floats, ratings: Floats,
        said: tuple[Mask, Mask], silent: Mask, partner: NDArray[np.intp], nodes_lost: NDArray[np.int64], now: float,
    ) -> None:
        """Take the readings of a moment; arrays [feeds].

        Args:
            past: the last readings, these already in it.
            new: which feeds have a new reading.
            amps: NaN where unknown.
            volts: as measured, the highest of its conductors; NaN where unknown.
            nominal: volts as configured; NaN where they are not.
            ratings: NaN where unknown.
            said: the device says that the breaker is open; that its supply is gone.
            silent: the PDU does not answer: it may have lost its own supply with the feed.
            partner: row of the other feed of a pair; below 0: none.
            nodes_lost: nodes on it that stopped answering within the last minutes.
            now: our monotonic clock.
        """
        scale = _scale(ratings)
        tripped, cut = said
        # A load that was small need not come back as more than it was.
        enough = np.fmin(power.MATTERS_RATIO * scale, BACK_RATIO * self.before)
        back = (amps >= enough) & (amps > power.GONE_RATIO * scale) & ~tripped
        # Told by the device of a feed that carried nothing, it is over when the device no longer tells it.
        back |= new & (amps <= power.GONE_RATIO * scale) & ~tripped & ~cut & ~(self.before > power.GONE_RATIO * scale)
        self.seen |= amps > power.GONE_RATIO * scale
        over = back & (self.kind != feed.NO_EVENT)
        self.kind[over] = feed.NO_EVENT
        self.at[over] = self.before[over] = self._other_before[over] = np.nan
        gone = new & (amps <= power.GONE_RATIO * scale)
        fell = gone & (past.before > power.GONE_RATIO * scale)
        none = ~(amps > power.GONE_RATIO * scale)
        open_now = tripped & none
        self._take(cut & none & (self.kind != feed.LOST), feed.LOST, past, now)
        self._take(open_now & (self.kind != feed.TRIPPED), feed.TRIPPED, past, now)
        quiet = silent & (partner >= 0) & (past.last >= power.MATTERS_RATIO * scale) & (
            now - past.last_at <= SETTLED_SECONDS)
        fresh = (self.kind != feed.NO_EVENT) & (self.kind != feed.LOST) & (now - self.at <= SETTLED_SECONDS)
        dead = power.voltage_gone(volts, nominal) & ~silent
        for row in np.flatnonzero(((fell | quiet) & (self.kind == feed.NO_EVENT)) | (fresh & ~open_now)).tolist():
            self._judge(row, past, amps, scale, partner, nodes_lost, now, silent=bool(quiet[row]), dead=bool(dead[row]))

    def _take(self, rows: Mask, kind: int, past: Past, now: float) -> None:
        """The device says what happened: no need to work it out."""
        for row in np.flatnonzero(rows).tolist():
            if self.kind[row] == feed.NO_EVENT:
                before = past.highest(row, float(past.last_at[row]))
                # Of what was so before the first reading it is not known since when.
                self.at[row], self.before[row] = now if before == before else math.nan, before
            self.kind[row] = kind

    def _judge(
        self, row: int, past: Past, amps: Floats, scale: Floats, partner: NDArray[np.intp],
        nodes_lost: NDArray[np.int64], now: float, *, silent: bool, dead: bool,
    ) -> None:
        other = int(partner[row])
        standing = self.kind[row] != feed.NO_EVENT
        at = float(self.at[row]) if standing else now
        if standing:
            before, other_before = float(self.before[row]), float(self._other_before[row])
        elif silent:
            before, other_before = float(past.last[row]), _at(past, other, float(past.last_at[row]))
        else:
            before = past.highest(row, float(past.last_at[row]))
            other_before = _at(past, other, float(past.before_at[row]))
        carried = 0.0 if silent else float(amps[row])
        if standing and math.isnan(carried):
            carried = 0.0
        found = power.feed_event(
            before, carried, float(scale[row]), other_before=other_before,
            other_now=float(past.last[other]) if other >= 0 else math.nan,
            dead=dead and not silent, nodes_lost=0 if silent else int(nodes_lost[row]))
        code = _EVENTS[found]
        # A silent PDU alone is not a lost feed: only the other of its pair can say so.
        if code == feed.NO_EVENT or (silent and code != feed.LOST) or (standing and code == feed.GONE):
            return
        self.kind[row] = code
        if not standing:
            self.at[row], self.before[row], self._other_before[row] = at, before, other_before


def _scale(ratings: Floats) -> Floats:
    out: Floats = np.where(ratings > 0, ratings, _ASSUMED_RATING)
    return out


def _at(past: Past, row: int, at: float) -> float:
    """The current of feed *row* as last read at *at*; what was read later may have its pair's load in it already."""
    if row < 0:
        return math.nan
    times, amps = past._times[row], past._amps[row]
    older = np.flatnonzero(times <= at)
    found = [(float(times[one]), float(amps[one])) for one in older.tolist()]
    found += [(float(when), float(value)) for when, value in (
        (past.before_at[row], past.before[row]), (past.last_at[row], past.last[row])) if when <= at and value == value]
    return max(found)[1] if found else float(past.before[row])
