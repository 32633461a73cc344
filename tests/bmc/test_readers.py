"""Readers on our own trees and on garbage: vendors' ways, rack PDUs, shelves, telemetry, hostile text."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bmc.server import node_tree
from clustertop.sources import ipmi_read, ipmi_text, redfish_map, redfish_read
from clustertop.sources.bmc_reading import BmcReading, Circuit, Psu, Quantity, Sensor, Value, known
from clustertop.sources.redfish_map import Tier
from clustertop.sources.redfish_value import plain_number

BASE = "/redfish/v1"


def values(reading: BmcReading) -> list[Value]:
    """Every number of a reading."""
    found = [reading.watts, reading.capacity_watts]
    for one in (*reading.meters, *reading.psus, *reading.sensors, *reading.circuits):
        slots = type(one).__slots__
        found += [value for name in slots if isinstance(value := getattr(one, name), Value)]
    for circuit in reading.circuits:
        found += [value for _, value in (*circuit.line_amps, *circuit.line_volts)]
    return found


def strings(reading: BmcReading) -> list[str]:
    parts: list[str] = [reading.vendor, reading.model, reading.host_power, reading.watts_source]
    for one in (*reading.meters, *reading.psus, *reading.sensors, *reading.circuits, *reading.alarms, *reading.redundancy):
        parts += [value for name in type(one).__slots__ if isinstance(value := getattr(one, name), str)]
    return parts


def sane(reading: BmcReading) -> bool:
    """Each value is a finite number or has a reason; no text holds a control character."""
    return (all((value.number is None) == bool(value.why) for value in values(reading))
            and all(math.isfinite(value.number) for value in values(reading) if value.number is not None)
            and all(text.isprintable() or text == "" for text in strings(reading)))


KEYS = st.sampled_from([
    "PowerControl", "PowerSupplies", "PowerConsumedWatts", "Voltages", "ReadingVolts", "Reading", "ReadingUnits", "Status",
    "State", "Health", "Members", "@odata.id", "@odata.type", "PowerWatts", "Metrics", "Redundancy", "RedundancySet",
    "PolyPhaseCurrentAmps", "CurrentAmps", "MetricValues", "MetricValue", "MetricProperty", "TriggeredAlarms", "Oem", "Name",
    "PowerInputWatts", "LineInputVoltage", "PowerCapacityWatts", "InputRanges", "Thresholds", "MessageArgs", "PowerState"])
TYPES = st.sampled_from([f"#{name}.v1_0_0.{name}" for name in (
    "Power", "PowerSubsystem", "PowerSupply", "PowerSupplyMetrics", "EnvironmentMetrics", "Sensor", "SensorCollection", "Thermal",
    "Circuit", "Outlet", "OutletGroup", "PowerDistribution", "RackPDU", "PowerDistributionMetrics", "Alarm", "LeakDetector",
    "MetricReport", "Chassis", "ComputerSystem", "ServiceRoot")])
PATHS = st.sampled_from([f"{BASE}/Chassis/1/Power", f"{BASE}/Chassis/1/Sensors/ps1_input_power", f"{BASE}/Chassis/1", f"{BASE}/x",
                         f"{BASE}/PowerEquipment/RackPDUs/1/Branches/A", "", "nonsense", BASE, f"{BASE}/Systems/1"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8) | TYPES | PATHS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), below, max_size=6), max_leaves=20)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(PATHS, st.dictionaries(KEYS, JSON, max_size=8) | JSON, max_size=5))
def test_any_json_is_read_without_a_fall(tree: dict[str, Any]) -> None:
    assert sane(redfish_read.read(tree))
    for path, body in tree.items():
        if isinstance(body, dict):
            assert all(link.startswith("/redfish/") for link, _ in redfish_map.follow(path, body))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=40) | st.tuples(*[st.sampled_from(
    ["", "ok", "ns", "0x00", "10.1", "6Ah", "-1 Amps", "1e999 Watts", "12.5 Watts", "na", "discrete", "Fully Redundant", "\x1b[2J",
     "99999999999999999999 Watts", "PS1 Status", "ID", "Name"])] * 5).map("|".join), max_size=12).map("\n".join))
def test_any_text_is_read_without_a_fall(text: str) -> None:
    sensors = ipmi_text.sensors(text)
    assert sane(ipmi_read.read(sensors, ipmi_text.dcmi(text)))
    assert len({(each.id, each.entity) for each in sensors}) == len(sensors)
    ipmi_text.events(text)
    ipmi_read.complaint(text)


def test_hostile_names_are_cleaned() -> None:
    evil = "fan\x1b]0;owned\x07\u202e[/red]"
    tree = {f"{BASE}/Chassis/1/Power": {"PowerSupplies": [{"Name": evil, "Status": {"State": evil}}],
                                        "Voltages": [{"Name": evil, "ReadingVolts": 12}]},
            f"{BASE}/Chassis/1/Sensors/x": {"@odata.type": "#Sensor.v1_0_0.Sensor", "Name": evil, "Reading": 1},
            f"{BASE}/Chassis/1": {"Model": evil}}
    reading = redfish_read.read(tree)
    assert reading.model == "fan]0;owned[/red]"
    assert sane(reading)
    sensor, = ipmi_text.sensors(f"{evil} | 01h | ok | 7.1 | {evil}")
    assert sensor.name.isprintable()
    assert all(state.isprintable() for state in sensor.states or ())


@pytest.mark.parametrize(("raw", "number"), [
    (11.991999626159668, 11.992), (0.10000000149011612, 0.1), (3.2999999523162842, 3.3), (1355.398772, 1355.398772),
    (230057772.094, 230057772.094), (12, 12), ("344", 344), (" 3.5 ", 3.5), ("3,5", None), (True, None), (None, None), ([], None),
    ("0x10", None), (10 ** 400, None),
])
def test_numbers(raw: object, number: float | None) -> None:
    assert plain_number(raw) == number


@pytest.mark.parametrize(("body", "quantity", "number"), [
    ({"Reading": 3.5, "ReadingUnits": "W", "ReadingType": "Current"}, Quantity.POWER, 3.5),
    ({"Reading": 3.5, "ReadingUnits": "kW"}, Quantity.POWER, 3500),
    ({"Reading": 350, "ReadingUnits": "mA"}, Quantity.CURRENT, 0.35),
    ({"Reading": 2, "ReadingUnits": "kW.h"}, Quantity.ENERGY, 7.2e6),
    ({"Reading": 2, "ReadingType": "EnergykWh"}, Quantity.ENERGY, 7.2e6),
    ({"Reading": 52, "ReadingUnits": "furlong", "ReadingType": "Power"}, Quantity.OTHER, 52),
    ({"Reading": -12.1, "ReadingUnits": "V"}, Quantity.VOLTAGE, -12.1),
    ({"Reading": -12.1, "ReadingUnits": "A"}, Quantity.CURRENT, None),
    ({"Reading": 4294967295, "ReadingUnits": "W"}, Quantity.POWER, None),
    ({"Reading": 5, "ReadingUnits": "W", "Status": {"State": "Disabled"}}, Quantity.POWER, None),
    ({"Reading": None, "ReadingUnits": "W", "Status": {"Health": "OK"}}, Quantity.POWER, None),
    ({"ReadingUnits": "W"}, Quantity.POWER, None),
])
def test_sensor_units(body: dict[str, Any], quantity: Quantity, number: float | None) -> None:
    tree = {f"{BASE}/Chassis/1/Sensors/s": {"@odata.type": "#Sensor.v1_6_0.Sensor", **body}}
    sensor, = redfish_read.read(tree).sensors
    assert (sensor.quantity, sensor.value.number) == (quantity, pytest.approx(number) if number is not None else None)


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def pdu_tree() -> dict[str, Any]:
    """Our own rack PDU and power shelf, and the telemetry of a node."""
    pdu = f"{BASE}/PowerEquipment/RackPDUs/R7"
    shelf = f"{BASE}/PowerEquipment/PowerShelves/S1"
    report = f"{BASE}/TelemetryService/MetricReports/Power"
    return {
        BASE: {"@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot", "PowerEquipment": link(f"{BASE}/PowerEquipment"),
               "TelemetryService": link(f"{BASE}/TelemetryService")},
        f"{BASE}/PowerEquipment": {"@odata.type": "#PowerEquipment.v1_2_0.PowerEquipment",
                                   "RackPDUs": link(f"{BASE}/PowerEquipment/RackPDUs"),
                                   "PowerShelves": link(f"{BASE}/PowerEquipment/PowerShelves")},
        f"{BASE}/PowerEquipment/RackPDUs": {"@odata.type": "#PowerDistributionCollection.PowerDistributionCollection",
                                            "Members": [link(pdu)]},
        f"{BASE}/PowerEquipment/PowerShelves": {"@odata.type": "#PowerDistributionCollection.PowerDistributionCollection",
                                                "Members": [link(shelf)]},
        pdu: {"@odata.type": "#PowerDistribution.v1_3_1.PowerDistribution", "Model": "R-32", "Mains": link(f"{pdu}/Mains"),
              "Metrics": link(f"{pdu}/Metrics")},
        f"{pdu}/Metrics": {"@odata.type": "#PowerDistributionMetrics.v1_3_0.PowerDistributionMetrics",
                           "PowerWatts": {"Reading": 5480}},
        f"{pdu}/Mains": {"@odata.type": "#CircuitCollection.CircuitCollection", "Members": [link(f"{pdu}/Mains/M1")]},
        f"{pdu}/Mains/M1": {
            "@odata.type": "#Circuit.v1_7_0.Circuit", "Name": "Inlet", "RatedCurrentAmps": 32, "BreakerState": "Tripped",
            "PolyPhaseCurrentAmps": {"Line1": {"Reading": 8.1}, "Line2": {"Reading": None}, "Line3": {"Reading": -1}},
            "CurrentAmps": {"Reading": 0}, "Status": {"State": "Enabled", "Health": "Critical"}},
        shelf: {"@odata.type": "#PowerDistribution.v1_3_1.PowerDistribution", "Metrics": link(f"{shelf}/Metrics")},
        f"{shelf}/Metrics": {"@odata.type": "#PowerDistributionMetrics.v1_3_0.PowerDistributionMetrics",
                             "PowerWatts": {"Reading": 9310}},
        f"{BASE}/TelemetryService": {"@odata.type": "#TelemetryService.v1_3_0.TelemetryService",
                                     "MetricReports": link(f"{BASE}/TelemetryService/MetricReports")},
        f"{BASE}/TelemetryService/MetricReports": {"@odata.type": "#MetricReportCollection.MetricReportCollection",
                                                   "Members": [link(report)]},
        report: {"@odata.type": "#MetricReport.v1_4_0.MetricReport", "MetricValues": [
            {"MetricId": "Consumed", "MetricValue": "733", "MetricProperty": f"{BASE}/Chassis/1/Power#/PowerControl/0/PowerConsumedWatts"},
            {"MetricId": "Something", "MetricValue": "5", "MetricProperty": f"{BASE}/Chassis/1/Sensors/Unknown"},
            {"MetricId": "Bad", "MetricValue": "n/a"}, None]},
    }


def test_rack_pdu_shelf_and_telemetry() -> None:
    reading = redfish_read.read(pdu_tree())
    assert [(meter.chassis, meter.watts.number) for meter in reading.meters] == [("PDU R7", 5480), ("PDU S1", 9310)]
    main, = reading.circuits
    assert (main.kind, main.rated_amps.number, main.amps.number, main.breaker) == ("mains", 32, 0, "Tripped")
    assert [(name, value.number) for name, value in main.line_amps] == [("Line1", 8.1), ("Line2", None), ("Line3", None)]
    assert [(each.name, each.quantity, each.value.number) for each in reading.sensors] == [
        ("Consumed", Quantity.POWER, 733), ("Something", Quantity.OTHER, 5)]


def test_every_resource_of_our_trees_is_reached_by_links() -> None:
    for tree in (pdu_tree(), node_tree()):
        reached, wanted = set(), [(BASE, Tier.STATIC)]
        while wanted:
            path, _ = wanted.pop()
            if path in tree and path not in reached:
                reached.add(path)
                wanted += redfish_map.follow(path, json.loads(json.dumps(tree[path])))
        assert reached == {path.rstrip("/") for path in tree}


def test_shelf_sensors_are_live_where_there_is_nothing_else() -> None:
    chassis = {"@odata.type": "#Chassis.v1_0_0.Chassis", "Sensors": link(f"{BASE}/Chassis/S/Sensors")}
    assert list(redfish_map.follow(f"{BASE}/Chassis/S", chassis)) == [(f"{BASE}/Chassis/S/Sensors", Tier.LIVE)]
    chassis["Power"] = link(f"{BASE}/Chassis/S/Power")
    assert dict(redfish_map.follow(f"{BASE}/Chassis/S", chassis))[f"{BASE}/Chassis/S/Sensors"] is Tier.DETAIL


def test_the_same_supplies_twice_and_inner_chassis_are_read_seldom() -> None:
    chassis = {"@odata.type": "#Chassis.v1_0_0.Chassis", "Power": link(f"{BASE}/Chassis/S/Power"),
               "PowerSubsystem": link(f"{BASE}/Chassis/S/PowerSubsystem")}
    wanted = {f"{BASE}/Chassis/S/Power": Tier.LIVE, f"{BASE}/Chassis/S/PowerSubsystem": Tier.DETAIL}
    assert dict(redfish_map.follow(f"{BASE}/Chassis/S", chassis)) == wanted
    for inner in ({"ChassisType": "Module"}, {"Links": {"ContainedBy": link(f"{BASE}/Chassis/T")}}):
        assert set(dict(redfish_map.follow(f"{BASE}/Chassis/S", {**chassis, **inner})).values()) == {Tier.DETAIL}


def test_an_inner_chassis_is_never_the_whole() -> None:
    tree = node_tree()
    tree[f"{BASE}/Chassis/Board/EnvironmentMetrics"]["PowerWatts"]["Reading"] = 9000
    assert redfish_read.read(tree).watts.number == 6120.5
    del tree[f"{BASE}/Chassis/Node/EnvironmentMetrics"]["PowerWatts"]
    assert redfish_read.read(tree).watts_source == "sum of 2 power supplies, input"
    del tree[f"{BASE}/Chassis/Node"]
    for path in [path for path in tree if path.startswith(f"{BASE}/Chassis/Node/")]:
        del tree[path]
    assert redfish_read.read(tree).watts.number == 9000


@pytest.mark.parametrize(("name", "field", "number"), [
    ("ps1_input_power", "input_watts", 512), ("power_ps1_input_power", "input_watts", 512),
    ("current_ps1_output_current", "output_amps", 512), ("PSU1 Input Voltage", "input_volts", 512),
    ("PS1OutputPower", "output_watts", 512), ("PSU_1_Input_Current", "input_amps", 512), ("ps11_input_power", "input_watts", None),
    ("ps1_standby_output_power", "output_watts", None), ("cpu1_input_power", "input_watts", None),
])
def test_sensors_named_after_a_supply(name: str, field: str, number: float | None) -> None:
    unit = {"watts": "W", "amps": "A", "volts": "V"}[field.rsplit("_", 1)[1]]
    tree = {f"{BASE}/Chassis/N/PowerSubsystem/PowerSupplies/Bay1": {
                "@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Status": {"State": "Enabled", "Health": "OK"}},
            f"{BASE}/Chassis/N/Sensors/{name.replace(' ', '')}": {
                "@odata.type": "#Sensor.v1_6_0.Sensor", "Name": name, "Reading": 512, "ReadingUnits": unit}}
    psu, = redfish_read.read(tree).psus
    assert getattr(psu, field).number == number


@pytest.mark.parametrize(("status", "more", "state"), [
    ({"State": "Enabled", "Health": "OK"}, {}, "ok"),
    ({"Health": "OK"}, {}, "ok"),
    ({"State": "Enabled"}, {}, "unknown"),
    ({}, {}, "unknown"),
    ({"State": "Absent"}, {}, "absent"),
    ({"State": "Enabled", "Health": "Warning"}, {}, "warning"),
    ({"State": "Enabled", "Health": "Critical"}, {}, "failed"),
    ({"State": "UnavailableOffline", "Health": "Critical"}, {"LineInputStatus": "LossOfInput"}, "ac_lost"),
    ({"State": "UnavailableOffline", "Health": "Critical"}, {"LineInputVoltage": 0}, "ac_lost"),
    ({"State": "Enabled", "Health": "Critical"},
     {"Oem": {"Dell": {"DellPowerSupplyView": {"DetailedState": "Presence Detected, Power Supply Input Lost"}}}}, "ac_lost"),
    ({"State": "UnavailableOffline", "Health": "OK"}, {}, "warning"),
])
def test_supply_states(status: dict[str, Any], more: dict[str, Any], state: str) -> None:
    tree = {f"{BASE}/Chassis/N/Power": {"PowerControl": [{"PowerConsumedWatts": 300}], "PowerSupplies": [
        {"Status": status, **more}, {"LineInputVoltage": 230, "LastPowerOutputWatts": 280, "Status": {"Health": "OK"}}]}}
    assert redfish_read.read(tree).psus[0].state.value == state


@pytest.mark.parametrize(("lines", "watts", "source", "supply"), [
    ("PSU1_PIN | 11h | ok | 19.1 | 310 Watts\nPSU2_PIN | 12h | ok | 19.2 | 290 Watts", 600, "sum of 2 power supplies, input",
     ("input_watts", 310)),
    ("Total_Power | 10h | ok | 21.1 | 615 Watts\nPSU1_POUT | 11h | ok | 19.1 | 280 Watts", 615, "Total_Power",
     ("output_watts", 280)),
    ("PSU_Total_PIN | 10h | ok | 21.1 | 615 Watts", None, "", None),
    ("PS1 Input Power | 11h | ok | 10.1 | 900 Watts\nPW Consumption | 12h | ok | 21.1 | 412 Watts", 412, "PW Consumption",
     ("input_watts", None)),
    ("CPU1 Power | 10h | ok | 3.1 | 200 Watts\nGPU Total Power | 11h | ok | 11.1 | 900 Watts", None, "", None),
    ("PSU1_IIN | 10h | ok | 10.1 | 1.5 Amps\nPSU1_IOUT | 11h | ok | 10.1 | 25 Amps", None, "", ("input_amps", 1.5)),
    ("PSU1 Current | 10h | ok | 10.1 | 25 Amps\nPSU1 12V | 11h | ok | 10.1 | 12.1 Volts", None, "", ("input_amps", None)),
])
def test_ipmi_names_of_several_makers(lines: str, watts: float | None, source: str, supply: tuple[str, float | None] | None) -> None:
    reading = ipmi_read.read(ipmi_text.sensors(lines))
    assert (reading.watts.number, reading.watts_source) == (watts, source)
    if supply is not None:
        assert getattr(reading.psus[0], supply[0]).number == supply[1]
    else:
        assert reading.psus == ()


def test_two_shelves_keep_their_own_supplies() -> None:
    tree: dict[str, Any] = {}
    for shelf, watts in (("S1", 700), ("S2", 900)):
        base = f"{BASE}/PowerEquipment/PowerShelves/{shelf}"
        tree[f"{base}/PowerSupplies/1"] = {"@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Status": {"Health": "OK"}}
        tree[f"{base}/Sensors/ps1_input_power"] = {
            "@odata.type": "#Sensor.v1_6_0.Sensor", "Id": "ps1_input_power", "Reading": watts, "ReadingUnits": "W"}
    assert [psu.input_watts.number for psu in redfish_read.read(tree).psus] == [700, 900]


def test_a_value_is_a_number_or_a_reason() -> None:
    assert known(0.0).known
    assert known(0.0).why == ""
    assert Value().why
    assert Psu("1", "a").watts.why == "not provided"
    assert Circuit("1", "mains", "a").amps.number is None
    assert Sensor("1", "a", Quantity.CURRENT, known(1)).unit == "A"
