"""The quick codec against pyasn1's: requests are the same octets; of answers it says the same, or is silent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyasn1.codec.ber import encoder
from pysnmp.proto import rfc1902, rfc1905
from pysnmp.proto.api import v1, v2c

from clustertop.sources.snmp_ber import END, plain, request
from clustertop.sources.snmp_message import Community, Key, codec
from work import lines

NAME = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6)


def answer(api: Any, number: int, rows: list[tuple[tuple[int, ...], Any]], status: int = 0, index: int = 0) -> bytes:
    pdu = api.GetResponsePDU()
    api.apiPDU.set_defaults(pdu)
    api.apiPDU.set_request_id(pdu, number)
    api.apiPDU.set_varbinds(pdu, rows)
    api.apiPDU.set_error_status(pdu, status)
    api.apiPDU.set_error_index(pdu, index)
    message = api.Message()
    api.apiMessage.set_defaults(message)
    api.apiMessage.set_community(message, "c" * (number % 200))
    api.apiMessage.set_pdu(message, pdu)
    return bytes(encoder.encode(message))


def both(data: bytes, number: int, monkeypatch: pytest.MonkeyPatch, version: int = 2) -> tuple[Any, Any]:
    """What a request gets of *data* with the quick decoder, and without."""
    found = []
    for quick in (plain, lambda data: None):
        with monkeypatch.context() as patch:
            patch.setattr("clustertop.sources.snmp_message.plain", quick)
            asking = codec(Community(Key("x"), version)).ask("get", [NAME], 0)  # type: ignore[arg-type]
            asking._number = number  # type: ignore[attr-defined]
            found.append(asking.take(data))
    return found[0], found[1]


def test_a_number_as_long_as_a_datagram_costs_nothing() -> None:
    def cell(tag: int, body: bytes) -> bytes:
        return bytes((tag, 0x83)) + len(body).to_bytes(3, "big") + body

    row = cell(0x30, cell(6, b"\x2b" + b"\xff" * 60_000 + b"\x01") + cell(5, b""))
    pdu = cell(2, b"\x01") + cell(2, b"\x00") + cell(2, b"\x00") + cell(0x30, row)
    data = cell(0x30, cell(2, b"\x01") + cell(4, b"public") + cell(0xA2, pdu))
    assert len(data) < 65_507, "it fits a datagram"
    found: list[Any] = [data]
    lines(lambda: found.append(plain(data)), most=2_000)
    assert found[-1] is None


OIDS = st.lists(st.integers(0, 2**32 - 1), max_size=20).map(lambda tail: (1, 3, *tail)) | st.sampled_from([(0, 0), (2, 999, 3), (1, 39)])
VALUES = st.one_of(
    st.integers(-2**31, 2**31 - 1).map(rfc1902.Integer32), st.integers(0, 2**32 - 1).map(rfc1902.Counter32),
    st.integers(0, 2**32 - 1).map(rfc1902.Gauge32), st.integers(0, 2**32 - 1).map(rfc1902.TimeTicks),
    st.integers(0, 2**64 - 1).map(rfc1902.Counter64), st.binary(max_size=300).map(rfc1902.OctetString),
    st.binary(max_size=20).map(rfc1902.Opaque), OIDS.map(rfc1902.ObjectIdentifier), st.binary(min_size=4, max_size=4).map(rfc1902.IpAddress),
    st.just(rfc1902.Opaque(b"\x9f\x78\x04\x41\xb8\x00\x00")), st.builds(lambda: rfc1905.noSuchObject),
    st.builds(lambda: rfc1905.noSuchInstance), st.builds(lambda: rfc1905.endOfMibView))


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.tuples(OIDS, VALUES), max_size=30), number=st.integers(0, 2**31 - 1), status=st.integers(0, 18),
       index=st.integers(0, 30))
def test_what_agents_send_is_read_and_read_the_same(rows: list[Any], number: int, status: int, index: int) -> None:
    data = answer(v2c, number, rows, status, index)
    with pytest.MonkeyPatch.context() as patch:
        quick, slow = both(data, number, patch)
    assert plain(data) is not None
    assert quick is not None
    assert quick == slow


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_is_broken_is_read_the_same_or_left_to_the_other(data: st.DataObject) -> None:
    whole = bytearray(answer(v2c, 77, [((1, 3, 6, 1, 4), rfc1902.Counter64(2**63)), ((1, 3, 9), rfc1902.OctetString("text")),
                                       ((1, 3, 10), rfc1902.Integer32(-5))]))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))])
    if plain(cut) is not None:
        with pytest.MonkeyPatch.context() as patch:
            quick, slow = both(cut, 77, patch)
        assert quick == slow


def test_version_1_has_its_own_types(monkeypatch: pytest.MonkeyPatch) -> None:
    data = answer(v1, 5, [((1, 3, 1), v1.Counter(7)), ((1, 3, 2), v1.Null("")), ((1, 3, 3), v1.OctetString("a"))], 2, 1)
    quick, slow = both(data, 5, monkeypatch, 1)
    assert quick == slow
    assert quick.rows == [((1, 3, 1), 7), ((1, 3, 2), None), ((1, 3, 3), b"a")]
    new = answer(v2c, 5, [((1, 3, 1), rfc1902.Counter64(7))])
    assert plain(bytes([*new[:4], 0, *new[5:]])) is None


def test_an_answer_to_another_request_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert both(answer(v2c, 5, [((1, 3, 1), rfc1902.Counter64(7))]), 6, monkeypatch) == (None, None)


def test_the_end_of_the_mib_is_told_from_what_is_not_there() -> None:
    found = plain(answer(v2c, 1, [((1, 3, 1), rfc1905.endOfMibView), ((1, 3, 2), rfc1905.noSuchObject)]))
    assert found is not None
    assert found.rows == [((1, 3, 1), END), ((1, 3, 2), None)]


@pytest.mark.parametrize("data", [b"", b"0", b"0\x80", b"0\x84\0\0\0\1", b"\xff" * 40, b"0\x03\x02\x01\x01"])
def test_octets_that_are_no_answer(data: bytes) -> None:
    assert plain(data) is None


@given(st.sampled_from([1, 2]), st.sampled_from(["get", "next", "bulk"]), st.integers(0, 2**31 - 1),
       st.lists(OIDS, max_size=40), st.integers(0, 2**31 - 1), st.text("aé$\0", max_size=200))
@settings(max_examples=200, deadline=None)
def test_a_request_is_the_octets_that_pysnmp_makes_of_it(
    version: int, kind: Any, number: int, oids: list[tuple[int, ...]], repetitions: int, community: str,
) -> None:
    api = v2c if version == 2 else v1
    if kind == "bulk" and version == 1:
        kind = "next"
    if kind == "bulk":
        pdu = v2c.GetBulkRequestPDU()
        v2c.apiBulkPDU.set_defaults(pdu)
        v2c.apiBulkPDU.set_max_repetitions(pdu, repetitions)
        v2c.apiBulkPDU.set_non_repeaters(pdu, 0)
    else:
        pdu = api.GetRequestPDU() if kind == "get" else api.GetNextRequestPDU()
        api.apiPDU.set_defaults(pdu)
    api.apiPDU.set_request_id(pdu, number)
    api.apiPDU.set_varbinds(pdu, [(oid, api.null) for oid in oids])
    message = api.Message()
    api.apiMessage.set_defaults(message)
    api.apiMessage.set_community(message, community)
    api.apiMessage.set_pdu(message, pdu)
    made = request(version, community.encode("iso-8859-1"), kind, number, oids, repetitions)
    assert made == bytes(encoder.encode(message))


@pytest.mark.parametrize("oid", [(), (1,), (3, 1), (1, 40), (1, 3, -1)])
def test_what_is_no_oid_is_not_asked_for(oid: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="is no OID"):
        request(2, b"c", "get", 1, [oid])
