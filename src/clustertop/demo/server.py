"""The demo cluster's process: an SSH server per node on loopback. ``python -m clustertop.demo.server --dir DIR``.

It writes its keys and a known_hosts file into DIR, prints one JSON line with the ports once all of them listen, and
ends when its stdin does, so it never outlives whoever started it. Then DIR is gone too.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import math
import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncssh
import numpy as np

from clustertop.demo.cluster import DEFAULT_NODES, DEFAULT_SEED, Cluster
from clustertop.demo.devices import Devices
from clustertop.demo.faults import parse, words
from clustertop.demo.session import Demo, Door, Rooms

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

HOST = "127.0.0.1"
USER = "demo"
CLIENT_KEY = "client_key"
KNOWN_HOSTS = "known_hosts"
SSH_CONFIG = "ssh_config"
BAD_ARGUMENT = 3
SPARE_DESCRIPTORS = 64
SKIP_STEPS_SECONDS = 1.0


def descriptors(nodes: int) -> None:
    """Make room for a listener and two connections a node, and as much for its BMC and PDU.

    Raises:
        OSError: the hard limit is too low for the nodes alone.
    """
    need = 6 * nodes + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return
    if hard != resource.RLIM_INFINITY and hard < 2 * nodes + SPARE_DESCRIPTORS:
        raise OSError(f"{nodes} demo nodes need {need} open files, but this process may have {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (need if hard == resource.RLIM_INFINITY else min(need, hard), hard))


async def serve(cluster: Cluster, directory: Path, interval: float | None = None) -> None:
    """Serve *cluster* until stdin ends. Raises OSError where it cannot listen, ValueError for an absurd interval."""
    if interval is not None and not 0.1 <= interval <= 3600.0:
        raise ValueError(f"interval {interval}: 0.1 to 3600 seconds between two frames")
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    _watch_stdin(loop, over)
    demo, rooms = Demo(cluster, interval), Rooms()
    devices = Devices(demo, directory)
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    public = client_key.export_public_key().decode("ascii")
    options = asyncssh.SSHServerConnectionOptions(
        server_factory=lambda: Door(demo, rooms), server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(public), password_auth=False, kbdint_auth=False,
        allow_pty=False, agent_forwarding=False, x11_forwarding=False, encoding=None, line_editor=False,
        compression_algs=None, gss_host=None,
    )  # fmt: skip
    listeners = []
    try:
        for number in range(len(cluster.nodes)):
            listener = await asyncssh.listen(HOST, 0, options=options, backlog=16)
            listeners.append(listener)
            rooms.assign(listener.get_port(), number)
        ports = [listener.get_port() for listener in listeners]
        _write_files(directory, host_key, client_key, ports)
        _report(cluster, ports, await devices.start())
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        life = asyncio.create_task(_life(demo, rooms, listeners, devices), name="demo life")
        await asyncio.wait({life, asyncio.create_task(over.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            life.result()
        await over.wait()
        life.cancel()
    finally:
        devices.close()
        for number, listener in enumerate(listeners):
            listener.close()
            rooms.shut(number)


async def _life(
    demo: Demo, rooms: Rooms, listeners: Sequence[asyncssh.SSHAcceptor], devices: Devices
) -> None:
    """Take nodes and their BMCs down when their time has come; their time starts with the first frame."""
    await demo.first_frame.wait()
    down = sorted(departures(demo.cluster))
    while down or demo.cluster.nodes:
        now = demo.now()
        while down and down[0][0] <= now:
            number = down.pop(0)[1]
            listeners[number].close()
            rooms.shut(number)
        devices.cut()
        # The simulator goes on while nobody looks, in small strides.
        await asyncio.sleep(min(SKIP_STEPS_SECONDS, max(down[0][0] - now, 0.0)) if down else SKIP_STEPS_SECONDS)


def departures(cluster: Cluster) -> Iterator[tuple[float, int]]:
    """When nodes go away, and which: they are taken down, or have no power any more."""
    wiring = cluster.wiring
    for number, seconds in enumerate(np.minimum(wiring.off_from, wiring.dark_from).tolist()):
        if math.isfinite(seconds):
            yield seconds, number


def _watch_stdin(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    def read() -> None:
        try:
            data = os.read(0, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(0)
            over.set()

    loop.add_reader(0, read)
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)


def _write_files(
    directory: Path, host_key: asyncssh.SSHKey, client_key: asyncssh.SSHKey, ports: Sequence[int]
) -> None:
    key = directory / CLIENT_KEY
    key.touch(0o600)
    client_key.write_private_key(str(key))
    host = host_key.export_public_key().decode("ascii").split()
    lines = "".join(f"[{HOST}]:{port} {host[0]} {host[1]}\n" for port in ports)
    (directory / KNOWN_HOSTS).write_text(lines, encoding="ascii")
    # An empty configuration of its own: the operator's ProxyJump for "*" has no business here.
    (directory / SSH_CONFIG).write_text("", encoding="ascii")


def _report(cluster: Cluster, ports: Sequence[int], devices: dict[str, Any]) -> None:
    nodes = [
        {"name": node.name, "port": port, "rack": node.rack, "leaf": node.leaf}
        for node, port in zip(cluster.plan.nodes, ports, strict=True)
    ]
    faults = [words(one, cluster.plan) for one in cluster.faults]
    sys.stdout.write(json.dumps({"nodes": nodes, "faults": faults, "devices": devices}) + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server; returns the exit status (3: the arguments make no sense)."""
    parser = argparse.ArgumentParser(prog="python -m clustertop.demo.server", description=__doc__)
    parser.add_argument("--dir", required=True, help="existing private directory; removed at the end")
    parser.add_argument("--nodes", type=int, default=DEFAULT_NODES)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--fault", action="append", default=[])
    parser.add_argument("--interval", type=float, default=None, help="seconds between frames, whatever is asked for")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is for the console; our end is the end of stdin
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    directory = Path(args.dir)
    try:
        descriptors(args.nodes)
        cluster = Cluster(args.nodes, args.seed, [parse(text) for text in args.fault])
        _run(serve(cluster, directory, args.interval))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return BAD_ARGUMENT
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def _run(coroutine: Coroutine[object, object, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
    else:
        uvloop.run(coroutine)


if __name__ == "__main__":
    # No orderly end of the interpreter: a thousand open connections would hold it.
    status = main()
    sys.stderr.flush()
    os._exit(status)
