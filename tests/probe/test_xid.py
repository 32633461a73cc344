"""Xids from NVML's events and from the kernel's log, and lines of that log that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trees
from clustertop.probe import xid
from nvml_lib import Scenario
from probe.harness import VERSIONS, interpreter, named
from work import growth

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from probe.harness import Run

KEY = "GPU-5eed0000-0000-4000-8000-{:012d}"
NO_EVENTS = "without nvmlEventSetCreate"


def key(index: int) -> str:
    return KEY.format(index)


@pytest.mark.parametrize(("line", "found"), [
    ("6,3964,206764307,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
     ("0000:3b:00", 79)),
    ("[  123.456789] NVRM: Xid (PCI:0000:3B:00): 48, pid='<unknown>', name=<unknown>, An", ("0000:3b:00", 48)),
    ("[  123.456789] [T511] NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120", ("0000:01:00", 31)),
    ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 NVRM: Xid (PCI:0019:01:00): 13, pid=1", ("0019:01:00", 13)),
    ("<6>[    2.60] NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed", ("0000:41:00", 154)),
    ("Nov 22 18:29:55 node7 kernel: [  966.503025] NVRM: Xid (0000:01:00): 62, 0096(1c54)", ("0000:01:00", 62)),
    ("NVRM: Xid (PCI:0000:9b:00): 45, pid=1, name=NVRM: Xid (PCI:0000:17:00): 79, Ch 1", ("0000:9b:00", 45)),
    # None of these is one: a switch's own number space, a process or device called so, a line without a number.
    ("nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32", None),
    ("6,1,2,-;NVRM: Xid (PCI:0000:c4:00): , no number", None),
    ("6,1,2,-;x[9]: segfault NVRM: Xid (PCI:0000:17:00): 79, pid=1", None),
    ("6,1,2,-;audit: comm=\"NVRM: Xid (PCI:0000:17:00): 79,\"", None),
    ("6,1,2,-;6,1,2,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1", None),
    ("[x] [y] [z] NVRM: Xid (PCI:0000:17:00): 79, pid=1", None),
    (" NVRM: Xid (PCI:0000:17:00): 79, a line that goes on from another record", None),
    ("NVRM: Xid (PCI:0000:17:00): 123456789, too long", None),
    ("", None),
])
def test_lines_of_the_log(line: str, found: tuple[str, int] | None) -> None:
    assert xid.parse(line) == found


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_makes_it_stumble(before: str, after: str) -> None:
    for text in (before, before + "NVRM: Xid (PCI:0000:17:00): 79, " + after):
        xid.parse(text)
    assert xid.parse("NVRM: Xid (PCI:0000:17:00): 79, " + after) == ("0000:17:00", 79)
    xid.slot(before)


@pytest.mark.parametrize("hostile", ["[" * 100_000, "6,1,2," * 20_000, "a :b : " * 20_000, "[x] " * 30_000, " " * 100_000],
                         ids=lambda text: repr(text[:7]))
def test_a_line_that_is_longer_costs_no_more_than_that(hostile: str) -> None:
    assert xid.parse(hostile) is None
    assert growth(xid.parse, hostile) < 64, "sixteen times as long: about sixteen, not its square"


@pytest.mark.parametrize(("pci", "slot"), [
    ("00000000:9B:00.0", "0000:9b:00"), ("00000008:01:00.0", "0008:01:00"), ("0000:3b:00", "0000:3b:00"),
    ("", ""), (None, ""), ("zz:1:2", ""),
])
def test_slots(pci: object, slot: str) -> None:
    assert xid.slot(pci) == slot


def test_recorded_logs_have_the_xids_that_they_have() -> None:
    wanted = {
        "xid-119-gsp-timeout.T.log": {("0000:9b:00", 119)},
        "xid-13-iso.decode.log": {("0000:38:00", 13), ("0000:38:00", 43)},
        "kmsg-raw-nvswitch.log": set(), "mlx5-events.txt": set(), "azure-auditd-noise.log": set(),
        "mlx5-health-and-link.log": set(),
    }
    read = {}
    for pattern in ("logs/dmesg/*", "logs/journal/*", "logs/recreated/mlx5*"):
        for path in named(pattern):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            read[path.name] = {found for line in lines if (found := xid.parse(line))}
    if not read:
        pytest.skip("no recorded logs beside the repository")
    assert {name: found for name, found in read.items() if name in wanted} == wanted
    switches = read["xid-nvlink5-gb200.txt"]
    assert {code for _, code in switches} == {144, 145, 149}
    assert {slot for slot, _ in switches} == {"0000:04:00", "0008:01:00", "0018:01:00", "0019:01:00"}


def test_codes_of_the_last_hour_and_no_more_than_eight() -> None:
    seen = xid.Seen()
    for code in range(1, 12):
        seen.add(code, 100.0 + code)
    seen.add(11, 120.0)
    assert seen.cells(130.0) == (11, 120.0, 12, "11x2 10x1 9x1 8x1 7x1 6x1 5x1 4x1")
    assert seen.cells(3711.0) == (11, 120.0, 12, "11x2")
    assert seen.cells(9999.0) == (11, 120.0, 12, "")


def test_when_it_was_is_not_after_the_frame_that_tells_it() -> None:
    seen = xid.Seen()
    seen.add(31, 12246.8959)
    assert seen.cells(12246.896)[1] == 12246.8



@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path / "scenario", "count 8", "count_calls 1")


@pytest.fixture
def node(tmp_path: Path) -> trees.NodeTree:
    return trees.gpu_node(tmp_path / "node", gpus=1, ports=1)


@pytest.fixture
def watch(start: Callable[..., Run], library: Path, scenario: Scenario, node: trees.NodeTree) -> Callable[..., Run]:
    def begin(**args: Any) -> Run:
        return start(env=scenario.env(), nvml=str(library), root=str(node.root), **args)

    return begin


@pytest.mark.cc
@pytest.mark.parametrize("version", VERSIONS)
def test_events_of_the_driver(
    version: str, start: Callable[..., Run], library: Path, scenario: Scenario, node: trees.NodeTree
) -> None:
    scenario.add("event 1 31")
    run = start(interpreter(version), env=scenario.env(), nvml=str(library), root=str(node.root))
    values = run.until(lambda values: "gpu" in values.rows)
    assert values.facts["xid"] == "NVML events"
    assert values.cell("gpu", key(1), "xid_count") == 0, "what came before the probe is not new"
    scenario.add("event 3 48", "event 3 45", "event 3 45")
    values = run.until(lambda values: values.cell("gpu", key(3), "xid_count") == 3)
    assert values.cell("gpu", key(3), "xid") == 45
    assert values.cell("gpu", key(3), "xids") == "=45x2 48x1"
    assert values.frame is not None
    assert 0 <= values.frame.t - values.cell("gpu", key(3), "xid_time") < 10
    assert values.cell("gpu", key(2), "xid") == 0
    run.request(do="stop")
    assert run.wait() == 0
    assert scenario.calls()["nvmlEventSetFree"] == 1


@pytest.mark.cc
def test_a_lost_gpu_keeps_its_xids_and_the_wait_does_not_spin(watch: Callable[..., Run], scenario: Scenario) -> None:
    run = watch()
    run.until(lambda values: "gpu" in values.rows)
    scenario.add("event 5 79", "5 lost")
    values = run.until(lambda values: values.cell("gpu", key(5), "xid") == 79
                       and values.cell("gpu", key(5), "util") == "!GPU is lost")
    scenario.add("event_error 15")
    number = values.frame.g["gpu"].n if values.frame is not None else 0
    values = run.until(lambda values: values.frame is not None and values.frame.g["gpu"].n > number + 15)
    assert values.cell("gpu", key(5), "xid") == 79
    run.request(do="stop")
    assert run.wait() == 0
    assert scenario.calls()["nvmlEventSetWait_v2"] < 40


@pytest.mark.cc
def test_the_kernels_log_where_there_are_no_events(
    watch: Callable[..., Run], scenario: Scenario, node: trees.NodeTree
) -> None:
    log = node.root / "dev" / "kmsg"
    log.parent.mkdir()
    log.write_text("4,1,1000,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1, name=old, before we came\n")
    scenario.add(NO_EVENTS)
    run = watch()
    values = run.until(lambda values: "gpu" in values.rows)
    assert values.facts["xid"] == "kernel log"
    assert values.cell("gpu", key(0), "xid_count") == 0
    with log.open("a") as file:
        file.write(
            "4,2,2000,-;NVRM: Xid (PCI:0000:28:00): 63, pid=7, name=NVRM: Xid (PCI:0000:17:00): 79, Row Remapper\n"
            " SUBSYSTEM=pci\n"
            "4,3,3000,-;NVRM: Xid (PCI:0000:28:00): 63, pid=7, name=a\x1b[2J, again\n"
            "4,4,4000,-;NVRM: Xid (PCI:0000:ee:00): 79, no GPU of ours\n"
            "4,5,5000,-;NVRM: Xid (PCI:0000:39:00): 13, half a li")
    values = run.until(lambda values: values.cell("gpu", key(1), "xid_count") == 2)
    assert values.cell("gpu", key(1), "xid") == 63
    assert values.cell("gpu", key(0), "xid_count") == 0, "the name of a process is not a report"
    assert values.cell("gpu", key(2), "xid_count") == 0
    with log.open("a") as file:
        file.write("ne\n")
    run.until(lambda values: values.cell("gpu", key(2), "xid") == 13)


@pytest.mark.cc
def test_neither_is_said_so_and_no_zero(watch: Callable[..., Run], scenario: Scenario) -> None:
    scenario.add(NO_EVENTS)
    values = watch().until(lambda values: "gpu" in values.rows)
    assert values.facts["xid"] == "not readable"
    assert {values.cell("gpu", key(0), column) for column in xid.COLUMNS} == {"!not readable"}


@pytest.mark.cc
def test_a_gpu_that_takes_no_events_costs_its_own_xids(watch: Callable[..., Run], scenario: Scenario) -> None:
    scenario.add("2 !nvmlDeviceRegisterEvents 3")
    values = watch().until(lambda values: "gpu" in values.rows)
    assert values.cell("gpu", key(2), "xid_count") == "!Not Supported"
    assert values.cell("gpu", key(1), "xid_count") == 0
