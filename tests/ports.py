"""Ports for servers that have to be told theirs, and ports where nothing listens.

They are chosen below those that the kernel gives to whoever asks for any: between the choice and the use of one, no
socket of another test can come to sit on it. Each worker of pytest-xdist has its own share of them, and none is given
twice.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from pathlib import Path

FIRST, LAST = 15_000, 32_000
WORKERS = 16


def _range() -> tuple[int, int]:
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()
    return int(first), int(last)


def _candidates() -> itertools.cycle[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    first, last = _range()
    own = [port for port in range(FIRST + worker, LAST, WORKERS) if not first <= port <= last]
    # Two runs on one machine begin at different places.
    start = os.getpid() * 37 % len(own)
    return itertools.cycle([*own[start:], *own[:start]])


_ports = _candidates()


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a port of loopback that nothing listens on."""
    for port in _ports:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, kind) as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("it goes round for ever")


def free_udp_port() -> int:
    """The same for UDP."""
    return free_port(socket.SOCK_DGRAM)
