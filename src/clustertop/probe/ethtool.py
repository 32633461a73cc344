"""What drivers count of their interfaces: ioctl SIOCETHTOOL, as ``ethtool -S`` does it. Needs no privilege.

Sources: include/uapi/linux/ethtool.h (struct ethtool_sset_info, ethtool_gstrings, ethtool_stats); net/ethtool/ioctl.c,
which lets these three commands pass for everybody.
"""

import array
import errno
import fcntl
import re
import socket
import struct

from .files import reason
from .frames import Err

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from .files import Call
    from .frames import Cell

SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_STATISTICS = 1
"""ETH_SS_STATS, the set of strings that names statistics."""
_NAME = 32
"""ETH_GSTRING_LEN."""
MOST = 16384
"""Most statistics of an interface that are asked for."""
_SPARE = 4096
"""Older kernels write as many as there are, however many were asked for: room for queues that were just added."""
_DIGITS = re.compile(r"\d+")


class Ethtool(object):
    """Reads the statistics whose names are among *names*, in which ``#`` stands for any number."""

    def __init__(self, names: "List[str]", call: "Call") -> None:
        self._names = frozenset(names)
        self._call = call
        self._socket: "Optional[socket.socket]" = None
        self._kept: "Dict[str, Tuple[int, List[Tuple[int, str]]]]" = {}
        """By interface: how many statistics it has, and place and name of those that are kept."""
        self._room = array.array("Q")

    def forget(self) -> None:
        """Ask again what statistics there are."""
        self._kept.clear()

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def read(self, name: str) -> "Dict[str, Cell]":
        """Return the kept statistics of interface *name*; none where its driver has none.

        Where they are known but cannot be read each is an :class:`Err`.
        """
        known = self._kept.get(name)
        if not self._names or (known is not None and not known[1]):
            return {}
        try:
            count = self._count(name)
            if known is None or known[0] != count:
                known = self._kept[name] = (count, self._strings(name, count) if count else [])
            return self._statistics(name, *known) if known[1] else {}
        except OSError as error:
            if known is not None:
                return {stat: Err(reason(error)) for _, stat in known[1]}
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM):
                self._kept[name] = (0, [])
            return {}

    def _ioctl(self, what: str, name: str, address: int) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._call.what = "SIOCETHTOOL {} {}".format(what, name)
        request = struct.pack("16sP16x", name.encode("utf-8", "surrogateescape")[:15], address)
        fcntl.ioctl(self._socket.fileno(), SIOCETHTOOL, request)

    def _count(self, name: str) -> int:
        asked = array.array("I", [_GSSET_INFO, 0, 1 << _STATISTICS, 0, 0, 0])
        self._ioctl("GSSET_INFO", name, asked.buffer_info()[0])
        # The mask says which sets there are; the sizes of these follow it.
        return min(asked[4], MOST) if asked[2] & (1 << _STATISTICS) else 0

    def _strings(self, name: str, count: int) -> "List[Tuple[int, str]]":
        asked = array.array("B", struct.pack("III", _GSTRINGS, _STATISTICS, count) + bytes((count + _SPARE) * _NAME))
        self._ioctl("GSTRINGS", name, asked.buffer_info()[0])
        data = asked.tobytes()
        count = min(count, struct.unpack_from("I", data, 8)[0])
        texts = [data[at : at + _NAME] for at in range(12, 12 + count * _NAME, _NAME)]
        names = [text.partition(b"\0")[0].decode("utf-8", "replace").strip() for text in texts]
        kept: "Dict[str, int]" = {}
        for place, stat in enumerate(names):
            if stat in self._names or _DIGITS.sub("#", stat) in self._names:
                kept.setdefault(stat, place)
        return [(place, stat) for stat, place in kept.items()]

    def _statistics(self, name: str, count: int, kept: "List[Tuple[int, str]]") -> "Dict[str, Cell]":
        if len(self._room) < 1 + count + _SPARE:
            self._room = array.array("Q", bytes(8 * (1 + count + _SPARE)))
        room = self._room
        struct.pack_into("II", room, 0, _GSTATS, count)
        self._ioctl("GSTATS", name, room.buffer_info()[0])
        if struct.unpack_from("II", room, 0)[1] != count:
            # They became more or fewer between the two calls: next time.
            raise OSError(errno.EAGAIN, "the statistics changed")
        return {stat: room[1 + place] for place, stat in kept}
