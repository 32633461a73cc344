"""The demo cluster's process: real SSH with strict host keys, the wire's own contract, and an end with its parent."""

from __future__ import annotations

import asyncio
import contextlib
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh
import pytest

import fleets
from clustertop import cli
from clustertop.clock import SystemClock
from clustertop.demo.faults import FaultError, parse
from clustertop.demo.launch import Demo, DemoError, start_demo
from clustertop.model import LinkState
from clustertop.poll.fleet import Fleet
from clustertop.wire import bundle
from clustertop.wire.frame import Frame, decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT_SECONDS = 60.0


def connect(demo: Demo, number: int, **changes: object) -> asyncssh.SSHClientConnection:
    node = demo.nodes[number]
    options: dict[str, object] = {
        "username": node.user, "client_keys": [str(demo.client_key)], "known_hosts": str(demo.known_hosts),
        "config": None, "agent_path": None, **changes,
    }  # fmt: skip
    return asyncssh.connect(node.host, node.port, **options)  # type: ignore[arg-type,return-value]


class Client:
    """Reads a node as ``docs/wire.md`` says, with asyncssh alone."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self.process = process
        self.nonce = bundle.new_nonce()
        self.noise: list[bytes] = []
        mark = self.nonce.encode()
        self._frame = re.compile(rb"@@CT1 " + mark + rb" (\{.*\}) " + mark + rb" CT1@@(.*)\n")

    async def start(self, **every: float) -> None:
        self.process.stdin.write(bundle.launcher(self.nonce))
        while True:
            line = await self.process.stdout.readline()
            assert line, "it ended before it was ready"
            if re.fullmatch(rb"@@CT1 %s ready \d+\.\d+\.\d+@@\n" % self.nonce.encode(), line):
                break
            self.noise.append(line)
        args = {"nonce": self.nonce, "every": {"gpu": 0.3, "rdma": 0.3, "host": 0.3, "pcie": 1.0, **every}}
        self.process.stdin.write(bundle.bundle(args))

    async def frame(self) -> Frame:
        while True:
            line = await self.process.stdout.readline()
            assert line, "it ended"
            match = self._frame.search(line)
            if match is not None:
                if match[2] or match.start():
                    self.noise.append(line[: match.start()] + match[2])
                return decode(match[1])
            self.noise.append(line)

    def ask(self, **request: object) -> None:
        self.process.stdin.write(bundle.request_line(request))


@contextlib.asynccontextmanager
async def client(demo: Demo, number: int = 0, **every: float) -> AsyncIterator[Client]:
    async with asyncio.timeout(LIMIT_SECONDS), connect(demo, number) as conn:
        process = await conn.create_process(bundle.COMMAND, encoding=None)
        out = Client(process)
        await out.start(**every)
        yield out


async def test_the_wire_from_launcher_to_end_of_stdin() -> None:
    async with start_demo(4) as demo, client(demo) as node:
        assert all(line.strip() == b"" for line in node.noise)
        first = await node.frame()
        assert first.full
        assert set(first.g) == {"gpu", "pcie", "rdma", "host", "net", "sockets", "screen"}
        assert first.h is not None
        assert first.h["host"] == demo.nodes[0].name
        second = await node.frame()
        assert not second.full
        assert second.b == first.q
        assert second.g["gpu"].n == first.g["gpu"].n + 1
        assert second.g["pcie"].n == first.g["pcie"].n
        assert 0.1 < second.t - first.t < 2.0
        node.ask(do="nonsense")
        node.process.stdin.write(b"not json\n[1]\n")
        node.ask(do="full")
        while not (frame := await node.frame()).full:
            pass
        assert frame.q > second.q
        node.ask(do="every", group="gpu", seconds=0.4)
        while (await node.frame()).g["gpu"].iv != 0.4:
            pass
        node.process.stdin.write_eof()
        await node.process.wait_closed()
        assert node.process.exit_status == 0


async def test_frames_closer_than_the_clusters_own_steps_repeat_a_reading_under_its_number() -> None:
    async with start_demo(1) as demo, client(demo, gpu=0.1, rdma=0.1, host=0.1) as node:
        frames = [await node.frame() for _ in range(12)]
    told = {frame.g["gpu"].n: frame.g["gpu"].t for frame in frames}
    assert 2 <= len(told) < len(frames)
    assert sorted(told.values()) == sorted(set(told.values()))


async def test_stop_ends_it_and_other_commands_are_refused() -> None:
    async with start_demo(1) as demo, client(demo) as node:
        await node.frame()
        node.ask(do="stop")
        await node.process.wait_closed()
        assert node.process.exit_status == 0
        async with connect(demo, 0) as conn:
            with pytest.raises(asyncssh.ChannelOpenError):
                await conn.create_process("rm -rf /")


async def test_host_keys_and_client_keys_are_checked(tmp_path: Path) -> None:
    async with start_demo(1) as demo:
        other = asyncssh.generate_private_key("ssh-ed25519")
        with pytest.raises(asyncssh.PermissionDenied):
            await connect(demo, 0, client_keys=[other])
        known = tmp_path / "known_hosts"
        key = other.export_public_key().decode().strip()
        known.write_text(f"[127.0.0.1]:{demo.nodes[0].port} {key}\n")
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            await connect(demo, 0, known_hosts=str(known))
        directory = demo.client_key.parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(demo.client_key.stat().st_mode) == 0o600
    assert not directory.exists()
    assert not alive(demo.pid)


async def test_the_real_poller_reads_it_and_a_node_that_goes_down_is_unreachable() -> None:
    seen = fleets.Remember()
    faults = [parse("node-down@gpu003:1"), parse("noisy-shell@gpu002:0")]
    async with start_demo(4, faults=faults) as demo:
        async with Fleet(demo.nodes, demo.settings(0.2), seen, SystemClock()) as fleet:
            await fleets.until(lambda: all(seen.count(number) >= 3 for number in (0, 1, 3)))
            await fleets.until(lambda: seen.state(2) == LinkState.UNREACHABLE)
            await fleets.until(lambda: "refused" in seen.last(2).reason)
            assert [seen.state(number) for number in (0, 1, 3)] == [LinkState.UP] * 3
            assert fleet.links[1].noise > 3
            assert fleet.links[1].bad == fleet.links[0].noise == 0
        assert {event.state for event in seen.events[-4:]} == {LinkState.CLOSED}


async def test_noise_stands_before_between_and_after_the_frames() -> None:
    async with start_demo(1, faults=[parse("noisy-shell:0")]) as demo, client(demo) as node:
        for _ in range(6):
            await node.frame()
        noise = b"".join(node.noise)
        for part in (b"Welcome to Ubuntu", b'{"motd"', b"\x1b]52;", b"\xff\xfe", b"trailing words", b'{"v":1}'):
            assert part in noise


async def test_a_fault_that_makes_no_sense_starts_nothing() -> None:
    with pytest.raises(FaultError):
        async with start_demo(2, faults=[parse("x8@gpu009")]):
            pass
    with pytest.raises(ValueError, match="1 to 2048"):
        async with start_demo(0):
            pass


async def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(DemoError, match="interval"):
        async with start_demo(1, interval_seconds=float("nan")):
            pass


PARENT = """
import asyncio, os, sys
from clustertop.demo.launch import start_demo
async def main():
    async with start_demo(2) as demo:
        print(demo.pid, demo.client_key.parent, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_server_never_outlives_its_parent_and_leaves_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split()
        assert alive(int(pid))
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 60.0
    while alive(int(pid)) or Path(directory).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fault", "hotgpu"], "did you mean hot-gpu?"),
        (["--fault", "x8", "gpu-lots"], "did you mean gpu-lost?"),
        (["--nodes", "0"], "1 to 2048 nodes"),
        (["--interval", "0"], "0.25 to 60 seconds"),
        (["--nodes", "2", "--fault", "x8@gpu003"], "gpu001 to gpu002"),
    ],
)
def test_the_command_says_in_one_sentence_what_is_wrong(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", *arguments]) == 3
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_help_names_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    from clustertop.demo.faults import FAULTS

    with pytest.raises(SystemExit) as caught:
        cli.main(["demo", "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in FAULTS)
