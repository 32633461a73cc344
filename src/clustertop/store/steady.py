"""What meters say of the same bytes, over a minute: by then it does not matter which was read a little earlier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clustertop.signals.traffic import DISAGREEMENT

if TYPE_CHECKING:
    from collections.abc import Collection

    Three = tuple[float, float, float]

STEADY_SECONDS = 60.0
AGREED_AGAIN = 0.15
"""A meter that was unreliable is relied on again where it differs by no more than this."""


class Steady:
    """Running means by scope and meter, and which scopes' sockets are not relied on."""

    def __init__(self) -> None:
        self._means: dict[tuple[str, str], tuple[float, float, Three]] = {}
        """When they began, when they were brought up to date, and the means."""
        self._doubtful: set[str] = set()
        self.now = 0.0
        """Our monotonic clock; to be set before each round."""

    def mean(self, scope: str, meter: str, values: Three) -> Three:
        """Take the newest *values* of a scope in; returns their means, from the first ones on."""
        began, at, means = self._means.get((scope, meter), (self.now, self.now, values))
        passed, since = max(self.now - at, 0.0), self.now - began
        # As long as it is young, the mean of all: the first values are from before the meters saw the same.
        part = max(1 - math.exp(-passed / STEADY_SECONDS), passed / since if since > 0 else 0.0)
        one, two, three = (mean + part * (value - mean) for mean, value in zip(means, values, strict=True))
        means = one, two, three
        self._means[scope, meter] = began, self.now, means
        return means

    def doubtful(self, scope: str, apart: float | None) -> bool:
        """Whether sockets that are so much *apart* from a stronger meter are not relied on; None: there is none."""
        limit = AGREED_AGAIN if scope in self._doubtful else DISAGREEMENT
        if apart is not None and apart > limit:
            self._doubtful.add(scope)
            return True
        self._doubtful.discard(scope)
        return False

    def keep(self, scopes: Collection[str]) -> None:
        """Forget all but these."""
        self._doubtful.intersection_update(scopes)
        self._means = {key: mean for key, mean in self._means.items() if key[0] in scopes}
