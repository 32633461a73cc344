"""HTTP to one BMC: one request at a time with a gap between, bounded bodies, deadlines, and failures told apart."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import time
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

import msgspec

from clustertop import __version__
from clustertop.sources.bmc_reading import BmcState
from clustertop.sources.care import BmcFailure
from clustertop.sources.redfish_wire import EndedError, TooLongError, Wire, WireError, request
from clustertop.sources.tls import Tls, TlsError, context
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

LET_GO_SECONDS = 1.0
"""How long a goodbye is waited for."""
_SAFE = "/?#[]@!$&'()*+,;=:%~-._"
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")


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


class Http:
    """The one connection to a BMC. No redirect is followed and no proxy used: our password goes to the BMC only."""

    def __init__(self, url: str, tls: Tls, limits: HttpLimits) -> None:
        self._host, self._port = _place(url)
        named = f"[{self._host}]" if ":" in self._host else self._host
        self._headers = {
            "Host": named if self._port == 443 else f"{named}:{self._port}", "User-Agent": f"clustertop/{__version__}",
            "OData-Version": "4.0", "Accept": "application/json", "Accept-Encoding": "identity"}
        self._limits = limits
        self._lock = asyncio.Lock()
        self._free_at = 0.0
        self._tls = tls
        self._wire: Wire | None = None
        self.requests = 0
        """Requests sent so far."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        wire, self._wire = self._wire, None
        if wire is not None:
            try:
                async with asyncio.timeout(LET_GO_SECONDS):
                    await wire.close()
            except TimeoutError:
                await asyncio.sleep(0)  # it has been cut off; the loop has yet to close its socket

    def _drop(self) -> None:
        """Let go of the connection: after an exchange that did not end, nobody knows what would come next on it."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.abort()

    async def request(self, method: str, path: str, *, headers: Mapping[str, str] | None = None,
                      auth: tuple[str, str] | None = None, json: Mapping[str, str] | None = None,
                      seconds: float | None = None) -> Answer:
        """Send one request once the one before is over and the gap has passed. Raises BmcFailure."""
        async with self._lock:
            await asyncio.sleep(max(0.0, self._free_at - time.monotonic()))
            self.requests += 1
            limit = seconds or self._limits.request_seconds
            message = self._message(method, path, headers or {}, auth, json)
            try:
                async with asyncio.timeout(limit):
                    return await self._exchange(message, limit, again=method in {"GET", "DELETE"})
            except TimeoutError:
                self._drop()
                raise BmcFailure(BmcState.NOT_ANSWERING, f"no answer within {limit:g} s") from None
            except (OSError, WireError) as error:
                self._drop()
                raise _failure(error, self._limits.body_bytes) from None
            except BaseException:
                self._drop()
                raise
            finally:
                self._free_at = time.monotonic() + self._limits.gap_seconds

    def _message(self, method: str, path: str, headers: Mapping[str, str], auth: tuple[str, str] | None,
                 json: Mapping[str, str] | None) -> bytes:
        more = {**self._headers, **headers}
        body = b""
        if auth is not None:
            more["Authorization"] = f"Basic {base64.b64encode(':'.join(auth).encode()).decode()}"
        if json is not None:
            more["Content-Type"], body = "application/json", msgspec.json.encode(json)
        try:
            return request(method, _quoted(path), more, body)
        except ValueError as error:  # only a service that means harm gives a token or an address like that
            raise BmcFailure(BmcState.BAD_ANSWER, str(error)) from None

    async def _exchange(self, message: bytes, limit: float, *, again: bool) -> Answer:
        most = self._limits.body_bytes
        wire = self._wire
        if wire is not None and wire.usable:
            try:
                return _answer(await wire.exchange(message), most)
            except (EndedError, ConnectionError) as error:
                # It closed the connection while we were about to use it, as it may: what changes nothing is asked anew.
                if not again or (isinstance(error, EndedError) and error.begun):
                    raise
        self._drop()
        try:
            verify = context(self._tls)
        except TlsError as error:
            raise BmcFailure(BmcState.TLS_FAILED, str(error)) from None
        try:
            async with asyncio.timeout(min(limit, self._limits.connect_seconds)):
                self._wire = await Wire.open(self._host, self._port, verify, most, LET_GO_SECONDS)
        except TimeoutError:
            raise BmcFailure(BmcState.NOT_ANSWERING, "no connection in time") from None
        except ssl.SSLError:
            raise
        except OSError as error:
            # What asyncio says of a connection has the address in it once more.
            known = error.errno is not None and error.errno > 0
            said = os.strerror(error.errno or 0) if known else error.strerror or str(error)
            raise BmcFailure(BmcState.NOT_ANSWERING, clean(f"no connection: {said}", 200)) from None
        return _answer(await self._wire.exchange(message), most)


def _place(url: str) -> tuple[str, int]:
    """Host and port of ``https://HOST[:PORT]``. Raises ValueError."""
    try:
        parsed = urlsplit(url if "://" in url else f"https://{url}")
        host, port = parsed.hostname or "", parsed.port or 443
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError:
        parsed, host, port = urlsplit(""), "", 0
    if parsed.scheme != "https" or not _HOST.fullmatch(host) or "@" in parsed.netloc:
        raise ValueError(f"a BMC is given as https://HOST[:PORT], without a password in it, not {clean(url, 80)!r}")
    return host, port


@lru_cache(maxsize=4096)
def _quoted(path: str) -> str:
    return quote(path, safe=_SAFE)


def _answer(got: tuple[int, dict[str, str], bytes], most: int) -> Answer:
    status, headers, body = got
    return Answer(status, headers, _plain(body, headers.get("content-encoding", ""), most))


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


def _failure(error: OSError | WireError, most: int) -> BmcFailure:
    """An error of the connection in our words. Its own text goes no further where it may hold the service's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = getattr(error, "verify_message", "") or str(error.args[-1])
        return BmcFailure(BmcState.TLS_FAILED, clean(str(said), 200))
    if isinstance(error, ssl.SSLError):
        return BmcFailure(BmcState.TLS_FAILED, clean(error.reason or str(error), 200))
    if isinstance(error, TooLongError):
        return BmcFailure(BmcState.BAD_ANSWER, f"answer longer than {most >> 20} MiB")
    if isinstance(error, EndedError):
        return BmcFailure(BmcState.BAD_ANSWER, str(error))
    if isinstance(error, WireError):
        return BmcFailure(BmcState.BAD_ANSWER, f"not an HTTP answer: {error}")
    return BmcFailure(BmcState.NOT_ANSWERING, clean(f"connection lost: {type(error).__name__}", 200))
