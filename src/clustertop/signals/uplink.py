"""Ports of leaf switches: what each carries, and how full it is. Pure.

The rows come from a switch (SNMP, or SSH where it is a Linux machine) or from a query of the fabric. Rates are worked
out where the counters are read: there it is known whether one wrapped, was reset, or is too narrow for its port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why, intern
from clustertop.signals.ifmib import HOST, PEER, UPLINK
from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.signals.columns import Columns

ROLES = (UPLINK, HOST, PEER)
"""What attribute ``role`` may say; empty: not known. A peer link joins two leaves and is in no share."""
PORT_DOWN = intern("the port is down")
_IF = "https://www.rfc-editor.org/rfc/rfc2863"
_PAUSE = "https://www.rfc-editor.org/rfc/rfc3635"

TABLE = table("uplink", "switch", "switch ports", (
    Metric("receive_bytes_total", "B", "bytes into the switch", "rx", "counter", hi=2.0**66, source=_IF),
    Metric("transmit_bytes_total", "B", "bytes out of the switch", "tx", "counter", hi=2.0**66, source=_IF),
    Metric("discards_total", "", "packets dropped for want of room, either way", "discards", "counter", hi=2.0**65,
           source=_IF),
    Metric("errors_total", "", "packets broken, either way", "errors", "counter", hi=2.0**65, source=_IF),
    Metric("pause_frames_total", "", "pause frames, either way", "pauses", "counter", hi=2.0**65, source=_PAUSE),
    Metric("receive_bytes_per_second", "B/s", "bytes into the switch; its own wraps and resets are taken out",
           "rx_rate", hi=1e13, source=_IF, label="in"),
    Metric("transmit_bytes_per_second", "B/s", "bytes out of the switch; its own wraps and resets are taken out",
           "tx_rate", hi=1e13, source=_IF, label="out"),
    Metric("discards_per_second", "/s", "packets dropped for want of room, either way", "discard_rate", hi=1e12,
           source=_IF, label="discards"),
    Metric("errors_per_second", "/s", "packets broken, either way", "error_rate", hi=1e12, source=_IF, label="errors"),
    Metric("pause_frames_per_second", "/s", "pause frames, either way", "pause_rate", hi=1e12, source=_PAUSE,
           label="pause"),
    Metric("speed_bits_per_second", "b/s", "speed of the port", "speed", lo=1e6, hi=1e13, source=_IF, label="speed"),
    Metric("port_up", "", "1: the port is up", "up", "state", hi=1.0, words={0: "down", 1: "up"}, source=_IF,
           label="state"),
    Metric("load_ratio", "ratio", "the busier way, of the port's speed", kind="derived", label="load"),
))


def label(key: str, attrs: Mapping[str, object]) -> str:
    """The port's name."""
    return str(attrs.get("name") or key)


def derive(t: Columns) -> None:
    """Work out the loads in place. Of a port that is down, or whose rate or speed is unknown, the load is unknown."""
    into, out = t.col("receive_bytes_per_second"), t.col("transmit_bytes_per_second")
    speed, down = t.col("speed_bits_per_second"), t.col("port_up") == 0
    load = np.maximum(into, out) * 8 / np.where(speed > 0, speed, np.nan)
    t.put("load_ratio", np.where(down, np.nan, load), Why.NOT_PROVIDED)
    why = t.why_of("load_ratio")
    for name in ("speed_bits_per_second", "transmit_bytes_per_second", "receive_bytes_per_second"):
        unknown = np.isnan(t.col(name)) & ~down
        why[unknown] = t.why_of(name)[unknown]
    why[down] = PORT_DOWN
