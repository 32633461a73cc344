"""RDMA ports: state, rate, and counters by what they mean.

Sources: kernel Documentation/ABI/stable/sysfs-class-infiniband; InfiniBand Architecture Specification, PortCounters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals.metric import Metric, table
from clustertop.signals.rdma_counters import COUNTERS
from clustertop.signals.units import data_rate, number, numbered_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

_ABI = "https://docs.kernel.org/admin-guide/abi-stable.html"

UP, DOWN, POLLING, DISABLED, INIT, TRAINING, ABSENT = 0, 1, 2, 3, 4, 5, 6
LINK_WORDS = {
    UP: "up",
    DOWN: "down",
    POLLING: "down (polling: no partner signal)",
    DISABLED: "off (disabled)",
    INIT: "init (no subnet manager)",
    TRAINING: "training",
    ABSENT: "MISSING",
}

_STATE = (
    Metric("state", "", "logical state", "state", "state", hi=5.0, parse=numbered_state, source=_ABI,
           words={0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}),
    Metric("physical_state", "", "physical state", "phys_state", "state", hi=7.0, parse=numbered_state, source=_ABI,
           words={0: "no change", 1: "Sleep", 2: "Polling", 3: "Disabled", 4: "Training", 5: "LinkUp",
                  6: "LinkErrorRecovery", 7: "Phy Test"}),
    Metric("rate_bits_per_second", "b/s", "signalling rate; of a port that is down it means nothing", "rate",
           lo=1e9, hi=1e13, parse=data_rate, source=_ABI, label="rate"),
)
_DERIVED = (
    Metric("link", "", "state and physical state together", kind="derived", words=LINK_WORDS, label="link"),
    Metric("was_up", "", "1: the port has been seen up, so it is expected up", kind="derived"),
    Metric("down", "", "1: an expected port is not up (an administratively disabled one is off, not down)",
           kind="derived"),
    Metric("virtual", "", "1: a virtual function; shown under its parent, not judged", kind="derived"),
    Metric("hard_errors_total", "", "increase of hard errors since first seen", kind="derived", label="hard"),
    Metric("soft_errors_total", "", "increase of soft errors since first seen", kind="derived", label="soft"),
    Metric("congestion_total", "", "increase of congestion counters since first seen", kind="derived", label="cong"),
    Metric("hard_errors_last_minute", "", "hard errors in the last minute", kind="derived", label="hard/min"),
    Metric("soft_errors_last_minute", "", "soft errors in the last minute", kind="derived", label="soft/min"),
    Metric("saturated_counters", "", "counters stopped at their end: true value unknown", kind="derived"),
)

METRICS = (
    _STATE
    + tuple(
        Metric(
            counter.name, "B" if counter.scale != 1 or counter.is_bytes else "", counter.meaning,
            f"{counter.family}:{counter.name}", "counter" if counter.cls != "info" else "gauge",
            hi=2.0**64, scale=float(counter.scale), parse=number, bits=counter.bits, cls=counter.cls,
            rate=counter.rate, history=bool(counter.rate), source=counter.source,
        )
        for counter in COUNTERS
    )
    + _DERIVED
)
TABLE = table("port", "rdma", "RDMA ports", METRICS)

ERROR_WORDS = {"hard": "hard_errors", "soft": "soft_errors", "congestion": "congestion"}


def label(key: str, attrs: Mapping[str, object]) -> str:
    """``mlx5_0/1``: the current name is only a label."""
    dev, port = attrs.get("dev"), attrs.get("port")
    return f"{dev}/{port}" if dev else key


def derive(t: Columns, virtual: NDArray[np.bool_]) -> None:
    """Work out link, expectation and saturation in place. ``was_up`` is kept from tick to tick."""
    state, physical = t.col("state"), t.col("physical_state")
    link = np.full(len(t), np.nan)
    link[state >= 4] = UP
    link[state == 3] = INIT
    link[state == 2] = INIT
    down = state == 1
    link[down] = DOWN
    link[down & (physical == 2)] = POLLING
    link[down & (physical == 3)] = DISABLED
    link[down & (physical == 4)] = TRAINING
    link[~t.present] = ABSENT
    t.put("link", link)
    t.put("virtual", virtual.astype(float))
    was_up = (t.col("was_up") == 1) | (link == UP)
    t.put("was_up", was_up.astype(float))
    expected = was_up & ~virtual
    broken = (link == DOWN) | (link == POLLING) | (link == TRAINING) | (link == INIT) | (link == ABSENT)
    t.put("down", np.where(np.isnan(link) | ~expected, np.nan, broken.astype(float)), Why.NOT_JUDGED)
    # A port that is down has no capacity; its nominal 10 Gb/s is not one.
    no_rate = ~np.isnan(link) & (link != UP)
    column = t.spec.index["rate_bits_per_second"]
    t.values[column][no_rate] = np.nan
    t.why[column][no_rate] = Why.NOT_JUDGED


def errors_of(t: Columns, row: int, grown: NDArray[np.float64], counters: tuple[str, ...]) -> list[tuple[str, float]]:
    """Return (counter, increase since first seen) of the error counters of one row that grew, most first."""
    out = [
        (name, float(grown[position, row]))
        for position, name in enumerate(counters)
        if t.spec.metric(name).cls in {"hard", "soft"} and grown[position, row] > 0
    ]
    return sorted(out, key=lambda pair: -pair[1])
