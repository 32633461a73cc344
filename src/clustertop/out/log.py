"""The log of transitions: one JSON object a line, capped in size, rotated. For afterwards, and for other programs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections import deque
from typing import TYPE_CHECKING

from clustertop.plain import transition_object

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clustertop.model import Transition

QUEUE = 10_000
"""Lines kept while the file cannot be written."""


class TransitionLog:
    """Appends to *path*; at *max_bytes* it becomes ``path.1``, that one ``path.2``, and so on up to *keep*.

    Of several consoles that share the file one writes: what happened to a fleet is in it once. What could not be
    written (a full disk) is tried again with the next transitions.

    Attributes:
        note: why it does not write; empty while it does.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self.path, self._max, self._keep = path, max_bytes, keep
        self.note = ""
        self.lost = 0
        self._waiting: deque[bytes] = deque()
        self._fd: int | None = None
        self._lock: int | None = None

    def tell(self, changes: Sequence[Transition]) -> None:
        """Append *changes*, quiet ones too, and what was left before."""
        failed: OSError | None = None
        try:
            if not self._ours():
                return
        except OSError as error:
            failed = error
        for change in changes:
            if len(self._waiting) >= QUEUE:
                self._waiting.popleft()
                self.lost += 1
            self._waiting.append(json.dumps(transition_object(change), allow_nan=False).encode() + b"\n")
        if failed is None:
            try:
                self._flush()
            except OSError as error:
                self._close()
                failed = error
        if failed is not None and self._waiting:
            lost = f", {self.lost} are lost" if self.lost else ""
            left = f"{len(self._waiting)} transitions wait{lost}"
            self.note = f"{self.path} cannot be written ({failed.strerror}): {left}"

    def _ours(self) -> bool:
        """Whether no other console writes the log."""
        if self._lock is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            self._lock = fd
        return True

    def _flush(self) -> None:
        while self._waiting:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            line = self._waiting[0]
            size = os.fstat(self._fd).st_size
            if size and size + len(line) > self._max:
                self._rotate()
                continue
            done = os.write(self._fd, line)
            if done < len(line):
                # A part of a line is worse than none: the next writer would continue it.
                os.ftruncate(self._fd, size)
                raise OSError(28, "No space left on device")
            self._waiting.popleft()
        self.note = f"{self.path}: {self.lost} transitions are lost" if self.lost else ""

    def _rotate(self) -> None:
        self._close()
        for number in range(self._keep, 0, -1):
            older = self.path if number == 1 else self._numbered(number - 1)
            with contextlib.suppress(FileNotFoundError):
                older.replace(self._numbered(number))
        if not self._keep:
            self.path.unlink()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    async def close(self) -> None:
        """Close the file."""
        self.tell(())
        self._close()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
