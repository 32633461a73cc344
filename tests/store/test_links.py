"""Pauses and discards from the driver's counters to the RDMA port; bonds; full file systems; readings not repeated."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from clustertop.probe.frames import Err, Group
from clustertop.rules.spec import builtin
from clustertop.signals import link
from clustertop.wire.frame import decode
from nodes import Fleet, gpus, ports, table

NIC = "0000:21:00.0"


def nic(name: str = "eth4", pci: str = NIC, **counters: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return f"{pci}/{name}", {f"e:{column}": number for column, number in counters.items()}, {
        "name": name, "pci": pci, "phys": True}


def links(*rows: tuple[str, dict[str, Any], dict[str, Any]]) -> Any:
    return table({key: cells for key, cells, _ in rows}, {key: attrs for key, _, attrs in rows})


def port(**attrs: Any) -> Any:
    return table({f"{NIC}/1": {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}},
                 {f"{NIC}/1": {"dev": "mlx5_4", "port": 1, "pci": NIC, **attrs}})


def test_first_sight_rate_and_reset() -> None:
    fleet = Fleet(rules={})

    def rate(column: str = "receive_pause_frames_per_second") -> float | None:
        return fleet["link"].value(column, 0)

    fleet.step(10, link=links(nic(rx_prio3_pause=5000, tx_prio3_pause=0, rx_discards_phy=7, rx_out_of_buffer=1)))
    assert rate() is None, "what was counted before we looked is no event"
    fleet.step(10, link=links(nic(rx_prio3_pause=5400, tx_prio3_pause=0, rx_discards_phy=17, rx_out_of_buffer=11)))
    assert rate() == 40.0
    assert rate("transmit_pause_frames_per_second") == 0.0
    assert rate("discards_per_second") == 2.0
    assert rate("physical_errors_per_second") is None, "not counted is not none"
    fleet.step(1)
    assert rate() == 40.0, "between two readings the last one stands"
    fleet.step(9, link=links(nic(rx_prio3_pause=10, tx_prio3_pause=0, rx_discards_phy=17, rx_out_of_buffer=11)))
    assert rate() is None, "the driver was loaded anew"
    assert rate("discards_per_second") == 0.0
    fleet.step(10, link=links(nic(rx_prio3_pause=60, tx_prio3_pause=0, rx_discards_phy=17, rx_out_of_buffer=11)))
    assert rate() == 5.0
    fleet.step(10, link=links(nic(rx_prio3_pause=Err("ENODEV"), tx_prio3_pause=Err("ENODEV"))))
    assert rate() is None


@pytest.mark.parametrize(("driver", "name"), [
    ("mlx5_core", "rx_prio3_pause"), ("bnxt_en", "rx_pfc_ena_frames_pri3"), ("ice", "rx_priority_3_xoff.nic"),
    ("i40e", "port.rx_priority_3_xoff"), ("mlx4_en", "rx_pause_prio_3"), ("hns3", "mac_rx_pfc_pri3_pkt_num"),
])
def test_every_driver_fills_the_same_column(driver: str, name: str) -> None:
    fleet = Fleet(rules={})
    one = link.known(name)
    assert one is not None
    assert one.driver == driver
    for count in (100, 300):
        # Beside an adapter of another make, whose names the row does not have.
        other = nic("eth5", "0000:22:00.0", **{"rx_prio3_pause" if driver != "mlx5_core" else "rx_pb_3_pxoff": 1})
        fleet.step(10, link=links(nic(**{name: count}), other))
    assert fleet["link"].value("receive_pause_prio3_total", 0) == 300
    assert fleet["link"].value("receive_pause_frames_per_second", 0) == 20.0
    assert fleet["link"].value("receive_pause_frames_per_second", 1) == 0.0


@pytest.mark.parametrize("attrs", [{"netdev": "eth4"}, {}, {"netdev": "renamed0"}])
def test_a_port_has_what_its_interface_counts(attrs: dict[str, Any]) -> None:
    """By the interface's name, else by the PCI function."""
    fleet = Fleet(rules={})
    for count in (0, 250):
        fleet.step(10, port=port(**attrs), link=links(nic(rx_prio3_pause=count, rx_discards_phy=2 * count),
                                                      nic("eth9", "0000:99:00.0", rx_prio3_pause=9 * count)))
    assert fleet["port"].value("receive_pause_frames_per_second", 0) == 25.0
    assert fleet["port"].value("discards_per_second", 0) == 50.0
    assert fleet["port"].value("transmit_pause_frames_per_second", 0) is None


def test_b6_a_bonded_port_has_what_both_of_its_interfaces_count() -> None:
    """Case B6: whatever the device is called; a member that does not tell leaves the sum unknown."""
    fleet = Fleet(rules={})
    both = port(netdev="up0", bond="bond0", netdevs=["up0", "up1"])
    for count in (0, 100):
        fleet.step(10, port=both, link=links(nic("up0", NIC, rx_prio3_pause=count),
                                             nic("up1", "0000:21:00.1", rx_prio3_pause=3 * count)))
    assert fleet["port"].value("receive_pause_frames_per_second", 0) == 40.0
    fleet.step(10, port=both, link=links(nic("up0", NIC, rx_prio3_pause=200),
                                         nic("up1", "0000:21:00.1", rx_prio3_pause=Err("EIO"))))
    assert fleet["port"].value("receive_pause_frames_per_second", 0) is None


def test_two_interfaces_of_one_function_are_not_guessed_between() -> None:
    fleet = Fleet(rules={})
    for count in (0, 100):
        fleet.step(10, port=port(), link=links(nic("a", rx_prio3_pause=count), nic("b", rx_prio3_pause=count)))
    assert fleet["port"].value("receive_pause_frames_per_second", 0) is None


def disks(**rows: tuple[Any, ...]) -> Any:
    names = ("size", "free", "available", "inodes", "inodes_free")
    return table({f"/{name}": dict(zip(names, row, strict=False)) for name, row in rows.items()},
                 {f"/{name}": {"place": f"/{name}", "read_only": name == "cd"} for name in rows})


def test_full_file_systems() -> None:
    fleet = Fleet(rules={"disk_full": builtin()["disk_full"]})
    fine = (1000.0, 500.0, 450.0, 100, 90)
    # /var: of 1000, 950 used and 50 kept for root: df says 100 %, not 95 %.
    fleet.step(10, disk=disks(tmp=fine, var=(1000.0, 50.0, 0.0, 100, 90), scratch=(1000.0, 600.0, 600.0, 100, 8),
                              cd=(1000.0, 0.0, 0.0, 0, 0), odd=(1000.0, 2000.0, 2000.0, 10, 20),
                              btrfs=(1000.0, 400.0, 400.0, Err("Not Supported"), Err("Not Supported"))))
    changes = {change.thing.key: (change.severity.name, change.message) for change in fleet.seen}
    assert changes == {
        "/var": ("CRITICAL", "/var: 100 % used, 0 B free"),
        "/scratch": ("WARNING", "/scratch: 92 % of the inodes used"),
    }
    view = fleet["disk"]
    assert dict(zip(view.keys, view.col("full_ratio").tolist(), strict=True))["/btrfs"] == 0.6
    assert view.value("full_ratio", view.keys.index("/cd")) is None
    assert view.value("read_only", view.keys.index("/cd")) == 1
    assert view.value("full_ratio", view.keys.index("/odd")) is None
    fleet.step(10, disk=disks(tmp=fine, var=(1000.0, 130.0, 130.0, 100, 90), scratch=(1000.0, 600.0, 600.0, 100, 50)))
    assert fleet.firing == []


def test_swap_in_use() -> None:
    fleet = Fleet(rules={})
    fleet.step(node=table({"": {"swap_total": 8e9, "swap_free": 5e9}}))
    assert fleet["node"].value("swap_used_bytes", 0) == 3e9
    fleet.step(node=table({"": {"swap_total": 8e9, "swap_free": Err("EIO")}}))
    assert fleet["node"].value("swap_used_bytes", 0) is None


def test_a_reading_that_is_not_repeated_stands_and_a_lost_one_is_asked_for() -> None:
    fleet = Fleet(rules={})
    encoder = fleet.encoders[0]

    def frame(group: Group, number: int) -> bytes:
        fleet.now += 1
        fast = Group(fleet.now, 1.0, {"gpu": gpus({"power_mw": 1000.0 * number}, {})}, n=number)
        return json.dumps(encoder.encode({"gpu": fast, "net": group}, fleet.now, fleet.now, {}, {})).encode()

    first = Group(1000.0, 10.0, {"link": links(nic(rx_prio3_pause=5))}, n=1)
    second = Group(1010.0, 10.0, {"link": links(nic(rx_prio3_pause=55))}, n=2)
    assert fleet.send(0, frame(first, 1))
    fleet.tick()
    raws = [frame(second, number) for number in range(2, 6)]
    old = [decode(raw).g["net"].o for raw in raws]
    assert old == [0, 0, 1, 1], "twice, so that one lost frame costs nothing"
    assert not decode(raws[2]).g["net"].tb
    assert fleet.send(0, raws[1])
    assert fleet.send(0, raws[2])
    fleet.tick()
    assert fleet["link"].value("receive_pause_prio3_total", 0) == 55
    assert fleet["link"].value("receive_pause_frames_per_second", 0) == 5.0
    assert fleet["gpu"].value("power_watts", 0) == 4.0
    third = Group(1020.0, 10.0, {"link": links(nic(rx_prio3_pause=75))}, n=3)
    raws = [frame(third, number) for number in range(6, 10)]
    assert not fleet.send(0, raws[2]), "both frames that had it were lost: a full one is wanted"
    fleet.tick()
    assert fleet["link"].value("receive_pause_prio3_total", 0) == 55
    encoder.want_full()
    assert fleet.send(0, frame(third, 10))
    fleet.tick()
    assert fleet["link"].value("receive_pause_prio3_total", 0) == 75
    assert not np.isnan(fleet["link"].col("receive_pause_frames_per_second")).any()


def test_ports_without_links_know_nothing_of_pauses() -> None:
    fleet = Fleet(rules={})
    fleet.step(port=ports({}, {}))
    assert np.isnan(fleet["port"].col("receive_pause_frames_per_second")).all()
