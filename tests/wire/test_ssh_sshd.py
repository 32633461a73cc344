"""The SSH transport against a real OpenSSH sshd: logins, shells, host keys, and every way to fail."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from clustertop.model import LinkState, NodeInfo
from clustertop.wire.frame import decode
from clustertop.wire.ssh import Dialer, SshTransport
from clustertop.wire.transport import LinkFailure, PollSettings
from fleets import STANDIN_BODY, Remember, pack_probe, until
from ports import free_port
from sshd import Sshd, keygen, running
from tools import need

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with running(tmp_path_factory.mktemp("sshd"), "MaxStartups 100") as sshd:
        yield sshd


class Opened:
    """A transport with its dialer and what it delivered."""

    def __init__(self, node: NodeInfo, settings: PollSettings, **more: object) -> None:
        self.dialer = Dialer(settings)
        self.got = Remember()
        more.setdefault("body", STANDIN_BODY)
        self.transport = SshTransport(node, self.dialer, self.got, **more)  # type: ignore[arg-type]

    async def __aenter__(self) -> Opened:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.transport.close()
        await self.dialer.close()

    async def fails(self) -> LinkFailure:
        """Open it, expect a failure, return it."""
        with pytest.raises(LinkFailure) as caught:
            await self.transport.open()
        return caught.value


@pytest.fixture
async def good(server: Sshd) -> AsyncIterator[Opened]:
    async with Opened(server.node(), server.settings()) as opened:
        yield opened


async def test_frames_arrive_and_requests_reach_the_probe(good: Opened) -> None:
    await good.transport.open()
    await until(lambda: len(good.got.payloads) >= 2)
    assert [decode(payload).full for payload in good.got.payloads[:2]] == [True, False]
    good.transport.send({"do": "full"})
    await until(lambda: decode(good.got.payloads[-1]).full)
    good.transport.send({"do": "stop"})
    failure = await good.transport.wait_closed()
    assert (failure.state, failure.stage) == (LinkState.PROBE_FAILED, "frames")
    assert failure.reason == "the probe ended (exit status 0)"


async def test_a_probe_that_fails_says_why_and_the_connection_is_used_again(good: Opened, server: Sshd) -> None:
    await good.transport.open()
    await until(lambda: good.got.payloads)
    sessions = server.sessions()
    good.transport.send({"do": "fail"})
    failure = await good.transport.wait_closed()
    assert failure.state is LinkState.PROBE_FAILED
    assert failure.reason == "the probe ended: ValueError: ]0;no such thing"
    await good.transport.open()
    assert server.sessions() == sessions
    good.got.payloads.clear()
    await until(lambda: good.got.payloads)


async def test_the_real_probe(server: Sshd) -> None:
    pytest.importorskip("clustertop.probe.loop")
    async with Opened(server.node(), server.settings(), body=None) as opened:
        await opened.transport.open()
        await until(lambda: len(opened.got.payloads) >= 3, what=lambda: opened.got.noises)
        frame = decode(opened.got.payloads[0])
        assert frame.full
        assert {"gpu", "pcie", "rdma", "host"} <= set(frame.g)
        assert not opened.got.noises


async def test_end_of_the_connection_ends_the_probe_on_the_node(good: Opened, tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    probe = f"""
import os
def main(args):
    open({str(marker)!r}, "w").close()
    os.read(0, 1)
    os.unlink({str(marker)!r})
"""
    async with Opened(good.transport._node, good.dialer.settings, body=pack_probe(probe)) as opened:
        await opened.transport.open()
        await until(marker.exists)
    await until(lambda: not marker.exists())


SHELLS = ["bash", "dash", "tcsh", "fish", "zsh", "ksh", "sh"]


@pytest.mark.parametrize("shell", SHELLS)
async def test_login_shells_and_noisy_start_up(shell: str, tmp_path: Path) -> None:
    path = need(shell)
    # What sshd does for a user with this login shell, with a start-up file that prints, unterminated at the end.
    forced = tmp_path / "forced"
    forced.write_text(
        "#!/bin/sh\nprintf 'welcome!\\n{\"note\":1}\\n\\033]0;title\\007quota 83 %%'\n"
        f'exec {path} -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    forced.chmod(0o755)
    with running(tmp_path / "sshd", forced=str(forced)) as server:
        async with Opened(server.node(), server.settings()) as opened:
            await opened.transport.open()
            await until(lambda: len(opened.got.payloads) >= 2)
            assert [decode(payload).q for payload in opened.got.payloads[:2]] == [1, 2]
            assert len(opened.got.noises) == 3


async def test_unknown_host_key(server: Sshd, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.touch()
    settings = server.settings(known_hosts=str(empty))
    printed = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(server.folder / "host_key.pub")], capture_output=True, text=True, check=True
    )
    async with Opened(server.node(), settings) as opened:
        failure = await opened.fails()
        assert (failure.state, failure.stage) == (LinkState.HOST_KEY_UNKNOWN, "kex")
        assert printed.stdout.split()[1] in failure.reason
        command = failure.reason.partition("accept it: ")[2]
        assert command == (
            f"ssh -F {settings.ssh_config} -o UserKnownHostsFile={empty} -p {server.port} {server.node().user}@127.0.0.1 true"
        )
        # The command does what the message says, and the very same transport then gets through.
        subprocess.run([*command.split()[:-2], "-o", "StrictHostKeyChecking=accept-new", *command.split()[-2:]], check=True)
        await opened.transport.open()


async def test_changed_host_key(server: Sshd, tmp_path: Path) -> None:
    keygen(tmp_path / "other")
    kind, key = (tmp_path / "other.pub").read_text().split()[:2]
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    async with Opened(server.node(), server.settings(known_hosts=str(known))) as opened:
        failure = await opened.fails()
        assert (failure.state, failure.stage) == (LinkState.HOST_KEY_CHANGED, "kex")
        assert "HOST KEY CHANGED" in failure.reason
        assert "SHA256:" in failure.reason
    # The key of the same host on another port differs: that makes this one unknown, not changed.
    known.write_text(f"127.0.0.1 {kind} {key}\n")
    async with Opened(server.node(), server.settings(known_hosts=str(known))) as opened:
        assert (await opened.fails()).state is LinkState.HOST_KEY_UNKNOWN


async def test_known_hosts_with_a_broken_line_and_hashed_names(server: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("what?\n" + (server.folder / "known_hosts").read_text())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known)], check=False, capture_output=True)
    async with Opened(server.node(), server.settings(known_hosts=str(known))) as opened:
        await opened.transport.open()


async def test_checking_can_be_switched_off_only_by_its_setting(server: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n IdentityFile {server.folder / 'client_key'}\n UserKnownHostsFile none\n"
        " GlobalKnownHostsFile none\n StrictHostKeyChecking no\n"
    )
    async with Opened(server.node(), server.settings(ssh_config=str(config))) as opened:
        assert (await opened.fails()).state is LinkState.HOST_KEY_UNKNOWN
    async with Opened(server.node(), server.settings(ssh_config=str(config), check_host_keys=False)) as opened:
        await opened.transport.open()


async def test_wrong_key(server: Sshd, tmp_path: Path) -> None:
    keygen(tmp_path / "wrong")
    async with Opened(server.node(), server.settings(client_keys=(str(tmp_path / "wrong"),))) as opened:
        failure = await opened.fails()
    assert (failure.state, failure.stage) == (LinkState.AUTH_FAILED, "login")
    assert "permission denied" in failure.reason


async def test_too_many_keys(server: Sshd, tmp_path: Path) -> None:
    names = tuple(str(tmp_path / f"key{number}") for number in range(8))
    for name in names:
        keygen(tmp_path / name)
    async with Opened(server.node(), server.settings(client_keys=names)) as opened:
        failure = await opened.fails()
    assert failure.state is LinkState.AUTH_FAILED
    assert "too many keys offered (8)" in failure.reason


async def test_agent_with_many_keys(server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight keys in the agent, none named: too many. The right one named with IdentitiesOnly: it works."""
    sock = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(sock)], stdout=subprocess.DEVNULL)
    try:
        await until(sock.exists)
        environment = {**os.environ, "SSH_AUTH_SOCK": str(sock)}
        for number in range(7):
            keygen(tmp_path / f"key{number}")
        keys = [*(str(tmp_path / f"key{number}") for number in range(7)), str(server.folder / "client_key")]
        subprocess.run(["ssh-add", "-q", *keys], env=environment, check=True, stderr=subprocess.DEVNULL)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        known = f"UserKnownHostsFile {server.folder / 'known_hosts'}\n"
        config = tmp_path / "config"
        config.write_text(f"Host *\n {known}")
        async with Opened(server.node(), server.settings(ssh_config=str(config), agent=True)) as opened:
            failure = await opened.fails()
            assert failure.state is LinkState.AUTH_FAILED
            assert "too many keys offered (8" in failure.reason
        only = f" IdentitiesOnly yes\n IdentityFile {tmp_path / 'right.pub'}\n"
        shutil.copy(server.folder / "client_key.pub", tmp_path / "right.pub")
        config.write_text(f"Host *\n {known}{only}")
        async with Opened(server.node(), server.settings(ssh_config=str(config), agent=True)) as opened:
            await opened.transport.open()
    finally:
        agent.terminate()
        agent.wait(60)


async def test_agent_that_is_gone_does_not_matter(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nonexistent/agent")
    async with Opened(server.node(), server.settings(agent=True)) as opened:
        await opened.transport.open()


async def test_no_python(server: Sshd) -> None:
    # The shell itself answers then: tests/shprobe.
    async with Opened(server.node(), server.settings(), candidates=("python9", "/nonexistent/*/python3")) as opened:
        await opened.transport.open()
        await until(lambda: opened.got.payloads)
        assert (decode(opened.got.payloads[0]).h or {})["probe"] == "sh"


async def test_a_python_that_is_too_old_or_broken_is_passed_over(server: Sshd, tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    async with Opened(server.node(), server.settings(), candidates=(str(old), "python3")) as opened:
        await opened.transport.open()
    async with Opened(server.node(), server.settings(), candidates=(str(old),)) as opened:
        await opened.transport.open()
        await until(lambda: opened.got.payloads)
        assert "python" not in (decode(opened.got.payloads[0]).h or {})


async def test_a_bundle_that_does_not_run_says_so(server: Sshd) -> None:
    for source, words in (
        ("def main(args:\n", "SyntaxError"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import os\ndef main(args):\n    os.write(2, b'x' * 9999 + b'\\n\\033[31mlost the \\xff GPU\\n'); os._exit(3)\n", "(exit status 3): xxx"),
        ("import os\ndef main(args):\n    os.write(2, b'\\033[31mlost \\xff GPU\\n'); os._exit(3)\n", "(exit status 3): [31mlost � GPU"),
    ):
        async with Opened(server.node(), server.settings(), body=pack_probe(source)) as opened:
            await opened.transport.open()
            failure = await opened.transport.wait_closed()
            assert failure.state is LinkState.PROBE_FAILED
            assert words in failure.reason
            assert failure.reason.isprintable()


async def test_dead_port(server: Sshd) -> None:
    node = NodeInfo("gone", "127.0.0.1", port=free_port())
    async with Opened(node, server.settings()) as opened:
        failure = await opened.fails()
    assert (failure.state, failure.stage) == (LinkState.UNREACHABLE, "tcp")
    assert "refused" in failure.reason.lower()


async def test_name_that_is_not_known(server: Sshd) -> None:
    async with Opened(NodeInfo("no-such-host.invalid"), server.settings()) as opened:
        failure = await opened.fails()
    assert (failure.state, failure.stage) == (LinkState.UNREACHABLE, "name")
    assert "no-such-host.invalid" in failure.reason


async def test_a_listener_that_says_nothing_meets_the_deadline(server: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = NodeInfo("mute", "127.0.0.1", port=listener.getsockname()[1])
        async with Opened(node, server.settings(connect_timeout_seconds=0.5)) as opened:
            failure = await opened.fails()
    assert (failure.state, failure.stage) == (LinkState.UNREACHABLE, "banner")
    assert failure.reason.startswith("connect timeout")


@pytest.mark.parametrize("line", [b"", b"Exceeded MaxStartups\r\n"])
async def test_dropped_before_login_is_busy(server: Sshd, line: bytes) -> None:
    async def drop(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line)
        writer.close()

    listener = await asyncio.start_server(drop, "127.0.0.1", 0)
    async with listener:
        node = NodeInfo("busy", "127.0.0.1", port=listener.sockets[0].getsockname()[1])
        async with Opened(node, server.settings()) as opened:
            failure = await opened.fails()
    assert (failure.state, failure.stage) == (LinkState.BUSY, "banner")


async def test_shell_that_never_answers_meets_the_deadline(tmp_path: Path) -> None:
    with running(tmp_path, forced="sleep 60") as server:
        async with Opened(server.node(), server.settings(start_timeout_seconds=1.0)) as opened:
            failure = await opened.fails()
            assert (failure.state, failure.stage) == (LinkState.PROBE_FAILED, "probe")
            assert failure.reason.startswith("start timeout")


async def test_shell_that_ends_at_once(tmp_path: Path) -> None:
    with running(tmp_path, forced="echo 'This account is not available' >&2; exit 1") as server:
        async with Opened(server.node(), server.settings()) as opened:
            failure = await opened.fails()
    assert (failure.state, failure.stage) == (LinkState.PROBE_FAILED, "probe")
    assert failure.reason.endswith("(exit status 1): This account is not available")


async def test_no_session_allowed_keeps_the_connection(tmp_path: Path) -> None:
    with running(tmp_path, "MaxSessions 0") as server:
        async with Opened(server.node(), server.settings()) as opened:
            failure = await opened.fails()
            assert (failure.state, failure.stage) == (LinkState.PROBE_FAILED, "channel")
            sessions = server.sessions()
            assert (await opened.fails()).stage == "channel"
            assert server.sessions() == sessions


async def test_one_session_is_enough(tmp_path: Path) -> None:
    with running(tmp_path, "MaxSessions 1") as server:
        async with Opened(server.node(), server.settings()) as opened:
            await opened.transport.open()
            await until(lambda: opened.got.payloads)
            sessions = server.sessions()
            opened.transport.send({"do": "stop"})
            await opened.transport.wait_closed()
            async with asyncio.timeout(60):
                while True:
                    try:
                        await opened.transport.open()
                        break
                    except LinkFailure as failure:
                        # sshd may not have noticed yet that the first session is over.
                        assert failure.stage == "channel"
                        await asyncio.sleep(0.05)
            assert server.sessions() == sessions


async def test_killed_connection_is_lost_not_failed(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Opened(server.node(), server.settings()) as opened:
            await opened.transport.open()
            await until(lambda: opened.got.payloads)
            server.kill_sessions()
            failure = await opened.transport.wait_closed()
            assert (failure.state, failure.stage) == (LinkState.UNREACHABLE, "frames")
            assert "connection lost" in failure.reason
            await opened.transport.open()


async def test_frozen_server_is_noticed_by_keepalive(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        settings = server.settings(keepalive_seconds=0.5, keepalive_count=3)
        async with Opened(server.node(), settings) as opened:
            await opened.transport.open()
            await until(lambda: opened.got.payloads)
            children = server.session_processes()
            for pid in children:
                os.kill(pid, signal.SIGSTOP)
            try:
                failure = await asyncio.wait_for(opened.transport.wait_closed(), 60)
            finally:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
            assert failure.state is LinkState.UNREACHABLE
            assert "keepalive" in failure.reason


async def test_host_alias_port_user_and_jump_from_the_ssh_configuration(server: Sshd, tmp_path: Path) -> None:
    with running(tmp_path / "jump", "MaxStartups 100") as jump:
        config = tmp_path / "config"
        both = f"{server.folder / 'known_hosts'} {jump.folder / 'known_hosts'}"
        config.write_text(
            f"Host gpu*\n HostName 127.0.0.1\n Port {server.port}\n User {server.node().user}\n"
            f" IdentityFile {server.folder / 'client_key'}\n ProxyJump bastion\n"
            f"Host bastion\n HostName 127.0.0.1\n Port {jump.port}\n IdentityFile {jump.folder / 'client_key'}\n"
            f"Host *\n UserKnownHostsFile {both}\n IdentitiesOnly yes\n"
        )
        settings = server.settings(ssh_config=str(config))
        dialer = Dialer(settings)
        got = [Remember() for _ in range(12)]
        fleet = [
            SshTransport(NodeInfo(f"gpu{number}"), dialer, got[number], body=STANDIN_BODY) for number in range(12)
        ]
        await asyncio.gather(*(transport.open() for transport in fleet))
        await until(lambda: all(one.payloads for one in got))
        assert len(jump.sessions()) == 1, "all nodes share the jump host's connection"
        assert {transport.via for transport in fleet} == {"bastion"}
        await fleet[0].close()
        seen = len(got[1].payloads)
        await until(lambda: len(got[1].payloads) > seen)
        jump.kill_sessions()
        failure = await fleet[1].wait_closed()
        assert failure.state is LinkState.UNREACHABLE
        await fleet[1].open()
        assert len(jump.sessions()) == 1
        await asyncio.gather(*(transport.close() for transport in fleet))
        await dialer.close()
        await until(lambda: not jump.sessions())


async def test_jump_host_in_trouble_says_which(server: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host bastion\n HostName 127.0.0.1\n Port {free_port()}\n"
        f"Host loop\n ProxyJump loop\n"
        "Match host gpu1\n ProxyJump bastion\n"
    )
    for name, words in (("gpu1", "jump host bastion: "), ("loop", "configured to be reached through itself")):
        async with Opened(NodeInfo(name), server.settings(ssh_config=str(config))) as opened:
            failure = await opened.fails()
            assert failure.state is LinkState.UNREACHABLE
            assert words in failure.reason
            assert opened.transport.via == {"gpu1": "bastion"}.get(name, name), "H6 b): the console knows by which way"


async def test_bad_ssh_configuration_names_file_and_line(server: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n Port many\n")
    async with Opened(NodeInfo("gpu1"), server.settings(ssh_config=str(config))) as opened:
        failure = await opened.fails()
    assert f"{config} line 2" in failure.reason
