"""Compare the probe's readings of real GPUs with what ``nvidia-smi -q -x`` says.

    python bench/gpu_check.py [--nvml LIB]

Exit status: 0 all agree, 1 some value differs, 3 there is no NVIDIA driver or GPU here.
What moves by itself (power, temperature, clocks, utilisation, memory) is read between two nvidia-smi queries, and has
to lie within their range and a tolerance; everything else has to be equal.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop.probe import loop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NO_GPU = 3
_NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)(?:x)?(?: (?:MiB|MHz|W|C|%|KiB))?$")
_WORDS = {"Enabled": 1.0, "Disabled": 0.0, "Yes": 1.0, "No": 0.0}


@dataclass(frozen=True)
class Field:
    """A column of the probe and the places in nvidia-smi's XML that say the same, by driver version."""

    column: str
    paths: tuple[str, ...]
    factor: float = 1.0
    """nvidia-smi's unit in the probe's."""
    slack: float = 0.0
    """How far it may lie outside the two queries, in nvidia-smi's unit; 0: equal to one of them."""


FIELDS = (
    Field("util", ("utilization/gpu_util",), slack=100),
    Field("mem_total", ("fb_memory_usage/total",), 2**20, 1),
    Field("mem_used", ("fb_memory_usage/used",), 2**20, 600),
    Field("power_mw", ("gpu_power_readings/instant_power_draw", "gpu_power_readings/power_draw",
                       "gpu_power_readings/average_power_draw", "power_readings/power_draw"), 1000, 30),
    Field("power_limit_mw", ("gpu_power_readings/current_power_limit", "gpu_power_readings/enforced_power_limit",
                             "power_readings/enforced_power_limit"), 1000, 0.01),
    Field("temp", ("temperature/gpu_temp",), slack=3),
    Field("temp_mem", ("temperature/memory_temp",), slack=3),
    Field("temp_slowdown", ("temperature/gpu_temp_slow_threshold",)),
    Field("temp_shutdown", ("temperature/gpu_temp_max_threshold",)),
    Field("temp_margin", ("temperature/gpu_temp_tlimit",), slack=6),
    Field("temp_mem_max", ("temperature/gpu_temp_max_mem_threshold",)),
    Field("sm_mhz", ("clocks/sm_clock",), slack=400),
    Field("mem_mhz", ("clocks/mem_clock",), slack=100),
    Field("sm_mhz_max", ("max_clocks/sm_clock",)),
    Field("pcie_gen", ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",), slack=4),
    Field("pcie_gen_max", ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",)),
    Field("pcie_gen_devmax", ("pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",)),
    Field("pcie_width", ("pci/pci_gpu_link_info/link_widths/current_link_width",)),
    Field("pcie_width_max", ("pci/pci_gpu_link_info/link_widths/max_link_width",)),
    Field("pcie_replays", ("pci/replay_counter",)),
    Field("bar1_total", ("bar1_memory_usage/total",), 2**20, 1),
    Field("persistence", ("persistence_mode",)),
    Field("mig", ("mig_mode/current_mig",)),
    Field("ecc_mode", ("ecc_mode/current_ecc",)),
    Field("remap_cor", ("remapped_rows/remapped_row_corr",)),
    Field("remap_unc", ("remapped_rows/remapped_row_unc",)),
    Field("remap_pending", ("remapped_rows/remapped_row_pending",)),
    Field("remap_failed", ("remapped_rows/remapped_row_failure",)),
)
_NOT_COMPARED = ("mem_util", "reasons", "pstate", "ecc_cor", "ecc_unc")
"""nvidia-smi says these in another form (words, or several counters that NVML sums)."""


def said(gpu: ElementTree.Element, field: Field) -> float | str:
    """What nvidia-smi says: a number, or its words where it gives none."""
    words = "not in nvidia-smi's output"
    for path in field.paths:
        text = (gpu.findtext(path) or "").strip()
        if not text:
            continue
        number = _NUMBER.match(text)
        if number:
            return float(number.group(1))
        if text in _WORDS:
            return _WORDS[text]
        words = text
    return words


def compare(
    ours: dict[str, object], before: ElementTree.Element, after: ElementTree.Element
) -> Iterator[tuple[str, bool, str]]:
    """(column, whether both say the same, both in words) of one GPU."""
    for field in FIELDS:
        mine, first, last = ours.get(field.column), said(before, field), said(after, field)
        if isinstance(first, str) or isinstance(last, str):
            same = not isinstance(mine, int | float) or first == "not in nvidia-smi's output"
            yield field.column, same, f"{mine!s:>22}   {first}"
        elif not isinstance(mine, int | float):
            yield field.column, False, f"{mine!s:>22}   {first:g}"
        else:
            value = mine / field.factor
            same = min(first, last) - field.slack <= value <= max(first, last) + field.slack
            span = f"{first:g}" if first == last else f"{first:g} ... {last:g}"
            yield field.column, same, f"{value:>22g}   {span}"


def readings(library: str) -> tuple[str, list[tuple[dict[str, object], dict[str, object]]]]:
    """The probe's own frame: the group's error, else each GPU's attributes and values."""
    frame = json.loads(loop.Probe({"nvml": library, "groups": ["gpu"]}).once())
    group = frame["g"]["gpu"]
    if group.get("st", "ok") != "ok":
        return str(group.get("e") or group.get("w") or "no NVIDIA GPU here"), []
    table = group["tb"]["gpu"]
    rows, columns = table["r"], table["c"]
    cells: dict[int, object] = {}
    place = 0
    runs = table.get("i", [])
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        for cell in range(start, start + length):
            cells[cell] = table["x"][place]
            place += 1
    cells.update(zip(table.get("j", []), table.get("s", []), strict=True))
    return "", [
        (row["a"], {name: cells.get(number * len(rows) + at) for number, name in enumerate(columns)})
        for at, row in enumerate(rows)
    ]


def query(smi: str) -> dict[str, ElementTree.Element]:
    """nvidia-smi's GPUs by UUID. Raises RuntimeError with its words where it fails."""
    done = subprocess.run([smi, "-q", "-x"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        words = (done.stdout or done.stderr).strip().splitlines()
        raise RuntimeError(f"nvidia-smi: {words[0] if words else f'exit status {done.returncode}'}")
    found = ElementTree.fromstring(done.stdout)
    return {(gpu.findtext("uuid") or "").strip(): gpu for gpu in found.findall("gpu")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; returns the exit status."""
    parser = argparse.ArgumentParser(description="Compare the probe with nvidia-smi on real GPUs.")
    parser.add_argument("--nvml", default="", help="load this NVML library")
    parser.add_argument("--smi", default=shutil.which("nvidia-smi") or "", help="the nvidia-smi to compare with")
    args = parser.parse_args(arguments)
    if not args.smi:
        print("gpu-check: no nvidia-smi in PATH: run this on a machine with an NVIDIA driver", file=sys.stderr)
        return NO_GPU
    try:
        before = query(args.smi)
        trouble, ours = readings(args.nvml)
        after = query(args.smi)
    except (RuntimeError, OSError, subprocess.TimeoutExpired, ElementTree.ParseError) as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return NO_GPU
    if trouble or not before:
        print(f"gpu-check: {trouble or 'nvidia-smi lists no GPU'}", file=sys.stderr)
        return NO_GPU
    wrong = 0
    for attrs, values in ours:
        uuid = str(attrs.get("uuid"))
        print(f"GPU {attrs.get('index')} {attrs.get('name')} {uuid} {attrs.get('pci')}")
        if uuid not in before or uuid not in after:
            print("  DIFFERS  nvidia-smi does not list it")
            wrong += 1
            continue
        for column, same, words in compare(values, before[uuid], after[uuid]):
            wrong += not same
            print(f"  {'ok     ' if same else 'DIFFERS'}  {column:<16}{words}")
    for uuid in set(before) - {str(attrs.get("uuid")) for attrs, _ in ours}:
        print(f"GPU {uuid}\n  DIFFERS  the probe does not list it")
        wrong += 1
    print(f"{len(ours)} GPUs, {wrong} values differ; not compared: {', '.join(_NOT_COMPARED)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
