"""What the kernel's log says of PCI devices: every form of line, what it means, and lines that are none of ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.probe.kmsg import Log, Messages
from clustertop.signals import kernel_catalogue as catalogue
from clustertop.signals import kernel_log
from work import growth

NIC, GPU, PORT = "0000:3b:00.0", "0000:4c:00.0", "0000:37:01.0"
INFO, WARNING, CRITICAL = 1, 2, 3

MEANINGS = [
    (f"mlx5_core {NIC}: mlx5_pcie_event:310:(pid 77): Detected insufficient power on the PCIe slot (35W).",
     NIC, "slot_power", WARNING, "power"),
    (f"mlx5_core {NIC}: Port module event[error]: module 3, Cable error, Bus stuck (I2C or data shorted)",
     NIC, "module_error", WARNING, "hardware"),
    (f"mlx5_core {NIC}: mlx5_port_module_event:9:(pid 0): Port module event[error]: module 3, Cable error, High Temperature",
     NIC, "module_hot", WARNING, "hardware"),
    (f"mlx5_core {NIC}: Port module event: module 0, Cable unplugged", NIC, "cable_out", INFO, "hardware"),
    (f"mlx5_core {NIC}: poll_health:825:(pid 0): device's health compromised - reached miss count",
     NIC, "firmware_dead", CRITICAL, "hardware"),
    (f"mlx5_core {NIC}: print_health_info:4:(pid 0): Health issue observed, hw error, severity(2) CRITICAL:",
     NIC, "firmware_error", CRITICAL, "hardware"),
    (f"mlx5_core {NIC}: print_health_info:4:(pid 0): Health issue observed, temperature, severity(4) WARNING:",
     NIC, "firmware_warning", WARNING, "hardware"),
    (f"mlx5_core {NIC}: wait_func:1152:(pid 5): QUERY_VPORT_STATE(0x750) timeout. Will cause a leak of a command resource",
     NIC, "command_timeout", WARNING, "hardware"),
    (f"mlx5_core {NIC}: mlx5_cmd_out_err:8:(pid 5): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3)",
     NIC, "register_refused", INFO, "driver"),
    (f"mlx5_core {NIC} ens3np0: Link down", NIC, "link_down", INFO, "unknown"),
    (f"bnxt_en {NIC} eth7: NIC Link is Down", NIC, "link_down", INFO, "unknown"),
    (f"mlx5_core {NIC}: 126.016 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x16 link at {PORT} (capable of "
     "252.048 Gb/s with 16.0 GT/s PCIe x16 link)", NIC, "bandwidth_limited", INFO, "hardware"),
    (f"pcieport {PORT}: pciehp: Slot(12): Link Down", PORT, "hotplug_down", WARNING, "hardware"),
    (f"pcieport {PORT}: DPC: containment event, status:0x1f01 source:0x0000", PORT, "dpc", CRITICAL, "hardware"),
    (f"pcieport {PORT}: AER: device recovery failed", PORT, "aer_unrecovered", CRITICAL, "hardware"),
    (f"nvidia {GPU}: AER: can't recover (no error_detected callback)", GPU, "aer_no_handler", WARNING, "driver"),
    (f"nvidia {GPU}: Unable to change power state from D3cold to D0, device inaccessible",
     GPU, "inaccessible", CRITICAL, "hardware"),
    (f"pci {GPU}: not ready 65535ms after bus reset; giving up", GPU, "reset_failed", CRITICAL, "hardware"),
    ("nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 41 LTSSM Fault Up", "0000:85:00.0", "sxid_fatal",
     CRITICAL, "fabric"),
    ("nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 7 egress non-posted PRIV error",
     "0000:85:00.0", "sxid", WARNING, "fabric"),
    ("nvme nvme4: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "", "drive_gone", CRITICAL,
     "hardware"),
    ("nvme nvme4: I/O 7 (I/O Cmd) QID 3 timeout, aborting", "", "drive_timeout", WARNING, "hardware"),
    ("critical medium error, dev nvme4n1, sector 81920 op 0x0:(READ)", "", "drive_medium", CRITICAL, "hardware"),
    ("NVRM: Xid (PCI:0000:4C:00): 79, pid=7, name=x, GPU has fallen off the bus.", "0000:4c:00", "xid", CRITICAL,
     "hardware"),
    ("NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 01", "0008:01:00", "xid", WARNING, "fabric"),
    ("NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 01", "0008:01:00", "xid", CRITICAL, "fabric"),
    (f"pcieport {PORT}: AER: Uncorrectable (Non-Fatal) error message received from {GPU}", GPU, "aer_nonfatal", WARNING,
     "hardware"),
]


@pytest.mark.parametrize(("line", "address", "kind", "level", "fault"), MEANINGS, ids=[row[2] + row[0][-9:] for row in MEANINGS])
def test_what_a_line_means(line: str, address: str, kind: str, level: int, fault: str) -> None:
    found = kernel_log.parse(line)
    assert found is not None
    assert (found.address, found.kind.name, found.level, found.fault) == (address, kind, level, fault)
    assert found.words
    assert "{" not in found.words
    assert found.text == line


@pytest.mark.parametrize("line", [
    "", "eth0: link becomes ready", "nvidia-nvswitch2: open (major=510)",
    f"mlx5_core {NIC}: Detected insufficient power on the PCIe slot (W).",
    f"mlx5_core {NIC}: Detected insufficient power on the PCIe slot (27.5W).",
    f"mlx5_core {NIC}: ACCESS_REG successful", f"mlx5_core {NIC}: mlx5_cmd_out_err:8:(pid 5): MODIFY_QP(0x5) failed",
    f"mlx5_core {NIC}: firmware version: 22.39.1002", f"mlx5_core {NIC}: print_health_info:4:(pid 0): assert_var[0] 0x0",
    f"python[7]: segfault mlx5_core {NIC}: device's health compromised - reached miss count",
    f"audit: comm=\"pcieport {PORT}: DPC: containment event\"",
    f"something before mlx5_core {NIC}: Fatal error 3 detected",
    f"nvidia {GPU}: device's health compromised - reached miss count",
    f" pcieport {PORT}: DPC: containment event, of another record",
])
def test_lines_that_say_nothing(line: str) -> None:
    assert kernel_log.parse(line) is None


@pytest.mark.parametrize(("before", "seconds", "said"), [
    ("", None, ""),
    ("[  812.345678] ", 812.345678, ""),
    ("[  812.345678] [T511] ", 812.345678, ""),
    ("[ 812.3][  C12] ", 812.3, ""),
    ("<4>[    2.60] ", 2.60, ""),
    ("4,977,812345678,-;", 812.345678, ""),
    ("3,977,812345678,-,caller=T7;", 812.345678, ""),
    ("[Tue Mar  4 10:11:12 2025] ", None, "Tue Mar  4 10:11:12 2025"),
    ("[Tue Mar  4 10:11:12 2025] node9 kernel: ", None, "Tue Mar  4 10:11:12 2025"),
    ("kern  :err   : [  812.345678] ", 812.345678, ""),
    ("kern  :warn  : 2025-03-04T10:11:12,283302+00:00 ", None, "2025-03-04T10:11:12,283302+00:00"),
    ("2025-03-04T10:11:12.283302+0100 ", None, "2025-03-04T10:11:12.283302+0100"),
    ("2025-03-04T10:11:12.283302+01:00 node9 kernel: ", None, "2025-03-04T10:11:12.283302+01:00"),
    ("Mar  4 10:11:12 node9 kernel: ", None, "Mar  4 10:11:12"),
    ("Mar  4 10:11:12 node9 kernel: [  812.345678] ", 812.345678, "Mar  4 10:11:12"),
    ("Mar  4 10:11:12 node9 kernel: [T511] ", None, "Mar  4 10:11:12"),
    ("node9 kernel: ", None, ""),
])
def test_times_of_all_forms(before: str, seconds: float | None, said: str) -> None:
    found = kernel_log.parse(f"{before}mlx5_core {NIC}: Fatal error 3 detected\r\n")
    assert found is not None
    assert (found.address, found.kind.name) == (NIC, "fatal_sensor")
    assert found.seconds == (None if seconds is None else pytest.approx(seconds))
    assert found.said == said
    assert found.text == f"mlx5_core {NIC}: Fatal error 3 detected"


class TestPcieErrors:
    """The wording of three generations of kernels; the root port that reports is not the device."""

    def test_an_old_kernel_names_the_device_after_the_report(self) -> None:
        found = kernel_log.messages([
            f"pcieport {PORT}: AER: Corrected error received: id=3b00",
            f"mlx5_core {NIC}: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=3b00(Receiver ID)",
            f"mlx5_core {NIC}:   device [15b3:1021] error status/mask=00000001/00002000",
            f"mlx5_core {NIC}:    [ 0] Receiver Error         (First)"])
        assert [(one.address, one.kind.name, one.errors, one.level) for one in found] == [
            (NIC, "aer_corrected", ("RxErr",), INFO)]

    def test_a_report_that_nothing_follows_stands_alone(self) -> None:
        found = kernel_log.messages([f"pcieport {PORT}: AER: Multiple Corrected error received: {NIC}",
                                     f"pcieport {PORT}: AER: Corrected error received: id=3b00"])
        assert [(one.address, one.kind.name) for one in found] == [(NIC, "aer_corrected"), ("", "aer_corrected")]

    def test_a_new_kernel_and_lines_that_it_left_out(self) -> None:
        found = kernel_log.messages([
            f"pcieport {PORT}: AER: Correctable error message received from {GPU}",
            f"nvidia {GPU}: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
            f"nvidia {GPU}:    [ 7] BadDLLP",
            f"nvidia {GPU}:    [12] Timeout                (First)",
            "aer_ratelimit: 77 callbacks suppressed"])
        assert [(one.address, one.kind.name, one.errors, one.hidden, one.level) for one in found] == [
            (GPU, "aer_many", ("BadDLLP", "Timeout"), 77, WARNING)]
        assert "77 lines left out" in found[0].words
        assert "BadDLLP" in found[0].words

    def test_corrected_then_fatal_are_two(self) -> None:
        found = kernel_log.messages([
            f"nvidia {GPU}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
            f"nvidia {GPU}:    [ 6] BadTLP",
            f"pcieport {PORT}: AER: Uncorrected (Fatal) error received: {GPU}",
            f"nvidia {GPU}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Data Link Layer, (Receiver ID)",
            f"nvidia {GPU}:    [ 5] SDES                   (First)"])
        assert [(one.kind.name, one.errors, one.level) for one in found] == [
            ("aer_corrected", ("BadTLP",), INFO), ("aer_fatal", ("SDES",), CRITICAL)]

    def test_two_devices_at_once_keep_their_own(self) -> None:
        found = kernel_log.messages([
            f"nvidia {GPU}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
            f"mlx5_core {NIC}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            f"nvidia {GPU}:    [ 6] BadTLP", f"mlx5_core {NIC}:    [ 0] RxErr"])
        assert {one.address: one.errors for one in found} == {GPU: ("BadTLP",), NIC: ("RxErr",)}

    def test_every_name_has_words(self) -> None:
        assert {*catalogue.CORRECTED.values(), *catalogue.UNCORRECTABLE.values()} - {"Undefined"} == set(catalogue.ERRORS)
        assert not set(catalogue.CORRECTED) & set(catalogue.UNCORRECTABLE)


@given(st.text(max_size=80), st.sampled_from([row[0] for row in MEANINGS]), st.text(max_size=40))
def test_no_text_makes_it_stumble(before: str, line: str, after: str) -> None:
    for text in (before, before + line, line + after, line[:40] + before):
        kernel_log.parse(text)
    kernel_log.messages([before, line, after])


@pytest.mark.parametrize("hostile", [
    "[" * 100_000, "6,1,2," * 20_000, "a :b : " * 20_000, f"mlx5_core {NIC}: " + "a:" * 50_000,
    f"mlx5_core {NIC}: Port module event: module 1," + " x," * 50_000, f"x {NIC}: " + "I/O 1 " * 20_000],
    ids=lambda text: repr(text[:40]))
def test_a_line_that_is_longer_costs_no_more_than_that(hostile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_log.parse(hostile) is None
    # Even if all of it were read.
    monkeypatch.setattr(kernel_log, "MAX_LINE", len(hostile))
    assert growth(kernel_log.parse, hostile) < 64, "sixteen times as long: about sixteen, not its square"


def test_every_kind_has_its_source_and_the_grave_ones_say_what_to_do() -> None:
    assert len(catalogue.NUMBER) == len(catalogue.KINDS) < kernel_log.STEP, "names are unique"
    for kind in catalogue.KINDS:
        assert kind.source or kind is catalogue.OTHER
        assert kind.todo or kind.level < WARNING or kind is catalogue.XID, kind.name


@pytest.mark.parametrize("line", [row[0] for row in MEANINGS if row[2] != "xid"])
def test_the_probe_picks_what_the_console_knows(line: str) -> None:
    """Whatever has a meaning is sent; Xids go with their GPU."""
    log = Log("/nowhere")
    Messages(log)._take(b"", 0.0)
    messages = Messages(log)
    messages._take(f"3,1,1000,-;{line}".encode(), 5.0)
    assert len(messages.names()) == 1


class TestCells:
    """What the probe sends: lines of a device, how often each, newest first."""

    def test_the_gravest_decides_and_the_lines_of_one_error_are_one(self) -> None:
        cell = "\n".join([f"9x mlx5_core {NIC} eth1: Link down", f"3x mlx5_core {NIC}:    [ 0] RxErr",
                          f"3x mlx5_core {NIC}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
                          f"2x pcieport {PORT}: AER: Multiple Corrected error received: {NIC}",
                          f"1x mlx5_core {NIC}: Fatal error 3 detected"])
        number = kernel_log.number(cell)
        assert number == kernel_log.number(cell), "one number for one text"
        assert [(one.kind.name, one.count) for one in kernel_log.listed(number)] == [
            ("link_down", 9), ("aer_corrected", 3), ("fatal_sensor", 1)]
        assert kernel_log.level(number) == CRITICAL

    def test_empty_unknown_and_no_cell(self) -> None:
        assert kernel_log.number("") == 0
        assert kernel_log.level(0.0) == 0
        assert kernel_log.listed(float("nan")) == ()
        assert kernel_log.level(float("nan")) != kernel_log.level(float("nan"))
        for wrong in ("x", "3 x", "3x", "-1x a", "3x a\nb"):
            with pytest.raises(ValueError, match="COUNTx TEXT"):
                kernel_log.number(wrong)

    def test_what_we_do_not_know_is_said_not_dropped(self) -> None:
        number = kernel_log.number(f"2x mlx5_core {NIC}: Fatal error of a kind that comes next year\x1b[2J")
        assert [(one.kind.name, one.text) for one in kernel_log.listed(number)] == [
            ("other", f"mlx5_core {NIC}: Fatal error of a kind that comes next year[2J")]
        assert kernel_log.level(number) == INFO

    def test_of_what_is_forgotten_the_gravity_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernel_log, "MOST_TEXTS", len(kernel_log.TEXTS) + 3)
        first = kernel_log.number(f"1x mlx5_core {NIC}: health recovery failed, once")
        for serial in range(len(kernel_log.TEXTS) + 5):
            kernel_log.number(f"1x mlx5_core {NIC} eth{serial}: Link down, of the test")
        assert int(first) not in kernel_log.TEXTS
        assert kernel_log.level(first) == CRITICAL
        assert [one.kind.name for one in kernel_log.listed(first)] == ["health_lost"]
        assert first < kernel_log.MOST
