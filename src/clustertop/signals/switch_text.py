"""Port counters as switches print them where SNMP is closed: SONiC's tables and database, EOS, NX-OS. Pure.

Rates of SONiC are bytes per second with units of 1000; its ``sonic-clear`` keeps a baseline with the client, so counts
may fall without a restart. A cell that says ``N/A`` or ``--``, and a field that is not there, is unknown, never 0.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clustertop.signals.ifmib import data_port_name
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNITS = {"B/s": 1.0, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12}
_STATES = {"U": True, "D": False, "X": False}
"""SONiC: up, down, disabled."""
_RULE = re.compile(r"-+(?:\s+-+)*\s*")
_EOS_HEAD = re.compile(r"(\S+) is (?:administratively )?\S+, line protocol is (\w+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?", re.IGNORECASE)


class OutputError(ValueError):
    """A text that is not what the command prints: one sentence."""


@dataclass(slots=True)
class Port:
    """What one command says of one port. None: it does not say."""

    name: str
    up: bool | None = None
    alias: str = ""
    bits_per_second: float | None = None
    """Its speed."""
    in_bytes: int | None = None
    out_bytes: int | None = None
    in_bytes_per_second: float | None = None
    out_bytes_per_second: float | None = None
    in_ratio: float | None = None
    """Utilisation, 0 to 1."""
    out_ratio: float | None = None
    counts: dict[str, int | None] = field(default_factory=dict)
    """Packets, errors, drops and pauses, by the command's own column."""
    lag: str = ""
    """The port channel that it is a member of."""


def data_ports(ports: Iterable[Port]) -> list[Port]:
    """Return those that are physical data ports by their name: no lag, VLAN, sub-interface, loopback or management."""
    ports = list(ports)
    names = {port.name for port in ports}
    return [port for port in ports if data_port_name(port.name, names)]


# ---- SONiC ---------------------------------------------------------------------------------------------------------


def parse_sonic_counters(text: str) -> dict[str, Port]:
    """Return the ports of ``show interfaces counters``, with ``--printall`` and of several namespaces too."""
    ports: dict[str, Port] = {}
    for header, cells in _tables(text):
        row = dict(zip(header, cells, strict=False))
        if "IFACE" not in row:
            continue
        port = ports.setdefault(row["IFACE"], Port(clean(row["IFACE"], 80)))
        port.up = _STATES.get(row.get("STATE", ""))
        port.in_bytes_per_second, port.out_bytes_per_second = _rate(row.get("RX_BPS")), _rate(row.get("TX_BPS"))
        port.in_ratio, port.out_ratio = _percent(row.get("RX_UTIL")), _percent(row.get("TX_UTIL"))
        for column in header:
            if column.endswith(("_OK", "_ERR", "_DRP", "_OVR")):
                port.counts[column] = _whole(row.get(column))
    return ports


def parse_sonic_pfc(text: str) -> dict[str, dict[str, list[int | None]]]:
    """Return, per port, ``rx`` and ``tx`` pause frames by priority, of ``show pfc counters`` (two tables)."""
    found: dict[str, dict[str, list[int | None]]] = {}
    for header, cells in _tables(text):
        if len(header) > 1 and header[0] in ("Port Rx", "Port Tx") and header[1] == "PFC0":
            found.setdefault(cells[0], {})[header[0][-2:].lower()] = [_whole(cell) for cell in cells[1:]]
    return found


def parse_sonic_db(text: str) -> dict[str, Port]:
    """Return the rates of physical ports in a dump of COUNTERS_DB; lags repeat them and are left out.

    Raises:
        OutputError: it is not JSON of that form.
    """
    data = _loads(text)
    ports = {}
    for name, oid in _inside(data, "COUNTERS_PORT_NAME_MAP").items():
        rates = data.get(f"RATES:{oid}")
        rates = rates if isinstance(rates, dict) else {}
        ports[name] = Port(
            clean(name, 80), in_bytes_per_second=_number(rates.get("RX_BPS")),
            out_bytes_per_second=_number(rates.get("TX_BPS")))  # fmt: skip
    return ports


def _tables(text: str) -> Iterable[tuple[list[str], list[str]]]:
    """Yield (header, cells) of every row of tables whose columns a line of dashes rules off."""
    lines = text.splitlines()
    header: list[str] = []
    spans: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if number + 1 < len(lines) and _RULE.fullmatch(lines[number + 1] or " ") and line.strip():
            spans = [match.span() for match in re.finditer(r"-+", lines[number + 1])]
            header = _cells(line, spans)
        elif not line.strip():
            header = []
        elif header and not _RULE.fullmatch(line):
            yield header, _cells(line, spans)


def _cells(line: str, spans: list[tuple[int, int]]) -> list[str]:
    return [line[start : end if at + 1 < len(spans) else None].strip() for at, (start, end) in enumerate(spans)]


# ---- EOS -----------------------------------------------------------------------------------------------------------


def parse_eos_json(text: str) -> dict[str, Port]:
    """Return the ports of ``show interfaces | json``.

    Raises:
        OutputError: it is not JSON of that form.
    """
    ports = {}
    for name, row in _inside(_loads(text), "interfaces").items():
        if not isinstance(row, dict):
            continue
        counters, rates = (one if isinstance(one, dict) else {} for one in map(row.get, _EOS_PARTS))
        port = ports[name] = Port(clean(name, 80))
        state = row.get("lineProtocolStatus")
        port.up = state == "up" if isinstance(state, str) else None
        described = row.get("description")
        port.alias = clean(described) if isinstance(described, str) else ""
        port.bits_per_second = _number(row.get("bandwidth")) or None
        port.in_bytes, port.out_bytes = _whole(counters.get("inOctets")), _whole(counters.get("outOctets"))
        port.in_bytes_per_second, port.out_bytes_per_second = (
            None if (bits := _number(rates.get(key))) is None else bits / 8 for key in ("inBitsRate", "outBitsRate")
        )
        port.counts = {
            key: _whole(counters.get(key))
            for key in ("totalInErrors", "totalOutErrors", "inDiscards", "outDiscards")
            if key in counters
        }
        member = row.get("interfaceMembership")
        port.lag = clean(member.removeprefix("Member of ")) if isinstance(member, str) else ""
    return ports


_EOS_PARTS = ("interfaceCounters", "interfaceStatistics")
_EOS_LINES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("in", re.compile(r"\s+\d+ packets input, (\d+) bytes")),
    ("out", re.compile(r"\s+\d+ packets output, (\d+) bytes")),
    ("speed", re.compile(r".*\bBW (\d+) kbit")),
)
_EOS_COUNTS = re.compile(r"(\d+) (input errors|output errors|input discards|output discards|PAUSE input|PAUSE output)")


def parse_eos_text(text: str) -> dict[str, Port]:
    """Return the ports of ``show interfaces``."""
    ports: dict[str, Port] = {}
    here: Port | None = None
    for line in text.splitlines():
        if head := _EOS_HEAD.match(line):
            here = ports[head[1]] = Port(clean(head[1], 80), head[2] == "up")
        elif here is not None:
            _eos_line(here, line)
    return ports


def _eos_line(port: Port, line: str) -> None:
    if line.startswith("  Description: "):
        port.alias = clean(line.removeprefix("  Description: ").strip().strip('"'))
    for what, pattern in _EOS_LINES:
        if match := pattern.match(line):
            if what == "speed":
                port.bits_per_second = int(match[1]) * 1e3
            elif what == "in":
                port.in_bytes = int(match[1])
            else:
                port.out_bytes = int(match[1])
    port.counts.update((name, int(number)) for number, name in _EOS_COUNTS.findall(line))


# ---- NX-OS ---------------------------------------------------------------------------------------------------------


def parse_nxos_counters(text: str) -> dict[str, Port]:
    """Return the ports of ``show interface counters`` (``errors`` too): blocks of a few columns for all ports each."""
    ports: dict[str, Port] = {}
    header: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if not words or _RULE.fullmatch(line.strip()):
            continue
        if words[0] == "Port" and len(words) > 1:
            header = words
        elif header and len(words) == len(header) and all(_cell(word) for word in words[1:]):
            port = ports.setdefault(words[0], Port(clean(words[0], 80)))
            port.counts.update(zip(header[1:], map(_whole, words[1:]), strict=True))
    for port in ports.values():
        port.in_bytes, port.out_bytes = port.counts.pop("InOctets", None), port.counts.pop("OutOctets", None)
    return ports


def parse_nxos_json(text: str) -> dict[str, Port]:
    """Return the ports of ``show interface counters detailed | json``; a table of one row is an object there.

    Raises:
        OutputError: it is not JSON of that form.
    """
    rows = _inside(_loads(text), "TABLE_interface").get("ROW_interface")
    ports = {}
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict) or not isinstance(row.get("interface"), str):
            continue
        port = ports[row["interface"]] = Port(clean(row["interface"], 80))
        port.in_bytes = _whole(row.get("eth_inbytes", row.get("mgmt_in_bytes")))
        port.out_bytes = _whole(row.get("eth_outbytes", row.get("mgmt_out_bytes")))
        port.counts = {key: _whole(value) for key, value in row.items() if key.endswith(("err", "crc", "discard"))}
    return ports


_STATUS = re.compile(
    r"(\S+)\s+(.*?)\s+(connected|notconnect|disabled|sfpAbsent|xcvrAbsen|err-disabled|noOperMem|down|up|inactive)\s+"
    r"(\S+)\s+(full|half|auto)\s+(\S+)"
)
_SPEED = re.compile(r"(?:a-)?(\d+(?:\.\d+)?)(G?)(?:\([A-Z]\))?")


def parse_nxos_status(text: str) -> dict[str, Port]:
    """Return the ports of ``show interface status``: names, whether up, alias and speed (no counters)."""
    ports = {}
    for line in text.splitlines():
        match = _STATUS.match(line)
        if match is None:
            continue
        speed = _SPEED.fullmatch(match[6])
        ports[match[1]] = Port(
            clean(match[1], 80), match[3] in ("connected", "up"), "" if match[2] == "--" else clean(match[2].strip()),
            float(speed[1]) * (1e9 if speed[2] else 1e6) if speed else None)  # fmt: skip
    return ports


def _loads(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise OutputError("is not JSON") from None
    return data if isinstance(data, dict) else {}


def _inside(data: dict[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(found := data.get(key), dict):
        raise OutputError(f"holds no {key}")
    return found


# ---- cells ---------------------------------------------------------------------------------------------------------


def _cell(word: str) -> bool:
    return word in ("--", "N/A") or _whole(word) is not None


def _whole(value: object) -> int | None:
    """A count: ``1,000`` is a thousand; what is no whole number, or below 0, is unknown."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    text = value.replace(",", "") if isinstance(value, str) else ""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None


def _number(value: object) -> float | None:
    """A number, also as text (``2.e9``); negative ones stand for unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    number = float(text) if _NUMBER.fullmatch(text) else -1.0
    return number if 0 <= number < float("inf") else None


def _rate(cell: str | None) -> float | None:
    number, _, unit = (cell or "").partition(" ")
    value = _number(number.replace(",", ""))
    return None if value is None or unit.strip() not in _UNITS else value * _UNITS[unit.strip()]


def _percent(cell: str | None) -> float | None:
    value = _number((cell or "").removesuffix("%")) if (cell or "").endswith("%") else None
    return None if value is None else value / 100
