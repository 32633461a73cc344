"""A live fleet: poller, core and the tick that drives judgement, as every front end uses them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import TYPE_CHECKING, Self, TypeVar

import psutil

from clustertop.clock import Clock, SystemClock
from clustertop.core import Core, Snapshot, Tap
from clustertop.memory import Memory
from clustertop.model import LinkState, OwnCost, Request
from clustertop.poll.fleet import Fleet
from clustertop.rules import latency

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from types import TracebackType

    from clustertop.model import LinkEvent
    from clustertop.plan import Plan
    from clustertop.poll.devices import Devices
    from clustertop.rules.latency import Times
    from clustertop.wire.frame import Frame

Result = TypeVar("Result")

RELEASED_SECONDS = 2.0
"""How often it is looked whether another clustertop of this operator had GPUs let go or taken."""
LEAVING_SECONDS = 1.5
"""What takes longer to let go of is told."""
SMALL_FLEET = 64
"""Up to this many nodes verdicts come twice a second; beyond it once."""


def usual_tick_seconds(nodes: int) -> float:
    """Time between two evaluations of a fleet of so many nodes."""
    return 0.5 if nodes <= SMALL_FLEET else 1.0


class OwnMeter:
    """Reads our own CPU and memory, at most once a second."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._clock = SystemClock()
        self._last = self._clock.monotonic()
        self._cpu = self._seconds()
        self._cost: OwnCost | None = None

    def _seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def read(self) -> OwnCost | None:
        """The cost over the last second or so; None before the first second is over."""
        now = self._clock.monotonic()
        if now - self._last >= 1.0:
            cpu = self._seconds()
            self._cost = OwnCost((cpu - self._cpu) / (now - self._last), float(self._process.memory_info().rss))
            self._last, self._cpu = now, cpu
        return self._cost


class Session:
    """Runs a fleet for the length of an ``async with`` block.

    Args:
        plan: inventory, settings and rules.
        tap: gets the raw stream, for a recording.
        clock: ours.
        tick_seconds: time between two evaluations; None: by the size of the fleet.
        keep: whether what this session learns outlives it; what was learnt before holds either way.
        tell: gets a sentence where leaving takes long.
    """

    def __init__(
        self, plan: Plan, *, tap: Tap | None = None, clock: Clock | None = None, tick_seconds: float | None = None,
        keep: bool = True, tell: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.plan = plan
        self.title = plan.title
        self._tap, self._tell = tap, tell
        self.core = Core(plan.inventory.nodes, plan.rules, expect_width=plan.expect_width,
                         expect_gpus=plan.expect_gpus, expect_ports=plan.expect_ports,
                         freshness=plan.freshness, tap=tap,
                         settle_seconds=plan.settle_seconds, resume_seconds=plan.resume_seconds, site=plan.site)
        self._clock = clock or SystemClock()
        self._tick = tick_seconds or usual_tick_seconds(len(plan.inventory.nodes))
        self._number = {node.name: number for number, node in enumerate(plan.inventory.nodes)}
        self._released = {} if plan.released is None else {
            name: at for name, at in plan.released.read().items() if name in self._number}
        self._ways = tuple(plan.outlets()) if keep and plan.outlets is not None else ()
        for way in self._ways:
            self.core.listen(way.tell)
        self._memory = Memory(
            plan.state, self.core, keep=keep, accept_seconds=plan.accept_seconds) if plan.state is not None else None
        self._fleet = Fleet(
            plan.inventory.nodes, plan.settings, self, self._clock, unchecked=plan.inventory.unchecked,
            per_poll=plan.inventory.per_poll, released=self._released)
        self._devices = self._poller() if plan.site.devices else None
        self._follower: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._keeping: set[asyncio.Task[None]] = set()
        self._forgets = ""
        self._ticker: asyncio.Task[None] | None = None
        self._meter = OwnMeter()
        self._news = asyncio.Event()
        count = len(plan.inventory.nodes) + len(plan.site.devices)
        self._frames = [0] * count
        self._unread = [False] * count
        """By node and device: whether a group of its last frame has not been read for the first time."""
        self._states = [LinkState.WAITING] * count
        self.skipped_ticks = 0
        """Ticks left out because the one before took too long."""

    def _poller(self) -> Devices:
        # SNMP, Redfish and IPMI take a third of the time to start; without a device nothing of them is needed.
        from clustertop.poll.devices import Devices
        from clustertop.poll.switch_readers import reader_maker

        nodes = self.plan.inventory.nodes
        leaves = {leaf for node in nodes for leaf in (node.leaf, *node.leaves) if leaf}
        return Devices(self.plan.site.devices, len(nodes), self, self._clock,
                       make=reader_maker(nodes, leaves, self._fleet.dialer_of))

    # -- what the poller calls -----------------------------------------------------------------------------------

    def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
        """A frame of *node*, or behind these of a device, arrived *at* (our monotonic clock)."""
        self._frames[node] += 1
        self._unread[node] = any(part.st == "wait" for part in frame.g.values())
        self._news.set()
        if not self.core.on_frame(node, at, self._clock.wall(), frame, raw) and node < len(self._number):
            self._fleet.links[node].request({"do": "full"})

    def on_link(self, event: LinkEvent) -> None:
        """The link to a node or a device changed."""
        self._states[event.node] = event.state
        self._news.set()
        self.core.on_link(event, self._clock.wall())

    # -- what front ends call ------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest moment; None before the first tick."""
        return self.core.snapshot

    @property
    def ticking(self) -> asyncio.Task[None]:
        """The evaluation; it ends before the session only by an error."""
        if self._ticker is None:
            raise RuntimeError("the session has not been started")
        return self._ticker

    @property
    def notes(self) -> tuple[str, ...]:
        """What must stay in sight: the plan's notes, and why nothing more is recorded where that is so."""
        said = (self._tap.note if self._tap is not None else "", self._forgets,
                self._memory.note if self._memory is not None else "",
                *(way.note for way in self._ways))
        return (*self.plan.notes, *(note for note in said if note))

    @property
    def live(self) -> bool:
        """There are probes that can be asked."""
        return True

    def released(self, node: int) -> bool:
        """Whether the operator wants the GPUs of *node* let go, whether or not they are yet."""
        return self.plan.inventory.nodes[node].name in self._released

    @property
    def times(self) -> Times:
        """How often nodes are read and judged: what makes an alert late."""
        return latency.times(self.plan.settings, self._tick)

    @property
    def origins(self) -> Mapping[str, Mapping[str, str]]:
        """By rule and key: where the operator's configuration set it; what is not here is built in."""
        return self.plan.origins

    def cost(self) -> OwnCost | None:
        """What watching costs here; None before it is known."""
        return self._meter.read()

    def request(self, request: Request) -> None:
        """Pass a request on to its node's probe and BMC, to a device, or to all nodes and devices.

        That GPUs are to be let go (``release``) holds over reconnects, until they are taken again (``take``); other
        sessions of this operator do the same.
        """
        what = request.body.get("do")
        if what in {"detail", "full", "now", "retry"}:
            self._ask_devices(request)
        if what == "detail":
            return
        if what not in ("release", "take") or request.body.get("group", "gpu") != "gpu":
            self._fleet.request(request)
            return
        nodes = self.plan.inventory.nodes
        for number in range(len(nodes)) if request.node is None else (request.node,):
            name, at = nodes[number].name, self._clock.wall() if what == "release" else None
            self._hold(number, at)
            if self.plan.released is not None:
                self._keep(asyncio.to_thread(self.plan.released.note, name, at))

    def _ask_devices(self, request: Request) -> None:
        """Ask the device, or the BMC of the node; all of them where it is about no one in particular.

        ``detail``: it reads all it has, for a while. Else it is read as soon as it can bear, whatever it waits for.
        """
        owners = self.core.store.owners
        if self._devices is None:
            return
        body = {"do": "now"} if request.body.get("do") == "full" else request.body
        for number in range(owners.first_device, owners.first_feed):
            if request.node is None or request.node in {number, owners.host[number]}:
                self._devices.request(number, body)

    def _hold(self, number: int, at: float | None) -> None:
        name = self.plan.inventory.nodes[number].name
        if at is None:
            self._released.pop(name, None)
            self._fleet.request(Request(number, {"do": "take", "group": "gpu"}))
        else:
            self._released[name] = at
            self._fleet.request(Request(number, {"do": "release", "group": "gpu", "at": at}))

    def _keep(self, noting: Coroutine[object, object, str]) -> None:
        async def keep() -> None:
            async with self._writing:
                self._forgets = await noting

        task = asyncio.create_task(keep(), name="released nodes")
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _follow(self) -> None:
        """Do what another clustertop of this operator wrote down; a disk that hangs holds up only this."""
        held = self.plan.released
        while held is not None:
            await asyncio.sleep(RELEASED_SECONDS)
            async with self._writing:
                said = await asyncio.to_thread(held.news)
            if said is None or self._keeping:
                continue
            for name, number in self._number.items():
                if said.get(name) != self._released.get(name):
                    self._hold(number, said.get(name))

    async def wait_readings(self, frames: int, timeout_seconds: float) -> bool:
        """Wait until every node sent *frames* frames, with all groups read, and every device one, or cannot be read.

        A tick has seen them then. Returns False if the time ran out first.
        """

        def settled() -> bool:
            return self._settled(frames) and not any(
                unread and state not in _FAILED for unread, state in zip(self._unread, self._states, strict=True))

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while not settled():
                    self._news.clear()
                    await self._news.wait()
        in_time = settled()
        self.evaluate()
        return in_time

    def _settled(self, frames: int) -> bool:
        """Whether every node has sent *frames* frames, and every device one, or cannot be read."""
        nodes = len(self._number)
        return all(count >= (frames if number < nodes else 1) or state in _FAILED
                   for number, (count, state) in enumerate(zip(self._frames, self._states, strict=True)))

    async def __aenter__(self) -> Self:
        """Start polling. Raises DescriptorLimitError."""
        if self._memory is not None:
            self._memory.recall(self._clock.monotonic(), self._clock.wall())
        await self._fleet.__aenter__()
        if self._devices is not None:
            try:
                await self._devices.__aenter__()
            except BaseException:
                await self._fleet.close()
                raise
        self._ticker = asyncio.create_task(self._run(), name="tick")
        self._follower = asyncio.create_task(self._follow(), name="released by others")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._follower is not None:
            self._follower.cancel()
        if self._keeping:
            await asyncio.wait(self._keeping, timeout=1.0)
        ticker, self._ticker = self._ticker, None
        bug: BaseException | None = None
        if ticker is not None:
            ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({ticker})
                if not ticker.cancelled():
                    bug = ticker.exception()
        waiting = asyncio.create_task(self._say_who_is_left(), name="who is left")
        try:
            await asyncio.gather(*(one.close() for one in (self._fleet, self._devices) if one is not None))
        finally:
            waiting.cancel()
        if self._memory is not None:
            await self._memory.close()
        if self._ways:
            await asyncio.gather(*(way.close() for way in self._ways))
        for other in (*self._fleet.bugs, *(self._devices.bugs if self._devices is not None else ())):
            bug = bug or other
        if bug is not None and error is None:
            raise bug

    async def _say_who_is_left(self) -> None:
        """Why it takes so long to leave, where it does: the screen is the operator's again by then."""
        await asyncio.sleep(LEAVING_SECONDS)
        left = self._devices.left if self._devices is not None else ()
        if left:
            few = ", ".join(left[:3]) + (" ..." if len(left) > 3 else "")
            self._tell(f"waiting to give back the sessions of {few}")

    def evaluate(self) -> None:
        """Evaluate now, beside the regular ticks."""
        self.core.tick(self._clock.monotonic(), self._clock.wall())

    async def _run(self) -> None:
        due = self._clock.monotonic()
        frozen = False
        while True:
            self.evaluate()
            if self._memory is not None:
                self._memory.look(self._clock.monotonic())
            if not frozen and self._settled(1):
                frozen = True
                _spare_the_collector()
            due += self._tick
            late = self._clock.monotonic() - due
            if late > 0:
                missed = int(late / self._tick) + 1
                self.skipped_ticks += missed
                due += missed * self._tick
            await asyncio.sleep(max(due - self._clock.monotonic(), 0.0))


_FAILED = frozenset({
    LinkState.UNREACHABLE, LinkState.AUTH_FAILED, LinkState.HOST_KEY_UNKNOWN, LinkState.HOST_KEY_CHANGED,
    LinkState.NO_PYTHON, LinkState.PROBE_FAILED, LinkState.CLOSED,
})


def _spare_the_collector() -> None:
    """What stands for every device of the fleet stays: a garbage collector that walks it all holds up the keys."""
    gc.collect()
    gc.freeze()


def run(main: Coroutine[object, object, Result]) -> Result:
    """Run *main* to its end, under uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
