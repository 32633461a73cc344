"""What outlives a console: the file, and a fleet that is watched again."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from clustertop import plain
from clustertop.memory import Memory
from clustertop.model import LinkState, NodeInfo
from clustertop.record import Recorder, Recording, play
from clustertop.replay import replay_core
from clustertop.rules.hands import Ack, Silence
from clustertop.state import Device, Firing, State, StateError, StateFile, default_path, merge
from nodes import Fleet, gpus, lost, ports, table

ACK = Ack(rule="pcie_width", thing="pcie:n0:0000:17:00.0", severity=3, value=8.0, at=100.0, lasting=True)
SILENCE = Silence(where="r7", until=5000.0, at=100.0, reason="cable work")
STATE = State(acks=(ACK,), silences=(SILENCE,), devices={"n0": (Device("gpu", "GPU-0", {"index": 0}),)},
              firing=(Firing("gpu_missing", "n0", "gpu", "GPU-0", {"index": 0}, 3, 50.0, 2.0),))


class TestFile:
    def test_what_is_kept_comes_back_and_only_its_owner_may_read_it(self, tmp_path: Path) -> None:
        file = StateFile(tmp_path / "deep" / "state.json")
        assert file.load() == State()
        file.save(STATE)
        assert StateFile(file.path).load() == STATE
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
        assert {one.name for one in file.path.parent.iterdir()} == {"state.json", "state.json.lock"}

    @pytest.mark.parametrize("damage", [b"", b"{", b'{"clustertop":"state","version":1,"acks":[{"rule":1}]}',
                                        b'{"clustertop":"state","version":99}',
                                        b'{"clustertop":"state","version":1,"firing":[{"rule":"gpu_ecc","node":"n",'
                                        b'"table":"gpu","key":"","attrs":{},"severity":99,"since":1.0}]}',
                                        b'{"clustertop":"state","version":1,"firing":[{"rule":"gpu_ecc","node":"n",'
                                        b'"table":"gpu","key":"","attrs":{},"severity":3,"since":1e300}]}',
                                        b'{"clustertop":"recording","version":1}'])
    def test_a_damaged_file_is_set_aside_and_said_so(self, tmp_path: Path, damage: bytes) -> None:
        file = StateFile(tmp_path / "state.json")
        file.path.write_bytes(damage)
        assert file.load() == State()
        aside = next(tmp_path.glob("state.json.damaged-*"))
        assert aside.read_bytes() == damage
        assert str(file.path) in file.note
        assert aside.name in file.note
        file.save(STATE)
        assert StateFile(file.path).load() == STATE

    def test_what_is_no_regular_file_stays_as_it_is(self, tmp_path: Path) -> None:
        file = StateFile(tmp_path / "pipe")
        os.mkfifo(file.path)
        assert file.load() == State()
        assert file.note.startswith(f"{file.path}: cannot be read (no regular file)")
        with pytest.raises(StateError, match="is no regular file and stays as it is"):
            file.save(STATE)
        assert [one.name for one in tmp_path.iterdir()] == ["pipe"]
        assert stat.S_ISFIFO(file.path.stat().st_mode)

    def test_a_file_that_cannot_be_written_is_one_sentence_and_leaves_the_old_one(self, tmp_path: Path) -> None:
        file = StateFile(tmp_path / "state.json")
        file.save(STATE)
        (tmp_path / f".state.json.{os.getpid()}").mkdir()
        with pytest.raises(StateError, match=r"state\.json: cannot be written \(Is a directory\)"):
            file.save(State())
        assert StateFile(file.path).load() == STATE

    def test_the_place_depends_on_the_config(self, tmp_path: Path) -> None:
        env = {"XDG_STATE_HOME": str(tmp_path)}
        one, two = (default_path(Path(f"/etc/{name}/c.toml"), env) for name in "ab")
        assert one != two
        assert one.parent == tmp_path / "clustertop"
        assert default_path(Path("/etc/a/c.toml"), {"XDG_STATE_HOME": "relative"}).is_relative_to(Path.home())


class TestTwoConsoles:
    def test_what_both_did_is_kept(self, tmp_path: Path) -> None:
        one, two = StateFile(tmp_path / "s.json"), StateFile(tmp_path / "s.json")
        other = Ack(rule="gpu_ecc", thing="gpu:n1:GPU-3", severity=3, value=1.0, at=120.0)
        one.save(State(acks=(ACK,)))
        assert two.moved()
        assert two.save(State(acks=(other,))).acks == (ACK, other)
        assert one.moved()
        assert set(one.save(State(acks=(ACK,), silences=(SILENCE,))).acks) == {ACK, other}

    def test_what_was_taken_back_stays_so(self) -> None:
        gone = State(dropped={"ack pcie_width pcie:n0:0000:17:00.0": 150.0})
        assert merge(gone, State(acks=(ACK,))).acks == ()
        again = Ack(rule=ACK.rule, thing=ACK.thing, severity=3, value=8.0, at=200.0)
        assert merge(gone, State(acks=(again,))).acks == (again,)

    def test_the_newest_of_one_kind_holds(self) -> None:
        newer = Ack(rule=ACK.rule, thing=ACK.thing, severity=3, value=12.0, at=130.0)
        assert merge(State(acks=(ACK,)), State(acks=(newer,))).acks == (newer,)
        assert merge(State(acks=(newer,)), State(acks=(ACK,))).acks == (newer,)


class Watched(Fleet):
    """A fleet with a memory."""

    def __init__(self, path: Path, nodes: int | list[NodeInfo] = 1, *, keep: bool = True) -> None:
        super().__init__(nodes)
        self.memory = Memory(path, self.core, keep=keep)
        self.memory.recall(self.now, self.now)

    def run(self, seconds: int, **what: object) -> None:
        for _ in range(seconds):
            self.step(1.0, 0, **what)

    async def end(self) -> None:
        for _ in range(3):
            self.memory.look(self.now)
        await self.memory.close()


def watched(path: Path, *steps: tuple[int, dict[str, object]], keep: bool = True) -> Watched:
    """A run of the console: *steps* of (seconds, tables)."""

    async def run() -> Watched:
        fleet = Watched(path, keep=keep)
        for seconds, what in steps:
            for _ in range(seconds):
                fleet.step(1.0, 0, **what)
                fleet.memory.look(fleet.now)
        await fleet.end()
        return fleet

    return asyncio.run(run())


EIGHT = {"gpu": gpus(count=8), "port": ports({}, {})}


class TestAgain:
    def test_a_gpu_that_went_while_nobody_watched_is_missed(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        assert watched(path, (90, EIGHT)).seen == []
        again = watched(path, (5, {"gpu": gpus(count=7), "port": ports({}, {})}))
        assert again.rules == ["raised gpu_missing"]
        assert "GPU-7" in again.alerts[0].message
        assert "00000000:17:00.0" in again.alerts[0].message

    def test_a_port_too(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        watched(path, (90, EIGHT))
        again = watched(path, (5, {"gpu": gpus(count=8), "port": ports({})}))
        assert again.rules == ["raised rdma_port_down"]

    def test_nothing_is_missed_of_a_node_that_has_not_been_heard(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        watched(path, (90, EIGHT))
        again = watched(path, (20, {}))
        assert again.seen == []
        assert again["gpu"].value("presence", 0) is None
        assert again["gpu"].reason("presence", 0) == "not read yet"

    def test_a_device_seen_for_a_moment_is_not_expected(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        watched(path, (30, EIGHT))
        assert watched(path, (5, {"gpu": gpus(count=7), "port": ports({}, {})})).seen == []

    def test_one_look_at_the_fleet_expects_but_writes_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        watched(path, (90, EIGHT))
        before = path.read_bytes()
        again = watched(path, (90, {"gpu": gpus(count=7)}), keep=False)
        assert "raised gpu_missing" in again.rules
        assert path.read_bytes() == before

    def test_what_fired_fires_on_with_its_start_and_is_not_told_as_new(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        first = watched(path, (5, {"gpu": gpus({"temp": 90})}))
        since = first.alerts[0].since_wall
        again = watched(path, (1, {}), (3, {"gpu": gpus({"temp": 90})}))
        assert again.rules == ["remains gpu_temperature"]
        assert again.alerts[0].since_wall == since

    def test_it_ends_only_by_a_good_reading(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        watched(path, (5, {"gpu": gpus({"temp": 90})}))
        again = watched(path, (30, {}))
        assert again.firing == ["gpu_temperature"]
        again = watched(path, (5, {"gpu": gpus({"temp": 60})}))
        assert again.rules == ["remains gpu_temperature", "cleared gpu_temperature"]

    def test_a_lost_gpu_is_still_lost(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        watched(path, (90, EIGHT), (5, {"gpu": gpus(lost(), *[{}] * 7)}))
        again = watched(path, (5, {"gpu": gpus(*[{}] * 7), "port": ports({}, {})}))
        assert [alert.rule for alert in again.alerts] == ["gpu_missing"]

    def test_a_rule_or_node_that_is_no_more_is_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        StateFile(path).save(State(
            devices={"elsewhere": (Device("gpu", "GPU-0", {}),), "n0": (Device("no such table", "x", {}),)},
            firing=(Firing("no_such_rule", "n0", "gpu", "GPU-0", {}, 3, 1.0),
                    Firing("gpu_ecc", "elsewhere", "gpu", "GPU-0", {}, 3, 1.0),
                    Firing("gpu_ecc", "n0", "port", "GPU-0", {}, 3, 1.0))))
        assert watched(path, (3, EIGHT)).seen == []

    def test_dismissed_for_good(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        watched(path, (90, EIGHT))
        seven = {"gpu": gpus(count=7), "port": ports({}, {})}

        async def run() -> Watched:
            fleet = Watched(path)
            fleet.run(5, **seven)
            assert fleet.firing == ["gpu_missing"]
            fleet.core.dismiss(fleet.alerts[0])
            fleet.run(5, **seven)
            await fleet.end()
            return fleet

        fleet = asyncio.run(run())
        assert fleet.rules == ["raised gpu_missing", "cleared gpu_missing", "dismissed gpu_missing"]
        assert json.loads(plain.transition_json(fleet.seen[1]))["value"] is None, "there was no good reading"
        assert watched(path, (5, seven)).seen == []
        fresh = asyncio.run(run_back(fleet))
        assert fresh == ["raised gpu_missing"], "once it is back it is expected again"


async def run_back(fleet: Watched) -> list[str]:
    """The dismissed GPU comes back, and goes again."""
    before = len(fleet.seen)
    fleet.run(5, **EIGHT)
    fleet.run(5, gpu=gpus(count=7), port=ports({}, {}))
    return fleet.rules[before:]


def test_a_recording_holds_what_was_remembered(tmp_path: Path) -> None:
    from clustertop.inventory import Inventory
    from clustertop.plan import Plan
    from clustertop.rules.spec import builtin
    from clustertop.wire.transport import PollSettings

    path = tmp_path / "s.json"
    watched(path, (90, EIGHT), (3, {"gpu": gpus({"temp": 90}, *[{}] * 7), "port": ports({}, {})}))
    nodes = (NodeInfo("n0"),)
    with Recorder(tmp_path / "r.ctop", Plan(Inventory(nodes), PollSettings(), builtin())) as tap:
        fleet = Fleet(list(nodes), tap=tap)
        fleet.core.snapshot = None
        memory = Memory(path, fleet.core)
        memory.recall(fleet.now, fleet.now)
        for _ in range(5):
            fleet.step(1.0, 0, gpu=gpus(count=7))
    core = replay_core(Recording(tmp_path / "r.ctop"))
    seen = []
    core.listen(seen.extend)
    for step in Recording(tmp_path / "r.ctop").steps():
        play(core, step)
    assert seen == fleet.seen
    assert {change.rule for change in seen} == {"gpu_temperature", "gpu_missing"}


def test_a_table_that_says_nothing_is_not_learnt(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    watched(path, (90, {"gpu": gpus(lost()), "port": ports({"state": "1: DOWN"}), "net": table({})}))
    assert StateFile(path).load().devices == {}


def test_links_are_not_devices(tmp_path: Path) -> None:
    async def run() -> None:
        fleet = Watched(tmp_path / "s.json", 2)
        fleet.link(1, LinkState.UNREACHABLE, "no route")
        fleet.run(10)
        await fleet.end()

    asyncio.run(run())
    again = Fleet(2)
    Memory(tmp_path / "s.json", again.core).recall(again.now, again.now)
    again.step()
    assert again.firing == ["node_unreachable"], "still unreachable as far as anyone knows"
    again.step(1.0, 1, gpu=gpus({}))
    assert again.firing == []
