"""What a node's NICs sent in all: interfaces with a PCI function, and RDMA that goes past them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.store.table import Table
    from clustertop.store.view import Freshness


class Nics:
    """Adds up, per node. Bonds, VLANs, bridges and lo are in no sum; nor is IPoIB, whose bytes its port counts."""

    def __init__(self, tables: Mapping[str, Table], nodes: int) -> None:
        self._net, self._ports, self._nodes = tables.get("net"), tables.get("port"), nodes
        self._listed: object = None
        self._over_ib = np.zeros(0, np.bool_)

    def sent(self, now: float, freshness: Freshness) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[nodes] bytes per second in all, and of these by RDMA; NaN where an interface does not tell, or none does."""
        net, ports = self._net, self._ports
        total, missing, known, past = (np.zeros(self._nodes) for _ in range(4))

        def add(owner: NDArray[np.int32], values: NDArray[np.float64]) -> None:
            unknown = np.isnan(values)
            total[:] += np.bincount(owner, np.where(unknown, 0.0, values), self._nodes)[: self._nodes]
            missing[:] += np.bincount(owner[unknown], minlength=self._nodes)[: self._nodes]
            known[:] += np.bincount(owner[~unknown], minlength=self._nodes)[: self._nodes]

        if net is not None and net.rows:
            mine = (net.columns.col("physical") == 1) & net.present[: net.rows] & ~self._ipoib(net, ports)
            rates = np.where(net.fresh(now, freshness), net.columns.col("transmit_bytes_per_second"), np.nan)
            add(net.node[: net.rows][mine], rates[mine])
        if ports is not None and ports.rows:
            columns = ports.columns
            rates = np.where(np.isnan(columns.col("transmit_bytes_per_second")),
                             columns.col("wide_transmit_bytes_per_second"), columns.col("transmit_bytes_per_second"))
            # A port without counters of data adds nothing: the sum is then at least so much.
            mine = ports.present[: ports.rows] & (columns.col("virtual") != 1) & ~np.isnan(rates)
            mine &= ports.fresh(now, freshness)
            before = total.copy()
            add(ports.node[: ports.rows][mine], rates[mine])
            past = total - before
        whole = (known > 0) & (missing == 0)
        return np.where(whole, total, np.nan), np.where(whole, past, np.nan)

    def _ipoib(self, net: Table, ports: Table | None) -> NDArray[np.bool_]:
        listed = (net.listed, ports.listed if ports is not None else -1)
        if listed != self._listed:
            self._listed = listed
            over = set() if ports is None else {
                (int(ports.node[row]), attrs.get("netdev")) for row, attrs in enumerate(ports.attrs)
                if attrs.get("link_layer") == "InfiniBand" and attrs.get("netdev")}
            self._over_ib = np.array([(int(net.node[row]), attrs.get("name")) in over
                                      for row, attrs in enumerate(net.attrs)], np.bool_)
        return self._over_ib
