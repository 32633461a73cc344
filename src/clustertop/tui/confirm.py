"""A question that has to be answered before something is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from clustertop.tui.widgets.lines import BLANK
from clustertop.tui.widgets.table import Document

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from clustertop.tui.widgets.lines import Line, Look


class Confirm(ModalScreen[bool]):
    """The question over whatever was there. Only ``y`` says yes: Enter is pressed too easily.

    Args:
        look: what to draw with.
        question: one line.
        words: what it means, a line each.
        yes: what ``y`` does, in two or three words.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape,q", "answer(False)", show=False),
    ]
    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm Document { width: 76; max-width: 100%; max-height: 100%; height: auto; padding: 1 1; background: $panel; }
    """

    def __init__(self, look: Look, question: str, words: tuple[str, ...], yes: str) -> None:
        super().__init__()
        self.page = Document(look, id="confirm")
        lines: list[Line] = [((question, "title"),), BLANK, *(((text, "text"),) for text in words), BLANK,
                             (("y", "accent"), (f"  {yes}", "text"), ("      n Esc", "accent"),
                              ("  leave it as it is", "muted"))]
        self._lines = lines

    def compose(self) -> ComposeResult:
        """The page."""
        yield self.page

    def on_mount(self) -> None:
        """Fill the page."""
        self.page.styles.height = len(self._lines) + 2
        self.page.show_lines(self._lines)

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)
