"""What a PDU says: a profile and the rows read of the device make a :class:`PduReading`. Pure functions, no I/O.

A quantity is a number in A, V, W, VA, kWh or 1, or it is unknown and has a reason; "not provided" never becomes 0 and
nothing here is negative. Totals (an inlet, a phase) are never added to their parts (banks, branches, outlets).
"""

from __future__ import annotations

import bisect
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clustertop.sources.oids import dotted, under
from clustertop.sources.profile import LIMITS, QUANTITIES, Part, PartKind
from clustertop.sources.raw import MAX_LABEL, bit, number, sort, words
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from clustertop.sources.oids import Oid, Pattern, Value
    from clustertop.sources.profile import Field, Firmware, Profile, State, Test

UNITS = {"amps": "A", "volts": "V", "watts": "W", "va": "VA", "kwh": "kWh", "pf": "", "residual_amps": "A"}
NOT_MEASURED = "not measured"
NOT_PROVIDED = "not provided"
NOT_AVAILABLE = "not available now"
NO_DATA = "no data"
NOT_METERED = "not metered"
GONE = "gone: it was here before"
UNSCALED = "unscaled: no profile for this device"
BRANCHES_UNKNOWN = "branch level not monitored"
IDLE_VA = 50.0
"""Above this, no power at all beside current and voltage is a meter that does not measure it."""
# What no device of these measures: beyond it a value is a marker (2^31-1, 4294967295) or of another scale.
_MOST = {"amps": 10_000.0, "volts": 1_000.0, "watts": 5e6, "va": 5e6, "kwh": 1e9, "pf": 1.005}
_LOAD = ("amps", "volts", "watts", "va", "pf", "residual_amps")
_MARKERS = frozenset({2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1})
@dataclass(frozen=True, slots=True)
class Raw:
    """Where a number came from."""

    oid: Oid
    """Empty: a constant of the profile."""
    value: Value
    scale: float


@dataclass(frozen=True, slots=True)
class PartReading:
    """One inlet, phase, bank, branch, outlet. A quantity that is None has its reason in ``unknown``."""

    kind: PartKind
    name: str
    """``L1``, ``bank 2``, ``outlet 13``; unique among its kind within its unit."""
    unit: str
    """Which PDU of those that the agent speaks for; empty where it is one."""
    label: str
    index: Oid
    amps: float | None = None
    volts: float | None = None
    watts: float | None = None
    va: float | None = None
    kwh: float | None = None
    pf: float | None = None
    residual_amps: float | None = None
    rating_amps: float | None = None
    """Of its breaker or conductor, as the device says."""
    warn_amps: float | None = None
    """The device's own limits, where they are enabled."""
    crit_amps: float | None = None
    warn_watts: float | None = None
    crit_watts: float | None = None
    state: str = ""
    """The device's word for it; empty: it has none."""
    level: str = "unknown"
    """What the word means: ok, off, warning, critical, tripped, lost, unknown."""
    state_oid: Oid = ()
    moving: tuple[Oid, ...] = ()
    """What has to be read again for the present: its load and state, whether or not they had a value this time."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, Raw] = field(default_factory=dict)

    @property
    def metered(self) -> bool:
        """Whether it has any quantity."""
        return any(getattr(self, quantity) is not None for quantity in QUANTITIES)


@dataclass(frozen=True, slots=True)
class PduReading:
    """What one agent said at one moment."""

    profile: str
    """Empty: none fits; then there are no parts, only ``numbers``."""
    title: str = ""
    name: str = ""
    model: str = ""
    serial: str = ""
    firmware: str = ""
    parts: tuple[PartReading, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why there is nothing to judge: no data, not metered, unscaled. Empty: there is."""
    numbers: Mapping[Oid, int] = field(default_factory=dict)
    """Raw integers, unscaled, where no profile fits. They are shown and never judged."""

    def of(self, *kinds: PartKind) -> tuple[PartReading, ...]:
        """The parts of *kinds*, in the device's order."""
        return tuple(part for part in self.parts if part.kind in kinds)

    def with_notes(self, *notes: str) -> PduReading:
        """The same, with more to be said about it."""
        return replace(self, notes=(*self.notes, *notes))

    @property
    def units(self) -> tuple[str, ...]:
        """The PDUs that the agent speaks for."""
        return tuple(dict.fromkeys(part.unit for part in self.parts))

    def total(self, quantity: str, unit: str = "") -> float | None:
        """Watts, VA or kWh of a PDU: its inlets', else its phases', else its banks' or branches', else its outlets'.

        One level is taken, never a sum over two of them; amps are not added up at all (phases differ in angle).
        """
        if quantity not in ("watts", "va", "kwh"):
            raise ValueError(f"{quantity} is not a quantity that adds up")
        for kinds in (("inlet",), ("phase", "delta"), ("bank", "branch"), ("outlet",)):
            parts = [part for part in self.parts if part.kind in kinds and part.unit == unit]
            found, _ = total(getattr(part, quantity) for part in parts)
            if found is not None:
                return found
        return None


def total(values: Iterable[float | None]) -> tuple[float | None, int]:
    """The sum of what is provided and how many values are not; None where nothing is."""
    given, missing = [], 0
    for value in values:
        if value is None:
            missing += 1
        else:
            given.append(value)
    return (math.fsum(given) if given else None), missing


def unscaled(rows: Mapping[Oid, Value]) -> PduReading:
    """The reading of a device without a profile: its integers as they are."""
    private = {
        name: value for name, value in rows.items() if under(name, (1, 3, 6, 1, 4, 1)) and isinstance(value, int)}
    return PduReading("", problem=UNSCALED if private else NO_DATA, numbers=private)


def interpret(profile: Profile, rows: Mapping[Oid, Value]) -> PduReading:
    """What *rows* of a device mean by *profile*."""
    table = _Table(profile, rows)
    firmware = table.first(profile.device.firmware)
    model = table.first(profile.device.model)
    table.known = f"{model} {firmware}"
    parts: list[PartReading] = []
    taken: set[str] = set()
    spare: dict[str, list[PartReading]] = {}
    for part in profile.parts:
        if part.group in taken:
            continue
        found = list(_parts(table, part))
        if part.group and not any(one.metered for one in found):
            # Known, but without a quantity: only where no alternative has one.
            spare[part.group] = spare.get(part.group) or found
            continue
        if part.group:
            taken.add(part.group)
        parts += found
    parts += [one for group, found in spare.items() if group not in taken for one in found]
    units = {one.unit for one in parts} - {""}
    if len(units) == 1:
        # One PDU behind the agent has no need of a number.
        parts = [replace(one, unit="") for one in parts]
    parts = _told_apart(parts)
    metered = [one for one in parts if one.metered]
    notes = [profile.note] if profile.note else []
    if metered and not any(one.kind in ("bank", "branch") and one.amps is not None for one in metered):
        notes.append(BRANCHES_UNKNOWN)
    return PduReading(
        profile.name, profile.title, table.first(profile.device.name), model, table.first(profile.device.serial),
        firmware, tuple(parts), tuple(notes), "" if metered else NOT_METERED if parts else NO_DATA)


def _told_apart(parts: list[PartReading]) -> list[PartReading]:
    """The parts, with their index behind the names of those that the device calls the same."""
    count = Counter((one.kind, one.unit, one.name) for one in parts)
    return [replace(one, name=f"{one.name} #{dotted(one.index)}") if count[one.kind, one.unit, one.name] > 1 else one
            for one in parts]


def gone(part: PartReading) -> PartReading:
    """*part* as it stands when the device no longer has it: all is unknown, and what it was held against is kept."""
    return replace(
        part, amps=None, volts=None, watts=None, va=None, kwh=None, pf=None, residual_amps=None, state="",
        level="unknown", moving=(), state_oid=(), unknown=dict.fromkeys(QUANTITIES, GONE),
        raw={name: source for name, source in part.raw.items() if name in LIMITS})


class _Table:
    """The rows of a device, sorted, with what a profile's patterns find in them."""

    def __init__(self, profile: Profile, rows: Mapping[Oid, Value]) -> None:
        self.rows = rows
        self.known = ""
        """Model and firmware, for scales that depend on them."""
        self._profile = profile
        self._names = sorted(rows)

    def below(self, root: Oid) -> Iterator[Oid]:
        """The OIDs below *root*, in order."""
        for place in range(bisect.bisect_left(self._names, root), len(self._names)):
            if not under(self._names[place], root):
                return
            yield self._names[place]

    def pattern(self, text: str) -> Pattern:
        return self._profile.pattern(text)

    def indexes(self, text: str) -> Iterator[Oid]:
        """The rows that a starred pattern has."""
        pattern = self.pattern(text)
        for name in self.below(pattern.prefix):
            index = pattern.index(name)
            if index is not None:
                yield index

    def name(self, text: str, index: Oid, key: int | None = None) -> Oid | None:
        return self.pattern(text).at(index, key) if text else None

    def value(self, text: str, index: Oid, key: int | None = None) -> Value | None:
        """A column's value in a row, or None."""
        name = self.name(text, index, key)
        return None if name is None else self.rows.get(name)

    def first(self, text: str) -> str:
        """The first text of a column that is not blank."""
        if not text:
            return ""
        for name in self.below(self.pattern(text).prefix):
            found = words(self.rows[name])
            if found:
                return found
        return ""

    def scale(self, firmware: Sequence[Firmware], usual: float) -> float:
        """The scale for this device."""
        for one in firmware:
            if re.search(one.match, self.known):
                return one.scale
        return usual


@dataclass(frozen=True, slots=True)
class _Row:
    index: Oid
    key: int | None
    module: Value | None = None
    variables: Mapping[str, Oid] = field(default_factory=dict)
    """In a part with names: variable → its index."""
    called: str = ""


def _parts(table: _Table, part: Part) -> Iterator[PartReading]:
    for row in _named_rows(table, part) if part.names else _rows(table, part):
        if all(_holds(table, test, row) for test in part.where):
            yield _part(table, part, row)


def _rows(table: _Table, part: Part) -> Iterator[_Row]:
    fields = [one for quantity in QUANTITIES for one in getattr(part, quantity) if one.oid]
    texts = [one.oid for one in fields] + ([part.state.oid] if part.state and part.state.oid else [])
    starred = [text for text in texts if table.pattern(text).starred]
    indexes = dict.fromkeys(index for text in starred for index in table.indexes(text))
    fixed = [text for text in texts if text not in starred]
    if not indexes and any(table.value(text, ()) is not None for text in fixed):
        indexes[()] = None
    for index in sorted(indexes):
        key = table.value(part.key, index)
        last = index[-1] if index else None
        yield _Row(index, key if isinstance(key, int) else last, table.value(part.module, index))


def _named_rows(table: _Table, part: Part) -> Iterator[_Row]:
    pattern = re.compile(part.pattern)
    found: dict[tuple[Oid, str], dict[str, Oid]] = {}
    for index in table.indexes(part.names):
        match = pattern.fullmatch(words(table.value(part.names, index)))
        if match:
            found.setdefault((index[:-1], match["row"]), {})[match["field"]] = index
    for (unit, called), variables in found.items():
        yield _Row(unit, None, None, variables, called)


def _part(table: _Table, part: Part, row: _Row) -> PartReading:
    values: dict[str, float] = {}
    unknown: dict[str, str] = {}
    raw: dict[str, Raw] = {}
    for quantity in (*QUANTITIES, *LIMITS):
        fields: tuple[Field, ...] = getattr(part, quantity)
        limit = quantity in LIMITS
        reason = NOT_MEASURED
        for one in fields:
            found = _read(table, part, one, row, quantity)
            if isinstance(found, str):
                reason = found if reason == NOT_MEASURED else reason
                continue
            number, source = found
            if limit and number == 0:
                continue
            values[quantity], raw[quantity] = number, source
            break
        else:
            if not limit:
                unknown[quantity] = reason
    if values.get("watts") == 0 and values.get("amps", 0) * values.get("volts", 0) > IDLE_VA:
        del values["watts"], raw["watts"]
        unknown["watts"] = f"0 W at {values['amps']:g} A"
    state, level, state_oid = _state(table, part, part.state, row) if part.state else ("", "unknown", ())
    kind: PartKind = part.kind
    if part.neutral and all(_holds(table, test, row) for test in part.neutral):
        kind = "neutral"
    called = words(table.value(part.called, row.index, row.key))
    return PartReading(
        kind=kind, name=called or _text(part.name, row), unit=_text(part.unit, row),
        label=words(table.value(part.label, row.index, row.key)), index=row.index, state=state, level=level,
        state_oid=state_oid, moving=tuple(_moving(table, part, row, state_oid)), unknown=unknown, raw=raw, **values)


def _moving(table: _Table, part: Part, row: _Row, state_oid: Oid) -> dict[Oid, None]:
    names: dict[Oid, None] = {state_oid: None} if state_oid else {}
    for quantity in _LOAD:
        for one in getattr(part, quantity):
            index = row.variables.get(one.name) if one.name else row.index
            if index is not None:
                texts = (part.values if one.name else one.oid, *(test.oid for test in one.when))
                found = [table.name(text, index, row.key) for text in texts]
                names.update((name, None) for name in found if name is not None and name in table.rows)
    return names


def _read(table: _Table, part: Part, one: Field, row: _Row, quantity: str) -> tuple[float, Raw] | str:
    """A quantity with its source, or why it is unknown."""
    if one.value is not None:
        return one.value, Raw((), 0, 1.0)
    if not all(_holds(table, test, row) for test in one.when):
        return NOT_AVAILABLE
    index = row.variables.get(one.name) if one.name else row.index
    text = part.values if one.name else one.oid
    name = None if index is None else table.name(text, index, row.key)
    raw = None if name is None else table.rows.get(name)
    if name is None or raw is None or index is None:
        return NOT_PROVIDED
    said, factor = number(raw, quantity, one.find)
    if said is None or said in one.invalid or said in _MARKERS or (said < 0 and not one.signed):
        return NOT_PROVIDED
    if said == 0 and not one.zero:
        return NOT_PROVIDED
    if said and not one.scaled:
        return f"its scale is not known (raw {said:g})"
    scale = table.scale(one.firmware, one.scale) * factor
    if one.digits:
        digits = table.value(one.digits, index, row.key)
        if not isinstance(digits, int) or not 0 <= digits <= 9:
            return "its decimal digits are unknown"
        scale /= 10.0 ** digits
    if one.exponent:
        exponent = table.value(one.exponent, index, row.key)
        if not isinstance(exponent, int) or not -12 <= exponent <= 12:
            return "its exponent is unknown"
        scale *= 10.0 ** exponent
    if one.divisor:
        divisor = table.value(one.divisor, index, row.key)
        if not isinstance(divisor, int) or divisor == 0:
            return "its scale is unknown"
        scale *= divisor if divisor > 0 else -1.0 / divisor
    # Divided where that is exact: 47 x 0.1 would be 4.7000000000000002.
    value = abs(said) * scale if scale >= 1 or scale == 0 else abs(said) / (1.0 / scale)
    if not math.isfinite(value) or value > _MOST[sort(quantity)]:
        return f"out of range: {said:g} x {scale:g}"
    return round(value, 9), Raw(name, raw, scale)


def _holds(table: _Table, test: Test, row: _Row) -> bool:
    if test.index is not None:
        value: Value | None = row.index[test.index] if -len(row.index) <= test.index < len(row.index) else None
    else:
        value = table.value(test.oid, row.index, row.key)
    if value is None:
        return test.missing
    if test.bit is not None:
        return bit(value, test.bit)
    text = words(value)
    said: tuple[int | str, ...] = (text,) if isinstance(value, bytes | str | float) else (value, text)
    if test.eq and not any(one in test.eq for one in said):
        return False
    if test.ne and any(one in test.ne for one in said):
        return False
    return not test.match or re.search(test.match, text) is not None


def _state(table: _Table, part: Part, state: State, row: _Row) -> tuple[str, str, Oid]:
    """The state's word, its level, and where it was read."""
    index = row.variables.get(state.name) if state.name else row.index
    name = None if index is None else table.name(part.values if state.name else state.oid, index, row.key)
    value = None if name is None else table.rows.get(name)
    if name is None or value is None:
        return "", "unknown", ()
    text = words(value)
    known = state.words.get(text)
    if known is None:
        return text, "unknown", name
    level, _, word = known.partition(":")
    return word.strip() or level, level, name


_PLACES = re.compile(r"\{(-?\d+|key|module|row|text:\d+)\}")


def _text(template: str, row: _Row) -> str:
    def fill(match: re.Match[str]) -> str:
        what = match[1]
        if what == "row":
            return row.called
        if what == "key":
            return "?" if row.key is None else str(row.key)
        if what == "module":
            return words(row.module)
        if what.startswith("text:"):
            return _index_text(row.index, int(what[5:]))
        number = int(what)
        return str(row.index[number]) if -len(row.index) <= number < len(row.index) else "?"

    return clean(_PLACES.sub(fill, template), MAX_LABEL)


def _index_text(index: Oid, place: int) -> str:
    """A text in an index: its length, then its octets (RFC 2578, 7.7)."""
    if place >= len(index):
        return "?"
    octets = index[place + 1:place + 1 + index[place]]
    return clean(bytes(one for one in octets if 0 < one < 256))


def where(source: Raw) -> str:
    """The OID that a number came from."""
    return dotted(source.oid) if source.oid else "profile"
