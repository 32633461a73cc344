"""Where the console stands with each device, gathered into table ``device`` once a tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import LinkState, Why
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.model import Attr, LinkEvent
    from clustertop.store.owners import Owners
    from clustertop.store.table import Table
    from clustertop.wire.frame import Frame

DOWN = frozenset({
    LinkState.UNREACHABLE, LinkState.AUTH_FAILED, LinkState.HOST_KEY_UNKNOWN, LinkState.HOST_KEY_CHANGED,
    LinkState.NO_PYTHON, LinkState.PROBE_FAILED,
})
"""States of a link in which nothing can be read."""
SAID = ("model", "serial", "serial_before", "firmware", "profile", "problem", "notes")
"""Facts of a device that its row keeps, as it told them last."""
MAX_SAID = 300
"""Longest that is kept of one, in characters."""


class Devices:
    """Links and last readings of an inventory's devices, [devices]."""

    def __init__(self, table: Table, owners: Owners) -> None:
        self._table, self._owners = table, owners
        count = owners.first_feed - owners.first_device
        self._state = np.full(count, float(LinkState.WAITING))
        self._reach = np.full(count, np.nan)
        self._good_at = np.full(count, -np.inf)
        self._interval = np.array([one.interval_seconds for one in owners.site.devices], np.float64)
        self._took = np.full(count, np.nan)
        self._frames = np.zeros(count, np.int64)
        self._serial = [""] * count
        """What each told at first."""
        self._replaced = np.full(count, np.nan)
        self.reasons = [""] * count
        """Why each link is as it is; empty where all is well."""
        for place, device in enumerate(owners.site.devices):
            row = table.add(owners.first_device + place, "",
                            {"name": device.name, "kind": device.kind, "of": device.of, "where": device.where})
            assert row == place

    def link(self, event: LinkEvent) -> None:
        """Take a change of a device's link."""
        place = event.node - self._owners.first_device
        self._state[place] = float(event.state)
        self.reasons[place] = event.reason
        if event.state in DOWN:
            self._reach[place] = 0.0

    def frame(self, number: int, at: float, frame: Frame) -> None:
        """Take note of a frame: of a good reading, or of another attempt that failed."""
        place = number - self._owners.first_device
        self._frames[place] += 1
        if frame.h is not None:
            self._say(place, frame.h)
        for part in frame.g.values():
            if part.iv:
                self._interval[place] = part.iv
            if part.st == "ok":
                self._reach[place] = 1.0
                self._good_at[place] = at - max(frame.t - part.t, 0.0)
                self._took[place] = part.ms / 1000

    def _say(self, place: int, facts: Mapping[str, Attr]) -> None:
        if serial := clean(str(facts.get("serial") or ""), MAX_SAID):
            self._serial[place] = self._serial[place] or serial
            self._replaced[place] = float(serial != self._serial[place])
        before = self._table.attrs[place]
        kept = {name: said for name, said in before.items() if name not in SAID}
        told = {name: clean(str(facts[name]), MAX_SAID) for name in SAID if facts.get(name)}
        if self._replaced[place] == 1:
            told["serial_before"] = self._serial[place]
        if {**kept, **told} != before:
            self._table.say(place, {**kept, **told})

    def derive(self, now: float) -> None:
        """Fill the table as of *now*, our monotonic clock."""
        table = self._table
        count = len(self._state)
        if not count:
            return
        columns = table.columns
        age = np.where(np.isinf(self._good_at), np.nan, now - self._good_at)
        up = self._state == LinkState.UP
        columns.put("link_state", self._state)
        columns.put("reachable", self._reach, Why.NEVER_READ)
        columns.put("age_seconds", age, Why.NEVER_READ)
        columns.put("age_intervals", np.where(up, age / self._interval, np.nan), Why.NOT_JUDGED)
        columns.put("interval_seconds", self._interval)
        columns.put("reading_seconds", self._took, Why.NEVER_READ)
        columns.put("replaced", self._replaced, np.where(np.isnan(age), Why.NEVER_READ, Why.NOT_PROVIDED))
        table.read_at[:count] = self._good_at
        table.interval[:count] = self._interval
        table.other_reads[:count] = self._frames
