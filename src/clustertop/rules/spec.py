"""Rules as data: what a rule may say, checked when it is read."""

from __future__ import annotations

import operator
from importlib import resources
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from clustertop.model import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clustertop.signals.metric import TableSpec

Op = Literal[">", ">=", "<", "<="]
_OPS: dict[str, Callable[..., object]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}
LEVELS = (("info", Severity.INFO), ("warning", Severity.WARNING), ("critical", Severity.CRITICAL))


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit and how long it must be breached: at *for_polls* readings and for *for_seconds*."""

    limit: float
    for_seconds: float = 0.0
    for_polls: int = 1


class Clear(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When it is over: inside *limit* (else the level's own) for *seconds* and at *polls* readings."""

    limit: float | None = None
    seconds: float = 0.0
    polls: int = 1


class Together(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the things of one parent (node, rack, leaf, group, fleet) that fail together are one alert."""

    share: float = 0.5
    """More than this share of what is judged there, 0 to 1."""
    least: int = 3
    """At least so many."""
    many: int = 20
    """So many nodes that no smaller parent accounts for are one alert of the fleet."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: a column, a comparison, and a limit per severity."""

    title: str
    table: str
    metric: str
    op: Op
    info: Level | None = None
    warning: Level | None = None
    critical: Level | None = None
    clear: Clear = Clear()
    groups: tuple[str, ...] = ()
    """Only nodes of these groups, racks or leaves; empty: all."""
    hint: str = ""
    enabled: bool = True
    together: Together = Together()
    covers: Literal["", "thing", "node"] = ""
    """Other alerts of the same thing, or of the whole node, go under this one: it is their cause."""
    follows: tuple[str, ...] = ()
    """Rules that are an earlier sign of the same fault: their alert on the same thing becomes this one."""
    gather_seconds: float = 0.0
    """Where siblings are on their way to the same fault, the first alert waits so long to be one with them."""
    settles: bool = True
    """Whether it waits while a node settles after a boot or a reload of its driver."""

    @property
    def breach(self) -> Callable[..., object]:
        """The comparison, value first."""
        return _OPS[self.op]

    def levels(self) -> list[tuple[Severity, Level]]:
        """The severities that have a limit, mildest first."""
        return [(severity, level) for name, severity in LEVELS if (level := getattr(self, name)) is not None]


class Override(Protocol):
    """What a user's config may change of a rule; None leaves it."""

    @property
    def enabled(self) -> bool | None: ...
    @property
    def warning(self) -> float | None: ...
    @property
    def critical(self) -> float | None: ...
    @property
    def clear(self) -> float | None: ...
    @property
    def for_seconds(self) -> float | None: ...
    @property
    def for_polls(self) -> int | None: ...
    @property
    def groups(self) -> Sequence[str] | None: ...
    @property
    def hint(self) -> str | None: ...


def builtin() -> dict[str, Rule]:
    """The rules that ship, by name."""
    text = resources.files("clustertop.rules").joinpath("builtin.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Rule])


def check(rules: Mapping[str, Rule], specs: Mapping[str, TableSpec]) -> None:
    """Raise ValueError, in one sentence, for a rule on a table or column that does not exist."""
    for name, rule in rules.items():
        if rule.table not in specs:
            raise ValueError(f"rules.{name}.table: no table {rule.table!r}; there are {', '.join(specs)}")
        if rule.metric not in specs[rule.table].index:
            raise ValueError(f"rules.{name}.metric: table {rule.table} has no column {rule.metric!r}")
        if not rule.levels():
            raise ValueError(f"rules.{name}: give at least one of info, warning, critical")


def apply(rules: Mapping[str, Rule], overrides: Mapping[str, Override]) -> dict[str, Rule]:
    """Return *rules* with the user's changes."""
    out = dict(rules)
    for name, change in overrides.items():
        rule = out[name]
        for level in ("warning", "critical"):
            limit, old = getattr(change, level), getattr(rule, level)
            if limit is None and old is None:
                continue
            new = Level(
                old.limit if limit is None else limit,
                change.for_seconds if change.for_seconds is not None else old.for_seconds if old else 0.0,
                change.for_polls if change.for_polls is not None else old.for_polls if old else 1,
            )
            rule = msgspec.structs.replace(rule, **{level: new})
        if change.clear is not None:
            rule = msgspec.structs.replace(rule, clear=msgspec.structs.replace(rule.clear, limit=change.clear))
        if change.enabled is not None:
            rule = msgspec.structs.replace(rule, enabled=change.enabled)
        if change.groups is not None:
            rule = msgspec.structs.replace(rule, groups=tuple(change.groups))
        if change.hint is not None:
            rule = msgspec.structs.replace(rule, hint=change.hint)
        out[name] = rule
    return out
