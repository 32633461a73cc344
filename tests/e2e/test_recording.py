"""A live demo, recorded: the replay says exactly what the live run said."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
from typing import TYPE_CHECKING

import pytest

from clustertop import cli, plain
from clustertop.demo.faults import parse
from clustertop.demo.launch import start_demo
from clustertop.inventory import Inventory
from clustertop.model import NodeInfo, Transition
from clustertop.plan import Plan
from clustertop.record import Recorder, Recording, RecordingError
from clustertop.replay import ReplaySession, transitions
from clustertop.rules.spec import builtin
from clustertop.session import Session
from clustertop.wire.transport import PollSettings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("recording")
WANTED = {"pcie_width", "gpu_missing", "rdma_soft_errors"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A recording of a demo with faults, and the lines that the live run gave."""
    path = tmp_path_factory.mktemp("recording") / "flight.ct"
    return path, asyncio.run(_record(path))


async def _record(path: Path) -> list[str]:
    said: list[str] = []
    async with start_demo(6, faults=[parse("x8:1"), parse("gpu-lost:1"), parse("rdma-errors:1")], seed=3) as demo:
        index = {node.name: number for number, node in enumerate(demo.nodes)}
        plan = Plan(Inventory(demo.nodes, index=index), demo.settings(0.5, 0.5), builtin(), title="demo")
        with Recorder(path, plan) as tap:
            async with Session(plan, tap=tap, tick_seconds=0.25) as session:
                seen: list[Transition] = []
                session.core.listen(seen.extend)
                async with asyncio.timeout(60):
                    while not {change.rule for change in seen} >= WANTED:
                        await asyncio.sleep(0.1)
                    await asyncio.sleep(1.0)
            said += [plain.transition_json(change) for change in seen]
    return said


def test_replay_prints_exactly_what_the_live_run_printed(
    live: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, said = live
    assert {json.loads(line)["rule"] for line in said} >= WANTED
    assert cli.main(["replay", str(path), "--json"]) == 0
    assert capsys.readouterr().out.splitlines() == said


def test_events_are_the_same_as_lines(live: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    path, said = live
    assert cli.main(["replay", str(path), "--events"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(said)
    assert any("is x8, expected x16, at hop" in line for line in lines)


async def test_replay_session_reaches_the_same_picture(live: tuple[Path, list[str]]) -> None:
    path, said = live
    seen: list[Transition] = []
    session = ReplaySession(Recording(path), speed=0)
    session.core.listen(seen.extend)
    async with session, asyncio.timeout(60):
        while not session.notes:
            await asyncio.sleep(0.01)
    assert session.notes == ("end of recording",)
    assert [plain.transition_json(change) for change in seen] == said
    assert session.snapshot is not None
    assert len(session.snapshot.view["gpu"]) == 48


def test_a_cut_recording_replays_up_to_its_end(
    live: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, said = live
    data = path.read_bytes()
    cut = tmp_path / "cut.ct"
    cut.write_bytes(data[: len(data) * 3 // 4])
    assert cli.main(["replay", str(cut), "--json"]) == 0
    out = capsys.readouterr()
    lines = out.out.splitlines()
    assert lines == said[: len(lines)]
    assert "the file ends in the middle" in out.err


def test_damage_in_the_middle_is_said(live: tuple[Path, list[str]], tmp_path: Path) -> None:
    path, said = live
    text = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    half = len(text) // 2
    bad = tmp_path / "bad.ct"
    with gzip.open(bad, "wb") as file:
        file.write(b"".join([*text[:half], b"F 99999 x y z\n", *text[half:]]))
    recording = Recording(bad)
    lines = [plain.transition_json(change) for change in transitions(recording)]
    assert lines == said[: len(lines)]
    assert recording.note.startswith("a line that is no part of a recording")


def test_no_address_user_or_key_is_recorded(live: tuple[Path, list[str]]) -> None:
    path, _ = live
    header = gzip.decompress(path.read_bytes()).split(b"\n", 1)[0]
    assert b"127.0.0.1" not in header
    assert b"known_hosts" not in header
    assert json.loads(header)["nodes"][0]["rack"] == "r1"


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", gzip.compress(b"hello\n"), gzip.compress(b'{"a": 1}\n')],
    ids=["empty", "text", "gzipped text", "gzipped JSON"])
def test_what_is_no_recording_is_one_sentence(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no.ct"
    path.write_bytes(content)
    assert cli.main(["replay", str(path), "--events"]) == 3
    assert capsys.readouterr().err.startswith(f"clustertop: {path} is not a clustertop recording")


def test_a_recording_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "there.ct"
    path.write_text("mine", encoding="utf-8")
    plan = Plan(Inventory((NodeInfo("n1"),)), PollSettings(), builtin())
    with pytest.raises(RecordingError, match="exists; name another file, or overwrite it with clustertop record --force"):
        Recorder(path, plan)
    assert path.read_text(encoding="utf-8") == "mine"
    Recorder(path, plan, force=True).close()
    assert Recording(path).inventory.nodes == (NodeInfo("n1"),)


def test_missing_file_is_one_sentence(tmp_path: Path) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert cli.main(["replay", str(tmp_path / "none"), "--events"]) == 3
    assert "cannot be read: No such file or directory" in said.getvalue()
