"""Slurm's topology: ``topology.conf``, ``scontrol show topology``, ``topology.yaml``. Text to facts, pure.

Slurm knows switches and blocks, not racks (slurm.schedmd.com/topology.html, topology.conf(5), topology.yaml(5)). Its
lowest switch is the node's leaf; that this, or a block, is also a rack is a guess and marked as one. In ``scontrol``'s
text upper switches repeat all nodes below them: only ``Level=0`` counts. ``AggregatedBlock`` rows are sums of blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from clustertop.sources.facts import Fact, Reading, SourceError, name

_PAIR = re.compile(r"(\w+)=(\"[^\"]*\"|\S+)")
_ALIAS = re.compile(r"#\s*([\w.-]+)\s*=\s*([\w.-]+)\s*$")


@dataclass(slots=True)
class _Switch:
    line: int
    nodes: str = ""
    children: list[str] = field(default_factory=list)
    level: int | None = None


def read_text(text: str, where: str = "") -> Reading:
    """Return what ``topology.conf`` or ``scontrol show topology`` says."""
    reading = Reading("slurm", where=where)
    switches: dict[str, _Switch] = {}
    aliases: dict[str, str] = {}
    for number, line in _logical_lines(text):
        body, _, comment = line.partition("#")
        if match := _ALIAS.fullmatch(f"#{comment}"):
            aliases[match[1].lower()] = match[2]
            aliases[match[1]] = match[2]
        pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(body)}
        if "switchname" in pairs:
            for one in _names(reading, pairs["switchname"], number):
                switches[one] = _Switch(
                    number, pairs.get("nodes", ""), _names(reading, pairs.get("switches", ""), number),
                    int(level) if (level := pairs.get("level", "")).isdecimal() else None)  # fmt: skip
        elif "blockname" in pairs:
            block = name(pairs["blockname"])
            alias = aliases.get(pairs["blockname"], aliases.get(pairs["blockname"].lower(), ""))
            _block(reading, block, pairs.get("nodes", ""), number, alias)
        elif body.strip() and not pairs.keys() & {"blocksizes", "aggregatedblock", "linkspeed", "include"}:
            reading.note(number, f"is not a switch or a block of Slurm: {name(body, 60)}")
    _tree(reading, switches)
    return reading


def read_yaml(text: str, where: str = "", topology: str = "") -> Reading:
    """Return what ``topology.yaml`` says: its default topology, or the one of that name.

    Raises:
        SourceError: it is not YAML of that form, or has no such topology.
    """
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise SourceError(f"is not YAML{f' at line {mark.line + 1}' if mark else ''}") from None
    reading = Reading("slurm", where=where)
    entries = [entry for entry in data or [] if isinstance(entry, dict)] if isinstance(data, list | None) else None
    if entries is None:
        raise SourceError("is not Slurm's topology.yaml, which is a list of topologies")
    if not entries:
        return reading
    named = {name(entry.get("topology")): entry for entry in entries}
    if topology and topology not in named:
        raise SourceError(f"has no topology {topology}; it has {', '.join(named)}")
    default = next((entry for entry in entries if entry.get("cluster_default") is True), entries[0])
    chosen = named[topology] if topology else default
    if others := [one for one, entry in named.items() if entry is not chosen]:
        reading.note(0, f"topology {name(chosen.get('topology'))} is read, not {', '.join(others)}")
    _chosen(reading, chosen)
    return reading


def _chosen(reading: Reading, entry: dict[str, Any]) -> None:
    if isinstance(entry.get("tree"), dict):
        switches = {}
        for row in _rows(entry["tree"], "switches"):
            for one in _names(reading, name(row.get("switch")), 0):
                switches[one] = _Switch(0, _text(row.get("nodes")), _names(reading, _text(row.get("children")), 0))
        _tree(reading, switches)
    elif isinstance(entry.get("block"), dict):
        for row in _rows(entry["block"], "blocks"):
            _block(reading, name(row.get("block")), _text(row.get("nodes")), 0, "")
    else:
        kind = next((one for one in ("flat", "ring", "torus3d") if entry.get(one)), "")
        reading.note(0, f"a {kind} topology says nothing of racks or leaves" if kind else "holds no tree and no blocks")


def _rows(table: dict[str, Any], key: str) -> list[dict[str, Any]]:
    rows = table.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(one for one in value if isinstance(one, str))
    return value if isinstance(value, str) else ""


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """The lines with their numbers; a backslash at the end joins the next one."""
    found: list[tuple[int, str]] = []
    joined = False
    for number, line in enumerate(text.splitlines(), 1):
        if joined:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line}")
        else:
            found.append((number, line))
        joined = line.rstrip().endswith("\\")
        if joined:
            found[-1] = (found[-1][0], found[-1][1].rstrip()[:-1])
    return found


def _names(reading: Reading, text: str, line: int) -> list[str]:
    return [name(one) for one in reading.nodes(text, line)] if text.strip() and text != "(null)" else []


def _block(reading: Reading, block: str, nodes: str, line: int, alias: str) -> None:
    for node in _names(reading, nodes, line):
        reading.add(Fact(node, "rack", block, line, guess=True, alias=alias))


def _tree(reading: Reading, switches: dict[str, _Switch]) -> None:
    parents: dict[str, list[str]] = {}
    for one, switch in switches.items():
        for child in switch.children:
            parents.setdefault(child, []).append(one)
            if child not in switches:
                reading.note(switch.line, f"switch {one} has {child} below it, which is not described")
    reading.roots = [one for one in switches if one not in parents]
    for one, switch in switches.items():
        if (switch.level or 0) > 0 or (switch.level is None and switch.children and not switch.nodes):
            continue
        above = parents.get(one, [])
        for node in _names(reading, switch.nodes, switch.line):
            reading.add(Fact(node, "leaf", one, switch.line))
            reading.add(Fact(node, "rack", one, switch.line, guess=True))
            if len(above) == 1:
                reading.add(Fact(node, "pod", above[0], switch.line, guess=True))
