"""From the device to the table: every recording of a PDU, a BMC that moves, and services that fail in every way."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from bmc.server import PASSWORD, USER, Certificates, RedfishServer, Reply, node_tree
from bmc.simulator import PASSWORD as SIM_PASSWORD
from bmc.simulator import USER as SIM_USER
from bmc.simulator import simulated
from clustertop.clock import SystemClock
from clustertop.model import LinkState, NodeInfo
from clustertop.places import Device, Site
from clustertop.poll.devices import Devices
from clustertop.poll.readers import BmcReader, Reader, reader_of
from clustertop.sources.bmc import Bmc, BmcSettings
from clustertop.sources.ipmi import IpmiTarget
from clustertop.sources.redfish import Redfish, RedfishSettings, RedfishTarget
from clustertop.sources.redfish_http import HttpLimits
from clustertop.sources.secret import Secret
from clustertop.sources.tls import Tls
from clustertop.store.store import Store
from fleets import Remember, until
from pdus import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clustertop.clock import Clock
    from clustertop.store.view import FleetView
    from pdus import Snmpsim

CLOCK = SystemClock()
QUICK = RedfishSettings(HttpLimits(connect_seconds=3, request_seconds=1, gap_seconds=0.0))
COLUMNS = {"amps": "amps", "volts": "volts", "watts": "watts", "va": "apparent_va", "rating_amps": "rating_amps",
           "warn_amps": "warning_amps", "crit_amps": "critical_amps"}
LEVELS = {"ok": 0, "warning": 1, "critical": 2}


def reader(device: Device, clock: Clock, rng: random.Random, interval: float) -> Reader:
    """As ``reader_of``, without the gap between requests."""
    if isinstance(device.access, RedfishTarget):
        return BmcReader(device, Bmc(Redfish(device.access, QUICK, clock), BmcSettings(interval), clock, rng), "http", clock)
    return reader_of(device, clock, rng, interval)


def polled(sink: Remember, *some: Device, first: int = 0) -> Devices:
    return Devices(some, first, sink, CLOCK, random.Random(5), make=reader, least_interval_seconds=0.2)


def stored(sink: Remember, *some: Device) -> FleetView:
    """What a store of one node makes of all that was told; devices are numbered behind the node."""
    store = Store([NodeInfo("n")], site=Site(devices=some))
    at = 0.0
    for number, frames in sink.frames.items():
        for frame in frames:
            store.frame(number, frame.t, frame.w, frame)
            at = max(at, frame.t)
    for event in sink.events:
        if event.state is not LinkState.CLOSED:
            store.link(event)
    store.tick(at)
    return store.view(at, 0.0)


async def test_every_recording_means_in_the_table_what_it_means_at_the_source(agents: Snmpsim) -> None:
    names = sorted(path.stem for path in OURS.glob("*.snmprec"))
    some = [Device(name, "pdu", agents.agent(name, timeout=10.0), name, interval_seconds=600.0) for name in names]
    sink = Remember()
    async with polled(sink, *some, first=1) as running:
        await until(lambda: all(sink.count(number) for number in range(1, len(names) + 1)), 120,
                    what=lambda: [link.device.name for link in running.links if not sink.count(link.owner)])
    assert {sink.states(number)[1] for number in range(1, len(names) + 1)} == {LinkState.UP}
    table = stored(sink, *some)["pdu"]
    checked = 0
    for number, name in enumerate(names, 1):
        want: dict[str, Any] = json.loads((OURS / f"{name}.json").read_text("utf-8"))
        rows = table.rows_of(number).tolist()
        assert rows, name
        for part in want["parts"]:
            (row,) = [row for row in rows if (table.attrs[row]["kind"], table.attrs[row]["name"], table.attrs[row].get("unit", ""))
                      == (part["kind"], part["name"], part["unit"])]
            for key, column in COLUMNS.items():
                if key not in part:
                    continue
                value = table.value(column, row)
                if part[key] is None:
                    assert value is None, (name, part["name"], key)
                    assert table.reason(column, row), (name, part["name"], key)
                else:
                    assert value == pytest.approx(part[key]), (name, part["name"], key)
                checked += 1
            if part.get("level") in LEVELS:
                assert table.value("part_state", row) == LEVELS[part["level"]], (name, part["name"])
    assert checked > 150


async def test_sensors_of_an_ipmi_bmc_move_in_the_table_and_a_supply_that_fails_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CT_TEST_SIM", SIM_PASSWORD)
    with simulated(tmp_path) as sim:
        target = IpmiTarget("127.0.0.1", SIM_USER, Secret.from_spec("env:CT_TEST_SIM"), sim.port, cipher="3")
        device = Device("n-bmc", "bmc", target, "n-bmc", "n", interval_seconds=0.1)
        sink = Remember()

        def seen(table: str, column: str) -> list[float | None]:
            one = stored(sink, device)[table]
            return [one.value(column, row) for row in range(len(one))]

        async with polled(sink, device, first=1):
            await until(lambda: seen("bmc", "power_watts") == [600.0], what=lambda: sink.events)
            assert seen("psu", "psu_state") == [0.0, 0.0]
            assert seen("bmc", "redundancy") == [0.0]
            sim.set(0x30, 200)  # 800 W
            sim.set(0x41, 9)  # present, and its input lost
            sim.set(0x42, 2)  # redundancy lost
            await until(lambda: seen("bmc", "power_watts") == [800.0])
            await until(lambda: seen("psu", "psu_state") == [0.0, 1.0], what=lambda: seen("psu", "psu_state"))
            await until(lambda: seen("bmc", "redundancy") == [2.0])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedfishServer]:
    monkeypatch.setenv("CT_TEST_BMC", PASSWORD)
    served = RedfishServer(node_tree(), certificates)
    yield served
    served.close()


def bmc(server: RedfishServer) -> Device:
    target = RedfishTarget(server.url, USER, Secret.from_spec("env:CT_TEST_BMC"), tls=Tls(ca_file=server.certificates.ca_file))
    return Device("n-bmc", "bmc", target, "n-bmc", "n", interval_seconds=0.1)


@pytest.mark.parametrize(("reply", "state", "words"), [
    (Reply(503, b"", {"Retry-After": "77"}), LinkState.BUSY, "HTTP 503"),
    (Reply(200, b'{"Links": {"Sess'), LinkState.PROBE_FAILED, "not JSON"),
    (Reply(200, b"<html>login</html>"), LinkState.PROBE_FAILED, "not JSON"),
    (Reply(404), LinkState.PROBE_FAILED, "there is no Redfish service"),
    (Reply(200, b"{}", wait=9.0), LinkState.UNREACHABLE, "no answer within 1 s"),
], ids=["503", "cut JSON", "HTML", "404", "silent"])
async def test_a_service_that_stops_is_told_and_leaves_no_figure_behind(
    server: RedfishServer, reply: Reply, state: LinkState, words: str,
) -> None:
    device, sink = bmc(server), Remember()
    server.order = lambda method, path: reply if path == "/redfish/v1/" else None
    async with polled(sink, device, first=1):
        await until(lambda: sink.state(1) is state, what=lambda: sink.events)
        view = stored(sink, device)
    told = next(event for event in sink.events if event.state is state)
    assert words in told.reason
    assert PASSWORD not in repr(sink.events)
    assert [view["bmc"].value("power_watts", row) for row in range(len(view["bmc"]))] in ([], [None])
    assert view["device"].value("reachable", 0) != 1
    assert view.link_reasons[1] == told.reason


async def test_all_sessions_taken_is_busy_and_ours_come_when_one_is_free(server: RedfishServer) -> None:
    """Two sessions at most, both another's: nothing is forced, and nothing is left."""
    server.slots = 2
    server.sessions = {"/redfish/v1/SessionService/Sessions/90": "x", "/redfish/v1/SessionService/Sessions/91": "y"}
    device, sink = bmc(server), Remember()
    async with polled(sink, device, first=1) as running:
        await until(lambda: sink.state(1) is LinkState.BUSY, what=lambda: sink.events)
        assert len(server.sessions) == 2
        del server.sessions["/redfish/v1/SessionService/Sessions/90"]
        running.request(1, {"do": "retry"})
        await until(lambda: sink.state(1) is LinkState.UP, what=lambda: sink.events)
        assert len(server.sessions) == 2
    assert set(server.sessions) == {"/redfish/v1/SessionService/Sessions/91"}
    assert server.most_at_once == 1


async def test_one_broken_resource_costs_itself_and_is_said(server: RedfishServer) -> None:
    device, sink = bmc(server), Remember()
    bad = "/redfish/v1/Chassis/Board/EnvironmentMetrics"
    server.order = lambda method, path: Reply(200, b'{"PowerWatts": {"Reading": 1}') if path == bad else None
    async with polled(sink, device, first=1):
        await until(lambda: sink.count(1) >= 2, what=lambda: sink.events)
        view = stored(sink, device)
    assert view["bmc"].value("power_watts", 0) == 6120.5
    assert bad in str(view["bmc"].attrs[0]["notes"])
    assert sink.states(1) == [LinkState.CONNECTING, LinkState.UP, LinkState.CLOSED]


async def test_a_meter_that_fails_later_is_unknown_and_not_what_it_was(server: RedfishServer) -> None:
    del server.tree["/redfish/v1/Chassis/Board"]["Links"]
    del server.tree["/redfish/v1/Chassis/Node"]["PowerSubsystem"]
    device, sink = bmc(server), Remember()
    async with polled(sink, device, first=1):
        await until(lambda: sink.count(1) >= 1)
        assert stored(sink, device)["bmc"].value("power_watts", 0) == 6120.5
        server.order = lambda method, path: Reply(500) if path == "/redfish/v1/Chassis/Node/EnvironmentMetrics" else None
        await until(lambda: stored(sink, device)["bmc"].value("power_watts", 0) is None)
        table = stored(sink, device)["bmc"]
    assert table.reason("power_watts", 0) == "its meter could not be read"
