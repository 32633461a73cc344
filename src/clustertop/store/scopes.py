"""The scopes of table ``traffic`` and their rows: the fleet, jobs, configured groups, leaves. One row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals.jobs import UNKNOWN
from clustertop.signals.traffic_table import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.model import Attr, NodeInfo
    from clustertop.signals.jobs import Jobs
    from clustertop.store.history import History
    from clustertop.store.table import Table

MOST_JOBS = 800
"""More jobs than this have no row: a table has room for so many things of one owner."""
MOST_GROUPS = 100


@dataclass(frozen=True, eq=False, slots=True)
class Scope:
    """The fleet, a job or a group."""

    kind: str
    name: str
    members: NDArray[np.intp]
    judged: bool
    """Whether the 30 % rule is about it: no narrower scope is known for some of its nodes."""
    shared: bool = False
    """Other jobs run on its nodes, too: whose bytes they are is not known."""

    @property
    def key(self) -> str:
        """Of its row."""
        return key_of(self.kind, self.name)


def scopes(nodes: Sequence[NodeInfo], jobs: Jobs) -> list[Scope]:
    """Return the scopes of a fleet: its jobs, its groups, and all of it, the fleet first.

    Jobs are judged; of nodes of which no job is known their groups are, and the fleet where it has neither.
    """
    of_jobs = np.zeros(len(nodes), np.intp)
    for members in jobs.members:
        of_jobs[members] += 1
    homeless = (of_jobs == 0) & (jobs.node[: len(nodes)] == UNKNOWN)
    found = [Scope("job", name, members, True, bool((of_jobs[members] > 1).any()))
             for name, members in zip(jobs.names[:MOST_JOBS], jobs.members, strict=False)]
    groups: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for group in node.groups:
            if group not in {node.rack, node.leaf}:
                groups.setdefault(group, []).append(number)
    for name, listed in sorted(groups.items())[:MOST_GROUPS]:
        found.append(Scope("group", name, np.array(listed, np.intp), bool(homeless[listed].any())))
    alone = not any(one.judged for one in found)
    return [Scope("fleet", "", np.arange(len(nodes)), alone), *found]


class Rows:
    """Rows of one owner's table, by key. What is gone gives its row to what comes."""

    def __init__(self, table: Table, owner: int, history: History) -> None:
        self._table, self._owner, self._history = table, owner, history
        self.of: dict[str, int] = {}
        self._free: list[int] = []
        self._freed = 0

    def keep(self, wanted: Iterable[str]) -> None:
        """Have a row for each of *wanted*, and no other."""
        keys = dict.fromkeys(wanted)
        for key in [key for key in self.of if key not in keys]:
            row = self.of.pop(key)
            # An alert on what is over ends with it: the row's key changes now, not when another takes it.
            self._freed += 1
            self._table.rename(row, f"-/{self._freed}", {})
            self._table.present[row] = False
            self._free.append(row)
        for key in keys:
            if key in self.of:
                continue
            if self._free:
                row = self._free.pop()
                self._table.rename(row, key, {})
                self._history.forget(self._table.spec.name, np.array([row], np.intp))
            elif (made := self._table.add(self._owner, key, {})) is not None:
                row = made
            else:
                continue
            self.of[key] = row

    def say(self, key: str, attrs: Mapping[str, Attr]) -> None:
        """Give a row its attributes, where they are news."""
        row = self.of.get(key)
        if row is not None and self._table.attrs[row] != attrs:
            self._table.say(row, attrs)
