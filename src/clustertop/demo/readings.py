"""One node's readings at the simulator's moment, as the probe would hand them to its encoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.demo import machine as fixed
from clustertop.demo import nccl_log
from clustertop.probe.frames import Err, Group, Table
from clustertop.probe.gpu import RELEASED
from clustertop.probe.screening import COLUMNS as SCREEN_COLUMNS

if TYPE_CHECKING:
    from clustertop.demo.faults import Placed
    from clustertop.demo.machine import Machine
    from clustertop.demo.plan import Plan
    from clustertop.demo.simulator import Simulator
    from clustertop.demo.traffic import Traffic
    from clustertop.probe.frames import Cell, Row

GROUPS = ("gpu", "pcie", "rdma", "host", "net", "sockets", "nccl", "screen")
COST_MS = {"gpu": 6.4, "pcie": 5.1, "rdma": 3.2, "host": 0.6, "net": 0.9, "sockets": 1.1, "nccl": 0.4, "screen": 12.0}
FLAP_SECONDS = 20.0
FLAP_DOWN_SECONDS = 8.0
AER_AFTER_SECONDS, NARROW_AFTER_SECONDS = 15.0, 40.0
"""Of a link whose GPU is too hot: after its fault began."""
LOST_AFTER_SECONDS = 20.0
"""Of a GPU whose link went bad first: after that."""
FATAL_AFTER_SECONDS = 30.0
"""Of a link with corrected errors: after its fault began."""
OLD_FIRMWARE = "28.36.1010"
LOST = Err("GPU is lost")
PEER_COLUMNS = ("tx_bytes", "rx_bytes", "sockets", "rtt_us", "rttvar_us", "rtt_max_us", "rttvar_max_us")
_SOCKETS = 16
"""Of a pair of nodes: two channels on each rail."""
HUNG_CALL = "nvmlDeviceGetUtilizationRates"
_NET_FIXED = fixed.net_fixed()
_AER = fixed.PCIE_COLUMNS.index("aer_cor")
_AER_FATAL = fixed.PCIE_COLUMNS.index("aer_fatal")
_LOG = fixed.PCIE_COLUMNS.index("klog_count")
_CORRECTED = ("{port}: AER: Multiple Corrected error received: {gpu}",
              "{gpu}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
              "{gpu}:    [ 6] BadTLP                (First)")  # fmt: skip
_FATAL = ("{port}: AER: Uncorrected (Fatal) error received: {gpu}",
          "{gpu}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
          "{gpu}:    [14] CmpltTO                (First)")  # fmt: skip
_PORT_DOWN = (("state", "1: DOWN"), ("phys_state", "2: Polling"), ("rate", "10 Gb/sec (4X SDR)"))
_USED = fixed.GPU_COLUMNS.index("mem_used") * fixed.GPUS
DRIVER_BYTES = 600 << 20
"""Of a GPU's memory in use, what is the driver's own."""
_WIDTHS = fixed.GPU_COLUMNS.index("pcie_width") * fixed.GPUS


@dataclass(slots=True)
class Schedule:
    """One connection's groups: their intervals, when each is read next, and their last readings."""

    every: dict[str, float]
    due: dict[str, float] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    released: object = None
    """True, or the console's time: the operator had the GPUs let go."""
    processes_until: float | None = None
    """Compute processes are listed until this moment of the demo's clock; None: nobody has asked yet."""

    def tick_seconds(self) -> float:
        """Return how often a frame is due."""
        return min(self.every.values())


class Node:
    """Reads one machine of the simulated cluster."""

    def __init__(
        self, number: int, machine: Machine, simulator: Simulator, faults: list[Placed], traffic: Traffic,
        plan: Plan,
    ) -> None:
        self.number = number
        self._traffic, self._plan = traffic, plan
        self.machine = machine
        self._simulator = simulator
        self._faults = faults
        self._old_rows = [
            (key, {**attrs, "fw": OLD_FIRMWARE} if number < fixed.COMPUTE_PORTS else attrs)
            for number, (key, attrs) in enumerate(machine.port_rows)
        ] if self._placed("old-firmware") else []  # fmt: skip

    def active(self, name: str) -> Placed | None:
        """Return the fault *name* of this node if it has begun."""
        now = self._simulator.seconds
        for one in self._faults:
            if one.name == name and now >= one.start_seconds:
                return one
        return None

    def _placed(self, name: str) -> Placed | None:
        """Return the fault *name* of this node, whenever it begins."""
        return next((one for one in self._faults if one.name == name), None)

    def _narrow(self) -> int | None:
        """Return the GPU whose link is at x8 now."""
        narrow, hot = self.active("x8") or self.active("x8-lost"), self.active("hot-x8")
        if narrow is not None:
            return narrow.device if narrow.device != self._lost() else None
        if hot is not None and self._simulator.seconds >= hot.start_seconds + NARROW_AFTER_SECONDS:
            return hot.device
        return None

    def _lost(self) -> int | None:
        """Return the GPU that is off the bus now."""
        lost, going = self.active("gpu-lost"), self.active("x8-lost")
        if lost is not None:
            return lost.device
        if going is not None and self._simulator.seconds >= going.start_seconds + LOST_AFTER_SECONDS:
            return going.device
        return None

    def update(self, schedule: Schedule, now: float) -> dict[str, Group]:
        """Read the groups that are due at *now* (the demo's clock) and return all of them."""
        at = self.machine.boot_seconds + self._simulator.seconds
        for name, seconds in schedule.every.items():
            if now < schedule.due.get(name, 0.0) - 0.02:
                continue
            schedule.due[name] = now + seconds
            before = schedule.groups.get(name)
            hung = self.active("gpu-hung") if name == "gpu" else None
            if hung is not None and before is not None:
                before.st, before.w = "hung", f"{HUNG_CALL}(GPU {hung.device})"
                continue
            if name == "gpu" and schedule.released:
                schedule.groups[name] = self._released(before, at, seconds)
                continue
            if before is not None and before.t == at:
                continue  # the cluster has not moved on: the same reading, under the same number
            count = before.n + 1 if before is not None else 1
            tables = self._read(name)
            if name == "gpu" and schedule.processes_until is not None:
                tables["process"] = self._processes(tables["gpu"], asked=now < schedule.processes_until)
            schedule.groups[name] = Group(at, seconds, tables, COST_MS[name], n=count)
        return schedule.groups

    def _released(self, before: Group | None, at: float, seconds: float) -> Group:
        tables = {}
        if before is not None and "gpu" in before.tables:
            rows, columns = self.machine.gpu_rows, fixed.GPU_COLUMNS
            cells: list[Cell] = [Err(RELEASED)] * (len(rows) * len(columns))
            tables["gpu"] = Table(rows, columns, cells)
        count = before.n + 1 if before is not None else 1
        return Group(at, seconds, tables, 0.0, "released", "", RELEASED, count)

    def _processes(self, gpus: Table, *, asked: bool) -> Table:
        rows = self.machine.process_rows if asked else []
        used = gpus.cells[_USED : _USED + len(rows)]
        cells: list[Cell] = [cell - DRIVER_BYTES if isinstance(cell, int | float) else cell for cell in used]
        return Table(rows, ["mem_used"] if asked else [], cells)

    def _read(self, name: str) -> dict[str, Table]:
        if name == "gpu":
            return {"gpu": self._gpu()}
        if name == "pcie":
            return {"pcie": self._pcie()}
        if name == "rdma":
            return {"port": self._port()}
        if name == "screen":
            cells: list[Cell] = [0, "ok", 4096, 1, 0]
            return {"screen": Table([("", {"host": self.machine.name})], list(SCREEN_COLUMNS), cells)}
        if name == "net":
            return {"link": Table(self.machine.link_rows, [], [])}
        if name == "nccl":
            return {"nccl": nccl_log.table(self.number, self._plan, self._traffic, self.machine.boot_seconds)}
        if name == "sockets":
            return {"peer": self._peers()}
        return self._host()

    def _peers(self) -> Table:
        """What TCP moved with each peer since the demo began, and with a server outside."""
        since = {"since": self.machine.boot_seconds}
        now = self._simulator.seconds
        rows: list[Row] = []
        table: list[list[Cell]] = []
        for one in self._traffic.peers(self.number):
            rtt, jitter = one.rtt_seconds * 1e6, one.rtt_variation_seconds * 1e6
            rows.append((fixed.address(one.node), dict(since)))
            table.append([int(one.sent_bytes), int(one.received_bytes), _SOCKETS, int(rtt), int(jitter),
                          int(1.2 * rtt), int(1.3 * jitter)])
        rows.append((fixed.STORAGE_ADDRESS, dict(since)))
        table.append([int(9.1e4 * now), int(4.2e4 * now), 2, 410, 24, 460, 31])
        return Table(rows, list(PEER_COLUMNS), [cell for column in zip(*table, strict=True) for cell in column])

    def _gpu(self) -> Table:
        cells: list[Cell] = self._simulator.blocks()[0][self.number].ravel().tolist()
        cells += self.machine.gpu_fixed
        narrow = self._narrow()
        if narrow is not None:
            cells[_WIDTHS + narrow] = 8
        lost = self._lost()
        if lost is not None:
            cells[lost :: fixed.GPUS] = [LOST] * len(fixed.GPU_COLUMNS)
        return Table(self.machine.gpu_rows, fixed.GPU_COLUMNS, cells)

    def _pcie(self) -> Table:
        machine = self.machine
        cells = machine.pcie_cells
        rows = len(machine.pcie_rows)
        narrow, uplink, lost = self._narrow(), self.active("x8-switch"), self._lost()
        hot, errors = self.active("hot-x8"), self.active("aer")
        if narrow is not None or uplink or lost is not None or hot or errors:
            cells = list(cells)
        if narrow is not None:
            # Both ends of the link say so.
            cells[machine.gpu_pcie[narrow]] = cells[machine.above[narrow][0]] = 8
        if hot is not None:
            age = self._simulator.seconds - hot.start_seconds - AER_AFTER_SECONDS
            cells[_AER * rows + machine.gpu_pcie[hot.device]] = int(max(age, 0.0) ** 1.5)
        if errors is not None:
            self._aer(cells, errors)
        if uplink is not None:
            cells[machine.above[uplink.device][1]] = 8
        if lost is not None:
            # All ones on the bus: the kernel prints what it makes of them.
            row = machine.gpu_pcie[lost]
            cells[row], cells[2 * rows + row] = 63, "Unknown"
        return Table(machine.pcie_rows, fixed.PCIE_COLUMNS, cells)

    def _aer(self, cells: list[Cell], fault: Placed) -> None:
        """A link that corrects errors, then a fatal one: counted by the device, and told of by the kernel's log."""
        machine, rows = self.machine, len(self.machine.pcie_rows)
        row = machine.gpu_pcie[fault.device]
        age = self._simulator.seconds - fault.start_seconds
        count, fatal = int(age / 5.0) + 1, age >= FATAL_AFTER_SECONDS
        gpu = f"nvidia {machine.pcie_rows[row][0]}"
        path = machine.pcie_rows[row][1]["path"]
        assert isinstance(path, list)
        cells[_AER * rows + row], cells[_AER_FATAL * rows + row] = count, int(fatal)
        lines = [(1, text) for text in reversed(_FATAL) if fatal] + [(count, text) for text in reversed(_CORRECTED)]
        said = "\n".join(f"{often}x {text.format(gpu=gpu, port=f'pcieport {path[-1]}')}".replace("received: nvidia ",
                         "received: ") for often, text in lines)  # fmt: skip
        at = round(machine.boot_seconds + self._simulator.seconds, 1)
        told: tuple[Cell, ...] = (sum(often for often, _ in lines), at, said)
        for column, cell in enumerate(told):
            cells[(_LOG + column) * rows + row] = cell

    def _port(self) -> Table:
        cells: list[Cell] = self._simulator.blocks()[1][self.number].ravel().tolist()
        cells += self.machine.port_fixed
        now = self._simulator.seconds
        errors = self.active("rdma-errors")
        if errors is not None:
            age = now - errors.start_seconds
            _add(cells, "c:symbol_error", errors.device, int(age * 12.0), 65535)
            _add(cells, "c:link_error_recovery", errors.device, int(age / 6.0), 255)
            _add(cells, "h:out_of_sequence", errors.device, int(age * 120.0))
        flap = self.active("port-flap")
        if flap is not None:
            turn, into = divmod(now - flap.start_seconds, FLAP_SECONDS)
            _add(cells, "c:link_downed", flap.device, int(turn) + 1, 255)
            if into < FLAP_DOWN_SECONDS:
                for column, text in _PORT_DOWN:
                    cells[_port_cell(column, flap.device)] = text
        unused = self._placed("port-unused")
        if unused is not None:
            for column, text in _PORT_DOWN:
                cells[_port_cell(column, unused.device)] = text
        old = self.active("old-firmware") is not None
        return Table(self._old_rows if old else self.machine.port_rows, fixed.PORT_COLUMNS, cells)

    def _host(self) -> dict[str, Table]:
        simulator = self._simulator
        jiffies, idle, load1, load5, load15, free, got, sent = simulator.blocks()[2][self.number]
        node: list[Cell] = [
            fixed.CPUS, int(jiffies), int(idle), round(load1, 2), round(load5, 2), round(load15, 2),
            fixed.HOST_MEMORY_BYTES, int(free), 0, 0, round(self.machine.boot_seconds + simulator.seconds, 2),
            0.0, 0.0, 0.0,
        ]  # fmt: skip
        # Storage goes by RDMA, so the kernel sees little of it on those interfaces.
        into = [int(got), int(got * 0.4), int(got * 0.37), int(got * 0.05)]
        out = [int(sent), int(sent * 0.3), int(sent * 0.28), int(got * 0.05)]
        net: list[Cell] = [*into, *out, *(value // 900 for value in into), *(value // 900 for value in out)]
        for column in _NET_FIXED:
            net += column
        return {
            "node": Table(self.machine.node_rows, fixed.NODE_COLUMNS, node),
            "net": Table(self.machine.net_rows, fixed.NET_COLUMNS, net),
        }


def _port_cell(column: str, port: int) -> int:
    return fixed.PORT_COLUMNS.index(column) * fixed.PORTS + port


def _add(cells: list[Cell], column: str, port: int, more: int, most: int = 1 << 62) -> None:
    at = _port_cell(column, port)
    before = cells[at]
    assert isinstance(before, int)
    cells[at] = min(before + more, most)
