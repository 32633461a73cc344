"""The console driven by keys over a fleet made by code."""

from __future__ import annotations

import unicodedata
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len
from textual.widgets import Input

from clustertop.model import LinkState
from clustertop.tui.actions import ACTIONS, SCREENS, WHERE, bindings, markdown
from clustertop.tui.app import ConsoleApp
from clustertop.tui.glyphs import ASCII, UNICODE
from clustertop.tui.heat import HEATS
from clustertop.tui.help import HelpScreen, help_lines
from tui.fleet import FleetSource, faulty

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.pilot import Pilot

DOCS = Path(__file__).resolve().parents[2] / "docs" / "console.md"


@asynccontextmanager
async def console(
    source: FleetSource, size: tuple[int, int] = (120, 40), *, ascii_only: bool = False, theme: str = "dark"
) -> AsyncIterator[tuple[ConsoleApp, Pilot[int]]]:
    """The console on *source*, its own timer held off so that tests say when a snapshot is taken."""
    app = ConsoleApp(source, ascii_only=ascii_only, theme_name=theme)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        app._least = float("inf")
        yield app, pilot


async def settle(pilot: Pilot[int]) -> None:
    """Let layout and drawing finish."""
    for _ in range(2):
        await pilot.pause()


async def take(app: ConsoleApp, pilot: Pilot[int]) -> None:
    """Take the newest snapshot now, as the timer would."""
    app._least = 0.0
    app.look_at_source()
    app._least = float("inf")
    await settle(pilot)


def lines(app: ConsoleApp) -> list[str]:
    """The screen as text."""
    return ["".join(piece.text for piece in strip) for strip in app.screen._compositor.render_strips()]


def text(app: ConsoleApp) -> str:
    """The screen as one text."""
    return "\n".join(line.rstrip() for line in lines(app))


@pytest.fixture(scope="module")
def bad_fleet() -> FleetSource:
    """A fleet in which much is wrong; tests that share it do not move it on."""
    return faulty(ticks=14)


async def test_the_fleet_screen_says_what_is_up_and_what_is_not(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, _):
        shown = text(app)
    assert "nodes 29/32 (1 stale)" in shown
    assert "GPUs 206/256" in shown
    assert "watching costs here 3.4 % CPU 71.0 MiB, nodes 0.4 % max" in shown
    assert "gpu-008 unreachable" in shown
    assert "gpu-031 HOST KEY CHANGED" in shown
    assert "gpu-032 connecting" in shown
    assert "gpu-030   X   X   X   X   X   X   X   X" in shown
    assert "gpu-021   ~   ~   ~   ~   ~   ~   ~   ~" in shown


async def test_an_unknown_is_never_drawn_as_a_number(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        for _ in HEATS:
            # Only lines of the map: below it the same nodes stand with their alerts.
            for line in lines(app)[: app.panes["fleet"].worst.region.y]:
                for name in ("gpu-021", "gpu-018"):
                    if name in line and app.panes["fleet"].map.metric.name in {"utilisation", "temperature", "power"}:
                        cells = line.split(name)[1][:33]
                        assert set(cells) <= {" ", "~"}, (app.panes["fleet"].map.metric.name, cells)
            await pilot.press("m")
            await settle(pilot)


async def test_every_screen_opens_by_its_key_and_shows_its_kind_of_thing(bad_fleet: FleetSource) -> None:
    expected = {"fleet": "rack-a", "alerts": "probe_hung", "nodes": "max temp", "pcie": "below expected width",
                "rdma": "ports up", "power": "no feed is configured", "traffic": "no meter of traffic is read",
                "outliers": "nodes compared within their groups"}
    async with console(bad_fleet) as (app, pilot):
        for key, name, _ in SCREENS:
            await pilot.press(key)
            await settle(pilot)
            assert app.front == name
            assert expected[name] in text(app)


async def test_the_pcie_screen_names_device_hop_and_lost_bandwidth(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        await pilot.press("4")
        await settle(pilot)
        row = next(line for line in lines(app) if "gpu-003" in line)
        assert "x8 of x16" in row
        assert "31.5 GB/s" in row
        await pilot.press("a")
        await settle(pilot)
        assert sum("x16 of x16" in line for line in lines(app)) > 10
        assert app.panes["pcie"].table.rows[0] is not None


async def test_what_could_not_be_judged_is_not_called_ok(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet, (120, 70)) as (app, pilot):
        app.open_node(9)
        await settle(pilot)
        gone = next(line for line in lines(app) if "11:00.0" in line and "lanes" not in line and "MISSING" not in line)
        assert "? unknown" in gone
        assert "ok" not in gone
        await pilot.press("5", "slash", *"gpu-021", "enter")
        await settle(pilot)
        rows = [line for line in lines(app) if line.startswith(("~", "?", "∙")) and "gpu-021" in line]
        assert len(rows) == 8
        assert all(line.startswith("~ stale") for line in rows)


async def test_where_nothing_is_wrong_the_screens_say_what_was_judged() -> None:
    source = FleetSource(4, racks=1)
    source.connect()
    source.run(3)
    async with console(source) as (app, pilot):
        await pilot.press("2")
        await settle(pilot)
        assert "no alert: " in text(app)
        assert "rules over 4 nodes, 32 GPUs, 32 RDMA ports" in text(app)
        await pilot.press("4")
        await settle(pilot)
        assert "nothing is below expected width (64 devices judged, 0 unknown)" in text(app)
        await pilot.press("5", "a")
        await settle(pilot)
        assert "no port is down or has errors (32 ports judged, 0 unknown)" in text(app)


async def test_before_the_first_frame_nothing_is_claimed() -> None:
    source = FleetSource(4, racks=1)
    async with console(source) as (app, pilot):
        assert "connecting" in text(app)
        source.tick()
        await take(app, pilot)
        assert "nodes 0/4" in text(app)
        await pilot.press("2")
        await settle(pilot)
        assert "nothing is judged yet: 0 of 4 nodes report" in text(app)
        assert " ok" not in text(app)
        await pilot.press("3", "g")
        await settle(pilot)
        assert "nothing is known yet" in text(app)


async def test_a_fleet_without_gpus_says_so() -> None:
    source = FleetSource(3, racks=1)
    for node in source.nodes:
        node.gpus, node.ports = 0, 0
    source.connect()
    source.run(3)
    async with console(source) as (app, pilot):
        assert text(app).count("no GPU") >= 3
        await pilot.press("3", "g")
        await settle(pilot)
        assert "no GPU on any of the 3 nodes that report" in text(app)
        await pilot.press("5")
        await settle(pilot)
        assert "no RDMA port on any of the 3 nodes that report" in text(app)


async def test_enter_opens_the_node_and_escape_goes_back(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        assert bad_fleet.snapshot is not None
        rules = [alert.rule for alert in bad_fleet.snapshot.alerts]
        await pilot.press("2", *["down"] * rules.index("pcie_width"), "enter")
        await settle(pilot)
        assert app.front == "detail"
        shown = text(app)
        assert "gpu-003" in shown
        assert "GPU 3 13:00.0 is x8, expected x16" in shown
        assert "Groups of readings" in shown
        await pilot.press("end")
        await settle(pilot)
        assert "5.15.0-118-generic" in text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert app.front == "alerts"


async def test_the_page_of_a_node_says_which_call_hangs(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        app.open_node(17)
        await settle(pilot)
        group = next(line for line in lines(app) if line.lstrip().startswith("gpu   "))
        assert "HUNG" in group
        assert "nvmlDeviceGetPowerUsage GPU 3" in group
        app.open_node(30)
        await settle(pilot)
        assert "the host key of gpu-031 is not the one in known_hosts" in text(app)


async def test_the_filter_narrows_every_screen_while_it_is_typed(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        await pilot.press("slash", *"rack-b crit")
        await settle(pilot)
        assert app.query_one("#filter", Input).value == "rack-b crit"
        shown = text(app)
        assert "gpu-010" in shown
        assert "gpu-014" in shown
        assert "gpu-009" not in shown
        await pilot.press("enter", "2")
        await settle(pilot)
        assert {app.picture.snapshot.alerts[row].thing.node for row in app.panes["alerts"].table.rows} >= {
            "gpu-010", "gpu-014"}
        assert "gpu-003" not in text(app)
        await pilot.press("3")
        await settle(pilot)
        assert len(app.panes["nodes"].nodes.rows) == 2
        await pilot.press("escape")
        await settle(pilot)
        assert len(app.panes["nodes"].nodes.rows) == 32
        await pilot.press("slash", *"nosuchnode", "enter", "1")
        await settle(pilot)
        assert "no node matches the filter" in text(app)


async def test_tables_sort_by_a_column_and_turn_round(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet, (160, 50)) as (app, pilot):
        await pilot.press("3")
        table = app.panes["nodes"].nodes
        names = [column.name for column in table.columns if column.order is not None]
        for _ in range(names.index("max temp") + 1):
            await pilot.press("s")
        await settle(pilot)
        hottest = table.rows[0]
        assert app.atlas.names[hottest] == "gpu-012"
        assert table.rows[-1] in {7, 9, 17, 20, 29, 30, 31}
        await pilot.press("r")
        await settle(pilot)
        # Unknown values stay last whichever way the order goes.
        assert table.rows[-1] in {7, 9, 17, 20, 29, 30, 31}
        assert app.atlas.names[table.rows[0]] != "gpu-012"


async def test_freeze_holds_the_picture_and_says_so_while_the_fleet_goes_on() -> None:
    source = FleetSource(4, racks=1)
    source.connect()
    source.run(3)
    async with console(source) as (app, pilot):
        await pilot.press("space")
        held = app.snapshot
        source.link(2, LinkState.UNREACHABLE, "gone")
        source.run(2)
        await take(app, pilot)
        assert app.snapshot is held
        assert "PAUSED" in text(app)
        assert "unreachable" not in text(app)
        app._least = 0.0
        await pilot.press("space")
        await settle(pilot)
        assert "PAUSED" not in text(app)
        assert "unreachable" in text(app)


async def test_a_new_snapshot_is_one_assignment_and_an_old_one_is_none() -> None:
    source = FleetSource(4, racks=1)
    source.connect()
    source.run(3)
    async with console(source) as (app, pilot):
        first = app.picture
        await take(app, pilot)
        assert app.picture is first
        source.tick()
        await take(app, pilot)
        assert app.picture is not first
        assert app.picture.snapshot is source.snapshot


async def test_drawing_keeps_to_its_pace_however_fast_snapshots_come() -> None:
    source = FleetSource(2, racks=1)
    source.connect()
    source.run(2)
    app = ConsoleApp(source, refresh_seconds=0.01)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert app._least == 0.25
        drawn = app.snapshot
        source.tick(0.1)
        app.look_at_source()
        assert app.snapshot is drawn
        source.tick(0.2)
        app.look_at_source()
        assert app.snapshot is source.snapshot


async def test_help_lists_every_action_and_the_docs_have_the_same_table(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet, (120, 70)) as (app, pilot):
        await pilot.press("question_mark")
        await settle(pilot)
        assert isinstance(app.screen, HelpScreen)
        body = "\n".join("".join(part for part, _ in line) for line in help_lines(app.look))
        for action in ACTIONS:
            assert action.help in body
            assert action.shown in body
        assert "Keys" in text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert not isinstance(app.screen, HelpScreen)
    assert markdown() in DOCS.read_text(encoding="utf-8"), "run: python docs/make_picture.py"


def test_every_action_exists_and_no_key_has_two_meanings() -> None:
    for action in ACTIONS:
        name = action.call.split("(")[0]
        assert hasattr(ConsoleApp, f"action_{name}"), name
        assert name in WHERE
    keys = [binding.key for binding in bindings()]
    assert len(keys) == len(set(keys))


async def test_actions_that_mean_nothing_here_do_nothing() -> None:
    source = FleetSource(3, racks=1)
    source.connect()
    source.run(2)
    async with console(source, (80, 24)) as (app, pilot):
        for key, name, _ in SCREENS:
            await pilot.press(key)
            for action in ACTIONS:
                if action.group in {"Moving", "Showing", "Doing"} and action.id not in {
                        "filter", "freeze", "release", "silence", "in-force"}:
                    await app.run_action(action.call)
            await settle(pilot)
            assert app.front == name


async def test_copy_puts_the_row_on_the_clipboard_as_plain_text(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        await pilot.press("4", "y")
        assert app.clipboard.startswith("▮ CRIT  gpu-003  GPU  GPU 3 13:00.0  x8 of x16")


async def test_a_full_reading_is_asked_of_the_node_under_the_cursor() -> None:
    source = FleetSource(4, racks=1)
    source.connect()
    source.run(2)
    async with console(source) as (_, pilot):
        await pilot.press("down", "u")
        await settle(pilot)
        assert [(request.node, dict(request.body)) for request in source.asked] == [(2, {"do": "full"})]


async def test_the_cursor_stays_on_its_node_when_the_order_changes() -> None:
    source = FleetSource(6, racks=1)
    source.connect()
    source.run(3)
    async with console(source) as (app, pilot):
        await pilot.press("3", "s", "down", "down", "down")
        table = app.panes["nodes"].nodes
        node = table.row
        source.link(5, LinkState.UNREACHABLE, "gone")
        source.run(5)
        await take(app, pilot)
        assert table.rows[0] == 5
        assert table.row == node


async def test_next_problem_goes_round_the_nodes_that_are_not_ok(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        seen = []
        for _ in range(4):
            await pilot.press("n")
            seen.append(app.atlas.names[app.panes["fleet"].map.node])
        assert seen == ["gpu-003", "gpu-006", "gpu-008", "gpu-010"]
        await pilot.press("N")
        assert app.atlas.names[app.panes["fleet"].map.node] == "gpu-008"


async def test_the_palette_jumps_to_a_node(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"gpu-014")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert app.front == "detail"
        assert app.panes["detail"].number == 13


HOSTILE = "[/foo] [red]x[/] [@click=quit]"


async def test_text_from_nodes_is_drawn_as_it_is() -> None:
    source = FleetSource(3, racks=1, names=["[/foo]", "[red]b", "ok-03"])
    for node in source.nodes:
        node.name = HOSTILE
        node.facts = {"kernel": HOSTILE, "[/bar]": "\x1b]0;owned\x07"}
    source.connect()
    source.link(1, LinkState.UNREACHABLE, HOSTILE)
    source.run(4)
    async with console(source) as (app, pilot):
        assert "[/foo]" in text(app)
        for keys in ("2", "3", "g", "4a", "5"):
            await pilot.press(*keys)
            await settle(pilot)
            assert "[/foo]" in text(app) or "[red]b" in text(app)
        app.open_node(0)
        await settle(pilot)
        assert HOSTILE in text(app)
        await pilot.press("end", "u", "y")
        await settle(pilot)
        assert "\x1b" not in text(app)
        app.open_node(1)
        await settle(pilot)
        assert HOSTILE in text(app)
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"go to: ")
        await app.workers.wait_for_complete()
        await settle(pilot)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (80, 24), (200, 60)])
async def test_every_size_draws_every_screen(bad_fleet: FleetSource, size: tuple[int, int]) -> None:
    async with console(bad_fleet, size) as (app, pilot):
        for key in ("1", "m", "z", "2", "l", "3", "g", "4", "a", "5", "enter", "slash", "x", "escape"):
            await pilot.press(key)
            await settle(pilot)
            drawn = lines(app)
            assert len(drawn) == size[1]
            assert {cell_len(line) for line in drawn} == {size[0]}


async def test_a_storm_of_sizes_ends_at_the_right_one(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        for step in range(12):
            await pilot.resize_terminal(20 + 9 * step, 5 + 3 * step)
        await settle(pilot)
        assert {cell_len(line) for line in lines(app)} == {119}
        assert "nodes 29/32" in text(app)


async def test_lines_have_one_width_whatever_the_names_are() -> None:
    names = ["gpu-机架-01", "café-02", "n⚠️-03", "plain-04", "e\u0301" * 30, "名" * 30]
    source = FleetSource(len(names), racks=2, names=names)
    source.connect()
    source.nodes[0].width = {2: 4}
    source.run(4)
    for size in ((80, 24), (33, 12), (150, 40)):
        async with console(source, size) as (app, pilot):
            for key in ("1", "z", "2", "3", "g", "4", "a", "5", "enter"):
                await pilot.press(key)
                await settle(pilot)
                assert {cell_len(line) for line in lines(app)} == {size[0]}, key


async def test_ascii_mode_draws_nothing_but_ascii(bad_fleet: FleetSource) -> None:
    source = FleetSource(3, racks=1, names=["机架-01", "caf\u00e9", "ok-03"])
    source.connect()
    source.nodes[0].width = {1: 8}
    source.run(4)
    for fleet, every in ((source, ("1", "mm", "z", "2", "3", "g", "4", "5", ["enter"])),
                         (bad_fleet, ("1", *"mmmmmmz", "2", "l", "3", "g", "4a", "5", ["enter"], ["question_mark"],
                                      ["escape", "ctrl+p"]))):
        async with console(fleet, ascii_only=True) as (app, pilot):
            for keys in every:
                await pilot.press(*keys)
                await settle(pilot)
                for line in lines(app):
                    line.encode("ascii", "strict")
                assert {cell_len(line) for line in lines(app)} == {120}


def test_marks_are_narrow_everywhere_and_have_twins() -> None:
    for mark in UNICODE.marks():
        assert len(mark) == 1
        assert unicodedata.east_asian_width(mark) in {"N", "Na"}, mark
    assert "".join(ASCII.marks()).isascii()
    states = [UNICODE.ok, UNICODE.info, UNICODE.warning, UNICODE.critical, UNICODE.unknown, UNICODE.stale, UNICODE.lost]
    assert len(set(states)) == len(states)
    twins = [ASCII.ok, ASCII.info, ASCII.warning, ASCII.critical, ASCII.unknown, ASCII.stale, ASCII.lost]
    assert len(set(twins)) == len(twins)


async def test_themes_change_under_the_running_console(bad_fleet: FleetSource) -> None:
    async with console(bad_fleet) as (app, pilot):
        seen, first = set(), app.theme_name
        for _ in app.themes:
            seen.add(app.theme_name)
            await pilot.press("t")
            await settle(pilot)
            assert "rack-a" in text(app)
        assert seen == {"dark", "light", "contrast", "ansi"}
        assert app.theme_name == first


async def test_no_color_draws_no_colour(bad_fleet: FleetSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with console(bad_fleet) as (app, pilot):
        for key in ("1", "2", "3", "5", "enter"):
            await pilot.press(key)
            await settle(pilot)
            for strip in app.screen._compositor.render_strips():
                for piece in strip:
                    style = piece.style
                    assert style is None or style.color is None or style.color.is_default, (piece.text, style)
                    assert style is None or style.bgcolor is None or style.bgcolor.is_default, (piece.text, style)


async def test_a_note_stays_in_sight() -> None:
    source = FleetSource(2, racks=1)
    source.notes = ("host key checking is off for lab01",)
    source.connect()
    source.run(2)
    async with console(source, (80, 24)) as (app, pilot):
        for key in ("1", "2", "5"):
            await pilot.press(key)
            await settle(pilot)
            assert "host key checking is off for lab01" in text(app)
