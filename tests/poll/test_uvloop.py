"""The same under uvloop, which the command line uses where it is installed."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from clustertop.clock import SystemClock
from clustertop.model import LOCAL_HOST, LinkState, NodeInfo, Request
from clustertop.poll.fleet import Fleet
from fleets import STANDIN_BODY, Remember, until
from ports import free_port
from sshd import running

if TYPE_CHECKING:
    from pathlib import Path

uvloop = pytest.importorskip("uvloop")


@pytest.mark.sshd
def test_good_dead_mute_and_local_nodes(tmp_path: Path) -> None:
    with running(tmp_path) as server, socket.create_server(("127.0.0.1", 0)) as mute:
        nodes = [
            server.node(),
            NodeInfo("dead", "127.0.0.1", port=free_port()),
            NodeInfo("mute", "127.0.0.1", port=mute.getsockname()[1]),
            NodeInfo("here", LOCAL_HOST),
            NodeInfo("no-such-host.invalid"),
        ]
        sink = Remember()

        async def go() -> None:
            settings = server.settings(connect_timeout_seconds=1.0)
            async with Fleet(nodes, settings, sink, SystemClock(), body=STANDIN_BODY) as fleet:
                await until(lambda: sink.count(0) >= 2 and sink.count(3) >= 2, what=lambda: sink.events)
                server.kill_sessions()
                fleet.request(Request(3, {"do": "fail"}))
                await until(lambda: LinkState.UNREACHABLE in sink.states(0))
                await until(lambda: LinkState.PROBE_FAILED in sink.states(3))
                await until(lambda: sink.state(0) is sink.state(3) is LinkState.UP, what=lambda: sink.events)
                await until(
                    lambda: {sink.state(node) for node in (1, 2, 4)} == {LinkState.UNREACHABLE},
                    what=lambda: sink.events,
                )
                assert [sink.last(node).stage for node in (1, 2, 4)] == ["tcp", "banner", "name"]
                async with asyncio.timeout(60):
                    await fleet.close()

        uvloop.run(go())
        assert {sink.state(node) for node in range(5)} == {LinkState.CLOSED}
