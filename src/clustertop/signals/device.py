"""Devices beside the nodes (PDUs, BMCs, switches, the fabric): whether they answer, and how old what they said is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.model import LinkState
from clustertop.places import DEVICE_WORD
from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = table("device", "", "devices", (
    Metric("link_state", "", "where the console stands with the device", kind="derived",
           words={int(state): state.words for state in LinkState}, label="link"),
    Metric("reachable", "", "1 while the device answers, 0 while it does not", kind="derived", hi=1.0, label="answers"),
    Metric("age_seconds", "s", "since its last good reading", kind="derived", label="age"),
    Metric("age_intervals", "", "the same, in intervals of its own; unknown while it does not answer, which is another "
           "fault", kind="derived", label="late"),
    Metric("interval_seconds", "s", "between two readings", kind="derived", label="every"),
    Metric("reading_seconds", "s", "what the last reading took", kind="derived", label="took"),
    Metric("replaced", "", "1: it tells another serial number than at first", kind="derived",
           words={0: "no", 1: "ANOTHER DEVICE"}),
))


def label(key: str, attrs: Mapping[str, object]) -> str:
    """``PDU r1-A``, ``BMC gpu001-bmc``, ``switch leaf3``."""
    kind = DEVICE_WORD.get(str(attrs.get("kind")), "device")
    return f"{kind} {attrs.get('name') or key}"
