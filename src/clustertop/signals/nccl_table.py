"""What the NCCL logs on nodes say, as a table: a row per log file, and one per communicator of it.

The probe counts (``probe/nccl.py``); whether sockets or a missing GPUDirect are wrong, and how long an init took, is
said here. It is what NCCL was told and chose, no measurement of traffic. Channels are written at the start of a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.signals.columns import Columns

_SOURCE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_INIT = "https://github.com/NVIDIA/nccl/blob/master/src/init.cc"
_VIA = "https://github.com/NVIDIA/nccl/tree/master/src/transport"
_PROC = "https://www.kernel.org/doc/html/latest/filesystems/proc.html"
_STAT = "https://man7.org/linux/man-pages/man2/stat.2.html"
RECENT_SECONDS = 3600.0
"""So long an init that was slow is worth an alert: a start is an event, not a state."""
BY_NCCL, BY_TIMES, BY_ARRIVAL = 0, 1, 2
NOTHING_WRONG, NO_GPU_DIRECT, SOCKETS = 0, 1, 2
LISTS = frozenset({"network", "found", "settings", "via", "members", "peers"})
"""Attributes that are lists."""

TABLE = table("nccl", "nccl", "NCCL logs", (
    Metric("nccl_lines", "", "lines of NCCL in the file since it is read", "lines", hi=1e12, source=_SOURCE),
    Metric("warnings", "", "lines of level WARN in the file since it is read", "warnings", hi=1e12, source=_SOURCE),
    Metric("behind_bytes", "B", "of the file that is not read yet", "behind", hi=1e15, source=_STAT),
    Metric("ranks", "", "size of the communicator", "ranks", hi=1e7, source=_INIT),
    Metric("local_ranks", "", "its ranks on this node", "local_ranks", hi=1e7, source=_INIT),
    Metric("ranks_complete", "", "of these, how many have completed their init", "complete", hi=1e7, source=_INIT),
    Metric("init_told_seconds", "s", "the longest init of its ranks here that has a time", "init", hi=1e9,
           source=_INIT),
    Metric("init_by", "", "how that was timed", "init_by", "state", hi=2.0, source=_INIT,
           words={BY_NCCL: "NCCL", BY_TIMES: "timestamps", BY_ARRIVAL: "arrival of its lines"}),
    Metric("slowest_rank", "", "the rank with the longest init", "init_rank", hi=1e7, source=_INIT),
    Metric("init_time_seconds", "s", "when its init last moved, on the node's monotonic clock", "init_time", lo=-1e10,
           hi=1e10, source=_INIT),
    Metric("ranks_pending", "", "its ranks here whose init has begun and not completed", "pending", hi=1e7,
           source=_INIT),
    Metric("pending_time_seconds", "s", "when the first of them began, on the node's monotonic clock", "pending_time",
           lo=-1e10, hi=1e10, source=_INIT),
    Metric("channels", "", "channels of its ranks here", "channels", hi=1e9, source=_VIA),
    Metric("network_channels", "", "of these, those that leave the node", "network_channels", hi=1e9, source=_VIA),
    Metric("network_socket_channels", "", "of these, those over TCP sockets", "socket_channels", hi=1e9,
           source=_VIA),
    Metric("gpu_direct_channels", "", "channels of the network with GPUDirect RDMA", "direct_channels", hi=1e9,
           source=_VIA),
    Metric("processes_running", "", "its processes that still run here; unknown where none can be seen", "running",
           hi=1e7, source=_PROC),
    Metric("other_hosts", "", "other hosts that the file speaks of and that are not counted here", "other_hosts",
           hi=1e7, source=_INIT),
    Metric("init_seconds", "s", "the longest init of its ranks here, so far where it has not completed", kind="derived",
           source=_INIT, label="init"),
    Metric("init_known", "", "1: its init is timed", kind="derived"),
    Metric("init_age_seconds", "s", "since its init last moved", kind="derived"),
    Metric("init_recent_seconds", "s",
           "the same, of the last hour and of processes that have not ended; 0: no such init", kind="derived"),
    Metric("rdma_meant", "", "1: the log or the node's ports show RDMA", kind="derived", words={0: "no", 1: "yes"}),
    Metric("socket_channels", "", "channels over TCP sockets where RDMA is meant", kind="derived", label="sockets"),
    Metric("gdr_missing", "", "RDMA channels without GPUDirect", kind="derived"),
    Metric("transport", "", "what is wrong with its channels", kind="derived",
           words={NOTHING_WRONG: "nothing wrong", NO_GPU_DIRECT: "no GPUDirect RDMA",
                  SOCKETS: "sockets instead of RDMA"}),
))


def label(key: str, attrs: Mapping[str, Attr]) -> str:
    """The file's last name, and what is left of the communicator's."""
    path, _, comm = key.rpartition(" ") if "comm" in attrs else (key, "", "")
    return f"{path.rpartition('/')[2]} {comm}".strip()


def texts(attrs: Mapping[str, Attr], name: str) -> list[str]:
    """The items of a list attribute; none where there is none."""
    said = attrs.get(name)
    return [one for one in said if isinstance(one, str)] if isinstance(said, list) else []


def shows_rdma(attrs: Mapping[str, Attr]) -> bool:
    """Whether NCCL found RDMA devices, or uses a network that is not sockets."""
    found = texts(attrs, "found")
    return (any(one.endswith(("/IB", "/RoCE", " libfabric")) for one in found)
            or any(not name.endswith("Socket") for name in texts(attrs, "network")))


def is_communicator(attrs: Mapping[str, Attr]) -> bool:
    """Whether a row is about a communicator; the others are about a file."""
    return "comm" in attrs


def derive(
    t: Columns, node_time: NDArray[np.float64], shown: NDArray[np.bool_], infiniband: NDArray[np.bool_],
    communicator: NDArray[np.bool_],
) -> None:
    """Work out the derived columns in place.

    Args:
        t: the table.
        node_time: [rows] the node's monotonic seconds of the reading.
        shown: [rows] of :func:`shows_rdma`.
        infiniband: [rows] whether the node has an InfiniBand port that is up.
        communicator: [rows] of :func:`is_communicator`.
    """
    gone = ~t.present | (t.col("processes_running") == 0)
    _inits(t, node_time, gone, communicator)
    network, sockets, direct = (
        t.col(name) for name in ("network_channels", "network_socket_channels", "gpu_direct_channels"))
    rdma = np.maximum(network - sockets, 0.0)
    meant = shown | infiniband | (rdma > 0)
    t.put("rdma_meant", meant.astype(float))
    wrong, missing = np.where(meant, sockets, 0.0 * sockets), np.maximum(rdma - direct, 0.0)
    t.put("socket_channels", wrong)
    t.put("gdr_missing", missing)
    level = np.where(wrong > 0, SOCKETS, np.where(missing > 0, NO_GPU_DIRECT, NOTHING_WRONG)).astype(float)
    unknown = np.isnan(wrong) | np.isnan(missing)
    # What is over, or is no longer in the log, is no fault any more.
    t.put("transport", np.where(gone, NOTHING_WRONG, np.where(unknown, np.nan, level)))
    for name in ("socket_channels", "gdr_missing", "transport"):
        lost = np.isnan(t.col(name))
        t.why_of(name)[lost] = t.why_of("network_channels")[lost]


def _inits(
    t: Columns, node_time: NDArray[np.float64], gone: NDArray[np.bool_], communicator: NDArray[np.bool_]
) -> None:
    pending = (t.col("ranks_pending") > 0) & ~gone
    so_far = np.where(pending, np.maximum(node_time - t.col("pending_time_seconds"), 0.0), np.nan)
    init = np.fmax(t.col("init_told_seconds"), so_far)
    t.put("init_seconds", init)
    lost = np.isnan(init)
    t.why_of("init_seconds")[lost] = t.why_of("init_told_seconds")[lost]
    age = np.maximum(node_time - t.col("init_time_seconds"), 0.0)
    t.put("init_age_seconds", age)
    t.put("init_known", np.where(communicator, (~lost).astype(float), np.nan), Why.NOT_JUDGED)
    hangs = pending & (t.col("processes_running") > 0)
    recent = np.where(gone | ((age > RECENT_SECONDS) & ~hangs), 0.0, init)
    t.put("init_recent_seconds", np.where(communicator | gone, recent, np.nan), Why.NOT_JUDGED)
    lost = np.isnan(recent) & communicator
    t.why_of("init_recent_seconds")[lost] = t.why_of("init_seconds")[lost]
