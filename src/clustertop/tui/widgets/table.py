"""A long table: fixed column widths, rows made only when they are visible, the cursor on a thing and not on a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from textual.message import Message

from clustertop.tui.widgets.lines import BLANK, Line, LineView, Look, Span, cursor_line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray
    from textual import events

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column over rows that are numbers in some picture ``T``."""

    name: str
    """Its head, and what the sort is called."""
    width: int
    cell: Callable[[T, int], Span]
    order: Callable[[T], NDArray[np.float64] | Sequence[str]] | None = None
    """Values of all rows to sort by; NaN sorts last. None: not sortable."""
    align: str = ">"
    rank: int = 0
    """Columns of higher rank go first when the screen is narrow."""
    grow: bool = False
    """Takes what width is left."""
    want: int = 0
    """Of a growing column: cells it should have before columns of higher rank come in."""
    down: bool = True
    """Sorts from large to small at first."""


class Table(LineView, Generic[T]):
    """Rows of a picture."""

    HEAD: ClassVar[int] = 1

    class Moved(Message):
        """The cursor stands on another row, or on none."""

        def __init__(self, table: Table[Any], row: int | None) -> None:
            super().__init__()
            self.table, self.row = table, row

    class Opened(Message):
        """The row was asked for by the mouse."""

        def __init__(self, table: Table[Any], row: int) -> None:
            super().__init__()
            self.table, self.row = table, row

    def __init__(
        self, look: Look, columns: Sequence[Column[T]], *, identity: Callable[[T, int], Hashable] | None = None,
        worst_first: bool = False, id: str | None = None,  # noqa: A002
    ) -> None:
        """Make an empty table.

        Args:
            look: how things are drawn.
            columns: its columns.
            identity: what a row stands for, whatever its place.
            worst_first: a cursor on the first row stays on the first row, whatever that is: else a list whose order
                moves takes the cursor down with it, and what has just gone wrong is out of sight above.
            id: of the widget.
        """
        super().__init__(look, id=id)
        self._worst_first = worst_first
        self.columns = tuple(columns)
        self.picture: T | None = None
        self.rows: list[int] = []
        self.empty: tuple[str, str] = ("", "muted")
        """What is said where there is no row."""
        self.widths: dict[str, int] = {}
        """Widths that depend on the fleet, by column name."""
        self.place = 0
        self.sorted_by: int | None = None
        """Column number of the operator's own order; None: the table's order."""
        self.reverse = False
        self._identity = identity or (lambda picture, row: row)
        self._held: Hashable = None
        self._shown: list[tuple[Column[T], int]] = []

    # -- what is shown -------------------------------------------------------------------------------------------

    def show(self, picture: T, rows: NDArray[np.intp] | Sequence[int], empty: tuple[str, str] = ("", "muted")) -> None:
        """Draw *rows* of *picture*, in the given order unless the operator sorts by a column."""
        self.picture, self.empty = picture, empty
        self.rows = self._sort(picture, np.asarray(rows, np.intp))
        self._follow()
        self.changed()

    def name_width(self, width: int) -> None:
        """Give the column ``node`` as much as the names need, within reason."""
        self.give_width("node", min(max(width, 8), 24 if self.wide >= 110 else 14))

    def give_width(self, name: str, width: int) -> None:
        """Give the column *name* another width."""
        if self.widths.get(name) != width:
            self.widths[name] = width
            self._width = 0

    def _sort(self, picture: T, rows: NDArray[np.intp]) -> list[int]:
        if self.sorted_by is None or not len(rows):
            own: list[int] = rows.tolist()
            return own[::-1] if self.reverse else own
        column = self.columns[self.sorted_by]
        assert column.order is not None
        values = column.order(picture)
        if isinstance(values, np.ndarray):
            mine = values[rows]
            down = column.down != self.reverse
            key = np.where(np.isnan(mine), np.inf, -mine if down else mine)
            ordered: list[int] = rows[np.argsort(key, kind="stable")].tolist()
            return ordered
        return sorted(rows.tolist(), key=lambda row: values[row], reverse=column.down != self.reverse)

    def _follow(self) -> None:
        """Keep the cursor on its thing; where that has gone, at its place."""
        if not self.rows:
            self.place = 0
            return
        if self._held is not None and self.picture is not None and (self.place or not self._worst_first):
            here = min(self.place, len(self.rows) - 1)
            if self._identity(self.picture, self.rows[here]) != self._held:
                found = next((at for at, row in enumerate(self.rows)
                              if self._identity(self.picture, row) == self._held), None)
                if found is not None:
                    seen = self.top <= self.place < self.top + self.tall
                    self.place = found
                    if seen:
                        self.call_after_refresh(self.show_line, found)
        self.place = min(self.place, len(self.rows) - 1)
        self._hold()

    def _hold(self) -> None:
        row = self.row
        self._held = None if row is None or self.picture is None else self._identity(self.picture, row)

    @property
    def row(self) -> int | None:
        """The row under the cursor."""
        return self.rows[self.place] if 0 <= self.place < len(self.rows) else None

    def lay_out(self) -> None:
        """Choose the columns that fit, those of low rank first."""
        room = self.wide
        chosen: set[int] = set()
        reserve = 0
        for number, column in sorted(enumerate(self.columns), key=lambda pair: (pair[1].rank, pair[0])):
            width = self.widths.get(column.name, column.width)
            if width + 1 + reserve <= room or not chosen:
                chosen.add(number)
                room -= width + 1
                if column.grow:
                    reserve = max(column.want - column.width, 0)
        shown = [(self.columns[number], self.widths.get(self.columns[number].name, self.columns[number].width))
                 for number in sorted(chosen)]
        room = max(room + 1, 0)
        growing = [at for at, (column, _) in enumerate(shown) if column.grow]
        if growing and room:
            column, width = shown[growing[-1]]
            shown[growing[-1]] = (column, width + room)
        self._shown = shown

    def count(self) -> int:
        """Rows; one line for the words that stand for none."""
        return len(self.rows) or 1

    def build_head(self, y: int) -> Line:
        """Column heads, with the order's mark."""
        glyphs, out = self.look.glyphs, []
        for column, width in self._shown:
            head = column.name
            sorting = self.sorted_by is not None and self.columns[self.sorted_by] is column
            if sorting:
                head += glyphs.descending if column.down != self.reverse else glyphs.ascending
            out.append((glyphs.fit(head, width, column.align), "accent" if sorting else "head"))
            out.append((" ", "text"))
        return tuple(out)

    def build(self, y: int) -> Line:
        """One row."""
        if self.picture is None:
            return BLANK
        if not self.rows:
            text, style = self.empty
            return ((self.look.glyphs.fit(f" {text}", max(self.wide, 1)), style),) if y == 0 else BLANK
        if y >= len(self.rows):
            return BLANK
        row, fit, out = self.rows[y], self.look.glyphs.fit, []
        for column, width in self._shown:
            text, style = column.cell(self.picture, row)
            out.append((fit(text, width, column.align), style))
            out.append((" ", "text"))
        line = tuple(out)
        return cursor_line(line) if y == self.place else line

    def row_text(self) -> str:
        """The row under the cursor as plain text, for copying."""
        if self.row is None or self.picture is None:
            return ""
        cells = (column.cell(self.picture, self.row)[0].strip() for column in self.columns)
        return "  ".join(cell for cell in cells if cell)

    # -- the cursor and the order --------------------------------------------------------------------------------

    def move(self, dx: int, dy: int) -> None:
        """Move the cursor down by *dy* rows."""
        if dy and self.rows:
            self.go(self.place + dy)

    def edge(self, last: bool) -> None:
        """Move to the first or the last row."""
        self.go(len(self.rows) - 1 if last else 0)

    def go(self, place: int) -> None:
        """Put the cursor at *place*."""
        self.place = min(max(place, 0), max(len(self.rows) - 1, 0))
        self._hold()
        self.show_line(self.place)
        self.changed()
        self.post_message(self.Moved(self, self.row))

    def cycle_sort(self, step: int) -> str:
        """Sort by the next sortable column; returns its name, or empty for the table's own order."""
        able = [None, *(number for number, column in enumerate(self.columns) if column.order is not None)]
        self.sorted_by = able[(able.index(self.sorted_by) + step) % len(able)]
        self.reverse = False
        self._again()
        return "" if self.sorted_by is None else self.columns[self.sorted_by].name

    def flip(self) -> None:
        """Turn the order round."""
        self.reverse = not self.reverse
        self._again()

    def _again(self) -> None:
        if self.picture is not None:
            self.show(self.picture, sorted(self.rows), self.empty)

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one opens the row."""
        place = int(event.y) - self.HEAD + self.top
        if event.y >= self.HEAD and place < len(self.rows):
            self.go(place)
            if event.chain == 2 and self.row is not None:
                self.post_message(self.Opened(self, self.row))


class Document(LineView):
    """Lines made beforehand: details, counters, help. The cursor is the scroll offset."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self._body: list[Line] = []

    def show_lines(self, lines: list[Line]) -> None:
        """Draw *lines*."""
        self._body = lines
        self.changed()

    def count(self) -> int:
        """Lines there are."""
        return len(self._body)

    def build(self, y: int) -> Line:
        """Line *y*."""
        return self._body[y] if y < len(self._body) else BLANK

    def move(self, dx: int, dy: int) -> None:
        """Scroll."""
        self.scroll_to(y=self.scroll_offset.y + dy, animate=False)

    def edge(self, last: bool) -> None:
        """Scroll to an end."""
        self.scroll_to(y=self.count() if last else 0, animate=False)
