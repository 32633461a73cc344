"""The queue of frames: in order, a few at a time, and never over a connection that is gone."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from clustertop.poll.inbox import AT_ONCE, Inbox


class Node:
    """Takes payloads and remembers them."""

    def __init__(self, log: list[tuple[str, float, bytes]], name: str) -> None:
        self.epoch = 0
        self._log, self._name = log, name

    def take(self, at: float, payload: bytes) -> None:
        self._log.append((self._name, at, payload))


async def until(log: list[tuple[str, float, bytes]], count: int) -> None:
    async with asyncio.timeout(60):
        while len(log) < count:
            await asyncio.sleep(0.005)


async def test_frames_are_taken_in_the_order_in_which_they_came() -> None:
    log: list[tuple[str, float, bytes]] = []
    nodes = [Node(log, "a"), Node(log, "b")]
    inbox = Inbox()
    sent = [(nodes[number % 2], float(number), b"%d" % number) for number in range(100)]
    for node, at, payload in sent:
        inbox.put(node, at, payload)
    assert log == []
    await until(log, 100)
    assert [(at, payload) for _, at, payload in log] == [(at, payload) for _, at, payload in sent]


async def test_others_run_between_two_handfuls() -> None:
    log: list[tuple[str, float, bytes]] = []
    node, inbox, seen = Node(log, "a"), Inbox(), []
    for number in range(AT_ONCE * 3):
        inbox.put(node, float(number), b"")
    async with asyncio.timeout(60):
        while len(log) < AT_ONCE * 3:
            await asyncio.sleep(0)
            seen.append(len(log))
    steps = [after - before for before, after in pairwise(seen)]
    assert max(steps) == AT_ONCE


async def test_what_came_over_an_earlier_connection_is_dropped() -> None:
    log: list[tuple[str, float, bytes]] = []
    node, other, inbox = Node(log, "a"), Node(log, "b"), Inbox()
    inbox.put(node, 1.0, b"old")
    inbox.put(other, 2.0, b"theirs")
    node.epoch += 1
    inbox.put(node, 3.0, b"new")
    await until(log, 2)
    assert log == [("b", 2.0, b"theirs"), ("a", 3.0, b"new")]
