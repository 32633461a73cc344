"""Jobs as groups on the console: the map, the table, the filter."""

from __future__ import annotations

import pytest

from tui.fleet import FleetSource
from tui.test_console import console, lines, settle, take, text


@pytest.fixture
def fleet() -> FleetSource:
    """Eight nodes in two racks: two jobs that cross them, a shared node, an idle one, one that does not say."""
    source = FleetSource(8, racks=2)
    for node, jobs in zip(source.nodes, (["471"], ["4711"], ["471"], ["471", "9"], ["4711"], [], None, ["4711"]), strict=True):
        node.jobs = jobs
    source.nodes[4].width = {2: 8}
    source.connect()
    source.run(4)
    return source


def headings(shown: list[str]) -> list[str]:
    return [line.split("  ")[0].strip() for line in shown if line.startswith(("job ", "several", "no job", "rack"))]


async def test_the_map_by_job_has_a_summary_of_each(fleet: FleetSource) -> None:
    async with console(fleet) as (app, pilot):
        assert headings(lines(app)) == ["rack-a", "rack-b"]
        await pilot.press("J")
        await settle(pilot)
        assert headings(lines(app)) == ["job 471", "job 4711", "several jobs", "no job", "job not known"]
        job = next(line for line in lines(app) if line.startswith("job 4711"))
        assert "3/3 up  GPUs 24  median util 9" in job
        assert job.rstrip().endswith("▮ CRIT"), "the node at x8"
        shared = next(line for line in lines(app) if line.startswith("job 471 "))
        assert "3/3 up, 1 shared  GPUs 16" in shared, "of a shared node no GPU is known to be this job's"
        assert shared.rstrip().endswith("∙ ok")
        await pilot.press("J")
        await settle(pilot)
        assert headings(lines(app)) == ["rack-a", "rack-b"]


async def test_a_job_that_moves_moves_on_the_map(fleet: FleetSource) -> None:
    async with console(fleet) as (app, pilot):
        await pilot.press("J")
        fleet.nodes[5].jobs = ["8000"]
        fleet.full(5)
        fleet.run(2)
        await take(app, pilot)
        assert headings(lines(app)) == ["job 471", "job 4711", "job 8000", "several jobs", "job not known"]


async def test_a_node_that_goes_down_is_missing_from_its_job_which_is_not_ok(fleet: FleetSource) -> None:
    from clustertop.model import LinkState

    fleet.link(0, LinkState.CONNECTING)
    fleet.run(1)
    async with console(fleet) as (app, pilot):
        await pilot.press("J")
        await settle(pilot)
        job = next(line for line in lines(app) if line.startswith("job 471 "))
        assert "2/3 up" in job
        assert "ok" not in job
        assert "? not all judged" in job


async def test_a_line_per_job_and_enter_shows_its_nodes(fleet: FleetSource) -> None:
    async with console(fleet, (160, 40)) as (app, pilot):
        await pilot.press("3", "J")
        await settle(pilot)
        rows = [line.split() for line in lines(app) if line.startswith(("∙ ok", "▮ CRIT"))]
        assert [row[2] for row in rows] == ["9", "471", "4711"]
        big = next(line for line in lines(app) if " 4711 " in line)
        assert "3/3" in big
        assert "24/24" in big
        assert "rack-a rack-b" in big
        assert "gpu-005 GPU 2 12:00.0 is x8" in big
        await pilot.press("down", "enter")
        await settle(pilot)
        assert app.filter_text == "job:471"
        assert app.panes["nodes"].nodes.rows == [0, 2, 3], "471 is not 4711"
        assert " 2 jobs" in next(line for line in lines(app) if "gpu-004" in line)
        await pilot.press("enter")
        await settle(pilot)
        assert app.front == "detail"
        assert "job 471 " in text(app)


@pytest.mark.parametrize(("typed", "nodes"), [
    ("job:4711", [1, 4, 7]), ("job:47", []), ("471", [0, 1, 2, 3, 4, 7]), ("job:9", [3]), ("job:4711 rack-b", [4, 7]),
])
async def test_the_filter_finds_jobs(fleet: FleetSource, typed: str, nodes: list[int]) -> None:
    async with console(fleet) as (app, pilot):
        await pilot.press("3", "slash", *typed, "enter")
        await settle(pilot)
        assert app.panes["nodes"].nodes.rows == nodes


async def test_where_no_node_tells_of_jobs_that_is_said() -> None:
    source = FleetSource(3, racks=1)
    source.connect()
    source.run(2)
    async with console(source) as (app, pilot):
        await pilot.press("J")
        await settle(pilot)
        assert "no job is known: no Slurm cgroups on these nodes" in text(app)
        assert headings(lines(app)) == ["job not known"]
        await pilot.press("3", "J")
        await settle(pilot)
        assert "no job is known" in text(app)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (200, 60)])
async def test_it_fits_every_size(fleet: FleetSource, size: tuple[int, int]) -> None:
    async with console(fleet, size) as (app, pilot):
        for keys in (("J",), ("3", "J")):
            await pilot.press(*keys)
            await settle(pilot)
            assert all(len(line) <= size[0] for line in lines(app))
            assert "4711" in text(app)


async def test_jobs_by_the_command_palette(fleet: FleetSource) -> None:
    async with console(fleet) as (app, pilot):
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"map: by job", "enter")
        await settle(pilot)
        await settle(pilot)
        assert app.panes["fleet"].map.by_job
