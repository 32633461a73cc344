"""Case G4a: where a process hangs in the driver already, no second one is sent there."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trees
from clustertop.probe import stuck
from clustertop.probe.files import Call, Tree
from nvml_lib import Scenario
from probe.harness import interpreter, sooner
from sleepers import UPTIME, Sleeper
from tools import need

if TYPE_CHECKING:
    from collections.abc import Callable

    from probe.harness import Run

VFORK = """
#include <unistd.h>
int main(void) {
    if (vfork() == 0) {
        write(1, "x", 1);
        for (;;) sleep(60);
    }
    return 0;
}
"""
"""Its parent sleeps in the kernel until the child has gone: nothing else that an ordinary user can do does."""


@pytest.fixture
def node(tmp_path: Path) -> trees.NodeTree:
    return trees.gpu_node(tmp_path / "node", gpus=1, ports=1)


def found(node: trees.NodeTree, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(stuck, "STILL_SECONDS", 0.0)
    return stuck.found(Tree(str(node.root), Call()))


@pytest.mark.parametrize(("comm", "threads", "asleep", "age", "who"), [
    ("nvidia-smi", (), 0, 312, "nvidia-smi hangs in the kernel on the node (pid 4242, started 312 s ago)"),
    ("clustertop", ("clustertop-gpu", "rdma"), 1, 99, "an earlier probe of ours hangs in the kernel on the node (pid 4242, started 99 s ago)"),
    ("clustertop", ("clustertop-gpu", "clustertop"), 2, 99, ""),
    ("nvidia-smi", (), 0, 12, ""),
    ("python3", ("clustertop-gpu",), 1, 99, ""),
    ("dd", (), 0, 312, ""),
], ids=["nvidia-smi", "our-own", "our-own-on-a-file", "waking-the-gpus", "another-program", "another-disk"])
def test_g4_who_hangs_is_named(
    comm: str, threads: tuple[str, ...], asleep: int, age: float, who: str, node: trees.NodeTree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found(node, monkeypatch) == ""
    sleeper = Sleeper(node, 4242, age=age, comm=comm, threads=threads).fall_asleep(asleep)
    assert found(node, monkeypatch) == who
    sleeper.wake()
    assert found(node, monkeypatch) == ""


def test_g4_who_has_run_in_between_does_not_hang(node: trees.NodeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = Sleeper(node, 4242, age=900).fall_asleep()

    def runs(seconds: float) -> None:
        assert seconds == 1.0
        sleeper.runs += 1
        sleeper.fall_asleep()

    monkeypatch.setattr(time, "sleep", runs)
    assert stuck.found(Tree(str(node.root), Call())) == ""


@pytest.mark.cc
def test_g4_a_process_that_really_sleeps_in_the_kernel(node: trees.NodeTree, tmp_path: Path) -> None:
    source = tmp_path / "smi.c"
    source.write_text(VFORK)
    program = tmp_path / "nvidia-smi"
    subprocess.run([need("cc", "gcc"), "-w", "-o", program, source], check=True)
    process = subprocess.Popen([program], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    try:
        assert process.stdout.read(1) == b"x"
        Sleeper(node, process.pid, age=400)
        for name in ("comm", "status", "task"):
            here = node.root / f"proc/{process.pid}" / name
            here.unlink(missing_ok=True)
            here.symlink_to(f"/proc/{process.pid}/{name}")
        began = time.monotonic()
        assert f"(pid {process.pid}, started 400 s ago)" in stuck.found(Tree(str(node.root), Call()))
        assert time.monotonic() - began >= stuck.STILL_SECONDS
    finally:
        os.killpg(process.pid, 9)
        process.wait(60)
        process.stdout.close()


@pytest.mark.cc
@pytest.mark.parametrize("version", ["3.6", "3.13"])
def test_g4_nvml_is_not_started_beside_one_that_hangs(
    version: str, start: Callable[..., Run], library: Path, node: trees.NodeTree, tmp_path: Path
) -> None:
    scenario = Scenario(tmp_path / "scenario", "count 2", "count_calls 1")
    sleeper = Sleeper(node, 4242, age=312).fall_asleep()
    run = start(interpreter(version), env=scenario.env(), nvml=str(library), root=str(node.root),
                body=sooner(gpu__RESTART_SECONDS=1.0))
    values = run.until(lambda values: values.frame is not None and values.frame.g["gpu"].st == "hung")
    assert values.frame is not None
    assert values.frame.g["gpu"].w == "nvidia-smi hangs in the kernel on the node (pid 4242, started 312 s ago)"
    assert "gpu" not in values.rows
    number = values.frame.g["rdma"].n
    values = run.until(lambda values: values.frame is not None and values.frame.g["rdma"].n > number + 3)
    assert not (tmp_path / "scenario.calls").exists(), "NVML was never started"
    assert (tmp_path / "scenario").exists()
    sleeper.wake()
    run.until(lambda values: "gpu" in values.rows)
    own = Path(f"/proc/{run.process.pid}")
    assert (own / "comm").read_text() == "clustertop\n"
    names = [(task / "comm").read_text().strip() for task in (own / "task").iterdir()]
    assert stuck.THREAD in names, "the next probe knows it by this"


def test_uptime_is_what_ages_count_from(node: trees.NodeTree) -> None:
    Sleeper(node, 7, age=100)
    assert stuck._age(Tree(str(node.root), Call()), "7") == pytest.approx(100, abs=0.02)
    assert UPTIME > 100
    node.write("proc/7/stat", "garbage")
    assert stuck._age(Tree(str(node.root), Call()), "7") == 0.0
