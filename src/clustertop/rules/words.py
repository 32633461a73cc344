"""A rule in words: what it looks at, its limits, when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.quantity import duration, quantity

if TYPE_CHECKING:
    from clustertop.rules.spec import Level, Rule
    from clustertop.signals.metric import TableSpec

_OTHER = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}


def judged(rule: Rule, spec: TableSpec) -> str:
    """What is held against the limits: ``growth of pcie_replays_total in 10 min``."""
    match rule.kind:
        case "increase":
            return f"growth of {rule.metric} in {duration(rule.window_seconds)}"
        case "peers":
            what = f"growth in {duration(rule.window_seconds)} of {rule.metric}" if rule.window_seconds else rule.metric
            whose = "its model's" if rule.peers == "model" else f"its {rule.peers}'s"
            floor = f", which counts as at least {quantity(rule.floor, spec.metric(rule.metric).unit)}"
            return (f"{what}, {'over' if rule.compare == 'ratio' else 'minus'} {whose} median"
                    + (floor if rule.floor and rule.compare == "ratio" else ""))
        case "absence":
            names = " or ".join((rule.metric, *rule.also))
            return f"time without {names}, from {rule.gaps} readings or {duration(rule.gap_seconds)} on"
        case "trend":
            reach = quantity(rule.reach, spec.metric(rule.metric).unit)
            return f"time until {rule.metric} is {reach}, if it goes on rising as in the last minutes"
    return rule.metric


def limit(rule: Rule, level: Level, spec: TableSpec) -> str:
    """``> 80 °C for 10 s at 2 readings``."""
    return f"{rule.op} {quantity(level.limit, rule.unit(spec))}{_waits(level.for_seconds, level.for_polls)}"


def clear(rule: Rule, spec: TableSpec) -> str:
    """``< 75 °C for 30 s``: what ends it."""
    value = rule.clear.limit
    if value is None:
        levels = rule.levels()
        value = levels[0][1].limit if levels else None
    return f"{_OTHER[rule.op]} {quantity(value, rule.unit(spec))}{_waits(rule.clear.seconds, rule.clear.polls)}"


def _waits(seconds: float, polls: int) -> str:
    return (f" for {duration(seconds)}" if seconds else "") + (f" at {polls} readings" if polls > 1 else "")
