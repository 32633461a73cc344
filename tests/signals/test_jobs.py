"""Who belongs to which job, and what is compared within one."""

from __future__ import annotations

import numpy as np
import pytest

from clustertop.jobs import medians
from clustertop.signals import gpu
from clustertop.signals.columns import Columns
from clustertop.signals.jobs import NO_JOB, SEVERAL, UNKNOWN, Jobs, work_out

GPU_NODE = np.array([0, 0, 1, 1, 2], np.int32)
KEYS = ["a0", "a1", "b0", "b1", "c0"]


def made(*nodes: dict[str, object], processes: tuple[tuple[int, dict[str, object]], ...] = ()) -> Jobs:
    owner = np.array([node for node in GPU_NODE.tolist() if node < len(nodes)], np.int32)
    return work_out(list(nodes), owner, KEYS[: len(owner)], processes)  # type: ignore[arg-type]


def of_gpus(jobs: Jobs) -> list[str | int]:
    return [jobs.name(code) or code for code in jobs.gpu.tolist()]


def test_a_node_with_one_job_is_that_jobs_and_so_are_its_gpus() -> None:
    jobs = made({"jobs": ["100"]}, {"jobs": ["99"]}, {"jobs": []})
    assert jobs.names == ("99", "100"), "by number, not by letters"
    assert of_gpus(jobs) == ["100", "100", "99", "99", NO_JOB]
    assert [nodes.tolist() for nodes in jobs.members] == [[1], [0]]


def test_a_shared_node_belongs_to_all_its_jobs_and_its_gpus_to_none() -> None:
    jobs = made({"jobs": ["7", "8"]}, {"jobs": ["8"], "jobs_more": 3}, {})
    assert jobs.node.tolist() == [SEVERAL, SEVERAL, UNKNOWN]
    assert of_gpus(jobs) == [UNKNOWN] * 5
    assert [nodes.tolist() for nodes in jobs.members] == [[0], [0, 1]]
    assert jobs.of_node == (("7", "8"), ("8",), None)


def test_processes_tell_apart_the_gpus_of_a_shared_node() -> None:
    def process(key: str, job: str, kind: str = "slurm") -> tuple[int, dict[str, object]]:
        return 0, {"gpu": key, "job": job, "job_kind": kind, "pid": 1}

    jobs = made({"jobs": ["7", "8"]}, {"jobs": ["8"]}, processes=(process("a0", "7"), process("a1", "8")))
    assert of_gpus(jobs) == ["7", "8", "8", "8"]
    jobs = made({"jobs": ["7", "8"]}, processes=(process("a0", "7"), process("a0", "8")))
    assert of_gpus(jobs) == [SEVERAL, UNKNOWN]


@pytest.mark.parametrize(("node", "kind", "right"), [
    ({}, "container", "container:5e5e5e"),
    ({}, "user", "user:5e5e5e"),
    ({"jobs": []}, "user", "user:5e5e5e"),
    ({"jobs": ["12"]}, "user", "12"),
    ({"jobs": ["12"]}, "something else", "12"),
    ({}, "something else", UNKNOWN),
])
def test_what_is_no_slurm_job_counts_only_where_the_node_has_none(
    node: dict[str, object], kind: str, right: str | int
) -> None:
    jobs = made(node, processes=((0, {"gpu": "a1", "job": "5e5e5e", "job_kind": kind}),))
    assert of_gpus(jobs)[1] == right


def test_attributes_that_are_not_what_they_should_be_are_not_known() -> None:
    assert made({"jobs": ["", "x", "[b]7[/b]", "-3", "7 8", "\u0667", "1" * 21, "12"]}).of_node == (("12",),)
    for attrs in ({"jobs": "4711"}, {"jobs": 4711}, {"jobs": None}, {"jobs_error": "EACCES"}):
        assert made(attrs).node.tolist() == [UNKNOWN]


def stalled(node: list[int], job: list[int] | None, watts: list[float], fresh: list[bool] | None = None) -> list[float]:
    """Column ``busy_but_stalled`` of GPUs that are all fully busy."""
    t = Columns.empty(gpu.TABLE, len(node))
    t.row_node = np.array(node, np.int32)
    t.put("utilization_ratio", np.ones(len(node)))
    t.put("power_watts", np.array(watts))
    t.put("power_limit_watts", np.full(len(node), 700.0))
    gpu.derive(t, np.zeros(len(node), np.bool_), None, None if job is None else np.array(job, np.int32),
               None if fresh is None else np.array(fresh))
    return [float(value) for value in t.col("busy_but_stalled")]


def test_stalled_is_judged_among_the_gpus_of_the_same_job() -> None:
    # Two nodes of two GPUs each: alone neither can be judged, as one job they can.
    watts = [600.0, 610.0, 605.0, 140.0]
    assert np.isnan(stalled([0, 0, 1, 1], None, watts)).all()
    assert stalled([0, 0, 1, 1], [0, 0, 0, 0], watts) == [0.0, 0.0, 0.0, 1.0]


def test_on_a_shared_node_an_easy_job_is_not_stalled_beside_a_heavy_one() -> None:
    node, watts = [0] * 6, [600.0, 610.0, 605.0, 150.0, 155.0, 148.0]
    assert stalled(node, None, watts)[3:] == [1.0, 1.0, 1.0]
    assert stalled(node, [0, 0, 0, 1, 1, 1], watts) == [0.0] * 6
    assert stalled(node, [UNKNOWN] * 6, watts)[3:] == [1.0, 1.0, 1.0], "not known: the node's"


def test_a_silent_nodes_last_words_are_nobodys_peers() -> None:
    node, watts = [0, 0, 1, 1, 1], [150.0, 600.0, 600.0, 600.0, 600.0]
    assert stalled(node, [0] * 5, watts)[0] == 1.0
    assert np.isnan(stalled(node, [0] * 5, watts, [True, True, False, False, False])[0])


def test_medians_are_those_of_the_known_values() -> None:
    code = np.array([1, 0, 1, -1, 1, 2], np.int32)
    values = np.array([0.2, np.nan, 0.9, 0.5, 0.4, 0.7])
    assert np.array_equal(medians(code, values, 4), [np.nan, 0.4, 0.7, np.nan], equal_nan=True)
