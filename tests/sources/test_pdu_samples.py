"""Recordings of real PDUs, beside the checkout: served by a real agent, read by the real client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clustertop.sources.pdu import Pdu
from clustertop.sources.pdu_reading import interpret
from clustertop.sources.profile import QUANTITIES, recognise
from pdus import SAMPLES, snmprec, snmpwalk

if TYPE_CHECKING:
    from clustertop.sources.pdu_reading import PartReading, PduReading
    from pdus import Snmpsim

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the shared samples are not here")

# sample, kind, name, unit (*: whichever), what it must say.
READINGS: list[tuple[str, str, str, str, dict[str, object]]] = [
    ("apc-ap7900b", "phase", "L1", "", {"amps": 2.8, "warn_amps": 10, "crit_amps": 12}),
    ("apc-ap7900b", "inlet", "inlet", "", {"watts": 312, "va": None, "pf": None}),
    ("apc-ap8853", "phase", "L1", "", {"amps": 4.9, "warn_amps": 26, "crit_amps": 32, "watts": 1140}),
    ("apc-ap8853", "bank", "bank 1", "", {"amps": 0}),
    ("apc-ap8853", "bank", "bank 2", "", {"amps": 4.7}),
    ("apc-ap8959eu3", "phase", "L1", "", {"amps": 1.3, "volts": 231, "watts": 250}),
    ("apc-ap8959eu3", "inlet", "inlet", "", {"watts": 270}),
    ("apc-isx-pdu", "phase", "L1", "", {"amps": 44.9, "va": 5400}),
    ("apc-isx-pdu", "phase", "L2", "", {"amps": 61.7, "va": 7400}),
    ("apc-isx-pdu", "phase", "L3", "", {"amps": 47.9, "va": 5800}),
    ("apc-isx-pdu", "neutral", "N", "", {"amps": 12.1}),
    ("apc-epdu1116s", "phase", "L1", "", {"amps": 0, "volts": None}),
    ("apc-cpdu", "outlet", "outlet 13", "", {"amps": 0.15}),
    ("apc-masterswitch2", "outlet", "outlet 1", "", {"amps": None, "state": "on"}),
    ("snmpsim-apc-7902b", "phase", "L1", "", {"amps": 1.6}),
    ("snmpsim-apc-7902b", "bank", "bank 1", "", {"amps": 0}),
    ("snmpsim-apc-7902b", "bank", "bank 2", "", {"amps": 1.1}),
    ("snmpsim-apc-8932", "phase", "L1", "", {"amps": 1.4, "warn_amps": 19, "crit_amps": 24, "volts": 121, "watts": 160}),
    ("snmpsim-apc-8932", "bank", "bank 1", "", {"amps": 1.3}),
    ("snmpsim-apc-8932", "bank", "bank 2", "", {"amps": 0}),
    ("raritan-dominion-px1", "inlet", "I1", "", {"amps": 2.971, "kwh": None}),
    ("raritan-px2", "inlet", "I1", "", {"amps": 0.68, "watts": 138}),
    ("raritan-px3", "inlet", "I1", "", {"amps": 7.467, "crit_amps": 25.6, "warn_amps": 20.8, "watts": 1665,
                                       "warn_watts": None, "crit_watts": None, "level": "ok"}),
    ("sentry3", "phase", "AA", "1", {"amps": 3.62}),
    ("sentry3", "phase", "BA", "2", {"amps": 5.02}),
    ("sentry3-3phase", "phase", "AA", "", {"amps": 1.11, "watts": 147}),
    ("sentry3-3phase", "phase", "AB", "", {"amps": 0.4, "watts": 53}),
    ("sentry3-3phase", "phase", "AC", "", {"amps": 0.59, "watts": 78}),
    ("sentry3-3phase", "neutral", "AD", "", {"amps": 2.12, "watts": None, "volts": None}),
    ("sentry3-3phase", "inlet", "all", "", {"watts": 279}),
    ("sentry3-switched", "phase", "AA", "", {"amps": 3.09}),
    ("sentry3-switched", "phase", "AB", "", {"amps": 3.92}),
    ("sentry3-switched", "phase", "AC", "", {"amps": 4.34}),
    ("sentry4", "phase", "AA:L1", "1", {"amps": 5.6}),
    ("sentry4", "phase", "AA:L2", "1", {"amps": 3.69}),
    ("sentry4", "phase", "BA:L1", "2", {"amps": 3.84}),
    ("sentry4", "phase", "BA:L2", "2", {"amps": 3.63}),
    ("sentry4", "phase", "BA:L3", "2", {"amps": 3.46}),
    ("sentry4", "inlet", "AA", "1", {"watts": 1701, "va": 1790}),
    ("eaton-epdu-g3", "phase", "L1", "", {"amps": 14.108, "rating_amps": 16, "warn_amps": 12.8, "state": "high warning",
                                         "level": "warning", "watts": 1589}),
    ("cyberpower-pdu81005", "phase", "L1", "", {"amps": 1.1, "watts": 216}),
    ("enlogic-v2", "phase", "L1", "", {"amps": 2.77, "warn_amps": 21, "crit_amps": 24}),
    ("enlogic-v2", "phase", "L2", "", {"amps": 4.72}),
    ("enlogic-v2", "phase", "L3", "", {"amps": 3.18, "watts": None}),
    ("enlogic-v2", "inlet", "inlet", "", {"watts": 1120}),
    ("panduit", "inlet", "inlet", "", {"amps": 4.48, "watts": 956}),
    ("panduit", "bank", "B3", "", {"amps": 1.93}),
    ("panduit", "bank", "B4", "", {"amps": 0}),
    ("panduit", "bank", "B5", "", {"amps": 2}),
    ("panduit", "bank", "B6", "", {"amps": 0.16}),
    ("panduit", "bank", "B7", "", {"amps": 0.13}),
    ("panduit-2", "inlet", "inlet", "", {"amps": 0.48}),
    ("schleifenbauer", "phase", "input 1", "", {"amps": 0.32, "label": "t=master"}),
    ("schleifenbauer", "phase", "input 2", "", {"amps": 0, "label": "t=slave2"}),
    ("schleifenbauer", "phase", "input 3", "", {"amps": 0.32, "label": "t=slave3"}),
    ("vertiv-geist-mn03edr1", "branch", "circuit 1", "", {"amps": 4.67}),
    ("vertiv-geist-mn03edr1", "branch", "circuit 2", "", {"amps": 4.7}),
    ("vertiv-geist-mn03edr1", "branch", "circuit 3", "", {"amps": 4.66}),
    ("vertiv-geist-mn03edr1", "branch", "circuit 4", "", {"amps": 2.57}),
    ("vertiv-geist-mn03edr1", "branch", "circuit 6", "", {"amps": 2.52}),
    ("liebert-mph2", "phase", "L1", "", {"amps": 2.42}),
    ("liebert-mph2", "neutral", "N", "", {"amps": 2.3}),
    ("liebert-mph2", "inlet", "PEM 1", "", {"va": 551}),
    ("hpe-g2-pdu2", "phase", "L1", "", {"amps": 0.535, "watts": 97}),
    ("hpe-pdumm", "phase", "L1", "1", {"amps": 3}),
    ("hpe-pdumm", "phase", "L2", "1", {"amps": 3}),
    ("hpe-pdumm", "phase", "L3", "1", {"amps": 2}),
    ("chatsworth-econnect", "branch", "CB1", "*", {"amps": 7.13}),
    ("conteg-ipdu", "phase", "input 1", "1", {"amps": 0.38}),
    ("conteg-ipdu", "phase", "input 1", "2", {"amps": 1.99}),
    ("dell-rpdu", "inlet", "inlet", "", {"watts": 379}),
    ("aten-pe", "outlet", "port 13", "", {"amps": 0.95}),
    ("tripplite-pdu", "phase", "L1", "", {"amps": 1.0, "watts": 207}),
    ("snmpsim-tripplite-poweralert", "phase", "L1", "", {"amps": 0, "volts": 115.2}),
    ("gude-epc8031", "inlet", "inlet 1", "", {"amps": 0.186, "residual_amps": 0.0005}),
    ("iboot-pdu8", "inlet", "LC1", "", {"amps": 6.21, "volts": 119.96}),
    ("iboot-pdu8", "inlet", "LC2", "", {"amps": 4.02, "volts": 120.49}),
    ("ict-dc-pdu", "branch", "output 0", "", {"amps": 0}),
    ("ict-dc-pdu", "inlet", "bus", "", {"volts": 46}),
    ("ts-bspdu", "inlet", "S1", "", {"amps": 2.83}),
    ("fs-net-pdu", "inlet", "inlet", "", {"amps": 6, "volts": 229}),
    ("rittal-cmciii-pdu", "phase", "L1", "", {"amps": 4.73}),
    ("rittal-cmciii-pdu", "phase", "L2", "", {"amps": 5.56}),
    ("rittal-cmciii-pdu", "phase", "L3", "", {"amps": 2.36}),
    ("rittal-cmciii-pdu", "neutral", "N", "", {"amps": 3.11}),
    ("planet-ipm", "inlet", "inlet", "", {"amps": 0}),
]
TOTALS = {"sentry3-3phase": 279, "panduit": 956, "eaton-epdu-g3": 1584, "cyberpower-pdu81005": 216, "dell-rpdu": 379,
          "apc-ap7900b": 312, "raritan-px3": 1665, "enlogic-v2": 1120}
NAMES = sorted(path.stem for path in SAMPLES.glob("*.snmprec"))


def part_of(reading: PduReading, kind: str, name: str, unit: str) -> PartReading:
    found = [one for one in reading.parts if (one.kind, one.name) == (kind, name) and unit in (one.unit, "*")]
    assert len(found) == 1, (kind, name, unit, [(one.kind, one.name, one.unit) for one in reading.parts])
    return found[0]


@pytest.mark.parametrize("name", NAMES)
async def test_a_recording_reads_as_its_notes_say(name: str, agents: Snmpsim) -> None:
    wanted = [row for row in READINGS if row[0] == name]
    assert wanted, f"{name} has no right reading here"
    async with Pdu(agents.agent(f"shared-{name}")) as pdu:
        reading = await pdu.read()
        for _, kind, called, unit, values in wanted:
            part = part_of(reading, kind, called, unit)
            for key, value in values.items():
                found = getattr(part, key)
                assert found == (pytest.approx(value) if isinstance(value, float) else value), (called, key)
        if name in TOTALS:
            assert reading.total("watts") == TOTALS[name]
        assert await pdu.read() == reading


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_a_recording_is_negative_and_every_unknown_has_its_reason(name: str) -> None:
    rows = snmprec(SAMPLES / f"{name}.snmprec")
    profile = recognise(rows)
    assert profile is not None
    reading = interpret(profile, rows)
    assert reading.problem == ("not metered" if name == "apc-masterswitch2" else "")
    assert reading.parts
    for part in reading.parts:
        for quantity in QUANTITIES:
            value = getattr(part, quantity)
            assert value is None or 0 <= value < 1e6
            assert (value is None) == bool(part.unknown.get(quantity))


def test_names_are_unique_within_their_kind_and_unit() -> None:
    for name in NAMES:
        rows = snmprec(SAMPLES / f"{name}.snmprec")
        profile = recognise(rows)
        assert profile is not None
        keys = [(one.kind, one.unit, one.name) for one in interpret(profile, rows).parts]
        assert len(keys) == len(set(keys)), name


def test_a_walk_printed_by_snmpwalk_reads_the_same_way() -> None:
    rows = snmpwalk(SAMPLES / "raritan-centreon.snmpwalk")
    profile = recognise(rows)
    assert profile is not None
    assert profile.name == "raritan-px2"
    reading = interpret(profile, rows)
    inlet = part_of(reading, "inlet", "I1" if any(one.name == "I1" for one in reading.parts) else reading.of("inlet")[0].name, "")
    assert (inlet.amps, inlet.volts, inlet.watts) == (1.626, 233, 242)
    assert (inlet.warn_amps, inlet.crit_amps) == (10.4, 12.8), "bits 2 and 3 of 0x30, printed as a character"
    assert inlet.warn_watts is None


def test_unused_phases_and_absent_cords_are_left_out() -> None:
    def names(sample: str, kind: str) -> list[str]:
        rows = snmprec(SAMPLES / f"{sample}.snmprec")
        profile = recognise(rows)
        assert profile is not None
        return [one.name for one in interpret(profile, rows).parts if one.kind == kind and one.unit in ("", "1")]

    assert names("hpe-pdumm", "phase") == ["L1", "L2", "L3"]
    assert names("iboot-pdu8", "inlet") == ["LC1", "LC2"]
    assert names("enlogic-v2", "bank") == ["B1", "B2", "B3"]
    assert len(names("panduit", "bank")) == 6
    assert names("ts-bspdu", "inlet") == ["S1", "S2"]


def test_several_pdus_behind_one_agent_are_told_apart() -> None:
    for sample, count in (("conteg-ipdu", 6), ("hpe-pdumm", 2), ("sentry4", 2), ("chatsworth-econnect", 2)):
        rows = snmprec(SAMPLES / f"{sample}.snmprec")
        profile = recognise(rows)
        assert profile is not None
        assert len(interpret(profile, rows).units) == count, sample


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_with_its_numbers_taken_out_has_no_data(name: str) -> None:
    rows = {one: value for one, value in snmprec(SAMPLES / f"{name}.snmprec").items() if one[:6] != (1, 3, 6, 1, 4, 1)}
    whole = snmprec(SAMPLES / f"{name}.snmprec")
    profile = recognise(whole)
    assert profile is not None
    reading = interpret(profile, rows)
    assert reading.problem == "no data"
    assert not reading.parts
    assert reading.total("watts") is None
