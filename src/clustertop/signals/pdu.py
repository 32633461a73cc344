"""PDUs: a row per inlet, phase, bank, branch and outlet, with the device's own limits beside what flows.

What a device does not measure stays unknown. Amps of phases are not added; totals are never added to their parts.
Sources: IETF RFC 3433 for readings with a scale of their own; each device's scales and words stand in its profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.signals.metric import Metric, table, word_parser

if TYPE_CHECKING:
    from collections.abc import Mapping

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
))

_WORDS = {"inlet": "inlet", "phase": "phase", "delta": "phases", "neutral": "neutral", "bank": "bank",
          "branch": "branch", "outlet": "outlet"}


def label(key: str, attrs: Mapping[str, object]) -> str:
    """``phase L1``, ``outlet 13``; with its PDU where the agent speaks for several: ``2: bank B1``."""
    kind, name, unit = (str(attrs.get(what) or "") for what in ("kind", "name", "unit"))
    word = _WORDS.get(kind, "")
    if not name:
        name = key
    elif word and word not in name.lower():
        name = f"{word} {name}"
    return f"{unit}: {name}" if unit else name
