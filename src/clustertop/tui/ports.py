"""One RDMA port in words: its link, its rate, what it belongs to, and every counter of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.quantity import duration, quantity
from clustertop.signals import rdma
from clustertop.signals.link import OF_PORT
from clustertop.signals.rdma_counters import BY_COLUMN, spelling
from clustertop.tui.cells import explained, pairs, severity, title, value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.tui.glyphs import Glyphs
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Span

_BAD = {"hard": "critical", "soft": "warning", "congestion": "info"}
_SHORT = {rdma.POLLING: "down (polling)", rdma.INIT: "init (no SM)"}
"""Links whose words are longer than a column of the table."""
SLOW_RATIO = 0.01
"""Less missing of the expected rate than this is none, as the rule rdma_link_rate has it."""


def state(picture: Picture, row: int, glyphs: Glyphs) -> Span:
    """State of a port; one that was never used and a virtual one are not judged, which is not ok."""
    table = picture.view["port"]
    found = picture.row_state("port", row)
    if found == 0 and table.value("virtual", row) == 1:
        return ("- virtual", "muted")
    if found == 0 and table.value("never_used", row) == 1:
        return ("- unused", "muted")
    return severity(glyphs, found)


def link(picture: Picture, row: int, *, short: bool = False) -> Span:
    """The link's state in words; *short*: fit for a column, with what is odd about a link that is up."""
    table = picture.view["port"]
    state = table.value("link", row)
    if state is None:
        return value(table, "link", row)
    if table.value("never_used", row) == 1 and state != rdma.DISABLED:
        return ("never used" if short else f"never used: {rdma.LINK_WORDS.get(int(state), '?')}", "muted")
    words = rdma.LINK_WORDS.get(int(state), "?")
    if state != rdma.UP:
        virtual = table.value("virtual", row) == 1
        style = "muted" if state == rdma.DISABLED or virtual else "critical"
        return (_SHORT.get(int(state), words) if short else words, style)
    downs = table.value("downs_last_ten_minutes", row) or 0
    if downs:
        flaps = table.value("flap", row) == 1
        return (f"up, {downs:.0f} down{'s' if downs > 1 else ''}", "warning" if flaps else "info")
    if short and _slow(picture, row):
        return (f"up, {_over(picture, row)}", "warning")
    return (words, "ok")


def rate_words(picture: Picture, row: int) -> Span:
    """``400 Gb/s``, or ``200/400 Gb/s`` where another rate is expected."""
    table = picture.view["port"]
    if _slow(picture, row):
        return (_over(picture, row), "warning")
    return value(table, "rate_bits_per_second", row)


def _slow(picture: Picture, row: int) -> bool:
    return (picture.view["port"].value("rate_missing_ratio", row) or 0) > SLOW_RATIO


def _over(picture: Picture, row: int) -> str:
    table = picture.view["port"]
    now, expected = (table.value(name, row) or 0 for name in ("rate_bits_per_second", "rate_expected_bits_per_second"))
    return f"{now / 1e9:g}/{expected / 1e9:g} Gb/s"


def ended(picture: Picture, row: int) -> list[str]:
    """Columns of the counters that have stopped at their end."""
    table = picture.view["port"]
    if not table.value("saturated_counters", row):
        return []
    return [metric.name for metric in table.spec.metrics
            if metric.bits and (table.value(metric.name, row) or 0) >= metric.saturation]


def errors(picture: Picture, row: int, column: str, cls: str, style: str) -> Span:
    """Errors of one class; ``at end`` where none are seen because a counter of the class has stopped."""
    table = picture.view["port"]
    amount = table.value(column, row)
    if amount == 0 and any(table.spec.metric(name).cls == cls for name in ended(picture, row)):
        return ("at end", "warning")
    return value(table, column, row, style if amount else "muted")


def virtual_functions(picture: Picture) -> dict[tuple[int, str], list[int]]:
    """Rows of virtual functions by (node, address of the parent)."""
    table = picture.view["port"]
    out: dict[tuple[int, str], list[int]] = {}
    for row in np.flatnonzero(table.col("virtual") == 1).tolist():
        out.setdefault((int(table.node[row]), str(table.attrs[row].get("physfn") or "")), []).append(row)
    return out


def parent(picture: Picture, row: int) -> int | None:
    """The port of the physical function behind a virtual one; None where the node does not list it."""
    table = picture.view["port"]
    address = table.attrs[row].get("physfn")
    mine = table.rows_of(int(table.node[row])).tolist()
    return next((other for other in mine if address and table.attrs[other].get("pci") == address), None)


def what(picture: Picture, row: int, folded: int) -> Span:
    """What else is to be known of a port in a line; *folded*: virtual functions that are not shown."""
    table, attrs = picture.view["port"], picture.view["port"].attrs[row]
    stuck = ended(picture, row)
    if stuck or (table.value("saturated_counters", row) or 0) > 0:
        names = ", ".join(_spelt(name, attrs.get("driver")) for name in stuck) or "a counter"
        return (f"at its end, true value unknown: {names}", "warning")
    usual = picture.atlas.firmware[row]
    if usual:
        return (f"fw {attrs.get('fw')}, peers {usual}", "info")
    said = []
    if attrs.get("physfn"):
        of = parent(picture, row)
        said.append(f"of {table.labels[of] if of is not None else attrs['physfn']}")
    if folded:
        said.append(f"+{folded} virtual (v)")
    if attrs.get("bond"):
        said.append(f"bonded: {attrs['bond']}")
    said += [str(attrs[key]) for key in ("link_layer", "netdev", "hca", "fw") if attrs.get(key)]
    return ("  ".join(said), "muted")


def port_lines(picture: Picture, row: int, wide: int) -> list[Line]:
    """Everything that is known of one port: the worst kinds of counters first, in as many columns as *wide* holds."""
    table = picture.view["port"]
    attrs = table.attrs[row]
    facts = "  ".join(str(attrs[key]) for key in ("pci", "hca", "driver", "board", "link_layer", "netdev")
                      if attrs.get(key))
    return [title(f" {picture.atlas.names[table.node[row]]} {table.labels[row]}", facts),
            *pairs(_facts(picture, row), wide), *_unclassified(picture, row, wide), *counter_lines(picture, row, wide)]


def _facts(picture: Picture, row: int) -> list[tuple[str, Span]]:
    table, attrs = picture.view["port"], picture.view["port"].attrs[row]
    state = link(picture, row) if table.value("link", row) is not None else explained(table, "link", row)
    code = table.value("rate_text", row)
    down = table.value("link", row) not in {None, rdma.UP}
    rate: Span = explained(table, "rate_text", row) if code is None else (rdma.RATE_TEXTS.get(int(code), "?"), "text")
    if code is not None and down:
        rate = (f"none ({rate[0]} means nothing while it is down)", "muted")
    out = [("link", state), ("physical", explained(table, "physical_state", row)), ("rate", rate)]
    if not down:
        out.append(("expected", explained(table, "rate_expected_bits_per_second", row,
                                          "warning" if _slow(picture, row) else "text")))
    downs = explained(table, "downs_last_ten_minutes", row)
    if table.value("flap", row) == 1:
        downs = (f"{downs[0]}: flaps", "warning")
    out.append(("downs in ten minutes", downs))
    fw, usual = attrs.get("fw"), picture.atlas.firmware[row]
    if usual:
        out.append(("firmware", (f"{fw}, its peers have {usual}", "info")))
    else:
        out.append(("firmware", (str(fw), "text") if fw else ("? (not told)", "unknown")))
    if attrs.get("bond"):
        out.append(("bonded", (_bonded(attrs), "text")))
    # Of interfaces whose driver counts them; an InfiniBand port has none.
    known = [(column, number) for column in OF_PORT if (number := table.value(column, row)) is not None]
    out += [(table.spec.metric(column).label, explained(table, column, row, "warning" if number else "text"))
            for column, number in known]
    if table.value("virtual", row) == 1:
        of = parent(picture, row)
        out.append(("virtual function of", (table.labels[of] if of is not None else f"{attrs.get('physfn')}, not "
                                            "listed", "text")))
    children = virtual_functions(picture).get((int(table.node[row]), str(attrs.get("pci") or "")), [])
    if children and table.value("virtual", row) != 1:
        out.append(("virtual functions", (", ".join(table.labels[child] for child in children), "text")))
    out += [(name, explained(table, column, row)) for name, column in (
        ("bit errors in the hour", "symbol_errors_last_hour"), ("recoveries in the minute",
         "link_recoveries_last_minute"), ("transport errors", "transport_errors_per_second"))]
    return out


def _bonded(attrs: Mapping[str, Attr]) -> str:
    """The bond that a port's interface is in, and whose traffic the port's is."""
    mine = attrs.get("netdevs")
    if isinstance(mine, list) and len(mine) == 1:
        return f"{attrs['bond']}: the traffic is that of {mine[0]} alone"
    return f"{attrs['bond']}: the traffic is that of all its members"


def _spelt(column: str, driver: object) -> str:
    return spelling(column, driver) if column in BY_COLUMN else column


def _unclassified(picture: Picture, row: int, wide: int) -> list[Line]:
    """Counters that the port has and the catalogue does not know: neither good nor bad, but there."""
    names = picture.view["port"].attrs[row].get("unclassified")
    if not isinstance(names, list) or not names:
        return []
    lead = "   counters that nobody has classified, so not judged: "
    out: list[Line] = []
    line = lead
    for name in names:
        if len(line) + len(name) + 2 > wide and line.strip():
            out.append(((line, "unknown"),))
            line = "     "
        line += f"{name}  "
    return [*out, ((line.rstrip(), "unknown"),)]


def counter_lines(picture: Picture, row: int, wide: int) -> list[Line]:
    """Every counter of one port."""
    table = picture.view["port"]
    cells: list[tuple[Span, Span]] = []
    stuck = set(ended(picture, row))
    for cls in ("hard", "soft", "congestion", "info", "traffic"):
        for metric in table.spec.metrics:
            if metric.cls == cls:
                text, style = explained(table, metric.name, row)
                if text.startswith("? (not provided"):
                    continue
                amount = table.value(metric.name, row)
                if amount and cls in _BAD:
                    style = _BAD[cls]
                if amount is not None:
                    text = f"{amount:,.0f}".replace(",", " ") if metric.unit != "B" else quantity(amount, "B")
                if metric.name in stuck:
                    text, style = "at its end", "warning"
                cells.append(((_spelt(metric.name, table.attrs[row].get("driver")), "muted"), (text, style)))
    if not cells:
        return [((" this port gives no counters", "unknown"),)]
    up = picture.view["node"].value("uptime_seconds", int(table.node[row]))
    since = "up for an unknown time" if up is None else f"up {duration(up)}"
    out: list[Line] = [((" Counters", "title"), (f"  since boot or reset; the node is {since}", "muted"))]
    across = max(1, min(4, wide // 48))
    tall = -(-len(cells) // across)
    column = min(wide // across, 50)
    for y in range(tall):
        line: list[Span] = []
        for x in range(across):
            at = x * tall + y
            if at < len(cells):
                (name, name_style), (text, style) = cells[at]
                line += [(f" {name[:31]:<31} ", name_style), (f"{text:>{max(column - 34, 6)}} ", style)]
        out.append(tuple(line))
    return out


def moved(picture: Picture, way: str) -> NDArray[np.float64]:
    """[rows] bytes per second, ``transmit`` or ``receive``: the IBTA counter, else the driver's own."""
    table = picture.view["port"]
    ibta, own = table.col(f"{way}_bytes_per_second"), table.col(f"hw_{way}_bytes_per_second")
    out: NDArray[np.float64] = ibta.copy()
    gaps = np.isnan(out)
    out[gaps] = own[gaps]
    return out


def trouble(picture: Picture) -> NDArray[np.float64]:
    """[rows] how much a port deserves to be first."""
    table = picture.view["port"]
    out: NDArray[np.float64] = (
        picture.severity("port").astype(float) * 1e6 + (table.col("down") == 1) * 5e5
        + (table.col("flap") == 1) * 3e5
        + (np.nan_to_num(table.col("hard_errors_last_minute")) > 0) * 1e5
        + (np.nan_to_num(table.col("soft_errors_last_minute")) > 0) * 1e4
        + (np.nan_to_num(table.col("rate_missing_ratio")) > SLOW_RATIO) * 5e3
        + (np.nan_to_num(table.col("hard_errors_total")) > 0) * 1e3
        + (np.nan_to_num(table.col("soft_errors_total")) > 0) * 1e2
        + (np.nan_to_num(table.col("saturated_counters")) > 0) * 50
    )
    return out
