"""All rules over one fleet: views in, transitions out.

Each rule's verdicts are kept by :mod:`clustertop.rules.verdicts`; what an operator sees of them is gathered by
:mod:`clustertop.rules.group`. An unknown value neither raises nor clears, and absence never resolves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Severity
from clustertop.rules.domains import Domains
from clustertop.rules.group import Correlator
from clustertop.rules.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.model import Alert, NodeInfo, Transition
    from clustertop.rules.spec import Rule
    from clustertop.rules.verdicts import Change
    from clustertop.store.view import FleetView, TableView

RESUME_SECONDS = 120.0
"""A pause this long between two evaluations means that the console itself was stopped."""
RESUME_SETTLE_SECONDS = 15.0
"""After it nothing is raised for so long: links have to come back first."""
_MOVED = frozenset({"remains", "folded"})


class Engine:
    """Feed it views in order; it gives back what changed."""

    def __init__(self, rules: Mapping[str, Rule], nodes: Sequence[NodeInfo] = ()) -> None:
        self.rules = dict(rules)
        self._verdicts = {name: Verdicts(name, rule) for name, rule in rules.items() if rule.enabled}
        self._correlator = Correlator(self._verdicts, Domains(nodes))
        self._keys: dict[str, tuple[str, ...]] = {}
        self._scopes: dict[str, NDArray[np.bool_]] = {}
        self._last: float | None = None
        self._resumed_until = float("-inf")

    @property
    def touched(self) -> int:
        """Rows looked at one by one in the last evaluation, over all rules."""
        return sum(state.touched for state in self._verdicts.values())

    def evaluate(self, view: FleetView) -> list[Transition]:
        """Judge *view*; returns the transitions since the last one: worst first, then what only moved."""
        self._resume(view)
        for name, table in view.tables.items():
            self._follow(name, table)
        changes: dict[str, Change] = {}
        settling: dict[str, NDArray[np.bool_]] = {}
        for name, state in self._verdicts.items():
            change = self._judge(state, view, settling)
            if change:
                changes[name] = change
        out = self._correlator.update(view, changes)
        out.sort(key=lambda change: (change.kind in _MOVED, -change.severity, change.rule, change.thing.id))
        return out

    def alerts(self) -> list[Alert]:
        """What an operator should see now, worst first, then oldest first."""
        return self._correlator.alerts()

    def inside(self, view: FleetView, alert: Alert) -> list[Alert]:
        """Every verdict that *alert* stands for, worst first."""
        return self._correlator.inside(view, alert)

    def firing(self) -> Iterator[tuple[str, int, Severity, float, float]]:
        """Every verdict that fires: rule, row, severity, since when (epoch seconds), reading."""
        for name, state in self._verdicts.items():
            for row in state.firing.tolist():
                yield name, row, Severity(int(state.level[row])), float(state.since_wall[row]), float(state.value[row])

    def fires(self, rule: str, thing: str) -> bool:
        """Whether *rule* fires on the thing of that id, whatever alert stands for it."""
        return rule in self._verdicts and self._correlator.fires(rule, thing)

    def restore(
        self, rule: str, row: int, severity: Severity, since: float, since_wall: float, value: float
    ) -> bool:
        """Take up a verdict of before a restart: only a good reading ends it. False: there is no such rule now."""
        state = self._verdicts.get(rule)
        if state is None:
            return False
        state.restore(row, severity, since, since_wall, value)
        self._correlator.restored(rule, row)
        return True

    def dismiss(self, alert: Alert) -> list[tuple[str, int]]:
        """What *alert* is about is as it should be from now on, until it has been good and fails again.

        Returns (table, row) of what it was about.
        """
        rows = self._correlator.rows_of(alert)
        state = self._verdicts.get(alert.rule)
        if state is None or not len(rows):
            return []
        state.dismiss(rows)
        self._correlator.dismissed(alert.rule, rows)
        return [(state.rule.table, row) for row in rows.tolist()]

    def severity(self, view: FleetView, table: str) -> NDArray[np.uint8]:
        """Highest firing severity of each row of *table*, [rows], whatever alert it is part of."""
        out = np.zeros(len(view[table]), np.uint8)
        for state in self._verdicts.values():
            if state.rule.table == table:
                size = min(len(out), len(state.level))
                np.maximum(out[:size], state.level[:size], out=out[:size])
        return out

    def _resume(self, view: FleetView) -> None:
        if self._last is not None and view.at - self._last > RESUME_SECONDS:
            self._resumed_until = view.at + RESUME_SETTLE_SECONDS
            for state in self._verdicts.values():
                state.restart(np.ones(len(state.level), np.bool_))
        self._last = view.at

    def _follow(self, name: str, table: TableView) -> None:
        """A row that stands for another thing now has no past."""
        known = self._keys.get(name)
        if known is table.keys:
            return
        self._keys[name] = table.keys
        self._scopes.clear()
        if known:
            other = np.array([row for row, key in enumerate(known) if key != table.keys[row]], np.intp)
            if len(other):
                for state in self._verdicts.values():
                    if state.rule.table == name:
                        state.forget(other)

    def _judge(self, state: Verdicts, view: FleetView, settling: dict[str, NDArray[np.bool_]]) -> Change:
        rule = state.rule
        table = view[rule.table]
        held: NDArray[np.bool_] | None = None
        if view.at < self._resumed_until:
            held = np.ones(len(table), np.bool_)
        elif rule.settles:
            held = settling.get(rule.table)
            if held is None:
                held = settling[rule.table] = (view.settling_of(table.spec.group) > view.at)[table.node]
            if not held.any():
                held = None
        return state.evaluate(table.col(rule.metric), table.reads, view.at, view.wall, self._scope(state, view), held)

    def _scope(self, state: Verdicts, view: FleetView) -> NDArray[np.bool_] | None:
        """[rows] what the rule is for; None: everything."""
        rule = state.rule
        if not rule.groups:
            return None
        found = self._scopes.get(state.name)
        if found is None:
            wanted = set(rule.groups)
            nodes = np.array([bool(wanted & {*node.groups, node.rack, node.leaf}) for node in view.nodes], np.bool_)
            found = self._scopes[state.name] = nodes[view[rule.table].node]
        return found
