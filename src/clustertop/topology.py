"""Where every node hangs: facts from all sources merged to rack, leaves, rail and pod, each with who says so. Pure.

Rack and leaf are different domains: on a rail-optimised fabric a node hangs on a leaf per NIC, and nodes of several
racks share them. What the inventory says goes before every source. Where two sources differ, the node has no rack (or
leaf on that port) and both are named: a wrong map is worse than none.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from clustertop.sources.facts import Fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clustertop.model import NodeInfo
    from clustertop.sources.facts import Link, Reading

INVENTORY = "inventory"
_ENDINGS = frozenset({"json", "txt", "text", "lldp", "log", "walk", "snmpwalk", "snmprec"})


@dataclass(frozen=True, slots=True)
class Claim:
    """One value, and every source that says it."""

    value: str
    sources: tuple[str, ...]
    """``csv racks.csv, line 4``; the inventory first."""
    port: str = ""
    """Of a leaf: the node's port; empty: the node as a whole."""
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Sources that differ about one node."""

    node: str
    kind: str
    """``rack``, ``leaf``, ``rail``, ``pod``; with the port behind it where it is about one: ``leaf of eth2``."""
    claims: tuple[Claim, ...]
    used: str = ""
    """The value that holds all the same, because the inventory says it; empty: unknown."""


@dataclass(frozen=True, slots=True)
class OffRail:
    """A port on a leaf that other nodes reach by another one: two cables swapped, or a node of another kind."""

    node: str
    port: str
    leaf: str
    rail: str
    """The port by which most nodes hang on that leaf."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one node hangs. None and empty: no source says."""

    node: str
    rack: Claim | None = None
    leaves: tuple[Claim, ...] = ()
    rail: Claim | None = None
    """Of a node with one leaf. On rails see :attr:`Topology.rails`."""
    pod: Claim | None = None

    @property
    def leaf_names(self) -> frozenset[str]:
        """The leaves, each once: those of the ports where cables were looked at, else what is said of the node."""
        cabled = frozenset(claim.value for claim in self.leaves if claim.port)
        return cabled or frozenset(claim.value for claim in self.leaves)

    @property
    def leaf(self) -> str:
        """The one leaf; empty where there is none, or where it is not one."""
        whole = {claim.value for claim in self.leaves if not claim.port}
        names = whole if len(whole) == 1 else self.leaf_names
        return next(iter(names)) if len(names) == 1 else ""


@dataclass(frozen=True, slots=True)
class Topology:
    """The merged map."""

    places: Mapping[str, Place] = field(default_factory=dict)
    """By node of the inventory, in its order; without one, every node that a source names."""
    contradictions: tuple[Contradiction, ...] = ()
    rails: Mapping[str, str] = field(default_factory=dict)
    """Leaf to the port by which its nodes hang on it, where nodes have several leaves: rail-optimised."""
    off_rail: tuple[OffRail, ...] = ()
    strangers: tuple[str, ...] = ()
    """Names that sources place and the inventory does not have."""
    notes: tuple[str, ...] = ()
    guessable: int = 0
    """Nodes without a rack for which Slurm's leaves or blocks would do as a guess."""
    sources: tuple[str, ...] = ()
    refused: int = 0
    """Lines and lists of all sources that could not be used."""

    @property
    def racks(self) -> dict[str, str]:
        """Node to rack, of those whose rack is known: the rack map of a cross-rack share."""
        return {node: place.rack.value for node, place in self.places.items() if place.rack}

    @property
    def leaves(self) -> dict[str, frozenset[str]]:
        """Node to its leaves, of those that have any known."""
        return {node: place.leaf_names for node, place in self.places.items() if place.leaves}

    def without(self, kind: str) -> tuple[str, ...]:
        """Nodes whose ``rack`` or ``leaf`` is not known."""
        known = self.racks if kind == "rack" else self.leaves
        return tuple(node for node in self.places if node not in known)


class _Names:
    """Finds the inventory's node behind a spelling: case and domain may differ where that leaves no doubt."""

    def __init__(self, nodes: Sequence[NodeInfo]) -> None:
        self.known = bool(nodes)
        self._exact: dict[str, str] = {}
        short: defaultdict[str, set[str]] = defaultdict(set)
        for node in nodes:
            for spelling in (node.name, node.target):
                self._exact.setdefault(spelling.lower(), node.name)
                short[spelling.lower().partition(".")[0]].add(node.name)
        self._short = {spelling: next(iter(names)) for spelling, names in short.items() if len(names) == 1}

    def find(self, spelling: str) -> str | None:
        lower = spelling.lower()
        if not self.known:
            return spelling or None
        found = self._exact.get(lower)
        if found is None and not lower.replace(".", "").isdigit():
            found = self._short.get(lower.partition(".")[0])
        return found


@dataclass(slots=True)
class _Heap:
    """Claims of one node, kind and port."""

    stated: dict[str, list[str]] = field(default_factory=dict)
    guessed: dict[str, list[str]] = field(default_factory=dict)

    def add(self, value: str, source: str, *, guess: bool) -> None:
        values = self.guessed if guess else self.stated
        spelt = next((one for one in values if one.casefold() == value.casefold()), value)
        sources = values.setdefault(spelt, [])
        if source not in sources:
            sources.append(source)


def merge(
    nodes: Sequence[NodeInfo],
    readings: Iterable[Reading],
    *,
    guess_racks: bool = False,
    ignored_ports: Sequence[str] = (),
) -> Topology:
    """Return the map that the inventory and all *readings* make together.

    Args:
        nodes: the inventory; empty takes every node that a source names.
        readings: what the sources say.
        guess_racks: take Slurm's lowest switches and blocks for racks where nothing says a rack.
        ignored_ports: patterns of node ports whose switch is no leaf of the fabric.
    """
    readings = list(readings)
    names = _Names(nodes)
    heaps: defaultdict[tuple[str, str, str], _Heap] = defaultdict(_Heap)
    for node in nodes:
        for kind, value in (("rack", node.rack), ("leaf", node.leaf)):
            if value:
                heaps[node.name, kind, ""].add(value, INVENTORY, guess=False)
    strangers: dict[str, None] = {}
    switches = _switches(readings)
    for reading in readings:
        facts = [*reading.facts, *_from_links(reading, names, switches)]
        for fact in facts:
            found = names.find(fact.node)
            if found is None:
                strangers[fact.node] = None
            elif not (fact.port and any(fnmatchcase(fact.port.lower(), pattern.lower()) for pattern in ignored_ports)):
                heaps[found, fact.kind, fact.port].add(fact.value, _source(reading, fact), guess=fact.guess)
    wanted = [node.name for node in nodes] or list(dict.fromkeys(node for node, _, _ in heaps))
    return _settle(wanted, heaps, readings, tuple(strangers), guess_racks=guess_racks)


def _source(reading: Reading, fact: Fact) -> str:
    place = " ".join(part for part in (reading.source, reading.where) if part)
    place = f"{place}, line {fact.line}" if fact.line else place
    return f"{place} ({fact.alias})" if fact.alias else place


def _from_links(reading: Reading, names: _Names, switches: set[str]) -> Iterable[Fact]:
    """Leaves behind links with a node at one end and a switch at the other."""
    for link in reading.links:
        device = _device(reading, link)
        if names.known:
            mine, far = names.find(device) is not None, names.find(link.peer) is not None
        else:
            mine = device.lower() not in switches and link.peer.lower() in switches
            far = link.peer.lower() not in switches and device.lower() in switches and link.peer_is_switch is False
        if mine and not far and link.peer_is_switch is not False:
            yield Fact(device, "leaf", link.peer, link.line, link.port)
        elif far and not mine:
            yield Fact(link.peer, "leaf", device, link.line, link.peer_port or "port")


def _device(reading: Reading, link: Link) -> str:
    """Whose neighbours they are: as told, or the name of the file."""
    file = reading.where.rpartition("/")[2]
    stem, _, ending = file.rpartition(".")
    return link.device or (stem if stem and ending.lower() in _ENDINGS else file)


def _switches(readings: Iterable[Reading]) -> set[str]:
    """What is a switch for sure: it announces so, or has a neighbour that announces that it is none."""
    found = set()
    for reading in readings:
        for link in reading.links:
            if link.peer_is_switch is not None:
                found.add((link.peer if link.peer_is_switch else _device(reading, link)).lower())
    return found


def _settle(
    wanted: list[str],
    heaps: Mapping[tuple[str, str, str], _Heap],
    readings: list[Reading],
    strangers: tuple[str, ...],
    *,
    guess_racks: bool,
) -> Topology:
    contradictions: list[Contradiction] = []
    by_node: defaultdict[str, dict[tuple[str, str], _Heap]] = defaultdict(dict)
    for (node, kind, port), heap in heaps.items():
        by_node[node][kind, port] = heap
    places, guessable = {}, 0
    for node in wanted:
        claims: defaultdict[str, list[Claim]] = defaultdict(list)
        for (kind, port), heap in by_node[node].items():
            take_guess = guess_racks if kind == "rack" else kind == "pod"
            guessable += kind == "rack" and not heap.stated and len(heap.guessed) == 1
            claim, doubt = _decide(node, kind, port, heap, guess=take_guess)
            if claim:
                claims[kind].append(claim)
            if doubt:
                contradictions.append(doubt)
        leaves = sorted(claims["leaf"], key=lambda claim: (claim.port, claim.value))
        places[node] = Place(
            node, *(next(iter(claims["rack"]), None), tuple(leaves)),
            rail=next(iter(claims["rail"]), None), pod=next(iter(claims["pod"]), None))  # fmt: skip
    sources = [f"{reading.source} {reading.where}".strip() for reading in readings]
    notes = [f"{where}: {note}" for where, one in zip(sources, readings, strict=True) for note in one.notes]
    rails, off_rail = _rails(places.values())
    return Topology(
        places, tuple(contradictions), rails, off_rail, strangers, tuple(notes), guessable, tuple(sources),
        sum(one.refused for one in readings),
    )


def _decide(node: str, kind: str, port: str, heap: _Heap, *, guess: bool) -> tuple[Claim | None, Contradiction | None]:
    guessed = not heap.stated
    values = heap.stated or (heap.guessed if guess else {})
    claims = tuple(
        Claim(value, tuple(sorted(sources, key=lambda one: one != INVENTORY)), port, guessed)
        for value, sources in values.items()
    )
    if len(claims) <= 1:
        return (claims[0] if claims else None), None
    spoken = next((claim for claim in claims if INVENTORY in claim.sources), None)
    what = f"{kind} of {port}" if port else kind
    return spoken, Contradiction(node, what, claims, spoken.value if spoken else "")


def _rails(places: Iterable[Place]) -> tuple[dict[str, str], tuple[OffRail, ...]]:
    """Leaves that most nodes hang on with one port, where nodes have several leaves, and the ports that differ."""
    cabled = [place for place in places if len({claim.value for claim in place.leaves if claim.port}) > 1]
    ports: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for place in cabled:
        for claim in place.leaves:
            if claim.port:
                ports[claim.value][claim.port] += 1
    rails = {}
    for leaf, count in sorted(ports.items()):
        port, most = count.most_common(1)[0]
        if most * 2 > count.total():
            rails[leaf] = port
    if len(set(rails.values())) < 2:  # every leaf takes the same port: no rails
        return {}, ()
    off = [
        OffRail(place.node, claim.port, claim.value, rails[claim.value])
        for place in cabled
        for claim in place.leaves
        if claim.port and rails.get(claim.value, claim.port) != claim.port
    ]
    return rails, tuple(off)


def placed(nodes: Sequence[NodeInfo], topology: Topology) -> tuple[NodeInfo, ...]:
    """Return *nodes* with rack and leaf filled from the map where the inventory does not say them, and all leaves."""
    found = []
    for node in nodes:
        place = topology.places.get(node.name)
        if place is not None:
            rack = node.rack or (place.rack.value if place.rack else "")
            leaves = tuple(sorted(place.leaf_names)) if len(place.leaf_names) > 1 else ()
            if (rack, leaves) != (node.rack, node.leaves) or not node.leaf:
                node = dataclasses.replace(node, rack=rack, leaf=node.leaf or place.leaf, leaves=leaves)
        found.append(node)
    return tuple(found)
