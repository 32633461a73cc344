"""What drivers say of PCI devices in the kernel's log: kind by kind, how grave it is and what to look at.

The words are those of the drivers' source, named as ``source``; the gravity is ours: what ends a job or needs hands on
the machine is critical; what may come before that a warning; link messages of network cards are for information, as
their ports have alerts of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop.signals.xid import CRITICAL, INFO, NONE, WARNING, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

AER_DOC = "kernel Documentation/PCI/pcieaer-howto.rst, drivers/pci/pcie/aer.c"
DPC_DOC = "kernel drivers/pci/pcie/dpc.c"
HOTPLUG_DOC = "kernel drivers/pci/hotplug/pciehp_ctrl.c"
PCI_DOC = "kernel drivers/pci/pci.c"
MLX5_DOC = "kernel drivers/net/ethernet/mellanox/mlx5/core/events.c"
HEALTH_DOC = "kernel drivers/net/ethernet/mellanox/mlx5/core/health.c"
COMMAND_DOC = "kernel drivers/net/ethernet/mellanox/mlx5/core/cmd.c"
NVME_DOC = "kernel drivers/nvme/host/pci.c"
BLOCK_DOC = "kernel block/blk-core.c"
NET_DOC = "the network drivers' own words"
SXID_DOC = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
PANIC_DOC = "kernel kernel/panic.c"

_LINK = "the link: seating, riser, retimer, cable, slot temperature; compare its AER rate with its neighbours"
_CARD = "drain the node; power-cycle it (a warm reboot may not reset the card); if it comes back, replace the card"
_FIRMWARE = "compare its firmware with the peers'; if it comes back, update it or replace the card"
_DRIVE = "look at the drive's SMART log; if it comes back, replace the drive"


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that a driver may say."""

    name: str
    pattern: str
    """Matches the message behind ``driver address:``; its named groups may stand in ``words``."""
    level: int
    fault: Fault
    words: str
    todo: str
    source: str
    drivers: tuple[str, ...] = ()
    """Only of these; empty: of any."""


AER_CORRECTED = Kind("aer_corrected", "", INFO, "hardware", "corrected PCIe error", _LINK, AER_DOC)
AER_HIDDEN = Kind(
    "aer_many", "", WARNING, "hardware", "corrected PCIe errors, so many that the kernel leaves out lines", _LINK,
    AER_DOC)
AER_NONFATAL = Kind("aer_nonfatal", "", WARNING, "hardware", "uncorrectable, non-fatal PCIe error", _LINK, AER_DOC)
AER_FATAL = Kind(
    "aer_fatal", "", CRITICAL, "hardware", "fatal PCIe error",
    "the link is reset or the device is lost; drain the node, then look at seating, riser, retimer and supply", AER_DOC)
XID = Kind("xid", "", WARNING, "unknown", "Xid", "", "https://docs.nvidia.com/deploy/xid-errors/")
SXID_FATAL = Kind("sxid_fatal", "", CRITICAL, "fabric", "fatal NVSwitch error, SXid {code}: {text}",
                  "jobs on its GPUs end; stop them, reset all GPUs and switches of the node or reboot it", SXID_DOC)
SXID = Kind("sxid", "", WARNING, "fabric", "NVSwitch error, SXid {code}: {text}",
            "look at the NVLinks of the GPUs and at the fabric manager's log", SXID_DOC)
PANIC = Kind("panic", r"Kernel panic - not syncing: (?P<text>.+)", CRITICAL, "unknown", "kernel panic: {text}",
             "the node stopped here; what stands before it in the log says why", PANIC_DOC)
OTHER = Kind("other", "", INFO, "unknown", "a message that we do not know", "read it", "")

_MLX5 = ("mlx5_core", "mlx5_ib")
_BNXT = ("bnxt_en",)
_FUNCTION = r"(?:[a-z]\w*:(?:\d+:\(pid -?\d+\):)? )?"
_MODULE = r"Port module event(?:\[\w+\])?: module (?P<module>\d+), "

KINDS: tuple[Kind, ...] = (
    AER_CORRECTED, AER_HIDDEN, AER_NONFATAL, AER_FATAL, XID, SXID_FATAL, SXID, PANIC, OTHER,
    # -- the bus
    Kind("aer_recovered", r"AER: [Dd]evice recovery successful", INFO, "hardware",
         "recovered from an uncorrectable PCIe error", _LINK, AER_DOC),
    Kind("aer_unrecovered", r"AER: [Dd]evice recovery failed", CRITICAL, "hardware",
         "did not recover from an uncorrectable PCIe error", _CARD, AER_DOC),
    Kind("aer_no_handler", r"AER: can't recover \((?P<text>[^)]{1,60})\)", WARNING, "driver",
         "a PCIe error that its driver cannot recover from ({text})", _LINK, AER_DOC),
    Kind("link_reset", r"AER: (?:Root|Downstream) Port link has been reset", WARNING, "hardware",
         "its link was reset after a fatal error", _LINK, AER_DOC),
    Kind("dpc", r"DPC: containment event", CRITICAL, "hardware",
         "shut the link below it after an uncorrectable error (DPC)", _LINK, DPC_DOC),
    Kind("dpc_detail", r"DPC: ", WARNING, "hardware", "downstream port containment (DPC)", _LINK, DPC_DOC),
    Kind("hotplug_down", r"pciehp: Slot\([^)]{1,20}\): Link Down", WARNING, "hardware",
         "the link of its slot went down", _LINK, HOTPLUG_DOC),
    Kind("hotplug_gone", r"pciehp: Slot\([^)]{1,20}\): Card not present", WARNING, "hardware",
         "the card in its slot is gone", _LINK, HOTPLUG_DOC),
    Kind("hotplug_power", r"pciehp: Slot\([^)]{1,20}\): Power fault", CRITICAL, "power",
         "power fault at its slot", "look at the slot's supply and at the card", HOTPLUG_DOC),
    Kind("inaccessible", r".*(?:device inaccessible|config space inaccessible)", CRITICAL, "hardware",
         "does not answer on the bus any more", _CARD, PCI_DOC),
    Kind("reset_failed", r"not ready \d+ms after [\w ]{1,20}; giving up", CRITICAL, "hardware",
         "did not come back after a reset", _CARD, PCI_DOC),
    Kind("reset_slow", r"not ready \d+ms after", INFO, "hardware", "is slow to come back after a reset", "", PCI_DOC),
    Kind("retrain_failed", r"retraining failed", CRITICAL, "hardware", "its link does not train", _LINK,
         "kernel drivers/pci/quirks.c"),
    Kind("retrain", r"broken device, retraining", WARNING, "hardware",
         "its link does not train; the kernel tries at 2.5 GT/s", _LINK, "kernel drivers/pci/quirks.c"),
    Kind("bandwidth_limited",
         r"(?P<rate>\d+\.\d+ Gb/s) available PCIe bandwidth, limited by (?P<speed>[\d.]+ GT/s) PCIe "
         r"(?P<width>x\d+) link at (?P<hop>[0-9a-f:.]{7,16})",
         INFO, "hardware", "link limited to {rate} ({speed} {width}) at {hop}", "see its lanes and its path", PCI_DOC),
    Kind("bandwidth", r"(?P<rate>\d+\.\d+ Gb/s) available PCIe bandwidth \((?P<speed>[\d.]+ GT/s) PCIe "
         r"(?P<width>x\d+) link\)", NONE, "hardware", "link gives {rate} ({speed} {width})", "", PCI_DOC),
    # -- mlx5
    Kind("slot_power", _FUNCTION + r"Detected insufficient power on the PCIe slot \((?P<watts>\d+)W\)", WARNING,
         "power", "the slot says that it gives {watts} W, less than the card asks for",
         "the slot's power setting in the BIOS, the riser, the auxiliary power cable; ports may be shut", MLX5_DOC,
         _MLX5),
    Kind("slot_power_unknown", _FUNCTION + r"PCIe slot power capability was not advertised", INFO, "power",
         "the slot does not say how much power it gives", "", MLX5_DOC, _MLX5),
    Kind("module_hot", _FUNCTION + r"Port module event(?:\[\w+\])?: module (?P<module>\d+),(?: .*,)? High Temperature",
         WARNING, "hardware", "module {module} is too hot and may shut down",
         "airflow at the cage, the module's power class, the inlet temperature", MLX5_DOC, _MLX5),
    Kind("module_error", _FUNCTION + _MODULE + r"Cable error, (?P<text>[\w ()/.,'-]{1,60})", WARNING, "hardware",
         "module {module}: {text}", "reseat, clean or replace the cable or transceiver", MLX5_DOC, _MLX5),
    Kind("cable_out", _FUNCTION + _MODULE + r"Cable unplugged", INFO, "hardware", "module {module}: cable unplugged",
         "where the port should be in use, its own alert says so", MLX5_DOC, _MLX5),
    Kind("cable_in", _FUNCTION + _MODULE + r"Cable (?:plugged|enabled)", NONE, "hardware",
         "module {module}: cable plugged", "", MLX5_DOC, _MLX5),
    Kind("card_hot", _FUNCTION + r"High temperature on sensors with bit set (?P<text>0x[0-9a-f]{1,16})", WARNING,
         "hardware", "too hot, at sensors {text}", "airflow, fans, the inlet temperature and the neighbours", MLX5_DOC,
         _MLX5),
    Kind("firmware_dead", _FUNCTION + r"device's health compromised - reached miss count", CRITICAL, "hardware",
         "its firmware has stopped", _CARD, HEALTH_DOC, _MLX5),
    Kind("firmware_error", _FUNCTION + r"Health issue observed, (?P<text>[\w ,-]{1,60}), severity\([0-3]\)", CRITICAL,
         "hardware", "firmware reports: {text}", _CARD, HEALTH_DOC, _MLX5),
    Kind("firmware_warning", _FUNCTION + r"Health issue observed, (?P<text>[\w ,-]{1,60}), severity\(4\)", WARNING,
         "hardware", "firmware reports: {text}", _FIRMWARE, HEALTH_DOC, _MLX5),
    Kind("firmware_note", _FUNCTION + r"Health issue observed, (?P<text>[\w ,-]{1,60}), severity\(\d\)", INFO,
         "hardware", "firmware reports: {text}", "", HEALTH_DOC, _MLX5),
    Kind("firmware_syndrome", _FUNCTION + r"synd (?P<code>0x[0-9a-f]+): (?P<text>[\w ,-]{1,60})", CRITICAL, "hardware",
         "firmware syndrome {code}: {text}", _CARD, HEALTH_DOC, _MLX5),
    Kind("fatal_sensor", _FUNCTION + r"Fatal error (?P<code>\d+) detected", CRITICAL, "hardware",
         "fatal error {code} of the card", _CARD, HEALTH_DOC, _MLX5),
    Kind("health_lost", _FUNCTION + r"(?:health recovery (?:failed|flow aborted)|handling bad device here)", CRITICAL,
         "hardware", "the driver could not bring the card back", _CARD, HEALTH_DOC, _MLX5),
    Kind("health_back", _FUNCTION + r"health recovery succeeded", INFO, "hardware", "the driver brought the card back",
         _FIRMWARE, HEALTH_DOC, _MLX5),
    Kind("card_reset", r"mlx5_error_sw_reset:\d+:\(pid -?\d+\): start", WARNING, "hardware",
         "the driver resets the card after a fault", _CARD, HEALTH_DOC, _MLX5),
    Kind("card_reset_over", r"mlx5_error_sw_reset:\d+:\(pid -?\d+\): end", NONE, "hardware",
         "the driver has reset the card", "", HEALTH_DOC, _MLX5),
    Kind("register_refused", _FUNCTION + r"ACCESS_REG(?:\(0x[0-9a-f]+\))?(?: op_mod\(0x[0-9a-f]+\))? failed", INFO,
         "driver", "the firmware refused a register, often to a monitor that asks for what the card lacks",
         "look which tool on the node reads modules or registers", COMMAND_DOC, _MLX5),
    Kind("command_timeout", _FUNCTION + r"[A-Z][A-Z0-9_]{2,40}\(0x[0-9a-f]+\) timeout", WARNING, "hardware",
         "its firmware does not answer a command", _FIRMWARE, COMMAND_DOC, _MLX5),
    # -- other network cards
    Kind("command_timeout_bnxt", r"(?:hwrm )?.{0,30}Error \(timeout: \d+\) msg", WARNING, "hardware",
         "its firmware does not answer a command", _FIRMWARE, "kernel drivers/net/ethernet/broadcom/bnxt/bnxt_hwrm.c",
         _BNXT),
    Kind("transmit_timeout", r"(?:TX|Tx|transmit) ?(?:timeout|queue \d+ timed out)", WARNING, "driver",
         "does not send: a queue timed out", _FIRMWARE, NET_DOC),
    Kind("link_down", r"(?:NIC )?Link (?:is )?(?:down|Down)", INFO, "unknown", "link down",
         "its port has alerts of its own", NET_DOC),
    Kind("link_up", r"(?:NIC )?Link (?:is )?(?:up|Up)", NONE, "unknown", "link up", "", NET_DOC),
    # -- drives
    Kind("drive_gone", r"controller is down; will reset: CSTS=0xffffffff", CRITICAL, "hardware",
         "the drive does not answer on the bus any more", _DRIVE, NVME_DOC, ("nvme",)),
    Kind("drive_down", r"controller is down; will reset", WARNING, "hardware", "the drive stopped and is reset", _DRIVE,
         NVME_DOC, ("nvme",)),
    Kind("drive_removed", r"Removing after probe failure|Device not ready; aborting", CRITICAL, "hardware",
         "the drive did not come back and was removed", _DRIVE, NVME_DOC, ("nvme",)),
    Kind("drive_timeout", r"I/O (?:tag )?\d+.{0,60} timeout", WARNING, "hardware", "the drive does not answer in time",
         _DRIVE, NVME_DOC, ("nvme",)),
    Kind("drive_frozen", r"frozen state error detected, reset controller", WARNING, "hardware",
         "the drive is reset after a PCIe error", _LINK, NVME_DOC, ("nvme",)),
    Kind("drive_medium", r"critical medium error", CRITICAL, "hardware", "the drive cannot read or write a block",
         _DRIVE, BLOCK_DOC, ("block",)),
    Kind("drive_io", r"(?:I/O|critical \w+) error", WARNING, "hardware", "the drive failed a read or write", _DRIVE,
         BLOCK_DOC, ("block",)),
)
NUMBER: Mapping[str, int] = {kind.name: number for number, kind in enumerate(KINDS)}
PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(kind.pattern)) for kind in KINDS if kind.pattern)

# -- AER: drivers/pci/pcie/aer.c, today's names and those of before Linux 5.1

CORRECTED: Mapping[str, str] = {
    "RxErr": "RxErr", "Receiver Error": "RxErr", "BadTLP": "BadTLP", "Bad TLP": "BadTLP", "BadDLLP": "BadDLLP",
    "Bad DLLP": "BadDLLP", "Rollover": "Rollover", "RELAY_NUM Rollover": "Rollover", "Timeout": "Timeout",
    "Replay Timer Timeout": "Timeout", "NonFatalErr": "NonFatalErr", "Advisory Non-Fatal": "NonFatalErr",
    "CorrIntErr": "CorrIntErr", "Corrected Internal Error": "CorrIntErr", "HeaderOF": "HeaderOF",
    "Header Log Overflow": "HeaderOF",
}
UNCORRECTABLE: Mapping[str, str] = {
    "Undefined": "Undefined", "DLP": "DLP", "Data Link Protocol": "DLP", "SDES": "SDES", "Surprise Down Error": "SDES",
    "TLP": "TLP", "Poisoned TLP": "TLP", "FCP": "FCP", "Flow Control Protocol": "FCP", "CmpltTO": "CmpltTO",
    "Completion Timeout": "CmpltTO", "CmpltAbrt": "CmpltAbrt", "Completer Abort": "CmpltAbrt", "UnxCmplt": "UnxCmplt",
    "Unexpected Completion": "UnxCmplt", "RxOF": "RxOF", "Receiver Overflow": "RxOF", "MalfTLP": "MalfTLP",
    "Malformed TLP": "MalfTLP", "ECRC": "ECRC", "UnsupReq": "UnsupReq", "Unsupported Request": "UnsupReq",
    "ACSViol": "ACSViol", "ACS Violation": "ACSViol", "UncorrIntErr": "UncorrIntErr",
    "Uncorrectable Internal Error": "UncorrIntErr", "BlockedTLP": "BlockedTLP", "MC Blocked TLP": "BlockedTLP",
    "AtomicOpBlocked": "AtomicOpBlocked", "AtomicOp Egress Blocked": "AtomicOpBlocked",
    "TLPBlockedErr": "TLPBlockedErr", "TLP Prefix Blocked Error": "TLPBlockedErr",
    "PoisonTLPBlocked": "PoisonTLPBlocked", "Poisoned TLP Egress Blocked": "PoisonTLPBlocked",
}
ERRORS: Mapping[str, str] = {
    "RxErr": "receiver error", "BadTLP": "packet with a bad checksum", "BadDLLP": "link packet with a bad checksum",
    "Rollover": "sent again too often", "Timeout": "no acknowledgement in time", "NonFatalErr": "advisory",
    "CorrIntErr": "corrected inside the device", "HeaderOF": "more errors than it can log",
    "DLP": "link protocol broken", "SDES": "the link went down unasked", "TLP": "poisoned data",
    "FCP": "flow control broken", "CmpltTO": "no answer in time", "CmpltAbrt": "request refused",
    "UnxCmplt": "an answer that nobody asked for", "RxOF": "receiver overflow", "MalfTLP": "malformed packet",
    "ECRC": "end-to-end checksum wrong", "UnsupReq": "a request that it does not know", "ACSViol": "access not allowed",
    "UncorrIntErr": "fault inside the device", "BlockedTLP": "packet blocked", "AtomicOpBlocked": "atomic blocked",
    "TLPBlockedErr": "packet prefix blocked", "PoisonTLPBlocked": "poisoned packet blocked",
}
"""In a few words (PCI Express Base Specification, 6.2)."""
