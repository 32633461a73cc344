"""The GPU group through the real pynvml, over an NVML of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml
import pytest

import trees
from clustertop.probe import gpu_fields as gpu
from clustertop.probe import xid
from nvml_lib import Scenario
from probe.harness import sooner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from probe.harness import Run, Values

pytestmark = pytest.mark.cc
KEY = "GPU-5eed0000-0000-4000-8000-{:012d}"


def key(index: int) -> str:
    return KEY.format(index)


def power(values: Values, index: int) -> object:
    return values.cell("gpu", key(index), "power_mw")


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path / "scenario", "count 8", "count_calls 1")


@pytest.fixture
def watch(
    start: Callable[..., Run], library: Path, scenario: Scenario, tmp_path: Path
) -> Callable[..., Run]:
    def begin(**args: object) -> Run:
        node = trees.gpu_node(tmp_path / "node", gpus=1, ports=1)
        return start(env=scenario.env(), nvml=str(library), root=str(node.root), **args)

    return begin


def test_eight_gpus_with_every_column(watch: Callable[..., Run]) -> None:
    run = watch()
    values = run.until(lambda values: "gpu" in values.rows)
    assert values.rows["gpu"] == [key(index) for index in range(8)]
    assert values.attrs["gpu"][key(3)] == {
        "index": 3, "uuid": key(3), "pci": "00000000:4A:00.0", "name": "NVIDIA H100 80GB HBM3",
        "serial": "1650023000003", "minor": 3, "part": "692-2G520-0200-000", "vbios": "96.00.74.00.01",
    }  # fmt: skip
    got = {column: values.cell("gpu", key(3), column) for column in values.columns["gpu"]}
    assert got == {
        "util": 97, "mem_util": 41, "mem_used": 61203283968, "mem_total": 85520809984, "power_mw": 512000,
        "temp": 58, "temp_mem": 74, "sm_mhz": 1755, "mem_mhz": 2619, "reasons": 0, "pstate": 0, "pcie_gen": 5,
        "pcie_width": 16, "pcie_replays": 0, "ecc_cor": 0, "ecc_unc": 0, "power_limit_mw": 700000,
        "temp_slowdown": 87, "temp_shutdown": 92, "temp_mem_max": 95, "temp_margin": 29, "pcie_gen_max": 5, "pcie_gen_devmax": 5,
        "pcie_width_max": 16, "sm_mhz_max": 1980, "bar1_total": 137438953472, "persistence": 1, "mig": 0,
        "ecc_mode": 1, "remap_cor": 0, "remap_unc": 0, "remap_pending": 0, "remap_failed": 0,
        "power_instant_mw": 498000, "nvlink_crc_flit": 0, "nvlink_crc_data": 0, "nvlink_replays": 0,
        "nvlink_recoveries": 0, "ecc_cor_all": 0, "ecc_unc_all": 0, "retired_cor": "!Not Supported",
        "retired_unc": "!Not Supported", "retired_pending": "!Not Supported", "fan": 40, "nvlink_links": 18,
        "nvlink_up": 18, "mig_instances": 0, "xid": 0, "xid_time": None, "xid_count": 0, "xids": "=",
    }  # fmt: skip
    assert values.facts["driver"] == "550.90.07"
    assert values.facts["cuda"] == "12.4"
    assert values.facts["nvml"] == "12.550.90.07"
    assert values.facts["xid"] == "NVML events"


def test_one_lost_gpu_costs_its_own_row(watch: Callable[..., Run], scenario: Scenario) -> None:
    run = watch()
    run.until(lambda values: "gpu" in values.rows)
    scenario.add("5 lost", "3 pcie_width 8", "all power_mw 300000")
    values = run.until(lambda values: power(values, 5) == "!GPU is lost" and power(values, 7) == 300000)
    assert values.rows["gpu"] == [key(index) for index in range(8)], "it keeps its name"
    read = [column for column in values.columns["gpu"] if not column.startswith("xid")]
    assert all(values.cell("gpu", key(5), column) == "!GPU is lost" for column in read)
    assert values.cell("gpu", key(3), "pcie_width") == 8
    assert power(values, 4) == power(values, 6) == 300000
    assert values.frame is not None
    assert values.frame.g["gpu"].st == "ok"


def test_gpu_lost_from_the_start_keeps_its_place(watch: Callable[..., Run], scenario: Scenario) -> None:
    scenario.add("2 lost")
    values = watch().until(lambda values: "gpu" in values.rows)
    assert values.rows["gpu"] == [key(0), key(1), "index:2", *(key(index) for index in range(3, 8))]
    assert values.cell("gpu", "index:2", "util") == "!GPU is lost"
    assert values.cell("gpu", key(3), "util") == 97


def test_what_is_not_supported_is_said_and_not_asked_again(
    watch: Callable[..., Run], scenario: Scenario
) -> None:
    scenario.add(
        "all !nvmlDeviceGetUtilizationRates 3", "2 !nvmlDeviceGetPowerUsage 4", "1 temp_mem_error 3",
        "without nvmlDeviceGetRemappedRows", "all mig 1", "6 power_mw 4294967295",
        "4 !nvmlDeviceGetTemperature 999", "without nvmlDeviceGetCurrentClocksEventReasons", "all reasons 4",
    )  # fmt: skip
    run = watch()
    values = run.until(lambda values: (values.frame.g["gpu"].n if values.frame else 0) >= 5)
    assert values.cell("gpu", key(0), "util") == "!Not Supported"
    assert values.cell("gpu", key(0), "mem_util") == "!Not Supported"
    assert power(values, 2) == "!Insufficient Permissions"
    assert power(values, 6) == 4294967295, "a marker is for the console to judge"
    assert values.cell("gpu", key(1), "temp_mem") == "!Not Supported"
    assert values.cell("gpu", key(2), "temp_mem") == 74
    assert values.cell("gpu", key(0), "remap_failed") == "!Function Not Found"
    assert values.cell("gpu", key(4), "temp") == "!Unknown Error"
    assert values.cell("gpu", key(5), "temp") == 58
    assert values.cell("gpu", key(0), "reasons") == 4, "older drivers have it under another name"
    assert values.cell("gpu", key(0), "mig") == 1
    run.request(do="stop")
    assert run.wait() == 0
    calls = scenario.calls()
    assert calls["nvmlDeviceGetUtilizationRates"] == 8, "asked once a device, not once a tick"
    assert calls["nvmlDeviceGetRemappedRows"] == 8
    assert calls["nvmlDeviceGetPowerUsage"] >= 5 * 8
    assert calls["nvmlDeviceGetEnforcedPowerLimit"] == 8, "a limit is read once a minute"
    assert calls["nvmlDeviceGetTotalEccErrors"] == 16
    assert calls["nvmlDeviceGetName"] == 8
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1


def test_a_hung_call_costs_the_gpu_group_only(watch: Callable[..., Run], scenario: Scenario) -> None:
    run = watch(deadlines={"gpu": 0.5})
    run.until(lambda values: "gpu" in values.rows)
    scenario.add("3 hang nvmlDeviceGetPowerUsage")

    def hung(values: Values) -> bool:
        return values.frame is not None and values.frame.g["gpu"].st == "hung"

    values = run.until(hung)
    assert values.frame is not None
    assert values.frame.g["gpu"].w == "nvmlDeviceGetPowerUsage(GPU 3)"
    then = values.frame
    values = run.until(lambda values: values.frame is not None and values.frame.g["rdma"].n > then.g["rdma"].n + 3)
    assert values.frame is not None
    assert values.frame.g["pcie"].n > then.g["pcie"].n
    assert values.frame.g["host"].n > then.g["host"].n
    assert (values.frame.g["gpu"].n, values.frame.g["gpu"].t) == (then.g["gpu"].n, then.g["gpu"].t)
    assert power(values, 3) == 512000, "the last reading, with its age"
    scenario.drop("3 hang nvmlDeviceGetPowerUsage")
    values = run.until(lambda values: not hung(values))
    assert power(values, 3) == 512000


def test_a_hung_driver_does_not_hold_the_end(watch: Callable[..., Run], scenario: Scenario) -> None:
    run = watch(deadlines={"gpu": 0.3})
    run.until(lambda values: "gpu" in values.rows)
    scenario.add("0 hang nvmlDeviceGetPowerUsage")
    run.until(lambda values: values.frame is not None and values.frame.g["gpu"].st == "hung")
    assert run.process.stdin is not None
    run.process.stdin.close()
    assert run.wait() == 0


@pytest.mark.parametrize(
    ("code", "words"), [(18, "Driver/library version mismatch"), (9, "Driver Not Loaded"), (999, "Unknown Error")]
)
def test_nvml_does_not_start(watch: Callable[..., Run], scenario: Scenario, code: int, words: str) -> None:
    scenario.add(f"init {code}")
    values = watch().until(lambda values: values.frame is not None and values.frame.g["gpu"].st == "error")
    assert values.frame is not None
    assert values.frame.g["gpu"].e == words
    assert "gpu" not in values.rows
    assert values.frame.g["rdma"].st == "ok"


def test_driver_unloaded_under_the_probe_and_loaded_again(
    watch: Callable[..., Run], scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = watch(body=sooner(gpu__RESTART_SECONDS=1.0, gpu__RELIST_SECONDS=1.0))
    run.until(lambda values: "gpu" in values.rows)
    scenario.add("gone 1", "init 9")
    values = run.until(lambda values: values.frame is not None and values.frame.g["gpu"].st == "error")
    assert values.frame is not None
    assert values.frame.g["gpu"].e == "Uninitialized"
    assert power(values, 0) == "!Uninitialized", "no old value passes for a new one"
    scenario.write("count 8", "count_calls 1", "all power_mw 250000")
    values = run.until(lambda values: power(values, 0) == 250000)
    assert values.frame is not None
    assert values.frame.g["gpu"].st == "ok"


def test_sixteen_gpus(watch: Callable[..., Run], scenario: Scenario) -> None:
    scenario.add("count 16")
    values = watch().until(lambda values: "gpu" in values.rows)
    assert len(set(values.rows["gpu"])) == 16


def test_no_device_is_no_error(watch: Callable[..., Run], scenario: Scenario) -> None:
    scenario.add("count 0")
    values = watch().until(lambda values: "gpu" in values.rows)
    assert values.rows["gpu"] == []


def test_library_that_does_not_load(start: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_text("no library")
    values = start(nvml=str(tmp_path / "lib.so")).until(
        lambda values: values.frame is not None and values.frame.g["gpu"].st == "error"
    )
    assert values.frame is not None
    assert "lib.so" in values.frame.g["gpu"].e


def test_numbers_are_those_of_pynvml() -> None:
    assert gpu.CLOCK_SM == pynvml.NVML_CLOCK_SM
    assert gpu.CLOCK_MEM == pynvml.NVML_CLOCK_MEM
    assert gpu.FIELD_MEMORY_TEMP == pynvml.NVML_FI_DEV_MEMORY_TEMP
    assert gpu.SENSOR_GPU == pynvml.NVML_TEMPERATURE_GPU
    assert gpu.THRESHOLD_SHUTDOWN == pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    assert gpu.THRESHOLD_SLOWDOWN == pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    assert gpu.THRESHOLD_MEM_MAX == pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX
    assert gpu.CORRECTED == pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
    assert gpu.UNCORRECTED == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    assert gpu.VOLATILE == pynvml.NVML_VOLATILE_ECC
    assert gpu.NOT_SUPPORTED == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert gpu.FUNCTION_NOT_FOUND == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert gpu.GPU_IS_LOST == pynvml.NVML_ERROR_GPU_IS_LOST
    assert gpu.RESTART == (
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )
    assert all(hasattr(pynvml, function) for spec in gpu.SPECS for function in spec[1])
    assert gpu.FIELD_POWER_INSTANT == pynvml.NVML_FI_DEV_POWER_INSTANT
    assert gpu.FIELD_NVLINK_CRC_FLIT == pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    assert gpu.FIELD_NVLINK_CRC_DATA == pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
    assert gpu.FIELD_NVLINK_REPLAY == pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
    assert gpu.FIELD_NVLINK_RECOVERY == pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
    assert gpu.FIELD_ECC_SBE_AGGREGATE == pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL
    assert gpu.FIELD_ECC_DBE_AGGREGATE == pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL
    assert gpu.FIELD_RETIRED_SBE == pynvml.NVML_FI_DEV_RETIRED_SBE
    assert gpu.FIELD_RETIRED_DBE == pynvml.NVML_FI_DEV_RETIRED_DBE
    assert gpu.FIELD_RETIRED_PENDING == pynvml.NVML_FI_DEV_RETIRED_PENDING
    assert gpu.MAX_LINKS == pynvml.NVML_NVLINK_MAX_LINKS
    assert (gpu.INVALID_ARGUMENT, gpu.NOT_FOUND) == (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_FOUND)
    assert pynvml.nvmlEventTypeXidCriticalError == xid.XID_CRITICAL_ERROR
    assert xid.TIMEOUT == pynvml.NVML_ERROR_TIMEOUT
