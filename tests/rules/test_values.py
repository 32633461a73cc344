"""What rules hold against their limits: growth, peers, absence, trends, and scopes; unknown stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop.model import NodeInfo
from clustertop.probe.frames import Err
from clustertop.rules import values
from clustertop.rules.spec import Clear, Level, Rule
from nodes import GPU, Fleet, gpus, ports, table

if TYPE_CHECKING:
    from clustertop.store.view import TableView

LOST = Err("Unknown Error")


def only(**fields: Any) -> dict[str, Rule]:
    """One rule, called r."""
    return {"r": Rule(**{"title": "it", "table": "gpu", "op": ">", **fields})}


def judged(fleet: Fleet) -> list[float]:
    """What the rule r held against its limits last."""
    return [round(float(value), 3) for value in fleet.core.engine.values("r")]


class TestIncrease:
    RULE = only(metric="pcie_replays_total", kind="increase", window_seconds=60.0, warning=Level(10.0),
                clear=Clear(limit=0.0))

    def step(self, fleet: Fleet, *counts: Any, seconds: float = 2.0) -> None:
        fleet.step(seconds, gpu=gpus(*({"pcie_replays": count} for count in counts)))

    def test_growth_over_the_window_and_never_the_total(self) -> None:
        fleet = Fleet(rules=self.RULE, interval=2.0)
        self.step(fleet, 5000)
        assert np.isnan(fleet.core.engine.values("r")).all(), "one reading has not grown"
        for count in (5000, 5003, 5003, 5009):
            self.step(fleet, count)
        assert judged(fleet) == [9.0]
        assert fleet.seen == []
        self.step(fleet, 5011)
        assert fleet.rules == ["raised r"]
        assert fleet.seen[0].message == "it: 11 more in 60 s"
        assert (fleet.seen[0].value, fleet.seen[0].limit) == (11.0, 10.0)
        for _ in range(40):
            self.step(fleet, 5011)
        assert fleet.rules == ["raised r", "cleared r"]

    def test_a_counter_that_goes_back_begins_anew(self) -> None:
        fleet = Fleet(rules=self.RULE, interval=2.0)
        for count in (900, 904, 2, 5):
            self.step(fleet, count)
        assert judged(fleet) == [7.0]
        assert fleet.seen == []

    def test_a_gap_is_unknown_and_clears_nothing(self) -> None:
        fleet = Fleet(rules=self.RULE, interval=2.0)
        for count in (0, 50):
            self.step(fleet, count)
        for _ in range(60):
            self.step(fleet, LOST)
        assert np.isnan(fleet.core.engine.values("r")).all()
        assert fleet.rules == ["raised r"]
        self.step(fleet, 50)
        assert fleet.rules == ["raised r", "cleared r"]

    def test_what_grew_over_a_long_gap_counts_by_the_windows_share(self) -> None:
        fleet = Fleet(rules=self.RULE, interval=2.0)
        for count in (0, 0):
            self.step(fleet, count)
        self.step(fleet, 100, seconds=600.0)
        assert judged(fleet) == [10.0], "100 in 600 s are 10 in 60 s"
        assert fleet.seen == []

    def test_a_saturated_counter_is_unknown(self) -> None:
        rule = only(table="port", metric="link_downed", kind="increase", window_seconds=60.0, warning=Level(0.0))
        fleet = Fleet(rules=rule)
        for count in (253, 253, 255, 255):
            fleet.step(port=ports({"c:link_downed": count}))
        assert np.isnan(fleet.core.engine.values("r")).all()
        assert fleet.seen == []

    def test_a_gauge_may_fall_and_a_boot_is_a_new_beginning(self) -> None:
        rule = only(metric="memory_used_bytes", kind="increase", window_seconds=60.0, warning=Level(1e9), settles=False)
        fleet = Fleet(rules=rule, interval=2.0)
        for used in (60, 59, 58):
            fleet.step(2, gpu=gpus({"mem_used": used << 30}))
        assert judged(fleet) == [-2.0 * 2**30]
        fleet.facts[0] = {"boot_id": "b1"}
        fleet.encoders[0] = type(fleet.encoders[0])()
        for used in (70, 70):
            fleet.step(2, gpu=gpus({"mem_used": used << 30}))
        assert judged(fleet) == [0.0]
        assert fleet.seen == []

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(0, 9), min_size=2, max_size=40))
    def test_it_is_the_sum_of_what_came_in_the_window(self, steps: list[int]) -> None:
        fleet = Fleet(rules=self.RULE, interval=2.0)
        count = 100
        for more in steps:
            count += more
            self.step(fleet, count)
        # The window holds 30 readings of two seconds each; the first reading of all is no growth.
        assert judged(fleet) == [float(sum(steps[1:][-30:]))]


class TestPeers:
    def test_a_difference_from_the_median_of_the_rack(self) -> None:
        infos = [NodeInfo(f"n{number}", rack="a" if number < 5 else "b") for number in range(8)]
        rule = only(metric="temperature_celsius", kind="peers", peers="rack", warning=Level(10.0))
        fleet = Fleet(infos, rules=rule, interval=5.0)
        for _ in range(2):
            fleet.now += 5
            for number, heat in enumerate((60, 61, 62, 63, 80, 30, 31, 90)):
                fleet.say(number, gpu=gpus({"temp": heat}))
            fleet.tick()
        assert judged(fleet)[:5] == [-2.0, -1.0, 0.0, 1.0, 18.0]
        assert np.isnan(fleet.core.engine.values("r")[5:]).all(), "two peers are too few to judge the third"
        assert [(change.thing.node, change.message) for change in fleet.seen] == [
            ("n4", "it: 18 °C above its rack's median")]

    def test_a_ratio_over_a_quiet_fleet_needs_its_floor(self) -> None:
        rule = only(table="port", metric="np_cnp_sent", kind="peers", peers="fleet", compare="ratio", floor=100.0,
                    window_seconds=60.0, warning=Level(10.0))
        fleet = Fleet(rules=rule, interval=5.0)
        for count in range(4):
            fleet.step(5, port=ports(*({"h:np_cnp_sent": more * count} for more in (0, 0, 0, 10, 900))))
        assert judged(fleet) == [0.0, 0.0, 0.0, 0.3, 27.0]
        assert [change.thing.label for change in fleet.seen] == ["mlx5_4/1"]
        assert fleet.seen[0].unit == "times"
        assert fleet.seen[0].message == "it: 18 times its fleet's median (growth in 60 s)"
        assert fleet.alerts[0].unit == "times"

    def test_where_all_are_loud_none_is(self) -> None:
        rule = only(table="port", metric="np_cnp_sent", kind="peers", peers="fleet", compare="ratio", floor=100.0,
                    window_seconds=60.0, warning=Level(10.0))
        fleet = Fleet(rules=rule, interval=5.0)
        for count in range(30):
            fleet.step(5, port=ports(*({"h:np_cnp_sent": 5000 * count} for _ in range(6))))
        assert judged(fleet) == [1.0] * 6
        assert fleet.seen == []

    def test_unknown_readings_are_no_peers_and_no_zero(self) -> None:
        rule = only(metric="temperature_celsius", kind="peers", peers="node", warning=Level(10.0))
        fleet = Fleet(rules=rule)
        fleet.step(gpu=gpus({"temp": 60}, {"temp": LOST}, {"temp": 62}, {"temp": 80}))
        assert np.isnan(fleet.core.engine.values("r")).all()
        fleet.step(5, gpu=gpus({"temp": 60}, {"temp": LOST}, {"temp": 62}, {"temp": 80}, {"temp": 60}))
        assert judged(fleet)[3] == 19.0

    def test_models_are_compared_with_their_own_kind(self) -> None:
        rule = only(metric="power_watts", kind="peers", peers="model", warning=Level(50.0))
        fleet = Fleet(2, rules=rule, interval=5.0)
        for _ in range(2):
            fleet.now += 5
            fleet.say(0, gpu=gpus(*({"power_mw": watts * 1000} for watts in (600, 600, 600, 700)), name="H100"))
            fleet.say(1, gpu=gpus(*({"power_mw": watts * 1000} for watts in (300, 300, 300, 300)), name="A100"))
            fleet.tick()
        assert [(change.thing.node, change.thing.label) for change in fleet.seen] == [("n0", "GPU 3")]

    @given(st.lists(st.tuples(st.integers(-1, 2), st.one_of(st.none(), st.floats(-1e6, 1e6))), max_size=40))
    def test_medians(self, cells: list[tuple[int, float | None]]) -> None:
        groups = np.array([group for group, _ in cells], np.intp)
        column = np.array([np.nan if value is None else value for _, value in cells])
        got = values.medians(column, groups)
        for row, (group, value) in enumerate(cells):
            mine = [other for place, other in cells if place == group and other is not None]
            if group < 0 or value is None or len(mine) <= values.LEAST_PEERS:
                assert np.isnan(got[row])
            else:
                assert got[row] == pytest.approx(float(np.median(mine)))


class TestAbsence:
    RULE = only(metric="power_watts", kind="absence", warning=Level(0.0))

    def play(self, readings: list[float | None], seconds: float = 1.0) -> list[tuple[int, str]]:
        """Feed readings (None: a gap) one by one; (index, kind) of each transition."""
        fleet = Fleet(rules=self.RULE, interval=seconds)
        out = []
        for index, value in enumerate(readings):
            cell = LOST if value is None else value * 1000
            out += [(index, change.kind) for change in fleet.step(seconds, gpu=gpus({"power_mw": cell}))]
        return out

    def test_H2_no_data_is_raised_once_after_five_gaps(self) -> None:  # noqa: N802
        """H2a: 5000, null, 5100, null, null, 5050, then null for 12 polls."""
        assert self.play([5.0, None, 5.1, None, None, 5.05, *([None] * 12)]) == [(10, "raised")]
        assert self.play([5.0, *([None] * 4), 5.0, *([None] * 4), 5.0]) == []
        assert self.play([5.0, *([None] * 6), 5.0, 5.0]) == [(5, "raised"), (7, "cleared")]

    def test_H2_no_data_is_raised_after_five_minutes_of_few_readings(self) -> None:  # noqa: N802
        assert self.play([5.0, None, None, None, None], seconds=120.0) == [(3, "raised")]

    def test_what_was_never_known_is_not_missed(self) -> None:
        assert self.play([None] * 20) == []

    def test_the_line_names_what_is_gone_and_why(self) -> None:
        rule = {"r": Rule("no data", "gpu", "power_watts", kind="absence", warning=Level(0.0),
                          also=("temperature_celsius", "utilization_ratio"))}
        fleet = Fleet(rules=rule)
        fleet.step(gpu=gpus({}))
        for _ in range(6):
            fleet.step(gpu=gpus({"temp": LOST}))
        assert [change.message for change in fleet.seen] == [
            "no data: no temperature_celsius (Unknown Error) for 5.0 s, though it was read before"]
        assert (fleet.seen[0].unit, fleet.alerts[0].unit) == ("s", "s")
        assert fleet.inside() == ["r GPU 0"]

    def test_a_silent_or_lost_gpu_is_another_rules_business(self) -> None:
        fleet = Fleet(rules=self.RULE)
        fleet.step(gpu=gpus({}))
        for _ in range(400):
            fleet.step()
        assert fleet.seen == []
        assert np.isnan(fleet.core.engine.values("r")).all()
        fleet.step(gpu=gpus({}))
        for _ in range(20):
            fleet.step(gpu=gpus(dict.fromkeys(GPU, Err("GPU is lost"))))
        assert fleet.seen == []
        for _ in range(20):
            fleet.step(gpu=gpus({"util": Err("Not Supported"), "mig": 1}))
        assert fleet.seen == []

    def test_silence_neither_ends_nor_begins_in_a_stale_time(self) -> None:
        fleet = Fleet(rules=self.RULE)
        fleet.step(gpu=gpus({}))
        for _ in range(6):
            fleet.step(gpu=gpus({"power_mw": LOST}))
        assert fleet.rules == ["raised r"]
        for _ in range(60):
            fleet.step()
        assert fleet.rules == ["raised r"]
        fleet.step(gpu=gpus({}))
        assert fleet.rules == ["raised r", "cleared r"]


class TestTrend:
    RULE = only(metric="temperature_celsius", kind="trend", op="<", reach=90.0, warning=Level(120.0),
                clear=Clear(limit=240.0))

    def play(self, *heat: Any) -> Fleet:
        fleet = Fleet(rules=self.RULE, interval=2.0)
        for value in heat:
            fleet.step(2, gpu=gpus({"temp": value}))
        return fleet

    def test_a_steady_rise_is_foretold_and_its_end_clears(self) -> None:
        fleet = self.play(*(60 + count / 10 for count in range(120)))
        assert fleet.core.engine.values("r")[0] == pytest.approx((90 - 71.9) / 0.05, rel=0.05)
        assert fleet.seen == []
        fleet = self.play(*(60 + count / 5 for count in range(130)))
        assert fleet.rules == ["raised r"]
        assert fleet.seen[0].message.startswith("it: 79 °C now, 90 °C in 2 min if it goes on")
        for _ in range(200):
            fleet.step(2, gpu=gpus({"temp": 82}))
        assert fleet.rules == ["raised r", "cleared r"]

    def test_noise_alone_is_no_trend_and_a_wild_reading_turns_nothing(self) -> None:
        rng = np.random.default_rng(7)
        fleet = self.play(*(60 + rng.normal(0, 3, 120)))
        assert fleet.seen == []
        assert not 0 <= fleet.core.engine.values("r")[0] < 120
        rise = [60 + count / 5 for count in range(120)]
        rise[50], rise[110] = 20.0, 150.0
        # Worked out up to ten seconds ago, so up to ten seconds more than the 62 that are left.
        assert 61.5 < self.play(*rise).core.engine.values("r")[0] < 72.5

    def test_too_few_readings_say_nothing_and_what_is_reached_is_reached(self) -> None:
        assert np.isnan(self.play(60, 70, 80).core.engine.values("r")).all()
        fleet = self.play(95, 95)
        assert judged(fleet) == [0.0]
        assert fleet.seen[0].message == "it: 95 °C, 90 °C is reached"

    def test_gaps_are_no_zeros(self) -> None:
        heat: list[Any] = [60 + count / 10 for count in range(120)]
        heat[20:100:3] = [LOST] * len(heat[20:100:3])
        assert 361.5 < self.play(*heat).core.engine.values("r")[0] < 372.5


class TestScope:
    def said(self, fleet: Fleet) -> list[str]:
        for _ in range(2):
            fleet.now += 1
            fleet.say(0, gpu=gpus({"temp": 90}, {"temp": 90}, name="NVIDIA H100 80GB"), port=ports({}))
            fleet.say(1, gpu=gpus({"temp": 90}, {"temp": 90}, name="NVIDIA A100-SXM4"), port=ports({}))
            fleet.tick()
        return sorted(f"{change.thing.node} {change.thing.label}" for change in fleet.seen)

    def fleet(self, **scope: Any) -> Fleet:
        return Fleet([NodeInfo("a", rack="r1"), NodeInfo("b", rack="r2")],
                     rules=only(metric="temperature_celsius", warning=Level(85.0), **scope))

    @pytest.mark.parametrize(("scope", "node"), [
        ({"nodes": ("a",)}, "a"), ({"models": ("*a100*",)}, "b"), ({"groups": ("r1",)}, "a"),
    ])
    def test_by_node_by_model_and_by_group(self, scope: dict[str, Any], node: str) -> None:
        assert self.said(self.fleet(**scope)) == [f"{node} GPU 0", f"{node} GPU 1"]

    def test_scopes_hold_together_and_an_empty_one_is_for_nothing(self) -> None:
        assert self.said(self.fleet(nodes=("a",), models=("*A100*",))) == []
        assert self.said(self.fleet(nodes=())) == []

    def test_a_node_is_of_the_models_of_its_gpus(self) -> None:
        rule = only(table="node", metric="gpus_present", warning=Level(1.0), models=("*H100*",))
        fleet = Fleet([NodeInfo("a"), NodeInfo("b")], rules=rule)
        assert self.said(fleet) == ["a a"]


class TestCost:
    def test_a_quiet_fleet_has_no_row_looked_at_whatever_the_kind(self) -> None:
        rules = {
            "a": Rule("a", "gpu", "pcie_replays_total", kind="increase", window_seconds=60.0, warning=Level(5.0)),
            "b": Rule("b", "gpu", "temperature_celsius", kind="peers", peers="node", warning=Level(20.0)),
            "c": Rule("c", "gpu", "power_watts", kind="absence", warning=Level(0.0)),
            "d": Rule("d", "gpu", "temperature_celsius", "<", kind="trend", reach=200.0, warning=Level(60.0)),
        }
        fleet = Fleet(rules=rules)
        for _ in range(20):
            fleet.step(gpu=gpus(*({"pcie_replays": 3} for _ in range(8))))
        assert fleet.core.engine.touched == 0

    def test_dear_kinds_stand_between_their_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[float] = []
        true = values.medians
        monkeypatch.setattr(values, "medians", lambda *given: made.append(1.0) or true(*given))
        fleet = Fleet(rules=only(metric="temperature_celsius", kind="peers", peers="node", warning=Level(9.0)))
        for _ in range(20):
            fleet.step(gpu=gpus(count=8))
        assert len(made) == 4

    def test_only_the_counters_that_rules_need_are_in_the_view(self) -> None:
        fleet = Fleet(rules=TestIncrease.RULE)
        fleet.step(gpu=gpus({"pcie_replays": 3}), port=ports({"c:link_downed": 1}))
        shown: dict[str, TableView] = dict(fleet.view.tables)
        assert {name: list(one.grown) for name, one in shown.items() if one.grown} == {"gpu": ["pcie_replays_total"]}


class TestCoverage:
    """H3: a mean says over how many it is, and a low one needs 80 % of them."""

    RULE = only(table="node", metric="gpu_utilization_ratio", op="<", warning=Level(0.75))

    def test_H3_a_low_mean_of_too_few_is_not_judged(self) -> None:  # noqa: N802
        fleet = Fleet(rules=self.RULE)
        for _ in range(3):
            fleet.step(gpu=gpus({"util": 10}, {"util": LOST}, {"util": 12}, {"util": LOST}))
        assert fleet["node"].value("gpu_utilization_ratio", 0) == pytest.approx(0.11)
        assert fleet["node"].value("gpu_utilization_coverage_ratio", 0) == 0.5
        assert fleet.seen == []
        for _ in range(3):
            fleet.step(gpu=gpus({"util": 10}, {"util": 11}, {"util": 12}, {"util": 9}, {"util": LOST}))
        assert fleet["node"].value("gpu_utilization_coverage_ratio", 0) == 0.8
        assert fleet.rules == ["raised r"]

    def test_a_gpu_in_mig_mode_is_in_no_mean(self) -> None:
        fleet = Fleet(rules=self.RULE)
        fleet.step(gpu=gpus({"util": Err("Not Supported"), "mig": 1}, {"util": 60}))
        assert fleet["node"].value("gpu_utilization_coverage_ratio", 0) == 1.0
        assert fleet.rules == ["raised r"]


def test_congestion_far_above_its_peers_is_a_built_in_rule() -> None:
    fleet = Fleet(interval=5.0)
    board = {"h:np_cnp_sent": 0, "h:rp_cnp_handled": 0, "c:port_xmit_wait": 0}
    for count in range(60):
        changes = [{**board, "h:np_cnp_sent": 20 * count} for _ in range(7)]
        changes.append({**board, "h:np_cnp_sent": 4000 * count})
        said = ports(*changes)
        for _, attrs in said.rows:
            attrs["board"] = "MT_0000000838"
        fleet.step(5, port=said)
    assert fleet.rules == ["raised rdma_cnp_sent"]
    assert fleet.seen[0].thing.label == "mlx5_7/1"


def test_correctable_errors_are_an_early_sign_of_worse_ones() -> None:
    fleet = Fleet(interval=10.0)
    nic = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "path": []}
    usual = {"max_width": "16", "cur_width": "16", "aer_nonfatal": 0, "aer_fatal": 0}
    for count in range(4):
        fleet.step(10, pcie=table({"0000:01:00.0": {**usual, "aer_cor": 30 * count}}, {"0000:01:00.0": nic}))
    assert fleet.rules == ["raised pcie_correctable"]
    first = fleet.alerts[0].id
    fleet.step(10, pcie=table({"0000:01:00.0": {**usual, "aer_cor": 150, "aer_nonfatal": 2}}, {"0000:01:00.0": nic}))
    assert [alert.rule for alert in fleet.alerts] == ["pcie_errors"]
    assert fleet.alerts[0].id == first


def test_a_nic_below_the_speed_of_its_slot_is_found_and_an_idle_gpu_is_not() -> None:
    usual = {"cur_width": "16", "max_width": "16", "max_speed": "32.0 GT/s PCIe"}
    rows = {"0000:01:00.0": {**usual, "cur_speed": "16.0 GT/s PCIe"},
            "0000:02:00.0": {**usual, "cur_speed": "32.0 GT/s PCIe"},
            "0000:03:00.0": {**usual, "cur_speed": "2.5 GT/s PCIe"}}
    attrs: dict[str, Any] = {key: {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "path": []}
                             for key in rows}
    attrs["0000:03:00.0"]["class"] = "0x030200"
    fleet = Fleet(interval=10.0)
    for _ in range(3):
        fleet.step(10, pcie=table(rows, attrs))
    assert [(change.rule, change.thing.key, change.message) for change in fleet.seen] == [
        ("pcie_speed", "0000:01:00.0", "link runs at 16 GT/s, it and its slot can do 32 GT/s")]


def test_what_a_rule_is_not_for_is_no_healthy_sibling() -> None:
    """Three hot H100 are most of the node's H100, whatever its other cards do."""
    rule = only(metric="temperature_celsius", warning=Level(85.0), models=("*H100*",))
    fleet = Fleet(rules=rule)
    said = gpus(*[{"temp": 90}] * 3, *[{"temp": 50}] * 5)
    for number, (_, attrs) in enumerate(said.rows):
        attrs["name"] = "H100" if number < 3 else "A100"
    fleet.step(gpu=said)
    assert [(alert.thing.key, alert.message) for alert in fleet.alerts] == [("*", "it: 3 of 3 GPUs; GPU 2: it: 90 °C")]
