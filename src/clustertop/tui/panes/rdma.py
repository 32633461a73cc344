"""Screen 5: RDMA ports, those with errors or down first, and the counters of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.quantity import quantity
from clustertop.signals import rdma
from clustertop.tui.cells import explained, severity, title, value
from clustertop.tui.panes.base import Pane
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from textual.app import ComposeResult

    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Line, Look, Span

_BAD = {"hard": "critical", "soft": "warning", "congestion": "info"}


def rate(picture: Picture, way: str) -> NDArray[np.float64]:
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
        + (np.nan_to_num(table.col("hard_errors_last_minute")) > 0) * 1e5
        + (np.nan_to_num(table.col("soft_errors_last_minute")) > 0) * 1e4
        + (np.nan_to_num(table.col("hard_errors_total")) > 0) * 1e3
        + (np.nan_to_num(table.col("soft_errors_total")) > 0) * 1e2
    )
    return out


def link(picture: Picture, row: int) -> Span:
    """The link's state in words."""
    table = picture.view["port"]
    state = table.value("link", row)
    if state is None:
        return value(table, "link", row)
    style = "ok" if state == rdma.UP else "muted" if state == rdma.DISABLED else "critical"
    return (rdma.LINK_WORDS.get(int(state), "?"), style)


def counter_lines(picture: Picture, row: int, wide: int) -> list[Line]:
    """Every counter of one port, the worst kinds first, in as many columns as *wide* cells hold."""
    table = picture.view["port"]
    attrs = table.attrs[row]
    facts = "  ".join(str(attrs[key]) for key in ("pci", "hca", "fw", "link_layer", "netdev") if attrs.get(key))
    out: list[Line] = [title(f" {picture.atlas.names[table.node[row]]} {table.labels[row]}", facts)]
    cells: list[tuple[Span, Span]] = []
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
                cells.append(((f"{metric.name}", "muted"), (text, style)))
    if not cells:
        out.append(((" this port gives no counters", "unknown"),))
        return out
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


class RdmaPane(Pane):
    """Ports above, counters of one below."""

    TITLE: ClassVar[str] = "RDMA"

    def __init__(self, look: Look, *, id: str = "rdma") -> None:  # noqa: A002
        super().__init__(look, id=id)
        glyphs = look.glyphs

        def errors(name: str, column: str, width: int, rank: int, style: str) -> Column[Picture]:
            def cell(p: Picture, r: int) -> Span:
                amount = p.view["port"].value(column, r)
                return value(p.view["port"], column, r, style if amount else "muted")

            return Column(name, width, cell, lambda p: p.view["port"].col(column), rank=rank)

        def speed(name: str, way: str) -> Column[Picture]:
            def cell(p: Picture, r: int) -> Span:
                table = p.view["port"]
                own = f"{way}_bytes_per_second"
                return value(table, own if table.value(own, r) is not None or table.value(f"hw_{own}", r) is None
                             else f"hw_{own}", r)

            return Column(name, 10, cell, lambda p: rate(p, way), rank=1)

        columns: tuple[Column[Picture], ...] = (
            Column("state", 9, lambda p, r: severity(glyphs, p.row_state("port", r)),
                   lambda p: p.severity("port").astype(float), "<"),
            Column("node", 14, lambda p, r: (p.atlas.names[p.view["port"].node[r]], "title"),
                   lambda p: [p.atlas.names[node] for node in p.view["port"].node.tolist()], "<", down=False),
            Column("port", 12, lambda p, r: (p.view["port"].labels[r], "text"), lambda p: p.view["port"].labels, "<",
                   down=False),
            Column("link", 14, link, lambda p: p.view["port"].col("link"), "<"),
            Column("rate", 9, lambda p, r: value(p.view["port"], "rate_bits_per_second", r),
                   lambda p: p.view["port"].col("rate_bits_per_second"), rank=3, down=False),
            speed("tx", "transmit"), speed("rx", "receive"),
            errors("hard/min", "hard_errors_last_minute", 8, 1, "critical"),
            errors("soft/min", "soft_errors_last_minute", 8, 2, "warning"),
            errors("hard", "hard_errors_total", 8, 4, "critical"),
            errors("soft", "soft_errors_total", 8, 4, "warning"),
            errors("congestion", "congestion_total", 11, 5, "info"),
            Column("what", 12, self._what, None, "<", rank=6, grow=True),
        )
        self.head = Bar(look, id="rdma-head")
        self.table: Table[Picture] = Table(look, columns, id="rdma-table")
        self.lower = Document(look, id="rdma-counters")
        self.all = True
        self.lower.remake = self.draw_lower
        self.head.remake = self.draw

    def compose(self) -> ComposeResult:
        """Totals, ports, counters."""
        yield self.head
        yield self.table
        yield self.lower

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """Ports and counters."""
        return [self.table, self.lower]

    def _what(self, picture: Picture, row: int) -> Span:
        table = picture.view["port"]
        if (table.value("saturated_counters", row) or 0) > 0:
            return ("counter at its end: true value unknown", "warning")
        attrs = table.attrs[row]
        return ("  ".join(str(attrs[key]) for key in ("link_layer", "netdev", "hca") if attrs.get(key)), "muted")

    def draw(self) -> None:
        """Draw totals, ports and counters."""
        picture = self.picture
        if picture is None:
            return
        self.split(self.lower, 3, 20, 14)
        table = picture.view["port"]
        worth = trouble(picture)
        shown = picture.shown("port") & (table.col("virtual") != 1)
        rows = np.flatnonzero(shown if self.all else shown & (worth > 0))
        rows = rows[np.lexsort((rows, table.node[rows], -worth[rows]))]
        self.head.put([self._totals(picture, worth)])
        self.table.name_width(picture.atlas.name_width)
        self.table.show(picture, rows, self._empty(picture))
        self.draw_lower()

    def _totals(self, picture: Picture, worth: NDArray[np.float64]) -> tuple[Span, ...]:
        table = picture.view["port"]
        real = table.col("virtual") != 1
        down = int(((table.col("down") == 1) & real).sum())
        hard, soft = table.col("hard_errors_last_minute")[real], table.col("soft_errors_last_minute")[real]
        wrong = int((np.nan_to_num(hard) > 0).sum())
        shaky = int((np.nan_to_num(soft) > 0).sum())
        up = int(((table.col("link") == rdma.UP) & real).sum())
        unknown = int((np.isnan(table.col("link")) & real).sum())
        mute = int((np.isnan(hard) & np.isnan(soft)).sum())
        send, receive = rate(picture, "transmit")[real], rate(picture, "receive")[real]
        out: list[Span] = [
            (f" {up} of {int(real.sum())} ports up", "title"),
            (f"  {down} down", "critical" if down else "muted"),
            (f"  {wrong} with hard errors", "critical" if wrong else "muted"),
            (f"  {shaky} with soft errors in the last minute", "warning" if shaky else "muted"),
        ]
        if unknown or mute:
            out.append((f"  unknown: {unknown} links, {mute} counters", "unknown"))
        if self.table.wide >= 130:
            out.append((f"  tx {_sum(send)}  rx {_sum(receive)}", "muted"))
        return tuple(out)

    def _empty(self, picture: Picture) -> tuple[str, str]:
        table = picture.view["port"]
        if not len(table):
            if not picture.totals.nodes_up:
                return (f"nothing is known yet: 0 of {len(picture.view.nodes)} nodes report", "unknown")
            return (f"no RDMA port on any of the {picture.totals.nodes_up} nodes that report", "unknown")
        if picture.terms:
            return ("no port matches the filter", "unknown")
        hard = table.col("hard_errors_last_minute")
        return (f"no port is down or has errors ({int((~np.isnan(hard)).sum())} ports judged, "
                f"{int(np.isnan(hard).sum())} unknown)", "unknown" if np.isnan(hard).any() else "ok")

    def draw_lower(self) -> None:
        """The counters of the port under the cursor."""
        if self.picture is None or not self.lower.display:
            return
        row = self.table.row
        self.lower.show_lines([] if row is None else counter_lines(self.picture, row, self.lower.wide))

    def on_table_moved(self, event: Table.Moved) -> None:
        """Another port: other counters."""
        event.stop()
        self.draw_lower()

    def toggle_all(self) -> str:
        """All ports, or those in trouble only."""
        self.all = not self.all
        self.draw()
        return "all ports, those in trouble first" if self.all else "ports down or with errors only"

    def node(self) -> int | None:
        """The node of the port."""
        row = self.table.row
        return None if row is None or self.picture is None else int(self.picture.view["port"].node[row])

    def row_text(self) -> str:
        """The row as text."""
        return self.table.row_text()


def _sum(values: NDArray[np.float64]) -> str:
    known = values[~np.isnan(values)]
    return quantity(float(known.sum()), "B/s") if len(known) else "?"
