"""Reading files that somebody named: never more than such a file can be, and no device in place of a file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_bounded(path: str | Path, most: int) -> bytes:
    """Return the bytes of *path*. Raises OSError, also (EFBIG) where it holds more than *most*."""
    with Path(path).open("rb") as stream:
        raw = stream.read(most + 1)
    if len(raw) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return raw


def is_other(path: Path) -> bool:
    """Whether *path* is there and is a device, a pipe or a directory: such is not read whole, and never replaced."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
