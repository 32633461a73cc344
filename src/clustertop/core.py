"""The console's core: events in, a view and transitions out. The same for live nodes and for recordings.

Time passes here only by :meth:`Core.tick`, so a recording that holds the ticks replays to the same verdicts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from clustertop.rules.engine import Engine
from clustertop.store.store import Store
from clustertop.wire.frame import FrameError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clustertop.model import Alert, LinkEvent, NodeInfo, Transition
    from clustertop.rules.spec import Rule
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


class Core:
    """Store, rules and log over one inventory."""

    def __init__(
        self, nodes: Sequence[NodeInfo], rules: Mapping[str, Rule], *, expect_width: ExpectWidth | None = None,
        expect_gpus: ExpectCount | None = None, expect_ports: ExpectCount | None = None,
        freshness: Freshness | None = None, tap: Tap | None = None,
    ) -> None:
        self.store = Store(
            nodes, expect_width or (lambda node, key, attrs: None), expect_gpus or (lambda node: None),
            expect_ports or (lambda node: None), freshness)
        self.engine = Engine(rules)
        self.frames = 0
        self.bad_frames: dict[int, str] = {}
        self._tap = tap
        self._log: deque[Transition] = deque(maxlen=LOG_LIMIT)
        self._listeners: list[Callable[[list[Transition]], None]] = []
        self.snapshot: Snapshot | None = None

    def listen(self, listener: Callable[[list[Transition]], None]) -> None:
        """Call *listener* with the transitions of each tick that has any."""
        self._listeners.append(listener)

    def on_frame(self, node: int, at: float, wall: float, frame: Frame, raw: bytes) -> bool:
        """Take a frame; returns False if the node should be asked for a full one."""
        self.frames += 1
        if self._tap is not None:
            self._tap.frame(node, at, wall, raw)
        try:
            complete = self.store.frame(node, at, wall, frame)
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
        self._log.extend(transitions)
        self.snapshot = Snapshot(view, tuple(self.engine.alerts()), tuple(self._log), self.engine, self.frames,
                                 dict(self.bad_frames))
        if transitions:
            for listener in self._listeners:
                listener(transitions)
        return transitions
