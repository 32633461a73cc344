"""One answer of ``sh_probe.sh``: its entries, and what all readers of them share. Pure: no clock, file or channel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from clustertop.probe.frames import MAX_ROWS, Err, Table
from clustertop.probe.pcie import AER_FILES, LINK_FILES
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clustertop.model import Attr
    from clustertop.probe.frames import Cell

_ERRNOS = {
    "invalid argument": "EINVAL", "permission denied": "EACCES", "operation not permitted": "EPERM",
    "no such file or directory": "ENOENT", "no such device": "ENODEV", "no such device or address": "ENXIO",
    "input/output error": "EIO", "i/o error": "EIO", "operation not supported": "EOPNOTSUPP",
    "not supported": "EOPNOTSUPP", "is a directory": "EISDIR", "not a directory": "ENOTDIR",
    "device or resource busy": "EBUSY", "resource busy": "EBUSY", "resource temporarily unavailable": "EAGAIN",
    "connection timed out": "ETIMEDOUT", "operation timed out": "ETIMEDOUT", "cannot allocate memory": "ENOMEM",
    "out of memory": "ENOMEM", "no data available": "ENODATA", "value too large for defined data type": "EOVERFLOW",
    "remote i/o error": "EREMOTEIO", "bad address": "EFAULT", "too many open files": "EMFILE",
    "interrupted system call": "EINTR", "stale file handle": "ESTALE", "protocol error": "EPROTO",
}  # fmt: skip
"""What cat says, GNU's and busybox's words, in lower case."""

_COLUMN_OF = {"speed": "speed_mbps", **{file: column for column, file in (*LINK_FILES, *AER_FILES)}}
"""Columns that are not called as their file is."""
_FOLDERS = {"statistics": "", "counters": "c:", "counters_ext": "x:", "hw_counters": "h:"}

_ENTRY = re.compile(rb"([^=!]*)([=!])(.*)", re.DOTALL)


def reason(text: str) -> Err:
    """``Invalid argument`` → ``EINVAL``; words that are no errno's stay."""
    return Err(_ERRNOS.get(text.strip().lower()) or clean(text.strip(), 48) or "unreadable")


def _column(name: str) -> str:
    """``hw_counters/lifespan`` → ``h:lifespan``; ``max_link_width`` → ``max_width``; others as they are."""
    folder, slash, file = name.partition("/")
    return _FOLDERS[folder] + file if slash and folder in _FOLDERS else _COLUMN_OF.get(name, name)


class Section:
    """One answer of the script: entries, each with what it is about."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.entries: list[tuple[str, str, Cell]] = []
        about = ""
        for line in lines:
            for part in line.split(b"\t"):
                if part.startswith(b">"):
                    about = part[1:].decode("utf-8", "replace")
                    continue
                match = _ENTRY.fullmatch(part)
                if match is not None:
                    name = match[1].decode("utf-8", "replace")
                    about = "" if name == "end" else about
                    text = match[3].decode("utf-8", "replace")
                    self.entries.append((about, name, text if match[2] == b"=" else reason(text)))

    def text(self, name: str) -> str:
        """The text of the first entry called *name*, empty if there is none."""
        return next((cell for _, one, cell in self.entries if one == name and isinstance(cell, str)), "")

    def has(self, name: str) -> bool:
        """True where there is such an entry."""
        return any(one == name for _, one, _ in self.entries)

    def number(self, name: str) -> float | None:
        """The number of the first entry called *name*, or None."""
        try:
            return float(self.text(name)) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", self.text(name).strip()) else None
        except ValueError:
            return None

    def by_thing(self) -> Iterator[tuple[str, dict[str, Cell]]]:
        """Each thing with its entries; an entry that comes twice: all its texts, with commas."""
        things: dict[str, dict[str, Cell]] = {}
        for about, name, cell in self.entries:
            if not about or (about not in things and len(things) >= 4 * MAX_ROWS):
                continue
            cells = things.setdefault(about, {})
            column = _column(name)
            before = cells.get(column)
            both = isinstance(before, str) and isinstance(cell, str)
            cells[column] = f"{before},{cell}" if both else cell
        yield from things.items()

    def listing_error(self, where: str) -> str:
        """Why the things could not be listed; empty where they were."""
        found = next((cell for _, name, cell in self.entries if name == "list" and isinstance(cell, Err)), None)
        return f"{found.reason}: {where}" if found is not None else ""


class Reader(Protocol):
    """Makes one group's tables."""

    tables: dict[str, Table]
    state: str
    error: str
    facts: dict[str, Attr]
    incomplete: bool
    """True where the next request should be for everything."""

    def take(self, section: Section) -> bool:
        """Take an answer; returns True if the group should be asked again at once."""
        ...

    def let_go(self, words: str) -> None:
        """Nothing is read any more, for the reason in *words*."""
        ...

    def waits_for(self, section: Section) -> str:
        """What has not returned, by the answer so far."""
        ...


class Base:
    """What every reader keeps, and how it lets go."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.state = "wait"
        self.error = ""
        self.facts: dict[str, Attr] = {}
        self.incomplete = True

    def let_go(self, words: str) -> None:
        """Nothing is read any more: no old value may pass for a new one."""
        self.state, self.error = "released", words
        for name, old in self.tables.items():
            cells: list[Cell] = [Err(words)] * len(old.cells)
            self.tables[name] = Table(old.rows, old.columns, cells)

    def waits_for(self, section: Section) -> str:
        """What has not returned, by the answer so far."""
        return "a file of /sys" if not section.entries else f"a file of /sys after {section.entries[-1][0]}"


def text_of(cell: Cell) -> str:
    """The cleaned text of *cell*; empty where it is none."""
    return clean(cell.strip()) if isinstance(cell, str) else ""
