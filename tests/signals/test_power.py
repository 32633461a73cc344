"""What currents mean: shares, limits, pairs, wiring, trip curve and forecast."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop.signals import power

NAN = math.nan


def test_a_share_of_what_is_not_known_is_not_known() -> None:
    found = power.share([16, 0, NAN, 16, 16, -1], [32, 32, 32, NAN, 0, 32])
    assert found[:2].tolist() == [0.5, 0]
    assert np.isnan(found[2:]).all()
    assert power.levels(found).tolist() == [power.OK, power.OK, *[power.UNKNOWN] * 4]


def test_the_limits_are_at_80_and_87_and_a_half_percent() -> None:
    amps = [25.5, 25.6, 27.9, 28.0, 32.0, 40.0]
    assert power.levels(power.share(amps, 32)).tolist() == [
        power.OK, power.WARNING, power.WARNING, power.CRITICAL, power.CRITICAL, power.CRITICAL]
    assert power.levels([0.5, 0.7], warning=0.6, critical=0.65).tolist() == [power.OK, power.CRITICAL]


def test_three_times_a_breaker_is_a_wrong_scale_at_the_second_reading() -> None:
    found = power.judged([71, 71, 71, 20, NAN, 71], [15, 15, 15, 15, 15, NAN], [71, 7, NAN, 71, 71, 71])
    assert found.tolist() == [power.IMPLAUSIBLE, power.UNKNOWN, power.UNKNOWN, power.CRITICAL, power.UNKNOWN, power.UNKNOWN]


def test_amps_volts_and_watts_vouch_for_one_another() -> None:
    amps, volts = [7.1, 71, 0.71, 7.1, 7.1, NAN, 2.0], [230, 230, 230, 230, 2300, 230, 120]
    watts = [1600, 1600, 1600, NAN, 1600, 1600, 20]
    assert power.scales_disagree(amps, volts, watts).tolist() == [False, True, True, False, True, False, False]


def test_the_configured_rating_decides_and_the_device_is_heard() -> None:
    assert power.limits(32, 32, 25.6, 28) == power.Limits(25.6, 28.0, "configured")
    small = power.limits(32, 20)
    assert small.warning_amps == 25.6
    assert "rating 20 A" in small.disagreement
    large = power.limits(16, 32, None, 28)
    assert large.critical_amps == 14
    assert "rating 32 A" in large.disagreement
    assert "limit 28 A" in large.disagreement


def test_without_a_configured_rating_the_device_is_believed() -> None:
    assert power.limits(None, 32, 20, None) == power.Limits(20, None, "device limits")
    assert power.limits(None, 20) == power.Limits(16.0, 17.5, "device rating")
    assert power.limits(None) == power.Limits(None, None, "none")
    assert power.limits(0, 20).source == "device rating"


def test_a_pair_is_fine_only_if_both_ratings_are_known() -> None:
    found = power.failover_levels([5, 13, 17, 5, 17, NAN, 12], [5, 12.5, 16, 5, 16, 5, 12], [30, 30, 30, NAN, NAN, 30, 30],
                                  30)
    assert found.tolist() == [power.OK, power.WARNING, power.CRITICAL, power.UNKNOWN, power.CRITICAL, power.UNKNOWN, power.OK]
    on_a, on_b = power.failover_share(10, 10, 32, 16)
    assert (float(on_a), float(on_b)) == (0.625, 1.25), "each against its own breaker"


def test_delta_and_star() -> None:
    balanced = power.line_amps(3000, 3000, 3000, 208)
    assert [float(one) for one in balanced] == pytest.approx([3000 / 208 * math.sqrt(3)] * 3)
    alone = power.line_amps(2080, 0, 0, 208)
    assert [float(one) for one in alone] == pytest.approx([10, 10, 0])
    assert np.isnan(power.line_amps(2080, NAN, 0, 208)[1])
    assert np.isnan(power.line_amps(2080, 0, 0, 0)[0])
    assert power.neutral_amps(20, 20, 20) == 0
    assert power.neutral_amps(20, 0, 0) == 20
    assert power.neutral_amps([10, 20], [0, 20], [10, 10]).tolist() == pytest.approx([10, 10])


def test_estimated_amps() -> None:
    assert power.estimated_amps(7040, 220) == 32
    assert power.estimated_amps(11_000, 400, phases=3, power_factor=0.95) == pytest.approx(16.71, abs=0.01)
    assert np.isnan(power.estimated_amps(100, 0))


@pytest.mark.parametrize(("ratio", "text", "seconds"), [
    (0.99, "within its rating", None), (1.05, "no trip within the hour", None), (1.2, "may trip", None),
    (1.5, "trips within the hour", 3600), (2.6, "within a minute", 60), (100, "within a minute", 60)])
def test_trip_bands(ratio: float, text: str, seconds: float | None) -> None:
    band = power.trip_band(ratio)
    assert band is not None
    assert text in band.text
    assert band.within_seconds == seconds


def test_no_band_for_what_is_unknown() -> None:
    assert power.trip_band(NAN) is None
    assert power.trip_band(-0.1) is None


TIMES = np.arange(0.0, 300.0, 10.0)
NOISE = np.array([0.04, -0.02, 0.01, -0.05, 0.03, 0.0, -0.01, 0.02, -0.03, 0.05] * 3)


def test_a_forecast_hits_the_time_in_spite_of_noise_and_spikes() -> None:
    values = 20 + 0.01 * TIMES + NOISE
    values[[4, 17]] = [45, 0]
    found = power.forecast(TIMES, values, 25.6)
    assert found.slope_per_second == pytest.approx(0.01, rel=0.05)
    assert found.seconds == pytest.approx((25.6 - 22.9) / 0.01, rel=0.05)
    assert found.earliest_seconds is not None
    assert found.latest_seconds is not None
    assert found.earliest_seconds < found.seconds < found.latest_seconds
    assert found.confidence > 0.99
    assert power.forecast(TIMES, 20 + NOISE, 25.6).confidence == pytest.approx(0.5, abs=0.35)
    assert power.forecast(TIMES, 25 - 0.01 * TIMES, 25.6).confidence < 0.01


def test_a_spike_at_the_end_is_not_the_level() -> None:
    values = 20 + 0.01 * TIMES
    values[-1] = 40
    assert power.forecast(TIMES, values, 25.6).seconds == pytest.approx(270, rel=0.1)


@pytest.mark.parametrize(("values", "reason"), [
    (20 + NOISE, "not rising"), (25 - 0.01 * TIMES, "not rising"), (10 + 0.0001 * TIMES, "far from the limit")])
def test_no_time_is_shown_that_means_nothing(values: np.ndarray, reason: str) -> None:
    found = power.forecast(TIMES, values, 25.6)
    assert (found.seconds, found.reason) == (None, reason)


def test_too_few_readings_or_gaps_only() -> None:
    assert power.forecast(TIMES[:5], TIMES[:5], 100).reason == "only 5 readings over 40 s"
    assert power.forecast(TIMES[:8] / 10, TIMES[:8], 100).seconds is None
    gaps = np.where(np.arange(30) % 5 == 0, 20 + 0.01 * TIMES, NAN)
    assert power.forecast(TIMES, gaps, 25.6).seconds == pytest.approx(310, rel=0.01), "six readings are enough"
    assert power.forecast(TIMES, np.full(30, NAN), 25.6).seconds is None
    assert power.forecast([], [], 25.6).seconds is None


def test_at_the_limit_already() -> None:
    found = power.forecast(TIMES, 26 + 0.01 * TIMES, 25.6)
    assert (found.seconds, found.reason) == (0.0, "at the limit")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 1e4), st.just(NAN)), min_size=0, max_size=40), st.floats(0, 1e4))
def test_a_forecast_never_fails_and_never_promises_less_than_nothing(values: list[float], limit: float) -> None:
    found = power.forecast([10.0 * number for number in range(len(values))], values, limit)
    for seconds in (found.seconds, found.earliest_seconds, found.latest_seconds):
        assert seconds is None or seconds >= 0
    if found.seconds:
        assert found.earliest_seconds is not None
        assert found.latest_seconds is not None
        assert found.earliest_seconds <= found.seconds * 1.000001
        assert found.seconds <= found.latest_seconds * 1.000001
