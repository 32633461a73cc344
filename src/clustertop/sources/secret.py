"""Passwords and communities: where they come from, and that they show up nowhere else.

A secret is named in the configuration, never written there: ``env:NAME``, ``file:PATH`` or ``command:ARGV…``.
It is fetched when it is used, and kept for a minute at most.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import stat
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from clustertop import process_group

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND_SECONDS = 10.0
"""How long a command may take to print a secret."""
HELD_SECONDS = 60.0
MAX_BYTES = 4096
"""The longest secret; a larger file is a wrong file."""

_FORMS = "env:NAME, file:PATH or command:PROGRAM ARGUMENTS"


class SecretError(Exception):
    """A secret cannot be had. The message is one sentence and never holds any part of the secret."""


class Secret:
    """A secret that can be revealed, and cannot be printed, compared, copied into a pickle or found in a dump."""

    __slots__ = ("_kind", "_place")

    def __init__(self, kind: str, place: str) -> None:
        self._kind = kind
        self._place = place

    @classmethod
    def from_spec(cls, spec: str) -> Secret:
        """Read ``env:NAME``, ``file:PATH`` or ``command:ARGV…``. Raises SecretError, which does not repeat *spec*:

        who wrote the password itself there must not find it in a log.
        """
        kind, colon, place = spec.partition(":")
        if not colon or kind not in _READERS:
            raise SecretError(f"a secret is written as {_FORMS}, not as the secret itself")
        if kind == "command":
            try:
                parts = shlex.split(place)
            except ValueError as error:
                raise SecretError(f"secret command: {error}") from None
            if not parts:
                raise SecretError("secret command: empty; write command:PROGRAM ARGUMENTS")
        elif not place.strip() or "\0" in place:
            raise SecretError(f"secret {kind}: no name; write {_FORMS}")
        return cls(kind, place)

    @property
    def source(self) -> str:
        """Where it comes from, for messages: the variable, the path, or the program without its arguments."""
        return f"command {shlex.split(self._place)[0]}" if self._kind == "command" else f"{self._kind} {self._place}"

    def check(self) -> None:
        """See whether it can be had, as far as that is possible without having it. Raises SecretError."""
        if self._kind == "file":
            with _opened(self._place):
                pass
        elif self._kind == "env" and self._place not in os.environ:
            raise SecretError(f"the environment has no {self._place}")

    def reveal(self) -> str:
        """Return the secret without the newline at its end. Raises SecretError."""
        value = _READERS[self._kind](self._place)
        if not value:
            raise SecretError(f"the secret from {self.source} is empty")
        if any(ord(char) < 32 or ord(char) == 127 for char in value):
            raise SecretError(f"the secret from {self.source} is more than one line or holds control characters")
        return value

    def __repr__(self) -> str:
        return f"Secret({self.source})"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


class Lent:
    """A secret in use: held for a short time, so that its command is not run once more for each request of a poll."""

    __slots__ = ("_secret", "_until", "_value")

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._value: str | None = None
        self._until = 0.0

    async def reveal(self) -> str:
        """Return the secret, fetched in a thread where that is due. Raises SecretError."""
        if self._value is None or time.monotonic() >= self._until:
            self._value = await asyncio.to_thread(self._secret.reveal)
            self._until = time.monotonic() + HELD_SECONDS
        return self._value

    def forget(self) -> None:
        """Fetch it anew next time: it was refused, or is no longer needed."""
        self._value = None

    def __repr__(self) -> str:
        return f"Lent({self._secret})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


def _from_environment(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise SecretError(f"the environment has no {name}") from None


@contextmanager
def _opened(place: str) -> Iterator[int]:
    """A secret's file, opened first and checked on the descriptor, so that nobody can swap it in between."""
    path = Path(place).expanduser()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"secret file {path}: {error.strerror}") from None
    try:
        problem = _problem(os.fstat(descriptor))
        if problem:
            raise SecretError(f"secret file {path} {problem}")
        yield descriptor
    finally:
        os.close(descriptor)


def _problem(about: os.stat_result) -> str:
    """What is wrong with a secret's file and what would be right; empty if nothing is."""
    mode = stat.S_IMODE(about.st_mode)
    if not stat.S_ISREG(about.st_mode):
        return "is not a regular file"
    if mode & 0o077:
        return f"has mode {mode:04o}, which lets others read it: it must be 0600 or 0400 (chmod 600)"
    if about.st_uid not in {os.geteuid(), 0}:
        return f"belongs to user id {about.st_uid}: it must be yours ({os.geteuid()}) or root's"
    return ""


def _from_file(place: str) -> str:
    with _opened(place) as descriptor:
        try:
            data = os.read(descriptor, MAX_BYTES + 1)
        except OSError as error:
            raise SecretError(f"secret file {place}: {error.strerror}") from None
    return _text(data, f"secret file {place}")


def _from_command(place: str) -> str:
    argv = shlex.split(place)
    about = f"secret command {argv[0]}"
    try:
        # Its own session: what it starts ends with it, and a Ctrl-C at our terminal is ours to handle.
        child = subprocess.Popen(  # noqa: S603 - the operator's own command, without a shell
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise SecretError(f"{about}: {error.strerror}") from None
    with child:
        try:
            data, _ = child.communicate(timeout=COMMAND_SECONDS)
        except BaseException as error:
            # The group: the program may have ended and left a child with the pipe.
            process_group.send(child.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise SecretError(f"{about}: no answer within {COMMAND_SECONDS:g} s") from None
            raise
    if child.returncode:
        raise SecretError(f"{about}: exit status {child.returncode}")
    return _text(data, about)


def _text(data: bytes, about: str) -> str:
    if len(data) > MAX_BYTES:
        raise SecretError(f"{about}: longer than {MAX_BYTES} bytes")
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretError(f"{about}: not UTF-8 text") from None


_READERS = {"env": _from_environment, "file": _from_file, "command": _from_command}
