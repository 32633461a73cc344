"""Cases D3 and D5 to D8 from where they are read to the rules in force: what must not alert, and what is said instead.

D1, D2 and D4 are in ``test_traffic_rules.py``; the functions behind each case are tested in ``tests/traffic``.
"""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pysnmp.proto.api import v2c

from clustertop.commands.common import load_plan
from clustertop.config import ConfigError
from clustertop.model import LinkState, NodeInfo
from clustertop.places import Device, Site
from clustertop.poll.device_frames import encoded, frame
from clustertop.poll.switch_frames import switch_facts, uplink_part
from clustertop.rules.exits import exits
from clustertop.rules.spec import builtin
from clustertop.sources.switch import Roles, SwitchReader
from configs import write
from nodes import Fleet, table
from snmp_fake import fake
from snmp_fake import table as agent_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
IF, IFX = (1, 3, 6, 1, 2, 1, 2, 2, 1), (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
HOST_PORT, UPLINK = 1, 2


def case(name: str, file: str) -> Any:
    """A case's file."""
    if not (CASES / name).is_dir():
        pytest.skip("needs the shared cases")
    return json.loads((CASES / name / file).read_text())


class Watched:
    """A leaf switch of one host port and one uplink at the wire, read over SNMP and judged by the rules in force."""

    def __init__(self, bits: int, megabits: int) -> None:
        rules = {name: msgspec.structs.replace(rule, **{
            level: msgspec.structs.replace(one, for_seconds=0.0, for_polls=1)
            for level in ("info", "warning", "critical") if (one := getattr(rule, level)) is not None})
            for name, rule in builtin().items()}
        nodes = [NodeInfo("a", rack="r1", leaf="l"), NodeInfo("b", rack="r2", leaf="l")]
        self.fleet = Fleet(nodes, rules, site=Site(devices=(Device("l", "switch", None, leaf="l"),)))
        self.fleet.link(2, LinkState.UP)
        self.bits, self.count = bits, 0
        self.rows: dict[Any, Any] = {(1, 3, 6, 1, 2, 1, 1, 5, 0): b"l"}
        for index, name in ((HOST_PORT, b"swp1"), (UPLINK, b"swp2")):
            self.rows |= {(*IF, 2, index): name, (*IF, 3, index): 6, (*IF, 8, index): 1, (*IFX, 1, index): name,
                          (*IFX, 15, index): v2c.Gauge32(megabits), (*IF, 5, index): v2c.Gauge32(min(megabits * 10**6, 2**32 - 1))}
        self.reader: SwitchReader | None = None

    def monotonic(self) -> float:
        """The clock of the reader is the fleet's."""
        return self.fleet.now

    def wall(self) -> float:
        return self.fleet.now

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watched]:
        roles = Roles(uplinks=("swp2",), hosts=("swp1",))
        async with fake(lambda request: agent_of(self.rows)(request)) as agent, SwitchReader(agent.agent(), roles, self) as reader:
            self.reader = reader
            yield self

    async def look(self, at: float, uptime: float, into: int, out: int) -> tuple[float | None, str, list[str]]:
        """Read it *at* so many seconds: both ports have these octets; (rate into the first, why none, what fires)."""
        assert self.reader is not None
        self.fleet.now = 1000.0 + at
        self.rows[1, 3, 6, 1, 2, 1, 1, 3, 0] = v2c.TimeTicks(round(uptime * 100))
        for index in (HOST_PORT, UPLINK):
            for wide, narrow, value in ((6, 10, into), (10, 16, out)):
                if self.bits == 64:
                    self.rows[(*IFX, wide, index)] = v2c.Counter64(value)
                else:
                    self.rows[(*IF, narrow, index)] = v2c.Counter32(value)
        reading = await self.reader.read()
        self.count += 1
        part = msgspec.structs.replace(uplink_part(reading, leaf="l"), n=self.count, iv=10.0)
        made, raw = encoded(frame(self.count, self.fleet.now, self.fleet.now, {"switch": part}, switch_facts(reading), {}))
        self.fleet.core.on_frame(2, self.fleet.now, self.fleet.now, made, raw)
        self.fleet.tick()
        view = self.fleet.view["uplink"]
        row = view.keys.index("1")
        value = view.value("receive_bytes_per_second", row)
        return value, "" if value is not None else view.reason("receive_bytes_per_second", row), [
            alert.rule for alert in self.fleet.alerts if alert.rule.startswith(("uplink", "device", "cross"))]


async def test_d5_after_a_reboot_the_rate_is_unknown_once_and_comes_back_and_nothing_alerts() -> None:
    series, wanted = case("D5", "series.json")["octets"], case("D5", "expect.json")["rates"]
    seen = []
    async with Watched(64, 100_000).running() as switch:
        for at, octets in series:
            seen.append(await switch.look(at, 1e6 if not at else at - 6.0, octets, octets))
    assert [rate for rate, _, _ in seen] == wanted
    assert [why for _, why, _ in seen] == ["first reading", "counter reset", "", ""]
    assert [fired for _, _, fired in seen] == [[]] * len(series)
    device = switch.fleet.view["device"]
    assert device.value("link_state", device.keys.index("")) == LinkState.UP, "a reset never marks the device as failed"


async def test_d6_a_reset_is_no_wrap_of_hundreds_of_percent() -> None:
    series = case("D6", "series.json")["reset"]
    async with Watched(32, series["link_bps"] // 10**6).running() as switch:
        await switch.look(0, 3_000_000.0, series["in"][0], series["out"][0])
        rate, why, fired = await switch.look(series["dt"], series["uptime_s"], series["in"][1], series["out"][1])
    assert (rate, why, fired) == (case("D6", "expect.json")["reset"], "counter reset", [])
    assert switch.fleet.view["uplink"].value("load_ratio", 0) is None


async def test_d6_a_true_wrap_is_a_rate() -> None:
    series = case("D6", "series.json")["wrap"]
    async with Watched(32, 100).running() as switch:
        await switch.look(0, series["uptime_s"] - series["dt"], series["in"][0], 7)
        rate, _, fired = await switch.look(series["dt"], series["uptime_s"], series["in"][1], 7)
    assert (rate, fired) == (pytest.approx(case("D6", "expect.json")["wrap_Bps"]), [])


async def test_d6_a_rate_beyond_the_speed_is_dropped_and_one_near_it_alerts() -> None:
    async with Watched(64, 1000).running() as switch:
        await switch.look(0, 9000.0, 0, 0)
        rate, why, fired = await switch.look(10, 9010.0, 5 * 10**9, 5 * 10**9)  # 400 %
        assert (rate, fired) == (None, [])
        assert why
        rate, _, fired = await switch.look(20, 9020.0, 5 * 10**9 + 12 * 10**8, 5 * 10**9 + 12 * 10**8)  # 96 %
        assert (rate, fired) == (pytest.approx(1.2e8), ["uplink_capacity", "cross_rack_share"])


def test_d3_what_lies_on_a_port_is_not_held_against_the_sockets_again() -> None:
    """Members 500 + 500 under a bond that says 1000 and a VLAN that says 900: the node sent 1000."""
    net = case("D3", "net.json")
    total = case("D3", "expect.json")["total_tx"]
    rules = {"meters_disagree": builtin()["meters_disagree"], "cross_rack_share": builtin()["cross_rack_share"]}
    fleet = Fleet([NodeInfo("a", rack="r1"), NodeInfo("b", rack="r2")], rules, interval=10.0)
    for step in range(1, 45):
        fleet.now += 10.0
        grown = step * 10 * 1e4
        for number in (0, 1):
            fleet.say(number, peer=table({f"10.0.0.{1 - number}": {
                "tx_bytes": grown * total if number == 0 else 0.0, "rx_bytes": 0.0, "sockets": 1}}),
                link=table({"eth0": {}}, {"eth0": {"name": "eth0", "addresses": [f"10.0.0.{number}"]}}),
                net=table({name: {"tx_bytes": grown * one["tx"] if number == 0 else 0.0} for name, one in net.items()},
                          {name: {"name": name, "phys": one["pci"] is not None} for name, one in net.items()}))
        fleet.tick()
    row = fleet.view.traffic.rows["fleet"]
    assert fleet.view["traffic"].value("disagreement_ratio", row) == pytest.approx(0.0, abs=1e-6)
    assert [alert.rule for alert in fleet.alerts] == ["cross_rack_share"]


def planned(folder: Path, text: str) -> Any:
    args = Namespace(hosts=[], config=str(write(folder, text)), hosts_file=None, interval=None, state="none", unsafe=None)
    return load_plan(args)[0]


def test_d7_compact_lists_place_the_nodes_of_the_fleet(tmp_path: Path) -> None:
    """Blocks and switches in Slurm's notation: leading zeros and order stay, and the racks come out of it."""
    expect = case("D7", "expect.json")
    shutil.copy(CASES / "D7" / "topology.conf", tmp_path / "topology.conf")
    plan = planned(tmp_path, '[inventory]\nnodes = "g3-129-[057,059,063-064],gpu[001-020],login1"\n'
                             '[topology]\nslurm = "topology.conf"\nguess_racks = true\n')
    by_leaf: dict[str, list[str]] = {}
    for node in plan.inventory.nodes:
        by_leaf.setdefault(node.leaf or node.rack, []).append(node.name)
    assert by_leaf["rack02"] == expect["rack02"]
    assert len(by_leaf["rack01"]) == expect["rack01_count"]
    assert (by_leaf["rack01"][0], by_leaf["rack01"][-1]) == ("gpu001", "gpu018")
    assert [node.name for node in plan.inventory.nodes][:4] == expect["b1"]


def test_d7_a_list_above_the_limit_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, '[inventory]\nnodes = "n[1-99999999]"\n')
    assert "inventory.nodes" in str(caught.value)
    assert "at most 10,000" in str(caught.value)


def test_d8_with_no_meter_of_the_leaves_the_share_is_not_measured() -> None:
    fleet = Fleet([NodeInfo("a", rack="r1", leaf="l"), NodeInfo("b", rack="r2", leaf="l")])
    fleet.now += 1.0
    for number in (0, 1):
        fleet.say(number, node=table({"": {"ncpu": 8}}))
    fleet.tick()
    row = fleet.view.traffic.rows["fleet"]
    for column in ("uplink_spine_ratio", "fabric_spine_ratio", "judged_ratio"):
        assert fleet.view["traffic"].value(column, row) is None
        assert fleet.view["traffic"].reason(column, row)
    assert {one.verdicts[0].answer for one in exits(fleet.view)} == {"not measured"}
    assert "[switches.NAME]" in " ".join(fleet.view.traffic.sentences)
    assert not [alert for alert in fleet.alerts if alert.rule.startswith(("cross", "uplink", "meters"))]
