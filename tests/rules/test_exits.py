"""The exit signals: yes, no, or not measured, per job, group or rack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clustertop import plain
from clustertop.model import LinkState, NodeInfo
from clustertop.rules.exits import Exits, Figure, Verdict, exits
from nodes import Fleet, gpus, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.probe.frames import Table


def cards(*utilization: float | None, **more: Any) -> Table:
    """GPUs with that utilisation, percent; None: it cannot be read."""
    return gpus(*({"util": value, **more} for value in utilization))


def of_job(*jobs: str) -> Table:
    return table({"": {"ncpu": 8}}, {"": {"jobs": list(jobs)}})


def lines(fleet: Fleet, **more: Any) -> dict[str, Exits]:
    return {f"{one.kind} {one.name}": one for one in exits(fleet.view, **more)}


def utilization(fleet: Fleet, name: str = "nodes n0") -> Verdict:
    (verdict,) = [one for one in lines(fleet)[name].verdicts if one.signal == "utilization"]
    return verdict


def watched(seconds: int, *utilization: float | None) -> Fleet:
    fleet = Fleet()
    for _ in range(0, seconds, 2):
        fleet.step(2.0, gpu=cards(*utilization))
    return fleet


class TestUtilization:
    def test_h3_a_mean_over_half_of_the_gpus_is_shown_and_is_not_judged(self) -> None:
        """H3: 96, nothing, 94, nothing: 95 % over 2 of 4, and neither low nor fine."""
        verdict = utilization(watched(310, 96, None, 94, None))
        assert (verdict.answer, verdict.value, verdict.known, verdict.of) == ("not measured", 0.95, 2, 4)
        assert plain.exit_words(verdict) == "not measured (95 % over 2/4; too few GPUs tell)"

    def test_h3_also_where_what_is_known_is_low(self) -> None:
        verdict = utilization(watched(310, 20, None, 30, None))
        assert (verdict.answer, verdict.value) == ("not measured", 0.25)

    def test_h3_four_of_five_are_enough(self) -> None:
        verdict = utilization(watched(310, 20, 20, 20, 20, None))
        assert (verdict.answer, verdict.value, verdict.sustained) == ("yes", 0.2, True)
        assert plain.exit_words(verdict) == "yes (20 % over 4/5)"

    def test_fine_is_no(self) -> None:
        verdict = utilization(watched(3, 90, 80, 75, 75))
        assert (verdict.answer, verdict.value) == ("no", pytest.approx(0.8))
        assert utilization(watched(3, 75)).answer == "no", "the limit itself is not below it"

    def test_low_in_a_pass_of_seconds_is_yes_at_this_moment(self) -> None:
        verdict = utilization(watched(7, 60, 62))
        assert (verdict.answer, verdict.sustained) == ("yes", False)
        assert plain.exit_words(verdict) == "yes (61 %; at this moment; watched for 6 s of 5 min)"

    def test_low_for_five_minutes_is_yes(self) -> None:
        verdict = utilization(watched(300, 60, 62))
        assert (verdict.answer, verdict.sustained, verdict.note) == ("yes", True, "")

    def test_a_dip_is_no(self) -> None:
        fleet = watched(200, 95, 95)
        for _ in range(60):
            fleet.step(gpu=cards(30, 30))
        verdict = utilization(fleet)
        assert (verdict.answer, verdict.value) == ("no", pytest.approx(0.3))
        assert verdict.note.startswith("under the limit for 6")

    def test_a_gap_is_not_time_that_was_watched(self) -> None:
        fleet = watched(20, 30, 30)
        for _ in range(270):
            fleet.step()
        for _ in range(20):
            fleet.step(gpu=cards(30, 30))
        verdict = utilization(fleet)
        assert (verdict.answer, verdict.sustained) == ("yes", False)

    def test_a_node_that_fell_silent_is_not_measured(self) -> None:
        fleet = watched(310, 90, 90)
        for _ in range(30):
            fleet.step()
        verdict = utilization(fleet)
        assert (verdict.answer, verdict.value, verdict.known, verdict.of) == ("not measured", None, 0, 2)

    def test_gpus_without_work_and_in_mig_mode_do_not_count(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(gpu=gpus({"util": 90}, {"util": 0, "mem_used": 0}, {"util": None, "mig": 1}))
        verdict = utilization(fleet)
        assert (verdict.answer, verdict.value, verdict.known, verdict.of) == ("no", 0.9, 1, 1)
        fleet = Fleet()
        fleet.step(gpu=gpus({"util": 0, "mem_used": 0}))
        assert utilization(fleet).note == "no GPU is in use"

    def test_nodes_that_were_never_read_are_missing_from_the_whole(self) -> None:
        fleet = Fleet([NodeInfo(f"n{number}", rack="r1") for number in range(4)])
        fleet.link(3, LinkState.UNREACHABLE, "tcp: no route")
        for number in range(3):
            fleet.step(1.0, number, gpu=cards(90, 90))
        verdict = utilization(fleet, "rack r1")
        assert (verdict.answer, verdict.known, verdict.of) == ("not measured", 6, 8)

    def test_a_node_that_has_no_gpus_misses_none(self) -> None:
        fleet = Fleet([NodeInfo(f"n{number}", rack="r1") for number in range(2)])
        fleet.step(1.0, 0, gpu=cards(90, 90))
        fleet.step(1.0, 1, node=of_job(), states={"gpu": {"st": "off", "n": 1}})
        # The second is known to be idle: it is no part of what is judged.
        assert lines(fleet)["rack r1"].nodes == (0,)
        fleet = Fleet([NodeInfo(f"n{number}", rack="r1") for number in range(2)])
        fleet.step(1.0, 1, states={"gpu": {"st": "off", "n": 1}})
        fleet.step(1.0, 0, gpu=cards(90, 90))
        assert utilization(fleet, "rack r1").answer == "no"


class TestWhoHasALine:
    def fleet(self, infos: Sequence[NodeInfo], jobs: Sequence[tuple[str, ...] | None]) -> Fleet:
        fleet = Fleet(infos)
        for number, mine in enumerate(jobs):
            more = {} if mine is None else {"node": of_job(*mine)}
            fleet.step(1.0, number, gpu=cards(*(90 - number, 90 - number)), **more)
        return fleet

    def test_jobs_and_for_the_rest_groups_then_racks_then_nodes(self) -> None:
        infos = [NodeInfo("a", rack="r1"), NodeInfo("b", rack="r2"), NodeInfo("c", rack="r1", groups=("h100", "eu")),
                 NodeInfo("d", rack="r1"), NodeInfo("e"), NodeInfo("f"), NodeInfo("g")]
        found = lines(self.fleet(infos, [("12",), ("12",), None, None, None, (), None]))
        assert {name: one.nodes for name, one in found.items()} == {
            "job 12": (0, 1), "group eu": (2,), "group h100": (2,), "rack r1": (3,), "nodes the other nodes": (4, 6)}

    def test_a_fleet_of_which_nothing_is_known_is_one_line(self) -> None:
        assert list(lines(self.fleet([NodeInfo("a"), NodeInfo("b")], [None, None]))) == ["nodes all nodes"]

    def test_each_is_judged_by_its_own_gpus(self) -> None:
        fleet = self.fleet([NodeInfo("a"), NodeInfo("b")], [("1",), ("2",)])
        assert [utilization(fleet, f"job {job}").value for job in "12"] == [0.9, pytest.approx(0.89)]


class TestMeters:
    def test_without_a_meter_it_is_not_measured_and_says_why(self) -> None:
        fleet = watched(3, 90)
        cross, init, _ = lines(fleet)["nodes n0"].verdicts
        assert (cross.answer, cross.note) == ("not measured", "no meter of traffic between racks is read")
        assert (init.answer, init.note) == ("not measured", "no NCCL log is read")
        text = plain.exit_lines(exits(fleet.view))
        assert text[0].split("  ")[0] == "exit signals"
        assert text[1].count("not measured") == 2
        assert text[2] == ("not measured: cross-rack share: no meter of traffic between racks is read; "
                           "NCCL init: no NCCL log is read")

    @pytest.mark.parametrize(("share", "seconds", "right"), [
        (0.31, 16.0, ("yes", "yes")), (0.30, 15.0, ("no", "no")), (0.02, 2.0, ("no", "no")),
        (None, float("nan"), ("not measured", "not measured")),
    ])
    def test_a_meter_is_held_against_the_limit(
        self, share: float | None, seconds: float, right: tuple[str, str]
    ) -> None:
        meters: Any = {"cross_rack_share": {"n0": Figure(share, "by sockets")}, "nccl_init": {"n0": Figure(seconds)}}
        cross, init, _ = lines(watched(3, 90), meters=meters)["nodes n0"].verdicts
        assert (cross.answer, init.answer) == right
        assert cross.note == "by sockets"

    def test_what_its_meter_does_not_know_is_not_measured(self) -> None:
        cross, *_ = lines(watched(3, 90), meters={"cross_rack_share": {"another": Figure(0.9)}})["nodes n0"].verdicts
        assert (cross.answer, cross.value, cross.note) == ("not measured", None, "nothing is known of it")


def test_json_has_every_signal_with_its_limit() -> None:
    fleet = watched(7, 60, None)
    (one,) = exits(fleet.view)
    said: Any = plain.exit_object(one, fleet.view)
    assert (said["kind"], said["name"], said["nodes"]) == ("nodes", "n0", ["n0"])
    assert said["signals"]["utilization"] == {
        "answer": "not measured", "value": 0.6, "limit": 0.75, "unit": "ratio", "known": 1, "of": 2, "sustained": None,
        "note": "too few GPUs tell"}
    assert {name: signal["limit"] for name, signal in said["signals"].items()} == {
        "cross_rack_share": 0.3, "nccl_init": 15.0, "utilization": 0.75}
