"""The terminal is given back whatever ends the console, and the process ends soon."""

from __future__ import annotations

import fcntl
import inspect
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustertop.tui import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parents[1]
MUST = ("\x1b[?1000l", "\x1b[?1002l", "\x1b[?1003l", "\x1b[?1006l", "\x1b[?1015l", "\x1b[?2004l", "\x1b[?1004l",
        "\x1b[?1049l", "\x1b[?25h")


class Child:
    """The console on a pseudo-terminal."""

    def __init__(self, fault: str = "") -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "tui" / "console_child.py"), fault], stdin=slave, stdout=slave, stderr=slave,
            env=environment, start_new_session=True)
        self.slave = slave
        self.out = b""

    def read(self, seconds: float) -> bool:
        """Read what there is for at most *seconds*; False at the end."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.master, 65536)
        except OSError:
            return False
        self.out += piece
        return bool(piece)

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        """Read until *text* was drawn."""
        end = time.monotonic() + seconds
        while text.encode() not in self.out:
            assert time.monotonic() < end, self.out[-2000:]
            assert self.process.poll() is None, self.out[-2000:]
            self.read(0.1)

    def ended(self, seconds: float = 60.0) -> int:
        """Read until the process ends; returns its status."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, "still running"
            self.read(0.05)
        while select.select([self.master], [], [], 0)[0] and self.read(0):
            pass
        return int(self.process.returncode)

    def close(self) -> None:
        """End what is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for fd in (self.slave, self.master):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    """A console on a pseudo-terminal, drawn."""
    made = Child(getattr(request, "param", ""))
    yield made
    made.close()


def _restored(child: Child) -> None:
    text = child.out.decode("utf-8", "replace")
    on, off = text.rfind("\x1b[?1049h"), text.rfind("\x1b[?1049l")
    assert -1 < on < off
    for code in MUST:
        assert code in text, repr(code)
        assert text.rfind(code) >= text.rfind(code.replace("l", "h") if code.endswith("l") else code), repr(code)
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    after = termios.tcgetattr(child.slave)
    assert after[3] & termios.ICANON
    assert after[3] & termios.ECHO
    assert after[:4] == child.before[:4]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_it_and_gives_the_terminal_back(
    child: Child, number: signal.Signals, status: int
) -> None:
    child.wait_for("gpu-004")
    child.process.send_signal(number)
    assert child.ended() == status
    _restored(child)


@pytest.mark.parametrize("child", ["stuck"], indirect=True)
def test_a_signal_ends_it_also_where_its_own_end_never_comes(child: Child) -> None:
    assert terminal.GRACE_SECONDS < 2.0
    child.wait_for("gpu-004")
    child.process.send_signal(signal.SIGTERM)
    assert child.ended() == 143
    _restored(child)


@pytest.mark.parametrize("child", ["render", "callback", "worker"], indirect=True)
def test_an_error_inside_gives_the_terminal_back(child: Child) -> None:
    child.wait_for("gpu-004")
    child.process.send_signal(signal.SIGUSR1)
    assert child.ended() != 0
    _restored(child)
    said = child.out[child.out.rfind(b"\x1b[?1049l"):].decode()
    assert "a fault in" in said
    assert "in go_wrong" in said or "in broken" in said, "where"
    assert "fault of its own" in said
    assert len(said) < 20_000, "no values of variables"


def test_q_leaves_with_status_0(child: Child) -> None:
    child.wait_for("gpu-004")
    os.write(child.master, b"q")
    assert child.ended() == 0
    _restored(child)


def test_a_terminal_that_goes_away_ends_it(child: Child) -> None:
    child.wait_for("gpu-004")
    os.close(child.slave)
    os.close(child.master)
    child.slave = child.master = -1
    assert child.process.wait(60) != 0


def test_a_thread_that_still_reads_keys_is_ended() -> None:
    class Driver:
        """As Textual's, when the app has ended without stopping it."""

        def __init__(self) -> None:
            self.exit_event = threading.Event()
            self._key_thread = threading.Thread(target=self.read, daemon=True)
            self._key_thread.start()

        def read(self) -> None:
            while not self.exit_event.wait(0.01):
                pass

    driver = Driver()
    terminal.end_input(driver)
    assert not driver._key_thread.is_alive()
    terminal.end_input(driver)
    terminal.end_input(None)


def test_the_driver_has_what_is_ended_there() -> None:
    from textual.drivers.linux_driver import LinuxDriver

    source = inspect.getsource(LinuxDriver)
    assert "self._key_thread = Thread(" in source
    assert "while not self.exit_event.is_set()" in source
