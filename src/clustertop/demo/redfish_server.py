"""A demo BMC's HTTPS service: HTTP/1.1 with sessions, two at most, as a controller has them. It only reads.

One certificate, made at the start, serves all of them; the console pins it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime
import hmac
import ipaddress
import json
import secrets
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from clustertop.demo.bmc_tree import BASE, SESSION_SECONDS, SESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SLOTS = 2
MAX_HEAD, MAX_BODY = 16_384, 4_096
_WORDS = {200: "OK", 201: "Created", 204: "No Content", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
          405: "Method Not Allowed", 503: "Service Unavailable"}  # fmt: skip


@dataclass(slots=True)
class Bmc:
    """One controller: who may log in, and what it says."""

    user: str
    password: str
    body: Callable[[str], Mapping[str, Any] | None]
    """The resource at a path, None where there is none."""
    dark: Callable[[], bool] = lambda: False
    """Whether it has no power."""
    hung: Callable[[], bool] = lambda: False
    """Whether it takes requests and answers none."""
    sessions: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Path to token and when it was last used."""
    made: int = 0
    most: int = 0
    """Sessions that were open at once, at most."""
    connections: set[asyncio.Transport] = field(default_factory=set)

    def answer(self, method: str, target: str, headers: Mapping[str, str], said: bytes) -> tuple[int, bytes, str]:
        """Status, body, and more header lines."""
        path = target.partition("?")[0].rstrip("/")
        self._expire()
        if method == "POST" and path == SESSIONS:
            return self._login(said)
        if path != BASE and not self._known(headers):
            return _error(401, "Base.1.12.NoValidSession", "There is no valid session established.")
        if method == "DELETE":
            return (204, b"", "") if self.sessions.pop(path, None) else _missing()
        if method != "GET":
            return _error(405, "Base.1.12.ActionNotSupported", "This service only reads.")
        found = self.body(path)
        if found is None:
            return _missing()
        if "$expand" in target:
            found = {**found, "Members": [self._member(one) for one in found.get("Members", ())]}
        return 200, json.dumps(found).encode(), ""

    def _member(self, member: Mapping[str, Any]) -> Mapping[str, Any]:
        return member if len(member) > 1 else self.body(str(member["@odata.id"])) or member

    def _expire(self) -> None:
        now = time.monotonic()
        for path, (_, used) in list(self.sessions.items()):
            if now - used > SESSION_SECONDS:
                del self.sessions[path]

    def _known(self, headers: Mapping[str, str]) -> bool:
        token = headers.get("x-auth-token", "")
        for path, (one, _) in self.sessions.items():
            if token and hmac.compare_digest(one.encode(), token.encode()):
                self.sessions[path] = one, time.monotonic()
                return True
        kind, _, coded = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            user, _, password = base64.b64decode(coded).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return self._right(user, password)

    def _right(self, user: object, password: object) -> bool:
        given = f"{user}\0{password}".encode()
        return hmac.compare_digest(given, f"{self.user}\0{self.password}".encode())

    def _login(self, said: bytes) -> tuple[int, bytes, str]:
        try:
            given = json.loads(said)
            user, password = given["UserName"], given["Password"]
        except (ValueError, KeyError, TypeError):
            return _error(400, "Base.1.12.MalformedJSON", "A login has UserName and Password.")
        if not self._right(user, password):
            return _error(401, "Base.1.12.ResourceAtUriUnauthorized", "User or password refused.")
        if len(self.sessions) >= SLOTS:
            return _error(503, "Base.1.12.SessionLimitExceeded",
                          "The number of simultaneous sessions exceeds the limit of the implementation.")  # fmt: skip
        self.made += 1
        path, token = f"{SESSIONS}/{self.made}", secrets.token_hex(16)
        self.sessions[path] = token, time.monotonic()
        self.most = max(self.most, len(self.sessions))
        body = json.dumps({"@odata.id": path, "Id": str(self.made), "Name": "Session"}).encode()
        return 201, body, f"X-Auth-Token: {token}\r\nLocation: {path}\r\n"


class Connection(asyncio.Protocol):
    """One client's connection with a BMC."""

    def __init__(self, bmc: Bmc) -> None:
        self._bmc = bmc
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._bmc.connections.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._bmc.connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._bmc.hung():
            self._data = b""
            return
        self._data += data
        while (found := self._request()) is not None:
            self._transport.write(found)
        if len(self._data) > MAX_HEAD + MAX_BODY:
            self._transport.abort()

    def _request(self) -> bytes | None:
        """Take one request from what came, and return its answer; None: it is not whole yet."""
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = headers.get("content-length", "0")
        size = int(length) if length.isascii() and length.isdigit() else 0
        if len(rest) < size <= MAX_BODY:
            return None
        self._data = rest[size:]
        words = first.split(" ")
        if len(words) != 3 or size > MAX_BODY:
            return _http(*_error(400, "Base.1.12.GeneralError", "This is no request."))
        return _http(*self._bmc.answer(words[0], words[1], headers, rest[:size]))


def _http(status: int, body: bytes, more: str) -> bytes:
    length = "" if status == 204 else f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status} {_WORDS[status]}\r\nOData-Version: 4.0\r\n{length}{more}\r\n".encode() + body


def _error(status: int, code: str, message: str) -> tuple[int, bytes, str]:
    said = {"code": "Base.1.12.GeneralError", "message": "See ExtendedInfo",
            "@Message.ExtendedInfo": [{"MessageId": code, "Message": message}]}  # fmt: skip
    return status, json.dumps({"error": said}).encode(), ""


def _missing() -> tuple[int, bytes, str]:
    return _error(404, "Base.1.12.ResourceMissingAtURI", "There is nothing here.")


def certificate(directory: Path) -> tuple[ssl.SSLContext, str]:
    """Make a key and a certificate of 127.0.0.1; returns the servers' context and the certificate's SHA-256 in hex."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clustertop demo BMC")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    chain = directory / "bmc.pem"
    chain.touch(0o600)
    chain.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                        serialization.NoEncryption()) + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    chain.unlink()
    return context, made.fingerprint(hashes.SHA256()).hex()
