"""The field's own inputs, where they are at hand, against their right answers; each also has a test on inputs of ours."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustertop import plain
from clustertop.model import NodeInfo
from clustertop.probe.frames import Err
from clustertop.rules.spec import Clear, Level, Rule
from clustertop.signals import coverage
from clustertop.wire.frame import decode
from nodes import GPU, Fleet, gpus, lost, ports, table

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"needs the field's cases in {CASES}")
RAW = {"utilization.gpu": "util", "pcie.link.gen.current": "pcie_gen", "pcie.link.gen.gpucurrent": "pcie_gen",
       "pcie.link.width.current": "pcie_width", "pcie.link.width.max": "pcie_width_max",
       "pcie.link.gen.hostmax": "pcie_gen_max", "pcie.link.gen.gpumax": "pcie_gen_devmax",
       "pcie.link.gen.max": "pcie_gen_max", "memory.used": "mem_used", "memory.total": "mem_total",
       "power.draw": "power_mw", "pstate": "pstate"}
FACTOR = {"mem_used": 1 << 20, "mem_total": 1 << 20, "power_mw": 1000}


def load(case: str, name: str) -> Any:
    """A JSON file of a case."""
    return json.loads((CASES / case / name).read_text(encoding="utf-8"))


def cards(case: str) -> list[dict[str, Any]]:
    """The rows of a case's nvidia-smi table as raw columns of the probe."""
    rows = list(csv.reader((CASES / case / "nvidia-smi.csv").read_text(encoding="utf-8").splitlines(),
                           skipinitialspace=True))
    head = load(case, "columns.json") if (CASES / case / "columns.json").is_file() else rows.pop(0)
    out = []
    for row in rows:
        said = dict(zip(head, row, strict=True))
        card: dict[str, Any] = {}
        for name, raw in RAW.items():
            if name in said:
                text = said[name].removeprefix("P")
                card[raw] = Err("Not Supported") if text.startswith("[") else float(text) * FACTOR.get(raw, 1)
        if "mig.mode.current" in said:
            card["mig"] = int(said["mig.mode.current"] == "Enabled")
        if "pcie_gen_max" in card:
            card.setdefault("pcie_gen_devmax", card["pcie_gen_max"])
        out.append(card)
    return out


def polled(case: str, polls: int = 3, seconds: float = 1.0, **core: Any) -> Fleet:
    """A node with the case's cards, read *polls* times, once in so many *seconds*."""
    fleet = Fleet(interval=seconds, **core)
    for _ in range(polls):
        fleet.step(seconds, gpu=gpus(*cards(case)))
    return fleet


def test_A1() -> None:  # noqa: N802
    fleet = polled("A1")
    assert fleet.firing == load("A1", "expect.json")["alerts"]
    assert fleet["gpu"].reason("generation_missing", 1) == "not judged", "idle, so neither degraded nor fine"


def test_A2() -> None:  # noqa: N802
    for card in cards("A2"):
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus(card))
        assert fleet.firing == load("A2", "expect.json")["alerts"]


def test_A8() -> None:  # noqa: N802
    expect, fleet = load("A8", "expect.json"), Fleet()
    for number, present in enumerate(load("A8", "series.json")["polls"]):
        fleet.step(gpu=table({key: dict(GPU) for key in present}, {key: {"index": int(key[1:])} for key in present}))
        missing = [key for key, state in zip(fleet["gpu"].keys, fleet["gpu"].col("presence"), strict=True) if state == 2]
        assert missing == ([expect["uuid"]] if number >= expect["missing_from_poll"] else [])
        assert fleet.firing == (["gpu_missing"] if number >= expect["alert_by_poll"] else [])
    assert expect["uuid"] in fleet.seen[0].message


def test_A10() -> None:  # noqa: N802
    fleet = polled("A10")
    wanted = [(f"GPU {one['gpu']}", f"is x{one['current']}, expected x{one['expected']}")
              for one in load("A10", "expect.json")["alerts"]]
    assert [(change.thing.label[:5], change.message) for change in fleet.seen if change.rule == "pcie_width"] == [
        (label, fleet.seen[0].message) for label, _ in wanted]
    assert wanted[0][1] in fleet.seen[0].message


def test_A11() -> None:  # noqa: N802
    expect = load("A11", "expect.json")
    width = float(load("A11", "config.json")["expected_width"]["node-model-b"])
    assert polled("A11").firing == expect["without_config"]
    assert polled("A11", expect_width=lambda node, key, attrs: width).firing == expect["with_config"]


def test_A13() -> None:  # noqa: N802
    values, expect = load("A13", "values.json"), load("A13", "expect.json")
    for raw, name in (("util", "utilization_ratio"), ("temp", "temperature_celsius")):
        for value, right in zip(values[raw], expect[raw], strict=True):
            fleet = Fleet()
            fleet.step(gpu=gpus({raw: value}))
            got = fleet["gpu"].value(name, 0)
            assert got == (None if right is None else right / (100 if raw == "util" else 1))
            assert right is not None or fleet["gpu"].reason(name, 0) == "out of range"


def test_A14() -> None:  # noqa: N802
    fleet = polled("A14", 14, 30.0)
    expect = load("A14", "expect.json")
    assert fleet["gpu"].value("utilization_ratio", 0) is expect["util"]
    assert fleet["gpu"].reason("utilization_ratio", 0) == "n/a (MIG)"
    assert bool(fleet.firing) is expect["idle_alert"]
    assert (fleet["node"].value("gpu_utilization_ratio", 0) is not None) is expect["in_average"]


def test_A16() -> None:  # noqa: N802
    """The case has "GPU lost" at once; FIELD.md's table has two polls, so one more poll is made."""
    fleet = Fleet(interval=10.0)
    series = load("A16", "series.json")
    for moment in (*series, series[-1]):
        fleet.step(10, gpu=gpus(lost() if moment.get("lost") else {
            "util": moment["util"], "pcie_gen": moment["gen"], "pcie_gen_max": moment["max"]}))
        if moment["t"] == 20:
            assert fleet.firing == ["pcie_generation"]
    assert "gpu_missing" in fleet.firing


def test_B1() -> None:  # noqa: N802
    series, expect = load("B1", "series.json"), load("B1", "expect.json")
    fleet = Fleet(rules={}, interval=10.0)
    for (when, data), (_, packets) in zip(series["port_xmit_data"], series["port_xmit_packets"], strict=True):
        fleet.step(10 if when else 1, port=ports({"c:port_xmit_data": data, "c:port_xmit_packets": packets}))
    assert fleet["port"].value("transmit_bytes_per_second", 0) == expect["bytes_per_s"]
    assert fleet["port"].value("transmit_packets_per_second", 0) == expect["packets_per_s"]


def test_B2() -> None:  # noqa: N802
    fleet = Fleet()
    for _ in range(20):
        fleet.step(port=ports({f"c:{name}": value for name, value in load("B2", "counters.json").items()}))
    assert fleet.rules == ["raised rdma_saturated"]
    assert sorted(fleet.seen[0].message.partition(": ")[2].split(", ")) == load("B2", "expect.json")["saturated"]


def test_B10() -> None:  # noqa: N802
    fleet, seen, before = Fleet(interval=60.0), [], 0.0
    for when, value in load("B10", "series.json")["link_downed"]:
        fleet.step(60, port=ports({"c:link_downed": value}))
        total = fleet["port"].value("hard_errors_total", 0) or 0.0
        if total > before:
            seen.append([when, total - before])
        before = total
    assert seen == load("B10", "expect.json")["alerts"]
    assert fleet["port"].value("link_downed", 0) == 19, "the value since boot is shown as well"


def rule(**changes: Any) -> dict[str, Rule]:
    """A rule on the power of a GPU, in watts."""
    return {"limit": Rule("limit", "gpu", "power_watts", **changes)}


def test_H1() -> None:  # noqa: N802
    series, expect = load("H1", "series.json"), load("H1", "expect.json")
    fleet = Fleet(rules=rule(op=">", warning=Level(series["limit"], for_polls=series["set_polls"]),
                             clear=Clear(series["clear"], polls=series["clear_polls"])))
    at = {}
    for index, value in enumerate(series["a"]):
        for change in fleet.step(gpu=gpus({"power_mw": value * 1000})):
            at[change.kind] = index
    assert at == {"raised": expect["raised_at"], "cleared": expect["cleared_at"]}
    assert len(fleet.seen) == 2 * expect["alerts"]


def test_H2() -> None:  # noqa: N802
    """Gaps neither raise nor clear; that nothing comes any more is told once."""
    series, expect = load("H2", "series.json"), load("H2", "expect.json")
    rules = rule(op="<", warning=Level(series["limit_low"] / 1000))
    rules["no_data"] = Rule("no data", "gpu", "power_watts", kind="absence", warning=Level(0.0))
    fleet, raised = Fleet(rules=rules), []
    for index, value in enumerate(series["v"]):
        changes = fleet.step(gpu=gpus({"power_mw": Err("No Reading") if value is None else value}))
        raised += [(index, change.rule) for change in changes]
        assert value is None or fleet["gpu"].value("power_watts", 0) == value / 1000
    assert raised == [(expect["at_index"], name) for name in expect["alerts"]]


def test_H3() -> None:  # noqa: N802
    values, expect = load("H3", "values.json")["util"], load("H3", "expect.json")
    fleet = Fleet(interval=30.0)
    for _ in range(14):
        fleet.step(30.0, gpu=gpus(*({"util": Err("Unknown Error") if value is None else value} for value in values)))
    assert fleet["node"].value("gpu_utilization_ratio", 0) == pytest.approx(expect["avg"] / 100)
    assert ("gpu_utilization" in fleet.firing) is expect["low_util_alert"]
    assert fleet.core.snapshot is not None
    assert f"{expect['avg']:.0f} % ({expect['coverage']})" in plain.fleet_lines(fleet.core.snapshot)[1]
    found = coverage.mean(np.array([np.nan if value is None else value for value in values]))
    assert (found.value, found.note) == (expect["avg"], expect["coverage"])
    assert (found.judged is not None) is expect["low_util_alert"]
    fleet = Fleet(rules={})
    fleet.step(gpu=gpus({}, {"power_mw": Err("Unknown Error")}))
    assert fleet.core.snapshot is not None
    assert ">=600 W" in plain.fleet_lines(fleet.core.snapshot)[1]


def test_H4() -> None:  # noqa: N802
    series, expect = load("H4", "series.json"), load("H4", "expect.json")
    interval = series["interval_s"]
    fleet = Fleet([NodeInfo("n0")], interval=interval)
    fleet.step(gpu=gpus({}), port=ports({}))
    levels = {}
    for second in range(1, series["ssh_ok_until"] + 1):
        fleet.now += 1
        if second % interval == 0:
            fleet.say(0, port=ports({}), states={"gpu": {"t": 501.0, "n": 1}})
        fleet.tick()
        levels[second] = int(fleet["gpu"].level[0])
    # A tick late on a slow link is not old news: a second and a half of grace.
    assert levels[expect["dim_at_s"] + 2] == 1
    assert levels[expect["dim_at_s"]] == 0
    assert levels[expect["blank_at_s"]] == 1
    assert levels[expect["blank_at_s"] + 2] == 2
    assert fleet.firing == ["group_stale"]
    assert fleet.core.snapshot is not None
    assert (plain.fleet_lines(fleet.core.snapshot)[1].split()[-1] == "ok") is expect["node_green_at_600"]


def test_H7() -> None:  # noqa: N802
    series, expect = load("H7", "series.json"), load("H7", "expect.json")
    fleet = Fleet()
    for moment in series:
        fleet.now = 2000.0 + moment["local_mono"]
        raw = json.loads(fleet.frame(0, node_time=moment["remote_uptime"], net=table({"eth0": {
            "rx_bytes": moment["octets"]}})))
        raw["w"] = moment["remote_wall"]
        fleet.core.on_frame(0, fleet.now, 1_000_000.0 + moment["local_mono"], decode(json.dumps(raw).encode()), b"")
        fleet.core.tick(fleet.now, 1_000_000.0 + moment["local_mono"])
        if moment is series[0]:
            skew = fleet["node"].value("clock_skew_seconds", 0)
            assert skew is not None
            assert (skew > 30) is expect["skew_warn"]
    assert fleet["net"].value("receive_bytes_per_second", 0) == pytest.approx(expect["rate"])
