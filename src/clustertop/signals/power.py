"""What power readings mean: how near a breaker is, what a lost feed does to the other, when a limit is reached.

Pure functions over columns: arrays of one length, a row per breaker, NaN where unknown. What is unknown stays unknown:
it is never 0 and never fine. Currents in A, power in W and VA, time in seconds, shares as ratios of a breaker's rating.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

WARNING_RATIO = 0.8
"""Of a breaker's rating: the continuous limit of North American practice (NEC 210.20: 125 % of a continuous load)."""
CRITICAL_RATIO = 0.875
"""28 A of 32 A, the field report's figure."""
IMPLAUSIBLE_RATIO = 3.0
"""A current this far above its breaker, for more than one reading, is a wrong scale: the breaker would have opened."""
LIMITS_AGREE = 0.02
"""Two limits that differ by less are the same."""

OK, WARNING, CRITICAL = 0, 1, 2
UNKNOWN, IMPLAUSIBLE, NOT_CONFIGURED = -1, -2, -3


def share(amps: ArrayLike, rating_amps: ArrayLike) -> Floats:
    """Ratio of each breaker's rating that is in use; NaN where either is unknown or the rating is not above 0."""
    current, rating = _floats(amps), _floats(rating_amps)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((current >= 0) & (rating > 0), current / rating, np.nan)


def levels(shares: ArrayLike, warning: float = WARNING_RATIO, critical: float = CRITICAL_RATIO) -> NDArray[np.int8]:
    """:data:`OK`, :data:`WARNING`, :data:`CRITICAL` or :data:`UNKNOWN` of each share; at its limit it is crossed."""
    given = _floats(shares)
    # 0.8 of 32 A is 25.6 A: what a meter rounds must not decide.
    found = np.where(given >= critical - 1e-9, CRITICAL, np.where(given >= warning - 1e-9, WARNING, OK))
    return np.where(np.isnan(given), UNKNOWN, found).astype(np.int8)


def judged(
    amps: ArrayLike, rating_amps: ArrayLike, before: ArrayLike, warning: float = WARNING_RATIO,
    critical: float = CRITICAL_RATIO,
) -> NDArray[np.int8]:
    """:func:`levels` of the shares, but :data:`IMPLAUSIBLE` where now and *before* (the reading before, A) are absurd.

    Only once absurd is :data:`UNKNOWN`: neither an overload nor fine until the next reading says which.
    """
    now, then = share(amps, rating_amps), share(before, rating_amps)
    found = levels(now, warning, critical)
    absurd = now > IMPLAUSIBLE_RATIO
    return np.where(absurd & (then > IMPLAUSIBLE_RATIO), IMPLAUSIBLE, np.where(absurd, UNKNOWN, found)).astype(np.int8)


_METER_ERROR = 0.85
_WORST_POWER_FACTOR = 1 / 6
_JUDGED_WATTS = 50.0


def scales_disagree(amps: ArrayLike, volts: ArrayLike, watts: ArrayLike) -> NDArray[np.bool_]:
    """Where A x V cannot be the same load as W, so that one of the three has a wrong scale; False where unknown.

    Apparent power is never below the real one, and no load of some size has a power factor under a sixth. Of one phase.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = _floats(amps) * _floats(volts) / _floats(watts)
        return (_floats(watts) >= _JUDGED_WATTS) & ((ratio < _METER_ERROR) | (ratio > 1 / _WORST_POWER_FACTOR))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a breaker's current is held against, in A; None where there is nothing to hold it against."""

    warning_amps: float | None
    critical_amps: float | None
    source: Literal["configured", "device rating", "device limits", "none"]
    disagreement: str = ""
    """What the device says instead, where that differs: information, never a limit."""


def limits(
    configured_rating: float | None, device_rating: float | None = None, device_warning: float | None = None,
    device_critical: float | None = None, warning: float = WARNING_RATIO, critical: float = CRITICAL_RATIO,
) -> Limits:
    """The limits of a breaker: by the configured rating, else by the device's limits where enabled, else by its rating.

    A device's own figures are only information where a rating is configured: some devices have them wrong.
    """
    if configured_rating is not None and configured_rating > 0:
        said = [f"{what} {value:g} A" for what, value, ours in (
            ("rating", device_rating, configured_rating), ("limit", device_critical, configured_rating))
            if value is not None and value > ours * (1 + LIMITS_AGREE)]
        if device_rating is not None and device_rating < configured_rating * (1 - LIMITS_AGREE):
            said.append(f"rating {device_rating:g} A")
        if device_critical is not None and device_critical < configured_rating * warning * (1 - LIMITS_AGREE):
            said.append(f"limit {device_critical:g} A")
        return Limits(configured_rating * warning, configured_rating * critical, "configured",
                      f"the device says {', '.join(said)}" if said else "")
    if device_warning is not None or device_critical is not None:
        return Limits(device_warning, device_critical, "device limits")
    if device_rating is not None and device_rating > 0:
        return Limits(device_rating * warning, device_rating * critical, "device rating")
    return Limits(None, None, "none")


def failover_share(
    a_amps: ArrayLike, b_amps: ArrayLike, a_rating: ArrayLike, b_rating: ArrayLike,
) -> tuple[Floats, Floats]:
    """What each feed of a pair would carry alone, as ratios of A's and of B's rating; NaN where unknown."""
    both = _floats(a_amps) + _floats(b_amps)
    return share(both, a_rating), share(both, b_rating)


def failover_levels(
    a_amps: ArrayLike, b_amps: ArrayLike, a_rating: ArrayLike, b_rating: ArrayLike, *, warning: float = WARNING_RATIO,
) -> NDArray[np.int8]:
    """Of each pair: :data:`WARNING` where one feed alone would pass *warning*, :data:`CRITICAL` above its rating."""
    on_a, on_b = failover_share(a_amps, b_amps, a_rating, b_rating)
    worst = np.fmax(on_a, on_b)
    found = np.where(worst > 1.0 + 1e-9, CRITICAL, np.where(worst > warning + 1e-9, WARNING, OK))
    # One feed's rating alone can say that it is not fine, never that it is.
    return np.where((found == OK) & (np.isnan(on_a) | np.isnan(on_b)), UNKNOWN, found).astype(np.int8)


def paired(
    amps: ArrayLike, rating_amps: ArrayLike, partner: ArrayLike, *, warning: float = WARNING_RATIO,
) -> tuple[Floats, NDArray[np.int8]]:
    """Of each feed: its share if its partner died, and the level of the pair, which both of them have.

    *partner* is the row of the other feed; below 0 no pair is declared, and the level is :data:`NOT_CONFIGURED`.
    """
    current, rating = _floats(amps), _floats(rating_amps)
    other = np.asarray(partner, dtype=np.intp)
    declared = other >= 0
    row = np.where(declared, other, 0)
    with np.errstate(invalid="ignore"):
        alone = np.where(declared, share(current + current[row], rating), np.nan)
    found = failover_levels(current, current[row], rating, rating[row], warning=warning)
    return alone, np.where(declared, found, NOT_CONFIGURED).astype(np.int8)


GONE_RATIO = 0.02
"""Of a breaker's rating: a current below this is none."""
_TOOK_OVER = 0.25
"""The other feed's rise and the lost load agree within this ratio: supplies differ in efficiency with their load."""
MATTERS_RATIO = 0.05
"""A load below this share of its breaker that goes away is nothing to speak of."""

_DEAD_VOLTS = 30.0
"""Below the least that a load runs on where no voltage is configured: a telecom plant of 48 V ends at 40 V."""
_DEAD_RATIO = 0.25

FeedEvent = Literal["", "feed lost", "breaker tripped", "load gone"]


def feed_event(
    before_amps: float, now_amps: float, rating_amps: float, *, other_before: float = math.nan,
    other_now: float = math.nan, dead: bool = False, nodes_lost: int = 0, tripped: bool = False,
) -> FeedEvent:
    """What happened to a feed whose current fell to none.

    ``feed lost``: the other feed of its pair rose by as much, or it is *dead*: no voltage, while the agent still
    answers.
    ``breaker tripped``: the device says so, or nodes were lost with the load. A step to zero is not good news.
    ``load gone``: neither; the cause is not known. Empty: nothing of the kind, or one of the currents is unknown.
    """
    if tripped:
        return "breaker tripped"
    if not (before_amps >= MATTERS_RATIO * rating_amps and 0 <= now_amps <= GONE_RATIO * rating_amps):
        return ""
    lost, rise = before_amps - now_amps, other_now - other_before
    if abs(rise - lost) <= _TOOK_OVER * lost or (dead and not nodes_lost):
        return "feed lost"
    return "breaker tripped" if nodes_lost > 0 else "load gone"


def voltage_gone(volts: ArrayLike, nominal_volts: ArrayLike = math.nan) -> NDArray[np.bool_]:
    """Where a measured voltage is none: below a quarter of the nominal one; False where unknown.

    Of 230 V what a dead cord still shows is well below that, and 48 V of direct current are no dead cord.
    """
    nominal = _floats(nominal_volts)
    with np.errstate(invalid="ignore"):
        return np.asarray(_floats(volts) < np.where(nominal > 0, _DEAD_RATIO * nominal, _DEAD_VOLTS), np.bool_)


def line_amps(va_12: ArrayLike, va_23: ArrayLike, va_31: ArrayLike, volts: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Line currents of loads between lines (delta), from their VA and the line-to-line voltage, at unity power factor.

    Each line carries two loads whose currents are 60° apart: √(a² + b² + ab). The mean of the lines says nothing.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        voltage = np.where(_floats(volts) > 0, _floats(volts), np.nan)
        i12, i23, i31 = (_floats(va) / voltage for va in (va_12, va_23, va_31))
    return _line(i12, i31), _line(i12, i23), _line(i23, i31)


def _line(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.sqrt(one * one + other * other + one * other), dtype=np.float64)


def neutral_amps(l1: ArrayLike, l2: ArrayLike, l3: ArrayLike) -> Floats:
    """Neutral current of a star, from its line currents at unity power factor and without harmonics."""
    a, b, c = _floats(l1), _floats(l2), _floats(l3)
    square = a * a + b * b + c * c - a * b - b * c - c * a
    return np.asarray(np.sqrt(np.where(square < 0, 0, square)), dtype=np.float64)


def estimated_amps(watts: ArrayLike, volts: ArrayLike, *, phases: int = 1, power_factor: float = 1.0) -> Floats:
    """Line current of a balanced load from its power; *volts* line to line for three *phases*; an estimate."""
    with np.errstate(invalid="ignore", divide="ignore"):
        voltage = np.where(_floats(volts) > 0, _floats(volts), np.nan)
        return _floats(watts) / (voltage * power_factor * (math.sqrt(3) if phases == 3 else 1.0))


@dataclass(frozen=True, slots=True)
class Band:
    """Where a current lies on a breaker's trip curve."""

    text: str
    within_seconds: float | None
    """The latest that it trips; None: it need not trip at all."""


_BANDS = (
    # IEC 60898-1, table 7: conventional non-tripping and tripping current (one hour, up to 63 A), and the test at
    # 2.55 x In (a minute, up to 32 A; two above that).
    (1.0, Band("within its rating", None)),
    (1.13, Band("above its rating; no trip within the hour", None)),
    (1.45, Band("may trip within the hour", None)),
    (2.55, Band("trips within the hour", 3600.0)),
    (math.inf, Band("trips within a minute", 60.0)),
)


def trip_band(ratio: float) -> Band | None:
    """The trip-curve band (IEC 60898-1, types B, C and D) of a share of the breaker's rating; None where unknown."""
    if not ratio >= 0:
        return None
    return next(band for most, band in _BANDS if ratio <= most)


MIN_POINTS = 6
MIN_SPAN_SECONDS = 60.0
MAX_POINTS = 120
HORIZON_SECONDS = 3600.0
CONFIDENCE = 0.9
_Z = 1.6448536269514722
"""Two-sided 90 %."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a value reaches its limit if it goes on as in the last minutes."""

    slope_per_second: float
    seconds: float | None
    """From the last reading to the limit; None where it is not shown, with the reason beside it."""
    earliest_seconds: float | None
    """By the steepest slope that the readings allow with :data:`CONFIDENCE`."""
    latest_seconds: float | None
    """By the flattest; None: it may never get there."""
    confidence: float
    """0 to 1: that it rises at all (Mann-Kendall, one-sided)."""
    reason: str = ""


def forecast(
    times: Sequence[float] | Floats, values: Sequence[float] | Floats, limit: float, *,
    horizon_seconds: float = HORIZON_SECONDS,
) -> Forecast:
    """Time to *limit* by the Theil-Sen slope of *values* (the median of all pairs' slopes: spikes do not move it).

    Shown only while it means something: enough readings over enough time, a rise that is no accident (the 90 %
    confidence interval of the slope by Sen, 1968, lies above 0), and the limit within the horizon.
    """
    when, value = _floats(times), _floats(values)
    known = np.isfinite(when) & np.isfinite(value)
    when, value = when[known][-MAX_POINTS:], value[known][-MAX_POINTS:]
    count = len(when)
    span = float(when[-1] - when[0]) if count else 0.0
    if count < MIN_POINTS or span < MIN_SPAN_SECONDS or not math.isfinite(limit):
        return Forecast(math.nan, None, None, None, 0.0, f"only {count} readings over {span:.0f} s")
    first, second = _pairs_of(count)
    apart = when[second] - when[first]
    rise = value[second] - value[first]
    later = apart > 0
    if not later.all():
        rise, apart = rise[later], apart[later]
    slopes = rise / apart
    slopes.sort()
    slope = _middle(slopes)
    # Kendall's variance; with ties in value it is a little large, and all that follows a little careful.
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18.0)
    rising, falling = len(slopes) - np.searchsorted(slopes, 0.0, "right"), np.searchsorted(slopes, 0.0)
    confidence = 0.5 * (1.0 + math.erf(float(rising - falling) / deviation / math.sqrt(2.0)))
    spread = _Z * deviation
    low = float(slopes[max(0, int((len(slopes) - spread) / 2))])
    high = float(slopes[min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2))])
    # The level now: the median of what each reading says of it, not the last reading, which may be a spike.
    level = _middle(np.sort(value - slope * (when - when[-1])))
    gap = limit - level
    if gap <= 0:
        return Forecast(slope, 0.0, 0.0, 0.0, 1.0, "at the limit")
    if not low > 0:
        return Forecast(slope, None, None, None, confidence, "not rising")
    seconds = gap / slope
    if seconds > horizon_seconds:
        return Forecast(slope, None, gap / high, gap / low, confidence, "far from the limit")
    return Forecast(slope, seconds, gap / high, gap / low, confidence)


@functools.lru_cache(MAX_POINTS)
def _pairs_of(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The numbers of the earlier and the later of every two of *count* readings."""
    first, second = np.triu_indices(count, 1)
    return first, second


def _middle(ordered: Floats) -> float:
    """The median of sorted values."""
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1] + ordered[half]) / 2.0


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
