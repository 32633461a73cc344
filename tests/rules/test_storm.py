"""A storm on 1,024 nodes is few lines: a leaf, a feed, a driver upgrade. And nothing real inside is hidden."""

from __future__ import annotations

import pytest

from clustertop.model import LinkState, NodeInfo, Severity
from clustertop.rules.spec import builtin
from nodes import Fleet, gpus

NODES, RACK, LEAF, FEED = 1024, 32, 16, 32


def nodes() -> list[NodeInfo]:
    """32 racks of 32 nodes, 64 leaves of 16, and feeds of 32 that each power half of two racks."""
    out = []
    for number in range(NODES):
        rack, place = divmod(number, RACK)
        feed = (rack // 2) * 2 + place % 2
        out.append(NodeInfo(f"gpu{number + 1:04d}", rack=f"r{rack + 1:02d}", leaf=f"l{number // LEAF + 1:02d}",
                            groups=(f"feed{feed:02d}",)))
    return out


class Hall(Fleet):
    """The fleet; *talking* nodes send a frame each second, the others have been heard once."""

    def __init__(self, talking: set[int], *but: str) -> None:
        rules = {name: rule for name, rule in builtin().items() if name not in but}
        super().__init__(nodes(), rules)
        self.talking = set(talking)
        self.tables: dict[int, dict[str, object]] = {}
        self.most = 0
        self.now += 1
        for number in range(NODES):
            self.say(number, gpu=gpus({}))
        self.tick()

    def run(self, seconds: float, step: float = 1.0) -> None:
        for _ in range(int(seconds / step)):
            self.now += step
            for number in self.talking:
                self.say(number, **self.tables.get(number, {"gpu": gpus({})}))
            self.tick()
            self.most = max(self.most, len(self.alerts))

    def raised(self) -> list[str]:
        """What an operator was told of as new."""
        return [f"{change.rule} {change.thing.id}" for change in self.seen if change.kind == "raised"]


LATE = ("group_stale", "group_failed")


@pytest.mark.parametrize(("members", "parent"), [
    (range(160, 176), "leaf::l11"),
    ([number for number in range(64, 128) if number % 2], "group::feed03"),
    (range(96, 128), "rack::r04"),
])
def test_a_parent_that_dies_is_one_line(members: range | list[int], parent: str) -> None:
    dead, hall = list(members), Hall(set(), *LATE, "node_stale")
    sick = dead[3]
    hall.talking = {sick}
    hall.tables[sick] = {"gpu": gpus({"temp": 90}, {"ecc_unc": 2})}
    hall.run(4)
    assert sorted(hall.firing) == ["gpu_ecc", "gpu_temperature"]
    before = len(hall.seen)
    hall.talking = set()
    for order, number in enumerate(dead):  # the keepalives run out one after another, within four seconds
        if order % 8 == 0:
            hall.run(1)
        hall.link(number, LinkState.UNREACHABLE, "keepalive: no answer")
    hall.run(20)
    assert [(alert.thing.id, len(alert.members)) for alert in hall.alerts] == [(parent, len(dead))]
    assert hall.raised()[2:] == [f"node_unreachable {parent}"]
    assert [change.kind for change in hall.seen[before:]].count("folded") == 2
    inside = hall.inside()
    assert len(inside) == len(dead) + 2
    assert {"gpu_temperature GPU 0", "gpu_ecc GPU 1"} < set(inside)
    worst = hall.core.engine.severity(hall.view, "node")
    assert [number for number in range(NODES) if worst[number] == Severity.CRITICAL] == dead


def test_a_driver_upgrade_node_by_node_is_one_line_for_each_rack() -> None:
    hall = Hall(set(), *LATE, "node_stale")
    upgraded = list(range(128))  # four racks
    lines: set[str] = set()
    for number in upgraded:
        hall.talking.discard(number)
        hall.link(number, LinkState.UNREACHABLE, "connection refused")
        hall.run(10, step=5)
        hall.facts[number] = {"boot_id": "new"}
        hall.link(number, LinkState.UP)
        hall.say(number, gpu=gpus({}))
        hall.run(5, step=5)
        lines |= {alert.id for alert in hall.alerts}
        assert len(hall.alerts) <= number // RACK + 1
    assert len(lines) == 4, "an operator sees one line for each rack"
    assert hall.raised() == [f"node_unreachable node:gpu{number * RACK + 1:04d}:" for number in range(4)]
    hall.run(400, step=10)
    assert hall.alerts == []
    assert [change.kind for change in hall.seen].count("cleared") == 4


def test_a_driver_reload_without_a_boot_is_one_line_too() -> None:
    hall = Hall(set(), "node_stale", "group_stale")
    lines: set[str] = set()
    for number in range(RACK):
        for reading in range(5):
            hall.now += 1
            hall.say(number, states={"gpu": {"st": "error", "e": "Driver Not Loaded", "n": 100 + reading}})
            hall.tick()
            lines |= {alert.id for alert in hall.alerts}
        hall.say(number, gpu=gpus({}), states={"gpu": {"st": "ok"}})
        for _ in range(3):
            hall.now += 1
            hall.say(number, gpu=gpus({}))
            hall.tick()
            lines |= {alert.id for alert in hall.alerts}
    assert len(lines) == 1
    assert hall.raised() == ["group_failed group:gpu0001:gpu"]


def test_the_whole_fleet_at_once_is_one_line() -> None:
    hall = Hall(set(), *LATE, "node_stale")
    for number in range(NODES):
        hall.link(number, LinkState.UNREACHABLE, "no route to host")
    hall.run(20)
    assert [(alert.thing.id, len(alert.members)) for alert in hall.alerts] == [("fleet::", NODES)]
    assert hall.raised() == ["node_unreachable fleet::"]
    assert len(hall.inside()) == NODES
