"""Frames of what is not a node: rows and cells in, the same parts and bytes that a node's probe would have sent out.

A device's frame is always a full one, its ``t`` is the console's own monotonic clock. Pure functions.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import msgspec

from clustertop.text import clean
from clustertop.wire.frame import MAX_COLUMNS, MAX_FRAME, MAX_ROWS, VERSION, Frame, GroupPart, Row, TablePart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.model import Attr

Cell = float | str | None
"""A number; ``!why it is unknown`` or ``=raw text``; None: not provided."""
MAX_KEY = 96
MAX_WORD = 96
"""Longest name or label, in characters."""
MAX_WORDS = 300
"""Longest sentence, in characters."""
NOT_PROVIDED = "not provided"
_ENCODER = msgspec.json.Encoder()


def word(text: str) -> str:
    """A name, cleaned and short."""
    return clean(text, MAX_WORD)


def sentence(parts: Sequence[str]) -> str:
    """Several notes as one attribute."""
    return clean("; ".join(parts), MAX_WORDS)


def cell(number: float | None, why: str = "") -> Cell:
    """A number, or why there is none."""
    if number is None:
        return None if why in {"", NOT_PROVIDED} else f"!{clean(why, MAX_WORD)}"
    return float(number) if math.isfinite(number) else "!out of range"


def state(said: str, known: Mapping[str, int], why: str = "") -> Cell:
    """A state's word, where it is one of those that are *known*; else unknown, with the device's own words."""
    return f"={said}" if said in known else cell(None, why)


def table_part(rows: Sequence[Row], columns: Mapping[str, Sequence[Cell]], most: int = MAX_ROWS) -> TablePart:
    """The full part of a table: *rows*, and per column a cell of each of them.

    Keys that are said twice get a number. Rows beyond *most*, which a frame may hold, are left out; the part says so.
    """
    count = min(len(rows), most)
    names = [name for name, cells in columns.items() if any(one is not None for one in cells[:count])][:MAX_COLUMNS]
    runs: list[int] = []
    numbers: list[float] = []
    places: list[int] = []
    texts: list[str] = []
    at = 0
    for name in names:
        for one in columns[name][:count]:
            if isinstance(one, str):
                places.append(at)
                texts.append(one)
            elif one is not None:
                if runs and runs[-2] + runs[-1] == at:
                    runs[-1] += 1
                else:
                    runs += (at, 1)
                numbers.append(one)
            at += 1
    left_out = f"{len(rows)} rows; {count} are read" if len(rows) > count else ""
    return TablePart(runs, numbers, places, texts, _told_apart(rows[:count]), names, left_out)


def _told_apart(rows: Sequence[Row]) -> list[Row]:
    seen: dict[str, int] = {}
    out = []
    for row in rows:
        said = clean(row.k)
        key = said if len(said) <= MAX_KEY else f"{said[: MAX_KEY - 9]}~{_digest(row.k)}"
        seen[key] = seen.get(key, 0) + 1
        out.append(Row(f"{key}#{seen[key]}" if seen[key] > 1 else key, row.a))
    return out


def _digest(text: str) -> str:
    """Eight digits that are the same in every run; what is cut off a key must not make two of them one."""
    return f"{zlib.crc32(text.encode('utf-8', 'replace')):08x}"


def frame(sequence: int, at: float, wall: float, parts: Mapping[str, GroupPart], facts: Mapping[str, Attr],
          cost: Mapping[str, float]) -> Frame:
    """A device's frame, *at* our monotonic clock and *wall* (epoch seconds)."""
    return Frame(VERSION, sequence, sequence, at, wall, dict(cost), dict(parts), dict(facts))


def encoded(made: Frame) -> tuple[Frame, bytes]:
    """Return *made* and its bytes, as ``wire.frame.decode`` reads them; rows too many for a frame are left out.

    Names are bounded, so this happens only to a device that means harm.
    """
    raw = _ENCODER.encode(made)
    while len(raw) > MAX_FRAME:
        name, table, part = max(
            ((name, table, part) for name, group in made.g.items() for table, part in group.tb.items()),
            key=lambda one: len(one[2].r or ()))
        if not part.r:
            made = msgspec.structs.replace(made, g={}, h={})
        else:
            group = made.g[name]
            tables = {**group.tb, table: _halved(part)}
            made = msgspec.structs.replace(made, g={**made.g, name: msgspec.structs.replace(group, tb=tables)})
        raw = _ENCODER.encode(made)
    return made, raw


def _halved(part: TablePart) -> TablePart:
    rows, names = part.r or [], part.c or []
    cells: list[Cell] = [None] * (len(rows) * len(names))
    given = iter(part.x)
    for start, length in zip(part.i[::2], part.i[1::2], strict=True):
        for place in range(start, start + length):
            cells[place] = next(given)
    for place, text in zip(part.j, part.s, strict=True):
        cells[place] = text
    keep, tall = len(rows) // 2, len(rows)
    columns = {name: cells[number * tall:number * tall + keep] for number, name in enumerate(names)}
    less = table_part(rows[:keep], columns)
    return msgspec.structs.replace(less, e=f"too much for one frame; {keep} rows are read")


__all__ = ["Cell", "GroupPart", "Row", "cell", "encoded", "frame", "sentence", "state", "table_part", "word"]
