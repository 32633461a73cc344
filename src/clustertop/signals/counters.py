"""Counters to increases: baselines, resets and counters that stop at their end. Pure, vectorised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why

if TYPE_CHECKING:
    from numpy.typing import NDArray


def increase(
    last: NDArray[np.float64], now: NDArray[np.float64], saturation: NDArray[np.float64] | float
) -> tuple[NDArray[np.float64], NDArray[np.uint16]]:
    """Return how much each counter grew, and why it is unknown where it is.

    Args:
        last: the previous known reading, NaN before the first.
        now: this reading, NaN if it could not be read.
        saturation: the value at which the counter stops (IBTA counters do not wrap), infinity if it never does.

    Returns:
        (growth, reasons), of *now*'s shape. Growth is NaN at first sight (the baseline), at a saturated counter (a
        difference of 0 there says nothing), and when the counter went back: that is a reset, never a wrap, since
        what is wider than 32 bits does not wrap and what is narrower stops.
    """
    growth = now - last
    why = np.zeros(now.shape, np.uint16)
    back = growth < 0
    growth[back] = np.nan
    why[back] = Why.RESET
    why[np.isnan(last)] = Why.FIRST_READING
    full = now >= saturation
    growth[full] = np.nan
    why[full] = Why.SATURATED
    why[np.isnan(now)] = Why.UNREADABLE
    return growth, why


def wrap_or_reset(last: int, now: int, bits: int, seconds: float, uptime_seconds: float | None) -> int | None:
    """Growth of a counter of *bits* bits that does wrap, or None where it was reset.

    A wrap needs an uptime that covers the interval; 64-bit counters are never wrap-corrected.
    """
    if now >= last:
        return now - last
    if bits >= 64 or uptime_seconds is None or uptime_seconds < seconds:
        return None
    return now + (1 << bits) - last
