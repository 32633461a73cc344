"""The report of a check over many nodes: what an alert stands for, each node's own line, facts, what was not checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clustertop import plain, report
from clustertop.model import LinkState, NodeInfo
from clustertop.probe.frames import Err
from clustertop.rules.spec import builtin
from nodes import Fleet, gpus, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.report import Report
    from nodes import Table

RULES = builtin()
HOT, DYING = {"temp": 83}, {"temp": 89}


def checked(*nodes: Sequence[Mapping[str, Any]] | None, rack: str = "r1", **more: Table) -> Report:
    """The report on nodes with these GPUs; None: it cannot be reached."""
    fleet = Fleet([NodeInfo(f"gpu{number:03}", rack=rack) for number in range(1, len(nodes) + 1)],
                  rules=report.momentary(RULES))
    for number, one in enumerate(nodes):
        if one is None:
            fleet.link(number, LinkState.UNREACHABLE, "tcp: no route to host")
    for _ in range(2):
        for number, one in enumerate(nodes):
            if one is not None:
                fleet.say(number, gpu=gpus(*one), **more)
        fleet.step()
    assert fleet.core.snapshot is not None
    return report.make(fleet.core.snapshot, RULES)


def said(made: Report) -> Any:
    return json.loads(plain.json_text(report.as_object(made)))


class TestInside:
    def test_an_alert_about_many_nodes_carries_every_verdict(self) -> None:
        made = checked(*[[HOT, {}]] * 5, [{}, {}])
        (finding,) = said(made)["findings"]
        assert finding["node"] == ""
        assert finding["members"] == [f"gpu{number:03}" for number in range(1, 6)]
        assert [(one["node"], one["thing"], one["label"], one["value"], one["severity"]) for one in finding["inside"]] == [
            (f"gpu{number:03}", "GPU-0", "GPU 0", 4.0, "warning") for number in range(1, 6)]
        assert all(one["rule"] == "gpu_temperature" and one["message"] == "83 °C, slowdown at 87 °C"
                   for one in finding["inside"])

    def test_the_text_folds_them_and_has_a_few_with_the_worst_first(self) -> None:
        made = checked([HOT], [HOT], [DYING], [HOT], [HOT], [{}])
        lines = report.lines(made)
        at = next(number for number, line in enumerate(lines) if "near its slowdown limit on 5 of 6 nodes" in line)
        assert lines[at + 1 : at + 6] == [
            "      on gpu[001-005]", "      gpu003 GPU 0: 89 °C, slowdown at 87 °C",
            "      gpu001 GPU 0: 83 °C, slowdown at 87 °C", "      gpu002 GPU 0: 83 °C, slowdown at 87 °C",
            "      ... and 2 more"]

    def test_several_things_of_one_node_are_listed_too(self) -> None:
        made = checked([HOT, HOT, HOT, {}])
        (finding,) = said(made)["findings"]
        assert (finding["node"], len(finding["inside"])) == ("gpu001", 3)
        lines = report.lines(made)
        assert "      gpu001 GPU 1: 83 °C, slowdown at 87 °C" in lines
        assert not any(line.startswith("      on ") for line in lines), "one node is named by the alert itself"

    def test_an_alert_about_one_thing_is_one_line(self) -> None:
        made = checked([HOT, {}, {}])
        assert [len(finding["inside"]) for finding in said(made)["findings"]] == [1]
        assert not any(line.startswith("      ") for line in report.lines(made))

    def test_what_goes_under_its_cause_is_inside(self) -> None:
        lost = dict.fromkeys(("util", "power_mw", "temp", "mem_used", "pcie_width"), Err("GPU is lost"))
        made = checked([{}, {**lost, "ecc_unc": 3}, {}])
        rules = {one["rule"] for finding in said(made)["findings"] if finding["rule"] == "gpu_missing"
                 for one in finding["inside"]}
        assert rules == {"gpu_missing", "gpu_ecc"}


class TestBrief:
    def test_each_node_has_its_own_state_whatever_alert_it_is_part_of(self) -> None:
        made = checked([HOT, HOT], [HOT, {}], [DYING, HOT], [HOT, {}], [{}, {}], None)
        assert report.brief(made) == [
            "gpu001 warning: GPU 0 83 °C, slowdown at 87 °C; 1 more",
            "gpu002 warning: GPU 0 83 °C, slowdown at 87 °C",
            "gpu003 critical: GPU 0 89 °C, slowdown at 87 °C; 1 more",
            "gpu004 warning: GPU 0 83 °C, slowdown at 87 °C",
            "gpu005 ok",
            "gpu006 unknown: not read: unreachable: tcp: no route to host",
        ]
        assert made.status == report.EXIT_CRITICAL

    def test_one_node_checked_by_itself_says_what_it_says_among_others(self) -> None:
        alone, among = checked([HOT, {}]), checked(*[[HOT, {}]] * 8)
        assert report.brief(alone) == report.brief(among)[:1]
        assert alone.status == among.status == report.EXIT_WARNING

    def test_info_is_ok_and_is_not_said(self) -> None:
        made = checked([{"bar1_total": 256 << 20}])
        assert [alert.rule for alert in made.findings] == ["gpu_bar1"]
        assert report.brief(made) == ["gpu001 ok"]

    def test_it_is_one_line_whatever_a_node_says(self) -> None:
        facts = table({"": {"dns_seconds": 0, "dns": "EAI_X"}}, {"": {"host": "a\nb", "dns_error": "x\r\ny\x1b[0m"}})
        (line,) = report.brief(checked([{}], screen=facts))
        assert line.startswith("gpu001 warning: own host name ")
        assert not set(line) & {"\n", "\r", "\x1b"}


class TestFacts:
    FACTS = table({"": {"dns_seconds": 0.4, "dns": "ok", "monitors": 3}},
                  {"": {"host": "gpu001", "monitors": ["nvtop 2", "telegraf 1"]}})
    HELD = table({"GPU-0/1": {"mem_used": 59 << 30}}, {"GPU-0/1": {"gpu": "GPU-0", "pid": 1}})

    def test_in_text(self) -> None:
        lines = report.lines(checked([{}, {"mem_used": 3 << 30}], screen=self.FACTS, process=self.HELD))
        at = lines.index("facts")
        assert lines[at + 1 : at + 4] == [
            "  own host name: resolves on 1 of 1 nodes, slowest 0.4 s (gpu001)",
            "  monitors beside this one: nvtop on 1 node, telegraf on 1 node",
            "  memory held by no process: median 2.0 GiB a GPU, most 3.0 GiB (gpu001 GPU 1)"]

    def test_in_json(self) -> None:
        told = said(checked([{}, {"mem_used": 3 << 30}], None, screen=self.FACTS, process=self.HELD))
        assert told["facts"] == {
            "own_name": {"resolves": 1, "asked": 1, "slowest_seconds": 0.4, "slowest_node": "gpu001"},
            "monitors": {"nvtop": 1, "telegraf": 1},
            "memory_held_by_no_process": {
                "median_bytes": float(2 << 30), "most_bytes": float(3 << 30), "most_on": "gpu001 GPU 1"}}

    def test_what_could_not_be_read_is_said(self) -> None:
        made = checked([{}], [{}], None)
        text = report.lines(made)
        assert "  own name, sysctls and other monitors: 3 of 3 nodes (no such reading)" in text
        assert "  memory held by no process: 2 of 2 (processes not listed)" in text
        assert "facts" not in text
        odd = table({"": {"dns_seconds": 0, "dns": "ok", "somaxconn": Err("EACCES"), "slow_start_after_idle": 0,
                          "monitors": Err("processes hidden: ENOENT")}}, {"": {"host": "x"}})
        told = said(checked([{}], screen=odd))["not_checked"]
        assert "net.core.somaxconn: 1 of 1 (no permission)" in told
        assert "other monitors: 1 of 1 (processes hidden: ENOENT)" in told
        assert "net.ipv4.tcp_slow_start_after_idle" not in " ".join(told)


def test_exit_signals_are_in_both() -> None:
    made = checked([{"util": 60}, {"util": 62}])
    (one,) = said(made)["exits"]
    assert (one["kind"], one["name"], one["nodes"]) == ("rack", "r1", ["gpu001"])
    assert {name: signal["answer"] for name, signal in one["signals"].items()} == {
        "cross_rack_share": "not measured", "nccl_init": "not measured", "utilization": "yes"}
    (line,) = [line for line in report.lines(made) if line.startswith("rack r1 ")]
    assert line.count("not measured") == 2
    assert "yes (61 %; at this moment; watched for" in line
