"""GPUs that the operator had let go, jobs and process lists in the store: unknown with a reason, never old, never lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from clustertop.model import LinkState, Why
from clustertop.probe.frames import Err, Table
from clustertop.probe.gpu import RELEASED
from clustertop.signals.jobs import SEVERAL, UNKNOWN
from clustertop.store.view import FRESH, STALE
from nodes import GPU, Fleet, gpus, ports, table

if TYPE_CHECKING:
    from collections.abc import Mapping

HELD: dict[str, Any] = {"gpu": {"st": "released", "e": RELEASED}}


def let_go(fleet: Fleet, node: int = 0, count: int = 2, seconds: float = 1.0) -> None:
    """One frame of a node whose GPUs are let go: its rows stay, every cell says why."""
    fleet.step(seconds, node, gpu=gpus(*[dict.fromkeys(GPU, Err(RELEASED))] * count), port=ports({}), states=HELD)


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet(1, expect_gpus=lambda node: 2)
    fleet.step(1.0, gpu=gpus({}, {"util": 40, "ecc_unc": 3}), port=ports({}))
    return fleet


def test_released_is_neither_old_nor_lost_nor_an_alert(fleet: Fleet) -> None:
    fleet.facts[0] = {"boot_id": "b0", "gpus_released": fleet.now - 30.0}
    before = list(fleet.seen)
    for _ in range(40):
        let_go(fleet)
    table, node = fleet["gpu"], fleet["node"]
    assert table.level.tolist() == [FRESH, FRESH]
    for name in ("presence", "utilization_ratio", "busy_but_stalled", "temperature_margin_celsius"):
        assert np.isnan(table.col(name)).all()
        assert table.why_of(name).tolist() == [Why.RELEASED, Why.RELEASED]
    assert table.reason("power_watts", 0) == "released by the operator"
    assert node.value("gpus_released_seconds", 0) == pytest.approx(40.0 + 30.0)
    assert node.value("gpus_known", 0) == 2
    assert node.value("gpus_present", 0) is None
    assert node.value("gpus_expected_missing", 0) is None
    assert fleet.seen == before, "no alert is raised, none is cleared"


def test_what_was_known_is_back_after_the_taking(fleet: Fleet) -> None:
    let_go(fleet)
    fleet.step(1.0, gpu=gpus({}, {"util": 40, "ecc_unc": 3}))
    table, node = fleet["gpu"], fleet["node"]
    assert table.value("utilization_ratio", 1) == pytest.approx(0.4)
    assert table.value("ecc_uncorrected_total", 1) == 3
    assert table.reason("ecc_corrected_total", 0) == "not provided"
    assert table.value("presence", 0) == 0
    assert node.value("gpus_released_seconds", 0) is None
    assert node.reason("gpus_released_seconds", 0) == "not released"
    assert node.value("gpus_present", 0) == 2


def test_a_new_probe_that_never_had_them_leaves_nothing_of_the_old_values(fleet: Fleet) -> None:
    """After a reconnect the probe begins without the GPUs and does not even know how many there are."""
    fleet.facts[0]["gpus_released"] = fleet.now
    let_go(fleet)
    fleet.link(0, LinkState.UNREACHABLE, "gone")
    fleet.step(20.0)
    assert fleet["gpu"].level.tolist() == [STALE, STALE]
    fleet.link(0, LinkState.UP)
    fleet.encoders[0] = type(fleet.encoders[0])()
    for number in range(1, 4):
        fleet.step(1.0, port=ports({}), states={"gpu": {**HELD["gpu"], "n": number}})
    table = fleet["gpu"]
    assert table.why_of("utilization_ratio").tolist() == [Why.RELEASED, Why.RELEASED]
    assert fleet["node"].value("gpus_released_seconds", 0) == pytest.approx(24.0)


def test_a_node_released_from_the_start_says_so_before_it_has_rows() -> None:
    fleet = Fleet(1)
    fleet.facts[0]["gpus_released"] = fleet.now - 60
    fleet.step(1.0, port=ports({}), states=HELD)
    assert len(fleet["gpu"]) == 0
    assert fleet["node"].value("gpus_released_seconds", 0) == pytest.approx(61.0)


@pytest.mark.parametrize("told", [None, "yesterday", True, -5.0, 1e18, float("inf")])
def test_a_time_that_makes_no_sense_is_that_of_the_first_sight(fleet: Fleet, told: object) -> None:
    if told is not None:
        fleet.facts[0]["gpus_released"] = told
    let_go(fleet)
    let_go(fleet, seconds=7.0)
    assert fleet["node"].value("gpus_released_seconds", 0) == pytest.approx(7.0)


def test_a_silent_node_is_silent_though_it_was_released(fleet: Fleet) -> None:
    let_go(fleet)
    fleet.step(60.0)
    assert fleet["gpu"].level.tolist() == [STALE, STALE]
    assert fleet["gpu"].why_of("utilization_ratio").tolist() == [Why.STALE, Why.STALE]


# -- jobs ----------------------------------------------------------------------------------------------------------


def host(jobs: list[str] | None) -> Table:
    return Table([("", {} if jobs is None else {"jobs": jobs})], ["load1"], [1.0])


def processes(*rows: tuple[str, int, str], error: str = "", asked: bool = True) -> Table:
    listed: Mapping[str, Any] = {f"{key}/{pid}": {"mem_used": 5} for key, pid, _ in rows}
    attrs = {f"{key}/{pid}": {"gpu": key, "pid": pid, "job": job, "job_kind": "slurm"} for key, pid, job in rows}
    made = table(listed, attrs, error)
    return made if rows else Table([], ["mem_used"] if asked else [], [], error)


def names(fleet: Fleet) -> list[str]:
    jobs = fleet.view.jobs
    return [jobs.name(code) for code in jobs.gpu.tolist()]


def test_jobs_come_and_go_with_the_nodes_own_word() -> None:
    fleet = Fleet(2)
    fleet.say(0, gpu=gpus(count=1), node=host(["12"]))
    fleet.say(1, gpu=gpus(count=1), node=host(None))
    fleet.tick()
    assert names(fleet) == ["12", ""]
    assert fleet.view.jobs.node.tolist() == [0, UNKNOWN]
    same = fleet.view.jobs
    fleet.step(1.0, 0, gpu=gpus(count=1), node=host(["12"]))
    assert fleet.view.jobs is same, "worked out again only when something changed"
    fleet.step(1.0, 0, node=host(["13"]))
    assert names(fleet)[0] == "13"
    fleet.step(1.0, 0, node=host(["13", "14"]))
    assert fleet.view.jobs.node[0] == SEVERAL
    assert names(fleet)[0] == ""


def test_listed_processes_give_gpus_their_jobs_for_as_long_as_they_are_listed() -> None:
    fleet = Fleet(1)
    fleet.step(1.0, gpu=gpus(count=2), node=host(["7", "8"]))
    assert fleet.view.processes == (None,)
    fleet.step(1.0, gpu=gpus(count=2), process=processes(("GPU-0", 11, "7"), ("GPU-1", 12, "8")))
    assert names(fleet) == ["7", "8"]
    assert fleet.view.processes == ("",)
    fleet.step(1.0, gpu=gpus(count=2), process=processes(("GPU-1", 12, "8"), error="GPU 0: Insufficient Permissions"))
    assert names(fleet) == ["", "8"], "a process that ended is gone though another GPU's list failed"
    assert fleet.view.processes == ("GPU 0: Insufficient Permissions",)
    fleet.step(1.0, gpu=gpus(count=2), process=processes())
    assert fleet.view.processes == ("",), "asked for, and there are none"
    fleet.step(1.0, gpu=gpus(count=2), process=processes(asked=False))
    assert fleet.view.processes == (None,)
    assert names(fleet) == ["", ""]


def test_a_new_connection_does_not_keep_the_old_ones_list() -> None:
    fleet = Fleet(1)
    fleet.step(1.0, gpu=gpus(count=1), node=host(["7", "8"]), process=processes(("GPU-0", 11, "7")))
    assert names(fleet) == ["7"]
    fleet.encoders[0] = type(fleet.encoders[0])()
    fleet.step(1.0, gpu=gpus(count=1), node=host(["7", "8"]))
    assert fleet.view.processes == (None,)
    assert names(fleet) == [""]
