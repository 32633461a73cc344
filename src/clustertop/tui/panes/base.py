"""What every screen has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.bars import Bar
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Look
    from clustertop.tui.widgets.matrix import RackMatrix
    from clustertop.tui.widgets.table import Document, Table


class Pane(Vertical):
    """A screen: it gets a picture by attribute and draws it when it is the one in front."""

    TITLE: ClassVar[str] = ""

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.look = look
        self.picture: Picture | None = None
        self.part = 0

    def show(self, picture: Picture) -> None:
        """Take *picture* and draw it."""
        self.picture = picture
        self.draw()

    def draw(self) -> None:
        """Draw ``self.picture``."""

    def parts(self) -> Sequence[HeatMap | Table[Picture] | Document | RackMatrix]:
        """The lists that keys can move in, the main one first."""
        return []

    @property
    def target(self) -> HeatMap | Table[Picture] | Document | RackMatrix:
        """The list that keys move in."""
        parts = self.parts()
        return parts[self.part % len(parts)]

    def next_part(self) -> None:
        """Move in the next list that is visible."""
        parts = self.parts()
        for step in range(1, len(parts) + 1):
            at = (self.part + step) % len(parts)
            if parts[at].display and parts[at].tall > 0:
                self.part = at
                return

    def node(self) -> int | None:
        """The node under the cursor."""
        return None

    def devices_of(self) -> int | None:
        """The owner (node or device) whose devices are looked at: they are read in full while they are."""
        return None

    def row_text(self) -> str:
        """What "copy" copies."""
        return ""

    def split(self, lower: Document | Table[Picture], share: int = 3, least: int = 18, most: int = 12) -> None:
        """Give *lower* a part of the height, or hide it where there is too little."""
        tall = self.size.height
        lower.display = tall >= least
        lower.styles.height = min(max(tall // share, 5), most)


class ListPane(Pane):
    """Totals, a list, and below it everything about the row under the cursor."""

    head: Bar
    table: Table[Picture]
    lower: Document

    def compose(self) -> ComposeResult:
        """Totals, list, detail."""
        yield self.head
        yield self.table
        yield self.lower

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """List and detail."""
        return [self.table, self.lower]

    def draw_lower(self) -> None:
        """Draw what is below the list."""

    def row_moved(self) -> None:
        """The cursor stands on another row: another detail."""
        self.draw_lower()

    def on_table_moved(self, event: Table.Moved) -> None:
        """Another row."""
        event.stop()
        self.row_moved()

    def row_text(self) -> str:
        """The row as text."""
        return self.table.row_text()
