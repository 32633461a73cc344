"""What makes no sense in a rule: columns that do not exist, limits that nothing can reach, circles."""

from __future__ import annotations

import difflib
import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from clustertop.rules.spec import Rule
    from clustertop.signals.metric import Metric, TableSpec

    Problem = tuple[tuple[str, ...], str]
    """Key path within the rule (empty: the rule itself), and what is wrong with it and what would be right."""

LEAST_WINDOW_SECONDS = 10.0
MOST_SECONDS = 7 * 86_400.0
"""Longest duration of any kind in a rule."""
_BY_KIND = {
    "window_seconds": {"increase", "peers"}, "peers": {"peers"}, "compare": {"peers"}, "floor": {"peers"},
    "gaps": {"absence"}, "gap_seconds": {"absence"}, "also": {"absence"}, "reach": {"trend"},
}
"""Fields that only some kinds of rule read."""


def check(rules: Mapping[str, Rule], specs: Mapping[str, TableSpec]) -> None:
    """Raise ValueError, in one sentence, for the first rule that makes no sense."""
    for name, rule in rules.items():
        for key, message in problems(name, rule, rules, specs):
            raise ValueError(f"{'.'.join(('rules', name, *key))} {message}")


def nearest(word: str, known: Collection[str]) -> str:
    """The end of a sentence: which of *known* was meant, or all that there are."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"


def problems(
    name: str, rule: Rule, rules: Mapping[str, Rule], specs: Mapping[str, TableSpec]
) -> Iterator[Problem]:
    """Yield what is wrong with *rule*; each sentence begins after its key.

    Args:
        name: the rule's.
        rule: the rule.
        rules: all of them, by name.
        specs: every table, by name.
    """
    spec = specs.get(rule.table)
    if spec is None:
        yield ("table",), f"is wrong: there is no table {rule.table!r}; {nearest(rule.table, specs)}"
        return
    wrong = [("metric", rule.metric)] if rule.metric not in spec.index else []
    wrong += [("also", name) for name in rule.also if name not in spec.index]
    if wrong:
        yield from (((key,), f"is wrong: table {rule.table} has no column {word!r}; {_column(word, spec, specs)}")
                    for key, word in wrong)
        return
    if not rule.levels():
        yield (), "has no limit; give at least one of info, warning, critical"
    yield from _kind(rule, spec)
    yield from _durations(rule)
    yield from _reachable(rule, spec)
    yield from _order(rule)
    yield from _follows(name, rules)


def _column(word: str, spec: TableSpec, specs: Mapping[str, TableSpec]) -> str:
    close = difflib.get_close_matches(word, spec.index, n=1)
    if close:
        return f"did you mean {close[0]}?"
    others = [other.name for other in specs.values() if word in other.index]
    if others:
        return f"table {others[0]} has it"
    return f"`clustertop once --json` shows the {len(spec.index)} there are"


def _kind(rule: Rule, spec: TableSpec) -> Iterator[Problem]:
    for field, kinds in _BY_KIND.items():
        if rule.kind not in kinds and getattr(rule, field) != _default(rule, field):
            where = " or ".join(f'"{kind}"' for kind in sorted(kinds))
            yield (field,), f"says nothing to a rule of kind \"{rule.kind}\"; write kind = {where}, or leave it out"
    metric = spec.metric(rule.metric)
    if rule.kind == "increase" and not rule.window_seconds:
        yield ("window_seconds",), 'is missing; a rule of kind "increase" says growth over how long, for example 600'
    if rule.window_seconds and not LEAST_WINDOW_SECONDS <= rule.window_seconds <= MOST_SECONDS:
        least, most = LEAST_WINDOW_SECONDS, MOST_SECONDS
        yield ("window_seconds",), f"must be from {least:g} to {most:g}, not {rule.window_seconds:g}"
    if rule.kind == "peers":
        if not rule.peers:
            yield ("peers",), 'is missing; write with whom to compare: node, rack, leaf, group, model or fleet'
        if rule.peers == "node" and rule.table == "node":
            yield ("peers",), "cannot be node: a node has no other node in it; write rack, leaf, group or fleet"
        if rule.floor < 0:
            yield ("floor",), f"must be 0 or more, not {rule.floor:g}"
    if rule.kind == "trend":
        if rule.reach is None:
            yield ("reach",), 'is missing; a rule of kind "trend" says which value is coming nearer'
        elif not metric.history or metric.kind == "counter":
            known = ", ".join(one.name for one in spec.metrics if one.history and one.kind != "counter") or "none"
            yield ("metric",), f"has no kept past to see a trend in; those of table {rule.table} that have: {known}"
        if rule.upward:
            yield ("op",), 'must be "<" or "<=": the less time is left, the worse'
    if rule.kind in {"increase", "absence"} and not rule.upward:
        yield ("op",), f'must be ">" or ">=" in a rule of kind "{rule.kind}": the more, the worse'
    if rule.kind == "absence":
        if rule.gaps < 1:
            yield ("gaps",), f"must be 1 or more, not {rule.gaps}"
        if not 0 < rule.gap_seconds <= MOST_SECONDS:
            yield ("gap_seconds",), f"must be more than 0 and at most {MOST_SECONDS:g}, not {rule.gap_seconds:g}"


def _default(rule: Rule, field: str) -> object:
    names = rule.__struct_fields__
    return rule.__struct_defaults__[names.index(field) - len(names) + len(rule.__struct_defaults__)]


def _durations(rule: Rule) -> Iterator[Problem]:
    waits: list[tuple[tuple[str, ...], float]] = [
        ((severity.name.lower(), "for_seconds"), level.for_seconds) for severity, level in rule.levels()]
    waits += [(("clear", "seconds"), rule.clear.seconds), (("gather_seconds",), rule.gather_seconds)]
    for key, seconds in waits:
        if not 0 <= seconds <= MOST_SECONDS:
            yield key, f"must be 0 or more seconds and at most {MOST_SECONDS:g}, not {seconds:g}"
    polls = [((severity.name.lower(), "for_polls"), level.for_polls) for severity, level in rule.levels()]
    polls += [(("clear", "polls"), rule.clear.polls), (("together", "least"), rule.together.least),
              (("together", "many"), rule.together.many)]
    for key, count in polls:
        if not 1 <= count <= 100_000:
            yield key, f"must be from 1 to 100000, not {count}"
    if not 0 <= rule.together.things <= 100_000:
        yield ("together", "things"), f"must be from 0 to 100000, not {rule.together.things}"
    if not 0 <= rule.together.share <= 1:
        yield ("together", "share"), f"must be from 0 to 1, the share of what is judged, not {rule.together.share:g}"


def _order(rule: Rule) -> Iterator[Problem]:
    """Limits must get worse with severity, and clearing lies on the good side of the mildest."""
    levels = rule.levels()
    word = "above" if rule.upward else "below"
    for (mild, first), (severe, second) in itertools.pairwise(levels):
        if rule.breach(first.limit, second.limit) and first.limit != second.limit:
            name = severe.name.lower()
            yield (name,), (f"is milder ({second.limit:g}) than {mild.name.lower()} ({first.limit:g}); "
                            f"with op = \"{rule.op}\" it must be {word} it")
    clear = rule.clear.limit
    if clear is not None and levels:
        limit = levels[0][1].limit
        if clear != limit and rule.breach(clear, limit):
            other = "below" if rule.upward else "above"
            yield ("clear",), (f"({clear:g}) is on the wrong side of {levels[0][0].name.lower()} ({limit:g}); "
                               f"with op = \"{rule.op}\" it must be {other} it")


def _reachable(rule: Rule, spec: TableSpec) -> Iterator[Problem]:
    """A limit that no valid reading can pass switches its rule off unseen."""
    least, most = _range(rule, spec.metric(rule.metric))
    unit = rule.unit(spec)
    span = f"{least:g} to {most:g}" if math.isfinite(least) else f"at most {most:g}"
    if not math.isfinite(most):
        span = f"{least:g} or more"
    what = f"{rule.metric} is {span}{f' ({unit})' if unit else ''}"
    limits = [((severity.name.lower(),), level.limit) for severity, level in rule.levels()]
    if rule.clear.limit is not None:
        limits.append((("clear",), rule.clear.limit))
    for key, limit in limits:
        if not least <= limit <= most:
            yield key, f"must be a limit that a reading can pass, not {limit:g}: {what}"
        elif key != ("clear",) and limit == (most if rule.op == ">" else least) and rule.op in {">", "<"}:
            yield key, f"can never be passed with op = \"{rule.op}\": {what}"
    if rule.reach is not None and not spec.metric(rule.metric).lo <= rule.reach <= spec.metric(rule.metric).hi:
        yield ("reach",), f"must be a value that {rule.metric} can have, not {rule.reach:g}"


def _range(rule: Rule, metric: Metric) -> tuple[float, float]:
    """The values that can be held against the limits."""
    # What the console works out itself may be negative (a margin); only its upper end is said.
    lo = metric.lo if metric.raw else -math.inf
    match rule.kind:
        case "absence" | "trend":
            return 0.0, MOST_SECONDS
        case "increase":
            return 0.0, metric.hi - min(metric.lo, 0.0)
        case "peers" if rule.compare == "ratio":
            return 0.0, math.inf
        case "peers" if rule.window_seconds:
            return -math.inf, math.inf
        case "peers":
            reach = metric.hi - lo
            return -reach, reach
    return lo, metric.hi


def _follows(name: str, rules: Mapping[str, Rule]) -> Iterator[Problem]:
    for early in rules[name].follows:
        if early not in rules:
            yield ("follows",), f"is wrong: there is no rule {early!r}; {nearest(early, rules)}"
    todo: list[tuple[str, tuple[str, ...]]] = [(early, (name, early)) for early in rules[name].follows]
    seen: set[str] = set()
    while todo:
        early, way = todo.pop()
        if early == name:
            yield ("follows",), f"goes in a circle ({' → '.join(way)}); take one of them out"
            return
        if early in rules and early not in seen:
            seen.add(early)
            todo += [(next_, (*way, next_)) for next_ in rules[early].follows]
