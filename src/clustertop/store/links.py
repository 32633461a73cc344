"""What the counters of network interfaces add up to, and which of them an RDMA port has below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals import link
from clustertop.signals.units import pci_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.store.table import Table


class Links:
    """Derived columns of the link table, and those that the port table takes from it."""

    def __init__(self, links: Table, ports: Table) -> None:
        self._links, self._ports = links, ports
        self._reads = np.zeros(0, np.int64)
        self._time = np.full(0, np.nan)
        self._listed = (-1, -1)
        self._pairs: tuple[NDArray[np.intp], NDArray[np.intp]] = (np.empty(0, np.intp), np.empty(0, np.intp))

    def derive(self) -> None:
        """Fill the rates of both tables."""
        links = self._links
        rows = slice(0, links.rows)
        more = links.rows - len(self._time)
        if more > 0:
            self._time = np.pad(self._time, (0, more), constant_values=np.nan)
            self._reads = np.pad(self._reads, (0, more))
        fresh = links.reads[rows] != self._reads
        if fresh.any():
            seconds = links.node_time[rows] - self._time
            link.rates(links.columns, links.growth[:, rows], links.counter_names, seconds, fresh)
            self._time = np.where(fresh, links.node_time[rows], self._time)
            self._reads = links.reads[rows].copy()
        self._to_ports()

    def _to_ports(self) -> None:
        ports, links = self._ports, self._links
        if self._listed != (ports.listed, links.listed):
            self._listed = (ports.listed, links.listed)
            self._pairs = self._join()
        owner, row = self._pairs
        present = links.present[row]
        for name in link.OF_PORT:
            values = links.columns.col(name)[row]
            known = present & ~np.isnan(values)
            count = np.bincount(owner[known], minlength=ports.rows)
            total = np.bincount(owner[known], values[known], minlength=ports.rows)
            missing = np.bincount(owner[~known], minlength=ports.rows)
            # Of a bond whose one member does not tell, the sum is unknown.
            ports.columns.put(name, np.where((count > 0) & (missing == 0), total, np.nan), Why.NOT_PROVIDED)

    def _join(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs of a port's row and the row of an interface below it: by name, else by its PCI function."""
        by_name: dict[tuple[int, object], int] = {}
        by_pci: dict[tuple[int, object], list[int]] = {}
        links, ports = self._links, self._ports
        for row, attrs in enumerate(links.attrs):
            node = int(links.node[row])
            by_name[node, attrs.get("name")] = row
            if address := pci_key(attrs.get("pci")):
                by_pci.setdefault((node, address), []).append(row)
        owner: list[int] = []
        below: list[int] = []
        for row, attrs in enumerate(ports.attrs):
            node = int(ports.node[row])
            found = [by_name[node, name] for name in link.interfaces_of(attrs) if (node, name) in by_name]
            if not found:
                same = by_pci.get((node, pci_key(attrs.get("pci"))), [])
                # Several interfaces of one function: which of them is this port's is not known.
                found = same if len(same) == 1 else []
            owner += [row] * len(found)
            below += found
        return np.array(owner, np.intp), np.array(below, np.intp)
