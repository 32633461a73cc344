"""What is known of each node as a whole, gathered into table ``node`` once a tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import LinkState, Why
from clustertop.signals import gpu, host
from clustertop.store.table import GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.store.table import Table
    from clustertop.store.view import Freshness
    from clustertop.wire.frame import Frame


class Node:
    """What is known of one node beside its columns; gathered into columns once a tick."""

    __slots__ = ("boot", "cpu_ratio", "facts", "frame_at", "frames", "group_rows", "interval", "memory", "numbers",
                 "nvml", "offset", "probe_cpu", "processes", "reach", "reason", "released", "state", "time", "told",
                 "via")

    def __init__(self) -> None:
        self.state = LinkState.WAITING
        self.reason = self.via = ""
        self.reach = self.offset = self.interval = self.cpu_ratio = self.memory = self.nvml = float("nan")
        self.frame_at = self.time = float("-inf")
        self.frames = 0
        self.facts: Mapping[str, Attr] = {}
        self.boot: Attr = None
        self.numbers: dict[str, int] = {}
        self.group_rows: dict[str, int] = {}
        self.told: dict[str, tuple[str, float, float, str, str]] = {}
        self.probe_cpu: tuple[float, float] | None = None
        self.released = float("nan")
        """When the operator had the GPUs let go, our monotonic clock; NaN while they are not."""
        self.processes: str | None = None
        """None: compute processes are not listed; else what is wrong with the list, empty if nothing is."""


def cost(node: Node, frame: Frame) -> None:
    """What the probe costs its node."""
    mine = frame.m
    cpu = mine.get("cpu")
    if cpu is not None:
        last = node.probe_cpu
        if last is not None and frame.t > last[0] and cpu >= last[1]:
            node.cpu_ratio = (cpu - last[1]) / (frame.t - last[0])
        node.probe_cpu = (frame.t, cpu)
    node.memory = mine.get("rss", node.memory)
    node.nvml = mine.get("nvml", node.nvml)


def derive(
    every: Sequence[Node], tables: Mapping[str, Table], expected_gpus: NDArray[np.float64], freshness: Freshness,
    now: float,
) -> None:
    """Fill table ``node`` as of *now*, our monotonic clock.

    Args:
        every: [nodes] what is known of each beside its columns.
        tables: of the store; those of GPUs and interfaces are derived before.
        expected_gpus: [nodes] how many GPUs each must have; NaN: not said.
        freshness: when a reading is old.
    """
    nodes, gpus = tables["node"], tables["gpu"]
    t, g = nodes.columns, gpus.columns
    jiffies = nodes.growth[nodes.counter_names.index("cpu_jiffies_total"), : nodes.rows]
    idle = nodes.growth[nodes.counter_names.index("cpu_idle_jiffies_total"), : nodes.rows]
    host.derive_node(t, jiffies, idle)
    t.put("link_state", np.array([float(node.state) for node in every]))
    t.put("reachable", np.array([node.reach for node in every]), Why.NOT_JUDGED)
    age = now - np.array([node.frame_at for node in every])
    age[np.isinf(age)] = np.nan
    t.put("frame_age_seconds", age, Why.NEVER_READ)
    interval = np.fmax(np.array([node.interval for node in every]), 1.0)
    # What is judged of a node as a whole is read with each of its frames.
    nodes.other_reads[: nodes.rows] = np.array([node.frames for node in every]) - nodes.reads[: nodes.rows]
    alive = age <= freshness.stale_intervals * interval + GRACE_SECONDS
    for name, told in (("clock_offset_seconds", [node.offset for node in every]),
                       ("clock_skew_seconds", [abs(node.offset) for node in every]),
                       ("probe_cpu_ratio", [node.cpu_ratio for node in every]),
                       ("probe_memory_bytes", [node.memory for node in every]),
                       ("probe_nvml_seconds", [node.nvml for node in every])):
        t.put(name, np.where(alive, np.array(told), np.nan), Why.STALE)
    up = np.array([node.state == LinkState.UP for node in every], np.bool_)
    t.put("frames_missed", np.where(up, age / interval, np.nan), Why.NOT_JUDGED)
    count = nodes.rows
    owner = g.row_node

    def total(value: np.ndarray, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        where = where & ~np.isnan(value)
        return (np.bincount(owner[where], value[where], count), np.bincount(owner[where], minlength=count))

    # Sums are over what is fresh: the last word of a node that has fallen silent is no reading.
    fresh = gpus.fresh(now, freshness)
    presence = np.where(fresh, g.col("presence"), np.nan)
    known = np.bincount(owner, minlength=count).astype(float)
    present = np.bincount(owner[presence == gpu.PRESENT], minlength=count).astype(float)
    listed = np.bincount(owner[fresh], minlength=count) > 0
    heard = np.bincount(owner[fresh & ~gpus.held()], minlength=count) > 0
    known = np.fmax(known, expected_gpus)
    t.put("gpus_known", np.where(listed | ~np.isnan(expected_gpus), known, np.nan))
    t.put("gpus_present", np.where(heard, present, np.nan))
    t.put("gpus_expected_missing",
          np.where(heard, np.maximum(expected_gpus - np.bincount(owner, minlength=count), 0), np.nan))
    util, tell = total(g.col("utilization_ratio"), presence == gpu.PRESENT)
    t.put("gpu_utilization_ratio", np.where(tell > 0, util / np.maximum(tell, 1), np.nan))
    # A GPU in MIG mode has no utilisation of its own and is in no mean; any other that does not tell is missing.
    whole = np.maximum(known - np.bincount(owner[g.col("mig_mode") == 1], minlength=count), tell)
    t.put("gpu_utilization_coverage_ratio", np.where(heard & (whole > 0), tell / np.maximum(whole, 1), np.nan))
    power, tell = total(g.col("power_watts"), presence == gpu.PRESENT)
    t.put("gpu_power_watts", np.where(tell > 0, power, np.nan))
    t.put("gpu_power_coverage_ratio", np.where(heard & (known > 0), tell / np.maximum(known, 1), np.nan))
    net = tables["net"].columns
    owner = net.row_node
    for name, rate in (("network_receive_bytes_per_second", "receive_bytes_per_second"),
                       ("network_transmit_bytes_per_second", "transmit_bytes_per_second")):
        summed = (net.col("physical") == 1) & tables["net"].fresh(now, freshness)
        moved, tell = total(net.col(rate), summed)
        t.put(name, np.where(tell > 0, moved, np.nan))
