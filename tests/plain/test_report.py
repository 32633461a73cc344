"""The screening report: what is wrong, how sure that is, what could not be checked, and the exit status of it all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from clustertop import plain, report
from clustertop.model import LinkState, NodeInfo
from clustertop.rules.sanity import check
from clustertop.rules.spec import Clear, Level, builtin
from clustertop.store.catalogue import SPECS
from nodes import Fleet, gpus, lost, ports

if TYPE_CHECKING:
    from clustertop.report import Report
    from nodes import Table

RULES = builtin()


def checking(nodes: int = 1) -> Fleet:
    """A fleet as ``check`` judges it."""
    return Fleet([NodeInfo(f"n{number}") for number in range(nodes)], rules=report.momentary(RULES))


def made(fleet: Fleet) -> Report:
    """The report now."""
    assert fleet.core.snapshot is not None
    return report.make(fleet.core.snapshot, RULES)


def look(*readings: dict[str, Table]) -> Report:
    """The report after *readings*, one a second."""
    fleet = checking()
    for reading in readings:
        fleet.step(**reading)
    return made(fleet)


def well(**changes: Any) -> dict[str, Table]:
    """A reading of a node with 8 GPUs, the fourth differing by *changes*, and two ports."""
    eight: list[dict[str, Any]] = [{}] * 3 + [changes] + [{}] * 4
    return {"gpu": gpus(*eight), "port": ports({"c:link_downed": 7}, {"c:link_downed": 0})}


class TestStatus:
    def test_ok(self) -> None:
        done = look(well(), well())
        assert (done.status, done.findings, done.unread) == (report.EXIT_OK, (), ())

    @pytest.mark.parametrize(("changes", "status", "rule"), [
        ({"temp": 83}, report.EXIT_WARNING, "gpu_temperature"),
        ({"temp": 88}, report.EXIT_CRITICAL, "gpu_temperature"),
        ({"pcie_width": 8}, report.EXIT_CRITICAL, "pcie_width"),
        ({"util": 10}, report.EXIT_WARNING, "gpu_utilization"),
        (lost(), report.EXIT_CRITICAL, "gpu_missing"),
    ], ids=str)
    def test_the_worst_finding(self, changes: dict[str, Any], status: int, rule: str) -> None:
        done = look(well(), well(**changes))
        assert done.status == status
        assert rule in [alert.rule for alert in done.findings]

    def test_info_is_no_warning(self) -> None:
        done = look({"port": ports({"c:link_downed": 255})}, {"port": ports({"c:link_downed": 255})})
        assert [alert.rule for alert in done.findings] == ["rdma_saturated"]
        assert done.status == report.EXIT_OK

    def test_unreachable_beats_a_warning_and_a_critical_finding_beats_it(self) -> None:
        for changes, status in (({"temp": 83}, report.EXIT_UNKNOWN), ({"temp": 88}, report.EXIT_CRITICAL)):
            fleet = checking(2)
            fleet.link(1, LinkState.UNREACHABLE, "tcp: no route to host")
            fleet.step(**well())
            fleet.step(**well(**changes))
            done = made(fleet)
            assert (done.read, done.nodes, done.status) == (1, 2, status)
            assert done.unread == (("n1", "unreachable: tcp: no route to host"),)
            assert "node_unreachable" not in [alert.rule for alert in done.findings], "it is not read, not bad"

    @pytest.mark.parametrize(("state", "said"), [
        ({"st": "hung", "w": "nvmlDeviceGetPowerUsage(GPU 3)"}, "gpu HUNG: nvmlDeviceGetPowerUsage(GPU 3)"),
        ({"st": "error", "e": "Driver/library version mismatch"}, "gpu error: Driver/library version mismatch"),
        ({"st": "wait"}, "gpu not read yet"),
        ({}, "gpu stale: no reading for 10 s"),
    ], ids=["hung", "error", "wait", "H4-stale"])
    def test_a_group_that_says_nothing_is_unknown(self, state: dict[str, Any], said: str) -> None:
        fleet = checking()
        fleet.step(**well())
        for _ in range(10):
            fleet.step(port=ports({}, {}), states={"gpu": {"t": 501.0, "n": 1, **state}})
        done = made(fleet)
        assert done.unread == (("n0", said),)
        assert done.status == report.EXIT_UNKNOWN

    def test_a_group_that_is_not_there_is_not_missed(self) -> None:
        fleet = checking()
        for _ in range(10):
            fleet.step(port=ports({}, {}), states={"gpu": {"st": "off", "n": 1}})
        assert made(fleet).unread == ()


class TestMomentary:
    def test_every_rule_is_still_one(self) -> None:
        rules = report.momentary(RULES)
        check(rules, {spec.name: spec for spec in SPECS})
        levels = [level for rule in rules.values() for _, level in rule.levels()]
        assert {(level.for_seconds, level.for_polls) for level in levels} == {(0.0, 1)}
        assert {name: rule.op for name, rule in rules.items()} == {name: rule.op for name, rule in RULES.items()}

    def test_what_is_worse_only_by_lasting_longer_is_not_worse_in_a_moment(self) -> None:
        rule = report.momentary(RULES)["gpu_slowdown"]
        assert (rule.warning, rule.critical) == (Level(0.0), None)
        done = look(well(), well(reasons=0x40))
        assert [(alert.rule, alert.severity.name) for alert in done.findings] == [("gpu_slowdown", "WARNING")]
        assert done.status == report.EXIT_WARNING

    def test_what_is_worse_by_its_limit_stays_worse(self) -> None:
        rule = report.momentary(RULES)["rdma_soft_errors"]
        assert (rule.warning, rule.critical) == (Level(10.0), Level(100.0))

    def test_a_dip_that_is_over_at_the_end_is_no_finding(self) -> None:
        assert report.momentary(RULES)["gpu_utilization"].clear == Clear()
        assert look(well(), well(util=10), well()).findings == ()
        assert [alert.rule for alert in look(well(), well(), well(util=10)).findings] == [
            "gpu_straggler", "gpu_utilization"]

    def test_an_event_during_the_pass_is_a_finding(self) -> None:
        readings = [{"port": ports({"c:link_downed": count}, {})} for count in (7, 8, 8, 8, 8)]
        done = look(*readings)
        assert [(alert.rule, alert.severity.name) for alert in done.findings] == [("rdma_hard_errors", "WARNING")]

    def test_a_finding_says_how_long_watch_would_wait(self) -> None:
        done = look(well(), well(util=10, temp=83))
        lines = report.lines(done)
        assert next(line for line in lines if "utilisation 10 % with" in line).endswith(
            "(at this moment; watch waits 5 min)")
        assert next(line for line in lines if "83 °C" in line).endswith("slowdown at 87 °C")
        waits = {one["rule"]: one["waits_seconds"] for one in report.as_object(done)["findings"]}  # type: ignore[attr-defined]
        assert waits == {"gpu_temperature": None, "gpu_utilization": 300.0, "gpu_straggler": 120.0}


class TestText:
    def test_sections_worst_first_and_what_was_not_checked(self) -> None:
        fleet = checking(2)
        fleet.link(1, LinkState.AUTH_FAILED, "login: refused")
        fleet.step(**well())
        fleet.step(gpu=gpus({"temp": 83}, {"temp": 89}, {"temp_slowdown": None}))
        lines = report.lines(made(fleet))
        assert lines[0] == "clustertop check: 1 of 2 nodes read"
        at = next(place for place, line in enumerate(lines) if line.startswith("GPU: "))
        found = [line.split()[0] for line in lines[at + 1 :] if "slowdown at" in line]
        assert found == ["CRIT", "warn"]
        assert "n1    auth failed: login: refused" in lines
        assert any(line.startswith("  GPU near its slowdown limit: ") and " of " in line for line in lines)
        assert lines[-1] == "result: critical"

    def test_a_kind_that_no_node_has_is_said_once_and_is_not_ok(self) -> None:
        lines = report.lines(look({"gpu": gpus({}, {})}, {"gpu": gpus({}, {})}))
        assert sum("RDMA" in line for line in lines) == 3, "the ports, the node's ports together, and how many there must be"
        assert "  RDMA: none seen (11 rules)" in lines
        assert not any(line.startswith("RDMA: ok") for line in lines)

    def test_json_lists_every_rule_that_is_on(self) -> None:
        done = look(well(), well())
        made_object: Any = json.loads(plain.json_text(report.as_object(done)))
        assert made_object["status"] == 0
        assert {one["rule"] for one in made_object["judged"]} == set(RULES) - report.READING_RULES
        assert all(one["why"] for one in made_object["judged"] if one["unknown"])

    def test_reading_rules_are_rules(self) -> None:
        assert set(RULES) >= report.READING_RULES
