"""Recorded trees: each right reading of their notes is a row, and so are those of trees of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustertop.probe.files import Call, Tree
from samples.lab import Lab, load, unpack

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "samples"
DATA = Path(__file__).parent / "data"
NAMES = ("gcm-learn_good", "gcm-learn_ib_intf_bad_rate", "gcm-learn_ib_intf_operstate_down", "gpud-h100-ndr",
         "node_exporter-i40iw-mlx4", "procfs-mlx4-mlx5-hfi1", "rdma_exporter-basic", "rdma_exporter-guest_vf")
PCIE_NAMES = ("gcm-a100-healthy", "gcm-storage-downlink", "node_exporter-fixtures", "procfs-fixtures")


def laid(folder: Path, name: str, tmp_path: Path) -> Lab:
    """A lab over one sample, read twice."""
    path = folder / f"{name}.sysfs.json"
    if not path.is_file():
        pytest.skip(f"needs the recorded samples: {path.name} is not in {folder}")
    lab = Lab(unpack(load(path), tmp_path / "tree"))
    lab.poll()
    lab.poll()
    return lab


@pytest.mark.parametrize("name", NAMES)
def test_every_rdma_sample_is_read_whole(name: str, tmp_path: Path) -> None:
    lab = laid(SHARED / "rdma/sysfs", name, tmp_path)
    assert len(lab.table("port")) > 0
    assert not lab.raised("rdma_hard_errors", "rdma_soft_errors", "rdma_port_flap", "rdma_port_down", "group_failed")


@pytest.mark.parametrize("name", PCIE_NAMES)
def test_no_pcie_sample_raises_an_alert(name: str, tmp_path: Path) -> None:
    lab = laid(SHARED / "pcie/sysfs", name, tmp_path)
    assert not lab.raised()


@pytest.mark.parametrize(
    ("name", "port", "column", "expected"),
    [
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "out_of_sequence", 1),
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "packet_seq_err", 1),
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "local_ack_timeout_err", 131),
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "duplicate_request", 41),
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "req_cqe_error", 3481),
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "port_xmit_data", 2880761508848 * 4),
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "rate_bits_per_second", 25e9),
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "lanes", 1),
        ("procfs-mlx4-mlx5-hfi1", "mlx5_0/1", "hard_errors_total", 0),
        ("procfs-mlx4-mlx5-hfi1", "mlx4_0/1", "rate_bits_per_second", 40e9),
        ("procfs-mlx4-mlx5-hfi1", "mlx4_0/2", "rate_bits_per_second", 40e9),
        ("procfs-mlx4-mlx5-hfi1", "mlx4_0/1", "hard_errors_last_minute", 0),
        ("procfs-mlx4-mlx5-hfi1", "mlx4_0/2", "hard_errors_last_minute", 0),
        ("procfs-mlx4-mlx5-hfi1", "hfi1_0/1", "rate_bits_per_second", 100e9),
        ("procfs-mlx4-mlx5-hfi1", "hfi1_0/1", "out_of_sequence", None),
        ("node_exporter-i40iw-mlx4", "i40iw0/1", "symbol_error", None),
        ("node_exporter-i40iw-mlx4", "i40iw0/1", "port_xmit_data", None),
        ("node_exporter-i40iw-mlx4", "i40iw0/1", "hard_errors_total", None),
        ("node_exporter-i40iw-mlx4", "mlx4_0/1", "port_xmit_wait", 4294967295),
        ("node_exporter-i40iw-mlx4", "mlx4_0/1", "saturated_counters", 1),
        ("node_exporter-i40iw-mlx4", "mlx4_0/1", "port_rcv_data_64", 4631917 * 4),
        ("gpud-h100-ndr", "mlx5_0/1", "rate_bits_per_second", 400e9),
        ("gpud-h100-ndr", "mlx5_1/1", "rate_bits_per_second", 400e9),
        ("gpud-h100-ndr", "mlx5_bond_0/1", "rate_bits_per_second", 200e9),
        ("gpud-h100-ndr", "mlx5_bond_0/1", "rate_missing_ratio", None),
        ("gpud-h100-ndr", "mlx5_0/1", "port_xmit_wait", 2489603687),
        ("rdma_exporter-basic", "mlx5_0/2", "rate_bits_per_second", None),
        ("rdma_exporter-guest_vf", "mlx5_0/1", "rate_bits_per_second", 100e9),
    ],
)
def test_right_readings_of_the_rdma_samples(
    name: str, port: str, column: str, expected: float | None, tmp_path: Path
) -> None:
    lab = laid(SHARED / "rdma/sysfs", name, tmp_path)
    assert lab.value("port", port, column) == expected


@pytest.mark.parametrize(
    ("name", "rate"), [("gcm-learn_good", 200e9), ("gcm-learn_ib_intf_bad_rate", 100e9),
                       ("gcm-learn_ib_intf_operstate_down", 200e9)])
def test_eight_ports_are_up_whatever_their_ipoib_interface_says(name: str, rate: float, tmp_path: Path) -> None:
    lab = laid(SHARED / "rdma/sysfs", name, tmp_path)
    ports = lab.table("port")
    assert ports.col("rate_bits_per_second").tolist() == [rate] * 8
    assert ports.col("link").tolist() == [0.0] * 8
    assert ports.attrs[lab.row("port", "mlx5_6/1")]["netdev"] == "ib4"


@pytest.mark.parametrize(
    ("name", "device", "width", "most"),
    [
        ("procfs-fixtures", "0000:00:02.1", 4, 8),
        ("procfs-fixtures", "0000:01:00.0", 4, 4),
        ("procfs-fixtures", "0000:a2:00.0", 8, 8),
        ("procfs-fixtures", "0000:00:1f.6", None, None),
        ("node_exporter-fixtures", "0000:00:02.1", 4, 8),
        ("node_exporter-fixtures", "0000:45:00.0", 4, 4),
    ],
)
def test_right_readings_of_the_pcie_samples(
    name: str, device: str, width: int | None, most: int | None, tmp_path: Path
) -> None:
    lab = laid(SHARED / "pcie/sysfs", name, tmp_path)
    assert lab.value("pcie", device, "width_lanes") == width
    assert lab.value("pcie", device, "width_max_lanes") == most


@pytest.mark.parametrize(("name", "links"), [("gcm-a100-healthy", 111), ("gcm-storage-downlink", None)])
def test_links_of_the_pcie_samples_are_all_read(name: str, links: int | None, tmp_path: Path) -> None:
    """Nothing but the link stands in these files: the probe reads such a tree file by file."""
    path = SHARED / f"pcie/sysfs/{name}.sysfs.json"
    if not path.is_file():
        pytest.skip("needs the recorded samples")
    sample = {file: text for file, text in load(path).items() if file.endswith("current_link_width")}
    tree = Tree(str(unpack(load(path), tmp_path / "tree")), Call())
    cells = [tree.cell(file.lstrip("/")) for file in sample]
    assert links in (None, len(cells))
    assert all(cell in (1, 2, 4, 8, 16) for cell in cells)


def test_a_root_port_with_nothing_of_ours_below_it_is_read_but_not_watched(tmp_path: Path) -> None:
    """Its x8 of x16 may well be the card below it, and costs no GPU, adapter or drive a lane."""
    lab = laid(SHARED / "pcie/sysfs", "procfs-fixtures", tmp_path)
    assert "0000:00:03.0" not in lab.table("pcie").keys
    tree = Tree(str(tmp_path / "tree"), Call())
    base = "sys/bus/pci/devices/0000:00:03.0"
    assert [tree.cell(f"{base}/{name}_link_width") for name in ("current", "max")] == [8, 16]


def test_an_aer_total_is_its_own_line_and_not_the_sum(tmp_path: Path) -> None:
    lab = laid(SHARED / "pcie/sysfs", "procfs-fixtures", tmp_path)
    assert lab.value("pcie", "0000:00:1f.6", "aer_correctable_total") == 9


def test_without_maxima_no_width_is_judged(tmp_path: Path) -> None:
    lab = laid(SHARED / "pcie/sysfs", "gcm-a100-healthy", tmp_path)
    assert [lab.table("pcie").value("width_expected_lanes", row) for row in range(8)] == [None] * 8


def test_a_speed_that_pcie_does_not_have_is_unknown(tmp_path: Path) -> None:
    path = SHARED / "pcie/sysfs/gcm-storage-downlink.sysfs.json"
    if not path.is_file():
        pytest.skip("needs the recorded samples")
    sample = load(path)
    # The recording has link files only; a class makes its functions drives.
    for name in list(sample):
        sample[name.rpartition("/")[0] + "/class"] = "0x010802\n"
    lab = Lab(unpack(sample, tmp_path / "tree"))
    lab.poll()
    odd = [name.split("/")[-2] for name, text in sample.items() if text == "4 GT/s\n"]
    assert len(odd) == 1
    assert lab.value("pcie", odd[0], "speed_gts") is None
    assert "4 GT/s" in lab.why("pcie", odd[0], "speed_gts")
    assert lab.value("pcie", odd[0], "width_lanes") is not None
    others = [row for row in range(len(lab.table("pcie"))) if lab.table("pcie").keys[row] != odd[0]]
    assert all(lab.table("pcie").value("speed_gts", row) is not None for row in others)


def mixed(tmp_path: Path) -> Lab:
    """Our own tree of every kind of adapter."""
    lab = Lab(unpack(load(DATA / "rdma-mixed.sysfs.json"), tmp_path / "tree"))
    lab.poll()
    lab.poll()
    return lab


@pytest.mark.parametrize(
    ("port", "column", "expected"),
    [
        ("ibs1/1", "port_xmit_data", 4e12),
        ("ibs1/1", "out_of_sequence", 12),
        ("ibs1/1", "saturated_counters", 3),
        ("ibs1/1", "port_xmit_wait", 2489603687),
        ("ibs1/1", "lanes", 4),
        ("i40iw0/1", "symbol_error", None),
        ("i40iw0/1", "hard_errors_total", None),
        ("rocep3s0f0/1", "tx_bytes", 4000),
        ("rocep3s0f0/1", "rp_cnp_handled", 9),
        ("rocep3s0f0/1", "retrans_pkts", 5),
        ("rocep3s0f0/1", "symbol_error", None),
        ("rocep3s0f0/1", "rate_missing_ratio", None),
        ("rdmap0s6/1", "tx_bytes", 9000),
        ("rdmap0s6/1", "retrans_pkts", 2),
        ("mlx4_0/1", "lanes", 1),
        ("mlx4_0/1", "rate_expected_bits_per_second", 40e9),
        ("mlx4_0/1", "rate_missing_ratio", 0.75),
        ("mlx4_0/1", "saturated_counters", 1),
        ("mlx4_0/1", "transmit_bytes_per_second", 0),
        ("mlx4_0/2", "link", 4),
        ("mlx4_0/2", "never_used", 1),
        ("mlx4_0/2", "rate_bits_per_second", None),
    ],
)
def test_right_readings_of_our_own_rdma_tree(port: str, column: str, expected: float | None, tmp_path: Path) -> None:
    assert mixed(tmp_path).value("port", port, column) == expected


def test_counters_that_nobody_knows_are_named(tmp_path: Path) -> None:
    lab = mixed(tmp_path)
    ports = lab.table("port")
    assert ports.attrs[lab.row("port", "ibs1/1")]["unclassified"] == ["counters/port_future_counter"]
    others = [ports.attrs[row] for row in range(len(ports)) if ports.labels[row] != "ibs1/1"]
    assert all("unclassified" not in attrs for attrs in others)


def test_an_infiniband_link_on_one_lane_is_slow_and_one_of_ethernet_is_not(tmp_path: Path) -> None:
    lab = mixed(tmp_path)
    slow = [one for one in lab.alerts if one.rule == "rdma_link_rate"]
    assert [one.thing.label for one in slow] == ["mlx4_0/1"]
    assert slow[0].message == "runs at 10 Gb/sec (1X QDR), expected 40.0 Gb/s"


def test_right_readings_of_our_own_pcie_tree(tmp_path: Path) -> None:
    lab = Lab(unpack(load(DATA / "pcie-mixed.sysfs.json"), tmp_path / "tree"))
    lab.poll()
    lab.poll()
    assert lab.value("pcie", "0000:01:00.0", "speed_gts") == 16
    assert lab.value("pcie", "0000:01:00.0", "speed_max_gts") is None
    assert lab.value("pcie", "0000:01:00.0", "aer_correctable_total") == 9
    assert lab.value("pcie", "0000:00:1f.6", "width_lanes") is None
    assert [(one.rule, one.thing.key) for one in lab.alerts] == [("pcie_width", "0000:01:00.0")]
