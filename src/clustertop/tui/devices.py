"""One PCIe device in words: its link, what it should be, the hop that is narrow, and what was read around a drop."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from clustertop.clock import local_time
from clustertop.quantity import duration, quantity, scaled
from clustertop.signals import kernel_log, pcie
from clustertop.signals.units import generation, pci_key
from clustertop.tui.cells import explained, number, pairs, severity, title, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clustertop.store.drops import Trace
    from clustertop.tui.glyphs import Glyphs
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Span

AER = ("aer_correctable_per_second", "aer_nonfatal_per_second", "aer_fatal_per_second")
BEFORE_SECONDS = (240.0, 180.0, 120.0, 60.0, 30.0, 10.0)
AFTER_SECONDS = (30.0, 60.0)
"""Moments around a drop for which numbers are shown."""
_BY = {pcie.CONFIGURED: "config", pcie.PEERS: "peers", pcie.OWN: "own max"}


class Judged:
    """What the PCIe table of one picture comes to."""

    def __init__(self, picture: Picture) -> None:
        table = picture.view["pcie"]
        self.endpoint = table.col("endpoint") == 1
        path, expected = table.col("path_width_lanes"), table.col("width_expected_lanes")
        self.unknown = self.endpoint & (np.isnan(path) | np.isnan(expected))
        self.narrow = self.endpoint & (path < expected)
        slow = np.nan_to_num(table.col("speed_missing_gts")) > 0
        # A GPU's generation is judged on the GPU table, under load only.
        join = picture.atlas.pcie_gpu
        behind = np.full(len(table), np.nan)
        if len(picture.view["gpu"]) and len(join):
            behind = np.where(join >= 0, picture.view["gpu"].col("generation_missing")[join], np.nan)
        self.slow = self.endpoint & (slow | (behind > 0))
        self.lost = np.where(self.narrow, table.col("lost_bytes_per_second"), np.nan)

    @property
    def below(self) -> NDArray[np.bool_]:
        """[rows] below expected in width or in speed."""
        out: NDArray[np.bool_] = self.narrow | self.slow
        return out


def gpu_of(picture: Picture, row: int) -> int | None:
    """The device's row in the GPU table; None where it is no GPU that NVML answers for."""
    join = picture.atlas.pcie_gpu
    gpu = int(join[row]) if row < len(join) else -1
    return gpu if gpu >= 0 else None


def state(picture: Picture, row: int, glyphs: Glyphs) -> Span:
    """State of a device; where its path is narrow, that of the hop."""
    found = picture.row_state("pcie", row)
    if found == 0 and lanes(picture, row)[1] == "critical":
        found = int(picture.pcie_severity[row])
        if not found:
            # Below what is expected, and the rule has not confirmed it yet.
            return (f"{glyphs.dot} pending", "warning")
    return severity(glyphs, found)


def lanes(picture: Picture, row: int) -> Span:
    """``x8 of x16``: the narrowest hop of the path, of what it should be."""
    table = picture.view["pcie"]
    path, expected = table.value("path_width_lanes", row), table.value("width_expected_lanes", row)
    if path is None:
        return value(table, "path_width_lanes", row)
    if table.value("endpoint", row) != 1:
        return (quantity(path, "lanes"), "muted")
    if expected is None:
        return (f"{quantity(path, 'lanes')} of ?", "unknown")
    return (f"{quantity(path, 'lanes')} of {quantity(expected, 'lanes')}", "critical" if path < expected else "ok")


def generations(picture: Picture, row: int) -> tuple[int | None, int | None, str]:
    """(generation now, highest that device and slot allow, ``idle``, ``degraded`` or nothing).

    A GPU's link sinks when idle to save power: below the ceiling it is degraded only when judged, that is under load.
    """
    table = picture.view["pcie"]
    gpu = gpu_of(picture, row)
    if gpu is not None:
        gpus = picture.view["gpu"]
        now, missing = gpus.value("pcie_generation", gpu), gpus.value("generation_missing", gpu)
        known = [most for name in ("pcie_generation_max", "pcie_generation_device_max")
                 if (most := gpus.value(name, gpu)) is not None]
        if now is not None:
            ceiling = int(min(known)) if known else None
            below = ceiling is not None and now < ceiling
            return int(now), ceiling, "" if not below else "degraded" if missing else "idle"
    speed, most, missing = (table.value(name, row) for name in ("speed_gts", "speed_max_gts", "speed_missing_gts"))
    ceiling = None
    if speed is not None and missing is not None:
        ceiling = generation(speed + missing) or None
    elif most is not None:
        ceiling = generation(most) or None
    return generation(speed) or None if speed is not None else None, ceiling, "degraded" if missing else ""


def link(picture: Picture, row: int) -> Span:
    """``G1/5 x16/16``: generation and width, each now and at most; never one without the other."""
    table = picture.view["pcie"]
    now, ceiling, mode = generations(picture, row)
    width, widest = table.value("width_lanes", row), table.value("width_max_lanes", row)
    if now is None and width is None:
        return value(table, "width_lanes", row)
    words = (f"G{now or '?'}/{ceiling or '?'} x{'?' if width is None else f'{width:.0f}'}"
             f"/{'?' if widest is None else f'{widest:.0f}'}")
    if table.level[row]:
        return (words, "stale")
    expected = table.value("width_expected_lanes", row)
    if width is not None and expected is not None and width < expected:
        return (words, "critical")
    if now is None or width is None:
        return (words, "unknown")
    return (words, "warning" if mode == "degraded" else "muted" if mode == "idle" else "text")


def gpu_link(picture: Picture, gpu: int) -> Span:
    """:func:`link` of a row of the GPU table."""
    join, table = picture.atlas.gpu_pcie, picture.view["gpu"]
    row = int(join[gpu]) if gpu < len(join) else -1
    if row >= 0:
        return link(picture, row)
    if table.value("pcie_width_lanes", gpu) is None:
        return value(table, "pcie_width_lanes", gpu)
    now, most, width, widest = ("?" if (one := table.value(name, gpu)) is None else f"{one:.0f}" for name in (
        "pcie_generation", "pcie_generation_max", "pcie_width_lanes", "pcie_width_max_lanes"))
    narrow = (table.value("pcie_width_lanes", gpu) or 0) < (table.value("pcie_width_max_lanes", gpu) or 0)
    return (f"G{now}/{most} x{width}/{widest}", "critical" if narrow else "text")


def note(picture: Picture, row: int) -> Span:
    """Where the path is narrow; else whether the link idles or is degraded."""
    table = picture.view["pcie"]
    path, expected = table.value("path_width_lanes", row), table.value("width_expected_lanes", row)
    if table.value("endpoint", row) != 1:
        return ("", "muted")
    if path is None or expected is None or path >= expected:
        mode = generations(picture, row)[2]
        return {"idle": ("idle link", "muted"), "degraded": ("degraded", "warning")}.get(mode, ("", "muted"))
    hop = table.value("narrow_hop_row", row)
    if hop is None:
        return ("?", "unknown")
    if int(hop) == row:
        return ("its own link", "warning")
    return (f"at {table.keys[int(hop)].removeprefix('0000:')}", "warning")


def expected_by(picture: Picture, row: int) -> Span:
    """Where the expected width comes from."""
    by = picture.view["pcie"].value("width_expected_by", row)
    return ("", "muted") if by is None else (_BY.get(int(by), "?"), "muted")


def lost(picture: Picture, row: int) -> Span:
    """Bandwidth that the missing lanes cost, each way."""
    table = picture.view["pcie"]
    if table.value("endpoint", row) != 1:
        return ("", "muted")
    amount = table.value("lost_bytes_per_second", row)
    if amount is None:
        return value(table, "lost_bytes_per_second", row)
    return (scaled(amount, "B/s"), "critical") if amount else ("0", "muted")


def aer_rates(picture: Picture) -> NDArray[np.float64]:
    """[rows] AER errors per second of all kinds that the device counts; NaN where it counts none."""
    table = picture.view["pcie"]
    columns = np.stack([table.col(name) for name in AER])
    out: NDArray[np.float64] = np.where(np.isnan(columns).all(axis=0), np.nan, np.nansum(columns, axis=0))
    return out


def aer(picture: Picture, row: int) -> Span:
    """AER errors per second of all kinds."""
    table = picture.view["pcie"]
    rates = [rate for name in AER if (rate := table.value(name, row)) is not None]
    if not rates:
        return value(table, AER[0], row)
    style = "muted" if not sum(rates) else "critical" if table.value(AER[2], row) else "warning"
    return number(sum(rates), "/s", style if not table.level[row] else "stale")


def replay_rates(picture: Picture) -> NDArray[np.float64]:
    """[rows] NVML's PCIe replays per second; NaN for what is no GPU."""
    join, gpus = picture.atlas.pcie_gpu, picture.view["gpu"]
    if not len(gpus) or not len(join):
        return np.full(len(picture.view["pcie"]), np.nan)
    return np.where(join >= 0, gpus.col("pcie_replays_per_second")[join], np.nan)


def replays(picture: Picture, row: int) -> Span:
    """NVML's PCIe replays per second; only GPUs tell."""
    gpu = gpu_of(picture, row)
    if gpu is None:
        return ("", "muted")
    rate = picture.view["gpu"].value("pcie_replays_per_second", gpu)
    return value(picture.view["gpu"], "pcie_replays_per_second", gpu, "warning" if rate else "muted")


def dropped(picture: Picture, row: int) -> Span:
    """How long ago the path became narrower; empty where no drop was seen."""
    ago = picture.view["pcie"].value("width_drop_seconds", row)
    return ("", "muted") if ago is None else (f"{duration(ago)} ago", "warning")


def model(picture: Picture, row: int) -> Span:
    """The device's model, as NVML or sysfs names it."""
    attrs = picture.view["pcie"].attrs[row]
    gpu = gpu_of(picture, row)
    if gpu is not None and picture.view["gpu"].attrs[gpu].get("name"):
        return (str(picture.view["gpu"].attrs[gpu]["name"]), "muted")
    return (" ".join(str(attrs[key]) for key in ("driver", "vendor", "device") if attrs.get(key)), "muted")


def kind_word(picture: Picture, row: int) -> str:
    """GPU, NIC, NVMe, bridge or other."""
    word = picture.atlas.pcie_kind[row]
    return {"nic": "NIC", "nvme": "NVMe", "gpu": "GPU"}.get(word, word)


# -- the detail of one device ----------------------------------------------------------------------------------------


def device_lines(picture: Picture, row: int, glyphs: Glyphs, wide: int) -> list[Line]:
    """Everything that is known of one device; a drop of its width first."""
    table, attrs = picture.view["pcie"], picture.view["pcie"].attrs[row]
    numa = attrs.get("numa")
    where = f"  NUMA node {numa}" if isinstance(numa, int) and numa >= 0 else ""
    out: list[Line] = [title(f" {picture.atlas.names[table.node[row]]} {table.labels[row]}",
                             f"{kind_word(picture, row)}  {model(picture, row)[0]}{where}")]
    out += pairs(_facts(picture, row), wide)
    out += _path(picture, row, wide)
    out += _drop(picture, row, glyphs, wide)
    out += pairs(_errors(picture, row), wide)
    return out + kernel_lines(picture, row, wide)


def kernel_lines(picture: Picture, row: int, wide: int) -> list[Line]:
    """What the kernel's log said of the device in the last hour, gravest first, with what to look at."""
    table = picture.view["pcie"]
    source = picture.view.facts[int(table.node[row])].get("kernel_log")
    total, age = table.value("kernel_messages_total", row), table.value("kernel_message_age_seconds", row)
    if total is None:
        why = source if isinstance(source, str) else table.reason("kernel_messages_total", row)
        return [((" Kernel log", "title"), (f"  ? {why}", "unknown"))]
    found = [one for name in ("kernel_messages", "kernel_messages_older")
             for one in kernel_log.listed(table.col(name)[row])]
    if not found:
        if total:
            words = f"nothing in the last hour; {total:.0f} lines since the probe started"
            words += f", the last {duration(age)} ago" if age is not None else ""
        else:
            words = "nothing about it since the probe started"
        return [((" Kernel log", "title"), (f"  {words}", "muted"))]
    head = f"{total:.0f} lines since the probe started" + (f", the last {duration(age)} ago" if age is not None else "")
    out: list[Line] = [title(" Kernel log", head)]
    for one in sorted(found, key=lambda one: -one.level):
        often = f"{one.count} times" if one.count > 1 else "once" if one.count else "?"
        out.append(((f"   {often:<10}", "text"), (one.words, ("muted", "info", "warning", "critical")[one.level]),
                    (f"  usually {one.fault}" if one.fault != "unknown" else "", "muted")))
        out += [((f"             {piece}", "muted"),) for piece in (one.todo, one.text) if piece and one.level]
    return out


def _facts(picture: Picture, row: int) -> list[tuple[str, Span]]:
    table = picture.view["pcie"]
    now, ceiling, mode = generations(picture, row)
    words = {"idle": "idle link: it sinks to save power, and is judged under load only",
             "degraded": "degraded: below what device and slot allow"}.get(mode, "")
    speed: Span = explained(table, "speed_gts", row) if now is None else (
        f"Gen{now} of {ceiling or '? (maximum not told)'}{f' ({words})' if words else ''}",
        "warning" if mode == "degraded" else "muted" if mode == "idle" else "text")
    out = [("link", link(picture, row)), ("speed", speed)]
    out += [(name, explained(table, column, row)) for name, column in (("width", "width_lanes"),
            ("at most", "width_max_lanes")) if table.value(column, row) is None]
    if table.value("endpoint", row) != 1:
        return out
    by = table.value("width_expected_by", row)
    source = {pcie.CONFIGURED: "as configured", pcie.PEERS: "as most of its model have",
              pcie.OWN: "its own maximum"}.get(int(by), "") if by is not None else ""
    expected = explained(table, "width_expected_lanes", row)
    out.append(("expected", (f"{expected[0]}{f', {source}' if source else ''}", expected[1])))
    if lanes(picture, row)[1] == "critical":
        out.append(("narrow", note(picture, row)))
    out.append(("lost each way", lost(picture, row) if table.value("lost_bytes_per_second", row) is not None
                else explained(table, "lost_bytes_per_second", row)))
    return out


def _path(picture: Picture, row: int, wide: int) -> list[Line]:
    """The hops from the device to the root port; where the narrow one is."""
    table = picture.view["pcie"]
    lines: list[list[Span]] = [[("   path ", "muted")]]
    used = 8
    hops = table.attrs[row].get("path")
    mine = {table.keys[other]: other for other in table.rows_of(int(table.node[row])).tolist()}
    narrow, short = table.value("narrow_hop_row", row), lanes(picture, row)[1] == "critical"
    for place, address in enumerate([table.keys[row], *(hops if isinstance(hops, list) else [])]):
        other = mine.get(pci_key(address) or address)
        words = str(address).removeprefix("0000:") + (" ?" if other is None else f" {link(picture, other)[0]}")
        style = "unknown" if other is None else "critical" if short and narrow == other else "text"
        if place and used + len(words) + 3 > wide:
            lines.append([("       ", "text")])
            used = 7
        lines[-1] += [*([(" > ", "muted")] if place else []), (words, style)]
        used += len(words) + 3
    if not isinstance(hops, list):
        lines[-1].append(("  ? (path unknown)", "unknown"))
    elif not hops:
        lines[-1].append(("  no bridge above it", "muted"))
    return [tuple(line) for line in lines]


def _errors(picture: Picture, row: int) -> list[tuple[str, Span]]:
    table = picture.view["pcie"]
    out: list[tuple[str, Span]] = []
    for name, column in (("AER correctable", "aer_correctable"), ("non-fatal", "aer_nonfatal"),
                         ("fatal", "aer_fatal")):
        total, rate = explained(table, f"{column}_total", row), table.value(f"{column}_per_second", row)
        out.append((name, (f"{total[0]}, {quantity(rate, '/s')}" if rate else total[0],
                           "warning" if rate else total[1])))
    gpu = gpu_of(picture, row)
    if gpu is not None:
        total = explained(picture.view["gpu"], "pcie_replays_total", gpu)
        rate = picture.view["gpu"].value("pcie_replays_per_second", gpu)
        out.append(("replays", (f"{total[0]}, {quantity(rate, '/s')}" if rate else total[0],
                                "warning" if rate else total[1])))
    return out


def _drop(picture: Picture, row: int, glyphs: Glyphs, wide: int) -> list[Line]:
    """When the width dropped, and what was read around that."""
    table = picture.view["pcie"]
    ago, before = table.value("width_drop_seconds", row), table.value("width_before_lanes", row)
    if table.value("endpoint", row) != 1:
        return []
    if ago is None or before is None:
        if lanes(picture, row)[1] != "critical":
            return []
        return [((" Width drop", "title"), ("  none was seen: it was narrow when first read; nothing is known of the "
                                            "minutes before", "unknown"))]
    head: Line = ((" Width drop", "title"), (f"  {quantity(before, 'lanes')} to "
                  f"{quantity(table.value('path_width_lanes', row), 'lanes')}", "critical"),
                  (f"  at {local_time(picture.view.wall - ago)}, {duration(ago)} ago", "text"))
    trace = picture.view.drops.trace(table, row)
    if trace is None:
        return [head, (("   what was read around it is no longer kept", "unknown"),)]
    return [head, *_trace(trace, glyphs, wide)]


def _trace(trace: Trace, glyphs: Glyphs, wide: int) -> list[Line]:
    known = trace.seconds[~np.isnan(trace.seconds)]
    moments = [-seconds for seconds in BEFORE_SECONDS] + [0.0] + list(AFTER_SECONDS)
    if wide < 100:
        moments = [moment for moment in moments if moment not in {-240.0, -180.0}]
    cell = 8
    head: list[Span] = [(f"   {trace.whose or 'no GPU on this node':<19}", "muted")]
    for moment in moments:
        text = "drop" if not moment else f"{'-' if moment < 0 else '+'}{duration(abs(moment))}"
        head.append((f"{text:>{cell}}", "critical" if not moment else "head"))
    out: list[Line] = [tuple(head)]
    curve = max(min(wide - 22 - cell * len(moments) - 2, 60), 0)
    if curve < 12:
        curve = 0
    else:
        drop = _place(trace.seconds, curve)
        if drop is not None:
            out[0] = (*out[0], ("  " + " " * drop, "text"), ("v", "critical"))
    for name, values, unit, low, high in (
            ("temperature", trace.temperature_celsius, "°C", 20.0, 95.0),
            ("power", trace.power_watts, "W", 0.0, _most(trace.power_watts)),
            ("AER errors on path", trace.aer_per_second, "/s", 0.0, _most(trace.aer_per_second))):
        line: list[Span] = [(f"   {name:<19}", "muted")]
        for moment in moments:
            text = _at(trace, values, moment, unit, len(known) > 0)
            line.append((f"{glyphs.plain(text):>{cell}}", "unknown" if text == "?" else
                         "muted" if text in {"", "0/s"} else "title" if not moment else "text"))
        if curve:
            line.append(("  " + glyphs.spark(_buckets(values, curve * (1 if glyphs.ascii else 2)), curve, low, high),
                         "accent"))
        out.append(tuple(line))
    if not trace.complete:
        out.append((("   the minute after the drop is still to come", "muted"),))
    return out


def _most(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return max(float(known.max()) if len(known) else 0.0, 1.0)


def _at(trace: Trace, values: NDArray[np.float64], moment: float, unit: str, any_known: bool) -> str:
    """The newest sample at or before *moment*; empty where none was taken, ``?`` where it was unknown."""
    if not any_known:
        return ""
    earlier = np.flatnonzero(trace.seconds <= moment)
    # Two samples are two seconds apart: what is much older was not taken then, or is still to come.
    if not len(earlier) or moment - trace.seconds[earlier[-1]] > 6.0:
        return ""
    amount = float(values[earlier[-1]])
    return "?" if amount != amount else quantity(amount, unit)


def _buckets(values: NDArray[np.float64], count: int) -> Sequence[float]:
    """*values* as *count* of them, the greatest of each stretch; unknown stays unknown."""
    edges = np.linspace(0, len(values), count + 1).astype(int)
    out = []
    for left, right in pairwise(edges.tolist()):
        part = values[left:max(right, left + 1)]
        known = part[~np.isnan(part)]
        out.append(float(known.max()) if len(known) else float("nan"))
    return out


def _place(seconds: NDArray[np.float64], cells: int) -> int | None:
    """In which of *cells* the drop stands; None where no sample is that late."""
    later = np.flatnonzero(seconds >= 0)
    return None if not len(later) else min(int(later[0] * cells / len(seconds)), cells - 1)
