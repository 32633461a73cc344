"""A command of the operator's for each transition: JSON on its stdin, one at a time, never longer than allowed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from typing import TYPE_CHECKING

from clustertop import process_group
from clustertop.out.outlet import FIRST_WAIT_SECONDS, DeliveryError, Outlet
from clustertop.plain import transition_object
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.model import Severity, Transition

KILL_SECONDS = 1.0
"""Between TERM and KILL of a hook's process group."""
STDERR_BYTES = 2000


class Hook(Outlet):
    """Runs *command* (no shell) once per transition, in a process group of its own."""

    def __init__(
        self, command: Sequence[str], least: Severity, timeout_seconds: float, wait_seconds: float = FIRST_WAIT_SECONDS,
    ) -> None:
        super().__init__("hook", least, wait_seconds)
        self._command, self._timeout = tuple(command), timeout_seconds

    async def deliver(self, change: Transition) -> None:
        """Run the command. Raises DeliveryError: it cannot be started, fails, or takes too long."""
        data = json.dumps(transition_object(change), allow_nan=False).encode() + b"\n"
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=nowhere, stderr=pipe, start_new_session=True)
        except OSError as error:
            raise DeliveryError(f"{self._command[0]} cannot be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._timeout):
                said = await _talk(process, data)
                status = await process.wait()
        except TimeoutError:
            raise DeliveryError(f"{self._command[0]} took longer than {self._timeout:g} s") from None
        finally:
            await _end(process)
        if status:
            how = f"was ended by signal {-status}" if status < 0 else f"exit status {status}"
            raise DeliveryError(f"{self._command[0]}: {how}{': ' + said if said else ''}")


async def _talk(process: asyncio.subprocess.Process, data: bytes) -> str:
    """Give *data* to the child and return the first line that it says on stderr; the rest is read and dropped."""
    assert process.stdin is not None
    assert process.stderr is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read it
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()
    said = b""
    while part := await process.stderr.read(65536):
        if len(said) < STDERR_BYTES:
            said += part[: STDERR_BYTES - len(said)]
    return clean(said.decode("utf-8", "replace").strip().partition("\n")[0], 120)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the group, also what the command left behind, and when we are cancelled meanwhile."""
    try:
        if process.returncode is None:
            await process_group.end(process, KILL_SECONDS)
    finally:
        process_group.send(process.pid, signal.SIGKILL)
    await process.wait()
