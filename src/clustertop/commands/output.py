"""What is printed arrives whole, or the command says that it did not.

Python's own streams lose the end of a long text where a write takes only a part of it (python/cpython issue 85393):
a pipe that another of its users made non-blocking, as ssh does with what it inherits; and, with PYTHONUNBUFFERED, a
process that is stopped and continued, or frozen, while its reader is slow. The exit status stays 0 then.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

_CHUNK = select.PIPE_BUF
"""A pipe that has room takes so much at once: after a poll a write of it does not block."""
FAILED = 3
"""The exit status where the output cannot be written."""


class OutputError(Exception):
    """Standard output is over: its reader is gone, it cannot be written, or a signal came while it waited.

    Attributes:
        status: the exit status that comes of it.
        words: what the operator should read; empty where there is nothing to tell.
    """

    def __init__(self, status: int, words: str = "") -> None:
        super().__init__(words)
        self.status, self.words = status, words


class _Whole(io.RawIOBase):
    """Writes all of what it is given to a descriptor, or raises OutputError; then it drops what still comes.

    A *quiet* one, for notes, drops what cannot be written and raises nothing: what is watched goes on.
    """

    def __init__(self, number: int, *, quiet: bool = False) -> None:
        self._number, self._quiet = number, quiet
        self._poll = select.poll()
        self._poll.register(number, select.POLLOUT)
        self.writing = self.over = False

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        if not self.over:
            try:
                self.writing = True
                self._all(view)
            except BaseException as error:  # also a KeyboardInterrupt while it waited
                if not (self._quiet and isinstance(error, OutputError)):
                    self.over = True
                    raise
            finally:
                self.writing = False
        return len(view)

    def _all(self, left: memoryview) -> None:
        try:
            while left:
                self._poll.poll()
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self._number, left[:_CHUNK]) :]
        except BrokenPipeError:
            raise OutputError(128 + signal.SIGPIPE) from None
        except OSError as error:
            raise OutputError(FAILED, f"the output cannot be written: {error.strerror}") from None


def interrupt(number: int) -> None:
    """For the handler of signal *number*: give up what waits for a reader that does not read.

    Raises:
        OutputError: in the midst of such a write.
    """
    for stream in (sys.stdout, sys.stderr):
        raw = getattr(getattr(stream, "buffer", None), "raw", None)
        if isinstance(raw, _Whole) and raw.writing:
            raise OutputError(128 + number)


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Within it the process's own standard output is whole or raises OutputError; notes on stderr never raise.

    Streams that a test or an embedder put in their place stay as they are, but for what they cannot encode.
    """
    _hold_the_first_three()
    before = sys.stdout, sys.stderr
    made = []
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None or stream is getattr(sys, f"__{name}__"):
            raw = _Whole(number if stream is None else stream.fileno(), quiet=number == 2)
            at_once = number == 2 or (stream is not None and (stream.line_buffering or stream.write_through))
            made.append(io.TextIOWrapper(
                io.BufferedWriter(raw), "utf-8" if stream is None else stream.encoding, "replace",
                line_buffering=at_once))
            setattr(sys, name, made[-1])
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        with contextlib.ExitStack() as flushed:
            for stream in made:
                flushed.callback(stream.flush)


def _hold_the_first_three() -> None:
    """Whoever starts us with a closed 0, 1 or 2: a connection must not get its number, and libuv dies of that.

    Printing fails as it should (1 can only be read); nobody wants the notes.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
