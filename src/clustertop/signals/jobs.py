"""Which job a node and a GPU belong to.

A node's jobs are those of its Slurm cgroups (``jobs`` of table ``node``); where it has exactly one, its GPUs are that
job's. Where the compute processes of a node are listed, a GPU's job is that of its processes. Names: a Slurm job's
number, ``container:<id>``, ``user:<name>``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from clustertop.model import Attr

NO_JOB, SEVERAL, UNKNOWN = -1, -2, -3
"""In place of a job's number: idle; shared by several; not known."""


@dataclass(frozen=True, eq=False, slots=True)
class Jobs:
    """The jobs of a fleet; the same object for as long as nothing changes."""

    names: tuple[str, ...]
    """Slurm jobs by number, then the others by name."""
    of_node: tuple[tuple[str, ...] | None, ...]
    """Per node: its Slurm jobs; None where they are not known."""
    node: NDArray[np.int32]
    """[nodes] index in ``names`` of the one job of the node, or NO_JOB, SEVERAL, UNKNOWN."""
    gpu: NDArray[np.int32]
    """[GPU rows] index in ``names``, or NO_JOB, SEVERAL, UNKNOWN."""
    members: tuple[NDArray[np.intp], ...]
    """Per job: its nodes, ascending."""

    def name(self, code: int) -> str:
        """The job's name; empty for what is no job's."""
        return self.names[code] if code >= 0 else ""


def nothing(nodes: int = 0, gpus: int = 0) -> Jobs:
    """Jobs of which nothing is known."""
    return Jobs((), (None,) * nodes, np.full(nodes, UNKNOWN, np.int32), np.full(gpus, UNKNOWN, np.int32), ())


def told(attrs: Mapping[str, Attr]) -> tuple[str, ...] | None:
    """The Slurm jobs that a node's attributes name; None where they do not say."""
    jobs = attrs.get("jobs")
    if not isinstance(jobs, list):
        return None
    return tuple(dict.fromkeys(job for job in jobs if _is_number(job)))


def more(attrs: Mapping[str, Attr]) -> int:
    """How many jobs a node has beyond those it names."""
    count = attrs.get("jobs_more")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def of_process(attrs: Mapping[str, Attr]) -> tuple[str, str]:
    """(kind, name) of the job of a process; empty strings where that is not known."""
    job, kind = attrs.get("job"), attrs.get("job_kind")
    if not isinstance(job, str) or not job or kind not in {"slurm", "container", "user"}:
        return "", ""
    if kind == "slurm":
        return ("slurm", job) if _is_number(job) else ("", "")
    return str(kind), f"{kind}:{'_'.join(job.split())}"


def _is_number(job: str) -> bool:
    """Slurm's job ids are numbers; what else a node names is none."""
    return job.isascii() and job.isdecimal() and len(job) <= 20


def work_out(
    node_attrs: Sequence[Mapping[str, Attr]], gpu_node: NDArray[np.int32], gpu_keys: Sequence[str],
    processes: Iterable[tuple[int, Mapping[str, Attr]]],
) -> Jobs:
    """Return who belongs to what.

    Args:
        node_attrs: attributes of each node's own row.
        gpu_node: [GPU rows] node of each GPU.
        gpu_keys: key of each GPU.
        processes: (node, attributes) of each compute process that is listed now.
    """
    of_node = tuple(told(attrs) for attrs in node_attrs)
    shared = [jobs is not None and len(jobs) + more(attrs) > 1
              for jobs, attrs in zip(of_node, node_attrs, strict=True)]
    on_gpu: dict[tuple[int, str], dict[str, set[str]]] = {}
    for node, attrs in processes:
        kind, name = of_process(attrs)
        if name:
            on_gpu.setdefault((node, str(attrs.get("gpu"))), {}).setdefault(kind, set()).add(name)
    found = {job for jobs in of_node for job in jobs or ()}
    found.update(name for kinds in on_gpu.values() for names in kinds.values() for name in names)
    names = tuple(sorted(found, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)))
    code = {name: number for number, name in enumerate(names)}
    node_code = np.array(
        [UNKNOWN if jobs is None else SEVERAL if many else code[jobs[0]] if jobs else NO_JOB
         for jobs, many in zip(of_node, shared, strict=True)], np.int32)
    gpu = node_code[gpu_node] if len(gpu_node) else np.empty(0, np.int32)
    # Of a node that is shared nothing is known about one GPU, until its processes tell.
    gpu = np.where(gpu == SEVERAL, UNKNOWN, gpu).astype(np.int32)
    members: list[set[int]] = [set() for _ in names]
    for node, jobs in enumerate(of_node):
        for job in jobs or ():
            members[code[job]].add(node)
    if on_gpu:
        rows = {(int(node), key): row for row, (node, key) in enumerate(zip(gpu_node, gpu_keys, strict=True))}
        for place, kinds in on_gpu.items():
            row = rows.get(place)
            if row is None:
                continue
            # A daemon of root beside a job is not what the GPU was given to.
            mine = kinds.get("slurm") or (set() if gpu[row] >= 0 else kinds.get("container") or kinds.get("user"))
            if mine:
                gpu[row] = code[next(iter(mine))] if len(mine) == 1 else SEVERAL
                for name in mine:
                    members[code[name]].add(place[0])
    return Jobs(names, of_node, node_code, gpu, tuple(np.array(sorted(nodes), np.intp) for nodes in members))
