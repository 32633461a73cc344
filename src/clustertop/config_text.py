"""The configuration as text: the commented template, the effective values, the reference for the docs."""

from __future__ import annotations

import json
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from clustertop.config import (
    NAMED,
    SECTIONS,
    ClearChange,
    Config,
    Expect,
    LevelChange,
    Loaded,
    TogetherChange,
)
from clustertop.config_read import dotted
from clustertop.config_site import SITE_NAMED, secret_keys, without_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """\
# clustertop configuration. Every value below is the default; uncomment a line to change it.
# `clustertop config check` reads it without starting anything, `clustertop config show` says where each value
# came from. Hosts are written as gpu[001-064],login1 or @group, @rack:r1, @leaf:leaf1, user@host:port.
"""
_NAMED_TEXT = {
    "racks": ("Racks and the nodes in them. A node may be in one rack only.", 'r1 = "gpu[001-016]"'),
    "leaves": ("Leaf switches and the nodes below them.", 'leaf1 = "gpu[001-032]"'),
    "groups": (
        "Groups of nodes for @NAME. They may overlap and contain each other.",
        'a100 = "gpu[001-064]"',
    ),
}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "host": {"host": "10.0.0.1", "user": "ops", "port": 2222, "interval_seconds": 10.0},
    "expect": {"nodes": "gpu[001-064]", "group": "a100", "device": "gpu", "width": 16, "gpus": 8, "ports": 8},
    "rules": {
        "enabled": False,
        "title": "nodes draw apart",
        "table": "node",
        "metric": "gpu_power_watts",
        "op": ">",
        "kind": "peers",
        "info": LevelChange(limit=300.0),
        "warning": 500.0,
        "critical": LevelChange(limit=900.0, for_seconds=60.0, for_polls=3),
        "clear": ClearChange(limit=250.0, seconds=30.0),
        "for_seconds": 10.0,
        "for_polls": 2,
        "groups": ["a100"],
        "nodes": "gpu[001-064]",
        "models": ["*A100*"],
        "window_seconds": 60.0,
        "peers": "rack",
        "compare": "difference",
        "floor": 0.0,
        "gaps": 5,
        "gap_seconds": 300.0,
        "also": [],
        "reach": 90.0,
        "together": TogetherChange(share=0.5, least=3),
        "covers": "",
        "follows": ["gpu_persistence"],
        "gather_seconds": 5.0,
        "settles": True,
        "hint": "One of them does not take part in the job.",
        "look": "Utilisation and clocks of its GPUs.",
        "source": "ours",
    },
}
_SITE_EXAMPLES: dict[str, dict[str, Any]] = {
    "feeds": {
        "rating_amps": 32.0, "volts": 230.0, "phases": 3, "wiring": "star", "pair": "r{1}-B", "rack": "r{1}",
        "pdu": "pdu-r{1}-a", "part": "inlet 1", "nodes": "@rack:r{1}", "psus": ["PSU1"], "outlets_name_nodes": True,
    },
    "pdus": {
        "over": "snmp", "host": "{name}.oob", "port": 161, "version": "2c", "community": "env:PDU_COMMUNITY",
        "user": "monitor", "auth_key": "file:pdu-auth", "auth_protocol": "SHA256", "privacy_key": "file:pdu-privacy",
        "privacy_protocol": "AES", "context": "", "timeout_seconds": 2.0, "retries": 2, "rack": "r{1}",
        "profile": "apc-rpdu", "interval_seconds": 10.0, "password": "env:PDU_PASSWORD", "basic": False,
        "ca_file": "pdu-ca.pem", "fingerprint": "AB:CD:...", "insecure": False,
    },
    "bmcs": {
        "host": "{node}-bmc", "over": "redfish", "user": "monitor", "password": "file:bmc-password", "basic": False,
        "port": 443, "ca_file": "bmc-ca.pem", "fingerprint": "AB:CD:...", "insecure": False, "cipher": "17",
        "privilege": "USER", "interval_seconds": 60.0,
    },
    "switches": {
        "over": "snmp", "host": "{name}.oob", "port": 161, "version": "2c", "community": "env:SWITCH_COMMUNITY",
        "user": "monitor", "auth_key": "file:switch-auth", "auth_protocol": "SHA256",
        "privacy_key": "file:switch-privacy", "privacy_protocol": "AES", "context": "", "timeout_seconds": 2.0,
        "retries": 2, "rack": "r1", "leaf": "{name}", "uplinks": ["Ethernet4[89]", "Ethernet5?"],
        "host_ports": ["Ethernet[1-9]"], "interval_seconds": 30.0,
    },
}
_EXAMPLES |= _SITE_EXAMPLES
_V3 = ("user", "auth_key", "auth_protocol", "privacy_key", "privacy_protocol", "context")
_TLS = ("ca_file", "fingerprint", "insecure")
_HEADERS = {"feeds": '[feeds."r[1-8]-A"]', "pdus": '[pdus."pdu-r[1-8]-a"]', "bmcs": '[bmcs."gpu[001-064]"]',
            "switches": '[switches."leaf[1-4]"]',
            "host": '[host."gpu001"]', "expect": "[[expect]]", "rules": "[rules.power_apart]"}
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "rules": ("reach",), "pdus": (*_V3, "password", "basic", *_TLS), "bmcs": (*_TLS, "cipher", "privilege"),
    "switches": _V3,
}
"""Keys whose example fits another kind of entry than the one shown."""
_STRUCTS = {"host": NAMED["host"], "expect": Expect, "rules": NAMED["rules"], **SITE_NAMED}
_WORDS = {float: "number", int: "whole number", str: "text", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One key that a struct of the configuration has."""

    name: str
    kind: str
    """In words: ``number``, ``text``, ``list of text`` ..."""
    default: Any
    description: str
    limits: str
    """``0.1 to 3600``, or empty."""


def settings(struct: type[msgspec.Struct]) -> list[Setting]:
    """Return the keys of *struct*, in order, with what their annotations say."""
    found = []
    hints = typing.get_type_hints(struct, include_extras=True)
    defaults = struct()
    for name in struct.__struct_fields__:
        kind, meta = typing.get_args(hints[name])
        parts = [part for part in typing.get_args(kind) if part is not type(None)]
        many = tuple in (typing.get_origin(kind), typing.get_origin(parts[0] if parts else None))
        if typing.get_origin(kind) is typing.Literal:
            words = " or ".join(f'"{choice}"' for choice in parts)
        else:
            words = "list of text" if many else " or ".join(_word(part) for part in parts or [kind])
        limits = "" if meta.ge is None else f"{meta.ge:g} to {meta.le:g}" if meta.le < 1e6 else f"at least {meta.ge:g}"
        found.append(Setting(name, words, getattr(defaults, name), meta.description or "", limits))
    return found


def _word(kind: Any) -> str:
    return _WORDS.get(kind) or "table"


def template() -> str:
    """Return a config file that says everything there is to say, every value commented out."""
    parts = [_HEAD]
    for section, struct in SECTIONS.items():
        parts.append(f"\n# {_summary(struct)}\n[{section}]\n")
        parts += [f"# {one.description}\n# {one.name} = {value(one.default)}\n" for one in settings(struct)]
    for section, (text, example) in _NAMED_TEXT.items():
        parts.append(f"\n# {text}\n[{section}]\n# {example}\n")
    for section, struct in _STRUCTS.items():
        parts.append(f"\n# {_summary(struct)} Keep the lines that you need.\n# {_HEADERS[section]}\n")
        parts += [
            f"# {'# ' if one.name in _ELSEWHERE.get(section, ()) else ''}{one.name} = "
            f"{value(_EXAMPLES[section][one.name])}  # {one.description}\n" for one in settings(struct)
        ]
    return "".join(parts)


def show(loaded: Loaded) -> str:
    """Return the effective configuration as TOML, each value with where it came from."""
    parts = [f"# read from {loaded.path}\n" if loaded.path else "# no config file: defaults\n"]
    for header, table, rows in _tables(loaded.config):
        parts.append(f"\n{header}\n")
        for name, item in rows:
            parts.append(f"{dotted(name)} = {value(item)}  # {loaded.origin(f'{table}.{dotted(name)}')}\n")
    return "".join(parts)


def as_json(loaded: Loaded) -> str:
    """Return the effective configuration as JSON: ``file``, and per key path its ``value`` and ``origin``."""
    values = {
        f"{table}.{dotted(name)}": {"value": _plain(item), "origin": loaded.origin(f"{table}.{dotted(name)}")}
        for _, table, rows in _tables(loaded.config)
        for name, item in rows
    }
    return json.dumps({"file": str(loaded.path) if loaded.path else None, "values": values}, indent=1)


def _plain(item: object) -> object:
    """*item* as JSON has it; what a table leaves as it is is not in it."""
    if isinstance(item, msgspec.Struct):
        return {name: one for name in item.__struct_fields__ if (one := getattr(item, name)) is not None}
    return item


def reference() -> str:
    """Return the tables of docs/configuration.md, from the structs."""
    parts = []
    for section, struct in {**SECTIONS, **_STRUCTS}.items():
        header = _HEADERS.get(section, f"[{section}]")
        parts.append(f"### `{header}`\n\n{_summary(struct)}\n\n| key | is | default | |\n|---|---|---|---|\n")
        for one in settings(struct):
            kind = f"{one.kind}, {one.limits}" if one.limits else one.kind
            default = "–" if one.default is None else f"`{value(one.default)}`"
            parts.append(f"| `{one.name}` | {kind} | {default} | {one.description} |\n")
        parts.append("\n")
    for section, (text, example) in _NAMED_TEXT.items():
        parts.append(f"### `[{section}]`\n\n{text}\n\n```toml\n[{section}]\n{example}\n```\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def value(item: object) -> str:
    """Return *item* as TOML writes it.

    Raises:
        TypeError: TOML has no way to write it.
    """
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int | float):
        return repr(item)
    if isinstance(item, str):
        return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(item, list | tuple):
        return "[" + ", ".join(value(part) for part in item) + "]"
    if isinstance(item, msgspec.Struct):
        rows = ((name, getattr(item, name)) for name in item.__struct_fields__)
        return "{ " + ", ".join(f"{name} = {value(one)}" for name, one in rows if one is not None) + " }"
    raise TypeError(f"{type(item).__name__} has no place in a config")


def _without_token(address: str) -> str:
    """An address as far as its host: what follows may be a token."""
    scheme, mark, rest = address.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2].partition('/')[0].partition('?')[0]}/..." if mark else address


def _tables(config: Config) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
    """Yield each table that is not empty: its header, its key path, its rows."""
    for section in SECTIONS:
        yield f"[{section}]", section, [
            (name, _without_token(without_arguments(item)) if (section, name) == ("notify", "webhook") else item)
            for name, item in _rows(getattr(config, section))]
    for section in NAMED:
        entries: dict[str, Any] = getattr(config, section)
        if section in _NAMED_TEXT and entries:
            yield f"[{section}]", section, list(entries.items())
        elif section not in _NAMED_TEXT:
            for name, entry in entries.items():
                key = dotted(section, name)
                secrets = secret_keys(type(entry)) if section in SITE_NAMED else frozenset()
                yield f"[{key}]", key, [(one, without_arguments(item) if one in secrets else item)
                                        for one, item in _written(entry)]
    for number, expect in enumerate(config.expect):
        yield "[[expect]]", f"expect[{number}]", _written(expect)


def _rows(struct: msgspec.Struct) -> list[tuple[str, Any]]:
    return [(name, getattr(struct, name)) for name in struct.__struct_fields__]


def _written(struct: msgspec.Struct) -> list[tuple[str, Any]]:
    defaults = type(struct)()
    return [(name, item) for name, item in _rows(struct) if item != getattr(defaults, name)]


def _summary(struct: type[msgspec.Struct]) -> str:
    return (struct.__doc__ or "").strip()
