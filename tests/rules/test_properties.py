"""No sequence of readings, gaps, lost links, boots, restarts and operators hides a fault or calls an unknown fine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clustertop import plain
from clustertop.memory import Devices
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.probe.frames import Encoder, Err
from clustertop.signals import host
from clustertop.tui.atlas import Atlas
from clustertop.tui.picture import OK, Picture
from nodes import Fleet, gpus, lost, ports, table

if TYPE_CHECKING:
    from clustertop.model import Transition

COUNT = 4
NODES = [NodeInfo(f"n{number}", rack=f"r{number // 3}") for number in range(COUNT)]
"""A rack of three and one more."""
OPENS, CLOSES, KEEPS = {"raised", "remains"}, {"cleared", "folded"}, {"worsened", "eased", "spread"}
BY_HAND = {"acknowledged", "silenced", "dismissed"}


@dataclass
class Node:
    """What one node reads at the moment."""

    cards: list[dict[str, Any]] = field(default_factory=lambda: [{}, {}, {}])
    wires: list[dict[str, Any]] = field(default_factory=lambda: [{}, {}])
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    silent: bool = False
    down: bool = False
    gone: bool = False
    mute: frozenset[str] = frozenset()


class World(Fleet):
    """A fleet that is checked at every tick."""

    def __init__(self) -> None:
        super().__init__(NODES)
        self.nodes = [Node() for _ in NODES]
        self.devices = Devices(self.core)
        self.open: dict[str, tuple[str, str]] = {}
        self.fired: set[tuple[str, str, str]] = set()
        self.dismissed: set[tuple[str, str, str]] = set()
        self.atlas = Atlas()
        self.shown: object = None
        for number in range(3):
            self.core.on_link(LinkEvent(number, self.now, LinkState.UP, via="bastion"), self.now)

    # -- what happens --------------------------------------------------------------------------------------------

    def play(self, op: str, number: int, what: int, seconds: int) -> None:
        """One step: something changes, and time passes."""
        getattr(self, op)(number, what)
        for _ in range(seconds if seconds <= 10 else seconds // 5):
            self.beat(1.0 if seconds <= 10 else 5.0)

    def wait(self, number: int, what: int) -> None:
        """Nothing changes."""

    def heat(self, number: int, what: int) -> None:
        self.nodes[number].cards[what % 3].update(
            temp=[60, 80, 83, 85, 88, Err("Unknown Error"), Err("Timeout"), None][what % 8])

    def ecc(self, number: int, what: int) -> None:
        self.nodes[number].cards[what % 3].update(ecc_unc=[0, 1, Err("Unknown Error")][what % 3])

    def sink(self, number: int, what: int) -> None:
        self.nodes[number].cards[what % 3].update(pcie_gen=[5, 1, 3][what // 3 % 3])

    def lose(self, number: int, what: int) -> None:
        """Every second time the GPU is well again."""
        cards = self.nodes[number].cards
        cards[what % 3] = {} if what % 2 else lost()

    def remove(self, number: int, what: int) -> None:
        self.nodes[number].gone = bool(what % 2)

    def wire(self, number: int, what: int) -> None:
        """One port, or both, go down or come up."""
        change = {"state": "1: DOWN", "phys_state": "2: Polling"} if what % 2 else {}
        for port in range(2) if what % 3 else [what % 2]:
            self.nodes[number].wires[port] = change

    def group(self, number: int, what: int) -> None:
        state = [{"st": "error", "e": "Driver Not Loaded"}, {"st": "hung", "w": "nvmlInit"}, {"st": "ok"}][what % 3]
        self.nodes[number].states = {"gpu": state}

    def hush(self, number: int, what: int) -> None:
        """Groups that are no longer read, though frames arrive."""
        self.nodes[number].mute = frozenset({"gpu", "port"} if what % 2 else ())

    def silence_node(self, number: int, what: int) -> None:
        self.nodes[number].silent = bool(what % 2)

    def link_down(self, number: int, what: int) -> None:
        """The node, or its whole rack."""
        for other in range(COUNT):
            if other == number or (what % 2 and other // 3 == number // 3):
                self.nodes[other].down = True
                self.link(other, LinkState.UNREACHABLE, "connect timeout")

    def link_up(self, number: int, what: int) -> None:
        for other in range(COUNT):
            if other == number or (what % 2 and other // 3 == number // 3):
                self.nodes[other].down = False
                self.link(other, LinkState.UP)

    def boot(self, number: int, what: int) -> None:
        self.facts[number] = {"boot_id": f"b{self.now}"}
        self.encoders[number] = Encoder()

    def pause(self, number: int, what: int) -> None:
        self.now += [30.0, 200.0][what % 2]

    def restart(self, number: int, what: int) -> None:
        """The console is started again, with what it remembers."""
        before = {(rule, row): (severity, since) for rule, row, severity, since, _ in self.core.engine.firing()}
        names = {(rule, self.named_now(rule, row)): value for (rule, row), value in before.items()}
        self.fired = {(rule, *name) for rule, name in names}
        state = self.devices.state()
        now = self.now
        super().__init__(NODES)
        self.now = now
        self.devices = Devices(self.core)
        self.devices.adopt(state.devices)
        self.core.recall(state, self.now, self.now)
        self.open.clear()
        for other, node in enumerate(self.nodes):
            self.link(other, LinkState.UNREACHABLE if node.down else LinkState.UP)
        after = {(rule, self.named_now(rule, row)): (severity, since)
                 for rule, row, severity, since, _ in self.core.engine.firing()}
        assert after == names, "what fires, how badly and since when outlives the console"

    def acknowledge(self, number: int, what: int) -> None:
        if self.core.snapshot is not None and self.alerts:
            self.core.acknowledge(self.alerts[what % len(self.alerts)])

    def quiet(self, number: int, what: int) -> None:
        if self.core.snapshot is not None:
            self.core.silence([f"n{number}", "r0", "*"][what % 3], "*", 20.0)

    def dismiss(self, number: int, what: int) -> None:
        if self.core.snapshot is not None and self.alerts:
            alert = self.alerts[what % len(self.alerts)]
            for row in self.core.engine._correlator.rows_of(alert).tolist():
                self.dismissed.add((alert.rule, *self.named(alert.rule, row)))
            self.core.dismiss(alert)

    # -- time ----------------------------------------------------------------------------------------------------

    def beat(self, seconds: float) -> None:
        self.now += seconds
        for number, node in enumerate(self.nodes):
            if node.silent or node.down:
                continue
            listed = gpus(*node.cards[: 2 if node.gone else 3])
            tables = {"gpu": listed, "port": ports(*node.wires)}
            said = {name: one for name, one in tables.items() if name not in node.mute}
            states = node.states
            if states.get("gpu", {}).get("st", "ok") != "ok":
                said.pop("gpu", None)
            if not self.say(number, node=table({"": {"ncpu": 64}}), states=states, **said):
                self.encoders[number] = Encoder()
        changes = self.tick()
        self.devices.learn(self.now)
        self.check(changes)

    def named(self, rule: str, row: int) -> tuple[str, str]:
        view = self.view[self.core.engine.rules[rule].table]
        return self.view.nodes[int(view.node[row])].name, view.keys[row]

    def named_now(self, rule: str, row: int) -> tuple[str, str]:
        rows = self.core.store.tables[self.core.engine.rules[rule].table]
        return NODES[int(rows.node[row])].name, rows.keys[row]

    # -- what must hold ------------------------------------------------------------------------------------------

    def check(self, changes: list[Transition]) -> None:
        firing = {(rule, row): since for rule, row, _, since, _ in self.core.engine.firing()}
        named = {(rule, *self.named(rule, row)) for rule, row in firing}
        self.nothing_ends_by_itself(named)
        shown = (firing, [(alert.id, alert.severity) for alert in self.core.engine.alerts()])
        if changes or shown != self.shown:
            self.all_is_in_one_alert(firing)
        self.shown = shown
        self.the_stream_is_the_list(changes)
        self.unknown_is_not_ok()
        self.fired, self.dismissed = named, set()

    def nothing_ends_by_itself(self, named: set[tuple[str, str, str]]) -> None:
        for rule, node, key in self.fired - named - self.dismissed:
            made = self.core.engine.rules[rule]
            row = self.view[made.table].row_of([one.name for one in NODES].index(node), key)
            assert row is not None, f"{rule} {node} {key}: its row went away"
            value = self.core.engine.values(rule)[row]
            limit = made.levels()[0][1].limit if made.clear.limit is None else made.clear.limit
            assert not np.isnan(value), f"{rule} {node} {key} ended without a reading"
            assert not made.breach(value, limit), f"{rule} {node} {key} ended at {value}"

    def all_is_in_one_alert(self, firing: dict[tuple[str, int], float]) -> None:
        engine = self.core.engine
        where: dict[tuple[str, str], list[str]] = {}
        for alert in engine.alerts():
            for one in engine.inside(self.view, alert):
                where.setdefault((one.rule, one.thing.id), []).append(alert.thing.id)
        for (rule, row), since in firing.items():
            node, key = self.named(rule, row)
            name = f"{engine.rules[rule].table}:{node}:{key}"
            found = where.get((rule, name), [])
            waits = self.now - since < engine.rules[rule].gather_seconds
            assert len(found) == 1 or (not found and waits), f"{rule} {name} is in {found}"

    def the_stream_is_the_list(self, changes: list[Transition]) -> None:
        for change in changes:
            name = (change.rule, change.thing.id)
            if change.kind in OPENS and change.alert not in self.open:
                self.open[change.alert] = name
            elif change.kind in CLOSES:
                assert self.open.pop(change.alert, None) is not None, f"{change.kind} of what was not open: {name}"
                if change.kind == "folded":
                    assert change.into in {alert.id for alert in self.core.engine.alerts()}
            elif change.kind in KEEPS:
                assert change.alert in self.open, f"{change.kind} of what was not open: {name}"
                self.open[change.alert] = name
            else:
                again = change.kind == "remains" and not change.quiet
                assert change.kind in BY_HAND or again, f"{change.kind} of what is open already: {name}"
        assert self.open == {alert.id: (alert.rule, alert.thing.id) for alert in self.core.engine.alerts()}

    def unknown_is_not_ok(self) -> None:
        assert self.core.snapshot is not None
        picture = Picture(self.core.snapshot, self.atlas)
        blind = self.view.blind()
        groups = self.view["group"]
        for number, node in enumerate(self.nodes):
            mine = groups.rows_of(number)
            state = groups.col("group_state")[mine]
            age = groups.col("age_intervals")[mine]
            dark = node.down or not len(mine) or bool(np.isin(state, [host.HUNG, host.ERROR]).any())
            dark |= bool((age > 7).any()) or not (self.view["node"].col("frame_age_seconds")[number] < 7)
            if dark:
                assert picture.state[number] != OK, f"n{number} looks fine"
                assert plain._worst(self.view, number, {}, blind=bool(blind[number])) != "ok"


OPS = ["wait", "heat", "ecc", "sink", "lose", "remove", "wire", "group", "hush", "silence_node", "link_down", "link_up",
       "boot", "pause", "restart", "acknowledge", "quiet", "dismiss"]
STEPS = st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, COUNT - 1), st.integers(0, 23),
                           st.sampled_from([0, 1, 1, 2, 3, 5, 10, 65, 310])), max_size=16)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_nothing_is_hidden_and_nothing_ends_by_itself(steps: list[tuple[str, int, int, int]]) -> None:
    world = World()
    for _ in range(3):
        world.beat(1.0)
    for step in steps:
        world.play(*step)
