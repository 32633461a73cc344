"""NCCL's start on the nodes of a job: the exit signal, and what an alert says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clustertop import plain
from clustertop.probe.frames import Err
from clustertop.rules.exits import Verdict, exits
from nodes import Fleet, gpus, table

if TYPE_CHECKING:
    from clustertop.probe.frames import Table


def log(*, comm: str = "0xc1", **cells: Any) -> Table:
    """A log with one communicator."""
    usual = {"ranks": 16, "local_ranks": 8, "complete": 8, "init": 2.5, "init_by": 0, "init_rank": 3, "init_time": 490.0,
             "pending": 0, "channels": 48, "network_channels": 16, "socket_channels": 0, "direct_channels": 16, "running": 8}
    key = f"/l/a {comm}/16"
    return table({"/l/a": {"lines": 90, "warnings": 0}, key: {**usual, **cells}},
                 {"/l/a": {"file": "/l/a"}, key: {"file": "/l/a", "comm": comm, "network": ["IB"]}})


def fleet(*logs: Table | None) -> Fleet:
    made = Fleet(len(logs))
    made.now += 1.0
    for node, one in enumerate(logs):
        made.say(node, node=table({"": {"ncpu": 8}}, {"": {"jobs": ["77"]}}), gpu=gpus({"util": 99}),
                 **({"nccl": one} if one is not None else {}))
    made.tick()
    return made


def verdict(made: Fleet, **more: Any) -> Verdict:
    (job,) = [one for one in exits(made.view, **more) if one.kind == "job"]
    return next(one for one in job.verdicts if one.signal == "nccl_init")


def test_the_longest_of_its_nodes_is_held_against_the_limit() -> None:
    said = verdict(fleet(log(), log(init=23.0, init_rank=9)))
    assert (said.answer, said.value) == ("yes", 23.0)
    assert said.note == "by NCCL, 11 s ago; 2/2 nodes"
    said = verdict(fleet(log(), log(init=15.0)))
    assert (said.answer, said.value) == ("no", 15.0)


def test_a_node_that_does_not_tell_is_never_a_no() -> None:
    said = verdict(fleet(log(), log(init=Err("not timed"), init_by=None, init_rank=None)))
    assert (said.answer, said.value) == ("not measured", None)
    assert said.note == "too few NCCL logs tell: 1/2 nodes, at most 2.5 s"
    # Beyond the limit is beyond it, whatever the others took.
    assert verdict(fleet(log(init=61.0), None)).answer == "yes"


@pytest.mark.parametrize(("logs", "why"), [
    ((None, None), "no NCCL log is read"),
    ((table({"/l/a": {"lines": 0}}), None), "no communicator in the NCCL logs of its nodes"),
    ((log(running=0), log(running=0)), "no communicator in the NCCL logs of its nodes"),
    ((log(init=Err("not timed")),), "the NCCL logs of its nodes do not time it"),
])
def test_what_is_not_measured_says_why(logs: tuple[Table | None, ...], why: str) -> None:
    said = verdict(fleet(*logs))
    assert (said.answer, said.note) == ("not measured", why)


def test_an_init_that_has_not_completed_counts_so_far() -> None:
    made = fleet(log(init=Err("not complete"), complete=6, pending=2, pending_time=481.0, init_time=481.0))
    said = verdict(made)
    assert (said.answer, said.value, said.note) == ("yes", 20.0, "not complete yet; 1/1 nodes")
    (alert,) = [one for one in made.core.snapshot.alerts if one.rule == "nccl_init"]  # type: ignore[union-attr]
    assert alert.message == "NCCL init not complete after 20 s: 2 of 8 ranks here, of 16 in all"


def two(first: Table, second: Table) -> Table:
    """Both logs in one table."""
    rows = {key: {name: one.cells[at * len(one.rows) + number] for at, name in enumerate(one.columns)}
            for one in (first, second) for number, (key, _) in enumerate(one.rows)}
    return table(rows, {key: attrs for one in (first, second) for key, attrs in one.rows})


def test_the_largest_communicator_is_the_job() -> None:
    said = verdict(fleet(two(log(comm="0xc2", init=4.0, ranks=2), log())))
    assert (said.answer, said.value) == ("no", 2.5)


def test_a_smaller_one_that_was_slow_in_the_last_hour_counts() -> None:
    slow = {"comm": "0xc2", "init": 40.0, "ranks": 2}
    said = verdict(fleet(two(log(**slow), log())))
    assert (said.answer, said.value) == ("yes", 40.0)
    # The job's own is not timed: that is no "no", and what is known to be slow is a "yes".
    said = verdict(fleet(two(log(**slow), log(init=Err("not timed")))))
    assert (said.answer, said.value, said.note) == ("yes", 40.0, "by NCCL, 11 s ago; 0/1 nodes")
    assert verdict(fleet(two(log(**slow, init_time=-3600.0), log()))).answer == "no"


def test_lines_of_both_rules() -> None:
    made = fleet(log(init=61.4, init_rank=6, socket_channels=4, direct_channels=0))
    said = {one.rule: one.message for one in made.core.snapshot.alerts}  # type: ignore[union-attr]
    assert said["nccl_init"] == "NCCL init took 61 s (by NCCL): rank 6, the longest of 8 here, of 16 in all"
    assert said["nccl_transport"] == "NCCL uses sockets where RDMA is meant: 4 of 16 network channels"
    assert "yes (61 s; by NCCL, 11 s ago; 1/1 nodes)" in plain.exit_lines(exits(made.view))[1]
