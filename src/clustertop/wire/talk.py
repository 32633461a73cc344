"""The conversation with one probe, whatever carries its bytes: launcher, ready, bundle, payloads, end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from clustertop.model import LinkState
from clustertop.text import clean
from clustertop.wire import bundle, messages
from clustertop.wire.framer import Framer
from clustertop.wire.shprobe import ShProbe
from clustertop.wire.transport import Ending, LinkFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from clustertop.wire.transport import PollSettings, Receiver


class Talk:
    """One run of a probe.

    Args:
        settings: what the probe is to do.
        receiver: gets payloads and noise.
        body: compressed modules to run; None: the probe's own.
        candidates: where a Python is looked for.
        more: arguments of this node's probe beside the settings: ``per_poll``, ``released``.
    """

    def __init__(
        self,
        settings: PollSettings,
        receiver: Receiver,
        body: bytes | None = None,
        candidates: Iterable[str] = bundle.CANDIDATES,
        more: Mapping[str, object] | None = None,
    ) -> None:
        self.nonce = bundle.new_nonce()
        self.python = ""
        """The version that the node's Python gave."""
        self.ending = Ending()
        self._settings = settings
        self._receiver = receiver
        self._sh: ShProbe | None = None
        self._write: Callable[[bytes], None] | None = None
        self._body = body
        self._candidates = candidates
        self._more = dict(more or {})
        self._framer = Framer(self.nonce, self._on_first, self._on_word, receiver.on_noise)
        self.feed = self._framer.feed
        """Takes the next bytes of the probe's stdout."""
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[LinkFailure] = loop.create_future()

    def begin(self, write: Callable[[bytes], None]) -> None:
        """Send the launcher; *write* sends bytes to the node, from here on."""
        self._write = write
        write(bundle.launcher(self.nonce, self._candidates))

    def request(self, request: Mapping[str, object]) -> None:
        """Send one request; dropped before the probe is ready and after its end."""
        if self._write is None or self.ended.done():
            return
        if self._sh is not None:
            self._sh.request(request)
        elif self.python:
            self._write(bundle.request_line(request))

    def finish(self, lost: str = "") -> None:
        """The stream is over; *lost* says why the connection itself is, if it is."""
        if self.ended.done():
            return
        self._framer.close()
        stage = "frames" if self._running else "probe"
        if lost:
            failure = LinkFailure(LinkState.UNREACHABLE, stage, lost)
        else:
            what = "the probe ended" if self._running else "the login shell ended before the probe was ready"
            failure = LinkFailure(LinkState.PROBE_FAILED, stage, self.ending.words(what))
        self._fail(failure)

    def stop(self) -> None:
        """We let go of it: what comes after this is no failure."""
        self._fail(LinkFailure(LinkState.CLOSED, "frames" if self._running else "probe", "closed by us"))

    @property
    def _running(self) -> bool:
        return bool(self.python) or (self._sh is not None and self.ready.done())

    def _fail(self, failure: LinkFailure) -> None:
        if self._sh is not None:
            self._sh.stop()
        if not self.ended.done():
            self.ended.set_result(failure)
        if not self.ready.done():
            self.ready.set_exception(failure)
            self.ready.exception()  # it may have no waiter any more, which is no news then

    def _on_first(self, payload: bytes) -> None:
        """The first frame is here: what is not needed for it may follow now."""
        self._framer.redirect(self._receiver.on_payload)
        self._receiver.on_payload(payload)
        # Below another root the kernel's own word is about this machine, not about that one.
        if self._body is None and not self._settings.root and messages.fits(self.python):
            body = messages.request()
            if body is not None:
                self.request(body)

    def _on_word(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word == b"ready" and not self.python and self._write is not None:
            self.python = clean(rest, 40) or "?"
            args = {**bundle.probe_args(self._settings, self.nonce), **self._more}
            self._write(bundle.bundle(args, self._body))
            if not self.ready.done():
                self.ready.set_result(None)
        elif word == b"nopython" and self._sh is None and self._write is not None:
            # The shell has read the launcher to its end and waits for the next command: that is the other probe.
            self._sh = ShProbe(self._settings, self.nonce, self._write, self._receiver.on_payload,
                               self._more.get("released"))
            self._framer.redirect(self._sh.on_payload)
            self._sh.send_script()
        elif word == b"shready" and self._sh is not None and not self.ended.done():
            self._sh.start()
            if not self.ready.done():
                self.ready.set_result(None)
        elif word == b"failed":
            self.ending.failed = clean(rest, 300)
