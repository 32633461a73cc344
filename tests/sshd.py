"""A real OpenSSH sshd on loopback, for tests: its own port, host key, authorized keys and client configuration.

Nothing of the machine's or the user's own ssh set-up is read or written.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustertop.model import NodeInfo
from clustertop.wire.transport import PollSettings
from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")


def need_sshd() -> str:
    """Return the path of sshd; skip the test where there is none, fail it where CI is set."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        if os.environ.get("CI"):
            pytest.fail("install openssh-server: these tests must run in CI")
        pytest.skip("install openssh-server")
    return SSHD


def keygen(path: Path) -> str:
    """Make an ed25519 key without a passphrase at *path*; return its public line."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
    return path.with_name(path.name + ".pub").read_text().strip()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@dataclass
class Sshd:
    """One running sshd.

    Attributes:
        folder: where its files are; also the client's, unless shared.
        options: extra lines of sshd_config.
        forced: if set, every login runs this shell command, with ``$SSH_ORIGINAL_COMMAND`` in its environment.
    """

    folder: Path
    options: tuple[str, ...] = ()
    forced: str = ""
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        for name in ("host_key", "client_key"):
            if not (self.folder / name).exists():
                keygen(self.folder / name)
        shutil.copy(self.folder / "client_key.pub", self.folder / "authorized_keys")
        self.trust()
        (self.folder / "ssh_config").write_text(
            "Host *\n"
            f"  IdentityFile {self.folder / 'client_key'}\n"
            "  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder / 'known_hosts'}\n"
            "  GlobalKnownHostsFile /dev/null\n"
        )

    def trust(self, other: Path | None = None) -> None:
        """Write the host key (or the one at *other*) into the client's known_hosts."""
        key = (other or self.folder / "host_key").with_suffix(".pub").read_text().split()[:2]
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {' '.join(key)}\n")

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder / 'host_key'}",
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}",
            f"PidFile {self.folder / 'sshd.pid'}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "PrintMotd no",
            "LogLevel VERBOSE",
            *([f"ForceCommand {self.forced}"] if self.forced else []),
            *self.options,
        ]
        config = self.folder / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's privilege separation folder
        log = (self.folder / "sshd.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [need_sshd(), "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                if sock.recv(4) == b"SSH-":
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("sshd did not start:\n" + self.log())
            time.sleep(0.02)

    def log(self) -> str:
        """What sshd has written so far."""
        return (self.folder / "sshd.log").read_text(errors="replace")

    def sessions(self) -> list[int]:
        """Return the process ids of the connections that it serves."""
        assert self.process is not None
        return _children(self.process.pid)

    def session_processes(self) -> list[int]:
        """Return the process ids of the connections, and those of their unprivileged halves and shells."""
        found = self.sessions()
        for pid in found:
            found += _children(pid)
        return found

    def kill_sessions(self) -> None:
        """End every connection it serves, as a crash would: without a word."""
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop listening and end every connection."""
        if self.process is None:
            return
        sessions = self.sessions() if self.process.poll() is None else []
        self.process.terminate()
        self.process.wait(60)
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process = None

    def node(self, name: str = "node1") -> NodeInfo:
        """Return this server as a node of an inventory."""
        return NodeInfo(name=name, host="127.0.0.1", port=self.port, user=getpass.getuser())

    def settings(self, **changes: object) -> PollSettings:
        """Return settings with this server's client configuration, quick tries again and generous limits."""
        values: dict[str, object] = {
            "ssh_config": str(self.folder / "ssh_config"),
            "agent": False,
            "interval_seconds": 0.2,
            "pcie_interval_seconds": 1.0,
            # Generous: on a busy machine a login or the start of a probe takes many seconds, and that is no failure.
            "connect_timeout_seconds": 60.0,
            "start_timeout_seconds": 240.0,
            "retry_min_seconds": 0.05,
            "retry_max_seconds": 0.2,
        }
        values.update(changes)
        return PollSettings(**values)  # type: ignore[arg-type]


@contextlib.contextmanager
def running(
    folder: Path, *options: str, forced: str = "") -> Iterator[Sshd]:
    """Run an sshd for the length of a with block."""
    need_sshd()
    server = Sshd(folder, options, forced)
    server.start()
    try:
        yield server
    finally:
        server.stop()
