"""What a session remembers of the one before it: devices that nodes had, what was firing, what operators did."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals import gpu, rdma
from clustertop.state import Device, Firing, State, StateError, StateFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from clustertop.core import Core
    from clustertop.model import Attr, Transition

ACCEPT_SECONDS = 60.0
"""A device that has been well for this long is one of its node's: it is missed when it is gone."""
FRESH_SECONDS = 60.0
"""A reading older than this says nothing of now."""
LEARN_SECONDS = 10.0
"""Time between two looks for new devices; less where they are accepted sooner."""
SAVE_SECONDS = 5.0
"""Shortest time between two writings."""
_KEPT = {
    "gpu": ("index", "uuid", "pci", "name"),
    "port": ("dev", "port", "pci", "link_layer", "driver", "netdev"),
}
"""The tables whose things are remembered, and what is kept of each."""


class Devices:
    """What a fleet's nodes have, learnt from its core."""

    def __init__(self, core: Core, accept_seconds: float = ACCEPT_SECONDS) -> None:
        self._core, self._accept = core, accept_seconds
        self._known: dict[str, dict[tuple[str, str], Device]] = {}
        self._well = {name: np.full(0, np.nan) for name in _KEPT}

    def adopt(self, devices: Mapping[str, tuple[Device, ...]]) -> None:
        """Begin with these, by node."""
        self._known = {node: {(one.table, one.key): one for one in mine} for node, mine in devices.items()}

    def learn(self, now: float) -> bool:
        """Take what has been well for long enough at *now* (our monotonic clock); returns whether there is any."""
        store, new = self._core.store, False
        for name in _KEPT:
            table = store.tables[name]
            columns, since = table.columns, self._well[name]
            if table.rows > len(since):
                since = self._well[name] = np.pad(since, (0, table.rows - len(since)), constant_values=np.nan)
            well = _well(name, columns.present, columns.col("presence" if name == "gpu" else "link"),
                         columns.col("virtual") if name == "port" else None)
            well &= now - table.read_at[: table.rows] < max(self._accept, FRESH_SECONDS)
            since[~well] = np.nan
            since[well & np.isnan(since)] = now
            for row in np.flatnonzero(now - since >= self._accept).tolist():
                node = store.owners.all[int(table.node[row])].name
                mine = self._known.setdefault(node, {})
                key = (name, table.keys[row])
                if key not in mine:
                    mine[key] = Device(name, table.keys[row], _few(name, table.attrs[row]))
                    new = True
        return new

    def forget(self) -> bool:
        """Drop what operators dismissed; returns whether there was any."""
        dismissed, self._core.dismissed = self._core.dismissed, []
        for name, row in dismissed:
            table = self._core.store.tables[name]
            node = self._core.store.owners.all[int(table.node[row])].name
            self._known.get(node, {}).pop((name, table.keys[row]), None)
        return bool(dismissed)

    def state(self) -> State:
        """All that a next run needs to know."""
        core = self._core
        firing = []
        for rule, row, severity, since, value in core.engine.firing():
            table = core.store.tables[core.engine.rules[rule].table]
            name = table.spec.name
            firing.append(Firing(
                rule, core.store.owners.all[int(table.node[row])].name, name, table.keys[row],
                _few(name, table.attrs[row]), int(severity), since, None if np.isnan(value) else value))
        hands = core.hands
        return State(
            acks=tuple(hands.acks.values()), silences=tuple(hands.silences.values()), dropped=dict(hands.dropped),
            devices={node: tuple(devices.values()) for node, devices in sorted(self._known.items())},
            firing=tuple(firing))


class Memory:
    """Joins a core to its state file. Nothing of it is on the path of a frame.

    Args:
        path: the file.
        core: what remembers.
        accept_seconds: how long a device must be well to be expected from then on.
        keep: False: only the devices that nodes had are brought back, and nothing is written: one look at the fleet.
    """

    def __init__(
        self, path: Path, core: Core, *, keep: bool = True, accept_seconds: float = ACCEPT_SECONDS
    ) -> None:
        self._keep = keep
        self._file = StateFile(path)
        self._core = core
        self._failed = ""
        self._devices = Devices(core, accept_seconds)
        self._step = min(LEARN_SECONDS, max(accept_seconds / 4, 1.0))
        self._learned = self._saved_at = float("-inf")
        self._hands = 0
        self._changed = False
        self._writing: asyncio.Task[None] | None = None
        core.listen(self._moved)

    @property
    def note(self) -> str:
        """What an operator must know of the state file; empty where all is well."""
        return self._failed or self._file.note

    def recall(self, now: float, wall: float) -> None:
        """Bring back what the file holds, before the first evaluation."""
        state = self._file.load(aside=self._keep)
        self._devices.adopt(state.devices)
        if not self._keep:
            state = State(devices=state.devices)
        if state != State():
            self._core.recall(state, now, wall)
        self._hands = self._core.hands.changed

    def look(self, now: float) -> None:
        """Learn of new devices and see to it that what changed is written. Call it after an evaluation."""
        if not self._keep:
            return
        if now - self._learned >= self._step:
            self._learned = now
            self._changed |= self._devices.learn(now)
        self._changed |= self._devices.forget()
        self._changed |= self._core.hands.changed != self._hands
        if now - self._saved_at < SAVE_SECONDS or (self._writing is not None and not self._writing.done()):
            return
        self._saved_at = now
        if self._changed or self._file.moved():
            self._changed = False
            state, self._hands = self._devices.state(), self._core.hands.changed
            self._writing = asyncio.create_task(self._write(state), name="state")

    async def close(self) -> None:
        """Write what is left."""
        if not self._keep:
            return
        if self._writing is not None:
            await asyncio.wait({self._writing})
        if self._changed or self._core.hands.changed != self._hands:
            await self._write(self._devices.state())

    async def _write(self, state: State) -> None:
        try:
            kept = await asyncio.to_thread(self._file.save, state)
        except StateError as error:
            self._failed = str(error)
            return
        self._failed = ""
        if (kept.acks, kept.silences) != (state.acks, state.silences):
            self._core.hands.adopt(kept.acks, kept.silences)
            self._hands = self._core.hands.changed

    def _moved(self, changes: list[Transition]) -> None:
        self._changed = True


def _well(
    name: str, present: NDArray[np.bool_], state: NDArray[np.float64], virtual: NDArray[np.float64] | None
) -> NDArray[np.bool_]:
    """[rows] which things are there and answer."""
    if name == "gpu":
        return np.asarray(present & (state == gpu.PRESENT), np.bool_)
    out: NDArray[np.bool_] = present & (state == rdma.UP) & (virtual != 1)
    return out


def _few(name: str, attrs: Mapping[str, Attr]) -> dict[str, Attr]:
    """What is kept of a thing's attributes."""
    kept = _KEPT.get(name)
    return {key: value for key, value in attrs.items() if kept is None or key in kept}
