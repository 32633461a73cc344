"""Group ``nccl``: what the NCCL logs that the configuration names say of the communicators on this node.

Only regular files, read-only, from where the last reading ended; a file that is new is read from its last megabyte on.
The node counts and keeps (ranks, seconds, channels by transport); whether any of it is wrong is the console's to say.
Wording: NVIDIA/nccl src/init.cc and src/transport of 2.7 to 2.30, as ``signals/nccl.py`` of the console reads it.
"""

import glob
import os
import re
import stat
import time
import zlib

from .files import Reading, reason
from .frames import Err, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

    from .files import Tree
    from .frames import Attr, Cell, Row

    Thread = Tuple[str, str, str]
    Name = Tuple[str, int]
    Channel = Tuple[str, str, int, int, int, str, str]

MAX_FILES = 8
"""Most files that are read: those written to last."""
MAX_MATCHES = 4096
MAX_PATTERNS = 16
FIRST_BYTES = 1 << 20
"""How far from its end a file is begun, and how far a reading may be behind: what lies before is passed over."""
FILE_BYTES = 1 << 17
"""Most bytes of one file that one reading takes; the rest waits for the next."""
LIST_SECONDS = 10.0
"""Between two looks for files that have appeared."""
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
_ITEM = 64

COLUMNS = (
    "lines", "warnings", "behind", "ranks", "local_ranks", "complete", "init", "init_by", "init_rank",
    "init_time", "pending", "pending_time", "channels", "network_channels", "socket_channels", "direct_channels",
    "running", "other_hosts",
)  # fmt: skip
OF_FILE = 3
"""The first columns are of a file as a whole, the others of a communicator; channels also of a file, where they belong
to none."""
BY_NCCL, BY_TIMES, BY_ARRIVAL = 0, 1, 2

_HEAD = re.compile(
    r"([A-Za-z0-9_][\w.-]{0,252}):(\d{1,10}):(\d{1,10}) (?:\[\d+\] )?(?:[\w/.]+:\d+ )?NCCL (INFO|WARN|VERSION) ?",
    re.ASCII,
)
_BARE = re.compile(r"\s*NCCL (?:INFO|WARN) ")
_VERSION = re.compile(r"NCCL version (\d[\w.]{0,20}(?:\+\w[\w.]{0,20})?)")
_WHEN = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_INIT = re.compile(
    r"comm 0x[\w.]{1,32} rank (\d{1,7}) nranks (\d{1,7}) cudaDev -?\d{1,5}(?: nvmlDev -?\d{1,5})?(?: busId \w{1,16})?"
    r"(?: commId (0x[\w.]{1,32}))?",
    re.ASCII,
)
_WHAT = re.compile(r" - Init (START|COMPLETE)")
_TIMINGS = re.compile(r"Init timings(?: - \w+)?: rank (\d{1,7}) nranks (\d{1,7}) total (\d{1,9}(?:\.\d{1,9})?)", re.ASCII)
_CHANNEL = re.compile(
    r"(?:Channel|Ring) (\d{1,5})(?:/\d+)? : (\d{1,7})(?:\[\w+\])? -> (\d{1,7})(?:\[\w+\])?"
    r"(?: \[(send|receive)\])? via (.{1,80})",
    re.ASCII,
)
_USING = re.compile(r"NET/([^:\[\]]{1,40}?)\s*:? Using (\[0\][^ ;]{1,60})")
_NETWORK = re.compile(r"Using network (.{1,40}?)\s*$")
_SET = re.compile(
    r"(NCCL_(?:IB_DISABLE|NET|P2P_DISABLE|SHM_DISABLE|NET_GDR_LEVEL|IB_HCA)) set (?:by environment )?to (.{1,60}?)\.?\s*$"
)
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

    __slots__ = ("cut", "seen")

    def __init__(self) -> None:
        self.seen: "Set[Channel]" = set()
        """Host, process, channel, from rank, to rank, ``send`` or ``receive`` or empty, transport."""
        self.cut = False

    def add(self, channel: "Channel") -> None:
        if len(self.seen) < MAX_CHANNELS:
            self.seen.add(channel)
        else:
            self.cut = self.cut or channel not in self.seen


class Comm(object):
    """One communicator as a file tells of it."""

    __slots__ = ("channels", "nranks", "ranks")

    def __init__(self, nranks: int) -> None:
        self.nranks = nranks
        self.channels = Channels()
        self.ranks: "Dict[Tuple[str, int], Rank]" = {}


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


class Nccl(object):
    """Reads table ``nccl``: a row per file, and one per communicator of it."""

    def __init__(self, tree: "Tree", logs: "List[str]") -> None:
        self._tree = tree
        self._patterns = [str(one) for one in logs][:MAX_PATTERNS]
        self._files: "Dict[str, File]" = {}
        self._refused: "Dict[str, str]" = {}
        self._left_out = 0
        self._listed = -LIST_SECONDS
        self._rows: "List[Row]" = []
        self._alive: "Dict[Tuple[str, str], bool]" = {}
        """By host and process: whether it runs; only of those that were seen running."""

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        if not self._patterns:
            return Reading({}, "off")
        wall = time.time()
        if now - self._listed >= LIST_SECONDS:
            self._listed = now
            self._list()
        for path, file in self._files.items():
            self._tree.call.what = path
            file.read(path, now, wall)
        rows: "List[Row]" = []
        values: "List[List[Cell]]" = []
        host = self._tree.text("proc/sys/kernel/hostname").partition(".")[0]
        for pattern, why in self._refused.items():
            rows.append((_key(pattern), {"file": pattern}))
            values.append([Err(why)] * len(COLUMNS))
        for file in self._files.values():
            self._report(file, host, rows, values)
        facts: "Dict[str, Attr]" = {}
        if self._left_out:
            facts["nccl_files"] = "{} more files match and are not read".format(self._left_out)
        if rows != self._rows:
            self._rows = rows
        cells = [one[at] for at in range(len(COLUMNS)) for one in values]
        return Reading({"nccl": Table(self._rows, list(COLUMNS), cells)}, facts=facts)

    def close(self) -> None:
        """Nothing is kept open."""

    def _list(self) -> None:
        root = self._tree.root
        found: "Dict[str, float]" = {}
        self._refused = {}
        for pattern in self._patterns:
            self._tree.call.what = pattern
            count = len(found)
            for path in glob.iglob(root + "/" + pattern.lstrip("/")):
                if len(found) >= MAX_MATCHES:
                    break
                try:
                    found[path] = os.stat(path).st_mtime
                except OSError:
                    found[path] = 0.0
            if len(found) == count:
                why = _closed(root + "/" + pattern.lstrip("/"))
                if why:
                    self._refused[pattern] = why
        newest = sorted(found, key=lambda path: (-found[path], path))
        self._left_out = max(0, len(newest) - MAX_FILES)
        kept = sorted(newest[:MAX_FILES])
        self._files = {path: self._files.get(path) or File(path[len(root) :]) for path in kept}

    def _report(self, file: File, host: str, rows: "List[Row]", values: "List[List[Cell]]") -> None:
        key = _key(file.path)
        attrs: "Dict[str, Attr]" = {"file": file.path}
        if file.version:
            attrs["version"] = file.version
        for name, said in (("network", file.networks), ("found", file.found)):
            if said:
                attrs[name] = list(said)
        if file.warning:
            attrs["warning"] = file.warning
        if file.settings:
            attrs["settings"] = ["{}={}".format(one, file.settings[one])[:_ITEM] for one in sorted(file.settings)]
        # Lines of other nodes in a file that also has our own are theirs to report. In a container, or where none is
        # ours by name, all are taken.
        mine = {host} if host in file.hosts else file.hosts | {""}
        others = len(file.hosts - mine)
        if file.error:
            rows.append((key, attrs))
            values.append([Err(file.error)] * len(COLUMNS))
            return
        of_file: "List[Cell]" = [file.lines, file.warnings, file.behind]
        nothing: "List[Cell]" = [None] * len(COLUMNS)
        channels, via, _ = _counted(file.loose, mine)
        lone: "List[Cell]" = of_file + nothing[OF_FILE:]
        lone[12:16] = channels if file.loose.seen or not file.comms else nothing[12:16]
        lone[17] = others
        rows.append((key, dict(attrs, via=via) if via else dict(attrs)))
        values.append(lone)
        used = {key}
        for name, comm in file.comms.items():
            own = {one: rank for one, rank in comm.ranks.items() if one[0] in mine}
            ident = "{} {}/{}".format(key, name[0][:24] or "-", name[1])
            if ident in used or not own:
                continue
            used.add(ident)
            more, members = dict(attrs), _members(comm, host)
            channels, via, peers = _counted(comm.channels, mine)
            places = {number: where for where, number in comm.ranks}
            more["comm"] = name[0]
            more["members"] = members
            if via:
                more["via"] = via
            if peers:
                said = ["{} {}".format(places.get(rank, "#{}".format(rank)), peers[rank]) for rank in sorted(peers)]
                more["peers"] = _merged(said)[:MAX_LIST]
            rows.append((ident, more))
            values.append(nothing[:OF_FILE] + self._inits(comm, own) + channels + [self._running(own), others])

    def _inits(self, comm: Comm, own: "Dict[Tuple[str, int], Rank]") -> "List[Cell]":
        timed = {number: rank for number, rank in own.items() if rank.seconds is not None}
        slowest = max(timed, key=lambda one: timed[one].seconds or 0.0, default=None)
        at = [rank.at for rank in own.values() if rank.at is not None]
        pending = [rank.at for rank in own.values() if not rank.complete and rank.at is not None]
        complete = sum(rank.complete for rank in own.values())
        init: "List[Cell]" = [Err("not timed"), None, None] if complete else [Err("not complete"), None, None]
        if slowest is not None:
            init = [timed[slowest].seconds, timed[slowest].by, slowest[1]]
        return [
            comm.nranks, len(own), complete, init[0], init[1], init[2], round(max(at), 1) if at else None,
            len(pending), round(min(pending), 1) if pending else None,
        ]  # fmt: skip

    def _running(self, own: "Dict[Tuple[str, int], Rank]") -> "Cell":
        """How many of its processes run here; not provided where none was ever seen (another name space)."""
        known = 0
        running = 0
        for pid, host in {(rank.pid, rank.host) for rank in own.values() if rank.pid}:
            alive = self._tree.is_dir("proc/" + pid)
            if alive:
                if len(self._alive) >= MAX_THREADS:
                    self._alive.clear()
                self._alive[host, pid] = True
            if (host, pid) in self._alive:
                known += 1
                running += alive
        return running if known else None


def _counted(channels: Channels, mine: "Set[str]") -> "Tuple[List[Cell], List[str], Dict[int, int]]":
    """Return the four numbers of channels, the transports with theirs, and network channels by the rank they go to.

    A channel of the network is written by both its ends. Sent ones are counted, of sockets and direct ones too.
    """
    kinds: "Dict[str, int]" = {}
    peers: "Dict[int, int]" = {}
    for host, _, _, _, target, way, via in channels.seen:
        if host not in mine or way == "receive":
            continue
        kinds[via] = kinds.get(via, 0) + 1
        if via.startswith(("NET/", "COLLNET/")):
            peers[target] = peers.get(target, 0) + 1
    net = {via: count for via, count in kinds.items() if via.startswith(("NET/", "COLLNET/"))}
    numbers = [
        sum(kinds.values()), sum(net.values()),
        sum(count for via, count in net.items() if via.split("/")[1].endswith("Socket")),
        sum(count for via, count in net.items() if "/GDRDMA" in via),
    ]  # fmt: skip
    cells: "List[Cell]" = [Err("too many channels")] * 4 if channels.cut else list(numbers)
    return cells, ["{} {}".format(via[: _ITEM - 8], kinds[via]) for via in sorted(kinds)][:MAX_LIST], peers


def _merged(said: "List[str]") -> "List[str]":
    """Peers by host: the numbers of its ranks together."""
    sums: "Dict[str, int]" = {}
    for one in said:
        name, _, count = one.rpartition(" ")
        sums[name] = sums.get(name, 0) + int(count)
    return ["{} {}".format(name[: _ITEM - 8], count) for name, count in sums.items()]


def _members(comm: Comm, host: str) -> "List[str]":
    """The ranks by host, our own first: ``gpu7 56-63``; at most 32 hosts."""
    by_host: "Dict[str, List[int]]" = {}
    for where, number in comm.ranks:
        by_host.setdefault(where, []).append(number)
    names = sorted(by_host, key=lambda one: (one != host, min(by_host[one])))[:MAX_LIST]
    return ["{} {}".format(name or "?", _folded(by_host[name]))[:_ITEM] for name in names]


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


def _key(path: str) -> str:
    """The path, or its end and what tells it from others with the same end: a key has little room."""
    plain = "".join(one if " " < one <= "~" else "?" for one in path)
    if len(path) <= 72 and plain == path:
        return path
    return "~{:08x}{}".format(zlib.crc32(path.encode("utf-8", "surrogateescape")) & 0xFFFFFFFF, plain[-60:])


def _closed(pattern: str) -> str:
    """Why nothing of *pattern* is seen, where its folder may not be listed; empty where it may be, or is not there."""
    wild = re.search(r"[*?\[]", pattern)
    folder = os.path.dirname(pattern[: wild.start()] if wild else pattern)
    try:
        if wild:
            os.listdir(folder or "/")
        else:
            os.stat(pattern)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return reason(error)
    return ""


def _via(text: str) -> str:
    """The transport without the number of its device: ``NET/IB/3/GDRDMA(PCI)`` is ``NET/IB/GDRDMA(PCI)``."""
    text = text.strip()
    return _DEVICE.sub("", text, 1) if text.startswith(("NET/", "COLLNET/")) else text


def _note(said: "List[str]", text: str) -> None:
    text = text[:_ITEM]
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
