"""Text of ipmitool and freeipmi to sensors and events, wherever the text came from: a child here, or a node's own tool.

Formats: ipmitool(1) ``sdr``, ``sdr elist``, ``sensor``, ``sdr -v``, ``dcmi power reading``, ``sel elist``; freeipmi's
``ipmi-sensors``, ``ipmimonitoring``, ``ipmi-dcmi`` and ``ipmi-sel``. What is no line of theirs (a complaint, a banner)
costs only itself. State names: IPMI 2.0 specification, tables 42-2 and 42-3, as the tools print them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clustertop.sources.bmc_reading import (
    ABSENT,
    DISABLED,
    NO_READING,
    NO_VALUE,
    NOT_TRUSTED,
    SHORT_LIST_ONLY,
    Event,
    Limits,
    Quantity,
    Sensor,
    Value,
    plausible,
    unknown,
)
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ZERO_DEGREES = "0 °C exactly (what firmware leaves for a sensor that is not there)"
MAX_LINES = 4096
MAX_LINE = 512

_NONE = {"na": NO_VALUE, "n/a": NO_VALUE, "ns": NO_READING, "no reading": NO_READING, "disabled": DISABLED,
         "not readable": NO_READING, "not available": NO_READING, "unknown": NO_READING, "": NO_VALUE}
_READING = re.compile(r"^([+-]?\d+(?:\.\d+)?)(?:\s*\(\+/-\s*[\d.]+\))?\s*(.*)$")
_UNITS: dict[str, tuple[Quantity, float]] = {
    "watts": (Quantity.POWER, 1.0), "watt": (Quantity.POWER, 1.0), "w": (Quantity.POWER, 1.0),
    "kw": (Quantity.POWER, 1000.0), "va": (Quantity.APPARENT_POWER, 1.0),
    "amps": (Quantity.CURRENT, 1.0), "amp": (Quantity.CURRENT, 1.0), "a": (Quantity.CURRENT, 1.0),
    "volts": (Quantity.VOLTAGE, 1.0), "volt": (Quantity.VOLTAGE, 1.0), "v": (Quantity.VOLTAGE, 1.0),
    "degrees c": (Quantity.TEMPERATURE, 1.0), "c": (Quantity.TEMPERATURE, 1.0),
    "rpm": (Quantity.SPEED, 1.0), "joules": (Quantity.ENERGY, 1.0), "j": (Quantity.ENERGY, 1.0),
    "hz": (Quantity.FREQUENCY, 1.0), "percent": (Quantity.SHARE, 1.0), "%": (Quantity.SHARE, 1.0),
}
_HEX = re.compile(r"^0x[0-9a-fA-F]+$|^[0-9a-fA-F]+h$")
_STATUS = {"ok", "ns", "na", "nc", "cr", "nr", "lnc", "lcr", "lnr", "unc", "ucr", "unr", "disabled"}
_ALARMS = {"nc", "cr", "nr", "lnc", "lcr", "lnr", "unc", "ucr", "unr"}
_NUMBER_H = re.compile(r"^[0-9A-Fa-f]{2}h$")
_ENTITY = re.compile(r"^\d+\.\d+$")
_DATE = re.compile(r"^(?:[A-Za-z]{3}-\d\d-\d{4}|\d\d/\d\d/\d{2,4}|pre-?init|post-?init)", re.IGNORECASE)
_SIDES = (
    (re.compile(r"\b(?:in|input|iin|vin|pin|ac)\b", re.IGNORECASE), "input"),
    (re.compile(r"\b(?:out|output|iout|vout|pout)\b", re.IGNORECASE), "output"),
)


@dataclass(frozen=True, slots=True)
class Dcmi:
    """``dcmi power reading``: the system's own meter."""

    watts: Value
    average_watts: Value
    least_watts: Value
    most_watts: Value


def sensors(text: str) -> list[Sensor]:
    """Sensors of any of the list formats; the format is seen from the number of columns. Verbose blocks too."""
    if "Sensor ID" in text and re.search(r"^\s*Sensor ID\s*:", text, re.MULTILINE):
        return _told_apart([from_fields(block) for block in blocks(text)])
    out = []
    head: list[str] = []
    for line in _lines(text):
        parts = [part.strip() for part in line.split("|")]
        if parts[0] == "ID" and "Name" in parts and "Date" not in parts:
            head = [part.lower() for part in parts]
            continue
        found = _from_columns(parts, head)
        if found is not None:
            out.append(found)
    return _told_apart(out)


def _told_apart(found: list[Sensor]) -> list[Sensor]:
    """Give sensors that share number and entity (``ipmitool sensor`` prints neither) an identity of their own."""
    seen: dict[tuple[str, str], int] = {}
    out = []
    for each in found:
        count = seen[each.id, each.entity] = seen.get((each.id, each.entity), 0) + 1
        out.append(each if count == 1 else replace(each, id=f"{each.id}#{count}"))
    return out


def _lines(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        if number >= MAX_LINES:
            return
        yield clean(line, MAX_LINE)


def _from_columns(parts: list[str], head: list[str]) -> Sensor | None:
    if head and len(parts) == len(head):
        return _freeipmi(dict(zip(head, parts, strict=True)))
    if len(parts) >= 12 and parts[0].isdigit():
        names = ("id", "name", "type", "state", "reading", "units", "lower nr", "lower c", "lower nc", "upper nc",
                 "upper c", "upper nr", "event")
        return _freeipmi(dict(zip(names, parts, strict=False)) | {"event": parts[-1]})
    if len(parts) == 3 and parts[0] and parts[2] in _STATUS:
        return _plain(parts[0], parts[0], "", parts[2], parts[1], short=True)
    if len(parts) == 5 and parts[0] and _NUMBER_H.match(parts[1]) and _ENTITY.match(parts[3]):
        return _plain(parts[1].upper().replace("H", "h"), parts[0], parts[3], parts[2], parts[4])
    if len(parts) >= 4 and (parts[2] == "discrete" or parts[3] in _STATUS) and parts[0]:
        return _from_sensor_table(parts)
    return None


def reading(text: str, status: str = "ok") -> tuple[Value, Quantity, tuple[str, ...] | None]:
    """One reading's text to its value, quantity and the states that stand beside it (None: it tells no states).

    ``110 Watts, Presence detected`` has both. A bare 0x00 is not a reading.
    """
    if status.lower() in {"ns", "na", "disabled"}:
        why = _NONE.get(text.lower()) if text else None
        return unknown(why or (DISABLED if status.lower() == "disabled" else NO_READING)), _quantity(text), None
    if text.lower() in _NONE and text:
        return unknown(_NONE[text.lower()]), Quantity.OTHER, None
    if _HEX.match(text):
        return unknown(SHORT_LIST_ONLY), Quantity.OTHER, None
    match = _READING.match(text)
    if match is None:
        states = tuple(part.strip() for part in text.split(",") if part.strip())
        if {"device absent", "absent"} & {state.lower() for state in states}:
            return unknown(ABSENT), Quantity.OTHER, states
        return unknown("a state, not a number"), Quantity.OTHER, states
    unit, _, rest = match[2].partition(",")
    quantity, scale = _unit(unit)
    states = tuple(part.strip() for part in rest.split(",") if part.strip())
    if quantity is Quantity.TEMPERATURE and float(match[1]) == 0:
        return unknown(ZERO_DEGREES), quantity, states or None
    return plausible(float(match[1]) * scale, quantity), quantity, states or None


def _unit(word: str) -> tuple[Quantity, float]:
    word = word.strip().lower()
    if word in {"degrees f", "f"}:
        return Quantity.OTHER, 1.0
    return _UNITS.get(word, (Quantity.OTHER, 1.0))


def _quantity(text: str) -> Quantity:
    match = _READING.match(text)
    return _unit(match[2].partition(",")[0])[0] if match else Quantity.OTHER


def side(name: str) -> str:
    """``input`` or ``output`` as a sensor's name says it, else empty."""
    name = name.replace("_", " ")
    found = [word for pattern, word in _SIDES if pattern.search(name)]
    return found[0] if len(found) == 1 else ""


def _plain(number: str, name: str, entity: str, status: str, text: str, *, short: bool = False) -> Sensor:
    value, quantity, states = reading(text, status)
    if not text and not short and status == "ok":
        states = ()  # elist: the sensor answers and has no state asserted
    return Sensor(number, name, quantity, value, entity, side(name), states, status if status in _ALARMS else "")


def _from_sensor_table(parts: list[str]) -> Sensor:
    """``ipmitool sensor``: name, value, unit, status, lnr, lcr, lnc, unc, ucr, unr. Discrete values are hex masks."""
    name, text, unit, status = parts[:4]
    if unit == "discrete":
        why = NO_VALUE if text.lower() == "na" else SHORT_LIST_ONLY
        return Sensor(name, name, Quantity.OTHER, unknown(why), "", side(name))
    value, quantity, _ = reading(f"{text} {unit}" if text.lower() not in _NONE else text, status)
    if text.lower() in _NONE:
        quantity = _unit(unit)[0]
    limits = _limits([*parts[4:10], *[""] * 6])
    return Sensor(name, name, quantity, value, "", side(name), None, status if status in _ALARMS else "", limits)


def _limit(text: str) -> float | None:
    """A threshold; ``na``, 0, 127 and 255 are what firmware leaves where none is set."""
    match = re.fullmatch(r"[+-]?\d+(?:\.\d+)?", text)
    number = float(text) if match else 0.0
    return number if number not in {0.0, 127.0, 255.0} else None


def _limits(columns: list[str]) -> Limits:
    _, lower_critical, lower_caution, upper_caution, upper_critical, _ = (_limit(text) for text in columns[:6])
    return Limits(lower_caution, lower_critical, upper_caution, upper_critical)


def _freeipmi(row: Mapping[str, str]) -> Sensor:
    """A row of ipmi-sensors or ipmimonitoring: quoted events are the asserted states."""
    name, kind = row.get("name", ""), row.get("type", "")
    unit = row.get("units", "")
    text = row.get("reading", "")
    value, quantity, _ = reading(text if text.lower() in _NONE else f"{text} {unit}")
    states = tuple(re.findall(r"'([^']*)'", row.get("event", "")))
    state = row.get("state", "").lower()
    columns = [row.get(key, "") for key in ("lower nr", "lower c", "lower nc", "upper nc", "upper c", "upper nr")]
    if text.lower() in _NONE and kind == "Current" and "power meter" in name.lower():
        quantity = Quantity.OTHER  # no unit, so not known to be amperes: the list files power meters under Current
    return Sensor(row.get("id", ""), name, quantity, value, kind, side(name), states or None,
                  state if state in {"warning", "critical"} else "", _limits(columns))


def blocks(text: str) -> Iterator[dict[str, str]]:
    """The blocks of ``ipmitool -v sdr``, field by field; a state on a line of its own joins the field above it."""
    block: dict[str, str] = {}
    last = ""
    for line in _lines(text):
        line = line.strip()
        head, colon, rest = line.partition(":")
        key = head.strip()
        if key == "Sensor ID" and colon:
            if block:
                yield block
            block, last = {"Sensor ID": rest.strip()}, ""
        elif not block:
            continue
        elif line.startswith("[") and line.endswith("]") and last:
            block[last] = f"{block[last]}\n{line}"
        elif colon and key:
            last = key
            block[key] = rest.strip()
    if block:
        yield block


def from_fields(fields: Mapping[str, str]) -> Sensor:
    """A sensor from the fields of a verbose block, for example ``{"Sensor ID": "Temp (0x1)", …}``."""
    match = re.match(r"^(.*?)\s*\(0x([0-9a-fA-F]+)\)$", fields.get("Sensor ID", ""))
    name = match[1] if match else fields.get("Sensor ID", "")
    number = f"{int(match[2], 16):02X}h" if match else name
    entity = re.match(r"^\s*(\d+\.\d+)", fields.get("Entity ID", ""))
    value, quantity, states = reading(fields.get("Sensor Reading", ""))
    if "States Asserted" in fields:
        states = _asserted(fields["States Asserted"])
        value = unknown("a state, not a number")
    elif any(key.startswith("Sensor Type (Discrete") for key in fields) and states is None:
        states = ()  # the verbose list leaves the line out where nothing is asserted
    status = fields.get("Status", "ok").lower()
    if status in {"ns", "na", "disabled", "no reading"}:
        value = unknown(_NONE.get(status, NO_READING))

    def one(key: str) -> float | None:
        return _limit(fields.get(key, ""))

    limits = Limits(one("Lower non-critical"), one("Lower critical"), one("Upper non-critical"), one("Upper critical"))
    return Sensor(number, name, quantity, value, entity[1] if entity else "", side(name), states,
                  status if status in _ALARMS else "", limits)


def _asserted(text: str) -> tuple[str, ...]:
    """``Power Supply\\n[Presence detected]\\n[…]``: the bracketed ones; the first line is only the sensor's type."""
    bracketed = tuple(found.strip() for found in re.findall(r"\[([^\]]*)\]", text))
    return bracketed or tuple(part.strip() for part in text.split("\n") if part.strip())


_WATTS = re.compile(r"^\s*(-?\d+(?:\.\d+)?)\s*watts?\s*$", re.IGNORECASE)


def dcmi(text: str) -> Dcmi | None:
    """``dcmi power reading`` of ipmitool or ``ipmi-dcmi --get-system-power-statistics`` of freeipmi; None if neither.

    The figures count only while the tool says that the measurement is active.
    """
    found: dict[str, str] = {}
    for line in _lines(text):
        key, colon, rest = line.partition(":")
        if colon:
            found.setdefault(key.strip().lower(), rest.strip())
    names = {"watts": ("instantaneous power reading", "current power"),
             "average_watts": ("average power reading over sample period", "average power over sampling duration"),
             "least_watts": ("minimum during sampling period", "minimum power over sampling duration"),
             "most_watts": ("maximum during sampling period", "maximum power over sampling duration")}
    if not any(key in found for key in names["watts"]):
        return None
    state = found.get("power reading state is", found.get("power measurement", "")).lower()
    trusted = state in {"activated", "active", "available"}

    def one(keys: tuple[str, str]) -> Value:
        match = next((match for key in keys if (match := _WATTS.match(found.get(key, "")))), None)
        if match is None:
            return unknown(NO_VALUE)
        return plausible(float(match[1]), Quantity.POWER) if trusted else unknown(NOT_TRUSTED)

    values = {name: one(keys) for name, keys in names.items()}
    return Dcmi(**values)


def host_power(text: str) -> str:
    """``Chassis Power is on`` → ``on``; empty if the text does not say."""
    match = re.search(r"^Chassis Power is (\w+)\s*$", text, re.MULTILINE)
    return match[1].lower() if match else ""


def events(text: str) -> list[Event]:
    """Lines of ``ipmitool sel elist`` or freeipmi's ``ipmi-sel``. A date may be "Pre-Init" or "PostInit"."""
    out = []
    for line in _lines(text):
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == 7 and parts[0].isdigit() and _DATE.match(parts[1]):  # freeipmi: id, date, time, name, type, …
            at = parts[1] if parts[1] == parts[2] else f"{parts[1]} {parts[2]}"
            out.append(Event(parts[0], at, parts[3], parts[6]))
        elif 5 <= len(parts) <= 7 and re.fullmatch(r"[0-9a-f]+", parts[0]) and _DATE.match(parts[1]):
            tail = parts[-1].lower()
            asserted = {"asserted": True, "deasserted": False}.get(tail)
            words = parts[3:-1] if asserted is not None else parts[3:]
            at = f"{parts[1]} {parts[2]}".strip() if re.search(r"\d/|:", parts[1] + parts[2]) else parts[1]
            out.append(Event(parts[0], at, words[0], ", ".join(words[1:]), asserted))
    return out


def merged(live: list[Sensor], limits: Mapping[tuple[str, str], Limits]) -> list[Sensor]:
    """*live* with the limits that a slower list has brought, by number and entity."""
    return [replace(each, limits=limits.get((each.id, each.entity), each.limits)) for each in live]
