"""Group ``gpu``: what NVML says of each device, through pynvml, kept open for as long as the probe lives.

Cheap things every tick, dear ones seldom. No profiling counters, no process lists, no GetPcieThroughput. A
lost GPU costs its own row; a driver that was unloaded costs the group until it is back.
"""

import gc
import linecache
import time

from .files import Reading
from .frames import Err, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from .files import Call, Tree
    from .frames import Attr, Cell, Row

    Pick = Optional[Callable[[Any], Tuple[Cell, ...]]]
    Spec = Tuple[Tuple[str, ...], Tuple[str, ...], Tuple[Any, ...], Pick, float]

RELIST_SECONDS = 10.0
RESTART_SECONDS = 10.0
UNSUPPORTED_SECONDS = 60.0
MAX_GPUS = 64

SELDOM = 10.0
RARE = 60.0

# Numbers of nvml.h. They are ABI; the tests compare them with pynvml's.
CLOCK_SM, CLOCK_MEM = 1, 2
FIELD_MEMORY_TEMP = 82
SENSOR_GPU = 0
THRESHOLD_SHUTDOWN, THRESHOLD_SLOWDOWN, THRESHOLD_MEM_MAX = 0, 1, 2
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
NOT_SUPPORTED, FUNCTION_NOT_FOUND, LIBRARY_NOT_FOUND, GPU_IS_LOST = 3, 13, 12, 15
RESTART = (1, 9, 18)
"""Uninitialized, Driver Not Loaded, Driver/library version mismatch: only a new start helps."""


def _field(values: "Any") -> "Tuple[Cell, ...]":
    """Return the one value of GetFieldValues, by its type; an :class:`Err` with the code if it has none."""
    got = values[0]
    if got.nvmlReturn != 0:
        return (Err(str(int(got.nvmlReturn))),)
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    kind = int(got.valueType)
    return (getattr(got.value, names[kind]) if kind < len(names) else Err("value type {}".format(kind)),)


# (columns, functions (the first that this driver has), arguments, what of the answer, seconds between calls)
SPECS: "Tuple[Spec, ...]" = (
    (("util", "mem_util"), ("nvmlDeviceGetUtilizationRates",), (), lambda got: (got.gpu, got.memory), 0.0),
    (("mem_used", "mem_total"), ("nvmlDeviceGetMemoryInfo",), (), lambda got: (got.used, got.total), 0.0),
    (("power_mw",), ("nvmlDeviceGetPowerUsage",), (), None, 0.0),
    (("temp",), ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), (SENSOR_GPU,), None, 0.0),
    (("temp_mem",), ("nvmlDeviceGetFieldValues",), ([FIELD_MEMORY_TEMP],), _field, 0.0),
    (("sm_mhz",), ("nvmlDeviceGetClockInfo",), (CLOCK_SM,), None, 0.0),
    (("mem_mhz",), ("nvmlDeviceGetClockInfo",), (CLOCK_MEM,), None, 0.0),
    (
        ("reasons",),
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        (), None, 0.0,
    ),
    (("pstate",), ("nvmlDeviceGetPerformanceState",), (), None, 0.0),
    (("pcie_gen",), ("nvmlDeviceGetCurrPcieLinkGeneration",), (), None, 0.0),
    (("pcie_width",), ("nvmlDeviceGetCurrPcieLinkWidth",), (), None, 0.0),
    (("pcie_replays",), ("nvmlDeviceGetPcieReplayCounter",), (), None, SELDOM),
    (("ecc_cor",), ("nvmlDeviceGetTotalEccErrors",), (CORRECTED, VOLATILE), None, SELDOM),
    (("ecc_unc",), ("nvmlDeviceGetTotalEccErrors",), (UNCORRECTED, VOLATILE), None, SELDOM),
    (("power_limit_mw",), ("nvmlDeviceGetEnforcedPowerLimit",), (), None, RARE),
    (("temp_slowdown",), ("nvmlDeviceGetTemperatureThreshold",), (THRESHOLD_SLOWDOWN,), None, RARE),
    (("temp_shutdown",), ("nvmlDeviceGetTemperatureThreshold",), (THRESHOLD_SHUTDOWN,), None, RARE),
    (("temp_mem_max",), ("nvmlDeviceGetTemperatureThreshold",), (THRESHOLD_MEM_MAX,), None, RARE),
    (("pcie_gen_max",), ("nvmlDeviceGetMaxPcieLinkGeneration",), (), None, RARE),
    (("pcie_gen_devmax",), ("nvmlDeviceGetGpuMaxPcieLinkGeneration",), (), None, RARE),
    (("pcie_width_max",), ("nvmlDeviceGetMaxPcieLinkWidth",), (), None, RARE),
    (("sm_mhz_max",), ("nvmlDeviceGetMaxClockInfo",), (CLOCK_SM,), None, RARE),
    (("bar1_total",), ("nvmlDeviceGetBAR1MemoryInfo",), (), lambda got: (got.bar1Total,), RARE),
    (("persistence",), ("nvmlDeviceGetPersistenceMode",), (), None, RARE),
    (("mig",), ("nvmlDeviceGetMigMode",), (), lambda got: (got[0],), RARE),
    (("ecc_mode",), ("nvmlDeviceGetEccMode",), (), lambda got: (got[0],), RARE),
    (
        ("remap_cor", "remap_unc", "remap_pending", "remap_failed"),
        ("nvmlDeviceGetRemappedRows",), (), tuple, RARE,
    ),
)  # fmt: skip
COLUMNS: "List[str]" = [column for spec in SPECS for column in spec[0]]


def _give_back(ctypes: "Any") -> None:
    """Give memory that compiling took back to the system, where the C library can (glibc)."""
    linecache.cache.pop("<bundle>/pynvml.py", None)
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        pass


class RestartError(Exception):
    """NVML must be started again; the text is its reason, in its own words."""


class Gpu(object):
    """One device: its identity, its handle (None while it cannot be had), and what was last read."""

    __slots__ = ("due", "handle", "index", "row", "values")

    def __init__(self, index: int, row: "Row") -> None:
        self.index = index
        self.row = row
        self.handle: "Any" = None
        self.values: "List[Cell]" = [None] * len(COLUMNS)
        self.due = [0.0] * len(SPECS)

    def lost(self, words: str) -> None:
        """Every cell says why."""
        self.handle = None
        self.values = [Err(words)] * len(COLUMNS)
        self.due = [0.0] * len(SPECS)


class Gpus(object):
    """Reads table ``gpu``. ``seconds`` is the time spent in NVML so far."""

    def __init__(self, tree: "Tree", call: "Call", library: str = "") -> None:
        self.seconds = 0.0
        self._tree = tree
        self._call = call
        self._library = library
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

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        if not self._started:
            if now < self._retry_at:
                return self._failed()
            self._state = self._start()
            if self._state[0] != "ok":
                self._retry_at = now + (60.0 if self._state[0] == "off" else RESTART_SECONDS)
                return self._failed()
            self._started = True
            self._listed = now - RELIST_SECONDS
        try:
            if now - self._listed >= RELIST_SECONDS:
                self._listed = now
                self._relist()
            for gpu in self._gpus:
                if gpu.handle is not None:
                    self._read(gpu, now)
        except RestartError as error:
            self.close()
            self._state = ("error", str(error))
            self._retry_at = now + RESTART_SECONDS
            return self._failed()
        lost = {gpu.index: gpu.row[0] for gpu in self._gpus if gpu.handle is None}
        if lost != self._lost:
            self._lost = lost
            self._listed = now - RELIST_SECONDS
        return Reading({"gpu": self._table()}, facts=self._facts)

    def close(self) -> None:
        """Let go of the devices."""
        if self._started:
            self._started = False
            try:
                self._ask("nvmlShutdown", -1)
            except Exception:
                pass  # what cannot be shut down was not running
        self._gpus = []
        self._call.what = ""

    def _failed(self) -> Reading:
        tables = {}
        if self._rows:
            # The devices are known, their values are not: no old value may pass for a new one.
            cells: "List[Cell]" = [Err(self._state[1])] * (len(self._rows) * len(COLUMNS))
            tables["gpu"] = Table(self._rows, COLUMNS, cells)
        return Reading(tables, self._state[0], self._state[1], self._facts)

    def _table(self) -> Table:
        gpus = self._gpus
        cells = [gpu.values[column] for column in range(len(COLUMNS)) for gpu in gpus]
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
        try:
            # Only now: its source is a third of a megabyte, and costs memory and a tenth of a second.
            import pynvml
        except Exception as error:
            return ("error", "pynvml does not load here: {}: {}".format(type(error).__name__, error))
        self._nvml = pynvml
        pynvml.nvmlLib = library
        _give_back(ctypes)
        try:
            self._ask("nvmlInit", -1)
        except pynvml.NVMLError as error:
            return ("error", self._words(error))
        self._facts = {}
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
            self._facts[name] = fact
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
            uuid = self._text("nvmlDeviceGetUUID", index, handle)
            gpu = before.get(uuid)
            if gpu is None or gpu in gpus:
                row = self._identify(index, handle, uuid)
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

    def _identify(self, index: int, handle: "Any", uuid: str) -> "Row":
        attrs: "Dict[str, Attr]" = {"index": index}
        try:
            pci = self._ask("nvmlDeviceGetPciInfo", index, handle).busId
        except self._nvml.NVMLError:
            pci = b""
        for name, text in (
            ("uuid", uuid),
            ("pci", pci.decode("ascii", "replace") if isinstance(pci, bytes) else str(pci)),
            ("name", self._text("nvmlDeviceGetName", index, handle)),
            ("serial", self._text("nvmlDeviceGetSerial", index, handle)),
        ):
            if text:
                attrs[name] = text
        try:
            attrs["minor"] = self._ask("nvmlDeviceGetMinorNumber", index, handle)
        except self._nvml.NVMLError:
            pass
        if uuid:
            return uuid, attrs
        return ("pci:{}".format(attrs["pci"]) if "pci" in attrs else "index:{}".format(index)), attrs

    def _read(self, gpu: Gpu, now: float) -> None:
        """Read what is due of one device.

        Raises:
            RestartError: the driver has gone.
        """
        values = gpu.values
        at = 0
        for which, (columns, functions, arguments, pick, every) in enumerate(SPECS):
            first = at
            at += len(columns)
            if now < gpu.due[which]:
                continue
            gpu.due[which] = now + every - 0.5 if every else 0.0
            try:
                got = self._first(which, functions, gpu, arguments)
                cells = (got,) if pick is None else pick(got)
                if isinstance(cells[0], Err) and cells[0].reason.isdigit():
                    raise self._nvml.NVMLError(int(cells[0].reason))
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

    def _text(self, function: str, index: int, handle: "Any") -> str:
        try:
            text = self._ask(function, index, handle)
        except (self._nvml.NVMLError, UnicodeDecodeError):
            return ""
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)

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
