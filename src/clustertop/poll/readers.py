"""One device as its task sees it: asked for a reading, it tells a link state with words, and what was read as parts.

Here is decided which source reads a PDU or a BMC: :func:`reader_of`; switches and the fabric have their own module.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from clustertop.clock import local_minute
from clustertop.model import LinkState
from clustertop.places import DEVICE_WORD
from clustertop.poll.bmc_frames import Rows, bmc_facts, bmc_part
from clustertop.poll.pdu_frames import circuits_part, pdu_facts, pdu_part
from clustertop.sources.bmc import Bmc, BmcSettings
from clustertop.sources.bmc_reading import BmcState
from clustertop.sources.ipmi import Ipmi, IpmiTarget
from clustertop.sources.pdu import Pdu
from clustertop.sources.profile import ProfileError, load
from clustertop.sources.redfish import Redfish, RedfishTarget
from clustertop.sources.secret import SecretError
from clustertop.sources.snmp import Agent, SnmpError
from clustertop.sources.snmp_target import SnmpTarget
from clustertop.text import clean
from clustertop.wire.transport import REASON_LIMIT

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from clustertop.clock import Clock
    from clustertop.model import Attr
    from clustertop.places import Device
    from clustertop.wire.frame import GroupPart

    Maker = Callable[["Device", "Clock", random.Random, float], "Reader"]

BUSY_TRIES = 3
"""Refusals in a row that still count as busy; after them the device is unreachable."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one call of :meth:`Reader.read` brought."""

    state: LinkState
    stage: str = ""
    """How far it got: ``snmp``, ``http``, ``ipmi``, ``login``, ``tls``, ``answer``, ``console``."""
    reason: str = ""
    """One clear sentence, cleaned; empty while all is well."""
    parts: Mapping[str, GroupPart] = field(default_factory=dict)
    """The newest reading, by group, also where it is an old one: ``t`` says when it was asked for. Who polls fills in
    the number of the reading, the interval and what it took."""
    facts: Mapping[str, Attr] = field(default_factory=dict)
    """Who the device is; empty: as before."""
    wait_seconds: float | None = None
    """Not asked again before that; None: who polls decides."""


class Reader(Protocol):
    """One way to one device. It is never asked twice at once. To be inherited, for what it has of its own."""

    detail: bool = False
    """Somebody looks at it: what is read seldom is read at each call."""

    async def read(self, now: float) -> Told:
        """Ask it, *now* on our monotonic clock. Raises nothing for what a device does."""
        ...

    def retry(self) -> None:
        """The operator wants it asked at the next call, whatever care says."""
        return

    async def aclose(self) -> None:
        """Let go of it: no session, no child process, no socket is left."""
        ...


class PduReader(Reader):
    """A PDU over SNMP. Its words are those of one silence: they stay the same as long as it lasts."""

    def __init__(self, device: Device, access: Agent | SnmpTarget, clock: Clock) -> None:
        """Raises ValueError: no such profile."""
        name = device.options.get("profile")
        try:
            self._profile = load(str(name)) if name else None
        except (ProfileError, OSError) as error:
            raise ValueError(f"profile {clean(str(name), 80)}: {clean(str(error), 200)}") from None
        self._access = access
        self._pdu: Pdu | None = None
        self._where = device.where or access.host
        self._clock = clock
        self._since = 0.0

    async def read(self, now: float) -> Told:
        wall = self._clock.wall()
        if self._pdu is None:
            try:
                agent = await agent_of(self._access)
            except (SecretError, ValueError) as error:
                return _told(LinkState.AUTH_FAILED, "login", f"{self._where}: {error}")
            self._pdu = Pdu(agent, self._profile, clock=self._clock)
        try:
            reading = await self._pdu.read(detail=self.detail)
        except SnmpError as error:
            self._since = self._since or wall
            if error.refused:
                await self.aclose()  # the next try fetches the secret anew: it may have been changed
            return snmp_told(error, self._where, self._since)
        self._since = 0.0
        behind = max(0.0, now - self._pdu.outlets_at)
        return Told(LinkState.UP, "snmp", parts={"pdu": pdu_part(reading, now, outlets_behind=behind)},
                    facts=pdu_facts(reading))

    async def aclose(self) -> None:
        if self._pdu is not None:
            self._pdu.close()
        self._pdu = None


async def agent_of(access: Agent | SnmpTarget) -> Agent:
    """The agent to ask, its secrets fetched. Raises SecretError and ValueError, whose texts hold no secret."""
    return access if isinstance(access, Agent) else await asyncio.to_thread(access.agent)


def snmp_told(error: SnmpError, where: str, since: float) -> Told:
    """What a failed request means for the link to *where*, silent *since* (epoch seconds)."""
    words = f"since {local_minute(since)}"
    if error.silent:
        more = error.reason.removeprefix("no answer ")
        return _told(LinkState.UNREACHABLE, "snmp", f"no answer from {where} {words}: {more}")
    state, stage = ((LinkState.AUTH_FAILED, "login") if error.refused else
                    (LinkState.UNREACHABLE, "snmp") if error.unreachable else (LinkState.PROBE_FAILED, "answer"))
    return _told(state, stage, f"{where}: {error.reason} {words}")


_LINK: Mapping[BmcState, tuple[LinkState, str]] = {
    BmcState.WAITING: (LinkState.CONNECTING, ""),
    BmcState.SLOW: (LinkState.CONNECTING, ""),
    BmcState.UP: (LinkState.UP, ""),
    BmcState.NOT_ANSWERING: (LinkState.UNREACHABLE, ""),
    BmcState.BUSY: (LinkState.BUSY, "answer"),
    BmcState.MAX_SESSIONS: (LinkState.BUSY, "login"),
    BmcState.AUTH_FAILED: (LinkState.AUTH_FAILED, "login"),
    BmcState.FORBIDDEN: (LinkState.AUTH_FAILED, "answer"),
    BmcState.TLS_FAILED: (LinkState.AUTH_FAILED, "tls"),
    BmcState.BAD_ANSWER: (LinkState.PROBE_FAILED, "answer"),
    BmcState.NO_TOOL: (LinkState.PROBE_FAILED, "console"),
    BmcState.CLOSED: (LinkState.CLOSED, ""),
}


class BmcReader(Reader):
    """A BMC, or a rack PDU over Redfish. :class:`~clustertop.sources.bmc.Bmc` has the care; its state is told on."""

    def __init__(self, device: Device, bmc: Bmc, over: str, clock: Clock) -> None:
        self._bmc = bmc
        self._clock = clock
        self._over = over
        self._pdu = device.kind == "pdu"
        self._rows: Rows = {}
        self._where = device.where

    async def read(self, now: float) -> Told:
        reading = await self._bmc.read(detail=self.detail)
        status = reading.status
        parts: dict[str, GroupPart] = {}
        facts: dict[str, Attr] = {}
        if reading.taken_at is not None:
            if self._pdu:
                parts = {"pdu": circuits_part(reading, reading.taken_at)}
            else:
                parts = {"bmc": bmc_part(reading, reading.taken_at, self._rows)}
            facts = bmc_facts(reading)
        state, stage = _LINK[status.state]
        if status.state is BmcState.SLOW and parts:
            state = LinkState.UP
        elif state is LinkState.BUSY and status.failures > BUSY_TRIES:
            state = LinkState.UNREACHABLE
        reason = f"{self._where}: {status.words}" if status.words and self._where else status.words
        wait = max(0.0, status.next_at - self._clock.monotonic()) if status.next_at else None
        return _told(state, stage or self._over, reason, parts, facts, wait)

    def retry(self) -> None:
        self._bmc.retry()

    async def aclose(self) -> None:
        await self._bmc.aclose()


def _told(state: LinkState, stage: str, reason: str, parts: Mapping[str, GroupPart] | None = None,
          facts: Mapping[str, Attr] | None = None, wait: float | None = None) -> Told:
    return Told(state, stage, clean(reason, REASON_LIMIT), parts or {}, facts or {}, wait)


def reader_of(device: Device, clock: Clock, rng: random.Random, interval_seconds: float) -> Reader:
    """Make the reader of *device*. Raises ValueError: nothing reads a device that is accessed so, or it is misspelt."""
    access = device.access
    settings = BmcSettings(interval_seconds=interval_seconds)
    if isinstance(access, Agent | SnmpTarget) and device.kind == "pdu":
        return PduReader(device, access, clock)
    if isinstance(access, RedfishTarget) and device.kind in {"bmc", "pdu"}:
        return BmcReader(device, Bmc(Redfish(access, clock=clock), settings, clock, rng), "http", clock)
    if isinstance(access, IpmiTarget) and device.kind == "bmc":
        return BmcReader(device, Bmc(Ipmi(access, clock=clock), settings, clock, rng), "ipmi", clock)
    raise ValueError(f"a {DEVICE_WORD[device.kind]} is not read by {type(access).__name__}")
