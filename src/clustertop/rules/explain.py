"""An alert explained: value, limit, last readings, its rule and where its limits came from, and how late it can be.

Facts only: what was read, what the rule says, what it usually means, what to look at next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.clock import iso, local_time
from clustertop.quantity import duration, quantity
from clustertop.rules import latency, power_words, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.model import Alert, Severity
    from clustertop.rules.engine import Engine
    from clustertop.rules.latency import Times
    from clustertop.rules.spec import Rule
    from clustertop.signals.metric import TableSpec
    from clustertop.store.view import FleetView

BUILT_IN = "builtin"
SHOWN_READINGS = 8
"""Readings in a line of text, spread over what is kept; the object has all that are kept."""
SHOWN_MEMBERS = 16
_OF_POWER = frozenset({"node", "gpu", "pcie", "bmc", "psu"})
"""Tables of whose faults the power may be the cause."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One of the rule's limits."""

    severity: Severity
    limit: float
    text: str
    """``> 80 °C for 10 s``."""
    origin: str
    """``builtin`` or ``file:line``."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that can be said of an alert at the moment of a view."""

    alert: Alert
    rule: Rule
    spec: TableSpec
    at: float
    wall: float
    now: float | None
    """What is held against the limits now; None: unknown, or the alert stands for several things."""
    why: str
    """Why it is unknown; empty if it is known, or if the alert stands for several things."""
    readings: tuple[tuple[float, float | None], ...]
    """(age in seconds, value of the rule's column; None: unknown), oldest first; empty where none are kept."""
    limits: tuple[Limit, ...]
    clear: str
    clear_origin: str
    detects_within: float | None
    """Seconds; None: not known."""
    feeds: tuple[str, ...] = ()
    """Of an alert about one node: what its feeds do, and did in the minutes before it was raised."""


def explain(
    alert: Alert, view: FleetView, engine: Engine, origins: Mapping[str, Mapping[str, str]] | None = None,
    when: Times | None = None,
) -> Explanation:
    """Return what can be said of *alert*.

    Args:
        alert: one that fires.
        view: the moment.
        engine: what judged it.
        origins: by rule and key, where the configuration set it; what is not there is built in.
        when: how often things are read and judged.

    Raises:
        KeyError: the engine has no such rule.
    """
    rule = engine.rules[alert.rule]
    table = view[rule.table]
    mine = (origins or {}).get(alert.rule, {})
    now, why = None, ""
    readings: tuple[tuple[float, float | None], ...] = ()
    if 0 <= alert.row < len(table):
        values = engine.values(alert.rule)
        value = float(values[alert.row]) if alert.row < len(values) else float("nan")
        now = None if np.isnan(value) else value
        if now is None:
            why = table.reason(rule.metric, alert.row) if np.isnan(table.col(rule.metric)[alert.row]) else "not judged"
        readings = _readings(view, rule, alert.row)
    limits = tuple(
        Limit(severity, level.limit, words.limit(rule, level, table.spec),
              mine.get(f"{severity.name.lower()}.limit", BUILT_IN))
        for severity, level in rule.levels())
    return Explanation(
        alert, rule, table.spec, view.at, view.wall, now, why, readings, limits, words.clear(rule, table.spec),
        next((mine[key] for key in ("clear.limit", "clear.seconds", "clear.polls") if key in mine), BUILT_IN),
        None if when is None else latency.of_alert(alert, rule, view, when),
        tuple(power_words.did(view, row, alert.since) for row in _feeds(alert, rule, view)))


def _feeds(alert: Alert, rule: Rule, view: FleetView) -> list[int]:
    """The feeds of the one node that *alert* is about, where power may have to do with it."""
    if len(alert.on) != 1 or rule.table not in _OF_POWER:
        return []
    return power_words.feeds_of(view, alert.on[0])


def _readings(view: FleetView, rule: Rule, row: int) -> tuple[tuple[float, float | None], ...]:
    if not view.history.kept(rule.table, rule.metric):
        return ()
    times, samples = view.history.samples(rule.table, rule.metric, row + 1)
    return tuple((max(view.at - at, 0.0), None if np.isnan(value) else float(value))
                 for at, value in zip(times.tolist(), samples[:, row].tolist(), strict=True))


def lines(one: Explanation) -> list[str]:
    """The explanation as plain text, the alert's own line first."""
    alert, rule, unit = one.alert, one.rule, one.rule.unit(one.spec)
    where = " ".join(dict.fromkeys(part for part in (alert.thing.node, alert.thing.label) if part))
    out = [f"{alert.severity.name.lower()}: {alert.message}", _row("where", where),
           _row("since", f"{local_time(alert.since_wall)}, {duration(one.at - alert.since)} ago")]
    if alert.row >= 0:
        value = quantity(one.now, unit) if one.now is not None else f"unknown ({one.why})"
        out.append(_row("now", f"{value}, {words.judged(rule, one.spec)}"))
    if alert.value is not None and alert.limit is not None:
        out.append(_row("told", f"{quantity(alert.value, unit)}, limit {rule.op} {quantity(alert.limit, unit)}"))
    if one.readings:
        out.append(_row("readings", _said(one)))
    out += [_row("feed", said.removeprefix("feed ")) for said in one.feeds]
    out.append(_row("rule", f"{alert.rule}: {rule.title}"))
    out += [_row(limit.severity.name.lower(), f"{limit.text} ({limit.origin})") for limit in one.limits]
    out.append(_row("clear", f"{one.clear} ({one.clear_origin})"))
    for name, text in (("source", rule.source), ("means", rule.hint), ("look at", rule.look)):
        if text:
            out.append(_row(name, text))
    if one.detects_within is not None:
        out.append(_row("late", f"raised at most {duration(one.detects_within)} after it happened"))
    if alert.members:
        more = len(alert.members) - SHOWN_MEMBERS
        out.append(_row("stands for", ", ".join(alert.members[:SHOWN_MEMBERS])
                        + (f" and {more} more" if more > 0 else "")))
    return out


def _row(name: str, text: str) -> str:
    return f"  {name:10} {text}"


def _said(one: Explanation) -> str:
    unit = one.spec.metric(one.rule.metric).unit
    places = np.unique(np.linspace(0, len(one.readings) - 1, SHOWN_READINGS).round().astype(int)).tolist()
    return ", ".join(
        f"{'?' if value is None else quantity(value, unit)} {duration(age)} ago"
        for age, value in (one.readings[place] for place in places))


def as_object(one: Explanation) -> dict[str, object]:
    """The explanation for JSON; the alert itself is not in it."""
    rule = one.rule
    return {
        "rule": one.alert.rule, "title": rule.title, "judged": words.judged(rule, one.spec),
        "unit": rule.unit(one.spec), "now": one.now, "unknown": one.why or None,
        "since": iso(one.alert.since_wall), "lasts_seconds": round(one.at - one.alert.since, 3),
        "limits": [{"severity": limit.severity.name.lower(), "limit": limit.limit, "text": limit.text,
                    "origin": limit.origin} for limit in one.limits],
        "clear": {"text": one.clear, "origin": one.clear_origin},
        "readings": [{"age_seconds": round(age, 3), "value": value} for age, value in one.readings],
        "hint": rule.hint, "look": rule.look, "source": rule.source, "detects_within_seconds": one.detects_within,
        "feeds": list(one.feeds),
    }
