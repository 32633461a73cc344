"""Nodes that send garbage, served by asyncssh: each is marked, bounded, and alone in its trouble."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tracemalloc
from typing import TYPE_CHECKING

import asyncssh
import pytest

from clustertop.clock import SystemClock
from clustertop.model import LinkState, NodeInfo, Request
from clustertop.poll.fleet import Fleet
from clustertop.wire.transport import PollSettings
from fleets import Remember, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Script = Callable[["Served"], Awaitable[None]]


class Served:
    """One probe as the server plays it."""

    def __init__(self, process: asyncssh.SSHServerProcess[bytes], nonce: str) -> None:
        self.process = process
        self.nonce = nonce
        self.q = 0
        self.base = 1

    def frame(self, base: int = 0) -> bytes:
        self.q += 1
        return b'{"v":1,"q":%d,"b":%d,"t":1.0,"w":2.0}' % (self.q, base or self.base)

    def line(self, payload: bytes) -> bytes:
        mark = self.nonce.encode()
        return b"@@CT1 %s %s %s CT1@@\n" % (mark, payload, mark)

    def send(self, data: bytes) -> None:
        self.process.stdout.write(data)

    async def good(self, count: int = 10**6) -> None:
        for _ in range(count):
            self.send(self.line(self.frame()))
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def servers(folder: Path, *scripts: Script) -> AsyncIterator[tuple[list[NodeInfo], PollSettings]]:
    """Serve one node for each of *scripts*; give the inventory and settings to reach them."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key.write_private_key(str(folder / "key"))
    known, nodes = [], []

    def handler(script: Script) -> Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]]:
        async def handle(process: asyncssh.SSHServerProcess[bytes]) -> None:
            text = b""
            while not text.endswith(b"nopython\n}\n"):
                more = await process.stdin.read(65536)
                assert more, "the launcher ended in another way than this server knows"
                text += more
            found = re.search(rb"^n=([0-9a-f]{16})$", text, re.MULTILINE)
            assert found is not None
            served = Served(process, found[1].decode())
            served.send(b"@@CT1 %s ready 3.8.1@@\n" % found[1])
            await process.stdin.readexactly(json.loads(await process.stdin.readline())["z"])
            with contextlib.suppress(BrokenPipeError, ConnectionError, asyncssh.Error):
                await script(served)
                process.exit(0)

        return handle

    async with contextlib.AsyncExitStack() as stack:
        for number, script in enumerate(scripts):
            listener = await asyncssh.listen(
                "127.0.0.1", 0, server_host_keys=[host_key],
                authorized_client_keys=asyncssh.import_authorized_keys(client_key.export_public_key().decode()),
                process_factory=handler(script), encoding=None,
            )  # fmt: skip
            stack.push_async_callback(listener.wait_closed)
            stack.callback(listener.close)
            port = listener.get_port()
            known.append(f"[127.0.0.1]:{port} {host_key.export_public_key().decode()}")
            nodes.append(NodeInfo(f"node{number}", "127.0.0.1", "root", port))
        (folder / "known_hosts").write_text("".join(known))
        (folder / "config").touch()
        yield nodes, PollSettings(
            interval_seconds=0.1, ssh_config=str(folder / "config"), known_hosts=str(folder / "known_hosts"),
            client_keys=(str(folder / "key"),), agent=False, retry_min_seconds=0.01, retry_max_seconds=0.05,
        )  # fmt: skip


async def good(served: Served) -> None:
    await served.good()


def garbage(data: bytes) -> Script:
    async def script(served: Served) -> None:
        await served.good(3)
        served.send(data)
        await served.good()

    return script


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x00,,,\n", None),
        (b"\xff\xfe\x80 tr\xe9ning\n", None),
        (b"\x1b]0;PWNED\x07\x1b[2J\xc2\x9b31m\n", None),
        (b"@@CT1 NONCE {\"v\":1,\"q\":\n", "without its end mark was dropped; it began: {\"v\":1,\"q\":"),
        (b"@@CT1 NONCE {,,,} NONCE CT1@@\n", "parse error: not a frame: "),
        (b"@@CT1 NONCE {\"a\":\"\xff\"} NONCE CT1@@\n", "parse error: not a frame: "),
        (b"@@CT1 NONCE {\"v\":7,\"q\":1,\"b\":1,\"t\":1,\"w\":1} NONCE CT1@@\n", "frame version 7; this console reads 1"),
        (b"@@CT1 NONCE {\"x\x1b]0;PWNED\x07\":\n", "it began: {\"x]0;PWNED\":"),
        (b"x" * (2 << 20) + b"\n", "a line that is too long was dropped; it began: xxx"),
    ],
)  # fmt: skip
async def test_only_the_node_that_sends_garbage_is_marked(
    data: bytes, words: str | None, tmp_path: Path
) -> None:
    async def bad(served: Served) -> None:
        await garbage(data.replace(b"NONCE", served.nonce.encode()))(served)

    async with servers(tmp_path, bad, good) as (nodes, settings):
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock()) as fleet:
            await until(lambda: sink.count(0) > 10 and sink.count(1) > 10, what=lambda: sink.events)
            assert sink.states(1) == [LinkState.CONNECTING, LinkState.UP]
            assert sink.state(0) is LinkState.UP
            if words is None:
                assert fleet.links[0].noise == 1
                assert fleet.links[0].noise_sample.isprintable()
                assert sink.last(0).reason == ""
            else:
                assert fleet.links[0].bad == 1
                assert words in sink.last(0).reason
                assert sink.last(0).reason.isprintable()
                await until(lambda: sink.last(0).reason == "", what="the note is taken back")


async def test_only_garbage_starts_the_probe_again(tmp_path: Path) -> None:
    runs = []

    async def bad(served: Served) -> None:
        runs.append(served)
        await served.good(2)
        for _ in range(5):
            served.send(served.line(b"{,,,}"))
        await asyncio.sleep(30)

    async with servers(tmp_path, bad) as (nodes, settings):
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock()):
            await until(lambda: len(runs) >= 3 and sink.count() >= 4, what=lambda: sink.events)
        failed = [event for event in sink.events if event.state is LinkState.PROBE_FAILED]
        assert failed[0].reason.startswith("5 bad lines in a row, the last: parse error: not a frame")


async def test_endless_line_costs_no_memory(tmp_path: Path) -> None:
    async def endless(served: Served) -> None:
        await served.good(1)
        for _ in range(160):
            served.send(b"x" * 65536)
            await served.process.stdout.drain()
        served.send(b"\n")
        await served.good()

    async with servers(tmp_path, endless, good) as (nodes, settings):
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock()) as fleet:
            await until(lambda: sink.count(0) and sink.count(1))
            tracemalloc.start()
            await until(lambda: sink.count(0) > 3)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 6 << 20
            assert fleet.links[0].bad == 1


async def test_lost_base_is_asked_for_and_frames_wait_for_it(tmp_path: Path) -> None:
    async def gap(served: Served) -> None:
        await served.good(2)
        served.base = 99
        asking = asyncio.ensure_future(served.process.stdin.readline())
        while not asking.done():
            served.send(served.line(served.frame()))
            await asyncio.sleep(0.02)
        assert (await asking) == b'{"do": "full"}\n'
        served.base = served.q + 1
        await served.good()

    async with servers(tmp_path, gap) as (nodes, settings):
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock()) as fleet:
            await until(lambda: sink.count() > 4, what=lambda: sink.events)
            assert fleet.links[0].asked_full == 1
        assert all(frame.b != 99 for frame in sink.frames[0])
        assert sink.frames[0][2].full


async def test_silent_probe_is_started_again(tmp_path: Path) -> None:
    runs = []

    async def silent(served: Served) -> None:
        runs.append(served)
        await served.good(1 if len(runs) == 1 else 0)
        if len(runs) < 3:
            await asyncio.sleep(30)
        await served.good()

    async with servers(tmp_path, silent) as (nodes, settings):
        import dataclasses

        settings = dataclasses.replace(settings, interval_seconds=0.01, silence_seconds=0.2, start_timeout_seconds=1.0)
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock()):
            await until(lambda: len(runs) == 3 and sink.state() is LinkState.UP, what=lambda: sink.events)
        reasons = [event.reason for event in sink.events if event.state is LinkState.PROBE_FAILED]
        assert reasons == ["no frame for 0.2 s", "the probe was started but sent no frame for 1 s"]


async def test_a_bug_of_ours_ends_its_node_only_and_is_raised(tmp_path: Path) -> None:
    class Broken(Remember):
        def on_frame(self, node: int, *rest: object) -> None:
            if node == 0:
                raise KeyError("a bug")
            super().on_frame(node, *rest)  # type: ignore[arg-type]

    async with servers(tmp_path, good, good) as (nodes, settings):
        sink = Broken()
        with pytest.raises(KeyError):
            async with Fleet(nodes, settings, sink, SystemClock()):
                await until(lambda: sink.state(0) is LinkState.PROBE_FAILED)
                count = sink.count(1)
                await until(lambda: sink.count(1) > count + 3)
        assert "internal error of clustertop: KeyError" in sink.last(0).reason


async def test_hundred_disconnects_leave_nothing_behind(tmp_path: Path) -> None:
    import os

    async def short(served: Served) -> None:
        await served.good(1)
        served.process.channel.get_connection().abort()

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with servers(tmp_path, short, good) as (nodes, settings):
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock()):
            await until(lambda: sink.count(0) >= 5)
            fds, tasks = descriptors(), len(asyncio.all_tasks())
            await until(lambda: sink.count(0) >= 105)
            assert sink.states(1) == [LinkState.CONNECTING, LinkState.UP]
            await until(lambda: descriptors() <= fds + 4 and len(asyncio.all_tasks()) <= tasks + 8)


async def test_requests_and_intervals_hold_over_a_reconnect(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def listen(served: Served) -> None:
        sending = asyncio.ensure_future(served.good())
        try:
            got.append(await served.process.stdin.readline())
            if len(got) > 1:
                await asyncio.sleep(30)
        finally:
            sending.cancel()

    async with servers(tmp_path, listen) as (nodes, settings):
        sink = Remember()
        async with Fleet(nodes, settings, sink, SystemClock()) as fleet:
            await until(lambda: sink.count() > 1)
            fleet.request(Request(0, {"do": "every", "group": "gpu", "seconds": 5}))
            await until(lambda: len(got) == 2, what=lambda: sink.events)
    assert got == [b'{"do": "every", "group": "gpu", "seconds": 5}\n'] * 2
