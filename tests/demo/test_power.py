"""The demo's PDUs, BMCs and leaf switches, read by the console's own sources over the wire, and the faults' curves."""

from __future__ import annotations

import asyncio
import contextlib
import stat
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyasn1.codec.ber import encoder
from pyasn1.type import univ

from clustertop.commands.demo import running
from clustertop.demo import ber
from clustertop.demo.cluster import Cluster
from clustertop.demo.devices import COMMUNITY_FILE, PASSWORD_FILE, Devices
from clustertop.demo.faults import FaultError, parse
from clustertop.demo.feeds import RATING_AMPS
from clustertop.demo.launch import start_demo
from clustertop.demo.server import departures
from clustertop.demo.site import make_site
from clustertop.demo.snmp_agent import SnmpAgent
from clustertop.demo.traffic import RAILS
from clustertop.signals import ifmib, power
from clustertop.signals.traffic import ring
from clustertop.sources.bmc_reading import BmcState, PsuState, Quantity, RedundancyState
from clustertop.sources.care import BmcFailure
from clustertop.sources.oids import oid
from clustertop.sources.pdu import Pdu
from clustertop.sources.redfish import Redfish, RedfishSettings, RedfishTarget
from clustertop.sources.redfish_http import HttpLimits
from clustertop.sources.snmp import Agent, Client, SnmpError
from clustertop.sources.snmp_message import Community, Key
from clustertop.sources.tls import Tls
from flowshares import rack_share, spine_share
from leafports import of_looks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from clustertop.places import Device, Site
    from clustertop.sources.bmc_reading import BmcReading
    from clustertop.sources.pdu import PduReading

QUICK = RedfishSettings(http=HttpLimits(gap_seconds=0.0, request_seconds=1.0))
SWITCH_ROOTS = [oid(one) for one in ("1.3.6.1.2.1.1", "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1", "1.3.6.1.2.1.10.7.10.1")]


class Stage:
    """A demo cluster's devices on loopback, whose clock the test turns."""

    def __init__(self, count: int, faults: Sequence[str], folder: Path) -> None:
        self.cluster = Cluster(count, 7, [parse(text) for text in faults])
        self.folder = folder
        self.devices = Devices(self, folder)  # type: ignore[arg-type]
        self.site: Site
        self.at = 0.0

    def now(self) -> float:
        self.cluster.simulator.advance(self.at)
        return self.at

    def device(self, name: str) -> Device:
        return next(one for one in self.site.devices if one.name == name)

    async def pdu(self, name: str) -> PduReading:
        access = self.device(name).access
        assert isinstance(access, Agent)
        async with Pdu(access) as pdu:
            return await pdu.read()

    async def bmc(self, node: str) -> BmcReading:
        access = self.device(f"{node}-bmc").access
        assert isinstance(access, RedfishTarget)
        source = Redfish(access, QUICK)
        try:
            return await source.read(detail=True)
        finally:
            await source.aclose()

    async def look(self, leaf: str) -> ifmib.Look:
        access = self.device(leaf).access
        assert isinstance(access, Agent)
        async with Client(access) as client:
            rows = (await client.walk(*SWITCH_ROOTS)).rows
        said = [(name, value.decode() if isinstance(value, bytes) else value) for name, value in rows.items()]
        return ifmib.Look(self.at, ifmib.read([(name, value) for name, value in said if not isinstance(value, float)]))


@contextlib.asynccontextmanager
async def stage(folder: Path, count: int = 8, *faults: str) -> AsyncIterator[Stage]:
    made = Stage(count, faults, folder)
    try:
        told = await made.devices.start()
        made.site = make_site(made.cluster.plan, made.cluster.wiring, folder, told)
        yield made
    finally:
        made.devices.close()


def shares(cluster: Cluster, seconds: Sequence[float]) -> np.ndarray:
    """Of each feed at each moment: [moments, feeds]."""
    out = []
    for moment in seconds:
        cluster.simulator.advance(moment)
        out.append(cluster.power.share())
    return np.array(out)


def feed(cluster: Cluster, name: str) -> int:
    return [one.name for one in cluster.wiring.feeds].index(name)


# ---- read by the console's own sources -----------------------------------------------------------------------------


async def test_the_real_pdu_client_recognises_and_scales_a_demo_pdu(tmp_path: Path) -> None:
    async with stage(tmp_path) as demo:
        demo.at = 40.0
        reading = await demo.pdu("pdu-r1-a1")
        assert (reading.profile, reading.name, reading.problem, reading.notes) == ("raritan-px2", "pdu-r1-a1", "", ())
        inlet, phases, banks = reading.of("inlet")[0], reading.of("phase"), reading.of("bank")
        assert [part.name for part in (inlet, *phases)] == ["I1", "L1", "L2", "L3"]
        assert [part.rating_amps for part in (inlet, *phases, *banks)] == [RATING_AMPS] * 4 + [32.0] * 6
        assert [(part.warn_amps, part.crit_amps) for part in phases] == [(50.4, 56.7)] * 3
        assert inlet.watts == pytest.approx(sum(part.watts or 0 for part in phases), abs=3)
        for number, part in enumerate(phases):
            assert part.amps is not None
            assert part.volts is not None
            assert part.watts == pytest.approx(part.amps * part.volts * 0.985, rel=0.005)
            assert part.amps == pytest.approx(sum(one.amps or 0 for one in banks[2 * number : 2 * number + 2]), abs=0.03)
            assert part.amps == pytest.approx(demo.cluster.power.amps[0, number], abs=0.006)
            assert power.share(part.amps, part.rating_amps)[()] > 0.2
        assert not power.scales_disagree([p.amps for p in phases], [p.volts for p in phases], [p.watts for p in phases]).any()
        assert all(part.level == "ok" for part in (*phases, *banks))


async def test_what_bmcs_and_pdus_say_is_the_same_power_and_follows_the_gpus(tmp_path: Path) -> None:
    async with stage(tmp_path) as demo:
        seen = []
        for demo.at in (30.0, 33.0):
            feeds = [await demo.pdu(one.pdu) for one in demo.site.feeds[:2]]
            nodes = [await demo.bmc(name) for name in demo.site.feeds[0].nodes]
            drawn = sum(one.total("watts") or 0.0 for one in feeds)
            assert drawn == pytest.approx(sum(one.watts.number or 0.0 for one in nodes), rel=0.01)
            seen.append(drawn)
    assert len(set(seen)) == 2
    cluster = Cluster(8)
    gpus, fed = [], []
    for moment in np.arange(30.0, 430.0, 2.0):
        cluster.simulator.advance(moment)
        gpus.append(cluster.simulator.power[:4].sum())
        fed.append(cluster.power.bank_watts[:2].sum())
    assert np.corrcoef(gpus, fed)[0, 1] > 0.85
    assert np.ptp(gpus) > 5000  # there was a checkpoint, so this is not two constants


async def test_redfish_over_a_pinned_certificate_leaves_no_session(tmp_path: Path) -> None:
    async with stage(tmp_path) as demo:
        demo.at = 20.0
        reading = await demo.bmc("gpu002")
        assert (reading.host_power, reading.psu_redundancy) == ("on", RedundancyState.FULL)
        assert [(psu.name, psu.state) for psu in reading.psus] == [("PSU1", PsuState.OK), ("PSU2", PsuState.OK)]
        watts = [psu.input_watts.number for psu in reading.psus]
        assert sum(one or 0 for one in watts) == pytest.approx(reading.watts.number, abs=2)
        assert all(0.9 < (psu.output_watts.number or 0) / (psu.input_watts.number or 1) < 0.97 for psu in reading.psus)
        assert reading.capacity_watts.number == 18_000
        assert {one.quantity for one in reading.sensors} == {Quantity.TEMPERATURE, Quantity.SPEED}
        bmc = demo.devices.bmcs[1]
        assert (bmc.made, bmc.most, bmc.sessions) == (1, 1, {})
        access = demo.device("gpu002-bmc").access
        assert isinstance(access, RedfishTarget)
        stranger = Redfish(replace(access, tls=Tls(fingerprint="ab" * 32)), QUICK)
        with pytest.raises(BmcFailure) as refused:
            await stranger.read(detail=False)
        await stranger.aclose()
        assert refused.value.state is BmcState.TLS_FAILED
        assert bmc.made == 1  # nothing was sent to who could not prove itself


async def test_a_bmc_has_two_session_slots(tmp_path: Path) -> None:
    async with stage(tmp_path, 1) as demo:
        access = demo.device("gpu001-bmc").access
        assert isinstance(access, RedfishTarget)
        three = [Redfish(access, QUICK) for _ in range(3)]
        for one in three[:2]:
            await one.read(detail=False)
        with pytest.raises(BmcFailure) as full:
            await three[2].read(detail=False)
        assert full.value.state is BmcState.MAX_SESSIONS
        for one in three:
            await one.aclose()
        assert demo.devices.bmcs[0].sessions == {}


async def test_a_leaf_switch_counts_what_the_rings_carry(tmp_path: Path) -> None:
    async with stage(tmp_path, 32) as demo:
        demo.at = 20.0
        first = await demo.look("leaf1")
        moved = np.zeros((32, 32))
        for step in range(40):
            demo.at = 20.25 + step * 0.25
            demo.now()
            moved += demo.cluster.traffic.matrix() * 0.25
        second = await demo.look("leaf1")
    assert second.switch.name == "leaf1"
    assert second.switch.uptime_seconds == pytest.approx((first.switch.uptime_seconds or 0) + 10.0)
    nodes = [node.name for node in demo.cluster.plan.nodes]
    roles = ifmib.roles(second.switch, nodes=nodes)
    assert [role.role for role in roles.values()] == ["host"] * 16 + ["uplink"] * 8
    assert {role.why for role in roles.values()} == {"alias"}
    share = of_looks(first, second, roles)
    assert share.why == ""
    out, crossing = moved[:16].sum() / 10, moved[:16, 16:].sum() / 10
    assert out > 1e9
    assert share.host_in == pytest.approx(out, rel=1e-3)
    assert share.uplink_out == pytest.approx(crossing, rel=1e-3)
    assert share.imbalance is not None
    assert 0.0 < share.imbalance < 0.3


# ---- what the servers let out --------------------------------------------------------------------------------------


async def test_a_demo_process_hands_over_its_site_and_keeps_its_secrets() -> None:
    async with start_demo(4) as demo:
        folder = demo.client_key.parent
        secrets = [(folder / name).read_text().strip() for name in (COMMUNITY_FILE, PASSWORD_FILE)]
        assert all(stat.S_IMODE((folder / name).stat().st_mode) == 0o600 for name in (COMMUNITY_FILE, PASSWORD_FILE))
        shown = repr(demo) + (folder.parent / f"/proc/{demo.pid}/cmdline").read_text()
        assert all(len(one) > 16 and one not in shown for one in secrets)
        assert not list(folder.glob("*.pem"))  # the BMCs' key was read and is gone
        kinds = [device.kind for device in demo.site.devices]
        assert kinds == ["pdu"] * 2 + ["bmc"] * 4 + ["switch"]
        assert [(one.name, one.pair, one.nodes) for one in demo.site.feeds] == [
            ("r1-A1", "r1-B1", ("gpu001", "gpu002", "gpu003", "gpu004")),
            ("r1-B1", "r1-A1", ("gpu001", "gpu002", "gpu003", "gpu004"))]
        assert {one.psus for one in demo.site.feeds[1].supplies} == {("PSU2",)}
        agent = demo.site.devices[0].access
        assert isinstance(agent, Agent)
        async with Pdu(agent) as pdu:
            assert (await pdu.read()).total("watts")
        target = demo.site.devices[2].access
        assert isinstance(target, RedfishTarget)
        bmc = Redfish(target, QUICK)
        assert (await bmc.read(detail=False)).watts.number
        await bmc.aclose()
        wrong = replace(agent, who=Community(Key("public")), timeout=0.1, retries=0)
        async with Client(wrong) as client:
            with pytest.raises(SnmpError, match="no answer"):
                await client.get([oid("1.3.6.1.2.1.1.1.0")])


async def test_the_command_watches_the_site_of_its_demo() -> None:
    args = Namespace(nodes=2, seed=7, interval=1.0)
    async with running(args, []) as plan:
        assert [(device.kind, device.of) for device in plan.site.devices] == [
            ("pdu", ""), ("pdu", ""), ("bmc", "gpu001"), ("bmc", "gpu002"), ("switch", "")]
        assert {feed.pdu for feed in plan.site.feeds} == {"pdu-r1-a1", "pdu-r1-b1"}


async def test_walks_gets_and_ends_come_in_order(tmp_path: Path) -> None:
    async with stage(tmp_path, 1) as demo:
        agent = demo.device("pdu-r1-a1").access
        assert isinstance(agent, Agent)
        async with Client(agent) as client:
            rows = (await client.walk((1, 3))).rows
            assert list(rows) == sorted(rows)
            assert len(rows) > 90
            some = list(rows)[::7]
            assert set(await client.get([*some, (1, 3, 9)])) == set(some)
            last = list(rows)[-1]
            assert await client.next([last, (1, 3)]) == [None, (next(iter(rows)), rows[next(iter(rows))])]


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_are_encoded_as_an_independent_library_does(value: int) -> None:
    assert ber.integer(value) == encoder.encode(univ.Integer(value))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=12))
def test_names_are_encoded_as_an_independent_library_does(tail: list[int]) -> None:
    name = (1, 3, *tail)
    assert ber.oid(name) == encoder.encode(univ.ObjectIdentifier(name))


ASKED = ber.cell(0x30, ber.integer(1) + ber.cell(4, b"word") + ber.cell(ber.GET_BULK, ber.integer(9) + ber.integer(0)
                 + ber.integer(50) + ber.cell(0x30, ber.row((1, 3), ber.cell(ber.NULL, b"")))))


@settings(max_examples=200)
@given(st.binary(max_size=60), st.integers(0, 40), st.integers(0, 255))
def test_an_agent_bears_whatever_comes(noise: bytes, place: int, octet: int) -> None:
    agent = SnmpAgent({(1, 3, 6, 1): ber.integer(5)}, b"word", lambda: None)
    assert agent.answer(ASKED)
    spoilt = bytearray(ASKED)
    spoilt[place % len(spoilt)] = octet
    for data in (noise, bytes(spoilt), ASKED[:place]):
        assert len(agent.answer(data)) <= 8_192


def test_an_answer_that_would_be_too_big_is_cut_or_refused() -> None:
    values = {(1, 3, number): ber.cell(ber.OCTETS, b"x" * 900) for number in range(40)}
    agent = SnmpAgent(values, b"word", lambda: None)
    bulk = agent.answer(ASKED)
    assert 7_000 < len(bulk) <= 8_192
    names = b"".join(ber.row((1, 3, number), ber.cell(ber.NULL, b"")) for number in range(20))
    head = ber.integer(7) + ber.integer(0) + ber.integer(0)
    get = ber.cell(0x30, ber.integer(1) + ber.cell(4, b"word") + ber.cell(ber.GET, head + ber.cell(0x30, names)))
    assert agent.answer(get) == ber.response(ber.request(get), (), 1)


# ---- how loads lie, and what the faults do to them -----------------------------------------------------------------


def test_feeds_run_at_a_third_and_one_of_a_pair_could_carry_both() -> None:
    cluster = Cluster(64)
    found = shares(cluster, range(60, 500, 4))
    busy = [number for number, one in enumerate(cluster.wiring.feeds)
            if all(cluster.plan.nodes[node].job >= 0 for node in one.nodes)]
    typical = np.median(found[:, busy], axis=0)
    assert typical.min() > 0.30
    assert found.max() < 0.38
    assert (found[:, 0::2] + found[:, 1::2]).max() < 0.8
    assert found.min() > 0.1


def test_power_is_the_same_for_the_same_seed_whoever_looks_when() -> None:
    def life(moments: list[float]) -> list[object]:
        cluster = Cluster(8, 7, [parse("pdu-overload@gpu002:3")])
        for moment in moments:
            cluster.simulator.advance(moment)
        return [cluster.power.bank_amps.tolist(), cluster.switches.up_out.tolist(), cluster.power.kwh.tolist()]

    assert life([30.0]) == life([0.4, 3.0, 11.1, 30.0])
    assert life([30.0]) != life([29.0])


def test_an_overloaded_feed_climbs_steadily_from_warning_to_critical_to_its_rating() -> None:
    cluster = Cluster(16, 7, [parse("pdu-overload@gpu002:60")])
    moments = np.arange(60.0, 420.0, 5.0)
    found = shares(cluster, moments)
    climbing, other = found[:, feed(cluster, "r1-A1")], found[:, feed(cluster, "r1-B1")]
    times = [float(moments[np.argmax(climbing >= limit)]) - 60.0 for limit in (0.8, 0.875, 1.0)]
    assert 180 < times[0] < times[1] - 15 < times[2] - 50
    assert 240 < times[2] < 300
    assert climbing[-1] == pytest.approx(1.08, abs=0.02)
    assert other.max() < 0.38
    # A forecast half-way is right about when the rating is reached.
    half = (moments >= 100.0) & (moments <= 220.0)
    said = power.forecast(moments[half], climbing[half] * RATING_AMPS, RATING_AMPS)
    assert said.seconds == pytest.approx(times[2] + 60.0 - 220.0, abs=12.0)
    assert said.confidence > 0.99


async def test_a_lost_feed_reads_zero_and_the_other_carries_all(tmp_path: Path) -> None:
    async with stage(tmp_path, 8, "feed-loss@gpu002:30") as demo:
        demo.at = 29.0
        before = [await demo.pdu(name) for name in ("pdu-r1-a1", "pdu-r1-b1")]
        demo.at = 40.0
        after = [await demo.pdu(name) for name in ("pdu-r1-a1", "pdu-r1-b1")]
        amps = [[reading.of("phase")[0].amps or 0.0 for reading in (*before, *after)]][0]
        assert amps[2] == 0.0
        assert [part.volts for part in after[0].of("phase")] == [0.0] * 3
        assert power.feed_event(amps[0], amps[2], RATING_AMPS, other_before=amps[1], other_now=amps[3]) == "feed lost"
        bmc = await demo.bmc("gpu002")
        assert [psu.state for psu in bmc.psus] == [PsuState.AC_LOST, PsuState.OK]
        assert bmc.psu_redundancy is RedundancyState.LOST
        assert bmc.host_power == "on"
        assert list(departures(demo.cluster)) == []


async def test_a_breaker_without_a_pair_takes_its_nodes_with_it(tmp_path: Path) -> None:
    async with stage(tmp_path, 16, "breaker-trip@gpu006:30") as demo:
        lone = next(one for one in demo.site.feeds if one.name == "r1-A2")
        assert (lone.pair, lone.nodes) == ("", ("gpu005", "gpu006", "gpu007", "gpu008"))
        assert {one.psus for one in lone.supplies} == {("PSU1", "PSU2")}
        assert "r1-B2" not in {one.name for one in demo.site.feeds}
        demo.at = 29.0
        before = await demo.pdu("pdu-r1-a2")
        share = (before.of("phase")[0].amps or 0.0) / RATING_AMPS
        assert 0.5 < share < 0.8
        demo.at = 31.0
        after = await demo.pdu("pdu-r1-a2")
        assert after.total("watts") == 0
        event = power.feed_event(share * RATING_AMPS, after.of("phase")[0].amps or 0.0, RATING_AMPS, volts=0.0, nodes_lost=4)
        assert event == "breaker tripped"
        assert sorted(departures(demo.cluster)) == [(30.0, number) for number in (4, 5, 6, 7)]
        demo.devices.cut()
        with pytest.raises(BmcFailure) as gone:
            await demo.bmc("gpu006")
        assert gone.value.state is BmcState.NOT_ANSWERING
        assert (await demo.bmc("gpu001")).watts.number


async def test_a_hung_bmc_takes_the_request_and_says_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, 2, "bmc-hang@gpu001:5") as demo:
        demo.at = 4.0
        assert (await demo.bmc("gpu001")).watts.number
        demo.at = 6.0
        demo.now()
        began = asyncio.get_running_loop().time()
        with pytest.raises(BmcFailure) as hung:
            await demo.bmc("gpu001")
        assert hung.value.state is BmcState.NOT_ANSWERING
        assert asyncio.get_running_loop().time() - began > 0.9
        assert (await demo.bmc("gpu002")).watts.number


async def test_a_failed_supply_is_told_by_the_bmc_and_missing_on_its_feed(tmp_path: Path) -> None:
    async with stage(tmp_path, 8, "psu-fail@gpu003:30") as demo:
        side = demo.cluster.faults[0].device % 2
        demo.at = 29.0
        before = await demo.bmc("gpu003")
        fed = demo.cluster.power.bank_watts.sum(axis=(1, 2))
        demo.at = 40.0
        after = await demo.bmc("gpu003")
        now = demo.cluster.power.bank_watts.sum(axis=(1, 2))
    assert [psu.state for psu in after.psus] == [PsuState.FAILED if n == side else PsuState.OK for n in range(2)]
    assert after.psus[side].input_watts.number == 0
    assert (after.psus[side].input_volts.number or 0) > 220
    assert after.psu_redundancy is RedundancyState.LOST
    assert after.psus[1 - side].input_watts.number == pytest.approx(before.watts.number, rel=0.3)
    assert now[side] < fed[side] * 0.85 < fed[1 - side] < now[1 - side] * 0.95


async def test_a_node_that_is_taken_down_leaves_a_bmc_that_says_so(tmp_path: Path) -> None:
    async with stage(tmp_path, 4, "node-down@gpu002:5") as demo:
        demo.at = 20.0
        reading = await demo.bmc("gpu002")
        assert reading.host_power == "off"
        assert (reading.watts.number or 0) < 100


def wide_job(cluster: Cluster) -> int:
    """A job that stands on two leaves."""
    leaves: dict[int, set[str]] = {}
    for node in cluster.plan.nodes:
        leaves.setdefault(node.job, set()).add(node.leaf)
    return next(job for job, hung in leaves.items() if job >= 0 and len(hung) > 1)


def test_a_ring_sends_each_nodes_bytes_to_the_next_rank() -> None:
    cluster = Cluster(64)
    cluster.simulator.advance(30.0)
    job = wide_job(cluster)
    order = cluster.traffic.order(job)
    nodes = cluster.plan.nodes
    racks, leaves = {one.name: one.rack for one in nodes}, {one.name: frozenset([one.leaf]) for one in nodes}
    flows = [one for one in cluster.traffic.flows() if one[0] in {nodes[number].name for number in order}]
    assert len(flows) == len(order)
    assert [flow[2] for flow in flows] == pytest.approx([cluster.simulator.flow[order[0]] * RAILS] * len(flows))
    want = ring([nodes[number].name for number in order], racks).ratio
    assert rack_share(flows, racks).ratio == pytest.approx(want)
    assert 0 < (spine_share(flows, leaves).ratio or 0) < 0.3
    assert cluster.traffic.matrix().sum() == pytest.approx(sum(flow[2] for flow in cluster.traffic.flows()))


def test_peers_have_exchanged_what_the_rings_carried_and_an_incast_is_slow() -> None:
    cluster = Cluster(32, 7, [parse("incast:40")])
    target = cluster.faults[0].node
    total = np.zeros((32, 32))
    for step in range(1, 241):
        cluster.simulator.advance(step * 0.25)
        total += cluster.traffic.matrix() * 0.25
        if step == 159:
            calm = [one.rtt_seconds for one in cluster.traffic.peers(target)]
    for node in (target, (target + 1) % 32):
        peers = cluster.traffic.peers(node)
        assert [one.sent_bytes for one in peers] == pytest.approx([total[node, one.node] for one in peers])
        assert [one.received_bytes for one in peers] == pytest.approx([total[one.node, node] for one in peers])
        assert sum(one.sent_bytes + one.received_bytes for one in peers) == pytest.approx(total[node].sum() + total[:, node].sum())
    job = [number for number, one in enumerate(cluster.plan.nodes) if one.job == cluster.plan.nodes[target].job]
    assert len(calm) == len(job) - 1  # before and behind it in the ring, and those that send it a little
    assert max(calm) < 0.0003
    assert min(one.rtt_seconds for one in cluster.traffic.peers(target)) > 0.003


def test_a_bad_rank_order_sends_everything_across_racks_and_leaves() -> None:
    cluster = Cluster(64, 7, [parse("cross-rack:10")])
    nodes = cluster.plan.nodes
    racks, leaves = {one.name: one.rack for one in nodes}, {one.name: frozenset([one.leaf]) for one in nodes}
    job = nodes[cluster.faults[0].node].job
    members = {one.name for one in nodes if one.job == job}
    found = []
    for moment in (9.0, 30.0):
        cluster.simulator.advance(moment)
        flows = [one for one in cluster.traffic.flows() if one[0] in members]
        found.append((rack_share(flows, racks).ratio or 0, spine_share(flows, leaves).ratio or 0))
    assert found[0][0] < 0.3
    assert found[1][0] > 0.9  # its nodes are not spread evenly, so a hop or two may stay
    assert found[1][1] > 0.5


async def test_incast_fills_one_port_and_a_dead_uplink_stops_while_others_take_over(tmp_path: Path) -> None:
    async with stage(tmp_path, 32, "incast:30", "uplink-down:30") as demo:
        target = demo.cluster.faults[0].node
        node = demo.cluster.plan.nodes[target]
        dead = demo.cluster.plan.nodes[demo.cluster.faults[1].node].leaf
        looks = {}
        for demo.at in (20.0, 29.0, 40.0, 50.0):
            looks[demo.at] = {leaf: await demo.look(leaf) for leaf in {node.leaf, dead}}
    port = next(one for one in looks[50.0][node.leaf].switch.interfaces.values() if node.name in one.alias)
    before = ifmib.rates(looks[20.0][node.leaf], looks[29.0][node.leaf], port.index)[1].value
    now = ifmib.rates(looks[40.0][node.leaf], looks[50.0][node.leaf], port.index)[1].value
    assert before is not None
    assert now is not None
    assert before < 0.9 * now
    assert 0.95 * RAILS * 50e9 < now < RAILS * 50e9
    assert (port.out_discards or 0) > 1000
    others = [one for one in looks[50.0][node.leaf].switch.interfaces.values() if one.index != port.index]
    assert all(not one.out_discards for one in others)
    first, last = looks[40.0][dead], looks[50.0][dead]
    uplinks = [one for one in last.switch.data_ports() if one.index > 100]
    down = [one for one in uplinks if not one.up]
    assert len(down) == 1
    assert all(one.up for one in looks[20.0][dead].switch.data_ports())
    assert ifmib.rates(first, last, down[0].index)[1].value == 0
    assert all((ifmib.rates(first, last, one.index)[1].value or 0) > 1e6 for one in uplinks if one.up)


@pytest.mark.parametrize("name", ["cross-rack", "incast"])
def test_a_fabric_fault_where_a_job_stays_in_its_rack_is_refused(name: str) -> None:
    cluster = Cluster(64)
    idle = next(node.name for node in cluster.plan.nodes if node.job < 0)
    with pytest.raises(FaultError, match=f"--fault {name}@{idle}: the job of {idle} does not leave its rack; take gpu"):
        Cluster(64, 7, [parse(f"{name}@{idle}")])
