"""The alerts of a fleet over time: one cause, one alert.

A verdict is one rule on one thing. An alert is what an operator reads: a verdict by itself, or the parent (node, rack,
leaf, group, fleet) under which many of them fail together, or the later and worse fault that an early sign became. An
alert keeps its id and its start while it grows, worsens, or passes from a thing to its parent. Nothing inside is lost:
:meth:`Correlator.inside` gives every verdict under an alert.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Alert, Severity, Thing, Transition
from clustertop.rules import device_messages, messages
from clustertop.rules.causes import Causes
from clustertop.rules.domains import Domains
from clustertop.rules.gather import Wanted, shared_devices, shared_signs, wanted
from clustertop.rules.rowsets import RowSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.rules.spec import Rule
    from clustertop.rules.verdicts import Change, Verdicts
    from clustertop.store.view import FleetView

    Key = tuple[str, str]
    """Rule and thing."""
    Rows = NDArray[np.intp]

SPREAD = 2
"""An alert that has grown by this factor since it was last told of is told of again."""


@dataclass(eq=False, slots=True)
class _Live:
    """An alert that has been told."""

    wanted: Wanted
    alert: Alert
    told: int
    """How many verdicts it held when it was last told of."""
    devices: tuple[int, ...] = ()
    """Rows of the device table that are under it."""


class _Homes:
    """Which of the wanted alerts each verdict is in; worked out for a rule when it is first asked for."""

    def __init__(self, goal: Mapping[Key, Wanted]) -> None:
        self._goal = tuple(goal.values())
        self._places: dict[str, NDArray[np.intp]] = {}

    def of(self, rule: str, row: int) -> Wanted | None:
        """The alert; None: it is in none."""
        places = self._places.get(rule)
        if places is None:
            mine = [(place, one.rows) for place, one in enumerate(self._goal) if one.rule == rule]
            places = np.full(max((int(rows.max(initial=-1)) for _, rows in mine), default=-1) + 1, -1, np.intp)
            for place, rows in mine:
                places[rows] = place
            self._places[rule] = places
        return self._goal[places[row]] if row < len(places) and places[row] >= 0 else None


class Correlator:
    """Keeps the alerts of one fleet. Feed it views in order."""

    def __init__(self, verdicts: Mapping[str, Verdicts], domains: Domains) -> None:
        self._verdicts = verdicts
        self._rules: dict[str, Rule] = {name: state.rule for name, state in verdicts.items()}
        self._domains = self._ways = domains
        self._live: dict[Key, _Live] = {}
        self._lingering: dict[str, dict[int, float]] = {}
        self._told = RowSet()
        self._shared: dict[tuple[str, int], tuple[str, int]] = {}
        self._view: FleetView | None = None
        self.stale = False
        """Something was changed from outside: look again."""

    # -- what front ends read ------------------------------------------------------------------------------------

    def alerts(self) -> list[Alert]:
        """What an operator should see, worst first, then oldest first."""
        return sorted((live.alert for live in self._live.values()),
                      key=lambda alert: (-alert.severity, alert.since, alert.rule, alert.thing.id))

    def inside(self, view: FleetView, alert: Alert) -> list[Alert]:
        """Every verdict that *alert* stands for, as alerts: its own first, then what is under them, worst first."""
        live = self._live.get((alert.rule, alert.thing.id))
        if live is None:
            return []
        mine = {(alert.rule, row) for row in live.wanted.rows.tolist()}
        causes = Causes(self._verdicts, view, None, self._shared)
        found = set(mine)
        for name, state in self._verdicts.items():
            found.update((name, row) for row in state.firing.tolist() if causes.top(name, row) in mine)
        out = [self._verdict(view, name, row, live.alert.id) for name, row in found]
        return sorted(out, key=lambda one: (
            one.rule != alert.rule, -one.severity, one.thing.node, one.rule, one.thing.id))

    def rows_of(self, alert: Alert) -> Rows:
        """Rows of the alert's own rule that it stands for."""
        live = self._live.get((alert.rule, alert.thing.id))
        return np.empty(0, np.intp) if live is None else live.wanted.rows

    def fires(self, rule: str, thing: str) -> bool:
        """Whether *rule* fires on the thing of that id in the newest view."""
        view, state = self._view, self._verdicts[rule]
        if view is None:
            return False
        table = view[state.rule.table]
        return any(Thing(state.rule.table, view.owners[int(table.node[row])].name, table.keys[row], "").id == thing
                   for row in state.firing.tolist())

    def restored(self, rule: str, row: int) -> None:
        """A verdict of before a restart: it has been told."""
        self._told.add(rule, np.array([row], np.intp))
        self.stale = True

    def dismissed(self, rule: str, rows: Rows) -> None:
        """These verdicts are no more, and would be news again."""
        self._told.discard(rule, rows)
        self.stale = True

    # -- what the engine feeds it --------------------------------------------------------------------------------

    def update(self, view: FleetView, changes: Mapping[str, Change]) -> list[Transition]:
        """Take the verdicts as they stand; returns what changed for the operator."""
        self._view = view
        if view.vias != self._ways.vias and any(view.vias):
            self._ways = Domains(self._domains.nodes, view.vias)
        moved = self._linger(view, changes)
        if not (moved or changes or self.stale):
            return []
        for name, change in changes.items():
            self._told.discard(name, np.array(change.cleared, np.intp))
        causes, goal = self._plan(view)
        home = _Homes(goal)
        out: list[Transition] = []
        heirs, folded = self._part(view, goal, home, causes, out)
        self.stale = False
        for key, one in goal.items():
            live = self._live.get(key)
            if live is not None:
                self._keep(view, live, one, out)
            elif one.waits and key not in heirs:
                self.stale = True
            else:
                self._begin(view, one, heirs.get(key), out)
        for live, key in folded:
            out.append(_transition(view, "folded", live.alert, into=self._live[key].alert.id))
        return out

    def _plan(self, view: FleetView) -> tuple[Causes, dict[Key, Wanted]]:
        """What should be shown now. What still waits for its siblings is the cause of nothing."""
        self._shared = {}
        causes, goal = self._goal(view, None)
        waiting = RowSet()
        for key, one in goal.items():
            if one.waits and key not in self._live:
                waiting.add(one.rule, one.rows)
        if waiting:
            causes, goal = self._goal(view, waiting)
        told = [one for key, one in goal.items() if not one.waits or key in self._live]
        self._shared = {**shared_devices(self._verdicts, told, view), **shared_signs(self._verdicts, told, view)}
        if self._shared:
            causes, goal = self._goal(view, waiting or None)
        return causes, goal

    def _goal(self, view: FleetView, but: RowSet | None) -> tuple[Causes, dict[Key, Wanted]]:
        causes = Causes(self._verdicts, view, but, self._shared)
        return causes, wanted(self._verdicts, self._lingering, self._domains, self._ways, causes, view, self._live)

    def _linger(self, view: FleetView, changes: Mapping[str, Change]) -> bool:
        """What clears while its node settles stays until it has: a restart is one event, not an end and a beginning."""
        moved = False
        for name, change in changes.items():
            if not (change.cleared and self._rules[name].gather_seconds):
                continue
            until = view.settling_of(self._rules[name].table)
            over = np.array(change.cleared, np.intp)
            for row in over[(until[over] > view.at) & self._told.member(name, over)].tolist():
                self._lingering.setdefault(name, {})[row] = float(until[row])
        for name, rows in self._lingering.items():
            level = self._verdicts[name].level
            for row in [row for row, end in rows.items() if end <= view.at or level[row]]:
                del rows[row]
                moved = True
        return moved

    def _part(
        self, view: FleetView, goal: dict[Key, Wanted], home: _Homes, causes: Causes,
        out: list[Transition],
    ) -> tuple[dict[Key, _Live], list[tuple[_Live, Key]]]:
        """End the alerts that are no longer wanted.

        Returns those that become a new one, by its key, and those that go under another, with its key.
        """
        heirs: dict[Key, _Live] = {}
        folded: list[tuple[_Live, Key]] = []
        for key in [key for key in self._live if key not in goal]:
            live = self._live[key]
            into = self._where(live, home, causes)
            if into is not None and into.waits and into.key not in self._live and into.key not in heirs:
                # It goes on as it is until the one that it will be part of is told.
                goal[key] = replace(live.wanted, rows=self._standing(live))
                continue
            del self._live[key]
            if into is None or not self._passes(live, into):
                self._end(view, live, into, out)
                continue
            first = heirs.get(into.key)
            if into.key in self._live or not self._becomes(live, into):
                folded.append((live, into.key))
            elif first is None:
                heirs[into.key] = live
            elif live.alert.since < first.alert.since:
                heirs[into.key] = live
                folded.append((first, into.key))
            else:
                folded.append((live, into.key))
        return heirs, folded

    def _becomes(self, live: _Live, into: Wanted) -> bool:
        """Whether *into* is the same fault, grown or grown up."""
        return live.wanted.rule == into.rule or live.wanted.rule in self._rules[into.rule].follows

    def _where(
        self, live: _Live, home: _Homes, causes: Causes
    ) -> Wanted | None:
        """The alert under which what is left of *live* is now."""
        for row in self._standing(live).tolist():
            found = home.of(*causes.top(live.wanted.rule, row))
            if found is not None:
                return found
        return None

    def _standing(self, live: _Live) -> np.ndarray:
        """Its verdicts that still fire or linger."""
        name = live.wanted.rule
        rows = live.wanted.rows
        return rows[(self._verdicts[name].level[rows] > 0) | np.isin(rows, list(self._lingering.get(name, ())))]

    def _passes(self, live: _Live, into: Wanted) -> bool:
        """Whether *live* becomes *into* or goes under it, and is not just a parent that falls apart."""
        return live.wanted.rule != into.rule or live.wanted.scope < into.scope or (
            live.wanted.nodes <= into.nodes and into.scope == live.wanted.scope)

    # -- transitions ---------------------------------------------------------------------------------------------

    def _begin(self, view: FleetView, one: Wanted, heir: _Live | None, out: list[Transition]) -> None:
        state = self._verdicts[one.rule]
        first = one.rows[int(np.argmin(state.since[one.rows]))]
        since, wall = float(state.since[first]), float(state.since_wall[first])
        if heir is not None:
            alert_id, since, wall = heir.alert.id, heir.alert.since, heir.alert.since_wall
            grave = one.severity > heir.alert.severity or heir.wanted.rule != one.rule
            kind = "worsened" if grave else "spread"
        else:
            name = f"{one.rule} {one.thing.id} {wall:.3f}"
            alert_id = hashlib.blake2s(name.encode(), digest_size=5).hexdigest()
            kind = "remains" if self._told.member(one.rule, one.rows).any() else "raised"
        devices = self._devices(one)
        alert = self._alert(view, one, alert_id, since, wall, devices)
        self._live[one.key] = _Live(one, alert, len(one.rows), devices)
        self._told.add(one.rule, one.rows)
        out.append(_transition(view, kind, alert))

    def _keep(self, view: FleetView, live: _Live, one: Wanted, out: list[Transition]) -> None:
        old = live.alert
        devices = self._devices(one)
        same = (np.array_equal(one.rows, live.wanted.rows) and one.back == live.wanted.back
                and devices == live.devices)
        live.wanted, live.devices = one, devices
        if same and one.severity == old.severity:
            return
        self._told.add(one.rule, one.rows)
        live.alert = self._alert(view, one, old.id, old.since, old.since_wall, devices)
        count = len(one.rows)
        if one.severity > old.severity:
            out.append(_transition(view, "worsened", live.alert))
        elif one.severity < old.severity:
            out.append(_transition(view, "eased", live.alert))
        elif count >= SPREAD * live.told:
            out.append(_transition(view, "spread", live.alert))
        else:
            return
        live.told = count

    def _end(self, view: FleetView, live: _Live, into: Wanted | None, out: list[Transition]) -> None:
        remain = len(self._standing(live)) if into is not None else 0
        state, alert = self._verdicts[live.wanted.rule], live.alert
        # Of many things the value is how many there are; of one that was dismissed there is no good reading.
        value = float(remain) if live.wanted.scope else _known(float(state.value[live.wanted.rows[0]]))
        message = messages.cleared(state.rule, alert, view.at, remain)
        out.append(_transition(view, "cleared", replace(alert, message=message, value=value)))

    def _devices(self, one: Wanted) -> tuple[int, ...]:
        """Rows of the device table that are under an alert about nodes of one place."""
        if not one.within or not self._shared:
            return ()
        mine = set(one.rows.tolist())
        return tuple(sorted({row for (name, row), (rule, of) in self._shared.items()
                             if rule == one.rule and of in mine and self._rules[name].table == "device"}))

    def _alert(
        self, view: FleetView, one: Wanted, alert_id: str, since: float, since_wall: float,
        devices: tuple[int, ...] = (),
    ) -> Alert:
        if not one.scope:
            return replace(self._verdict(view, one.rule, int(one.rows[0]), alert_id, one.severity), since=since,
                           since_wall=since_wall, message=messages.single(self._verdicts[one.rule], view, one))
        rule, state = self._rules[one.rule], self._verdicts[one.rule]
        return Alert(
            one.rule, rule.title, one.severity, one.thing, -1, messages.many(state, view, one, devices),
            float(len(one.rows)), None, "", since, since_wall,
            (*messages.labels(rule, view, one), *(view["device"].labels[row] for row in devices)), rule.hint, alert_id,
            view.hosts(one.nodes))

    def _verdict(
        self, view: FleetView, name: str, row: int, alert_id: str, severity: Severity | None = None
    ) -> Alert:
        """A verdict as an alert of its own."""
        state = self._verdicts[name]
        rule, table = state.rule, view[state.rule.table]
        level = severity or Severity(int(state.level[row]) or Severity.INFO)
        limit = next((step.limit for at, step in state.levels if at == level), state.levels[0][1].limit)
        value = _known(float(state.value[row]))
        node = int(table.node[row])
        return Alert(
            name, rule.title, level, Thing(rule.table, view.owners[node].name, table.keys[row], table.labels[row]),
            row, messages.firing(name, rule, view, row, value), value, limit, rule.unit(table.spec),
            float(state.since[row]), float(state.since_wall[row]), device_messages.members(name, view, row), rule.hint,
            alert_id, view.hosts((node,)))


def _known(value: float) -> float | None:
    return None if value != value else value


def _transition(view: FleetView, kind: str, alert: Alert, into: str = "") -> Transition:
    return Transition(view.at, view.wall, kind, alert.rule, alert.severity, alert.thing, alert.message, alert.value,
                      alert.limit, alert.unit, alert.since, alert.id, into, len(alert.members))
