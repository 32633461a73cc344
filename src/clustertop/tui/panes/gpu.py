"""The page of one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clustertop.tui.gpus import gpu_lines
from clustertop.tui.panes.base import Pane
from clustertop.tui.widgets.table import Document, Table

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Line, Look


class GpuPane(Pane):
    """Everything about one GPU, as one page."""

    TITLE: ClassVar[str] = "GPU"

    def __init__(self, look: Look, *, id: str = "gpu") -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.page = Document(look, id="gpu-page")
        self.row: int | None = None
        """Row of the GPU table; None: of a node that has none."""
        self.number: int | None = None
        """The node."""
        self.page.remake = self.draw

    def compose(self) -> ComposeResult:
        """The page."""
        yield self.page

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """The page."""
        return [self.page]

    def node(self) -> int | None:
        """The node of the GPU."""
        return self.number

    def open(self, picture: Picture, node: int, row: int | None = None) -> None:
        """Show *row* of the GPU table, or the GPU of *node* that is worst off."""
        slots = self.slots(picture, node)
        if row is None and slots:
            row = max(slots, key=lambda slot: (int(picture.gpu_severity[slot]), -slots.index(slot)))
        self.number, self.row = node, row
        self.page.scroll_to(y=0, animate=False)

    @staticmethod
    def slots(picture: Picture, node: int) -> list[int]:
        """Rows of the node's GPUs, in the order of their indices."""
        if not len(picture.atlas.gpus):
            return []
        return [row for row in picture.atlas.gpus[node].tolist() if row >= 0]

    def draw(self) -> None:
        """Draw the page."""
        if self.picture is not None and self.number is not None:
            self.page.show_lines(self._lines(self.picture, self.number))

    def _lines(self, picture: Picture, node: int) -> list[Line]:
        if self.row is None or self.row >= len(picture.view["gpu"]):
            return [((f" {picture.atlas.names[node]}  ", "title"), ("no GPU of this node is known", "unknown"))]
        out = gpu_lines(picture, self.row, self.look.glyphs, self.page.wide)
        table = picture.view["gpu"]
        for one in picture.atlas.differences.of(picture.view, picture.view.nodes[node].name, table.labels[self.row]):
            out.insert(1, ((f"   differs: {one.words()}", "info"),))
        return out

    def step(self, by: int) -> str:
        """Go to the next GPU, on the next node after the last one; returns its name."""
        picture = self.picture
        if picture is None or self.number is None:
            return ""
        every = [(node, row) for node in range(len(picture.view.nodes)) if picture.shown_nodes[node]
                 for row in self.slots(picture, node)]
        if not every:
            return ""
        here = (self.number, self.row)
        at = every.index(here) + by if here in every else 0
        self.number, self.row = every[at % len(every)]
        self.page.scroll_to(y=0, animate=False)
        self.draw()
        return f"{picture.atlas.names[self.number]} {picture.view['gpu'].labels[self.row]}"

    def row_text(self) -> str:
        """The page's first line."""
        return self.page.text_of(0).strip() if self.page.count() else ""
