"""Time as the console uses it.

Ages and for-durations are counted on :func:`Clock.monotonic`. Wall-clock time is for display only. A node's own
monotonic clock, sent in its frames, divides its rates; it is never subtracted from ours.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that never steps, and one for people."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, for display."""
        ...


class SystemClock:
    """This machine's clocks."""

    def monotonic(self) -> float:
        """Seconds on ``CLOCK_MONOTONIC``."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()


def iso(wall: float) -> str:
    """Return *wall* (seconds since the epoch) as UTC ISO 8601 with milliseconds."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_minute(wall: float) -> str:
    """Return *wall* as the operator's local ``HH:MM``."""
    return local_time(wall)[:5]


def local_until(wall: float, now: float) -> str:
    """Return *wall* as the operator's local ``HH:MM``, with the day where it is another one than that of *now*."""
    then, today = (datetime.fromtimestamp(at, UTC).astimezone() for at in (wall, now))
    return f"{then:%H:%M}" if then.date() == today.date() else f"{then:%a %d %b %H:%M}"


def local_time(wall: float) -> str:
    """Return *wall* as the operator's local ``HH:MM:SS``."""
    return datetime.fromtimestamp(wall, UTC).astimezone().strftime("%H:%M:%S")
