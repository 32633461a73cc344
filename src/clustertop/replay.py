"""A recording as a session: the same attributes as a live one, at the speed that is asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from clustertop.core import Core, Snapshot
from clustertop.record import Recording, play
from clustertop.rules.spec import builtin
from clustertop.session import OwnMeter
from clustertop.settings import expect_gpus, expect_ports, expect_width
from clustertop.store.view import Freshness

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from clustertop.model import OwnCost, Request, Transition
    from clustertop.rules.latency import Times
    from clustertop.rules.spec import Rule

RECORDING = "recording"
"""Where a limit came from that is another one than the built-in one."""
BATCH = 200
"""Steps after which a replay at full speed lets the console draw."""


def replay_core(recording: Recording) -> Core:
    """A core with the nodes, expectations and rules of *recording*."""
    header, inventory = recording.header, recording.inventory
    return Core(inventory.nodes, header.rules, expect_width=expect_width(inventory), expect_gpus=expect_gpus(inventory),
                expect_ports=expect_ports(inventory),
                freshness=Freshness(header.late_intervals, header.stale_intervals),
                settle_seconds=header.settle_seconds, resume_seconds=header.resume_seconds, site=recording.site)


def transitions(recording: Recording) -> Iterator[Transition]:
    """Every transition of *recording*, as the live session gave them."""
    core = replay_core(recording)
    out: list[Transition] = []
    core.listen(out.extend)
    for step in recording.steps():
        if play(core, step):
            yield from out
            out.clear()


class ReplaySession:
    """Plays a recording for the length of an ``async with`` block, and stays at its end.

    Args:
        recording: what to play.
        speed: how many times faster than it happened; 0: as fast as possible.
    """

    def __init__(self, recording: Recording, speed: float = 1.0) -> None:
        self.core = replay_core(recording)
        self.title = f"replay {recording.path.name}"
        self.notes: tuple[str, ...] = ()
        self.origins = _origins(recording.header.rules)
        self.times: Times | None = None
        """How often nodes were read is not in the recording."""
        self._recording, self._speed = recording, speed
        self._task: asyncio.Task[None] | None = None
        self._meter = OwnMeter()

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest moment played; None before the first."""
        return self.core.snapshot

    def cost(self) -> OwnCost | None:
        """What the replay costs here."""
        return self._meter.read()

    @property
    def live(self) -> bool:
        """There is no probe to ask."""
        return False

    def released(self, node: int) -> bool:
        """Nothing is wished for in a recording."""
        return False

    def request(self, request: Request) -> None:
        """There is no probe to ask."""

    def evaluate(self) -> None:
        """Judge the moment played last once more: what the operator did shows, also when the recording is at its end.

        What operators do with the alerts of a recording is kept nowhere.
        """
        now = self.core.snapshot
        if now is not None:
            self.core.tick(now.view.at, now.view.wall)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._play(), name="replay")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None and error is None:
            raise task.exception() or RuntimeError("replay failed")

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        start: float | None = None
        began = loop.time()
        for count, step in enumerate(self._recording.steps()):
            start = step.at if start is None else start
            if self._speed > 0:
                ahead = (step.at - start) / self._speed - (loop.time() - began)
                if ahead > 0:
                    await asyncio.sleep(ahead)
            elif count % BATCH == 0:
                await asyncio.sleep(0)
            play(self.core, step)
        end = f"end of recording{f': {self._recording.note}' if self._recording.note else ''}"
        self.notes = (end,)


def _origins(rules: Mapping[str, Rule]) -> dict[str, dict[str, str]]:
    """By rule and key: what is not as built in here came with the recording."""
    usual, out = builtin(), {}
    for name, rule in rules.items():
        base = usual.get(name)
        levels = {} if base is None else dict(base.levels())
        mine = {f"{severity.name.lower()}.limit": RECORDING for severity, level in rule.levels()
                if levels.get(severity) != level}
        if base is None or rule.clear != base.clear:
            mine["clear.limit"] = RECORDING
        out[name] = mine
    return out
