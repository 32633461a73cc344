"""HTTP to one BMC: one request at a time with a gap between, bounded bodies, deadlines, and failures told apart."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import httpx
import msgspec

from clustertop import __version__
from clustertop.sources.bmc_reading import BmcState
from clustertop.sources.care import BmcFailure
from clustertop.sources.tls import Tls, TlsError, context
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

# At DEBUG httpcore writes out the headers of answers, and a login's answer holds the session's token.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)

IDLE_SECONDS = 1.0
"""A connection that was silent for longer may have been closed by the BMC."""
LET_GO_SECONDS = 1.0
"""How long an abandoned exchange is waited for."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one BMC is asked for at most, and how long it may take."""

    connect_seconds: float = 10.0
    request_seconds: float = 20.0
    gap_seconds: float = 0.1
    """Between the end of one request and the start of the next."""
    body_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as an object. Raises ValueError for anything else, however deep or broken."""
        try:
            found = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"not JSON: {clean(str(error), 120)}") from None
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of failure for the caller
        return found

    @property
    def words(self) -> str:
        """The service's own message in an error body, cleaned; empty where there is none."""
        try:
            error = self.json().get("error")
        except ValueError:
            return clean(self.body[:2000], 300)
        if not isinstance(error, dict):
            return ""
        more = error.get("@Message.ExtendedInfo")
        parts = [error, *(more if isinstance(more, list) else [more])]
        said = [str(part[name]) for part in parts if isinstance(part, dict)
                for name in ("MessageId", "code", "Message", "message") if isinstance(part.get(name), str)]
        return clean(" ".join(said), 400)

    @property
    def retry_after(self) -> float:
        """Seconds asked for by ``Retry-After``; 0 where it says none (a date is not followed)."""
        text = self.headers.get("retry-after", "").strip()
        return min(float(text), 86_400.0) if text.isdigit() else 0.0


@dataclass(slots=True)
class _Line:
    """A connection and what is known of it."""

    client: httpx.AsyncClient
    answered_at: float = -math.inf
    """When it last answered and stayed open."""
    connecting: bool = False

    async def trace(self, event: str, info: object) -> None:
        """httpcore's events: whether a connection is being made just now."""
        if event == "connection.connect_tcp.started":
            self.connecting = True
        elif event.startswith("http11.") or event.endswith(".failed"):
            self.connecting = False


class Http:
    """The one connection to a BMC. No redirect is followed and no proxy used: our password goes to the BMC only."""

    def __init__(self, url: str, tls: Tls, limits: HttpLimits) -> None:
        parsed = httpx.URL(url if "://" in url else f"https://{url}")
        if parsed.scheme != "https" or not parsed.host or parsed.userinfo:
            raise ValueError(f"a BMC is given as https://HOST[:PORT], without a password in it, not {clean(url, 80)!r}")
        self._base = parsed.copy_with(path="/", query=None, fragment=None)
        self._limits = limits
        self._lock = asyncio.Lock()
        self._free_at = 0.0
        self._tls = tls
        self._line: _Line | None = None
        self._ending: set[asyncio.Future[None]] = set()
        self.requests = 0
        """Requests sent so far."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        self._drop()
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=LET_GO_SECONDS)
        for task in set(self._ending):
            task.cancel()
        if self._ending:
            await asyncio.wait(set(self._ending))

    def _drop(self, exchange: asyncio.Future[Answer] | None = None) -> None:
        """Let go of the connection: after an exchange that did not end, nobody knows what would come next on it.

        This also ends *exchange*, which is under way.
        """
        line, self._line = self._line, None
        if line is not None:
            task = asyncio.ensure_future(self._bury(line, exchange))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _bury(self, line: _Line, exchange: asyncio.Future[Answer] | None) -> None:
        try:
            if exchange is not None and line.connecting:
                # httpcore leaves a socket open whose connecting is cut short; it has its own, short timeout.
                await asyncio.wait({exchange}, timeout=self._limits.connect_seconds + 1)
            await line.client.aclose()
        finally:
            if exchange is not None:
                exchange.cancel()
                await asyncio.wait({exchange})
                if not exchange.cancelled():
                    exchange.exception()  # an abandoned exchange ends in an error; that is no news

    def _opened(self) -> _Line:
        if self._line is None:
            try:
                verify = context(self._tls)
            except TlsError as error:
                raise BmcFailure(BmcState.TLS_FAILED, str(error)) from None
            self._line = _Line(httpx.AsyncClient(
                base_url=self._base, verify=verify, http2=False, trust_env=False, follow_redirects=False,
                limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
                headers={"User-Agent": f"clustertop/{__version__}", "OData-Version": "4.0",
                         "Accept": "application/json", "Accept-Encoding": "identity"}))
        return self._line

    async def request(self, method: str, path: str, *, headers: Mapping[str, str] | None = None,
                      auth: tuple[str, str] | None = None, json: Mapping[str, str] | None = None,
                      seconds: float | None = None) -> Answer:
        """Send one request once the one before is over and the gap has passed. Raises BmcFailure."""
        async with self._lock:
            line = self._opened()
            await asyncio.sleep(max(0.0, self._free_at - time.monotonic()))
            self.requests += 1
            limit = seconds or self._limits.request_seconds
            # A task of its own: neither the deadline nor a cancelled caller may cut it off while it connects.
            exchange = asyncio.ensure_future(self._exchange(line, method, path, headers or {}, auth, json, limit))
            try:
                await asyncio.wait({exchange}, timeout=limit)
            finally:
                overdue = not exchange.done()
                if overdue:
                    self._drop(exchange)
                    await asyncio.wait({exchange}, timeout=LET_GO_SECONDS)
                self._free_at = time.monotonic() + self._limits.gap_seconds
            if overdue:
                raise BmcFailure(BmcState.NOT_ANSWERING, f"no answer within {limit:g} s")
            try:
                return exchange.result()
            except httpx.TimeoutException as error:
                self._drop()
                what = "no connection" if isinstance(error, httpx.ConnectTimeout) else "no answer"
                raise BmcFailure(BmcState.NOT_ANSWERING, f"{what} in time") from None
            except httpx.HTTPError as error:
                self._drop()
                raise _failure(error) from None
            except BmcFailure:
                self._drop()
                raise

    async def _exchange(self, line: _Line, method: str, path: str, headers: Mapping[str, str],
                        auth: tuple[str, str] | None, json: Mapping[str, str] | None, limit: float) -> Answer:
        most = self._limits.body_bytes
        body = bytearray()
        sent = httpx.BasicAuth(*auth) if auth is not None else None
        timeout = httpx.Timeout(limit, connect=min(limit, self._limits.connect_seconds))
        # Events cost a good part of a request, and one that follows another on an open connection has no use for them.
        fresh = time.monotonic() - line.answered_at < IDLE_SECONDS
        traced = {} if fresh else {"trace": line.trace}
        line.answered_at = -math.inf
        async with line.client.stream(
            method, path, headers=dict(headers), auth=sent, json=json, timeout=timeout, extensions=traced
        ) as response:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > most:
                    raise BmcFailure(BmcState.BAD_ANSWER, f"answer longer than {most >> 20} MiB")
            if response.headers.get("connection", "").lower() != "close":
                line.answered_at = time.monotonic()
            found = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status_code, found, _plain(bytes(body), found.get("content-encoding", ""), most))


def _plain(body: bytes, encoding: str, most: int) -> bytes:
    """The body without its compression, which some firmware applies unasked; bounded, however it swells."""
    if encoding.strip().lower() not in {"gzip", "deflate"}:
        return body
    unpacker = zlib.decompressobj(47)
    try:
        plain = unpacker.decompress(body, most)
    except zlib.error:
        raise BmcFailure(BmcState.BAD_ANSWER, "answer with broken compression") from None
    if unpacker.unconsumed_tail:
        raise BmcFailure(BmcState.BAD_ANSWER, f"answer longer than {most >> 20} MiB")
    return plain


def _failure(error: httpx.HTTPError) -> BmcFailure:
    """A transport error in our words. The exception itself holds the request, with its password: it goes no further."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            said = getattr(cause, "verify_message", "") or str(cause.args[-1])
            return BmcFailure(BmcState.TLS_FAILED, clean(str(said), 200))
        if isinstance(cause, ssl.SSLError):
            return BmcFailure(BmcState.TLS_FAILED, clean(cause.reason or str(cause), 200))
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectError):
        return BmcFailure(BmcState.NOT_ANSWERING, clean(f"no connection: {error}", 200))
    if isinstance(error, httpx.RemoteProtocolError):
        return BmcFailure(BmcState.BAD_ANSWER, "the connection ended inside an answer")
    return BmcFailure(BmcState.NOT_ANSWERING, clean(f"connection lost: {type(error).__name__}", 200))
