"""What the meter of TCP bytes costs its node, and what the same sockets cost by ``ss`` and by pyroute2.

    sudo python bench/sockets.py [--seconds 20] [--sockets 2000] [--peers 100] [--every 1] [--python PATH]

Two network namespaces of our own, joined by a veth pair, with so many TCP connections between them. In one of them two
probes run behind the real launcher, once a second: one reads the group ``host`` only, the other ``sockets`` as well.
The difference of their CPU times is the meter's own cost: while nothing moves, while a tenth of the sockets does in
each second, and while all do. Then, in the same run, ``ss -tine`` and pyroute2's ``DiagSocket`` read the same sockets:
CPU seconds of a look. Needs Linux, root and iproute2. Exits with 1 where the target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

TARGET = 0.01
"""Of one core, with a tenth of the sockets moving bytes each second."""
_MARK = "--inside"


def there(pid: int) -> list[str]:
    """The words that run a command in the other namespace."""
    return ["nsenter", "-t", str(pid), "-n"]


def join(pid: int, peers: int) -> None:
    """Join our namespace with that of *pid*, which has so many addresses."""
    for words in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(pid)],
        ["ip", "addr", "add", "10.9.0.1/16", "dev", "v0"],
        ["ip", "link", "set", "v0", "up"],
        [*there(pid), "ip", "link", "set", "v1", "up"],
    ):
        subprocess.run(words, check=True)
    lines = "".join(f"addr add 10.9.{1 + number // 250}.{1 + number % 250}/16 dev v1\n" for number in range(peers))
    subprocess.run([*there(pid), "ip", "-batch", "-"], input=lines, text=True, check=True)


def connect(pid: int, count: int, peers: int) -> list[tuple[socket.socket, socket.socket]]:
    """Connections from the other namespace: its end and ours."""
    libc = ctypes.CDLL(None)
    other, ours = (os.open(f"/proc/{who}/ns/net", os.O_RDONLY) for who in (pid, "self"))
    listener = socket.create_server(("10.9.0.1", 0), backlog=1024)
    out = []
    for number in range(count):
        assert libc.setns(other, 0x40000000) == 0
        one = socket.socket()
        assert libc.setns(ours, 0x40000000) == 0
        peer = number % peers
        one.bind((f"10.9.{1 + peer // 250}.{1 + peer % 250}", 0))
        one.connect(listener.getsockname())
        out.append((one, listener.accept()[0]))
    return out


class Probe:
    """A probe behind the real launcher, that reads *groups* once a second, and sockets once in *every* seconds."""

    def __init__(self, python: str, groups: list[str], every: float) -> None:
        from clustertop.wire import bundle

        nonce = bundle.new_nonce()
        self.child = subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(bundle.launcher(nonce, [python]))
        data = b""
        while b" ready " not in data:
            data += os.read(self.child.stdout.fileno(), 65536)
        self.child.stdin.write(bundle.bundle({
            "nonce": nonce, "groups": groups, "every": {**dict.fromkeys(groups, 1.0), "sockets": every}}))
        self.bytes = 0

    def drain(self) -> None:
        """Take what it has printed."""
        assert self.child.stdout is not None
        while select.select([self.child.stdout], [], [], 0)[0]:
            part = os.read(self.child.stdout.fileno(), 1 << 20)
            if not part:
                raise SystemExit("the probe ended")
            self.bytes += len(part)

    def cpu(self) -> float:
        """CPU seconds so far."""
        total = 0
        for task in Path(f"/proc/{self.child.pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def memory(self) -> float:
        """Most resident memory so far, bytes."""
        rows = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        return int(next(row for row in rows if row.startswith("VmHWM")).split()[1]) * 1024.0

    def close(self) -> None:
        """End of stdin ends it."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(10)


def watch(probes: tuple[Probe, Probe], pairs: list[tuple[socket.socket, socket.socket]], seconds: int,
          moving: int) -> tuple[float, float]:
    """Let *moving* of the sockets move each second; returns the meter's CPU share and its bytes a second."""
    begun = [(probe.cpu(), probe.bytes) for probe in probes]
    began = time.monotonic()
    for second in range(1, seconds + 1):
        for other, ours in pairs[:moving]:
            ours.send(b"x" * 1000)
            other.recv(65536)
        while (left := began + second - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
            for probe in probes:
                probe.drain()
    took = time.monotonic() - began
    used = [(probe.cpu() - cpu, probe.bytes - size) for probe, (cpu, size) in zip(probes, begun, strict=True)]
    return (used[1][0] - used[0][0]) / took, (used[1][1] - used[0][1]) / took


def by_ss(times: int) -> float:
    """CPU seconds of one ``ss -tine``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        subprocess.run(["ss", "-tine"], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / times


def by_pyroute2(times: int) -> float:
    """CPU seconds of one look of pyroute2's own reader, IPv4 only."""
    from pyroute2 import DiagSocket

    with DiagSocket() as reader:
        reader.bind()
        before = time.process_time()
        for _ in range(times):
            list(reader.get_sock_stats(family=socket.AF_INET, states=0xB32, extensions=1 << 1))
        return (time.process_time() - before) / times


def inside(arguments: argparse.Namespace) -> int:
    """Measure, in a namespace of our own."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3 * arguments.sockets, 3 * arguments.sockets))
    held = subprocess.Popen(["unshare", "-n", "sleep", "100000"])
    try:
        time.sleep(0.5)
        join(held.pid, arguments.peers)
        every = arguments.every
        probes = Probe(arguments.python, ["host"], every), Probe(arguments.python, ["host", "sockets"], every)
        pairs = connect(held.pid, arguments.sockets, arguments.peers)
        watch(probes, pairs, 3, 0)
        seconds = arguments.seconds
        rows = []
        for name, moving in (("nothing moves", 0), ("a tenth moves each second", len(pairs) // 10),
                             ("all move each second", len(pairs))):
            rows.append((name, *watch(probes, pairs, seconds, moving)))
        memory = probes[1].memory() - probes[0].memory()
        for probe in probes:
            probe.close()
        text, whole = by_ss(10), 0.0
        with contextlib.suppress(ImportError):
            whole = by_pyroute2(3)
    finally:
        held.send_signal(signal.SIGKILL)
        held.wait()
    print(f"{len(pairs)} sockets, {arguments.peers} peers, every {every:g} s, {seconds} s each; "
          f"memory {memory / 1e6:+.1f} MB")
    for name, share, size in rows:
        print(f"{name:<34}{share:>8.2%} of a core   {size:>8.0f} B/s")
    look = rows[1][1] * every
    for name, cost in (("ss -tine, not read", text), ("pyroute2 DiagSocket, IPv4", whole)):
        print(f"{name:<34}{cost * 1e3:>8.1f} ms a look   {cost / look:>6.1f} times the meter's")
    met = rows[1][1] < TARGET
    print(f"target: below {TARGET:.0%} with a tenth moving: {'met' if met else 'MISSED'}")
    return 0 if met else 1


def main() -> int:
    """Go into a namespace of our own, measure there, and return the exit status."""
    parser = argparse.ArgumentParser(description="What the meter of TCP bytes costs its node.")
    parser.add_argument("--seconds", type=int, default=20, help="how long to watch each kind of load (default 20)")
    parser.add_argument("--sockets", type=int, default=2000, help="connections (default 2000)")
    parser.add_argument("--peers", type=int, default=100, help="addresses at the other end (default 100)")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks (default 1)")
    parser.add_argument("--python", default=sys.executable, help="the node's Python (default: this one)")
    parser.add_argument(_MARK, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return inside(arguments)
    return subprocess.call(["unshare", "-n", sys.executable, *sys.argv, _MARK])


if __name__ == "__main__":
    sys.exit(main())
