"""A PDU over SNMP as something to read: recognise it once, then only what moves, as little as a weak agent can bear.

Names, limits, ratings and energies are read with the whole device every ten minutes; amps, volts, watts and states at
each :meth:`Pdu.read`; an outlet's every minute. What is gone from an answer is unknown, and soon all is read again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clustertop.clock import SystemClock
from clustertop.sources.oids import oid
from clustertop.sources.pdu_reading import PduReading, gone, interpret, unscaled
from clustertop.sources.profile import SYS_DESCR, SYS_NAME, SYS_OBJECT_ID, profiles, recognise
from clustertop.sources.snmp import Client, SnmpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.clock import Clock
    from clustertop.sources.oids import Oid, Value
    from clustertop.sources.pdu_reading import PartReading
    from clustertop.sources.profile import Profile
    from clustertop.sources.snmp import Agent

WHOLE_SECONDS = 600.0
OUTLET_SECONDS = 60.0
AGAIN_SECONDS = 60.0
"""Until the whole is read again after something went missing."""
MAX_ROWS = 8_000
"""Most rows kept of one device, over all its tables."""
MAX_UNSCALED_ROWS = 2_000
_PRIVATE: Oid = (1, 3, 6, 1, 4, 1)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the slow parts are read, in seconds."""

    whole_seconds: float = WHOLE_SECONDS
    outlet_seconds: float = OUTLET_SECONDS


class Pdu:
    """One agent that speaks for a PDU or several. ``async with`` closes its socket.

    Reads follow one another; the caller decides when, and skips rather than queues (a read may take as long as the
    agent's deadline for each of its requests).
    """

    def __init__(
        self, agent: Agent, profile: Profile | None = None, pace: Pace | None = None, clock: Clock | None = None,
    ) -> None:
        """Read *agent* by *profile*, where given, instead of by what the device is recognised as."""
        self.client = Client(agent)
        self._forced = profile
        self._pace = pace or Pace()
        self._clock = clock or SystemClock()
        self._profile: Profile | None = None
        self._rows: dict[Oid, Value] = {}
        self._cut = ""
        self._moving: list[Oid] = []
        self._outlets: list[Oid] = []
        self._whole_at = self._outlets_at = float("-inf")
        self._last = PduReading("")
        self._seen: dict[tuple[object, ...], PartReading] = {}
        """Every part that gave a quantity once."""

    async def __aenter__(self) -> Pdu:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.client.close()

    @property
    def rows(self) -> dict[Oid, Value]:
        """What was read last, raw."""
        return self._rows

    @property
    def moving(self) -> list[Oid]:
        """What is asked for at each read, outlets apart."""
        return self._moving

    @property
    def outlets_at(self) -> float:
        """When the outlets were asked for, on our monotonic clock; minus infinity: never."""
        return self._outlets_at

    async def read(self, *, detail: bool = False) -> PduReading:
        """Read what is due and say what it all means; with *detail* the outlets are due, too.

        Raises:
            SnmpError: no answer, or a refusal; nothing is kept of a read that failed half-way.
        """
        now = self._clock.monotonic()
        if now - self._whole_at >= self._pace.whole_seconds:
            return await self._whole(now)
        # Who it is comes along each time: so the agent lives, also where nothing moves, and it is the same one.
        identity = next((name for name in (SYS_OBJECT_ID, SYS_DESCR) if name in self._rows), SYS_OBJECT_ID)
        due = [identity, *self._moving]
        outlets = detail or now - self._outlets_at >= self._pace.outlet_seconds
        if outlets:
            due += self._outlets
        try:
            fresh = await self.client.get(due)
        except SnmpError:
            # It may come back as something else.
            self._whole_at = float("-inf")
            raise
        if fresh.get(identity) != self._rows.get(identity):
            return await self._whole(now)
        self._rows.update(fresh)
        for name in set(due) - set(fresh) - {identity}:
            # Gone: unknown from now on. Soon the whole is read again, but not at each turn of a flapping agent.
            self._rows.pop(name, None)
            self._whole_at = min(self._whole_at, now - self._pace.whole_seconds + AGAIN_SECONDS)
        if outlets:
            self._outlets_at = now
        return self._say(self._profile)

    async def _whole(self, now: float) -> PduReading:
        rows = await self.client.get([SYS_OBJECT_ID, SYS_DESCR, SYS_NAME])
        profile = self._forced or recognise(rows | await self._trees())
        if profile:
            walk = await self.client.walk(*profile.columns(), max_rows=MAX_ROWS)
        else:
            walk = await self.client.walk(_PRIVATE, max_rows=MAX_UNSCALED_ROWS)
        self._rows, self._profile, self._cut = rows | walk.rows, profile, walk.cut
        self._whole_at = self._outlets_at = now
        reading = self._say(profile)
        self._plan(reading)
        return reading

    async def _trees(self) -> dict[Oid, Value]:
        """One row of each tree that some profile is recognised by, where the device has it."""
        roots = sorted({oid(match.tree) for one in profiles().values() for match in one.match if match.tree})
        found = await self.client.next(roots)
        return dict(row for row in found if row is not None)

    def _plan(self, reading: PduReading) -> None:
        """Remember which OIDs move."""
        moving = dict.fromkeys(name for part in reading.parts if part.kind != "outlet" for name in part.moving)
        outlets = dict.fromkeys(name for part in reading.parts if part.kind == "outlet" for name in part.moving)
        self._moving = list(moving)
        self._outlets = [name for name in outlets if name not in moving]

    def _say(self, profile: Profile | None) -> PduReading:
        if profile is None:
            reading = unscaled(self._rows)
        else:
            reading = interpret(profile, self._rows)
        reading = self._with_gone(reading)
        return reading.with_notes(self._cut) if self._cut else reading

    def _with_gone(self, reading: PduReading) -> PduReading:
        """Add what this device once measured and has no more: a phase that lost its feed must not just vanish."""
        same = reading.profile == self._last.profile and (
            not reading.serial or not self._last.serial or reading.serial == self._last.serial)
        if not same:
            self._seen.clear()
        present = dict(zip(_keys(reading.parts), reading.parts, strict=True))
        lost = [gone(part) for key, part in self._seen.items() if key not in present]
        self._seen |= {key: part for key, part in present.items() if part.metered}
        self._last = reading
        return replace(reading, parts=(*reading.parts, *lost)) if lost else reading


def _keys(parts: Sequence[PartReading]) -> list[tuple[object, ...]]:
    """What a part is known by: its place in the tables; its name, which people change, only where that is shared."""
    places = [(part.kind, part.unit, part.index) for part in parts]
    count = Counter(places)
    return [(*place, part.name if count[place] > 1 else "") for place, part in zip(places, parts, strict=True)]


__all__ = ["Pace", "Pdu", "PduReading"]
