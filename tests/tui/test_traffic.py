"""The Traffic screen over nodes and switches made by code, through the real Core."""

from __future__ import annotations

import re

import numpy as np
import pytest

from clustertop.tui.widgets.matrix import LEVELS, natural, octave, short_rate
from tui.test_console import console, lines, settle, take, text
from tui.traffic_fleet import Leaf, Uplink, Wires, ring

WIDE = (140, 44)


def flowing(*, leaves: int = 2, mapped: bool = True) -> Wires:
    """Eight nodes in four racks; two jobs, one of them in order and one across."""
    wires = Wires(4, 2, leaves=leaves, mapped=mapped)
    wires.jobs = {number: ["31"] if number < 4 else ["32"] for number in range(8)}
    wires.flows = {**ring([0, 1, 2, 3], 1e9), **ring([4, 6, 5, 7], 5e8), (0, -1): 2.5e8}
    if leaves == 2:
        # The jobs stay below their leaves; what goes to the address that is no node's leaves by the uplinks.
        wires.leaves = {"lf1": Leaf([Uplink(62.5e6) for _ in range(4)], 4.25e9),
                        "lf2": Leaf([Uplink(1e3) for _ in range(4)], 2e9)}
    return wires.run(60)


@pytest.fixture(scope="module")
def wires() -> Wires:
    """Tests that share it do not move it on."""
    return flowing()


def matrix_row(shown: list[str], rack: str) -> list[str]:
    """The cells of one rack's row."""
    line = next(line for line in shown if line.startswith(f"{rack} "))
    return line[:50].split()[1:]


async def test_scopes_show_share_meter_and_how_many_nodes_are_read(wires: Wires) -> None:
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        shown = lines(app)
    fleet, good, bad = (next(line for line in shown if name in line) for name in ("fleet", "job 31", "job 32"))
    assert "by job" in fleet, "the fleet is judged by its jobs"
    assert re.search(r"∙ ok +job 31 +50 %", good)
    assert re.search(r"∙ ok +job 32 +100 %", bad), "five minutes are not over"
    assert "4/4" in good
    assert "cross-rack, sockets" in good
    assert "sockets 8/8" in text_of(shown)
    assert "uplinks 2/2" in text_of(shown)
    assert shown.index(bad) < shown.index(good), "the most across first"


def text_of(shown: list[str]) -> str:
    return "\n".join(shown)


async def test_the_matrix_has_rates_both_ways_and_what_is_in_no_rack(wires: Wires) -> None:
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        shown = lines(app)
    assert next(line for line in shown if "none" in line and "row to" not in line)[:40].split() == [
        "1", "2", "3", "4", "none"]
    assert matrix_row(shown, "row-1") == ["1.0G", "1.0G", ".", ".", "250M"]
    assert matrix_row(shown, "row-2") == ["1.0G", "1.0G", ".", ".", "."]
    assert matrix_row(shown, "row-3") == [".", ".", ".", "1.0G", "."]
    assert matrix_row(shown, "row-4") == [".", ".", "1.0G", ".", "."]


async def test_an_unread_rack_is_a_question_mark_and_never_nothing() -> None:
    wires = Wires(4, 2)
    wires.deaf = {4, 5, 6, 7}
    wires.flows = ring(list(range(8)), 1e9)
    wires.run(30)
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        assert matrix_row(lines(app), "row-3")[2:] == ["?", "?", "?"]
        assert matrix_row(lines(app), "row-4")[2:] == ["?", "?", "?"]
        assert "sockets 4/8" in text(app)
        await pilot.press("z", "z")
        await settle(pilot)
        row = next(line for line in lines(app) if line.startswith("row-4 "))
        assert row[6:10].endswith("??")
        await pilot.press("tab", "end", "left")
        await settle(pilot)
        assert "row-4  ? not read  0/2 nodes of row-4 read" in text(app)


async def test_of_a_rack_read_in_part_a_rate_is_at_least_and_nothing_is_unknown() -> None:
    wires = Wires(3, 2)
    wires.deaf = {1, 3, 5}
    wires.flows = {(0, 2): 2e9, (1, 3): 1e9}
    wires.run(30)
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        assert matrix_row(lines(app), "row-1")[:3] == ["?", "2.0G+", "?"]
        await pilot.press("z", "z")
        await settle(pilot)
        row = next(line for line in lines(app) if line.startswith("row-1 "))
        assert row[6:9] == "?9?"


@pytest.mark.parametrize("size", [(80, 24), WIDE])
async def test_without_a_rack_map_the_screen_says_what_to_configure(size: tuple[int, int]) -> None:
    wires = flowing(mapped=False, leaves=0)
    async with console(wires, size) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        shown = " ".join(text(app).split())
    assert "no rack map, so what crosses racks is unknown: write [racks] in the config" in shown
    for name in ("fleet", "job 31", "job 32"):
        assert f"? unknown {name} ? " in shown, "unknown is not nothing"


async def test_without_any_meter_it_says_which_there_are() -> None:
    wires = Wires(2, 2)
    wires.deaf = {0, 1, 2, 3}
    wires.run(5)
    async with console(wires, (80, 24)) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        shown = " ".join(text(app).split())
    assert "no meter of traffic is read: switch [sockets] on for TCP" in shown
    assert "? unknown fleet" in shown


async def test_tab_goes_through_scopes_matrix_leaves_and_detail(wires: Wires) -> None:
    async with console(wires, (80, 24)) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        pane = app.panes["traffic"]
        assert pane.matrix.display
        assert not pane.leaves.display
        found = [pane.target]
        for _ in range(4):
            await pilot.press("tab")
            await settle(pilot)
            found.append(pane.target)
            assert pane.target.display
            assert pane.target.tall > 0
        assert found == [pane.scopes, pane.matrix, pane.leaves, pane.lower, pane.scopes]


async def test_a_leaf_shows_each_uplink_and_its_nodes() -> None:
    wires = Wires(4, 2, leaves=2)
    wires.flows = ring(list(range(8)), 1e9)
    wires.leaves["lf2"] = Leaf([Uplink(11.5e9), Uplink(2e9), Uplink(1e9, drops=44.0), Uplink(1e9)], 16e9)
    wires.run(5)
    wires.leaves["lf2"].uplinks[3].up = 0
    wires.run(20)
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        row = next(line for line in lines(app) if " lf2 " in line)
        assert "92 %" in row
        assert "44/s" in row
        assert "1/4" in row
        await pilot.press("tab", "tab")
        await settle(pilot)
        shown = text(app)
        assert "leaf lf2  4 nodes  by its own counters" in shown
        assert "down: swp54" in shown
        assert "nodes node[005-008]" in shown
        full = next(line for line in lines(app) if line.startswith("   swp51"))
        assert "up" in full
        assert "92 %" in full
        assert "sp1" in full
        assert "DOWN" in next(line for line in lines(app) if line.startswith("   swp54"))
        await pilot.press("enter")
        await settle(pilot)
        assert app.front == "nodes"
        assert app.filter_text == "leaf:lf2"
        assert app.picture.shown_nodes.tolist() == [False] * 4 + [True] * 4


async def test_a_leaf_that_is_not_read_says_so_and_shows_no_zero(wires: Wires) -> None:
    silent = Wires(4, 2, leaves=2)
    silent.flows = ring(list(range(8)), 1e9)
    silent.leaves = {}
    silent.run(10)
    async with console(silent, WIDE) as (app, pilot):
        await pilot.press("7", "tab", "tab")
        await settle(pilot)
        row = next(line for line in lines(app) if " lf1 " in line)
        assert "? unknown" in row
        assert not re.search(r"\b0\b", row.split("lf1")[1])
        assert "? its ports are not read" in text(app)


async def test_enter_on_a_job_on_a_rack_and_on_the_fleet_shows_their_nodes(wires: Wires) -> None:
    async with console(wires, WIDE) as (app, pilot):
        for keys, term, nodes in ((("7", "down", "enter"), "job:32", {4, 5, 6, 7}),
                                  (("7", "tab", "home", "down", "enter"), "rack:row-2", {2, 3})):
            app.panes["traffic"].part = app.panes["traffic"].subject = 0
            await pilot.press(*keys)
            await settle(pilot)
            assert (app.front, app.filter_text) == ("nodes", term)
            assert set(np.flatnonzero(app.picture.shown_nodes).tolist()) == nodes
            app.clear_filter()
            await settle(pilot)


async def test_the_detail_has_every_meter_under_its_own_name_with_its_reason(wires: Wires) -> None:
    async with console(wires, (150, 60)) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        shown = text(app)
        assert "cross-rack by sockets 67 %" in shown
        assert "through spine by uplinks 4.0 %" in shown
        assert "cross-rack by NCCL log (estimated) ? (" in shown
        assert "cross-rack by order (predicted) ? (order of ranks not known)" in shown
        assert "judged ? (judged by job or group)" in shown
        assert re.search(r"node002 +row-1 +> node003 +row-2 +1.0 GB/s  rtt +80 µs  jitter +8 µs", shown)
        assert "192.0.2.77 250 MB/s" in shown
        assert "sockets  8/8 nodes  TCP sockets of the nodes, measured; does not see RDMA" in shown
        await pilot.press("down")
        await settle(pilot)
        shown = text(app)
        assert "job 32  ∙ ok  100 %" in shown
        assert "node002" not in shown.split("Top talkers")[1], "another job's nodes are not its talkers"


async def test_a_better_order_is_named_with_who_says_the_order_now() -> None:
    names = tuple(f"node{number:03d}" for number in (1, 3, 2, 4))
    wires = Wires(2, 2, order=names)
    wires.flows = ring([0, 2, 1, 3], 1e9)
    wires.run(30)
    async with console(wires, (120, 50)) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        shown = text(app)
    assert "cross-rack by order (predicted) 100 %" in shown
    assert "a better order of its ranks (now by the host file): 2 of 4 hops would cross" in shown
    assert "node001 node002 node003 node004" in shown


async def test_the_alert_of_a_job_across_racks_marks_its_row() -> None:
    wires = flowing()
    wires.run(330)
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        assert re.search(r"▴ warn +job 32 +100 %", text(app))
        await pilot.press("a")
        await settle(pilot)
        assert not [line for line in lines(app) if "fleet  " in line and "by job" in line]
        assert any("job 32" in line for line in lines(app))


async def test_a_nodes_page_has_its_peers_by_rate_and_its_leafs_uplinks(wires: Wires) -> None:
    async with console(wires, (120, 70)) as (app, pilot):
        app.open_node(0)
        await settle(pilot)
        shown = lines(app)
    at = next(number for number, line in enumerate(shown) if line.strip() == "Traffic")
    assert "leaf lf1" in shown[at + 1]
    assert "busiest uplink" in shown[at + 1]
    peers = [line.split() for line in shown[at + 3:at + 6]]
    assert [peer[:2] for peer in peers] == [["node002", "row-1"], ["node004", "row-2"], ["192.0.2.77", "unplaced"]]
    assert peers[0][2:4] == ["1.0", "GB/s"]
    assert "80 µs" in shown[at + 3]
    assert "250 MB/s" in shown[at + 5]


async def test_nothing_about_traffic_stands_on_a_page_where_no_meter_is_set_up() -> None:
    wires = Wires(2, 2)
    wires.deaf = {0, 1, 2, 3}
    wires.run(3)
    async with console(wires, (120, 60)) as (app, pilot):
        app.open_node(0)
        await settle(pilot)
        assert not [line for line in lines(app) if line.strip() == "Traffic"]


async def test_of_seventy_racks_only_what_is_on_the_screen_is_made() -> None:
    wires = Wires(70, 2)
    wires.flows = ring(list(range(140)), 1e9)
    wires.run(20)
    async with console(wires, (80, 24)) as (app, pilot):
        await pilot.press("7", "tab")
        await settle(pilot)
        matrix = app.panes["traffic"].matrix
        assert matrix.dense
        made = matrix.built
        wires.flows[0, 2] = 7e9
        wires.run(4)
        await take(app, pilot)
        assert 0 < matrix.built - made <= matrix.HEAD + matrix.tall
        matrix.density = 1
        app.panes["traffic"].draw()
        await settle(pilot)
        assert "1-11 of 70 racks" in text(app)
        assert max(len(matrix.build(y)) for y in range(70)) <= 13, "a row is as long as the screen, not as the fleet"
        await pilot.press("end")
        await settle(pilot)
        assert matrix.here == wires.snapshot.view.traffic.racks.index("row-70")
        assert matrix.there is None
        assert "row-70" in text(app)
        await pilot.press("home")
        await settle(pilot)
        assert "1-11 of 70 racks" in text(app)


async def test_one_pair_that_changes_draws_its_own_cells_only() -> None:
    wires = Wires(6, 2)
    wires.flows = ring(list(range(12)), 1e9)
    wires.run(240)
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        matrix = app.panes["traffic"].matrix
        wires.run(1)
        await take(app, pilot)
        regions = []
        matrix.refresh = lambda *areas, **_: regions.extend(areas)
        wires.run(1)
        await take(app, pilot)
        assert regions == [], "nothing changed"
        wires.flows[0, 4] = 3e8
        wires.run(3)
        await take(app, pilot)
        assert {area.y for area in regions} == {matrix.HEAD}
        assert sum(area.width for area in regions) <= 6


async def test_racks_stand_in_the_order_in_which_people_count() -> None:
    wires = Wires(11, 1)
    wires.flows = ring(list(range(11)), 1e9)
    wires.run(10)
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        await settle(pilot)
        found = [line.split()[0] for line in lines(app) if line.startswith("row-")]
    assert found == [f"row-{number}" for number in range(1, 12)]
    assert sorted(["r10", "r2", "a", "r1"], key=natural) == ["a", "r1", "r2", "r10"]


async def test_the_filter_leaves_scopes_and_leaves_of_the_nodes_it_finds(wires: Wires) -> None:
    async with console(wires, WIDE) as (app, pilot):
        await pilot.press("7")
        app.filter_text = "node006"
        app.draw()
        await settle(pilot)
        table = app.picture.view["traffic"]
        pane = app.panes["traffic"]
        assert [table.keys[row] for row in pane.scopes.rows] == ["job/32"]
        assert [table.keys[row] for row in pane.leaves.rows] == ["leaf/lf2"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_it_is_drawn_in_ascii_where_asked(wires: Wires, size: tuple[int, int]) -> None:
    async with console(wires, size, ascii_only=True) as (app, pilot):
        await pilot.press("7")
        for _ in range(4):
            await settle(pilot)
            assert text(app).isascii()
            assert max(map(len, lines(app))) == size[0]
            await pilot.press("tab")


async def test_the_cell_under_the_cursor_can_be_copied() -> None:
    wires = Wires(2, 2)
    wires.flows = ring([0, 1, 2, 3], 1e9)
    wires.run(4)
    async with console(wires, (120, 40)) as (app, pilot):
        await pilot.press("7", "tab")
        await settle(pilot)
        app.copied = []
        app.copy_to_clipboard = app.copied.append
        await pilot.press("y")
        assert app.copied == ["row-1 > row-1  1.0 GB/s"]


@pytest.mark.parametrize(("rate", "words"), [
    (float("nan"), "?"), (0.0, "."), (3.0, "3"), (0.4, "."), (999.4, "999"), (1500.0, "1.5k"), (9.96e9, "10G"),
    (142.4e9, "142G"), (999.6e9, "1.0T")])
def test_a_rate_has_four_characters_at_most(rate: float, words: str) -> None:
    assert short_rate(rate) == words


def test_each_digit_of_the_dense_matrix_is_half_of_the_next() -> None:
    assert [octave(rate, 800.0) for rate in (800.0, 401.0, 400.0, 99.0, 1.0, 0.9)] == [LEVELS, LEVELS, 8, 6, 1, 0]
    assert octave(0.0, 800.0) == 0
