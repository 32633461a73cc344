"""What TCP sockets moved, added up by the address at their other end. Pure: no clock, no kernel.

A socket's counters are compared with those at the look before, by the kernel's cookie of the socket. One that is first
seen after the first look opened in between, so all its bytes count; one that was there at the first look is a baseline.
"""

import collections
import socket
import struct

from .frames import Err, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Counter, Dict, List, Optional, Set, Tuple

    from .frames import Cell, Row
    from .sockdiag import Rows

MAX_PEERS = 900
"""Most rows of peers; all others are one more, ``*``."""
OTHERS = "*"
MAX_KNOWN = 4096
"""Most peers of which something is kept, so that those of the most bytes can be chosen."""
MAX_SOCKETS = 16384
"""Most sockets that are followed."""
RELIST_SECONDS = 10.0
"""Rows are added and dropped no more often in the long run: each time all that the node says travels anew."""
RELISTS = 5
"""So many times they may be at once: a job that starts has its peers within seconds."""
IDLE_SECONDS = 600.0
"""A peer without a socket is dropped after this long."""
TRIP_SECONDS = 30.0
"""A round trip is told for so long after the last byte."""
OWN_SECONDS = 60.0
"""What was an address of this node within this time, or twice it, is one still."""
COLUMNS = ("tx_bytes", "rx_bytes", "sockets", "rtt_us", "rttvar_us", "rtt_max_us", "rttvar_max_us")
_COUNTS = struct.Struct("=QQQQ").unpack
_NOTHING = bytes(16)
_MAPPED = bytes(10) + b"\xff\xff"
_NO_COUNTERS = Err("no byte counters")
_NO_TRAFFIC = Err("no traffic")
_NEW, _LISTED, _AMONG_OTHERS = 0, 1, 2


class Peer(object):
    """One address at the other end."""

    __slots__ = ("address", "moved", "received", "sent", "since", "sockets", "state", "trips", "used", "weight")

    def __init__(self, address: bytes, since: float, state: int = _NEW) -> None:
        self.address = address
        self.since = since
        """When its counters were 0."""
        self.state = state
        self.sent = self.received = self.sockets = 0
        self.weight = 0
        """Bytes, those of long ago less."""
        self.moved = self.used = since
        """When it last had bytes; when it last had a socket."""
        self.trips: "List[Tuple[int, int]]" = []
        """rtt and rttvar, us, of the sockets that moved bytes at the last look at which any did."""

    def again(self, state: int, since: float) -> None:
        """Start its counters anew."""
        self.state, self.since = state, since
        self.sent = self.received = 0

    def text(self) -> str:
        """Its address, as it is written."""
        if not self.address:
            return OTHERS
        return socket.inet_ntop(socket.AF_INET if len(self.address) == 4 else socket.AF_INET6, self.address)


class Peers(object):
    """Follows the sockets of this node: :meth:`begin`, all of :meth:`ended` and :meth:`take`, :meth:`end`."""

    def __init__(self) -> None:
        self.counted = True
        """False where the sockets have no byte counters."""
        self.overfull = False
        """Whether there are more sockets than are followed."""
        self._began = False
        self._now = self._before = 0.0
        self._known: "Dict[bytes, bytes]" = {}
        """By cookie: the counters at the last look."""
        self._away: "Dict[bytes, bytes]" = {}
        """Those that the last look did not find: ended, with last words on their way, or passed over by the dump."""
        self._seen: "Set[bytes]" = set()
        self._counts: "Counter[bytes]" = collections.Counter()
        self._changes: "List[Tuple[bytes, bytes, bytes, int, int]]" = []
        """Address, counters before and now, rtt, rttvar: taken at the end, when our own addresses are known."""
        self._peers: "Dict[bytes, Optional[Peer]]" = {}
        """By address as the kernel has it, mapped or not; None: nothing leaves the node to there."""
        self._own: "Set[bytes]" = set()
        self._own_before: "Set[bytes]" = set()
        self._own_at = 0.0
        self._others: "Optional[Peer]" = None
        self._listed: "List[Peer]" = []
        self._chosen_at = float("-inf")
        self._may = float(RELISTS)
        """How often rows may be added or dropped now."""
        self._waiting = False
        """Whether there is a new peer."""
        self._rows: "List[Row]" = []

    # -- a look --------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Begin a look at *now*, or begin it again by another way."""
        self._now = now
        if not self._began:
            self._before = now
        self._seen, self._counts, self.counted = set(), collections.Counter(), True
        if now - self._own_at >= OWN_SECONDS:
            self._own, self._own_before, self._own_at = set(), self._own, now

    def ended(self, rows: "Rows") -> None:
        """Take the last words of sockets."""
        if not self._began:
            return
        self._own.update({_plain(row[1]) for row in rows})
        for _, _, target, cookie, _, rtt, variation, counts in rows:
            before = self._known.pop(cookie, None) or self._away.pop(cookie, None)
            if counts and (before is not None or not self.overfull):
                self._changes.append((target, before or _NOTHING, counts, rtt, variation))

    def take(self, rows: "Rows") -> None:
        """Take some of the sockets that are open now."""
        known, find, changes = self._known, self._known.get, self._changes
        self._seen.update([row[3] for row in rows])
        self._own.update([_plain(address) for address in {row[1] for row in rows}])
        self._counts.update([row[2] for row in rows])
        # While not all are followed, one that is new to us need not be new.
        new_counts = self._began and not self.overfull
        for row in [row for row in rows if find(row[3]) != row[7]]:
            cookie, counts = row[3], row[7]
            if not counts:
                self.counted = False
                changes.append((row[2], _NOTHING, _NOTHING, row[5], row[6]))
                continue
            before = find(cookie)
            if before is None:
                before = self._away.pop(cookie, None)
                if before is None and len(known) >= MAX_SOCKETS:
                    continue
            known[cookie] = counts
            if before is not None or new_counts:
                changes.append((row[2], before or _NOTHING, counts, row[5], row[6]))

    def end(self) -> None:
        """End a look: add up what moved, count the sockets, choose the rows."""
        if self.counted:
            self._away = {cookie: self._known.pop(cookie) for cookie in self._known.keys() - self._seen}
            self.overfull = len(self._seen) > MAX_SOCKETS
        # Where nothing is counted, sockets have no cookies either: what was known is compared with at the next count.
        self._add()
        for peer in self._peers.values():
            if peer is not None:
                peer.sockets = 0
        if self._others is not None:
            self._others.sockets = 0
        for address, count in self._counts.items():
            peer = self._peer(address)
            if peer is not None:
                peer.used = self._now
                self._row(peer).sockets += count
        self._relist()
        self._began, self._before = True, self._now
        self._seen, self._counts = set(), collections.Counter()

    def _add(self) -> None:
        """Add what moved to its peers."""
        unpack = _COUNTS
        found: "Dict[bytes, Tuple[Optional[Peer], Peer]]" = {}
        for target, before, counts, rtt, variation in self._changes:
            try:
                peer, row = found[target]
            except KeyError:
                peer = self._peer(target)
                row = self._row(peer)
                if row.moved != self._now:
                    row.moved, row.trips = self._now, []
                found[target] = peer, row
            if peer is None:
                continue
            sent_before, received_before, sent, received = unpack(before + counts)
            if sent > sent_before:
                row.sent += sent - sent_before
                peer.weight += sent - sent_before
            if received > received_before:
                row.received += received - received_before
                peer.weight += received - received_before
            if rtt:
                row.trips.append((rtt, variation))
        self._changes = []

    def _row(self, peer: "Optional[Peer]") -> Peer:
        """Return whose counters are *peer*'s: its own, or those of all others."""
        if peer is None:
            return Peer(b"", 0.0)  # nobody's
        return self._others if peer.state == _AMONG_OTHERS and self._others is not None else peer

    # -- peers ---------------------------------------------------------------------------------------------------

    def _ours(self, address: bytes) -> bool:
        return address in self._own or address in self._own_before

    def _peer(self, address: bytes) -> "Optional[Peer]":
        """Return who is at *address*; None: this node itself, or nobody."""
        if address in self._peers:
            peer = self._peers[address]
        else:
            peer = self._new(address)
        return None if peer is None or self._ours(peer.address) else peer

    def _new(self, address: bytes) -> "Optional[Peer]":
        plain = _plain(address)
        peer = self._peers.get(plain)
        if peer is None and _leaves(plain):
            if len(self._peers) >= MAX_KNOWN:
                return None if self._ours(plain) else self._rest()
            peer = Peer(plain, self._before)
            self._waiting = True
        if len(self._peers) < 2 * MAX_KNOWN:
            self._peers[plain] = self._peers[address] = peer
        return peer

    def _rest(self) -> Peer:
        """The row of all who have none of their own; once there, it stays."""
        if self._others is None:
            self._others = Peer(b"", self._before, _LISTED)
        return self._others

    def _relist(self) -> None:
        """Choose who has a row; what was not chosen is among the others from now on."""
        now = self._now
        self._may = min(float(RELISTS), self._may + (now - self._before) / RELIST_SECONDS)
        if self._may < 1.0 or not (self._waiting or now - self._chosen_at >= RELIST_SECONDS):
            return
        if now - self._chosen_at >= RELIST_SECONDS:
            self._chosen_at = now
            for peer in self._peers.values():
                if peer is not None:
                    peer.weight //= 2
        self._waiting = False
        every = {id(peer): peer for peer in self._peers.values() if peer is not None}
        stays = [peer for peer in every.values() if now - peer.used < IDLE_SECONDS and not self._ours(peer.address)]
        if len(stays) < len(every):
            kept = {id(peer) for peer in stays}
            self._peers = {at: peer for at, peer in self._peers.items() if peer is None or id(peer) in kept}
        if len(stays) > MAX_PEERS:
            # Who has a row keeps it against another that has only little more.
            stays.sort(key=lambda peer: peer.weight * (2 if peer.state == _LISTED else 1), reverse=True)
            for peer in stays[MAX_PEERS:]:
                rest = self._rest()
                if peer.state == _NEW:
                    rest.sent += peer.sent
                    rest.received += peer.received
                if peer.state != _AMONG_OTHERS:
                    peer.again(_AMONG_OTHERS, now)
                    rest.sockets += peer.sockets
        chosen = {id(peer) for peer in stays[:MAX_PEERS]}
        listed = [peer for peer in self._listed if id(peer) in chosen]
        for peer in stays[:MAX_PEERS]:
            if peer.state == _AMONG_OTHERS:
                peer.again(_LISTED, now)
            elif peer.state == _NEW:
                peer.state = _LISTED
            else:
                continue
            listed.append(peer)
        if self._others is not None:
            listed.append(self._others)
        if listed != self._listed:
            self._may -= 1.0
            self._listed = listed
            self._rows = [(peer.text(), {"since": peer.since}) for peer in listed]

    # -- what is told --------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the table ``peer`` as of the last look."""
        listed = self._listed
        cells: "List[Cell]" = []
        if self.counted:
            cells += [peer.sent for peer in listed]
            cells += [peer.received for peer in listed]
        else:
            cells += [_NO_COUNTERS] * (2 * len(listed))
        cells += [peer.sockets for peer in listed]
        trips = [self._trips(peer) for peer in listed]
        for at in range(4):
            cells += [one[at] for one in trips]
        return Table(self._rows, list(COLUMNS), cells)

    def _trips(self, peer: Peer) -> "Tuple[Cell, Cell, Cell, Cell]":
        if not peer.trips or self._now - peer.moved > TRIP_SECONDS:
            none = _NO_TRAFFIC if self.counted else None
            return none, none, none, none
        times, variations = sorted([one[0] for one in peer.trips]), sorted([one[1] for one in peer.trips])
        return _median(times), _median(variations), times[-1], variations[-1]


def _median(ordered: "List[int]") -> int:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) // 2


def _plain(address: bytes) -> bytes:
    """Return an IPv4 address that is mapped into IPv6 as what it is."""
    return address[12:] if address[:12] == _MAPPED else address


def _leaves(address: bytes) -> bool:
    """Whether what is sent to *address* leaves the node at all."""
    if len(address) == 4:
        return address[0] != 127 and address != b"\0\0\0\0"
    return address[:15] != bytes(15) or address[15] > 1
