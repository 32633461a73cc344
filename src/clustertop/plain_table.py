"""A table as aligned lines of text, and its rows for JSON."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Severity, Why

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clustertop.store.view import TableView

SEVERITY_WORDS = {Severity.OK: "ok", Severity.INFO: "info", Severity.WARNING: "warn", Severity.CRITICAL: "CRIT"}


def cells(text: str) -> int:
    """Columns that *text* takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
               for char in text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """*text* filled up with blanks to *width* columns, or cut to it with an ellipsis."""
    if cells(text) > width:
        cut = ""
        for char in text:
            if cells(cut + char) > width - 1:
                break
            cut += char
        text = cut + "…"
    blanks = " " * max(width - cells(text), 0)
    return blanks + text if right else text + blanks


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 2, widest: int = 60) -> list[str]:
    """Aligned lines; the first *left* columns to the left, the others to the right, the last one free."""
    body = [list(row) for row in rows]
    every = [list(head), *body]
    widths = [min(max(cells(row[column]) for row in every), widest) for column in range(len(head))]
    lines = []
    for row in every:
        line = [pad(cell, widths[column], right=column >= left) for column, cell in enumerate(row[:-1])]
        lines.append("  ".join([*line, row[-1]]).rstrip())
    return lines


def row_object(table: TableView, row: int) -> dict[str, object]:
    """A row of a view's table for JSON: every reading with unit, age and, where it is unknown, why."""
    age = float(table.age[row])
    readings: dict[str, object] = {}
    # Each sensor of a BMC has its own unit.
    own = str(table.attrs[row].get("unit") or "") if table.spec.name == "sensor" else ""
    for column, metric in enumerate(table.spec.metrics):
        value = float(table.values[column, row])
        unknown = value != value
        absent = unknown and table.why[column, row] in {Why.NOT_PROVIDED, Why.NEVER_READ}
        if absent and metric.raw.startswith(("c:", "h:")):
            continue  # counters that this kind of port does not have would bury the others
        entry: dict[str, object] = {"value": None if unknown else value, "unit": metric.unit or own}
        if unknown:
            entry["unknown"] = table.reason(metric.name, row)
        elif metric.words:
            entry["text"] = metric.words.get(int(value))
        readings[metric.name] = entry
    return {"key": table.keys[row], "label": table.labels[row], "present": bool(table.present[row]),
            "attrs": dict(table.attrs[row]), "age_seconds": None if np.isinf(age) else round(age, 3),
            "readings": readings}
