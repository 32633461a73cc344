"""Links that became narrower: when, from what, and what the rings held then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clustertop.probe.frames import Err, Table
from clustertop.store.drops import AFTER_SECONDS, MOST, Bursts
from nodes import Fleet, gpus, table

KEY = "0000:10:00.0"


def link(width: Any, *, kind: str = "0x030200", key: str = KEY, **more: Any) -> Table:
    """One device without a bridge above it."""
    return table({key: {"cur_width": width, "max_width": "16", "aer_cor": 0, **more}},
                 {key: {"class": kind, "vendor": "0x10de", "device": "0x2330", "path": []}})


def run(fleet: Fleet, *widths: Any, **more: Any) -> None:
    """A reading every two seconds."""
    for width in widths:
        fleet.step(2.0, gpu=gpus({"pcie_width": 16}), pcie=link(width, **more))


def test_a_drop_has_its_moment_and_what_was_before() -> None:
    fleet = Fleet(interval=2.0)
    run(fleet, "16", "16", "8", "8", "8")
    found = fleet["pcie"]
    assert found.value("width_drop_seconds", 0) == pytest.approx(4.0)
    assert found.value("width_before_lanes", 0) == 16
    run(fleet, "4")
    assert fleet["pcie"].value("width_before_lanes", 0) == 8
    assert fleet["pcie"].value("width_drop_seconds", 0) == 0
    run(fleet, "8")
    assert fleet["pcie"].value("width_drop_seconds", 0) is None
    assert fleet["pcie"].reason("width_drop_seconds", 0) == "not judged"


def test_what_was_narrow_when_first_seen_has_not_dropped() -> None:
    fleet = Fleet(interval=2.0)
    run(fleet, "8", "8")
    assert fleet["pcie"].value("width_drop_seconds", 0) is None
    assert fleet.view.drops.trace(fleet["pcie"], 0) is None


def test_an_unknown_width_is_no_drop_and_ends_none() -> None:
    fleet = Fleet(interval=2.0)
    for width in ("16", Err("EIO"), "16"):
        fleet.step(2.0, pcie=link(width))
        assert fleet["pcie"].value("width_drop_seconds", 0) is None
    fleet.step(2.0, pcie=link("8"))
    fleet.step(2.0, pcie=link(Err("EIO")))
    assert fleet["pcie"].value("width_drop_seconds", 0) is None, "nothing is claimed while the width is unknown"
    fleet.step(2.0, pcie=link("8"))
    assert fleet["pcie"].value("width_drop_seconds", 0) == pytest.approx(4.0)


def test_the_trace_holds_heat_and_errors_before_and_after_and_outlives_the_rings() -> None:
    fleet = Fleet(interval=2.0)
    for step in range(40):
        fleet.step(2.0, gpu=gpus({"temp": 50 + step}), pcie=link("16", aer_cor=10 * max(0, step - 30)))
    for _ in range(240):
        fleet.step(2.0, gpu=gpus({"temp": 30, "pcie_width": 8}), pcie=link("8", aer_cor=90))
    trace = fleet.view.drops.trace(fleet["pcie"], 0)
    assert trace is not None
    assert trace.complete
    before = (trace.seconds < 0) & ~np.isnan(trace.temperature_celsius)
    assert trace.temperature_celsius[before].tolist() == [50.0 + step for step in range(40)]
    assert trace.temperature_celsius[trace.seconds > 0].max() == 30
    assert trace.seconds[~np.isnan(trace.seconds)].max() >= AFTER_SECONDS
    assert trace.aer_per_second[trace.seconds < -20].max() == 0
    assert trace.aer_per_second[(trace.seconds > -16) & (trace.seconds < 0)].min() == pytest.approx(5.0)
    assert trace.whose == "GPU 0"


def test_a_device_that_is_no_gpu_stands_beside_the_hottest_gpu_of_its_node_and_the_power_of_all() -> None:
    fleet = Fleet(2, interval=2.0)
    for width in ("16", "8"):
        fleet.now += 2
        fleet.say(0, gpu=gpus({"temp": 60, "power_mw": 100e3}, {"temp": 71, "power_mw": 200e3}),
                  pcie=link(width, kind="0x020000", key="0000:41:00.0"))
        fleet.say(1, gpu=gpus({"temp": 99}))
        fleet.tick()
    rows = [row for row, key in enumerate(fleet["pcie"].keys) if key == "0000:41:00.0"]
    trace = fleet.view.drops.trace(fleet["pcie"], rows[0])
    assert trace is not None
    assert trace.whose == "hottest of 2 GPUs"
    assert np.nanmax(trace.temperature_celsius) == 71
    assert np.nanmax(trace.power_watts) == 300


def test_a_path_that_counts_no_errors_has_none_to_show() -> None:
    fleet = Fleet(interval=2.0)
    for width in ("16", "8"):
        fleet.step(2.0, gpu=gpus({}), pcie=link(width, aer_cor=Err("ENOENT")))
    trace = fleet.view.drops.trace(fleet["pcie"], 0)
    assert trace is not None
    assert np.isnan(trace.aer_per_second).all()


def test_only_so_many_drops_are_kept() -> None:
    fleet = Fleet(interval=2.0)
    for width in ("16", "8"):
        rows = {f"0000:{bus:02x}:{slot:02x}.0": {"cur_width": width, "max_width": "16"}
                for bus in range(0x20, 0x40) for slot in range(12)}
        fleet.step(2.0, pcie=table(rows, {key: {"class": "0x030200"} for key in rows}))
    found = fleet["pcie"]
    kept = [row for row in range(len(found)) if fleet.view.drops.trace(found, row) is not None]
    assert len(found) > MOST
    assert len(kept) == MOST


def test_bursts_are_sums_where_they_were_and_zero_elsewhere() -> None:
    bursts = Bursts(3)
    for at, rate in ((1.0, [0.0, 9.0]), (2.0, [1.5, 2.0]), (3.0, [0.0, 0.0]), (4.0, [np.nan, 4.0])):
        bursts.push(at, np.array(rate))
    times = np.array([np.nan, 1.0, 2.0, 3.0, 4.0])
    assert bursts.series([0, 1], times).tolist() == [0.0, 0.0, 3.5, 0.0, 4.0], "the first has been forgotten"
    assert bursts.series([0], times).tolist() == [0.0, 0.0, 1.5, 0.0, 0.0]
    bursts.forget(np.array([1]))
    assert bursts.series([1], times).sum() == 0
