"""``nvidia-smi -q -x``, of every generation of its DTD, and ``nvidia-smi -q``, which says the same indented.

Sources: the DTDs ``nvsmi_device_v10`` to ``v13`` of nvidia-smi. Read with expat alone: document types are skipped,
entities never expanded, depth and size bounded.
"""

from __future__ import annotations

import re
import xml.parsers.expat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.probe.frames import Err
from clustertop.signals import smi as cells
from clustertop.signals.smi import MAX_GPUS, MAX_TEXT, NOT_PROVIDED, Gpu, Smi, cell, first
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clustertop.signals.smi import Value

MAX_DEPTH = 40

_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)")
_PROCESS_NAME = re.compile(r"(?<=<process_name>)[^\n]{1,4096}?(?=</process_name>)")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_GPU_LINE = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)")
_LINE = re.compile(r"(?P<indent> *)(?P<name>[^:]*?)\s*(?: : (?P<value>.*))?")


@dataclass(slots=True)
class Node:
    """One element: its name, text and children, in order."""

    name: str
    text: str = ""
    gpu: str = ""
    """The ``id`` of a ``gpu`` element."""
    children: list[Node] = field(default_factory=list)

    def all(self, *path: str) -> Iterator[Node]:
        """Every element at *path* below this one."""
        if not path:
            yield self
            return
        for child in self.children:
            if child.name == path[0]:
                yield from child.all(*path[1:])

    def get(self, path: str, kind: str = "") -> Value:
        """The value at *path* (``a/b|a/c``: the first that is a number)."""
        return first(cell(node.text, kind) for one in path.split("|") for node in self.all(*one.split("/")))

    def words(self, path: str) -> str:
        """The text at *path*, empty if there is none."""
        return next((node.text.strip() for node in self.all(*path.split("/"))), "")


_PATHS: tuple[tuple[str, str, str], ...] = (
    ("util", "%", "utilization/gpu_util|utilization/gpu"),
    ("mem_util", "%", "utilization/memory_util|utilization/memory"),
    ("mem_used", "MiB", "fb_memory_usage/used"),
    ("mem_total", "MiB", "fb_memory_usage/total"),
    ("bar1_total", "MiB", "bar1_memory_usage/total"),
    # v10, v11: power_readings. v12: gpu_power_readings, beside module_power_readings, which is another thing.
    # From driver 570 on: average and instant; NVML's GetPowerUsage is the average where the card has one.
    ("power_mw", "W", "gpu_power_readings/power_draw|power_readings/power_draw|gpu_power_readings/average_power_draw|"
                      "power_readings/average_power_draw|gpu_power_readings/instant_power_draw"),
    ("power_limit_mw", "W", "gpu_power_readings/enforced_power_limit|power_readings/enforced_power_limit|"
                            "gpu_power_readings/current_power_limit|power_readings/power_limit|"
                            "gpu_power_readings/gpu_ceiling_power_limit/current_power_limit"),
    ("temp", "C", "temperature/gpu_temp"),
    ("temp_mem", "C", "temperature/memory_temp"),
    ("temp_margin", "C", "temperature/gpu_temp_tlimit"),
    ("temp_slowdown", "C", "temperature/gpu_temp_slow_threshold"),
    ("temp_shutdown", "C", "temperature/gpu_temp_max_threshold"),
    ("temp_mem_max", "C", "temperature/gpu_temp_max_mem_threshold"),
    ("sm_mhz", "MHz", "clocks/sm_clock"),
    ("mem_mhz", "MHz", "clocks/mem_clock"),
    ("sm_mhz_max", "MHz", "max_clocks/sm_clock"),
    ("pstate", "P", "performance_state"),
    ("pcie_gen", "", "pci/pci_gpu_link_info/pcie_gen/current_link_gen|"
                     "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen"),
    ("pcie_gen_max", "", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    ("pcie_gen_devmax", "", "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen"),
    ("pcie_gen_hostmax", "", "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen"),
    ("pcie_width", "x", "pci/pci_gpu_link_info/link_widths/current_link_width"),
    ("pcie_width_max", "x", "pci/pci_gpu_link_info/link_widths/max_link_width"),
    ("pcie_replays", "", "pci/replay_counter"),
    ("persistence", "on", "persistence_mode"),
    ("mig", "on", "mig_mode/current_mig"),
    ("ecc_mode", "on", "ecc_mode/current_ecc"),
    ("remap_cor", "", "remapped_rows/remapped_row_corr"),
    ("remap_unc", "", "remapped_rows/remapped_row_unc"),
    ("remap_pending", "on", "remapped_rows/remapped_row_pending"),
    ("remap_failed", "on", "remapped_rows/remapped_row_failure"),
    ("retired_cor", "", "retired_pages/multiple_single_bit_retirement/retired_count"),
    ("retired_unc", "", "retired_pages/double_bit_retirement/retired_count"),
    ("retired_pending", "on", "retired_pages/pending_retirement"),
    ("power_instant_mw", "W", "gpu_power_readings/instant_power_draw"),
    ("fan", "%", "fan_speed"),
)
_REASONS = (
    (0x1, "gpu_idle"), (0x1, "idle"), (0x2, "applications_clocks_setting"), (0x4, "sw_power_cap"), (0x8, "hw_slowdown"),
    (0x10, "sync_boost"), (0x20, "sw_thermal_slowdown"), (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"), (0x100, "display_clocks_setting"), (0x100, "display_clock_setting"),
)  # fmt: skip


def parse_xml(text: str, status: int = 0, stderr: str = "") -> Smi:
    """Read ``nvidia-smi -q -x``; see :func:`clustertop.signals.smi.parse_csv` for the arguments.

    Lines before and after the document are notes. Of a document that breaks off, the GPUs told in full are kept
    and ``error`` says so.
    """
    begin = text.find("<nvidia_smi_log")
    if status or begin < 0:
        return cells.failed(text, status, stderr) if status or text.strip() or stderr.strip() else Smi(
            error="nvidia-smi printed nothing")
    end = text.find("</nvidia_smi_log>", begin)
    after = text[end + len("</nvidia_smi_log>") :] if end >= 0 else ""
    root, broken = _tree(text[begin : len(text) - len(after)])
    smi = _read(root)
    smi.error = broken
    for line in (text[:begin] + "\n" + after[:4096]).splitlines():
        if line.strip() and not line.lstrip().startswith(("<?xml", "<!DOCTYPE")):
            smi.note(line)
    return smi


def _read(root: Node) -> Smi:
    smi = Smi()
    for fact, name in (("driver", "driver_version"), ("cuda", "cuda_version")):
        said = root.words(name)
        if said and said.upper() != "N/A":
            smi.facts[fact] = clean(said.split(" ")[0], 40)
    attached = root.get("attached_gpus")
    smi.attached = attached if isinstance(attached, int) else None
    for place, node in enumerate(root.all("gpu")):
        if place >= MAX_GPUS:
            smi.note(f"more than {MAX_GPUS} GPUs")
            break
        smi.gpus.append(_gpu(node, place))
    cells.unique_keys(smi.gpus)
    return smi


def _gpu(node: Node, place: int) -> Gpu:
    row = {"uuid": node.words("uuid"), "pci.bus_id": node.words("pci/pci_bus_id") or node.gpu,
           "name": node.words("product_name"), "serial": node.words("serial")}
    gpu = cells.identified(row, place)
    minor = node.get("minor_number")
    if isinstance(minor, int):
        gpu.attrs["minor"] = minor
    gpu.cells = {column: node.get(path, kind) for column, kind, path in _PATHS}
    gpu.cells["reasons"] = _reasons(node)
    for column, word in (("ecc_cor", "correctable"), ("ecc_unc", "uncorrectable")):
        gpu.cells[column] = _ecc(node, "volatile", word)
        gpu.cells[f"{column}_all"] = _ecc(node, "aggregate", word)
    gpu.mig_devices = sum(1 for _ in node.all("mig_devices", "mig_device"))
    cells.hide_mig(gpu)
    return gpu


def _reasons(node: Node) -> Value:
    """The switches as NVML's bit mask; unknown where one of them could not be read."""
    mask, known = 0, False
    for block in node.children:
        if block.name not in ("clocks_event_reasons", "clocks_throttle_reasons"):
            continue
        for child in _below(block):
            name = child.name.removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_")
            bit = next((bit for bit, one in _REASONS if one == name), 0)
            value = cell(child.text, "on")
            if not bit or value == NOT_PROVIDED:
                continue
            if isinstance(value, Err):
                return value
            known = True
            mask |= bit if value else 0
    return mask if known else NOT_PROVIDED


def _below(node: Node) -> Iterator[Node]:
    for child in node.children:
        yield child
        yield from _below(child)


def _ecc(node: Node, span: str, word: str) -> Value:
    """The sum of the errors of SRAM and DRAM; before Ampere, the total of single or double bit errors."""
    for block in node.all("ecc_errors", span):
        old = block.get("single_bit/total" if word == "correctable" else "double_bit/total")
        if not isinstance(old, Err):
            return old
        parts = [cell(child.text) for child in block.children
                 if re.fullmatch(rf"[sd]ram_{word}(_parity|_secded|_errors)?", child.name)]
        numbers = [part for part in parts if not isinstance(part, Err)]
        bad = [part for part in parts if isinstance(part, Err) and part != NOT_PROVIDED]
        if bad:
            return bad[0]
        if numbers:
            return sum(numbers)
    return NOT_PROVIDED


def _tree(text: str) -> tuple[Node, str]:
    """Return the document's root and, where it could not be read to its end, why."""
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT]
    # A process name may hold what XML may not; its GPU must not suffer for it.
    text = _PROCESS_NAME.sub(_escaped, _BARE_AMPERSAND.sub("&amp;", _NOT_XML.sub("\ufffd", text)))
    top = Node("")
    stack = [top]
    parser = xml.parsers.expat.ParserCreate()
    parser.buffer_text = True
    parser.SetParamEntityParsing(xml.parsers.expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > MAX_DEPTH:
            raise ValueError("nested too deeply")
        node = Node(name, gpu=attributes.get("id", "") if name == "gpu" else "")
        # A GPU counts once it is complete.
        if name != "gpu":
            stack[-1].children.append(node)
        stack.append(node)

    def stop(name: str) -> None:
        node = stack.pop()
        if name == "gpu":
            stack[-1].children.append(node)

    def characters(data: str) -> None:
        stack[-1].text += data

    def refuse(*_: object) -> int:
        raise ValueError("it declares entities")

    parser.StartElementHandler = start
    parser.EndElementHandler = stop
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    why = ""
    try:
        parser.Parse(text, True)
    except (xml.parsers.expat.ExpatError, ValueError) as error:
        why = clean(f"nvidia-smi's XML breaks off: {error}", 160)
    return (top.children[0] if top.children else Node("nvidia_smi_log")), why


def _escaped(name: re.Match[str]) -> str:
    return name[0].replace("<", "&lt;").replace(">", "&gt;")


_TEXT_NAMES = {
    "bus_id": "pci_bus_id", "product_name": "product_name", "gpu_uuid": "uuid", "serial_number": "serial",
    "gpu_link_info": "pci_gpu_link_info", "pcie_generation": "pcie_gen", "link_width": "link_widths",
    "replays_since_reset": "replay_counter", "gpu_current_temp": "gpu_temp", "memory_current_temp": "memory_temp",
    "gpu_t_limit_temp": "gpu_temp_tlimit",
    "instantaneous_power_draw": "instant_power_draw",
    "gpu_slowdown_temp": "gpu_temp_slow_threshold", "gpu_shutdown_temp": "gpu_temp_max_threshold",
    "memory_max_operating_temp": "gpu_temp_max_mem_threshold",
    "correctable_error": "remapped_row_corr", "uncorrectable_error": "remapped_row_unc",
    "pending": "remapped_row_pending", "remapping_failure_occurred": "remapped_row_failure",
}  # fmt: skip
_TEXT_IN = {
    ("pcie_gen", "max"): "max_link_gen", ("pcie_gen", "current"): "current_link_gen",
    ("pcie_gen", "device_current"): "device_current_link_gen", ("pcie_gen", "device_max"): "max_device_link_gen",
    ("pcie_gen", "host_max"): "max_host_link_gen", ("link_widths", "max"): "max_link_width",
    ("link_widths", "current"): "current_link_width", ("clocks", "sm"): "sm_clock", ("clocks", "memory"): "mem_clock",
    ("max_clocks", "sm"): "sm_clock", ("mig_mode", "current"): "current_mig", ("ecc_mode", "current"): "current_ecc",
}  # fmt: skip


def parse_text(text: str, status: int = 0, stderr: str = "") -> Smi:
    """Read ``nvidia-smi -q``: the same tree, by indentation."""
    if status or "Attached GPUs" not in text:
        return cells.failed(text, status, stderr)
    root = Node("nvidia_smi_log")
    stack: list[tuple[int, Node]] = [(-1, root)]
    notes = []
    for line in text[:MAX_TEXT].expandtabs().splitlines():
        bus_id = _GPU_LINE.fullmatch(line.rstrip())
        match = _LINE.fullmatch("gpu" if bus_id else line.rstrip())
        if not line.strip() or line.startswith("==") or match is None:
            continue
        indent = len(match["indent"])
        name = re.sub(r"[^a-z0-9]+", "_", match["name"].lower()).strip("_")
        if bus_id is None and indent == 0 and match["value"] is None:
            notes.append(line)
            continue
        while stack[-1][0] >= indent:
            stack.pop()
        parent = stack[-1][1]
        name = _TEXT_IN.get((parent.name, name)) or (
            name if name == "pending" and parent.name != "remapped_rows" else _TEXT_NAMES.get(name, name))
        node = Node("gpu", gpu=bus_id[1]) if bus_id else Node(name, match["value"] or "")
        parent.children.append(node)
        stack.append((indent, node))
    for node in root.all("gpu"):
        # MIG devices stand side by side with the rest here.
        devices = Node("mig_devices", children=[Node("mig_device")] * sum(1 for _ in node.all("mig_device")))
        node.children.append(devices)
    smi = _read(root)
    for line in notes:
        smi.note(line)
    return smi
