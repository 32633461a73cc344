"""Group ``nccl``: what the NCCL logs that the configuration names say of the communicators on this node.

Only regular files, read-only, from where the last reading ended; a file that is new is read from its last megabyte on.
The node counts and keeps (ranks, seconds, channels by transport); whether any of it is wrong is the console's to say.
"""

import glob
import os
import re
import time
import zlib

from .files import Reading, reason
from .frames import Err, Table, tenths
from .nccl_log import ITEM, MAX_LIST, File

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from .files import Tree
    from .frames import Attr, Cell, Row
    from .nccl_log import Comm, Rank

MAX_FILES = 8
"""Most files that are read: those written to last."""
MAX_MATCHES = 4096
MAX_PATTERNS = 16
LIST_SECONDS = 10.0
"""Between two looks for files that have appeared."""

COLUMNS = (
    "lines", "warnings", "behind", "ranks", "local_ranks", "complete", "init", "init_by", "init_rank",
    "init_time", "pending", "pending_time", "channels", "network_channels", "socket_channels", "direct_channels",
    "running", "other_hosts",
)  # fmt: skip
OF_FILE = 3
"""The first columns are of a file as a whole, the others of a communicator; channels also of a file, where they belong
to none."""
MAX_PROCESSES = 1024


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
            attrs["settings"] = ["{}={}".format(one, file.settings[one])[:ITEM] for one in sorted(file.settings)]
        # Lines of other nodes in a file that also has our own are theirs to report. In a container, or where none is
        # ours by name, all are taken.
        mine = {host} if host in file.hosts else file.hosts | {""}
        others = len(file.hosts - mine)
        rows_before = len(rows)
        of_file: "List[Cell]" = [file.lines, file.warnings, file.behind]
        nothing: "List[Cell]" = [None] * len(COLUMNS)
        channels, via, _ = file.loose.counted(mine)
        lone: "List[Cell]" = of_file + nothing[OF_FILE:]
        lone[12:16] = channels if file.loose.seen or not file.comms else nothing[12:16]
        lone[17] = others
        rows.append((key, dict(attrs, via=via) if via else dict(attrs)))
        values.append(lone)
        used = {key}
        for which, comm in file.comms.items():
            own = {one: rank for one, rank in comm.ranks.items() if one[0] in mine}
            ident = "{} {}/{}".format(key, which[0][:24] or "-", which[1])
            if ident in used or not own:
                continue
            used.add(ident)
            channels, via, peers = comm.channels.counted(mine)
            more = dict(attrs, comm=which[0], members=comm.members(host))
            if via:
                more["via"] = via
            if peers:
                more["peers"] = _by_host(peers, comm)
            rows.append((ident, more))
            values.append(nothing[:OF_FILE] + self._inits(comm, own) + channels + [self._running(own), others])
        if file.error:
            # What was known of it is no longer known: that it is gone is something else.
            for at in range(rows_before, len(rows)):
                values[at] = [Err(file.error)] * len(COLUMNS)

    def _inits(self, comm: "Comm", own: "Dict[Tuple[str, int], Rank]") -> "List[Cell]":
        timed = {number: rank for number, rank in own.items() if rank.seconds is not None}
        slowest = max(timed, key=lambda one: timed[one].seconds or 0.0, default=None)
        at = [rank.at for rank in own.values() if rank.at is not None]
        pending = [rank.at for rank in own.values() if not rank.complete and rank.at is not None]
        complete = sum(rank.complete for rank in own.values())
        init: "List[Cell]" = [Err("not timed"), None, None] if complete else [Err("not complete"), None, None]
        if slowest is not None:
            init = [timed[slowest].seconds, timed[slowest].by, slowest[1]]
        return [
            comm.nranks, len(own), complete, init[0], init[1], init[2], tenths(max(at)) if at else None,
            len(pending), tenths(min(pending)) if pending else None,
        ]  # fmt: skip

    def _running(self, own: "Dict[Tuple[str, int], Rank]") -> "Cell":
        """How many of its processes run here; not provided where none was ever seen (another name space)."""
        known = 0
        running = 0
        for pid, host in {(rank.pid, rank.host) for rank in own.values() if rank.pid}:
            alive = self._tree.is_dir("proc/" + pid)
            if alive:
                if len(self._alive) >= MAX_PROCESSES:
                    self._alive.clear()
                self._alive[host, pid] = True
            if (host, pid) in self._alive:
                known += 1
                running += alive
        return running if known else None


def _by_host(peers: "Dict[int, int]", comm: "Comm") -> "List[str]":
    """Channels by where their other ends are: ``gpu8 16``; ``#43 2`` where the file does not say where rank 43 runs."""
    places = {number: where for where, number in comm.ranks}
    sums: "Dict[str, int]" = {}
    for rank in sorted(peers):
        place = places.get(rank) or "#{}".format(rank)
        sums[place] = sums.get(place, 0) + peers[rank]
    return ["{} {}".format(place[: ITEM - 8], sums[place]) for place in sums][:MAX_LIST]


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
