"""Power supplies of a chassis: Power.PowerSupplies, PowerSupply with its Metrics, and sensors named after a supply.

Ratings stand where loads are expected: PowerInputWatts and LastPowerOutputWatts of several vendors repeat a capacity.
So a supply's watts count only where they are no rating, and input watts only where something else confirms them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clustertop.sources.bmc_reading import (
    ABSENT,
    MAYBE_RATING,
    NOT_METERED,
    NOT_PROVIDED,
    OUT_OF_RANGE,
    RATING,
    Psu,
    PsuState,
    Quantity,
    Sensor,
    Value,
    first,
    unknown,
)
from clustertop.sources.redfish_value import items, mapping, member_name, plain_number, psu_state, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ORDINAL = re.compile(r"(\d+)(?!.*\d)")
_SENSOR = re.compile(
    r"^(?:ps|psu|powersupply|powersupplyunit)(\d+)(input|in|output|out)(power|current|voltage)(?:sensor)?$")
_KIND = re.compile(r"^(?:power|current|voltage)_(?=ps)")
_MARK = re.compile(r"[^a-z0-9]+")
_FIELDS = {
    ("in", "power"): ("input_watts", Quantity.POWER),
    ("in", "current"): ("input_amps", Quantity.CURRENT),
    ("in", "voltage"): ("input_volts", Quantity.VOLTAGE),
    ("out", "power"): ("output_watts", Quantity.POWER),
    ("out", "current"): ("output_amps", Quantity.CURRENT),
    ("out", "voltage"): ("output_volts", Quantity.VOLTAGE),
}
_OUTPUT_SLACK = 1.25
"""A supply may give a little more than its rating for a while; above this the figure is none."""
_INPUT_SLACK = 1.5


def legacy_psus(path: str, power: Mapping[str, Any], chassis_watts: Value) -> list[Psu]:
    """``PowerSupplies`` of a Power resource (DSP0268, Power 1.x). *chassis_watts* helps to tell loads from ratings."""
    listed = items(power, "PowerSupplies")
    raw = [_legacy(f"{path}#/PowerSupplies/{index}", body, str(index)) for index, body in enumerate(listed)]
    return _confirmed(raw, chassis_watts)


def _legacy(path: str, body: Mapping[str, Any], index: str) -> Psu:
    state, words = psu_state(body)
    capacity = value(body, "PowerCapacityWatts", Quantity.POWER)
    ratings = {capacity.number, *_ratings(body)}
    output = first(_no_rating(value(body, "PowerOutputWatts", Quantity.POWER), ratings),
                   _no_rating(value(body, "LastPowerOutputWatts", Quantity.POWER), ratings))
    psu = Psu(
        id=path, name=member_name(body, index), state=state, words=words,
        input_watts=_no_rating(value(body, "PowerInputWatts", Quantity.POWER), ratings), output_watts=output,
        input_volts=value(body, "LineInputVoltage", Quantity.VOLTAGE),
        input_amps=value(body, "InputCurrentAmps", Quantity.CURRENT),
        capacity_watts=capacity if capacity.number else unknown(NOT_PROVIDED))
    return _checked(psu)


def _ratings(body: Mapping[str, Any]) -> Iterable[float | None]:
    """Every other figure of a supply that is a rating."""
    for each in items(body, "InputRanges"):
        yield plain_number(each.get("OutputWattage"))
        yield plain_number(each.get("CapacityWatts"))
    view = mapping(mapping(mapping(body, "Oem"), "Dell"), "DellPowerSupplyView")
    for name, found in view.items():
        if "MaxInputPower" in name or "MaxPower" in name:
            yield plain_number(found)


def _no_rating(reading: Value, ratings: set[float | None]) -> Value:
    return unknown(RATING) if reading.number and reading.number in ratings else reading


def modern_psu(path: str, body: Mapping[str, Any], metrics: Mapping[str, Any]) -> Psu:
    """A PowerSupply resource with its PowerSupplyMetrics (empty where it has none or was not read)."""
    state, words = psu_state(body)
    capacity = value(body, "PowerCapacityWatts", Quantity.POWER)
    if not capacity.number:
        ranges = items(body, "InputRanges")
        capacity = first(*(value(each, "CapacityWatts", Quantity.POWER) for each in ranges[:1]), unknown(NOT_PROVIDED))
    rails_v, rails_a = items(metrics, "RailVoltage"), items(metrics, "RailCurrentAmps")
    psu = Psu(
        id=path, name=member_name(body, path.rstrip("/").rsplit("/", 1)[-1]), state=state, words=words,
        input_watts=value(metrics, "InputPowerWatts", Quantity.POWER),
        output_watts=value(metrics, "OutputPowerWatts", Quantity.POWER),
        input_volts=value(metrics, "InputVoltage", Quantity.VOLTAGE),
        input_amps=value(metrics, "InputCurrentAmps", Quantity.CURRENT),
        output_volts=value(rails_v[0], "Reading", Quantity.VOLTAGE) if len(rails_v) == 1 else Value(),
        output_amps=value(rails_a[0], "Reading", Quantity.CURRENT) if len(rails_a) == 1 else Value(),
        capacity_watts=capacity if capacity.number else unknown(NOT_PROVIDED))
    return _checked(psu)


def _checked(psu: Psu) -> Psu:
    """Take out what no supply of that capacity can have, and everything of one that is not there."""
    if psu.state is PsuState.ABSENT:
        gone = unknown(ABSENT)
        return replace(psu, input_watts=gone, output_watts=gone, input_volts=gone, input_amps=gone,
                       output_volts=gone, output_amps=gone)
    most = psu.capacity_watts.number
    if most:
        if (psu.output_watts.number or 0) > most * _OUTPUT_SLACK:
            psu = replace(psu, output_watts=unknown(OUT_OF_RANGE))
        if (psu.input_watts.number or 0) > most * _INPUT_SLACK:
            psu = replace(psu, input_watts=unknown(OUT_OF_RANGE))
    return psu


def _confirmed(psus: list[Psu], chassis_watts: Value) -> list[Psu]:
    """Keep input watts of a Power resource only where output, volts x amps or the chassis' own meter bear them out."""
    total = sum(psu.input_watts.number or 0.0 for psu in psus)
    chassis = chassis_watts.number
    whole = chassis is not None and chassis > 0 and 0.9 <= total / chassis <= 1.2
    return [psu if whole or _borne_out(psu) else replace(psu, input_watts=unknown(MAYBE_RATING)) for psu in psus]


def _borne_out(psu: Psu) -> bool:
    watts = psu.input_watts.number
    if not watts:
        return True
    output = psu.output_watts.number
    if output is not None and 0.5 <= output / watts <= 1.02:
        return True
    apparent = (psu.input_volts.number or 0.0) * (psu.input_amps.number or 0.0)
    return apparent > 0 and 0.6 <= watts / apparent <= 1.1


def _key(name: str) -> re.Match[str] | None:
    """``power_ps0_input_power`` (bmcweb puts the kind first), ``PS1InputCurrent``, ``PSU2 Output Voltage``."""
    plain = _MARK.sub("_", name.lower())
    return _SENSOR.match(_KIND.sub("", plain).replace("_", ""))


def with_sensors(psus: Sequence[Psu], sensors: Iterable[Sensor]) -> list[Psu]:
    """Fill in supplies' unknown values from sensors named after them (``ps3_input_power``, ``PS1InputCurrent``).

    Where no supply is listed but such sensors are there, the supplies are made from the sensors.
    """
    found: dict[int, dict[str, Value]] = {}
    for sensor in sensors:
        match = _key(sensor.id.rstrip("/").rsplit("/", 1)[-1]) or _key(sensor.name)
        if match is None:
            continue
        field, quantity = _FIELDS[("in" if match[2].startswith("in") else "out", match[3])]
        if sensor.quantity is quantity:
            found.setdefault(int(match[1]), {}).setdefault(field, sensor.value)
    if not psus:
        return [_filled(Psu(id=f"ps{number}", name=f"PSU {number}"), values)
                for number, values in sorted(found.items())]
    out = []
    for psu in psus:
        ordinal = _ORDINAL.search(psu.id.rstrip("/").rsplit("/", 1)[-1])
        values = found.get(int(ordinal[1]), {}) if ordinal and psu.state is not PsuState.ABSENT else {}
        out.append(_checked(_filled(psu, values)) if values else psu)
    return out


def _filled(psu: Psu, values: Mapping[str, Value]) -> Psu:
    fill: dict[str, Any] = {field: first(getattr(psu, field), new) for field, new in values.items()}
    return replace(psu, **fill)


def metered(psus: list[Psu]) -> list[Psu]:
    """Zeros in every field of every supply are a board without meters; a zero beside other figures is a zero."""
    figures = [reading.number for psu in psus for reading in _loads(psu) if reading.number is not None]
    if not figures or any(figures):
        return [_lost_input(psu, psus) for psu in psus]
    none = unknown(NOT_METERED)
    return [_replaced(psu, none) for psu in psus]


def _replaced(psu: Psu, none: Value) -> Psu:
    """*psu* with *none* in the place of each figure that it has."""
    fields = ("input_watts", "output_watts", "input_volts", "input_amps", "output_volts", "output_amps")
    change: dict[str, Any] = {name: none for name in fields if getattr(psu, name).known}
    return replace(psu, **change)


def _loads(psu: Psu) -> tuple[Value, ...]:
    return psu.input_watts, psu.output_watts, psu.input_volts, psu.input_amps, psu.output_volts, psu.output_amps


def _lost_input(psu: Psu, psus: list[Psu]) -> Psu:
    """No input volts at one supply while another has them: its feed is gone, whatever its health says."""
    others = any((other.input_volts.number or 0.0) > 40 for other in psus if other is not psu)
    if psu.input_volts.number == 0 and others and psu.state is not PsuState.ABSENT:
        return replace(psu, state=PsuState.AC_LOST, words=", ".join(filter(None, (psu.words, "0 V at the input"))))
    return psu
