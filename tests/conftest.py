from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pdus import ODD, OURS, SAMPLES, Snmpsim, snmpsim

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snmpsim]:
    """One real SNMP agent for all recordings of PDUs: ours, and those beside the checkout where they are."""
    with snmpsim({"": OURS, "odd-": ODD, "shared-": SAMPLES}, tmp_path_factory.mktemp("snmpsim")) as running:
        yield running
