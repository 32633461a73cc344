"""How a command without a screen ends: after its time, on a signal, or by an error of its session."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustertop.session import Session

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_ended(session: Session, seconds: float | None) -> int:
    """Wait for *seconds* (None: for ever) or a signal; returns 0, or 128 and the signal's number.

    An error in the session, for example a closed output, is raised at once.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def caught(number: int) -> None:
        if not ended.done():
            ended.set_result(128 + number)

    for number in SIGNALS:
        loop.add_signal_handler(number, caught, int(number))
    try:
        waited: set[asyncio.Future[object]] = {ended, session.ticking}  # type: ignore[arg-type]
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return ended.result() if ended.done() else 0
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        ended.cancel()
