"""A screening pass as a report: what is wrong, what differs, and what could not be checked.

One pass cannot wait for a for-duration, so the rules are judged at once (:func:`momentary`), and a finding of a rule
that would have waited says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from clustertop import __version__
from clustertop.clock import iso
from clustertop.model import Severity
from clustertop.plain import SEVERITY_WORDS, UP, alert_object, difference_object, node_state, table, unread
from clustertop.quantity import duration
from clustertop.rules.outliers import Outlier, outliers
from clustertop.rules.spec import Clear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.core import Snapshot
    from clustertop.model import Alert
    from clustertop.rules.engine import Engine
    from clustertop.rules.latency import Times
    from clustertop.rules.spec import Rule
    from clustertop.store.view import FleetView

EXIT_OK, EXIT_WARNING, EXIT_CRITICAL, EXIT_UNKNOWN = 0, 1, 2, 3
SECTIONS = (("gpu", "GPU"), ("pcie", "PCIe"), ("port", "RDMA"), ("node", "nodes"), ("net", "network"),
            ("disk", "file systems"))
READING_RULES = frozenset({"node_unreachable", "node_stale", "probe_hung", "group_failed", "group_stale"})
"""Rules that say that something could not be read, not that it is bad."""


def momentary(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return *rules* without for-durations, for a pass of a few seconds.

    A level that differs from a milder one only in how long it lasts cannot be told in one pass: the milder one stands.
    A rule that waits for seconds is about a state, so it is a finding only if it is breached at the end of the pass;
    any other is about events, so what was seen during the pass counts.
    """
    out = {}
    for name, rule in rules.items():
        changes: dict[str, object] = {}
        limits: set[float] = set()
        for severity, level in rule.levels():
            same = level.limit in limits
            limits.add(level.limit)
            changes[severity.name.lower()] = None if same else msgspec.structs.replace(
                level, for_seconds=0.0, for_polls=1)
        if _waits(rule):
            changes["clear"] = Clear()
        changes["gather_seconds"], changes["settles"] = 0.0, False
        out[name] = msgspec.structs.replace(rule, **changes)
    return out


def _waits(rule: Rule) -> float:
    """How many seconds the mildest level of *rule* has to last."""
    return min((level.for_seconds for _, level in rule.levels()), default=0.0)


@dataclass(frozen=True, slots=True)
class Judged:
    """How much one rule could judge."""

    rule: str
    table: str
    title: str
    known: int
    unknown: int
    why: str
    """The commonest reason of the unknown ones."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one pass."""

    at: float
    nodes: int
    read: int
    findings: tuple[Alert, ...]
    """Verdicts on what was read, worst first."""
    unread: tuple[tuple[str, str], ...]
    """(node, why) of what could not be read."""
    differences: tuple[Outlier, ...]
    judged: tuple[Judged, ...]
    waits: Mapping[str, float]
    """By rule: seconds that it waits before it raises an alert, where it does; this pass did not."""
    rules: Mapping[str, Rule]
    """The rules as they watch."""
    view: FleetView
    when: Times | None
    """How often a watching console would read and judge."""

    @property
    def status(self) -> int:
        """2 if anything is critical; else 3 if anything could not be read; else 1 for a warning; else 0."""
        worst = max((alert.severity for alert in self.findings), default=Severity.OK)
        if worst >= Severity.CRITICAL:
            return EXIT_CRITICAL
        if self.unread:
            return EXIT_UNKNOWN
        return EXIT_WARNING if worst >= Severity.WARNING else EXIT_OK


def make(snapshot: Snapshot, rules: Mapping[str, Rule], when: Times | None = None) -> Report:
    """The report on *snapshot*, which was judged by :func:`momentary` of *rules*."""
    view = snapshot.view
    findings = tuple(alert for alert in snapshot.alerts if alert.rule not in READING_RULES)
    read = sum(node_state(view, row) == UP for row in range(len(view.nodes)))
    waits = {name: seconds for name, rule in rules.items() if (seconds := _waits(rule))}
    return Report(view.wall, len(view.nodes), read, findings, tuple(unread(snapshot)), tuple(outliers(view)),
                  tuple(_judged(view, snapshot.engine)), waits, rules, view, when)


def _judged(view: FleetView, engine: Engine) -> list[Judged]:
    return [Judged(name, engine.rules[name].table, engine.rules[name].title, one.known, one.unknown, one.why)
            for name, one in engine.judged(view).items() if name not in READING_RULES]


def lines(report: Report) -> list[str]:
    """The report as text: worst first in each section, then what differs, then what was not checked."""
    out = [f"clustertop check: {report.read} of {report.nodes} nodes read"]
    for section, title in SECTIONS:
        mine = [alert for alert in report.findings if report.rules[alert.rule].table == section]
        judged = [one for one in report.judged if one.table == section and one.known]
        if mine:
            out += ["", f"{title}: {len(mine)} finding{'s' if len(mine) > 1 else ''}"]
            out += table(("", "node", "thing", "what"), [
                (SEVERITY_WORDS[alert.severity], alert.where, alert.thing.label if alert.thing.node else "",
                 alert.message + _caution(report, alert.rule)) for alert in mine
            ], left=4)[1:]
        elif judged:
            out += ["", f"{title}: ok ({max(one.known for one in judged)} judged)"]
    if report.differences:
        out += ["", f"differences between peers: {len(report.differences)}"]
        out += [f"  {one}" for one in report.differences]
    if report.unread:
        out += ["", f"could not be read: {len(report.unread)}"]
        out += table(("node", "why"), report.unread, left=2)[1:]
    unchecked = [one for one in report.judged if one.known == 0 and one.unknown]
    partly = [one for one in report.judged if one.known and one.unknown]
    if unchecked or partly or any(not one.known for one in report.judged):
        out += ["", "not checked"]
        out += [f"  {one.title}: none of {one.unknown} ({one.why})" for one in unchecked]
        out += [f"  {one.title}: {one.unknown} of {one.known + one.unknown} ({one.why})" for one in partly]
        for section, title in SECTIONS:
            absent = [one for one in report.judged if one.table == section and not one.known and not one.unknown]
            if absent:
                out.append(f"  {title}: none seen ({len(absent)} rule{'s' if len(absent) > 1 else ''})")
    words = {EXIT_OK: "ok", EXIT_WARNING: "warning", EXIT_CRITICAL: "critical", EXIT_UNKNOWN: "unknown"}
    return [*out, "", f"result: {words[report.status]}"]


def _caution(report: Report, rule: str) -> str:
    seconds = report.waits.get(rule)
    return f" (at this moment; watch waits {duration(seconds)})" if seconds else ""


def as_object(report: Report) -> dict[str, object]:
    """The report for JSON."""
    return {
        "clustertop": __version__, "at": iso(report.at), "status": report.status, "nodes": report.nodes,
        "read": report.read,
        "findings": [{**alert_object(alert, report.rules, report.view, report.when),
                      "waits_seconds": report.waits.get(alert.rule)} for alert in report.findings],
        "unread": [{"node": node, "why": why} for node, why in report.unread],
        "differences": [difference_object(one) for one in report.differences],
        "judged": [{"rule": one.rule, "known": one.known, "unknown": one.unknown, "why": one.why or None}
                   for one in report.judged],
    }
