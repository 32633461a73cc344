"""Host, PCIe and RDMA readings of trees of our own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trees
from clustertop.probe import interfaces
from clustertop.probe.files import Call, Reading, Tree
from clustertop.probe.frames import Err
from clustertop.probe.host import Host
from clustertop.probe.pcie import Pcie
from clustertop.probe.rdma import Rdma
from probe.harness import named, samples

if TYPE_CHECKING:
    from collections.abc import Iterator

GPU, NIC = "0000:13:00.0", "0000:14:00.0"


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def cell(reading: Reading, table: str, row: str, column: str) -> Any:
    got = reading.tables[table]
    keys = [key for key, _ in got.rows]
    return got.cells[got.columns.index(column) * len(keys) + keys.index(row)]


def attrs(reading: Reading, table: str, row: str) -> dict[str, Any]:
    return dict(dict(reading.tables[table].rows)[row])


@pytest.fixture
def node(tmp_path: Path) -> trees.NodeTree:
    return trees.gpu_node(tmp_path / "node", gpus=2, ports=2)


_KEPT: list[Tree] = []


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    """The files that a tree keeps open are closed with the test."""
    yield
    while _KEPT:
        _KEPT.pop().forget()


def tree_of(root: Path, keep: int) -> Tree:
    _KEPT.append(Tree(str(root), Call(), keep))
    return _KEPT[-1]


def reader(kind: type, node: trees.NodeTree | Path, keep: int = 100) -> Any:
    return kind(tree_of(node.root if isinstance(node, trees.NodeTree) else node, keep))


# ---------------------------------------------------------------- host


def test_host(node: trees.NodeTree) -> None:
    reading = reader(Host, node).read(0.0)
    got = {column: cell(reading, "node", "", column) for column in reading.tables["node"].columns}
    assert got == {
        "ncpu": 4, "cpu_total": 41391, "cpu_idle": 40050, "load1": 0.5, "load5": 0.25, "load15": 0.1,
        "mem_total": 1 << 30, "mem_available": 1 << 29, "swap_total": 0, "swap_free": 0, "uptime": 3600.25,
        "psi_cpu": 1.5, "psi_mem": 1.5, "psi_io": 1.5,
    }  # fmt: skip
    assert reading.facts["host"] == "gpu001"
    assert reading.facts["kernel"] == "6.8.0-test"
    assert reading.facts["os"] == "Test Linux 1.0"
    assert reading.facts["boot_id"] == "0f0e0d0c-1111-4222-8333-444455556666"


def test_each_host_file_costs_only_its_own_values(node: trees.NodeTree) -> None:
    (node.root / "proc/loadavg").unlink()
    node.directory("proc/loadavg")
    shutil.rmtree(node.root / "proc/pressure")
    node.write("proc/meminfo", "MemTotal: 1024 kB")
    node.write("proc/uptime", "soon")
    reading = reader(Host, node).read(0.0)
    assert cell(reading, "node", "", "load5") == Err("EISDIR")
    assert cell(reading, "node", "", "psi_io") == Err("ENOENT")
    assert cell(reading, "node", "", "mem_total") == 1024 * 1024
    assert cell(reading, "node", "", "mem_available") == Err("not provided")
    assert cell(reading, "node", "", "uptime") == Err("not understood")
    assert cell(reading, "node", "", "cpu_total") == 41391


def test_net(node: trees.NodeTree) -> None:
    node.netdev("veth12ab")
    base = node.netdev("bond0")
    node.write(f"{base}/statistics/rx_bytes", 18446744073709551615)
    shutil.rmtree(node.root / base / "statistics" / "tx_bytes", ignore_errors=True)
    (node.root / base / "statistics" / "tx_bytes").unlink()
    reading = reader(Host, node).read(0.0)
    keys = [key for key, _ in reading.tables["net"].rows]
    assert keys == ["bond0", f"{NIC}/ib0", "0000:1f:00.0/ib1", "lo"]
    assert attrs(reading, "net", f"{NIC}/ib0") == {"name": "ib0", "pci": NIC, "driver": "mlx5_core", "phys": True}
    assert attrs(reading, "net", "bond0")["phys"] is False
    assert cell(reading, "net", "bond0", "rx_bytes") == 18446744073709551615
    assert cell(reading, "net", "bond0", "tx_bytes") == Err("ENOENT")
    assert cell(reading, "net", f"{NIC}/ib0", "operstate") == "up"
    assert cell(reading, "net", f"{NIC}/ib0", "mtu") == 9000


def test_interface_of_a_virtio_device_has_its_pci_function_behind_it(node: trees.NodeTree) -> None:
    base = node.where(NIC) + "/virtio0"
    node.write(f"{base}/vendor", "0x1af4")
    net = node.netdev("eth0")
    node.link(f"{net}/device", base)
    reading = reader(Host, node).read(0.0)
    assert attrs(reading, "net", f"{NIC}/eth0")["phys"] is True


def test_interfaces_come_and_go_and_a_failed_listing_keeps_the_old_ones(node: trees.NodeTree) -> None:
    host = reader(Host, node)
    assert len(host.read(0.0).tables["net"].rows) == 3
    node.netdev("eth9")
    reading = host.read(30.0)
    assert "eth9" in [key for key, _ in reading.tables["net"].rows]
    net = node.root / "sys/class/net"
    net.rename(net.with_name("net.away"))
    net.write_text("")
    reading = host.read(60.0)
    assert len(reading.tables["net"].rows) == 4
    assert reading.tables["net"].error.startswith("ENOTDIR")


# ---------------------------------------------------------------- files


def test_kept_files_see_changes_replacement_and_removal(node: trees.NodeTree) -> None:
    tree = tree_of(node.root, 10)
    node.write("sys/x", 1)
    assert tree.hot("sys/x") == 1
    node.write("sys/x", 22)
    assert tree.hot("sys/x") == 22
    node.write("sys/y", 333)
    (node.root / "sys/y").rename(node.root / "sys/x")
    assert tree.hot("sys/x") == 333
    (node.root / "sys/x").unlink()
    assert tree.hot("sys/x") == Err("ENOENT")
    node.write("sys/x", 4)
    assert tree.hot("sys/x") == 4
    tree.forget()


def test_no_more_files_are_kept_open_than_allowed(node: trees.NodeTree) -> None:
    before = _open_files()
    rdma = reader(Rdma, node, keep=5)
    rdma.read(0.0)
    rdma.read(1.0)
    assert _open_files() == before + 5
    rdma.close()
    assert _open_files() == before


def test_values_are_numbers_or_text_and_long_files_are_cut(node: trees.NodeTree) -> None:
    tree = tree_of(node.root, 10)
    for text, value in (
        ("0", 0), ("-1", -1), (" 12 ", 12), ("N/A (no PMA)", "N/A (no PMA)"), ("0x1f", "0x1f"), ("1_000", "1_000"),
        ("", ""), ("255", 255), ("9" * 30, "9" * 30),
    ):  # fmt: skip
        node.write("sys/v", text)
        assert tree.cell("sys/v") == value
    (node.root / "sys/v").write_bytes(b"\xff\xfe" + b"z" * 200000)
    got = tree.cell("sys/v")
    assert isinstance(got, str)
    assert len(got) == 512
    os.mkfifo(node.root / "sys/pipe")
    assert tree.cell("sys/pipe") == "", "a pipe without a writer must not hold the probe"


# ---------------------------------------------------------------- pcie


def test_pcie_rows_with_every_bridge_above(node: trees.NodeTree) -> None:
    reading = reader(Pcie, node).read(0.0)
    keys = [key for key, _ in reading.tables["pcie"].rows]
    assert keys == ["0000:10:01.0", "0000:11:00.0", "0000:12:00.0", GPU, NIC,
                    "0000:1b:01.0", "0000:1c:00.0", "0000:1d:00.0", "0000:1e:00.0", "0000:1f:00.0"]  # fmt: skip
    assert attrs(reading, "pcie", GPU) == {
        "class": "0x030200", "vendor": "0x10de", "device": "0x2330", "subsystem": "0x10de:0x0041",
        "driver": "nvidia", "numa": 0, "path": ["0000:12:00.0", "0000:11:00.0", "0000:10:01.0"],
    }  # fmt: skip
    assert attrs(reading, "pcie", NIC)["name"] == "ib0"
    assert attrs(reading, "pcie", "0000:10:01.0")["path"] == []
    assert cell(reading, "pcie", GPU, "cur_width") == 16
    assert cell(reading, "pcie", GPU, "cur_speed") == "32.0 GT/s PCIe"
    assert cell(reading, "pcie", GPU, "aer_fatal") == 0


def test_a_hop_at_x8_and_the_aer_totals(node: trees.NodeTree) -> None:
    node.pci("0000:11:00.0", "0000:10:01.0", width=8, speed="16.0 GT/s PCIe", aer={"aer_dev_correctable": 9})
    node.write(node.where("0000:11:00.0") + "/aer_dev_fatal", "TLP 3")
    reading = reader(Pcie, node).read(0.0)
    assert cell(reading, "pcie", "0000:11:00.0", "cur_width") == 8
    assert cell(reading, "pcie", "0000:11:00.0", "cur_speed") == "16.0 GT/s PCIe"
    assert cell(reading, "pcie", "0000:11:00.0", "aer_cor") == 9
    assert cell(reading, "pcie", "0000:11:00.0", "aer_fatal") == Err("no TOTAL_ERR line")
    assert cell(reading, "pcie", GPU, "cur_width") == 16


def test_pcie_values_that_cannot_be_read_cost_themselves(node: trees.NodeTree) -> None:
    base = node.root / node.where(GPU)
    (base / "current_link_width").unlink()
    node.directory(node.where(GPU) + "/current_link_width")
    (base / "aer_dev_fatal").unlink()
    node.write(node.where(GPU) + "/max_link_width", 255)
    node.write(node.where(GPU) + "/max_link_speed", "Unknown")
    reading = reader(Pcie, node).read(0.0)
    assert cell(reading, "pcie", GPU, "cur_width") == Err("EISDIR")
    assert cell(reading, "pcie", GPU, "aer_fatal") == Err("ENOENT")
    assert cell(reading, "pcie", GPU, "max_width") == 255
    assert cell(reading, "pcie", GPU, "max_speed") == "Unknown"
    assert cell(reading, "pcie", GPU, "cur_speed") == "32.0 GT/s PCIe"


def test_virtual_functions_have_no_link_row(node: trees.NodeTree) -> None:
    node.pci("0000:14:00.2", "0000:12:00.0", kind="0x020700", driver="mlx5_core")
    node.virtual_function("0000:14:00.2", NIC)
    keys = [key for key, _ in reader(Pcie, node).read(0.0).tables["pcie"].rows]
    assert NIC in keys
    assert "0000:14:00.2" not in keys


def test_pcie_device_vanishes_and_a_failed_listing_keeps_the_rows(node: trees.NodeTree) -> None:
    pcie = reader(Pcie, node)
    assert GPU in dict(pcie.read(0.0).tables["pcie"].rows)
    (node.root / "sys/bus/pci/devices" / GPU).unlink()
    assert GPU not in dict(pcie.read(10.0).tables["pcie"].rows)
    devices = node.root / "sys/bus/pci/devices"
    devices.rename(devices.with_name("away"))
    devices.write_text("")
    reading = pcie.read(20.0)
    assert reading.tables["pcie"].error.startswith("ENOTDIR")
    assert NIC in dict(reading.tables["pcie"].rows)


def test_tree_without_links_works_and_has_no_path(tmp_path: Path) -> None:
    node = trees.NodeTree(tmp_path)
    for file, value in (("class", "0x030000"), ("vendor", "0x10de"), ("current_link_width", 8)):
        node.write(f"sys/bus/pci/devices/0000:17:00.0/{file}", value)
    reading = reader(Pcie, node).read(0.0)
    assert attrs(reading, "pcie", "0000:17:00.0")["path"] == []
    assert cell(reading, "pcie", "0000:17:00.0", "cur_width") == 8


def test_links_with_absolute_targets_stay_inside_the_root(node: trees.NodeTree) -> None:
    link = node.root / "sys/bus/pci/devices" / GPU
    link.unlink()
    link.symlink_to("/" + node.where(GPU))
    reading = reader(Pcie, node).read(0.0)
    assert attrs(reading, "pcie", GPU)["path"][-1] == "0000:10:01.0"


def test_nothing_there_is_off(tmp_path: Path) -> None:
    assert reader(Pcie, tmp_path).read(0.0).st == "off"
    assert reader(Rdma, tmp_path).read(0.0).st == "off"


# ---------------------------------------------------------------- rdma


def test_rdma_port(node: trees.NodeTree) -> None:
    reading = reader(Rdma, node).read(0.0)
    assert attrs(reading, "port", f"{NIC}/1") == {
        "dev": "mlx5_0", "port": 1, "pci": NIC, "driver": "mlx5_core", "link_layer": "InfiniBand",
        "netdev": "ib0", "hca": "MT4129", "fw": "28.41.1000", "board": "MT_0000000838",
        "guid": "5eed:0000:0000:0001",
    }  # fmt: skip
    assert cell(reading, "port", f"{NIC}/1", "state") == "4: ACTIVE"
    assert cell(reading, "port", f"{NIC}/1", "rate") == "400 Gb/sec (4X NDR)"
    assert cell(reading, "port", f"{NIC}/1", "c:port_rcv_data") == 0
    assert cell(reading, "port", f"{NIC}/1", "h:out_of_sequence") == 0


def test_rdma_values_that_cannot_be_read_cost_themselves(node: trees.NodeTree) -> None:
    counters = node.where(NIC) + "/infiniband/mlx5_0/ports/1/counters"
    (node.root / counters / "VL15_dropped").unlink()
    node.directory(f"{counters}/VL15_dropped")
    node.write(f"{counters}/symbol_error", 65535)
    node.write(f"{counters}/port_rcv_data", "N/A (no PMA)")
    shutil.rmtree(node.root / node.where("0000:1f:00.0") / "infiniband/mlx5_1/ports/1/hw_counters")
    reading = reader(Rdma, node).read(0.0)
    assert cell(reading, "port", f"{NIC}/1", "c:VL15_dropped") == Err("EISDIR")
    assert cell(reading, "port", f"{NIC}/1", "c:symbol_error") == 65535
    assert cell(reading, "port", f"{NIC}/1", "c:port_rcv_data") == "N/A (no PMA)"
    assert cell(reading, "port", "0000:1f:00.0/1", "h:out_of_sequence") is None
    assert cell(reading, "port", "0000:1f:00.0/1", "c:symbol_error") == 0


def test_two_ports_virtual_function_and_software_device(node: trees.NodeTree) -> None:
    node.pci("0000:14:00.2", "0000:12:00.0", kind="0x020700", driver="mlx5_core")
    node.virtual_function("0000:14:00.2", NIC)
    node.rdma("mlx5_9", "0000:14:00.2", ports=2, link_layer="Ethernet")
    node.netdev("ens1", "0000:14:00.2", dev_port=0)
    node.netdev("ens2", "0000:14:00.2", dev_port=1)
    node.rdma("rxe0", counters={}, hw_counters={})
    reading = reader(Rdma, node).read(0.0)
    assert attrs(reading, "port", "0000:14:00.2/2")["physfn"] == NIC
    assert attrs(reading, "port", "0000:14:00.2/1")["netdev"] == "ens1"
    assert attrs(reading, "port", "0000:14:00.2/2")["netdev"] == "ens2"
    assert "physfn" not in attrs(reading, "port", f"{NIC}/1")
    assert attrs(reading, "port", "rxe0/1")["dev"] == "rxe0"
    assert "pci" not in attrs(reading, "port", "rxe0/1")
    assert cell(reading, "port", "rxe0/1", "c:symbol_error") is None


def test_an_interface_on_a_virtual_function_says_whose(node: trees.NodeTree) -> None:
    node.pci("0000:14:00.2", "0000:12:00.0", kind="0x020000", driver="mlx5_core")
    node.virtual_function("0000:14:00.2", NIC)
    node.netdev("ens1v0", "0000:14:00.2")
    node.netdev("ens1", NIC)
    tree = Tree(str(node.root), Call())
    rows = dict(interfaces.listed(tree, interfaces.names(tree)))
    assert rows["ens1v0"][1]["physfn"] == NIC
    assert "physfn" not in rows["ens1"][1]


def test_a_bond_is_the_interface_of_the_first_gid_and_no_name_makes_one(node: trees.NodeTree) -> None:
    bond = node.netdev("storage0")
    node.write(f"{bond}/bonding/mode", "802.3ad 4")
    node.netdev("bond9")
    base = node.rdma("mlx5_bond_0", counters={}, hw_counters={})
    node.write(f"{base}/1/gid_attrs/ndevs/0", "storage0")
    other = node.rdma("mlx5_bond_1", counters={}, hw_counters={})
    node.write(f"{other}/1/gid_attrs/ndevs/0", "bond9")
    hostile = node.rdma("mlx5_bond_2", counters={}, hw_counters={})
    node.write(f"{hostile}/1/gid_attrs/ndevs/0", "../../virtual/net/storage0")
    reading = reader(Rdma, node).read(0.0)
    assert attrs(reading, "port", "mlx5_bond_0/1")["bond"] == "storage0"
    assert "bond" not in attrs(reading, "port", "mlx5_bond_1/1")
    assert "bond" not in attrs(reading, "port", "mlx5_bond_2/1")
    assert "bond" not in attrs(reading, "port", f"{NIC}/1")


def test_failed_listing_of_ports_is_no_disappearance(node: trees.NodeTree) -> None:
    rdma = reader(Rdma, node, keep=0)
    before = rdma.read(0.0)
    ports = node.root / node.where(NIC) / "infiniband/mlx5_0/ports"
    ports.rename(ports.with_name("away"))
    ports.write_text("")
    reading = rdma.read(60.0)
    assert reading.tables["port"].rows == before.tables["port"].rows
    assert reading.tables["port"].error == f"ENOTDIR: {node.root}/sys/class/infiniband/mlx5_0/ports"
    assert isinstance(cell(reading, "port", f"{NIC}/1", "c:symbol_error"), Err)
    assert cell(reading, "port", "0000:1f:00.0/1", "c:symbol_error") == 0
    ports.unlink()
    ports.with_name("away").rename(ports)
    reading = rdma.read(61.0)
    assert reading.tables["port"].error == ""
    assert cell(reading, "port", f"{NIC}/1", "c:symbol_error") == 0


def test_device_vanishes_and_comes_back(node: trees.NodeTree) -> None:
    rdma = reader(Rdma, node)
    rdma.read(0.0)
    link = node.root / "sys/class/infiniband/mlx5_0"
    target = link.readlink()
    link.unlink()
    assert list(dict(rdma.read(1.0).tables["port"].rows)) == ["0000:1f:00.0/1"]
    link.symlink_to(target)
    node.write(node.where(NIC) + "/infiniband/mlx5_0/ports/1/counters/symbol_error", 3)
    assert cell(rdma.read(2.0), "port", f"{NIC}/1", "c:symbol_error") == 3


# ---------------------------------------------------------------- recorded trees


@pytest.mark.skipif(samples() is None, reason="no recorded samples beside the repository")
class TestSamples:
    def test_rdma_fixture(self, tmp_path: Path) -> None:
        trees.from_json(next(named("rdma/sysfs/procfs-mlx4-mlx5-hfi1.sysfs.json")), tmp_path)
        reading = reader(Rdma, tmp_path).read(0.0)
        assert cell(reading, "port", "mlx5_0/1", "c:port_xmit_data") == 2880761508848
        assert cell(reading, "port", "mlx5_0/1", "h:local_ack_timeout_err") == 131
        assert cell(reading, "port", "mlx5_0/1", "rate") == "25 Gb/sec (1X EDR)"
        assert cell(reading, "port", "hfi1_0/1", "h:local_ack_timeout_err") is None

    def test_no_pma(self, tmp_path: Path) -> None:
        trees.from_json(next(named("rdma/sysfs/node_exporter-i40iw-mlx4.sysfs.json")), tmp_path)
        reading = reader(Rdma, tmp_path).read(0.0)
        assert cell(reading, "port", "i40iw0/1", "c:symbol_error") == "N/A (no PMA)"
        assert cell(reading, "port", "mlx4_0/1", "c:port_xmit_wait") == 4294967295

    def test_guest_vf(self, tmp_path: Path) -> None:
        trees.from_json(next(named("rdma/sysfs/rdma_exporter-guest_vf.sysfs.json")), tmp_path)
        reading = reader(Rdma, tmp_path).read(0.0)
        assert list(dict(reading.tables["port"].rows)) == ["0000:00:04.0/1"]

    def test_pcie_fixture(self, tmp_path: Path) -> None:
        trees.from_json(next(named("pcie/sysfs/procfs-fixtures.sysfs.json")), tmp_path)
        reading = reader(Pcie, tmp_path).read(0.0)
        assert cell(reading, "pcie", "0000:00:02.1", "cur_width") == 4
        assert cell(reading, "pcie", "0000:00:02.1", "max_width") == 8

    def test_every_sample_reads(self, tmp_path: Path) -> None:
        files = [*named("rdma/sysfs/*.sysfs.json"), *named("pcie/sysfs/*.sysfs.json")]
        assert len(files) >= 10
        for index, file in enumerate(files):
            root = tmp_path / str(index)
            trees.from_json(file, root)
            for kind in (Pcie, Rdma, Host):
                reading = reader(kind, root).read(0.0)
                assert reading.st in {"ok", "off"}
