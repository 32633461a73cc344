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

from .disk import Disks
from .files import Call, Reading, Tree
from .frames import MAX_LINE, Encoder, Group, line
from .gpu import Gpus
from .host import Host
from .kmsg import Log
from .pcie import Pcie
from .rdma import Rdma
from .screening import Screen
from .stuck import mark_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, List, Optional

    from .frames import Attr

GROUPS = ("gpu", "pcie", "rdma", "host", "net", "disk", "screen", "sockets", "nccl", "bmc")
INTERVALS = {
    "gpu": 2.0, "pcie": 10.0, "rdma": 2.0, "host": 2.0, "net": 10.0, "disk": 10.0, "screen": 60.0, "sockets": 10.0,
    "nccl": 5.0, "bmc": 10.0,
}  # fmt: skip
DEADLINES = {"screen": 10.0, "bmc": 70.0}
ON_REQUEST = frozenset({"nccl", "bmc"})
"""Groups that run only where the arguments say what to read."""
ALONE = frozenset({"screen", "nccl", "bmc"})
"""Groups that no frame waits for: what they read seldom, or from a file server, may take seconds."""
FIRST_SECONDS = 0.3
"""The first frame waits this long for groups that have not read yet."""
SPREAD_SECONDS = 0.01
"""Groups read one after the other: threads that wake together spend their time taking turns."""
LATER_SECONDS = {"gpu": 0.05, "net": 0.5, "disk": 0.5, "screen": 0.5, "sockets": 0.5, "nccl": 0.5, "bmc": 1.0}
"""When the first readings come: compiling pynvml stops every other thread for a while, and what is read seldom is not
worth waiting for with the first frame."""
LAG_SECONDS = 0.3
"""Later frames wait this long for the readings that are due."""
SHUTDOWN_SECONDS = 2.0
START_SECONDS = 15.0
"""Starting NVML wakes GPUs without persistence mode: seconds for each; longer than this counts as hung."""
MAX_REQUEST = 65536
_FILES = 2048
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


class Bell(object):
    """Wakes one thread from others. An Event does the same in fifty times as many steps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Let the wait end, now or when it begins."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it has been rung already

    def wait(self, seconds: float = -1) -> None:
        """Wait until it is rung, at most so long where *seconds* is not negative."""
        self._lock.acquire(True, seconds)


class Runner(object):
    """One group: its thread, its interval and its last reading."""

    def __init__(
        self,
        name: str,
        args: "Dict[str, Any]",
        start: float,
        interval: float,
        deadline: float,
        done: "Callable[[], None]",
    ) -> None:
        self.name = name
        self.thread = _thread(name, self._run)
        self.call = Call()
        self.interval = interval
        self.effective = interval
        first = LATER_SECONDS.get(name, 0.0)
        self.offset = SPREAD_SECONDS * GROUPS.index(name) - first
        self.reader: "Any" = None
        self.due = start + first
        self._args = args
        self._deadline = deadline
        self._done = done
        self._lock = threading.Lock()
        self._bell = Bell()
        self._asked: "Deque[Dict[str, Any]]" = collections.deque(maxlen=64)
        self._stop = False
        self._started = 0.0
        self._n = 0
        self._t = 0.0
        self._ms = 0.0
        self._reading = Reading({}, "wait")

    @property
    def deadline(self) -> float:
        """Seconds after which a reading counts as hung: twice what one is known to take, too."""
        if self._deadline:
            return self._deadline
        if getattr(self.reader, "starting", False):
            return max(2.0 * self.interval, START_SECONDS)
        return max(2.0 * self.interval, 3.0, min(2.0 * self._ms / 1000.0, 2.0 * START_SECONDS))

    def every(self, seconds: float) -> None:
        """Read every so many seconds from now on."""
        with self._lock:
            self.interval = self.effective = seconds
            self.due = min(self.due, time.monotonic() + seconds)
        self._bell.ring()

    def ask(self, request: "Dict[str, Any]") -> None:
        """Have the group do what is asked of it, and read at once."""
        self._asked.append(request)
        self._bell.ring()

    def end(self) -> None:
        """End the thread when its present reading is over, and let go of what it holds."""
        self._stop = True
        stop = getattr(self.reader, "stop", None)
        if stop is not None:
            stop()
        self._bell.ring()

    def pending(self, now: float) -> bool:
        """True where a reading that a frame waits for is due or under way and not hung."""
        if self.name in ALONE:
            return False
        with self._lock:
            if self._started:
                return now - self._started < self.deadline
            return self.due <= now

    def hung(self, now: float) -> bool:
        """True where the present reading has lasted longer than the deadline."""
        with self._lock:
            return bool(self._started) and now - self._started >= self.deadline

    def unread(self) -> bool:
        """True before the first reading."""
        return self._n == 0

    def part(self, now: float) -> Group:
        """Return the group's part of a frame."""
        with self._lock:
            reading, started = self._reading, self._started
            group = Group(
                self._t, self.effective, reading.tables, self._ms, reading.st, "", reading.e, self._n,
                self.interval,
            )
        if not self._n:
            group.t = now
        if group.st == "hung":
            group.w, group.e = group.e, ""
        if started and now - started >= self.deadline:
            group.st = "hung"
            group.w = self.call.words()
            group.e = ""
            if not self._n:
                group.t = started
        return group

    def facts(self) -> "Dict[str, Attr]":
        """Return what the group found out about the node."""
        return self._reading.facts

    def _run(self) -> None:
        try:
            self.reader = _reader(self.name, self._args, self.call)
            while not self._stop:
                now = time.monotonic()
                if now < self.due and not self._asked:
                    self._bell.wait(self.due - now)
                    continue
                self._once(now)
        finally:
            if self.reader is not None:
                self.reader.close()

    def _once(self, now: float) -> None:
        early = now < self.due
        with self._lock:
            self._started = now
        try:
            while self._asked:
                self.reader.obey(self._asked.popleft(), now)
            reading = self.reader.read(now)
        except Exception as error:
            words = "{}: {}".format(type(error).__name__, error)
            reading = Reading(self._reading.tables, "error", words, self._reading.facts)
        self.call.what = ""
        over = time.monotonic()
        with self._lock:
            self._reading = reading
            self._n += 1
            self._t = now
            self._ms = (over - now) * 1000.0
            self._started = 0.0
            if self._n > 1:
                self._stretch(over - now)
            # In step with the ticks: an interval after this reading was due, not after it ended.
            if not early:
                self.due += self.effective + (self.offset if self._n == 1 else 0.0)
            if self.due <= over:
                self.due += self.effective * int((over - self.due) / self.effective + 1.0)
        self._done()

    def _stretch(self, cost: float) -> None:
        """A reading may cost a quarter of its interval; where it costs more, it is made less often.

        A reader that counts its own cost says so itself: ``least_seconds``.
        """
        least = getattr(self.reader, "least_seconds", 0.0)
        wanted = max(self.interval, 4.0 * min(cost, self.deadline), least)
        if wanted < self.effective:
            wanted = max(wanted, self.effective / 2.0)
        self.effective = wanted


class Writer(object):
    """Writes one line at a time: a console that does not read costs neither memory nor the readings."""

    def __init__(self, wake: Wake) -> None:
        self.thread = _thread("writer", self._run)
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
        self.thread = _thread("requests", self._run)
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


def _thread(name: str, target: "Callable[[], None]") -> threading.Thread:
    thread = threading.Thread(target=target, name=name)
    thread.daemon = True
    return thread


def _reader(name: str, args: "Dict[str, Any]", call: Call) -> "Any":
    root = str(args.get("root") or "/")
    stable = bool(args.get("stable"))
    if name == "gpu":
        return Gpus(
            Tree(root, call), call, str(args.get("nvml") or ""), bool(args.get("per_poll")), args.get("released"),
            args.get("log"),
        )  # fmt: skip
    if name == "pcie":
        return Pcie(Tree(root, call), args.get("log"))
    if name == "disk":
        return Disks(Tree(root, call))
    if name == "screen":
        return Screen(Tree(root, call))
    if name == "nccl":
        from .nccl import Nccl  # only where it is wanted

        return Nccl(Tree(root, call), _texts((args.get(name) or {}).get("logs")))
    if name == "bmc":
        from .ipmi import Ipmi

        return Ipmi(Tree(root, call), str((args.get(name) or {}).get("tool") or "ipmitool"))
    if name == "net":
        from .net import Net  # in this thread: what it needs to talk to the kernel is not needed for the first frame

        return Net(Tree(root, call), call, [str(one) for one in args.get("statistics") or ()])
    if name == "sockets":
        from .sockets import Sockets

        return Sockets(Tree(root, call), call, args.get("sockets"))
    return {"rdma": Rdma, "host": Host}[name](Tree(root, call, _keep(), stable))


def _texts(given: "Any") -> "List[str]":
    return [one for one in given if isinstance(one, str)] if isinstance(given, (list, tuple)) else []


def _keep() -> int:
    """Return how many counter files a group may keep open: at most a third of what the process may.

    The usual limit of 1024 is raised for this process alone, where it may be: ten ports have 500 counters.
    """
    try:
        import resource

        limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= limit < _FILES and (most < 0 or most >= _FILES):
            resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, most))
            limit = _FILES
    except (ImportError, OSError, ValueError):
        limit = 256
    return max(0, min(640, limit // 3)) if limit >= 0 else 640


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
