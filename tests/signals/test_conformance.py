"""The table of signals as a whole: each column says what it is, and what is no reading reaches nothing.

The second half sends every table at once through frame, store, tick, view and rules, twice: once with garbage in some
cells, once with "not provided" in the same ones. What comes out must be the same, cell by cell and alert by alert, but
for the reasons: then no garbage became a number, no number from outside its range reached a derived column, a sum, an
average or a rule, and no zero was invented.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clustertop import plain
from clustertop.probe.frames import Err
from clustertop.signals import units
from clustertop.store.catalogue import DEVICE_GROUPS, GROUPS, LABELS, SPECS
from nodes import GPU, GROUP_OF, SITE, Fleet
from nodes import table as cells

if TYPE_CHECKING:
    from clustertop.signals.metric import Metric, TableSpec

UNITS = {"", "/s", "A/s", "B", "B/s", "GT/s", "Hz", "W", "A", "V", "VA", "b/s", "kWh", "lanes", "ratio", "s", "°C"}
EVERY = [(spec, metric) for spec in SPECS for metric in spec.metrics]
NAMES = [f"{spec.name}.{metric.name}" for spec, metric in EVERY]
SENT = {spec.name: spec for spec in SPECS if spec.name in GROUP_OF}
VITAL = {"util", "mem_used", "power_mw", "temp", "pcie_width"}


@pytest.mark.parametrize(("spec", "metric"), EVERY, ids=NAMES)
def test_each_column_has_a_unit_word_a_description_and_a_range(spec: TableSpec, metric: Metric) -> None:
    assert metric.unit in UNITS
    assert metric.name.isidentifier()
    assert metric.name.isascii()
    assert metric.help.strip() == metric.help != ""
    assert not metric.help.endswith(".")
    assert metric.lo < metric.hi
    if metric.raw:
        assert math.isfinite(metric.lo), "what a node may send has an end on both sides"
        assert math.isfinite(metric.hi)
        assert metric.kind != "derived"
        outside = [code for code in metric.words if not metric.lo <= code <= metric.hi]
        assert not outside, "a word for what can never be read"
    else:
        assert metric.kind == "derived"
        assert metric.scale == 1.0
        assert metric.parse is None
        assert not metric.bits
    if metric.unit == "ratio" and metric.raw:
        assert metric.hi <= 2.0
    if metric.rate:
        assert spec.metric(metric.rate).unit == ("B/s" if metric.unit == "B" else "/s")
        assert spec.metric(metric.rate).name.endswith("_per_second")


def test_names_are_unique_and_a_table_feeds_from_a_group_that_is_read() -> None:
    for spec in SPECS:
        assert len(set(spec.names)) == len(spec.names) == len(spec.index)
        raws = [name for metric in spec.metrics if metric.raw for name in (metric.raw, *metric.aliases)]
        assert len(set(raws)) == len(raws) == len(spec.raw_index)
        assert spec.name in LABELS
        assert spec.group in {*GROUPS, *DEVICE_GROUPS, ""}
        assert bool(raws) == (spec.name in GROUP_OF), "every table that a node fills is in the tests below"
        if raws:
            assert GROUP_OF[spec.name] == spec.group
    assert len({spec.title for spec in SPECS}) == len(SPECS)


def valid(metric: Metric, told: object) -> bool:
    """Whether a cell is a reading, by the column's own range and parser."""
    if isinstance(told, str):
        try:
            number = (metric.parse or units.number)(told.strip())
        except ValueError:
            return False
    elif isinstance(told, int | float):
        number = float(told)
    else:
        return False
    return metric.lo <= number * metric.scale <= metric.hi


def outside(metric: Metric) -> list[float]:
    """Numbers that the column does not have: beyond both ends, and the markers that drivers send for "none"."""
    return [min((metric.lo - 1 - abs(metric.lo)) / metric.scale, -1.0), (2 * metric.hi + 1) / metric.scale, -1e300, 1e300, -1,
            2**63 - 16, 2**31 - 16, 2**32 - 1, 2**64 - 1, 140737488355328.0, 255, 65535]


TEXTS = ["", "0x", "nan", "-nan", "inf", "None", "N/A", "N/A (no PMA)", "[N/A]", "[Not Supported]", "ERR!", "Unknown", "Unknown speed",
         "0 0", "0,5", "1e5", "٠", "0 GT/s", "5.1 GT/s PCIe", "0: NOP?", "-", "false", "null", "\x00", "\x1b[0m0", "0\n0", "x", "0x0x",
         "99: ?", "0 Gb/sec", "-0x5", "9" * 400]


def garbage(metric: Metric) -> st.SearchStrategy[object]:
    """What may stand in a cell and is no reading."""
    return st.one_of(
        st.sampled_from(TEXTS), st.sampled_from(outside(metric)), st.text(max_size=30), st.integers(-2**70, 2**70),
        # The probe rounds to three decimals.
        st.floats(-1e300, 1e300).map(lambda told: round(told, 3)), st.builds(Err, st.text(max_size=20)),
    ).filter(lambda told: not valid(metric, told))


USUAL: dict[str, Any] = {
    "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "cur_width": 16, "max_width": 16,
    "cur_speed": "32.0 GT/s PCIe", "max_speed": "32.0 GT/s PCIe", "operstate": "up", "xids": "", "xid": 0, "xid_count": 0,
    "dns": "ok",
}


WORDS = {("pdu", "state"): "ok", ("psu", "state"): "ok", ("bmc", "host"): "on", ("bmc", "redundancy"): "full"}


def healthy(spec: TableSpec, row: int, moment: int) -> dict[str, Any]:
    """A row with a reading in every column; counters grow."""
    out: dict[str, Any] = {}
    for place, metric in enumerate(spec.metrics):
        if not metric.raw:
            continue
        if spec.name == "gpu" and metric.raw in GPU:
            out[metric.raw] = GPU[metric.raw]
        elif (spec.name, metric.raw) in WORDS:
            out[metric.raw] = WORDS[spec.name, metric.raw]
        elif metric.raw in USUAL:
            out[metric.raw] = USUAL[metric.raw]
        elif metric.kind == "counter":
            out[metric.raw] = min(int(metric.saturation) - 1 if metric.bits else 10**6, 3 + place % 5)
        else:
            least, most = metric.lo / metric.scale, min(metric.hi, 1e9) / metric.scale
            out[metric.raw] = math.ceil(least) if metric.kind == "state" else math.floor(least + (most - least) / 4)
        if metric.name.endswith(("bytes_total", "jiffies_total")) and metric.kind == "counter":
            out[metric.raw] = 1000 * (moment + 1) * (row + 1)
        assert valid(metric, out[metric.raw]), metric.name
    return out


ATTRS: dict[str, dict[str, dict[str, Any]]] = {
    "gpu": {f"GPU-{row}": {"index": row, "pci": f"00000000:1{row}:00.0", "name": "H100"} for row in range(3)},
    "process": {"GPU-0/7": {"gpu": "GPU-0", "pid": 7}},
    "pcie": {"0000:00:01.0": {"class": "0x060400", "path": []},
             "0000:10:00.0": {"class": "0x030200", "path": ["0000:00:01.0"], "vendor": "0x10de", "device": "0x2330"},
             "0000:20:00.0": {"class": "0x020700", "path": ["0000:00:01.0"], "vendor": "0x15b3", "device": "0x1021"}},
    "port": {f"0000:2{row}:00.0/1": {"dev": f"mlx5_{row}", "port": 1, "board": "B", "link_layer": "InfiniBand"} for row in range(3)},
    "node": {"": {}},
    "net": {"0000:30:00.0/eth0": {"name": "eth0", "phys": True}, "lo": {"name": "lo", "phys": False}},
    "link": {f"0000:2{row}:00.0/up{row}": {"name": f"up{row}", "pci": f"0000:2{row}:00.0", "phys": True} for row in range(2)},
    "disk": {"/": {"place": "/", "device": "/dev/md0", "type": "ext4", "read_only": False},
             "/scratch": {"place": "/scratch", "device": "/dev/md1", "type": "xfs", "read_only": True}},
    "screen": {"": {"host": "gpu001", "monitors": ["nvtop 1"]}},
    "nccl": {"/l/a": {"file": "/l/a", "network": ["IB"]},
             "/l/a 0xc1/16": {"file": "/l/a", "comm": "0xc1", "network": ["IB"], "members": ["gpu001 0-7"]}},
    "pdu": {"inlet/1/1": {"kind": "inlet", "name": "I1"}, "phase/1/1": {"kind": "phase", "name": "L1"}},
    "bmc": {"": {"vendor": "Example", "over": "redfish"}},
    "psu": {"p1": {"name": "PSU1"}, "p2": {"name": "PSU2"}},
    "sensor": {"s1": {"name": "inlet", "unit": "°C", "quantity": "temperature"}},
    "uplink": {"1": {"name": "Ethernet1", "role": "uplink", "leaf": "s"},
               "2": {"name": "Ethernet2", "role": "host", "leaf": "s"}},
    "peer": {"10.0.0.2": {"since": 400.0}, "fd00::2": {"since": 402.5}, "*": {"since": 410.0}},
}


def everything(moment: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Every row of every table of one moment."""
    return {name: {key: healthy(spec, row, moment) for row, key in enumerate(ATTRS[name])} for name, spec in SENT.items()}


SINGLE = ("node", "screen")
"""Tables of one row: a frame with more is none."""


Spoilt = dict[tuple[int, str, str, str], Any]
"""Moment, table, row and raw column: what stands there."""


@st.composite
def spoilt(draw: st.DrawFn) -> Spoilt:
    """Some cells of some moments that hold garbage."""
    out: Spoilt = {}
    for _ in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from(sorted(SENT)))
        metric = draw(st.sampled_from([metric for metric in SENT[name].metrics if metric.raw]))
        moments = draw(st.sampled_from([(0,), (1,), (2,), (0, 1, 2)]))
        told = draw(garbage(metric))
        for key in draw(st.sampled_from([(key,) for key in ATTRS[name]] + [tuple(ATTRS[name])])):
            out.update(dict.fromkeys(((moment, name, key, metric.raw) for moment in moments), told))
    # A GPU that tells nothing at all, and not because it lacks it, is lost: that is another story, with its own tests.
    for key in ATTRS["gpu"]:
        for moment in range(3):
            if all((moment, "gpu", key, raw) in out for raw in VITAL):
                del out[moment, "gpu", key, "mem_used"]
    return out


def played(spoil: Spoilt) -> Fleet:
    """Three readings of everything, with these cells put in."""
    fleet = Fleet(site=SITE)
    for moment in range(3):
        rows = everything(moment)
        for (when, name, key, raw), told in spoil.items():
            if when == moment:
                rows[name][key][raw] = told
        fleet.now += 1
        assert fleet.tell(**{name: cells(rows[name], ATTRS[name]) for name in SENT}), fleet.core.bad_frames
        fleet.tick()
    return fleet


def test_without_garbage_everything_is_a_reading() -> None:
    fleet = played({})
    for name, spec in SENT.items():
        view = fleet[name]
        for metric in spec.metrics:
            if metric.raw:
                unread = [key for key in ATTRS[name] if view.value(metric.name, view.keys.index(key)) is None]
                assert not unread, metric.name


TOLD_TWICE = {("pcie", "0000:10:00.0", raw) for raw in ("cur_speed", "max_speed")}
"""What NVML tells of a GPU's link as well: where sysfs says nothing, its generation is the reading."""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(spoilt())
@example({(moment, "gpu", "GPU-1", raw): 2**32 - 1 for moment in range(3) for raw in GPU if not raw.startswith("mem_")})
@example({(1, "node", "", "mem_total"): "0x", (2, "node", "", "cpu_idle"): -1})
@example({(moment, "port", key, "rate"): "0 Gb/sec" for moment in range(3) for key in ATTRS["port"]})
@example({(moment, "pcie", "0000:00:01.0", "cur_width"): 255 for moment in range(3)})
@example({(2, "pcie", "0000:10:00.0", "cur_speed"): "", (2, "pcie", "0000:20:00.0", "cur_speed"): ""})
def test_garbage_is_the_same_as_nothing(spoil: Spoilt) -> None:
    got, right = played(spoil), played(dict.fromkeys(spoil))
    for spec in SPECS:
        mine, theirs = got[spec.name], right[spec.name]
        assert mine.keys == theirs.keys
        for metric in spec.metrics:
            one, other = mine.col(metric.name), theirs.col(metric.name)
            assert np.array_equal(one, other, equal_nan=True), f"{spec.name}.{metric.name}: {one} is not {other}"
            unknown = np.flatnonzero(np.isnan(one))
            assert all(mine.reason(metric.name, row) for row in unknown.tolist()), metric.name
            assert np.isfinite(one[~np.isnan(one)]).all()
    for moment, name, key, raw in spoil:
        if moment == 2:
            column = SENT[name].metrics[SENT[name].raw_index[raw]].name
            value = got[name].value(column, got[name].keys.index(key))
            if (name, key, raw) in TOLD_TWICE:
                assert value in (None, units.link_speed(USUAL[raw])), "what the other source says, or nothing"
            else:
                assert value is None, "a zero is never invented"
    assert [(change.kind, change.rule, change.thing.id) for change in got.seen] == [
        (change.kind, change.rule, change.thing.id) for change in right.seen]
    assert got.core.snapshot is not None
    assert plain.fleet_lines(got.core.snapshot)


@pytest.mark.parametrize(("spec", "metric"), [(spec, metric) for spec, metric in EVERY if metric.raw],
                         ids=[name for name, (_, metric) in zip(NAMES, EVERY, strict=True) if metric.raw])
def test_a13_what_is_outside_the_range_is_dropped_and_counted(spec: TableSpec, metric: Metric) -> None:
    """A13b, for every column that a node sends, at both ends."""
    for told in outside(metric)[:2]:
        fleet = Fleet(rules={}, site=SITE)
        fleet.now += 1
        fleet.tell(**{spec.name: cells({"": {metric.raw: told}})})
        fleet.tick()
        assert fleet[spec.name].value(metric.name, 0) is None
        assert fleet[spec.name].reason(metric.name, 0) == "out of range"
        assert fleet.core.store.tables[spec.name].out_of_range == 1


ANY_ATTR = st.one_of(st.none(), st.booleans(), st.integers(-2**60, 2**60), st.text(max_size=12), st.lists(st.text(max_size=8), max_size=3),
                     st.floats(allow_nan=False, allow_infinity=False))
KEYS = ("index", "pci", "name", "class", "path", "vendor", "device", "physfn", "board", "hca", "link_layer", "dev", "port", "phys", "driver",
        "gpu", "pid", "netdev", "uuid", "mig_layout", "netdevs", "bond", "kind", "master", "members", "addresses", "place", "read_only")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), ANY_ATTR), min_size=3, max_size=3), st.text(max_size=10))
@example([{}, {}, {}], "\x1f")
def test_whatever_a_node_says_of_its_things_nothing_breaks(attrs: list[dict[str, Any]], key: str) -> None:
    fleet = Fleet(site=SITE)
    for moment in range(2):
        rows = everything(moment)
        fleet.now += 1
        said = {name: {**{one: attrs[place % 3] for place, one in enumerate(ATTRS[name])}, key: attrs[0]}
                for name in SENT if name not in SINGLE}
        tables = {name: cells({**rows[name], key: {}}, said[name]) for name in said}
        tables |= {name: cells(rows[name]) for name in SINGLE}
        assert fleet.tell(**tables), fleet.core.bad_frames
        fleet.tick()
    assert fleet.core.snapshot is not None
    assert plain.fleet_lines(fleet.core.snapshot)
