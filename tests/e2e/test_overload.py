"""An overloaded feed: the demo's simulator, its SNMP agents and the console's own client, with the clock in our hands.

It takes five minutes of the simulated time, and seconds of ours.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from clustertop.core import Core
from clustertop.demo.cluster import Cluster
from clustertop.demo.devices import Devices
from clustertop.demo.faults import parse
from clustertop.demo.site import make_site
from clustertop.model import LinkEvent, LinkState, NodeInfo, Severity
from clustertop.poll.device_frames import encoded, frame
from clustertop.poll.readers import reader_of
from clustertop.rules.spec import builtin

if TYPE_CHECKING:
    from pathlib import Path

    from clustertop.model import Transition

EVERY = 10
"""Seconds between two readings of a PDU, as the demo's site has it."""
BEGINS = 20
ENDS = 345
NODE, FEED = "gpu003", "r1-A1"
ZERO = 5_000.0


class Hand:
    """A clock that stands where it was put, and the demo that goes by it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.at = 0.0

    def now(self) -> float:
        """The demo's time: seconds since its first frame."""
        self.cluster.simulator.advance(self.at)
        return self.at

    def monotonic(self) -> float:
        """The console's clock."""
        return ZERO + self.at

    def wall(self) -> float:
        """The console's wall clock."""
        return 1_790_000_000.0 + self.at


async def test_warning_comes_before_critical_before_the_rating_and_the_forecast_holds(tmp_path: Path) -> None:
    hand = Hand(Cluster(8, 7, [parse(f"pdu-overload@{NODE}:{BEGINS}")]))
    servers = Devices(hand, tmp_path)  # type: ignore[arg-type]
    seen: list[Transition] = []
    share: list[float] = []
    """Of the feed's breaker as the simulator has it, second by second."""
    foretold: dict[str, list[tuple[int, float]]] = {"to_critical_seconds": [], "to_rating_seconds": []}
    try:
        site = make_site(hand.cluster.plan, hand.cluster.wiring, tmp_path, await servers.start())
        site = replace(site, devices=tuple(one for one in site.devices if one.kind == "pdu"))
        nodes = tuple(NodeInfo(one.name, rack=one.rack) for one in hand.cluster.plan.nodes)
        core = Core(nodes, builtin(), site=site, settle_seconds=0.0)
        core.listen(seen.extend)
        readers = [reader_of(one, hand, None, EVERY) for one in site.devices]  # type: ignore[arg-type]
        row = [one.name for one in site.feeds].index(FEED)
        for number in range(len(readers)):
            core.on_link(LinkEvent(len(nodes) + number, hand.monotonic(), LinkState.UP), hand.wall())
        for second in range(ENDS):
            hand.at = float(second)
            hand.now()
            share.append(float(hand.cluster.power.share()[row]))
            if second % EVERY == 0:
                for number, reader in enumerate(readers):
                    told = await reader.read(hand.monotonic())
                    assert told.state is LinkState.UP, told.reason
                    parts = {name: msgspec.structs.replace(part, n=second // EVERY + 1, iv=float(EVERY))
                             for name, part in told.parts.items()}
                    made, raw = encoded(frame(second // EVERY + 1, hand.monotonic(), hand.wall(), parts, told.facts, {}))
                    core.on_frame(len(nodes) + number, hand.monotonic(), hand.wall(), made, raw)
            core.tick(hand.monotonic(), hand.wall())
            if second % EVERY == 0:
                assert core.snapshot is not None
                for name, found in foretold.items():
                    seconds = core.snapshot.view["feed"].value(name, row)
                    if seconds:
                        found.append((second, seconds))
        for reader in readers:
            await reader.aclose()
    finally:
        servers.close()

    shares = np.array(share)
    truly = {level: int(np.argmax(shares >= level)) for level in (0.8, 0.875, 1.0)}
    assert BEGINS < truly[0.8] < truly[0.875] < truly[1.0] < ENDS
    told = [(round(change.at - ZERO), change.rule, change.kind, change.severity) for change in seen
            if change.thing.node == FEED and change.rule in {"feed_current", "feed_forecast"}]
    first = {(rule, severity): at for at, rule, kind, severity in reversed(told) if kind in {"raised", "worsened"}}
    forecast = first["feed_forecast", Severity.WARNING]
    warning, critical = first["feed_current", Severity.WARNING], first["feed_current", Severity.CRITICAL]
    print(truly, told, foretold)
    # Minutes of notice, then each level within two polls of the moment, and all of it before the breaker's rating.
    assert forecast + 60 < truly[0.8]
    assert truly[0.8] <= warning <= truly[0.8] + 2 * EVERY
    assert truly[0.875] <= critical <= truly[0.875] + 2 * EVERY
    assert warning < critical < truly[1.0]
    # From a minute and a half of the climb on, a forecast is what then comes.
    for name, level in (("to_critical_seconds", 0.875), ("to_rating_seconds", 1.0)):
        wrong = [abs(seconds - (truly[level] - at)) / (truly[level] - at) for at, seconds in foretold[name]
                 if BEGINS + 90 <= at <= truly[level] - 30]
        assert len(wrong) >= 8
        assert max(wrong) < 0.2, wrong
        assert median(wrong) < 0.1, wrong
    # No other feed is told of for a load that is not its own.
    assert {change.thing.node for change in seen if change.rule in {"feed_current", "feed_forecast"}} == {FEED}
