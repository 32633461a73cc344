"""Frames of all nodes on their way in, taken a few at a time.

A frame that is decoded and stored right when it arrives finds the processor's caches full of the ssh library's work,
and the next one finds them full of ours. Waiting a moment and taking those that have come in a row costs about a
tenth less at 256 nodes. What is taken in one go is bounded, so that keys and timers never wait long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

WAIT_SECONDS = 0.1
"""Longest wait of a frame; ages are counted from its arrival, not from here."""
AT_ONCE = 32


class Taker(Protocol):
    """Whoever a payload is for."""

    epoch: int
    """Changes when the connection does; what came over an earlier one is of no interest."""

    def take(self, at: float, payload: bytes) -> None:
        """One payload that arrived *at* (our monotonic clock)."""
        ...


class Inbox:
    """A queue of payloads in one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Taker, int, float, bytes]] = deque()
        self._timer: asyncio.Handle | None = None

    def put(self, taker: Taker, at: float, payload: bytes) -> None:
        """Queue a payload for *taker*."""
        self._waiting.append((taker, taker.epoch, at, payload))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._drain)

    def _drain(self) -> None:
        waiting = self._waiting
        for _ in range(min(AT_ONCE, len(waiting))):
            taker, epoch, at, payload = waiting.popleft()
            if taker.epoch == epoch:
                taker.take(at, payload)
        self._timer = asyncio.get_running_loop().call_soon(self._drain) if waiting else None
