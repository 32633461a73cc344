"""How ipmitool is run: field cases C11 and C12 with a stand-in program that hangs, and where the password goes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmc.standin import Standin
from clustertop.sources.bmc import Bmc, BmcSettings
from clustertop.sources.bmc_reading import BmcReading, BmcState
from clustertop.sources.care import BmcFailure
from clustertop.sources.ipmi import Ipmi, IpmiSettings, IpmiTarget
from clustertop.sources.secret import Secret
from clustertop.sources.tool import MAX_OUTPUT, ToolMissingError, run

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
PASSWORD = "Uhu-42 %$'\""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standin:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CT_TEST_IPMI", PASSWORD)
    monkeypatch.setenv("IPMI_PASSWORD", "from our own environment")
    return Standin(folder)


def target(**changes: Any) -> IpmiTarget:
    return IpmiTarget(**{"host": "127.0.0.1", "user": "reader", "password": Secret.from_spec("env:CT_TEST_IPMI"), **changes})


def source(**changes: Any) -> Ipmi:
    return Ipmi(target(), IpmiSettings(**{"grace_seconds": 0.1, **changes}))


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


HANGS = {
    "sleeps": "sleep 600",
    "ignores TERM": "trap '' TERM; sleep 600; sleep 600",
    "leaves a child with the pipe": "sleep 600 & exit 0",
    "leaves a child that ignores TERM": "(trap '' TERM; sleep 600; sleep 600) & sleep 600",
    "prints for ever": "while :; do echo 'x | 01h | ok | 7.1 | 1 Watts'; done",
}


@pytest.mark.parametrize("how", HANGS)
async def test_c11_a_hung_bmc_has_one_child_at_most(tool: Standin, how: str) -> None:
    """C11: 100 polls of a tool that never returns, at a 500th of the field's times."""
    scenario = {"polls": 100, "interval_s": 10, "deadline_s": 8}
    wanted = {"max_children": 1, "skipped_at_least": 50}
    if (CASES / "C11").is_dir():
        scenario = json.loads((CASES / "C11" / "scenario.json").read_text())
        wanted = json.loads((CASES / "C11" / "expect.json").read_text())
    scale = 1 / 500 if how == "sleeps" else 1 / 2000
    tool.order("chassis", HANGS[how])
    interval = scenario["interval_s"] * scale
    bmc = Bmc(source(deadline_seconds=max(0.1, scenario["deadline_s"] * scale)),
              BmcSettings(interval_seconds=interval, patience_seconds=interval / 2))
    most = polls = 0
    async with asyncio.timeout(60):
        # On a busy machine some are ended before they have written down that they were called.
        while polls < scenario["polls"] or not most or len(tool.called()) < 2:
            status = (await bmc.read()).status
            most = max(most, len(tool.groups()))
            polls += 1
            await asyncio.sleep(interval / 2)
    assert most == wanted["max_children"]
    assert status.skipped >= wanted["skipped_at_least"]
    await until(lambda: bmc.reading.status.failures > 0)
    status = bmc.reading.status
    assert status.state is BmcState.NOT_ANSWERING
    assert re.match(r"not answering since \d\d:\d\d: the tool did not end within", status.words)
    await bmc.aclose()
    assert tool.groups() == set()
    assert tool.alive() == []


async def test_c11_closing_ends_the_group_at_once(tool: Standin) -> None:
    """C11 b: exit and cancellation end it as the deadline does."""
    tool.order("chassis", HANGS["leaves a child that ignores TERM"])
    bmc = Bmc(source(), BmcSettings(patience_seconds=0.02))
    await bmc.read()
    await until(lambda: len(tool.called()) == 1)
    await bmc.aclose()
    assert tool.groups() == set()


async def test_c11_a_bmc_that_comes_back_is_read(tool: Standin) -> None:
    """C11 c: and the row is clear again."""
    tool.order("chassis", "sleep 600")
    ipmi = source(deadline_seconds=0.1)
    bmc = Bmc(ipmi, BmcSettings(interval_seconds=0.05, patience_seconds=60))
    assert (await bmc.read()).status.state is BmcState.NOT_ANSWERING
    tool.forget("chassis")
    ipmi._settings = replace(ipmi._settings, deadline_seconds=60.0)
    await asyncio.sleep(0.06)
    reading = await bmc.read()
    assert (reading.status.state, reading.status.words, reading.watts.number) == (BmcState.UP, "", 512)
    assert reading.psu_redundancy.value == "full"
    assert reading.psus[0].input_amps.number == 1.2
    await bmc.aclose()


async def test_c12_sensors_stay_fresh_beside_a_log_that_takes_three_intervals(tool: Standin) -> None:
    """C12 a: more than 8 lines never come before the next poll: read in parts that do, never two runs at once."""
    tool.order("sdr elist", "sleep 0.1")
    tool.order("sel elist", 'if [ "$last" -gt 8 ]; then sleep 600; else sleep "0.0$last"; fi')
    interval = 0.5
    bmc = Bmc(source(events_seconds=0.0, power_state_seconds=1e6, limits_seconds=1e6, first_events=64, deadline_seconds=900),
              BmcSettings(interval_seconds=interval, patience_seconds=900))
    seen: list[BmcReading] = []
    loop = asyncio.get_running_loop()
    await bmc.read()
    async with asyncio.timeout(60):
        while len(seen) < 5 or not seen[-1].events:
            at = loop.time()
            # A poll that waited for the log would not come back.
            reading = await bmc.read()
            assert reading.status.state is BmcState.UP
            assert reading.taken_at is not None
            assert reading.taken_at >= at, "it is this poll's"
            assert len(tool.groups()) <= 1
            seen.append(reading)
            await asyncio.sleep(max(0.0, at + interval - loop.time()))
    assert 0 < len(seen[-1].events) <= 8
    assert seen[-1].events[0].message == "Power Supply AC lost"
    assert seen[-1].events[0].asserted is True
    assert seen[-1].status.failures == seen[-1].status.skipped == 0
    await bmc.aclose()
    assert tool.groups() == set()


async def test_c12_a_log_that_never_comes_is_said(tool: Standin) -> None:
    """C12 a: the reason is recorded, and nothing else suffers."""
    tool.order("sel elist", "sleep 600")
    ipmi = source(power_state_seconds=1e6, limits_seconds=1e6)
    await ipmi.read(detail=False)
    await ipmi.slow(0.1)  # the power state
    assert await ipmi.slow(0.2) == {}
    reading = await ipmi.read(detail=False)
    assert reading.watts.number == 512
    assert reading.notes == ("event log: 32 lines took longer than 0.2 s",)
    assert tool.groups() == set()
    await ipmi.aclose()


async def test_the_password_is_in_no_argument_no_environment_and_on_no_disk(
    tool: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ipmi = source()
    await ipmi.read(detail=True)
    for _ in range(3):
        await ipmi.slow(60)
    assert (tool.folder / "password").read_text() == PASSWORD + "\n"
    assert re.fullmatch(r"/dev/fd/\d+\n", (tool.folder / "file").read_text())
    environment = (tool.folder / "environ").read_text()
    arguments = (tool.folder / "cmdlines").read_text()
    assert "-H 127.0.0.1" in arguments
    assert "-L USER" in arguments
    for text in (environment, arguments, caplog.text, repr(ipmi), repr(target()), repr(vars(ipmi))):
        assert PASSWORD not in text
        assert "from our own environment" not in text
    await ipmi.aclose()


async def test_sensor_records_are_copied_once_into_a_private_folder(tool: Standin, monkeypatch: pytest.MonkeyPatch,
                                                                   tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ipmi = source()
    for _ in range(3):
        await ipmi.read(detail=False)
    folder, = tmp_path.glob("clustertop-sdr-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    words = [(what.split()[1] if what.startswith("sdr") else what.split()[0], cache) for _, what, cache in tool.called()]
    assert words.count(("dump", "no")) == 1
    assert words.count(("elist", "yes")) == 3
    assert words.count(("chassis", "no")) == 1
    assert sum(what == "dcmi" for what, _ in words) == 1  # it has none: not asked again soon
    await ipmi.aclose()
    assert not folder.exists()


async def test_without_a_copy_it_is_read_all_the_same(tool: Standin) -> None:
    tool.order("sdr dump", "exit 1")
    ipmi = source()
    assert (await ipmi.read(detail=False)).watts.number == 512
    assert (await ipmi.read(detail=False)).watts.number == 512
    assert sum(what.startswith("sdr dump") for _, what, _ in tool.called()) == 1
    await ipmi.aclose()


@pytest.mark.parametrize(("said", "state", "words"), [
    ("> RAKP 2 HMAC is invalid\nError: Unable to establish IPMI v2 / RMCP+ session", BmcState.AUTH_FAILED, "wrong password"),
    ("RAKP 2 message indicates an error : unauthorized name\nError: Unable to establish", BmcState.AUTH_FAILED, "unknown user"),
    ("RAKP 2 message indicates an error : insufficient resources for session\nError: Unable to establish IPMI",
     BmcState.MAX_SESSIONS, "the BMC has no session free"),
    ("RAKP 2 message indicates an error : unauthorized role requested\nError: Unable", BmcState.FORBIDDEN, "privilege"),
    ("Get Auth Capabilities error\nError: Unable to establish IPMI v2 / RMCP+ session", BmcState.NOT_ANSWERING, "no session"),
    ("Invalid completion code received: Insufficient privilege level\nError: Unable to establish", BmcState.NOT_ANSWERING, "no"),
    ("Segmentation fault", BmcState.BAD_ANSWER, "without saying why"),
])
async def test_complaints(tool: Standin, said: str, state: BmcState, words: str) -> None:
    tool.order("chassis", f"echo '{said}' >&2; exit 1")
    ipmi = source()
    with pytest.raises(BmcFailure, match=words) as failure:
        await ipmi.read(detail=False)
    assert failure.value.state is state
    assert (failure.value.wait_seconds >= 1800) == (state is BmcState.MAX_SESSIONS)
    await ipmi.aclose()


async def test_a_status_with_sensors_is_used_and_noted(tool: Standin) -> None:
    tool.order("sdr elist", f"cat {tool.folder}/sdr; echo 'Unable to send command: Invalid argument' >&2; exit 1")
    ipmi = source()
    reading = await ipmi.read(detail=False)
    assert reading.watts.number == 512
    assert reading.notes == ("the tool ended with status 1: Unable to send command: Invalid argument",)
    tool.order("sdr elist", "echo 'Unable to open SDR for reading' >&2; exit 1")
    with pytest.raises(BmcFailure, match="sensor records"):
        await ipmi.read(detail=False)
    await ipmi.aclose()


async def test_limits_and_host_power_come_in_their_own_time(tool: Standin) -> None:
    tool.order("sdr list", "printf 'Sensor ID              : Pwr Consumption (0x76)\\n Entity ID             : 7.1 (System Board)\\n"
               " Sensor Type (Threshold)  : Other (0x0b)\\n Sensor Reading        : 512 (+/- 4) Watts\\n Status                : ok\\n"
               " Upper critical        : 1914.000\\n Upper non-critical    : 1738.000\\n'; exit 0")
    ipmi = source()
    assert (await ipmi.read(detail=False)).sensors[0].limits.upper_critical is None
    assert await ipmi.slow(60) == {"host_power": "on"}
    assert len((await ipmi.slow(60))["events"]) == 32
    await ipmi.slow(60)
    limits = (await ipmi.read(detail=False)).sensors[0].limits
    assert (limits.upper_caution, limits.upper_critical) == (1738, 1914)
    await ipmi.aclose()


async def test_no_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CT_TEST_IPMI", PASSWORD)
    bmc = Bmc(Ipmi(target(), IpmiSettings(program=str(tmp_path / "ipmitool"))))
    status = (await bmc.read()).status
    assert status.state is BmcState.NO_TOOL
    assert "No such file or directory" in status.words
    await bmc.aclose()


async def test_a_secret_that_cannot_be_had_is_said(tool: Standin) -> None:
    bmc = Bmc(Ipmi(target(password=Secret.from_spec("env:CT_TEST_NOT_SET"))))
    status = (await bmc.read()).status
    assert status.state is BmcState.AUTH_FAILED
    assert status.words.endswith("the environment has no CT_TEST_NOT_SET")
    assert tool.called() == []
    await bmc.aclose()


@pytest.mark.parametrize("changes", [{"host": "-oProxy"}, {"host": "a b"}, {"host": ""}, {"host": "$(x)"},
                                     {"privilege": "user; x"}, {"cipher": "3 -P x"}])
def test_what_is_no_target(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"not a host|a privilege is"):
        Ipmi(target(**changes))


async def test_output_without_end_is_cut(tmp_path: Path) -> None:
    ran = await run(["sh", "-c", "head -c 3000000 /dev/zero; echo no >&2; exit 7"], deadline_seconds=20,
                    env={"PATH": os.environ["PATH"]})
    assert (ran.status, len(ran.out), ran.err, ran.overdue) == (7, MAX_OUTPUT, "no\n", False)


async def test_a_run_that_cannot_start_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(ToolMissingError):
            await run([str(tmp_path / "none"), "{secret}"], deadline_seconds=1, env={}, secret="x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_under_uvloop(tool: Standin) -> None:
    uvloop = pytest.importorskip("uvloop")
    tool.order("sdr elist", "sleep 600")

    async def go() -> None:
        bmc = Bmc(source(deadline_seconds=0.3), BmcSettings(interval_seconds=0.05))
        status = (await bmc.read()).status
        assert status.state is BmcState.NOT_ANSWERING
        await bmc.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(go())
    assert (tool.folder / "password").read_text() == PASSWORD + "\n"
    assert tool.groups() == set()
