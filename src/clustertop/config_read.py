"""TOML to values: where each key stands, and what is wrong with it, in one sentence."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import typing
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from clustertop.text import clean, order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

MAX_BYTES = 4 << 20
"""Largest config file read."""

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]\]?\s*(?:#.*)?$")
_BARE = re.compile(r"[A-Za-z0-9_-]+(?:\[[0-9]+\])?")
_WHERE = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_AT_LINE = re.compile(r"\s*\(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)$")
_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


class ConfigError(ValueError):
    """A configuration that is not right: one sentence, with the place in pieces."""

    def __init__(self, message: str, *, file: str = "", key: str = "", line: int = 0) -> None:
        """Keep the pieces.

        Args:
            message: what is wrong and what would be right, without the place.
            file: the file, or the environment variable or command line, that it stands in.
            key: the key path, for example ``poll.interval_seconds``.
            line: its line in the file, from 1; 0 where it is not known.
        """
        place = f"{file}, line {line}" if line else file
        super().__init__(": ".join(part for part in (place, f"{key} {message}" if key else message) if part))
        self.file = file
        self.key = key
        self.line = line
        self.message = message


class Place(Protocol):
    """What knows where keys stand."""

    def error(self, key: str, message: str) -> ConfigError:
        """Return the error that says *message* about *key*."""
        ...


def dotted(*parts: str) -> str:
    """Return a key path as TOML writes it: parts that are not bare are quoted."""
    return ".".join(part if _BARE.fullmatch(part) else '"' + part.replace('"', '\\"') + '"' for part in parts)


def parent(key: str) -> str:
    """Return the key path that *key* stands under; empty for a section."""
    parts = re.findall(rf"{_PART}(?:\[[0-9]+\])?", key)
    return ".".join(parts[:-1])


def nearest(word: str, known: Collection[str]) -> str:
    """Return the end of a sentence: which of *known* was meant, or all that there are."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known are {', '.join(sorted(known))}" if known else "none are known"


def read_toml(path: Path, *, needed: bool) -> tuple[dict[str, Any] | None, dict[str, int]]:
    """Return the values of a file and the line of each key; None where there is no file and none is needed.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        if needed:
            message = "there is no such file; `clustertop config init` writes one"
            raise ConfigError(message, file=file) from None
        return None, {}
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES >> 20} MB, which no config is", file=file)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text; save it as UTF-8", file=file, line=line) from None
    lines = dict(reversed(list(key_lines(text))))
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(str(error), text, file) from None
    except RecursionError:
        raise ConfigError("is not TOML that can be read: it is nested too deeply", file=file) from None
    for key, found in _orders(values):
        message = f"holds the control character U+{ord(found):04X}, which no terminal may be given; take it out"
        raise ConfigError(message, file=file, key=clean(key, 200), line=lines.get(key, 0))
    return values, lines


def _orders(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """The keys whose name or text holds a control character, and that."""
    if isinstance(value, dict):
        for name, one in value.items():
            key = f"{path}.{dotted(name)}" if path else dotted(name)
            if found := order(name):
                yield key, found
            yield from _orders(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from _orders(one, path)
    elif isinstance(value, str) and (found := order(value)):
        yield path, found


def _not_toml(message: str, text: str, file: str) -> ConfigError:
    match = _AT_LINE.search(message)
    line = int(match[1]) if match and match[1] else text.rstrip("\n").count("\n") + 1
    column = f" at column {match[2]}" if match and match[2] else " at the end of the file"
    what = clean(message[: match.start()] if match else message, 200)
    key = next((key for key, number in key_lines(text) if number == line), "")
    if what.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate")):
        first = next((number for name, number in key_lines(text) if name == key), 0)
        if key and first and first != line:
            message = f"is given twice, first in line {first}; keep one"
            return ConfigError(message, file=file, key=key, line=line)
    return ConfigError(f"is not TOML: {what}{column}", file=file, key=key, line=line)


def key_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each table and key of TOML *text* as its path, with its line, from 1, in order.

    It reads lines, not grammar: what stands inside strings and lists that go over several lines is skipped.
    """
    table: tuple[str, ...] = ()
    arrays: dict[str, int] = {}
    inside, depth = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        rest = line
        if not inside and not depth:
            if header := _HEADER.match(line.rstrip("\r")):
                table = _parts(header[2])
                if header[1] == "[[":
                    name = dotted(*table)
                    arrays[name] = arrays.get(name, -1) + 1
                    table = (*table[:-1], f"{table[-1]}[{arrays[name]}]")
                yield dotted(*table), number
                continue
            key = _KEY.match(line)
            if not key:
                continue
            parts = (*table, *_parts(key[1]))
            yield dotted(*parts), number
            rest = line[key.end() :]
        inside, depth = _scan(rest, inside, depth)


def _parts(key: str) -> tuple[str, ...]:
    found = re.findall(_PART, key)
    return tuple(part if part[0] not in "\"'" else part[1:-1].replace('\\"', '"') for part in found)


def _scan(text: str, inside: str, depth: int) -> tuple[str, int]:
    place = 0
    while place < len(text):
        if inside:
            if text[place] == "\\" and inside[0] == '"':
                place += 2
            elif text.startswith(inside, place):
                place += len(inside)
                inside = ""
            else:
                place += 1
            continue
        char = text[place]
        if char == "#":
            break
        if char in "\"'":
            inside = char * 3 if text.startswith(char * 3, place) else char
            place += len(inside)
            continue
        depth += (char in "[{") - (char in "]}")
        place += 1
    return (inside if len(inside) == 3 else ""), max(depth, 0)


class Reader:
    """Turns TOML values into structs; each error says where."""

    def __init__(self, place: Place) -> None:
        """Keep *place*, which knows the file and the lines."""
        self._place = place

    def refuse_unknown(self, data: dict[str, Any], known: Collection[str]) -> None:
        """Raise ConfigError for a section of *data* that is not in *known*."""
        for name in data:
            if name not in known:
                raise self._place.error(dotted(name), f"is not a section; {nearest(name, known)}")

    def table(self, value: object, path: tuple[str, ...]) -> dict[str, Any]:
        """Return *value*, which must be a table. Raises ConfigError."""
        if not isinstance(value, dict):
            key = dotted(*path)
            raise self._place.error(key, f"must be a table, headed [{key}], not {_shown(value)}")
        return value

    def array(self, value: object, path: tuple[str, ...]) -> list[Any]:
        """Return *value*, which must be a list of tables. Raises ConfigError."""
        if not isinstance(value, list):
            key = dotted(*path)
            raise self._place.error(key, f"must be a list of tables, each headed [[{key}]]")
        return value

    def convert(self, value: object, kind: Any, path: tuple[str, ...]) -> Any:
        """Return *value* as *kind*. Raises ConfigError with the key that is wrong."""
        self._refuse_infinite(value, path)
        try:
            return msgspec.convert(value, kind, strict=True)
        except msgspec.ValidationError as error:
            raise self._explain(str(error), value, kind, path) from None

    def _refuse_infinite(self, value: object, path: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                self._refuse_infinite(item, (*path, name))
        elif isinstance(value, float) and not math.isfinite(value):
            raise self._place.error(dotted(*path), f"must be a finite number, not {value}")

    def _explain(self, text: str, value: object, kind: Any, path: tuple[str, ...]) -> ConfigError:
        match = _WHERE.match(text)
        what, where = (match[1], match[2] or "") if match else (text, "")
        inner = re.findall(r"[^.\[\]]+", where)
        bad: Any = value
        for step in inner:
            if isinstance(bad, list):
                bad = bad[int(step)]
            else:
                bad = bad.get(step) if isinstance(bad, dict) else None
        key = dotted(*path, *[step for step in inner if not step.isdigit()])
        if unknown := re.match(r"Object contains unknown field `(.*)`$", what, re.DOTALL):
            name = unknown[1]
            for step in inner:
                kind = _struct_of(kind, step)
            cure = nearest(name, kind.__struct_fields__)
            return self._place.error(dotted(*path, *inner, name), f"is not a setting; {cure}")
        return self._place.error(key, f"{_rule(what)}, not {_shown(bad)}")


def _struct_of(kind: Any, field: str) -> Any:
    """The struct that *field* of struct *kind* may hold."""
    hint = typing.get_type_hints(kind)[field]
    return next(part for part in typing.get_args(hint) if isinstance(part, type) and issubclass(part, msgspec.Struct))


def _rule(what: str) -> str:
    if match := re.match(r"Expected `([^`]+)`(?:, got `[^`]+`)?(.*)$", what):
        kinds = [word for word in match[1].split(" | ") if word != "null"]
        kind = " or ".join(_WORDS.get(word, word) for word in kinds)
        limit = match[2].strip()
        if limit.startswith(">="):
            return f"must be at least {float(limit[2:]):g}"
        if limit.startswith("<="):
            return f"must be at most {float(limit[2:]):g}"
        return f"must be {kind}{' ' + limit if limit else ''}"
    return f"is not right ({clean(what, 120)})"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'the text "{clean(value, 60)}"'
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return clean(str(value), 60)
