"""The flight recorder: the raw stream of a session in one file, and the way back.

A recording is gzipped lines. The first is a JSON header: format version, nodes with racks, leaves and groups, what is
expected of them, the rules in force. Then, in the order in which they happened:

    F <node> <monotonic> <wall> <frame>     a frame's payload, as the probe printed it
    L <node> <monotonic> <wall> <state> <json [stage, reason]>
    T <monotonic> <wall>                    the rules were evaluated

Times are our clocks', written so that they read back to the same number. No address, user or key is kept.
"""

from __future__ import annotations

import contextlib
import gzip
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from clustertop import __version__
from clustertop.inventory import Expectation, Inventory
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.rules.spec import Rule  # noqa: TC001 - msgspec reads the annotation
from clustertop.store.view import Freshness
from clustertop.text import clean
from clustertop.wire.frame import FrameError, decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from clustertop.core import Core
    from clustertop.plan import Plan

VERSION = 1
FLUSH_SECONDS = 2.0
"""A crash loses no more than this."""
MAX_LINE = 4 << 20


class RecordingError(ValueError):
    """A file that is no recording, or that may not be written: one sentence."""


class _Node(msgspec.Struct, frozen=True):
    name: str
    rack: str = ""
    leaf: str = ""
    groups: tuple[str, ...] = ()


class _Expect(msgspec.Struct, frozen=True):
    nodes: list[str]
    device: str = ""
    width: int | None = None
    gpus: int | None = None


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


class Recorder:
    """Writes a session's stream; a core's tap. Use as a context manager.

    Args:
        path: the file; it must not exist unless *force*.
        plan: the session's.
        force: overwrite.
        max_bytes: size at which recording stops, with :attr:`full` set; 0: none.

    Raises:
        RecordingError: the file exists or cannot be written.
    """

    def __init__(self, path: str | Path, plan: Plan, *, force: bool = False, max_bytes: int = 0) -> None:
        self.path = Path(path)
        self.full = False
        self._max = max_bytes
        try:
            self._raw = self.path.open("wb" if force else "xb")
        except FileExistsError:
            raise RecordingError(f"{path} exists; --force overwrites it") from None
        except OSError as error:
            raise RecordingError(f"{path} cannot be written: {error.strerror}") from None
        self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=3, mtime=0)
        self._flushed = time.monotonic()
        self._write(msgspec.json.encode(_header(plan)) + b"\n")
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the file."""
        self._file.close()
        self._raw.close()

    @property
    def bytes_written(self) -> int:
        """Size of the file so far."""
        return self._raw.tell()

    def frame(self, node: int, at: float, wall: float, raw: bytes) -> None:
        """A frame's payload as it arrived."""
        self._write(b"F %d %b %b %b\n" % (node, _exact(at), _exact(wall), raw))

    def link(self, event: LinkEvent, wall: float) -> None:
        """A link changed."""
        said = msgspec.json.encode([event.stage, event.reason])
        self._write(b"L %d %b %b %d %b\n" % (event.node, _exact(event.at), _exact(wall), event.state, said))

    def tick(self, at: float, wall: float) -> None:
        """The rules are evaluated at this moment."""
        self._write(b"T %b %b\n" % (_exact(at), _exact(wall)))
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flush()

    def _write(self, line: bytes) -> None:
        if not self.full:
            self._file.write(line)

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        self._file.flush()
        self._raw.flush()
        if self._max and self.bytes_written >= self._max:
            self.full = True


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


def _header(plan: Plan) -> Header:
    inventory = plan.inventory
    freshness = plan.freshness or Freshness()
    return Header(
        "recording", VERSION, __version__, time.time(),
        tuple(_Node(node.name, node.rack, node.leaf, node.groups) for node in inventory.nodes),
        tuple(_Expect(sorted(one.nodes), one.device, one.width, one.gpus) for one in inventory.expectations),
        dict(plan.rules), freshness.late_intervals, freshness.stale_intervals,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: a frame, a link event, or, with neither, an evaluation."""

    at: float
    wall: float
    node: int = -1
    raw: bytes = b""
    link: LinkEvent | None = None


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
            self.header = msgspec.json.decode(first, type=Header)
        except msgspec.DecodeError:
            raise RecordingError(f"{path} is not a clustertop recording") from None
        if self.header.clustertop != "recording" or self.header.version != VERSION:
            version = self.header.version
            raise RecordingError(f"{path} is a recording of version {version}; this program reads {VERSION}")

    @property
    def inventory(self) -> Inventory:
        """The nodes as they were."""
        nodes = tuple(NodeInfo(node.name, rack=node.rack, leaf=node.leaf, groups=node.groups)
                      for node in self.header.nodes)
        expectations = tuple(Expectation(frozenset(one.nodes), one.device, one.width, one.gpus)
                             for one in self.header.expect)
        return Inventory(nodes, expectations=expectations, index={node.name: at for at, node in enumerate(nodes)})

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
            return Step(float(at), float(wall))
        _, number, at, wall, rest = line.split(b" ", 4)
        node = int(number)
        if not 0 <= node < len(self.header.nodes):
            raise ValueError("no such node")
        if kind == b"F ":
            return Step(float(at), float(wall), node, rest)
        if kind != b"L ":
            raise ValueError("no such step")
        state, said = rest.split(b" ", 1)
        stage, reason = msgspec.json.decode(said, type=tuple[str, str])
        event = LinkEvent(node, float(at), LinkState(int(state)), clean(stage, 40), clean(reason))
        return Step(float(at), float(wall), node, link=event)

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
    if step.link is not None:
        core.on_link(step.link, step.wall)
    elif step.node >= 0:
        # A frame that could not be decoded was not recorded; one that was damaged since is left out.
        with contextlib.suppress(FrameError):
            core.on_frame(step.node, step.at, step.wall, decode(step.raw), step.raw)
    else:
        core.tick(step.at, step.wall)
        return True
    return False
