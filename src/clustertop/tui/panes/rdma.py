"""Screen 5: RDMA ports, those with errors or down first, and the counters of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.quantity import quantity
from clustertop.signals import rdma
from clustertop.tui import ports
from clustertop.tui.cells import value
from clustertop.tui.panes.base import ListPane
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Look, Span


class RdmaPane(ListPane):
    """Ports above, everything about one of them below."""

    TITLE: ClassVar[str] = "RDMA"

    def __init__(self, look: Look, *, id: str = "rdma") -> None:  # noqa: A002
        super().__init__(look, id=id)

        def errors(name: str, column: str, width: int, rank: int, cls: str, style: str) -> Column[Picture]:
            return Column(name, width, lambda p, r: ports.errors(p, r, column, cls, style),
                          lambda p: p.view["port"].col(column), rank=rank)

        def speed(name: str, way: str) -> Column[Picture]:
            def cell(p: Picture, r: int) -> Span:
                table = p.view["port"]
                own = f"{way}_bytes_per_second"
                return value(table, own if table.value(own, r) is not None or table.value(f"hw_{own}", r) is None
                             else f"hw_{own}", r)

            return Column(name, 9, cell, lambda p: ports.moved(p, way), rank=1)

        columns: tuple[Column[Picture], ...] = (
            Column("state", 9, lambda p, r: ports.state(p, r, look.glyphs),
                   lambda p: p.severity("port").astype(float), "<"),
            Column("node", 14, lambda p, r: (p.atlas.names[p.view["port"].node[r]], "title"),
                   lambda p: [p.atlas.names[node] for node in p.view["port"].node.tolist()], "<", down=False),
            Column("port", 11, self._port, lambda p: p.view["port"].labels, "<", down=False),
            Column("link", 16, lambda p, r: ports.link(p, r, short=True), lambda p: p.view["port"].col("link"), "<"),
            Column("rate", 12, ports.rate_words, lambda p: p.view["port"].col("rate_bits_per_second"), rank=4,
                   down=False),
            speed("tx", "transmit"), speed("rx", "receive"),
            errors("hard/min", "hard_errors_last_minute", 8, 1, "hard", "critical"),
            errors("soft/min", "soft_errors_last_minute", 8, 2, "soft", "warning"),
            errors("hard", "hard_errors_total", 8, 5, "hard", "critical"),
            errors("soft", "soft_errors_total", 8, 5, "soft", "warning"),
            errors("congestion", "congestion_total", 10, 6, "congestion", "info"),
            Column("what", 12, self._what, None, "<", rank=3, grow=True, want=44),
        )
        self.head = Bar(look, id="rdma-head")
        self.table: Table[Picture] = Table(look, columns, id="rdma-table")
        self.lower = Document(look, id="rdma-counters")
        self.all = True
        self.unfolded = False
        self._virtual: dict[tuple[int, str], list[int]] = {}
        self.lower.remake = self.draw_lower
        self.head.remake = self.draw

    def _port(self, picture: Picture, row: int) -> Span:
        table = picture.view["port"]
        virtual = table.value("virtual", row) == 1
        return (f"  {table.labels[row]}" if virtual else table.labels[row], "muted" if virtual else "text")

    def _what(self, picture: Picture, row: int) -> Span:
        table = picture.view["port"]
        address = str(table.attrs[row].get("pci") or "")
        hidden = 0 if self.unfolded else len(self._virtual.get((int(table.node[row]), address), ()))
        return ports.what(picture, row, hidden)

    def draw(self) -> None:
        """Draw totals, ports and counters."""
        picture = self.picture
        if picture is None:
            return
        self.split(self.lower, 3, 20, 16)
        table = picture.view["port"]
        worth = ports.trouble(picture)
        self._virtual = ports.virtual_functions(picture)
        passed = picture.shown("port")
        shown = passed & (table.col("virtual") != 1)
        rows = np.flatnonzero(shown if self.all else shown & (worth > 0))
        rows = rows[np.lexsort((rows, table.node[rows], -worth[rows]))]
        if self.unfolded:
            rows = self._with_children(picture, rows, passed)
        self.head.put([self._totals(picture, worth)])
        self.table.name_width(picture.atlas.name_width)
        self.table.give_width("port", 13 if self.table.wide >= 100 else 11)
        self.table.show(picture, rows, self._empty(picture))
        self.draw_lower()

    def _with_children(
        self, picture: Picture, rows: NDArray[np.intp], passed: NDArray[np.bool_]
    ) -> NDArray[np.intp]:
        """*rows* with the virtual functions of each behind it; those whose parent is not among them come last."""
        table, out, put = picture.view["port"], [], set()
        for row in rows.tolist():
            mine = self._virtual.get((int(table.node[row]), str(table.attrs[row].get("pci") or "")), [])
            mine = [child for child in mine if passed[child] and child not in put]
            put.update(mine)
            out += [row, *mine]
        out += [child for group in self._virtual.values() for child in group if passed[child] and child not in put]
        return np.array(out, np.intp)

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
        send, receive = ports.moved(picture, "transmit")[real], ports.moved(picture, "receive")[real]
        full = self.table.wide >= 110
        unused = int((table.col("never_used") == 1).sum())
        flaps = int(((table.col("flap") == 1) & real).sum())
        slow = int(((table.col("rate_missing_ratio") > ports.SLOW_RATIO) & real).sum())
        stuck = int((np.nan_to_num(table.col("saturated_counters")[real]) > 0).sum())
        out: list[Span] = [
            (f" {up} of {int(real.sum())} ports up", "title"),
            *([(f"  {unused} never used", "muted")] if unused else []),
            (f"  {down} down", "critical" if down else "muted"),
            *([(f"  {flaps} flap", "warning")] if flaps else []),
            *([(f"  {slow} slow", "warning")] if slow else []),
            (f"  {wrong} with hard errors" if full else f"  {wrong} hard", "critical" if wrong else "muted"),
            (f"  {shaky} with soft errors" if full else f"  {shaky} soft",
             "warning" if shaky else "muted"),
            *([(f"  {stuck} with a counter at its end", "warning")] if stuck else []),
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
        self.lower.show_lines([] if row is None else ports.port_lines(self.picture, row, self.lower.wide))

    def toggle_all(self) -> str:
        """All ports, or those in trouble only."""
        self.all = not self.all
        self.draw()
        return "all ports, those in trouble first" if self.all else "ports down or with errors only"

    def toggle_virtual(self) -> str:
        """Virtual functions under their parents, or folded into them."""
        self.unfolded = not self.unfolded
        self.draw()
        count = sum(len(rows) for rows in self._virtual.values())
        if not count:
            return "there are no virtual functions"
        return f"{count} virtual functions shown under their parents" if self.unfolded else "virtual functions folded"

    def node(self) -> int | None:
        """The node of the port."""
        row = self.table.row
        return None if row is None or self.picture is None else int(self.picture.view["port"].node[row])


def _sum(values: NDArray[np.float64]) -> str:
    known = values[~np.isnan(values)]
    return quantity(float(known.sum()), "B/s") if len(known) else "?"
