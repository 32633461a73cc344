"""How a device's certificate is checked: by the system's CAs, a CA file of the site, or a pinned fingerprint."""

from __future__ import annotations

import hashlib
import hmac
import ssl
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


class TlsError(Exception):
    """A TLS choice that cannot be honoured. One sentence."""


@dataclass(frozen=True, slots=True)
class Tls:
    """What is accepted. The default checks the certificate and the name against the system's CAs."""

    ca_file: str = ""
    """PEM file of the CAs that signed the device's certificate, instead of the system's."""
    fingerprint: str = ""
    """SHA-256 of the certificate itself, hexadecimal, colons allowed; then neither CA nor name matter."""
    insecure: bool = False
    """Accept any certificate. Whoever answers gets the password."""


class _PinnedContext(ssl.SSLContext):
    """A context that accepts one certificate."""

    pin: bytes = b""


class _PinnedObject(ssl.SSLObject):
    """Checks the certificate at the end of the handshake, so before anything of ours is sent."""

    def do_handshake(self) -> None:
        super().do_handshake()
        context = self.context
        certificate = self.getpeercert(binary_form=True) or b""
        digest = hashlib.sha256(certificate).digest()
        if not isinstance(context, _PinnedContext) or not hmac.compare_digest(digest, context.pin):
            raise ssl.SSLCertVerificationError(f"the certificate's SHA-256 is {digest.hex()}, not the pinned one")


def fingerprint(text: str) -> bytes:
    """``AB:CD:…`` or ``sha256:abcd…`` → 32 bytes. Raises TlsError."""
    plain = text.lower().removeprefix("sha256:").replace(":", "").replace(" ", "")
    try:
        digest = bytes.fromhex(plain)
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise TlsError("a certificate fingerprint is a SHA-256 in 64 hexadecimal digits")
    return digest


@lru_cache(maxsize=1024)
def context(tls: Tls) -> ssl.SSLContext:
    """An SSL context for *tls*. Raises TlsError."""
    if tls.fingerprint:
        pinned = _PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
        pinned.check_hostname = False
        pinned.verify_mode = ssl.CERT_NONE
        pinned.pin = fingerprint(tls.fingerprint)
        made: Any = pinned
        made.sslobject_class = _PinnedObject
        return pinned
    try:
        checked = ssl.create_default_context(cafile=tls.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"CA file {tls.ca_file}: {error.strerror or error}") from None
    if tls.insecure:
        checked.check_hostname = False
        checked.verify_mode = ssl.CERT_NONE
    return checked
