"""Field cases C7 to C10 on what a BMC says: the field's inputs where they stand beside the project, and our own.

C11 to C14 are about how a BMC is asked: test_ipmi_tool.py and test_redfish_server.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clustertop.sources import ipmi_read, ipmi_text, redfish_read
from clustertop.sources.bmc_reading import HOST_OFF, MAYBE_RATING, NOT_METERED, SHORT_LIST_ONLY, BmcReading

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"


def case(name: str, file: str) -> str:
    path = CASES / name / file
    if not path.is_file():
        pytest.skip(f"no {name}/{file} beside the project")
    return path.read_text()


def verbose(states: dict[str, list[str]]) -> str:
    """The blocks that ``ipmitool -v sdr`` prints for these sensors."""
    text = ""
    for number, (name, asserted) in enumerate(states.items(), 0x70):
        text += f"Sensor ID              : {name} (0x{number:x})\n Sensor Type (Discrete): Power Supply (0x08)\n"
        text += " Sensor Reading        : 0h\n"
        if asserted:
            text += " States Asserted       : Power Supply\n"
            text += "".join(f"                         [{state}]\n" for state in asserted)
        text += "\n"
    return text


def read(text: str) -> BmcReading:
    return ipmi_read.read(ipmi_text.sensors(text))


def test_c7_asserted_states_decide_and_ok_never_does() -> None:
    """C7."""
    wanted = json.loads(case("C7", "expect.json"))
    full = read(verbose(json.loads(case("C7", "sdr-verbose.json"))))
    assert full.psu_redundancy.value == wanted["psu_redundancy"]
    assert {psu.name: psu.state.value for psu in full.psus}["PSU 2"] == wanted["ps2"]
    short = read(case("C7", "sdr-short.txt"))
    assert short.psu_redundancy.value == wanted["from_short_only"]
    assert {psu.state.value for psu in short.psus} == {"unknown"}
    assert {(each.value.number, each.value.why) for each in short.sensors} == {(None, SHORT_LIST_ONLY)}


@pytest.mark.parametrize(("states", "redundancy"), [
    (["Fully Redundant"], "full"),
    (["Redundancy Degraded"], "degraded"),
    (["Redundancy Lost"], "lost"),
    (["Non-Redundant: Sufficient from Redundant"], "lost"),
    (["Non-Redundant: Insufficient Resources"], "lost"),
    (["Redundancy Degraded from Fully Redundant"], "degraded"),
    (["Redundancy Degraded from Fully Redundant", "Redundancy Lost"], "lost"),
    ([], "unknown"),
    (["Vendor word"], "unknown"),
])
def test_c7_every_redundancy_word(states: list[str], redundancy: str) -> None:
    """C7: own inputs, all words of the generic redundancy type (IPMI 2.0 table 42-2)."""
    assert read(verbose({"PSU Redundancy": states})).psu_redundancy.value == redundancy
    line = f"PSU Redundancy   | 71h | ok  |  7.1 | {', '.join(states)}"
    assert read(line).psu_redundancy.value == redundancy


@pytest.mark.parametrize(("states", "state"), [
    (["Presence detected"], "ok"),
    (["Presence detected", "Failure detected"], "failed"),
    (["Presence detected", "Predictive failure"], "warning"),
    (["Presence detected", "Power Supply AC lost"], "ac_lost"),
    (["Presence detected", "AC lost or out-of-range"], "ac_lost"),
    (["Presence detected", "Config Error"], "warning"),
    (["Presence detected", "Power Supply Inactive"], "warning"),
    ([], "unknown"),
])
def test_c7_every_supply_word(states: list[str], state: str) -> None:
    """C7: own inputs, all words of the power supply type (IPMI 2.0 table 42-3)."""
    assert [psu.state.value for psu in read(verbose({"PS4 Status": states})).psus] == [state]
    assert [psu.state.value for psu in read(f"Status | 5Eh | ok | 10.4 | {', '.join(states)}").psus] == [state]


def test_c7_fans_that_are_redundant_say_nothing_of_supplies() -> None:
    """C7: the kind."""
    assert read("Fan Redundancy   | 75h | ok  |  7.1 | Fully Redundant").redundancy == ()


def test_c8_no_reading_is_unknown_and_zero_is_zero() -> None:
    """C8."""
    wanted = json.loads(case("C8", "expect.json"))
    for name in ("a", "b"):
        reading = read(case("C8", f"sdr-{name}.txt"))
        amps = {each.entity: each.value.number for each in reading.sensors if each.quantity.value in {"current", "other"}}
        assert amps == {key: value for key, value in wanted[name].items() if key != "watts"}
        assert reading.watts.number == wanted[name]["watts"]


@pytest.mark.parametrize(("status", "text", "why"), [
    ("ns", "No Reading", "no reading"),
    ("ns", "Disabled", "disabled"),
    ("na", "", "no reading"),
    ("ns", "", "no reading"),
    ("ok", "No Reading", "no reading"),
    ("ok", "Disabled", "disabled"),
    ("ok", "-1 Amps", "out of range"),
    ("ok", "na", "no value"),
    ("disabled", "0 Amps", "disabled"),
])
def test_c8_words_for_unknown(status: str, text: str, why: str) -> None:
    """C8: own inputs."""
    sensor, = ipmi_text.sensors(f"PSU Input | 3Ah | {status:<3} | 10.7 | {text}")
    assert (sensor.value.number, sensor.value.why) == (None, why)


def test_c8_same_name_is_two_sensors_and_watts_are_no_amperes() -> None:
    """C8: own inputs."""
    text = ("Current          | 51h | ok  | 10.1 | 0 Amps\n"
            "Current          | 52h | ok  | 10.2 | 1.76 Amps\n"
            "Current          | 53h | ok  |  7.1 | 402 Watts\n"
            "Voltage          | 54h | ok  | 10.1 | 0 Volts\n"
            "Voltage          | 55h | ok  | 10.2 | 231 Volts\n")
    reading = read(text)
    assert len({(each.id, each.entity) for each in reading.sensors}) == 5
    assert [each.value.number for each in reading.sensors if each.quantity.value == "current"] == [0, 1.76]
    assert (reading.watts.number, reading.watts_source) == (402, "Current")
    assert reading.psus[1].input_amps.number == 1.76


def tree(power: dict[str, Any], state: str = "On") -> dict[str, object]:
    return {"/redfish/v1/Chassis/1/Power": power, "/redfish/v1/Systems/1": {"PowerState": state}}


def test_c9_zeros_everywhere_are_no_meter() -> None:
    """C9."""
    wanted = json.loads(case("C9", "expect.json"))
    reading = redfish_read.read(tree(json.loads(case("C9", "redfish-power.json")),
                                     json.loads(case("C9", "system.json"))["PowerState"]))
    assert reading.watts.number == wanted["watts"]
    assert reading.watts.why == NOT_METERED
    assert wanted["status"] == "not_metered"
    assert not any(value.known for psu in reading.psus
                   for value in (psu.watts, psu.input_volts, psu.output_watts, psu.capacity_watts))


def board(watts: float, volts: float, supply: float = 0) -> dict[str, Any]:
    return {"PowerControl": [{"PowerConsumedWatts": watts, "PowerCapacityWatts": 0,
                              "PowerMetrics": {"AverageConsumedWatts": watts}}],
            "PowerSupplies": [{"Name": "A", "LineInputVoltage": volts, "LastPowerOutputWatts": supply},
                              {"Name": "B", "LineInputVoltage": volts, "LastPowerOutputWatts": 0}]}


@pytest.mark.parametrize(("watts", "volts", "supply", "state", "number", "why"), [
    (0, 0, 0, "On", None, NOT_METERED),
    (0, 0, 0, "", None, NOT_METERED),
    (0, 230, 0, "On", None, NOT_METERED),
    (0, 0, 0, "Off", None, HOST_OFF),
    (0, 230, 0, "Off", 0, ""),
    (310, 230, 150, "On", 310, ""),
])
def test_c9_zero_watts(watts: float, volts: float, supply: float, state: str, number: float | None, why: str) -> None:
    """C9: own inputs. A host that runs draws something; one that is off may draw 0 W where a meter is seen to work."""
    reading = redfish_read.read(tree(board(watts, volts, supply), state))
    assert (reading.watts.number, reading.watts.why) == (number, why)


def test_c9_a_zero_beside_figures_is_a_zero_and_a_dead_feed_is_seen() -> None:
    """C9: the other side of it."""
    power = board(300, 229, 280)
    power["PowerSupplies"][1].update(LineInputVoltage=0, Status={"State": "Enabled", "Health": "OK"})
    reading = redfish_read.read(tree(power))
    assert reading.psus[1].output_watts.number == 0
    assert reading.psus[1].state.value == "ac_lost"


def test_c9_over_ipmi_too() -> None:
    """C9: 0 W of a meter of a host that runs."""
    sensors = ipmi_text.sensors("Pwr Consumption  | 76h | ok  |  7.1 | 0 Watts")
    assert ipmi_read.read(sensors, host_power="on").watts.why == NOT_METERED
    assert ipmi_read.read(sensors, host_power="off").watts.number == 0


def test_c10_null_supplies_beside_a_metered_chassis() -> None:
    """C10."""
    wanted = json.loads(case("C10", "expect.json"))
    reading = redfish_read.read(tree(json.loads(case("C10", "redfish-power.json"))))
    assert reading.watts.number == wanted["chassis_w"]
    assert [psu.watts.number for psu in reading.psus] == wanted["psu_w"]
    assert [psu.input_watts.why for psu in reading.psus] == [MAYBE_RATING] * 2


@pytest.mark.parametrize(("supply", "chassis", "number"), [
    ({"PowerInputWatts": 1100}, 380, None),
    ({"PowerInputWatts": 1100}, None, None),
    ({"PowerInputWatts": 1100, "PowerCapacityWatts": 1100, "PowerOutputWatts": 1050}, None, None),
    ({"PowerInputWatts": 402, "PowerOutputWatts": 371}, None, 402),
    ({"PowerInputWatts": 395}, 391, 395),
    ({"PowerInputWatts": 1400, "PowerOutputWatts": 130}, 140, None),
    ({"PowerInputWatts": "416.5", "PowerOutputWatts": "380"}, None, 416.5),
    ({"PowerInputWatts": True, "PowerOutputWatts": 380}, None, None),
    ({"PowerInputWatts": -3, "PowerOutputWatts": 380}, None, None),
    ({"PowerInputWatts": None}, 391, None),
    ({"PowerInputWatts": 0, "PowerOutputWatts": 0, "LineInputVoltage": 228}, 391, 0),
])
def test_c10_input_watts_count_only_where_borne_out(supply: dict[str, Any], chassis: float | None, number: float | None) -> None:
    """C10: own inputs. A rating stands in the place of a load; output or chassis must bear it out."""
    reading = redfish_read.read(tree({"PowerControl": [{"PowerConsumedWatts": chassis}], "PowerSupplies": [supply]}))
    assert reading.psus[0].input_watts.number == number


def test_c10_a_null_or_broken_member_costs_itself() -> None:
    """C10 b."""
    reading = redfish_read.read(tree({
        "PowerControl": [None, {"PowerConsumedWatts": None}, 7, {"PowerConsumedWatts": 388}],
        "PowerSupplies": [None, {"Name": None, "MemberId": "1", "PowerOutputWatts": 190, "Status": None}, "x"],
        "Voltages": {"not": "a list"}, "Redundancy": None}))
    assert reading.watts.number == 388
    assert [(psu.name, psu.output_watts.number) for psu in reading.psus] == [("PSU 1", 190)]


def test_c7_short_list_says_why() -> None:
    """C7 b: the reason is shown."""
    group, = read("PS Redundancy    | 0x00              | ok").redundancy
    assert group.words == SHORT_LIST_ONLY
