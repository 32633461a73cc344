"""PDUs for tests: recordings read from files, and served by a real SNMP agent (snmpsim) on loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustertop.sources.oids import oid
from clustertop.sources.snmp import Agent
from clustertop.sources.snmp_message import Community, Key, User
from ports import free_udp_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clustertop.sources.oids import Oid, Value

OURS = Path(__file__).parent / "sources/data"
ODD = OURS / "odd"
"""Devices that are not as they should be."""
SHARED = Path(__file__).resolve().parents[2] / "shared"
SAMPLES = SHARED / "samples/pdu"
AUTH_KEY, PRIVACY_KEY = "correct horse", "battery staple"
USERS = (("watcher", "SHA256", "AES"), ("old", "MD5", "DES"), ("usual", "SHA", "AES"), ("strong", "SHA512", "AES256"),
         ("odd", "SHA224", "3DES"))
"""The agent's v3 users with their protocols; their keys are the same."""


def snmprec(path: Path) -> dict[Oid, Value]:
    """The rows of a snmpsim recording; of values that move, what they begin with."""
    rows: dict[Oid, Value] = {}
    for line in path.read_text("utf-8").splitlines():
        name, tag, text = line.split("|", 2)
        kind, _, module = tag.partition(":")
        if module:
            options = dict(one.split("=", 1) for one in text.split(","))
            text = options.get("value") or options.get("initial") or "0"
        if kind in ("2", "65", "66", "67", "70"):
            rows[oid(name)] = int(text)
        elif kind == "6":
            rows[oid(name)] = text.strip(".")
        elif kind in ("4x", "64x"):
            # A text that somebody put in the place of another by hand is served as no value at all.
            with contextlib.suppress(ValueError):
                rows[oid(name)] = bytes.fromhex(text)
        else:
            rows[oid(name)] = text.encode()
    return rows


_WALKED = re.compile(r"^\.?([\d.]+) = (?:([A-Za-z0-9-]+): ?)?(.*)$")


def snmpwalk(path: Path) -> dict[Oid, Value]:
    """The rows that ``snmpwalk -On`` printed."""
    rows: dict[Oid, Value] = {}
    last: Oid | None = None
    for line in path.read_text("utf-8", "replace").splitlines():
        match = _WALKED.match(line)
        if match is None:
            # A long octet string goes on in the next line.
            if last is not None and isinstance(rows.get(last), bytes):
                more = rows[last]
                assert isinstance(more, bytes)
                rows[last] = more + (bytes.fromhex(line) if re.fullmatch(r"(?:[0-9A-F]{2} ?)+", line) else line.encode())
            continue
        last, kind, text = oid(match[1]), match[2] or "", match[3].strip()
        if kind == "Hex-STRING":
            rows[last] = bytes.fromhex(text)
        elif kind in ("INTEGER", "Gauge32", "Counter32", "Counter64", "Timeticks"):
            number = re.search(r"-?\d+", text)
            assert number is not None, line
            rows[last] = int(number[0])
        elif kind == "OID":
            rows[last] = text.strip(".")
        else:
            rows[last] = text.removeprefix('"').removesuffix('"').encode()
    return rows


def need_snmpsim() -> None:
    """Skip where snmpsim is not installed; fail where CI is set."""
    if importlib.util.find_spec("snmpsim") and importlib.util.find_spec("pysmi"):
        return
    if os.environ.get("CI"):
        pytest.fail("install snmpsim and pysmi: nothing is skipped in CI")
    pytest.skip("install snmpsim and pysmi")


@dataclass(frozen=True)
class Snmpsim:
    """A running agent; each recording is a community and a v3 context of its own."""

    port: int

    def agent(self, name: str, version: int = 2, timeout: float = 5.0, retries: int = 1) -> Agent:
        """The agent that speaks for the recording called *name*."""
        assert version in (1, 2)
        return Agent("127.0.0.1", Community(Key(name), 2 if version == 2 else 1), self.port, timeout, retries)

    def secure(self, recording: str, timeout: float = 5.0, retries: int = 1, **user: object) -> Agent:
        """The same by v3 with authentication and privacy, or as *user* says."""
        who = {"name": USERS[0][0], "auth": Key(AUTH_KEY), "privacy": Key(PRIVACY_KEY), "context": recording, **user}
        return Agent("127.0.0.1", User(**who), self.port, timeout, retries)  # type: ignore[arg-type]


@contextlib.contextmanager
def snmpsim(folders: Mapping[str, Path], work: Path, *options: str, port: int = 0) -> Iterator[Snmpsim]:
    """Serve the recordings of *folders*, by prefix; *work* takes copies, indexes, the log and what the agent keeps."""
    need_snmpsim()
    data, cache, own = work / "data", work / "cache", work / "tmp"
    for folder in (data, cache, own):
        folder.mkdir(parents=True, exist_ok=True)
    for prefix, folder in folders.items():
        for file in folder.glob("*.snmprec"):
            shutil.copyfile(file, data / f"{prefix}{file.name}")
    port = port or free_udp_port()
    log = work / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "snmpsim.commands.responder", f"--cache-dir={cache}",
             f"--process-user={getuser()}", f"--process-group={_group()}", *options, *_users(),
             f"--data-dir={data}", f"--agent-udpv4-endpoint=127.0.0.1:{port}"],
            stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(own)},
            cwd=work)
    try:
        deadline = time.monotonic() + 60
        while b"Listening at" not in log.read_bytes():
            assert process.poll() is None, log.read_text("utf-8", "replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text("utf-8", "replace")[-2000:]
            time.sleep(0.05)
        while not _bound(port):
            assert time.monotonic() < deadline, "it says that it listens, and does not"
        yield Snmpsim(port)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def _users() -> Iterator[str]:
    for name, auth, privacy in USERS:
        yield from (f"--v3-user={name}", f"--v3-auth-key={AUTH_KEY}", f"--v3-auth-proto={auth}",
                    f"--v3-priv-key={PRIVACY_KEY}", f"--v3-priv-proto={privacy}")


def _bound(port: int) -> bool:
    """Whether the kernel takes a datagram for *port*; the agent says that it listens a moment before it does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.1", port))
        try:
            probe.send(b"")
            time.sleep(0.02)
            probe.send(b"")
        except ConnectionRefusedError:
            return False
        return True


def _group() -> str:
    import grp

    return grp.getgrgid(os.getgid()).gr_name
