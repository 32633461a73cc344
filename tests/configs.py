"""Configuration files for tests, and the command line as an operator runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, text: str) -> Path:
    """A configuration file of *text* in *folder*."""
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def clustertop(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run clustertop; its configuration is nobody's."""
    return subprocess.run(
        [sys.executable, "-m", "clustertop.cli", *args], capture_output=True, text=True, timeout=240, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent", **environ})
