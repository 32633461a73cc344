"""GPU readings: NVML's units to base units, markers to unknowns, presence and load.

Sources: NVML API reference (docs.nvidia.com/deploy/nvml-api); markers: DCGM ``dcgm_structs.h`` blank values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals import xid
from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

_NVML = "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"

PRESENT, LOST, MISSING = 0, 1, 2

REASON_BITS: tuple[tuple[int, str, bool], ...] = (
    (0x1, "GPU idle", False),
    (0x2, "applications clocks setting", False),
    (0x4, "SW power cap", False),
    (0x8, "HW slowdown", True),
    (0x10, "sync boost", False),
    (0x20, "SW thermal slowdown", True),
    (0x40, "HW thermal slowdown", True),
    (0x80, "HW power brake slowdown", True),
    (0x100, "display clock setting", False),
)
"""Clocks event reasons: bit, NVIDIA's words, whether it is a slowdown worth an alert."""

_VITAL = ("utilization_ratio", "memory_used_bytes", "power_watts", "temperature_celsius", "pcie_width_lanes")
"""A GPU that answers none of these, and not because it lacks them, is lost."""
_BENIGN = (Why.KNOWN, Why.NOT_PROVIDED, Why.NOT_SUPPORTED, Why.NO_PERMISSION, Why.NEVER_READ, Why.MIG, Why.OUT_OF_RANGE,
           Why.STALE)

_POWER_BRAKE = 0x80
_ALARM_BITS = 0x8 | 0x40 | _POWER_BRAKE
BUSY_RATIO = 0.5
"""Above this utilisation the PCIe generation is judged whatever the performance state says."""
IDLE_RATIO = 0.05
"""Below this utilisation a low PCIe generation is power saving, whatever the performance state says."""
STALLED_UTILIZATION_RATIO = 0.95
"""From this utilisation on a GPU's power is compared with that of the others of its job, or node, that are as busy."""
STALLED_POWER_RATIO = 0.5
"""Busy, but drawing less than this share of what the others draw: it waits inside a kernel (a collective)."""
USED_BYTES = 1 << 30
"""A GPU with at least this much memory in use counts as having a process (process lists are too dear to read)."""

METRICS = (
    Metric("utilization_ratio", "ratio", "share of the last period in which any kernel ran", "util", hi=1.0, scale=0.01,
           history=True, source=_NVML, label="util"),
    Metric("memory_utilization_ratio", "ratio", "share of the last period in which memory was read or written",
           "mem_util", hi=1.0, scale=0.01, source=_NVML, label="mem util"),
    Metric("memory_used_bytes", "B", "framebuffer in use", "mem_used", hi=2.0**42, source=_NVML, label="used"),
    Metric("memory_total_bytes", "B", "framebuffer size", "mem_total", lo=1.0, hi=2.0**42, source=_NVML, label="total"),
    Metric("power_watts", "W", "power draw", "power_mw", hi=5000.0, scale=0.001, history=True, source=_NVML,
           label="power"),
    Metric("power_instant_watts", "W", "power draw at the moment; power_watts may be the last second's mean",
           "power_instant_mw", hi=5000.0, scale=0.001, source=_NVML, label="now"),
    Metric("power_limit_watts", "W", "enforced power limit", "power_limit_mw", lo=1.0, hi=5000.0, scale=0.001,
           source=_NVML, label="limit"),
    Metric("temperature_celsius", "°C", "core temperature", "temp", lo=-30.0, hi=150.0, history=True, source=_NVML,
           label="temp"),
    Metric("memory_temperature_celsius", "°C", "HBM temperature", "temp_mem", lo=-30.0, hi=150.0, source=_NVML,
           label="mem temp"),
    Metric("temperature_slowdown_celsius", "°C", "the card's own slowdown limit", "temp_slowdown", lo=1.0, hi=150.0,
           source=_NVML),
    Metric("temperature_shutdown_celsius", "°C", "the card's own shutdown limit", "temp_shutdown", lo=1.0, hi=150.0,
           source=_NVML),
    Metric("memory_temperature_max_celsius", "°C", "the memory's own limit", "temp_mem_max", lo=1.0, hi=150.0,
           source=_NVML),
    Metric("temperature_limit_margin_celsius", "°C", "from the card's hottest part to its limit, as the card tells it",
           "temp_margin", lo=-100.0, hi=150.0, source=_NVML),
    Metric("sm_clock_hertz", "Hz", "SM clock", "sm_mhz", hi=1e10, scale=1e6, source=_NVML, label="SM clock"),
    Metric("sm_clock_max_hertz", "Hz", "highest SM clock", "sm_mhz_max", lo=1.0, hi=1e10, scale=1e6, source=_NVML),
    Metric("memory_clock_hertz", "Hz", "memory clock", "mem_mhz", hi=1e11, scale=1e6, source=_NVML),
    Metric("clocks_event_reasons", "", "bit mask of clocks event reasons", "reasons", "state", hi=float(0xFFFF),
           source=_NVML),
    Metric("performance_state", "", "P0 (fastest) to P15", "pstate", "state", hi=15.0, source=_NVML, label="P"),
    Metric("pcie_generation", "", "current PCIe generation", "pcie_gen", lo=1.0, hi=6.0, source=_NVML, label="gen"),
    Metric("pcie_generation_max", "", "highest generation of card and host together", "pcie_gen_max", lo=1.0, hi=6.0,
           source=_NVML),
    Metric("pcie_generation_device_max", "", "highest generation of the card", "pcie_gen_devmax", lo=1.0, hi=6.0,
           source=_NVML),
    Metric("pcie_width_lanes", "lanes", "current PCIe width", "pcie_width", lo=1.0, hi=32.0, source=_NVML,
           label="width"),
    Metric("pcie_width_max_lanes", "lanes", "widest link of card and slot together", "pcie_width_max", lo=1.0, hi=32.0,
           source=_NVML),
    Metric("pcie_replays_total", "", "PCIe replays", "pcie_replays", "counter", hi=2.0**32, source=_NVML,
           rate="pcie_replays_per_second", label="replay"),
    Metric("ecc_corrected_total", "", "corrected ECC errors, volatile", "ecc_cor", "counter", hi=2.0**48, source=_NVML),
    Metric("ecc_uncorrected_total", "", "uncorrected ECC errors, volatile", "ecc_unc", "counter", hi=2.0**48,
           source=_NVML, label="ECC unc"),
    Metric("ecc_corrected_lifetime_total", "", "corrected ECC errors, aggregate", "ecc_cor_all", "counter", hi=2.0**48,
           source=_NVML),
    Metric("ecc_uncorrected_lifetime_total", "", "uncorrected ECC errors, aggregate", "ecc_unc_all", "counter",
           hi=2.0**48, source=_NVML),
    Metric("retired_pages_corrected_total", "", "pages retired after corrected errors (before Ampere)", "retired_cor",
           hi=65536.0, source=_NVML),
    Metric("retired_pages_uncorrected_total", "", "pages retired after uncorrected errors (before Ampere)",
           "retired_unc", hi=65536.0, source=_NVML),
    Metric("page_retirement_pending", "", "a page is retired at the next driver load (before Ampere)",
           "retired_pending", "state", hi=1.0, source=_NVML),
    Metric("nvlink_links", "", "NVLinks that the driver knows", "nvlink_links", hi=64.0, source=_NVML),
    Metric("nvlink_links_up", "", "NVLinks that are up", "nvlink_up", hi=64.0, source=_NVML, label="NVLink"),
    Metric("nvlink_flit_crc_errors_total", "", "NVLink flow control CRC errors, all links", "nvlink_crc_flit",
           "counter", hi=2.0**63, rate="nvlink_flit_crc_errors_per_second", source=_NVML),
    Metric("nvlink_data_crc_errors_total", "", "NVLink data CRC errors, all links", "nvlink_crc_data", "counter",
           hi=2.0**63, rate="nvlink_data_crc_errors_per_second", source=_NVML),
    Metric("nvlink_replays_total", "", "NVLink replays, all links", "nvlink_replays", "counter", hi=2.0**63,
           rate="nvlink_replays_per_second", source=_NVML),
    Metric("nvlink_recoveries_total", "", "NVLink recoveries, all links", "nvlink_recoveries", "counter", hi=2.0**63,
           rate="nvlink_recoveries_per_second", source=_NVML),
    Metric("fan_ratio", "ratio", "fan speed, of the fan's full speed", "fan", hi=2.0, scale=0.01, source=_NVML,
           label="fan"),
    Metric("mig_instances", "", "MIG instances", "mig_instances", hi=64.0, source=_NVML),
    Metric("xid_last", "", "last Xid since the probe started; 0: none", "xid", "state", hi=99999.0, source=xid.SOURCE,
           label="Xid"),
    Metric("xid_time_seconds", "s", "when that was, on the node's monotonic clock", "xid_time", hi=1e10,
           source=xid.SOURCE),
    Metric("xids_total", "", "Xids since the probe started", "xid_count", hi=1e9, source=xid.SOURCE),
    Metric("xid_codes", "", "Xids of the last hour and how often each came, newest first; 0: none", "xids", "state",
           hi=xid.LISTED + xid.MOST_TEXTS, parse=xid.codes, words=xid.TEXTS, source=xid.SOURCE),
    Metric("remapped_rows_corrected_total", "", "rows remapped after corrected errors", "remap_cor", hi=65536.0,
           source=_NVML),
    Metric("remapped_rows_uncorrected_total", "", "rows remapped after uncorrected errors", "remap_unc", hi=65536.0,
           source=_NVML),
    Metric("row_remap_pending", "", "a row remap waits for a GPU reset", "remap_pending", "state", hi=1.0,
           source=_NVML),
    Metric("row_remap_failed", "", "a row remap failed", "remap_failed", "state", hi=1.0, source=_NVML),
    Metric("bar1_total_bytes", "B", "BAR1 size; below the framebuffer size Resizable BAR is off", "bar1_total", lo=1.0,
           hi=2.0**44, source=_NVML),
    Metric("persistence_mode", "", "persistence mode", "persistence", "state", hi=1.0, words={0: "off", 1: "on"},
           source=_NVML),
    Metric("mig_mode", "", "MIG mode", "mig", "state", hi=1.0, words={0: "off", 1: "on"}, source=_NVML),
    Metric("ecc_mode", "", "ECC mode", "ecc_mode", "state", hi=1.0, words={0: "off", 1: "on"}, source=_NVML),
    Metric("presence", "", "whether the GPU answers", kind="derived",
           words={PRESENT: "present", LOST: "LOST", MISSING: "MISSING"}, label="state"),
    Metric("in_use", "", f"memory in use is at least {USED_BYTES >> 30} GiB", kind="derived"),
    Metric("busy_utilization_ratio", "ratio", "utilisation, of GPUs that are in use", kind="derived", hi=1.0),
    Metric("temperature_margin_celsius", "°C", "slowdown limit minus temperature; of cards that keep the limit to "
           "themselves, the margin that they tell", kind="derived", hi=180.0, label="margin"),
    Metric("memory_temperature_margin_celsius", "°C", "the memory's limit minus its temperature", kind="derived",
           hi=180.0),
    Metric("slowdown", "", "HW slowdown, HW thermal slowdown or HW power brake is on", kind="derived"),
    Metric("power_brake", "", "HW power brake is on: the supply asks for less power", kind="derived"),
    Metric("generation_missing", "", "generations below what card and host allow, judged under load", kind="derived"),
    Metric("xid_worst", "", "gravest Xid of the last hour; 0: none", kind="derived", source=xid.SOURCE),
    Metric("xid_age_seconds", "s", "since the last Xid", kind="derived"),
    Metric("xid_level", "", "how bad that is: 1 the job's own, 2 fabric or driver, 3 hardware", kind="derived",
           words={xid.NONE: "none", xid.INFO: "info", xid.WARNING: "warning", xid.CRITICAL: "critical"}),
    Metric("nvlink_links_missing", "", "NVLinks fewer than the best GPU of the node has up", kind="derived"),
    Metric("persistence_off_gpus", "", "GPUs of the node without persistence mode, on its first GPU",
           kind="derived"),
    Metric("bar1_ratio", "ratio", "BAR1 size over framebuffer size; below 1 Resizable BAR is off", kind="derived"),
    Metric("memory_unclaimed_bytes", "B", "memory in use that no process holds, while processes are listed",
           kind="derived", label="unclaimed"),
    Metric("power_of_busy_peers_ratio", "ratio", "power, of the limit, over the median of the other GPUs that are as "
           "busy: those of its job where that is known, else of its node", kind="derived"),
    Metric("busy_but_stalled", "", f"utilisation from {STALLED_UTILIZATION_RATIO:.0%} on, at less than "
           f"{STALLED_POWER_RATIO:.0%} of the power that the others draw", kind="derived"),
    Metric("utilization_below_peers_ratio", "ratio", "median utilisation of the node's busy GPUs minus this one's",
           kind="derived", hi=1.0),
)
TABLE = table("gpu", "gpu", "GPUs", METRICS)

PROCESS = table("process", "gpu", "processes", (
    Metric("gpu_memory_bytes", "B", "framebuffer of a compute process", "mem_used", hi=2.0**42, source=_NVML,
           label="used"),
))
"""Read only while an operator asks for it; rows that are no longer there are not present."""


def label(key: str, attrs: Mapping[str, object]) -> str:
    """``GPU 3``."""
    index = attrs.get("index")
    return f"GPU {index}" if isinstance(index, int) and not isinstance(index, bool) else f"GPU {key[:12]}"


def process_label(key: str, attrs: Mapping[str, object]) -> str:
    """``pid 4242``."""
    pid = attrs.get("pid")
    return f"pid {pid}" if isinstance(pid, int) and not isinstance(pid, bool) else f"pid {key.rpartition('/')[2]}"


def reason_words(mask: float) -> list[str]:
    """The clocks event reasons in *mask*, NVIDIA's words; unnamed bits as one hex number."""
    bits = int(mask)
    words = [text for bit, text, _ in REASON_BITS if bits & bit]
    rest = bits & ~sum(bit for bit, _, _ in REASON_BITS)
    return words + ([hex(rest)] if rest else [])


def derive(
    t: Columns, failed: NDArray[np.bool_], node_time: NDArray[np.float64] | None = None,
    job: NDArray[np.int32] | None = None, fresh: NDArray[np.bool_] | None = None,
) -> None:
    """Work out the derived columns of the GPU table in place.

    Args:
        t: the table.
        failed: [rows] True where the driver as a whole does not answer; then no single GPU is lost, and one without
            values is neither there nor gone.
        node_time: [rows] the node's monotonic clock at the reading, seconds.
        job: [rows] number of the GPU's job, negative where it is not known; None: no job is.
        fresh: [rows] whether the reading is of now: a node that fell silent is nobody's peer; None: all are.
    """
    # MIG hides whole-GPU utilisation; say so instead of "not supported".
    mig = t.col("mig_mode") == 1
    if mig.any():
        for name in ("utilization_ratio", "memory_utilization_ratio"):
            t.set_why(name, mig & np.isnan(t.col(name)), Why.MIG)
    lost = np.zeros(len(mig), np.bool_)
    silent, blank = np.ones(len(mig), np.bool_), np.ones(len(mig), np.bool_)
    for name in _VITAL:
        why = t.why_of(name)
        lost |= why == Why.GPU_LOST
        blank &= np.isnan(t.col(name))
        silent &= np.isnan(t.col(name)) & ~np.isin(why, _BENIGN)
    lost |= silent
    presence = np.where(~t.present, MISSING, np.where(lost, LOST, PRESENT)).astype(float)
    t.put("presence", np.where(failed & blank, np.nan, presence), Why.UNREADABLE)
    t.put("in_use", _known(t.col("memory_used_bytes"), t.col("memory_used_bytes") >= USED_BYTES))
    busy = np.where(t.col("in_use") == 1, t.col("utilization_ratio"), np.nan)
    t.put("busy_utilization_ratio", busy, Why.NOT_JUDGED)
    margin = t.col("temperature_slowdown_celsius") - t.col("temperature_celsius")
    own = np.isnan(t.col("temperature_slowdown_celsius")) & ~np.isnan(t.col("temperature_celsius"))
    t.put("temperature_margin_celsius", np.where(own, t.col("temperature_limit_margin_celsius"), margin))
    t.put("memory_temperature_margin_celsius",
          t.col("memory_temperature_max_celsius") - t.col("memory_temperature_celsius"))
    reasons = t.col("clocks_event_reasons")
    mask = np.where(np.isnan(reasons), 0, reasons).astype(np.int64)
    t.put("slowdown", _known(reasons, (mask & _ALARM_BITS) != 0))
    t.put("power_brake", _known(reasons, (mask & _POWER_BRAKE) != 0))
    t.put("generation_missing", _generation_missing(t), Why.NOT_JUDGED)
    t.put("utilization_below_peers_ratio", _below_peers(t.row_node, busy), Why.NOT_JUDGED)
    if node_time is not None:
        t.put("xid_age_seconds", np.maximum(node_time - t.col("xid_time_seconds"), 0.0))
    seen = t.col("xid_codes")
    codes, which = np.unique(seen, return_inverse=True)
    worst = np.array([xid.gravest(code) for code in codes])
    t.put("xid_worst", worst[which] if len(seen) else seen)
    t.why_of("xid_worst")[np.isnan(seen)] = t.why_of("xid_codes")[np.isnan(seen)]
    t.put("xid_level", np.array([xid.level(code) for code in worst])[which] if len(seen) else seen)
    t.put("nvlink_links_missing", _links_missing(t.row_node, t.col("nvlink_links_up")))
    t.put("bar1_ratio", t.col("bar1_total_bytes") / t.col("memory_total_bytes"))
    t.put("persistence_off_gpus", _first_of_node(t.row_node, t.col("persistence_mode")))
    _stalled(t, _peers(t.row_node, job), fresh)


def _known(value: NDArray[np.float64], flag: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.where(np.isnan(value), np.nan, flag.astype(float))


def _generation_missing(t: Columns) -> NDArray[np.float64]:
    """Generations below min(card, host), or NaN where the link is idle: it sinks to save power, that is healthy.

    Where neither utilisation nor performance state is known the link counts as loaded (the rule asks for two polls).
    """
    util, pstate = t.col("utilization_ratio"), t.col("performance_state")
    loaded = (pstate <= 2) | (util >= BUSY_RATIO) | (np.isnan(util) & np.isnan(pstate))
    loaded &= ~(util < IDLE_RATIO)
    ceiling = np.fmin(t.col("pcie_generation_max"), t.col("pcie_generation_device_max"))
    missing = ceiling - t.col("pcie_generation")
    return np.where(loaded, missing, np.nan)


def _below_peers(node: NDArray[np.int32], busy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median of the busy GPUs of the same node minus this GPU's; NaN with fewer than three of them."""
    out = np.full(busy.shape, np.nan)
    known = np.flatnonzero(~np.isnan(busy))
    if not len(known):
        return out
    order = known[np.lexsort((busy[known], node[known]))]
    _, start, count = np.unique(node[order], return_index=True, return_counts=True)
    values = busy[order]
    median = (values[start + (count - 1) // 2] + values[start + count // 2]) / 2
    median[count < 3] = np.nan
    out[order] = np.repeat(median, count) - values
    return out


def _links_missing(node: NDArray[np.int32], up: NDArray[np.float64]) -> NDArray[np.float64]:
    """Most NVLinks up on any GPU of the node minus this one's."""
    best = np.full(int(node.max(initial=-1)) + 1, -np.inf)
    known = ~np.isnan(up)
    np.maximum.at(best, node[known], up[known])
    return np.where(known, best[node] - up, np.nan)


def _first_of_node(node: NDArray[np.int32], mode: NDArray[np.float64]) -> NDArray[np.float64]:
    """Number of GPUs of the node whose mode is off, on the node's first GPU; 0 on the others: one alert a node.

    It stays in its place whatever single GPUs say. Where none is off and some do not tell it is unknown.
    """
    out = np.zeros(len(node))
    nodes, first = np.unique(node, return_index=True)
    size = int(node.max(initial=-1)) + 1
    off = np.bincount(node[mode == 0], minlength=size)[nodes].astype(float)
    silent = np.bincount(node[np.isnan(mode)], minlength=size)[nodes]
    out[first] = np.where((off == 0) & (silent > 0), np.nan, off)
    out[np.isnan(mode) & (out == 0)] = np.nan
    return out


def _peers(node: NDArray[np.int32], job: NDArray[np.int32] | None) -> NDArray[np.int64]:
    """[rows] a number that GPUs with the same work share: their job where it is known, else their node."""
    if job is None or len(job) != len(node):
        return node.astype(np.int64)
    return np.where(job >= 0, -1 - job.astype(np.int64), node.astype(np.int64))


def _stalled(t: Columns, peers: NDArray[np.int64], fresh: NDArray[np.bool_] | None) -> None:
    """Compare the power of GPUs that are fully busy; in shares of their limits, so that unlike cards compare."""
    util = t.col("utilization_ratio")
    share = t.col("power_watts") / t.col("power_limit_watts")
    busy = (util >= STALLED_UTILIZATION_RATIO) & ~np.isnan(share)
    if fresh is not None:
        busy &= fresh
    ratio = np.full(util.shape, np.nan)
    rows = np.flatnonzero(busy)
    order = rows[np.lexsort((share[rows], peers[rows]))]
    _, start, count = np.unique(peers[order], return_index=True, return_counts=True)
    values = share[order]
    begin, others = np.repeat(start, count), np.repeat(count, count) - 1
    rank = np.arange(len(order)) - begin
    enough = others >= 2
    # The median of the others: their places in the sorted run, one further on from this GPU's own place.
    low, high = (others - 1) // 2, others // 2
    places = [begin + place + (place >= rank) for place in (low, high)]
    last = max(len(order) - 1, 0)
    median = (values[np.minimum(places[0], last)] + values[np.minimum(places[1], last)]) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio[order] = np.where(enough & (median > 0), values / median, np.nan)
    t.put("power_of_busy_peers_ratio", ratio, Why.NOT_JUDGED)
    # A GPU that is not busy is not stalled, whatever the others do; one that is, and has no peers, is not judged.
    flag = np.where(util < STALLED_UTILIZATION_RATIO, 0.0,
                    np.where(np.isnan(ratio), np.nan, (ratio < STALLED_POWER_RATIO).astype(float)))
    t.put("busy_but_stalled", flag, Why.NOT_JUDGED)
