"""Programs that tests need: skipped with what to install on a user's machine, failed in CI."""

from __future__ import annotations

import os
import shutil

import pytest


def need(program: str, package: str = "") -> str:
    """Return the path of *program*; where there is none, skip the test, or fail it where CI is set."""
    path = shutil.which(program)
    if path is not None:
        return path
    message = f"install {package or program}"
    if os.environ.get("CI"):
        pytest.fail(f"{message}: nothing is skipped in CI")
    pytest.skip(message)
