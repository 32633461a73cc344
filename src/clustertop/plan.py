"""What a session needs to know before it starts, whatever it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from clustertop.places import NO_SITE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from clustertop.inventory import Inventory
    from clustertop.model import Transition
    from clustertop.places import Site
    from clustertop.released import ReleasedNodes
    from clustertop.rules.spec import Rule
    from clustertop.store.store import ExpectCount, ExpectWidth
    from clustertop.store.view import Freshness
    from clustertop.wire.transport import PollSettings


class Way(Protocol):
    """A way out for transitions. It never blocks."""

    note: str
    """What an operator must know of it; empty while all goes well."""

    def tell(self, changes: Sequence[Transition]) -> None:
        """Take the transitions of a tick."""
        ...

    async def close(self) -> None:
        """Let what waits go, within bounds."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a session needs to know before it starts."""

    inventory: Inventory
    settings: PollSettings
    rules: Mapping[str, Rule]
    expect_width: ExpectWidth | None = None
    expect_gpus: ExpectCount | None = None
    expect_ports: ExpectCount | None = None
    freshness: Freshness | None = None
    released: ReleasedNodes | None = None
    """Where it is kept which nodes' GPUs the operator had let go; None: only for the length of the session."""
    title: str = ""
    site: Site = NO_SITE
    """What is watched beside the nodes; its notes are among ``notes``."""
    outlets: Callable[[], Sequence[Way]] | None = None
    """Makes the ways out for alerts of a session that keeps what it learns; None: there are none."""
    state: Path | None = None
    """Where acknowledgements, known devices and firing alerts outlive the run; None: they do not."""
    accept_seconds: float = 60.0
    """How long a device must be well to be expected from then on."""
    notes: tuple[str, ...] = ()
    settle_seconds: float = 300.0
    """How long after a boot nothing is raised of a node."""
    resume_seconds: float = 15.0
    """How long after a pause of the console itself nothing is raised at all."""
    origins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By rule and field: where the operator's configuration set it; what is not here is built in."""
