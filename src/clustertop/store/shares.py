"""One scope's shares by every meter, whether the meters agree, and which share the rule may judge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals import traffic
from clustertop.signals.coverage import LEAST_COVERAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.signals.traffic_flows import Sums
    from clustertop.store.scopes import Scope
    from clustertop.store.steady import Steady
    from clustertop.store.traffic_picture import LeafPicture

    Floats = NDArray[np.float64]
    Cell = tuple[float | None, str]
    """A value, or None and why."""

NOT_READ = "no node's sockets are read"
TOO_LITTLE = "too little traffic to tell"
SHARED_LEAVES = "its leaves carry other nodes, too"
NO_LEAF_READ = "not measured: no leaf switch is read"
NO_FABRIC = "not measured: no fabric is asked"
NO_LOG = "no NCCL log is read"
DISAGREE = "meters disagree"
RDMA = "RDMA carries the traffic, which sockets do not see"
NARROWER = "judged by job or group"
SHARED_NODES = "its nodes run other jobs, too"
TOO_FEW = "too few of its nodes are read"
TOO_FEW_LOGS = "too few of its nodes have an NCCL log that is read"
TOO_FEW_PLACED = "too few of its nodes are in the rack map"
UNKNOWN_PORTS = "much goes by switch ports in a role that nobody knows"
_BY_NODE = {"sockets": ("read", TOO_FEW), "nccl": ("have an NCCL log", TOO_FEW_LOGS)}
"""Meters that are read on each node, by words for how many, and for too few."""
_AT_REST = frozenset({TOO_LITTLE, traffic.NO_TRAFFIC})


@dataclass(frozen=True, slots=True)
class Share:
    """What table ``traffic`` says of one scope."""

    columns: Mapping[str, Cell]
    definition: str
    meter: str
    why: str
    unreliable: tuple[str, ...]
    notes: tuple[str, ...]


class Hangs:
    """Who hangs on which leaf, as the map says."""

    def __init__(self, matrix: NDArray[np.bool_], names: Sequence[str]) -> None:
        """*matrix* is [nodes, leaves], *names* those of the leaves."""
        self.matrix, self.names = matrix, tuple(names)
        self.known = bool(matrix.any())
        self._of: dict[int, tuple[tuple[str, ...], str]] = {}

    def of(self, scope: Scope) -> tuple[tuple[str, ...], str]:
        """The leaves whose ports carry only the scope's bytes, or none and why."""
        found = self._of.get(id(scope))
        if found is None:
            found = self._of[id(scope)] = self._find(scope.members)
        return found

    def forget(self) -> None:
        """The scopes are others now."""
        self._of.clear()

    def _find(self, members: NDArray[np.intp]) -> tuple[tuple[str, ...], str]:
        theirs = self.matrix[members]
        mine = theirs.any(axis=0)
        if not mine.any() or not theirs.any(axis=1).all():
            return (), traffic.NO_LEAF_MAP
        if (self.matrix.sum(axis=0)[mine] != theirs.sum(axis=0)[mine]).any():
            return (), SHARED_LEAVES
        return tuple(self.names[place] for place in np.flatnonzero(mine).tolist()), ""


@dataclass(frozen=True, eq=False, slots=True)
class Told:
    """What the nodes of each scope say by themselves, [scopes]."""

    read: Sequence[int]
    """Nodes whose sockets are read."""
    sent: Sequence[float]
    """Bytes per second by sockets, to whomever, of those nodes whose NICs tell as well."""
    nic_sent: Sequence[float]
    """By the NICs' own counters, of the same nodes."""
    rdma_sent: Sequence[float]
    """Of these, the part that goes past the kernel."""


class Members:
    """The nodes of all scopes in one row: what each scope's nodes say is added up at once."""

    def __init__(self, scopes: Sequence[Scope], nodes: int) -> None:
        """*nodes*: how many there are."""
        self._count, self._nodes = len(scopes), nodes
        self._node = np.concatenate([np.empty(0, np.intp), *(one.members for one in scopes)])
        self._scope = np.repeat(np.arange(len(scopes)), [len(one.members) for one in scopes])

    def add(self, read: NDArray[np.bool_], sent: Floats, nic_sent: Floats, rdma_sent: Floats) -> Told:
        """Add up what the nodes say, [nodes], NaN where unknown."""
        both = ~np.isnan(sent) & ~np.isnan(nic_sent)

        def total(values: NDArray[np.generic], known: NDArray[np.bool_]) -> list[float]:
            each = np.where(known, values, 0.0)
            found: list[float] = np.bincount(self._scope, each[self._node], self._count).tolist()
            return found

        return Told([int(one) for one in total(read, read)], total(sent, both), total(nic_sent, both),
                    total(rdma_sent, both & ~np.isnan(rdma_sent)))


@dataclass(frozen=True, eq=False, slots=True)
class Evidence:
    """What all meters say at one moment."""

    by_rack: Sums
    by_spine: Sums
    """Bytes per second by sockets, each once, by where they cross."""
    members: Told
    hangs: Hangs
    leaves: Mapping[str, LeafPicture]
    nccl: Sequence[tuple[int, int, float]]
    """(node, node or -1, bytes per second), estimated."""
    rack: NDArray[np.intp]
    """[nodes] negative: in no rack."""
    racked: bool
    """Whether there is a rack map at all."""
    floor: float
    """Bytes per second under which there is no share."""
    steady: Steady

def decide(scope: Scope, number: int, evidence: Evidence) -> Share:
    """Return everything that is known of one scope; *number* is its place among the evidence's scopes."""
    members = scope.members
    read = evidence.members.read[number]
    rack = _socket_share(number, evidence.by_rack, evidence, read, traffic.NO_RACK_MAP, evidence.racked)
    spine = _socket_share(number, evidence.by_spine, evidence, read, traffic.NO_LEAF_MAP, evidence.hangs.known)
    if scope.kind == "fleet":
        names, doubt = tuple(evidence.leaves), "" if evidence.leaves else NO_LEAF_READ
    else:
        names, doubt = evidence.hangs.of(scope)
    ports = {meter: _of_leaves(evidence, names, meter, doubt) for meter in ("uplinks", "fabric")}
    nccl, logged = _estimated(scope, evidence)
    notes: list[str] = []
    apart, blind = _disagreement(scope, number, evidence, names, ports, notes)
    unreliable = ("sockets",) if evidence.steady.doubtful(scope.key, apart) or blind else ()
    choice = [
        (rack[0], traffic.CROSS_RACK, "sockets"), (ports["uplinks"][0], traffic.THROUGH_SPINE, "uplinks"),
        (ports["fabric"][0], traffic.THROUGH_SPINE, "fabric"), (spine[0], traffic.THROUGH_SPINE, "sockets"),
        (nccl[0], traffic.CROSS_RACK, "nccl")]
    known = [one for one in choice if one[0] is not None]
    doubts = {one: _doubt(scope, evidence, one[1], one[2], read=read, logged=logged, names=names) for one in known}
    relied = [one for one in known if one[2] not in unreliable]
    sure = [one for one in relied if not doubts[one]]
    chosen = (sure or relied or known or [(None, "", "")])[0]
    value, definition, meter = chosen
    why = "" if value is not None else RDMA if blind and rack[1] in _AT_REST else rack[1]
    told = logged if meter == "nccl" else read
    coverage = told / len(members) if len(members) and told else None
    if coverage is not None and told < len(members) and meter in _BY_NODE:
        notes.append(f"{told} of {len(members)} nodes {_BY_NODE[meter][0]}")
    if scope.shared:
        notes.append(SHARED_NODES)
    reason = why or (
        NARROWER if not scope.judged else SHARED_NODES if scope.shared
        else (RDMA if blind else DISAGREE) if meter in unreliable
        else doubts[chosen])
    total = evidence.by_rack.placed[number] + evidence.by_rack.unplaced[number]
    lost = evidence.by_rack.unplaced_ratio[number]
    judged: Cell = (None, reason) if reason else (value, "")
    if (value is None and why in _AT_REST and scope.judged and not scope.shared and not unreliable
            and (coverage or 0.0) >= LEAST_COVERAGE):
        # Of at least the floor: what is at rest is over no limit, and an alert of before ends.
        judged = float(evidence.by_rack.crossing[number]) / evidence.floor, ""
    columns: dict[str, Cell] = {
        "socket_cross_rack_ratio": rack, "socket_spine_ratio": spine, "uplink_spine_ratio": ports["uplinks"][:2],
        "fabric_spine_ratio": ports["fabric"][:2], "nccl_cross_rack_ratio": nccl,
        "share_ratio": (value, why), "judged_ratio": judged,
        "bytes_per_second": (float(total), "") if read else (None, NOT_READ),
        "unplaced_ratio": (float(lost), "") if lost == lost else (None, traffic.NO_TRAFFIC if read else NOT_READ),
        "coverage_ratio": (coverage, NOT_READ),
        "disagreement_ratio": (apart, "no second meter") if scope.judged else (None, NARROWER),
    }
    return Share(columns, definition, meter, why, unreliable, tuple(notes))


def _socket_share(number: int, by: Sums, evidence: Evidence, read: int, no_map: str, mapped: bool) -> Cell:
    placed, lost = float(by.placed[number]), float(by.unplaced[number])
    if not mapped:
        return None, no_map
    if not read and not placed:
        return None, NOT_READ
    if not placed:
        return None, traffic.NOTHING_PLACED if lost else traffic.NO_TRAFFIC
    if placed < evidence.floor:
        return None, TOO_LITTLE
    return float(by.crossing[number]) / placed, ""


def _of_leaves(evidence: Evidence, names: Sequence[str], meter: str, doubt: str) -> tuple[float | None, str, float]:
    """(share, why, bytes out of the uplinks) of leaves together by one meter."""
    if doubt:
        return None, doubt, 0.0
    every = [evidence.leaves[name] for name in names if name in evidence.leaves]
    if not any(one.meter == meter and one.uplinks for one in every):
        return None, NO_FABRIC if meter == "fabric" else NO_LEAF_READ, 0.0
    # An Ethernet beside an InfiniBand fabric: each leaf is of one of them. One that nobody has read may be of either.
    mine = [one for one in every if one.meter == meter or not (one.uplinks or one.host_in)]
    unknown = sum(one.ratio is None and one.why != traffic.NO_TRAFFIC for one in mine)
    if unknown:
        return None, f"of {unknown} of {len(mine)} leaves not known", 0.0
    out, into = sum(one.uplink_out or 0.0 for one in mine), sum(one.host_in or 0.0 for one in mine)
    if into < evidence.floor:
        return None, TOO_LITTLE if into else traffic.NO_TRAFFIC, out
    return out / into, "", out


def _doubt(
    scope: Scope, evidence: Evidence, definition: str, meter: str, *, read: int, logged: int, names: Sequence[str]
) -> str:
    """Why a share that is known may not be judged; empty: it may."""
    least = LEAST_COVERAGE * len(scope.members)
    if meter in _BY_NODE:
        if (logged if meter == "nccl" else read) < least:
            return _BY_NODE[meter][1]
        placed = int((evidence.rack[scope.members] >= 0).sum())
        return TOO_FEW_PLACED if definition == traffic.CROSS_RACK and placed < least else ""
    # Ports that may be hosts' or uplinks: with much by them the share may be far too high or too low.
    mine = [one for name in names if (one := evidence.leaves.get(name)) is not None and one.meter == meter]
    loose, into = sum(one.unplaced for one in mine), sum(one.host_in or 0.0 for one in mine)
    return UNKNOWN_PORTS if loose > traffic.DISAGREEMENT * into else ""


def _estimated(scope: Scope, evidence: Evidence) -> tuple[Cell, int]:
    """(share, nodes of the scope whose log and NICs tell)."""
    if not evidence.nccl:
        return (None, NO_LOG), 0
    inside = set(scope.members.tolist())
    logged = len(inside.intersection(source for source, _, _ in evidence.nccl))
    if not evidence.racked:
        return (None, traffic.NO_RACK_MAP), logged
    crossing = placed = 0.0
    for source, target, amount in evidence.nccl:
        if source not in inside or target not in inside or evidence.rack[source] < 0 or evidence.rack[target] < 0:
            continue
        placed += amount
        crossing += amount if evidence.rack[source] != evidence.rack[target] else 0.0
    if placed < evidence.floor:
        return (None, TOO_LITTLE if placed else traffic.NO_TRAFFIC), logged
    return (crossing / placed, ""), logged


def _disagreement(
    scope: Scope, number: int, evidence: Evidence, names: Sequence[str],
    ports: Mapping[str, tuple[float | None, str, float]], notes: list[str],
) -> tuple[float | None, bool]:
    """(by how much the sockets differ from a stronger meter, whether RDMA is why they see too little)."""
    apart: list[float] = []
    blind = False
    told = evidence.members
    sent = told.sent[number], told.rdma_sent[number], told.nic_sent[number]
    if sent[-1] > 0:
        # Bursts differ at the moment, and what was at first differs in the mean: what differs in both is a difference.
        mean = evidence.steady.mean(scope.key, "nic", sent)
        sent = min(sent, mean, key=lambda one: _gap(one[0], one[2]))
    seen, past, total = sent
    if total >= evidence.floor:
        found = traffic.agreement(seen, total)
        if found.difference is not None and found.difference > traffic.DISAGREEMENT:
            notes.append(f"sockets carry {_percent(seen / total)} of what the NICs sent")
            explained = traffic.agreement(seen + past, total)
            blind = past > 0 and explained.reliable is True
        if found.difference is not None and not blind:
            apart.append(found.difference)
        if blind:
            notes.append(f"RDMA carries {_percent(past / total)}, which sockets do not see")
    # Bytes go by whatever fabric there is: all of them together are the yardstick, where all are known.
    known = [meter for meter, (share, why, _) in ports.items() if share is not None or why in _AT_REST]
    if known and not blind and told.read[number] and all(
        evidence.leaves[name].meter in known for name in names if name in evidence.leaves
    ) and any(ports[meter][0] is not None for meter in known):
        left = (sum(ports[meter][2] for meter in known), float(evidence.by_spine.crossing[number]),
                float(evidence.by_spine.unplaced[number]))
        together = " and ".join(known)
        mean = evidence.steady.mean(scope.key, together, left)
        out, low, lost = min(left, mean, key=lambda one: _gap(_nearest(*one), one[0]))
        found = traffic.agreement(_nearest(out, low, lost), out)
        if max(out, low) >= evidence.floor and found.difference is not None:
            apart.append(min(found.difference, 1e3))
            if not found.reliable:
                notes.append(
                    f"sockets and {together} differ by {_percent(found.difference)} of what left by the uplinks")
    return (max(apart) if apart else None), blind


def _nearest(out: float, low: float, lost: float) -> float:
    """What sockets may have seen of *out*: what is not placed may have gone through the spine or not."""
    return min(max(out, low), low + lost)


def _gap(weaker: float, stronger: float) -> float:
    found = traffic.agreement(weaker, stronger).difference
    return math.inf if found is None else found


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"
