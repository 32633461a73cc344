"""Cases whose right answer is about the whole node: A5, A6, A8, A15, B8, B10, G2, G3, G5 and G6."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from clustertop import core, plain
from clustertop.config import Config, ConfigError, Expect, HostOverride, InventoryConfig, Poll, load
from clustertop.inventory import resolve
from clustertop.model import LinkState, NodeInfo
from clustertop.probe.loop import INTERVALS, Runner, Wake
from clustertop.settings import expect_ports, poll_settings
from clustertop.wire.bundle import probe_args
from clustertop.wire.shprobe import SMI_SECONDS, ShProbe
from clustertop.wire.ssh import Dialer, SshTransport
from clustertop.wire.transport import PollSettings
from nodes import Fleet, gpus, lost, ports, table

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}
IDLE = {"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "40 Gb/sec (4X QDR)"}


def case(name: str, file: str) -> Any:
    """A field input; the test is skipped where the field's inputs are not at hand."""
    path = CASES / name / file
    if not path.is_file():
        pytest.skip(f"no {name}/{file} beside the project")
    return json.loads(path.read_text("utf-8"))


def row_of(fleet: Fleet, number: int = 0) -> str:
    """The node's line of the plain table, and what stands below it."""
    assert fleet.core.snapshot is not None
    return plain.fleet_lines(fleet.core.snapshot)[1 + number]


def test_a5_a_node_with_a_lost_gpu_is_up_and_degraded() -> None:
    """A5b. There is no word "degraded": the link's state, the count of GPUs and the gravest alert stand side by side."""
    fleet = Fleet()
    for _ in range(3):
        fleet.step(gpu=gpus({}, {}, lost(), {}))
    words = row_of(fleet).split()
    assert words[:3] == ["n0", "up", "3/4"]
    assert words[-1] == "CRIT"


def test_a6_exit_code_and_words_are_kept_and_shown_beside_a_node_that_is_up() -> None:
    """A6a, A6b: within two polls, as an alert of its own; the plain view lists it as well as the node's page."""
    fleet = Fleet(interval=10.0)
    said = "Unable to determine the device handle (nvidia-smi exit status 15)"
    for poll in range(2):
        fleet.counts[0, "gpu"] = poll + 1
        fleet.step(10.0, port=ports({}), states={"gpu": {"st": "error", "e": said, "n": poll + 1}})
    assert fleet.firing == ["group_failed"]
    assert said in fleet.seen[0].message
    assert fleet.core.snapshot is not None
    assert plain.unread(fleet.core.snapshot) == [("n0", f"gpu error: {said}")]
    assert row_of(fleet).split()[1] == "up"


@pytest.mark.parametrize(("sent", "rules"), [(8, []), (7, ["gpu_count"]), (9, [])])
def test_a8_fewer_gpus_than_the_inventory_expects_from_the_start(sent: int, rules: list[str]) -> None:
    """A8a, where the missing one has never been seen: it has no name yet, but it is missed."""
    fleet = Fleet(2, expect_gpus=lambda node: 8 if node.name == "n0" else None)
    for _ in range(2):
        fleet.now += 1
        for node in (0, 1):
            fleet.say(node, gpu=gpus(count=sent))
        fleet.tick()
    assert fleet.firing == rules
    assert row_of(fleet).split()[2] == f"{sent}/{max(sent, 8)}"
    for _ in range(3):
        fleet.now += 1
        fleet.say(0, gpu=gpus(count=8))
        fleet.tick()
    assert fleet.firing == ([] if sent < 9 else ["gpu_missing"])


def test_a15_a_mismatch_says_what_it_is_and_the_hint_says_what_to_do() -> None:
    """A15a. The reason is the driver's own words; "reload or reboot" is the rule's hint, beside it."""
    fleet = Fleet()
    words = "Failed to initialize NVML: Driver/library version mismatch (nvidia-smi exit status 18)"
    for poll in range(4):
        fleet.step(port=ports({}), states={"gpu": {"st": "error", "e": words, "n": poll + 1}})
    assert fleet.core.snapshot is not None
    alert, = fleet.core.snapshot.alerts
    assert alert.message == f"gpu cannot be read: {words}"
    assert "reload or a reboot" in alert.hint


def test_a11_before_it_is_configured_the_alert_is_raised_once() -> None:
    """A11b, its first half; that it can be acknowledged for good, tied to the width, is the rules' and the console's."""
    fleet = Fleet()
    for _ in range(50):
        fleet.step(gpu=gpus({"pcie_width": 8}))
    assert fleet.rules == ["raised pcie_width"]
    for _ in range(3):
        fleet.step(gpu=gpus({"pcie_width": 4}))
    assert "pcie_width" in fleet.firing


class TestB8:
    """B8: what is expected is what was up, or what the operator wrote; no number is built in."""

    def test_b8_any_number_of_ports_at_any_rate_is_fine_without_configuration(self) -> None:
        fleet = Fleet(2)
        for _ in range(5):
            fleet.now += 1
            fleet.say(0, port=ports(*[IDLE] * 16, *[{"rate": "100 Gb/sec (4X EDR)"}] * 2))
            fleet.say(1, port=ports(*[{"rate": "200 Gb/sec (4X HDR)"}] * 4))
            fleet.tick()
        assert not fleet.seen
        assert [fleet["node"].value("ports_expected", node) for node in (0, 1)] == [2, 4]
        assert fleet["node"].reason("ports_expected_missing", 0) == "not judged"
        for _ in range(2):
            fleet.step(1.0, 1, port=ports(DOWN, *[{"rate": "200 Gb/sec (4X HDR)"}] * 3))
        assert [(change.rule, change.thing.node) for change in fleet.seen] == [("rdma_port_down", "n1")]

    def test_b8_a_number_for_a_group_of_nodes(self) -> None:
        inventory = resolve([], Config(inventory=InventoryConfig(nodes="a[1-4]"), groups={"g": "a[1-3]"},
                                       expect=(Expect(group="g", ports=8), Expect(nodes="a3", ports=2))))
        fleet = Fleet(inventory.nodes, expect_ports=expect_ports(inventory))
        for _ in range(14):
            fleet.now += 1
            fleet.say(0, port=ports(*[{}] * 8))
            fleet.say(1, port=ports(*[{}] * 7, DOWN))
            fleet.say(2, port=ports(*[{}] * 2))
            fleet.say(3, port=ports({}))
            fleet.tick()
        assert [(change.rule, change.thing.node) for change in fleet.seen] == [("rdma_port_count", "a2")]
        assert [fleet["node"].value("ports_expected_missing", node) for node in range(4)] == [0, 1, 0, None]
        # The one that was missed comes, and another goes: that one has an alert of its own.
        for changes in ([{}] * 8, [DOWN, *[{}] * 7]):
            for _ in range(3):
                fleet.step(1.0, 1, port=ports(*changes))
        assert fleet.firing == ["rdma_port_down"]

    def test_b8_a_node_without_any_device_and_one_that_cannot_be_read(self) -> None:
        fleet = Fleet(2, expect_ports=lambda node: 8)
        for poll in range(14):
            fleet.now += 1
            fleet.say(0, states={"rdma": {"st": "off", "n": poll + 1}})
            fleet.say(1, states={"rdma": {"st": "error", "e": "EIO: /sys/class/infiniband", "n": poll + 1}})
            fleet.tick()
        assert sorted((change.rule, change.thing.node) for change in fleet.seen) == [
            ("group_failed", "n1"), ("rdma_port_count", "n0")]


def test_b10_the_figure_since_boot_stands_beside_the_time_since_boot() -> None:
    """B10c."""
    fleet = Fleet()
    for value in (7, 8):
        fleet.step(port=ports({"c:link_downed": value}), node=node_row(uptime=86400))
    assert fleet["port"].value("link_downed", 0) == 8
    assert fleet["node"].value("uptime_seconds", 0) == 86400
    assert "link_downed 8 since boot" in fleet.seen[0].message


def node_row(**columns: Any) -> Any:
    """The node's own table."""
    return table({"": columns})


class TestG3:
    """G3: how often a node is asked, and how that can be changed."""

    def test_g3_defaults(self) -> None:
        """G3a: two seconds for the resident probe, ten where nvidia-smi is started."""
        assert poll_settings(Config()).interval_seconds == 2.0
        assert {INTERVALS[group] for group in ("gpu", "rdma", "host")} == {2.0}
        assert SMI_SECONDS == 10.0

    async def test_g3_nvidia_smi_is_started_every_ten_seconds_whatever_the_interval(self) -> None:
        await asyncio.sleep(0)
        for interval, every in ((0.1, 10.0), (2.0, 10.0), (30.0, 30.0)):
            probe = ShProbe(PollSettings(interval_seconds=interval), "n", lambda data: None, lambda data: None)
            assert probe._groups["gpu"].interval == every
            assert probe._groups["rdma"].interval == interval

    @pytest.mark.parametrize(("text", "key"), [
        ("[poll]\ninterval_seconds = 0.1", "poll.interval_seconds"),
        ("[poll]\npcie_interval_seconds = 0.5", "poll.pcie_interval_seconds"),
        ('[host."gpu[001-002]"]\ninterval_seconds = 0.5', "interval_seconds"),
    ])
    def test_g3_below_a_second_needs_the_word_unsafe(self, text: str, key: str, tmp_path: Path) -> None:
        path = tmp_path / "c.toml"
        path.write_text(text)
        with pytest.raises(ConfigError, match="unsafe = true") as caught:
            load(path, environ={})
        assert key in str(caught.value)
        assert caught.value.line == 2
        path.write_text(text + "\n" + ("" if text.startswith("[poll]") else "[poll]\n") + "unsafe = true\n")
        load(path, environ={})

    async def test_g3_a_node_may_have_a_longer_interval(self) -> None:
        """G3b: by ``[host."NAME"]``; its probe, its deadlines and its freshness all go by it."""
        config = Config(inventory=InventoryConfig(nodes="a[1-3]"), poll=Poll(interval_seconds=2.0),
                        host={"a[2-3]": HostOverride(interval_seconds=30.0)})
        inventory, settings = resolve([], config), poll_settings(config)
        own = [settings.of(node) for node in inventory.nodes]
        assert [one.interval_seconds for one in own] == [2.0, 30.0, 30.0]
        assert [one.pcie_interval_seconds for one in own] == [10.0, 30.0, 30.0]
        assert probe_args(own[1], "n")["every"] == dict.fromkeys(("gpu", "rdma", "host", "pcie", "net", "disk", "sockets"), 30.0)
        for node, every in zip(inventory.nodes, (2.0, 30.0, 30.0), strict=True):
            transport = SshTransport(node, Dialer(settings), Nobody(), lambda: None)
            talk = await transport._open_channel(Connection())  # type: ignore[arg-type]
            assert talk._settings.interval_seconds == every
        fleet = Fleet([NodeInfo("a", interval_seconds=30.0)], interval=30.0)
        fleet.step(gpu=gpus(count=1))
        for _ in range(55):
            fleet.step(1.0)
        assert fleet["gpu"].value("utilization_ratio", 0) == 0.95
        assert not fleet.seen

    @pytest.mark.parametrize(("cost", "every"), [(0.1, 2.0), (0.5, 2.0), (0.6, 2.4), (5.0, 16.0)])
    def test_g3_what_costs_more_than_a_quarter_of_the_interval_is_asked_less_often(self, cost: float, every: float) -> None:
        runner = Runner("gpu", {}, 0.0, 2.0, 4.0, Wake())
        runner._stretch(cost)
        assert runner.effective == pytest.approx(every)
        for _ in range(8):
            runner._stretch(0.01)
        assert runner.effective == 2.0


class Connection:
    """An SSH connection whose channels lead nowhere."""

    async def create_session(self, *args: object, **options: object) -> tuple[Connection, None]:
        return self, None

    def write(self, data: bytes) -> None:
        assert data


class Nobody:
    """A receiver of nothing."""

    def on_payload(self, payload: bytes) -> None:
        raise AssertionError(payload)

    def on_noise(self, kind: str, sample: bytes) -> None:
        raise AssertionError(sample)


def test_g6_the_field_s_input_stretches_the_interval() -> None:
    """G6a: the interval becomes at least four times what a start of the driver takes."""
    scenario, expect = case("G6", "scenario.json"), case("G6", "expect.json")
    runner = Runner("gpu", {}, 0.0, float(scenario["interval_s"]), 0.0, Wake())
    longest = 0.0
    for seconds in scenario["probe_s"]:
        runner._ms = 1000.0 * seconds
        runner._stretch(seconds)
        longest = max(longest, runner.effective)
    assert longest >= expect["interval_s_at_least"]
    fleet = Fleet()
    fleet.now += 1
    fleet.say(0, gpu=gpus({"persistence": 0}, {"persistence": 0}),
              states={"gpu": {"ms": 1000 * scenario["probe_s"][0], "iv": longest}})
    fleet.tick()
    assert [change.rule for change in fleet.seen] == ["gpu_persistence"]
    assert "9.4 s" in fleet.seen[0].message
    assert row_of(fleet).split()[1] == expect["node"]


def test_g5_a_long_run_with_reconnects_and_alerts_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """G5a, in small: what a day of 1000 nodes would hold is held in rings and logs with an end.

    The console's own memory at 1000 nodes is measured in bench/fleet.py; what a thousand disconnects leave behind is
    tested with the transports.
    """
    monkeypatch.setattr(core, "LOG_LIMIT", 200)
    fleet = Fleet(3)
    seconds = iter(range(10**6))

    def run(ticks: int) -> None:
        for _ in range(ticks):
            second = next(seconds)
            fleet.now += 1
            for node in range(3):
                bad = (second // 6 + node) % 3 == 0
                if second % 30 == 10 * node:
                    fleet.link(node, LinkState.UNREACHABLE, "timed out")
                    fleet.link(node, LinkState.UP)
                    fleet.encoders[node].want_full()
                fleet.say(node, gpu=gpus({"pcie_width": 8 if bad else 16, "temp": 88 if bad else 60}, {"temp": 50 + second % 9}),
                          port=ports(DOWN if bad else {"c:port_xmit_data": second * 1000, "c:link_downed": second // 12}))
            fleet.tick()
            fleet.seen.clear()

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        # Until the rings are full: what the paths remember of five minutes, and the log.
        run(330)
        before = held()
        run(140)
        grown = held() - before
    finally:
        tracemalloc.stop()
    assert fleet.core.snapshot is not None
    assert len(fleet.core.snapshot.log) == 200, "the log is full, and stays so"
    assert grown < 30_000, grown
