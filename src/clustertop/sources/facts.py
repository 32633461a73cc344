"""What a source of topology says: facts and links, each with where it stands. Pure words, no files.

A reader turns one text into a :class:`Reading`. A line that cannot be used costs itself only and leaves a note.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from clustertop.hosts import NotationError, expand
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FACTS = 1_000_000
"""Most facts of one text; a text with more is no map of a cluster."""

Kind = Literal["rack", "leaf", "rail", "pod"]


class SourceError(ValueError):
    """A text that is not what it should be, as a whole: one sentence."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that one source says of one node."""

    node: str
    """As the source spells it."""
    kind: Kind
    value: str
    line: int = 0
    """From 1; 0 where the text has no lines that mean anything."""
    port: str = ""
    """The node's port that it is about, for leaves: ``mlx5_0``, ``eth2``; empty: the node as a whole."""
    guess: bool = False
    """The source speaks of something else that often is the same: Slurm's blocks and lowest switches are not racks."""
    alias: str = ""
    """Another name of *value* that the source gives."""


@dataclass(frozen=True, slots=True)
class Link:
    """A cable between two devices, as one end sees it; which of them is a node is for who knows the nodes."""

    device: str
    """Empty: whoever the text was taken from."""
    port: str
    peer: str
    peer_port: str = ""
    note: str = ""
    """The port's or system's description, which may hold a host and a rack."""
    peer_is_switch: bool | None = None
    """By the capabilities that it announces; None: it announces none."""
    line: int = 0


@dataclass(slots=True)
class Reading:
    """Everything that one text says."""

    source: str
    """What kind of text: ``slurm``, ``lldp``, ``ibnetdiscover``, ``csv``, ``netbox``, ``groups``."""
    facts: list[Fact] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences: what could not be used, and why."""
    refused: int = 0
    """Lines and lists that could not be used."""
    roots: list[str] = field(default_factory=list)
    """Switches with nothing above them; more than one: the fabric is in pieces."""
    where: str = ""
    """File or host that it came from."""

    def add(self, fact: Fact) -> None:
        """Keep *fact*, with its texts cleaned. Raises SourceError past MAX_FACTS."""
        if len(self.facts) >= MAX_FACTS:
            raise SourceError(f"says more than {MAX_FACTS:,} things, which no map of a cluster does")
        self.facts.append(fact)

    def note(self, line: int, text: str) -> None:
        """Keep a sentence about *line*, which could not be used (0: about the text), up to a limit."""
        self.refused += line > 0
        if len(self.notes) < 100:
            self.notes.append(f"line {line}: {text}" if line else text)
        elif len(self.notes) == 100:
            self.notes.append("more lines could not be used")

    def nodes(self, text: str, line: int) -> Iterator[str]:
        """Yield the nodes of a list in the field's notation, in its order; what cannot be read becomes a note.

        Leading zeros stay. A list above MAX_NODES is refused as a whole, never cut.
        """
        try:
            targets = expand(text)
        except NotationError as error:
            self.note(line, str(error))
            self.refused += not line
            return
        for target in targets:
            yield target.host


def name(text: object, limit: int = 253) -> str:
    """Return *text* as a name: one clean line without blanks around it; empty for what is no text."""
    return clean(text, limit).strip() if isinstance(text, str) else ""

