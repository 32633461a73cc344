"""Numbers, units and states of Redfish bodies: JSON in, values or unknowns with a reason out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from clustertop.sources.bmc_reading import (
    ABSENT,
    DISABLED,
    NO_VALUE,
    NOT_PROVIDED,
    OUT_OF_RANGE,
    Limits,
    PsuState,
    Quantity,
    RedundancyState,
    Sensor,
    Value,
    plausible,
    unknown,
)
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

# ReadingUnits are UCUM words (DSP0268, Sensor); some services write them their own way.
_UNITS: dict[str, tuple[Quantity, float]] = {
    "w": (Quantity.POWER, 1.0), "watt": (Quantity.POWER, 1.0), "watts": (Quantity.POWER, 1.0),
    "kw": (Quantity.POWER, 1000.0), "mw": (Quantity.POWER, 1e-3),
    "va": (Quantity.APPARENT_POWER, 1.0), "v.a": (Quantity.APPARENT_POWER, 1.0),
    "a": (Quantity.CURRENT, 1.0), "amp": (Quantity.CURRENT, 1.0), "amps": (Quantity.CURRENT, 1.0),
    "ma": (Quantity.CURRENT, 1e-3),
    "v": (Quantity.VOLTAGE, 1.0), "volt": (Quantity.VOLTAGE, 1.0), "volts": (Quantity.VOLTAGE, 1.0),
    "mv": (Quantity.VOLTAGE, 1e-3),
    "c": (Quantity.TEMPERATURE, 1.0), "cel": (Quantity.TEMPERATURE, 1.0), "celsius": (Quantity.TEMPERATURE, 1.0),
    "rpm": (Quantity.SPEED, 1.0), "{rev}/min": (Quantity.SPEED, 1.0), "[rpm]": (Quantity.SPEED, 1.0),
    "j": (Quantity.ENERGY, 1.0), "kwh": (Quantity.ENERGY, 3.6e6), "kw.h": (Quantity.ENERGY, 3.6e6),
    "w.h": (Quantity.ENERGY, 3600.0), "wh": (Quantity.ENERGY, 3600.0),
    "hz": (Quantity.FREQUENCY, 1.0),
    "%": (Quantity.SHARE, 1.0), "percent": (Quantity.SHARE, 1.0),
}
_TYPES: dict[str, tuple[Quantity, float]] = {
    "Power": (Quantity.POWER, 1.0),
    "Current": (Quantity.CURRENT, 1.0),
    "Voltage": (Quantity.VOLTAGE, 1.0),
    "Temperature": (Quantity.TEMPERATURE, 1.0),
    "Rotational": (Quantity.SPEED, 1.0),
    "EnergyJoules": (Quantity.ENERGY, 1.0),
    "EnergykWh": (Quantity.ENERGY, 3.6e6),
    "EnergyWh": (Quantity.ENERGY, 3600.0),
    "Frequency": (Quantity.FREQUENCY, 1.0),
    "Percent": (Quantity.SHARE, 1.0),
    "Humidity": (Quantity.SHARE, 1.0),
}
_NOT_THERE = {"absent": ABSENT, "disabled": DISABLED, "unavailableoffline": "offline", "starting": "starting"}
_POWER_GOOD = re.compile(r"\bPG(?: FAIL)?$")
_INPUT_LOST = re.compile(r"\b(?:input|ac)\b.{0,12}\blost\b", re.IGNORECASE)
_NUMBER = re.compile(r"^\s*[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*$")


def text(body: Mapping[str, Any], *names: str) -> str:
    """The first of *names* that holds a non-empty string, cleaned; empty if none does."""
    for name in names:
        found = body.get(name)
        if isinstance(found, str) and found.strip():
            return clean(found.strip())
    return ""


def mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A nested object, empty where there is none."""
    found = body.get(name)
    return found if isinstance(found, dict) else {}


def items(body: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects of a list, empty where there is none."""
    found = body.get(name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def plain_number(found: object) -> float | None:
    """A JSON number or a number written as a string; None for anything else.

    What a controller computed in 32 bits is shown as it meant it: 11.991999626159668 is 11.992.
    """
    if isinstance(found, bool):
        return None
    if isinstance(found, str) and _NUMBER.match(found):
        found = float(found)
    if not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    if number and len(repr(number)) > 10 and float(np.float32(number)) == number:
        number = float(str(np.float32(number)))
    return number


def value(body: Mapping[str, Any], name: str, quantity: Quantity, scale: float = 1.0) -> Value:
    """Property *name* of *body*, or its ``Reading`` where it is an excerpt of a sensor."""
    if name not in body:
        return unknown(NOT_PROVIDED)
    found = body[name]
    if isinstance(found, dict):
        return value(found, "Reading", quantity, scale) if "Reading" in found else unknown(NOT_PROVIDED)
    if found is None:
        return unknown(NO_VALUE)
    number = plain_number(found)
    return unknown(OUT_OF_RANGE) if number is None else plausible(number * scale, quantity)


def not_there(body: Mapping[str, Any]) -> str:
    """Why a resource has no reading by its own Status.State; empty where it says nothing against one."""
    return _NOT_THERE.get(text(mapping(body, "Status"), "State").lower(), "")


def quantity_of(body: Mapping[str, Any]) -> tuple[Quantity, float]:
    """What a sensor measures, and what its reading is multiplied by: the unit word decides, then ReadingType."""
    unit = text(body, "ReadingUnits").lower()
    if unit in _UNITS:
        return _UNITS[unit]
    return (Quantity.OTHER, 1.0) if unit else _TYPES.get(text(body, "ReadingType"), (Quantity.OTHER, 1.0))


def limits_of(body: Mapping[str, Any], scale: float = 1.0) -> Limits:
    """A Sensor's thresholds. Null, absent and 0 mean "not set"; so do those a whole legacy list has at 0."""
    found = mapping(body, "Thresholds")

    def one(name: str, legacy: str) -> float | None:
        number = plain_number(mapping(found, name).get("Reading")) if found else plain_number(body.get(legacy))
        return number * scale if number else None

    return Limits(
        one("LowerCaution", "LowerThresholdNonCritical"), one("LowerCritical", "LowerThresholdCritical"),
        one("UpperCaution", "UpperThresholdNonCritical"), one("UpperCritical", "UpperThresholdCritical"))


def side_of(body: Mapping[str, Any], name: str) -> str:
    """``input`` or ``output`` of a supply's sensor, from its context or its name; empty where neither says."""
    said = text(body, "PhysicalSubContext").lower()
    if said in {"input", "output"}:
        return said
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    found = re.findall(r"input|output|\bin\b|_in(?=_|\b)|\bout\b|_out(?=_|\b)", words)
    kinds = {"input" if "in" in match else "output" for match in found}
    return kinds.pop() if len(kinds) == 1 else ""


def sensor(path: str, body: Mapping[str, Any], chassis: str) -> Sensor:
    """A Sensor resource."""
    name = text(body, "Name", "Id") or path.rstrip("/").rsplit("/", 1)[-1]
    quantity, scale = quantity_of(body)
    why = not_there(body)
    reading = unknown(why) if why else value(body, "Reading", quantity, scale)
    return Sensor(path, name, quantity, reading, chassis, side_of(body, text(body, "Id") or name), None,
                  alarm_of(body), limits_of(body, scale))


def legacy_sensor(path: str, body: Mapping[str, Any], chassis: str) -> Sensor | None:
    """A member of Power.Voltages, Thermal.Temperatures or Thermal.Fans."""
    name = text(body, "Name", "FanName", "MemberId", "MemberID")
    if "ReadingVolts" in body:
        quantity, scale, field = Quantity.VOLTAGE, 1.0, "ReadingVolts"
    elif "ReadingCelsius" in body:
        quantity, scale, field = Quantity.TEMPERATURE, 1.0, "ReadingCelsius"
    elif "Reading" in body:
        quantity, scale = quantity_of(body)
        field = "Reading"
    else:
        return None
    why = not_there(body)
    reading = unknown(why) if why else value(body, field, quantity, scale)
    if quantity is Quantity.VOLTAGE and _POWER_GOOD.search(name) and reading.number in {0.0, 1.0}:
        reading, quantity = unknown("a state, not a voltage"), Quantity.OTHER
    return Sensor(path, name, quantity, reading, chassis, side_of(body, name), None, alarm_of(body), limits_of(body))


def alarm_of(body: Mapping[str, Any]) -> str:
    """The device's own bad word for a resource, empty where it has none. Health may stand without State."""
    health = text(mapping(body, "Status"), "Health")
    return health if health.lower() in {"warning", "critical"} else ""


def psu_state(body: Mapping[str, Any]) -> tuple[PsuState, str]:
    """A supply's state and the words it was read from."""
    status = mapping(body, "Status")
    state, health = text(status, "State"), text(status, "Health")
    line = text(body, "LineInputStatus")
    detail = text(mapping(mapping(mapping(body, "Oem"), "Dell"), "DellPowerSupplyView"), "DetailedState")
    words = ", ".join(word for word in (state, health, line, detail) if word)
    if state.lower() == "absent":
        return PsuState.ABSENT, words
    if line.lower() in {"lossofinput", "outofrange"} or _INPUT_LOST.search(detail):
        return PsuState.AC_LOST, words
    if health.lower() == "critical":
        return PsuState.FAILED, words
    if health.lower() == "warning" or state.lower() in {"unavailableoffline", "disabled"}:
        return PsuState.WARNING, words
    return (PsuState.OK if health.lower() == "ok" else PsuState.UNKNOWN), words


def redundancy_state(body: Mapping[str, Any]) -> tuple[RedundancyState, str]:
    """A redundancy group's state and its words; a group without members says nothing, whatever its health."""
    status = mapping(body, "Status")
    state, health = text(status, "State"), text(status, "Health")
    words = ", ".join(word for word in (state, health) if word)
    listed = body.get("RedundancySet", body.get("RedundancyGroup"))
    if isinstance(listed, list) and not listed:
        return RedundancyState.UNKNOWN, "group without members"
    if state.lower() in {"absent", "disabled"}:
        return RedundancyState.UNKNOWN, words
    if health.lower() == "critical" or state.lower() == "unavailableoffline":
        return RedundancyState.LOST, words
    if health.lower() == "warning":
        return RedundancyState.DEGRADED, words
    return (RedundancyState.FULL if health.lower() == "ok" else RedundancyState.UNKNOWN), words or NOT_PROVIDED


def member_name(body: Mapping[str, Any], fallback: str) -> str:
    """A name worth showing: some firmware writes ``nil``, or the same name for all."""
    name = text(body, "Name")
    slot = text(body, "MemberId", "MemberID", "Id")
    bay = plain_number(mapping(mapping(body, "Oem"), "Hpe").get("BayNumber"))
    if not name or name.lower() in {"nil", "null", "none"}:
        return f"PSU {slot or fallback}"
    if name == "HpeServerPowerSupply":
        return f"PSU bay {bay:.0f}" if bay is not None else f"PSU {slot or fallback}"
    return name
