"""What the probe of each node is told to read beside what every one reads."""

from __future__ import annotations

from clustertop.model import NodeInfo
from clustertop.wire.bundle import probe_args
from clustertop.wire.transport import PollSettings


def test_nccl_logs_are_read_where_they_are_named() -> None:
    assert "nccl" not in probe_args(PollSettings(), "n")
    assert probe_args(PollSettings(nccl_logs=("/var/log/nccl/*.log",)), "n")["nccl"] == {"logs": ["/var/log/nccl/*.log"]}


def test_a_bmc_is_read_in_band_on_the_nodes_that_are_named() -> None:
    settings = PollSettings(in_band=frozenset({"g1"}), in_band_tool="/opt/ipmitool")
    assert "bmc" not in probe_args(settings, "n")
    assert "bmc" not in probe_args(settings.of(NodeInfo("g2")), "n")
    assert probe_args(settings.of(NodeInfo("g1")), "n")["bmc"] == {"tool": "/opt/ipmitool"}
    assert probe_args(settings.of(NodeInfo("g1")), "n")["every"]["bmc"] == 10.0  # type: ignore[index]
    seldom = PollSettings(in_band=frozenset({"g1", "g2"}), in_band_seconds={"g1": 120.0})
    assert probe_args(seldom.of(NodeInfo("g1")), "n")["every"]["bmc"] == 120.0  # type: ignore[index]
    slow = settings.of(NodeInfo("g1", interval_seconds=30.0))
    assert (slow.bmc_tool, slow.interval_seconds) == ("/opt/ipmitool", 30.0)
