"""Group ``bmc``: what the node's own BMC says in band, by the program ``ipmitool``. Its text travels as it is.

Only where the arguments name a tool. Three questions that read and change nothing; never a second run while one has not
ended: one that hangs in the kernel's IPMI driver cannot be ended at all. ipmitool(1); a node's /dev/ipmi0 is root's.
"""

import os
import select
import signal
import subprocess  # noqa: S404 - a fixed argument list, no shell
import time

from .files import Reading, reason
from .frames import MAX_TEXT, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from .files import Tree
    from .frames import Attr, Cell, Row

QUESTIONS = (
    ("sdr", ("sdr", "elist", "all")),
    ("dcmi", ("dcmi", "power", "reading")),
    ("power", ("chassis", "power", "status")),
)
RUN_SECONDS = 20.0
"""After this a run is ended, with everything it started."""
GRACE_SECONDS = 2.0
"""Between TERM and KILL, and between KILL and giving up."""
AGAIN_SECONDS = 3600.0
"""A question that the BMC does not understand is asked again so much later."""
MAX_BYTES = 1 << 18
MAX_LINES = 960
STILL_SECONDS = 60.0
"""Another's run of the tool that is older and sleeps in the kernel hangs."""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
_HZ = os.sysconf("SC_CLK_TCK")


class ToolError(Exception):
    """A run that gave no answer; the text says why."""


class Ipmi(object):
    """Reads table ``ipmi``: a row per line that the tool printed, in the column ``text``."""

    def __init__(self, tree: "Tree", tool: str, path: str = "") -> None:
        self._tree = tree
        self._tool = tool
        self._env = {"PATH": (path or os.environ.get("PATH", "") + ":" + PATH).strip(":"), "LC_ALL": "C"}
        self._child: "Optional[subprocess.Popen[bytes]]" = None
        """A run that could not be ended."""
        self._since = 0.0
        self._not_before: "Dict[str, float]" = {}
        self._rows: "List[Row]" = []
        self._tables: "Dict[str, Table]" = {}
        self._stopped = False

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        if self._tree.root:
            return Reading({}, "off")  # another machine's tree has no BMC of its own here
        lines: "List[Tuple[str, str]]" = []
        notes: "List[str]" = []
        for name, words in QUESTIONS:
            if now < self._not_before.get(name, 0.0):
                continue
            try:
                status, out, err = self._run(words)
            except ToolError as failed:
                return Reading(self._tables, "error", str(failed))
            if status != 0 and not out.strip():
                said = " ".join(err.split())[:200]
                if name == "sdr":
                    return Reading(self._tables, "error", self._why(said))
                notes.append("{}: {}".format(" ".join(words), said or "status {}".format(status)))
                self._not_before[name] = now + AGAIN_SECONDS
                continue
            room = MAX_LINES - len(lines)
            found = [line.rstrip()[:MAX_TEXT] for line in out.split("\n") if line.strip()][:room]
            lines += [("{}/{:03}".format(name, at), line) for at, line in enumerate(found)]
        rows: "List[Row]" = [(key, {}) for key, _ in lines]
        if rows and notes:
            attrs: "Dict[str, Attr]" = {"notes": "; ".join(notes)[:MAX_TEXT]}
            rows[0] = (rows[0][0], attrs)
        if rows != self._rows:
            self._rows = rows
        cells: "List[Cell]" = [text for _, text in lines]
        self._tables = {"ipmi": Table(self._rows, ["text"], cells)}
        return Reading(self._tables)

    def stop(self) -> None:
        """End what runs: the probe ends, and does not wait for it. Called by another thread."""
        self._stopped = True
        child = self._child
        if child is not None:
            _signal(child.pid, signal.SIGKILL)

    def close(self) -> None:
        """End what runs."""
        self.stop()

    def _why(self, said: str) -> str:
        if os.geteuid() != 0 and ("open device" in said or "ermission" in said or not said):
            return "{} needs root on the node: {}".format(self._tool, said or "no answer")
        return "{}: {}".format(self._tool, said or "no sensors and no reason")

    def _run(self, words: "Tuple[str, ...]") -> "Tuple[int, str, str]":
        """Run the tool once and return its status, output and complaints.

        Raises:
            ToolError: it is not there, or did not end in time.
        """
        self._wait_for_last()
        if self._stopped:
            raise ToolError("the probe ends")
        asked = self._tool + " " + " ".join(words)
        self._tree.call.what = asked
        try:
            child = subprocess.Popen(  # noqa: S603 - no shell; the operator named the program
                [self._tool] + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self._env, cwd="/", start_new_session=True, close_fds=True, bufsize=0,
            )  # fmt: skip
        except OSError as error:
            raise ToolError("{} cannot be run on the node: {}".format(self._tool, reason(error))) from None
        self._child, self._since = child, time.monotonic()
        out, err, ended = _collect(child, self._since + RUN_SECONDS)
        if not ended:
            self._end(child)
            raise ToolError("{}: no answer within {:.0f} s; it {}".format(
                asked, RUN_SECONDS, "was ended" if self._child is None else "cannot be ended"))
        _close(child)
        # What it may have left behind in its group.
        _signal(child.pid, signal.SIGKILL)
        self._child = None
        return child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def _wait_for_last(self) -> None:
        """Never a second one beside one that hangs: our own, or one that an earlier connection left behind."""
        child = self._child
        if child is not None:
            if child.poll() is None:
                _signal(child.pid, signal.SIGKILL)
                age = time.monotonic() - self._since
                raise ToolError("{} hangs in the kernel on the node (pid {}, started {:.0f} s ago)".format(
                    self._tool, child.pid, age))
            self._child = None
        comm = os.path.basename(self._tool)[:15]
        for pid in self._others(comm):
            raise ToolError("{} hangs in the kernel on the node (pid {}, not ours)".format(self._tool, pid))

    def _others(self, comm: str) -> "List[str]":
        out = []
        try:
            pids = [name for name in os.listdir("/proc") if name.isdigit()]
            up = float(self._tree.text("proc/uptime").split()[0])
        except (OSError, ValueError, IndexError):
            return []
        for pid in pids:
            if self._tree.text("proc/" + pid + "/comm") != comm:
                continue
            fields = self._tree.text("proc/" + pid + "/stat").rpartition(")")[2].split()
            try:
                if fields[0] == "D" and up - int(fields[19]) / _HZ > STILL_SECONDS:
                    out.append(pid)
            except (ValueError, IndexError):
                continue
        return out

    def _end(self, child: "subprocess.Popen[bytes]") -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal(child.pid, number)
            until = time.monotonic() + GRACE_SECONDS
            while child.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            if child.poll() is not None:
                _signal(child.pid, signal.SIGKILL)
                self._child = None
                break
        _close(child)


def _collect(child: "Any", until: float) -> "Tuple[bytes, bytes, bool]":
    """Return what it prints, at most so much of each, and whether it ended in time."""
    kept = {child.stdout.fileno(): b"", child.stderr.fileno(): b""}
    first, second = child.stdout.fileno(), child.stderr.fileno()
    open_ = [first, second]
    while open_:
        left = until - time.monotonic()
        if left <= 0:
            return kept[first], kept[second], False
        for fd in select.select(open_, [], [], min(left, 1.0))[0]:
            part = os.read(fd, 65536)
            if not part:
                open_.remove(fd)
            elif len(kept[fd]) < MAX_BYTES:
                kept[fd] += part[: MAX_BYTES - len(kept[fd])]
    while child.poll() is None:
        if time.monotonic() >= until:
            return kept[first], kept[second], False
        time.sleep(0.01)
    return kept[first], kept[second], True


def _close(child: "Any") -> None:
    for stream in (child.stdout, child.stderr):
        stream.close()


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:
        pass  # it is gone
