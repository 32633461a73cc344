"""A scrolling list of lines, of which only those on the screen are made and only those that changed are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip

from clustertop.tui.glyphs import UNICODE, Glyphs

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.style import Style
    from textual import events

    from clustertop.tui.theme import Palette

Span = tuple[str, str]
"""Text and the name of its style."""
Line = tuple[Span, ...]

BLANK: Line = ()
MOST_RUNS = 4
"""More changed pieces than this in one line are drawn as one."""


@dataclass(slots=True)
class Look:
    """What all widgets draw with; changed in place when the theme changes."""

    palette: Palette
    glyphs: Glyphs = UNICODE


class _PlainScrollBar(ScrollBarRender):
    """A bar of blanks: no eighths of blocks, whose width terminals do not agree on and ASCII does not have."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8


ScrollBar.renderer = _PlainScrollBar


class LineView(ScrollView, can_focus=False, inherit_bindings=False):
    """Base of everything that the console draws.

    A subclass says how many lines there are (:meth:`count`) and makes one (:meth:`build`); :meth:`changed` compares
    what the screen shows with what it should show, and asks for the differing cells alone to be drawn.
    """

    HEAD: ClassVar[int] = 0
    """Lines at the top that do not scroll."""

    DEFAULT_CSS = """
    LineView { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.look = look
        self.remake: Callable[[], None] | None = None
        """Called at another size, where what is shown was made for the old one."""
        self.built = 0
        """Lines made so far; tests count work by it."""
        self.asked = 0
        """Regions asked to be drawn so far."""
        self._lines: dict[int, Line] = {}
        self._strips: dict[int, tuple[Line, Strip]] = {}
        self._width = 0
        self._base: Style | None = None
        self._styles: dict[str, Style] = {}

    # -- for subclasses ------------------------------------------------------------------------------------------

    def count(self) -> int:
        """How many lines there are, without the head."""
        return 0

    def build(self, y: int) -> Line:
        """Make line *y*."""
        return BLANK

    def build_head(self, y: int) -> Line:
        """Make head line *y*."""
        return BLANK

    def lay_out(self) -> None:
        """The width changed: work out what depends on it."""

    # -- drawing -------------------------------------------------------------------------------------------------

    @property
    def wide(self) -> int:
        """Cells that a line has."""
        return max(self.scrollable_content_region.width, 0)

    @property
    def tall(self) -> int:
        """Lines visible below the head."""
        return max(self.scrollable_content_region.height - self.HEAD, 0)

    @property
    def top(self) -> int:
        """First visible line."""
        return int(self.scroll_offset.y)

    def changed(self) -> None:
        """The content may have changed: draw what differs."""
        if not self.is_attached:
            return
        size = Size(max(self.wide, 1), self.HEAD + self.count())
        if size != self.virtual_size:
            self.virtual_size = size
        width = self.wide
        if width != self._width:
            self._width = width
            self.lay_out()
            self.redraw()
            return
        old, self._lines = self._lines, {}
        for y in self._visible():
            line = self._line(y)
            before = old.get(y)
            if before != line:
                self._ask(y, before, line)

    def redraw(self) -> None:
        """Draw every line anew (another theme, another width)."""
        self._lines = {}
        self._strips = {}
        self._base = None
        self._styles = {}
        self.refresh()

    def notify_style_update(self) -> None:
        """Other colours from the style sheet: nothing made before holds."""
        super().notify_style_update()
        self._strips = {}
        self._base = None
        self._styles = {}

    def _visible(self) -> list[int]:
        """Numbers of the lines on the screen; those of the head are negative."""
        return [*range(-self.HEAD, 0), *range(self.top, self.top + self.tall)]

    def _line(self, y: int) -> Line:
        line = self._lines.get(y)
        if line is None:
            self.built += 1
            if y < 0:
                line = self.build_head(y + self.HEAD)
            else:
                line = self.build(y) if y < self.count() else BLANK
            self._lines[y] = line
        return line

    def _ask(self, y: int, before: Line | None, line: Line) -> None:
        row = y + self.HEAD if y < 0 else y - self.top + self.HEAD
        if before is None or len(before) != len(line):
            self.asked += 1
            self.refresh(Region(0, row, max(self._width, 1), 1))
            return
        start = 0
        runs: list[tuple[int, int]] = []
        for old, new in zip(before, line, strict=True):
            text = new[0]
            width = len(text) if text.isascii() else cell_len(text)
            if old is not new and old != new:
                if width != (len(old[0]) if old[0].isascii() else cell_len(old[0])):
                    runs = [(0, max(self._width, 1))]
                    break
                if runs and runs[-1][0] + runs[-1][1] >= start - 2:
                    runs[-1] = (runs[-1][0], start + width - runs[-1][0])
                else:
                    runs.append((start, width))
            start += width
        if len(runs) > MOST_RUNS:
            runs = [(runs[0][0], runs[-1][0] + runs[-1][1] - runs[0][0])]
        for left, width in runs:
            self.asked += 1
            self.refresh(Region(left, row, width, 1))

    def render_line(self, y: int) -> Strip:
        """One line of the screen, from what was made before; a line that scrolled in is made now."""
        number = y - self.HEAD if y < self.HEAD else y - self.HEAD + self.top
        line = self._line(number)
        width = self.wide
        held = self._strips.get(number)
        if held is not None and held[0] is line and held[1].cell_length == width:
            return held[1]
        strip = self._strip(line, width)
        if len(self._strips) > 400:
            self._strips.clear()
        self._strips[number] = (line, strip)
        return strip

    def _strip(self, line: Line, width: int) -> Strip:
        """Pieces of one style made into one segment, cut or padded to *width* cells."""
        styles, glyphs = self._styles, self.look.glyphs
        segments: list[Segment] = []
        run, running = "", ""
        for text, name in line:
            if name != running:
                if run:
                    segments.append(Segment(run, styles.get(running) or self._style(running)))
                run, running = "", name
            run += text
        if run:
            segments.append(Segment(run, styles.get(running) or self._style(running)))
        if glyphs.ascii:
            segments = [Segment(glyphs.plain(segment.text), segment.style) for segment in segments]
            size = sum(len(segment.text) for segment in segments)
        else:
            size = sum(len(text) if text.isascii() else cell_len(text) for text, _, _ in segments)
        if size < width:
            segments.append(Segment(" " * (width - size), self._style(running or "text")))
            return Strip(segments, width)
        return Strip(segments, size).crop(0, width) if size > width else Strip(segments, width)

    def _style(self, name: str) -> Style:
        """The style called *name* on this widget's background."""
        if self._base is None:
            self._base = self.rich_style
        made = self._styles[name] = self._base + self.look.palette.style(name)
        return made

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Another part of the list: lines made for the old one are dropped."""
        super().watch_scroll_y(old_value, new_value)
        if len(self._lines) > 400:
            self._lines = {}

    def on_resize(self, event: events.Resize) -> None:
        """Draw at the new size."""
        if self.remake is not None:
            self.remake()
        self.changed()

    def text_of(self, y: int) -> str:
        """Line *y* as plain text, for copying and for tests."""
        return "".join(text for text, _ in self.build(y)).rstrip()

    def show_line(self, y: int, *, also: int = 0) -> None:
        """Scroll as little as needed to have line *y* (and *also* lines above it) on the screen."""
        top, tall = self.top, self.tall
        if tall <= 0:
            return
        if y - also < top:
            self.scroll_to(y=max(0, y - also), animate=False)
        elif y >= top + tall:
            self.scroll_to(y=y - tall + 1, animate=False)


def span(text: str, style: str = "text") -> Span:
    """A piece of a line."""
    return (text, style)


def cursor_line(line: Line) -> Line:
    """The same line under the cursor."""
    return tuple((text, f"{style}@") for text, style in line)
