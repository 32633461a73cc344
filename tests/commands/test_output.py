"""What a command prints arrives whole, or the command says that it did not; and a signal ends it whatever it waits for."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bmc.server import PASSWORD, USER, Certificates, RedfishServer, node_tree
from clustertop import cli
from clustertop.commands import console

if TYPE_CHECKING:
    from pathlib import Path

_STUCK = """
import asyncio, sys
from clustertop.commands import ending, output

async def main():
    print("waits", file=sys.stderr)
    print("x" * 100_000)

try:
    with output.whole():
        asyncio.run(ending.orderly(main()))
except output.OutputError as error:
    sys.exit(error.status)
"""
_IGNORED = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"


def started(*arguments: str, out: int, python: tuple[str, ...] = ("-m", "clustertop"), **environ: str
            ) -> subprocess.Popen[bytes]:
    """A command whose output goes to *out*; its configuration is nobody's."""
    env = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent", **environ}
    return subprocess.Popen(
        [sys.executable, *python, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, env=env)


def drained(pipe: int) -> bytes:
    """All that comes, read slowly."""
    told = b""
    while part := os.read(pipe, 5000):
        told += part
        time.sleep(0.001)
    return told


def _room(pipe: int) -> bool:
    """Whether *pipe*, the end to write, takes more."""
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    return bool(poll.poll(0))


def until_full(pipe: int) -> None:
    """Wait until whoever writes to *pipe* has to wait."""
    for _ in range(600):
        if not _room(pipe):
            return
        time.sleep(0.05)
    raise AssertionError("nothing filled the pipe")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_does_not_block_and_a_slow_reader_lose_nothing(unbuffered: str) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    child = started("rules", "--json", out=write, PYTHONUNBUFFERED=unbuffered)
    until_full(write)
    os.close(write)
    told = drained(read)
    os.close(read)
    assert (child.wait(60), child.communicate()[1]) == (0, b"")
    assert len(told) > 65536
    assert json.loads(told)["rules"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_that_was_stopped_and_continued_loses_nothing(unbuffered: str) -> None:
    read, write = os.pipe()
    child = started("rules", "--json", out=write, PYTHONUNBUFFERED=unbuffered)
    until_full(write)
    os.close(write)
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    child.send_signal(signal.SIGCONT)
    told = drained(read)
    os.close(read)
    assert (child.wait(60), child.communicate()[1]) == (0, b"")
    assert json.loads(told)["rules"]


@pytest.mark.parametrize("arguments", [("rules", "--json"), ("config", "check"), ("--help",), ("probe", "--once")],
                         ids=" ".join)
class TestOutputThatCannotBeWritten:
    def test_a_full_disk_is_one_sentence(self, arguments: tuple[str, ...]) -> None:
        with open("/dev/full", "w") as disk:  # noqa: PTH123 - a device
            child = started(*arguments, out=disk.fileno())
        assert child.communicate(timeout=60)[1] == (
            b"clustertop: the output cannot be written: No space left on device\n")
        assert child.returncode == 3

    def test_a_reader_that_is_gone_is_no_word(self, arguments: tuple[str, ...]) -> None:
        read, write = os.pipe()
        os.close(read)
        child = started(*arguments, out=write)
        os.close(write)
        assert (child.communicate(timeout=60)[1], child.returncode) == (b"", 128 + signal.SIGPIPE)


def sh(line: str) -> subprocess.CompletedProcess[str]:
    """*line* in a shell; ``$CT`` is the command."""
    return subprocess.run(
        ["/bin/sh", "-c", line.replace("$CT", f"{sys.executable} -m clustertop")], capture_output=True, text=True,
        timeout=60, check=False, stdin=subprocess.DEVNULL, env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"})


class TestClosedDescriptors:
    def test_without_an_output_the_loop_does_not_die_of_it(self) -> None:
        done = sh("$CT once --json >&-")
        assert (done.returncode, done.stderr) == (
            3, "clustertop: the output cannot be written: Bad file descriptor\n")

    def test_notes_that_nobody_takes_do_not_get_into_the_output(self, tmp_path: Path) -> None:
        config = tmp_path / "config.toml"
        config.write_text('[inventory]\nnodes = "n1,n1"\n', encoding="utf-8")
        assert "note: " in sh(f"$CT rules -c {config} --json").stderr
        for closed in ("2>/dev/full", "<&- 2>&-"):
            done = sh(f"$CT rules -c {config} --json {closed}")
            assert (done.returncode, done.stderr) == (0, "")
            assert json.loads(done.stdout)["nodes"] == 1


@pytest.mark.parametrize(("arguments", "words"), [
    (("rules", "--state", "/dev/null"), "--state /dev/null: is no regular file; name one, or none to keep nothing"),
    (("rules", "--hosts-file", "/dev/zero"), "/dev/zero: the hosts file cannot be read: File too large"),
    (("topology", "--order", "/dev/zero"), "/dev/zero: cannot be read: File too large"),
], ids=str)
def test_what_is_no_such_file_is_one_sentence(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    assert (cli.main(arguments), capsys.readouterr().err) == (3, f"clustertop: {words}\n")


@pytest.mark.parametrize("arguments", [(), ("demo", "--nodes", "1")], ids=str)
def test_a_console_whose_recording_cannot_be_begun_says_so(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    monkeypatch.setattr(console, "no_terminal", lambda: False)
    assert cli.main([*arguments, "--record", "/nonexistent/x"]) == 3
    assert capsys.readouterr().err == "clustertop: /nonexistent/x cannot be written: No such file or directory\n"


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_reader_that_does_not_read_holds_nothing(self, number: signal.Signals) -> None:
        read, write = os.pipe()
        child = started(out=write, python=("-c", _STUCK))
        until_full(write)
        child.send_signal(number)
        assert child.communicate(timeout=60)[1] == b"waits\n"
        assert child.returncode == 128 + number
        os.close(read)
        os.close(write)

    def test_nohup_holds(self) -> None:
        child = started("watch", "--for", "3", out=subprocess.DEVNULL,
                        python=("-c", _IGNORED, sys.executable, "-m", "clustertop"))
        assert child.stderr is not None
        assert child.stderr.readline().startswith(b"clustertop: watching ")
        time.sleep(1)
        child.send_signal(signal.SIGHUP)
        child.communicate(timeout=60)
        assert child.returncode == 0

    def test_a_pass_that_is_ended_gives_back_the_session_of_a_bmc(self, tmp_path: Path) -> None:
        server = RedfishServer(node_tree(), Certificates.make(tmp_path))
        with socket.create_server(("127.0.0.1", 0)) as silent:  # a node for which the pass waits
            config = tmp_path / "config.toml"
            config.write_text(
                f'[inventory]\nnodes = "n1"\n[host.n1]\nhost = "127.0.0.1"\nport = {silent.getsockname()[1]}\n'
                f'[bmcs.n1]\nhost = "127.0.0.1"\nport = {server.url.rpartition(":")[2].strip("/")}\nuser = "{USER}"\n'
                f'password = "env:CT_TEST_BMC"\nca_file = "{server.certificates.ca_file}"\n', encoding="utf-8")
            child = started("once", "-c", str(config), "--timeout", "120", out=subprocess.DEVNULL, CT_TEST_BMC=PASSWORD)
            try:
                for _ in range(600):
                    if server.sessions:
                        break
                    time.sleep(0.1)
                assert server.sessions
                child.send_signal(signal.SIGTERM)
                child.communicate(timeout=60)
                assert (child.returncode, server.sessions) == (128 + signal.SIGTERM, {})
            finally:
                child.kill()
                server.close()
