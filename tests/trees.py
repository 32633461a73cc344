"""Fake /proc and /sys trees of our own, written below a temporary directory."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
    "local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors",
    "port_rcv_data", "port_rcv_errors", "port_rcv_packets", "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards",
    "port_xmit_packets", "port_xmit_wait", "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets",
)  # fmt: skip
HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err", "np_cnp_sent",
    "np_ecn_marked_roce_packets", "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error",
    "req_cqe_flush_error", "req_remote_access_errors", "req_remote_invalid_request", "resp_cqe_error",
    "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err",
    "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "rp_cnp_handled", "rp_cnp_ignored",
    "rx_atomic_requests", "rx_icrc_encapsulated", "rx_read_requests", "rx_write_requests",
)  # fmt: skip
STATISTICS = (
    "rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
)  # fmt: skip
_AER = {
    "aer_dev_correctable": ("COR", ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr")),
    "aer_dev_nonfatal": ("NONFATAL", ("Undefined", "DLP", "TLP", "CmpltTO", "UnxCmplt")),
    "aer_dev_fatal": ("FATAL", ("Undefined", "DLP", "TLP", "FCP", "MalfTLP")),
}


class NodeTree:
    """A node's /proc and /sys below *root*, laid out as the kernel does, links included."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths: dict[str, str] = {}
        root.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, text: object) -> None:
        """Write a file; a missing final newline is added."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text) if str(text).endswith("\n") else f"{text}\n")

    def link(self, name: str, target: str) -> None:
        """Make *name* a relative link to *target*, both below the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(os.path.relpath(self.root / target, path.parent))

    def directory(self, name: str) -> None:
        """Make a directory; in place of a file, it cannot be read (EISDIR)."""
        (self.root / name).mkdir(parents=True, exist_ok=True)

    def where(self, bdf: str) -> str:
        """Return a PCI function's directory below the root."""
        return self._paths[bdf]

    def host(self, name: str = "gpu001", cpus: int = 4, boot_id: str = "0f0e0d0c-1111-4222-8333-444455556666") -> None:
        """Write /proc of an idle machine with *cpus* processors and 1 GiB of memory."""
        row = "1000 20 300 40000 50 6 7 8 0 0"
        self.write("proc/stat", "\n".join([f"cpu  {row}", *(f"cpu{i} {row}" for i in range(cpus)), "ctxt 1"]))
        self.write("proc/loadavg", "0.50 0.25 0.10 1/200 4242")
        self.write(
            "proc/meminfo",
            "MemTotal:        1048576 kB\nMemFree:          262144 kB\nMemAvailable:     524288 kB\n"
            "SwapTotal:             0 kB\nSwapFree:              0 kB",
        )
        self.write("proc/uptime", "3600.25 14000.00")
        for kind in ("cpu", "memory", "io"):
            self.write(f"proc/pressure/{kind}", "some avg10=1.50 avg60=0.70 avg300=0.10 total=12345")
        self.write("proc/sys/kernel/hostname", name)
        self.write("proc/sys/kernel/osrelease", "6.8.0-test")
        self.write("proc/sys/kernel/random/boot_id", boot_id)
        self.write("proc/sys/net/core/somaxconn", 4096)
        self.write("proc/sys/net/ipv4/tcp_slow_start_after_idle", 0)
        self.process(1, "systemd")
        self.write("etc/os-release", 'NAME="Test Linux"\nPRETTY_NAME="Test Linux 1.0"')

    def process(self, pid: int, comm: str) -> None:
        """Write a process, by its name as the kernel cuts it."""
        self.write(f"proc/{pid}/comm", comm[:15])

    def pci(
        self,
        bdf: str,
        parent: str = "",
        *,
        kind: str = "0x060400",
        width: object = 16,
        max_width: object = 16,
        speed: str = "32.0 GT/s PCIe",
        max_speed: str = "32.0 GT/s PCIe",
        vendor: str = "0x8086",
        device: str = "0x0001",
        driver: str = "pcieport",
        numa: int = 0,
        aer: Mapping[str, int] | None = None,
    ) -> str:
        """Write a PCI function below *parent* (a root port where empty); return its directory."""
        base = f"{self._paths[parent]}/{bdf}" if parent else f"sys/devices/pci{bdf[:7]}/{bdf}"
        self._paths[bdf] = base
        for name, value in (
            ("class", kind), ("vendor", vendor), ("device", device), ("subsystem_vendor", vendor),
            ("subsystem_device", "0x0041"), ("numa_node", numa), ("current_link_width", width),
            ("max_link_width", max_width), ("current_link_speed", speed), ("max_link_speed", max_speed),
            ("uevent", f"DRIVER={driver}\nPCI_SLOT_NAME={bdf}"),
        ):  # fmt: skip
            self.write(f"{base}/{name}", value)
        for name, (mark, rows) in _AER.items():
            total = (aer or {}).get(name, 0)
            self.write(f"{base}/{name}", "\n".join([*(f"{row} 0" for row in rows), f"TOTAL_ERR_{mark} {total}"]))
        self.directory(f"sys/bus/pci/drivers/{driver}")
        self.link(f"{base}/driver", f"sys/bus/pci/drivers/{driver}")
        self.link(f"sys/bus/pci/devices/{bdf}", base)
        return base

    def netdev(self, name: str, bdf: str = "", *, dev_port: int = 0, speed: int = 400000) -> str:
        """Write a network interface, below a PCI function where *bdf* names one; return its directory."""
        base = f"{self._paths[bdf]}/net/{name}" if bdf else f"sys/devices/virtual/net/{name}"
        for column in STATISTICS:
            self.write(f"{base}/statistics/{column}", 0)
        for file, value in (
            ("carrier_changes", 2), ("speed", speed), ("mtu", 9000), ("operstate", "up"), ("dev_port", dev_port),
        ):  # fmt: skip
            self.write(f"{base}/{file}", value)
        if bdf:
            self.link(f"{base}/device", self._paths[bdf])
        self.link(f"sys/class/net/{name}", base)
        return base

    def rdma(
        self,
        dev: str,
        bdf: str = "",
        *,
        ports: int = 1,
        state: str = "4: ACTIVE",
        phys_state: str = "5: LinkUp",
        rate: str = "400 Gb/sec (4X NDR)",
        link_layer: str = "InfiniBand",
        counters: Mapping[str, object] | None = None,
        hw_counters: Mapping[str, object] | None = None,
    ) -> str:
        """Write an RDMA device; return the directory of its ports."""
        base = f"{self._paths[bdf]}/infiniband/{dev}" if bdf else f"sys/devices/virtual/infiniband/{dev}"
        for file, value in (
            ("hca_type", "MT4129"), ("fw_ver", "28.41.1000"), ("board_id", "MT_0000000838"),
            ("node_guid", "5eed:0000:0000:0001"),
        ):  # fmt: skip
            self.write(f"{base}/{file}", value)
        for number in range(1, ports + 1):
            port = f"{base}/ports/{number}"
            for file, text in (
                ("state", state), ("phys_state", phys_state), ("rate", rate), ("link_layer", link_layer),
            ):  # fmt: skip
                self.write(f"{port}/{file}", text)
            for name, value in (dict.fromkeys(COUNTERS, 0) if counters is None else counters).items():
                self.write(f"{port}/counters/{name}", value)
            for name, value in (dict.fromkeys(HW_COUNTERS, 0) if hw_counters is None else hw_counters).items():
                self.write(f"{port}/hw_counters/{name}", value)
        if bdf:
            self.link(f"{base}/device", self._paths[bdf])
        self.link(f"sys/class/infiniband/{dev}", base)
        return f"{base}/ports"

    def virtual_function(self, bdf: str, parent: str) -> str:
        """Make *bdf*, already written, a virtual function of *parent*."""
        self.link(f"{self._paths[bdf]}/physfn", self._paths[parent])
        return self._paths[bdf]


def gpu_node(root: Path, gpus: int = 8, ports: int = 10) -> NodeTree:
    """Write a node as they stand in a training cluster: GPUs and NICs behind switches, two levels of bridges each."""
    tree = NodeTree(root)
    tree.host()
    for index in range(max(gpus, ports)):
        bus = 0x10 + 0x0B * index
        top, up, down = f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0", f"0000:{bus + 2:02x}:00.0"
        tree.pci(top)
        tree.pci(up, top)
        tree.pci(down, up)
        if index < gpus:
            gpu = f"0000:{bus + 3:02x}:00.0"
            tree.pci(gpu, down, kind="0x030200", vendor="0x10de", device="0x2330", driver="nvidia")
        if index < ports:
            nic = f"0000:{bus + 4:02x}:00.0"
            tree.pci(nic, down, kind="0x020700", vendor="0x15b3", device="0x1021", driver="mlx5_core")
            tree.netdev(f"ib{index}", nic)
            tree.rdma(f"mlx5_{index}", nic)
    tree.netdev("lo")
    return tree


def from_json(path: Path, root: Path) -> None:
    """Rebuild a recorded tree: a JSON object of path and text; a text that starts with ``../`` was a link."""
    for name, text in json.loads(path.read_text()).items():
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("../"):
            target.symlink_to(text.strip())
        elif not target.exists():
            target.write_text(text)
