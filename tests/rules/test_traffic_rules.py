"""The rules of traffic in force: cases D by their ids, jobs that end, and the exit signal of the share between racks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clustertop.model import NodeInfo
from clustertop.places import Site
from clustertop.quantity import duration
from clustertop.rules.exits import exits
from clustertop.rules.spec import builtin
from nodes import Fleet, table

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
STEP = 5
"""Seconds between two readings."""
RULES = {name: rule for name, rule in builtin().items() if name in {"cross_rack_share", "meters_disagree"}}


def case(name: str) -> Any:
    if not (CASES / name).is_dir():
        pytest.skip("needs the shared cases")
    return {path.stem: json.loads(path.read_text()) for path in (CASES / name).glob("*.json")}


class Talk:
    """A fleet whose nodes send each other so many bytes a second; node i has address 10.0.0.<i>."""

    def __init__(self, racks: dict[str, str], **core: Any) -> None:
        self.names = list(racks)
        self.fleet = Fleet([NodeInfo(name, rack=rack) for name, rack in racks.items()], RULES,
                           interval=float(STEP), **core)
        self.flows: dict[tuple[str, str], float] = {}
        self.nics: dict[str, float] = {}
        self.jobs: dict[str, list[str]] = {}
        self.seconds = 0

    def address(self, name: str) -> str:
        return f"10.0.0.{self.names.index(name)}" if name in self.names else name

    def run(self, seconds: int) -> None:
        for _ in range(0, seconds, STEP):
            self.seconds += STEP
            self.fleet.now += STEP
            for number, name in enumerate(self.names):
                mine = {target: rate for (source, target), rate in self.flows.items() if source == name}
                known = {self.address(target): {"tx_bytes": rate * self.seconds, "rx_bytes": 0.0, "sockets": 1}
                         for target, rate in mine.items()}
                for (source, target), rate in self.flows.items():
                    if target == name:  # a connection has two ends
                        told = known.setdefault(self.address(source), {"tx_bytes": 0.0, "sockets": 1})
                        told["rx_bytes"] = rate * self.seconds
                tables = {
                    "peer": table(known),
                    "link": table({"eth0": {}}, {"eth0": {"name": "eth0", "addresses": [self.address(name)]}}),
                    "node": table({"": {"ncpu": 8}}, {"": {"jobs": self.jobs[name]} if name in self.jobs else {}})}
                if name in self.nics:
                    tables["net"] = table({"eth0": {"tx_bytes": self.nics[name] * self.seconds}},
                                          {"eth0": {"name": "eth0", "phys": True}})
                self.fleet.say(number, **tables)
            self.fleet.tick()

    @property
    def fired(self) -> list[str]:
        return [one.rule for one in self.fleet.alerts]


def test_d1_a_bad_order_is_predicted_and_raises_nothing_by_itself() -> None:
    orders = case("D1")["orders"]
    talk = Talk(orders["racks"], site=Site(order=tuple(orders["a"])))
    talk.run(400)
    view = talk.fleet.view
    row = view.traffic.rows["fleet"]
    assert view["traffic"].value("predicted_cross_rack_ratio", row) == case("D1")["expect"]["a"]
    assert view["traffic"].value("share_ratio", row) is None
    assert talk.fired == []


def test_d2_without_a_rack_map_nothing_is_raised_and_the_exit_is_not_measured() -> None:
    flows = case("D2")["flows"]
    talk = Talk(dict.fromkeys(("n1", "n2", "n3"), ""))
    talk.flows = {(source, target): amount * 1e6 for source, target, amount in flows["bytes"]}
    talk.run(400)
    assert talk.fired == []
    verdict = exits(talk.fleet.view)[0].verdicts[0]
    assert (verdict.answer, verdict.note) == ("not measured", "no rack map")


@pytest.mark.parametrize(("nic", "fires"), [(1.02, True), (14.0, False)])
def test_d4_a_share_by_a_meter_that_sees_too_little_raises_nothing(nic: float, fires: bool) -> None:
    talk = Talk({"a": "r1", "b": "r1", "c": "r2"})
    talk.flows = {("a", "c"): 5e6}
    talk.nics = {"a": 5e6 * nic}
    talk.run(400)
    assert ("cross_rack_share" in talk.fired) == fires
    assert ("meters_disagree" in talk.fired) == (not fires)


def test_a_share_of_thirty_percent_is_not_above_it() -> None:
    talk = Talk({"a": "r1", "b": "r1", "c": "r2"})
    talk.flows = {("a", "b"): 7e6, ("a", "c"): 3e6}
    talk.run(400)
    assert talk.fired == []
    talk.flows["a", "c"] = 3.5e6
    talk.run(400)
    assert talk.fired == ["cross_rack_share"]


def test_the_exit_signal_is_not_measured_where_the_share_may_not_be_judged() -> None:
    """Two of six nodes stand in a rack by the map: what they send each other is not the job's share."""
    talk = Talk({"a": "r1", "b": "r2", "c": "", "d": "", "e": "", "f": ""})
    talk.jobs = {name: ["77"] for name in "abcdef"}
    talk.flows = {("a", "b"): 9e6, ("c", "d"): 9e6, ("e", "f"): 9e6}
    talk.run(60)
    shown = {one.name: one.verdicts[0] for one in exits(talk.fleet.view) if one.kind == "job"}
    assert shown["77"].answer not in {"yes", "no"}
    assert shown["77"].note == "100 % cross-rack, by sockets, not judged: too few of its nodes are in the rack map"


def test_an_alert_of_a_job_names_definition_and_meter_and_ends_with_the_job() -> None:
    talk = Talk({"a": "r1", "b": "r1", "c": "r2", "d": "r2"})
    talk.jobs = {name: ["77"] for name in "acd"}
    talk.flows = {("a", "c"): 9e6, ("c", "a"): 9e6, ("c", "d"): 2e6}
    talk.run(340)
    (alert,) = talk.fleet.alerts
    assert alert.thing.id == "traffic:fleet:job/77"
    assert "cross-rack, by TCP sockets of 3 of 3 nodes" in alert.message
    shown = {one.name: one.verdicts[0] for one in exits(talk.fleet.view) if one.kind == "job"}
    assert shown["77"].answer == "yes"
    assert shown["77"].note == "cross-rack, by sockets"
    talk.jobs = {}
    talk.flows = {}
    talk.run(10)
    assert talk.fleet.alerts == []
    assert talk.fleet.rules == ["raised cross_rack_share", "cleared cross_rack_share"]


def test_a_fleet_that_comes_to_rest_ends_its_alert() -> None:
    talk = Talk({"a": "r1", "b": "r2"})
    talk.flows = {("a", "b"): 9e6}
    talk.run(340)
    assert talk.fired == ["cross_rack_share"]
    talk.flows = {("a", "b"): 0.0}
    talk.run(200)
    assert talk.fired == []


def test_a_limit_under_a_millisecond_is_not_said_to_be_none() -> None:
    assert duration(builtin()["tcp_jitter"].warning.limit) == "0.3 ms"  # type: ignore[union-attr]
    assert duration(0.0) == "0 ms"
