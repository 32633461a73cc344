"""Not disturbing the job: which NVML calls are made, how often, and letting go of the devices. Cases G1 to G6."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trees
from clustertop.core import Core
from clustertop.model import NodeInfo
from clustertop.probe.files import Call, Tree
from clustertop.probe.gpu import Gpus
from clustertop.probe.loop import GROUPS, ON_REQUEST
from nvml_lib import VARIABLE, Scenario
from probe.harness import VERSIONS, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

    from probe.harness import Run, Values

pytestmark = pytest.mark.cc
KEY = "GPU-5eed0000-0000-4000-8000-{:012d}"
FORBIDDEN = ("Gpm", "GetSamples", "PcieThroughput", "ProcessUtilization", "Accounting", "Graphics", "Set", "Clear",
             "Reset")
PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"


def key(index: int) -> str:
    return KEY.format(index)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    device = tmp_path / "nvidia0"
    device.touch()
    return Scenario(tmp_path / "scenario", "count 8", "count_calls 1", f"device_file {device}")


@pytest.fixture
def node(tmp_path: Path) -> trees.NodeTree:
    return trees.gpu_node(tmp_path / "node", gpus=1, ports=1)


@pytest.fixture
def watch(start: Callable[..., Run], library: Path, scenario: Scenario, node: trees.NodeTree) -> Callable[..., Run]:
    def begin(**args: Any) -> Run:
        return start(env=scenario.env(), nvml=str(library), root=str(node.root), **args)

    return begin


def state(values: Values) -> str:
    return values.frame.g["gpu"].st if values.frame is not None else ""


def reading(values: Values) -> int:
    return values.frame.g["gpu"].n if values.frame is not None else 0


def held(run: Run) -> list[str]:
    """The device files that the probe holds open."""
    folder = Path(f"/proc/{run.process.pid}/fd")
    targets = []
    for fd in folder.iterdir():
        try:
            targets.append(str(fd.readlink()))
        except FileNotFoundError:
            continue
    return [target for target in targets if target.endswith("nvidia0")]


class Ticks:
    """The GPU group in this process, with time in our hands, to count calls by the tick."""

    def __init__(self, library: Path, scenario: Scenario, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(VARIABLE, str(scenario.path))
        self.scenario = scenario
        self.group = Gpus(Tree(str(root), Call()), Call(), str(library))
        self.now = 1000.0
        self.group.read(self.now)

    def run(self, ticks: int, seconds: float = 2.0) -> dict[str, int]:
        """Read so often; returns the calls by function of these readings."""
        before = self.calls()
        for _ in range(ticks):
            self.group.read(self.now)
            self.now += seconds
        after = self.calls()
        return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}

    def calls(self) -> dict[str, int]:
        """All calls so far: the library writes them down when devices are counted."""
        self.group._ask("nvmlDeviceGetCount", -1)
        return self.scenario.calls()


@pytest.fixture
def ticks(
    library: Path, scenario: Scenario, node: trees.NodeTree, monkeypatch: pytest.MonkeyPatch
) -> Any:
    one = Ticks(library, scenario, node.root, monkeypatch)
    yield one
    one.group.close()


def test_G1_no_profiling_call_and_no_change_of_a_setting(ticks: Ticks) -> None:  # noqa: N802
    ticks.scenario.add("0 mig 1", "0 mig_instances 2")
    ticks.run(1)
    ticks.group.obey({"do": "procs", "seconds": 30}, ticks.now)
    ticks.run(70)
    calls = ticks.calls()
    assert len(calls) > 30
    assert [name for name in calls if any(word in name for word in FORBIDDEN if word != "Set")] == []
    assert [name for name in calls if name.startswith("nvmlDeviceSet")] == []


def test_G2_budget_of_calls_by_the_tick(ticks: Ticks) -> None:  # noqa: N802
    ticks.run(1)
    steady = ticks.run(1)
    every = {name: count for name, count in steady.items() if name not in {
        "nvmlEventSetWait_v2", "nvmlDeviceGetCount_v2"}}
    assert every == {
        "nvmlDeviceGetUtilizationRates": 8, "nvmlDeviceGetMemoryInfo": 8, "nvmlDeviceGetPowerUsage": 8,
        "nvmlDeviceGetTemperature": 8, "nvmlDeviceGetFieldValues": 8, "nvmlDeviceGetClockInfo": 16,
        "nvmlDeviceGetCurrentClocksEventReasons": 8, "nvmlDeviceGetPerformanceState": 8,
        "nvmlDeviceGetCurrPcieLinkGeneration": 8, "nvmlDeviceGetCurrPcieLinkWidth": 8,
    }
    minutes = ticks.run(150)
    assert minutes["nvmlDeviceGetPowerUsage"] == 8 * 150
    # In five minutes of ticks: at most once a minute, and once more for the GPUs' turns.
    for slow in ("FanSpeed", "EnforcedPowerLimit", "PersistenceMode", "MaxPcieLinkWidth", "RemappedRows"):
        assert 8 * 4 <= minutes[f"nvmlDeviceGet{slow}"] <= 8 * 6, slow
    assert minutes["nvmlDeviceGetNvLinkState"] <= 8 * 6 * 19
    assert not {"nvmlDeviceGetSerial", "nvmlDeviceGetName", PROCESSES} & set(minutes)
    assert "nvmlDeviceGetMigDeviceHandleByIndex" not in minutes


COSTS = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "G2" / "cost_us.json"


def dear(microseconds: dict[str, float]) -> dict[str, float]:
    """What each call is reported to take; the others are taken for as dear as the dearest that is no list."""
    usual = max(cost for name, cost in microseconds.items() if "Process" not in name)
    return {"": usual, **microseconds}


@pytest.mark.parametrize("field", [False, True], ids=["own-figures", "the-field-s-figures"])
def test_G2_twenty_milliseconds_a_tick_at_most(field: bool, ticks: Ticks) -> None:  # noqa: N802
    """G2b, by the number of calls and what each is reported to cost; on the node the time is measured and sent."""
    if field and not COSTS.is_file():
        pytest.skip(f"needs {COSTS}")
    costs = dear(json.loads(COSTS.read_text()) if field else {
        "FanSpeed": 150.0, "MemoryInfo": 15.0, "UtilizationRates": 4.0, "ComputeRunningProcesses": 4500.0})
    ticks.run(1)
    worst = 0.0
    for _ in range(60):
        calls = ticks.run(1)
        spent = sum(count * next((cost for part, cost in costs.items() if part and part in name), costs[""])
                    for name, count in calls.items() if "Event" not in name and "Count" not in name)
        worst = max(worst, spent)
    assert 1000 < worst < 20_000, "microseconds"


def test_G2_the_time_in_nvml_is_measured_and_sent(watch: Callable[..., Run]) -> None:  # noqa: N802
    run = watch()
    run.until(lambda values: reading(values) >= 3)
    spent = [frame.m["nvml"] for frame in run.frames if frame.m.get("nvml")]
    assert spent
    assert all(0 < seconds < 5 for seconds in spent)
    fleet = Core([NodeInfo("n0")], {})
    for at, frame in enumerate(run.frames):
        fleet.on_frame(0, 1000.0 + at, 1e9 + at, frame, b"")
    fleet.tick(1000.0 + len(run.frames), 1e9)
    assert fleet.snapshot is not None
    assert fleet.snapshot.view["node"].value("probe_nvml_seconds", 0) == run.frames[-1].m["nvml"]


def test_G2_dear_reads_fall_to_the_gpus_in_turn(ticks: Ticks) -> None:  # noqa: N802
    ticks.run(1)
    links = [ticks.run(1).get("nvmlDeviceGetNvLinkState", 0) for _ in range(60)]
    assert max(links) <= 2 * 19, "not all eight GPUs in one tick"
    assert sum(links) >= 8 * 19


def test_G2_process_lists_only_while_asked_for(ticks: Ticks) -> None:  # noqa: N802
    assert PROCESSES not in ticks.run(20)
    ticks.group.obey({"do": "procs", "seconds": 20}, ticks.now)
    asked = ticks.run(10)
    assert asked[PROCESSES] == 8 * 4, "every five seconds, not every tick"
    assert PROCESSES not in ticks.run(20)
    over = ticks.group.read(ticks.now).tables["process"]
    assert (over.rows, over.columns) == ([], []), "over, not: none"


def test_G2_asking_again_in_time_does_not_read_more_often(ticks: Ticks) -> None:  # noqa: N802
    ticks.group.obey({"do": "procs", "seconds": 20}, ticks.now)
    calls = 0
    for _ in range(10):
        ticks.group.obey({"do": "procs", "seconds": 20}, ticks.now)
        calls += ticks.run(1).get(PROCESSES, 0)
    assert calls == 8 * 4, "every five seconds"


def test_what_a_card_lacks_is_asked_once_a_minute(ticks: Ticks) -> None:
    ticks.scenario.add("all nvlink_links 0", "all !nvmlDeviceGetFanSpeed 3", "all !nvmlDeviceGetMigMode 3")
    ticks.run(35)
    calls = ticks.run(10)
    assert "nvmlDeviceGetNvLinkState" not in calls
    assert "nvmlDeviceGetFanSpeed" not in calls
    table = ticks.group.read(ticks.now).tables["gpu"]
    cells = {column: table.cells[number * 8] for number, column in enumerate(table.columns)}
    assert repr(cells["nvlink_up"]) == repr(cells["fan"]) == repr(cells["mig_instances"]) == "Err('Not Supported')"


def test_G4_a_probe_that_hangs_starts_no_second_one(watch: Callable[..., Run], scenario: Scenario) -> None:  # noqa: N802
    run = watch(deadlines={"gpu": 0.4})
    run.until(lambda values: "gpu" in values.rows)
    scenario.add("0 hang nvmlDeviceGetUtilizationRates")
    values = run.until(lambda values: state(values) == "hung")
    assert values.frame is not None
    readings, rdma = reading(values), values.frame.g["rdma"].n
    values = run.until(lambda values: values.frame is not None and values.frame.g["rdma"].n >= rdma + 20)
    assert reading(values) == readings, "the same reading is still out"
    tasks = [Path(task, "comm").read_text() for task in Path(f"/proc/{run.process.pid}/task").iterdir()]
    # One for each group that runs unasked, Xids, requests, writing, and the main one; never one more for the hung group.
    assert len(tasks) <= len(set(GROUPS) - ON_REQUEST) + 4, tasks


def test_G5_nothing_grows_with_asking_and_letting_go(ticks: Ticks) -> None:  # noqa: N802
    def tick() -> None:
        ticks.group.obey({"do": "release"}, ticks.now)
        assert ticks.group.read(ticks.now).st == "released"
        ticks.group.obey({"do": "take"}, ticks.now)
        ticks.group.obey({"do": "procs", "seconds": 1}, ticks.now)
        assert ticks.group.read(ticks.now).st == "ok"

    def held_now() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))

    tick()
    before = held_now()
    for _ in range(5):
        tick()
    assert held_now() == before


def test_G6_a_slow_start_is_waited_for_and_stretches_the_interval(  # noqa: N802
    watch: Callable[..., Run], scenario: Scenario
) -> None:
    scenario.add("all persistence 0", "init_ms 700")
    run = watch(per_poll=True, every={"gpu": 0.2, "rdma": 0.2, "host": 0.2, "pcie": 5})
    values = run.until(lambda values: reading(values) >= 2)
    assert values.frame is not None
    assert "hung" not in {frame.g["gpu"].st for frame in run.frames}
    part = values.frame.g["gpu"]
    assert part.ms >= 700, "measured and sent"
    assert part.iv >= 4 * 0.7, "a quarter of the interval at most"
    assert part.iw == 0.2, "what was asked for is said beside it"
    assert values.frame.g["rdma"].iw == 0.0
    assert values.cell("gpu", key(0), "persistence") == 0
    assert not any(name.startswith("nvmlDeviceSet") for name in scenario.calls())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_gpus_are_let_go_and_taken_again(
    version: str, start: Callable[..., Run], library: Path, scenario: Scenario, node: trees.NodeTree
) -> None:
    run = start(interpreter(version), env=scenario.env(), nvml=str(library), root=str(node.root))
    run.until(lambda values: "gpu" in values.rows)
    assert len(held(run)) == 1
    run.request(do="release", group="gpu")
    values = run.until(lambda values: state(values) == "released")
    assert held(run) == []
    calls = scenario.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == calls["nvmlEventSetFree"] == 1
    assert values.frame is not None
    assert values.frame.g["gpu"].e == "released by the operator"
    assert values.cell("gpu", key(0), "power_mw") == "!released by the operator"
    number = reading(values)
    values = run.until(lambda values: reading(values) > number + 3)
    assert state(values) == "released"
    assert held(run) == []
    run.request(do="take", group="gpu")
    values = run.until(lambda values: state(values) == "ok")
    assert values.cell("gpu", key(0), "power_mw") == 512000
    assert len(held(run)) == 1
    run.request(do="stop")
    assert run.wait() == 0
    calls = scenario.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 2


@pytest.mark.parametrize(("at", "told"), [
    (1780000000.5, 1780000000.5), (True, None), (None, None), ("noon", None), ([1], None)])
def test_since_when_they_are_let_go_is_the_consoles_word(
    at: object, told: object, ticks: Ticks, library: Path, node: trees.NodeTree
) -> None:
    ticks.group.obey({"do": "release", "at": at}, ticks.now)
    assert ticks.group.read(ticks.now).facts.get("gpus_released") == told
    ticks.group.obey({"do": "take"}, ticks.now)
    assert "gpus_released" not in ticks.group.read(ticks.now).facts
    new = Gpus(Tree(str(node.root), Call()), Call(), str(library), released=at)
    assert (new.read(1.0).st == "released") is bool(at)
    assert new.read(1.0).facts.get("gpus_released") == told
    new.close()


def test_released_from_the_start(watch: Callable[..., Run], scenario: Scenario) -> None:
    run = watch(released=True)
    run.until(lambda values: state(values) == "released")
    assert held(run) == []
    assert not Path(f"{scenario.path}.calls").exists(), "NVML was never started"
    run.request(do="take", group="gpu")
    run.until(lambda values: state(values) == "ok" and "gpu" in values.rows)


def test_a_wait_that_hangs_keeps_the_gpus_and_says_so(watch: Callable[..., Run], scenario: Scenario) -> None:
    run = watch()
    run.until(lambda values: "gpu" in values.rows)
    scenario.add("hang_events 1")
    run.request(do="release", group="gpu")
    values = run.until(lambda values: state(values) == "error")
    assert values.frame is not None
    assert values.frame.g["gpu"].e == "cannot let go: a wait hangs"
    assert len(held(run)) == 1
    scenario.drop("hang_events 1")
    run.until(lambda values: state(values) == "released")
    assert held(run) == []


def test_per_poll_holds_nothing_between_readings(watch: Callable[..., Run], scenario: Scenario) -> None:
    run = watch(per_poll=True)
    values = run.until(lambda values: reading(values) >= 4)
    assert values.cell("gpu", key(7), "power_mw") == 512000
    assert values.cell("gpu", key(7), "power_limit_mw") == 700000, "what is read seldom is kept"
    run.request(do="stop")
    assert run.wait() == 0
    calls = scenario.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] >= 4
    assert calls["nvmlDeviceGetEnforcedPowerLimit"] == 8
    assert "nvmlEventSetCreate" not in calls


def test_per_poll_without_a_log_says_that_xids_cannot_be_read(watch: Callable[..., Run]) -> None:
    values = watch(per_poll=True).until(lambda values: reading(values) >= 2)
    assert values.facts["xid"] == "not readable"
    assert values.cell("gpu", key(0), "xid_count") == "!not readable"


@pytest.mark.parametrize("version", VERSIONS)
def test_processes_with_user_command_and_job(
    version: str, start: Callable[..., Run], library: Path, scenario: Scenario, node: trees.NodeTree
) -> None:
    container = "5" * 64
    for pid, uid, command, cgroup, environ in (
        (101, 0, b"python3\0train.py\0--lr\0\x1b[31m3e-4\0", "0::/system.slice/slurmstepd.scope/job_4711/s", b""),
        (102, 0, b"vllm\0serve\0", f"0::/kubepods.slice/pod1/cri-containerd-{container}.scope", b""),
        (103, 0, b"x" * 5000, "0::/user.slice", b"A=1\0SLURM_JOB_ID=77\0"),
        (104, 0, b"", "0::/user.slice/job_99", b""),
    ):
        node.write(f"proc/{pid}/status", f"Name:\tworker\nUmask:\t0022\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        node.write(f"proc/{pid}/cmdline", command.decode("latin-1"))
        node.write(f"proc/{pid}/cgroup", cgroup + "\n")
        node.write(f"proc/{pid}/environ", environ.decode())
    scenario.add("0 process 101 1073741824", "0 process 102 5", "1 process 103 7", "1 process 104 8", "2 process 999 9")
    run = start(interpreter(version), env=scenario.env(), nvml=str(library), root=str(node.root))
    values = run.until(lambda values: reading(values) >= 2)
    assert "process" not in values.rows
    run.request(do="procs", seconds=30)
    values = run.until(lambda values: "process" in values.rows)
    rows = values.attrs["process"]
    assert values.cell("process", f"{key(0)}/101", "mem_used") == 1073741824
    assert rows[f"{key(0)}/101"] == {
        "gpu": key(0), "pid": 101, "user": "root", "command": "python3 train.py --lr  [31m3e-4", "job": "4711",
        "job_kind": "slurm"}
    assert (rows[f"{key(0)}/102"]["job"], rows[f"{key(0)}/102"]["job_kind"]) == ("5" * 12, "container")
    assert (rows[f"{key(1)}/103"]["job"], len(rows[f"{key(1)}/103"]["command"])) == ("77", 200)
    assert rows[f"{key(1)}/104"]["command"] == "[worker]"
    assert (rows[f"{key(1)}/104"]["job"], rows[f"{key(1)}/104"]["job_kind"]) == ("root", "user")
    assert rows[f"{key(2)}/999"] == {"gpu": key(2), "pid": 999}, "a process that is hidden, or over"


def test_older_drivers_list_processes_too_and_a_gpu_that_does_not_is_named(
    watch: Callable[..., Run], scenario: Scenario
) -> None:
    scenario.add(f"without {PROCESSES}", "1 process 7 9", "3 !nvmlDeviceGetComputeRunningProcesses_v2 4")
    run = watch()
    run.request(do="procs")
    values = run.until(lambda values: "process" in values.rows)
    assert values.rows["process"] == [f"{key(1)}/7"]
    assert values.errors["process"] == "GPU 3: Insufficient Permissions"


def test_mig_layout_and_links(watch: Callable[..., Run], scenario: Scenario) -> None:
    scenario.add("2 mig 1", "2 mig_instances 2", "3 nvlink_down 2", "4 nvlink_links 0", "5 field_52 12",
                 "5 field_59_error 3", "6 field_29 3", "6 field_31 1")
    values = watch().until(lambda values: reading(values) >= 2)
    assert values.cell("gpu", key(2), "mig_instances") == 2
    assert values.attrs["gpu"][key(2)]["mig_layout"] == ["1g.10gb 10200547328"] * 2
    assert "mig_layout" not in values.attrs["gpu"][key(1)]
    assert (values.cell("gpu", key(3), "nvlink_links"), values.cell("gpu", key(3), "nvlink_up")) == (18, 16)
    assert values.cell("gpu", key(4), "nvlink_up") == "!Not Supported"
    assert values.cell("gpu", key(5), "nvlink_replays") == 12
    assert values.cell("gpu", key(5), "nvlink_recoveries") == "!Not Supported"
    assert (values.cell("gpu", key(6), "retired_cor"), values.cell("gpu", key(6), "retired_pending")) == (3, 1)
