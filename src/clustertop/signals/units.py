"""Raw text to numbers, and numbers to words. Every parser raises ValueError for what is no value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

LANE_COUNTS = frozenset({1, 2, 4, 8, 12, 16, 32})
"""What a PCIe link can be trained at; 0 and 255 are the kernel's words for "no link" and "unknown"."""

_GENERATION_GTS = (0.0, 2.5, 5.0, 8.0, 16.0, 32.0, 64.0)
# Bytes per second and lane, each way, after line coding: 8b/10b for 2.5 and 5 GT/s, 128b/130b from 8 GT/s,
# 242B/256B flits at 64 GT/s (PCI Express Base Specification 6.0, 4.2).
_LANE_BYTES = {2.5: 250e6, 5.0: 500e6, 8.0: 984.6e6, 16.0: 1969.2e6, 32.0: 3938.5e6, 64.0: 7563.0e6}

_ADDRESS = re.compile(r"^(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])$")
_SPEED = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*GT/s")
_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*Gb/sec")
_LANES = re.compile(r"\((\d{1,2})X\b")
_STATE = re.compile(r"^\s*(\d+)\s*:")


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """A PCI function's address, parsed; the same function has one, however it was spelt."""

    domain: int
    bus: int
    device: int
    function: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function}"

    @property
    def short(self) -> str:
        """Without the domain where it is 0: ``17:00.0``."""
        return str(self)[5:] if self.domain == 0 else str(self)


def pci_address(text: str) -> PciAddress:
    """Parse ``00000000:0B:00.0``, ``0000:0b:00.0`` or ``0b:00.0``. Raises ValueError."""
    match = _ADDRESS.match(text.strip())
    if match is None:
        raise ValueError(f"not a PCI address: {text!r}")
    domain, bus, device, function = match.groups()
    if int(device, 16) > 0x1F:
        raise ValueError(f"not a PCI address: {text!r}")
    return PciAddress(int(domain or "0", 16), int(bus, 16), int(device, 16), int(function))


def pci_key(text: object) -> str:
    """Return *text* as a canonical PCI address, or empty if it is none."""
    return _pci_key(text) if isinstance(text, str) else ""


@lru_cache(maxsize=65536)
def _pci_key(text: str) -> str:
    try:
        return str(pci_address(text))
    except ValueError:
        return ""


def link_speed(text: str) -> float:
    """``16.0 GT/s PCIe`` → 16.0 GT/s per lane (kernel Documentation/ABI/testing/sysfs-bus-pci). Raises ValueError."""
    match = _SPEED.match(text)
    if match is None or float(match.group(1)) not in _LANE_BYTES:
        raise ValueError(f"not a PCIe speed: {text!r}")
    return float(match.group(1))


def link_width(text: str) -> float:
    """``16`` or ``x16`` → 16 lanes. Raises ValueError for what is no lane count."""
    text = text.strip().lower().strip("x")
    if not text.isdigit() or int(text) not in LANE_COUNTS:
        raise ValueError(f"not a lane count: {text!r}")
    return float(int(text))


def generation(gts: float) -> int:
    """Speed in GT/s per lane → PCIe generation, 0 if it is none."""
    try:
        return _GENERATION_GTS.index(gts)
    except ValueError:
        return 0


def speed_of_generation(gen: float) -> float:
    """PCIe generation → GT/s per lane, NaN if it is none."""
    return _GENERATION_GTS[int(gen)] if gen in (1, 2, 3, 4, 5, 6) else float("nan")


def lane_bytes(gts: float) -> float:
    """Bytes per second that one lane carries each way at *gts* GT/s, NaN if unknown."""
    return _LANE_BYTES.get(gts, float("nan"))


def data_rate(text: str) -> float:
    """``400 Gb/sec (4X NDR)`` → bits per second. Raises ValueError."""
    match = _RATE.match(text)
    if match is None:
        raise ValueError(f"not a data rate: {text!r}")
    return float(match.group(1)) * 1e9


def lanes(text: str) -> float:
    """``25 Gb/sec (1X EDR)`` → 1 lane, NaN where the text does not say."""
    match = _LANES.search(text)
    return float(match.group(1)) if match else float("nan")


def numbered_state(text: str) -> float:
    """``4: ACTIVE`` → 4. Raises ValueError."""
    match = _STATE.match(text)
    if match is None:
        raise ValueError(f"not a state: {text!r}")
    return float(match.group(1))


def number(text: str) -> float:
    """A decimal or 0x number, blanks around it allowed. Raises ValueError for anything else, ``nan`` included."""
    text = text.strip()
    if re.fullmatch(r"[+-]?\d+(\.\d+)?", text, re.ASCII):
        return float(text)
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", text):
        return float(int(text, 16))
    raise ValueError(f"not a number: {text!r}")
