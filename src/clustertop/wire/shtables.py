"""What ``sh_probe.sh`` says, made into the probe's tables. Pure: no clock, no file, no channel.

Each reader takes one answer (a :class:`Section`) at a time and keeps what the next answer need not repeat.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from clustertop.probe.files import PCI_ADDRESS, value
from clustertop.probe.frames import MAX_ROWS, Err, Table
from clustertop.probe.gpu import COLUMNS as GPU_COLUMNS
from clustertop.probe.host import NET_COLUMNS, NODE_COLUMNS
from clustertop.probe.pcie import AER_FILES, LINK_FILES
from clustertop.probe.pcie import COLUMNS as PCIE_COLUMNS
from clustertop.signals import smi
from clustertop.signals.units import pci_key
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clustertop.model import Attr
    from clustertop.probe.frames import Cell, Row

_ERRNOS = {
    "invalid argument": "EINVAL", "permission denied": "EACCES", "operation not permitted": "EPERM",
    "no such file or directory": "ENOENT", "no such device": "ENODEV", "no such device or address": "ENXIO",
    "input/output error": "EIO", "i/o error": "EIO", "operation not supported": "EOPNOTSUPP",
    "not supported": "EOPNOTSUPP", "is a directory": "EISDIR", "not a directory": "ENOTDIR",
    "device or resource busy": "EBUSY", "resource busy": "EBUSY", "resource temporarily unavailable": "EAGAIN",
    "connection timed out": "ETIMEDOUT", "operation timed out": "ETIMEDOUT", "cannot allocate memory": "ENOMEM",
    "out of memory": "ENOMEM", "no data available": "ENODATA", "value too large for defined data type": "EOVERFLOW",
    "remote i/o error": "EREMOTEIO", "bad address": "EFAULT", "too many open files": "EMFILE",
    "interrupted system call": "EINTR", "stale file handle": "ESTALE", "protocol error": "EPROTO",
}  # fmt: skip
"""What cat says, GNU's and busybox's words, in lower case."""

_COLUMN_OF = {"speed": "speed_mbps", **{file: column for column, file in (*LINK_FILES, *AER_FILES)}}
"""Columns that are not called as their file is."""
_FOLDERS = {"statistics": "", "counters": "c:", "counters_ext": "x:", "hw_counters": "h:"}

_ENTRY = re.compile(rb"([^=!]*)([=!])(.*)", re.DOTALL)


def reason(text: str) -> Err:
    """``Invalid argument`` → ``EINVAL``; words that are no errno's stay."""
    return Err(_ERRNOS.get(text.strip().lower()) or clean(text.strip(), 48) or "unreadable")


def _column(name: str) -> str:
    """``hw_counters/lifespan`` → ``h:lifespan``; ``max_link_width`` → ``max_width``; others as they are."""
    folder, slash, file = name.partition("/")
    return _FOLDERS[folder] + file if slash and folder in _FOLDERS else _COLUMN_OF.get(name, name)


class Section:
    """One answer of the script: entries, each with what it is about."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.entries: list[tuple[str, str, Cell]] = []
        about = ""
        for line in lines:
            for part in line.split(b"\t"):
                if part.startswith(b">"):
                    about = part[1:].decode("utf-8", "replace")
                    continue
                match = _ENTRY.fullmatch(part)
                if match is not None:
                    name = match[1].decode("utf-8", "replace")
                    about = "" if name == "end" else about
                    text = match[3].decode("utf-8", "replace")
                    self.entries.append((about, name, text if match[2] == b"=" else reason(text)))

    def text(self, name: str) -> str:
        """The text of the first entry called *name*, empty if there is none."""
        return next((cell for _, one, cell in self.entries if one == name and isinstance(cell, str)), "")

    def has(self, name: str) -> bool:
        """True where there is such an entry."""
        return any(one == name for _, one, _ in self.entries)

    def number(self, name: str) -> float | None:
        """The number of the first entry called *name*, or None."""
        try:
            return float(self.text(name)) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", self.text(name).strip()) else None
        except ValueError:
            return None

    def by_thing(self) -> Iterator[tuple[str, dict[str, Cell]]]:
        """Each thing with its entries; an entry that comes twice: all its texts, with commas."""
        things: dict[str, dict[str, Cell]] = {}
        for about, name, cell in self.entries:
            if not about or (about not in things and len(things) >= 4 * MAX_ROWS):
                continue
            cells = things.setdefault(about, {})
            column = _column(name)
            before = cells.get(column)
            both = isinstance(before, str) and isinstance(cell, str)
            cells[column] = f"{before},{cell}" if both else cell
        yield from things.items()

    def listing_error(self, where: str) -> str:
        """Why the things could not be listed; empty where they were."""
        found = next((cell for _, name, cell in self.entries if name == "list" and isinstance(cell, Err)), None)
        return f"{found.reason}: {where}" if found is not None else ""


class Reader(Protocol):
    """Makes one group's tables."""

    tables: dict[str, Table]
    state: str
    error: str
    facts: dict[str, Attr]
    incomplete: bool
    """True where the next request should be for everything."""

    def take(self, section: Section) -> bool:
        """Take an answer; returns True if the group should be asked again at once."""
        ...

    def let_go(self, words: str) -> None:
        """Nothing is read any more, for the reason in *words*."""
        ...

    def waits_for(self, section: Section) -> str:
        """What has not returned, by the answer so far."""
        ...


class _Base:
    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.state = "wait"
        self.error = ""
        self.facts: dict[str, Attr] = {}
        self.incomplete = True

    def let_go(self, words: str) -> None:
        """Nothing is read any more: no old value may pass for a new one."""
        self.state, self.error = "released", words
        for name, old in self.tables.items():
            cells: list[Cell] = [Err(words)] * len(old.cells)
            self.tables[name] = Table(old.rows, old.columns, cells)

    def waits_for(self, section: Section) -> str:
        """What has not returned, by the answer so far."""
        return "a file of /sys" if not section.entries else f"a file of /sys after {section.entries[-1][0]}"


def _value(cell: Cell) -> Cell:
    return value(cell.encode("utf-8", "replace")) if isinstance(cell, str) else cell


def _text(cell: Cell) -> str:
    return clean(cell.strip()) if isinstance(cell, str) else ""


def _addresses(path: Cell) -> list[str]:
    """The PCI addresses on a path of /sys, root port first."""
    return [part for part in _text(path).lower().split("/") if PCI_ADDRESS.match(part)]


class Host(_Base):
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
        facts = {name: _text(section.text(name)) for name in ("host", "kernel", "boot_id", "arch")}
        facts["os"] = _text(section.text("os")).strip("\"'")
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
            driver = _text(known.get("driver")).rpartition("/")[2]
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


class Pcie(_Base):
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
        watched = {bdf for bdf, cells in things.items() if not _text(cells.get("class")).startswith("0x0604")}
        watched |= {above for bdf in watched for above in paths[bdf] if above in things}
        self._wanted = sorted(watched)[:MAX_ROWS]
        self._attrs = {bdf: _pci_attrs(things[bdf], paths[bdf]) for bdf in self._wanted}


def _pci_attrs(cells: dict[str, Cell], path: list[str]) -> dict[str, Attr]:
    attrs: dict[str, Attr] = {"path": path}
    for attr in ("class", "vendor", "device"):
        attrs[attr] = _text(cells.get(attr))
    vendor, device = _text(cells.get("subsystem_vendor")), _text(cells.get("subsystem_device"))
    if vendor and device:
        attrs["subsystem"] = f"{vendor}:{device}"
    driver = _text(cells.get("driver")).rpartition("/")[2]
    if driver:
        attrs["driver"] = driver
    numa = _value(cells.get("numa_node"))
    if isinstance(numa, int):
        attrs["numa"] = numa
    if _text(cells.get("name")):
        attrs["name"] = _text(cells.get("name"))
    return attrs


class Rdma(_Base):
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
            address = _text(shared.get(attr)).rpartition("/")[2].lower()
            if PCI_ADDRESS.match(address):
                attrs["pci" if attr == "path" else attr] = address
        driver = _text(shared.get("driver")).rpartition("/")[2]
        if driver:
            attrs["driver"] = driver
        for attr, name in self._SHARED:
            if _text(shared.get(name)):
                attrs[attr] = _text(shared.get(name))
        attrs["port"] = int(number) if number.isdigit() else number
        nets = [one.partition(" ")[::2] for one in _text(shared.get("net")).split(",") if one]
        if len(nets) > 1 and number.isdigit():
            nets = [(port, name) for port, name in nets if port == str(int(number) - 1)]
        if _text(cells.get("link_layer")):
            attrs["link_layer"] = _text(cells.get("link_layer"))
        netdev = nets[0][1] if len(nets) == 1 else _text(cells.get("ndev"))
        if netdev:
            attrs["netdev"] = netdev
        return f"{attrs.get('pci') or device}/{number}", attrs


class Gpus(_Base):
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
        return self._take_each(outputs, [_text(cell) for _, name, cell in section.entries if name == "late"])

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
