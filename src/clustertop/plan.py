"""What a session needs to know before it starts, whatever it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.inventory import Inventory
    from clustertop.rules.spec import Rule
    from clustertop.store.store import ExpectGpus, ExpectWidth
    from clustertop.store.view import Freshness
    from clustertop.wire.transport import PollSettings


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a session needs to know before it starts."""

    inventory: Inventory
    settings: PollSettings
    rules: Mapping[str, Rule]
    expect_width: ExpectWidth | None = None
    expect_gpus: ExpectGpus | None = None
    freshness: Freshness | None = None
    title: str = ""
    notes: tuple[str, ...] = ()
    settle_seconds: float = 300.0
    """How long after a boot nothing is raised of a node."""
    resume_seconds: float = 15.0
    """How long after a pause of the console itself nothing is raised at all."""
    origins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By rule and field: where the operator's configuration set it; what is not here is built in."""
