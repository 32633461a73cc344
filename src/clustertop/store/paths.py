"""Which PCIe device hangs below which, which of them is which GPU, and how wide each should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals import pcie
from clustertop.signals.units import pci_key
from clustertop.store.drops import WidthDrops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.model import Attr, NodeInfo
    from clustertop.store.history import History
    from clustertop.store.table import Table


class PciePaths:
    """Relations between rows of the PCIe and GPU tables, renewed node by node when a layout changes."""

    def __init__(
        self,
        table: Table,
        gpus: Table,
        nodes: Sequence[NodeInfo],
        expect: Callable[[NodeInfo, str, Mapping[str, Attr]], float | None],
        history: History,
    ) -> None:
        self._table, self._gpus, self._nodes, self._expect = table, gpus, nodes, expect
        self._capacity = 0
        self._chain = np.empty((pcie.MAX_HOPS, 0), np.intp)
        self._join = np.empty(0, np.intp)
        self._endpoint = np.empty(0, np.bool_)
        self._gpu = np.empty(0, np.bool_)
        self._configured = np.empty(0)
        self._model = np.empty(0, np.intp)
        self._models: dict[str, int] = {}
        self._expected = np.empty(0)
        self._by = np.empty(0)
        self.drops = WidthDrops(history)
        self._seen: NDArray[np.float64] = np.empty(0)

    def relay(self, number: int) -> None:
        """Work out node *number*'s relations again."""
        table, gpus = self._table, self._gpus
        by_address = {}
        for row in gpus.of_node.get(number, ()):
            address = pci_key(gpus.attrs[row].get("pci"))
            if address:
                by_address[address] = row
                if (number, address) not in table.index:
                    # The GPU answers NVML but sysfs does not show it: its own link is judged, its path is unknown.
                    table.add(number, address, {"class": "0x030000", "vendor": "0x10de",
                                                "device": gpus.attrs[row].get("name"), "nvml_only": True})
        rows = table.of_node.get(number, [])
        self._grow(table.rows)
        if not rows:
            return
        mine = np.array(rows, np.intp)
        local = pcie.chains([table.keys[row] for row in rows], np.full(len(rows), number, np.int32),
                            [table.attrs[row] for row in rows])
        self._chain[:, mine] = np.where(local == pcie.NO_ROW, pcie.NO_ROW, mine[local])
        node = self._nodes[number]
        for row in rows:
            attrs, key = table.attrs[row], table.keys[row]
            kind = pcie.kind(attrs)
            gpu = by_address.get(key)
            self._join[row] = pcie.NO_ROW if gpu is None else gpu
            self._endpoint[row] = kind in {"gpu", "nic", "nvme"} and not attrs.get("physfn")
            self._gpu[row] = kind == "gpu"
            model = pcie.model(attrs)
            self._model[row] = self._models.setdefault(model, len(self._models)) if model else pcie.NO_MODEL
            width = self._expect(node, key, attrs)
            self._configured[row] = np.nan if width is None else width
            if gpu is not None:
                table.relabel(row, f"{gpus.labels[gpu]} {_short(key)}")
        self._seen = np.empty(0)

    def _grow(self, rows: int) -> None:
        old = self._capacity
        if rows <= old:
            return
        self._capacity = max(rows, 2 * old, 64)
        for name, fill in (("_chain", pcie.NO_ROW), ("_join", pcie.NO_ROW), ("_endpoint", False), ("_gpu", False),
                           ("_configured", np.nan), ("_model", pcie.NO_MODEL)):
            place = getattr(self, name)
            new = np.full((*place.shape[:-1], self._capacity), fill, place.dtype)
            new[..., :old] = place
            setattr(self, name, new)

    def derive(self, now: float) -> None:
        """Fill the derived columns of the PCIe table at *now*."""
        table = self._table
        self._grow(table.rows)
        columns, rows = table.columns, slice(0, table.rows)
        join = self._join[rows]
        mine = np.flatnonzero(join != pcie.NO_ROW)
        if len(mine):
            theirs = join[mine]
            table.read_at[mine] = np.fmax(table.read_at[mine], self._gpus.read_at[theirs])
            table.other_reads[mine] = self._gpus.reads[theirs]
            table.interval[mine] = np.fmax(table.interval[mine], self._gpus.interval[theirs])
        pcie.merge(columns, self._gpus.columns, join)
        maxima = columns.col("width_max_lanes")
        if not np.array_equal(maxima, self._seen, equal_nan=True):
            self._seen = maxima.copy()
            told = self._model[rows], maxima, self._configured[rows]
            self._expected, self._by = pcie.expected_widths(*told), pcie.expected_by(*told)
        pcie.derive(columns, self._chain[:, rows], self._expected, self._endpoint[rows], self._gpu[rows])
        columns.put("width_expected_by", np.where(self._endpoint[rows], self._by, np.nan), Why.NOT_PROVIDED)
        pcie.kernel(columns, table.node_time[rows])
        self.drops.derive(columns, self._chain[:, rows], join, self._gpus.columns, self._gpus.labels, table.listed, now)


def _short(key: str) -> str:
    return key.removeprefix("0000:")
