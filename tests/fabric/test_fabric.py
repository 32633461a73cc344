"""A fabric behind the real ibnetdiscover, perfquery and ibqueryerrors, and their recorded output: case D8."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals.ibcounters import complaints, parse_ibqueryerrors, parse_perfquery
from clustertop.sources import topology_ib
from clustertop.sources.fabric import Output, Runner, count_ports, discover, errors, leaf_ports_by_lid, run_here
from clustertop.sources.fabric_reader import FabricReader
from clustertop.topology import merge
from fabric.sim import TWO_LEVELS, running
from leafports import by_leaf
from traffic.shared import needs_shared, sample

if TYPE_CHECKING:
    from collections.abc import Sequence

TOR_A, TOR_B, SPINE = (f"S-0000000000aa000{number}" for number in (1, 2, 9))


class Steps:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 500.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.7e9 + self.now


# ---- the real tools


async def test_the_share_of_every_leaf_of_a_simulated_fabric(tmp_path: Path) -> None:
    base = 10**15  # words of 4 octets, far beyond what 32 bits hold

    def after(megabytes_per_second: int) -> int:
        return base + megabytes_per_second * 10**6 * 10 // 4

    with running(TWO_LEVELS, "n1 mlx5_0", tmp_path) as sim:
        _, look, why = await discover(sim.run)
        assert (why, look.unreachable) == ("", [])
        clock = Steps()
        reader = FabricReader(sim.run, clock=clock)
        for switch in (TOR_A, TOR_B):
            for port in (1, 2, 7):
                sim.set(switch, port, base, base)
        first = await reader.read()
        clock.now += 10
        sim.set(TOR_A, 1, after(300), base)
        sim.set(TOR_A, 2, after(100), base)
        sim.set(TOR_A, 7, base, after(100))
        sim.set(TOR_B, 1, after(50), base)
        second = await reader.read()
    assert second.at - first.at == 10
    assert (first.notes, second.notes) == ((), ())
    shares = by_leaf(second)
    assert set(shares) == {"torA", "torB"}
    # The tools' own packets are counted as well: a few kB.
    assert shares["torA"].host_in == pytest.approx(400e6, rel=1e-3)
    assert shares["torA"].ratio == pytest.approx(0.25, rel=1e-3)
    assert shares["torA"].loads["torA/7"] == pytest.approx(0.1, rel=1e-3)
    assert shares["torB"].ratio == pytest.approx(0, abs=1e-3)
    assert by_leaf(first)["torA"].ratio is None
    topology = merge((), [topology_ib.read(TWO_LEVELS)])
    assert topology.leaves == {"n1": {"torA"}, "n2": {"torA"}, "n3": {"torB"}, "n4": {"torB"}}


@needs_shared
async def test_a_sample_fabric_in_the_simulator(tmp_path: Path) -> None:
    text = sample("rdma/ibsim-run/ibnetdiscover.txt")
    with running(text, "node101 mlx5_0", tmp_path) as sim:
        fabric, _, why = await discover(sim.run)
        assert why == ""
        for port, words in ((1, 8 * 10**9), (2, 0), (3, 2 * 10**9), (4, 0), (5, 10**9), (6, 10**9)):
            sim.set("S-f200000000010010", port, words, words if port > 4 else 0)
        counted = await count_ports(sim.run, leaf_ports_by_lid(fabric), time.monotonic)
    assert set(fabric.devices) == set(topology_ib.parse(text).devices)
    lid = fabric.devices["S-f200000000010010"].lid
    assert lid is not None
    octets = {port: one.bytes("PortRcvData") for (of, port), one in counted.ports.items() if of == lid}
    assert octets == {port: pytest.approx(4 * words, abs=10**6) for port, words in
                      ((1, 8 * 10**9), (2, 0), (3, 2 * 10**9), (4, 0), (5, 10**9), (6, 10**9))}


async def test_d8_what_answers_is_used_and_who_does_not_is_listed(tmp_path: Path) -> None:
    """D8 b: a leaf is cut off after discovery; the other one's counters come all the same."""
    with running(TWO_LEVELS, "n1 mlx5_0", tmp_path) as sim:
        fabric, _, _ = await discover(sim.run)
        sim.tell(f'Unlink "{TOR_B}"[7]')
        counted = await count_ports(sim.run, leaf_ports_by_lid(fabric), time.monotonic)
    assert {lid for lid, _ in counted.ports} == {21}
    assert counted.unreachable == (22,)
    assert any("22" in note for note in counted.notes)


async def test_d8_discovery_goes_on_past_a_switch_that_does_not_answer(tmp_path: Path) -> None:
    """D8 b, its kind: the tool complains of a route, not of a LID."""
    with running(TWO_LEVELS, "n1 mlx5_0", tmp_path) as sim:
        sim.tell(f'Error "{SPINE}" 100')
        fabric, look, why = await discover(sim.run)
    assert why == ""
    assert "torA" in fabric.names().values()
    assert "torB" not in fabric.names().values()
    assert look.unreachable_paths
    assert "Connection timed out" in look.messages[0]


async def lid(run: Runner, description: str) -> int | None:
    fabric, _, _ = await discover(run)
    return next(one.lid for one in fabric.devices.values() if one.description == description)


async def test_d8_errors_of_the_whole_fabric_with_a_host_switched_off(tmp_path: Path) -> None:
    """D8 b: ibqueryerrors asks everyone; a host that is off costs only itself."""
    with running(TWO_LEVELS, "n1 mlx5_0", tmp_path, manager="n2 mlx5_0") as sim:
        sim.tell(f'PerformanceSet "{TOR_A}"[2] PortCounters.LinkDownedCounter=255', "has been set to 255")
        extended_counters, lid_of_n3 = 29, await lid(sim.run, "n3 mlx5_0")
        sim.tell(f'Error "H-0000000000bb0030" 100 {extended_counters}')
        sim.tell('Error "H-0000000000bb0040" 100')
        look = await errors(sim.run)
    found = {(one.guid, one.port): one for one in look.ports}
    one = found[0xAA0001, 2]
    assert one.errors == {"LinkDownedCounter": 255}
    assert one.saturated("LinkDownedCounter")
    assert look.unreachable == [lid_of_n3]
    assert len(look.unreachable_paths) == 1  # n4 does not even say its LID
    assert any("n3 mlx5_0" in message for message in look.messages)


# ---- runs that go wrong


def printed(text: str, complaint: str = "", status: int | None = 0, why: str = "") -> object:
    async def run(argv: Sequence[str], seconds: float) -> Output:
        return Output(text, complaint, status, why=why)

    return run


async def test_d8_a_run_that_is_stopped_gives_what_it_printed() -> None:
    """D8 b: half a fabric is half a fabric, and said to be."""
    half = TWO_LEVELS[: TWO_LEVELS.index("Ca	1")]
    fabric, _, why = await discover(printed(half, status=None, why="stopped after 5 s"))  # type: ignore[arg-type]
    assert (len(fabric.cables), why) == (8, "stopped after 5 s")
    assert set(merge((), [topology_ib.read(half)]).places) == {"n1", "n2", "n3", "n4"}


@pytest.mark.parametrize(("text", "status", "why"), [
    ("", 1, "ibnetdiscover ended with status 1"), ("", 0, "ibnetdiscover printed no fabric"), (TWO_LEVELS, 0, "")])
async def test_why_a_fabric_is_not_whole(text: str, status: int, why: str) -> None:
    assert (await discover(printed(text, status=status)))[2] == why  # type: ignore[arg-type]


async def test_a_host_without_infiniband_says_so() -> None:
    run = printed("ibnetdiscover: iberror: failed: discover failed\n",
                  "ibwarn: [7] mad_rpc_open_port: can't open UMAD port ((null):0)\n", status=255)
    _, _, why = await discover(run)  # type: ignore[arg-type]
    assert why == "ibnetdiscover ended with status 255: ibwarn: [7] mad_rpc_open_port: can't open UMAD port ((null):0)"


async def test_switches_that_are_left_when_the_time_is_over_are_said() -> None:
    fabric = topology_ib.parse(TWO_LEVELS)
    counted = await count_ports(printed(""), leaf_ports_by_lid(fabric), time.monotonic, seconds=0)  # type: ignore[arg-type]
    assert (counted.ports, counted.notes) == ({}, ("not all switches were asked within 0 s",))


async def test_a_command_is_stopped_at_its_deadline_and_its_output_kept() -> None:
    async with asyncio.timeout(60):
        output = await run_here(["sh", "-c", "echo begun; exec sleep 600"], 1.5)
    assert (output.text, output.status, output.why) == ("begun\n", None, "stopped after 1.5 s")


async def test_a_command_that_does_not_end_on_term_is_killed_with_its_children() -> None:
    output = await run_here(["sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait"], 1.5)
    assert output.status is None
    child = Path("/proc", output.text.strip(), "stat")
    for _ in range(1200):  # gone, or dead and waiting for init to take note
        if not child.exists() or child.read_text("ascii").rpartition(")")[2].split()[0] == "Z":
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{output.text.strip()} still runs")


async def test_a_command_that_is_not_there_is_a_sentence() -> None:
    output = await run_here(["/nonexistent/ibnetdiscover"], 5)
    assert (output.status, output.why) == (None, "/nonexistent/ibnetdiscover cannot be run: No such file or directory")


async def test_output_beyond_the_limit_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustertop.sources.fabric.MAX_OUTPUT", 1000)
    output = await run_here([sys.executable, "-c", "print('x' * 300000)"], 30)
    assert (len(output.text), output.cut, output.status) == (1000, True, 0)


# ---- recorded output


@needs_shared
@pytest.mark.parametrize(("path", "ports", "want"), [
    ("treydock/perfquery-sw-a.txt", [(2052, 1)], {"LinkDownedCounter": 1}),
    ("treydock/perfquery-sw-b.txt", [(1719, 1), (1719, 2)], {}),
    ("treydock/perfquery-hca-a.txt", [(133, 1)], {}),
    ("treydock/perfquery-rcv-error-sw-b-1.txt", [], {}),
    ("ibsim-run/perfquery-saturated.txt", [(4, 1)], {"SymbolErrorCounter": 65535, "LinkDownedCounter": 3}),
])
def test_sample_perfquery(path: str, ports: list[tuple[int, int]], want: dict[str, int]) -> None:
    found = parse_perfquery(sample(f"rdma/{path}"))
    assert [(one.lid, one.port) for one in found] == ports
    assert all(one.errors == want for one in found)


@needs_shared
def test_sample_perfquery_in_detail() -> None:
    (one,) = parse_perfquery(sample("rdma/treydock/perfquery-sw-a.txt"))
    assert one.bytes("PortXmitData") == 178791657177235 * 4
    assert {name: one.values[name] for name in ("PortXmitDiscards", "PortRcvSwitchRelayErrors", "PortXmitWait")} == {
        "PortXmitDiscards": 20046, "PortRcvSwitchRelayErrors": 7, "PortXmitWait": 41864608}
    (full,) = parse_perfquery(sample("rdma/ibsim-run/perfquery-saturated.txt"))
    assert full.bytes("PortXmitData") is None
    assert {name for name in full.values if full.saturated(name)} == {
        "SymbolErrorCounter", "PortXmitData", "PortRcvData", "PortXmitWait"}


@needs_shared
@pytest.mark.parametrize("name", ["ibqueryerrors.txt", "ibqueryerrors-r-data.txt"])
def test_sample_ibqueryerrors(name: str) -> None:
    found = {(one.guid, one.port): one for one in parse_ibqueryerrors(sample(f"rdma/ibsim-run/{name}"))}
    node101 = found[0xF200000000100111, 1]
    assert node101.errors == {"SymbolErrorCounter": 65535, "LinkDownedCounter": 3}
    assert node101.saturated("SymbolErrorCounter")
    assert node101.saturated("PortXmitWait")
    leaf01 = found[0xF200000000010010, 3]
    assert (leaf01.errors, leaf01.values["PortXmitDiscards"]) == ({"LinkDownedCounter": 255, "PortRcvErrors": 117}, 65535)
    assert leaf01.saturated("PortXmitDiscards")
    assert leaf01.saturated("LinkDownedCounter")
    assert found[0xF200000000010020, 2].errors == {"PortRcvRemotePhysicalErrors": 12}
    node202 = found[0xF200000000101311, 1]
    assert node202.errors == {"LinkErrorRecoveryCounter": 2, "ExcessiveBufferOverrunErrors": 15}
    assert node202.saturated("ExcessiveBufferOverrunErrors")
    if "data" in name:
        assert leaf01.bytes("PortXmitData") == 2664 * 4 == int(10.40625 * 1024)


def test_d8_complaints_name_lids_and_the_rest_is_data() -> None:
    """D8 b, on our own text of two hosts that are off."""
    look = complaints(
        "ibwarn: [77] mad_rpc: _do_madrpc failed; dport (Lid 45)\nibwarn: [77] _do_madrpc: recv failed: Connection timed out\n"
        "ibwarn: [77] mad_rpc: _do_madrpc failed; dport (Lid 46)\nibwarn: [77] mad_rpc: _do_madrpc failed; dport (Lid 45)\nall is well\n")
    assert look.unreachable == [45, 46]
    assert len(look.messages) == 4
    ports = parse_ibqueryerrors(
        'Errors for "n9 mlx5_0"\n   GUID 0xbb01 port ALL: [LinkDownedCounter == 9]\n   GUID 0xbb01 port 1: [LinkDownedCounter == 9]\n')
    assert [(one.guid, one.port, one.errors) for one in ports] == [(0xBB01, 1, {"LinkDownedCounter": 9})]


@given(st.text("# Portcunersxd:.0123456789GUID[]=ALL\n", max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for one in [*parse_perfquery(text), *parse_ibqueryerrors(text)]:
        assert one.errors is not None
    complaints(text)
