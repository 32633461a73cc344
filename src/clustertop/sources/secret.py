"""Secrets of the console's side: communities, keys and passwords, from where an operator keeps them.

A secret comes from the environment, a file that only its owner can read, or a command. It is never an argument of ours,
and nothing that prints a :class:`Secret` prints what it holds.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path
from typing import NoReturn, final

MAX_BYTES = 65_536
COMMAND_SECONDS = 20.0
FORMS = "env:NAME, file:PATH or command:ARGV"


class SecretError(ValueError):
    """A secret that cannot be had; the text is one sentence and never holds the secret."""


@final
class Secret:
    """A secret text; ``repr``, ``str`` and format hide it, and it cannot be pickled."""

    __slots__ = ("_text", "where")

    def __init__(self, text: str, where: str = "given") -> None:
        self._text = text
        self.where = where
        """Where it came from, fit for a message."""

    @classmethod
    def from_spec(cls, spec: str) -> Secret:
        """Read the secret that *spec* points at: ``env:NAME``, ``file:PATH`` or ``command:ARGV``.

        A file must be a regular one that belongs to us (or root) and that group and others can neither read nor write.
        A command is split like a shell would, run without one, and its first line is taken.

        Raises:
            SecretError: the spec has another form (it is then not repeated: it may be the secret itself), or there is
                nothing to be read there.
        """
        form, colon, rest = spec.partition(":")
        if not colon or not rest or form not in ("env", "file", "command"):
            raise SecretError(f"a secret is given as {FORMS}, never as itself")
        text = {"env": _environment, "file": _file, "command": _command}[form](rest)
        where = f"command {shlex.split(rest)[0]}" if form == "command" else f"{form} {rest}"
        if not text:
            raise SecretError(f"the secret from {where} is empty")
        return cls(text, where)

    def reveal(self) -> str:
        """The secret itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not copied out of the process")


def _environment(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise SecretError(f"the environment has no {name}") from None


def _file(path: str) -> str:
    where = Path(path).expanduser()
    try:
        # Opened first and judged by its descriptor: the name may point elsewhere a moment later.
        number = os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode):
                raise SecretError(f"{path} is not a regular file")
            if found.st_mode & 0o077:
                raise SecretError(f"{path} can be read or written by others: chmod 600 {path}")
            if found.st_uid not in (os.geteuid(), 0):
                raise SecretError(f"{path} belongs to another user")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SecretError(f"{path}: {error.strerror}") from None
    return _first_line(data, path)


def _command(line: str) -> str:
    try:
        argv = shlex.split(line)
    except ValueError:
        raise SecretError("the command for a secret has an open quote") from None
    if not argv:
        raise SecretError("the command for a secret is empty")
    name = f"the command {argv[0]}"
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own command, without a shell
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
            timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        raise SecretError(f"{name} gave no secret within {COMMAND_SECONDS:.0f} s") from None
    except OSError as error:
        raise SecretError(f"{name}: {error.strerror}") from None
    if done.returncode:
        raise SecretError(f"{name} ended with status {done.returncode}")
    return _first_line(done.stdout, name)


def _first_line(data: bytes, where: str) -> str:
    if len(data) > MAX_BYTES:
        raise SecretError(f"{where} holds more than a secret")
    try:
        return data.decode("utf-8").partition("\n")[0].rstrip("\r")
    except UnicodeDecodeError:
        raise SecretError(f"{where} is not text in UTF-8") from None
