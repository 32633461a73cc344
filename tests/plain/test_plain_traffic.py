"""Traffic in ``once`` and ``check``: nodes and switches made by code, through the real Core."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clustertop import plain, report
from clustertop.rules.spec import builtin
from tui.traffic_fleet import Leaf, Uplink, Wires, ring


def wires(**more: Any) -> Wires:
    """Two racks of two nodes below one leaf; one job over all of them, in the worst order."""
    made = Wires(2, 2, leaves=1, **more)
    made.jobs = {number: ["77"] for number in range(4)}
    made.flows = {**ring([0, 2, 1, 3], 3e8), (1, -1): 4e8}
    made.leaves = {"lf1": Leaf([Uplink(1e8) for _ in range(4)], 1.6e9)}
    return made


def line(lines: list[str], start: str) -> str:
    return next(one for one in lines if one.startswith(start))


def test_once_has_a_line_per_scope_and_per_leaf_with_meter_and_coverage() -> None:
    made = wires().run(60)
    assert made.snapshot is not None
    lines = plain.fleet_lines(made.snapshot)
    job = line(lines, "job 77")
    assert job.split()[2:4] == ["100", "%"]
    assert "cross-rack, sockets" in job
    assert " yes " in job
    assert "4/4" in job
    assert "1.6 GB/s" in job
    assert "25 %" in job
    assert "no: judged by job or group" in line(lines, "fleet")
    leaf = line(lines, "lf1")
    assert leaf.split()[1:3] == ["25", "%"]
    assert "0/4" in leaf


def test_without_a_meter_there_is_no_table_and_the_exit_signal_is_not_measured() -> None:
    made = Wires(2, 2)
    made.jobs = {number: ["77"] for number in range(4)}
    made.deaf = {0, 1, 2, 3}
    made.run(5)
    assert made.snapshot is not None
    lines = plain.fleet_lines(made.snapshot)
    assert not [one for one in lines if one.startswith("traffic ")]
    assert "not measured" in line(lines, "job 77 ")


def test_without_a_rack_map_the_share_is_unknown_and_what_to_configure_is_said() -> None:
    made = Wires(2, 2, mapped=False)
    made.flows = ring([0, 1, 2, 3], 1e9)
    made.run(30)
    assert made.snapshot is not None
    lines = plain.fleet_lines(made.snapshot)
    assert line(lines, "fleet").split()[1] == "?"
    assert "unknown: no rack map" in line(lines, "fleet")
    assert line(lines, "no rack map").endswith("ibnetdiscover")


def test_json_has_scopes_matrix_and_leaves_with_a_reason_for_each_null() -> None:
    made = wires()
    made.deaf = {2, 3}
    made.run(60)
    assert made.snapshot is not None
    found = json.loads(plain.json_text(plain.fleet_object(made.snapshot)))["traffic"]
    job = next(one for one in found["scopes"] if one["scope"] == "job/77")
    assert (job["definition"], job["meter"], job["quality"]) == ("through spine", "uplinks", "measured")
    assert job["nodes_read"] == 2
    assert job["readings"]["socket_cross_rack_ratio"] == {"value": pytest.approx(1.0), "unit": "ratio"}
    assert job["readings"]["share_ratio"] == {"value": pytest.approx(0.25), "unit": "ratio"}
    assert job["readings"]["judged_ratio"]["value"] == pytest.approx(0.25), "sockets of two of four nodes are not"
    assert job["readings"]["nccl_cross_rack_ratio"]["unknown"] == "no NCCL log is read"
    assert found["matrix"]["racks"] == [{"name": "row-1", "nodes": 2, "nodes_read": 2},
                                        {"name": "row-2", "nodes": 2, "nodes_read": 0}]
    cells = found["matrix"]["from_row_to_column"]
    assert cells[0] == [0.0, pytest.approx(6e8, rel=0.01)]
    assert cells[1] == [pytest.approx(6e8, rel=0.01), None]
    assert found["matrix"]["unplaced"] == [pytest.approx(4e8, rel=0.01), None]
    assert found["matrix"]["unknown"] == "no node of either rack is read"
    assert [one["name"] for one in found["leaves"][0]["uplinks"]] == ["swp51", "swp52", "swp53", "swp54"]
    assert found["leaves"][0]["readings"]["uplink_load_ratio"]["value"] == pytest.approx(1e8 * 8 / 1e11)
    assert found["unplaced"] == [{"name": "192.0.2.77", "bytes_per_second": pytest.approx(4e8, rel=0.01)}]
    assert {one["name"]: one["unknown"] for one in found["meters"]}["fabric"] == "not measured: none is set"
    for scope in (*found["scopes"], *found["leaves"]):
        for name, entry in scope["readings"].items():
            assert (entry["value"] is None) == bool(entry.get("unknown")), name


def test_json_has_a_share_of_too_few_nodes_and_says_that_it_is_not_judged() -> None:
    made = wires()
    made.deaf, made.leaves = {2, 3}, {}
    made.run(60)
    assert made.snapshot is not None
    found = json.loads(plain.json_text(plain.fleet_object(made.snapshot)))["traffic"]
    job = next(one for one in found["scopes"] if one["scope"] == "job/77")
    assert (job["definition"], job["meter"], job["quality"]) == ("cross-rack", "sockets", "measured")
    assert job["readings"]["share_ratio"] == {"value": pytest.approx(1.0), "unit": "ratio"}
    assert job["readings"]["judged_ratio"]["value"] is None
    assert job["readings"]["judged_ratio"]["unknown"] == "too few of its nodes are read"


def test_check_has_the_share_as_a_finding_at_this_moment_and_in_its_json() -> None:
    rules = builtin()
    made = wires(rules=report.momentary(rules)).run(30)
    assert made.snapshot is not None
    done = report.make(made.snapshot, rules)
    lines = report.lines(done)
    found = next(one for one in lines if "leaves its rack" in one)
    assert found.startswith("warn")
    assert "job 77" in found
    assert "(at this moment; watch waits 5 min)" in found
    assert line(lines, "traffic: 1 finding")
    assert "cross-rack, sockets" in line(lines, "job 77")
    scopes = json.loads(plain.json_text(report.as_object(done)))["traffic"]["scopes"]
    assert [one["scope"] for one in scopes] == ["fleet", "job/77"]
