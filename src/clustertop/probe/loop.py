"""The probe's life: a thread per group reads, the main thread prints a frame a tick, until nobody listens."""

import collections
import functools
import gc
import json
import os
import select
import signal
import threading
import time

from .frames import MAX_LINE, Encoder, line
from .kmsg import Log
from .runner import GROUPS, SPREAD_SECONDS, Bell, Runner, thread_of
from .stuck import mark_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, List, Optional

    from .frames import Attr

INTERVALS = {
    "gpu": 2.0, "pcie": 10.0, "rdma": 2.0, "host": 2.0, "net": 10.0, "disk": 10.0, "screen": 60.0, "sockets": 10.0,
    "nccl": 5.0, "bmc": 10.0,
}  # fmt: skip
DEADLINES = {"screen": 10.0, "bmc": 70.0}
ON_REQUEST = frozenset({"nccl", "bmc"})
"""Groups that run only where the arguments say what to read."""
FIRST_SECONDS = 0.3
"""The first frame waits this long for groups that have not read yet."""
LAG_SECONDS = 0.3
"""Later frames wait this long for the readings that are due."""
SHUTDOWN_SECONDS = 2.0
MAX_REQUEST = 65536
_STDIN, _STDOUT = 0, 1
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Wake(object):
    """Wakes the main thread from other threads and from signal handlers."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)

    def set(self) -> None:
        try:
            os.write(self._in, b".")
        except OSError:
            pass  # full: it wakes anyway

    def wait(self, seconds: float) -> None:
        if select.select([self._out], [], [], max(0.0, seconds))[0]:
            try:
                os.read(self._out, 4096)
            except OSError:
                pass


class Writer(object):
    """Writes one line at a time: a console that does not read costs neither memory nor the readings."""

    def __init__(self, wake: Wake) -> None:
        self.thread = thread_of("writer", self._run)
        self.broken = False
        self._wake = wake
        self._ready = Bell()
        self._line: "Optional[bytes]" = None

    def idle(self) -> bool:
        """True where the last line is out."""
        return self._line is None

    def put(self, text: bytes) -> None:
        """Write *text*; only while idle. What surely fits is written at once, without waking the thread."""
        if len(text) <= select.PIPE_BUF and select.select([], [_STDOUT], [], 0)[1]:
            try:
                _write(text)
            except OSError:
                self.broken = True
            return
        self._line = text
        self._ready.ring()

    def _run(self) -> None:
        while True:
            self._ready.wait()
            text = self._line
            if text is None:
                continue
            try:
                _write(text)
            except OSError:
                self.broken = True
            self._line = None
            if self.broken:
                self._wake.set()
                return


class Requests(object):
    """Reads requests, one JSON object a line; ``ended`` once nobody can ask any more."""

    def __init__(self, wake: Wake) -> None:
        self.thread = thread_of("requests", self._run)
        self.ended = False
        self.queue: "Deque[Dict[str, Any]]" = collections.deque(maxlen=64)
        self._wake = wake

    def _run(self) -> None:
        data = b""
        while True:
            try:
                part = os.read(_STDIN, MAX_REQUEST)
            except OSError:
                part = b""
            if not part:
                break
            lines = (data + part).split(b"\n")
            data = lines.pop()[:MAX_REQUEST]
            for text in lines:
                try:
                    request = json.loads(text.decode("utf-8"))
                except ValueError:
                    continue
                if isinstance(request, dict):
                    self.queue.append(request)
            self._wake.set()
        self.ended = True
        self._wake.set()


class Probe(object):
    """Runs the groups that *args* name and composes frames.

    Keys of *args*, all optional: ``nonce``, ``root``, ``nvml`` (path of a library), ``groups``, ``without``,
    ``intervals`` or ``every`` and ``deadlines`` (seconds by group), ``stable`` (files below ``root`` are never
    replaced), ``full_every`` (seconds), ``max_line`` (bytes), ``per_poll`` and ``released`` (of the GPUs),
    ``statistics`` (names of what network drivers count, ``#`` for any number), ``sockets`` (ways of reading
    sockets, best first), ``nccl`` (``{"logs": [patterns of paths]}``) and ``bmc`` (``{"tool": "ipmitool"}``): without
    these two there are no such groups.
    """

    def __init__(self, args: "Dict[str, Any]") -> None:
        self._nonce = str(args.get("nonce") or "")
        self._max_line = int(args.get("max_line") or MAX_LINE)
        self._encoder = Encoder(float(args.get("full_every") or 60.0))
        self._wake = Wake()
        self._writer = Writer(self._wake)
        self._requests = Requests(self._wake)
        self._stopping = False
        self._parent = os.getppid()
        self._memory = Memory()
        self._skipped = 0
        self._nvml = 0.0
        self._start = time.monotonic()
        # One reader of the kernel's log for the groups that want lines of it.
        log = Log(str(args.get("root") or "/"))
        intervals = dict(INTERVALS)
        intervals.update(args.get("intervals") or args.get("every") or {})
        deadlines = args.get("deadlines") or {}
        self._runners: "List[Runner]" = [
            Runner(
                name,
                dict(args, log=log),
                self._start,
                _seconds(intervals[name]),
                float(deadlines.get(name) or DEADLINES.get(name, 0.0)),
                self._read_one,
            )
            for name in GROUPS
            if name in (args.get("groups") or GROUPS) and name not in (args.get("without") or ())
            and (name not in ON_REQUEST or args.get(name))
        ]

    def run(self) -> None:
        """Print frames until the end."""
        self._settle()
        self._launch()
        self._requests.thread.start()
        self._writer.thread.start()
        self._loop()
        self._end()

    def once(self) -> bytes:
        """Return one frame, of a reading of every group; one that does not come back is reported as hung."""
        for runner in self._runners:
            runner.due = self._start
        self._launch()
        while any(runner.unread() and not runner.hung(time.monotonic()) for runner in self._runners):
            self._wake.wait(0.05)
        text = self._frame()
        self._end()
        return text

    def _launch(self) -> None:
        for runner in self._runners:
            runner.thread.start()

    def _settle(self) -> None:
        mark_process()
        try:
            os.nice(10)
        except OSError:
            pass
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, self._signal)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _signal(self, number: int, frame: object) -> None:
        self._stopping = True
        self._wake.set()

    def _over(self) -> bool:
        return (
            self._stopping
            or self._requests.ended
            or self._writer.broken
            or (self._parent > 1 and os.getppid() != self._parent)
        )

    def _loop(self) -> None:
        self._until(self._start + FIRST_SECONDS, self._first_read)
        self._print()
        # Modules and tables stay; looking through them for garbage again and again is for nothing.
        getattr(gc, "freeze", gc.collect)()
        # What was not read by then is worth a frame of its own as soon as it is.
        late = self._start + self._tick() - LAG_SECONDS
        if not self._first_read(0.0) and self._until(late, self._first_read):
            self._print()
        at = self._start
        while not self._over():
            now = time.monotonic()
            tick = self._tick()
            at += tick
            if at <= now:
                at += tick * int((now - at) / tick + 1.0)
            lag = min(LAG_SECONDS, tick / 3.0)
            spread = min(lag, SPREAD_SECONDS * len(self._runners))
            if self._until(at + spread, functools.partial(self._changed, tick)):
                at = time.monotonic()
                continue
            self._until(at + lag, lambda now: not any(runner.pending(now) for runner in self._runners))
            if not self._over():
                self._print()

    def _until(self, at: float, enough: "Any") -> bool:
        """Wait until *at*, or until *enough* of the clock is true; then, or at the end, return True."""
        while True:
            self._obey()
            now = time.monotonic()
            if self._over() or enough(now):
                return True
            if now >= at:
                return False
            self._wake.wait(at - now)

    def _obey(self) -> None:
        while self._requests.queue:
            request = self._requests.queue.popleft()
            what = request.get("do")
            if what == "stop":
                self._stopping = True
            elif what == "full":
                self._encoder.want_full()
            elif what in ("release", "take", "procs"):
                for runner in self._runners:
                    if runner.name == "gpu" == request.get("group", "gpu"):
                        runner.ask(request)
            elif what == "messages":
                for runner in self._runners:
                    if runner.name == "net":
                        runner.ask(request)
            elif what == "every":
                seconds = request.get("seconds")
                if isinstance(seconds, (int, float)) and seconds > 0:
                    for runner in self._runners:
                        if runner.name == request.get("group"):
                            runner.every(_seconds(seconds))

    def _read_one(self) -> None:
        """A group has read: the main thread wakes once for all of them, not for each."""
        soon = time.monotonic() + 2 * SPREAD_SECONDS
        if not any(runner.pending(soon) for runner in self._runners):
            self._wake.set()

    def _first_read(self, now: float) -> bool:
        """True once the groups that the first frame is for have read."""
        until = self._start + FIRST_SECONDS
        return not any(runner.unread() and runner.due < until for runner in self._runners)

    def _changed(self, tick: float, now: float) -> bool:
        return tick != self._tick()

    def _tick(self) -> float:
        return min(runner.interval for runner in self._runners) if self._runners else 2.0

    def _print(self) -> None:
        if not self._writer.idle():
            self._skipped += 1
            return
        self._writer.put(self._frame())

    def _frame(self) -> bytes:
        now = time.monotonic()
        facts: "Dict[str, Attr]" = {}
        nvml = 0.0
        for runner in self._runners:
            facts.update(runner.facts())
            nvml += getattr(runner.reader, "seconds", 0.0)
        cost = {
            "cpu": time.process_time(), "rss": self._memory.bytes(), "nvml": nvml - self._nvml,
        }  # fmt: skip
        if self._skipped:
            cost["skipped"] = self._skipped
        self._nvml = nvml
        groups = {runner.name: runner.part(now) for runner in self._runners}
        frame = self._encoder.encode(groups, now, time.time(), cost, facts)
        return line(frame, self._nonce, self._max_line)

    def _end(self) -> None:
        """Let go of the devices; a call that hangs is not waited for."""
        for runner in self._runners:
            runner.end()
        until = time.monotonic() + SHUTDOWN_SECONDS
        for runner in self._runners:
            while runner.thread.is_alive() and time.monotonic() < until:
                if runner.hung(time.monotonic()):
                    break
                runner.thread.join(0.05)


def _seconds(value: "Any") -> float:
    return min(max(float(value), 0.1), 3600.0)


class Memory(object):
    """Our own resident memory; the file stays open."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def bytes(self) -> int:
        """Return it, or 0 where the kernel does not say it."""
        try:
            return int(os.pread(self._file, 128, 0).split()[1]) * _PAGE
        except (OSError, ValueError, IndexError):
            return 0


def _write(text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(_STDOUT, view) :]


def main(args: "Dict[str, Any]") -> int:
    """Run the probe that *args* describe (see :class:`Probe`); with ``once`` for one frame.

    Otherwise it ends the process by itself: a thread that hangs in a driver would hold an orderly end.
    """
    if args.get("once"):
        _write(Probe(args).once())
        return 0
    try:
        Probe(args).run()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)
