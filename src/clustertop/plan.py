"""What a session needs to know before it starts, whatever it was made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.inventory import Inventory
    from clustertop.rules.spec import Rule
    from clustertop.store.store import ExpectCount, ExpectWidth
    from clustertop.store.view import Freshness
    from clustertop.wire.transport import PollSettings


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
    title: str = ""
    notes: tuple[str, ...] = ()
