"""A node whose /sys is a sample: unpacked, read by the probe's own readers, and judged by the core."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from clustertop.core import Core
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.probe import frames
from clustertop.probe.files import Call, Tree
from clustertop.probe.pcie import Pcie
from clustertop.probe.rdma import Rdma
from clustertop.rules.spec import builtin
from clustertop.wire import frame as wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from clustertop.model import Alert, Transition
    from clustertop.store.view import FleetView, TableView

_PORT = re.compile(r"^(?P<device>.*/infiniband/(?P<name>[^/]+))/ports/")
_FUNCTION = re.compile(r"^(?P<path>/.*/(?P<bdf>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]))/[^/]+$")


def unpack(sample: Mapping[str, str], root: Path) -> Path:
    """Lay a sample out below *root*, with the links that the kernel makes and a copy file by file lacks."""
    for name, text in sample.items():
        path = root / name.lstrip("/")
        if path.name == "device" and text.startswith("../"):
            _link(path, root / "sys" / text.lstrip("./"))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    for name in sample:
        port = _PORT.match(name)
        if port and not name.startswith("/sys/class/infiniband/"):
            device = root / port["device"].lstrip("/")
            _link(root / "sys/class/infiniband" / port["name"], device)
            _link(device / "device", device.parent.parent)
        function = _FUNCTION.match(name)
        if function and not name.startswith("/sys/bus/pci/devices/"):
            _link(root / "sys/bus/pci/devices" / function["bdf"], root / function["path"].lstrip("/"))
    return root


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink() and not path.exists():
        path.symlink_to(os.path.relpath(target, path.parent))


class Lab:
    """Nodes with trees of their own; time passes only by :meth:`poll`."""

    def __init__(self, *roots: Path) -> None:
        self.now = 1000.0
        self.core = Core([NodeInfo(f"n{number}") for number in range(len(roots))], builtin())
        self.seen: list[Transition] = []
        self._nodes = [_Node(root) for root in roots]
        for number in range(len(roots)):
            self.core.on_link(LinkEvent(number, self.now, LinkState.UP), 1.7e9)

    def poll(self, seconds: float = 2.0, *, silent: tuple[int, ...] = ()) -> list[Transition]:
        """Let *seconds* pass, read every node but the *silent* ones, judge; returns what changed."""
        self.now += seconds
        for number, node in enumerate(self._nodes):
            if number not in silent:
                payload = node.line(self.now).strip()
                whole = self.core.on_frame(number, self.now, 1.7e9 + self.now, wire.decode(payload), payload)
                assert whole, self.core.bad_frames
        changes = self.core.tick(self.now, 1.7e9 + self.now)
        assert not self.core.bad_frames
        self.seen += changes
        return changes

    @property
    def view(self) -> FleetView:
        assert self.core.snapshot is not None
        return self.core.snapshot.view

    @property
    def alerts(self) -> tuple[Alert, ...]:
        assert self.core.snapshot is not None
        return self.core.snapshot.alerts

    def raised(self, *rules: str) -> list[Transition]:
        """What has been raised so far, of *rules* or of all."""
        return [one for one in self.seen if one.kind == "raised" and (not rules or one.rule in rules)]

    def row(self, table: str, label: str, node: int = 0) -> int:
        """The row called *label*, or keyed so."""
        rows = self.view[table]
        found = [row for row in rows.rows_of(node).tolist() if label in (rows.labels[row], rows.keys[row])]
        assert len(found) == 1, (label, rows.labels, rows.keys)
        return int(found[0])

    def value(self, table: str, label: str, column: str, node: int = 0) -> float | None:
        """A value, or None where it is unknown."""
        return self.view[table].value(column, self.row(table, label, node))

    def why(self, table: str, label: str, column: str, node: int = 0) -> str:
        """Why a value is unknown."""
        return self.view[table].reason(column, self.row(table, label, node))

    def table(self, name: str) -> TableView:
        return self.view[name]


class _Node:
    """The probe's readers over one tree, and its encoder, without its threads and its clock."""

    def __init__(self, root: Path) -> None:
        self._readers = {"pcie": Pcie(Tree(str(root), Call())), "rdma": Rdma(Tree(str(root), Call(), 0))}
        self._encoder = frames.Encoder(60.0)
        self._n = 0

    def line(self, now: float) -> bytes:
        self._n += 1
        groups = {}
        for name, reader in self._readers.items():
            reading = reader.read(now)
            groups[name] = frames.Group(now, 2.0, reading.tables, 0.1, reading.st, "", reading.e, self._n)
        return frames.line(self._encoder.encode(groups, now, 1.7e9 + now, {}, {"boot_id": "b"}), "")


def load(path: Path) -> dict[str, str]:
    """A ``*.sysfs.json`` file: path to content."""
    found: dict[str, str] = json.loads(path.read_text("utf-8"))
    return found
