"""How late an alert can be: the promise, and that no simulated fault is later."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop.model import LinkState
from clustertop.probe.frames import Err
from clustertop.rules import latency
from clustertop.rules.latency import Times, detects_within
from clustertop.rules.spec import Level, Rule, builtin
from clustertop.wire.transport import PollSettings
from nodes import Fleet, gpus, ports

TIMES = latency.times(PollSettings(interval_seconds=2.0, pcie_interval_seconds=10.0), 0.5)


@pytest.mark.parametrize(("rule", "level", "seconds"), [
    # interval + what it waits for + delivery + ticks + step + siblings
    ("gpu_ecc", "critical", 2 + 0 + 0.5 + 0.5),
    ("gpu_temperature", "warning", 2 + 2 + 0.5 + 0.5),
    ("gpu_slowdown", "critical", 2 + 60 + 0.5 + 1),
    ("pcie_width", "critical", 10 + 10 + 0.5 + 0.5),
    ("gpu_utilization", "warning", 2 + 300 + 0.5 + 1),
    ("rdma_port_down", "critical", 2 + 2 + 0.5 + 0.5 + 5),
    ("pcie_correctable", "warning", 10 + 0 + 0.5 + 0.5 + 10),
    ("rdma_cnp_sent", "warning", 2 + 60 + 0.5 + 1 + 5),
    ("gpu_no_data", "warning", 10 + 0 + 0.5 + 0.5),
    ("node_unreachable", "critical", 20 + 3 + 0.5 + 1 + 10),
    ("node_stale", "warning", 10 + 2 + 0.5 + 1 + 5),
    ("group_stale", "warning", 50 + 2 + 0.5 + 1),
    ("probe_hung", "critical", 20 + 10 + 0.5 + 0.5),
])
def test_the_worst_case_is_the_sum_of_what_a_rule_waits_for(rule: str, level: str, seconds: float) -> None:
    one = builtin()[rule]
    group = {"port": "rdma", "node": "host", "group": ""}.get(one.table, one.table)
    assert detects_within(one, getattr(one, level), group, TIMES) == pytest.approx(seconds)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1.0, 2.0, 5.0]), st.sampled_from([0.5, 1.0]), st.sampled_from([0.0, 3.0, 10.0]),
       st.integers(1, 4), st.floats(0.0, 0.999))
def test_no_fault_is_raised_later_than_that(
    interval: float, tick: float, seconds: float, polls: int, phase: float
) -> None:
    rule = Rule("hot", "gpu", "temperature_celsius", ">", warning=Level(80.0, seconds, polls))
    when = Times({"gpu": interval, "rdma": interval, "host": interval, "pcie": 10.0}, tick, 20.0)
    fleet = Fleet(rules={"hot": rule}, interval=interval)
    begins = fleet.now + 3 * interval + phase * interval
    due = fleet.now
    while not fleet.seen:
        fleet.now += tick
        assert fleet.now - begins <= 60
        while due <= fleet.now:
            # Read when it was due; it arrives within the delivery time.
            fleet.say(gpu=gpus({"temp": 90 if due >= begins else 60}))
            due += interval
        fleet.tick()
    assert fleet.now - begins <= detects_within(rule, rule.levels()[0][1], "gpu", when)


def test_absence_and_growth_keep_their_promise() -> None:
    for name in ("gpu_no_data", "pcie_replays", "rdma_hard_errors"):
        rule = builtin()[name]
        fleet = Fleet(rules={name: rule}, interval=2.0)
        for _ in range(8):
            fleet.step(2, gpu=gpus({"pcie_replays": 0}), port=ports({"c:link_downed": 1}))
        begins = fleet.now
        count = 0
        while not fleet.seen:
            count += 1
            fleet.step(2, gpu=gpus({"pcie_replays": 50 * count, "temp": Err("Unknown Error")}),
                       port=ports({"c:link_downed": 1 + count}))
            assert count < 60
        late = detects_within(rule, rule.levels()[0][1], fleet["gpu"].spec.group, latency.times(PollSettings(), 2.0))
        assert fleet.now - begins <= late, name


def test_a_dear_probe_is_later_and_says_so() -> None:
    fleet = Fleet(interval=2.0)
    for _ in range(3):
        fleet.step(2, gpu=gpus({"temp": 90}))
    (alert,) = fleet.alerts
    assert latency.of_alert(alert, builtin()["gpu_temperature"], fleet.view, TIMES) == pytest.approx(5.0)
    fleet.interval = 8.0
    for _ in range(2):
        fleet.step(8, gpu=gpus({"temp": 90}))
    assert latency.of_alert(alert, builtin()["gpu_temperature"], fleet.view, TIMES) == pytest.approx(17.0)
    gone = msgspec.structs.replace(builtin()["gpu_temperature"], critical=None)
    assert latency.of_alert(alert, gone, fleet.view, TIMES) is None


def test_the_silence_of_a_node_is_counted_from_its_connection() -> None:
    fleet = Fleet()
    fleet.step(gpu=gpus({}))
    lost = fleet.now
    fleet.link(0, LinkState.UNREACHABLE, "keepalive")
    while "node_unreachable" not in fleet.firing:
        fleet.step()
        assert fleet.now - lost < 60
    rule = builtin()["node_unreachable"]
    assert rule.critical is not None
    promised = detects_within(rule, rule.critical, "host", latency.times(PollSettings(), 1.0))
    assert 20.0 + fleet.now - lost <= promised, "20 s until the connection is given up are in it"
