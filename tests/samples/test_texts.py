"""Recorded output of programs whose text the product does not read, because it reads what they read.

lspci, ibstatus and ``rdma statistic`` print what stands in /sys. Each such sample is laid out here as the /sys that it
was printed from, and then read and judged by the product: every right reading of the notes is one row. Kernel logs are
read for Xids and for what drivers say of their devices. What is left is named in ``UNREAD``, with the reason.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clustertop.probe import kmsg, xid
from clustertop.signals import kernel_log
from samples.lab import Lab
from trees import NodeTree

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "samples"
needs_samples = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the recorded samples in {SHARED}")

CLASSES = {"PCI bridge": "0x060400", "3D controller": "0x030200", "VGA compatible controller": "0x030000",
           "Infiniband controller": "0x020700", "Ethernet controller": "0x020000",
           "Non-Volatile memory controller": "0x010802"}
VENDORS = {"NVIDIA": "0x10de", "Mellanox": "0x15b3", "Broadcom": "0x14e4", "Intel": "0x8086", "Micron": "0x1344"}

UNREAD = {
    "pcie/sysfs/gcm-dgx-a100-expected.json": "another tool's table of expectations, no reading",
    "rdma/ethtool/": "read by the parser of ethtool statistics, with tests of its own",
    "rdma/ibnetdiscover/": "the fabric query, not a node's own signals",
    "rdma/ibsim-run/": "the fabric query, not a node's own signals",
    "rdma/treydock/": "the fabric query, not a node's own signals",
    "rdma/gsi/": "the fabric query, not a node's own signals",
    "rdma/host-support/flint_query.txt": "needs root and the vendor's tool; fw_ver in /sys says the same version",
    "rdma/recreated/mlnx_qos.txt": "needs the vendor's tool; PFC shows in the pause counters by priority",
    "rdma/recreated/mlxlink-cm.txt": "needs root and the vendor's tool; its queries take the port's register lock",
    "rdma/recreated/show_gids.txt": "a listing of addresses, nothing to watch",
    "logs/nccl/": "job logs are a source of their own",
    "logs/recreated/nccl-2.2x-init-timings.log": "job logs are a source of their own",
}
"""Samples, or folders of them, that no reader of a node's signals takes, and why."""


@needs_samples
def test_every_sample_is_read_somewhere_or_named_with_a_reason() -> None:
    """The other readers: tests/smi (all of nvidia-smi), test_sysfs.py (both folders sysfs), this file."""
    here = {f"pcie/lspci/{name}" for name in LSPCI} | {f"pcie/recreated/{name}" for name in LSPCI}
    here |= {"rdma/ibstatus/azure-ndv4.txt", "rdma/recreated/rdma-j-statistic.json", "rdma/recreated/rdma-j-link.json"}
    left = []
    for folder in ("pcie", "rdma", "logs"):
        for path in sorted((SHARED / folder).rglob("*")):
            name = str(path.relative_to(SHARED))
            read = name in here or name.endswith(".sysfs.json") or name.startswith(("logs/dmesg/", "logs/journal/"))
            read |= name in {f"logs/recreated/{log}" for log in LOGS}
            if path.is_file() and path.name != "NOTES.md" and not read and not any(map(name.startswith, UNREAD)):
                left.append(name)
    assert not left
    assert all((SHARED / name).exists() for name in UNREAD), "a reason for a sample that is not there"


# ------------------------------------------------------------------------------------------------------------ lspci


def lay_out(text: str, root: Path) -> NodeTree:
    """The /sys that ``lspci -vvv`` was run on: classes, links, and who hangs below which bridge."""
    tree = NodeTree(root)
    blocks = [block for block in re.split(r"\n(?=[0-9a-f]{2,4}:\S)", text) if re.match(r"[0-9a-f]{2,4}:", block)]
    bridges: dict[tuple[str, int], str] = {}
    for block in blocks:
        head = re.match(r"(?:([0-9a-f]{4,5}):)?([0-9a-f]{2}):([0-9a-f]{2}\.\d) (.*?)(?: \[[0-9a-f]{4}\])?: (.*)", block)
        assert head, block[:80]
        domain, bus, place, kind, words = head.groups()
        address = f"{domain or '0000'}:{bus}:{place}"
        above = bridges.get((domain or "0000", int(bus, 16)))
        base = f"{above}/{address}" if above else f"sys/devices/pci{address[:7]}/{address}"
        below = re.search(r"secondary=([0-9a-f]{2})", block)
        if below:
            bridges[domain or "0000", int(below[1], 16)] = base
        tree.write(f"{base}/class", CLASSES.get(kind, "0x088000"))
        tree.write(f"{base}/vendor", next((code for name, code in VENDORS.items() if name in words), "0x1b36"))
        device = re.search(r"Device ([0-9a-f]{4})|\[[0-9a-f]{4}:([0-9a-f]{4})\]", words)
        tree.write(f"{base}/device", f"0x{device[1] or device[2]}" if device else words[:40])
        for which, link in (("max", re.search(r"LnkCap:.*?Speed ([\d.]+)GT/s.*?Width x(\d+)", block)),
                            ("current", re.search(r"LnkSta:\s*Speed ([\d.]+)GT/s.*?Width x(\d+)", block))):
            if link:
                speed = link[1] if "." in link[1] else f"{link[1]}.0"
                tree.write(f"{base}/{which}_link_speed", f"{speed} GT/s PCIe")
                tree.write(f"{base}/{which}_link_width", link[2])
        tree.link(f"sys/bus/pci/devices/{address}", base)
    return tree


LSPCI = {"h100-host-part1.vvv.txt": 28, "a100-host.nn.txt": 0, "a10-host.nn.txt": 0, "lspci-4090-idle-gen1.vvv.txt": 1,
         "lspci-connectx6-x8.vvv.txt": 2}
"""How many devices of it have a link."""


def judged(name: str, root: Path) -> Lab:
    """The product's picture of one listing."""
    path = next(path for path in (SHARED / "pcie").rglob("*.txt") if path.name == name)
    lab = Lab(lay_out(path.read_text(), root).root)
    lab.poll()
    lab.poll()
    return lab


@needs_samples
@pytest.mark.parametrize(("name", "linked"), LSPCI.items())
def test_a_listing_is_read_whole(name: str, linked: int, tmp_path: Path) -> None:
    lab = judged(name, tmp_path)
    devices = lab.table("pcie")
    assert len(devices) > 0
    bases = (tmp_path / "sys/bus/pci/devices").iterdir()
    assert sum((base / "current_link_width").exists() for base in bases) == linked
    if not linked:
        assert [devices.value("width_lanes", row) for row in range(len(devices))] == [None] * len(devices)
        assert not lab.seen, "nothing is known, so nothing is wrong and nothing is right"


NODE = "h100-host-part1.vvv.txt"
READINGS = [
    (NODE, "0000:19:00.0", "width_lanes", 16), (NODE, "0000:19:00.0", "speed_gts", 32),
    (NODE, "0000:3b:00.0", "width_lanes", 16), (NODE, "0000:3b:00.0", "path_width_lanes", 16),
    (NODE, "0000:19:00.0", "width_missing_lanes", 0), (NODE, "0000:1a:00.0", "speed_gts", 32),
    (NODE, "0000:1a:00.0", "path_width_lanes", 16), (NODE, "0000:3c:00.0", "width_lanes", 16),
    (NODE, "0000:1b:00.0", "speed_gts", 16), (NODE, "0000:1b:00.0", "speed_missing_gts", 0),
    (NODE, "0000:17:03.0", "speed_gts", 16), (NODE, "0000:17:03.0", "speed_max_gts", 32),
    (NODE, "0000:17:03.0", "width_lanes", 16), (NODE, "0000:17:00.0", "speed_gts", 16),
    (NODE, "0000:17:00.0", "speed_max_gts", 32), (NODE, "0000:17:00.0", "width_lanes", 4),
    (NODE, "0000:39:00.0", "speed_gts", 16), (NODE, "0000:39:00.0", "width_lanes", 4),
    (NODE, "0000:18:00.0", "width_missing_lanes", 0), (NODE, "0000:3a:00.0", "width_missing_lanes", 0),
    (NODE, "0000:00:0c.0", "speed_gts", 5), (NODE, "0000:00:0c.0", "speed_max_gts", 8),
    (NODE, "0000:01:00.0", "width_lanes", 1), (NODE, "0000:01:00.1", "width_max_lanes", 2),
    (NODE, "0000:01:00.0", "width_missing_lanes", None),
    ("lspci-4090-idle-gen1.vvv.txt", "0000:41:00.0", "speed_gts", 2.5),
    ("lspci-4090-idle-gen1.vvv.txt", "0000:41:00.0", "speed_max_gts", 16),
    ("lspci-4090-idle-gen1.vvv.txt", "0000:41:00.0", "width_lanes", 16),
    ("lspci-connectx6-x8.vvv.txt", "0000:a1:00.0", "speed_gts", 8),
    ("lspci-connectx6-x8.vvv.txt", "0000:a1:00.0", "speed_max_gts", 16),
    ("lspci-connectx6-x8.vvv.txt", "0000:a1:00.0", "width_missing_lanes", 8),
    ("lspci-connectx6-x8.vvv.txt", "0000:a2:00.0", "width_lanes", 8),
    ("lspci-connectx6-x8.vvv.txt", "0000:a2:00.0", "width_missing_lanes", 8),
    ("lspci-connectx6-x8.vvv.txt", "0000:a3:00.0", "width_lanes", None),
    ("lspci-connectx6-x8.vvv.txt", "0000:a3:00.0", "speed_gts", None),
    ("lspci-connectx6-x8.vvv.txt", "0000:a3:00.0", "width_missing_lanes", None),
]


@needs_samples
@pytest.mark.parametrize(("name", "device", "column", "expected"), READINGS,
                         ids=[f"{name.split('.')[0]}-{device[5:]}-{column}" for name, device, column, _ in READINGS])
def test_right_readings_of_the_listings(
    name: str, device: str, column: str, expected: float | None, tmp_path: Path
) -> None:
    assert judged(name, tmp_path).value("pcie", device, column) == expected


@needs_samples
@pytest.mark.parametrize(("name", "alerts"), [
    (NODE, []), ("lspci-4090-idle-gen1.vvv.txt", []), ("a100-host.nn.txt", []), ("a10-host.nn.txt", []),
    ("lspci-connectx6-x8.vvv.txt", [("pcie_width", "0000:a1:00.0"), ("pcie_width", "0000:a2:00.0")]),
])
def test_alerts_of_the_listings(name: str, alerts: list[tuple[str, str]], tmp_path: Path) -> None:
    """An x1 of x2 on board, bridges slowed by what hangs below them, and an idle card are no alarms."""
    lab = judged(name, tmp_path)
    assert sorted((one.rule, one.thing.key) for one in lab.alerts) == alerts


OWN = """01:00.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])
\tBus: primary=01, secondary=02, subordinate=02, sec-latency=0
\t\tLnkCap:\tPort #1, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s, Width x8 (downgraded)

02:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x16 (ok)

03:00.0 Ethernet controller: Broadcom Inc. and subsidiaries NetXtreme BCM5720
\t\tLnkCap:\tPort #0, Speed 5GT/s, Width x2, ASPM not supported
\t\tLnkSta:\tSpeed 5GT/s (ok), Width x1 (downgraded)
"""


def test_a_listing_of_our_own(tmp_path: Path) -> None:
    lab = Lab(lay_out(OWN, tmp_path).root)
    lab.poll()
    lab.poll()
    assert [(one.rule, one.thing.key) for one in lab.alerts] == [("pcie_width", "0000:01:00.0")]
    assert lab.value("pcie", "0000:02:00.0", "path_width_lanes") == 8
    assert lab.value("pcie", "0000:03:00.0", "width_missing_lanes") is None


# ------------------------------------------------------------------------------------------ ibstatus, rdma statistic


def from_ibstatus(text: str, root: Path) -> Lab:
    """ibstatus is a shell script that prints files of /sys: these."""
    tree = NodeTree(root)
    for device, number, body in re.findall(r"Infiniband device '(\S+)' port (\d+) status:\n((?:[ \t]+.*\n?)+)", text):
        said = dict(re.findall(r"^\s+([a-z_ ]+?):\s+(.*?)\s*$", body, re.MULTILINE))
        base = f"sys/class/infiniband/{device}/ports/{number}"
        for file, name in (("state", "state"), ("phys_state", "phys state"), ("rate", "rate"), ("link_layer", "link_layer")):
            tree.write(f"{base}/{file}", said[name])
    lab = Lab(tree.root)
    lab.poll()
    return lab


@needs_samples
@pytest.mark.parametrize(("port", "layer", "rate"), [
    ("mlx5_an0/1", "Ethernet", 40e9), ("mlx5_ib0/1", "InfiniBand", 200e9)])
def test_right_readings_of_ibstatus(port: str, layer: str, rate: float, tmp_path: Path) -> None:
    text = (SHARED / "rdma/ibstatus/azure-ndv4.txt").read_text()
    lab = from_ibstatus(text, tmp_path)
    assert lab.value("port", port, "link") == 0
    assert lab.value("port", port, "lanes") == 4
    assert lab.value("port", port, "rate_bits_per_second") == rate
    assert lab.table("port").attrs[lab.row("port", port)]["link_layer"] == layer


DRIVERS = {"mlx5": "mlx5_core", "bnxt": "bnxt_re", "rdma": "efa"}


def from_statistic(text: str, root: Path) -> Lab:
    """``rdma -j statistic`` gives the values of hw_counters."""
    tree = NodeTree(root)
    for link in json.loads(text):
        name, number = link["ifname"], link["port"]
        base = f"sys/devices/pci0000:00/0000:{0x17 + link['ifindex']:02x}:00.0"
        driver = DRIVERS.get(name[:4], "rxe")
        tree.directory(f"sys/bus/pci/drivers/{driver}")
        tree.link(f"{base}/driver", f"sys/bus/pci/drivers/{driver}")
        tree.link(f"sys/class/infiniband/{name}/device", base)
        tree.write(f"sys/class/infiniband/{name}/ports/{number}/state", "4: ACTIVE")
        for counter, value in link.items():
            if counter not in ("ifindex", "ifname", "port"):
                tree.write(f"sys/class/infiniband/{name}/ports/{number}/hw_counters/{counter}", value)
    lab = Lab(tree.root)
    lab.poll()
    return lab


@needs_samples
@pytest.mark.parametrize(("port", "column", "expected"), [
    ("mlx5_0/1", "out_of_sequence", 713), ("mlx5_0/1", "packet_seq_err", 209), ("mlx5_0/1", "np_cnp_sent", 91023),
    ("mlx5_0/1", "rp_cnp_handled", 512340), ("mlx5_0/1", "soft_errors_total", 0),
    ("rdmap16s27/1", "retrans_pkts", 1042), ("rdmap16s27/1", "tx_bytes", 9123456789012),
    ("bnxt_re0/1", "tx_bytes", 1840), ("bnxt_re0/1", "rx_bytes", 911),
])
def test_right_readings_of_rdma_statistic(port: str, column: str, expected: float, tmp_path: Path) -> None:
    lab = from_statistic((SHARED / "rdma/recreated/rdma-j-statistic.json").read_text(), tmp_path)
    assert lab.value("port", port, column) == expected
    # No driver of the kernel has this name; what the catalogue does not know is named, not guessed.
    unknown = ["hw_counters/out_of_sequence_err"] if port == "bnxt_re0/1" else None
    assert lab.table("port").attrs[lab.row("port", port)].get("unclassified") == unknown


STATES = {"ACTIVE": "4: ACTIVE", "DOWN": "1: DOWN", "LINK_UP": "5: LinkUp", "POLLING": "2: Polling"}


@needs_samples
@pytest.mark.parametrize(("port", "link"), [("mlx5_0/1", "up"), ("mlx5_1/1", "down (polling: no partner signal)"),
                                            ("mlx5_bond_0/1", "up"), ("rxe0/1", "up")])
def test_right_readings_of_rdma_link(port: str, link: str, tmp_path: Path) -> None:
    tree = NodeTree(tmp_path)
    for one in json.loads((SHARED / "rdma/recreated/rdma-j-link.json").read_text()):
        base = f"sys/class/infiniband/{one['ifname']}/ports/{one['port']}"
        tree.write(f"{base}/state", STATES[one["state"]])
        tree.write(f"{base}/phys_state", STATES[one["physical_state"]])
    lab = Lab(tree.root)
    lab.poll()
    state = lab.value("port", port, "link")
    assert state is not None
    assert lab.table("port").spec.metric("link").words[int(state)] == link


# ------------------------------------------------------------------------------------------------------- kernel logs


LOGS = ("aer-three-kernel-generations.log", "mlx5-health-and-link.log")
XIDS = [
    ("dmesg/xid-119-gsp-timeout.T.log", {("0000:9b:00", 119): 5}),
    ("dmesg/xid-13-iso.decode.log", {("0000:38:00", 13): 16, ("0000:38:00", 43): 1}),
    ("dmesg/kmsg-raw-nvswitch.log", {}), ("dmesg/pstore-panic.log", {}), ("dmesg/mlx5-events.txt", {}),
    ("journal/azure-auditd-noise.log", {}), *((f"recreated/{name}", {}) for name in LOGS),
]


@needs_samples
@pytest.mark.parametrize(("name", "expected"), XIDS, ids=[name for name, _ in XIDS])
def test_how_many_xids_a_log_has_and_whose(name: str, expected: dict[tuple[str, int], int]) -> None:
    found: dict[tuple[str, int], int] = {}
    for line in (SHARED / "logs" / name).read_text(errors="replace").splitlines():
        one = xid.parse(line)
        if one:
            found[one] = found.get(one, 0) + 1
    assert found == expected


@needs_samples
@pytest.mark.parametrize("slot", ["0000:04:00", "0008:01:00", "0018:01:00", "0019:01:00"])
def test_nvlink_faults_of_a_rack_scale_node(slot: str) -> None:
    lines = (SHARED / "logs/dmesg/xid-nvlink5-gb200.txt").read_text().splitlines()
    codes = {one[1] for line in lines if (one := xid.parse(line)) and one[0] == slot}
    assert codes
    assert codes <= {144, 145, 149}
    assert (149 in codes) is (slot != "0000:04:00")


def meanings(name: str) -> list[kernel_log.Message]:
    return kernel_log.messages((SHARED / "logs" / name).read_text(errors="replace").splitlines())


INFO, WARNING, CRITICAL = 1, 2, 3
SAID = [
    ("dmesg/xid-119-gsp-timeout.T.log", [("0000:9b:00", "xid", CRITICAL)] * 5),
    ("dmesg/xid-13-iso.decode.log", [("0000:38:00", "xid", INFO)] * 17),
    ("dmesg/kmsg-raw-nvswitch.log", []),
    ("journal/azure-auditd-noise.log", []),
    ("dmesg/pstore-panic.log", [("0000:41:00.1", "bandwidth", 0), ("0000:41:00.1", "cable_out", INFO),
                                ("0000:41:00.0", "link_up", 0), ("", "panic", CRITICAL)]),
    ("recreated/aer-three-kernel-generations.log", [
        ("0000:64:02.0", "aer_corrected", INFO), ("0000:81:00.0", "aer_corrected", INFO),
        ("0000:17:00.0", "aer_many", WARNING), ("0000:17:00.0", "aer_fatal", CRITICAL)]),
    ("recreated/mlx5-health-and-link.log", [
        ("0000:5e:00.0", "firmware_dead", CRITICAL), ("0000:5e:00.0", "firmware_error", CRITICAL),
        ("0000:5e:00.0", "firmware_syndrome", CRITICAL), ("0000:5e:00.0", "card_reset", WARNING),
        ("0000:5e:00.0", "link_down", INFO), ("0000:5e:00.0", "link_up", 0), ("0000:5e:00.0", "cable_out", INFO),
        ("0000:5e:00.0", "card_hot", WARNING), ("0000:81:00.0", "link_down", INFO)]),
]


@needs_samples
@pytest.mark.parametrize(("name", "expected"), SAID, ids=[name for name, _ in SAID])
def test_what_a_kernel_log_says(name: str, expected: list[tuple[str, str, int]]) -> None:
    assert [(one.address, one.kind.name, one.level) for one in meanings(name)] == expected


@needs_samples
@pytest.mark.parametrize(("address", "errors", "hidden"), [
    ("0000:64:02.0", [("BadTLP",)], 0), ("0000:81:00.0", [("RxErr",)], 0),
    ("0000:17:00.0", [("Rollover", "Timeout"), ("CmpltTO",)], 8156)])
def test_pcie_errors_of_three_kernels(address: str, errors: list[tuple[str, ...]], hidden: int) -> None:
    mine = [one for one in meanings("recreated/aer-three-kernel-generations.log") if one.address == address]
    assert [one.errors for one in mine] == errors
    assert sum(one.hidden for one in mine) == hidden


@needs_samples
def test_what_a_log_says_beside_the_kinds() -> None:
    panic = {one.kind.name: one for one in meanings("dmesg/pstore-panic.log")}
    assert "63.008 Gb/s (8.0 GT/s x8)" in panic["bandwidth"].words
    assert panic["cable_out"].seconds == pytest.approx(2.962781)
    assert "module 1" in panic["cable_out"].words
    health = {one.kind.name: one for one in meanings("recreated/mlx5-health-and-link.log") if one.address == "0000:5e:00.0"}
    down, up = health["link_down"].seconds, health["link_up"].seconds
    assert down is not None
    assert up is not None
    assert round(up - down) == 47
    assert health["link_down"].name == "ens1f0np0"


@needs_samples
@pytest.mark.parametrize(("kind", "count"), [("slot_power", 14), ("module_hot", 7), ("module_error", 1), ("register_refused", 6)])
def test_lines_of_mlx5(kind: str, count: int) -> None:
    """Of the watts only whole ones; of commands only refused registers."""
    text = (SHARED / "logs/dmesg/mlx5-events.txt").read_text().splitlines()
    found = [one for one in kernel_log.messages(text) if one.kind.name == kind]
    assert len(found) == count
    silent = [line for line in text if kernel_log.parse(line) is None and line.strip()]
    assert len(silent) == 7
    assert all(any(part in line for part in ("(W)", "27.5W", "27 W", "OTHER_CMD", "successful", "some other", "something"))
               for line in silent)


@needs_samples
@pytest.mark.parametrize("slot", ["0000:04:00", "0008:01:00", "0018:01:00", "0019:01:00"])
def test_fatal_nvlink_faults_are_to_be_acted_on(slot: str) -> None:
    mine = [one for one in meanings("dmesg/xid-nvlink5-gb200.txt") if one.address == slot]
    assert mine
    for one in mine:
        assert (one.level == CRITICAL) is (" Fatal " in one.text)
    assert any(one.level == CRITICAL for one in mine) is (slot != "0000:04:00")


@needs_samples
def test_the_probe_sends_each_of_them() -> None:
    """What has a meaning and a device is picked on the node, whatever stands before it; and the noise is not."""
    for path in sorted((SHARED / "logs").rglob("*.*")):
        if path.parent.name == "nccl" or path.name == "NOTES.md" or "nccl" in path.name:
            continue
        for line in path.read_text(errors="replace").splitlines():
            one = kernel_log.parse(line)
            messages = kmsg.Messages(kmsg.Log("/nowhere"))
            messages._take(f"4,1,1,-;{one.text if one else line}".encode(), 1.0)
            if one is None:
                assert not messages.names() or re.search(r": +\[ ?\d+\] ", line), "noise, but for names of errors"
            elif one.address and one.level and one.kind.name != "xid":
                assert messages.names() == [one.address], line
