"""Files that the program keeps for its operator: where they lie, a lock, and how one is put in place in one step."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from clustertop.files import is_other

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_STATE_HOME/clustertop``, else below ``~/.local/state``."""
    base = (os.environ if environ is None else environ).get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.local/state").expanduser()) / "clustertop"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock at *path*, which is made where there is none; waits for whoever has it. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def write_whole(path: Path, data: bytes) -> None:
    """Put *data* in place of *path*, readable by its owner alone, or leave what is there. To be called under a lock.

    Raises:
        OSError: it cannot be written, or what is there is no regular file: that is never moved away.
    """
    if is_other(path):
        raise OSError(errno.EINVAL, "no regular file", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor, no path
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
