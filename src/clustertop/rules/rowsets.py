"""Sets of verdicts, kept as flags over the rows of each rule's table: a storm is thousands of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]


class RowSet:
    """A set of (rule, row)."""

    def __init__(self) -> None:
        self._flags: dict[str, NDArray[np.bool_]] = {}

    def __bool__(self) -> bool:
        return any(flags.any() for flags in self._flags.values())

    def add(self, rule: str, rows: Rows) -> None:
        """Put *rows* of *rule* in."""
        if not len(rows):
            return
        flags = self._flags.get(rule, np.zeros(0, np.bool_))
        more = int(rows.max()) + 1 - len(flags)
        if more > 0:
            flags = self._flags[rule] = np.pad(flags, (0, max(more, len(flags))))
        flags[rows] = True

    def discard(self, rule: str, rows: Rows) -> None:
        """Take *rows* of *rule* out; those that are not in it do not matter."""
        flags = self._flags.get(rule)
        if flags is not None:
            flags[rows[rows < len(flags)]] = False

    def without(self, rule: str, rows: Rows) -> Rows:
        """Those of *rows* that are not in it."""
        return rows[~self.member(rule, rows)]

    def member(self, rule: str, rows: Rows) -> NDArray[np.bool_]:
        """[rows] whether it is in it."""
        flags = self._flags.get(rule)
        out = np.zeros(len(rows), np.bool_)
        if flags is not None:
            known = rows < len(flags)
            out[known] = flags[rows[known]]
        return out
