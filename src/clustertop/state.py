"""What outlives the console: acknowledgements, silences, the devices once seen, and what was firing.

One file per configuration, versioned, readable by its owner alone, written whole and put in place in one step. Several
consoles may share it: acknowledgements and silences are merged under a lock, the newest of a kind holds. A file that
cannot be read is set aside with a note and never silently replaced.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import time
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from clustertop.files import is_other, read_bounded
from clustertop.model import Attr  # noqa: TC001 - msgspec reads it at run time
from clustertop.own_files import locked, state_folder, write_whole
from clustertop.rules.hands import Ack, Silence, drop_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = 1
MAX_BYTES = 1 << 28
DROPPED_SECONDS = 30 * 86400.0
"""So long it is remembered that something was taken back."""


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that a node had: it is expected from then on."""

    table: str
    key: str
    attrs: dict[str, Attr]


Wall = Annotated[float, msgspec.Meta(ge=0, le=2.0**34)]
"""Seconds since the epoch, of a time that can be shown."""


class Firing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A verdict that was firing when the file was written."""

    rule: str
    node: str
    table: str
    key: str
    attrs: dict[str, Attr]
    severity: Annotated[int, msgspec.Meta(ge=1, le=3)]
    since: Wall
    value: float | None = None


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that is kept."""

    clustertop: str = "state"
    version: int = VERSION
    acks: tuple[Ack, ...] = ()
    silences: tuple[Silence, ...] = ()
    dropped: dict[str, Wall] = {}
    """Acknowledgements and silences that ended, and when: another console's copy must not bring them back."""
    devices: dict[str, tuple[Device, ...]] = {}
    """By node."""
    firing: tuple[Firing, ...] = ()


class StateError(Exception):
    """The file cannot be written; the text is one sentence that names it."""


def default_path(config: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Return where the state of the fleet of *config* is kept."""
    place = hashlib.blake2s(str(config.resolve()).encode(), digest_size=4).hexdigest()
    return state_folder(environ) / f"state-{config.stem}-{place}.json"


class StateFile:
    """The file of one fleet.

    Attributes:
        note: why it does not keep anything, or what became of a damaged one; empty where all is well.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.note = ""
        self._stamp: tuple[int, int] = (0, 0)

    def load(self, *, aside: bool = True) -> State:
        """Return what was kept; nothing where there is no file or it is damaged (see ``note``).

        A damaged file is put *aside*, so that a new one can be written; where nothing will be, it is left.
        """
        try:
            raw = self._read()
            self._stamp = self._now()
        except FileNotFoundError:
            return State()
        except OSError as error:
            self.note = f"{self.path}: cannot be read ({error.strerror}); acknowledgements and known devices are not"
            return State()
        try:
            state = msgspec.json.decode(raw, type=State)
            if state.clustertop != "state" or state.version != VERSION:
                raise msgspec.ValidationError(f"version {state.version}; this program reads {VERSION}")
        except msgspec.MsgspecError as error:
            how = f"is damaged ({error})"
            if aside:
                place = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
                with contextlib.suppress(OSError):
                    self.path.replace(place)
                    how = f"was damaged ({error}) and is set aside as {place.name}"
            self.note = f"{self.path} {how}; nothing is remembered"
            return State()
        return state

    def moved(self) -> bool:
        """Whether another console has written it since we last read or wrote it."""
        return self._now() != self._stamp

    def save(self, state: State) -> State:
        """Merge *state* with what other consoles wrote and put it in place; returns what is kept now.

        Raises:
            StateError: it cannot be written.
        """
        if is_other(self.path):
            raise StateError(f"{self.path}: is no regular file and stays as it is; nothing outlives this run")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self.path.with_name(f"{self.path.name}.lock")):
                merged = merge(state, self._other()) if self.moved() else state
                write_whole(self.path, msgspec.json.encode(merged))
                self._stamp = self._now()
        except OSError as error:
            raise StateError(f"{self.path}: cannot be written ({error.strerror}); nothing outlives this run") from None
        return merged

    def _read(self) -> bytes:
        if is_other(self.path):
            raise OSError(errno.EINVAL, "no regular file", str(self.path))
        return read_bounded(self.path, MAX_BYTES)

    def _other(self) -> State:
        try:
            return msgspec.json.decode(self._read(), type=State)
        except (OSError, msgspec.MsgspecError):
            return State()

    def _now(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)


def merge(ours: State, theirs: State) -> State:
    """Return *ours* with the acknowledgements and silences that another console made or took back, and its devices."""
    dropped = dict(theirs.dropped)
    for key, at in ours.dropped.items():
        dropped[key] = max(at, dropped.get(key, at))
    return msgspec.structs.replace(
        ours,
        acks=_newest(ours.acks, theirs.acks, dropped, "ack"),
        silences=_newest(ours.silences, theirs.silences, dropped, "silence"),
        dropped={key: at for key, at in dropped.items() if at > max(dropped.values()) - DROPPED_SECONDS},
        devices={**theirs.devices, **ours.devices},
    )


Kept = TypeVar("Kept", Ack, Silence)


def _newest(
    ours: tuple[Kept, ...], theirs: tuple[Kept, ...], dropped: Mapping[str, float], kind: str,
) -> tuple[Kept, ...]:
    out: dict[tuple[str, str], Kept] = {}
    for one in theirs + ours:
        known = out.get(one.key)
        if (known is None or one.at >= known.at) and one.at > dropped.get(drop_key(kind, one.key), float("-inf")):
            out[one.key] = one
    return tuple(out.values())
