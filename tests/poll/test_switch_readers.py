"""Readers of switches and of the fabric: what a device does as a link state in words, and its ports as a part."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from pysnmp.proto.api import v2c

from clustertop.clock import SystemClock
from clustertop.model import LOCAL_HOST, LinkState, NodeInfo
from clustertop.places import Device, FabricHost, SshSwitch
from clustertop.poll.devices import Devices
from clustertop.poll.switch_readers import makers
from clustertop.poll.switch_ssh import Kept, interfaces
from clustertop.sources.secret import Secret
from clustertop.sources.snmp_target import SnmpTarget
from clustertop.wire.frame import Row, TablePart
from clustertop.wire.ssh import Dialer
from clustertop.wire.transport import PollSettings
from fabric.sim import TWO_LEVELS
from fabric.sim import running as fabric_running
from fleets import Remember, until
from netns import inside
from ports import free_port
from snmp_fake import Fake, fake, table
from sshd import running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clustertop.poll.readers import Reader

IF, IFX = (1, 3, 6, 1, 2, 1, 2, 2, 1), (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
NODES = [NodeInfo("gpu01"), NodeInfo("head1", "127.0.0.1")]


def made(device: Device, dialer: Dialer | None = None, interval: float = 10.0) -> Reader:
    def dialer_of(node: NodeInfo) -> Dialer:
        assert dialer is not None
        return dialer

    maker = makers(NODES, ("l7", "l8"), dialer_of)[device.kind]
    return maker(device, SystemClock(), random.Random(1), interval)


def switch() -> dict[Any, Any]:
    rows: dict[Any, Any] = {(1, 3, 6, 1, 2, 1, 1, 5, 0): b"leaf7", (1, 3, 6, 1, 2, 1, 1, 3, 0): v2c.TimeTicks(123456)}
    for index, name in ((1, b"swp1"), (2, b"swp2")):
        rows |= {(*IF, 2, index): name, (*IF, 3, index): 6, (*IF, 8, index): 1, (*IFX, 1, index): name,
                 (*IFX, 6, index): v2c.Counter64(1000 * index), (*IFX, 10, index): v2c.Counter64(5), (*IFX, 15, index): v2c.Gauge32(100_000)}
    return rows


def leaf7(agent: Fake, community: str, **more: Any) -> Device:
    access = SnmpTarget("127.0.0.1", community=Secret("file", community), port=agent.port, timeout=0.5, retries=0)
    return Device("leaf7", "switch", access, "127.0.0.1", leaf="l7", options={"uplinks": ("swp2",), "host_ports": ()}, **more)


@pytest.fixture
def community(tmp_path: Path) -> str:
    file = tmp_path / "community"
    file.write_text("hush-hush\n")
    file.chmod(0o600)
    return str(file)


async def test_a_switch_is_polled_as_the_configuration_names_it(community: str) -> None:
    async with fake(table(switch())) as agent:
        sink = Remember()
        async with Devices([leaf7(agent, community)], 5, sink, SystemClock(), make=lambda device, *more: made(device),
                           least_interval_seconds=0.1):
            await until(lambda: sink.count(5) >= 1, what=lambda: sink.events)
        assert agent.seen[0].community == "hush-hush"
    part = sink.frames[5][0].g["switch"]
    rows = part.tb["uplink"].r
    assert rows is not None
    assert [(row.k, row.a["name"], row.a["role"], row.a["leaf"]) for row in rows] == [
        ("1", "swp1", "host", "l7"), ("2", "swp2", "uplink", "l7")]
    assert LinkState.UP in sink.states(5)


async def test_a_silent_switch_is_unreachable_in_words_and_its_community_is_not_among_them(community: str) -> None:
    async with fake(lambda request: []) as agent:
        reader = made(leaf7(agent, community))
        told = await reader.read(0.0)
        await reader.aclose()
    assert (told.state, told.stage, dict(told.parts)) == (LinkState.UNREACHABLE, "snmp", {})
    assert told.reason.startswith("no answer from 127.0.0.1 since ")
    assert "hush" not in told.reason + repr(told)


async def test_a_secret_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    async with fake(table(switch())) as agent:
        reader = made(leaf7(agent, str(tmp_path / "none")))
        told = await reader.read(0.0)
        await reader.aclose()
        assert not agent.seen
    assert (told.state, told.stage) == (LinkState.AUTH_FAILED, "login")
    assert told.reason


@pytest.mark.parametrize("device", [Device("x", "switch", FabricHost()), Device("x", "fabric", SshSwitch("x"))])
def test_what_nothing_reads_is_refused(device: Device) -> None:
    with pytest.raises(ValueError, match=f"a {device.kind} is not read by"):
        made(device)


@pytest.mark.sshd
async def test_a_fabric_whose_host_has_no_tools_or_is_away(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        dialer = Dialer(server.settings())
        device = Device("fabric", "fabric", FabricHost("", "127.0.0.1", server.node().user, server.port), "127.0.0.1")
        reader = made(device, dialer)
        reader._runner._path = "/usr/bin:/bin"  # type: ignore[attr-defined] - where infiniband-diags are not
        told = await reader.read(0.0)
        await reader.aclose()
        assert (told.state, told.stage) == (LinkState.PROBE_FAILED, "answer")
        assert "ibnetdiscover" in told.reason
        away = made(Device("fabric", "fabric", FabricHost("head1")), Dialer(PollSettings(agent=False)))
        away._runner._node = NodeInfo("head1", "127.0.0.1", port=free_port())  # type: ignore[attr-defined]
        told = await away.read(0.0)
        await away.aclose()
        await dialer.close()
    assert (told.state, told.stage) == (LinkState.UNREACHABLE, "tcp")
    assert "refused" in told.reason


# ---- a switch that runs Linux

PORTS = """
mount -t sysfs none /sys
ip link set lo up
for port in 1 2 49 50; do
    ip link add swp$port type veth peer name far$port
    ip link set swp$port up
    ip link set far$port up
done
ip link add br0 type bridge
ip link set swp50 down
"""
LINUX = """
import asyncio, json, random, socket, sys, tempfile
from pathlib import Path
from clustertop.clock import SystemClock
from clustertop.places import Device, SshSwitch
from clustertop.poll.switch_readers import makers
from clustertop.wire.ssh import Dialer
from leafports import of_reading
from sshd import running

def send(name, frames, size=1000):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((name, 0))
        for _ in range(frames):
            raw.send(b"\\x02" * 12 + b"\\x88\\xb5" + bytes(size - 14))

async def reading(reader, last):
    for _ in range(100):
        told = await reader.read(0.0)
        if told.parts and reader._told is not last:
            return told, reader._told
    raise AssertionError(told)

async def main(folder):
    with running(folder) as server:
        dialer = Dialer(server.settings())
        node = server.node()
        device = Device("leaf7", "switch", SshSwitch("127.0.0.1", node.user, server.port), leaf="l7", options={"uplinks": ["swp49", "swp50"]})
        reader = makers([], [], lambda node: dialer)["switch"](device, SystemClock(), random.Random(1), 1.0)
        _, first = await reading(reader, None)
        for port, frames in (("far1", 600), ("far2", 400), ("swp49", 250)):
            send(port, frames)
        told, second = await reading(reader, first)
        while not any((port.into.value or 0) > 1e5 for port in second.ports):
            told, second = await reading(reader, second)
        share = of_reading(second)
        rows = [[row.k, row.a] for row in told.parts["switch"].tb["uplink"].r]
        server.kill_sessions()
        down = told
        for _ in range(200):
            down = await reader.read(0.0)
            if down.state.name != "UP":
                break
        _, again = await reading(reader, reader._told)
        await reader.aclose()
        await dialer.close()
        left = server.sessions()
        for _ in range(100):
            if not left:
                break
            await asyncio.sleep(0.05)
            left = server.sessions()
    up = {port.name: port.up for port in second.ports}
    print(json.dumps({
        "first": [port.into.value for port in first.ports], "ratio": share.ratio, "rows": rows, "up": up, "down": down.state.name,
        "state": told.state.name, "speed": {port.name: port.bits_per_second for port in second.ports}, "again": len(again.ports),
        "left": len(left)}))

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
"""


@pytest.mark.sshd
def test_a_linux_switch_over_ssh_in_a_network_of_its_own() -> None:
    said = inside(LINUX, links=PORTS)
    assert said["first"] == [None] * 4
    assert said["ratio"] == pytest.approx(0.25, rel=0.05)
    assert [(key, attrs["role"], attrs["role_by"], attrs["leaf"]) for key, attrs in said["rows"]] == [
        ("swp1", "host", "config", "l7"), ("swp2", "host", "config", "l7"), ("swp49", "uplink", "config", "l7"),
        ("swp50", "uplink", "config", "l7")]
    assert said["up"] == {"swp1": True, "swp2": True, "swp49": True, "swp50": False}
    assert said["speed"]["swp1"] == 10e9
    assert (said["state"], said["down"], said["again"], said["left"]) == ("UP", "UNREACHABLE", 4, 0)


def part(names: list[str], columns: dict[str, list[Any]], attrs: Callable[[str], dict[str, Any]] = lambda name: {}) -> TablePart:
    """A full part; a cell that is text travels as such."""
    cells = [cell for column in columns.values() for cell in column]
    numbers = [place for place, cell in enumerate(cells) if isinstance(cell, int | float)]
    texts = [place for place, cell in enumerate(cells) if isinstance(cell, str)]
    return TablePart([one for place in numbers for one in (place, 1)], [cells[place] for place in numbers], texts,
                     [cells[place] for place in texts], [Row(name, {"name": name, **attrs(name)}) for name in names], list(columns))


def test_ports_from_a_probes_tables_with_a_bond_its_members_and_pauses() -> None:
    names = ["p0", "p1", "bond0", "br0"]
    net, links = Kept(), Kept()
    assert net.take(part(names, {"rx_bytes": [10, 2**60, 30, 5], "tx_bytes": [1, 2, 3, 4], "speed_mbps": [100000, -1, "!Invalid argument", 10],
                                 "operstate": ["=up", "=lowerlayerdown", "=up", "=unknown"]},
                         lambda name: {"phys": name.startswith("p")}), 1, 1)
    assert links.take(part(["p1", "bond0"], {"e:rx_pause": [7, 9], "e:tx_pause": [2, 1], "e:rx_global_pause": [None, None]},
                           lambda name: {"master": "bond0"} if name == "p1" else {}), 1, 1)
    numbers: dict[str, int] = {}
    found = interfaces(net, links, numbers)
    assert [(one.name, one.up, one.bits_per_second) for one in found.data_ports()] == [("p0", True, 100e9), ("p1", False, None)]
    one = found.interfaces[numbers["p1"]]
    assert (one.in_octets, one.lag, one.in_pause, one.out_pause) == (2**60, numbers["bond0"], 7, 2)
    assert found.interfaces[numbers["br0"]].up is None
    before = dict(numbers)
    net.take(part(["br0", "p1"], {"rx_bytes": [1, 2]}), 2, 2)
    assert set(interfaces(net, links, numbers).interfaces) == {before["br0"], before["p1"]}


def test_frames_count_from_the_last_full_one() -> None:
    kept = Kept()
    assert kept.take(part(["a", "b"], {"x": [1, 2], "y": [3, "=up"]}), 4, 4)
    assert kept.of(1) == {"x": 2, "y": "=up"}
    assert kept.take(TablePart(i=[1, 1], x=[20.0], j=[3], s=["!gone"]), 5, 4)
    assert (kept.of(0), kept.of(1)) == ({"x": 1, "y": 3}, {"x": 20})
    assert kept.take(None, 6, 4)
    assert kept.of(1) == {"x": 2, "y": "=up"}
    assert not kept.take(TablePart(i=[1, 1], x=[20.0]), 8, 7)
    for bad in (TablePart(i=[3, 2], x=[1.0, 2.0]), TablePart(i=[0, 2], x=[1.0]), TablePart(j=[9], s=["=x"])):
        with pytest.raises(ValueError, match="cells"):
            kept.take(bad, 9, 4)
    json.dumps(kept.of(0))


async def test_a_fabric_that_this_machine_asks_itself_is_not_dialled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_dialer(node: NodeInfo) -> Dialer:
        pytest.fail(f"{node.name} is this machine")

    make = makers([NodeInfo("here", LOCAL_HOST)], (), no_dialer)["fabric"]
    reader = make(Device("fabric", "fabric", FabricHost("here")), SystemClock(), random.Random(3), 10.0)
    with fabric_running(TWO_LEVELS, "n1 mlx5_0", tmp_path) as sim:
        for name, value in sim.environ.items():
            monkeypatch.setenv(name, value)
        told = await reader.read(0.0)
    await reader.aclose()
    assert (told.state, told.stage, told.reason) == (LinkState.UP, "answer", "")
    rows = told.parts["fabric"].tb["uplink"].r
    assert rows is not None
    assert {row.a["leaf"] for row in rows} == {"torA", "torB"}
