"""Runs the probe as a node would, and reads its frames as the console would."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.wire import bundle
from clustertop.wire.frame import Frame, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

NONCE = "0123456789abcdef"
VERSIONS = ("3.6", "3.8", "3.11", "3.13")
FAST = {"gpu": 0.1, "rdma": 0.1, "host": 0.1, "pcie": 0.1, "net": 0.1, "disk": 0.1, "screen": 0.1, "sockets": 0.1}


def interpreter(version: str) -> str:
    """Return a Python of that version; without one the test is skipped on a user's machine and fails in CI."""
    if sys.version_info[:2] == tuple(int(part) for part in version.split(".")):
        return sys.executable
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    path = str(found[-1]) if found else shutil.which(f"python{version}")
    if path is None:
        message = f"needs Python {version}: pyenv install {version}, or python{version} on PATH"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


class Values:
    """What frames said so far, put together as the console does: a full one anew, the others on top of it."""

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.rows: dict[str, list[str]] = {}
        self.attrs: dict[str, dict[str, dict[str, Any]]] = {}
        self.columns: dict[str, list[str]] = {}
        self.base: dict[str, dict[int, Any]] = {}
        self.now: dict[str, dict[int, Any]] = {}
        self.errors: dict[str, str] = {}
        self.tables: dict[str, set[str]] = {}
        self.facts: dict[str, Any] = {}

    def take(self, frame: Frame) -> None:
        """Apply a frame."""
        self.frame = frame
        if frame.full:
            self.rows, self.columns, self.base, self.attrs = {}, {}, {}, {}
            self.facts = dict(frame.h or {})
        old = {name for key, group in frame.g.items() if group.o for name in self.tables.get(key, ())}
        self.now = {name: self.now[name] if name in old else dict(cells) for name, cells in self.base.items()}
        self.errors = {name: words for name, words in self.errors.items() if name in old}
        for key, group in frame.g.items():
            self.tables.setdefault(key, set()).update(group.tb)
            for name, table in group.tb.items():
                cells: dict[int, Any] = {}
                at = 0
                for start, length in zip(table.i[::2], table.i[1::2], strict=True):
                    for index in range(start, start + length):
                        cells[index] = table.x[at]
                        at += 1
                assert at == len(table.x), "runs and numbers differ"
                for index, text in zip(table.j, table.s, strict=True):
                    assert text[0] in "=!"
                    cells[index] = text
                self.errors[name] = table.e
                if frame.full:
                    assert table.r is not None
                    assert table.c is not None
                    self.rows[name] = [row.k for row in table.r]
                    self.attrs[name] = {row.k: dict(row.a) for row in table.r}
                    self.columns[name] = list(table.c)
                    self.base[name] = cells
                    self.now[name] = dict(cells)
                else:
                    assert table.r is None
                    self.now[name].update(cells)

    def cell(self, table: str, row: str, column: str) -> Any:
        """Return a value, ``=text``, ``!reason``, or None where nothing was said."""
        index = self.columns[table].index(column) * len(self.rows[table]) + self.rows[table].index(row)
        return self.now[table].get(index)


def sooner(**seconds: float) -> bytes:
    """The bundle's body with other constants: a probe that waits less, where how long it waits is not what is tested.

    Args:
        seconds: ``gpu__RESTART_SECONDS``: the module of the probe, and its constant.
    """
    modules = dict(json.loads(zlib.decompress(bundle.probe_body()))["modules"])
    for name, value in seconds.items():
        module, _, constant = name.partition("__")
        where = f"{bundle.PACKAGE}.{module}"
        modules[where], count = re.subn(rf"^{constant} = .*$", f"{constant} = {value}", modules[where], flags=re.MULTILINE)
        assert count == 1, name
    return bundle.pack(modules.items())


class Run:
    """A probe started through launcher and bundle, by the shell, as on a node."""

    def __init__(self, python: str, args: Mapping[str, Any], env: Mapping[str, str] | None = None,
                 shell: Sequence[str] = ("/bin/sh",), body: bytes | None = None) -> None:
        self.process = subprocess.Popen(
            list(shell),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env or os.environ),
            bufsize=0,
        )
        self._data = b""
        self.values = Values()
        self.frames: list[Frame] = []
        self.sizes: list[int] = []
        self.send(bundle.launcher(NONCE, [python]))
        self.ready = self._await_line(b" ready ")
        self.launched = time.monotonic()
        self.send(bundle.bundle({"nonce": NONCE, "every": FAST, **args}, body))

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def request(self, **body: Any) -> None:
        self.send(bundle.request_line(body))

    def line(self, seconds: float = 60.0) -> bytes:
        """Return the next line; empty at the end of the output."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._data:
            left = until - time.monotonic()
            assert left > 0, f"no line within {seconds} s; so far {self._data[:200]!r}"
            if select.select([self.process.stdout], [], [], left)[0]:
                part = os.read(self.process.stdout.fileno(), 65536)
                if not part:
                    return b""
                self._data += part
        line, _, self._data = self._data.partition(b"\n")
        return line

    def _await_line(self, words: bytes) -> bytes:
        while True:
            line = self.line()
            assert line or self.process.poll() is None, self.stderr()
            if words in line:
                return line

    def next(self, seconds: float = 60.0) -> Frame:
        """Return the next frame, applied to ``values``."""
        while True:
            line = self.line(seconds)
            if line:
                break
            assert self.process.poll() is None, self.stderr()
        head, tail = f"@@CT1 {NONCE} ".encode(), f" {NONCE} CT1@@".encode()
        assert line.startswith(head), line[:200] + self.stderr().encode()
        assert line.endswith(tail), line[-200:]
        frame = decode(line[len(head) : -len(tail)])
        self.values.take(frame)
        self.frames.append(frame)
        self.sizes.append(len(line) + 1)
        return frame

    def until(self, holds: Callable[[Values], bool], seconds: float = 60.0) -> Values:
        """Read frames until *holds* of the values."""
        end = time.monotonic() + seconds
        while True:
            self.next()
            if holds(self.values):
                return self.values
            assert time.monotonic() < end, f"never true; last frame {self.values.frame}"

    def stderr(self) -> str:
        """Return what was written to stderr, of an ended process."""
        if self.process.poll() is None or self.process.stderr is None:
            return ""
        return self.process.stderr.read().decode(errors="replace")

    def wait(self, seconds: float = 60.0) -> int:
        """Drain the output and return the exit status."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            assert self.process.stdout is not None
            if select.select([self.process.stdout], [], [], 0.05)[0]:
                os.read(self.process.stdout.fileno(), 65536)
        return self.process.wait(timeout=240)

    def close(self) -> None:
        """End the process, whatever state it is in."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def samples() -> Path | None:
    """Return the folder of recorded samples beside the repository, where there is one."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "samples"
    return folder if folder.is_dir() else None


def named(pattern: str) -> Iterator[Path]:
    """Yield the sample files that match *pattern*."""
    folder = samples()
    if folder is not None:
        yield from sorted(folder.glob(pattern))
