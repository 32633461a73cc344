"""Racks by racks as a heat map: bytes from the row's rack to the column's, and a column for what is in no rack."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np
from textual.message import Message

from clustertop.quantity import quantity
from clustertop.tui.cells import wrap
from clustertop.tui.theme import STEPS
from clustertop.tui.widgets.lines import BLANK, Line, LineView, Look, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from textual import events

    from clustertop.store.traffic_picture import TrafficPicture

AUTO, NUMBERS, DENSE = 0, 1, 2
DENSITIES = ("auto", "numbers", "dense")
LEVELS = 9
"""Of one digit: each is half of the one above it."""
_NAME, _LONG = 12, 3
_CELL = 6
_UNPLACED = "none"


def short_rate(rate: float) -> str:
    """``142G``, ``1.2M``, ``940``: at most four characters; ``?`` for an unknown rate, ``.`` for none.

    Rates are running means, which never quite reach nothing: less than a byte a second is none.
    """
    if rate != rate:
        return "?"
    if rate < 1:
        return "."
    size, power = rate, 0
    while size >= 999.5 and power < 5:
        size /= 1000.0
        power += 1
    digits = f"{size:.1f}" if size < 9.95 and power else f"{size:.0f}"
    return f"{digits}{('', 'k', 'M', 'G', 'T', 'P')[power]}"


def octave(rate: float, most: float) -> int:
    """1 to :data:`LEVELS`, by how many halvings a rate is below *most*; what is still less is 1, none is 0."""
    if not rate >= 1 or not most >= 1:
        return 0
    return max(1, LEVELS - int(math.log2(max(most / rate, 1.0)) + 1e-9))


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts ``r2`` before ``r10``."""
    return tuple((0, int(part), "") if part.isdecimal() and len(part) < 19 else (1, 0, part)
                 for part in re.split(r"([0-9]+)", name) if part)


def _common(names: tuple[str, ...]) -> int:
    """Characters that all *names* begin with, numbers left whole."""
    if len(names) < 2:
        return 0
    first, last = min(names), max(names)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other),
                min(len(first), len(last)) - 1)
    return len(first[:same].rstrip("0123456789"))


class RackMatrix(LineView):
    """The matrix. The cursor moves over cells; of a large one only the cells on the screen are made."""

    class Moved(Message):
        """The cursor stands on another cell."""

    class Opened(Message):
        """The rack of the cursor's row was asked for by the mouse."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.HEAD = 2  # type: ignore[misc]  # names across stand one below the other where cells are narrow
        self.traffic: TrafficPicture | None = None
        self.density = AUTO
        self.dense = False
        self.row = self.column = 0
        self.left = 0
        """First column on the screen."""
        self._order: list[int] = []
        """Racks as they stand here, by their numbers in the picture."""
        self._names: tuple[str, ...] = ()
        self._short: tuple[str, ...] = ()
        self._name_cells = 4
        self._most = 0.0
        self._least: NDArray[np.bool_] = np.zeros((0, 0), np.bool_)
        self._asked_names: object = None
        self.remake = self.fit

    # -- what is shown -------------------------------------------------------------------------------------------

    def show(self, traffic: TrafficPicture) -> None:
        """Draw *traffic*."""
        self.traffic = traffic
        if traffic.racks is not self._asked_names:
            self._asked_names = traffic.racks
            self._order = sorted(range(len(traffic.racks)), key=lambda rack: natural(traffic.racks[rack]))
            self._names = tuple(self.look.glyphs.plain(traffic.racks[rack]) for rack in self._order)
            common = _common(self._names)
            self._short = tuple(name[common:] for name in self._names)
            self._name_cells = min(max((len(name) for name in self._names), default=4), _NAME)
        matrix = traffic.matrix
        apart = matrix[~np.isnan(matrix)]
        self._most = float(apart.max()) if len(apart) else 0.0
        whole = traffic.rack_read >= traffic.rack_nodes
        self._least = ~(whole[:, None] | whole[None, :]) if len(whole) else np.zeros((0, 0), np.bool_)
        self.row = min(self.row, max(len(self._names) - 1, 0))
        self.column = min(self.column, len(self._names))
        self.fit()
        self.changed()

    def fit(self) -> None:
        """Numbers where all columns have room, else one character a rack."""
        count = len(self._names)
        room = self.wide - self._name_cells - 1 - _CELL
        self.dense = self.density == DENSE or (self.density == AUTO and count * _CELL > room)
        longest = max((len(name) for name in self._short), default=1)
        head = 1 + (min(longest, _LONG) if self.dense else 1) if count else 0
        if head != self.HEAD:
            self.HEAD = head  # type: ignore[misc]
            self._width = 0
        self._see()

    @property
    def cell(self) -> int:
        """Characters of one cell."""
        return 1 if self.dense else _CELL

    @property
    def need(self) -> int:
        """Characters that all of it would take with numbers."""
        return self._name_cells + 1 + _CELL * (len(self._names) + 1)

    @property
    def across(self) -> int:
        """Columns of racks that are on the screen."""
        return max(min((self.wide - self._name_cells - 1 - _CELL) // self.cell, len(self._names)), 1)

    def _see(self) -> None:
        """Have the cursor's column on the screen; that of what is not placed always is."""
        count, across = len(self._names), self.across
        at = min(self.column, count - 1)
        self.left = max(min(self.left, at, count - across), at - across + 1, 0)

    def count(self) -> int:
        """Racks; where there are none, the lines that say what to configure."""
        return len(self._names) or len(self._words(self.wide))

    def lines_in(self, wide: int) -> int:
        """How many lines all of it would take in so many cells."""
        return self.HEAD + len(self._names) if self._names else len(self._words(wide))

    def _words(self, wide: int) -> list[str]:
        if self.traffic is None:
            return []
        said = self.traffic.sentences or ("no rack map",)
        return wrap(said[0], max(wide - 2, 20))

    def build_head(self, y: int) -> Line:
        """What the cells mean; then the names of the racks across."""
        last = min(self.left + self.across, len(self._names))
        if y == 0:
            return self._legend(last)
        out: list[Span] = [(" " * (self._name_cells + 1), "text")]
        for column in range(self.left, last):
            name, style = self._short[column], "title" if column == self.column else "head"
            if self.dense:
                tail = name[-_LONG:].rjust(self.HEAD - 1)
                out.append((tail[y - 1], style))
            else:
                out.append((self.look.glyphs.fit(name, _CELL - 1, ">") + " ", style))
        if y == self.HEAD - 1:
            style = "title" if self.column == len(self._names) else "head"
            out.append((f"{_UNPLACED:>{_CELL - 1}}", style))
        return tuple(out)

    def _legend(self, last: int) -> Line:
        scale = f"9 = {quantity(self._most, 'B/s')}, 8 half of it, ..." if self.dense else "B/s"
        part = "" if self.left == 0 and last == len(self._names) else (
            f"  {self.left + 1}-{last} of {len(self._names)} racks")
        return ((" row to column  ", "title"), (f"{scale}  ? unread  . nothing{part}", "muted"))

    def build(self, y: int) -> Line:
        """The row of one rack: its name, the cells on the screen, what it exchanges with what is in no rack."""
        traffic = self.traffic
        if traffic is None:
            return BLANK
        if not self._names:
            words = self._words(self.wide)
            return ((f" {words[y]}", "unknown"),) if y < len(words) else BLANK
        on = y == self.row
        out: list[Span] = [(self.look.glyphs.fit(self._names[y], self._name_cells) + " ", "title" if on else "text")]
        here = self._order[y]
        rates = traffic.matrix[here]
        for column in range(self.left, min(self.left + self.across, len(self._names))):
            there = self._order[column]
            out.append(self._cell(float(rates[there]), bool(self._least[here, there]), on and column == self.column))
        rate = float(traffic.unplaced[here])
        at = "@" if on and self.column == len(self._names) else ""
        style = "unknown" if rate != rate else "text" if rate else "muted"
        out.append((f"{short_rate(rate):>{_CELL - 1}}", style + at))
        return tuple(out)

    def _cell(self, rate: float, least: bool, on: bool) -> Span:
        level, at = octave(rate, self._most), "@" if on else ""
        if rate != rate:
            style = "unknown"
        elif not level:
            style = "unknown" if least else "muted"
        elif least and self.dense:
            style = "warning"
        else:
            style = f"load{min((level - 1) * STEPS // LEVELS, STEPS - 1)}"
        if self.dense:
            # Of racks that are read in part, nothing seen is not nothing.
            text = "?" if rate != rate or (not level and least) else str(level) if level else "."
            return (text, style + at)
        text = "?" if not level and least else short_rate(rate) + ("+" if least and level else "")
        return (f"{text:>{_CELL - 1}} ", style + at)

    # -- the cursor ----------------------------------------------------------------------------------------------

    @property
    def here(self) -> int | None:
        """The rack of the cursor's row, by its number in the picture."""
        return self._order[self.row] if self.row < len(self._order) else None

    @property
    def there(self) -> int | None:
        """The rack of the cursor's column; None: what is in no rack."""
        return self._order[self.column] if self.column < len(self._order) else None

    def move(self, dx: int, dy: int) -> None:
        """Move the cursor."""
        self.go(self.row + dy, self.column + dx)

    def edge(self, last: bool) -> None:
        """To the first or the last rack, in both directions."""
        end = len(self._names) if last else 0
        self.go(end, end)

    def go(self, row: int, column: int) -> None:
        """Put the cursor on a cell and show it."""
        count = len(self._names)
        if not count:
            return
        self.row, self.column = min(max(row, 0), count - 1), min(max(column, 0), count)
        self._see()
        self.show_line(self.row)
        self.changed()
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one opens the rack of the row."""
        row = int(event.y) - self.HEAD + self.top
        x = int(event.x) - self._name_cells - 1
        if event.y < self.HEAD or not 0 <= row < len(self._names):
            return
        column = self.left + x // self.cell if x >= 0 else self.column
        self.go(row, column if column < self.left + self.across else len(self._names))
        if event.chain == 2:
            self.post_message(self.Opened())
