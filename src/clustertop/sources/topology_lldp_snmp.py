"""LLDP neighbours in a switch's SNMP walk (LLDP-MIB, IEEE 802.1AB). Rows to links, pure.

Remote tables are indexed by time mark, local port number and index; the local port number is not the ifIndex on every
switch, so its name comes from lldpLocPortId or its description. A neighbour without a name is known by its chassis id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clustertop.signals.snmp_walk import Row, Value, rows
from clustertop.sources.facts import Link, Reading, name

if TYPE_CHECKING:
    from collections.abc import Iterable

_LLDP = (1, 0, 8802, 1, 1, 2, 1)
_LOCAL_PORT = (*_LLDP, 3, 7, 1)
_REMOTE = (*_LLDP, 4, 1, 1)
_SYS_NAME = (1, 3, 6, 1, 2, 1, 1, 5, 0)
_IF_NAME = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1)
_PAIRS = re.compile(r"[0-9A-Fa-f]{2}(?:[: ][0-9A-Fa-f]{2})+")
"""Octets that are no text: a MAC address as port id, a bit string."""
_BRIDGE_OR_ROUTER = 0x28
"""lldpRemSysCapEnabled, first octet: bridge is bit 2, router bit 4, counted from the top."""


def read(text: str, where: str = "") -> Reading:
    """Return the links in the text of a walk."""
    return read_rows(rows(text), where)


def read_rows(walked: Iterable[Row], where: str = "") -> Reading:
    """Return the links in the rows of a walk. The switch's own name, where it is told, is each link's device."""
    device = ""
    local: dict[int, dict[int, str]] = {}
    remote: dict[tuple[int, ...], dict[int, Value]] = {}
    interfaces: dict[int, str] = {}
    for oid, value in walked:
        if oid == _SYS_NAME:
            device = name(value)
        elif oid[: len(_LOCAL_PORT)] == _LOCAL_PORT and len(oid) == len(_LOCAL_PORT) + 2:
            local.setdefault(oid[-1], {})[oid[-2]] = name(value)
        elif oid[: len(_REMOTE)] == _REMOTE and len(oid) == len(_REMOTE) + 4:
            remote.setdefault(oid[-3:], {})[oid[len(_REMOTE)]] = value
        elif oid[: len(_IF_NAME)] == _IF_NAME and len(oid) == len(_IF_NAME) + 1:
            interfaces[oid[-1]] = name(value)
    reading = Reading("lldp", where=where)
    for (_, port, _), columns in sorted(remote.items()):
        peer = name(columns.get(9)) or name(columns.get(5))
        if peer:
            mine = local.get(port, {})
            named = "" if _PAIRS.fullmatch(mine.get(3, "")) else mine.get(3, "")
            reading.links.append(Link(
                device, named or mine.get(4) or interfaces.get(port, str(port)), peer, name(columns.get(7)),
                name(columns.get(8)), _switch(columns.get(12))))  # fmt: skip
    return reading


def _switch(capabilities: Value | None) -> bool | None:
    text = name(capabilities)
    if not text:
        return None
    if _PAIRS.fullmatch(text):
        first = int(text[:2], 16)
    elif len(text) <= 2:
        first = ord(text[0])
    else:
        return None
    return bool(first & _BRIDGE_OR_ROUTER) if first < 256 else None
