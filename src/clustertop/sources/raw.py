"""Raw SNMP values of devices: their numbers, bits and texts, whatever type a vendor chose for them. Pure functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clustertop.text import clean

if TYPE_CHECKING:
    from clustertop.sources.oids import Value

MAX_LABEL = 64
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([A-Za-z%]*)")
_FACTORS = {"": 1.0, "A": 1.0, "mA": 1e-3, "V": 1.0, "mV": 1e-3, "W": 1.0, "kW": 1e3, "VA": 1.0, "kVA": 1e3, "kWh": 1.0,
            "Wh": 1e-3}
_KINDS = {"A": "amps", "mA": "amps", "V": "volts", "mV": "volts", "W": "watts", "kW": "watts", "VA": "va", "kVA": "va",
          "kWh": "kwh", "Wh": "kwh"}
_BITS_SHOWN = re.compile(rb"[0-9A-Fa-f]{2}(?: [0-9A-Fa-f]{2})*(?: \d+)*\s*")



def words(value: Value | None) -> str:
    """A remote text, cleaned; of a number its digits."""
    if value is None:
        return ""
    return clean(value if isinstance(value, bytes) else str(value), MAX_LABEL).strip()


def shown(raw: Value) -> str:
    """A raw value for people."""
    if isinstance(raw, bytes):
        text = clean(raw, MAX_LABEL)
        return f'"{text}"' if text.isprintable() and len(text) == len(raw) else raw[:32].hex(" ")
    return str(raw)


def sort(quantity: str) -> str:
    """``crit_watts`` → ``watts``."""
    return quantity.rpartition("_")[2]


def number(raw: Value, quantity: str, find: str) -> tuple[float | None, float]:
    """A raw value's number, and the factor of the unit that stands behind it in a text; None where it has none.

    *find* is a regular expression whose group 1 is the number within a text.
    """
    if isinstance(raw, str):
        return None, 1.0
    if not isinstance(raw, bytes):
        return float(raw), 1.0
    if find:
        found = re.search(find, words(raw))
        match = _NUMBER.fullmatch(found[1] or "") if found else None
    else:
        match = _NUMBER.match(raw.decode("ascii", "replace").strip().strip("\x00"))
    if match is None or match[2] not in _FACTORS or (match[2] and _KINDS[match[2]] != sort(quantity)):
        return None, 1.0
    return float(match[1]), _FACTORS[match[2]]


def bit(value: Value, number: int) -> bool:
    """A bit of a BITS value, which some tools pass on as they show it: ``30 2 3`` for bits 2 and 3."""
    if not isinstance(value, bytes):
        return False
    if len(value) > 1 and _BITS_SHOWN.fullmatch(value):
        octets: list[int] = []
        for piece in value.split():
            if len(piece) != 2 or (octets and len(octets) * 8 > number):
                break
            octets.append(int(piece, 16))
        value = bytes(octets)
    place = number // 8
    return place < len(value) and bool(value[place] & (0x80 >> (number % 8)))
