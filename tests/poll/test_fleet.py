"""Fleets over real sshd: reconnects, pacing, requests, and letting go in time."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.clock import SystemClock
from clustertop.model import LinkState, NodeInfo, Request
from clustertop.poll.fleet import LOCAL_HOST, DescriptorLimitError, Fleet, raise_descriptor_limit
from clustertop.wire.ssh import Dialer, SshTransport
from clustertop.wire.transport import PollSettings
from fleets import STANDIN_BODY, Remember, until
from sshd import keygen, running

if TYPE_CHECKING:
    from pathlib import Path

sshd_test = pytest.mark.sshd


@sshd_test
async def test_killed_session_comes_back(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        sink = Remember()
        async with Fleet([server.node()], server.settings(), sink, SystemClock(), body=STANDIN_BODY):
            await until(lambda: sink.count() >= 2)
            server.kill_sessions()
            await until(lambda: LinkState.UNREACHABLE in sink.states())
            seen = sink.count()
            await until(lambda: sink.count() >= seen + 2, what=lambda: sink.events)
            assert sink.states() == [
                LinkState.CONNECTING, LinkState.UP, LinkState.UNREACHABLE, LinkState.UP,
            ]  # fmt: skip
        assert sink.state() is LinkState.CLOSED
        await until(lambda: not server.sessions())


@sshd_test
async def test_down_and_mute_nodes_hold_up_nobody(tmp_path: Path) -> None:
    with running(tmp_path, "MaxStartups 100") as server, socket.create_server(("127.0.0.1", 0)) as mute:
        settings = server.settings(connect_timeout_seconds=1.0, handshakes_at_once=4)
        nodes = [
            *(NodeInfo(f"mute{number}", "127.0.0.1", port=mute.getsockname()[1]) for number in range(10)),
            *(server.node(f"good{number}") for number in range(5)),
        ]
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock(), body=STANDIN_BODY):
            await until(
                lambda: all(sink.count(number) for number in range(10, 15)), what=lambda: sink.events
            )
            await until(lambda: all(sink.state(number) is LinkState.UNREACHABLE for number in range(10)))
            assert sink.last(0).stage == "banner"


@sshd_test
async def test_refused_login_is_not_tried_again_until_asked(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        keygen(tmp_path / "other")
        right = (tmp_path / "authorized_keys").read_text()
        (tmp_path / "authorized_keys").write_text((tmp_path / "other.pub").read_text())
        sink = Remember()
        async with Fleet([server.node()], server.settings(), sink, SystemClock(), body=STANDIN_BODY) as fleet:
            await until(lambda: sink.state() is LinkState.AUTH_FAILED)
            tries = server.log().count("Connection from")
            await asyncio.sleep(0.6)  # three times the longest back-off of these settings
            assert server.log().count("Connection from") == tries
            (tmp_path / "authorized_keys").write_text(right)
            fleet.request(Request(None, {"do": "retry"}))
            await until(lambda: sink.state() is LinkState.UP)


@sshd_test
async def test_many_targets_through_one_jump_host_stay_within_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, most, login = 0, 0, Dialer._login

    async def counted(self: Dialer, *args: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await login(self, *args)
        finally:
            under_way -= 1

    monkeypatch.setattr(Dialer, "_login", counted)
    # It learns of a login that is over a little late, on a busy machine more than that: so not just what it may have.
    with running(tmp_path / "jump", "MaxStartups 20:100:20") as jump, running(
        tmp_path / "target", "MaxStartups 20:100:20"
    ) as target:
        config = tmp_path / "config"
        config.write_text(
            f"Host gpu*\n HostName 127.0.0.1\n Port {target.port}\n IdentityFile {tmp_path / 'target/client_key'}\n"
            " ProxyJump bastion\n"
            f"Host bastion\n HostName 127.0.0.1\n Port {jump.port}\n IdentityFile {tmp_path / 'jump/client_key'}\n"
            f"Host *\n IdentitiesOnly yes\n UserKnownHostsFile {tmp_path / 'jump/known_hosts'} "
            f"{tmp_path / 'target/known_hosts'}\n"
        )
        nodes = [NodeInfo(f"gpu{number:03}") for number in range(30)]
        sink = Remember()
        settings = target.settings(ssh_config=str(config), interval_seconds=1.0)
        async with Fleet(nodes, settings, sink, SystemClock(), body=STANDIN_BODY):
            await until(lambda: all(sink.count(node) for node in range(30)), 240, what=lambda: sink.events[-5:])
            assert {event.state for event in sink.events} == {LinkState.CONNECTING, LinkState.UP}
            assert len(jump.sessions()) == 1
        assert most <= settings.handshakes_per_host == 5, most


@sshd_test
async def test_busy_server_is_busy_three_times_then_unreachable(tmp_path: Path) -> None:
    async def drop(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"Exceeded MaxStartups\r\n")
        writer.close()

    listener = await asyncio.start_server(drop, "127.0.0.1", 0)
    async with listener:
        node = NodeInfo("busy", "127.0.0.1", port=listener.sockets[0].getsockname()[1])
        (tmp_path / "config").touch()
        settings = PollSettings(
            ssh_config=str(tmp_path / "config"), agent=False, retry_min_seconds=0.01, retry_max_seconds=0.02
        )
        sink = Remember()
        async with Fleet([node], settings, sink, SystemClock()):
            await until(lambda: sink.state() is LinkState.UNREACHABLE)
        assert sink.states()[:5] == [LinkState.CONNECTING, *[LinkState.BUSY] * 3, LinkState.UNREACHABLE]


@sshd_test
async def test_frozen_nodes_are_let_go_of_all_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    marks: list[str] = []
    close = SshTransport.close

    async def marked(self: SshTransport) -> None:
        marks.append("begin")
        try:
            await close(self)
        finally:
            marks.append("end")

    with running(tmp_path, "MaxStartups 100") as server:
        sink = Remember()
        nodes = [server.node(f"node{number}") for number in range(8)]
        async with Fleet(nodes, server.settings(), sink, SystemClock(), body=STANDIN_BODY) as fleet:
            await until(lambda: all(sink.count(number) for number in range(8)))
            frozen = server.session_processes()
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            monkeypatch.setattr(SshTransport, "close", marked)
            try:
                async with asyncio.timeout(60):  # they say nothing for ever
                    await fleet.close()
            finally:
                for pid in frozen:
                    os.kill(pid, signal.SIGCONT)
            assert marks[:8] == ["begin"] * 8, "not one after the other"
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("node ")] == []


async def test_this_machine_in_a_fleet() -> None:
    sink = Remember()
    nodes = [NodeInfo("here", LOCAL_HOST)]
    async with Fleet(nodes, PollSettings(interval_seconds=0.1), sink, SystemClock(), body=STANDIN_BODY) as fleet:
        await until(lambda: sink.count() >= 2)
        fleet.request(Request(0, {"do": "fail"}))
        await until(lambda: LinkState.PROBE_FAILED in sink.states())
        await until(lambda: sink.state() is LinkState.UP, what=lambda: sink.events)


def test_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit(1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    code = (
        "import resource\n"
        "from clustertop.poll.fleet import DescriptorLimitError, raise_descriptor_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))\n"
        "raise_descriptor_limit(100, agent=False)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (228, 512)\n"
        "try:\n"
        "    raise_descriptor_limit(1000)\n"
        "except DescriptorLimitError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "1000 nodes need 2128 open files, but this process may have 512 at most" in done.stdout
    assert issubclass(DescriptorLimitError, OSError)


@sshd_test
async def test_no_more_than_one_task_for_each_node(tmp_path: Path) -> None:
    with running(tmp_path, "MaxStartups 100") as server:
        nodes = [server.node(f"node{number}") for number in range(6)]
        settings = dataclasses.replace(server.settings(), interval_seconds=0.05)
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock(), body=STANDIN_BODY):
            await until(lambda: all(sink.count(number) > 5 for number in range(6)))
            names = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("node ")]
            assert sorted(names) == sorted(f"node {node.name}" for node in nodes)
