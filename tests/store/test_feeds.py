"""What a feed carries, by its PDU or estimated, and what is unknown of it: readings in, the table out."""

from __future__ import annotations

import math

import msgspec
import pytest

from clustertop.model import LinkState, NodeInfo
from clustertop.plain_site import feed_objects
from clustertop.rules.power_words import feeds_of
from clustertop.rules.spec import Clear, Level, builtin
from feeds import Feed, Place, Supply, inlet, part
from work import calls

N1 = NodeInfo("n1", rack="r1")
N2 = NodeInfo("n2", rack="r1")
A = Feed("r1-A", 32.0, 230.0, pair="r1-B", pdu="pdu-a", supplies=(Supply("n1"), Supply("n2")))
B = Feed("r1-B", 32.0, 230.0, pair="r1-A", pdu="pdu-b", supplies=(Supply("n1"), Supply("n2")))


def single(**more: object) -> Place:
    return Place([Feed("f", **{"rating_amps": 32.0, "volts": 230.0, "pdu": "pdu-a", **more})], rules={})


class TestParts:
    def test_before_anything_is_heard_all_is_unknown(self) -> None:
        place = single()
        place.tick()
        for column in ("amps", "share_ratio", "judged_ratio", "event", "implausible", "limit_in_seconds"):
            assert place.feed("f", column) == "not read yet"

    def test_an_empty_part_is_the_inlet(self) -> None:
        place = single()
        place.pdu("pdu-a", [part("inlet", "inlet", amps=16.0, volts=231.0, watts=3600.0), part("bank", "bank 1", amps=9.0),
                            part("bank", "bank 2", amps=7.5)])
        place.tick()
        assert place.feed("f", "amps") == 16.0, "banks are never added to it"
        assert place.feed("f", "share_ratio") == place.feed("f", "judged_ratio") == 0.5
        assert place.feed("f", "watts") == 3600.0
        assert place.feed("f", "volts") == 231.0

    @pytest.mark.parametrize("named", ["bank 2", "Bank  2", "rack left", "bank/1/bank 2"])
    def test_a_bank_is_found_by_name_and_by_label(self, named: str) -> None:
        place = single(part=named)
        rows = [part("inlet", "inlet", amps=16.0), part("bank", "bank 1", "1", amps=9.0), part("bank", "bank 2", "1", amps=7.5)]
        rows[2][1]["part_label"] = "rack left"
        place.pdu("pdu-a", rows)
        place.tick()
        assert place.feed("f", "amps") == 7.5

    def test_inlet_1_of_a_device_that_does_not_number_its_only_one(self) -> None:
        place = single(part="inlet 1")
        place.read(pdu_a=3.0)
        assert place.feed("f", "amps") == 3.0

    def test_a_part_that_is_not_there_is_unknown_with_its_name(self) -> None:
        place = single(part="bank 9")
        place.pdu("pdu-a", inlet(5.0))
        place.tick()
        assert place.feed("f", "amps") == place.feed("f", "judged_ratio") == "the PDU has no bank 9"

    def test_the_worst_of_three_phases_counts_and_their_neutral(self) -> None:
        place = single(phases=3)
        place.pdu("pdu-a", [part("inlet", "inlet", amps=19.0), part("phase", "L1", amps=14.9, watts=3400.0),
                            part("phase", "L2", amps=25.7, watts=5900.0), part("phase", "L3", amps=14.9, watts=3400.0)])
        place.tick()
        assert place.feed("f", "amps") == 25.7
        assert place.feed("f", "watts") == pytest.approx(12700.0)
        assert place.feed("f", "neutral_amps") == pytest.approx(10.8)
        assert (place.feeds.attrs[0]["neutral_by"], place.feeds.attrs[0]["volts_by"]) == ("worked out of the phases", "configured")
        place.pdu("pdu-a", [*(part("phase", name, amps=15.0, volts=229.0) for name in ("L1", "L2", "L3")), part("neutral", "N", amps=4.0)])
        place.tick(10.0)
        assert place.feed("f", "neutral_amps") == 4.0
        assert not {"neutral_by", "volts_by"} & place.feeds.attrs[0].keys(), "what a meter says is not marked"

    def test_of_three_phases_a_total_or_two_of_them_are_a_lower_bound(self) -> None:
        place = single(phases=3)
        place.read(pdu_a=20.0)
        assert place.feed("f", "share_ratio") == pytest.approx(0.625)
        assert place.feed("f", "judged_ratio") == "at least so much: not all of it is known"
        place.pdu("pdu-a", [part("phase", "L1", amps=10.0), part("phase", "L2", amps=27.0), part("phase", "L3")])
        place.tick(10.0)
        assert place.feed("f", "judged_ratio") == pytest.approx(27 / 32), "above the limit a lower bound is enough"

    def test_delta_loads_become_line_currents(self) -> None:
        """C4: two loads of 3090 VA that share a line, 208 V: 25.7 A on it."""
        place = single(phases=3, wiring="delta", rating_amps=30.0, volts=208.0)
        place.pdu("pdu-a", [part("delta", "L1-L2", va=3090.0, volts=208.0), part("delta", "L2-L3", va=3090.0, volts=208.0),
                            part("delta", "L3-L1", va=0.0, volts=208.0)])
        place.tick()
        assert place.feed("f", "amps") == pytest.approx(25.73, abs=0.01)
        assert place.feed("f", "estimated") == 1.0
        assert place.feed("f", "judged_ratio") == pytest.approx(0.858, abs=0.001)

    def test_units_of_one_agent_are_told_apart(self) -> None:
        rows = [part("inlet", "inlet", "1", amps=4.0), part("inlet", "inlet", "2", amps=6.0)]
        place = single(part="2 inlet")
        place.pdu("pdu-a", rows)
        place.tick()
        assert place.feed("f", "amps") == 6.0
        place = single()
        place.pdu("pdu-a", rows)
        place.tick()
        assert place.feed("f", "amps") == "the PDU has no inlet; name a part of it", "which one is not said"


class TestUnknown:
    def test_a_stale_or_silent_pdu_leaves_nothing_known(self) -> None:
        place = single()
        place.read(pdu_a=20.0)
        place.tick(60.0)
        assert place.feed("f", "judged_ratio") == place.feed("f", "amps") == "stale"
        place.read(pdu_a=20.0)
        place.link("pdu-a")
        place.tick(1.0)
        assert place.feed("f", "amps") == place.feed("f", "judged_ratio") == place.feed("f", "share_ratio") \
            == "its PDU does not answer"

    def test_a_pdu_that_is_no_device(self) -> None:
        place = Place([Feed("f", 32.0, 230.0, pdu="pdu-a")], rules={})
        place.core.store._feeds._pdu[0] = -1
        place.tick()
        assert place.feed("f", "amps") == "its PDU is not among the devices"

    def test_no_load_before_any_was_seen_is_no_good_news(self) -> None:
        place = Place([A], [N1, N2], rules={})
        place.read(pdu_a=0.0)
        assert place.feed("r1-A", "amps") == 0.0, "a zero that was read is shown"
        assert place.feed("r1-A", "judged_ratio") == place.feed("r1-A", "event") == "no load seen on it yet"
        place.read(pdu_a=9.0)
        assert place.feed("r1-A", "event") == 0.0


class TestLimits:
    def test_the_configured_rating_decides_and_what_the_device_says_is_information(self) -> None:
        """C2 b)."""
        place = single(rating_amps=15.0)
        place.pdu("pdu-a", inlet(7.1, rating_amps=15.0, crit_amps=3.0))
        place.tick()
        assert place.feed("f", "judged_ratio") == pytest.approx(7.1 / 15)
        assert place.feed("f", "limits_disagree") == 1.0
        assert place.feeds.attrs[0]["disagreement"] == "the device says limit 3 A"
        assert place.feed("f", "warning_amps") == pytest.approx(12.0)

    def test_else_the_devices_enabled_limits_else_its_rating(self) -> None:
        place = single(rating_amps=None)
        place.pdu("pdu-a", inlet(13.0, rating_amps=16.0, warn_amps=12.0, crit_amps=14.0))
        place.tick()
        assert place.feed("f", "judged_ratio") == "judged by the device's own limits"
        assert (place.feed("f", "limit_level"), place.feed("f", "device_level")) == (1.0, 1.0)
        place.pdu("pdu-a", inlet(13.0, rating_amps=16.0))
        place.tick(10.0)
        assert place.feed("f", "judged_ratio") == pytest.approx(13 / 16)
        place.pdu("pdu-a", inlet(13.0))
        place.tick(10.0)
        assert place.feed("f", "judged_ratio") == "no rating configured, none from the device"

    def test_a_wrong_scale_needs_two_readings_and_is_no_overload(self) -> None:
        """C2 a)."""
        place = single(rating_amps=15.0)
        place.read(pdu_a=71.0)
        assert place.feed("f", "judged_ratio") == "far above its breaker; the next reading decides"
        place.read(pdu_a=71.0)
        assert place.feed("f", "implausible") == 1.0
        assert place.feed("f", "judged_ratio") == "implausible scale"
        place.read(pdu_a=7.1)
        assert place.feed("f", "implausible") == 0.0

    def test_amps_volts_and_watts_that_cannot_be_one_load(self) -> None:
        place = single()
        for _ in range(2):
            place.pdu("pdu-a", inlet(1.2, volts=230.0, watts=2700.0))
            place.tick(10.0)
        assert place.feed("f", "implausible") == 1.0

    def test_the_trip_curve(self) -> None:
        place = single()
        for amps, said in ((30.0, "need not trip within the hour"), (36.0, "need not trip within the hour"),
                           (48.0, 3600.0), (90.0, 60.0)):
            place.read(pdu_a=amps)
            assert place.feed("f", "trip_seconds") == said


class TestEstimate:
    def test_power_of_nodes_over_the_voltage_with_its_coverage(self) -> None:
        feeds = [Feed("a", 16.0, 220.0, pair="b", supplies=(Supply("n1"), Supply("n2"))),
                 Feed("b", 16.0, 220.0, supplies=(Supply("n1"), Supply("n2")))]
        place = Place(feeds, [N1, N2], ["n1", "n2"], rules={})
        place.bmc("n1", 3200.0)
        place.tick()
        assert place.feed("a", "amps") == pytest.approx(1600 / 220), "half of it on each of two feeds"
        assert (place.feed("a", "estimated"), place.feed("a", "coverage_ratio")) == (1.0, 0.5)
        assert place.feed("a", "judged_ratio") == "at least so much: not all of it is known"
        place.bmc("n2", 3300.0)
        place.tick(1.0)
        assert place.feed("a", "watts") == pytest.approx(3250.0)
        assert place.feed("a", "judged_ratio") == pytest.approx(3250 / 220 / 16)
        assert place.feeds.attrs[0]["source"] == "estimated from BMC power"
        assert place.feed("a", "failover_level") == 2.0

    def test_supplies_that_are_named_are_counted_by_themselves(self) -> None:
        feeds = [Feed("a", 16.0, 200.0, supplies=(Supply("n1", ("PSU1", "PSU2")),)), Feed("b", 16.0, 200.0, supplies=(Supply("n1", ("PSU3",)),))]
        place = Place(feeds, [N1], ["n1"], rules={})
        place.bmc("n1", 3000.0)
        place.tick()
        assert (place.feed("a", "watts"), place.feed("b", "watts")) == (2000.0, 1000.0), "by their number"
        place.bmc("n1", 3000.0, [(str(number), {"name": f"PSU{number}"}, {"in_watts": watts})
                                 for number, watts in ((1, 1300.0), (2, 1350.0), (3, 400.0))])
        place.tick(1.0)
        assert (place.feed("a", "watts"), place.feed("b", "watts")) == (2650.0, 400.0), "by what they draw"

    def test_a_feed_of_three_phases_is_a_lower_bound_and_volts_are_needed(self) -> None:
        feeds = [Feed("star", 16.0, 230.0, 3, supplies=(Supply("n1"),)), Feed("delta", 16.0, 400.0, 3, "delta", supplies=(Supply("n2"),)),
                 Feed("none", 16.0, supplies=(Supply("n2"),))]
        place = Place(feeds, [N1, N2], ["n1", "n2"], rules={})
        place.bmc("n1", 6900.0)
        place.bmc("n2", 6900.0)
        place.tick()
        assert place.feed("star", "amps") == pytest.approx(10.0)
        assert place.feed("delta", "amps") == pytest.approx(3450 / 400 / math.sqrt(3))
        assert place.feed("star", "judged_ratio") == "at least so much: not all of it is known"
        assert place.feed("none", "amps") == "no volts configured, so no current can be estimated"

    def test_nothing_known_of_its_nodes(self) -> None:
        place = Place([Feed("a", 16.0, 230.0, supplies=(Supply("n1"),))], [N1], ["n1"], rules={})
        place.tick()
        assert place.feed("a", "amps") == "no PDU, and no power of its nodes is known"
        place.bmc("n1", "!power not metered")
        place.tick(1.0)
        assert place.feed("a", "amps") == "no PDU, and no power of its nodes is known", "C9: never 0 W"
        place.bmc("n1", 800.0)
        place.tick(1.0)
        place.tick(90.0)
        assert place.feed("a", "amps") in {"stale", "no PDU, and no power of its nodes is known"}


class TestWhatHangsOnIt:
    def test_outlets_that_are_named_after_nodes(self) -> None:
        place = Place([Feed("f", 32.0, 230.0, pdu="pdu-a", supplies=(Supply("n1"),), outlets_name_nodes=True)], [N1, N2], rules={})
        place.pdu("pdu-a", [*inlet(9.0), part("outlet", "n2", amps=4.0), part("outlet", "spare", amps=0.0)])
        place.link("n2")
        place.tick()
        assert (place.feed("f", "nodes"), place.feed("f", "nodes_lost")) == (2.0, 1.0)
        owners = place.core.store.owners
        assert owners.supplied(owners.first_feed) >= {0, 1}
        assert place.feeds.attrs[0]["nodes"] == "n[1-2]"
        assert (owners.feeds_of(0), owners.feeds_of(1)) == ((0,), (0,))
        assert feed_objects(place.view)[0]["nodes"] == ["n1", "n2"]
        assert feeds_of(place.view, 1) == [0], "what its feed did is told of the node as well"

    def test_a_supply_is_said_to_hang_on_its_feed_also_when_it_is_listed_anew(self) -> None:
        feeds = [Feed("a", 16.0, 230.0, supplies=(Supply("n1", ("PSU1",)),)), Feed("b", 16.0, 230.0, supplies=(Supply("n1", ("2",)),))]
        place = Place(feeds, [N1], ["n1"], rules={})
        for count in (2, 3):
            place.bmc("n1", 900.0, [(str(one), {"name": f"PSU{one}"}, {"state": "=ok"}) for one in range(1, count + 1)])
            place.tick(10.0)
            assert [attrs.get("feed") for attrs in place.view["psu"].attrs] == ["a", "b", None][:count]

    def test_limits_follow_the_rule_in_force(self) -> None:
        rule = msgspec.structs.replace(builtin()["feed_current"], warning=Level(0.6), critical=Level(0.7), clear=Clear(0.5))
        place = Place([Feed("f", 30.0, 230.0, pdu="pdu-a")], rules={"feed_current": rule})
        place.read(pdu_a=10.0)
        assert (place.feed("f", "warning_amps"), place.feed("f", "critical_amps")) == (pytest.approx(18.0), pytest.approx(21.0))


class TestPairs:
    def test_what_one_would_carry_alone_is_told_at_the_first(self) -> None:
        """C6 a)."""
        place = Place([A, B], [N1, N2], rules={})
        place.read(pdu_a=13.0, pdu_b=14.0)
        assert place.feed("r1-A", "failover_ratio") == pytest.approx(27 / 32)
        assert (place.feed("r1-A", "failover_level"), place.feed("r1-B", "failover_level")) == (1.0, 1.0)
        assert (place.feed("r1-A", "pair_ratio"), place.feed("r1-B", "pair_ratio")) == (
            pytest.approx(27 / 32), "told at the other feed of its pair")

    def test_no_pair_and_an_unknown_pair(self) -> None:
        """C6 b)."""
        place = Place([A, B, Feed("c", 32.0, 230.0, pdu="pdu-c")], [N1, N2], rules={})
        place.read(pdu_a=13.0, pdu_c=5.0)
        assert place.feed("c", "pair_ratio") == "no pair configured"
        assert place.feed("r1-A", "pair_ratio") == "current of its pair not known"

    def test_declared_at_one_of_them_is_declared(self) -> None:
        place = Place([Feed("a", 32.0, pdu="pdu-a"), Feed("b", 32.0, pair="a", pdu="pdu-b")], rules={})
        place.read(pdu_a=13.0, pdu_b=14.0)
        assert place.feed("a", "pair_ratio") == pytest.approx(27 / 32)


class TestEvents:
    def pair(self) -> Place:
        place = Place([A, B], [N1, N2], rules={})
        for node in ("n1", "n2"):
            place.link(node, LinkState.UP)
        for _ in range(3):
            place.read(pdu_a=13.0, pdu_b=12.5)
        return place

    def test_the_other_took_over(self) -> None:
        """C6 c)."""
        place = self.pair()
        place.read(pdu_a=0.0, pdu_b=25.3)
        assert (place.feed("r1-A", "event"), place.feed("r1-B", "event")) == (1.0, 0.0)
        assert place.feed("r1-A", "before_amps") == 13.0
        assert place.feed("r1-A", "judged_ratio") == "its load is gone"
        assert place.feed("r1-A", "pair_ratio") == "one of the pair has lost its load"
        for _ in range(60):
            place.read(pdu_a=0.0, pdu_b=25.3)
        assert place.feed("r1-A", "event") == 1.0, "it stands until the load is back"
        place.read(pdu_a=12.0, pdu_b=13.0)
        assert place.feed("r1-A", "event") == 0.0

    @pytest.mark.parametrize(("before", "after"), [(1.0, 0.9), (0.0, 0.0), (None, 0.0)])
    def test_a_breaker_that_is_closed_again_over_a_small_load_is_no_event_any_more(
        self, before: float | None, after: float,
    ) -> None:
        place = single()
        if before is not None:
            place.pdu("pdu-a", inlet(before, state="=ok", tripped=0.0))
            place.tick()
            place.now += 10.0
        for _ in range(2):
            place.pdu("pdu-a", inlet(0.0, state="=tripped", tripped=1.0))
            place.tick(10.0)
        assert place.feed("f", "event") == 2.0
        place.tick(100.0)
        assert place.feed("f", "event") == 2.0, "unknown now: that ends nothing"
        place.pdu("pdu-a", inlet(after, state="=ok", tripped=0.0))
        place.tick()
        assert place.feed("f", "event") in {0.0, "no load seen on it yet"}

    def test_the_other_is_read_later(self) -> None:
        place = self.pair()
        place.read(5.0, pdu_a=0.0)
        assert place.feed("r1-A", "event") == 3.0
        place.read(5.0, pdu_b=25.0)
        assert place.feed("r1-A", "event") == 1.0

    def test_the_other_was_read_earlier(self) -> None:
        place = self.pair()
        place.read(5.0, pdu_b=25.0)
        place.read(5.0, pdu_a=0.0)
        assert place.feed("r1-A", "event") == 1.0

    def test_nodes_are_given_up_after_the_load_went(self) -> None:
        place = self.pair()
        place.read(pdu_a=0.0, pdu_b=12.5)
        assert place.feed("r1-A", "event") == 3.0
        place.link("n1")
        place.read(pdu_a=0.0, pdu_b=12.5)
        assert (place.feed("r1-A", "event"), place.feed("r1-A", "nodes_lost")) == (2.0, 1.0)

    def test_nodes_that_were_away_before_say_nothing(self) -> None:
        place = Place([A, B], [N1, N2], rules={})
        place.link("n1")
        for _ in range(30):
            place.read(pdu_a=13.0, pdu_b=12.5)
        place.read(pdu_a=0.0, pdu_b=12.5)
        assert place.feed("r1-A", "event") == 3.0

    def test_the_device_says_that_the_breaker_is_open(self) -> None:
        place = self.pair()
        place.now += 10.0
        place.pdu("pdu-a", inlet(0.0, state="=tripped", tripped=1.0))
        place.tick()
        assert place.feed("r1-A", "event") == 2.0

    def test_a_pdu_that_dies_with_its_feed(self) -> None:
        place = self.pair()
        place.now += 5.0
        place.link("pdu-a")
        place.tick()
        assert place.feed("r1-A", "event") == "its PDU does not answer", "a silent PDU alone is not a lost feed"
        place.read(5.0, pdu_b=25.2)
        assert place.feed("r1-A", "event") == 1.0
        place.tick(200.0)
        assert place.core.store._feeds._events.kind[0] == 1

    def test_a_load_that_sinks_slowly_is_no_event(self) -> None:
        place = self.pair()
        for amps in (10.0, 8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.2, 1.0, 0.9, 0.8, 0.7, 0.6, 0.0):
            for _ in range(4):
                place.read(pdu_a=amps, pdu_b=12.5)
        assert place.feed("r1-A", "event") == 0.0


class TestForecast:
    def rising(self, step: float, start: float = 20.0, readings: int = 30, **more: object) -> Place:
        place = single(**more)
        for number in range(readings):
            place.read(pdu_a=start + step * number)
        return place

    def test_a_steady_rise_reaches_its_limits(self) -> None:
        place = self.rising(0.1)
        assert place.feed("f", "slope_amps_per_second") == pytest.approx(0.01)
        assert place.feed("f", "to_warning_seconds") == pytest.approx((25.6 - 22.9) / 0.01, rel=0.02)
        assert place.feed("f", "to_critical_seconds") == pytest.approx((28 - 22.9) / 0.01, rel=0.02)
        assert place.feed("f", "to_rating_seconds") == pytest.approx((32 - 22.9) / 0.01, rel=0.02)
        assert place.feed("f", "limit_in_seconds") == place.feed("f", "to_critical_seconds")

    def test_a_flat_one_does_not_and_that_is_known(self) -> None:
        place = self.rising(0.0)
        assert place.feed("f", "limit_in_seconds") == 3600.0
        assert place.feed("f", "to_critical_seconds") == "not rising"

    def test_a_low_one_is_not_looked_at(self) -> None:
        place = self.rising(0.001, start=3.0)
        assert place.feed("f", "to_critical_seconds") == "neither busy nor rising"
        assert place.feed("f", "limit_in_seconds") == 3600.0

    def test_a_few_readings_tell_nothing(self) -> None:
        place = self.rising(0.5, readings=4)
        assert place.feed("f", "limit_in_seconds") == "too few readings yet"

    @pytest.mark.parametrize("before", [2, 3, 12], ids=["at first", "soon", "after two minutes"])
    @pytest.mark.parametrize("between", [[], [21.0]], ids=["at once", "over a reading"])
    def test_a_step_is_no_climb(self, before: int, between: list[float]) -> None:
        place = single()
        said = []
        for amps in [*[18.1, 18.0, 18.2] * 4][:before] + between + [24.1, 23.9, 24.3, 24.0, 24.2, 24.3, 24.1, 24.2, 24.3]:
            place.read(pdu_a=amps)
            said.append(place.feed("f", "to_critical_seconds"))
        assert [one for one in said if isinstance(one, float)] == []
        assert place.feed("f", "limit_in_seconds") == 3600.0

    def test_a_minute_does_not_foretell_a_quarter_of_an_hour(self) -> None:
        place = self.rising(0.1, readings=8)
        assert place.feed("f", "slope_amps_per_second") == pytest.approx(0.01)
        assert (28 - 20.7) / 0.01 > 4 * 70
        assert place.feed("f", "to_critical_seconds") == "far from the limit"
        assert place.feed("f", "limit_in_seconds") == 3600.0
        for step in range(8, 17):
            place.read(pdu_a=20.0 + 0.1 * step)
        assert place.feed("f", "to_critical_seconds") == pytest.approx((28 - 21.6) / 0.01, rel=0.02)

    def test_a_climb_after_a_step_is_seen(self) -> None:
        place = single()
        for amps in (18.1, 18.0, 18.2, 23.0, *(23.1 + 0.1 * step for step in range(12))):
            place.read(pdu_a=amps)
        assert place.feed("f", "to_critical_seconds") == pytest.approx((28 - 24.2) / 0.01, rel=0.05)

    def test_after_an_event_the_past_tells_nothing(self) -> None:
        place = self.rising(0.1)
        place.read(pdu_a=0.0)
        place.read(pdu_a=0.0)
        assert isinstance(place.feed("f", "limit_in_seconds"), str)


    def test_what_took_over_a_load_did_not_climb_to_it(self) -> None:
        place = Place([A, B], [N1, N2], rules={})
        for number in range(20):
            place.read(pdu_a=10.0, pdu_b=11.0 + 0.1 * number)
        assert isinstance(place.feed("r1-B", "limit_in_seconds"), float)
        place.read(pdu_a=0.0, pdu_b=23.0)
        assert place.feed("r1-B", "limit_in_seconds") == "too few readings yet"


def calls_of(count: int) -> int:
    """Most functions that a tick calls for *count* feeds whose current rises, with new readings and without."""
    feeds = [Feed(f"f{number}", 32.0, 230.0, pdu=f"pdu-{number}") for number in range(count)]
    place = Place(feeds, rules={})
    store = place.core.store
    cost = []
    for reading in range(40):
        place.now += 10.0
        for number in range(count):
            place.pdu(f"pdu-{number}", inlet(18.0 + 0.1 * reading))
        ticks = 9 if reading >= 36 else 1
        for _ in range(ticks):
            place.now += 1.0
            for table in store.tables.values():
                table.refresh()
            cost.append(calls(lambda: store._feeds.derive(place.now)))
        place.now -= ticks
    return max(cost[36:])


def test_512_feeds_cost_little() -> None:
    few, many = calls_of(64), calls_of(512)
    assert many < 1.2 * few, "a tick costs calls by its steps, not by its feeds"
    assert many < 8192
