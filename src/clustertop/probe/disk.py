"""Group ``disk``: how full the local file systems are. One that is on the network is never asked: it may not answer.

Sources: proc(5) for mounts; statvfs(3); Documentation/filesystems/overlayfs.rst (its upper layer is never NFS).
"""

import errno
import os

from .files import Reading, reason
from .frames import Err, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

    from .files import Tree
    from .frames import Attr, Cell, Row

MOST = 32
"""Most file systems that are read."""
_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "vfat"))
_MEMORY = frozenset(("tmpfs", "ramfs"))
_MEMORY_PLACES = ("/", "/dev/shm", "/tmp", "/var/tmp", "/run")  # noqa: S108 - they are only looked at
_SCRATCH = ("/scratch", "/local")
_PASSABLE = _LOCAL | _MEMORY | frozenset(("overlay", "rootfs", "devtmpfs", "squashfs", "erofs", "iso9660"))
"""A path through anything else could wait for a server."""
_CONTAINERS = (
    "/var/lib/docker/", "/var/lib/containerd/", "/var/lib/containers/", "/var/lib/kubelet/", "/run/", "/snap/",
)  # fmt: skip
_COLUMNS = ("size", "free", "available", "inodes", "inodes_free")


class Mount(object):
    """A line of /proc/self/mounts."""

    __slots__ = ("device", "kind", "options", "place")

    def __init__(self, device: str, place: str, kind: str, options: "List[str]") -> None:
        self.device = device
        self.place = place
        self.kind = kind
        self.options = options


class Disks(object):
    """Reads table ``disk``."""

    def __init__(self, tree: "Tree") -> None:
        self._tree = tree
        self._rows: "List[Row]" = []

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock."""
        try:
            mounts = chosen(parse(self._tree.read("proc/self/mounts", 1 << 20)))
        except OSError as failed:
            if failed.errno == errno.ENOENT and not self._rows:
                return Reading({}, "off")
            error = "{}: {}".format(reason(failed), self._tree.path("proc/self/mounts"))
            unread: "List[Cell]" = [Err(reason(failed))] * (len(_COLUMNS) * len(self._rows))
            return Reading({"disk": Table(self._rows, list(_COLUMNS), unread, error)})
        rows: "List[Row]" = [(mount.place, attributes(mount)) for mount in mounts]
        if rows != self._rows:
            self._rows = rows
        values = [self._sizes(mount.place) for mount in mounts]
        cells = [one[at] for at in range(len(_COLUMNS)) for one in values]
        return Reading({"disk": Table(self._rows, list(_COLUMNS), cells)})

    def close(self) -> None:
        """Nothing is kept open."""

    def _sizes(self, place: str) -> "List[Cell]":
        path = self._tree.path(place.lstrip("/"))
        self._tree.call.what = "statvfs " + path
        try:
            got = os.statvfs(path)
        except OSError as error:
            return [Err(reason(error))] * 5
        unit = got.f_frsize
        # Some file systems (btrfs) make inodes as they need them and say 0.
        inodes: "List[Cell]" = [got.f_files, got.f_ffree] if got.f_files else [Err("Not Supported")] * 2
        return [got.f_blocks * unit, got.f_bfree * unit, got.f_bavail * unit] + inodes


def parse(data: bytes) -> "List[Mount]":
    """Return the mounts, in order; later ones lie over earlier ones."""
    mounts = []
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        words = line.split(" ")
        if len(words) >= 4:
            mounts.append(Mount(_plain(words[0]), _plain(words[1]), words[2], words[3].split(",")))
    return mounts


def chosen(mounts: "List[Mount]") -> "List[Mount]":
    """Return those that are worth reading and cannot hang: local, each device once, the shortest place of it."""
    top: "Dict[str, Mount]" = {}
    for mount in mounts:
        top[mount.place] = mount
    devices: "Dict[str, Mount]" = {}
    for mount in sorted(top.values(), key=lambda one: (len(one.place), one.place)):
        if _wanted(mount) and all(above.kind in _PASSABLE for above in _above(mount.place, top)):
            # Memory file systems have no device of their own: each is another one.
            name = mount.place if mount.kind in _MEMORY or mount.kind == "overlay" else mount.device
            devices.setdefault(name, mount)
    return sorted(list(devices.values())[:MOST], key=lambda one: one.place)


def _wanted(mount: Mount) -> bool:
    if mount.place.startswith(_CONTAINERS):
        return False
    if mount.kind in _MEMORY:
        return mount.place in _MEMORY_PLACES or mount.place.startswith(_SCRATCH)
    if mount.kind == "overlay":
        # The root of a node without disks; its upper layer is memory or a disk.
        return mount.place == "/" and any(option.startswith("upperdir=") for option in mount.options)
    return mount.kind in _LOCAL


def _above(place: str, top: "Dict[str, Mount]") -> "List[Mount]":
    found = [top["/"]] if "/" in top else []
    at = place.find("/", 1)
    while at > 0:
        if place[:at] in top:
            found.append(top[place[:at]])
        at = place.find("/", at + 1)
    return found


def attributes(mount: Mount) -> "Dict[str, Attr]":
    """Return what is told of a file system beside its numbers."""
    return {"place": mount.place, "device": mount.device, "type": mount.kind, "read_only": "ro" in mount.options}


def _plain(word: str) -> str:
    """Undo the octal escapes of blanks, tabs, newlines and backslashes."""
    if "\\" not in word:
        return word
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, character)
    return word
