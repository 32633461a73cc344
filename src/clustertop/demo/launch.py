"""Starts the demo cluster's process and says how to reach it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from clustertop.demo.faults import Fault, FaultError, place
from clustertop.demo.feeds import Wiring
from clustertop.demo.plan import make_plan
from clustertop.model import NodeInfo
from clustertop.text import clean
from clustertop.wire.transport import PollSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from clustertop.places import Site

HOST = "127.0.0.1"
USER = "demo"
START_SECONDS = 20.0
START_SECONDS_PER_NODE = 0.02
END_SECONDS = 2.0
SOCKETS_SECONDS = 2.0
NCCL_LOGS = "/var/log/nccl/*.log"
HANDSHAKES = 32
"""At once; all nodes share one address here, and no sshd with a limit stands behind it."""


class DemoError(RuntimeError):
    """The demo cluster did not start. The text says why."""


@dataclass(frozen=True, slots=True)
class Demo:
    """A running demo cluster. Its files are gone when it ends."""

    nodes: tuple[NodeInfo, ...]
    known_hosts: Path
    client_key: Path
    ssh_config: Path
    """Empty, so that the operator's own does not bear on the demo."""
    faults: tuple[str, ...]
    """What goes wrong where, for people: ``x8 on gpu005, GPU or port 3, after 3 s``."""
    pid: int
    site: Site
    """Its feeds, PDUs, BMCs and leaf switches, and how to ask them."""

    def settings(self, interval_seconds: float = 1.0, pcie_interval_seconds: float = 2.0) -> PollSettings:
        """Return how to poll it; host keys are checked."""
        return PollSettings(
            interval_seconds=interval_seconds, pcie_interval_seconds=max(pcie_interval_seconds, interval_seconds),
            sockets_interval_seconds=max(SOCKETS_SECONDS, interval_seconds),
            handshakes_at_once=HANDSHAKES, handshakes_per_host=HANDSHAKES, retry_max_seconds=10.0,
            ssh_config=str(self.ssh_config), known_hosts=str(self.known_hosts), user=USER,
            client_keys=(str(self.client_key),), agent=False, nccl_logs=(NCCL_LOGS,),
        )  # fmt: skip


@contextlib.asynccontextmanager
async def start_demo(
    count: int, *, faults: Iterable[Fault] = (), seed: int = 7, interval_seconds: float | None = None
) -> AsyncIterator[Demo]:
    """Run a demo cluster of *count* nodes in a process of its own for the length of an ``async with`` block.

    Args:
        count: number of nodes.
        faults: what goes wrong, from :func:`clustertop.demo.faults.parse`.
        seed: the same seed gives the same cluster.
        interval_seconds: between frames, whatever consoles ask for; None: what they ask for.

    Raises:
        FaultError: a fault makes no sense; nothing was started.
        ValueError: *count* is out of range; nothing was started.
        DemoError: the process did not come up.
    """
    wanted = tuple(faults)
    plan = make_plan(count, seed)
    wiring = Wiring(plan, place(wanted, plan, seed))
    directory = Path(tempfile.mkdtemp(prefix="clustertop-demo-"))
    arguments = ["--dir", str(directory), "--nodes", str(count), "--seed", str(seed)]
    for fault in wanted:
        arguments += ["--fault", str(fault)]
    if interval_seconds is not None:
        arguments += ["--interval", str(interval_seconds)]
    process = None
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, when the process has ended
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "clustertop.demo.server", *arguments, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=errors, start_new_session=True, limit=1 << 22,
        )  # fmt: skip
        # Here: its HTTP and SNMP libraries load while the process starts.
        from clustertop.demo.site import make_site

        report = await _started(process, errors, count)
        yield _demo(report, directory, process.pid, make_site(plan, wiring, directory, report["devices"]))
    finally:
        if process is not None:
            await _end(process)
        errors.close()
        shutil.rmtree(directory, ignore_errors=True)


async def _started(process: asyncio.subprocess.Process, errors: IO[bytes], count: int) -> Mapping[str, Any]:
    assert process.stdout is not None
    limit = START_SECONDS + count * START_SECONDS_PER_NODE
    try:
        async with asyncio.timeout(limit):
            line = await process.stdout.readline()
    except TimeoutError:
        raise DemoError(f"the demo cluster's process did not come up within {limit:g} s") from None
    try:
        report: dict[str, Any] = json.loads(line)
    except ValueError:
        raise DemoError(f"the demo cluster's process ended at once: {_last_words(errors)}") from None
    return report


def _demo(report: Mapping[str, Any], directory: Path, pid: int, site: Site) -> Demo:
    return Demo(
        nodes=tuple(
            NodeInfo(node["name"], host=HOST, user=USER, port=node["port"], rack=node["rack"], leaf=node["leaf"])
            for node in report["nodes"]
        ),
        known_hosts=directory / "known_hosts",
        client_key=directory / "client_key",
        ssh_config=directory / "ssh_config",
        faults=tuple(report["faults"]),
        pid=pid,
        site=site,
    )


def _last_words(errors: IO[bytes]) -> str:
    """What the server said last."""
    errors.seek(0)
    said = errors.read(1 << 16).strip().splitlines()
    return clean(said[-1], 300) if said else "it said nothing"


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it by the end of its stdin; by force only where that does not do."""
    if process.stdin is not None:
        process.stdin.close()
    for force in (None, process.terminate, process.kill):
        if force is not None:
            with contextlib.suppress(ProcessLookupError):
                force()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
            return


__all__ = ["Demo", "DemoError", "FaultError", "start_demo"]
