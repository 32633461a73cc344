"""Frames: tables in, JSON objects out, as ``wire/frame.py`` on the console describes and decodes them.

Pure: no clock, no file. A full frame names rows and columns and gives every value; the frames after it give
only what differs from it, so that a lost frame costs nothing but itself.
"""

import json
import math
import re

VERSION = 1
MAX_ROWS = 1024
MAX_COLUMNS = 512
MAX_TEXT = 512
MAX_LINE = 1 << 20
"""Longest payload that a console reads, in bytes."""

REPEATS = 2
"""A reading's tables are in so many frames; a group that is read seldom does not repeat them in each."""

_OFF = frozenset(["t", "iv", "n", "ms", "st"])
_BIG = 1 << 64
_SURROGATE = re.compile("[\ud800-\udfff]")
_DUMPS = json.JSONEncoder(separators=(",", ":")).encode
_MARKS = "@@CT1 {0} {1} {0} CT1@@\n"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple, Union

    Attr = Union[str, int, float, bool, List[str], None]
    Row = Tuple[str, Dict[str, Attr]]
    Cell = Union[int, float, str, "Err", None]


class Err(object):
    """A value that could not be read: an errno name such as ``EINVAL``, or NVML's own words."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Err) and other.reason == self.reason

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("Err", self.reason))

    def __repr__(self) -> str:
        return "Err({!r})".format(self.reason)


class Table(object):
    """Rows (key, attributes) and columns (names) of one kind of thing.

    ``cells`` is column-major: cell = column * rows + row. A cell is a number, raw text (``str``), an
    :class:`Err`, or None where this row has nothing of the kind. ``error`` says why the things could not be
    listed; the rows are then those of the last good listing. Beyond 1024 rows or 512 columns it is cut off.

    Raises:
        ValueError: the number of cells is not rows times columns.
    """

    __slots__ = ("cells", "columns", "error", "rows")

    def __init__(
        self, rows: "List[Row]", columns: "List[str]", cells: "List[Cell]", error: str = ""
    ) -> None:
        if len(cells) != len(rows) * len(columns):
            raise ValueError(
                "{} cells for {} rows and {} columns".format(len(cells), len(rows), len(columns))
            )
        if len(columns) > MAX_COLUMNS:
            columns = columns[:MAX_COLUMNS]
            cells = cells[: len(rows) * MAX_COLUMNS]
        if len(rows) > MAX_ROWS:
            count = len(rows)
            cells = [cell for at in range(len(columns)) for cell in cells[at * count : at * count + MAX_ROWS]]
            rows = rows[:MAX_ROWS]
        self.rows = rows
        self.columns = columns
        self.cells = cells
        self.error = error

    def same_layout(self, other: "Table") -> bool:
        """True where rows, their attributes and columns are those of *other*."""
        return (self.rows is other.rows or self.rows == other.rows) and (
            self.columns is other.columns or self.columns == other.columns
        )


class Group(object):
    """One group's part of a frame: its last reading and its state.

    ``t``: the node's monotonic time of the reading, seconds. ``iv``: the interval in effect, seconds; ``iw``: the one
    asked for, sent while ``iv`` is longer. ``ms``: what the reading took. ``st``: ``ok``, ``hung``, ``error``, ``off``,
    ``wait`` or ``released``. ``w``: while hung, the call that has not returned. ``e``: while in error or released,
    why. ``n``: number of readings made.
    """

    __slots__ = ("e", "iv", "iw", "ms", "n", "st", "t", "tables", "w")

    def __init__(
        self,
        t: float,
        iv: float,
        tables: "Optional[Dict[str, Table]]" = None,
        ms: float = 0.0,
        st: str = "ok",
        w: str = "",
        e: str = "",
        n: int = 0,
        iw: float = 0.0,
    ) -> None:
        self.t = t
        self.iv = iv
        self.iw = iw
        self.tables = tables if tables is not None else {}
        self.ms = ms
        self.st = st
        self.w = w
        self.e = e
        self.n = n


class Encoder(object):
    """Turns readings into frames; remembers the last full frame, from which the others are counted.

    A frame is full when it is the first, when :meth:`want_full` was called, when a table's rows or columns or
    the node's facts changed, and *full_every* seconds after the last full one.
    """

    def __init__(self, full_every: float = 60.0) -> None:
        self.full_every = full_every
        self._q = 0
        self._base = 0
        self._base_t = 0.0
        self._tables: "Dict[Tuple[str, str], Table]" = {}
        self._facts: "Dict[str, Attr]" = {}
        self._sent: "Dict[str, Tuple[Dict[str, Table], int, int, float]]" = {}
        """By group: tables and number of the reading that was sent last, and in how many frames it was."""
        self._wanted = True

    def want_full(self) -> None:
        """Make the next frame a full one."""
        self._wanted = True

    def encode(
        self,
        groups: "Dict[str, Group]",
        t: float,
        w: float,
        m: "Optional[Dict[str, float]]" = None,
        facts: "Optional[Dict[str, Attr]]" = None,
    ) -> "Dict[str, Any]":
        """Return the next frame, ready for :func:`line`.

        *t* is the node's monotonic clock and *w* its wall clock, seconds; *m* is what watching costs there;
        *facts* are the node's (they travel in full frames).
        """
        self._q += 1
        facts = dict(facts or {})
        tables = {(g, name): table for g, group in groups.items() for name, table in group.tables.items()}
        full = self._wanted or t - self._base_t >= self.full_every or facts != self._facts
        full = full or tables.keys() != self._tables.keys()
        full = full or not all(table.same_layout(self._tables[key]) for key, table in tables.items())
        if full:
            self._wanted = False
            self._base = self._q
            self._base_t = t
            self._tables = tables
            self._facts = facts
        frame: "Dict[str, Any]" = {
            "v": VERSION, "q": self._q, "b": self._base, "t": round(t, 3), "w": round(w, 3),
            "m": {name: _tidy(value) for name, value in (m or {}).items()},
            "g": {g: self._group(g, group, full) for g, group in groups.items()},
        }
        if full:
            frame["h"] = {_plain(name): _attr(value) for name, value in facts.items()}
        return frame

    def _group(self, g: str, group: Group, full: bool) -> "Dict[str, Any]":
        part: "Dict[str, Any]" = {"t": round(group.t, 3), "iv": _tidy(group.iv), "n": group.n}
        if 0 < group.iw < group.iv:
            part["iw"] = _tidy(group.iw)
        if group.ms:
            part["ms"] = round(group.ms, 1)
        if group.st != "ok":
            part["st"] = group.st
        if group.w:
            part["w"] = _plain(group.w)
        if group.e:
            part["e"] = _plain(group.e)
        tables, number, times, interval = self._sent.get(g, ({}, 0, 0, 0.0))
        times = times + 1 if tables is group.tables and number == group.n and not full else 1
        self._sent[g] = group.tables, group.n, times, group.iv
        if times > REPEATS and group.st == "off" and interval == group.iv and part.keys() <= _OFF:
            return {"n": group.n, "st": "off"}  # there is nothing of the kind: that is as new as the frame
        if times > REPEATS and tables:
            part["o"] = 1
            if group.st == "ok":
                part.pop("ms", None)
                if interval == group.iv and "iw" not in part:
                    del part["iv"]
            return part
        tb = {}
        for name, table in group.tables.items():
            coded = encode_table(table, None if full else self._tables[(g, name)])
            if coded or full:
                tb[name] = coded
        if tb:
            part["tb"] = tb
        return part


def encode_table(table: Table, base: "Optional[Table]" = None) -> "Dict[str, Any]":
    """Return a table's part of a frame: whole, or, given *base* of the same layout, what differs from it."""
    runs: "List[int]" = []
    numbers: "List[Union[int, float]]" = []
    at: "List[int]" = []
    texts: "List[str]" = []
    old = base.cells if base is not None else None
    end = -9
    cells = table.cells
    for index, cell in enumerate(cells):
        if old is not None:
            before = old[index]
            if cell is before or (cell == before and type(cell) is type(before)):
                continue
        kind = type(cell)
        if kind is int and -_BIG < cell < _BIG:  # type: ignore[operator]
            value: "Any" = cell
        elif kind is float and cell - cell == 0.0:  # type: ignore[operator]
            value = _tidy(cell)  # type: ignore[arg-type]
        elif cell is None and old is None:
            continue
        else:
            at.append(index)
            texts.append(_text(cell))
            continue
        # A new run costs about six characters; a short unchanged number between two changed ones costs less.
        if end == index:
            runs[-1] += 1
        elif end == index - 1 and _short(cells[end]):
            runs[-1] += 2
            numbers.append(_tidy(cells[end]))  # type: ignore[arg-type]
        else:
            runs += (index, 1)
        numbers.append(value)
        end = index + 1
    part: "Dict[str, Any]" = {}
    if runs:
        part["i"] = runs
        part["x"] = numbers
    if at:
        part["j"] = at
        part["s"] = texts
    if base is None:
        part["r"] = [
            {"k": _plain(key), "a": {_plain(name): _attr(value) for name, value in attrs.items()}}
            for key, attrs in table.rows
        ]
        part["c"] = [_plain(column) for column in table.columns]
    if table.error:
        part["e"] = _plain(table.error)
    return part


def line(frame: "Dict[str, Any]", nonce: str, max_line: int = MAX_LINE) -> bytes:
    """Return *frame* as the line that a console reads, marks and newline included (no marks without *nonce*).

    Where it is longer than *max_line* bytes, the largest groups go without their tables and say so.
    """
    text = _DUMPS(frame)
    if len(text) > max_line:
        frame = dict(frame, g=dict(frame["g"]))
        sizes = sorted((len(json.dumps(part)), g) for g, part in frame["g"].items())
        while len(text) > max_line and sizes:
            g = sizes.pop()[1]
            frame["g"][g] = dict(frame["g"][g], tb={}, st="error", e="more than a frame can carry")
            text = _DUMPS(frame)
    return (_MARKS.format(nonce, text) if nonce else text + "\n").encode("ascii")


def _short(cell: "Cell") -> bool:
    return isinstance(cell, (int, float)) and len(repr(cell)) < 5


def tenths(at: float) -> float:
    """A time in tenths of a second, rounded down: what has happened never lies ahead of the frame that tells it."""
    return math.floor(at * 10.0) / 10.0


def _tidy(value: "Union[int, float]") -> "Union[int, float]":
    """A number in as few characters as its meaning needs: three decimals, no ``.0``."""
    if type(value) is float:
        value = round(value, 3)
        if value == int(value):
            return int(value)
    return value


def _text(cell: "Cell") -> str:
    if cell is None:
        return "!not provided"
    if isinstance(cell, Err):
        return "!" + _plain(cell.reason)
    return "=" + _plain(str(cell))


def _attr(value: "Attr") -> "Attr":
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, float) and value - value != 0.0:
        return None
    if isinstance(value, (list, tuple)):
        return [_plain(str(one)) for one in value[:64]]
    return value


def _plain(text: str) -> str:
    """At most 512 characters, and no lone surrogates: bytes that were not UTF-8 become U+FFFD."""
    return _SURROGATE.sub("\ufffd", text[:MAX_TEXT])
