"""Counters to increases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.model import Why
from clustertop.signals.counters import increase, wrap_or_reset

NAN, INF = float("nan"), float("inf")


def grown(last: float, now: float, end: float = INF) -> tuple[float | None, int]:
    """The increase of one counter (None: unknown) and why."""
    growth, why = increase(np.array([last], float), np.array([now], float), end)
    return (None if np.isnan(growth[0]) else float(growth[0])), int(why[0])


@pytest.mark.parametrize(("last", "now", "end", "growth", "why"), [
    (5, 9, INF, 4, Why.KNOWN),
    (5, 5, INF, 0, Why.KNOWN),
    (NAN, 7, INF, None, Why.FIRST_READING),
    (9, 2, INF, None, Why.RESET),
    (7, NAN, INF, None, Why.UNREADABLE),
    (NAN, NAN, INF, None, Why.UNREADABLE),
    (250, 255, 255, None, Why.SATURATED),
    (255, 255, 255, None, Why.SATURATED),
    (NAN, 255, 255, None, Why.SATURATED),
    (255, 3, 255, None, Why.RESET),
    (250, 254, 255, 4, Why.KNOWN),
    (4294967290, 10, INF, None, Why.RESET),
], ids=["grows", "stands", "baseline", "reset", "unread", "never-read", "reaches-its-end", "b2-stays-at-its-end",
        "b2-first-seen-at-its-end", "cleared", "just-below", "no-wrap-is-assumed"])
def test_increase(last: float, now: float, end: float, growth: float | None, why: int) -> None:
    assert grown(last, now, end) == (growth, why)


READING = st.one_of(st.just(NAN), st.integers(0, 2**40).map(float))


@given(READING, READING, st.sampled_from([INF, 15.0, 255.0, 65535.0, 2.0**32 - 1]))
def test_an_increase_is_never_negative_and_a_zero_is_never_invented(last: float, now: float, end: float) -> None:
    growth, why = grown(last, now, end)
    assert (growth is None) == (why != Why.KNOWN)
    if growth is not None:
        assert growth == now - last
        assert growth >= 0
        assert now < end


@given(st.lists(st.tuples(READING, READING), max_size=20))
def test_rows_do_not_touch_each_other(pairs: list[tuple[float, float]]) -> None:
    last, now = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    growth, why = increase(last, now, 255.0)
    alone = [grown(*pair, 255.0) for pair in pairs]
    assert [(None if np.isnan(one) else one, code) for one, code in zip(growth, why, strict=True)] == alone


@pytest.mark.parametrize(("last", "now", "bits", "seconds", "uptime", "growth"), [
    (10, 30, 32, 10, 5000, 20),
    (2**32 - 5, 5, 32, 10, 5000, 10),
    (2**32 - 5, 5, 32, 10, 3, None),
    (2**32 - 5, 5, 32, 10, None, None),
    (2**64 - 5, 5, 64, 10, 5000, None),
], ids=["grows", "wraps", "booted-since", "uptime-unknown", "64-bits-never-wrap"])
def test_wrap_or_reset(
    last: int, now: int, bits: int, seconds: float, uptime: float | None, growth: int | None
) -> None:
    assert wrap_or_reset(last, now, bits, seconds, uptime) == growth
