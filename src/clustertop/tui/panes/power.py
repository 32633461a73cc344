"""Screen 6: feeds by headroom, pairs side by side; below, everything about one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.plain_site import outlook
from clustertop.quantity import quantity
from clustertop.tui import power
from clustertop.tui.cells import severity, value
from clustertop.tui.panes.base import ListPane
from clustertop.tui.picture import CRITICAL, UNKNOWN, WARNING
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Look, Span

SETUP = "no feed is configured: write [feeds.NAME] with rating_amps and nodes into the config (docs/power.md)"


class PowerPane(ListPane):
    """Feeds above, one of them below."""

    TITLE: ClassVar[str] = "Power"

    def __init__(self, look: Look, *, id: str = "power") -> None:  # noqa: A002
        super().__init__(look, id=id)
        columns: tuple[Column[Picture], ...] = (
            Column("state", 9, lambda p, r: severity(look.glyphs, int(p.feed_states[r])),
                   lambda p: p.severity("feed").astype(float), "<"),
            Column("feed", 12, self._called, lambda p: [power.name_of(p, r) for r in range(len(p.view["feed"]))], "<",
                   down=False),
            Column("of its breaker", 20, lambda p, r: self._bar(p, r, "share_ratio"),
                   lambda p: p.view["feed"].col("share_ratio"), "<"),
            Column("share", 6, lambda p, r: self._share(p, r, "share_ratio"),
                   lambda p: p.view["feed"].col("share_ratio")),
            Column("amps", 15, lambda p, r: power.amps_words(p.view["feed"], r),
                   lambda p: p.view["feed"].col("amps"), rank=1),
            Column("if the other died", 20, lambda p, r: self._bar(p, r, "failover_ratio"),
                   lambda p: p.view["feed"].col("failover_ratio"), "<", rank=3),
            Column("alone", 6, lambda p, r: self._share(p, r, "failover_ratio"),
                   lambda p: p.view["feed"].col("failover_ratio"), rank=1),
            Column("trend", 12, lambda p, r: (self._trend(p, r), "accent"), None, "<", rank=4),
            Column("power", 8, lambda p, r: value(p.view["feed"], "watts", r),
                   lambda p: p.view["feed"].col("watts"), rank=2),
            Column("by", 22, self._source, None, "<", rank=5),
            Column("outlook", 16, lambda p, r: outlook(p.view["feed"], r),
                   lambda p: p.view["feed"].col("limit_in_seconds"), "<", rank=2, grow=True, want=24, down=False),
        )
        self.head = Bar(look, id="power-head")
        self.table: Table[Picture] = Table(
            look, columns, identity=lambda p, r: power.name_of(p, r), worst_first=True, id="power-table")
        self.lower = Document(look, id="power-detail")
        self.all = True
        self.lower.remake = self.draw_lower
        self.head.remake = self.draw

    def _called(self, picture: Picture, row: int) -> Span:
        return (power.name_of(picture, row), "title")

    def _bar(self, picture: Picture, row: int, column: str) -> Span:
        table = picture.view["feed"]
        ratio = table.value(column, row)
        if ratio is None:
            return (f"? {table.reason(column, row)}" if table.attrs[row].get("pair") or column == "share_ratio"
                    else "no pair", "unknown" if column == "share_ratio" else "muted")
        marks = power.marks(table, row, column)
        return (power.bar(self.look.glyphs, ratio, 20, marks), power.level(ratio, marks))

    def _share(self, picture: Picture, row: int, column: str) -> Span:
        table = picture.view["feed"]
        ratio = table.value(column, row)
        if ratio is None:
            paired = column == "share_ratio" or table.attrs[row].get("pair")
            return value(table, column, row) if paired else ("-", "muted")
        return (quantity(ratio, "ratio"), power.level(ratio, power.marks(table, row, column)))

    def _trend(self, picture: Picture, row: int) -> str:
        return power.trend(picture, row, 12, self.look.glyphs)

    def _source(self, picture: Picture, row: int) -> Span:
        table = picture.view["feed"]
        said = str(table.attrs[row].get("source") or "-").replace("estimated from", "est. from")
        return (said, "warning" if table.value("estimated", row) else "muted")

    def draw(self) -> None:
        """Draw totals, feeds and the one under the cursor."""
        picture = self.picture
        if picture is None:
            return
        self.split(self.lower, 2, 14, 60)
        shown = picture.shown_feeds
        rows = power.order(picture)
        states = picture.feed_states
        rows = rows[shown[rows]] if self.all else rows[shown[rows] & (states[rows] > 0)]
        self.head.put([self._totals(picture)])
        names = max((len(power.name_of(picture, row)) for row in rows.tolist()), default=8)
        self.table.give_width("feed", min(max(names, 8), 24 if self.table.wide >= 110 else 14))
        self.table.show(picture, rows, self._empty(picture))
        self.draw_lower()

    def _totals(self, picture: Picture) -> Line:
        table, devices = picture.view["feed"], picture.view["device"]
        states = picture.feed_states
        count = {state: int((states == state).sum()) for state in (CRITICAL, WARNING, UNKNOWN)}
        watts = table.col("watts")
        known = ~np.isnan(watts)
        guessed = int((table.col("estimated") == 1).sum())
        out: list[Span] = [
            (f" {len(table)} feed{'s' if len(table) != 1 else ''}", "title"),
            (f"  {count[CRITICAL]} critical", "critical" if count[CRITICAL] else "muted"),
            (f"  {count[WARNING]} warning", "warning" if count[WARNING] else "muted"),
            *([(f"  {count[UNKNOWN]} unknown", "unknown")] if count[UNKNOWN] else []),
            *([(f"  {guessed} estimated", "warning")] if guessed else []),
        ]
        if known.any():
            part = "" if known.all() else f" ({int(known.sum())} of {len(table)} feeds)"
            out.append((f"  {quantity(float(watts[known].sum()), 'W')}{part}", "text"))
        for kind, words in (("pdu", "PDUs"), ("bmc", "BMCs")):
            mine = np.array([picture.view.owners[node].kind == kind for node in devices.node.tolist()], np.bool_)
            if not mine.any():
                continue
            answers = int((devices.col("reachable")[mine] == 1).sum())
            all_there = answers == int(mine.sum())
            text = f"{answers} of {int(mine.sum())} {words} answer" if self.table.wide >= 100 else (
                f"{words} {answers}/{int(mine.sum())}")
            out.append((f"  {text}", "muted" if all_there else "unknown"))
        return tuple(out)

    def _empty(self, picture: Picture) -> tuple[str, str]:
        if not len(picture.view["feed"]):
            return (SETUP, "unknown")
        if picture.terms:
            return ("no feed matches the filter", "unknown")
        return ("every feed is well within its limits", "ok")

    def draw_lower(self) -> None:
        """The feed under the cursor."""
        if self.picture is None or not self.lower.display:
            return
        row = self.table.row
        self.lower.show_lines(
            [] if row is None else power.feed_lines(self.picture, row, self.look.glyphs, self.lower.wide))

    def toggle_all(self) -> str:
        """All feeds, or those in trouble only."""
        self.all = not self.all
        self.draw()
        return "all feeds, least headroom first" if self.all else "feeds in trouble or unknown only"

    def feed(self) -> str | None:
        """The name of the feed under the cursor."""
        row = self.table.row
        return None if row is None or self.picture is None else power.name_of(self.picture, row)

    def devices_of(self) -> int | None:
        """The PDU of the feed under the cursor."""
        row = self.table.row
        if row is None or self.picture is None:
            return None
        return self.picture.view.of.number("pdu", power.feed_of(self.picture, row).pdu)
