"""What every column must say of itself, and what becomes of readings that are none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop.probe.frames import Err
from clustertop.signals.metric import Metric, table
from clustertop.signals.rdma_counters import BY_COLUMN
from clustertop.store.catalogue import SPECS
from nodes import GROUP_OF, SITE, Fleet
from nodes import table as cells

if TYPE_CHECKING:
    from clustertop.signals.metric import TableSpec

UNIT_OF = {
    "_per_second": {"/s", "B/s", "b/s"}, "_ratio": {"ratio"}, "_watts": {"W"}, "_celsius": {"°C"}, "_lanes": {"lanes"},
    "_gts": {"GT/s"}, "_hertz": {"Hz"}, "_bytes": {"B"}, "_bytes_total": {"B"}, "_seconds": {"s"},
    "amps": {"A"}, "volts": {"V"}, "watts": {"W"}, "_va": {"VA"}, "_kwh": {"kWh"}, "_amps_per_second": {"A/s"},
}
EVERY = [(spec, metric) for spec in SPECS for metric in spec.metrics]
NAMES = [f"{spec.name}.{metric.name}" for spec, metric in EVERY]
SENT = [spec for spec in SPECS if spec.name in GROUP_OF]


def unit_by_name(name: str) -> set[str]:
    """The units that a name's ending promises; the longest ending counts."""
    endings = [ending for ending in UNIT_OF if name.endswith(ending)]
    return UNIT_OF[max(endings, key=len)] if endings else {""}


@pytest.mark.parametrize(("spec", "metric"), EVERY, ids=NAMES)
def test_a_column_says_what_it_is(spec: TableSpec, metric: Metric) -> None:
    assert metric.name.isidentifier()
    assert metric.help
    assert metric.lo < metric.hi or metric.words
    assert metric.scale > 0
    assert metric.kind != "counter" or math.isfinite(metric.hi), "a growth past any number has no rate"
    assert not metric.rate or (metric.kind == "counter" and metric.rate in spec.index)
    assert not metric.bits or metric.name in BY_COLUMN
    if metric.name in BY_COLUMN and spec.name == "port":
        assert metric.raw, "counters are spelled as in sysfs"
    else:
        assert metric.unit in unit_by_name(metric.name)
    if metric.raw:
        assert metric.source.startswith("https://"), "where it is read is documented somewhere"


def test_no_two_columns_share_a_name() -> None:
    with pytest.raises(ValueError, match="share a name"):
        table("t", "g", "T", (Metric("a", "", "x", "raw"), Metric("b", "", "y", "raw")))
    with pytest.raises(ValueError, match="share a name"):
        table("t", "g", "T", (Metric("a", "", "x", "one"), Metric("a", "", "y", "two")))
    assert len({spec.name for spec in SPECS}) == len(SPECS)


def test_b2_widths_of_the_counters_that_stop_at_their_end() -> None:
    four = {"local_link_integrity_errors", "excessive_buffer_overrun_errors"}
    eight = {"link_downed", "link_error_recovery", "port_rcv_constraint_errors", "port_xmit_constraint_errors"}
    sixteen = {"symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
               "port_xmit_discards", "VL15_dropped"}
    port = next(spec for spec in SPECS if spec.name == "port")
    got = {metric.name: metric.bits for metric in port.metrics if metric.bits}
    wanted = {**dict.fromkeys(four, 4), **dict.fromkeys(eight, 8), **dict.fromkeys(sixteen, 16), "port_xmit_wait": 32}
    assert got == wanted


def test_b1_four_byte_words_are_these_counters_and_no_others() -> None:
    port = next(spec for spec in SPECS if spec.name == "port")
    scaled = {metric.name for metric in port.metrics if metric.scale != 1}
    assert scaled == {"port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64"}


ANYTHING = st.one_of(
    st.none(), st.integers(-2**70, 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20),
    st.builds(Err, st.text(max_size=20)),
    st.sampled_from(["4: ACTIVE", "N/A (no PMA)", "Unknown", "[N/A]", "nan", "inf", "-1", "0x", "1e5", "١٢", "16.0 GT/s",
                     "400 Gb/sec (4X NDR)", "", " 7 ", "0xFF"]))


@pytest.mark.parametrize("spec", SENT, ids=lambda spec: spec.name)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_garbage_is_unknown_with_a_reason_or_within_its_range(spec: TableSpec, data: st.DataObject) -> None:
    """Two readings, so that counters and rates are worked out as well."""
    fleet = Fleet(site=SITE)
    sent = [metric for metric in spec.metrics if metric.raw]
    for _ in range(2):
        some = data.draw(st.lists(st.sampled_from(sent), min_size=1, max_size=12, unique_by=lambda metric: metric.raw))
        row = {metric.raw: data.draw(ANYTHING) for metric in some}
        fleet.now += 1
        assert fleet.tell(**{spec.name: cells({"": row})}), fleet.core.bad_frames
        fleet.tick()
        view = fleet[spec.name]
        for metric in spec.metrics:
            value = view.value(metric.name, 0)
            if value is None:
                assert view.reason(metric.name, 0), metric.name
                continue
            assert math.isfinite(value), metric.name
            if metric.raw:
                assert metric.lo <= value <= metric.hi, metric.name
        for metric in some:
            told = row[metric.raw]
            value = view.value(metric.name, 0)
            if value == 0 and not metric.aliases:
                assert told is not None
                assert not isinstance(told, Err)
                assert abs(read(metric, told)) < 1e-3, "a zero is never invented"


def test_a_number_that_overflows_is_out_of_range() -> None:
    fleet = Fleet()
    fleet.step(net=cells({"eth0": {"speed_mbps": 1.7e308}}), gpu=cells({"g": {"sm_mhz": 1.7e308, "util": -1.7e308}}))
    for name, column in (("net", "speed_bits_per_second"), ("gpu", "sm_clock_hertz"), ("gpu", "utilization_ratio")):
        assert fleet[name].value(column, 0) is None
        assert fleet[name].reason(column, 0) == "out of range"


def read(metric: Metric, told: Any) -> float:
    """What a cell says by the metric's own parser."""
    if isinstance(told, str):
        if metric.parse is not None:
            return metric.parse(told)
        return float(int(told.strip(), 16) if "x" in told.lower() else told)
    return float(told)

