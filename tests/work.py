"""What something costs, counted instead of timed: a count is the same on a busy machine."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, *work* calls."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        if event in {"call", "c_call"}:
            count += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


class _TooMany(BaseException):
    """Nothing in between may take it for an error of its own."""


def lines(work: Callable[[], object], most: int) -> int:
    """How many lines of Python *work* goes through; it is ended, and the test fails, at more than *most*."""
    count = 0

    def traced(frame: object, event: str, argument: object) -> object:
        nonlocal count
        if event == "line":
            count += 1
            if count > most:
                raise _TooMany
        return traced

    before = sys.gettrace()
    sys.settrace(traced)  # type: ignore[arg-type]
    try:
        work()
    except _TooMany:
        raise AssertionError(f"more than {most} lines were gone through") from None
    finally:
        sys.settrace(before)
    return count


def growth(work: Callable[[str], object], text: str, times: int = 16) -> float:
    """How many times dearer *text* is than its first part, *times* shorter: about *times*, or its square.

    For what a regular expression does, whose steps nobody counts. Of several tries the least is taken, in this thread's
    own time: what is dear is dear each time, and what somebody else does is not ours.
    """
    short = text[: len(text) // times]

    def spent(what: str, rounds: int) -> float:
        begun = time.thread_time()
        for _ in range(rounds):
            work(what)
        return (time.thread_time() - begun) / rounds

    found = []
    for _ in range(5):
        found.append(spent(text, times) / max(spent(short, times * times), 1e-9))
        if found[-1] < 2 * times:
            break
    return min(found)
