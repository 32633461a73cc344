"""When to try again: full jitter under a growing ceiling, so that a rack that returns is not met by a herd."""

from __future__ import annotations

import random


class Backoff:
    """Delays that are drawn from 0 up to a ceiling which doubles with each failure.

    Args:
        first_seconds: the first ceiling.
        most_seconds: the highest ceiling.
        rng: where the jitter comes from.
    """

    __slots__ = ("_ceiling", "_first", "_most", "_rng", "failures")

    def __init__(self, first_seconds: float, most_seconds: float, rng: random.Random | None = None) -> None:
        self._first = first_seconds
        self._most = max(first_seconds, most_seconds)
        self._ceiling = first_seconds
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self.failures = 0
        """Failures since the last good frame."""

    def next(self) -> float:
        """Return the seconds to wait after one more failure."""
        self.failures += 1
        ceiling = self._ceiling
        self._ceiling = min(self._most, ceiling * 2)
        return self._rng.uniform(0.0, ceiling)

    def reset(self) -> None:
        """A good frame arrived: the next failure is a first one."""
        self.failures = 0
        self._ceiling = self._first
