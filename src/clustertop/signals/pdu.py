"""PDUs: a row per inlet, phase, bank, branch and outlet, with the device's own limits beside what flows.

What a device does not measure stays unknown. Amps of phases are not added; totals are never added to their parts.
Sources: IETF RFC 3433 for readings with a scale of their own; each device's scales and words stand in its profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import intern
from clustertop.signals import power
from clustertop.signals.metric import Metric, table, word_parser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

_RFC = "https://www.rfc-editor.org/rfc/rfc3433"

OK, WARNING, CRITICAL, OFF, LOST = 0, 1, 2, 3, 4
STATES: Mapping[str, int] = {
    "ok": OK, "warning": WARNING, "critical": CRITICAL, "off": OFF, "tripped": OFF, "lost": LOST,
}
"""What the profiles say that a device's word means; any other level is unknown."""
_MOST_AMPS, _MOST_VOLTS, _MOST_WATTS, _MOST_KWH = 10_000.0, 1_000.0, 5e6, 1e9
"""No device of these measures more (as ``sources.pdu_reading``)."""

TABLE = table("pdu", "pdu", "parts of PDUs", (
    Metric("amps", "A", "current", "amps", hi=_MOST_AMPS, history=True, source=_RFC, label="A"),
    Metric("volts", "V", "voltage, as the device gives it: to neutral or between lines", "volts", hi=_MOST_VOLTS,
           source=_RFC, label="V"),
    Metric("watts", "W", "real power", "watts", hi=_MOST_WATTS, history=True, source=_RFC, label="W"),
    Metric("apparent_va", "VA", "apparent power", "va", hi=_MOST_WATTS, source=_RFC, label="VA"),
    Metric("energy_kwh", "kWh", "energy since somebody last set it to zero", "kwh", hi=_MOST_KWH, source=_RFC,
           label="kWh"),
    Metric("power_factor", "", "real power of the apparent one", "pf", hi=1.005, source=_RFC, label="PF"),
    Metric("residual_amps", "A", "residual current", "residual_amps", hi=_MOST_AMPS, source=_RFC, label="residual"),
    Metric("rating_amps", "A", "rating of its breaker or conductor, as the device says", "rating_amps", hi=_MOST_AMPS,
           source=_RFC, label="rating"),
    Metric("warning_amps", "A", "the device's own warning limit, where it is enabled", "warn_amps", hi=_MOST_AMPS,
           source=_RFC, label="warn A"),
    Metric("critical_amps", "A", "the device's own critical limit, where it is enabled", "crit_amps", hi=_MOST_AMPS,
           source=_RFC, label="crit A"),
    Metric("warning_watts", "W", "the device's own warning limit, where it is enabled", "warn_watts", hi=_MOST_WATTS,
           source=_RFC, label="warn W"),
    Metric("critical_watts", "W", "the device's own critical limit, where it is enabled", "crit_watts", hi=_MOST_WATTS,
           source=_RFC, label="crit W"),
    Metric("part_state", "", "what the device says of the part", "state", "state", hi=float(LOST),
           parse=word_parser(STATES), source=_RFC, label="state",
           words={OK: "ok", WARNING: "warning", CRITICAL: "critical", OFF: "off or tripped", LOST: "lost"}),
    Metric("tripped", "", "1: its breaker or fuse is open", "tripped", "state", hi=1.0, source=_RFC,
           words={0: "no", 1: "TRIPPED"}),
    Metric("behind_seconds", "s", "it was asked for at most this long before the reading; outlets are read less often",
           "behind", hi=1e7, source=_RFC),
    Metric("part_level", "", "by its word and its enabled limits, else by its rating; where a feed stands for it only "
           "whether it is open or without supply", kind="derived",
           words={OK: "ok", WARNING: "warning", CRITICAL: "critical"}),
))
NO_LIMITS = intern("the device has no limits enabled and no word for it")
HAS_FEED = intern("judged as a feed")

_WORDS = {"inlet": "inlet", "phase": "phase", "delta": "phases", "neutral": "neutral", "bank": "bank",
          "branch": "branch", "outlet": "outlet"}


def derive(t: Columns, claimed: NDArray[np.intp], told: NDArray[np.intp]) -> None:
    """Work out ``part_level`` in place.

    A part that is off may be off on purpose; one whose breaker is open, or whose supply is gone, is not. That is said
    of a feed's part as well: while its other phases carry, nothing else shows it.

    Args:
        t: the table.
        claimed: rows that a configured feed stands for: their currents are judged as that.
        told: those of them of whose feed an event is told.
    """
    amps, watts, state = t.col("amps"), t.col("watts"), t.col("part_state")
    level = np.full(len(t), np.nan)
    # Without limits of its own its breaker's rating decides; a current far above that is a wrong scale.
    share = power.share(amps, t.col("rating_amps"))
    bare = np.isnan(t.col("warning_amps")) & np.isnan(t.col("critical_amps")) & (share <= power.IMPLAUSIBLE_RATIO)
    level[bare] = power.levels(share[bare])
    limits = [(t.col(f"{name}_{unit}"), value) for name in ("warning", "critical")
              for unit, value in (("amps", amps), ("watts", watts))]
    for limit, value in limits:
        level[~np.isnan(limit) & ~np.isnan(value) & np.isnan(level)] = OK
    level[((state == OK) | (state == OFF)) & np.isnan(level)] = OK
    with np.errstate(invalid="ignore"):
        for code, mine in ((WARNING, limits[:2]), (CRITICAL, limits[2:])):
            level[(state == code) | (mine[0][1] >= mine[0][0]) | (mine[1][1] >= mine[1][0])] = code
    broken = (t.col("tripped") == 1) | (state == LOST)
    level[broken] = CRITICAL
    level[claimed] = np.where(broken[claimed], CRITICAL, np.where(np.isnan(state[claimed]), np.nan, OK))
    level[told] = np.nan
    t.put("part_level", level, NO_LIMITS)
    mine = claimed[np.isnan(level[claimed])]
    t.why_of("part_level")[mine] = HAS_FEED


def label(key: str, attrs: Mapping[str, object]) -> str:
    """``phase L1``, ``outlet 13``; with its PDU where the agent speaks for several: ``2: bank B1``."""
    kind, name, unit = (str(attrs.get(what) or "") for what in ("kind", "name", "unit"))
    word = _WORDS.get(kind, "")
    if not name:
        name = key
    elif word and word not in name.lower():
        name = f"{word} {name}"
    return f"{unit}: {name}" if unit else name
