"""Screen o: what sets a node apart from its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clustertop.quantity import duration
from clustertop.tui.panes.base import Pane
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from collections.abc import Hashable

    from textual.app import ComposeResult

    from clustertop.tui.differences import Difference
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Look


class OutliersPane(Pane):
    """One line per difference: who, what, and what the peers have."""

    TITLE: ClassVar[str] = "Outliers"

    def __init__(self, look: Look, *, id: str = "outliers") -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.found: tuple[Difference, ...] = ()

        def text(name: str, width: int, of: str, style: str) -> Column[Picture]:
            return Column(name, width, lambda p, r: (getattr(self.found[r].first, of), style),
                          lambda p: [getattr(one.first, of) for one in self.found], "<", down=False)

        columns: tuple[Column[Picture], ...] = (
            text("property", 19, "what", "title"), text("node", 14, "node", "text"),
            Column("thing", 11, lambda p, r: (self.found[r].things, "text"),
                   lambda p: [one.things for one in self.found], "<", down=False),
            text("has", 13, "value", "info"),
            Column("peers have", 14, lambda p, r: (self.found[r].peers, "text"),
                   lambda p: [one.first.usual for one in self.found], "<", down=False, grow=True),
        )
        self.head = Bar(look, id="outliers-head")
        self.table: Table[Picture] = Table(look, columns, identity=self._identity, id="outlier-table")
        self.head.remake = self.draw

    def compose(self) -> ComposeResult:
        """What was compared above the list."""
        yield self.head
        yield self.table

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """The list."""
        return [self.table]

    def _identity(self, picture: Picture, row: int) -> Hashable:
        one = self.found[row].first
        return (one.node, one.label, one.what)

    def draw(self) -> None:
        """Draw the list."""
        picture = self.picture
        if picture is None:
            return
        differences = picture.atlas.differences
        self.found = differences.take(picture.view)
        rows = [row for row, one in enumerate(self.found)
                if picture.matches(picture.atlas.node_of.get(one.first.node),
                                   f"{' '.join(one.labels)} {one.words()}".lower())]
        known = sum(1 for facts in picture.view.facts if facts)
        nodes = len({one.first.node for one in self.found})
        unheard = len(picture.view.nodes) - known
        age = duration(max(picture.view.at - differences.at, 0.0))
        self.head.put([(
            (f" {len(self.found)} differences on {nodes} nodes", "title"),
            (f"  {known} nodes compared within their groups, {age} ago", "muted"),
            (f"  {unheard} have told nothing" if unheard else "", "unknown"))])
        self.table.name_width(picture.atlas.name_width)
        self.table.show(picture, rows, self._empty(picture, known, unheard))

    def _empty(self, picture: Picture, known: int, unheard: int) -> tuple[str, str]:
        if self.found:
            return (f"none of the {len(self.found)} differences matches the filter", "unknown")
        if not known:
            return (f"nothing is compared yet: 0 of {len(picture.view.nodes)} nodes have told what they are", "unknown")
        return (f"no node differs from its peers, of the {known} that were compared", "unknown" if unheard else "ok")

    def node(self) -> int | None:
        """The node of the difference."""
        row = self.table.row
        if row is None or self.picture is None:
            return None
        return self.picture.atlas.node_of.get(self.found[row].first.node)

    def row_text(self) -> str:
        """The difference in one sentence."""
        row = self.table.row
        if row is None:
            return ""
        one = self.found[row]
        where = " ".join((one.first.node, ", ".join(one.labels))).rstrip()
        return f"{where}: {one.words()}"
