"""A node's BMC in band: lines of ipmitool in the node's own frames become the tables of a BMC.

The probe sends text (``probe/ipmi.py``); what it means is the same as over the network (``sources/ipmi_text.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from clustertop.sources import ipmi_read, ipmi_text
from clustertop.wire.frame import TablePart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clustertop.sources.bmc_reading import BmcReading
    from clustertop.wire.frame import Frame, GroupPart, Row

GROUP, TABLE, COLUMN = "bmc", "ipmi", "text"
SOURCE = "in-band"
_NOT_PROVIDED = "!not provided"


def reading(lines: Mapping[str, str], taken_at: float | None = None, notes: str = "") -> BmcReading:
    """Return what lines of ipmitool say.

    Args:
        lines: by ``sdr/N`` (of ``sdr elist all``), ``dcmi/N`` and ``power/N``, in order.
        taken_at: when they were asked for, our monotonic clock.
        notes: what could not be asked.
    """
    texts = {name: "\n".join(text for key, text in lines.items() if key.startswith(name + "/"))
             for name in ("sdr", "dcmi", "power")}
    found = ipmi_read.read(ipmi_text.sensors(texts["sdr"]), ipmi_text.dcmi(texts["dcmi"]),
                           host_power=ipmi_text.host_power(texts["power"]), taken_at=taken_at)
    return replace(found, source=SOURCE, notes=(notes,) if notes else ())


class InBand:
    """Turns the group ``bmc`` of one node's frames into that of a BMC; every other group is left as it is."""

    def __init__(self, to_part: Callable[[BmcReading, float], GroupPart]) -> None:
        """*to_part* makes a full part of a reading: ``poll.bmc_frames.bmc_part``."""
        self._to_part = to_part
        self._base = 0
        self._keys: tuple[str, ...] = ()
        self._lines: list[str] = []
        self._notes = ""
        self._layout: dict[str, tuple[list[Row] | None, list[str] | None]] = {}

    def convert(self, frame: Frame, at: float | None = None) -> tuple[Frame, bool]:
        """Return the frame to be stored, and whether it is whole; if not, ask the node for a full one.

        Args:
            frame: of the node.
            at: when it arrived, our monotonic clock.
        """
        part = frame.g.get(GROUP)
        if part is None or (TABLE not in part.tb and not self._keys):
            return frame, True
        if frame.full:
            self._take(frame.q, part.tb.get(TABLE))
        elif part.o:
            return frame, True
        elif frame.b != self._base:
            return _without(frame), False
        if not self._keys:
            return _with(frame, part, {}), True
        made = self._to_part(self._read(part.tb.get(TABLE), at, frame, part), part.t).tb
        layout = {name: (one.r, one.c) for name, one in made.items()}
        if frame.full:
            self._layout = layout
        elif layout != self._layout:
            return _without(frame), False
        else:
            made = {name: _changes(one) for name, one in made.items()}
        return _with(frame, part, made), True

    def _take(self, sequence: int, table: TablePart | None) -> None:
        self._base = sequence
        rows = table.r if table is not None and table.r is not None and table.c == [COLUMN] else []
        self._keys = tuple(row.k for row in rows)
        self._notes = next((str(row.a["notes"]) for row in rows if "notes" in row.a), "")
        self._lines = [""] * len(rows)
        if table is not None:
            _fill(self._lines, table)

    def _read(self, table: TablePart | None, at: float | None, frame: Frame, part: GroupPart) -> BmcReading:
        lines = list(self._lines)
        if table is not None and not frame.full:
            _fill(lines, table)
        taken = None if at is None else at - max(frame.t - part.t, 0.0)
        return reading(dict(zip(self._keys, lines, strict=True)), taken, self._notes)


def _fill(lines: list[str], table: TablePart) -> None:
    for cell, text in zip(table.j, table.s, strict=True):
        if 0 <= cell < len(lines):
            lines[cell] = text[1:] if text.startswith("=") else ""


def _changes(table: TablePart) -> TablePart:
    """The same as what differs from an earlier one: every cell, also those that are not provided."""
    count = len(table.r or ()) * len(table.c or ())
    told = set(table.j)
    for start, length in zip(table.i[::2], table.i[1::2], strict=True):
        told.update(range(start, start + length))
    missing = [cell for cell in range(count) if cell not in told]
    return TablePart(i=table.i, x=table.x, j=[*table.j, *missing], s=[*table.s, *[_NOT_PROVIDED] * len(missing)],
                     e=table.e)


def _with(frame: Frame, part: GroupPart, tables: dict[str, TablePart]) -> Frame:
    group = msgspec.structs.replace(part, tb=tables)
    return msgspec.structs.replace(frame, g={**frame.g, GROUP: group})


def _without(frame: Frame) -> Frame:
    """The frame without the group: with it and no tables it would say that all is as in the last full one."""
    return msgspec.structs.replace(frame, g={name: part for name, part in frame.g.items() if name != GROUP})
