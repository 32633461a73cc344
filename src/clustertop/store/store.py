"""The newest readings of the whole fleet: frames in, one frozen view out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Attr, LinkState, NodeInfo, Why, intern
from clustertop.places import NO_SITE
from clustertop.signals import bmc, disk, gpu, host, nccl_table, pdu, rdma, screen, uplink
from clustertop.signals.power import CRITICAL_RATIO, WARNING_RATIO
from clustertop.signals.units import pci_key
from clustertop.store.catalogue import DEVICE_GROUPS, GROUPS, KEEP, LABELS, SAME_TABLES, SPECS
from clustertop.store.devices import DOWN, Devices
from clustertop.store.feeds import Feeds
from clustertop.store.history import History
from clustertop.store.jobs import JobIndex
from clustertop.store.links import Links
from clustertop.store.nodes import Node, cost
from clustertop.store.nodes import derive as derive_nodes
from clustertop.store.owners import Owners
from clustertop.store.paths import PciePaths
from clustertop.store.peers import Addresses, Starts
from clustertop.store.ports import Ports, judge_nodes
from clustertop.store.rows import attribute, clean_row, told_apart, unclassified
from clustertop.store.table import Table
from clustertop.store.traffic import Traffic
from clustertop.store.unclaimed import unclaimed
from clustertop.store.view import FleetView, Freshness
from clustertop.text import clean
from clustertop.wire.frame import Frame, FrameError, GroupPart, Row, TablePart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clustertop.model import LinkEvent
    from clustertop.places import Site

    ExpectWidth = Callable[[NodeInfo, str, Mapping[str, Attr]], float | None]
    ExpectCount = Callable[[NodeInfo], int | None]

SETTLE_SECONDS = 300.0
"""After a boot: links train, services start, counters begin again."""
RELOAD_SECONDS = 60.0
"""After the GPU driver was away."""
RELOAD_AGAIN_SECONDS = 600.0
"""Within this time of one reload there is no other: readings that fail now and then must not keep a node settling."""
BACK_SECONDS = 1.0
"""A node's own clock that goes back by more than this began anew."""
_UNCHANGED = TablePart()
_NOT_RELEASED = intern("not released")
_NOT_LISTED = intern("processes not listed")
_NOT_READ = frozenset({"error", "released", "hung"})
"""States of a group in which no row is to blame for having no values."""
_AWAY = frozenset({"error", "released"})
"""States of a group that, when they are over, mean that the driver was loaded anew."""
_LISTED = frozenset({"ok", "off"})
"""States of a group that has looked for its things, so that what it does not tell of is not there."""
_GROUP_COLUMNS = tuple(host.GROUP.index[name] for name in (
    "group_state", "hung", "failed", "interval_seconds", "interval_wanted_seconds", "reading_seconds"))
_READING_SECONDS = host.GROUP.index["reading_seconds"]


class Store:
    """Tables over all nodes of an inventory."""

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        expect_width: ExpectWidth = lambda node, key, attrs: None,
        expect_gpus: ExpectCount = lambda node: None,
        expect_ports: ExpectCount = lambda node: None,
        freshness: Freshness | None = None,
        settle_seconds: float = SETTLE_SECONDS,
        growth: Mapping[str, tuple[str, ...]] | None = None,
        site: Site | None = None,
        feed_shares: tuple[float, float] = (WARNING_RATIO, CRITICAL_RATIO),
    ) -> None:
        """Make the tables.

        Args:
            nodes: the inventory.
            expect_width: tells how many PCIe lanes a device must have.
            expect_gpus: tells how many GPUs a node must have.
            freshness: when a reading is old.
            settle_seconds: how long a node settles after a boot.
            growth: by table, the counters whose increase since first seen belongs in each view.
            site: what is watched beside the nodes.
            feed_shares: of a breaker's rating, from which a feed is to be warned of, and critical.
        """
        self._freshness = freshness or Freshness()
        self._settle_seconds = settle_seconds
        self.owners = Owners(nodes, NO_SITE if site is None else site)
        self._settle = np.full(len(self.owners), -np.inf)
        self._reload = np.full(len(self.owners), -np.inf)
        self._ticked = float("-inf")
        self.nodes = self.owners.nodes
        self.tables = {spec.name: Table(spec, LABELS[spec.name], reuse=spec.name == "peer") for spec in SPECS}
        for name, columns in (growth or {}).items():
            table = self.tables[name]
            table.show_growth = tuple(column for column in columns if column in table.counter_names)
        self.history = History(SPECS)
        self.generation = 0
        self._nodes = [Node() for _ in self.nodes]
        self._expected_gpus, self._expected_ports = (
            np.array([np.nan if (count := expect(node)) is None else float(count) for node in self.nodes])
            for expect in (expect_gpus, expect_ports))
        self._paths = PciePaths(self.tables["pcie"], self.tables["gpu"], self.nodes, expect_width, self.history)
        self._ports = Ports(self.tables["port"])
        self._links = Links(self.tables["link"], self.tables["port"])
        self._starts = Starts(self.tables["peer"])
        self.addresses = Addresses(self.tables["link"], self.tables["peer"])
        """Whose the peers' addresses are."""
        self._devices = Devices(self.tables["device"], self.owners)
        self._feeds = Feeds(self.owners.site, self.tables, self.owners, freshness=self._freshness,
                            warning=feed_shares[0], critical=feed_shares[1])
        self._traffic = Traffic(self.nodes, self.tables, self.history, self._freshness, owners=self.owners.all,
                                places=self.addresses.of_peers, order=self.owners.site.order)
        self._jobs = JobIndex(*(self.tables[name] for name in ("node", "gpu", "process")))
        self._tables_of = {
            group: tuple((spec.name, self.tables[spec.name]) for spec in SPECS if spec.group == group)
            for group in GROUPS
        }
        self._device_tables = {
            group: tuple((spec.name, self.tables[spec.name]) for spec in SPECS
                         if spec.group == SAME_TABLES.get(group, group))
            for group in DEVICE_GROUPS
        }
        self._flag_cache: dict[tuple[str, str], tuple[int, np.ndarray]] = {}
        node_table = self.tables["node"]
        for number, node in enumerate(self.nodes):
            node_table.add(number, "", {"name": node.name})
            node_table.relabel(number, node.name)

    # -- what comes in -------------------------------------------------------------------------------------------

    def link(self, event: LinkEvent) -> None:
        """Take a change of the link to a node or a device."""
        self.generation += 1
        if self.owners.is_device(event.node):
            self._devices.link(event)
            return
        node = self._nodes[event.node]
        node.state, node.reason, node.via = event.state, event.reason, event.via or node.via
        if event.state in DOWN:
            node.reach = 0.0

    def expect(self, number: int, name: str, key: str, attrs: Mapping[str, Attr]) -> int | None:
        """Expect a thing that node *number* had before: it is missing until it is listed.

        Returns its row; None where there is no such table or no room.
        """
        table = self.tables.get(name)
        if table is None:
            return None
        said = {clean(name, 40): attribute(value) for name, value in attrs.items()}
        row = table.expect(number, clean(key, 128), said)
        if row is not None and name == "port" and not table.present[row]:
            table.values[table.spec.index["was_up"], row] = 1.0
        return row

    def frame(self, number: int, at: float, wall: float, frame: Frame) -> bool:
        """Take a frame of owner *number* that arrived at *at* (our monotonic clock) and *wall* (epoch seconds).

        Returns False when the frame counts from a full one that was never seen: ask for another.

        Raises:
            FrameError: its cells do not fit its own tables.
        """
        if self.owners.is_device(number):
            self._device(number, at, frame)
            return True
        node = self._nodes[number]
        node.frame_at = at
        node.frames += 1
        node.reach = 1.0
        node.offset = frame.w - wall
        cost(node, frame)
        if frame.full:
            node.interval = float("nan")
        complete = True
        try:
            if frame.t < node.time - BACK_SECONDS:
                self._booted(number, at)
            node.time = frame.t
            if frame.h is not None:
                self._facts(node, number, at, frame.h)
            for name, part in frame.g.items():
                tables = self._tables_of.get(name)
                if tables is not None:
                    complete &= self._group(node, number, at, frame, name, part, tables)
            gpus = frame.g.get("gpu")
            if gpus is not None:
                self._release(node, number, at, wall, gpus.st)
        except (ValueError, IndexError) as error:
            raise FrameError(clean(f"a frame that does not fit its own tables: {error}", 160)) from None
        self.generation += 1
        return complete

    def _device(self, number: int, at: float, frame: Frame) -> None:
        """Take a device's frame: each is a full one, and what it says is kept under its host.

        Raises:
            FrameError: its cells do not fit its own tables, or count from another frame.
        """
        if not frame.full:
            raise FrameError("a device's frame that is not a full one")
        self._devices.frame(number, at, frame)
        host = self.owners.host[number]
        try:
            for name, part in frame.g.items():
                for table_name, table in self._device_tables.get(name, ()):
                    if part.st != "ok" or part.o or table_name not in part.tb:
                        continue
                    table_part = part.tb[table_name]
                    self._full(host, frame.q, table, table_part, gone=not table_part.e)
                    table.stamp(host, at - max(frame.t - part.t, 0.0), part.t, part.iv)
        except (ValueError, IndexError) as error:
            raise FrameError(clean(f"a frame that does not fit its own tables: {error}", 160)) from None
        self.generation += 1

    def _release(self, node: Node, number: int, at: float, wall: float, state: str) -> None:
        """Note whether the operator had the GPUs let go, and since when: a gap in the frames does not end that."""
        if state == "wait" or (state != "released" and node.released != node.released):
            return
        for _, table in self._tables_of["gpu"]:
            table.hold(number, state == "released")
        if state != "released":
            node.released = float("nan")
            return
        since = node.facts.get("gpus_released")
        if isinstance(since, int | float) and not isinstance(since, bool) and 0 < since <= wall:
            node.released = at - (wall - since)
        elif node.released != node.released:
            node.released = at

    def _facts(self, node: Node, number: int, at: float, facts: Mapping[str, Attr]) -> None:
        node.facts = {clean(key, 40): attribute(value) for key, value in facts.items()}
        boot = node.facts.get("boot_id")
        if boot is not None:
            if node.boot is not None and boot != node.boot:
                self._booted(number, at)
            node.boot = boot

    def _booted(self, number: int, at: float) -> None:
        self._settle[number] = at + self._settle_seconds
        for table in self.tables.values():
            table.new_baseline(number)

    def _settled(self, now: float) -> None:
        """Nodes that have just settled: what their counters did meanwhile is no growth."""
        for number in np.flatnonzero((self._settle > self._ticked) & (self._settle <= now)).tolist():
            for table in self.tables.values():
                table.new_baseline(number, forget=True)
            self._ports.forget(np.array(self.tables["port"].of_node.get(number, ()), np.intp))
        self._ticked = now

    def _group(
        self, node: Node, number: int, at: float, frame: Frame, name: str, part: GroupPart,
        tables: tuple[tuple[str, Table], ...],
    ) -> bool:
        read_at = at - max(frame.t - part.t, 0.0)
        moved = part.n != node.numbers.get(name)
        self._group_row(node, number, name, part, read_at)
        if part.o:
            # Its tables were in frames before this one; where these were lost, a full one has them.
            return not moved
        node.numbers[name] = part.n
        complete, full = True, frame.full
        if not moved and not full:
            return all(table.based_on(number, frame.b) for table_name, table in tables if table_name in part.tb)
        for table_name, table in tables:
            if moved and part.st == "released":
                # Also of rows that this probe has never seen: after a reconnect it begins without the GPUs.
                table.stamp(number, read_at, part.t, part.iv)
            # A table whose values are all those of the last full frame is left out of a later one.
            table_part = part.tb.get(table_name, _UNCHANGED)
            if full:
                if table_name not in part.tb:
                    continue
                # Where one GPU's processes cannot be listed, those of the others still are.
                listed = not table_part.e or table_name == "process"
                self._full(number, frame.q, table, table_part, gone=part.st == "ok" and listed)
            elif table.based_on(number, frame.b):
                table.ingest_delta(number, table_part)
            else:
                complete &= table_name not in part.tb
                continue
            if full and table_name == "peer":
                self._starts.listed(number, part.t)
            if moved and part.st == "ok":
                table.stamp(number, read_at, part.t, part.iv)
        if name == "gpu":
            self._processes(node, part, full=full)
        return complete

    def _processes(self, node: Node, part: GroupPart, *, full: bool) -> None:
        table = part.tb.get("process")
        if full:
            node.processes = table.e if table is not None and table.c else None
        elif node.processes is not None:
            node.processes = table.e if table is not None else ""
        if node.processes:
            node.processes = clean(node.processes, 160)

    def _group_row(self, node: Node, number: int, name: str, part: GroupPart, read_at: float) -> None:
        groups = self.tables["group"]
        row = node.group_rows.get(name)
        if row is None:
            row = groups.add(number, name, {})
            assert row is not None
            node.group_rows[name] = row
        if part.st == "off":
            read_at = node.frame_at
        if part.st != "wait":
            groups.read_at[row] = read_at
        if not part.iv:
            return  # an old reading at the interval of before: only its age is news
        if not node.interval <= part.iv:
            node.interval = part.iv
        if part.n != node.numbers.get(name):
            groups.reads[row] += 1
            groups.values[_READING_SECONDS, row] = part.ms / 1000
        told = (part.st, part.iv, part.iw, part.w, part.e)
        before = node.told.get(name)
        if told == before:
            return
        if name == "gpu" and part.st == "ok" and before is not None and before[0] in _AWAY:
            again = self._reload[number] - RELOAD_SECONDS + RELOAD_AGAIN_SECONDS
            if before[0] == "released" or node.frame_at >= again:
                self._reload[number] = node.frame_at + RELOAD_SECONDS
        node.told[name] = told
        state = host.GROUP_STATES.get(part.st, host.ERROR)
        said = clean(part.w if state == host.HUNG else part.e, 160)
        if groups.attrs[row].get("said", "") != said:
            groups.say(row, {"said": said})
        values, why = groups.values, groups.why
        fields = (state, state == host.HUNG, state == host.ERROR, part.iv, part.iw or part.iv, part.ms / 1000)
        for column, value in zip(_GROUP_COLUMNS, fields, strict=True):
            values[column, row] = value
            why[column, row] = Why.KNOWN
        groups.interval[row] = part.iv

    def _full(self, number: int, sequence: int, table: Table, part: TablePart, *, gone: bool) -> None:
        layout = table.layout_of(number)
        if (layout is not None and part.r is not None and layout.sent == part.r and layout.complete == gone
                and layout.names == part.c):
            table.ingest_same(number, sequence, part)
            return
        rows = [clean_row(row) for row in part.r or ()]
        if len({row.k for row in part.r or ()}) != len(rows):
            raise ValueError(f"two rows of {table.spec.name} with one key")
        if table.spec.name == "screen":
            rows = [Row("", row.a) for row in rows[:1]]
        elif table.spec.name == "node":
            rows = [Row("", {**row.a, "name": self.nodes[number].name}) for row in rows[:1]]
        elif table.spec.name == "gpu":
            rows = [self._gpu_identity(number, row) for row in rows]
        elif table.spec.name == "pcie":
            rows = [Row(pci_key(row.k) or row.k, row.a) for row in rows]
        elif table.spec.name == "port":
            rows = unclassified(rows, part, table)
        changed = table.ingest_full(number, sequence, part, told_apart(rows), gone=gone and table.spec.name != "node")
        table.remember(number, part.r or [], complete=gone)
        if changed and table.spec.name in {"gpu", "pcie"}:
            self._paths.relay(number)
        if changed and table.spec.name == "node":
            table.relabel(number, self.nodes[number].name)
        if changed and table.spec.name == "screen":
            for row in table.of_node.get(number, ()):
                table.relabel(row, self.nodes[number].name)

    def _gpu_identity(self, number: int, row: Row) -> Row:
        """A GPU that no longer tells its UUID is still the one known at its address or index."""
        if not row.k.startswith(("pci:", "index:")):
            return row
        table = self.tables["gpu"]
        address, index = pci_key(row.a.get("pci") or row.k.removeprefix("pci:")), row.a.get("index")
        for known in table.of_node.get(number, ()):
            attrs = table.attrs[known]
            same = pci_key(attrs.get("pci")) == address if address else attrs.get("index") == index
            if same and not table.keys[known].startswith(("pci:", "index:")):
                return Row(table.keys[known], {**attrs, **{key: value for key, value in row.a.items() if value}})
        return row

    # -- what goes out -------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Bring every table's meaning up to *now*: growth of counters, derived columns, history."""
        self._settled(now)
        for table in self.tables.values():
            table.refresh()
        gpus, ports, nodes = (self.tables[name] for name in ("gpu", "port", "node"))
        jobs = self._jobs.of([node.processes for node in self._nodes])
        unheard = np.isinf(gpus.read_at[: gpus.rows]) & ~gpus.present[: gpus.rows]
        gpu.derive(gpus.columns, self._failed(gpus, "gpu") | unheard, gpus.node_time[: gpus.rows], jobs.gpu,
                   gpus.fresh(now, self._freshness))
        gpus.columns.put("memory_unclaimed_bytes", unclaimed(
            gpus, self.tables["process"], [node.processes for node in self._nodes]), _NOT_LISTED)
        gpus.seal()
        self._paths.derive(now)
        rdma.derive(ports.columns, self._flags("port", lambda attrs: bool(attrs.get("physfn"))),
                    ~np.isinf(ports.read_at[: ports.rows]))
        self._ports.derive(now)
        self._links.derive()
        disk.derive(self.tables["disk"].columns, self._flags("disk", lambda attrs: attrs.get("read_only") is True))
        listed = np.array([node.told.get("rdma", ("",))[0] in _LISTED for node in self._nodes])
        judge_nodes(nodes.columns, ports.columns, np.where(listed, self._expected_ports, np.nan))
        screen.derive(self.tables["screen"].columns, self._flags("screen", screen.gpu_monitored))
        self._nccl()
        self._net()
        self._groups(now)
        derive_nodes(self._nodes, self.tables, self._expected_gpus, self._freshness, now)
        self._devices.derive(now)
        uplinks, pdus, psus = (self.tables[name] for name in ("uplink", "pdu", "psu"))
        if uplinks.rows:
            uplink.derive(uplinks.columns)
        self._feeds.derive(now)
        if pdus.rows:
            pdu.derive(pdus.columns, self._feeds.claimed())
        if psus.rows:
            bmc.derive_psu(psus.columns)
        since = np.array([node.released for node in self._nodes])
        nodes.columns.put("gpus_released_seconds", np.maximum(now - since, 0.0), _NOT_RELEASED)
        self._traffic.derive(now, jobs)
        if self.history.due(now):
            past = {name: table.values[:, : table.rows] for name, table in self.tables.items()}
            # The last word of a node that has fallen silent is no sample.
            past["gpu"] = np.where(gpus.fresh(now, self._freshness), past["gpu"], np.nan)
            self.history.push(now, past)
            self._paths.drops.sample(self.tables["pcie"].columns, now)
        self.generation += 1

    def view(self, now: float, wall: float) -> FleetView:
        """Return the frozen picture at *now* (our monotonic clock); call :meth:`tick` first."""
        listed = [node.processes for node in self._nodes]
        return FleetView(
            self.generation, now, wall, self.nodes,
            {name: table.view(now, KEEP.get(name, ()), self._freshness) for name, table in self.tables.items()},
            tuple(node.facts for node in self._nodes), (*(node.reason for node in self._nodes), *self._devices.reasons,
                                                        *[""] * (len(self.owners) - self.owners.first_feed)),
            (*(node.via for node in self._nodes), *[""] * (len(self.owners) - len(self.nodes))), self.history,
            {"": self._settle.copy(), "gpu": np.fmax(self._settle, self._reload)},
            self._paths.drops, self._jobs.of(listed), tuple(listed), self.owners,
            self._traffic.picture,
        )

    def _failed(self, table: Table, group: str) -> np.ndarray:
        """[rows] whether the group that feeds them reports an error as a whole: then no row is to blame."""
        failed = np.array([(told := node.told.get(group)) is not None and told[0] in _NOT_READ for node in self._nodes])
        return failed[table.node[: table.rows]]

    def _flags(self, name: str, test: Callable[[Mapping[str, Attr]], bool], what: str = "") -> np.ndarray:
        """[rows] of *test* on each row's attributes, worked out again only when a row changed.

        *what* tells tests on one table apart.
        """
        table = self.tables[name]
        known = self._flag_cache.get((name, what))
        if known is None or known[0] != table.listed:
            known = (table.listed, np.array([test(attrs) for attrs in table.attrs], np.bool_))
            self._flag_cache[name, what] = known
        return known[1]

    def _nccl(self) -> None:
        table, ports = self.tables["nccl"], self.tables["port"].columns
        if not table.rows:
            return
        fabric = self._flags("port", lambda attrs: attrs.get("link_layer") == "InfiniBand", "infiniband")
        infiniband = np.zeros(len(self.nodes), np.bool_)
        infiniband[ports.row_node[fabric & (ports.col("link") == rdma.UP)]] = True
        nccl_table.derive(
            table.columns, table.node_time[: table.rows], self._flags("nccl", nccl_table.shows_rdma, "rdma"),
            infiniband[table.node[: table.rows]], self._flags("nccl", nccl_table.is_communicator, "communicator"))

    def _net(self) -> None:
        table = self.tables["net"]
        physical = self._flags("net", lambda attrs: attrs.get("phys") is True)
        table.columns.put("physical", physical.astype(float))

    def _groups(self, now: float) -> None:
        columns = self.tables["group"].columns
        table = self.tables["group"]
        age = now - table.read_at[: table.rows]
        age[np.isinf(age)] = np.nan
        columns.put("group_age_seconds", age, Why.NEVER_READ)
        # A group is late by itself only while frames arrive and no call of its own hangs: those are other faults.
        silent = np.array([now - node.frame_at > 5.0 or node.state != LinkState.UP for node in self._nodes], np.bool_)
        other = silent[columns.row_node] | (columns.col("hung") == 1)
        columns.put("age_intervals", np.where(other, np.nan, age / table.interval[: table.rows]), Why.NOT_JUDGED)
