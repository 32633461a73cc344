"""TCP sockets as ``ss`` prints them, and what each peer got between two looks. Pure.

The text is that of ``ss -tineHO`` (iproute2; fields from the kernel's tcp_info) in every form seen: one line a
socket or two, with and without header and Netid, old and new units. ``bytes_acked`` and ``bytes_received`` count from
the socket's start; the first includes the SYN. A field that is 0 is left out by ``ss``, and kernels before 4.1 have
neither: so a missing one is 0 only where another socket of the same text has one.
"""

from __future__ import annotations

import ipaddress
import re
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STATES = frozenset(
    {
        "ESTAB", "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT", "CLOSE-WAIT", "LAST-ACK", "CLOSING",
        "LISTEN", "UNCONN", "CLOSED", "NEW-SYN-RECV", "BOUND-INACTIVE",
    }
)  # fmt: skip
_NETIDS = frozenset({"tcp", "udp", "mptcp", "sctp", "dccp", "raw", "icmp6", "u_str", "u_dgr", "nl", "p_raw", "p_dgr"})
_UNSAID = ""
"""``ss state established`` leaves the column of states out; UDP looks the same, but has no TCP fields."""
_TCP = re.compile(r"(?:^|\s)rto:\d")
_COUNTED = re.compile(r"(?:^|\s)bytes_(acked|received):(\d{1,20})(?=\s|$)")
_RTT = re.compile(r"(?:^|\s)rtt:(\d{1,9}(?:\.\d{1,9})?)/(\d{1,9}(?:\.\d{1,9})?)(?=\s|$)")
_COOKIE = re.compile(r"(?:^|\s)sk:([0-9a-f]{1,16})(?=\s|$)")
_ENDPOINT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<plain>.*?))(?:%(?P<scope>[^:\s]+))?:(?P<port>\d{1,5}|\*)")
_NO_DATA = frozenset(
    {"LISTEN", "UNCONN", "SYN-SENT", "SYN-RECV", "NEW-SYN-RECV", "TIME-WAIT", "CLOSED", "BOUND-INACTIVE"}
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and a port, as the kernel has them."""

    address: str
    """IPv4 or v6 in its shortest form; v4 mapped into v6 is v4; ``%eth0`` behind a link-local one. Empty: any."""
    port: int
    """0: any."""

    @property
    def loopback(self) -> bool:
        """Whether it never leaves its node."""
        return self.address.startswith("127.") or self.address == "::1"


@dataclass(frozen=True, slots=True)
class Socket:
    """One TCP socket at one look. None: the text does not say."""

    state: str
    local: Endpoint
    peer: Endpoint
    cookie: str = ""
    """The kernel's own identity of the socket (``ss -e``); empty where it was not asked for."""
    acked: int | None = None
    """Bytes that the peer has acknowledged since the socket's start."""
    received: int | None = None
    rtt_ms: float | None = None
    rttvar_ms: float | None = None
    """Mean deviation of the round trip: jitter."""

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from other sockets: the cookie, or else both its ends."""
        return (self.cookie,) if self.cookie else (self.local, self.peer)

    @property
    def leaves(self) -> bool:
        """Whether its bytes leave the node."""
        inside = self.peer.loopback or self.local.loopback or self.peer.address == self.local.address
        return bool(self.peer.address) and not inside and self.state not in _NO_DATA


def endpoint(text: str) -> Endpoint | None:
    """Return the endpoint that ``ss`` writes as *text*, or None: a name, a path, a wildcard beside nothing."""
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        return None
    port = 0 if match["port"] == "*" else int(match["port"])
    written = match["six"] or match["plain"] or ""
    if port > 65535:
        return None
    if written in ("*", "0.0.0.0", "::"):  # noqa: S104 - read, not bound
        return Endpoint("", port)
    address = normal(written)
    if address is None:
        return None
    if match["scope"] and address.startswith("fe80:"):
        address += f"%{match['scope']}"
    return Endpoint(address, port)


def normal(text: str) -> str | None:
    """Return an IP address in its one spelling: shortest, mapped v4 as v4; None: *text* is no address."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)


def parse(text: str) -> list[Socket]:
    """Return the TCP sockets of ``ss`` output; headers, other protocols and lines of no known form are passed over."""
    rows: list[tuple[str, Endpoint, Endpoint, str]] = []
    ours = False
    for line in text.splitlines():
        if line[:1] in (" ", "\t"):
            if ours:
                state, local, peer, more = rows[-1]
                rows[-1] = (state, local, peer, f"{more} {line.strip()}")
            continue
        head = _head(line)
        ours = head is not None
        if head is not None:
            rows.append(head)
    rows = [row for row in rows if row[0] != _UNSAID or _TCP.search(row[3])]
    counted = any(_COUNTED.search(more) for *_, more in rows)
    return [_socket(state, local, peer, more, counted=counted) for state, local, peer, more in rows]


def _head(line: str) -> tuple[str, Endpoint, Endpoint, str] | None:
    words = line.split(None, 7)
    if words and words[0] in _NETIDS and words.pop(0) != "tcp":
        return None
    if words and words[0].isdecimal():
        words.insert(0, _UNSAID)
    if len(words) < 5 or words[0] not in STATES | {_UNSAID} or words[0] == "UNCONN":
        return None
    local, peer = endpoint(words[3]), endpoint(words[4])
    if local is None or peer is None:
        return None
    return words[0], local, peer, " ".join(words[5:])


def _socket(state: str, local: Endpoint, peer: Endpoint, more: str, *, counted: bool) -> Socket:
    counts: dict[str, int | None] = {"acked": None, "received": None}
    rtt = _RTT.search(more)
    if counted and rtt is not None and state not in _NO_DATA:
        counts = {"acked": 0, "received": 0}
    counts.update((name, int(digits)) for name, digits in _COUNTED.findall(more))
    cookie = _COOKIE.search(more)
    live = rtt is not None and state not in _NO_DATA
    return Socket(
        state or "ESTAB", local, peer, cookie[1] if cookie else "", counts["acked"], counts["received"],
        float(rtt[1]) if rtt and live else None, float(rtt[2]) if rtt and live else None)  # fmt: skip


# ---- between two looks ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Peer:
    """What one peer address got and gave since the last look."""

    sent: int = 0
    """Bytes that it acknowledged."""
    received: int = 0
    rtt_ms: float | None = None
    """Median over the sockets that moved bytes; None: none did."""
    rttvar_ms: float | None = None
    sockets: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """All peers of one node between two looks."""

    peers: Mapping[str, Peer]
    """By address; those without a socket are not in it."""
    first: bool = False
    """True at the first look: nothing can be said yet."""
    uncounted: int = 0
    """Sockets without counters: their bytes are in no figure."""
    vanished: int = 0
    """Sockets that went without a last reading: what they moved since the last look is in no figure."""


@dataclass(slots=True)
class PeerBytes:
    """Follows the sockets of one node and says what each peer got between two looks.

    A socket that is first seen after the first look opened in between, so all its bytes count; one that was there at
    the first look is a baseline. The last readings of sockets that closed (the kernel's destroy messages) are taken
    where there are any; without them, what a socket moved after the last look is lost, and said to be.
    """

    _last: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)
    _begun: bool = False

    def update(self, sockets: Iterable[Socket], closed: Iterable[Socket] = ()) -> Step:
        """Take one look in.

        Args:
            sockets: all TCP sockets of the node now.
            closed: last readings of those that closed since the last look.
        """
        peers: dict[str, Peer] = {}
        moved: dict[str, list[Socket]] = {}
        now: dict[tuple[object, ...], tuple[int, int]] = {}
        uncounted = 0
        open_now = {one.key: one for one in sockets if one.leaves}
        ended = {one.key: one for one in closed if one.peer.address and one.key not in open_now}
        for key, one in {**open_now, **ended}.items():
            peer = peers.setdefault(one.peer.address, Peer())
            peer.sockets += key in open_now
            if one.acked is None or one.received is None:
                uncounted += 1
                continue
            if key in open_now:
                now[key] = (one.acked, one.received)
            sent, received = self._growth(key, one.acked, one.received)
            peer.sent += sent
            peer.received += received
            if sent or received:
                moved.setdefault(one.peer.address, []).append(one)
        for address, active in moved.items():
            peers[address].rtt_ms = _median(one.rtt_ms for one in active)
            peers[address].rttvar_ms = _median(one.rttvar_ms for one in active)
        vanished = len(self._last.keys() - open_now.keys() - ended.keys())
        first, self._begun, self._last = not self._begun, True, now
        return Step(peers, first, uncounted, vanished)

    def _growth(self, key: tuple[object, ...], acked: int, received: int) -> tuple[int, int]:
        if not self._begun:
            return 0, 0
        sent, got = self._last.get(key, (0, 0))
        if acked < sent or received < got:  # both ends reused by a new socket, where there is no cookie to tell
            sent, got = 0, 0
        return acked - sent, received - got


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def flows(
    steps: Mapping[str, Mapping[str, Peer]], node_of: Mapping[str, str]
) -> list[tuple[str, str, float]]:
    """Return (from node, to node, bytes), each byte once though both of its ends may have been asked.

    Args:
        steps: node to what its peers got, by their address.
        node_of: address to node, for every address of every node. An address that is not in it stands for itself.

    A byte is counted where it was sent; by its receiver only where the sender was not asked.
    """
    total: dict[tuple[str, str], float] = {}
    for node, peers in steps.items():
        for address, peer in peers.items():
            other = node_of.get(address, address)
            if other == node:
                continue
            total[node, other] = total.get((node, other), 0.0) + peer.sent
            if other not in steps:
                total[other, node] = total.get((other, node), 0.0) + peer.received
    return [(source, target, amount) for (source, target), amount in total.items() if amount]
