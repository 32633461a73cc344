"""Recorded output of real BMCs, one row each; runs where the recordings stand beside the project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clustertop.sources import ipmi_read, ipmi_text, redfish_read
from clustertop.sources.bmc_reading import (
    ABSENT,
    NOT_METERED,
    NOT_PROVIDED,
    NOT_TRUSTED,
    OUT_OF_RANGE,
    RATING,
    BmcReading,
    Psu,
    Quantity,
    Sensor,
    Value,
)

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "samples" / "bmc"


def file(name: str) -> str:
    path = SAMPLES / name
    if not path.is_file():
        pytest.skip("no recordings beside the project")
    return path.read_text()


def redfish(name: str) -> BmcReading:
    return redfish_read.read(json.loads(file(f"redfish/{name}.redfish.json")))


def ipmi(name: str) -> BmcReading:
    text = file(name)
    return ipmi_read.read(ipmi_text.sensors(text), ipmi_text.dcmi(text))


def either(value: Value) -> float | str | None:
    """The number, or the reason."""
    return value.number if value.known else value.why


def outputs(reading: BmcReading) -> list[float | str | None]:
    return [either(psu.output_watts) for psu in reading.psus]


def inputs(reading: BmcReading) -> list[float | str | None]:
    return [either(psu.input_watts) for psu in reading.psus]


def named(reading: BmcReading, name: str) -> Sensor:
    return next(each for each in reading.sensors if name in {each.name, each.id.rsplit("/", 1)[-1]})


@pytest.mark.parametrize(("name", "watts", "source", "ins", "outs", "redundancy"), [
    ("hpe-ilo-gen10-power", 565, "PowerControl", [NOT_PROVIDED] * 4, [222, 200, 86, 57], "full"),
    ("hpe-ilo5-power", 221, "PowerControl", [NOT_PROVIDED] * 2, [0, 90], "full"),
    ("dell-idrac9-power", 429, "System Power Control", [RATING], [203], "unknown"),
    ("dell-hms-power", 129, "System Power Control", [NOT_PROVIDED] * 2, [RATING, RATING], "full"),
    ("supermicro-x10-power", NOT_METERED, "", [], [], "unknown"),
    ("dmtf-rackmount1-power", 374, "EnvironmentMetrics", [374, ABSENT], [OUT_OF_RANGE, ABSENT], "lost"),
    ("sushy-sample-power", 1285, "output (their losses not counted)", [NOT_PROVIDED] * 2, [650, 635], "full"),
    ("gigabyte-power", 195, "Chassis Power Control", [NOT_PROVIDED] * 2, [NOT_PROVIDED] * 2, "unknown"),
    ("paradise-power", 121, "PowerControl", [NOT_PROVIDED] * 2, [55, 66], "full"),
    ("delta-powershelf", 1749, "total power in", [341, 249, 353, 258, 262, 290], [326, 239, 338, 248, 252, 278], "unknown"),
    ("supermicro-gb300-power", 1349.263802, "Chassis_0 EnvironmentMetrics", [], [], "unknown"),
    ("no-power-chassis", NOT_PROVIDED, "", [], [], "unknown"),
    ("nvidia-gb300-processors", NOT_PROVIDED, "", [], [], "unknown"),
    ("dmtf-wip-rackpdu", 6438, "RackPDU1", [], [], "unknown"),
    ("gofish-powerequipment", 6438, "Summary Metrics", [OUT_OF_RANGE], [OUT_OF_RANGE], "unknown"),
])
def test_redfish_tree_reads_as_noted(
    name: str, watts: float | str, source: str, ins: list[Any], outs: list[Any], redundancy: str
) -> None:
    reading = redfish(name)
    assert either(reading.watts) == watts
    assert reading.watts_source.endswith(source)
    assert inputs(reading) == ins
    assert outputs(reading) == outs
    assert reading.psu_redundancy.value == redundancy


def test_redfish_capacity_is_a_rating_or_nothing() -> None:
    assert redfish("delta-powershelf").capacity_watts.number == 6 * 5504
    assert redfish("hpe-ilo-gen10-power").capacity_watts.number == 8800
    assert either(redfish("gigabyte-power").capacity_watts) == OUT_OF_RANGE


def test_power_shelf_has_phases_and_supplies() -> None:
    reading = redfish("delta-powershelf")
    assert len(reading.sensors) == 142
    assert {each.quantity for each in reading.sensors} >= {Quantity.CURRENT, Quantity.ENERGY, Quantity.SHARE}
    assert [named(reading, f"current_in_A_{phase}").value.number for phase in "ABC"] == [2.52, 1.84, 2.55]
    assert named(reading, "total_power_out").value.number == 1674
    assert named(reading, "total_current_out").value.number == 33.54
    assert named(reading, "ps1_total_energy_in").value.number == pytest.approx(46.15 * 3.6e6)
    first = reading.psus[0]
    assert (first.input_amps.number, first.output_amps.number) == (1.67, 6.61)
    assert (first.input_volts.number, first.output_volts.number) == (241.5, 49.87)


def test_busbar_tray_has_no_supplies_and_never_adds_chassis() -> None:
    reading = redfish("supermicro-gb300-power")
    gpus = {meter.chassis: meter.watts.number for meter in reading.meters}
    assert gpus["HGX_GPU_0"] == 231.958
    assert named(reading, "Chassis_0_TotalHSC_Power_0").value.number == pytest.approx(1355.40, abs=0.01)
    assert [round(named(reading, f"HGX_GPU_{n}_Power_0").value.number or 0, 1) for n in (0, 1)] == [232.2, 238.8]
    leaks = [each for each in reading.sensors if "LeakDetector" in each.id]
    assert all(1.72 <= (each.value.number or 0) <= 1.74 and each.quantity is Quantity.VOLTAGE for each in leaks)
    assert len(leaks) == 4
    assert reading.alarms == ()


def test_both_meters_of_one_chassis_are_kept() -> None:
    assert [meter.watts.number for meter in redfish("dmtf-rackmount1-power").meters] == [374, 344]


def test_rack_pdu_of_the_draft_schema() -> None:
    reading = redfish("dmtf-wip-rackpdu")
    alarm, = reading.alarms
    assert (alarm.name, alarm.severity) == ("PDU Unit Overload", "critical")
    assert "58703" in alarm.message
    assert reading.alarms_told
    mains, = (circuit for circuit in reading.circuits if circuit.kind == "mains")
    assert dict(mains.line_volts)["Line1ToLine2"].number == 202.8
    assert {name: value.number for name, value in mains.line_amps} == {
        "Line1": 8.02, "Line2": 8.66, "Line3": 6.91, "Neutral": 2.74}
    branches = [circuit for circuit in reading.circuits if circuit.kind == "branch"]
    assert [(branch.name[-1], branch.amps.number, branch.breaker) for branch in branches] == [
        ("A", 5.19, "Normal"), ("B", 5.95, "Normal"), ("C", 4.13, "Normal")]
    assert sum(circuit.kind == "outlet" for circuit in reading.circuits) == 9


def test_rack_pdu_of_the_final_schema() -> None:
    reading = redfish("gofish-powerequipment")
    branch = next(circuit for circuit in reading.circuits if circuit.kind == "branch")
    assert (branch.rated_amps.number, branch.amps.number, branch.watts.number) == (16, 5.19, 937.4)
    outlet = next(circuit for circuit in reading.circuits if circuit.kind == "outlet")
    assert (outlet.amps.number, outlet.volts.number) == (1.68, 117.5)
    assert named(reading, "PWR AUX PWR1").value.number == 0


def test_absent_boards_and_float_noise() -> None:
    x10 = redfish("supermicro-x10-power")
    assert {either(each.value) for each in x10.sensors} == {ABSENT}
    for name in ("dell-idrac9-power", "hpe-ilo-gen10-power", "supermicro-gb300-power"):
        for each in redfish(name).sensors:
            assert each.value.number is None or len(repr(each.value.number)) <= 12


def test_invalid_json_is_one_sentence() -> None:
    from clustertop.sources.redfish_http import Answer

    with pytest.raises(ValueError, match="not JSON"):
        Answer(200, {}, file("redfish/invalid/hp_thermal_invalid.json.txt").encode()).json()


@pytest.mark.parametrize(("name", "watts", "source", "count"), [
    ("ipmitool/dell-fcb.sensor.txt", 374, "Power Meter", 105),
    ("ipmitool/sdr-telegraf-0.txt", 210, "Avg Power", 133),
    ("ipmitool/sdr-telegraf-2.txt", 210, "Avg Power", 9),
    ("ipmitool/sdr-telegraf-3.txt", 110, "sum of 1 power supplies, output (their losses not counted)", 7),
    ("ipmitool/sdr-v-ironic-0.txt", NOT_PROVIDED, "", 4),
    ("ipmitool/sdr-v-ironic-2.txt", NOT_PROVIDED, "", 2),
    ("ipmitool/errors.txt", NOT_PROVIDED, "", 0),
    ("ipmitool/dcmi-power-reading.txt", 167, "DCMI power reading", 0),
    ("freeipmi/hpe-ipmi-dcmi-power.txt", NOT_TRUSTED, "", 0),
    ("freeipmi/hp-dl.ipmi-sensors.txt", "no reading", "", 29),
    ("freeipmi/ipmimonitoring.txt", NOT_PROVIDED, "", 3),
    ("freeipmi/ipmi-sel.txt", NOT_PROVIDED, "", 0),
])
def test_ipmi_text_reads_as_noted(name: str, watts: float | str, source: str, count: int) -> None:
    reading = ipmi(name)
    assert either(reading.watts) == watts
    assert reading.watts_source == source
    assert len(reading.sensors) == count
    assert len({(each.id, each.entity) for each in reading.sensors}) == count


def test_dell_sensor_table() -> None:
    reading = ipmi("ipmitool/dell-fcb.sensor.txt")
    assert named(reading, "PS Current").value.number == 14
    assert [psu.output_amps.number for psu in reading.psus] == [22, 21, None, None]
    assert [either(psu.watts) for psu in reading.psus] == [RATING] * 4
    assert [psu.capacity_watts.number for psu in reading.psus] == [1200] * 4
    assert {psu.state.value for psu in reading.psus} == {"unknown"}
    ambient = named(reading, "FCB Ambient2")
    assert not ambient.value.known
    assert named(reading, "FCB Ambient1").limits.upper_critical == 50
    assert named(reading, "22-LOM").value.why == "no value"
    assert reading.alarms == ()


def test_negative_margin_and_two_cpus_of_one_name() -> None:
    reading = ipmi("ipmitool/sdr-v-ironic-0.txt")
    temps = {each.id: each.value.number for each in reading.sensors if each.name == "Temp"}
    assert temps == {"01h": -58, "02h": 50}


def test_dcmi_has_extremes() -> None:
    found = ipmi_text.dcmi(file("ipmitool/dcmi-power-reading.txt"))
    assert found is not None
    assert (found.least_watts.number, found.most_watts.number, found.average_watts.number) == (124, 422, 156)


def test_sdr_with_states_and_complaints_between() -> None:
    reading = ipmi("ipmitool/sdr-telegraf-3.txt")
    assert named(reading, "Current 1").value.number == 7.2
    assert named(reading, "SEL").value.why == "no reading"
    assert named(reading, "Intrusion").states == ()
    psu, = reading.psus
    assert (psu.state.value, psu.output_watts.number) == ("ok", 110)


def test_freeipmi_supplies_without_numbers() -> None:
    reading = ipmi("freeipmi/hp-dl.ipmi-sensors.txt")
    assert [(psu.state.value, psu.watts.known) for psu in reading.psus] == [("ok", False), ("ok", False)]
    assert reading.psu_redundancy.value == "full"
    assert len(reading.redundancy) == 1
    temps = [each.value.number for each in reading.sensors if each.quantity is Quantity.TEMPERATURE]
    assert temps == [42, 21, 35, 35, 49, 35, 35]
    assert named(reading, "Processor 10 Temp 3").limits.upper_critical is None


def test_freeipmi_event_log() -> None:
    found = ipmi_text.events(file("freeipmi/ipmi-sel.txt"))
    assert [event.id for event in found] == ["14", "493", "494", "495", "496"]
    assert found[0].at == "PostInit"
    assert found[3].message == "S4/S5 soft-off"


def test_r640_by_entity() -> None:
    groups = json.loads(file("ironic/dell-r640.ipmi-sdr-v.json"))["payload"]["payload"]
    sensors = [ipmi_text.from_fields(fields) for group in groups.values() for fields in group.values()]
    reading = ipmi_read.read(sensors)
    assert reading.watts.number == 264
    psus: list[Psu] = list(reading.psus)
    assert [(psu.input_amps.number, psu.input_volts.number) for psu in psus] == [(0.6, 208), (0.6, 208)]
    assert all(psu.state.value == "unknown" for psu in psus)


def test_complaints_are_told_apart() -> None:
    state, words = ipmi_read.complaint(file("ipmitool/errors.txt"))
    assert (state.value, words) == ("auth failed", "the BMC does not offer this kind of login")
