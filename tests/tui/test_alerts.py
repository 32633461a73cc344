"""Alerts in the operator's hands: grouped, unfolded, explained, acknowledged, silenced, dismissed, heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from rich.cells import cell_len

from clustertop.inventory import Inventory
from clustertop.model import LinkState, NodeInfo
from clustertop.plan import Plan
from clustertop.probe.frames import Err
from clustertop.record import Recorder, Recording
from clustertop.replay import ReplaySession
from clustertop.rules.latency import times
from clustertop.rules.spec import Level, Rule, builtin
from clustertop.tui import handling
from clustertop.tui.ask import Ask
from clustertop.tui.confirm import Confirm
from clustertop.tui.picture import CRITICAL
from clustertop.wire.transport import PollSettings
from nodes import Fleet, gpus, lost
from tui.test_console import console, lines, settle, take, text
from tui.test_details import SIZES, Source, line_of

if TYPE_CHECKING:
    from pathlib import Path

    from textual.pilot import Pilot

    from clustertop.tui.app import ConsoleApp
    from clustertop.tui.panes.alerts import AlertsPane


class Room(Fleet):
    """Two racks of four nodes that send a frame each second unless they are away."""

    def __init__(self, **core: Any) -> None:
        super().__init__([NodeInfo(f"n{number}", rack=f"r{number // 4 + 1}", leaf="l1", groups=("train",))
                          for number in range(8)], **core)
        self.away: set[int] = set()
        self.tables: dict[int, dict[str, Any]] = {}

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            for number in range(len(self.encoders)):
                if number not in self.away:
                    self.say(number, **self.tables.get(number, {"gpu": gpus({}, {})}))
            self.tick()

    def lose(self, *numbers: int) -> None:
        self.away.update(numbers)
        for number in numbers:
            self.link(number, LinkState.UNREACHABLE, "connect timeout")

    def heat(self, number: int, *celsius: float) -> None:
        self.tables[number] = {"gpu": gpus(*({"temp": one} for one in celsius))}


def dark_rack() -> Room:
    """Rack r2 is gone, and a GPU of n1 is hot."""
    room = Room()
    room.run(3)
    room.heat(1, 83, 60)
    room.lose(4, 5, 6, 7)
    room.run(20)
    assert [alert.rule for alert in room.alerts] == ["node_unreachable", "gpu_temperature"]
    return room


def hot(celsius: float = 88) -> Room:
    """GPU 0 of n0 and GPU 1 of n2 are hot."""
    room = Room()
    room.heat(0, celsius, 60)
    room.heat(2, 60, 84)
    room.run(5)
    assert [alert.thing.node for alert in room.alerts] == ["n0", "n2"]
    return room


def pane(app: ConsoleApp) -> AlertsPane:
    return app.panes["alerts"]  # type: ignore[return-value]


def listed(app: ConsoleApp) -> list[str]:
    """The lines of the list of alerts."""
    table = pane(app).table
    return [table.text_of(y) for y in range(table.count())]


def below(app: ConsoleApp) -> str:
    """What is below the list."""
    lower = pane(app).lower
    return "\n".join(lower.text_of(y) for y in range(lower.count()))


async def press(pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


async def later(app: ConsoleApp, pilot: Pilot[int], room: Room, seconds: int) -> None:
    room.run(seconds)
    await take(app, pilot)


# -- many things -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_a_rack_is_one_line_that_unfolds_to_every_verdict_inside(size: tuple[int, int]) -> None:
    room = dark_rack()
    async with console(Source(room), size) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2")
        assert len(listed(app)) == 2
        assert "4 of 4 nodes unreachable: n[4-7]" in listed(app)[0]
        assert "+ 4 nodes" in listed(app)[0]
        await press(pilot, "enter")
        inside = listed(app)[1:5]
        assert all("unreachable: connect timeout" in line for line in inside)
        assert [word for line in inside for word in line.split() if word[0] == "n" and word[1:].isdecimal()] == [
            "n4", "n5", "n6", "n7"]
        assert listed(app)[5].startswith("▴ warn"), "what is no part of it stays behind it"
        await press(pilot, "down", "down")
        assert "node unreachable  n5" in below(app)
        await press(pilot, "enter")
        assert app.front == "detail"
        assert "n5" in text(app)
        await press(pilot, "escape", "plus")
        assert len(listed(app)) == 2, "folded from inside, with the cursor on the alert"
        assert pane(app).table.place == 0
        assert {cell_len(line) for line in lines(app)} == {size[0]}


async def test_the_count_of_an_unfolded_alert_lives() -> None:
    room = dark_rack()
    room.heat(5, 60, 60)
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "enter")
        room.away.discard(7)
        room.link(7, LinkState.UP)
        await later(app, pilot, room, 3)
        assert "3 of 4 nodes unreachable: n[4-6]" in listed(app)[0]
        assert "- 3 nodes" in listed(app)[0]
        assert len([line for line in listed(app) if "connect timeout" in line and "node " in line[20:40]]) >= 3


async def test_any_order_keeps_what_is_inside_below_its_alert() -> None:
    room = dark_rack()
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "enter", "r")
        assert [pane(app).entries[row].alert.rule for row in pane(app).table.rows] == [
            "gpu_temperature", *["node_unreachable"] * 5]
        await press(pilot, "r", "s", "s", "s")
        heads = [pane(app).entries[row].under is None for row in pane(app).table.rows]
        assert heads.count(True) == 2
        at = next(place for place, row in enumerate(pane(app).table.rows)
                  if pane(app).entries[row].alert.rule == "node_unreachable")
        assert heads[at: at + 5] == [True, False, False, False, False]


async def test_one_thing_has_nothing_inside() -> None:
    async with console(Source(hot())) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "plus")
        assert len(listed(app)) == 2
        assert "one thing: nothing else is inside" in text(app)
        await press(pilot, "enter")
        assert app.front == "detail"


async def test_an_alert_about_many_nodes_is_found_copied_and_told_of_everywhere() -> None:
    room = dark_rack()
    async with console(Source(room), (120, 50)) as (app, pilot):  # type: ignore[arg-type]
        assert "rack r2  4 of 4 nodes unreachable" in text(app), "below the map"
        await press(pilot, "2", "u")
        assert "an alert about many nodes: + unfolds it" in text(app)
        await press(pilot, "y")
        assert app.clipboard.startswith("▮ CRIT")
        assert "rack r2  + 4 nodes  4 of 4 nodes unreachable" in app.clipboard
        await press(pilot, "slash", "n", "6", "enter")
        assert len(listed(app)) == 1
        assert "rack r2" in listed(app)[0], "found by a node inside it"
        await press(pilot, "plus")
        assert [pane(app).entries[row].alert.where for row in pane(app).table.rows] == ["rack r2", "n6"]
        await press(pilot, "l")
        assert "rack r2" in below(app)
        assert "n1" not in below(app)
        await press(pilot, "l", "escape", "3")
        app.open_node(6)
        await settle(pilot)
        assert "rack r2: 4 of 4 nodes unreachable" in text(app)
        assert "node: unreachable: connect timeout" in text(app), "and what of it is on this node"


# -- what is known ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_known_stays_in_sight_behind_the_rest(size: tuple[int, int]) -> None:
    room = hot()
    room.core.acknowledge(room.alerts[0], by="ann", reason="fan ordered")
    room.run(1)
    async with console(Source(room), size) as (app, pilot):  # type: ignore[arg-type]
        summary = "▮ 1 CRIT  ▴ 1 warn  (1 acknowledged)"
        assert summary in text(app)
        await press(pilot, "2")
        assert [line.split()[1] for line in listed(app)] == ["warn", "CRIT"]
        assert "(ack) 88 °C" in listed(app)[1]
        assert {style for text_, style in pane(app).table.build(1) if text_.strip()} == {"muted"}
        await press(pilot, "a")
        assert len(listed(app)) == 1
        assert "1 of 2 alerts are acknowledged or silenced and not in this list: a shows them" in text(app)
        assert summary in text(app), "the number is in sight even so"
        await press(pilot, "a")
        assert len(listed(app)) == 2
        assert app.picture is not None
        assert app.picture.state[0] == CRITICAL, "a node is not ok because somebody knows that it is not"
        await press(pilot, "3")
        assert "▮ CRIT" in line_of(text(app), " n0 ")


async def test_acknowledge_asks_for_a_reason_and_notes_who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handling.getpass, "getuser", lambda: "ann\x1b")
    room = hot()
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "A")
        assert isinstance(app.screen, Ask)
        assert "Acknowledge gpu_temperature of n0 GPU 0?" in text(app)
        await press(pilot, "escape")
        assert not room.core.hands.acks
        await press(pilot, "A", *"fan ordered", "enter")
        (ack,) = room.core.hands.acks.values()
        assert (ack.by, ack.reason, ack.lasting, ack.rule) == ("ann", "fan ordered", False, "gpu_temperature")
        assert "(1 acknowledged)" in text(app), "it shows at once"
        await press(pilot, "end")
        assert 'by ann, until it is over, or worse; "fan ordered"' in below(app)
        room.heat(0, 91, 60)
        await later(app, pilot, room, 3)
        assert "acknowledged)" not in text(app), "worse is news again"
        assert listed(app)[0].startswith("▮ CRIT")
        await press(pilot, "home", "A", "enter", "end", "A")
        assert not room.core.hands.acks, "the same key takes it back"


async def test_acknowledged_for_good_by_choice_and_by_the_palette() -> None:
    room = hot()
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "A", "down", "enter")
        (ack,) = room.core.hands.acks.values()
        assert ack.lasting
        await press(pilot, "home")
        app.acknowledge_for_good()
        await settle(pilot)
        await press(pilot, "enter")
        assert [ack.lasting for ack in room.core.hands.acks.values()] == [True, True]
        await press(pilot, "1")
        app.action_acknowledge()
        await settle(pilot)
        assert "choose one on screen 2" in text(app)


@pytest.mark.parametrize(("downs", "where", "rule"), [
    (0, "gpu:n0:GPU-0", "gpu_temperature"), (1, "n0", "gpu_temperature"), (2, "n0", "*"), (3, "r1", "*"),
    (4, "l1", "*"), (5, "train", "*"), (6, "*", "gpu_temperature"),
])
async def test_silence_what_is_chosen_for_the_time_chosen(downs: int, where: str, rule: str) -> None:
    room = hot()
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "Z", *["down"] * downs, "tab", *"swap", "enter")
        (silence,) = room.core.hands.silences.values()
        assert (silence.where, silence.rule, silence.reason) == (where, rule, "swap")
        assert silence.until - room.now == 8 * 3600
        assert "silenced until " in "".join(listed(app))
        assert ("(2 silenced)" if downs > 2 else "(1 silenced)") in text(app)
        await press(pilot, "end", "Z", "up", "enter")
        assert not room.core.hands.silences, "the last choice ends it"
        assert "silenced)" not in text(app)


async def test_a_node_can_be_silenced_before_anything_fires() -> None:
    room = Room()
    room.run(3)
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        for number, keys in enumerate((("1", "Z"), ("3", "down", "Z", "down"), ("enter", "Z", "down", "down"))):
            await press(pilot, *keys, "enter")
            where = list(room.core.hands.silences.values())[number].where
            assert where == ("n0", "r1", "l1")[number]
        room.heat(1, 88, 60)
        await later(app, pilot, room, 4)
        await press(pilot, "2")
        assert "silenced until" in listed(app)[0]
        assert all(change.quiet for change in room.seen)


async def test_the_list_of_what_is_in_force_ends_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handling.getpass, "getuser", lambda: "ann")
    room = hot()
    room.core.acknowledge(room.alerts[1], by="bob", reason="known", lasting=True)
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "Z", "down", "down", "down", "enter", "1", "L")
        assert line_of(text(app), "silence ").split()[1:5] == ["rack", "r1", "every", "rule"]
        assert "2 h 00 left" in text(app)
        assert all(word in line_of(text(app), "ack     ") for word in ("n2 GPU 1", "for good, unless worse", "bob", "known"))
        await press(pilot, "x")
        assert not room.core.hands.silences
        assert room.core.hands.acks
        await press(pilot, "x")
        assert not room.core.hands.acks
        assert "nothing is silenced, nothing is acknowledged" in text(app)
        await press(pilot, "escape", "2")
        assert not any(alert.acked or alert.silenced for alert in room.alerts)
        assert "(" not in listed(app)[0]


async def test_dismiss_is_for_what_is_gone_for_good_and_asks() -> None:
    room = Room()
    room.run(3)
    room.tables[0] = {"gpu": gpus({}, lost())}
    room.run(5)
    assert room.firing == ["gpu_missing"]
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "D")
        assert "nothing of it is missing" in text(app), "it is still listed, and lost: no reason to forget it"
        room.tables[0] = {"gpu": gpus({})}
        await later(app, pilot, room, 5)
        await press(pilot, "D")
        assert isinstance(app.screen, Confirm)
        assert "n0 GPU 1, gone since" in text(app)
        await press(pilot, "enter", "n")
        assert room.firing == ["gpu_missing"]
        await press(pilot, "D", "y")
        await later(app, pilot, room, 2)
        assert room.firing == []
        assert "dismissed" in below(app)


async def test_what_is_over_meanwhile_is_not_acknowledged() -> None:
    room = hot()
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "space")
        room.heat(0, 60, 60)
        room.run(60)
        await press(pilot, "A")
        assert "that alert is over" in text(app)
        assert not room.core.hands.acks


# -- explained -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_an_alert_is_explained_below_the_list(size: tuple[int, int]) -> None:
    room = hot()
    room.run(30)
    source = Source(room)
    source.origins = {"gpu_temperature": {"critical.limit": "site.toml:12"}}
    source.times = times(PollSettings(), 1.0)
    rule = builtin()["gpu_temperature"]
    async with console(source, size) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2")
        shown = " ".join(below(app).split())
        assert "raised at most" in shown
        assert "(site.toml:12)" in shown
        assert "(builtin)" in shown
        assert " ".join(rule.hint.split()) in shown
        assert " ".join(rule.source.split()) in shown
        assert "now -1 °C: temperature_margin_celsius" in shown
        assert "beside it temperature " in shown
        assert " 88 °C to 88 °C" in shown
        assert (" power " in shown) == (size[0] > 80), "as many curves as fit"
        await press(pilot, "tab", "end")
        assert rule.source.split()[0] in text(app), "the page scrolls to its end"


async def test_an_unknown_reading_is_not_explained_as_a_number() -> None:
    room = hot()
    room.tables[0] = {"gpu": gpus({"temp": Err("Unknown Error")}, {})}
    room.run(1)
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2")
        assert below(app).splitlines()[0].split()[-3:] == ["n0", "GPU", "0"]
        now = next(line for line in below(app).splitlines() if line.startswith(" now"))
        assert now.split()[1] == "?"
        assert "-1 °C" not in now


async def test_the_curve_of_what_the_rule_looks_at_is_drawn_where_it_is_kept() -> None:
    warm = {"warm": Rule(title="warm", table="gpu", metric="temperature_celsius", op=">", critical=Level(limit=80.0))}
    fleet = Fleet(rules=warm)
    for celsius in range(60, 100):
        fleet.step(2.0, gpu=gpus({"temp": celsius}))
    async with console(Source(fleet)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2")
        line = next(line for line in below(app).splitlines() if line.startswith(" readings"))
        assert "60 °C to 99 °C in the last 78 s" in line
        curve = line[12:].split("  ")[0]
        assert curve == "".join(sorted(curve, key=lambda cell: ord(cell).bit_count())), "it only rises"


# -- the log ---------------------------------------------------------------------------------------------------------


async def test_the_log_says_what_became_of_what() -> None:
    room = Room()
    room.run(3)
    room.lose(4)
    room.run(12)
    room.lose(5, 6, 7)
    room.run(15)
    room.heat(0, 88, 60)
    room.run(4)
    hot_one = next(alert for alert in room.alerts if alert.rule == "gpu_temperature")
    room.core.silence("n0", "*", 600, reason="swap")
    room.core.acknowledge(hot_one, reason="known")
    room.run(2)
    kinds = [change.kind for change in room.seen]
    assert {"raised", "spread", "silenced", "acknowledged"} <= set(kinds), kinds
    async with console(Source(room), (200, 60)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "l")
        entries = below(app).splitlines()[1:]
        assert len(entries) == len(room.seen)
        assert "swap: " in line_of(below(app), "silenced")
        assert "known: " in line_of(below(app), "acknowledged")
        assert "rack r2" in line_of(below(app), "spread")
        assert "4 nodes" in line_of(below(app), "spread")
        lower = pane(app).lower
        for y in range(1, lower.count()):
            styles = {style for words, style in lower.build(y) if words.strip()}
            quiet = any(word in lower.text_of(y) for word in ("silenced", "acknowledged"))
            assert (styles == {"muted"}) == quiet, lower.text_of(y)


async def test_a_folded_alert_says_into_what() -> None:
    room = Room()
    room.run(3)
    for number in (4, 5, 6, 7):
        room.lose(number)
        room.run(12)
    folded = [change for change in room.seen if change.kind == "folded"]
    assert folded, [change.kind for change in room.seen]
    async with console(Source(room), (200, 60)) as (app, pilot):  # type: ignore[arg-type]
        await press(pilot, "2", "l")
        assert "now part of rack r2: " in line_of(below(app), "folded")
        assert "of 4 nodes unreachable" in line_of(below(app), "folded")


# -- the bell --------------------------------------------------------------------------------------------------------


async def test_the_bell_rings_once_for_what_is_critical_and_new(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    room.run(3)
    rung: list[float] = []
    async with console(Source(room)) as (app, pilot):  # type: ignore[arg-type]
        monkeypatch.setattr(app, "bell", lambda: rung.append(room.now))

        async def after(seconds: int) -> int:
            before = len(rung)
            for _ in range(seconds):
                room.run(1)
                for _ in range(3):
                    app.look_at_source()
            return len(rung) - before

        room.heat(0, 88, 88)
        assert await after(5) == 0, "off unless asked for"
        room.heat(0, 60, 60)
        await after(60)
        app._rings = True
        room.heat(0, 83, 60)
        assert await after(5) == 0, "a warning does not ring"
        room.heat(0, 88, 60)
        assert await after(8) == 1, "it worsened"
        room.core.silence("n2", "*", 3600)
        room.heat(2, 90, 90)
        assert await after(8) == 0, "silenced"
        await press(pilot, "space")
        room.heat(5, 90, 60)
        assert await after(8) == 1, "also while the picture is held"
        room.heat(5, 60, 60)
        assert await after(60) == 0, "what clears does not ring"


@pytest.mark.parametrize("size", [(20, 5), *SIZES])
async def test_the_questions_fit_every_size_and_ascii(size: tuple[int, int]) -> None:
    room = dark_rack()
    room.core.silence("*", "gpu_temperature", 600)
    room.run(1)
    async with console(Source(room), size, ascii_only=True) as (app, pilot):  # type: ignore[arg-type]
        for keys in (("2", "plus"), ("end",), ("A",), ("escape", "Z", "down", "tab"), ("escape", "L"), ("escape", "l")):
            await press(pilot, *keys)
            for line in lines(app):
                line.encode("ascii", "strict")
            assert {cell_len(line) for line in lines(app)} == {size[0]}


async def test_what_is_done_in_a_replay_shows_also_at_its_end(tmp_path: Path) -> None:
    rules = builtin()
    rules["gpu_temperature"] = msgspec.structs.replace(
        rules["gpu_temperature"], critical=msgspec.structs.replace(rules["gpu_temperature"].critical, limit=-0.5))
    nodes = [NodeInfo("n0"), NodeInfo("n1")]
    plan = Plan(Inventory(tuple(nodes)), PollSettings(), rules)
    with Recorder(tmp_path / "flight.ct", plan) as tap:
        fleet = Fleet(nodes, rules, tap=tap)
        for _ in range(5):
            fleet.step(gpu=gpus({"temp": 88}, {}))
    before = len(fleet.seen)
    async with ReplaySession(Recording(tmp_path / "flight.ct"), 0.0) as session:
        assert session._task is not None
        await session._task
        assert "end of recording" in session.notes[0]
        async with console(session) as (app, pilot):  # type: ignore[arg-type]
            await press(pilot, "2")
            assert "critical <= -0 °C at 2 readings (recording)" in " ".join(below(app).split())
            assert "warning <= 5 °C at 2 readings (builtin)" in " ".join(below(app).split())
            assert "raised at most" not in below(app), "the recording does not say how often nodes were read"
            await press(pilot, "A", *"seen", "enter")
            assert "(ack) 88 °C" in listed(app)[0]
            await press(pilot, "Z", "tab", "enter")
            assert "ack, silenced until" in listed(app)[0]
            await press(pilot, "A", "Z", "up", "enter")
            assert "(" not in listed(app)[0]
            await press(pilot, "l")
            assert [line.split()[1] for line in below(app).splitlines()[1:]][-before:] == [
                change.kind for change in reversed(fleet.seen)], "what happened then is as it was"
