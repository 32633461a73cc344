"""The HTTP connection to a BMC against real TLS servers that answer byte by byte as a test orders."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmc.server import Certificates
from clustertop.sources.bmc_reading import BmcState
from clustertop.sources.care import BmcFailure
from clustertop.sources.redfish_http import Http, HttpLimits
from clustertop.sources.redfish_wire import WireError, request
from clustertop.sources.tls import Tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMITS = HttpLimits(connect_seconds=3, request_seconds=3, gap_seconds=0.0, body_bytes=1 << 20)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


class Service:
    """Answers the n-th request with the n-th of *answers*: octets, in pieces; it hangs up after one that ends with None."""

    def __init__(self, answers: list[list[bytes | None]]) -> None:
        self.answers = answers
        self.asked: list[bytes] = []
        self.connections = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                self.asked.append(head)
                for piece in self.answers.pop(0):
                    if piece is None:
                        await self._end(writer)
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.005)
            await reader.read()
        await self._end(writer)

    @staticmethod
    async def _end(writer: asyncio.StreamWriter) -> None:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def opened(certificates: Certificates, *answers: list[bytes | None]) -> AsyncIterator[tuple[Http, Service]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.chain_file)
    service = Service(list(answers))
    server = await asyncio.start_server(service.talk, "127.0.0.1", 0, ssl=context)
    http = Http(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", Tls(ca_file=certificates.ca_file), LIMITS)
    try:
        yield http, service
    finally:
        await http.aclose()
        server.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(("answer", "body"), [
    ([OK], b"{}"),
    ([bytes([one]) for one in OK], b"{}"),
    ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", OK], b"{}"),
    ([b"HTTP/1.1 200\r\ncontent-LENGTH:2\r\n\r\n{}"], b"{}"),
    ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n", b"4;x=y\r\n\":1}\r\n0\r\nT: x\r\n\r\n"], b'{"a":1}'),
    ([b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: ",
      str(len(zlib.compress(b"{}", wbits=31))).encode(), b"\r\n\r\n", zlib.compress(b"{}", wbits=31)], b"{}"),
    ([b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"], b""),
    ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n", b" " * (1 << 20)], b" " * (1 << 20)),
])
async def test_answers_of_every_form_and_the_connection_serves_again(
    certificates: Certificates, answer: list[bytes | None], body: bytes,
) -> None:
    async with opened(certificates, answer, [OK]) as (http, service):
        assert (await http.request("GET", "/redfish/v1/a")).body == body
        assert (await http.request("GET", "/redfish/v1/b")).status == 200
        assert service.connections == 1
        assert service.asked[1].startswith(b"GET /redfish/v1/b HTTP/1.1\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize("answer", [
    [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"],
    [b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"],
    [b"HTTP/1.1 200 OK\r\n\r\n{", b"}", None],
    [OK, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"],
    [OK, None],
])
async def test_a_connection_that_is_not_to_be_used_again_is_not(
    certificates: Certificates, answer: list[bytes | None],
) -> None:
    """What nobody asked for is never the answer to the next request."""
    async with opened(certificates, answer, [OK]) as (http, service):
        assert (await http.request("GET", "/redfish/v1/a")).body == b"{}"
        # What nobody asked for, or the end, is on its way.
        async with asyncio.timeout(60):
            while http._wire is not None and http._wire.usable:
                await asyncio.sleep(0.005)
        assert (await http.request("GET", "/redfish/v1/b")).body == b"{}"
        assert service.connections == 2


async def test_a_connection_that_closes_as_it_is_used_is_opened_anew_for_what_changes_nothing(
    certificates: Certificates,
) -> None:
    async with opened(certificates, [OK], [None], [OK], [None], [OK]) as (http, service):
        await http.request("GET", "/a")
        assert (await http.request("GET", "/b")).status == 200
        assert [one.split(b" ")[1] for one in service.asked] == [b"/a", b"/b", b"/b"]
        with pytest.raises(BmcFailure):
            await http.request("POST", "/c", json={"UserName": "u"})
        assert [one.split(b" ")[1] for one in service.asked].count(b"/c") == 1, "a login is never sent twice"


@pytest.mark.parametrize(("answer", "words"), [
    ([b"SSH-2.0-x\r\n\r\n"], "not an HTTP answer: not HTTP"),
    ([b"HTTP/2 200\r\n\r\n"], "not an HTTP answer: not HTTP"),
    ([b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"], "not an HTTP answer: a broken header"),
    ([b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n"], "not an HTTP answer: a broken header"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"], "not an HTTP answer: a broken content length"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"], "not an HTTP answer: a broken content length"),
    ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "not an HTTP answer: a broken chunk"),
    ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}}\r\n"], "not an HTTP answer: a broken chunk"),
    ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"], "not an HTTP answer: an unknown transfer encoding"),
    ([b"HTTP/1.1 200 OK\r\n", *[b"A: " + b"b" * 8000 + b"\r\n"] * 12], "not an HTTP answer: a line or a head without end"),
    ([b"HTTP/1.1 100 Continue\r\n\r\n" * 20], "not an HTTP answer: no end of interim answers"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n"], "answer longer than 1 MiB"),
    ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n"], "answer longer than 1 MiB"),
    ([b"HTTP/1.1 200 OK\r\n\r\n", *[b"x" * 65536] * 20, None], "answer longer than 1 MiB"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", None], "the connection ended inside an answer"),
    ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{", None], "the connection ended inside an answer"),
    ([b"HTTP/1.1 200", None], "the connection ended inside an answer"),
    ([None], "the connection ended without an answer"),
])
async def test_what_is_no_answer_is_told_and_the_connection_dropped(
    certificates: Certificates, answer: list[bytes | None], words: str,
) -> None:
    async with opened(certificates, answer, [OK]) as (http, service):
        with pytest.raises(BmcFailure) as failure:
            await http.request("GET", "/redfish/v1/a")
        assert (failure.value.state, failure.value.words) == (BmcState.BAD_ANSWER, words)
        assert (await http.request("GET", "/redfish/v1/b")).body == b"{}"
        assert service.connections == 2


async def test_a_cancelled_request_lets_go_of_its_connection(certificates: Certificates) -> None:
    async with opened(certificates, [b"HTTP/1.1 200 OK\r\n"], [OK]) as (http, service):
        asking = asyncio.create_task(http.request("GET", "/redfish/v1/a"))
        while not service.asked:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await http.request("GET", "/redfish/v1/b")).body == b"{}"
        assert service.connections == 2


@pytest.mark.parametrize("headers", [{"X-Auth-Token": "a\r\nX: y"}, {"X": "a\nb"}, {"X": "a\rb"}, {"X": "a\0b"}])
def test_a_header_cannot_break_its_line(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="line break"):
        request("GET", "/", headers)


@pytest.mark.parametrize(("url", "host"), [
    ("https://b", b"b"), ("b", b"b"), ("https://b:443/", b"b"), ("b:8443", b"b:8443"), ("https://[fd00::1]", b"[fd00::1]"),
    ("https://[fd00::1]:8443", b"[fd00::1]:8443")])
def test_whom_it_asks_for(url: str, host: bytes) -> None:
    message = Http(url, Tls(), LIMITS)._message("GET", "/redfish/v1/", {}, None, None)
    assert b"\r\nHost: " + host + b"\r\n" in message


@pytest.mark.parametrize("url", ["http://b", "https://", "https://u:p@b", "https://b:port", "https://b:99999", "ftp://b", "b c",
                                 "https://[::1", "https://b\r\nX: y"])
def test_what_is_no_address_of_a_bmc(url: str) -> None:
    with pytest.raises(ValueError, match="https://HOST"):
        Http(url, Tls(), LIMITS)


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.one_of(
    st.binary(max_size=40), st.sampled_from([
        b"HTTP/1.1 200 OK\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n", b"\r\n\r\n", b"2\r\n{}\r\n",
        b"0\r\n\r\n", b"HTTP/1.1 100 C\r\n\r\n", b"Connection: close\r\n"])), max_size=8))
def test_any_octets_end_in_an_answer_or_in_one_of_our_failures(pieces: list[bytes]) -> None:
    from clustertop.sources.redfish_wire import Wire

    class Sent:
        def write(self, data: bytes) -> None:
            pass

        def abort(self) -> None:
            pass

    async def ask() -> None:
        wire = Wire(1 << 16)
        wire.connection_made(Sent())  # type: ignore[arg-type]
        asking = asyncio.create_task(wire.exchange(b""))
        for piece in pieces:
            await asyncio.sleep(0)
            wire.data_received(piece)
        wire.connection_lost(None)
        with contextlib.suppress(WireError):
            status, _, body = await asyncio.wait_for(asking, 60)
            assert 200 <= status <= 999
            assert len(body) <= 1 << 16
        assert not wire.usable

    asyncio.run(ask())
