"""A question with a choice, a time and a reason, answered before something is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from clustertop.text import clean
from clustertop.tui.widgets.lines import BLANK, cursor_line
from clustertop.tui.widgets.table import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from clustertop.tui.widgets.lines import Line, Look, Span

MOST_REASON = 200
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the operator chose."""

    choice: int
    time: int
    reason: str


class Ask(ModalScreen[Answer | None]):
    """The question over whatever was there. Enter does it, Esc leaves all as it is.

    Args:
        look: what to draw with.
        question: one line.
        choices: what can be done, a line each; Up and Down choose.
        times: for how long, in words; Tab chooses. Empty: no such question.
        does: what Enter does, in two or three words.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "choose(-1)", show=False), Binding("down", "choose(1)", show=False),
        Binding("tab", "time(1)", show=False), Binding("shift+tab", "time(-1)", show=False),
        Binding("escape", "leave", show=False),
    ]
    DEFAULT_CSS = """
    Ask { align: center middle; }
    Ask #ask { width: 76; max-width: 100%; max-height: 100%; height: auto; padding: 1 1; background: $panel; }
    Ask Document { height: auto; background: $panel; }
    Ask Input { height: 1; border: none; padding: 0 1; background: $background; }
    Ask Input:focus { border: none; }
    """

    def __init__(
        self, look: Look, question: str, choices: Sequence[str], times: Sequence[str], does: str, *, time: int = 0,
    ) -> None:
        super().__init__()
        self._look, self._question, self._does = look, question, does
        self._choices, self._times = tuple(choices), tuple(times)
        self.choice, self.time = 0, time
        self.page, self.keys = Document(look, id="ask-page"), Document(look, id="ask-keys")
        self.page.remake = self._draw

    def compose(self) -> ComposeResult:
        """Question, reason, keys."""
        with Vertical(id="ask"):
            yield self.page
            yield Input(id="ask-reason", placeholder="reason, for those who see it later", max_length=MOST_REASON,
                        select_on_focus=False)
            yield self.keys

    def on_mount(self) -> None:
        """Fill the page and take the keys."""
        box = self.query_one("#ask-reason", Input)
        box.cursor_blink = False
        box.focus()
        self._draw()

    def _draw(self) -> None:
        fit, wide = self._look.glyphs.fit, max(self.page.wide, 20)
        pointer = self._look.glyphs.pointer
        out: list[Line] = [((fit(self._question, wide), "title"),), BLANK]
        for number, words in enumerate(self._choices):
            mine = number == self.choice
            line: Line = ((f" {pointer if mine else ' '} ", "accent"), (fit(words, wide - 3), "text"))
            out.append(cursor_line(line) if mine else line)
        if self._times:
            spans: list[Span] = [(" for ", "muted")]
            for number, words in enumerate(self._times):
                spans.append((f" [{words}] " if number == self.time else f"  {words}  ",
                              "title" if number == self.time else "muted"))
            out += [BLANK, tuple(spans)]
        out.append(BLANK)
        self.page.styles.height = len(out)
        self.page.show_lines(out)
        keys: list[Span] = [("Enter", "accent"), (f" {self._does}", "text")]
        if len(self._choices) > 1:
            keys += [("   Up Down", "accent"), (" what", "muted")]
        if self._times:
            keys += [("   Tab", "accent"), (" for how long", "muted")]
        keys += [("   Esc", "accent"), (" leave it as it is", "muted")]
        self.keys.styles.height = 2
        self.keys.show_lines([BLANK, tuple(keys)])

    def action_choose(self, step: int) -> None:
        """Another choice."""
        self.choice = (self.choice + step) % len(self._choices)
        self._draw()

    def action_time(self, step: int) -> None:
        """Another time."""
        if self._times:
            self.time = (self.time + step) % len(self._times)
            self._draw()

    def action_leave(self) -> None:
        """Close without an answer."""
        self.dismiss(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with the answer."""
        event.stop()
        self.dismiss(Answer(self.choice, self.time, clean(event.value.strip(), MOST_REASON)))

    def on_input_changed(self, event: Input.Changed) -> None:
        """What is typed here is nobody else's."""
        event.stop()
