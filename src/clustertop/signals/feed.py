"""Feeds: a breaker, what it carries by its PDU or by an estimate, and how that is judged. The console works it all out.

A row per configured feed, under the feed's own owner. The arithmetic is in :mod:`clustertop.signals.power`; what is
unknown stays unknown: it is never 0 and never fine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.model import Attr

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
    Metric("pair_level", "", "failover level, at the first feed of a pair only", kind="derived", words=LEVEL_WORDS),
    Metric("estimated", "", "1: its current is estimated from the power of its nodes", kind="derived",
           words={0: "measured", 1: "estimated"}),
    Metric("coverage_ratio", "ratio", "share of its nodes whose power is in the estimate; 1 where its PDU measures it",
           kind="derived", hi=1.0),
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
    Metric("limit_in_seconds", "s", "until it is critical, where it is not judged critical yet and the rise is sure",
           kind="derived", source=_SEN),
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
    Metric("limit_level", "", "by the device's own enabled limits, where no rating is configured", kind="derived",
           words=LEVEL_WORDS),
))


def label(key: str, attrs: Mapping[str, Attr]) -> str:
    """``feed r1-A``; the console gives the name."""
    name = attrs.get("name")
    return f"feed {name}" if isinstance(name, str) and name else key or "feed"
