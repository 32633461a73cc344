"""TCP sockets by ``sock_diag``: a dump of those that carry data, and the last words of those that end.

The answers have a fixed layout, so they are read by ``struct`` at offsets: message by message, or all in one call
where the messages of a buffer are alike.

Sources: sock_diag(7); linux/inet_diag.h (inet_diag_req_v2, inet_diag_msg); linux/sock_diag.h (SKNLGRP_INET_TCP_DESTROY,
since Linux 4.5); linux/tcp.h (tcp_info; bytes_acked and bytes_received since 4.1).
"""

import errno
import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

    from .files import Call

    Rows = List[Tuple[bytes, bytes, bytes, bytes, bytes, int, int, bytes]]
    """Head of the message, source, destination, cookie, head of the attribute, rtt and rttvar (us), byte counters."""

SOCK_DIAG = 4
"""The netlink family."""
BUFFER = 1 << 17
MAX_EVENTS = 20000
"""Most last words read at one look: a node that closes more sockets is not made to tell of each."""
_ROOM = 4 << 20
"""Bytes that the kernel may keep for us of last words between two looks; refused without CAP_NET_ADMIN."""
_TIMEOUT_SECONDS = 3.0
_BY_FAMILY = 20
_FIRST = 18
"""TCPDIAG_GETSOCK: inet_diag_req, which does not choose a family."""
_ERROR, _DONE = 2, 3
_DUMP = 0x301
"""NLM_F_REQUEST | NLM_F_DUMP."""
_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING: those that have, or may still get, data."""
_GROUPS = 1 << 0 | 1 << 2
"""SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY."""
_SO_RCVBUFFORCE = 33
_INFO = 2
"""INET_DIAG_INFO: a tcp_info."""
_INFO_WANTED = 1 << (_INFO - 1)
_FAMILY_AT, _SOURCE_AT, _COOKIE_AT, _ATTRIBUTES_AT = 16, 24, 60, 88
_HEAD = _FAMILY_AT + 1
"""So many bytes at the start are the same in all messages of one answer that are of one length and family."""
_RTT_AT, _COUNTS_AT, _COUNTS_END = 68, 120, 136
"""Where tcp_info has tcpi_rtt, tcpi_rttvar, and tcpi_bytes_acked, tcpi_bytes_received."""

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")


class Layout(object):
    """How messages of one length and family are read."""

    __slots__ = ("attribute", "size", "unpack", "whole")

    def __init__(self, data: memoryview, at: int, size: int) -> None:
        """Find tcp_info in the message at *at*.

        Raises:
            ValueError: attributes do not fit the message, or there is none that says what TCP did.
        """
        self.size = (size + 3) & ~3
        place, length = _find(data, at, size)
        self.attribute = bytes(data[at + place : at + place + 4])
        address = "4s12x" if data[at + _FAMILY_AT] == socket.AF_INET else "16s"
        # Kernels before 4.1 end before the counters: what they do not say is empty, not 0.
        counts = "{}x16s".format(_COUNTS_AT - _RTT_AT - 8) if length >= _COUNTS_END else "0s"
        text = "={}s{}x{}{}4x8s{}x4s{}xII{}".format(
            _HEAD, _SOURCE_AT - _HEAD, address, address, place - _COOKIE_AT - 8, _RTT_AT, counts
        )
        self.whole = struct.Struct("{}{}x".format(text, self.size - struct.calcsize(text)))
        self.unpack = struct.Struct(text).unpack_from


class Diag(object):
    """Asks the kernel for the sockets of this network namespace."""

    def __init__(self, call: "Call") -> None:
        self._call = call
        self._data = bytearray(BUFFER)
        self._view = memoryview(self._data)
        self._layouts: "Dict[Tuple[int, int], Layout]" = {}
        self._heard: "Optional[socket.socket]" = None
        self.deaf = "not asked"
        """Why the last words of sockets are not heard; empty where they are."""
        self.lost = False
        """Whether some last words have been lost since :meth:`listen`."""

    def listen(self) -> None:
        """Begin to hear the last words of sockets, where the kernel lets us; ``deaf`` says why not."""
        if self._heard is not None:
            return
        try:
            heard = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, SOCK_DIAG)
        except OSError as error:
            self.deaf = _name(error)
            return
        try:
            heard.bind((0, _GROUPS))
            heard.setblocking(False)
        except OSError as error:
            self.deaf = _name(error)
            heard.close()
            return
        for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                heard.setsockopt(socket.SOL_SOCKET, option, _ROOM)
                break
            except OSError:
                continue  # without CAP_NET_ADMIN: at most what net.core.rmem_max allows
        self._heard, self.deaf, self.lost = heard, "", False

    def close(self, why: str = "closed") -> None:
        """Hear no more."""
        if self._heard is not None:
            self._heard.close()
            self._heard, self.deaf = None, why

    def ended(self) -> "Iterator[Rows]":
        """Yield the last words of the sockets that ended since the last call."""
        count = 0
        while self._heard is not None:
            try:
                size, sender = self._heard.recvfrom_into(self._data)
            except OSError as error:
                if error.errno == errno.ENOBUFS:  # more than there was room for
                    self.lost = True
                    continue
                return
            if sender[0] != 0:
                continue
            try:
                rows = self._rows(size, 0)[0]
            except ValueError:
                self.lost = True
                continue
            if rows:
                yield rows
            count += len(rows)
            if count >= MAX_EVENTS:
                self.close("too many")

    def dump(self, family: int = 0) -> "Iterator[Rows]":
        """Yield the sockets of *family*, or of both with one walk through the kernel's table, a part at a time.

        The request for both is that of the first inet_diag; the kernel answers it as ever, with its own type.

        Raises:
            OSError: the kernel refuses, or does not answer.
            ValueError: it answers with what is no whole message.
        """
        kind, request = _BY_FAMILY, struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, _INFO_WANTED, 0, _STATES)
        if not family:
            kind, request = _FIRST, struct.pack("=BBBB48xII", 0, 0, 0, _INFO_WANTED, _STATES, 0)
        self._call.what = "sock_diag dump {}".format(family or "")
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, SOCK_DIAG) as ours:
            ours.bind((0, 0))
            ours.settimeout(_TIMEOUT_SECONDS)
            ours.send(_HEADER.pack(_HEADER.size + len(request), kind, _DUMP, 1, 0) + request)
            more = True
            while more:
                size, sender = ours.recvfrom_into(self._data)
                if sender[0] != 0:
                    continue  # not from the kernel
                rows, more = self._rows(size, 1)
                if rows:
                    yield rows

    def _rows(self, end: int, number: int) -> "Tuple[Rows, bool]":
        """Return the sockets in the first *end* bytes of the buffer that answer *number*, and whether more follow."""
        rows = self._alike(end, number)
        if rows is not None:
            return rows, True
        data, at, find = self._view, 0, self._layouts.get
        rows = []
        while at < end:
            if at + _HEADER.size > end:
                raise ValueError("{} bytes are no message".format(end - at))
            size, kind, _, answers, _ = _HEADER.unpack_from(data, at)
            if size < _HEADER.size or at + size > end:
                raise ValueError("a message of {} bytes in {}".format(size, end - at))
            if answers != number:
                pass
            elif kind in (_BY_FAMILY, _FIRST):
                if size < _ATTRIBUTES_AT:
                    raise ValueError("a socket in {} bytes".format(size))
                layout = find((size, data[at + _FAMILY_AT]))
                row = layout.unpack(data, at) if layout is not None else None
                if layout is None or row is None or row[4] != layout.attribute:
                    layout = self._learn(at, size)
                    row = layout.unpack(data, at) if layout is not None else None
                if row is not None:
                    rows.append(row)
            elif kind == _DONE:
                return rows, False
            elif kind == _ERROR:
                code = -struct.unpack_from("=i", data, at + _HEADER.size)[0] if size >= 20 else errno.EBADMSG
                raise OSError(code, os.strerror(code))
            at += (size + 3) & ~3
        return rows, True

    def _alike(self, end: int, number: int) -> "Optional[Rows]":
        """Return the sockets of a buffer whose messages have one layout, known already; None: it is not so."""
        data = self._view
        if end < _ATTRIBUTES_AT:
            return None
        size, kind, _, answers, _ = _HEADER.unpack_from(data, 0)
        layout = self._layouts.get((size, data[_FAMILY_AT])) if kind in (_BY_FAMILY, _FIRST) else None
        if layout is None or answers != number or end % layout.size:
            return None
        rows = list(layout.whole.iter_unpack(data[:end]))
        head, attribute = bytes(data[:_HEAD]), layout.attribute
        if [row for row in rows if row[0] != head or row[4] != attribute]:
            return None
        return rows

    def _learn(self, at: int, size: int) -> "Optional[Layout]":
        """Return how to read the message at *at*; None: it has no tcp_info, as what waits out its time has none."""
        if len(self._layouts) > 64:
            self._layouts.clear()
        try:
            layout = Layout(self._view, at, size)
        except LookupError:
            return None
        self._layouts[size, self._data[at + _FAMILY_AT]] = layout
        return layout


def _find(data: memoryview, at: int, size: int) -> "Tuple[int, int]":
    """Return place and length of the tcp_info of the message at *at*.

    Raises:
        LookupError: it has none, or one without round trip times.
        ValueError: its attributes do not fit.
    """
    place = _ATTRIBUTES_AT
    while place + _ATTRIBUTE.size <= size:
        length, kind = _ATTRIBUTE.unpack_from(data, at + place)
        if length < _ATTRIBUTE.size or place + length > size:
            raise ValueError("an attribute of {} bytes in {}".format(length, size - place))
        if kind == _INFO and length - _ATTRIBUTE.size >= _RTT_AT + 8:
            return place, length - _ATTRIBUTE.size
        place += (length + 3) & ~3
    raise LookupError("no tcp_info")


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "errno {}".format(error.errno))
