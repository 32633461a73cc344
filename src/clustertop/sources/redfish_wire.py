"""HTTP/1.1 over one TLS connection: one request, one bounded answer, nothing else.

RFC 9112. Not a general client: no redirects, proxies, cookies, pipelining or upgrades. A library's objects per request
cost more than the rest of a poll of 256 BMCs together; what is left here is what one GET needs.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

MOST_HEAD = 64 << 10
"""Longest status line and headers of an answer, in octets."""
MOST_INTERIM = 8
"""Most answers of 1xx before the real one."""
_AHEAD = 64 << 10
"""Octets that may lie here beyond what an answer is expected to have."""
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?$")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}(?:[ \t]*;[^\r\n]*)?")


class WireError(Exception):
    """What came is not an HTTP answer, or more of it than is taken. One short sentence without anything of its text."""


class TooLongError(WireError):
    """The answer is longer than it may be."""


class EndedError(WireError):
    """The connection ended. *begun*: after part of an answer had come."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__("the connection ended inside an answer" if begun else "the connection ended without an answer")
        self.begun = begun


class Wire(asyncio.Protocol):
    """One connection. What :meth:`exchange` raises leaves it unfit for another one: :meth:`abort` it then."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._error: Exception | None = None
        self._closed = asyncio.get_running_loop().create_future()
        self._keep = True

    @classmethod
    async def open(cls, host: str, port: int, context: ssl.SSLContext, most: int, close_seconds: float) -> Wire:
        """Connect. Raises OSError, of which ssl.SSLError is one. *most*: octets of a body."""
        _, wire = await asyncio.get_running_loop().create_connection(
            lambda: cls(most), host, port, ssl=context, ssl_shutdown_timeout=close_seconds)
        return wire

    @property
    def usable(self) -> bool:
        """Whether another request may be sent: it was left open, nothing came unasked, and nobody hung up."""
        return self._keep and not self._ended and not self._buffer and not self._closed.done()

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Say goodbye and close; when cancelled, at once."""
        if self._transport is None:
            return
        self._transport.close()
        try:
            await asyncio.shield(self._closed)
        finally:
            self._transport.abort()

    async def exchange(self, message: bytes, *, bodiless: bool = False) -> tuple[int, dict[str, str], bytes]:
        """Send *message*, a whole request; return the answer's status, headers (names in lower case) and body.

        Raises:
            WireError: no answer, or none that can be read.
            OSError: the network's word.
        """
        if self._transport is None:
            raise EndedError(begun=False)
        self._keep = False
        self._transport.write(message)
        for _ in range(MOST_INTERIM):
            version, status, headers = _head(await self._until(b"\r\n\r\n", MOST_HEAD))
            if status >= 200:
                break
        else:
            raise WireError("no end of interim answers")
        said = headers.get("connection", "").lower()
        keep = "close" not in said and (version == 1 or "keep-alive" in said)
        if bodiless or status in {204, 304}:
            body = b""
        elif "transfer-encoding" in headers:
            if headers["transfer-encoding"].strip().lower() != "chunked":
                raise WireError("an unknown transfer encoding")
            body = await self._chunks()
        elif "content-length" in headers:
            body = await self._exactly(_length(headers["content-length"]))
        else:
            keep = False
            body = await self._rest()
        self._keep = keep
        return status, headers, body

    # -- what comes ----------------------------------------------------------------------------------------------

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        if self._ended:
            raise EndedError(begun=bool(self._buffer))
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _until(self, end: bytes, most: int) -> bytes:
        start = 0
        while (place := self._buffer.find(end, start)) < 0:
            if len(self._buffer) > most:
                raise WireError("a line or a head without end")
            start = max(0, len(self._buffer) - len(end) + 1)
            await self._more()
        return self._taken(place, len(end))

    def _taken(self, count: int, skip: int = 0) -> bytes:
        found = bytes(self._buffer[:count])
        del self._buffer[:count + skip]
        return found

    async def _exactly(self, count: int) -> bytes:
        if count > self._most:
            raise TooLongError("too long")
        while len(self._buffer) < count:
            try:
                await self._more()
            except EndedError:
                raise EndedError(begun=True) from None
        return self._taken(count)

    async def _chunks(self) -> bytes:
        body = bytearray()
        try:
            while True:
                line = await self._until(b"\r\n", 4096)
                if not _SIZE.fullmatch(line):
                    raise WireError("a broken chunk")
                size = int(line.partition(b";")[0], 16)
                if len(body) + size > self._most:
                    raise TooLongError("too long")
                if not size:
                    break
                body += await self._exactly(size)
                if await self._exactly(2) != b"\r\n":
                    raise WireError("a broken chunk")
            trailers = 0
            while line := await self._until(b"\r\n", MOST_HEAD):
                trailers += len(line)
                if trailers > MOST_HEAD:
                    raise WireError("a line or a head without end")
        except EndedError:
            raise EndedError(begun=True) from None
        return bytes(body)

    async def _rest(self) -> bytes:
        while not self._ended:
            if len(self._buffer) > self._most:
                raise TooLongError("too long")
            try:
                await self._more()
            except EndedError:
                break
        return self._taken(len(self._buffer))

    # -- asyncio's calls -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport, so this cannot be asserted.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > self._most + MOST_HEAD + _AHEAD:
            self._error = TooLongError("too long")
            self.abort()
        self._wake()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._error = self._error or exc
        if not self._closed.done():
            self._closed.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def request(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """The octets of a request. Raises ValueError: a header or the target would not stay on its line."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {said}" for name, said in headers.items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head or " " in target:
        raise ValueError("a request with a line break in it")
    return head.encode("latin-1") + b"\r\n\r\n" + body


def _head(octets: bytes) -> tuple[int, int, dict[str, str]]:
    """Version (the digit behind 1.), status and headers; of several with one name, joined by commas."""
    first, *lines = octets.split(b"\r\n")
    match = _STATUS.match(first)
    if match is None:
        raise WireError("not HTTP")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, said = line.decode("latin-1").partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise WireError("a broken header")
        key, said = name.lower(), said.strip(" \t")
        headers[key] = f"{headers[key]}, {said}" if key in headers else said
    return int(match[1]), int(match[2]), headers


def _length(text: str) -> int:
    given = {one.strip() for one in text.split(",")}
    one = given.pop()
    if given or not re.fullmatch(r"[0-9]{1,18}", one):
        raise WireError("a broken content length")
    return int(one)
