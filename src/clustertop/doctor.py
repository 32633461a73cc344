"""What would stop clustertop from working: a table of checks, each with a sentence and a cure."""

from __future__ import annotations

import base64
import binascii
import ctypes
import locale
import os
import platform
import resource
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from clustertop.inventory import Inventory
    from clustertop.wire.transport import PollSettings

State = Literal["ok", "warn", "fail", "unknown"]
EXIT = {"ok": 0, "warn": 1, "fail": 2, "unknown": 3}
"""Exit status of each state; the worst one counts, in the order of ``WORST``."""
WORST: tuple[State, ...] = ("fail", "unknown", "warn", "ok")
_REACH = frozenset({"node.reach", "device.reach"})
OWN_DESCRIPTORS = 64
"""Descriptors that the console needs for itself, beside one a node."""
MAX_LOOKED_UP = 512
"""Most nodes whose host keys are looked up; each costs a hash for every hashed line of the file."""
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    """The check's dotted id."""
    state: State
    text: str
    """One sentence."""
    todo: str = ""
    """What to do about it; empty where there is nothing to do."""
    node: str = ""
    """The node or device it is about; empty: this machine."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the checks of this machine look at."""

    settings: PollSettings
    inventory: Inventory
    environ: Mapping[str, str]
    tty: int | None
    """A descriptor that is a terminal; None: there is none."""


Answer = tuple[State, str, str]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of this machine."""

    id: str
    title: str
    run: Callable[[Place], Answer | None]
    """Gives state, sentence and what to do; None where the check does not apply."""


def find(place: Place, checks: Iterable[Check] | None = None) -> list[Finding]:
    """Run the checks of this machine; one that fails itself is an unknown."""
    findings = []
    for check in CHECKS if checks is None else checks:
        try:
            answer = check.run(place)
        except Exception as error:  # noqa: BLE001 - the other checks must still run
            what = clean(f"{type(error).__name__}: {error}", 160)
            answer = ("unknown", f"{check.title} could not be checked ({what})", "")
        if answer is not None:
            findings.append(Finding(check.id, *answer))
    return findings


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 0 all ok, 1 warnings, 2 failures, 3 unknowns, nodes or devices out of reach; failures come first."""
    states = {"unknown" if one.check in _REACH and one.state == "fail" else one.state for one in findings}
    return next((EXIT[state] for state in WORST if state in states), 0)


def a_terminal() -> int | None:
    """Return a descriptor of ours that is a terminal."""
    return next((number for number in (1, 2, 0) if os.isatty(number)), None)


def count(number: int, what: str) -> str:
    """Return *number* with *what*, in the plural where there is not one."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _python(_: Place) -> Answer:
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    needed = metadata.metadata("clustertop")["Requires-Python"]
    if sys.version_info < tuple(int(part) for part in needed.removeprefix(">=").split(".")):
        return "fail", f"{text} is too old", f"use a Python {needed}"
    return "ok", text, ""


def _packages(_: Place) -> Answer:
    missing, found = [], []
    for name in ("asyncssh", "textual", "nvidia-ml-py", "msgspec", "numpy", "ClusterShell"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return "fail", f"packages are missing: {', '.join(missing)}", "install clustertop again"
    return "ok", ", ".join(found), ""


def _ssh_config(place: Place) -> Answer | None:
    if place.inventory.local:
        return None
    file = Path(place.settings.ssh_config or "~/.ssh/config").expanduser()
    if not file.exists():
        return "ok", f"there is no {file}; ssh's defaults hold", ""
    try:
        file.read_text("utf-8", errors="replace")
    except OSError as error:
        return "fail", f"{file} cannot be read: {error.strerror}", f"make it readable: chmod 600 {file}"
    from clustertop.wire.ssh.route import find_route
    from clustertop.wire.transport import LinkFailure

    try:
        find_route(place.inventory.nodes[0].target, "", 0, place.settings)
    except LinkFailure as error:
        return "fail", error.reason, f"correct {file}; `ssh -G HOST` shows what ssh makes of it"
    return "ok", f"{file} is read", ""


def _keys(place: Place) -> Answer | None:
    if place.inventory.local:
        return None
    plain: list[str] = []
    locked: list[str] = []
    bad: list[str] = []
    for file in _key_files(place.settings):
        try:
            with file.open("rb") as stream:
                content = stream.read(65536)
        except OSError as error:
            bad.append(f"{file} ({error.strerror})")
            continue
        (locked if _is_locked(content) else plain).append(str(file))
    agent, words = _agent_keys(place)
    todo = "make a key with ssh-keygen and put it on the nodes with ssh-copy-id, or start an agent"
    if bad:
        return (
            "warn",
            f"keys that cannot be read: {', '.join(bad)}",
            "correct the path, or chmod 600 the file",
        )
    if agent:
        return "ok", f"{words}; keys in files without a passphrase: {len(plain)}", ""
    if plain:
        return "ok", f"{', '.join(plain)}; {words}", ""
    if locked:
        return "fail", f"{', '.join(locked)} needs its passphrase, and {words}", "run ssh-add first"
    return "fail", f"there is no key to log in with: no key file, and {words}", todo


def _key_files(settings: PollSettings) -> list[Path]:
    if settings.client_keys:
        return [Path(name).expanduser() for name in settings.client_keys]
    names = [Path("~/.ssh", name).expanduser() for name in DEFAULT_KEYS]
    config = Path(settings.ssh_config or "~/.ssh/config").expanduser()
    with suppress(OSError):
        for line in config.read_text("utf-8", errors="replace").splitlines():
            key, _, name = line.strip().replace("=", " ", 1).partition(" ")
            if key.lower() == "identityfile" and "%" not in name:
                names.append(Path(name.strip().strip('"')).expanduser())
    return [file for file in dict.fromkeys(names) if file.exists()]


def _is_locked(content: bytes) -> bool:
    if b"OPENSSH PRIVATE KEY" not in content:
        return b"ENCRYPTED" in content
    body = b"".join(content.split(b"-----")[2].split()) if content.count(b"-----") > 2 else b""
    with suppress(binascii.Error):
        raw = base64.b64decode(body[: len(body) // 4 * 4])
        return raw[15:19] != struct.pack(">I", 4) or raw[19:23] != b"none"
    return True


def _agent_keys(place: Place) -> tuple[int, str]:
    path = place.environ.get("SSH_AUTH_SOCK", "")
    if not place.settings.agent:
        return 0, "the agent is switched off in the config"
    if not path:
        return 0, "no ssh agent runs (SSH_AUTH_SOCK is not set)"
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(2.0)
            sock.connect(path)
            sock.sendall(struct.pack(">IB", 1, 11))  # SSH_AGENTC_REQUEST_IDENTITIES
            head = b""
            while len(head) < 9 and (more := sock.recv(9 - len(head))):
                head += more
    except OSError as error:
        return 0, f"the ssh agent at {path} does not answer ({error.strerror or error})"
    if len(head) < 9 or head[4] != 12:  # SSH_AGENT_IDENTITIES_ANSWER
        return 0, f"what listens at {path} is not an ssh agent"
    number = int(struct.unpack(">I", head[5:9])[0])
    return number, f"the ssh agent offers {count(number, 'key')}"


def _known_hosts(place: Place) -> Answer | None:
    inventory = place.inventory
    if inventory.local:
        return None
    from clustertop.hosts import fold
    from clustertop.wire.ssh.route import KnownHosts, find_route

    known, unknown = KnownHosts(), []
    checked = [node for node in inventory.nodes if node.name not in inventory.unchecked]
    for node in checked[:MAX_LOOKED_UP]:
        route = find_route(node.target, node.user, node.port, place.settings)
        host = route.alias or route.host
        keys, cas, *_ = known.load(route.known_hosts).match(host, "", None if route.port == 22 else route.port)
        if not keys and not cas:
            unknown.append(node.name)
    seen = min(len(checked), MAX_LOOKED_UP)
    part = "" if seen == len(checked) else f" of the first {seen} looked at"
    if unknown:
        names = clean(fold(unknown), 200)
        todo = "log in to each once with ssh and compare the fingerprint, or gather the keys with ssh-keyscan"
        return "fail", f"no host key is known of {count(len(unknown), 'node')}{part}: {names}", todo
    if inventory.unchecked:
        names = clean(fold(sorted(inventory.unchecked)), 200)
        return "warn", f"host keys of {names} are not checked", "take them out of ssh.unchecked_hosts"
    return "ok", f"a host key is known of {count(seen, 'node')}{part}", ""


def _network(place: Place) -> Answer | None:
    """Links and default routes of this machine, by rtnetlink: when they are the fault, no node is."""
    if place.inventory.local:
        return None
    from pyroute2 import IPRoute

    with IPRoute() as route:
        names = {link["index"]: clean(link.get("ifname"), 32) for link in route.get_links()}
        # A tunnel's or a bridge's state is often UNKNOWN; the loopback's always is.
        up = [names[link["index"]] for link in route.get_links()
              if link.get("operstate") == "UP" or (link.get("operstate") == "UNKNOWN" and link.get("ifname") != "lo")]
        ways = sorted({names.get(way.get("oif"), "?") for way in route.get_default_routes()})
    if not up:
        return "fail", "no network link of this machine is up", "bring one up: without it every node looks unreachable"
    said = f"links up: {', '.join(sorted(up)[:8])}{' ...' if len(up) > 8 else ''}"
    if not ways:
        return "warn", f"{said}; no default route", "only nodes of the networks of these links can be reached"
    return "ok", f"{said}; default route by {', '.join(ways)}", ""


def _descriptors(place: Place) -> Answer:
    needed = len(place.inventory) + OWN_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{count(len(place.inventory), 'node')} need some {needed:,} descriptors, the limit is"
    if hard != resource.RLIM_INFINITY and hard < needed:
        return "fail", f"{text} {hard:,}", "raise nofile in /etc/security/limits.conf, or watch fewer nodes"
    if soft != resource.RLIM_INFINITY and soft < needed:
        return "warn", f"{text} {soft:,}, but may be raised", f"run ulimit -n {needed} before clustertop"
    return "ok", f"{text} {'none' if soft == resource.RLIM_INFINITY else f'{soft:,}'}", ""


def _clock(_: Place) -> Answer:
    if not sys.platform.startswith("linux"):
        return "unknown", "whether this machine's clock is kept right cannot be read here", ""
    buffer = ctypes.create_string_buffer(512)  # struct timex with modes = 0: it reads and sets nothing
    state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    if state < 0:
        error = os.strerror(ctypes.get_errno())
        return "unknown", f"the kernel does not say whether this clock is kept right ({error})", ""
    if state == 5:  # TIME_ERROR
        todo = "start chrony or systemd-timesyncd here, if the offsets below look wrong"
        return "warn", "the kernel says that this machine's clock is not synchronised", todo
    return "ok", "this machine's clock is synchronised", ""


def _encoding(_: Place) -> Answer:
    encoding = locale.getpreferredencoding(do_setlocale=False)
    if encoding.lower().replace("-", "") != "utf8":
        return (
            "warn",
            f"the locale's encoding is {encoding}",
            "export LC_ALL=C.UTF-8, or set console.ascii = true",
        )
    return "ok", "the locale's encoding is UTF-8", ""


def _term(place: Place) -> Answer | None:
    term = clean(place.environ.get("TERM", ""), 60)
    if place.tty is None and not term:
        return None
    if term in ("", "dumb", "unknown"):
        return "fail", f"TERM is {term or 'not set'}", "export TERM=xterm-256color"
    return "ok", f"TERM is {term}", ""


def _colours(place: Place) -> Answer | None:
    term = place.environ.get("TERM", "")
    if term in ("", "dumb", "unknown"):
        return None
    if place.environ.get("NO_COLOR"):
        return "ok", "NO_COLOR is set: drawn without colours", ""
    if place.environ.get("COLORTERM", "") in ("truecolor", "24bit") or "direct" in term:
        return "ok", "16 million colours", ""
    if "256color" in term or "kitty" in term:
        return "ok", "256 colours", ""
    return (
        "warn",
        f"TERM={clean(term, 60)} promises few colours",
        "export TERM=xterm-256color if the terminal can",
    )


def _size(place: Place) -> Answer | None:
    if place.tty is None:
        return None
    size = os.get_terminal_size(place.tty)
    text = f"the terminal has {size.columns} columns and {size.lines} lines"
    if size.columns < 80 or size.lines < 24:
        return "warn", text, "make it at least 80 by 24"
    return "ok", text, ""


CHECKS = (
    Check("local.python", "Python", _python),
    Check("local.packages", "the packages", _packages),
    Check("ssh.config", "the ssh configuration", _ssh_config),
    Check("ssh.keys", "the keys to log in with", _keys),
    Check("ssh.known_hosts", "the known host keys", _known_hosts),
    Check("local.network", "the network of this machine", _network),
    Check("local.descriptors", "the descriptor limit", _descriptors),
    Check("local.clock", "the clock", _clock),
    Check("local.encoding", "the locale", _encoding),
    Check("terminal.type", "the terminal's type", _term),
    Check("terminal.colours", "the terminal's colours", _colours),
    Check("terminal.size", "the terminal's size", _size),
)
