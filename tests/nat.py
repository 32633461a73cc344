"""Nodes on both sides of a router that translates addresses: masquerade and DNAT by the kernel's nf_tables.

Run by :func:`netns.inside` with :data:`LINKS`; prints what was sent between two looks of all probes, and what the store
makes of their frames: with the router as a machine that nobody knows, and as a node in a rack of its own.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from clustertop.model import NodeInfo
from clustertop.store.store import Store
from probe.harness import Run
from racks import Inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PORT = 5001
NODES = {"n0": "10.91.0.1", "n1": "10.91.0.2", "n2": "10.91.1.1", "n3": "10.91.1.2"}
ROUTER = "gw"
LOOK_SECONDS = 2.5
OUTSIDE, VIRTUAL = "10.91.1.254", "10.91.0.200"
"""As whom n2 and n3 see who comes through masquerade; where n0 and n1 reach n3, as long as it is a service's address."""
RACKS = {"n0": "r0", "n1": "r0", "n2": "r1", "n3": "r1", ROUTER: "r2"}
_HOSTS = "\n".join(f"host {name} side{place // 2} {where} 10.91.{place // 2}.254"
                   for place, (name, where) in enumerate(NODES.items()))
LINKS = f"""
mount -t sysfs none /sys
mount -t tmpfs none /run
ip link set lo up
ip netns add {ROUTER}
ip -n {ROUTER} link set lo up
for side in 0 1; do
    ip link add side$side type bridge
    ip link set side$side up
    ip link add v{ROUTER}$side type veth peer name eth$side netns {ROUTER}
    ip link set v{ROUTER}$side master side$side up
    ip -n {ROUTER} addr add 10.91.$side.254/24 dev eth$side
    ip -n {ROUTER} link set eth$side up
done
ip -n {ROUTER} addr add {VIRTUAL}/32 dev eth0
ip netns exec {ROUTER} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
ip netns exec {ROUTER} nft -f - <<'END'
table ip nat {{
    chain out {{
        type nat hook postrouting priority srcnat;
        oifname "eth1" ct status & dnat == 0 masquerade
    }}
    chain in {{
        type nat hook prerouting priority dstnat;
        ip daddr {VIRTUAL} tcp dport {PORT} dnat to {NODES['n3']}
    }}
}}
END
host() {{
    ip netns add $1
    ip link add v$1 type veth peer name eth0 netns $1
    ip link set v$1 master $2 up
    ip -n $1 link set lo up
    ip -n $1 addr add $3/24 dev eth0
    ip -n $1 link set eth0 up
    ip -n $1 route add default via $4
}}
{_HOSTS}
"""
SCRIPT = "import nat, sys; nat.main(*sys.argv[2:])"
FLOWS = {
    "direct": ("n0", NODES["n1"], "n1", 600_000, 100_000),
    "masquerade": ("n0", NODES["n2"], "n2", 3_000_000, 1_100_000),
    "dnat": ("n1", VIRTUAL, "n3", 2_000_000, 700_000),
}
"""By name: who connects, to which address, who answers, bytes sent and answered."""


def exchange(inside: dict[str, Inside]) -> Iterator[socket.socket]:
    """Send and answer, until all has arrived and is acknowledged; gives the sockets, which stay open."""
    for source, where, target, sent, answered in FLOWS.values():
        with inside[target]:
            listener = socket.create_server((NODES[target], PORT), reuse_port=True)
        with inside[source]:
            here = socket.create_connection((where, PORT), 5)
        there, _ = listener.accept()
        listener.close()
        for one, other, count in ((here, there, sent), (there, here, answered)):
            send = threading.Thread(target=one.sendall, args=(bytes(count),), daemon=True)
            send.start()
            while count:
                data = other.recv(1 << 18)
                assert data
                count -= len(data)
            send.join(5)
        yield from (here, there)


def main(python: str) -> None:
    """Run it."""
    inside = {name: Inside(name) for name in NODES}
    kept: list[socket.socket] = []
    frames = None
    for _ in range(5):
        frames = frames or between_two_looks(python, inside, kept)
    assert frames, "the bytes never went between two looks of all"
    print(json.dumps({"unknown": told(frames, [*NODES]), "known": told(frames, [*NODES, ROUTER])}))


def between_two_looks(python: str, inside: dict[str, Inside], kept: list[socket.socket]) -> dict[str, list[Any]] | None:
    """Frames of all probes, the bytes having gone between the last two looks of each; None: they went at a look.

    *kept* takes the sockets: they stay open.
    """
    runs = {name: Run(python, {"groups": ["net", "sockets"], "every": {"net": 0.25, "sockets": LOOK_SECONDS}},
                      shell=["ip", "netns", "exec", name, "/bin/sh"]) for name in (*NODES, ROUTER)}
    for run in runs.values():
        threading.Thread(target=_drain, args=(run,), daemon=True).start()

    def looks(name: str) -> list[float]:
        """When a probe looked at its sockets, by the one clock that all have here."""
        return sorted({frame.g["sockets"].t for frame in runs[name].frames if frame.g["sockets"].n})

    def await_looks(holds: Callable[[list[list[float]]], bool]) -> None:
        until = time.monotonic() + 20
        while not holds([looks(name) for name in runs]):
            assert time.monotonic() < until, "a probe looks no more"
            time.sleep(0.02)

    # Of five that look in turn there is always a gap of a fifth of the time.
    await_looks(lambda each: min(map(len, each)) >= 2 and min(
        mine[-1] + LOOK_SECONDS for mine in each) - time.monotonic() > LOOK_SECONDS / 7)
    begun = time.monotonic()
    kept += exchange(inside)
    time.sleep(0.05)
    ended = time.monotonic()
    await_looks(lambda each: min(mine[-1] for mine in each) > ended)
    for run in runs.values():
        run.close()
    if any(begun <= at <= ended for name in runs for at in looks(name)):
        return None
    last = {name: next(at for at in looks(name) if at > ended) for name in runs}
    return {name: [frame for frame in run.frames if frame.g["sockets"].t <= last[name]] for name, run in runs.items()}


def _drain(run: Run) -> None:
    while run.process.poll() is None:
        try:
            run.next(30)
        except (AssertionError, ValueError, OSError):
            return


def told(frames: dict[str, list[Any]], names: list[str]) -> dict[str, Any]:
    """What the store makes of the frames of *names*: bytes of the last look, by the picture that is drawn."""
    store = Store([NodeInfo(name, name, rack=RACKS[name]) for name in names])
    seconds = {}
    for number, name in enumerate(names):
        for frame in frames[name]:
            store.frame(number, 1000.0 + frame.t, frame.w, frame)
        times = sorted({frame.g["sockets"].t for frame in frames[name]})
        seconds[name] = times[-1] - times[-2]
    now = 1000.0 + max(frame.t for mine in frames.values() for frame in mine)
    store.tick(now)
    seen = store.view(now, 0.0)
    # One look is as long at each node but for milliseconds.
    length = sum(seconds.values()) / len(seconds)
    row = seen.traffic.rows["fleet"]
    return {
        "racks": seen.traffic.racks, "matrix": (seen.traffic.matrix * length).tolist(),
        "unplaced": (seen.traffic.unplaced * length).tolist(),
        "all": seen["traffic"].value("bytes_per_second", row) * length,
        "strangers": {name: rate * length for name, rate in seen.traffic.strangers},
        "talkers": [(names[one.source], names[one.target]) for one in seen.traffic.talkers]}
