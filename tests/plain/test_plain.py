"""Tables, lines and JSON as text."""

from __future__ import annotations

import io
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop import plain, plain_table
from clustertop.clock import iso
from clustertop.model import LinkState, NodeInfo, Severity, Thing, Transition
from clustertop.probe.frames import Err, Table
from clustertop.rules import latency
from clustertop.rules.spec import builtin
from clustertop.wire.transport import PollSettings
from nodes import Fleet, gpus, lost, ports, table

if TYPE_CHECKING:
    from clustertop.core import Snapshot


def snapshot(fleet: Fleet) -> Snapshot:
    """The newest moment."""
    assert fleet.core.snapshot is not None
    return fleet.core.snapshot


def cell(fleet: Fleet, head: str, row: int = 0) -> str:
    """What the fleet's table says under *head*: what stands in the columns that the head's word ends in."""
    lines = plain.fleet_lines(snapshot(fleet))
    end = lines[0].index(head) + len(head)
    if head in {"node", "state"}:
        start = lines[0].index(head)
        return lines[1 + row][start:].split("  ")[0]
    if head == "alerts":
        return lines[1 + row].split()[-1]
    return lines[1 + row][:end].split("  ")[-1].strip()


class TestCells:
    @pytest.mark.parametrize(("text", "width"), [
        ("abc", 3), ("", 0), ("°C", 2), ("節點", 4), ("e\u0301", 1), ("ﾊﾟ", 2), ("𝟘", 1), ("🙂", 2)])
    def test_columns_on_a_terminal(self, text: str, width: int) -> None:
        assert plain_table.cells(text) == width

    @given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=30), st.integers(1, 20), st.booleans())
    def test_padded_or_cut_text_takes_exactly_its_columns(self, text: str, width: int, right: bool) -> None:
        out = plain_table.pad(text, width, right=right)
        assert plain_table.cells(out) == width
        if plain_table.cells(text) <= width:
            assert out.strip(" ") == text.strip(" ")

    @given(st.lists(st.lists(st.text("ab節° ", max_size=12), min_size=3, max_size=3), max_size=6))
    def test_F4_columns_begin_at_the_same_cell_in_every_line(self, rows: list[list[str]]) -> None:  # noqa: N802
        lines = plain_table.table(("one", "two", "|"), [[*row[:2], "|"] for row in rows])
        assert len({plain_table.cells(line.partition("|")[0]) for line in lines}) == 1

    def test_the_last_column_is_never_cut_and_the_others_are(self) -> None:
        (_, line) = plain_table.table(("node", "message"), [("n" * 100, "m" * 300)])
        assert line == "n" * 59 + "…  " + "m" * 300


class TestState:
    def test_a_node_that_was_never_read_is_not_up(self) -> None:
        fleet = Fleet()
        fleet.step()
        assert cell(fleet, "state") == "no reading"
        assert cell(fleet, "alerts") == "unknown"

    def test_silent_is_stale_and_says_since_when(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus({}))
        assert (cell(fleet, "state"), cell(fleet, "alerts")) == ("up", "ok")
        for _ in range(30):
            fleet.step()
        assert cell(fleet, "state") == "stale 30 s"

    def test_a_node_of_which_one_group_hangs_is_up(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus({}), net=table({"eth0": {"rx_bytes": 1}}))
        for _ in range(30):
            fleet.step(gpu=gpus({}), states={"host": {"st": "hung", "w": "read /proc/stat", "t": 501.0, "n": 1}})
        assert cell(fleet, "state") == "up"
        assert ("n0", "host HUNG: read /proc/stat") in plain.unread(snapshot(fleet))

    def test_H4_a_group_that_is_old_makes_a_node_not_ok(self) -> None:  # noqa: N802
        fleet = Fleet(rules={})
        fleet.step(gpu=gpus({}), port=ports({}))
        for _ in range(30):
            fleet.step(port=ports({}), states={"gpu": {"t": 501.0, "n": 1}})
        assert (cell(fleet, "state"), cell(fleet, "alerts")) == ("up", "unknown")
        assert plain.unread(snapshot(fleet)) == [("n0", "gpu stale: no reading for 30 s")]

    def test_why_a_node_cannot_be_read_is_said(self) -> None:
        fleet = Fleet(2)
        fleet.link(0, LinkState.AUTH_FAILED, "login as root: no key was accepted")
        fleet.step()
        assert cell(fleet, "state") == "auth failed"
        assert "n0    auth failed: login as root: no key was accepted" in plain.fleet_lines(snapshot(fleet))

    def test_a_frame_that_could_not_be_used_is_said(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus({}))
        fleet.core.bad_frames[0] = "cell 7 of a table of 1"
        fleet.tick()
        assert ("n0", "cell 7 of a table of 1") in plain.unread(snapshot(fleet))
        assert plain.fleet_object(snapshot(fleet))["nodes"][0]["reason"] == "cell 7 of a table of 1"  # type: ignore[index]


class TestSums:
    def test_H3_sums_over_a_part_are_at_least(self) -> None:  # noqa: N802
        fleet = Fleet(rules={})
        fleet.step(gpu=gpus({}, {}, lost()))
        assert (cell(fleet, "power"), cell(fleet, "hottest"), cell(fleet, "GPUs")) == (">=1200 W", ">=60 °C", "2/3")
        fleet.step(gpu=gpus({}, {}, {}))
        assert (cell(fleet, "power"), cell(fleet, "hottest"), cell(fleet, "GPUs")) == ("1800 W", "60 °C", "3/3")

    def test_H3_a_mean_over_a_part_says_over_how_many(self) -> None:  # noqa: N802
        fleet = Fleet(rules={})
        unknown = {"util": Err("Unknown Error")}
        fleet.step(gpu=gpus({"util": 96}, unknown, {"util": 94}, unknown))
        assert cell(fleet, "util") == "95 % (2/4)"
        mig = {"util": Err("Not Supported"), "mig": 1}
        fleet.step(gpu=gpus({"util": 96}, {"util": 94}, mig, mig))
        assert cell(fleet, "util") == "95 %", "a GPU in MIG mode is in no mean"
        fleet.step(gpu=gpus(unknown, unknown))
        assert cell(fleet, "util") == "-"

    def test_unknown_is_a_dash_and_never_0(self) -> None:
        fleet = Fleet(rules={})
        fleet.step(gpu=gpus({"power_mw": Err("Unknown Error")}))
        assert cell(fleet, "power") == "-"
        assert cell(fleet, "rdma rx") == "-"
        assert cell(fleet, "load") == "-"

    def test_traffic_by_the_ports_counters_or_the_drivers_own_without_virtual_functions(self) -> None:
        fleet = Fleet(rules={})
        rows = {"a/1": {"c:port_rcv_data": 250}, "b/1": {"h:rx_bytes": 1000}, "c/1": {"c:port_rcv_data": 9000}}
        attrs: dict[str, dict[str, Any]] = {"a/1": {}, "b/1": {}, "c/1": {"physfn": "0000:01:00.0"}}
        fleet.step(port=table(dict.fromkeys(rows, {**dict.fromkeys(("c:port_rcv_data", "h:rx_bytes"))}), attrs))
        for factor in (1, 2):
            fleet.step(port=table({key: {name: value * factor for name, value in row.items()}
                                   for key, row in rows.items()}, attrs))
        assert fleet["port"].value("virtual", 2) == 1
        assert cell(fleet, "rdma rx") == "2.0 kB/s"


def change(**changes: Any) -> Transition:
    """A transition."""
    usual: dict[str, Any] = {
        "at": 50.0, "wall": 1_700_000_050.0, "kind": "raised", "rule": "pcie_width", "severity": Severity.CRITICAL,
        "thing": Thing("pcie", "n1", "0000:17:00.0", "GPU 3 17:00.0"), "message": "is x8, expected x16", "value": 8.0,
        "limit": 0.0, "unit": "lanes", "since": 47.5, "alert": "1b338b733e"}
    return Transition(**{**usual, **changes})


class TestTransitions:
    def test_json_keys_are_a_contract(self) -> None:
        assert json.loads(plain.transition_json(change())) == {
            "at": "2023-11-14T22:14:10.000Z", "kind": "raised", "rule": "pcie_width", "severity": "critical",
            "node": "n1", "table": "pcie", "thing": "0000:17:00.0", "label": "GPU 3 17:00.0",
            "message": "is x8, expected x16", "value": 8.0, "limit": 0.0, "unit": "lanes",
            "since": "2023-11-14T22:14:07.500Z", "alert": "1b338b733e", "into": None, "members": 0,
            "quiet": False}

    def test_a_parent_of_nodes_has_no_node_and_is_named(self) -> None:
        rack = change(thing=Thing("rack", "", "r7", "rack r7"), message="16 of 16 nodes unreachable: gpu[097-112]",
                      rule="node_unreachable", members=16)
        assert plain.transition_line(rack)[9:] == (
            "CRIT raised   rack r7: 16 of 16 nodes unreachable: gpu[097-112] [node_unreachable]")
        said = json.loads(plain.transition_json(rack))
        assert (said["node"], said["table"], said["thing"], said["members"]) == ("", "rack", "r7", 16)

    def test_a_line_names_node_thing_and_rule(self) -> None:
        assert plain.transition_line(change())[9:] == (
            "CRIT raised   n1 GPU 3 17:00.0: is x8, expected x16 [pcie_width]")
        node = change(thing=Thing("node", "n1", "", "n1"), severity=Severity.WARNING, message="no frames for 8 s")
        assert plain.transition_line(node)[9:] == "warn raised   n1: no frames for 8 s [pcie_width]"

    @pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
    def test_json_is_json_whatever_the_output_can_carry(self, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        text = plain.transition_json(change(message="80 °C … 節點"))
        assert json.loads(text.encode(encoding))["message"] == "80 °C … 節點"
        assert ("節" in text) == (encoding == "utf-8")


class TestObject:
    def test_every_reading_has_a_unit_and_a_value_or_why_not(self) -> None:
        fleet = Fleet([NodeInfo("n0", rack="r1", groups=("train",)), NodeInfo("n1")])
        fleet.step(gpu=gpus({}, {"util": Err("Not Supported"), "temp": 2**31 - 16}), port=ports({}),
                   net=table({"eth0": {"rx_bytes": 5}}, {"eth0": {"name": "eth0"}}))
        made: Any = json.loads(plain.json_text(plain.fleet_object(snapshot(fleet))))
        first, second = made["nodes"]
        assert (first["name"], first["rack"], first["groups"], first["link"]) == ("n0", "r1", ["train"], "up")
        assert second["state"] == "no reading"
        ones, twos = (row["readings"] for row in first["tables"]["gpu"])
        assert ones["power_watts"] == {"value": 600.0, "unit": "W"}
        assert twos["utilization_ratio"] == {"value": None, "unit": "ratio", "unknown": "not supported"}
        assert twos["temperature_celsius"] == {"value": None, "unit": "°C", "unknown": "out of range"}
        assert ones["presence"] == {"value": 0, "unit": "", "text": "present"}
        port = first["tables"]["port"][0]
        assert port["label"] == "mlx5_0/1"
        assert port["readings"]["link"]["text"] == "up"
        assert port["age_seconds"] == 0.0
        entries = [entry for node in made["nodes"] for rows in node["tables"].values() for row in rows
                   for entry in row["readings"].values()]
        assert all(entry["unit"] is not None and (entry["value"] is not None or entry["unknown"]) for entry in entries)

    def test_alerts_say_since_when(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus({"temp": 90}))
        (alert,) = plain.fleet_object(snapshot(fleet))["alerts"]  # type: ignore[misc,attr-defined]
        assert (alert["rule"], alert["severity"], alert["since"]) == ("gpu_temperature", "critical", iso(fleet.now - 1))
        rule = builtin()["gpu_temperature"]
        assert (alert["hint"], alert["look"], alert["source"]) == (rule.hint, rule.look, rule.source)
        assert alert["detects_within_seconds"] is None, "nobody said how often it is read"
        when = latency.times(PollSettings(interval_seconds=3.0), 0.5)
        (alert,) = plain.fleet_object(snapshot(fleet), when)["alerts"]  # type: ignore[misc,attr-defined]
        assert alert["detects_within_seconds"] == 3 + 3 + 0.5 + 0.5
        lines = plain.fleet_lines(snapshot(fleet))
        assert lines[-2] == "1 alert"
        assert re.split(" {2,}", lines[-1]) == ["CRIT", "1.0 s", "n0", "GPU 0", "90 °C, slowdown at 87 °C"]
        assert cell(fleet, "alerts") == "CRIT"


def test_once_says_what_sets_a_node_apart_from_its_peers() -> None:
    fleet = Fleet([NodeInfo(f"n{number}", groups=("train",)) for number in range(4)], rules={})
    fleet.now += 1
    for number in range(4):
        fleet.facts[number]["driver"] = "565.9" if number == 2 else "570.1"
        fleet.say(number, gpu=gpus({}))
    fleet.tick()
    lines = plain.fleet_lines(snapshot(fleet))
    at = lines.index("differences between peers: 1")
    assert lines[at + 1] == "  n2: driver 565.9, 3 of 4 peers have 570.1"
    assert plain.fleet_object(snapshot(fleet))["differences"] == [
        {"node": "n2", "label": "", "what": "driver", "value": "565.9", "usual": "570.1", "common": 3, "of": 4}]
    alike = Fleet(4, rules={})
    alike.tick()
    assert not any("differences" in line for line in plain.fleet_lines(snapshot(alike)))


class TestJobs:
    def fleet(self) -> Fleet:
        fleet = Fleet([NodeInfo(name) for name in ("a1", "a2", "b1", "c1")], expect_gpus=lambda node: 2)
        watts = ((600e3, 620e3), (610e3, None), (90e3, 95e3), (70e3, 70e3))
        for number, (jobs, pair) in enumerate(zip((["31"], ["31"], [], None), watts, strict=True)):
            changes = [{"power_mw": Err("Not Supported") if power is None else power, "util": 80 + 5 * number + at}
                       for at, power in enumerate(pair)]
            attrs = {} if jobs is None else {"jobs": jobs}
            fleet.say(number, gpu=gpus(*changes), node=Table([("", attrs)], ["load1"], [1.0]))
        fleet.tick()
        return fleet

    def test_a_line_per_job_behind_the_nodes(self) -> None:
        lines = plain.fleet_lines(snapshot(self.fleet()))
        start = lines.index("1 job")
        assert lines[start + 1].split() == ["job", "nodes", "GPUs", "median", "util", "power", "shared", "alerts"]
        assert lines[start + 2].split() == ["31", "2/2", "4/4", "83", "%", ">=1830", "W", "-", "ok"]
        assert lines[start + 3] == "nodes: 1 without a job, 1 of which no job is known"

    def test_without_jobs_there_is_no_section(self) -> None:
        fleet = Fleet(1)
        fleet.step(1.0, gpu=gpus(count=1))
        assert not any("job" in line for line in plain.fleet_lines(snapshot(fleet)))

    def test_json_has_the_job_of_each_node_and_gpu(self) -> None:
        made = plain.fleet_object(snapshot(self.fleet()))
        json.dumps(made)
        nodes = made["nodes"]
        assert isinstance(nodes, list)
        assert [node["jobs"] for node in nodes] == [["31"], ["31"], [], None]
        assert [gpu["job"] for node in nodes for gpu in node["tables"]["gpu"]] == ["31"] * 4 + [None] * 4
        assert made["jobs"] == [{
            "job": "31", "nodes": 2, "nodes_up": 2, "nodes_shared": 0, "gpus": 4, "gpus_present": 4,
            "median_utilization_ratio": pytest.approx(0.83), "power_watts": pytest.approx(1830.0),
            "power_partial": True, "severity": "ok"}]

    def test_a_job_of_which_a_node_is_silent_is_not_ok(self) -> None:
        fleet = self.fleet()
        fleet.now += 8.0
        fleet.say(0, gpu=gpus(count=2))
        fleet.tick()
        lines = plain.fleet_lines(snapshot(fleet))
        assert lines[lines.index("1 job") + 2].split()[-1] in {"unknown", "warn"}
        assert lines[lines.index("1 job") + 2].split()[1] == "1/2"
