"""The signals on the screens: ports, PCIe links, single GPUs, nodes, and what sets nodes apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len

from clustertop.model import NodeInfo, OwnCost, Request
from clustertop.probe.frames import Err
from nodes import Fleet, gpus, lost, ports, table
from tui.test_console import console, lines, settle, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.core import Snapshot
    from clustertop.probe.frames import Table
    from clustertop.rules.latency import Times

SIZES = [(80, 24), (120, 40), (200, 60)]
PORT = "0000:20:00.0/1"


class Source:
    """A fleet of tables as the console's source."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.core = fleet.core
        self.title, self.notes, self.live = "test", (), False
        self.origins: Mapping[str, Mapping[str, str]] = {}
        self.times: Times | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest moment."""
        return self.fleet.core.snapshot

    def cost(self) -> OwnCost:
        """A plausible cost."""
        return OwnCost(0.01, 60 * 2**20)

    def evaluate(self) -> None:
        """Judge the same moment again."""
        self.fleet.tick()

    def request(self, request: Request) -> None:
        """Nobody is there to be asked."""


async def page(fleet: Fleet, *keys: str, size: tuple[int, int] = (120, 60)) -> str:
    """The screen after *keys*."""
    async with console(Source(fleet), size) as (app, pilot):  # type: ignore[arg-type]
        for key in keys:
            await pilot.press(key)
            await settle(pilot)
        assert {cell_len(line) for line in lines(app)} == {size[0]}
        return text(app)


def line_of(shown: str, start: str) -> str:
    """The first line with *start* in it."""
    found = [line for line in shown.splitlines() if start in line]
    assert found, f"no {start!r} in:\n{shown}"
    return found[0]


# -- RDMA ------------------------------------------------------------------------------------------------------------


def wires(attrs: Mapping[str, Mapping[str, Any]] | None = None, *changes: Mapping[str, Any]) -> Table:
    """Ports as :func:`nodes.ports` has them, with more attributes by device name."""
    made = ports(*changes)
    rows = [(key, {**own, **(attrs or {}).get(str(own["dev"]), {})}) for key, own in made.rows]
    return type(made)(rows, made.columns, made.cells)


DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}


async def test_b7_a_port_that_was_never_up_is_unused_and_one_that_fell_is_down() -> None:
    """B7, B8: its rate of 10 is no capacity; what was never up is no fault, and it is not ok either."""
    fleet = Fleet()
    fleet.step(port=ports({}, {}, DOWN))
    for _ in range(3):
        fleet.step(port=ports({}, DOWN, DOWN))
    shown = await page(fleet, "5")
    assert "1 of 3 ports up  1 never used  1 down" in shown
    unused, fallen = line_of(shown, "mlx5_2/1"), line_of(shown, "mlx5_1/1")
    assert unused.startswith("- unused")
    assert "never used" in unused
    assert " ok" not in unused
    assert fallen.startswith("▮ CRIT")
    assert "down (polling)" in fallen
    assert "10 Gb" not in fallen
    detail = shown.split("mlx5_1/1")[-1]
    assert "down (polling: no partner signal)" in detail
    assert "none (10 Gb/sec (4X SDR) means nothing while it is down)" in detail
    assert "b/s" not in unused


async def test_a_port_that_was_never_used_is_not_drawn_as_fine_on_the_map() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.step(port=ports({"c:symbol_error": 0}, {**DOWN, "c:symbol_error": 0}))
    async with console(Source(fleet)) as (app, pilot):  # type: ignore[arg-type]
        app.show_metric("rdma errors")
        await settle(pilot)
        assert line_of(text(app), "n0 ").split()[:4] == ["∙", "n0", "0", "-"]


async def test_b9_a_flap_says_how_often_the_port_went_down() -> None:
    fleet = Fleet()
    for downs in (0, 1, 2, 3, 3, 3):
        fleet.step(port=ports({"c:link_downed": downs}, {"c:link_downed": 0}))
    shown = await page(fleet, "5")
    assert "2 of 2 ports up  0 down  1 flap" in shown
    assert line_of(shown, "mlx5_0/1").startswith("▴ warn")
    assert "up, 3 downs" in line_of(shown, "mlx5_0/1")
    assert "downs in ten minutes 3: flaps" in shown
    assert "down" not in line_of(shown, "mlx5_1/1").replace("0 down", "")


async def test_a_rate_below_the_peers_stands_beside_theirs() -> None:
    fleet = Fleet()
    slow = {"rate": "200 Gb/sec (4X HDR)"}
    board = {f"mlx5_{number}": {"board": "MT_1", "hca": "MT4129"} for number in range(5)}
    for _ in range(3):
        fleet.step(port=wires(board, slow, {}, {}, {}, {}))
    shown = await page(fleet, "5")
    assert "1 slow" in shown
    assert "200/400 Gb/s" in line_of(shown, "mlx5_0/1")
    assert "/400" not in line_of(shown, "mlx5_1/1")
    narrow = await page(fleet, "5", size=(80, 24))
    assert "up, 200/400 Gb/s"[:14] in line_of(narrow, "mlx5_0/1")


async def test_b2_a_counter_at_its_end_is_no_zero() -> None:
    fleet = Fleet()
    for _ in range(3):
        fleet.step(port=ports({"c:symbol_error": 65535, "c:link_downed": 3}, {"c:symbol_error": 0, "c:link_downed": 0}))
    shown = await page(fleet, "5", size=(200, 40))
    row = line_of(shown, "mlx5_0/1")
    assert "at end" in row
    assert "at its end, true value unknown: symbol_error" in row
    assert "1 with a counter at its end" in shown
    assert "at its end" in line_of(shown, " symbol_error ")
    assert "65 535" not in shown
    assert "at end" not in line_of(shown, "mlx5_1/1")


VIRTUAL = {"mlx5_1": {"physfn": "0000:20:00.0"}, "mlx5_2": {"physfn": "0000:20:00.0"}}


async def test_b11_virtual_functions_are_folded_under_their_parent_until_a_key_unfolds_them() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.step(port=wires(VIRTUAL, {}, DOWN, {}, {}))
    folded = await page(fleet, "5")
    assert "2 of 2 ports up" in folded
    assert "+2 virtual (v)" in line_of(folded, "mlx5_0/1")
    table_part = folded.split(" n0 mlx5_0/1")[0]
    assert "mlx5_1/1" not in table_part
    shown = await page(fleet, "5", "v")
    body = [line for line in shown.splitlines() if "/1 " in line and line.startswith(("∙", "-"))]
    assert [line.split("mlx5_")[1][0] for line in body] == ["0", "1", "2", "3"]
    assert body[1].startswith("- virtual")
    assert "of mlx5_0/1" in body[1]
    assert "2 of 2 ports up" in shown
    assert "2 virtual functions shown under their parents" in shown


async def test_b6_a_bond_is_told_by_what_the_node_says_and_never_by_a_name() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.step(port=wires({"mlx5_0": {"bond": "bond7"}, "mlx5_1": {"dev": "mlx5_bond_1"}}, {}, {}))
    shown = await page(fleet, "5")
    assert "bonded: bond7" in line_of(shown, "mlx5_0/1")
    assert "bonded" not in line_of(shown, "mlx5_bond_1")
    assert "bonded bond7: the traffic is that of all its members" in shown


async def test_b6_a_port_that_is_only_a_member_has_its_own_traffic() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.step(port=wires({"mlx5_0": {"bond": "bond7", "netdev": "st0", "netdevs": ["st0"]}}, {}))
    assert "bonded bond7: the traffic is that of st0 alone" in await page(fleet, "5")
    for _ in range(2):
        fleet.step(port=wires({"mlx5_0": {"bond": "bond7", "netdev": "st0", "netdevs": ["st0", "st1"]}}, {}))
    assert "bonded bond7: the traffic is that of all its members" in await page(fleet, "5")


async def test_counters_that_nobody_has_classified_are_named_and_not_judged() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.step(port=ports({"h:brand_new_errors": 7}, {}))
    shown = await page(fleet, "5")
    assert "counters that nobody has classified, so not judged: hw_counters/brand_new_errors" in shown
    assert line_of(shown, "mlx5_0/1").startswith("∙ ok")


async def test_firmware_that_differs_from_its_peers_is_said_at_the_port() -> None:
    fleet = Fleet()
    known = {f"mlx5_{number}": {"hca": "MT4129", "fw": "28.39.3004" if number else "28.36.1010"}
             for number in range(4)}
    for _ in range(2):
        fleet.step(port=wires(known, {}, {}, {}, {}))
    shown = await page(fleet, "5")
    assert "fw 28.36.1010, peers 28.39.3004" in line_of(shown, "mlx5_0/1")
    assert "peers" not in line_of(shown, "mlx5_1/1")
    assert "firmware 28.36.1010, its peers have 28.39.3004" in shown
    untold = Fleet()
    untold.step(port=ports({}))
    assert "firmware ? (not told)" in await page(untold, "5")


# -- PCIe ------------------------------------------------------------------------------------------------------------

GEN5, GEN1 = "32.0 GT/s PCIe", "2.5 GT/s PCIe"


def links(*widths: str, width_max: str = "16", speed: str = GEN5, gpu: str = "0000:10:00.0",
          **more: Any) -> Table:
    """A GPU at 10:00.0 with bridges above it; *widths* from the device to the root port."""
    keys = [gpu, *(f"0000:0{hop}:00.0" for hop in range(1, len(widths)))]
    rows = {key: {"cur_width": width, "max_width": width_max, "cur_speed": speed, "max_speed": GEN5, "aer_cor": 0,
                  "aer_nonfatal": 0, "aer_fatal": 0, **(more if key == gpu else {})}
            for key, width in zip(keys, widths, strict=True)}
    attrs: dict[str, dict[str, Any]] = {key: {"class": "0x060400"} for key in keys}
    attrs[gpu] = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "path": keys[1:]}
    return table(rows, attrs)


async def test_a1_an_idle_link_shows_both_numbers_and_is_not_drawn_as_degraded() -> None:
    """A1: Gen1 of 3 at x16 and no load: an idle link; both current and max always stand together."""
    fleet = Fleet()
    idle = {"util": 0, "pstate": 8, "pcie_gen": 1, "pcie_gen_max": 3, "pcie_gen_devmax": 3}
    for _ in range(4):
        fleet.step(gpu=gpus(idle), pcie=links("16", speed=GEN1))
    shown = await page(fleet, "4", "a")
    row = line_of(shown, "GPU 0")
    assert row.startswith("∙ ok")
    assert "G1/3 x16/16" in row
    assert "idle link" in row
    assert "degraded" not in shown
    assert "0 below expected speed" in shown
    assert fleet.firing == []
    node = await page(fleet, "1", "enter", size=(120, 100))
    assert node.count("G1/3 x16/16") == 2, "with the GPUs and with the PCIe devices"
    assert "G1/3 x16/16" in line_of(await page(fleet, "3", "g", size=(80, 24)), "GPU 0")
    assert "idle link" in node


async def test_a2_the_ceiling_is_the_slots_and_the_rows_under_load_say_degraded() -> None:
    fleet = Fleet()
    fine = {"pcie_gen": 3, "pcie_gen_max": 3, "pcie_gen_devmax": 4}
    sunk = {"pcie_gen": 1, "pcie_gen_max": 3, "pcie_gen_devmax": 4, "pstate": 0, "util": 97}
    for _ in range(4):
        fleet.step(gpu=gpus(fine, sunk))
    shown = await page(fleet, "4", "a")
    assert "G3/3 x16/16" in line_of(shown, "GPU 0")
    assert "degraded" not in line_of(shown, "GPU 0")
    assert "G1/3 x16/16" in line_of(shown, "GPU 1")
    assert "degraded" in line_of(shown, "GPU 1")
    assert "1 below expected speed" in shown


@pytest.mark.parametrize("size", SIZES)
async def test_a3_a_narrow_hop_above_a_perfect_link_is_named(size: tuple[int, int]) -> None:
    fleet = Fleet()
    for _ in range(3):
        fleet.step(gpu=gpus({}), pcie=links("16", "16", "8"))
    shown = await page(fleet, "4", size=size)
    row = line_of(shown, "GPU 0 10:00.0 ")
    assert row.startswith("▮ CRIT"), "the alert is the hop's; the device behind it is no better"
    assert "x8 of x16" in row
    assert "G5/5 x16/16" in row
    assert "at 02:00.0" in row
    if size[0] > 80:
        assert "path 10:00.0 G5/5 x16/16 > 01:00.0 G5/5 x16/16 > 02:00.0 G5/5 x8/16" in shown
    assert "none was seen: it was narrow when first read" in shown


SICK = "mlx5_core 0000:10:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count"


def logged(*lines: str, at: float = 440.0) -> dict[str, Any]:
    """What the probe says of a device of which the kernel's log has these lines."""
    return {"klog_count": len(lines), "klog_time": at, "klog": "\n".join(f"{number + 1}x {line}" for number, line in enumerate(lines))}


@pytest.mark.parametrize("size", SIZES)
async def test_what_the_kernel_log_says_stands_with_the_device_gravest_first(size: tuple[int, int]) -> None:
    fleet = Fleet()
    said = logged("mlx5_core 0000:10:00.0 ib0: Link down", SICK + " [bold]\x1b[2J")
    for _ in range(3):
        fleet.step(pcie=links("16", **said))
    shown = await page(fleet, "4", size=size)
    assert line_of(shown, "10:00.0 ").startswith("▮ CRIT")
    if size[1] < 40:
        return
    assert "Kernel log" in shown
    grave = line_of(shown, "2 times ")
    assert "its firmware has stopped  usually hardware" in grave
    assert "once      link down" in shown
    assert shown.index("its firmware has stopped  usually") < shown.index("once      link down")
    assert "reached miss count [bold][2J" in shown, "drawn as it is"
    assert "the last 63 s ago" in shown


async def test_a_quiet_log_and_one_that_cannot_be_read_are_not_the_same() -> None:
    quiet, unread, over = Fleet(), Fleet(), Fleet()
    unread.facts[0]["kernel_log"] = "not readable: EPERM"
    for _ in range(3):
        quiet.step(gpu=gpus({}), pcie=links("16", klog_count=0))
        unread.step(gpu=gpus({}), pcie=links("16", klog_count=Err("not readable")))
        over.step(gpu=gpus({}), pcie=links("16", klog_count=7, klog_time=100.0, klog=""))
    for keys in (("4", "a"), ("1", "enter", "g")):
        assert "Kernel log  nothing about it since the probe started" in await page(quiet, *keys)
        assert "Kernel log  ? not readable: EPERM" in await page(unread, *keys)
        assert "Kernel log  nothing in the last hour; 7 lines since the probe started, the last " in await page(over, *keys)


async def test_a_switch_of_which_the_log_speaks_is_listed() -> None:
    fleet = Fleet()
    said = logged("nvidia-nvswitch0: SXid (PCI:0000:10:00.0): 20034, Fatal, Link 41 LTSSM Fault Up")
    for _ in range(3):
        rows = {"0000:10:00.0": said, "0000:11:00.0": {"klog_count": 0}}
        fleet.step(pcie=table(rows, dict.fromkeys(rows, {"class": "0x068000"})))
    shown = await page(fleet, "4")
    assert "fatal NVSwitch error, SXid 20034: Link 41 LTSSM Fault Up" in shown
    assert "11:00.0" not in shown


async def test_a10_and_a11_where_the_expected_width_comes_from() -> None:
    """A10: peers beat a card's own maximum. A11: the operator beats both."""
    eight = gpus({"pcie_width": 8, "pcie_width_max": 8}, *({},) * 7)
    same = {f"0000:{0x10 + number:02x}:00.0": {"cur_width": "16", "max_width": "16"} for number in range(1, 8)}
    rows = {"0000:10:00.0": {"cur_width": "8", "max_width": "8"}, **same}
    attrs = {key: {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"} for key in rows}

    def configured(node: NodeInfo, key: str, said: Mapping[str, Any]) -> float | None:
        return 8.0 if key == "0000:10:00.0" else None

    peers, by_hand = Fleet(), Fleet(expect_width=configured)
    for fleet in (peers, by_hand):
        for _ in range(3):
            fleet.step(gpu=eight, pcie=table(rows, attrs))
    shown = await page(peers, "4", size=(200, 60))
    assert "x8 of x16" in line_of(shown, "GPU 0")
    assert "G5/5 x8/8" in line_of(shown, "GPU 0")
    assert " peers " in line_of(shown, "GPU 0")
    assert "expected x16, as most of its model have" in shown
    shown = await page(by_hand, "4", "a", size=(200, 60))
    assert "x8 of x8" in line_of(shown, "GPU 0")
    assert " config " in line_of(shown, "GPU 0")
    assert "expected x8, as configured" in shown


async def test_a12_an_unknown_maximum_speed_is_a_question_mark_beside_a_judged_width() -> None:
    fleet = Fleet()
    rows = {"0000:41:00.0": {"cur_width": "8", "max_width": "16", "cur_speed": "16.0 GT/s PCIe", "max_speed": "Unknown"}}
    for _ in range(3):
        fleet.step(pcie=table(rows, {"0000:41:00.0": {"class": "0x020000", "vendor": "0x15b3", "device": "0x101d"}}))
    shown = await page(fleet, "4", size=(200, 60))
    assert "G4/? x8/16" in line_of(shown, "41:00.0")
    assert "own max" in line_of(shown, "41:00.0")
    assert "? (not provided)" in line_of(shown, "AER correctable")


async def test_a4_a_link_of_which_nothing_is_known_is_not_drawn_as_fine() -> None:
    fleet = Fleet()
    rows = {"0000:41:00.0": {"cur_width": "0", "max_width": "255", "cur_speed": "Unknown", "max_speed": "Unknown"}}
    for _ in range(3):
        fleet.step(pcie=table(rows, {"0000:41:00.0": {"class": "0x020000"}}))
    row = line_of(await page(fleet, "4", "a"), "41:00.0")
    assert row.startswith("? unknown")
    assert "x0" not in row
    assert "255" not in row


def heated(minutes: float = 3.0, after: int = 70) -> Fleet:
    """A GPU that warms for *minutes*, then drops to x8, then *after* seconds more; AER errors from a minute before."""
    fleet = Fleet(interval=2.0)
    steps = int(minutes * 30)
    for step in range(steps + after // 2):
        narrow = step >= steps
        heat = 50 + 40 * step / steps if not narrow else 70
        errors = max(0, step - steps + 30) * 4
        width = 8 if narrow else 16
        fleet.step(2.0, gpu=gpus({"temp": heat, "pcie_width": width, "power_mw": 690e3 if not narrow else 300e3}),
                   pcie=links(str(width), "16", aer_cor=errors))
    return fleet


@pytest.mark.parametrize("size", SIZES)
async def test_a_width_drop_stands_with_heat_power_and_errors_of_the_minutes_before(size: tuple[int, int]) -> None:
    shown = await page(heated(), "4", size=size)
    assert "Width drop  x16 to x8  at " in shown
    head, heat, power, errors = (line_of(shown, name) for name in ("-60 s", "temperature", "power  ", "AER errors"))
    moments = head.split("GPU 0")[1].replace(" min", "min").replace(" s", "s").replace("v", "").split()
    assert moments[-3:] == ["drop", "+30s", "+60s"]
    celsius = [int(word) for word in heat.replace("°C", "").split() if word.isdigit()]
    warming, cooled = celsius[:-3], celsius[-3:]
    assert warming == sorted(warming)
    assert warming[0] < 80 < warming[-1]
    assert cooled == [70, 70, 70]
    assert "690 W" in power
    assert power.count("300 W") == 3
    assert " 0/s" in errors
    assert "2/s" in errors
    if size[0] >= 200:
        assert head.rstrip().endswith("v"), "the moment of the drop is marked on the curves"


async def test_what_was_read_around_a_drop_is_kept_when_the_rings_have_forgotten_it() -> None:
    fleet = heated(after=80)
    for _ in range(200):
        fleet.step(2.0, gpu=gpus({"temp": 40, "pcie_width": 8}), pcie=links("8", "16", aer_cor=120))
    shown = await page(fleet, "4")
    assert "8 min ago" in line_of(shown, "Width drop")
    heat = line_of(shown, "temperature")
    assert "77 °C" in heat
    assert "40 °C" not in heat


async def test_a_drop_that_is_over_is_no_longer_shown() -> None:
    fleet = heated(minutes=1, after=10)
    for _ in range(3):
        fleet.step(2.0, gpu=gpus({}), pcie=links("16", "16"))
    shown = await page(fleet, "4", "a")
    assert "Width drop" not in shown
    assert "ago" not in line_of(shown, "GPU 0 10:00.0 ")


async def test_a_gpu_of_which_sysfs_says_nothing_has_nvmls_link() -> None:
    fleet = Fleet()
    made = gpus({"pcie_width": 8}, {"pcie_width": Err("Unknown Error")})
    made.rows = [(key, {name: what for name, what in own.items() if name != "pci"}) for key, own in made.rows]
    fleet.step(gpu=made)
    shown = await page(fleet, "3", "g")
    assert "G5/5 x8/16" in line_of(shown, "GPU 0")
    assert "?" in line_of(shown, "GPU 1")
    assert "x16" not in line_of(shown, "GPU 1")


# -- outliers --------------------------------------------------------------------------------------------------------


def unlike() -> Fleet:
    """Five nodes, of which the last has another driver, and less power on both of its GPUs."""
    fleet = Fleet([NodeInfo(f"n{number}", groups=("train",)) for number in range(5)])
    for number in range(5):
        fleet.facts[number]["driver"] = "565.9" if number == 4 else "570.1"
    fleet.now += 1
    for number in range(5):
        watts = 500e3 if number == 4 else 700e3
        fleet.say(number, gpu=gpus({"power_limit_mw": watts}, {"power_limit_mw": watts}))
    fleet.tick()
    return fleet


@pytest.mark.parametrize("size", SIZES)
async def test_outliers_say_who_differs_in_what_and_what_how_many_peers_have(size: tuple[int, int]) -> None:
    shown = await page(unlike(), "o", size=size)
    assert "2 differences on 1 nodes" in shown
    driver, limit = line_of(shown, "driver"), line_of(shown, "power_limit_watts")
    assert all(word in driver for word in ("n4", "node", "565.9", "570.1", "4 of 5"))
    assert all(word in limit for word in ("GPU 0 +1", "500 W", "700 W", "8 of 10"))


async def test_outliers_open_the_node_that_says_them_too_and_copy_a_sentence() -> None:
    async with console(Source(unlike())) as (app, pilot):  # type: ignore[arg-type]
        await pilot.press("o", "y")
        assert app.clipboard == "n4: driver 565.9, 4 of 5 peers have 570.1"
        await pilot.press("enter")
        await settle(pilot)
        assert app.front == "detail"
        assert "differs node: driver 565.9, 4 of 5 peers have 570.1" in text(app)
        await pilot.press("g")
        await settle(pilot)
        assert app.front == "gpu"
        assert "differs: power_limit_watts 500 W, 8 of 10 peers have 700 W" in text(app)
        for back in ("detail", "outliers"):
            await pilot.press("escape")
            await settle(pilot)
            assert app.front == back
        await pilot.press("slash", *"nosuch", "enter")
        await settle(pilot)
        assert "none of the 2 differences matches the filter" in text(app)


async def test_where_nobody_differs_it_says_how_many_were_compared() -> None:
    fleet = Fleet(4)
    fleet.tick()
    assert "nothing is compared yet: 0 of 4 nodes have told what they are" in await page(fleet, "o")
    fleet.now += 1
    for number in range(3):
        fleet.say(number, gpu=gpus({}))
    fleet.tick()
    shown = await page(fleet, "o")
    assert "no node differs from its peers, of the 3 that were compared" in shown
    assert "1 have told nothing" in shown


# -- one GPU ---------------------------------------------------------------------------------------------------------


async def gpu_page(*changes: Mapping[str, Any], facts: Mapping[str, Any] | None = None, size: tuple[int, int] = (120, 60),
                   attrs: Mapping[str, Any] | None = None) -> str:
    """The page of the worst GPU of a node."""
    fleet = Fleet()
    fleet.facts[0].update(facts or {})
    made = gpus(*changes)
    if attrs:
        made.rows = [(key, {**own, **attrs}) for key, own in made.rows]
    for _ in range(3):
        fleet.step(gpu=made)
    return await page(fleet, "1", "enter", "g", size=size)


async def test_a_gpus_page_has_memory_errors_links_modes_and_limits() -> None:
    shown = await gpu_page({
        "ecc_mode": 1, "ecc_cor": 3, "ecc_unc": 1, "ecc_cor_all": 44, "ecc_unc_all": Err("Not Supported"),
        "remap_cor": 0, "remap_unc": 2, "remap_pending": 1, "remap_failed": 0, "retired_cor": Err("Not Supported"),
        "retired_unc": Err("Not Supported"), "retired_pending": Err("Not Supported"), "nvlink_links": 18,
        "nvlink_up": 17, "nvlink_crc_flit": 0, "nvlink_crc_data": 0, "nvlink_replays": 5, "nvlink_recoveries": 0,
        "power_limit_mw": 700e3, "bar1_total": 256 << 20, "persistence": 0, "reasons": 0x4 | 0x40, "mig": 0}, {})
    assert line_of(shown, "ECC corrected").split() == ["ECC", "corrected", "3", "44"]
    assert "? (not supported)" in line_of(shown, "ECC uncorrected")
    assert "corrected 0  uncorrected 2  pending yes  failed no" in line_of(shown, "remapped rows")
    assert line_of(shown, "retired pages").rstrip().endswith("? (not supported)")
    assert "links up 17 of 18" in shown
    assert "replays 5" in shown
    assert "256 MiB, Resizable BAR is off: the framebuffer has 80.0 GiB" in shown
    assert "persistence mode off" in shown
    assert "SW power cap, HW thermal slowdown" in shown
    assert "power 600 W of 700 W" in shown
    assert "slowdown at 87 °C" in shown
    assert "shutdown at ? (not provided)" in shown


async def test_xids_of_the_last_hour_say_what_they_mean_and_whose_fault_they_usually_are() -> None:
    shown = await gpu_page({"xid": 45, "xid_count": 5, "xid_time": 440.0, "xids": "45x3 48x1 31x1"},
                           facts={"xid": "kernel log"})
    assert "read from kernel log" in shown
    found = [line for line in shown.splitlines() if line.lstrip().startswith("Xid ")]
    assert [line.split()[1] for line in found] == ["48", "45", "31"], "gravest first"
    assert "double bit ECC error  usually hardware" in found[0]
    assert "3 times" in found[1]
    assert "usually application" in found[2]
    assert "the last one 63 s ago, 5 since the probe started" in shown


async def test_xids_that_cannot_be_read_are_not_called_none() -> None:
    unread = dict.fromkeys(("xid", "xid_time", "xid_count", "xids"), Err("not readable"))
    shown = await gpu_page(unread, facts={"xid": "not readable"})
    assert "? not known: neither NVML's events nor the kernel log can be read" in shown
    assert "none since" not in shown
    quiet = await gpu_page({"xid": 0, "xid_count": 0, "xids": ""}, facts={"xid": "NVML events"})
    assert "none since the probe started" in quiet
    assert "read from NVML events" in quiet


async def test_a14_mig_hides_whole_gpu_utilisation_and_the_page_says_so() -> None:
    mig = {"util": Err("Not Supported"), "mig": 1, "mig_instances": 2}
    shown = await gpu_page(mig, attrs={"mig_layout": ["1g.10gb 9.8 GiB", "3g.40gb 39.5 GiB"]})
    assert "utilisation ? (n/a (MIG))" in shown
    assert "layout 1g.10gb 9.8 GiB, 3g.40gb 39.5 GiB" in shown
    fleet = Fleet()
    fleet.step(gpu=gpus(mig))
    assert "n/a (MIG)" in line_of(await page(fleet, "3", "g"), "GPU 0")
    assert "n/a (MIG)" in line_of(await page(fleet, "1", "enter"), "  GPU 0")


async def test_a_lost_gpus_page_says_so_and_invents_nothing() -> None:
    shown = await gpu_page(lost(), {})
    assert "X LOST" in line_of(shown, "n0 GPU 0")
    assert "? (GPU lost)" in line_of(shown, "utilisation")
    assert "0 %" not in line_of(shown, "utilisation")


async def test_the_pages_of_gpus_are_gone_through_and_reached_from_every_list() -> None:
    fleet = Fleet(2)
    for number in range(2):
        fleet.now += 1
        fleet.say(number, gpu=gpus({}, {}), pcie=links("16"))
    fleet.tick()
    async with console(Source(fleet)) as (app, pilot):  # type: ignore[arg-type]
        await pilot.press("3", "g", "down", "enter")
        await settle(pilot)
        seen = [text(app).splitlines()[3].strip()[:8]]
        for _ in range(4):
            await pilot.press("right_square_bracket")
            await settle(pilot)
            seen.append(text(app).splitlines()[3].strip()[:8])
        assert seen == ["n0 GPU 1", "n1 GPU 0", "n1 GPU 1", "n0 GPU 0", "n0 GPU 1"]
        await pilot.press("enter")
        await settle(pilot)
        assert app.front == "detail"
        for back in ("gpu", "nodes"):
            await pilot.press("escape")
            await settle(pilot)
            assert app.front == back
        await pilot.press("4", "a", "g")
        await settle(pilot)
        assert app.front == "gpu"
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"show: virtual")
        await app.workers.wait_for_complete()
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert app.front == "rdma"
        assert app.panes["rdma"].unfolded  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [(20, 5), *SIZES])
async def test_the_new_pages_fit_every_size(size: tuple[int, int]) -> None:
    fleet = heated(minutes=0.5, after=20)
    fleet.step(port=wires({**VIRTUAL, "mlx5_0": {"bond": "bond0"}}, {"h:odd": 1}, {}, {}))
    for keys in (("4",), ("4", "tab", "down", "down"), ("4", "g"), ("4", "g", "end"), ("5", "v", "tab", "end"), ("o",),
                 ("1", "enter", "end")):
        assert await page(fleet, *keys, size=size)


async def test_the_new_pages_are_drawn_in_ascii_where_asked() -> None:
    fleet = heated(minutes=0.5, after=20)
    fleet.step(port=wires({**VIRTUAL, "mlx5_0": {"bond": "b\u00f6nd0"}}, {"h:odd": 1}, {}, {}))
    async with console(Source(fleet), ascii_only=True) as (app, pilot):  # type: ignore[arg-type]
        for keys in (("4",), ("g",), ("5", "v"), ("o",), ("1", "enter"), ("end",)):
            await pilot.press(*keys)
            await settle(pilot)
            for line in lines(app):
                line.encode("ascii", "strict")
            assert {cell_len(line) for line in lines(app)} == {120}


# -- one node --------------------------------------------------------------------------------------------------------


def host(**changes: Any) -> Table:
    """A node's own table."""
    return table({"": {"ncpu": 64, "load1": 3.5, "load5": 3.25, "load15": 3.0, "mem_total": 1 << 40,
                       "mem_available": 1 << 39, "swap_total": 8 << 30, "swap_free": 2 << 30, "uptime": 86400.0 * 5,
                       "psi_cpu": 12.0, "psi_mem": Err("ENOENT"), "psi_io": 0.5, **changes}})


async def test_a_nodes_page_has_machine_probe_and_versions() -> None:
    fleet = Fleet()
    fleet.facts[0].update(python="3.11.2", kernel="6.8.0-40", driver="570.1", boot_id="b-17")
    for _ in range(2):
        fleet.step(node=host(), gpu=gpus({}))
    shown = await page(fleet, "1", "enter")
    assert "swap 6.0 GiB of 8.0 GiB" in shown
    assert "load 3.5 3.25 3" in shown
    assert "pressure: CPU 12 %" in shown
    assert "I/O 0.5 %" in shown
    assert "kernel 6.8.0-40" in shown
    assert "driver 570.1" in shown
    assert "boot b-17" in shown
    assert "CUDA ? (not told)" in shown
    assert "runs on Python 3.11.2" in shown
    assert "memory 19.1 MiB" in shown
    assert "GPUs are read every 1.0 s" in shown
    assert "stretched" not in shown


async def test_a_stretched_interval_says_from_what_and_why() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.step(gpu=gpus({}), states={"gpu": {"iv": 8.0, "iw": 2.0, "ms": 2000.0}})
    shown = await page(fleet, "1", "enter")
    assert "GPUs are read every 8.0 s, stretched from 2.0 s: a reading takes 2.0 s" in shown


async def test_a_node_without_python_is_said_to_be_read_by_sh() -> None:
    fleet = Fleet()
    fleet.facts[0]["probe"] = "sh"
    fleet.step(node=host())
    assert "runs on sh probe: no usable Python there" in await page(fleet, "1", "enter")


async def test_every_unknown_of_a_node_stands_with_its_reason_on_its_page() -> None:
    fleet = Fleet()
    odd = {"fan": Err("Not Supported"), "temp_mem": Err("Insufficient Permissions")}
    for _ in range(2):
        fleet.step(node=host(), gpu=gpus(odd, odd, {"fan": Err("Not Supported"), "temp_mem": 60}),
                   port=ports({"c:VL15_dropped": Err("EINVAL")}, {"c:VL15_dropped": 0}))
    shown = await page(fleet, "1", "enter", size=(200, 100))
    assert "all 3 GPUs: not supported: fan_ratio" in shown
    assert "GPU 0, GPU 1: no permission: memory_temperature_celsius" in shown
    assert "mlx5_0/1: EINVAL: VL15_dropped" in shown
    assert "memory_pressure_ratio" in line_of(shown, "node: not provided: ")
    assert "port_rcv_errors" not in shown, "a counter that a port does not have is no unknown reading"
