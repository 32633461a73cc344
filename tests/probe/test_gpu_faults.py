"""Every NVML call that the probe makes fails in every way that matters, on the oldest and the newest Python.

In this process with time in our hands, through the real pynvml, for each call; as processes on 3.6 and 3.13 for the
rest: other errors cost other things, and none of them costs another GPU.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

import trees
from clustertop.probe import gpu as gpu_module
from clustertop.probe import gpu_fields as fields
from clustertop.probe.files import Call, Tree
from clustertop.probe.frames import Err
from clustertop.probe.gpu import Gpus
from nodes import Fleet
from nvml_lib import SOURCE, VARIABLE, Scenario
from probe.harness import interpreter, sooner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from clustertop.probe.frames import Table
    from probe.harness import Run, Values

pytestmark = pytest.mark.cc
KEY = "GPU-5eed0000-0000-4000-8000-{:012d}"
NEWEST = {"nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
          "nvmlDeviceGetCount": "nvmlDeviceGetCount_v2"}
READ = tuple(dict.fromkeys(spec[1][0] for spec in fields.SPECS if spec[1][0] != fields.INSTANCES))
"""The calls that bring values, one name for each."""
IDENTITY = ("nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetName", "nvmlDeviceGetSerial",
            "nvmlDeviceGetBoardPartNumber", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetMinorNumber")
MIG = (fields.INSTANCES, "nvmlDeviceGetMaxMigDeviceCount")
HEALTHY = {"power_mw": 512000, "temp": 58, "util": 97, "pcie_width": 16}


def key(index: int) -> str:
    return KEY.format(index)


class Ticks:
    """The GPU group of this process; a tick is two seconds."""

    def __init__(self, library: Path, scenario: Scenario, root: Path) -> None:
        self.scenario = scenario
        self.group = Gpus(Tree(str(root), Call()), Call(), str(library))
        self.now = 1000.0
        self.states: list[tuple[str, str]] = []

    def tick(self) -> Table:
        """The table of the next reading."""
        reading = self.group.read(self.now)
        self.now += 2.0
        self.states.append((reading.st, reading.e))
        return reading.tables["gpu"]

    def rows(self, table: Table) -> dict[str, dict[str, Any]]:
        tall = len(table.rows)
        return {row[0]: {column: table.cells[at * tall + place] for at, column in enumerate(table.columns)}
                for place, row in enumerate(table.rows)}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path / "scenario", "count 4")


@pytest.fixture
def ticks(library: Path, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticks]:
    monkeypatch.setenv(VARIABLE, str(scenario.path))
    # A wait for events takes most of a second to call off; Xids have tests of their own.
    monkeypatch.setattr(gpu_module.Xids, "watch", lambda self, nvml, ask, gpus, events: None)
    one = Ticks(library, scenario, trees.gpu_node(tmp_path / "node", gpus=1, ports=1).root)
    yield one
    one.group.close()


@pytest.fixture(params=["3.6", "3.13"])
def watch(
    request: pytest.FixtureRequest, start: Callable[..., Run], library: Path, scenario: Scenario, tmp_path: Path
) -> Callable[..., Run]:
    def begin(**args: object) -> Run:
        node = trees.gpu_node(tmp_path / "node", gpus=1, ports=1)
        return start(interpreter(request.param), env=scenario.env(), nvml=str(library), root=str(node.root), **args)

    return begin


def test_the_list_of_calls_is_whole() -> None:
    """Every device call in the probe's source is in one of the lists that the tests below go through."""
    source = inspect.getsource(gpu_module) + inspect.getsource(fields)
    named = {NEWEST.get(name, name) for name in re.findall(r"nvmlDevice\w+", source)}
    known = {name for spec in fields.SPECS for name in spec[1]} | set(IDENTITY) | set(MIG) | set(NEWEST.values())
    assert named == known
    assert all(f" {name}(" in SOURCE.read_text() or f"({name}," in SOURCE.read_text() for name in known
               if not name.endswith("TemperatureV"))


def whole(rows: dict[str, dict[str, Any]], *indices: int) -> None:
    """These GPUs are all there, with all that they had."""
    for index in indices:
        assert {column: rows[key(index)][column] for column in HEALTHY} == HEALTHY


@pytest.mark.parametrize("call", [*READ, NEWEST["nvmlDeviceGetHandleByIndex"]])
def test_a_gpu_lost_at_any_call_costs_its_own_row_and_comes_back(call: str, ticks: Ticks) -> None:
    whole(ticks.rows(ticks.tick()), 0, 1, 2, 3)
    fault = f"2 !{call} 15"
    ticks.scenario.add(fault)
    lost = 0
    for _ in range(40):  # what is read once a minute is read in this time as well
        table = ticks.tick()
        rows = ticks.rows(table)
        assert list(rows) == [key(index) for index in range(4)]
        whole(rows, 0, 1, 3)
        cells = {column: cell for column, cell in rows[key(2)].items() if not column.startswith("xid")}
        gone = {column for column, cell in cells.items() if cell == Err("GPU is lost")}
        assert gone in (set(), set(cells)), "all of it or nothing: half a GPU is none"
        lost += bool(gone)
    assert lost >= 1
    assert {state for state, _ in ticks.states} == {"ok"}
    ticks.scenario.drop(fault)
    for _ in range(7):
        table = ticks.tick()
    whole(ticks.rows(table), 0, 1, 2, 3)


@pytest.mark.parametrize("call", IDENTITY)
@pytest.mark.parametrize("code", [3, 4, 15, 999])
def test_a_gpu_that_cannot_say_who_it_is_keeps_its_values_and_costs_no_other(
    call: str, code: int, ticks: Ticks
) -> None:
    ticks.scenario.add(f"2 !{call} {code}")
    table = ticks.tick()
    rows = ticks.rows(table)
    assert len(rows) == 4
    whole(rows, 0, 1, 3)
    mine = next(row for row in table.rows if row[1].get("index") == 2)
    assert mine[0] == ("pci:00000000:39:00.0" if call == "nvmlDeviceGetUUID" else key(2))
    assert rows[mine[0]]["power_mw"] == 512000


def test_a_gpu_that_forgets_its_uuid_later_is_the_same_to_the_console(ticks: Ticks) -> None:
    fleet = Fleet(rules={})
    fleet.step(gpu=ticks.tick())
    ticks.scenario.add("2 !nvmlDeviceGetUUID 15")
    for _ in range(8):
        fleet.step(2.0, gpu=ticks.tick())
    assert fleet["gpu"].keys == tuple(key(index) for index in range(4))
    assert fleet["gpu"].present.all()


@pytest.mark.parametrize("call", MIG)
@pytest.mark.parametrize("code", [3, 4, 15, 999])
def test_mig_instances_that_cannot_be_listed_cost_their_number(call: str, code: int, ticks: Ticks) -> None:
    ticks.scenario.add("2 mig 1", "2 mig_instances 2", f"2 !{call} {code}")
    for _ in range(3):
        rows = ticks.rows(ticks.tick())
    whole(rows, 0, 1, 3)
    assert isinstance(rows[key(2)]["mig_instances"], Err)
    if code != 15:
        assert rows[key(2)]["power_mw"] == 512000


@pytest.mark.parametrize("code", [3, 4, 13, 999])
@pytest.mark.parametrize("call", READ)
def test_any_other_error_of_any_call_costs_its_own_values(call: str, code: int, ticks: Ticks) -> None:
    words = {3: "Not Supported", 4: "Insufficient Permissions", 13: "Function Not Found", 999: "Unknown Error"}[code]
    ticks.scenario.add(f"2 !{call} {code}")
    ticks.tick()
    rows = ticks.rows(ticks.tick())
    whole(rows, 0, 1, 3)
    columns = {column for spec in fields.SPECS if spec[1][0] == call for column in spec[0]}
    assert {column: rows[key(2)][column] for column in columns} == dict.fromkeys(columns, Err(words))
    others = {column: cell for column, cell in rows[key(2)].items() if column not in columns}
    assert {column: others[column] for column in HEALTHY if column in others} == {
        column: value for column, value in HEALTHY.items() if column in others}


@pytest.mark.parametrize(("code", "words"), [(1, "Uninitialized"), (9, "Driver Not Loaded"),
                                             (18, "Driver/library version mismatch")])
@pytest.mark.parametrize("call", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetCount_v2",
                                  "nvmlDeviceGetHandleByIndex_v2"])
def test_a_driver_that_goes_away_at_any_call_costs_the_group_until_it_is_back(
    call: str, code: int, words: str, ticks: Ticks
) -> None:
    ticks.tick()
    where = "" if "Count" in call else "all "
    ticks.scenario.add(f"{where}!{call} {code}")
    for _ in range(36):
        table = ticks.tick()
        if ticks.states[-1][0] == "error":
            break
    assert ticks.states[-1] == ("error", words)
    assert set(map(repr, table.cells)) == {repr(Err(words))}, "no old value passes for a new one"
    assert len(table.rows) == 4
    ticks.scenario.write("count 4", "all power_mw 250000")
    for _ in range(7):
        rows = ticks.rows(ticks.tick())
    assert ticks.states[-1][0] == "ok"
    assert rows[key(3)]["power_mw"] == 250000


def test_the_driver_is_unloaded_and_loaded_again_ten_times(ticks: Ticks) -> None:
    for number in range(10):
        ticks.scenario.write("count 4", f"all power_mw {100000 + number}")
        for _ in range(7):
            rows = ticks.rows(ticks.tick())
        assert rows[key(0)]["power_mw"] == 100000 + number
        ticks.scenario.add("gone 1", "init 9")
        for _ in range(7):
            table = ticks.tick()
        assert ticks.states[-1][0] == "error"
        assert not any(isinstance(cell, int) for cell in table.cells)


def test_the_call_for_all_gpus_fails_while_their_handles_work(ticks: Ticks) -> None:
    """A5: NVML's count fails with one lost GPU; the others are still asked one by one."""
    whole(ticks.rows(ticks.tick()), 0, 1, 2, 3)
    ticks.scenario.add("count_error 999", "1 lost", "all power_mw 300000")
    for _ in range(8):
        table = ticks.tick()
    rows = ticks.rows(table)
    assert table.error == "Unknown Error"
    assert list(rows) == [key(index) for index in range(4)]
    assert [rows[key(index)]["power_mw"] for index in (0, 2, 3)] == [300000] * 3
    assert rows[key(1)]["power_mw"] == Err("GPU is lost")
    fleet = Fleet()
    fleet.step(gpu=table)
    fleet.step(gpu=table)
    assert fleet.firing == ["gpu_missing"]
    assert fleet["gpu"].present.all(), "a listing that failed takes nobody away"


@pytest.mark.parametrize("marker", [2**32 - 1, 2**31 - 16, 2**31 - 1])
def test_a13_markers_of_any_call_are_no_readings(marker: int, ticks: Ticks) -> None:
    """A13: the library hands them on as they are; the console knows each for what it is."""
    names = ("util", "mem_util", "power_mw", "temp", "temp_mem", "sm_mhz", "pstate", "pcie_gen", "pcie_width", "pcie_gen_max",
             "pcie_gen_devmax", "pcie_width_max", "power_limit_mw", "temp_slowdown", "temp_shutdown", "temp_mem_max",
             "sm_mhz_max", "fan", "persistence", "mig", "ecc_mode", "remap_cor", "remap_unc", "remap_pending", "remap_failed",
             "reasons")
    ticks.scenario.add(*(f"1 {name} {marker}" for name in names), f"1 mem_used {2**64 - 1}", f"1 mem_total {2**63 - 16}",
                       f"1 bar1_total {2**64 - 1}", f"1 ecc_cor {2**64 - 1}", f"1 ecc_unc {2**63 - 16}")
    table = ticks.tick()
    fleet = Fleet()
    for _ in range(3):
        fleet.step(gpu=table)
    gpus = fleet["gpu"]
    raw = gpus.spec.raw_index
    for name in (*names, "mem_used", "mem_total", "bar1_total", "ecc_cor", "ecc_unc"):
        column = gpus.spec.metrics[raw[name]].name
        assert gpus.value(column, 1) is None, column
        assert gpus.reason(column, 1) == "out of range", column
        assert gpus.value(column, 0) is not None, column
    assert not fleet.firing
    derived = ("temperature_margin_celsius", "slowdown", "busy_utilization_ratio", "generation_missing")
    assert [gpus.value(name, 1) for name in derived] == [None] * 4
    assert fleet.core.store.tables["gpu"].out_of_range >= len(names), "what was dropped is counted"


def power(values: Values, index: int) -> object:
    return values.cell("gpu", key(index), "power_mw")


@pytest.mark.parametrize("call", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetFieldValues"])
def test_a_call_that_hangs_is_named_and_the_other_groups_go_on(
    call: str, watch: Callable[..., Run], scenario: Scenario
) -> None:
    run = watch(deadlines={"gpu": 0.5}, body=sooner(gpu__RESTART_SECONDS=1.0, gpu__RELIST_SECONDS=1.0))
    run.until(lambda values: "gpu" in values.rows)
    line = f"hang {call}" if "Count" in call else f"1 hang {call}"
    scenario.add(line)
    values = run.until(lambda values: values.frame is not None and values.frame.g["gpu"].st == "hung")
    assert values.frame is not None
    name = call.removesuffix("_v2")
    assert values.frame.g["gpu"].w == (f"{name}()" if "Count" in call else f"{name}(GPU 1)")
    before = values.frame.g["rdma"].n
    run.until(lambda values: values.frame is not None and values.frame.g["rdma"].n > before + 3)
    scenario.drop(line)
    run.until(lambda values: values.frame is not None and values.frame.g["gpu"].st == "ok")


@pytest.mark.parametrize(("code", "words", "again"), [
    (18, "Driver/library version mismatch", True), (4, "Insufficient Permissions", False),
    (12, "NVML Shared Library Not Found", False)])
def test_nvml_that_does_not_start_says_why_and_is_tried_again(
    code: int, words: str, again: bool, watch: Callable[..., Run], scenario: Scenario
) -> None:
    scenario.add(f"init {code}")
    run = watch(body=sooner(gpu__RESTART_SECONDS=1.0, gpu__RELIST_SECONDS=1.0))
    values = run.until(lambda values: values.frame is not None and values.frame.g["gpu"].st == "error")
    assert values.frame is not None
    assert values.frame.g["gpu"].e == words
    assert "gpu" not in values.rows
    if again:  # a while later
        scenario.write("count 4")
        values = run.until(lambda values: "gpu" in values.rows)
        assert power(values, 3) == 512000


def test_sixteen_gpus_mig_permissions_and_a_lost_one_at_once(watch: Callable[..., Run], scenario: Scenario) -> None:
    scenario.write("count 16", "5 lost", "3 mig 1", "3 mig_instances 7", "3 !nvmlDeviceGetUtilizationRates 3",
                   "7 !nvmlDeviceGetPowerUsage 4", "9 power_mw 4294967295")
    run = watch()
    values = run.until(lambda values: "gpu" in values.rows)
    assert values.rows["gpu"] == [key(index) if index != 5 else "index:5" for index in range(16)]
    assert power(values, 15) == 512000
    assert power(values, 7) == "!Insufficient Permissions"
    assert power(values, 9) == 4294967295
    assert values.cell("gpu", key(3), "util") == "!Not Supported"
    assert values.cell("gpu", key(3), "mig_instances") == 7
    assert values.cell("gpu", "index:5", "util") == "!GPU is lost"
    run.request(do="stop")
    assert run.wait() == 0
    assert run.stderr() == ""
