"""What operators do: acknowledged until worse, silenced until a time, and never hidden from judgement."""

from __future__ import annotations

from clustertop.model import NodeInfo
from clustertop.rules.spec import Clear, Level, Rule
from nodes import Fleet, gpus


def hot(*temperatures: float) -> dict[str, object]:
    return {"gpu": gpus(*({"temp": temperature} for temperature in temperatures))}


class TestAcknowledge:
    def test_it_stays_in_sight_behind_the_others_and_is_no_news(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(**hot(88, 60))
        fleet.core.acknowledge(fleet.alerts[0], reason="fan ordered")
        for _ in range(3):
            fleet.step(**hot(88, 84))
        assert [(alert.thing.label, alert.acked, alert.note) for alert in fleet.alerts] == [
            ("GPU 1", False, ""), ("GPU 0", True, "fan ordered")]
        assert fleet.rules == ["raised gpu_temperature", "acknowledged gpu_temperature", "raised gpu_temperature"]
        assert fleet.seen[1].message.startswith("fan ordered: ")
        assert fleet.seen[1].quiet

    def test_worse_alerts_again(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(**hot(88))
        fleet.core.acknowledge(fleet.alerts[0])
        fleet.step(**hot(88))
        assert fleet.alerts[0].acked
        for _ in range(3):
            fleet.step(**hot(91))
        assert not fleet.alerts[0].acked
        assert fleet.rules[-1] == "worsened gpu_temperature"
        assert not fleet.seen[-1].quiet

    def test_a_graver_severity_alerts_again(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(**hot(83))
        fleet.core.acknowledge(fleet.alerts[0])
        for _ in range(3):
            fleet.step(**hot(88))
        assert not fleet.alerts[0].acked
        assert {change.quiet for change in fleet.seen if change.kind == "worsened"} == {False}

    def test_it_ends_with_its_alert(self) -> None:
        fleet = Fleet()
        for temperature in (88, 88, 88):
            fleet.step(**hot(temperature))
        fleet.core.acknowledge(fleet.alerts[0])
        for temperature in (60, 60, 60, 60, 88, 88, 88):
            fleet.step(**hot(temperature))
        assert [alert.acked for alert in fleet.alerts] == [False]

    def test_A11_x8_by_design_is_known_for_good_and_x4_is_not(self) -> None:  # noqa: N802
        fleet = Fleet()
        narrow = gpus({"pcie_width": 8})
        for _ in range(3):
            fleet.step(gpu=narrow)
        assert fleet.firing == ["pcie_width"]
        fleet.core.acknowledge(fleet.alerts[0], reason="x8 slot by design", lasting=True)
        for _ in range(3):
            fleet.step(gpu=narrow)
        for _ in range(5):
            fleet.step(gpu=gpus({}))
        assert fleet.alerts == []
        for _ in range(3):
            fleet.step(gpu=narrow)
        assert [(alert.rule, alert.acked) for alert in fleet.alerts] == [("pcie_width", True)]
        raised = [change.quiet for change in fleet.seen if change.kind == "raised"]
        assert raised == [False, True], "the second time nobody has to be told"
        for _ in range(3):
            fleet.step(gpu=gpus({"pcie_width": 4}))
        assert [alert.acked for alert in fleet.alerts] == [False]
        assert (fleet.seen[-1].kind, fleet.seen[-1].quiet) == ("worsened", False)

    def test_an_unknown_reading_is_not_worse_and_a_gap_keeps_it(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(**hot(88))
        fleet.core.acknowledge(fleet.alerts[0])
        for _ in range(30):
            fleet.step()
        assert [alert.acked for alert in fleet.alerts if alert.rule == "gpu_temperature"] == [True]

    def test_of_a_growth_the_growth_counts_not_the_total(self) -> None:
        rule = Rule("replays", "gpu", "pcie_replays_total", ">", kind="increase", window_seconds=60.0,
                    warning=Level(10.0), clear=Clear(limit=5.0))
        fleet = Fleet(rules={"replays": rule})
        for second in range(100):
            fleet.step(gpu=gpus({"pcie_replays": second}))
        fleet.core.acknowledge(fleet.alerts[0])
        for second in range(100, 200):
            fleet.step(gpu=gpus({"pcie_replays": second}))
        assert fleet.alerts[0].acked, "as many a minute as before is no worse"
        for second in range(200, 260):
            fleet.step(gpu=gpus({"pcie_replays": 200 + 3 * (second - 200)}))
        assert not fleet.alerts[0].acked

    def test_taken_back(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(**hot(88))
        fleet.core.acknowledge(fleet.alerts[0])
        fleet.step(**hot(88))
        fleet.core.unacknowledge(fleet.alerts[0])
        fleet.step(**hot(88))
        assert not fleet.alerts[0].acked

    def test_a_group_is_known_until_it_grows(self) -> None:
        fleet = Fleet([NodeInfo(f"g{number}", rack="r1") for number in range(8)])

        def step(count: int) -> None:
            fleet.now += 1
            for number in range(8):
                fleet.say(number, **hot(88 if number < count else 60))
            fleet.tick()

        for _ in range(3):
            step(5)
        assert fleet.alerts[0].thing.id == "rack::r1"
        fleet.core.acknowledge(fleet.alerts[0])
        for _ in range(5):
            step(5)
        assert fleet.alerts[0].acked
        for _ in range(3):
            step(6)
        assert not fleet.alerts[0].acked


class TestSilence:
    def test_nothing_is_told_until_its_time_is_over_and_then_what_remains(self) -> None:
        fleet = Fleet()
        fleet.step(**hot(60))
        fleet.core.silence("n0", "*", 60.0, reason="cabling")
        for _ in range(30):
            fleet.step(**hot(88))
        assert [(alert.silenced, alert.note) for alert in fleet.alerts] == [(True, "cabling")]
        assert [change for change in fleet.seen if not change.quiet] == []
        for _ in range(40):
            fleet.step(**hot(88))
        assert [(change.kind, change.quiet) for change in fleet.seen if not change.quiet] == [("remains", False)]
        assert not fleet.alerts[0].silenced

    def test_what_ends_in_a_silence_is_no_news(self) -> None:
        fleet = Fleet()
        fleet.step(**hot(60))
        fleet.core.silence("n0", "gpu_*", 600.0)
        for temperature in (88, 88, 88, 60, 60, 60, 60, 60):
            fleet.step(**hot(temperature))
        assert fleet.alerts == []
        assert [change for change in fleet.seen if not change.quiet] == []

    def test_it_is_for_its_rule_and_place_alone(self) -> None:
        fleet = Fleet([NodeInfo("a1", rack="ra"), NodeInfo("b1", rack="rb", groups=("night",))])
        fleet.now += 1
        fleet.tick()
        fleet.core.silence("ra", "gpu_temperature", 600.0)
        fleet.core.silence("night", "pcie_*", 600.0)
        for _ in range(4):
            fleet.now += 1
            fleet.say(0, gpu=gpus({"temp": 88, "pcie_width": 8}))
            fleet.say(1, gpu=gpus({"temp": 88, "pcie_width": 8}))
            fleet.tick()
        assert {(alert.rule, alert.thing.node): alert.silenced for alert in fleet.alerts} == {
            ("gpu_temperature", "a1"): True, ("pcie_width", "a1"): False,
            ("gpu_temperature", "b1"): False, ("pcie_width", "b1"): True}

    def test_taken_back_it_is_told(self) -> None:
        fleet = Fleet()
        for _ in range(3):
            fleet.step(**hot(88))
        fleet.core.silence("gpu:n0:GPU-0", "*", 600.0)
        fleet.step(**hot(88))
        assert fleet.rules[-1] == "silenced gpu_temperature"
        fleet.core.unsilence("gpu:n0:GPU-0", "*")
        fleet.step(**hot(88))
        assert fleet.rules[-1] == "remains gpu_temperature"
