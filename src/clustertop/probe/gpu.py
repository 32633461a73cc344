"""Group ``gpu``: what NVML says of each device, through pynvml, kept open for as long as the probe lives.

Cheap things every tick, dear ones seldom (``gpu_fields``). A lost GPU costs its own row; a driver that was
unloaded costs the group until it is back. On request it lets go of the devices and takes them again.
"""

import gc
import linecache
import time

from . import gpu_fields as fields
from . import stuck
from .files import Reading
from .frames import Err, Table
from .gpu_fields import FUNCTION_NOT_FOUND, GPU_IS_LOST, LACKS, NOT_SUPPORTED, RESTART, SPECS
from .gpu_processes import Processes
from .kmsg import Log
from .xid import COLUMNS as XID_COLUMNS
from .xid import Xids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from .files import Call, Tree
    from .frames import Attr, Cell, Row

RELIST_SECONDS = 10.0
RESTART_SECONDS = 10.0
UNSUPPORTED_SECONDS = 60.0
MAX_GPUS = 64
SPREAD = 8
"""What is read seldom falls to the GPUs in turn, not to all of them in one tick."""
RELEASED = "released by the operator"

FIELD_COLUMNS: "List[str]" = [column for spec in SPECS for column in spec[0]]
COLUMNS: "List[str]" = FIELD_COLUMNS + list(XID_COLUMNS)


def _give_back(ctypes: "Any") -> None:
    """Give memory that compiling took back to the system, where the C library can (glibc)."""
    linecache.cache.pop("<bundle>/pynvml.py", None)
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


def _time(value: object) -> "Optional[float]":
    """Return *value* where it can be a time in seconds; True and the like are none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class RestartError(Exception):
    """NVML must be started again; the text is its reason, in its own words."""


class Gpu(object):
    """One device: its identity, its handle (None while it cannot be had), and what was last read."""

    __slots__ = ("due", "handle", "index", "row", "skip", "values")

    def __init__(self, index: int, row: "Row") -> None:
        self.index = index
        self.row = row
        self.handle: "Any" = None
        self.values: "List[Cell]" = [None] * len(FIELD_COLUMNS)
        self.due = [0.0] * len(SPECS)
        self.skip: "Dict[int, float]" = {}
        """Fields that this card does not have, and when to ask again."""

    def lost(self, words: str) -> None:
        """Every cell says why."""
        self.handle = None
        self.values = [Err(words)] * len(FIELD_COLUMNS)
        self.due = [0.0] * len(SPECS)


class Gpus(object):
    """Reads tables ``gpu`` and, on request, ``process``. ``seconds`` is the time spent in NVML so far.

    With *per_poll* NVML is started for each reading and shut down after it. With *released* nothing is held at first:
    True, or the console's time at which the operator had them let go, which is only told on.
    """

    def __init__(
        self, tree: "Tree", call: "Call", library: str = "", per_poll: bool = False, released: object = False,
        log: "Optional[Log]" = None,
    ) -> None:  # fmt: skip
        self.seconds = 0.0
        self.starting = False
        """NVML is being started, which wakes GPUs without persistence mode and takes its time."""
        self._tree = tree
        self._call = call
        self._library = library
        self._per_poll = per_poll
        self._released = bool(released)
        self._since = _time(released)
        self._nvml: "Any" = None
        self._started = False
        self._retry_at = 0.0
        self._state = ("wait", "")
        self._gpus: "List[Gpu]" = []
        self._rows: "List[Row]" = []
        self._listed = 0.0
        self._lost: "Dict[int, str]" = {}
        self._table_error = ""
        self._facts: "Dict[str, Attr]" = {}
        self._said: "Dict[int, str]" = {}
        self._chosen: "Dict[int, str]" = {}
        self._xids = Xids(log or Log(tree.root))
        self._processes = Processes(tree)

    def obey(self, request: "Dict[str, Any]", now: float) -> None:
        """Do what an operator asks before the next reading: ``release``, since ``at``, ``take``, ``procs``."""
        what = request.get("do")
        if what == "release":
            self._released = True
            self._since = _time(request.get("at"))
        elif what == "take":
            self._released = False
            self._since = None
            self._retry_at = 0.0
        elif what == "procs":
            self._processes.want(now, request.get("seconds"))

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        if self._released:
            self._state = ("released", RELEASED) if self.let_go() else ("error", "cannot let go: a wait hangs")
            return self._failed()
        if not self._started:
            if now < self._retry_at:
                return self._failed()
            self.starting = True
            try:
                self._state = self._start()
            finally:
                self.starting = False
            if self._state[0] != "ok":
                self._retry_at = now + (60.0 if self._state[0] == "off" else RESTART_SECONDS)
                return self._failed()
            self._started = True
            self._listed = now - RELIST_SECONDS
        try:
            tables = self._tables(now)
        except RestartError as error:
            self.let_go()
            self._started = False
            self._state = ("error", str(error))
            self._retry_at = now + RESTART_SECONDS
            return self._failed()
        if self._per_poll:
            self.let_go()
        return Reading(tables, facts=self._facts)

    def _tables(self, now: float) -> "Dict[str, Table]":
        if now - self._listed >= RELIST_SECONDS:
            self._listed = now
            self._relist()
            watched: "List[Tuple[str, object, Any]]" = [
                (gpu.row[0], gpu.row[1].get("pci"), gpu.handle) for gpu in self._gpus
            ]
            self._xids.watch(self._nvml, self._ask, watched, events=not self._per_poll)
            if self._facts.get("xid") != self._xids.source:
                self._facts = dict(self._facts, xid=self._xids.source)
        for gpu in self._gpus:
            if gpu.handle is not None:
                self._read(gpu, now)
        self._xids.read(now)
        tables = {"gpu": self._table(now)}
        asked = self._processes.table(
            now, self._nvml, self._ask, [(gpu.index, gpu.row[0], gpu.handle) for gpu in self._gpus]
        )
        if asked is not None:
            tables["process"] = asked
        lost = {gpu.index: gpu.row[0] for gpu in self._gpus if gpu.handle is None}
        if lost != self._lost:
            self._lost = lost
            self._listed = now - RELIST_SECONDS
        return tables

    def let_go(self) -> bool:
        """Shut NVML down; False where a wait for events has not come back, under which that must not be done."""
        if self._started:
            if not self._xids.leave(self._ask):
                return False
            self._started = False
            try:
                self._ask("nvmlShutdown", -1)
            except Exception:
                pass  # what cannot be shut down was not running
        for gpu in self._gpus:
            gpu.handle = None
        self._call.what = ""
        return True

    def close(self) -> None:
        """Let go of everything."""
        self.let_go()
        self._xids.close()
        self._gpus = []

    def _failed(self) -> Reading:
        tables = {}
        if self._rows:
            # The devices are known, their values are not: no old value may pass for a new one.
            cells: "List[Cell]" = [Err(self._state[1])] * (len(self._rows) * len(COLUMNS))
            tables["gpu"] = Table(self._rows, COLUMNS, cells)
        facts = self._facts
        if self._released and self._since is not None:
            facts = dict(facts, gpus_released=self._since)
        return Reading(tables, self._state[0], self._state[1], facts)

    def _table(self, now: float) -> Table:
        gpus = self._gpus
        cells = [gpu.values[column] for column in range(len(FIELD_COLUMNS)) for gpu in gpus]
        # A GPU that is lost still has its Xids: they say why.
        xids = [self._xids.cells(gpu.row[0], now) for gpu in gpus]
        cells += [mine[column] for column in range(len(XID_COLUMNS)) for mine in xids]
        return Table(self._rows, COLUMNS, cells, self._table_error)

    # ------------------------------------------------------------------ start

    def _start(self) -> "Tuple[str, str]":
        """Load and start NVML; return the group's state and the reason."""
        if self._tree.root and not self._library:
            # This machine's library says nothing about another tree.
            return ("error", "no NVML library given for this root") if self._nvidia() else ("off", "")
        try:
            import ctypes

            library = ctypes.CDLL(self._library or "libnvidia-ml.so.1")
        except (ImportError, OSError) as error:
            if self._library:
                return ("error", "cannot load {}: {}".format(self._library, error))
            return ("error", "NVML Shared Library Not Found") if self._nvidia() else ("off", "")
        first = self._nvml is None
        try:
            # Only now: its source is a third of a megabyte, and costs memory and a tenth of a second.
            import pynvml
        except Exception as error:
            return ("error", "pynvml does not load here: {}: {}".format(type(error).__name__, error))
        self._nvml = pynvml
        pynvml.nvmlLib = library
        if first:
            _give_back(ctypes)
            stuck.mark_thread(ctypes)
        hangs = stuck.found(self._tree) if first or self._state[0] != "ok" else ""
        if hangs:
            return ("hung", hangs)
        try:
            self._ask("nvmlInit", -1)
        except pynvml.NVMLError as error:
            return ("error", self._words(error))
        facts: "Dict[str, Attr]" = {"xid": self._xids.source} if self._xids.source else {}
        for name, function in (
            ("driver", "nvmlSystemGetDriverVersion"),
            ("nvml", "nvmlSystemGetNVMLVersion"),
            ("cuda", "nvmlSystemGetCudaDriverVersion"),
        ):
            try:
                fact = self._ask(function, -1)
            except Exception:
                continue
            if isinstance(fact, int):
                fact = "{}.{}".format(fact // 1000, fact % 1000 // 10)
            facts[name] = fact
        self._facts = facts
        return ("ok", "")

    def _nvidia(self) -> bool:
        """True where the node has an NVIDIA device or its driver."""
        tree = self._tree
        if tree.is_dir("proc/driver/nvidia"):
            return True
        try:
            names = tree.names("sys/bus/pci/devices")
        except OSError:
            return False
        return any(
            tree.text("sys/bus/pci/devices/" + name + "/vendor") == "0x10de"
            and tree.text("sys/bus/pci/devices/" + name + "/class").startswith("0x03")
            for name in names
        )

    # ---------------------------------------------------------------- devices

    def _relist(self) -> None:
        """Ask for the number of devices and for each one's handle and identity again."""
        try:
            count = min(self._ask("nvmlDeviceGetCount", -1), MAX_GPUS)
            self._table_error = ""
        except self._nvml.NVMLError as error:
            self._table_error = self._words(error, restart=True)
            count = len(self._gpus)
        before = {gpu.row[0]: gpu for gpu in self._gpus}
        at = {gpu.index: gpu for gpu in self._gpus}
        gpus: "List[Gpu]" = []
        unknown: "List[Tuple[int, str]]" = []
        for index in range(count):
            try:
                handle = self._ask("nvmlDeviceGetHandleByIndex", index, index)
            except self._nvml.NVMLError as error:
                unknown.append((index, self._words(error, restart=True)))
                continue
            uuid = fields.words("nvmlDeviceGetUUID", self._ask, index, handle, self._nvml.NVMLError)
            gpu = before.get(uuid)
            if gpu is None or gpu in gpus:
                row = fields.identify(self._ask, index, handle, self._nvml.NVMLError, uuid)
                gpu = before.get(row[0])
                if gpu is None or gpu in gpus:
                    gpu = Gpu(index, row)
            if gpu.index != index:
                gpu.index = index
                gpu.row = (gpu.row[0], dict(gpu.row[1], index=index))
            gpu.handle = handle
            gpus.append(gpu)
        taken = {gpu.row[0] for gpu in gpus}
        for index, words in unknown:
            # Without a handle it cannot say who it is: it is who it was, unless another has taken that name.
            gpu = at.get(index)
            if gpu is None or gpu.row[0] in taken:
                gpu = Gpu(index, ("index:{}".format(index), {"index": index}))
            gpu.lost(words)
            gpus.append(gpu)
        gpus.sort(key=lambda gpu: gpu.index)
        self._gpus = gpus
        rows = [gpu.row for gpu in gpus]
        if rows != self._rows:
            self._rows = rows

    def _read(self, gpu: Gpu, now: float) -> None:
        """Read what is due of one device.

        Raises:
            RestartError: the driver has gone.
        """
        values = gpu.values
        at = 0
        for which, spec in enumerate(SPECS):
            columns, every = spec[0], spec[4]
            first = at
            at += len(columns)
            if now < gpu.due[which]:
                continue
            turn = 0.0 if gpu.due[which] else every * (gpu.index % SPREAD) / (2.0 * SPREAD)
            gpu.due[which] = now + every - 0.5 - turn if every else 0.0
            try:
                cells = self._cells(which, gpu, first, now)
            except self._nvml.NVMLError as error:
                words = self._words(error, restart=True)
                if error.value == GPU_IS_LOST:
                    gpu.lost(words)
                    return
                if error.value in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                    gpu.due[which] = now + UNSUPPORTED_SECONDS
                cells = (Err(words),) * len(columns)
            except Exception as error:
                cells = (Err("{}: {}".format(type(error).__name__, error)),) * len(columns)
            values[first:at] = cells

    def _cells(self, which: int, gpu: Gpu, first: int, now: float) -> "Tuple[Cell, ...]":
        """Return the cells of one entry of ``SPECS``, whose columns begin at *first*."""
        _, functions, arguments, pick, _ = SPECS[which]
        if functions[0] == fields.FIELDS:
            return self._fields(gpu, first, arguments, now)
        if functions[0] == fields.LINKS:
            return fields.links(self._ask, gpu.index, gpu.handle, self._nvml.NVMLError)
        if functions[0] == fields.INSTANCES:
            return (self._instances(gpu),)
        got = self._first(which, functions, gpu, arguments)
        return (got,) if pick is None else pick(got)

    def _fields(self, gpu: Gpu, first: int, wanted: "Tuple[int, ...]", now: float) -> "Tuple[Cell, ...]":
        """Ask for several fields in one call; those that the card does not have are left out for a while."""
        asked = [one for one in wanted if gpu.skip.get(one, 0.0) <= now]
        cells = {one: gpu.values[first + at] for at, one in enumerate(wanted)}
        got = self._ask(fields.FIELDS, gpu.index, gpu.handle, asked) if asked else ()
        for one, answer in zip(asked, got):  # noqa: B905 - Python 3.6 has no strict
            code = int(answer.nvmlReturn)
            if code == 0:
                cells[one] = fields.field(answer)
                continue
            if code == GPU_IS_LOST or code in RESTART:
                raise self._nvml.NVMLError(code)
            if code in LACKS:
                gpu.skip[one] = now + UNSUPPORTED_SECONDS - 0.5
            cells[one] = Err(self._words(self._nvml.NVMLError(code)))
        return tuple(cells[one] for one in wanted)

    def _instances(self, gpu: Gpu) -> "Cell":
        """Return the number of MIG instances; their profiles and sizes become an attribute."""
        mode = gpu.values[FIELD_COLUMNS.index("mig")]
        found: "List[str]" = []
        if mode == 1:
            found = fields.instances(self._ask, gpu.index, gpu.handle, self._nvml.NVMLError)
        if found != gpu.row[1].get("mig_layout", []):
            attrs: "Dict[str, Attr]" = dict(gpu.row[1], mig_layout=found)
            if not found:
                del attrs["mig_layout"]
            gpu.row = (gpu.row[0], attrs)
            self._rows = [one.row for one in self._gpus]
        return len(found) if isinstance(mode, int) else mode

    def _first(
        self, which: int, functions: "Tuple[str, ...]", gpu: Gpu, arguments: "Tuple[Any, ...]"
    ) -> "Any":
        """Call the first of *functions* that this driver has."""
        chosen = self._chosen.get(which)
        if chosen is not None or len(functions) == 1:
            return self._ask(chosen or functions[0], gpu.index, gpu.handle, *arguments)
        for function in functions:
            try:
                got = self._ask(function, gpu.index, gpu.handle, *arguments)
            except self._nvml.NVMLError as error:
                if error.value == FUNCTION_NOT_FOUND and function != functions[-1]:
                    continue
                raise
            self._chosen[which] = function
            return got
        return None

    # ------------------------------------------------------------------ calls

    def _ask(self, function: str, index: int, *arguments: "Any") -> "Any":
        call = self._call
        call.what = (function, index)
        started = time.perf_counter()
        try:
            return getattr(self._nvml, function)(*arguments)
        except AttributeError:
            # This pynvml has no such function; to the reader it is as if the driver had none.
            raise self._nvml.NVMLError(FUNCTION_NOT_FOUND) from None
        finally:
            self.seconds += time.perf_counter() - started

    def _words(self, error: "Any", restart: bool = False) -> str:
        """Return NVML's own words for an error.

        Raises:
            RestartError: *restart* is set and the error means that NVML must be started again.
        """
        code = int(error.value)
        words = self._said.get(code)
        if words is None:
            try:
                words = str(self._nvml.nvmlErrorString(code))
            except Exception:
                words = str(error)
            self._said[code] = words
        if restart and code in RESTART:
            raise RestartError(words)
        return words
