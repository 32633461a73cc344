"""Alerts of feeds and devices over a restart: acknowledged, silenced, still firing, and not told a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clustertop.memory import Memory
from clustertop.model import LinkState, NodeInfo
from feeds import Feed, Place, Supply

if TYPE_CHECKING:
    from pathlib import Path

    from clustertop.model import Alert

HOUR = 3600.0


class Watched(Place):
    """A place with a memory, which goes on where another ended."""

    def __init__(self, path: Path, after: Watched | None = None) -> None:
        hung = (Supply("n0"), Supply("n1"))
        # With enough others that are well, each has an alert of its own.
        super().__init__([Feed(name.upper(), 32.0, 230.0, rack=f"r{place}", pdu=f"pdu-{name}", supplies=hung)
                          for place, name in enumerate("abcdefghijkl", 1)],
                         (NodeInfo("n0"), NodeInfo("n1")), ("n0", "n1"))
        if after is not None:
            self.now = after.now + 60.0
        self.memory = Memory(path, self.core, keep=True)
        self.memory.recall(self.now, self.now)

    def loaded(self, times: int = 4, a: float = 29.0, b: float = 29.0) -> Watched:
        for _ in range(times):
            self.read(pdu_a=a, pdu_b=b, **{f"pdu_{name}": 5.0 for name in "cdefghijkl"})
            self.memory.look(self.now)
        return self

    def alert(self, feed: str, rule: str = "feed_current") -> Alert:
        (found,) = [one for one in self.alerts if one.rule == rule and one.thing.node == feed]
        return found

    def loud(self) -> list[tuple[str, str, str]]:
        return [(one.kind, one.rule, one.thing.node) for one in self.seen if not one.quiet]

    async def end(self) -> None:
        for _ in range(3):
            self.memory.look(self.now)
        await self.memory.close()


@pytest.mark.parametrize("where", ["B", "r2", "feed:B:"])
async def test_what_was_done_about_feeds_holds_after_a_restart(tmp_path: Path, where: str) -> None:
    first = Watched(tmp_path / "state.json").loaded()
    first.core.acknowledge(first.alert("A"), by="me", reason="known")
    first.core.silence(where, "feed_current", HOUR, by="me", reason="breaker work")
    first.loaded(1)
    assert (first.alert("A").acked, first.alert("B").silenced) == (True, True)
    since = first.alert("A").since_wall
    await first.end()

    again = Watched(tmp_path / "state.json", first)
    again.tick()
    # Before anything was read it fires as it did: a restart is no good news.
    assert (again.alert("A").acked, again.alert("A").since_wall) == (True, since)
    assert again.alert("B").silenced
    again.loaded()
    assert again.alert("A").note == "known"
    assert [one for one in again.loud() if one[1] == "feed_current"] == []
    # Worse than when it was acknowledged is told again; well again is the end of it.
    again.loaded(6, a=3.0)
    assert not any(one.thing.node == "A" and one.rule == "feed_current" for one in again.alerts)
    again.loaded(4, a=29.0)
    assert not again.alert("A").acked
    assert ("raised", "feed_current", "A") in again.loud()
    await again.end()


async def test_a_silent_bmc_that_somebody_knows_of_stays_known(tmp_path: Path) -> None:
    first = Watched(tmp_path / "state.json").loaded()
    first.link("n0-bmc", LinkState.UNREACHABLE, "no answer from n0-bmc")
    for _ in range(60):
        first.tick(1.0)
    first.core.acknowledge(first.alert("n0-bmc", "device_unreachable"), by="me", reason="being replaced")
    first.tick(1.0)
    await first.end()

    again = Watched(tmp_path / "state.json", first)
    again.link("n0-bmc", LinkState.UNREACHABLE, "no answer from n0-bmc")
    for _ in range(60):
        again.tick(1.0)
    assert again.alert("n0-bmc", "device_unreachable").acked
    assert [one for one in again.loud() if one[1] == "device_unreachable"] == []
    await again.end()


async def test_a_feed_that_is_configured_no_more_is_forgotten(tmp_path: Path) -> None:
    first = Watched(tmp_path / "state.json").loaded()
    await first.end()
    other = Place([Feed("Z", 32.0, 230.0, pdu="pdu-z")])
    memory = Memory(tmp_path / "state.json", other.core, keep=True)
    memory.recall(other.now, other.now)
    other.read(pdu_z=5.0)
    assert other.alerts == []
    await memory.close()
