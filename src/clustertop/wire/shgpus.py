"""The GPUs of a node without Python: what its nvidia-smi says, made into table ``gpu``. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clustertop.probe.frames import Err, Table
from clustertop.probe.gpu import COLUMNS as GPU_COLUMNS
from clustertop.signals import smi
from clustertop.signals.units import pci_key
from clustertop.text import clean
from clustertop.wire.shanswer import Base, text_of

if TYPE_CHECKING:
    from clustertop.model import Attr
    from clustertop.probe.frames import Cell
    from clustertop.wire.shanswer import Section


class Gpus(Base):
    """Table ``gpu``, from nvidia-smi. Where the query for all fails, each GPU is asked on its own for a while."""

    RETRIES = 6
    """Rounds of one by one before all are asked at once again."""
    FIELDS = (
        "index", "uuid", "pci.bus_id", "name", "serial", "driver_version", "utilization.gpu", "utilization.memory",
        "memory.used", "memory.total", "power.draw", "temperature.gpu", "temperature.memory", "temperature.gpu.tlimit",
        "clocks.current.sm",
        "clocks.current.memory", "clocks_event_reasons.active", "pstate", "pcie.link.gen.current",
        "pcie.link.width.current", "ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total",
        "enforced.power.limit", "pcie.link.gen.max", "pcie.link.gen.gpumax", "pcie.link.width.max", "clocks.max.sm",
        "persistence_mode", "mig.mode.current", "ecc.mode.current", "remapped_rows.correctable",
        "remapped_rows.uncorrectable", "remapped_rows.pending", "remapped_rows.failure", "retired_pages.pending",
        "retired_pages.single_bit_ecc.count", "retired_pages.double_bit.count", "power.draw.instant", "fan.speed",
        "ecc.errors.corrected.aggregate.total", "ecc.errors.uncorrected.aggregate.total",
    )  # fmt: skip
    _DRIVER = ("failed to initialize", "nvidia-smi has failed", "no devices were found", "not found", "no nvidia gpu")
    """Said of the driver as a whole: asking one by one would say the same again."""

    def __init__(self) -> None:
        super().__init__()
        self._fields = list(self.FIELDS)
        self._one_by_one = 0
        self._came_back = False
        self._all_error = ""
        self._known: dict[str, smi.Gpu] = {}
        """By canonical PCI address."""
        self._order: list[str] = []

    def question(self, seconds: int) -> str:
        """Return the next request; one by one, all of them together may take *seconds*.

        Until an nvidia-smi has come back, it is also to look for one that hangs there already.
        """
        fields = ",".join(self._fields)
        if self._one_by_one:
            return f"each {fields} {seconds}\n"
        return f"gpu {fields}{'' if self._came_back else ' check'}\n"

    def waits_for(self, section: Section) -> str:
        """What has not returned, by the answer so far."""
        asked = [cell for _, name, cell in section.entries if name == "ask" and isinstance(cell, str)]
        return f"nvidia-smi -i {asked[-1]}" if asked and asked[-1] else "nvidia-smi"

    def take(self, section: Section) -> bool:
        """Take an answer; True: a field was unknown there, or the GPUs are to be asked one by one."""
        if section.has("none"):
            self.state, self.error, self.tables = "off", "", {}
            return False
        if section.has("nosmi"):
            return self._failed("an NVIDIA device is there, but no nvidia-smi in PATH")
        hangs = re.fullmatch(r"(\d{1,9}) (\d{1,9})", section.text("stuck"))
        if hangs:
            self._failed(f"nvidia-smi hangs in the kernel on the node (pid {hangs[1]}, started {hangs[2]} s ago)")
            self.state = "hung"
            return False
        self._came_back = True
        outputs = _outputs(section)
        for output in outputs.values():
            if output.bad_field and self._drop(output.bad_field):
                return True
        if "" in outputs:
            return self._take_all(outputs[""])
        self._one_by_one -= 1
        return self._take_each(outputs, [text_of(cell) for _, name, cell in section.entries if name == "late"])

    def _drop(self, field: str) -> bool:
        name = field.strip()
        if name not in self._fields or len(self._fields) < 3:
            return False
        place = self._fields.index(name)
        older = name.replace("clocks_event_reasons", "clocks_throttle_reasons")
        self._fields[place : place + 1] = [older] if older != name else []
        return True

    def _take_all(self, got: smi.Smi) -> bool:
        if got.error:
            self._all_error = got.error
            if self._one_by_one or any(mark in got.error.lower() for mark in self._DRIVER):
                return self._failed(got.error)
            self._one_by_one = self.RETRIES
            return True
        self._show(got.gpus, got.facts, "")
        return False

    def _take_each(self, outputs: dict[str, smi.Smi], late: list[str]) -> bool:
        gpus: list[smi.Gpu] = []
        facts: dict[str, Attr] = {}
        lost: dict[str, str] = dict.fromkeys(late, "not asked in time")
        for address, got in outputs.items():
            key = pci_key(address)
            if got.gpus and not got.error:
                gpus.append(next((gpu for gpu in got.gpus if pci_key(gpu.attrs.get("pci")) == key), got.gpus[0]))
                facts.update(got.facts)
            else:
                said = got.blamed.get(key) or next(iter(got.blamed.values()), "") or got.error
                lost[address] = said or "no answer"
        if not gpus:
            return self._failed(self._all_error or "nvidia-smi failed for every GPU")
        for address, words in lost.items():
            known = self._known.get(pci_key(address))
            attrs: dict[str, Attr] = dict(known.attrs) if known else {"pci": address}
            gpus.append(smi.Gpu(known.key if known else f"pci:{address}", attrs,
                                dict.fromkeys(GPU_COLUMNS, Err(_short_reason(words)))))
        gpus.sort(key=lambda gpu: pci_key(gpu.attrs.get("pci")))
        smi.unique_keys(gpus)
        self._show(gpus, facts, self._all_error)
        return False

    def _show(self, gpus: list[smi.Gpu], facts: dict[str, Attr], error: str) -> None:
        for gpu in gpus:
            address = pci_key(gpu.attrs.get("pci"))
            if address and not gpu.key.startswith("pci:"):
                self._known[address] = gpu
        self.facts = facts or self.facts
        self.state, self.error = "ok", error
        cells = [gpu.cells.get(column, smi.NOT_PROVIDED) for column in GPU_COLUMNS for gpu in gpus]
        self.tables = {"gpu": Table([(gpu.key, gpu.attrs) for gpu in gpus], list(GPU_COLUMNS), list(cells))}

    def _failed(self, error: str) -> bool:
        self.state, self.error = "error", error
        if "gpu" in self.tables:
            # The devices are known, their values are not: no old value may pass for a new one.
            old = self.tables["gpu"]
            cells: list[Cell] = [Err(error)] * len(old.cells)
            self.tables = {"gpu": Table(old.rows, old.columns, cells)}
        return False


def _short_reason(words: str) -> str:
    for known in ("GPU is lost", "GPU requires reset", "Insufficient Permissions", "Unknown Error", "Not Supported"):
        if known.lower() in words.lower():
            return known
    return clean(words, 48)


def _outputs(section: Section) -> dict[str, smi.Smi]:
    """What each nvidia-smi of an answer said, by the GPU it was asked for; empty: for all."""
    texts: dict[str, list[str]] = {}
    errors: dict[str, list[str]] = {}
    status: dict[str, int] = {}
    asked = None
    for _, name, cell in section.entries:
        text = cell if isinstance(cell, str) else ""
        if name == "ask":
            asked = clean(text.strip(), 40)
            texts.setdefault(asked, [])
        elif asked is None:
            continue
        elif name == "row":
            texts[asked].append(text)
        elif name == "err":
            errors.setdefault(asked, []).append(text)
        elif name == "status":
            status[asked] = int(text) if text.isdigit() and len(text) < 6 else 255
    return {
        # No exit status: its line did not arrive, so what did may not be all.
        gpu: smi.parse_csv("\n".join(lines), (), status.get(gpu, 255), "\n".join(errors.get(gpu, ())))
        for gpu, lines in texts.items()
    }
