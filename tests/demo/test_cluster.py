"""The simulated cluster: repeatable by its seed, shaped as the probe's frames, and its faults lead to their alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clustertop.core import Core
from clustertop.demo import machine as fixed
from clustertop.demo.cluster import Cluster, schedule
from clustertop.demo.faults import FAULTS, FaultError, parse, place
from clustertop.demo.plan import make_plan, slurm_id
from clustertop.demo.readings import OLD_FIRMWARE
from clustertop.demo.server import departures
from clustertop.model import LinkEvent, LinkState, NodeInfo, Severity
from clustertop.probe.frames import Encoder, line
from clustertop.probe.gpu import COLUMNS
from clustertop.rules.outliers import outliers
from clustertop.rules.spec import builtin
from clustertop.signals import gpu, pcie, rdma
from clustertop.wire.frame import decode
from work import calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.model import Transition

ARGS = {"every": {"gpu": 1.0, "rdma": 1.0, "host": 1.0, "pcie": 2.0}}
WALL = 1.7e9


class Watched:
    """A cluster, encoded, decoded and judged on a clock that the test turns."""

    def __init__(self, count: int, faults: Sequence[str] = (), seed: int = 7) -> None:
        self.cluster = Cluster(count, seed, [parse(text) for text in faults])
        nodes = [NodeInfo(node.name, rack=node.rack) for node in self.cluster.plan.nodes]
        self.core = Core(nodes, builtin())
        self.encoders = [Encoder() for _ in nodes]
        self.schedules = [schedule(ARGS) for _ in nodes]
        self.now = -1.0
        self.seen: list[Transition] = []
        self.core.listen(self.seen.extend)
        for number in range(count):
            self.core.on_link(LinkEvent(number, 100.0, LinkState.UP), WALL)

    def payload(self, number: int) -> bytes:
        node = self.cluster.nodes[number]
        groups = node.update(self.schedules[number], self.now)
        at = node.machine.boot_seconds + self.now
        return line(self.encoders[number].encode(groups, at, WALL + self.now, {}, node.machine.facts), "")

    def second(self) -> None:
        """One second on: a frame of every node, then one evaluation."""
        self.now += 1.0
        self.cluster.simulator.advance(self.now)
        for number in range(len(self.cluster.nodes)):
            raw = self.payload(number)
            assert self.core.on_frame(number, 100.0 + self.now, WALL + self.now, decode(raw), raw)
        self.core.tick(100.1 + self.now, WALL + self.now)

    def until(self, rule: str, seconds: int) -> Transition:
        """The first transition that tells of *rule* within *seconds*: raised, or what an early sign of it became."""
        for _ in range(seconds):
            self.second()
            for one in self.seen:
                if one.rule == rule and one.kind in {"raised", "worsened"}:
                    return one
        raise AssertionError(f"no {rule} within {seconds} s, only {[one.rule for one in self.seen]}")

    def value(self, table: str, column: str, row: int = 0) -> float:
        assert self.core.snapshot is not None
        view = self.core.snapshot.view.tables[table]
        return float(view.values[view.spec.index[column], row])


@pytest.mark.parametrize(
    ("fault", "rule", "label", "seconds"),
    [
        ("x8@gpu002", "pcie_width", "GPU", 6),
        ("x8-switch@gpu002", "pcie_width", ":00.0", 10),
        ("hot-x8@gpu002", "gpu_temperature", "GPU", 40),
        ("aer@gpu002", "pcie_kernel_message", "GPU", 16),
        ("rdma-errors@gpu002", "rdma_soft_errors", "mlx5_", 8),
        ("port-flap@gpu002", "rdma_port_down", "mlx5_", 6),
        ("gpu-lost@gpu002", "gpu_missing", "GPU", 6),
        ("x8-lost@gpu002", "pcie_width", "GPU", 6),
        ("x8-lost@gpu002", "gpu_missing", "GPU", 30),
        ("gpu-hung@gpu002", "probe_hung", "gpu group", 5),
        ("hot-gpu@gpu002", "gpu_temperature", "GPU", 40),
        ("straggler@gpu002", "gpu_straggler", "GPU", 135),
    ],
)
def test_each_fault_raises_its_alert_on_its_node_only(fault: str, rule: str, label: str, seconds: int) -> None:
    watched = Watched(2, [fault])
    found = watched.until(rule, seconds)
    assert found.thing.node == "gpu002"
    assert label in found.thing.label
    assert found.since >= 103.0  # not before the fault began
    assert {one.thing.node for one in watched.seen} == {"gpu002"}


def test_x8_names_gpu_hop_and_bandwidth() -> None:
    watched = Watched(1, ["x8:2"])
    found = watched.until("pcie_width", 5)
    device = watched.cluster.faults[0].device
    assert f"GPU {device}" in found.message
    assert "x8, expected x16" in found.message
    assert "31.5 GB/s" in found.message


def test_a_link_that_got_too_hot_drops_after_the_heat_and_the_errors() -> None:
    watched = Watched(1, ["hot-x8:2"])
    found = watched.until("pcie_width", 60)
    device = watched.cluster.faults[0].device
    assert f"GPU {device}" in found.message
    assert watched.core.snapshot is not None
    view = watched.core.snapshot.view
    row = next(row for row, label in enumerate(view["pcie"].labels) if label.startswith(f"GPU {device} "))
    trace = view.drops.trace(view["pcie"], row)
    assert trace is not None
    before = trace.seconds < 0
    assert trace.temperature_celsius[before & (trace.seconds > -6)].max() > 80
    assert trace.temperature_celsius[before & (trace.seconds < -34)].min() < 75
    assert trace.aer_per_second[before & (trace.seconds > -6)].min() > 0


def test_corrected_errors_are_told_of_before_the_fatal_one() -> None:
    watched = Watched(1, ["aer:2"])
    found = watched.until("pcie_kernel_message", 20)
    assert "corrected PCIe error: BadTLP" in found.message
    for _ in range(45):
        watched.second()
    assert watched.core.snapshot is not None
    assert [(one.kind, one.rule) for one in watched.seen] == [
        ("raised", "pcie_kernel_message"), ("worsened", "pcie_fatal")]
    assert [alert.rule for alert in watched.core.snapshot.alerts] == ["pcie_fatal"]
    view = watched.core.snapshot.view["pcie"]
    machine = watched.cluster.nodes[0].machine
    assert [view.keys[row] for row in np.flatnonzero(view.col("kernel_message_level") == 3)] == [
        machine.pcie_rows[machine.gpu_pcie[watched.cluster.faults[0].device]][0]]


def test_a_port_that_was_never_used_is_no_fault_and_neither_is_old_firmware() -> None:
    watched = Watched(4, ["port-unused@gpu002", "old-firmware@gpu003"])
    for _ in range(30):
        watched.second()
    assert watched.seen == []
    assert watched.core.snapshot is not None
    view = watched.core.snapshot.view
    unused = [view["port"].node[row] for row in range(len(view["port"])) if view["port"].value("never_used", row) == 1]
    assert unused == [1]
    found = outliers(view)
    assert {(one.node, one.what, one.value) for one in found} == {("gpu003", "fw", OLD_FIRMWARE)}
    assert len(found) == 8


def test_a_switch_uplink_at_x8_is_one_alert_at_the_switch() -> None:
    watched = Watched(1, ["x8-switch"])
    watched.until("pcie_width", 10)
    for _ in range(4):
        watched.second()
    raised = [one for one in watched.seen if one.rule == "pcie_width" and one.kind == "raised"]
    device = watched.cluster.faults[0].device
    machine = watched.cluster.nodes[0].machine
    assert [one.thing.key for one in raised] == [machine.pcie_rows[machine.above[device][1]][0]]


def test_a_flapping_port_comes_back_and_goes_again() -> None:
    watched = Watched(1, ["port-flap:1"])
    for _ in range(26):
        watched.second()
    kinds = [one.kind for one in watched.seen if one.rule == "rdma_port_down"]
    assert kinds == ["raised", "cleared", "raised"]


def test_a_hot_gpu_is_slowed_down_and_gets_critical() -> None:
    watched = Watched(1, ["hot-gpu:1"])
    watched.until("gpu_slowdown", 60)
    assert any(one.rule == "gpu_temperature" and one.severity == Severity.CRITICAL for one in watched.seen)
    gpu_number = watched.cluster.faults[0].device
    assert watched.value("gpu", "sm_clock_hertz", gpu_number) < 1.3e9


def test_a_hung_gpu_group_leaves_the_others_flowing() -> None:
    watched = Watched(1, ["gpu-hung:3"])
    watched.until("probe_hung", 6)
    before = watched.value("port", "port_xmit_data"), watched.value("gpu", "power_watts")
    watched.second()
    assert watched.value("port", "port_xmit_data") > before[0]
    assert watched.value("gpu", "power_watts") == before[1]


def test_a_healthy_cluster_is_quiet_through_checkpoints() -> None:
    watched = Watched(4)
    lows = 0
    for _ in range(430):
        watched.second()
        lows += watched.value("node", "gpu_utilization_ratio") < 0.4
    assert watched.seen == []
    assert any(node.job < 0 for node in watched.cluster.plan.nodes)
    assert lows > 5  # the first node trains, and has been through a checkpoint


def test_life_follows_the_load() -> None:
    watched = Watched(4)
    for _ in range(60):
        watched.second()
    assert watched.core.snapshot is not None
    table = watched.core.snapshot.view.tables["gpu"]
    busy = next(n for n, node in enumerate(watched.cluster.plan.nodes) if node.job >= 0)
    idle = next(n for n, node in enumerate(watched.cluster.plan.nodes) if node.job < 0)

    def mean(column: str, node: int) -> float:
        values = table.values[table.spec.index[column]]
        return float(values[table.node == node].mean())

    assert mean("utilization_ratio", busy) > 0.8
    assert mean("utilization_ratio", idle) == 0.0
    assert mean("power_watts", busy) > 350 > 100 > mean("power_watts", idle) > 50
    assert mean("temperature_celsius", busy) > mean("temperature_celsius", idle) + 15
    assert mean("pcie_generation", idle) == 1
    assert mean("pcie_width_lanes", idle) == 16
    ports = watched.core.snapshot.view.tables["port"]
    rate = ports.values[ports.spec.index["transmit_bytes_per_second"]]
    assert 1e8 < rate[ports.node == busy][:8].mean() < 50e9
    assert rate[ports.node == idle][:8].max() == 0


def test_every_column_is_one_that_the_console_reads_and_the_probe_sends() -> None:
    assert set(fixed.GPU_COLUMNS) == set(COLUMNS) == set(gpu.TABLE.raw_index)
    assert set(fixed.PCIE_COLUMNS) <= set(pcie.TABLE.raw_index)
    assert set(fixed.PORT_COLUMNS) <= set(rdma.TABLE.raw_index)
    watched = Watched(1)
    for _ in range(3):
        watched.second()
    snapshot = watched.core.snapshot
    assert snapshot is not None
    assert not snapshot.bad_frames
    sizes = {name: len(table.keys) for name, table in snapshot.view.tables.items()}
    assert sizes["gpu"] == 8
    assert sizes["port"] == 10
    assert sizes["pcie"] == 51
    # What the simulated card does not have, and the time of an Xid that did not come.
    lacking = {"power_instant_watts", "retired_pages_corrected_total", "retired_pages_uncorrected_total",
               "page_retirement_pending", "fan_ratio", "xid_time_seconds", "temperature_limit_margin_celsius"}
    # Not one of the values is out of the range that the console takes for possible.
    table = snapshot.view.tables["gpu"]
    for metric in table.spec.metrics:
        if metric.raw and metric.name not in lacking:
            assert not np.isnan(table.values[table.spec.index[metric.name]]).any(), metric.name


def test_the_same_seed_gives_the_same_life_whoever_looks_when() -> None:
    def frames(seed: int, looks: list[float]) -> list[Any]:
        cluster = Cluster(3, seed, [parse("hot-gpu:2")])
        for now in looks:
            cluster.simulator.advance(now)
            cluster.simulator.blocks()
        gpus, ports, hosts = cluster.simulator.blocks()
        return [gpus.tolist(), ports.tolist(), hosts, [node.machine.gpu_rows for node in cluster.nodes], cluster.plan]

    assert frames(7, [20.0]) == frames(7, [0.3, 1.0, 7.77, 20.1])
    assert frames(7, [20.0]) != frames(8, [20.0])


def tick_calls(count: int) -> tuple[int, float]:
    """What the third second of so many nodes calls: all of them moved on at once, and a node's frame made."""
    cluster = Cluster(count)
    encoders = [Encoder() for _ in cluster.nodes]
    plans = [schedule(ARGS) for _ in cluster.nodes]

    def send(now: float) -> None:
        for node, encoder, plan in zip(cluster.nodes, encoders, plans, strict=True):
            line(encoder.encode(node.update(plan, now), now, WALL, {}, node.machine.facts), "0" * 16)

    for now in (0.0, 1.0, 3.0):
        cluster.simulator.advance(now)
        send(now)
    return calls(lambda: cluster.simulator.advance(5.0)), calls(lambda: send(5.0)) / count


def test_a_tick_of_many_nodes_is_cheap() -> None:
    (few, _), (many, frame) = tick_calls(16), tick_calls(128)
    assert many < 1.2 * few, "they are moved on by steps, not by node"
    assert frame < 700


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x9", "did you mean x8?"),
        ("hotgpu", "did you mean hot-gpu?"),
        ("rdma", "did you mean rdma-errors?"),
        ("", "did you mean"),
        ("x8:soon", "'soon' is no start"),
        ("x8:-1", "0 to 86400"),
        ("x8:nan", "0 to 86400"),
        ("x8@", "no node after '@'"),
    ],
)
def test_a_fault_that_makes_no_sense_is_one_clear_sentence(text: str, words: str) -> None:
    with pytest.raises(FaultError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_faults_have_places_of_their_own_that_the_seed_decides() -> None:
    plan = make_plan(32, 7)
    faults = [parse(name) for name in FAULTS]
    placed = place(faults, plan, 7)
    assert placed == place(faults, plan, 7)
    assert placed != place(faults, plan, 8)
    assert len({one.node for one in placed}) == len(FAULTS)
    assert place([parse("x8@gpu003"), parse("x8@4:9")], plan, 7)[1].start_seconds == 9.0
    with pytest.raises(FaultError, match="gpu001 to gpu032"):
        place([parse("x8@gpu099")], plan, 7)
    # More faults than nodes: they share.
    assert {one.node for one in place(faults, make_plan(1, 7), 7)} == {0}


@pytest.mark.parametrize("count", [1, 3, 64, 128, 1000, 2048])
def test_plans_have_racks_leaves_jobs_and_idle_nodes(count: int) -> None:
    plan = make_plan(count, 7)
    assert len({node.name for node in plan.nodes}) == count
    racks = [node.rack for node in plan.nodes]
    assert racks.count("r1") == min(count, 8 if count <= 128 else 16)
    assert any(node.job < 0 for node in plan.nodes) == (count >= 4)
    assert {node.job for node in plan.nodes} - {-1} == set(range(len(plan.jobs)))


def test_a_link_that_goes_bad_before_its_gpu_is_lost_is_one_line() -> None:
    watched = Watched(2, ["x8-lost@gpu002"])
    watched.until("gpu_missing", 40)
    told = [change for change in watched.seen if change.rule in {"pcie_width", "gpu_missing"}]
    assert [f"{change.kind} {change.rule}" for change in told] == ["raised pcie_width", "worsened gpu_missing"]
    assert told[0].alert == told[1].alert
    assert told[0].since == told[1].since
    assert watched.core.snapshot is not None
    assert [alert.rule for alert in watched.core.snapshot.alerts] == ["gpu_missing"]


def test_rack_down_takes_every_node_of_one_rack() -> None:
    cluster = Cluster(32, 7, [parse("rack-down@gpu012:4"), parse("node-down@gpu001:9")])
    assert sorted(departures(cluster)) == [*((4.0, number) for number in range(8, 16)), (9.0, 0)]


@pytest.mark.parametrize("count", [0, -1, 2049])
def test_a_plan_of_an_impossible_size_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 2048 nodes"):
        make_plan(count, 7)


def test_nodes_tell_their_jobs_and_so_do_their_processes_when_asked() -> None:
    watched = Watched(8)
    plan = watched.cluster.plan
    watched.second()
    assert watched.core.snapshot is not None
    jobs = watched.core.snapshot.view.jobs
    for number, node in enumerate(plan.nodes):
        assert jobs.of_node[number] == ((slurm_id(node.job),) if node.job >= 0 else ())
    assert watched.core.snapshot.view.processes == (None,) * 8
    for one in watched.schedules:
        one.processes_until = watched.now + 2.5
    watched.second()
    view = watched.core.snapshot.view
    assert view.processes == ("",) * 8
    table = view["process"]
    assert len(table) == 8 * sum(node.job >= 0 for node in plan.nodes)
    used, gpus = table.col("gpu_memory_bytes"), view["gpu"]
    row = gpus.row_of(int(table.node[0]), str(table.attrs[0]["gpu"]))
    assert row is not None
    assert 0 < used[0] < gpus.col("memory_used_bytes")[row]
    for _ in range(3):
        watched.second()
    assert watched.core.snapshot.view.processes == (None,) * 8


def test_gpus_are_let_go_of_and_taken_again() -> None:
    watched = Watched(4)
    watched.second()
    watched.schedules[1].released = WALL
    for _ in range(10):
        watched.second()
    assert watched.core.snapshot is not None
    view = watched.core.snapshot.view
    assert [view["node"].value("gpus_released_seconds", node) is not None for node in range(4)] == [
        False, True, False, False]
    assert view["gpu"].reason("utilization_ratio", 8) == "released by the operator"
    assert not watched.core.snapshot.alerts
    watched.schedules[1].released = None
    watched.second()
    assert watched.core.snapshot.view["gpu"].value("utilization_ratio", 8) is not None
