"""What nodes have in common: racks, leaves, groups, the whole fleet. Parents under which one cause is one alert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from clustertop.places import DEVICE_PLURAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from clustertop.model import NodeInfo

DomainKind = Literal["rack", "feed", "leaf", "group", "jump", "devices", "fleet"]
_ORDER: dict[DomainKind, int] = {
    "rack": 0, "feed": 1, "leaf": 2, "group": 3, "jump": 4, "devices": 5, "fleet": 6}
_WORDS = {"jump": "jump host"}
_PLURAL = {**DEVICE_PLURAL, "feed": "feeds"}


@dataclass(frozen=True, slots=True)
class Domain:
    """A parent of nodes or devices. The more particular kind comes first where two hold the same nodes."""

    kind: DomainKind
    name: str
    nodes: frozenset[int]
    also: tuple[str, ...] = ()
    """Labels of other parents that hold exactly the same nodes."""

    @property
    def label(self) -> str:
        """What an operator calls it: ``rack r7``, ``rack r7, leaf l7``, ``fleet``."""
        if self.kind in {"fleet", "devices"}:
            return self.name or "fleet"
        return ", ".join((f"{_WORDS.get(self.kind, self.kind)} {self.name}", *self.also))

    @property
    def order(self) -> tuple[int, int, str]:
        """Small parents before large ones, then by kind and name."""
        return (len(self.nodes), _ORDER[self.kind], self.name)


class Domains:
    """The parents of an inventory's nodes, and of its devices, by kind."""

    def __init__(self, nodes: Sequence[NodeInfo], vias: Sequence[str] = ()) -> None:
        """Find them among *nodes*, [owners]; *vias*: the jump hosts each is reached through, where that is a parent."""
        self.nodes, self.vias = tuple(nodes), tuple(vias)
        members: dict[tuple[DomainKind, str], set[int]] = {}
        for number, node in enumerate(nodes):
            if node.kind in _PLURAL:
                members.setdefault(("devices", _PLURAL[node.kind]), set()).add(number)
            if node.kind != "node":
                continue
            if node.rack:
                members.setdefault(("rack", node.rack), set()).add(number)
            for feed in node.feeds:
                members.setdefault(("feed", feed), set()).add(number)
            if node.leaf:
                members.setdefault(("leaf", node.leaf), set()).add(number)
            for group in node.groups:
                if group not in {node.rack, node.leaf}:
                    members.setdefault(("group", group), set()).add(number)
        for number, via in enumerate(vias):
            if via:
                members.setdefault(("jump", via), set()).add(number)
        hosts = {number for number, node in enumerate(nodes) if node.kind == "node"}
        if len(hosts) > 1:
            members["fleet", ""] = hosts
        same: dict[frozenset[int], list[tuple[DomainKind, str]]] = {}
        for key, numbers in sorted(members.items(), key=lambda item: (_ORDER[item[0][0]], item[0][1])):
            if len(numbers) > 1:
                same.setdefault(frozenset(numbers), []).append(key)
        self.all: tuple[Domain, ...] = tuple(sorted((
            Domain(kind, name, numbers,
                   tuple(f"{_WORDS.get(other, other)} {title}" for other, title in more if other != "fleet"))
            for numbers, ((kind, name), *more) in same.items()
        ), key=lambda domain: domain.order))
        self.whole = next((domain for domain in self.all if domain.nodes == hosts), None)
        """The one that holds every node: the fleet, by the name of the rack, leaf or group that is all of it."""
        self.widest: tuple[Domain, ...] = tuple(sorted(self.all, key=lambda domain: (
            domain is self.whole, -len(domain.nodes), _ORDER[domain.kind], domain.name)))
        """The largest first, but what holds every node last."""
        self._of: list[list[Domain]] = [[] for _ in nodes]
        for domain in self.all:
            for number in domain.nodes:
                self._of[number].append(domain)
        self._matrix = np.zeros((len(self.all), len(nodes)), np.bool_)
        for position, domain in enumerate(self.all):
            self._matrix[position, list(domain.nodes)] = True

    def siblings(self, node: int) -> frozenset[int]:
        """The nodes that share a parent with it: those of the whole fleet only where it has no other."""
        mine = [domain for domain in self._of[node] if domain is not self.whole] or self._of[node]
        return frozenset[int]().union(*(domain.nodes for domain in mine))

    def together(
        self, nodes: Iterable[int], judged: NDArray[np.bool_], share: float, least: int, many: int,
    ) -> list[tuple[Domain, frozenset[int]]]:
        """The parents that account for *nodes*, each with those of its nodes; no node twice.

        A parent can account for its nodes where at least *least* of them, and more than *share* of its judged ones,
        are among *nodes*. The one with the most failing and the fewest healthy nodes goes first; of equals the
        smallest. Where *many* nodes are still left over, the fleet accounts for them.

        Args:
            nodes: numbers of the nodes that fail.
            judged: [nodes] whether anything is known of it; what is not judged counts for neither side.
            share: of a parent's nodes, 0 to 1.
            least: number of nodes.
            many: number of nodes.
        """
        left = np.zeros(self._matrix.shape[1], np.bool_)
        left[list(nodes)] = True
        found: list[tuple[Domain, frozenset[int]]] = []
        sizes = (self._matrix & (judged | left)).sum(axis=1)
        failing = (self._matrix & left).sum(axis=1)
        usable = (failing >= least) & (failing > share * sizes)
        while usable.any():
            failing = (self._matrix & left).sum(axis=1)
            usable &= failing >= least
            if not usable.any():
                break
            best = int(np.where(usable, 2 * failing - sizes, -len(left) - 1).argmax())
            mine = self._matrix[best] & left
            found.append((self.all[best], frozenset(np.flatnonzero(mine).tolist())))
            left &= ~mine
            usable[best] = False
        fleet = self.whole
        if fleet is not None:
            rest = frozenset(np.flatnonzero(left).tolist()) & fleet.nodes
            if len(rest) >= many:
                before = next((mine for domain, mine in found if domain is fleet), frozenset())
                found = [entry for entry in found if entry[0] is not fleet]
                found.append((fleet, before | rest))
        return found
