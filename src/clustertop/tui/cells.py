"""One value as a table shows it: number and style, or the mark of what is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.model import Why
from clustertop.quantity import quantity
from clustertop.store.view import FRESH, LATE
from clustertop.tui.picture import STYLES, WORDS, mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.store.view import TableView
    from clustertop.tui.glyphs import Glyphs
    from clustertop.tui.widgets.lines import Line, Span

_NOTHING = frozenset({Why.NOT_PROVIDED, Why.NOT_SUPPORTED, Why.NOT_JUDGED, Why.NO_PERMISSION, Why.FIRST_READING,
                      Why.RELEASED})


def value(table: TableView, name: str, row: int, style: str = "text") -> Span:
    """A value with its unit; ``~`` for a stale one, ``?`` for an unknown one, ``-`` where there is none to know."""
    metric = table.spec.metric(name)
    number = table.values[table.spec.index[name], row]
    if number != number:
        return unknown(int(table.why[table.spec.index[name], row]))
    text = metric.words.get(int(number), "?") if metric.words else quantity(float(number), metric.unit)
    return (text, style if table.level[row] == FRESH else "stale")


def unknown(why: int) -> Span:
    """The mark of an unknown value."""
    if why == Why.STALE:
        return ("~", "stale")
    if why == Why.MIG:
        return ("n/a (MIG)", "muted")
    if why in _NOTHING:
        return ("-", "muted")
    return ("X", "critical") if why in {Why.GPU_LOST, Why.MISSING} else ("?", "unknown")


def number(amount: float, unit: str, style: str = "text") -> Span:
    """A worked-out number; ``?`` for NaN."""
    return ("?", "unknown") if amount != amount else (quantity(float(amount), unit), style)


def explained(table: TableView, name: str, row: int, style: str = "text") -> Span:
    """A value, or the reason why it is unknown, in words; a late one with its age."""
    text, made = value(table, name, row, style)
    reason = table.reason(name, row)
    if reason:
        return (f"? ({reason})", "unknown")
    if table.level[row] == LATE:
        return (f"{text} ~{quantity(float(table.age[row]), 's')} old", "stale")
    return (text, made)


def severity(glyphs: Glyphs, state: int) -> Span:
    """Glyph and word of a severity or of a node's state."""
    return (f"{mark(glyphs, state)} {WORDS[state]}", STYLES[state])


def pairs(given: Sequence[tuple[str, Span]], wide: int) -> list[Line]:
    """Names and values one after the other, in as many lines of *wide* cells as they need."""
    lines: list[list[Span]] = [[]]
    used = 0
    for name, (text, style) in given:
        size = len(name) + len(text) + 4
        if lines[-1] and used + size > wide:
            lines.append([])
            used = 0
        lines[-1] += [(f"   {name} ", "muted"), (text, style)]
        used += size
    return [tuple(line) for line in lines if line]


def title(text: str, note: str = "") -> Line:
    """A section's heading."""
    return ((text, "title"), (f"  {note}" if note else "", "muted"))


def wrap(text: str, width: int) -> list[str]:
    """Break *text* at blanks into lines of at most *width* characters."""
    out, line = [], ""
    for word in text.split():
        while len(word) > width:
            if line:
                out.append(line)
                line = ""
            out.append(word[:width])
            word = word[width:]
        if line and len(line) + 1 + len(word) > width:
            out.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*out, line] if line else out or [""]
