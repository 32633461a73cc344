"""Group ``pcie``: links of GPUs, NICs and NVMe drives, and of every bridge between them and the root port.

With what the kernel's log says of them, and of other PCI devices from the moment on that it does.
"""

from .files import Reading, address, reason, value
from .frames import MAX_ROWS, Err, Table
from .kmsg import COLUMNS as LOG_COLUMNS
from .kmsg import Log, Messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set

    from .files import Tree
    from .frames import Attr, Cell, Row

RELIST_SECONDS = 60.0
_DEVICES = "sys/bus/pci/devices"
_CLASSES = ("0x03", "0x02", "0x0108")
LINK_FILES = (
    ("cur_width", "current_link_width"),
    ("max_width", "max_link_width"),
    ("cur_speed", "current_link_speed"),
    ("max_speed", "max_link_speed"),
)
AER_FILES = (
    ("aer_cor", "aer_dev_correctable"),
    ("aer_nonfatal", "aer_dev_nonfatal"),
    ("aer_fatal", "aer_dev_fatal"),
)
COLUMNS = [column for column, _ in LINK_FILES + AER_FILES] + list(LOG_COLUMNS)


class Pcie(object):
    """Reads table ``pcie``."""

    def __init__(self, tree: "Tree", log: "Optional[Log]" = None) -> None:
        self._tree = tree
        self._log = log or Log(tree.root)
        self._messages = Messages(self._log)
        self._spoken: "Set[str]" = set()
        """Whom the kernel's log has spoken of."""
        self._names: "List[str]" = []
        self._listed = -RELIST_SECONDS
        self._directories: "List[str]" = []
        self._fixed: "Dict[str, List[Cell]]" = {}
        self._rows: "List[Row]" = []

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        tree = self._tree
        error = ""
        self._messages.read(now)
        try:
            names = tree.names(_DEVICES)
        except OSError as failed:
            missing = reason(failed) == "ENOENT"
            names = _walk(tree) if missing else []
            if missing and not names and not self._names:
                return Reading({}, "off")
            if not names:
                error = "{}: {}".format(reason(failed), tree.path(_DEVICES))
        spoken = self._place()
        if not error and (names != self._names or spoken or now - self._listed >= RELIST_SECONDS):
            self._names = names
            self._listed = now
            self._relist(names)
            self._fixed = {}
        bases = self._directories
        cells: "List[Cell]" = []
        for column, name in LINK_FILES:
            if not column.startswith("max_"):
                cells += [tree.cell(base + "/" + name) for base in bases]
                continue
            # What a device could do at most does not change while it is there.
            known = self._fixed.get(column) or [Err("not read")] * len(bases)
            self._fixed[column] = [
                tree.cell(base + "/" + name) if isinstance(cell, Err) else cell
                for base, cell in zip(bases, known)  # noqa: B905 - not in Python 3.6
            ]
            cells += self._fixed[column]
        cells += [_total(tree, base + "/" + name) for _, name in AER_FILES for base in bases]
        said = [self._messages.cells(key, now) for key, _ in self._rows]
        cells += [mine[column] for column in range(len(LOG_COLUMNS)) for mine in said]
        facts: "Dict[str, Attr]" = {"kernel_log": self._messages.source}
        return Reading({"pcie": Table(self._rows, list(COLUMNS), cells, error)}, facts=facts)

    def close(self) -> None:
        """Close the kernel's log."""
        self._log.close()

    def _place(self) -> bool:
        """Put what the log says of drives and virtual functions to their PCI devices; True where somebody is new."""
        new = [name for name in self._messages.names() if name not in self._spoken]
        for name in new:
            self._spoken.add(name)
            drive = name.startswith("nvme")
            stands = self._tree.pci("sys/class/nvme/" + name + "/device") if drive else (
                self._tree.base(_DEVICES + "/" + name + "/physfn").lower())
            if stands and stands != name:
                self._messages.stand(name, stands)
                self._spoken.add(stands)
        return bool(new)

    def _relist(self, names: "List[str]") -> None:
        tree = self._tree
        directories: "Dict[str, str]" = {}
        for name in names:
            bdf = address(name.rpartition("/")[2])
            if bdf:
                base = name if "/" in name else _DEVICES + "/" + name
                directories[bdf] = tree.real(base) or base
        paths: "Dict[str, List[str]]" = {}
        wanted: "Dict[str, None]" = {}
        for bdf, base in directories.items():
            # A virtual function has no link of its own: its parent's row stands for it.
            if not (bdf in self._spoken or _watched(tree, base)) or tree.base(base + "/physfn"):
                continue
            wanted[bdf] = None
            paths[bdf] = _above(tree, base)
            for above in paths[bdf]:
                if above in directories:
                    wanted[above] = None
                    paths.setdefault(above, _above(tree, directories[above]))
        rows = [(bdf, _attributes(tree, directories[bdf], paths[bdf])) for bdf in sorted(wanted)]
        if rows != self._rows:
            self._rows = rows
            self._directories = [directories[bdf] for bdf in sorted(wanted)]


def _walk(tree: "Tree") -> "List[str]":
    """Return the PCI functions below sys/devices; for trees copied without the links of sys/bus."""
    found: "List[str]" = []
    todo = ["sys/devices"]
    while todo and len(found) < MAX_ROWS:
        base = todo.pop()
        try:
            names = tree.names(base)
        except OSError:
            continue
        for name in names:
            if address(name):
                found.append(base + "/" + name)
            if address(name) or (base == "sys/devices" and name.startswith("pci")):
                todo.append(base + "/" + name)
    return sorted(found)


def _watched(tree: "Tree", base: str) -> bool:
    """True for display controllers, network controllers and NVMe drives."""
    kind = tree.text(base + "/class")
    if kind:
        return kind.startswith(_CLASSES)
    return any(tree.is_dir(base + "/" + name) for name in ("infiniband", "net", "nvme"))


def _above(tree: "Tree", base: str) -> "List[str]":
    """Return the addresses above a device, nearest first; empty where the tree does not say."""
    found = [address(part) for part in tree.real(base).split("/")[:-1]]
    return [part for part in reversed(found) if part]


def _attributes(tree: "Tree", base: str, path: "List[str]") -> "Dict[str, Attr]":
    attrs: "Dict[str, Attr]" = {"path": path}
    for attr in ("class", "vendor", "device"):
        attrs[attr] = tree.text(base + "/" + attr)
    vendor, device = tree.text(base + "/subsystem_vendor"), tree.text(base + "/subsystem_device")
    if vendor and device:
        attrs["subsystem"] = vendor + ":" + device
    driver = tree.base(base + "/driver")
    if driver:
        attrs["driver"] = driver
    numa = tree.cell(base + "/numa_node")
    if isinstance(numa, int):
        attrs["numa"] = numa
    names: "List[str]" = []
    for kind in ("net", "nvme"):
        try:
            names += tree.names(base + "/" + kind)
        except OSError:
            continue
    if names:
        attrs["name"] = ",".join(names[:8])
    return attrs


def _total(tree: "Tree", name: str) -> "Cell":
    """Return the number of the ``TOTAL_ERR_`` line of an AER file."""
    try:
        data = tree.read(name)
    except OSError as error:
        return Err(reason(error))
    for line in data.split(b"\n"):
        if line.startswith(b"TOTAL_ERR_"):
            return value(line.partition(b" ")[2])
    return Err("no TOTAL_ERR line")
