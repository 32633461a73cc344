"""One BMC as a poller sees it: field cases C11 c, C12 and C14 b, on a clock of our own."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.sources.bmc import Bmc, BmcSettings
from clustertop.sources.bmc_reading import BmcReading, BmcState, Event, known
from clustertop.sources.care import BmcFailure, wait_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now


class Source:
    """A BMC that does what the test orders."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.failure: BmcFailure | None = None
        self.hold: asyncio.Event | None = None
        self.slow_hold: asyncio.Event | None = None
        self.slow_budgets: list[float] = []
        self.reads: list[float] = []
        self.at_once = self.most_at_once = 0
        self.slow_cancelled = 0
        self.closed = 0
        self.watts = 400.0

    async def read(self, *, detail: bool) -> BmcReading:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            at = self.clock.now
            self.reads.append(at)
            if self.hold is not None:
                await self.hold.wait()
            if self.failure is not None:
                raise self.failure
            return BmcReading(source="test", taken_at=at, watts=known(self.watts))
        finally:
            self.at_once -= 1

    async def slow(self, seconds: float) -> Mapping[str, Any]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.slow_budgets.append(seconds)
        at = self.clock.now
        try:
            if self.slow_hold is not None:
                await self.slow_hold.wait()
            return {"events": (Event("1", "now", "PSU", "lost"),), "events_at": at}
        except asyncio.CancelledError:
            self.slow_cancelled += 1
            raise
        finally:
            self.at_once -= 1

    async def aclose(self) -> None:
        self.closed += 1


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def made(interval: float = 10.0, patience: float = 0.02) -> tuple[Bmc, Source, Clock]:
    clock = Clock()
    source = Source(clock)
    bmc = Bmc(source, BmcSettings(interval_seconds=interval, patience_seconds=patience), clock, random.Random(3))
    return bmc, source, clock


async def test_c11_not_answering_since_and_growing_back_off() -> None:
    """C11 c: the row says since when; the waits grow; what is skipped is counted."""
    bmc, source, clock = made()
    source.failure = BmcFailure(BmcState.NOT_ANSWERING, "no answer within 8 s")
    first_wall = clock.wall()
    for _ in range(100):
        status = (await bmc.read()).status
        clock.now += 10
    assert status.state is BmcState.NOT_ANSWERING
    since = time.strftime("%H:%M", time.localtime(first_wall))
    assert status.words == f"not answering since {since}: no answer within 8 s"
    gaps = [after - before for before, after in zip(source.reads, source.reads[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert gaps[-1] > 250
    assert status.skipped + len(source.reads) == 100
    assert status.skipped >= 50
    assert status.failures == len(source.reads)
    source.failure = None
    clock.now = status.next_at
    status = (await bmc.read()).status
    assert (status.state, status.words, status.failures, status.since_wall) == (BmcState.UP, "", 0, 0.0)
    await bmc.aclose()


async def test_c14_no_attempt_sooner_than_the_normal_interval_after_a_failure() -> None:
    """C14 b: for every kind of failure, and never synchronised by chance of rounding."""
    for state in BmcState:
        for failures in (1, 2, 5, 40):
            for asked in (0.0, 5.0, 4000.0):
                wait = wait_seconds(BmcFailure(state, "", wait_seconds=asked), failures, 60.0, random.Random(1))
                assert wait >= max(60.0, asked)
                assert wait <= 1.1 * max(3600.0, asked)
    bmc, source, clock = made(60.0)
    source.failure = BmcFailure(BmcState.BUSY, "HTTP 503")
    for _ in range(120):
        await bmc.read()
        clock.now += 1
    assert len(source.reads) == 2
    await bmc.aclose()


async def test_c12_a_late_result_is_used_with_its_true_age() -> None:
    """C12 b."""
    bmc, source, clock = made()
    assert (await bmc.read()).watts.number == 400
    clock.now += 10
    source.hold, source.watts = asyncio.Event(), 417.0
    late = await bmc.read()
    assert (late.status.state, late.watts.number, late.age(clock.now)) == (BmcState.SLOW, 400, 10)
    clock.now += 12
    assert (await bmc.read()).status.skipped == 1
    source.hold.set()
    await turns()
    reading = bmc.reading
    assert (reading.status.state, reading.watts.number, reading.age(clock.now)) == (BmcState.UP, 417, 12)
    assert reading.status.late == 1
    assert source.most_at_once == 1
    await bmc.aclose()


async def test_c12_a_slow_event_log_neither_delays_nor_fails_the_readings() -> None:
    """C12 a: the field's sensors and event log, at a fiftieth of their time; no alert, sensors fresh, BMC up."""
    path = CASES / "C12" / "scenario.json"
    scenario = json.loads(path.read_text()) if path.is_file() else {"reads": {"sensors": 2.1, "sel": 32.7}, "interval_s": 10}
    bmc, source, clock = made(scenario["interval_s"])
    source.slow_hold = asyncio.Event()
    for poll in range(1, 9):
        reading = await bmc.read()
        await turns()
        assert reading.status.state is BmcState.UP
        assert reading.age(clock.now) == 0
        assert len(source.reads) == poll
        clock.now += scenario["interval_s"]
    assert source.slow_cancelled == 7
    assert all(0 < budget < scenario["interval_s"] for budget in source.slow_budgets)
    assert source.most_at_once == 1
    source.slow_hold.set()
    await bmc.read()
    began = clock.now
    await turns()
    clock.now += 3
    assert bmc.reading.events[0].message == "lost"
    assert bmc.reading.events_at == began
    await bmc.aclose()


async def test_c12_a_failing_event_log_leaves_the_bmc_up() -> None:
    """C12 a: the other way to fail."""
    bmc, source, clock = made()

    async def failing(seconds: float) -> Mapping[str, Any]:
        raise BmcFailure(BmcState.NOT_ANSWERING, "sel")

    source.slow = failing  # type: ignore[method-assign]
    for _ in range(3):
        assert (await bmc.read()).status.state is BmcState.UP
        await turns()
        clock.now += 10
    assert bmc.reading.status.failures == 0
    await bmc.aclose()


async def test_many_callers_ask_once() -> None:
    bmc, source, _ = made()
    source.hold = asyncio.Event()
    readings = await asyncio.gather(*(bmc.read() for _ in range(20)))
    assert len(source.reads) == 1
    assert bmc.reading.status.skipped == 19
    assert {reading.watts.why for reading in readings} == {"not read yet"}
    source.hold.set()
    await turns()
    assert bmc.reading.watts.number == 400
    await bmc.aclose()


async def test_a_cancelled_caller_loses_nothing() -> None:
    bmc, source, _ = made(patience=5)
    source.hold = asyncio.Event()
    task = asyncio.create_task(bmc.read())
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    source.hold.set()
    await turns()
    assert bmc.reading.watts.number == 400
    await bmc.aclose()


async def test_closing_ends_what_is_under_way_and_asks_no_more() -> None:
    bmc, source, clock = made()
    source.hold = asyncio.Event()
    await bmc.read()
    await bmc.aclose()
    await bmc.aclose()
    assert (source.at_once, source.closed) == (0, 1)
    clock.now += 1000
    assert (await bmc.read()).status.state is BmcState.CLOSED
    assert len(source.reads) == 1


async def test_a_bug_of_ours_is_not_taken_for_the_bmcs() -> None:
    bmc, source, _ = made()

    async def broken(*, detail: bool) -> BmcReading:
        raise ZeroDivisionError

    source.read = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await bmc.read()
    await bmc.aclose()
