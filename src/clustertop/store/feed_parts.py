"""Which rows of a PDU a feed is: its inlet with its phases, a bank, a branch. Levels are never mixed, nothing is added.

The worst phase is held against the breaker; a total or an average of phases never is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.model import Attr
    from clustertop.places import Feed


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one feed."""

    rows: tuple[int, ...] = ()
    """Of each conductor: its current counts. Empty: there is no such part."""
    whole: int = -1
    """Which row's power and voltage are the feed's; below 0: none, then those of *rows*."""
    deltas: tuple[int, ...] = ()
    """The loads between conductors, 12, 23, 31, where these are all that is measured."""
    neutral: int = -1
    missing: bool = False
    """Not every conductor is among *rows*: the worst one may be another."""

    @property
    def all(self) -> tuple[int, ...]:
        """Every row that is the feed's, each once."""
        return tuple(dict.fromkeys((*self.rows, *self.deltas, *((self.whole,) if self.whole >= 0 else ()))))


def choose(feed: Feed, rows: Sequence[int], keys: Sequence[str], attrs: Sequence[Mapping[str, Attr]]) -> Part:
    """The part of a PDU that *feed* is.

    Args:
        feed: names the part: ``inlet 1``, ``bank 2``, ``phase L1``, ``branch B3``, a label, or nothing for the inlet.
        rows: the PDU's rows in the ``pdu`` table, in the device's order.
        keys: of the whole table.
        attrs: of the whole table.
    """
    kinds = {row: _text(attrs[row].get("kind")) for row in rows}
    unit = {row: _text(attrs[row].get("unit")) for row in rows}
    if feed.part:
        wanted = _plain(feed.part)
        named = [row for row in rows if kinds[row] != "outlet" and wanted in _names(keys[row], attrs[row])]
        named = named or [row for row in rows if wanted in _names(keys[row], attrs[row])]
        named = named or _by_count(wanted, rows, kinds)
        if not named:
            return Part()
        if any(kinds[row] != "inlet" for row in named):
            whole = named[0] if len(named) == 1 else -1
            below = [row for row in rows if kinds[row] == "phase" and whole >= 0 and _under(keys[row], keys[whole])]
            return Part(tuple(below or named), whole, missing=bool(below) and len(below) < feed.phases)
        inlets = named
    else:
        inlets = [row for row in rows if kinds[row] == "inlet"]
    units = {unit[row] for row in inlets} if inlets else {unit[row] for row in rows}
    if len(units) != 1:
        # An agent that speaks for several PDUs: without its name none of them is meant.
        return Part()
    mine = [row for row in rows if unit[row] in units]
    others = [row for row in mine if kinds[row] == "inlet" and row not in inlets]
    whole = inlets[0] if len(inlets) == 1 else -1
    phases = [row for row in mine if kinds[row] == "phase"]
    if whole >= 0 and any(_under(keys[row], keys[whole]) for row in phases):
        phases = [row for row in phases if _under(keys[row], keys[whole])]
    elif others:
        phases = []  # of which inlet they are is not said
    neutral = next((row for row in mine if kinds[row] == "neutral"), -1)
    if phases:
        return Part(tuple(phases), whole, neutral=neutral, missing=len(phases) < feed.phases)
    deltas = [row for row in mine if kinds[row] == "delta"]
    if feed.phases == 3 and len(deltas) == 3 and not others:
        return Part((), whole, tuple(deltas))
    if inlets:
        # Of three phases an inlet tells a total or an average: one of them carries at least that.
        return Part(tuple(inlets), whole, neutral=neutral, missing=feed.phases > 1)
    branches = [row for row in mine if kinds[row] in {"bank", "branch"}]
    return Part(tuple(branches), branches[0]) if len(branches) == 1 else Part()


def _names(key: str, attrs: Mapping[str, Attr]) -> set[str]:
    """What an operator may call a part."""
    kind, name, unit = (_text(attrs.get(word)) for word in ("kind", "name", "unit"))
    index = key.rpartition("/")[2]
    own = {key, name, f"{kind} {name}", f"{kind} {index}"} | {_text(attrs.get("part_label"))}
    if unit:
        own |= {f"{lead}{unit} {one}" for one in tuple(own) for lead in ("", "unit ")} | {
            f"{unit}: {one}" for one in tuple(own)}
    return {_plain(one) for one in own if one.strip()}


def _under(key: str, parent: str) -> bool:
    return key.startswith(f"{parent}/")


def _by_count(wanted: str, rows: Sequence[int], kinds: Mapping[int, str]) -> list[int]:
    """``inlet 1`` of a device that gives its only inlet no number."""
    kind, _, number = wanted.rpartition(" ")
    mine = [row for row in rows if kinds[row] == kind]
    return mine if number == "1" and len(mine) == 1 else []


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _text(said: Attr) -> str:
    return said if isinstance(said, str) else "" if said is None else str(said)
