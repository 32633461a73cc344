"""Local file systems: how full they are, as ``df`` says it.

Source: statvfs(3). What is free but kept for root is neither used nor available.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

_STATVFS = "https://man7.org/linux/man-pages/man3/statvfs.3.html"

TABLE = table("disk", "disk", "local file systems", (
    Metric("size_bytes", "B", "size", "size", lo=1.0, hi=2.0**70, source=_STATVFS, label="size"),
    Metric("free_bytes", "B", "free, with what is kept for root", "free", hi=2.0**70, source=_STATVFS),
    Metric("available_bytes", "B", "free for everybody", "available", hi=2.0**70, source=_STATVFS, label="free"),
    Metric("inodes", "", "files it can hold", "inodes", lo=1.0, hi=2.0**64, source=_STATVFS),
    Metric("inodes_free", "", "files it can still hold", "inodes_free", hi=2.0**64, source=_STATVFS),
    Metric("used_ratio", "ratio", "used, of used and available", kind="derived", label="used"),
    Metric("inodes_used_ratio", "ratio", "inodes in use", kind="derived", label="inodes"),
    Metric("full_ratio", "ratio", "the fuller of space and inodes; not judged where it is mounted read-only",
           kind="derived"),
    Metric("read_only", "", "1: mounted read-only", kind="derived"),
))


def label(key: str, attrs: Mapping[str, object]) -> str:
    """Where it is mounted."""
    return str(attrs.get("place") or key)


def derive(t: Columns, read_only: NDArray[np.bool_]) -> None:
    """Work out the shares in place; *read_only*: [rows] whether it is mounted so."""
    used = t.col("size_bytes") - t.col("free_bytes")
    used = np.where(used >= 0, used, np.nan)
    share = _share(used, used + t.col("available_bytes"))
    inodes = _share(t.col("inodes") - t.col("inodes_free"), t.col("inodes"))
    t.put("used_ratio", share)
    t.put("inodes_used_ratio", inodes)
    t.put("full_ratio", np.where(read_only, np.nan, np.fmax(share, inodes)), Why.NOT_JUDGED)
    unknown = np.isnan(share) & ~read_only
    t.why_of("full_ratio")[unknown] = Why.NOT_PROVIDED
    t.put("read_only", read_only.astype(float))


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio = part / np.where(whole > 0, whole, np.nan)
    out: NDArray[np.float64] = np.where((ratio >= 0) & (ratio <= 1), ratio, np.nan)
    return out
