"""What every way out has in common: a bounded queue, one delivery at a time, tries again, and a word when it fails.

A transition counts as told when its delivery has succeeded, not when it was tried (B12).
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.model import Severity, Transition

QUEUE = 1000
"""Transitions that wait at most; past it the oldest are given up, and counted."""
TRIES = 4
FIRST_WAIT_SECONDS = 1.0
"""Before the second try; then four times as long each time."""
CLOSE_SECONDS = 2.0
"""What waits when the console ends gets so long."""


class DeliveryError(Exception):
    """A delivery failed; the text is one clause without secrets. *final*: it would fail again."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


class Outlet(ABC):
    """One way out.

    Args:
        name: as an operator reads it: ``hook``, ``webhook``.
        least: transitions milder than this are not for it.
        wait_seconds: before the second try.

    Attributes:
        note: what an operator must know of it; empty while all goes well.
        delivered: transitions told so far.
        lost: transitions given up.
    """

    def __init__(self, name: str, least: Severity, wait_seconds: float = FIRST_WAIT_SECONDS) -> None:
        self.name, self._least, self._wait = name, least, wait_seconds
        self.note = ""
        self.delivered = self.lost = 0
        self._waiting: deque[Transition] = deque()
        self._task: asyncio.Task[None] | None = None
        self._told: dict[str, Severity] = {}

    def tell(self, changes: Sequence[Transition]) -> None:
        """Queue what is for this outlet. Never blocks; call it from the event loop."""
        for change in changes:
            if self._wants(change):
                if len(self._waiting) >= QUEUE:
                    self._waiting.popleft()
                    self._lose(1, f"more than {QUEUE} wait")
                self._waiting.append(change)
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name=self.name)

    def _wants(self, change: Transition) -> bool:
        """Whether it is for this outlet: grave enough and not quiet; the end of what was told in any case."""
        if change.kind in {"cleared", "folded"}:
            return self._told.pop(change.alert, None) is not None
        if change.quiet or change.severity < self._least:
            return False
        self._told[change.alert] = change.severity
        return True

    async def close(self) -> None:
        """Give what waits a last, bounded chance; what is left then is lost and counted."""
        task, self._task = self._task, None
        if task is None:
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if self._waiting:
            self._lose(len(self._waiting), "the console ended")
            self._waiting.clear()

    @abstractmethod
    async def deliver(self, change: Transition) -> None:
        """Deliver one transition. Raises DeliveryError."""

    async def _run(self) -> None:
        while self._waiting:
            change, wait = self._waiting[0], self._wait
            for attempt in range(TRIES):
                try:
                    await self.deliver(change)
                except DeliveryError as error:
                    self.note = f"{self.name}: {error}"
                    if error.final or attempt == TRIES - 1:
                        self._lose(1, str(error))
                        break
                    await asyncio.sleep(wait)
                    wait *= 4
                else:
                    self.delivered += 1
                    self.note = f"{self.name}: {self.lost} not told" if self.lost else ""
                    break
            if self._waiting and self._waiting[0] is change:
                self._waiting.popleft()

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        self.note = f"{self.name}: {self.lost} not told ({why})"
