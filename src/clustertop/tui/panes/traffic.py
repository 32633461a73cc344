"""Screen 7: shares by scope, racks by racks, leaves with their uplinks; below, everything about the one chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Horizontal

from clustertop.quantity import quantity
from clustertop.tui import traffic
from clustertop.tui.cells import value
from clustertop.tui.panes.base import Pane
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.matrix import DENSITIES, RackMatrix
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from textual.app import ComposeResult

    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Look, Span

SIDE, TALL, LEAST = 118, 24, 4
"""From so many cells the matrix and the leaves stand side by side; from so many lines the detail always stands below
them, and on a smaller screen where so many are left."""
SCOPES, MATRIX, LEAVES, DETAIL = range(4)
NO_LEAF = "no leaf: name the leaf switches under [switches.NAME], or a fabric query under [fabric]"


def _order(column: str) -> Callable[[Picture], NDArray[np.float64]]:
    return lambda picture: picture.view["traffic"].col(column)


class TrafficPane(Pane):
    """Scopes above, the matrix and the leaves in the middle, one thing below."""

    TITLE: ClassVar[str] = "Traffic"

    def __init__(self, look: Look, *, id: str = "traffic") -> None:  # noqa: A002
        super().__init__(look, id=id)
        def share(name: str, head: str, rank: int, mark: str = "") -> Column[Picture]:
            def cell(picture: Picture, row: int) -> Span:
                text, style = value(picture.view["traffic"], name, row)
                known = picture.view["traffic"].value(name, row) is not None
                return (mark + text if known else text, style)
            return Column(head, 9, cell, _order(name), rank=rank)

        def trip(name: str, head: str, rank: int) -> Column[Picture]:
            return Column(head, 8, lambda p, r: traffic.trip(p.view["traffic"], name, r), _order(name), rank=rank)

        scopes: tuple[Column[Picture], ...] = (
            Column("state", 10, lambda p, r: self._state(p, r), lambda p: traffic.scope_states(p).astype(float), "<"),
            Column("scope", 12, lambda p, r: (traffic.name_of(p.view["traffic"], r), "title"),
                   lambda p: p.view["traffic"].keys, "<", down=False),
            Column("share", 8, lambda p, r: traffic.share_words(p.view["traffic"], r), _order("share_ratio")),
            Column("trend", 10, lambda p, r: (traffic.trend(p, r, 10, look.glyphs), "accent"), None, "<", rank=1),
            Column("read", 5, lambda p, r: traffic.read_words(p.view["traffic"], r), _order("coverage_ratio")),
            Column("bytes", 9, lambda p, r: value(p.view["traffic"], "bytes_per_second", r),
                   _order("bytes_per_second"), rank=2),
            Column("unplaced", 9, lambda p, r: traffic.part(p.view["traffic"], "unplaced_ratio", r),
                   _order("unplaced_ratio"), rank=3),
            share("socket_cross_rack_ratio", "rack tcp", 4),
            share("socket_spine_ratio", "spine tcp", 6),
            share("uplink_spine_ratio", "spine up", 5),
            share("fabric_spine_ratio", "spine ib", 8),
            share("nccl_cross_rack_ratio", "rack nccl", 7, "est "),
            share("predicted_cross_rack_ratio", "rack ring", 7, "pred "),
            share("disagreement_ratio", "disagree", 9),
            trip("rtt_within_seconds", "rtt in", 8),
            trip("rtt_across_seconds", "across", 8),
            trip("jitter_within_seconds", "jit. in", 9),
            trip("jitter_across_seconds", "across", 9),
            Column("of what, by which meter", 22, lambda p, r: traffic.meter_words(p.view["traffic"], r), None, "<",
                   grow=True, want=26),
        )
        leaves: tuple[Column[Picture], ...] = (
            Column("state", 10, lambda p, r: self._state(p, r), lambda p: traffic.scope_states(p).astype(float), "<"),
            Column("leaf", 10, lambda p, r: (traffic.name_of(p.view["traffic"], r), "title"),
                   lambda p: p.view["traffic"].keys, "<", down=False),
            Column("spine", 6, lambda p, r: traffic.share_words(p.view["traffic"], r), _order("share_ratio"), rank=1),
            Column("busiest uplink", 14, lambda p, r: self._bar(p, r), _order("uplink_load_ratio"), "<", rank=1),
            Column("load", 5, lambda p, r: self._load(p, r), _order("uplink_load_ratio")),
            Column("uneven", 6, lambda p, r: value(p.view["traffic"], "uplink_imbalance_ratio", r),
                   _order("uplink_imbalance_ratio")),
            Column("drops", 8, lambda p, r: self._bad(p, r, "uplink_discards_per_second"),
                   _order("uplink_discards_per_second")),
            Column("pause", 8, lambda p, r: self._bad(p, r, "uplink_pause_frames_per_second"),
                   _order("uplink_pause_frames_per_second"), rank=2),
            Column("down", 6, self._down, _order("uplinks_down")),
            Column("hosts in", 10, lambda p, r: value(p.view["traffic"], "host_in_bytes_per_second", r),
                   _order("host_in_bytes_per_second"), rank=3),
            Column("out", 10, lambda p, r: value(p.view["traffic"], "uplink_out_bytes_per_second", r),
                   _order("uplink_out_bytes_per_second"), rank=3),
            Column("by", 8, lambda p, r: (str(p.view["traffic"].attrs[r].get("meter") or "?"), "muted"), None, "<",
                   rank=4, grow=True),
        )

        def identity(picture: Picture, row: int) -> str:
            return picture.view["traffic"].keys[row]

        self.head = Bar(look, id="traffic-head")
        self.scopes: Table[Picture] = Table(look, scopes, identity=identity, worst_first=True, id="traffic-scopes")
        self.matrix = RackMatrix(look, id="traffic-matrix")
        self.leaves: Table[Picture] = Table(look, leaves, identity=identity, worst_first=True, id="traffic-leaves")
        self.lower = Document(look, id="traffic-detail")
        self.all = True
        self._states: tuple[Picture, NDArray[np.int8]] | None = None
        self.middle = MATRIX
        """Of what does not stand side by side: which one is shown."""
        self.subject = SCOPES
        """What the detail is about."""
        self.lower.remake = self.draw_lower
        self.head.remake = self.draw

    def compose(self) -> ComposeResult:
        """Meters, scopes, matrix and leaves, one of them."""
        yield self.head
        yield self.scopes
        with Horizontal(id="traffic-middle"):
            yield self.matrix
            yield self.leaves
        yield self.lower

    def parts(self) -> list[HeatMap | Table[Picture] | Document | RackMatrix]:
        """Scopes, matrix, leaves, detail."""
        return [self.scopes, self.matrix, self.leaves, self.lower]

    @property
    def table(self) -> Table[Picture]:
        """The table that is ordered by the keys: the one that they move in, else the scopes."""
        return self.leaves if self.part == LEAVES else self.scopes

    def next_part(self) -> None:
        """Move in the next list; one that has no room of its own comes in another's place."""
        self.part = (self.part + 1) % 4
        if self.part in {MATRIX, LEAVES}:
            self.middle = self.part
        elif self.part == DETAIL and self._little():
            self.middle = DETAIL
        if self.part != DETAIL:
            self.subject = self.part
        self.draw()

    # -- where things stand --------------------------------------------------------------------------------------

    def _little(self) -> bool:
        return self.size.height < TALL

    def _place(self, scopes: int) -> None:
        """Share the height out: the scopes take what they need, up to a third."""
        tall = max(self.size.height - len(self.head._made), 8)
        side, little = self.size.width >= SIDE, self._little()
        if not little and self.middle == DETAIL:
            self.middle = MATRIX
        middle = self.middle
        self.query_one("#traffic-middle").display = not (little and middle == DETAIL)
        self.matrix.display = side or middle == MATRIX
        self.leaves.display = side or middle == LEAVES
        above = min(scopes + 1, max(tall // 2 if little else tall // 3, 4))
        self.scopes.styles.height = above
        wide = self.size.width
        if side:
            wide = max(min(self.matrix.need, wide * 3 // 5), 50) if self.matrix.here is not None else wide * 3 // 5
        self.matrix.styles.width = wide if side else "1fr"
        racks = self.matrix.lines_in(wide)
        need = max(racks if self.matrix.display else 0, self.leaves.count() + 1 if self.leaves.display else 0)
        between = min(max(need, 4), tall - above if little else (tall - above) * 3 // 5)
        if little and middle == DETAIL:
            between = 0
        elif little and tall - above - between < LEAST:
            between = tall - above
        rest = tall - above - between
        self.query_one("#traffic-middle").styles.height = between
        self.lower.display = rest > 0
        self.lower.styles.height = max(rest, 1)

    # -- cells ---------------------------------------------------------------------------------------------------

    def _state(self, picture: Picture, row: int) -> Span:
        if self._states is None or self._states[0] is not picture:
            self._states = picture, traffic.scope_states(picture)
        return traffic.state_words(self.look.glyphs, int(self._states[1][row]))

    def _bar(self, picture: Picture, row: int) -> Span:
        load = picture.view["traffic"].value("uplink_load_ratio", row)
        if load is None:
            return value(picture.view["traffic"], "uplink_load_ratio", row)
        return (traffic.bar(self.look.glyphs, load, 14), traffic.load_style(load))

    def _load(self, picture: Picture, row: int) -> Span:
        load = picture.view["traffic"].value("uplink_load_ratio", row)
        if load is None:
            return value(picture.view["traffic"], "uplink_load_ratio", row)
        return (quantity(load, "ratio"), traffic.load_style(load))

    def _bad(self, picture: Picture, row: int, column: str) -> Span:
        found = picture.view["traffic"].value(column, row)
        return value(picture.view["traffic"], column, row, "warning" if found else "text")

    def _down(self, picture: Picture, row: int) -> Span:
        table = picture.view["traffic"]
        down, of = table.value("uplinks_down", row), table.value("uplinks", row)
        if down is None or of is None:
            return ("?", "unknown")
        # Those that were never seen up raise nothing, and are down all the same.
        dark = table.attrs[row].get("dark")
        never = len(dark) if isinstance(dark, list) else 0
        return (f"{down + never:.0f}/{of:.0f}", "critical" if down else "warning" if never else "text")

    # -- drawing -------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draw everything."""
        picture = self.picture
        if picture is None:
            return
        scopes, leaves = (traffic.filtered(picture, rows) for rows in (
            traffic.scope_rows(picture), traffic.leaf_rows(picture)))
        if not self.all:
            found = picture.severity("traffic")
            scopes, leaves = ([row for row in rows if found[row] > 0] for rows in (scopes, leaves))
        self.head.put(traffic.head_lines(picture, max(self.head.wide, 40)))
        table = picture.view["traffic"]
        for made, rows, column, least in ((self.scopes, scopes, "scope", 12), (self.leaves, leaves, "leaf", 8)):
            names = max((len(traffic.name_of(table, row)) for row in rows), default=least)
            made.give_width(column, min(max(names, least), 24 if self.size.width >= 110 else 14))
        read = max((len(traffic.read_words(table, row)[0]) for row in scopes), default=5)
        self.scopes.give_width("read", min(max(read, 5), 9))
        self.matrix.show(picture.view.traffic)
        self._place(max(len(scopes), 1))
        self.scopes.show(picture, scopes, self._empty(picture, "no scope"))
        self.leaves.show(picture, leaves, self._empty(picture, NO_LEAF))
        self.draw_lower()

    def _empty(self, picture: Picture, none: str) -> tuple[str, str]:
        if picture.terms:
            return ("nothing matches the filter", "unknown")
        return (none, "unknown") if self.all else ("nothing in trouble", "muted")

    def draw_lower(self) -> None:
        """The scope, the cell or the leaf under the cursor."""
        picture = self.picture
        if picture is None or not self.lower.display:
            return
        glyphs, wide = self.look.glyphs, max(self.lower.wide, 40)
        if self.subject == MATRIX:
            self.lower.show_lines(traffic.cell_lines(picture, self.matrix.here, self.matrix.there, glyphs, wide))
            return
        row = self.leaves.row if self.subject == LEAVES else self.scopes.row
        made = traffic.leaf_lines if self.subject == LEAVES else traffic.scope_lines
        self.lower.show_lines([] if row is None else made(picture, row, glyphs, wide))

    def on_table_moved(self, event: Table.Moved) -> None:
        """Another scope or leaf: another detail."""
        event.stop()
        self.draw_lower()

    def on_rack_matrix_moved(self, event: RackMatrix.Moved) -> None:
        """Another cell: another detail."""
        event.stop()
        self.draw_lower()

    def on_table_opened(self, event: Table.Opened) -> None:
        """The mouse opened a row: of the part that it is in."""
        self.part = self.subject = LEAVES if event.table is self.leaves else SCOPES

    def on_rack_matrix_opened(self, event: RackMatrix.Opened) -> None:
        """The mouse opened a rack."""
        self.part = self.subject = MATRIX

    # -- what keys do --------------------------------------------------------------------------------------------

    def toggle_all(self) -> str:
        """All scopes and leaves, or those in trouble only."""
        self.all = not self.all
        self.draw()
        return "all scopes and leaves" if self.all else "scopes and leaves in trouble only"

    def cycle_density(self) -> str:
        """Numbers, one digit a rack, or what fits."""
        self.matrix.density = (self.matrix.density + 1) % len(DENSITIES)
        self.draw()
        return DENSITIES[self.matrix.density]

    def term(self) -> str | None:
        """The filter's word that finds the nodes of the scope, leaf or rack under the cursor; empty: all nodes."""
        if self.picture is None:
            return None
        if self.subject == MATRIX:
            here = self.matrix.here
            return None if here is None else f"rack:{self.picture.view.traffic.racks[here]}"
        row = self.leaves.row if self.subject == LEAVES else self.scopes.row
        if row is None:
            return None
        kind, _, name = self.picture.view["traffic"].keys[row].partition("/")
        return f"{kind}:{name}" if name else ""

    def row_text(self) -> str:
        """The row, or the cell, as text."""
        here, there = self.matrix.here, self.matrix.there
        if self.subject == MATRIX and self.picture is not None and here is not None:
            found = self.picture.view.traffic
            rate = float(found.unplaced[here] if there is None else found.matrix[here, there])
            other = "in no rack" if there is None else found.racks[there]
            return f"{found.racks[here]} > {other}  {quantity(rate, 'B/s') if rate == rate else '?'}"
        return (self.leaves if self.subject == LEAVES else self.scopes).row_text()
