"""Files of /proc and /sys: each read on its own, bounded, with the errno's name where it cannot be read."""

import errno
import os
import re

from .frames import MAX_ROWS, MAX_TEXT, Err

MAX_FILE = 65536
"""Most bytes read of one file."""
SMALL = 256
"""Most bytes read of a counter file that is kept open."""

PCI_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

    from .frames import Attr, Cell, Table

    What = Union[str, Tuple[str, int]]


class Call(object):
    """What a group's thread waits for right now: a file or an NVML call; empty while it rests."""

    __slots__ = ("what",)

    def __init__(self) -> None:
        self.what: "What" = ""

    def words(self) -> str:
        """The call in words, for example ``nvmlDeviceGetPowerUsage(GPU 3)``."""
        what = self.what
        if isinstance(what, tuple):
            return "{}(GPU {})".format(what[0], what[1]) if what[1] >= 0 else what[0] + "()"
        return what


class Reading(object):
    """What a group read: its tables, its state with the reason, and facts about the node."""

    __slots__ = ("e", "facts", "st", "tables")

    def __init__(
        self,
        tables: "Dict[str, Table]",
        st: str = "ok",
        e: str = "",
        facts: "Optional[Dict[str, Attr]]" = None,
    ) -> None:
        self.tables = tables
        self.st = st
        self.e = e
        self.facts = facts or {}


def reason(error: OSError) -> str:
    """Return the errno's name, for example ``EINVAL``."""
    return errno.errorcode.get(error.errno or 0, "errno {}".format(error.errno))


def value(data: bytes) -> "Cell":
    """Return a whole number where *data* is one, else its text without blanks around it."""
    data = data.strip()
    if data.isdigit() or (data[:1] == b"-" and data[1:].isdigit()):
        if len(data) < 20:
            return int(data)
        number = int(data[:64])
        if -(1 << 63) <= number < (1 << 64):
            return number
    return data[: MAX_TEXT * 4].decode("utf-8", "replace")[:MAX_TEXT]


class Tree(object):
    """The files below *root*, for one group's thread.

    Up to *keep* counter files stay open and are read again at their start: a third of what opening costs. With
    *stable*, files below another root are taken to be never replaced, as the kernel's own never are.
    """

    def __init__(self, root: str, call: Call, keep: int = 0, stable: bool = False) -> None:
        self.root = root.rstrip("/")
        self.call = call
        self._real = os.path.realpath(self.root or "/").rstrip("/")
        self._keep = keep
        self._open: "Dict[str, List[Any]]" = {}
        """Descriptor, bytes last read, and what they meant, by name."""
        self._replaced = bool(self.root) and not stable
        """Where the files are not the kernel's own, an open one may have been replaced by another."""

    def path(self, name: str) -> str:
        """Return the path of *name* (``sys/class/net``) below the root."""
        return self.root + "/" + name

    def read(self, name: str, limit: int = MAX_FILE) -> bytes:
        """Return the first *limit* bytes of a file.

        Raises:
            OSError: it cannot be read.
        """
        path = self.root + "/" + name
        self.call.what = path
        # Never wait for a writer where a pipe stands in place of a file.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return _all(fd, limit)
        finally:
            os.close(fd)

    def again(self, name: str, limit: int) -> bytes:
        """As :meth:`read`, for a file that is read every tick."""
        entry = self._open.get(name)
        if entry is not None and not self._replaced:
            self.call.what = name
            try:
                return os.pread(entry[0], limit, 0)
            except OSError:
                self.forget(name)
        if self._replaced or len(self._open) >= self._keep:
            return self.read(name, limit)
        path = self.root + "/" + name
        self.call.what = path
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._open[name] = [fd, b"", None]
        return os.pread(fd, limit, 0)

    def text(self, name: str) -> str:
        """Return a file's text without blanks around it; empty where it cannot be read."""
        try:
            return self.read(name).strip().decode("utf-8", "replace")
        except OSError:
            return ""

    def cell(self, name: str) -> "Cell":
        """Return a file's number or text, or why it could not be read."""
        try:
            return value(self.read(name))
        except OSError as error:
            return Err(reason(error))

    def hot(self, name: str) -> "Cell":
        """As :meth:`cell`, for a small file that is read every tick."""
        entry = self._open.get(name)
        if entry is None:
            return self._first(name)
        self.call.what = name
        try:
            if self._replaced and os.fstat(entry[0]).st_nlink == 0:
                raise OSError(errno.ESTALE, "replaced")
            data = os.pread(entry[0], SMALL, 0)
            if data != entry[1]:
                entry[1:] = data, value(data)
            return entry[2]  # type: ignore[no-any-return]
        except OSError:
            # The device may have gone, or gone and come back: what the name says now is what counts.
            self.forget(name)
            return self._first(name)

    def hots(self, names: "List[Optional[str]]", places: "Iterable[int]", cells: "List[Cell]") -> bool:
        """Put :meth:`hot` of the *names* at *places* into *cells*; True where one has become unreadable."""
        find, pread, call, replaced = self._open.get, os.pread, self.call, self._replaced
        worse = False
        for place in places:
            name = names[place]
            if name is None:
                continue
            entry = None if replaced else find(name)
            if entry is not None:
                call.what = name
                try:
                    data = pread(entry[0], SMALL, 0)
                    if data != entry[1]:
                        entry[1:] = data, value(data)
                    cells[place] = entry[2]
                    continue
                except OSError:
                    pass
            before = cells[place]
            cells[place] = cell = self.hot(name)
            worse = worse or (isinstance(cell, Err) and not isinstance(before, Err))
        return worse

    def _first(self, name: str) -> "Cell":
        if len(self._open) >= self._keep:
            return self.cell(name)
        path = self.root + "/" + name
        self.call.what = path
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return Err(reason(error))
        try:
            data = os.pread(fd, SMALL, 0)
        except OSError as error:
            os.close(fd)
            return Err(reason(error))
        cell = value(data)
        self._open[name] = [fd, data, cell]
        return cell

    def forget(self, *names: str) -> None:
        """Close kept files; all of them where none is named."""
        for name in names or tuple(self._open):
            entry = self._open.pop(name, None)
            if entry is not None:
                os.close(entry[0])

    def keep_only(self, names: "List[str]") -> None:
        """Close the kept files that are not among *names*."""
        for name in set(self._open).difference(names):
            self.forget(name)

    def names(self, name: str) -> "List[str]":
        """Return the sorted names in a directory, at most four times as many as a table has rows.

        Raises:
            OSError: it cannot be listed.
        """
        path = self.root + "/" + name
        self.call.what = path
        return sorted(os.listdir(path))[: 4 * MAX_ROWS]

    def is_dir(self, name: str) -> bool:
        """True where *name* is a directory, or a link to one."""
        return os.path.isdir(self.root + "/" + name)

    def real(self, name: str) -> str:
        """Return where *name* really lies below the root (``sys/devices/...``); empty where nothing is."""
        path = self.root + "/" + name
        self.call.what = path
        real = os.path.realpath(path)
        if self._real and not real.startswith(self._real + "/"):
            # A link that names an absolute path means the one inside this tree.
            real = os.path.realpath(self._real + real)
            if not real.startswith(self._real + "/"):
                return ""
        return real[len(self._real) + 1 :] if os.path.exists(real) else ""

    def base(self, name: str) -> str:
        """Return the last name of where the link *name* points; empty where it is no link."""
        if not os.path.islink(self.root + "/" + name):
            return ""
        return self.real(name).rpartition("/")[2]

    def pci(self, name: str) -> str:
        """Return the PCI address of the device *name*; empty where it is not a PCI function."""
        base = self.base(name)
        if not base:
            # No link: a tree copied file by file. The uevent file still says which function it is.
            for row in self.text(name + "/uevent").split("\n"):
                if row.startswith("PCI_SLOT_NAME="):
                    base = row[14:]
        base = base.lower()
        return base if PCI_ADDRESS.match(base) else ""


    def behind(self, name: str) -> str:
        """Return the address of the PCI function that *name* is or lies below; empty if none."""
        exact = self.pci(name)
        if exact:
            return exact
        found = [part for part in self.real(name).lower().split("/") if PCI_ADDRESS.match(part)]
        return found[-1] if found else ""


def _all(fd: int, limit: int) -> bytes:
    data = os.read(fd, limit)
    if len(data) >= limit or not data:
        return data
    parts = [data]
    size = len(data)
    while size < limit:
        data = os.read(fd, limit - size)
        if not data:
            break
        parts.append(data)
        size += len(data)
    return b"".join(parts)


def address(directory: str) -> "Optional[str]":
    """Return *directory* in lower case where it is named like a PCI function, else None."""
    low = directory.lower()
    return low if PCI_ADDRESS.match(low) else None
