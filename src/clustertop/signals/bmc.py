"""What a BMC says: the power of the whole node, its power supplies, its sensors.

Sources: DMTF DSP0268 (Redfish schema supplement), IPMI 2.0 (tables 42-2 and 42-3) and DCMI 1.5. Limits are the device's
own. A state that was not read is unknown, which is never "ok".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import intern
from clustertop.signals.metric import Metric, table, word_parser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

_REDFISH = "https://www.dmtf.org/dsp/DSP0268"
_MOST_WATTS, _MOST_AMPS, _MOST_VOLTS, _MOST_READING = 1e7, 1e5, 1e5, 1e18
"""No device of these measures more (as ``sources.bmc_reading``)."""

FULL, DEGRADED, LOST = 0, 1, 2
REDUNDANCY: Mapping[str, int] = {"full": FULL, "degraded": DEGRADED, "lost": LOST}
PSU_OK, PSU_NO_INPUT, PSU_FAILED, PSU_ABSENT, PSU_WARNING = 0, 1, 2, 3, 4
PSU_STATES: Mapping[str, int] = {
    "ok": PSU_OK, "ac_lost": PSU_NO_INPUT, "failed": PSU_FAILED, "absent": PSU_ABSENT, "warning": PSU_WARNING,
}
_ON: Mapping[str, int] = {"off": 0, "on": 1}

TABLE = table("bmc", "bmc", "BMCs", (
    Metric("power_watts", "W", "power of the whole node as its BMC says it", "watts", hi=_MOST_WATTS, history=True,
           source=_REDFISH, label="power"),
    Metric("capacity_watts", "W", "what its power supplies can give; never a load", "capacity", hi=_MOST_WATTS,
           source=_REDFISH, label="capacity"),
    Metric("host_on", "", "whether the host is switched on", "host", "state", hi=1.0, parse=word_parser(_ON),
           words={0: "off", 1: "on"}, source=_REDFISH, label="host"),
    Metric("redundancy", "", "whether its supplies still cover for each other; the worst of its groups", "redundancy",
           "state", hi=float(LOST), parse=word_parser(REDUNDANCY), source=_REDFISH, label="redundancy",
           words={FULL: "full", DEGRADED: "degraded", LOST: "LOST"}),
    Metric("alarms", "", "how many alarms the device itself has raised", "alarms", hi=1e6, source=_REDFISH,
           label="alarms"),
    Metric("alarm_level", "", "how bad the worst of them is by the device's own word; told over Redfish only",
           "alarm_level", "state", hi=2.0, source=_REDFISH, words={0: "none", 1: "warning", 2: "CRITICAL"}),
))

PSU = table("psu", "bmc", "power supplies", (
    Metric("psu_state", "", "what the supply says of itself", "state", "state", hi=float(PSU_WARNING),
           parse=word_parser(PSU_STATES), source=_REDFISH, label="state",
           words={PSU_OK: "ok", PSU_NO_INPUT: "no input", PSU_FAILED: "FAILED", PSU_ABSENT: "absent",
                  PSU_WARNING: "warning"}),
    Metric("input_watts", "W", "power taken from the feed", "in_watts", hi=_MOST_WATTS, history=True, source=_REDFISH,
           label="in W"),
    Metric("output_watts", "W", "power given to the node", "out_watts", hi=_MOST_WATTS, source=_REDFISH,
           label="out W"),
    Metric("input_volts", "V", "voltage of the feed", "in_volts", hi=_MOST_VOLTS, source=_REDFISH, label="in V"),
    Metric("input_amps", "A", "current taken from the feed", "in_amps", hi=_MOST_AMPS, source=_REDFISH, label="in A"),
    Metric("capacity_watts", "W", "rating; never a load", "capacity", hi=_MOST_WATTS, source=_REDFISH,
           label="capacity"),
    Metric("fault_level", "", "how bad what the supply says is; of one that is absent only where it was there before",
           kind="derived", words={0: "ok", 1: "warning, no input, or gone", 2: "FAILED"}),
))
_FAULTS = {PSU_OK: 0.0, PSU_NO_INPUT: 1.0, PSU_FAILED: 2.0, PSU_WARNING: 1.0}
_ABSENT = intern("absent")

SENSOR = table("sensor", "bmc", "sensors of BMCs", (
    Metric("reading", "", "what it reads, in the unit of its attribute ``unit``", "reading", lo=-_MOST_READING,
           hi=_MOST_READING, source=_REDFISH, label="reading"),
    Metric("lower_critical", "", "the device's own limit, in the same unit", "lower_critical", lo=-_MOST_READING,
           hi=_MOST_READING, source=_REDFISH),
    Metric("lower_caution", "", "the device's own limit, in the same unit", "lower_caution", lo=-_MOST_READING,
           hi=_MOST_READING, source=_REDFISH),
    Metric("upper_caution", "", "the device's own limit, in the same unit", "upper_caution", lo=-_MOST_READING,
           hi=_MOST_READING, source=_REDFISH),
    Metric("upper_critical", "", "the device's own limit, in the same unit", "upper_critical", lo=-_MOST_READING,
           hi=_MOST_READING, source=_REDFISH),
    Metric("behind_seconds", "s", "it was asked for at most this long before the reading; sensors are read less often "
           "than power", "behind", hi=1e7, source=_REDFISH),
))


def derive_psu(t: Columns, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Work out ``fault_level`` of table ``psu`` in place.

    A slot that was always empty is no fault; a supply that was there and is not any more may be one that died.

    Args:
        t: the table.
        there: [rows of the call before] which supplies were there at any time.

    Returns:
        The same as of now, [rows].
    """
    state = t.col("psu_state")
    there = np.append(there, np.zeros(len(t) - len(there), np.bool_)) | (state != PSU_ABSENT) & ~np.isnan(state)
    level = np.full(len(t), np.nan)
    for code, bad in _FAULTS.items():
        level[state == code] = bad
    level[there & (state == PSU_ABSENT)] = 1.0
    t.put("fault_level", level)
    unknown = np.isnan(state)
    t.why_of("fault_level")[unknown] = t.why_of("psu_state")[unknown]
    t.set_why("fault_level", (state == PSU_ABSENT) & ~there, _ABSENT)
    return there


def label(key: str, attrs: Mapping[str, object]) -> str:
    """A node has one BMC."""
    return key or "BMC"


def psu_label(key: str, attrs: Mapping[str, object]) -> str:
    """The supply's name."""
    return str(attrs.get("name") or key)


def sensor_label(key: str, attrs: Mapping[str, object]) -> str:
    """The sensor's name, with the part that it belongs to."""
    name, entity = str(attrs.get("name") or key), str(attrs.get("entity") or "")
    return f"{entity} {name}" if entity else name
