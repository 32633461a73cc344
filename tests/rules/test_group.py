"""One cause is one alert: parents, early signs, restarts; and nothing inside is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clustertop.model import LinkState, NodeInfo, Severity
from clustertop.probe.frames import Err
from clustertop.rules import messages
from clustertop.rules.domains import Domains
from clustertop.rules.spec import builtin
from nodes import Fleet, gpus, lost, ports, table


def racks(count: int, size: int, leaf: int = 0) -> list[NodeInfo]:
    """*count* racks of *size* nodes; with *leaf*, leaves of so many nodes across them."""
    return [NodeInfo(f"gpu{number + 1:03d}", rack=f"r{number // size + 1}",
                     leaf=f"l{number // leaf + 1}" if leaf else "") for number in range(count * size)]


def told(fleet: Fleet) -> list[str]:
    """The transitions so far: kind, rule, thing."""
    return [f"{change.kind} {change.rule} {change.thing.label}" for change in fleet.seen]


class Room(Fleet):
    """Many nodes that send a frame each second unless they are said to be away."""

    def __init__(self, nodes: list[NodeInfo], **core: Any) -> None:
        super().__init__(nodes, **core)
        self.away: set[int] = set()
        self.tables: dict[int, dict[str, Any]] = {}

    def run(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(seconds):
            self.now += 1.0
            for number in range(len(self.encoders)):
                if number not in self.away:
                    self.say(number, **self.tables.get(number, {"gpu": gpus({})}))
            self.tick()

    def lose(self, *numbers: int, after: float = 0.0) -> None:
        """These nodes fall silent now, and are given up one after another."""
        self.away.update(numbers)
        for number in numbers:
            if after:
                self.run(1)
            self.link(number, LinkState.UNREACHABLE, "connect timeout")

    def back(self, *numbers: int, boot: str = "") -> None:
        """These nodes answer again, after a boot where *boot* is its id."""
        for number in numbers:
            self.away.discard(number)
            if boot:
                self.facts[number] = {"boot_id": boot}
            self.link(number, LinkState.UP)


class TestParents:
    def test_a_rack_that_dies_is_one_alert_with_its_nodes_inside(self) -> None:
        room = Room(racks(3, 8))
        room.run(3)
        room.away.update(range(8, 16))
        room.run(9)  # silent for a while, then given up one after another
        room.lose(*range(8, 16), after=1.0)
        room.run(20)
        assert [alert.thing.id for alert in room.alerts] == ["rack::r2"]
        alert = room.alerts[0]
        assert (alert.rule, alert.severity) == ("node_unreachable", Severity.CRITICAL)
        assert alert.message.startswith("8 of 8 nodes unreachable: gpu[009-016] (connect timeout)")
        assert alert.members == tuple(f"gpu{number:03d}" for number in range(9, 17))
        assert len([one for one in room.inside() if one.startswith("node_unreachable")]) == 8
        assert len({change.alert for change in room.seen}) == 1, told(room)
        assert told(room)[0].startswith("raised")
        assert sum(change.kind == "raised" for change in room.seen) == 1

    def test_its_count_goes_down_and_what_remains_is_shown_by_itself(self) -> None:
        room = Room(racks(3, 8))
        room.run(3)
        room.lose(*range(8, 16))
        room.run(20)
        room.back(8, 9)
        room.run(2)
        assert room.alerts[0].message.startswith("6 of 8 nodes unreachable: gpu[011-016]")
        room.back(*range(10, 15))
        room.run(2)
        assert [(alert.rule, alert.thing.node) for alert in room.alerts] == [("node_unreachable", "gpu016")]
        assert told(room)[-2:] == ["cleared node_unreachable rack r2", "remains node_unreachable gpu016"]
        assert room.seen[-2].message.endswith("1 of them remain")
        assert room.seen[-2].value == 1.0
        room.back(15)
        room.run(2)
        assert room.alerts == []
        assert told(room)[-1] == "cleared node_unreachable gpu016"

    def test_a_lone_node_is_told_at_once(self) -> None:
        room = Room(racks(2, 8))
        room.run(3)
        room.lose(4)
        at = room.now
        room.run(6)
        assert told(room) == ["raised node_unreachable gpu005"]
        assert room.seen[0].at - at <= 4.0

    def test_everything_at_once_says_look_here_first(self) -> None:
        room = Room(racks(2, 4))
        room.run(3)
        room.lose(*range(8))
        room.run(20)
        assert [alert.thing.id for alert in room.alerts] == ["fleet::"]
        assert "this machine's own network" in room.alerts[0].message

    def test_the_leaf_is_named_where_it_explains_more_than_the_rack(self) -> None:
        nodes = racks(2, 8)
        nodes = [NodeInfo(node.name, rack=node.rack, leaf=f"l{number % 8 // 4}") for number, node in enumerate(nodes)]
        room = Room(nodes)
        room.run(3)
        room.lose(0, 1, 2, 3, 8, 9, 10, 11)
        room.run(20)
        assert [alert.thing.id for alert in room.alerts] == ["leaf::l0"]

    def test_most_gpus_of_a_node_are_one_alert_and_most_nodes_of_a_rack_too(self) -> None:
        room = Room(racks(2, 4))
        room.run(2)
        hot = {"gpu": gpus(*[{"temp": 90}] * 8)}
        room.tables[0] = hot
        room.run(4)
        assert [alert.thing.id for alert in room.alerts] == ["gpu:gpu001:*"]
        assert room.alerts[0].message.startswith("GPU near its slowdown limit: 8 of 8 GPUs; GPU")
        room.tables.update({1: hot, 2: hot, 3: hot})
        room.run(4)
        assert [alert.thing.id for alert in room.alerts] == ["rack::r1"]
        assert "on 4 of 4 nodes (32 in all)" in room.alerts[0].message
        assert len(room.inside()) == 32
        assert len({change.alert for change in room.seen if change.kind != "folded"}) == 1

    def test_scattered_faults_of_many_nodes_are_one_line_of_the_fleet(self) -> None:
        room = Room(racks(30, 4))
        room.run(2)
        for number in range(0, 120, 4):
            room.tables[number] = {"gpu": gpus({"temp": 90})}
        room.run(4)
        assert [alert.thing.id for alert in room.alerts] == ["fleet::"]
        assert len(room.inside()) == 30


class TestUnder:
    def test_the_alerts_of_a_lost_node_go_under_it_and_come_back(self) -> None:
        room = Room(racks(1, 4))
        room.tables[0] = {"gpu": gpus({"temp": 90}), "port": ports({})}
        room.run(3)
        hot = room.alerts[0]
        assert hot.rule == "gpu_temperature"
        room.lose(0)
        room.run(10)
        assert room.firing == ["node_unreachable"]
        assert room.seen[-1].kind == "folded"
        assert room.seen[-1].into == room.alerts[0].id
        room.back(0)
        room.run(3)
        assert room.firing == ["gpu_temperature"]
        assert told(room)[-1] == "remains gpu_temperature GPU 0"

    def test_what_begins_under_a_lost_gpu_is_told_when_it_is_back(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus(lost(), {}))
        for _ in range(3):
            fleet.step(gpu=gpus({**lost(), "ecc_unc": 3}, {}))
        assert fleet.rules == ["raised gpu_missing"]
        for _ in range(3):
            fleet.step(gpu=gpus({"ecc_unc": 3}, {}))
        assert sorted(fleet.rules[1:]) == ["cleared gpu_missing", "raised gpu_ecc"]

    def test_A16_a_link_that_sinks_and_then_the_gpu_is_one_row(self) -> None:  # noqa: N802
        fleet = Fleet()
        fleet.step(gpu=gpus({"util": 98}))
        fleet.step(gpu=gpus({"util": 97, "pcie_gen": 1}))
        fleet.step(gpu=gpus({"util": 96, "pcie_gen": 1}))
        first = fleet.alerts[0]
        assert fleet.firing == ["pcie_generation"]
        for _ in range(3):
            fleet.step(gpu=gpus(lost()))
        assert fleet.rules == ["raised pcie_generation", "worsened gpu_missing"]
        assert [(alert.rule, alert.id, alert.since) for alert in fleet.alerts] == [
            ("gpu_missing", first.id, first.since)]
        assert fleet.inside() == ["gpu_missing GPU 0", "pcie_generation GPU 0"]

    def test_silent_and_then_unreachable_is_one_alert(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus({}))
        for _ in range(12):
            fleet.step()
        assert fleet.firing == ["node_stale"]
        fleet.link(0, LinkState.UNREACHABLE, "no keepalive")
        for _ in range(5):
            fleet.step()
        assert fleet.firing == ["node_unreachable"]
        assert len({change.alert for change in fleet.seen}) == 1


class TestSettling:
    @pytest.mark.parametrize(("series", "alert_at"), [
        ("UUDDDUUUUUUUUUUUUUUUUUU", None),
        ("UUDDDDDDDDDDDDDDDDDDDD", 360.0),
        ("UUUUUDUUDUUDUUUUUUUUUU", None),
    ])
    def test_H5_faults_of_a_node_that_boots_wait_until_it_has_settled(  # noqa: N802
        self, series: str, alert_at: float | None
    ) -> None:
        fleet = Fleet(interval=30.0)
        for step, state in enumerate(series):
            if step == 2:
                fleet.facts[0] = {"boot_id": "b1"}
            down = {"state": "1: DOWN", "phys_state": "2: Polling"} if state == "D" else {}
            fleet.step(30.0 if step else 0.0, port=ports({**down, "c:link_downed": series[: step + 1].count("D")}, {}))
        began = [change.at - 1000.0 for change in fleet.seen if change.rule == "rdma_port_down"]
        assert began == ([] if alert_at is None else [alert_at])
        assert {change.rule for change in fleet.seen} <= {"rdma_port_down"}

    def test_a_clock_of_the_node_that_goes_back_is_a_boot_too(self) -> None:
        fleet = Fleet()
        fleet.facts[0] = {}
        fleet.step(gpu=gpus({}))
        fleet.now += 1.0
        fleet.say(0, gpu=gpus({"temp": 90}), node_time=3.0)
        for _ in range(20):
            fleet.now += 1.0
            fleet.say(0, gpu=gpus({"temp": 90}), node_time=fleet.now - 998.0)
            fleet.tick()
        assert fleet.seen == []
        for _ in range(290):
            fleet.now += 1.0
            fleet.say(0, gpu=gpus({"temp": 90}), node_time=fleet.now - 998.0)
            fleet.tick()
        assert fleet.rules == ["raised gpu_temperature"]

    def test_a_driver_that_was_away_settles_its_gpus_alone(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus({}), port=ports({}, {}))
        for _ in range(5):
            fleet.step(port=ports({}, {}), states={"gpu": {"st": "error", "e": "Driver Not Loaded"}})
        for _ in range(30):
            fleet.step(gpu=gpus({"temp": 90}), port=ports({"state": "1: DOWN"}, {}))
        assert "raised rdma_port_down" in fleet.rules
        assert "raised gpu_temperature" not in fleet.rules
        for _ in range(40):
            fleet.step(gpu=gpus({"temp": 90}), port=ports({"state": "1: DOWN"}, {}))
        assert "raised gpu_temperature" in fleet.rules

    def test_a_console_that_was_stopped_raises_nothing_until_links_are_back(self) -> None:
        fleet = Fleet()
        fleet.step(gpu=gpus({}))
        fleet.step(600.0)
        for _ in range(5):
            fleet.step()
        assert fleet.seen == []
        for _ in range(20):
            fleet.step()
        assert fleet.firing == ["node_stale"], "silence that goes on is told"


class TestRestarts:
    def test_nodes_restarted_one_after_another_are_one_line_of_their_rack(self) -> None:
        room = Room(racks(2, 6))
        room.run(3)
        most = 0
        for number in range(6):
            room.lose(number)
            room.run(20)
            most = max(most, len(room.alerts))
            room.back(number, boot=f"again{number}")
            room.run(20)
            most = max(most, len(room.alerts))
        assert most == 1
        assert [alert.thing.id for alert in room.alerts] == ["rack::r1"]
        assert room.alerts[0].severity == Severity.INFO
        assert "6 of them back and settling" in room.alerts[0].message
        assert sum(change.kind == "raised" for change in room.seen) == 1
        room.run(310)
        assert room.alerts == []
        assert len({change.alert for change in room.seen}) == 1

    def test_one_restart_eases_until_the_node_has_settled(self) -> None:
        room = Room(racks(1, 4))
        room.run(3)
        room.lose(1)
        room.run(10)
        room.back(1, boot="again")
        room.run(5)
        assert [(change.kind, change.severity.name) for change in room.seen] == [
            ("raised", "CRITICAL"), ("eased", "INFO")]
        room.run(300)
        assert [change.kind for change in room.seen] == ["raised", "eased", "cleared"]

    def test_a_link_that_was_cut_is_no_restart(self) -> None:
        room = Room(racks(1, 4))
        room.run(3)
        room.lose(1)
        room.run(10)
        room.back(1)
        room.run(2)
        assert [change.kind for change in room.seen] == ["raised", "cleared"]


class TestDomains:
    def test_two_parents_of_the_same_nodes_are_one_with_both_names(self) -> None:
        domains = Domains(racks(2, 4, leaf=4))
        assert [domain.label for domain in domains.all] == ["rack r1, leaf l1", "rack r2, leaf l2", "fleet"]

    def test_the_densest_parent_wins_and_no_node_is_in_two(self) -> None:
        domains = Domains(racks(4, 4, leaf=8))
        known = np.ones(16, np.bool_)
        found = domains.together([0, 1, 2, 3, 4, 9, 10, 11], known, 0.5, 3, 20)
        assert [(domain.name, sorted(nodes)) for domain, nodes in found] == [
            ("r1", [0, 1, 2, 3]), ("r3", [9, 10, 11])]

    def test_few_nodes_have_no_common_parent(self) -> None:
        assert Domains(racks(2, 4)).together([0, 5], np.ones(8, np.bool_), 0.0, 3, 20) == []

    def test_what_is_not_judged_counts_for_neither_side(self) -> None:
        known = np.zeros(8, np.bool_)
        known[:4] = True
        found = Domains(racks(1, 8)).together([0, 1, 2], known, 0.5, 3, 20)
        assert [len(nodes) for _, nodes in found] == [3]


def test_an_unknown_in_between_neither_ends_nor_doubles_a_group() -> None:
    room = Room(racks(1, 4))
    hot, gone = {"gpu": gpus(*[{"temp": 90}] * 4)}, {"gpu": gpus(*[{"temp": Err("Unknown Error")}] * 4)}
    room.tables = dict.fromkeys(range(4), hot)
    room.run(4)
    room.tables = dict.fromkeys(range(4), gone)
    room.run(30)
    # That the readings are gone is an alert of its own; it neither ends the first nor takes its place.
    assert [(alert.rule, alert.thing.id) for alert in room.alerts] == [
        ("gpu_temperature", "rack::r1"), ("gpu_no_data", "rack::r1")]
    assert [change.rule for change in room.seen if change.kind == "raised"] == ["gpu_temperature", "gpu_no_data"]


class TestGroupsOfANode:
    def test_several_stale_groups_of_a_node_are_one_line(self) -> None:
        fleet = Fleet(racks(1, 4))
        for _ in range(3):
            fleet.now += 1.0
            for number in range(4):
                fleet.say(number, gpu=gpus({}), port=ports({}), node=table({"": {"ncpu": 4}}))
            fleet.tick()
        for _ in range(12):
            fleet.now += 1.0
            for number in range(4):
                fleet.say(number, node=table({"": {"ncpu": 4}}), **({} if number == 2 else {
                    "gpu": gpus({}), "port": ports({})}))
            fleet.tick()
        assert [(alert.rule, alert.thing.id, alert.members) for alert in fleet.alerts] == [
            ("group_stale", "group:gpu003:*", ("gpu group", "rdma group"))]
        assert len(fleet.inside()) == 2


class TestOneParentOfAll:
    """A config with one group, or one rack, for all nodes: its nodes are the fleet by another name."""

    @pytest.mark.parametrize("place", [{"groups": ("all",)}, {"rack": "r1"}, {}])
    def test_what_fails_here_and_there_is_one_line(self, place: dict[str, Any]) -> None:
        room = Room([NodeInfo(f"n{number:03d}", **place) for number in range(80)])
        room.tables = {number: {"gpu": gpus({"temp": 85})} for number in range(0, 80, 3)}
        room.run(5)
        assert [(alert.rule, len(alert.members)) for alert in room.alerts] == [("gpu_temperature", 27)]

    def test_a_restart_here_waits_for_nobody_there(self) -> None:
        nodes = [NodeInfo(f"n{number}", rack=f"r{number // 4}", groups=("all",)) for number in range(16)]
        assert Domains(nodes).siblings(0) == frozenset(range(4))

    @pytest.mark.parametrize("place", [{"groups": ("all",)}, {"rack": "r1"}])
    def test_h6_everything_at_once_names_our_own_side(self, place: dict[str, Any]) -> None:
        """H6 b)."""
        room = Room([NodeInfo(f"n{number}", **place) for number in range(6)])
        room.run(3)
        room.lose(*range(6))
        room.run(20)
        assert len(room.alerts) == 1
        assert "this machine's own network" in room.alerts[0].message


class TestWork:
    def test_a_storm_makes_one_message_not_one_a_row(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """2,000 groups go stale in one tick."""
        made: list[str] = []
        told_of = messages.firing
        monkeypatch.setattr(messages, "firing", lambda name, *rest: made.append(name) or told_of(name, *rest))
        nodes = [NodeInfo(f"n{number:03d}", rack=f"r{number // 32}", groups=("all",)) for number in range(667)]
        fleet = Fleet(nodes, {"group_stale": builtin()["group_stale"]})
        tables = {"gpu": gpus({}), "port": ports({}), "pcie": table({"0000:10:00.0": {"cur_width": 16}})}
        fleet.now += 1.0
        for number in range(667):
            fleet.say(number, node=table({"": {"ncpu": 4}}), **tables)
        fleet.tick()
        for _ in range(9):
            fleet.now += 1.0
            for number in range(667):
                fleet.say(number, node=table({"": {"ncpu": 4}}))
            fleet.tick()
        assert [(change.kind, change.members) for change in fleet.seen] == [("raised", 667)]
        assert len(made) <= 1
        assert len(fleet.inside()) == 3 * 667
        assert fleet.core.engine.touched == 3 * 667
