"""Which Slurm jobs run on the node: from the names of its cgroup directories, without NVML and without a process list.

Layouts: slurm.schedmd.com/cgroup_v2.html (``system.slice/slurmstepd.scope/job_N``) and slurm.schedmd.com/cgroups.html
(v1: ``<controller>/slurm/uid_N/job_N``). A node that runs several slurmd has its node's name in both:
``<name>_slurmstepd.scope`` and ``slurm_<name>``.
"""

import re

from .files import reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set

    from .files import Tree
    from .frames import Attr

ROOT = "sys/fs/cgroup"
EVERY_SECONDS = 10.0
SEARCH_SECONDS = 60.0
"""Between two searches for where slurmd has its directories."""
CONTROLLERS = ("freezer", "memory", "cpuset", "devices")
"""Of v1, in the order in which Slurm's plugins are likely to use one."""
SLICE = ROOT + "/system.slice"
SCOPE = "slurmstepd.scope"
MAX_JOBS = 32
"""Most jobs that are named; of more, only how many there are."""
_JOB = re.compile(r"^job_([0-9]{1,20})$")


class Jobs(object):
    """The jobs of a node, looked for every 10 s: one or two directories are listed."""

    def __init__(self, tree: "Tree") -> None:
        self._tree = tree
        self._searched = -SEARCH_SECONDS
        self._looked = -EVERY_SECONDS
        self._unified: "List[str]" = []
        self._classic: "List[str]" = []
        self._attrs: "Dict[str, Attr]" = {}

    def attrs(self, now: float) -> "Dict[str, Attr]":
        """Return the node's attributes: ``jobs`` (ids, sorted), ``jobs_more`` (how many were left out).

        ``jobs_error`` says why they could not be listed. Without a slurmd there is none of them.
        """
        if now - self._searched >= SEARCH_SECONDS:
            self._searched = now
            self._search()
        if now - self._looked >= EVERY_SECONDS:
            self._looked = now
            self._attrs = self._look()
        return self._attrs

    def _search(self) -> None:
        self._unified = [SLICE + "/" + name for name in self._names(SLICE) if _ends(name, SCOPE)]
        self._classic = []
        if self._unified:
            return
        for controller in CONTROLLERS:
            base = ROOT + "/" + controller
            self._classic = [
                base + "/" + name for name in self._names(base) if name == "slurm" or name.startswith("slurm_")
            ]
            if self._classic:
                return

    def _look(self) -> "Dict[str, Attr]":
        if not self._unified and not self._classic:
            return {}
        found: "Set[int]" = set()
        problem = ""
        folders = list(self._unified)
        for base in self._classic:
            folders += [base + "/" + name for name in self._names(base) if name.startswith("uid_")]
        for folder in folders:
            try:
                names = self._tree.names(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                problem = reason(error)
                continue
            for name in names:
                number = _number(name)
                if number is not None and number not in found and self._lives(folder + "/" + name):
                    found.add(number)
        jobs = sorted(found)
        attrs: "Dict[str, Attr]" = {"jobs": [str(number) for number in jobs[:MAX_JOBS]]}
        if len(jobs) > MAX_JOBS:
            attrs["jobs_more"] = len(jobs) - MAX_JOBS
        if problem:
            attrs["jobs_error"] = problem
            if not jobs:
                del attrs["jobs"]
        return attrs

    def _lives(self, folder: str) -> bool:
        """False where the kernel says that no process is left below *folder*; v1 does not say."""
        try:
            return b"populated 0" not in self._tree.read(folder + "/cgroup.events", 256)
        except OSError:
            return True

    def _names(self, name: str) -> "List[str]":
        try:
            return self._tree.names(name)
        except OSError:
            return []


def _ends(name: str, scope: str) -> bool:
    return name == scope or name.endswith("_" + scope)


def _number(name: str) -> "Optional[int]":
    """Return the job's number of ``job_4711``; None for any other name."""
    found = _JOB.match(name)
    return int(found.group(1)) if found else None
