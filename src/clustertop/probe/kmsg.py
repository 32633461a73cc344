"""The kernel's log: one reader for everybody who wants lines of it, and what it says of PCI devices.

Only what happens while the probe runs: older lines are the baseline. Lines are picked by the words that drivers begin
or use; what they mean is the console's.
"""

import os
import re
import threading

from .files import reason
from .frames import MAX_TEXT, Err, tenths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from .frames import Cell

LOG = "dev/kmsg"
LOG_BYTES = 1 << 18
"""Most bytes of the log that one reading takes; the rest waits for the next."""
RECORD = 8192
"""Longest record of /dev/kmsg: with less room it cannot be read at all."""
MAX_LINE = 1024

COLUMNS = ("klog_count", "klog_time", "klog", "klog_more")
"""Lines about a device so far, node's monotonic seconds of the last, and the kinds of line of the last hour, newest
first, as ``<how often>x <text of the newest>``, one a line; what one cell has no room for is in the other."""
KEEP_SECONDS = 3600.0
MAX_KINDS = 8
"""Kinds of line kept of one device; lines that differ in their numbers only are of one kind."""
MAX_SAID = 200
MAX_DEVICES = 64

# What stands before the message: of /dev/kmsg, of dmesg in its forms, of syslog. Each part at most once.
_BEFORE = re.compile(
    r"(?:\d+,\d+,\d+,[^;\s]*;"
    r"|[A-Z][a-z]{2} +\d+ [\d:]{8} [^\s:]+ kernel: "
    r"|[a-z]+ *:[a-z]+ *: (?=[\[\d]))?"
    r"(?:<\d{1,3}>)?"
    r"(?:\[[^\]]{1,40}\] ?|\d{4}-\d\d-\d\dT[\d:,.+-]+ )?"
    r"(?:\[ *[TC]\d+\] ?)?"
)
_BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_HINT = re.compile(rb":[0-9a-f]{2}\.[0-7]|(?:nvme|dev) nvme\d|aer_ratelimit")
"""Cheap: a line without any of these is about no PCI device."""
_OF_DEVICE = re.compile(r"[\w.-]{1,32} (" + _BDF + r")(?: [\w.@-]{1,32})?: *(?=\S)")
_OF_SWITCH = re.compile(r"nvidia-nvswitch\d{1,3}: SXid \(PCI:(" + _BDF + r")\): \d")
_OF_DRIVE = re.compile(
    r"nvme (nvme\d{1,4}): (?=\S)|(?:blk_update_request: )?(?:I/O|critical \w{1,12}) error, dev (nvme\d{1,4})n\d"
)
_REPORTED = re.compile(r"AER: .{0,60}\breceived(?: from|:) (" + _BDF + r")")
_BY_ID = re.compile(r"AER: .{0,60}\breceived: id=")
"""The lines that follow it name the device."""
_HIDDEN = re.compile(r"aer_ratelimit: \d+ callbacks suppressed")
_MATTERS = re.compile(
    r"AER: |PCIe Bus Error: |\[ ?\d{1,2}\] [A-Z]|DPC: |pciehp: .*(?:Link Down|[Nn]ot present|Power fault|fail)"
    r"|insufficient power|power capability|Port module event|ACCESS_REG|[Hh]igh temperature"
    r"|health compromised|Health issue|health recovery|bad device|synd 0x"
    r"|Fatal error|fatal error|mlx5_error_sw_reset|[Tt]imeout|timed out|Link down|Link is Down|limited by"
    r"|controller is down|reset controller|Removing after probe|not ready|inaccessible|retrain|FLR|I/O error"
    r"|critical \w+ error|error state"
)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


def message(text: str) -> str:
    """Return what a line of the kernel's log says, without the marks and times before it."""
    text = text[:MAX_LINE]
    before = _BEFORE.match(text)
    return text[before.end() :] if before else text


class Log(object):
    """Reads /dev/kmsg below *root* from its end on; each line goes to everybody who listens.

    Several threads may read: whoever comes while another does has its lines from that one.
    """

    def __init__(self, root: str) -> None:
        self.error = ""
        """Why it cannot be read."""
        self._path = root.rstrip("/") + "/" + LOG
        self._file = -1
        self._part = b""
        self._lock = threading.Lock()
        self._takers: "List[Callable[[bytes, float], None]]" = []

    def listen(self, take: "Callable[[bytes, float], None]") -> None:
        """Have *take* called with each new line and the node's monotonic seconds, by whichever thread reads."""
        self._takers.append(take)

    def open(self) -> bool:
        """Open it unless it is open; False where that may not be."""
        with self._lock:
            if self._file >= 0:
                return True
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                self.error = reason(error)
                return False
            try:
                os.lseek(self._file, 0, os.SEEK_END)
            except OSError:
                pass  # a pipe: it holds only what is new
            self.error = ""
            return True

    def close(self) -> None:
        """Close it, unless it is being read: then the process is ending."""
        if self._lock.acquire(False):
            try:
                if self._file >= 0:
                    os.close(self._file)
                self._file = -1
                self._part = b""
            finally:
                self._lock.release()

    def read(self, now: float) -> None:
        """Take what it says since the last time; never waits."""
        if not self._lock.acquire(False):
            return
        try:
            if self._file >= 0:
                self._read(now)
        finally:
            self._lock.release()

    def _read(self, now: float) -> None:
        left = LOG_BYTES
        while left > 0:
            try:
                data = os.read(self._file, RECORD)
            except BrokenPipeError:
                left -= 256
                continue  # records were overwritten before we came; the next read takes up behind the gap
            except OSError:
                return
            if not data:
                return
            left -= max(len(data), 256)
            lines = (self._part + data).split(b"\n")
            self._part = lines.pop()[:MAX_LINE]
            for line in lines:
                for take in self._takers:
                    take(line[:MAX_LINE], now)


class Said(object):
    """What the log says of one device."""

    __slots__ = ("at", "count", "kinds")

    def __init__(self) -> None:
        self.count = 0
        self.at = 0.0
        self.kinds: "Dict[str, Tuple[int, float, str]]" = {}
        """By text without numbers: how often, when last, and the text of that one."""

    def add(self, text: str, at: float, count: int = 1) -> None:
        self.count += count
        self.at = at
        kind = _NUMBER.sub("#", text)
        # Taken out first: the order is that of the last ones.
        self.kinds[kind] = (self.kinds.pop(kind, (0, at, ""))[0] + count, at, text)
        if len(self.kinds) > MAX_KINDS:
            del self.kinds[next(iter(self.kinds))]

    def cells(self, now: float) -> "Tuple[Cell, ...]":
        for kind in [kind for kind, (_, at, _) in self.kinds.items() if now - at > KEEP_SECONDS]:
            del self.kinds[kind]
        parts: "List[str]" = [""]
        for count, _, text in reversed(list(self.kinds.values())):
            said = "{}x {}".format(count, text)
            if parts[-1] and len(parts[-1]) + 1 + len(said) > MAX_TEXT:
                if len(parts) == 2:
                    break
                parts.append("")
            parts[-1] += ("\n" if parts[-1] else "") + said
        return self.count, tenths(self.at), parts[0], parts[1] if len(parts) > 1 else None


class Messages(object):
    """What the log says of each PCI device, by address; of a drive by name until it is placed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._said: "Dict[str, Said]" = {}
        self._stands: "Dict[str, str]" = {}
        self._reported = ""
        self._lock = threading.Lock()
        log.listen(self._take)

    @property
    def source(self) -> str:
        """``read``, or why not."""
        return "not readable: " + self._log.error if self._log.error else "read"

    def read(self, now: float) -> None:
        """Read on, opening the log where that has not been possible yet."""
        if self._log.open():
            self._log.read(now)

    def names(self) -> "List[str]":
        """Return the addresses and names of drives that the log has spoken of."""
        with self._lock:
            return sorted(self._said)

    def stand(self, name: str, address: str) -> None:
        """From now on what is said of *name* (a drive, a virtual function) is said of *address*."""
        with self._lock:
            self._stands[name] = address
            old = self._said.pop(name, None)
            if old is not None:
                new = self._said.setdefault(address, Said())
                for count, at, text in sorted(old.kinds.values(), key=lambda kind: kind[1]):
                    new.add(text, at, count)

    def cells(self, address: str, now: float) -> "Tuple[Cell, ...]":
        """Return the cells of ``COLUMNS`` for one device."""
        with self._lock:
            said = self._said.get(address)
            if said is not None:
                return said.cells(now)
        return Err("not readable") if self._log.error else 0, None, None, None

    def _take(self, line: bytes, now: float) -> None:
        if _HINT.search(line) is None:
            return
        found = self._pick(message(line.decode("utf-8", "replace")))
        if found is None:
            return
        name, text = found
        with self._lock:
            name = self._stands.get(name, name)
            said = self._said.get(name)
            if said is None:
                if len(self._said) >= MAX_DEVICES:
                    return
                said = self._said[name] = Said()
            said.add(text[:MAX_SAID].rstrip(), now)

    def _pick(self, text: str) -> "Optional[Tuple[str, str]]":
        """Return of whom a message is and its text; None where it is of nobody or not worth a line."""
        switch = _OF_SWITCH.match(text)
        if switch is not None:
            return switch.group(1), text
        drive = _OF_DRIVE.match(text)
        if drive is not None:
            return (drive.group(1) or drive.group(2), text) if _MATTERS.search(text) else None
        if _HIDDEN.match(text):
            return (self._reported, text) if self._reported else None
        device = _OF_DEVICE.match(text)
        if device is None or _MATTERS.search(text, device.end()) is None or _BY_ID.search(text, device.end()):
            return None
        # A root port reports what happened at a device below it.
        reported = _REPORTED.match(text, device.end())
        name = (reported or device).group(1)
        if reported or text.startswith("PCIe Bus Error", device.end()):
            self._reported = name
        return name, text
