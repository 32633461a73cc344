"""How long NCCL took to start on the nodes of a job, a group or a rack: the meter of the exit signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.quantity import duration
from clustertop.signals.coverage import LEAST_COVERAGE
from clustertop.signals.nccl_table import TABLE, is_communicator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.store.view import FleetView

_BY = TABLE.metric("init_by").words


def read(view: FleetView) -> bool:
    """Whether any node reads NCCL logs."""
    return "nccl" in view["group"].keys


def longest(view: FleetView, nodes: Sequence[int], limit: float) -> tuple[float | None, str]:
    """(seconds, method) of the longest init on *nodes*; (None, why) where it is not measured.

    Of each node, the newest start of its largest communicator of processes that have not ended, and any other start of
    the last hour that is beyond *limit*. Where too few nodes tell and none of them is beyond it, nothing is said.
    """
    table = view["nccl"]
    if not len(nodes):
        return None, "none of its nodes is known"
    init, age, ranks = (table.col(name) for name in ("init_seconds", "init_age_seconds", "ranks"))
    candidates = np.flatnonzero(np.isin(table.node, nodes) & table.present & (table.col("processes_running") != 0))
    best: dict[int, int] = {}
    rows = [row for row in candidates.tolist() if is_communicator(table.attrs[row]) and not np.isnan(ranks[row])]
    for row in rows:
        node = int(table.node[row])
        known = best.get(node)
        if known is None or (ranks[row], -_number(age[row])) > (ranks[known], -_number(age[known])):
            best[node] = row
    timed = [row for row in best.values() if not np.isnan(init[row])]
    told = f"{len(timed)}/{len(nodes)} nodes"
    recent = table.col("init_recent_seconds")
    timed += [row for row in rows if recent[row] > limit and row not in timed]
    if not timed:
        if not rows:
            return None, "no communicator in the NCCL logs of its nodes"
        return None, "the NCCL logs of its nodes do not time it"
    slowest = max(timed, key=lambda row: float(init[row]))
    value = float(init[slowest])
    if value <= limit and len(timed) < LEAST_COVERAGE * len(nodes):
        return None, f"too few NCCL logs tell: {told}, at most {duration(value)}"
    if (table.value("ranks_pending", slowest) or 0) > 0:
        return value, f"not complete yet; {told}"
    by = _BY.get(int(table.value("init_by", slowest) or 0), "?")
    return value, f"by {by}, {duration(table.value('init_age_seconds', slowest))} ago; {told}"


def _number(value: float) -> float:
    return float("inf") if np.isnan(value) else float(value)
