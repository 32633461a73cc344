"""The console's core: events in, a view and transitions out. The same for live nodes and for recordings.

Time passes here only by :meth:`Core.tick`, so a recording that holds the ticks replays to the same verdicts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from clustertop.model import Severity, Transition
from clustertop.poll.bmc_frames import bmc_part
from clustertop.poll.inband import GROUP, InBand
from clustertop.rules.engine import RESUME_SETTLE_SECONDS, Engine
from clustertop.rules.hands import Hands
from clustertop.signals.power import CRITICAL_RATIO, WARNING_RATIO
from clustertop.store.store import SETTLE_SECONDS, Store
from clustertop.wire.frame import FrameError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clustertop.model import Alert, LinkEvent, NodeInfo
    from clustertop.places import Site
    from clustertop.rules.hands import Ack, Silence
    from clustertop.rules.spec import Rule
    from clustertop.state import State
    from clustertop.store.store import ExpectCount, ExpectWidth
    from clustertop.store.view import FleetView, Freshness
    from clustertop.wire.frame import Frame

LOG_LIMIT = 2000
"""Transitions kept for the console's log."""


class Tap(Protocol):
    """Whoever wants the raw stream: the flight recorder."""

    note: str
    """Why it takes nothing more; empty while it does."""

    def frame(self, node: int, at: float, wall: float, raw: bytes) -> None:
        """A frame's payload as it arrived."""
        ...

    def link(self, event: LinkEvent, wall: float) -> None:
        """A link changed."""
        ...

    def tick(self, at: float, wall: float) -> None:
        """The rules were evaluated at this moment."""
        ...

    def recall(self, state: State, at: float, wall: float) -> None:
        """What an earlier run left was taken up at this moment."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """One moment as front ends draw it; compared by identity."""

    view: FleetView
    alerts: tuple[Alert, ...]
    log: tuple[Transition, ...]
    """Newest last."""
    engine: Engine
    frames: int
    """Frames taken so far, of all nodes."""
    bad_frames: Mapping[int, str]
    """Nodes whose last frame could not be used, with the reason."""
    acks: Mapping[tuple[str, str], Ack]
    """Acknowledgements in force, by rule and thing (its id)."""
    silences: tuple[Silence, ...]
    """Silences in force."""


def _feed_shares(rules: Mapping[str, Rule]) -> tuple[float, float]:
    """The limits of a feed's current as the rule in force has them: what is foretold of it is about the same ones."""
    rule = rules.get("feed_current")
    warning, critical = (rule.warning, rule.critical) if rule is not None else (None, None)
    least = WARNING_RATIO if warning is None else warning.limit
    return least, max(least, CRITICAL_RATIO if critical is None else critical.limit)


class Core:
    """Store, rules and log over one inventory."""

    def __init__(
        self, nodes: Sequence[NodeInfo], rules: Mapping[str, Rule], *, expect_width: ExpectWidth | None = None,
        expect_gpus: ExpectCount | None = None, expect_ports: ExpectCount | None = None,
        freshness: Freshness | None = None, tap: Tap | None = None,
        settle_seconds: float = SETTLE_SECONDS, resume_seconds: float = RESUME_SETTLE_SECONDS,
        site: Site | None = None,
    ) -> None:
        self.store = Store(
            nodes, expect_width or (lambda node, key, attrs: None), expect_gpus or (lambda node: None),
            expect_ports or (lambda node: None), freshness, settle_seconds, Engine.growth(rules), site,
            _feed_shares(rules))
        self.engine = Engine(rules, self.store.owners.all, resume_seconds=resume_seconds)
        self.hands = Hands(rules, self.engine.values)
        self.frames = 0
        self.bad_frames: dict[int, str] = {}
        self._in_band: dict[int, InBand] = {}
        """By node: what its probe sends of its BMC, made into a BMC's tables."""
        self._tap = tap
        self._log: deque[Transition] = deque(maxlen=LOG_LIMIT)
        self._done: list[tuple[str, Alert, str]] = []
        self._hushed: set[str] = set()
        self.dismissed: list[tuple[str, int]] = []
        """(table, row) of what operators dismissed, for whoever remembers devices; it empties the list."""
        self._listeners: list[Callable[[list[Transition]], None]] = []
        self.snapshot: Snapshot | None = None

    def listen(self, listener: Callable[[list[Transition]], None]) -> None:
        """Call *listener* with the transitions of each tick that has any."""
        self._listeners.append(listener)

    def recall(self, state: State, at: float, wall: float) -> None:
        """Take up what an earlier run left, before the first evaluation.

        Devices are expected again, and missing until they are listed; what was firing fires until a good reading.
        """
        if self._tap is not None:
            self._tap.recall(state, at, wall)
        owners = self.store.owners
        for node, devices in state.devices.items():
            for one in devices:
                number = owners.number(one.table, node)
                if number is not None:
                    self.store.expect(number, one.table, one.key, one.attrs)
        for was in state.firing:
            number, rule = owners.number(was.table, was.node), self.engine.rules.get(was.rule)
            if number is None or rule is None or rule.table != was.table:
                continue
            row = self.store.expect(number, was.table, was.key, was.attrs)
            if row is not None:
                value = float("nan") if was.value is None else was.value
                self.engine.restore(was.rule, row, Severity(was.severity), at - max(wall - was.since, 0.0), was.since,
                                    value)
        self.hands.adopt(state.acks, state.silences)

    def on_frame(self, node: int, at: float, wall: float, frame: Frame, raw: bytes) -> bool:
        """Take a frame; returns False if the node should be asked for a full one."""
        self.frames += 1
        if self._tap is not None:
            self._tap.frame(node, at, wall, raw)
        whole = True
        if node < len(self.store.nodes) and GROUP in frame.g:
            in_band = self._in_band.get(node)
            if in_band is None:
                in_band = self._in_band[node] = InBand(bmc_part)
            frame, whole = in_band.convert(frame, at)
        try:
            complete = self.store.frame(node, at, wall, frame) and whole
        except FrameError as error:
            self.bad_frames[node] = str(error)
            return False
        if self.bad_frames:
            self.bad_frames.pop(node, None)
        return complete

    def on_link(self, event: LinkEvent, wall: float) -> None:
        """Take a change of a link."""
        if self._tap is not None:
            self._tap.link(event, wall)
        self.store.link(event)

    def tick(self, now: float, wall: float) -> list[Transition]:
        """Evaluate at *now* (our monotonic clock); returns what changed."""
        if self._tap is not None:
            self._tap.tick(now, wall)
        self.store.tick(now)
        view = self.store.view(now, wall)
        transitions = self.engine.evaluate(view)
        alerts = self._mark(view, transitions)
        self._log.extend(transitions)
        self.snapshot = Snapshot(view, tuple(alerts), tuple(self._log), self.engine, self.frames,
                                 dict(self.bad_frames), dict(self.hands.acks), tuple(self.hands.silences.values()))
        if transitions:
            for listener in self._listeners:
                listener(transitions)
        return transitions

    def _mark(self, view: FleetView, transitions: list[Transition]) -> list[Alert]:
        """Take what operators did into account; returns the alerts as marked, and adds to *transitions*."""
        alerts, worse = self.hands.mark(self.engine.alerts(), view, self.engine.fires)
        quiet = {alert.id for alert in alerts if alert.acked or alert.silenced}
        if quiet or self._hushed:
            transitions[:] = [
                replace(change, quiet=True)
                if change.alert in quiet or (change.kind == "cleared" and change.alert in self._hushed) else change
                for change in transitions]
        told = {change.alert for change in transitions}
        transitions += [told_again(view, alert, "worsened") for alert in worse if alert.id not in told]
        hushed = {alert.id for alert in alerts if alert.silenced}
        transitions += [told_again(view, alert, "remains") for alert in alerts
                        if alert.id in self._hushed - hushed and not alert.acked and alert.id not in told]
        transitions += [replace(told_again(view, alert, kind), message=f"{reason}: {alert.message}" if reason else
                                alert.message, quiet=True) for kind, alert, reason in self._done]
        self._done.clear()
        self._hushed = hushed
        return alerts

    # -- what operators do ---------------------------------------------------------------------------------------

    def acknowledge(self, alert: Alert, *, by: str = "", reason: str = "", lasting: bool = False) -> None:
        """Note that somebody knows of *alert*: it is told of again only when it is worse.

        *lasting*: also when it is over and comes back no worse than now.
        """
        if self.snapshot is not None:
            self.hands.acknowledge(alert, self.snapshot.view, by=by, reason=reason, lasting=lasting)
            self._done.append(("acknowledged", alert, reason))

    def unacknowledge(self, alert: Alert) -> None:
        """Take an acknowledgement back."""
        self.end_ack(alert.rule, alert.thing.id)

    def end_ack(self, rule: str, thing: str) -> None:
        """Take back the acknowledgement of *rule* on the thing of that id, also where it does not fire now."""
        if self.snapshot is not None:
            self.hands.end_ack((rule, thing), self.snapshot.view.wall)

    def silence(self, where: str, rule: str, seconds: float, *, by: str = "", reason: str = "") -> None:
        """Tell of nothing that *rule* (``*``: any) says of *where* (node, rack, leaf, group, thing) for *seconds*."""
        if self.snapshot is not None:
            view = self.snapshot.view
            self.hands.silence(where, rule, view.wall, seconds, by=by, reason=reason)
            marked, _ = self.hands.mark(self.engine.alerts(), view, self.engine.fires)
            self._done += [("silenced", alert, reason) for alert in marked
                           if alert.silenced and alert.id not in self._hushed]

    def unsilence(self, where: str, rule: str) -> None:
        """Take a silence back."""
        if self.snapshot is not None:
            self.hands.unsilence(where, rule, self.snapshot.view.wall)

    def dismiss(self, alert: Alert) -> None:
        """What *alert* misses is gone for good: it is expected no more."""
        if self.snapshot is not None:
            self.dismissed += self.engine.dismiss(alert)
            self._done.append(("dismissed", alert, ""))


def told_again(view: FleetView, alert: Alert, kind: str) -> Transition:
    """A transition that tells of *alert* as it stands."""
    return Transition(view.at, view.wall, kind, alert.rule, alert.severity, alert.thing, alert.message, alert.value,
                      alert.limit, alert.unit, alert.since, alert.id, "", len(alert.members))
