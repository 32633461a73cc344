"""The probe as a process: on every Python that nodes have, its frames, its requests and its end."""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trees
from clustertop.commands import probe as command
from nvml_lib import Scenario
from probe.harness import VERSIONS, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

    from probe.harness import Run


@pytest.fixture
def node(tmp_path: Path) -> trees.NodeTree:
    return trees.gpu_node(tmp_path / "node", gpus=1, ports=2)


@pytest.mark.cc
@pytest.mark.parametrize("version", VERSIONS)
def test_runs_on_this_python(
    version: str, start: Callable[..., Run], node: trees.NodeTree, library: Path, tmp_path: Path
) -> None:
    python = interpreter(version)
    empty = tmp_path / "empty"
    empty.mkdir()
    scenario = Scenario(tmp_path / "scenario", "count 2")
    env = {**scenario.env(), "HOME": str(empty), "TMPDIR": str(empty), "PYTHONPYCACHEPREFIX": str(empty)}
    run = start(python, env=env, root=str(node.root), nvml=str(library))
    assert run.ready.split()[3].startswith(version.encode() + b".")
    values = run.until(lambda values: all(group.n >= 3 for group in values.frame.g.values()) if values.frame else False)
    assert values.facts["host"] == "gpu001"
    assert values.facts["python"].startswith(version + ".")
    assert len(values.rows["gpu"]) == 2
    assert len(values.rows["pcie"]) == 9
    assert len(values.rows["port"]) == 2
    node.write(node.where("0000:14:00.0") + "/infiniband/mlx5_0/ports/1/counters/port_rcv_data", 12345)
    run.until(lambda values: values.cell("port", "0000:14:00.0/1", "c:port_rcv_data") == 12345)
    assert run.process.stdin is not None
    run.process.stdin.close()
    assert run.wait() == 0
    assert run.stderr() == ""
    assert list(empty.iterdir()) == [], "nothing is written on the node"


def test_first_frame_is_full_and_the_next_ones_are_not(start: Callable[..., Run], node: trees.NodeTree) -> None:
    run = start(root=str(node.root), groups=["host", "rdma", "pcie"])
    frame = run.next()
    assert frame.full
    assert frame.q == 1
    # On a busy machine it may come before every group has read; the next one is then full again.
    while "wait" in {group.st for group in frame.g.values()}:
        assert frame.q < 5
        frame = run.next()
    assert frame.full
    assert {name: group.st for name, group in frame.g.items()} == {"host": "ok", "rdma": "ok", "pcie": "ok"}
    assert frame.m["rss"] > 0
    assert frame.m["cpu"] > 0
    second = run.next()
    assert not second.full
    assert (second.q, second.b) == (frame.q + 1, frame.q)
    assert second.g["rdma"].n > frame.g["rdma"].n
    assert second.t > frame.t
    assert run.sizes[second.q - 1] < run.sizes[frame.q - 1] / 4


def test_requests(start: Callable[..., Run], node: trees.NodeTree) -> None:
    run = start(root=str(node.root), groups=["host", "rdma"])
    run.next()
    assert not run.next().full
    run.send(b"not json\n[1]\n{}\n")
    run.request(do="dance")
    run.request(do="full")
    run.until(lambda values: values.frame is not None and values.frame.full and values.frame.q > 2)
    run.request(do="every", group="rdma", seconds=7)
    run.until(lambda values: values.frame is not None and values.frame.g["rdma"].iv == 7)
    before = run.frames[-1]
    later = run.until(lambda values: values.frame is not None and values.frame.g["host"].n >= before.g["host"].n + 5)
    assert later.frame is not None
    assert later.frame.g["rdma"].n <= before.g["rdma"].n + 1
    run.request(do="stop")
    assert run.wait() == 0


def test_new_device_makes_a_full_frame(start: Callable[..., Run], node: trees.NodeTree) -> None:
    run = start(root=str(node.root), groups=["rdma"])
    run.next()
    node.pci("0000:c1:00.0", kind="0x020700", driver="mlx5_core")
    node.rdma("mlx5_7", "0000:c1:00.0")
    values = run.until(lambda values: "0000:c1:00.0/1" in values.rows["port"])
    assert values.frame is not None
    assert values.frame.full


def test_a_full_frame_comes_every_so_often(start: Callable[..., Run], node: trees.NodeTree) -> None:
    run = start(root=str(node.root), groups=["host"], full_every=0.5)
    while sum(frame.full for frame in run.frames) < 3:
        run.next()
    full = [frame.t for frame in run.frames if frame.full]
    assert all(0.4 < later - earlier < 3.0 for earlier, later in itertools.pairwise(full))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ends_on_signals(start: Callable[..., Run], node: trees.NodeTree, number: int) -> None:
    run = start(root=str(node.root))
    run.next()
    run.process.send_signal(number)
    assert run.wait() == 0
    assert run.stderr() == ""


def test_ends_when_nobody_reads(start: Callable[..., Run], node: trees.NodeTree) -> None:
    run = start(root=str(node.root))
    run.next()
    assert run.process.stdout is not None
    run.process.stdout.close()
    assert run.process.wait(60) == 0
    assert run.stderr() == ""


def test_ends_when_its_parent_goes_away(node: trees.NodeTree, tmp_path: Path) -> None:
    # The parent leaves; the probe's stdin stays open, so that only the parent's end can end it.
    script = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=int(sys.argv[2]))\n"
        "print(child.pid, flush=True)\n"
        "input()\n"
    )
    inner = (
        "from clustertop.probe.loop import main\n"
        f"main({{'root': {str(node.root)!r}, 'groups': ['host'], 'every': {{'host': 0.1}}, 'nonce': 'n'}})\n"
    )
    read, write = os.pipe()
    output = tmp_path / "output"
    with output.open("wb") as file:
        parent = subprocess.Popen(
            [sys.executable, "-c", script, inner, str(read)],
            stdin=subprocess.PIPE,
            stdout=file,
            pass_fds=[read],
        )
    os.close(read)
    try:
        wait_for(lambda: output.read_bytes().count(b"CT1@@") >= 2)
        child = int(output.read_bytes().split()[0])
        assert parent.stdin is not None
        parent.stdin.write(b"\n")
        parent.stdin.close()
        parent.wait(60)
        wait_for(lambda: _gone(child))
    finally:
        os.close(write)
        if parent.poll() is None:
            parent.kill()
            parent.wait(60)


def test_slow_reader_costs_ticks_not_memory(start: Callable[..., Run], node: trees.NodeTree) -> None:
    run = start(root=str(node.root), groups=["rdma", "host"], full_every=0.01)
    first = run.next()
    # The pipe holds 64 kB; then the probe must skip. Its readings go on, and it says how much it skipped.
    assert _full(run), "the writer never blocked"
    later = run.until(lambda values: values.frame is not None and values.frame.m.get("skipped", 0) > 0)
    assert later.frame is not None
    assert later.frame.m["rss"] < first.m["rss"] + 4e6


def _gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def _full(run: Run) -> bool:
    """Wait until the pipe that the probe writes to has not grown for half a second; True where it is well filled."""
    assert run.process.stdout is not None
    held, since = 0, time.monotonic()
    end = since + 20.0
    while time.monotonic() < end:
        buffer = bytearray(4)
        fcntl.ioctl(run.process.stdout, termios.FIONREAD, buffer)
        now = int.from_bytes(buffer, sys.byteorder)
        if now != held:
            held, since = now, time.monotonic()
        elif held > 16384 and time.monotonic() - since > 0.5:
            return True
        time.sleep(0.02)
    return False


def wait_for(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.02)


# ---------------------------------------------------------------- the command


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_command_prints_one_complete_frame(node: trees.NodeTree, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(arguments("--once", "--root", str(node.root))) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    frame = json.loads(out)
    assert {name: group["n"] for name, group in frame["g"].items()} == {
        "gpu": 1, "pcie": 1, "rdma": 1, "host": 1, "net": 1, "disk": 1, "screen": 1, "sockets": 1}  # fmt: skip
    assert frame["g"]["gpu"]["st"] == "error", "an NVIDIA device, but no library that belongs to this root"
    assert command.run(arguments("--once", "--pretty", "--root", str(node.root))) == 0
    assert json.loads(capsys.readouterr().out)["h"]["host"] == "gpu001"


def test_command_refuses_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(arguments("--once", "--root", str(tmp_path / "no"))) == 3
    assert "--root" in capsys.readouterr().err
    assert command.run(arguments("--once", "--nvml", str(tmp_path / "no.so"))) == 3
    assert "--nvml" in capsys.readouterr().err
    assert command.run(arguments("--pretty")) == 3
    assert "--once" in capsys.readouterr().err


def test_command_imports_nothing_heavy(node: trees.NodeTree) -> None:
    script = (
        "import argparse, sys\n"
        "from clustertop.commands import probe\n"
        f"probe.run(argparse.Namespace(once=True, root={str(node.root)!r}, nvml='', pretty=False))\n"
        "heavy = {'textual', 'asyncssh', 'numpy', 'msgspec', 'pynvml'} & set(sys.modules)\n"
        "print(*heavy, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-SIc", f"import sys; sys.path.insert(0, {_src()!r})\n{script}"],
                          capture_output=True, text=True, timeout=240, check=True)  # fmt: skip
    assert done.stderr.split() == []


def _src() -> str:
    return str(Path(command.__file__).parents[2])
