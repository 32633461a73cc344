"""The node itself, its network interfaces, and its probe's groups.

Sources: proc(5) for stat, loadavg and meminfo; kernel Documentation/accounting/psi.rst; sysfs-class-net ABI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import LinkState, Why
from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.signals.columns import Columns

_PROC = "https://man7.org/linux/man-pages/man5/proc.5.html"
_PSI = "https://docs.kernel.org/accounting/psi.html"
_TCP = "https://man7.org/linux/man-pages/man7/tcp.7.html"
_NET = "https://docs.kernel.org/admin-guide/abi-testing.html"

OK, HUNG, ERROR, OFF, WAIT, RELEASED = 0, 1, 2, 3, 4, 5
GROUP_STATES = {"ok": OK, "hung": HUNG, "error": ERROR, "off": OFF, "wait": WAIT, "released": RELEASED}
GROUP_WORDS = {OK: "ok", HUNG: "HUNG", ERROR: "error", OFF: "none here", WAIT: "not read yet", RELEASED: "released"}

_OPERSTATES = {"up": 1.0, "unknown": 1.0, "down": 0.0, "notpresent": 0.0, "lowerlayerdown": 0.0, "testing": 0.0,
               "dormant": 0.0}
"""RFC 2863, as sysfs spells them; "unknown" is what drivers say that do not tell, of interfaces that work."""


def operstate(text: str) -> float:
    """``up`` → 1, ``down`` and the like → 0. Raises ValueError for what is no state."""
    state = _OPERSTATES.get(text.strip())
    if state is None:
        raise ValueError(f"not an operstate: {text!r}")
    return state


NODE = table("node", "host", "nodes", (
    Metric("cpus", "", "logical CPUs", "ncpu", lo=1.0, hi=65536.0, source=_PROC),
    Metric("cpu_jiffies_total", "", "jiffies of all CPUs", "cpu_total", "counter", hi=2.0**64, source=_PROC),
    Metric("cpu_idle_jiffies_total", "", "jiffies idle or waiting for I/O", "cpu_idle", "counter", hi=2.0**64,
           source=_PROC),
    Metric("load1", "", "load, 1 minute", "load1", hi=1e6, source=_PROC, label="load"),
    Metric("load5", "", "load, 5 minutes", "load5", hi=1e6, source=_PROC),
    Metric("load15", "", "load, 15 minutes", "load15", hi=1e6, source=_PROC),
    Metric("memory_total_bytes", "B", "memory", "mem_total", lo=1.0, hi=2.0**50, source=_PROC),
    Metric("memory_available_bytes", "B", "memory available", "mem_available", hi=2.0**50, source=_PROC),
    Metric("swap_total_bytes", "B", "swap", "swap_total", hi=2.0**50, source=_PROC),
    Metric("swap_free_bytes", "B", "swap free", "swap_free", hi=2.0**50, source=_PROC),
    Metric("uptime_seconds", "s", "since boot", "uptime", hi=1e10, source=_PROC, label="up"),
    Metric("cpu_pressure_ratio", "ratio", "some task waited for CPU, 10 s average", "psi_cpu", hi=1.0, scale=0.01,
           source=_PSI),
    Metric("memory_pressure_ratio", "ratio", "some task waited for memory, 10 s average", "psi_mem", hi=1.0, scale=0.01,
           source=_PSI),
    Metric("io_pressure_ratio", "ratio", "some task waited for I/O, 10 s average", "psi_io", hi=1.0, scale=0.01,
           source=_PSI),
    Metric("cpu_ratio", "ratio", "CPU busy", kind="derived", hi=1.0, history=True, label="cpu"),
    Metric("memory_used_ratio", "ratio", "memory not available, of all", kind="derived", hi=1.0, history=True,
           label="mem"),
    Metric("swap_used_bytes", "B", "swap in use", kind="derived", label="swap"),
    Metric("network_receive_bytes_per_second", "B/s", "received, interfaces with a PCI function", kind="derived",
           label="net rx"),
    Metric("network_transmit_bytes_per_second", "B/s", "sent, interfaces with a PCI function", kind="derived",
           label="net tx"),
    Metric("link_state", "", "the console's link to the node", kind="derived",
           words={int(state): state.words for state in LinkState}, label="link"),
    Metric("reachable", "", "1: frames arrive; 0: the link is down", kind="derived"),
    Metric("frame_age_seconds", "s", "since the last frame", kind="derived", label="age"),
    Metric("frames_missed", "", "the same in the node's intervals, while its link is up", kind="derived"),
    Metric("clock_offset_seconds", "s", "the node's wall clock minus ours", kind="derived"),
    Metric("clock_skew_seconds", "s", "the same without its sign", kind="derived"),
    Metric("probe_cpu_ratio", "ratio", "CPU of the probe on the node, of one core", kind="derived", label="probe cpu"),
    Metric("probe_memory_bytes", "B", "resident memory of the probe", kind="derived", label="probe mem"),
    Metric("probe_nvml_seconds", "s", "NVML time in the last tick", kind="derived", label="nvml"),
    Metric("gpus_present", "", "GPUs that answer", kind="derived", label="GPUs"),
    Metric("gpus_known", "", "GPUs seen or expected", kind="derived"),
    Metric("gpus_expected_missing", "", "GPUs fewer than the inventory expects", kind="derived"),
    Metric("gpus_released_seconds", "s", "since the operator had the GPUs let go", kind="derived"),
    Metric("gpu_utilization_ratio", "ratio", "mean of the GPUs that tell", kind="derived", hi=1.0, history=True,
           label="util", coverage="gpu_utilization_coverage_ratio"),
    Metric("gpu_utilization_coverage_ratio", "ratio", "GPUs that tell, of those known that are not in MIG mode",
           kind="derived", hi=1.0),
    Metric("gpu_power_watts", "W", "sum of the GPUs that tell", kind="derived", label="GPU power",
           coverage="gpu_power_coverage_ratio"),
    Metric("gpu_power_coverage_ratio", "ratio", "GPUs that tell, of those known", kind="derived", hi=1.0),
    Metric("ports_expected", "", "RDMA ports that have been up", kind="derived", label="ports"),
    Metric("ports_expected_missing", "", "RDMA ports in use, fewer than the inventory expects", kind="derived"),
    Metric("ports_down", "", "of these, the ones that are not up now", kind="derived", label="down"),
    Metric("all_ports_down", "", "1: every one of at least two", kind="derived"),
    Metric("tcp_jitter_seconds", "s", "mean deviation of the TCP round trip on the worst of its links to other nodes "
           "that no other end explains better", kind="derived", history=True, source=_TCP, label="jitter"),
    Metric("tcp_rtt_seconds", "s", "round trip on that link", kind="derived", source=_TCP, label="rtt"),
    Metric("tcp_incast_peers", "", "nodes whose round trips with this one rose together; 0: not many at once",
           kind="derived", source=_TCP, label="incast"),
))

OF_HOST = frozenset({"cpu_ratio", "memory_used_ratio", "swap_used_bytes"})
"""Derived columns of the node table that come from the host group's readings."""

NET = table("net", "host", "network interfaces", (
    Metric("receive_bytes_total", "B", "bytes received", "rx_bytes", "counter", hi=2.0**64,
           rate="receive_bytes_per_second", source=_NET, label="rx"),
    Metric("transmit_bytes_total", "B", "bytes sent", "tx_bytes", "counter", hi=2.0**64,
           rate="transmit_bytes_per_second", source=_NET, label="tx"),
    Metric("receive_packets_total", "", "packets received", "rx_packets", "counter", hi=2.0**64, source=_NET),
    Metric("transmit_packets_total", "", "packets sent", "tx_packets", "counter", hi=2.0**64, source=_NET),
    Metric("receive_errors_total", "", "receive errors", "rx_errors", "counter", hi=2.0**64,
           rate="receive_errors_per_second", source=_NET),
    Metric("transmit_errors_total", "", "transmit errors", "tx_errors", "counter", hi=2.0**64,
           rate="transmit_errors_per_second", source=_NET),
    Metric("receive_drops_total", "", "received packets dropped", "rx_dropped", "counter", hi=2.0**64,
           rate="receive_drops_per_second", source=_NET),
    Metric("transmit_drops_total", "", "packets dropped before sending", "tx_dropped", "counter", hi=2.0**64,
           rate="transmit_drops_per_second", source=_NET),
    Metric("carrier_changes_total", "", "times the carrier came or went", "carrier_changes", "counter", hi=2.0**64,
           source=_NET),
    Metric("speed_bits_per_second", "b/s", "link speed", "speed_mbps", lo=1e6, hi=1e13, scale=1e6, source=_NET,
           label="speed"),
    Metric("mtu_bytes", "B", "MTU", "mtu", lo=68.0, hi=1e6, source=_NET, label="MTU"),
    Metric("operational", "", "1: operstate is up", "operstate", "state", hi=1.0, parse=operstate,
           words={0: "down", 1: "up"}, source=_NET),
    Metric("physical", "", "1: a PCI function stands behind it that is no virtual one; only these are summed",
           kind="derived"),
))

GROUP = table("group", "", "probe groups", (
    Metric("group_state", "", "how the group is doing", kind="derived", words=GROUP_WORDS, label="state"),
    Metric("hung", "", "1: a driver or file call has not returned", kind="derived"),
    Metric("failed", "", "1: the group reports an error", kind="derived"),
    Metric("group_age_seconds", "s", "since the group's last reading", kind="derived", label="age"),
    Metric("age_intervals", "", "the same in intervals", kind="derived"),
    Metric("interval_seconds", "s", "effective interval; it stretches where readings are dear", kind="derived"),
    Metric("interval_wanted_seconds", "s", "interval asked for; less than the effective one while that is stretched",
           kind="derived"),
    Metric("reading_seconds", "s", "what the last reading took", kind="derived", label="cost"),
))


def node_label(key: str, attrs: Mapping[str, object]) -> str:
    """The node's own row has no key."""
    return key or "node"


def net_label(key: str, attrs: Mapping[str, object]) -> str:
    """The interface's name."""
    return str(attrs.get("name") or key)


def group_label(key: str, attrs: Mapping[str, object]) -> str:
    """``gpu group``."""
    return f"{key} group"


def derive_node(t: Columns, jiffies: np.ndarray, idle: np.ndarray) -> None:
    """Work out CPU and memory shares in place.

    Args:
        t: the node table.
        jiffies: [rows] growth of all jiffies since the last reading, NaN if unknown.
        idle: [rows] growth of idle jiffies.
    """
    moved = jiffies > 0
    share = np.where(moved, 1.0 - idle / np.where(moved, jiffies, 1.0), np.nan)
    # Between two readings of the same tick nothing moved; keep what was known.
    keep = ~moved & ~np.isnan(jiffies)
    share = np.where(keep, t.col("cpu_ratio"), np.clip(share, 0.0, 1.0))
    t.put("cpu_ratio", share, Why.FIRST_READING)
    used = 1.0 - t.col("memory_available_bytes") / t.col("memory_total_bytes")
    t.put("memory_used_ratio", np.where((used >= 0) & (used <= 1), used, np.nan))
    swap = t.col("swap_total_bytes") - t.col("swap_free_bytes")
    t.put("swap_used_bytes", np.where(swap >= 0, swap, np.nan))
