"""What is asked of each GPU, with which NVML calls and how often: cheap things every tick, dear things seldom.

No profiling counters, no GPM, no GetPcieThroughput, and nothing that changes a setting.
"""

from .frames import Err

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from .frames import Attr, Cell

    Ask = Callable[..., Any]
    """Calls an NVML function: its name, the device's index (for the words of a hang), its arguments."""
    Pick = Optional[Callable[[Any], Tuple[Cell, ...]]]
    Spec = Tuple[Tuple[str, ...], Tuple[str, ...], Tuple[Any, ...], Pick, float]

SELDOM = 10.0
RARE = 60.0

# Numbers of nvml.h. They are ABI; the tests compare them with pynvml's.
CLOCK_SM, CLOCK_MEM = 1, 2
SENSOR_GPU = 0
THRESHOLD_SHUTDOWN, THRESHOLD_SLOWDOWN, THRESHOLD_MEM_MAX = 0, 1, 2
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND = 2, 3, 6, 13
LIBRARY_NOT_FOUND, GPU_IS_LOST = 12, 15
RESTART = (1, 9, 18)
"""Uninitialized, Driver Not Loaded, Driver/library version mismatch: only a new start helps."""
LACKS = (INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND)
"""A field with one of these answers is not there on this card or driver: it is not asked again for a while."""

FIELD_MEMORY_TEMP, FIELD_POWER_INSTANT = 82, 186
FIELD_NVLINK_CRC_FLIT, FIELD_NVLINK_CRC_DATA, FIELD_NVLINK_REPLAY, FIELD_NVLINK_RECOVERY = 38, 45, 52, 59
FIELD_ECC_SBE_AGGREGATE, FIELD_ECC_DBE_AGGREGATE = 5, 6
FIELD_RETIRED_SBE, FIELD_RETIRED_DBE, FIELD_RETIRED_PENDING = 29, 30, 31
MAX_LINKS = 36
"""NVML_NVLINK_MAX_LINKS: links are asked one by one until the driver knows no more."""
MAX_INSTANCES = 16

FIELDS = "nvmlDeviceGetFieldValues"
"""One call for several fields; each has its own answer, and its own column."""
LINKS = "nvmlDeviceGetNvLinkState"
INSTANCES = "nvmlDeviceGetMigDeviceHandleByIndex"

_KINDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def field(got: "Any") -> "Cell":
    """Return one answer of GetFieldValues, by its type."""
    kind = int(got.valueType)
    return getattr(got.value, _KINDS[kind]) if kind < len(_KINDS) else Err("value type {}".format(kind))


# (columns, functions (the first that this driver has), arguments, what of the answer, seconds between calls)
SPECS: "Tuple[Spec, ...]" = (
    (("util", "mem_util"), ("nvmlDeviceGetUtilizationRates",), (), lambda got: (got.gpu, got.memory), 0.0),
    (("mem_used", "mem_total"), ("nvmlDeviceGetMemoryInfo",), (), lambda got: (got.used, got.total), 0.0),
    (("power_mw",), ("nvmlDeviceGetPowerUsage",), (), None, 0.0),
    (("temp",), ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), (SENSOR_GPU,), None, 0.0),
    (("temp_mem", "power_instant_mw"), (FIELDS,), (FIELD_MEMORY_TEMP, FIELD_POWER_INSTANT), None, 0.0),
    (("sm_mhz",), ("nvmlDeviceGetClockInfo",), (CLOCK_SM,), None, 0.0),
    (("mem_mhz",), ("nvmlDeviceGetClockInfo",), (CLOCK_MEM,), None, 0.0),
    (
        ("reasons",),
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        (), None, 0.0,
    ),
    (("pstate",), ("nvmlDeviceGetPerformanceState",), (), None, 0.0),
    (("pcie_gen",), ("nvmlDeviceGetCurrPcieLinkGeneration",), (), None, 0.0),
    (("pcie_width",), ("nvmlDeviceGetCurrPcieLinkWidth",), (), None, 0.0),
    (("pcie_replays",), ("nvmlDeviceGetPcieReplayCounter",), (), None, SELDOM),
    (("ecc_cor",), ("nvmlDeviceGetTotalEccErrors",), (CORRECTED, VOLATILE), None, SELDOM),
    (("ecc_unc",), ("nvmlDeviceGetTotalEccErrors",), (UNCORRECTED, VOLATILE), None, SELDOM),
    # Cards from Hopper on tell how far their hottest part is from its limit, and no longer where the limits are.
    (("temp_margin",), ("nvmlDeviceGetMarginTemperature",), (), None, SELDOM),
    (
        ("nvlink_crc_flit", "nvlink_crc_data", "nvlink_replays", "nvlink_recoveries"),
        (FIELDS,),
        (FIELD_NVLINK_CRC_FLIT, FIELD_NVLINK_CRC_DATA, FIELD_NVLINK_REPLAY, FIELD_NVLINK_RECOVERY), None, SELDOM,
    ),
    (("power_limit_mw",), ("nvmlDeviceGetEnforcedPowerLimit",), (), None, RARE),
    (("temp_slowdown",), ("nvmlDeviceGetTemperatureThreshold",), (THRESHOLD_SLOWDOWN,), None, RARE),
    (("temp_shutdown",), ("nvmlDeviceGetTemperatureThreshold",), (THRESHOLD_SHUTDOWN,), None, RARE),
    (("temp_mem_max",), ("nvmlDeviceGetTemperatureThreshold",), (THRESHOLD_MEM_MAX,), None, RARE),
    (("pcie_gen_max",), ("nvmlDeviceGetMaxPcieLinkGeneration",), (), None, RARE),
    (("pcie_gen_devmax",), ("nvmlDeviceGetGpuMaxPcieLinkGeneration",), (), None, RARE),
    (("pcie_width_max",), ("nvmlDeviceGetMaxPcieLinkWidth",), (), None, RARE),
    (("sm_mhz_max",), ("nvmlDeviceGetMaxClockInfo",), (CLOCK_SM,), None, RARE),
    (("bar1_total",), ("nvmlDeviceGetBAR1MemoryInfo",), (), lambda got: (got.bar1Total,), RARE),
    (("persistence",), ("nvmlDeviceGetPersistenceMode",), (), None, RARE),
    (("mig",), ("nvmlDeviceGetMigMode",), (), lambda got: (got[0],), RARE),
    (("ecc_mode",), ("nvmlDeviceGetEccMode",), (), lambda got: (got[0],), RARE),
    (
        ("remap_cor", "remap_unc", "remap_pending", "remap_failed"),
        ("nvmlDeviceGetRemappedRows",), (), tuple, RARE,
    ),
    (
        ("ecc_cor_all", "ecc_unc_all", "retired_cor", "retired_unc", "retired_pending"),
        (FIELDS,),
        (
            FIELD_ECC_SBE_AGGREGATE, FIELD_ECC_DBE_AGGREGATE, FIELD_RETIRED_SBE, FIELD_RETIRED_DBE,
            FIELD_RETIRED_PENDING,
        ), None, RARE,
    ),
    (("fan",), ("nvmlDeviceGetFanSpeed",), (), None, RARE),
    (("nvlink_links", "nvlink_up"), (LINKS,), (), None, RARE),
    (("mig_instances",), (INSTANCES,), (), None, RARE),
)  # fmt: skip


def links(ask: "Ask", index: int, handle: "Any", error: "Any") -> "Tuple[Cell, ...]":
    """Return the number of NVLinks that the driver knows, and how many of them are up.

    Raises:
        NVMLError: it knows of none, for the reason of the first.
    """
    known = up = 0
    first = None
    for link in range(MAX_LINKS):
        try:
            state = ask(LINKS, index, handle, link)
        except error as problem:
            if problem.value not in LACKS:
                raise
            first = first or problem
            if problem.value != NOT_SUPPORTED or not known:
                break
            continue
        known += 1
        up += state == 1
    if first is not None and not known:
        raise first
    return known, up


def instances(ask: "Ask", index: int, handle: "Any", error: "Any") -> "List[str]":
    """Return the MIG instances of a device, each as ``1g.10gb 10200547328`` (profile, bytes).

    Raises:
        NVMLError: they cannot be counted.
    """
    found: "List[str]" = []
    for slot in range(min(ask("nvmlDeviceGetMaxMigDeviceCount", index, handle), MAX_INSTANCES)):
        try:
            instance = ask(INSTANCES, index, handle, slot)
        except error as problem:
            if problem.value in (NOT_FOUND, INVALID_ARGUMENT):
                continue
            raise
        try:
            name = ask("nvmlDeviceGetName", index, instance)
            name = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
            profile = name.rpartition(" MIG ")[2] if " MIG " in name else "?"
        except error:
            profile = "?"
        try:
            size = str(ask("nvmlDeviceGetMemoryInfo", index, instance).total)
        except error:
            size = "?"
        found.append("{} {}".format(profile, size))
    return found


def identify(ask: "Ask", index: int, handle: "Any", error: "Any", uuid: str) -> "Tuple[str, Dict[str, Attr]]":
    """Return a device's key and attributes: what does not change while it is there."""
    attrs: "Dict[str, Attr]" = {"index": index}
    try:
        pci = ask("nvmlDeviceGetPciInfo", index, handle).busId
    except error:
        pci = b""
    for name, text in (
        ("uuid", uuid),
        ("pci", pci.decode("ascii", "replace") if isinstance(pci, bytes) else str(pci)),
        ("name", words("nvmlDeviceGetName", ask, index, handle, error)),
        ("serial", words("nvmlDeviceGetSerial", ask, index, handle, error)),
        ("part", words("nvmlDeviceGetBoardPartNumber", ask, index, handle, error)),
        ("vbios", words("nvmlDeviceGetVbiosVersion", ask, index, handle, error)),
    ):
        if text:
            attrs[name] = text
    try:
        attrs["minor"] = ask("nvmlDeviceGetMinorNumber", index, handle)
    except error:
        pass
    if uuid:
        return uuid, attrs
    return ("pci:{}".format(attrs["pci"]) if "pci" in attrs else "index:{}".format(index)), attrs


def words(function: str, ask: "Ask", index: int, handle: "Any", error: "Any") -> str:
    """Return a text that NVML has of a device; empty where it gives none."""
    try:
        text = ask(function, index, handle)
    except (error, UnicodeDecodeError):
        return ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
