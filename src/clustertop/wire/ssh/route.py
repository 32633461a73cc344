"""Where a target is and whom to trust there: the operator's ssh configuration and known hosts.

asyncssh reads ``~/.ssh/config`` but neither ``/etc/ssh/ssh_config`` nor the system's known hosts, does not
expand ``~`` in ``UserKnownHostsFile``, fails on known hosts files that do not exist, takes
``UserKnownHostsFile none`` for "do not check", and reads the whole file again for every connection. All that
is put right here.
"""

from __future__ import annotations

import getpass
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import asyncssh
from asyncssh.config import ConfigParseError, SSHClientConfig

from clustertop.files import read_bounded
from clustertop.model import LinkState
from clustertop.wire.transport import LinkFailure

if TYPE_CHECKING:
    from clustertop.wire.transport import PollSettings

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
MAX_KNOWN_HOSTS = 64 << 20
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one target is reached, as ssh would."""

    target: str
    """What ssh would be given."""
    host: str
    port: int
    user: str
    jump: str
    """``ProxyJump`` as configured; empty: none."""
    own_connect: bool
    """True: asyncssh makes the TCP connection itself (ProxyCommand, BindAddress, canonical names)."""
    family: int
    alias: str
    """``HostKeyAlias``; empty: none."""
    configs: tuple[str, ...]
    known_hosts: tuple[str, ...]
    key_files: tuple[str, ...]
    """Key files named for this target; empty: the default ones."""
    agent: str | None
    """``IdentityAgent`` where one is set."""

    @property
    def address(self) -> str:
        """The address as a pacing key and for messages."""
        return f"{self.host}:{self.port}"

    def ssh_command(self, settings: PollSettings) -> str:
        """Return the ssh command by which the operator reaches this target, ready to paste."""
        words = ["ssh"]
        if settings.ssh_config:
            words += ["-F", settings.ssh_config]
        if settings.known_hosts:
            words += ["-o", f"UserKnownHostsFile={settings.known_hosts}"]
        if self.port != 22:
            words += ["-p", str(self.port)]
        words += [f"{self.user}@{self.target}", "true"]
        return shlex.join(words)


def find_route(target: str, user: str, port: int, settings: PollSettings) -> Route:
    """Return the route to *target*. Reads files and may run ``Match exec`` commands: call it on a thread.

    Raises:
        LinkFailure: the ssh configuration cannot be read.
    """
    user_config = Path(settings.ssh_config or "~/.ssh/config").expanduser()
    configs = [user_config] if settings.ssh_config or user_config.is_file() else []
    if not settings.ssh_config and SYSTEM_CONFIG.is_file():
        configs.append(SYSTEM_CONFIG)
    try:
        config = _load(configs, target, user, port)
    except (ValueError, OSError) as error:
        if SYSTEM_CONFIG not in configs or str(SYSTEM_CONFIG.parent) not in str(error):
            raise LinkFailure(LinkState.UNREACHABLE, "name", f"ssh configuration: {error}") from None
        # The operator's own file matters more than what this reader cannot make of the system's.
        configs.remove(SYSTEM_CONFIG)
        try:
            config = _load(configs, target, user, port)
        except (ValueError, OSError) as second:
            raise LinkFailure(LinkState.UNREACHABLE, "name", f"ssh configuration: {second}") from None
    host = str(config.get("Hostname") or target)
    return Route(
        target=target,
        host=host,
        port=cast("int", config.get("Port") or 22),
        user=str(config.get("User") or settings.user or getpass.getuser()),
        jump=str(config.get("ProxyJump") or ""),
        own_connect=bool(
            config.get("ProxyCommand") or config.get("BindAddress") or config.get("CanonicalizeHostname")
        ),
        family=int(cast("int", config.get("AddressFamily") or 0)),
        alias=str(config.get("HostKeyAlias") or ""),
        configs=tuple(map(str, configs)),
        known_hosts=_known_hosts_files(config, settings, host, user),
        key_files=tuple(
            str(Path(name).expanduser())
            for name in settings.client_keys or cast("list[str]", config.get("IdentityFile") or ())
        ),
        agent=cast("str | None", config.get("IdentityAgent")),
    )


def _load(configs: list[Path], target: str, user: str, port: int) -> SSHClientConfig:
    # asyncssh writes "not given" as an empty tuple, which its annotations do not say.
    nothing = cast("str", ())
    try:
        loaded = SSHClientConfig.load(
            None, [str(path) for path in configs], False, False, False,
            getpass.getuser(), user or nothing, target, port or nothing,
        )  # fmt: skip
    except ConfigParseError as error:
        raise ValueError(str(error)) from None
    return cast("SSHClientConfig", loaded)


def _known_hosts_files(
    config: SSHClientConfig, settings: PollSettings, host: str, user: str
) -> tuple[str, ...]:
    if settings.known_hosts:
        return (str(Path(settings.known_hosts).expanduser()),)
    own = cast("list[str] | None", config.get("UserKnownHostsFile"))
    system = cast("list[str] | None", config.get("GlobalKnownHostsFile"))
    names = [*(USER_KNOWN_HOSTS if own is None else own), *(SYSTEM_KNOWN_HOSTS if system is None else system)]
    home = str(Path.home())
    out = []
    for name in names:
        path = name
        for token, value in (("%d", home), ("%h", host), ("%r", user), ("%u", getpass.getuser())):
            path = path.replace(token, value)
        out.append(str(Path(path).expanduser()))
    return tuple(out)


class KnownHosts:
    """Known hosts files, read once and again when they change."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, ...], tuple[object, asyncssh.SSHKnownHosts]] = {}

    def load(self, files: tuple[str, ...]) -> asyncssh.SSHKnownHosts:
        """Return what *files* say; absent files and lines that cannot be read are left out."""
        stamp = tuple(_stamp(name) for name in files)
        cached = self._cache.get(files)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        known = asyncssh.SSHKnownHosts()
        for name in files:
            try:
                text = read_bounded(name, MAX_KNOWN_HOSTS).decode("utf-8", errors="replace")
            except OSError:
                continue
            try:
                asyncssh.import_known_hosts(text)
            except (ValueError, TypeError):
                text = "\n".join(line for line in text.splitlines() if _readable(line))
            known.load(text)
        self._cache[files] = (stamp, known)
        return known


def _stamp(name: str) -> tuple[int, int, int] | None:
    try:
        info = Path(name).stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _readable(line: str) -> bool:
    try:
        asyncssh.import_known_hosts(line)
    except (ValueError, TypeError):
        return False
    return True


def expected_keys(known: asyncssh.SSHKnownHosts, host: str, address: str, port: int) -> list[asyncssh.SSHKey]:
    """Return the keys that *known* has for exactly this host and port.

    asyncssh, like ssh, also accepts the keys of the host without its port; but a key that differs from those
    alone is unknown, not changed.
    """
    if port != 22:
        host = f"[{host}]:{port}" if host else ""
        found = [*known.match(host, "", None)[0]]
        if address:
            found += known.match(f"[{address}]:{port}", "", None)[0]
        return found
    return list(known.match(host, address, None)[0])
