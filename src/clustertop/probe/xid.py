"""Xids, the driver's own fault reports: from NVML's events where they can be had, else from the kernel's log.

Only what happens while the probe runs: older lines of the log are the baseline. What a code means is the console's.
"""

import re
import threading
import time

from .frames import Err, tenths
from .kmsg import message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from .frames import Cell
    from .kmsg import Log

    Ask = Callable[..., Any]

COLUMNS = ("xid", "xid_time", "xid_count", "xids")
"""Last code (0: none so far), node's monotonic seconds of it, how many so far, codes of the last hour."""

XID_CRITICAL_ERROR = 8
TIMEOUT = 10
WAIT_MS = 700
"""A wait that is called off ends within this time."""
PAUSE_SECONDS = 1.0
"""Between two waits where the first failed: with a lost GPU it returns at once."""
END_SECONDS = 1.2
KEEP_SECONDS = 3600.0
MAX_CODES = 8

_LINE = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?\): (\d{1,5})(?:,|$)"
)


def parse(text: str) -> "Optional[Tuple[str, int]]":
    """Return the slot (``0000:9b:00``) and the code of a line of the kernel's log; None where it is no Xid.

    The words must begin the message: a process may be called anything.
    """
    found = _LINE.match(message(text))
    if found is None:
        return None
    domain, bus, device, code = found.groups()
    return "{:04x}:{}:{}".format(int(domain, 16), bus.lower(), device.lower()), int(code)


def slot(pci: object) -> str:
    """Return the slot of an address as NVML prints it (``00000000:9B:00.0``); empty where it is none."""
    parts = str(pci).lower().partition(".")[0].split(":")
    try:
        return "{:04x}:{:02x}:{:02x}".format(*(int(part, 16) for part in parts)) if len(parts) == 3 else ""
    except ValueError:
        return ""


class Seen(object):
    """The Xids of one GPU."""

    __slots__ = ("at", "code", "codes", "count")

    def __init__(self) -> None:
        self.code = 0
        self.at = 0.0
        self.count = 0
        self.codes: "Dict[int, Tuple[int, float]]" = {}
        """Code to how many and when last."""

    def add(self, code: int, at: float) -> None:
        self.code, self.at = code, at
        self.count += 1
        self.codes[code] = (self.codes.get(code, (0, 0.0))[0] + 1, at)
        if len(self.codes) > MAX_CODES:
            del self.codes[min(self.codes, key=lambda one: self.codes[one][1])]

    def cells(self, now: float) -> "Tuple[Cell, ...]":
        for code in [code for code, (_, at) in self.codes.items() if now - at > KEEP_SECONDS]:
            del self.codes[code]
        late = sorted(self.codes, key=lambda one: -self.codes[one][1])
        said = " ".join("{}x{}".format(code, self.codes[code][0]) for code in late)
        return self.code, tenths(self.at) if self.count else None, self.count, said


class Events(object):
    """A thread that waits for NVML's events; it wakes now and then to see whether it is still wanted."""

    def __init__(self, nvml: "Any", events: "Any", take: "Callable[[Any, int], None]") -> None:
        self._nvml = nvml
        self._set = events
        self._take = take
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xid")
        self._thread.daemon = True
        self._thread.start()

    def end(self) -> bool:
        """Stop waiting; True once the set is no longer in use."""
        self._stop.set()
        self._thread.join(END_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        nvml = self._nvml
        while not self._stop.is_set():
            try:
                got = nvml.nvmlEventSetWait_v2(self._set, WAIT_MS)
            except nvml.NVMLError as error:
                if error.value != TIMEOUT:
                    self._stop.wait(PAUSE_SECONDS)
                continue
            except Exception:
                self._stop.wait(PAUSE_SECONDS)
                continue
            if got.eventType & XID_CRITICAL_ERROR:
                self._take(got.device, int(got.eventData))


class Xids(object):
    """What Xids each GPU had. ``source`` says where they are read."""

    def __init__(self, log: "Log") -> None:
        self.source = ""
        self._log = log
        self._log.listen(self._line)
        self._seen: "Dict[str, Seen]" = {}
        self._lock = threading.Lock()
        self._events: "Optional[Events]" = None
        self._ending: "Optional[Events]" = None
        self._shrunk = False
        self._set: "Any" = None
        self._registered: "Dict[int, str]" = {}
        """Address of a handle to the GPU's key."""
        self._problems: "Dict[str, str]" = {}
        self._slots: "Dict[str, str]" = {}

    def watch(
        self, nvml: "Any", ask: "Ask", gpus: "List[Tuple[str, object, Any]]", events: bool = True
    ) -> None:
        """Watch *gpus*, each (key, PCI address, handle or None); call it whenever they changed.

        Without *events* only the kernel's log is read.
        """
        self._slots = {slot(pci): key for key, pci, _ in gpus if slot(pci)}
        wanted = {_address(handle): key for key, _, handle in gpus if handle is not None}
        if self._events is not None:
            if wanted == self._registered:
                return
            if set(wanted) < set(self._registered) and not self._shrunk:
                # Of a GPU that is lost just now the event that says why may still be on its way.
                self._shrunk = True
                return
        self._shrunk = False
        free = self.leave(ask)
        self._registered = wanted
        if not free or not events or not self._register(nvml, ask, gpus):
            self._registered = {}
            self.source = "kernel log" if self._log.open() else "not readable"

    def _register(self, nvml: "Any", ask: "Ask", gpus: "List[Tuple[str, object, Any]]") -> bool:
        self._problems = {}
        heard = 0
        try:
            self._set = ask("nvmlEventSetCreate", -1)
            for index, (key, _, handle) in enumerate(gpus):
                if handle is None:
                    continue
                try:
                    ask("nvmlDeviceRegisterEvents", index, handle, XID_CRITICAL_ERROR, self._set)
                    heard += 1
                except nvml.NVMLError as error:
                    self._problems[key] = str(error)
        except nvml.NVMLError:
            self._set = None
            return False
        if not heard:
            self._free(ask)
            return False
        self.source = "NVML events"
        self._events = Events(nvml, self._set, self._take)
        return True

    def leave(self, ask: "Ask") -> bool:
        """Stop waiting for events; False where a wait does not come back."""
        self._ending, self._events = self._events or self._ending, None
        self._registered = {}
        if self._ending is not None and not self._ending.end():
            return False
        self._ending = None
        self._free(ask)
        return True

    def _free(self, ask: "Ask") -> None:
        if self._set is not None:
            try:
                ask("nvmlEventSetFree", -1, self._set)
            except Exception:
                pass  # what cannot be freed goes with the driver that has gone
            self._set = None

    def _take(self, device: "Any", code: int) -> None:
        self._add(self._registered.get(_address(device)), code, time.monotonic())

    def _add(self, key: "Optional[str]", code: int, at: float) -> None:
        if key is not None:
            with self._lock:
                self._seen.setdefault(key, Seen()).add(code, at)

    # -------------------------------------------------------------- kernel's log

    def close(self) -> None:
        """Close the log; to be called after :meth:`leave`."""
        self._log.close()

    def read(self, now: float) -> None:
        """Take what the kernel's log says since the last time, where that is where Xids are read."""
        if self.source == "kernel log":
            self._log.read(now)

    def _line(self, line: bytes, now: float) -> None:
        if b"Xid" in line and self.source == "kernel log":
            found = parse(line.decode("utf-8", "replace"))
            if found is not None:
                self._add(self._slots.get(found[0]), found[1], now)

    def cells(self, key: str, now: float) -> "Tuple[Cell, ...]":
        """Return the cells of ``COLUMNS`` for one GPU."""
        with self._lock:
            seen = self._seen.get(key)
            if seen is not None:
                return seen.cells(now)
        if self.source in ("", "not readable"):
            return (Err("not readable"),) * len(COLUMNS)
        if self._events is not None and (key in self._problems or key not in self._registered.values()):
            return (Err(self._problems.get(key, "not readable")),) * len(COLUMNS)
        return 0, None, 0, ""


def _address(handle: "Any") -> int:
    """Return the number of a device handle: two objects may stand for one device."""
    import ctypes

    return ctypes.cast(handle, ctypes.c_void_p).value or 0
