"""The fleet as plain text and as JSON: for pipes, logs, cron and screen readers. Draws nothing, colours nothing."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from clustertop import __version__
from clustertop.clock import iso, local_minute, local_time
from clustertop.jobs import SILENT_INTERVALS, job_lines
from clustertop.model import LinkState, Severity
from clustertop.plain_site import device_objects, feed_lines, feed_objects, fleet_rows, unread_devices
from clustertop.plain_table import SEVERITY_WORDS, row_object, table
from clustertop.plain_traffic import traffic_lines, traffic_object
from clustertop.quantity import duration, quantity
from clustertop.rules import latency
from clustertop.rules.exits import LIMITS, NO_METER, TITLES, UNITS, exits
from clustertop.rules.outliers import outliers
from clustertop.signals import coverage, host
from clustertop.signals.jobs import NO_JOB
from clustertop.store.view import STALE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.core import Snapshot
    from clustertop.jobs import JobLine
    from clustertop.model import Alert, Thing, Transition
    from clustertop.rules.exits import Exits, Signal, Verdict
    from clustertop.rules.latency import Times
    from clustertop.rules.outliers import Outlier
    from clustertop.rules.spec import Rule
    from clustertop.store.view import FleetView, TableView

UP = LinkState.UP.words


def json_text(value: object, indent: int | None = None) -> str:
    """*value* as JSON that stdout can carry whatever its encoding."""
    plain_ascii = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") != "utf8"
    return json.dumps(value, ensure_ascii=plain_ascii, indent=indent, allow_nan=False)


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


def released_words(view: FleetView, row: int) -> str:
    """``GPUs released by the operator since 14:02``; empty where they are not."""
    seconds = view["node"].value("gpus_released_seconds", row)
    return "" if seconds is None else f"GPUs released by the operator since {local_minute(view.wall - seconds)}"


def fleet_lines(snapshot: Snapshot) -> list[str]:
    """One line per node, one per feed, then what could not be read and why, what sets nodes apart, the alerts.

    ``>=`` before a sum or a maximum: not every thing that is there gave a reading. ``(2/4)`` behind a mean: it is over
    2 of 4 things.
    """
    view = snapshot.view
    worst = {view.nodes[node].name: alert.severity for alert in reversed(snapshot.alerts) for node in alert.on}
    blind = view.blind()
    rows = [_node_row(view, row, worst, blind=bool(blind[row])) for row in range(len(view.nodes))]
    head = ("node", "state", "GPUs", "util", "power", "hottest", "cpu", "mem", "load", "net rx", "net tx", "rdma rx",
            "rdma tx", "alerts")
    lines = table(head, rows)
    feeds = feed_lines(snapshot)
    if feeds:
        lines += ["", *feeds]
    missing = unread(snapshot)
    if missing:
        lines += ["", f"could not be read: {len(missing)}", *table(("what", "why"), missing)[1:]]
    differences = outliers(view)
    if differences:
        lines += ["", f"differences between peers: {len(differences)}", *(f"  {one}" for one in differences)]
    jobs = job_table(snapshot)
    if jobs:
        lines += ["", *jobs]
    lines += traffic_lines(view)
    lines += ["", *exit_lines(exits(view))]
    lines += ["", *alert_lines(snapshot.alerts, view.at)]
    return lines


def exit_lines(made: Sequence[Exits]) -> list[str]:
    """The exit signals: a line per job, group or rack; what no meter is read of is said once."""
    signals: list[Signal] = ["cross_rack_share", "nccl_init", "utilization"]
    head = ["exit signals", *(f"{TITLES[signal]} {'<' if signal == 'utilization' else '>'} "
                              f"{quantity(LIMITS[signal], UNITS[signal])}" for signal in signals)]
    lines = table(head, [
        [one.name if one.kind == "nodes" else f"{one.kind} {one.name}", *map(exit_words, one.verdicts)] for one in made
    ], left=len(head))
    missing = {verdict.signal for one in made for verdict in one.verdicts if verdict.note == NO_METER[verdict.signal]}
    said = [f"{TITLES[signal]}: {NO_METER[signal]}" for signal in signals if signal in missing and NO_METER[signal]]
    return [*lines, f"not measured: {'; '.join(said)}"] if said else lines


def exit_words(verdict: Verdict) -> str:
    """``no (96 %)``, ``yes (62 % over 7/8; at this moment ...)``, ``not measured``."""
    said = []
    if verdict.value is not None:
        part = f" over {verdict.known}/{verdict.of}" if verdict.known != verdict.of else ""
        said.append(quantity(verdict.value, UNITS[verdict.signal]) + part)
    if verdict.note and verdict.note != NO_METER[verdict.signal]:
        said.append(verdict.note)
    return verdict.answer + (f" ({'; '.join(said)})" if said else "")


def exit_object(one: Exits, view: FleetView) -> dict[str, object]:
    """The exit signals of one job, group or rack, for JSON."""
    return {"kind": one.kind, "name": one.name, "nodes": [view.nodes[node].name for node in one.nodes], "signals": {
        verdict.signal: {
            "answer": verdict.answer, "value": verdict.value, "limit": LIMITS[verdict.signal],
            "unit": UNITS[verdict.signal], "known": verdict.known, "of": verdict.of,
            "sustained": verdict.sustained if verdict.answer == "yes" else None, "note": verdict.note or None}
        for verdict in one.verdicts}}


def job_table(snapshot: Snapshot) -> list[str]:
    """A line per job, and one for the nodes of which none or several are known; nothing where no job is known."""
    made = job_lines(snapshot)
    if not made:
        return []
    jobs = snapshot.view.jobs
    rows = [(line.name, f"{line.nodes_up}/{line.nodes}", f"{line.gpus_present}/{line.gpus}",
             quantity(line.utilization_ratio, "ratio"),
             (">=" if line.partial and line.power_watts is not None else "") + quantity(line.power_watts, "W"),
             str(line.shared or "-"), "unknown" if line.severity is None else SEVERITY_WORDS[line.severity])
            for line in made]
    lines = [f"{len(made)} job{'s' if len(made) > 1 else ''}",
             *table(("job", "nodes", "GPUs", "median util", "power", "shared", "alerts"), rows, left=1)]
    idle = int((jobs.node == NO_JOB).sum())
    unknown = sum(told is None for told in jobs.of_node)
    rest = [text for text in (f"{idle} without a job" if idle else "",
                              f"{unknown} of which no job is known" if unknown else "") if text]
    return [*lines, f"nodes: {', '.join(rest)}"] if rest else lines


def unread(snapshot: Snapshot) -> list[tuple[str, str]]:
    """(node, why) of every node, every group of readings on a node, and every device, that says nothing now."""
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
        released = released_words(view, row)
        if released:
            out.append((node.name, released))
        for group in groups.rows_of(row).tolist():
            condition = groups.value("group_state", group)
            if condition in {host.HUNG, host.ERROR, host.WAIT}:
                said = str(groups.attrs[group].get("said") or "")
                out.append((node.name, f"{groups.keys[group]} {host.GROUP_WORDS[int(condition or 0)]}"
                                       f"{': ' + said if said else ''}"))
            elif groups.level[group] == STALE:
                out.append((node.name, f"{groups.keys[group]} stale: no reading for "
                                       f"{duration(groups.value('group_age_seconds', group))}"))
    return out + unread_devices(view)


def _node_row(view: FleetView, row: int, worst: dict[str, Severity], *, blind: bool) -> list[str]:
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
        _worst(view, row, worst, blind=blind),
    ]


def _worst(view: FleetView, row: int, worst: dict[str, Severity], *, blind: bool) -> str:
    severity = worst.get(view.nodes[row].name)
    if severity is not None:
        return SEVERITY_WORDS[severity]
    if released_words(view, row):
        return "released"
    # No alert says nothing about a node that cannot be read, and nothing of a group that is not fresh.
    return "ok" if node_state(view, row) == UP and not blind else "unknown"


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
        (SEVERITY_WORDS[alert.severity], duration(now - alert.since), alert.where, thing_words(alert.thing),
         alert.message)
        for alert in alerts], left=5)[1:]
    return lines


def thing_words(thing: Thing) -> str:
    """The thing's label beside its node's name; of a feed or device its kind; empty where the one says the other."""
    if not thing.node or thing.label == thing.node:
        return ""
    return thing.label.removesuffix(f" {thing.node}")


def transition_line(change: Transition) -> str:
    """One transition as one line."""
    where = f"{change.thing.node} {thing_words(change.thing)}".strip() or change.thing.label
    return (f"{local_time(change.wall)} {SEVERITY_WORDS[change.severity]:4} {change.kind:8} "
            f"{where}: {change.message} [{change.rule}]")


def transition_json(change: Transition) -> str:
    """One transition as one line of JSON."""
    return json_text(transition_object(change))


def transition_object(change: Transition) -> dict[str, object]:
    """A transition for JSON; the keys are a contract."""
    return {
        "at": iso(change.wall), "kind": change.kind, "rule": change.rule, "severity": change.severity.name.lower(),
        "node": change.thing.node, "table": change.thing.table, "thing": change.thing.key, "label": change.thing.label,
        "message": change.message, "value": change.value, "limit": change.limit, "unit": change.unit,
        "since": iso(change.wall - (change.at - change.since)), "alert": change.alert, "into": change.into or None,
        "members": change.members, "quiet": change.quiet,
    }


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
        "detects_within_seconds": None if late is None else round(late, 3), "alert": alert.id,
        "acknowledged": alert.acked, "silenced": alert.silenced, "note": alert.note or None,
    }


def fleet_object(snapshot: Snapshot, when: Times | None = None) -> dict[str, object]:
    """Every reading with unit, age and, where it is unknown, why. *when*: how often things are read and judged."""
    view = snapshot.view
    nodes: list[dict[str, Any]] = []
    for number, node in enumerate(view.nodes):
        state = view["node"].value("link_state", number)
        nodes.append({
            "name": node.name, "rack": node.rack or None, "leaf": node.leaf or None, "groups": list(node.groups),
            "state": node_state(view, number),
            "link": LinkState(int(state)).name.lower() if state is not None else None,
            "reason": view.link_reasons[number] or snapshot.bad_frames.get(number) or None,
            "jobs": None if (jobs := view.jobs.of_node[number]) is None else list(jobs),
            "released": None if (since := view["node"].value("gpus_released_seconds", number)) is None
            else iso(view.wall - since),
            "facts": dict(view.facts[number]),
            "tables": {name: [row_object(table, int(row)) for row in table.rows_of(number)]
                       for name, table in view.tables.items() if view.of.of_nodes(name)},
        })
        for gpu, row in zip(nodes[-1]["tables"]["gpu"], view["gpu"].rows_of(number).tolist(), strict=True):
            gpu["job"] = view.jobs.name(int(view.jobs.gpu[row])) or None
    return {"clustertop": __version__, "at": iso(view.wall), "nodes": nodes,
            "feeds": feed_objects(view), "devices": device_objects(snapshot), "fleet": fleet_rows(view),
            "jobs": [job_object(line) for line in job_lines(snapshot)],
            "traffic": traffic_object(view),
            "exits": [exit_object(one, view) for one in exits(view)],
            "differences": [difference_object(one) for one in outliers(view)],
            "alerts": [alert_object(alert, snapshot.engine.rules, view, when) for alert in snapshot.alerts]}


def difference_object(one: Outlier) -> dict[str, object]:
    """What sets a node apart from its peers, for JSON."""
    return {"node": one.node, "label": one.label, "what": one.what, "value": one.value, "usual": one.usual,
            "common": one.common, "of": one.of}


def job_object(line: JobLine) -> dict[str, object]:
    """A job for JSON."""
    return {
        "job": line.name, "nodes": line.nodes, "nodes_up": line.nodes_up, "nodes_shared": line.shared,
        "gpus": line.gpus, "gpus_present": line.gpus_present, "median_utilization_ratio": line.utilization_ratio,
        "power_watts": line.power_watts, "power_partial": line.partial,
        "severity": None if line.severity is None else line.severity.name.lower(),
    }
