"""A PDU's reading as the group ``pdu``: a row per part. Pure functions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from clustertop.poll.device_frames import Cell, GroupPart, Row, cell, sentence, state, table_part, word
from clustertop.signals.pdu import STATES
from clustertop.sources.oids import dotted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.model import Attr
    from clustertop.sources.bmc_reading import Alarm, BmcReading, Circuit, Value
    from clustertop.sources.pdu_reading import PartReading, PduReading
    from clustertop.wire.frame import TablePart

GROUP = "pdu"
_QUANTITIES = ("amps", "volts", "watts", "va", "kwh", "pf", "residual_amps")
_LIMITS = ("rating_amps", "warn_amps", "crit_amps", "warn_watts", "crit_watts")
_RAW_NUMBERS = 4
"""Raw integers shown of a device without a profile."""
_CIRCUIT_KINDS = {"mains": "inlet", "branch": "branch", "outlet": "outlet", "group": "group"}
_TRIPPED = frozenset({"tripped", "open", "off"})
_HEALTH = {"ok": "ok", "warning": "warning", "critical": "critical"}


def pdu_part(reading: PduReading, at: float, *, outlets_behind: float = 0.0) -> GroupPart:
    """The group of a reading over SNMP.

    Args:
        reading: what the agent said.
        at: when it was asked, our monotonic clock.
        outlets_behind: seconds between the reading of the outlets and this one.
    """
    parts = sorted(reading.parts, key=lambda one: one.kind == "outlet")  # the outlets last: they are left out first
    if not parts:
        return GroupPart(at, tb={"pdu": _nothing(reading)})
    note = sentence(reading.notes)
    rows = [Row(key, _attrs(part, reading.profile, note)) for key, part in zip(_keys(parts), parts, strict=True)]
    columns: dict[str, list[Cell]] = {
        name: [cell(getattr(part, name), part.unknown.get(name, "")) for part in parts]
        for name in (*_QUANTITIES, *_LIMITS)}
    columns["state"] = [state(part.level, STATES, _unknown_state(part)) for part in parts]
    columns["tripped"] = [float(part.level == "tripped") if part.level in STATES else None for part in parts]
    columns["behind"] = [outlets_behind if part.kind == "outlet" else 0.0 for part in parts]
    return GroupPart(at, tb={"pdu": table_part(rows, columns)})


def pdu_facts(reading: PduReading) -> dict[str, Attr]:
    """Who the device is, and what is to be said of it."""
    facts: dict[str, Attr] = {
        "profile": reading.profile, "title": word(reading.title), "name": word(reading.name),
        "model": word(reading.model), "serial": word(reading.serial), "firmware": word(reading.firmware),
        "problem": word(reading.problem), "notes": sentence(reading.notes),
    }
    return {name: said for name, said in facts.items() if said}


def circuits_part(reading: BmcReading, at: float) -> GroupPart:
    """The group of a rack PDU that speaks Redfish: a row per circuit, and a phase's for each line of its mains."""
    rows: list[Row] = []
    kept: list[dict[str, Cell]] = []
    note = sentence(reading.notes)
    for unit, raised in _alarms(reading).items():
        worst = max((one.level for one in raised), default=0)
        said = sentence([one.words for one in raised])
        attrs = _row("pdu", "alarms", unit, "", note)
        rows.append(Row(f"alarms/{unit or '1'}", {**attrs, "state": said} if said else attrs))
        kept.append({"state": state(("ok", "warning", "critical")[worst], STATES)})
    for circuit in sorted(reading.circuits, key=lambda one: _CIRCUIT_KINDS.get(one.kind) == "outlet"):
        kind = _CIRCUIT_KINDS.get(circuit.kind, "branch")
        unit = _unit(circuit.id)
        said = ", ".join(filter(None, (circuit.breaker, circuit.state)))
        rows.append(Row(circuit.id, _row(kind, circuit.name, unit, said, note)))
        kept.append(_circuit(circuit))
        if kind in {"inlet", "branch"} and len(circuit.line_amps) > 1:
            volts = dict(circuit.line_volts)
            for line, amps in circuit.line_amps:
                phase = "neutral" if line.lower() == "neutral" else "phase"
                name = f"{circuit.name} {line.replace('Line', 'L')}" if kind == "branch" else line.replace("Line", "L")
                rows.append(Row(f"{circuit.id}/{line}", _row(phase, name, unit, "", note)))
                kept.append({"amps": _value(amps), "volts": _value(volts.get(f"{line}ToNeutral")),
                             "rating_amps": _value(circuit.rated_amps) if phase == "phase" else None})
    if not reading.circuits:
        rows.append(Row("pdu/1/0", _row("pdu", "PDU", "", "", note)))
        kept.append(dict.fromkeys(("amps", "watts"), "!it tells of no circuit"))
    names = list(dict.fromkeys(name for one in kept for name in one))
    behind = 0.0
    if reading.detail_at is not None and reading.taken_at is not None:
        behind = max(0.0, reading.taken_at - reading.detail_at)
    columns: dict[str, list[Cell]] = {name: [one.get(name) for one in kept] for name in names}
    columns["behind"] = [behind if row.a["kind"] == "outlet" else 0.0 for row in rows]
    return GroupPart(at, tb={"pdu": table_part(rows, columns)})


def _alarms(reading: BmcReading) -> dict[str, list[Alarm]]:
    """By PDU, what it has raised; none raised is said only where the device tells of alarms at all."""
    units = dict.fromkeys(_unit(one.id) for one in reading.circuits)
    out: dict[str, list[Alarm]] = {unit: [] for unit in units} if reading.alarms_told else {}
    for one in reading.alarms:
        unit = _unit(one.id)
        out.setdefault(unit if unit in units or len(units) != 1 else next(iter(units)), []).append(one)
    return out


def _circuit(circuit: Circuit) -> dict[str, Cell]:
    level = "tripped" if circuit.breaker.lower() in _TRIPPED else ""
    if not level:
        words = [each.strip().lower() for each in circuit.state.split(",")]
        level = next((_HEALTH[each] for each in reversed(words) if each in _HEALTH), "")
        level = "off" if "off" in words and level in {"", "ok"} else level
    return {"amps": _value(circuit.amps), "volts": _value(circuit.volts), "watts": _value(circuit.watts),
            "rating_amps": _value(circuit.rated_amps) if circuit.rated_amps.number else None,
            "state": state(level, STATES), "tripped": float(level == "tripped") if circuit.breaker else None}


def _value(value: Value | None) -> Cell:
    return None if value is None else cell(value.number, value.why)


def _unit(path: str) -> str:
    """``…/RackPDUs/3/Branches/A1`` → ``3``, so that those of two PDUs behind one service are told apart."""
    steps = path.rstrip("/").split("/")
    return word(steps[-3]) if len(steps) > 3 else ""


def _row(kind: str, name: str, unit: str, said: str, note: str) -> dict[str, Attr]:
    out: dict[str, Attr] = {"kind": kind, "name": word(name), "unit": unit, "profile": "redfish"}
    if said:
        out["state"] = word(said)
    if note and kind != "outlet":
        out["notes"] = note
    return out


def _attrs(part: PartReading, profile: str, note: str) -> dict[str, Attr]:
    out: dict[str, Attr] = {"kind": part.kind, "name": word(part.name), "unit": word(part.unit), "profile": profile}
    if part.label:
        out["part_label"] = word(part.label)
    if part.state:
        out["state"] = word(part.state)
    if note and part.kind != "outlet":
        out["notes"] = note
    return out


def _unknown_state(part: PartReading) -> str:
    return f"it says {word(part.state)!r}" if part.state else ""


def _keys(parts: Sequence[PartReading]) -> list[str]:
    """``inlet/1/1``: kind, PDU, place in the device's tables. People change names: one only where a place is shared."""
    places = [f"{part.kind}/{word(part.unit) or '1'}/{dotted(part.index) or '0'}" for part in parts]
    count = Counter(places)
    return [f"{place}/{word(part.name)}" if count[place] > 1 else place
            for place, part in zip(places, parts, strict=True)]


def _nothing(reading: PduReading) -> TablePart:
    """One row for a device of which nothing can be judged: what is wrong stands in its cells, raw numbers beside it."""
    raw = [f"{dotted(name)} = {number}" for name, number in list(reading.numbers.items())[:_RAW_NUMBERS]]
    notes = [*reading.notes, *([f"raw: {', '.join(raw)}"] if raw else [])]
    attrs: dict[str, Attr] = {"kind": "pdu", "name": "PDU", "unit": "", "profile": reading.profile,
                              "notes": sentence(notes)}
    why = cell(None, reading.problem or "no data")
    return table_part([Row("pdu/1/0", attrs)], {name: [why] for name in _QUANTITIES})
