"""Delays: jittered, growing, capped, and small again after a good frame."""

from __future__ import annotations

import random

from clustertop.poll.backoff import Backoff


def test_full_jitter_under_a_growing_ceiling() -> None:
    backoff = Backoff(1.0, 60.0, random.Random(7))
    ceilings = [1, 2, 4, 8, 16, 32, 60, 60, 60]
    delays = [backoff.next() for _ in ceilings]
    assert all(0 <= delay <= ceiling for delay, ceiling in zip(delays, ceilings, strict=True))
    assert backoff.failures == len(ceilings)
    backoff.reset()
    assert backoff.next() <= 1.0
    assert backoff.failures == 1


def test_a_herd_is_spread() -> None:
    delays = sorted(Backoff(1.0, 60.0, random.Random(seed)).next() for seed in range(1000))
    tenths = [sum(number / 10 <= delay < (number + 1) / 10 for delay in delays) for number in range(10)]
    assert min(tenths) > 60
