"""Which nodes' GPUs the operator had let go, kept on the operator's machine.

All clustertops of one operator share the file: a ``check`` from cron must not take the GPUs that a console let go for a
reset. Nothing of this is on the nodes.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Self

from clustertop.own_files import locked, state_folder, write_whole
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_BYTES = 1 << 20
MOST_SECONDS = 2.0**34


class ReleasedNodes:
    """The file at *path*: by a node's name, when (seconds since the epoch). All methods may block on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None

    @classmethod
    def usual(cls, environ: Mapping[str, str] | None = None) -> Self:
        """``$XDG_STATE_HOME/clustertop/released.json``, else below ``~/.local/state``."""
        return cls(state_folder(environ) / "released.json")

    def read(self) -> dict[str, float]:
        """What the file says; what is no such file says nothing."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                self._seen = (status.st_ino, status.st_mtime_ns, status.st_size)
                data = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError):
            return {}
        if not isinstance(data, dict):
            return {}
        return {clean(name, 253): float(at) for name, at in data.items()
                if isinstance(at, int | float) and not isinstance(at, bool) and 0 < at < MOST_SECONDS}

    def news(self) -> dict[str, float] | None:
        """What the file says now, or None where it is the one that was read last."""
        try:
            status = self.path.stat()
        except OSError:
            seen = None
        else:
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen == self._seen:
            return None
        self._seen = seen
        return self.read()

    def note(self, node: str, at: float | None) -> str:
        """Write down that *node*'s GPUs were let go *at*, or taken again; returns why that was not possible."""
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(folder / "released.lock"):
                held = self.read()
                held.pop(node, None)
                if at is not None:
                    held[node] = at
                write_whole(self.path, json.dumps(held, indent=1).encode())
        except OSError as error:
            return f"{self.path} cannot be written ({error.strerror}): other clustertops do not know"
        return ""
