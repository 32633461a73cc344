"""What the kernel's log says of a PCIe device, as alerts: its gravity, its hour, and what it is one cause with."""

from __future__ import annotations

from typing import Any

import pytest

from clustertop.model import Severity
from clustertop.probe.frames import Err, Table
from nodes import Fleet, gpus, lost, ports, table

GPU, NIC = "0000:10:00.0", "0000:20:00.0"
ATTRS = {GPU: {"class": "0x030200"}, NIC: {"class": "0x020700", "name": "ib0"}}
DOWN, SICK = f"mlx5_core {NIC} ib0: Link down", f"mlx5_core {NIC}: Fatal error 3 detected"
HOT = f"mlx5_core {NIC}: temp_warn:185:(pid 0): High temperature on sensors with bit set 0x2"
CORRECTED = f"nvidia {GPU}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)"
NONFATAL = f"nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)"
FATAL = f"nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"


def said(*lines: str, at: float = 900.0, more: str | None = None) -> dict[str, Any]:
    """What the probe sends of a device of which the log has these lines, newest first."""
    if not lines:
        return {"klog_count": 0}
    return {"klog_count": len(lines), "klog_time": at, "klog": "\n".join(f"1x {line}" for line in lines), "klog_more": more}


def pcie(gpu: dict[str, Any] | None = None, nic: dict[str, Any] | None = None) -> Table:
    usual = {"cur_width": 16, "max_width": 16, "aer_cor": 0, "aer_nonfatal": 0, "aer_fatal": 0, "klog_count": 0}
    return table({GPU: {**usual, **(gpu or {})}, NIC: {**usual, **(nic or {})}}, ATTRS)


@pytest.mark.parametrize(("lines", "severity", "text"), [
    ((DOWN,), Severity.INFO, "kernel log: link down: its port has alerts of its own"),
    ((HOT,), Severity.WARNING, "too hot, at sensors 0x2 (hardware)"),
    ((DOWN, SICK, HOT), Severity.CRITICAL, "fatal error 3 of the card (hardware)"),
    ((f"mlx5_core {NIC}: Fatal error of next year",), Severity.INFO, "a message that we do not know"),
])
def test_the_gravest_line_decides(lines: tuple[str, ...], severity: Severity, text: str) -> None:
    fleet = Fleet()
    fleet.step(pcie=pcie())
    assert fleet.seen == []
    changes = fleet.step(pcie=pcie(nic=said(*lines)))
    assert [(change.rule, change.severity, change.thing.key) for change in changes] == [
        ("pcie_kernel_message", severity, NIC)]
    assert text in changes[0].message
    assert ("; and 2 more" in changes[0].message) is (len(lines) == 3)


def test_it_worsens_and_passes_when_the_hour_is_over() -> None:
    fleet = Fleet()
    for lines in ((), (DOWN,), (HOT, DOWN), (SICK, HOT, DOWN), (SICK, HOT, DOWN)):
        fleet.step(pcie=pcie(nic=said(*lines)))
    for _ in range(2):
        fleet.step(pcie=pcie(nic={"klog_count": 3, "klog_time": 900.0, "klog": ""}))
    assert fleet.rules == ["raised pcie_kernel_message", *["worsened pcie_kernel_message"] * 2,
                           "cleared pcie_kernel_message"]


def test_what_is_among_the_older_lines_counts_as_well() -> None:
    fleet = Fleet()
    fleet.step(pcie=pcie(nic=said(DOWN, more=f"1x {SICK}")))
    assert [alert.severity for alert in fleet.alerts] == [Severity.CRITICAL]
    assert "; and 1 more" in fleet.alerts[0].message


def test_columns_of_age_count_and_text() -> None:
    fleet = Fleet()
    fleet.step(pcie=pcie(nic=said(HOT, at=441.0)))
    view = fleet["pcie"]
    row = view.keys.index(NIC)
    assert view.value("kernel_messages_total", row) == 1
    assert view.value("kernel_message_age_seconds", row) == pytest.approx(60.0)
    number = view.value("kernel_messages", row)
    assert number is not None
    assert view.spec.metric("kernel_messages").words[int(number)] == f"1x {HOT}"
    assert view.value("kernel_message_level", view.keys.index(GPU)) == 0


def test_not_readable_is_unknown_and_neither_raises_nor_clears() -> None:
    fleet = Fleet()
    fleet.step(pcie=pcie(nic={"klog_count": Err("not readable")}))
    row = fleet["pcie"].keys.index(NIC)
    assert fleet["pcie"].value("kernel_message_level", row) is None
    assert fleet["pcie"].reason("kernel_message_level", row) == "not readable"
    fleet.step(pcie=pcie(nic=said(SICK)))
    for _ in range(3):
        fleet.step(pcie=pcie(nic={"klog_count": Err("not readable")}))
    assert fleet.rules == ["raised pcie_kernel_message"]


def test_lines_without_their_text_are_unknown_not_fine() -> None:
    fleet = Fleet()
    fleet.step(pcie=pcie(nic={"klog_count": 4, "klog": "what is this"}))
    row = fleet["pcie"].keys.index(NIC)
    assert fleet["pcie"].value("kernel_message_level", row) is None
    assert fleet["pcie"].reason("kernel_message_level", row).startswith("unreadable: what is this")


def test_nonfatal_errors_and_their_message_are_one_alert() -> None:
    fleet = Fleet()
    fleet.step(pcie=pcie())
    fleet.step(pcie=pcie({"aer_nonfatal": 1, **said(NONFATAL)}))
    assert fleet.firing == ["pcie_kernel_message"]
    assert [alert.severity for alert in fleet.alerts] == [Severity.WARNING]
    assert sorted(one.split()[0] for one in fleet.inside()) == ["pcie_errors", "pcie_kernel_message"]


def test_a_message_becomes_the_fatal_error_that_it_announced_and_outlives_it() -> None:
    fleet = Fleet()
    fleet.step(pcie=pcie())
    fleet.step(pcie=pcie({"aer_cor": 9, **said(CORRECTED)}))
    assert [(alert.rule, alert.severity) for alert in fleet.alerts] == [("pcie_kernel_message", Severity.INFO)]
    first = fleet.alerts[0].id
    over = {"aer_cor": 9, "aer_fatal": 1, **said(FATAL, CORRECTED)}
    fleet.step(pcie=pcie(over))
    assert [(alert.rule, alert.severity, alert.id) for alert in fleet.alerts] == [("pcie_fatal", Severity.CRITICAL, first)]
    for _ in range(70):
        fleet.step(pcie=pcie(over))
    assert [(alert.rule, alert.severity) for alert in fleet.alerts] == [("pcie_kernel_message", Severity.CRITICAL)]
    assert "fatal PCIe error" in fleet.alerts[0].message


def test_a_lost_gpu_covers_what_the_log_says_of_it_and_not_of_others() -> None:
    fleet = Fleet()
    fleet.step(gpu=gpus({}), pcie=pcie())
    for _ in range(3):
        fleet.step(gpu=gpus(lost()), pcie=pcie(said(FATAL), said(HOT)))
    assert fleet.firing == ["gpu_missing", "pcie_kernel_message"]
    assert [alert.thing.key for alert in fleet.alerts if alert.rule == "pcie_kernel_message"] == [NIC]
    mine = next(number for number, alert in enumerate(fleet.alerts) if alert.rule == "gpu_missing")
    assert sorted(one.split()[0] for one in fleet.inside(mine)) == ["gpu_missing", "pcie_kernel_message"]


def test_a_port_that_goes_down_has_its_own_alert_and_the_line_is_for_information() -> None:
    fleet = Fleet()
    fleet.step(port=ports({}), pcie=pcie())
    for _ in range(3):
        fleet.step(port=ports({"state": "1: DOWN", "phys_state": "2: Polling"}), pcie=pcie(nic=said(
            f"mlx5_core {NIC}: Port module event: module 0, Cable unplugged", DOWN)))
    grave = [alert.rule for alert in fleet.alerts if alert.severity > Severity.INFO]
    assert grave
    assert all(rule.startswith("rdma_") for rule in grave)
    assert [alert.severity for alert in fleet.alerts if alert.rule == "pcie_kernel_message"] == [Severity.INFO]
