"""A node without Python: a POSIX shell script answers, and its raw text becomes ordinary frames here.

``sh_probe.sh`` reads requests on the same channel and prints the texts of files and of nvidia-smi; it interprets
nothing. What it says is turned into the tables of ``docs/wire.md`` by :mod:`clustertop.wire.shtables`, and those
into frames by the probe's own encoder: a recording holds the same as of any other node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from clustertop.probe.frames import Encoder, Group
from clustertop.probe.gpu import RELEASED
from clustertop.wire.shanswer import Section
from clustertop.wire.shgpus import Gpus
from clustertop.wire.shtables import Host, Pcie, Rdma

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clustertop.model import Attr
    from clustertop.wire.shanswer import Reader
    from clustertop.wire.transport import PollSettings

NOTE = "no Python there: sh probe"
"""What is said of such a node while its link is up."""
SMI_SECONDS = 10.0
"""Least time between two nvidia-smi: each of them starts the whole library anew."""
SELDOM_SECONDS = 10.0
PCIE_LIST_SECONDS = 60.0
MAX_LINES = 4096
"""Most lines of one answer that are kept."""
FULL_SECONDS = 60.0


@cache
def _source() -> str:
    text = resources.files("clustertop.wire").joinpath("sh_probe.sh").read_text("utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("# "))


def script(nonce: str, root: str = "") -> bytes:
    """Return what is sent to the node's shell; *root* is another root of /proc and /sys."""
    return f"n={nonce}\nR={shlex.quote(root.rstrip('/'))}\n{_source()}".encode()


class _Asked:
    """One group: when it is asked, what it has answered so far, and its last reading."""

    __slots__ = ("asked_at", "cost", "due", "effective", "error", "interval", "lines", "number", "reader", "seldom",
                 "state", "time", "whole_at")

    def __init__(self, reader: Reader, interval: float, seldom: float) -> None:
        self.reader = reader
        self.interval = self.effective = interval
        self.seldom = seldom
        """Seconds between two requests for everything, names and slow counters included."""
        self.due = 0.0
        self.whole_at = float("-inf")
        self.asked_at: float | None = None
        self.lines: list[bytes] = []
        self.number = 0
        self.time = 0.0
        self.cost = 0.0
        self.state, self.error = "wait", ""

    @property
    def deadline(self) -> float:
        """Seconds after which an answer counts as hung."""
        return max(2.0 * self.interval, 3.0)


class ShProbe:
    """Asks the script, at the intervals of *settings*, and hands on frames.

    Args:
        settings: intervals and root.
        nonce: of this connection.
        write: sends bytes to the node.
        deliver: gets each frame's text.
        released: the operator had the GPUs let go: True, or our time at which.
    """

    def __init__(
        self, settings: PollSettings, nonce: str, write: Callable[[bytes], None], deliver: Callable[[bytes], None],
        released: object = None,
    ) -> None:
        self._settings = settings
        self._nonce = nonce
        self._send = write
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._encoder = Encoder(FULL_SECONDS)
        self._uptime: float | None = None
        self._uptime_at = 0.0
        self._clock = 0.0
        self._released = False
        self._since: object = None
        self._wall_offset: float | None = None
        self._heard = False
        self._framed = False
        every = max(settings.interval_seconds, 0.1)
        self._groups: dict[str, _Asked] = {
            "host": _Asked(Host(), every, SELDOM_SECONDS),
            "rdma": _Asked(Rdma(), every, SELDOM_SECONDS),
            "pcie": _Asked(Pcie(), max(settings.pcie_interval_seconds, every), PCIE_LIST_SECONDS),
            "gpu": _Asked(Gpus(), max(every, SMI_SECONDS), 0.0),
        }
        if released:
            self._release(True, released)

    def send_script(self) -> None:
        """Send the script; :meth:`start` is for when it has said that it runs."""
        self._write(script(self._nonce, self._settings.root))

    def start(self) -> None:
        """Begin to ask."""
        if self._timer is None:
            self._tick()

    def stop(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def request(self, body: Mapping[str, object]) -> None:
        """Obey a request to a probe: ``full``, ``every`` or ``stop``; others are ignored."""
        what = body.get("do")
        if what == "full":
            self._encoder.want_full()
        elif what == "stop":
            self.stop()
            self._write(b"stop\n")
        elif what in ("release", "take") and body.get("group", "gpu") == "gpu":
            self._release(what == "release", body.get("at"))
        elif what == "every":
            asked, seconds = self._groups.get(str(body.get("group"))), body.get("seconds")
            if asked is not None and isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
                asked.interval = asked.effective = min(max(float(seconds), 0.1), 3600.0)
                asked.due = min(asked.due, self._loop.time() + asked.interval)

    def _release(self, released: bool, since: object) -> None:
        """Between two nvidia-smi nothing is held; to let go is to start no more of them."""
        asked = self._groups["gpu"]
        self._released, self._since = released, since
        if released:
            asked.reader.let_go(RELEASED)
            asked.state, asked.error = asked.reader.state, asked.reader.error
            asked.number += 1
            self._heard = True
        else:
            asked.due = self._loop.time()

    def _write(self, data: bytes) -> None:
        # A channel that is gone ends the talk by its own word, a moment later.
        with contextlib.suppress(OSError):
            self._send(data)

    # ------------------------------------------------------------------- asking

    def _tick(self) -> None:
        now = self._loop.time()
        # The last round's answers are in the frame by now, or late: then the frame goes without them.
        if self._heard and not self._framed:
            self._frame()
        self._framed = False
        for name, asked in self._groups.items():
            if asked.asked_at is None and asked.due <= now:
                if self._released and name == "gpu":
                    self._still_released(asked, now)
                else:
                    self._ask(name, asked, now)
                asked.due += asked.effective
                if asked.due <= now:
                    asked.due = now + asked.effective
        least = min(asked.interval for asked in self._groups.values())
        self._timer = self._loop.call_later(least, self._tick)

    def _still_released(self, asked: _Asked, now: float) -> None:
        """What is released says so at its interval: that is neither an error nor old."""
        asked.number += 1
        self._heard = True
        if self._uptime is not None:
            asked.time = self._uptime + (now - self._uptime_at)

    def _ask(self, name: str, asked: _Asked, now: float) -> None:
        asked.asked_at = now
        asked.lines.clear()
        if isinstance(asked.reader, Gpus):
            self._write(asked.reader.question(max(1, int(asked.deadline) - 1)).encode())
            return
        whole = asked.reader.incomplete or now - asked.whole_at >= asked.seldom - 0.5
        if whole:
            asked.whole_at = now
        self._write(f"{name} {'all' if whole else 'some'}\n".encode())

    # ---------------------------------------------------------------- answering

    def on_payload(self, payload: bytes) -> None:
        """Take a line of the script, without its marks."""
        name, _, rest = payload[1:].partition(b"\t")
        asked = self._groups.get(name.decode("ascii", "replace"))
        if asked is None or asked.asked_at is None:
            return
        if len(asked.lines) < MAX_LINES:
            asked.lines.append(rest)
        if rest.startswith(b"end=") or b"\tend=" in rest[-64:]:
            self._answered(asked)

    def _answered(self, asked: _Asked) -> None:
        assert asked.asked_at is not None
        now = self._loop.time()
        section = Section(asked.lines)
        asked.lines = []
        begun, over = section.number("begin"), section.number("end")
        if begun is None or over is None:
            # No /proc/uptime there: our own clock has to do, which is as steady.
            begun, over = asked.asked_at, now
        self._uptime, self._uptime_at = max(over, self._uptime or 0.0), now
        asked.asked_at = None
        if self._released and asked is self._groups["gpu"]:
            return
        again = asked.reader.take(section)
        if again:
            asked.due = now
            self._ask_soon(asked, now)
            return
        asked.number += 1
        asked.time, asked.cost = begun, max(over - begun, 0.0)
        asked.state, asked.error = asked.reader.state, asked.reader.error
        wanted = max(asked.interval, 4.0 * min(asked.cost, asked.deadline))
        asked.effective = max(wanted, asked.effective / 2.0) if wanted < asked.effective else wanted
        if isinstance(asked.reader, Host) and asked.reader.wall is not None:
            self._wall_offset = asked.reader.wall - over
            asked.reader.wall = None
        self._heard = True
        first = asked.number == 1 and isinstance(asked.reader, Gpus)
        if first or (not self._framed and not self._awaited(now)):
            self._frame()

    def _ask_soon(self, asked: _Asked, now: float) -> None:
        if self._timer is not None:
            name = next(name for name, one in self._groups.items() if one is asked)
            self._ask(name, asked, now)

    def _awaited(self, now: float) -> bool:
        """True while a group that is quick was asked and may still answer in time."""
        return any(
            asked.asked_at is not None and now - asked.asked_at < asked.deadline
            for name, asked in self._groups.items()
            if name != "gpu"
        )

    def _frame(self) -> None:
        if self._timer is None or self._uptime is None or not self._groups["host"].number:
            return
        self._framed = True
        self._heard = False
        now = self._loop.time()
        clock = self._clock = max(self._uptime + (now - self._uptime_at), self._clock)
        facts: dict[str, Attr] = {}
        groups: dict[str, Group] = {}
        for name, asked in self._groups.items():
            facts.update(asked.reader.facts)
            group = Group(asked.time if asked.number else clock, asked.effective, asked.reader.tables,
                          asked.cost * 1000.0, asked.state, "", asked.error, asked.number, asked.interval)
            if group.st == "hung":
                group.e, group.w = "", group.e
            if asked.asked_at is not None and now - asked.asked_at >= asked.deadline:
                group.st, group.e, group.w = "hung", "", asked.reader.waits_for(Section(asked.lines))
                if not asked.number:
                    group.t = clock - (now - asked.asked_at)
            groups[name] = group
        facts["probe"] = "sh"
        if self._released and isinstance(self._since, int | float) and not isinstance(self._since, bool):
            facts["gpus_released"] = float(self._since)
        wall = clock + self._wall_offset if self._wall_offset is not None else 0.0
        frame = self._encoder.encode(groups, clock, wall, {}, facts)
        self._deliver(json.dumps(frame, separators=(",", ":")).encode("ascii"))
