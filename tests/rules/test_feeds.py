"""Power as alerts: the field cases through the rules in force, what lines say, and what goes under what."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from clustertop.clock import local_minute
from clustertop.model import LinkState, NodeInfo, Severity
from clustertop.rules.explain import explain, lines
from clustertop.rules.spec import builtin
from feeds import Feed, Place, Supply, inlet, part
from nodes import GPU, table
from pdus import SHARED

CASES = SHARED / "cases"
shared_case = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
N = tuple(NodeInfo(f"n{number}", rack="r1") for number in range(1, 9))
ON = tuple(Supply(node.name) for node in N)


def case(name: str, file: str = "expect.json") -> Any:
    return json.loads((CASES / name / file).read_text("utf-8"))


def messages(place: Place) -> dict[str, str]:
    return {f"{one.rule} {one.thing.node or one.thing.label}": one.message for one in place.alerts}


def only(*names: str) -> dict[str, Any]:
    return {name: rule for name, rule in builtin().items() if name in names}


class TestCases:
    @shared_case
    def test_c1_the_total_is_no_bank_and_nothing_is_added(self) -> None:
        want = case("C1")
        feeds = [Feed("whole", 12.0, 230.0, pdu="p"), Feed("one", 10.0, pdu="p", part="bank 1"), Feed("two", 10.0, pdu="p", part="bank 2")]
        place = Place(feeds)
        for _ in range(3):
            place.now += 10.0
            place.pdu("p", [part("phase", "L1", amps=want["total_a"]),
                            *(part("bank", f"bank {bank}", amps=amps) for bank, amps in want["banks_a"].items())])
            place.tick()
        assert [place.feed(name, "amps") for name in ("whole", "one", "two")] == [
            want["total_a"], want["banks_a"]["1"], want["banks_a"]["2"]]
        assert sorted(place.said()) == ["feed_current warning feed:one:", "feed_current warning feed:whole:"]

    def test_c1_an_unscaled_device_never_alerts(self) -> None:
        place = Place([Feed("f", 10.0, pdu="p")])
        for _ in range(4):
            place.now += 10.0
            place.pdu("p", [part("inlet", "inlet", amps="!unscaled: no profile for this device")])
            place.tick()
        assert place.alerts == []
        assert place.feed("f", "judged_ratio") == "unscaled: no profile for this device"

    @shared_case
    def test_c2_a_wrong_scale_is_not_an_overload(self) -> None:
        for unit, row in case("C2", "snmp.json").items():
            place = Place([Feed("f", 15.0, 120.0, pdu="p")])
            for _ in range(3):
                place.now += 10.0
                place.pdu("p", inlet(float(row["raw"]), crit_amps=float(row["limit"])))
                place.tick()
            told = {alert.rule for alert in place.alerts}
            assert "feed_scale" in told, unit
            assert "feed_current" not in told
            assert "not an overload" in messages(place)["feed_scale f"]

    def test_c3_a_row_that_is_not_provided_is_no_current(self) -> None:
        place = Place([Feed("f", 10.0, 230.0, 3, pdu="p")])
        place.pdu("p", [part("phase", "L1", amps=7.0), part("phase", "L2", amps=-1.0), part("phase", "L3", amps=-1.0)])
        place.tick()
        assert place.feed("f", "amps") == 7.0
        assert place.feed("f", "judged_ratio") == "at least so much: not all of it is known"

    @shared_case
    def test_c4_one_line_over_is_told_though_the_total_is_not(self) -> None:
        given, want = case("C4", "pdu.json"), case("C4")
        place = Place([Feed("f", float(given["breaker_a"]), float(given["volts"]), 3, "delta", pdu="p")])
        for _ in range(3):
            place.now += 10.0
            place.pdu("p", [part("phase", name, amps=amps) for name, amps in given["line_a"].items()])
            place.tick()
        assert want["alert"] == ["L2"]
        assert place.said() == ["feed_current warning feed:f:"]
        assert place.feed("f", "share_ratio") == pytest.approx(want["pct"]["L2"] / 100, abs=0.001)

    @shared_case
    def test_c5_a_branch_over_its_own_breaker_with_and_without_a_feed(self) -> None:
        given = case("C5", "pdu.json")
        branch, whole = given["branches"]["B"], given["inlet"]
        place = Place([Feed("inlet", float(whole["breaker_a"]), pdu="p"), Feed("B", float(branch["breaker_a"]), pdu="q", part="branch B")])
        for _ in range(3):
            place.now += 10.0
            for pdu in ("p", "q"):
                place.pdu(pdu, [part("inlet", "inlet", amps=float(whole["a"])),
                                part("branch", "B", amps=float(branch["a"]), rating_amps=float(branch["breaker_a"]))])
            place.tick()
        assert sorted(place.said()) == ["feed_current warning feed:B:", "pdu_part warning pdu:p:branch//B"]

    @shared_case
    def test_c6_no_headroom_is_one_alert_of_the_pair(self) -> None:
        given = case("C6", "pdu.json")
        feeds = [Feed(name, float(given["breaker_a"]), pair=other, pdu=f"p{name}") for name, other in (("A", "B"), ("B", "A"))]
        place = Place(feeds)
        for _ in range(3):
            place.read(pA=float(given["load_a"]["A"]), pB=float(given["load_a"]["B"]))
        assert place.said() == ["feed_failover warning feed:A:"]
        assert messages(place)["feed_failover A"] == "A 13.0 A and B 12.5 A: one alone would carry 25.5 A of 30 A (85 %)"

    def test_c6_a_lost_feed_is_one_event(self) -> None:
        place = Place([Feed("A", 30.0, pair="B", pdu="pA"), Feed("B", 30.0, pdu="pB")])
        for _ in range(4):
            place.read(pA=11.0, pB=12.0)
        for _ in range(4):
            place.read(pA=0.0, pB=22.8)
        assert place.said() == ["feed_lost critical feed:A:"]
        assert messages(place)["feed_lost A"].endswith("; B carries 22.8 A of 30 A (76 %)")

    def test_the_feed_that_takes_over_makes_a_step_and_is_not_on_its_way_anywhere(self) -> None:
        place = Place([Feed("A", 63.0, pdu="a", pair="B"), Feed("B", 63.0, pdu="b", pair="A")])
        for a, b in ((17.6, 17.9), (15.1, 18.1), (17.4, 35.0)):  # B is read just after the load moved, A just before
            place.read(9.0, a=a)
            place.read(1.0, b=b)
        for amps in (32.2, 31.9, 36.5, 36.2, 35.8, 36.9, 36.0, 36.4, 36.1, 36.7, 36.3, 36.2, 36.5, 36.4, 36.6,
                     36.2, 36.5):
            place.read(a=0.0, b=amps)
        assert place.said() == ["feed_lost critical feed:A:"]
        assert isinstance(place.feed("B", "slope_amps_per_second"), float)

    def test_a_feed_that_took_over_and_then_climbs_is_foretold(self) -> None:
        place = Place([Feed("A", 63.0, pdu="a", pair="B"), Feed("B", 63.0, pdu="b", pair="A")])
        for _ in range(9):
            place.read(a=18.0, b=18.4)
        for step in range(16):
            place.read(a=0.0, b=36.1 + 0.5 * step)
        assert "feed_forecast warning feed:B:" in place.said()

    def test_a_partner_that_was_read_before_the_loss_is_not_told_as_now(self) -> None:
        place = Place([Feed("A", 30.0, 230.0, pair="B", pdu="pA"), Feed("B", 30.0, pdu="pB")])
        for _ in range(3):
            place.read(pA=11.0, pB=12.0)
        place.now += 8.0
        place.pdu("pA", inlet(0.0, volts=0.0))
        place.tick()
        assert messages(place)["feed_lost A"].endswith("; B carried 12.0 A of 30 A (40 %) 8.0 s before, and was not read since")

    def test_a_partner_that_is_unknown_is_told_as_that(self) -> None:
        place = Place([Feed("A", 30.0, 230.0, pair="B", pdu="pA"), Feed("B", 30.0, pdu="pB")])
        for _ in range(3):
            place.read(pA=11.0)
        place.now += 10.0
        place.pdu("pA", inlet(0.0, volts=0.0))
        place.tick()
        assert messages(place)["feed_lost A"].endswith("; B: current unknown (not read yet)")

    def test_a_breaker_that_was_open_at_the_first_reading_has_no_time_and_no_load_before(self) -> None:
        place = Place([Feed("f", 30.0, 230.0, pdu="p")])
        place.pdu("p", inlet(0.0, state="=tripped", tripped=1.0))
        place.tick(5.0)
        place.pdu("p", inlet(0.0, state="=tripped", tripped=1.0))
        place.tick(10.0)
        assert messages(place)["feed_tripped f"] == "breaker tripped: what it carried before is not known"
        assert place.feed("f", "event_seconds") == place.feed("f", "before_amps") == "it was so at the first reading"

    @pytest.mark.parametrize(("lost", "said"), [(1, "1 of 2 nodes on it does not answer"), (2, "2 of 2 nodes on it do not answer")])
    def test_one_node_does_and_two_do(self, lost: int, said: str) -> None:
        place = Place([Feed("A", 32.0, 230.0, pdu="pA", supplies=ON[:2])], N, rules=only("feed_tripped"))
        for node in N:
            place.link(node.name, LinkState.UP)
        for _ in range(3):
            place.read(pA=20.0)
        for node in N[:lost]:
            place.link(node.name)
        place.read(pA=0.0)
        assert messages(place)["feed_tripped A"].endswith(said)

    def test_an_overload_that_was_switched_off_is_over_and_that_it_is_off_is_told(self) -> None:
        place = Place([Feed("f", 30.0, 230.0, pdu="p")], rules=only("feed_current", "feed_load_gone"))
        for _ in range(3):
            place.read(p=28.0)
        for _ in range(10):
            place.read(p=0.0)
        assert sorted(one.rule for one in place.alerts) == ["feed_current", "feed_load_gone"], "why it went is not settled yet"
        for _ in range(14):
            place.read(p=0.0)
        assert [(one.rule, one.message.partition(":")[0]) for one in place.alerts] == [
            ("feed_load_gone", "load gone, cause not known")]

    def test_lines_that_stay_date_themselves(self) -> None:
        place = Place([Feed("f", 30.0, 230.0, pdu="p")], rules=only("feed_forecast", "device_unreachable"))
        for step in range(30):
            place.read(p=15.0 + 0.2 * step)
        said = re.fullmatch(r"\d\d.\d A of 30 A \(\d+ %\), critical in \d+ min, at (\d\d:\d\d), if it goes on like this: .*",
                            messages(place)["feed_forecast f"])
        raised = next(one for one in place.seen if one.rule == "feed_forecast")
        assert said is not None
        assert local_minute(raised.wall + 300) <= said[1] <= local_minute(raised.wall + 660)
        place.link("p")
        for _ in range(4):
            place.tick(10.0)
        assert messages(place)["device_unreachable p"] == "PDU p unreachable: no answer; last reading 40 s before"

    def test_c7_redundancy_that_is_not_told_is_no_good_news(self) -> None:
        place = Place([], N[:1], ["n1"])
        place.link("n1", LinkState.UP)
        for told in ("=lost", "=lost", "!the short list does not tell states", "!the short list does not tell states"):
            place.now += 10.0
            place.bmc("n1", 900.0, redundancy=told)
            place.tick()
        assert [alert.rule for alert in place.alerts if alert.rule.startswith("psu")] == ["psu_redundancy"]

    def test_c9_unmetered_members_are_counted_out_and_said(self) -> None:
        """C9 b."""
        place = Place([Feed("f", 16.0, 220.0, supplies=ON[:4])], N[:4], [node.name for node in N[:4]], only("feed_current"))
        for _ in range(3):
            place.now += 10.0
            for node in ("n1", "n2"):
                place.bmc(node, 1700.0)
            for node in ("n3", "n4"):
                place.bmc(node, "!power not metered")
            place.tick()
        assert messages(place)["feed_current f"] == "15.5 A of 16 A (97 %), at least: estimated from BMC power, 2 of 4 nodes"


class TestUnder:
    def test_nodes_that_are_given_up_before_their_breaker_is_known_go_under_it(self) -> None:
        place = Place([Feed("A", 32.0, 230.0, pdu="pA", rack="r1", supplies=ON[:4]), Feed("B", 32.0, 230.0, pdu="pB", rack="r1", supplies=ON[4:])],
                      N, rules=only("feed_tripped", "feed_load_gone", "node_unreachable", "device_unreachable"))
        for node in N:
            place.link(node.name, LinkState.UP)
        for _ in range(4):
            place.read(pA=20.0, pB=20.0)
        for node in N[:4]:
            place.link(node.name)
        for _ in range(8):
            place.tick(1.0)
        assert place.said() == ["node_unreachable critical feed::A"], "nodes on one feed that fail together"
        place.read(2.0, pA=0.0, pB=20.0)
        assert [(one.rule, one.thing.id) for one in place.alerts] == [("feed_tripped", "feed:A:")]
        assert [one.kind for one in place.seen[-2:]] == ["raised", "folded"]
        inside = place.core.engine.inside(place.view, place.alerts[0])
        assert sorted(one.thing.node for one in inside if one.rule == "node_unreachable") == ["n1", "n2", "n3", "n4"]

    def test_a_node_of_the_pair_that_keeps_its_power_is_not_covered_by_name_only(self) -> None:
        place = Place([Feed("A", 32.0, 230.0, pdu="pA", supplies=ON[:4])], N, rules=only("feed_tripped", "node_unreachable"))
        for node in N:
            place.link(node.name, LinkState.UP)
        place.link("n1")
        for _ in range(30):
            place.read(pA=20.0)
        place.link("n2")
        for _ in range(3):
            place.read(pA=0.0)
        assert sorted((one.rule, one.thing.node) for one in place.alerts) == [("feed_tripped", "A"), ("node_unreachable", "n1")], \
            "n1 was away long before, for another reason"

    def test_a_pdu_that_dies_with_its_feed_is_under_it(self) -> None:
        place = Place([Feed("A", 32.0, pair="B", pdu="pA"), Feed("B", 32.0, pdu="pB")])
        for _ in range(4):
            place.read(pA=11.0, pB=12.0)
        place.link("pA")
        for _ in range(8):
            place.read(pB=22.9)
        assert [(one.rule, one.thing.id) for one in place.alerts] == [("feed_lost", "feed:A:")]

    def test_most_feeds_at_once_are_one_alert(self) -> None:
        place = Place([Feed(f"f{number}", 16.0, pdu=f"p{number}") for number in range(6)])
        for _ in range(3):
            place.read(**{f"p{number}": 15.0 for number in range(5)}, p5=3.0)
        assert [(one.rule, one.thing.label, one.message) for one in place.alerts] == [
            ("feed_current", "feeds", "feed current near its breaker on 5 of 6 feeds: f[0-4]")]


class TestDarkRack:
    """H6 a)."""

    def rack(self, nodes: int = 40) -> Place:
        infos = [NodeInfo(f"n{number}", rack="r7" if number < nodes else "r8") for number in range(nodes + 20)]
        place = Place([], infos, [one.name for one in infos[:nodes]], only("node_unreachable", "device_unreachable"),
                      pdus={"pdu-7a": "r7", "pdu-7b": "r7", "pdu-8a": "r8", "pdu-8b": "r8", "pdu-9": "r9"},
                      switches={"leaf-7a": "r7", "leaf-7b": "r7", "leaf-8": "r8"})
        for one in infos:
            place.link(one.name, LinkState.UP)
        place.tick(1.0)
        return place

    def test_one_alert_for_84_targets_whose_count_goes_down(self) -> None:
        scenario = case("H6", "scenario.json") if CASES.is_dir() else {"nodes": 40, "bmcs": 40, "pdus": 2, "switches": 2, "rack": "r7"}
        want = case("H6") if CASES.is_dir() else {"alerts": 1, "members": 84}
        place = self.rack(scenario["nodes"])
        dark = [f"n{number}" for number in range(40)]
        devices = [*(f"{name}-bmc" for name in dark), "pdu-7a", "pdu-7b", "leaf-7a", "leaf-7b"]
        for place_in_time, name in enumerate([*dark, *devices]):
            place.link(name)
            if place_in_time % 4 == 3:
                place.tick(1.0)
        for _ in range(50):
            place.tick(1.0)
        assert len(place.alerts) == want["alerts"]
        alert = place.alerts[0]
        assert alert.thing.label == "rack r7"
        assert len(alert.members) == want["members"]
        assert alert.message.startswith("84 targets unreachable: 40 of 40 nodes, 40 BMCs, 2 PDUs, 2 switches: n[0-39]")
        assert not [one for one in place.seen if one.rule == "device_unreachable" and one.kind == "raised"]
        inside = place.core.engine.inside(place.view, alert)
        assert len(inside) == want["members"], "listed under it"
        for name in devices:
            place.link(name, LinkState.UP)
        for name in devices:
            if name.endswith("-bmc"):
                place.bmc(name.removesuffix("-bmc"), 500.0)
            elif name.startswith("pdu"):
                place.pdu(name, inlet(5.0))
        for _ in range(8):
            place.tick(1.0)
        assert 40 <= len(place.alerts[0].members) < want["members"]

    def test_a_device_elsewhere_is_no_part_of_it(self) -> None:
        place = self.rack(8)
        for name in (*(f"n{number}" for number in range(8)), "pdu-9"):
            place.link(name)
        for _ in range(60):
            place.tick(1.0)
        assert sorted((one.rule, one.thing.label) for one in place.alerts) == [
            ("device_unreachable", "PDU pdu-9"), ("node_unreachable", "rack r7")]


class TestTogether:
    """A fault of a node beside what its feed did."""

    def braked(self, amps: list[float]) -> Place:
        place = Place([Feed("r1-A", 32.0, 230.0, pdu="pA", supplies=ON[:2])], N[:2],
                      rules=only("gpu_power_brake", "feed_current", "node_unreachable"))
        place.link("n1", LinkState.UP)
        for value in amps:
            place.read(5.0, pA=value)
            place.tick(5.0)
        return place

    def test_a_brake_names_the_feed_and_what_it_did(self) -> None:
        from clustertop.probe.frames import Encoder, Group
        from clustertop.wire.frame import decode

        place = self.braked([18.0] * 6 + [24.0] * 6)
        encoder = Encoder()
        for number in range(14):
            place.now += 1.0
            if number % 5 == 0:
                place.pdu("pA", inlet(24.0))
            cells = table({"GPU-0": {**GPU, "reasons": 0x80}}, {"GPU-0": {"index": 0, "pci": "00000000:10:00.0", "name": "H100"}})
            group = Group(place.now, 1.0, {"gpu": cells}, n=number + 1)
            raw = json.dumps(encoder.encode({"gpu": group}, place.now, place.now, {"cpu": 0.0}, {})).encode()
            place.core.on_frame(0, place.now, place.now, decode(raw), raw)
            place.tick()
        alert = next(one for one in place.alerts if one.rule == "gpu_power_brake")
        assert "; feed r1-A 24.0 A of 32 A (75 %), 18.0 to 24.0 A in the 3 min before" in alert.message
        said = lines(explain(alert, place.view, place.core.engine))
        assert any(line.split() [:2] == ["feed", "r1-A"] and "18.0 to 24.0 A" in line for line in said)

    def test_a_node_that_is_lost_beside_a_busy_feed_says_so_and_a_quiet_one_is_not_told(self) -> None:
        busy, quiet = self.braked([28.5] * 6), self.braked([9.0] * 6)
        for place in (busy, quiet):
            place.link("n1")
            for _ in range(15):
                place.tick(1.0)
        text = {name: next(one.message for one in place.alerts if one.rule == "node_unreachable")
                for name, place in (("busy", busy), ("quiet", quiet))}
        assert "; feed r1-A 28.5 A of 32 A (89 %)" in text["busy"]
        assert "feed" not in text["quiet"]


def test_every_severity_of_power_rules_is_meant() -> None:
    levels = {name: [severity for severity, _ in rule.levels()] for name, rule in builtin().items()}
    for name in ("feed_lost", "feed_tripped", "psu_redundancy"):
        assert levels[name] == [Severity.CRITICAL]
    for name in ("feed_current", "feed_failover", "feed_limit", "pdu_part", "psu_failed"):
        assert levels[name] == [Severity.WARNING, Severity.CRITICAL]
    assert builtin()["feed_current"].warning.limit == 0.8
    assert builtin()["feed_current"].critical.limit == 0.875
