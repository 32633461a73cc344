"""Lines of the kernel's log to what they mean: which PCI device, what, how grave, whose fault it usually is.

Takes what /dev/kmsg, ``dmesg`` in its forms, pstore, syslog and the journal print. The kinds and their sources are in
:mod:`clustertop.signals.kernel_catalogue`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clustertop.signals import xid
from clustertop.signals.kernel_catalogue import (
    AER_CORRECTED,
    AER_FATAL,
    AER_HIDDEN,
    AER_NONFATAL,
    CORRECTED,
    ERRORS,
    KINDS,
    NUMBER,
    OTHER,
    PATTERNS,
    SXID,
    SXID_FATAL,
    UNCORRECTABLE,
    XID,
    Kind,
)
from clustertop.signals.units import pci_key
from clustertop.signals.xid import CRITICAL, INFO, NONE, WARNING
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = "https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg"
MAX_LINE = 1024

# Marks and times before the message, each kind at most once, in the order in which programs print them.
_BEFORE = re.compile(
    r"(?:(?P<kmsg>\d+),\d+,(?P<micros>\d+),[^;\s]*;"
    r"|(?P<syslog>[A-Z][a-z]{2} +\d+ [\d:]{8}) [^\s:]+ kernel: "
    r"|[a-z]+ *:[a-z]+ *: (?=[\[\d]))?"
    r"(?:<\d{1,3}>)?"
    r"(?:\[ *(?P<seconds>\d{1,10}\.\d{1,9})\] ?|\[(?P<date>[A-Z][a-z]{2} [^\]]{1,36})\] ?"
    r"|(?P<iso>\d{4}-\d\d-\d\dT[\d:,.+-]+) )?"
    r"(?:\[ *[TC]\d+\] ?)?"
    r"(?:[^\s:\[]{1,64} kernel: )?"
    r"(?:\[ *(?P<later>\d{1,10}\.\d{1,9})\] )?"
)
_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_OF_DEVICE = re.compile(
    r"(?P<driver>[\w.-]{1,32}) (?P<address>" + _BDF + r")(?: (?P<name>[\w.@-]{1,32}))?:(?P<rest>.*)")
_OF_MLX5 = re.compile(r"(?:mlx5_core: )?(?P<rest>(?:mlx5_\w+:|Port module|Detected insufficient|High temp).*)")
_OF_DRIVE = re.compile(r"(?P<driver>nvme) (?P<name>nvme\d{1,4}): (?P<rest>.*)")
_OF_BLOCK = re.compile(
    r"(?:blk_update_request: )?(?P<rest>(?:I/O|critical \w{1,12}) error, dev (?P<name>nvme\d{1,4})n\d.*)")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?\): (\d{1,5})"
                  r"(?:,(?P<rest>.*)|$)")
_SXID = re.compile(r"nvidia-nvswitch\d{1,3}: SXid \(PCI:(" + _BDF + r")\): (\d{1,6}), (?P<rest>.*)")
_REPORTED = re.compile(
    r" *AER: (?:Multiple )?(?P<severity>[A-Z][a-z]+(?: \((?:Non-)?Fatal\))?) error (?:message )?received(?: from|:) "
    r"(?:(?P<of>" + _BDF + r")|id=[0-9a-f]{4})")
_ERROR = re.compile(r" *PCIe Bus Error: severity=(?P<severity>[A-Z][a-z]+(?: \((?:Non-)?Fatal\))?), type=")
_BIT = re.compile(r" *(?:AER: +)?\[ ?\d{1,2}\] (?P<error>[A-Z][\w -]*?)(?: *\(First\))? *$")
_HIDDEN = re.compile(r"aer_ratelimit: (?P<count>\d{1,9}) callbacks suppressed")
_DETAIL = re.compile(r" *(?:AER: )? *(?:device \[[0-9a-f:]+\] error status|TLP Header:|aer_(?:status|layer|uncor)"
                     r"|Error of this Agent)")
_FATAL = re.compile(r"\bFatal\b")
_CELL = re.compile(r"(\d{1,9})x (\S.*)")


@dataclass(frozen=True, slots=True)
class Message:
    """What one line, or the lines of one PCIe error, mean."""

    kind: Kind
    address: str = ""
    """Canonical address of the device; a GPU's Xid has none of a function: ``0000:9b:00``. Empty: the line has none."""
    name: str = ""
    """Interface or drive, where the line names one."""
    words: str = ""
    text: str = ""
    """The line itself, cleaned, without what stands before it."""
    seconds: float | None = None
    """Since the node's boot, where the line says it."""
    said: str = ""
    """The time as it stands in the line, where it is a date."""
    errors: tuple[str, ...] = ()
    """Of a PCIe error: what the device found (``BadTLP``)."""
    count: int = 1
    hidden: int = 0
    """Lines that the kernel left out."""
    level: int = NONE

    @property
    def fault(self) -> str:
        """Whose it usually is."""
        return xid.look_up(_code(self.text)).fault if self.kind is XID else self.kind.fault

    @property
    def todo(self) -> str:
        """What to look at."""
        return xid.look_up(_code(self.text)).todo if self.kind is XID else self.kind.todo


def parse(line: str) -> Message | None:
    """Return what one line means; None where it says nothing of a device that we know.

    The message must begin with its driver's words: a process may be called anything.
    """
    message = _parse(line)
    return None if message is None or message.kind is _NOTHING else message


def _parse(line: str) -> Message | None:
    line = line[:MAX_LINE].rstrip("\r\n")
    before = _BEFORE.match(line)
    text = line[before.end():] if before else line
    found = _meaning(text)
    if found is None or before is None:
        return found
    marks = before.groupdict()
    seconds = marks["seconds"] or marks["later"]
    since = int(marks["micros"]) / 1e6 if marks["micros"] else float(seconds) if seconds else None
    return replace(found, text=clean(text, 240).strip(), seconds=since,
                   said=marks["syslog"] or marks["date"] or marks["iso"] or "")


_NOTHING = Kind("nothing", "", NONE, "unknown", "", "", "")
"""A line that adds to others: a name of a PCIe error, a count of lines left out."""


def _meaning(text: str) -> Message | None:
    code = _XID.match(text)
    if code is not None:
        known = xid.look_up(int(code[2]))
        # The NVLink faults of newer GPUs say themselves whether they are fatal.
        grave = 144 <= known.code <= 150 and _FATAL.search(code["rest"] or "") is not None
        return Message(XID, pci_key(code[1] + ".0").removesuffix(".0"), words=xid.words(known.code),
                       level=CRITICAL if grave else known.level)
    switch = _SXID.match(text)
    if switch is not None:
        kind = SXID_FATAL if switch["rest"].startswith("Fatal") else SXID
        words = kind.words.format(code=switch[2], text=clean(switch["rest"].partition(", ")[2] or switch["rest"], 80))
        return Message(kind, pci_key(switch[1]), words=words, level=kind.level)
    hidden = _HIDDEN.match(text)
    if hidden is not None:
        return Message(_NOTHING, hidden=int(hidden["count"]))
    for pattern, driver in ((_OF_DEVICE, ""), (_OF_DRIVE, "nvme"), (_OF_BLOCK, "block"), (_OF_MLX5, "mlx5_core")):
        head = pattern.match(text)
        if head is not None:
            parts = head.groupdict()
            return _of_device(driver or parts["driver"], pci_key(parts.get("address") or ""), parts.get("name") or "",
                              parts["rest"])
    if text.startswith("Kernel panic"):
        return _of_device("", "", "", text)
    return None


def _of_device(driver: str, address: str, name: str, rest: str) -> Message | None:
    reported = _REPORTED.match(rest)
    if reported is not None:
        kind = _severity(reported["severity"])
        return Message(kind, pci_key(reported["of"] or ""), words=kind.words, level=kind.level)
    error = _ERROR.match(rest)
    if error is not None:
        kind = _severity(error["severity"])
        return Message(kind, address, words=kind.words, level=kind.level)
    bit = _BIT.match(rest)
    if bit is not None:
        found = CORRECTED.get(bit["error"].strip()) or UNCORRECTABLE.get(bit["error"].strip())
        return Message(_NOTHING, address, errors=(found,)) if found else None
    rest = rest.lstrip(" ")
    for kind, pattern in PATTERNS:
        if kind.drivers and driver not in kind.drivers:
            continue
        match = pattern.match(rest)
        if match is not None:
            words = kind.words.format(**{key: clean(part or "", 80) for key, part in match.groupdict().items()})
            return Message(kind, address, name, words, level=kind.level)
    return None


def _severity(words: str) -> Kind:
    if "Non-Fatal" in words:
        return AER_NONFATAL
    return AER_FATAL if "Fatal" in words else AER_CORRECTED


_AER = frozenset({AER_CORRECTED.name, AER_HIDDEN.name, AER_NONFATAL.name, AER_FATAL.name})


def messages(lines: Iterable[str]) -> list[Message]:
    """Return what *lines* of a log mean, in their order; the lines of one PCIe error are one message."""
    return _gather((_parse(line), 1) for line in lines)


def _gather(parsed: Iterable[tuple[Message | None, int]]) -> list[Message]:
    out: list[Message] = []
    open_at: dict[str, int] = {}
    """By device: the place of its last PCIe error, to which further lines add."""
    reported: set[int] = set()
    """Places of errors that only the root port has told of so far."""
    last = -1
    for found, count in parsed:
        if found is None:
            continue
        if found.kind is _NOTHING:
            place = last if found.hidden else open_at.get(found.address, -1)
            if place >= 0:
                out[place] = _more(out[place], found)
            continue
        one = replace(found, count=count)
        if one.kind.name in _AER:
            is_report = " received" in one.text
            place = next((at for at in (open_at.get(one.address, -1), last) if at in reported), -1)
            if not is_report and place >= 0 and out[place].kind is one.kind and out[place].address in {one.address, ""}:
                # What the root port told, now from the device itself.
                reported.discard(place)
                out[place] = replace(one, count=max(one.count, out[place].count), seconds=out[place].seconds)
                open_at[one.address] = last = place
                continue
            open_at[one.address] = last = len(out)
            if is_report:
                reported.add(len(out))
        out.append(one)
    return [_told(message) for message in out]


def _more(message: Message, detail: Message) -> Message:
    if detail.hidden:
        kind = AER_HIDDEN if message.kind is AER_CORRECTED else message.kind
        return replace(message, kind=kind, level=kind.level, words=kind.words, hidden=message.hidden + detail.hidden)
    mine = [error for error in detail.errors if (error in set(CORRECTED.values())) is (
        message.kind in (AER_CORRECTED, AER_HIDDEN)) and error not in message.errors]
    return replace(message, errors=(*message.errors, *mine))


def _told(message: Message) -> Message:
    """A PCIe error with its names in its words."""
    if message.kind.name not in _AER or not (message.errors or message.hidden):
        return message
    names = ", ".join(f"{error} ({ERRORS[error]})" for error in message.errors)
    left_out = f"; {message.hidden} lines left out by the kernel" if message.hidden else ""
    return replace(message, words=f"{message.kind.words}{f': {names}' if names else ''}{left_out}")


# -- cells of the probe ----------------------------------------------------------------------------------------------

MOST_TEXTS = 4096
STEP = 4096
"""A number that stands for lines is this times a count of ours, plus the number of the gravest kind among them."""
MOST = float(1 << 52)
TEXTS: dict[int, str] = {}
"""Lines that nodes have sent and that are kept, by the number that stands for them in the table."""
_CELLS: dict[int, tuple[Message, ...]] = {}
_NUMBERS: dict[str, float] = {}
_SERIAL = itertools.count(1)


def number(cell: str) -> float:
    """Return the number that stands for a cell of the probe; 0 for an empty one.

    The oldest of very many are forgotten; of these the number still says the gravest kind.

    Raises:
        ValueError: it is no such cell.
    """
    if not cell:
        return 0.0
    known = _NUMBERS.get(cell)
    if known is not None:
        return known
    found = _of_cell(cell)
    gravest = max(found, key=lambda one: one.level, default=None)
    value = next(_SERIAL) * STEP + (NUMBER[gravest.kind.name] if gravest is not None else NUMBER[OTHER.name])
    while len(TEXTS) >= MOST_TEXTS:
        oldest = next(iter(TEXTS))
        del TEXTS[oldest], _CELLS[oldest]
        del _NUMBERS[next(iter(_NUMBERS))]
    TEXTS[value] = " | ".join(f"{one.count}x {one.text}" for one in found) or OTHER.words
    _CELLS[value] = found
    _NUMBERS[cell] = float(value)
    return float(value)


def _of_cell(cell: str) -> tuple[Message, ...]:
    """The messages of a cell, newest first; what is said of one thing more than once is one of them."""
    parsed: list[tuple[Message | None, int]] = []
    for line in reversed(cell.split("\n")[:32]):
        match = _CELL.fullmatch(line[:MAX_LINE].strip())
        if match is None:
            raise ValueError(f"{clean(line, 40)!r} is not COUNTx TEXT")
        text = match[2]
        found = _parse(text)
        if found is None and not _DETAIL.match(text):
            found = Message(OTHER, words=OTHER.words, text=clean(text, 240), level=OTHER.level)
        parsed.append((found, int(match[1])))
    out: dict[tuple[str, str], Message] = {}
    for one in _gather(parsed):
        same = out.pop((one.kind.name, one.name), None)
        if same is not None:
            both = (*same.errors, *(error for error in one.errors if error not in same.errors))
            one = _told(replace(one, count=one.count + same.count, errors=both,
                                hidden=max(one.hidden, same.hidden)))
        out[one.kind.name, one.name] = one
    return tuple(reversed(out.values()))


def listed(value: float) -> tuple[Message, ...]:
    """The messages of what :func:`number` returned, newest first; of a forgotten one the gravest kind alone."""
    if value != value or not value:
        return ()
    found = _CELLS.get(int(value))
    if found is not None:
        return found
    kind = KINDS[int(value) % STEP] if int(value) % STEP < len(KINDS) else OTHER
    return (Message(kind, words=re.sub(r"\{\w+\}", "?", kind.words), count=0, level=kind.level),)


def level(value: float) -> float:
    """How grave is the gravest of what :func:`number` returned; NaN for an unknown one."""
    if value != value:
        return float("nan")
    return float(max((one.level for one in listed(value)), default=NONE))


def _code(text: str) -> int:
    found = _XID.match(text)
    return int(found[2]) if found else 0


LEVEL_WORDS = {NONE: "none", INFO: "info", WARNING: "warning", CRITICAL: "critical"}
