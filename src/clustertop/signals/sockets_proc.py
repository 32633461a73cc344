"""Sockets and flows as the kernel's own files and ``conntrack`` print them. Pure.

``/proc/net/tcp`` and ``tcp6`` name the sockets but count no bytes (Documentation/networking/proc_net_tcp.rst).
``conntrack -L`` and ``/proc/net/nf_conntrack`` count bytes with headers, and only with nf_conntrack_acct on, and only
for flows that began after it was switched on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from clustertop.signals.sockets import Endpoint, Socket, normal

_STATES = {
    1: "ESTAB", 2: "SYN-SENT", 3: "SYN-RECV", 4: "FIN-WAIT-1", 5: "FIN-WAIT-2", 6: "TIME-WAIT", 7: "CLOSED",
    8: "CLOSE-WAIT", 9: "LAST-ACK", 10: "LISTEN", 11: "CLOSING", 12: "NEW-SYN-RECV", 13: "BOUND-INACTIVE",
}  # fmt: skip
_PROC = re.compile(r"\s*\d+:\s+([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})\s+([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})\s+"
                   r"([0-9A-F]{2})\s")  # fmt: skip
_FLOW = re.compile(r"(?:ipv[46]\s+\d+\s+)?(?P<protocol>[a-z]\w*)\s+(?P<number>\d{1,3})\s")
_PAIR = re.compile(r"(?:^|\s)(src|dst|sport|dport|bytes)=(\S+)")


def parse_proc_net_tcp(text: str, *, big_endian: bool = False) -> list[Socket]:
    """Return the sockets of ``/proc/net/tcp`` or ``tcp6``; they have no counters.

    Addresses stand there as 32-bit words in the node's byte order; *big_endian* says that it has the other one.
    """
    sockets = []
    for line in text.splitlines():
        match = _PROC.match(line)
        if match is None:
            continue
        local, peer = (_hex(match[at], match[at + 1], big_endian=big_endian) for at in (1, 3))
        sockets.append(Socket(_STATES.get(int(match[5], 16), f"state {match[5]}"), local, peer))
    return sockets


def _hex(address: str, port: str, *, big_endian: bool) -> Endpoint:
    words = [bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8)]
    raw = b"".join(word if big_endian else word[::-1] for word in words)
    if not any(raw):
        return Endpoint("", int(port, 16))
    text = ".".join(map(str, raw)) if len(raw) == 4 else ":".join(raw.hex()[at : at + 4] for at in range(0, 32, 4))
    return Endpoint(normal(text) or "", int(port, 16))


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
    address = normal(values.get("src" if side == "s" else "dst", [""])[0])
    port = values.get(f"{side}port", [""])[0]
    return Endpoint(address, int(port)) if address and re.fullmatch("[0-9]{1,5}", port) else None
