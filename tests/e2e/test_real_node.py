"""A whole node behind OpenSSH: trees of files, a compiled NVML under the real pynvml, the probe streamed to it."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from typing import TYPE_CHECKING

import pytest

from clustertop.commands.check import _check as check
from clustertop.inventory import Inventory
from clustertop.plan import Plan
from clustertop.rules.spec import builtin
from clustertop.session import Session
from nvml_lib import VARIABLE, Scenario, build
from sshd import Sshd, running
from trees import gpu_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clustertop.core import Snapshot

pytestmark = [pytest.mark.sshd, pytest.mark.cc]

HEALTHY = (
    "count 8", "driver 570.86.15", "all util 97", "all power_mw 612000", "all temp 61", "all temp_slowdown 87",
    "all mem_used 68719476736", "all pcie_gen 5", "all pcie_gen_max 5", "all pcie_gen_devmax 5", "all pcie_width 16",
    "all pcie_width_max 16", "all pstate 0",
    *(f"{index} pci 00000000:{0x13 + 0x0B * index:02X}:00.0" for index in range(8)),
)
"""At the addresses at which the tree has its GPUs."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Sshd, Scenario, Plan]]:
    """A node with 8 GPUs and 10 ports, and what a session needs to watch it."""
    library = build(tmp_path / "lib")
    scenario = Scenario(tmp_path / "scenario", *HEALTHY)
    gpu_node(tmp_path / "root")
    with running(tmp_path / "sshd", f"SetEnv {VARIABLE}={scenario.path}") as sshd:
        settings = sshd.settings(nvml=str(library), root=str(tmp_path / "root"))
        yield sshd, scenario, Plan(Inventory((sshd.node(),), index={"node1": 0}), settings, builtin())


async def until(session: Session, holds: Callable[[Snapshot], bool], seconds: float = 60.0) -> Snapshot:
    """Wait until a snapshot is as wanted; returns it."""
    async with asyncio.timeout(seconds):
        while session.snapshot is None or not holds(session.snapshot):
            await asyncio.sleep(0.02)
    return session.snapshot


def firing(snapshot: Snapshot) -> dict[str, list[str]]:
    """Rule to messages of what fires."""
    out: dict[str, list[str]] = {}
    for alert in snapshot.alerts:
        out.setdefault(alert.rule, []).append(alert.message)
    return out


async def test_readings_arrive_right(node: tuple[Sshd, Scenario, Plan]) -> None:
    _, scenario, plan = node
    scenario.add("2 power_mw 4294967295", "4 util 55")
    async with Session(plan, tick_seconds=0.1) as session:
        snapshot = await until(session, lambda now: len(now.view["gpu"]) == 8 and len(now.view["port"]) == 10)
        view = snapshot.view
        gpus, nodes = view["gpu"], view["node"]
        assert gpus.labels == tuple(f"GPU {index}" for index in range(8))
        assert gpus.value("utilization_ratio", 0) == pytest.approx(0.97)
        assert gpus.value("utilization_ratio", 4) == pytest.approx(0.55)
        assert gpus.value("power_watts", 1) == pytest.approx(612.0)
        assert gpus.value("power_watts", 2) is None
        assert gpus.reason("power_watts", 2) == "out of range"
        assert nodes.value("gpus_present", 0) == 8
        assert nodes.value("gpu_power_watts", 0) == pytest.approx(7 * 612.0)
        assert view.facts[0]["driver"] == "570.86.15"
        assert view["port"].value("link", 0) == 0
        assert view["port"].value("rate_bits_per_second", 0) == pytest.approx(400e9)
        endpoint = view["pcie"].col("endpoint")
        assert int((endpoint == 1).sum()) == 18
        assert snapshot.alerts == ()


async def test_a_lost_gpu_an_x8_gpu_and_a_hung_call_cost_only_themselves(node: tuple[Sshd, Scenario, Plan]) -> None:
    _, scenario, plan = node
    async with Session(plan, tick_seconds=0.1) as session:
        await until(session, lambda now: now.view["node"].value("gpus_present", 0) == 8)
        scenario.add("5 lost", "3 pcie_width 8")
        snapshot = await until(session, lambda now: {"pcie_width", "gpu_missing"} <= set(firing(now)))
        said = firing(snapshot)
        assert len(said["pcie_width"]) == 1
        assert "GPU 3" in said["pcie_width"][0]
        assert "is x8, expected x16, at hop" in said["pcie_width"][0]
        assert "31.5 GB/s lost each way" in said["pcie_width"][0]
        assert "LOST" in said["gpu_missing"][0]
        assert snapshot.view["node"].value("gpus_present", 0) == 7
        assert snapshot.view["gpu"].value("utilization_ratio", 6) == pytest.approx(0.97)

        scenario.add("2 hang nvmlDeviceGetPowerUsage")
        snapshot = await until(session, lambda now: "probe_hung" in firing(now))
        assert "nvmlDeviceGetPowerUsage" in firing(snapshot)["probe_hung"][0]
        port = snapshot.view["port"]
        before = int(port.reads[0])
        snapshot = await until(session, lambda now: int(now.view["port"].reads[0]) >= before + 5)
        assert snapshot.view["port"].level[0] == 0
        assert "rdma" not in {snapshot.view["group"].keys[row]
                              for row in range(len(snapshot.view["group"]))
                              if snapshot.view["group"].value("hung", row) == 1}

        scenario.drop("2 hang nvmlDeviceGetPowerUsage")
        await until(session, lambda now: "probe_hung" not in firing(now))


@pytest.mark.parametrize(("faults", "status", "rules"), [
    ((), 0, set()),
    (("6 temp 84",), 1, {"gpu_temperature"}),
    (("6 temp 84", "3 pcie_width 8"), 2, {"gpu_temperature", "pcie_width"}),
    (("5 lost",), 2, {"gpu_missing"}),
    (("2 hang nvmlDeviceGetPowerUsage", "6 temp 84"), 3, set()),
], ids=["ok", "warning", "critical", "lost", "hung"])
async def test_check_ends_with_the_status_of_the_worst(
    node: tuple[Sshd, Scenario, Plan], faults: tuple[str, ...], status: int, rules: set[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, scenario, plan = node
    if faults:
        scenario.add(*faults)
    assert await check(plan, Namespace(json=True, seconds=1.5, timeout=15.0)) == status
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == status
    assert {one["rule"] for one in report["findings"]} == rules
    if status == 3:
        (unread,) = report["unread"]
        # Within the deadline of the very first reading nobody can tell a slow call from a hung one.
        assert unread["why"].startswith(("gpu HUNG: nvmlDeviceGetPowerUsage", "gpu not read yet"))


async def test_a_killed_connection_comes_back_and_says_why_meanwhile(node: tuple[Sshd, Scenario, Plan]) -> None:
    sshd, _, plan = node
    async with Session(plan, tick_seconds=0.1) as session:
        await until(session, lambda now: now.view["node"].value("gpus_present", 0) == 8)
        sshd.stop()
        snapshot = await until(session, lambda now: "node_unreachable" in firing(now))
        assert firing(snapshot)["node_unreachable"][0]
        assert [alert.rule for alert in snapshot.alerts] == ["node_unreachable"]
        await until(session, lambda now: now.view["gpu"].value("utilization_ratio", 0) is None)
        sshd.start()
        snapshot = await until(session, lambda now: not now.alerts and now.view["gpu"].value(
            "utilization_ratio", 0) is not None)
        assert snapshot.view.link_reasons[0] == ""
