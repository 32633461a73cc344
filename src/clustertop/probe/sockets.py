"""Group ``sockets``: TCP bytes and round trips by peer address, since the probe began.

By the kernel's own answer (:mod:`.sockdiag`); where it refuses, by ``ss``; where that is not to be had either, only
who is connected is known, from /proc/net/tcp. What a socket moved between the last look at it and its end is in its
last words, where the kernel lets them be heard; where it does not, fact ``sockets`` says so.
"""

import errno
import time

from .files import Reading, reason
from .peers import MAX_SOCKETS, Peers
from .sockdiag import Diag
from .socktext import Ss, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from .files import Call, Tree

WAYS = ["sock_diag", "ss", "proc"]
RETRY_SECONDS = {"sock_diag": 600.0, "ss": 60.0}
"""How long a way is not tried again: the kernel after it refused, ``ss`` after it failed."""
SHARE = 0.01
"""Of a core: looks that cost more are made less often."""
MAX_SECONDS = 60.0
UNHEARD = "short-lived sockets not counted"
_REFUSED = frozenset((
    errno.EPERM, errno.EACCES, errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT,
    errno.EOPNOTSUPP, errno.ESOCKTNOSUPPORT,
))  # fmt: skip


class Sockets(object):
    """Reads table ``peer``.

    *ways* are what may be asked, best first; None: all of :data:`WAYS`.
    """

    def __init__(self, tree: "Tree", call: "Call", ways: "Optional[List[str]]" = None) -> None:
        self._tree = tree
        # What this machine's kernel says is not about another root.
        self._ways = list(ways or WAYS) if tree.root == "" else WAYS[-1:]
        self._diag = Diag(call)
        self._ss = Ss(call)
        self._peers = Peers()
        self._refused: "Dict[str, float]" = {}
        """Until when a way is not tried again."""
        self._why: "Dict[str, str]" = {}
        self._families: "Tuple[int, ...]" = (0,)
        self._costs: "List[float]" = []
        self.least_seconds = 0.0
        """Looks are made no more often."""

    def read(self, now: float) -> Reading:
        """Return the reading of this moment; *now* is the monotonic clock.

        Raises:
            OSError, ValueError: the kernel did not answer this time, or not in whole messages.
        """
        cpu = _cpu()
        for way in self._ways:
            if now < self._refused.get(way, now):
                continue
            self._peers.begin(round(now, 3))
            try:
                {"sock_diag": self._by_kernel, "ss": self._by_ss, "proc": self._by_proc}[way]()
            except OSError as error:
                if way == "sock_diag" and error.errno not in _REFUSED:
                    raise
                self._why[way] = reason(error) if way == "sock_diag" else error.strerror or reason(error)
                # The last way of all is tried each time.
                if way != self._ways[-1]:
                    self._refused[way] = now + RETRY_SECONDS[way]
                continue
            self._peers.end()
            self._cost(_cpu() - cpu + (self._ss.seconds if way == "ss" else 0.0))
            return Reading({"peer": self._peers.table()}, facts={"sockets": self._words(way)})
        if self._tree.root:
            return Reading({}, "off")
        return Reading({}, "error", "; ".join("{}: {}".format(way, self._why[way]) for way in self._ways)[:200])

    def close(self) -> None:
        """Close the socket that listens."""
        self._diag.close()

    def _by_kernel(self) -> None:
        diag, peers = self._diag, self._peers
        diag.listen()
        for rows in diag.ended():
            peers.ended(rows)
        for family in self._families:
            for rows in diag.dump(family):
                peers.take(rows)
        for rows in diag.ended():
            peers.ended(rows)

    def _by_ss(self) -> None:
        for rows in self._ss.rows():
            self._peers.take(rows)

    def _by_proc(self) -> None:
        self._peers.counted = False
        for rows in listed(self._tree):
            self._peers.take(rows)

    def _words(self, way: str) -> str:
        """Return how sockets are read and what is not in the figures."""
        before = self._ways[: self._ways.index(way)]
        tried = ["{}: {}".format(one, self._why[one]) for one in before if one in self._why]
        words = {"proc": "/proc/net/tcp"}.get(way, way) + (" ({})".format("; ".join(tried)) if tried else "")
        if not self._peers.counted:
            return words + "; bytes unknown"
        if way != "sock_diag":
            words += "; " + UNHEARD
        elif self._diag.deaf:
            words += "; {} ({})".format(UNHEARD, self._diag.deaf)
        elif self._diag.lost:
            words += "; some " + UNHEARD
        if self._peers.overfull:
            words += "; only {} sockets followed".format(MAX_SOCKETS)
        return words

    def _cost(self, seconds: float) -> None:
        """Have looks made as seldom as keeps them below :data:`SHARE`; one dear look is no reason yet."""
        self._costs = (self._costs + [seconds])[-3:]
        self.least_seconds = min(MAX_SECONDS, min(self._costs) / SHARE)


def _cpu() -> float:
    """Return the CPU seconds of this thread."""
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
