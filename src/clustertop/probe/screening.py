"""Group ``screen``: facts that make nodes differ and that no counter shows.

How long the node takes to look up its own host name (getaddrinfo(3)), sysctls of its network
(kernel Documentation/admin-guide/sysctl/net.rst and Documentation/networking/ip-sysctl.rst), and which known monitors
run on it, by the kernel's short names of its processes (proc(5), ``/proc/<pid>/comm``): only names and counts.
"""

import os
import socket
import threading
import time

from .files import Reading, reason
from .frames import Err, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from .files import Tree
    from .frames import Attr, Cell

NAME_SECONDS = 5.0
"""A name that takes longer to look up has no answer yet; the lookup goes on in its own thread."""
MAX_PROCESSES = 32768
"""Most processes whose names are read."""
_BREATH = 256
"""After so many names other threads get their turn."""
_COMM = 15
"""The kernel keeps so many characters of a name."""

COLUMNS = ("dns_seconds", "dns", "somaxconn", "slow_start_after_idle", "monitors")
MONITORS = (
    "all-smi", "collectd", "datadog-agent", "dcgm-exporter", "dcgmi", "gpud", "gpustat", "netdata", "node_exporter",
    "nv-hostengine", "nvidia-smi", "nvidia_gpu_exporter", "nvidia_gpu_prometheus_exporter", "nvitop",
    "nvitop-exporter", "nvtop", "process-agent", "telegraf", "trace-agent", "zabbix_agent2", "zabbix_agentd",
)  # fmt: skip
"""Processes that watch machines, as they are called; ``process-agent`` and ``trace-agent`` are Datadog's."""


class Lookup(object):
    """Looks a name up in a thread of its own, one at a time: a resolver that hangs holds up nothing else."""

    def __init__(self, resolve: "Callable[[bytes], object]") -> None:
        self._resolve = resolve
        self._thread: "Optional[threading.Thread]" = None
        self._began = 0.0
        self._said = (0.0, "", "")

    def ask(self, host: bytes, limit: float) -> "Tuple[float, str, str]":
        """Return seconds, ``ok``, ``no answer`` or the error's name, and the error's words.

        Without an answer in *limit* seconds: so long so far. What comes later is the answer of the next call.
        """
        if self._thread is None:
            self._began = time.monotonic()
            self._thread = threading.Thread(target=self._run, args=(host,), name="name")
            self._thread.daemon = True
            self._thread.start()
        self._thread.join(limit)
        if self._thread.is_alive():
            return time.monotonic() - self._began, "no answer", ""
        self._thread = None
        return self._said

    def _run(self, host: bytes) -> None:
        name, words = "ok", ""
        try:
            self._resolve(host)
        except socket.gaierror as error:
            name, words = _eai(error.errno), str(error.strerror or "")
        except OSError as error:
            name, words = reason(error), str(error.strerror or "")
        except Exception as error:
            name, words = type(error).__name__, str(error)
        self._said = (time.monotonic() - self._began, name, words)


class Screen(object):
    """Reads table ``screen``: one row, whose key is empty."""

    def __init__(self, tree: "Tree", resolve: "Optional[Callable[[bytes], object]]" = None) -> None:
        self._tree = tree
        # Another machine's name looked up here says nothing about that machine.
        self._elsewhere = bool(tree.root) and resolve is None
        self._lookup = Lookup(resolve or _resolve)

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; it takes :data:`NAME_SECONDS` where the resolver does not answer."""
        attrs: "Dict[str, Attr]" = {}
        tree = self._tree
        cells = [
            tree.cell("proc/sys/net/core/somaxconn"),
            tree.cell("proc/sys/net/ipv4/tcp_slow_start_after_idle"),
            self._monitors(attrs),
        ]
        return Reading({"screen": Table([("", attrs)], list(COLUMNS), self._name(attrs) + cells)})

    def close(self) -> None:
        """Nothing is held; a lookup that hangs ends with the process."""

    def _name(self, attrs: "Dict[str, Attr]") -> "List[Cell]":
        host = self._tree.text("proc/sys/kernel/hostname")
        if not host or self._elsewhere:
            return [Err("not asked for another root" if host else "no host name")] * 2
        attrs["host"] = host
        self._tree.call.what = "getaddrinfo({})".format(host)
        seconds, said, words = self._lookup.ask(host.encode("utf-8"), NAME_SECONDS)
        if words:
            attrs["dns_error"] = words
        # Tenths: an answer that takes as long as ever is no news.
        return [round(seconds, 1), said]

    def _monitors(self, attrs: "Dict[str, Attr]") -> "Cell":
        """Return how many known monitors run, and put which and how many of each into *attrs*."""
        tree = self._tree
        try:
            # Where /proc hides what belongs to others (hidepid), the first process cannot be read.
            tree.read("proc/1/comm", 64)
            numbers = [name for name in os.listdir(tree.path("proc")) if name.isdigit()][:MAX_PROCESSES]
        except OSError as error:
            return Err("processes hidden: {}".format(reason(error)))
        counts: "Dict[str, int]" = {}
        for at, number in enumerate(numbers):
            if at % _BREATH == _BREATH - 1:
                time.sleep(0.002)
            try:
                name = _KNOWN.get(tree.read("proc/" + number + "/comm", 64).strip())
            except OSError:
                continue
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        if counts:
            attrs["monitors"] = ["{} {}".format(name, counts[name]) for name in sorted(counts)]
        return sum(counts.values())


_KNOWN = {name[:_COMM].encode("ascii"): name for name in MONITORS}


def _resolve(host: bytes) -> object:
    # As bytes: a str would load the tables of the idna codec.
    return socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM)


def _eai(code: "Optional[int]") -> str:
    """Return the name of a getaddrinfo error, for example ``EAI_AGAIN``."""
    for name in dir(socket):
        if name.startswith("EAI_") and getattr(socket, name) == code:
            return name
    return "EAI {}".format(code)
