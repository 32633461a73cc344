"""A real ipmitool over lanplus against OpenIPMI's ipmi_sim, whose sensors move."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from bmc.simulator import PASSWORD, USER, Simulator, simulated
from clustertop.sources.bmc import Bmc, BmcSettings
from clustertop.sources.bmc_reading import BmcReading, BmcState
from clustertop.sources.care import BmcFailure
from clustertop.sources.ipmi import Ipmi, IpmiSettings, IpmiTarget
from clustertop.sources.secret import Secret
from clustertop.sources.tool import Ran, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = {"packet_seconds": 1, "packet_tries": 1}


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with simulated(tmp_path_factory.mktemp("ipmi_sim")) as running:
        yield running


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CT_TEST_SIM", PASSWORD)


def bmc_of(simulator: Simulator, **changes: Any) -> Ipmi:
    values = {"host": "127.0.0.1", "port": simulator.port, "user": USER, "password": Secret.from_spec("env:CT_TEST_SIM"),
              "cipher": "3", **changes}
    return Ipmi(IpmiTarget(**values), IpmiSettings(**SECONDS))


async def eventually(ipmi: Ipmi, wanted: Callable[[BmcReading], bool]) -> BmcReading:
    async with asyncio.timeout(60):
        while not wanted(reading := await ipmi.read(detail=False)):
            await asyncio.sleep(0.05)
    return reading


async def test_sensors_that_move(simulator: Simulator) -> None:
    ipmi = bmc_of(simulator)
    try:
        reading = await eventually(ipmi, lambda reading: reading.watts.number == 600)
        assert reading.watts_source == "Sys Power"
        assert reading.host_power == "off"
        assert [(psu.input_amps.number, psu.input_volts.number, psu.state.value) for psu in reading.psus] == [
            (2.4, 231, "ok"), (0, 229, "ok")]
        assert reading.psu_redundancy.value == "full"
        for raw in (200, 80, 255):
            simulator.set(0x30, raw)
            assert (await eventually(ipmi, lambda reading, raw=raw: reading.watts.number == raw * 4)).watts.known
    finally:
        simulator.set(0x30, 150)
        await ipmi.aclose()


async def test_c7_asserted_states_through_the_real_tool(simulator: Simulator) -> None:
    """C7, live: presence and AC lost on the second supply, redundancy lost; then well again."""
    ipmi = bmc_of(simulator)
    try:
        simulator.set(0x41, 0b1001)
        simulator.set(0x42, 0b10)
        reading = await eventually(ipmi, lambda reading: reading.psu_redundancy.value == "lost")
        reading = await eventually(ipmi, lambda reading: reading.psus[1].state.value == "ac_lost")
        assert reading.psus[0].state.value == "ok"
        assert reading.psus[1].words == "Presence detected, Power Supply AC lost"
        simulator.set(0x41, 0b1)
        simulator.set(0x42, 0b1)
        reading = await eventually(ipmi, lambda reading: reading.psu_redundancy.value == "full")
        await eventually(ipmi, lambda reading: reading.psus[1].state.value == "ok")
    finally:
        simulator.set(0x41, 1)
        simulator.set(0x42, 1)
        await ipmi.aclose()


async def test_event_log_power_state_and_limits_through_the_real_tool(simulator: Simulator) -> None:
    ipmi = bmc_of(simulator)
    try:
        await ipmi.read(detail=False)
        assert await ipmi.slow(20) == {"host_power": "off"}
        events = (await ipmi.slow(20))["events"]
        assert len(events) == 32
        assert (events[-1].id, events[-1].message, events[-1].asserted) == ("28", "Power Supply AC lost", True)
        assert await ipmi.slow(20) == {}
        reading = await ipmi.read(detail=False)
        assert len(reading.events) == 32
        assert reading.notes == ()
    finally:
        await ipmi.aclose()


@pytest.mark.parametrize(("changes", "state", "words"), [
    ({"password": Secret.from_spec("command:echo falsch")}, BmcState.AUTH_FAILED, "wrong password"),
    ({"user": "nobody"}, BmcState.AUTH_FAILED, "unknown user"),
    ({"port": 9}, BmcState.NOT_ANSWERING, "no session could be established"),
])
async def test_refusals_through_the_real_tool(simulator: Simulator, changes: dict[str, Any], state: BmcState, words: str) -> None:
    ipmi = bmc_of(simulator, **changes)
    with pytest.raises(BmcFailure, match=words) as failure:
        await ipmi.read(detail=False)
    assert failure.value.state is state
    assert ipmi.runs == 1
    await ipmi.aclose()


async def test_a_bmc_that_dies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last reading stands with its age, the row says that it no longer answers, and no password is logged."""
    caplog.set_level(logging.DEBUG)
    with simulated(tmp_path) as running:
        ipmi = bmc_of(running)
        bmc = Bmc(ipmi, BmcSettings(interval_seconds=0.2, patience_seconds=30))
        assert (await bmc.read()).status.state is BmcState.UP
        running.stop()
        status = (await bmc.read()).status
        assert status.state is BmcState.NOT_ANSWERING
        assert bmc.reading.watts.number == 600
        await bmc.aclose()
    assert PASSWORD not in caplog.text


async def test_a_bmc_that_does_not_tell_its_ciphers_is_asked_only_once(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[list[str]] = []

    async def counted(argv: list[str], **how: Any) -> Ran:
        runs.append(argv)
        return await run(argv, **how)

    monkeypatch.setattr("clustertop.sources.ipmi.run", counted)
    ipmi = bmc_of(simulator, cipher="")
    try:
        for _ in range(2):
            assert (await ipmi.read(detail=False)).watts.known
    finally:
        await ipmi.aclose()
    assert len(runs) >= 4
    assert ["-C" in argv for argv in runs] == [False, *[True] * (len(runs) - 1)], "each without waits for what never comes"
