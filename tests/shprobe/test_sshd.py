"""A node without Python behind a real sshd: whatever its login shell is and whatever its start-up files print."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from clustertop.clock import SystemClock
from clustertop.core import Core
from clustertop.model import LinkEvent, LinkState
from clustertop.poll.node import NodeLink
from clustertop.rules.spec import builtin
from clustertop.wire.ssh import Dialer, SshTransport
from fleets import until
from shprobe.wired import alive, node_tree, stand_in
from sshd import running
from tools import need

if TYPE_CHECKING:
    from pathlib import Path

    from clustertop.wire.frame import Frame

pytestmark = pytest.mark.sshd


class Console:
    """A sink with a core behind it."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.events: list[LinkEvent] = []
        self.frames: list[Frame] = []

    def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
        self.frames.append(frame)
        self.core.on_frame(node, at, time.time(), frame, raw)

    def on_link(self, event: LinkEvent) -> None:
        self.events.append(event)
        self.core.on_link(event, time.time())


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh", "ksh", "tcsh", "fish"])
async def test_login_shells_and_noisy_start_up(shell: str, tmp_path: Path) -> None:
    path = need(shell)
    tree = node_tree(tmp_path / "node")
    (tree.root / "usr/bin/nvidia-smi").rename(tree.root / "usr/bin/real-smi")
    stand_in(tmp_path / "bin", f'exec {tree.root}/usr/bin/real-smi "$@"\n')
    forced = tmp_path / "forced"
    forced.write_text(
        "#!/bin/sh\nprintf 'welcome!\\n{\"note\":1}\\n\\033]0;title\\007quota 83 %%'\necho hint >&2\n"
        f"PATH={tmp_path}/bin:$PATH\nexport PATH\necho $$ >{tmp_path}/shell\n"
        f'exec {path} -c "$SSH_ORIGINAL_COMMAND"\n')
    forced.chmod(0o755)
    with running(tmp_path / "sshd", forced=str(forced)) as server:
        settings = server.settings(root=str(tree.root), pcie_interval_seconds=0.2)
        core = Core([server.node()], builtin())
        console = Console(core)
        dialer = Dialer(settings)
        link = NodeLink(
            0, lambda receiver, started: SshTransport(server.node(), dialer, receiver, started, candidates=("python9", "/no/*/python3")),
            settings, console, SystemClock())
        task = asyncio.ensure_future(link.run())
        try:
            await until(lambda: console.frames and console.frames[-1].g["gpu"].st == "ok", what=lambda: console.events)
            link.request({"do": "every", "group": "gpu", "seconds": 0.2})
            await until(lambda: console.frames[-1].g["gpu"].n >= 2)
            up = console.events[-1]
            assert (up.state, up.stage, up.reason) == (LinkState.UP, "frames", "no Python there: sh probe")
            core.tick(time.monotonic(), time.time())
            assert core.snapshot is not None
            view = core.snapshot.view
            assert view["gpu"].value("utilization_ratio", 0) == 0.97
            assert view["gpu"].reason("power_watts", 1) == "Unknown Error"
            assert sorted(set(view["port"].labels)) == ["mlx5_0/1", "mlx5_1/1"]
            assert view["pcie"].value("width_lanes", 0) == 16
            assert view["node"].value("memory_total_bytes", 0) == 1 << 30
            full = next(frame for frame in console.frames if frame.full)
            assert full.h is not None
            assert full.h["probe"] == "sh"
            assert "python" not in full.h
            assert link.noise == 3
            assert not link.bad
            pid = int((tmp_path / "shell").read_text())
            assert alive(pid)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await dialer.close()
        await until(lambda: not alive(pid), what="it ends with its channel")
