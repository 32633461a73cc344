"""The demo's power faults, live and at their own speed: what is told, what a recording of it says, what is kept.

One run of a minute and a half for all of these: SSH to the nodes, SNMP to the PDUs, Redfish over HTTPS to the BMCs.
"""

from __future__ import annotations

import asyncio
import json
import re
from argparse import Namespace
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from clustertop import cli, plain
from clustertop.commands.demo import running
from clustertop.demo.faults import parse
from clustertop.record import Recorder, Recording
from clustertop.replay import transitions
from clustertop.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from clustertop.core import Snapshot
    from clustertop.model import Alert, Transition

pytestmark = pytest.mark.xdist_group("power")
FAULTS = ("feed-loss@gpu002:18", "breaker-trip@gpu006:18", "bmc-hang@gpu009:18", "psu-fail@gpu013:18")
MOST_SECONDS = 170.0
WANTED = {("feed_lost", "r1-A1"), ("feed_tripped", "r1-A2"), ("psu_redundancy", "gpu013"),
          ("device_unreachable", "gpu009-bmc")}


@dataclass
class Live:
    """What a run left."""

    path: Path
    seen: list[Transition] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """As ``watch --json`` prints them."""
    shot: Snapshot | None = None
    inside: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By rule and place of an alert: rule and owner of all that it stands for."""
    text: list[str] = field(default_factory=list)
    """As ``once`` prints it."""
    made: Any = None
    """As ``once --json`` has it."""

    @property
    def alerts(self) -> dict[tuple[str, str], Alert]:
        """The alerts in the end, by rule and place."""
        assert self.shot is not None
        return {(one.rule, one.where): one for one in self.shot.alerts}

    def about(self, *owners: str) -> set[tuple[str, str]]:
        """Rule and place of every alert that was ever told of *owners* and is not part of another by now."""
        assert self.shot is not None
        stands = {one.id for one in self.shot.alerts}
        return {(one.rule, one.thing.node or one.thing.label) for one in self.seen
                if one.thing.node in owners and one.kind == "raised" and one.alert in stands}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """A run with every fault of power that shows at once, recorded."""
    made = Live(tmp_path_factory.mktemp("power") / "flight.ct")
    asyncio.run(_run(made))
    return made


async def _run(made: Live) -> None:
    async with running(Namespace(nodes=16, seed=7, interval=1.0), [parse(text) for text in FAULTS]) as plan:
        with Recorder(made.path, plan) as tap:
            async with Session(plan, tap=tap) as session:
                session.core.listen(made.seen.extend)
                # Who fails to see one of them sees which.
                for _ in range(int(MOST_SECONDS)):
                    await asyncio.sleep(1.0)
                    shot = session.snapshot
                    if shot is not None and {(one.rule, one.where) for one in shot.alerts} >= WANTED:
                        break
                await asyncio.sleep(5.0)
                shot = session.snapshot
                assert shot is not None
                # The engine goes on: what it says of this moment is taken now.
                made.shot = shot
                made.inside = {(one.rule, one.where): {f"{part.rule} {part.thing.node}" for part in
                                                       shot.engine.inside(shot.view, one)} for one in shot.alerts}
                made.text = plain.fleet_lines(shot)
                made.made = json.loads(plain.json_text(plain.fleet_object(shot, session.times)))
    made.lines = [plain.transition_json(change) for change in made.seen]


def readings(made: Any, node: str, table: str) -> list[dict[str, Any]]:
    found = next(one for one in made["nodes"] if one["name"] == node)
    return [one["readings"] for one in found["tables"][table]]


def test_every_fault_is_told(live: Live) -> None:
    assert set(live.alerts) >= WANTED


def test_a_lost_feed_is_one_alert_that_says_how_the_other_stands(live: Live) -> None:
    alert = live.alerts["feed_lost", "r1-A1"]
    assert alert.message.startswith("feed lost: carried ")
    # What B carries now, or what it carried when it was read last: before the loss, then.
    assert re.search(r"; r1-B1 (carries [\d.]+ A of 63 A \(\d+ %\)|carried [\d.]+ A of 63 A \(\d+ %\) .+ before, "
                     r"and was not read since)", alert.message), alert.message
    nodes = [f"gpu{number:03}" for number in range(1, 5)]
    assert live.about("r1-A1", "r1-B1", "pdu-r1-a1", "pdu-r1-b1", *nodes, *(f"{one}-bmc" for one in nodes)) == {
        ("feed_lost", "r1-A1")}
    # The supplies that lost their input are inside it.
    assert {f"psu_failed {node}" for node in nodes} <= live.inside["feed_lost", "r1-A1"]
    shot = live.shot
    assert shot is not None
    feeds = shot.view["feed"]
    other = next(row for row, attrs in enumerate(feeds.attrs) if attrs["name"] == "r1-B1")
    assert (feeds.value("amps", other) or 0) > 20
    assert feeds.value("failover_ratio", other) is None
    assert feeds.reason("failover_ratio", other) == "one of the pair has lost its load"
    # They run on: nobody says otherwise.
    assert all(one["state"] == "up" for one in live.made["nodes"][:4])


def test_a_tripped_breaker_is_one_alert_that_covers_its_nodes(live: Live) -> None:
    nodes = [f"gpu{number:03}" for number in range(5, 9)]
    assert "4 of 4 nodes on it do not answer" in live.alerts["feed_tripped", "r1-A2"].message
    assert live.about("r1-A2", "pdu-r1-a2", *nodes, *(f"{one}-bmc" for one in nodes)) == {("feed_tripped", "r1-A2")}
    inside = live.inside["feed_tripped", "r1-A2"]
    assert {f"node_unreachable {node}" for node in nodes} <= inside
    assert {f"device_unreachable {node}-bmc" for node in nodes} <= inside
    # A load that went is not a load that is well.
    (line,) = [line for line in live.text if line.startswith("r1-A2 ")]
    assert "BREAKER TRIPPED" in line
    assert " ok " not in line


def test_a_bmc_that_hangs_is_told_as_such_and_the_others_go_on(live: Live) -> None:
    assert "no answer within" in live.alerts["device_unreachable", "gpu009-bmc"].message
    shot = live.shot
    assert shot is not None
    unread = dict(plain.unread(shot))
    assert unread["gpu009-bmc"].startswith("BMC unreachable: ")
    assert {name for name in unread if name.endswith("-bmc")} == {
        "gpu009-bmc", *(f"gpu{number:03}-bmc" for number in range(5, 9))}
    # The last figure stands with its age, or is unknown; it is never nothing.
    for reading in readings(live.made, "gpu009", "bmc"):
        assert reading["power_watts"]["value"] != 0
    device = next(one for one in live.made["devices"] if one["name"] == "gpu009-bmc")
    assert (device["link"], device["readings"]["reachable"]["value"]) == ("unreachable", 0)
    assert device["age_seconds"] > 30
    others = {one["of"]: one for one in live.made["devices"] if one["kind"] == "bmc"}
    for number in (10, 11, 12, 14, 15, 16):
        assert others[f"gpu{number:03}"]["age_seconds"] < 30
        assert readings(live.made, f"gpu{number:03}", "bmc")[0]["power_watts"]["value"] > 1000
    # Its node is up, and its feed is measured by a PDU all the same.
    assert next(one for one in live.made["nodes"] if one["name"] == "gpu009")["state"] == "up"
    assert next(one for one in live.made["feeds"] if one["name"] == "r2-A1")["readings"]["amps"]["value"] > 5


def test_a_failed_supply_and_the_redundancy_that_is_gone_with_it_are_one_alert(live: Live) -> None:
    assert "FAILED" in live.alerts["psu_redundancy", "gpu013"].message
    assert live.about("gpu013", "gpu013-bmc", "r2-A2", "r2-B2") == {("psu_redundancy", "gpu013")}
    states = sorted(one["psu_state"]["text"] for one in readings(live.made, "gpu013", "psu"))
    assert states == ["FAILED", "ok"]
    assert readings(live.made, "gpu013", "bmc")[0]["redundancy"]["text"] == "LOST"


def test_the_recording_says_exactly_what_the_live_run_said(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", str(live.path), "--json"]) == 0
    assert capsys.readouterr().out.splitlines() == live.lines
    recording = Recording(live.path)
    assert next((one.name, one.kind) for one in recording.site.devices if one.kind == "pdu") == ("pdu-r1-a1", "pdu")
    assert {change.rule for change in transitions(recording)} >= {rule for rule, _ in WANTED}


def test_feeds_of_a_recording_end_as_they_ended_live(live: Live) -> None:
    from clustertop.replay import ReplaySession

    async def play() -> Snapshot:
        session = ReplaySession(Recording(live.path), speed=0)
        async with session, asyncio.timeout(60):
            while not session.notes:
                await asyncio.sleep(0.01)
        assert session.snapshot is not None
        return session.snapshot

    shot, was = asyncio.run(play()), live.shot
    assert was is not None
    for table in ("feed", "pdu", "bmc", "psu", "sensor", "device"):
        assert shot.view[table].keys == was.view[table].keys
    # Where a device was asked is nobody's business who reads the recording; what it said is all there.
    for table in ("feed", "pdu", "bmc", "psu", "sensor"):
        assert shot.view[table].attrs == was.view[table].attrs
    assert {attrs["where"] for attrs in shot.view["device"].attrs} == {""}
    words = {(one.rule, one.where) for one in shot.alerts}
    assert words >= WANTED
