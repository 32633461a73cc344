"""A demo node's end of one SSH channel: it swallows launcher and bundle and prints frames, as ``docs/wire.md`` says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from typing import TYPE_CHECKING, Any

import asyncssh

from clustertop.demo.cluster import schedule, seconds
from clustertop.probe.frames import Encoder, line

if TYPE_CHECKING:
    from clustertop.demo.cluster import Cluster
    from clustertop.demo.readings import Node, Schedule

COMMAND = "exec /bin/sh"
MAX_BUNDLE = 1 << 22
MAX_BUFFER = 1 << 16
FULL_SECONDS = 60.0
_NONCE = re.compile(rb"^n=([0-9a-f]{16})[ \t]*$|\b([0-9a-f]{16})\b", re.MULTILINE)
_HEADER = re.compile(rb'^(\{"z":.*\})\n', re.MULTILINE)
_CPU_SECONDS = 0.0041
"""What a tick of the real probe costs on such a node."""
_NVML_SECONDS = 0.0058
_RSS_BYTES = 21.4e6

GREETING = (
    b"Welcome to Ubuntu 22.04.5 LTS\r\n"
    b"\x1b]0;you have been renamed\x07\x1b[1;31m*** authorised users only ***\x1b[0m\r\n"
    b'{"motd": "maintenance on Sunday", "v": 1, "q": 1, "g": {}}\r\n@@CT1 0000000000000000 ready 9.9.9@@\r\n'
)
BETWEEN = (
    b'{"level": "info", "msg": "not a frame", "v": 1}\r\n',
    b"\x1b[2J\x1b[H\x1b]52;c;bm90IHlvdXJz\x07 wall: the cooling is [/serviced] [b]tonight[/b]\r\n",
    b"\xff\xfe\x80 no UTF-8 at all \xc3(\n",
    b"@@CT1 0000000000000000 {\"v\":1} 0000000000000000 CT1@@\n",
)
AFTER = b" \x1b[31m<- trailing words\x1b[0m"


class Demo:
    """What all sessions share: the cluster, and its clock, which starts with the first frame."""

    def __init__(self, cluster: Cluster, interval: float | None = None) -> None:
        self.cluster = cluster
        self.interval = interval
        """Seconds between frames in place of what consoles ask for."""
        self.first_frame = asyncio.Event()
        self._start = 0.0

    def now(self) -> float:
        """Seconds since the first frame, 0 before it; the simulator is brought up to it."""
        if not self._start:
            return 0.0
        now = time.monotonic() - self._start
        self.cluster.simulator.advance(now)
        return now

    def begin(self) -> None:
        """The first frame is about to go out."""
        if not self._start:
            self._start = time.monotonic()
            self.first_frame.set()


class Session(asyncssh.SSHServerSession[bytes]):
    """One channel: shell, then launcher, then probe."""

    def __init__(self, demo: Demo, node: Node) -> None:
        self._demo = demo
        self._node = node
        self._noisy = demo.cluster.fault("noisy-shell", node.number) is not None
        self._chan: asyncssh.SSHServerChannel[bytes] | None = None
        self._buffer = b""
        self._nonce = ""
        self._header: dict[str, Any] | None = None
        self._encoder = Encoder(FULL_SECONDS)
        self._schedule: Schedule | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._ticks = 0
        self._skipped = 0
        self._full = False

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan

    def exec_requested(self, command: str) -> bool:
        return command.strip() == COMMAND

    def session_started(self) -> None:
        if self._noisy:
            self._write(GREETING)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._buffer += data
        if self._schedule is not None:
            self._requests()
            return
        if not self._nonce:
            self._find_nonce()
        if self._nonce and self._header is None:
            self._find_header()
        if self._header is not None:
            self._find_bundle(self._header)
        if len(self._buffer) > MAX_BUNDLE:
            self._end(1)

    def eof_received(self) -> bool:
        self._end(0)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._chan = None

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def _find_nonce(self) -> None:
        match = _NONCE.search(self._buffer)
        if match is None:
            return
        self._nonce = (match[1] or match[2]).decode("ascii")
        version = self._node.machine.facts["python"]
        self._write(f"\n@@CT1 {self._nonce} ready {version}@@\n".encode("ascii"))

    def _find_header(self) -> None:
        # The rest of the launcher stands before it: the shell would have eaten that.
        match = _HEADER.search(self._buffer)
        if match is None:
            return
        with contextlib.suppress(ValueError):
            header = json.loads(match[1])
            if isinstance(header, dict) and isinstance(header.get("z"), int):
                self._header = header
                self._buffer = self._buffer[match.end() :]
                return
        self._end(1)

    def _find_bundle(self, header: dict[str, Any]) -> None:
        if len(self._buffer) < header["z"]:
            return
        self._buffer = self._buffer[header["z"] :]
        args = header.get("args")
        self._schedule = schedule(args if isinstance(args, dict) else {})
        self._schedule.released = args.get("released") if isinstance(args, dict) else None
        if self._demo.interval is not None:
            self._schedule.every = {
                name: self._demo.interval if name != "pcie" else every for name, every in self._schedule.every.items()
            }
        self._demo.begin()
        self._next = asyncio.get_running_loop().time()
        self._tick()

    def _requests(self) -> None:
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest[:MAX_BUFFER]
        for text in lines:
            try:
                request = json.loads(text)
            except ValueError:
                continue
            if isinstance(request, dict):
                self._obey(request)

    def _obey(self, request: dict[str, Any]) -> None:
        what, group = request.get("do"), request.get("group")
        if what == "stop":
            self._end(0)
        elif what == "full":
            self._encoder.want_full()
        elif what == "every" and self._schedule is not None and group in self._schedule.every:
            self._schedule.every[group] = seconds(request.get("seconds"))
            self._schedule.due.pop(group, None)
        elif what in {"release", "take", "procs"} and self._schedule is not None and group in {None, "gpu"}:
            if what == "procs":
                self._schedule.processes_until = self._demo.now() + seconds(request.get("seconds"))
            else:
                self._schedule.released = (request.get("at") or True) if what == "release" else None
            self._schedule.due.pop("gpu", None)

    def _tick(self) -> None:
        assert self._schedule is not None
        loop = asyncio.get_running_loop()
        self._frame(self._schedule)
        if self._schedule is None or self._chan is None:
            return
        every = self._schedule.tick_seconds()
        self._next += every
        if self._next <= loop.time():  # late: skip, never queue
            self._next += every * int((loop.time() - self._next) / every + 1.0)
        self._timer = loop.call_at(self._next, self._tick)

    def _frame(self, plan: Schedule) -> None:
        if self._full:
            self._skipped += 1
            return
        self._ticks += 1
        now = self._demo.now()
        machine = self._node.machine
        groups = self._node.update(plan, now)
        cost = {
            "cpu": 0.19 + self._ticks * _CPU_SECONDS, "rss": _RSS_BYTES, "nvml": _NVML_SECONDS, "ticks": self._ticks,
            "skipped": self._skipped,
        }  # fmt: skip
        facts = machine.facts
        if isinstance(plan.released, int | float) and not isinstance(plan.released, bool):
            facts = {**facts, "gpus_released": float(plan.released)}
        frame = self._encoder.encode(groups, machine.boot_seconds + now, time.time(), cost, facts)
        text = line(frame, self._nonce)
        if self._node.active("noisy-shell"):
            text = BETWEEN[self._ticks % len(BETWEEN)] + b"\x1b[0mnoise " + text[:-1] + AFTER + b"\n"
        self._write(text)

    def _write(self, data: bytes) -> None:
        if self._chan is not None:
            self._chan.write(data)

    def _stop(self) -> None:
        self._schedule = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, status: int) -> None:
        self._stop()
        chan, self._chan = self._chan, None
        if chan is not None and not chan.is_closing():
            chan.exit(status)


class Door(asyncssh.SSHServer):
    """A demo node's SSH server, for one connection."""

    def __init__(self, demo: Demo, rooms: Rooms) -> None:
        self._demo = demo
        self._rooms = rooms
        self._number = -1
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._number = self._rooms.number(conn.get_extra_info("sockname")[1])
        self._rooms.entered(self._number, conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._rooms.left(self._number, self._connection)

    def session_requested(self) -> Session:
        return Session(self._demo, self._demo.cluster.nodes[self._number])


class Rooms:
    """Which port is which node, and who is connected to it."""

    def __init__(self) -> None:
        self._by_port: dict[int, int] = {}
        self._inside: dict[int, set[asyncssh.SSHServerConnection]] = {}
        self._shut: set[int] = set()

    def assign(self, port: int, number: int) -> None:
        """Connections to *port* are with node *number*."""
        self._by_port[port] = number

    def number(self, port: int) -> int:
        """Return the node behind *port*."""
        return self._by_port[port]

    def entered(self, number: int, connection: asyncssh.SSHServerConnection) -> None:
        """Remember *connection*; one that slipped in before the door was shut is ended."""
        if number in self._shut:
            connection.abort()
            return
        self._inside.setdefault(number, set()).add(connection)

    def left(self, number: int, connection: asyncssh.SSHServerConnection) -> None:
        """Forget *connection*."""
        self._inside.get(number, set()).discard(connection)

    def shut(self, number: int) -> None:
        """End every connection with node *number*, at once and without a word."""
        self._shut.add(number)
        for connection in list(self._inside.get(number, ())):
            connection.abort()
