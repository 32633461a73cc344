"""Field cases A5, A6, A7, A13, A14 and A15, for what nvidia-smi says: from its output to alerts.

The inputs are the field's where they stand beside the project, and always our own of the same kind.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustertop.probe.frames import Err
from clustertop.signals import smi, smi_xml
from clustertop.wire.shanswer import Section
from clustertop.wire.shgpus import Gpus
from nodes import Fleet

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
HEADER = "index, uuid, pci.bus_id, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], temperature.gpu"
LOST = "Unable to determine the device handle for GPU0000:0C:00.0: GPU is lost.  Reboot the system to recover this GPU"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
BROKEN = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is running."


def case(name: str, file: str) -> str:
    """The text of a field input; the test is skipped where the field's inputs are not at hand."""
    path = CASES / name / file
    if not path.is_file():
        pytest.skip(f"no {name}/{file} beside the project")
    return path.read_text()


def row(index: int, util: int = 95) -> str:
    return f"{index}, GPU-{index}, 00000000:{10 + index:02X}:00.0, NVIDIA H100, {util} %, 60000 MiB, 81559 MiB, 60"


class Node:
    """A node that is asked by the sh probe, and its console."""

    def __init__(self, nodes: int = 1) -> None:
        self.fleet = Fleet(nodes)
        self.readers = [Gpus() for _ in range(nodes)]

    def answer(self, number: int, *entries: str) -> bool:
        """Let a node answer; returns True if its GPUs are asked again at once."""
        reader = self.readers[number]
        again = reader.take(Section([entry.encode() for entry in entries]))
        if not again:
            if not reader.tables:
                self.fleet.counts[number, "gpu"] = self.fleet.counts.get((number, "gpu"), 0) + 1
            self.fleet.say(number, **reader.tables, states={"gpu": {"st": reader.state, "e": reader.error}})
        return again

    def query(self, number: int, *lines: str, status: int = 0, err: str = "", gpu: str = "") -> bool:
        """One nvidia-smi answers."""
        return self.answer(number, *output(*lines, status=status, err=err, gpu=gpu))


def output(*lines: str, status: int = 0, err: str = "", gpu: str = "") -> list[str]:
    return [f"ask={gpu}", *(f"row={line}" for line in lines), f"status={status}", *([f"err={err}"] if err else [])]


def said(fleet: Fleet, node: int = 0) -> str:
    """What the group gpu of a node says of itself."""
    groups = fleet["group"]
    at, = [one for one in groups.rows_of(node).tolist() if groups.keys[one] == "gpu"]
    return str(groups.attrs[at].get("said", ""))


def test_a5_one_failing_gpu_does_not_hide_the_others() -> None:
    node = Node()
    node.query(0, HEADER, *(row(index) for index in range(4)))
    node.fleet.tick()
    assert node.query(0, status=15, err=LOST), "the GPUs are asked one by one"
    assert node.readers[0].question(19).startswith("each "), "under one deadline for all of them"
    assert node.readers[0].question(19).endswith(" 19\n")
    parts = [part for index in (0, 1, 3) for part in output(HEADER, row(index, 97 - index), gpu=f"0000:{10 + index:02x}:00.0")]
    parts += output(LOST, status=15, gpu="0000:0c:00.0")
    node.answer(0, *parts)
    node.fleet.step()
    gpus = node.fleet["gpu"]
    assert [gpus.value("utilization_ratio", at) for at in range(4)] == [0.97, 0.96, None, 0.94]
    assert gpus.keys[2] == "GPU-2", "without a handle it is who it was"
    assert gpus.reason("utilization_ratio", 2) == "GPU lost"
    assert [gpus.value("presence", at) for at in range(4)] == [0, 0, 1, 0]
    nodes = node.fleet["node"]
    assert (nodes.value("gpus_present", 0), nodes.value("gpus_known", 0)) == (3, 4)
    assert nodes.value("reachable", 0) == 1
    assert said(node.fleet) == f"{LOST} (nvidia-smi exit status 15)"


def test_a5_a_gpu_that_was_lost_from_the_start_is_named_by_its_address() -> None:
    node = Node()
    node.query(0, status=15, err=LOST)
    node.answer(0, *output(HEADER, row(0), gpu="0000:0a:00.0"), *output(status=15, err=LOST, gpu="0000:0c:00.0"))
    node.fleet.step()
    gpus = node.fleet["gpu"]
    assert sorted(gpus.keys) == ["GPU-0", "pci:0000:0c:00.0"]


def test_a5_the_field_s_input() -> None:
    probe = json.loads(case("A5", "probe.json"))
    expected = json.loads(case("A5", "expect.json"))
    node = Node()
    whole = probe["all"]
    assert node.query(0, *whole["stdout"].splitlines(), status=whole["rc"], err=whole["stderr"])
    parts: list[str] = []
    for index, got in probe["by_index"].items():
        lines = ("index, pci.bus_id, utilization.gpu", f"{index}, 00000000:0{int(index) + 10:X}:00.0, {got.get('util')}")
        parts += output(*(lines if got["rc"] == 0 else ()), status=got["rc"], err=got.get("err", ""),
                        gpu=f"0000:0{int(index) + 10:x}:00.0")
    node.answer(0, *parts)
    node.fleet.step()
    gpus = node.fleet["gpu"]
    assert len(gpus.keys) == expected["rows"]
    lost = [at for at in range(4) if gpus.value("presence", at) == 1]
    assert [gpus.keys[at] for at in lost] == ["pci:0000:0c:00.0"]
    assert whole["stderr"] in said(node.fleet)


@pytest.mark.parametrize("status", [6, 9, 15, 255])
@pytest.mark.parametrize("partial", [(), (HEADER, row(0)), (HEADER,)])
def test_a6_a_failed_query_says_why_and_raises_its_own_alert(status: int, partial: tuple[str, ...]) -> None:
    node = Node()
    for _ in range(3):
        node.fleet.step()
        if node.query(0, *partial, status=status, err="first line of stderr"):
            assert node.readers[0].question(9).startswith("each ")
            node.answer(0)
        node.fleet.tick()
    assert said(node.fleet) == f"first line of stderr (nvidia-smi exit status {status})"
    assert node.fleet.firing == ["group_failed"]
    assert not node.fleet["gpu"].keys, "what a failed command printed is no data"


def test_a6_the_words_of_a_failure_on_stdout_count_where_stderr_is_empty() -> None:
    got = smi.failed(f"{HEADER}\n{row(0)}\n{LOST}\n", 15)
    assert got.error == f"{LOST} (nvidia-smi exit status 15)"
    assert got.blamed["0000:0c:00.0"].startswith("GPU is lost")
    assert smi.failed("", 9).error == "nvidia-smi gave no reason (nvidia-smi exit status 9)"


def test_a6_values_of_before_do_not_stand_as_if_live() -> None:
    node = Node()
    node.query(0, HEADER, row(0))
    node.fleet.tick()
    assert node.fleet["gpu"].value("utilization_ratio", 0) == 0.95
    node.fleet.step()
    node.query(0, BROKEN, status=9)
    node.fleet.tick()
    assert node.fleet["gpu"].value("utilization_ratio", 0) is None


@pytest.mark.parametrize("words", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "ERR!", "[Not Found]", "", "-", "None",
                                   "[Insufficient Permissions]", "[GPU requires reset]", "[GPU is lost]", "zero", "1,5", "nan", "inf",
                                   "0x0g", "--1", "1e3", "12 parsecs", "١٢"])
def test_a7_words_in_place_of_a_number_cost_that_number_alone(words: str) -> None:
    for kind in ("%", "MiB", "W", "C", "MHz", "x", "P", "on", "bits", ""):
        got = smi.cell(words, kind)
        assert isinstance(got, Err), (words, kind)
        assert got.reason
    text = f"index, utilization.gpu [%], temperature.gpu, memory.used [MiB]\n0, 7 %, 40, 1 MiB\n1, {words.replace(',', '')}, 41, 2 MiB\n"
    got = smi.parse_csv(text)
    assert [gpu.cells["temp"] for gpu in got.gpus] == [40, 41]
    assert got.gpus[0].cells["util"] == 7


def test_a7_the_field_s_input() -> None:
    columns = json.loads(case("A7", "columns.json"))
    expected = json.loads(case("A7", "expect.json"))
    got = smi.parse_csv(case("A7", "nvidia-smi.csv"), columns)
    names = {"fan": "fan", "util": "util", "mem": "mem_used", "temp": "temp"}
    for index, cells in expected.items():
        gpu = got.gpus[int(index)]
        assert gpu.attrs["index"] == int(index)
        for name, value in cells.items():
            cell = gpu.cells[names[name]]
            assert (None if isinstance(cell, Err) else cell) == value
    assert isinstance(got.gpus[2].cells["mem_total"], Err)
    assert got.gpus[2].cells["pstate"] == 0


MARKERS = [9223372036854775792, 9223372036854775793, 9223372036854775794, 9223372036854775807, 2147483632, 2147483633,
           2147483634, 4294967295, 18446744073709551615, "140737488355328.0"]


@pytest.mark.parametrize("marker", MARKERS)
def test_a13_blank_markers_are_unknown_wherever_they_stand(marker: object) -> None:
    for kind in ("%", "MiB", "W", "C", "MHz", "x", ""):
        assert smi.cell(f"{marker}", kind) == Err("out of range"), kind
    text = f"index, utilization.gpu, temperature.gpu, ecc.errors.uncorrected.volatile.total\n0, {marker}, {marker}, {marker}\n"
    node = Node()
    node.query(0, *text.splitlines())
    node.fleet.tick()
    for name in ("utilization_ratio", "temperature_celsius", "ecc_uncorrected_total"):
        assert node.fleet["gpu"].value(name, 0) is None


def test_a13_the_field_s_input() -> None:
    values = json.loads(case("A13", "values.json"))
    expected = json.loads(case("A13", "expect.json"))
    for name, column, kind in (("util", "util", "%"), ("temp", "temp", "C"), ("fp", "fan", "")):
        got = [smi.cell(str(value), kind) for value in values[name]]
        assert [None if isinstance(cell, Err) else cell for cell in got] == expected[name], column


def test_a14_mig_hides_utilisation_and_says_so() -> None:
    node = Node()
    head = "index, mig.mode.current, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]"
    for _ in range(4):
        node.fleet.step()
        node.query(0, head, "0, Enabled, [N/A], 36537 MiB, 81920 MiB, 387.20 W, 400.00 W")
        node.fleet.tick()
    gpus = node.fleet["gpu"]
    assert gpus.value("utilization_ratio", 0) is None
    assert gpus.reason("utilization_ratio", 0) == "n/a (MIG)"
    assert gpus.value("power_watts", 0) == pytest.approx(387.2)
    assert node.fleet["node"].value("gpu_utilization_ratio", 0) is None
    assert not node.fleet.firing


def test_a14_the_field_s_input() -> None:
    got = smi.parse_csv(case("A14", "nvidia-smi.csv"), json.loads(case("A14", "columns.json")))
    assert json.loads(case("A14", "expect.json"))["util"] is None
    assert got.gpus[0].cells["util"] == Err("n/a (MIG)")
    assert got.gpus[0].cells["power_mw"] == 387200
    assert got.gpus[0].cells["mem_used"] == 36537 << 20


@pytest.mark.parametrize("words", [MISMATCH, BROKEN, "No devices were found"])
@pytest.mark.parametrize("status", [0, 6, 9, 18])
def test_a15_text_of_a_failed_command_is_never_data(words: str, status: int) -> None:
    columns = ("index", "utilization.gpu")
    got = smi.parse_csv(words + "\n", columns, status)
    assert not got.gpus
    assert words in got.error
    # Not even where one column was asked for, and any one line would do.
    assert not smi.parse_csv(words + "\n", ("name",), status).gpus
    assert not smi_xml.parse_xml(words, status).gpus
    assert words in smi_xml.parse_xml(words, status).error


def test_a15_one_node_with_a_mismatch_does_not_stop_the_others() -> None:
    node = Node(9)
    for number in range(9):
        if number == 8:
            node.query(8, MISMATCH, status=18)
        else:
            node.query(number, "index, utilization.gpu", "0, 95", "1, 94")
    node.fleet.tick()
    gpus = node.fleet["gpu"]
    assert [gpus.value("utilization_ratio", at) for at in range(16)] == [0.95, 0.94] * 8
    assert said(node.fleet, 8) == f"{MISMATCH} (nvidia-smi exit status 18)"


def test_a15_the_field_s_input() -> None:
    hosts = json.loads(case("A15", "hosts.json"))
    expected = json.loads(case("A15", "expect.json"))
    got = {name: smi.parse_csv(host["stdout"], ("index", "utilization.gpu"), host["rc"]) for name, host in hosts.items()}
    assert sum([gpu.cells["util"] for gpu in one.gpus] == [95, 94] for one in got.values()) == expected["updating"]
    assert not got["n8"].gpus
    assert "Driver/library version mismatch" in got["n8"].error
