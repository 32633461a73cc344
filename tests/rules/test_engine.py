"""Verdicts: raised in time, held through noise and gaps, cleared only by a reading."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop.config import Config, Loaded, RuleOverride
from clustertop.model import LinkState, NodeInfo, Severity
from clustertop.probe.frames import Err
from clustertop.rules.configured import in_force
from clustertop.rules.sanity import check
from clustertop.rules.spec import Clear, Level, Rule, builtin
from clustertop.store.catalogue import SPECS
from nodes import GPU, Fleet, gpus, lost, ports, table


def power_rule(**changes: Any) -> dict[str, Rule]:
    """A rule on power, with limits as a PDU line has them."""
    rule = Rule("power high", "gpu", "power_watts", ">", warning=Level(24.0, for_polls=2),
                clear=Clear(limit=22.8, polls=3))
    return {"power": msgspec.structs.replace(rule, **changes)}


def play(rules: dict[str, Rule], values: list[float | None], seconds: float = 1.0) -> list[tuple[int, str, str]]:
    """Feed *values* (None: a gap) one reading each; returns (index, kind, severity) of each transition."""
    fleet = Fleet(rules=rules, interval=seconds)
    out = []
    for index, value in enumerate(values):
        cell = Err("Unknown Error") if value is None else value * 1000
        changes = fleet.step(seconds, gpu=gpus({"power_mw": cell}))
        out += [(index, change.kind, change.severity.name) for change in changes]
    return out


def test_H1_a_value_near_its_limit_is_one_alert() -> None:  # noqa: N802
    values: list[float | None] = [23.9, 24.1, 24.2, 23.8, 24.2, 23.9, 22.0, 22.1, 22.0, 22.0]
    assert play(power_rule(), values) == [(2, "raised", "WARNING"), (8, "cleared", "WARNING")]


def test_H2_single_gaps_neither_raise_nor_clear() -> None:  # noqa: N802
    rule = power_rule(op="<", warning=Level(3.0, for_polls=2), clear=Clear(polls=2))
    assert play(rule, [5.0, None, 5.1, None, None, 5.05, *([None] * 12)]) == []
    assert play(rule, [2.0, None, 2.0, None, None, 5.0, None, None, 5.0]) == [
        (2, "raised", "WARNING"), (8, "cleared", "WARNING")]


def test_a_firing_alert_outlives_any_gap() -> None:
    assert play(power_rule(), [25.0, 25.0, *([None] * 50), 25.0]) == [(1, "raised", "WARNING")]


def test_for_seconds_counts_our_clock() -> None:
    rule = power_rule(warning=Level(24.0, for_seconds=10.0))
    assert play(rule, [25.0] * 5 + [20.0] + [25.0] * 12) == [(16, "raised", "WARNING")]


def test_worse_keeps_the_alert_and_its_start_and_eases_back() -> None:
    rules = power_rule(critical=Level(28.0, for_polls=2))
    fleet = Fleet(rules=rules)
    for value in (25.0, 25.0, 29.0, 29.0, 25.0, 25.0, 25.0, 20.0, 20.0, 20.0):
        fleet.step(gpu=gpus({"power_mw": value * 1000}))
    assert [(change.kind, change.severity.name) for change in fleet.seen] == [
        ("raised", "WARNING"), ("worsened", "CRITICAL"), ("eased", "WARNING"), ("cleared", "WARNING")]
    assert len({change.since for change in fleet.seen}) == 1
    assert [change.limit for change in fleet.seen] == [24.0, 28.0, 24.0, 24.0]


def test_polls_are_readings_not_ticks() -> None:
    fleet = Fleet(rules=power_rule(), interval=10.0)
    fleet.step(gpu=gpus({"power_mw": 25e3}))
    for _ in range(9):
        fleet.step()
    assert fleet.seen == []
    fleet.step(gpu=gpus({"power_mw": 25e3}))
    assert fleet.rules == ["raised power"]


def test_groups_scope_a_rule() -> None:
    fleet = Fleet([NodeInfo("a", groups=("x",)), NodeInfo("b", groups=("y",))], rules=power_rule(groups=("x",)))
    for _ in range(4):
        fleet.now += 1
        for number in range(2):
            fleet.say(number, gpu=gpus({"power_mw": 25e3}))
        fleet.tick()
    assert [change.thing.node for change in fleet.seen] == ["a"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), st.sampled_from([20.0, 23.5, 25.0, 29.0])), max_size=40))
def test_nothing_clears_without_readings_inside_and_nothing_fires_twice(values: list[float | None]) -> None:
    rules = power_rule(critical=Level(28.0, for_polls=2))
    firing: str | None = None
    inside = 0
    changes = dict.fromkeys(range(len(values)), ())
    for index, kind, severity in play(rules, values):
        changes[index] = (*changes[index], (kind, severity))
    for index, value in enumerate(values):
        if value is not None:
            inside = inside + 1 if value <= 22.8 else 0
        for kind, severity in changes[index]:
            assert value is not None
            if kind == "raised":
                assert firing is None
                assert value > 24.0
                firing = severity
            elif kind == "worsened":
                assert (firing, severity) == ("WARNING", "CRITICAL")
                assert value > 28.0
                firing = severity
            elif kind == "eased":
                assert (firing, severity) == ("CRITICAL", "WARNING")
                firing = severity
            else:
                assert firing is not None
                assert inside >= 3
                firing = None


class TestBuiltinRules:
    def test_every_rule_is_on_a_column_that_exists_and_says_what_to_look_at(self) -> None:
        rules = builtin()
        check(rules, {spec.name: spec for spec in SPECS})
        assert all(rule.title and rule.hint and rule.look and rule.source for rule in rules.values())

    def test_a_healthy_node_raises_nothing(self) -> None:
        fleet = Fleet()
        for _ in range(400):
            fleet.step(gpu=gpus(count=8), port=ports({"c:link_downed": 7, "c:symbol_error": 3}, {}))
        assert fleet.seen == []

    @pytest.mark.parametrize(("change", "rule", "severity"), [
        ({"temp": 83}, "gpu_temperature", "WARNING"),
        ({"temp": 88}, "gpu_temperature", "CRITICAL"),
        ({"pcie_width": 8}, "pcie_width", "CRITICAL"),
        ({"pcie_gen": 3}, "pcie_generation", "WARNING"),
        ({"reasons": 0x40}, "gpu_slowdown", "CRITICAL"),
        ({"reasons": 0x88}, "gpu_power_brake", "CRITICAL"),
        ({"util": 60}, "gpu_straggler", "WARNING"),
        ({"util": 60}, "gpu_utilization", "WARNING"),
        ({"ecc_unc": 2}, "gpu_ecc", "CRITICAL"),
        ({"remap_pending": 1}, "gpu_row_remap_pending", "WARNING"),
        ({"remap_failed": 1}, "gpu_row_remap_failed", "CRITICAL"),
        (lost(), "gpu_missing", "CRITICAL"),
    ])
    def test_each_gpu_fault_raises_its_rule_on_its_gpu_and_clears(
        self, change: dict[str, Any], rule: str, severity: str
    ) -> None:
        fleet = Fleet()
        # A value that is no longer given would not clear anything; a healthy one does.
        usual: list[dict[str, Any]] = [{name: 0 for name in change if name not in GPU} for _ in range(8)]
        for _ in range(5):
            fleet.step(gpu=gpus(*usual))
        for _ in range(310):
            fleet.step(gpu=gpus(*usual[:3], change, *usual[4:]))
        mine = [change for change in fleet.seen if change.rule == rule]
        assert mine, fleet.rules
        assert {"GPU 3" in change.thing.label for change in mine} == {True}
        assert mine[-1].severity.name == severity
        for _ in range(40):
            fleet.step(gpu=gpus(*usual))
        assert fleet.firing == []

    def test_A1_an_idle_gpu_at_gen1_is_power_saving(self) -> None:  # noqa: N802
        fleet = Fleet()
        for _ in range(5):
            fleet.step(gpu=gpus({}, {"util": 0, "pcie_gen": 1, "pstate": 8}))
        assert fleet.seen == []
        assert fleet["gpu"].reason("generation_missing", 1) == "not judged"

    def test_A2_the_ceiling_is_the_lesser_of_card_and_host(self) -> None:  # noqa: N802
        fleet = Fleet()
        for pstate, util, gen in ((8, 0, 1), (5, 7, 2), (2, 60, 3), (0, 99, 3)):
            for _ in range(3):
                fleet.step(gpu=gpus({"pstate": pstate, "util": util, "pcie_gen": gen, "pcie_gen_devmax": 4,
                                     "pcie_gen_max": 3}))
        assert fleet.seen == []

    def test_A10_a_card_that_reports_x8_as_its_maximum_is_caught_by_its_peers(self) -> None:  # noqa: N802
        fleet = Fleet()
        changes: list[dict[str, Any]] = [{} for _ in range(8)]
        changes[5] = {"pcie_width": 8, "pcie_width_max": 8}
        for _ in range(3):
            fleet.step(gpu=gpus(*changes))
        assert [(change.thing.label, change.rule) for change in fleet.seen] == [("GPU 5 15:00.0", "pcie_width")]
        assert "is x8, expected x16" in fleet.seen[0].message

    def test_A11_expected_x8_is_healthy_and_x4_alerts(self) -> None:  # noqa: N802
        fleet = Fleet(expect_width=lambda node, key, attrs: 8.0)
        for _ in range(3):
            fleet.step(gpu=gpus({"pcie_width": 8}))
        assert fleet.seen == []
        for _ in range(3):
            fleet.step(gpu=gpus({"pcie_width": 4}))
        assert fleet.rules == ["raised pcie_width"]

    def test_A14_mig_is_neither_idle_nor_in_an_average(self) -> None:  # noqa: N802
        fleet = Fleet()
        for _ in range(320):
            fleet.step(gpu=gpus({"util": Err("Not Supported"), "mig": 1}, {"util": 90}))
        assert fleet.seen == []
        assert fleet["gpu"].reason("utilization_ratio", 0) == "n/a (MIG)"
        assert fleet["node"].value("gpu_utilization_ratio", 0) == 0.9

    def test_A13_markers_are_unknown(self) -> None:  # noqa: N802
        fleet = Fleet()
        for marker in (2**63 - 14, 2**31 - 16, 4294967295, 2**64 - 1, 140737488355328.0):
            fleet.step(gpu=gpus({"util": marker, "temp": marker, "power_mw": marker, "mem_used": 2**64 - 1}))
            for name in ("utilization_ratio", "temperature_celsius", "power_watts", "memory_used_bytes"):
                assert fleet["gpu"].value(name, 0) is None
                assert fleet["gpu"].reason(name, 0) == "out of range"
        assert fleet.seen == []

    def test_B10_since_boot_is_no_event(self) -> None:  # noqa: N802
        fleet = Fleet()
        for value in (7, 7, 7):
            fleet.step(60, port=ports({"c:link_downed": value}))
        assert fleet.seen == []
        fleet.step(1, port=ports({"c:link_downed": 8}))
        assert "raised rdma_hard_errors" in fleet.rules
        assert fleet["port"].value("link_downed", 0) == 8
        assert fleet["port"].value("hard_errors_total", 0) == 1

    def test_B2_a_counter_at_its_end_is_said_once_and_is_not_quiet(self) -> None:  # noqa: N802
        fleet = Fleet()
        full = {"c:link_downed": 255, "c:port_xmit_discards": 65535, "c:excessive_buffer_overrun_errors": 15,
                "c:port_xmit_wait": 4294967295, "c:symbol_error": 0, "c:port_rcv_switch_relay_errors": 2}
        for _ in range(50):
            fleet.step(port=ports(full))
        assert fleet.rules == ["raised rdma_saturated"]
        assert fleet.seen[0].severity == Severity.INFO
        for name in ("link_downed", "port_xmit_discards", "excessive_buffer_overrun_errors", "port_xmit_wait"):
            assert name in fleet.seen[0].message
        assert fleet["port"].value("saturated_counters", 0) == 4

    def test_B7_a_port_without_a_partner_is_named_and_has_no_rate(self) -> None:  # noqa: N802
        fleet = Fleet()
        fleet.step(port=ports({}, {}))
        down = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}
        for _ in range(3):
            fleet.step(port=ports(down, {}))
        assert [(change.rule, change.thing.label) for change in fleet.seen] == [("rdma_port_down", "mlx5_0/1")]
        assert "down (polling: no partner signal)" in fleet.seen[0].message
        assert fleet["port"].value("rate_bits_per_second", 0) is None

    def test_B7_disabled_is_off_and_not_down(self) -> None:  # noqa: N802
        fleet = Fleet()
        fleet.step(port=ports({}))
        for _ in range(3):
            fleet.step(port=ports({"state": "1: DOWN", "phys_state": "3: Disabled"}))
        assert fleet.seen == []
        assert fleet["port"].value("link", 0) == 3

    def test_a_port_that_was_never_up_is_not_expected_up(self) -> None:
        fleet = Fleet()
        for _ in range(5):
            fleet.step(port=ports({"state": "1: DOWN", "phys_state": "2: Polling"}))
        assert fleet.seen == []

    def test_G4_a_hung_driver_call_is_one_alert_and_names_the_call(self) -> None:  # noqa: N802
        fleet = Fleet()
        fleet.step(gpu=gpus(count=8), port=ports({}))
        for _ in range(100):
            fleet.step(port=ports({}), states={"gpu": {"st": "hung", "w": "nvmlDeviceGetPowerUsage(GPU 3)", "t": 501.0,
                                                       "n": 1}})
        assert fleet.firing == ["probe_hung"]
        assert "nvmlDeviceGetPowerUsage(GPU 3)" in fleet.seen[0].message
        assert fleet["port"].level[0] == 0


def test_A3_the_narrow_hop_above_is_named_and_counted_once() -> None:  # noqa: N802
    wide = {"cur_width": "16", "max_width": "16", "cur_speed": "32.0 GT/s PCIe", "max_speed": "32.0 GT/s PCIe"}
    narrow = {**wide, "cur_width": "8", "cur_speed": "16.0 GT/s PCIe"}
    bridge, gpu = {"class": "0x060400"}, {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"}
    rows = {"0000:00:01.1": narrow, "0000:01:00.0": narrow, "0000:02:00.0": wide, "0000:03:00.0": wide,
            "0000:04:00.0": wide}
    attrs: dict[str, Any] = {
        "0000:00:01.1": {**bridge, "path": []}, "0000:01:00.0": {**bridge, "path": ["0000:00:01.1"]},
        "0000:02:00.0": {**bridge, "path": ["0000:01:00.0", "0000:00:01.1"]},
        "0000:03:00.0": {**gpu, "path": ["0000:02:00.0", "0000:01:00.0", "0000:00:01.1"]},
        "0000:04:00.0": {**gpu, "path": ["0000:02:00.0", "0000:01:00.0", "0000:00:01.1"]}}
    fleet = Fleet()
    for _ in range(3):
        fleet.step(pcie=table(rows, attrs))
    (change,) = fleet.seen
    assert change.rule == "pcie_width"
    assert change.thing.key == "0000:01:00.0"
    assert "03:00.0 is x8, expected x16, at hop 01:00.0 above it" in change.message
    assert "31.5 GB/s lost each way" in change.message
    assert "1 more below that hop" in change.message
    assert fleet.core.snapshot is not None
    assert fleet.core.snapshot.alerts[0].members == ("03:00.0", "04:00.0")


def test_A4_unknown_widths_never_alert_and_never_count_as_healthy() -> None:  # noqa: N802
    gpu = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "path": []}
    rows = {
        "0000:01:00.0": {"cur_width": 16, "max_width": 255, "cur_speed": "16.0 GT/s PCIe",
                         "max_speed": "Unknown speed"},
        "0000:02:00.0": {"cur_width": 0, "max_width": 16, "cur_speed": "Unknown", "max_speed": "32.0 GT/s PCIe"},
        "0000:03:00.0": {"cur_width": "", "max_width": 16, "cur_speed": "", "max_speed": "16.0 GT/s PCIe"},
    }
    fleet = Fleet()
    for _ in range(3):
        fleet.step(pcie=table(rows, dict.fromkeys(rows, gpu)))
    assert fleet.seen == []
    view = fleet["pcie"]
    assert view.value("width_max_lanes", 0) is None
    assert [view.value("width_lanes", row) for row in (1, 2)] == [None, None]
    assert [view.value("width_missing_lanes", row) for row in (1, 2)] == [None, None]


def test_A12_width_is_judged_where_the_speed_is_unknown() -> None:  # noqa: N802
    nic = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "path": []}
    usual = {"max_speed": "Unknown", "max_width": "16", "cur_speed": "16.0 GT/s PCIe", "cur_width": "16"}
    rows = {"0000:01:00.0": usual, "0000:02:00.0": {**usual, "cur_width": "8"}}
    fleet = Fleet()
    for _ in range(3):
        fleet.step(pcie=table(rows, dict.fromkeys(rows, nic)))
    assert [(change.rule, change.thing.key) for change in fleet.seen] == [("pcie_width", "0000:02:00.0")]


def test_A16_link_speed_under_load_then_lost() -> None:  # noqa: N802
    fleet = Fleet(interval=10.0)
    fleet.step(10, gpu=gpus({"util": 98}))
    fleet.step(10, gpu=gpus({"util": 97, "pcie_gen": 1}))
    fleet.step(10, gpu=gpus({"util": 96, "pcie_gen": 1}))
    assert fleet.firing == ["pcie_generation"]
    for _ in range(2):
        fleet.step(10, gpu=gpus(lost()))
    assert "gpu_missing" in fleet.firing


class TestOverrides:
    def test_limits_durations_and_scope(self) -> None:
        change = RuleOverride(warning=30.0, clear=28.0, for_seconds=5.0, for_polls=4, groups=("a",), hint="ask me")
        rule = in_force(Loaded(Config(rules={"power": change})), power_rule()).rules["power"]
        assert rule.warning == Level(30.0, 5.0, 4)
        assert rule.critical is None
        assert rule.clear == Clear(limit=28.0, polls=3)
        assert (rule.groups, rule.hint) == (("a",), "ask me")

    def test_a_rule_on_nothing_is_refused(self) -> None:
        specs = {spec.name: spec for spec in SPECS}
        with pytest.raises(ValueError, match=r"rules.power.metric is wrong: table gpu has no column 'wats'"):
            check(power_rule(metric="wats"), specs)


def test_an_unreachable_node_keeps_its_alerts_under_its_own() -> None:
    fleet = Fleet()
    for _ in range(3):
        fleet.step(gpu=gpus({"temp": 90}))
    assert fleet.firing == ["gpu_temperature"]
    fleet.link(0, LinkState.UNREACHABLE, "no route")
    for _ in range(60):
        fleet.step()
    assert fleet.firing == ["node_unreachable"]
    assert fleet.inside() == ["node_unreachable n0", "gpu_temperature GPU 0"]
    fleet.link(0, LinkState.UP)
    for _ in range(5):
        fleet.step(gpu=gpus({"temp": 60}))
    assert fleet.firing == []
