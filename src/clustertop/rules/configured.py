"""The rules in force: those that ship, with what the operator's configuration changes, adds and switches off."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, get_origin, get_type_hints

import msgspec

from clustertop.config_read import dotted, nearest, parent
from clustertop.rules.sanity import problems
from clustertop.rules.spec import LEVELS, Clear, Level, Rule, Together, builtin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from clustertop.config import Config
    from clustertop.config_read import ConfigError

BUILT_IN = "builtin"
"""Where a value came from that the configuration does not set."""
_NAME_MOST = 64
_NESTED = {"info": Level, "warning": Level, "critical": Level, "clear": Clear, "together": Together}
_LEVELS = tuple(name for name, _ in LEVELS)
_LISTS = ("groups", "models", "follows", "also")


class Configured(Protocol):
    """A configuration that knows where its keys stand."""

    @property
    def config(self) -> Config: ...

    def line(self, key: str) -> int:
        """The line that sets *key*; 0 if none does."""
        ...

    def origin(self, key: str) -> str:
        """Where *key* came from."""
        ...

    def error(self, key: str, message: str) -> ConfigError:
        """Return the error that says *message* about *key*."""
        ...


@dataclass(frozen=True, slots=True)
class InForce:
    """The rules, and where what differs from the built-in ones came from."""

    rules: Mapping[str, Rule]
    origins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By rule and key (``warning.limit``, ``enabled``): where it was set. What is not here is built in."""

    def origin(self, rule: str, key: str) -> str:
        """Where *key* of *rule* came from: ``builtin`` or ``file:line``."""
        return self.origins.get(rule, {}).get(key, BUILT_IN)


def in_force(loaded: Configured, base: Mapping[str, Rule] | None = None) -> InForce:
    """Return the built-in rules (or *base*) with what *loaded* says of them.

    Raises:
        ConfigError: a rule, table, metric or limit that makes no sense; one sentence with its place.
    """
    from clustertop.store.catalogue import SPECS

    specs = {spec.name: spec for spec in SPECS}
    rules = dict(builtin() if base is None else base)
    shipped = frozenset(rules)
    written: dict[str, dict[str, str]] = {}
    for name, change in loaded.config.rules.items():
        key = dotted("rules", name)
        _words(loaded, key, change)
        if name not in shipped:
            _whole(loaded, key, name, change, shipped)
        rules[name] = _changed(rules.get(name), change, name)
        written[name] = dict(_written(change, rules[name]))
        for level in _LEVELS:
            if getattr(rules[name], level) is not None and math.isnan(getattr(rules[name], level).limit):
                raise loaded.error(f"{key}.{level}", "has no limit; write it as limit = ... beside the rest")
    for name in loaded.config.rules:
        for path, message in problems(name, rules[name], rules, specs):
            raise _blame(loaded, name, path, message, written[name], shipped=name in shipped)
    origins = {
        name: {path: _origin(loaded, f"{dotted('rules', name)}.{key}", dotted("rules", name))
               for path, key in keys.items()}
        for name, keys in written.items()}
    return InForce(rules, origins)


def _words(loaded: Configured, key: str, change: Any) -> None:
    """Refuse words that a field does not have, names given twice, and scopes of nothing."""
    for name, hint in get_type_hints(Rule).items():
        said = getattr(change, name, None)
        if get_origin(hint) is Literal and said is not None and said not in get_args(hint):
            known = [word for word in get_args(hint) if word]
            raise loaded.error(f"{key}.{name}", f"must be {_either(known)}, not {said!r}{_meant(said, known)}")
    for name in _LISTS:
        items = getattr(change, name) or ()
        twice = next((item for item in items if items.count(item) > 1), None)
        if twice is not None:
            raise loaded.error(f"{key}.{name}", f"has {twice!r} twice; keep one")
        if "" in items:
            raise loaded.error(f"{key}.{name}", "has an empty entry; take it out")
    for name, what in (("groups", "every node"), ("models", "every model"), ("nodes", "every node")):
        scope = getattr(change, name)
        if scope is not None and not scope:
            raise loaded.error(f"{key}.{name}", f"is empty, so the rule would be for nothing; leave it out for {what}, "
                                                "or write enabled = false")


def _either(words: Collection[str]) -> str:
    every = [f'"{word}"' for word in words]
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} or {every[-1]}"


def _meant(word: object, known: Collection[str]) -> str:
    close = nearest(str(word), known)
    return f"; {close}" if close.startswith("did") else ""


def _whole(loaded: Configured, key: str, name: str, change: Any, shipped: Collection[str]) -> None:
    """A rule that does not ship must say what it is."""
    if not change.table and not change.metric:
        meant = _meant(name, shipped) or "; `clustertop rules` lists those that ship"
        raise loaded.error(key, f"is not a rule{meant} (a rule of your own needs table, metric and a limit)")
    if len(name) > _NAME_MOST or not name.isprintable() or not name:
        raise loaded.error(key, f"must have a name of 1 to {_NAME_MOST} printable characters")
    for field_ in ("table", "metric"):
        if not getattr(change, field_):
            raise loaded.error(key, f"has no {field_}; a rule of your own needs table, metric and a limit")
    if all(getattr(change, level) is None for level in _LEVELS):
        raise loaded.error(key, "has no limit; give at least one of info, warning, critical")


def _changed(rule: Rule | None, change: Any, name: str) -> Rule:
    """*rule* (None: a new one, called *name*) with what *change* says."""
    if rule is None:
        rule = Rule(change.title or name, change.table, change.metric)
    fields: dict[str, Any] = {}
    for key in change.__struct_fields__:
        said = getattr(change, key)
        if key in {"for_seconds", "for_polls", "nodes"} or said is None:
            continue
        if key in _LEVELS:
            said = _level(getattr(rule, key), said)
        elif key == "clear":
            said = {"limit": float(said)} if isinstance(said, int | float) else _given(said)
            said = msgspec.structs.replace(rule.clear, **said)
        elif key == "together":
            said = msgspec.structs.replace(rule.together, **_given(said))
        fields[key] = said
    rule = msgspec.structs.replace(rule, **fields)
    every = {key: getattr(change, key) for key in ("for_seconds", "for_polls") if getattr(change, key) is not None}
    for level in _LEVELS:
        old = getattr(rule, level)
        own = getattr(change, level)
        if old is not None:
            mine = {key: value for key, value in every.items() if getattr(own, key, None) is None}
            rule = msgspec.structs.replace(rule, **{level: msgspec.structs.replace(old, **mine)})
    return rule


def _level(old: Level | None, said: Any) -> Level:
    given = {"limit": float(said)} if isinstance(said, int | float) else _given(said)
    # Without a limit of its own it is left as impossible, which is refused with its key.
    return msgspec.structs.replace(old or Level(float("nan")), **given)


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    return {key: value for key in struct.__struct_fields__ if (value := getattr(struct, key)) is not None}


def _written(change: Any, rule: Rule) -> Iterator[tuple[str, str]]:
    """The key paths of *rule* that *change* sets (``warning.limit``, ``hint``), each with the key that was written."""
    for key in change.__struct_fields__:
        said = getattr(change, key)
        if said is None:
            continue
        if key in {"for_seconds", "for_polls"}:
            yield from ((f"{level}.{key}", key) for level in _LEVELS
                        if getattr(rule, level) is not None and getattr(getattr(change, level), key, None) is None)
        elif key not in _NESTED:
            yield key, key
        elif isinstance(said, int | float):
            yield f"{key}.limit", key
        else:
            yield from ((f"{key}.{one}", f"{key}.{one}") for one in _given(said))


def _origin(loaded: Configured, key: str, top: str) -> str:
    """Where *key* stands, or the nearest table around it that has a line."""
    while not loaded.line(key) and key != top:
        key = parent(key)
    return loaded.origin(key)


def _blame(
    loaded: Configured, name: str, path: tuple[str, ...], message: str, written: Mapping[str, str], *, shipped: bool
) -> ConfigError:
    """The error about *path*, at the key that the operator wrote."""
    key, wanted = dotted("rules", name), ".".join(path)
    if wanted in written:
        return loaded.error(f"{key}.{written[wanted]}", message)
    mine = any(one.startswith(f"{wanted}.") for one in written)
    if not path or mine or not shipped or message.startswith("is missing"):
        return loaded.error(f"{key}.{wanted}" if path else key, message)
    # What is wrong is built in, and became so by what the operator wrote beside it.
    beside = next((key for one, key in written.items() if one.split(".")[0] in _NESTED), next(iter(written.values())))
    return loaded.error(f"{key}.{beside}",
                        f"does not fit the built-in {wanted}, which {message}; write {path[0]} as well")


def scoped(in_use: InForce, nodes: Mapping[str, tuple[str, ...]]) -> dict[str, Rule]:
    """Return the rules with their scopes as names of nodes.

    Args:
        in_use: the rules.
        nodes: by rule, the watched nodes that it is for, of those that the configuration scopes.
    """
    return {
        name: msgspec.structs.replace(rule, groups=(), nodes=nodes[name]) if name in nodes else rule
        for name, rule in in_use.rules.items()
    }
