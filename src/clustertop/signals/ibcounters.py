"""Port counters of an InfiniBand fabric as ``perfquery`` and ``ibqueryerrors`` print them. Pure.

PortXmitData and PortRcvData count 4-octet words, nothing else is scaled (IBTA, PortCounters). The classic ones stop at
the end of their field and then say nothing any more; the extended ones are 64 bits wide. In ``ibqueryerrors`` the row
``port ALL`` is a sum that is cut short, so it is not used, and what stands in brackets behind a value repeats it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from clustertop.text import clean

WORD_BYTES = 4
DATA = frozenset({"PortXmitData", "PortRcvData"})
_ENDS = {
    4: ("LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors"),
    8: ("LinkErrorRecoveryCounter", "LinkDownedCounter", "PortXmitConstraintErrors", "PortRcvConstraintErrors"),
    16: (
        "SymbolErrorCounter", "PortRcvErrors", "PortRcvRemotePhysicalErrors", "PortRcvSwitchRelayErrors",
        "PortXmitDiscards", "QP1Dropped", "VL15Dropped",
    ),
    32: ("PortXmitData", "PortRcvData", "PortXmitPkts", "PortRcvPkts", "PortXmitWait"),
}  # fmt: skip
SATURATION = {name: (1 << bits) - 1 for bits, names in _ENDS.items() for name in names}
"""Value at which a classic counter stops."""
NOISE = frozenset({"PortRcvSwitchRelayErrors"})
"""Multicast that a switch sends back to where it came from counts here: no error."""
CONGESTION = frozenset({"PortXmitWait", "PortXmitDiscards"})

_TITLE = re.compile(r"# Port (extended )?counters: Lid (\d+) port (\d+)")
_OTHER_TITLE = re.compile(r"# \w+ counters: Lid")
_FIELD = re.compile(r"(\w+):\.*(-?(?:0x[0-9a-fA-F]+|\d+))\s*$")
_PORT = re.compile(r"\s*GUID 0x([0-9a-fA-F]+) port (\d+|ALL):(.*)")
_PAIR = re.compile(r"\[(\w+) == (\d+)(?: \([^)]*\))?\]")
_LID = re.compile(r"\((?:Lid|LID) (\d+)\)|\blid (\d+)\b", re.IGNORECASE)
_ROUTE = re.compile(r"DR path[^;]*(slid \d+; dlid \d+; [\d,]+)")
_FAILED = re.compile(r"failed|timed out|timeout|unreachable|no route|can't open", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PortCounters:
    """One port at one look."""

    port: int
    lid: int | None = None
    guid: int | None = None
    """Of the device; ``ibqueryerrors`` tells it instead of the LID."""
    extended: bool = False
    """Whether all of them are of the 64-bit family (``perfquery -x``)."""
    values: dict[str, int] = field(default_factory=dict)
    """As printed."""

    def bytes(self, name: str) -> int | None:
        """Return PortXmitData or PortRcvData in bytes; None: not told, or at its end."""
        value = self.values.get(name)
        return None if value is None or self.saturated(name) else value * WORD_BYTES

    def saturated(self, name: str) -> bool:
        """Whether the counter stands at its end, so that its true value is unknown."""
        return self.values.get(name) == ((1 << 64) - 1 if self.extended else SATURATION.get(name, -1))

    @property
    def errors(self) -> dict[str, int]:
        """Counters of errors that are not 0: no traffic, no congestion, no noise."""
        skip = DATA | CONGESTION | NOISE
        return {
            name: value
            for name, value in self.values.items()
            if value and name in SATURATION and name not in skip and "Pkts" not in name
        }


@dataclass(slots=True)
class Look:
    """What one run of a tool gave, whole or in part."""

    ports: list[PortCounters] = field(default_factory=list)
    unreachable: list[int] = field(default_factory=list)
    """LIDs that did not answer."""
    unreachable_paths: list[str] = field(default_factory=list)
    """Direct routes that did not answer, where no LID was known."""
    messages: list[str] = field(default_factory=list)
    """What the tool complained of, up to a limit."""


def parse_perfquery(text: str) -> list[PortCounters]:
    """Return the ports of ``perfquery`` output, classic or extended (``-x``), one or many."""
    found: list[PortCounters] = []
    inside = False
    for line in text.splitlines():
        if title := _TITLE.match(line):
            found.append(PortCounters(int(title[3]), int(title[2]), extended=bool(title[1])))
            inside = True
        elif _OTHER_TITLE.match(line):
            inside = False
        elif inside and (match := _FIELD.match(line)):
            number = int(match[2], 0)
            if match[1] not in ("PortSelect", "CounterSelect", "CounterSelect2") and number >= 0:
                found[-1].values[match[1]] = number
    return found


def parse_ibqueryerrors(text: str) -> list[PortCounters]:
    """Return the ports of ``ibqueryerrors`` output, with ``--data`` or without."""
    found = []
    for line in text.splitlines():
        match = _PORT.match(line)
        if match and match[2] != "ALL":
            values = {name: int(value) for name, value in _PAIR.findall(match[3])}
            found.append(PortCounters(int(match[2]), guid=int(match[1], 16), values=values))
    return found


def complaints(text: str) -> Look:
    """Return what a tool's stderr says of who did not answer. Hosts that are switched off are normal and no failure."""
    look = Look()
    for line in text.splitlines():
        if not _FAILED.search(line):
            continue
        lids = [int(one or other) for one, other in _LID.findall(line) if int(one or other)]
        look.unreachable += [lid for lid in lids if lid not in look.unreachable]
        if not lids and (route := _ROUTE.search(line)) and route[1] not in look.unreachable_paths:
            look.unreachable_paths.append(clean(route[1], 200))
        if len(look.messages) < 20:
            look.messages.append(clean(line.strip(), 300))
    return look
