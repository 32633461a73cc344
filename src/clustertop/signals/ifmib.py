"""A switch's interface table (IF-MIB, RFC 2863) from rows of a walk: ports, counters, which are uplinks. Pure.

The 64-bit counters and ifHighSpeed are taken where the agent has them; ifSpeed stops at 4294967295 b/s and 32-bit
octets wrap every few seconds at 100 Gb/s. Sub-interfaces, VLANs, lags, loopbacks and tunnels repeat the traffic of
physical ports, so a share is counted on physical data ports only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from clustertop.signals.octets import Octets, Rate, rate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from clustertop.signals.snmp_walk import Row, Value

UPLINK, HOST, PEER = "uplink", "host", "peer"
"""Roles of a port; a peer link joins two leaves. Empty: not known."""
SATURATED_SPEED = 4294967295

_SYSTEM = (1, 3, 6, 1, 2, 1, 1)
_IF = (1, 3, 6, 1, 2, 1, 2, 2, 1)
_IFX = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
_PAUSE = (1, 3, 6, 1, 2, 1, 10, 7, 10, 1)
"""dot3PauseTable, RFC 3635."""
_LAG = (1, 2, 840, 10006, 300, 43, 1, 2, 1, 1, 13)
"""dot3adAggPortAttachedAggID, IEEE 802.1AX."""
_STACK = (1, 3, 6, 1, 2, 1, 31, 1, 2, 1, 3)
"""ifStackStatus, by the upper and the lower ifIndex; of agents without the lag table it tells the members too."""
_LAG_TYPE = 161
"""ifType ieee8023adLag."""
_ETHERNET = frozenset({6, 26, 62, 69, 117})
"""ifType: ethernetCsmacd and its older forms."""
_VIRTUAL = re.compile(
    r"(?:lo|lb)\d*$|loopback|null|vlan|vl\d|irb|bvi|bridge|br[-\d]|bond|port-?channel|po\d|mpo\d|m?lag\d|ae\d|"
    r"peer-?link|tunnel|tu\d|gr-|vx|vtep|nve|vni|veth|docker|dummy|mirror|vrf|lsi|pip\d|esi|dsc|swid|cpu|inband",
    re.IGNORECASE,
)
_MANAGEMENT = re.compile(r"(?:re\d+:)?(?:mgmt|management|ma\d|oob|eth\d+$|fxp|em\d|me\d)", re.IGNORECASE)
_FRONT_PANEL = re.compile(r"swp\d+(?:s\d+)?")
_INTERNAL = re.compile(r"ethernet-(?:bp|rec|ib)\d", re.IGNORECASE)
"""SONiC's backplane and recirculation ports."""
_UPLINK_WORDS = re.compile(
    r"(?<![a-z])(?:up-?links?|spines?|core|fabric|agg|aggregation|dist|distribution)(?![a-z])", re.IGNORECASE
)


@dataclass(slots=True)
class Interface:
    """One row of the table. None: the agent does not say."""

    index: int
    name: str = ""
    """ifName, else ifDescr."""
    description: str = ""
    """ifDescr."""
    alias: str = ""
    """What the operator wrote at the port."""
    type: int | None = None
    admin: int | None = None
    """1 up, 2 down."""
    oper: int | None = None
    """1 up, 2 down, 6 not present, 7 lower layer down."""
    high_speed: int | None = None
    """Mb/s."""
    speed: int | None = None
    """b/s, at most 4294967295."""
    in_octets: int | None = None
    """64-bit."""
    out_octets: int | None = None
    in_octets_32: int | None = None
    out_octets_32: int | None = None
    in_discards: int | None = None
    out_discards: int | None = None
    in_errors: int | None = None
    out_errors: int | None = None
    in_pause: int | None = None
    out_pause: int | None = None
    discontinuity: int | None = None
    lag: int | None = None
    """Index of the lag that it is a member of; 0: of none."""

    @property
    def up(self) -> bool | None:
        """Whether it is up; None: not told."""
        return None if self.oper is None else self.oper == 1

    @property
    def bits_per_second(self) -> float | None:
        """Its speed; None: not known, which a saturated ifSpeed is as well."""
        if self.high_speed:
            return self.high_speed * 1e6
        return float(self.speed) if self.speed and self.speed != SATURATED_SPEED else None

    @property
    def bits(self) -> int:
        """Width of the octet counters that are used: 64, else 32, or 0 where it has none."""
        if self.in_octets is not None or self.out_octets is not None:
            return 64
        return 32 if self.in_octets_32 is not None or self.out_octets_32 is not None else 0


@dataclass(slots=True)
class Switch:
    """A switch at one look."""

    name: str = ""
    description: str = ""
    uptime_seconds: float | None = None
    interfaces: dict[int, Interface] = field(default_factory=dict)
    """By ifIndex."""

    def data_ports(self) -> list[Interface]:
        """Return the physical ports that carry data: no management port, no lag, VLAN, sub-interface or loopback."""
        names = {one.name for one in self.interfaces.values()}
        front = any(_FRONT_PANEL.fullmatch(name) for name in names)
        return [one for one in self.interfaces.values() if _is_data_port(one, names, front_panel=front)]


def is_front_panel(name: str) -> bool:
    """Whether *name* is a front panel port of Linux on switches (``swp5``, ``swp5s1``)."""
    return bool(_FRONT_PANEL.fullmatch(name))


def data_port_name(name: str, names: set[str]) -> bool:
    """Whether *name* may be a physical data port's, among all *names* of its switch."""
    base, dot, unit = name.rpartition(".")
    inner = bool(dot) and unit.isdecimal() and (base in names or bool(_VIRTUAL.match(base)))
    return not (inner or _MANAGEMENT.match(name) or _INTERNAL.match(name) or _VIRTUAL.match(name))


def _is_data_port(one: Interface, names: set[str], *, front_panel: bool) -> bool:
    if not data_port_name(one.name, names):
        return False
    # Cumulus: bonds and bridges say that they are Ethernet.
    return bool(_FRONT_PANEL.fullmatch(one.name)) if front_panel else one.type in _ETHERNET


_NUMBERS: dict[tuple[int, ...], str] = {
    (*_IF, 3): "type", (*_IF, 5): "speed", (*_IF, 7): "admin", (*_IF, 8): "oper", (*_IF, 10): "in_octets_32",
    (*_IF, 16): "out_octets_32", (*_IF, 13): "in_discards", (*_IF, 14): "in_errors", (*_IF, 19): "out_discards",
    (*_IF, 20): "out_errors", (*_IFX, 6): "in_octets", (*_IFX, 10): "out_octets", (*_IFX, 15): "high_speed",
    (*_IFX, 19): "discontinuity", (*_PAUSE, 3): "in_pause", (*_PAUSE, 4): "out_pause", _LAG: "lag",
}  # fmt: skip
_TEXTS = {(*_IF, 2): "description", (*_IFX, 1): "name", (*_IFX, 18): "alias"}


def read(walked: Iterable[Row]) -> Switch:
    """Return the switch in the rows of a walk of the system group, ifTable and ifXTable.

    The tables of pause frames, of lags and of what is stacked on what are read too where they are among the rows.
    """
    switch = Switch()
    beside: list[tuple[int, str, int]] = []
    stacked: list[tuple[int, int]] = []
    for oid, value in walked:
        if oid[: len(_SYSTEM)] == _SYSTEM:
            _system(switch, oid[len(_SYSTEM) :], value)
            continue
        column, index = oid[:-1], oid[-1]
        if column[:-1] == _STACK:
            stacked.append((column[-1], index))
        elif column[:-1] == _PAUSE or column == _LAG:  # they may have rows that are no interfaces
            if column in _NUMBERS and isinstance(value, int):
                beside.append((index, _NUMBERS[column], value))
        elif column in _NUMBERS and isinstance(value, int):
            setattr(_row(switch, index), _NUMBERS[column], value)
        elif column in _TEXTS and isinstance(value, str):
            setattr(_row(switch, index), _TEXTS[column], value.strip())
    for index, what, number in beside:
        if index in switch.interfaces:
            setattr(switch.interfaces[index], what, number)
    for upper, lower in stacked:
        over, under = switch.interfaces.get(upper), switch.interfaces.get(lower)
        if over is not None and under is not None and over.type == _LAG_TYPE and not under.lag:
            under.lag = upper
    for one in switch.interfaces.values():
        one.name = one.name or one.description or str(one.index)
    return switch


def _row(switch: Switch, index: int) -> Interface:
    return switch.interfaces.setdefault(index, Interface(index))


def _system(switch: Switch, column: tuple[int, ...], value: Value) -> None:
    if column == (1, 0):
        switch.description = str(value)
    elif column == (3, 0) and isinstance(value, int):
        switch.uptime_seconds = value / 100
    elif column == (5, 0):
        switch.name = str(value).strip()


# ---- which ports are uplinks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Role:
    """What a port is, and who says so."""

    role: str
    """``uplink``, ``host``, ``peer`` or empty: not known."""
    why: str = ""
    """``config``, ``lldp spine1``, ``alias``; empty: nothing says."""


def roles(
    switch: Switch,
    *,
    uplinks: Collection[str] = (),
    hosts: Collection[str] = (),
    neighbours: Mapping[str, tuple[str, bool | None]] | None = None,
    nodes: Collection[str] = (),
    leaves: Collection[str] = (),
) -> dict[int, Role]:
    """Return the role of every data port, by ifIndex.

    Args:
        switch: the switch.
        uplinks: patterns of port names that are uplinks, from the config (``swp5*``). Where there are any, and no
            *hosts*, every other data port is a host's.
        hosts: patterns of port names that are hosts'. A port that neither names is left to LLDP and its alias.
        neighbours: port name to (neighbour's name, whether it announces to be a switch), from LLDP.
        nodes: names of nodes; a port with one as neighbour or in its alias is a host's.
        leaves: names of leaf switches; a port between two leaves is a peer link, no uplink.
    """
    known = {name.lower() for name in nodes}
    beside = {name.lower() for name in leaves}
    found = {}
    for port in switch.data_ports():
        if _matches(port, uplinks):
            found[port.index] = Role(UPLINK, "config")
            continue
        if _matches(port, hosts) or (uplinks and not hosts):
            found[port.index] = Role(HOST, "config")
            continue
        told = (neighbours or {}).get(port.name) or (neighbours or {}).get(port.description)
        found[port.index] = _by_neighbour(*told, known, beside) if told else Role("")
        if not found[port.index].role:
            found[port.index] = _by_alias(port.alias, known)
    return found


def _matches(port: Interface, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(port.name, one) or fnmatchcase(port.description, one) for one in patterns)


def _by_neighbour(name: str, is_switch: bool | None, nodes: set[str], leaves: set[str]) -> Role:
    lower = name.lower()
    short = lower.partition(".")[0]
    if lower in nodes or short in nodes:
        return Role(HOST, f"lldp {name}")
    if lower in leaves or short in leaves:
        return Role(PEER, f"lldp {name}")
    if is_switch is None:
        return Role("")
    return Role(UPLINK if is_switch else HOST, f"lldp {name}")


def _by_alias(alias: str, nodes: set[str]) -> Role:
    words = {word.rstrip(".:,;") for word in re.split(r"[^\w.-]+", alias.lower())}
    if words & nodes:
        return Role(HOST, "alias")
    return Role(UPLINK, "alias") if _UPLINK_WORDS.search(alias) else Role("")


# ---- between two looks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """A switch at one time of our clock."""

    at: float
    switch: Switch


def rates(last: Look | None, now: Look, index: int) -> tuple[Rate, Rate]:
    """Return (in, out) of one interface in bytes per second between two looks, or why they are unknown."""
    before = last.switch.interfaces.get(index) if last is not None else None
    here = now.switch.interfaces[index]
    if before is not None and (before.name != here.name or before.bits != here.bits):
        before = None  # indices were given anew after a restart, or the agent changed its tables
    speed = here.bits_per_second
    pair = []
    for way in ("in", "out"):
        was = _octets(last, before, way) if last is not None and before is not None else None
        pair.append(rate(was, _octets(now, here, way), speed))
    return pair[0], pair[1]


def _octets(look: Look, one: Interface, way: str) -> Octets:
    if one.bits == 32:
        value = one.in_octets_32 if way == "in" else one.out_octets_32
    else:
        value = one.in_octets if way == "in" else one.out_octets
    return Octets(look.at, value, one.bits or 64, look.switch.uptime_seconds, one.discontinuity)
