"""A frame: what the probe prints once a tick, decoded and checked.

A frame is one JSON object. Its groups hold tables; a *full* frame names each table's rows (identity and text
attributes) and columns and gives every value, a later one gives only what differs from the last full frame, whose
sequence number it names. So a lost frame costs nothing but itself.

Cells are numbered column-major: cell = column * rows + row. Numbers travel in ``x`` at the runs named in ``i``
(``[start, length, start, length, ...]``); everything else travels as text in ``s`` at the cells named in ``j``:
``=raw text``, or ``!reason`` for a value that could not be read.
"""

from __future__ import annotations

import msgspec

from clustertop.model import Attr  # noqa: TC001 - msgspec reads the annotations
from clustertop.text import clean

VERSION = 1
MAX_ROWS = 1024
"""Most rows a node may have in one table."""
MAX_PORTS = 2560
"""Most rows of table ``uplink``: the leaves of a fabric have more ports than a node has of anything."""
MAX_COLUMNS = 512
MAX_FRAME = 1 << 20
"""Longest payload accepted, in bytes."""



class Row(msgspec.Struct, frozen=True, gc=False):
    """One thing: its identity within the node, and text about it as the node gave it."""

    k: str
    a: dict[str, Attr] = {}


class TablePart(msgspec.Struct, frozen=True, gc=False):
    """A table's part of a frame. ``r`` and ``c`` are present in full frames only."""

    i: list[int] = []
    x: list[float] = []
    j: list[int] = []
    s: list[str] = []
    r: list[Row] | None = None
    c: list[str] | None = None
    e: str = ""
    """Why the things could not be listed; then the rows are those of the last good listing."""


class GroupPart(msgspec.Struct, frozen=True, gc=False):
    """A group's part: ``t`` is the node's monotonic time of the reading, ``ms`` what it took, ``iv`` the interval."""

    t: float = 0.0
    """Left out of a group that has nothing to read and has said so before: it is as new as the frame."""
    iv: float = 0.0
    """0: that of before, of a reading that is an old one."""
    iw: float = 0.0
    """The interval that was asked for, where ``iv`` has been stretched; else 0."""
    ms: float = 0.0
    st: str = "ok"
    """``ok``, ``hung``, ``error``, ``off`` (nothing of the kind on this node), ``wait`` (not read yet) or ``released``
    (the operator had the devices let go; ``e`` says so)."""
    w: str = ""
    """While hung: the call that has not returned."""
    e: str = ""
    """While in error: the reason."""
    n: int = 0
    """How many readings the group has made; two frames with the same number carry the same reading."""
    o: int = 0
    """1: the reading is an old one; its tables were in earlier frames and are not repeated."""
    tb: dict[str, TablePart] = {}


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One tick of one node."""

    v: int
    q: int
    """Sequence number, from 1."""
    b: int
    """Sequence number of the full frame that this one is counted from; equal to ``q`` in a full frame."""
    t: float
    """The node's monotonic clock, seconds."""
    w: float
    """The node's wall clock, seconds since the epoch; only its offset from ours is ever used."""
    m: dict[str, float] = {}
    """What watching costs there: ``cpu`` (seconds so far), ``rss`` (bytes), ``nvml`` (seconds in NVML this tick),
    ``skipped`` (frames not sent because the last one was not out yet)."""
    g: dict[str, GroupPart] = {}
    h: dict[str, Attr] | None = None
    """In full frames: the node's facts (host name, kernel, boot id, python, driver ...)."""

    @property
    def full(self) -> bool:
        """True for a full frame."""
        return self.b == self.q


class FrameError(ValueError):
    """A payload that is not a frame. The text says what is wrong, cleaned."""


_DECODER = msgspec.json.Decoder(Frame)


def decode(payload: bytes) -> Frame:
    """Return the frame in *payload*.

    Raises:
        FrameError: it is not JSON, not a frame, of another version, or larger than a frame may be.
    """
    if len(payload) > MAX_FRAME:
        raise FrameError(f"a frame of {len(payload)} bytes; at most {MAX_FRAME} are read")
    try:
        frame = _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FrameError(clean(f"not a frame: {error}", 160)) from None
    if frame.v != VERSION:
        raise FrameError(f"frame version {frame.v}; this console reads {VERSION}")
    for group, part in frame.g.items():
        for name, table in part.tb.items():
            wrong = _wrong(table, MAX_PORTS if name == "uplink" else MAX_ROWS)
            if wrong:
                raise FrameError(f"{clean(group, 40)}.{clean(name, 40)}: {wrong}")
    return frame


def _wrong(table: TablePart, most: int) -> str:
    """What is wrong with a table's part of at most so many rows; empty if nothing is."""
    if len(table.j) != len(table.s):
        return f"{len(table.j)} text cells but {len(table.s)} texts"
    if len(table.i) % 2:
        return "a run without a length"
    if table.r is not None and (len(table.r) > most or len(table.c or ()) > MAX_COLUMNS):
        return f"more than {most} rows or {MAX_COLUMNS} columns"
    return ""
