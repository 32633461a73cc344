"""Flows as the kernel's connection tracking prints them. Pure.

``conntrack -L`` and ``/proc/net/nf_conntrack`` count bytes with headers, and only with nf_conntrack_acct on, and only
for flows that began after it was switched on.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_FLOW = re.compile(r"(?:ipv[46]\s+\d+\s+)?(?P<protocol>[a-z]\w*)\s+(?P<number>\d{1,3})\s")
_PAIR = re.compile(r"(?:^|\s)(src|dst|sport|dport|bytes)=(\S+)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and a port."""

    address: str
    """IPv4 or v6 in its shortest form; v4 mapped into v6 is v4."""
    port: int


@dataclass(frozen=True, slots=True)
class Tracked:
    """One flow that the kernel tracks, from the end that opened it."""

    protocol: str
    source: Endpoint
    target: Endpoint
    sent: int | None
    """Bytes with headers; None: accounting is off."""
    received: int | None
    replied: bool
    """False: nothing has come back."""


def parse_conntrack(text: str) -> list[Tracked]:
    """Return the TCP and UDP flows of ``conntrack -L`` (also ``-o extended``) or ``/proc/net/nf_conntrack``."""
    found = []
    for line in text.splitlines():
        head = _FLOW.match(line)
        if head is None or head["protocol"] not in ("tcp", "udp"):
            continue
        values: dict[str, list[str]] = {}
        for name, value in _PAIR.findall(line):
            values.setdefault(name, []).append(value)
        source, target = (_end(values, side) for side in ("s", "d"))
        if source is None or target is None:
            continue
        counts = [int(one) if one.isascii() and one.isdigit() else None for one in values.get("bytes", [])]
        sent, received = (*counts, None, None)[:2]
        found.append(Tracked(head["protocol"], source, target, sent, received, "[UNREPLIED]" not in line))
    return found


def _end(values: dict[str, list[str]], side: str) -> Endpoint | None:
    """The source or destination of the original direction, which stands first."""
    address = _normal(values.get("src" if side == "s" else "dst", [""])[0])
    port = values.get(f"{side}port", [""])[0]
    return Endpoint(address, int(port)) if address and re.fullmatch("[0-9]{1,5}", port) else None


def _normal(text: str) -> str | None:
    """An IP address in its one spelling; None: *text* is no address."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)
