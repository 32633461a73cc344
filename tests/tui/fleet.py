"""A fleet made by code: real frames through the real Core, with faults, for the console's tests and pictures."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.core import Core, Snapshot
from clustertop.model import LinkEvent, LinkState, NodeInfo, OwnCost, Request
from clustertop.rules.sanity import check
from clustertop.rules.spec import builtin
from clustertop.store.catalogue import SPECS
from clustertop.wire.frame import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.rules.latency import Times

GPU_MOVING = ("util", "mem_used", "power_mw", "temp", "sm_mhz")
GPU_FIXED = ("mem_total", "power_limit_mw", "temp_slowdown", "temp_shutdown", "pstate", "pcie_gen", "pcie_width",
             "pcie_gen_max", "pcie_gen_devmax", "pcie_width_max", "reasons", "ecc_unc")
PORT_MOVING = ("c:port_xmit_data", "c:port_rcv_data", "c:symbol_error", "c:link_downed", "h:out_of_sequence",
               "c:port_xmit_wait")
HOST_MOVING = ("cpu_total", "cpu_idle", "load1", "mem_available", "uptime")
START = 1000.0
WALL = 1_780_000_000.0


@dataclass
class Node:
    """What one machine is at the moment; tests change it as they like."""

    number: int
    gpus: int = 8
    ports: int = 8
    busy: float = 0.93
    width: dict[int, int] = field(default_factory=dict)
    """GPU index to lanes at the bridge above it."""
    lost: set[int] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)
    hot: set[int] = field(default_factory=set)
    idle: set[int] = field(default_factory=set)
    down: set[int] = field(default_factory=set)
    soft: dict[int, int] = field(default_factory=dict)
    """Port to soft errors a second."""
    hard: dict[int, int] = field(default_factory=dict)
    hung: str = ""
    hung_at: float = 0.0
    silent: bool = False
    still: bool = False
    """Nothing changes: the frames only say that the node lives."""
    name: str = "NVIDIA H100 80GB HBM3"
    facts: dict[str, object] = field(default_factory=dict)
    jobs: list[str] | None = None
    """Slurm jobs; None: the node does not say."""
    released: bool = False
    processes: list[dict[str, object]] | None = None
    """Compute processes, each with its GPU's index under ``gpu``; None: nobody asked."""
    process_error: str = ""


class FleetSource:
    """A ``Source`` over a fleet of nodes that tests move on by hand."""

    def __init__(self, nodes: int = 32, racks: int = 4, seed: int = 1, names: list[str] | None = None) -> None:
        self._random = random.Random(seed)
        per_rack = max(1, -(-nodes // racks))
        names = names or [f"gpu-{number + 1:03d}" for number in range(nodes)]
        self.infos = [NodeInfo(name, rack=f"rack-{chr(97 + number // per_rack % 26)}{number // per_rack // 26 or ''}",
                               leaf=f"leaf-{number // per_rack // 2 + 1}", groups=("train",))
                      for number, name in enumerate(names)]
        rules = builtin()
        check(rules, {spec.name: spec for spec in SPECS})
        self.core = Core(self.infos, rules)
        self.nodes = [Node(number) for number in range(len(self.infos))]
        self.now = START
        self.title = "demo"
        self.notes: tuple[str, ...] = ()
        self.asked: list[Request] = []
        self.live = True
        self.wished: set[int] = set()
        self._sequence = [0] * len(self.infos)
        self._counters: list[dict[tuple[int, str], float]] = [{} for _ in self.infos]
        self._last: list[dict[str, object] | None] = [None] * len(self.infos)
        self._reading: dict[tuple[int, str], int] = {}
        self._base = [0] * len(self.infos)
        self.up: set[int] = set()

    # -- Source --------------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest moment."""
        return self.core.snapshot

    def cost(self) -> OwnCost:
        """A plausible cost."""
        return OwnCost(0.034, 71 * 2**20)

    def released(self, node: int) -> bool:
        """Whether it was last asked to let go."""
        return node in self.wished

    origins: Mapping[str, Mapping[str, str]] = {}
    times: Times | None = None

    def evaluate(self) -> None:
        """Judge the same moment again."""
        self.core.tick(self.now, self.wall)

    def request(self, request: Request) -> None:
        """Keep the request."""
        self.asked.append(request)
        if request.node is not None and request.body.get("do") in {"release", "take"}:
            (self.wished.add if request.body["do"] == "release" else self.wished.discard)(request.node)

    # -- moving on -----------------------------------------------------------------------------------------------

    def link(self, number: int, state: LinkState, reason: str = "") -> None:
        """Change the link of a node."""
        self.core.on_link(LinkEvent(number, self.now, state, "tcp", reason), self.wall)
        (self.up.add if state == LinkState.UP else self.up.discard)(number)

    def connect(self) -> None:
        """Bring every link up."""
        for number in range(len(self.nodes)):
            self.link(number, LinkState.UP)

    @property
    def wall(self) -> float:
        """Wall clock that goes with :attr:`now`."""
        return WALL + self.now - START

    def tick(self, seconds: float = 1.0) -> None:
        """One second: every node that is up sends a frame, then the core is evaluated."""
        self.now += seconds
        for node in self.nodes:
            if node.number in self.up and not node.silent:
                raw = json.dumps(self.frame(node)).encode()
                self.core.on_frame(node.number, self.now - 0.02 * (node.number % 20), self.wall, decode(raw), raw)
        self.core.tick(self.now, self.wall)

    def run(self, ticks: int) -> None:
        """Several seconds."""
        for _ in range(ticks):
            self.tick()

    def full(self, number: int) -> None:
        """The node's next frame is a full one (its rows or fixed columns changed)."""
        self._base[number] = 0

    # -- frames --------------------------------------------------------------------------------------------------

    def frame(self, node: Node) -> dict[str, object]:
        """The node's next frame."""
        at = node.number
        self._sequence[at] += 1
        full = self._base[at] == 0
        if full:
            self._base[at] = self._sequence[at]
        still = node.still and not full and self._last[at] is not None
        groups = self._last[at] if still else {name: make(node, full) for name, make in (
            ("gpu", self._gpu), ("rdma", self._rdma), ("host", self._host), ("pcie", self._pcie))}
        assert groups is not None
        if not still:
            self._last[at] = groups
        out: dict[str, object] = {
            "v": 1, "q": self._sequence[at], "b": self._base[at], "t": self.now + 5000, "w": self.wall,
            "m": {"cpu": 0.004 * self._sequence[at] + 0.0001 * at, "rss": 21e6, "nvml": 0.006}, "g": groups,
        }
        if full:
            out["h"] = {"host": self.infos[at].name, "kernel": "5.15.0-118-generic", "boot_id": f"b{at}",
                        "os": "Ubuntu 22.04.4 LTS", "driver": "550.90.07", "cuda": "12.4", "python": "3.10.12",
                        "arch": "x86_64", **node.facts}
        return out

    def _part(
        self, node: Node, name: str, interval: float, cost: float, tables: dict[str, object]
    ) -> dict[str, object]:
        key = (node.number, name)
        if node.hung == name:
            node.hung_at = node.hung_at or self.now
            return {"t": node.hung_at + 4999, "iv": interval, "ms": cost, "st": "hung",
                    "w": "nvmlDeviceGetPowerUsage GPU 3", "n": self._reading.get(key, 0), "tb": {}}
        self._reading[key] = self._reading.get(key, 0) + 1
        return {"t": self.now + 5000, "iv": interval, "ms": cost, "st": "ok", "n": self._reading[key], "tb": tables}

    def _gpu(self, node: Node, full: bool) -> dict[str, object]:
        rng, columns = self._random, {}
        listed = [gpu for gpu in range(node.gpus) if gpu not in node.missing]
        rows = [{"k": f"GPU-{node.number:04x}-{gpu}", "a": {
            "index": gpu, "pci": f"00000000:{0x10 + gpu:02X}:00.0", "name": node.name}} for gpu in listed]
        for name in GPU_MOVING + GPU_FIXED:
            columns[name] = [self._gpu_cell(node, gpu, name, rng) for gpu in listed]
        moving = len(columns) if node.released else len(GPU_MOVING)
        tables: dict[str, object] = {"gpu": _table(rows, columns, moving, full)}
        if node.processes is not None:
            listed = [{"k": f"GPU-{node.number:04x}-{one['gpu']}/{one['pid']}", "a": {
                **{name: value for name, value in one.items() if name != "used"},
                "gpu": f"GPU-{node.number:04x}-{one['gpu']}"}} for one in node.processes]
            tables["process"] = _table(listed, {"mem_used": [one.get("used", 2**30) for one in node.processes]}, 1, full)
            tables["process"]["e"] = node.process_error
        part = self._part(node, "gpu", 1.0, 6.0, tables)
        if node.released:
            part |= {"st": "released", "e": "released by the operator"}
        return part

    def _gpu_cell(self, node: Node, gpu: int, name: str, rng: random.Random) -> float | str:
        if node.released:
            return "!released by the operator"
        if gpu in node.lost:
            return "!GPU is lost"
        load = 0.03 if gpu in node.idle else min(1.0, max(0.0, node.busy + rng.gauss(0, 0.035)))
        if name == "util":
            return round(100 * load)
        if name == "temp":
            return 84 if gpu in node.hot else round(34 + 28 * load + gpu % 4 + rng.random() * 2)
        if name == "power_mw":
            return round(1000 * (95 + 560 * load + rng.random() * 12))
        if name == "mem_used":
            return 61 * 2**30 + rng.randrange(2**28)
        if name == "sm_mhz":
            return 1755 if load > 0.5 else 345
        width = node.width.get(gpu, 16)
        return {"mem_total": 80 * 2**30, "power_limit_mw": 700_000, "temp_slowdown": 87, "temp_shutdown": 92,
                "pstate": 0, "pcie_gen": 5, "pcie_width": width, "pcie_gen_max": 5, "pcie_gen_devmax": 5,
                "pcie_width_max": 16, "reasons": 0, "ecc_unc": 0}[name]

    def _count(self, node: Node, port: int, name: str, by: float) -> float:
        held = self._counters[node.number]
        held[port, name] = held.get((port, name), 1000.0 if "data" in name else 0.0) + by
        return held[port, name]

    def _rdma(self, node: Node, full: bool) -> dict[str, object]:
        rng, rows, columns = self._random, [], {}
        columns = {name: [] for name in (*PORT_MOVING, "state", "phys_state", "rate")}
        for port in range(node.ports):
            rows.append({"k": f"0000:{0x40 + port:02x}:00.0/1", "a": {
                "dev": f"mlx5_{port}", "port": 1, "pci": f"0000:{0x40 + port:02x}:00.0", "link_layer": "InfiniBand",
                "hca": "MT4129", "fw": "28.39.1002", "netdev": f"ib{port}"}})
            up = port not in node.down
            traffic = rng.uniform(4e9, 9e9) if up and node.busy > 0.5 else 0
            columns["c:port_xmit_data"].append(self._count(node, port, "xmit_data", traffic))
            columns["c:port_rcv_data"].append(self._count(node, port, "rcv_data", traffic * 0.98))
            columns["c:symbol_error"].append(self._count(node, port, "symbol", node.soft.get(port, 0)))
            columns["c:link_downed"].append(self._count(node, port, "downed", node.hard.get(port, 0)))
            columns["h:out_of_sequence"].append(self._count(node, port, "oos", 2 * node.soft.get(port, 0)))
            columns["c:port_xmit_wait"].append(self._count(node, port, "wait", rng.randrange(3)))
            columns["state"].append("=4: ACTIVE" if up else "=1: DOWN")
            columns["phys_state"].append("=5: LinkUp" if up else "=2: Polling")
            columns["rate"].append("=400 Gb/sec (4X NDR)" if up else "=10 Gb/sec (4X SDR)")
        return self._part(node, "rdma", 1.0, 3.0, {"port": _table(rows, columns, len(columns), full)})

    def _host(self, node: Node, full: bool) -> dict[str, object]:
        rng = self._random
        total = self._count(node, -1, "jiffies", 19200)
        idle = self._count(node, -1, "idle", 19200 * (0.8 + rng.random() * 0.05))
        values: dict[str, list[float | str]] = {
            "cpu_total": [total], "cpu_idle": [idle], "load1": [round(22 + rng.random() * 6, 2)],
            "mem_available": [1.4e12 + rng.random() * 1e10], "uptime": [86400 * 12 + self.now],
            "ncpu": [192], "mem_total": [2.1e12], "psi_cpu": [0.4], "psi_mem": [0.0], "psi_io": [1.2]}
        receive = self._count(node, -1, "rx", rng.uniform(1e6, 4e6))
        send = self._count(node, -1, "tx", rng.uniform(1e6, 4e6))
        net: dict[str, list[float | str]] = {
            "rx_bytes": [receive, 10], "tx_bytes": [send, 10], "rx_errors": [0, 0], "tx_errors": [0, 0],
            "rx_dropped": [0, 0], "speed_mbps": [25000, "!EINVAL"], "mtu": [9000, 65536],
            "operstate": ["=up", "=unknown"]}
        nets = [{"k": "0000:05:00.0/ens5f0np0", "a": {"name": "ens5f0np0", "phys": True}},
                {"k": "lo", "a": {"name": "lo", "phys": False}}]
        return self._part(node, "host", 1.0, 1.5, {
            "node": _table([{"k": "", "a": {} if node.jobs is None else {"jobs": node.jobs}}], values, len(HOST_MOVING), full), "net": _table(nets, net, 2, full)})

    def _pcie(self, node: Node, full: bool) -> dict[str, object]:
        rows: list[dict[str, object]] = []
        columns: dict[str, list[float | str]] = {
            name: [] for name in ("cur_width", "max_width", "cur_speed", "max_speed", "aer_cor", "aer_nonfatal",
                                  "aer_fatal")}

        def add(key: str, cls: str, name: str, path: list[str], width: int, speed: str = "=32.0 GT/s PCIe") -> None:
            rows.append({"k": key, "a": {"class": cls, "vendor": "0x10de" if cls == "0x030200" else "0x15b3",
                                         "device": "0x2330", "subsystem": "", "driver": "nvidia", "path": path,
                                         "name": name}})
            for column, cell in zip(columns, (f"={width}", "=16", speed, "=32.0 GT/s PCIe", 0, 0, 0), strict=True):
                columns[column].append(cell)

        for gpu in range(node.gpus):
            bus, bridge = f"0000:{0x10 + gpu:02x}:00.0", f"0000:{0x80 + gpu:02x}:01.0"
            if gpu not in node.missing:
                add(bus, "0x030200", "", [bridge], 16)
            add(bridge, "0x060400", "", [], node.width.get(gpu, 16))
        for port in range(node.ports):
            add(f"0000:{0x40 + port:02x}:00.0", "0x020700", f"mlx5_{port}", [f"0000:{0x90 + port:02x}:01.0"], 16)
            add(f"0000:{0x90 + port:02x}:01.0", "0x060400", "", [], 16)
        return self._part(node, "pcie", 5.0, 9.0, {"pcie": _table(rows, columns, len(columns), full)})


def _table(
    rows: list[dict[str, object]], columns: dict[str, list[float | str]], moving: int, full: bool
) -> dict[str, object]:
    """One table's part: all of it, or the first *moving* columns."""
    names = list(columns) if full else list(columns)[:moving]
    cells = [cell for name in names for cell in columns[name]]
    runs: list[int] = []
    numbers: list[float] = []
    texts: list[str] = []
    places: list[int] = []
    for place, cell in enumerate(cells):
        if isinstance(cell, str):
            places.append(place)
            texts.append(cell)
            continue
        numbers.append(cell)
        if runs and runs[-2] + runs[-1] == place:
            runs[-1] += 1
        else:
            runs += [place, 1]
    out: dict[str, object] = {"i": runs, "x": numbers, "j": places, "s": texts}
    if full:
        out |= {"r": rows, "c": names}
    return out


def faulty(nodes: int = 32, ticks: int = 30) -> FleetSource:
    """A fleet in which much is wrong: what the screens are looked at with."""
    source = FleetSource(nodes)
    source.connect()
    source.run(3)
    put = source.nodes
    put[2].width = {3: 8}
    put[2].soft = {1: 40}
    put[5].lost = {6}
    put[9].missing = {1}
    put[11].hot = {4, 5}
    put[13].down = {2}
    put[14].hard = {5: 1}
    put[17].hung = "gpu"
    put[20].silent = True
    put[22].idle = {0, 1, 2, 3, 4, 5, 6, 7}
    for number in range(24, 28):
        put[number].busy = 0.4
    put[29].gpus, put[29].ports = 0, 2
    source.link(7, LinkState.UNREACHABLE, "no answer from 10.1.4.8 port 22 within 10 s (stage tcp)")
    source.link(30, LinkState.HOST_KEY_CHANGED, "the host key of gpu-031 is not the one in known_hosts")
    source.link(31, LinkState.CONNECTING)
    for number in (2, 5, 9, 13, 29):
        source.full(number)
    source.run(ticks)
    return source
