"""The rules in force as a list: limits, scopes, origins, on how much they apply, how late they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop.hosts import fold
from clustertop.quantity import duration
from clustertop.rules import latency, words
from clustertop.rules.configured import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clustertop.rules.configured import InForce
    from clustertop.rules.engine import Judged
    from clustertop.rules.latency import Times
    from clustertop.rules.spec import Rule
    from clustertop.signals.metric import TableSpec

FEW_NODES = 60
"""Most characters of folded node names in a line."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One rule as it is listed."""

    name: str
    rule: Rule
    """As it is in force; its scope still as the configuration writes it."""
    shipped: bool
    spec: TableSpec
    nodes: tuple[str, ...]
    """The watched nodes in its scope."""
    origins: Mapping[str, str]
    """By key, where the configuration set it; what is not here is built in."""
    detects: Mapping[str, float]
    """By severity, worst case from the fault to the alert in seconds."""
    judged: Judged | None
    """On how many things it applies now; None: nobody looked."""


def listed(
    in_use: InForce, shipped: Mapping[str, Rule], specs: Mapping[str, TableSpec], nodes: Sequence[str],
    scopes: Mapping[str, tuple[str, ...]], when: Times, judged: Mapping[str, Judged] | None = None,
) -> list[Listed]:
    """Return every rule, in the order in which they ship, the operator's own behind them.

    Args:
        in_use: the rules.
        shipped: those that are built in.
        specs: every table, by name.
        nodes: names of the nodes that are watched.
        scopes: by rule, those of them that it is for, where the configuration scopes it.
        when: how often things are read and judged.
        judged: by rule, on how much it applies now, where somebody looked.
    """
    out = []
    for name, rule in in_use.rules.items():
        spec = specs[rule.table]
        detects = {severity.name.lower(): latency.detects_within(rule, level, spec.group, when)
                   for severity, level in rule.levels()}
        out.append(Listed(name, rule, name in shipped, spec, scopes.get(name, tuple(nodes)),
                          in_use.origins.get(name, {}), detects, (judged or {}).get(name)))
    return out


def lines(rules: Sequence[Listed], watched: int) -> list[str]:
    """The list as text, a block for each rule; *watched*: how many nodes there are."""
    out: list[str] = []
    for one in rules:
        rule = one.rule
        mark = "" if rule.enabled else f" - OFF ({_origin(one, 'enabled')})"
        own = "" if one.shipped else " - your own"
        out.append(f"{one.name}: {rule.title}{own}{mark}")
        out.append(f"  {'judges':9} {words.judged(rule, one.spec)} ({one.spec.title})")
        for severity, level in rule.levels():
            word = severity.name.lower()
            out.append(f"  {word:9} {words.limit(rule, level, one.spec)}; at most {duration(one.detects[word])} late "
                       f"({_origins(one, word)})")
        out.append(f"  {'clear':9} {words.clear(rule, one.spec)} ({_origins(one, 'clear')})")
        out.append(f"  {'for':9} {_scope(one, watched)}")
        if one.judged is not None:
            out.append(f"  {'now':9} {_applies(one)}")
        if rule.source:
            out.append(f"  {'source':9} {rule.source}")
        changed = [f"{key} {place}" for key, place in one.origins.items()
                   if key.partition(".")[0] not in {"info", "warning", "critical", "clear", "enabled"}]
        if changed:
            out.append(f"  {'set':9} {', '.join(changed)}")
        out.append("")
    silent = [one.name for one in rules if not one.rule.enabled]
    off = f", {len(silent)} switched off: {', '.join(silent)}" if silent else ""
    return [*out, f"{len(rules) - len(silent)} rules in force{off}"]


def _origin(one: Listed, key: str) -> str:
    return one.origins.get(key, BUILT_IN)


def _origins(one: Listed, part: str) -> str:
    """Where the values of a level or of the clearing came from, each place once."""
    keys = [key for key in one.origins if key.startswith(f"{part}.")]
    fields = [key.partition(".")[2] for key in keys]
    if not keys:
        return BUILT_IN
    places = list(dict.fromkeys(one.origins[key] for key in keys))
    if len(places) == 1 and "limit" in fields:
        return places[0]
    return ", ".join(f"{field} {one.origins[key]}" for field, key in zip(fields, keys, strict=True))


def _scope(one: Listed, watched: int) -> str:
    rule, count = one.rule, len(one.nodes)
    text = f"all {watched} nodes" if count == watched and watched > 1 else f"{count} of {watched} nodes"
    if watched == 1:
        text = "the node" if count else "no node"
    if one.nodes and count < watched:
        names = fold(one.nodes)
        text += f": {names if len(names) <= FEW_NODES else names[:FEW_NODES] + ' ...'}"
    if rule.groups:
        text += f" (groups {', '.join(rule.groups)})"
    if rule.models:
        text += f", models {', '.join(rule.models)}"
    return text


def _applies(one: Listed) -> str:
    assert one.judged is not None
    known, unknown = one.judged.known, one.judged.unknown
    if not known and not unknown:
        return "nothing of the kind is there"
    if not known:
        return f"none of {unknown} judged ({one.judged.why})"
    return f"{known} judged" + (f", {unknown} not ({one.judged.why})" if unknown else "")


def as_object(rules: Iterable[Listed], watched: int) -> dict[str, object]:
    """The list for JSON."""
    return {"nodes": watched, "rules": [_object(one) for one in rules]}


def _object(one: Listed) -> dict[str, object]:
    rule = one.rule
    levels = {
        severity.name.lower(): {
            **{key: {"value": getattr(level, key), "origin": _origin(one, f"{severity.name.lower()}.{key}")}
               for key in ("limit", "for_seconds", "for_polls")},
            "detects_within_seconds": one.detects[severity.name.lower()],
        }
        for severity, level in rule.levels()}
    clear = {key: {"value": getattr(rule.clear, key), "origin": _origin(one, f"clear.{key}")}
             for key in ("limit", "seconds", "polls")}
    plain = ("title", "enabled", "table", "metric", "kind", "op", "covers", "gather_seconds", "settles", "hint", "look",
             "source")
    return {
        "name": one.name, "built_in": one.shipped,
        **{key: {"value": getattr(rule, key), "origin": _origin(one, key)} for key in plain},
        "judged": words.judged(rule, one.spec), "unit": rule.unit(one.spec), "levels": levels, "clear": clear,
        "follows": {"value": list(rule.follows), "origin": _origin(one, "follows")},
        "scope": {"nodes": list(one.nodes), "groups": list(rule.groups), "models": list(rule.models),
                  "origin": next((one.origins[key] for key in ("groups", "nodes", "models") if key in one.origins),
                                 BUILT_IN)},
        "applies": None if one.judged is None else {
            "known": one.judged.known, "unknown": one.judged.unknown, "why": one.judged.why or None},
    }


def reference(rules: Mapping[str, Rule], specs: Mapping[str, TableSpec]) -> str:
    """The table of docs/rules.md, from the rules that ship."""
    out = ["| rule | alerts on | judges | info | warning | critical | clear |", "|---|---|---|---|---|---|---|"]
    for name, rule in rules.items():
        spec = specs[rule.table]
        limits = {severity.name.lower(): f"`{words.limit(rule, level, spec)}`" for severity, level in rule.levels()}
        cells = [f"`{name}`", rule.title, words.judged(rule, spec),
                 *(limits.get(level, "") for level in ("info", "warning", "critical")), f"`{words.clear(rule, spec)}`"]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"
