"""Text of kernels and drivers to numbers; what is no value raises."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals import units
from clustertop.signals.host import operstate
from clustertop.signals.rdma import rate_code

if TYPE_CHECKING:
    from collections.abc import Callable

PARSERS = [units.link_speed, units.link_width, units.data_rate, units.numbered_state, units.number, operstate, rate_code]


@pytest.mark.parametrize(("parse", "text", "value"), [
    (units.link_speed, "16.0 GT/s PCIe", 16.0), (units.link_speed, "2.5 GT/s", 2.5), (units.link_speed, "8 GT/s", 8.0),
    (units.link_width, "16", 16.0), (units.link_width, "x8", 8.0),
    (units.data_rate, "400 Gb/sec (4X NDR)", 400e9), (units.data_rate, "2.5 Gb/sec (1X SDR)", 2.5e9),
    (units.numbered_state, "4: ACTIVE", 4.0), (units.numbered_state, "5:LinkUp", 5.0),
    (units.number, " 42\n", 42.0), (units.number, "0x1F", 31.0), (units.number, "-3.5", -3.5),
    (operstate, "up", 1.0), (operstate, "lowerlayerdown\n", 0.0), (operstate, "unknown", 1.0),
])
def test_values(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text"), [
    (units.link_speed, "Unknown speed"), (units.link_speed, "Unknown"), (units.link_speed, "7.0 GT/s PCIe"),
    (units.link_speed, ""), (units.link_width, "255"), (units.link_width, "0"), (units.link_width, ""),
    (units.link_width, "3"), (units.link_width, "-8"), (units.link_width, "²"), (units.data_rate, "N/A"),
    (units.data_rate, "Gb/sec"), (units.numbered_state, "ACTIVE"), (units.number, "N/A (no PMA)"),
    (units.number, "nan"), (units.number, "inf"), (units.number, "1e5"), (units.number, "1_000"), (units.number, "٣"),
    (units.number, ""), (operstate, ""), (operstate, "UP!"), (rate_code, "0 Gb/sec (4X SDR)"),
])
def test_A4_what_is_no_value_is_refused(parse: Callable[[str], float], text: str) -> None:  # noqa: N802
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text(max_size=24))
def test_any_text_is_a_finite_number_or_refused(parse: Callable[[str], float], text: str) -> None:
    try:
        value = parse(text)
    except ValueError:
        return
    assert math.isfinite(value)


@pytest.mark.parametrize(("gts", "lanes", "gigabytes"), [(16.0, 16, 31.5), (32.0, 16, 63.0), (32.0, 8, 31.5), (8.0, 8, 7.9)])
def test_what_a_link_carries_each_way(gts: float, lanes: int, gigabytes: float) -> None:
    assert units.lane_bytes(gts) * lanes / 1e9 == pytest.approx(gigabytes, abs=0.06)


def test_generations_and_speeds_agree() -> None:
    assert [units.generation(units.speed_of_generation(gen)) for gen in range(1, 7)] == [1, 2, 3, 4, 5, 6]
    assert units.generation(7.0) == 0
    assert all(math.isnan(units.speed_of_generation(gen)) for gen in (0, 7, -1, float("nan")))
    assert math.isnan(units.lane_bytes(0.0))
