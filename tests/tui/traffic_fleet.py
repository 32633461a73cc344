"""Nodes with sockets and leaf switches, made by code: frames through the real Core, for the Traffic screen's tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.core import Core
from clustertop.model import LinkEvent, LinkState, NodeInfo, OwnCost, Request
from clustertop.places import Device, Site
from clustertop.rules.spec import builtin
from clustertop.wire.frame import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.core import Snapshot
    from clustertop.rules.latency import Times
    from clustertop.rules.spec import Rule

WALL = 1_790_000_000.0
PEER = ("tx_bytes", "rx_bytes", "sockets", "rtt_us", "rttvar_us")
PORT = ("rx_rate", "tx_rate", "speed", "up", "discard_rate", "pause_rate")


@dataclass
class Uplink:
    """An uplink of a leaf."""

    out: float = 1e9
    up: int = 1
    drops: float = 0.0


@dataclass
class Leaf:
    """What a leaf switch says."""

    uplinks: list[Uplink] = field(default_factory=lambda: [Uplink() for _ in range(4)])
    host_in: float = 2e9


class Wires:
    """A ``Source`` over nodes that send to each other."""

    origins: Mapping[str, Mapping[str, str]] = {}
    times: Times | None = None
    title, live = "wires", True
    notes: tuple[str, ...] = ()

    def __init__(
        self, racks: int = 4, per_rack: int = 2, *, mapped: bool = True, leaves: int = 0, groups: tuple[str, ...] = (),
        order: tuple[str, ...] = (), rules: Mapping[str, Rule] | None = None,
    ) -> None:
        self.infos = [
            NodeInfo(f"node{number + 1:03d}", rack=f"row-{number // per_rack + 1}" if mapped else "", groups=groups,
                     leaf=f"lf{number * leaves // (racks * per_rack) + 1}" if leaves else "")
            for number in range(racks * per_rack)]
        self.leaves = {f"lf{number + 1}": Leaf() for number in range(leaves)}
        devices = tuple(Device(name, "switch", None, leaf=name) for name in self.leaves)
        self.core = Core(self.infos, rules or builtin(), site=Site(devices=devices, order=order))
        self.flows: dict[tuple[int, int], float] = {}
        """Bytes per second from one node to another; -1: to an address that is no node's."""
        self.rtt: dict[tuple[int, int], float] = {}
        """Microseconds, where it is not 80."""
        self.deaf: set[int] = set()
        """Nodes that tell nothing of their sockets."""
        self.nameless: set[int] = set()
        """Nodes that do not tell their addresses."""
        self.jobs: dict[int, list[str]] = {}
        self.now = 1000.0
        self.sequence = 0
        self._sent: dict[tuple[int, int], float] = {}
        for number in range(len(self.infos) + len(devices)):
            self.core.on_link(LinkEvent(number, self.now, LinkState.UP, "tcp", ""), WALL)

    @property
    def snapshot(self) -> Snapshot | None:
        return self.core.snapshot

    def cost(self) -> OwnCost:
        return OwnCost(0.02, 60 * 2**20)

    def released(self, node: int) -> bool:
        return False

    def evaluate(self) -> None:
        self.core.tick(self.now, WALL + self.now)

    def request(self, request: Request) -> None:
        """Nobody is there to be asked."""

    def run(self, ticks: int, seconds: float = 1.0) -> Wires:
        """Let time pass, a reading of everything each second."""
        for _ in range(ticks):
            self.now += seconds
            self.sequence += 1
            for pair, rate in self.flows.items():
                self._sent[pair] = self._sent.get(pair, 0.0) + rate * seconds
            for number in range(len(self.infos)):
                self._frame(number, self._node(number), "host0")
            for place, leaf in enumerate(self.leaves.values()):
                self._frame(len(self.infos) + place, {"switch": self._part({"uplink": self._ports(leaf)})}, "")
            self.core.tick(self.now, WALL + self.now)
        return self

    def _frame(self, owner: int, groups: dict[str, object], host: str) -> None:
        raw = json.dumps({
            "v": 1, "q": self.sequence, "b": self.sequence, "t": self.now, "w": WALL + self.now, "m": {},
            "h": {"host": host} if host else {}, "g": groups}).encode()
        self.core.on_frame(owner, self.now, WALL + self.now, decode(raw), raw)

    def _part(self, tables: dict[str, object]) -> dict[str, object]:
        return {"t": self.now, "iv": 1.0, "ms": 1.0, "st": "ok", "n": self.sequence, "tb": tables}

    def _node(self, number: int) -> dict[str, object]:
        told = [] if number in self.nameless else [f"{address(number)}/16"]
        link = {"k": "0000:05:00.0/eth0", "a": {"name": "eth0", "phys": True, "addresses": told}}
        out: dict[str, object] = {
            "host": self._part({"node": columns([{"k": "", "a": {"jobs": self.jobs.get(number, [])}}], {"load1": [1]})}),
            "net": self._part({"link": columns([link], {})})}
        if number in self.deaf:
            return out
        peers = sorted({b for a, b in self.flows if a == number} | {a for a, b in self.flows if b == number})
        rows = [{"k": address(other), "a": {"since": 1000.0}} for other in peers]
        cells: dict[str, list[float]] = {name: [] for name in PEER}
        for other in peers:
            rtt = self.rtt.get((number, other), self.rtt.get((other, number), 80.0))
            for name, cell in zip(PEER, (self._sent.get((number, other), 0.0), self._sent.get((other, number), 0.0), 4,
                                         rtt, rtt / 10), strict=True):
                cells[name].append(int(cell))
        out["sockets"] = self._part({"peer": columns(rows, cells)})
        return out

    def _ports(self, leaf: Leaf) -> dict[str, object]:
        rows: list[dict[str, object]] = [{"k": "1", "a": {"name": "swp1", "role": "host"}}]
        cells: dict[str, list[float]] = {name: [value] for name, value in zip(
            PORT, (leaf.host_in, leaf.host_in, 4e11, 1, 0, 0), strict=True)}
        for place, one in enumerate(leaf.uplinks):
            rows.append({"k": str(51 + place), "a": {
                "name": f"swp{51 + place}", "role": "uplink", "role_by": "lldp", "peer": f"sp{place % 2 + 1}"}})
            for name, value in zip(PORT, (one.out, one.out, 1e11, one.up, one.drops, 0), strict=True):
                cells[name].append(value)
        return columns(rows, cells)


def address(number: int) -> str:
    """The address of a node; of -1 one that is nobody's."""
    return "192.0.2.77" if number < 0 else f"10.7.{number // 200}.{number % 200 + 1}"


def columns(rows: list[dict[str, object]], cells: dict[str, list[float]]) -> dict[str, object]:
    """A full table of numbers."""
    flat = [cell for column in cells.values() for cell in column]
    return {"r": rows, "c": list(cells), "i": [0, len(flat)] if flat else [], "x": flat, "j": [], "s": []}


def ring(order: list[int], rate: float) -> dict[tuple[int, int], float]:
    """Each sends to the next."""
    return dict.fromkeys(zip(order, order[1:] + order[:1], strict=True), rate)
