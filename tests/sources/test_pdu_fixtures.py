"""One recording and its meaning per device profile, written by us, through the real SNMP client and agent."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.sources.pdu import Pdu
from clustertop.sources.pdu_reading import interpret
from clustertop.sources.profile import LIMITS, QUANTITIES, profiles, recognise
from pdus import OURS, snmprec

if TYPE_CHECKING:
    from clustertop.sources.pdu_reading import PartReading, PduReading
    from pdus import Snmpsim

NAMES = sorted(path.stem for path in OURS.glob("*.snmprec"))


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((OURS / f"{name}.json").read_text("utf-8"))
    return found


def part_of(reading: PduReading, kind: str, name: str, unit: str = "") -> PartReading:
    found = [one for one in reading.parts if (one.kind, one.name, one.unit) == (kind, name, unit)]
    assert len(found) == 1, (kind, name, unit, [(one.kind, one.name, one.unit) for one in reading.parts])
    return found[0]


def assert_means(reading: PduReading, want: dict[str, Any]) -> None:
    assert reading.profile == want["profile"]
    assert reading.problem == want.get("problem", "")
    assert reading.model == want.get("model", reading.model)
    for part in want["parts"]:
        found = part_of(reading, part["kind"], part["name"], part["unit"])
        for key, value in part.items():
            shown = getattr(found, key)
            assert (shown == pytest.approx(value) if isinstance(value, float) else shown == value), (part["name"], key)
            if key in QUANTITIES:
                assert (value is None) == (key in found.unknown), "an unknown has a reason, a value has none"
    for kind, name in want.get("absent", ()):
        assert not [one for one in reading.parts if (one.kind, one.name) == (kind, name)]
    for unit, watts in want.get("total_watts", {}).items():
        assert reading.total("watts", unit) == pytest.approx(watts)


@pytest.mark.parametrize("name", NAMES)
async def test_a_fixture_means_what_we_say(name: str, agents: Snmpsim) -> None:
    async with Pdu(agents.agent(name)) as pdu:
        first = await pdu.read()
        assert_means(first, expected(name))
        asked = pdu.client.requests
        assert await pdu.read() == first, "what moves is read alone and means the same"
        assert pdu.client.requests - asked <= 2


@pytest.mark.parametrize("name", NAMES)
def test_no_value_is_negative_absurd_or_without_a_source(name: str) -> None:
    rows = snmprec(OURS / f"{name}.snmprec")
    profile = recognise(rows)
    assert profile is not None
    for part in interpret(profile, rows).parts:
        for quantity in (*QUANTITIES, *LIMITS):
            value = getattr(part, quantity)
            if value is not None:
                assert value >= 0
                assert math.isfinite(value)
                source = part.raw[quantity]
                assert rows[source.oid] == source.value


def test_every_profile_has_a_fixture_pair_and_no_fixture_is_orphaned() -> None:
    assert {expected(name)["profile"] for name in NAMES} == set(profiles())
    assert {path.stem for path in OURS.glob("*.json")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_device_is_recognised_by_its_tree_alone(name: str) -> None:
    rows = {one: value for one, value in snmprec(OURS / f"{name}.snmprec").items() if one[:7] == (1, 3, 6, 1, 4, 1, one[6])}
    found = recognise(rows)
    if name == "apc-masterswitch":
        assert found is None, "its tree is that of any switched APC unit"
    else:
        assert found is not None
        assert found.name == expected(name)["profile"]


@pytest.mark.parametrize("name", ["raritan-px2", "sentry3", "apc-rpdu"])
async def test_v1_and_v3_read_the_same(name: str, agents: Snmpsim) -> None:
    for agent in (agents.agent(name, version=1), agents.secure(name)):
        async with Pdu(agent) as pdu:
            reading = await pdu.read()
            assert_means(reading, expected(name))
            assert await pdu.read() == reading
