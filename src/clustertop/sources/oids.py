"""Object identifiers as tuples, and patterns of them with places for a row's index."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

Oid = tuple[int, ...]
Value = int | float | bytes | str
"""A value as SNMP gives it: integers of every width; a float from an Opaque; octets; an OID as dotted text."""

_PLACE = re.compile(r"\{(-?\d+|key)\}")


@lru_cache(maxsize=4096)
def oid(text: str) -> Oid:
    """``1.3.6.1`` or ``.1.3.6.1`` → a tuple. Raises ValueError."""
    return tuple(int(part) for part in text.strip().removeprefix(".").split("."))


def dotted(name: Oid) -> str:
    """The OID as text."""
    return ".".join(map(str, name))


def under(name: Oid, root: Oid) -> bool:
    """Whether *name* is *root* or lies below it."""
    return name[:len(root)] == root


@dataclass(frozen=True, slots=True)
class Pattern:
    """An OID with at most one ``*`` (the whole index of a row) or with ``{n}`` and ``{key}`` (parts of it)."""

    prefix: Oid
    """What is fixed at its beginning: what has to be read."""
    rest: tuple[int | str, ...]
    """Behind it: numbers, ``*``, component numbers as text, ``key``."""

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(text: str) -> Pattern:
        """Parse. Raises ValueError."""
        prefix: list[int] = []
        rest: list[int | str] = []
        for piece in text.strip().removeprefix(".").split("."):
            place = _PLACE.fullmatch(piece)
            if piece == "*":
                if "*" in rest:
                    raise ValueError(f"{text}: more than one *")
                rest.append("*")
            elif place:
                rest.append(place[1])
            elif not piece.isascii() or not piece.isdigit():
                raise ValueError(f"{text}: {piece!r} is no number, no * and no {{n}}")
            elif rest:
                rest.append(int(piece))
            else:
                prefix.append(int(piece))
        if not prefix:
            raise ValueError(f"{text}: it has no fixed beginning")
        return Pattern(tuple(prefix), tuple(rest))

    @property
    def starred(self) -> bool:
        """Whether it gives rows."""
        return "*" in self.rest

    def index(self, name: Oid) -> Oid | None:
        """The index of the row that *name* belongs to, or None if it is none of this pattern's."""
        size = len(self.prefix)
        if name[:size] != self.prefix or not self.starred:
            return None
        place = self.rest.index("*")
        before, after = self.rest[:place], self.rest[place + 1:]
        found = name[size:]
        if len(found) < len(before) + len(after) + 1:
            return None
        if found[:len(before)] != before or (after and found[-len(after):] != after):
            return None
        return found[len(before):len(found) - len(after)]

    def at(self, index: Oid, key: int | None = None) -> Oid | None:
        """The OID of the row with *index*; None where the index lacks a component, or there is no *key*."""
        out = list(self.prefix)
        for piece in self.rest:
            if isinstance(piece, int):
                out.append(piece)
            elif piece == "*":
                out.extend(index)
            elif piece == "key":
                if key is None:
                    return None
                out.append(key)
            else:
                number = int(piece)
                if not -len(index) <= number < len(index):
                    return None
                out.append(index[number])
        return tuple(out)
