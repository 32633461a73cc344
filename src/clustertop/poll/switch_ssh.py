"""A switch that runs Linux: a probe over SSH reads its interfaces as a node's; here they become a switch's ports.

It is a link like a node's (same probe, same connection, same words), asked for the groups ``host`` and ``net`` alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from clustertop.model import LinkEvent, LinkState
from clustertop.poll.node import NodeLink
from clustertop.poll.readers import Reader, Told
from clustertop.poll.switch_frames import SWITCH, switch_facts, uplink_part
from clustertop.signals import ifmib, link
from clustertop.signals.ifmib import Interface, Look, Role, Switch
from clustertop.sources.switch import Roles, SwitchReading, port_reading, unplaced
from clustertop.wire.ssh import SshTransport

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from clustertop.clock import Clock
    from clustertop.model import Attr, NodeInfo
    from clustertop.wire.frame import Frame, Row, TablePart
    from clustertop.wire.ssh import Dialer
    from clustertop.wire.transport import Receiver, Transport

GROUPS = ("host", "net")
FIRST_SECONDS = 5.0
"""Most time that a call waits for a reading which is under way."""
_ETHERNET, _OTHER = 6, 53
_COUNTERS = {
    "rx_bytes": "in_octets", "tx_bytes": "out_octets", "rx_dropped": "in_discards", "tx_dropped": "out_discards",
    "rx_errors": "in_errors", "tx_errors": "out_errors", "speed_mbps": "high_speed",
}  # fmt: skip
_OPER = {"=up": 1, "=down": 2, "=testing": 3, "=dormant": 5, "=notpresent": 6, "=lowerlayerdown": 7}
"""operstate by ifOperStatus (RFC 2863); "unknown" is just that."""
_PAUSES = {
    name: way for way, sums in (("in_pause", "receive_pause_frames_per_second"),
                                ("out_pause", "transmit_pause_frames_per_second")) for name in link.SUMS[sums]
}  # fmt: skip


class Kept:
    """A table as a probe's frames tell it: the last full one, and what differs from it now."""

    def __init__(self) -> None:
        self._sequence = -1
        self._base: dict[int, float | str] = {}
        self.rows: list[Row] = []
        self.columns: list[str] = []
        self.cells: dict[int, float | str] = {}

    def take(self, part: TablePart | None, sequence: int, base: int) -> bool:
        """Take a frame's part, None where it has none; False: it counts from a full frame that was not seen.

        Raises:
            ValueError: it does not fit itself.
        """
        full = sequence == base
        if full and part is not None:
            self.rows, self.columns = list(part.r or ()), list(part.c or ())
            self._sequence, self._base = base, self._cells(part)
            self.cells = dict(self._base)
        elif base != self._sequence:
            return False
        elif part is not None:
            self.cells = {**self._base, **self._cells(part)}
        else:
            self.cells = dict(self._base)
        return True

    def _cells(self, part: TablePart) -> dict[int, float | str]:
        size = len(self.rows) * len(self.columns)
        places: list[int] = []
        for start, length in zip(part.i[::2], part.i[1::2], strict=True):
            if start < 0 or length < 0 or start + length > size:
                raise ValueError("cells outside of the table")
            places += range(start, start + length)
        if len(places) != len(part.x) or any(not 0 <= place < size for place in part.j):
            raise ValueError("cells do not fit the table")
        return {**dict(zip(places, part.x, strict=True)), **dict(zip(part.j, part.s, strict=True))}

    def of(self, row: int) -> dict[str, float | str]:
        """Column to cell of *row*; what could not be read is left out."""
        tall = len(self.rows)
        told = ((name, self.cells.get(number * tall + row)) for number, name in enumerate(self.columns))
        return {name: cell for name, cell in told if cell is not None and not str(cell).startswith("!")}


def interfaces(net: Kept, links: Kept, numbers: dict[str, int]) -> Switch:
    """Return the switch in a probe's tables ``net`` and ``link``.

    *numbers* gives each name the number that it stands for, and takes new ones: a name keeps its own.
    """
    switch = Switch()
    names = {str(row.a.get("name") or row.k): row for row in net.rows}
    front = any(ifmib.is_front_panel(name) for name in names)
    for place, (name, row) in enumerate(names.items()):
        cells = net.of(place)
        one = Interface(numbers.setdefault(name, len(numbers) + 1), name, name)
        one.type = _ETHERNET if row.a.get("phys") or front else _OTHER
        one.oper = _OPER.get(str(cells.get("operstate")))
        for column, field in _COUNTERS.items():
            value = _number(cells.get(column))
            if value is not None:
                setattr(one, field, value)
        switch.interfaces[one.index] = one
    for place, row in enumerate(links.rows):
        found = switch.interfaces.get(numbers.get(str(row.a.get("name") or row.k), 0))
        if found is None:
            continue
        master = row.a.get("master")
        found.lag = numbers.get(master) if isinstance(master, str) else None
        for column, cell in links.of(place).items():
            known = link.TABLE.raw_index.get(column)
            way = _PAUSES.get(link.TABLE.metrics[known].name) if known is not None else None
            number = _number(cell)
            if way is not None and number is not None:
                setattr(found, way, (getattr(found, way) or 0) + number)
    return switch


def _number(cell: float | str | None) -> int | None:
    """A count in a cell; None: there is none, or it is marked as unknown (a speed of -1)."""
    if isinstance(cell, str):
        return int(cell[1:]) if cell[1:].isdecimal() and len(cell) < 22 else None
    return int(cell) if cell is not None and 0 <= cell < 2**64 else None


class SshSwitchReader(Reader):
    """Reads one switch that runs Linux.

    Args:
        node: how it is reached.
        dialer: shared with others that are reached over SSH.
        roles: what is known of its ports.
        leaf: the leaf that it is.
        clock: ours.
        rng: where the jitter comes from.
        interval_seconds: between two readings.
        body: compressed modules to run there; None: the probe's own.
    """

    def __init__(
        self, node: NodeInfo, dialer: Dialer, roles: Roles, leaf: str, clock: Clock, rng: random.Random,
        interval_seconds: float, body: bytes | None = None,
    ) -> None:
        self._roles, self._leaf, self._clock = roles, leaf, clock
        self._event = LinkEvent(0, clock.monotonic(), LinkState.WAITING)
        settings = dataclasses.replace(dialer.settings, interval_seconds=interval_seconds)

        def make(receiver: Receiver, started: Callable[[], None]) -> Transport:
            return SshTransport(dataclasses.replace(node, interval_seconds=interval_seconds), dialer, receiver, started,
                                body)

        self._link = NodeLink(0, make, settings, self, clock, rng, more={"groups": list(GROUPS)})
        self._task: asyncio.Task[None] | None = None
        self._net, self._links = Kept(), Kept()
        self._numbers: dict[str, int] = {}
        self._count = -1
        self._last: Look | None = None
        self._last_times = (0.0, 0.0)
        self._reading: SwitchReading | None = None
        self._told: SwitchReading | None = None
        self._facts: Mapping[str, Attr] = {}
        self._news = asyncio.Event()

    async def read(self, now: float) -> Told:
        """What the switch said last, and where the link stands; waits a little for a reading that is due."""
        if self._task is None:
            self._task = asyncio.create_task(self._link.run(), name="switch over ssh")
        if self._reading is self._told:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SECONDS):
                    await self._news.wait()
        if self._task.done():
            self._task.result()  # a bug of ours is raised
        event, reading = self._event, self._reading
        parts = {} if reading is None else {SWITCH: uplink_part(reading, leaf=self._leaf)}
        facts = {} if reading is None else {**switch_facts(reading), **_kept(self._facts)}
        self._told = reading
        state = LinkState.CONNECTING if event.state is LinkState.WAITING else event.state
        return Told(state, event.stage, event.reason, parts, facts)

    def retry(self) -> None:
        """Try the link again now."""
        self._link.request({"do": "retry"})

    async def aclose(self) -> None:
        """End the link."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # -- the link's sink -----------------------------------------------------------------------------------------

    def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
        """A frame of the switch's probe."""
        if frame.h is not None:
            self._facts = frame.h
        host, net = frame.g.get("host"), frame.g.get("net")
        try:
            known = host is not None and not host.o and self._net.take(host.tb.get("net"), frame.q, frame.b)
            if net is not None and not net.o:
                self._links.take(net.tb.get("link"), frame.q, frame.b)
        except ValueError:
            return
        if host is None or not known or host.st != "ok" or host.n == self._count:
            return
        self._count = host.n
        switch = interfaces(self._net, self._links, self._numbers)
        switch.uptime_seconds = host.t
        step = host.t - self._last_times[0]
        # Its own clock counts from its boot; where that went back ours tells how long it was.
        step = step if step > 0 else at - self._last_times[1]
        look = Look((self._last.at if self._last is not None else 0.0) + step, switch)
        self._last_times = (host.t, at)
        self._reading = self._read(look, at - max(frame.t - host.t, 0.0), host.ms / 1000)
        self._last = look
        self._news.set()

    def on_link(self, event: LinkEvent) -> None:
        """The link's state changed."""
        self._event = event
        if event.state not in (LinkState.WAITING, LinkState.CONNECTING, LinkState.UP):
            self._news.set()

    def _read(self, look: Look, at: float, took: float) -> SwitchReading:
        roles = ifmib.roles(
            look.switch, uplinks=self._roles.uplinks, hosts=self._roles.hosts, nodes=self._roles.nodes,
            leaves=self._roles.leaves)  # fmt: skip
        every = look.switch.interfaces
        ports = tuple(
            port_reading(self._last, look, one.index, roles.get(one.index, Role("")), key=one.name, bits=64,
                         lag=every[one.lag].name if one.lag in every else "")
            for one in look.switch.data_ports()
        )  # fmt: skip
        return SwitchReading(
            str(self._facts.get("host") or ""), str(self._facts.get("os") or ""), at, took, ports,
            look.switch.uptime_seconds, unplaced(role.role for role in roles.values()))  # fmt: skip


def _kept(facts: Mapping[str, Attr]) -> dict[str, Attr]:
    return {name: facts[name] for name in ("kernel", "boot_id") if name in facts}
