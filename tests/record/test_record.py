"""The recording file: what goes in comes out, however it ends."""

from __future__ import annotations

import gzip
import json
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop import plain
from clustertop.inventory import Expectation, Inventory
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.plan import Plan
from clustertop.probe.frames import Err
from clustertop.record import Recorder, Recording, RecordingError, Step
from clustertop.replay import replay_core, transitions
from clustertop.rules.spec import builtin
from clustertop.settings import expect_gpus, expect_width
from clustertop.text import clean
from clustertop.wire.transport import PollSettings
from nodes import Fleet, gpus, lost, ports, table

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = (NodeInfo("n0", host="10.9.8.7", user="operator", port=2222, rack="r1", leaf="l1", leaves=("l1", "l2"), groups=("train",)),
         NodeInfo("n1", rack="r2"), NodeInfo("n2"))


def plan(**changes: Any) -> Plan:
    """What the sessions of these tests know."""
    inventory = Inventory(NODES, expectations=(Expectation(frozenset({"n1"}), "gpu", 8, 4),))
    return Plan(inventory, PollSettings(), builtin(), **changes)


def flight(path: Path, seed: int, moments: int = 25) -> list[str]:
    """Record a life of three nodes that *seed* picks; returns the lines of its transitions."""
    chance = random.Random(seed)
    with Recorder(path, plan(), force=True) as tap:
        fleet = Fleet(NODES, tap=tap, expect_width=expect_width(plan().inventory),
                      expect_gpus=expect_gpus(plan().inventory))
        down: set[int] = set()
        for _ in range(moments):
            fleet.now += chance.choice([0.25, 0.1, 1 / 3, 1.0, 7.0])
            for number in range(len(NODES)):
                happens(fleet, number, chance, down)
            if chance.random() < 0.9:
                fleet.tick()
        return [plain.transition_json(change) for change in fleet.seen]


def happens(fleet: Fleet, number: int, chance: random.Random, down: set[int]) -> None:
    """One node's moment: a reading, silence, a lost frame, a link that comes or goes, a boot."""
    what = chance.random()
    if number in down:
        if what < 0.2:
            down.discard(number)
            fleet.link(number, chance.choice([LinkState.UP, LinkState.CONNECTING]))
        return
    if what < 0.06:
        down.add(number)
        fleet.link(number, LinkState.UNREACHABLE, "tcp: “no route” to host\u0301")
        return
    if what < 0.15:
        return
    if what < 0.18:
        fleet.facts[number] = {"boot_id": f"b{chance.random()}"}
        fleet.encoders[number].want_full()
    one: dict[str, Any] = chance.choice(
        [{}, {}, {"pcie_width": 8}, {"temp": 90}, lost(), {"util": Err("Unknown Error")}, {"ecc_unc": 1}])
    errors = chance.choice([0, 0, 3, 255])
    raw = fleet.frame(number, gpu=gpus({}, one), port=ports({"c:link_downed": errors}, {}),
                      net=table({"eth0": {"rx_bytes": chance.randrange(10**9)}}, {"eth0": {"phys": True}}))
    if what > 0.93:
        return  # lost on the way
    if not fleet.send(number, raw):
        fleet.encoders[number].want_full()


def replayed(path: Path) -> tuple[list[str], str]:
    """The lines of the transitions of a recording, and its note."""
    recording = Recording(path)
    return [plain.transition_json(change) for change in transitions(recording)], recording.note


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_replay_says_exactly_what_the_live_run_said(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("flight") / "flight.ct"
    said = flight(path, seed)
    assert replayed(path) == (said, "")


def test_flights_have_something_to_say(tmp_path: Path) -> None:
    rules = {json.loads(line)["rule"] for seed in range(6) for line in flight(tmp_path / "flight.ct", seed)}
    assert {"pcie_width", "gpu_missing", "gpu_temperature", "gpu_count", "node_unreachable", "rdma_port_flap"} <= rules


def test_the_inventory_comes_back_without_how_it_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "flight.ct"
    flight(path, 1)
    inventory = Recording(path).inventory
    assert [(node.name, node.rack, node.leaf, node.groups) for node in inventory.nodes] == [
        ("n0", "r1", "l1", ("train",)), ("n1", "r2", "", ()), ("n2", "", "", ())]
    assert inventory.expectations == (Expectation(frozenset({"n1"}), "gpu", 8, 4),)
    content = gzip.decompress(path.read_bytes())
    for secret in (b"10.9.8.7", b"operator", b"2222"):
        assert secret not in content.split(b"\n", 1)[0]


def test_times_come_back_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "times.ct"
    at, wall = 1234.1 + 1e-10, 1.7e9 + 1 / 3
    event = LinkEvent(1, at, LinkState.AUTH_FAILED, "login", 'a "quoted" \u2028 reason', "b1,\x1b[31mb2")
    with Recorder(path, plan()) as tap:
        tap.tick(at, wall)
        tap.link(event, wall)
        tap.frame(2, at, wall, b'{"v":1, "not": "parsed"}')
    kept = LinkEvent(1, at, LinkState.AUTH_FAILED, "login", 'a "quoted"  reason', clean("b1,\x1b[31mb2"))
    assert list(Recording(path).steps()) == [
        Step(at, wall), Step(at, wall, 1, link=kept), Step(at, wall, 2, b'{"v":1, "not": "parsed"}')]


class TestEnds:
    @pytest.fixture(scope="class")
    def whole(self, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[str]]:
        path = tmp_path_factory.mktemp("whole") / "flight.ct"
        said = flight(path, 5, 130)  # long enough for the header to be its smaller part
        assert len(said) > 5
        return path.read_bytes(), said

    @pytest.mark.parametrize("share", [0.5, 0.6, 0.77, 0.95, 0.999])
    def test_a_cut_file_replays_up_to_its_end(
        self, whole: tuple[bytes, list[str]], share: float, tmp_path: Path
    ) -> None:
        data, said = whole
        path = tmp_path / "cut.ct"
        path.write_bytes(data[: int(len(data) * share)])
        lines, note = replayed(path)
        assert lines == said[: len(lines)]
        assert note == "the file ends in the middle: the recorder was interrupted"

    def test_one_cut_within_its_header_says_so(self, whole: tuple[bytes, list[str]], tmp_path: Path) -> None:
        path = tmp_path / "stub.ct"
        path.write_bytes(whole[0][:200])
        with pytest.raises(RecordingError, match="is not a clustertop recording: the file ends in the middle"):
            Recording(path)

    def test_a_flipped_byte_is_said_and_never_a_traceback(
        self, whole: tuple[bytes, list[str]], tmp_path: Path
    ) -> None:
        data, said = whole
        chance = random.Random(3)
        path = tmp_path / "bad.ct"
        ends = 0
        for _ in range(12):
            at = chance.randrange(10, len(data))
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])
            try:
                lines, note = replayed(path)
            except RecordingError:
                continue
            ends += bool(note)
            assert note or lines == said
        assert ends > 0

    def test_what_a_killed_recorder_has_flushed_is_there(self, tmp_path: Path) -> None:
        path = tmp_path / "killed.ct"
        tap = Recorder(path, plan())
        tap._flushed -= 60  # the last flush was a minute ago
        tap.tick(1.0, 2.0)
        copy = tmp_path / "copy.ct"
        copy.write_bytes(path.read_bytes())
        tap.close()
        recording = Recording(copy)
        assert list(recording.steps()) == [Step(1.0, 2.0)]
        assert recording.note == "the file ends in the middle: the recorder was interrupted"


class TestStops:
    def test_at_its_size_once_and_the_file_is_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "small.ct"
        ends: list[str] = []
        with Recorder(path, plan(), max_bytes=20_000) as tap:
            tap.when_ended(lambda: ends.append(tap.note))
            for number in range(5000):
                tap.frame(0, float(number), 1.0, random.Random(number).randbytes(40).hex().encode())
                tap._flushed = -1e9  # every tick is a moment to look at the size
                tap.tick(float(number), 1.0)
        assert ends == [f"recording stopped: {path} has reached 20.0 kB"]
        assert not tap.failed
        assert 20_000 <= path.stat().st_size < 22_000
        recording = Recording(path)
        assert len(list(recording.steps())) > 100
        assert recording.note == ""

    def test_one_that_has_ended_already_tells_at_once(self, tmp_path: Path) -> None:
        ends: list[str] = []
        with Recorder(tmp_path / "tiny.ct", plan(), max_bytes=1) as tap:
            tap.when_ended(lambda: ends.append(tap.note))
            assert len(ends) == 1
        assert list(Recording(tmp_path / "tiny.ct").steps()) == []

    def test_a_full_disk_at_the_start_is_one_sentence(self) -> None:
        with pytest.raises(RecordingError, match=r"^recording stopped: /dev/full cannot be written: No space left"):
            Recorder("/dev/full", plan(), force=True)

    def test_one_that_cannot_be_begun_leaves_no_file_in_the_way(self, tmp_path: Path) -> None:
        path, (soft, hard) = tmp_path / "flight.ct", resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            with pytest.raises(RecordingError, match="cannot be written: File too large"):
                Recorder(path, plan())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not path.exists()

    def test_a_full_disk_later_ends_the_recording_and_not_the_session(self, tmp_path: Path) -> None:
        path = tmp_path / "full.ct"
        script = (
            "import random, resource, sys\n"
            "from pathlib import Path\n"
            "sys.path[:0] = sys.argv[2:]\n"
            "from record.test_record import plan\n"
            "from clustertop.record import Recorder\n"
            "tap = Recorder(sys.argv[1], plan())\n"
            "tap.when_ended(lambda: print('ended:', tap.note, tap.failed))\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
            "for number in range(3000):\n"
            "    tap.frame(0, float(number), 1.0, random.Random(number).randbytes(40).hex().encode())\n"
            "    tap._flushed = -1e9\n"
            "    tap.tick(float(number), 1.0)\n"
            "tap.close()\n"
            "print('the session goes on')\n")
        done = subprocess.run(
            [sys.executable, "-c", script, str(path), str(Path(__file__).parents[1])], capture_output=True, text=True,
            timeout=240, check=False)
        assert done.stdout.splitlines() == [
            f"ended: recording stopped: {path} cannot be written: File too large True", "the session goes on"]
        assert done.returncode == 0, done.stderr
        assert path.stat().st_size <= 30_000
        assert len(list(Recording(path).steps())) > 100


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A recording with one unreachable node, its header as *change* leaves it."""
    with Recorder(path, plan(), force=True) as tap:
        for at in (1.0, 2.0, 9.0):
            tap.link(LinkEvent(0, at, LinkState.UNREACHABLE, "tcp", "\x1b[31mno\x07 route"), at)
            tap.tick(at, at)
    first, rest = gzip.decompress(path.read_bytes()).split(b"\n", 1)
    header = json.loads(first)
    change(header)
    path.write_bytes(gzip.compress(json.dumps(header).encode() + b"\n" + rest))
    return path


class TestHostile:
    def test_text_of_the_header_is_cleaned(self, tmp_path: Path) -> None:
        def change(header: dict[str, Any]) -> None:
            header["nodes"][0].update(name="n\x1b]0;owned\x070", rack="\x1b[2J", groups=["a\u202eb"])
            header["rules"]["node_unreachable"].update(title="\x1b[5mloud", hint="\u200b\x00")

        recording = Recording(changed(tmp_path / "esc.ct", change))
        lines = [plain.transition_line(one) for one in transitions(recording)]
        assert lines
        assert all(line.isprintable() for line in lines)
        core = replay_core(recording)
        assert recording.inventory.nodes[0] == NodeInfo("n]0;owned0", rack="[2J", leaf="l1", leaves=("l1", "l2"), groups=("ab",))
        assert core.engine.rules["node_unreachable"].title == "[5mloud"

    @pytest.mark.parametrize(("change", "said"), [
        (lambda header: header["rules"]["gpu_ecc"].update(metric="watts"), "table gpu has no column 'watts'"),
        (lambda header: header["rules"]["gpu_ecc"].update(table="x\x1b[0m"), r"no table 'x\\x1b\[0m'"),
        (lambda header: header.update(nodes=header["nodes"][:1] * 2), "two nodes have one name"),
        (lambda header: header.update(nodes=7), "header is wrong"),
        (lambda header: header.update(devices=[{"name": "p", "kind": "pdu", "interval": 0}]), "an interval that cannot be"),
        (lambda header: header.update(feeds=[{"name": "f", "phases": 0}]), "feed f has phases, a rating or volts that cannot be"),
        (lambda header: header.update(feeds=[{"name": "f", "volts": -1.0}]), "feed f has phases, a rating or volts that cannot be"),
        (lambda header: header.update(version=2, nodes={"other": "shape"}), "of version 2; this program reads 1"),
        (lambda header: header.update(clustertop="else"), "this program reads 1"),
        (lambda header: header.pop("version"), "is not a clustertop recording"),
    ])
    def test_a_wrong_header_is_one_sentence(
        self, change: Callable[[dict[str, Any]], None], said: str, tmp_path: Path
    ) -> None:
        with pytest.raises(RecordingError, match=said) as failed:
            Recording(changed(tmp_path / "wrong.ct", change))
        assert str(failed.value).isprintable()

    @pytest.mark.parametrize("line", [
        b"T nan 1.0", b"T 1.0 inf", b"T -5 1", b"T 1e300 1", b"T 1", b"X 1 2 3", b"F 9 1.0 1.0 {}", b"F -1 1.0 1.0 {}",
        b"L 0 1.0 1.0 99 [\"\", \"\"]", b"L 0 1.0 1.0 4 {}", b"\xff\xfe", b"",
    ])
    def test_a_line_that_is_none_ends_the_replay_with_a_note(self, line: bytes, tmp_path: Path) -> None:
        path = changed(tmp_path / "line.ct", lambda header: None)
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + line + b"\nT 10.0 10.0\n"))
        recording = Recording(path)
        assert [change.rule for change in transitions(recording)] == ["node_unreachable"]
        assert recording.note.startswith("a line that is no part of a recording")
        assert recording.note.isprintable()

    def test_a_frame_that_is_none_costs_itself(self, tmp_path: Path) -> None:
        path = changed(tmp_path / "frame.ct", lambda header: None)
        first, rest = gzip.decompress(path.read_bytes()).split(b"\n", 1)
        path.write_bytes(gzip.compress(first + b"\nF 0 0.5 0.5 {\"v\": nonsense}\n" + rest))
        recording = Recording(path)
        assert [change.rule for change in transitions(recording)] == ["node_unreachable"]
        assert recording.note == ""


def test_how_long_alerts_settle_is_in_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "flight.ct"
    with Recorder(path, plan(settle_seconds=6.0, resume_seconds=5.0)) as tap:
        fleet = Fleet(NODES, tap=tap, settle_seconds=6.0, resume_seconds=5.0)
        fleet.step(gpu=gpus({}))
        fleet.facts[0] = {"boot_id": "b1"}
        fleet.encoders[0].want_full()
        for _ in range(12):
            fleet.step(gpu=gpus({"temp": 90}))
    header = Recording(path).header
    assert (header.settle_seconds, header.resume_seconds) == (6.0, 5.0)
    live = [(change.at, change.rule) for change in fleet.seen]
    assert [(at - 1000.0, rule) for at, rule in live] == [(8.0, "gpu_temperature")], "not after five minutes"
    assert [(change.at, change.rule) for change in transitions(Recording(path))] == live
