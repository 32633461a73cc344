"""Three racks of two nodes in network namespaces, a probe in each, known bytes between them by the kernel's own TCP.

Run by :func:`netns.inside` with :data:`LINKS`; prints what was sent and what the store made of the probes' frames.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from clustertop.model import NodeInfo
from clustertop.store.store import Store
from probe.harness import Run

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = 6
STRANGER = "strange"
PORT = 5001
SHARED = "10.99.0.1"
"""An address that two nodes have."""
_HOSTS = "\n".join(f"host n{node} sw{node // 2} 10.88.{node // 2}.{node + 1} fd00:88::{node + 1}" for node in range(NODES))
LINKS = f"""
mount -t sysfs none /sys
mount -t tmpfs none /run
ip link set lo up
ip link add core type bridge
ip link set core up
for rack in 0 1 2; do
    ip link add sw$rack type bridge
    ip link add up$rack type veth peer name down$rack
    ip link set up$rack master core up
    ip link set down$rack master sw$rack up
    ip link set sw$rack up
done
host() {{
    ip netns add $1
    ip link add v$1 type veth peer name eth0 netns $1
    ip link set v$1 master $2 up
    ip -n $1 link set lo up
    ip -n $1 addr add $3/16 dev eth0
    ip -n $1 addr add $4/64 dev eth0 nodad
    ip -n $1 link set eth0 up
}}
{_HOSTS}
host {STRANGER} core 10.88.9.9 fd00:88::99
ip -n n1 addr add {SHARED}/32 dev lo
ip -n n3 addr add {SHARED}/32 dev lo
ip -n n0 route add {SHARED} via 10.88.0.2
"""
SCRIPT = "import racks, sys; racks.main(*sys.argv[2:])"


def address(node: int, family: int) -> str:
    """Where a node is."""
    return f"10.88.{node // 2}.{node + 1}" if family == 4 else f"fd00:88::{node + 1}"


class Inside:
    """Sockets made in a ``with`` of it belong to the namespace."""

    def __init__(self, name: str) -> None:
        self._there = os.open(f"/run/netns/{name}", os.O_RDONLY)
        self._here = os.open("/proc/self/ns/net", os.O_RDONLY)

    def __enter__(self) -> None:
        assert ctypes.CDLL(None).setns(self._there, 0x40000000) == 0

    def __exit__(self, *_: object) -> None:
        assert ctypes.CDLL(None).setns(self._here, 0x40000000) == 0


class Sink:
    """Takes whatever anybody sends to any of the listeners."""

    def __init__(self) -> None:
        self.taken = 0
        self._waits = selectors.DefaultSelector()

    def listen(self) -> None:
        """Listen in the present namespace, for IPv6 and, mapped, for IPv4."""
        listener = socket.socket(socket.AF_INET6)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", PORT))
        listener.listen(256)
        self._waits.register(listener, selectors.EVENT_READ, True)

    def run(self) -> None:
        while True:
            for key, _ in self._waits.select():
                one: Any = key.fileobj
                if key.data:
                    self._waits.register(one.accept()[0], selectors.EVENT_READ, False)
                    continue
                data = one.recv(1 << 18)
                self.taken += len(data)
                if not data:
                    self._waits.unregister(one)
                    one.close()


class Traffic:
    """Sends, and keeps the books."""

    def __init__(self, inside: dict[str, Inside], sink: Sink) -> None:
        self.sent: dict[str, dict[str, int]] = {}
        self._inside = inside
        self._sink = sink
        self._all = 0

    def open(self, source: str, where: str) -> socket.socket:
        with self._inside[source]:
            return socket.create_connection((where, PORT), 60)

    def send(self, one: socket.socket, count: int, source: str = "", target: str = "") -> None:
        """Send *count* bytes; with names, they are in the books."""
        one.sendall(bytes(count))
        self._all += count
        if source:
            books = self.sent.setdefault(source, {})
            books[target] = books.get(target, 0) + count

    def arrive(self) -> None:
        """Wait until all of it has arrived."""
        until = time.monotonic() + 60
        while self._sink.taken < self._all:
            assert time.monotonic() < until, (self._sink.taken, self._all)
            time.sleep(0.01)


def main(python: str, way: str, short: str) -> None:
    """Run it: *way* is how sockets are read (a way of the probe, or empty), *short* whether some are short-lived."""
    names = [f"n{node}" for node in range(NODES)]
    inside = {name: Inside(name) for name in [*names, STRANGER]}
    sink = Sink()
    for name in [*names, STRANGER]:
        with inside[name]:
            sink.listen()
    threading.Thread(target=sink.run, daemon=True).start()
    traffic = Traffic(inside, sink)
    # What went before the probes began is not theirs to count.
    old = [(0, 1, 4), (0, 2, 4), (1, 5, 6), (4, 0, 4)]
    lasting = [traffic.open(names[source], address(target, family)) for source, target, family in old]
    for one in lasting:
        traffic.send(one, 1_000_000)
    traffic.arrive()
    args: dict[str, Any] = {"groups": ["net", "sockets"], "every": {"net": 0.5, "sockets": 0.5}}
    if way:
        args["sockets"] = [way]
    runs = [Run(python, args, shell=["ip", "netns", "exec", name, "/bin/sh"]) for name in names]
    drains = [threading.Thread(target=_drain, args=(run,), daemon=True) for run in runs]
    for drain in drains:
        drain.start()
    _looks(runs, 2)
    # Sockets that were there, new ones that stay, and short-lived ones: several in one interval.
    for _ in range(10):
        for one, (source, target, _) in zip(lasting, old, strict=True):
            traffic.send(one, 200_000, names[source], names[target])
        time.sleep(0.05)
    kept = []
    for source, target, family, count in [(0, 3, 6, 700_000), (1, 0, 4, 300_000), (3, 5, 4, 900_000), (5, 2, 6, 400_000)]:
        kept.append(traffic.open(names[source], address(target, family)))
        traffic.send(kept[-1], count, names[source], names[target])
    if short:
        for _ in range(20):
            for source, target, family in [(2, 4, 4), (2, 4, 6), (3, 0, 4), (4, 5, 6)]:
                with traffic.open(names[source], address(target, family)) as brief:
                    traffic.send(brief, 20_000, names[source], names[target])
    # To an address that nobody has, to one that two have, and to itself.
    kept.append(traffic.open("n0", "10.88.9.9"))
    traffic.send(kept[-1], 250_000, "n0", "10.88.9.9")
    kept.append(traffic.open("n0", SHARED))
    traffic.send(kept[-1], 150_000, "n0", SHARED)
    for own in ("127.0.0.1", address(0, 4), "::1", address(0, 6)):
        kept.append(traffic.open("n0", own))
        traffic.send(kept[-1], 5_000_000)
    traffic.arrive()
    _looks(runs, 3)
    for run in runs:
        run.close()
    print(json.dumps({"sent": traffic.sent, **_read(names, runs)}))


def _drain(run: Run) -> None:
    while run.process.poll() is None:
        try:
            run.next(30)
        except (AssertionError, ValueError, OSError):
            return


def _looks(runs: list[Run], more: int) -> None:
    """Wait until every probe has made so many more looks."""
    def count(run: Run) -> int:
        return max((frame.g["sockets"].n for frame in run.frames[-3:]), default=0)

    _until(lambda: all(count(run) for run in runs))
    before = [count(run) for run in runs]
    _until(lambda: all(count(run) >= last + more for run, last in zip(runs, before, strict=True)))


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, "the probes say nothing"
        time.sleep(0.05)


def _read(names: list[str], runs: list[Run]) -> dict[str, Any]:
    """What the store makes of the probes' frames."""
    store = Store([NodeInfo(name, name) for name in names])
    peers = store.tables["peer"]
    for number, run in enumerate(runs):
        for frame in run.frames:
            store.frame(number, 1000.0 + frame.t, frame.w, frame)
            store.tick(1000.0 + frame.t)
    placed = store.addresses.of_peers()
    out: dict[str, Any] = {"transmit": {}, "receive": {}, "peers": {}, "facts": [run.values.facts for run in runs]}
    for row in range(peers.rows):
        node, other = names[peers.node[row]], names[placed[row]] if placed[row] >= 0 else peers.keys[row]
        for at, name in enumerate(("transmit", "receive")):
            books = out[name].setdefault(node, {})
            books[other] = books.get(other, 0.0) + float(peers.grown[at, row])
        values = {name: None if value != value else float(value)
                  for name, value in zip(peers.spec.names, peers.values[:, row], strict=True)}
        out["peers"].setdefault(node, {})[peers.keys[row]] = values
    return out


if __name__ == "__main__":
    main(*sys.argv[1:])
