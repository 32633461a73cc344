"""Feeds: a breaker, what it carries by its PDU or by an estimate, and how that is judged. The console works it all out.

A row per configured feed, under the feed's own owner. The arithmetic is in :mod:`clustertop.signals.power`; what is
unknown stays unknown: it is never 0 and never fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why, intern
from clustertop.signals import power
from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.signals.columns import Columns

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Codes = NDArray[np.uint16]

_NEC = "NEC 210.20: a continuous load at most 80 % of its breaker"
_IEC = "IEC 60898-1, table 7: trip curve"
_SEN = "Theil-Sen slope with the 90 % interval of Sen (1968)"

NO_EVENT, LOST, TRIPPED, GONE = 0, 1, 2, 3
EVENT_WORDS = {NO_EVENT: "none", LOST: "FEED LOST", TRIPPED: "BREAKER TRIPPED", GONE: "load gone"}
LEVEL_WORDS = {0: "ok", 1: "warning", 2: "critical"}

TABLE = table("feed", "", "feeds", (
    Metric("amps", "A", "current of its worst phase, by its PDU or estimated", kind="derived", history=True,
           label="amps"),
    Metric("rating_amps", "A", "rating of its breaker: as configured, else as the PDU says", kind="derived",
           label="rating"),
    Metric("warning_amps", "A", "current from which a warning is due", kind="derived", source=_NEC),
    Metric("critical_amps", "A", "current from which it is critical", kind="derived"),
    Metric("share_ratio", "ratio", "its current over its breaker's rating; the worst of its phases", kind="derived",
           history=True, label="share", source=_NEC),
    Metric("judged_ratio", "ratio", "its share where that can be held against a limit: not of a wrong scale, not of a "
           "load that is gone, not where the device's own limits decide, and of a part of its nodes only above the "
           "limit", kind="derived", source=_NEC),
    Metric("watts", "W", "power, by its PDU or estimated", kind="derived", history=True, label="power"),
    Metric("volts", "V", "voltage, by its PDU, else as configured", kind="derived", label="volts"),
    Metric("failover_ratio", "ratio", "its share if the other feed of its pair died", kind="derived", history=True,
           label="alone"),
    Metric("failover_level", "", "of its pair, if one of the two died: the level of the other", kind="derived",
           words=LEVEL_WORDS),
    Metric("pair_ratio", "ratio", "what both feeds of a pair carry over the smaller breaker, at the first of the two",
           kind="derived", source=_NEC),
    Metric("estimated", "", "1: its current is estimated from the power of its nodes", kind="derived",
           words={0: "measured", 1: "estimated"}),
    Metric("coverage_ratio", "ratio", "share of its nodes whose power is in the estimate; 1 where its PDU measures it",
           kind="derived", hi=1.0),
    Metric("lower_bound", "", "1: it carries at least that: a phase or a node is not in its current", kind="derived",
           words={0: "no", 1: "at least"}),
    Metric("slope_amps_per_second", "A/s", "how fast its current rises, over the last minutes", kind="derived",
           lo=float("-inf"), source=_SEN),
    Metric("to_warning_seconds", "s", "until its current reaches the warning, if it goes on like this", kind="derived",
           source=_SEN),
    Metric("to_critical_seconds", "s", "until it is critical, if it goes on like this", kind="derived",
           label="to limit", source=_SEN),
    Metric("to_rating_seconds", "s", "until it reaches its breaker's rating, if it goes on like this", kind="derived",
           source=_SEN),
    Metric("forecast_confidence_ratio", "ratio", "how sure it is that it rises at all", kind="derived", hi=1.0,
           source="Mann-Kendall, one-sided"),
    Metric("limit_in_seconds", "s", "the same, and an hour where it does not rise or is that far off; of too few "
           "readings unknown", kind="derived", hi=power.HORIZON_SECONDS, source=_SEN),
    Metric("trip_seconds", "s", "the latest that its breaker trips at this current", kind="derived", source=_IEC),
    Metric("event", "", "what happened to its load; until the load is back", kind="derived", words=EVENT_WORDS),
    Metric("event_lost", "", "1: the feed was lost, and the other of its pair took over", kind="derived",
           words={0: "no", 1: "FEED LOST"}),
    Metric("event_tripped", "", "1: its breaker tripped: the device says so, or nodes were lost with its load",
           kind="derived", words={0: "no", 1: "BREAKER TRIPPED"}),
    Metric("event_gone", "", "1: its load is gone, and it is not known why", kind="derived",
           words={0: "no", 1: "load gone"}),
    Metric("event_seconds", "s", "since its load went", kind="derived"),
    Metric("before_amps", "A", "what it carried before its load went", kind="derived"),
    Metric("nodes", "", "nodes on it", kind="derived"),
    Metric("nodes_lost", "", "nodes on it that do not answer", kind="derived"),
    Metric("implausible", "", "1: a current far above its breaker, or amps, volts and watts that cannot be of one load",
           kind="derived", words={0: "no", 1: "wrong scale"}),
    Metric("limits_disagree", "", "1: the device has another rating or limit than configured", kind="derived",
           words={0: "no", 1: "yes"}),
    Metric("neutral_amps", "A", "neutral current of a star, from its phases; without harmonics", kind="derived"),
    Metric("device_level", "", "by the device's own enabled limits and its own word", kind="derived",
           words=LEVEL_WORDS),
    Metric("limit_level", "", "by the device's own enabled limits and its word, where no rating is configured",
           kind="derived", words=LEVEL_WORDS),
))


def label(key: str, attrs: Mapping[str, Attr]) -> str:
    """``feed r1-A``; the console gives the name."""
    name = attrs.get("name")
    return f"feed {name}" if isinstance(name, str) and name else key or "feed"


NO_PAIR = intern("no pair configured")
TOLD_AT_PAIR = intern("told at the other feed of its pair")
PAIR_LOST = intern("one of the pair has lost its load")
PAIR_UNKNOWN = intern("current of its pair not known")
WRONG_SCALE = intern("implausible scale")
ONCE_ABSURD = intern("far above its breaker; the next reading decides")
LOAD_GONE = intern("its load is gone")
NO_LOAD_YET = intern("no load seen on it yet")
LOWER_BOUND = intern("at least so much: not all of it is known")
BY_DEVICE = intern("judged by the device's own limits")
NO_RATING = intern("no rating configured, none from the device")
NO_TRIP = intern("need not trip within the hour")
NO_LIMITS = intern("the device has no limits enabled")
BY_RATING = intern("judged by its breaker's rating")
ESTIMATED = intern("estimated")
BEFORE_US = intern("it was so at the first reading")
NO_EVENT_NOW = intern("nothing happened to its load")


@dataclass(frozen=True, eq=False, slots=True)
class Carried:
    """What feeds carry at one moment. All arrays [feeds]; A, V, W; NaN where unknown."""

    amps: Floats
    """Of the worst phase."""
    why: Codes
    """Why the current is unknown; 0 where it is known."""
    watts: Floats
    volts: Floats
    lower_bound: Mask
    """The current is at least *amps*: some phases or nodes are not in it."""
    estimated: Mask
    coverage: Floats
    before: Floats
    """The current at the reading before, A."""
    absurd: Mask
    """Amps, volts and watts cannot be of one load, at two readings."""
    neutral: Floats
    device_level: Floats
    """0 to 2 by the device's own enabled limits and its word; NaN: it has none."""


@dataclass(frozen=True, eq=False, slots=True)
class Held:
    """What feeds are held against. All arrays [feeds], NaN where there is none."""

    rating: Floats
    warning: Floats
    critical: Floats
    by_device: Mask
    """No rating is configured, and the device's own limits decide."""
    unrated: Mask
    """No rating is configured, so that the device's word counts."""
    disagree: Floats


def fill(t: Columns, now: Carried, held: Held, event: NDArray[np.int8], seen: Mask, warning: float) -> None:
    """Fill what is judged of each feed by itself: share, level, limits, trip band.

    Args:
        t: the feed table, a row per feed.
        now: what they carry.
        held: what they are held against.
        event: [feeds] :data:`NO_EVENT` to :data:`GONE`.
        seen: [feeds] whether a load was ever seen on it; before that, none is no good news.
        warning: share from which a warning is due: a lower bound below it says nothing.
    """
    whys = np.where(now.why == Why.KNOWN, Why.NOT_PROVIDED, now.why).astype(np.uint16)
    put = _Putter(t, whys)
    put("amps", now.amps)
    put("watts", now.watts)
    put("volts", now.volts)
    put("neutral_amps", now.neutral)
    t.put("rating_amps", held.rating, NO_RATING)
    t.put("warning_amps", held.warning, NO_RATING)
    t.put("critical_amps", held.critical, NO_RATING)
    shares = power.share(now.amps, held.rating)
    put("share_ratio", shares)
    unrated = np.isnan(shares) & ~np.isnan(now.amps)
    t.set_why("share_ratio", unrated, NO_RATING)
    levels = power.judged(now.amps, held.rating, now.before)
    known = ~np.isnan(now.amps)
    wrong = (levels == power.IMPLAUSIBLE) | now.absurd
    put("implausible", np.where(known, wrong.astype(float), np.nan))
    judged = shares.copy()
    put("judged_ratio", judged)
    t.set_why("judged_ratio", unrated, NO_RATING)
    for mask, code in (
        (now.lower_bound & (shares < warning - 1e-9), LOWER_BOUND),
        (held.by_device, BY_DEVICE),
        ((event == NO_EVENT) & ~seen & (shares <= power.GONE_RATIO), NO_LOAD_YET),
        (event != NO_EVENT, LOAD_GONE),
        (known & (levels == power.UNKNOWN) & ~np.isnan(shares), ONCE_ABSURD),
        (wrong, WRONG_SCALE),
    ):
        t.col("judged_ratio")[mask] = np.nan
        t.set_why("judged_ratio", mask, code)
    put("estimated", np.where(known, now.estimated.astype(float), np.nan))
    put("coverage_ratio", now.coverage)
    put("lower_bound", np.where(known, now.lower_bound.astype(float), np.nan))
    trip = np.full(len(t), np.nan)
    for row in np.flatnonzero(shares > 1.0).tolist():
        band = power.trip_band(float(shares[row]))
        if band is not None and band.within_seconds is not None and not wrong[row]:
            trip[row] = band.within_seconds
    put("trip_seconds", trip)
    t.set_why("trip_seconds", np.isnan(trip) & ~np.isnan(shares), NO_TRIP)
    put("device_level", now.device_level)
    t.set_why("device_level", np.isnan(now.device_level) & known, NO_LIMITS)
    t.set_why("device_level", np.isnan(now.device_level) & known & now.lower_bound, LOWER_BOUND)
    # Where the device's rating decides, its word is told only where it is worse: one cause is one alert.
    same = ~held.by_device & (now.device_level <= levels)
    put("limit_level", np.where(held.unrated, np.where(same, 0.0, now.device_level), np.nan))
    t.set_why("limit_level", np.isnan(now.device_level) & known, NO_LIMITS)
    t.set_why("limit_level", np.isnan(now.device_level) & known & now.lower_bound, LOWER_BOUND)
    t.set_why("limit_level", ~held.unrated & known, BY_RATING)
    t.put("limits_disagree", held.disagree)


def fill_pairs(
    t: Columns, now: Carried, held: Held, partner: NDArray[np.intp], event: NDArray[np.int8], warning: float,
) -> None:
    """Fill what each feed and its pair would carry alone.

    Args:
        t: the feed table.
        now: what they carry.
        held: what they are held against.
        partner: [feeds] the other's row; below 0: no pair is configured.
        event: [feeds] :data:`NO_EVENT` to :data:`GONE`.
        warning: share of one breaker above which a pair has no headroom.
    """
    usable = np.where(t.col("implausible") == 1, np.nan, now.amps)
    alone, level = power.paired(usable, held.rating, partner, warning=warning)
    declared = partner >= 0
    other = np.where(declared, partner, 0)
    worst = np.where(declared, np.fmax(alone, alone[other]), np.nan)
    # One breaker's rating alone, or a part of the load, can say that it is not fine, never that it is.
    bound = now.lower_bound | now.lower_bound[other] | np.isnan(alone) | np.isnan(alone[other])
    worst = np.where(bound & ~(worst > warning + 1e-9), np.nan, worst)
    found = np.where((level < power.OK) | np.isnan(worst), np.nan, level.astype(float))
    lost = (event != NO_EVENT) | (declared & (event[other] != NO_EVENT))
    # With one of them lost the other carries it all already: what it carries is judged, not what it would.
    first = declared & (np.arange(len(t)) < partner)
    for name, values in (("failover_ratio", alone), ("failover_level", found),
                         ("pair_ratio", np.where(first, worst, np.nan))):
        values = np.where(lost, np.nan, values)
        t.put(name, values, PAIR_UNKNOWN)
        unknown = np.isnan(values)
        t.set_why(name, unknown & bound & ~np.isnan(alone), LOWER_BOUND)
        t.set_why(name, unknown & lost, PAIR_LOST)
        t.set_why(name, unknown & ~declared, NO_PAIR)
    t.set_why("pair_ratio", declared & ~first, TOLD_AT_PAIR)


def fill_events(
    t: Columns, event: NDArray[np.int8], known: Mask, at: Floats, before: Floats, now: float, why: Codes,
) -> None:
    """Fill what became of loads.

    Args:
        t: the feed table.
        event: [feeds] :data:`NO_EVENT` to :data:`GONE`; one that happened stands, whatever is unknown now.
        known: [feeds] whether "none" can be said.
        at: [feeds] when the load went, our monotonic clock.
        before: [feeds] what it carried before, A.
        now: our monotonic clock.
        why: [feeds] why it cannot be said.
    """
    happened = event != NO_EVENT
    said = np.where(happened | known, event.astype(float), np.nan)
    put = _Putter(t, np.where(why == Why.KNOWN, NO_LOAD_YET, why).astype(np.uint16))
    put("event", said)
    for name, code in (("event_lost", LOST), ("event_tripped", TRIPPED), ("event_gone", GONE)):
        put(name, np.where(np.isnan(said), np.nan, (said == code).astype(float)))
    for name, values in (("event_seconds", now - at), ("before_amps", before)):
        t.put(name, np.where(happened, values, np.nan), np.where(happened, BEFORE_US, NO_EVENT_NOW))


class _Putter:
    """Fills columns whose unknown values have each row's own reason."""

    def __init__(self, t: Columns, why: Codes) -> None:
        self._t, self._why = t, why

    def __call__(self, name: str, values: Floats) -> None:
        number = self._t.spec.index[name]
        self._t.values[number] = values
        self._t.why[number] = np.where(np.isnan(values), self._why, Why.KNOWN)
