"""Devices polled for real: SNMP agents, an HTTPS Redfish service, ipmi_sim; silence, refusals, recovery, letting go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import threading
import traceback
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bmc.server import PASSWORD, USER, Certificates, RedfishServer, Reply, node_tree
from bmc.simulator import PASSWORD as SIM_PASSWORD
from bmc.simulator import USER as SIM_USER
from bmc.simulator import simulated
from clustertop.clock import SystemClock
from clustertop.model import LinkState, NodeInfo
from clustertop.places import Device, Site
from clustertop.poll.devices import DeviceLink, Devices
from clustertop.poll.readers import BmcReader, Reader, Told, reader_of
from clustertop.sources.bmc import Bmc, BmcSettings
from clustertop.sources.ipmi import IpmiTarget
from clustertop.sources.redfish import Redfish, RedfishSettings, RedfishTarget
from clustertop.sources.redfish_http import HttpLimits
from clustertop.sources.secret import Secret
from clustertop.sources.snmp import Agent
from clustertop.sources.snmp_message import Community, Key
from clustertop.sources.tls import Tls
from clustertop.store.store import Store
from clustertop.wire.frame import GroupPart, decode
from fleets import Remember, until
from pdus import OURS, snmpsim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clustertop.clock import Clock
    from clustertop.wire.frame import Frame
    from pdus import Snmpsim

CLOCK = SystemClock()
FAST = 0.2
"""The least interval of these tests."""
COMMUNITY = "Kranich-42-geheim"


class Sink(Remember):
    """Remembers the bytes as well."""

    def __init__(self) -> None:
        super().__init__()
        self.raw: list[bytes] = []

    def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
        super().on_frame(node, at, frame, raw)
        self.raw.append(raw)
        assert decode(raw) == frame, "a recording gives back what was polled"
        assert frame.full

    def count(self, node: int = 0) -> int:
        """Readings and failures; a word that an answer is still awaited, as a busy machine has them, is neither."""
        return len(self.told(node))

    def told(self, node: int = 0) -> list[Frame]:
        return [frame for frame in self.frames.get(node, ()) if all(one.st != "hung" for one in frame.g.values())]

    def group(self, name: str, node: int = 0) -> GroupPart:
        return self.frames[node][-1].g[name]

    def everything(self) -> str:
        return repr(self.events) + repr(self.frames) + b"".join(self.raw).decode()


def devices(sink: Sink, *some: Device, least: float = FAST, first: int = 0, **more: Any) -> Devices:
    return Devices(some, first, sink, CLOCK, random.Random(5), least_interval_seconds=least,
                   **{"make": reader, **more})


QUICK = RedfishSettings(HttpLimits(connect_seconds=2, request_seconds=4, gap_seconds=0.0))


def reader(device: Device, clock: Clock, rng: random.Random, interval: float) -> Reader:
    """As ``reader_of``, but without the gap between requests, which would be most of these tests' time."""
    if isinstance(device.access, RedfishTarget):
        source = Redfish(device.access, QUICK, clock)
        return BmcReader(device, Bmc(source, BmcSettings(interval), clock, rng), "http", clock)
    return reader_of(device, clock, rng, interval)


def pdu(agent: Agent, name: str = "pdu-a", **more: Any) -> Device:
    return Device(name, "pdu", agent, f"{name}:161", interval_seconds=0.1, **more)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(certificates: Certificates) -> Iterator[RedfishServer]:
    served = RedfishServer(node_tree(), certificates)
    yield served
    served.close()


@pytest.fixture(autouse=True)
def _passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CT_TEST_BMC", PASSWORD)
    monkeypatch.setenv("CT_TEST_WRONG", "Zaunkönig-falsch-9")
    monkeypatch.setenv("CT_TEST_SIM", SIM_PASSWORD)


def bmc(server: RedfishServer, secret: str = "env:CT_TEST_BMC", **more: Any) -> Device:
    target = RedfishTarget(server.url, USER, Secret.from_spec(secret), tls=Tls(ca_file=server.certificates.ca_file))
    return Device("gpu001-bmc", "bmc", target, "gpu001-bmc", "gpu001", interval_seconds=0.1, **more)


def no_errors(caplog: pytest.LogCaptureFixture) -> None:
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_pdu_is_read_again_and_again(agents: Snmpsim) -> None:
    sink, begun = Sink(), set()

    def look() -> bool:
        begun.add(polled.links[0]._began)
        return sink.count(7) >= 3

    async with devices(sink, pdu(agents.agent("apc-rpdu")), first=7) as polled:
        await until(look)
    assert sink.states(7) == [LinkState.CONNECTING, LinkState.UP, LinkState.CLOSED]
    assert [frame.q for frame in sink.frames[7]] == list(range(1, len(sink.frames[7]) + 1))
    frames = sink.told(7)
    assert [frame.g["pdu"].n for frame in frames] == list(range(1, len(frames) + 1))
    assert all(after - before >= FAST for before, after in pairwise(sorted(begun)))
    group = frames[-1].g["pdu"]
    assert (group.st, group.e, group.iv) == ("ok", "", FAST)
    assert group.ms > 0
    assert frames[-1].h is not None
    assert (frames[-1].h["kind"], frames[-1].h["where"], frames[-1].h["profile"]) == ("pdu", "pdu-a:161", "apc-rpdu")


async def test_the_store_takes_what_is_polled_and_what_is_recorded_alike(agents: Snmpsim, server: RedfishServer) -> None:
    sink = Sink()
    async with devices(sink, pdu(agents.agent("raritan-px2")), bmc(server)):
        await until(lambda: sink.count(0) and sink.count(1))
    site = Site(devices=(Device("p", "pdu", None), Device("b", "bmc", None, of="n")))
    live, replayed = Store([NodeInfo("n")], site=site), Store([NodeInfo("n")], site=site)
    for number, frames in sink.frames.items():
        for frame in frames:
            assert live.frame(1 + number, frame.t, frame.w, frame)
    for raw in sink.raw:
        frame = decode(raw)
        assert replayed.frame(1 if "pdu" in frame.g else 2, frame.t, frame.w, frame)
    at = max(frames[-1].t for frames in sink.frames.values())
    for store in (live, replayed):
        store.tick(at)
    for name in ("pdu", "bmc", "psu", "sensor"):
        one, other = live.view(at, 0.0).tables[name], replayed.view(at, 0.0).tables[name]
        assert one.keys
        assert one.keys == other.keys
        assert (one.values[one.values == one.values] == other.values[other.values == other.values]).all()


async def test_a_wrong_community_is_silence_that_says_so_and_costs_the_others_nothing(
    agents: Snmpsim, caplog: pytest.LogCaptureFixture,
) -> None:
    sink = Sink()
    silent = Agent("127.0.0.1", Community(Key(COMMUNITY), 2), agents.port, 0.05, 1)
    # The other one on a name of its own: those behind one address wait for one another.
    good = replace(agents.agent("apc-rpdu"), host="localhost")
    async with devices(sink, pdu(silent, "pdu-bad"), pdu(good, "pdu-good")):
        await until(lambda: sink.state(0) is LinkState.UNREACHABLE)
        await until(lambda: sink.count(1) >= 3 and sink.count(0) >= 2)
        seen = sink.count(1)
        await until(lambda: sink.count(1) >= seen + 2)
    assert sink.states(0) == [LinkState.CONNECTING, LinkState.UNREACHABLE, LinkState.CLOSED]
    down = next(event for event in sink.events if event.state is LinkState.UNREACHABLE)
    assert down.stage == "snmp"
    assert down.reason.startswith("no answer from pdu-bad:161 since ")
    assert "is the community right?" in down.reason
    group = sink.frames[0][-1].g["pdu"]
    assert (group.st, group.n, group.tb) == ("error", 0, {})
    assert group.e == down.reason
    failures = [frame.m["failures"] for frame in sink.frames[0]]
    assert failures == list(range(1, len(failures) + 1))
    gaps = [after.t - before.t for before, after in pairwise(sink.frames[0])]
    assert all(gap >= FAST for gap in gaps), "the wait after a failure is never below the interval"
    assert COMMUNITY not in sink.everything() + caplog.text


async def test_an_agent_that_dies_and_comes_back(tmp_path: Path) -> None:
    sink = Sink()
    with snmpsim({"": OURS}, tmp_path / "one") as first:
        port = first.port
        device = pdu(first.agent("apc-rpdu", timeout=3, retries=0))
        polled = devices(sink, device)
        await polled.__aenter__()
        await until(lambda: sink.count() >= 2)
    try:
        await until(lambda: sink.state() is LinkState.UNREACHABLE)
        last = sink.group("pdu")
        assert (last.st, last.tb) == ("error", {})
        assert "nothing listens" in last.e or "no answer" in last.e
        good = [frame.g["pdu"] for frame in sink.frames[0] if frame.g["pdu"].st == "ok"][-1]
        assert (last.t, last.n) == (good.t, good.n), "the age is that of the last reading"
        with snmpsim({"": OURS}, tmp_path / "two", port=port):
            polled.request(0, {"do": "retry"})
            await until(lambda: sink.state() is LinkState.UP)
            await until(lambda: sink.group("pdu").st == "ok" and sink.group("pdu").n > good.n)
            assert sink.frames[0][-1].m["failures"] == 0
    finally:
        await polled.close()
    assert sink.states() == [LinkState.CONNECTING, LinkState.UP, LinkState.UNREACHABLE, LinkState.UP, LinkState.CLOSED]


async def test_devices_behind_one_agent_are_asked_in_turn(agents: Snmpsim) -> None:
    sink, inside, most = Sink(), 0, 0

    class Watched(Reader):
        async def read(self, now: float) -> Told:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.05)
            inside -= 1
            return Told(LinkState.UP, "snmp", parts={"pdu": GroupPart(now)})

        async def aclose(self) -> None:
            return

    some = [pdu(agents.agent("apc-rpdu"), f"pdu-{n}") for n in range(4)]
    async with devices(sink, *some, make=lambda *_: Watched()):
        await until(lambda: all(sink.count(n) >= 2 for n in range(4)))
    assert most == 1


async def test_a_bmc_is_read_with_one_session_that_is_deleted(server: RedfishServer) -> None:
    sink = Sink()
    async with devices(sink, bmc(server)):
        await until(lambda: sink.count() >= 3)
        assert len(server.sessions) == 1
        server.tree["/redfish/v1/Chassis/Node/EnvironmentMetrics"]["PowerWatts"]["Reading"] = 5000
        await until(lambda: 5000.0 in sink.group("bmc").tb["bmc"].x)
    assert server.sessions == {}
    assert server.most_open == server.most_at_once == 1
    assert sink.states() == [LinkState.CONNECTING, LinkState.UP, LinkState.CLOSED]
    assert PASSWORD not in sink.everything()


async def test_detail_has_the_sensors_read_at_each_poll_for_a_while(server: RedfishServer) -> None:
    sink = Sink()
    async with devices(sink, bmc(server)) as polled:
        await until(lambda: sink.count() >= 2)
        before = server.count("GET", "/Sensors")
        await until(lambda: sink.count() >= 4)
        assert server.count("GET", "/Sensors") == before
        polled.request(0, {"do": "detail", "seconds": 60})
        server.tree["/redfish/v1/Chassis/Node/Sensors/T0"]["Reading"] = 77
        await until(lambda: 77.0 in sink.group("bmc").tb["sensor"].x)
        polled.request(0, {"do": "detail", "seconds": 0})
        seen = sink.count()
        await until(lambda: sink.count() >= seen + 2)
        before = server.count("GET", "/Sensors")
        await until(lambda: sink.count() >= seen + 4)
        assert server.count("GET", "/Sensors") == before


async def test_a_wrong_password_is_told_once_and_not_tried_again_until_asked(
    server: RedfishServer, caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    sink = Sink()
    async with devices(sink, bmc(server, "env:CT_TEST_WRONG")) as polled:
        await until(lambda: sink.state() is LinkState.AUTH_FAILED)
        tries = server.count("POST")
        await asyncio.sleep(5 * FAST)
        assert server.count("POST") == tries == 1
        polled.request(None, {"do": "retry"})
        await until(lambda: server.count("POST") == 2)
        os.environ["CT_TEST_WRONG"] = PASSWORD
        polled.request(0, {"do": "retry"})
        await until(lambda: sink.state() is LinkState.UP)
    failed = next(event for event in sink.events if event.state is LinkState.AUTH_FAILED)
    assert failed.stage == "login"
    assert failed.reason.startswith("gpu001-bmc: auth failed since ")
    assert sink.states() == [LinkState.CONNECTING, LinkState.AUTH_FAILED, LinkState.UP, LinkState.CLOSED]
    assert sink.frames[0][0].g["bmc"].e == failed.reason
    assert server.sessions == {}
    for secret in (PASSWORD, "Zaunkönig-falsch-9"):
        assert secret not in sink.everything() + caplog.text


async def test_a_retry_that_comes_while_it_is_asked_holds_for_what_comes_of_that(server: RedfishServer) -> None:
    sink = Sink()
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    def late(method: str, path: str) -> None:
        if method == "POST":
            loop.call_soon_threadsafe(reached.set)
            let_go.wait(60)

    let_go = threading.Event()
    server.order = late
    async with devices(sink, bmc(server, "env:CT_TEST_WRONG")) as polled:
        await reached.wait()
        polled.request(0, {"do": "retry"})
        let_go.set()
        await until(lambda: server.count("POST") == 2)
        await until(lambda: sink.count() == 2)
    assert sink.states() == [LinkState.CONNECTING, LinkState.AUTH_FAILED, LinkState.CLOSED]


async def test_a_slow_bmc_skips_polls_and_queues_none(server: RedfishServer, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = False
    server.order = lambda method, path: Reply(503, wait=1.5) if slow and path.endswith("EnvironmentMetrics") else None
    sink = Sink()
    async with devices(sink, bmc(server)):
        await until(lambda: sink.count() >= 1)
        slow = True  # longer than the interval, shorter than what a request may take
        await until(lambda: sink.frames[0][-1].g["bmc"].st == "hung")
        assert sink.frames[0][-1].g["bmc"].w
        hung = sink.frames[0][-1]
        assert hung.g["bmc"].n == sink.frames[0][0].g["bmc"].n or hung.g["bmc"].n > 1
        assert sink.state() is LinkState.UP
        slow = False
        await until(lambda: sink.frames[0][-1].g["bmc"].st == "ok" and sink.frames[0][-1].q > hung.q)
        assert sink.frames[0][-1].m["skipped"] > 0
    assert server.most_at_once == 1
    assert server.sessions == {}


async def test_letting_go_while_it_is_asked_leaves_no_session(server: RedfishServer) -> None:
    sink = Sink()
    server.order = lambda method, path: Reply(200, b"{}", wait=0.8) if path.endswith("EnvironmentMetrics") else None
    async with devices(sink, bmc(server)):
        await until(lambda: server.sessions)
    assert server.sessions == {}
    assert sink.state() is LinkState.CLOSED


async def test_letting_go_of_a_bmc_that_says_nothing_is_bounded() -> None:
    """It takes the connection and never answers: neither the handshake nor the end may be waited for in vain."""
    sink = Sink()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.setblocking(False)
        target = RedfishTarget(f"https://127.0.0.1:{mute.getsockname()[1]}", USER, Secret.from_spec("env:CT_TEST_BMC"))
        async with asyncio.timeout(60), devices(sink, Device("b", "bmc", target, "b", interval_seconds=0.1)):
            connection, _ = await asyncio.get_running_loop().sock_accept(mute)
        connection.close()
    assert sink.state() is LinkState.CLOSED
    assert sink.count() == 0


def children() -> list[str]:
    """Command lines of this process's children and theirs."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
    return found


async def test_a_bmc_over_ipmi_and_no_child_is_left(tmp_path: Path) -> None:
    with simulated(tmp_path) as running:
        target = IpmiTarget("127.0.0.1", SIM_USER, Secret.from_spec("env:CT_TEST_SIM"), running.port, cipher="3")
        sink = Sink()
        async with devices(sink, Device("b", "bmc", target, "gpu001-bmc", interval_seconds=0.1)):
            await until(lambda: sink.count() >= 2, what=lambda: sink.events)
            await until(lambda: any("ipmitool" in line for line in children()))
        assert not any("ipmitool" in line for line in children())
        store = Store([NodeInfo("b")])
        frame = next(frame for frame in reversed(sink.frames[0]) if frame.g["bmc"].tb)
        assert store.frame(0, frame.t, frame.w, frame)
        store.tick(frame.t)
        table = store.view(frame.t, 0.0).tables["psu"]
        assert table.values.shape[1] == 2
        assert table.value("input_volts", 0) == 231
        assert store.view(frame.t, 0.0).tables["bmc"].attrs[0]["over"] == "ipmi"
        assert SIM_PASSWORD not in sink.everything()
    assert sink.states() == [LinkState.CONNECTING, LinkState.UP, LinkState.CLOSED]


class Broken(Reader):
    """A bug of ours."""

    closed = 0

    async def read(self, now: float) -> Told:
        raise KeyError("no such thing")

    async def aclose(self) -> None:
        Broken.closed += 1


async def test_a_bug_ends_its_own_task_is_told_and_is_raised_in_the_end(agents: Snmpsim) -> None:
    sink = Sink()

    def make(device: Device, *more: Any) -> Reader:
        return Broken() if device.name == "broken" else reader_of(device, *more)

    with pytest.raises(KeyError, match="no such thing"):
        async with devices(sink, Device("broken", "pdu", None), pdu(agents.agent("apc-rpdu")), make=make):
            await until(lambda: sink.state(0) is LinkState.PROBE_FAILED)
            seen = sink.count(1)
            await until(lambda: sink.count(1) >= seen + 2)
    assert sink.last(0).stage == "console"
    assert "internal error of clustertop: KeyError" in sink.last(0).reason
    assert Broken.closed == 1


@pytest.mark.parametrize(("device", "words"), [
    (Device("p", "pdu", object()), "a PDU is not read by object"),
    (Device("s", "switch", None), "a switch is not read by NoneType"),
    (Device("p", "pdu", Agent("127.0.0.1", Community(Key("x"), 2)), options={"profile": "nosuch"}), "profile nosuch: "),
    (Device("b", "bmc", RedfishTarget("http://b", "u", Secret.from_spec("env:X"))), "https://HOST"),
])
async def test_what_cannot_be_read_says_so(device: Device, words: str) -> None:
    sink = Sink()
    async with devices(sink, device):
        await until(lambda: sink.state() is LinkState.PROBE_FAILED)
        await until(lambda: sink.count() == 1)
    failed = sink.events[0]
    assert failed.stage == "config"
    assert words in failed.reason
    assert sink.frames[0][0].g[device.kind].e == failed.reason


async def test_now_is_never_sooner_than_the_interval(server: RedfishServer) -> None:
    sink = Sink()
    async with devices(sink, bmc(server), least=0.5) as polled:
        begun: set[float] = set()

        def look() -> bool:
            polled.request(0, {"do": "now"})
            begun.add(polled.links[0]._began)
            return sink.count() >= 3

        await until(look)
    assert all(after - before >= 0.5 for before, after in pairwise(sorted(begun)))


class Scripted(Reader):
    """Tells what it is given."""

    def __init__(self, told: Sequence[Told]) -> None:
        self.told = list(told)
        self.reads: list[float] = []

    async def read(self, now: float) -> Told:
        self.reads.append(now)
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]

    async def aclose(self) -> None:
        return


def link(rng: random.Random, interval: float, sink: Sink) -> DeviceLink:
    made = DeviceLink(0, Device("d", "pdu", None), lambda: Scripted([Told(LinkState.UP)]), sink, CLOCK, rng, interval)
    made._began = CLOCK.monotonic()
    return made


def test_the_wait_grows_from_the_interval_to_ten_minutes_and_jitter_is_only_added() -> None:
    one = link(random.Random(1), 10.0, Sink())
    waits = []
    for _ in range(12):
        told = Told(LinkState.UNREACHABLE, "snmp", "no answer")
        one._take(told, 0.0)
        waits.append(one._wait_seconds(told))
    wanted = [min(600.0, 10.0 * 2**n) for n in range(12)]
    assert all(least <= wait <= least * 1.06 for wait, least in zip(waits, wanted, strict=True))
    seldom, down = link(random.Random(1), 1800.0, Sink()), Told(LinkState.UNREACHABLE, "snmp", "no answer")
    for _ in range(3):
        seldom._take(down, 0.0)
        assert 1800.0 <= seldom._wait_seconds(down) <= 1900.0, "a device that fails is not asked more often than one that answers"
    one._take(Told(LinkState.UP), 0.0)
    assert 10.0 - 0.1 <= one._wait_seconds(Told(LinkState.UP)) <= 10.6
    assert one._wait_seconds(Told(LinkState.AUTH_FAILED, wait_seconds=300.0)) == 300.0, "a BMC's own care counts"
    assert one._wait_seconds(Told(LinkState.AUTH_FAILED, wait_seconds=0.0)) >= 9.9


def test_a_state_is_told_when_it_changes_and_its_frame_before_it_where_it_is_bad() -> None:
    order: list[str] = []

    class Ordered(Sink):
        def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
            super().on_frame(node, at, frame, raw)
            order.append(frame.g["pdu"].st)

        def on_link(self, event: Any) -> None:
            super().on_link(event)
            order.append(event.state.words)

    sink = Ordered()
    one = link(random.Random(1), 10.0, sink)
    part = GroupPart(1.0)
    one._take(Told(LinkState.UP, "http", parts={"pdu": part}), 0.0)
    one._take(Told(LinkState.UP, "http", parts={"pdu": msgspec.structs.replace(part, t=2.0)}), 0.0)
    for n in range(3):
        one._take(Told(LinkState.UNREACHABLE, "http", f"gone {n}", parts={"pdu": msgspec.structs.replace(part, t=2.0)}), 0.0)
    # What came late, after it had failed, is not lost.
    one._take(Told(LinkState.UNREACHABLE, "http", "gone", parts={"pdu": msgspec.structs.replace(part, t=3.0)}), 0.0)
    one._take(Told(LinkState.UP, "http", parts={"pdu": msgspec.structs.replace(part, t=4.0)}), 0.0)
    assert order == ["up", "ok", "ok", "error", "unreachable", "error", "error", "ok", "error", "up", "ok"]
    assert [frame.g["pdu"].n for frame in sink.frames[0]] == [1, 2, 2, 2, 2, 3, 3, 4]
    assert sink.frames[0][3].g["pdu"].e == "gone 1", "the words are the newest"


async def test_a_failure_has_no_secret_in_its_traceback(server: RedfishServer, agents: Snmpsim) -> None:
    """Whatever ends a task: what is printed of it, locals included, holds no password and no community."""
    class OurError(Exception):
        pass

    class Failing(Sink):
        def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
            raise OurError

    for device, secret in ((bmc(server), PASSWORD), (pdu(agents.agent("apc-rpdu")), "apc-rpdu")):
        with pytest.raises(OurError) as caught:
            async with devices(Failing(), device) as polled:
                await until(lambda polled=polled: polled.bugs)
        trace = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        ours = [frame for frame in trace.stack if "/src/clustertop/" in frame.filename]
        assert ours
        # What the device says of itself names the profile; who asked it is what must not be there.
        shown = " ".join(str(frame.locals) for frame in ours).replace("'profile': 'apc-rpdu'", "")
        assert f"Key({secret!r})" not in shown
        assert PASSWORD not in shown
    assert server.sessions == {}


def test_under_uvloop_as_the_console_runs(server: RedfishServer, agents: Snmpsim) -> None:
    uvloop = pytest.importorskip("uvloop")
    sink = Sink()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        pinned, wrong = bmc(server), bmc(server)
        assert isinstance(pinned.access, RedfishTarget)
        tls = Tls(fingerprint=server.certificates.fingerprint)
        some = [
            pdu(agents.agent("apc-rpdu")), replace(pinned, access=replace(pinned.access, tls=tls)),
            replace(wrong, access=replace(pinned.access, tls=Tls(fingerprint="00" * 32))),
            replace(wrong, access=replace(pinned.access, url=f"https://127.0.0.1:{mute.getsockname()[1]}")),
        ]

        async def go() -> None:
            async with devices(sink, *some):
                await until(lambda: sink.count(0) >= 2 and sink.count(1) >= 2, what=lambda: sink.events)
                await until(lambda: sink.state(2) is LinkState.AUTH_FAILED, what=lambda: sink.events)
                await until(lambda: sink.state(3) is LinkState.UNREACHABLE, what=lambda: sink.events)

        uvloop.run(go())
    assert sink.states(1) == [LinkState.CONNECTING, LinkState.UP, LinkState.CLOSED]
    refused = next(event for event in sink.events if event.state is LinkState.AUTH_FAILED)
    assert (refused.stage, "not the pinned one" in refused.reason) == ("tls", True)
    assert "no connection in time" in sink.frames[3][0].g["bmc"].e
    assert server.sessions == {}
    assert PASSWORD not in sink.everything()


async def test_who_is_not_let_go_of_yet_is_known_by_name() -> None:
    gate = asyncio.Event()

    class Slow(Reader):
        async def read(self, now: float) -> Told:
            return Told(LinkState.UP, "http")

        async def aclose(self) -> None:
            await gate.wait()

    class Quick(Slow):
        async def aclose(self) -> None:
            return

    def make(device: Device, *_: object) -> Reader:
        return Slow() if device.name == "slow" else Quick()

    sink = Sink()
    polled = devices(sink, Device("slow", "bmc", None), Device("quick", "bmc", None), make=make)
    async with polled:
        await until(lambda: LinkState.UP in sink.states(0) and LinkState.UP in sink.states(1))
        closing = asyncio.create_task(polled.close())
        await until(lambda: polled.left == ("slow",))
        gate.set()
        await closing
        assert polled.left == ()
