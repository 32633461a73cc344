"""SNMP walks as text: Net-SNMP's ``snmpwalk`` and snmpsim's ``.snmprec``, to rows. Pure.

Both are what people send and keep; a live agent gives the same rows without text. Values are kept as they were sent:
numbers as int, texts as str with hex-coded ones (type ``4x``, ``Hex-STRING``) decoded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = int | str
Row = tuple[tuple[int, ...], Value]
"""Object identifier and value."""

_REC = re.compile(r"(\d+(?:\.\d+)+)\|(\d{1,3})([a-z]*)\|(.*)")
_WALK = re.compile(r"(?:\.|iso\.)?((?:\d+\.)+\d+|[\w-]+::[\w.]+) = (?:([\w-]+(?:[ -][\w]+)*): ?)?(.*)")
_NUMBERS = frozenset({2, 65, 66, 67, 70, 71})
"""ASN.1 tags of INTEGER, Counter32, Gauge32, TimeTicks, Counter64, UInteger32."""
_NUMERIC_WORDS = frozenset({"INTEGER", "Counter32", "Counter64", "Gauge32", "Timeticks", "Unsigned32", "UInteger32"})


def rows(text: str) -> Iterator[Row]:
    """Yield the rows of a walk, in its order; lines of neither form, and objects that are not there, are left out."""
    for line in text.splitlines():
        if match := _REC.fullmatch(line):
            value = _recorded(int(match[2]), match[3], match[4])
        elif match := _WALK.fullmatch(line):
            if "::" in match[1]:
                continue  # names need the MIB
            value = _walked(match[2] or "", match[3])
        else:
            continue
        if value is not None:
            yield oid(match[1].removeprefix("iso.").lstrip(".")), value


def oid(text: str) -> tuple[int, ...]:
    """Return an object identifier in dotted form as numbers; ``iso`` is 1."""
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _recorded(tag: int, flags: str, written: str) -> Value | None:
    if tag in _NUMBERS:
        return int(written) if re.fullmatch(r"-?\d{1,20}", written) else None
    if tag in (4, 68) and "x" in flags:
        return _hex(written)
    if tag in (128, 129, 130, 5):
        return None
    return clean(written)


def _walked(kind: str, written: str) -> Value | None:
    if kind in _NUMERIC_WORDS:
        match = re.search(r"\((-?\d{1,20})\)", written) or re.match(r"\s*(-?\d{1,20})\b", written)
        return int(match[1]) if match else None
    if kind == "Hex-STRING":
        return _hex(written.replace(" ", ""))
    if not kind and written.startswith("No "):
        return None  # No Such Object available on this agent at this OID
    return clean(written.strip().removeprefix('"').removesuffix('"'))


def _hex(digits: str) -> str:
    """Text behind hex digits; a MAC address or other bytes that are no text stay as pairs of digits."""
    if not re.fullmatch(r"(?:[0-9A-Fa-f]{2})*", digits):
        return clean(digits)
    raw = bytes.fromhex(digits).rstrip(b"\0")
    if raw and all(32 <= byte < 127 for byte in raw):
        return raw.decode("ascii")
    return ":".join(f"{byte:02x}" for byte in bytes.fromhex(digits))
