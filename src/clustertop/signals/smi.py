"""What ``nvidia-smi`` prints, made into rows of the probe's table ``gpu``: numbers, or its own words for why not.

Pure and tolerant: columns go by name, a bad cell costs that value, a bad line costs that line. What a failed
command printed is never read as data. Source: ``nvidia-smi --help-query-gpu``; units stand in the cells or, with
``nounits``, in the header alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.probe.frames import Err
from clustertop.signals.units import pci_address
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from clustertop.model import Attr

    Value = int | float | Err

MAX_TEXT = 8 << 20
"""Longest output read, in characters; what is behind it is cut off and noted."""
MAX_GPUS = 1024
MAX_NOTES = 20

NOT_PROVIDED = Err("not provided")
MIG_HIDES = Err("n/a (MIG)")

FIELDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("util", "%", ("utilization.gpu",)),
    ("mem_util", "%", ("utilization.memory",)),
    ("mem_used", "MiB", ("memory.used",)),
    ("mem_total", "MiB", ("memory.total",)),
    ("power_mw", "W", ("power.draw", "power.draw.average", "power.draw.instant")),
    ("temp", "C", ("temperature.gpu",)),
    ("temp_mem", "C", ("temperature.memory",)),
    ("temp_margin", "C", ("temperature.gpu.tlimit",)),
    ("sm_mhz", "MHz", ("clocks.current.sm",)),
    ("mem_mhz", "MHz", ("clocks.current.memory",)),
    ("reasons", "bits", ("clocks_event_reasons.active",)),
    ("pstate", "P", ("pstate",)),
    ("pcie_gen", "", ("pcie.link.gen.current", "pcie.link.gen.gpucurrent")),
    ("pcie_width", "x", ("pcie.link.width.current",)),
    ("ecc_cor", "", ("ecc.errors.corrected.volatile.total",)),
    ("ecc_unc", "", ("ecc.errors.uncorrected.volatile.total",)),
    ("power_limit_mw", "W", ("enforced.power.limit", "power.limit")),
    ("pcie_gen_max", "", ("pcie.link.gen.max",)),
    ("pcie_gen_devmax", "", ("pcie.link.gen.gpumax",)),
    ("pcie_gen_hostmax", "", ("pcie.link.gen.hostmax",)),
    ("pcie_width_max", "x", ("pcie.link.width.max",)),
    ("sm_mhz_max", "MHz", ("clocks.max.sm",)),
    ("persistence", "on", ("persistence_mode",)),
    ("mig", "on", ("mig.mode.current",)),
    ("ecc_mode", "on", ("ecc.mode.current",)),
    ("remap_cor", "", ("remapped_rows.correctable",)),
    ("remap_unc", "", ("remapped_rows.uncorrectable",)),
    ("remap_pending", "on", ("remapped_rows.pending",)),
    ("remap_failed", "on", ("remapped_rows.failure",)),
    ("retired_cor", "", ("retired_pages.single_bit_ecc.count",)),
    ("retired_unc", "", ("retired_pages.double_bit.count",)),
    ("retired_pending", "on", ("retired_pages.pending",)),
    ("ecc_cor_all", "", ("ecc.errors.corrected.aggregate.total",)),
    ("ecc_unc_all", "", ("ecc.errors.uncorrected.aggregate.total",)),
    ("power_instant_mw", "W", ("power.draw.instant",)),
    ("fan", "%", ("fan.speed",)),
)
"""The probe's column, how its cells are read, and the query's fields that give it, the best first."""

_NAMES = {
    "gpu_name": "name", "gpu_uuid": "uuid", "gpu_serial": "serial", "gpu_bus_id": "pci.bus_id",
    "clocks.sm": "clocks.current.sm", "clocks.mem": "clocks.current.memory",
    "clocks.current.mem": "clocks.current.memory", "clocks.max.streaming_multiprocessor": "clocks.max.sm",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active", "process": "process_name",
    "used_memory": "used_gpu_memory", "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count", "retired_pages.double_bit_ecc.count":
    "retired_pages.double_bit.count", "retired_pages.single_bit.count": "retired_pages.single_bit_ecc.count",
}  # fmt: skip
_IDENTITY = ("index", "name", "uuid", "serial", "pci.bus_id", "driver_version", "pid", "process_name", "timestamp")
_KNOWN = frozenset(_IDENTITY) | {name for _, _, names in FIELDS for name in names} | {"used_gpu_memory"}
_FREE_TEXT = ("process_name", "name")
"""Columns that may hold commas of their own."""

_HEADER = re.compile(r"[a-z][a-z0-9_.]*", re.IGNORECASE)
_UNIT_OF_HEADER = re.compile(r"\s*\[[^\]]*\]\s*$")
_NUMBER = re.compile(r"([+-]?\d{1,20}(?:\.\d{1,9})?)\s*([A-Za-z%]{0,5})", re.ASCII)
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_BUS_ID = re.compile(r"GPU\s*:?\s*((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_BAD_FIELD = re.compile(r'[Ff]ield "([^"]{1,100})" is not a valid field')

_SCALES = {
    "%": {"": 1, "%": 1}, "W": {"": 1000, "W": 1000, "mW": 1}, "C": {"": 1, "C": 1}, "": {"": 1},
    "MHz": {"": 1, "MHz": 1, "GHz": 1000}, "x": {"": 1, "x": 1}, "us": {"": 1, "us": 1},
    "MiB": {"": 1 << 20, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "MB": 1 << 20, "KB": 1 << 10},
}  # fmt: skip
_MARKERS = frozenset({
    *(2**63 - 16 + offset for offset in range(16)), *(2**63 + offset for offset in range(4)), 2**64 - 1,
    *(2**31 - 16 + offset for offset in range(4)), 2**31 - 1, 2**32 - 1, 2**47,
})  # fmt: skip
"""DCGM's and NVML's "blank" values (dcgm_structs.h, nvml.h NVML_VALUE_NOT_AVAILABLE), at any width."""

_WORDS = {
    "": "not provided", "n/a": "not provided", "none": "not provided", "-": "not provided",
    "not supported": "Not Supported", "unknown error": "Unknown Error", "gpu is lost": "GPU is lost",
    "gpu requires reset": "GPU requires reset", "insufficient permissions": "Insufficient Permissions",
    "not found": "Not Found", "err!": "ERR!", "requested functionality has been deprecated": "not provided",
}  # fmt: skip
_ON = {"enabled": 1, "disabled": 0, "yes": 1, "no": 0, "on": 1, "off": 0, "active": 1, "not active": 0}
_FAILURES = (
    "nvidia-smi has failed", "failed to initialize nvml", "unable to determine the device handle",
    "no devices were found", "no nvidia gpu", "unable to ", "error:", "failed to ", "command not found",
)  # fmt: skip


@dataclass(slots=True)
class Gpu:
    """One GPU as nvidia-smi told of it. A column that it did not tell of is not in ``cells``."""

    key: str
    attrs: dict[str, Attr] = field(default_factory=dict)
    cells: dict[str, Value] = field(default_factory=dict)
    mig_devices: int = 0


@dataclass(slots=True)
class Smi:
    """One output of nvidia-smi, read."""

    gpus: list[Gpu] = field(default_factory=list)
    error: str = ""
    """Why there is nothing, or not all: one sentence in nvidia-smi's words, exit status included."""
    blamed: dict[str, str] = field(default_factory=dict)
    """Canonical PCI addresses that the error names, with the words about each."""
    bad_field: str = ""
    """The field that this driver's nvidia-smi does not know; the rest of the query was not answered either."""
    notes: list[str] = field(default_factory=list)
    """Lines that were not data, cleaned; at most ``MAX_NOTES``."""
    facts: dict[str, Attr] = field(default_factory=dict)
    attached: int | None = None
    """How many GPUs it says there are, where it says so."""

    def note(self, line: str) -> None:
        """Keep a line that was not data."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(clean(line.strip(), 200))


def cell(text: str, kind: str = "") -> Value:
    """What one cell says.

    Args:
        text: as printed, brackets, unit and blanks included.
        kind: ``%``, ``MiB``, ``W``, ``C``, ``MHz``, ``x`` (lanes), ``P`` (performance state), ``on`` (a switch),
            ``bits`` (a hexadecimal mask) or empty for a bare number.

    Returns:
        A number in the probe's unit (bytes, mW, °C, MHz, %), or the reason why there is none. Never a zero that
        was not printed.
    """
    text = text.strip()
    bare = text[1:-1].strip() if text[:1] == "[" and text[-1:] == "]" else text
    words = _WORDS.get(bare.lower())
    if words is not None:
        return NOT_PROVIDED if words == NOT_PROVIDED.reason else Err(words)
    found: int | float | None = None
    if kind == "on":
        found = _ON.get(bare.lower())
    elif kind == "bits":
        found = int(bare, 16) if _HEX.fullmatch(bare) else None
    elif kind == "P":
        found = int(bare[1:]) if re.fullmatch(r"P\d{1,2}", bare, re.ASCII) else None
    else:
        match = _NUMBER.fullmatch(bare)
        scale = _SCALES[kind].get(match[2]) if match else None
        if match and scale is not None:
            number = float(match[1]) if "." in match[1] else int(match[1])
            if number in _MARKERS:
                return Err("out of range")
            found = round(number * scale, 3)
            if isinstance(found, float) and found.is_integer():
                found = int(found)
    if found is not None:
        return found
    return Err(clean(bare, 48) or "not provided")


def first(values: Iterable[Value]) -> Value:
    """The first number; where there is none, the first reason that says more than "not provided"."""
    why = NOT_PROVIDED
    for value in values:
        if not isinstance(value, Err):
            return value
        if why == NOT_PROVIDED:
            why = value
    return why


def column_name(text: str) -> str:
    """``utilization.gpu [%]`` → ``utilization.gpu``; older and shorter names become the present ones."""
    name = _UNIT_OF_HEADER.sub("", text.strip()).lower()
    return _NAMES.get(name, name)


def table_rows(text: str, columns: Sequence[str] = ()) -> tuple[list[dict[str, str]], list[str]]:
    """Take CSV apart.

    Args:
        text: of ``--format=csv``, with or without ``noheader`` and ``nounits``.
        columns: the fields asked for, used where no header is printed.

    Returns:
        A mapping from field to text for each line of data, and the lines that were none.
    """
    names = [column_name(name) for name in columns]
    asked = frozenset(names)
    rows: list[dict[str, str]] = []
    other: list[str] = []
    seen_header = False
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = [part.strip() for part in line.split(",")]
        header = None if seen_header or rows else _header(cells, asked)
        if header is not None:
            names = header
            seen_header = True
            continue
        whole = _fit(cells, names)
        # One column and one cell: any line would do. A sentence is none.
        if whole is None or (len(names) == 1 and _is_failure(line)):
            other.append(line)
            continue
        rows.append(dict(zip(names, whole, strict=True)))
    return rows, other


def _header(cells: Sequence[str], asked: frozenset[str]) -> list[str] | None:
    names = [column_name(one) for one in cells]
    if not all(_HEADER.fullmatch(name) for name in names):
        return None
    known = sum(name in _KNOWN or name in asked for name in names)
    return names if known and known * 2 >= min(len(names), 2) else None


def _fit(cells: list[str], names: Sequence[str]) -> list[str] | None:
    """Return *cells* with the commas of a free-text column joined again; None where they are no row."""
    more = len(cells) - len(names)
    if not names or more < 0:
        return None
    if more:
        at = next((names.index(name) for name in _FREE_TEXT if name in names), -1)
        if at < 0:
            return None
        cells = [*cells[:at], ", ".join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
    return cells


def parse_csv(text: str, columns: Sequence[str] = (), status: int = 0, stderr: str = "") -> Smi:
    """Read ``nvidia-smi --query-gpu=... --format=csv``.

    Args:
        text: its stdout.
        columns: the fields asked for, for output without a header.
        status: its exit status; with another than 0 nothing of *text* is data.
        stderr: the first lines of its stderr.
    """
    smi = Smi()
    if len(text) > MAX_TEXT:
        smi.note(f"cut off after {MAX_TEXT} characters")
        text = text[:MAX_TEXT]
    if status:
        return failed(text, status, stderr)
    rows, other = table_rows(text, columns)
    for line in other:
        smi.note(line)
    if not rows and (other or stderr.strip()):
        return failed("\n".join(other), status, stderr)
    for row in rows[:MAX_GPUS]:
        smi.gpus.append(_gpu(row, len(smi.gpus)))
        if re.fullmatch(r"\d{1,5}(\.\d{1,5}){1,3}", row.get("driver_version", "")):
            smi.facts["driver"] = row["driver_version"]
    unique_keys(smi.gpus)
    return smi


def _gpu(row: Mapping[str, str], place: int) -> Gpu:
    cells: dict[str, Value] = {}
    for column, kind, names in FIELDS:
        given = [cell(row[name], kind) for name in names if name in row]
        if given:
            cells[column] = first(given)
    index = cell(row.get("index", ""))
    # nvidia-smi lists GPUs by index.
    gpu = identified(row, index if isinstance(index, int) else place, "index" in row)
    gpu.cells = cells
    hide_mig(gpu)
    return gpu


def identified(row: Mapping[str, str], index: int, known: bool = True) -> Gpu:
    """Return a GPU with its key and attributes from ``uuid``, ``pci.bus_id``, ``name`` and ``serial`` of *row*."""
    attrs: dict[str, Attr] = {"index": index} if known else {}
    for attr, name in (("uuid", "uuid"), ("pci", "pci.bus_id"), ("name", "name"), ("serial", "serial")):
        text = clean(row.get(name, "").strip(), 120)
        if text and text.strip("[]").lower() not in _WORDS:
            attrs[attr] = text
    if str(attrs.get("uuid", "")).startswith("GPU-"):
        key = str(attrs["uuid"])
    elif "pci" in attrs:
        key = f"pci:{attrs['pci']}"
    else:
        key = f"index:{index}"
    return Gpu(key, attrs)


def hide_mig(gpu: Gpu) -> None:
    """Where MIG is on, the whole GPU's utilisation is not told: say so."""
    if gpu.cells.get("mig") == 1:
        for column in ("util", "mem_util"):
            if gpu.cells.get(column, NOT_PROVIDED) == NOT_PROVIDED:
                gpu.cells[column] = MIG_HIDES


def unique_keys(gpus: Iterable[Gpu]) -> None:
    """No two rows share a key: the later one of two is named by its address or place instead."""
    seen: set[str] = set()
    for place, gpu in enumerate(gpus):
        for key in (gpu.key, f"pci:{gpu.attrs.get('pci')}", f"index:{gpu.attrs.get('index')}", f"row:{place}"):
            if key not in seen and not key.endswith(":None"):
                gpu.key = key
                break
        seen.add(gpu.key)


def failed(stdout: str, status: int, stderr: str = "") -> Smi:
    """Read what a failed nvidia-smi said: the reason, and which GPU it names. Nothing of it is data."""
    lines = [clean(line.strip(), 200) for line in (stderr[:4096] + "\n" + stdout[:4096]).splitlines() if line.strip()]
    told = [line for line in stderr[:4096].splitlines() if line.strip()]
    said = clean(told[0].strip(), 200) if told else next((line for line in lines if _is_failure(line)), "")
    said = said or (lines[0] if lines and status == 0 else "") or "nvidia-smi gave no reason"
    smi = Smi(error=f"{said} (nvidia-smi exit status {status})" if status else said)
    for line in lines:
        found = _BAD_FIELD.search(line)
        if found:
            smi.bad_field = found[1]
            smi.error = line if status == 0 else f"{line} (nvidia-smi exit status {status})"
        for match in _BUS_ID.finditer(line):
            address = str(pci_address(match[1]))
            words = line.rpartition(": ")[2] if ": " in line[match.end() :] else "Unknown Error"
            smi.blamed.setdefault(address, clean(words, 48))
    return smi


def _is_failure(line: str) -> bool:
    low = line.strip().lower()
    return bool(_BAD_FIELD.search(line)) or any(mark in low for mark in _FAILURES)
