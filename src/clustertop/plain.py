"""The fleet as plain text and as JSON: for pipes, logs, cron and screen readers. Draws nothing, colours nothing."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from clustertop import __version__
from clustertop.clock import iso, local_time
from clustertop.model import LinkState, Severity, Why
from clustertop.quantity import duration, quantity
from clustertop.rules import latency
from clustertop.signals import coverage, host
from clustertop.store.view import STALE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.core import Snapshot
    from clustertop.model import Alert, Transition
    from clustertop.rules.latency import Times
    from clustertop.rules.spec import Rule
    from clustertop.store.view import FleetView, TableView

SILENT_INTERVALS = 5.0
"""A node that is up and has missed more frames than this is stale, as the rule node_stale has it."""
UP = LinkState.UP.words
SEVERITY_WORDS = {Severity.OK: "ok", Severity.INFO: "info", Severity.WARNING: "warn", Severity.CRITICAL: "CRIT"}


def json_text(value: object, indent: int | None = None) -> str:
    """*value* as JSON that stdout can carry whatever its encoding."""
    plain_ascii = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") != "utf8"
    return json.dumps(value, ensure_ascii=plain_ascii, indent=indent, allow_nan=False)


def cells(text: str) -> int:
    """Columns that *text* takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
               for char in text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """*text* filled up with blanks to *width* columns, or cut to it with an ellipsis."""
    if cells(text) > width:
        cut = ""
        for char in text:
            if cells(cut + char) > width - 1:
                break
            cut += char
        text = cut + "…"
    blanks = " " * max(width - cells(text), 0)
    return blanks + text if right else text + blanks


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 2, widest: int = 60) -> list[str]:
    """Aligned lines; the first *left* columns to the left, the others to the right, the last one free."""
    body = [list(row) for row in rows]
    every = [list(head), *body]
    widths = [min(max(cells(row[column]) for row in every), widest) for column in range(len(head))]
    lines = []
    for row in every:
        line = [pad(cell, widths[column], right=column >= left) for column, cell in enumerate(row[:-1])]
        lines.append("  ".join([*line, row[-1]]).rstrip())
    return lines


def node_state(view: FleetView, row: int) -> str:
    """A node's state in a word or two; never "up" for a node that is silent."""
    nodes = view["node"]
    state = nodes.value("link_state", row)
    link = LinkState(int(state)) if state is not None else LinkState.WAITING
    if link != LinkState.UP:
        return link.words
    age, missed = nodes.value("frame_age_seconds", row), nodes.value("frames_missed", row)
    if age is None or missed is None:
        return "no reading"
    return f"stale {duration(age)}" if missed > SILENT_INTERVALS else UP


def fleet_lines(snapshot: Snapshot) -> list[str]:
    """One line per node, then what could not be read and why, then the alerts.

    ``>=`` before a sum or a maximum: not every thing that is there gave a reading. ``(2/4)`` behind a mean: it is over
    2 of 4 things.
    """
    view = snapshot.view
    worst = {alert.thing.node: alert.severity for alert in reversed(snapshot.alerts)}
    rows = [_node_row(view, row, worst) for row in range(len(view.nodes))]
    head = ("node", "state", "GPUs", "util", "power", "hottest", "cpu", "mem", "load", "net rx", "net tx", "rdma rx",
            "rdma tx", "alerts")
    lines = table(head, rows)
    missing = unread(snapshot)
    if missing:
        lines += ["", f"could not be read: {len(missing)}", *table(("node", "why"), missing)[1:]]
    lines += ["", *alert_lines(snapshot.alerts, view.at)]
    return lines


def unread(snapshot: Snapshot) -> list[tuple[str, str]]:
    """(node, why) of every node, and every group of readings on a node, that says nothing now."""
    view, out = snapshot.view, []
    groups = view["group"]
    for row, node in enumerate(view.nodes):
        state = node_state(view, row)
        if state != UP:
            said = view.link_reasons[row]
            out.append((node.name, f"{state}: {said}" if said else state))
            continue
        if row in snapshot.bad_frames:
            out.append((node.name, snapshot.bad_frames[row]))
        for group in groups.rows_of(row).tolist():
            condition = groups.value("group_state", group)
            if condition in {host.HUNG, host.ERROR, host.WAIT}:
                said = str(groups.attrs[group].get("said") or "")
                out.append((node.name, f"{groups.keys[group]} {host.GROUP_WORDS[int(condition or 0)]}"
                                       f"{': ' + said if said else ''}"))
            elif groups.level[group] == STALE:
                out.append((node.name, f"{groups.keys[group]} stale: no reading for "
                                       f"{duration(groups.value('group_age_seconds', group))}"))
    return out


def _node_row(view: FleetView, row: int, worst: dict[str, Severity]) -> list[str]:
    nodes, gpus, ports = view["node"], view["gpu"], view["port"]
    present, known = nodes.value("gpus_present", row), nodes.value("gpus_known", row)
    mine, wires = gpus.rows_of(row), ports.rows_of(row)
    # A virtual function's traffic goes through its parent's port.
    wires = wires[ports.col("virtual")[wires] != 1]
    load = nodes.value("load1", row)
    return [
        view.nodes[row].name, node_state(view, row),
        "-" if known is None else f"{quantity(present, '')}/{known:.0f}",
        _mean(gpus.col("utilization_ratio")[mine[gpus.col("mig_mode")[mine] != 1]], "ratio"),
        _over(gpus.col("power_watts")[mine], np.sum, "W"), _over(gpus.col("temperature_celsius")[mine], np.max, "°C"),
        quantity(nodes.value("cpu_ratio", row), "ratio"),
        quantity(nodes.value("memory_used_ratio", row), "ratio"), "-" if load is None else f"{load:.2f}",
        quantity(nodes.value("network_receive_bytes_per_second", row), "B/s"),
        quantity(nodes.value("network_transmit_bytes_per_second", row), "B/s"),
        _over(_moved(ports, "receive")[wires], np.sum, "B/s"), _over(_moved(ports, "transmit")[wires], np.sum, "B/s"),
        _worst(view, row, worst),
    ]


def _worst(view: FleetView, row: int, worst: dict[str, Severity]) -> str:
    severity = worst.get(view.nodes[row].name)
    if severity is not None:
        return SEVERITY_WORDS[severity]
    # No alert says nothing about a node that cannot be read, and nothing of a group that is not fresh.
    groups = view["group"]
    old = groups.level[groups.rows_of(row)] == STALE
    return "ok" if node_state(view, row) == UP and not old.any() else "unknown"


def _moved(ports: TableView, way: str) -> NDArray[np.float64]:
    """[rows] bytes per second, by the port's counters, else by its driver's own."""
    own, drivers = ports.col(f"{way}_bytes_per_second"), ports.col(f"hw_{way}_bytes_per_second")
    return np.where(np.isnan(own), drivers, own)


def _mean(values: NDArray[np.float64], unit: str) -> str:
    """A mean in words; over a part of the things it says over how many."""
    found = coverage.mean(values)
    return quantity(found.value, unit) + (f" ({found.note})" if found.known and found.note else "")


def _over(values: NDArray[np.float64], how: Callable[[NDArray[np.float64]], float], unit: str) -> str:
    """A sum or a maximum in words; over a part of the things it is "at least"."""
    known = values[~np.isnan(values)]
    if not len(known):
        return "-"
    return ("" if len(known) == len(values) else ">=") + quantity(float(how(known)), unit)


def alert_lines(alerts: Sequence[Alert], now: float) -> list[str]:
    """The firing alerts, worst first, or that there are none."""
    if not alerts:
        return ["no alerts"]
    lines = [f"{len(alerts)} alert{'s' if len(alerts) > 1 else ''}"]
    lines += table(("", "since", "node", "thing", "message"), [
        (SEVERITY_WORDS[alert.severity], duration(now - alert.since), alert.thing.node, alert.thing.label,
         alert.message)
        for alert in alerts], left=5)[1:]
    return lines


def transition_line(change: Transition) -> str:
    """One transition as one line."""
    thing = "" if change.thing.label == change.thing.node else f" {change.thing.label}"
    return (f"{local_time(change.wall)} {SEVERITY_WORDS[change.severity]:4} {change.kind:8} "
            f"{change.thing.node}{thing}: {change.message} [{change.rule}]")


def transition_json(change: Transition) -> str:
    """One transition as one line of JSON; the keys are a contract."""
    return json_text({
        "at": iso(change.wall), "kind": change.kind, "rule": change.rule, "severity": change.severity.name.lower(),
        "node": change.thing.node, "table": change.thing.table, "thing": change.thing.key, "label": change.thing.label,
        "message": change.message, "value": change.value, "limit": change.limit, "unit": change.unit,
        "since": iso(change.wall - (change.at - change.since)),
    })


def alert_object(
    alert: Alert, rules: Mapping[str, Rule], view: FleetView, when: Times | None = None
) -> dict[str, object]:
    """A firing alert for JSON.

    Args:
        alert: the alert.
        rules: the rules in force.
        view: what it was judged on.
        when: how often things are read and judged; None: how late it can be is not known.
    """
    rule = rules[alert.rule]
    late = None if when is None else latency.of_alert(alert, rule, view, when)
    return {
        "rule": alert.rule, "title": alert.title, "severity": alert.severity.name.lower(), "node": alert.thing.node,
        "table": alert.thing.table, "thing": alert.thing.key, "label": alert.thing.label, "message": alert.message,
        "value": alert.value, "limit": alert.limit, "unit": alert.unit, "since": iso(alert.since_wall),
        "members": list(alert.members), "hint": alert.hint, "look": rule.look, "source": rule.source,
        "detects_within_seconds": None if late is None else round(late, 3),
    }


def fleet_object(snapshot: Snapshot, when: Times | None = None) -> dict[str, object]:
    """Every reading with unit, age and, where it is unknown, why. *when*: how often things are read and judged."""
    view = snapshot.view
    nodes = []
    for number, node in enumerate(view.nodes):
        state = view["node"].value("link_state", number)
        nodes.append({
            "name": node.name, "rack": node.rack or None, "leaf": node.leaf or None, "groups": list(node.groups),
            "state": node_state(view, number),
            "link": LinkState(int(state)).name.lower() if state is not None else None,
            "reason": view.link_reasons[number] or snapshot.bad_frames.get(number) or None,
            "facts": dict(view.facts[number]),
            "tables": {name: [_row_object(table, int(row)) for row in table.rows_of(number)]
                       for name, table in view.tables.items()},
        })
    return {"clustertop": __version__, "at": iso(view.wall), "nodes": nodes,
            "alerts": [alert_object(alert, snapshot.engine.rules, view, when) for alert in snapshot.alerts]}


def _row_object(table: TableView, row: int) -> dict[str, object]:
    age = float(table.age[row])
    readings: dict[str, object] = {}
    for column, metric in enumerate(table.spec.metrics):
        value = float(table.values[column, row])
        unknown = value != value
        absent = unknown and table.why[column, row] in {Why.NOT_PROVIDED, Why.NEVER_READ}
        if absent and metric.raw.startswith(("c:", "h:")):
            continue  # counters that this kind of port does not have would bury the others
        entry: dict[str, object] = {"value": None if unknown else value, "unit": metric.unit}
        if unknown:
            entry["unknown"] = table.reason(metric.name, row)
        elif metric.words:
            entry["text"] = metric.words.get(int(value))
        readings[metric.name] = entry
    return {"key": table.keys[row], "label": table.labels[row], "present": bool(table.present[row]),
            "attrs": dict(table.attrs[row]), "age_seconds": None if np.isinf(age) else round(age, 3),
            "readings": readings}
