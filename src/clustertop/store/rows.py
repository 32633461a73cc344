"""Rows as nodes and devices send them, made fit to be kept: cleaned, one text where one is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.signals import nccl_table, rdma
from clustertop.store.layout import runs_index
from clustertop.text import clean
from clustertop.wire.frame import Row

if TYPE_CHECKING:
    from clustertop.model import Attr
    from clustertop.store.table import Table
    from clustertop.wire.frame import TablePart

LISTS = frozenset({"path", "mig_layout", "jobs", "netdevs", "members", "addresses", "monitors"}) | nccl_table.LISTS
"""Attributes that are lists; "unclassified" is one too, but no node sends it."""


def unclassified(rows: list[Row], part: TablePart, table: Table) -> list[Row]:
    """Give each port the names of its counters that no column of ours holds and the catalogue does not know."""
    unknown = rdma.unclassified(part.c or (), table.spec.raw_index)
    if not unknown or not rows:
        return rows
    given = {*runs_index(part.i, len(rows) * len(part.c or ())).tolist(), *part.j}
    names = [sorted(clean(file, 64) for column, file in unknown if column * len(rows) + number in given)
             for number in range(len(rows))]
    return [Row(row.k, {**row.a, "unclassified": mine[:32]}) if mine else row
            for row, mine in zip(rows, names, strict=True)]


def clean_row(row: Row) -> Row:
    """A row fit to be shown; what was clean already is shared with what was sent, not held twice."""
    attrs = {clean(key, 40): attribute(value if key in LISTS else _one_text(value)) for key, value in row.a.items()}
    return Row(clean(row.k, 128), row.a if attrs == row.a else attrs)


def told_apart(rows: list[Row]) -> list[Row]:
    """The rows, with a number behind each key that an earlier row has: ``/mnt/a``, ``/mnt/a (2)``.

    Names that differ on the node may be one once they are cleaned or spelt our way. None of the two is dropped, and the
    rest of what the node tells does not suffer for them.
    """
    if len({row.k for row in rows}) == len(rows):
        return rows
    sent = {row.k for row in rows}
    taken: set[str] = set()
    found = []
    for row in rows:
        key, number = row.k, 1
        while key in taken or (number > 1 and key in sent):
            number += 1
            key = f"{row.k} ({number})"
        taken.add(key)
        found.append(row if key == row.k else Row(key, row.a))
    return found


def _one_text(value: Attr) -> Attr:
    """What our own probe sends as one text is one text, whatever a node sends: it is compared and counted."""
    return " ".join(value[:32]) if isinstance(value, list) else value


def attribute(value: Attr) -> Attr:
    """An attribute fit to be shown."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean(item, 64) for item in value[:32]]
    return value
