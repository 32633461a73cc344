"""What a BMC says, in one shape whether it came over Redfish or IPMI.

Every number is a value or an unknown with a reason; nothing here is ever 0 because it was missing.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

NOT_PROVIDED = "not provided"
NO_VALUE = "no value"
OUT_OF_RANGE = "out of range"
NOT_METERED = "power not metered"
NO_READING = "no reading"
DISABLED = "disabled"
ABSENT = "absent"
MAYBE_RATING = "not confirmed as a measurement (may be a rating)"
RATING = "a rating, not a load"
HOST_OFF = "no reading (host off)"
NOT_TRUSTED = "measurement marked not available"
NEVER_READ = "not read yet"
SHORT_LIST_ONLY = "the short list does not tell states"


@dataclass(frozen=True, slots=True)
class Value:
    """A number, or None with the reason in *why*."""

    number: float | None = None
    why: str = NOT_PROVIDED

    def __post_init__(self) -> None:
        if self.number is not None:
            object.__setattr__(self, "why", "")

    @property
    def known(self) -> bool:
        """Whether there is a number."""
        return self.number is not None


def known(number: float) -> Value:
    """A value that was read."""
    return Value(number, "")


def unknown(why: str) -> Value:
    """No value, and why."""
    return Value(None, why)


def first(*values: Value) -> Value:
    """The first known of *values*, else the first that gives a better reason than "not provided", else the last."""
    for one in values:
        if one.known:
            return one
    return next((one for one in values if one.why != NOT_PROVIDED), values[-1])


class Quantity(enum.StrEnum):
    """What a sensor measures. Its unit word decides, never its name or the list that it stands in."""

    POWER = "power"
    APPARENT_POWER = "apparent power"
    CURRENT = "current"
    VOLTAGE = "voltage"
    TEMPERATURE = "temperature"
    SPEED = "speed"
    ENERGY = "energy"
    FREQUENCY = "frequency"
    SHARE = "share"
    OTHER = "other"


UNITS: dict[Quantity, str] = {
    Quantity.POWER: "W",
    Quantity.APPARENT_POWER: "VA",
    Quantity.CURRENT: "A",
    Quantity.VOLTAGE: "V",
    Quantity.TEMPERATURE: "°C",
    Quantity.SPEED: "RPM",
    Quantity.ENERGY: "J",
    Quantity.FREQUENCY: "Hz",
    Quantity.SHARE: "%",
    Quantity.OTHER: "",
}
"""The unit that values of a quantity are kept in; kWh become joules."""

_SIGNED = {Quantity.TEMPERATURE, Quantity.VOLTAGE, Quantity.OTHER}
_HIGHEST = {
    Quantity.POWER: 1e7,
    Quantity.APPARENT_POWER: 1e7,
    Quantity.CURRENT: 1e5,
    Quantity.VOLTAGE: 1e5,
    Quantity.TEMPERATURE: 1000.0,
    Quantity.SPEED: 1e6,
}


def plausible(number: float, quantity: Quantity) -> Value:
    """*number* as a value, or unknown where nothing physical has it: not finite, negative, a marker such as 2^31."""
    if not math.isfinite(number) or abs(number) > _HIGHEST.get(quantity, 1e18):
        return unknown(OUT_OF_RANGE)
    if number < 0 and quantity not in _SIGNED:
        return unknown(OUT_OF_RANGE)
    return known(number)


@dataclass(frozen=True, slots=True)
class Limits:
    """A sensor's own limits, in its unit; None where it has none."""

    lower_caution: float | None = None
    lower_critical: float | None = None
    upper_caution: float | None = None
    upper_critical: float | None = None


@dataclass(frozen=True, slots=True)
class Sensor:
    """One sensor. Its identity is ``id`` and ``entity``; several may share a name."""

    id: str
    """Redfish: the resource's path; IPMI: the sensor number such as ``6Bh``, or its name where the text has none."""
    name: str
    quantity: Quantity
    value: Value
    entity: str = ""
    """Redfish: the chassis; IPMI: entity and instance such as ``10.2``."""
    side: str = ""
    """``input`` or ``output`` of a power supply, where it is known."""
    states: tuple[str, ...] | None = None
    """Asserted states of a discrete sensor; None: not read, which is never "healthy"."""
    alarm: str = ""
    """The device's own word where a limit is crossed."""
    limits: Limits = Limits()

    @property
    def unit(self) -> str:
        """The unit that the value is in."""
        return UNITS[self.quantity]


class PsuState(enum.StrEnum):
    """What a power supply says of itself."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    AC_LOST = "ac_lost"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Psu:
    """One power supply. Input amperes are of the mains or busbar, output amperes of the rail: never added."""

    id: str
    name: str
    state: PsuState = PsuState.UNKNOWN
    words: str = ""
    """The states as the BMC words them."""
    input_watts: Value = Value()
    output_watts: Value = Value()
    input_volts: Value = Value()
    input_amps: Value = Value()
    output_volts: Value = Value()
    output_amps: Value = Value()
    capacity_watts: Value = Value()
    """The rating. Never a load."""

    @property
    def watts(self) -> Value:
        """Input power where it is known, else output power, else the better of the two reasons."""
        return first(self.input_watts, self.output_watts)


class RedundancyState(enum.StrEnum):
    """Whether the supplies still cover for each other."""

    FULL = "full"
    DEGRADED = "degraded"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Redundancy:
    """One redundancy group of power supplies."""

    id: str
    name: str
    state: RedundancyState
    words: str = ""
    """The BMC's words, or why it is unknown."""


@dataclass(frozen=True, slots=True)
class Meter:
    """One figure for the power of a whole chassis, and where it was read."""

    id: str
    chassis: str
    name: str
    watts: Value
    average_watts: Value = Value()


@dataclass(frozen=True, slots=True)
class Circuit:
    """A circuit of a rack PDU: mains, branch or outlet."""

    id: str
    kind: str
    """``mains``, ``branch``, ``outlet`` or ``group``."""
    name: str
    amps: Value = Value()
    volts: Value = Value()
    watts: Value = Value()
    rated_amps: Value = Value()
    line_amps: tuple[tuple[str, Value], ...] = ()
    """``("Line1", …)`` in the order in which the device gives them; ``Neutral`` too."""
    line_volts: tuple[tuple[str, Value], ...] = ()
    """``("Line1ToLine2", …)``."""
    breaker: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """What the device itself calls an alarm and has raised."""

    id: str
    name: str
    severity: str
    message: str

    @property
    def level(self) -> int:
        """1, or 2 where the device calls it critical: raised is raised, whatever it is called."""
        return 2 if self.severity == "critical" else 1

    @property
    def words(self) -> str:
        """Its name, and what it says where it says something."""
        return ": ".join(filter(None, (self.name, self.message)))


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the event log."""

    id: str
    at: str
    """As the BMC wrote it; its clock may be far off, or not set ("Pre-Init")."""
    sensor: str
    message: str
    asserted: bool | None = None


class BmcState(enum.StrEnum):
    """Where we stand with a BMC. Only ``UP`` brings readings."""

    WAITING = "waiting"
    UP = "up"
    SLOW = "slow"
    """The present poll is not back yet; the last readings stand, with their age."""
    NOT_ANSWERING = "not answering"
    BUSY = "busy (503)"
    MAX_SESSIONS = "maximum sessions reached"
    AUTH_FAILED = "auth failed"
    FORBIDDEN = "no permission (403)"
    TLS_FAILED = "certificate not accepted"
    BAD_ANSWER = "answer not understood"
    NO_TOOL = "tool missing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class BmcStatus:
    """A BMC's row: its state, since when, and when it is tried again."""

    state: BmcState = BmcState.WAITING
    since_wall: float = 0.0
    """Seconds since the epoch: the first poll that got no good answer; 0 while all is well."""
    words: str = ""
    """One sentence for the operator."""
    next_at: float = 0.0
    """Not tried before this, on our monotonic clock."""
    failures: int = 0
    """Failed polls in a row."""
    skipped: int = 0
    """Polls that were due while one was under way or while backing off, in all."""
    late: int = 0
    """Results that came after their deadline and were used, in all."""


@dataclass(frozen=True, slots=True)
class BmcReading:
    """Everything one BMC said at its last good answer, and where we stand with it now."""

    source: str = ""
    """``redfish`` or ``ipmi``."""
    taken_at: float | None = None
    """When the values were asked for, on our monotonic clock; None: never. Their age is counted from here."""
    vendor: str = ""
    model: str = ""
    host_power: str = ""
    """``on``, ``off``, another word of the BMC's, or empty where it does not say."""
    watts: Value = Value(None, NEVER_READ)
    """Power of the whole thing."""
    watts_source: str = ""
    """Which meter, sensor or sum it is."""
    capacity_watts: Value = Value()
    meters: tuple[Meter, ...] = ()
    psus: tuple[Psu, ...] = ()
    redundancy: tuple[Redundancy, ...] = ()
    sensors: tuple[Sensor, ...] = ()
    circuits: tuple[Circuit, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    alarms_told: bool = False
    """The device has alarms, and all of them were read: none raised is none."""
    events: tuple[Event, ...] = ()
    events_at: float | None = None
    """When the event log was read; it is read apart from the sensors and may be much older."""
    detail_at: float | None = None
    """When the oldest of the sensors, outlets and temperatures here was asked for; they are read less often."""
    notes: tuple[str, ...] = ()
    """What was cut, not read or not believed."""
    status: BmcStatus = field(default_factory=BmcStatus)

    @property
    def psu_redundancy(self) -> RedundancyState:
        """The worst of the groups; unknown where there is none."""
        order = (RedundancyState.LOST, RedundancyState.DEGRADED, RedundancyState.UNKNOWN, RedundancyState.FULL)
        states = {group.state for group in self.redundancy}
        return next((state for state in order if state in states), RedundancyState.UNKNOWN)

    def age(self, now: float) -> float:
        """Seconds since the values were asked for; infinite if never."""
        return math.inf if self.taken_at is None else now - self.taken_at
