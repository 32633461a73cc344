"""Feeds, PDUs and BMCs made of rows, for tests of what is judged: frames as the pollers make them, time in our hands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from clustertop.core import Core
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.places import Device, Feed, Site, Supply
from clustertop.poll.device_frames import table_part
from clustertop.rules.spec import builtin
from clustertop.wire.frame import Frame, GroupPart, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.model import Alert, Transition
    from clustertop.rules.spec import Rule
    from clustertop.store.view import FleetView, TableView

ZERO = 1000.0

__all__ = ["ZERO", "Device", "Feed", "Place", "Supply", "inlet", "part"]


def part(kind: str, name: str, unit: str = "", **cells: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A row of a PDU: its key, attributes and raw cells."""
    return f"{kind}/{unit}/{name}", {"kind": kind, "name": name, "unit": unit}, cells


def inlet(amps: float | None, **cells: Any) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """A PDU of one inlet."""
    return [part("inlet", "inlet", amps=amps, **cells)]


class Place:
    """A core with feeds, and readings of its devices as they would come."""

    def __init__(self, feeds: Sequence[Feed], nodes: Sequence[NodeInfo] = (NodeInfo("n0"),), bmcs: Sequence[str] = (),
                 rules: Mapping[str, Rule] | None = None, *, interval: float = 10.0,
                 switches: Mapping[str, str] | None = None, pdus: Mapping[str, str] | None = None) -> None:
        racks = {feed.pdu: feed.rack for feed in feeds}
        racks |= pdus or {}
        devices = [Device(name, "pdu", None, rack=racks[name], interval_seconds=interval) for name in racks if name]
        devices += [Device(f"{name}-bmc", "bmc", None, of=name, interval_seconds=interval) for name in bmcs]
        devices += [Device(name, "switch", None, rack=rack, interval_seconds=interval) for name, rack in (switches or {}).items()]
        self.core = Core(nodes, builtin() if rules is None else rules, site=Site(tuple(feeds), tuple(devices)),
                         settle_seconds=0.0)
        self.now, self.interval = ZERO, interval
        self.numbers = {one.name: number for number, one in enumerate(self.core.store.owners.all)
                        if one.kind not in {"feed", "fleet"}}
        self.sequence = 0
        self.seen: list[Transition] = []
        for device in devices:
            self.link(device.name, LinkState.UP)

    def link(self, name: str, state: LinkState = LinkState.UNREACHABLE, reason: str = "no answer") -> None:
        """Change a node's or a device's link."""
        said = "" if state == LinkState.UP else reason
        self.core.on_link(LinkEvent(self.numbers[name], self.now, state, "", said), self.now)

    def pdu(self, name: str, rows: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]) -> None:
        """A PDU's reading."""
        self._send(name, "pdu", {"pdu": rows})

    def bmc(self, node: str, watts: Any, psus: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = (),
            sensors: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = (), **cells: Any) -> None:
        """A BMC's reading."""
        self._send(f"{node}-bmc", "bmc", {"bmc": [("", {}, {"watts": watts, **cells})], "psu": psus, "sensor": sensors})

    def _send(self, name: str, group: str, tables: Mapping[str, Sequence[tuple[str, Any, Any]]]) -> None:
        self.sequence += 1
        made = {}
        for table, rows in tables.items():
            columns = dict.fromkeys(column for _, _, cells in rows for column in cells)
            made[table] = table_part([Row(key, dict(attrs)) for key, attrs, _ in rows],
                                     {column: [cells.get(column) for _, _, cells in rows] for column in columns})
        frame = Frame(1, self.sequence, self.sequence, self.now, self.now, {},
                      {group: GroupPart(self.now, iv=self.interval, n=self.sequence, tb=made)}, {})
        self.core.on_frame(self.numbers[name], self.now, self.now, frame, msgspec.json.encode(frame))

    def tick(self, seconds: float = 0.0) -> list[Transition]:
        """Move the clock and judge."""
        self.now += seconds
        changes = self.core.tick(self.now, self.now)
        self.seen += changes
        return changes

    def read(self, seconds: float | None = None, **amps: float | None) -> list[Transition]:
        """Move the clock by an interval, give each PDU (underscores for dashes) one inlet's amps, judge."""
        self.now += self.interval if seconds is None else seconds
        for name, value in amps.items():
            self.pdu(name.replace("_", "-"), inlet(value))
        return self.tick()

    @property
    def view(self) -> FleetView:
        """The newest view."""
        assert self.core.snapshot is not None
        return self.core.snapshot.view

    @property
    def alerts(self) -> list[Alert]:
        """What stands."""
        assert self.core.snapshot is not None
        return list(self.core.snapshot.alerts)

    @property
    def feeds(self) -> TableView:
        """The table of feeds."""
        return self.view["feed"]

    def feed(self, name: str, column: str) -> float | str | None:
        """A value of a feed, or why it is unknown."""
        table = self.feeds
        row = next(row for row, attrs in enumerate(table.attrs) if attrs["name"] == name)
        value = table.value(column, row)
        return table.reason(column, row) if value is None else value

    def said(self, kind: str = "raised") -> list[str]:
        """Rule, severity and thing of the transitions of a kind so far."""
        return [f"{one.rule} {one.severity.name.lower()} {one.thing.id}" for one in self.seen if one.kind == kind]
