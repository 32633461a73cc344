"""A second reader of NCCL's log (``NCCL_DEBUG=INFO``), to hold the probe's against: written apart, of a whole log.

A line is ``host:pid:tid [device] NCCL INFO text``; ranks write at the same time, so their lines interleave and are
sometimes glued together, and launchers and NCCL put things before them (``1: ``, ``[2026-05-05 06:16:47] ``). What is
no such line (Python's warnings, a job's own prints) is passed over. Wording: NVIDIA/nccl src/init.cc, src/transport,
src/graph/rings.cc of 2.7 to 2.30.

It is what NCCL was told and chose, no measurement of traffic; a ring printed as ``Channel 00/02 : 0 1 2 …`` stops at 20
ranks, so it is taken only where it is whole.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_LINE = 4096
MAX_RANKS = 65_536
MAX_EDGES = 262_144
"""Ranks and channels kept: the newest. Those that went are counted in ``dropped``."""
MAX_WARNINGS = 100
MAX_HOSTS = 4096
_RING_WIDTH = 20

_BARE = re.compile(r"\s*NCCL (INFO|WARN) ")
_HEAD = re.compile(
    r"(?P<host>[A-Za-z0-9_][\w.-]{0,252}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) (?:\[(?P<device>\d+)\] )?"
    r"(?:(?P<file>[\w/.]+:\d+) )?NCCL (?P<level>INFO|WARN|CALL|TRACE|VERSION|ABORT) ?"
)
_VERSION = re.compile(r"NCCL version (\d[\w.]*(?:\+\w[\w.]*)?)")
_WHEN = re.compile(r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?:Z|[+-]\d\d:?\d\d)?\]?")
_INIT = re.compile(
    r"(?:\[Rank \d+\] )?(?:(?P<call>ncclComm\w+) )?comm (?P<comm>0x[\w.]+) rank (?P<rank>\d+) nranks (?P<nranks>\d+) "
    r"cudaDev (?P<device>-?\d+)(?: nvmlDev -?\d+)? busId (?P<bus>\w+)(?: commId (?P<id>0x[\w.]+))?.* - Init (?P<what>"
    r"START|COMPLETE)"
)
_TIMINGS = re.compile(
    r"Init timings(?: - \w+)?: rank (\d+) nranks (\d+) total (\d{1,9}(?:\.\d{1,9})?)(?: \(([^)]*)\))?"
)
_PHASE = re.compile(r"([a-z]+) (\d{1,9}(?:\.\d{1,9})?)")
_CHANNEL = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d+)(?:/\d+)? : (?P<source>\d+)(?:\[\w+\])? -> (?P<target>\d+)(?:\[\w+\])?"
    r"(?: \[(?P<way>send|receive)\])? via (?P<via>.+)"
)
_WHOLE_RING = re.compile(r"Channel (\d+)/\d+ :((?:\s+\d+)+)\s*$")
_RING = re.compile(r"Ring (\d+) : (\d+) -> (\d+) -> (\d+)")
_TREES = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(\d+)->(-?\d+)")
_TREE = re.compile(r"Tree (\d+) : (-?\d+) -> (\d+) -> (-?\d+)/(-?\d+)/(-?\d+)")
_USING = re.compile(r"NET/(?P<net>[^:\[\]]{1,40}?)\s*:? Using (?P<list>\[0\].+)")
_DEVICE = re.compile(r"\[\d+\]([^\s:;]+):([^\s;]+)")
_NETWORK = re.compile(r"Using network (.{1,60}?)\s*$")
_OFI = re.compile(r"NET/OFI (?:Initializing|Using Libfabric|Selected provider)", re.IGNORECASE)
_SET = re.compile(
    r"(NCCL_(?:IB_DISABLE|NET|P2P_DISABLE|SHM_DISABLE|NET_GDR_LEVEL|IB_HCA)) set (?:by environment )?to (.+?)\.?\s*$"
)
_BENCH_RANK = re.compile(r"#\s+Rank\s+(\d+) (?:Group\s+\d+ )?Pid\s+(\d+) on\s+(\S+)\s+device\s+(\d+) \[(\w+)\]")

Thread = tuple[str, str, str]
"""Host, process and thread, as the log writes them."""
Group = tuple[str, int]
"""A communicator: its id (empty before 2.19, where nothing names it across processes) and its size."""
NO_GROUP: Group = ("", 0)


@dataclass(slots=True)
class Rank:
    """One rank of one communicator."""

    rank: int
    nranks: int
    host: str
    pid: str
    device: int | None = None
    bus: str = ""
    comm: str = ""
    complete: bool = False
    seconds: float | None = None
    """Time its init took; None: not known (yet)."""
    timed_by: str = ""
    """``NCCL`` (its own timings), ``timestamps`` of the log, or ``arrival`` of the lines here."""
    phases: dict[str, float] = field(default_factory=dict)
    """NCCL's own split of ``seconds``: kernels, bootstrap, topo, ..."""
    started: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """One channel from a rank to another, as the end that wrote it saw it."""

    host: str
    pid: str
    group: Group
    channel: int
    source: int
    target: int
    way: str
    """``send``, ``receive`` or empty (older logs say it for the network only)."""
    transport: str
    """``NET/IB``, ``NET/Socket``, ``NET/OFI``, ``P2P``, ``SHM``, ... as the log has it, without the device."""
    device: str = ""
    """The network device's number in the process's list; empty: none."""
    gpu_direct: bool = False

    @property
    def network(self) -> bool:
        """Whether it leaves the node."""
        return self.transport.startswith(("NET/", "COLLNET/"))


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the transports that an operator should see."""

    kind: str
    """``sockets instead of RDMA`` or ``no GPUDirect RDMA``."""
    hosts: tuple[str, ...]
    channels: int
    of: int
    """Channels of the network on those hosts in all."""


@dataclass(frozen=True, slots=True)
class _Later:
    """Read before the communicator it belongs to was named: older logs name it last."""

    tree: bool
    channel: int
    rank: int
    other: int


@dataclass(slots=True)
class NcclLog:
    """Reads a log as it grows. Feed lines of one file; several files of one job may go into one reader."""

    version: str = ""
    ranks: dict[tuple[str, str, str, int, int], Rank] = field(default_factory=dict)
    """By communicator, host, pid, size, rank; the last one of several of a size."""
    edges: dict[tuple[object, ...], Edge] = field(default_factory=dict)
    next_in_ring: dict[tuple[Group, int], dict[int, int]] = field(default_factory=dict)
    """(communicator, channel) to rank to the rank after it."""
    parents: dict[tuple[Group, int], dict[int, int]] = field(default_factory=dict)
    """(communicator, channel) to rank to its parent in the tree; -1: the root."""
    networks: Counter[str] = field(default_factory=Counter)
    """``Using network`` lines by what they say."""
    devices: dict[str, dict[str, str]] = field(default_factory=dict)
    """Host to network device to what it is: ``1/IB``, ``1/RoCE``, an address of a socket."""
    settings: dict[str, str] = field(default_factory=dict)
    """Environment that decides the transport, as NCCL said it read it."""
    warnings: list[str] = field(default_factory=list)
    completed: int = 0
    """``Init COMPLETE`` lines."""
    dropped: int = 0
    lines: int = 0
    """Lines that were NCCL's."""
    _groups: dict[Thread, Group] = field(default_factory=dict)
    _waiting: dict[Thread, list[_Later]] = field(default_factory=dict)
    _homeless: dict[Thread, list[tuple[object, ...]]] = field(default_factory=dict)
    _hosts: set[str] = field(default_factory=set)

    def feed(self, line: str, at: float | None = None) -> None:
        """Take one line in.

        Args:
            line: as it stands in the file, from its beginning.
            at: when it was read, on any steady clock; times an init whose lines carry no time of their own.
        """
        line = line[:MAX_LINE]
        if version := _VERSION.search(line):
            self.version = version[1]
        heads = list(_HEAD.finditer(line))
        if not heads:
            if bare := _BARE.match(line):
                self.lines += 1
                self._message(("", "", ""), bare[1], clean(line[bare.end() :].rstrip(), 2048), None, at)
            else:
                self._bench(line)
            return
        before = line[: heads[0].start()]
        stamp = _seconds(before)
        for place, head in enumerate(heads):
            self.lines += 1
            end = heads[place + 1].start() if place + 1 < len(heads) else len(line)
            host = head["host"]
            text = line[head.end() : end]
            if place + 1 < len(heads):
                text += self._swallowed(heads[place + 1]["host"])
            if place:
                host = host.removeprefix(self._swallowed(host))
            if len(self._hosts) < MAX_HOSTS:
                self._hosts.add(host)
            thread = (clean(host, 253), head["pid"], head["tid"])
            self._message(thread, head["level"], clean(text.rstrip(), 2048), stamp, at)

    def feed_text(self, text: str) -> NcclLog:
        """Take several lines in; returns itself."""
        for line in text.splitlines():
            self.feed(line)
        return self

    def _swallowed(self, host: str) -> str:
        """What stands in *host* before a known host's name: the end of the line that is glued before it."""
        known = [name for name in self._hosts if host.endswith(name) and host != name]
        return "" if host in self._hosts or not known else host.removesuffix(max(known, key=len))

    def _bench(self, line: str) -> None:
        """The table of ranks that nccl-tests print."""
        if match := _BENCH_RANK.match(line):
            rank = Rank(int(match[1]), 0, clean(match[3], 253), match[2], int(match[4]), match[5])
            self._keep(rank)

    def _message(self, thread: Thread, level: str, text: str, stamp: float | None, at: float | None) -> None:
        host = thread[0]
        if level == "WARN":
            if len(self.warnings) < MAX_WARNINGS:
                self.warnings.append(f"{host}: {text}")
        elif match := _CHANNEL.search(text):
            self._edge(thread, match)
        elif match := _INIT.search(text):
            self._init(thread, match, stamp, at)
        elif match := _TIMINGS.search(text):
            self._timings(thread, match)
        elif match := _RING.search(text):
            channel, _, rank, after = map(int, match.groups())
            self._linked(thread, _Later(False, channel, rank, after))
        elif match := _WHOLE_RING.search(text):
            members = [int(number) for number in match[2].split()]
            if len(members) < _RING_WIDTH:
                for rank, after in zip(members, [*members[1:], members[0]], strict=True):
                    self._linked(thread, _Later(False, int(match[1]), rank, after))
        elif text.startswith("Trees"):
            for channel, *_, rank, parent in _TREES.findall(text):
                self._linked(thread, _Later(True, int(channel), int(rank), int(parent)))
        elif match := _TREE.search(text):
            self._linked(thread, _Later(True, int(match[1]), int(match[3]), int(match[2])))
        elif match := _USING.search(text):
            self._device(host, _DEVICE.findall(match["list"].partition(";")[0]))
        elif match := _NETWORK.search(text):
            if match[1] in self.networks or len(self.networks) < MAX_WARNINGS:
                self.networks[match[1]] += 1
        elif _OFI.search(text):
            self._device(host, [("OFI", "libfabric")])
        elif match := _SET.search(text):
            self.settings[match[1]] = match[2]

    def _keep(self, rank: Rank) -> Rank:
        key = (rank.comm, rank.host, rank.pid, rank.nranks, rank.rank)
        if key not in self.ranks:
            self.dropped += _make_room(self.ranks, MAX_RANKS)
        return self.ranks.setdefault(key, rank)

    def _device(self, host: str, found: list[tuple[str, str]]) -> None:
        if host in self.devices or len(self.devices) < MAX_HOSTS:
            self.devices.setdefault(host, {}).update(found[:64])

    def _init(self, thread: Thread, match: re.Match[str], stamp: float | None, at: float | None) -> None:
        host, pid, _ = thread
        self.completed += match["what"] == "COMPLETE"
        rank = self._keep(Rank(int(match["rank"]), int(match["nranks"]), host, pid, comm=match["id"] or ""))
        rank.device, rank.bus = int(match["device"]), match["bus"]
        if thread not in self._groups:
            _make_room(self._groups, MAX_RANKS)
        group = self._groups[thread] = (rank.comm, rank.nranks)
        clock = ("timestamps", stamp) if stamp is not None else ("arrival", at) if at is not None else None
        if match["what"] == "START":
            rank.complete, rank.seconds, rank.timed_by, rank.started = False, None, "", clock
            return
        rank.complete = True
        if rank.timed_by != "NCCL" and clock and rank.started and rank.started[0] == clock[0]:
            rank.seconds, rank.timed_by = max(0.0, clock[1] - rank.started[1]), clock[0]
        for one in self._waiting.pop(thread, []):
            self._link(group, one)
        for key in self._homeless.pop(thread, []):
            if (edge := self.edges.pop((NO_GROUP, *key), None)) is not None:
                self.edges[group, *key] = replace(edge, group=group)

    def _timings(self, thread: Thread, match: re.Match[str]) -> None:
        host, pid, _ = thread
        comm, size = self._groups.get(thread, NO_GROUP)
        if size != int(match[2]):
            comm = ""
        rank = self._keep(Rank(int(match[1]), int(match[2]), host, pid, comm=comm))
        rank.seconds, rank.timed_by, rank.complete = float(match[3]), "NCCL", True
        rank.phases = {name: float(value) for name, value in _PHASE.findall(match[4] or "")}

    def _edge(self, thread: Thread, match: re.Match[str]) -> None:
        host, pid, _ = thread
        transport, device, direct = _via(match["via"])
        edge = Edge(
            host, pid, self._groups.get(thread, NO_GROUP), int(match["channel"]), int(match["source"]),
            int(match["target"]), match["way"] or "", transport, device, direct)  # fmt: skip
        key = (host, pid, edge.channel, edge.source, edge.target, edge.way)
        if (edge.group, *key) not in self.edges:
            self.dropped += _make_room(self.edges, MAX_EDGES)
            if edge.group == NO_GROUP:
                if thread not in self._homeless:
                    _make_room(self._homeless, MAX_HOSTS)
                self._homeless.setdefault(thread, []).append(key)
        self.edges[edge.group, *key] = edge

    def _linked(self, thread: Thread, what: _Later) -> None:
        group = self._groups.get(thread)
        if group is not None:
            self._link(group, what)
        else:
            if thread not in self._waiting:
                _make_room(self._waiting, MAX_HOSTS)
            if len(found := self._waiting.setdefault(thread, [])) < MAX_HOSTS:
                found.append(what)

    def _link(self, group: Group, what: _Later) -> None:
        kept = self.parents if what.tree else self.next_in_ring
        if (group, what.channel) not in kept:
            _make_room(kept, MAX_RANKS)
        kept.setdefault((group, what.channel), {})[what.rank] = what.other

    # ---- what it says

    @property
    def world(self) -> Group:
        """The largest communicator that the log names; of several, the one with most ranks in it."""
        count = Counter((one.comm, one.nranks) for one in self.ranks.values())
        return max(count, key=lambda group: (group[1], count[group]), default=NO_GROUP)

    def hosts(self, group: Group | None = None) -> dict[int, str]:
        """Return rank to host of a communicator (the :attr:`world`).

        A rank that several hosts say they are is left out: without ids two communicators of one size look alike.
        """
        group = self.world if group is None else group
        found: dict[int, set[str]] = {}
        for one in self.ranks.values():
            if (one.comm, one.nranks) == group:
                found.setdefault(one.rank, set()).add(one.host)
        return {rank: next(iter(names)) for rank, names in sorted(found.items()) if len(names) == 1}

    @property
    def slowest(self) -> Rank | None:
        """The rank whose init took longest, of those that are timed."""
        timed = [one for one in self.ranks.values() if one.seconds is not None]
        return max(timed, key=lambda one: one.seconds or 0.0, default=None)

    def transports(self) -> Counter[str]:
        """Channels by transport. A network channel is written by both its ends and counted where it is sent."""
        return Counter(edge.transport for edge in self.edges.values() if edge.way != "receive")

    def peers(self) -> dict[tuple[str, str], int]:
        """(from host, to host) to network channels; where a rank's host is not in the log it is ``rank N``."""
        hosts: dict[Group, dict[int, str]] = {}
        found: dict[tuple[Group, int, int, int], tuple[str, str]] = {}
        for edge in self.edges.values():
            if not edge.network:
                continue
            if edge.group not in hosts:
                hosts[edge.group] = self.hosts(edge.group)
            source, target = (hosts[edge.group].get(rank, f"rank {rank}") for rank in (edge.source, edge.target))
            source = edge.host if edge.way == "send" else source
            target = edge.host if edge.way == "receive" else target
            if source != target:
                found.setdefault((edge.group, edge.channel, edge.source, edge.target), (source, target))
        return dict(Counter(found.values()))

    def findings(self, *, rdma_expected: bool | None = None) -> list[Finding]:
        """Return what is wrong with the transports.

        Args:
            rdma_expected: whether these nodes are meant to use RDMA; None: where the log shows RDMA devices or
                channels anywhere in the job.
        """
        network = [edge for edge in self.edges.values() if edge.network]
        rdma = [edge for edge in network if not _is_socket(edge.transport)]
        if rdma_expected is None:
            kinds = {kind for one in self.devices.values() for kind in one.values()}
            rdma_expected = (
                bool(rdma)
                or any(not _is_socket(name) for name in self.networks)
                or any(kind == "libfabric" or kind.endswith(("/IB", "/RoCE")) for kind in kinds)
            )
        found = []
        if rdma_expected:
            found += _finding("sockets instead of RDMA", [one for one in network if _is_socket(one.transport)], network)
        found += _finding("no GPUDirect RDMA", [one for one in rdma if not one.gpu_direct], rdma)
        return found

    def ring(self, channel: int = 0) -> list[int] | None:
        """Return the ranks of a ring of the :attr:`world` in order, from 0; None where the log has not all of it."""
        group = self.world
        after = self.next_in_ring.get((group, channel), {})
        order, rank = [0], after.get(0)
        while rank is not None and rank != 0 and len(order) <= group[1]:
            order.append(rank)
            rank = after.get(rank)
        return order if rank == 0 and len(order) == group[1] else None


def estimated_flows(
    peers: Mapping[tuple[str, str], int], sent_bytes: Mapping[str, float | None]
) -> list[tuple[str, str, float]]:
    """Spread what each host's NICs were measured to send over the peers of its channels: an estimate, labelled so.

    Args:
        peers: (from host, to host) to channels, of :meth:`NcclLog.peers`.
        sent_bytes: host to measured bytes; hosts that are not in it, or None, send nothing here.
    """
    channels: Counter[str] = Counter()
    for (source, _), count in peers.items():
        channels[source] += count
    return [
        (source, target, amount * count / channels[source])
        for (source, target), count in peers.items()
        if (amount := sent_bytes.get(source)) is not None
    ]


def _make_room(kept: dict[Any, Any], most: int) -> int:
    """Take the oldest entry out where there are *most*; returns how many went."""
    if len(kept) < most:
        return 0
    del kept[next(iter(kept))]
    return 1


def _via(text: str) -> tuple[str, str, bool]:
    """``NET/IBext_v8/3/GDRDMA(PCI)`` to its transport, device and whether the NIC reads the GPU's memory itself."""
    if text.startswith("direct shared memory"):  # 2.8 and older
        return "SHM", "", False
    parts = text.strip().split("/")
    if parts[0] in ("NET", "COLLNET") and len(parts) > 1:
        name = re.sub(r"_v\d+$", "", parts[1].strip())
        device = next((part.partition("(")[0] for part in parts[2:] if part[:1].isdigit()), "")
        return f"{parts[0]}/{name}", device, any(part.startswith("GDRDMA") for part in parts[2:])
    return parts[0].split()[0] if parts[0].split() else "?", "", False


def _is_socket(transport: str) -> bool:
    return transport.endswith("Socket")


def _finding(kind: str, edges: Iterable[Edge], network: Iterable[Edge]) -> list[Finding]:
    bad = Counter(edge.host for edge in edges)
    if not bad:
        return []
    everything = sum(edge.host in bad for edge in network)
    return [Finding(kind, tuple(sorted(bad)), bad.total(), everything)]


def _seconds(text: str) -> float | None:
    match = _WHEN.search(text)
    if match is None:
        return None
    try:
        return datetime.fromisoformat(match[1].replace(",", ".")).timestamp()
    except ValueError:
        return None
