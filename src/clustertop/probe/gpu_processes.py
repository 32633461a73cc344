"""Table ``process``: who computes on which GPU. Dear to ask, so it is read only for as long as someone asked."""

import re
import threading

from .frames import MAX_ROWS, Err, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

    from .files import Tree
    from .frames import Attr, Cell, Row

    Ask = Callable[..., Any]

COLUMNS = ["mem_used"]
EVERY_SECONDS = 5.0
MAX_SECONDS = 600.0
FUNCTIONS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
FUNCTION_NOT_FOUND = 13
MAX_COMMAND = 200
NAME_SECONDS = 0.2
"""A table waits this long for the names of users; those that come later are in the next one."""

_SLURM_JOB = re.compile(r"/job_(\d{1,20})(?:/|$)")
_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+")


class Users(object):
    """Names of users. A directory service that does not answer holds up a thread of its own only."""

    def __init__(self) -> None:
        self._names: "Dict[int, str]" = {}
        self._wanted: "Set[int]" = set()
        self._thread: "Optional[threading.Thread]" = None

    def names(self, uids: "Set[int]") -> "Dict[int, str]":
        """Return what each user is called; ``uid 1234`` where that is not known (yet)."""
        self._wanted |= {uid for uid in uids if uid not in self._names}
        if self._wanted and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._look_up, args=(set(self._wanted),), name="users")
            self._thread.daemon = True
            self._thread.start()
            self._thread.join(NAME_SECONDS)
        self._wanted -= set(self._names)
        return {uid: self._names.get(uid, "uid {}".format(uid)) for uid in uids}

    def _look_up(self, uids: "Set[int]") -> None:
        try:
            import pwd
        except ImportError:
            return
        for uid in uids:
            try:
                self._names[uid] = pwd.getpwuid(uid).pw_name
            except (KeyError, OverflowError, OSError):
                self._names[uid] = "uid {}".format(uid)


class Processes(object):
    """Reads the compute processes of GPUs while :attr:`until` lies ahead."""

    def __init__(self, tree: "Tree") -> None:
        self.until = 0.0
        self._tree = tree
        self._users = Users()
        self._next = 0.0
        self._function = ""
        self._table: "Optional[Table]" = None

    def want(self, now: float, seconds: object) -> None:
        """Read them for so many seconds from now on."""
        if now >= self.until:
            self._next = 0.0
        if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds > 0:
            self.until = now + min(float(seconds), MAX_SECONDS)
        else:
            self.until = now + 30.0

    def table(
        self, now: float, nvml: "Any", ask: "Ask", gpus: "List[Tuple[int, str, Any]]"
    ) -> "Optional[Table]":
        """Return the table, from *gpus*, each (index, key, handle or None).

        None where nobody has asked yet; without rows and columns once the time is over.
        """
        if self._table is None and now >= self.until:
            return None
        if now >= self.until:
            if self._table is not None and self._table.columns:
                self._table = Table([], [], [])
            return self._table
        if now < self._next and self._table is not None:
            return self._table
        self._next = now + EVERY_SECONDS - 0.5
        self._table = self._read(nvml, ask, gpus)
        return self._table

    def _read(self, nvml: "Any", ask: "Ask", gpus: "List[Tuple[int, str, Any]]") -> Table:
        found: "List[Tuple[str, int, Cell]]" = []
        problem = ""
        for index, key, handle in gpus:
            if handle is None:
                continue
            try:
                running = self._running(nvml, ask, index, handle)
            except nvml.NVMLError as error:
                problem = "GPU {}: {}".format(index, error)
                continue
            for one in running:
                used = one.usedGpuMemory
                found.append((key, int(one.pid), Err("not available") if used is None else used))
        merged: "Dict[Tuple[str, int], Cell]" = {}
        for key, pid, used in found[:MAX_ROWS]:
            # With MIG a process has an entry for each instance that it uses.
            old = merged.get((key, pid))
            merged[(key, pid)] = old + used if isinstance(old, int) and isinstance(used, int) else used
        told = {pid: self._tell(pid) for pid in sorted({pid for _, pid in merged})}
        names = self._users.names({uid for uid, _ in told.values() if uid is not None})
        rows: "List[Row]" = []
        for key, pid in merged:
            uid, attrs = told[pid]
            mine: "Dict[str, Attr]" = dict(attrs, gpu=key, pid=pid)
            if uid is not None:
                mine["user"] = names[uid]
                if "job" not in mine:
                    mine["job"], mine["job_kind"] = names[uid], "user"
            rows.append(("{}/{}".format(key, pid), mine))
        return Table(rows, COLUMNS, list(merged.values()), problem)

    def _running(self, nvml: "Any", ask: "Ask", index: int, handle: "Any") -> "Any":
        if self._function:
            return ask(self._function, index, handle)
        for function in FUNCTIONS:
            try:
                got = ask(function, index, handle)
            except nvml.NVMLError as error:
                if error.value == FUNCTION_NOT_FOUND and function != FUNCTIONS[-1]:
                    continue
                raise
            self._function = function
            return got
        return []

    def _tell(self, pid: int) -> "Tuple[Optional[int], Dict[str, Attr]]":
        """Return the user's number and what else ``/proc`` tells of a process; little, where it hides it."""
        base = "proc/{}/".format(pid)
        attrs: "Dict[str, Attr]" = {}
        uid = None
        for line in self._text(base + "status").split("\n"):
            if line.startswith("Name:"):
                attrs["command"] = "[{}]".format(clean(line[5:].strip()))
            elif line.startswith("Uid:"):
                parts = line.split()
                uid = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else None
                break
        command = clean(self._text(base + "cmdline", 4096).replace("\0", " "))
        if command:
            attrs["command"] = command
        job = job_of(self._text(base + "cgroup"))
        if job is None or job[1] != "slurm":
            number = self._environment(base + "environ", b"SLURM_JOB_ID=")
            job = (number, "slurm") if number else job
        if job is not None:
            attrs["job"], attrs["job_kind"] = job
        return uid, attrs

    def _environment(self, name: str, wanted: bytes) -> str:
        """Return one variable of a process of our own user; of nobody else's, and no other variable."""
        try:
            data = self._tree.read(name)
        except OSError:
            return ""
        for one in data.split(b"\0"):
            if one.startswith(wanted):
                value = one[len(wanted) :]
                return value.decode("ascii") if value.isdigit() and len(value) <= 20 else ""
        return ""

    def _text(self, name: str, limit: int = 16384) -> str:
        try:
            return self._tree.read(name, limit).decode("utf-8", "replace")
        except OSError:
            return ""


def job_of(cgroup: str) -> "Optional[Tuple[str, str]]":
    """Return the job of a ``/proc/<pid>/cgroup``: (id, ``slurm``) or (id, ``container``); None where it names none."""
    container = None
    for line in cgroup.split("\n"):
        path = line.split(":", 2)[-1]
        if "slurm" in path:
            found = _SLURM_JOB.search(path)
            if found:
                return found.group(1), "slurm"
        held = _CONTAINER.search(path)
        if held and container is None:
            container = held.group(1)[:12], "container"
    return container


def clean(text: str) -> str:
    """Return *text* on one line, without control characters, at most 200 characters long."""
    return _UNPRINTABLE.sub(" ", text)[:MAX_COMMAND].strip()
