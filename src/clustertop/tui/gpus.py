"""One GPU in words: load, heat, memory errors, links, modes, and the driver's fault reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.quantity import duration, quantity
from clustertop.signals import gpu, xid
from clustertop.tui import devices
from clustertop.tui.cells import explained, pairs, severity, title, wrap

if TYPE_CHECKING:
    from clustertop.tui.glyphs import Glyphs
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Span

_CURVES = (("util", "utilization_ratio"), ("power", "power_watts"), ("temp", "temperature_celsius"))
_FAULTS = {"hardware": "critical", "power": "critical", "fabric": "warning", "driver": "warning"}


def state(picture: Picture, row: int, glyphs: Glyphs) -> Span:
    """Whether the GPU answers, and how grave what fires is."""
    table = picture.view["gpu"]
    presence = table.value("presence", row)
    if presence in {gpu.LOST, gpu.MISSING} or not table.present[row]:
        return (f"{glyphs.lost} {'LOST' if presence == gpu.LOST else 'MISSING'}", "critical")
    if presence is None:
        stale = table.reason("presence", row) == "stale"
        return (f"{glyphs.stale} stale", "stale") if stale else (f"{glyphs.unknown} unknown", "unknown")
    return severity(glyphs, int(picture.gpu_severity[row]))


def gpu_lines(picture: Picture, row: int, glyphs: Glyphs, wide: int) -> list[Line]:
    """Everything that is known of one GPU, and why what is not known is not."""
    table, node = picture.view["gpu"], int(picture.view["gpu"].node[row])
    attrs = table.attrs[row]
    where = "  ".join(str(text) for text in (attrs.get("name"), attrs.get("pci"), table.keys[row],
                                             f"serial {attrs['serial']}" if attrs.get("serial") else "") if text)
    out: list[Line] = [((f" {picture.atlas.names[node]} {table.labels[row]}  ", "title"),
                        state(picture, row, glyphs), (f"  {where}", "muted"))]
    out += _alerts(picture, row, node, glyphs)
    for section in (_load(picture, row, glyphs, wide), _heat(picture, row, wide), _xids(picture, row, node, wide),
                    _log(picture, row, wide), _memory(picture, row), _nvlink(picture, row, wide),
                    _pcie(picture, row, wide), _modes(picture, row, wide)):
        out += [(), *section] if section else []
    return out


def _alerts(picture: Picture, row: int, node: int, glyphs: Glyphs) -> list[Line]:
    table, join = picture.view["gpu"], picture.atlas.gpu_pcie
    keys = {("gpu", table.keys[row])}
    if row < len(join) and join[row] >= 0:
        device = int(join[row])
        keys.add(("pcie", picture.view["pcie"].keys[device]))
        hop = picture.view["pcie"].value("narrow_hop_row", device)
        if hop is not None:
            keys.add(("pcie", picture.view["pcie"].keys[int(hop)]))
    out: list[Line] = []
    for alert in picture.alerts_of.get(node, []):
        if (alert.thing.table, alert.thing.key) in keys:
            text, style = severity(glyphs, alert.severity)
            out.append(((f" {text:<7} ", style), (f"{duration(picture.view.at - alert.since):>7}  ", "muted"),
                        (alert.message, "text")))
    return out


def _load(picture: Picture, row: int, glyphs: Glyphs, wide: int) -> list[Line]:
    table = picture.view["gpu"]

    def of(name: str, most: str) -> Span:
        now, top = explained(table, name, row), table.value(most, row)
        return (f"{now[0]} of {quantity(top, table.spec.metric(most).unit) if top is not None else '?'}", now[1])

    mask = table.value("clocks_event_reasons", row)
    reasons: Span = explained(table, "clocks_event_reasons", row)
    if mask is not None:
        words = gpu.reason_words(mask)
        alarm = any(int(mask) & bit for bit, _, alarming in gpu.REASON_BITS if alarming)
        reasons = (", ".join(words) or "none: nothing holds the clocks down", "warning" if alarm else "text")
    out = [title(" Load"), *pairs([
        ("utilisation", explained(table, "utilization_ratio", row)),
        ("memory access", explained(table, "memory_utilization_ratio", row)),
        ("memory used", of("memory_used_bytes", "memory_total_bytes")),
        ("power", of("power_watts", "power_limit_watts")),
        ("at the moment", explained(table, "power_instant_watts", row)),
        ("SM clock", of("sm_clock_hertz", "sm_clock_max_hertz")),
        ("memory clock", explained(table, "memory_clock_hertz", row)),
        ("performance state", _state(picture, row)),
        ("fan", explained(table, "fan_ratio", row)),
        ("clocks event reasons", reasons)], wide)]
    peers = table.value("power_of_busy_peers_ratio", row)
    if table.value("busy_but_stalled", row) == 1 and peers is not None:
        out.append(((f"   busy but stalled: it draws {quantity(peers, 'ratio')} of what its busy neighbours draw",
                     "warning"),))
    limit = table.value("power_limit_watts", row) or 700.0
    curve = min(wide - 12, 75)
    if curve >= 20:
        per_cell = 1 if glyphs.ascii else 2
        for name, column in _CURVES:
            series = picture.view.history.series("gpu", column, row)
            low, high = {"power": (0.0, limit), "temp": (20.0, 95.0)}.get(name, (0.0, 1.0))
            out.append(((f"   {name:<6}", "muted"), (glyphs.spark(series.tolist(), curve, low, high), "accent")))
        out.append(((f"   curves: the last {duration(min(curve * per_cell, 150) * 2.0)}", "muted"),))
    return out


def _state(picture: Picture, row: int) -> Span:
    text, style = explained(picture.view["gpu"], "performance_state", row)
    return (text if text.startswith("?") else f"P{text}", style)


def _heat(picture: Picture, row: int, wide: int) -> list[Line]:
    table = picture.view["gpu"]
    return [title(" Temperature"), *pairs([(name, explained(table, column, row)) for name, column in (
        ("core", "temperature_celsius"), ("slowdown at", "temperature_slowdown_celsius"),
        ("margin", "temperature_margin_celsius"), ("shutdown at", "temperature_shutdown_celsius"),
        ("memory", "memory_temperature_celsius"), ("its limit", "memory_temperature_max_celsius"))], wide)]


def _xids(picture: Picture, row: int, node: int, wide: int) -> list[Line]:
    """The driver's fault reports of the last hour, gravest first, with whose fault each usually is."""
    table = picture.view["gpu"]
    source = picture.view.facts[node].get("xid")
    note = "where they are read from is not told" if not source else (
        f"read from {source}" if source != "not readable" else "")
    out: list[Line] = [title(" Xids of the last hour", note)]
    number = table.value("xid_codes", row)
    if number is None:
        reason = table.reason("xid_codes", row)
        why = "neither NVML's events nor the kernel log can be read" if reason == "not readable" else reason
        return [*out, ((f"   ? not known: {why}", "unknown"),)]
    found = xid.listed(number)
    if not found:
        return [*out, (("   none since the probe started", "text"),)]
    for code, count in sorted(found, key=lambda pair: -xid.look_up(pair[0]).level):
        fault = xid.look_up(code)
        style = ("muted", "info", "warning", "critical")[fault.level]
        often = f"{count} times" if count > 1 else "once" if count else "?"
        out.append(((f"   Xid {code:<5}", style), (f"{often:<10}", "text"), (f"{fault.name}", "title"),
                    (f"  usually {fault.fault}" if fault.fault != "unknown" else "  whose fault is not known",
                     _FAULTS.get(fault.fault, "muted"))))
        out += [((f"            {piece}", "muted"),) for piece in wrap(fault.todo, max(wide - 13, 20)) if fault.todo]
    age, total = table.value("xid_age_seconds", row), table.value("xids_total", row)
    tail = [f"the last one {duration(age)} ago"] if age is not None else []
    tail += [f"{quantity(total, '')} since the probe started"] if total is not None else []
    return [*out, ((f"   {', '.join(tail)}", "muted"),)] if tail else out


def _log(picture: Picture, row: int, wide: int) -> list[Line]:
    """What the kernel's log says of the GPU as a PCIe device, beside its Xids."""
    join = picture.atlas.gpu_pcie
    device = int(join[row]) if row < len(join) else -1
    return devices.kernel_lines(picture, device, wide) if device >= 0 else []


def _memory(picture: Picture, row: int) -> list[Line]:
    table = picture.view["gpu"]
    out: list[Line] = [title(" Memory errors", f"ECC {explained(table, 'ecc_mode', row)[0]}"),
                       ((f"   {'':<24}{'volatile':>18}{'aggregate':>18}", "head"),)]
    for name, now, ever, bad in (("ECC corrected", "ecc_corrected_total", "ecc_corrected_lifetime_total", "info"),
                                 ("ECC uncorrected", "ecc_uncorrected_total", "ecc_uncorrected_lifetime_total",
                                  "critical")):
        line: list[Span] = [(f"   {name:<24}", "muted")]
        for column in (now, ever):
            text, style = explained(table, column, row)
            line.append((f"{text:>18}", bad if table.value(column, row) else style))
        out.append(tuple(line))
    for name, columns in (
            ("remapped rows", (("corrected", "remapped_rows_corrected_total", "info"),
                               ("uncorrected", "remapped_rows_uncorrected_total", "warning"),
                               ("pending", "row_remap_pending", "warning"),
                               ("failed", "row_remap_failed", "critical"))),
            ("retired pages", (("corrected", "retired_pages_corrected_total", "info"),
                               ("uncorrected", "retired_pages_uncorrected_total", "warning"),
                               ("pending", "page_retirement_pending", "warning")))):
        spans: list[Span] = [(f"   {name:<24}", "muted")]
        if len({table.reason(column, row) for _, column, _ in columns}) == 1 and table.reason(columns[0][1], row):
            spans.append(explained(table, columns[0][1], row))
        else:
            for word, column, bad in columns:
                text, style = _yes(picture, row, column)
                spans += [(f"{word} ", "muted"), (f"{text}  ", bad if table.value(column, row) else style)]
        out.append(tuple(spans))
    return out


def _yes(picture: Picture, row: int, column: str) -> Span:
    """A flag as yes or no, a count as it is."""
    table = picture.view["gpu"]
    amount = table.value(column, row)
    if table.spec.metric(column).kind != "state" or amount is None:
        return explained(table, column, row)
    return ("yes" if amount else "no", "text")


def _nvlink(picture: Picture, row: int, wide: int) -> list[Line]:
    table = picture.view["gpu"]
    known, up = table.value("nvlink_links", row), table.value("nvlink_links_up", row)
    if known is None:
        return [title(" NVLink"), (("   ", "text"), explained(table, "nvlink_links", row))]
    if not known:
        return [title(" NVLink", "no links on this GPU")]
    missing = table.value("nvlink_links_missing", row)
    words = f"{quantity(up, '')} of {quantity(known, '')}" if up is not None else explained(
        table, "nvlink_links_up", row)[0]
    if missing:
        words += f", {quantity(missing, '')} fewer than the node's best GPU"
    out: list[tuple[str, Span]] = [("links up", (words, "unknown" if up is None else "warning" if missing else "text"))]
    for name, column in (("recoveries", "nvlink_recoveries"), ("replays", "nvlink_replays"),
                         ("flit CRC errors", "nvlink_flit_crc_errors"), ("data CRC errors", "nvlink_data_crc_errors")):
        text, style = explained(table, f"{column}_total", row)
        rate = table.value(f"{column}_per_second", row)
        out.append((name, (f"{text}, {quantity(rate, '/s')}" if rate else text, "warning" if rate else style)))
    return [title(" NVLink"), *pairs(out, wide)]


def _pcie(picture: Picture, row: int, wide: int) -> list[Line]:
    table, join = picture.view["gpu"], picture.atlas.gpu_pcie
    device = int(join[row]) if row < len(join) else -1
    out: list[tuple[str, Span]] = []
    if device >= 0:
        out.append(("link", devices.link(picture, device)))
        out.append(("path", devices.lanes(picture, device)))
        noted = devices.note(picture, device)
        if noted[0]:
            out.append(("that is", noted))
    else:
        out += [(name, explained(table, column, row)) for name, column in (
            ("width", "pcie_width_lanes"), ("at most", "pcie_width_max_lanes"))]
    out += [(name, explained(table, column, row)) for name, column in (
        ("generation", "pcie_generation"), ("of card and slot", "pcie_generation_max"),
        ("of the card", "pcie_generation_device_max"), ("replays", "pcie_replays_total"))]
    bar, memory = table.value("bar1_total_bytes", row), table.value("memory_total_bytes", row)
    words = explained(table, "bar1_total_bytes", row)
    if bar is not None and memory is not None:
        words = ((f"{words[0]}, Resizable BAR is off: the framebuffer has {quantity(memory, 'B')}", "info")
                 if bar < memory else (f"{words[0]}, covers the framebuffer", words[1]))
    return [title(" PCIe"), *pairs([*out, ("BAR1", words)], wide)]


def _modes(picture: Picture, row: int, wide: int) -> list[Line]:
    table = picture.view["gpu"]
    mode = explained(table, "mig_mode", row)
    layout = table.attrs[row].get("mig_layout")
    out = [("persistence mode", explained(table, "persistence_mode", row)), ("MIG", mode)]
    if table.value("mig_mode", row) == 1:
        out.append(("instances", explained(table, "mig_instances", row)))
        out.append(("layout", (", ".join(layout), "text") if isinstance(layout, list) and layout
                    else ("? (not told)", "unknown")))
    return [title(" Modes"), *pairs(out, wide)]
