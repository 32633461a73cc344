"""PCIe: what each device trained at, what it should have, and which hop of its path is the narrow one.

Sources: kernel Documentation/ABI/testing/sysfs-bus-pci (current_link_width, ...), sysfs-bus-pci-devices-aer_stats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals import kernel_log
from clustertop.signals.metric import Metric, table
from clustertop.signals.units import LANE_COUNTS, lane_bytes, link_speed, link_width, pci_key, speed_of_generation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

CONFIGURED, PEERS, OWN = 0, 1, 2
"""Where an expected width comes from."""
_SYSFS = "https://docs.kernel.org/admin-guide/abi-testing.html"

METRICS = (
    Metric("sysfs_width_lanes", "lanes", "current_link_width as sysfs says", "cur_width", lo=1.0, hi=32.0,
           parse=link_width, source=_SYSFS),
    Metric("sysfs_width_max_lanes", "lanes", "max_link_width as sysfs says", "max_width", lo=1.0, hi=32.0,
           parse=link_width, source=_SYSFS),
    Metric("width_lanes", "lanes", "width the link is trained at: the lesser of what sysfs and NVML say",
           kind="derived", source=_SYSFS, label="width"),
    Metric("width_max_lanes", "lanes", "widest the device can do: the greater of what sysfs and NVML say",
           kind="derived", source=_SYSFS, label="max"),
    Metric("speed_gts", "GT/s", "speed of each lane", "cur_speed", lo=2.5, hi=64.0, parse=link_speed, source=_SYSFS,
           label="speed"),
    Metric("speed_max_gts", "GT/s", "fastest the device can do", "max_speed", lo=2.5, hi=64.0, parse=link_speed,
           source=_SYSFS),
    Metric("aer_correctable_total", "", "correctable AER errors", "aer_cor", "counter", hi=2.0**64, source=_SYSFS,
           rate="aer_correctable_per_second", label="AER cor"),
    Metric("aer_nonfatal_total", "", "uncorrectable, non-fatal AER errors", "aer_nonfatal", "counter", hi=2.0**64,
           source=_SYSFS, rate="aer_nonfatal_per_second"),
    Metric("aer_fatal_total", "", "fatal AER errors", "aer_fatal", "counter", hi=2.0**64, source=_SYSFS,
           rate="aer_fatal_per_second"),
    Metric("kernel_messages_total", "", "lines of the kernel's log about it since the probe started", "klog_count",
           hi=1e9, source=kernel_log.SOURCE, label="log"),
    Metric("kernel_message_time_seconds", "s", "when the last of them came, on the node's monotonic clock", "klog_time",
           hi=1e10, source=kernel_log.SOURCE),
    Metric("kernel_messages", "", "lines of the last hour and how often each came, newest first; 0: none", "klog",
           "state", hi=kernel_log.MOST, parse=kernel_log.number, words=kernel_log.TEXTS, source=kernel_log.SOURCE),
    Metric("kernel_messages_older", "", "the older ones of these, where they are many", "klog_more", "state",
           hi=kernel_log.MOST, parse=kernel_log.number, words=kernel_log.TEXTS, source=kernel_log.SOURCE),
    Metric("kernel_message_level", "", "how grave the gravest of them is", kind="derived",
           words=kernel_log.LEVEL_WORDS, source=kernel_log.SOURCE),
    Metric("kernel_message_age_seconds", "s", "since the last of them", kind="derived", source=kernel_log.SOURCE),
    Metric("endpoint", "", "1: GPU, NIC or NVMe; 0: a bridge", kind="derived"),
    Metric("width_expected_lanes", "lanes", "configured, else the commonest maximum of the same model, else its own",
           kind="derived", label="expected"),
    Metric("width_expected_by", "", "where the expected width comes from", kind="derived",
           words={CONFIGURED: "config", PEERS: "peers", OWN: "own maximum"}),
    Metric("path_width_lanes", "lanes", "narrowest hop from the device to the root port", kind="derived", label="path"),
    Metric("width_drop_seconds", "s", "since the path became narrower than it was; unknown where no drop was seen",
           kind="derived"),
    Metric("width_before_lanes", "lanes", "what it was before that", kind="derived"),
    Metric("narrow_hop_row", "", "row of that hop", kind="derived"),
    Metric("width_missing_lanes", "lanes", "lanes missing at this hop, for itself or a device below it", kind="derived",
           label="missing"),
    Metric("lost_bytes_per_second", "B/s", "bandwidth that the missing lanes cost, each way", kind="derived",
           label="lost"),
    Metric("speed_missing_gts", "GT/s", "speed below what device and port above allow; not GPUs, which sink when idle",
           kind="derived"),
)
TABLE = table("pcie", "pcie", "PCIe devices", METRICS)

NO_ROW = -1
NO_MODEL = -1
_SPEED_OF = np.array([speed_of_generation(number) for number in range(16)])
_LANE_COUNTS = np.array(sorted(LANE_COUNTS), dtype=float)
MAX_HOPS = 8
LEAST_LANES = 4
"""Links that should be narrower are not judged: on-board management adapters at x1 of x2 are wired so."""


def kind(attrs: Mapping[str, object]) -> str:
    """``gpu``, ``nic``, ``nvme``, ``bridge`` or ``other``, by PCI class code."""
    code = str(attrs.get("class", "")).lower().removeprefix("0x").zfill(6)
    if code.startswith("03"):
        return "gpu"
    if code.startswith("02"):
        return "nic"
    if code.startswith("0108"):
        return "nvme"
    if code.startswith("0604"):
        return "bridge"
    return "other"


def model(attrs: Mapping[str, object]) -> str:
    """What makes two devices the same model: vendor, device and subsystem; empty if the node did not say."""
    vendor, device = attrs.get("vendor"), attrs.get("device")
    return f"{vendor}:{device}:{attrs.get('subsystem') or ''}" if vendor and device else ""


def label(key: str, attrs: Mapping[str, object]) -> str:
    """``17:00.0`` with what hangs on it: ``17:00.0 mlx5_0``."""
    short = key.removeprefix("0000:")
    name = attrs.get("name")
    return f"{short} {name}" if isinstance(name, str) and name else short


def expected_widths(
    models: NDArray[np.intp], maxima: NDArray[np.float64], configured: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the width each device should have, [rows]; NaN where nothing says so.

    In order: what the operator configured; the commonest maximum among devices of the same model (a card that
    trained at x8 at boot may report x8 as its maximum, its peers do not; of two equally common the wider); the
    device's own maximum. Below ``LEAST_LANES`` only what is configured counts.

    Args:
        models: [rows] a number per model, NO_MODEL where the node did not say.
        maxima: [rows] the devices' own maxima, lanes.
        configured: [rows] the operator's, NaN where there is none.
    """
    peer, _ = _peer_widths(models, maxima)
    out = np.where(np.isnan(peer), maxima, peer)
    out[out < LEAST_LANES] = np.nan
    return np.where(np.isnan(configured), out, configured)


def expected_by(
    models: NDArray[np.intp], maxima: NDArray[np.float64], configured: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return which of the three :func:`expected_widths` went by, [rows]: CONFIGURED, PEERS, OWN; NaN where by none.

    A device that is the only one of its model goes by its own maximum.
    """
    peer, told = _peer_widths(models, maxima)
    others = told - ~np.isnan(maxima)
    out = np.where(np.isnan(maxima), np.nan, float(OWN))
    out = np.where(~np.isnan(peer) & (others > 0), float(PEERS), out)
    out[np.where(np.isnan(peer), maxima, peer) < LEAST_LANES] = np.nan
    return np.where(np.isnan(configured), out, float(CONFIGURED))


def _peer_widths(
    models: NDArray[np.intp], maxima: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """The commonest maximum of each device's model, [rows], and how many of that model tell theirs."""
    peer = np.full(maxima.shape, np.nan)
    count = np.zeros(maxima.shape, np.intp)
    told = np.flatnonzero((models != NO_MODEL) & ~np.isnan(maxima))
    if len(told):
        # Lane counts end at 32, so model and width make one number, wider ones later.
        pairs, counts = np.unique(models[told] * 64 + maxima[told].astype(np.intp), return_counts=True)
        best = np.lexsort((pairs, counts, pairs // 64))
        last = np.flatnonzero(np.diff(pairs[best] // 64, append=-1))
        common = np.full(int(models.max()) + 1, np.nan)
        common[pairs[best[last]] // 64] = pairs[best[last]] % 64
        peer = np.where(models != NO_MODEL, common[models], np.nan)
        many = np.bincount(models[told], minlength=int(models.max()) + 1)
        count = np.where(models != NO_MODEL, many[models], 0)
    return peer, count


def chains(keys: Sequence[str], row_node: NDArray[np.int32], attrs: Sequence[Mapping[str, object]]) -> NDArray[np.intp]:
    """Return [MAX_HOPS, rows]: the rows of each device's path, itself first, root port last, NO_ROW beyond."""
    where = {(int(node), pci_key(key)): row for row, (node, key) in enumerate(zip(row_node, keys, strict=True))}
    out = np.full((MAX_HOPS, len(keys)), NO_ROW, np.intp)
    for row, (node, own) in enumerate(zip(row_node, attrs, strict=True)):
        out[0, row] = row
        path = own.get("path")
        depth = 1
        for hop in path if isinstance(path, list) else []:
            above = where.get((int(node), pci_key(hop)))
            if above is not None and depth < MAX_HOPS:
                out[depth, row] = above
                depth += 1
    return out


def merge(t: Columns, gpu: Columns, join: NDArray[np.intp]) -> None:
    """Fill the widths in place from sysfs and, where a device is a GPU, from NVML, which is read more often.

    Args:
        t: the PCIe table.
        gpu: the GPU table.
        join: [rows] of *t*: the GPU's row, or NO_ROW.
    """
    for name, sysfs, nvml, choose in (
        ("width_lanes", "sysfs_width_lanes", "pcie_width_lanes", np.fmin),
        ("width_max_lanes", "sysfs_width_max_lanes", "pcie_width_max_lanes", np.fmax),
    ):
        known = _lanes(t.col(sysfs))
        if len(gpu):
            known = choose(known, np.where(join != NO_ROW, _lanes(gpu.col(nvml))[join], np.nan))
        number = t.spec.index[name]
        t.values[number] = known
        t.why[number] = np.where(np.isnan(known), t.why_of(sysfs), Why.KNOWN)
        t.why[number][np.isnan(known) & ~np.isnan(t.col(sysfs))] = Why.OUT_OF_RANGE
    if not len(gpu):
        return
    # Where sysfs does not show the device, NVML's generations say what a lane carries.
    fastest = np.fmin(gpu.col("pcie_generation_max"), gpu.col("pcie_generation_device_max"))
    for name, generations in (("speed_gts", gpu.col("pcie_generation")), ("speed_max_gts", fastest)):
        number = t.spec.index[name]
        fill = np.isnan(t.values[number]) & (join != NO_ROW)
        known = _SPEED_OF[np.nan_to_num(generations).astype(np.intp)][join]
        t.values[number] = np.where(fill, known, t.values[number])
        t.why[number][fill & ~np.isnan(known)] = Why.KNOWN


def _lanes(width: NDArray[np.float64]) -> NDArray[np.float64]:
    """A number that is no lane count is unknown."""
    return np.where(np.isin(width, _LANE_COUNTS), width, np.nan)


def derive(
    t: Columns, chain: NDArray[np.intp], expected: NDArray[np.float64], endpoint: NDArray[np.bool_],
    sinks: NDArray[np.bool_],
) -> None:
    """Work out path, narrow hop, missing lanes and lost bandwidth in place.

    Args:
        t: the table.
        chain: from :func:`chains`.
        expected: [rows] from :func:`expected_widths`.
        endpoint: [rows] True for GPUs, NICs and NVMe; only they are judged, bridges only for what is below them.
        sinks: [rows] True for GPUs, whose speed sinks when idle: it is judged by their load, not here.
    """
    width, rows = t.col("width_lanes"), len(t)
    path, narrow = _narrowest(width, chain)
    own_unknown = np.isnan(width)
    path = np.where(own_unknown, np.nan, path)
    t.put("endpoint", endpoint.astype(float))
    t.put("width_expected_lanes", np.where(endpoint, expected, np.nan), Why.NOT_PROVIDED)
    t.put("path_width_lanes", path, Why.PATH_UNKNOWN)
    t.put("narrow_hop_row", np.where(np.isnan(path), np.nan, narrow), Why.PATH_UNKNOWN)
    missing = np.where(endpoint, expected - path, np.nan)
    short = np.flatnonzero(missing > 0)
    at_hop = np.where(endpoint & ~np.isnan(missing), 0.0, np.nan)
    lost = np.where(endpoint & ~np.isnan(missing), 0.0, np.nan)
    # A bridge is judged by the devices below it: known and fine when any of them is.
    for depth in range(1, MAX_HOPS):
        hops = chain[depth][(chain[depth] != NO_ROW) & ~np.isnan(missing)]
        at_hop[hops] = np.fmax(at_hop[hops], 0.0)
    if len(short):
        ceiling = np.fmax(t.col("speed_max_gts"), t.col("speed_gts"))
        for row in short.tolist():
            hop = int(narrow[row])
            at_hop[hop] = np.fmax(at_hop[hop], missing[row])
            lost[row] = missing[row] * lane_bytes(float(ceiling[row]))
            lost[hop] = np.fmax(lost[hop], lost[row])
    t.put("width_missing_lanes", at_hop, Why.NOT_JUDGED)
    t.put("lost_bytes_per_second", lost, Why.NOT_JUDGED)
    above = chain[1] if rows else np.empty(0, np.intp)
    port_max = np.where(above != NO_ROW, t.col("speed_max_gts")[above], np.nan) if rows else np.empty(0)
    own_max = t.col("speed_max_gts")
    reach = np.where(np.isnan(own_max), np.nan, np.fmin(own_max, port_max))
    t.put("speed_missing_gts", np.where(endpoint & ~sinks, np.maximum(reach - t.col("speed_gts"), 0.0), np.nan),
          Why.NOT_JUDGED)


def kernel(t: Columns, node_time: NDArray[np.float64]) -> None:
    """Work out in place how grave it is what the kernel's log says of each device, and how old.

    Args:
        t: the table.
        node_time: [rows] the node's monotonic clock at the reading, seconds.
    """
    count = t.col("kernel_messages_total")
    level = np.fmax(_levels(t.col("kernel_messages")), _levels(t.col("kernel_messages_older")))
    # The older ones alone say too little; without a single line there is nothing to say.
    level = np.where(np.isnan(t.col("kernel_messages")), np.nan, level)
    level = np.where(np.isnan(level) & (count == 0), 0.0, level)
    t.put("kernel_message_level", level)
    t.why_of("kernel_message_level")[np.isnan(level)] = np.where(
        np.isnan(count), t.why_of("kernel_messages_total"), t.why_of("kernel_messages"))[np.isnan(level)]
    t.put("kernel_message_age_seconds", np.maximum(node_time - t.col("kernel_message_time_seconds"), 0.0))


def _levels(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gravity of each number of :func:`kernel_log.number`."""
    told, which = np.unique(numbers, return_inverse=True)
    return np.array([kernel_log.level(number) for number in told])[which] if len(told) else numbers


def _narrowest(width: NDArray[np.float64], chain: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Least width over each path and the row it is at; on equal width the hop nearest to the device."""
    best = width.copy()
    at = chain[0].copy()
    for depth in range(1, chain.shape[0]):
        hop = chain[depth]
        there = np.where(hop != NO_ROW, width[hop], np.nan)
        better = there < np.where(np.isnan(best), np.inf, best)
        best = np.where(better, there, best)
        at = np.where(better, hop, at)
    return best, at
