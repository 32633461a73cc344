"""What the console asks of nodes: processes while a page is open, GPUs let go of and taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clustertop.model import LinkState
from clustertop.tui import app as console_app
from clustertop.tui.confirm import Confirm
from clustertop.tui.panes.processes import ASK_SECONDS, RENEW_SECONDS
from tui.fleet import WALL, FleetSource
from tui.test_console import console, lines, settle, take, text

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from clustertop.tui.app import ConsoleApp


@pytest.fixture
def fleet() -> FleetSource:
    source = FleetSource(4, racks=1)
    source.connect()
    source.run(4)
    return source


def asked(source: FleetSource, what: str) -> list[int | None]:
    return [request.node for request in source.asked if request.body.get("do") == what]


def section(app: ConsoleApp, name: str = " Processes") -> list[str]:
    """The lines of one section of the node's page."""
    page = app.panes["detail"].page
    body = [page.text_of(y) for y in range(page.count())]
    start = next(at for at, line in enumerate(body) if line.startswith(name))
    end = next((at for at in range(start, len(body)) if not body[at]), len(body))
    return body[start:end]


async def tell(app: ConsoleApp, pilot: Pilot[int], source: FleetSource, node: int, ticks: int = 2) -> None:
    source.full(node)
    source.run(ticks)
    await take(app, pilot)


# -- processes -----------------------------------------------------------------------------------------------------


async def test_processes_are_asked_for_only_while_a_page_is_open(
    fleet: FleetSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(fleet) as (app, pilot):
        for key in "12345":
            await pilot.press(key)
            await settle(pilot)
            app.look_at_source()
        assert asked(fleet, "procs") == []
        app.open_node(2)
        await settle(pilot)
        for _ in range(5):
            app.look_at_source()
        assert asked(fleet, "procs") == [2]
        assert fleet.asked[-1].body == {"do": "procs", "seconds": ASK_SECONDS}
        assert RENEW_SECONDS < ASK_SECONDS, "renewed before it lapses"
        app._ask_processes(console_app.time.monotonic() + RENEW_SECONDS + 1)
        assert asked(fleet, "procs") == [2, 2]
        await pilot.press("right_square_bracket")
        await settle(pilot)
        app.look_at_source()
        assert asked(fleet, "procs") == [2, 2, 3], "the next node's page"
        await pilot.press("escape")
        await settle(pilot)
        app._ask_processes(console_app.time.monotonic() + 1000)
        assert asked(fleet, "procs") == [2, 2, 3], "closed: left to lapse"


async def test_what_is_shown_of_processes(fleet: FleetSource) -> None:
    async with console(fleet, (120, 70)) as (app, pilot):
        app.open_node(1)
        await settle(pilot)
        app.look_at_source()
        await take(app, pilot)
        assert section(app)[1:] == ["   asked…"]
        fleet.nodes[1].processes = []
        await tell(app, pilot, fleet, 1)
        assert section(app)[1:] == ["   no processes"]
        fleet.nodes[1].processes = [
            {"gpu": 5, "pid": 4321, "user": "dalia", "command": "python3 [bold]train[/bold].py \x1b[31m", "job": "77",
             "job_kind": "slurm", "used": 3 * 2**30},
            {"gpu": 0, "pid": 17, "user": "root", "command": "dcgm", "job": "root", "job_kind": "user", "used": 2**20},
            {"gpu": 0, "pid": 99, "used": 2**30},
        ]
        await tell(app, pilot, fleet, 1)
        rows = section(app)[2:]
        assert [row.split()[:3] for row in rows] == [["GPU", "0", "99"], ["GPU", "0", "17"], ["GPU", "5", "4321"]]
        assert "? (hidden by /proc, or over)" in rows[0]
        assert "root" in rows[1]
        assert "root (user)" in rows[1]
        assert "3.0 GiB" in rows[2]
        assert "77 (slurm)" in rows[2]
        assert "python3 [bold]train[/bold].py" in rows[2], "drawn literally"
        assert "\x1b" not in rows[2]
        fleet.nodes[1].process_error = "GPU 3: Insufficient Permissions"
        await tell(app, pilot, fleet, 1)
        assert "not all could be listed: GPU 3: Insufficient Permissions" in section(app)[1]
        assert "4321" in section(app)[-1]


async def test_processes_that_cannot_be_read_say_why_and_are_not_asked_for(fleet: FleetSource) -> None:
    fleet.nodes[0].facts["probe"] = "sh"
    fleet.nodes[1].released = True
    fleet.nodes[2].hung = "gpu"
    fleet.nodes[3].gpus = 0
    for node in range(4):
        fleet.full(node)
    fleet.run(3)
    fleet.link(3, LinkState.UNREACHABLE, "no answer")
    fleet.run(1)
    async with console(fleet, (120, 70)) as (app, pilot):
        for node, words in ((0, "the sh probe cannot list processes"), (1, "while the GPUs are released"),
                            (2, "GPU readings hang: nvmlDeviceGetPowerUsage GPU 3")):
            app.open_node(node)
            await settle(pilot)
            app.look_at_source()
            (line,) = section(app)[1:]
            assert line.startswith("   not readable")
            assert words in line
        app.open_node(3)
        await settle(pilot)
        assert "not readable: the node is not connected" in section(app)[1]
        assert asked(fleet, "procs") == []


@pytest.mark.parametrize("how", ["down", "hung"])
async def test_an_old_list_is_not_shown_as_if_it_were_live(fleet: FleetSource, how: str) -> None:
    fleet.nodes[0].processes = [{"gpu": 0, "pid": 4242, "user": "emeka", "command": "train"}]
    fleet.full(0)
    fleet.run(2)
    async with console(fleet, (120, 70)) as (app, pilot):
        app.open_node(0)
        await settle(pilot)
        assert "4242" in section(app)[-1]
        if how == "down":
            fleet.link(0, LinkState.UNREACHABLE, "no answer")
        else:
            fleet.nodes[0].hung = "gpu"
        fleet.run(2)
        await take(app, pilot)
        assert section(app)[1].startswith("   not readable: ")
        assert len(section(app)) == 2


async def test_an_answer_that_does_not_come_is_said(fleet: FleetSource) -> None:
    async with console(fleet) as (app, pilot):
        app.open_node(0)
        await settle(pilot)
        app.look_at_source()
        app.panes["detail"].asked -= 12
        fleet.run(1)
        await take(app, pilot)
        assert section(app)[1] == "   asked 12 s ago, no answer yet"


async def test_a_recording_is_asked_nothing(fleet: FleetSource) -> None:
    fleet.live = False
    async with console(fleet) as (app, pilot):
        app.open_node(0)
        await settle(pilot)
        app.look_at_source()
        fleet.run(1)
        await take(app, pilot)
        assert section(app)[1] == "   not asked for when this was recorded"
        await pilot.press("x")
        await settle(pilot)
        assert not isinstance(app.screen, Confirm)
        assert "a recording: there is no node to ask" in text(app)
    assert fleet.asked == []


# -- letting go ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keys", "done"), [
    (("y",), True), (("n",), False), (("escape",), False), (("q",), False), (("enter", "space", "n"), False)])
async def test_gpus_are_let_go_only_after_a_yes(fleet: FleetSource, keys: tuple[str, ...], done: bool) -> None:
    async with console(fleet) as (app, pilot):
        await pilot.press("right", "x")
        await settle(pilot)
        assert isinstance(app.screen, Confirm)
        shown = text(app)
        assert "Let go of the GPUs of gpu-002?" in shown
        assert "nvidia-smi -r" in shown
        assert fleet.asked == []
        await pilot.press(*keys)
        await settle(pilot)
        assert not isinstance(app.screen, Confirm)
        assert asked(fleet, "release") == ([1] if done else [])
        assert ("asked gpu-002 to let go of its GPUs" in text(app)) is done


async def test_the_same_key_takes_them_back(fleet: FleetSource) -> None:
    async with console(fleet) as (app, pilot):
        await pilot.press("x", "y", "x")
        await settle(pilot)
        assert "Take the GPUs of gpu-001 back?" in text(app)
        await pilot.press("y")
        await settle(pilot)
        assert asked(fleet, "release") == [0]
        assert asked(fleet, "take") == [0]


async def test_a_node_that_is_away_comes_back_without_its_gpus(fleet: FleetSource) -> None:
    fleet.link(0, LinkState.UNREACHABLE, "no answer")
    fleet.run(1)
    async with console(fleet) as (app, pilot):
        await pilot.press("x", "y")
        await settle(pilot)
        assert asked(fleet, "release") == [0]
        assert "gpu-001 is not connected: it comes back without its GPUs" in text(app)


async def test_by_the_command_palette_too(fleet: FleetSource) -> None:
    async with console(fleet) as (app, pilot):
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"node: let go", "enter")
        await settle(pilot)
        await settle(pilot)
        assert isinstance(app.screen, Confirm)


@pytest.fixture
def held() -> FleetSource:
    """One node of four let go a quarter of an hour ago."""
    source = FleetSource(4, racks=1)
    source.connect()
    source.run(3)
    source.nodes[1].released = True
    source.nodes[1].facts["gpus_released"] = WALL - 900
    source.full(1)
    source.run(12)
    return source


@pytest.mark.parametrize("ascii_only", [False, True])
async def test_released_is_seen_everywhere_and_is_never_green(held: FleetSource, ascii_only: bool) -> None:
    mark = "o" if ascii_only else "◦"
    assert held.snapshot is not None
    assert held.snapshot.alerts == ()
    async with console(held, (140, 60), ascii_only=ascii_only) as (app, pilot):
        strip = next(line for line in lines(app) if "gpu-002" in line)
        start = strip.index("gpu-002")
        assert strip[start - 2] == mark
        assert strip[start + 8 : start + 40].split() == [mark] * 8
        assert "GPUs 24/32 (8 released)" in text(app)
        assert f"{mark} released" in text(app), "the legend"
        await pilot.press("right")
        await settle(pilot)
        assert "GPUs released by the operator since " in text(app)
        await pilot.press("3")
        await settle(pilot)
        row = next(line for line in lines(app) if "gpu-002" in line)
        assert row.startswith(f"{mark} released ")
        assert "-/8" in row
        assert "GPUs released by the operator since " in row
        assert "ok" not in row
        await pilot.press("g")
        await settle(pilot)
        mine = [line for line in lines(app) if "gpu-002" in line]
        assert len(mine) == 8
        assert all(line.startswith(f"{mark} released") for line in mine)
        app.open_node(1)
        await settle(pilot)
        shown = text(app)
        assert "GPUs released by the operator since " in shown
        assert "x takes them back" in shown
        assert sum(f"{mark} released" in line for line in section(app, " GPUs")) == 8
        await pilot.press("slash", *"released", "enter", "1")
        await settle(pilot)
        assert [node for _, nodes in app.panes["fleet"].map._rows for node in nodes] == [1]


async def test_a_fault_that_fired_before_is_still_shown(fleet: FleetSource) -> None:
    fleet.nodes[0].lost = {3}
    fleet.run(4)
    fleet.nodes[0].released = True
    fleet.full(0)
    fleet.run(8)
    assert fleet.snapshot is not None
    assert [alert.rule for alert in fleet.snapshot.alerts] == ["gpu_missing"]
    async with console(fleet) as (app, _):
        strip = next(line for line in lines(app) if "gpu-001" in line)
        assert strip.startswith("▮ gpu-001")
        assert "◦   ◦" in strip


async def test_a_node_released_from_the_start_has_no_rows_and_says_so() -> None:
    source = FleetSource(2, racks=1)
    source.nodes[0].released, source.nodes[0].gpus = True, 0
    source.connect()
    source.run(3)
    async with console(source) as (app, pilot):
        assert "◦ gpu-001 GPUs released" in text(app)
        app.open_node(0)
        await settle(pilot)
        assert section(app, " GPUs") == [" GPUs  released"]
