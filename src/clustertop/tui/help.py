"""The help page, made from the action table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from clustertop.tui.actions import help_rows
from clustertop.tui.widgets.lines import BLANK
from clustertop.tui.widgets.table import Document

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from clustertop.tui.widgets.lines import Line, Look


def help_lines(look: Look) -> list[Line]:
    """Every key and what it does, and what the marks mean."""
    glyphs = look.glyphs
    out: list[Line] = [((" Keys", "title"), ("   any of Esc ? q closes this page", "muted")), BLANK]
    for group, rows in help_rows():
        out.append(((f" {group}", "head"),))
        for keys, words, where in rows:
            out.append(((f"   {keys:<17}", "accent"), (words, "text"), (f"   ({where})" if where else "", "muted")))
        out.append(BLANK)
    out.append(((" Marks", "head"),))
    for mark, style, words in (
        (glyphs.ok, "ok", "ok: judged, and nothing wrong"), (glyphs.info, "info", "information"),
        (glyphs.warning, "warning", "warn"), (glyphs.critical, "critical", "CRIT; of a node: also unreachable"),
        (glyphs.stale, "stale", "stale: the last reading is old, its value is not shown as if live"),
        (glyphs.unknown, "unknown", "unknown: could not be read; never shown as 0 or as ok"),
        (glyphs.lost, "lost", "lost: a GPU that does not answer or is no longer listed; a port that is down"),
        (glyphs.released, "info", "released: the operator had the GPUs let go; not read, not judged"),
        ("-", "muted", "not provided by this device, or not judged"),
    ):
        out.append((("   ", "text"), (mark, style), (f"   {words}", "text")))
    return out


class HelpScreen(ModalScreen[None]):
    """The page over whatever was there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,q,enter,space", "close", "close", show=False),
        Binding("up,k", "scroll(-1)", show=False), Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False), Binding("pagedown", "scroll(10)", show=False),
        Binding("home", "edge(False)", show=False), Binding("end", "edge(True)", show=False),
    ]
    DEFAULT_CSS = """
    HelpScreen { background: $background; }
    HelpScreen Document { width: 1fr; height: 1fr; }
    """

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.page = Document(look, id="help")

    def compose(self) -> ComposeResult:
        """The page."""
        yield self.page

    def on_mount(self) -> None:
        """Fill the page."""
        self.page.show_lines(help_lines(self.page.look))

    def action_close(self) -> None:
        """Back to the screen before."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Scroll the page."""
        self.page.move(0, lines)

    def action_edge(self, last: bool) -> None:
        """To an end of the page."""
        self.page.edge(last)
