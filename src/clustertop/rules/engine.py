"""All rules over one fleet: views in, transitions out.

Each rule's verdicts are kept by :mod:`clustertop.rules.verdicts`; what an operator sees of them is gathered by
:mod:`clustertop.rules.group`. An unknown value neither raises nor clears, and absence never resolves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Severity, Why, reason
from clustertop.rules.domains import Domains
from clustertop.rules.group import Correlator
from clustertop.rules.scope import in_scope
from clustertop.rules.values import source
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
"""After it nothing is raised for so long, if nobody says otherwise: links have to come back first."""
_MOVED = frozenset({"remains", "folded"})


@dataclass(frozen=True, slots=True)
class Judged:
    """On how many things a rule says anything."""

    known: int
    unknown: int
    why: str
    """The commonest reason of the unknown ones."""


class Engine:
    """Feed it views in order; it gives back what changed."""

    def __init__(
        self, rules: Mapping[str, Rule], nodes: Sequence[NodeInfo] = (), *,
        resume_seconds: float = RESUME_SETTLE_SECONDS,
    ) -> None:
        self.rules = dict(rules)
        self._resume_seconds = resume_seconds
        self._verdicts = {name: Verdicts(name, rule) for name, rule in rules.items() if rule.enabled}
        self._sources = {name: source(state.rule) for name, state in self._verdicts.items()}
        self._correlator = Correlator(self._verdicts, Domains(nodes))
        self._keys: dict[str, tuple[str, ...]] = {}
        self._scopes: dict[str, NDArray[np.bool_] | None] = {}
        self._last: float | None = None
        self._resumed_until = float("-inf")

    @staticmethod
    def growth(rules: Mapping[str, Rule]) -> dict[str, tuple[str, ...]]:
        """By table, the columns whose increase since first seen *rules* need in the view."""
        out: dict[str, dict[str, None]] = {}
        for rule in rules.values():
            if rule.enabled and rule.window_seconds:
                out.setdefault(rule.table, {})[rule.metric] = None
        return {table: tuple(names) for table, names in out.items()}

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
            if not len(state.level) and not len(view[state.rule.table]):
                continue
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

    def judged(self, view: FleetView) -> dict[str, Judged]:
        """By rule that is not switched off: how many things of its scope it could judge last, and how many not."""
        out = {}
        for name, state in self._verdicts.items():
            rule = state.rule
            table, values = view[rule.table], state.values
            if len(values) != len(table):
                values = np.full(len(table), np.nan)
            scope = self._scope(state, view)
            mine = np.ones(len(table), np.bool_) if scope is None else scope
            unknown = np.isnan(values) & mine
            codes, counts = np.unique(table.why_of(rule.metric)[unknown], return_counts=True)
            # A column may be known of which the rule can make nothing yet: no peers, no second reading.
            code = int(codes[counts.argmax()]) if len(codes) else Why.KNOWN
            why = (reason(code) or reason(Why.NOT_JUDGED)) if len(codes) else ""
            out[name] = Judged(int((mine & ~unknown).sum()), int(unknown.sum()), why)
        return out

    def values(self, name: str) -> NDArray[np.float64]:
        """What the rule *name* held against its limits last, [rows of its table], NaN where it could not judge.

        Raises:
            KeyError: there is no such rule, or it is switched off.
        """
        return self._verdicts[name].values

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
            self._resumed_until = view.at + self._resume_seconds
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
                for rule, state in self._verdicts.items():
                    if state.rule.table == name:
                        # An alert about what is no more has to end, though nothing else changes.
                        self._correlator.stale |= bool((state.level[other[other < len(state.level)]] > 0).any())
                        state.forget(other)
                        self._sources[rule].forget(other)

    def _judge(self, state: Verdicts, view: FleetView, settling: dict[str, NDArray[np.bool_]]) -> Change:
        rule = state.rule
        table = view[rule.table]
        held: NDArray[np.bool_] | None = None
        if view.at < self._resumed_until:
            held = np.ones(len(table), np.bool_)
        elif rule.settles:
            held = settling.get(rule.table)
            if held is None:
                held = settling[rule.table] = view.settling_of(rule.table) > view.at
            if not held.any():
                held = None
        values, reads = self._sources[state.name].read(view)
        scope = self._scope(state, view)
        if scope is not None:
            # What the rule is not for is not judged: it is no healthy sibling of what fails either.
            values = np.where(scope, values, np.nan)
        return state.evaluate(values, reads, view.at, view.wall, scope, held)

    def _scope(self, state: Verdicts, view: FleetView) -> NDArray[np.bool_] | None:
        """[rows] what the rule is for; None: everything."""
        if state.name not in self._scopes:
            self._scopes[state.name] = in_scope(state.rule, view)
        return self._scopes[state.name]
