"""An SNMP v2c agent of the demo: a sorted table of objects behind a UDP socket. It reads; there is nothing to set."""

from __future__ import annotations

import asyncio
import bisect
import hmac
from typing import TYPE_CHECKING, cast

from clustertop.demo import ber

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clustertop.sources.oids import Oid

    Value = bytes | Callable[[], bytes]
    """An encoded value, or what makes it when it is asked for."""

MAX_OCTETS = 8_192
"""Of an answer. A bulk answer is cut there, as RFC 3416 allows; another one is refused as too big."""
MAX_NAMES = 128
MAX_REPETITIONS = 128
_TOO_BIG = 1
_END = ber.cell(ber.END_OF_MIB, b"")
_NONE = ber.cell(ber.NO_SUCH_OBJECT, b"")


class SnmpAgent(asyncio.DatagramProtocol):
    """Answers who knows the community; to others, and to what is no request, it is silent."""

    def __init__(self, values: Mapping[Oid, Value], community: bytes, refresh: Callable[[], object]) -> None:
        """Serve *values*; *refresh* is called before each answer, so that they are of now."""
        self._values = values
        self._names = sorted(values)
        self._community = community
        self._refresh = refresh
        self._transport: asyncio.DatagramTransport | None = None
        self.answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        answer = self.answer(data)
        if answer and self._transport is not None:
            self._transport.sendto(answer, addr)

    def error_received(self, exc: Exception) -> None:
        """Who asked has gone: nothing to do."""

    def answer(self, data: bytes) -> bytes:
        """The answer to *data*; empty: none."""
        try:
            asked = ber.request(data)
        except ber.BerError:
            return b""
        if not hmac.compare_digest(asked.community, self._community) or len(asked.names) > MAX_NAMES:
            return b""
        self._refresh()
        self.answered += 1
        if asked.kind == ber.GET_BULK:
            return ber.response(asked, self._bulk(asked))
        found = self._get if asked.kind == ber.GET else self._next
        made = ber.response(asked, [found(name)[1] for name in asked.names])
        return made if len(made) <= MAX_OCTETS else ber.response(asked, (), _TOO_BIG)

    def _get(self, name: Oid) -> tuple[Oid, bytes]:
        value = self._values.get(name)
        return name, ber.row(name, _NONE if value is None else value if isinstance(value, bytes) else value())

    def _next(self, name: Oid) -> tuple[Oid, bytes]:
        place = bisect.bisect_right(self._names, name)
        return self._get(self._names[place]) if place < len(self._names) else ((), ber.row(name, _END))

    def _bulk(self, asked: ber.Request) -> list[bytes]:
        """Rows for a bulk request: each of the first names once, then round after round of the others."""
        once = max(0, min(asked.first, len(asked.names)))
        rows = [self._next(name)[1] for name in asked.names[:once]]
        at, size = list(asked.names[once:]), sum(map(len, rows))
        for _ in range(max(0, min(asked.second, MAX_REPETITIONS))):
            ended = True
            for place, name in enumerate(at):
                following, row = self._next(name)
                size += len(row)
                if size > MAX_OCTETS - 128:
                    return rows
                rows.append(row)
                if following:
                    at[place], ended = following, False
            if ended:
                break
        return rows
