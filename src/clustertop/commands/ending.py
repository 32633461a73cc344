"""How a command without a screen ends: its time is over, a signal, nobody reads it any more, an error."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import stat
import sys
from typing import TYPE_CHECKING, TypeVar

from clustertop.commands import output as out

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from clustertop.session import Session

Result = TypeVar("Result")


def catch(caught: Callable[[int], None]) -> Callable[[], None]:
    """Call *caught* with its number, in the loop, when a signal asks us to end; returns what lets go of them again.

    Output that waits for a reader that does not read is given up then: nothing else would end it. A SIGHUP that we
    were started to ignore (``nohup``) stays ignored.
    """
    loop = asyncio.get_running_loop()
    held = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    for number in held:
        loop.add_signal_handler(number, caught, int(number))
        # The loop learns of it all the same; this one is called where the loop itself waits.
        signal.signal(number, lambda number, frame: out.interrupt(number))

    def let_go() -> None:
        for number in held:
            loop.remove_signal_handler(number)

    return let_go


async def orderly(main: Coroutine[object, object, Result]) -> Result:
    """*main*, which a signal cancels, so that it closes what it opened. The second signal ends us at once.

    Raises:
        OutputError: with 128 and the signal's number.
    """
    task = asyncio.current_task()
    assert task is not None
    ended = 0

    def caught(number: int) -> None:
        nonlocal ended
        ended = number
        let_go()
        task.cancel()

    let_go = catch(caught)
    try:
        return await main
    except asyncio.CancelledError:
        if ended:
            raise out.OutputError(128 + ended) from None
        raise
    finally:
        let_go()


def _pipe() -> int | None:
    """The descriptor of our output where that is the writing end of a pipe."""
    try:
        number = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
    except (OSError, ValueError, AttributeError):
        return None
    return number if is_pipe and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY else None


def _closed(pipe: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))


async def until_ended(
    session: Session, seconds: float | None, stop: asyncio.Event | None = None, *, output: bool = True
) -> int:
    """Wait for *seconds* (None: for ever), a signal or *stop*; returns 0, or 128 and the signal's number.

    Where *output*, a closed output ends it too, whether or not there is anything to say, as SIGPIPE would. An error
    in the session is raised at once.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def caught(number: int) -> None:
        if not ended.done():
            ended.set_result(128 + number)

    let_go = catch(caught)
    pipe = _pipe() if output else None
    if pipe is not None:
        loop.add_reader(pipe, lambda: caught(signal.SIGPIPE) if _closed(pipe) else None)
    stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
    try:
        waited: set[asyncio.Future[object]] = {ended, session.ticking, stopping}  # type: ignore[arg-type]
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return ended.result() if ended.done() else 0
    finally:
        stopping.cancel()
        if pipe is not None:
            loop.remove_reader(pipe)
        let_go()
        ended.cancel()
