"""Feeds, PDU parts and power supplies in words and bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import LinkState
from clustertop.plain_site import amps_text, outlook
from clustertop.plain_site import order as least_headroom_first
from clustertop.quantity import duration, quantity
from clustertop.signals import bmc
from clustertop.signals.power import CRITICAL_RATIO, WARNING_RATIO
from clustertop.store.view import FRESH, STALE
from clustertop.tui.cells import explained, pairs, severity, title, value
from clustertop.tui.picture import RANK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from clustertop.places import Feed
    from clustertop.store.view import TableView
    from clustertop.tui.glyphs import Glyphs
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Span

USUAL = (WARNING_RATIO, CRITICAL_RATIO)
"""Where a bar has its marks, of a breaker that has no limits of its own."""
MOST_PARTS, MOST_NODES, MOST_SENSORS = 60, 64, 200
_NOT_MEASURED = {"volts": "volts_by", "neutral_amps": "neutral_by"}
"""By column: the attribute that says where it comes from, if that is no meter."""
_FULL, _HALF = "\u28ff", "\u2847"


def feed_of(picture: Picture, row: int) -> Feed:
    """What the config says of the feed in *row*."""
    owners = picture.view.of
    return owners.site.feeds[int(picture.view["feed"].node[row]) - owners.first_feed]


def name_of(picture: Picture, row: int) -> str:
    """The feed's name."""
    return picture.view.owners[int(picture.view["feed"].node[row])].name


def order(picture: Picture) -> NDArray[np.intp]:
    """Rows with the least headroom first; the feeds of a pair stand one below the other."""
    return least_headroom_first(picture.view, RANK[picture.feed_states].astype(float))


def limits(table: TableView, row: int) -> tuple[float, float]:
    """Of a feed's rating: from where a warning is due, and from where it is critical; the usual ones where unknown."""
    rating = table.value("rating_amps", row)
    own = (table.value("warning_amps", row), table.value("critical_amps", row))
    if not rating:
        return USUAL
    return (USUAL[0] if own[0] is None else own[0] / rating, USUAL[1] if own[1] is None else own[1] / rating)


def marks(table: TableView, row: int, column: str) -> tuple[float, float]:
    """What a share of a feed is held against: its limits; of what it would carry alone, the warning and its rating."""
    warning, critical = limits(table, row)
    return (warning, 1.0) if column == "failover_ratio" else (warning, critical)


def bar(glyphs: Glyphs, ratio: float | None, width: int, at: tuple[float, float] = USUAL) -> str:
    """A breaker of *width* cells up to its rating, marked at its limits; ``>`` at its end: above the rating."""
    if ratio is None or ratio != ratio:
        cells = [" "] * width
    else:
        full, half = ("#", "=") if glyphs.ascii else (_FULL, _HALF)
        filled = max(min(ratio, 1.0), 0.0) * width
        whole = int(filled)
        cells = [full] * whole + ([half] if filled - whole >= 0.5 else [])
        cells += [" "] * (width - len(cells))
    for mark in at:
        cells[min(int(mark * width), width - 1)] = "|"
    if ratio is not None and ratio > 1.0:
        cells[-1] = ">"
    return "".join(cells[:width])


def level(ratio: float | None, at: tuple[float, float] = USUAL) -> str:
    """The style of a share of a breaker."""
    if ratio is None or ratio != ratio:
        return "unknown"
    return "critical" if ratio >= at[1] else "warning" if ratio >= at[0] else "ok"


def amps_words(table: TableView, row: int) -> Span:
    """``18.2/32 A``, ``est`` before what is estimated, ``>=`` before what is a part of the whole."""
    text = amps_text(table, row)
    if text is None:
        return value(table, "amps", row)
    return (text, "text" if table.level[row] == 0 else "stale")


def trend(picture: Picture, row: int, width: int, glyphs: Glyphs) -> str:
    """Its share over the last minutes, drawn between its own least and most."""
    values = picture.view.history.series("feed", "share_ratio", row).tolist()
    known = [one for one in values if one == one]
    return glyphs.spark(values, width, max(min(known) - 0.02, 0.0), max(known) + 0.02) if known else ""


def feed_lines(picture: Picture, row: int, glyphs: Glyphs, wide: int) -> list[Line]:
    """Everything about one feed: limits, forecast, the parts of its PDU, its nodes by draw."""
    table, said = picture.view["feed"], feed_of(picture, row)
    source = str(table.attrs[row].get("source") or "none")
    head = "  ".join(text for text in (
        f"rack {said.rack}" if said.rack else "", f"pair {said.pair}" if said.pair else "no pair configured",
        f"by {'nothing that measures it' if source == 'none' else source}",
        f"{said.phases} phases, {said.wiring}" if said.phases > 1 else "1 phase") if text)
    out: list[Line] = [((f" {name_of(picture, row)}  ", "title"), (head, "muted"))]
    shown = ("amps", "share_ratio", "rating_amps", "warning_amps", "critical_amps", "failover_ratio", "watts", "volts",
             "neutral_amps", "coverage_ratio", "slope_amps_per_second", "to_warning_seconds", "to_critical_seconds",
             "to_rating_seconds", "forecast_confidence_ratio", "device_level", "before_amps")
    given: list[tuple[str, Span]] = []
    for name in shown:
        metric = table.spec.metric(name)
        if table.value(name, row) is None and name not in {"amps", "share_ratio", "rating_amps", "failover_ratio"}:
            continue
        text, style = explained(table, name, row)
        by = table.attrs[row].get(_NOT_MEASURED.get(name, ""))
        given.append((metric.label or name.replace("_", " "), (f"{text} ({by})" if by else text, style)))
    out += pairs(given, wide)
    text, style = outlook(table, row)
    if text:
        out.append(((f"   {text}", style),))
    if table.value("limits_disagree", row):
        out.append((("   the device has another rating or limit than configured", "info"),))
    out += _parts(picture, said, glyphs, wide)
    out += _nodes(picture, said, glyphs, wide)
    return out


def _device_line(picture: Picture, name: str, kinds: frozenset[str]) -> list[Line]:
    """Whether a device answers, and how old what it said is."""
    table = picture.view["device"]
    for row in range(len(table)):
        owner = picture.view.owners[int(table.node[row])]
        if owner.name == name and owner.kind in kinds:
            return [((f" {table.labels[row]}  ", "title"), link_words(table, row),
                     (f"  {picture.view.link_reasons[int(table.node[row])]}", "warning"))]
    return []


def link_words(table: TableView, row: int) -> Span:
    """``up, read 4 s ago``."""
    state, age = table.value("link_state", row), table.value("age_seconds", row)
    words = "?" if state is None else LinkState(int(state)).words
    style = "ok" if state == LinkState.UP else "unknown" if table.value("reachable", row) is None else "critical"
    return (words + (f", read {duration(age)} ago" if age is not None else ", not read yet"), style)


def _parts(picture: Picture, said: Feed, glyphs: Glyphs, wide: int) -> list[Line]:
    table = picture.view["pdu"]
    if not said.pdu:
        return []
    out: list[Line] = [(), *_device_line(picture, said.pdu, frozenset({"pdu", "bmc"}))]
    owners = {number for number, one in enumerate(picture.view.owners) if one.name == said.pdu and one.kind != "node"}
    rows = [row for row in np.flatnonzero(np.isin(table.node, list(owners))).tolist() if table.present[row]]
    out += [part_line(table, row, glyphs, wide) for row in rows[:MOST_PARTS]]
    if len(rows) > MOST_PARTS:
        out.append(((f"   and {len(rows) - MOST_PARTS} more", "muted"),))
    return out


def part_line(table: TableView, row: int, glyphs: Glyphs, wide: int) -> Line:
    """One inlet, phase, bank or outlet with a bar where its rating is known."""
    amps = table.value("amps", row)
    limit = table.value("rating_amps", row) or table.value("critical_amps", row)
    ratio = amps / limit if amps is not None and limit else None
    width = 20 if wide >= 100 else 10
    state = table.value("part_state", row)
    style = "unknown" if state is None else "text" if not state else "warning" if state == 1 else "critical"
    # A word of long ago is not said of now.
    word, style = ("", "stale") if table.level[row] == STALE else (str(table.attrs[row].get("state") or ""), style)
    return (
        (f"   {glyphs.fit(table.labels[row], 16)} ", "text"),
        (" " * width, "muted") if ratio is None else (bar(glyphs, ratio, width), level(ratio)),
        (f" {value(table, 'amps', row)[0]:>9}", value(table, "amps", row)[1]),
        (f" of {limit:g} A" if limit else "", "muted"),
        (f" {value(table, 'volts', row)[0]:>8}", value(table, "volts", row)[1]),
        (f" {value(table, 'watts', row)[0]:>9}", value(table, "watts", row)[1]),
        (f"  {word}", style),
    )


def draw_watts(picture: Picture, node: int) -> tuple[float | None, str]:
    """What a node draws, and by what: its BMC, with the age of what is late, else its GPUs alone."""
    table = picture.view["bmc"]
    for row in table.rows_of(node).tolist():
        watts = table.value("power_watts", row)
        if watts is not None:
            late = "" if table.level[row] == FRESH else f", {duration(float(table.age[row]))} ago"
            return watts, f"BMC{late}"
    return picture.view["node"].value("gpu_power_watts", node), "GPUs only"


def _nodes(picture: Picture, said: Feed, glyphs: Glyphs, wide: int) -> list[Line]:
    known = picture.atlas.node_of
    rows: list[tuple[float, str, tuple[str, ...]]] = []
    for supply in said.supplies:
        number = known.get(supply.node)
        watts = None if number is None else draw_watts(picture, number)[0]
        rows.append((-1.0 if watts is None else watts, supply.node, supply.psus))
    if not rows:
        return [(), title(" Nodes", "none said: nodes = \"...\" in [feeds]")]
    out: list[Line] = [(), title(" Nodes by draw")]
    for watts, name, psus in sorted(rows, key=lambda one: (-one[0], one[1]))[:MOST_NODES]:
        number = known.get(name)
        if number is None:
            out.append(((f"   {glyphs.fit(name, 14)} ", "text"), ("not watched", "muted")))
            continue
        state = severity(glyphs, int(picture.state[number]))
        source = draw_watts(picture, number)[1]
        out.append((
            (f"   {glyphs.fit(name, 14)} ", "title"), (f"{state[0]:<10}", state[1]),
            (f"{quantity(watts, 'W') if watts >= 0 else '?':>9}",
             "unknown" if watts < 0 else "stale" if "ago" in source else "text"),
            (f"  {source if watts >= 0 else 'power unknown':<14}", "muted"),
            *_supplies(picture, number, psus),
        ))
    if len(rows) > MOST_NODES:
        out.append(((f"   and {len(rows) - MOST_NODES} more", "muted"),))
    return out


def _supplies(picture: Picture, node: int, names: Iterable[str]) -> list[Span]:
    """The supplies of *node*: those called *names*, or all where the config names none."""
    table, wanted = picture.view["psu"], set(names)
    out: list[Span] = []
    for row in table.rows_of(node).tolist():
        if not wanted or table.labels[row] in wanted or table.keys[row] in wanted:
            text, style = psu_words(table, row)
            out += [(f"  {table.labels[row]} ", "muted"), (text, style)]
    return out


def psu_words(table: TableView, row: int) -> Span:
    """The state of a power supply, with the device's own words where it is not well."""
    state = table.value("psu_state", row)
    if state is None:
        return value(table, "psu_state", row)
    style = {bmc.PSU_OK: "ok", bmc.PSU_ABSENT: "muted", bmc.PSU_WARNING: "warning"}.get(int(state), "critical")
    if table.level[row] != FRESH:
        style = "stale"
    return (table.spec.metric("psu_state").words[int(state)], style)


def node_lines(picture: Picture, node: int, glyphs: Glyphs, wide: int) -> list[Line]:
    """A node's power for its page: its feeds, its BMC, supplies and sensors; nothing where none is configured."""
    name = picture.atlas.names[node]
    out: list[Line] = []
    feeds = picture.view["feed"]
    for row in range(len(feeds)):
        if name in feed_of(picture, row).nodes:
            share, at = feeds.value("share_ratio", row), limits(feeds, row)
            out.append((
                (f"   feed {glyphs.fit(name_of(picture, row), 14)} ", "text"),
                (bar(glyphs, share, 20, at), level(share, at)), (f" {amps_words(feeds, row)[0]:>16}", "text"),
                (f"  {outlook(feeds, row)[0]}", outlook(feeds, row)[1])))
    out += _bmc(picture, node, glyphs, wide)
    return [title(" Power"), *out] if out else []


def _bmc(picture: Picture, node: int, glyphs: Glyphs, wide: int) -> list[Line]:
    table, psus, sensors = picture.view["bmc"], picture.view["psu"], picture.view["sensor"]
    devices, reasons = picture.view["device"], picture.view.link_reasons
    out: list[Line] = [
        ((f"   {devices.labels[row]}  ", "text"), link_words(devices, row), (f"  {reasons[owner]}", "warning"))
        for row, owner in enumerate(devices.node.tolist())
        if picture.view.owners[owner].of == picture.view.nodes[node].name]
    for row in table.rows_of(node).tolist():
        attrs = table.attrs[row]
        who = " ".join(str(attrs[name]) for name in ("vendor", "model") if attrs.get(name))
        given: list[tuple[str, Span]] = [("power", explained(table, "power_watts", row))]
        if attrs.get("watts_source"):
            given.append(("by", (str(attrs["watts_source"]), "muted")))
        lost = table.value("redundancy", row)
        given += [("redundancy", explained(table, "redundancy", row, "critical" if lost == bmc.LOST else "text")),
                  ("capacity", value(table, "capacity_watts", row)), ("host", value(table, "host_on", row)),
                  ("alarms", value(table, "alarms", row))]
        out += [*([((f"   {who}", "muted"),)] if who else []), *pairs(given, wide)]
    for row in psus.rows_of(node).tolist():
        text, style = psu_words(psus, row)
        words = "" if psus.level[row] == STALE else str(psus.attrs[row].get("words") or "")
        out.append((
            (f"   {glyphs.fit(psus.labels[row], 16)} ", "text"), (f"{text:<10}", style),
            ("in ", "muted"), (f"{value(psus, 'input_watts', row)[0]:>8}", value(psus, "input_watts", row)[1]),
            (f" {value(psus, 'input_volts', row)[0]:>8}", value(psus, "input_volts", row)[1]),
            (f" {value(psus, 'input_amps', row)[0]:>8}", value(psus, "input_amps", row)[1]),
            (f"  {words}", "muted")))
    given = []
    for row in sensors.rows_of(node).tolist()[:MOST_SENSORS]:
        attrs = sensors.attrs[row]
        reading, old = sensors.value("reading", row), sensors.level[row] == STALE
        text = (quantity(reading, str(attrs.get("unit") or "")) if reading is not None
                else str((not old and attrs.get("states")) or sensors.reason("reading", row) or "?"))
        given.append((sensors.labels[row], (text, "stale" if old else "critical" if attrs.get("alarm") else "text")))
    if given:
        out += [((f"   {len(given)} sensors", "head"),), *pairs(given, wide)]
    return out
