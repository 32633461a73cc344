"""One group of the probe: the thread that reads it, when it is due, and what it said last."""

import collections
import threading
import time

from .disk import Disks
from .files import Call, Reading, Tree
from .frames import Group
from .gpu import Gpus
from .host import Host
from .pcie import Pcie
from .rdma import Rdma
from .screening import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, List

    from .frames import Attr

GROUPS = ("gpu", "pcie", "rdma", "host", "net", "disk", "screen", "sockets", "nccl", "bmc")
ALONE = frozenset({"screen", "nccl", "bmc"})
"""Groups that no frame waits for: what they read seldom, or from a file server, may take seconds."""
SPREAD_SECONDS = 0.01
"""Groups read one after the other: threads that wake together spend their time taking turns."""
LATER_SECONDS = {"gpu": 0.05, "net": 0.5, "disk": 0.5, "screen": 0.5, "sockets": 0.5, "nccl": 0.5, "bmc": 1.0}
"""When the first readings come: compiling pynvml stops every other thread for a while, and what is read seldom is not
worth waiting for with the first frame."""
START_SECONDS = 15.0
"""Starting NVML wakes GPUs without persistence mode: seconds for each; longer than this counts as hung."""
_FILES = 2048


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
        self.thread = thread_of(name, self._run)
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


def thread_of(name: str, target: "Callable[[], None]") -> threading.Thread:
    """Return a thread that does not keep the process alive; it is not started."""
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
