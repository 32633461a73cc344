"""All nodes at once: starts them spread out, passes requests on, lets go of everything within two seconds."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import resource
from typing import TYPE_CHECKING, Self

from clustertop.model import LOCAL_HOST
from clustertop.poll.inbox import Inbox
from clustertop.poll.node import NodeLink, Sink
from clustertop.poll.tasks import Tasks
from clustertop.wire.local import LocalTransport
from clustertop.wire.ssh import Dialer, SshTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType

    from clustertop.clock import Clock
    from clustertop.model import NodeInfo, Request
    from clustertop.wire.transport import PollSettings, Receiver, Transport

CLOSE_SECONDS = 2.0
JUMPS_CLOSE_SECONDS = 0.4
"""Of ``CLOSE_SECONDS``, what is kept for the jump hosts, which go last."""
START_SPREAD_SECONDS = 0.004
"""A node's share of the time over which the first connection attempts are spread."""
SPARE_DESCRIPTORS = 128


class DescriptorLimitError(OSError):
    """This process may not open as many files as the fleet has nodes. The text says what would do."""


class Fleet:
    """Polls all *nodes* for the length of an ``async with`` block.

    Args:
        nodes: the inventory.
        settings: how nodes are reached, and how often they are read.
        sink: gets frames and link events, from the event loop.
        clock: ours.
        unchecked: names of the nodes whose host keys the operator has said not to check.
        body: compressed modules to run on the nodes; None: the probe's own.
        rng: where the jitter comes from.
        per_poll: names of the nodes whose GPUs are held only while they are read.
        released: by name of a node, when the operator had its GPUs let go (seconds since the epoch).
    """

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        settings: PollSettings,
        sink: Sink,
        clock: Clock,
        *,
        unchecked: Collection[str] = (),
        body: bytes | None = None,
        rng: random.Random | None = None,
        per_poll: Collection[str] = (),
        released: Mapping[str, float] | None = None,
    ) -> None:
        self._nodes = nodes
        self._settings = settings
        self._sink = sink
        self._clock = clock
        self._unchecked = frozenset(unchecked)
        self._body = body
        self._per_poll = frozenset(per_poll)
        self._released = dict(released or {})
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._dialer: Dialer | None = None
        self._lax: Dialer | None = None
        self._tasks = Tasks(0, sink, clock)
        self.links: list[NodeLink] = []
        """One per node, in the inventory's order."""

    @property
    def bugs(self) -> list[BaseException]:
        """Errors of our own that ended a node's task. The first one is raised when the block is left."""
        return self._tasks.bugs

    async def __aenter__(self) -> Self:
        """Start. Raises DescriptorLimitError."""
        raise_descriptor_limit(len(self._nodes), agent=self._settings.agent)
        settings = self._settings
        self._dialer = Dialer(settings)
        if self._unchecked:
            self._lax = Dialer(dataclasses.replace(settings, check_host_keys=False))
        inbox = Inbox()
        spread = min(settings.interval_seconds, START_SPREAD_SECONDS * len(self._nodes))
        for index, node in enumerate(self._nodes):
            link = NodeLink(
                index, self._maker(node, self.dialer_of(node)), settings.of(node), self._sink, self._clock, self._rng,
                inbox, self._more(node),
            )
            self.links.append(link)
            delay = self._rng.uniform(0.0, spread) if len(self._nodes) > 1 else 0.0
            self._tasks.start(link.run(delay), f"node {node.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if self.bugs and error is None:
            raise self.bugs[0]

    def request(self, request: Request) -> None:
        """Pass *request* on to its node, or to all. Does not wait for an answer."""
        if request.body.get("do") == "retry":
            for dialer in self._dialers:
                dialer.forget_failures()
        links = self.links if request.node is None else self.links[request.node : request.node + 1]
        for link in links:
            link.request(request.body)

    async def close(self) -> None:
        """Let go of every node within ``CLOSE_SECONDS`` in all. Safe to call more than once."""
        self._tasks.closing = True
        await self._tasks.cancel(CLOSE_SECONDS - JUMPS_CLOSE_SECONDS)
        for task in self._tasks.left:
            task.cancel()  # a second time: it gives up waiting for the goodbye
        dialers = self._dialers
        self._dialer = self._lax = None
        if dialers:
            await asyncio.gather(*(dialer.close(JUMPS_CLOSE_SECONDS) for dialer in dialers))

    @property
    def _dialers(self) -> list[Dialer]:
        return [dialer for dialer in (self._dialer, self._lax) if dialer is not None]

    def dialer_of(self, node: NodeInfo) -> Dialer:
        """What makes connections to *node*, or to another host of that name. Raises RuntimeError: not started."""
        dialer = self._lax if node.name in self._unchecked else self._dialer
        if dialer is None:
            raise RuntimeError("the fleet has not been started")
        return dialer

    def _more(self, node: NodeInfo) -> dict[str, object]:
        more: dict[str, object] = {"per_poll": True} if node.name in self._per_poll else {}
        if node.name in self._released:
            more["released"] = self._released[node.name]
        return more

    def _maker(self, node: NodeInfo, dialer: Dialer) -> Callable[[Receiver, Callable[[], None]], Transport]:
        def make(receiver: Receiver, started: Callable[[], None]) -> Transport:
            if node.host == LOCAL_HOST:
                return LocalTransport(self._settings.of(node), receiver, started, self._body)
            return SshTransport(node, dialer, receiver, started, self._body)

        return make


def raise_descriptor_limit(nodes: int, *, agent: bool = True) -> None:
    """Make room for a connection to each of *nodes* (and one to the agent beside it), where that is allowed.

    Raises:
        DescriptorLimitError: the hard limit is too low.
    """
    need = nodes * (2 if agent else 1) + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return
    if hard != resource.RLIM_INFINITY and hard < nodes + SPARE_DESCRIPTORS:
        raise DescriptorLimitError(
            f"{nodes} nodes need {need} open files, but this process may have {hard} at most: "
            f"raise the hard limit (ulimit -Hn {need}, or LimitNOFILE={need} of its unit)"
        )
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (need if hard == resource.RLIM_INFINITY else min(need, hard), hard)
    )
