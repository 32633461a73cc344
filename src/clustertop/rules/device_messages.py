"""What alerts about a node's devices say: PCIe links, GPUs, RDMA ports. Facts of the reading only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.quantity import quantity, scaled
from clustertop.rules import power_words
from clustertop.signals import gpu, kernel_log, rdma, xid
from clustertop.signals.rdma_catalogue import NARROW
from clustertop.signals.rdma_counters import COUNTERS, spelling
from clustertop.signals.units import speed_of_generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clustertop.signals.rdma_counters import Counter as PortCounter
    from clustertop.store.view import FleetView, TableView


def members(name: str, view: FleetView, row: int) -> tuple[str, ...]:
    """Labels of the things that an alert on *row* stands for, beside itself."""
    if name == "rdma_all_ports_down":
        ports = view["port"]
        return tuple(ports.labels[port] for port in ports.rows_of(row) if ports.col("down")[port] == 1)
    if name == "gpu_persistence":
        return _awake_only_with_us(view, row)[1:]
    if name != "pcie_width":
        return ()
    table = view["pcie"]
    return tuple(table.labels[other] for other in _below(table, row) if other != row)


def _below(table: TableView, hop: int) -> list[int]:
    """Endpoints whose narrowest hop is *hop*."""
    narrow = table.col("narrow_hop_row") == hop
    short = table.col("path_width_lanes") < table.col("width_expected_lanes")
    return np.flatnonzero(narrow & short).tolist()


def _pcie_width(view: FleetView, row: int) -> str:
    table = view["pcie"]
    below = _below(table, row)
    first = row if row in below or not below else below[0]
    width, expected = table.value("path_width_lanes", first), table.value("width_expected_lanes", first)
    text = f"{table.labels[first]} is {quantity(width, 'lanes')}, expected {quantity(expected, 'lanes')}"
    hop = table.keys[row]
    text += f", at hop {hop.removeprefix('0000:')}"
    if first != row:
        text += " above it"
    lost = table.value("lost_bytes_per_second", first)
    if lost:
        text += f": {scaled(lost, 'B/s')} lost each way"
    elif lost is None:
        text += ": lost bandwidth unknown"
    if len(below) > 1:
        text += f" (and {len(below) - 1} more below that hop)"
    return text + power_words.told(view, int(table.node[row]), view.at)


def _pcie_speed(view: FleetView, row: int) -> str:
    table = view["pcie"]
    now, missing = table.value("speed_gts", row), table.value("speed_missing_gts", row)
    possible = None if now is None or missing is None else now + missing
    return f"link runs at {quantity(now, 'GT/s')}, it and its slot can do {quantity(possible, 'GT/s')}"


def _kernel_message(view: FleetView, row: int) -> str:
    table = view["pcie"]
    found = [one for name in ("kernel_messages", "kernel_messages_older")
             for one in kernel_log.listed(table.col(name)[row])]
    if not found:
        return "the kernel log speaks of it"
    gravest = max(found, key=lambda one: one.level)
    said = f"kernel log: {gravest.words}" + (f" ({gravest.fault})" if gravest.fault != "unknown" else "")
    said += f": {gravest.todo}" if gravest.todo else ""
    others = len({one.words for one in found if one.level > 0}) - 1
    return said + (f"; and {others} more" if others > 0 else "")


def _pcie_generation(view: FleetView, row: int) -> str:
    table = view["gpu"]
    now = table.value("pcie_generation", row)
    ceiling = (now or 0) + (table.value("generation_missing", row) or 0)
    return (f"PCIe Gen{now or 0:.0f} ({speed_of_generation(now or 0):g} GT/s) under load, "
            f"ceiling Gen{ceiling:.0f} ({speed_of_generation(ceiling):g} GT/s)")


def _gpu_missing(view: FleetView, row: int) -> str:
    table = view["gpu"]
    state = table.value("presence", row)
    where = table.attrs[row].get("pci") or "bus address unknown"
    if state == gpu.MISSING:
        return f"MISSING at {where}: no longer listed, {table.keys[row]}"
    why = table.reason("temperature_celsius", row) or table.reason("utilization_ratio", row)
    code = table.value("xid_worst", row)
    said = f", {xid.words(code)}" if code else ""
    return f"LOST at {where}: {why or 'no answer'}{said}, {table.keys[row]}"


def _gpu_temperature(view: FleetView, row: int) -> str:
    table = view["gpu"]
    if table.value("temperature_slowdown_celsius", row) is None:
        return (f"{quantity(table.value('temperature_celsius', row), '°C')}, "
                f"{quantity(table.value('temperature_margin_celsius', row), '°C')} from its own limit")
    return (f"{quantity(table.value('temperature_celsius', row), '°C')}, slowdown at "
            f"{quantity(table.value('temperature_slowdown_celsius', row), '°C')}")


def _gpu_memory_temperature(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"memory {quantity(table.value('memory_temperature_celsius', row), '°C')}, its limit "
            f"{quantity(table.value('memory_temperature_max_celsius', row), '°C')}")


def _gpu_slowdown(view: FleetView, row: int) -> str:
    mask = view["gpu"].value("clocks_event_reasons", row)
    return "slowed down: " + ", ".join(gpu.reason_words(mask or 0))


def _gpu_power_brake(view: FleetView, row: int) -> str:
    table = view["gpu"]
    text = f"braked by its supply: {quantity(table.value('power_watts', row), 'W')}"
    rows = power_words.feeds_of(view, int(table.node[row]))
    # Here the feeds are always told: it is they that may have asked for it.
    return text + "".join(f"; {power_words.did(view, one, view.at, 'before')}" for one in rows[:2])


def _gpu_utilization(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"utilisation {quantity(table.value('utilization_ratio', row), 'ratio')} with memory in use, "
            f"{quantity(table.value('power_watts', row), 'W')}")


def _gpu_straggler(view: FleetView, row: int) -> str:
    table = view["gpu"]
    util, under = table.value("utilization_ratio", row), table.value("utilization_below_peers_ratio", row)
    return f"utilisation {quantity(util, 'ratio')}, {(under or 0) * 100:.0f} points under the median of its node"


def _gpu_xid(view: FleetView, row: int) -> str:
    table = view["gpu"]
    code, last, count = (table.value(name, row) for name in ("xid_worst", "xid_last", "xids_total"))
    fault = xid.look_up(code or 0)
    text = xid.words(code or 0) + (f": {fault.todo}" if fault.todo else "")
    if last is not None and code is not None and last != code:
        text += f"; last was {xid.words(last)}"
    return text + (f"; {count:.0f} in all" if count is not None and count > 1 else "")


def _nvlink_down(view: FleetView, row: int) -> str:
    table = view["gpu"]
    names = ("nvlink_links", "nvlink_links_up", "nvlink_links_missing")
    known, up, missing = (table.value(name, row) for name in names)
    return f"{quantity(up, '')} of {quantity(known, '')} NVLinks up, {quantity(missing, '')} fewer than its neighbours"


def _nvlink_recoveries(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"NVLink recovers: {quantity(table.value('nvlink_recoveries_per_second', row), '/s')}, "
            f"{quantity(table.value('nvlink_recoveries_total', row), '')} in all")


def _gpu_stalled(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"busy but stalled: {quantity(table.value('utilization_ratio', row), 'ratio')} utilisation at "
            f"{quantity(table.value('power_watts', row), 'W')}, "
            f"{quantity(table.value('power_of_busy_peers_ratio', row), 'ratio')} of what its busy neighbours draw")


def _awake_only_with_us(view: FleetView, row: int) -> tuple[str, ...]:
    """Labels of the GPUs of a row's node that are without persistence mode."""
    table = view["gpu"]
    return tuple(table.labels[other] for other in table.rows_of(int(table.node[row])).tolist()
                 if table.value("persistence_mode", other) == 0)


def _gpu_persistence(view: FleetView, row: int) -> str:
    group = view["group"].row_of(int(view["gpu"].node[row]), "gpu")
    cost = None if group is None else view["group"].value("reading_seconds", group)
    off = _awake_only_with_us(view, row)
    # The line stands at the node's first GPU; where that is none of them it says which are.
    which = "" if view["gpu"].labels[row] in off else f" ({', '.join(off)})"
    return (f"persistence mode off on {len(off)} GPU{'s' if len(off) != 1 else ''}{which}; "
            f"the last reading took {quantity(cost, 's')}")


def _gpu_bar1(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"BAR1 {quantity(table.value('bar1_total_bytes', row), 'B')}, framebuffer "
            f"{quantity(table.value('memory_total_bytes', row), 'B')}: Resizable BAR is off")


def _port_counters(view: FleetView, row: int, wanted: Callable[[PortCounter], bool]) -> str:
    """The counters that are not 0, as the port's driver spells them."""
    table = view["port"]
    driver = table.attrs[row].get("driver")
    said = ", ".join(
        f"{spelling(counter.column, driver)} {value:.0f}"
        for counter in COUNTERS if wanted(counter) and (value := table.value(counter.column, row) or 0) > 0)
    return f" ({said} since boot)" if said else ""


def _hard_errors(view: FleetView, row: int) -> str:
    table = view["port"]
    minute, total = table.value("hard_errors_last_minute", row), table.value("hard_errors_total", row)
    return (f"hard errors: {quantity(minute, '')} in the last minute, {quantity(total, '')} since seen"
            + _port_counters(view, row, lambda counter: counter.cls == "hard"))


def _soft_errors(pace: str, metric: str, what: str) -> Callable[[FleetView, int], str]:
    def text(view: FleetView, row: int) -> str:
        value = view["port"].value(metric, row)
        return (what.format("?" if value is None else f"{value:.3g}")
                + _port_counters(view, row, lambda counter: counter.pace == pace))

    return text


def _port_down(view: FleetView, row: int) -> str:
    table = view["port"]
    state = table.value("link", row)
    return f"port {rdma.LINK_WORDS.get(int(state), '?')}" if state is not None else "port down"


def _port_flap(view: FleetView, row: int) -> str:
    downs = view["port"].value("downs_last_ten_minutes", row) or 0
    times = "once" if downs <= 1 else f"{downs:.0f} times"
    return f"port flaps: up again, went down {times} in the last ten minutes"


def _all_ports_down(view: FleetView, row: int) -> str:
    return f"all {view['node'].value('ports_expected', row) or 0:.0f} RDMA ports of the node are down"


def _link_rate(view: FleetView, row: int) -> str:
    table = view["port"]
    code = table.value("rate_text", row)
    said = rdma.RATE_TEXTS.get(int(code), "?") if code is not None else "?"
    expected = table.value("rate_expected_bits_per_second", row)
    return f"runs at {said}, expected {quantity(expected, 'b/s')}"


def _saturated(view: FleetView, row: int) -> str:
    table = view["port"]
    names = [metric.name for metric in table.spec.metrics
             if (metric.bits and (table.value(metric.name, row) or 0) >= metric.saturation)
             or (metric.name in NARROW and table.value(metric.name, row) == (2.0**32 - 1) * metric.scale)]
    return "saturated - true value unknown: " + (", ".join(names) or "a counter")


LINES: Mapping[str, Callable[[FleetView, int], str]] = {
    "pcie_width": _pcie_width,
    "pcie_kernel_message": _kernel_message,
    "pcie_generation": _pcie_generation,
    "pcie_speed": _pcie_speed,
    "gpu_missing": _gpu_missing,
    "gpu_temperature": _gpu_temperature,
    "gpu_memory_temperature": _gpu_memory_temperature,
    "gpu_slowdown": _gpu_slowdown,
    "gpu_power_brake": _gpu_power_brake,
    "gpu_utilization": _gpu_utilization,
    "gpu_straggler": _gpu_straggler,
    "gpu_xid": _gpu_xid,
    "gpu_nvlink_down": _nvlink_down,
    "gpu_nvlink_recoveries": _nvlink_recoveries,
    "gpu_stalled": _gpu_stalled,
    "gpu_persistence": _gpu_persistence,
    "gpu_bar1": _gpu_bar1,
    "rdma_hard_errors": _hard_errors,
    "rdma_symbol_errors": _soft_errors("hour", "symbol_errors_last_hour", "symbol errors: {} in the last hour"),
    "rdma_link_recovery": _soft_errors(
        "minute", "link_recoveries_last_minute", "link recoveries: {} in the last minute"),
    "rdma_soft_errors": _soft_errors("second", "transport_errors_per_second", "soft errors: {} per second"),
    "rdma_link_rate": _link_rate,
    "rdma_port_flap": _port_flap,
    "rdma_port_down": _port_down,
    "rdma_all_ports_down": _all_ports_down,
    "rdma_saturated": _saturated,
}
"""By rule."""
