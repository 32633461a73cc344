from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pdus import OURS, SAMPLES, Snmpsim, snmpsim

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snmpsim]:
    """One agent for all recordings: ours, and those beside the checkout where they are."""
    with snmpsim({"": OURS, "shared-": SAMPLES}, tmp_path_factory.mktemp("snmpsim")) as running:
        yield running
