"""The fleet as plain text and as JSON: for pipes, logs, cron and screen readers. Draws nothing, colours nothing."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from clustertop import __version__
from clustertop.clock import iso, local_time
from clustertop.model import LinkState, Severity, Why
from clustertop.quantity import duration, quantity
from clustertop.store.view import STALE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clustertop.core import Snapshot
    from clustertop.model import Alert, Transition
    from clustertop.store.view import FleetView, TableView

SEVERITY_WORDS = {Severity.OK: "ok", Severity.INFO: "info", Severity.WARNING: "warn", Severity.CRITICAL: "CRIT"}


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
    if link == LinkState.UP and nodes.level[row] == STALE:
        return f"stale {duration(nodes.value('frame_age_seconds', row))}"
    return link.words


def fleet_lines(snapshot: Snapshot) -> list[str]:
    """One line per node, then the alerts."""
    view = snapshot.view
    worst = {alert.thing.node: alert.severity for alert in reversed(snapshot.alerts)}
    rows = [_node_row(view, row, worst) for row in range(len(view.nodes))]
    head = ("node", "state", "GPUs", "util", "power", "hottest", "cpu", "mem", "load", "net rx", "net tx", "rdma rx",
            "rdma tx", "alerts")
    lines = table(head, rows)
    lines += ["", *alert_lines(snapshot.alerts, view.at)]
    return lines


def _node_row(view: FleetView, row: int, worst: dict[str, Severity]) -> list[str]:
    nodes, gpus, ports = view["node"], view["gpu"], view["port"]
    present, known = nodes.value("gpus_present", row), nodes.value("gpus_known", row)
    mine, wires = gpus.rows_of(row), ports.rows_of(row)
    hottest = _reduce(gpus.col("temperature_celsius")[mine], np.max)
    received = _reduce(ports.col("receive_bytes_per_second")[wires], np.sum)
    sent = _reduce(ports.col("transmit_bytes_per_second")[wires], np.sum)
    load = nodes.value("load1", row)
    return [
        view.nodes[row].name, node_state(view, row),
        "-" if known is None else f"{quantity(present, '')}/{known:.0f}",
        quantity(nodes.value("gpu_utilization_ratio", row), "ratio"),
        quantity(nodes.value("gpu_power_watts", row), "W"),
        quantity(hottest, "°C"), quantity(nodes.value("cpu_ratio", row), "ratio"),
        quantity(nodes.value("memory_used_ratio", row), "ratio"), "-" if load is None else f"{load:.2f}",
        quantity(nodes.value("network_receive_bytes_per_second", row), "B/s"),
        quantity(nodes.value("network_transmit_bytes_per_second", row), "B/s"),
        quantity(received, "B/s"), quantity(sent, "B/s"),
        _worst(view, row, worst),
    ]


def _worst(view: FleetView, row: int, worst: dict[str, Severity]) -> str:
    severity = worst.get(view.nodes[row].name)
    if severity is not None:
        return SEVERITY_WORDS[severity]
    # No alert says nothing about a node that cannot be read.
    return "ok" if node_state(view, row) == "up" and view["node"].level[row] != STALE else "unknown"


def _reduce(values: np.ndarray, how: np.ufunc | object) -> float | None:
    known = values[~np.isnan(values)]
    return float(how(known)) if len(known) else None  # type: ignore[operator]


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
    return json.dumps({
        "at": iso(change.wall), "kind": change.kind, "rule": change.rule, "severity": change.severity.name.lower(),
        "node": change.thing.node, "table": change.thing.table, "thing": change.thing.key, "label": change.thing.label,
        "message": change.message, "value": change.value, "limit": change.limit, "unit": change.unit,
        "since": iso(change.wall - (change.at - change.since)),
    }, ensure_ascii=False)


def alert_object(alert: Alert) -> dict[str, object]:
    """A firing alert for JSON."""
    return {
        "rule": alert.rule, "title": alert.title, "severity": alert.severity.name.lower(), "node": alert.thing.node,
        "table": alert.thing.table, "thing": alert.thing.key, "label": alert.thing.label, "message": alert.message,
        "value": alert.value, "limit": alert.limit, "unit": alert.unit, "since": iso(alert.since_wall),
        "members": list(alert.members), "hint": alert.hint,
    }


def fleet_object(snapshot: Snapshot) -> dict[str, object]:
    """Every reading with unit, age and, where it is unknown, why."""
    view = snapshot.view
    nodes = []
    for number, node in enumerate(view.nodes):
        state = view["node"].value("link_state", number)
        nodes.append({
            "name": node.name, "rack": node.rack or None, "leaf": node.leaf or None, "groups": list(node.groups),
            "state": node_state(view, number),
            "link": LinkState(int(state)).name.lower() if state is not None else None,
            "reason": view.link_reasons[number] or None, "facts": dict(view.facts[number]),
            "tables": {name: [_row_object(table, int(row)) for row in table.rows_of(number)]
                       for name, table in view.tables.items()},
        })
    return {"clustertop": __version__, "at": iso(view.wall), "nodes": nodes,
            "alerts": [alert_object(alert) for alert in snapshot.alerts]}


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
