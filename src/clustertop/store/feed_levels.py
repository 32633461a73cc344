"""What a device says of a feed by its own limits and words: of each conductor, and of the part they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import intern
from clustertop.sources.pdu_reading import GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Rows = NDArray[np.intp]

LIMITS = ("rating_amps", "warning_amps", "critical_amps", "warning_watts", "critical_watts")
_CUT = 4
"""Of a part's state: its supply is gone."""
_GONE = intern(GONE)


def padded(rows: Sequence[Sequence[int]]) -> Rows:
    """[feeds, most] numbers of rows, -1 where a feed has fewer."""
    out = np.full((len(rows), max((len(mine) for mine in rows), default=1) or 1), -1, np.intp)
    for feed, mine in enumerate(rows):
        out[feed, : len(mine)] = mine
    return out


def reader(c: Columns, rows: Rows, fresh: Mask) -> Callable[[str], Floats]:
    """Reads a column of the PDUs' table at *rows*, [feeds, most]; NaN where there is no row or its reading is old."""
    used = rows >= 0
    at = np.maximum(rows, 0)
    good = used & fresh[at]

    def read(name: str) -> Floats:
        out: Floats = np.where(good, c.col(name)[at], np.nan)
        return out

    return read


def told(c: Columns, rows: Rows, fresh: Mask) -> tuple[Floats, Mask, Mask]:
    """What the device says of *rows*, [feeds, most].

    Returns:
        [feeds] the worst level, 0 to 2, by enabled limits and by its word; NaN: it has neither, or one of the rows that
        may be worse is not known, while the others are well.
        [feeds] whether a breaker among them is open.
        [feeds] whether the supply of one of them is gone.
    """
    read, used = reader(c, rows, fresh), rows >= 0
    amps, watts, states = read("amps"), read("watts"), read("part_state")
    # Limits are kept over a reading that is old: what cannot be held against them now is unknown, not without limits.
    own = {name: np.where(used, c.col(name)[np.maximum(rows, 0)], np.nan) for name in LIMITS[1:]}
    level, limited = np.full(rows.shape, np.nan), np.zeros(rows.shape, np.bool_)
    for unit, value in (("amps", amps), ("watts", watts)):
        has = ~np.isnan(own[f"warning_{unit}"]) | ~np.isnan(own[f"critical_{unit}"])
        limited |= has
        level[has & ~np.isnan(value)] = 0.0
    level[states <= 2] = 0.0
    with np.errstate(invalid="ignore"):
        for code, word in ((1, "warning"), (2, "critical")):
            level[(amps >= own[f"{word}_amps"]) | (watts >= own[f"{word}_watts"]) | (states == code)] = float(code)
    at = np.maximum(rows, 0)
    gone = ~c.present[at] | (c.why_of("amps")[at] == _GONE)
    blind = (used & np.isnan(level) & ((np.isnan(amps) & np.isnan(watts) & limited) | gone)).any(axis=1)
    found = worst(level)
    found[blind & (found == 0)] = np.nan
    tripped = (read("tripped") == 1).any(axis=1)
    return found, tripped, (states == _CUT).any(axis=1)


def worst(values: Floats) -> Floats:
    """[feeds] the highest known value of each; NaN where none is."""
    out: Floats = np.where(np.isnan(values), -np.inf, values).max(axis=1)
    return np.where(np.isinf(out), np.nan, out)


def least(values: Floats) -> Floats:
    """[feeds] the lowest known value of each; NaN where none is."""
    out: Floats = np.where(np.isnan(values), np.inf, values).min(axis=1)
    return np.where(np.isinf(out), np.nan, out)
