"""NCCL's logs on four nodes behind real sshds: shares estimated and predicted, a better order, and how long it took."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import threading
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.commands.check import _check as check
from clustertop.commands.common import load_plan
from clustertop.model import NodeInfo
from clustertop.record import Recorder, Recording, play
from clustertop.replay import replay_core
from clustertop.session import Session
from configs import write
from flowshares import rack_share
from nccl_reference import NcclLog, estimated_flows
from sshd import running
from traffic.shared import needs_shared, sample
from trees import NodeTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from clustertop.core import Core
    from clustertop.plan import Plan
    from sshd import Sshd

pytestmark = pytest.mark.sshd
OWN = ("n1", "n2", "n3", "n4")
RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r2"}
PLACES = ("n1", "n3", "n2", "n4")
"""By rank: every hop of a ring over it leaves its rack."""
CHANNELS = {("n1", "n3"): 3, ("n1", "n2"): 1, ("n3", "n2"): 2, ("n2", "n4"): 1, ("n2", "n1"): 1, ("n4", "n1"): 4}
RATES = {"n1": 20e6, "n2": 10e6, "n3": 8e6, "n4": 12e6}
"""Bytes per second that the NIC of each sends."""


def log(init: float) -> str:
    """The log of a job of four ranks, as all of its nodes see it."""
    rank = {name: number for number, name in enumerate(PLACES)}
    lines = []

    def say(name: str, text: str) -> None:
        lines.append(f"{name}:{900 + rank[name]}:{700 + rank[name]} [0] NCCL INFO {text}\n")

    for name in PLACES:
        say(name, "Using network IB")
        say(name, f"ncclCommInitRank comm 0xab rank {rank[name]} nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xc4 - Init START")
    for (source, target), count in CHANNELS.items():
        for number in range(count):
            say(source, f"Channel {number:02}/0 : {rank[source]}[0] -> {rank[target]}[0] [send] via NET/IB/0/GDRDMA")
    for name in PLACES:
        say(name, f"ncclCommInitRank comm 0xab rank {rank[name]} nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xc4 - Init COMPLETE")
        say(name, f"Init timings - ncclCommInitRank: rank {rank[name]} nranks 4 total {init if name == 'n2' else 3.1:.2f} "
                  "(kernels 0.20, alloc 0.10, bootstrap 0.90, allgathers 0.02, topo 0.10, graphs 0.00, connections 0.00, rest 0.00)")
    return "".join(lines)


class Nodes:
    """Nodes whose /proc, /sys and logs are below the folder in which their sshd has them begin."""

    def __init__(self, folder: Path, rates: Mapping[str, float], text: str) -> None:
        self.names = tuple(rates)
        self.trees, self._rates = {}, rates
        for name in rates:
            tree = self.trees[name] = NodeTree(folder / name)
            tree.host(name)
            tree.pci("0000:17:00.0", kind="0x020000")
            tree.netdev("eth0", "0000:17:00.0")
            tree.write("logs/nccl.log", text)
        self._files = {name: tree.root / tree.where("0000:17:00.0") / "net/eth0/statistics/tx_bytes"
                       for name, tree in self.trees.items()}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Nodes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._over.wait(0.02):
            for name, file in self._files.items():
                # In one piece: what reads it meanwhile is not to find it empty.
                new = file.with_name("new")
                new.write_text(f"{int(5e9 + self._rates[name] * (time.monotonic() - began))}\n")
                new.replace(file)


@contextlib.contextmanager
def fleet(folder: Path, nodes: Nodes, racks: Mapping[str, str], more: str = "") -> Iterator[Plan]:
    """An sshd for each node, and the plan of a configuration that names their logs."""
    servers: dict[str, Sshd] = {}
    with contextlib.ExitStack() as stack:
        for name in nodes.names:
            forced = f'cd {nodes.trees[name].root} && exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
            servers[name] = stack.enter_context(running(folder / f"sshd-{name}", forced=forced))
        keys = "".join(f"  IdentityFile {one.folder / 'client_key'}\n" for one in servers.values())
        (folder / "known_hosts").write_text("".join((one.folder / "known_hosts").read_text() for one in servers.values()))
        (folder / "ssh_config").write_text(
            f"Host *\n{keys}  IdentitiesOnly yes\n  UserKnownHostsFile {folder / 'known_hosts'}\n"
            "  GlobalKnownHostsFile /dev/null\n")
        text = f'[inventory]\nnodes = "{",".join(nodes.names)}"\n[racks]\n'
        for rack in sorted(set(racks.values())):
            text += f'{rack} = "{",".join(name for name, where in racks.items() if where == rack)}"\n'
        text += f'[ssh]\nconfig_file = "{folder / "ssh_config"}"\nagent = false\n[nccl]\nlogs = ["/logs/*.log"]\n{more}'
        args = Namespace(hosts=[], config=str(write(folder, text)), hosts_file=None, interval=None, state="none", unsafe=None)
        plan, _ = load_plan(args)
        infos = tuple(dataclasses.replace(servers[one.name].node(one.name), rack=one.rack) for one in plan.inventory.nodes)
        assert all(isinstance(one, NodeInfo) and one.rack for one in infos)
        settings = dataclasses.replace(plan.settings, root="/proc/self/cwd", interval_seconds=1.0)
        yield dataclasses.replace(plan, inventory=dataclasses.replace(plan.inventory, nodes=infos), settings=settings,
                                  outlets=None, released=None)


def told(core: Core) -> dict[str, Any]:
    """The fleet's row of table ``traffic``: values, reasons and attributes."""
    view = core.snapshot.view if core.snapshot is not None else None
    if view is None or "fleet" not in view.traffic.rows:
        return {}
    table, row = view["traffic"], view.traffic.rows["fleet"]
    names = ("nccl_cross_rack_ratio", "predicted_cross_rack_ratio", "socket_cross_rack_ratio", "share_ratio", "judged_ratio")
    return {**{name: table.value(name, row) for name in names}, **{f"{name} why": table.reason(name, row) for name in names},
            **table.attrs[row], "meters": {one.name: (one.coverage, one.label) for one in view.traffic.meters}}


async def lived(plan: Plan, folder: Path) -> dict[str, Any]:
    """A session until the logs and the NICs are known; the recording of it says the same."""
    flight = folder / "flight.ct"
    with Recorder(flight, plan) as tap:
        async with Session(plan, tap=tap, tick_seconds=0.25) as live:
            async with asyncio.timeout(60):
                while not (said := told(live.core)) or said["nccl_cross_rack_ratio"] is None or said[
                        "predicted_cross_rack_ratio"] is None:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(3.0)
        # The last moment of all, as both have it.
        said = told(live.core)
    core = replay_core(Recording(flight))
    for step in Recording(flight).steps():
        play(core, step)
    assert told(core) == said
    return said


async def test_logs_become_an_estimate_and_a_prediction_and_neither_is_a_measurement(tmp_path: Path) -> None:
    with Nodes(tmp_path, RATES, log(4.2)) as nodes, fleet(tmp_path, nodes, RACKS) as plan:
        said = await lived(plan, tmp_path)
    crossing = total = 0.0
    for (source, target), count in CHANNELS.items():
        sent = RATES[source] * count / sum(more for (one, _), more in CHANNELS.items() if one == source)
        total += sent
        crossing += sent if RACKS[source] != RACKS[target] else 0.0
    assert said["nccl_cross_rack_ratio"] == pytest.approx(crossing / total, rel=0.05)
    assert said["predicted_cross_rack_ratio"] == 1.0
    assert said["order_by"] == "the NCCL log"
    assert [RACKS[name] for name in said["better_order"]] in (["r1", "r1", "r2", "r2"], ["r2", "r2", "r1", "r1"])
    assert said["better"] == "2 of 4 hops would cross"
    assert said["meters"]["nccl"] == ("4/4 nodes", "channels of the NCCL log times what the NICs sent, estimated")
    assert said["meters"]["order"][1].endswith("predicted")
    assert said["socket_cross_rack_ratio"] is None
    assert (said["meter"], said["definition"]) == ("nccl", "cross-rack")


async def test_the_host_file_gives_the_order_where_no_log_does(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n1 slots=8\nn3 slots=8\nn2 slots=8\nn4 slots=8\n")
    quiet = "n1:1:1 [0] NCCL INFO Using network IB\n"
    with Nodes(tmp_path, RATES, quiet) as nodes, fleet(tmp_path, nodes, RACKS, '[traffic]\nhostfile = "hosts"\n') as plan:
        assert plan.site.order == PLACES
        flight = tmp_path / "flight.ct"
        with Recorder(flight, plan) as tap:
            async with Session(plan, tap=tap, tick_seconds=0.25) as live:
                async with asyncio.timeout(60):
                    while (said := told(live.core)).get("predicted_cross_rack_ratio") is None:
                        await asyncio.sleep(0.1)
            said = told(live.core)
    assert (said["predicted_cross_rack_ratio"], said["order_by"]) == (1.0, "the host file")
    assert said["nccl_cross_rack_ratio"] is None
    core = replay_core(Recording(flight))
    for step in Recording(flight).steps():
        play(core, step)
    assert told(core) == said


@pytest.mark.parametrize(("init", "answer"), [(4.2, "no"), (23.4, "yes")])
async def test_check_says_how_long_nccl_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], init: float, answer: str
) -> None:
    with Nodes(tmp_path, RATES, log(init)) as nodes, fleet(tmp_path, nodes, RACKS) as plan:
        await check(plan, Namespace(json=True, brief=False, seconds=6.0, timeout=60.0))
    report = json.loads(capsys.readouterr().out)
    racks = {one["name"]: one["signals"]["nccl_init"] for one in report["exits"] if one["kind"] == "rack"}
    assert (racks["r1"]["answer"], racks["r1"]["value"]) == (answer, init)
    assert (racks["r2"]["answer"], racks["r2"]["value"]) == ("no", 3.1)
    assert racks["r1"]["note"].startswith("by NCCL, ")
    slow = [line for line in report["findings"] if line["rule"] == "nccl_init"]
    assert bool(slow) == (answer == "yes")


@needs_shared
async def test_a_recorded_log_of_four_nodes(tmp_path: Path) -> None:
    """Real lines of a job of 32 ranks: its nodes are placed so that each hop of the ring leaves its rack."""
    text = sample("logs/nccl/a100-4node-ib.log")
    names = tuple(f"node-jz-iam{number}" for number in (37, 40, 41, 52))
    racks = dict(zip(names, ("r1", "r2", "r1", "r2"), strict=True))
    with Nodes(tmp_path, dict.fromkeys(names, 10e6), text) as nodes, fleet(tmp_path, nodes, racks) as plan:
        said = await lived(plan, tmp_path)
    parsed = NcclLog().feed_text(text)
    assert len(parsed.ranks) == 32
    assert said["predicted_cross_rack_ratio"] == 1.0
    assert said["better"] == "2 of 4 hops would cross"
    # The same lines by the reader of a whole log, and the same bytes of every node.
    flows = estimated_flows(parsed.peers(), dict.fromkeys(names, 10e6))
    assert said["nccl_cross_rack_ratio"] == pytest.approx(rack_share(flows, racks).ratio, rel=0.02)
    assert said["meters"]["nccl"][0] == "4/4 nodes"
