"""Which verdict is under which: a lost GPU's heat, a dead node's ports, an early sign beside the fault it became."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals.units import pci_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from clustertop.rules.rowsets import RowSet
    from clustertop.rules.spec import Rule
    from clustertop.rules.verdicts import Verdicts
    from clustertop.store.view import FleetView

    Verdict = tuple[str, int]
    """Rule and row."""
    Rows = NDArray[np.intp]


EARLIER_SECONDS = 120.0
"""A node may be given up before its feed's next reading tells why, by as much."""
_OF_SUPPLY = frozenset({"psu", "bmc", "device"})


def _dark(rule: Rule) -> bool:
    """Whether a rule tells of what becomes dark with its feed: a link, a supply, a device, a card that is braked."""
    # That another device answers is no darkness: it may be why a feed is thought lost.
    return (rule.table in _OF_SUPPLY and rule.metric != "replaced") or (rule.table, rule.metric) in {
        ("node", "reachable"), ("node", "frames_missed"), ("gpu", "power_brake")}


class Causes:
    """The order of causes at one moment."""

    def __init__(
        self, verdicts: Mapping[str, Verdicts], view: FleetView, but: RowSet | None = None,
        shared: Mapping[Verdict, Verdict] | None = None,
    ) -> None:
        """Work it out, as if the verdicts *but* did not fire; *shared*: early signs of what siblings have already."""
        self._verdicts, self._view = verdicts, view
        self._dead = np.zeros(len(view.owners), np.bool_)
        self._of_node: dict[int, Verdict] = {}
        self._of_thing: dict[tuple[str, int], Verdict] = {}
        self._of_feed: dict[int, Verdict] = {}
        self._followed: dict[Verdict, Verdict] = {}
        self._tables: set[str] = set()
        self._early: set[str] = set()
        for name, state in verdicts.items():
            rule = state.rule
            if not (rule.covers or rule.follows):
                continue
            rows = state.firing if but is None else but.without(name, state.firing)
            if len(rows):
                self._enter(name, rows)
        for sign, cause in (shared or {}).items():
            if sign not in self._followed and verdicts[sign[0]].level[sign[1]] and verdicts[cause[0]].level[cause[1]]:
                self._followed[sign] = cause
                self._early.add(sign[0])

    def _enter(self, name: str, rows: Rows) -> None:
        rule = self._verdicts[name].rule
        if rule.covers == "node":
            nodes = self._view[rule.table].node[rows]
            self._dead[nodes] = True
            self._of_node.update((node, (name, row)) for node, row in zip(nodes.tolist(), rows.tolist(), strict=True))
        elif rule.covers == "feed":
            for row in rows.tolist():
                supplied = self._view.of.supplied(int(self._view[rule.table].node[row]))
                self._of_feed.update(dict.fromkeys(supplied, (name, row)))
        elif rule.covers == "thing":
            for row in rows.tolist():
                for table, other in self._same(rule.table, row):
                    self._of_thing[table, other] = (name, row)
                    self._tables.add(table)
        for early in rule.follows:
            sign = self._verdicts.get(early)
            signs = np.empty(0, np.intp) if sign is None else sign.firing
            if sign is None or not len(signs):
                continue
            # Only what has its early sign is looked at one by one.
            for row in (np.intersect1d(rows, signs) if sign.rule.table == rule.table else rows).tolist():
                for table, other in self._same(rule.table, row):
                    if table == sign.rule.table and other < len(sign.level) and sign.level[other]:
                        self._followed[early, other] = (name, row)
                        self._early.add(early)

    def _same(self, table: str, row: int) -> Iterator[tuple[str, int]]:
        """The rows that stand for the same thing: a GPU is also a PCIe device; a BMC speaks for its node's supplies."""
        yield table, row
        if table == "bmc":
            supplies = self._view["psu"]
            yield from (("psu", other) for other in supplies.rows_of(int(self._view["bmc"].node[row])).tolist())
        if table == "gpu":
            gpus = self._view["gpu"]
            address = pci_key(gpus.attrs[row].get("pci"))
            other = self._view["pcie"].row_of(int(gpus.node[row]), address) if address else None
            if other is not None:
                yield "pcie", other

    def above(self, name: str, row: int) -> Verdict | None:
        """The verdict that this one is under; None: none."""
        rule = self._verdicts[name].rule
        cause = self._followed.get((name, row)) or self._of_thing.get((rule.table, row))
        if cause is not None and cause[0] != name:
            return cause
        if self._of_feed and _dark(rule):
            cause = self._of_feed.get(int(self._view[rule.table].node[row]))
            # What was dark long before has another cause.
            if cause is not None and cause[0] != name and (
                    self._since(name, row) >= self._since(*cause) - EARLIER_SECONDS):
                return cause
        if rule.covers == "node":
            return None
        return self._of_node.get(int(self._view[rule.table].node[row]))

    def _since(self, name: str, row: int) -> float:
        return float(self._verdicts[name].since[row])

    def top(self, name: str, row: int) -> Verdict:
        """The last of the causes above this verdict; itself where there is none."""
        here, seen = (name, row), set[tuple[str, int]]()
        while here not in seen:
            seen.add(here)
            cause = self.above(*here)
            if cause is None:
                break
            here = cause
        return here

    def free(self, name: str, rows: Rows) -> Rows:
        """Those of *rows* that are under nothing."""
        rule = self._verdicts[name].rule
        if rule.covers != "node" and self._of_node:
            rows = rows[~self._dead[self._view[rule.table].node[rows]]]
        if rule.table in self._tables or name in self._early or (self._of_feed and _dark(rule)):
            rows = np.array([row for row in rows.tolist() if self.above(name, row) is None], np.intp)
        return rows
