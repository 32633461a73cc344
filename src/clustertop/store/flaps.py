"""Ports that go down and come back: how often, and for how long. Survives gaps in the readings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import Why
from clustertop.signals import rdma
from clustertop.store.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.signals.columns import Columns

FLAP_SECONDS = 25.0
"""A port that was down this long and is back has flapped; a shorter blink is one event."""
FLAP_DOWNS = 3
"""As has one that went down so often in the window."""
WINDOW_SECONDS = 600.0
"""So long is that window, and so long a flap stays visible after the port came back."""
_SAME_SECONDS = 60.0
"""The state and the counter tell of one and the same event within this time of each other."""


class PortFlaps:
    """State of every port's link over time, [rows]."""

    def __init__(self) -> None:
        self._rows = 0
        self._up = np.full(0, np.nan)
        self._down_at = np.full(0, np.nan)
        self._until = np.full(0, -np.inf)
        self._counter = np.zeros(0)
        self._downs = np.zeros(0)
        self._ahead = np.zeros(0)
        """Events that the counter has told of and the state has not; negative: the other way round."""
        self._event_at = np.full(0, -np.inf)
        self._window = Window(1, WINDOW_SECONDS, 60)

    def grow(self, rows: int) -> None:
        """Make room for *rows* ports."""
        more = rows - self._rows
        if more <= 0:
            return
        for name, fill in (("_up", np.nan), ("_down_at", np.nan), ("_until", -np.inf), ("_counter", 0.0),
                           ("_downs", 0.0), ("_ahead", 0.0), ("_event_at", -np.inf)):
            setattr(self, name, np.concatenate([getattr(self, name), np.full(more, fill)]))
        self._rows = rows

    def forget(self, rows: NDArray[np.intp]) -> None:
        """These rows stand for other ports now."""
        self._up[rows] = self._down_at[rows] = np.nan
        self._until[rows] = self._event_at[rows] = -np.inf
        self._counter[rows] = self._downs[rows] = self._ahead[rows] = 0.0
        self._window.forget(rows)

    def derive(
        self, t: Columns, read_at: NDArray[np.float64], fresh: NDArray[np.bool_], counter: NDArray[np.float64],
        now: float,
    ) -> None:
        """Fill the columns ``downs_last_ten_minutes`` and ``flap``.

        Args:
            t: the port table; its link states are worked out.
            read_at: [rows] when each was read, our monotonic clock.
            fresh: [rows] whether that is a new reading.
            counter: [rows] how much ``link_downed`` has grown since the port was first seen.
            now: our monotonic clock.
        """
        down = t.col("down") == 1
        up = t.col("link") == rdma.UP
        fell = fresh & down & (self._up == 1)
        counted = np.where(fresh, counter - self._counter, 0.0)
        self._counter = np.where(fresh, counter, self._counter)
        self._ahead[read_at > self._event_at + _SAME_SECONDS] = 0.0
        # One event told twice, by the counter and by the state, is one: whichever comes second finds it covered.
        new = np.maximum(counted - np.maximum(-self._ahead, 0.0), 0.0)
        self._ahead += counted
        seen = np.where(fell & (self._ahead <= 0), 1.0, 0.0)
        self._ahead -= fell
        self._event_at = np.where((counted > 0) | fell, read_at, self._event_at)
        self._downs += new + seen
        self._down_at = np.where(fell, read_at, self._down_at)
        back = fresh & up & ~np.isnan(self._down_at)
        long = back & (read_at - self._down_at >= FLAP_SECONDS)
        self._until[long] = read_at[long] + WINDOW_SECONDS
        self._down_at[back] = np.nan
        told = fresh & (up | down)
        self._up = np.where(told, up.astype(float), self._up)
        downs = self._window.growth(now, self._downs[None, :])[0]
        known = ~np.isnan(t.col("down"))
        t.put("downs_last_ten_minutes", np.where(known, downs, np.nan), Why.NOT_JUDGED)
        flap = (now < self._until) | (downs >= FLAP_DOWNS)
        # While it is down, that is the fault; whether it only flapped shows when it is back.
        t.put("flap", np.where(known & up, flap.astype(float), np.nan), Why.NOT_JUDGED)
