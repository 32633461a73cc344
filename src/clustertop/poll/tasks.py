"""A task for each thing that is polled: an error of our own ends its own task only, is told, and is not lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from clustertop.model import LinkEvent, LinkState
from clustertop.text import clean
from clustertop.wire.transport import REASON_LIMIT

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from clustertop.clock import Clock
    from clustertop.poll.node import Sink


class Tasks:
    """Tasks of things that are numbered from *first* on, in the order in which they are started."""

    def __init__(self, first: int, sink: Sink, clock: Clock) -> None:
        self._first, self._sink, self._clock = first, sink, clock
        self.all: list[asyncio.Task[None]] = []
        self.bugs: list[BaseException] = []
        """Errors of our own that ended a task."""
        self.closing = False
        """From now on the end of a task is no news."""

    def start(self, life: Coroutine[object, object, None], name: str) -> None:
        """Start the next one."""
        task = asyncio.create_task(life, name=name)
        task.add_done_callback(partial(self._ended, self._first + len(self.all)))
        self.all.append(task)

    @property
    def left(self) -> list[asyncio.Task[None]]:
        """Those that have not ended."""
        return [task for task in self.all if not task.done()]

    async def cancel(self, seconds: float) -> None:
        """Cancel those that are left and wait for their ends, *seconds* at most."""
        left = self.left
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=seconds)

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        bug = None if task.cancelled() else task.exception()
        if bug is None:
            return
        self.bugs.append(bug)
        if not self.closing:
            reason = clean(f"internal error of clustertop: {type(bug).__name__}: {bug}", REASON_LIMIT)
            self._sink.on_link(
                LinkEvent(number, self._clock.monotonic(), LinkState.PROBE_FAILED, "console", reason))
