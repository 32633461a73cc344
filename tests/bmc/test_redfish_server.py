"""Redfish against a real HTTPS service: logins and slots, failures told apart, bounds, and field cases C13 and C14."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bmc.server import PASSWORD, SESSIONS, USER, Certificates, RedfishServer, Reply, completed, error, node_tree
from clustertop.sources import redfish_read
from clustertop.sources.bmc import Bmc, BmcSettings
from clustertop.sources.bmc_reading import BmcReading, BmcState
from clustertop.sources.care import BmcFailure
from clustertop.sources.redfish import Redfish, RedfishSettings, RedfishTarget
from clustertop.sources.redfish_http import Http, HttpLimits
from clustertop.sources.secret import Secret
from clustertop.sources.tls import Tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "samples" / "bmc" / "redfish"
QUICK = HttpLimits(connect_seconds=3, request_seconds=3, gap_seconds=0.0)
METRICS = "/redfish/v1/Chassis/Node/EnvironmentMetrics"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(certificates: Certificates) -> Iterator[RedfishServer]:
    served = RedfishServer(node_tree(), certificates)
    yield served
    served.close()


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CT_TEST_BMC", PASSWORD)


def target(server: RedfishServer, **changes: Any) -> RedfishTarget:
    made = RedfishTarget(server.url, USER, Secret.from_spec("env:CT_TEST_BMC"), tls=Tls(ca_file=server.certificates.ca_file))
    return replace(made, **changes)


@contextlib.asynccontextmanager
async def opened(server: RedfishServer, http: HttpLimits = QUICK, settings: dict[str, Any] | None = None,
                 **changes: Any) -> AsyncIterator[Redfish]:
    source = Redfish(target(server, **changes), RedfishSettings(http=http, **(settings or {})))
    try:
        yield source
    finally:
        await source.aclose()


async def refused(server: RedfishServer, **changes: Any) -> BmcFailure:
    """The failure of a first read; nothing may be left open by it."""
    before = dict(server.sessions)
    with pytest.raises(BmcFailure) as failure:
        async with opened(server, **changes) as source:
            await source.read(detail=False)
    assert server.sessions == before
    return failure.value


async def test_a_node_is_read_and_the_session_deleted(server: RedfishServer) -> None:
    async with opened(server) as source:
        reading = await source.read(detail=False)
        assert len(server.sessions) == 1
    assert (reading.watts.number, reading.watts_source) == (6120.5, "Node EnvironmentMetrics")
    assert [(psu.name, psu.input_watts.number, psu.input_amps.number) for psu in reading.psus] == [
        ("Supply A", 3050.5, 13.4), ("Supply B", 3070, 13.4)]
    assert (reading.vendor, reading.model, reading.host_power) == ("Ours", "N-8", "on")
    assert reading.psu_redundancy.value == "full"
    assert len(reading.sensors) == 6
    assert server.sessions == {}
    assert server.count("POST") == server.count("DELETE") == 1
    assert server.most_at_once == 1


async def test_c14_what_is_static_or_off_screen_is_not_asked_again(server: RedfishServer) -> None:
    """C14 a: one request at a time, and only live figures at every poll."""
    async with opened(server) as source:
        await source.read(detail=False)
        first = source.requests
        server.tree[METRICS]["PowerWatts"]["Reading"] = 6300
        reading = await source.read(detail=False)
        live = source.requests - first
        assert reading.watts.number == 6300
        assert len(reading.sensors) == 6
        assert live == 5  # EnvironmentMetrics, two supplies and their metrics
        detailed = await source.read(detail=True)
        assert source.requests - first - live > live
        assert detailed.detail_at is not None
        assert reading.detail_at is not None
        assert detailed.detail_at >= detailed.taken_at > reading.detail_at  # type: ignore[operator]
    assert server.most_at_once == 1


async def test_c14_requests_keep_their_distance(server: RedfishServer) -> None:
    """C14 a: a minimum gap between the end of a request and the start of the next."""
    async with opened(server, QUICK.__class__(gap_seconds=0.02)) as source:
        await source.read(detail=False)
    seen = sorted(server.seen, key=lambda one: one.began)
    assert len(seen) > 15
    assert min(after.began - before.ended for before, after in pairwise(seen)) >= 0.015


async def test_c14_callers_at_once_are_served_one_after_the_other(server: RedfishServer) -> None:
    """C14 a: whoever asks, logging out included, there is one request at a time."""
    server.order = lambda method, path: Reply(200, b"{}", wait=0.02)
    http = Http(server.url, Tls(ca_file=server.certificates.ca_file), QUICK)
    await asyncio.gather(*(http.request("GET", f"/redfish/v1/x{n}") for n in range(8)))
    abandoned = asyncio.create_task(http.request("GET", "/redfish/v1/slow"))
    await asyncio.sleep(0.01)
    abandoned.cancel()
    await http.request("DELETE", "/redfish/v1/y")
    await http.aclose()
    assert server.count("GET", "/x") == 8
    assert server.count("DELETE") == 1
    assert max(sum(one.began < other.began < one.ended for other in server.seen if other.path != "/redfish/v1/y")
               for one in server.seen) == 0


async def test_c14_a_controller_that_dies_of_parallel_calls_lives(certificates: Certificates) -> None:
    """C14: the field's scenario, whose controller crashes where more than so many calls come at once."""
    path = CASES / "C14" / "scenario.json"
    bound = json.loads(path.read_text())["bmc_crashes_if_parallel_over"] if path.is_file() else 2
    server = RedfishServer(node_tree(), certificates)
    crashes: list[str] = []

    def fragile(method: str, path: str) -> Reply | None:
        if server.most_at_once > min(bound, 1):
            crashes.append(path)
        return Reply(wait=0.001) if crashes else None

    server.order = fragile
    bmc = Bmc(Redfish(target(server), RedfishSettings(http=QUICK)))
    try:
        await asyncio.gather(*(bmc.read() for _ in range(12)))
        assert bmc.reading.status.state is BmcState.UP
        assert bmc.reading.status.skipped == 11
    finally:
        await bmc.aclose()
        server.close()
    assert crashes == []
    assert server.sessions == {}


async def test_static_resources_are_asked_for_by_etag_and_live_ones_never(server: RedfishServer) -> None:
    async with opened(server, settings={"static_seconds": 0.0, "detail_seconds": 0.0}) as source:
        await source.read(detail=False)
        again = await source.read(detail=False)
    unchanged = {one.path for one in server.seen if one.status == 304}
    assert "/redfish/v1/Chassis/Node" in unchanged
    assert METRICS not in unchanged
    assert again.watts.number == 6120.5


async def test_collections_are_expanded_where_the_service_can(certificates: Certificates) -> None:
    counts = {}
    for able in (True, False):
        server = RedfishServer(node_tree(), certificates, expand=able)
        try:
            async with opened(server) as source:
                reading = await source.read(detail=True)
            counts[able] = server.count("GET")
            assert [each.value.number for each in reading.sensors] == [30, 31, 32, 33, 34, 35]
            assert len(reading.psus) == 2
        finally:
            server.close()
    assert counts[True] < counts[False]


async def test_c13_slots_never_fill_up(server: RedfishServer) -> None:
    """C13: 200 polls, every fifth with a token that is no longer taken, aborts at random: one session, none left."""
    rng = random.Random(5)
    wanted = {"max_open_sessions": 1, "left_after_exit": 0}
    path = CASES / "C13" / "expect.json"
    if path.is_file():
        assert json.loads(path.read_text()) == wanted
    small = node_tree()
    for gone in ("Sensors", "PowerSubsystem"):
        del small["/redfish/v1/Chassis/Node"][gone]
    server.tree = {name.rstrip("/"): body for name, body in small.items()}
    aborted = good = 0
    loop = asyncio.get_running_loop()
    left = [0]
    task: asyncio.Task[BmcReading] | None = None

    def abort(method: str, path: str) -> Reply | None:
        """Let our own poll be cancelled while its request number so-and-so is under way."""
        left[0] -= 1
        if left[0] == 0 and task is not None:
            loop.call_soon_threadsafe(task.cancel)
            time.sleep(0.01)
        return None

    server.order = abort
    async with opened(server) as source:
        for poll in range(200):
            if poll % 5 == 4:
                if poll % 2:
                    server.sessions.clear()  # the service forgot it
                else:
                    server.dead_tokens.update(server.sessions.values())  # it answers 401, and keeps the slot
            left[0] = rng.choice((0, 0, 1, 2, 3, 4))
            task = asyncio.create_task(source.read(detail=False))
            try:
                good += (await task).watts.number == 6120.5
            except asyncio.CancelledError:
                aborted += 1
            assert len(server.sessions) <= 1
        left[0] = 0
    assert (server.most_open, len(server.sessions)) == (1, 0)
    assert good + aborted == 200
    assert good > 100
    assert aborted > 30


@pytest.mark.parametrize(("status", "code", "message"), [
    (503, "Base.1.5.SessionLimitExceeded", "The session establishment failed"),
    (400, "iLO.2.14.MaxSessions", "The maximum number of sessions has been reached."),
    (401, "IDRAC.2.1.RAC0218", "The maximum number of user sessions is reached."),
    (403, "X.GeneralError", "Too many open sessions"),
    (500, "X.GeneralError", "No more sessions available"),
])
async def test_c13_a_full_house_is_no_wrong_password(server: RedfishServer, status: int, code: str, message: str) -> None:
    """C13 b: said as such whatever its status, and not tried again before the inactivity timer can have run."""
    server.order = lambda method, path: Reply(status, error(code, message)) if method == "POST" else None
    failure = await refused(server)
    assert failure.state is BmcState.MAX_SESSIONS
    assert failure.wait_seconds >= 1800


async def test_c13_two_slots_held_by_others(certificates: Certificates) -> None:
    """C13 b: the service's own timer is used where it has told it before; the row says what is the matter."""
    server = RedfishServer(node_tree(), certificates, slots=2)
    try:
        bmc = Bmc(Redfish(target(server), RedfishSettings(http=QUICK)), BmcSettings(interval_seconds=10))
        assert (await bmc.read()).status.state is BmcState.UP
        server.strangers = 2
        server.sessions.clear()
        status = (await bmc.read()).status
        assert status.state is BmcState.MAX_SESSIONS
        assert status.words.startswith("maximum sessions reached since ")
        assert status.next_at - asyncio.get_running_loop().time() > 2390  # SessionTimeout 2400 of this service
        posts = server.count("POST")
        assert (await bmc.read()).status.skipped == 1
        assert server.count("POST") == posts
        assert bmc.reading.watts.number == 6120.5
        await bmc.aclose()
        assert server.sessions == {}
    finally:
        server.close()


async def test_c13_basic_authentication_opens_no_session(server: RedfishServer) -> None:
    """C13 a: by choice, for a BMC that has no slot to spare."""
    async with opened(server, basic=True) as source:
        reading = await source.read(detail=False)
    assert reading.watts.number == 6120.5
    assert server.count("POST") == server.count("DELETE") == 0
    assert {one.who for one in server.seen} == {"", "basic"}


async def test_c13_a_login_that_is_cancelled_is_still_deleted(server: RedfishServer) -> None:
    """C13 a: the answer that names the new session comes after we have lost interest."""
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(method: str, path: str) -> Reply | None:
        if method == "POST":
            loop.call_soon_threadsafe(reached.set)
            reply = server.login(json.dumps({"UserName": USER, "Password": PASSWORD}).encode())
            reply.wait = 0.3
            return reply
        return None

    server.order = slow
    async with opened(server) as source:
        task = asyncio.create_task(source.read(detail=False))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert server.most_open == 1
    assert server.sessions == {}


async def test_c13_leaving_a_silent_bmc_is_bounded_and_said(
    server: RedfishServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C13 a: what cannot be done is logged, and nothing goes on after the end."""
    monkeypatch.setattr("clustertop.sources.redfish_session.DELETE_SECONDS", 0.2)
    monkeypatch.setattr("clustertop.sources.redfish_session.CLOSE_SECONDS", 0.3)
    async with asyncio.timeout(60):
        async with opened(server) as source:
            await source.read(detail=False)
            server.order = lambda method, path: Reply(wait=600)
    assert "could not be deleted" in caplog.text
    assert len(asyncio.all_tasks()) == 1


async def test_c13_a_delete_that_fails_is_made_up_for(server: RedfishServer) -> None:
    """C13 a: the old session is deleted after the next login where it could not be at once."""
    failing = [True, True]

    def order(method: str, path: str) -> Reply | None:
        return Reply(500) if method == "DELETE" and failing and failing.pop() else None

    server.order = order
    async with opened(server) as source:
        await source.read(detail=False)
        server.dead_tokens.update(server.sessions.values())
        await source.read(detail=False)
        assert len(server.sessions) == 1
    assert server.sessions == {}


@pytest.mark.parametrize(("reply", "state", "left"), [
    (Reply(403), BmcState.FORBIDDEN, 0),
    (Reply(401), BmcState.FORBIDDEN, 0),
    (Reply(503), BmcState.BUSY, 1),
    (Reply(wait=9), BmcState.NOT_ANSWERING, 1),
])
async def test_c13_no_slot_is_held_for_a_far_attempt(server: RedfishServer, reply: Reply, state: BmcState, left: int) -> None:
    """C13 a: deleted on error; one that is busy or silent is not bothered: its session is used again, or deleted at exit."""
    server.order = lambda method, path: reply if path.startswith("/redfish/v1/Chassis") else None
    async with opened(server, http=replace(QUICK, request_seconds=0.3)) as source:
        for _ in range(3):
            with pytest.raises(BmcFailure) as failure:
                await source.read(detail=False)
            assert failure.value.state is state
            assert len(server.sessions) == left
        server.order = lambda method, path: None
        assert (await source.read(detail=False)).watts.number == 6120.5
    assert (server.most_open, server.sessions) == (1, {})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_c13_a_signal_ends_the_session_too(server: RedfishServer, number: signal.Signals) -> None:
    """C13 a: a process that gets TERM, HUP or INT in the middle of a poll leaves no session."""
    program = f"""
import asyncio, signal
from clustertop.sources.bmc import Bmc
from clustertop.sources.redfish import Redfish, RedfishTarget
from clustertop.sources.secret import Secret
from clustertop.sources.tls import Tls

async def main():
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    target = RedfishTarget({server.url!r}, {USER!r}, Secret.from_spec("env:CT_TEST_BMC"),
                           tls=Tls(ca_file={server.certificates.ca_file!r}))
    bmc = Bmc(Redfish(target))
    reading = asyncio.create_task(bmc.read())
    await stop.wait()
    await bmc.aclose()
    reading.cancel()

asyncio.run(main())
"""
    loop_reached = []

    def order(method: str, path: str) -> Reply | None:
        if path == METRICS:
            loop_reached.append(path)
            return Reply(200, b"{}", wait=5.0)
        return None

    server.order = order
    child = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        for _ in range(500):
            if loop_reached:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.02)
        assert len(server.sessions) == 1
        server.order = lambda method, path: None
        child.send_signal(number)
        assert child.wait(60) == 0
    finally:
        child.kill()
    assert server.sessions == {}
    assert server.most_open == 1


async def test_a_wrong_password_is_said_and_not_tried_again_soon(
    server: RedfishServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CT_TEST_BMC", "other")
    bmc = Bmc(Redfish(target(server), RedfishSettings(http=QUICK)), BmcSettings(interval_seconds=10))
    status = (await bmc.read()).status
    await bmc.aclose()
    assert status.state is BmcState.AUTH_FAILED
    assert status.next_at - asyncio.get_running_loop().time() >= 299
    assert server.count("POST") == 1


@pytest.mark.parametrize(("reply", "state", "wait"), [
    (Reply(503, b"", {"Retry-After": "120"}), BmcState.BUSY, 120),
    (Reply(429, b""), BmcState.BUSY, 0),
    (Reply(403, error("Base.1.0.InsufficientPrivilege", "no")), BmcState.FORBIDDEN, 0),
    (Reply(400, error("iLO.2.8.UnauthorizedLoginAttempt", "no")), BmcState.AUTH_FAILED, 0),
    (Reply(404, b"nothing"), BmcState.BAD_ANSWER, 0),
    (Reply(201, b"{}", {"Location": f"{SESSIONS}/77"}), BmcState.BAD_ANSWER, 0),
])
async def test_refused_logins_are_told_apart(server: RedfishServer, reply: Reply, state: BmcState, wait: float) -> None:
    server.order = lambda method, path: reply if method == "POST" else None
    failure = await refused(server)
    assert (failure.state, failure.wait_seconds) == (state, wait)
    if reply.status == 201:
        assert server.count("DELETE", "/77") >= 1


@pytest.mark.parametrize(("reply", "note"), [
    (Reply(403, b""), "no permission (403)"),
    (Reply(500, b"boom"), "HTTP 500"),
    (Reply(200, b'{"PowerWatts": {"Reading": 1}'), "not JSON"),
    (Reply(200, b"[1, 2]"), "not a JSON object"),
    (Reply(200, b'{"a":' * 5000), "not JSON"),
    (Reply(200, b"\xff\xfe{"), "not JSON"),
    (Reply(401, b""), "no permission (401)"),
])
async def test_one_bad_resource_costs_itself(server: RedfishServer, reply: Reply, note: str) -> None:
    bad = "/redfish/v1/Chassis/Board/EnvironmentMetrics"
    if reply.status == 401:
        bad = "/redfish/v1/Systems/Host"
    server.order = lambda method, path: reply if path == bad else None
    async with opened(server) as source:
        reading = await source.read(detail=False)
    assert reading.watts.number == 6120.5
    if reply.status == 401:
        assert f"{bad}: no permission (401)" in reading.notes
    else:
        assert [one for one in reading.notes if bad in one and note in one]
    assert server.sessions == {}
    assert server.most_open == 1


async def test_a_live_figure_that_cannot_be_read_is_unknown_and_not_the_last_one(server: RedfishServer) -> None:
    async with opened(server) as source:
        assert (await source.read(detail=False)).watts.number == 6120.5
        server.order = lambda method, path: Reply(500) if "EnvironmentMetrics" in path else None
        reading = await source.read(detail=False)
    assert METRICS not in {meter.id for meter in reading.meters}
    assert reading.watts_source == "sum of 2 power supplies, input"


async def test_a_part_does_not_stand_for_the_whole_whose_meter_is_silent(server: RedfishServer) -> None:
    """Both chassis look alike, as where firmware does not say which contains which."""
    del server.tree["/redfish/v1/Chassis/Board"]["Links"]
    del server.tree["/redfish/v1/Chassis/Node"]["PowerSubsystem"]
    async with opened(server) as source:
        assert (await source.read(detail=False)).watts.number == 6120.5
        server.order = lambda method, path: Reply(500) if path == METRICS else None
        reading = await source.read(detail=False)
        assert (reading.watts.number, reading.watts.why) == (None, "its meter could not be read")
        server.order = lambda method, path: None
        assert (await source.read(detail=False)).watts.number == 6120.5


@pytest.mark.parametrize(("reply", "state", "words"), [
    (Reply(wait=5.0), BmcState.NOT_ANSWERING, "no answer within 0.4 s"),
    (Reply(200, b"x" * 1000, cut=10), BmcState.BAD_ANSWER, "the connection ended inside an answer"),
    (Reply(200, b"x" * (2 << 20)), BmcState.BAD_ANSWER, "answer longer than 1 MiB"),
    (Reply(200, gzip.compress(b" " * (8 << 20)), {"Content-Encoding": "gzip"}), BmcState.BAD_ANSWER,
     "answer longer than 1 MiB"),
    (Reply(200, b"junk", {"Content-Encoding": "gzip"}), BmcState.BAD_ANSWER, "answer with broken compression"),
    (Reply(503, b"", {"Retry-After": "77"}), BmcState.BUSY, "HTTP 503"),
    (Reply(404), BmcState.BAD_ANSWER, "there is no Redfish service"),
    (Reply(302, b"", {"Location": "https://elsewhere.invalid/redfish/v1/"}), BmcState.BAD_ANSWER, "/redfish/v1/: HTTP 302"),
    (Reply(200, b"<html>login</html>"), BmcState.BAD_ANSWER, "/redfish/v1/: not JSON"),
])
async def test_a_service_that_fails_says_how(server: RedfishServer, reply: Reply, state: BmcState, words: str) -> None:
    server.order = lambda method, path: reply if path == "/redfish/v1/" else None
    failure = await refused(server, http=HttpLimits(connect_seconds=2, request_seconds=0.4, gap_seconds=0, body_bytes=1 << 20))
    assert failure.state is state
    assert words in failure.words
    assert server.passwords == 0


async def test_compressed_answers_are_read(server: RedfishServer) -> None:
    body = gzip.compress(json.dumps({"PowerWatts": {"Reading": 6001}}).encode())
    server.order = lambda method, path: Reply(200, body, {"Content-Encoding": "gzip"}) if path == METRICS else None
    async with opened(server) as source:
        assert (await source.read(detail=False)).watts.number == 6001


async def test_what_was_read_before_a_stall_is_used(server: RedfishServer) -> None:
    server.order = lambda method, path: Reply(wait=9) if "/Sensors/T3" in path else None
    async with opened(server, http=HttpLimits(request_seconds=0.4, gap_seconds=0)) as source:
        reading = await source.read(detail=False)
    assert reading.watts.number == 6120.5
    assert "stopped early: no answer within 0.4 s" in reading.notes
    assert server.sessions == {}


async def test_nobody_there() -> None:
    source = Redfish(RedfishTarget("https://127.0.0.1:1", USER, Secret.from_spec("env:CT_TEST_BMC")),
                     RedfishSettings(http=QUICK))
    with pytest.raises(BmcFailure) as failure:
        await source.read(detail=False)
    assert failure.value.state is BmcState.NOT_ANSWERING
    await source.aclose()


@pytest.mark.parametrize("changes", [
    {"tls": Tls()},
    {"tls": Tls(fingerprint="00" * 32)},
    {"tls": Tls(ca_file="/no/such/file.pem")},
    {"tls": Tls(fingerprint="12:34")},
])
async def test_a_certificate_that_is_not_accepted_gets_nothing(server: RedfishServer, changes: dict[str, Any]) -> None:
    failure = await refused(server, **changes)
    assert failure.state is BmcState.TLS_FAILED
    assert failure.words
    assert server.seen == []


async def test_a_pinned_or_unchecked_certificate(server: RedfishServer) -> None:
    pin = server.certificates.fingerprint.upper()
    colons = ":".join(pin[at: at + 2] for at in range(0, 64, 2))
    async with opened(server, tls=Tls(fingerprint=colons)) as source:
        assert (await source.read(detail=False)).notes == ()
    async with opened(server, tls=Tls(insecure=True)) as source:
        assert (await source.read(detail=False)).notes == ("the certificate is not checked",)
    assert server.sessions == {}


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://user:pw@127.0.0.1", "ftp://x", "https://"])
def test_only_https_and_no_password_in_the_address(url: str) -> None:
    with pytest.raises(ValueError, match="https://HOST"):
        Redfish(RedfishTarget(url, USER, Secret.from_spec("env:X")))


async def test_links_out_of_the_service_are_not_followed(server: RedfishServer, certificates: Certificates) -> None:
    other = RedfishServer(node_tree(), certificates)
    try:
        node = server.tree["/redfish/v1/Chassis/Node"]
        for bad in (f"{other.url}{METRICS}", f"//{other.url[8:]}{METRICS}", "/admin/reset", "/redfish/v1/../../etc", "x" * 4000,
                    "/redfish/v1/\r\nX: y", 7, None, ["a"]):
            node["EnvironmentMetrics"] = {"@odata.id": bad}
            server.tree["/redfish/v1/Chassis"]["Members"].append({"@odata.id": bad})
            async with opened(server) as source:
                reading = await source.read(detail=False)
            assert reading.watts_source == "sum of 2 power supplies, input"
        assert other.seen == []
        assert {one.path.split("/")[1] for one in server.seen} == {"redfish"}
    finally:
        other.close()
    assert server.sessions == {}


async def test_a_service_without_end_is_bounded(server: RedfishServer) -> None:
    def endless(method: str, path: str) -> Reply | None:
        path = path.partition("?")[0]
        if method == "GET" and path.startswith("/redfish/v1/Chassis"):
            members = [{"@odata.id": f"{path}/{n}"} for n in range(3000)]
            return Reply(200, {"@odata.type": "#ChassisCollection.ChassisCollection", "Members": members})
        return None

    server.order = endless
    async with opened(server, settings={"most_requests": 40}) as source:
        reading = await source.read(detail=False)
        assert source.requests <= 45
    assert any("limit is 40 requests" in note for note in reading.notes)
    assert server.sessions == {}


async def test_a_poll_is_bounded_in_bytes_and_time(server: RedfishServer) -> None:
    async with opened(server, settings={"most_bytes": 2000}) as source:
        reading = await source.read(detail=False)
    assert reading.watts.number == 6120.5
    assert len(reading.sensors) < 6
    server.order = lambda method, path: Reply(200, b"{}", wait=0.15) if "/Sensors/" in path else None
    async with opened(server, settings={"read_seconds": 0.4}) as source:
        began = asyncio.get_running_loop().time()
        reading = await source.read(detail=False)
        assert asyncio.get_running_loop().time() - began < 2
    assert reading.watts.number == 6120.5
    assert "stopped early: not read within 0.4 s" in reading.notes
    assert server.sessions == {}


async def test_a_chain_of_links_is_cut_at_its_depth(server: RedfishServer) -> None:
    def chain(method: str, path: str) -> Reply | None:
        path = path.partition("?")[0]
        if method == "GET" and path.startswith("/redfish/v1/Chassis"):
            return Reply(200, {"@odata.type": "#ChassisCollection.ChassisCollection", "Members": [{"@odata.id": f"{path}/n"}]})
        return None

    server.order = chain
    async with opened(server) as source:
        await source.read(detail=False)
    assert max(one.path.count("/n") for one in server.seen) == 7


async def test_no_secret_in_logs_tracebacks_or_reprs(server: RedfishServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    text = ""
    tokens = []

    def order(method: str, path: str) -> Reply | None:
        tokens.extend(server.sessions.values())
        return Reply(wait=9) if path == METRICS else None

    server.order = order
    for basic in (False, True):
        source = Redfish(target(server, basic=basic), RedfishSettings(http=replace(QUICK, request_seconds=0.3)))
        try:
            await source.read(detail=False)
        except BmcFailure as failure:
            text += "".join(traceback.TracebackException.from_exception(failure, capture_locals=False).format())
            text += repr(failure) + repr(failure.__dict__)
        text += repr(source) + repr(target(server, basic=basic))
        await source.aclose()
    text += caplog.text
    assert tokens
    assert "no answer within" in text
    for secret in (PASSWORD, PASSWORD[:6], *tokens):
        assert secret not in text


async def test_a_wrong_password_with_basic_authentication(server: RedfishServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CT_TEST_BMC", "other")
    failure = await refused(server, basic=True)
    assert (failure.state, failure.words) == (BmcState.AUTH_FAILED, "user or password refused")


async def test_a_login_may_take_longer_than_another_request(server: RedfishServer) -> None:
    """C13 a: a login that is given up leaves a session that nobody can delete."""
    def slow(method: str, path: str) -> Reply | None:
        if method != "POST":
            return None
        reply = server.login(json.dumps({"UserName": USER, "Password": PASSWORD}).encode())
        reply.wait = 0.8
        return reply

    server.order = slow
    async with opened(server, http=HttpLimits(request_seconds=0.4, gap_seconds=0)) as source:
        assert (await source.read(detail=False)).watts.number == 6120.5
    assert server.sessions == {}


async def test_a_port_that_takes_connections_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        source = Redfish(RedfishTarget(url, USER, Secret.from_spec("env:CT_TEST_BMC")),
                         RedfishSettings(http=HttpLimits(connect_seconds=0.3, request_seconds=5)))
        with pytest.raises(BmcFailure, match="no connection in time") as failure:
            await source.read(detail=False)
        await source.aclose()
    assert failure.value.state is BmcState.NOT_ANSWERING


def test_under_uvloop(server: RedfishServer) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def go() -> None:
        for tls, accepted in ((Tls(fingerprint=server.certificates.fingerprint), True), (Tls(fingerprint="ab" * 32), False)):
            bmc = Bmc(Redfish(target(server, tls=tls), RedfishSettings(http=QUICK)))
            reading = await bmc.read()
            assert reading.status.state is (BmcState.UP if accepted else BmcState.TLS_FAILED)
            if accepted:
                server.order = lambda method, path: Reply(wait=9) if path == METRICS else None
                task = asyncio.create_task(bmc.read())
                await asyncio.sleep(0.05)
                task.cancel()
            await bmc.aclose()
            server.order = lambda method, path: None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(go())
    assert server.sessions == {}
    assert server.passwords == 1


def parts(reading: BmcReading) -> tuple[object, ...]:
    values = [(psu.name, psu.input_watts, psu.output_watts, psu.input_volts, psu.capacity_watts) for psu in reading.psus]
    return reading.watts, values, len(reading.circuits), reading.alarms, reading.psu_redundancy


@pytest.mark.parametrize("name", [
    "hpe-ilo-gen10-power", "hpe-ilo5-power", "dell-idrac9-power", "dell-hms-power", "supermicro-x10-power",
    "dmtf-rackmount1-power", "sushy-sample-power", "gigabyte-power", "paradise-power", "delta-powershelf",
    "supermicro-gb300-power", "no-power-chassis", "nvidia-gb300-processors", "dmtf-wip-rackpdu", "gofish-powerequipment"])
async def test_a_recorded_tree_reads_the_same_through_the_service(certificates: Certificates, name: str) -> None:
    path = SAMPLES / f"{name}.redfish.json"
    if not path.is_file():
        pytest.skip("no recordings beside the project")
    tree = json.loads(path.read_text())
    server = RedfishServer(completed(tree), certificates)
    try:
        async with opened(server) as source:
            reading = await source.read(detail=True)
        assert parts(reading) == parts(redfish_read.read(tree))
        assert server.most_open == 1
        assert server.sessions == {}
    finally:
        server.close()
