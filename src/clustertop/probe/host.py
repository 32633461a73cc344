"""Group ``host``: the machine itself, its network interfaces, and facts that name it."""

import functools
import os
import sys

from . import interfaces
from .files import Reading, reason
from .frames import Err, Table
from .jobs import Jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from .files import Tree
    from .frames import Attr, Cell, Row

RELIST_SECONDS = 60.0
SELDOM_SECONDS = 10.0

NODE_COLUMNS = (
    "ncpu", "cpu_total", "cpu_idle", "load1", "load5", "load15", "mem_total", "mem_available", "swap_total",
    "swap_free", "uptime", "psi_cpu", "psi_mem", "psi_io",
)  # fmt: skip
_STATISTICS = (
    "rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
)  # fmt: skip
NET_COLUMNS = _STATISTICS + ("carrier_changes", "speed_mbps", "mtu", "operstate")
_MEMORY = (b"MemTotal:", b"MemAvailable:", b"SwapTotal:", b"SwapFree:")


class Host(object):
    """Reads tables ``node`` and ``net``."""

    def __init__(self, tree: "Tree") -> None:
        self._tree = tree
        self._jobs = Jobs(tree)
        self._facts: "Dict[str, Attr]" = {}
        self._listed = -RELIST_SECONDS
        self._looked = -SELDOM_SECONDS
        self._found: "List[str]" = []
        self._names: "List[str]" = []
        self._rows: "List[Row]" = []
        self._seldom: "Dict[str, Cell]" = {}
        self._ncpu: "Cell" = Err("not read")
        self._error = ""

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        if now - self._looked >= SELDOM_SECONDS:
            self._looked = now
            self._look(now)
        node = Table([("", self._jobs.attrs(now))], list(NODE_COLUMNS), self._node())
        return Reading({"node": node, "net": self._net()}, facts=self._facts)

    def close(self) -> None:
        """Close the files kept open."""
        self._tree.forget()

    def _look(self, now: float) -> None:
        """Look for interfaces that came or went, and read what seldom changes."""
        tree = self._tree
        again = False
        try:
            found = interfaces.names(tree)
            self._error = ""
        except OSError as error:
            found = self._found
            self._error = "{}: {}".format(reason(error), tree.path("sys/class/net"))
        if now - self._listed >= RELIST_SECONDS:
            self._listed = now
            self._ask_facts()
            again = True
        if not self._error and (again or found != self._found):
            self._found = found
            self._relist(found)
        # `speed` and `mtu` ask the driver and take its lock: not every tick.
        self._seldom = {
            file + name: tree.cell("sys/class/net/" + name + file)
            for name in self._names
            for file in ("/speed", "/mtu")
        }

    def _ask_facts(self) -> None:
        tree = self._tree
        facts = {
            "host": tree.text("proc/sys/kernel/hostname"),
            "kernel": tree.text("proc/sys/kernel/osrelease"),
            "boot_id": tree.text("proc/sys/kernel/random/boot_id"),
            "os": _os_name(tree.text("etc/os-release") or tree.text("usr/lib/os-release")),
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "arch": os.uname().machine,
        }
        self._facts = {name: text for name, text in facts.items() if text}
        self._ncpu = _cpus(tree)

    def _relist(self, names: "List[str]") -> None:
        rows = interfaces.listed(self._tree, names)
        listed = [row for _, row in rows]
        if listed != self._rows:
            self._rows = listed
            self._names = [name for name, _ in rows]
            self._tree.forget()

    def _net(self) -> Table:
        tree = self._tree
        names = self._names
        cells = [
            tree.hot("sys/class/net/" + name + "/statistics/" + column)
            for column in _STATISTICS
            for name in names
        ]
        cells += [tree.hot("sys/class/net/" + name + "/carrier_changes") for name in names]
        cells += [self._seldom["/speed" + name] for name in names]
        cells += [self._seldom["/mtu" + name] for name in names]
        cells += [tree.hot("sys/class/net/" + name + "/operstate") for name in names]
        return Table(self._rows, list(NET_COLUMNS), cells, self._error)

    def _node(self) -> "List[Cell]":
        tree = self._tree
        cells: "List[Cell]" = [self._ncpu]
        cells += _guard(2, lambda: _cpu(tree.again("proc/stat", 4096)))
        cells += _guard(3, lambda: [float(word) for word in tree.again("proc/loadavg", 256).split()[:3]])
        cells += _guard(4, lambda: _memory(tree.again("proc/meminfo", 8192)))
        cells += _guard(1, lambda: [float(tree.again("proc/uptime", 256).split()[0])])
        for name in ("cpu", "memory", "io"):
            cells += _guard(1, functools.partial(_pressure, tree, "proc/pressure/" + name))
        return cells


def _guard(count: int, get: "Callable[[], List[Cell]]") -> "List[Cell]":
    """Return the *count* cells that *get* returns, or as many that say why not."""
    try:
        cells = get()
        if len(cells) == count:
            return cells
    except OSError as error:
        return [Err(reason(error))] * count
    except (ValueError, IndexError):
        pass
    return [Err("not understood")] * count


def _cpus(tree: "Tree") -> "Cell":
    try:
        lines = tree.read("proc/stat").split(b"\n")
    except OSError as error:
        return Err(reason(error))
    return sum(1 for line in lines if line[:3] == b"cpu" and line[3:4].isdigit()) or Err("not understood")


def _cpu(data: bytes) -> "List[Cell]":
    words = data.split(b"\n", 1)[0].split()
    if not words or words[0] != b"cpu":
        raise ValueError("no cpu line")
    # guest and guest_nice are counted in user and nice already.
    jiffies = [int(word) for word in words[1:9]]
    return [sum(jiffies), sum(jiffies[3:5])]


def _memory(data: bytes) -> "List[Cell]":
    found: "Dict[bytes, Cell]" = {}
    for line in data.split(b"\n"):
        words = line.split()
        if len(words) >= 2 and words[0] in _MEMORY:
            found[words[0]] = int(words[1]) * (1024 if words[2:3] == [b"kB"] else 1)
    return [found.get(name, Err("not provided")) for name in _MEMORY]


def _pressure(tree: "Tree", name: str) -> "List[Cell]":
    for line in tree.again(name, 1024).split(b"\n"):
        words = line.split()
        if words[:1] == [b"some"]:
            for word in words[1:]:
                if word.startswith(b"avg10="):
                    return [float(word[6:])]
    raise ValueError("no line 'some'")


def _os_name(text: str) -> str:
    for line in text.split("\n"):
        if line.startswith("PRETTY_NAME="):
            return line[12:].strip().strip("\"'")
    return ""
