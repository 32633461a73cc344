"""GPU memory that no listed process holds: the driver's own share, or a leak in it or in a monitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clustertop.store.table import Table


def unclaimed(gpus: Table, processes: Table, listed: Sequence[str | None]) -> NDArray[np.float64]:
    """[GPU rows] bytes in use minus the sum over the processes; NaN where that is not known.

    Args:
        gpus: the GPU table, up to date.
        processes: the process table, up to date.
        listed: per node, None where its processes are not listed now, else what is wrong with the list.
    """
    whole = np.array([note == "" for note in listed], np.bool_)
    out = np.full(gpus.rows, np.nan)
    if not whole.any():
        return out
    mine = whole[gpus.node[: gpus.rows]]
    held = np.zeros(gpus.rows)
    used = processes.columns.col("gpu_memory_bytes")
    for row in np.flatnonzero(processes.present[: processes.rows]).tolist():
        gpu = gpus.index.get((int(processes.node[row]), str(processes.attrs[row].get("gpu"))))
        if gpu is not None:
            # A process that does not say how much it holds makes the GPU's remainder unknown.
            held[gpu] += used[row]
    out[mine] = np.maximum(gpus.columns.col("memory_used_bytes")[mine] - held[mine], 0.0)
    return out
