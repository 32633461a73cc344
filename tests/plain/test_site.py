"""Feeds and devices in ``once`` and ``check``: what is not read is never fine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from clustertop import plain, report
from clustertop.model import LinkState, NodeInfo
from clustertop.rules.spec import builtin
from feeds import Feed, Place, Supply

if TYPE_CHECKING:
    from clustertop.core import Snapshot

NODES = (NodeInfo("n0"), NodeInfo("n1"))


def pair(**more: Any) -> list[Feed]:
    hung = (Supply("n0"), Supply("n1"))
    return [Feed("A", 32.0, 230.0, pair="B", rack="r1", pdu="pdu-a", supplies=hung, **more),
            Feed("B", 32.0, 230.0, pair="A", rack="r1", pdu="pdu-b", supplies=hung)]


def place(**more: Any) -> Place:
    return Place(pair(), NODES, ("n0", "n1"), **more)


def snapshot(where: Place) -> Snapshot:
    assert where.core.snapshot is not None
    return where.core.snapshot


def section(lines: list[str], head: str) -> list[str]:
    """The lines from the one that begins with *head* to the next empty one."""
    start = next(number for number, line in enumerate(lines) if line.startswith(head))
    rest = lines[start:]
    return rest[: rest.index("")] if "" in rest else rest


class TestOnce:
    def test_a_line_per_feed_the_worst_first_and_a_pair_together(self) -> None:
        where = Place([*pair(), Feed("C", 32.0, 230.0, pdu="pdu-c")], NODES)
        for _ in range(3):
            where.read(pdu_a=9.0, pdu_b=7.5, pdu_c=29.0)
        head, titles, *rows = section(plain.fleet_lines(snapshot(where)), "3 feeds")
        assert head == "3 feeds"
        assert titles.split() == ["feed", "state", "share", "amps", "alone", "power"]
        assert [row.split()[:6] for row in rows] == [
            ["C", "CRIT", "91", "%", "29.0/32", "A"], ["A", "ok", "28", "%", "9.0/32", "A"],
            ["B", "ok", "23", "%", "7.5/32", "A"]]
        assert "52 %" in rows[1]
        assert "no pair" in rows[0]

    def test_a_feed_of_which_nothing_is_read_is_unknown_with_its_reason(self) -> None:
        where = place()
        where.link("pdu-a")
        where.read(pdu_b=7.0)
        lines = plain.fleet_lines(snapshot(where))
        rows = {row.split()[0]: row for row in section(lines, "2 feeds")[2:]}
        assert rows["A"].split()[1:4] == ["unknown", "-", "-"]
        assert rows["A"].endswith("its PDU does not answer")
        assert rows["B"].split()[1] == "ok"

    def test_a_silent_device_is_among_what_could_not_be_read_and_one_not_asked_yet_too(self) -> None:
        where = place()
        where.link("pdu-a", LinkState.AUTH_FAILED, "pdu-a:161: the agent refuses the user")
        where.link("n1-bmc", LinkState.CONNECTING, "")
        where.bmc("n0", 5000)
        where.read(pdu_b=7.0)
        assert [one for one in plain.unread(snapshot(where)) if one[0] not in {"n0", "n1"}] == [
            ("pdu-a", "PDU auth failed: pdu-a:161: the agent refuses the user"), ("n1-bmc", "BMC not read yet (connecting)")]

    def test_a_device_that_answers_no_more_in_time_is_stale(self) -> None:
        where = place()
        where.read(pdu_a=7.0, pdu_b=7.0)
        for _ in range(9):
            where.read(pdu_b=7.0)
        assert ("pdu-a", "PDU stale: no reading for 90 s") in plain.unread(snapshot(where))
        assert "pdu-b" not in dict(plain.unread(snapshot(where)))

    def test_without_a_site_there_is_no_section(self) -> None:
        where = Place([], NODES)
        where.tick()
        assert not any("feed" in line for line in plain.fleet_lines(snapshot(where)))
        made: Any = plain.fleet_object(snapshot(where))
        assert (made["feeds"], made["devices"]) == ([], [])

    def test_json_has_feeds_devices_and_what_bmcs_say_under_their_nodes(self) -> None:
        where = place()
        where.link("pdu-b", reason="no answer from pdu-b")
        where.bmc("n0", 5000, [("1", {"name": "PSU1"}, {"state": 1})])
        where.read(pdu_a=9.0)
        made: Any = json.loads(plain.json_text(plain.fleet_object(snapshot(where))))
        feeds = {one["name"]: one for one in made["feeds"]}
        assert {name: feeds["A"][name] for name in ("rack", "pair", "pdu", "nodes")} == {
            "rack": "r1", "pair": "B", "pdu": "pdu-a", "nodes": ["n0", "n1"]}
        assert feeds["A"]["readings"]["amps"] == {"value": 9.0, "unit": "A"}
        assert feeds["B"]["readings"]["amps"] == {"value": None, "unit": "A", "unknown": "its PDU does not answer"}
        devices = {one["name"]: one for one in made["devices"]}
        assert (devices["pdu-b"]["link"], devices["pdu-b"]["reason"]) == ("unreachable", "no answer from pdu-b")
        assert devices["pdu-b"]["age_seconds"] is None
        (inlet,) = devices["pdu-a"]["tables"]["pdu"]
        assert (inlet["readings"]["amps"], inlet["age_seconds"]) == ({"value": 9.0, "unit": "A"}, 0.0)
        assert (devices["n0-bmc"]["kind"], devices["n0-bmc"]["of"]) == ("bmc", "n0")
        tables = made["nodes"][0]["tables"]
        assert tables["bmc"][0]["readings"]["power_watts"] == {"value": 5000.0, "unit": "W"}
        assert [one["label"] for one in tables["psu"]] == ["PSU1"]
        assert not {"feed", "device", "pdu", "uplink"} & tables.keys()

    def test_a_transition_of_a_feed_names_it_once(self) -> None:
        where = place()
        for _ in range(3):
            where.read(pdu_a=29.0, pdu_b=1.0)
        change = next(one for one in where.seen if one.rule == "feed_current")
        line = plain.transition_line(change)
        assert " A feed: 29.0 A of 32 A (91 %)" in line
        made: Any = plain.transition_object(change)
        assert (made["node"], made["table"], made["label"]) == ("A", "feed", "feed A")


class TestCheck:
    def made(self, where: Place) -> report.Report:
        return report.make(snapshot(where), builtin())

    def passed(self) -> Place:
        """A place judged as one pass judges, with nodes that are read."""
        where = place(rules=report.momentary(builtin()))
        for node in ("n0", "n1"):
            where.link(node, LinkState.UP)
            where._send(node, "host", {})  # an empty reading of a node
            where.bmc(node, 3000, redundancy=0)
        return where

    def test_a_feed_at_its_limit_is_a_critical_finding_in_a_section_of_its_own(self) -> None:
        where = self.passed()
        where.read(0.1, pdu_a=29.0, pdu_b=1.0)
        done = self.made(where)
        assert done.unread == ()
        assert done.status == report.EXIT_CRITICAL
        lines = report.lines(done)
        assert lines[0] == "clustertop check: 2 of 2 nodes read, 4 of 4 devices"
        assert any("CRIT  A" in line and "29.0 A of 32 A" in line for line in section(lines, "power feeds:"))
        assert "power of nodes, by their BMCs: ok (2 judged)" in lines

    def test_a_device_that_cannot_be_read_is_unknown_and_no_finding(self) -> None:
        where = self.passed()
        where.link("n1-bmc", reason="n1-bmc: no answer")
        where.read(0.1, pdu_a=7.0, pdu_b=7.0)
        done = self.made(where)
        assert done.unread == (("n1-bmc", "BMC unreachable: n1-bmc: no answer"),)
        assert done.findings == ()
        assert done.status == report.EXIT_UNKNOWN
        assert report.lines(done)[0] == "clustertop check: 2 of 2 nodes read, 3 of 4 devices"
        assert "n1-bmc  BMC unreachable: n1-bmc: no answer" in report.lines(done)

    def test_briefly_its_node_is_fine_and_it_has_a_line_of_its_own(self) -> None:
        where = self.passed()
        where.link("n1-bmc", reason="n1-bmc: no answer")
        where.read(0.1, pdu_a=29.0, pdu_b=1.0)
        lines = report.brief(self.made(where))
        assert lines[:2] == ["n0 ok", "n1 ok"]
        assert lines[2].startswith("A critical: ")
        assert lines[3] == "n1-bmc unknown: not read: BMC unreachable: n1-bmc: no answer"

    def test_no_rule_is_without_a_section(self) -> None:
        own = msgspec.structs.replace(builtin()["feed_current"], table="sensor", metric="reading", follows=())
        rules = report.momentary({"hot_sensor": own, "feed_current": builtin()["feed_current"]})
        where = Place(pair(), NODES, rules=rules)
        where.read(0.1, pdu_a=7.0, pdu_b=7.0)
        done = report.make(snapshot(where), rules)
        assert {one.table for one in done.judged} == {"feed", "sensor"}
        assert "  sensor: none seen (1 rule)" in report.lines(done)
