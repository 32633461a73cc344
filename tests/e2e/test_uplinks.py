"""Leaf switches and a fabric as the configuration names them, through a session: to the shares through the spine."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import shlex
import shutil
from argparse import Namespace
from typing import TYPE_CHECKING

import pytest

from clustertop import plain
from clustertop.commands.common import load_plan
from clustertop.model import LinkState
from clustertop.poll import devices, switch_readers
from clustertop.record import Recorder, Recording
from clustertop.replay import transitions
from clustertop.session import Session
from clustertop.wire.ssh.run import PATH, SshRunner
from configs import write
from fabric.sim import TWO_LEVELS
from fabric.sim import running as simulated
from pdus import snmpsim
from ports import free_udp_port
from sshd import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from clustertop.core import Core
    from clustertop.model import Transition
    from clustertop.plan import Plan
    from clustertop.store.traffic_picture import LeafPicture

NODES = """
[inventory]
nodes = "n[1-4]"
[racks]
r1 = "n[1-2]"
r2 = "n[3-4]"
"""
PORTS = {1: "swp1", 2: "swp2", 49: "swp49"}
FLOWS = {"leaf1": ({1: 4e6, 2: 4e6, 49: 0.5e6}, {1: 0.2e6, 2: 0.3e6, 49: 2e6}),
         "leaf2": ({1: 2e6, 2: 0.0, 49: 2e6}, {1: 1e6, 2: 1e6, 49: 2e6})}
"""By leaf: bytes per second into its ports, and out of them."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices may be asked once a second."""
    monkeypatch.setattr(devices, "Devices", functools.partial(devices.Devices, least_interval_seconds=1.0))


def planned(folder: Path, text: str, interval: float) -> Plan:
    """What a configuration becomes; its nodes are on loopback, where nobody answers."""
    args = Namespace(hosts=[], config=str(write(folder, text)), hosts_file=None, interval=None, state="none", unsafe=None)
    plan, _ = load_plan(args)
    nodes = tuple(dataclasses.replace(node, host="127.0.0.1", port=1) for node in plan.inventory.nodes)
    devices = tuple(dataclasses.replace(one, interval_seconds=interval) for one in plan.site.devices)
    return dataclasses.replace(plan, inventory=dataclasses.replace(plan.inventory, nodes=nodes), outlets=None, released=None,
                               site=dataclasses.replace(plan.site, devices=devices))


def ratio(live: Session | Core, key: str, column: str) -> tuple[float | None, str]:
    """(value, reason) of table ``traffic``."""
    shown = live.snapshot
    if shown is None or key not in shown.view.traffic.rows:
        return None, "no row"
    row = shown.view.traffic.rows[key]
    return shown.view["traffic"].value(column, row), shown.view["traffic"].reason(column, row)


async def until(holds: Callable[[], bool], what: Callable[[], object], seconds: float = 60.0) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < end, what()
        await asyncio.sleep(0.02)


# ---- over SNMP


def recordings(folder: Path) -> Path:
    """Two leaves whose counters move, for the agent."""
    folder.mkdir()
    column, wide = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1"
    for leaf, (into, out) in FLOWS.items():
        rows = {"1.3.6.1.2.1.1.3.0": "67:numeric|rate=100,initial=90000", "1.3.6.1.2.1.1.5.0": f"4|{leaf}"}
        for index, name in PORTS.items():
            rows |= {
                f"{column}.2.{index}": f"4|{name}", f"{column}.3.{index}": "2|6", f"{column}.8.{index}": "2|1",
                f"{wide}.1.{index}": f"4|{name}", f"{wide}.15.{index}": "66|1000",
                f"{wide}.6.{index}": f"70:numeric|rate={into[index]:.0f},initial=7000000000000",
                f"{wide}.10.{index}": f"70:numeric|rate={out[index]:.0f},initial=9000000000000"}
        lines = sorted(rows.items(), key=lambda row: tuple(map(int, row[0].split("."))))
        (folder / f"{leaf}.snmprec").write_text("".join(f"{name}|{value}\n" for name, value in lines))
    return folder


def switches(folder: Path, port: int) -> str:
    out = NODES + '[leaves]\nleaf1 = "n[1-2]"\nleaf2 = "n[3-4]"\n'
    for leaf in FLOWS:
        secret = folder / f"{leaf}.community"
        secret.write_text(f"{leaf}\n")
        secret.chmod(0o600)
        out += (f'[switches.{leaf}]\nhost = "127.0.0.1"\nport = {port}\ncommunity = "file:{secret}"\nuplinks = ["swp49"]\n'
                "timeout_seconds = 10.0\nretries = 0\n")
    return out


async def test_counters_of_switches_become_the_share_through_the_spine_and_a_reboot_is_unknown_once(tmp_path: Path) -> None:
    data, port = recordings(tmp_path / "leaves"), free_udp_port()
    plan = planned(tmp_path, switches(tmp_path, port), 1.0)
    assert [one.name for one in plan.site.devices] == ["leaf1", "leaf2"]
    seen: list[Transition] = []
    flight = tmp_path / "flight.ct"
    with Recorder(flight, plan) as tap:
        async with Session(plan, tap=tap, tick_seconds=0.1) as live:
            live.core.listen(seen.extend)

            def leaf(name: str = "leaf1") -> LeafPicture | None:
                return None if live.snapshot is None else live.snapshot.view.traffic.leaf(name)

            def known() -> bool:
                return all((one := leaf(name)) is not None and one.ratio is not None for name in FLOWS)

            with snmpsim({"": data}, tmp_path / "agent", port=port):
                await until(known, lambda: [leaf(name) for name in FLOWS])
                # The agent counts by its clock, and a reading takes a while of it: on a busy machine more than one.
                wanted = {"leaf/leaf1": 2 / 8, "leaf/leaf2": 1.0, "fleet": 4 / 10}
                await until(lambda: shares(live, "uplink_spine_ratio", wanted) == pytest.approx(wanted, rel=0.1)
                            and (shown := leaf()) is not None and shown.host_in == pytest.approx(8e6, rel=0.3),
                            lambda: (shares(live, "uplink_spine_ratio", wanted), leaf()))
                shown = leaf()
                assert shown is not None
                assert [(one.name, one.role_by) for one in shown.uplinks] == [("swp49", "config")]
                # No socket is read, and there is no second meter: the share is of what is there, and says so.
                row = live.snapshot.view.traffic.rows["fleet"]  # type: ignore[union-attr]
                attrs = live.snapshot.view["traffic"].attrs[row]  # type: ignore[union-attr]
                assert (attrs["definition"], attrs["meter"]) == ("through spine", "uplinks")
            await until(lambda: LinkState.UNREACHABLE in states(live), lambda: states(live))
            before = ratio(live, "leaf/leaf1", "uplink_spine_ratio")
            told, ports = [before], set()
            with snmpsim({"": data}, tmp_path / "again", port=port):  # its counters, and its uptime, begin again
                await until(lambda: states(live) == [LinkState.UP] * 2, lambda: states(live))
                end = asyncio.get_running_loop().time() + 60
                while len(told) < 2 or told[-1][0] is None:
                    assert asyncio.get_running_loop().time() < end, told
                    now = ratio(live, "leaf/leaf1", "uplink_spine_ratio")
                    if told[-1] != now:
                        told.append(now)
                    if now[1].startswith("no rate for"):
                        table = live.snapshot.view["uplink"]  # type: ignore[union-attr]
                        ports |= {table.reason("receive_bytes_per_second", row) for row in range(len(table))}
                    assert states(live) == [LinkState.UP] * 2, "a reset is no failure"
                    await asyncio.sleep(0.05)
            # The old reading may stand until it is old; the first one after the reboot has no rate; then it goes on.
            assert told[-2] == (None, "no rate for swp49, swp1, swp2"), told
            assert [value for value, _ in told[:-2] if value is not None] in ([], [before[0]]), told
            assert told[-1][0] == pytest.approx(2 / 8, rel=0.5), "and no wrap of 64 bits"
            assert "counter reset" in ports
    assert [plain.transition_json(change) for change in transitions(Recording(flight))] == [
        plain.transition_json(change) for change in seen]


def shares(live: Session, column: str, keys: Iterable[str]) -> dict[str, float]:
    """By row of table ``traffic``; -1: unknown."""
    told = {key: ratio(live, key, column)[0] for key in keys}
    return {key: -1.0 if value is None else value for key, value in told.items()}


def states(live: Session) -> list[LinkState]:
    """Of the devices."""
    return live._states[len(live.plan.inventory.nodes) :]


def frames(live: Session) -> int:
    """Of the first device."""
    return live._frames[len(live.plan.inventory.nodes)]


# ---- an InfiniBand fabric


BASE = 10**15
TOR_A, TOR_B = "S-0000000000aa0001", "S-0000000000aa0002"


@pytest.mark.sshd
async def test_a_fabric_in_the_configuration_becomes_the_share_through_the_spine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with simulated(TWO_LEVELS, "n1 mlx5_0", tmp_path) as sim, running(tmp_path / "sshd") as server:
        tools = tmp_path / "tools"
        tools.mkdir()
        environ = shlex.join(f"{key}={value}" for key, value in sim.environ.items())
        for name in ("ibnetdiscover", "perfquery"):
            real = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
            (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/asked\nexec env {environ} {real} "$@"\n')
            (tools / name).chmod(0o755)
        monkeypatch.setattr(switch_readers, "SshRunner", lambda node, dialer: SshRunner(node, dialer, f"{tools}:{PATH}"))
        text = NODES + f"""
[leaves]
torA = "n[1-2]"
torB = "n[3-4]"
[ssh]
config_file = "{server.folder / 'ssh_config'}"
agent = false
[fabric]
host = "{server.node().user}@127.0.0.1:{server.port}"
ca = "ibsim0"
ca_port = 1
"""
        plan = planned(tmp_path, text, 3.0)
        for switch in (TOR_A, TOR_B):
            for port in (1, 2, 7):
                sim.set(switch, port, BASE, BASE)
        async with Session(plan, tick_seconds=0.1) as live:
            await until(lambda: frames(live) >= 1 and states(live) == [LinkState.UP],
                        lambda: [live.core.store.owners.all, live._states, server.log()[-500:]])
            wanted = {"leaf/torA": 0.25, "leaf/torB": 1.0, "fleet": 15 / 30}
            said: list[dict[str, float]] = []
            for step in range(1, 21):  # until all of it is between two readings: a busy machine is slow to set it
                sim.set(TOR_A, 1, BASE + 15_000_000 * step, BASE)
                sim.set(TOR_A, 2, BASE + 5_000_000 * step, BASE)
                sim.set(TOR_A, 7, BASE, BASE + 5_000_000 * step)
                sim.set(TOR_B, 1, BASE + 10_000_000 * step, BASE)
                sim.set(TOR_B, 7, BASE, BASE + 10_000_000 * step)
                last = frames(live)
                await until(lambda: frames(live) > last, lambda: said)  # noqa: B023 - it is over before *last* changes
                await asyncio.sleep(0.3)
                said.append(shares(live, "fabric_spine_ratio", wanted))
                if said[-1] == pytest.approx(wanted, rel=0.01):
                    break
            assert said[-1] == pytest.approx(wanted, rel=0.01), said
            assert ratio(live, "fleet", "uplink_spine_ratio")[0] is None
            # In rack r1 hang n1 and n2, both on torA: what a job's bytes did is told by leaf, not by rack.
            assert ratio(live, "fleet", "share_ratio")[0] == pytest.approx(0.5, rel=0.01)
            # D8 b: a leaf is cut off; what answers is used, and who does not is named.
            sim.tell(f'Unlink "{TOR_B}"[7]')
            await until(lambda: ratio(live, "leaf/torB", "fabric_spine_ratio")[1].startswith("no rate for"),
                        lambda: ratio(live, "leaf/torB", "fabric_spine_ratio"))
            assert states(live) == [LinkState.UP]
            assert ratio(live, "fleet", "fabric_spine_ratio") == (None, "of 1 of 2 leaves not known")
            assert not ratio(live, "leaf/torA", "fabric_spine_ratio")[1].startswith("no rate")
            notes = live.snapshot.view["device"].attrs[0]["notes"]  # type: ignore[union-attr]
            assert "22" in str(notes), notes
        asked = (tmp_path / "asked").read_text().splitlines()
    assert {line.split()[0] for line in asked} == {"ibnetdiscover", "perfquery"}
    assert all("-C ibsim0 -P 1" in line for line in asked), "the adapter that the configuration names"
