"""How late an alert can be: the worst case from the fault to the alert, by what a rule waits for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clustertop.rules.values import TREND_SECONDS, step_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.model import Alert
    from clustertop.rules.spec import Level, Rule
    from clustertop.store.view import FleetView
    from clustertop.wire.transport import PollSettings

DELIVERY_SECONDS = 0.5
"""From the reading to the console: a frame waits a moment for what is due, and travels."""
HUNG_SECONDS = 3.0
"""Least time after which a call that has not returned counts as hung; else twice the group's interval."""
SCREEN_SECONDS = 65.0
"""Facts for screening are read once a minute, and a name that is not answered for takes five seconds."""
DEVICE = "device"
"""Among the intervals: that of what is no node."""
DEVICE_SECONDS = 10.0
_OF_DEVICES = frozenset({"device", "feed", "pdu", "bmc", "psu", "sensor", "uplink"})
NCCL_SECONDS = 15.0
"""NCCL logs are read every five seconds, and new ones are looked for every ten."""
_SELDOM = frozenset({"screen", "nccl", DEVICE})
"""Groups that no rule of another group waits for."""
_BESIDE = frozenset({"node", "group"})
"""Tables with columns that the console works out beside the readings of any one group."""


@dataclass(frozen=True, slots=True)
class Times:
    """How often things are read and judged."""

    intervals: Mapping[str, float]
    """By probe group, seconds."""
    tick_seconds: float
    """Between two evaluations."""
    keepalive_seconds: float
    """Until a connection that says nothing is given up."""

    def at(self, view: FleetView, node: str) -> Times:
        """The same for one node as it is now: where readings are dear, its probe makes them less often."""
        number = next((number for number, one in enumerate(view.nodes) if one.name == node), None)
        groups, found, devices = view["group"], dict(self.intervals), view["device"]
        pdus = {feed.pdu for feed in view.of.site.feeds if feed.name == node and feed.pdu}
        every = [seconds for row, attrs in enumerate(devices.attrs)
                 if (node in {attrs.get("name"), attrs.get("of")} or attrs.get("name") in pdus)
                 and (seconds := devices.value("interval_seconds", row)) is not None]
        if every:
            found[DEVICE] = max(every)
        if number is None:
            return replace(self, intervals=found)
        for row in groups.rows_of(number).tolist():
            seconds = groups.value("interval_seconds", row)
            if seconds is not None:
                found[groups.keys[row]] = max(seconds, found.get(groups.keys[row], 0.0))
        return replace(self, intervals=found)


def times(settings: PollSettings, tick_seconds: float) -> Times:
    """Return the times of a session with *settings* that evaluates every *tick_seconds*."""
    often = settings.interval_seconds
    return Times({DEVICE: DEVICE_SECONDS, "gpu": often, "rdma": often, "host": often,
                  "sockets": max(often, settings.sockets_interval_seconds or often),
                  "pcie": settings.pcie_interval_seconds, "screen": SCREEN_SECONDS, "nccl": NCCL_SECONDS}, tick_seconds,
                 settings.keepalive_seconds * (settings.keepalive_count + 1))


def detects_within(rule: Rule, level: Level, group: str, when: Times) -> float:
    """Return the longest time in seconds from a fault to its alert, a node that answers at all given.

    It is the sum of: the interval of the readings, what the rule waits for (seconds, or readings less one times the
    interval), the delivery, an evaluation (two where seconds are counted: they count from one and to one), the step
    of dear kinds, and the wait for siblings.

    Args:
        rule: the rule.
        level: one of its levels.
        group: the probe group that feeds its table; empty: the console itself.
        when: the times.
    """
    interval = _interval(rule, group, when)
    seen = _seen(rule, level, interval, when)
    waits = max(level.for_seconds, (level.for_polls - 1) * interval)
    ticks = when.tick_seconds * (2 if level.for_seconds else 1)
    return seen + waits + DELIVERY_SECONDS + ticks + step_seconds(rule) + rule.gather_seconds


def of_alert(alert: Alert, rule: Rule, view: FleetView, when: Times) -> float | None:
    """Return the worst case of the level at which *alert* fires; None if its rule has no such level now."""
    level = next((level for severity, level in rule.levels() if severity == alert.severity), None)
    if level is None:
        return None
    return detects_within(rule, level, view[rule.table].spec.group, when.at(view, alert.thing.node))


def _interval(rule: Rule, group: str, when: Times) -> float:
    if rule.table in _OF_DEVICES:
        return when.intervals.get(DEVICE, DEVICE_SECONDS)
    if rule.table == "group" or group not in when.intervals:
        # Of the groups that are read all the time: those who wait for a GPU do not wait for facts for screening.
        return max(seconds for name, seconds in when.intervals.items() if name not in _SELDOM)
    if rule.table in _BESIDE and rule.metric in {"reachable", "frames_missed", "clock_skew_seconds"}:
        return min(seconds for name, seconds in when.intervals.items() if name != DEVICE)
    return when.intervals[group]


def _seen(rule: Rule, level: Level, interval: float, when: Times) -> float:
    """From the fault until the first value that shows it."""
    match (rule.kind, rule.table, rule.metric):
        case ("absence", _, _):
            return max(min(rule.gaps * interval, rule.gap_seconds + interval), level.limit)
        case ("trend", _, _):
            return TREND_SECONDS + interval
        case (_, "node", "reachable"):
            return when.keepalive_seconds
        case (_, "node", "frames_missed"):
            return level.limit * max(interval, 1.0)
        case (_, "group", "age_intervals"):
            return level.limit * interval
        case (_, "group", "hung"):
            return max(2.0 * interval, HUNG_SECONDS) + interval
    return interval
