"""An alert explained: facts, with where each limit came from; unknown is said as unknown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from clustertop import plain
from clustertop.config import load
from clustertop.model import NodeInfo
from clustertop.probe.frames import Err
from clustertop.rules import explain, latency
from clustertop.rules.configured import in_force
from clustertop.rules.spec import builtin
from clustertop.wire.transport import PollSettings
from configs import write
from nodes import Fleet, gpus

if TYPE_CHECKING:
    from pathlib import Path

    from clustertop.rules.explain import Explanation

TIMES = latency.times(PollSettings(), 0.5)


def first(fleet: Fleet, rule: str = "", origins: dict[str, dict[str, str]] | None = None) -> Explanation:
    """The explanation of the worst alert, or of that of *rule*."""
    alert = next(alert for alert in fleet.alerts if not rule or alert.rule == rule)
    return explain.explain(alert, fleet.view, fleet.core.engine, origins, TIMES)


def test_everything_that_is_known_of_an_alert(tmp_path: Path) -> None:
    path = write(tmp_path, "[rules.gpu_temperature]\ncritical = { limit = -5 }\nclear = { seconds = 10 }\n")
    made = in_force(load(path, environ={}))
    fleet = Fleet(rules=made.rules)
    for heat in (60, 84, 84, 83):
        fleet.step(gpu=gpus({"temp": heat}))
    one = explain.explain(fleet.alerts[0], fleet.view, fleet.core.engine, made.origins, TIMES)
    assert (one.now, one.why, one.detects_within) == (4.0, "", 5.0)
    assert [(limit.limit, limit.text, limit.origin) for limit in one.limits] == [
        (5.0, "<= 5 °C at 2 readings", "builtin"), (-5.0, "<= -5 °C at 2 readings", f"{path}:2")]
    text = explain.lines(one)
    assert text[0] == "warning: 84 °C, slowdown at 87 °C"
    said = {line[2:13].strip(): line[13:] for line in text[1:]}
    rule = builtin()["gpu_temperature"]
    assert said == {
        "where": "n0 GPU 0", "since": said["since"], "now": "4 °C, temperature_margin_celsius",
        "told": "3 °C, limit <= 5 °C", "rule": "gpu_temperature: GPU near its slowdown limit",
        "warning": "<= 5 °C at 2 readings (builtin)", "critical": f"<= -5 °C at 2 readings ({path}:2)",
        "clear": f"> 8 °C for 10 s at 3 readings ({path}:3)", "source": rule.source, "means": rule.hint,
        "look at": rule.look, "late": "raised at most 5.0 s after it happened"}
    assert said["since"].endswith("1.0 s ago")
    made_object = json.loads(plain.json_text(explain.as_object(one)))
    assert made_object["limits"][1] == {
        "severity": "critical", "limit": -5.0, "text": "<= -5 °C at 2 readings", "origin": f"{path}:2"}
    assert (made_object["now"], made_object["unknown"], made_object["lasts_seconds"]) == (4.0, None, 1.0)
    assert (made_object["look"], made_object["detects_within_seconds"]) == (rule.look, 5.0)


def test_the_last_readings_are_those_that_are_kept_and_gaps_are_gaps() -> None:
    from clustertop.rules.spec import Level, Rule

    fleet = Fleet(rules={"r": Rule("hot", "gpu", "temperature_celsius", ">", warning=Level(80.0))}, interval=2.0)
    for heat in (60, Err("Unknown Error"), 85, 86):
        fleet.step(2, gpu=gpus({"temp": heat}))
    one = first(fleet)
    assert one.readings == ((6.0, 60.0), (4.0, None), (2.0, 85.0), (0.0, 86.0))
    assert "60 °C 6.0 s ago, ? 4.0 s ago, 85 °C 2.0 s ago, 86 °C 0 ms ago" in explain.lines(one)[5]
    for _ in range(100):
        fleet.step(2, gpu=gpus({"temp": 86}))
    said = next(line for line in explain.lines(first(fleet)) if "readings" in line)
    assert said.count(" ago") == explain.SHOWN_READINGS


def test_an_unknown_reading_is_said_with_its_reason() -> None:
    fleet = Fleet()
    for _ in range(3):
        fleet.step(gpu=gpus({"temp": 90}))
    fleet.step(gpu=gpus({"temp": Err("Unknown Error")}))
    one = first(fleet, "gpu_temperature")
    assert one.now is None
    assert one.why
    assert f"unknown ({one.why}), temperature_margin_celsius" in explain.lines(one)[3]
    assert explain.as_object(one)["now"] is None


def test_an_alert_of_many_names_them_and_no_reading() -> None:
    fleet = Fleet([NodeInfo(f"n{number}", rack="r1") for number in range(4)])
    for _ in range(4):
        fleet.now += 1
        for number in range(4):
            fleet.say(number, gpu=gpus(*[{"temp": 90}] * 4))
        fleet.tick()
    one = first(fleet, "gpu_temperature")
    assert (one.now, one.readings) == (None, ())
    text = explain.lines(one)
    assert text[1] == "  where      rack r1"
    assert text[-1] == "  stands for n0, n1, n2, n3"
    assert not any(line.startswith("  now") for line in text)


@pytest.mark.parametrize(("kind", "said"), [
    ("pcie_correctable", "growth of aer_correctable_total in 10 min"),
    ("rdma_cnp_sent", "growth in 60 s of np_cnp_sent, over its model's median, which counts as at least 1000"),
    ("gpu_no_data", "time without temperature_celsius or power_watts or utilization_ratio or memory_used_bytes, from 5 "
                    "readings or 5 min on"),
    ("gpu_ecc", "ecc_uncorrected_total"),
])
def test_what_is_judged_in_words(kind: str, said: str) -> None:
    from clustertop.rules import words
    from clustertop.store.catalogue import SPECS

    rule = builtin()[kind]
    assert words.judged(rule, next(spec for spec in SPECS if spec.name == rule.table)) == said
