"""Octet counters of network ports to rates: resets, wraps, discontinuities, rates that no link can carry. Pure.

Two readings make a rate. A counter that went back was reset, unless it is a 32-bit one and its agent has been up for
longer than the interval (RFC 2863 §3.1.6: 64-bit counters do not wrap in practice). After a reset the new reading is
the baseline: one interval is unknown, never more.
"""

from __future__ import annotations

from dataclasses import dataclass

from clustertop.model import Why, intern
from clustertop.signals.counters import wrap_or_reset

OVER_SPEED = intern("above link speed")
NO_TIME = intern("no time between readings")
TOO_NARROW = intern("counter too narrow for its speed")
_SLACK = 1.05
"""A rate up to this much above link speed is believed: agents cache counters for a second or two."""


@dataclass(frozen=True, slots=True)
class Octets:
    """One reading of one counter of one port."""

    at: float
    """Seconds on the clock of who read it; only differences are used."""
    value: int | None
    """None: it could not be read."""
    bits: int = 64
    uptime_seconds: float | None = None
    """How long the agent had been up (sysUpTime); None: not told."""
    discontinuity: int | None = None
    """ifCounterDiscontinuityTime; another value than last time means that the counter was set anew."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes per second, or why it is unknown."""

    value: float | None
    why: int = Why.KNOWN
    """A reason code of :class:`clustertop.model.Why`."""
    confirmed: bool = False
    """Of a reset: the agent's uptime or discontinuity time says so too."""


def rate(last: Octets | None, now: Octets, link_bits_per_second: float | None = None) -> Rate:
    """Return the rate between two readings of a counter.

    Args:
        last: the reading before; None at first sight.
        now: this reading. It is the next baseline, whatever comes out.
        link_bits_per_second: speed of the port; a rate above it is dropped. None or 0: not known.
    """
    if now.value is None:
        return Rate(None, Why.UNREADABLE)
    if last is None or last.value is None:
        return Rate(None, Why.FIRST_READING)
    seconds = now.at - last.at
    if seconds <= 0:
        return Rate(None, NO_TIME)
    if now.bits < 64 and link_bits_per_second and link_bits_per_second / 8 * seconds >= 1 << now.bits:
        return Rate(None, TOO_NARROW)  # 32 bits go round in 3.4 s at 10 Gb/s: how often they did cannot be told
    rebooted = _went_back(last, now, seconds)
    told = now.discontinuity is not None and last.discontinuity is not None
    if rebooted or (told and now.discontinuity != last.discontinuity):
        return Rate(None, Why.RESET, confirmed=True)
    growth = wrap_or_reset(last.value, now.value, now.bits, seconds, now.uptime_seconds)
    if growth is None:
        return Rate(None, Why.RESET)
    value = growth / seconds
    if link_bits_per_second and value * 8 > link_bits_per_second * _SLACK:
        return Rate(None, OVER_SPEED)
    return Rate(value)


def _went_back(last: Octets, now: Octets, seconds: float) -> bool:
    """Whether the agent restarted in between: its uptime went back, or is shorter than the interval.

    sysUpTime itself wraps after 497 days (32 bits of hundredths); a value near its end before says that it wrapped.
    """
    if now.uptime_seconds is None:
        return False
    if now.uptime_seconds + 1 < seconds:
        return not _wrapped(last, seconds)
    if last.uptime_seconds is None:
        return False
    return now.uptime_seconds < last.uptime_seconds and not _wrapped(last, seconds)


def _wrapped(last: Octets, seconds: float) -> bool:
    return last.uptime_seconds is not None and last.uptime_seconds + seconds + 2 >= (1 << 32) / 100
