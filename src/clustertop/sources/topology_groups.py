"""Racks and leaves from lists of hosts: ClusterShell's ``cluster.yaml`` and plain lists. Text to facts, pure.

ClusterShell's groups (clustershell.readthedocs.io, "Configuration: YAML group files") say racks where the operator has
a source called ``racks``. A group that is made of other groups only (``old: '@rack[1,3]'``) is a view, not a rack.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from clustertop.hosts import NotationError, Target, expand
from clustertop.sources.facts import Fact, Kind, Reading, SourceError, name

if TYPE_CHECKING:
    from collections.abc import Iterable

_SOURCES: dict[str, Kind] = {
    "rack": "rack", "racks": "rack", "leaf": "leaf", "leaves": "leaf", "switch": "leaf", "switches": "leaf",
    "rail": "rail", "rails": "rail", "pod": "pod", "pods": "pod", "row": "pod", "rows": "pod",
}  # fmt: skip
_LINE = re.compile(r"(?:(rack|leaf|switch|rail|pod)\s+)?([\w.-]+)\s*[:=]\s*(\S.*)", re.IGNORECASE)


def read_yaml(text: str, where: str = "") -> Reading:
    """Return the racks, leaves, rails and pods among ClusterShell's groups.

    Raises:
        SourceError: it is not YAML of that form, or has no source of these names.
    """
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise SourceError(f"is not YAML{f' at line {mark.line + 1}' if mark else ''}") from None
    if data is not None and not isinstance(data, dict):
        raise SourceError("is not ClusterShell's groups, which are sources with groups of nodes")
    reading = Reading("groups", where=where)
    groups = {
        str(source): {str(group): _list(value) for group, value in found.items()}
        for source, found in (data or {}).items()
        if isinstance(found, dict)
    }
    if data and not any(source.lower() in _SOURCES for source in groups):
        raise SourceError(f"has no source called racks or leaves; it has {', '.join(map(str, groups)) or 'none'}")
    for source, members in groups.items():
        kind = _SOURCES.get(source.lower())
        if kind is None:
            continue
        for group, written in members.items():
            if group == "all" or _only_groups(written):
                continue
            for node in _members(reading, groups, source, group, written):
                reading.add(Fact(node, kind, name(group)))
    return reading


def read_lines(text: str, where: str = "") -> Reading:
    """Return what lines like ``r1: gpu[001-016]`` or ``leaf ib07: gpu[001-016]`` say; without a word it is a rack."""
    reading = Reading("groups", where=where)
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        match = _LINE.fullmatch(entry)
        if match is None:
            reading.note(number, f"is not NAME: NODES: {name(entry, 60)}")
            continue
        kind = _SOURCES[(match[1] or "rack").lower()]
        for node in reading.nodes(match[3], number):
            reading.add(Fact(node, kind, name(match[2]), number))
    return reading


def _list(value: Any) -> str:
    items = value if isinstance(value, list) else [value]
    return ",".join(str(one) for one in items if isinstance(one, str | int))


def _only_groups(written: str) -> bool:
    plain = re.sub(r"\[[^\]]*\]", "", written)
    return plain.strip().startswith("@") and not re.search(r"(?:^|[,!&^\s])[^@!&^,\s]", plain)


def _members(
    reading: Reading, groups: dict[str, dict[str, str]], source: str, group: str, written: str
) -> list[str]:
    open_: list[tuple[str, str]] = [(source, group)]

    def resolve(wanted: str) -> Iterable[Target]:
        kind, colon, rest = wanted.partition(":")
        if not colon:
            kind, rest = open_[-1][0], wanted
        found: list[Target] = []
        for one in (target.host for target in expand(rest)):
            text = groups.get(kind, {}).get(one)
            if text is None or (kind, one) in open_:
                raise NotationError(f"@{name(wanted, 60)}: {'contains itself' if text else 'there is no such group'}")
            open_.append((kind, one))
            found += expand(text, resolve)
            open_.pop()
        return found

    try:
        return [target.host for target in expand(written, resolve)]
    except NotationError as error:
        reading.note(0, f"{source}: {group}: {error}")
        reading.refused += 1
        return []
