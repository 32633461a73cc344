"""Field cases C1 to C6: on the cases' own files where they are, and on inputs of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clustertop.signals import power
from clustertop.sources.pdu import Pdu
from clustertop.sources.pdu_reading import BRANCHES_UNKNOWN, UNSCALED, interpret, total, unscaled
from clustertop.sources.profile import parse, profiles, recognise
from pdus import OURS, SHARED, snmprec
from snmp_fake import fake, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.sources.oids import Oid, Value
    from clustertop.sources.pdu_reading import PduReading

CASES = SHARED / "cases"
shared_case = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
APC_LOAD: Oid = (1, 3, 6, 1, 4, 1, 318, 1, 1, 12, 2, 3, 1, 1)


def case(name: str, file: str) -> Any:
    return json.loads((CASES / name / file).read_text("utf-8"))


def apc(rows: list[dict[str, int]]) -> PduReading:
    """A reading of the older APC table, with its rows of bank, phase and load."""
    cells: dict[Oid, Value] = {}
    for number, row in enumerate(rows, 1):
        for column, value in ((2, row["load"]), (4, row["phase"]), (5, row["bank"])):
            cells[(*APC_LOAD, column, number)] = value
    return interpret(profiles()["apc-rpdu"], cells)


@shared_case
def test_c1_tenths_and_bank_0_is_the_total_on_the_case_file() -> None:
    """C1: 9.8 A in all, 8.4 A and 1.8 A on the banks; the total row is no bank."""
    want = case("C1", "expect.json")
    reading = apc(case("C1", "snmp.json")["rows"])
    assert [one.amps for one in reading.of("phase")] == [want["total_a"]]
    assert {one.name.split()[-1]: one.amps for one in reading.of("bank")} == want["banks_a"]


def test_c1_three_phases_with_banks_of_our_own() -> None:
    """C1: phases and banks in one table are told apart; nothing is counted twice."""
    rows = [{"bank": 0, "phase": phase, "load": 110 + phase} for phase in (1, 2, 3)]
    rows += [{"bank": bank, "phase": (bank + 1) // 2, "load": 50 + bank} for bank in range(1, 7)]
    reading = apc(rows)
    assert [(one.name, one.amps) for one in reading.of("phase")] == [("L1", 11.1), ("L2", 11.2), ("L3", 11.3)]
    assert [one.amps for one in reading.of("bank")] == [5.1, 5.2, 5.3, 5.4, 5.5, 5.6]
    with pytest.raises(ValueError, match="adds up"):
        reading.total("amps")


async def test_c1_an_unprofiled_device_shows_raw_numbers_and_cannot_alert() -> None:
    """C1: without a profile there is nothing but raw numbers, marked unscaled."""
    rows: dict[Oid, object] = {(1, 3, 6, 1, 4, 1, 99999, 1, number): 980 + number for number in range(1, 5)}
    rows[1, 3, 6, 1, 2, 1, 1, 1, 0] = b"some power strip"
    async with fake(table(rows)) as agent, Pdu(agent.agent()) as pdu:
        reading = await pdu.read()
    assert reading.problem == UNSCALED
    assert reading.parts == ()
    assert reading.total("watts") is None
    assert sorted(reading.numbers.values()) == [981, 982, 983, 984]
    assert unscaled({}).problem == "no data"


@shared_case
def test_c2_ten_times_too_high_is_an_implausible_scale_on_the_case_file() -> None:
    """C2: raw 71 is 7.1 A in a profile of tenths; taken as it is, it is implausible on a 15 A breaker, not overload."""
    want = case("C2", "expect.json")
    for unit, row in case("C2", "snmp.json").items():
        scaled = row["raw"] / 10
        assert scaled == want["with_profile_tenths"][unit]
        assert power.judged(scaled, row["breaker_a"], scaled).tolist() == power.OK
        assert power.judged(row["raw"], row["breaker_a"], row["raw"]).tolist() == power.IMPLAUSIBLE
        assert power.judged(row["raw"], row["breaker_a"], scaled).tolist() == power.UNKNOWN, "one reading is no proof"
        limits = power.limits(row["breaker_a"], device_critical=row["limit"])
        assert (limits.warning_amps, limits.critical_amps, limits.source) == (12, 13.125, "configured")
        assert bool(limits.disagreement) == (row["limit"] == 3), "a limit that disagrees is told, and not used"


@shared_case
def test_c3_minus_one_is_not_provided_on_the_case_file() -> None:
    """C3: totals of 1.7, 0.9 and 1.2 kW, whatever the rows with -1 are for."""
    text = """
title = "modular"
source = "the case"
base = "1.3.6.1.4.1.99999"
match = [{ tree = "1.3.6.1.4.1.99999" }]
[[parts]]
kind = "phase"
name = "L{1}"
unit = "{0}"
watts = { oid = ".1.*", scale = 100 }
"""
    profile = parse(text, "modular")
    raw, want = case("C3", "snmp.json"), case("C3", "expect.json")
    rows: dict[Oid, Value] = {(1, 3, 6, 1, 4, 1, 99999, 1, int(module), phase): value for module in want
                              for phase, value in enumerate(raw[module], 1)}
    reading = interpret(profile, rows)
    assert {unit: (reading.total("watts", unit) or 0) / 1000 for unit in reading.units} == want
    for part in reading.parts:
        assert part.watts is None or part.watts >= 0
        assert part.unknown.get("watts") == ("not provided" if part.watts is None else None)


def test_c3_a_sum_says_how_much_of_it_is_missing() -> None:
    """C3: None is left out and counted; with nothing given there is no sum, not 0."""
    assert total([1.5, None, 2.0]) == (3.5, 1)
    assert total([None, None]) == (None, 2)
    assert total([]) == (None, 0)


@shared_case
def test_c4_one_line_is_over_though_the_total_is_not_on_the_case_file() -> None:
    """C4: two line-to-line loads: L2 carries 86 % of its breaker, L1, L3 and the total are fine."""
    given, want = case("C4", "pdu.json"), case("C4", "expect.json")
    lines = np.array(power.line_amps(given["groups_va"]["L1L2"], given["groups_va"]["L2L3"], 0, given["volts"]))
    assert lines == pytest.approx(list(given["line_a"].values()), abs=0.01)
    shares = power.share(lines, given["breaker_a"])
    over = [name for name, level in zip(("L1", "L2", "L3"), power.levels(shares), strict=True) if level >= power.WARNING]
    assert over == want["alert"]
    assert shares[1] * 100 == pytest.approx(want["pct"]["L2"], abs=0.1)
    whole = given["total_va"] / (np.sqrt(3) * given["volts"] * given["breaker_a"] * 0.8) * 100
    assert whole == pytest.approx(want["total_pct_of_80"], abs=0.1), "the total alone looks fine"


def test_c4_phases_are_judged_each_by_itself_from_a_device() -> None:
    """C4: from a device that reports lines and line-to-line loads; the loads have no breaker and are not judged."""
    rows = snmprec(OURS / "sentry4.snmprec")
    profile = recognise(rows)
    assert profile is not None
    reading = interpret(profile, rows)
    lines = reading.of("phase")
    found = power.levels(power.share([one.amps for one in lines], [one.rating_amps for one in lines]))
    assert dict(zip([one.name for one in lines], found.tolist(), strict=True)) == {"AA:L1": power.OK, "AA:L2": power.WARNING}
    assert [one.rating_amps for one in reading.of("delta")] == [None]


@shared_case
def test_c5_a_branch_has_a_breaker_of_its_own_on_the_case_file() -> None:
    """C5: branch B alerts at 84.5 % though the inlet is at 67 %."""
    given, want = case("C5", "pdu.json"), case("C5", "expect.json")
    parts: Mapping[str, Any] = {"inlet": given["inlet"], **given["branches"]}
    found = power.levels(power.share([one["a"] for one in parts.values()], [one["breaker_a"] for one in parts.values()]))
    assert [name for name, level in zip(parts, found, strict=True) if level >= power.WARNING] == want["alert"]


def test_c5_branches_of_an_older_mib_and_devices_without_them() -> None:
    """C5: the branch table of Sentry3 is read with its own capacity; without one the unit says so."""
    rows = snmprec(OURS / "sentry3.snmprec")
    reading = interpret(profiles()["sentry3"], rows)
    branch = next(one for one in reading.of("branch") if one.name == "AA2")
    assert power.levels(power.share(branch.amps, branch.rating_amps)).tolist() == power.WARNING
    assert BRANCHES_UNKNOWN not in reading.notes
    without = {name: value for name, value in rows.items() if name[6:9] != (1718, 3, 2) or name[9] != 7}
    assert BRANCHES_UNKNOWN in interpret(profiles()["sentry3"], without).notes


@shared_case
def test_c6_neither_feed_can_carry_both_on_the_case_file() -> None:
    """C6: 13.0 A and 12.5 A on 30 A each are light, and 25.5 A on one of them is not."""
    given, want = case("C6", "pdu.json"), case("C6", "expect.json")
    a, b, breaker = given["load_a"]["A"], given["load_a"]["B"], given["breaker_a"]
    assert power.levels(power.share([a, b], breaker)).tolist() == [power.OK, power.OK]
    assert power.failover_share(a, b, breaker, breaker)[0] * breaker == pytest.approx(want["failover_a"])
    assert power.failover_levels(a, b, breaker, breaker, warning=given["rule"]).tolist() == power.WARNING


def test_c6_pairs_are_declared_and_without_a_declaration_the_check_is_not_configured() -> None:
    """C6: feeds 0 and 1 are a pair, 2 has none, 3 and 4 are light, 5 and 6 cannot be known."""
    amps = [13.0, 12.5, 29.0, 4.0, 5.0, 13.0, float("nan")]
    alone, levels = power.paired(amps, [30.0] * 7, [1, 0, -1, 4, 3, 6, 5])
    assert alone[[0, 1, 3]] == pytest.approx([0.85, 0.85, 0.3])
    assert np.isnan(alone[[2, 5, 6]]).all()
    assert levels.tolist() == [power.WARNING, power.WARNING, power.NOT_CONFIGURED, power.OK, power.OK, power.UNKNOWN,
                               power.UNKNOWN]
    unlike, level = power.paired([10.0, 10.0], [32.0, 16.0], [1, 0])
    assert unlike.tolist() == [0.625, 1.25]
    assert level.tolist() == [power.CRITICAL, power.CRITICAL], "the pair is as good as its smaller breaker"


def test_c6_a_lost_feed_is_one_event_and_a_step_to_zero_is_no_good_news() -> None:
    """C6: A falls to none and B rises by as much: the feed is lost. Without that, it is a trip or an open question."""
    assert power.feed_event(13, 0.1, 30, other_before=12.5, other_now=25.2) == "feed lost"
    assert power.feed_event(13, 0.0, 30, other_before=12.5, other_now=12.6, nodes_lost=3) == "breaker tripped"
    assert power.feed_event(13, 0.0, 30, other_before=12.5, other_now=12.6) == "load gone"
    assert power.feed_event(13, 0.0, 30, dead=bool(power.voltage_gone(0.0, 230.0))) == "feed lost"
    assert power.feed_event(13, 0.0, 30, dead=bool(power.voltage_gone(46.0))) == "load gone", "48 V of direct current are no dead cord"
    assert power.feed_event(13, 12.0, 30, other_before=12.5, other_now=25) == ""
    assert power.feed_event(13, float("nan"), 30) == "", "not read is not gone"
    assert power.feed_event(0.3, 0.0, 30) == "", "nothing much was there"
    assert power.feed_event(13, 0.2, 30, tripped=True) == "breaker tripped"
