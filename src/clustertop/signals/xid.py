"""Xids: what the driver's fault numbers mean, whose fault they usually are, and how bad that is.

Source: NVIDIA's Xid catalog, docs.nvidia.com/deploy/xid-errors (names and resolutions); the severity is ours: what
needs hands on the machine is critical, the fabric between machines a warning, the job's own faults are for its owner.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

SOURCE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

Fault = Literal["hardware", "driver", "fabric", "application", "power", "unknown"]

NONE, INFO, WARNING, CRITICAL = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Xid:
    """One fault number."""

    code: int
    name: str
    """NVIDIA's name for it, shortened."""
    fault: Fault
    """Whose it usually is."""
    level: int
    """``INFO``, ``WARNING`` or ``CRITICAL``."""
    todo: str = ""


_RESET = "drain the node and reset the GPU; if it comes back, replace it"
_MEMORY = "the GPU must be reset; if it comes back, run the field diagnostic"
_JOB = "usually the job's own fault: a bad address or kernel; look at the job first"
_LINK = "look at the links' errors, the fabric manager and the switches"
_DRIVER = "driver or firmware; if it comes back, reset the GPU and report it to NVIDIA"

XIDS: dict[int, Xid] = {xid.code: xid for xid in (
    Xid(8, "GPU stopped processing", "application", INFO, _JOB),
    Xid(11, "invalid or corrupted push buffer stream", "driver", WARNING, _DRIVER),
    Xid(12, "driver error handling a GPU exception", "driver", WARNING, _DRIVER),
    Xid(13, "graphics engine exception", "application", INFO, _JOB),
    Xid(31, "GPU memory page fault", "application", INFO, _JOB),
    Xid(32, "invalid or corrupted push buffer stream", "driver", WARNING, _DRIVER),
    Xid(38, "driver firmware error", "driver", WARNING, _DRIVER),
    Xid(43, "GPU stopped processing", "application", INFO, _JOB),
    Xid(44, "graphics engine fault during context switch", "driver", WARNING, _DRIVER),
    Xid(45, "preemptive cleanup, due to previous errors", "application", INFO,
        "follows another fault or the end of a job; the Xid before it says which"),
    Xid(46, "GPU stopped processing", "driver", CRITICAL, _RESET),
    Xid(48, "double bit ECC error", "hardware", CRITICAL, _MEMORY),
    Xid(54, "auxiliary power is not connected", "power", CRITICAL, "check the power cables of the GPU"),
    Xid(56, "display engine error", "hardware", WARNING, _DRIVER),
    Xid(57, "error programming the video memory interface", "hardware", CRITICAL, _RESET),
    Xid(58, "unstable video memory interface detected", "hardware", CRITICAL, _RESET),
    Xid(61, "internal micro-controller breakpoint or warning", "driver", WARNING, _DRIVER),
    Xid(62, "internal micro-controller halt", "hardware", CRITICAL, _RESET),
    Xid(63, "ECC page retirement or row remapping recorded", "hardware", WARNING,
        "takes effect at the next GPU reset; let the job end, then reset"),
    Xid(64, "ECC page retirement or row remapping failed", "hardware", CRITICAL, _MEMORY),
    Xid(66, "illegal access by driver", "driver", WARNING, _DRIVER),
    Xid(68, "NVDEC0 exception", "application", INFO, _JOB),
    Xid(69, "graphics engine class error", "driver", WARNING, _DRIVER),
    Xid(73, "NVENC2 error", "driver", WARNING, _DRIVER),
    Xid(74, "NVLink error", "fabric", WARNING, _LINK),
    Xid(79, "GPU has fallen off the bus", "hardware", CRITICAL,
        "reset or power-cycle the node; look at the slot, the riser, the supply and the temperature"),
    Xid(80, "corrupted data sent to GPU", "hardware", CRITICAL, _RESET),
    Xid(81, "VGA subsystem error", "hardware", WARNING, _DRIVER),
    Xid(92, "high rate of single-bit ECC errors", "hardware", CRITICAL, "run the field diagnostic"),
    Xid(94, "contained memory error", "hardware", CRITICAL,
        "only the job that hit it is affected; let the others end, then reset the GPU"),
    Xid(95, "uncontained memory error", "hardware", CRITICAL, _MEMORY),
    Xid(109, "context switch timeout error", "driver", WARNING, _DRIVER),
    Xid(110, "security fault error", "hardware", CRITICAL, _RESET),
    Xid(119, "GSP RPC timeout", "driver", CRITICAL, "reset the GPU or the node; a newer driver may cure it"),
    Xid(120, "GSP error", "driver", CRITICAL, "reset the GPU or the node; a newer driver may cure it"),
    Xid(121, "corrected error on the C2C link", "fabric", WARNING, "a link between CPU and GPU; watch its rate"),
    Xid(122, "SPI PMU RPC read failure", "driver", WARNING, _DRIVER),
    Xid(123, "SPI PMU RPC write failure", "driver", WARNING, _DRIVER),
    Xid(124, "SPI PMU RPC erase failure", "driver", WARNING, _DRIVER),
    Xid(125, "Inforom filesystem failure", "hardware", WARNING, _DRIVER),
    Xid(136, "event or alarm of the ALI link training", "fabric", WARNING, _LINK),
    Xid(137, "NVLink fabric linear address privilege error", "application", INFO,
        "often a remote peer's memory that was unmapped; look at the job first"),
    Xid(140, "unrecovered ECC error", "hardware", CRITICAL, _MEMORY),
    Xid(143, "GPU initialisation failure", "hardware", CRITICAL, _RESET),
    Xid(144, "NVLink: SAW error", "fabric", WARNING, _LINK),
    Xid(145, "NVLink: RLW error", "fabric", WARNING, _LINK),
    Xid(146, "NVLink: TLW error", "fabric", WARNING, _LINK),
    Xid(147, "NVLink: TREX error", "fabric", WARNING, _LINK),
    Xid(148, "NVLink: NVLPW_CTRL error", "fabric", WARNING, _LINK),
    Xid(149, "NVLink: NETIR error", "fabric", WARNING, _LINK),
    Xid(150, "NVLink: MSE error", "fabric", WARNING, _LINK),
    Xid(151, "key rotation error", "driver", WARNING, _DRIVER),
    Xid(154, "GPU recovery action changed", "unknown", WARNING,
        "not a fault of its own: the driver now wants a reset, reboot or drain; its log line says which"),
    Xid(155, "NVLink: software-defined error", "fabric", WARNING, _LINK),
    Xid(156, "resource retirement event", "hardware", WARNING, _MEMORY),
    Xid(157, "resource retirement failure", "hardware", CRITICAL, _MEMORY),
    Xid(158, "GPU fatal timeout", "hardware", CRITICAL, _RESET),
    Xid(160, "channel retirement event", "hardware", WARNING, _MEMORY),
    Xid(161, "channel retirement failure", "hardware", CRITICAL, _MEMORY),
)}

_SEEN = re.compile(r"(\d{1,5})x(\d{1,10})")
MAX_CODES = 8
MOST_TEXTS = 4096
LISTED = float(1 << 20)
TEXTS: dict[int, str] = {}
"""Lists of codes that nodes have sent, by the number that stands for each in the table."""
_NUMBERS: dict[str, float] = {}


def look_up(code: float) -> Xid:
    """What is known of a fault number; one that NVIDIA's catalog (or our copy) lacks is a warning."""
    known = XIDS.get(int(code))
    return known or Xid(int(code), f"Xid {int(code)}, which we do not know", "unknown", WARNING,
                        f"look it up: {SOURCE}")


def worst(text: str) -> float:
    """The gravest code of ``45x2 48x1``, newest first; of two alike the newer one; 0 for none.

    Raises:
        ValueError: it is no such list.
    """
    best, level = 0, NONE
    for word in text.split()[:MAX_CODES]:
        found = _SEEN.fullmatch(word)
        if found is None:
            raise ValueError(f"{word!r} is not CODExCOUNT")
        code = int(found.group(1))
        if code and look_up(code).level > level:
            best, level = code, look_up(code).level
    return float(best)


def codes(text: str) -> float:
    """Return the number that stands for the list ``45x2 48x1``, newest first; 0 for none.

    Where nodes have made up too many lists it is the gravest code itself: what counts is never lost.

    Raises:
        ValueError: it is no such list.
    """
    grave = worst(text)
    if not grave:
        return 0.0
    listed = " ".join(text.split()[:MAX_CODES])
    known = _NUMBERS.get(listed)
    if known is None:
        if len(_NUMBERS) >= MOST_TEXTS:
            return grave
        known = _NUMBERS[listed] = LISTED + len(_NUMBERS)
        TEXTS[int(known)] = listed
    return known


def listed(number: float) -> list[tuple[int, int]]:
    """(code, how often) of what :func:`codes` returned, newest first; a code alone has an unknown count, 0."""
    if number != number or not number:
        return []
    if number < LISTED:
        return [(int(number), 0)]
    return [(int(found.group(1)), int(found.group(2))) for found in _SEEN.finditer(TEXTS.get(int(number), ""))]


def gravest(number: float) -> float:
    """The gravest code of what :func:`codes` returned; NaN for an unknown one."""
    return number if number != number or number < LISTED else worst(TEXTS.get(int(number), ""))


def level(code: float) -> float:
    """How bad a code is: 0 for none (code 0), NaN for an unknown one."""
    if code != code:
        return float("nan")
    return float(look_up(code).level) if code else 0.0


def words(code: float) -> str:
    """``Xid 79, GPU has fallen off the bus (hardware)``."""
    xid = look_up(code)
    name = f", {xid.name}" if xid.code in XIDS else " (not in our catalog)"
    return f"Xid {xid.code}{name}" + (f" ({xid.fault})" if xid.fault != "unknown" else "")
