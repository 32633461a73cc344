"""One NCCL log as it grows: ranks, times of their inits, channels by transport. Counted, not judged.

Wording: NVIDIA/nccl src/init.cc and src/transport of 2.7 to 2.30.
"""

import os
import re
import stat
import time

from .files import reason
from .frames import Err

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from .frames import Cell

    Thread = Tuple[str, str, str]
    Name = Tuple[str, int]
    Channel = Tuple[str, str, int, int, int, str, str]

FIRST_BYTES = 1 << 20
"""How far from its end a file is begun, and how far a reading may be behind: what lies before is passed over."""
FILE_BYTES = 1 << 17
"""Most bytes of one file that one reading takes; the rest waits for the next."""
WARNING_SECONDS = 60.0
MAX_LINE = 2048
MAX_COMMS = 16
"""Most communicators kept of a file: the largest, of equal ones the newest."""
MAX_RANKS = 4096
MAX_CHANNELS = 8192
MAX_THREADS = 1024
MAX_HOSTS = 1024
MAX_LIST = 32
"""Items of an attribute that is a list; a console takes no more."""
ITEM = 64

BY_NCCL, BY_TIMES, BY_ARRIVAL = 0, 1, 2

_HEAD = re.compile(
    r"([A-Za-z0-9_][\w.-]{0,252}):(\d{1,10}):(\d{1,10}) (?:\[\d+\] )?(?:[\w/.]+:\d+ )?"
    r"NCCL (INFO|WARN|VERSION|CALL|TRACE|ABORT) ?",
    re.ASCII,
)
_BARE = re.compile(r"\s*NCCL (?:INFO|WARN) ")
_VERSION = re.compile(r"NCCL version (\d[\w.]{0,20}(?:\+\w[\w.]{0,20})?)")
_WHEN = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_INIT = re.compile(
    r"comm 0x[\w.]{1,32} rank (\d{1,7}) nranks (\d{1,7}) cudaDev -?\d{1,5}(?: nvmlDev -?\d{1,5})?"
    r"(?: busId \w{1,16})?(?: commId (0x[\w.]{1,32}))?",
    re.ASCII,
)
_WHAT = re.compile(r" - Init (START|COMPLETE)")
_TIMINGS = re.compile(
    r"Init timings(?: - \w+)?: rank (\d{1,7}) nranks (\d{1,7}) total (\d{1,9}(?:\.\d{1,9})?)", re.ASCII
)
_CHANNEL = re.compile(
    r"(?:Channel|Ring) (\d{1,5})(?:/\d+)? : (\d{1,7})(?:\[\w+\])? -> (\d{1,7})(?:\[\w+\])?"
    r"(?: \[(send|receive)\])? via (.{1,80})",
    re.ASCII,
)
_USING = re.compile(r"NET/([^:\[\]]{1,40}?)\s*:? Using (\[0\][^ ;]{1,60})")
_NETWORK = re.compile(r"Using network (.{1,40}?)\s*$")
_SET = re.compile(
    r"(NCCL_(?:IB_DISABLE|NET|P2P_DISABLE|SHM_DISABLE|NET_GDR_LEVEL|IB_HCA)) set (?:by environment )?"
    r"to (.{1,60}?)\.?\s*$"
)
_NETWORKS = ("NET/", "COLLNET/")
_DEVICE = re.compile(r"/\d+(?:\(\d+\))?(?=/|\(|\s*$)")
"""The number of the network device in ``NET/IB/3(2)/GDRDMA``."""


class Rank(object):
    """One rank of a communicator."""

    __slots__ = ("at", "by", "complete", "host", "pid", "seconds", "started")

    def __init__(self, host: str, pid: str) -> None:
        self.host = host
        self.pid = pid
        self.at: "Optional[float]" = None
        """When its init last moved, the node's monotonic clock."""
        self.by = BY_NCCL
        self.complete = False
        self.seconds: "Optional[float]" = None
        self.started: "Optional[Tuple[int, float]]" = None
        """Kind of clock and its reading at the start."""


class Channels(object):
    """Channels, each counted once."""

    __slots__ = ("_for", "_told", "cut", "seen")

    def __init__(self) -> None:
        self.seen: "Set[Channel]" = set()
        """Host, process, channel, from rank, to rank, ``send`` or ``receive`` or empty, transport."""
        self.cut = False
        self._for: "Any" = None
        self._told: "Any" = None

    def add(self, channel: "Channel") -> None:
        if len(self.seen) < MAX_CHANNELS:
            self.seen.add(channel)
        else:
            self.cut = self.cut or channel not in self.seen

    def counted(self, mine: "Set[str]") -> "Tuple[List[Cell], List[str], Dict[int, int]]":
        """Return the four numbers, the transports with theirs, and network channels by the rank they go to.

        Of the hosts *mine*. A channel of the network is written by both its ends; sent ones are counted.
        """
        state = len(self.seen), self.cut, mine
        if state != self._for:
            self._for, self._told = state, self._count(mine)
        return self._told  # type: ignore[no-any-return]

    def _count(self, mine: "Set[str]") -> "Tuple[List[Cell], List[str], Dict[int, int]]":
        kinds: "Dict[str, int]" = {}
        peers: "Dict[int, int]" = {}
        for host, _, _, _, target, way, via in self.seen:
            if host not in mine or way == "receive":
                continue
            kinds[via] = kinds.get(via, 0) + 1
            if via.startswith(_NETWORKS):
                peers[target] = peers.get(target, 0) + 1
        net = {via: count for via, count in kinds.items() if via.startswith(_NETWORKS)}
        numbers: "List[Cell]" = [
            sum(kinds.values()), sum(net.values()),
            sum(count for via, count in net.items() if via.split("/")[1].endswith("Socket")),
            sum(count for via, count in net.items() if "/GDRDMA" in via),
        ]  # fmt: skip
        if self.cut:
            numbers = [Err("too many channels")] * 4
        return numbers, ["{} {}".format(via[: ITEM - 8], kinds[via]) for via in sorted(kinds)][:MAX_LIST], peers


class Comm(object):
    """One communicator as a file tells of it."""

    __slots__ = ("_told", "channels", "nranks", "ranks")

    def __init__(self, nranks: int) -> None:
        self.nranks = nranks
        self.channels = Channels()
        self.ranks: "Dict[Tuple[str, int], Rank]" = {}
        self._told: "Tuple[int, List[str]]" = (0, [])

    def members(self, host: str) -> "List[str]":
        """Return the ranks by host, our own first: ``gpu7 56-63``; at most 32 hosts."""
        if self._told[0] != len(self.ranks):
            by_host: "Dict[str, List[int]]" = {}
            for where, number in self.ranks:
                by_host.setdefault(where, []).append(number)
            names = sorted(by_host, key=lambda one: (one != host, min(by_host[one])))[:MAX_LIST]
            self._told = len(self.ranks), ["{} {}".format(one or "?", _folded(by_host[one]))[:ITEM] for one in names]
        return self._told[1]


class File(object):
    """One log: where it has been read to and what it said."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.error = ""
        self.lines = 0
        self.warnings = 0
        self.latest = ""
        """The newest warning, and the one that is told: a flood of them must not make each frame a full one."""
        self.warning = ""
        self.warned = -WARNING_SECONDS
        self.behind = 0
        self.version = ""
        self.networks: "List[str]" = []
        self.found: "List[str]" = []
        self.settings: "Dict[str, str]" = {}
        self.hosts: "Set[str]" = set()
        self.comms: "Dict[Name, Comm]" = {}
        self.loose = Channels()
        """Channels of threads that have not said to which communicator they belong."""
        self._inode: "Tuple[int, int]" = (0, 0)
        self._offset = -1
        self._part = b""
        self._skip = False
        """What comes first is the end of a line whose beginning was not read."""
        self._live = False
        """It was at its end the last time: what is there now has been written since."""
        self._threads: "Dict[Thread, Name]" = {}
        self._waiting: "Dict[Thread, List[Channel]]" = {}

    def read(self, path: str, now: float, wall: float) -> None:
        """Read on; *path* is where it lies, *now* the monotonic clock and *wall* the wall clock."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self.error = reason(error)
            return
        try:
            told = os.fstat(fd)
            if not stat.S_ISREG(told.st_mode):
                self.error = "not a regular file"
                return
            data = self._more(fd, told)
        except OSError as error:
            self.error = reason(error)
            return
        finally:
            os.close(fd)
        self.error = ""
        # What was there before we looked is at least as old as the file's last change.
        at = now if self._live else now - max(0.0, wall - told.st_mtime)
        lines = (self._part + data).split(b"\n")
        self._part = lines.pop()
        if len(self._part) > MAX_LINE:
            self._part = self._part[:MAX_LINE]
        for line in lines[1 if self._skip and lines else 0 :]:
            if b"NCCL" in line:
                self._line(line[:MAX_LINE].decode("utf-8", "replace"), at)
        self._skip = self._skip and not lines
        if self.latest != self.warning and now - self.warned >= WARNING_SECONDS:
            self.warning, self.warned = self.latest, now
        self._live = not self.behind

    def _more(self, fd: int, told: os.stat_result) -> bytes:
        inode = told.st_dev, told.st_ino
        if self._offset < 0 or inode != self._inode or told.st_size < self._offset:
            # New, rotated or cut short: from the beginning, unless that is far away.
            self._inode, self._offset, self._part = inode, 0, b""
            self._skip = self._live = False
        if told.st_size - self._offset > FIRST_BYTES:
            self._offset = told.st_size - FIRST_BYTES
            self._part, self._skip, self._live = b"", True, False
        data = b""
        if told.st_size > self._offset:
            data = os.pread(fd, FILE_BYTES, self._offset)
        self._offset += len(data)
        self.behind = max(0, told.st_size - self._offset)
        return data

    def _line(self, line: str, at: float) -> None:
        version = _VERSION.search(line)
        if version:
            self.version = version.group(1)
        heads = list(_HEAD.finditer(line))
        if not heads:
            bare = _BARE.match(line)
            if bare:
                self.lines += 1
                self._message(("", "", ""), "INFO", line[bare.end() :], None, at)
            return
        stamp = _seconds(line[: heads[0].start()])
        for place, head in enumerate(heads):
            self.lines += 1
            end = heads[place + 1].start() if place + 1 < len(heads) else len(line)
            host, text = head.group(1), line[head.end() : end]
            if place + 1 < len(heads):
                following = heads[place + 1].group(1)
                text += following[: len(following) - len(self._known(following))]
            if place:
                host = self._known(host)
            host = host.partition(".")[0]
            if len(self.hosts) < MAX_HOSTS:
                self.hosts.add(host)
            self._message((host, head.group(2), head.group(3)), head.group(4), text.rstrip(), stamp, at)

    def _known(self, host: str) -> str:
        """The known host that *host* ends with: lines of two ranks may be glued together."""
        if host in self.hosts:
            return host
        return max((name for name in self.hosts if host.endswith(name)), key=len, default=host)

    def _message(self, thread: "Thread", level: str, text: str, stamp: "Optional[float]", at: float) -> None:
        if level == "WARN":
            self.warnings += 1
            self.latest = text[:200]
            return
        if level in ("CALL", "TRACE"):
            return
        found = _CHANNEL.search(text)
        if found:
            self._channel(thread, found)
            return
        found = _INIT.search(text)
        what = _WHAT.search(text, found.end()) if found else None
        if found and what:
            self._init(thread, found, what.group(1), stamp, at)
            return
        found = _TIMINGS.search(text)
        if found:
            name = self._threads.get(thread, ("", 0))
            size = int(found.group(2))
            rank = self._rank(name if name[1] == size else ("", size), thread, int(found.group(1)))
            if rank is not None:
                rank.seconds, rank.by, rank.complete, rank.at = float(found.group(3)), BY_NCCL, True, at
            return
        found = _USING.search(text)
        if found:
            _note(self.found, "{} {}".format(found.group(1), found.group(2)[3:]))
            return
        if "NET/OFI" in text:
            _note(self.found, "OFI libfabric")
            return
        found = _NETWORK.search(text)
        if found:
            _note(self.networks, found.group(1))
            return
        found = _SET.search(text)
        if found:
            self.settings[found.group(1)] = found.group(2)

    def _channel(self, thread: "Thread", found: "Any") -> None:
        number, source, target, way, via = found.groups()
        channel = (thread[0], thread[1], int(number), int(source), int(target), way or "", _via(via))
        name = self._threads.get(thread)
        if name is not None and name in self.comms:
            self.comms[name].channels.add(channel)
            return
        # Older logs name the communicator last.
        waiting = self._waiting.get(thread)
        if waiting is None:
            if len(self._waiting) >= MAX_THREADS:
                del self._waiting[next(iter(self._waiting))]
            waiting = self._waiting[thread] = []
        if len(waiting) < MAX_CHANNELS // 8:
            waiting.append(channel)
        self.loose.add(channel)

    def _init(self, thread: "Thread", found: "Any", what: str, stamp: "Optional[float]", at: float) -> None:
        number, name = int(found.group(1)), (found.group(3) or "", int(found.group(2)))
        rank = self._rank(name, thread, number)
        if thread not in self._threads and len(self._threads) >= MAX_THREADS:
            del self._threads[next(iter(self._threads))]
        self._threads[thread] = name
        if rank is None:
            return
        clock = (BY_TIMES, stamp) if stamp is not None else (BY_ARRIVAL, at)
        rank.at = at
        if what == "START":
            rank.complete, rank.seconds, rank.started = False, None, clock
            return
        rank.complete = True
        # Lines that were there before we looked all come at one moment: when they ended is not known.
        if rank.seconds is None and rank.started is not None and rank.started[0] == clock[0]:
            took = clock[1] - rank.started[1]
            # Both in one reading: shorter than the time between two, and no more is known.
            if stamp is not None or (self._live and took > 0):
                rank.seconds, rank.by = max(0.0, took), clock[0]
        comm = self.comms.get(name)
        for channel in self._waiting.pop(thread, []):
            if comm is not None:
                comm.channels.add(channel)
            self.loose.seen.discard(channel)

    def _rank(self, name: "Name", thread: "Thread", number: int) -> "Optional[Rank]":
        comm = self.comms.get(name)
        if comm is None:
            comm = self.comms[name] = Comm(name[1])
            if len(self.comms) > MAX_COMMS:
                least = min(self.comms, key=lambda one: one[1])
                del self.comms[least]
                if least == name:
                    return None
        key = thread[0], number
        rank = comm.ranks.get(key)
        if rank is None or rank.pid != thread[1]:
            if rank is None and len(comm.ranks) >= MAX_RANKS:
                return None
            rank = comm.ranks[key] = Rank(thread[0], thread[1])
        return rank


def _folded(numbers: "List[int]") -> str:
    parts: "List[str]" = []
    first = last = -2
    for number in sorted(numbers) + [-9]:
        if number == last + 1:
            last = number
            continue
        if first >= 0:
            parts.append(str(first) if first == last else "{}-{}".format(first, last))
        first = last = number
    return ",".join(parts)


def _via(text: str) -> str:
    """The transport without the number of its device: ``NET/IB/3/GDRDMA(PCI)`` is ``NET/IB/GDRDMA(PCI)``."""
    text = text.strip()
    return _DEVICE.sub("", text, 1) if text.startswith(_NETWORKS) else text


def _note(said: "List[str]", text: str) -> None:
    text = text[:ITEM]
    if text not in said:
        said.append(text)
        del said[:-8]


def _seconds(text: str) -> "Optional[float]":
    """Seconds of a time that stands before a line, to be compared with another one; None where there is none."""
    found = _WHEN.search(text)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(one) for one in found.groups()[:6])
    if not (1970 <= year < 2200 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    part = found.group(7)
    try:
        # A time of the clock on the wall; which zone does not matter to a difference.
        whole = time.mktime((year, month, day, hour, minute, second, 0, 0, 0))
    except (OverflowError, ValueError):
        return None
    return whole + (int(part) / 10.0 ** len(part) if part else 0.0)
