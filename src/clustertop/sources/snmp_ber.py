"""Requests of SNMP v1 and v2c and the usual answer to one, by their octets: a tenth of what a general codec costs.

Only what agents usually send is read here: BER with definite lengths and values within their types' ranges (RFC 3416,
RFC 2578). Of anything else it says nothing, and who asks gives it to the general decoder. Pure.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.sources.oids import Oid, Value

END = "end of MIB"
"""As value: nothing lies behind this OID."""
_SEQUENCE, _INTEGER, _OCTETS, _NULL, _OID, _RESPONSE = 0x30, 0x02, 0x04, 0x05, 0x06, 0xA2
_ADDRESS, _OPAQUE = 0x40, 0x44
_UNSIGNED = {0x41: 1 << 32, 0x42: 1 << 32, 0x43: 1 << 32, 0x46: 1 << 64}
"""Counter32, Gauge32, TimeTicks, Counter64: what they stay below."""
_ABSENT, _END = (0x80, 0x81), 0x82
_ONLY_V2 = frozenset({0x46, 0x80, 0x81, 0x82})
_MOST_IDS = 128


class _UnusualError(Exception):
    """It is not what agents usually send."""


@dataclass(frozen=True, slots=True)
class Plain:
    """An answer's content."""

    version: int
    """1 or 2."""
    number: int
    """Of the request."""
    status: int
    index: int
    rows: list[tuple[Oid, Value | None]]


def plain(data: bytes) -> Plain | None:
    """Return what *data* says; None: it is unusual, or no answer at all."""
    try:
        return _message(data)
    except (_UnusualError, IndexError):
        return None


_REQUESTS = {"get": 0xA0, "next": 0xA1, "bulk": 0xA5}


def request(
    version: int, community: bytes, kind: Literal["get", "next", "bulk"], number: int, oids: Sequence[Oid],
    repetitions: int = 0,
) -> bytes:
    """Return the octets of a request of v1 or v2c (RFC 1157, RFC 3416).

    Args:
        version: 1 or 2.
        community: who asks.
        kind: what is asked for.
        number: of the request.
        oids: for what; two arcs at least each.
        repetitions: of ``bulk``.

    Raises:
        ValueError: what is no OID.
    """
    rows = b"".join([_tagged(_SEQUENCE, _encoded(oid) + b"\x05\x00") for oid in oids])
    second, third = (0, repetitions) if kind == "bulk" else (0, 0)
    pdu = _tagged(_REQUESTS[kind], _whole(number) + _whole(second) + _whole(third) + _tagged(_SEQUENCE, rows))
    return _tagged(_SEQUENCE, _whole(version - 1) + _tagged(_OCTETS, community) + pdu)


def _tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _whole(value: int) -> bytes:
    return _tagged(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


@functools.lru_cache(4096)
def _encoded(oid: Oid) -> bytes:
    if len(oid) < 2 or not 0 <= oid[0] <= 2 or min(oid) < 0 or (oid[0] < 2 and oid[1] > 39):
        raise ValueError(f"{'.'.join(map(str, oid))} is no OID")
    out = bytearray()
    for arc in (oid[0] * 40 + oid[1], *oid[2:]):
        part = bytearray((arc & 0x7F,))
        while arc := arc >> 7:
            part.append(arc & 0x7F | 0x80)
        out += part[::-1]
    return _tagged(_OID, bytes(out))


def _message(data: bytes) -> Plain:
    at, end = _enter(data, 0, _SEQUENCE, len(data))
    if end != len(data):
        raise _UnusualError
    version, at = _integer(data, at, end)
    if version not in (0, 1):
        raise _UnusualError
    _, at = _enter(data, at, _OCTETS, end)  # the community: behind it
    at, pdu = _enter(data, at, _RESPONSE, end)
    if pdu != end:
        raise _UnusualError
    number, at = _integer(data, at, end)
    status, at = _integer(data, at, end)
    index, at = _integer(data, at, end)
    at, rows_end = _enter(data, at, _SEQUENCE, end)
    if rows_end != end:
        raise _UnusualError
    rows: list[tuple[Oid, Value | None]] = []
    while at < end:
        at, row_end = _enter(data, at, _SEQUENCE, end)
        at, name_end = _enter(data, at, _OID, row_end)
        name = _name(data[at:name_end])
        tag = data[name_end]
        at, value_end = _enter(data, name_end, tag, row_end)
        if value_end != row_end or (not version and tag in _ONLY_V2):
            raise _UnusualError
        rows.append((name, _value(tag, data[at:value_end])))
        at = row_end
    return Plain(version + 1, number, status, index, rows)


def _enter(data: bytes, at: int, tag: int, end: int) -> tuple[int, int]:
    """Where the content of the element at *at* begins and ends."""
    length = data[at + 1]
    begin = at + 2
    if length >= 0x80:
        count = length & 0x7F
        if not 1 <= count <= 3:
            raise _UnusualError
        begin += count
        length = int.from_bytes(data[at + 2 : begin], "big")
    if data[at] != tag or begin + length > end:
        raise _UnusualError
    return begin, begin + length


def _integer(data: bytes, at: int, end: int) -> tuple[int, int]:
    begin, behind = _enter(data, at, _INTEGER, end)
    return _number(data[begin:behind]), behind


def _number(content: bytes) -> int:
    if not 1 <= len(content) <= 4:
        raise _UnusualError
    return int.from_bytes(content, "big", signed=True)


def _name(content: bytes) -> Oid:
    if not content or content[-1] & 0x80:
        raise _UnusualError
    found: list[int] = []
    number = 0
    for byte in content:
        if not number and byte == 0x80:
            raise _UnusualError  # a leading zero
        number = number << 7 | byte & 0x7F
        if number >= 1 << 32:
            raise _UnusualError  # at once: a number as long as a datagram takes a second to add up
        if not byte & 0x80:
            found.append(number)
            number = 0
    first = found[0]
    found[:1] = (0, first) if first < 40 else (1, first - 40) if first < 80 else (2, first - 80)
    if len(found) > _MOST_IDS:
        raise _UnusualError
    return tuple(found)


def _value(tag: int, content: bytes) -> Value | None:
    most = _UNSIGNED.get(tag)
    if most is not None:
        number = int.from_bytes(content, "big", signed=True)
        if not content or not 0 <= number < most:
            raise _UnusualError
        return number
    if tag == _OCTETS:
        return content
    if tag == _INTEGER:
        return _number(content)
    if tag == _OID:
        return ".".join(map(str, _name(content)))
    if tag == _ADDRESS and len(content) == 4:
        return content
    if tag == _OPAQUE:
        # net-snmp's way to send a float: an Opaque around the tag 9F 78, length 4.
        if len(content) == 7 and content[:3] == b"\x9f\x78\x04":
            return float(struct.unpack(">f", content[3:])[0])
        return content
    if content or tag not in (_NULL, *_ABSENT, _END):
        raise _UnusualError
    return END if tag == _END else None


__all__ = ["END", "Plain", "plain"]
