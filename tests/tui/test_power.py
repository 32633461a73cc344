"""The Power screen: feeds by headroom, pairs side by side, what is unknown or estimated said as such."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

import pytest

from clustertop import plain_site
from clustertop.model import LinkState, NodeInfo, OwnCost, Request
from clustertop.places import Feed, Supply
from clustertop.tui import power
from clustertop.tui.glyphs import ASCII, UNICODE
from feeds import Place, inlet, part
from tui.test_console import console, lines, settle, take, text

NODES = [NodeInfo(name, rack="r1") for name in ("n1", "n2", "n3", "n4")]
BOTH = tuple(Supply(name, ("PSU1",)) for name in ("n1", "n2"))
FEEDS = [
    Feed("r1-A", 32.0, 230.0, pair="r1-B", rack="r1", pdu="pdu-a", supplies=BOTH),
    Feed("r1-B", 32.0, 230.0, pair="r1-A", rack="r1", pdu="pdu-b", supplies=tuple(Supply(one.node, ("PSU2",)) for one in BOTH)),
    Feed("r1-C", 16.0, 230.0, rack="r1", pdu="pdu-c", supplies=(Supply("n3"),)),
    Feed("r1-D", 32.0, 230.0, rack="r1", supplies=(Supply("n3"), Supply("n4"))),
]


class PowerSource(Place):
    """A ``Source`` over feeds made of rows."""

    title = "demo"
    notes: tuple[str, ...] = ()
    live = True
    origins: ClassVar[dict[str, dict[str, str]]] = {}
    times = None

    def __init__(self, *feeds: Feed) -> None:
        super().__init__(feeds or FEEDS, NODES, bmcs=("n1", "n2", "n3"))
        self.asked: list[Request] = []

    @property
    def snapshot(self):
        return self.core.snapshot

    def cost(self) -> OwnCost:
        return OwnCost(0.03, 7e7)

    def released(self, node: int) -> bool:
        return False

    def evaluate(self) -> None:
        self.tick()

    def request(self, request: Request) -> None:
        self.asked.append(request)


@pytest.fixture
def source() -> PowerSource:
    """A pair without headroom, a quiet feed, an estimated one whose coverage is partial."""
    out = PowerSource()
    for _ in range(3):
        out.read(pdu_a=20.0, pdu_b=14.0, pdu_c=4.0)
    out.bmc("n1", 6000.0, [("p1", {"name": "PSU1"}, {"state": "=ok", "in_watts": 3100.0}),
                           ("p2", {"name": "PSU2"}, {"state": "=failed", "in_watts": 0.0})], redundancy="=lost")
    out.bmc("n2", 5200.0)
    out.bmc("n3", 1500.0)
    out.read(pdu_a=20.0, pdu_b=14.0, pdu_c=4.0)
    return out


def row(shown: list[str], name: str) -> str:
    return next(line for line in shown if re.match(rf".{{9,11}}{name} ", line))


async def test_feeds_stand_by_headroom_and_pairs_side_by_side(source: PowerSource) -> None:
    async with console(source, (160, 50)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        shown = lines(app)
        places = [next(at for at, line in enumerate(shown) if re.match(rf".{{9,11}}{name} ", line))
                  for name in ("r1-A", "r1-B", "r1-D", "r1-C")]
        assert places == sorted(places), "the pair first, the unknown one before the quiet one"
        assert places[1] == places[0] + 1
        assert "20.0/32 A" in row(shown, "r1-A")
        assert "62 %" in row(shown, "r1-A")
        assert "106 %" in row(shown, "r1-A"), "what A would carry if B died"
        assert "no pair" in row(shown, "r1-C")
        assert re.search(r"^ 4 feeds  \d critical  \d warning  1 unknown  1 estimated", text(app), re.MULTILINE)


async def test_an_estimate_says_so_and_what_part_it_covers(source: PowerSource) -> None:
    async with console(source, (200, 50)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        line = row(lines(app), "r1-D")
        assert "est >=3.3/32 A" in line, "half of n3, which hangs on two feeds; nothing is known of n4"
        assert "est. from BMC power" in line
        assert line.startswith("? unknown"), "a lower bound below the limit is not fine"


async def test_a_silent_pdu_leaves_an_unknown_and_never_a_bar(source: PowerSource) -> None:
    source.link("pdu-c", LinkState.UNREACHABLE, "no answer from pdu-c:161 since 03:12")
    source.now += 400
    source.tick()
    async with console(source, (160, 50)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        line = row(lines(app), "r1-C")
        assert line.startswith("? unknown")
        assert "\u28ff" not in line
        assert re.search(r"\?|~", line[20:60])
        assert "2 of 3 PDUs answer" in text(app) or "0 of 3 PDUs answer" in text(app)


async def test_the_feed_under_the_cursor_is_told_with_its_parts_and_nodes(source: PowerSource) -> None:
    source.pdu("pdu-a", [*inlet(20.0), part("bank", "B1", amps=12.0, rating_amps=16.0, state="=ok")])
    source.tick(1.0)
    async with console(source, (160, 50)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        shown = text(app)
        assert "pair r1-B" in shown
        assert "PDU pdu-a" in shown
        assert "volts 230 V (configured)" in shown, "no meter says so"
        assert re.search(r"bank B1 .*12 A of 16 A", shown)
        assert re.search(r"n1 .*6000 W  BMC .*PSU1 ok", shown)
        assert "PSU2" not in shown, "only the supplies that hang on this feed"
        await pilot.press("down")
        await settle(pilot)
        assert re.search(r"n1 .*PSU2 FAILED", text(app))


async def test_what_a_bmc_said_long_ago_is_told_with_its_age(source: PowerSource) -> None:
    source.read(pdu_a=20.0, pdu_b=14.0, pdu_c=4.0)
    source.read(pdu_a=20.0, pdu_b=14.0, pdu_c=4.0)
    async with console(source, (160, 50)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        assert re.search(r"n1 .*6000 W  BMC, 30 s ago", text(app))


async def test_words_of_a_device_that_fell_silent_are_not_said_of_now(source: PowerSource) -> None:
    source.pdu("pdu-a", [*inlet(20.0), part("bank", "B1", amps=12.0, rating_amps=16.0, state="=ok")])
    source.core.store.tables["pdu"].attrs[-1] = {**source.core.store.tables["pdu"].attrs[-1], "state": "all is well"}
    source.bmc("n1", 6000.0, [("p1", {"name": "PSU1", "words": "presence detected"}, {"state": "=ok"})],
               [("fan", {"name": "Fan redundancy", "states": "fully redundant"}, {"reading": None})])
    source.tick(1.0)
    async with console(source, (160, 60)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        assert re.search(r"bank B1 .*all is well", text(app))
        assert (page := await power_page(app, pilot)).count("presence detected") == page.count("fully redundant") == 1
    source.now += 400.0
    source.tick()
    async with console(source, (160, 60)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        assert "bank B1" in text(app)
        assert "all is well" not in text(app)
        page = await power_page(app, pilot)
        assert "Fan redundancy stale" in page
        assert "presence detected" not in page
        assert "fully redundant" not in page


async def power_page(app, pilot) -> str:
    """The page of the first node of the feed under the cursor."""
    await pilot.press("enter", "enter")
    await settle(pilot)
    page = app.panes["detail"].page
    return "\n".join(page.text_of(y) for y in range(page.count()))


async def test_a_phase_that_is_not_known_makes_it_at_least(source: PowerSource) -> None:
    three = Place([Feed("f", 32.0, 230.0, phases=3, pdu="p")])
    for amps in (27.0, 27.0):
        three.pdu("p", [part("phase", "L1", amps=10.0), part("phase", "L2", amps=amps), part("phase", "L3")])
        three.tick(10.0)
        three.now += 1.0
    assert power.amps_words(three.view["feed"], 0)[0] == ">=27.0/32 A"
    assert [one.message for one in three.alerts if one.rule == "feed_current"] == [
        "27.0 A of 32 A (84 %), at least: not every phase is known"]


async def test_somebody_who_looks_has_the_device_say_all_it_has(source: PowerSource) -> None:
    async with console(source, (160, 50)) as (app, pilot):
        await pilot.press("6")
        await take(app, pilot)
        pdu = source.core.store.owners.number("pdu", "pdu-a")
        assert [(one.node, one.body["do"]) for one in source.asked] == [(pdu, "detail")]
        await take(app, pilot)
        assert len(source.asked) == 1, "said once for half a minute"
        await pilot.press("1")
        await take(app, pilot)
        assert len(source.asked) == 1


async def test_u_asks_the_pdu_of_the_feed(source: PowerSource) -> None:
    async with console(source, (160, 50)) as (app, pilot):
        await pilot.press("6", "u")
        await settle(pilot)
        asked = [one for one in source.asked if one.body["do"] == "full"]
        assert [one.node for one in asked] == [source.core.store.owners.number("pdu", "pdu-a")]
        assert "asked pdu-a for a reading" in text(app)


async def test_enter_shows_the_nodes_of_the_feed_and_their_page_has_their_power(source: PowerSource) -> None:
    async with console(source, (160, 60)) as (app, pilot):
        await pilot.press("6", "enter")
        await settle(pilot)
        assert app.front == "nodes"
        assert "filter: feed:r1-a" in text(app).lower()
        shown = text(app)
        assert "n1" in shown
        assert "n2" in shown
        assert not re.search(r"^.{0,14}n4 ", shown, re.MULTILINE)
        await pilot.press("enter")
        await settle(pilot)
        page = app.panes["detail"].page
        told = "\n".join(page.text_of(y) for y in range(page.count()))
        assert re.search(r"feed r1-A .*20.0/32 A", told)
        assert "redundancy LOST" in told
        assert re.search(r"PSU2 +FAILED", told)


async def test_nodes_that_the_outlets_name_stand_on_the_screen_and_are_found() -> None:
    source = PowerSource(replace(FEEDS[0], pair="", supplies=(), outlets_name_nodes=True))
    for _ in range(2):
        source.now += 10.0
        source.pdu("pdu-a", [*inlet(9.0), part("outlet", "n2", amps=4.0)])
        source.tick()
    async with console(source, (160, 60)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        assert re.search(r"^ *Nodes by draw *$\n +n2 ", text(app), re.MULTILINE)
        await pilot.press("enter")
        await settle(pilot)
        shown = text(app)
        assert re.search(r"waiting +n2 ", shown)
        assert not re.search(r"waiting +n1 ", shown)


async def test_a_cursor_that_was_not_moved_stays_on_the_worst_feed() -> None:
    feeds = [Feed(f"f{number:02}", 32.0, 230.0, pdu=f"p{number:02}") for number in range(40)]
    source = PowerSource(*feeds)

    def read(**odd: float) -> None:
        source.read(**{one.pdu: odd.get(one.pdu, 9.0 + number / 10) for number, one in enumerate(feeds)})

    read(p05=15.0)
    async with console(source, (120, 24)) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        table = app.panes["power"].table
        assert app.panes["power"].feed() == "f05"
        for _ in range(3):
            read(p05=8.0, p31=31.0)
        await take(app, pilot)
        assert (app.panes["power"].feed(), table.place, table.top) == ("f31", 0, 0)
        await pilot.press("down")
        held = app.panes["power"].feed()
        for _ in range(3):
            read(p05=31.5, p31=31.0)
        await take(app, pilot)
        assert app.panes["power"].feed() == held, "the operator's own choice stays"


async def test_without_a_feed_the_screen_says_what_to_configure() -> None:
    from tui.fleet import FleetSource

    fleet = FleetSource(4, racks=1)
    fleet.connect()
    fleet.run(2)
    async with console(fleet) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        assert "no feed is configured: write [feeds.NAME]" in text(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_it_fits_every_size_also_in_ascii(source: PowerSource, size: tuple[int, int]) -> None:
    async with console(source, size, ascii_only=True) as (app, pilot):
        await pilot.press("6")
        await settle(pilot)
        shown = lines(app)
        assert all(len(line) <= size[0] for line in shown)
        assert all(line.isascii() for line in shown)
        assert "20.0/32 A" in row(shown, "r1-A")
        assert any("####" in line for line in shown)


class TestLimits:
    def test_a_share_is_held_against_the_limits_of_its_own_feed(self, source: PowerSource) -> None:
        table = source.feeds
        a = next(row for row, attrs in enumerate(table.attrs) if attrs["name"] == "r1-A")
        assert power.limits(table, a) == pytest.approx((0.8, 0.875))
        table.values[table.spec.index["warning_amps"], a] = 16.0
        table.values[table.spec.index["critical_amps"], a] = 24.0
        assert power.limits(table, a) == (0.5, 0.75)
        assert power.level(20 / 32, power.limits(table, a)) == "warning"
        assert power.bar(ASCII, 0.25, 20, power.limits(table, a)) == "#####     |    |    "
        assert power.marks(table, a, "failover_ratio") == (0.5, 1.0), "alone it may go up to its rating, as the rule has it"

    def test_when_a_warning_is_due_is_said_by_its_share(self, source: PowerSource) -> None:
        table = source.feeds
        a = next(row for row, attrs in enumerate(table.attrs) if attrs["name"] == "r1-A")
        table.values[table.spec.index["to_warning_seconds"], a] = 300.0
        assert plain_site.outlook(table, a)[0].startswith("80 % in 5 min")
        table.values[table.spec.index["warning_amps"], a] = 16.0
        assert plain_site.outlook(table, a)[0].startswith("50 % in 5 min")


class TestBars:
    def test_a_bar_ends_at_the_rating_and_has_its_marks(self) -> None:
        assert power.bar(ASCII, 0.5, 20) == "##########      ||  "
        assert power.bar(ASCII, 1.2, 20) == "################||#>"
        assert power.bar(ASCII, 0.0, 10) == "        |  "[:10]

    def test_an_unknown_share_is_no_empty_bar_with_a_zero(self) -> None:
        assert power.bar(UNICODE, None, 20).replace("|", "").strip() == ""
        assert power.level(None) == "unknown"
        assert power.level(0.79) == "ok"
        assert power.level(0.8) == "warning"
        assert power.level(0.875) == "critical"
