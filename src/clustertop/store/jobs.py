"""The fleet's jobs, worked out again only when a node, a GPU or a listed process changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals import jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.store.table import Table


class JobIndex:
    """Keeps :class:`clustertop.signals.jobs.Jobs` of three tables."""

    def __init__(self, nodes: Table, gpus: Table, processes: Table) -> None:
        self._tables = nodes, gpus, processes
        self._seen: object = None
        self._made = jobs.nothing()

    def of(self, listed: Sequence[str | None]) -> jobs.Jobs:
        """The jobs now; *listed* says per node, by not being None, whether its processes are listed now."""
        nodes, gpus, processes = self._tables
        asked = frozenset(node for node, note in enumerate(listed) if note is not None)
        seen = nodes.listed, gpus.listed, processes.listed, asked
        if seen != self._seen:
            self._seen = seen
            rows = np.flatnonzero(processes.present[: processes.rows]).tolist() if asked else ()
            self._made = jobs.work_out(
                nodes.attrs[: len(listed)], gpus.node[: gpus.rows], gpus.keys,
                ((node, processes.attrs[row]) for row in rows if (node := int(processes.node[row])) in asked))
        return self._made
