"""What a feed carries where no PDU tells: the power of its nodes, as their BMCs or GPUs tell it, over its voltage.

An estimate: a node's power is split evenly over its feeds, unless its supplies on this one are known by name. Where a
node is missing, or only its GPUs are known, or one phase may carry more than the others, it is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.places import Feed
    from clustertop.store.table import Table
    from clustertop.store.view import Freshness

    Floats = NDArray[np.float64]

FROM_BMC = "estimated from BMC power"
FROM_GPU = "estimated from GPU power"
NOTHING = "no PDU, and no power of its nodes is known"


@dataclass(frozen=True, eq=False, slots=True)
class Estimate:
    """What the nodes of each feed draw from it, all arrays [feeds]."""

    watts: Floats
    coverage: Floats
    """Nodes counted, of all its nodes; NaN of a feed without nodes."""
    lower_bound: NDArray[np.bool_]
    read_at: Floats
    """Newest reading in it, our monotonic clock."""
    interval: Floats
    gpu_only: NDArray[np.int64]
    """Nodes of which only the GPUs are counted."""
    counted: NDArray[np.int64]


class Estimates:
    """The nodes' ends of every feed, [ends], and what they draw."""

    def __init__(self, feeds: Sequence[Feed], numbers: Mapping[str, int], nodes: int) -> None:
        """Number them; *numbers*: of the nodes by name, *nodes*: how many there are."""
        self._count, self._nodes = len(feeds), nodes
        self._size = np.array([len(feed.nodes) for feed in feeds], np.float64)
        ends: list[tuple[int, int]] = []
        share: list[float] = []
        named: list[tuple[str, ...]] = []
        hangs: dict[str, int] = {}
        supplies: dict[str, int] = {}
        for feed in feeds:
            for name in feed.nodes:
                hangs[name] = hangs.get(name, 0) + 1
                supplies[name] = supplies.get(name, 0) + len(_psus(feed, name))
        complete = {name: all(_psus(feed, name) for feed in feeds if name in feed.nodes)
                    for name, many in hangs.items() if many > 1 and supplies[name]}
        for number, feed in enumerate(feeds):
            for name in feed.nodes:
                if name not in numbers:
                    continue
                psus = _psus(feed, name)
                ends.append((number, numbers[name]))
                share.append(len(psus) / supplies[name] if complete.get(name) else 1.0 / hangs[name])
                named.append(psus)
        self.feed = np.array([feed for feed, _ in ends], np.intp)
        self.node = np.array([node for _, node in ends], np.intp)
        self._share = np.array(share, np.float64)
        self._named = named
        self._psu_ends = [place for place, psus in enumerate(named) if psus]
        self._listed = -1
        self._psu_rows: list[tuple[int, NDArray[np.intp]]] = []

    def work_out(self, tables: Mapping[str, Table], now: float, freshness: Freshness) -> Estimate:
        """What every feed's nodes draw as of *now*, our monotonic clock."""
        count = self._nodes
        whole, at, every = _of_nodes(tables.get("bmc"), "power_watts", count, now, freshness)
        gpus, gpu_at, gpu_every = _of_gpus(tables, count, now, freshness)
        by_gpu = np.isnan(whole)
        watts = np.where(by_gpu, gpus, whole)[self.node] * self._share
        read_at, interval = np.where(by_gpu, gpu_at, at)[self.node], np.where(by_gpu, gpu_every, every)[self.node]
        only_gpu = by_gpu[self.node] & ~np.isnan(watts)
        for place, drawn in self._supplies(tables.get("psu"), now, freshness):
            if not np.isnan(drawn):
                watts[place], only_gpu[place] = drawn, False
                if np.isnan(read_at[place]):
                    read_at[place], interval[place] = now, 10.0
        known = ~np.isnan(watts)
        counted = np.bincount(self.feed[known], minlength=self._count)
        total = np.bincount(self.feed[known], watts[known], self._count)
        gpu_only = np.bincount(self.feed[only_gpu], minlength=self._count)
        newest, longest = np.full(self._count, -np.inf), np.full(self._count, np.nan)
        np.maximum.at(newest, self.feed[known], read_at[known])
        np.fmax.at(longest, self.feed[known], interval[known])
        with np.errstate(invalid="ignore", divide="ignore"):
            coverage = np.where(self._size > 0, counted / self._size, np.nan)
        return Estimate(np.where(counted > 0, total, np.nan), coverage, (gpu_only > 0) | ~(coverage >= 1.0), newest,
                        longest, gpu_only, counted)

    def _supplies(self, psus: Table | None, now: float, freshness: Freshness) -> list[tuple[int, float]]:
        """By end whose supplies are named: what these draw; NaN where not all of them tell."""
        if psus is None or not psus.rows or not self._psu_ends:
            return []
        if self._listed != psus.listed:
            self._listed = psus.listed
            self._psu_rows = []
            for place in self._psu_ends:
                mine = psus.of_node.get(int(self.node[place]), ())
                called = {name: row for row in mine for name in (psus.keys[row], str(psus.attrs[row].get("name")))}
                rows = [called.get(name, -1) for name in self._named[place]]
                if -1 not in rows:
                    self._psu_rows.append((place, np.array(rows, np.intp)))
        drawn = np.where(psus.fresh(now, freshness), psus.columns.col("input_watts"), np.nan)
        return [(place, float(drawn[rows].sum())) for place, rows in self._psu_rows]


def _psus(feed: Feed, name: str) -> tuple[str, ...]:
    return tuple(psu for one in feed.supplies if one.node == name for psu in one.psus)


def _of_nodes(
    table: Table | None, column: str, nodes: int, now: float, freshness: Freshness,
) -> tuple[Floats, Floats, Floats]:
    """[nodes] the value of a table with a row a node, when it was read, and how often it is."""
    out, at, every = np.full(nodes, np.nan), np.full(nodes, -np.inf), np.full(nodes, np.nan)
    if table is None or not table.rows:
        return out, at, every
    rows = slice(0, table.rows)
    owner, values = table.node[rows], table.columns.col(column)
    good = table.fresh(now, freshness) & table.present[rows] & ~np.isnan(values) & (owner < nodes)
    owner = owner[good]
    out[owner], at[owner], every[owner] = values[good], table.read_at[rows][good], table.interval[rows][good]
    return out, at, every


def _of_gpus(
    tables: Mapping[str, Table], nodes: int, now: float, freshness: Freshness,
) -> tuple[Floats, Floats, Floats]:
    """[nodes] the power of each node's GPUs, those that tell it; when it was read, and how often."""
    out, at, every = np.full(nodes, np.nan), np.full(nodes, -np.inf), np.full(nodes, np.nan)
    gpus = tables.get("gpu")
    if gpus is None or not gpus.rows:
        return out, at, every
    rows = slice(0, gpus.rows)
    watts = gpus.columns.col("power_watts")
    why = gpus.columns.why_of("power_watts")
    owner = gpus.node[rows]
    good = gpus.fresh(now, freshness) & gpus.present[rows] & ~np.isnan(watts) & (why == Why.KNOWN)
    told = np.bincount(owner[good], minlength=nodes)[:nodes]
    total = np.bincount(owner[good], watts[good], nodes)[:nodes]
    np.maximum.at(at, owner[good], gpus.read_at[rows][good])
    np.fmax.at(every, owner[good], gpus.interval[rows][good])
    return np.where(told > 0, total, np.nan), at, every
