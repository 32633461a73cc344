"""TCP sockets where the kernel's own answer is not to be had: by ``ss`` of iproute2, else from /proc/net/tcp.

``ss -tine`` prints a line a socket, and below it, indented, what TCP did; a field that is 0 is left out. /proc has
addresses and states only.

Sources: ss(8) and iproute2's misc/ss.c; Documentation/networking/proc_net_tcp.rst.
"""

import errno
import os
import re
import select
import socket
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, List, Tuple

    from .files import Call, Tree
    from .sockdiag import Rows

PLACES = ("/usr/sbin/ss", "/sbin/ss", "/usr/bin/ss", "/bin/ss")
SECONDS = 2.0
"""An ss that has not ended by then is ended; where it does not let itself be ended, no second one is started."""
MAX_OUTPUT = 64 << 20
_PROC_LIMIT = 4 << 20
_ROWS = 512
_LIVE = frozenset(("ESTAB", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT", "LAST-ACK", "CLOSING"))
_LIVE_NUMBERS = frozenset((b"01", b"04", b"05", b"08", b"09", b"0B"))
_RTT = re.compile(r"\srtt:(\d{1,9}(?:\.\d{1,9})?)/(\d{1,9}(?:\.\d{1,9})?)(?=\s|$)")
_COUNTED = re.compile(r"\sbytes_(acked|received):(\d{1,19})(?=\s|$)")
_COOKIE = re.compile(r"\ssk:([0-9a-f]{1,16})(?=\s|$)")
_COUNTS = struct.Struct("=QQ")


class Ss(object):
    """Runs ``ss``, one at a time."""

    def __init__(self, call: "Call", places: "Tuple[str, ...]" = PLACES) -> None:
        self._call = call
        self._places = places
        self._left: "Any" = None
        self._counted = False
        self.seconds = 0.0
        """CPU time of the last ``ss``."""

    def rows(self) -> "Iterator[Rows]":
        """Yield the sockets of both families, a part of them at a time.

        Raises:
            OSError: there is no ``ss``, it fails, or it does not end in time.
        """
        import resource  # only where they are needed: they are not small
        import subprocess

        if self._left is not None and self._left.poll() is None:
            raise OSError(errno.EBUSY, "an earlier ss has not come back")
        self._left = None
        path = next((one for one in self._places if os.access(one, os.X_OK)), "")
        if not path:
            raise OSError(errno.ENOENT, "no ss")
        self._call.what = path
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process: "Any" = subprocess.Popen(
            [path, "-tine"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, close_fds=True, bufsize=0,
        )  # fmt: skip
        ended = False
        try:
            for texts in _texts(process.stdout.fileno(), time.monotonic() + SECONDS):
                rows = self._parsed(texts)
                if rows:
                    yield rows
            ended = True
        finally:
            if not ended:
                process.kill()
            process.stdout.close()
            try:
                status = process.wait(0.5)
            except subprocess.TimeoutExpired:
                self._left = process
                status = 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if status:
            raise OSError(errno.EIO, "ss ended with {}".format(status))

    def _parsed(self, texts: "List[str]") -> "Rows":
        rows: "Rows" = []
        for text in texts:
            row = parsed(text, self._counted)
            if row is not None:
                # A counter that is 0 is left out, and so are those that a kernel does not have.
                self._counted = self._counted or bool(row[7])
                rows.append(row)
        return rows


def _texts(fd: int, until: float) -> "Iterator[List[str]]":
    """Yield the sockets' lines, each with those that continue it. Raises OSError when it takes too long."""
    rest, size = b"", 0
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise OSError(errno.ETIMEDOUT, "ss did not end in time")
        data = os.read(fd, 1 << 16)
        size += len(data)
        if size > MAX_OUTPUT:
            raise OSError(errno.EFBIG, "ss says too much")
        lines = (rest + data).split(b"\n")
        # The last socket may go on in what is read next.
        keep = next((at for at in range(len(lines) - 1, 0, -1) if lines[at][:1] not in (b" ", b"\t", b"")), 0)
        if data:
            rest = b"\n".join(lines[keep:])[-65536:]
            lines = lines[:keep]
        joined: "List[str]" = []
        for line in lines:
            text = line.decode("ascii", "replace")
            if text[:1] in (" ", "\t") and joined:
                joined[-1] += text
            elif text:
                joined.append(text)
        if joined:
            yield joined
        if not data:
            return


def parsed(text: str, counted: bool = False) -> "Any":
    """Return the row of one socket, or None where *text* is none that carries data to an address.

    A counter that is left out is 0 where the other one stands there or *counted* says that this ``ss`` prints them.
    """
    words = text.split(None, 5)
    if words and words[0] == "tcp":  # the column Netid
        words = text.split(None, 6)[1:]
    if len(words) < 5 or words[0] not in _LIVE:
        return None
    local, peer = _address(words[3]), _address(words[4])
    if not local or not peer:
        return None
    more = " " + words[5] if len(words) > 5 else ""
    rtt = _RTT.search(more)
    counts = {name: int(digits) for name, digits in _COUNTED.findall(more)}
    cookie = _COOKIE.search(more)
    number = int(cookie.group(1), 16) if cookie else 0
    ends = (words[3] + words[4]).encode("ascii", "replace")
    known = bool(cookie and (counts or (counted and rtt)))
    return (
        b"", local, peer, struct.pack("=II", number & 0xFFFFFFFF, number >> 32) if cookie else ends, b"",
        _microseconds(rtt, 1), _microseconds(rtt, 2),
        _COUNTS.pack(counts.get("acked", 0), counts.get("received", 0)) if known else b"",
    )  # fmt: skip


def _microseconds(found: "Any", group: int) -> int:
    return int(round(float(found.group(group)) * 1000)) if found else 0


def _address(text: str) -> bytes:
    """Return the address of an end as ``ss`` writes it: ``10.0.0.1%eth0:22``, ``[fe80::1]%eth0:22``, ``::1:22``."""
    host = text.rpartition(":")[0].partition("%")[0].strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host)
    except (OSError, ValueError):
        return b""


def listed(tree: "Tree") -> "Iterator[Rows]":
    """Yield the sockets of /proc/net/tcp and tcp6: without counters, without round trips.

    Raises:
        OSError: /proc/net/tcp cannot be read.
    """
    for name in ("proc/net/tcp", "proc/net/tcp6"):
        try:
            data = tree.read(name, _PROC_LIMIT)
        except OSError:
            if name.endswith("6"):
                return
            raise
        rows: "Rows" = []
        for line in data.split(b"\n")[1:]:
            words = line.split(None, 4)
            if len(words) < 4 or words[3] not in _LIVE_NUMBERS:
                continue
            local, peer = _unhex(words[1]), _unhex(words[2])
            if local and peer:
                rows.append((b"", local, peer, words[1] + words[2], b"", 0, 0, b""))
            if len(rows) >= _ROWS:
                yield rows
                rows = []
        if rows:
            yield rows


def _unhex(text: bytes) -> bytes:
    """Return an address that stands there as 32-bit words of the node's byte order."""
    try:
        raw = bytes.fromhex(text.partition(b":")[0].decode("ascii"))
    except ValueError:
        return b""
    if len(raw) not in (4, 16):
        return b""
    if sys.byteorder == "big":
        return raw
    return b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
