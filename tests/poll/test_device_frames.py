"""Readings of PDUs and BMCs as frames: what arrives in the store is what was read, and what was not has its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bmc.server import node_tree
from clustertop.model import NodeInfo
from clustertop.places import Device, Site
from clustertop.poll.bmc_frames import bmc_facts, bmc_part
from clustertop.poll.device_frames import Row, encoded, frame, table_part
from clustertop.poll.pdu_frames import circuits_part, pdu_facts, pdu_part
from clustertop.signals import bmc, pdu
from clustertop.sources import redfish_read
from clustertop.sources.bmc_reading import Alarm, BmcReading, Circuit, Psu, PsuState, Quantity, Sensor, known, unknown
from clustertop.sources.pdu_reading import PartReading, PduReading, gone, interpret, unscaled
from clustertop.sources.profile import load, profiles
from clustertop.store.store import Store
from clustertop.wire.frame import MAX_FRAME, MAX_ROWS, decode
from pdus import OURS, snmprec

if TYPE_CHECKING:
    from clustertop.store.view import TableView
    from clustertop.wire.frame import GroupPart


def stored(group: str, part: GroupPart, facts: dict[str, Any] | None = None) -> Store:
    """A store that took *part* as a recording would give it: from its bytes."""
    part = msgspec.structs.replace(part, iv=10.0, n=1)
    made, raw = encoded(frame(1, 100.0, 5000.0, {group: part}, facts or {}, {"failures": 0.0}))
    again = decode(raw)
    assert again == made
    assert again.full
    site = Site(devices=(Device("p", "pdu", None), Device("b", "bmc", None, of="d")))
    store = Store([NodeInfo("d")], site=site)
    assert store.frame(1 if group == "pdu" else 2, 100.0, 5000.0, again)
    store.tick(101.0)
    return store


def view(store: Store, name: str) -> TableView:
    return store.view(101.0, 5001.0).tables[name]


def part(**changes: Any) -> PartReading:
    return replace(PartReading("phase", "L1", "", "", (1, 1)), **changes)


def test_a_pdu_of_our_own_recordings_reads_the_same_in_the_store() -> None:
    reading = interpret(load("apc-rpdu"), snmprec(OURS / "apc-rpdu.snmprec"))
    assert reading.parts
    table = view(stored("pdu", pdu_part(reading, 99.5), pdu_facts(reading)), "pdu")
    assert len(table.keys) == len(reading.parts)
    names = {(str(attrs["kind"]), str(attrs["name"])): row for row, attrs in enumerate(table.attrs)}
    for one in reading.parts:
        row = names[one.kind, one.name]
        for column, number in (("amps", one.amps), ("watts", one.watts), ("warning_amps", one.warn_amps),
                               ("critical_amps", one.crit_amps), ("rating_amps", one.rating_amps)):
            assert table.value(column, row) == (None if number is None else pytest.approx(number)), (one.name, column)
        if one.amps is None:
            assert table.reason("amps", row)
    assert table.age[0] == pytest.approx(1.5)


@pytest.mark.parametrize(("level", "number", "tripped"), [
    ("ok", pdu.OK, 0), ("warning", pdu.WARNING, 0), ("critical", pdu.CRITICAL, 0), ("off", pdu.OFF, 0),
    ("tripped", pdu.OFF, 1), ("lost", pdu.LOST, 0), ("unknown", None, None)])
def test_a_device_word_is_a_state_or_unknown(level: str, number: int | None, tripped: int | None) -> None:
    reading = PduReading("p", parts=(part(level=level, state="its word"),))
    table = view(stored("pdu", pdu_part(reading, 100.0)), "pdu")
    assert table.value("part_state", 0) == number
    assert table.value("tripped", 0) == tripped
    assert table.attrs[0]["state"] == "its word"
    assert number is not None or "its word" in table.reason("part_state", 0)


def test_what_is_gone_is_unknown_and_says_so_while_its_limits_stay() -> None:
    had = part(amps=7.0, rating_amps=16.0)
    key = view(stored("pdu", pdu_part(PduReading("p", parts=(had,)), 1.0)), "pdu").keys[0]
    table = view(stored("pdu", pdu_part(PduReading("p", parts=(gone(had),)), 100.0)), "pdu")
    assert table.keys[0] == key == "phase/1/1.1"
    assert (table.value("amps", 0), table.reason("amps", 0)) == (None, "gone: it was here before")
    assert table.value("rating_amps", 0) == 16.0


def test_phases_in_one_place_of_the_tables_have_keys_of_their_own() -> None:
    reading = PduReading("p", parts=tuple(part(name=name, index=(), amps=1.0) for name in ("L1", "L2", "L3")))
    assert view(stored("pdu", pdu_part(reading, 100.0)), "pdu").keys == ("phase/1/0/L1", "phase/1/0/L2", "phase/1/0/L3")


def test_a_device_without_a_profile_is_a_row_that_nothing_can_be_judged_on() -> None:
    reading = unscaled({(1, 3, 6, 1, 4, 1, 99, 1, 0): 4711})
    table = view(stored("pdu", pdu_part(reading, 100.0), pdu_facts(reading)), "pdu")
    assert len(table.keys) == 1
    assert {table.value(name, 0) for name in table.spec.names} == {None}
    assert table.reason("amps", 0) == "unscaled: no profile for this device"
    assert "1.3.6.1.4.1.99.1.0 = 4711" in str(table.attrs[0]["notes"])
    assert pdu_facts(reading)["problem"] == "unscaled: no profile for this device"


def test_outlets_say_how_long_before_the_others_they_were_read() -> None:
    reading = PduReading("p", parts=(part(kind="outlet", name="outlet 1", amps=1.0), part(amps=1.0)))
    table = view(stored("pdu", pdu_part(reading, 100.0, outlets_behind=42.0)), "pdu")
    behind = {attrs["kind"]: table.value("behind_seconds", row) for row, attrs in enumerate(table.attrs)}
    assert behind == {"outlet": 42.0, "phase": 0.0}


def test_a_node_over_redfish_reads_the_same_in_the_store() -> None:
    reading = replace(redfish_read.read(node_tree(), taken_at=99.0), detail_at=60.0)
    store = stored("bmc", bmc_part(reading, 99.0), bmc_facts(reading))
    table = view(store, "bmc")
    assert table.value("power_watts", 0) == 6120.5
    assert table.value("capacity_watts", 0) == 6600
    assert (table.value("host_on", 0), table.value("redundancy", 0), table.value("alarms", 0)) == (1, bmc.FULL, None)
    assert {name: table.attrs[0][name] for name in ("vendor", "model", "over", "watts_source")} == {
        "vendor": "Ours", "model": "N-8", "over": "redfish", "watts_source": "Node EnvironmentMetrics"}
    supplies = view(store, "psu")
    assert [supplies.labels[row] for row in range(2)] == ["Supply A", "Supply B"]
    assert [supplies.value("input_watts", row) for row in range(2)] == [3050.5, 3070]
    assert [supplies.value("psu_state", row) for row in range(2)] == [bmc.PSU_OK, bmc.PSU_OK]
    sensors = view(store, "sensor")
    assert sorted(sensors.value("reading", row) or 0 for row in range(len(sensors.keys))) == [30, 31, 32, 33, 34, 35]
    assert sensors.attrs[0]["unit"] == "°C"
    assert sensors.value("behind_seconds", 0) == 39


@pytest.mark.parametrize(("said", "number"), [
    (PsuState.OK, bmc.PSU_OK), (PsuState.AC_LOST, bmc.PSU_NO_INPUT), (PsuState.FAILED, bmc.PSU_FAILED),
    (PsuState.ABSENT, bmc.PSU_ABSENT), (PsuState.WARNING, bmc.PSU_WARNING), (PsuState.UNKNOWN, None)])
def test_a_supply_state_is_known_or_has_the_words(said: PsuState, number: int | None) -> None:
    reading = BmcReading("ipmi", 99.0, psus=(Psu("ps1", "PSU 1", said, "what it says"),))
    table = view(stored("bmc", bmc_part(reading, 99.0)), "psu")
    assert table.value("psu_state", 0) == number
    assert table.attrs[0]["words"] == "what it says"
    assert number is not None or table.reason("psu_state", 0) == "what it says"


def test_what_a_bmc_does_not_say_is_unknown_with_its_reason_never_zero() -> None:
    reading = BmcReading("ipmi", 99.0, watts=unknown("power not metered"), host_power="standby")
    table = view(stored("bmc", bmc_part(reading, 99.0)), "bmc")
    assert {table.value(name, 0) for name in table.spec.names} == {None}
    assert table.reason("power_watts", 0) == "power not metered"
    assert "standby" in table.reason("host_on", 0)


def test_alarms_are_counted_and_shown() -> None:
    reading = BmcReading("redfish", 99.0, alarms=(Alarm("a", "Leak 1", "critical", "leak detected"),))
    table = view(stored("bmc", bmc_part(reading, 99.0)), "bmc")
    assert table.value("alarms", 0) == 1
    assert table.attrs[0]["alarms"] == "Leak 1: leak detected"
    assert table.value("alarm_level", 0) == 2
    silent = replace(reading, alarms=(Alarm("a", "Leak 1", "", ""),))
    assert view(stored("bmc", bmc_part(silent, 99.0)), "bmc").attrs[0]["alarms"] == "Leak 1"


def test_a_leak_is_raised_and_over_once_each_detector_was_read() -> None:
    base = "/redfish/v1/Chassis/Tray/ThermalSubsystem/LeakDetection"

    def level(state: str, *missing: str) -> tuple[float | None, float | None]:
        tree: dict[str, object] = {
            base: {"@odata.type": "#LeakDetection.v1_0_0.LeakDetection", "LeakDetectors": {"@odata.id": f"{base}/LeakDetectors"}},
            f"{base}/LeakDetectors": {"@odata.type": "#LeakDetectorCollection.LeakDetectorCollection", "Members": [
                {"@odata.id": f"{base}/LeakDetectors/{one}"} for one in ("Cold", "Hot")]},
            f"{base}/LeakDetectors/Cold": {"@odata.type": "#LeakDetector.v1_0_0.LeakDetector", "Id": "Cold", "DetectorState": "OK"},
            f"{base}/LeakDetectors/Hot": {"@odata.type": "#LeakDetector.v1_0_0.LeakDetector", "Id": "Hot", "DetectorState": state}}
        reading = redfish_read.read({path: body for path, body in tree.items() if path not in missing})
        table = view(stored("bmc", bmc_part(reading, 99.0)), "bmc")
        return table.value("alarm_level", 0), table.value("alarms", 0)

    assert level("OK") == (0, 0)
    assert level("Warning") == (1, 1)
    assert level("Critical", f"{base}/LeakDetectors/Cold") == (2, 1)
    assert level("OK", f"{base}/LeakDetectors/Cold") == (None, None)
    assert level("OK", f"{base}/LeakDetectors") == (None, None)


def test_limits_of_sensors_over_ipmi_are_no_alarm() -> None:
    reading = BmcReading("ipmi", 99.0, alarms=(Alarm("a", "FAN5", "critical", "limit crossed (lcr)"),))
    table = view(stored("bmc", bmc_part(reading, 99.0)), "bmc")
    assert (table.value("alarms", 0), table.value("alarm_level", 0)) == (1, None)


def test_states_that_were_read_and_are_none_differ_from_states_not_read() -> None:
    sensors = tuple(Sensor(name, name, Quantity.OTHER, unknown("no reading"), states=states)
                    for name, states in (("read", ()), ("not", None), ("some", ("one", "two"))))
    table = view(stored("bmc", bmc_part(BmcReading("ipmi", 99.0, sensors=sensors), 99.0)), "sensor")
    assert [attrs.get("states") for attrs in table.attrs] == ["", None, "one; two"]


def test_circuits_of_a_rack_pdu_over_redfish() -> None:
    base = "/redfish/v1/PowerEquipment/RackPDUs/1"
    mains = Circuit(f"{base}/Mains/AC1", "mains", "AC1", amps=unknown("not provided"), rated_amps=known(32.0),
                    line_amps=(("Line1", known(11.5)), ("Line2", known(12.5)), ("Neutral", known(1.5))),
                    line_volts=(("Line1ToNeutral", known(231.0)),), state="Enabled, OK")
    open_ = Circuit(f"{base}/Branches/B", "branch", "B", amps=known(0.0), breaker="Tripped", state="Enabled, Critical")
    outlet = Circuit(f"{base}/Outlets/A1", "outlet", "A1", amps=known(2.5), state="Enabled, OK, Off")
    reading = BmcReading("redfish", 99.0, circuits=(outlet, mains, open_), detail_at=50.0)
    table = view(stored("pdu", circuits_part(reading, 99.0)), "pdu")
    rows = {str(attrs["name"]): row for row, attrs in enumerate(table.attrs)}
    assert [(attrs["kind"], attrs["unit"]) for attrs in table.attrs] == [
        ("inlet", "1"), ("phase", "1"), ("phase", "1"), ("neutral", "1"), ("branch", "1"), ("outlet", "1")]
    assert [table.value("amps", rows[name]) for name in ("AC1", "L1", "L2", "Neutral", "B", "A1")] == [
        None, 11.5, 12.5, 1.5, 0.0, 2.5]
    assert (table.value("rating_amps", rows["L1"]), table.value("rating_amps", rows["Neutral"])) == (32.0, None)
    assert table.value("volts", rows["L1"]) == 231
    assert [table.value("part_state", rows[name]) for name in ("AC1", "B", "A1")] == [pdu.OK, pdu.OFF, pdu.OFF]
    assert [table.value("tripped", rows[name]) for name in ("AC1", "B")] == [None, 1]
    assert table.value("behind_seconds", rows["A1"]) == 49


def test_what_a_rack_pdu_has_raised_is_judged_and_only_a_full_answer_ends_it() -> None:
    base = "/redfish/v1/PowerEquipment/RackPDUs/1"
    main = Circuit(f"{base}/Branches/A", "branch", "A", amps=known(4.0), state="Enabled, OK")
    load = Alarm(f"{base}/Alarms/Load", "Unit load", "critical", "beyond 15 A")
    hum = Alarm(f"{base}/Alarms/Hum", "Humidity", "", "")

    def said(*alarms: Alarm, told: bool) -> tuple[float | None, str | None]:
        reading = BmcReading("redfish", 99.0, circuits=(main,), alarms=alarms, alarms_told=told)
        table = view(stored("pdu", circuits_part(reading, 99.0)), "pdu")
        row = table.row_of(1, "alarms/1")
        if row is None:
            return None, None
        assert table.labels[row] == "1: alarms"
        return table.value("part_level", row), table.attrs[row].get("state")  # type: ignore[return-value]

    assert said(load, hum, told=True) == (2.0, "Unit load: beyond 15 A; Humidity")
    assert said(hum, told=False) == (1.0, "Humidity"), "raised is raised, whatever it is called"
    assert said(told=True) == (0.0, None)
    assert said(told=False) == (None, None), "nothing that would have said so was read"


def test_alarms_are_told_only_where_each_one_was_read() -> None:
    base = "/redfish/v1/PowerEquipment/RackPDUs/1"
    one = {"@odata.type": "#Alarm.v1_0_0.Alarm", "Name": "Load", "AlarmState": "Normal"}
    tree: dict[str, object] = {
        base: {"@odata.type": "#RackPDU.v1_0_0.RackPDU", "Alarms": {"@odata.id": f"{base}/Alarms"}},
        f"{base}/Alarms": {"@odata.type": "#AlarmCollection.AlarmCollection", "Members": [{"@odata.id": f"{base}/Alarms/Load"}]},
        f"{base}/Alarms/Load": one}
    assert redfish_read.read(tree).alarms_told
    for missing in (f"{base}/Alarms", f"{base}/Alarms/Load"):
        assert not redfish_read.read({path: body for path, body in tree.items() if path != missing}).alarms_told
    assert not redfish_read.read({base: {"@odata.type": "#RackPDU.v1_0_0.RackPDU"}}).alarms_told


HOSTILE = "\x1b]0;x\x07[bold]\u202e" + "é" * 4000


def test_a_hostile_device_fits_a_frame_and_what_is_left_out_is_said() -> None:
    sensors = tuple(Sensor(f"{HOSTILE}{n}", f"{HOSTILE}{n}", Quantity.POWER, unknown(HOSTILE), f"{HOSTILE}{n}", "",
                           (HOSTILE,) * 99, HOSTILE) for n in range(5000))
    reading = BmcReading("redfish", 99.0, HOSTILE, HOSTILE, HOSTILE, sensors=sensors, notes=(HOSTILE,) * 99)
    made, raw = encoded(frame(1, 100.0, 5000.0, {"bmc": bmc_part(reading, 99.0)}, bmc_facts(reading), {}))
    assert len(raw) <= MAX_FRAME
    assert decode(raw) == made
    assert b"\x1b" not in raw
    assert b"\\u001b" not in raw
    assert "\u202e".encode() not in raw
    table = made.g["bmc"].tb["sensor"]
    assert table.r
    assert len(table.r) <= MAX_ROWS
    assert table.e
    assert len({row.k for row in table.r}) == len(table.r)
    store = stored("bmc", made.g["bmc"])
    assert len(view(store, "sensor").keys) == len(table.r)


def test_a_part_keeps_its_cells_when_rows_are_left_out() -> None:
    rows = [Row(f"{n:04}", {"name": "ü" * 200, "more": "ü" * 300}) for n in range(1000)]
    part = table_part(rows, {"amps": [float(n) for n in range(1000)], "state": ["=ok"] * 1000, "none": [None] * 1000})
    made, _ = encoded(frame(1, 1.0, 1.0, {"pdu": bmc_like(part)}, {}, {}))
    kept = made.g["pdu"].tb["pdu"]
    count = len(kept.r or ())
    assert 0 < count < 1000
    assert kept.c == ["amps", "state"]
    table = view(stored("pdu", made.g["pdu"]), "pdu")
    assert [table.value("amps", row) for row in range(count)] == list(range(count))
    assert table.value("part_state", count - 1) == pdu.OK


def bmc_like(part: Any) -> GroupPart:
    from clustertop.wire.frame import GroupPart as Part

    return Part(99.0, tb={"pdu": part})


@pytest.mark.parametrize("name", [name for name in profiles() if (OURS / f"{name}.snmprec").exists()])
def test_every_recording_of_ours_makes_a_frame(name: str) -> None:
    reading = interpret(load(name), snmprec(OURS / f"{name}.snmprec"))
    table = view(stored("pdu", pdu_part(reading, 99.0)), "pdu")
    assert len(table.keys) == max(1, len(reading.parts))
    assert len(set(table.keys)) == len(table.keys)
