"""The working columns of one table: what the pure functions of this package read and fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.signals.metric import TableSpec


class Columns:
    """Values and reasons of a table, [columns, rows]; NaN where unknown.

    The arrays may be views of larger ones; they are changed in place.
    """

    __slots__ = ("attrs", "keys", "present", "row_node", "spec", "values", "why")

    def __init__(
        self,
        spec: TableSpec,
        values: NDArray[np.float64],
        why: NDArray[np.uint16],
        row_node: NDArray[np.int32],
        present: NDArray[np.bool_],
        keys: Sequence[str],
        attrs: Sequence[Mapping[str, Attr]],
    ) -> None:
        self.spec = spec
        self.values = values
        self.why = why
        self.row_node = row_node
        self.present = present
        self.keys = keys
        self.attrs = attrs

    @classmethod
    def empty(cls, spec: TableSpec, rows: int) -> Columns:
        """Columns of *rows* rows in which nothing is known yet."""
        shape = (len(spec.metrics), rows)
        return cls(
            spec, np.full(shape, np.nan), np.full(shape, Why.NEVER_READ, np.uint16), np.zeros(rows, np.int32),
            np.ones(rows, np.bool_), [""] * rows, [{} for _ in range(rows)],
        )

    def __len__(self) -> int:
        return int(self.values.shape[1])

    def col(self, name: str) -> NDArray[np.float64]:
        """The column *name*, [rows]."""
        out: NDArray[np.float64] = self.values[self.spec.index[name]]
        return out

    def why_of(self, name: str) -> NDArray[np.uint16]:
        """The reasons of column *name*, [rows]."""
        out: NDArray[np.uint16] = self.why[self.spec.index[name]]
        return out

    def set_why(self, name: str, rows: NDArray[np.bool_], code: int) -> None:
        """Give the unknown values of *name* in *rows* another reason."""
        column = self.why[self.spec.index[name]]
        column[rows] = code

    def put(
        self, name: str, values: NDArray[np.float64], unknown: int | NDArray[np.intp] = Why.NOT_PROVIDED
    ) -> None:
        """Fill column *name*; where *values* is NaN the reason is *unknown*."""
        number = self.spec.index[name]
        self.values[number] = values
        self.why[number] = np.where(np.isnan(values), unknown, Why.KNOWN)
