"""Fixtures of the probe's tests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import nvml_lib
from probe.harness import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled test NVML."""
    return nvml_lib.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def start() -> Iterator[Callable[..., Run]]:
    """Start probes; all are ended with the test."""
    runs: list[Run] = []

    def begin(python: str = sys.executable, env: dict[str, str] | None = None, body: bytes | None = None, **args: Any) -> Run:
        runs.append(Run(python, args, env, body=body))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()
