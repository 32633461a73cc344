"""From the meters' tables to racks, jobs and leaves: who sends to whom, what share crosses, which meters agree.

Worked out at the console, once for each tick that brings a reading. A figure keeps the name of its meter and of its
definition; what is not measured is unknown and says why.
"""

from __future__ import annotations

import math
from operator import is_
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why, intern
from clustertop.signals import nccl_ranks, traffic, traffic_flows
from clustertop.signals.host import OK
from clustertop.store import ends
from clustertop.store.latency import Latency
from clustertop.store.leaves import Leaves
from clustertop.store.mean import Mean, known_or_zero
from clustertop.store.nics import Nics
from clustertop.store.scopes import MOST_JOBS, Rows, scopes
from clustertop.store.shares import Evidence, Hangs, Members, decide
from clustertop.store.steady import Steady
from clustertop.store.talkers import STRANGERS, Talkers
from clustertop.store.traffic_picture import NO_METER, NO_RACKS, Meter, Talker, TrafficPicture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.model import Attr, NodeInfo
    from clustertop.signals.jobs import Jobs
    from clustertop.store.history import History
    from clustertop.store.scopes import Scope
    from clustertop.store.shares import Share, Told
    from clustertop.store.table import Table
    from clustertop.store.traffic_picture import LeafPicture
    from clustertop.store.view import Freshness

    Floats = NDArray[np.float64]

FLOOR_BYTES_PER_SECOND = 1e6
"""With less than this between placed nodes there is no share: a heartbeat is no traffic."""
SLOW_SECONDS = 5.0
"""Of a large table, time between two workings-out of latency and of who talks most."""
LARGE_SECONDS = 2.0
"""Of a large table, time between two workings-out of the rest."""
SOCKETS = "sockets"
"""The probe group of table ``peer``."""
METERS: Mapping[str, tuple[str, str]] = {
    "sockets": ("TCP sockets of the nodes, measured; does not see RDMA", "both"),
    "uplinks": ("ports of the leaf switches, measured; sees all bytes, knows leaves, not racks", traffic.THROUGH_SPINE),
    "fabric": ("ports of the leaf switches by a fabric query, measured", traffic.THROUGH_SPINE),
    "nccl": ("channels of the NCCL log times what the NICs sent, estimated", traffic.CROSS_RACK),
    "order": ("ring over the order of ranks, predicted", traffic.CROSS_RACK),
}
_NOWHERE = np.empty(0, np.intp)


class Traffic:
    """Fills table ``traffic`` and the node table's columns of TCP latency, and keeps the picture of both."""

    def __init__(
        self, nodes: Sequence[NodeInfo], tables: Mapping[str, Table], history: History, freshness: Freshness, *,
        owners: Sequence[NodeInfo] | None = None, owner: int | None = None,
        places: Callable[[], NDArray[np.intp]] = lambda: _NOWHERE,
        order: Sequence[str] = (),
    ) -> None:
        """Begin.

        Args:
            nodes: the inventory.
            tables: of the store: ``traffic``, ``node``, and those of the meters that there are.
            history: of the store.
            freshness: when a reading is old.
            owners: whom rows belong to, the nodes first; None: the nodes only.
            owner: number of the owner of the rows of table ``traffic``; None: the last one.
            places: gives [rows of table ``peer``] the number of the peer's node, negative where it is none; the same
                object for as long as nothing changes.
            order: nodes of a job in the order of ranks, as a host file has them: of the job or group that has exactly
                these nodes, and of the fleet.
        """
        self._nodes, self._tables, self._freshness = tuple(nodes), tables, freshness
        everybody = tuple(owners or nodes)
        self._table = tables["traffic"]
        self._rows = Rows(self._table, len(everybody) - 1 if owner is None else owner, history)
        count = len(self._nodes)
        self._numbers = _spellings(self._nodes)
        self._racks = tuple(sorted({node.rack for node in self._nodes if node.rack}))
        place = {name: number for number, name in enumerate(self._racks)}
        self._rack = np.array([place.get(node.rack, -1) for node in self._nodes], np.intp)
        self._rack_of = {node.name: node.rack for node in self._nodes if node.rack}
        numbers = dict.fromkeys(self._numbers.get(name, -1) for name in order)
        self._order = [number for number in numbers if number >= 0]
        hung = {
            node.name: frozenset(node.leaves or (node.leaf,)) for node in self._nodes if node.leaves or node.leaf}
        leaf_names = tuple(sorted({leaf for mine in hung.values() for leaf in mine}))
        column = {leaf: number for number, leaf in enumerate(leaf_names)}
        matrix = np.zeros((count, len(leaf_names)), np.bool_)
        for number, node in enumerate(self._nodes):
            for leaf in hung.get(node.name, ()):
                matrix[number, column[leaf]] = True
        self._hangs = Hangs(matrix, leaf_names)
        self._leaves = Leaves(tables.get("uplink"), everybody, leaf_names)
        self._nics = Nics(tables, count)
        self._latency = Latency(count)
        self._steady = Steady()
        self._ends = ends.Ends(count, places)
        self._pairs = self._ends.pairs
        self._reporter = _NOWHERE
        self._amount = Mean()
        self._sent, self._nic_sent, self._rdma_sent = Mean(), Mean(), Mean()
        self._jobs: Jobs | None = None
        self._scopes: list[Scope] = []
        self._members = Members([], count)
        self._loose: list[str] = []
        entries = traffic_flows.scopes_of(self._pairs, traffic_flows.Layers(count, []))
        self._codes = np.empty(0, np.intp)
        self._crosses_rack = self._crosses_spine = np.empty(0, np.int8)
        self._by_rack = self._by_spine = traffic_flows.split(entries, self._crosses_rack)
        self._ranks = nccl_ranks.Ranks()
        self._ranks_mark: object = None
        self._rings: dict[str, tuple[traffic.Ring | None, traffic.Ring | None, str]] = {}
        self._mark: object = None
        self._seen: tuple[LeafPicture, ...] = ()
        self._at = self._listed_at = self._latency_at = self._medians_at = float("-inf")
        self._flow: Floats = np.empty(0)
        self._talkers = Talkers(self._nodes, self._rack, racked=bool(self._racks))
        self._listed: tuple[tuple[Talker, ...], tuple[tuple[str, float], ...]] = (), ()
        self._socket_rows: tuple[int, NDArray[np.intp]] = (-1, np.empty(0, np.intp))
        self.picture = TrafficPicture()

    # -- once a tick ---------------------------------------------------------------------------------------------

    def derive(self, now: float, jobs: Jobs) -> None:
        """Bring table, node columns and picture up to *now*; returns at once where no meter was read since."""
        peers, nccl = self._tables.get("peer"), self._tables.get("nccl")
        moved = self._join(peers, now) if peers is not None else False
        scoped = self._scope(jobs, moved=moved)
        large = len(self._ends.keys) >= ends.LARGE
        if large and now - self._at < LARGE_SECONDS - 0.05 and not (moved or scoped):
            self._seldom(now)
            return
        leaves = self._leaves.update(now, self._freshness)
        fresh = peers.fresh(now, self._freshness) & peers.present[: peers.rows] if peers is not None else None
        mark = (
            None if peers is None or fresh is None else (int(peers.reads[: peers.rows].sum()), int(fresh.sum())),
            None if nccl is None else (int(nccl.reads[: nccl.rows].sum()), nccl.listed))
        same = len(leaves) == len(self._seen) and all(map(is_, leaves, self._seen))
        if not (moved or scoped) and mark == self._mark and same:
            return
        self._mark, self._seen, self._at = mark, leaves, now
        self._rank(nccl, changed=scoped)
        self._fill(now, fresh, leaves, large=large)

    def _seldom(self, now: float) -> None:
        """Of a large table, what is dear: each at its own tick, between two workings-out of the rest."""
        if now - self._listed_at >= SLOW_SECONDS - 0.05:
            self._list(now)
        elif now - self._latency_at >= SLOW_SECONDS - 0.05:
            self._time(now)
        elif self._medians_at < self._latency_at:
            self._medians_at = now
            self._latency.medians()

    def _join(self, peers: Table, now: float) -> bool:
        """Find the nodes behind the peers' addresses; returns whether the pairs are others now."""
        if not self._ends.join(peers, now, lambda: self._read(self._rates(now)[0], now)):
            return False
        old, self._pairs = self._pairs, self._ends.pairs
        self._reporter = peers.node[self._pairs.rows].astype(np.intp)
        self._amount.move(old.codes, self._pairs.codes, _left(old, self._pairs))
        self._flow = np.nan_to_num(self._amount.value)
        self._latency.move(self._pairs, self._rack)
        self._codes = traffic_flows.rack_codes(self._pairs, self._rack, len(self._racks))
        self._crosses_rack = traffic_flows.crosses_rack(self._pairs, self._rack)
        self._crosses_spine = traffic_flows.crosses_spine(self._pairs, self._hangs.matrix)
        return True

    def _scope(self, jobs: Jobs, *, moved: bool) -> bool:
        changed = jobs is not self._jobs
        if changed:
            self._jobs = jobs
            self._scopes = scopes(self._nodes, jobs)
            self._hangs.forget()
            self._steady.keep({one.key for one in self._scopes})
            self._loose = [self._out_of_racks(one) for one in self._scopes]
        if changed or moved:
            self._members = Members(self._scopes, len(self._nodes))
            layers = traffic_flows.Layers(len(self._nodes), [one.members for one in self._scopes])
            entries = traffic_flows.scopes_of(self._pairs, layers)
            self._by_rack = traffic_flows.split(entries, self._crosses_rack)
            self._by_spine = traffic_flows.split(entries, self._crosses_spine)
            self._latency.scope(layers, self._pairs)
        return changed

    def _out_of_racks(self, scope: Scope) -> str:
        """Which of a scope's nodes the map leaves out; empty: none, or there is no map."""
        if not self._racks:
            return ""
        loose = [self._nodes[node].name for node in scope.members[self._rack[scope.members] < 0].tolist()]
        more = " ..." if len(loose) > STRANGERS else ""
        return f"in no rack: {', '.join(loose[:STRANGERS])}{more}" if loose else ""

    def _rank(self, nccl: Table | None, *, changed: bool) -> None:
        mark = None if nccl is None else nccl.listed
        if mark != self._ranks_mark:
            self._ranks_mark, changed = mark, True
            if nccl is not None:
                rows = np.flatnonzero(nccl.present[: nccl.rows]).tolist()
                self._ranks = nccl_ranks.work_out(
                    ((int(nccl.node[row]), nccl.keys[row], nccl.attrs[row]) for row in rows), self._numbers)
        if changed or not self._rings:
            self._rings = {one.key: self._ring(one) for one in self._scopes}

    def _ring(self, scope: Scope) -> tuple[traffic.Ring | None, traffic.Ring | None, str]:
        """(ring, a better one, who says the order) of a scope's order of ranks."""
        order, said = self._ranks.order_of(scope.members.tolist()), "the NCCL log"
        if order is None and (scope.kind == "fleet" or set(self._order) == set(scope.members.tolist())):
            order, said = self._order, "the host file"
        names = [self._nodes[node].name for node in order or ()]
        if len(names) < 2:
            return None, None, ""
        return (traffic.ring(names, self._rack_of), traffic.better_order(names, self._rack_of), said)

    # -- what is read now ----------------------------------------------------------------------------------------

    def _rates(self, now: float, fresh: NDArray[np.bool_] | None = None) -> tuple[Floats, Floats]:
        """[rows joined] bytes per second to the peer and from it; NaN where unknown or old. *fresh* is [rows]."""
        peers = self._tables.get("peer")
        if peers is None:
            return np.empty(0), np.empty(0)
        if fresh is None:
            fresh = peers.fresh(now, self._freshness) & peers.present[: peers.rows]
        # Rows that are newer than the last join have no pair yet, and those that are another's now have a wrong one.
        known = fresh[: len(self._ends.peer)]
        if self._ends.others is not None:
            known = known & ~self._ends.others
        sent, received = (peers.columns.col(name)[: len(self._ends.peer)]
                          for name in ("transmit_bytes_per_second", "receive_bytes_per_second"))
        if known.all():
            return sent, received
        return np.where(known, sent, np.nan), np.where(known, received, np.nan)

    def _read(self, sent: Floats, now: float) -> NDArray[np.bool_]:
        """[nodes] whether the node's sockets are known now: its group is read twice or more, or a peer has a rate.

        *sent* is [rows joined].
        """
        read = np.zeros(len(self._nodes), np.bool_)
        peers = self._tables.get("peer")
        if peers is not None and len(sent):
            read[peers.node[: len(sent)][~np.isnan(sent)]] = True
        groups = self._tables.get("group")
        if groups is None:
            return read
        if self._socket_rows[0] != groups.listed:
            self._socket_rows = groups.listed, np.array(
                [row for row, key in enumerate(groups.keys) if key == SOCKETS], np.intp)
        rows = self._socket_rows[1]
        good = (groups.columns.col("group_state")[rows] == OK) & groups.fresh(now, self._freshness)[rows]
        read[groups.node[rows][good & (groups.reads[rows] > 1)]] = True
        return read

    def _by_node(self, read: NDArray[np.bool_], sent: Floats) -> Floats:
        """[nodes] bytes per second that each sends by its sockets, from *sent*, [rows joined]; NaN: no sum is known."""
        count, peers = len(self._nodes), self._tables.get("peer")
        if peers is None:
            return np.full(count, np.nan)
        rows = self._pairs.rows
        told = sent[rows]
        # Of connections that were there before the probe only the second look can tell: until then there is no sum.
        awaited = np.isnan(told) & peers.present[rows]
        if self._ends.others is not None:
            awaited &= ~self._ends.others[rows]
        whole = read & (np.bincount(self._reporter[awaited], minlength=count)[:count] == 0)
        return np.where(whole, np.bincount(self._reporter, known_or_zero(told), count)[:count], np.nan)

    def _fill(
        self, now: float, fresh: NDArray[np.bool_] | None, leaves: tuple[LeafPicture, ...], *, large: bool
    ) -> None:
        sent, received = self._rates(now, fresh)
        read = self._read(sent, now)
        amount = self._amount.update(traffic_flows.once(self._pairs, sent, received, read), now)
        by_node = self._by_node(read, sent)
        total, past = self._nics.sent(now, self._freshness)
        nic = self._nic_sent.update(total, now)
        flow = self._flow = known_or_zero(amount)
        evidence = Evidence(
            traffic_flows.sums(self._by_rack, flow), traffic_flows.sums(self._by_spine, flow),
            self._members.add(read, self._sent.update(by_node, now), nic, self._rdma_sent.update(past, now)),
            self._hangs, {one.name: one for one in leaves}, self._nccl_flows(nic), self._rack, bool(self._racks),
            FLOOR_BYTES_PER_SECOND, self._steady)
        self._steady.now = now
        self._rows.keep([one.key for one in self._scopes] + [f"leaf/{one.name}" for one in leaves])
        found = [decide(one, number, evidence) for number, one in enumerate(self._scopes)]
        # Of a large table there are other ticks for it, as long as there are ticks between.
        late = now - SLOW_SECONDS - 2 * LARGE_SECONDS
        if not large or self._latency_at < late:
            self._time(now, sent, received)
            self._latency.medians()
        if not large or self._listed_at < late:
            self._list(now, sent)
        self._write(now, found, self._latency.by_scope(), leaves, evidence.members)
        self._draw(now, flow, read, leaves)

    def _list(self, now: float, sent: Floats | None = None) -> None:
        """Find who talks most, by the last flows."""
        self._listed_at = now
        sent = self._rates(now)[0] if sent is None else sent
        self._listed = self._talkers.update(
            self._pairs, self._crosses_rack, self._flow, self._latency, (self._ends.keys, self._ends.peer), sent)

    def _time(self, now: float, sent: Floats | None = None, received: Floats | None = None) -> None:
        """Work out round trips and jitter."""
        peers = self._tables.get("peer")
        if peers is None:
            return
        self._latency_at = now
        if sent is None or received is None:
            sent, received = self._rates(now)
        self._latency.derive(peers, sent, received, self._pairs, self._tables["node"], now)

    def _nccl_flows(self, nic: Floats) -> list[tuple[int, int, float]]:
        """(node, node or -1, bytes): what the NICs sent, spread over the channels; an estimate."""
        total: dict[int, int] = {}
        for (source, _), channels in self._ranks.channels.items():
            total[source] = total.get(source, 0) + channels
        return [(source, target, float(nic[source]) * channels / total[source])
                for (source, target), channels in self._ranks.channels.items() if not math.isnan(nic[source])]

    # -- what is written -----------------------------------------------------------------------------------------

    def _write(
        self, now: float, found: list[Share], latency: Mapping[str, Floats], leaves: tuple[LeafPicture, ...],
        told: Told,
    ) -> None:
        table = self._table
        values = np.full(table.columns.values.shape, np.nan)
        why = np.full(table.columns.why.shape, Why.NOT_PROVIDED, np.uint16)
        index = table.spec.index
        stamps = self._stamps(leaves)

        # Written at once at the end: there are thousands of cells, and each by itself is dear.
        cells: list[tuple[int, int, float]] = []
        gaps: list[tuple[int, int, int]] = []

        def put(row: int, name: str, value: float | None, reason: str = "") -> None:
            if value is None or value != value:
                if reason:
                    gaps.append((index[name], row, intern(reason)))
            else:
                cells.append((index[name], row, value))

        touched = []
        for number, (scope, share) in enumerate(zip(self._scopes, found, strict=True)):
            row = self._rows.of.get(scope.key)
            if row is None:
                continue
            ring, better, said = self._rings.get(scope.key, (None, None, ""))
            for name, (value, reason) in share.columns.items():
                put(row, name, value, reason)
            if ring is not None:
                put(row, "predicted_cross_rack_ratio", ring.ratio, "" if self._racks else traffic.NO_RACK_MAP)
            else:
                put(row, "predicted_cross_rack_ratio", None, "order of ranks not known")
            self._rows.say(scope.key, self._attrs(scope, share, better, said, told.read[number], self._loose[number]))
            touched.append((row, stamps["scopes"]))
        for one in leaves:
            row = self._rows.of.get(f"leaf/{one.name}")
            if row is None:
                continue
            ratio = one.ratio
            put(row, "uplink_spine_ratio", ratio if one.meter == "uplinks" else None, one.why)
            put(row, "fabric_spine_ratio", ratio if one.meter == "fabric" else None, one.why)
            put(row, "share_ratio", ratio, one.why)
            put(row, "judged_ratio", None, "judged by job or group")
            for name, value, reason in (
                ("uplink_imbalance_ratio", one.imbalance, ""), ("uplink_load_ratio", one.load, ""),
                ("host_in_bytes_per_second", one.host_in, ""), ("uplink_out_bytes_per_second", one.uplink_out, ""),
                ("uplink_discards_per_second", one.discards, one.discards_why),
                ("uplink_pause_frames_per_second", one.pause, one.pause_why)):
                put(row, name, value, reason or one.why)
            read_now = bool(one.uplinks)
            put(row, "uplinks", float(len(one.uplinks)) if read_now else None, one.why)
            up_known = [link for link in one.uplinks if link.up is not None]
            if one.doubtful and not one.down:
                put(row, "uplinks_down", None, one.doubtful[0])
            else:
                put(row, "uplinks_down", float(len(one.down)) if up_known else None, one.why)
            attrs: dict[str, Attr] = {
                "kind": "leaf", "name": one.name, "definition": traffic.THROUGH_SPINE, "meter": one.meter,
                "why": one.why, "uplink": one.busiest, "fullest": one.fullest, "down": list(one.down),
                "dark": list(one.dark), "unknown_ports": list(one.unknown_ports[:STRANGERS])}
            self._rows.say(f"leaf/{one.name}", attrs)
            touched.append((row, stamps.get(one.name, stamps["scopes"])))
        if cells:
            columns, rows, known = zip(*cells, strict=True)
            values[columns, rows], why[columns, rows] = known, Why.KNOWN
        if gaps:
            columns, rows, reasons = zip(*gaps, strict=True)
            why[columns, rows] = reasons
        placed = np.array([self._rows.of.get(one.key, -1) for one in self._scopes], np.intp)
        for name, figures in latency.items():
            some = (placed >= 0) & ~np.isnan(figures)
            values[index[name], placed[some]], why[index[name], placed[some]] = figures[some], Why.KNOWN
        table.columns.values[:], table.columns.why[:] = values, why
        for row, (read_at, interval) in touched:
            table.reads[row] += read_at != table.read_at[row]
            table.read_at[row], table.interval[row] = read_at, interval

    def _stamps(self, leaves: tuple[LeafPicture, ...]) -> dict[str, tuple[float, float]]:
        """When what a row is made of was read last, and how often it is: the scopes', and each leaf's by its name."""
        out: dict[str, tuple[float, float]] = {}
        newest, slowest = -np.inf, 1.0
        for name in ("peer", "nccl", "uplink"):
            table = self._tables.get(name)
            if table is None or not table.rows:
                continue
            newest = max(newest, float(table.read_at[: table.rows].max()))
            interval = table.interval[: table.rows]
            slowest = max(slowest, float(np.nanmax(interval)) if (~np.isnan(interval)).any() else 1.0)
        out["scopes"] = newest, slowest
        out.update(self._leaves.stamps())
        return out

    def _attrs(
        self, scope: Scope, share: Share, better: traffic.Ring | None, said: str, read: int, loose: str
    ) -> dict[str, Attr]:
        notes = list(share.notes)
        if loose:
            notes.append(loose)
        if scope.kind == "fleet" and self._jobs is not None and len(self._jobs.names) > MOST_JOBS:
            notes.append(f"only the first {MOST_JOBS} jobs have a row")
        return {
            "kind": scope.kind, "name": scope.name, "definition": share.definition, "meter": share.meter,
            "why": share.why, "unreliable": list(share.unreliable), "notes": notes, "nodes": len(scope.members),
            "nodes_read": read, "order_by": said,
            "better_order": list(better.order) if better else [],
            "better": f"{better.crossing} of {better.hops} hops would cross" if better else ""}

    def _draw(
        self, now: float, amount: Floats, read: NDArray[np.bool_], leaves: tuple[LeafPicture, ...]
    ) -> None:
        racks = len(self._racks)
        whole = traffic_flows.rack_matrix(self._codes, amount, racks)
        placed = self._rack >= 0
        nodes = np.bincount(self._rack[placed], minlength=racks)
        told = np.bincount(self._rack[placed & read], minlength=racks)
        seen = (told > 0)[:, None] | (told > 0)[None, :]
        unplaced = np.where(told > 0, whole[:racks, racks] + whole[racks, :racks], np.nan)
        self.picture = TrafficPicture(
            now, self._sentences(leaves, read), self._racks, np.where(seen, whole[:racks, :racks], np.nan), unplaced,
            nodes, told, *self._listed, self._meters(leaves, read), leaves, dict(self._rows.of),
            self._latency.worst_peer, self._ends.peer)

    def _meters(self, leaves: tuple[LeafPicture, ...], read: NDArray[np.bool_]) -> tuple[Meter, ...]:
        count = len(self._nodes)
        out = []
        for name, (label, definition) in METERS.items():
            unit, why = "nodes", ""
            if name == "sockets":
                known, of = int(read.sum()), count
                why = "" if known else "no node's sockets are read"
            elif name in ("uplinks", "fabric"):
                mine = [one for one in leaves if one.meter == name]
                known, of, unit = sum(one.ratio is not None for one in mine), len(mine), "leaves"
                reasons = [one.why for one in mine if one.why]
                why = "" if known else reasons[0] if reasons else "not measured: none is set"
            elif name == "nccl":
                known, of = len(self._ranks.nodes), count
                why = "" if known else "no NCCL log is read"
            else:
                known = sum(ring is not None for ring, _, _ in self._rings.values())
                of, unit = len(self._scopes), "scopes"
                why = "" if known else "order of ranks not known"
            out.append(Meter(name, label, definition, known, of, unit, why))
        return tuple(out)

    def _sentences(self, leaves: tuple[LeafPicture, ...], read: NDArray[np.bool_]) -> tuple[str, ...]:
        out = []
        if not self._racks:
            out.append(NO_RACKS)
        if not (read.any() or self._ranks.nodes or any(one.ratio is not None for one in leaves)):
            out.append(NO_METER)
        return tuple(out)


def _left(before: traffic_flows.Pairs, after: traffic_flows.Pairs) -> NDArray[np.intp]:
    """Codes of pairs that lost a row: its address is known to be another node's, so its bytes were never theirs."""
    if not len(before.rows):
        return _NOWHERE
    size = int(max(before.rows[-1], after.rows[-1] if len(after.rows) else 0)) + 1
    gone = []
    for old, new in ((before.sends, after.sends), (before.receives, after.receives)):
        was, now = np.full(size, -1, np.intp), np.full(size, -1, np.intp)
        was[before.rows], now[after.rows] = before.codes[old], after.codes[new]
        gone.append(was[(was >= 0) & (was != now)])
    return np.unique(np.concatenate(gone))


def _spellings(nodes: Sequence[NodeInfo]) -> dict[str, int]:
    """How logs write the nodes: by name, by the host to ask, and without the domain where that leaves no doubt."""
    short: dict[str, set[int]] = {}
    exact: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for one in (node.name, node.target):
            exact.setdefault(one, number)
            short.setdefault(one.partition(".")[0], set()).add(number)
    return {**{one: next(iter(who)) for one, who in short.items() if len(who) == 1}, **exact}
