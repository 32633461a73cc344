"""The words that every layer shares: who a node is, what state its link is in, why a value is unknown."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


Attr = str | int | float | bool | list[str] | None
"""What a node says of a thing beside its readings: a name, an address, a version."""


class LinkState(enum.IntEnum):
    """Where the console stands with a node. Only ``UP`` brings readings."""

    WAITING = 0
    """Not tried yet, or waiting for its turn."""
    CONNECTING = 1
    UP = 2
    BUSY = 3
    """Refused before authentication (sshd MaxStartups); tried again soon."""
    UNREACHABLE = 4
    AUTH_FAILED = 5
    HOST_KEY_UNKNOWN = 6
    HOST_KEY_CHANGED = 7
    NO_PYTHON = 8
    PROBE_FAILED = 9
    """Logged in, but the probe did not start or ended."""
    CLOSED = 10
    """We have let go of it."""

    @property
    def words(self) -> str:
        """The state as an operator reads it."""
        return _LINK_WORDS[self]


_LINK_WORDS = {
    LinkState.WAITING: "waiting",
    LinkState.CONNECTING: "connecting",
    LinkState.UP: "up",
    LinkState.BUSY: "refused (busy)",
    LinkState.UNREACHABLE: "unreachable",
    LinkState.AUTH_FAILED: "auth failed",
    LinkState.HOST_KEY_UNKNOWN: "unknown host key",
    LinkState.HOST_KEY_CHANGED: "HOST KEY CHANGED",
    LinkState.NO_PYTHON: "no python",
    LinkState.PROBE_FAILED: "probe failed",
    LinkState.CLOSED: "closed",
}


class Severity(enum.IntEnum):
    """How bad a verdict is."""

    OK = 0
    INFO = 1
    WARNING = 2
    CRITICAL = 3


LOCAL_HOST = "local:"
"""As a node's ``host``: this machine, without SSH."""


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node of the inventory. Its identity is ``name``; the rest says how to reach it and where it stands."""

    name: str
    host: str = ""
    """What ssh would be given; empty: the name itself."""
    user: str = ""
    port: int = 0
    rack: str = ""
    leaf: str = ""
    """The one leaf that it hangs on; empty: none is known, or it hangs on several (rails)."""
    groups: tuple[str, ...] = ()
    interval_seconds: float = 0.0
    """Between two readings of it; 0: as of every node."""
    kind: str = "node"
    """``node``; of what else has rows of its own: ``pdu``, ``bmc``, ``switch``, ``fabric``, ``feed``, ``fleet``."""
    of: str = ""
    """Of a BMC: its node."""
    feeds: tuple[str, ...] = ()
    """Of a node: the feeds that it hangs on."""
    leaves: tuple[str, ...] = ()
    """All leaves that it hangs on, where a map says so; empty: ``leaf`` is all that is known."""

    @property
    def target(self) -> str:
        """The host to ask ssh for."""
        return self.host or self.name


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """A node's link changed state, at *at* on our monotonic clock."""

    node: int
    at: float
    state: LinkState
    stage: str = ""
    """The stage reached: name, tcp, login, channel, probe, frames."""
    reason: str = ""
    """One clear sentence, already cleaned."""
    via: str = ""
    """The jump hosts that the link goes through, without users; empty: none, or not known yet."""


class Why:
    """Reason codes for unknown values: 0 means known.

    The codes below are fixed; texts that nodes send (errno names, NVML's words) get codes from :func:`intern`.
    """

    KNOWN = 0
    NOT_PROVIDED = 1
    NOT_SUPPORTED = 2
    OUT_OF_RANGE = 3
    UNREADABLE = 4
    SATURATED = 5
    RESET = 6
    FIRST_READING = 7
    STALE = 8
    GPU_LOST = 9
    MIG = 10
    NO_PERMISSION = 11
    MISSING = 12
    NEVER_READ = 13
    NOT_JUDGED = 14
    PATH_UNKNOWN = 15
    RELEASED = 16
    """The operator had the GPUs let go; the words are those of the probe."""


_REASONS: list[str] = [
    "",
    "not provided",
    "not supported",
    "out of range",
    "unreadable",
    "saturated - true value unknown",
    "counter reset",
    "first reading",
    "stale",
    "GPU lost",
    "n/a (MIG)",
    "no permission",
    "missing",
    "not read yet",
    "not judged",
    "path unknown",
    "released by the operator",
]
_CODES: dict[str, int] = {text: code for code, text in enumerate(_REASONS)}
_MAX_REASONS = 4096
_OTHER = "other error"


def intern(text: str) -> int:
    """Return the reason code of *text*, making one if there is room; past the limit all share "other error"."""
    code = _CODES.get(text)
    if code is None:
        if len(_REASONS) >= _MAX_REASONS and text != _OTHER:
            return intern(_OTHER)
        code = len(_REASONS)
        _REASONS.append(text)
        _CODES[text] = code
    return code


def reason(code: int) -> str:
    """Return the words of a reason code; empty for a known value."""
    return _REASONS[code]


@dataclass(frozen=True, slots=True)
class Thing:
    """What an alert is about, by identity and by label: a row of a table, or a parent of many."""

    table: str
    """A table's name; of a parent of nodes its kind: ``rack``, ``feed``, ``leaf``, ``group``, ``fleet``."""
    node: str
    """Empty: a parent of nodes."""
    key: str
    """Identity within the node: a GPU's UUID, ``0000:17:00.0/1`` of a port, a group's name; empty: the node itself;
    ``*``: several of its things. Of a parent of nodes its name."""
    label: str
    """What the operator reads, for example ``GPU 3`` or ``mlx5_0/1``."""

    @property
    def id(self) -> str:
        """Stable identity over restarts and recordings."""
        return f"{self.table}:{self.node}:{self.key}"


@dataclass(frozen=True, slots=True)
class Transition:
    """A verdict changed. The only thing that rules put out; every front end consumes the same ones."""

    at: float
    """Our monotonic clock, seconds."""
    wall: float
    """Seconds since the epoch, for display."""
    kind: str
    """``raised``, ``worsened``, ``eased``, ``cleared``; ``spread``: it now stands for more; ``folded``: it is part of
    the alert *into* from now on; ``remains``: shown again, as what it was part of, or a silence, is over;
    ``acknowledged``, ``silenced``, ``dismissed``: an operator did that."""
    rule: str
    severity: Severity
    """After the change; of a cleared one, what it was."""
    thing: Thing
    message: str
    value: float | None
    limit: float | None
    unit: str
    since: float
    """When the alert was first raised, our monotonic clock."""
    alert: str = ""
    """The alert's id: the same from its first to its last transition, whatever it becomes."""
    into: str = ""
    """Of ``folded``: the id of the alert that it is part of."""
    members: int = 0
    """How many things the alert stands for beside the one it names; 0: it stands for that one."""
    quiet: bool = False
    """The alert is acknowledged or silenced: for the log, nobody has to be told."""


@dataclass(frozen=True, slots=True)
class Alert:
    """What an operator reads: a firing verdict, or the parent under which many fire together."""

    rule: str
    title: str
    severity: Severity
    thing: Thing
    row: int
    """Row of the thing in its table of the view that it was judged on; -1: it stands for several."""
    message: str
    value: float | None
    limit: float | None
    unit: str
    since: float
    since_wall: float
    members: tuple[str, ...] = ()
    """Labels of what this alert stands for, where it stands for several."""
    hint: str = ""
    id: str = ""
    """The same as long as it lasts, whatever it becomes."""
    on: tuple[int, ...] = ()
    """Numbers of the nodes that it is about."""
    acked: bool = False
    """Somebody knows of it, and it is no worse since."""
    silenced: bool = False
    note: str = ""
    """The reason that was given for either."""

    @property
    def where(self) -> str:
        """The node that it is about, or the parent of several."""
        return self.thing.node or self.thing.label


@dataclass(frozen=True, slots=True)
class OwnCost:
    """What watching costs on the console's machine."""

    cpu_ratio: float
    """Of one core, over the last second or so."""
    memory_bytes: float
    """Resident."""


@dataclass(frozen=True, slots=True)
class Request:
    """What an operator's front end asks of a node's probe; travels back on the queue that poll reads."""

    node: int | None
    """Index in the inventory; None: every node."""
    body: Mapping[str, object] = field(default_factory=dict)
    """Sent as one JSON line, for example ``{"do": "full"}``."""
