"""From columns to verdicts: ok, pending, firing, cleared, for every rule and row, vectorised.

An unknown value neither raises nor clears. A row that is no longer listed keeps its verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Alert, Severity, Thing, Transition
from clustertop.rules import messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.rules.spec import Clear, Level, Rule
    from clustertop.store.view import FleetView, TableView


class _Streak:
    """Per row: since when, and at how many readings, a condition has held.

    A reading that does not have the value does not count.
    """

    def __init__(self) -> None:
        self.since = np.full(0, np.nan)
        self._count = np.zeros(0, np.int64)
        self._seen = np.zeros(0, np.int64)

    def grow(self, rows: int) -> None:
        more = rows - len(self.since)
        if more > 0:
            self.since = np.concatenate([self.since, np.full(more, np.nan)])
            self._count = np.concatenate([self._count, np.zeros(more, np.int64)])
            self._seen = np.concatenate([self._seen, np.full(more, -1, np.int64)])

    def update(
        self, now: float, reads: NDArray[np.int64], holds: NDArray[np.bool_], known: NDArray[np.bool_],
        seconds: float, polls: int,
    ) -> NDArray[np.bool_]:
        """Take this moment's truth; returns the rows where the condition has held long enough and holds now."""
        begin = holds & np.isnan(self.since)
        self.since[begin] = now
        self._count[begin] = 0
        self._seen[begin] = -1
        self.since[known & ~holds] = np.nan
        again = holds & (reads != self._seen)
        self._count[again] += 1
        self._seen[again] = reads[again]
        return holds & (now - self.since >= seconds) & (self._count >= polls)

    @property
    def idle(self) -> bool:
        """True if no row is on its way."""
        return bool(np.isnan(self.since).all())


class _Verdicts:
    """One rule's state over all rows of its table."""

    def __init__(self, name: str, rule: Rule) -> None:
        self.name, self.rule = name, rule
        self.levels = rule.levels()
        self.raising = [_Streak() for _ in self.levels]
        self.clearing, self.easing = _Streak(), _Streak()
        self.level = np.zeros(0, np.uint8)
        self.alerts: dict[int, Alert] = {}
        self.quiet = True

    def grow(self, rows: int) -> None:
        more = rows - len(self.level)
        if more > 0:
            self.level = np.concatenate([self.level, np.zeros(more, np.uint8)])
            for streak in (*self.raising, self.clearing, self.easing):
                streak.grow(rows)

    def forget(self, row: int) -> None:
        """The row stands for another thing now."""
        self.level[row] = 0
        for streak in (*self.raising, self.clearing, self.easing):
            streak.since[row] = np.nan


class Engine:
    """All rules over one fleet. Feed it views in order; it gives back what changed."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._verdicts = [_Verdicts(name, rule) for name, rule in rules.items() if rule.enabled]
        self.rules = dict(rules)

    def evaluate(self, view: FleetView) -> list[Transition]:
        """Judge *view*; returns the transitions since the last one, worst first within a tick."""
        out: list[Transition] = []
        for verdicts in self._verdicts:
            self._judge(verdicts, view, out)
        out.sort(key=lambda change: (-change.severity, change.rule, change.thing.id))
        return out

    def alerts(self) -> list[Alert]:
        """What is firing now, worst first, then oldest first."""
        every = [alert for verdicts in self._verdicts for alert in verdicts.alerts.values()]
        return sorted(every, key=lambda alert: (-alert.severity, alert.since, alert.rule, alert.thing.id))

    def severity(self, view: FleetView, table: str) -> NDArray[np.uint8]:
        """Highest firing severity of each row of *table*, [rows]."""
        out = np.zeros(len(view[table]), np.uint8)
        for verdicts in self._verdicts:
            if verdicts.rule.table == table:
                for row, alert in verdicts.alerts.items():
                    out[row] = max(out[row], alert.severity)
        return out

    def _judge(self, state: _Verdicts, view: FleetView, out: list[Transition]) -> None:
        rule, table = state.rule, view[state.rule.table]
        state.grow(len(table))
        values = table.col(rule.metric)
        known = ~np.isnan(values)
        if rule.groups:
            scope = np.array([bool(set(node.groups) & set(rule.groups)) for node in view.nodes], np.bool_)
            known &= scope[table.node]
        with np.errstate(invalid="ignore"):
            breaches = [np.asarray(rule.breach(values, level.limit), np.bool_) & known for _, level in state.levels]
        any_breach = any(breach.any() for breach in breaches)
        if state.quiet and not any_breach:
            return
        reads, now = table.reads, view.at
        for row, alert in list(state.alerts.items()):
            if table.keys[row] != alert.thing.key:
                state.forget(row)
                out.append(self._change(state, view, row, "cleared", alert.severity, None))
        target = np.zeros(len(table), np.uint8)
        for (severity, level), streak, breach in zip(state.levels, state.raising, breaches, strict=True):
            ready = streak.update(now, reads, breach, known, level.for_seconds, level.for_polls)
            target[ready] = severity
        self._raise(state, view, target, values, out)
        self._relax(state, view, values, known, breaches, target, out)
        state.quiet = not any_breach and not state.alerts and all(
            streak.idle for streak in (*state.raising, state.clearing, state.easing))

    def _raise(
        self, state: _Verdicts, view: FleetView, target: NDArray[np.uint8], values: NDArray[np.float64],
        out: list[Transition],
    ) -> None:
        for row in np.flatnonzero(target > state.level).tolist():
            kind = "raised" if state.level[row] == 0 else "worsened"
            state.level[row] = target[row]
            out.append(self._change(state, view, row, kind, Severity(int(target[row])), float(values[row])))

    def _relax(
        self, state: _Verdicts, view: FleetView, values: NDArray[np.float64], known: NDArray[np.bool_],
        breaches: list[NDArray[np.bool_]], target: NDArray[np.uint8], out: list[Transition],
    ) -> None:
        rule, table, now = state.rule, view[state.rule.table], view.at
        clear: Clear = rule.clear
        firing = state.level > 0
        if not firing.any():
            state.clearing.since[:] = np.nan
            state.easing.since[:] = np.nan
            return
        mildest: Level = state.levels[0][1]
        limit = mildest.limit if clear.limit is None else clear.limit
        with np.errstate(invalid="ignore"):
            inside = known & firing & ~np.asarray(rule.breach(values, limit), np.bool_)
        done = state.clearing.update(now, table.reads, inside, known, clear.seconds, clear.polls)
        for row in np.flatnonzero(done).tolist():
            severity = Severity(int(state.level[row]))
            state.level[row] = 0
            state.clearing.since[row] = np.nan
            out.append(self._change(state, view, row, "cleared", severity, float(values[row])))
        at_level = np.zeros(len(table), np.bool_)
        for (severity, _), breach in zip(state.levels, breaches, strict=True):
            at_level |= breach & (state.level == severity)
        milder = known & (state.level > 0) & ~at_level & (target > 0) & (target < state.level)
        eased = state.easing.update(now, table.reads, milder, known, clear.seconds, clear.polls)
        for row in np.flatnonzero(eased).tolist():
            state.level[row] = target[row]
            state.easing.since[row] = np.nan
            out.append(self._change(state, view, row, "eased", Severity(int(target[row])), float(values[row])))

    def _change(
        self, state: _Verdicts, view: FleetView, row: int, kind: str, severity: Severity, value: float | None
    ) -> Transition:
        rule, table = state.rule, view[state.rule.table]
        old = state.alerts.get(row)
        level = next((level for at, level in state.levels if at == severity), state.levels[0][1])
        thing = old.thing if old is not None else Thing(
            rule.table, view.nodes[int(table.node[row])].name, table.keys[row], table.labels[row])
        since = view.at if old is None else old.since
        unit = table.spec.metric(rule.metric).unit
        if kind == "cleared":
            state.alerts.pop(row, None)
            message = messages.cleared(state.name, rule, thing, table, row, value, since, view.at)
        else:
            message = messages.firing(state.name, rule, view, row, value)
            state.alerts[row] = Alert(
                state.name, rule.title, severity, thing, row, message, value, level.limit, unit, since,
                view.wall if old is None else old.since_wall, messages.members(state.name, view, row), rule.hint)
        return Transition(
            view.at, view.wall, kind, state.name, severity, thing, message, value, level.limit, unit, since)


def worst(table: TableView, severity: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Highest severity per node over the rows of *table*, by node number."""
    out = np.zeros(int(table.node.max(initial=-1)) + 1, np.uint8)
    np.maximum.at(out, table.node, severity)
    return out
