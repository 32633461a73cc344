"""The terminal is given back as it was, whatever ends the console."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import select
import signal
import sys
import termios
import threading
import traceback
from typing import TYPE_CHECKING

from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

MOUSE_OFF = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
MOUSE_ON = "\x1b[?1000h\x1b[?1003h\x1b[?1015h\x1b[?1006h"
_MODES_OFF = (
    MOUSE_OFF
    + "\x1b[?2004l"  # bracketed paste
    + "\x1b[?1004l"  # focus events
    + "\x1b[?2026l"  # synchronised output: a frame that was cut short would hold the screen back
    + "\x1b[?2048l"  # resize reports
    + "\x1b[<u"  # kitty keyboard protocol
    + "\x1b[?25h\x1b[0m"
)
_ALTERNATE_OFF = "\x1b[?1049l"
ENDED = "The console ended by a fault of its own, above; nodes and devices are untouched. Please report these lines."
GRACE_SECONDS = 1.8
"""After a signal, what is left for closing connections before the process ends all the same."""


def last_words(error: BaseException | None) -> str:
    """What is left on the terminal where the console ended by a fault of its own: the trace, as plain lines."""
    trace = "" if error is None else "".join(traceback.format_exception(error))
    return "\n".join([*(clean(line) for line in trace.splitlines()), "", ENDED])


class Guard:
    """Holds the terminal's settings and gives them back.

    Use as a context manager around ``App.run_async()``. The reset is registered before any mode is switched on.

    Args:
        on_end: called in the event loop with an exit status when a signal or the loss of the terminal ends us.
    """

    def __init__(self, on_end: Callable[[int], None]) -> None:
        self._on_end = on_end
        self._saved: list[object] | None = None
        self._clean = False
        self._done = False
        self._ending = False
        self._handled: list[int] = []
        self._out = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
        if not os.isatty(self._out) and os.isatty(1):
            self._out = 1

    def __enter__(self) -> Guard:
        with contextlib.suppress(termios.error, OSError, ValueError):
            self._saved = termios.tcgetattr(0)
        atexit.register(self.restore)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            # Outside the main thread (some embedders, some tests) there are no signals to handle.
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self.end, 128 + number)
                self._handled.append(number)
        return self

    def left(self) -> None:
        """The app has left application mode by itself: the alternate screen is already gone."""
        self._clean = True

    def end(self, status: int) -> None:
        """End the console with *status*; if that takes longer than the grace, end the process."""
        if not self._ending:
            self._ending = True
            timer = threading.Timer(GRACE_SECONDS, self._end_now, (status,))
            timer.daemon = True
            timer.start()
        self._on_end(status)

    def _end_now(self, status: int) -> None:
        self._clean = False
        self.restore()
        os._exit(status)

    def restore(self) -> None:
        """Reset every mode that the console may have switched on. May be called at any time, and twice."""
        if self._done:
            return
        self._done = True
        if os.isatty(self._out):
            # Leaving the alternate screen twice would put the cursor back over what was printed since.
            text = _MODES_OFF if self._clean else _MODES_OFF + _ALTERNATE_OFF
            with contextlib.suppress(OSError):
                os.set_blocking(self._out, False)
                os.write(self._out, text.encode("ascii"))
            with contextlib.suppress(OSError):
                os.set_blocking(self._out, True)
        if self._saved is not None:
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(0, termios.TCSANOW, self._saved)  # type: ignore[arg-type]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in self._handled:
            loop.remove_signal_handler(number)
        self.restore()
        atexit.unregister(self.restore)


def end_input(driver: object) -> None:
    """End the thread that reads keys, where the app did not come to do so.

    It would hold the process for ever, and on a terminal that is gone it reads nothing without end.
    """
    thread, over = getattr(driver, "_key_thread", None), getattr(driver, "exit_event", None)
    if isinstance(thread, threading.Thread) and isinstance(over, threading.Event) and thread.is_alive():
        over.set()
        thread.join(GRACE_SECONDS)


def lost(fd: int = 0) -> bool:
    """Whether the terminal behind *fd* has gone away. A plain file or a pipe that has data is not lost."""
    poll = select.poll()
    try:
        poll.register(fd, 0)
        return any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return True
