"""How one node's cells lie in the store's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.wire.frame import Row


def runs_index(runs: list[int], cells: int) -> NDArray[np.intp]:
    """``[start, length, ...]`` → cell numbers. Raises ValueError for a run outside *cells* or more than all of them."""
    if len(runs) == 2:
        start, length = runs
        if start < 0 or length < 0 or start + length > cells:
            raise ValueError(f"a run of {length} cells at {start} in a table of {cells}")
        return np.arange(start, start + length, dtype=np.intp)
    index: list[int] = []
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        if start < 0 or length < 0 or start + length > cells or len(index) > cells:
            raise ValueError(f"a run of {length} cells at {start} in a table of {cells}")
        index.extend(range(start, start + length))
    return np.array(index, np.intp)


class Layout:
    """One node's part of a table, as its last full frame laid it out. Cells are numbered column-major."""

    __slots__ = ("_capacity", "_cells", "all_stored", "base", "base_has_text", "base_why", "columns", "complete",
                 "moved", "names", "rows", "runs", "sent", "sequence", "spare", "text_cells", "touched",
                 "touched_cells")

    def __init__(self, sequence: int, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
        self.sequence = sequence
        self.rows = rows
        """Local row to store row; -1: not stored."""
        self.columns = columns
        """Local column to store column; -1: a column that the console does not know."""
        self.all_stored = bool((rows >= 0).all())
        self.base: NDArray[np.float64] = np.empty(0)
        self.base_why: NDArray[np.uint16] = np.empty(0, np.uint16)
        self.base_has_text = False
        self.runs: list[int] = []
        self.touched: NDArray[np.intp] = np.empty(0, np.intp)
        self.touched_cells: NDArray[np.intp] = np.empty(0, np.intp)
        self.text_cells: NDArray[np.intp] | None = None
        self.moved = False
        self.spare: NDArray[np.intp] = np.empty(0, np.intp)
        """Cells that hold nothing and whose store column another local column fills."""
        self.names: list[str] = []
        """The local columns' names."""
        self.sent: list[Row] = []
        """The rows as the node sent them."""
        self.complete = False
        """Whether that listing was a good one: what it left out is gone."""
        self._capacity = 0
        self._cells: NDArray[np.intp] = np.empty(0, np.intp)

    def cells(self, capacity: int, buffer_size: int) -> NDArray[np.intp]:
        """Local cell to index in the store's flat buffer of *capacity* rows; its last element is a scrap cell."""
        if capacity != self._capacity:
            cells = self.columns[:, None] * capacity + self.rows[None, :]
            cells[self.columns < 0, :] = buffer_size - 1
            cells[:, self.rows < 0] = buffer_size - 1
            self._cells = cells.ravel()
            self._cells[self.spare] = buffer_size - 1
            self._capacity = capacity
            self.moved = True
        return self._cells
