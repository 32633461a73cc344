"""Helpers of the wire and poll tests: a stand-in probe, a sink that remembers, waiting for a condition."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from clustertop.model import LinkEvent, LinkState
from clustertop.wire import bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from clustertop.wire.frame import Frame

STANDIN = '''
import json, os, select, sys, time

def main(args):
    nonce = args["nonce"]
    q, base, asked = 0, 1, []
    while True:
        q += 1
        if asked and asked[-1].get("do") == "full":
            base = q
        frame = {"v": 1, "q": q, "b": base, "t": time.monotonic(), "w": time.time(), "m": {"asked": len(asked)},
                 "h": {"python": sys.version.split()[0]}}
        line = "@@CT1 %s %s %s CT1@@\\n" % (nonce, json.dumps(frame), nonce)
        os.write(1, line.encode("ascii"))
        if select.select([0], [], [], args["every"]["gpu"])[0]:
            data = os.read(0, 65536)
            if not data:
                return
            for text in data.decode("ascii").splitlines():
                asked.append(json.loads(text))
                if asked[-1].get("do") == "stop":
                    return
                if asked[-1].get("do") == "fail":
                    raise ValueError("\\x1b]0;no such\\x07 thing")
'''


def pack_probe(source: str) -> bytes:
    """Return a bundle body whose probe is *source*."""
    return bundle.pack([(bundle.PACKAGE, ""), (bundle.PACKAGE + ".loop", source)])


STANDIN_BODY = pack_probe(STANDIN)


class Remember:
    """A sink, and a transport's receiver, that keeps what it was given."""

    def __init__(self) -> None:
        self.events: list[LinkEvent] = []
        self.frames: dict[int, list[Frame]] = {}
        self.payloads: list[bytes] = []
        self.noises: list[tuple[str, bytes]] = []

    def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
        assert at <= time.monotonic()
        assert raw.startswith(b"{")
        self.frames.setdefault(node, []).append(frame)

    def on_link(self, event: LinkEvent) -> None:
        self.events.append(event)

    def on_payload(self, payload: bytes) -> None:
        self.payloads.append(payload)

    def on_noise(self, kind: str, sample: bytes) -> None:
        self.noises.append((kind, sample))

    def state(self, node: int = 0) -> LinkState:
        """The last state of *node*."""
        return self.last(node).state

    def last(self, node: int = 0) -> LinkEvent:
        """The last link event of *node*."""
        own = [event for event in self.events if event.node == node]
        return own[-1] if own else LinkEvent(node, 0.0, LinkState.WAITING)

    def states(self, node: int = 0) -> list[LinkState]:
        """All states of *node* in order."""
        return [event.state for event in self.events if event.node == node]

    def count(self, node: int = 0) -> int:
        """How many frames of *node* there were."""
        return len(self.frames.get(node, ()))


async def until(condition: Callable[[], object], seconds: float = 60.0, what: object = "") -> None:
    """Wait until *condition* holds; fail the test after *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        shown = what() if callable(what) else what
        assert time.monotonic() < deadline, f"it did not come to pass within {seconds} s: {shown}"
        await asyncio.sleep(0.01)
