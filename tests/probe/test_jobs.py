"""Which Slurm jobs a node says it has: cgroup directories of both versions, listed seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import trees
from clustertop.probe.files import Call, Tree
from clustertop.probe.jobs import EVERY_SECONDS, MAX_JOBS, Jobs
from probe.harness import VERSIONS, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from probe.harness import Run

SCOPE = "sys/fs/cgroup/system.slice/slurmstepd.scope"


def attrs(tree: trees.NodeTree, now: float = 100.0) -> dict[str, object]:
    """What the group says of *tree* at first sight."""
    return dict(Jobs(Tree(str(tree.root), Call())).attrs(now))


@pytest.fixture
def tree(tmp_path: Path) -> trees.NodeTree:
    return trees.NodeTree(tmp_path / "node")


def test_version_2_names_jobs_by_their_directories(tree: trees.NodeTree) -> None:
    for name in ("job_9107", "job_981", "system", "job_", "job_12x", "job_-3", "jobs_7"):
        tree.write(f"{SCOPE}/{name}/cgroup.events", "populated 1\nfrozen 0")
    tree.write(f"{SCOPE}/cgroup.procs", "")
    assert attrs(tree) == {"jobs": ["981", "9107"]}


def test_version_2_does_not_count_what_has_no_process_left(tree: trees.NodeTree) -> None:
    tree.write(f"{SCOPE}/job_5/cgroup.events", "populated 0\nfrozen 0")
    tree.write(f"{SCOPE}/job_6/cgroup.events", "populated 1\nfrozen 0")
    tree.directory(f"{SCOPE}/job_7")
    assert attrs(tree) == {"jobs": ["6", "7"]}


def test_version_1_has_users_between(tree: trees.NodeTree) -> None:
    tree.directory("sys/fs/cgroup/memory/slurm/uid_1001/job_44/step_0")
    tree.directory("sys/fs/cgroup/memory/slurm/uid_1002/job_45")
    tree.directory("sys/fs/cgroup/memory/slurm/system")
    assert attrs(tree) == {"jobs": ["44", "45"]}


@pytest.mark.parametrize("where", ["system.slice/gpu7_slurmstepd.scope", "freezer/slurm_gpu7/uid_0"])
def test_several_slurmd_on_one_node(tree: trees.NodeTree, where: str) -> None:
    tree.directory(f"sys/fs/cgroup/{where}/job_31")
    assert attrs(tree) == {"jobs": ["31"]}


def test_a_slurmd_without_a_job_is_idle_and_no_slurmd_is_not_known(tree: trees.NodeTree) -> None:
    assert attrs(tree) == {}
    tree.directory("sys/fs/cgroup/system.slice/ssh.service")
    assert attrs(tree) == {}
    tree.directory(f"{SCOPE}/system")
    assert attrs(tree) == {"jobs": []}


def test_of_very_many_jobs_the_rest_is_counted(tree: trees.NodeTree) -> None:
    for number in range(1, MAX_JOBS + 6):
        tree.directory(f"{SCOPE}/job_{number}")
    said = attrs(tree)
    assert said["jobs"] == [str(number) for number in range(1, MAX_JOBS + 1)]
    assert said["jobs_more"] == 5


def test_what_cannot_be_listed_says_why_and_is_not_idle(tree: trees.NodeTree) -> None:
    tree.directory("sys/fs/cgroup/system.slice")
    # A link to itself: its errno, ELOOP, is the same for root.
    (tree.root / SCOPE).symlink_to("slurmstepd.scope")
    assert attrs(tree) == {"jobs_error": "ELOOP"}


def test_the_directories_are_listed_every_ten_seconds_only(tree: trees.NodeTree) -> None:
    tree.directory(f"{SCOPE}/job_1")
    calls = Call()
    jobs = Jobs(Tree(str(tree.root), calls))
    assert jobs.attrs(100.0)["jobs"] == ["1"]
    tree.directory(f"{SCOPE}/job_2")
    calls.what = ""
    assert jobs.attrs(100.0 + EVERY_SECONDS - 0.5)["jobs"] == ["1"]
    assert calls.what == "", "nothing was listed"
    assert jobs.attrs(100.0 + EVERY_SECONDS)["jobs"] == ["1", "2"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_that_begins_and_ends_is_told(
    version: str, start: Callable[..., Run], tree: trees.NodeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.host()
    tree.directory(f"{SCOPE}/job_4711/step_0")
    run = start(interpreter(version), root=str(tree.root), groups=["host"])
    values = run.until(lambda values: "node" in values.rows)
    assert values.attrs["node"][""] == {"jobs": ["4711"]}
