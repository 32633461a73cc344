"""Ending a program that was started in a process group of its own, with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable


def send(group: int, number: signal.Signals) -> None:
    """Send a signal to all that is left of a group; to nobody where it has gone, or is not ours to signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


async def end(
    process: asyncio.subprocess.Process, grace_seconds: float, output: Awaitable[object] | None = None
) -> None:
    """TERM for the group of *process*, and KILL for what is left of it when that has ended or the time is over.

    *output*, if given, must have come to its end, too, for the time not to be waited out: children may hold the pipe.
    """
    send(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(grace_seconds):
            await process.wait()
            if output is not None:
                await asyncio.shield(output)
    send(process.pid, signal.SIGKILL)  # the group outlives its leader where a child of it ignored TERM
    await process.wait()
