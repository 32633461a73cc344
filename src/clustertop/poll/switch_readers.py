"""Switches and the fabric as their tasks see them: which source reads one, and what its failures mean for the link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.model import LOCAL_HOST, LinkState, NodeInfo
from clustertop.places import DEVICE_WORD, FabricHost, SshSwitch
from clustertop.poll.readers import Reader, Told, agent_of, reader_of, snmp_told
from clustertop.poll.switch_frames import FABRIC, SWITCH, switch_facts, uplink_part
from clustertop.poll.switch_ssh import SshSwitchReader
from clustertop.sources.fabric import Output, run_here
from clustertop.sources.fabric_reader import Adapter, FabricError, FabricReader
from clustertop.sources.secret import SecretError
from clustertop.sources.snmp import Agent, SnmpError
from clustertop.sources.snmp_target import SnmpTarget
from clustertop.sources.switch import Roles, SwitchReader
from clustertop.text import clean
from clustertop.wire.ssh.run import SshRunner
from clustertop.wire.transport import REASON_LIMIT

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping, Sequence

    from clustertop.clock import Clock
    from clustertop.places import Device, DeviceKind
    from clustertop.poll.readers import Maker
    from clustertop.sources.fabric import Runner
    from clustertop.wire.ssh import Dialer

LEAST_COUNT_SECONDS = 5.0


class SnmpSwitchReader(Reader):
    """A switch over SNMP."""

    def __init__(self, device: Device, access: Agent | SnmpTarget, roles: Roles, clock: Clock) -> None:
        self._access, self._roles, self._clock = access, roles, clock
        self._where = device.where or access.host
        self._leaf = device.leaf
        self._reader: SwitchReader | None = None
        self._since = 0.0

    async def read(self, now: float) -> Told:
        """Ask it."""
        if self._reader is None:
            try:
                agent = await agent_of(self._access)
            except (SecretError, ValueError) as error:
                return Told(LinkState.AUTH_FAILED, "login", clean(f"{self._where}: {error}", REASON_LIMIT))
            self._reader = SwitchReader(agent, self._roles, self._clock)
        try:
            reading = await self._reader.read()
        except SnmpError as error:
            self._since = self._since or self._clock.wall()
            if error.refused:
                await self.aclose()  # the next try fetches the secret anew: it may have been changed
            return snmp_told(error, self._where, self._since)
        self._since = 0.0
        return Told(LinkState.UP, "snmp", parts={SWITCH: uplink_part(reading, leaf=self._leaf)},
                    facts=switch_facts(reading))

    async def aclose(self) -> None:
        """Close its socket."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None


class HostFabricReader(Reader):
    """A fabric, asked from one host: over SSH, or from this machine.

    Args:
        runner: runs commands on the host; None: they run here.
        access: which adapter asks, and how patiently.
        clock: ours.
        interval_seconds: between two readings; the counters of one turn are read in half of it.
    """

    def __init__(self, runner: SshRunner | None, access: FabricHost, clock: Clock, interval_seconds: float) -> None:
        self._runner = runner
        self._reader = FabricReader(
            run_here if runner is None else over_ssh(runner), Adapter(access.ca, access.ca_port), clock,
            walk_seconds=access.timeout_seconds,
            count_seconds=max(LEAST_COUNT_SECONDS, interval_seconds / 2))  # fmt: skip

    async def read(self, now: float) -> Told:
        """Ask it."""
        try:
            reading = await self._reader.read()
        except FabricError as error:
            failure = self._runner.failure if self._runner is not None else None
            state, stage = (failure.state, failure.stage) if failure else (LinkState.PROBE_FAILED, "answer")
            return Told(state, stage, clean(str(error), REASON_LIMIT))
        return Told(LinkState.UP, "answer", parts={FABRIC: uplink_part(reading)}, facts=switch_facts(reading))

    async def aclose(self) -> None:
        """Let go of the connection."""
        if self._runner is not None:
            await self._runner.aclose()


def over_ssh(runner: SshRunner) -> Runner:
    """What runs the fabric's tools on the host that *runner* reaches."""

    async def run(argv: Sequence[str], seconds: float) -> Output:
        ran = await runner.run(argv, seconds)
        out, err = (text.decode("utf-8", "backslashreplace") for text in (ran.out, ran.err))
        return Output(out, err, ran.status, ran.cut, ran.why)

    return run


def makers(
    nodes: Sequence[NodeInfo], leaves: Collection[str], dialer_of: Callable[[NodeInfo], Dialer]
) -> Mapping[DeviceKind, Maker]:
    """Return what makes the readers of switches and of the fabric, by kind of device.

    Args:
        nodes: the inventory.
        leaves: names of the leaves that the map knows.
        dialer_of: makes connections to a host over SSH; asked when the first reader is made.
    """
    names = tuple(node.name for node in nodes)
    by_name = {node.name: node for node in nodes}

    def switch(device: Device, clock: Clock, rng: random.Random, interval_seconds: float) -> Reader:
        access = device.access
        roles = Roles(_patterns(device, "uplinks"), _patterns(device, "host_ports"), names,
                      tuple(sorted({*leaves} - {device.leaf, device.name})))
        if isinstance(access, Agent | SnmpTarget):
            return SnmpSwitchReader(device, access, roles, clock)
        if isinstance(access, SshSwitch):
            node = NodeInfo(device.name, access.host, access.user, access.port)
            return SshSwitchReader(node, dialer_of(node), roles, device.leaf, clock, rng, interval_seconds)
        raise ValueError(f"a {DEVICE_WORD[device.kind]} is not read by {type(access).__name__}")

    def fabric(device: Device, clock: Clock, rng: random.Random, interval_seconds: float) -> Reader:
        access = device.access
        if not isinstance(access, FabricHost):
            raise ValueError(f"a {DEVICE_WORD[device.kind]} is not read by {type(access).__name__}")  # noqa: TRY004
        node = by_name.get(access.node) or NodeInfo(access.host, access.host, access.user, access.port)
        runner = None if node.host == LOCAL_HOST else SshRunner(node, dialer_of(node))
        return HostFabricReader(runner, access, clock, interval_seconds)

    return {"switch": switch, "fabric": fabric}


def reader_maker(
    nodes: Sequence[NodeInfo], leaves: Collection[str], dialer_of: Callable[[NodeInfo], Dialer]
) -> Maker:
    """Return what makes the reader of any device; the arguments are those of :func:`makers`."""
    own = makers(nodes, leaves, dialer_of)

    def make(device: Device, clock: Clock, rng: random.Random, interval_seconds: float) -> Reader:
        return own.get(device.kind, reader_of)(device, clock, rng, interval_seconds)

    return make


def _patterns(device: Device, name: str) -> tuple[str, ...]:
    told = device.options.get(name)
    return tuple(map(str, told)) if isinstance(told, list | tuple) else ()


__all__ = ["HostFabricReader", "SnmpSwitchReader", "makers", "over_ssh", "reader_maker"]
