"""What ``sh_probe.sh`` says of all but GPUs, made into the probe's tables. Pure: no clock, no file, no channel.

Each reader takes one answer (a :class:`Section`) at a time and keeps what the next answer need not repeat.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clustertop.probe.files import PCI_ADDRESS, value
from clustertop.probe.frames import MAX_ROWS, Err, Table
from clustertop.probe.host import NET_COLUMNS, NODE_COLUMNS
from clustertop.probe.pcie import COLUMNS as PCIE_COLUMNS
from clustertop.signals import smi
from clustertop.text import clean
from clustertop.wire.shanswer import Base, text_of

if TYPE_CHECKING:
    from clustertop.model import Attr
    from clustertop.probe.frames import Cell, Row
    from clustertop.wire.shanswer import Section


def _value(cell: Cell) -> Cell:
    return value(cell.encode("utf-8", "replace")) if isinstance(cell, str) else cell


def _addresses(path: Cell) -> list[str]:
    """The PCI addresses on a path of /sys, root port first."""
    return [part for part in text_of(path).lower().split("/") if PCI_ADDRESS.match(part)]


class Host(Base):
    """Tables ``node`` and ``net``."""

    def __init__(self) -> None:
        super().__init__()
        self.wall: float | None = None
        """The node's wall clock at the end of the last answer, where it told."""
        self._ncpu: Cell = Err("not read")
        self._net: dict[str, dict[str, Cell]] = {}
        self._known: dict[str, dict[str, Cell]] = {}

    def take(self, section: Section) -> bool:
        """Take an answer."""
        self.state = "ok"
        if section.has("ncpu"):
            self.incomplete = False
            self._facts(section)
            self._known = {}
        cells: list[Cell] = [self._ncpu, *_cpu(section.text("stat")), *_load(section.text("load"))]
        cells += [_kib(section, name) for name in ("MemTotal:", "MemAvailable:", "SwapTotal:", "SwapFree:")]
        uptime = section.number("end")
        cells.append(Err("not understood") if uptime is None else uptime)
        cells += [_pressure(section, f"psi_{name}") for name in ("cpu", "memory", "io")]
        self.tables["node"] = Table([("", {})], list(NODE_COLUMNS), cells)
        self._take_net(section)
        return False

    def _facts(self, section: Section) -> None:
        facts = {name: text_of(section.text(name)) for name in ("host", "kernel", "boot_id", "arch")}
        facts["os"] = text_of(section.text("os")).strip("\"'")
        self.facts = {name: text for name, text in facts.items() if text}
        ncpu = section.number("ncpu")
        self._ncpu = int(ncpu) if ncpu else Err("not understood")
        seconds = re.match(r"\d{9,11}(\.\d{1,9})?", section.text("date"))
        if seconds:
            # busybox's date has no fraction: half a second is the least wrong.
            self.wall = float(seconds[0]) + (0.0 if seconds[1] else 0.5)

    def _take_net(self, section: Section) -> None:
        error = section.listing_error("/sys/class/net")
        if section.has("none") and "net" not in self.tables:
            self.tables["net"] = Table([], list(NET_COLUMNS), [])
            return
        rows: list[Row] = []
        things = dict(section.by_thing())
        for name, cells in things.items():
            known = self._known.setdefault(name, {})
            for seldom in ("speed_mbps", "mtu", "path", "driver"):
                if seldom in cells:
                    known[seldom] = cells[seldom]
            if not known:
                self.incomplete = True
            above = _addresses(known.get("path"))
            attrs: dict[str, Attr] = {"name": clean(name, 64), "phys": bool(above)}
            if above:
                attrs["pci"] = above[-1]
            driver = text_of(known.get("driver")).rpartition("/")[2]
            if driver:
                attrs["driver"] = driver
            rows.append((f"{above[-1]}/{name}" if above else name, attrs))
            cells.update({seldom: known[seldom] for seldom in ("speed_mbps", "mtu") if seldom in known})
        if error and "net" in self.tables:
            old = self.tables["net"]
            self.tables["net"] = Table(old.rows, old.columns, old.cells, error)
            return
        cells_ = [_value(cells.get(column, smi.NOT_PROVIDED)) for column in NET_COLUMNS for cells in things.values()]
        self.tables["net"] = Table(rows, list(NET_COLUMNS), cells_, error)


def _cpu(text: str) -> list[Cell]:
    words = text.split()
    if words[:1] != ["cpu"] or len(words) < 5 or not all(word.isdigit() for word in words[1:9]):
        return [Err("not understood")] * 2
    # guest and guest_nice are counted in user and nice already.
    jiffies = [int(word) for word in words[1:9]]
    return [sum(jiffies), sum(jiffies[3:5])]


def _load(text: str) -> list[Cell]:
    words = text.split()[:3]
    if len(words) == 3 and all(re.fullmatch(r"\d{1,9}\.\d{1,6}", word) for word in words):
        return [float(word) for word in words]
    return [Err("not understood")] * 3


def _kib(section: Section, name: str) -> Cell:
    match = re.match(r"(\d{1,18})( kB)?\s*$", section.text(name))
    return int(match[1]) * (1024 if match[2] else 1) if match else smi.NOT_PROVIDED


def _pressure(section: Section, name: str) -> Cell:
    match = re.match(r"some avg10=(\d{1,3}\.\d{1,6})\b", section.text(name))
    return float(match[1]) if match else smi.NOT_PROVIDED


class Pcie(Base):
    """Table ``pcie``."""

    def __init__(self) -> None:
        super().__init__()
        self._attrs: dict[str, dict[str, Attr]] = {}
        self._wanted: list[str] = []

    def take(self, section: Section) -> bool:
        """Take an answer."""
        error = section.listing_error("/sys/bus/pci/devices")
        things = {name.lower(): cells for name, cells in section.by_thing() if PCI_ADDRESS.match(name.lower())}
        self.error = ""
        if not things and not error and not self._wanted:
            self.state = "off"
            return False
        self.state = "ok"
        if any("path" in cells for cells in things.values()):
            self._list(things)
        self.incomplete = not error and things.keys() != self._all
        wanted = [bdf for bdf in self._wanted if bdf in things or error]
        cells = [_value(things.get(bdf, {}).get(column, smi.NOT_PROVIDED)) for column in PCIE_COLUMNS for bdf in wanted]
        self.tables["pcie"] = Table([(bdf, self._attrs[bdf]) for bdf in wanted], list(PCIE_COLUMNS), cells, error)
        return False

    _all: frozenset[str] = frozenset()

    def _list(self, things: dict[str, dict[str, Cell]]) -> None:
        self._all = frozenset(things)
        paths = {bdf: [one for one in reversed(_addresses(cells.get("path"))) if one != bdf]
                 for bdf, cells in things.items()}
        watched = {bdf for bdf, cells in things.items() if not text_of(cells.get("class")).startswith("0x0604")}
        watched |= {above for bdf in watched for above in paths[bdf] if above in things}
        self._wanted = sorted(watched)[:MAX_ROWS]
        self._attrs = {bdf: _pci_attrs(things[bdf], paths[bdf]) for bdf in self._wanted}


def _pci_attrs(cells: dict[str, Cell], path: list[str]) -> dict[str, Attr]:
    attrs: dict[str, Attr] = {"path": path}
    for attr in ("class", "vendor", "device"):
        attrs[attr] = text_of(cells.get(attr))
    vendor, device = text_of(cells.get("subsystem_vendor")), text_of(cells.get("subsystem_device"))
    if vendor and device:
        attrs["subsystem"] = f"{vendor}:{device}"
    driver = text_of(cells.get("driver")).rpartition("/")[2]
    if driver:
        attrs["driver"] = driver
    numa = _value(cells.get("numa_node"))
    if isinstance(numa, int):
        attrs["numa"] = numa
    if text_of(cells.get("name")):
        attrs["name"] = text_of(cells.get("name"))
    return attrs


class Rdma(Base):
    """Table ``port``."""

    _SHARED = (("hca", "hca_type"), ("fw", "fw_ver"), ("board", "board_id"), ("guid", "node_guid"))
    _TEXTS = ("state", "phys_state", "rate")

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, Row] = {}
        self._columns: list[str] = []
        self._cells: dict[str, dict[str, Cell]] = {}

    def take(self, section: Section) -> bool:
        """Take an answer."""
        error = section.listing_error("/sys/class/infiniband")
        things = dict(section.by_thing())
        if not things and not error and not self._rows:
            self.state = "off"
            return False
        self.state = "ok"
        ports = {name: cells for name, cells in things.items() if "/" in name}
        if not error:
            if len(things) > len(ports) or not things:
                self._list(things, ports)
            else:
                self.incomplete = ports.keys() != self._rows.keys()
                for name, cells in ports.items():
                    self._cells.get(name, {}).update(cells)
        cells_ = [_value(self._cells[name].get(column)) for column in self._columns for name in self._rows]
        self.tables["port"] = Table(list(self._rows.values()), self._columns, cells_, error)
        return False

    def _list(self, things: dict[str, dict[str, Cell]], ports: dict[str, dict[str, Cell]]) -> None:
        self.incomplete = False
        rows: dict[str, Row] = {}
        seen: set[str] = set()
        for name, cells in list(ports.items())[:MAX_ROWS]:
            device, _, number = name.rpartition("/")
            key, attrs = self._identity(device, number, things.get(device, {}), cells)
            if key in seen:
                key = name
            seen.add(key)
            rows[name] = (key, attrs)
        apart = ("link_layer", "ndev")
        self._cells = {name: {column: cell for column, cell in ports[name].items() if column not in apart}
                       for name in rows}
        columns = [*self._TEXTS, *sorted({one for cells in self._cells.values() for one in cells} - set(self._TEXTS))]
        if columns != self._columns:
            self._columns = columns
        self._rows = rows

    def _identity(self, device: str, number: str, shared: dict[str, Cell], cells: dict[str, Cell]) -> Row:
        attrs: dict[str, Attr] = {"dev": clean(device, 64)}
        for attr in ("path", "physfn"):
            address = text_of(shared.get(attr)).rpartition("/")[2].lower()
            if PCI_ADDRESS.match(address):
                attrs["pci" if attr == "path" else attr] = address
        driver = text_of(shared.get("driver")).rpartition("/")[2]
        if driver:
            attrs["driver"] = driver
        for attr, name in self._SHARED:
            if text_of(shared.get(name)):
                attrs[attr] = text_of(shared.get(name))
        attrs["port"] = int(number) if number.isdigit() else number
        nets = [one.partition(" ")[::2] for one in text_of(shared.get("net")).split(",") if one]
        if len(nets) > 1 and number.isdigit():
            nets = [(port, name) for port, name in nets if port == str(int(number) - 1)]
        if text_of(cells.get("link_layer")):
            attrs["link_layer"] = text_of(cells.get("link_layer"))
        netdev = nets[0][1] if len(nets) == 1 else text_of(cells.get("ndev"))
        if netdev:
            attrs["netdev"] = netdev
        return f"{attrs.get('pci') or device}/{number}", attrs
