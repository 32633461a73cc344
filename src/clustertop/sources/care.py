"""What a BMC can bear: how a failure is told apart, and when the next attempt may come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from clustertop.sources.bmc_reading import BmcState

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from clustertop.sources.bmc_reading import BmcReading

MOST_SECONDS = 600.0
"""The longest wait after a device that does not answer, but where its interval is longer."""
AUTH_SECONDS = 300.0
"""The shortest wait after a refused password: another try soon may lock the account."""
AUTH_MOST_SECONDS = 3600.0


class BmcFailure(Exception):  # noqa: N818 - an outcome, as LinkFailure is
    """A poll brought nothing. *words* is one clean sentence without any secret."""

    def __init__(self, state: BmcState, words: str, *, wait_seconds: float = 0.0) -> None:
        super().__init__(words)
        self.state = state
        self.words = words
        self.wait_seconds = wait_seconds
        """What the BMC asks for, or what its timers need; 0: no particular time."""


class Source(Protocol):
    """One way to one BMC. Whoever calls it never calls it twice at once."""

    async def read(self, *, detail: bool) -> BmcReading:
        """Read it now; *detail* also what is read seldom. Raises BmcFailure."""
        ...

    async def slow(self, seconds: float) -> Mapping[str, Any]:
        """Do something that takes long, in at most *seconds*; returns fields of the reading that changed."""
        ...

    async def aclose(self) -> None:
        """Let go of it: no session, no child process, no file is left."""
        ...


def wait_seconds(failure: BmcFailure, failures: int, interval_seconds: float, rng: random.Random) -> float:
    """Seconds to the next attempt after the *failures*-th failure in a row: growing, never below the normal interval.

    Jitter is only ever added, so that a rack of BMCs that returns is not met all at once.
    """
    first, most = interval_seconds, MOST_SECONDS
    if failure.state in {BmcState.AUTH_FAILED, BmcState.FORBIDDEN}:
        first, most = max(interval_seconds, AUTH_SECONDS), AUTH_MOST_SECONDS
    return max(growing(first, most, failures), failure.wait_seconds) * (1.0 + rng.uniform(0.0, 0.1))


def growing(first: float, most: float, failures: int) -> float:
    """Seconds to wait after the *failures*-th failure in a row: *first*, then twice that each time, up to *most*.

    Where *first* is longer than *most*, it stays *first*.
    """
    return min(max(first, most), first * 2.0 ** min(max(failures - 1, 0), 16))
