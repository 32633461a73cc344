"""What a demo node's NCCL log says, as the probe counts it: the communicator of its job, and where its channels go.

For show: the log speaks of RDMA, and the demo's sockets carry the same bytes, so that every meter has something to say.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from clustertop.demo.plan import slurm_id
from clustertop.probe.frames import Table

if TYPE_CHECKING:
    from clustertop.demo.plan import Plan
    from clustertop.demo.traffic import Traffic
    from clustertop.probe.frames import Cell, Row

COLUMNS = ("lines", "warnings", "behind", "ranks", "local_ranks", "complete", "init", "init_by", "init_rank",
           "init_time", "pending", "channels", "network_channels", "socket_channels", "direct_channels", "running")
GPUS, CHANNELS = 8, 16
"""Ranks of a node, and its channels to the next one."""
AGO_SECONDS = 7000.0
"""Before the demo's start: when the jobs began."""


def table(number: int, plan: Plan, traffic: Traffic, boot_seconds: float) -> Table:
    """Return table ``nccl`` of node *number*; it has no row where no job of several nodes runs."""
    job = plan.nodes[number].job
    order = traffic.order(job) if job >= 0 else ()
    if len(order) < 2:
        return Table([], [], [])
    began = traffic.reordered(job)
    place, path = order.index(number), f"/var/log/nccl/{slurm_id(job)}.log"
    ident = f"0x{zlib.crc32(f'{slurm_id(job)}/{began}'.encode()):016x}"
    first, size = place * GPUS, GPUS * len(order)
    host, after = plan.nodes[number].name, plan.nodes[order[(place + 1) % len(order)]].name
    found = ["IB mlx5_0:1/IB"]
    rows: list[Row] = [
        (path, {"file": path, "version": "2.21.5+cuda12.4", "network": ["IB"], "found": list(found)}),
        (f"{path} {ident}/{size}", {
            "file": path, "version": "2.21.5+cuda12.4", "network": ["IB"], "found": list(found), "comm": ident,
            "members": [f"{host} {first}-{first + GPUS - 1}"], "via": [f"NET/IB/GDRDMA {CHANNELS}", "P2P/CUMEM 112"],
            "peers": [f"{after} {CHANNELS}"]}),
    ]  # fmt: skip
    init = 2.2 + 0.03 * len(order) + 0.1 * (number % 7)
    at = boot_seconds + (began if began is not None else -AGO_SECONDS)
    file_cells: list[Cell] = [1840, 0, 0, *[None] * 13]
    comm_cells: list[Cell] = [None, None, None, size, GPUS, GPUS, round(init, 2), 0, first, round(at, 1), 0,
                              CHANNELS + 112, CHANNELS, 0, CHANNELS, GPUS]  # fmt: skip
    cells = [cell for pair in zip(file_cells, comm_cells, strict=True) for cell in pair]
    return Table(rows, list(COLUMNS), cells)
