"""Three racks of network namespaces behind three leaf switches that are namespaces as well: sshd in each, a session.

Run by :func:`netns.inside` with :data:`LINKS`; prints what was sent and what the session, and replays of it, say.
Nodes, addresses and books are those of :mod:`racks`; the console reaches everything by a network of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import math
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from clustertop import plain, session
from clustertop.inventory import Inventory
from clustertop.model import NodeInfo
from clustertop.places import Device, Site, SshSwitch
from clustertop.plan import Plan
from clustertop.poll import devices
from clustertop.poll.fleet import Fleet
from clustertop.record import Recorder, Recording, play
from clustertop.replay import replay_core
from clustertop.rules.spec import builtin
from clustertop.wire.frame import decode
from clustertop.wire.transport import PollSettings
from racks import NODES, SHARED, STRANGER, Inside, Sink, Traffic, address
from sshd import keygen, need_sshd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clustertop.core import Core
    from clustertop.session import Session

NAMES = tuple(f"n{node}" for node in range(NODES))
LEAVES = ("leaf0", "leaf1", "leaf2")
CONSOLE = "192.168.77.1"
HOSTS = {**{name: f"192.168.77.{10 + number}" for number, name in enumerate(NAMES)},
         **{name: f"192.168.77.{100 + number}" for number, name in enumerate(LEAVES)}}
"""By node and switch: where its sshd listens."""
_NODES = "\n".join(f"host n{node} leaf{node // 2} swp{node % 2 + 1} {address(node, 4)} {address(node, 6)}\n"
                   f"manage n{node} {HOSTS[f'n{node}']}" for node in range(NODES))
LINKS = f"""
mount -t sysfs none /sys
mount -t tmpfs none /run
mkdir -p -m 755 /run/sshd
ip link set lo up
ip link add mgmt type bridge
ip addr add {CONSOLE}/24 dev mgmt
ip link set mgmt up
switch() {{
    ip netns add $1
    ip -n $1 link set lo up
    ip -n $1 link add br0 type bridge
    ip -n $1 link set br0 up
}}
manage() {{
    ip link add m$1 type veth peer name mgmt0 netns $1
    ip link set m$1 master mgmt up
    ip -n $1 addr add $2/24 dev mgmt0
    ip -n $1 link set mgmt0 up
}}
switch spine
for rack in 0 1 2; do
    switch leaf$rack
    ip link add swp$rack netns spine type veth peer name swp49 netns leaf$rack
    ip -n spine link set swp$rack master br0 up
    ip -n leaf$rack link set swp49 master br0 up
    manage leaf$rack 192.168.77.10$rack
done
host() {{
    ip netns add $1
    ip link add $3 netns $2 type veth peer name eth0 netns $1
    ip -n $2 link set $3 master br0 up
    ip -n $1 link set lo up
    ip -n $1 addr add $4/16 dev eth0
    ip -n $1 addr add $5/64 dev eth0 nodad
    ip -n $1 link set eth0 up
}}
{_NODES}
host {STRANGER} spine swp99 10.88.9.9 fd00:88::99
ip -n n1 addr add {SHARED}/32 dev lo
ip -n n3 addr add {SHARED}/32 dev lo
ip -n n0 route add {SHARED} via {address(1, 4)}
"""
SCRIPT = "import leaves, sys; leaves.main(*sys.argv[2:])"
ONE_LOOK_SECONDS = 5.0
FLOWS = {("n0", "n1"): 6e6, ("n4", "n5"): 3e6, ("n0", "n2"): 2e6, ("n3", "n4"): 3e6}
"""What goes all the time, in bytes per second: 5 of 14 between racks."""


@contextlib.contextmanager
def logins(folder: Path) -> Iterator[PollSettings]:
    """An sshd in each node and switch; gives the settings by which they are reached."""
    key = keygen(folder / "host_key")
    (folder / "authorized_keys").write_text(keygen(folder / "client_key") + "\n")
    known = " ".join(key.split()[:2])
    (folder / "known_hosts").write_text("".join(f"{host} {known}\n" for host in HOSTS.values()))
    (folder / "ssh_config").write_text(
        f"Host *\n  User root\n  IdentityFile {folder / 'client_key'}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder / 'known_hosts'}\n  GlobalKnownHostsFile /dev/null\n")
    servers = []
    try:
        for name, host in HOSTS.items():
            config = folder / f"{name}.conf"
            config.write_text(
                f"Port 22\nListenAddress {host}\nHostKey {folder / 'host_key'}\n"
                f"AuthorizedKeysFile {folder / 'authorized_keys'}\nPidFile none\nStrictModes no\nUsePAM no\n"
                "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n")
            with (folder / f"{name}.log").open("wb") as log:
                servers.append(subprocess.Popen(
                    ["ip", "netns", "exec", name, need_sshd(), "-D", "-e", "-f", str(config)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        until = time.monotonic() + 60
        for name, host in HOSTS.items():
            while not _listens(host):
                assert time.monotonic() < until, (folder / f"{name}.log").read_text("utf-8", "replace")
                time.sleep(0.05)
        yield PollSettings(ssh_config=str(folder / "ssh_config"), agent=False, interval_seconds=1.0,
                           retry_min_seconds=0.1, retry_max_seconds=0.5)
    finally:
        for server in servers:
            server.terminate()
            server.wait(60)


def _listens(host: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, 22), 1) as one:
        return one.recv(4) == b"SSH-"
    return False


class Looks(Recorder):
    """Records, and keeps when each node looked at its sockets."""

    def __init__(self, path: Path, plan: Plan) -> None:
        super().__init__(path, plan)
        self.count = [0] * NODES
        self.at = [[math.nan, math.nan] for _ in NAMES]
        """By node: its clock at the last look but one and at the last."""

    def frame(self, node: int, at: float, wall: float, raw: bytes) -> None:
        super().frame(node, at, wall, raw)
        part = decode(raw).g.get("sockets")
        if part is not None and node < NODES and part.n != self.count[node]:
            self.count[node] = part.n
            self.at[node] = [self.at[node][1], part.t]

    def said(self, live: Session) -> str:
        """Where it stands, for a test that waits in vain."""
        return f"{self.count} looks; {[state.name for state in live._states]}"

    @property
    def seconds(self) -> dict[str, float]:
        """By node: how long its last look is about."""
        return {name: last - before for name, (before, last) in zip(NAMES, self.at, strict=True)}


def plan(settings: PollSettings, sockets: float, *, switches: bool = False) -> Plan:
    """Six nodes in three racks, and their leaves where *switches*."""
    nodes = tuple(NodeInfo(name, HOSTS[name], rack=f"r{number // 2}", leaf=LEAVES[number // 2])
                  for number, name in enumerate(NAMES))
    devices = tuple(Device(name, "switch", SshSwitch(HOSTS[name], "root"), HOSTS[name], leaf=name, interval_seconds=1.0,
                           options={"uplinks": ["swp49"], "host_ports": ["swp[12]"]}) for name in LEAVES)
    rules = builtin()
    for name in ("cross_rack_share", "meters_disagree"):
        rule = rules[name]
        at_once = {level: msgspec.structs.replace(one, for_seconds=2.0, for_polls=2)
                   for level in ("info", "warning") if (one := getattr(rule, level)) is not None}
        rules[name] = msgspec.structs.replace(rule, **at_once)
    return Plan(Inventory(nodes, index={node.name: at for at, node in enumerate(nodes)}),
                dataclasses.replace(settings, sockets_interval_seconds=sockets), rules,
                site=Site(devices=devices if switches else ()))


async def until(holds: Callable[[], bool], seconds: float, what: Callable[[], object]) -> None:
    """Wait until *holds*."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what()
        await asyncio.sleep(0.02)


# ---- known bytes


class MissedError(Exception):
    """The machine is too busy for bytes, or for looks at them, to come when they should."""


async def known_bytes(settings: PollSettings, flight: Path, traffic: Traffic) -> dict[str, Any]:
    """Send known bytes between two looks of all nodes; what the matrix makes of them. Raises MissedError."""
    traffic.sent.clear()
    old = [(0, 1, 4), (0, 2, 4), (1, 5, 6), (4, 0, 4)]
    lasting = [traffic.open(NAMES[source], address(target, family)) for source, target, family in old]
    for one in lasting:
        traffic.send(one, 1_000_000)
    traffic.arrive()
    made = plan(settings, ONE_LOOK_SECONDS)
    # It is evaluated by hand, once before and once after: a share is a running mean, and this one is of one look.
    with Looks(flight, made) as looks:
        async with session.Session(made, tap=looks, tick_seconds=1e6) as live:
            await until(lambda: min(looks.count) >= 2, 60, lambda: looks.said(live))
            live.evaluate()
            before = list(looks.count)
            kept = send(traffic, lasting, old)
            await asyncio.sleep(0.1)
            if not looks.count == before == [2] * NODES:
                raise MissedError(looks.said(live))
            await until(lambda: min(looks.count) >= 3, 60, lambda: looks.said(live))
            if looks.count != [3] * NODES:
                raise MissedError(looks.said(live))
            live.evaluate()
            out = {"sent": traffic.sent, "seconds": looks.seconds, **picture(live.core),
                   "facts": [str(facts.get("sockets")) for facts in view(live.core).facts[:NODES]]}
    for one in (*lasting, *kept):
        one.close()
    core = replay_core(Recording(flight))
    for step in Recording(flight).steps():
        play(core, step)
    out["replayed"] = picture(core)
    out["unmapped"] = picture(rackless(flight))
    return out


def send(traffic: Traffic, lasting: list[socket.socket], old: list[tuple[int, int, int]]) -> list[socket.socket]:
    """By sockets that were there and by new ones, to nodes and to what is none."""
    for _ in range(10):
        for one, (source, target, _) in zip(lasting, old, strict=True):
            traffic.send(one, 200_000, NAMES[source], NAMES[target])
    kept = []
    for source, target, family, count in [(0, 3, 6, 700_000), (1, 0, 4, 300_000), (3, 5, 4, 900_000), (5, 2, 6, 400_000)]:
        kept.append(traffic.open(NAMES[source], address(target, family)))
        traffic.send(kept[-1], count, NAMES[source], NAMES[target])
    for where, count in (("10.88.9.9", 250_000), (SHARED, 150_000)):
        kept.append(traffic.open("n0", where))
        traffic.send(kept[-1], count, "n0", where)
    kept.append(traffic.open("n0", address(0, 4)))
    traffic.send(kept[-1], 5_000_000)
    traffic.arrive()
    return kept


def rackless(flight: Path) -> Core:
    """The recording lived through by a console that has no rack map."""
    recording = Recording(flight)
    recording.header = msgspec.structs.replace(
        recording.header, nodes=tuple(msgspec.structs.replace(node, rack="", leaf="") for node in recording.header.nodes))
    core = replay_core(recording)
    for step in recording.steps():
        play(core, step)
    return core


def view(core: Core) -> Any:
    assert core.snapshot is not None
    return core.snapshot.view


def picture(core: Core) -> dict[str, Any]:
    """What ``view.traffic`` and table ``traffic`` say, as JSON has it."""
    seen = view(core).traffic
    table = view(core)["traffic"]
    rows = {key: {name: [table.value(name, row), table.reason(name, row)] for name in SHOWN}
            for key, row in seen.rows.items()}
    return {"racks": seen.racks, "matrix": seen.matrix.tolist(), "unplaced": seen.unplaced.tolist(), "rows": rows,
            "strangers": dict(seen.strangers), "sentences": seen.sentences,
            "meters": {one.name: [one.coverage, one.why] for one in seen.meters}}


SHOWN = ("socket_cross_rack_ratio", "socket_spine_ratio", "uplink_spine_ratio", "share_ratio", "judged_ratio",
         "bytes_per_second", "unplaced_ratio", "coverage_ratio", "disagreement_ratio")


# ---- steady traffic, and the leaves' own ports


class Steady:
    """Sends :data:`FLOWS` until it is stopped, on a thread of its own."""

    def __init__(self, traffic: Traffic) -> None:
        self._sockets = {pair: traffic.open(pair[0], address(NAMES.index(pair[1]), 4)) for pair in FLOWS}
        self.late = 0.0
        """The longest time between two sends: what is to be steady has a gap there, and a burst after it."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began, sent = time.monotonic(), dict.fromkeys(FLOWS, 0)
        last = began
        while not self._over.wait(0.02):
            now = time.monotonic()
            self.late, last = max(self.late, now - last), now
            for pair, rate in FLOWS.items():
                due = int((time.monotonic() - began) * rate) - sent[pair]
                self._sockets[pair].sendall(bytes(due))
                sent[pair] += due

    def stop(self) -> None:
        self._over.set()
        self._thread.join(60)
        for one in self._sockets.values():
            one.close()


async def steady(settings: PollSettings, flight: Path, traffic: Traffic, *, patient: bool) -> dict[str, Any]:
    """The same traffic all the time, and what sockets and uplinks say of it; replays of it with a NIC that differs.

    Raises MissedError: it was not the same all the time, or was not looked at evenly.
    """
    devices.Devices = functools.partial(devices.Devices, least_interval_seconds=1.0)  # type: ignore[misc,assignment]
    made = plan(settings, 2.0, switches=True)
    flows = Steady(traffic)
    try:
        await asyncio.sleep(1.0)
        with Looks(flight, made) as looks:
            async with session.Session(made, tap=looks, tick_seconds=0.5) as live:
                said: list[Any] = []
                live.core.listen(said.extend)
                late = 0.0
                first: dict[int, float] = {}

                def enough() -> bool:
                    nonlocal late
                    for node, count in enumerate(looks.count):
                        if count:
                            first.setdefault(node, time.monotonic())
                        if count > 1:
                            late = max(late, looks.at[node][1] - looks.at[node][0] - 2.0)
                    return min(looks.count) >= 7

                await until(enough, 120, lambda: looks.said(live))
                spread = max(first.values()) - min(first.values())
                if patient and (flows.late > 0.3 or late > 0.5 or spread > 1.5):
                    raise MissedError(f"sent {flows.late:.1f} s late, looked {late:.1f} s late, began over {spread:.1f} s")
                out = {**picture(live.core), "lines": [plain.transition_json(change) for change in said],
                       "leaves": {one.name: [one.ratio, one.host_in, one.uplink_out, one.why]
                                  for one in view(live.core).traffic.leaves}}
        out["reset"] = await uplink_anew(settings)
    finally:
        flows.stop()
    out["replayed"] = replayed(flight)
    out["with_nic"] = replayed(flight, 1.0)
    out["with_more"] = replayed(flight, 1.6)
    out["alone"] = replayed(flight, 1.6, switches=False)
    return out


async def uplink_anew(settings: PollSettings) -> list[tuple[float | None, str]]:
    """The uplink of leaf1 is taken out and put in again: its counters begin anew. What is said of the leaf, in order."""
    made = plan(settings, 10.0, switches=True)
    async with session.Session(made, tick_seconds=0.1) as live:
        told: list[tuple[float | None, str]] = []

        def look() -> bool:
            leaf = None if live.core.snapshot is None else view(live.core).traffic.leaf("leaf1")
            if leaf is None:
                return False
            now = (leaf.ratio if leaf.ratio is None else round(leaf.ratio, 2), leaf.why)
            if not told or told[-1] != now:
                told.append(now)
            return now[0] is not None

        await until(look, 60, lambda: told)
        told[:] = told[-1:]
        subprocess.run(["sh", "-ec", """
            ip -n leaf1 link del swp49
            ip link add swp1 netns spine type veth peer name swp49 netns leaf1
            ip -n spine link set swp1 master br0 up
            ip -n leaf1 link set swp49 master br0 up
        """], check=True)
        await until(lambda: not look(), 60, lambda: told)
        await until(look, 60, lambda: told)
        return told


def replayed(flight: Path, nic: float = 0.0, *, switches: bool = True) -> dict[str, Any]:
    """The recording lived through again; where *nic* is given, with eth0 as a NIC whose counters go so much faster.

    Without *switches* nothing is heard of the leaves.
    """
    recording = Recording(flight)
    core = replay_core(recording)
    said: list[Any] = []
    kept: dict[int, Any] = {}
    core.listen(said.extend)
    for step in recording.steps():
        if step.node >= NODES and not switches:
            continue
        if nic and step.raw and step.node < NODES:
            step = dataclasses.replace(step, raw=_with_nic(step.raw, nic, kept, step.node))
        play(core, step)
    return {**picture(core), "lines": [plain.transition_json(change) for change in said],
            "attrs": dict(view(core)["traffic"].attrs[view(core).traffic.rows["fleet"]])}


def _with_nic(raw: bytes, faster: float, kept: dict[int, Any], node: int) -> bytes:
    """A frame in which eth0 has a PCI function, as it has none in a namespace; *kept* are the rows of before."""
    told = json.loads(raw)
    table = next((group["tb"]["net"] for group in told["g"].values() if "net" in group.get("tb", {})), None)
    if table is None:
        return raw
    if table.get("r") is not None:
        for row in table["r"]:
            row["a"]["phys"] = row["a"].get("name") == "eth0"
        kept[node] = len(table["r"]), table["c"].index("tx_bytes")
    rows, column = kept[node]
    places = [place for start, length in zip(table["i"][::2], table["i"][1::2], strict=True)
              for place in range(start, start + length)]
    table["x"] = [int(value * faster) if place // rows == column else value
                  for place, value in zip(places, table["x"], strict=True)]
    return json.dumps(told).encode()


def main(way: str, folder: str) -> None:
    """Run it: *way* is how sockets are read (a way of the probe, or empty)."""
    inside = {name: Inside(name) for name in [*NAMES, STRANGER]}
    sink = Sink()
    for one in inside.values():
        with one:
            sink.listen()
    threading.Thread(target=sink.run, daemon=True).start()
    traffic = Traffic(inside, sink)
    if way:
        more = Fleet._more
        Fleet._more = lambda self, node: {**more(self, node), "sockets": [way]}  # type: ignore[method-assign]
    out: dict[str, Any] = {}
    with logins(Path(folder)) as settings:
        for number in range(4):
            with contextlib.suppress(MissedError) if number < 3 else contextlib.nullcontext():
                out["known"] = asyncio.run(known_bytes(settings, Path(folder) / f"known{number}.ct", traffic))
                break
        for number in range(4 if not way else 0):
            with contextlib.suppress(MissedError):
                out["steady"] = asyncio.run(steady(settings, Path(folder) / f"steady{number}.ct", traffic, patient=number < 3))
                break
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
