"""Rules as data: what a rule may say. :mod:`clustertop.rules.sanity` says what makes no sense."""

from __future__ import annotations

import operator
from importlib import resources
from typing import TYPE_CHECKING, Literal

import msgspec

from clustertop.model import Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from clustertop.signals.metric import TableSpec

Op = Literal[">", ">=", "<", "<="]
Kind = Literal["threshold", "increase", "peers", "absence", "trend"]
Peers = Literal["", "node", "rack", "leaf", "group", "model", "fleet"]
Compare = Literal["difference", "ratio"]
_OPS: dict[str, Callable[..., object]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}
LEVELS = (("info", Severity.INFO), ("warning", Severity.WARNING), ("critical", Severity.CRITICAL))


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A limit and how long it must be breached: at *for_polls* readings and for *for_seconds*."""

    limit: float
    for_seconds: float = 0.0
    for_polls: int = 1


class Clear(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When it is over: inside *limit* (else the level's own) for *seconds* and at *polls* readings."""

    limit: float | None = None
    seconds: float = 0.0
    polls: int = 1


class Together(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When the things of one parent (node, rack, leaf, group, fleet) that fail together are one alert."""

    share: float = 0.5
    """More than this share of what is judged there, 0 to 1."""
    least: int = 3
    """At least so many."""
    many: int = 20
    """So many nodes that no smaller parent accounts for are one alert of the fleet."""
    things: int = 0
    """So many things of one node are one alert, whatever their share; 0: *share* and *least* hold for them as well."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule: what is made of a column, a comparison, and a limit per severity."""

    title: str
    table: str
    metric: str
    op: Op = ">"
    info: Level | None = None
    warning: Level | None = None
    critical: Level | None = None
    clear: Clear = Clear()
    groups: tuple[str, ...] = ()
    """Only nodes of these groups, racks or leaves; empty: all."""
    hint: str = ""
    """What it usually means."""
    enabled: bool = True
    together: Together = Together()
    covers: Literal["", "thing", "node", "feed"] = ""
    """Other alerts of the same thing, of the whole node, or of what a feed supplies and lost, go under this one: it is
    their cause."""
    follows: tuple[str, ...] = ()
    """Rules that are an earlier sign of the same fault: their alert on the same thing becomes this one."""
    gather_seconds: float = 0.0
    """Where siblings are on their way to the same fault, the first alert waits so long to be one with them."""
    settles: bool = True
    """Whether it waits while a node settles after a boot or a reload of its driver."""
    kind: Kind = "threshold"
    """What the limit is held against; :mod:`clustertop.rules.values` works it out."""
    window_seconds: float = 0.0
    """``increase``: how far back. ``peers``: where given, growth over it is compared, not the value."""
    peers: Peers = ""
    """``peers``: with whom a thing is compared. ``model``: things of the same model, over the whole fleet."""
    compare: Compare = "difference"
    """``peers``: value minus the median, or value over the median."""
    floor: float = 0.0
    """``peers`` by ratio: the median counts as at least this much, so that a quiet fleet does not make all loud."""
    gaps: int = 5
    """``absence``: so many readings without the value are no single gap any more."""
    gap_seconds: float = 300.0
    """``absence``: nor is so long a time without it."""
    also: tuple[str, ...] = ()
    """``absence``: other columns of the table that count as well; the longest silence is compared."""
    reach: float | None = None
    """``trend``: the value whose coming is foretold."""
    nodes: tuple[str, ...] | None = None
    """Only these nodes, by name; None: all."""
    models: tuple[str, ...] = ()
    """Only devices (of node tables: nodes with GPUs) whose model fits one of these patterns; empty: all."""
    look: str = ""
    """What to look at next; facts only."""
    source: str = ""
    """Where the limit comes from."""

    @property
    def breach(self) -> Callable[..., object]:
        """The comparison, value first."""
        return _OPS[self.op]

    @property
    def upward(self) -> bool:
        """Whether more is worse."""
        return self.op in {">", ">="}

    def levels(self) -> list[tuple[Severity, Level]]:
        """The severities that have a limit, mildest first."""
        return [(severity, level) for name, severity in LEVELS if (level := getattr(self, name)) is not None]

    def unit(self, spec: TableSpec) -> str:
        """Unit of what is held against the limits; *spec* is the rule's table."""
        if self.kind in {"absence", "trend"}:
            return "s"
        if self.kind == "peers" and self.compare == "ratio":
            return "times"
        return spec.metric(self.metric).unit


def builtin() -> dict[str, Rule]:
    """The rules that ship, by name."""
    text = resources.files("clustertop.rules").joinpath("builtin.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Rule])
