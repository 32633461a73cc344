"""A leaf switch over SNMP: recognise its ports once, then read only what moves, of physical ports alone.

Names, types, aliases, lags and LLDP neighbours are read at first, every ten minutes, and when the switch says that it
restarted or that its interfaces changed. In between go the counters, states and speeds, by GETBULK where most of the
table is physical ports, else by GET of just these. Sources: IF-MIB (RFC 2863), EtherLike-MIB (RFC 3635), LLDP-MIB.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop.clock import SystemClock
from clustertop.model import Why
from clustertop.signals import ifmib
from clustertop.signals.ifmib import HOST, UPLINK, Look, Role
from clustertop.signals.octets import Octets, Rate, rate
from clustertop.sources import topology_lldp_snmp
from clustertop.sources.snmp import Client, SnmpError
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clustertop.clock import Clock
    from clustertop.signals.ifmib import Interface, Switch
    from clustertop.signals.snmp_walk import Row
    from clustertop.sources.oids import Oid, Value
    from clustertop.sources.snmp import Agent

WHOLE_SECONDS = 600.0
AGAIN_SECONDS = 60.0
"""Until all is read again after a port was not in an answer."""
MAX_ROWS = 24_000
"""Most rows of one walk at recognition: a chassis has thousands of sub-interfaces."""
MAX_PORTS = 1_024
"""Most physical ports that are read of one switch."""
_CLOCKS_AGREE = 0.1
"""The switch's clock counts where it and ours differ by no more than this share of the time between two looks."""
_SYS: Oid = (1, 3, 6, 1, 2, 1, 1)
_DESCR, _UPTIME, _NAME = (*_SYS, 1, 0), (*_SYS, 3, 0), (*_SYS, 5, 0)
_TABLE_CHANGED: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 5, 0)
"""ifTableLastChange."""
_IF: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1)
_IFX: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
_PAUSE: Oid = (1, 3, 6, 1, 2, 1, 10, 7, 10, 1)
_LAG: Oid = (1, 2, 840, 10006, 300, 43, 1, 2, 1, 1, 13)
_STACK: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 2, 1, 3)
_LLDP: Oid = (1, 0, 8802, 1, 1, 2, 1)
_NAMES: tuple[Oid, ...] = ((*_IF, 2), (*_IF, 3), (*_IFX, 1))
_FIXED: tuple[Oid, ...] = ((*_IFX, 18), (*_IF, 5), _LAG)
_OPER, _SPEED = (*_IF, 8), (*_IFX, 15)
_WIDE, _NARROW = ((*_IFX, 6), (*_IFX, 10)), ((*_IF, 10), (*_IF, 16))
"""Octets in and out: of 64 bits, of 32."""
_BESIDE: tuple[Oid, ...] = (
    (*_IF, 13), (*_IF, 19), (*_IF, 14), (*_IF, 20), (*_PAUSE, 3), (*_PAUSE, 4), (*_IFX, 19), _SPEED)  # fmt: skip
_NEIGHBOURS: tuple[Oid, ...] = (
    _NAME, (*_LLDP, 3, 7, 1, 3), (*_LLDP, 3, 7, 1, 4), *((*_LLDP, 4, 1, 1, column) for column in (5, 7, 8, 9, 12)),
)  # fmt: skip
_OFFERED = (("discards", "in_discards", "out_discards"), ("errors", "in_errors", "out_errors"),
            ("pauses", "in_pause", "out_pause"))  # fmt: skip
NOT_OFFERED = Rate(None, Why.NOT_PROVIDED)


@dataclass(frozen=True, slots=True)
class Count:
    """A counter of both ways together, since whenever; and how fast it grows."""

    total: int | None = None
    """None: not told."""
    rate: Rate = NOT_OFFERED


@dataclass(frozen=True, slots=True)
class PortReading:
    """A physical port at one look. None: not told."""

    key: str
    """What it is known by: its ifIndex, or a fabric's ``guid/port``."""
    name: str
    alias: str = ""
    role: str = ""
    """``uplink``, ``host``, ``peer``; empty: not known."""
    role_by: str = ""
    peer: str = ""
    """Who says to be at the other end."""
    lag: str = ""
    """Name of the lag that it is a member of."""
    leaf: str = ""
    """Of a fabric's: the switch that it is a port of."""
    up: bool | None = None
    bits_per_second: float | None = None
    """Its speed."""
    in_bytes: int | None = None
    out_bytes: int | None = None
    into: Rate = NOT_OFFERED
    """Bytes per second into the switch."""
    out: Rate = NOT_OFFERED
    discards: Count = Count()
    errors: Count = Count()
    pauses: Count = Count()


@dataclass(frozen=True, slots=True)
class SwitchReading:
    """A switch, or the leaves of a fabric, at one look."""

    name: str
    """As it calls itself."""
    description: str
    at: float
    """Our monotonic clock, in the middle of the reading."""
    seconds: float
    """How long the reading took."""
    ports: tuple[PortReading, ...] = ()
    uptime_seconds: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Roles:
    """What is known of the ports beforehand."""

    uplinks: tuple[str, ...] = ()
    """Patterns of port names, from the config."""
    hosts: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """Names of nodes: who has one as neighbour, or in the alias, is a host port."""
    leaves: tuple[str, ...] = ()
    """Names of the leaves."""


class SwitchReader:
    """Reads one switch. ``async with`` closes its socket. Reads follow one another; the caller decides when."""

    def __init__(self, agent: Agent, roles: Roles | None = None, clock: Clock | None = None) -> None:
        self.client = Client(agent)
        self._roles = roles or Roles()
        self._clock = clock or SystemClock()
        self._whole_at = float("-inf")
        self._ports: tuple[int, ...] = ()
        self._bulk = False
        self._moving: list[Oid] = []
        """Columns that move and that it has."""
        self._fixed: dict[Oid, Value] = {}
        """Rows that do not move."""
        self._found: dict[int, Role] = {}
        self._peers: dict[str, str] = {}
        self._heard: dict[str, tuple[Role, str]] = {}
        """By port name: the role that LLDP told of it last, and the neighbour."""
        self._lags: dict[int, str] = {}
        self._notes: tuple[str, ...] = ()
        self._changed: Value | None = None
        self._last: Look | None = None
        self._last_at = self._at = 0.0
        """When the counters were read: for the last look, and now."""

    async def __aenter__(self) -> SwitchReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.client.close()

    async def read(self) -> SwitchReading:
        """Read what is due and say what every port carried since the last reading.

        Raises:
            SnmpError: no answer, or a refusal; the next reading counts from the last one that came off.
        """
        begun = self._clock.monotonic()
        rows: Mapping[Oid, Value] = {}
        if begun - self._whole_at < WHOLE_SECONDS:
            rows = await self._move()
            if self._is_another(rows):
                rows = {}
        if not rows:
            try:
                rows = await self._whole(begun)
            except SnmpError:
                self._whole_at = float("-inf")
                raise
        switch = ifmib.read(_told({**self._fixed, **rows}.items()))
        look = Look(self._time(self._at, switch), switch)
        reading = SwitchReading(
            clean(switch.name), clean(switch.description), self._at, self._clock.monotonic() - begun,
            tuple(self._port(look, index) for index in self._ports), switch.uptime_seconds, self._notes)  # fmt: skip
        self._last, self._last_at = look, self._at
        return reading

    def _time(self, at: float, switch: Switch) -> float:
        """When this look was, in steps by the switch's clock where that can be: an answer may be late, or repeated.

        A clock that only counts whole seconds, or goes much unlike ours, is not used.
        """
        last = self._last
        if last is None:
            return at
        step = at - self._last_at
        uptimes = switch.uptime_seconds, last.switch.uptime_seconds
        if uptimes[0] is not None and uptimes[1] is not None and (uptimes[0] % 1 or uptimes[1] % 1):
            told = uptimes[0] - uptimes[1]
            if abs(told - step) <= _CLOCKS_AGREE * step:
                step = told
        return last.at + step

    # -- what moves ----------------------------------------------------------------------------------------------

    def _port(self, look: Look, index: int) -> PortReading:
        here = look.switch.interfaces.get(index)
        peer = (self._peers.get(here.name) or self._peers.get(here.description, "")) if here is not None else ""
        return port_reading(
            self._last, look, index, self._found.get(index, Role("")), peer=peer, lag=self._lags.get(index, ""),
            counted=bool({*_WIDE, *_NARROW}.intersection(self._moving)))  # fmt: skip

    async def _move(self) -> dict[Oid, Value]:
        scalars = [_UPTIME] if self._changed is None else [_UPTIME, _TABLE_CHANGED]
        rows = await self._columns(self._moving, scalars)
        first = next(iter(self._moving), None)
        if first is not None and any((*first, index) not in rows for index in self._ports):
            # Not at each turn of an agent that now and then leaves one out.
            self._whole_at = min(self._whole_at, self._clock.monotonic() - WHOLE_SECONDS + AGAIN_SECONDS)
        return rows

    async def _columns(self, columns: Sequence[Oid], scalars: Sequence[Oid] = ()) -> dict[Oid, Value]:
        """Read *columns* of the physical ports, and *scalars*; keeps when that was."""
        begun = self._clock.monotonic()
        if self._bulk:
            walk = await self.client.walk(*scalars, *columns, max_rows=MAX_ROWS)
            ports = set(self._ports)
            rows = {name: value for name, value in walk.rows.items() if name in scalars or name[-1] in ports}
        else:
            rows = await self.client.get([*scalars, *((*one, index) for index in self._ports for one in columns)])
        self._at = (begun + self._clock.monotonic()) / 2
        return rows

    def _is_another(self, rows: Mapping[Oid, Value]) -> bool:
        """Whether it restarted or has other interfaces, so that its numbers may stand for other ports."""
        before = self._last.switch.uptime_seconds if self._last is not None else None
        uptime = rows.get(_UPTIME)
        went_back = isinstance(uptime, int) and before is not None and uptime / 100 < before
        changed = rows.get(_TABLE_CHANGED, self._changed)
        return went_back or not rows or changed != self._changed

    # -- the whole -----------------------------------------------------------------------------------------------

    async def _whole(self, now: float) -> dict[Oid, Value]:
        """Recognise the switch. Returns rows that move."""
        notes = []
        listed = await self.client.walk(_DESCR, _NAME, _TABLE_CHANGED, *_NAMES, max_rows=MAX_ROWS)
        if listed.cut:
            notes.append(f"not all of its interfaces are known: {listed.cut}")
        names = ifmib.read(_told(listed.rows.items()))
        ports = sorted(port.index for port in names.data_ports())
        if len(ports) > MAX_PORTS:
            notes.append(f"only {MAX_PORTS:,} of its {len(ports):,} physical ports are read")
        self._ports = tuple(ports[:MAX_PORTS])
        # SNMPv1 has no GETBULK, and a walk would read what nobody asked for.
        self._bulk = getattr(self.client.agent.who, "version", 3) != 1 and len(names.interfaces) <= 1.5 * len(ports)
        fixed = await self._columns(_FIXED)
        rows = await self._columns([_OPER, *_WIDE, *_BESIDE], [_UPTIME])
        have = {name[:-1] for name in rows}
        octets = _WIDE if have.intersection(_WIDE) else _NARROW
        if octets is _NARROW:
            rows |= await self._columns(_NARROW)
            have |= {name[:-1] for name in rows}
        if not have.intersection(octets):
            notes.append("it gives no octet counters of its ports: what they carry is unknown")
        self._moving = [column for column in (_OPER, *octets, *_BESIDE) if column in have]
        self._changed = listed.rows.get(_TABLE_CHANGED)
        stack: Mapping[Oid, Value] = {}
        if not any(name[:-1] == _LAG for name in fixed):
            stack = await self._optional(_STACK)
        self._fixed = {**listed.rows, **fixed, **stack}
        switch = ifmib.read(_told({**self._fixed, **rows}.items()))
        self._lags = {
            one.index: switch.interfaces[one.lag].name
            for one in switch.interfaces.values() if one.lag and one.lag in switch.interfaces
        }  # fmt: skip
        neighbours = await self._neighbours(switch, listed.rows, notes)
        self._found = ifmib.roles(
            switch, uplinks=self._roles.uplinks, hosts=self._roles.hosts, neighbours=neighbours,
            nodes=self._roles.nodes, leaves=self._roles.leaves)  # fmt: skip
        self._peers = {port: peer for port, (peer, _) in neighbours.items()}
        self._remember(switch)
        kept = set(self._ports)
        self._fixed = {
            name: value for name, value in self._fixed.items()
            if name[: len(_STACK)] != _STACK and (name[-1] in kept or name in (_DESCR, _NAME))
        }  # fmt: skip
        self._notes = (*notes, *self._unplaced())
        self._whole_at = now
        return rows

    def _remember(self, switch: Switch) -> None:
        """Keep what LLDP told of ports of which nothing tells now: a port that goes down loses its neighbour first."""
        for index, role in list(self._found.items()):
            name = switch.interfaces[index].name
            if role.role:
                if role.why.startswith("lldp"):
                    self._heard[name] = role, self._peers.get(name, "")
                else:
                    self._heard.pop(name, None)
            elif name in self._heard:
                self._found[index], peer = self._heard[name]
                self._peers.setdefault(name, peer)
        names = {switch.interfaces[index].name for index in self._found}
        self._heard = {name: told for name, told in self._heard.items() if name in names}

    async def _optional(self, *roots: Oid) -> dict[Oid, Value]:
        """Rows that are not needed: nothing where the agent will not give them."""
        try:
            return (await self.client.walk(*roots)).rows
        except SnmpError:
            return {}

    async def _neighbours(
        self, switch: Switch, listed: Mapping[Oid, Value], notes: list[str]
    ) -> dict[str, tuple[str, bool | None]]:
        """Port name to (neighbour, whether it is a switch), by LLDP.

        Agents that give a port's address as its LLDP name (NX-OS) tell it by its description, which is its alias.
        """
        rows = await self._optional(*_NEIGHBOURS)
        names = {name: value for name, value in listed.items() if name[:-1] == (*_IFX, 1)}
        reading = topology_lldp_snmp.read_rows(_told({**names, **rows}.items(), pairs=True))
        if len(reading.links) > MAX_PORTS:
            notes.append(f"only {MAX_PORTS:,} of its {len(reading.links):,} LLDP neighbours are used")
        alias = Counter(one.alias for one in switch.interfaces.values())
        names_of = {one.alias: one.name for one in switch.interfaces.values() if one.alias and alias[one.alias] == 1}
        known = {text for one in switch.interfaces.values() for text in (one.name, one.description)}
        return {
            link.port if link.port in known else names_of.get(link.port, link.port): (link.peer, link.peer_is_switch)
            for link in reading.links[:MAX_PORTS]
        }  # fmt: skip

    def _unplaced(self) -> Iterable[str]:
        return unplaced(role.role for role in self._found.values())


def unplaced(roles: Iterable[str]) -> tuple[str, ...]:
    """Return what is to be said where the *roles* of a switch's ports leave its share unknown."""
    kinds = set(roles)
    for role, words, field in ((UPLINK, "an uplink", "uplinks"), (HOST, "a host's", "host_ports")):
        if kinds and role not in kinds:
            return (f"none of its ports is known as {words}: name them by {field} in the config, or turn LLDP on",)
    return ()


def port_reading(
    last: Look | None, look: Look, index: int, role: Role, *, key: str = "", peer: str = "", lag: str = "",
    bits: int = 32, counted: bool = True,
) -> PortReading:
    """Return what port *index* carried between two looks.

    Args:
        last: the look before; None at first.
        look: this one.
        index: its ifIndex, or what stands for it.
        role: what it is.
        key: what it is known by; empty: the index.
        peer: who is at its other end.
        lag: name of the lag that it is a member of.
        bits: width of its counters of packets.
        counted: whether the switch has octet counters at all.
    """
    here = look.switch.interfaces.get(index)
    if here is None:
        gone = Rate(None, Why.UNREADABLE)
        return PortReading(key or str(index), str(index), role=role.role, role_by=role.why, into=gone, out=gone)
    before = last.switch.interfaces.get(index) if last is not None else None
    if before is not None and before.name != here.name:
        before = None
    into, out = ifmib.rates(last, look, index) if counted else (NOT_OFFERED, NOT_OFFERED)
    told = {what: _count(last, before, look, here, names, bits) for what, *names in _OFFERED}
    wide = here.bits != 32
    return PortReading(
        key or str(index), here.name, here.alias, role.role, role.why, peer, lag, "", here.up, here.bits_per_second,
        here.in_octets if wide else here.in_octets_32, here.out_octets if wide else here.out_octets_32, into, out,
        **told,
    )  # fmt: skip


def _count(
    last: Look | None, before: Interface | None, look: Look, here: Interface, names: Sequence[str], bits: int
) -> Count:
    """Both ways of one counter together; a way that the agent does not have counts for nothing."""
    offered = [name for name in names if getattr(here, name) is not None or getattr(before, name, None) is not None]
    if not offered:
        return Count()
    values = [getattr(here, name) for name in offered]
    grown = []
    for name in offered:
        then, now = getattr(before, name, None), getattr(here, name)
        if then is not None and now is not None and 0 < then - now < 1 << 31:
            # One that goes round comes from near its end; from lower down it was cleared.
            grown.append(Rate(None, Why.RESET))
            continue
        grown.append(rate(_reading(last, before, then, bits) if last is not None and before is not None else None,
                          _reading(look, here, now, bits)))  # fmt: skip
    return Count(None if None in values else sum(values), _sum(grown))


def _reading(look: Look, one: Interface, value: int | None, bits: int) -> Octets:
    return Octets(look.at, value, bits, look.switch.uptime_seconds, one.discontinuity)


def _sum(rates: Iterable[Rate]) -> Rate:
    """All together; unknown where one is."""
    total = 0.0
    for one in rates:
        if one.value is None:
            return one
        total += one.value
    return Rate(total)


def _told(rows: Iterable[tuple[Oid, Value]], *, pairs: bool = False) -> Iterable[Row]:
    """The rows of an agent as the pure readers take them: numbers, and texts cleaned.

    *pairs*: octets that are no plain text stay pairs of digits, as LLDP's addresses and bit strings need it.
    """
    for name, value in rows:
        if isinstance(value, bytes):
            yield name, _text(value, pairs=pairs)
        elif isinstance(value, int):
            yield name, value


def _text(value: bytes, *, pairs: bool) -> str:
    bare = value.rstrip(b"\0")
    if not pairs or (bare and all(32 <= byte < 127 for byte in bare)):
        return clean(bare)
    return ":".join(f"{byte:02x}" for byte in value[:64])


__all__ = ["Count", "PortReading", "Roles", "SwitchReader", "SwitchReading", "port_reading", "unplaced"]
