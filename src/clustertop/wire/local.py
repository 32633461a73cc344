"""This machine, without SSH: the same launcher, loader and bundle over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from clustertop.model import LinkState
from clustertop.wire import bundle
from clustertop.wire.talk import Talk
from clustertop.wire.transport import CLOSE_SECONDS, LinkFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from clustertop.wire.transport import PollSettings, Receiver


class LocalTransport:
    """The probe as a child of this process. See :class:`clustertop.wire.transport.Transport`.

    The child ends by itself when its stdin closes, so also when this process dies. It is asked to end by TERM
    if that takes long, and is never killed harder: it may be inside the NVIDIA driver.
    """

    def __init__(
        self,
        settings: PollSettings,
        receiver: Receiver,
        started: Callable[[], None] | None = None,
        body: bytes | None = None,
        candidates: Iterable[str] | None = None,
    ) -> None:
        self._settings = settings
        self._receiver = receiver
        self._started = started
        self._body = body
        if candidates is None:
            candidates = (shlex.quote(sys.executable), *bundle.CANDIDATES)
        self._candidates = tuple(candidates)
        self.more: Mapping[str, object] = {}
        self.via = ""
        self._run: _Run | None = None

    async def open(self) -> None:
        """Start the child and return once its probe is ready. Raises LinkFailure."""
        await self.close()
        if self._started is not None:
            self._started()
        talk = Talk(self._settings, self._receiver, self._body, self._candidates, self.more)
        limit = self._settings.start_timeout_seconds
        try:
            async with asyncio.timeout(limit):
                self._run = await _Run.spawn(talk)
                talk.begin(self._run.write)
                await talk.ready
        except TimeoutError:
            await self.close()
            reason = f"start timeout: no answer from Python within {limit:g} s"
            raise LinkFailure(LinkState.PROBE_FAILED, "probe", reason) from None
        except OSError as error:
            await self.close()
            raise LinkFailure(LinkState.PROBE_FAILED, "channel", f"/bin/sh: {error}") from None
        except LinkFailure:
            await self.close()
            raise

    async def wait_closed(self) -> LinkFailure:
        """Return why the probe ended, once it has."""
        if self._run is None:
            return LinkFailure(LinkState.CLOSED, "channel", "no probe was started")
        return await asyncio.shield(self._run.talk.ended)

    def send(self, request: Mapping[str, object]) -> None:
        """Send one request to the probe; dropped while there is none."""
        if self._run is not None:
            self._run.talk.request(request)

    async def close(self) -> None:
        """Let the child end; TERM after half of ``CLOSE_SECONDS``."""
        run, self._run = self._run, None
        if run is not None:
            await run.close()


class _Run:
    """One child process and its three pipes."""

    def __init__(self, talk: Talk, process: subprocess.Popen[bytes]) -> None:
        self.talk = talk
        self._process = process
        self._stdin: asyncio.WriteTransport | None = None
        self._readers: list[asyncio.ReadTransport] = []
        loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = loop.create_future()
        self._open_pipes = 2

    @classmethod
    async def spawn(cls, talk: Talk) -> _Run:
        """Start the shell and connect its pipes. Raises OSError."""
        loop = asyncio.get_running_loop()
        pipe = subprocess.PIPE
        # Its own session: a Ctrl-C at our terminal is ours to handle.
        # Not asyncio's own: that one hard-kills the child when its transport is closed.
        process = subprocess.Popen(  # noqa: ASYNC220 - a fork is short
            ["/bin/sh"], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
        self = cls(talk, process)
        threading.Thread(target=self._reap, args=(loop,), daemon=True, name="probe child").start()
        try:
            self._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
            for stream, sink in ((process.stdout, talk.feed), (process.stderr, talk.ending.add_stderr)):
                reader, _ = await loop.connect_read_pipe(_reader(sink, self._pipe_closed), stream)
                self._readers.append(reader)
        except BaseException:
            self._close_pipes()
            raise
        return self

    def write(self, data: bytes) -> None:
        """Send *data* to the child's stdin; dropped once that is closed."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)

    async def close(self) -> None:
        """Close the pipes; TERM after half the time allowed; then leave it to end by itself."""
        self.talk.stop()
        if self._stdin is not None:
            self._stdin.close()
        for step in (None, self._process.terminate):
            if step is not None:
                step()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS / 2):
                    await asyncio.shield(self._exited)
                break
        self._close_pipes()

    def _close_pipes(self) -> None:
        for transport in (self._stdin, *self._readers):
            if transport is not None:
                transport.close()
        process = self._process
        for stream in (process.stdin, process.stdout, process.stderr)[len(self._readers) + 1 :]:
            if stream is not None:
                stream.close()

    def _pipe_closed(self) -> None:
        self._open_pipes -= 1
        self._finish()

    def _finish(self) -> None:
        if self._open_pipes <= 0 and self._exited.done():
            self.talk.ending.status = self._exited.result()
            self.talk.finish()

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        status = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(self._on_exit, status)

    def _on_exit(self, status: int) -> None:
        if not self._exited.done():
            self._exited.set_result(status)
        self._finish()


def _reader(sink: Callable[[bytes], None], closed: Callable[[], None]) -> Callable[[], asyncio.Protocol]:
    class Reader(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            sink(data)

        def connection_lost(self, exc: Exception | None) -> None:
            closed()

    return Reader
