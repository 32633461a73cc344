"""A node over SSH: one connection, one channel, no terminal, bytes in both directions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncssh

from clustertop.model import LinkState
from clustertop.wire import bundle
from clustertop.wire.ssh.dial import let_go
from clustertop.wire.talk import Talk
from clustertop.wire.transport import LinkFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from clustertop.model import NodeInfo
    from clustertop.wire.ssh.dial import Dialer
    from clustertop.wire.transport import Receiver


class SshTransport:
    """The probe of one node over SSH. See :class:`clustertop.wire.transport.Transport`.

    A connection that is still alive when its probe ended, or when sshd would not open a channel, is used
    again by the next :meth:`open`.

    Args:
        node: whom to reach.
        dialer: shared by all nodes of a fleet.
        receiver: gets payloads and noise.
        started: called when this node's turn to connect has come.
        body: compressed modules to run; None: the probe's own.
        candidates: where a Python is looked for.
    """

    def __init__(
        self,
        node: NodeInfo,
        dialer: Dialer,
        receiver: Receiver,
        started: Callable[[], None] | None = None,
        body: bytes | None = None,
        candidates: Iterable[str] = bundle.CANDIDATES,
    ) -> None:
        self._node = node
        self._dialer = dialer
        self._receiver = receiver
        self._started = started
        self._body = body
        self._candidates = tuple(candidates)
        self._conn: asyncssh.SSHClientConnection | None = None
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._talk: Talk | None = None
        self.more: Mapping[str, object] = {}
        self.via = ""
        self._slow = False

    async def open(self) -> None:
        """Connect if needed, start a probe, return once it is ready. Raises LinkFailure."""
        settings = self._dialer.settings
        loop = asyncio.get_running_loop()
        begun = loop.time()

        def turn() -> None:
            nonlocal begun
            begun = loop.time()
            if self._started is not None:
                self._started()

        if self._conn is not None and self._conn.is_closed():
            await self.close()
        if self._conn is None:
            node = self._node
            try:
                self._conn, _ = await self._dialer.dial(
                    node.target, node.user, node.port, started=turn, slow=self._slow
                )
            except LinkFailure as failure:
                self._slow = failure.reason.startswith("connect timeout")
                raise
            finally:
                self.via = self._dialer.via(node.target, node.user, node.port)
            self._slow = False
        else:
            turn()
        left = max(1.0, settings.start_timeout_seconds - (loop.time() - begun))
        stage = "channel"
        try:
            async with asyncio.timeout(left):
                talk = await self._open_channel(self._conn)
                stage = "probe"
                await talk.ready
        except TimeoutError:
            await self.close()
            what = "session channel" if stage == "channel" else "answer from the node's shell or Python"
            reason = f"start timeout: logged in, but no {what} within {settings.start_timeout_seconds:g} s"
            raise LinkFailure(LinkState.PROBE_FAILED, stage, reason) from None
        except LinkFailure:
            self._close_channel()
            if self._conn.is_closed():
                await self.close()
            raise
        except asyncssh.ChannelOpenError as error:
            reason = f"sshd would not open a session (MaxSessions?): {error.reason}"
            if self._conn.is_closed():
                await self.close()
            raise LinkFailure(LinkState.PROBE_FAILED, "channel", reason) from None
        except (OSError, asyncssh.Error) as error:
            await self.close()
            reason = f"connection lost while the probe was started: {error}"
            raise LinkFailure(LinkState.UNREACHABLE, stage, reason) from None

    async def wait_closed(self) -> LinkFailure:
        """Return why the probe's channel ended, once it has."""
        if self._talk is None:
            return LinkFailure(LinkState.CLOSED, "channel", "no probe was started")
        return await asyncio.shield(self._talk.ended)

    def send(self, request: Mapping[str, object]) -> None:
        """Send one request to the probe; dropped while there is none."""
        if self._talk is not None:
            self._talk.request(request)

    async def close(self) -> None:
        """Let go of channel and connection."""
        conn, self._conn = self._conn, None
        self._close_channel()
        if conn is not None:
            await let_go(conn)

    async def _open_channel(self, conn: asyncssh.SSHClientConnection) -> Talk:
        self._close_channel()
        talk = self._talk = Talk(
            self._dialer.settings.of(self._node), self._receiver, self._body, self._candidates, self.more)
        self._channel, _ = await conn.create_session(
            lambda: _Session(talk), bundle.COMMAND, encoding=None, request_pty=False, x11_forwarding=False
        )
        talk.begin(self._channel.write)
        return talk

    def _close_channel(self) -> None:
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.stop()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


class _Session(asyncssh.SSHClientSession[bytes]):
    """Hands the channel's bytes to the talk."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._feed = talk.feed

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is None:
            self._feed(data)
        else:
            self._talk.ending.add_stderr(data)

    def exit_status_received(self, status: int) -> None:
        self._talk.ending.status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._talk.ending.add_stderr(f"killed by signal {signal}\n".encode())

    def connection_lost(self, exc: Exception | None) -> None:
        # Without an exception only the channel is gone; with one, the connection under it.
        self._talk.finish("" if exc is None else f"connection lost: {exc}")
