"""What operators do with alerts: acknowledge what they know of, silence what they are working on.

Neither hides anything from judgement: an acknowledged or silenced alert is still kept, counted and shown as such.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from clustertop.model import Alert, NodeInfo
    from clustertop.rules.spec import Rule
    from clustertop.store.view import FleetView

WORSE = 1.1
"""A reading this many times as far beyond its limit as when it was acknowledged is worse; of whole numbers any is."""


def drop_key(kind: str, key: tuple[str, str]) -> str:
    """The name under which an acknowledgement (``ack``) or a ``silence`` is noted as ended."""
    return f"{kind} {key[0]} {key[1]}"


class Ack(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An alert that somebody knows of. Tied to what it said then: what is worse alerts again. Ends with its alert."""

    rule: str
    thing: str
    """The thing's id."""
    severity: int
    value: float | None
    at: float
    """Seconds since the epoch."""
    by: str = ""
    reason: str = ""
    lasting: bool = False
    """Holds also when the alert is over and comes again, as long as it is no worse: a slot that is x8 by design."""

    @property
    def key(self) -> tuple[str, str]:
        """What it is about."""
        return (self.rule, self.thing)


class Silence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Alerts that are not told of until a moment."""

    where: str
    """A node, rack, leaf, group, or a thing's id; ``*`` matches any text."""
    rule: str = "*"
    until: float
    """Seconds since the epoch."""
    at: float
    by: str = ""
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What it is about."""
        return (self.rule, self.where)


class Hands:
    """The acknowledgements and silences in force."""

    def __init__(self, rules: Mapping[str, Rule], values: Callable[[str], NDArray[np.float64]]) -> None:
        """*values* gives what a rule held against its limits last, [rows of its table], NaN where unknown."""
        self._rules, self._values = rules, values
        self.acks: dict[tuple[str, str], Ack] = {}
        self.silences: dict[tuple[str, str], Silence] = {}
        self.dropped: dict[str, float] = {}
        """What ended, by :func:`drop_key`, and when."""
        self.changed = 0
        """Grows with each change: what is kept has to be written."""

    def adopt(self, acks: Iterable[Ack], silences: Iterable[Silence]) -> None:
        """Take these in place of what is in force: what another console, or this one before, made of it."""
        self.acks = {ack.key: ack for ack in acks}
        self.silences = {silence.key: silence for silence in silences}

    def acknowledge(
        self, alert: Alert, view: FleetView, *, by: str = "", reason: str = "", lasting: bool = False
    ) -> None:
        """Note that *alert*, as it reads in *view*, is known."""
        ack = Ack(rule=alert.rule, thing=alert.thing.id, severity=int(alert.severity), value=self._reading(alert),
                  at=view.wall, by=by, reason=reason, lasting=lasting)
        self.acks[ack.key] = ack
        self.changed += 1

    def end_ack(self, key: tuple[str, str], wall: float) -> None:
        """Take back the acknowledgement of that rule and thing (its id), whether or not it fires."""
        if self.acks.pop(key, None) is not None:
            self.dropped[drop_key("ack", key)] = wall
            self.changed += 1

    def silence(self, where: str, rule: str, wall: float, seconds: float, *, by: str = "", reason: str = "") -> None:
        """Tell of nothing that *rule* says of *where* for *seconds*."""
        made = Silence(where=where, rule=rule, until=wall + seconds, at=wall, by=by, reason=reason)
        self.silences[made.key] = made
        self.changed += 1

    def unsilence(self, where: str, rule: str, wall: float) -> None:
        """Take it back."""
        if self.silences.pop((rule, where), None) is not None:
            self.dropped[drop_key("silence", (rule, where))] = wall
            self.changed += 1

    def mark(
        self, alerts: Sequence[Alert], view: FleetView, fires: Callable[[str, str], bool]
    ) -> tuple[list[Alert], list[Alert]]:
        """Mark what is acknowledged or silenced.

        Args:
            alerts: what an operator sees.
            view: the moment they were judged at.
            fires: whether a rule fires on a thing (its id), though another alert may stand for it.

        Returns:
            The alerts, those that need nobody behind the others; and those whose acknowledgement has just ended
            because they are worse than it was for.
        """
        for key in [key for key, silence in self.silences.items() if silence.until <= view.wall]:
            self.unsilence(key[1], key[0], view.wall)
        if not self.acks and not self.silences:
            return list(alerts), []
        worse: list[Alert] = []
        out = []
        for alert in alerts:
            ack = self.acks.get((alert.rule, alert.thing.id))
            if ack is not None and self._worse(ack, alert, view):
                self.end_ack(ack.key, view.wall)
                worse.append(alert)
                ack = None
            hush = silence_of(alert, self.silences.values(), view.owners)
            if ack is not None or hush is not None:
                alert = replace(alert, acked=ack is not None, silenced=hush is not None,
                                note=(ack.reason if ack else "") or (hush.reason if hush else ""))
            out.append(alert)
        shown = {(alert.rule, alert.thing.id) for alert in alerts}
        for key in [key for key, ack in self.acks.items()
                    if not ack.lasting and key not in shown and not fires(*key)]:
            self.end_ack(key, view.wall)
        out.sort(key=lambda alert: alert.acked or alert.silenced)
        return out, worse

    def _reading(self, alert: Alert) -> float | None:
        """What the alert's rule holds against its limit now; of many things, how many they are."""
        if alert.row < 0:
            return alert.value
        now = float(self._values(alert.rule)[alert.row])
        return alert.value if now != now else now

    def _worse(self, ack: Ack, alert: Alert, view: FleetView) -> bool:
        if alert.severity > ack.severity:
            return True
        now = self._reading(alert)
        if now is None or ack.value is None:
            return False
        if alert.row < 0:
            return now > ack.value
        rule = self._rules[alert.rule]
        up = 1.0 if rule.op in {">", ">="} else -1.0
        if up * (now - ack.value) <= 0:
            return False
        if now.is_integer() and ack.value.is_integer() and rule.unit(view[rule.table].spec) in _COUNTED:
            return True
        limit = rule.levels()[0][1].limit
        return abs(now - limit) > WORSE * abs(ack.value - limit)


_COUNTED = frozenset({"", "lanes"})
"""Units of what is counted, not measured."""


def silence_of(alert: Alert, silences: Iterable[Silence], nodes: Sequence[NodeInfo]) -> Silence | None:
    """The one of *silences* that holds *alert* longest; None: it is told of. *nodes*: [owners]."""
    mine = [one for one in silences if fnmatchcase(alert.rule, one.rule) and _about(alert, one.where, nodes)]
    return max(mine, key=lambda one: one.until, default=None)


def _about(alert: Alert, where: str, nodes: Sequence[NodeInfo]) -> bool:
    """Whether everything that *alert* is about lies in *where*."""
    if fnmatchcase(alert.thing.id, where):
        return True
    if not alert.on and alert.thing.node:
        mine = next((one for one in nodes if one.kind != "node" and one.name == alert.thing.node), None)
        return mine is not None and any(fnmatchcase(name, where) for name in (mine.name, mine.rack, mine.leaf) if name)
    return bool(alert.on) and all(
        any(fnmatchcase(name, where) for name in (node.name, node.rack, node.leaf, *node.groups) if name)
        for node in (nodes[number] for number in alert.on))
