"""An SNMP agent that misbehaves on purpose, at the wire: it decodes requests with the real codec and answers as told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from pyasn1.codec.ber import decoder, encoder
from pysnmp.proto.api import v2c

from clustertop.sources.snmp import Agent
from clustertop.sources.snmp_message import Community, Key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from clustertop.sources.oids import Oid

Rows = list[tuple["Oid", Any]]


class Request:
    """What a client asked."""

    def __init__(self, data: bytes) -> None:
        message, _ = decoder.decode(data, asn1Spec=v2c.Message())
        self.community = str(v2c.apiMessage.get_community(message))
        self.pdu = v2c.apiMessage.get_pdu(message)
        self.kind = type(self.pdu).__name__
        self.number = int(self.pdu[0])
        self.names: list[Oid] = [tuple(name) for name, _ in v2c.apiPDU.get_varbinds(self.pdu)]
        self.repetitions = int(self.pdu[2]) if self.kind == "GetBulkRequestPDU" else 0

    def answer(self, rows: Rows, *, status: int = 0, index: int = 0, number: int | None = None) -> bytes:
        """A response; an int becomes an Integer, bytes octets, text an OID, None noSuchInstance."""
        pdu = v2c.ResponsePDU()
        v2c.apiPDU.set_defaults(pdu)
        v2c.apiPDU.set_request_id(pdu, self.number if number is None else number)
        v2c.apiPDU.set_varbinds(pdu, [(name, _value(value)) for name, value in rows])
        v2c.apiPDU.set_error_status(pdu, status)
        v2c.apiPDU.set_error_index(pdu, index)
        message = v2c.Message()
        v2c.apiMessage.set_defaults(message)
        v2c.apiMessage.set_community(message, self.community)
        v2c.apiMessage.set_pdu(message, pdu)
        return bytes(encoder.encode(message))


def _value(value: object) -> Any:
    if value is None:
        return v2c.NoSuchInstance("")
    for kind, made in ((int, v2c.Integer), (bytes, v2c.OctetString), (str, v2c.ObjectIdentifier)):
        if isinstance(value, kind):
            return made(value)
    return value


class Fake(asyncio.DatagramProtocol):
    """Answers each request with the datagrams that *answers* gives, and keeps the requests."""

    def __init__(self, answers: Callable[[Request], list[bytes]]) -> None:
        self.answers = answers
        self.seen: list[Request] = []
        self.port = 0
        self.transport: asyncio.DatagramTransport | None = None

    def datagram_received(self, data: bytes, addr: Any) -> None:
        request = Request(data)
        self.seen.append(request)
        assert self.transport is not None
        for answer in self.answers(request):
            self.transport.sendto(answer, addr)

    def agent(self, timeout: float = 3.0, retries: int = 1) -> Agent:
        return Agent("127.0.0.1", Community(Key("lab")), self.port, timeout, retries)


@contextlib.asynccontextmanager
async def fake(answers: Callable[[Request], list[bytes]]) -> AsyncIterator[Fake]:
    """Run a :class:`Fake` on a free port."""
    protocol = Fake(answers)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: protocol, local_addr=("127.0.0.1", 0))
    protocol.transport = transport
    protocol.port = transport.get_extra_info("sockname")[1]
    try:
        yield protocol
    finally:
        transport.close()


def table(rows: dict[Oid, object], *, limit: int = 1000) -> Callable[[Request], list[bytes]]:
    """Answers of a well-behaved agent that has *rows*, at most *limit* in one answer."""
    names = sorted(rows)

    def behind(name: Oid) -> tuple[Oid, object]:
        found = next((one for one in names if one > name), None)
        return (name, v2c.EndOfMibView("")) if found is None else (found, rows[found])

    def answers(request: Request) -> list[bytes]:
        if request.kind == "GetRequestPDU":
            return [request.answer([(name, rows.get(name)) for name in request.names])]
        out: Rows = []
        last = list(request.names)
        for _ in range(max(1, request.repetitions)):
            row = [behind(name) for name in last]
            out += row
            last = [name for name, _ in row]
        return [request.answer(out[:limit])]

    return answers
