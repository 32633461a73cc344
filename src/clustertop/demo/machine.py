"""What stands in a demo node: eight H100 SXM behind four PCIe switches, their NICs, drives and counters.

Rows and columns as the probe sends them (``docs/wire.md``). Everything here is fixed for the life of a node.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.demo.plan import owner, slurm_id
from clustertop.probe.frames import Err
from clustertop.signals.rdma_counters import files_of

if TYPE_CHECKING:
    from clustertop.demo.plan import PlannedNode
    from clustertop.probe.frames import Attr, Cell, Row

GPUS = 8
COMPUTE_PORTS = 8
PORTS = 10
"""Eight NDR ports for training, two HDR ports for storage."""
CPUS = 224
GPU_MEMORY_BYTES = 85_520_809_984
HOST_MEMORY_BYTES = 2_164_195_454_976
SLOWDOWN_CELSIUS = 87
SM_MHZ_MAX = 1980

GPU_MOVING = ("util", "mem_util", "mem_used", "power_mw", "temp", "temp_mem", "sm_mhz", "reasons")
GPU_FIXED = (
    "mem_total", "mem_mhz", "pstate", "pcie_gen", "pcie_width", "pcie_replays", "ecc_cor", "ecc_unc", "power_limit_mw",
    "temp_slowdown", "temp_shutdown", "temp_mem_max", "temp_margin", "pcie_gen_max", "pcie_gen_devmax",
    "pcie_width_max",
    "sm_mhz_max", "bar1_total", "persistence", "mig", "ecc_mode", "remap_cor", "remap_unc", "remap_pending",
    "remap_failed", "power_instant_mw", "ecc_cor_all", "ecc_unc_all", "retired_cor", "retired_unc", "retired_pending",
    "nvlink_links", "nvlink_up", "nvlink_crc_flit", "nvlink_crc_data", "nvlink_replays", "nvlink_recoveries", "fan",
    "mig_instances", "xid", "xid_time", "xid_count", "xids",
)  # fmt: skip
GPU_COLUMNS = [*GPU_MOVING, *GPU_FIXED]
PCIE_COLUMNS = [
    "cur_width", "max_width", "cur_speed", "max_speed", "aer_cor", "aer_nonfatal", "aer_fatal", "klog_count",
    "klog_time", "klog", "klog_more",
]  # fmt: skip
PORT_MOVING = (
    "c:port_xmit_data", "c:port_rcv_data", "c:port_xmit_packets", "c:port_rcv_packets", "c:unicast_xmit_packets",
    "c:unicast_rcv_packets", "c:port_xmit_wait", "h:rx_write_requests", "h:rx_read_requests",
)  # fmt: skip
PORT_FIXED = tuple(name for name in ("state", "phys_state", "rate", *files_of("mlx5")) if name not in PORT_MOVING)
"""Of the counters that the console knows, those of mlx5."""
PORT_COLUMNS = [*PORT_MOVING, *PORT_FIXED]
NODE_COLUMNS = [
    "ncpu", "cpu_total", "cpu_idle", "load1", "load5", "load15", "mem_total", "mem_available", "swap_total",
    "swap_free", "uptime", "psi_cpu", "psi_mem", "psi_io",
]  # fmt: skip
NET_COLUMNS = [
    "rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
    "carrier_changes", "speed_mbps", "mtu", "operstate",
]  # fmt: skip
NETS = ("eno1", "enp41s0f0np0", "enp41s0f1np1", "lo")
RAIL_NET = "ib0"
"""The interface whose address NCCL's sockets use: IP over InfiniBand, so its bytes are its port's."""
STORAGE_ADDRESS = "10.64.0.10"
"""A server that is in no rack map: logs and metrics go there."""

GEN5, GEN4, GEN1 = "32.0 GT/s PCIe", "16.0 GT/s PCIe", "2.5 GT/s PCIe"
_ROOTS = (0x15, 0x3A, 0x84, 0xC1)
"""Bus of the root port above each switch."""
_STORAGE_ROOT = 0x28


@dataclass(slots=True)
class Machine:
    """One node's fixed parts. Cells are column-major, as in :class:`clustertop.probe.frames.Table`."""

    name: str
    facts: dict[str, Attr]
    boot_seconds: float
    """The node's monotonic clock when the demo's is 0."""
    node_rows: list[Row] = field(default_factory=list)
    process_rows: list[Row] = field(default_factory=list)
    """One compute process on each GPU, where a job runs."""
    gpu_rows: list[Row] = field(default_factory=list)
    gpu_fixed: list[Cell] = field(default_factory=list)
    pcie_rows: list[Row] = field(default_factory=list)
    pcie_cells: list[Cell] = field(default_factory=list)
    port_rows: list[Row] = field(default_factory=list)
    port_fixed: list[Cell] = field(default_factory=list)
    net_rows: list[Row] = field(default_factory=list)
    link_rows: list[Row] = field(default_factory=list)
    gpu_pcie: list[int] = field(default_factory=list)
    """Row of each GPU in the PCIe table."""
    above: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each GPU: the rows of the switch's port above it, and of the switch's uplink."""


def address(number: int, net: int = 100) -> str:
    """The address of node *number* in network 10.*net*."""
    return f"10.{net}.{number // 250}.{number % 250 + 1}"


def build(node: PlannedNode, seed: int, number: int = 0) -> Machine:
    """Return the machine called *node*, the plan's *number*; the same for the same seed."""
    rng = random.Random(f"{seed}/machine/{node.name}")  # noqa: S311 - a repeatable choice, not a secret
    facts: dict[str, Attr] = {
        "host": node.name, "kernel": "5.15.0-1063-nvidia", "boot_id": str(_uuid(rng)), "os": "Ubuntu 22.04.5 LTS",
        "python": "3.10.12", "arch": "x86_64", "driver": "550.127.08", "cuda": "12.4", "nvml": "12.550.127.08",
        "xid": "NVML events", "kernel_log": "read", "net": "netlink (pyroute2)", "sockets": "sock_diag",
    }  # fmt: skip
    machine = Machine(node.name, facts, round(rng.uniform(3e5, 4e6), 3))
    idle = node.job < 0
    machine.node_rows = [("", {"jobs": [] if idle else [slurm_id(node.job)]})]
    _pcie(machine, idle=idle)
    _gpus(machine, rng, idle=idle)
    if not idle:
        _processes(machine, node)
    _ports(machine, rng)
    _nets(machine, number)
    return machine


def _pcie(machine: Machine, *, idle: bool) -> None:
    found: dict[str, tuple[dict[str, Attr], tuple[Cell, ...]]] = {}
    speed = GEN1 if idle else GEN5

    def add(key: str, path: list[str], ids: tuple[str, str, str, str], driver: str, numa: int, width: int = 16,
            now: str = GEN5, most: str = GEN5, name: str = "") -> str:  # fmt: skip
        kind, vendor, device, subsystem = ids
        attrs: dict[str, Attr] = {"path": list(path), "class": kind, "vendor": vendor, "device": device,
                                  "subsystem": subsystem, "driver": driver, "numa": numa}  # fmt: skip
        if name:
            attrs["name"] = name
        found[key] = (attrs, (width, width, now, most, 0, 0, 0, 0, None, None, None))
        return key

    root_ids = ("0x060400", "0x8086", "0x352a", "0x8086:0x0000")
    switch_ids = ("0x060400", "0x1000", "0xc030", "0x1000:0x100b")
    for number, bus in enumerate(_ROOTS):
        numa = number // 2
        root = add(f"0000:{bus:02x}:01.0", [], root_ids, "pcieport", numa)
        up = add(f"0000:{bus + 1:02x}:00.0", [root], switch_ids, "pcieport", numa)
        for slot in range(5):
            drive = slot == 4
            gpu = slot in {0, 2}
            down = add(f"0000:{bus + 2:02x}:{slot:02x}.0", [up, root], switch_ids, "pcieport", numa,
                       4 if drive else 16, GEN4 if drive else speed if gpu else GEN5)  # fmt: skip
            path = [down, up, root]
            key = f"0000:{bus + 3 + slot:02x}:00.0"
            if drive:
                add(key, path, ("0x010802", "0x144d", "0xa824", "0x144d:0xa801"), "nvme", numa, 4, GEN4, GEN4,
                    f"nvme{number}")  # fmt: skip
            elif gpu:
                add(key, path, ("0x030200", "0x10de", "0x2330", "0x10de:0x16c1"), "nvidia", numa, now=speed)
            else:
                port = number * 2 + slot // 2
                add(key, path, ("0x020700", "0x15b3", "0x1021", "0x15b3:0x0041"), "mlx5_core", numa, name=f"ib{port}")
    root = add(f"0000:{_STORAGE_ROOT:02x}:01.0", [], root_ids, "pcieport", 0)
    for function in range(2):
        add(f"0000:{_STORAGE_ROOT + 1:02x}:00.{function}", [root],
            ("0x020000", "0x15b3", "0x101d", "0x15b3:0x0016"), "mlx5_core", 0, 16, GEN4, GEN4,
            NETS[1 + function])  # fmt: skip
    keys = sorted(found)
    machine.pcie_rows = [(key, found[key][0]) for key in keys]
    machine.pcie_cells = [found[key][1][column] for column in range(len(PCIE_COLUMNS)) for key in keys]
    machine.gpu_pcie = [row for row, key in enumerate(keys) if found[key][0]["class"] == "0x030200"]
    for gpu_number, row in enumerate(machine.gpu_pcie):
        hops = found[keys[row]][0]["path"]
        assert isinstance(hops, list)
        machine.above[gpu_number] = (keys.index(hops[0]), keys.index(hops[1]))


def _gpus(machine: Machine, rng: random.Random, *, idle: bool) -> None:
    for index, row in enumerate(machine.gpu_pcie):
        key = f"GPU-{_uuid(rng)}"
        address = machine.pcie_rows[row][0]
        machine.gpu_rows.append((key, {
            "index": index, "uuid": key, "pci": f"0000{address}".upper(), "name": "NVIDIA H100 80GB HBM3",
            "serial": f"165{rng.randrange(10**10):010d}", "minor": index,
        }))  # fmt: skip
    fixed: dict[str, Cell] = {
        "mem_total": GPU_MEMORY_BYTES,
        "mem_mhz": 2619, "pstate": 0, "pcie_gen": 1 if idle else 5, "pcie_width": 16, "pcie_replays": 0,
        "ecc_cor": 0, "ecc_unc": 0, "power_limit_mw": 700_000, "temp_slowdown": SLOWDOWN_CELSIUS,
        "temp_shutdown": 92, "temp_mem_max": 95, "pcie_gen_max": 5, "pcie_gen_devmax": 5, "pcie_width_max": 16,
        "sm_mhz_max": SM_MHZ_MAX, "bar1_total": 137_438_953_472, "persistence": 1, "mig": 0, "ecc_mode": 1,
        "remap_cor": 0, "remap_unc": 0, "remap_pending": 0, "remap_failed": 0, "ecc_cor_all": 0, "ecc_unc_all": 0,
        "nvlink_links": 18, "nvlink_up": 18, "nvlink_crc_flit": 0, "nvlink_crc_data": 0, "nvlink_replays": 0,
        "nvlink_recoveries": 0, "mig_instances": 0, "xid": 0, "xid_time": None, "xid_count": 0, "xids": "",
    }  # fmt: skip
    for column in ("temp_margin", "power_instant_mw", "retired_cor", "retired_unc", "retired_pending", "fan"):
        fixed[column] = Err("Not Supported")
    machine.gpu_fixed = [fixed[column] for column in GPU_FIXED for _ in range(GPUS)]


def _processes(machine: Machine, node: PlannedNode) -> None:
    user, command = owner(node.job)
    for index, (key, _) in enumerate(machine.gpu_rows):
        pid = 21_400 + 37 * index
        machine.process_rows.append((f"{key}/{pid}", {
            "gpu": key, "pid": pid, "user": user, "command": f"{command} --local-rank {index}",
            "job": slurm_id(node.job), "job_kind": "slurm",
        }))  # fmt: skip


def _ports(machine: Machine, rng: random.Random) -> None:
    nics = [(key, attrs) for key, attrs in machine.pcie_rows if attrs["class"] in {"0x020700", "0x020000"}]
    # Compute ports first, in the order of their switches; the storage ports last.
    nics.sort(key=lambda row: (row[1]["class"] != "0x020700", row[0]))
    for number, (key, attrs) in enumerate(nics):
        compute = attrs["class"] == "0x020700"
        machine.port_rows.append((f"{key}/1", {
            "dev": f"mlx5_{number}", "port": 1, "pci": key, "driver": "mlx5_core",
            "link_layer": "InfiniBand" if compute else "Ethernet", "netdev": attrs["name"],
            "hca": "MT4129" if compute else "MT4125", "fw": "28.39.3004" if compute else "22.39.3004",
            "board": "MT_0000000838" if compute else "MT_0000000436",
            "guid": ":".join(f"{rng.randrange(65536):04x}" for _ in range(4)),
        }))  # fmt: skip
    cells: list[Cell] = []
    for column in PORT_FIXED:
        for number in range(PORTS):
            compute = number < COMPUTE_PORTS
            value: Cell = 0
            if column == "state":
                value = "4: ACTIVE"
            elif column == "phys_state":
                value = "5: LinkUp"
            elif column == "rate":
                value = "400 Gb/sec (4X NDR)" if compute else "200 Gb/sec (4X HDR)"
            elif column == "h:lifespan":
                value = 10
            elif compute and column.startswith(("h:roce_", "h:np_", "h:rp_", "h:rx_icrc")):
                value = None
            elif column in {"c:port_rcv_switch_relay_errors", "h:duplicate_request", "h:local_ack_timeout_err"}:
                value = rng.randrange(40)
            elif column.startswith("c:multicast"):
                value = rng.randrange(10**5)
            cells.append(value)
    machine.port_fixed = cells


def _nets(machine: Machine, number: int) -> None:
    storage = [row[0].removesuffix("/1") for row in machine.port_rows[COMPUTE_PORTS:]]
    functions = {"eno1": "0000:02:00.0", NETS[1]: storage[0], NETS[2]: storage[1]}
    for name in NETS:
        function = functions.get(name)
        if function is None:
            machine.net_rows.append((name, {"name": name, "phys": False}))
        else:
            driver = "igb" if name == "eno1" else "mlx5_core"
            attrs: dict[str, Attr] = {"name": name, "phys": True, "pci": function, "driver": driver}
            machine.net_rows.append((f"{function}/{name}", attrs))
    machine.link_rows = [(key, dict(attrs)) for key, attrs in machine.net_rows]
    port = machine.port_rows[0][1]
    machine.link_rows.append((f"{port['pci']}/{RAIL_NET}", {
        "name": RAIL_NET, "phys": True, "pci": port["pci"], "driver": "mlx5_core"}))
    told = {"eno1": address(number, 0), RAIL_NET: address(number)}
    for _, attrs in machine.link_rows:
        if attrs["name"] in told:
            attrs["addresses"] = [f"{told[str(attrs['name'])]}/16"]


def net_fixed() -> list[list[Cell]]:
    """Return the columns of table ``net`` from ``rx_errors`` on, each a cell per interface."""
    none: list[Cell] = [0, 0, 0, 0]
    return [none, none, none, none, [1, 1, 1, 0], [1000, 200_000, 200_000, Err("EINVAL")], [1500, 9000, 9000, 65536],
            ["up", "up", "up", "unknown"]]  # fmt: skip


def _uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)
