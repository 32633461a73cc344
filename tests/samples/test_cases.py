"""Field cases A3, A4, A12 and B1 to B12, from files on a node to alerts, on inputs of our own."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clustertop.model import Severity
from clustertop.signals import rdma
from clustertop.wire import frame as wire
from samples.lab import Lab
from tools import need
from trees import NodeTree

PORT = "sys/class/infiniband/{}/ports/{}"


def port(tree: NodeTree, device: str = "mlx5_0", number: int = 1, *, up: bool = True, **counters: object) -> None:
    """Write one port: NDR, InfiniBand, with the named files of ``counters``."""
    base = PORT.format(device, number)
    tree.write(f"{base}/link_layer", "InfiniBand")
    state(tree, device, number, up=up)
    for name, value in counters.items():
        tree.write(f"{base}/counters/{name}", value)


def state(tree: NodeTree, device: str = "mlx5_0", number: int = 1, *, up: bool) -> None:
    """Bring a port up, or let it lose its partner."""
    base = PORT.format(device, number)
    tree.write(f"{base}/state", "4: ACTIVE" if up else "1: DOWN")
    tree.write(f"{base}/phys_state", "5: LinkUp" if up else "2: Polling")
    tree.write(f"{base}/rate", "400 Gb/sec (4X NDR)" if up else "10 Gb/sec (4X SDR)")


def links(tree: NodeTree, *chain: tuple[str, str, str, str, str, str]) -> None:
    """Write a chain of PCI functions, root port first: address, class, widths and speeds (now, most)."""
    base = "sys/devices/pci0000:00"
    for address, kind, width, most, speed, fastest in chain:
        base += f"/{address}"
        for name, text in (("class", kind), ("current_link_width", width), ("max_link_width", most),
                           ("current_link_speed", speed), ("max_link_speed", fastest)):
            tree.write(f"{base}/{name}", text)
        tree.link(f"sys/bus/pci/devices/{address}", base)


GEN5, GEN4 = "32.0 GT/s PCIe", "16.0 GT/s PCIe"
BRIDGE, GPU, NIC = "0x060400", "0x030200", "0x020700"


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path / "node")


def test_a3_the_narrow_part_is_two_levels_above_the_endpoint(tree: NodeTree) -> None:
    links(tree, ("0000:00:01.1", BRIDGE, "16", "16", GEN5, GEN5), ("0000:01:00.0", BRIDGE, "8", "16", GEN4, GEN5),
          ("0000:02:00.0", BRIDGE, "16", "16", GEN5, GEN5), ("0000:03:00.0", GPU, "16", "16", GEN5, GEN5))
    lab = Lab(tree.root)
    lab.poll()
    lab.poll()
    assert lab.value("pcie", "0000:03:00.0", "width_lanes") == 16
    assert lab.value("pcie", "0000:03:00.0", "path_width_lanes") == 8
    alert, = [one for one in lab.alerts if one.rule == "pcie_width"]
    assert alert.thing.key == "0000:01:00.0"
    assert "x8, expected x16, at hop 01:00.0 above it" in alert.message


@pytest.mark.parametrize(
    ("width", "most", "speed", "fastest"),
    [("16", "255", GEN4, "Unknown speed"), ("0", "16", "Unknown", GEN5), ("", "16", "", GEN4), ("7", "16", GEN4, GEN4),
     ("Unknown", "0", "", "")],
)
def test_a4_what_is_no_lane_count_is_unknown_and_raises_nothing(
    width: str, most: str, speed: str, fastest: str, tree: NodeTree
) -> None:
    links(tree, ("0000:00:01.0", GPU, width, most, speed, fastest))
    lab = Lab(tree.root)
    for _ in range(3):
        lab.poll()
    shown = [lab.value("pcie", "0000:00:01.0", name) for name in ("width_lanes", "width_max_lanes")]
    assert shown == [16 if width == "16" else None, 16 if most == "16" else None]
    missing = lab.value("pcie", "0000:00:01.0", "width_missing_lanes")
    assert missing is None or shown == [16, None], "not known, not fine"
    assert lab.value("pcie", "0000:00:01.0", "lost_bytes_per_second") in (None, 0)
    assert not lab.raised()


@pytest.mark.parametrize(("width", "alerts"), [("16", []), ("8", ["pcie_width"])])
def test_a12_width_is_judged_where_the_speed_is_unknown(width: str, alerts: list[str], tree: NodeTree) -> None:
    links(tree, ("0000:00:02.0", NIC, width, "16", GEN4, "Unknown"))
    lab = Lab(tree.root)
    lab.poll()
    lab.poll()
    assert [one.rule for one in lab.alerts] == alerts


def test_b1_data_counters_count_words_of_four_bytes(tree: NodeTree) -> None:
    port(tree, port_xmit_data=1_000_000_000, port_xmit_packets=100)
    lab = Lab(tree.root)
    lab.poll()
    assert lab.value("port", "mlx5_0/1", "transmit_bytes_per_second") is None
    port(tree, port_xmit_data=2_250_000_000, port_xmit_packets=200)
    lab.poll(10)
    assert lab.value("port", "mlx5_0/1", "transmit_bytes_per_second") == 500e6
    assert lab.value("port", "mlx5_0/1", "transmit_packets_per_second") == 10


def test_b2_a_counter_at_its_end_is_saturated_not_quiet(tree: NodeTree) -> None:
    port(tree, link_downed=255, port_xmit_discards=65535, excessive_buffer_overrun_errors=15,
         port_xmit_wait=4294967295, symbol_error=0, port_rcv_switch_relay_errors=2)
    lab = Lab(tree.root)
    for _ in range(4):
        lab.poll()
    alert, = lab.alerts
    assert (alert.rule, alert.severity) == ("rdma_saturated", Severity.INFO)
    assert sorted(alert.message.partition(": ")[2].split(", ")) == [
        "excessive_buffer_overrun_errors", "link_downed", "port_xmit_discards", "port_xmit_wait"]
    assert len(lab.seen) == 1


def test_b2_a_narrow_data_counter_at_its_end_has_no_rate(tree: NodeTree) -> None:
    port(tree, port_xmit_data=4294967295)
    lab = Lab(tree.root)
    lab.poll()
    lab.poll()
    assert lab.value("port", "mlx5_0/1", "transmit_bytes_per_second") is None
    assert "saturated" in lab.why("port", "mlx5_0/1", "transmit_bytes_per_second")


def test_b3_no_pma_costs_one_device_its_counters(tree: NodeTree) -> None:
    port(tree, "i40iw0", symbol_error="N/A (no PMA)", port_rcv_data="N/A (no PMA)")
    port(tree, "mlx5_0", symbol_error=3, port_rcv_data=777)
    lab = Lab(tree.root)
    lab.poll()
    assert lab.value("port", "i40iw0/1", "symbol_error") is None
    assert "N/A (no PMA)" in lab.why("port", "i40iw0/1", "symbol_error")
    assert lab.value("port", "i40iw0/1", "soft_errors_total") is None
    assert lab.value("port", "mlx5_0/1", "symbol_error") == 3
    assert lab.value("port", "mlx5_0/1", "port_rcv_data") == 3108
    port(tree, "mlx5_0", symbol_error="N/A (no PMA)", port_rcv_data=778)
    lab.poll()
    assert lab.value("port", "mlx5_0/1", "symbol_error") is None
    port(tree, "mlx5_0", symbol_error=4, port_rcv_data=779)
    lab.poll()
    assert lab.value("port", "mlx5_0/1", "soft_errors_total") == 1


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes reads fail."""
    compiler = need("cc", "gcc")
    library = tmp_path_factory.mktemp("faulty") / "faulty.so"
    source = Path(__file__).with_name("faulty.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    return library


def probe_once(root: Path, library: Path, faults: str, tmp_path: Path) -> wire.Frame:
    """One frame of the real probe, in a process where files fail as *faults* says."""
    listed = tmp_path / "faults"
    listed.write_text(faults)
    env = {**os.environ, "LD_PRELOAD": str(library), "CLUSTERTOP_TEST_FAULTS": str(listed)}
    done = subprocess.run([sys.executable, "-m", "clustertop.cli", "probe", "--once", "--root", root],
                          env=env, capture_output=True, timeout=240, check=True)
    return wire.decode(done.stdout.strip())


@pytest.mark.cc
@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.ENODATA, errno.EACCES, errno.ENOENT, errno.EAGAIN])
def test_b4_an_error_of_one_file_costs_one_value(code: int, tree: NodeTree, faulty: Path, tmp_path: Path) -> None:
    port(tree, VL15_dropped=0, symbol_error=0, link_downed=1, port_xmit_data=12345)
    frame = probe_once(tree.root, faulty, f"{code} counters/VL15_dropped\n", tmp_path)
    lab = Lab(tree.root)
    assert lab.core.on_frame(0, 1000.0, 1.7e9, frame, b"")
    lab.core.tick(1000.0, 1.7e9)
    assert lab.value("port", "mlx5_0/1", "VL15_dropped") is None
    words = {errno.EACCES: "no permission", errno.ENOENT: "not provided"}
    assert lab.why("port", "mlx5_0/1", "VL15_dropped") == words.get(code, errno.errorcode[code])
    others = [lab.value("port", "mlx5_0/1", name) for name in ("symbol_error", "link_downed", "port_xmit_data")]
    assert others == [0, 1, 49380]


def test_b5_neither_directory_of_counters_has_to_be_there(tree: NodeTree) -> None:
    for number in range(4):
        base = PORT.format(f"irdma{number}", 1)
        tree.write(f"{base}/state", "4: ACTIVE")
        tree.write(f"{base}/hw_counters/ip4InOctets", 100)
    port(tree, symbol_error=1)
    tree.write("sys/class/infiniband/mlx5_0/board_id", "MT_0000000838")
    tree.write(f"{PORT.format('mlx5_0', 1)}/hw_counters/out_of_sequence", 5)
    lab = Lab(tree.root)
    lab.poll()
    assert sorted(lab.table("port").labels) == ["irdma0/1", "irdma1/1", "irdma2/1", "irdma3/1", "mlx5_0/1"]
    assert lab.value("port", "irdma2/1", "rx_bytes") == 100
    assert lab.value("port", "irdma2/1", "symbol_error") is None
    assert lab.why("port", "irdma2/1", "symbol_error") == "not provided"
    assert lab.value("port", "mlx5_0/1", "symbol_error") == 1
    assert lab.value("port", "mlx5_0/1", "out_of_sequence") == 5
    assert "board" not in lab.table("port").attrs[lab.row("port", "irdma0/1")]


@pytest.mark.parametrize("name", ["ibs22f0", "rocep80s0", "rdmap0s6", "mlx5_bond_0", "opap129s0"])
def test_b6_a_name_decides_nothing_and_a_rename_is_not_a_new_port(name: str, tree: NodeTree) -> None:
    address = "0000:17:00.0"

    def device(name: str) -> None:
        port(tree, name, link_downed=7)
        tree.write(f"sys/devices/pci0000:00/{address}/class", NIC)
        tree.link(f"sys/class/infiniband/{name}/device", f"sys/devices/pci0000:00/{address}")

    device(name)
    lab = Lab(tree.root)
    lab.poll()
    shutil.rmtree(tree.root / "sys/class/infiniband" / name)
    device("mlx5_9")
    lab.poll()
    lab.poll()
    assert lab.table("port").keys == (f"{address}/1",)
    assert lab.table("port").labels == ("mlx5_9/1",)
    assert lab.value("port", "mlx5_9/1", "link_downed") == 7
    assert not lab.raised()


def test_b7_a_port_without_a_partner_is_down_and_named_and_its_rate_is_no_capacity(tree: NodeTree) -> None:
    port(tree, "mlx5_0")
    port(tree, "mlx5_10")
    lab = Lab(tree.root)
    lab.poll()
    state(tree, "mlx5_10", up=False)
    lab.poll()
    assert not lab.raised(), "one poll is not enough"
    lab.poll()
    alert, = lab.alerts
    assert (alert.rule, alert.thing.label, alert.severity) == ("rdma_port_down", "mlx5_10/1", Severity.CRITICAL)
    assert alert.message == "port down (polling: no partner signal)"
    assert lab.value("port", "mlx5_10/1", "rate_bits_per_second") is None
    assert lab.value("port", "mlx5_10/1", "rate_missing_ratio") is None
    tree.write(f"{PORT.format('mlx5_10', 1)}/phys_state", "3: Disabled")
    for _ in range(3):
        lab.poll()
    assert lab.value("port", "mlx5_10/1", "link") == rdma.DISABLED
    assert not lab.alerts, "off on purpose is another state"


def test_b7_a_port_that_was_never_up_is_shown_and_not_an_alert(tree: NodeTree) -> None:
    port(tree, "mlx5_0")
    port(tree, "mlx5_1", up=False)
    lab = Lab(tree.root)
    for _ in range(4):
        lab.poll()
    assert lab.value("port", "mlx5_1/1", "never_used") == 1
    assert lab.value("port", "mlx5_0/1", "never_used") == 0
    assert not lab.raised()


def test_b9_a_flap_is_one_warning_that_stays_a_while(tree: NodeTree) -> None:
    port(tree, "mlx5_0", link_downed=0)
    port(tree, "mlx5_1", link_downed=0)
    lab = Lab(tree.root)
    for up in "UUDUU":
        state(tree, "mlx5_0", up=up == "U")
        if up == "D":
            tree.write(f"{PORT.format('mlx5_0', 1)}/counters/link_downed", 1)
        lab.poll(30)
    raised, = lab.raised()
    assert (raised.rule, raised.severity, raised.thing.label) == ("rdma_port_flap", Severity.WARNING, "mlx5_0/1")
    for _ in range(18):
        lab.poll(30)
    assert [one.rule for one in lab.alerts] == ["rdma_port_flap"]
    for _ in range(4):
        lab.poll(30)
    assert not lab.alerts
    assert len(lab.raised()) == 1


def test_b9_a_drop_is_one_critical_alert_after_two_polls(tree: NodeTree) -> None:
    """The case proposes four minutes; FIELD.md's table says two polls: an operator wants to know at once."""
    port(tree, "mlx5_0", link_downed=0)
    port(tree, "mlx5_1")
    lab = Lab(tree.root)
    for number, up in enumerate("UDDDDDDDDDD"):
        state(tree, "mlx5_0", up=up == "U")
        if number == 2:
            tree.write(f"{PORT.format('mlx5_0', 1)}/counters/link_downed", 1)
        lab.poll(30)
    raised, = lab.raised()
    assert (raised.rule, raised.severity) == ("rdma_port_down", Severity.CRITICAL)


def test_b9_all_ports_of_a_node_are_one_alert(tree: NodeTree, tmp_path: Path) -> None:
    other = NodeTree(tmp_path / "other")
    for one in (tree, other):
        for number in range(4):
            port(one, f"mlx5_{number}", link_downed=0)
    lab = Lab(tree.root, other.root)
    lab.poll()
    for number in range(4):
        state(tree, f"mlx5_{number}", up=False)
        tree.write(f"{PORT.format(f'mlx5_{number}', 1)}/counters/link_downed", 1)
    for _ in range(3):
        lab.poll()
    raised, = lab.raised()
    assert (raised.rule, raised.thing.node) == ("rdma_all_ports_down", "n0")
    alert, = lab.alerts
    assert alert.message == "all 4 RDMA ports of the node are down"
    assert alert.members == ("mlx5_0/1", "mlx5_1/1", "mlx5_2/1", "mlx5_3/1")
    assert lab.value("node", "n0", "ports_down") == 4
    assert lab.value("node", "n1", "all_ports_down", 1) == 0
    state(tree, "mlx5_0", up=True)
    for _ in range(3):
        lab.poll()
    assert sorted((one.thing.label, one.rule, one.members) for one in lab.alerts) == [
        ("RDMA ports", "rdma_port_down", ("mlx5_1/1", "mlx5_2/1", "mlx5_3/1")),
        ("mlx5_0/1", "rdma_hard_errors", ())]  # its link_downed, now that nothing else tells of it


def test_b10_only_increases_are_events_and_many_are_a_flap(tree: NodeTree) -> None:
    port(tree, link_downed=7)
    lab = Lab(tree.root)
    for value in (7, 7):
        port(tree, link_downed=value)
        lab.poll(60)
    assert not lab.seen
    assert lab.value("port", "mlx5_0/1", "link_downed") == 7
    port(tree, link_downed=8)
    lab.poll(60)
    raised, = lab.raised()
    assert raised.rule == "rdma_hard_errors"
    assert raised.message == "hard errors: 1 in the last minute, 1 since seen (link_downed 8 since boot)"
    port(tree, link_downed=19)
    lab.poll(60)
    assert [one.rule for one in lab.raised()] == ["rdma_hard_errors", "rdma_port_flap"]
    assert "12 times in the last ten minutes" in lab.raised()[-1].message


def test_b10_a_counter_that_went_back_is_a_reset(tree: NodeTree) -> None:
    port(tree, link_downed=9)
    lab = Lab(tree.root)
    lab.poll()
    port(tree, link_downed=0)
    lab.poll()
    assert not lab.raised()
    port(tree, link_downed=1)
    lab.poll()
    assert [one.rule for one in lab.raised()] == ["rdma_hard_errors"]


def test_b11_a_virtual_function_is_no_port_of_its_own(tree: NodeTree) -> None:
    for number, function in enumerate(("0000:17:00.0", "0000:17:00.1", "0000:17:00.2")):
        name = ("mlx5_0", "mlx5_2", "mlx5_3")[number]
        tree.write(f"sys/devices/pci0000:00/{function}/class", NIC)
        port(tree, name, link_downed=0)
        tree.write(f"sys/class/infiniband/{name}/node_guid", ("b8ce:f603:0000:0001", "0000:0000:0000:0000",
                                                               "b8ce:f603:0000:0003")[number])
        tree.link(f"sys/class/infiniband/{name}/device", f"sys/devices/pci0000:00/{function}")
        if number:
            tree.link(f"sys/devices/pci0000:00/{function}/physfn", "sys/devices/pci0000:00/0000:17:00.0")
    lab = Lab(tree.root)
    lab.poll()
    assert [lab.value("port", f"{name}/1", "virtual") for name in ("mlx5_0", "mlx5_2", "mlx5_3")] == [0, 1, 1]
    assert lab.table("port").attrs[lab.row("port", "mlx5_2/1")]["physfn"] == "0000:17:00.0"
    assert lab.value("node", "n0", "ports_expected") == 1
    state(tree, "mlx5_2", up=False)
    for _ in range(3):
        lab.poll()
    assert not lab.raised()
    assert not lab.core.engine.severity(lab.view, "port").any()


def test_b12_what_cannot_be_listed_has_not_gone(tree: NodeTree) -> None:
    port(tree, "mlx5_0")
    port(tree, "mlx5_1")
    folder, aside = tree.root / "sys/class/infiniband", tree.root / "aside"
    lab = Lab(tree.root)
    lab.poll()
    folder.rename(aside)
    folder.write_text("")  # a listing fails: ENOTDIR
    lab.poll()
    assert lab.table("port").present.tolist() == [True, True]
    assert lab.value("port", "mlx5_1/1", "link") is None, "could not be read"
    folder.unlink()
    aside.rename(folder)
    lab.poll()
    assert not lab.raised()
    shutil.rmtree(folder / "mlx5_1")
    lab.poll()
    assert not lab.raised(), "one listing without it is not enough"
    assert lab.value("port", "mlx5_1/1", "link") == rdma.ABSENT
    lab.poll()
    raised, = lab.raised()
    assert (raised.rule, raised.thing.label, raised.message) == ("rdma_port_down", "mlx5_1/1", "port MISSING")


@pytest.mark.cc
def test_b12_the_probe_says_why_it_could_not_list(tree: NodeTree, faulty: Path, tmp_path: Path) -> None:
    port(tree)
    frame = probe_once(tree.root, faulty, f"{errno.EIO} mlx5_0/ports\n", tmp_path)
    assert frame.g["rdma"].tb["port"].e.startswith("EIO: ")
    frame = probe_once(tree.root, faulty, f"{errno.EIO} class/infiniband\n", tmp_path)
    assert frame.g["rdma"].tb["port"].e.startswith("EIO: ")


@pytest.mark.parametrize(
    ("file", "rule", "warning", "critical", "seconds"),
    [("counters/symbol_error", "rdma_symbol_errors", 125, 1300, 60),
     ("counters/link_error_recovery", "rdma_link_recovery", 6, 60, 2),
     ("hw_counters/out_of_sequence", "rdma_soft_errors", 30, 300, 2)],
)
def test_soft_errors_are_counted_by_the_hour_the_minute_and_the_second(
    file: str, rule: str, warning: int, critical: int, seconds: float, tree: NodeTree
) -> None:
    """120 an hour, 5 a minute, 10 a second; ten times that is critical. One in between raises nothing."""
    port(tree)
    path = f"{PORT.format('mlx5_0', 1)}/{file}"
    tree.write(path, 3)
    lab = Lab(tree.root)
    lab.poll()
    tree.write(path, 4)
    lab.poll(seconds)
    assert not lab.seen
    total = 4
    for step, severity in ((warning, Severity.WARNING), (critical, Severity.CRITICAL)):
        for _ in range(9 if rule == "rdma_soft_errors" else 1):
            total += step
            tree.write(path, total)
            lab.poll(seconds)
        assert [(one.rule, one.severity) for one in lab.alerts] == [(rule, severity)]
        assert Path(file).name in lab.alerts[0].message


def test_errors_of_a_long_gap_are_no_storm(tree: NodeTree) -> None:
    port(tree)
    path = f"{PORT.format('mlx5_0', 1)}/hw_counters/out_of_sequence"
    tree.write(path, 0)
    lab = Lab(tree.root)
    lab.poll()
    tree.write(path, 6000)
    lab.poll(3600)
    lab.poll()
    assert not lab.raised("rdma_soft_errors")
    assert lab.value("port", "mlx5_0/1", "soft_errors_total") == 6000


def test_a_link_slower_than_its_peers_is_found_over_the_fleet(tmp_path: Path) -> None:
    nodes = [NodeTree(tmp_path / f"n{number}") for number in range(4)]
    for number, node in enumerate(nodes):
        port(node)
        node.write("sys/class/infiniband/mlx5_0/board_id", "MT_0000000838")
        if number == 2:
            node.write(f"{PORT.format('mlx5_0', 1)}/rate", "200 Gb/sec (4X HDR)")
    lab = Lab(*(node.root for node in nodes))
    lab.poll()
    lab.poll()
    alert, = lab.alerts
    assert (alert.rule, alert.thing.node, alert.severity) == ("rdma_link_rate", "n2", Severity.WARNING)
    assert alert.message == "runs at 200 Gb/sec (4X HDR), expected 400 Gb/s"


def test_a_flap_during_a_gap_is_seen_by_its_counter(tree: NodeTree) -> None:
    port(tree, link_downed=2)
    lab = Lab(tree.root)
    lab.poll()
    port(tree, link_downed=6)
    lab.poll(300)
    lab.poll(20)  # the console itself stood still for five minutes: it waits for its links first
    assert [one.rule for one in lab.raised()] == ["rdma_port_flap"]


def test_frames_are_what_the_command_prints(tree: NodeTree) -> None:
    port(tree, symbol_error=1)
    done = subprocess.run([sys.executable, "-m", "clustertop.cli", "probe", "--once", "--root", tree.root],
                          capture_output=True, timeout=240, check=True)
    assert set(json.loads(done.stdout)["g"]) == {"gpu", "pcie", "rdma", "host", "net", "disk", "screen", "sockets"}
