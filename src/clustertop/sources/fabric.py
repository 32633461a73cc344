"""An InfiniBand fabric, asked from one host: who hangs where, and what every switch port carried.

Unmanaged switches can be asked in no other way. ``ibnetdiscover`` walks the fabric, ``perfquery -x`` reads the ports of
the switches that carry hosts; both need a umad device (root, as a rule) on the host that runs them. Nothing is written:
no counter is reset. Hosts that are off do not answer, which is normal: what did answer is used, who did not is listed.

How a command is run is up to who asks (on this machine here, later through a node's connection).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from clustertop import process_group
from clustertop.signals.ibcounters import Look, PortCounters, complaints, parse_ibqueryerrors, parse_perfquery
from clustertop.sources.topology_ib import SHARP, Fabric, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

MAX_OUTPUT = 64 << 20
"""Bytes kept of what a tool prints; the rest is dropped and the result says so."""
_TIMEOUT_MS = "200"
"""How long a tool waits for one answer: its own default of a second and three tries is ten minutes over a hall."""
_LANE_GBPS = {
    "SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
    "XDR": 200.0,
}  # fmt: skip
"""Data rate of a lane after coding, IBTA."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed."""

    text: str
    errors: str = ""
    status: int | None = None
    """Exit status; None: it was stopped at its deadline, or did not start."""
    cut: bool = False
    """Whether more was printed than is kept."""
    why: str = ""
    """Why there is no status."""


class Runner(Protocol):
    """Runs a command somewhere."""

    async def __call__(self, argv: Sequence[str], seconds: float) -> Output:
        """Run *argv* for at most *seconds* and return what it printed until then. Never raises for its failure."""
        ...


async def run_here(argv: Sequence[str], seconds: float, environ: Mapping[str, str] | None = None) -> Output:
    """Run *argv* on this machine, without a shell and without input; at the deadline it is told to end, then killed.

    What was printed until then is kept.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, env=None if environ is None else dict(environ))  # fmt: skip
    except OSError as error:
        return Output("", why=f"{argv[0]} cannot be run: {os.strerror(error.errno or 0)}")
    assert process.stdout is not None
    assert process.stderr is not None
    kept: tuple[bytearray, bytearray] = (bytearray(), bytearray())
    cut = [False]
    readers = [
        asyncio.create_task(_drain(stream, buffer, cut))
        for stream, buffer in zip((process.stdout, process.stderr), kept, strict=True)
    ]
    why = ""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*readers)
            await process.wait()
    except TimeoutError:
        why = f"stopped after {seconds:g} s"
    finally:
        await _end(process)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    text, errors = (bytes(buffer).decode("utf-8", "backslashreplace") for buffer in kept)
    return Output(text, errors, None if why else process.returncode, cut[0], why)


async def _drain(stream: asyncio.StreamReader, buffer: bytearray, cut: list[bool]) -> None:
    while chunk := await stream.read(1 << 16):
        room = MAX_OUTPUT - len(buffer)
        buffer += chunk[:room]
        cut[0] |= len(chunk) > room


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process that still runs, and what it started: they are a group of their own."""
    if process.returncode is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        process_group.send(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await process.wait()


@dataclass(slots=True)
class Counted:
    """The counters of a fabric at one time."""

    at: float
    """Our monotonic clock, in the middle of the run."""
    ports: dict[tuple[int, int], PortCounters] = field(default_factory=dict)
    """By the switch's LID and port."""
    unreachable: tuple[int, ...] = ()
    """LIDs that did not answer."""
    notes: tuple[str, ...] = ()


async def discover(run: Runner, seconds: float = 60.0) -> tuple[Fabric, Look, str]:
    """Return the fabric, who did not answer, and why it is not whole (empty: it is).

    What was printed before the deadline is used.
    """
    output = await run(["ibnetdiscover", "-t", _TIMEOUT_MS], seconds)
    fabric = parse(output.text)
    look = complaints(output.errors)
    why = output.why or ("its output is cut short" if output.cut else "")
    if not why and output.status:
        said = f": {look.messages[0]}" if look.messages else ""
        why = f"ibnetdiscover ended with status {output.status}{said}"
    if not why and not fabric.devices:
        why = "ibnetdiscover printed no fabric"
    return fabric, look, why


async def count_ports(
    run: Runner, wanted: Mapping[int, Collection[int]], clock: Clock, seconds: float = 30.0
) -> Counted:
    """Read the extended counters of *wanted*, ports by their switch's LID, one run a switch.

    A switch that does not answer costs itself only. The deadline is over all of them.
    """
    loop = asyncio.get_running_loop()
    begun, deadline = clock(), loop.time() + seconds
    ports: dict[tuple[int, int], PortCounters] = {}
    unreachable: dict[int, None] = {}
    notes: list[str] = []
    for lid, numbers in sorted(wanted.items()):
        left = deadline - loop.time()
        if left <= 0:
            notes.append(f"not all switches were asked within {seconds:g} s")
            break
        output = await run(["perfquery", "-x", "-l", "-t", _TIMEOUT_MS, str(lid), ",".join(map(str, numbers))], left)
        found = parse_perfquery(output.text)
        ports.update({(one.lid if one.lid is not None else lid, one.port): one for one in found})
        said = complaints(output.errors + "\n" + output.text)
        unreachable.update(dict.fromkeys(said.unreachable))
        if not found:
            unreachable[lid] = None
            notes.append(f"LID {lid}: {output.why or '; '.join(said.messages[:2]) or 'no counters'}")
    return Counted((begun + clock()) / 2, ports, tuple(unreachable), tuple(notes))


async def errors(run: Runner, seconds: float = 60.0) -> Look:
    """Return ports with errors and data by ``ibqueryerrors``, which asks the whole fabric in one run.

    Partial output is used; who did not answer is listed.
    """
    output = await run(["ibqueryerrors", "--data", "-t", _TIMEOUT_MS], seconds)
    look = complaints(output.errors)
    look.ports = parse_ibqueryerrors(output.text)
    if output.why:
        look.messages.append(output.why)
    return look


class Clock(Protocol):
    """Tells the time in seconds; monotonic."""

    def __call__(self) -> float:
        """Return now."""
        ...


def leaf_ports_by_lid(fabric: Fabric) -> dict[int, dict[int, str]]:
    """Return, per LID of each switch that hosts hang on, port number to role: ``host`` or ``uplink``."""
    roles: dict[str, dict[int, str]] = {}
    ends = {(cable.device, cable.port): cable.peer for cable in fabric.cables.values()}
    ends.update({(cable.peer, cable.peer_port): cable.device for cable in fabric.cables.values()})
    for (one, port), other in ends.items():
        device, peer = fabric.devices[one], fabric.devices[other]
        if device.kind == "switch" and SHARP not in peer.description:
            roles.setdefault(one, {})[port] = "uplink" if peer.kind == "switch" else "host"
    return {
        lid: dict(sorted(found.items()))
        for one, found in roles.items()
        if "host" in found.values() and (lid := fabric.devices[one].lid) is not None
    }


def link_speeds(fabric: Fabric) -> dict[tuple[str, int], float]:
    """Return device and port to bits per second of its cable, where width and speed are known."""
    found = {}
    for cable in fabric.cables.values():
        lanes = cable.width.removesuffix("x")
        if lanes.isdecimal() and cable.speed in _LANE_GBPS:
            speed = int(lanes) * _LANE_GBPS[cable.speed] * 1e9
            found[cable.device, cable.port] = speed
            found[cable.peer, cable.peer_port] = speed
    return found
