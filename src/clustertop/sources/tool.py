"""One run of an outside program: no shell, its own process group, a deadline, bounded output, nothing left behind."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop import process_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_OUTPUT = 1 << 20
GRACE_SECONDS = 2.0
"""Between TERM and KILL."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended."""

    status: int | None
    """Exit status; None: ended by us."""
    out: str
    err: str
    overdue: bool = False
    """Whether its deadline passed."""


class ToolMissingError(Exception):
    """There is no such program. The message says which."""


async def run(
    argv: Sequence[str], *, deadline_seconds: float, env: Mapping[str, str], secret: str | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> Ran:
    """Run *argv* and return what it printed. Raises ToolMissingError.

    *secret*, if given, can be read once by the child at the path that stands for ``{secret}`` in *argv*: the far end of
    a pipe, ``/dev/fd/N``. It is in no argument, in no environment and on no disk. On every way out, cancellation
    included, the process group has been ended: TERM, then KILL after *grace_seconds*.
    """
    reader = None
    if secret is not None:
        reader, writer = os.pipe()
        try:
            os.write(writer, secret.encode() + b"\n")
        finally:
            os.close(writer)
        argv = [part.replace("{secret}", f"/dev/fd/{reader}") for part in argv]
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=dict(env), start_new_session=True, pass_fds=() if reader is None else (reader,))
    except OSError as error:
        raise ToolMissingError(f"{argv[0]}: {error.strerror}") from None
    finally:
        if reader is not None:
            os.close(reader)
    reading = asyncio.ensure_future(_output(process))
    overdue = False
    try:
        try:
            async with asyncio.timeout(deadline_seconds):
                out, err = await asyncio.shield(reading)
                await process.wait()
        except TimeoutError:
            overdue = True
            out, err = await _end(process, reading, grace_seconds)
    except BaseException:
        # Cancelled: the group must be gone before we are. A second cancellation does not shorten this.
        await asyncio.shield(asyncio.ensure_future(_end(process, reading, grace_seconds)))
        raise
    status = process.returncode if not overdue else None
    return Ran(status, out.decode(errors="replace"), err.decode(errors="replace"), overdue)


async def _output(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = await asyncio.gather(_bounded(process.stdout), _bounded(process.stderr))
    return out, err


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    """Everything up to the end, of which the first ``MAX_OUTPUT`` bytes are kept; the rest is drained."""
    kept = bytearray()
    while chunk := await stream.read(65536):
        if len(kept) < MAX_OUTPUT:
            kept += chunk[: MAX_OUTPUT - len(kept)]
    return bytes(kept)


async def _end(
    process: asyncio.subprocess.Process, reading: asyncio.Future[tuple[bytes, bytes]], grace_seconds: float
) -> tuple[bytes, bytes]:
    """End the group; returns what it had printed."""
    await process_group.end(process, grace_seconds, reading)
    try:
        async with asyncio.timeout(grace_seconds):
            out = await asyncio.shield(reading)
            while _alive(process.pid):  # noqa: ASYNC110 - KILL takes a moment, and tells nobody when it is done
                await asyncio.sleep(0.005)
            return out
    except TimeoutError:
        reading.cancel()
        return b"", b""


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
