"""What the fleet map can show: each metric's values, levels and letters, for all nodes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals import gpu as gpus
from clustertop.signals import rdma
from clustertop.store.view import FRESH, STALE
from clustertop.tui.theme import STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from clustertop.store.view import TableView
    from clustertop.tui.picture import Picture

NOTHING, VALUE, UNKNOWN, OLD, LOST, UNJUDGED, RELEASED = 0, 1, 2, 3, 4, 5, 6
"""What stands in a cell."""
STATES = ("t:ok", "t:info", "t:warning", "t:critical")


@dataclass(frozen=True, eq=False, slots=True)
class Heat:
    """One metric over the fleet, [nodes, slots]."""

    value: NDArray[np.float64]
    code: NDArray[np.uint8]
    level: NDArray[np.int8]
    late: NDArray[np.bool_]
    """Drawn dim: the reading is late."""


@dataclass(frozen=True, slots=True)
class HeatMetric:
    """A metric of the fleet map."""

    name: str
    title: str
    fill: Callable[[Picture], Heat]
    wide: Callable[[float], str]
    """At most three characters."""
    narrow: Callable[[float], str]
    """One character."""
    styles: tuple[str, ...]
    legend: str
    """What the one character of the dense map means."""
    scale: tuple[str, ...]
    """Words for the ends of the ramp, or for its states."""
    things: str = "GPU"


def _gather(table: TableView, slots: NDArray[np.intp], column: NDArray[np.float64]) -> tuple[
    NDArray[np.float64], NDArray[np.uint8], NDArray[np.bool_]
]:
    """Values by slot, what stands there, and whether it is late."""
    there = slots >= 0
    if not len(table):
        return np.full(slots.shape, np.nan), np.zeros(slots.shape, np.uint8), np.zeros(slots.shape, np.bool_)
    value = np.where(there, column[slots], np.nan)
    code = np.where(there, np.where(np.isnan(value), UNKNOWN, VALUE), NOTHING).astype(np.uint8)
    age = table.level[slots]
    code[there & np.isnan(value) & (age == STALE)] = OLD
    return value, code, there & (age != FRESH)


def _gpu(picture: Picture, column: NDArray[np.float64]) -> tuple[
    NDArray[np.float64], NDArray[np.uint8], NDArray[np.bool_]
]:
    table, slots = picture.view["gpu"], picture.atlas.gpus
    value, code, late = _gather(table, slots, column)
    if len(table):
        gone = (table.col("presence") > gpus.PRESENT) | ~table.present
        code[(slots >= 0) & gone[slots]] = LOST
        code[(slots >= 0) & (table.why_of("presence") == Why.RELEASED)[slots]] = RELEASED
    return value, code, late


def _steps(part: NDArray[np.float64]) -> NDArray[np.int8]:
    return np.clip(np.nan_to_num(part) * STEPS, 0, STEPS - 1).astype(np.int8)


def _ratio(column: str, of: str = "") -> Callable[[Picture], Heat]:
    def fill(picture: Picture) -> Heat:
        table = picture.view["gpu"]
        values = table.col(column) / table.col(of) if of else table.col(column)
        value, code, late = _gpu(picture, values)
        return Heat(value, code, _steps(value), late)

    return fill


def _power(picture: Picture) -> Heat:
    value, code, late = _gpu(picture, picture.view["gpu"].col("power_watts"))
    part, _, _ = _gather(picture.view["gpu"], picture.atlas.gpus, picture.view["gpu"].col("power_limit_watts"))
    return Heat(value, code, _steps(value / np.where(np.isnan(part), 700.0, part)), late)


def _temperature(picture: Picture) -> Heat:
    table = picture.view["gpu"]
    value, code, late = _gpu(picture, table.col("temperature_celsius"))
    limit, _, _ = _gather(table, picture.atlas.gpus, table.col("temperature_slowdown_celsius"))
    limit = np.where(np.isnan(limit), 90.0, limit)
    return Heat(value, code, _steps((value - 30.0) / (limit - 30.0)), late)


def _width(picture: Picture) -> Heat:
    """The narrowest hop of each GPU's path; NVML's own width where the node shows no PCIe tree."""
    table, pcie, join = picture.view["gpu"], picture.view["pcie"], picture.atlas.gpu_pcie
    own = table.col("pcie_width_lanes")
    bad = np.full(len(table), np.nan)
    if len(pcie) and len(join):
        known = join >= 0
        path = np.where(known, pcie.col("path_width_lanes")[join], np.nan)
        expected = np.where(known, pcie.col("width_expected_lanes")[join], np.nan)
        own = np.where(np.isnan(path), own, path)
        bad = np.where(np.isnan(path) | np.isnan(expected), np.nan, np.where(path < expected, 3.0, 0.0))
    value, code, late = _gpu(picture, own)
    judged, _, _ = _gather(table, picture.atlas.gpus, bad)
    return Heat(value, code, np.where(np.isnan(judged), 1, judged).astype(np.int8), late)


def _errors(picture: Picture) -> Heat:
    table = picture.view["port"]
    hard, soft = table.col("hard_errors_last_minute"), table.col("soft_errors_last_minute")
    total = np.where(np.isnan(hard) & np.isnan(soft), np.nan, np.nan_to_num(hard) + np.nan_to_num(soft))
    value, code, late = _gather(table, picture.atlas.ports, total)
    level = np.where(value > 0, 2, 0).astype(np.int8)
    if len(table):
        slots = picture.atlas.ports
        level[(slots >= 0) & (table.col("flap")[slots] == 1)] = 2
        level[(slots >= 0) & (hard[slots] > 0)] = 3
        # A port that was never up is not judged: it is not drawn as one that is fine.
        code[(slots >= 0) & (table.col("never_used")[slots] == 1)] = UNJUDGED
        gone = (table.col("down") == 1) | (table.col("link") == rdma.ABSENT)
        code[(slots >= 0) & gone[slots]] = LOST
    return Heat(value, code, level, late)


def _severity(picture: Picture) -> Heat:
    table, severity = picture.view["gpu"], picture.gpu_severity.astype(np.float64)
    # A GPU of which nothing is known carries no verdict.
    known = ~np.isnan(table.col("presence")) & ~((table.level == STALE) & (severity == 0))
    value, code, late = _gpu(picture, np.where(known, severity, np.nan))
    return Heat(value, code, np.nan_to_num(value).astype(np.int8), late)


def _tens(value: float) -> str:
    return str(min(9, int(value * 10 + 1e-9)))


def _count(value: float) -> str:
    return f"{value:.0f}" if value < 999.5 else f"{min(value / 1000, 99):.0f}k"


_LOAD = tuple(f"load{step}" for step in range(STEPS))
_HOT = tuple(f"hot{step}" for step in range(STEPS))

HEATS: tuple[HeatMetric, ...] = (
    HeatMetric("utilisation", "GPU utilisation, %", _ratio("utilization_ratio"), lambda value: f"{value * 100:.0f}",
               _tens, _LOAD, "tens of %", ("0", "100 %")),
    HeatMetric("temperature", "GPU temperature, °C", _temperature, lambda value: f"{value:.0f}",
               lambda value: str(min(9, int(value / 10))), _HOT, "tens of °C", ("30 °C", "slowdown limit")),
    HeatMetric("power", "GPU power, W", _power, lambda value: f"{min(value, 999):.0f}",
               lambda value: str(min(9, int(value / 100))), _LOAD, "hundreds of W", ("0", "limit")),
    HeatMetric("memory", "GPU memory used, %", _ratio("memory_used_bytes", "memory_total_bytes"),
               lambda value: f"{value * 100:.0f}", _tens, _LOAD, "tens of %", ("0", "100 %")),
    HeatMetric("pcie width", "PCIe lanes on the path to the GPU", _width, lambda value: f"x{value:.0f}",
               lambda value: {16: "=", 12: "c"}.get(int(value), f"{value:.0f}"[:1]), STATES, "= is x16, else lanes",
               ("as expected", "not judged", "", "below expected")),
    HeatMetric("rdma errors", "RDMA errors in the last minute, by port", _errors, _count,
               lambda value: "0" if value == 0 else _count(value) if value < 10 else "+", STATES,
               "errors, + is 10 or more", ("none", "", "soft", "hard"), things="port"),
    HeatMetric("severity", "worst alert of each GPU", _severity, lambda value: ("ok", "inf", "wrn", "CRT")[int(value)],
               lambda value: ".iwC"[int(value)], STATES, ". ok  i info  w warning  C critical",
               ("ok", "info", "warning", "critical")),
)
