"""LLDP neighbours as text: lldpd's ``lldpctl`` and ``-f keyvalue``, EOS's and NX-OS's tables and details. Pure.

A table's columns are taken from its header line, since device names may be cut to fit them but not moved.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clustertop.sources.facts import Link, Reading, name

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY_VALUE = re.compile(r"lldp\.(\S+?)\.((?:chassis|port|via|rid|age|vlan|lldp-med|unknown-tlvs)(?:\.\S+?)?)=(.*)")
_FIELD = re.compile(r"\s*([A-Za-z][\w /-]*?)\s*:\s*(.*?)\s*$")
_ABSENT = frozenset({"", "null", "not advertised", "-"})


def read(text: str, where: str = "") -> Reading:
    """Return the links that the text holds; none where it is of no known form, with a note."""
    reading = Reading("lldp", where=where)
    lines = text.splitlines()
    if any(_KEY_VALUE.match(line) for line in lines):
        reading.links = list(_keyvalue(lines))
    elif any(line.startswith("Interface:") for line in lines):
        reading.links = list(_lldpctl(lines))
    elif any(line.strip().startswith("Chassis id:") for line in lines):
        reading.links = list(_nxos(lines))
    else:
        reading.links = list(_table(lines))
    if text.strip() and not reading.links:
        reading.note(0, "holds no LLDP neighbour in a form that is known")
    return reading


def _keyvalue(lines: list[str]) -> Iterator[Link]:
    blocks: list[tuple[int, str, dict[str, str]]] = []
    for number, line in enumerate(lines, 1):
        match = _KEY_VALUE.match(line)
        if match is None:
            continue
        port, key, value = match.groups()
        # A neighbour's keys follow its "via"; several may hang on one interface.
        if not blocks or blocks[-1][1] != port or (key == "via" and "via" in blocks[-1][2]):
            blocks.append((number, port, {}))
        blocks[-1][2].setdefault(key, value)
    for number, port, values in blocks:
        able = {key.split(".")[1].lower(): value for key, value in values.items() if key.endswith(".enabled")}
        far = next((values[key] for key in ("port.ifname", "port.local", "port.mac") if key in values), "")
        peer = name(values.get("chassis.name")) or name(values.get("chassis.mac"))
        switch = "on" in (able.get("bridge"), able.get("router")) if able else None
        if peer:
            yield Link("", name(port), peer, name(far), name(values.get("port.descr")), switch, number)


def _lldpctl(lines: list[str]) -> Iterator[Link]:
    blocks: list[tuple[int, str, dict[str, str]]] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("Interface:"):
            blocks.append((number, name(line.removeprefix("Interface:").partition(",")[0]), {}))
        elif blocks and (match := _FIELD.match(line)):
            key = match[1].lower()
            values = blocks[-1][2]
            if key == "capability":
                values[f"capability {match[2].partition(',')[0].lower()}"] = match[2].rpartition(",")[2].strip()
            else:
                values.setdefault(key, match[2])
    for number, port, values in blocks:
        able = {key: value for key, value in values.items() if key.startswith("capability ")}
        peer = name(values.get("sysname")) or name(values.get("chassisid", "").partition(" ")[2])
        if port and peer:
            switch = "on" in (able.get("capability bridge"), able.get("capability router")) if able else None
            far = name(values.get("portid", "").partition(" ")[2])
            yield Link("", port, peer, far, name(values.get("portdescr")), switch, number)


def _nxos(lines: list[str]) -> Iterator[Link]:
    blocks: list[tuple[int, dict[str, str]]] = []
    for number, line in enumerate(lines, 1):
        match = _FIELD.match(line)
        if match is None:
            continue
        if match[1].lower() == "chassis id":
            blocks.append((number, {}))
        if blocks:
            value = name(match[2])
            blocks[-1][1].setdefault(match[1].lower(), "" if value.lower() in _ABSENT else value)
    for number, values in blocks:
        port, peer = values.get("local port id", ""), values.get("system name") or values.get("chassis id", "")
        able = values.get("enabled capabilities") or values.get("system capabilities", "")
        if port and peer:
            switch = bool({"B", "R"} & set(re.split(r"[,\s]+", able))) if able else None
            yield Link("", port, peer, values.get("port id", ""), values.get("port description", ""), switch, number)


def _table(lines: list[str]) -> Iterator[Link]:
    """EOS: ``Port  Neighbor Device ID  Neighbor Port ID  TTL``; NX-OS: ``Device ID  Local Intf  …  Port ID``."""
    columns: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(lines, 1):
        lower = line.lower()
        if "device id" in lower and ("neighbor port id" in lower or "local int" in lower):
            columns = _columns(lower)
            continue
        if not columns or not line.strip() or set(line.strip()) <= {"-", " "}:
            continue
        if line.lower().startswith("total entries"):
            return
        cells = {key: name(line[start:end]) for key, (start, end) in columns.items()}
        if cells["port"] and cells["peer"]:
            yield Link("", cells["port"], cells["peer"], cells["far"], line=number)


def _columns(header: str) -> dict[str, tuple[int, int]]:
    words = [
        ("peer", "neighbor device id" if "neighbor device id" in header else "device id"),
        ("far", "neighbor port id" if "neighbor port id" in header else "port id"),
        ("port", "local int" if "local int" in header else "port"),
        ("", "ttl"), ("", "hold-time"), ("", "capability"),
    ]  # fmt: skip
    starts = sorted((header.index(word), key) for key, word in words if word in header)
    ends = [start for start, _ in starts[1:]] + [len(header) + 253]
    return {key: (start, end) for (start, key), end in zip(starts, ends, strict=True) if key}
