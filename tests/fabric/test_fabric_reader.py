"""A fabric read at an interval: the real tools behind a real sshd, and every way in which they may fail it."""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.model import Why
from clustertop.poll.switch_readers import over_ssh
from clustertop.sources.fabric import Output
from clustertop.sources.fabric_reader import AGAIN_SECONDS, WALK_SECONDS, Adapter, FabricError, FabricReader
from clustertop.wire.ssh import Dialer
from clustertop.wire.ssh.run import PATH, SshRunner
from fabric.sim import TWO_LEVELS, Fabric, running
from leafports import by_leaf
from sshd import running as sshd_running
from traffic.shared import needs_shared, sample

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from clustertop.sources.fabric import Runner
    from clustertop.sources.switch import PortReading, SwitchReading

TOR_A, TOR_B, SPINE = (f"S-0000000000aa000{number}" for number in (1, 2, 9))
BASE = 10**15


class Steps:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 500.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1.7e9 + self.now


def by_name(reading: SwitchReading) -> dict[str, PortReading]:
    return {port.name: port for port in reading.ports}


# ---- the real tools


@asynccontextmanager
async def logged_in(sim: Fabric, folder: Path) -> AsyncIterator[SshRunner]:
    """A runner on a host that sees *sim*: there the tools are behind scripts that preload the simulator's library."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("ibnetdiscover", "perfquery"):
        real = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
        environ = shlex.join(f"{key}={value}" for key, value in sim.environ.items())
        (tools / name).write_text(f'#!/bin/sh\nexec env {environ} {real} "$@"\n')
        (tools / name).chmod(0o755)
    with sshd_running(folder / "sshd") as server:
        dialer = Dialer(server.settings())
        runner = SshRunner(server.node("head1"), dialer, f"{tools}:{PATH}")
        try:
            yield runner
        finally:
            await runner.aclose()
            await dialer.close()


@pytest.mark.sshd
async def test_the_shares_of_a_simulated_fabric_over_ssh(tmp_path: Path) -> None:
    clock = Steps()
    with running(TWO_LEVELS, "n1 mlx5_0", tmp_path) as sim:
        async with logged_in(sim, tmp_path) as runner:
            reader = FabricReader(over_ssh(runner), clock=clock)
            for switch in (TOR_A, TOR_B):
                for port in (1, 2, 7):
                    sim.set(switch, port, BASE, BASE)
            first = await reader.read()
            clock.now += 10
            sim.set(TOR_A, 1, BASE + 750 * 10**6, BASE)
            sim.set(TOR_A, 2, BASE + 250 * 10**6, BASE)
            sim.set(TOR_A, 7, BASE, BASE + 250 * 10**6)
            sim.set(TOR_B, 1, BASE + 125 * 10**6, BASE)
            second = await reader.read()
            clock.now += 10
            sim.set(TOR_A, 1, 5, 5)  # somebody reset them
            third = await reader.read()
    assert first.notes == second.notes == ()
    assert {one.into.why for one in first.ports} == {Why.FIRST_READING}
    found = by_leaf(second)
    assert set(found) == {"torA", "torB"}
    assert found["torA"].host_in == pytest.approx(400e6, rel=1e-3)
    assert found["torA"].ratio == pytest.approx(0.25, rel=1e-3)
    assert found["torB"].ratio == pytest.approx(0, abs=1e-3)
    ports = by_name(second)
    assert {name: (one.key, one.role, one.peer, one.up) for name, one in ports.items()} == {
        "torA/1": ("0000000000aa0001/1", "host", "n1 mlx5_0", True), "torA/2": ("0000000000aa0001/2", "host", "n2 mlx5_0", True),
        "torA/7": ("0000000000aa0001/7", "uplink", "spine", True), "torB/1": ("0000000000aa0002/1", "host", "n3 mlx5_0", True),
        "torB/2": ("0000000000aa0002/2", "host", "n4 mlx5_0", True), "torB/7": ("0000000000aa0002/7", "uplink", "spine", True)}
    assert ports["torA/1"].in_bytes == pytest.approx(4 * (BASE + 750 * 10**6), rel=1e-9)
    assert by_name(third)["torA/1"].into.why == Why.RESET
    assert by_name(third)["torA/2"].into.value == pytest.approx(0, abs=1e5)


@needs_shared
@pytest.mark.sshd
async def test_a_sample_fabric_over_ssh(tmp_path: Path) -> None:
    clock, leaf = Steps(), "S-f200000000010010"
    with running(sample("rdma/ibsim-run/ibnetdiscover.txt"), "node101 mlx5_0", tmp_path) as sim:
        async with logged_in(sim, tmp_path) as runner:
            reader = FabricReader(over_ssh(runner), clock=clock)
            before = await reader.read()
            ports = {one.name: one for one in before.ports if one.key.startswith("f200000000010010/")}
            hosts = [one for one in ports.values() if one.role == "host"]
            uplinks = [one for one in ports.values() if one.role == "uplink"]
            for one in ports.values():
                sim.set(leaf, int(one.key.rpartition("/")[2]), BASE, BASE)
            await reader.read()
            clock.now += 20
            for one in ports.values():
                number = int(one.key.rpartition("/")[2])
                sim.set(leaf, number, BASE + (400 * 10**6 if one.role == "host" else 0), BASE + 10**8 * (one.role == "uplink"))
            after = await reader.read()
    assert hosts
    assert uplinks
    name = hosts[0].leaf
    assert by_leaf(after)[name].host_in == pytest.approx(80e6 * len(hosts), rel=1e-2)
    assert by_leaf(after)[name].ratio == pytest.approx(0.25 * len(uplinks) / len(hosts), rel=1e-2)


async def test_d8_a_leaf_that_is_cut_off_is_unknown_then_walked_again_and_not_called_down(tmp_path: Path) -> None:
    """D8 b: the other leaf goes on."""
    clock = Steps()
    with running(TWO_LEVELS, "n1 mlx5_0", tmp_path) as sim:
        reader = FabricReader(sim.run, clock=clock)
        await reader.read()
        clock.now += 20
        sim.tell(f'Unlink "{TOR_B}"[7]')
        second = await reader.read()
        clock.now += AGAIN_SECONDS
        third = await reader.read()
        sim.tell(f'Unlink "{TOR_A}"[2]')
        clock.now += AGAIN_SECONDS
        await reader.read()  # a port's cable is gone; its counters are still there
        clock.now += WALK_SECONDS
        last = await reader.read()
    assert "22" in second.notes[0]
    assert by_name(second)["torA/1"].into.value is not None
    assert (by_name(second)["torB/1"].into.value, by_name(second)["torB/1"].into.why) == (None, Why.UNREADABLE)
    assert by_leaf(second)["torB"].why.startswith("no rate for")
    ports = by_name(third)
    assert {name: one.up for name, one in ports.items()} == {
        "torA/1": True, "torA/2": True, "torA/7": True, "torB/1": None, "torB/2": None, "torB/7": None}
    assert by_name(last)["torA/2"].up is False
    assert (by_name(last)["torA/2"].role, by_name(last)["torA/2"].into.value) == ("host", None)


# ---- tools of ours


def counters(lid: int, ports: Sequence[int], words: int, discards: int = 0) -> str:
    return "".join(
        f"# Port extended counters: Lid {lid} port {port} (CapMask: 0x5300)\nPortSelect:......................{port}\n"
        f"PortXmitData:....................{words}\nPortRcvData:.....................{words}\nSymbolErrorCounter:..............3\n"
        f"PortRcvErrors:...................4\nPortXmitDiscards:................{discards}\n" for port in ports)


class Tools:
    """What ibnetdiscover and perfquery of a host print, and how they were asked."""

    def __init__(self, clock: Steps) -> None:
        self.clock = clock
        self.net = TWO_LEVELS
        self.words = 10**6
        self.discards = 0
        self.silent: set[int] = set()
        self.asked: list[list[str]] = []
        self.takes = 0.0
        self.why = ""

    async def __call__(self, argv: Sequence[str], seconds: float) -> Output:
        self.asked.append(list(argv))
        self.clock.now += self.takes
        if self.why:
            return Output("", why=self.why)
        if argv[0] == "ibnetdiscover":
            return Output(self.net, status=0)
        lid, ports = int(argv[-2]), [int(port) for port in argv[-1].split(",")]
        if lid in self.silent:
            return Output("", f"ibwarn: [7] _do_madrpc: recv failed: Connection timed out (Lid {lid})", 255)
        return Output(counters(lid, ports, self.words, self.discards), status=0)

    def walks(self) -> int:
        return sum(argv[0] == "ibnetdiscover" for argv in self.asked)


async def test_discards_errors_and_the_adapter_that_asks() -> None:
    clock = Steps()
    tools = Tools(clock)
    reader = FabricReader(tools, Adapter("mlx5_3", 2), clock)
    await reader.read()
    clock.now += 10
    tools.words, tools.discards = tools.words + 2500, 60
    one = by_name(await reader.read())["torA/1"]
    assert (one.into.value, one.discards.total, one.discards.rate.value) == (1000, 60, 6)
    assert (one.errors.total, one.errors.rate.value) == (7, 0)
    assert (one.pauses.total, one.pauses.rate.why) == (None, Why.NOT_PROVIDED)
    assert all(argv[1:5] == ["-C", "mlx5_3", "-P", "2"] for argv in tools.asked)
    assert (tools.walks(), len(tools.asked)) == (1, 5)


async def test_a_counter_at_its_end_and_a_rate_that_no_cable_carries_are_unknown() -> None:
    clock = Steps()
    tools = Tools(clock)
    tools.net = TWO_LEVELS.replace('"n1 mlx5_0"\n[2]', '"n1 mlx5_0" lid 3 4xNDR\n[2]', 1)
    reader = FabricReader(tools, clock=clock)
    tools.words = 0
    await reader.read()
    clock.now += 10
    tools.words = 10**15
    fast = by_name(await reader.read())
    tools.words = 2**64 - 1
    clock.now += 10
    full = by_name(await reader.read())
    assert fast["torA/1"].bits_per_second == 400e9
    assert fast["torA/1"].into.value is None
    assert fast["torA/2"].into.value is not None  # its speed is not known
    assert (full["torA/1"].in_bytes, full["torA/1"].into.why) == (None, Why.SATURATED)


async def test_the_walk_is_made_at_first_now_and_then_and_when_something_is_missing() -> None:
    clock = Steps()
    tools = Tools(clock)
    reader = FabricReader(tools, clock=clock)
    walks = []
    for step in range(40):
        tools.silent = {22} if 3 <= step < 10 else set()
        await reader.read()
        walks.append(tools.walks())
        clock.now += 20
    assert walks[3] == 1
    # While it is silent no more than one a minute, afterwards one in five minutes.
    assert walks[10] <= 1 + 3
    assert walks[-1] <= walks[10] + 2


async def test_only_so_many_ports_are_asked_a_turn_and_all_have_their_turn() -> None:
    clock = Steps()
    tools = Tools(clock)
    reader = FabricReader(tools, clock=clock, ports_per_turn=4)
    for step in range(4):
        reading = await reader.read()
        tools.words += 2500
        clock.now += 10
        if step == 1:  # before that, one switch has not been read at all
            assert reading.at == 500
    assert [argv[-2] for argv in tools.asked if argv[0] == "perfquery"] == ["21", "22", "21", "22"]
    assert {one.into.value for one in reading.ports} == {1000}
    assert reading.notes == ("1 of 2 switches are left for the next turn",)
    assert reading.at == clock.now - 20


async def test_a_slow_fabric_goes_on_with_the_rest_in_the_next_turn() -> None:
    clock = Steps()
    tools = Tools(clock)
    tools.takes = 40
    reader = FabricReader(tools, clock=clock, count_seconds=30)
    for _ in range(3):
        reading = await reader.read()
    assert [argv[-2] for argv in tools.asked if argv[0] == "perfquery"] == ["21", "22", "21"]
    assert "left for the next turn" in reading.notes[0]


@pytest.mark.parametrize(("wrong", "words"), [
    ({"why": "ibnetdiscover cannot be run: no such file"}, "ibnetdiscover cannot be run: no such file"),
    ({"net": ""}, "ibnetdiscover printed no fabric"),
    ({"net": "\n".join(TWO_LEVELS.splitlines()[-4:])}, "no switch with hosts"),
    ({"silent": {21, 22}}, "no leaf switch answers: LID 21"),
])
async def test_a_fabric_that_cannot_be_read_is_a_sentence(wrong: dict[str, Any], words: str) -> None:
    clock = Steps()
    tools = Tools(clock)
    for name, value in wrong.items():
        setattr(tools, name, value)
    with pytest.raises(FabricError, match=words):
        await FabricReader(tools, clock=clock).read()


async def test_half_a_walk_calls_no_port_down() -> None:
    clock = Steps()
    tools = Tools(clock)
    reader = FabricReader(tools, clock=clock)
    await reader.read()
    clock.now += WALK_SECONDS
    tools.net = "\n".join(line for line in TWO_LEVELS.splitlines() if "n2 mlx5_0" not in line and "[2]" not in line)

    async def cut(argv: Sequence[str], seconds: float) -> Output:
        output = await tools(argv, seconds)
        return Output(output.text, why="stopped after 5 s") if argv[0] == "ibnetdiscover" else output

    runner: Runner = cut
    reader._bare = runner
    reading = await reader.read()
    assert "the fabric may not be whole: stopped after 5 s" in reading.notes[0]
    assert by_name(reading)["torA/2"].up is None


async def test_a_walk_that_fails_later_leaves_the_fabric_as_it_was_and_is_tried_again_in_a_minute() -> None:
    clock = Steps()
    tools = Tools(clock)
    reader = FabricReader(tools, clock=clock)
    await reader.read()
    tools.net = ""
    clock.now += WALK_SECONDS
    reading = await reader.read()
    assert reading.notes == ("the fabric could not be walked again: ibnetdiscover printed no fabric",)
    assert by_name(reading)["torA/1"].into.value == 0
    clock.now += 20
    await reader.read()
    assert tools.walks() == 2
    tools.net = TWO_LEVELS
    clock.now += AGAIN_SECONDS
    assert (await reader.read()).notes == ()
    assert tools.walks() == 3
