"""The one reader of the kernel's log, and what it picks of it: of whom, how often, and no more than fits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trees
from clustertop.probe import kmsg
from clustertop.probe.files import Call, Tree
from clustertop.probe.frames import MAX_TEXT, Err
from clustertop.probe.pcie import Pcie
from nvml_lib import Scenario
from probe.harness import VERSIONS, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clustertop.probe.files import Reading
    from probe.harness import Run

NIC, GPU, PORT = "0000:14:00.0", "0000:13:00.0", "0000:10:01.0"
DOWN = "mlx5_core {}: Fatal error {} detected"


@pytest.fixture
def node(tmp_path: Path) -> trees.NodeTree:
    tree = trees.gpu_node(tmp_path / "node", gpus=1, ports=1)
    tree.write("dev/kmsg", f"4,1,1000,-;{DOWN.format(NIC, 1)}, before we came")
    return tree


class Kernel:
    """Writes to the log of a tree."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 1

    def say(self, *lines: str, more: str = "") -> None:
        with self.path.open("a") as file:
            for line in lines:
                self.count += 1
                file.write(f"4,{self.count},{self.count}000,-;{line}\n{more}")


@pytest.fixture
def kernel(node: trees.NodeTree) -> Kernel:
    return Kernel(node.root / "dev/kmsg")


@pytest.fixture
def pcie(node: trees.NodeTree) -> Iterator[Pcie]:
    reader = Pcie(Tree(str(node.root), Call()))
    reader.read(100.0)
    yield reader
    reader.close()


def cells(reading: Reading, address: str) -> tuple[Any, ...]:
    """The log's cells of one device."""
    table = reading.tables["pcie"]
    row = [key for key, _ in table.rows].index(address)
    return tuple(table.cells[table.columns.index(column) * len(table.rows) + row] for column in kmsg.COLUMNS)


def test_only_what_is_new_counts_and_each_device_has_its_own(pcie: Pcie, kernel: Kernel) -> None:
    reading = pcie.read(101.0)
    assert reading.facts == {"kernel_log": "read"}
    assert cells(reading, NIC) == (0, None, None, None)
    kernel.say(DOWN.format(NIC, 2), f"mlx5_core {NIC} ib0: Link down", DOWN.format(NIC, 3), "usb 1-1: new device",
               f"nvidia {GPU}: AER: can't recover (no error_detected callback)", more=" SUBSYSTEM=pci\n DEVICE=+pci:0000:14:00.0\n")
    reading = pcie.read(102.0)
    assert cells(reading, NIC) == (3, 102.0, f"2x {DOWN.format(NIC, 3)}\n1x mlx5_core {NIC} ib0: Link down", None)
    assert cells(reading, GPU)[0] == 1
    assert cells(reading, PORT)[0] == 0
    assert cells(pcie.read(103.0), NIC)[0] == 3, "nothing is read twice"
    kernel.say(DOWN.format(NIC, 4))
    assert cells(pcie.read(104.096), NIC)[1] == 104.0, "not after the frame that tells it"


def test_the_reporting_port_is_not_the_device(pcie: Pcie, kernel: Kernel) -> None:
    kernel.say(f"pcieport {PORT}: AER: Corrected error received: id=1300",
               f"nvidia {GPU}: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=1300(Receiver ID)",
               f"nvidia {GPU}:   device [10de:2330] error status/mask=00000001/00002000",
               f"nvidia {GPU}:    [ 0] RxErr                  (First)",
               f"pcieport {PORT}: AER: Correctable error message received from {NIC}",
               "aer_ratelimit: 12 callbacks suppressed")
    reading = pcie.read(101.0)
    assert cells(reading, PORT)[0] == 0
    assert cells(reading, GPU)[:2] == (2, 101.0)
    assert cells(reading, NIC)[2] == (f"1x aer_ratelimit: 12 callbacks suppressed\n"
                                      f"1x pcieport {PORT}: AER: Correctable error message received from {NIC}")


def test_a_flood_pushes_nothing_else_out(pcie: Pcie, kernel: Kernel) -> None:
    kernel.say(f"mlx5_core {NIC}: poll_health:825:(pid 0): device's health compromised - reached miss count")
    for number in range(3000):
        kernel.say(f"mlx5_core {NIC} ib{number}: Link down")
    first = cells(pcie.read(101.0), NIC)[0]
    assert first <= kmsg.LOG_BYTES // 60, "one reading takes so much and no more"
    for moment in range(10):
        count, _, said, _ = cells(pcie.read(102.0 + moment), NIC)
    assert count == 3001
    assert said.startswith("3000x mlx5_core")
    assert "\n1x mlx5_core 0000:14:00.0: poll_health" in said


def test_no_more_kinds_and_no_longer_than_fits_and_no_longer_than_an_hour(pcie: Pcie, kernel: Kernel) -> None:
    for letter in "ABCDEFGHIJKL":
        kernel.say(f"mlx5_core {NIC}: Fatal error {letter * 500}")
    _, _, newest, older = cells(pcie.read(101.0), NIC)
    assert len(newest) <= MAX_TEXT
    assert len(older) <= MAX_TEXT
    assert newest.startswith(f"1x mlx5_core {NIC}: Fatal error LLLL")
    assert older.startswith("1x mlx5_core")
    assert all(len(line) <= kmsg.MAX_SAID + 4 for line in (newest + "\n" + older).split("\n"))
    kernel.say(DOWN.format(NIC, 9))
    pcie.read(101.0 + kmsg.KEEP_SECONDS / 2)
    assert cells(pcie.read(102.0 + kmsg.KEEP_SECONDS), NIC)[2:] == (f"1x {DOWN.format(NIC, 9)}", None)
    assert cells(pcie.read(102.0 + 2 * kmsg.KEEP_SECONDS), NIC) == (13, round(101.0 + kmsg.KEEP_SECONDS / 2, 1), "", None)


def test_a_drive_and_a_virtual_function_are_put_to_their_device(node: trees.NodeTree, kernel: Kernel, pcie: Pcie) -> None:
    drive, virtual = "0000:e1:00.0", "0000:14:00.3"
    node.pci(drive, PORT, kind="0x010802", vendor="0x144d", device="0xa824", driver="nvme")
    node.link("sys/class/nvme/nvme3/device", node.where(drive))
    node.pci(virtual, "0000:12:00.0", kind="0x020000", vendor="0x15b3", device="0x101e", driver="mlx5_core")
    node.link(f"{node.where(virtual)}/physfn", node.where(NIC))
    kernel.say("nvme nvme3: controller is down; will reset: CSTS=0x1, PCI_STATUS=0x10", DOWN.format(virtual, 1),
               "blk_update_request: critical medium error, dev nvme3n1, sector 81920")
    reading = pcie.read(101.0)
    assert cells(reading, drive)[0] == 2
    assert cells(reading, NIC)[0] == 1
    kernel.say(DOWN.format(virtual, 2), DOWN.format(NIC, 3))
    reading = pcie.read(102.0)
    assert cells(reading, NIC)[0] == 3
    assert virtual not in dict(reading.tables["pcie"].rows)


def test_a_switch_gets_a_row_when_the_log_speaks_of_it(node: trees.NodeTree, kernel: Kernel, pcie: Pcie) -> None:
    switch = "0000:e2:00.0"
    node.pci(switch, PORT, kind="0x068000", vendor="0x10de", device="0x22a3", driver="nvidia-nvswitch")
    assert switch not in dict(pcie.read(200.0).tables["pcie"].rows)
    kernel.say(f"nvidia-nvswitch0: SXid (PCI:{switch}): 20034, Fatal, Link 41 LTSSM Fault Up")
    assert cells(pcie.read(201.0), switch)[0] == 1


def test_lines_that_are_not_worth_sending(pcie: Pcie, kernel: Kernel) -> None:
    kernel.say(f"mlx5_core {NIC}: firmware version: 28.39.1002", f"mlx5_core {NIC} ib0: Link up",
               f"x[7]: mlx5_core {NIC}: Fatal error 3 detected", f"audit: comm=\"mlx5_core {NIC}: Fatal error 3 detected\"",
               "NVRM: Xid (PCI:0000:13:00): 79, pid=1, name=x, GPU has fallen off the bus.", "nvidia-nvswitch2: open (major=510)")
    reading = pcie.read(101.0)
    assert {cells(reading, key)[0] for key, _ in reading.tables["pcie"].rows} == {0}


def test_not_readable_is_said_and_no_zero(tmp_path: Path) -> None:
    tree = trees.gpu_node(tmp_path / "bare", gpus=1, ports=1)
    reader = Pcie(Tree(str(tree.root), Call()))
    reading = reader.read(100.0)
    assert reading.facts == {"kernel_log": "not readable: ENOENT"}
    assert cells(reading, NIC) == (Err("not readable"), None, None, None)
    tree.write("dev/kmsg", "")
    assert cells(reader.read(101.0), NIC)[0] == 0, "tried again"
    reader.close()


def test_it_never_waits(node: trees.NodeTree) -> None:
    (node.root / "dev/kmsg").unlink()
    os.mkfifo(node.root / "dev/kmsg")
    log = kmsg.Log(str(node.root))
    seen: list[bytes] = []
    log.listen(lambda line, now: seen.append(line))
    assert log.open()
    log.read(1.0)
    assert seen == []
    with (node.root / "dev/kmsg").open("w") as writer:
        writer.write("half a li")
        writer.flush()
        log.read(2.0)
        assert seen == []
        writer.write("ne\nnext\n")
        writer.flush()
        log.read(3.0)
    assert seen == [b"half a line", b"next"]
    with log._lock:
        log.read(4.0)
        log.close()
    log.close()


@pytest.mark.cc
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_one_reader_serves_xids_and_devices(
    version: str, start: Callable[..., Run], library: Path, tmp_path: Path, node: trees.NodeTree, kernel: Kernel
) -> None:
    scenario = Scenario(tmp_path / "scenario", "count 8", "without nvmlEventSetCreate")
    run = start(interpreter(version), env=scenario.env(), nvml=str(library), root=str(node.root))
    values = run.until(lambda values: "gpu" in values.rows and "pcie" in values.rows)
    assert values.facts["xid"] == "kernel log"
    assert values.facts["kernel_log"] == "read"
    opened = [link.readlink() for link in Path(f"/proc/{run.process.pid}/fd").iterdir()]
    assert opened.count(node.root / "dev/kmsg") == 1
    kernel.say("NVRM: Xid (PCI:0000:17:00): 31, pid=1, name=x, MMU Fault", DOWN.format(NIC, 4))
    values = run.until(lambda values: values.cell("pcie", NIC, "klog_count") == 1
                       and values.cell("gpu", "GPU-5eed0000-0000-4000-8000-000000000000", "xid") == 31)
    assert values.cell("pcie", NIC, "klog") == f"=1x {DOWN.format(NIC, 4)}"
    run.request(do="stop")
    assert run.wait() == 0


@pytest.mark.cc
def test_an_xid_that_the_driver_tells_of_is_not_counted_again_from_the_log(
    start: Callable[..., Run], library: Path, tmp_path: Path, node: trees.NodeTree, kernel: Kernel
) -> None:
    scenario = Scenario(tmp_path / "scenario", "count 8")
    run = start(env=scenario.env(), nvml=str(library), root=str(node.root))
    values = run.until(lambda values: "gpu" in values.rows and "pcie" in values.rows)
    assert values.facts["xid"] == "NVML events"
    scenario.add("event 0 48")
    kernel.say("NVRM: Xid (PCI:0000:17:00): 48, pid=1, name=x, DBE", DOWN.format(NIC, 4))
    values = run.until(lambda values: values.cell("pcie", NIC, "klog_count") == 1
                       and values.cell("gpu", "GPU-5eed0000-0000-4000-8000-000000000000", "xid") == 48)
    number = values.frame.g["gpu"].n if values.frame is not None else 0
    values = run.until(lambda values: values.frame is not None and values.frame.g["gpu"].n > number + 5)
    assert values.cell("gpu", "GPU-5eed0000-0000-4000-8000-000000000000", "xid_count") == 1
