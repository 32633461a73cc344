"""A PDU as something to read again and again: what is asked how often, and what happens when it changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from clustertop.sources.pdu import Pace, Pdu
from clustertop.sources.profile import ProfileError, load
from clustertop.sources.snmp import SnmpError
from pdus import OURS, snmprec
from snmp_fake import fake, table

if TYPE_CHECKING:
    from clustertop.sources.oids import Oid
    from clustertop.sources.pdu_reading import PduReading
    from pdus import Snmpsim
    from snmp_fake import Fake

EATON = (1, 3, 6, 1, 4, 1, 534, 6, 6, 7)
PHASE_AMPS: Oid = (*EATON, 3, 3, 1, 4, 0, 1, 1)
OUTLET_AMPS: Oid = (*EATON, 6, 4, 1, 3, 0, 7)
LIMIT: Oid = (*EATON, 3, 3, 1, 8, 0, 1, 1)


class Time:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


def eaton() -> dict[Oid, object]:
    return dict(snmprec(OURS / "eaton-g3.snmprec"))


def amps(reading: PduReading) -> tuple[float | None, float | None, float | None]:
    phase, outlet = reading.of("phase")[0], reading.of("outlet")[0]
    return phase.amps, outlet.amps, phase.warn_amps


def asked(agent: Fake) -> set[Oid]:
    names = {name for request in agent.seen for name in request.names}
    agent.seen.clear()
    return names


async def test_what_moves_is_read_each_time_outlets_and_limits_seldom() -> None:
    rows, clock = eaton(), Time()
    async with fake(table(rows)) as agent, Pdu(agent.agent(), pace=Pace(600, 60), clock=clock) as pdu:
        assert amps(await pdu.read()) == (28.3, 6.9, 25.6)
        agent.seen.clear()
        rows[PHASE_AMPS], rows[OUTLET_AMPS], rows[LIMIT] = 24000, 5000, 30000
        clock.now += 10
        assert amps(await pdu.read()) == (24, 6.9, 25.6)
        names = asked(agent)
        assert PHASE_AMPS in names
        assert not names & {OUTLET_AMPS, LIMIT}
        clock.now += 50
        assert amps(await pdu.read()) == (24, 5, 25.6)
        assert OUTLET_AMPS in asked(agent)
        clock.now += 540
        assert amps(await pdu.read()) == (24, 5, 30)


async def test_what_is_gone_is_unknown_and_comes_back() -> None:
    rows, clock = eaton(), Time()
    async with fake(table(rows)) as agent, Pdu(agent.agent(), clock=clock) as pdu:
        await pdu.read()
        agent.seen.clear()
        del rows[PHASE_AMPS]
        clock.now += 10
        reading = await pdu.read()
        assert reading.of("phase")[0].amps is None
        assert reading.of("phase")[0].unknown["amps"] == "not provided"
        clock.now += 10
        await pdu.read()
        assert len(agent.seen) == 2, "a flapping agent is not read whole each time"
        rows[PHASE_AMPS] = 11000
        clock.now += 60
        assert (await pdu.read()).of("phase")[0].amps == 11


async def test_what_was_not_provided_at_first_is_asked_for_again() -> None:
    rows, clock = eaton(), Time()
    rows[PHASE_AMPS] = -1
    async with fake(table(rows)) as agent, Pdu(agent.agent(), clock=clock) as pdu:
        assert (await pdu.read()).of("phase")[0].amps is None
        rows[PHASE_AMPS] = 5000
        clock.now += 10
        assert (await pdu.read()).of("phase")[0].amps == 5


async def test_a_part_that_vanishes_is_said_to_be_gone() -> None:
    rows, clock = dict(snmprec(OURS / "hpe-pdumm.snmprec")), Time()
    volts = (1, 3, 6, 1, 4, 1, 232, 165, 2, 3, 2, 1, 2, 1, 1)
    async with fake(table(rows)) as agent, Pdu(agent.agent(), clock=clock) as pdu:
        before = await pdu.read()
        rows[volts] = 0
        clock.now += 10
        reading = await pdu.read()
        assert len(reading.parts) == len(before.parts)
        lost, = [one for one in reading.of("phase") if (one.unit, one.name) == ("1", "L1")]
        assert (lost.amps, lost.unknown["amps"], lost.level) == (None, "gone: it was here before", "unknown")
        rows[volts] = 233
        clock.now += 700
        assert await pdu.read() == before


async def test_a_part_that_is_renamed_is_not_gone() -> None:
    rows, clock = eaton(), Time()
    async with fake(table(rows)) as agent, Pdu(agent.agent(), clock=clock) as pdu:
        before = await pdu.read()
        rows[*EATON, 6, 1, 1, 6, 0, 7] = b"B7"
        clock.now += 700
        reading = await pdu.read()
        assert [one.name for one in reading.of("outlet")] == ["B7"]
        assert len(reading.parts) == len(before.parts)


async def test_another_device_at_the_same_address_is_recognised_after_a_silence() -> None:
    clock = Time()
    async with fake(table(eaton())) as agent, Pdu(agent.agent(timeout=0.7, retries=0), clock=clock) as pdu:
        assert (await pdu.read()).profile == "eaton-g3"
        agent.answers = lambda _: []
        with pytest.raises(SnmpError, match="no answer"):
            await pdu.read()
        agent.answers = table(dict(snmprec(OURS / "enlogic.snmprec")))
        clock.now += 10
        reading = await pdu.read()
        assert reading.profile == "enlogic"
        assert not [one for one in reading.parts if "gone" in one.unknown.get("amps", "")], "the old one's parts are forgotten"


async def test_another_device_at_the_same_address_is_recognised_at_once() -> None:
    rows = eaton()
    async with fake(table(rows)) as agent, Pdu(agent.agent()) as pdu:
        assert (await pdu.read()).profile == "eaton-g3"
        agent.answers = table(dict(snmprec(OURS / "panduit.snmprec")))
        assert (await pdu.read()).profile == "panduit"


async def test_a_profile_may_be_forced_and_must_exist() -> None:
    async with fake(table(eaton())) as agent, Pdu(agent.agent(), load("enlogic")) as pdu:
        reading = await pdu.read()
        assert (reading.profile, reading.problem) == ("enlogic", "no data")
    with pytest.raises(ProfileError, match="there is no profile no-such; there are apc-cpdu, "):
        load("no-such")
    with pytest.raises(ProfileError, match="No such file"):
        load("/nowhere/mine.toml")


async def test_a_device_with_no_end_is_cut_and_says_so() -> None:
    base = (1, 3, 6, 1, 4, 1, 99999, 1)
    rows: dict[Oid, object] = {(*base, number): number for number in range(1, 3000)}
    async with fake(table(rows)) as agent, Pdu(agent.agent(timeout=1, retries=0)) as pdu:
        reading = await pdu.read()
        assert len(reading.numbers) == 2000
        assert reading.notes == ("stopped after 2,000 rows",)
        agent.seen.clear()
        assert await pdu.read() == reading
        assert len(agent.seen) == 1, "what nobody can judge is not walked at each turn, only asked whether it lives"
        agent.answers = lambda _: []
        with pytest.raises(SnmpError, match="no answer"):
            await pdu.read()


async def test_many_are_read_side_by_side_and_a_dead_one_delays_none(agents: Snmpsim) -> None:
    async with fake(lambda _: []) as dead:
        good = [Pdu(agents.agent(name)) for name in ("eaton-g3", "sentry4", "raritan-px2", "panduit") * 4]
        lost = Pdu(dead.agent(timeout=600, retries=0))
        waiting = asyncio.ensure_future(lost.read())
        readings = await asyncio.gather(*(pdu.read() for pdu in good))
        assert not waiting.done()
        assert [one.profile for one in readings] == ["eaton-g3", "sentry4", "raritan-px2", "panduit"] * 4
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        for pdu in (*good, lost):
            pdu.close()
