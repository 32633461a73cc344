"""Device profiles: what the OIDs of a kind of PDU mean, as data in ``profiles/*.toml``.

docs/pdu.md says how to write one.

Scale, unit and what counts as "no value" belong to each OID of each branch of a vendor's tree, and sometimes to a
firmware: so that is where a profile says them. Nothing here talks to a device.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from clustertop.files import read_bounded
from clustertop.sources.oids import Pattern, oid, under

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clustertop.sources.oids import Oid, Value

SYS_DESCR: Oid = (1, 3, 6, 1, 2, 1, 1, 1, 0)
SYS_OBJECT_ID: Oid = (1, 3, 6, 1, 2, 1, 1, 2, 0)
SYS_NAME: Oid = (1, 3, 6, 1, 2, 1, 1, 5, 0)

PartKind = Literal["inlet", "phase", "delta", "neutral", "bank", "branch", "outlet"]
"""inlet: all that comes in. phase: one conductor of the input (L1). delta: a load between two conductors (L1-L2), which
has no breaker. bank, branch: behind a breaker of their own."""
MAX_BYTES = 1 << 20
QUANTITIES = ("amps", "volts", "watts", "va", "kwh", "pf", "residual_amps")
LIMITS = ("rating_amps", "warn_amps", "crit_amps", "warn_watts", "crit_watts")
LEVELS = ("ok", "off", "warning", "critical", "tripped", "lost", "unknown")


class ProfileError(ValueError):
    """A profile that is not right; the text names the file, the place and what would be right."""


class Test(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on a row: on another column's value (*oid*), or on a component of its index."""

    oid: str = ""
    index: int | None = None
    eq: tuple[int | str, ...] = ()
    ne: tuple[int | str, ...] = ()
    bit: int | None = None
    """This bit (0: the first octet's highest) has to be set in a BITS value."""
    match: str = ""
    missing: bool = False
    """What the condition says where the column is absent."""


class Firmware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another scale, where the device's firmware (or model) text matches."""

    match: str
    scale: float


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one quantity of a row lies: value x scale, in A, V, W, VA, kWh or 1 (power factor)."""

    oid: str = ""
    name: str = ""
    """In a part with *names*: the variable's name, behind the row's."""
    value: float | None = None
    """A constant instead of an OID, for what a model's data sheet says."""
    scale: float = 1.0
    firmware: tuple[Firmware, ...] = ()
    digits: str = ""
    """A column with decimal digits n: the value is divided by 10^n."""
    exponent: str = ""
    """A column with an exponent n, mostly negative: the value is multiplied by 10^n."""
    divisor: str = ""
    """A column with -n for "divide by n" and n for "multiply by n"."""
    find: str = ""
    """In a text such as a name plate: a regular expression whose group 1 is the number."""
    invalid: tuple[float, ...] = ()
    """Raw values that mean "not provided"; negative ones always do."""
    zero: bool = True
    """False: a zero means "not provided" here."""
    scaled: bool = True
    """False: nobody knows the scale yet. Then only a zero is a value, anything else is unknown."""
    signed: bool = False
    """True: the sign means something else (a leading power factor); the value is taken without it."""
    when: tuple[Test, ...] = ()
    """Counts only where all of these hold: a limit's enable bit."""


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column with a state. Words are ``level: word``, or a level alone."""

    oid: str = ""
    name: str = ""
    words: dict[str, str] = {}


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of one kind. ``*`` in an OID stands for the row's index, ``{0}`` for its first component."""

    kind: PartKind
    name: str
    """What the row is called: ``L{0}``, ``bank {key}``, ``outlet {-1}``."""
    unit: str = ""
    """Where one agent speaks for several PDUs: which one, ``{0}``."""
    called: str = ""
    """A column with the device's own short name for the row, which is then taken in the place of *name*."""
    label: str = ""
    """A column with the text that people gave it."""
    key: str = ""
    """A column whose number names the row, as ``{key}``; without one that is the index's last component."""
    module: str = ""
    """A column whose number is the PDU that the row belongs to, as ``{module}`` in *unit*."""
    group: str = ""
    """Of the parts with the same group, the first that gives a row is taken, the others are not."""
    names: str = ""
    """A column with variables' names. *pattern* then gives the row (group ``row``) and the variable (``field``)."""
    pattern: str = ""
    values: str = ""
    where: tuple[Test, ...] = ()
    """A row counts only where all of these hold."""
    neutral: tuple[Test, ...] = ()
    """Rows for which all of these hold are the neutral conductor."""
    amps: tuple[Field, ...] = ()
    volts: tuple[Field, ...] = ()
    watts: tuple[Field, ...] = ()
    va: tuple[Field, ...] = ()
    kwh: tuple[Field, ...] = ()
    pf: tuple[Field, ...] = ()
    residual_amps: tuple[Field, ...] = ()
    """What flows back neither by a line nor by the neutral."""
    rating_amps: tuple[Field, ...] = ()
    warn_amps: tuple[Field, ...] = ()
    crit_amps: tuple[Field, ...] = ()
    warn_watts: tuple[Field, ...] = ()
    crit_watts: tuple[Field, ...] = ()
    state: State | None = None


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a device is recognised: all that is given has to hold."""

    object_id: str = ""
    """Prefix of its sysObjectID."""
    descr: str = ""
    """Regular expression found in its sysDescr."""
    tree: str = ""
    """Something lies below this OID."""


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Columns with what the device says of itself; of a table the first row."""

    model: str = ""
    serial: str = ""
    firmware: str = ""
    name: str = ""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of PDU."""

    title: str
    source: str
    """The MIB or the page that it was written by."""
    base: str
    """OIDs that begin with a dot lie below it."""
    match: tuple[Match, ...]
    parts: tuple[Part, ...]
    device: Device = Device()
    note: str = ""
    name: str = ""

    def pattern(self, text: str) -> Pattern:
        """An OID of this profile, which may hold ``*`` and ``{0}``."""
        return Pattern.of(self.base + text if text.startswith(".") else text)

    def columns(self) -> list[Oid]:
        """What has to be read of a device: the fixed beginnings of all OIDs named, without those below others."""
        texts: set[str] = set()
        for part in self.parts:
            texts.update((part.called, part.label, part.key, part.module, part.names, part.values))
            for quantity in (*QUANTITIES, *LIMITS):
                for one in getattr(part, quantity):
                    texts.update((one.oid, one.digits, one.exponent, one.divisor, *(test.oid for test in one.when)))
            texts.update(test.oid for test in (*part.where, *part.neutral))
            texts.add(part.state.oid if part.state else "")
        texts.update((self.device.model, self.device.serial, self.device.firmware, self.device.name))
        found = sorted(self.pattern(text).prefix for text in texts - {""})
        kept: list[Oid] = []
        for one in found:
            if not kept or not under(one, kept[-1]):
                kept.append(one)
        return kept


@cache
def profiles() -> Mapping[str, Profile]:
    """All profiles by name, checked. Raises ProfileError."""
    found = {}
    for file in sorted(resources.files("clustertop.sources").joinpath("profiles").iterdir(), key=lambda one: one.name):
        if file.name.endswith(".toml"):
            name = file.name.removesuffix(".toml")
            found[name] = parse(file.read_text("utf-8"), name)
    return found


def load(name: str) -> Profile:
    """The profile called *name*, or that in the file *name* where it ends with ``.toml``. Raises ProfileError."""
    if name.endswith(".toml"):
        try:
            return parse(read_bounded(Path(name).expanduser(), MAX_BYTES).decode("utf-8"), Path(name).stem)
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"profile {name}: {getattr(error, 'strerror', None) or 'not text in UTF-8'}") from None
    try:
        return profiles()[name]
    except KeyError:
        raise ProfileError(f"there is no profile {name}; there are {', '.join(profiles())}") from None


def parse(text: str, name: str) -> Profile:
    """Read one profile. Raises ProfileError."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"profile {name}: {error}") from None
    parts = raw.get("parts")
    for part in parts if isinstance(parts, list) else ():
        for quantity in (*QUANTITIES, *LIMITS):
            if isinstance(part, dict) and isinstance(part.get(quantity), dict):
                part[quantity] = [part[quantity]]
    try:
        profile = msgspec.convert(raw | {"name": name}, Profile)
        _check(profile)
    except (msgspec.ValidationError, ValueError, re.error) as error:
        raise ProfileError(f"profile {name}: {error}") from None
    return profile


def _check(profile: Profile) -> None:
    """What the types cannot say. Raises ValueError."""
    oid(profile.base)
    profile.columns()
    for match in profile.match:
        if not (match.object_id or match.descr or match.tree):
            raise ValueError("a match says nothing")
        re.compile(match.descr)
    if not profile.match or not profile.parts:
        raise ValueError("it has no match or no parts")
    for number, part in enumerate(profile.parts):
        where = f"parts[{number}]"
        if bool(part.names) != bool(part.pattern) or bool(part.names) != bool(part.values):
            raise ValueError(f"{where}: names, pattern and values belong together")
        if part.pattern and set(re.compile(part.pattern).groupindex) < {"row", "field"}:
            raise ValueError(f"{where}: pattern needs the groups row and field")
        if not any(getattr(part, quantity) for quantity in QUANTITIES) and part.state is None:
            raise ValueError(f"{where}: it reads nothing")
        for quantity in (*QUANTITIES, *LIMITS):
            for one in getattr(part, quantity):
                if (bool(one.oid) + bool(one.name) + (one.value is not None)) != 1:
                    raise ValueError(f"{where}.{quantity}: give one of oid, name or value")
                if one.scale <= 0:
                    raise ValueError(f"{where}.{quantity}: a scale is above 0")
                if one.find and re.compile(one.find).groups != 1:
                    raise ValueError(f"{where}.{quantity}: find needs one group")
        for word in (part.state.words if part.state else {}).values():
            if word.partition(":")[0] not in LEVELS:
                raise ValueError(f"{where}.state: {word!r} does not begin with one of {', '.join(LEVELS)}")


def recognise(rows: Mapping[Oid, Value], known: Iterable[Profile] | None = None) -> Profile | None:
    """The profile that fits a device best by its sysObjectID, sysDescr and the trees that it answers for.

    A longer sysObjectID beats a shorter one, a sysDescr beats none, and both beat a tree alone.
    """
    object_id, descr = rows.get(SYS_OBJECT_ID, ""), rows.get(SYS_DESCR, b"")
    said = _maybe(object_id)
    text = descr[:1000].decode("utf-8", "replace") if isinstance(descr, bytes) else ""
    best: tuple[tuple[int, int, int], Profile] | None = None
    ordered = sorted(rows)
    for profile in profiles().values() if known is None else known:
        for match in profile.match:
            wanted = oid(match.object_id) if match.object_id else ()
            if wanted and not under(said, wanted):
                continue
            if match.descr and not re.search(match.descr, text):
                continue
            if match.tree and not _holds(ordered, oid(match.tree)):
                continue
            score = (len(wanted), 1 if match.descr else 0, len(oid(match.tree)) if match.tree else 0)
            if best is None or score > best[0]:
                best = score, profile
    return best[1] if best else None


def _holds(ordered: Sequence[Oid], tree: Oid) -> bool:
    import bisect

    place = bisect.bisect_left(ordered, tree)
    return place < len(ordered) and under(ordered[place], tree)


def _maybe(value: object) -> Oid:
    try:
        return oid(value) if isinstance(value, str) else ()
    except ValueError:
        return ()
