"""What an operator asks of a node, end to end: OpenSSH, the probe, the real pynvml over a compiled NVML."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustertop import plain
from clustertop.commands.check import _check as check
from clustertop.commands.once import _once as once
from clustertop.inventory import Inventory
from clustertop.model import LinkState, Request
from clustertop.plan import Plan
from clustertop.released import ReleasedNodes
from clustertop.rules.spec import builtin
from clustertop.session import Session
from nvml_lib import VARIABLE, Scenario, build
from sshd import Sshd, running
from trees import NodeTree, gpu_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clustertop.core import Snapshot

pytestmark = [pytest.mark.sshd, pytest.mark.cc]
KEY = "GPU-5eed0000-0000-4000-8000-{:012d}"
JOBS = "sys/fs/cgroup/system.slice/slurmstepd.scope"


class Place:
    """A node with two GPUs, and what a session needs to watch it."""

    def __init__(self, folder: Path, sshd: Sshd, scenario: Scenario, tree: NodeTree, library: Path) -> None:
        self.sshd, self.scenario, self.tree = sshd, scenario, tree
        self.device = folder / "nvidia0"
        settings = sshd.settings(nvml=str(library), root=str(tree.root))
        self.plan = Plan(Inventory((sshd.node(),), index={"node1": 0}), settings, builtin())
        self.file = folder / "state" / "released.json"

    @property
    def shared(self) -> Plan:
        """The plan of one of several clustertops of the same operator."""
        return replace(self.plan, released=ReleasedNodes(self.file))

    def holders(self) -> list[int]:
        """Processes that have the GPU's device file open."""
        found = []
        for folder in Path("/proc").glob("[0-9]*/fd"):
            try:
                if any(fd.readlink() == self.device for fd in folder.iterdir()):
                    found.append(int(folder.parent.name))
            except OSError:
                continue
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    library = build(tmp_path / "lib")
    device = tmp_path / "nvidia0"
    device.touch()
    scenario = Scenario(tmp_path / "scenario", "count 2", "all util 97", "all temp_slowdown 87", "count_calls 1",
                        f"device_file {device}")
    tree = gpu_node(tmp_path / "root", gpus=2, ports=1)
    with running(tmp_path / "sshd", f"SetEnv {VARIABLE}={scenario.path}") as sshd:
        yield Place(tmp_path, sshd, scenario, tree, library)


async def until(session: Session, holds: Callable[[Snapshot], object], seconds: float = 60.0) -> Snapshot:
    async with asyncio.timeout(seconds):
        while session.snapshot is None or not holds(session.snapshot):
            await asyncio.sleep(0.02)
    return session.snapshot


def busy(now: Snapshot) -> bool:
    return len(now.view["gpu"]) == 2 and now.view["gpu"].value("utilization_ratio", 0) is not None


def released(now: Snapshot) -> bool:
    return now.view["node"].value("gpus_released_seconds", 0) is not None


async def test_let_go_over_a_reconnect_and_taken_back(place: Place) -> None:
    async with Session(place.plan, tick_seconds=0.1) as session:
        await until(session, busy)
        assert len(place.holders()) == 1
        session.request(Request(0, {"do": "release", "group": "gpu"}))
        assert session.released(0)
        snapshot = await until(session, released)
        assert place.holders() == []
        assert snapshot.view["gpu"].reason("power_watts", 0) == "released by the operator"
        since = snapshot.view["node"].value("gpus_released_seconds", 0)
        assert since is not None
        assert since < 5.0
        starts = place.scenario.calls()["nvmlInitWithFlags"]

        at = session._clock.monotonic()
        place.sshd.kill_sessions()
        await until(session, lambda now: now.view["node"].value("link_state", 0) == LinkState.UNREACHABLE)
        snapshot = await until(session, lambda now: now.view["node"].value("link_state", 0) == LinkState.UP
                               and now.view["node"].value("frame_age_seconds", 0) < session._clock.monotonic() - at - 1)
        assert released(snapshot)
        assert snapshot.view["node"].value("gpus_released_seconds", 0) > since, "since then, not since the reconnect"
        assert place.holders() == []
        assert place.scenario.calls()["nvmlInitWithFlags"] == starts, "NVML was not started again"
        assert snapshot.alerts == ()

        session.request(Request(0, {"do": "take", "group": "gpu"}))
        assert not session.released(0)
        snapshot = await until(session, lambda now: busy(now) and not released(now))
        assert snapshot.view["gpu"].value("utilization_ratio", 1) == pytest.approx(0.97)
        assert len(place.holders()) == 1


async def test_once_and_check_say_since_when_and_never_ok(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    async with Session(place.shared, tick_seconds=0.1) as session:
        await until(session, busy)
        session.request(Request(0, {"do": "release", "group": "gpu"}))
        snapshot = await until(session, released)
    words = plain.released_words(snapshot.view, 0)
    assert words.startswith("GPUs released by the operator since ")
    assert len(words.split()[-1]) == len("14:02")

    assert await once(place.shared, Namespace(json=False, timeout=60.0)) == 0
    shown = capsys.readouterr().out
    row = next(line.split() for line in shown.splitlines() if line.startswith("node1"))
    assert row[-1] == "released"
    assert f"node1  {words}" in shown
    assert "no alerts" in shown

    assert await once(place.shared, Namespace(json=True, timeout=60.0)) == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert node["released"].endswith("Z")

    assert await check(place.shared, Namespace(json=False, brief=False, seconds=0.5, timeout=60.0)) == 3
    shown = capsys.readouterr().out
    assert words in shown
    assert "GPU: ok" not in shown
    assert place.holders() == []


async def test_another_clustertop_of_the_operator_does_the_same(place: Place) -> None:
    async with Session(place.shared, tick_seconds=0.1) as one, Session(place.shared, tick_seconds=0.1) as other:
        for session in (one, other):
            await until(session, busy)
        assert len(place.holders()) == 2
        one.request(Request(None, {"do": "release", "group": "gpu"}))
        await until(other, released)
        await until(one, released)
        assert place.holders() == []
        assert other.released(0)
        other.request(Request(0, {"do": "take", "group": "gpu"}))
        for session in (one, other):
            await until(session, lambda now: busy(now) and not released(now))
        assert not one.released(0)
    assert json.loads(place.file.read_text()) == {}


async def test_a_wish_that_cannot_be_written_down_holds_here_and_says_so(place: Place) -> None:
    place.file.parent.parent.joinpath("state").write_text("in the way")
    async with Session(place.shared, tick_seconds=0.1) as session:
        session.request(Request(0, {"do": "release", "group": "gpu"}))
        await until(session, released)
        async with asyncio.timeout(60):
            while not session.notes:
                await asyncio.sleep(0.02)
        assert "cannot be written" in session.notes[0]
        assert place.holders() == []


@pytest.mark.parametrize("per_poll", [False, True])
async def test_between_two_polls_nothing_is_held_in_per_poll_mode(place: Place, per_poll: bool) -> None:
    inventory = replace(place.plan.inventory, per_poll=frozenset({"node1"} if per_poll else ()))
    settings = replace(place.plan.settings, interval_seconds=1.0)
    async with Session(replace(place.plan, inventory=inventory, settings=settings), tick_seconds=0.1) as session:
        await until(session, busy)
        held = []
        for _ in range(3):
            reads = session.snapshot.view["gpu"].reads[0] if session.snapshot else 0
            await until(session, lambda now, reads=reads: now.view["gpu"].reads[0] > reads)
            # A reading has just been told. What is let go of between two is let go of now.
            async with asyncio.timeout(60):
                while (count := len(place.holders())) and per_poll:
                    await asyncio.sleep(0.01)
            held.append(count)
    calls = place.scenario.calls()
    starts = calls["nvmlInitWithFlags"]
    if per_poll:
        assert held == [0, 0, 0]
        assert starts >= 4
        assert starts - calls["nvmlShutdown"] <= 1, "the library's handle is given back each time"
    else:
        assert held == [1, 1, 1]
        assert starts == 1


async def test_processes_jobs_and_their_end(place: Place) -> None:
    tree = place.tree
    tree.directory(f"{JOBS}/job_4711/step_0")
    for pid, command, cgroup in ((901, b"python3\0train.py\0[red]x[/red]\0", f"{JOBS[14:]}/job_4711/step_0"),
                                 (902, b"./idle\0", "/user.slice")):
        tree.write(f"proc/{pid}/status", "Name:\tworker\nUid:\t0\t0\t0\t0\n")
        tree.write(f"proc/{pid}/cmdline", command.decode())
        tree.write(f"proc/{pid}/cgroup", f"0::{cgroup}\n")
    place.scenario.add("0 process 901 1073741824", "1 process 902 5")
    async with Session(place.plan, tick_seconds=0.1) as session:
        snapshot = await until(session, lambda now: busy(now) and now.view.jobs.names)
        assert snapshot.view.processes == (None,), "nobody asked"
        assert snapshot.view.jobs.names == ("4711",)
        assert snapshot.view.jobs.gpu.tolist() == [0, 0]
        (line,) = plain.job_lines(snapshot)
        assert (line.nodes, line.gpus, line.utilization_ratio) == (1, 2, pytest.approx(0.97))
        session.request(Request(0, {"do": "procs", "seconds": 1.5}))
        snapshot = await until(session, lambda now: now.view.processes == ("",))
        table = snapshot.view["process"]
        told = {table.attrs[row]["pid"]: table.attrs[row] for row in table.rows_of(0).tolist() if table.present[row]}
        assert told[901]["command"] == "python3 train.py [red]x[/red]"
        assert told[901]["job"] == "4711"
        assert told[902]["job_kind"] == "user"
        assert snapshot.view.jobs.gpu.tolist() == [0, 0], "what is beside a job is not what the GPU was given to"
        snapshot = await until(session, lambda now: now.view.processes == (None,))
        assert not snapshot.view["process"].present.any()
