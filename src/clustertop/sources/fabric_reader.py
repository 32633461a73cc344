"""An InfiniBand fabric as something to read at an interval: its leaves' ports and what each carried.

The fabric is walked at first, every five minutes, and when a leaf that answered does not any more or a port is missing.
In between only the counters of the leaves' ports are read, a bounded number of ports a turn; what is left over comes
first in the next turn. Nothing is reset and nothing is set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clustertop.clock import SystemClock
from clustertop.model import Why
from clustertop.signals.ifmib import HOST, UPLINK
from clustertop.signals.octets import Octets, Rate, rate
from clustertop.sources.fabric import Counted, Runner, count_ports, discover, leaf_ports_by_lid, link_speeds
from clustertop.sources.switch import NOT_OFFERED, Count, PortReading, SwitchReading
from clustertop.sources.topology_ib import host_name
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from clustertop.clock import Clock
    from clustertop.signals.ibcounters import PortCounters
    from clustertop.sources.fabric import Output
    from clustertop.sources.topology_ib import Cable, Fabric

WALK_SECONDS = 300.0
AGAIN_SECONDS = 60.0
"""Least time between two walks that something missing asks for."""
COUNT_SECONDS = 30.0
MAX_PORTS_PER_TURN = 4_096
MAX_REMEMBERED = 16_384
"""Most ports of which it is remembered that they had a cable."""
_FIRST = Rate(None, Why.FIRST_READING)
_UNREAD = Rate(None, Why.UNREADABLE)


class FabricError(Exception):
    """The fabric could not be read: one cleaned sentence."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Through which adapter of the host the fabric is asked."""

    name: str = ""
    """As ``mlx5_0``; empty: the first that is up."""
    port: int = 0
    """0: the first that is up."""

    @property
    def options(self) -> list[str]:
        """What the tools are told."""
        return [*(("-C", self.name) if self.name else ()), *(("-P", str(self.port)) if self.port else ())]


class FabricReader:
    """Reads one fabric from one host. Reads follow one another; the caller decides when.

    Args:
        run: runs a command on the host.
        adapter: which adapter asks.
        clock: ours.
        walk_seconds: deadline of a walk over the fabric.
        count_seconds: deadline of one turn of counters, over all switches.
        ports_per_turn: most ports that one turn asks for; a switch is asked whole.
    """

    def __init__(
        self,
        run: Runner,
        adapter: Adapter | None = None,
        clock: Clock | None = None,
        *,
        walk_seconds: float = 60.0,
        count_seconds: float = COUNT_SECONDS,
        ports_per_turn: int = MAX_PORTS_PER_TURN,
    ) -> None:
        self._bare = run
        self._adapter = adapter or Adapter()
        self._clock = clock or SystemClock()
        self._walk_seconds, self._count_seconds = walk_seconds, count_seconds
        self._ports_per_turn = ports_per_turn
        self._walked_at = self._asked_at = float("-inf")
        self.fabric: Fabric | None = None
        """As it was last walked."""
        self._roles: dict[int, dict[int, str]] = {}
        """By the LID of each leaf: its ports and what they are."""
        self._names: dict[str, str] = {}
        self._speeds: dict[tuple[str, int], float] = {}
        self._walk_notes: tuple[str, ...] = ()
        self._looks: dict[str, tuple[Counted | None, Counted]] = {}
        """By switch, the two looks that its rates are made of."""
        self._base: dict[str, Counted] = {}
        """By switch, what it said when it last answered."""
        self._turn: list[str] = []
        """Switches in the order in which they are asked."""
        self._seen: dict[str, PortReading] = {}
        self._wrong = False

    async def _run(self, argv: Sequence[str], seconds: float) -> Output:
        return await self._bare([argv[0], *self._adapter.options, *argv[1:]], seconds)

    async def read(self) -> SwitchReading:
        """Read what is due and say what every port of every leaf carried since its last reading.

        Raises:
            FabricError: there is no fabric to be seen, or no switch of it answers.
        """
        begun = self._clock.monotonic()
        due = begun - self._walked_at >= WALK_SECONDS
        again = begun - self._asked_at >= AGAIN_SECONDS
        if self.fabric is None or ((due or self._wrong) and again):
            await self._walk(begun)
        assert self.fabric is not None
        lids = {one: device.lid for one, device in self.fabric.devices.items() if device.kind == "switch"}
        roles = self._roles
        leaves = {one: lid for one, lid in lids.items() if lid in roles and lid is not None}
        if not leaves:
            raise FabricError("the fabric has no switch with hosts on it")
        notes = await self._count(leaves, roles)
        counted = [now.at for one, (_, now) in self._looks.items() if one in leaves]
        if not any(now.ports for one, (_, now) in self._looks.items() if one in leaves):
            self._walked_at = float("-inf")
            raise FabricError(f"no leaf switch answers: {'; '.join(notes[:2]) or 'no counters'}")
        ports = self._ports(self.fabric, leaves, roles)
        return SwitchReading(
            "fabric", f"{len(leaves)} leaves", min(counted), self._clock.monotonic() - begun, ports, None,
            (*self._walk_notes, *notes))  # fmt: skip

    async def _walk(self, now: float) -> None:
        self._asked_at = now
        fabric, look, why = await discover(self._run, self._walk_seconds)
        if not fabric.devices:
            if self.fabric is None:
                raise FabricError(clean(why, 300) or "ibnetdiscover printed no fabric")
            # As it was before: the counters tell whether its switches still answer.
            self._walk_notes = (clean(f"the fabric could not be walked again: {why}", 300),)
            self._wrong = True
            return
        notes = [f"the fabric may not be whole: {why}"] if why else []
        if silent := len(look.unreachable) + len(look.unreachable_paths):
            notes.append(f"{silent} of its parts did not answer the walk")
        if len(whole := [piece for piece in fabric.pieces() if len(piece) > 1]) > 1:
            notes.append(f"the fabric is in {len(whole)} pieces")
        self._walk_notes = tuple(clean(note, 300) for note in notes)
        self.fabric, self._walked_at, self._wrong = fabric, now, False
        self._roles, self._names, self._speeds = leaf_ports_by_lid(fabric), fabric.names(), link_speeds(fabric)

    async def _count(self, leaves: dict[str, int], ports: Mapping[int, Collection[int]]) -> list[str]:
        """Ask the switches whose turn it is. Returns what is to be said of it."""
        self._looks = {one: look for one, look in self._looks.items() if one in leaves}
        self._base = {one: base for one, base in self._base.items() if one in leaves}
        self._turn = [one for one in self._turn if one in leaves] + sorted(set(leaves).difference(self._turn))
        ends = self._clock.monotonic() + self._count_seconds
        asked: list[str] = []
        notes: list[str] = []
        total = 0
        for one in self._turn:
            lid, left = leaves[one], ends - self._clock.monotonic()
            total += len(ports[lid])
            if left <= 0 or (asked and total > self._ports_per_turn):
                notes.append(f"{len(leaves) - len(asked)} of {len(leaves)} switches are left for the next turn")
                break
            counted = await count_ports(self._run, {lid: ports[lid]}, self._clock.monotonic, left)
            notes += (clean(note, 300) for note in counted.notes)
            asked.append(one)
            self._looks[one] = (self._base.get(one), counted)
            if counted.ports:
                self._base[one] = counted
            self._wrong |= len(counted.ports) < len(ports[lid])
        self._turn = self._turn[len(asked):] + asked
        return notes

    # -- rows ----------------------------------------------------------------------------------------------------

    def _ports(
        self, fabric: Fabric, leaves: dict[str, int], roles: dict[int, dict[int, str]]
    ) -> tuple[PortReading, ...]:
        names, speeds = self._names, self._speeds
        ends = _ends(fabric)
        found: dict[str, PortReading] = {}
        for one, lid in leaves.items():
            last, now = self._looks.get(one, (None, None))
            for port, role in roles[lid].items():
                key = f"{min(fabric.devices[one].guids, default=lid):016x}/{port}"
                reading = PortReading(
                    key, f"{names[one]}/{port}", "", UPLINK if role == UPLINK else HOST, "ibnetdiscover",
                    _peer(fabric, names, ends[one, port]), "", names[one], True, speeds.get((one, port)))  # fmt: skip
                found[key] = _counted(reading, (lid, port), last, now)
        # A cable that is gone is not in what ibnetdiscover prints; its switch says at least that it is there.
        there = {names[one] for one in leaves}
        for key, before in self._seen.items():
            if key not in found:
                up = False if before.leaf in there and not self._walk_notes else None
                found[key] = replace(before, up=up)
        if len(found) <= MAX_REMEMBERED:
            self._seen = {key: _bare(one) for key, one in found.items()}
        return tuple(found.values())


def _bare(one: PortReading) -> PortReading:
    return PortReading(
        one.key, one.name, one.alias, one.role, one.role_by, one.peer, one.lag, one.leaf, None, one.bits_per_second,
        into=_UNREAD, out=_UNREAD)  # fmt: skip


def _ends(fabric: Fabric) -> dict[tuple[str, int], str]:
    """Device and port to who is at the cable's other end."""
    cables: list[Cable] = list(fabric.cables.values())
    ends = {(cable.peer, cable.peer_port): cable.device for cable in cables}
    ends.update({(cable.device, cable.port): cable.peer for cable in cables})
    return ends


def _peer(fabric: Fabric, names: dict[str, str], one: str) -> str:
    if one in names:
        return names[one]
    description = fabric.devices[one].description
    return " ".join(filter(None, host_name(description))) or description


def _counted(reading: PortReading, at: tuple[int, int], last: Counted | None, now: Counted | None) -> PortReading:
    """Return *reading* with what its port, *at* (LID, port), carried between two looks."""
    if now is None:
        return replace(reading, into=_FIRST, out=_FIRST)
    here = now.ports.get(at)
    before = last.ports.get(at) if last is not None else None
    then = last.at if last is not None else 0.0
    if here is None:
        return replace(reading, into=_UNREAD, out=_UNREAD)
    # What the switch received came in from the cable's other end.
    into, out = (
        _rate(then, before.bytes(name) if before is not None else None, now.at, here, name, reading.bits_per_second)
        for name in ("PortRcvData", "PortXmitData")
    )
    return replace(
        reading, in_bytes=here.bytes("PortRcvData"), out_bytes=here.bytes("PortXmitData"), into=into, out=out,
        discards=_sum(then, before, now.at, here, _discards),
        errors=_sum(then, before, now.at, here, _errors))  # fmt: skip


def _rate(then: float, before: int | None, at: float, here: PortCounters, name: str, speed: float | None) -> Rate:
    if here.saturated(name):
        return Rate(None, Why.SATURATED)
    last = Octets(then, before) if before is not None else None
    return rate(last, Octets(at, here.bytes(name)), speed)


def _sum(
    then: float, before: PortCounters | None, at: float, here: PortCounters, of: Callable[[PortCounters], int | None]
) -> Count:
    value = of(here)
    if value is None:
        return Count(None, NOT_OFFERED)
    last = Octets(then, of(before)) if before is not None else None
    return Count(value, rate(last, Octets(at, value)))


def _discards(one: PortCounters) -> int | None:
    return one.values.get("PortXmitDiscards")


def _errors(one: PortCounters) -> int | None:
    """All errors together; None where the tool tells none of them."""
    return sum(one.errors.values()) if "SymbolErrorCounter" in one.values else None


__all__ = ["Adapter", "FabricError", "FabricReader"]
