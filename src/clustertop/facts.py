"""What a screening pass read that no rule judges: the slowest name lookup, monitors, memory that nobody holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import reason
from clustertop.quantity import duration, quantity
from clustertop.signals import screen

if TYPE_CHECKING:
    from clustertop.store.view import FleetView, TableView

_READ = (("screen", "name_lookup", "lookup of the own host name"), ("screen", "somaxconn", "net.core.somaxconn"),
         ("screen", "slow_start_after_idle", "net.ipv4.tcp_slow_start_after_idle"),
         ("screen", "monitors", "other monitors"), ("gpu", "bar1_total_bytes", "BAR1 size"),
         ("gpu", "memory_unclaimed_bytes", "memory held by no process"))
"""Table, column, and what it is called."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one moment; None is unknown."""

    resolves: int
    """Nodes that looked up their own name."""
    asked: int
    """Nodes that tried."""
    slowest_seconds: float | None
    slowest: str
    """The node of it."""
    monitors: tuple[tuple[str, int], ...]
    """Known monitors beside this one, and on how many nodes each was seen."""
    unclaimed_bytes: float | None
    """Memory that no listed process holds, median of the GPUs."""
    most_unclaimed_bytes: float | None
    most_unclaimed: str
    """The GPU of it, with its node."""
    unread: tuple[str, ...]
    """What could not be read, on how many things, and why."""


def facts(view: FleetView) -> Facts:
    """Return the facts of *view*."""
    table, gpus = view["screen"], view["gpu"]
    state, seconds = table.col("name_lookup"), table.col("name_lookup_seconds")
    asked = ~np.isnan(state)
    slow = _most(table, "name_lookup_seconds")
    seen = Counter(name for row, attrs in enumerate(table.attrs) if table.value("monitors", row) is not None
                   for name in screen.monitors(attrs))
    held = gpus.col("memory_unclaimed_bytes")
    most = _most(gpus, "memory_unclaimed_bytes")
    return Facts(
        int((state == screen.RESOLVES).sum()), int(asked.sum()), None if slow is None else float(seconds[slow]),
        "" if slow is None else view.nodes[int(table.node[slow])].name, tuple(sorted(seen.items())),
        None if most is None else float(np.nanmedian(held)), None if most is None else float(held[most]),
        "" if most is None else f"{view.nodes[int(gpus.node[most])].name} {gpus.labels[most]}", tuple(_unread(view)))


def _most(table: TableView, name: str) -> int | None:
    values = table.col(name)
    return int(np.nanargmax(values)) if (~np.isnan(values)).any() else None


def _unread(view: FleetView) -> list[str]:
    out = []
    silent = len(view.nodes) - len(set(view["screen"].node.tolist()))
    if silent:
        out.append(f"own name, sysctls and other monitors: {silent} of {len(view.nodes)} nodes (no such reading)")
    for name, column, title in _READ:
        table = view[name]
        unknown = np.isnan(table.col(column))
        if unknown.any():
            codes, counts = np.unique(table.why_of(column)[unknown], return_counts=True)
            why = reason(int(codes[counts.argmax()])) or "not read yet"
            out.append(f"{title}: {int(unknown.sum())} of {len(table)} ({why})")
    places = [row for row, endpoint in enumerate(view["pcie"].col("endpoint").tolist()) if endpoint == 1]
    lacking = sum(not isinstance(view["pcie"].attrs[row].get("numa"), int) for row in places)
    if lacking:
        out.append(f"NUMA node of GPUs, NICs and NVMe: {lacking} of {len(places)} (not provided)")
    return out


def fact_lines(told: Facts) -> list[str]:
    """The facts as text, one a line; what is unknown has none here."""
    lines = []
    if told.asked:
        slow = ""
        if told.slowest_seconds is not None:
            slow = f", slowest {duration(told.slowest_seconds)} ({told.slowest})" if told.slowest_seconds else \
                ", each in less than 0.1 s"
        lines.append(f"own host name: resolves on {told.resolves} of {told.asked} nodes{slow}")
    if told.monitors:
        lines.append("monitors beside this one: " + ", ".join(
            f"{name} on {count} node{'s' if count > 1 else ''}" for name, count in told.monitors))
    if told.most_unclaimed_bytes is not None:
        lines.append(f"memory held by no process: median {quantity(told.unclaimed_bytes, 'B')} a GPU, most "
                     f"{quantity(told.most_unclaimed_bytes, 'B')} ({told.most_unclaimed})")
    return lines


def fact_object(told: Facts) -> dict[str, object]:
    """The facts for JSON."""
    return {
        "own_name": {"resolves": told.resolves, "asked": told.asked, "slowest_seconds": told.slowest_seconds,
                     "slowest_node": told.slowest or None},
        "monitors": dict(told.monitors),
        "memory_held_by_no_process": {"median_bytes": told.unclaimed_bytes, "most_bytes": told.most_unclaimed_bytes,
                                      "most_on": told.most_unclaimed or None}}
