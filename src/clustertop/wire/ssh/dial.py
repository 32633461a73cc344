"""Making SSH connections: paced, with the stage reached, jump hosts shared, every outcome a link state."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh

from clustertop.model import LinkState
from clustertop.wire.pace import Gate, Lookup, connect_tcp
from clustertop.wire.ssh.route import KnownHosts, Route, expected_keys, find_route
from clustertop.wire.transport import CLOSE_SECONDS, LinkFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from clustertop.wire.transport import PollSettings

_DEFAULTS = str(Path(__file__).with_name("ssh_config"))
JUMP_REST_SECONDS = 1.0
"""A jump host that just failed is not tried again for this long, however many nodes are behind it."""
REFUSED = frozenset({LinkState.AUTH_FAILED, LinkState.HOST_KEY_UNKNOWN, LinkState.HOST_KEY_CHANGED})
"""States that only the operator can mend: trying again soon is of no use, and may lock an account."""
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


class Owner(asyncssh.SSHClient):
    """What asyncssh tells about one connection attempt."""

    def __init__(self) -> None:
        self.conn: asyncssh.SSHClientConnection | None = None
        self.offered: asyncssh.SSHKey | None = None
        """A host key that is not in the known hosts."""
        self.peer = ""
        self.logged_in = False
        self.lost = False
        self.why_lost: Exception | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.conn = conn

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        self.peer = addr
        return False

    validate_host_ca_key = validate_host_public_key

    def auth_completed(self) -> None:
        self.logged_in = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.why_lost = exc

    @property
    def stage(self) -> str:
        """How far it came."""
        if self.conn is None:
            return "tcp"
        if self.logged_in:
            return "channel"
        if self.conn.get_server_host_key() is not None:
            return "login"
        return "kex" if self.conn.get_extra_info("server_version") else "banner"


class Dialer:
    """Makes the connections of one fleet: pacing, known hosts and jump hosts are shared by all of them."""

    def __init__(self, settings: PollSettings) -> None:
        self.settings = settings
        self._gate = Gate(settings.handshakes_at_once, settings.handshakes_per_host)
        self._lookup = Lookup()
        self._known = KnownHosts()
        self._jumps: dict[str, _Jump] = {}
        self._vias: dict[tuple[str, str, int], str] = {}

    async def dial(
        self,
        target: str,
        user: str = "",
        port: int = 0,
        *,
        started: Callable[[], None] | None = None,
        slow: bool = False,
        chain: tuple[str, ...] = (),
    ) -> tuple[asyncssh.SSHClientConnection, Owner]:
        """Return a connection that is logged in.

        Args:
            target: what ssh would be given.
            user: login name; empty: as configured.
            port: TCP port; 0: as configured.
            started: called when its turn has come and the clock starts.
            slow: it timed out last time; see :class:`Gate`.
            chain: the jump hosts that wait for this one.

        Raises:
            LinkFailure: with the state, the stage reached and the reason.
        """
        settings = self.settings
        try:
            async with asyncio.timeout(settings.connect_timeout_seconds):
                route = await asyncio.to_thread(find_route, target, user, port, settings)
        except TimeoutError:
            raise LinkFailure(
                LinkState.UNREACHABLE, "name", "the ssh configuration took too long to evaluate (Match exec?)"
            ) from None
        through = "" if route.jump == "none" else route.jump
        self._vias[target, user, port] = ",".join(hop.rpartition("@")[2] for hop in through.split(","))
        if through:
            return await self._through_jump(route, started, slow, chain)
        async with self._gate.host(route.address, slow=slow):
            if started is not None:
                started()
            return await self._direct(route, slow)

    def via(self, target: str, user: str = "", port: int = 0) -> str:
        """The jump hosts by which *target* was last dialled, without users; empty: none, or it was not dialled yet."""
        return self._vias.get((target, user, port), "")

    async def _direct(self, route: Route, slow: bool) -> tuple[asyncssh.SSHClientConnection, Owner]:
        if route.own_connect:
            async with self._gate.handshake(slow=slow):
                return await self._login(route, None, None, self.settings.connect_timeout_seconds)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        stage = "name"
        limit = self.settings.connect_timeout_seconds
        try:
            async with asyncio.timeout(limit):
                addresses = await self._lookup.find(route.host, route.port, route.family)
                stage = "tcp"
                sock = await connect_tcp(addresses)
        except TimeoutError as error:
            # A TCP stack that gives up by itself (ETIMEDOUT) ends here too.
            raise _timed_out(stage, limit, route) from error
        except socket.gaierror as error:
            reason = f"name lookup of {route.host} failed: {error.strerror or error}"
            raise LinkFailure(LinkState.UNREACHABLE, "name", reason) from None
        except OSError as error:
            raise _unreachable(error, route) from None
        left = limit - (loop.time() - begun)
        owner = Owner()
        try:
            async with self._gate.handshake(slow=slow):
                return await self._login(route, sock, None, left, owner)
        except BaseException:
            if owner.conn is None:
                sock.close()
            raise

    async def _login(
        self,
        route: Route,
        sock: socket.socket | None,
        tunnel: asyncssh.SSHClientConnection | None,
        seconds: float,
        owner: Owner | None = None,
    ) -> tuple[asyncssh.SSHClientConnection, Owner]:
        settings = self.settings
        if owner is None:
            owner = Owner()
        known = self._known.load(route.known_hosts) if settings.check_host_keys else None
        options: dict[str, object] = {}
        if settings.client_keys:
            options["client_keys"] = list(route.key_files)
        if not settings.agent:
            options["agent_path"] = None
        if tunnel is not None or sock is not None:
            options["proxy_command"] = None
        try:
            async with asyncio.timeout(seconds):
                conn = await asyncssh.connect(
                    route.target,
                    route.port,
                    username=route.user,
                    config=[*route.configs, _DEFAULTS],
                    sock=sock,
                    tunnel=tunnel,
                    client_factory=lambda: owner,
                    known_hosts=known,
                    keepalive_interval=settings.keepalive_seconds,
                    keepalive_count_max=settings.keepalive_count,
                    connect_timeout=None,
                    **options,
                )
        except TimeoutError as error:
            raise _timed_out(owner.stage, settings.connect_timeout_seconds, route) from error
        except (OSError, asyncssh.Error, ValueError) as error:
            raise await self._failure(error, owner, route, known) from None
        return conn, owner

    async def _through_jump(
        self, route: Route, started: Callable[[], None] | None, slow: bool, chain: tuple[str, ...]
    ) -> tuple[asyncssh.SSHClientConnection, Owner]:
        # The jump host's connection comes first: waiting for it must not hold a place that it needs itself.
        # The limit is generous, since it may be the turn of others; every attempt has its own deadline.
        limit = 3 * self.settings.connect_timeout_seconds
        try:
            async with asyncio.timeout(limit):
                tunnel = await self._jump(route.jump, chain)
        except TimeoutError as error:
            reason = f"jump host {route.jump}: not reached within {limit:g} s"
            raise LinkFailure(LinkState.UNREACHABLE, "tcp", reason) from error
        async with self._gate.host("jump " + route.jump, slow=slow), self._gate.handshake(slow=slow):
            if started is not None:
                started()
            return await self._login(route, None, tunnel, self.settings.connect_timeout_seconds)

    async def _jump(self, hops: str, chain: tuple[str, ...]) -> asyncssh.SSHClientConnection:
        if hops in chain:
            reason = f"the jump host {hops} is configured to be reached through itself"
            raise LinkFailure(LinkState.UNREACHABLE, "name", reason)
        chain = (*chain, hops)
        jump = self._jumps.get(hops)
        if jump is None:
            jump = self._jumps[hops] = _Jump()
        async with jump.lock:
            if jump.conn is not None and not jump.conn.is_closed():
                return jump.conn
            now = asyncio.get_running_loop().time()
            if jump.failure is not None and now < jump.not_before:
                raise _again(jump.failure)
            before, _, last = hops.rpartition(",")
            user, host, port = _split_hop(last)
            try:
                if before:
                    tunnel = await self._jump(before, chain)
                    route = await asyncio.to_thread(find_route, host, user, port, self.settings)
                    conn, _ = await self._login(route, None, tunnel, self.settings.connect_timeout_seconds)
                else:
                    conn, _ = await self.dial(host, user, port, chain=chain)
            except LinkFailure as failure:
                refused = failure.state in REFUSED
                rest = self.settings.refused_retry_seconds if refused else JUMP_REST_SECONDS
                jump.not_before = asyncio.get_running_loop().time() + rest
                reason = f"jump host {last}: {failure.reason}"
                jump.failure = LinkFailure(failure.state, failure.stage, reason)
                raise _again(jump.failure) from None
            jump.conn, jump.failure = conn, None
            return conn

    def forget_failures(self) -> None:
        """The operator asks to try again now: failed jump hosts need not rest any longer."""
        for jump in self._jumps.values():
            jump.not_before = 0.0

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Let go of the jump hosts within *seconds*."""
        conns = [jump.conn for jump in self._jumps.values() if jump.conn is not None]
        self._jumps.clear()
        await asyncio.gather(*(let_go(conn, seconds) for conn in conns))

    async def _failure(
        self, error: Exception, owner: Owner, route: Route, known: asyncssh.SSHKnownHosts | None
    ) -> LinkFailure:
        stage = owner.stage
        who = f"{route.user}@{route.target}"
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return _host_key_failure(error, owner, route, known, self.settings)
        if isinstance(error, asyncssh.PermissionDenied):
            keys = await self._count_keys(route)
            offered = f"none of {keys} keys fits" if keys else "no key was found to offer"
            return LinkFailure(LinkState.AUTH_FAILED, "login", f"{who}: permission denied, {offered}")
        if isinstance(error, asyncssh.DisconnectError) and "Too many auth" in error.reason:
            keys = await self._count_keys(route)
            reason = f"too many keys offered ({keys}); name one with IdentityFile and IdentitiesOnly"
            return LinkFailure(LinkState.AUTH_FAILED, "login", reason)
        if isinstance(error, asyncssh.KeyExchangeFailed):
            if "host key" in error.reason.lower():
                reason = f"{route.address} offers no host key of the types in the known hosts: {error.reason}"
                return LinkFailure(LinkState.HOST_KEY_UNKNOWN, "kex", reason)
            return LinkFailure(LinkState.UNREACHABLE, "kex", f"no common algorithm: {error.reason}")
        if isinstance(error, asyncssh.ChannelOpenError):
            reason = f"jump host {route.jump} could not reach {route.address}: {error.reason}"
            return LinkFailure(LinkState.UNREACHABLE, "tcp", reason)
        if owner.conn is not None and isinstance(error, (asyncssh.ConnectionLost, ConnectionError)):
            reason = f"{route.address} closed the connection before login (sshd MaxStartups?)"
            return LinkFailure(LinkState.BUSY, stage, reason)
        if isinstance(error, asyncssh.KeyImportError):
            return LinkFailure(LinkState.AUTH_FAILED, "login", f"key file: {error}")
        if isinstance(error, OSError):
            return _unreachable(error, route)
        if isinstance(error, asyncssh.Error):
            return LinkFailure(LinkState.UNREACHABLE, stage, f"{route.address}: {error.reason}")
        return LinkFailure(LinkState.UNREACHABLE, stage, f"ssh settings for {route.target}: {error}")

    async def _count_keys(self, route: Route) -> int:
        """How many keys there are to offer: those of the agent, and key files."""
        count = 0
        if self.settings.agent:
            try:
                async with asyncio.timeout(CLOSE_SECONDS), asyncssh.connect_agent(route.agent or "") as agent:
                    count = len(await agent.get_keys())
            except (OSError, asyncssh.Error, ValueError):
                count = 0
        if route.key_files:
            return max(count, len(route.key_files))
        return count + sum((Path.home() / ".ssh" / name).is_file() for name in DEFAULT_KEYS)


def _again(failure: LinkFailure) -> LinkFailure:
    # A new one for each waiter: an exception raised again and again keeps every traceback.
    return LinkFailure(failure.state, failure.stage, failure.reason)


class _Jump:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.conn: asyncssh.SSHClientConnection | None = None
        self.failure: LinkFailure | None = None
        self.not_before = 0.0


async def let_go(conn: asyncssh.SSHClientConnection, seconds: float = CLOSE_SECONDS) -> None:
    """Close *conn*, and abort it if that takes longer than *seconds*."""
    conn.close()
    try:
        async with asyncio.timeout(seconds):
            await conn.wait_closed()
    except TimeoutError:
        conn.abort()
    except (OSError, asyncssh.Error):
        pass


def _split_hop(hop: str) -> tuple[str, str, int]:
    user, _, rest = hop.strip().rpartition("@")
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    else:
        host, port = rest, ""
    return user, host, int(port) if port.isdecimal() else 0


def _timed_out(stage: str, seconds: float, route: Route) -> LinkFailure:
    what = {
        "name": f"name lookup of {route.host}",
        "tcp": f"TCP connection to {route.address}",
        "banner": f"ssh banner of {route.address} (it accepts and says nothing)",
        "kex": f"key exchange with {route.address}",
        "login": f"login as {route.user}@{route.target}",
    }.get(stage, stage)
    return LinkFailure(LinkState.UNREACHABLE, stage, f"connect timeout: no {what} within {seconds:g} s")


def _unreachable(error: OSError, route: Route) -> LinkFailure:
    # asyncio puts its own words into the error; the operator knows those of the operating system.
    text = str(error) if error.errno is None else os.strerror(error.errno)
    return LinkFailure(LinkState.UNREACHABLE, "tcp", f"{route.address}: {text}")


def _host_key_failure(
    error: asyncssh.HostKeyNotVerifiable,
    owner: Owner,
    route: Route,
    known: asyncssh.SSHKnownHosts | None,
    settings: PollSettings,
) -> LinkFailure:
    key = owner.offered
    if key is None or known is None:
        # Revoked, a certificate that is not valid (any more), or bytes that are no key.
        return LinkFailure(LinkState.HOST_KEY_CHANGED, "kex", f"{route.address}: {error.reason}")
    name = key.get_algorithm()
    print_ = key.get_fingerprint()
    if expected_keys(known, route.alias or route.host, owner.peer, route.port):
        reason = (
            f"HOST KEY CHANGED: {route.address} offers {name} {print_}, "
            f"the known hosts have another key. If that is right: ssh-keygen -R "
            f"{_known_name(route)}, then {route.ssh_command(settings)}"
        )
        return LinkFailure(LinkState.HOST_KEY_CHANGED, "kex", reason)
    reason = f"unknown host key {print_} ({name}); to compare and accept it: {route.ssh_command(settings)}"
    return LinkFailure(LinkState.HOST_KEY_UNKNOWN, "kex", reason)


def _known_name(route: Route) -> str:
    name = route.alias or route.host
    return name if route.port == 22 else f"'[{name}]:{route.port}'"
