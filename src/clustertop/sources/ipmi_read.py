"""What a BMC's sensors say about power over IPMI: sensors in, one :class:`BmcReading` out. Pure.

A discrete sensor is decided by its asserted states only: the ``ok`` beside it says that it answers, no more.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clustertop.sources.bmc_reading import (
    MAYBE_RATING,
    NO_READING,
    NOT_METERED,
    NOT_PROVIDED,
    RATING,
    SHORT_LIST_ONLY,
    Alarm,
    BmcReading,
    BmcState,
    Event,
    Meter,
    Psu,
    PsuState,
    Quantity,
    Redundancy,
    RedundancyState,
    Sensor,
    Value,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clustertop.sources.ipmi_text import Dcmi

_PSU_NAME = re.compile(r"\b(?:psu?|power\s*supply|pwr\s*supply)[ #]*(\d+)\b", re.IGNORECASE)
_PSU_ENTITY = re.compile(r"^10\.(\d+)$")
_REDUNDANT = re.compile(r"redun", re.IGNORECASE)
_COOLING = re.compile(r"\bfans?\b|cool", re.IGNORECASE)
_SYSTEM_POWER = re.compile(
    r"pwr consumption|pw consumption|power meter|power consumption|system level|avg power|total[ _]?power|"
    r"sys(?:tem)?[ _]?(?:input[ _]?)?p(?:o?we?r)?|chassis[ _]power|input[ _]power|node[ _]power|^power$", re.IGNORECASE)
_PART = re.compile(r"cpu|proc|mem|dimm|gpu|fan|hdd|disk|drive|\bps\d|\bpsu|supply|vr\b|peak|cap\b|limit", re.IGNORECASE)
_ALL_SUPPLIES = re.compile(r"^psu?[ _](?=total)|(?<=total[ _])psu?[ _]", re.IGNORECASE)
_RAIL_VOLTS = 90.0
"""Volts of a supply at or above this are its input (100 to 240 V AC, or 380 V DC); its outputs have 3.3 to 54 V."""

# IPMI 2.0 table 42-3 (type 08h, Power Supply) and table 42-2 (generic type 0Bh, redundancy), as the tools say it.
_PSU_WORDS: tuple[tuple[PsuState, re.Pattern[str]], ...] = (
    (PsuState.FAILED, re.compile(r"failure detected|\bfailed\b|non-?recoverable", re.IGNORECASE)),
    (PsuState.AC_LOST, re.compile(r"ac lost|input lost|out.of.range|no input", re.IGNORECASE)),
    (PsuState.WARNING, re.compile(r"predictive|config(?:uration)? error|inactive|degraded", re.IGNORECASE)),
    (PsuState.ABSENT, re.compile(r"\babsent\b|device removed|not present", re.IGNORECASE)),
    (PsuState.OK, re.compile(r"presence detected|\bpresent\b", re.IGNORECASE)),
)
_REDUNDANCY_WORDS: tuple[tuple[RedundancyState, re.Pattern[str]], ...] = (
    (RedundancyState.LOST, re.compile(r"redundancy lost|non-?redundant|insufficient resources", re.IGNORECASE)),
    (RedundancyState.DEGRADED, re.compile(r"redundancy degraded|degraded from", re.IGNORECASE)),
    (RedundancyState.FULL, re.compile(r"fully? redundan|redundancy regained", re.IGNORECASE)),
)


def read(sensors: Sequence[Sensor], dcmi: Dcmi | None = None, *, host_power: str = "",
         taken_at: float | None = None, events: tuple[Event, ...] = (), events_at: float | None = None) -> BmcReading:
    """Read sensors and, where the BMC has it, DCMI's power meter."""
    meters = _meters(sensors, dcmi)
    psus = _psus(sensors, meters)
    watts, source = _whole(meters, psus, host_power)
    return BmcReading(
        source="ipmi", taken_at=taken_at, host_power=host_power, watts=watts, watts_source=source, meters=tuple(meters),
        psus=tuple(psus), redundancy=tuple(_redundancy(sensors)), sensors=tuple(sensors),
        alarms=tuple(_alarms(sensors)),
        events=events, events_at=events_at)


def _meters(sensors: Iterable[Sensor], dcmi: Dcmi | None) -> list[Meter]:
    """Everything that measures the whole system: DCMI first, then sensors in watts that belong to no part."""
    out = [] if dcmi is None else [Meter("dcmi", "system", "DCMI power reading", dcmi.watts, dcmi.average_watts)]
    whole = [each for each in sensors if each.quantity is Quantity.POWER and _psu_number(each) is None
             and each.side != "output" and not _PART.search(_ALL_SUPPLIES.sub("", each.name))]
    named = [each for each in whole if _SYSTEM_POWER.search(each.name)]
    board = [each for each in whole if each not in named and each.entity.startswith(("7.", "19.", "23."))]
    return out + [Meter(each.id, "system", each.name, each.value) for each in (*named, *board)]


def _whole(meters: Sequence[Meter], psus: Sequence[Psu], host_power: str) -> tuple[Value, str]:
    """The first meter that has a figure; 0 W of a host that is not off is no figure."""
    for meter in meters:
        if meter.watts.number or (meter.watts.number == 0 and host_power == "off"):
            return meter.watts, meter.name
    if any(meter.watts.number == 0 for meter in meters):
        return unknown(NOT_METERED), ""
    loads = [psu.input_watts.number for psu in psus if psu.input_watts.number is not None]
    if sum(loads) and all(psu.input_watts.known or psu.state is PsuState.ABSENT for psu in psus):
        return Value(sum(loads)), f"sum of {len(loads)} power supplies, input"
    outputs = [psu.output_watts.number for psu in psus if psu.output_watts.number is not None]
    if sum(outputs) and all(psu.output_watts.known or psu.state is PsuState.ABSENT for psu in psus):
        return Value(sum(outputs)), f"sum of {len(outputs)} power supplies, output (their losses not counted)"
    return (meters[0].watts if meters else unknown(NO_READING if psus else NOT_PROVIDED)), ""


def _psu_number(sensor: Sensor) -> int | None:
    """Which supply a sensor belongs to: by entity 10.N, else by a name such as ``PS2 Status`` or ``Power Supply 1``."""
    entity = _PSU_ENTITY.match(sensor.entity)
    if entity:
        return int(entity[1])
    name = _PSU_NAME.search(sensor.name.replace("_", " "))
    return int(name[1]) if name else None


def _psus(sensors: Iterable[Sensor], meters: Sequence[Meter]) -> list[Psu]:
    groups: dict[int, list[Sensor]] = {}
    for each in sensors:
        number = _psu_number(each)
        if number is not None and not _REDUNDANT.search(" ".join((each.name, *(each.states or ())))):
            groups.setdefault(number, []).append(each)
    psus = [_psu(number, group) for number, group in sorted(groups.items())]
    return _without_ratings(psus, meters)


def _psu(number: int, group: Sequence[Sensor]) -> Psu:
    fields: dict[str, Any] = {}
    mains = any(each.quantity is Quantity.VOLTAGE and (each.value.number or 0.0) >= _RAIL_VOLTS for each in group)
    for each in group:
        field = _field(each, mains=mains)
        if field and (field not in fields or not fields[field].known):
            fields[field] = each.value
    words = [state for each in group if each.states and _is_status(each) for state in each.states]
    read = any(each.states is not None and _is_status(each) for each in group)
    state = psu_state(words) if read else PsuState.UNKNOWN
    said = ", ".join(words) if words else ("no state asserted" if read else SHORT_LIST_ONLY)
    return Psu(id=f"ps{number}", name=f"PSU {number}", state=state, words=said, **fields)


def _is_status(sensor: Sensor) -> bool:
    """A discrete sensor of the supply itself; its fan or temperature has states of its own."""
    return not _COOLING.search(sensor.name) and sensor.quantity in {Quantity.OTHER, Quantity.POWER}


def _field(sensor: Sensor, *, mains: bool) -> str:
    """Which field of a supply a sensor fills. Amperes without a side are AC input only beside mains volts."""
    side = sensor.side
    if sensor.quantity is Quantity.POWER:
        # A supply's watts without a side are what it delivers (iLO, IMM); its rating is taken out below.
        return "input_watts" if side == "input" else "output_watts"
    if sensor.quantity is Quantity.CURRENT:
        side = side or ("input" if mains else "")
        return f"{side}_amps" if side else ""
    if sensor.quantity is Quantity.VOLTAGE:
        side = side or ("input" if (sensor.value.number or 0.0) >= _RAIL_VOLTS else "output")
        return f"{side}_volts"
    return ""


def _without_ratings(psus: list[Psu], meters: Sequence[Meter]) -> list[Psu]:
    """Take out supply watts that are no loads: in sum far above the system's meter, or one round figure for all."""
    system = next((meter.watts.number for meter in meters if meter.watts.number), None)
    taken = sum(psu.input_watts.number or 0.0 for psu in psus)
    if system is not None and taken > system * 1.35:
        psus = [replace(psu, input_watts=unknown(RATING)) if psu.input_watts.number else psu for psu in psus]
    figures = [psu.output_watts.number for psu in psus if psu.output_watts.number]
    round_one = len(set(figures)) == 1 and figures[0] >= 200 and figures[0] % 50 == 0 if figures else False
    if system is not None and sum(figures) > system * 1.35:
        why = RATING
    elif system is None and round_one:
        why = MAYBE_RATING
    else:
        return psus
    return [replace(psu, output_watts=unknown(why),
                    capacity_watts=psu.output_watts if round_one and why == RATING else psu.capacity_watts)
            if psu.output_watts.number else psu for psu in psus]


def psu_state(states: Iterable[str]) -> PsuState:
    """The worst of a supply's asserted states; unknown where none of them is understood."""
    said = list(states)
    return next((state for state, pattern in _PSU_WORDS if any(pattern.search(word) for word in said)),
                PsuState.UNKNOWN)


def redundancy_state(states: Iterable[str]) -> RedundancyState:
    """The worst of a redundancy sensor's asserted states; unknown where none of them is understood."""
    said = list(states)
    return next((state for state, pattern in _REDUNDANCY_WORDS if any(pattern.search(word) for word in said)),
                RedundancyState.UNKNOWN)


def _redundancy(sensors: Iterable[Sensor]) -> Iterable[Redundancy]:
    for each in sensors:
        if _COOLING.search(f"{each.name} {each.entity}"):
            continue
        state = redundancy_state(each.states or ())
        if state is RedundancyState.UNKNOWN and not _REDUNDANT.search(each.name):
            continue
        none = SHORT_LIST_ONLY if each.states is None else "no state asserted"
        words = ", ".join(each.states) if each.states else none
        yield Redundancy(f"{each.id}/{each.entity}", each.name, state, words)


def _alarms(sensors: Iterable[Sensor]) -> Iterable[Alarm]:
    """Limits that the device itself sees crossed. A supply's rating that is filed as a sensor in alarm is none."""
    severe = {"cr", "nr", "lcr", "lnr", "ucr", "unr", "critical"}
    for each in sensors:
        if each.alarm and each.quantity is not Quantity.OTHER and _psu_number(each) is None:
            severity = "critical" if each.alarm in severe else "warning"
            yield Alarm(f"{each.id}/{each.entity}", each.name, severity, f"limit crossed ({each.alarm})")


# What ipmitool says where it gets no session. With one -v it also says why; without, all of these look the same.
_COMPLAINTS: tuple[tuple[BmcState, re.Pattern[str], str], ...] = (
    (BmcState.MAX_SESSIONS, re.compile(r"insufficient resources for (?:session|role)|no (?:more )?(?:free )?session"
                                       r" slot|maximum.{0,20}sessions?|node busy", re.IGNORECASE),
     "the BMC has no session free"),
    (BmcState.AUTH_FAILED, re.compile(r"RAKP 2 HMAC is invalid|RAKP 4 message has invalid integrity|password (?:is )?"
                                      r"(?:incorrect|invalid)|invalid password", re.IGNORECASE), "wrong password"),
    (BmcState.AUTH_FAILED, re.compile(r"unauthorized name|invalid user ?name|invalid role", re.IGNORECASE),
     "unknown user"),
    (BmcState.FORBIDDEN, re.compile(r"insufficient privilege|unauthorized role|privilege level.*(?:denied|insuff)",
                                    re.IGNORECASE), "the user's privilege is not enough"),
    (BmcState.AUTH_FAILED, re.compile(r"authentication type .* not supported", re.IGNORECASE),
     "the BMC does not offer this kind of login"),
    (BmcState.NOT_ANSWERING, re.compile(r"unable to establish|get device id command failed|no response|"
                                        r"get auth capabilities error|address lookup|could not open", re.IGNORECASE),
     "no session could be established"),
    (BmcState.BAD_ANSWER, re.compile(r"unable to open sdr", re.IGNORECASE), "the sensor records could not be read"),
)


# What it says on the way to a session that works; none of it is a reason.
_NOISE = re.compile(r"^.*(?:invalid completion code received|Get HPM\.x|IANA PEN|channel cipher suites).*$",
                    re.IGNORECASE | re.MULTILINE)


def complaint(stderr: str) -> tuple[BmcState, str]:
    """What a failed run's stderr means, most telling first: state and words."""
    stderr = _NOISE.sub("", stderr)
    for state, pattern, words in _COMPLAINTS:
        if pattern.search(stderr):
            return state, words
    return BmcState.BAD_ANSWER, "the tool failed without saying why"
