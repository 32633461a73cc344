"""Leaves, agreement and predictions: cases D1 and D4, on the field's inputs and on our own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals.traffic import (
    PREDICTED,
    Agreement,
    LeafPort,
    agreement,
    better_order,
    interval95,
    leaf_share,
    may_alert,
    read_hostfile,
    ring,
)
from traffic.shared import case, needs_shared


@needs_shared
def test_d1_hops_of_a_ring_follow_the_order() -> None:
    """D1 a, b: crossings over the rank order, labelled as predicted."""
    orders, expect = case("D1", "orders.json"), case("D1", "expect.json")
    for name in ("a", "b"):
        found = ring(orders[name], orders["racks"])
        assert found.ratio == expect[name]
        assert found.label == PREDICTED


def test_d1_sixteen_sorted_nodes_in_two_racks_cross_twice() -> None:
    """D1 a."""
    racks = {f"n{number:02}": f"r{number // 8}" for number in range(16)}
    found = ring(sorted(racks), racks)
    assert (found.hops, found.crossing, found.ratio) == (16, 2, 0.125)


def test_d1_ranks_of_one_node_are_one_stop_however_they_are_dealt() -> None:
    racks = {"a": "r1", "b": "r2"}
    assert ring(["a", "b", "a", "b"], racks) == ring(["a", "a", "b", "b"], racks)


@pytest.mark.parametrize(("order", "hops", "ratio"), [([], 0, None), (["a"], 0, None), (["a", "b"], 2, 1.0)])
def test_short_rings(order: list[str], hops: int, ratio: float | None) -> None:
    found = ring(order, {"a": "r1", "b": "r2"})
    assert (found.hops, found.ratio) == (hops, ratio)


def test_a_ring_says_which_nodes_have_no_rack() -> None:
    found = ring(["a", "x", "b", "c"], {"a": "r1", "b": "r2", "c": "r2"})
    assert found.unplaced == ("x",)
    assert (found.placed_hops, found.crossing) == (2, 1)
    assert ring(["a", "b"], {}).ratio is None


def test_a_better_order_is_suggested_only_where_there_is_one() -> None:
    racks = {"a1": "ra", "a2": "ra", "b1": "rb", "b2": "rb"}
    better = better_order(["b1", "a1", "b2", "a2"], racks)
    assert better is not None
    assert better.order == ("b1", "b2", "a1", "a2")
    assert better.crossing == 2
    assert better_order(["a1", "a2", "b1", "b2"], racks) is None
    assert better_order(["a1", "a2"], racks) is None
    assert better_order(["a1", "b1"], {}) is None


@given(st.lists(st.integers(0, 3), min_size=2, max_size=24))
def test_a_suggested_order_has_the_same_nodes_and_as_few_crossings_as_racks(placed: list[int]) -> None:
    racks = {f"n{number}": f"r{rack}" for number, rack in enumerate(placed)}
    now = ring(racks, racks)
    better = better_order(racks, racks)
    fewest = len(set(placed)) if len(set(placed)) > 1 else 0
    assert (better or now).crossing == fewest
    assert sorted((better or now).order) == sorted(racks)


@pytest.mark.parametrize("text", [
    "g01 slots=4\ng02 slots=4 max-slots=8  # spare\n\n# none\ng03\n",
    "g01:4\ng02:4\ng03:4\n",
    "g01\ng02\ng01\ng03\n",
    "g[01-03]",
    "g01,g[02-03]:8\n",
], ids=["openmpi", "mpich", "plain", "slurm", "mixed"])
def test_host_files_of_all_launchers(text: str) -> None:
    assert read_hostfile(text) == ["g01", "g02", "g03"]


def test_a_line_that_is_no_host_is_named() -> None:
    with pytest.raises(ValueError, match="line 2"):
        read_hostfile("g01\nuse these hosts please\n")


def test_d7_a_host_file_above_the_limit_is_refused() -> None:
    """D7 b."""
    with pytest.raises(ValueError, match="10,000"):
        read_hostfile("g[1-99999]")


# ---- leaf switches


def port(name: str, role: str, into: float | None, out: float | None, speed: float | None = 800.0) -> LeafPort:
    return LeafPort(name, role, into, out, speed)


def test_a_leaf_says_what_of_its_hosts_goes_up() -> None:
    found = leaf_share([
        port("1", "host", 60, 5), port("2", "host", 40, 5), port("49", "uplink", 3, 30), port("50", "uplink", 3, 10),
        port("9", "", 7, 0), port("10", "", None, None),
    ])
    assert (found.host_in, found.uplink_out, found.ratio) == (100, 40, 0.4)
    assert found.loads == {"49": 0.3, "50": 0.1}
    assert found.imbalance == pytest.approx(0.5)
    assert (found.unknown_ports, found.unplaced_in) == (("9",), 7)


@pytest.mark.parametrize(("ports", "why"), [
    ([], "not measured: no port is known as uplink"),
    ([port("49", "uplink", 1, 1)], "not measured: no port is known as host port"),
    ([port("1", "host", None, 1), port("49", "uplink", 1, 1)], "no rate for 1"),
    ([port("1", "host", 0, 1), port("49", "uplink", 1, 1)], "no traffic"),
])
def test_d8_a_leaf_that_cannot_be_judged_says_why(ports: list[LeafPort], why: str) -> None:
    """D8 a: where no meter sees the uplinks the share is not measured."""
    found = leaf_share(ports)
    assert (found.ratio, found.why) == (None, why)


# ---- agreement


@needs_shared
def test_d4_flows_that_disagree_with_port_counters_are_unreliable() -> None:
    """D4 a, b on the case's own numbers."""
    given_, expect = case("D4", "flows.json"), case("D4", "expect.json")
    agreed = agreement(given_["flow_estimate_mbps"], given_["port_counter_mbps"])
    bounds = interval95(given_["samples_cross"], given_["samples_total"])
    assert agreed.reliable is expect["reliable"]
    assert bounds is not None
    assert bounds[0] == pytest.approx(expect["lower95"], abs=0.0005)
    assert may_alert(given_["samples_cross"], given_["samples_total"], 0.3, agreed) is expect["alert"]


@pytest.mark.parametrize(("hits", "lower", "alerts"), [(37, 0.28, False), (45, 0.36, True)])
def test_d4_the_lower_bound_decides(hits: int, lower: float, alerts: bool) -> None:
    """D4 b."""
    bounds = interval95(hits, 100)
    assert bounds is not None
    assert round(bounds[0], 2) == lower
    assert may_alert(hits, 100, 0.3, Agreement(0.0)) is alerts
    assert not may_alert(hits, 100, 0.3, Agreement(0.21))


@pytest.mark.parametrize(("weaker", "stronger", "reliable"), [
    (79.0, 100.0, False), (80.0, 100.0, True), (120.0, 100.0, True), (121.0, 100.0, False), (0.0, 0.0, True),
    (5.0, 0.0, False), (None, 100.0, None), (5.0, None, None),
])
def test_agreement(weaker: float | None, stronger: float | None, reliable: bool | None) -> None:
    assert agreement(weaker, stronger).reliable is reliable


@given(st.integers(0, 500), st.integers(0, 500))
def test_an_interval_holds_its_share(hits: int, more: int) -> None:
    bounds = interval95(hits, hits + more)
    if bounds is None:
        assert hits + more == 0
    else:
        assert 0 <= bounds[0] <= hits / (hits + more) + 1e-12
        assert hits / (hits + more) - 1e-12 <= bounds[1] <= 1


def test_no_samples_no_alert() -> None:
    assert interval95(0, 0) is None
    assert not may_alert(0, 0, 0.3, Agreement(0.0))
    with pytest.raises(ValueError, match="3 of 2"):
        interval95(3, 2)
    assert math.isinf(agreement(1.0, 0.0).difference or 0)
