"""Cases A3, A4, A9, A12, B3 to B7, B9, B11 and B12 on the field's own inputs, from files on a node to alerts.

Each of them has a test on inputs of ours as well, in ``test_cases.py``. Where we do something else than a case
proposes, the test says what and why.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.model import Severity
from clustertop.signals import rdma
from clustertop.signals.units import pci_key
from samples.lab import Lab
from samples.test_cases import GPU, NIC, PORT, faulty, port, probe_once, state
from trees import NodeTree

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["faulty"]
CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"needs the field's cases in {CASES}")


def load(case: str, name: str) -> Any:
    """A JSON file of a case."""
    return json.loads((CASES / case / name).read_text(encoding="utf-8"))


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path / "node")


def write_links(tree: NodeTree, address: str, kind: str, device: Mapping[str, str | None], above: str = "") -> str:
    """One PCI function; returns its path below /sys."""
    base = f"{above or 'sys/devices/pci0000:00'}/{address}"
    tree.write(f"{base}/class", kind)
    for name, text in device.items():
        if name != "parent":
            tree.write(f"{base}/{name}", text or "")
    tree.link(f"sys/bus/pci/devices/{address}", base)
    return base


def test_a3_path_width_and_the_hop_at_fault(tree: NodeTree) -> None:
    """A3a, A3b. Two hops in a row are x8; the one nearest to the device is named, which is where its lanes end."""
    sysfs, expect = load("A3", "sysfs.json"), load("A3", "expect.json")
    where: dict[str, str] = {}

    def make(address: str) -> str:
        parent = sysfs[address]["parent"]
        if address not in where:
            above = make(parent) if parent else ""
            children = {one["parent"] for one in sysfs.values()}
            where[address] = write_links(tree, address, "0x060400" if address in children else GPU, sysfs[address], above)
        return where[address]

    for address in sysfs:
        make(address)
    lab = Lab(tree.root)
    lab.poll()
    lab.poll()
    for address, right in expect.items():
        assert lab.value("pcie", address, "path_width_lanes") == right["path_width"]
        at = lab.value("pcie", address, "narrow_hop_row")
        assert at is not None
        assert lab.table("pcie").keys[int(at)] == right["narrowest"]
        assert [(one.rule, one.thing.key) for one in lab.alerts] == [(right["alert"], right["narrowest"])]
        assert right["narrowest"].removeprefix("0000:") in lab.alerts[0].message


def test_a4_widths_and_speeds_that_are_none(tree: NodeTree) -> None:
    """A4a, A4b."""
    sysfs, expect = load("A4", "sysfs.json"), load("A4", "expect.json")
    where = {name: f"0000:0{place + 1}:00.0" for place, name in enumerate(sysfs)}
    for name, device in sysfs.items():
        write_links(tree, where[name], GPU, device)
    lab = Lab(tree.root)
    for _ in range(3):
        lab.poll()
    unknown = {"unknown_max": "width_max_lanes", "unknown_current": "width_lanes"}
    for name, address in where.items():
        column = unknown[expect[name]]
        assert lab.value("pcie", address, column) is None
        assert lab.why("pcie", address, column)
        if expect[name] == "unknown_current":
            assert lab.value("pcie", address, "width_missing_lanes") is None, "not healthy either"
    assert [one.rule for one in lab.raised("pcie_width")] == expect["width_alerts"]


def test_a9_addresses_are_parsed_before_they_are_compared() -> None:
    """A9a."""
    for one, other, same in load("A9", "pairs.json"):
        assert (pci_key(one) == pci_key(other) != "") is same


def test_a12_width_is_judged_with_the_speed_unknown(tree: NodeTree) -> None:
    """A12a, A12b: each adapter on a node of its own, so that neither is the other's peer."""
    sysfs, expect = load("A12", "sysfs.json"), load("A12", "expect.json")
    for name, device in sysfs.items():
        node = NodeTree(tree.root / name)
        write_links(node, "0000:17:00.0", NIC, device)
        lab = Lab(node.root)
        lab.poll()
        lab.poll()
        assert [one.rule for one in lab.alerts] == ([] if expect[name] == "ok" else [expect[name]])
        assert lab.value("pcie", "0000:17:00.0", "path_width_lanes") == int(device["current_link_width"])


def test_b3_no_pma_is_no_counters_for_one_device(tree: NodeTree) -> None:
    """B3a, B3b. "No counters" is said of each counter, with the words that the file holds."""
    expect = load("B3", "expect.json")
    for line in (CASES / "B3" / "sysfs.txt").read_text().splitlines():
        path, _, text = line.partition(":")
        tree.write(path.lstrip("/"), text)
    for name in ("i40iw0", "mlx5_0"):
        state(tree, name, up=True)
    lab = Lab(tree.root)
    lab.poll()
    for name in ("symbol_error", "port_rcv_data"):
        assert expect["i40iw0"] == "no_counters"
        assert lab.value("port", "i40iw0/1", name) is None
        assert "N/A (no PMA)" in lab.why("port", "i40iw0/1", name)
    assert lab.value("port", "mlx5_0/1", "symbol_error") == expect["mlx5_0"]["symbol_error"]
    assert lab.value("port", "mlx5_0/1", "port_rcv_data") == expect["mlx5_0"]["port_rcv_data_bytes"]
    assert not lab.raised()


@pytest.mark.cc
def test_b4_one_file_fails_and_costs_itself(tree: NodeTree, faulty: Path, tmp_path: Path) -> None:
    """B4a, by reads that really fail, in the probe's process."""
    sysfs, expect = load("B4", "sysfs.json"), load("B4", "expect.json")
    (label, files), = sysfs.items()
    device, _, number = label.partition("/")
    bad = {name: text["errno"] for name, text in files.items() if isinstance(text, dict)}
    state(tree, device, int(number), up=True)
    for name, text in files.items():
        tree.write(f"{PORT.format(device, number)}/counters/{name}", "0" if name in bad else text)
    faults = "".join(f"{getattr(errno, code)} counters/{name}\n" for name, code in bad.items())
    frame = probe_once(tree.root, faulty, faults, tmp_path)
    lab = Lab(tree.root)
    assert lab.core.on_frame(0, 1000.0, 1.7e9, frame, b"")
    lab.core.tick(1000.0, 1.7e9)
    assert {name: lab.why("port", label, name) for name in bad} == expect["errors"]
    known = [name for name in files if lab.value("port", label, name) is not None]
    assert len(known) == expect["values"]


def test_b5_every_device_is_listed_whatever_it_lacks(tree: NodeTree) -> None:
    """B5a, B5b."""
    files = (CASES / "B5" / "tree.txt").read_text().split()
    for file in files:
        text = {"state": "4: ACTIVE", "board_id": "MT_0000000838"}.get(file.rpartition("/")[2], "5")
        tree.write(f"sys/class/infiniband/{file}", text)
    lab = Lab(tree.root)
    lab.poll()
    labels = {"{0}/{2}".format(*file.split("/")) for file in files if "/ports/" in file}
    assert set(lab.table("port").labels) == labels
    for label in labels:
        has = {name: any(file.startswith(label.replace("/", "/ports/") + f"/{folder}/") for file in files)
               for name, folder in (("symbol_error", "counters"), ("out_of_sequence", "hw_counters"))}
        assert lab.value("port", label, "link") == rdma.UP
        for name, there in has.items():
            mine = lab.value("port", label, name)
            assert (mine is None) or there
            assert mine is not None or lab.why("port", label, name) == "not provided"


def test_b6_link_layer_driver_and_files_decide(tree: NodeTree) -> None:
    """B6a, B6b: the same ports under each other's names are the same ports."""
    devices = load("B6", "devices.json")

    def lay(names: list[str]) -> Lab:
        node = NodeTree(tree.root / "-".join(names)[:20])
        for place, (device, name) in enumerate(zip(devices, names, strict=True)):
            address = f"0000:{0x17 + place:02x}:00.0"
            base = f"sys/devices/pci0000:00/{address}"
            node.write(f"{base}/class", NIC)
            node.link(f"{base}/driver", f"sys/bus/pci/drivers/{device['driver']}")
            node.directory(f"sys/bus/pci/drivers/{device['driver']}")
            port(node, name, link_downed=place)
            node.write(f"{PORT.format(name, 1)}/link_layer", device["link_layer"])
            node.write(f"{PORT.format(name, 1)}/hw_counters/rx_bytes", 4000 + place)
            node.link(f"sys/class/infiniband/{name}/device", base)
        lab = Lab(node.root)
        lab.poll()
        lab.poll()
        return lab

    def told(lab: Lab) -> dict[str, Any]:
        table = lab.table("port")
        columns = ("link_downed", "rx_bytes", "rate_bits_per_second", "link")
        return {key: ({**table.attrs[row], "dev": ""}, [table.value(column, row) for column in columns])
                for row, key in enumerate(table.keys)}

    own = [device["name"] for device in devices]
    first, second = lay(own), lay(own[::-1])
    assert set(first.table("port").labels) == set(second.table("port").labels) == {f"{name}/1" for name in own}
    assert told(first) == told(second)
    assert sorted(told(first)) == [f"0000:{0x17 + place:02x}:00.0/1" for place in range(len(own))]


def test_b7_the_port_without_a_partner_is_named_and_is_no_capacity(tree: NodeTree) -> None:
    """B7a, B7b."""
    ports, expect = load("B7", "ports.json"), load("B7", "expect.json")
    for one in ports:
        port(tree, one["dev"])
    lab = Lab(tree.root)
    lab.poll()
    for one in ports:
        for file in ("state", "phys_state", "rate"):
            tree.write(f"{PORT.format(one['dev'], 1)}/{file}", one[file])
    lab.poll()
    lab.poll()
    alert, = lab.alerts
    assert (alert.rule, alert.thing.label) == ("rdma_port_down", "mlx5_10/1")
    assert expect["mlx5_10"] == "down_polling"
    assert lab.value("port", "mlx5_10/1", "link") == rdma.POLLING
    rates = lab.table("port").col("rate_bits_per_second")
    assert rates[rates == rates].sum() == expect["capacity_gbps"] * 1e9
    assert not lab.raised("rdma_link_rate")


@pytest.mark.parametrize(("series", "rule", "severity"), [
    ("flap", "rdma_port_flap", Severity.WARNING), ("drop", "rdma_port_down", Severity.CRITICAL)])
def test_b9_each_series_is_one_alert_of_its_class(
    series: str, rule: str, severity: Severity, tree: NodeTree
) -> None:
    """B9a. A drop is told after two polls, not after the four minutes of the case: FIELD.md's table."""
    told = load("B9", "series.json")
    port(tree, "mlx5_0", link_downed=0)
    port(tree, "mlx5_1", link_downed=0)
    lab = Lab(tree.root)
    downs = 0
    before = "U"
    for step in told[series]:
        state(tree, "mlx5_0", up=step == "U")
        downs += (before, step) == ("U", "D")
        before = step
        tree.write(f"{PORT.format('mlx5_0', 1)}/counters/link_downed", downs)
        lab.poll(told["step_s"])
    raised, = lab.raised()
    assert (raised.rule, raised.severity, raised.thing.label) == (rule, severity, "mlx5_0/1")
    assert load("B9", "expect.json")[series] == {"rdma_port_flap": "port_flap", "rdma_port_down": "port_drop"}[rule]


def test_b11_virtual_functions_go_under_their_parent(tree: NodeTree) -> None:
    """B11a, B11b: by device/physfn alone; what they cannot be asked raises nothing."""
    devices, expect = load("B11", "devices.json"), load("B11", "expect.json")
    for place, device in enumerate(devices):
        address, name = f"0000:17:00.{place}", device["name"]
        tree.write(f"sys/devices/pci0000:00/{address}/class", NIC)
        port(tree, name, link_downed="N/A (no PMA)" if device["physfn"] else 0)
        tree.write(f"sys/class/infiniband/{name}/node_guid", device["node_guid"])
        tree.link(f"sys/class/infiniband/{name}/device", f"sys/devices/pci0000:00/{address}")
        if device["physfn"]:
            tree.link(f"sys/devices/pci0000:00/{address}/physfn", "sys/devices/pci0000:00/0000:17:00.0")
    lab = Lab(tree.root)
    for _ in range(3):
        lab.poll()
    virtual = {device["name"]: lab.value("port", f"{device['name']}/1", "virtual") for device in devices}
    assert [name for name, flag in virtual.items() if not flag] == expect["physical"]
    assert [name for name, flag in virtual.items() if flag] == expect["vf"]
    assert lab.value("node", "n0", "ports_expected") == len(expect["physical"])
    assert not lab.raised()


def test_b12_an_error_is_no_absence(tree: NodeTree) -> None:
    """B12a. The listing fails as a directory that cannot be read does; B12b is the alert log's."""
    polls, expect = load("B12", "polls.json"), load("B12", "expect.json")
    folder, aside = tree.root / "sys/class/infiniband", tree.root / "aside"
    every = sorted({name for poll in polls for name in poll.get("list", ())})
    for name in every:
        port(tree, name)
    lab = Lab(tree.root)
    raised_at = []
    for number, poll in enumerate(polls):
        if "error" in poll:
            folder.rename(aside)
            folder.write_text("")
        for name in every:
            gone = tree.root / f"gone-{name}"
            if "list" in poll and name not in poll["list"] and (folder / name).exists():
                (folder / name).rename(gone)
        if [one for one in lab.poll() if one.kind == "raised"]:
            raised_at.append(number)
        if "error" in poll:
            folder.unlink()
            aside.rename(folder)
    assert raised_at == [expect["missing_alert_at"]]
    assert lab.raised()[0].message == "port MISSING"
