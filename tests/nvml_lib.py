"""An NVML for tests: ``tests/nvml/nvml.c`` compiled with ``cc``, and the scenario files that drive it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nvml" / "nvml.c"
VARIABLE = "CLUSTERTOP_TEST_NVML"
"""The environment variable that names the scenario file to the library."""


def build(directory: Path) -> Path:
    """Return the library, compiled into *directory* unless it is there already.

    Where there is no C compiler, the test is skipped on a user's machine and fails in CI.
    """
    library = directory / "libnvidia-ml.so.1"
    if library.exists():
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        message = "needs a C compiler: install gcc or clang (cc)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / f"nvml.{os.getpid()}.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(part), str(SOURCE)]
    done = subprocess.run([*command, "-lpthread"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    part.replace(library)
    return library


class Scenario:
    """A scenario file; each change replaces the file, and the library sees it at its next call."""

    def __init__(self, path: Path, *lines: str) -> None:
        self.path = path
        self.lines: list[str] = []
        self.write(*lines)

    def write(self, *lines: str) -> None:
        """Make *lines* the scenario."""
        self.lines = list(lines)
        part = self.path.with_suffix(".part")
        part.write_text("\n".join(lines) + "\n")
        part.replace(self.path)

    def add(self, *lines: str) -> None:
        """Add *lines*; later lines win."""
        self.write(*self.lines, *lines)

    def drop(self, line: str) -> None:
        """Take *line* away."""
        self.write(*[one for one in self.lines if one != line])

    def env(self) -> dict[str, str]:
        """Return the environment of a process that is to load the library."""
        return {**os.environ, VARIABLE: str(self.path)}

    def calls(self) -> dict[str, int]:
        """Return the number of calls by function, as of the last listing (needs the line ``count_calls 1``)."""
        text = Path(f"{self.path}.calls").read_text()
        return {name: int(count) for name, count in (line.split() for line in text.splitlines())}
