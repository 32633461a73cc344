"""Scenario files: readings over time in, transitions out. What a rule does, as a file that can be read and played.

A scenario is TOML. Nodes have healthy devices; ``[[at]]`` changes what they read from a second on; ``expect`` is every
transition that comes of it, exactly. The readings travel as frames, as those of real nodes do::

    about = "a GPU near its slowdown limit"
    end = 20
    have = { gpu = ["GPU-0", "GPU-1"] }
    expect = [
      "6 raised gpu_temperature warning gpu:n1:GPU-0",
      "13 cleared gpu_temperature warning gpu:n1:GPU-0",
    ]

    [[at]]
    second = 5
    set.gpu.GPU-0 = { temp = 84 }

    [[at]]
    second = 10
    set.gpu.GPU-0 = { temp = 60 }

A value is a number, a text, ``"+3"`` for a count that grows by 3 each second from then on, or ``"!why"`` for one that
cannot be read. What is behind a transition in brackets: ``(quiet)``, nobody has to be told.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import msgspec

from clustertop.core import Core
from clustertop.files import read_bounded
from clustertop.hosts import NotationError, expand_names
from clustertop.memory import Devices
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.places import Device, Feed, Site, Supply
from clustertop.poll.device_frames import encoded, table_part
from clustertop.poll.device_frames import frame as device_frame
from clustertop.probe.frames import Encoder, Err, Group, Table
from clustertop.rules.sanity import check
from clustertop.rules.spec import Rule, builtin
from clustertop.store.catalogue import SPECS
from clustertop.wire.frame import GroupPart, Row, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from clustertop.model import Attr, Transition
    from clustertop.probe.frames import Cell
    from clustertop.wire.frame import Frame

ZERO = 1000.0
"""Our clocks at second 0; the node's is half of it."""
MAX_BYTES = 16 << 20
MOST_SECONDS = 100_000
GROUP_OF = {"gpu": "gpu", "pcie": "pcie", "port": "rdma", "node": "host", "net": "host", "link": "net", "disk": "disk",
            "screen": "screen", "nccl": "nccl", "peer": "sockets"}
HEALTHY: dict[str, dict[str, float | str]] = {
    "gpu": {"util": 95, "power_mw": 600e3, "power_limit_mw": 700e3, "temp": 60, "temp_slowdown": 87,
            "mem_used": 60 << 30, "mem_total": 80 << 30, "pcie_gen": 5, "pcie_gen_max": 5, "pcie_gen_devmax": 5,
            "pcie_width": 16, "pcie_width_max": 16, "pstate": 0, "reasons": 0, "ecc_unc": 0, "remap_pending": 0,
            "remap_failed": 0, "persistence": 1, "retired_pending": 0},
    "pcie": {"cur_width": 16, "max_width": 16, "cur_speed": "32.0 GT/s PCIe", "max_speed": "32.0 GT/s PCIe",
             "aer_cor": 0, "aer_nonfatal": 0, "aer_fatal": 0},
    "port": {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"},
    "node": {"ncpu": 64, "cpu_total": 0, "cpu_idle": 0, "mem_total": 1 << 40, "mem_available": 1 << 39, "uptime": 1e6},
    "net": {"mtu": 9000, "operstate": "up"},
    "link": {},
    "disk": {"size": 1 << 40, "free": 1 << 39, "available": 1 << 39, "inodes": 1 << 26, "inodes_free": 1 << 25},
    "screen": {"dns_seconds": 0, "dns": "ok", "somaxconn": 4096, "slow_start_after_idle": 1, "monitors": 0},
    "nccl": {"ranks": 16, "local_ranks": 8, "complete": 8, "init": 2.5, "init_by": 0, "init_rank": 3, "init_time": 500,
             "pending": 0, "channels": 48, "network_channels": 16, "socket_channels": 0, "direct_channels": 16,
             "running": 8, "other_hosts": 0},
    "peer": {"tx_bytes": 0, "rx_bytes": 0, "sockets": 1},
}
"""What a device reads where the scenario says nothing else: raw columns of the probe."""

DEVICE_HEALTHY: dict[str, dict[str, float | str]] = {
    "pdu": {}, "bmc": {"watts": 800, "host": "on", "redundancy": "full"}, "psu": {"state": "ok"},
    "uplink": {"rx_rate": 1e9, "tx_rate": 1e9, "speed": 400e9, "up": 1, "discard_rate": 0, "pause_rate": 0},
}
"""The same of the tables of devices."""
DEVICE_SECONDS = 10
"""Between two readings of a device."""

Value = float | int | str


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"set_": "set"}):
    """From *second* on it is so."""

    second: int
    node: str = ""
    """Which nodes, folded; empty: all."""
    device: str = ""
    """Which devices, folded: then ``set``, ``gone``, ``back``, ``link`` and ``silent`` are about them."""
    set_: dict[str, dict[str, dict[str, Value]]] = {}
    """Table, device, raw column, value."""
    gone: tuple[str, ...] = ()
    """Devices that are no longer listed."""
    back: tuple[str, ...] = ()
    link: Literal["", "up", "unreachable", "auth_failed"] = ""
    reason: str = ""
    silent: bool | None = None
    """The link stands and nothing comes."""
    serial: str = ""
    """What the device says its serial number is, from now on."""
    boot: str = ""
    """The node booted: its boot id from now on."""
    group: dict[str, dict[str, Value]] = {}
    """Group, then ``st`` (``ok``, ``error``, ``hung``, ``off``), ``e``, ``w``, ``ms``, ``iv``."""
    still: tuple[str, ...] = ()
    """Groups that are no longer read, though frames arrive."""
    moving: tuple[str, ...] = ()
    """Groups that are read again."""
    clock: float | None = None
    """The node's wall clock is so many seconds ahead of ours."""
    ack: str = ""
    """Somebody acknowledges this alert: rule and thing, as ``expect`` has them. Said before this second's readings."""
    dismiss: str = ""
    silence: dict[str, float] = {}
    """Node, rack or thing, and for how many seconds."""
    restart: bool = False
    """The console is started again, with what it remembers."""
    paused: int = 0
    """The console is stopped for so many seconds."""


class FeedOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feed of a scenario."""

    name: str
    rating: float | None = None
    volts: float | None = None
    phases: int = 1
    pair: str = ""
    rack: str = ""
    pdu: str = ""
    """Its PDU, which is a device of the scenario by being named."""
    part: str = ""
    nodes: str = ""
    """Which hang on it, folded."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario file."""

    about: str
    end: int
    expect: tuple[str, ...]
    at: tuple[Change, ...] = ()
    interval: int = 1
    nodes: str = "n1"
    racks: dict[str, str] = {}
    leaves: dict[str, str] = {}
    jumps: dict[str, str] = {}
    """Jump hosts, and the nodes that are reached through each."""
    have: dict[str, tuple[str, ...]] = {}
    """Devices of each node, by table."""
    names: dict[str, dict[str, dict[str, Value | list[str]]]] = {}
    """Attributes, by table and device."""
    feeds: tuple[FeedOf, ...] = ()
    bmcs: str = ""
    """Nodes with a BMC, folded; of ``n1`` it is ``n1-bmc``."""
    pdus: dict[str, str] = {}
    """By rack: PDUs beside those that feeds name, folded."""
    switches: dict[str, str] = {}
    gpus: int | None = None
    """How many GPUs the inventory expects on each node."""
    ports: int | None = None
    """How many RDMA ports in use it expects there."""
    only: tuple[str, ...] = ()
    """The rules that hold; empty: all that ship."""
    rules: dict[str, Rule] = {}
    """Rules of its own, beside or in place of those that ship."""


class ScenarioError(ValueError):
    """A file that is no scenario: one sentence that names it."""


def load(path: str | Path) -> Scenario:
    """Read a scenario. Raises ScenarioError."""
    try:
        made = msgspec.toml.decode(read_bounded(path, MAX_BYTES), type=Scenario)
        _checked(made)
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, ValueError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} is no scenario: {error}") from None
    return made


def _checked(made: Scenario) -> None:
    if not 0 < made.end <= MOST_SECONDS or made.interval < 1:
        raise ValueError(f"end must be 1 to {MOST_SECONDS}, interval at least 1")
    said = {*made.have, *(made.names.keys() - DEVICE_HEALTHY.keys()),
            *(name for change in made.at if not change.device for name in change.set_)}
    for table in said:
        if table not in HEALTHY:
            raise ValueError(f"no table {table!r}; there are {', '.join(HEALTHY)}")
    named = {one.name for one in _site(made).devices}
    for change in made.at:
        for name in _names(change.device) if change.device else ():
            if name not in named:
                raise ValueError(f"no device {name!r}; there are {', '.join(sorted(named)) or 'none'}")
        for table in change.set_ if change.device else ():
            if table not in DEVICE_HEALTHY:
                raise ValueError(f"no table {table!r} of a device; there are {', '.join(DEVICE_HEALTHY)}")
    known = builtin()
    for name in made.only:
        if name not in known and name not in made.rules:
            raise ValueError(f"only: no rule {name!r}")
    check({**known, **made.rules}, {spec.name: spec for spec in SPECS})
    _nodes(made)


def _nodes(made: Scenario) -> list[NodeInfo]:
    def places(where: Mapping[str, str]) -> dict[str, str]:
        return {node: name for name, nodes in where.items() for node in _names(nodes)}

    racks, leaves = places(made.racks), places(made.leaves)
    return [NodeInfo(name, rack=racks.get(name, ""), leaf=leaves.get(name, "")) for name in _names(made.nodes)]


def _site(made: Scenario) -> Site:
    """The feeds and devices of a scenario."""
    feeds = tuple(
        Feed(one.name, one.rating, one.volts, one.phases, pair=one.pair, rack=one.rack, pdu=one.pdu, part=one.part,
             supplies=tuple(Supply(name) for name in (_names(one.nodes) if one.nodes else ())))
        for one in made.feeds)
    racks = {one.pdu: one.rack for one in feeds if one.pdu}
    racks.update({name: rack for rack, folded in made.pdus.items() for name in _names(folded)})
    switches = {name: rack for rack, folded in made.switches.items() for name in _names(folded)}
    every = float(DEVICE_SECONDS)
    return Site(feeds, (
        *(Device(name, "pdu", None, rack=rack, interval_seconds=every) for name, rack in racks.items()),
        *(Device(f"{name}-bmc", "bmc", None, of=name, interval_seconds=every)
          for name in (_names(made.bmcs) if made.bmcs else ())),
        *(Device(name, "switch", None, rack=rack, interval_seconds=every) for name, rack in switches.items())))


class _Device:
    """What one device reads at the moment."""

    def __init__(self, device: Device, names: Mapping[str, Mapping[str, Mapping[str, Value | list[str]]]]) -> None:
        self.kind, self._names = device.kind, names
        self.link = LinkState.UP
        self.silent = False
        self._serial = ""
        self._values: dict[str, dict[str, dict[str, Value]]] = {}
        if device.kind == "bmc":
            self._values["bmc"] = {"": dict(DEVICE_HEALTHY["bmc"])}
        self._growing: dict[tuple[str, str, str], tuple[float, float, int]] = {}
        self._gone: set[str] = set()
        self._count = 0

    def change(self, change: Change) -> None:
        for table, things in change.set_.items():
            for key, values in things.items():
                mine = self._values.setdefault(table, {}).setdefault(key, dict(DEVICE_HEALTHY[table]))
                for column, value in values.items():
                    if isinstance(value, str) and value.startswith("+"):
                        base = self._now(table, key, column, change.second)
                        self._growing[table, key, column] = (
                            base if isinstance(base, float) else 0.0, float(value), change.second)
                    else:
                        self._growing.pop((table, key, column), None)
                        mine[column] = value
        self._gone = (self._gone | set(change.gone)) - set(change.back)
        if change.silent is not None:
            self.silent = change.silent
        self._serial = change.serial or self._serial
        if change.link:
            self.link = LinkState[change.link.upper()]

    def _now(self, table: str, key: str, column: str, second: int) -> float | str | None:
        grows = self._growing.get((table, key, column))
        if grows is not None:
            return grows[0] + grows[1] * (second - grows[2])
        value = self._values[table][key].get(column)
        if isinstance(value, str):
            return value if value.startswith("!") else f"={value}"
        return None if value is None else float(value)

    def frame(self, second: int) -> Frame:
        """The device's frame of this second."""
        self._count += 1
        at = ZERO + second
        tables = {}
        for table, things in self._values.items():
            keys = [key for key in things if key not in self._gone]
            columns = dict.fromkeys(column for key in keys for column in things[key])
            columns.update(dict.fromkeys(column for name, key, column in self._growing if name == table))
            tables[table] = table_part(
                [Row(key, {"name": key, **({"kind": key.split()[0]} if table == "pdu" else {}),
                           **self._names.get(table, {}).get(key, {})}) for key in keys],
                {column: [self._now(table, key, column, second) for key in keys] for column in columns})
        part = GroupPart(at, iv=float(DEVICE_SECONDS), ms=20.0, n=self._count, tb=tables)
        facts: dict[str, Attr] = {"serial": self._serial} if self._serial else {}
        return device_frame(self._count, at, at, {self.kind: part}, facts, {})


def _names(folded: str) -> list[str]:
    try:
        return expand_names(folded)
    except NotationError as error:
        raise ValueError(str(error)) from None


class _Node:
    """What one node reads at the moment."""

    def __init__(self, made: Scenario, number: int) -> None:
        self.encoder = Encoder()
        self._address = f"10.0.{number // 200}.{number % 200 + 1}"
        """Of its interface ``eth0``; the first node has 10.0.0.1."""
        self.silent = False
        self.facts: dict[str, Attr] = {"boot_id": "b1"}
        self.groups: dict[str, dict[str, Value]] = {}
        self.gone: set[str] = set()
        self.counts: dict[str, int] = {}
        self.still: set[str] = set()
        self.read_at: dict[str, float] = {}
        self.link = LinkState.UP
        self.via = ""
        self.clock = 0.0
        self.growing: dict[tuple[str, str, str], tuple[float, float, int]] = {}
        """Table, device and column to value, growth each second, and since which second."""
        self.values: dict[str, dict[str, dict[str, Value]]] = {
            table: {key: dict(HEALTHY[table]) for key in keys} for table, keys in made.have.items()}
        self.values.setdefault("node", {"": dict(HEALTHY["node"])})
        self._names = made.names

    def change(self, change: Change) -> None:
        for table, things in change.set_.items():
            for key, values in things.items():
                mine = self.values.setdefault(table, {}).setdefault(key, dict(HEALTHY[table]))
                for column, value in values.items():
                    base = self._now(table, key, column, mine.get(column, 0), change.second)
                    self.growing.pop((table, key, column), None)
                    if isinstance(value, str) and value.startswith("+"):
                        start = float(base) if not isinstance(base, str) else 0.0
                        self.growing[table, key, column] = (start, float(value), change.second)
                    mine[column] = value
        self.gone |= set(change.gone)
        self.gone -= set(change.back)
        if change.silent is not None:
            self.silent = change.silent
        if change.boot:
            self.facts = {"boot_id": change.boot}
        self.groups.update(change.group)
        self.still |= set(change.still)
        self.still -= set(change.moving)
        if change.clock is not None:
            self.clock = change.clock

    def _now(self, table: str, key: str, column: str, value: Value, second: int) -> Value:
        """What a column reads at *second*."""
        grows = self.growing.get((table, key, column))
        return value if grows is None else grows[0] + grows[1] * (second - grows[2])

    def frame(self, second: int, interval: float) -> bytes:
        """The node's frame of this second."""
        at = ZERO / 2 + second
        groups: dict[str, Group] = {}
        for table, things in self.values.items():
            name = GROUP_OF[table]
            said = self.groups.get(name, {})
            group = groups.get(name)
            if group is None:
                read = said.get("st", "ok") in {"ok", "error"} and name not in self.still
                self.counts[name] = self.counts.get(name, 0) + read
                self.read_at[name] = at if read else self.read_at.get(name, at)
                group = groups[name] = Group(self.read_at[name], interval, {}, n=self.counts[name])
                for key, value in said.items():
                    setattr(group, key, value)
            if said.get("st", "ok") == "ok":
                group.tables[table] = self._table(table, things, second)
        made = self.encoder.encode(groups, at, ZERO + second + self.clock, {"cpu": 0.0, "rss": 2e7}, self.facts)
        return json.dumps(made).encode()

    def _table(self, table: str, things: Mapping[str, Mapping[str, Value]], second: int) -> Table:
        keys = [key for key in things if key not in self.gone]
        columns = list(dict.fromkeys(column for key in keys for column in things[key]))
        cells = [_cell(self._now(table, key, column, things[key][column], second) if column in things[key] else None)
                 for column in columns for key in keys]
        attrs = self._names.get(table, {})
        own: dict[str, Value | list[str]] = {"name": "eth0", "addresses": [self._address]} if table == "link" else {}
        return Table([(key, {**_usual(table, key), **(own if key == "eth0" else {}), **attrs.get(key, {})})
                      for key in keys], columns, cells)


def _cell(value: Value | None) -> Cell:
    return Err(value[1:]) if isinstance(value, str) and value.startswith("!") else value


def _usual(table: str, key: str) -> dict[str, Value | list[str]]:
    if table == "gpu":
        number = int("".join(char for char in key if char.isdigit()) or 0)
        return {"index": number, "name": "H100", "pci": f"00000000:{0x10 + number % 0xE0:02X}:00.0"}
    if table == "port":
        address, _, port = key.partition("/")
        return {"dev": f"mlx5_{address[5:7]}", "port": int(port or 1), "pci": address}
    if table == "net":
        return {"name": key, "phys": True}
    return {"class": "0x030000"} if table == "pcie" else {}


def run(made: Scenario) -> Iterator[Transition]:
    """Play a scenario; yields every transition. ``at - ZERO`` is the second."""
    rules = {**builtin(), **made.rules}
    if made.only:
        rules = {name: rules[name] for name in made.only}
    nodes = _nodes(made)
    vias = {node: name for name, folded in made.jumps.items() for node in _names(folded)}
    states = [_Node(made, number) for number in range(len(nodes))]
    for info, state in zip(nodes, states, strict=True):
        state.via = vias.get(info.name, "")
    site = _site(made)
    places = {one.name: _Device(one, made.names) for one in site.devices}
    owners = {one.name: len(nodes) + number for number, one in enumerate(site.devices)}
    core, devices = _console(nodes, rules, made, states, ZERO, places)
    numbers = {node.name: number for number, node in enumerate(nodes)}
    changes = sorted(made.at, key=lambda change: change.second)
    paused_until = -1
    for second in range(0, made.end + 1, made.interval):
        now = ZERO + second
        while changes and changes[0].second <= second:
            change = changes.pop(0)
            if change.restart:
                kept = devices.state()
                core, devices = _console(nodes, rules, made, states, now, places)
                devices.adopt(kept.devices)
                core.recall(kept, now, now)
                states = [_renewed(state) for state in states]
            _by_hand(core, change)
            paused_until = max(paused_until, second + change.paused if change.paused else -1)
            for name in _names(change.device) if change.device else ():
                places[name].change(change)
                if change.link:
                    core.on_link(LinkEvent(owners[name], now, places[name].link, "", change.reason), now)
            if change.device:
                continue
            for name in _names(change.node) if change.node else numbers:
                number = numbers[name]
                states[number].change(change)
                if change.link:
                    states[number].link = LinkState[change.link.upper()]
                    core.on_link(
                        LinkEvent(number, now, states[number].link, "", change.reason, states[number].via), now)
        if second < paused_until:
            continue
        for number, node in enumerate(states):
            if node.link == LinkState.UP and not node.silent:
                raw = node.frame(second, float(made.interval))
                core.on_frame(number, now, now, decode(raw), raw)
        for name, place in places.items():
            if place.link == LinkState.UP and not place.silent and second % DEVICE_SECONDS == 0:
                frame, raw = encoded(place.frame(second))
                core.on_frame(owners[name], now, now, frame, raw)
        yield from core.tick(now, now)
        devices.learn(now)


def _by_hand(core: Core, change: Change) -> None:
    """What an operator does."""
    for alert in core.snapshot.alerts if core.snapshot is not None else ():
        name = f"{alert.rule} {alert.thing.id}"
        if name == change.ack:
            core.acknowledge(alert)
        if name == change.dismiss:
            core.dismiss(alert)
    for where, seconds in change.silence.items():
        core.silence(where, "*", seconds)


def _console(
    nodes: list[NodeInfo], rules: Mapping[str, Rule], made: Scenario, states: list[_Node], now: float,
    places: Mapping[str, _Device],
) -> tuple[Core, Devices]:
    core = Core(nodes, rules, expect_gpus=lambda node: made.gpus, expect_ports=lambda node: made.ports,
                site=_site(made))
    for number, place in enumerate(places.values()):
        core.on_link(LinkEvent(len(nodes) + number, now, place.link), now)
    for number, state in enumerate(states):
        core.on_link(LinkEvent(number, now, state.link, via=state.via), now)
    return core, Devices(core)


def _renewed(node: _Node) -> _Node:
    """The node's probe is started again: its next frame is a full one."""
    node.encoder = Encoder()
    return node


def line(change: Transition) -> str:
    """A transition as ``expect`` has it: second, kind, rule, severity, thing."""
    quiet = " (quiet)" if change.quiet else ""
    return f"{change.at - ZERO:g} {change.kind} {change.rule} {change.severity.name.lower()} {change.thing.id}{quiet}"
