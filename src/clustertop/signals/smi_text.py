"""What nvidia-smi prints for people: its table, ``dmon``, ``-L``, ``nvlink -s``, ``nvlink -e`` and ``topo -m``.

Pure and tolerant, as :mod:`clustertop.signals.smi`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.signals.smi import NOT_PROVIDED, Gpu, cell, hide_mig, identified, table_rows, unique_keys
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.signals.smi import Value

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU_LINE = re.compile(r"GPU (\d+): (.*?)(?: \(UUID: ([^)\s]*)\))?\s*")
_MIG_LINE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: ([^)\s]*)\)\s*")
_LINK_LINE = re.compile(r"\s*Link (\d+): (?:(\w+) Errors: )?(.*?)\s*")
_TABLE_FIRST = re.compile(
    r"\|\s+(\d+)\s+(.*?)\s+(On|Off|N/A|WDDM|TCC|MCDM)\s*\|\s*([0-9A-Fa-f:.]{12,16}) .*\|\s*(\S+) \|")
_TABLE_SECOND = re.compile(
    r"\|\s*(\S+)\s+(\S+)\s+(P\d+|\S+)\s+(\S+)\s*/\s*(\S+)\s*\|\s*(\S+)\s*/\s*(\S+)\s*\|\s*(\S+)\s+.*\|")
_DMON = {"pwr": ("power_mw", "W"), "gtemp": ("temp", "C"), "mtemp": ("temp_mem", "C"), "sm": ("util", "%"),
         "mem": ("mem_util", "%"), "mclk": ("mem_mhz", "MHz"), "pclk": ("sm_mhz", "MHz")}


@dataclass(slots=True)
class LinkedGpu:
    """A GPU's NVLinks: GB/s each way, or why unknown; an inactive link is 0 GB/s, and ``inactive`` names it."""

    index: int
    uuid: str = ""
    speeds: dict[int, Value] = field(default_factory=dict)
    errors: dict[int, dict[str, Value]] = field(default_factory=dict)
    """By link, then by ``replay``, ``recovery`` and ``crc``."""
    error: str = ""
    """Why the links could not be read."""

    @property
    def inactive(self) -> list[int]:
        """The links that are down."""
        return [link for link, speed in self.speeds.items() if speed == 0]


def nvlink(text: str) -> list[LinkedGpu]:
    """Read ``nvidia-smi nvlink -s`` or ``-e``."""
    found: list[LinkedGpu] = []
    for line in text.splitlines():
        gpu = _GPU_LINE.fullmatch(line)
        if gpu:
            found.append(LinkedGpu(int(gpu[1][:6]), gpu[3] or ""))
            continue
        link = _LINK_LINE.fullmatch(line)
        if not found or not line.strip():
            continue
        if link is None:
            found[-1].error = found[-1].error or clean(line.strip(), 120)
        elif link[2]:
            found[-1].errors.setdefault(int(link[1][:6]), {})[link[2].lower()] = cell(link[3])
        elif link[3] == "<inactive>":
            found[-1].speeds[int(link[1][:6])] = 0
        else:
            speed = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?) GB/s", link[3])
            found[-1].speeds[int(link[1][:6])] = float(speed[1]) if speed else cell(link[3])
    return found


def listing(text: str) -> list[tuple[Gpu, list[str]]]:
    """Read ``nvidia-smi -L``: each GPU with the profiles of its MIG devices (``3g.40gb``)."""
    found: list[tuple[Gpu, list[str]]] = []
    for line in text.splitlines():
        gpu, mig = _GPU_LINE.fullmatch(line), _MIG_LINE.fullmatch(line)
        if gpu:
            found.append((identified({"name": gpu[2], "uuid": gpu[3] or ""}, int(gpu[1][:6])), []))
        elif mig and found:
            found[-1][1].append(clean(mig[1], 40))
            found[-1][0].mig_devices += 1
    return found


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU, as ``--query-compute-apps`` tells it."""

    gpu: str
    """The GPU's UUID, else its PCI address; empty where neither was asked for."""
    pid: int
    name: str
    memory: Value
    """Bytes, or why unknown."""


def processes(text: str, columns: Sequence[str] = ()) -> list[Process]:
    """Read ``nvidia-smi --query-compute-apps=... --format=csv``; *columns* as asked for, where there is no header."""
    rows, _ = table_rows(text, columns)
    found = []
    for row in rows:
        pid = cell(row.get("pid", ""))
        if isinstance(pid, int) and pid > 0:
            gpu = clean(row.get("uuid") or row.get("pci.bus_id") or "", 120)
            memory = cell(row.get("used_gpu_memory", ""), "MiB")
            found.append(Process(gpu, pid, clean(row.get("process_name", ""), 512), memory))
    return found


def dmon(text: str) -> list[tuple[int, dict[str, Value]]]:
    """Read ``nvidia-smi dmon``: index and cells of each line."""
    names: list[str] = []
    found = []
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["#", "gpu"]:
            names = words[1:]
        elif words and words[0].isdigit() and len(words) == len(names):
            row = dict(zip(names, words, strict=True))
            found.append((int(words[0][:6]), {column: cell(row[name], kind) for name, (column, kind) in _DMON.items()
                                             if name in row}))
    return found


def table(text: str) -> list[Gpu]:
    """Read the table that ``nvidia-smi`` alone prints. ``ERR!`` is one value that could not be read."""
    found: list[Gpu] = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        head = _TABLE_FIRST.fullmatch(line.rstrip())
        body = _TABLE_SECOND.fullmatch(lines[at + 1].rstrip()) if head and at + 1 < len(lines) else None
        if head is None or body is None:
            continue
        gpu = identified({"name": head[2], "pci.bus_id": head[4]}, int(head[1][:6]))
        gpu.cells = {
            "fan": cell(body[1], "%"), "temp": cell(body[2], "C"), "pstate": cell(body[3], "P"),
            "power_mw": cell(body[4], "W"), "power_limit_mw": cell(body[5], "W"), "mem_used": cell(body[6], "MiB"),
            "mem_total": cell(body[7], "MiB"), "util": cell(body[8], "%"),
            # "On" and "Off" here are modes (MIG, ECC), not a count.
            "ecc_unc": NOT_PROVIDED if head[5] in ("On", "Off") else cell(head[5]), "persistence": cell(head[3], "on"),
        }  # fmt: skip
        if at + 2 < len(lines) and (mode := re.search(r"\|\s*(\S+) \|\s*$", lines[at + 2])):
            gpu.cells["mig"] = cell(mode[1], "on")
        hide_mig(gpu)
        found.append(gpu)
    unique_keys(found)
    return found


@dataclass(slots=True)
class Topology:
    """``nvidia-smi topo -m``: how each pair of things is connected, and what the NICs are called."""

    paths: dict[tuple[str, str], str] = field(default_factory=dict)
    """(row, column) → ``NV18``, ``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS``."""
    cpus: dict[str, str] = field(default_factory=dict)
    nics: dict[str, str] = field(default_factory=dict)
    """``NIC0`` → ``mlx5_0``."""

    def nearest(self, gpu: str) -> list[str]:
        """The NICs that are nearest to *gpu*, by the names of the columns."""
        order = ("PIX", "PXB", "PHB", "NODE", "SYS")
        paths = {nic: path for (row, nic), path in self.paths.items()
                 if row == gpu and path in order and not nic.startswith("GPU")}
        best = min((order.index(path) for path in paths.values()), default=-1)
        return [nic for nic, path in paths.items() if order.index(path) == best]


def topology(text: str) -> Topology:
    """Read ``nvidia-smi topo -m``, escape sequences and all."""
    found = Topology()
    columns: list[str] = []
    for raw in text.splitlines():
        line = _ESCAPE.sub("", raw)
        legend = re.fullmatch(r"\s+(NIC\d+): (\S+)\s*", line)
        if legend:
            found.nics[legend[1]] = clean(legend[2], 64)
        parts = [part.strip() for part in line.split("\t")]
        if not columns and "CPU Affinity" in parts:
            columns = parts[1:]
        elif columns and parts[0] and parts[0] in columns:
            for name, path in zip(columns, parts[1:], strict=False):
                if name == "CPU Affinity":
                    found.cpus[parts[0]] = path
                elif name and path and path != "X" and "Affinity" not in name and name != "GPU NUMA ID":
                    found.paths[parts[0], name] = clean(path, 16)
    return found
