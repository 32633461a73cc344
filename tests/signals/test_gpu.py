"""What GPU readings mean, on columns without a store around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.model import Why, reason
from clustertop.signals import gpu
from clustertop.signals.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Mapping

BUSY = {"utilization_ratio": 0.95, "memory_used_bytes": float(60 << 30), "power_watts": 600.0, "mig_mode": 0.0,
        "temperature_celsius": 60.0, "pcie_width_lanes": 16.0, "performance_state": 0.0, "pcie_generation": 5.0,
        "pcie_generation_max": 5.0, "pcie_generation_device_max": 5.0, "clocks_event_reasons": 0.0,
        "temperature_slowdown_celsius": 87.0}


def derived(*rows: Mapping[str, float | int | None], failed: bool = False) -> Columns:
    """The table of GPUs that differ from a busy one; a value of None is unknown, an int is why it is."""
    t = Columns.empty(gpu.TABLE, len(rows))
    for row, changes in enumerate(rows):
        for name, value in {**BUSY, **changes}.items():
            column = t.spec.index[name]
            known = isinstance(value, float)
            t.values[column, row] = value if known else np.nan
            t.why[column, row] = Why.KNOWN if known else Why.UNREADABLE if value is None else value
    gpu.derive(t, np.full(len(rows), failed))
    return t


def value(t: Columns, name: str, row: int = 0) -> float | str:
    """A value, or why it is unknown."""
    number = float(t.col(name)[row])
    return reason(int(t.why_of(name)[row])) if np.isnan(number) else number


@pytest.mark.parametrize(("changes", "missing"), [
    ({"pcie_generation": 1.0}, 4.0),
    ({"pcie_generation": 1.0, "utilization_ratio": 0.0, "performance_state": 8.0}, "not judged"),
    ({"pcie_generation": 1.0, "utilization_ratio": 0.0, "performance_state": 0.0}, "not judged"),
    ({"pcie_generation": 2.0, "utilization_ratio": 0.07, "performance_state": 5.0}, "not judged"),
    ({"pcie_generation": 4.0, "utilization_ratio": 0.6, "performance_state": 5.0}, 1.0),
    ({"pcie_generation": 3.0, "pcie_generation_max": 3.0, "pcie_generation_device_max": 4.0}, 0.0),
    ({"pcie_generation": 1.0, "utilization_ratio": None, "performance_state": None}, 4.0),
    ({"pcie_generation": None}, "not judged"),
    ({"pcie_generation_max": None, "pcie_generation_device_max": None}, "not judged"),
], ids=["under-load", "A1-idle", "A1-idle-at-P0", "A2-P5", "busy-at-P5", "A2-the-host-stops-at-3",
        "A14-unknown-load-is-not-idle", "unknown", "ceiling-unknown"])
def test_generation_is_judged_under_load_against_card_and_host(
    changes: Mapping[str, float | int | None], missing: float | str
) -> None:
    assert value(derived(changes), "generation_missing") == missing


def test_A14_mig_hides_utilisation_from_everything_that_judges_it() -> None:  # noqa: N802
    t = derived({"mig_mode": 1.0, "utilization_ratio": int(Why.NOT_SUPPORTED)}, {}, {}, {})
    assert value(t, "utilization_ratio") == "n/a (MIG)"
    assert value(t, "busy_utilization_ratio") == "not judged"
    assert value(t, "presence") == gpu.PRESENT
    assert [value(t, "utilization_below_peers_ratio", row) for row in (1, 2, 3)] == [0.0] * 3


VITAL = ("utilization_ratio", "memory_used_bytes", "power_watts", "temperature_celsius", "pcie_width_lanes")


@pytest.mark.parametrize(("whys", "presence"), [
    ((Why.GPU_LOST,) * 5, gpu.LOST),
    ((Why.UNREADABLE,) * 5, gpu.LOST),
    ((Why.NOT_SUPPORTED,) * 5, gpu.PRESENT),
    ((Why.UNREADABLE, *(Why.NOT_SUPPORTED,) * 4), gpu.PRESENT),
    ((Why.GPU_LOST, *(Why.NOT_SUPPORTED,) * 4), gpu.LOST),
    ((Why.OUT_OF_RANGE,) * 5, gpu.PRESENT),
], ids=["A16-lost", "answers-nothing", "has-nothing", "one-error", "lost-said-once", "A13-only-markers"])
def test_presence(whys: tuple[int, ...], presence: int) -> None:
    t = derived(dict(zip(VITAL, map(int, whys), strict=True)), {})
    assert value(t, "presence") == presence
    assert value(t, "presence", 1) == gpu.PRESENT


def test_A15_where_the_driver_fails_no_gpu_is_lost() -> None:  # noqa: N802
    t = derived(dict.fromkeys(VITAL, None), failed=True)
    assert value(t, "presence") == "unreadable"


@pytest.mark.parametrize(("mask", "slow", "words"), [
    (0.0, 0.0, []), (4.0, 0.0, ["SW power cap"]), (1.0, 0.0, ["GPU idle"]), (8.0, 1.0, ["HW slowdown"]),
    (128.0, 1.0, ["HW power brake slowdown"]), (64.0 + 4.0, 1.0, ["SW power cap", "HW thermal slowdown"]),
    (4096.0, 0.0, ["0x1000"]),
])
def test_clocks_event_reasons(mask: float, slow: float, words: list[str]) -> None:
    t = derived({"clocks_event_reasons": mask})
    assert value(t, "slowdown") == slow
    assert gpu.reason_words(mask) == words


def test_unknown_reasons_are_no_healthy_clock() -> None:
    assert value(derived({"clocks_event_reasons": None}), "slowdown") == "not provided"


def test_a_gpu_that_nobody_uses_is_not_under_used() -> None:
    t = derived({"memory_used_bytes": 0.0, "utilization_ratio": 0.0}, {"memory_used_bytes": None})
    assert value(t, "busy_utilization_ratio") == "not judged"
    assert value(t, "busy_utilization_ratio", 1) == "not judged"


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=9))
def test_a_straggler_is_measured_against_the_median_of_at_least_three(ratios: list[float | None]) -> None:
    t = derived(*({"utilization_ratio": ratio} for ratio in ratios))
    known = [ratio for ratio in ratios if ratio is not None]
    for row, ratio in enumerate(ratios):
        got = value(t, "utilization_below_peers_ratio", row)
        if ratio is None or len(known) < 3:
            assert got == "not judged"
        else:
            assert got == pytest.approx(float(np.median(known)) - ratio)
