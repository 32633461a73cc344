"""What is drawn again, and what is not: work is counted, not timed."""

from __future__ import annotations

import numpy as np
import pytest

from clustertop.tui.glyphs import ASCII, UNICODE
from clustertop.tui.widgets.heatmap import DENSE
from clustertop.tui.widgets.lines import LineView
from tui.fleet import FleetSource
from tui.test_console import console, settle, take


def _views(app: object) -> list[LineView]:
    return list(app.screen.query(LineView))  # type: ignore[attr-defined]


def _still(source: FleetSource) -> None:
    for node in source.nodes:
        node.still = True


async def test_a_snapshot_that_changes_nothing_draws_nothing() -> None:
    source = FleetSource(24, racks=3)
    source.connect()
    source.run(4)
    _still(source)
    source.run(3)
    async with console(source) as (app, pilot):
        fleet = app.panes["fleet"]
        source.tick()
        await take(app, pilot)
        before = fleet.map.asked
        source.tick()
        await take(app, pilot)
        assert app.snapshot is source.snapshot
        assert fleet.map.asked == before
        assert fleet.legend.asked <= 1


async def test_one_node_that_changes_draws_its_own_cells_only() -> None:
    source = FleetSource(64, racks=4)
    source.connect()
    source.run(4)
    _still(source)
    source.run(3)
    async with console(source) as (app, pilot):
        table = app.panes["fleet"].map
        source.tick()
        await take(app, pilot)
        regions = []
        table.refresh = lambda *areas, **_: regions.extend(areas)
        source.nodes[5].still = False
        source.nodes[5].busy = 0.2
        source.tick()
        await take(app, pilot)
        y, x = table._where[5]
        assert regions
        assert {area.y for area in regions} == {y - table.top}
        left = x * (table.strip + 2)
        assert all(left <= area.x and area.right <= left + table.strip for area in regions)
        assert sum(area.width for area in regions) <= 8 * table.tile


async def test_a_twentieth_of_the_cells_costs_less_than_a_seventh_of_the_bytes() -> None:
    source = FleetSource(64, racks=4)
    source.connect()
    source.run(4)
    _still(source)
    source.run(3)
    async with console(source, (200, 50)) as (app, pilot):
        source.tick()
        await take(app, pilot)
        written: list[int] = []
        app._display = lambda screen, update: written.append(len(update.render_segments(app.console)))
        app.screen.refresh()
        await settle(pilot)
        full = sum(written)
        written.clear()
        for number in (3, 20, 41):
            source.nodes[number].still = False
            source.nodes[number].busy = 0.3
        source.tick()
        await take(app, pilot)
        assert full > 5000
        assert 0 < sum(written) < 0.15 * full


async def test_only_visible_lines_are_made() -> None:
    source = FleetSource(160, racks=8)
    source.connect()
    source.run(2)
    async with console(source, (50, 20)) as (app, pilot):
        table = app.panes["fleet"].map
        made = table.built
        source.tick()
        await take(app, pilot)
        assert table.count() > 60
        assert table.built - made <= 20
        await pilot.press("3", "g")
        await settle(pilot)
        rows = app.panes["nodes"].gpus
        assert len(rows.rows) == 1280
        made = rows.built
        source.tick()
        await take(app, pilot)
        assert 0 < rows.built - made <= 20
        await pilot.press("end")
        await settle(pilot)
        assert rows.row == rows.rows[-1]
        assert "gpu-160" in rows.text_of(rows.count() - 1)


async def test_dense_tiles_keep_their_letters_apart() -> None:
    source = FleetSource(4, racks=1)
    source.connect()
    source.nodes[1].lost = {0}
    source.run(3)
    async with console(source) as (app, pilot):
        pane = app.panes["fleet"]
        pane.map.density = DENSE
        pane.draw()
        await settle(pilot)
        y, _ = pane.map._where[1]
        strip = pane.map.text_of(y).split("gpu-002 ")[1][:8]
        assert strip[0] == "X"
        assert set(strip[1:]) <= set("0123456789")


def test_text_is_cut_on_grapheme_borders() -> None:
    assert UNICODE.fit("plain-04", 6) == "plain…"
    assert UNICODE.fit("机架-01", 5) == "机架…"
    assert UNICODE.fit("机架-01", 4) == "机… "
    assert UNICODE.fit("e\u0301e\u0301e\u0301", 2) == "e\u0301…"
    assert UNICODE.fit("ab", 4, ">") == "  ab"
    assert UNICODE.fit("ab", 0) == ""
    assert ASCII.fit("71 °C", 6) == "71 C  "
    assert ASCII.fit("机架", 5) == "??   "


def test_a_gap_in_a_curve_is_a_gap() -> None:
    values = [1.0, float("nan"), float("nan"), float("nan"), 0.0, 0.0]
    assert UNICODE.spark(values, 3, 0.0, 1.0) == "⡇ ⣀"
    assert ASCII.spark([0.0, float("nan"), 1.0], 3, 0.0, 1.0) == "_ #"
    assert UNICODE.spark([], 2, 0.0, 1.0) == "  "


async def test_sums_over_a_node_leave_unknown_values_out() -> None:
    source = FleetSource(2, racks=1)
    source.connect()
    source.nodes[0].lost = {0, 1, 2, 3, 4, 5, 6, 7}
    source.run(3)
    async with console(source) as (app, _):
        total = app.picture.per_node("gpu", "power_watts", "sum")
        assert np.isnan(total[0])
        assert total[1] > 0
        assert app.picture.gpus_answering.tolist() == [0.0, 8.0]


@pytest.mark.parametrize("name", ["rdma", "pcie", "nodes", "alerts"])
async def test_a_table_that_gets_shorter_forgets_the_lines_that_went(name: str) -> None:
    source = FleetSource(4, racks=1)
    source.connect()
    source.nodes[1].width = {0: 8, 1: 8}
    source.nodes[1].down = {3}
    source.run(5)
    async with console(source) as (app, pilot):
        await pilot.press({"rdma": "5", "pcie": "4", "nodes": "3", "alerts": "2"}[name])
        await settle(pilot)
        await pilot.press("slash", *"gpu-004", "enter")
        await settle(pilot)
        body = app.panes[name].table
        for y in range(body.count(), body.tall):
            assert body._line(y) == ()
