"""Recordings of traffic and of what is watched beside the nodes: what a replay needs of them is in the file."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop import plain
from clustertop.inventory import Inventory
from clustertop.model import LinkState, NodeInfo
from clustertop.places import Device, Feed, Site, Supply
from clustertop.plan import Plan
from clustertop.probe.frames import Err
from clustertop.record import Recorder, Recording, play
from clustertop.replay import replay_core
from clustertop.rules.spec import builtin
from clustertop.wire.transport import PollSettings
from nodes import DEVICE_OF, Fleet, table

if TYPE_CHECKING:
    from pathlib import Path

    from clustertop.core import Core

NODES = (NodeInfo("n0", rack="r1", leaf="s"), NodeInfo("n1", rack="r2", leaf="s"), NodeInfo("n2", rack="r1", leaf="s"))
SITE = Site(
    feeds=(Feed("A", 16.0, 230.0, pair="B", rack="r1", pdu="p", part="inlet 1", supplies=(Supply("n0", ("ps1",)),)),
           Feed("B", 16.0, 230.0, pair="A", rack="r1", supplies=(Supply("n0", ("ps2",)),))),
    devices=(Device("p", "pdu", None, rack="r1", interval_seconds=10.0), Device("s", "switch", None, leaf="s")),
    in_band=frozenset({"n0"}), nccl_logs=("/logs/*.log",), nccl_nodes=frozenset({"n0", "n1"}), sockets_seconds=1.0,
    order=("n0", "n1", "n2"))
AT_ONCE = {"cross_rack_share", "meters_disagree", "uplink_down", "uplink_capacity", "uplink_imbalance", "feed_current",
           "psu_redundancy", "nccl_init", "tcp_jitter"}


def plan() -> Plan:
    """What the sessions of these tests know; what usually takes minutes is told at once."""
    rules = builtin()
    for name in AT_ONCE & rules.keys():
        levels = {level: msgspec.structs.replace(one, for_seconds=0.0, for_polls=1)
                  for level in ("info", "warning", "critical") if (one := getattr(rules[name], level)) is not None}
        rules[name] = msgspec.structs.replace(rules[name], **levels)
    return Plan(Inventory(NODES, index={node.name: at for at, node in enumerate(NODES)}), PollSettings(), rules, site=SITE)


class Life:
    """Three nodes, a PDU and a leaf switch, whose moments *seed* picks."""

    def __init__(self, path: Path, seed: int) -> None:
        made = plan()
        with Recorder(path, made, force=True) as tap:
            self.fleet = Fleet(NODES, made.rules, tap=tap, site=made.site)
            self.chance = random.Random(seed)
            self.bytes: dict[tuple[int, str], float] = {}
            for number in range(len(SITE.devices)):
                self.fleet.link(len(NODES) + number, LinkState.UP)
            for _ in range(40):
                self.fleet.now += self.chance.choice([0.5, 1.0, 1 / 3, 2.0])
                for number in range(len(NODES)):
                    self.node(number)
                self.devices()
                if self.chance.random() < 0.9:
                    self.fleet.tick()
            self.fleet.tick()
        self.lines = [plain.transition_json(change) for change in self.fleet.seen]

    def node(self, number: int) -> None:
        chance, fleet = self.chance, self.fleet
        peers = {}
        for other in (*(f"10.0.0.{one}" for one in range(len(NODES)) if one != number), "192.0.2.7"):
            if chance.random() < 0.9:
                self.bytes[number, other] = self.bytes.get((number, other), 0.0) + chance.choice([0.0, 3e6, 4e7])
            peers[other] = {"tx_bytes": self.bytes.get((number, other), 0.0), "rx_bytes": 0.0, "sockets": 1,
                            "rtt_us": 120, "rttvar_us": chance.choice([10, 2900])}
        sent = sum(value for (node, _), value in self.bytes.items() if node == number)
        tables: dict[str, Any] = {
            "peer": table(peers, {key: {"since": 400.0} for key in peers}),
            "link": table({"eth0": {}}, {"eth0": {"name": "eth0", "addresses": [f"10.0.0.{number}"]}}),
            "net": table({"eth0": {"tx_bytes": sent * chance.choice([1.0, 1.0, 1.7])}}, {"eth0": {"name": "eth0", "phys": True}}),
            "node": table({"": {"ncpu": 8}}, {"": {"jobs": chance.choice([["7"], ["7"], []])}})}
        if number == 0:
            lost = chance.random() < 0.3
            said = {"sdr/000": "PS Redundancy    | 20h | ok  | 21.1 | " + ("Redundancy Lost" if lost else "Fully Redundant"),
                    "sdr/001": "PS1 Status       | 22h | ok  | 10.1 | Presence detected" + (", Power Supply AC lost" if lost else ""),
                    "dcmi/000": f"    Instantaneous power reading:   {chance.choice([700, 810])} Watts"}
            tables["ipmi"] = table({key: {"text": f"={text}"} for key, text in said.items()}, {"sdr/000": {"notes": ""}})
        if number < 2:
            key = "/logs/a 0xc1/16"
            init: Any = chance.choice([3.0, 23.0, Err("not timed")])
            tables["nccl"] = table(
                {"/logs/a": {"lines": 9, "warnings": 0}, key: {"ranks": 16, "local_ranks": 8, "complete": 8, "init": init,
                 "init_by": 0, "init_rank": 3, "init_time": 490.0, "pending": 0, "channels": 8, "network_channels": 8, "running": 8}},
                {"/logs/a": {"file": "/logs/a"}, key: {"file": "/logs/a", "comm": "0xc1", "network": ["IB"], "members": [
                    f"n{number} {8 * number}-{8 * number + 7}"], "peers": [f"n{1 - number} 4"]}})
        if chance.random() < 0.9 and not fleet.say(number, **tables):
            fleet.encoders[number].want_full()

    def devices(self) -> None:
        chance, fleet = self.chance, self.fleet
        for name, number in DEVICE_OF.items():
            if chance.random() < 0.05:
                fleet.link(len(NODES) + number, LinkState.UNREACHABLE, "no answer")
            elif chance.random() < 0.3:
                fleet.link(len(NODES) + number, LinkState.UP)
                if name == "pdu":
                    amps = chance.choice([3.0, 13.5, 14.9])
                    fleet.tell(pdu=table({"inlet/1/1": {"amps": amps, "volts": 230.0}},
                                         {"inlet/1/1": {"kind": "inlet", "name": "1", "unit": "1", "profile": "x"}}))
                else:
                    rates = {"e1": (5e7, 1e6), "e2": (1e6, chance.choice([1e6, 4e7, 1.2e8])), "e3": (1e6, 1e6)}
                    fleet.tell(uplink=table(
                        {key: {"rx": 1e9, "tx": 1e9, "rx_rate": into, "tx_rate": out, "speed": 1e9,
                               "up": float(key != "e3" or chance.random() < 0.7)} for key, (into, out) in rates.items()},
                        {key: {"name": key, "role": "host" if key == "e1" else "uplink", "leaf": "s"} for key in rates}))


def lived_again(path: Path) -> tuple[Core, list[str]]:
    """The core at the end of a recording, and the lines of its transitions."""
    recording = Recording(path)
    core, said = replay_core(recording), []
    core.listen(lambda changes: said.extend(plain.transition_json(change) for change in changes))
    for step in recording.steps():
        play(core, step)
    assert recording.note == ""
    return core, said


def tables(core: Core) -> dict[str, Any]:
    """All that the view says of traffic, devices and feeds at the end, NaN as such."""
    assert core.snapshot is not None
    view = core.snapshot.view
    return {name: [list(view[name].keys), [dict(attrs) for attrs in view[name].attrs],
                   [[repr(view[name].value(column, row)) for column in view[name].spec.names] for row in range(len(view[name]))]]
            for name in ("traffic", "peer", "uplink", "device", "feed", "bmc", "psu", "nccl")}


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_replay_says_exactly_what_the_live_run_said(seed: int, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("flight") / "flight.ct"
    life = Life(path, seed)
    core, said = lived_again(path)
    assert said == life.lines
    assert tables(core) == tables(life.fleet.core)


def test_lives_have_something_to_say(tmp_path: Path) -> None:
    lives = [Life(tmp_path / "flight.ct", seed) for seed in range(4)]
    rules = {json.loads(line)["rule"] for life in lives for line in life.lines}
    assert all(rows for rows, *_ in tables(lives[0].fleet.core).values()), "every table has something in it"
    assert {"cross_rack_share", "meters_disagree", "uplink_down", "uplink_imbalance", "feed_current", "nccl_init"} <= rules


def test_what_a_replay_needs_of_the_site_is_in_the_file_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "flight.ct"
    Life(path, 1)
    site = Recording(path).site
    assert site.order == SITE.order
    assert site.feeds == SITE.feeds
    assert [(one.name, one.kind, one.leaf, one.rack, one.interval_seconds) for one in site.devices] == [
        (one.name, one.kind, one.leaf, one.rack, one.interval_seconds) for one in SITE.devices]
    # What probes are told to read is theirs: what they said is in their frames, and a replay asks nobody.
    assert (site.in_band, site.nccl_logs, site.sockets_seconds) == (frozenset(), (), None)
