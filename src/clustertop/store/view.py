"""The frozen picture of the fleet that front ends draw and rules judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why, reason
from clustertop.signals import host
from clustertop.store.traffic_picture import TrafficPicture

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr, NodeInfo
    from clustertop.signals.jobs import Jobs
    from clustertop.signals.metric import TableSpec
    from clustertop.store.drops import WidthDrops
    from clustertop.store.history import History
    from clustertop.store.owners import Owners

NO_TRAFFIC = TrafficPicture()
FRESH, LATE, STALE = 0, 1, 2
"""Levels of freshness: within two intervals; within five (drawn dim, with its age); older (values unknown)."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """When a reading is old, in intervals of its group."""

    late_intervals: float = 2.0
    stale_intervals: float = 5.0


@dataclass(frozen=True, eq=False, slots=True)
class TableView:
    """One table at one moment. Never changed after it is made; compared by identity."""

    spec: TableSpec
    node: NDArray[np.int32]
    """[rows] number of the owner: a node of the inventory or, behind them, a device, a feed, the fleet."""
    keys: tuple[str, ...]
    attrs: tuple[Mapping[str, Attr], ...]
    labels: tuple[str, ...]
    """What an operator calls the row: ``GPU 3``, ``mlx5_0/1``, ``17:00.0``."""
    values: NDArray[np.float64]
    """[columns, rows]; NaN where unknown."""
    why: NDArray[np.uint16]
    """[columns, rows]; 0 where known, else a reason code."""
    age: NDArray[np.float64]
    """[rows] seconds since the reading, on our clock; infinite if there was none."""
    level: NDArray[np.uint8]
    """[rows] FRESH, LATE or STALE."""
    present: NDArray[np.bool_]
    """[rows] False: a good listing no longer has it."""
    reads: NDArray[np.int64]
    """[rows] how many readings of its group have arrived."""
    grown: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """By counter, of those that the rules ask for: [rows] its increase since first seen, resets taken out."""

    def __len__(self) -> int:
        return len(self.keys)

    def col(self, name: str) -> NDArray[np.float64]:
        """The column *name*, [rows], NaN where unknown. Raises KeyError."""
        out: NDArray[np.float64] = self.values[self.spec.index[name]]
        return out

    def why_of(self, name: str) -> NDArray[np.uint16]:
        """The reasons of column *name*, [rows]."""
        out: NDArray[np.uint16] = self.why[self.spec.index[name]]
        return out

    def value(self, name: str, row: int) -> float | None:
        """One value, or None if it is unknown."""
        value = float(self.values[self.spec.index[name], row])
        return None if np.isnan(value) else value

    def reason(self, name: str, row: int) -> str:
        """Why a value is unknown, in words; empty if it is known."""
        code = int(self.why[self.spec.index[name], row])
        if code == Why.KNOWN and np.isnan(self.values[self.spec.index[name], row]):
            code = Why.NEVER_READ
        return reason(code)

    def rows_of(self, node: int) -> NDArray[np.intp]:
        """Rows of one node, in the node's own order."""
        return np.flatnonzero(self.node == node)

    def row_of(self, node: int, key: str) -> int | None:
        """The row of the thing *key* on *node*, or None."""
        for row in self.rows_of(node):
            if self.keys[row] == key:
                return int(row)
        return None


@dataclass(frozen=True, eq=False, slots=True)
class FleetView:
    """Every table at one moment."""

    generation: int
    """Grows by one with each change of the store; equal numbers are the same picture."""
    at: float
    """Our monotonic clock, seconds."""
    wall: float
    """Seconds since the epoch, for display."""
    nodes: tuple[NodeInfo, ...]
    tables: Mapping[str, TableView]
    facts: tuple[Mapping[str, Attr], ...]
    """Per node: host name, kernel, boot id, driver ... as its last full frame said."""
    link_reasons: tuple[str, ...]
    """[owners] why the link is as it is; empty when it is up, and where there is none."""
    vias: tuple[str, ...]
    """[owners] the jump hosts that its link goes through; empty: none, or not known yet."""
    history: History
    settling: Mapping[str, NDArray[np.float64]]
    """By probe group: [owners] until when (our monotonic clock) it settles after a boot or a reload; past: it does not.
    Under the empty name, what holds for all of them."""
    drops: WidthDrops
    """Links that became narrower while we watched."""
    jobs: Jobs
    processes: tuple[str | None, ...]
    """Per node: None where compute processes are not listed; else what is wrong with the list, empty if nothing is."""

    of: Owners
    """Whose the rows are: nodes, devices, feeds, the fleet."""
    traffic: TrafficPicture = NO_TRAFFIC
    """Who sends to whom: racks, leaves, meters; the figures by scope are table ``traffic``."""

    @property
    def owners(self) -> tuple[NodeInfo, ...]:
        """[owners] what ``TableView.node`` counts; ``nodes`` are the first of them."""
        return self.of.all

    def hosts(self, owners: Iterable[int]) -> tuple[int, ...]:
        """The nodes among *owners*, and those whose BMCs are, in order."""
        count = len(self.nodes)
        return tuple(sorted({host for one in owners if (host := self.of.host[one]) < count}))

    def settling_of(self, name: str) -> NDArray[np.float64]:
        """[rows of table *name*] until when they settle; a row about a group of readings, as that group does."""
        table = self.tables[name]
        until = self.settling.get(table.spec.group, self.settling[""])[table.node]
        if name == "group":
            for group, nodes in self.settling.items():
                mine = np.array([key == group for key in table.keys], np.bool_)
                until[mine] = nodes[table.node[mine]]
        return until

    def blind_groups(self) -> NDArray[np.bool_]:
        """[rows of the group table] what is old, hangs, failed or was not read yet: no alert of it is no good news."""
        groups = self.tables["group"]
        good = np.isin(groups.col("group_state"), (host.OK, host.OFF, host.RELEASED)) & (groups.level != STALE)
        out: NDArray[np.bool_] = ~good
        return out

    def blind(self) -> NDArray[np.bool_]:
        """[nodes] whether one of its groups is so: such a node is not fine, whatever fires."""
        out = np.zeros(len(self.nodes), np.bool_)
        out[self.tables["group"].node[self.blind_groups()]] = True
        return out

    def __getitem__(self, table: str) -> TableView:
        return self.tables[table]
