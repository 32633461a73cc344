"""SNMP v2c messages as octets: just enough of BER (ITU-T X.690) and RFC 3416 for an agent that answers. Pure.

Written apart from the console's own codec, so that the demo's agents are no mirror of it, and because an agent that
answers a few dozen a second must cost little.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clustertop.sources.oids import Oid

INTEGER, OCTETS, NULL, OBJECT_ID = 0x02, 0x04, 0x05, 0x06
COUNTER32, GAUGE32, TIMETICKS, COUNTER64 = 0x41, 0x42, 0x43, 0x46
NO_SUCH_OBJECT, END_OF_MIB = 0x80, 0x82
GET, GET_NEXT, RESPONSE, GET_BULK = 0xA0, 0xA1, 0xA2, 0xA5
_SEQUENCE = 0x30
_VERSION_2C = 1


class BerError(ValueError):
    """Octets that are no v2c request."""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks."""

    community: bytes
    kind: int
    """``GET``, ``GET_NEXT`` or ``GET_BULK``."""
    number: int
    """The request's id, to be repeated in the answer."""
    first: int
    """Of a bulk request: names that are asked for once. Else nothing."""
    second: int
    """Of a bulk request: rows of each of the other names. Else nothing."""
    names: tuple[Oid, ...]


def request(data: bytes) -> Request:
    """Read a request. Raises BerError for anything else."""
    try:
        return _request(data)
    except IndexError:
        raise BerError("cut off") from None


def _request(data: bytes) -> Request:
    tag, body, _ = _take(data, 0)
    version, at = _integer(body, 0)
    who, community, at = _take(body, at)
    kind, pdu, _ = _take(body, at)
    if tag != _SEQUENCE or version != _VERSION_2C or who != OCTETS or kind not in (GET, GET_NEXT, GET_BULK):
        raise BerError("no v2c request")
    number, at = _integer(pdu, 0)
    first, at = _integer(pdu, at)
    second, at = _integer(pdu, at)
    _, rows, _ = _take(pdu, at)
    names, at = [], 0
    while at < len(rows):
        _, row, at = _take(rows, at)
        what, name, _ = _take(row, 0)
        if what != OBJECT_ID:
            raise BerError("a row without a name")
        names.append(_oid(name))
    return Request(community, kind, number, first, second, tuple(names))


def response(asked: Request, rows: Iterable[bytes], error: int = 0, index: int = 0) -> bytes:
    """The answer to *asked*. *rows* as :func:`row` makes them."""
    pdu = integer(asked.number) + integer(error) + integer(index) + cell(_SEQUENCE, b"".join(rows))
    return cell(_SEQUENCE, integer(_VERSION_2C) + cell(OCTETS, asked.community) + cell(RESPONSE, pdu))


def row(name: Oid, value: bytes) -> bytes:
    """A name and its value, which is encoded already."""
    return cell(_SEQUENCE, oid(name) + value)


def cell(tag: int, body: bytes) -> bytes:
    """Tag, length and *body*."""
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def integer(value: int, tag: int = INTEGER) -> bytes:
    """An integer of whatever kind *tag* says; counters and gauges are not negative."""
    return cell(tag, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


@lru_cache(maxsize=65_536)
def oid(name: Oid) -> bytes:
    """An object identifier."""
    body = bytearray((name[0] * 40 + name[1],))
    for number in name[2:]:
        pieces = [number & 0x7F]
        while number := number >> 7:
            pieces.append(0x80 | number & 0x7F)
        body += bytes(reversed(pieces))
    return cell(OBJECT_ID, bytes(body))


@lru_cache(maxsize=65_536)
def _oid(body: bytes) -> Oid:
    out = [min(body[0] // 40, 2)]
    out.append(body[0] - out[0] * 40)
    number = 0
    for one in body[1:]:
        number = number << 7 | one & 0x7F
        if not one & 0x80:
            out.append(number)
            number = 0
    return tuple(out)


def _take(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag, body, and where the next cell begins."""
    tag, size = data[at], data[at + 1]
    at += 2
    if size & 0x80:
        more = size & 0x7F
        if not 1 <= more <= 3:
            raise BerError("a length that no datagram has")
        size, at = int.from_bytes(data[at : at + more], "big"), at + more
    if at + size > len(data):
        raise BerError("cut off")
    return tag, data[at : at + size], at + size


def _integer(data: bytes, at: int) -> tuple[int, int]:
    tag, body, at = _take(data, at)
    if tag != INTEGER or not 1 <= len(body) <= 8:
        raise BerError("no number where one belongs")
    return int.from_bytes(body, "big", signed=True), at
