"""What the field cases say of alerts, where no other test says it: case by case, by its id."""

from __future__ import annotations

from typing import Any

import pytest

from clustertop import plain
from clustertop.model import LinkEvent, LinkState, NodeInfo, Severity
from clustertop.probe.frames import Err
from clustertop.store.view import LATE
from clustertop.tui.atlas import Atlas
from clustertop.tui.picture import OK, UNKNOWN, Picture
from nodes import Fleet, gpus, ports, table

HOST = {"node": table({"": {"ncpu": 64}})}


def picture(fleet: Fleet) -> Picture:
    assert fleet.core.snapshot is not None
    return Picture(fleet.core.snapshot, Atlas())


def last_word(fleet: Fleet, number: int = 0) -> str:
    """The last column of a node's line: its alerts."""
    assert fleet.core.snapshot is not None
    return plain.fleet_lines(fleet.core.snapshot)[1 + number].split()[-1]


def test_a6_a_gpu_query_that_fails_is_an_alert_of_its_own_within_two_polls() -> None:
    """A6 b): separate from "node unreachable"; what the other groups say goes on."""
    fleet = Fleet()
    fleet.step(gpu=gpus({}), **HOST)
    begun = fleet.now
    for reading in range(2, 6):
        fleet.step(states={"gpu": {"st": "error", "e": "Unknown Error", "n": reading}}, **HOST)
    assert fleet.firing == ["group_failed"]
    assert fleet.seen[0].at - begun <= 3.0
    assert "Unknown Error" in fleet.alerts[0].message
    assert fleet["node"].value("cpus", 0) == 64


def test_e4_a_far_end_that_is_gone_is_old_then_silent_then_lost_and_one_alert() -> None:
    """E4 a): the age grows from the first missed poll; the same alert goes from silent to unreachable."""
    fleet = Fleet()
    for _ in range(3):
        fleet.step(gpu=gpus({}))
    for _ in range(4):
        fleet.step()
    assert fleet["gpu"].level[0] == LATE
    assert fleet["node"].value("frame_age_seconds", 0) == 4.0
    for _ in range(6):
        fleet.step()
    assert fleet.firing == ["node_stale"]
    assert plain.node_state(fleet.view, 0) == "stale 10 s"
    fleet.link(0, LinkState.UNREACHABLE, "keepalive: no answer")
    for _ in range(5):
        fleet.step()
    assert fleet.rules == ["raised node_stale", "worsened node_unreachable"]
    assert len({change.alert for change in fleet.seen}) == 1


@pytest.mark.parametrize(("state", "reason", "said"), [
    (LinkState.HOST_KEY_CHANGED, "10.0.0.1: not the key that is known", "HOST KEY CHANGED: 10.0.0.1"),
    (LinkState.HOST_KEY_UNKNOWN, "unknown host key SHA256:x; to accept it: ssh n0 true", "to accept it: ssh n0 true"),
])
def test_e5_a_host_key_that_is_not_trusted_is_in_the_alert_list(state: LinkState, reason: str, said: str) -> None:
    """E5 a)."""
    fleet = Fleet(2)
    for number in (0, 1):
        fleet.say(number, gpu=gpus({}))
    fleet.tick()
    fleet.link(0, state, reason)
    for _ in range(5):
        fleet.now += 1.0
        fleet.say(1, gpu=gpus({}))
        fleet.tick()
    assert [(alert.rule, alert.severity) for alert in fleet.alerts] == [("node_unreachable", Severity.CRITICAL)]
    assert said in fleet.alerts[0].message


@pytest.mark.parametrize(("state", "words"), [
    ({"st": "hung", "w": "nvmlInit"}, "gpu HUNG"),
    ({"st": "error", "e": "Driver Not Loaded"}, "gpu error"),
    ({"st": "wait"}, "gpu not read yet"),
    ({"t": 400.0, "n": 1}, "gpu stale"),
])
def test_h4_a_node_is_green_only_if_every_group_is_fresh(state: dict[str, Any], words: str) -> None:
    """H4 b): also where the rule that would tell of it is switched off."""
    fleet = Fleet(rules={})
    fleet.step(gpu=gpus({}), **HOST)
    assert (picture(fleet).state[0], last_word(fleet)) == (OK, "ok")
    fleet.step(states={"gpu": state}, **HOST)
    assert (picture(fleet).state[0], last_word(fleet)) == (UNKNOWN, "unknown")
    assert picture(fleet).words_of(0) == words
    fleet.step(gpu=gpus({}), states={"gpu": {"st": "ok"}}, **HOST)
    assert (picture(fleet).state[0], last_word(fleet)) == (OK, "ok")


def test_h4_what_the_node_does_not_have_is_no_reason() -> None:
    """H4 b): enabled groups count, a group that the node has no devices for is none."""
    fleet = Fleet()
    fleet.step(gpu=gpus({}), states={"rdma": {"st": "off"}}, **HOST)
    assert (picture(fleet).state[0], last_word(fleet)) == (OK, "ok")


def test_h2_a_threshold_goes_through_every_gap_and_no_data_is_said_once() -> None:
    """H2 a), b): the hot GPU stays so while its temperature cannot be read; that it cannot is another alert, once."""
    fleet = Fleet()
    for _ in range(3):
        fleet.step(gpu=gpus({"temp": 84}))
    for _ in range(12):
        fleet.step(gpu=gpus({"temp": Err("Unknown Error")}))
    assert fleet.firing == ["gpu_no_data", "gpu_temperature"]
    assert fleet.rules == ["raised gpu_temperature", "raised gpu_no_data"]


class Row(Fleet):
    """H6: rack r7 with 40 nodes beside other racks, all behind one jump host."""

    def __init__(self) -> None:
        infos = [NodeInfo(f"gpu{number:03d}", rack=f"r{7 + number // 40}") for number in range(120)]
        super().__init__(infos)
        self.away: set[int] = set()
        for number in range(120):
            self.core.on_link(LinkEvent(number, self.now, LinkState.UP, via="bastion"), self.now)
        self.run(3)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            for number in set(range(120)) - self.away:
                self.say(number, port=ports({}))
            self.tick()

    def give_up(self, *numbers: int) -> None:
        for number in numbers:
            self.core.on_link(LinkEvent(number, self.now, LinkState.UNREACHABLE, "tcp", "no answer", "bastion"), self.now)


def test_h6_a_rack_that_is_lost_within_20_seconds_is_one_alert_that_counts_down() -> None:
    """H6 a): the members are listed inside and are not counted as alerts; the jump host is fine and not blamed."""
    row = Row()
    row.away = set(range(40))
    most = 0
    for begun in range(0, 40, 2):  # all fall silent at once and are given up over twenty seconds
        row.give_up(begun, begun + 1)
        row.run(1)
        most = max(most, len(row.alerts))
    row.run(15)
    assert most == 1
    assert len({change.alert for change in row.seen}) == 1
    assert [(alert.rule, alert.thing.id) for alert in row.alerts] == [("node_unreachable", "rack::r7")]
    assert row.alerts[0].message.startswith("40 of 40 nodes unreachable: gpu[000-039]")
    assert "bastion" not in row.alerts[0].message
    assert len(row.inside()) >= 40
    for back in range(0, 36, 6):
        row.away -= set(range(back, back + 6))
        for number in range(back, back + 6):
            row.link(number, LinkState.UP)
        row.run(2)
        assert row.alerts[0].message.startswith(f"{34 - back} of 40 nodes")


def test_h6_b_a_jump_host_that_is_gone_is_named() -> None:
    """H6 b): everything behind it is lost at once, in three racks: one alert."""
    row = Row()
    row.away = set(range(120))
    row.give_up(*range(120))
    row.run(20)
    assert len(row.alerts) == 1
    assert "jump host bastion" in row.alerts[0].message
    assert "this machine's own network" in row.alerts[0].message


def test_h6_b_heat_behind_one_jump_host_is_not_its_fault() -> None:
    """H6 b): a jump host is a parent of links, not of what nodes read."""
    row = Fleet([NodeInfo(f"n{number}") for number in range(5)])
    for number in range(4):
        row.core.on_link(LinkEvent(number, row.now, LinkState.UP, via="bastion"), row.now)
    for _ in range(4):
        row.now += 1.0
        for number in range(5):
            row.say(number, gpu=gpus({"temp": 84 if number < 3 else 60}))
        row.tick()
    assert {alert.thing.table for alert in row.alerts} <= {"gpu", "fleet"}
