"""One node in words: the machine, its probe, and every reading that is not known, with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.quantity import duration, quantity
from clustertop.tui.cells import explained, pairs, title, value, wrap

if TYPE_CHECKING:
    from clustertop.store.view import TableView
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Span

_TABLES = ("node", "gpu", "port", "pcie", "net", "link", "disk")
MOST_LABELS = 4
"""More rows than this are counted, not named."""


def machine_lines(picture: Picture, node: int, wide: int) -> list[Line]:
    """CPU, memory, swap, load, pressure, clock, versions."""
    table = picture.view["node"]

    def of(column: str, whole: str) -> Span:
        text, style = value(table, column, node)
        return (f"{text} of {value(table, whole, node)[0]}", style)

    load = " ".join(value(table, name, node)[0] for name in ("load1", "load5", "load15"))
    given: list[tuple[str, Span]] = [
        ("CPU", of("cpu_ratio", "cpus")), ("memory", of("memory_used_ratio", "memory_total_bytes")),
        ("swap", _swap(table, node)), ("load", (load, value(table, "load1", node)[1]))]
    given += [(name, value(table, column, node)) for name, column in (
        ("pressure: CPU", "cpu_pressure_ratio"), ("memory", "memory_pressure_ratio"), ("I/O", "io_pressure_ratio"),
        ("net rx", "network_receive_bytes_per_second"), ("tx", "network_transmit_bytes_per_second"),
        ("up", "uptime_seconds"))]
    given.append(("clock off", _offset(table, node)))
    facts = picture.view.facts[node]
    given += [(name, (str(facts[key]), "text") if facts.get(key) else ("? (not told)", "unknown")) for name, key in (
        ("OS", "os"), ("kernel", "kernel"), ("driver", "driver"), ("CUDA", "cuda"), ("boot", "boot_id"))]
    return [title(" Machine"), *pairs(given, wide)]


def _swap(table: TableView, node: int) -> Span:
    total, used = table.value("swap_total_bytes", node), table.value("swap_used_bytes", node)
    if total is None or used is None:
        return value(table, "swap_total_bytes" if total is None else "swap_used_bytes", node)
    if not total:
        return ("none", "text")
    return (f"{quantity(used, 'B')} of {quantity(total, 'B')}", "warning" if used > total / 2 else "text")


def _offset(table: TableView, node: int) -> Span:
    offset = table.value("clock_offset_seconds", node)
    if offset is None:
        return value(table, "clock_offset_seconds", node)
    words = f"{duration(abs(offset))} {'ahead' if offset > 0 else 'behind'}"
    return (words, "warning" if abs(offset) > 1 else "text")


def probe_lines(picture: Picture, node: int, wide: int) -> list[Line]:
    """What reads there and what it costs the node."""
    table, groups = picture.view["node"], picture.view["group"]
    facts = picture.view.facts[node]
    if facts.get("probe") == "sh":
        what: Span = ("sh probe: no usable Python there, so GPUs come from nvidia-smi and some readings are missing",
                      "warning")
    elif facts.get("python"):
        what = (f"Python {facts['python']}", "text")
    else:
        what = ("? (not told)", "unknown")
    given = [("runs on", what), ("CPU", explained(table, "probe_cpu_ratio", node)),
             ("memory", explained(table, "probe_memory_bytes", node)),
             ("NVML per tick", explained(table, "probe_nvml_seconds", node))]
    row = groups.row_of(node, "gpu")
    given.append(("GPUs are read every", ("? (not read yet)", "unknown") if row is None else interval(groups, row)))
    return [title(" Probe"), *pairs(given, wide)]


def interval(groups: TableView, row: int) -> Span:
    """The interval in effect; where it is stretched, with the one that was asked for."""
    now, wanted = groups.value("interval_seconds", row), groups.value("interval_wanted_seconds", row)
    text, style = value(groups, "interval_seconds", row)
    if now is None or wanted is None or now <= wanted:
        return (text, style)
    return (f"{text}, stretched from {duration(wanted)}: a reading takes "
            f"{quantity(groups.value('reading_seconds', row), 's')}", "warning")


def unknown_lines(picture: Picture, node: int, wide: int) -> list[Line]:
    """Every reading of the node that is not known, by reason; counters that a device does not have are none."""
    out: list[Line] = []
    total = 0
    for name in _TABLES:
        table = picture.view[name]
        rows = table.rows_of(node)
        if not len(rows):
            continue
        found: dict[tuple[str, tuple[int, ...]], list[str]] = {}
        for column, metric in enumerate(table.spec.metrics):
            if not metric.raw:
                continue
            why = table.why[column, rows]
            missing = np.isnan(table.values[column, rows])
            if metric.raw[1:2] == ":":
                missing &= (why != Why.NOT_PROVIDED) & (why != Why.NEVER_READ)
            total += int(missing.sum())
            for code in np.unique(why[missing]).tolist():
                mine = tuple(rows[missing & (why == code)].tolist())
                found.setdefault((table.reason(metric.name, mine[0]), mine), []).append(metric.name)
        for (reason, mine), names in sorted(found.items(), key=lambda pair: (-len(pair[0][1]), pair[0][0])):
            head = f"{_whose(table, mine, len(rows))}: {reason}: "
            out += [((f"   {'' if place == 0 else '  '}", "text"), (piece, "unknown"))
                    for place, piece in enumerate(wrap(head + ", ".join(names), max(wide - 6, 20)))]
    if not picture.view["group"].rows_of(node).size:
        return [title(" Not known", "no reading has come from this node")]
    return [title(" Not known", f"{total} readings, with the reason" if total else "every reading has a value"), *out]


def _whose(table: TableView, rows: tuple[int, ...], of: int) -> str:
    if table.spec.name == "node":
        return "node"
    if len(rows) == of and of > 1:
        return f"all {of} {table.spec.title}"
    labels = ", ".join(table.labels[row] for row in rows[:MOST_LABELS])
    return labels + (f" and {len(rows) - MOST_LABELS} more" if len(rows) > MOST_LABELS else "")
