"""A line per job: its nodes, its GPUs, how busy they are, what they draw, the worst alert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import LinkState, Severity
from clustertop.signals import gpu as gpus

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.core import Snapshot

SILENT_INTERVALS = 5.0
"""A node that is up and has missed more frames than this is stale, as the rule node_stale has it."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job at one moment; None is unknown."""

    name: str
    nodes: int
    nodes_up: int
    """Of these, the ones that report."""
    shared: int
    """Of these, the ones that other jobs run on, too."""
    gpus: int
    """GPUs that are known to be this job's."""
    gpus_present: int
    utilization_ratio: float | None
    """Median of the GPUs that tell."""
    power_watts: float | None
    """Sum of the GPUs that tell."""
    partial: bool
    """Some of its GPUs do not say what they draw: it is at least that."""
    severity: Severity | None
    """Worst alert of its nodes; None where there is none, and not all of them report."""


def job_lines(snapshot: Snapshot) -> list[JobLine]:
    """The jobs in the order of their numbers."""
    view, jobs = snapshot.view, snapshot.view.jobs
    if not jobs.names:
        return []
    count = len(jobs.names)
    table, code = view["gpu"], jobs.gpu
    util, power, present = (table.col(name) for name in ("utilization_ratio", "power_watts", "presence"))
    of_job = code >= 0
    median = medians(code, util, count)
    tells = of_job & ~np.isnan(power)
    watts = np.bincount(code[tells], power[tells], count)
    told, known = np.bincount(code[tells], minlength=count), np.bincount(code[of_job], minlength=count)
    answer = np.bincount(code[of_job & (present == gpus.PRESENT)], minlength=count)
    node = view["node"]
    with np.errstate(invalid="ignore"):
        up = (node.col("link_state") == LinkState.UP) & ~(node.col("frames_missed") > SILENT_INTERVALS)
        up &= ~np.isnan(node.col("frame_age_seconds"))
    worst = _worst(snapshot)
    released = ~np.isnan(node.col("gpus_released_seconds"))
    out = []
    for number, name in enumerate(jobs.names):
        mine = jobs.members[number]
        level = int(worst[mine].max(initial=0))
        judged = bool(level) or (bool(up[mine].all()) and not released[mine].any())
        out.append(JobLine(
            name, len(mine), int(up[mine].sum()), int((jobs.node[mine] != number).sum()),
            int(known[number]), int(answer[number]), _known(median[number]),
            float(watts[number]) if told[number] else None, bool(told[number] < known[number]),
            Severity(level) if judged else None))
    return out


def medians(code: NDArray[np.int32], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """[count] the median of the known *values* of each group, by its number in *code*; NaN where there is none."""
    out = np.full(count, np.nan)
    rows = np.flatnonzero((code >= 0) & ~np.isnan(values))
    if not len(rows):
        return out
    order = rows[np.lexsort((values[rows], code[rows]))]
    group, start, size = np.unique(code[order], return_index=True, return_counts=True)
    ordered = values[order]
    out[group] = (ordered[start + (size - 1) // 2] + ordered[start + size // 2]) / 2
    return out


def _worst(snapshot: Snapshot) -> NDArray[np.int8]:
    """[nodes] the highest severity that fires."""
    out = np.zeros(len(snapshot.view.nodes), np.int8)
    for alert in snapshot.alerts:
        for number in alert.on:
            out[number] = max(out[number], alert.severity)
    return out


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
