"""A BMC's reading as the group ``bmc``: itself, its power supplies, its sensors. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.poll.device_frames import Cell, GroupPart, Row, cell, sentence, state, table_part, word
from clustertop.signals.bmc import PSU_STATES, REDUNDANCY

if TYPE_CHECKING:
    from clustertop.model import Attr
    from clustertop.sources.bmc_reading import BmcReading, Psu, Sensor, Value
    from clustertop.wire.frame import TablePart

GROUP = "bmc"
_STATES_SHOWN = 8


Rows = dict[str, tuple["Sensor", Row]]
"""By key: a sensor, and the row that was made of it. Most are read seldom, and the same objects meanwhile."""


def bmc_part(reading: BmcReading, at: float, rows: Rows | None = None) -> GroupPart:
    """The group of *reading*, whose values were asked for *at* (our monotonic clock).

    *rows* is for the same BMC's next reading: what is made here is kept there.
    """
    sensors = _sensors(reading, {} if rows is None else rows)
    return GroupPart(at, tb={"bmc": _bmc(reading), "psu": _psus(reading.psus), "sensor": sensors})


def bmc_facts(reading: BmcReading) -> dict[str, Attr]:
    """Who it is, and what is to be said of it."""
    facts: dict[str, Attr] = {
        "over": reading.source, "vendor": word(reading.vendor), "model": word(reading.model),
        "notes": sentence(reading.notes),
    }
    return {name: said for name, said in facts.items() if said}


def _bmc(reading: BmcReading) -> TablePart:
    attrs: dict[str, Attr] = {
        "vendor": word(reading.vendor), "model": word(reading.model), "watts_source": word(reading.watts_source),
        "over": reading.source, "notes": sentence(reading.notes),
    }
    alarms = [one.words for one in reading.alarms]
    if alarms:
        attrs["alarms"] = sentence(alarms)
    words = [one.words for one in reading.redundancy if one.words]
    if words:
        attrs["redundancy_words"] = sentence(words)
    power = reading.host_power
    # Nothing raised is a zero only where something was asked that would have said so.
    asked = reading.alarms_told if reading.source == "redfish" else bool(reading.sensors)
    told = float(len(reading.alarms)) if reading.alarms or asked else None
    return table_part([Row("", {name: said for name, said in attrs.items() if said})], {
        "watts": [_value(reading.watts)], "capacity": [_value(reading.capacity_watts)],
        "host": [state(power, {"on": 1, "off": 0}, f"it says {word(power)!r}" if power else "")],
        "redundancy": [state(reading.psu_redundancy.value, REDUNDANCY, sentence(words))], "alarms": [told],
        "alarm_level": [_alarm_level(reading)],
    })


def _alarm_level(reading: BmcReading) -> Cell:
    """How bad what it has raised is; None where nothing was asked that would have said so.

    IPMI has no alarms, only limits of sensors, and those of a fan that was never fitted are crossed for ever.
    """
    if reading.source != "redfish":
        return None
    if reading.alarms:
        return float(max(one.level for one in reading.alarms))
    return 0.0 if reading.alarms_told else None


def _psus(psus: tuple[Psu, ...]) -> TablePart:
    rows = [Row(one.id, _named(one.name, words=one.words)) for one in psus]
    columns: dict[str, list[Cell]] = {
        "state": [state(one.state.value, PSU_STATES, one.words) for one in psus],
        "in_watts": [_value(one.input_watts) for one in psus],
        "out_watts": [_value(one.output_watts) for one in psus],
        "in_volts": [_value(one.input_volts) for one in psus],
        "in_amps": [_value(one.input_amps) for one in psus],
        "capacity": [_value(one.capacity_watts) for one in psus],
    }
    return table_part(rows, columns)


def _sensors(reading: BmcReading, known: Rows) -> TablePart:
    sensors = reading.sensors
    paths = reading.source == "redfish"
    rows: list[Row] = []
    for one in sensors:
        key = one.id if paths or not one.entity else f"{one.id}/{one.entity}"
        before = known.get(key)
        if before is None or before[0] is not one:
            before = known[key] = (one, Row(key, _sensor(one)))
        rows.append(before[1])
    if len(known) > 2 * len(sensors):
        known.clear()  # what is gone is not kept
    behind = 0.0
    if paths and reading.detail_at is not None and reading.taken_at is not None:
        behind = max(0.0, reading.taken_at - reading.detail_at)
    columns: dict[str, list[Cell]] = {
        "reading": [_value(one.value) for one in sensors],
        "lower_critical": [cell(one.limits.lower_critical) for one in sensors],
        "lower_caution": [cell(one.limits.lower_caution) for one in sensors],
        "upper_caution": [cell(one.limits.upper_caution) for one in sensors],
        "upper_critical": [cell(one.limits.upper_critical) for one in sensors],
        "behind": [behind] * len(sensors),
    }
    return table_part(rows, columns)


def _sensor(one: Sensor) -> dict[str, Attr]:
    out = _named(one.name, entity=one.entity, quantity=one.quantity.value, unit=one.unit, side=one.side,
                 alarm=one.alarm)
    if one.states is not None:
        # Read, and perhaps none of them asserted: that is not the same as not read.
        out["states"] = sentence(one.states[:_STATES_SHOWN])
    return out


def _named(name: str, **more: str) -> dict[str, Attr]:
    return {"name": word(name), **{what: word(said) for what, said in more.items() if said}}


def _value(value: Value) -> Cell:
    return cell(value.number, value.why)
