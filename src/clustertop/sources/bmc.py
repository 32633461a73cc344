"""One BMC as a poller sees it: asked once at a time, left alone when it must be, always with a state in words."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clustertop.clock import SystemClock, local_time
from clustertop.sources.bmc_reading import BmcReading, BmcState, BmcStatus
from clustertop.sources.care import BmcFailure, wait_seconds

if TYPE_CHECKING:
    from clustertop.clock import Clock
    from clustertop.sources.care import Source

LEAST_INTERVAL_SECONDS = 10.0
"""No BMC is asked more often."""
_MARGIN = 0.15
"""Share of the interval that slow work leaves free before the next poll."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BmcSettings:
    """When a BMC is asked."""

    interval_seconds: float = 60.0
    """How often :meth:`Bmc.read` is called; the shortest wait after a failure."""
    patience_seconds: float = 8.0
    """How long a call waits for the answer. What comes later is used by the next call."""


class Bmc:
    """One BMC behind one :class:`~clustertop.sources.care.Source`.

    A poller calls :meth:`read` at its interval, with its own jitter. Each call returns within the patience: with a new
    reading, or with the last one, its true age and the status. Polls that come while one is under way, or before the
    back-off is over, are skipped and counted.
    """

    def __init__(self, source: Source, settings: BmcSettings | None = None, clock: Clock | None = None,
                 rng: random.Random | None = None) -> None:
        self._source = source
        self._settings = settings or BmcSettings()
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._last = BmcReading()
        self._status = BmcStatus()
        self._poll: asyncio.Task[None] | None = None
        self._slow: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def reading(self) -> BmcReading:
        """The last reading with the present status; asks nothing."""
        return replace(self._last, status=self._status)

    async def read(self, *, detail: bool = False) -> BmcReading:
        """Ask it, unless it is being asked or must be left alone. Never raises for what a BMC does."""
        if self._closed:
            return self.reading
        _raised(self._poll)
        if self._poll is not None and not self._poll.done():
            self._skip()
            if self._status.state is BmcState.UP:
                self._status = replace(self._status, state=BmcState.SLOW, words="the last poll is still under way")
            return self.reading
        if self._clock.monotonic() < self._status.next_at:
            self._skip()
            return self.reading
        self._poll = asyncio.create_task(self._ask(detail=detail), name="bmc poll")
        # Not cancelled where patience ends, nor where the caller is: the answer is wanted, and sessions must be closed.
        await asyncio.wait({self._poll}, timeout=self._settings.patience_seconds)
        if not self._poll.done() and self._status.state in {BmcState.UP, BmcState.WAITING}:
            self._status = replace(self._status, state=BmcState.SLOW,
                                   words=f"no answer within {self._settings.patience_seconds:g} s yet")
        _raised(self._poll)
        return self.reading

    def retry(self) -> None:
        """The operator wants it asked now: the back-off ends. What is under way goes on."""
        self._status = replace(self._status, next_at=0.0)

    async def aclose(self) -> None:
        """Stop asking, and leave nothing behind on the BMC or here."""
        if self._closed:
            return
        self._closed = True
        for task in (self._slow, self._poll):
            await _ended(task)
        self._status = replace(self._status, state=BmcState.CLOSED, words="", next_at=0.0)
        await self._source.aclose()

    def _skip(self) -> None:
        self._status = replace(self._status, skipped=self._status.skipped + 1)

    async def _ask(self, *, detail: bool) -> None:
        _raised(self._slow)
        await _ended(self._slow)  # what is on screen goes before the event log
        began, wall = self._clock.monotonic(), self._clock.wall()
        try:
            reading = await self._source.read(detail=detail)
        except BmcFailure as failure:
            self._failed(failure, wall)
            return
        took = self._clock.monotonic() - began
        late = self._status.late + (took > self._settings.patience_seconds)
        self._last = reading
        self._status = BmcStatus(BmcState.UP, skipped=self._status.skipped, late=late)
        left = self._settings.interval_seconds * (1.0 - _MARGIN) - took
        if left > 0 and not self._closed:
            self._slow = asyncio.create_task(self._work(left), name="bmc slow")

    async def _work(self, seconds: float) -> None:
        try:
            changed = await self._source.slow(seconds)
        except BmcFailure as failure:
            log.debug("bmc: slow item: %s", failure.words)
            return
        if changed:
            self._last = replace(self._last, **changed)

    def _failed(self, failure: BmcFailure, wall: float) -> None:
        before = self._status
        failures = before.failures + 1
        since = before.since_wall if before.failures else wall
        delay = wait_seconds(failure, failures, self._settings.interval_seconds, self._rng)
        words = f"{failure.state.value} since {local_time(since)[:5]}"
        if failure.words:
            words += f": {failure.words}"
        self._status = BmcStatus(failure.state, since, words, self._clock.monotonic() + delay, failures,
                                 before.skipped, before.late)


def _raised(task: asyncio.Task[None] | None) -> None:
    """Raise what ended *task*, if anything did: a bug of ours is not taken for the BMC's, nor lost."""
    if task is not None and task.done() and not task.cancelled():
        task.result()


async def _ended(task: asyncio.Task[None] | None) -> None:
    """Cancel *task* and wait until it has let go of what it holds."""
    if task is None or task.done():
        return
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, BmcFailure):
        await asyncio.wait({task})
