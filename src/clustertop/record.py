"""The flight recorder: the raw stream of a session in one file, and the way back.

A recording is gzipped lines. The first is a JSON header: format version, nodes with racks, leaves and groups, what is
expected of them, devices and feeds, the rules in force. Then, in the order in which they happened, where <node> counts
the nodes and behind them the devices:

    F <node> <monotonic> <wall> <frame>     a frame's payload, as the probe printed it or as a device's reading was told
    L <node> <monotonic> <wall> <state> <json [stage, reason]>
    T <monotonic> <wall>                    the rules were evaluated
    S <monotonic> <wall> <json>             what was remembered of an earlier run: devices and firing alerts

Times are our clocks', written so that they read back to the same number. The header keeps no
address, user or key; what a link event says of what could not be reached may name its address, and a device's frames
name its host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from clustertop import __version__
from clustertop.inventory import Expectation, Inventory
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.places import Device, DeviceKind, Feed, Site, Supply
from clustertop.quantity import scaled
from clustertop.rules.sanity import check
from clustertop.rules.spec import Rule  # noqa: TC001 - msgspec reads the header's types
from clustertop.state import State
from clustertop.store.catalogue import SPECS
from clustertop.store.view import Freshness
from clustertop.text import clean
from clustertop.wire.frame import FrameError, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from clustertop.core import Core
    from clustertop.plan import Plan

VERSION = 1
FLUSH_SECONDS = 2.0
"""A crash loses no more than this."""
_SAID = Annotated[list[str], msgspec.Meta(min_length=2, max_length=3)]
"""Of a link: stage, reason, and the jump hosts where there are any."""
MAX_LINE = 4 << 20
MOST_RATING = 1e6
"""No breaker carries, and no feed has, as many amperes or volts."""
MOST_SECONDS = 2.0**34
"""Past any clock, and still a date that can be written."""


class RecordingError(ValueError):
    """A file that is no recording, or that may not be written: one sentence."""


class _Node(msgspec.Struct, frozen=True):
    name: str
    rack: str = ""
    leaf: str = ""
    groups: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()


class _Expect(msgspec.Struct, frozen=True):
    nodes: list[str]
    device: str = ""
    width: int | None = None
    gpus: int | None = None
    ports: int | None = None


class _Kind(msgspec.Struct, frozen=True):
    """What the header of every version says."""

    clustertop: str
    version: int


class _Device(msgspec.Struct, frozen=True):
    name: str
    kind: DeviceKind
    of: str = ""
    rack: str = ""
    leaf: str = ""
    interval: float = 10.0


class Header(msgspec.Struct, frozen=True):
    """The first line of a recording."""

    clustertop: str
    version: int
    program: str
    at: float
    nodes: tuple[_Node, ...]
    expect: tuple[_Expect, ...]
    rules: dict[str, Rule]
    late_intervals: float
    stale_intervals: float
    settle_seconds: float = 300.0
    resume_seconds: float = 15.0
    feeds: tuple[Feed, ...] = ()
    devices: tuple[_Device, ...] = ()
    order: tuple[str, ...] = ()


class Recorder:
    """Writes a session's stream; a core's tap. Use as a context manager.

    Args:
        path: the file; it must not exist unless *force*.
        plan: the session's.
        force: overwrite.
        max_bytes: size at which recording stops; 0: none.

    Recording ends early at *max_bytes*, or when the file cannot be written (a full disk): the session goes on,
    :attr:`note` says why, and the callback of :meth:`when_ended` is called once.

    Raises:
        RecordingError: the file exists or cannot be written.
    """

    def __init__(self, path: str | Path, plan: Plan, *, force: bool = False, max_bytes: int = 0) -> None:
        self.path = Path(path)
        self.note = ""
        """Why nothing more is recorded; empty while it is."""
        self.failed = False
        """True where the file could not be written: it may lack its last seconds."""
        self._tell: Callable[[], None] = lambda: None
        self._max = max_bytes
        try:
            self._raw = self.path.open("wb" if force else "xb")
        except FileExistsError:
            raise RecordingError(
                f"{path} exists; name another file, or overwrite it with clustertop record --force") from None
        except OSError as error:
            raise RecordingError(f"{path} cannot be written: {error.strerror}") from None
        self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=3, mtime=0)
        self._flushed = time.monotonic()
        self._write(msgspec.json.encode(_header(plan)) + b"\n")
        self._flush()
        if self.failed:
            self.close()
            if not force:  # it is ours and empty, and would be in the way of the next try
                self.path.unlink(missing_ok=True)
            raise RecordingError(self.note)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Call *tell* when recording ends early; at once if it has."""
        self._tell = tell
        if self.note:
            tell()

    def close(self) -> None:
        """End the file. What cannot be written any more is told by :attr:`note`."""
        for file in (self._file, self._raw):
            try:
                file.close()
            except OSError as error:
                self._fail(error)

    def frame(self, node: int, at: float, wall: float, raw: bytes) -> None:
        """A frame's payload as it arrived."""
        self._write(b"F %d %b %b %b\n" % (node, _exact(at), _exact(wall), raw))

    def link(self, event: LinkEvent, wall: float) -> None:
        """A link changed."""
        said = msgspec.json.encode([event.stage, event.reason, *([event.via] if event.via else [])])
        self._write(b"L %d %b %b %d %b\n" % (event.node, _exact(event.at), _exact(wall), event.state, said))

    def tick(self, at: float, wall: float) -> None:
        """The rules are evaluated at this moment."""
        self._write(b"T %b %b\n" % (_exact(at), _exact(wall)))
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flush()

    def recall(self, state: State, at: float, wall: float) -> None:
        """What an earlier run left is taken up at this moment; what its operators did is theirs."""
        kept = msgspec.structs.replace(state, acks=(), silences=(), dropped={})
        self._write(b"S %b %b %b\n" % (_exact(at), _exact(wall), msgspec.json.encode(kept)))

    def _write(self, line: bytes) -> None:
        if self.note:
            return
        try:
            self._file.write(line)
        except OSError as error:
            self._fail(error)

    def _flush(self) -> None:
        if self.note:
            return
        self._flushed = time.monotonic()
        try:
            self._file.flush()
            self._raw.flush()
            size = self._raw.tell()
        except OSError as error:
            self._fail(error)
            return
        if self._max and size >= self._max:
            self._end(f"recording stopped: {self.path} has reached {scaled(self._max, 'B')}")

    def _fail(self, error: OSError) -> None:
        self.failed = True
        self._end(f"recording stopped: {self.path} cannot be written: {error.strerror or error}")

    def _end(self, note: str) -> None:
        if not self.note:
            self.note = note
            self._tell()


@contextlib.contextmanager
def recording(path: str | None, plan: Plan, *, force: bool = False, max_bytes: int = 0) -> Iterator[Recorder | None]:
    """A recorder on *path*, or None where there is no path. Raises RecordingError."""
    if not path:
        yield None
        return
    with Recorder(path, plan, force=force, max_bytes=max_bytes) as recorder:
        yield recorder


def _exact(value: float) -> bytes:
    return repr(value).encode("ascii")


def _time(text: bytes) -> float:
    """A time as :func:`_exact` wrote it. Raises ValueError, also for one that no clock shows."""
    value = float(text)
    if not 0 <= value <= MOST_SECONDS:
        raise ValueError("no such time")
    return value


def _header(plan: Plan) -> Header:
    inventory = plan.inventory
    freshness = plan.freshness or Freshness()
    return Header(
        "recording", VERSION, __version__, time.time(),
        tuple(_Node(node.name, node.rack, node.leaf, node.groups, node.leaves) for node in inventory.nodes),
        tuple(_Expect(sorted(one.nodes), one.device, one.width, one.gpus, one.ports) for one in inventory.expectations),
        dict(plan.rules), freshness.late_intervals, freshness.stale_intervals, plan.settle_seconds,
        plan.resume_seconds, plan.site.feeds,
        tuple(_Device(one.name, one.kind, one.of, one.rack, one.leaf, one.interval_seconds)
              for one in plan.site.devices), plan.site.order,
    )


def _checked(header: Header) -> Header:
    """Return *header*, which anyone may have written, with its text fit to be shown. Raises ValueError."""
    nodes = tuple(
        _Node(clean(node.name, 128), clean(node.rack, 128), clean(node.leaf, 128),
              tuple(clean(group, 128) for group in node.groups), tuple(clean(leaf, 128) for leaf in node.leaves))
        for node in header.nodes)
    if len({node.name for node in nodes}) != len(nodes):
        raise ValueError("two nodes have one name")
    devices = tuple(
        _Device(clean(one.name, 128), one.kind, clean(one.of, 128), clean(one.rack, 128), clean(one.leaf, 128),
                one.interval)
        for one in header.devices)
    if not all(0 < one.interval <= MOST_SECONDS for one in devices):
        raise ValueError("a device has an interval that cannot be")
    feeds = tuple(_clean_feed(feed) for feed in header.feeds)
    rules = {
        clean(name, 64): msgspec.structs.replace(
            rule, title=clean(rule.title), hint=clean(rule.hint), look=clean(rule.look), source=clean(rule.source))
        for name, rule in header.rules.items()}
    check(rules, {spec.name: spec for spec in SPECS})
    return msgspec.structs.replace(header, nodes=nodes, devices=devices, feeds=feeds, rules=rules,
                                   order=tuple(clean(name, 128) for name in header.order))


def _clean_feed(feed: Feed) -> Feed:
    """The feed with its text fit to be shown. Raises ValueError."""
    numbers = (feed.rating_amps, feed.volts)
    if feed.phases not in (1, 3) or not all(number is None or 0 < number < MOST_RATING for number in numbers):
        raise ValueError(f"feed {clean(feed.name, 60)} has phases, a rating or volts that cannot be")
    supplies = tuple(Supply(clean(one.node, 128), tuple(clean(psu, 128) for psu in one.psus)) for one in feed.supplies)
    return dataclasses.replace(
        feed, name=clean(feed.name, 128), pair=clean(feed.pair, 128), rack=clean(feed.rack, 128),
        pdu=clean(feed.pdu, 128), part=clean(feed.part, 128), supplies=supplies)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: a frame, a link event, a memory, or, with none of them, an evaluation."""

    at: float
    wall: float
    node: int = -1
    raw: bytes = b""
    link: LinkEvent | None = None
    state: State | None = None


class Recording:
    """A recording to be read.

    Raises:
        RecordingError: the file cannot be read or is no recording of a version that this program knows.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.note = ""
        """Why the file ends before its end, if it does."""
        with self._lines() as lines:
            first = next(lines, b"")
        if not first:
            raise RecordingError(f"{path} is not a clustertop recording{f': {self.note}' if self.note else ''}")
        try:
            kind = msgspec.json.decode(first, type=_Kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RecordingError(f"{path} is not a clustertop recording") from None
        if kind.clustertop != "recording" or kind.version != VERSION:
            raise RecordingError(f"{path} is a recording of version {kind.version}; this program reads {VERSION}")
        try:
            self.header = _checked(msgspec.json.decode(first, type=Header))
        except (ValueError, UnicodeDecodeError) as error:
            raise RecordingError(f"{path} is a recording whose header is wrong: {clean(str(error), 160)}") from None

    @property
    def inventory(self) -> Inventory:
        """The nodes as they were."""
        nodes = tuple(NodeInfo(node.name, rack=node.rack, leaf=node.leaf, groups=node.groups, leaves=node.leaves)
                      for node in self.header.nodes)
        expectations = tuple(Expectation(frozenset(one.nodes), one.device, one.width, one.gpus, one.ports)
                             for one in self.header.expect)
        return Inventory(nodes, expectations=expectations, index={node.name: at for at, node in enumerate(nodes)})

    @property
    def site(self) -> Site:
        """Feeds and devices as they were; none of these can be asked."""
        return Site(self.header.feeds, tuple(
            Device(one.name, one.kind, None, of=one.of, rack=one.rack, leaf=one.leaf, interval_seconds=one.interval)
            for one in self.header.devices), order=self.header.order)

    def steps(self) -> Iterator[Step]:
        """Everything that happened, in order. A file that was cut short ends early, and :attr:`note` says so."""
        with self._lines() as lines:
            next(lines, b"")
            for line in lines:
                try:
                    yield self._step(line)
                except (ValueError, IndexError, msgspec.DecodeError):
                    self.note = f"a line that is no part of a recording: {clean(line, 60)}"
                    return

    def _step(self, line: bytes) -> Step:
        kind = line[:2]
        if kind == b"T ":
            at, wall = line[2:].split()
            return Step(_time(at), _time(wall))
        if kind == b"S ":
            at, wall, rest = line[2:].split(b" ", 2)
            return Step(_time(at), _time(wall), state=msgspec.json.decode(rest, type=State))
        _, number, at, wall, rest = line.split(b" ", 4)
        node = int(number)
        if not 0 <= node < len(self.header.nodes) + len(self.header.devices):
            raise ValueError("no such node or device")
        if kind == b"F ":
            return Step(_time(at), _time(wall), node, rest)
        if kind != b"L ":
            raise ValueError("no such step")
        state, said = rest.split(b" ", 1)
        stage, reason, *via = msgspec.json.decode(said, type=_SAID)
        event = LinkEvent(node, _time(at), LinkState(int(state)), clean(stage, 40), clean(reason),
                          clean("".join(via), 120))
        return Step(event.at, _time(wall), node, link=event)

    @contextlib.contextmanager
    def _lines(self) -> Iterator[Iterator[bytes]]:
        try:
            file = gzip.open(self.path, "rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be read: {error.strerror}") from None
        with file:
            yield self._read(file)

    def _read(self, file: gzip.GzipFile) -> Iterator[bytes]:
        while True:
            try:
                line = file.readline(MAX_LINE)
            except EOFError:
                self.note = "the file ends in the middle: the recorder was interrupted"
                return
            except (gzip.BadGzipFile, zlib.error, OSError):
                self.note = "it is damaged from here on"
                return
            if not line.endswith(b"\n"):
                if line:
                    self.note = "the file ends in the middle of a line"
                return
            yield line[:-1]


def play(core: Core, step: Step) -> bool:
    """Let *core* live through *step*; returns True after an evaluation."""
    if step.state is not None:
        core.recall(step.state, step.at, step.wall)
    elif step.link is not None:
        core.on_link(step.link, step.wall)
    elif step.node >= 0:
        # A frame that could not be decoded was not recorded; one that was damaged since is left out.
        with contextlib.suppress(FrameError):
            core.on_frame(step.node, step.at, step.wall, decode(step.raw), step.raw)
    else:
        core.tick(step.at, step.wall)
        return True
    return False
