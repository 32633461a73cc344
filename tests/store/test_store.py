"""The store: frames in any order and condition, one right picture out."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop.model import LinkState, NodeInfo
from clustertop.probe.frames import Encoder, Err, Group
from clustertop.rules.outliers import outliers
from clustertop.signals import host
from clustertop.signals.units import pci_key
from clustertop.store.layout import runs_index
from clustertop.store.view import FRESH, LATE, STALE
from clustertop.wire.frame import FrameError, decode
from nodes import GPU, Fleet, gpus, lost, ports, table


def test_deltas_count_from_the_full_frame_and_a_lost_one_costs_only_itself() -> None:
    fleet = Fleet(rules={})
    fleet.step(gpu=gpus(count=2))
    frames = []
    for power in (500e3, 400e3, 300e3):
        fleet.now += 1
        frames.append(fleet.frame(0, gpu=gpus({"power_mw": power}, {})))
    assert fleet.send(0, frames[2])
    fleet.tick()
    assert fleet["gpu"].value("power_watts", 0) == 300.0
    assert fleet["gpu"].value("power_watts", 1) == 600.0
    fleet.step(gpu=gpus(count=2))
    assert fleet["gpu"].value("power_watts", 0) == 600.0


def test_a_delta_whose_full_frame_was_never_seen_asks_for_one() -> None:
    fleet = Fleet(rules={})
    fleet.frame(0, gpu=gpus(count=2))
    fleet.now += 1
    assert not fleet.say(gpu=gpus({"util": 1}, {}))
    fleet.tick()
    assert len(fleet["gpu"]) == 0


def test_text_and_errors_come_and_go_in_deltas() -> None:
    fleet = Fleet(rules={})
    fleet.step(gpu=gpus({"util": Err("Unknown Error")}, {}))
    assert fleet["gpu"].reason("utilization_ratio", 0) == "Unknown Error"
    fleet.step(gpu=gpus({"util": 50}, {"util": Err("Not Supported")}))
    assert fleet["gpu"].value("utilization_ratio", 0) == 0.5
    assert fleet["gpu"].reason("utilization_ratio", 1) == "not supported"
    fleet.step(gpu=gpus({"util": Err("Unknown Error")}, {}))
    assert fleet["gpu"].value("utilization_ratio", 0) is None
    assert fleet["gpu"].value("utilization_ratio", 1) == 0.95


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_any_sequence_of_deltas_shows_the_last_reading_sent(seed: int) -> None:
    chance = random.Random(seed)
    fleet = Fleet(rules={})
    values: list[Any] = [1, 7, 99, Err("EIO"), None, "12"]
    for _ in range(8):
        cells = [{"util": chance.choice(values), "temp": chance.choice(values)} for _ in range(3)]
        rows = {f"GPU-{index}": {**GPU, **one} for index, one in enumerate(cells)}
        raw = fleet.frame(0, gpu=table(rows))
        fleet.now += 1
        if chance.random() < 0.3 and fleet.core.frames:
            continue
        if not fleet.send(0, raw):
            fleet.encoders[0].want_full()
            continue
        fleet.tick()
        for index, one in enumerate(cells):
            for raw_name, name, scale in (("util", "utilization_ratio", 0.01), ("temp", "temperature_celsius", 1)):
                want = one[raw_name]
                got = fleet["gpu"].value(name, index)
                if isinstance(want, Err) or want is None:
                    assert got is None
                    assert fleet["gpu"].reason(name, index)
                else:
                    assert got == pytest.approx(float(want) * scale)


def test_capacity_grows_without_losing_anything() -> None:
    count = 40
    fleet = Fleet(count, rules={})
    for number in range(count):
        fleet.say(number, gpu=gpus(*({"temp": number + index} for index in range(8))))
    fleet.now += 1
    for number in range(count):
        fleet.say(number, gpu=gpus(*({"temp": number + index + (index == 3)} for index in range(8))))
    fleet.tick()
    view = fleet["gpu"]
    assert len(view) == count * 8
    for number in range(count):
        rows = view.rows_of(number)
        want = [number + index + (index == 3) for index in range(8)]
        assert view.col("temperature_celsius")[rows].tolist() == want


class TestPresence:
    def test_A8_a_vanished_gpu_stays_as_missing_with_no_old_values(self) -> None:  # noqa: N802
        fleet = Fleet()
        fleet.step(gpu=gpus(count=8))
        eight = gpus(count=8)
        seven = table({key: dict(GPU) for key, _ in eight.rows if key != "GPU-5"}, dict(eight.rows))
        fleet.step(gpu=seven)
        assert fleet["gpu"].value("presence", 5) == 2
        assert fleet["gpu"].reason("utilization_ratio", 5) == "missing"
        assert fleet.firing == []
        fleet.step(gpu=seven)
        assert fleet.firing == ["gpu_missing"]
        assert fleet.core.snapshot is not None
        (alert,) = fleet.core.snapshot.alerts
        assert "GPU-5" in alert.message
        assert "00000000:15:00.0" in alert.message
        fleet.step(gpu=eight)
        fleet.step(gpu=eight)
        assert fleet.firing == []
        assert fleet["gpu"].value("presence", 5) == 0

    def test_A5_a_lost_gpu_is_one_row_and_the_others_go_on(self) -> None:  # noqa: N802
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus({}, {}, lost(), {}))
        assert [fleet["gpu"].value("presence", row) for row in range(4)] == [0, 0, 1, 0]
        assert fleet["node"].value("gpus_present", 0) == 3
        assert fleet["node"].value("gpus_known", 0) == 4
        assert fleet.firing == ["gpu_missing"]

    def test_A15_a_driver_that_does_not_answer_is_one_alert_and_no_gpu_is_lost(self) -> None:  # noqa: N802
        fleet = Fleet(2)
        words = "Driver/library version mismatch"
        for _ in range(2):
            fleet.step(gpu=gpus(count=8), port=ports({}))
        for _ in range(5):
            fleet.now += 1
            fleet.say(1, gpu=gpus(count=8))
            fleet.say(0, gpu=gpus(*(lost(words) for _ in range(8))), port=ports({}),
                      states={"gpu": {"st": "error", "e": words}})
            fleet.tick()
        assert fleet.firing == ["group_failed"]
        assert fleet.core.snapshot is not None
        assert words in fleet.core.snapshot.alerts[0].message
        assert np.isnan(fleet["gpu"].col("presence")[fleet["gpu"].rows_of(0)]).all()
        assert (fleet["gpu"].col("presence")[fleet["gpu"].rows_of(1)] == 0).all()

    def test_a_lost_gpu_that_forgot_its_uuid_is_still_the_same(self) -> None:
        fleet = Fleet(rules={})
        fleet.step(gpu=gpus({}, {}))
        rows = {"GPU-0": dict(GPU), "index:1": lost()}
        fleet.step(gpu=table(rows, {"GPU-0": {"index": 0}, "index:1": {"index": 1}}))
        assert fleet["gpu"].keys == ("GPU-0", "GPU-1")
        assert fleet["gpu"].value("presence", 1) == 1
        assert fleet["gpu"].attrs[1]["pci"] == "00000000:11:00.0"

    def test_B12_a_failed_listing_is_not_a_disappearance(self) -> None:  # noqa: N802
        fleet = Fleet()
        both, one = ports({}, {}), ports({})
        for _ in range(2):
            fleet.step(port=both)
        failed = table({}, error="EIO")
        fleet.step(port=failed)
        assert fleet["port"].present.tolist() == [True, True]
        fleet.step(port=one)
        assert fleet.firing == []
        fleet.step(port=one)
        assert fleet.firing == ["rdma_port_down"]

    def test_rows_are_bounded_and_gone_ones_make_room(self) -> None:
        fleet = Fleet(rules={})
        for batch in range(6):
            rows = {f"d{batch}-{index}": {"state": "4: ACTIVE"} for index in range(400)}
            fleet.step(port=table(rows))
        assert len(fleet["port"]) <= 1024
        present = fleet["port"].present
        assert {key for key, there in zip(fleet["port"].keys, present, strict=True) if there} == {
            f"d5-{index}" for index in range(400)}


class TestFreshness:
    def test_H4_dim_then_blank_then_alert(self) -> None:  # noqa: N802
        fleet = Fleet(interval=10.0)
        fleet.step(gpu=gpus(count=1), port=ports({}))
        for second in range(1, 80):
            fleet.now += 1
            fleet.say(port=ports({}), states={"gpu": {"t": 501.0, "n": 1}})
            fleet.tick()
            level = int(fleet["gpu"].level[0])
            if second <= 20:
                assert level == FRESH
            elif 22 <= second <= 50:
                assert level == LATE
                assert fleet["gpu"].value("utilization_ratio", 0) == 0.95
            elif second >= 52:
                assert level == STALE
                assert fleet["gpu"].value("utilization_ratio", 0) is None
                assert fleet["gpu"].reason("utilization_ratio", 0) == "stale"
        assert fleet.firing == ["group_stale"]
        assert fleet["port"].level[0] == FRESH

    def test_a_silent_node_is_one_alert_and_its_values_go(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus(count=8), port=ports({}, {}))
        for _ in range(20):
            fleet.step()
        assert fleet.firing == ["node_stale"]
        assert np.isnan(fleet["gpu"].col("utilization_ratio")).all()
        assert np.isnan(fleet["gpu"].col("presence")).all()

    def test_an_unreachable_node_is_one_alert(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus(count=8), port=ports({}, {}))
        fleet.link(0, LinkState.UNREACHABLE, "connect: timed out")
        for _ in range(30):
            fleet.step()
        assert fleet.firing == ["node_unreachable"]
        fleet.link(0, LinkState.CONNECTING)
        fleet.step()
        assert fleet.firing == ["node_unreachable"]
        fleet.link(0, LinkState.UP)
        fleet.step(gpu=gpus(count=8), port=ports({}, {}))
        assert fleet.firing == []

    def test_a_node_never_read_is_unknown_not_fine(self) -> None:
        fleet = Fleet()
        fleet.link(0, LinkState.CONNECTING)
        fleet.step()
        assert fleet["node"].value("reachable", 0) is None
        assert fleet["node"].value("gpus_present", 0) is None


class TestRates:
    def test_B1_data_counters_count_words_and_only_they(self) -> None:  # noqa: N802
        fleet = Fleet(rules={}, interval=10.0)
        fleet.step(port=ports({"c:port_xmit_data": 1_000_000_000, "c:port_xmit_packets": 100, "c:symbol_error": 5}))
        fleet.step(10, port=ports({"c:port_xmit_data": 2_250_000_000, "c:port_xmit_packets": 200, "c:symbol_error": 5}))
        assert fleet["port"].value("transmit_bytes_per_second", 0) == pytest.approx(500e6)
        assert fleet["port"].value("transmit_packets_per_second", 0) == pytest.approx(10)
        assert fleet["port"].value("symbol_error", 0) == 5

    def test_H7_a_step_of_the_wall_clock_changes_no_rate(self) -> None:  # noqa: N802
        fleet = Fleet()
        rates = []
        for number, skew in enumerate((357.0, 357.0, 0.0, 0.0)):
            fleet.now += 10
            raw = fleet.frame(0, net=table({"eth0": {"rx_bytes": number * 1_000_000}}))
            body = json.loads(raw)
            body["w"] += skew
            fleet.send(0, json.dumps(body).encode())
            fleet.tick()
            rates.append(fleet["net"].value("receive_bytes_per_second", 0))
        assert rates[0] is None
        assert rates[1:] == [pytest.approx(100_000.0)] * 3
        assert "raised node_clock" in fleet.rules
        assert fleet["node"].value("clock_offset_seconds", 0) == pytest.approx(0.0)

    def test_D5_a_reset_is_unknown_once_and_the_baseline_is_new(self) -> None:  # noqa: N802
        fleet = Fleet(rules={})
        got = []
        for value in (9e12, 1e6, 3e6, 5e6):
            fleet.step(10, net=table({"eth0": {"tx_bytes": value}}))
            got.append((fleet["net"].value("transmit_bytes_per_second", 0),
                        fleet["net"].reason("transmit_bytes_per_second", 0)))
        assert got == [(None, "first reading"), (None, "counter reset"), (200_000.0, ""), (200_000.0, "")]

    def test_a_gap_in_a_counter_is_bridged_by_its_own_time(self) -> None:
        fleet = Fleet(rules={})
        for value in (0, Err("EIO"), 3000):
            fleet.step(net=table({"eth0": {"rx_bytes": value}}))
        assert fleet["net"].value("receive_bytes_per_second", 0) == pytest.approx(1500.0)

    def test_a_reboot_makes_new_baselines_even_when_counters_are_higher(self) -> None:
        fleet = Fleet(rules={})
        fleet.step(port=ports({"c:link_downed": 1}))
        fleet.facts[0]["boot_id"] = "b1"
        fleet.step(node_time=3.0, port=ports({"c:link_downed": 9}))
        assert fleet["port"].value("hard_errors_total", 0) == 0

    def test_D3_only_interfaces_with_a_pci_function_are_summed(self) -> None:  # noqa: N802
        fleet = Fleet(rules={})
        attrs = {name: {"name": name, "phys": name.startswith("eth")}
                 for name in ("eth0", "eth1", "bond0", "bond0.10", "lo")}
        for scale in (0, 1):
            rows = {name: {"tx_bytes": value * scale} for name, value in
                    (("eth0", 500), ("eth1", 500), ("bond0", 1000), ("bond0.10", 900), ("lo", 300))}
            fleet.step(net=table(rows, attrs))
        assert fleet["node"].value("network_transmit_bytes_per_second", 0) == pytest.approx(1000.0)

    def test_no_physical_interface_is_unknown_not_zero(self) -> None:
        fleet = Fleet(rules={})
        for value in (0, 10):
            fleet.step(net=table({"lo": {"tx_bytes": value}}, {"lo": {"phys": False}}))
        assert fleet["node"].value("network_transmit_bytes_per_second", 0) is None


class TestHostileFrames:
    @pytest.mark.parametrize("part", [
        {"i": [0, 99], "x": [1.0]}, {"i": [-1, 1], "x": [1.0]}, {"i": [0, 2], "x": [1.0]},
        {"j": [7], "s": ["=x"]}, {"i": [0, 10**9], "x": []},
        {"r": [{"k": "a"}, {"k": "a"}], "c": ["util"], "i": [0, 2], "x": [1, 2]},
    ])
    def test_cells_that_do_not_fit_are_refused(self, part: dict[str, Any]) -> None:
        fleet = Fleet(rules={})
        body = {"r": [{"k": "GPU-0"}], "c": ["util"], **part}
        raw = json.dumps({"v": 1, "q": 1, "b": 1, "t": 1, "w": 1,
                          "g": {"gpu": {"t": 1, "iv": 1, "n": 1, "tb": {"gpu": body}}}}).encode()
        with pytest.raises(FrameError):
            fleet.core.store.frame(0, 1.0, 1.0, decode(raw))
        assert not fleet.send(0, raw)
        fleet.tick()
        assert 0 in fleet.core.bad_frames

    def test_names_that_are_one_once_cleaned_are_told_apart(self) -> None:
        fleet = Fleet(rules={})
        long = "/mnt/" + "x" * 150
        said = {"/mnt/a": 1, "/mnt/a\u200b": 2, "/mnt/a (2)": 3, "/mnt/\x07a": 4, long + "1": 5, long + "2": 6}
        for _ in range(2):
            fleet.step(disk=table({key: {"free": number} for key, number in said.items()}), gpu=gpus(count=2))
            assert not fleet.core.bad_frames
        disk = fleet["disk"]
        cut = long[:127] + "…"
        assert {disk.keys[row]: disk.value("free_bytes", row) for row in range(len(disk.keys))} == {
            "/mnt/a": 1, "/mnt/a (3)": 2, "/mnt/a (2)": 3, "/mnt/a (4)": 4, cut: 5, f"{cut} (2)": 6}
        assert fleet["gpu"].value("utilization_ratio", 1) is not None

    def test_a_bad_frame_of_one_node_leaves_the_others(self) -> None:
        fleet = Fleet(2, rules={})
        fleet.say(1, gpu=gpus(count=2))
        bad = {"v": 1, "q": 1, "b": 1, "t": 1, "w": 1,
               "g": {"gpu": {"t": 1, "iv": 1, "n": 1, "tb": {"gpu": {"r": [{"k": "x"}], "c": ["util"], "i": [5, 5],
                                                                    "x": [1, 2, 3, 4, 5]}}}}}
        assert not fleet.send(0, json.dumps(bad).encode())
        fleet.tick()
        assert fleet["gpu"].value("utilization_ratio", fleet["gpu"].rows_of(1)[0]) == 0.95

    def test_text_of_nodes_is_cleaned(self) -> None:
        fleet = Fleet(rules={})
        fleet.facts[0] = {"kernel": "6.8\x1b]0;owned\x07", "list": ["\u202eabc"]}
        fleet.step(gpu=table({"GPU-\x1b[31m": {"util": 5}}, {"GPU-\x1b[31m": {"name": "A\x00B\nC"}}))
        said = json.dumps([fleet["gpu"].keys, fleet["gpu"].attrs, fleet.view.facts], ensure_ascii=False)
        assert "\\u001b" not in said
        assert "\x1b" not in said
        assert fleet["gpu"].attrs[0]["name"] == "AB C"
        assert fleet.view.facts[0]["list"] == ["abc"]

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.one_of(st.none(), st.integers(-2**70, 2**70), st.text(max_size=12),
                              st.floats(allow_nan=False, allow_infinity=False),
                              st.builds(Err, st.text(max_size=12))), min_size=6, max_size=6))
    def test_garbage_readings_are_unknown_or_what_was_sent_and_never_an_invented_zero(self, cells: list[Any]) -> None:
        fleet = Fleet()
        names = ("util", "temp", "power_mw", "mem_used", "pcie_width", "reasons")
        fleet.step(gpu=table({"GPU-0": dict(zip(names, cells, strict=True))}))
        view = fleet["gpu"]
        for name, cell in zip(names, cells, strict=True):
            metric = view.spec.metrics[view.spec.raw_index[name]]
            value = view.value(metric.name, 0)
            if value is None:
                assert view.reason(metric.name, 0)
                continue
            assert metric.lo <= value <= metric.hi
            sent = int(cell, 16) if isinstance(cell, str) and "x" in cell.lower() else cell
            # The probe rounds to three decimals.
            assert value == pytest.approx(float(sent) * metric.scale, abs=0.0006 * metric.scale)


def test_A9_two_spellings_of_one_address() -> None:  # noqa: N802
    assert pci_key("00000000:0B:00.0") == pci_key("0000:0b:00.0") == pci_key("0b:00.0") == "0000:0b:00.0"
    assert pci_key("00000001:0B:00.0") != pci_key("0000:0b:00.0")
    assert pci_key("nonsense") == pci_key(["0b:00.0"]) == ""


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=6))
def test_runs_name_each_cell_once(pairs: list[tuple[int, int]]) -> None:
    runs = [number for pair in pairs for number in pair]
    want = [cell for start, length in pairs for cell in range(start, start + length)]
    if max([start + length for start, length in pairs], default=0) > 50 or len(want) > 60:
        with pytest.raises(ValueError, match="cells"):
            runs_index(runs, 50)
    elif len(want) <= 50:
        assert runs_index(runs, 50).tolist() == want


def test_racks_and_names_come_from_the_inventory() -> None:
    fleet = Fleet([NodeInfo("a", rack="r1"), NodeInfo("b", rack="r2")], rules={})
    fleet.tick()
    assert fleet["node"].labels == ("a", "b")
    assert [node.rack for node in fleet.view.nodes] == ["r1", "r2"]


def test_a_list_where_a_text_belongs_is_a_text() -> None:
    """Models and names are compared and counted: a node that sends lists for them must not end the console."""
    fleet = Fleet(3)
    fleet.now += 1
    for number in range(3):
        wires, cards = ports({}, {}), gpus({})
        wires.rows = [(key, {**own, **{name: ["x", "y"] for name in ("hca", "board", "fw", "driver", "netdev")}})
                      for key, own in wires.rows]
        cards.rows = [(key, {**own, "name": ["H", "100"], "mig_layout": ["1g.5gb 4.8 GiB"]}) for key, own in cards.rows]
        fleet.say(number, gpu=cards, port=wires)
    fleet.tick()
    assert outliers(fleet.view) == []
    assert fleet["port"].attrs[0]["hca"] == "x y"
    assert fleet["gpu"].attrs[0]["name"] == "H 100"
    assert fleet["gpu"].attrs[0]["mig_layout"] == ["1g.5gb 4.8 GiB"]


def test_a_group_that_says_in_few_bytes_that_there_is_nothing_stays_as_new_as_its_frames() -> None:
    fleet, encoder, group = Fleet(), Encoder(), Group(1.0, 10.0, {}, ms=0.1, st="off", n=1)
    for second in range(1, 100):
        fleet.now += 1.0
        made = encoder.encode({"disk": group}, float(second), fleet.now, {}, fleet.facts[0])
        assert fleet.send(0, json.dumps(made).encode())
        fleet.tick()
    groups = fleet["group"]
    assert groups.keys == ("disk",)
    assert groups.value("group_state", 0) == host.OFF
    assert groups.value("interval_seconds", 0) == 10.0
    assert groups.value("group_age_seconds", 0) < 1.5
    assert not fleet.firing
