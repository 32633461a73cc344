"""The table of switch ports: loads and names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clustertop.model import Why
from clustertop.signals import uplink
from clustertop.signals.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Mapping

SHORT = {"into": "receive_bytes_per_second", "out": "transmit_bytes_per_second", "speed": "speed_bits_per_second", "up": "port_up"}


def columns(*rows: Mapping[str, Any]) -> Columns:
    """A table with a row per port; what a row does not say is unknown, for want of a reading."""
    spec = uplink.TABLE
    values = np.full((len(spec.metrics), len(rows)), np.nan)
    why = np.full(values.shape, Why.UNREADABLE, np.uint16)
    for number, row in enumerate(rows):
        for name, column in SHORT.items():
            if name in row:
                values[spec.index[column], number] = row[name]
                why[spec.index[column], number] = Why.KNOWN
    attrs = [{name: row[name] for name in ("name", "role", "leaf") if name in row} for row in rows]
    return Columns(spec, values, why, np.zeros(len(rows), np.int32), np.ones(len(rows), np.bool_),
                   [str(number) for number in range(len(rows))], attrs)


def test_the_load_is_that_of_the_busier_way() -> None:
    t = columns({"into": 1e9, "out": 4e9, "speed": 64e9, "up": 1}, {"into": 8e9, "out": 0, "speed": 64e9})
    uplink.derive(t)
    assert t.col("load_ratio").tolist() == [0.5, 1.0]


@pytest.mark.parametrize(("row", "why"), [
    ({"into": 1e9, "speed": 64e9, "up": 1}, Why.UNREADABLE),
    ({"into": 1e9, "out": 1e9, "up": 1}, Why.UNREADABLE),
    ({"into": 0, "out": 0, "speed": 64e9, "up": 0}, uplink.PORT_DOWN),
])
def test_a_load_that_is_not_known_is_not_zero(row: dict[str, float], why: int) -> None:
    t = columns(row)
    uplink.derive(t)
    assert math.isnan(t.col("load_ratio")[0])
    assert t.why_of("load_ratio")[0] == why


def test_a_port_is_called_by_its_name() -> None:
    assert (uplink.label("12", {"name": "swp12"}), uplink.label("12", {})) == ("swp12", "12")
