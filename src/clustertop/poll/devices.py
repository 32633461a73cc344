"""What is not a node, polled: a task per PDU, BMC, switch or fabric, which turns its readings into frames.

One device is asked one thing at a time, at its interval or later, never sooner; what takes longer skips polls and
queues none. A silent device costs the others nothing, and its state is told when it changes, in words.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from typing import TYPE_CHECKING, Self

import msgspec

from clustertop.model import LinkEvent, LinkState
from clustertop.poll.device_frames import encoded, frame
from clustertop.poll.fleet import raise_descriptor_limit
from clustertop.poll.readers import Reader, Told, reader_of
from clustertop.poll.tasks import Tasks
from clustertop.sources.care import MOST_SECONDS, growing
from clustertop.sources.ipmi import IpmiTarget
from clustertop.sources.redfish import RedfishTarget
from clustertop.sources.snmp import Agent
from clustertop.sources.snmp_target import SnmpTarget
from clustertop.text import clean
from clustertop.wire.frame import GroupPart
from clustertop.wire.transport import REASON_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from clustertop.clock import Clock
    from clustertop.model import Attr
    from clustertop.places import Device
    from clustertop.poll.node import Sink

START_SPREAD_SECONDS = 0.02
"""A device's share of the time over which the first readings are spread; the later ones are, over an interval."""
LEAST_INTERVAL_SECONDS = 10.0
"""PDUs and BMCs are weak: none is asked more often."""
JITTER = 0.05
"""Share of an interval that is added to it by chance, and never taken from it."""
CLOSE_SECONDS = 6.0
"""How long sessions may take to be deleted, and children to end, all devices at once: a BMC of a few slots counts one
that is left behind against everybody until its own timer ends it."""
ABANDON_SECONDS = 2.0
"""How much longer what did not end in time is waited for."""
_FINE = frozenset({LinkState.UP, LinkState.CONNECTING, LinkState.WAITING})

log = logging.getLogger(__name__)


class DeviceLink:
    """Polls one device until it is cancelled.

    Args:
        owner: the device's number, which its frames and link events carry.
        device: the device.
        make: makes its reader; a ValueError of it is the device's state, in words.
        sink: gets frames and link events.
        clock: ours.
        rng: where the jitter comes from.
        interval_seconds: between the beginnings of two readings.
        turn: held while it is asked, where several devices stand behind one address.
    """

    def __init__(self, owner: int, device: Device, make: Callable[[], Reader], sink: Sink, clock: Clock,
                 rng: random.Random, interval_seconds: float, turn: asyncio.Lock | None = None) -> None:
        self.owner = owner
        self.device = device
        self._make = make
        self._sink = sink
        self._clock = clock
        self._now = clock.monotonic
        self._rng = rng
        self._interval = interval_seconds
        self._turn = turn
        self._reader: Reader | None = None
        self._event = LinkEvent(owner, self._now(), LinkState.WAITING)
        self._wake = asyncio.Event()
        self._began = float("-inf")
        self._started = self._now()
        self._detail_until = float("-inf")
        self._sequence = 0
        self._facts: Mapping[str, Attr] = {}
        self._read_at: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self.failures = 0
        """Failed polls in a row."""
        self.skipped = 0
        """Polls that were due while one was under way, in all."""

    async def run(self, delay_seconds: float = 0.0) -> None:
        """Poll until cancelled; then everything of this device has been let go of."""
        try:
            await self._pause(delay_seconds)
            try:
                self._reader = self._make()
            except ValueError as error:
                self._take(Told(LinkState.PROBE_FAILED, "config", clean(str(error), REASON_LIMIT)), 0.0)
                await asyncio.Event().wait()  # nothing changes that before the configuration is read again
                return
            self._emit(LinkState.CONNECTING)
            apart = self._rng.uniform(0.0, self._interval) if delay_seconds else 0.0
            while True:
                self._began = self._now()
                told = await self._ask(self._reader)
                self._take(told, self._now() - self._began)
                await self._pause(self._wait_seconds(told) + apart)
                apart = 0.0
        finally:
            try:
                if self._reader is not None:
                    await self._reader.aclose()
            finally:
                with contextlib.suppress(Exception):  # the sink may be the bug that ended this
                    self._emit(LinkState.CLOSED)

    def request(self, body: Mapping[str, object]) -> None:
        """``now`` and ``retry`` end a wait; ``detail`` has for so many ``seconds`` all read at each poll.

        The device's least interval holds all the same.
        """
        what = body.get("do")
        if what == "detail":
            seconds = body.get("seconds")
            if isinstance(seconds, int | float):
                self._detail_until = self._now() + max(0.0, min(float(seconds), 3600.0))
        elif what in {"now", "retry"}:
            if self._reader is not None:
                self._reader.retry()
            self._wake.set()

    # -- asking --------------------------------------------------------------------------------------------------

    async def _ask(self, reader: Reader) -> Told:
        """One reading, however long it takes: while it lasts, each poll that is due is skipped and said."""
        reader.detail = self._now() < self._detail_until
        reading = asyncio.create_task(self._in_turn(reader), name=f"reading of {self.device.name}")
        try:
            while True:
                await asyncio.wait({reading}, timeout=self._interval)
                if reading.done():
                    return reading.result()
                self.skipped += 1
                if self._event.state is LinkState.UP:
                    self._say(self._part("hung", "its answer is still awaited"))
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})

    async def _in_turn(self, reader: Reader) -> Told:
        async with self._turn or contextlib.nullcontext():
            return await reader.read(self._now())

    def _wait_seconds(self, told: Told) -> float:
        """Seconds to the next poll. Jitter is only added, so that a rack of devices that returns is not met at once."""
        more = 1.0 + self._rng.uniform(0.0, JITTER)
        step = self._interval * more
        took = self._now() - self._began
        if told.state in _FINE:
            missed, into = divmod(took, step)
            self.skipped += int(missed) if told.state is LinkState.UP else 0
            usual = step - into
        else:
            usual = growing(self._interval, MOST_SECONDS, self.failures) * more
        return usual if told.wait_seconds is None else max(told.wait_seconds, step - took, 0.0)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        if self._wake.is_set():
            self._wake.clear()
            if self._reader is not None:
                self._reader.retry()  # who asked while it was being read did not know yet how that would end
            await asyncio.sleep(max(0.0, self._began + self._interval - self._now()))

    # -- telling -------------------------------------------------------------------------------------------------

    def _take(self, told: Told, took: float) -> None:
        """Tell what was read and where we stand. The state of a link that is down is told after its frame."""
        self.failures = 0 if told.state in _FINE else self.failures + 1
        self._facts = told.facts or self._facts
        fresh = {name: part for name, part in told.parts.items() if part.t != self._read_at.get(name)}
        if fresh:
            for name, part in fresh.items():
                self._read_at[name] = part.t
                self._counts[name] = self._counts.get(name, 0) + 1
            if told.state is LinkState.UP:
                self._emit(told.state, told.stage)
            self._say({name: msgspec.structs.replace(part, n=self._counts[name], iv=self._interval, ms=took * 1000.0)
                       for name, part in fresh.items()})
        if told.state is LinkState.UP:
            self._emit(told.state, told.stage)
            if not fresh:
                self._say(self._part("hung", told.reason or "its answer is still awaited"))
        elif told.state not in _FINE:
            self._say(self._part("error", told.reason or told.state.words))
            self._emit(told.state, told.stage, told.reason)
        elif self._event.state not in {LinkState.WAITING, LinkState.CONNECTING}:
            self._emit(told.state, told.stage, told.reason)

    def _part(self, state: str, words: str) -> dict[str, GroupPart]:
        """Its groups without a new reading: the last one's age, and why there is none since."""
        return {name: GroupPart(self._read_at.get(name, self._started), iv=self._interval, st=state,
                                w=words if state == "hung" else "", e=words if state == "error" else "",
                                n=self._counts.get(name, 0))
                for name in self._read_at or (self.device.kind,)}

    def _say(self, parts: Mapping[str, GroupPart]) -> None:
        at = self._now()
        self._sequence += 1
        cost = {"failures": float(self.failures), "skipped": float(self.skipped)}
        facts: dict[str, Attr] = {"kind": self.device.kind, "where": self.device.where, **self._facts}
        made, raw = encoded(frame(self._sequence, at, self._clock.wall(), parts, facts, cost))
        self._sink.on_frame(self.owner, at, made, raw)

    def _emit(self, state: LinkState, stage: str = "", reason: str = "") -> None:
        if (state, stage) != (self._event.state, self._event.stage):
            self._event = LinkEvent(self.owner, self._now(), state, stage, reason)
            self._sink.on_link(self._event)


class Devices:
    """Polls all *devices* for the length of an ``async with`` block.

    Args:
        devices: what is watched beside the nodes.
        first_owner: the number of the first device; the others follow in their order.
        sink: gets frames and link events, from the event loop.
        clock: ours.
        rng: where the jitter comes from.
        make: makes a device's reader, given its interval; None: :func:`~clustertop.poll.readers.reader_of`.
        least_interval_seconds: no device is asked more often, whatever its own interval says.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        first_owner: int,
        sink: Sink,
        clock: Clock,
        rng: random.Random | None = None,
        *,
        make: Callable[[Device, Clock, random.Random, float], Reader] | None = None,
        least_interval_seconds: float = LEAST_INTERVAL_SECONDS,
    ) -> None:
        self._devices = tuple(devices)
        self._first = first_owner
        self._sink = sink
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._make = make or reader_of
        self._least = least_interval_seconds
        self._tasks = Tasks(first_owner, sink, clock)
        self.links: list[DeviceLink] = []
        """One per device, in their order."""

    @property
    def bugs(self) -> list[BaseException]:
        """Errors of our own that ended a device's task. The first one is raised when the block is left."""
        return self._tasks.bugs

    async def __aenter__(self) -> Self:
        """Start. Raises DescriptorLimitError."""
        if self._devices:
            raise_descriptor_limit(self._first + len(self._devices))
        shared = Counter(_address(device.access) for device in self._devices)
        turns: dict[object, asyncio.Lock] = {
            address: asyncio.Lock() for address, count in shared.items() if address and count > 1}
        for number, device in enumerate(self._devices):
            interval = max(self._least, device.interval_seconds)
            link = DeviceLink(
                self._first + number, device, self._maker(device, interval), self._sink, self._clock, self._rng,
                interval, turns.get(_address(device.access)))
            self.links.append(link)
            spread = min(interval, START_SPREAD_SECONDS * len(self._devices))
            delay = self._rng.uniform(0.0, spread) if len(self._devices) > 1 else 0.0
            self._tasks.start(link.run(delay), f"{device.kind} {device.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self.bugs and error is None:
            raise self.bugs[0]

    def request(self, owner: int | None, body: Mapping[str, object]) -> None:
        """Pass a request on to the device whose number is *owner*, or to all. Another number is nobody's."""
        for link in self.links:
            if owner is None or link.owner == owner:
                link.request(body)

    @property
    def left(self) -> tuple[str, ...]:
        """Names of the devices that have not been let go of."""
        tasks = self._tasks.all
        return tuple(link.device.name for link, task in zip(self.links, tasks, strict=True) if not task.done())

    async def close(self) -> None:
        """Let go of every device, within ``CLOSE_SECONDS`` and a little. Safe to call more than once."""
        self._tasks.closing = True
        for seconds in (CLOSE_SECONDS, ABANDON_SECONDS):
            await self._tasks.cancel(seconds)
        if self._tasks.left:
            log.warning("%d devices could not be let go of in time", len(self._tasks.left))

    def _maker(self, device: Device, interval: float) -> Callable[[], Reader]:
        return lambda: self._make(device, self._clock, self._rng, interval)


def _address(access: object) -> tuple[str, str, int] | None:
    """What several devices may stand behind; None: not known, so not shared."""
    if isinstance(access, Agent | SnmpTarget):
        return ("snmp", access.host, access.port)
    if isinstance(access, IpmiTarget):
        return ("ipmi", access.host, access.port)
    if isinstance(access, RedfishTarget):
        return ("https", access.url, 0)
    return None


__all__ = ["DeviceLink", "Devices", "Reader", "Told"]
