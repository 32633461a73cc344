"""From verdicts to the alerts that should be shown: what fails together under one parent is one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Severity, Thing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from clustertop.rules.causes import Causes
    from clustertop.rules.domains import Domain, Domains
    from clustertop.rules.verdicts import Verdicts
    from clustertop.store.view import FleetView

    Rows = NDArray[np.intp]
    Lingering = Mapping[str, Mapping[int, float]]
    """By rule: row to when it ends, of what cleared while its node settles."""

ROLLING = 2
"""So many nodes of one parent, one of them just back, are restarted one after another."""
TOGETHER_SECONDS = 60.0
"""An early sign so near in time to the same fault of its siblings is part of it."""
DEVICE_SECONDS = 300.0
"""So near in time to its nodes a silent device is part of the same event: devices are asked less often."""
PLURAL = {"gpu": "GPUs", "pcie": "PCIe devices", "port": "RDMA ports", "net": "interfaces", "group": "groups",
          "link": "interfaces", "disk": "file systems", "traffic": "jobs, groups or leaves"}


OF_THE_LINK = frozenset({"reachable", "frames_missed"})
"""Columns of the node table that tell of the link to a node, not of the node."""


@dataclass(frozen=True, eq=False, slots=True)
class Wanted:
    """An alert as it should be shown now."""

    rule: str
    thing: Thing
    severity: Severity
    rows: Rows
    """The verdicts in it."""
    scope: int
    """0: one thing; 1: a node with several of them; 2: a parent of nodes."""
    nodes: frozenset[int]
    size: int
    """How many of its kind are judged under that parent: things of a node, or nodes."""
    back: int
    """How many of its verdicts are over and only wait for their node to settle."""
    waits: bool
    within: frozenset[int] = frozenset()
    """Of a parent of nodes: all of its nodes, the healthy ones as well."""

    @property
    def key(self) -> tuple[str, str]:
        """Rule and thing: what an alert is known by."""
        return (self.rule, self.thing.id)


def wanted(
    verdicts: Mapping[str, Verdicts], lingering: Lingering, domains: Domains, ways: Domains, causes: Causes,
    view: FleetView, shown: Collection[tuple[str, str]],
) -> dict[tuple[str, str], Wanted]:
    """Every alert that should be shown at the moment of *view*, by its key; *shown*: those that are now.

    Jump hosts are parents (*ways*) only of what is about the link to a node.
    """
    out: dict[tuple[str, str], Wanted] = {}
    for name, state in verdicts.items():
        over = lingering.get(name, {})
        rows = state.firing
        if over:
            rows = np.union1d(rows, list(over)).astype(np.intp)
        if not len(rows):
            continue
        rows = causes.free(name, rows)
        if len(rows):
            parents = ways if state.rule.metric in OF_THE_LINK else domains
            for one in _Gathering(name, verdicts, over, parents, view, shown).parents(rows):
                out[one.key] = one
    return out


def shared_signs(
    verdicts: Mapping[str, Verdicts], goal: Iterable[Wanted], view: FleetView,
) -> dict[tuple[str, int], tuple[str, int]]:
    """Early signs on nodes whose siblings have the fault itself already: sign to one of the siblings' verdicts.

    A rack is given up node by node: what is only silent yet is not another event.
    """
    out: dict[tuple[str, int], tuple[str, int]] = {}
    for one in goal:
        rule = verdicts[one.rule].rule
        for early in rule.follows if one.within and rule.table == "node" else ():
            sign = verdicts.get(early)
            if sign is None or sign.rule.table != "node":
                continue
            rows = sign.firing
            near = np.abs(sign.since[rows] - verdicts[one.rule].since[one.rows].min()) <= TOGETHER_SECONDS
            rows = rows[near & np.isin(view["node"].node[rows], list(one.within))]
            out.update(((early, row), (one.rule, int(one.rows[0]))) for row in rows.tolist())
    return out


def shared_devices(
    verdicts: Mapping[str, Verdicts], goal: Iterable[Wanted], view: FleetView,
) -> dict[tuple[str, int], tuple[str, int]]:
    """Silent devices of a place whose nodes are silent too: device's verdict to one of the nodes'.

    A rack that goes dark takes its BMCs, PDUs and switches with it: one event.
    """
    silent = [(name, state) for name, state in verdicts.items() if state.rule.table == "device" and len(state.firing)]
    out: dict[tuple[str, int], tuple[str, int]] = {}
    if not silent:
        return out
    for one in goal:
        cause = verdicts[one.rule]
        if not one.within or cause.rule.table != "node" or cause.rule.metric not in OF_THE_LINK:
            continue
        racks = {view.owners[node].rack for node in one.nodes} - {""}
        since = cause.since[one.rows].min()
        for name, state in silent:
            rows = state.firing
            for row in rows[np.abs(state.since[rows] - since) <= DEVICE_SECONDS].tolist():
                owner = int(view["device"].node[row])
                node = view.of.host[owner]
                # Of a BMC its node counts; of what else has a place its rack.
                if node in one.nodes or (node == owner and view.owners[owner].rack in racks):
                    out[name, row] = (one.rule, int(one.rows[0]))
    return out


class _Gathering:
    """One rule's verdicts, gathered under parents."""

    def __init__(
        self, name: str, verdicts: Mapping[str, Verdicts], over: Mapping[int, float], domains: Domains,
        view: FleetView, shown: Collection[tuple[str, str]],
    ) -> None:
        self._name, self._state, self._over = name, verdicts[name], over
        self._shown = shown
        self._rule = self._state.rule
        self._domains, self._view = domains, view
        self._table = view[self._rule.table]
        self._coming = self._on_the_way(verdicts)

    def _on_the_way(self, verdicts: Mapping[str, Verdicts]) -> frozenset[int]:
        """Nodes that show the beginning of the same fault."""
        rule, view = self._rule, self._view
        if not rule.gather_seconds:
            return frozenset()
        coming = set(self._table.node[self._state.pending].tolist())
        for early in rule.follows:
            sign = verdicts.get(early)
            if sign is not None:
                rows = np.concatenate([sign.pending, sign.firing])
                coming.update(view[sign.rule.table].node[rows].tolist())
        return frozenset(coming - set(self._table.node[self._state.firing].tolist()))

    def _judged(self) -> NDArray[np.bool_]:
        """[rows] what the rule can say something about."""
        values, firing = self._state.values, self._state.firing
        judged: NDArray[np.bool_] = ~np.isnan(values)
        unread = np.isinf(self._table.age[: len(judged)])
        if (unread[firing] & ~judged[firing]).any():
            # Taken up from before a restart: what nobody has read yet may be as well as it was.
            judged |= unread
        judged[firing] = True
        return judged

    def parents(self, rows: Rows) -> Iterator[Wanted]:
        """The alerts that *rows* make; no row twice."""
        together, table = self._rule.together, self._table
        nodes = table.node[rows]
        failing = np.unique(nodes).tolist()
        judged = self._judged()
        known = np.zeros(len(self._view.owners), np.bool_)
        known[table.node[: len(judged)][judged]] = True
        left = set(failing)
        for domain, mine in self._rolling(left):
            yield self._of_domain(domain, mine, rows[np.isin(nodes, list(mine))], known)
            left -= mine
        if len(left) >= together.least:
            for domain, mine in self._domains.together(left, known, together.share, together.least, together.many):
                yield self._of_domain(domain, mine, rows[np.isin(nodes, list(mine))], known)
                left -= mine
        counts = np.bincount(table.node[: len(judged)][judged], minlength=len(known))
        alone = np.isin(nodes, list(left))
        order = np.argsort(nodes[alone], kind="stable")
        rows, nodes = rows[alone][order], nodes[alone][order]
        for mine_rows in np.split(rows, np.flatnonzero(np.diff(nodes)) + 1) if len(rows) else ():
            node = int(table.node[mine_rows[0]])
            if self._one_line(len(mine_rows), int(counts[node])):
                yield self._of_node(node, mine_rows, int(counts[node]))
            else:
                for row in mine_rows.tolist():
                    yield self._of_thing(node, row)

    def _one_line(self, failing: int, judged: int) -> bool:
        """Whether so many things of one node, of so many, are one alert."""
        together = self._rule.together
        if together.things:
            return failing >= together.things
        return failing >= together.least and failing > together.share * judged

    def _rolling(self, nodes: Collection[int]) -> Iterator[tuple[Domain, frozenset[int]]]:
        """Parents whose nodes are restarted one after another: some are back and settle, others are away."""
        if not self._over:
            return
        left = frozenset(nodes)
        back = {int(self._table.node[row]) for row in self._over}
        for domain in self._domains.widest:
            mine = domain.nodes & left
            known_as = (self._name, Thing(domain.kind, "", domain.name, "").id)
            if (len(mine) >= ROLLING and mine & back) or (mine and mine <= back and known_as in self._shown):
                yield domain, mine
                left -= mine

    def _make(
        self, thing: Thing, rows: Rows, scope: int, nodes: Iterable[int], size: int,
        within: frozenset[int] = frozenset(),
    ) -> Wanted:
        level = int(self._state.level[rows].max(initial=0))
        back = int((self._state.level[rows] == 0).sum())
        numbers = frozenset(nodes)
        return Wanted(self._name, thing, Severity(level or Severity.INFO), rows, scope, numbers, size, back,
                      self._waits(rows, numbers), within)

    def _waits(self, rows: Rows, nodes: frozenset[int]) -> bool:
        if not self._coming or self._view.at >= self._state.since[rows].min() + self._rule.gather_seconds:
            return False
        return any(self._coming & self._domains.siblings(node) for node in nodes)

    def _of_domain(self, domain: Domain, nodes: frozenset[int], rows: Rows, known: NDArray[np.bool_]) -> Wanted:
        size = int(known[list(domain.nodes)].sum()) if self._rule.table != "node" else len(domain.nodes)
        thing = Thing(domain.kind, "", domain.name, domain.label)
        return self._make(thing, rows, 2, nodes, max(size, len(nodes)), domain.nodes)

    def _of_node(self, node: int, rows: Rows, size: int) -> Wanted:
        table = self._rule.table
        thing = Thing(table, self._view.owners[node].name, "*", PLURAL.get(table, table))
        return self._make(thing, rows, 1, (node,), size)

    def _of_thing(self, node: int, row: int) -> Wanted:
        table = self._table
        thing = Thing(self._rule.table, self._view.owners[node].name, table.keys[row], table.labels[row])
        return self._make(thing, np.array([row], np.intp), 0, (node,), 1)
