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
from clustertop.facts import fact_lines, fact_object, facts
from clustertop.hosts import fold
from clustertop.model import Severity
from clustertop.plain import (
    UP,
    alert_object,
    difference_object,
    exit_lines,
    exit_object,
    node_state,
    thing_words,
    unread,
)
from clustertop.plain_site import unread_devices
from clustertop.plain_table import SEVERITY_WORDS, table
from clustertop.plain_traffic import traffic_lines, traffic_object
from clustertop.quantity import duration
from clustertop.rules.exits import exits
from clustertop.rules.outliers import Outlier, outliers
from clustertop.rules.spec import Clear

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.core import Snapshot
    from clustertop.facts import Facts
    from clustertop.model import Alert
    from clustertop.rules.engine import Engine
    from clustertop.rules.exits import Exits
    from clustertop.rules.latency import Times
    from clustertop.rules.spec import Rule
    from clustertop.store.view import FleetView

EXIT_OK, EXIT_WARNING, EXIT_CRITICAL, EXIT_UNKNOWN = 0, 1, 2, 3
STATUS_WORDS = {EXIT_OK: "ok", EXIT_WARNING: "warning", EXIT_CRITICAL: "critical", EXIT_UNKNOWN: "unknown"}
SECTIONS = (("gpu", "GPU"), ("pcie", "PCIe"), ("port", "RDMA"), ("node", "nodes"), ("net", "network"),
            ("disk", "file systems"), ("screen", "configuration"), ("nccl", "NCCL"), ("traffic", "traffic"),
            ("peer", "TCP between nodes"), ("uplink", "switch ports"), ("feed", "power feeds"), ("pdu", "PDU parts"),
            ("bmc", "power of nodes, by their BMCs"), ("psu", "power supplies"))
READING_RULES = frozenset({"node_unreachable", "node_stale", "probe_hung", "group_failed", "group_stale",
                           "device_unreachable", "device_stale"})
"""Rules that say that something could not be read, not that it is bad."""
_OF_READING = frozenset({"device", "group"})
"""Tables that say whether something is read; what is not stands in a section of its own."""
NOT_READ = ("PFC priorities and ECN settings of the ports",)
"""What a screening pass should look at and nothing here reads."""
INSIDE_LINES = 4
"""Most lines of what an alert about many things stands for; --json has every verdict."""


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
    """Alerts about what was read, worst first: one cause, one alert."""
    inside: Mapping[str, tuple[Alert, ...]]
    """By id of an alert: every verdict that it stands for."""
    unread: tuple[tuple[str, str], ...]
    """(node or device, why) of what could not be read."""
    differences: tuple[Outlier, ...]
    judged: tuple[Judged, ...]
    exits: tuple[Exits, ...]
    facts: Facts
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
        return _status(max((alert.severity for alert in self.findings), default=Severity.OK), unread=bool(self.unread))


def make(snapshot: Snapshot, rules: Mapping[str, Rule], when: Times | None = None) -> Report:
    """The report on *snapshot*, which was judged by :func:`momentary` of *rules*."""
    view = snapshot.view
    findings = tuple(alert for alert in snapshot.alerts if alert.rule not in READING_RULES)
    read = sum(node_state(view, row) == UP for row in range(len(view.nodes)))
    waits = {name: seconds for name, rule in rules.items() if (seconds := _waits(rule))}
    inside = {alert.id: tuple(snapshot.engine.inside(view, alert)) for alert in findings}
    return Report(view.wall, len(view.nodes), read, findings, inside, tuple(unread(snapshot)), tuple(outliers(view)),
                  tuple(_judged(view, snapshot.engine)), tuple(exits(view)), facts(view), waits, rules, view, when)


def _judged(view: FleetView, engine: Engine) -> list[Judged]:
    return [Judged(name, engine.rules[name].table, engine.rules[name].title, one.known, one.unknown, one.why)
            for name, one in engine.judged(view).items() if name not in READING_RULES]


def lines(report: Report) -> list[str]:
    """The report as text: worst first in each section, then what differs, then what was not checked."""
    out = [f"clustertop check: {report.read} of {report.nodes} nodes read{_devices_read(report)}"]
    sections = (*SECTIONS, *((one, one) for one in sorted(_tables(report) - dict(SECTIONS).keys() - _OF_READING)))
    for section, title in sections:
        mine = [alert for alert in report.findings if report.rules[alert.rule].table == section]
        judged = [one for one in report.judged if one.table == section and one.known]
        if mine:
            out += ["", f"{title}: {len(mine)} finding{'s' if len(mine) > 1 else ''}"]
            found = table(("", "node", "thing", "what"), [
                (SEVERITY_WORDS[alert.severity], alert.where, thing_words(alert.thing),
                 alert.message + _caution(report, alert.rule)) for alert in mine
            ], left=4)[1:]
            for alert, line in zip(mine, found, strict=True):
                out += [line, *_inside(report.inside[alert.id])]
        elif judged:
            out += ["", f"{title}: ok ({max(one.known for one in judged)} judged)"]
    if report.differences:
        out += ["", f"differences between peers: {len(report.differences)}"]
        out += [f"  {one}" for one in report.differences]
    out += traffic_lines(report.view)
    out += ["", *exit_lines(report.exits)]
    told = fact_lines(report.facts)
    if told:
        out += ["", "facts", *(f"  {line}" for line in told)]
    if report.unread:
        out += ["", f"could not be read: {len(report.unread)}"]
        out += table(("what", "why"), report.unread, left=2)[1:]
    out += ["", "not checked"]
    for section, title in sections:
        rules = [one for one in report.judged if one.table == section]
        out += [f"  {one.title}: none of {one.unknown} ({one.why})" for one in rules if not one.known and one.unknown]
        out += [f"  {one.title}: {one.unknown} of {one.known + one.unknown} ({one.why})"
                for one in rules if one.known and one.unknown]
        absent = [one for one in rules if not one.known and not one.unknown]
        if absent:
            out.append(f"  {title}: none seen ({len(absent)} rule{'s' if len(absent) > 1 else ''})")
    out += [f"  {text}" for text in (*report.facts.unread, *(f"{what}: not read" for what in NOT_READ))]
    return [*out, "", f"result: {STATUS_WORDS[report.status]}"]


def _devices_read(report: Report) -> str:
    """How many PDUs, BMCs and switches were read; nothing where none is configured."""
    devices = report.view["device"]
    if not len(devices):
        return ""
    silent = {name for name, _ in unread_devices(report.view)}
    return f", {len(devices) - len(silent)} of {len(devices)} devices"


def _tables(report: Report) -> set[str]:
    return {one.table for one in report.judged} | {report.rules[alert.rule].table for alert in report.findings}


def _inside(verdicts: Sequence[Alert]) -> list[str]:
    """What an alert about many things stands for: its nodes folded, then a few of its verdicts."""
    if len(verdicts) < 2:
        return []
    nodes = list(dict.fromkeys(one.thing.node for one in verdicts))
    lines = [f"      on {fold(nodes)}"] if len(nodes) > 1 else []
    shown = verdicts if len(verdicts) <= INSIDE_LINES else verdicts[: INSIDE_LINES - 1]
    lines += [f"      {f'{one.thing.node} {thing_words(one.thing)}'.rstrip()}: {one.message}" for one in shown]
    if len(shown) < len(verdicts):
        lines.append(f"      ... and {len(verdicts) - len(shown)} more")
    return lines


def brief(report: Report) -> list[str]:
    """One line per node, for a scheduler's log: its own state, whatever alert its findings are part of.

    Behind them one per feed, PDU, BMC or switch that is not fine or could not be read.
    """
    mine: dict[str, dict[tuple[str, str], Alert]] = {node.name: {} for node in report.view.nodes}
    for verdicts in report.inside.values():
        for one in verdicts:
            if one.thing.node and one.rule not in READING_RULES and (
                    one.thing.node in mine or one.severity >= Severity.WARNING):
                mine.setdefault(one.thing.node, {}).setdefault((one.rule, one.thing.id), one)
    gaps: dict[str, list[str]] = {}
    for node, why in report.unread:
        gaps.setdefault(node, []).append(why)
        mine.setdefault(node, {})
    lines = []
    for node, found in mine.items():
        worst = sorted(found.values(), key=lambda one: -one.severity)
        serious = [one for one in worst if one.severity >= Severity.WARNING]
        status = _status(max((one.severity for one in worst), default=Severity.OK), unread=node in gaps)
        said = [f"{thing_words(one.thing)} {one.message}".strip() for one in serious[:1]]
        said += [f"not read: {'; '.join(gaps[node])}"] if node in gaps else []
        said += [f"{len(serious) - 1} more"] if len(serious) > 1 else []
        lines.append(f"{node} {STATUS_WORDS[status]}{': ' if said else ''}{'; '.join(said)}")
    return lines


def _status(worst: Severity, *, unread: bool) -> int:
    """2 if anything is critical; else 3 if anything could not be read; else 1 for a warning; else 0."""
    if worst >= Severity.CRITICAL:
        return EXIT_CRITICAL
    if unread:
        return EXIT_UNKNOWN
    return EXIT_WARNING if worst >= Severity.WARNING else EXIT_OK


def _caution(report: Report, rule: str) -> str:
    seconds = report.waits.get(rule)
    return f" (at this moment; watch waits {duration(seconds)})" if seconds else ""


def as_object(report: Report) -> dict[str, object]:
    """The report for JSON."""
    return {
        "clustertop": __version__, "at": iso(report.at), "status": report.status, "nodes": report.nodes,
        "read": report.read,
        "findings": [{**alert_object(alert, report.rules, report.view, report.when),
                      "waits_seconds": report.waits.get(alert.rule),
                      "inside": [_verdict_object(one) for one in report.inside[alert.id]]}
                     for alert in report.findings],
        "unread": [{"node": node, "why": why} for node, why in report.unread],
        "differences": [difference_object(one) for one in report.differences],
        "traffic": traffic_object(report.view),
        "exits": [exit_object(one, report.view) for one in report.exits],
        "facts": fact_object(report.facts),
        "judged": [{"rule": one.rule, "table": one.table, "title": one.title, "known": one.known,
                    "unknown": one.unknown, "why": one.why or None} for one in report.judged],
        "not_checked": [*report.facts.unread, *(f"{what}: not read" for what in NOT_READ)],
    }


def _verdict_object(one: Alert) -> dict[str, object]:
    return {"rule": one.rule, "severity": one.severity.name.lower(), "node": one.thing.node, "table": one.thing.table,
            "thing": one.thing.key, "label": one.thing.label, "message": one.message, "value": one.value,
            "limit": one.limit, "unit": one.unit}
