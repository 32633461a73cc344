"""Every recorded output of nvidia-smi is read, and says what its notes say. Needs the samples beside the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustertop.probe.frames import Err
from clustertop.signals import smi, smi_text, smi_xml

SAMPLES = Path(__file__).parents[2].parent / "shared" / "samples" / "nvidia-smi"
FILES = sorted(str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*.*") if path.suffix != ".md")

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no recorded samples beside the project")

MIB = 1 << 20
UNKNOWN = object()
NA = "not provided"
MIG = "n/a (MIG)"


def read(name: str) -> Any:
    """A sample as its parser gives it."""
    text = (SAMPLES / name).read_text(errors="replace")
    base = Path(name).name
    if base.endswith(".xml"):
        return smi_xml.parse_xml(text)
    if "compute-apps" in base:
        return smi_text.processes(text)
    if base.endswith(".csv"):
        return smi.parse_csv(text)
    if ".q-" in base or base.endswith(".q.txt"):
        return smi_xml.parse_text(text)
    for mark, parse in (("table", smi_text.table), ("topo", smi_text.topology), ("nvlink", smi_text.nvlink),
                        ("dmon", smi_text.dmon), ("list", smi_text.listing)):
        if mark in base:
            return parse(text)  # type: ignore[operator]
    return smi.parse_csv(text, ("index",), 255)


@pytest.mark.parametrize("name", FILES)
def test_every_sample_is_read_and_says_something(name: str) -> None:
    got = read(name)
    if isinstance(got, smi.Smi):
        assert got.gpus or got.error
        assert not got.notes
        assert len({gpu.key for gpu in got.gpus}) == len(got.gpus)
        for gpu in got.gpus:
            assert gpu.attrs
            numbers = {column: cell for column, cell in gpu.cells.items() if not isinstance(cell, Err)}
            assert all(cell == cell and abs(cell) < 2**50 for cell in numbers.values())
    elif isinstance(got, smi_text.Topology):
        assert got.cpus
    else:
        assert got


def reading(gpu: smi.Gpu, column: str) -> object:
    if column in ("name", "pci", "uuid"):
        return gpu.attrs.get(column)
    if column == "mig_devices":
        return gpu.mig_devices
    cell = gpu.cells.get(column, Err("absent"))
    return cell.reason if isinstance(cell, Err) else cell


def xml(gen: object, width: str, util: object, watts: object, **more: object) -> dict[str, object]:
    """The readings of one line of the notes: generation now/most, width now of most, %, W."""
    now, _, most = str(gen).partition("/")
    lanes, _, widest = width.partition("/")
    expected: dict[str, object] = {"pcie_gen": int(now), "pcie_width": int(lanes), "util": util}
    if most:
        expected["pcie_gen_max"] = int(most)
    if widest:
        expected["pcie_width_max"] = int(widest)
    expected["power_mw"] = round(watts * 1000) if isinstance(watts, float) else watts
    return expected | more


READINGS: list[tuple[str, int, dict[str, object]]] = [
    ("xml/telegraf-a100-sxm4-v12.xml", 0, xml("4/4", "16/16", MIG, 67.03, temp=27, mem_used=50 * MIB,
                                             mem_total=81920 * MIB, mig=1, mig_devices=4)),
    ("xml/netdata-a100-sxm4-mig.xml", 0, xml("4/4", "16/16", MIG, 66.92, mig_devices=2)),
    ("xml/telegraf-a10g.xml", 0, xml("1/4", "8/16", 0, 25.58)),
    ("xml/telegraf-tesla-t4.xml", 0, xml("3/3", "8/16", 0, 26.78, mem_used=1032 * MIB, mem_total=15360 * MIB)),
    ("xml/telegraf-rtx-3080-v13.xml", 0, xml("4/4", "16/16", 65, 139.62, temp=27)),
    ("xml/telegraf-rtx-3060-v12.xml", 0, xml("1/4", "16/16", 0, 11.60)),
    ("xml/telegraf-rtx-3080-v12.xml", 0, xml("4/4", "16/16", 0, 22.78)),
    ("xml/telegraf-gtx-1070-ti.xml", 0, xml("1", "16", 0, NA, pcie_gen_max=NA, pcie_width_max=NA)),
    ("xml/telegraf-gtx-1660-ti.xml", 0, xml("1/3", "16/16", 0, 8.93, name="Graphics Device")),
    ("xml/telegraf-quadro-p400.xml", 0, xml("1/3", "16/16", 0, NA)),
    ("xml/telegraf-quadro-p2000-v12.xml", 0, xml("1/3", "8/16", 0, 4.61)),
    ("xml/netdata-rtx-3060.xml", 0, xml("1/4", "8/16", 0, 8.70, fan=NA)),
    ("xml/netdata-rtx-4090-driver-535.xml", 0, xml("1/3", "16/16", 0, 26.84)),
    ("xml/netdata-tesla-p100.xml", 0, xml("3/3", "16/16", 0, 26.16)),
    ("captures/h100-80gb-hbm3.q-idle.txt", 0, {"pcie_gen": 5, "pcie_width": 16}),
    ("captures/h100-80gb-hbm3.q-load.txt", 0, {"temp_margin": 26, "temp_slowdown": NA, "pcie_gen": 5, "pcie_width": 16, "util": 100, "power_mw": 629450}),
    ("captures/h100-80gb-hbm3.query-gpu-idle.csv", 0, {"pcie_gen": 5, "pcie_width": 16, "reasons": 1}),
    ("captures/h100-80gb-hbm3.query-gpu-load.csv", 0, {"temp_margin": 26, "pcie_gen": 5, "pcie_width": 16, "util": 100}),
    ("captures/h100-80gb-hbm3.table-load.txt", 0, {"util": 100, "power_mw": 629000, "mem_used": 19818 * MIB}),
    ("captures/h100-mig.query-gpu-load.csv", 0, {"util": MIG, "power_mw": 433780, "temp": 53, "temp_mem": 59,
                                                "mem_used": 11125 * MIB, "mem_total": 81559 * MIB, "mig": 1}),
    ("captures/h100-mig.q-load.txt", 0, {"util": MIG, "mig": 1, "mig_devices": 4}),
    ("captures/h100-mig.table-load.txt", 0, {"util": MIG, "mig": 1, "ecc_unc": NA}),
    ("captures/h200.query-gpu-load.csv", 0, {"util": 100, "power_mw": 627400, "power_limit_mw": 700000, "temp": 52,
                                            "mem_used": 32362 * MIB, "mem_total": 143771 * MIB}),
    ("captures/rtx2080s-win591.query-gpu-idle.csv", 0, {"pcie_gen": 3, "pcie_width": 16, "pcie_gen_hostmax": 4,
                                                       "power_mw": 38920, "fan": 37, "persistence": NA}),
    ("captures/rtx2080s-610.q-idle.txt", 0, {"power_mw": 38890, "power_limit_mw": 250000, "temp_slowdown": 97}),
    ("captures/rtx2080s-595.query-gpu-idle.csv", 0, {"power_mw": 39320, "temp_mem": NA}),
    ("captures/rtx4080s.query-gpu-idle.csv", 0, {"power_mw": 26200, "fan": 0}),
    ("captures/l40s.q-idle.txt", 0, {"mig": NA, "pcie_gen": 4}),
    ("azure/query-gpu-domains.csv", 2, {"pci": "0000000A:00:00.0"}),
    ("azure/nd96-a100-8gpu.q.txt", 0, {"pci": "00000001:00:00.0", "pcie_gen": 4, "power_mw": 55630}),
    ("recreated/query-unknown-error.csv", 0, {"util": 97, "power_mw": 231070, "pcie_width": 16, "fan": NA}),
    ("recreated/query-unknown-error.csv", 1, {"util": "Unknown Error", "temp": "Unknown Error",
                                             "pcie_width": "Unknown Error", "pci": "00000000:65:00.0"}),
    ("recreated/query-unknown-error.csv", 2, {"util": "GPU requires reset", "pcie_width": 8, "pcie_width_max": 16,
                                             "power_limit_mw": 250000}),
    ("recreated/query-unknown-error.csv", 3, {"util": 0, "power_mw": "Insufficient Permissions", "temp": 34,
                                             "fan": "Not Supported", "pcie_width": 16}),
    ("recreated/table-err.txt", 1, {"fan": "ERR!", "temp": 67, "power_mw": 97000, "util": 91}),
    ("recreated/table-err.txt", 2, {"power_mw": "ERR!", "power_limit_mw": 250000, "pci": "00000A11:00:00.0"}),
    ("recreated/gb10-unified-memory.csv", 0, {"mem_used": NA, "mem_total": NA, "util": 0, "power_mw": 10840}),
]


@pytest.mark.parametrize(("name", "place", "column", "expected"), [
    pytest.param(name, place, column, value, id=f"{Path(name).stem}-{place}-{column}")
    for name, place, expected in READINGS for column, value in expected.items()
])  # fmt: skip
def test_right_reading(name: str, place: int, column: str, expected: object) -> None:
    got = read(name)
    assert reading((got.gpus if isinstance(got, smi.Smi) else got)[place], column) == expected


def test_attached_gpus_may_be_more_than_are_told_of() -> None:
    got = read("xml/telegraf-a100-sxm4-v12.xml")
    assert (got.attached, len(got.gpus)) == (4, 1)


def test_eight_gpus_of_a_text_dump() -> None:
    got = read("azure/nd96-a100-8gpu.q.txt")
    assert len(got.gpus) == got.attached == 8
    assert len({gpu.attrs["pci"] for gpu in got.gpus}) == 8
    assert got.facts == {"driver": "460.32.03", "cuda": "11.2"}


def test_a_handle_that_cannot_be_had_names_its_gpu() -> None:
    got = smi.parse_csv((SAMPLES / "recreated/device-handle-lost.txt").read_text(), smi._IDENTITY, 255)
    assert not got.gpus
    assert got.blamed == {"0000:5e:00.0": "Unknown Error"}
    assert got.error.endswith("(nvidia-smi exit status 255)")


@pytest.mark.parametrize(("name", "down"), [
    ("captures/h100-80gb-hbm3.nvlink-s.txt", [[]]), ("captures/h200.nvlink-s.txt", [[]]),
    ("azure/v100-nvlink-inactive.s.txt", [[], [], [], [3, 5], [1], [0, 4], [1]]),
    ("recreated/nvlink-s-gb200.txt", [[5]]), ("gpud/a100-nvlink-status.txt", [[]] * 8),
])  # fmt: skip
def test_links_that_are_down(name: str, down: list[list[int]]) -> None:
    assert [gpu.inactive for gpu in read(name)] == down


def test_links_and_their_errors() -> None:
    assert [len(gpu.speeds) for gpu in read("captures/h100-80gb-hbm3.nvlink-s.txt")] == [18]
    links = read("gpud/a100-nvlink-status.txt")
    assert [set(gpu.speeds.values()) for gpu in links] == [{25.0}] * 8
    assert [len(gpu.speeds) for gpu in links] == [12] * 8
    errors = read("recreated/nvlink-e.txt")[0].errors
    assert errors[7]["crc"] == 4711
    assert errors[0]["crc"] == 0
    assert isinstance(errors[17]["crc"], Err)
    mig, = read("captures/h100-mig.nvlink-s.txt")
    assert not mig.speeds
    assert "not supported for Devices in MIG mode" in mig.error


def test_dmon_list_and_processes() -> None:
    lines = read("captures/h200.dmon-load.txt")
    assert all(625_000 < cells["power_mw"] < 635_000 and cells["util"] == 100 for _, cells in lines)
    assert isinstance(read("captures/rtx2080s-595.dmon-load.txt")[0][1]["temp_mem"], Err)
    (gpu, profiles), = read("captures/h100-mig.list.txt")
    assert profiles == ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
    assert gpu.mig_devices == 4
    assert [(one.pid, one.name, one.memory) for one in read("captures/h100-80gb-hbm3.compute-apps-load.csv")][2] == (
        11345, "./gpu_burn", 15690 * MIB)
    assert len(read("captures/rtx4080s.compute-apps-load.csv")) == 3


def test_topologies() -> None:
    single = read("captures/h100-80gb-hbm3.topo.txt")
    assert single.cpus == {"GPU0": "0-19"}
    assert not single.paths
    eight = read("recreated/topo-h100-8gpu-9nic.txt")
    near = [eight.nearest(f"GPU{index}") for index in range(8)]
    assert near == [["NIC0"], ["NIC1"], ["NIC2"], ["NIC3"], ["NIC5"], ["NIC6"], ["NIC7"], ["NIC8"]]
    assert eight.nics["NIC8"] == "mlx5_bond_0"
    assert eight.paths["GPU0", "GPU1"] == "NV18"
    assert read("recreated/topo-a100-old-mlx-names.txt").cpus["GPU0"] == "48-63,176-191"
