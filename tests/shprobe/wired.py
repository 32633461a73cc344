"""A node without Python: a shell of the test's choice over a tree of its own, talked to as any node, into a core."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from clustertop.core import Core
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.rules.spec import builtin
from clustertop.signals.host import GROUP_STATES
from clustertop.wire.frame import decode
from clustertop.wire.talk import Talk
from clustertop.wire.transport import PollSettings
from fleets import until
from tools import need
from trees import NodeTree, gpu_node

if TYPE_CHECKING:
    from clustertop.store.view import FleetView
    from clustertop.wire.shprobe import ShProbe

SHELLS = {
    "dash": ("dash",), "bash": ("bash",), "bash as sh": ("bash", "--posix"), "ksh": ("ksh",),
    "zsh as sh": ("zsh", "--emulate", "sh"), "busybox": ("busybox", "sh"),
}  # fmt: skip
FIELDS = "index, uuid, pci.bus_id, name, utilization.gpu [%], memory.used [MiB], power.draw [W], pcie.link.width.current"
ROWS = (
    "0, GPU-a, 00000000:13:00.0, NVIDIA H100 80GB HBM3, 97 %, 70000 MiB, 631.95 W, 16",
    "1, GPU-b, 00000000:1E:00.0, NVIDIA H100 80GB HBM3, [N/A], 11 MiB, [Unknown Error], 8",
)
ANSWERS = f'echo "{FIELDS}"\n' + "".join(f'echo "{row}"\n' for row in ROWS)


def shell(name: str) -> tuple[str, ...]:
    """The command of a shell of ``SHELLS``; the test is skipped, or fails in CI, where it is not installed."""
    return (need(SHELLS[name][0]), *SHELLS[name][1:])


def node_tree(root: Path, smi: str = ANSWERS) -> NodeTree:
    """A node of two GPUs and two ports, with *smi* as the body of its nvidia-smi."""
    tree = gpu_node(root, 2, 2)
    tree.directory("proc/driver/nvidia/gpus/0000:13:00.0")
    tree.directory("proc/driver/nvidia/gpus/0000:1e:00.0")
    stand_in(tree.root / "usr/bin", smi)
    return tree


def stand_in(folder: Path, body: str) -> None:
    """Write an nvidia-smi that does *body*."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "part"
    part.write_text("#!/bin/sh\n" + body)
    part.chmod(0o755)
    part.replace(folder / "nvidia-smi")


class Wired:
    """A shell, its pipes, the talk over them, and the core that gets the frames."""

    def __init__(self, command: tuple[str, ...], root: Path, interval: float = 0.2) -> None:
        self.command = command
        self.root = root
        self.interval = interval
        self.more: dict[str, object] = {}
        self.core = Core([NodeInfo("n0")], builtin())
        self.core.on_link(LinkEvent(0, time.monotonic(), LinkState.UP), time.time())
        self.frames = 0
        self.noises: list[tuple[str, bytes]] = []

    async def __aenter__(self) -> Wired:
        settings = PollSettings(interval_seconds=self.interval, pcie_interval_seconds=self.interval, root=str(self.root))
        self.talk = Talk(settings, self, candidates=("python9",), more=self.more)
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *self.command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, cwd=self.root,
            env={"PATH": os.environ["PATH"], "HOME": str(self.root), "TMPDIR": str(self.root)})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [asyncio.ensure_future(self._read(self.process.stdout, self.talk.feed)),
                         asyncio.ensure_future(self._read(self.process.stderr, self.talk.ending.add_stderr))]
        self.talk.begin(self.process.stdin.write)
        async with asyncio.timeout(60):
            await self.talk.ready
        return self

    async def __aexit__(self, *error: object) -> None:
        self.talk.stop()
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(60):
            await self.process.wait()
            for reader in self._readers:
                await reader

    async def _read(self, stream: asyncio.StreamReader, sink: object) -> None:
        while data := await stream.read(65536):
            sink(data)  # type: ignore[operator]

    def on_payload(self, payload: bytes) -> None:
        assert self.core.on_frame(0, time.monotonic(), time.time(), decode(payload), payload), self.core.bad_frames
        self.frames += 1

    def on_noise(self, kind: str, sample: bytes) -> None:
        self.noises.append((kind, sample))

    @property
    def probe(self) -> ShProbe:
        assert self.talk._sh is not None
        return self.talk._sh

    def view(self) -> FleetView:
        """The readings now."""
        self.core.tick(time.monotonic(), time.time())
        assert self.core.snapshot is not None
        return self.core.snapshot.view

    def readings(self, group: str) -> int:
        """How often *group* has been read."""
        return self.probe._groups[group].number

    def state(self, group: str) -> tuple[str, str]:
        """A group's state, and what it says of itself."""
        groups = self.view()["group"]
        at = next((one for one in groups.rows_of(0).tolist() if groups.keys[one] == group), None)
        if at is None:
            return "", ""
        words = {number: text for text, number in GROUP_STATES.items()}
        return words[int(groups.value("group_state", at) or 0)], str(groups.attrs[at].get("said", ""))

    async def read(self, *groups: str, times: int = 1) -> None:
        """Wait until each of *groups* has been read, and a frame with it has come."""
        await until(lambda: all(self.readings(group) >= times for group in groups), what=lambda: (self.noises, self.talk.ending.stderr))
        seen = self.frames
        await until(lambda: self.frames > seen)


def alive(pid: int) -> bool:
    """True while there is such a process, zombies aside."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False
