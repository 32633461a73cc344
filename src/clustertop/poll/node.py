"""One node's life: connect, read frames, notice trouble, let go, try again. One task per node, never more."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from clustertop.model import LinkEvent, LinkState
from clustertop.poll.backoff import Backoff
from clustertop.text import clean
from clustertop.wire.frame import Frame, FrameError, decode
from clustertop.wire.shprobe import NOTE as SH_NOTE
from clustertop.wire.transport import REASON_LIMIT, LinkFailure, PollSettings, Transport

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from clustertop.clock import Clock
    from clustertop.poll.inbox import Inbox
    from clustertop.wire.transport import Receiver

__all__ = ["NodeLink", "PollSettings", "Sink"]

BAD_IN_A_ROW = 5
"""Lines in a row that are no frames after which the probe is started again."""
GOOD_AGAIN = 30
"""Good frames in a row after which a note about a bad line is taken back."""
BUSY_TRIES = 3
"""Refusals in a row that still count as busy; after them the node is unreachable."""
REFUSED = frozenset({LinkState.AUTH_FAILED, LinkState.HOST_KEY_UNKNOWN, LinkState.HOST_KEY_CHANGED})


class Sink(Protocol):
    """Where frames and link events go. Called from the event loop; must not block."""

    def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
        """A good frame of *node*, received *at* on our monotonic clock; *raw* is its text."""
        ...

    def on_link(self, event: LinkEvent) -> None:
        """A link changed its state, or there is a note about it (same state, new reason)."""
        ...


class NodeLink:
    """Polls one node until it is cancelled. It is its transport's receiver.

    Args:
        index: the node's index in the inventory.
        make: makes the node's transport, given this receiver and what to call when its turn has come.
        settings: how often and how long.
        sink: gets frames and link events.
        clock: ours.
        rng: where the jitter comes from.
        inbox: where frames wait to be taken together; None: each is taken as it arrives.
        more: what this node's probe is told beside the settings; ``released`` is what an operator asked for last.
    """

    __slots__ = (
        "_backoff",
        "_bad",
        "_base",
        "_bug",
        "_clock",
        "_event",
        "_gap",
        "_good",
        "_inbox",
        "_index",
        "_last",
        "_more",
        "_noted",
        "_now",
        "_remark",
        "_retry",
        "_settings",
        "_sink",
        "_transport",
        "_trouble",
        "_up",
        "_wanted",
        "asked_full",
        "bad",
        "epoch",
        "frames",
        "noise",
        "noise_sample",
    )  # fmt: skip

    def __init__(
        self,
        index: int,
        make: Callable[[Receiver, Callable[[], None]], Transport],
        settings: PollSettings,
        sink: Sink,
        clock: Clock,
        rng: random.Random | None = None,
        inbox: Inbox | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        self._index = index
        self._inbox = inbox
        self._more: dict[str, object] = dict(more or {})
        self.epoch = 0
        self._settings = settings
        self._sink = sink
        self._clock = clock
        self._now = clock.monotonic
        self._backoff = Backoff(settings.retry_min_seconds, settings.retry_max_seconds, rng)
        self._event = LinkEvent(index, self._now(), LinkState.WAITING)
        self._retry = asyncio.Event()
        self._trouble: asyncio.Future[LinkFailure] | None = None
        self._wanted: dict[object, Mapping[str, object]] = {}
        self._bug: BaseException | None = None
        self._up = False
        self._base = -1
        self._last = 0.0
        self._bad = 0
        self._gap = False
        self._good = 0
        self._noted = False
        self._remark = ""
        self.frames = 0
        """Good frames delivered."""
        self.bad = 0
        """Lines between our marks that were no frames, or came without their end, or were too long."""
        self.noise = 0
        self.noise_sample = ""
        """The first noise of the current connection, cleaned."""
        self.asked_full = 0
        """How often a full frame had to be asked for."""
        self._transport = make(self, self._on_started)

    async def run(self, delay_seconds: float = 0.0) -> None:
        """Poll until cancelled; then everything of this node has been let go of."""
        try:
            await self._pause(delay_seconds)
            while True:
                failure = await self._attempt()
                self.epoch += 1
                if self._bug is not None:
                    raise self._bug
                self._up = False
                delay = self._backoff.next()
                if failure.state in REFUSED:
                    delay = self._settings.refused_retry_seconds
                elif failure.state is LinkState.BUSY and self._backoff.failures > BUSY_TRIES:
                    words = f"{failure.reason}; {self._backoff.failures} times in a row"
                    failure = LinkFailure(LinkState.UNREACHABLE, failure.stage, words)
                self._emit(failure.state, failure.stage, failure.reason)
                await self._pause(delay)
        finally:
            await self._transport.close()
            with contextlib.suppress(Exception):  # the sink may be the bug that ended this
                self._emit(LinkState.CLOSED)

    def request(self, body: Mapping[str, object]) -> None:
        """Pass on an operator's request; ``{"do": "retry"}`` ends a wait and tries the node again now."""
        if body.get("do") == "retry":
            self._retry.set()
            return
        what, of_gpus = body.get("do"), body.get("group", "gpu") == "gpu"
        # These hold over a reconnect.
        if what == "every":
            self._wanted[body.get("group")] = body
        elif what == "release" and of_gpus:
            self._more["released"] = body.get("at") or True
        elif what == "take" and of_gpus:
            self._more.pop("released", None)
        self._transport.send(body)

    def on_payload(self, payload: bytes) -> None:
        """One frame's text arrived. Called by the transport for every tick of every node: keep it short."""
        if self._inbox is not None and self._up:
            self._inbox.put(self, self._now(), payload)
        else:
            self.take(self._now(), payload)

    def take(self, at: float, payload: bytes) -> None:
        """Decode a frame that arrived *at* (our monotonic clock) and pass it on."""
        try:
            frame = decode(payload)
        except FrameError as error:
            self._on_bad(f"parse error: {error}", payload)
            return
        base = frame.b
        if base != self._base:
            if base != frame.q:
                self._on_gap()
                return
            self._base = base
            self._gap = False
            self._remark = SH_NOTE if (frame.h or {}).get("probe") == "sh" else ""
        self._last = at
        self.frames += 1
        self._bad = 0
        try:
            if not self._up or self._noted:
                self._on_good()
            self._sink.on_frame(self._index, at, frame, payload)
        except Exception as bug:  # noqa: BLE001 - else asyncssh would take it for a fault of the connection
            self._bug = bug
            self._stop(LinkState.PROBE_FAILED, "internal error")

    def on_noise(self, kind: str, sample: bytes) -> None:
        """Something that is not a frame arrived."""
        if kind == "noise":
            self.noise += 1
            if not self.noise_sample:
                self.noise_sample = clean(sample, 120)
        elif kind == "truncated":
            self._on_bad("a line without its end mark was dropped", sample)
        else:
            self._on_bad("a line that is too long was dropped", sample)

    async def _attempt(self) -> LinkFailure:
        """Connect once and stay until it ends; return why."""
        transport = self._transport
        self._trouble = asyncio.get_running_loop().create_future()
        self._up = self._noted = self._gap = False
        self._base = -1
        self._bad = 0
        self.noise_sample = ""
        transport.more = dict(self._more)
        try:
            await transport.open()
        except LinkFailure as failure:
            return failure
        for body in self._wanted.values():
            transport.send(body)
        self._last = self._now()
        ended = asyncio.ensure_future(transport.wait_closed())
        try:
            return await self._watch(ended, self._trouble)
        finally:
            ended.cancel()

    async def _watch(
        self, ended: asyncio.Future[LinkFailure], trouble: asyncio.Future[LinkFailure]
    ) -> LinkFailure:
        settings = self._settings
        quiet = max(settings.silence_seconds, 10 * settings.interval_seconds)
        while True:
            limit = quiet if self._up else settings.start_timeout_seconds
            left = limit - (self._now() - self._last)
            if left <= 0:
                # What is silent for so long may be a connection that only seems to live: make a new one.
                await self._transport.close()
                what = "no frame" if self._up else "the probe was started but sent no frame"
                return LinkFailure(LinkState.PROBE_FAILED, "frames", f"{what} for {limit:g} s")
            await asyncio.wait((ended, trouble), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if trouble.done():
                return trouble.result()
            if ended.done():
                return ended.result()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._retry.wait()
        self._retry.clear()

    def _on_started(self) -> None:
        # A node that is down stays shown as that while it is tried again: no flicker.
        if self._event.state in (LinkState.WAITING, LinkState.UP):
            self._emit(LinkState.CONNECTING)

    def _on_good(self) -> None:
        if not self._up:
            self._up = True
            self._backoff.reset()
            self._good = 0
            if not self._noted:
                self._emit(LinkState.UP, "frames", self._remark)
                return
        self._good += 1
        if self._good >= GOOD_AGAIN:
            self._noted = False
            self._emit(LinkState.UP, "frames", self._remark)

    def _on_bad(self, words: str, sample: bytes) -> None:
        self.bad += 1
        self._bad += 1
        self._good = 0
        if self._bad >= BAD_IN_A_ROW:
            self._stop(LinkState.PROBE_FAILED, f"{self._bad} bad lines in a row, the last: {words}")
        elif not self._noted:
            self._noted = True
            state = LinkState.UP if self._up else self._event.state
            self._emit(state, "frames", f"{words}; it began: {clean(sample, 120)}")

    def _on_gap(self) -> None:
        # Its full frame did not reach us, so this one cannot be understood.
        self._last = self._now()
        if not self._gap:
            self._gap = True
            self.asked_full += 1
            self._transport.send({"do": "full"})

    def _stop(self, state: LinkState, reason: str) -> None:
        if self._trouble is not None and not self._trouble.done():
            self._trouble.set_result(LinkFailure(state, "frames", reason))

    def _emit(self, state: LinkState, stage: str = "", reason: str = "") -> None:
        self._event = LinkEvent(
            self._index, self._now(), state, stage, clean(reason, REASON_LIMIT), clean(self._transport.via, 120))
        self._sink.on_link(self._event)
