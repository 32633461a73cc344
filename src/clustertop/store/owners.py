"""Whose a row is: the nodes of the inventory, then devices, then feeds, then the fleet as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clustertop.model import NodeInfo
from clustertop.places import Supply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.places import Site

FLEET = "fleet"
FEED = "feed"
_OF_TABLE: Mapping[str, frozenset[str]] = {
    "feed": frozenset({FEED}), "traffic": frozenset({FLEET}),
    "device": frozenset({"pdu", "bmc", "switch", "fabric"}), "pdu": frozenset({"pdu", "bmc"}),
    "uplink": frozenset({"switch", "fabric"}),
}
"""By table: the kinds of owners that its rows have; every other table's are nodes."""


class Owners:
    """The owners of a store's rows, numbered. ``all`` is [owners]; the nodes stand first."""

    def __init__(self, nodes: Sequence[NodeInfo], site: Site) -> None:
        self.site = site
        hangs: dict[str, list[int]] = {}
        for row, feed in enumerate(site.feeds):
            for name in feed.nodes:
                hangs.setdefault(name, []).append(row)
        self._hangs = hangs
        self.nodes = tuple(replace(node, feeds=tuple(site.feeds[row].name for row in hangs[node.name]))
                           if node.name in hangs else node for node in nodes)
        self.first_device = len(self.nodes)
        self.first_feed = self.first_device + len(site.devices)
        self.fleet = self.first_feed + len(site.feeds)
        self.all: tuple[NodeInfo, ...] = (
            *self.nodes,
            *(NodeInfo(one.name, one.where, rack=one.rack, leaf=one.leaf, kind=one.kind, of=one.of)
              for one in site.devices),
            *(NodeInfo(one.name, rack=one.rack, kind=FEED) for one in site.feeds),
            NodeInfo(FLEET, kind=FLEET),
        )
        self._number = {node.name: number for number, node in enumerate(self.nodes)}
        self._others = {(one.kind, one.name): self.first_device + place
                        for place, one in enumerate(self.all[self.first_device:])}
        self.host = [self._number.get(one.of, number) if one.kind == "bmc" else number
                     for number, one in enumerate(self.all)]
        """[owners] under whom what one says is kept: a BMC's under its node, where that is one of ours."""
        self._supplied: dict[int, frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self.all)

    def number(self, table: str, name: str) -> int | None:
        """The owner called *name* that rows of *table* can have; None: there is none."""
        if table not in _OF_TABLE:
            return self._number.get(name)
        return next((self._others[kind, name] for kind in sorted(_OF_TABLE[table]) if (kind, name) in self._others),
                    None)

    def of_nodes(self, table: str) -> bool:
        """Whether rows of *table* are kept under nodes."""
        return table not in _OF_TABLE

    def is_device(self, number: int) -> bool:
        """Whether owner *number* is a device: one that sends frames and has a link."""
        return self.first_device <= number < self.first_feed

    def hang(self, number: int, names: Sequence[str]) -> None:
        """These nodes hang on feed *number* as well, as its PDU says: from now on the site has them there."""
        feeds, row = list(self.site.feeds), number - self.first_feed
        feeds[row] = replace(feeds[row], supplies=(*feeds[row].supplies, *(Supply(name) for name in names)))
        self.site = replace(self.site, feeds=tuple(feeds))
        self._supplied.pop(number, None)
        for name in names:
            self._hangs.setdefault(name, []).append(row)

    def feeds_of(self, number: int) -> tuple[int, ...]:
        """Rows of the feed table on which node *number* hangs, in the order of the site."""
        return tuple(sorted(self._hangs.get(self.nodes[number].name, ())))

    def supplied(self, number: int) -> frozenset[int]:
        """What is dark when feed *number* is: its nodes, their BMCs, and the PDU that measures it; by owner."""
        found = self._supplied.get(number)
        if found is None:
            feed = self.site.feeds[number - self.first_feed]
            nodes = {self._number[name] for name in feed.nodes if name in self._number}
            devices = {self.first_device + place for place, one in enumerate(self.site.devices)
                       if (one.kind == "bmc" and one.of in feed.nodes) or (feed.pdu and one.name == feed.pdu)}
            found = self._supplied[number] = frozenset(nodes | devices)
        return found
