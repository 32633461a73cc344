"""Nodes made of tables, for tests of what lies behind the wire: readings in, frames by the probe's own encoder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clustertop.core import Core
from clustertop.model import Alert, LinkEvent, LinkState, NodeInfo, Transition
from clustertop.places import Device, Site
from clustertop.probe.frames import Encoder, Err, Group, Table
from clustertop.rules.spec import Rule, builtin
from clustertop.wire.frame import decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.store.view import FleetView, TableView

GROUP_OF = {"gpu": "gpu", "process": "gpu", "pcie": "pcie", "port": "rdma", "node": "host", "net": "host", "link": "net",
            "disk": "disk", "screen": "screen", "pdu": "pdu", "bmc": "bmc", "psu": "bmc", "sensor": "bmc",
            "ipmi": "bmc", "nccl": "nccl", "peer": "sockets", "uplink": "switch"}
SITE = Site(devices=(Device("p", "pdu", None), Device("s", "switch", None, leaf="s")))
"""One device of each kind that tells of tables of its own."""
DEVICE_OF = {"pdu": 0, "uplink": 1}
"""By table that a device tells of: which of SITE's."""
ZERO = 1000.0
"""Our monotonic clock when a fleet begins."""


def table(rows: Mapping[str, Mapping[str, Any]], attrs: Mapping[str, Mapping[str, Any]] | None = None,
          error: str = "") -> Table:
    """Rows of raw columns: numbers, text, ``Err``; a column that a row lacks is not provided there."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = [row.get(column) for column in columns for row in rows.values()]
    listed = [(key, dict((attrs or {}).get(key, {}))) for key in rows]
    return Table(listed, columns, cells, error)


class Fleet:
    """A core and the nodes that feed it, with time in our hands.

    ``say(node, seconds, gpu=..., port=...)`` sends one frame; ``tick()`` evaluates; both move no clock by themselves.
    """

    def __init__(self, nodes: int | Sequence[NodeInfo] = 1, rules: Mapping[str, Rule] | None = None, *,
                 interval: float = 1.0, **core: Any) -> None:
        infos = [NodeInfo(f"n{number}") for number in range(nodes)] if isinstance(nodes, int) else list(nodes)
        self.core = Core(infos, builtin() if rules is None else rules, **core)
        self.interval = interval
        self.now = ZERO
        self.encoders = [Encoder() for _ in infos]
        self.counts: dict[tuple[int, str], int] = {}
        self.seen: list[Transition] = []
        self.facts: list[dict[str, Any]] = [{"boot_id": "b0"} for _ in infos]
        self.asked_full: set[int] = set()
        for number in range(len(infos)):
            self.link(number, LinkState.UP)

    def link(self, node: int, state: LinkState, reason: str = "") -> None:
        """Change a node's link."""
        self.core.on_link(LinkEvent(node, self.now, state, "", reason), self.now)

    def frame(self, node: int, /, *, node_time: float | None = None, states: Mapping[str, Mapping[str, Any]] | None = None,
              **tables: Table) -> bytes:
        """The node's next frame, not yet sent."""
        at = self.now - ZERO + 500.0 if node_time is None else node_time
        groups: dict[str, Group] = {}
        for name, one in tables.items():
            group = GROUP_OF[name]
            if group not in groups:
                self.counts[node, group] = self.counts.get((node, group), 0) + 1
                groups[group] = Group(at, self.interval, {}, n=self.counts[node, group])
            groups[group].tables[name] = one
        for group, state in (states or {}).items():
            known = groups.setdefault(group, Group(at, self.interval, {}, n=self.counts.get((node, group), 0)))
            for key, value in state.items():
                setattr(known, key, value)
        made = self.encoders[node].encode(groups, at, self.now, {"cpu": 0.0, "rss": 2e7}, self.facts[node])
        return json.dumps(made).encode()

    def send(self, node: int, raw: bytes) -> bool:
        """Let a frame arrive now."""
        complete = self.core.on_frame(node, self.now, self.now, decode(raw), raw)
        if not complete:
            self.asked_full.add(node)
        return complete

    def say(self, node: int = 0, /, **what: Any) -> bool:
        """Send one frame of *node*."""
        return self.send(node, self.frame(node, **what))

    def tell(self, node: int = 0, /, **tables: Table) -> bool:
        """Send tables of a node in its frame, and those of SITE's devices in theirs; each of these is a full one."""
        complete = True
        for name, one in tables.items():
            if name in DEVICE_OF:
                at = self.now - ZERO + 500.0
                group = Group(at, self.interval, {name: one}, n=int(at))
                made = Encoder().encode({GROUP_OF[name]: group}, at, self.now, {}, {})
                complete &= self.send(len(self.core.store.nodes) + DEVICE_OF[name], json.dumps(made).encode())
        mine = {name: one for name, one in tables.items() if name not in DEVICE_OF}
        return self.send(node, self.frame(node, **mine)) and complete if mine else complete

    def tick(self) -> list[Transition]:
        """Evaluate now; returns what changed."""
        changes = self.core.tick(self.now, self.now)
        self.seen += changes
        return changes

    def step(self, seconds: float = 1.0, number: int = 0, /, **what: Any) -> list[Transition]:
        """Move the clock, send a frame if *what* says one, evaluate."""
        self.now += seconds
        if what:
            self.say(number, **what)
        return self.tick()

    @property
    def view(self) -> FleetView:
        """The newest view."""
        assert self.core.snapshot is not None
        return self.core.snapshot.view

    def __getitem__(self, name: str) -> TableView:
        return self.view[name]

    @property
    def rules(self) -> list[str]:
        """The rules of the transitions so far, as ``kind rule``."""
        return [f"{change.kind} {change.rule}" for change in self.seen]

    @property
    def alerts(self) -> list[Alert]:
        """What an operator sees now, worst first."""
        assert self.core.snapshot is not None
        return list(self.core.snapshot.alerts)

    @property
    def firing(self) -> list[str]:
        """The rules of what an operator sees now."""
        return sorted(alert.rule for alert in self.alerts)

    def inside(self, number: int = 0) -> list[str]:
        """The verdicts under an alert, as ``rule thing``, worst first."""
        return [f"{one.rule} {one.thing.label}"
                for one in self.core.engine.inside(self.view, self.alerts[number])]


GPU = {"util": 95, "power_mw": 600e3, "temp": 60, "temp_slowdown": 87, "mem_used": 60 << 30, "mem_total": 80 << 30,
       "pcie_gen": 5, "pcie_gen_max": 5, "pcie_gen_devmax": 5, "pcie_width": 16, "pcie_width_max": 16, "pstate": 0}


def gpus(*changes: Mapping[str, Any], count: int = 0, name: str = "H100") -> Table:
    """A GPU table; each of *changes* is a GPU that differs by it from a healthy one."""
    changes = changes or ({},) * count
    rows = {f"GPU-{index}": {**GPU, **change} for index, change in enumerate(changes)}
    attrs = {f"GPU-{index}": {"index": index, "name": name, "pci": f"00000000:{0x10 + index:02X}:00.0"}
             for index in range(len(changes))}
    return table(rows, attrs)


def lost(reason: str = "GPU is lost") -> dict[str, Any]:
    """A GPU of which nothing can be read."""
    return dict.fromkeys(GPU, Err(reason))


def ports(*changes: Mapping[str, Any]) -> Table:
    """A port table; each of *changes* is a port that differs by it from a healthy one."""
    usual = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    rows = {f"0000:{0x20 + index:02x}:00.0/1": {**usual, **change} for index, change in enumerate(changes)}
    attrs = {key: {"dev": f"mlx5_{index}", "port": 1, "pci": key[:-2]} for index, key in enumerate(rows)}
    return table(rows, attrs)
