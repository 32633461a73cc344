"""Commands over a real sshd: quoting, deadlines, bounds, and every way to fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustertop.model import LinkState, NodeInfo
from clustertop.wire.ssh import Dialer
from clustertop.wire.ssh.run import PATH, SshRunner
from ports import free_port
from sshd import Sshd, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd


@pytest.fixture
async def runner(server: Sshd) -> AsyncIterator[SshRunner]:
    dialer = Dialer(server.settings())
    one = SshRunner(server.node(), dialer)
    try:
        yield one
    finally:
        await one.aclose()
        await dialer.close()


def running_with(mark: str) -> list[int]:
    """Processes that have *mark* among their arguments, exactly."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


async def gone(mark: str) -> bool:
    for _ in range(400):
        if not running_with(mark):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_arguments_reach_the_command_as_they_are(runner: SshRunner) -> None:
    odd = ["a b", "$HOME", "`id`", "'; touch /tmp/never; '", "*", "", "ü\n", "-n"]
    ran = await runner.run(["printf", "<%s>", *odd], 20)
    assert (ran.out.decode(), ran.err, ran.status, ran.why) == ("".join(f"<{one}>" for one in odd), b"", 0, "")
    assert runner.failure is None


async def test_status_and_both_outputs_and_one_connection_for_all(runner: SshRunner, server: Sshd) -> None:
    before = set(server.sessions())
    for status in (0, 3):
        ran = await runner.run(["sh", "-c", f"echo out; echo err >&2; exit {status}"], 20)
        assert (ran.out, ran.err, ran.status, ran.cut) == (b"out\n", b"err\n", status, False)
    assert len(set(server.sessions()) - before) == 1


async def test_there_is_no_input(runner: SshRunner) -> None:
    assert (await runner.run(["wc", "-c"], 20)).out.strip() == b"0"


async def test_commands_of_the_administrator_are_found(runner: SshRunner) -> None:
    assert (await runner.run(["printenv", "PATH"], 20)).out.decode().strip() == PATH


async def test_a_command_that_is_not_there(runner: SshRunner) -> None:
    ran = await runner.run(["ibnetdiscover-of-nowhere"], 20)
    assert ran.status is None
    assert ran.why.startswith("ibnetdiscover-of-nowhere cannot be run: ")
    assert runner.failure is None


async def test_a_command_is_ended_at_its_deadline_and_what_it_printed_is_kept(runner: SshRunner) -> None:
    mark = "612.0625"
    ran = await runner.run(["sh", "-c", f"trap '' TERM; echo begun; sleep {mark}; sleep {mark}"], 1)
    assert (ran.out, ran.status, ran.why) == (b"begun\n", None, "stopped after 1 s")
    assert (await runner.run(["true"], 20)).status == 0
    assert await gone(mark)


async def test_a_command_whose_asker_is_stopped_ends_at_its_deadline_at_last(runner: SshRunner) -> None:
    mark = "613.0625"
    task = asyncio.create_task(runner.run(["sleep", mark], 3))
    for _ in range(500):
        if running_with(mark):
            break
        await asyncio.sleep(0.02)
    assert running_with(mark)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(mark)
    assert (await runner.run(["true"], 20)).status == 0


async def test_output_beyond_the_limit_is_cut_and_said(runner: SshRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustertop.wire.ssh.run.MAX_OUTPUT", 1000)
    ran = await runner.run(["head", "-c", "3000000", "/dev/zero"], 30)
    assert (len(ran.out), ran.cut, ran.status) == (1000, True, 0)


async def test_a_lost_connection_is_said_and_the_next_command_makes_a_new_one(runner: SshRunner, server: Sshd) -> None:
    await runner.run(["true"], 20)
    task = asyncio.create_task(runner.run(["sleep", "5.03125"], 20))
    for _ in range(500):
        if running_with("5.03125"):
            break
        await asyncio.sleep(0.02)
    server.kill_sessions()
    ran = await task
    assert ran.why.startswith("connection lost")
    assert runner.failure is not None
    assert runner.failure.state is LinkState.UNREACHABLE
    assert (await runner.run(["true"], 20)).status == 0
    assert runner.failure is None


async def test_a_host_that_cannot_be_reached_is_a_sentence(server: Sshd) -> None:
    dialer = Dialer(server.settings())
    runner = SshRunner(NodeInfo("away", "127.0.0.1", port=free_port()), dialer)
    ran = await runner.run(["true"], 20)
    await dialer.close()
    assert "Connection refused" in ran.why
    assert runner.failure is not None
    assert (runner.failure.state, runner.failure.stage) == (LinkState.UNREACHABLE, "tcp")
