"""Where things are: which rows belong to which node, in the order an operator counts them.

Worked out anew only when a table gains, loses or renames rows, which the tables' tuples tell by identity.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

from clustertop.rules.outliers import LEAST_PEERS, LEAST_SHARE
from clustertop.signals.jobs import NO_JOB, SEVERAL, UNKNOWN
from clustertop.signals.pcie import kind
from clustertop.signals.units import pci_key
from clustertop.text import clean
from clustertop.tui.differences import Differences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.signals.jobs import Jobs
    from clustertop.store.view import FleetView, TableView

_NO_JOB = {SEVERAL: "several jobs", NO_JOB: "no job", UNKNOWN: "job not known"}
MAX_SLOTS = 16
"""Most GPUs or ports of one node that the fleet map shows."""
NONE = -1


class Atlas:
    """Places of rows, kept from snapshot to snapshot."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.name_width = 0
        """Cells of the longest name."""
        self.node_of: dict[str, int] = {}
        self.words: tuple[str, ...] = ()
        """Per node, in small letters: what a filter finds beside its state."""
        self.racks: tuple[tuple[str, tuple[int, ...]], ...] = ()
        """Racks in inventory order, with their nodes; nodes without one last, under an empty name."""
        self.by_job: tuple[tuple[str, tuple[int, ...]], ...] = ()
        """Nodes by the job that has them for itself, then those that are shared, idle, or of which it is not known."""
        self.job_words: tuple[str, ...] = ()
        """Per node, in small letters: what a filter finds of its jobs."""
        self._jobs: object = None
        self.gpus: NDArray[np.intp] = np.full((0, 0), NONE, np.intp)
        """[nodes, slots] rows of the GPU table by index, NONE where there is none."""
        self.ports: NDArray[np.intp] = self.gpus
        self.gpu_pcie: NDArray[np.intp] = np.empty(0, np.intp)
        """[GPU rows] the row of the same device in the PCIe table."""
        self.pcie_gpu: NDArray[np.intp] = np.empty(0, np.intp)
        self.pcie_kind: tuple[str, ...] = ()
        self.firmware: tuple[str, ...] = ()
        """Per port: the firmware that most ports of its model have, where it has another; else empty."""
        self.lower: dict[str, tuple[str, ...]] = {}
        self.differences = Differences()
        self._nodes: object = None
        self._site: object = None
        self._seen: dict[str, object] = {}
        self._lowered: dict[str, object] = {}

    def update(self, view: FleetView) -> None:
        """Take note of rows that are new in *view*."""
        if view.nodes is not self._nodes or view.of.site is not self._site:
            self._nodes, self._site = view.nodes, view.of.site
            self.names = tuple(clean(node.name, 64) for node in view.nodes)
            self.name_width = max((cell_len(name) for name in self.names), default=0)
            self.node_of = {node.name: number for number, node in enumerate(view.nodes)}
            feeds: dict[str, list[str]] = {}
            for feed in view.of.site.feeds:
                for name in feed.nodes:
                    feeds.setdefault(name, []).append(f"feed:{feed.name}")
            self.words = tuple(
                clean(" ".join((node.name, node.host, node.rack, *node.groups, *feeds.get(node.name, ()),
                                f"rack:{node.rack}", *(f"group:{group}" for group in node.groups),
                                *(f"leaf:{leaf}" for leaf in dict.fromkeys((node.leaf, *node.leaves)) if leaf))),
                      2048).lower()
                for node in view.nodes)
            racks: dict[str, list[int]] = {}
            for number, node in enumerate(view.nodes):
                racks.setdefault(clean(node.rack, 64), []).append(number)
            loose = racks.pop("", [])
            self.racks = tuple((rack, tuple(nodes)) for rack, nodes in racks.items())
            if loose:
                self.racks += (("", tuple(loose)),)
        if view.jobs is not self._jobs:
            self._jobs = view.jobs
            self._by_job(view.jobs)
        gpu, pcie, port = view["gpu"], view["pcie"], view["port"]
        moved = {name for name in ("gpu", "pcie", "port") if self._seen.get(name) is not view[name].attrs}
        if "gpu" in moved:
            self.gpus = _slots(len(view.nodes), gpu, [_order(attrs.get("index"), key) for attrs, key in
                                                      zip(gpu.attrs, gpu.keys, strict=True)])
        if "port" in moved:
            keep = [not attrs.get("physfn") for attrs in port.attrs]
            self.ports = _slots(len(view.nodes), port, [_order(None, key) if use else None for use, key in
                                                        zip(keep, port.keys, strict=True)])
            self.firmware = _other_firmware(port)
        if "pcie" in moved:
            self.pcie_kind = tuple(kind(attrs) for attrs in pcie.attrs)
        if moved & {"gpu", "pcie"}:
            where = {(int(node), key): row for row, (node, key) in enumerate(zip(pcie.node, pcie.keys, strict=True))}
            self.gpu_pcie = np.array(
                [where.get((int(node), pci_key(attrs.get("pci"))), NONE)
                 for node, attrs in zip(gpu.node, gpu.attrs, strict=True)], np.intp)
            self.pcie_gpu = np.full(len(pcie), NONE, np.intp)
            known = np.flatnonzero(self.gpu_pcie != NONE)
            self.pcie_gpu[self.gpu_pcie[known]] = known
        self._seen = {name: view[name].attrs for name in ("gpu", "pcie", "port")}

    def _by_job(self, jobs: Jobs) -> None:
        self.job_words = tuple(
            "".join(f"job:{name} " for name in names or ()).lower() for names in jobs.of_node)
        groups: dict[int, list[int]] = {}
        for node, code in enumerate(jobs.node.tolist()):
            groups.setdefault(code, []).append(node)
        order = [*sorted(code for code in groups if code >= 0), *(code for code in _NO_JOB if code in groups)]
        self.by_job = tuple((_NO_JOB.get(code) or jobs.names[code], tuple(groups[code])) for code in order)

    def labels(self, table: TableView) -> tuple[str, ...]:
        """Labels of *table* in small letters."""
        name = table.spec.name
        if self._lowered.get(name) is not table.labels:
            self._lowered[name] = table.labels
            self.lower[name] = tuple(label.lower() for label in table.labels)
        return self.lower[name]


def _other_firmware(port: TableView) -> tuple[str, ...]:
    """Compared within one model; three ports or more, of which six in ten agree, as the list of outliers has it."""
    models: dict[tuple[object, ...], Counter[str]] = {}
    mine = []
    for attrs in port.attrs:
        model = tuple(attrs.get(name) for name in ("driver", "hca", "board"))
        fw = "" if attrs.get("physfn") or not any(model) else str(attrs.get("fw") or "")
        mine.append((model, fw))
        if fw:
            models.setdefault(model, Counter())[fw] += 1
    usual = {}
    for kind_of, counts in models.items():
        found, common = counts.most_common(1)[0]
        if counts.total() >= LEAST_PEERS and common >= LEAST_SHARE * counts.total():
            usual[kind_of] = found
    return tuple(usual[model] if fw and usual.get(model, fw) != fw else "" for model, fw in mine)


def _order(index: object, key: str) -> tuple[int, str]:
    return (index if isinstance(index, int) else 1 << 30, key)


def _slots(nodes: int, table: TableView, order: list[tuple[int, str] | None]) -> NDArray[np.intp]:
    rows: dict[int, list[tuple[tuple[int, str], int]]] = {}
    for row, (node, place) in enumerate(zip(table.node.tolist(), order, strict=True)):
        if place is not None:
            rows.setdefault(node, []).append((place, row))
    width = min(MAX_SLOTS, max((len(mine) for mine in rows.values()), default=0))
    out = np.full((nodes, width), NONE, np.intp)
    for node, mine in rows.items():
        mine.sort()
        for slot, (_, row) in enumerate(mine[:width]):
            out[node, slot] = row
    return out
