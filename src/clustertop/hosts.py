"""Host notation: ``gpu[001-064],login1``, ``user@host:port``, ``[::1]:2222``, ``@group``, ``gpu[1-8]!gpu3``.

The ranges are those of ClusterShell. Order and zero padding stay as written. Nothing is read from the
operator's ClusterShell configuration: groups are ours only.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_NODES = 10_000
"""Most nodes in one inventory; a longer list is refused, never cut."""

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/([0-9]{1,9}))?)?")
_HOST = re.compile(r"(?:[^\W_]|_)[\w.-]*")
_FOLDABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_USER = re.compile(r"[\w.][\w.+@\\-]*")
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)\](.*)")
_OPERATORS = ",!&^"


class NotationError(ValueError):
    """Host notation that cannot be read. The text is one sentence that says what would be right."""


@dataclass(frozen=True, slots=True)
class Target:
    """One host as somebody wrote it. ``user`` is empty and ``port`` 0 where it was not said."""

    host: str
    user: str = ""
    port: int = 0

    @property
    def spec(self) -> str:
        """The host in our notation, with user and port where they were said."""
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        user = f"{self.user}@" if self.user else ""
        return f"{user}{host}:{self.port}" if self.port else f"{user}{host}"


def no_groups(name: str) -> list[Target]:
    """Stand in for a group resolver where no groups are known. Raises NotationError."""
    raise NotationError(f"@{_show(name)}: no groups are configured; write [groups] in the config")


def expand(text: str, group: Callable[[str], Iterable[Target]] = no_groups) -> list[Target]:
    """Return the targets that *text* names, in its order, each once.

    Args:
        text: host notation; ``,`` or a blank adds, ``!`` takes away, ``&`` keeps the common ones, ``^`` keeps
            those in one only, all from left to right.
        group: gives the targets of ``@name`` (called with the name alone).

    Raises:
        NotationError: it is not host notation, or names more than ``MAX_NODES`` hosts.
    """
    targets, _ = expand_all([text], group)
    return targets


def expand_all(
    texts: Iterable[str], group: Callable[[str], Iterable[Target]] = no_groups
) -> tuple[list[Target], list[str]]:
    """Return the targets of several texts, as one list, and the hosts that were named more than once.

    Raises:
        NotationError: as :func:`expand`.
    """
    found: dict[Target, None] = {}
    twice: dict[str, None] = {}
    for text in texts:
        for operator, term in _terms(text):
            targets = list(group(term[1:])) if term.startswith("@") else list(_expand_term(term))
            if operator == ",":
                twice.update((target.spec, None) for target in targets if target in found)
                found.update((target, None) for target in targets)
            elif operator == "!":
                for target in targets:
                    found.pop(target, None)
            elif operator == "&":
                common = set(targets)
                found = {target: None for target in found if target in common}
            else:
                both = {target for target in targets if target in found}
                found.update((target, None) for target in targets)
                found = {target: None for target in found if target not in both}
            if len(found) > MAX_NODES:
                raise _too_many(f"{len(found):,} hosts so far at {_show(term)}")
    return list(found), list(twice)


def expand_names(text: str) -> list[str]:
    """Return the names in *text* (of groups, for example), ranges written out. Raises NotationError."""
    return [target.host for target in expand(text)]


def fold(names: Iterable[str]) -> str:
    """Return *names* folded, ``gpu[001-064],login1``; what cannot be folded stands as it is."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    plain: list[str] = []
    other: list[str] = []
    for name in names:
        (plain if _FOLDABLE.fullmatch(name) else other).append(name)
    folded = str(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP)) if plain else ""
    return ",".join([folded] * bool(folded) + other)


def _terms(text: str) -> Iterator[tuple[str, str]]:
    depth, start, operator = 0, 0, ","
    for place, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        if depth not in (0, 1):
            raise NotationError(f"{_show(text)}: brackets that do not match; write ranges as gpu[001-064]")
        if depth == 0 and (char in _OPERATORS or char.isspace()):
            if term := text[start:place].strip():
                yield operator, term
                operator = ","
            elif operator != "," and char in _OPERATORS:
                raise NotationError(f"{_show(text)}: nothing stands between {operator!r} and {char!r}")
            if char in _OPERATORS:
                operator = char
            start = place + 1
    if depth:
        raise NotationError(f"{_show(text)}: a bracket is not closed; write ranges as gpu[001-064]")
    if term := text[start:].strip():
        yield operator, term
    elif operator != ",":
        raise NotationError(f"{_show(text)}: nothing stands after {operator!r}")


def _expand_term(term: str) -> Iterator[Target]:
    user, at, rest = term.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise NotationError(f"{_show(term)}: {_show(user) or 'nothing'} is no user name; write user@host")
    if match := _BRACKETED.fullmatch(rest):
        yield Target(_ipv6(term, match[1]), user, _port(term, match[2]))
    elif "[" not in rest and rest.count(":") > 1:
        yield Target(_ipv6(term, rest), user)
    else:
        pattern, colon, port = rest.rpartition(":")
        if not colon:
            pattern, port = rest, ""
        number = _port(term, colon + port)
        for host in _expand_pattern(pattern, term):
            yield Target(host, user, number)


def _ipv6(term: str, address: str) -> str:
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        raise NotationError(f"{_show(term)}: not an IPv6 address; write [::1] or [::1]:2222") from None
    return address


def _port(term: str, text: str) -> int:
    if not text:
        return 0
    digits = text[1:]
    if text[0] != ":" or not re.fullmatch("[0-9]{1,5}", digits) or not 0 < int(digits) < 65536:
        raise NotationError(f"{_show(term)}: {_show(text)} is not a port; write host:22, from 1 to 65535")
    return int(digits)


def _expand_pattern(pattern: str, term: str) -> Iterator[str]:
    parts = re.split(r"\[([^\]]*)\]", pattern)
    ranges = [[_range(item, term) for item in part.split(",")] for part in parts[1::2]]
    count = 1
    for items in ranges:
        count *= sum((stop - start) // step + 1 for start, stop, step, _ in items)
    if count > MAX_NODES:
        raise _too_many(f"{_show(term)} names {count:,} hosts")
    written = [[number for *_, text in items for number in _numbers(text, term)] for items in ranges]
    for numbers in product(*written):
        host = parts[0] + "".join(number + tail for number, tail in zip(numbers, parts[2::2], strict=True))
        if not _HOST.fullmatch(host) or len(host) > 253:
            what = f"{_show(host) or 'nothing'} is not a host name"
            raise NotationError(f"{_show(term)}: {what}; write names like gpu[001-064],login1")
        yield host


def _range(item: str, term: str) -> tuple[int, int, int, str]:
    match = _RANGE.fullmatch(item.strip())
    if not match:
        raise NotationError(f"{_show(term)}: {_show(item) or 'nothing'} is no range; write 001-064 or 1-9/2")
    start, stop = int(match[1]), int(match[2] or match[1])
    step = int(match[3] or 1)
    if stop < start or not step:
        raise NotationError(f"{_show(term)}: the range {_show(item)} is empty; write the lower number first")
    return start, stop, step, match[0]


def _numbers(text: str, term: str) -> Iterable[str]:
    from ClusterShell.RangeSet import RangeSet, RangeSetParseError

    try:
        numbers: list[str] = list(RangeSet(text))
    except RangeSetParseError:
        raise NotationError(
            f"{_show(term)}: both ends of the range {_show(text)} need as many digits; write 001-064"
        ) from None
    return numbers


def _too_many(what: str) -> NotationError:
    return NotationError(f"{what}; at most {MAX_NODES:,} are watched at once, so name fewer")


def _show(text: str) -> str:
    return clean(text, 80)
