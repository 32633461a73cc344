"""Octet counters to rates: cases D5 and D6, on the field's inputs and on our own."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.model import Why, reason
from clustertop.signals.octets import OVER_SPEED, TOO_NARROW, Octets, rate
from traffic.shared import case, needs_shared


@needs_shared
def test_d5_one_interval_is_unknown_after_a_restart_and_no_more() -> None:
    """D5 a."""
    readings = [Octets(at, value) for at, value in case("D5", "series.json")["octets"]]
    rates = [rate(last, now) for last, now in pairwise([None, *readings])]
    assert [one.value for one in rates] == case("D5", "expect.json")["rates"]
    assert [one.why for one in rates] == [Why.FIRST_READING, Why.RESET, Why.KNOWN, Why.KNOWN]


@pytest.mark.parametrize(("uptimes", "confirmed"), [((9000.0, 4.0), True), ((None, None), False)])
def test_d5_an_uptime_that_goes_back_confirms_it(uptimes: tuple[float | None, float | None], confirmed: bool) -> None:
    """D5 b."""
    last, now = Octets(0, 9 * 10**12, uptime_seconds=uptimes[0]), Octets(10, 10**6, uptime_seconds=uptimes[1])
    found = rate(last, now)
    assert (found.value, reason(found.why), found.confirmed) == (None, "counter reset", confirmed)


@needs_shared
def test_d6_a_reset_is_no_wrap_and_a_wrap_is_no_reset() -> None:
    """D6 a."""
    series, expect = case("D6", "series.json"), case("D6", "expect.json")
    for name, key, want in (("reset", "in", expect["reset"]), ("reset", "out", None), ("wrap", "in", expect["wrap_Bps"])):
        one = series[name]
        last, now = (Octets(at, value, 32, one["uptime_s"]) for at, value in zip((0, one["dt"]), one[key], strict=True))
        assert rate(last, now, one["link_bps"]).value == want


def test_d6_a_64_bit_counter_is_never_wrap_corrected() -> None:
    """D6 b."""
    found = rate(Octets(0, 2**64 - 5, 64, 1e6), Octets(10, 5, 64, 1e6 + 10))
    assert (found.value, found.why) == (None, Why.RESET)


def test_d6_a_rate_above_link_speed_is_dropped() -> None:
    """D6 b: one wrap too many, or a counter of another port."""
    found = rate(Octets(0, 0), Octets(1, 20_000_000), 100_000_000)
    assert (found.value, found.why) == (None, OVER_SPEED)
    assert rate(Octets(0, 0), Octets(1, 12_500_000), 100_000_000).value == 12_500_000


@pytest.mark.parametrize(("link", "known"), [(1e9, True), (3.4e9, True), (10e9, False), (400e9, False)])
def test_d6_a_counter_that_may_have_gone_round_twice_says_nothing(link: float, known: bool) -> None:
    """D6, its kind: at 10 Gb/s 32 bits are full in 3.4 s."""
    found = rate(Octets(0, 1000, 32, 9000.0), Octets(10, 2000, 32, 9010.0), link)
    assert (found.value == 100) is known
    assert (found.why == TOO_NARROW) is not known
    assert rate(Octets(0, 1000, 64, 9000.0), Octets(10, 2000, 64, 9010.0), link).value == 100


def test_a_restart_is_seen_though_the_counter_has_overtaken() -> None:
    assert rate(Octets(0, 100, 64, 5000.0), Octets(60, 10**6, 64, 20.0)).why == Why.RESET


def test_a_new_discontinuity_time_is_a_reset_though_the_counter_grew() -> None:
    last, now = Octets(0, 100, discontinuity=0), Octets(10, 200, discontinuity=77)
    assert rate(last, now) .confirmed
    assert rate(Octets(0, 100), now).value == 10


def test_the_uptimes_own_wrap_after_497_days_is_no_restart() -> None:
    end = 2**32 / 100
    assert rate(Octets(0, 1000, 64, end - 4), Octets(10, 2000, 64, 6.0)).value == 100


def test_time_that_stands_still_and_what_cannot_be_read() -> None:
    assert rate(Octets(5, 1), Octets(5, 2)).value is None
    assert rate(Octets(5, 1), Octets(9, None)).why == Why.UNREADABLE
    assert rate(Octets(5, None), Octets(9, 4)).why == Why.FIRST_READING


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.sampled_from([32, 64]),
       st.one_of(st.none(), st.floats(0, 1e7)), st.floats(1e6, 1e12))
def test_no_rate_is_negative_or_above_the_link(last: int, now: int, bits: int, up: float | None, link: float) -> None:
    found = rate(Octets(0, last, bits, None), Octets(10, now, bits, up), link)
    assert (found.value is None) == (found.why != Why.KNOWN)
    if found.value is not None:
        assert 0 <= found.value * 8 <= link * 1.06
