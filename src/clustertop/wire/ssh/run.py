"""One command on a host over SSH: no shell's syntax, no terminal, no input, a deadline, bounded output."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncssh

from clustertop.model import LinkState
from clustertop.text import clean
from clustertop.wire.ssh.dial import let_go
from clustertop.wire.transport import LinkFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.model import NodeInfo
    from clustertop.wire.ssh.dial import Dialer

MAX_OUTPUT = 64 << 20
"""Bytes kept of what a command prints, of each of its two outputs; the rest is dropped and the result says so."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where commands are looked for: sshd's own path lacks the administrator's folders for most users."""
GRACE_SECONDS = 5.0
"""How much longer than its deadline over there a command is waited for here."""
_KILL_AFTER = "2"
_TIMED_OUT, _NOT_EXECUTABLE, _NOT_FOUND, _KILLED = 124, 126, 127, 137


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    out: bytes = b""
    err: bytes = b""
    status: int | None = None
    """Exit status; None: it was stopped at its deadline, or did not start."""
    cut: bool = False
    """Whether more was printed than is kept."""
    why: str = ""
    """Why there is no status: one cleaned sentence."""


class SshRunner:
    """Runs commands on one host, one at a time, each in a channel of one connection, which stays open in between.

    The command is ended at its deadline over there by ``timeout`` (coreutils), so that it ends too where the connection
    is lost meanwhile.

    Args:
        node: the host.
        dialer: shared with others that reach hosts.
        path: folders where commands are looked for, separated by colons.
    """

    def __init__(self, node: NodeInfo, dialer: Dialer, path: str = PATH) -> None:
        self._node = node
        self._dialer = dialer
        self._path = path
        self._conn: asyncssh.SSHClientConnection | None = None
        self._turn = asyncio.Lock()
        self.failure: LinkFailure | None = None
        """Why the last command could not be started or was cut off; None: it was run."""

    async def run(self, argv: Sequence[str], seconds: float) -> Ran:
        """Run *argv* for at most *seconds* and return what it printed until then. Raises nothing for its failure."""
        async with self._turn:
            self.failure = None
            try:
                conn = await self._connection()
                return await self._run(conn, argv, seconds)
            except LinkFailure as failure:
                self.failure = failure
                return Ran(why=failure.reason)

    async def aclose(self) -> None:
        """Let go of the connection."""
        conn, self._conn = self._conn, None
        if conn is not None:
            await let_go(conn)

    async def _connection(self) -> asyncssh.SSHClientConnection:
        if self._conn is not None and self._conn.is_closed():
            self._conn = None
        if self._conn is None:
            node = self._node
            self._conn, _ = await self._dialer.dial(node.target, node.user, node.port)
        return self._conn

    async def _run(self, conn: asyncssh.SSHClientConnection, argv: Sequence[str], seconds: float) -> Ran:
        # The one contact with a shell: each argument quoted, nothing else.
        over = ["env", f"PATH={self._path}", "timeout", "-k", _KILL_AFTER, str(max(1, math.ceil(seconds)))]
        command = shlex.join([*over, *argv])
        session = _Session()
        channel = None
        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                channel, _ = await conn.create_session(
                    lambda: session, command, encoding=None, request_pty=False, x11_forwarding=False)
                channel.write_eof()
                await session.ended
        except TimeoutError:
            if channel is None:
                await self.aclose()
                raise LinkFailure(LinkState.UNREACHABLE, "channel", "no session channel in time") from None
            return session.ran(f"stopped after {seconds:g} s")
        except asyncssh.ChannelOpenError as error:
            reason = f"sshd would not open a session (MaxSessions?): {error.reason}"
            raise LinkFailure(LinkState.PROBE_FAILED, "channel", reason) from None
        except (OSError, asyncssh.Error) as error:
            await self.aclose()
            raise LinkFailure(LinkState.UNREACHABLE, "channel", f"connection lost: {error}") from None
        finally:
            if channel is not None:
                # Where it is over, this is nothing; where we are stopped, it is told to end.
                with contextlib.suppress(OSError, asyncssh.Error):
                    channel.terminate()
                channel.close()
        if session.lost is not None:
            await self.aclose()
            raise LinkFailure(LinkState.UNREACHABLE, "channel", f"connection lost: {session.lost}")
        return session.ran(_why(session, argv[0], seconds))


def _why(session: _Session, name: str, seconds: float) -> str:
    """Why there is no status that is the command's own; empty: there is one."""
    status = session.status
    if status in (_TIMED_OUT, _KILLED) or session.signal == "KILL":  # timeout dies of the signal that it sent
        return f"stopped after {seconds:g} s"
    if status in (_NOT_EXECUTABLE, _NOT_FOUND):
        said = clean(bytes(session.kept[1]).strip(), 200)
        return f"{name} cannot be run: {said}" if said else f"{name} cannot be run"
    if session.signal:
        return f"killed by signal {clean(session.signal, 20)}"
    return "it ended without a status" if status is None else ""


class _Session(asyncssh.SSHClientSession[bytes]):
    """Keeps what a command prints, up to a limit."""

    def __init__(self) -> None:
        self.kept = (bytearray(), bytearray())
        self.cut = False
        self.status: int | None = None
        self.signal = ""
        self.lost: Exception | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        buffer = self.kept[0 if datatype is None else 1]
        room = MAX_OUTPUT - len(buffer)
        buffer += data[:room]
        self.cut |= len(data) > room

    def exit_status_received(self, status: int) -> None:
        self.status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.signal = signal

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        if not self.ended.done():
            self.ended.set_result(None)

    def ran(self, why: str) -> Ran:
        """What there is; *why* says why there is no status."""
        out, err = self.kept
        return Ran(bytes(out), bytes(err), None if why else self.status, self.cut, why)
