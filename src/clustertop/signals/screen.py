"""Facts of a screening pass that no other table has: the node's own name, network sysctls, other monitors.

Sources: getaddrinfo(3); kernel Documentation/admin-guide/sysctl/net.rst and Documentation/networking/ip-sysctl.rst;
proc(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.model import Attr
    from clustertop.signals.columns import Columns

_NAME = "https://man7.org/linux/man-pages/man3/getaddrinfo.3.html"
_SYSCTL = "https://docs.kernel.org/networking/ip-sysctl.html"
_COMM = "https://man7.org/linux/man-pages/man5/proc_pid_comm.5.html"

RESOLVES, NO_ANSWER, FAILS = 0, 1, 2
GPU_MONITORS = frozenset({
    "all-smi", "dcgm-exporter", "dcgmi", "gpud", "gpustat", "nv-hostengine", "nvidia-smi", "nvidia_gpu_exporter",
    "nvidia_gpu_prometheus_exporter", "nvitop", "nvitop-exporter", "nvtop",
})
"""Of the monitors that the probe knows, those that ask NVIDIA's driver; the others may, or may not."""


def lookup(text: str) -> float:
    """``ok``, ``no answer`` or the name of an error → RESOLVES, NO_ANSWER or FAILS."""
    return {"ok": RESOLVES, "no answer": NO_ANSWER}.get(text, FAILS)


TABLE = table("screen", "screen", "screening facts", (
    Metric("name_lookup_seconds", "s", "looking up the node's own host name took so long, or has so far", "dns_seconds",
           hi=1e6, source=_NAME, label="dns"),
    Metric("name_lookup", "", "what looking up the node's own host name gave", "dns", "state", hi=float(FAILS),
           parse=lookup, words={RESOLVES: "resolves", NO_ANSWER: "no answer yet", FAILS: "fails"}, source=_NAME),
    Metric("somaxconn", "", "net.core.somaxconn", "somaxconn", lo=1.0, hi=2.0**32, source=_SYSCTL),
    Metric("slow_start_after_idle", "", "net.ipv4.tcp_slow_start_after_idle", "slow_start_after_idle", hi=1.0,
           words={0: "off", 1: "on"}, source=_SYSCTL),
    Metric("monitors", "", "processes with the name of a known monitor", "monitors", hi=1e6, source=_COMM),
    Metric("gpu_monitored", "", "1: one of them asks NVIDIA's driver", kind="derived", words={0: "no", 1: "yes"}),
))


def label(key: str, attrs: Mapping[str, Attr]) -> str:
    """The row is about the node itself."""
    return key or "node"


def monitors(attrs: Mapping[str, Attr]) -> dict[str, int]:
    """How many processes of each known monitor run, as a row's attributes say."""
    said = attrs.get("monitors")
    out = {}
    for one in said if isinstance(said, list) else ():
        name, _, count = one.rpartition(" ")
        if name and count.isascii() and count.isdecimal():
            out[name] = int(count)
    return out


def gpu_monitored(attrs: Mapping[str, Attr]) -> bool:
    """Whether a monitor beside this one asks NVIDIA's driver."""
    return not GPU_MONITORS.isdisjoint(monitors(attrs))


def derive(t: Columns, watched: NDArray[np.bool_]) -> None:
    """Work out the derived columns in place; *watched* is [rows] of :func:`gpu_monitored`."""
    known = ~np.isnan(t.col("monitors"))
    t.put("gpu_monitored", np.where(known, (watched & (t.col("monitors") > 0)).astype(float), np.nan))
    t.why_of("gpu_monitored")[~known] = t.why_of("monitors")[~known]
