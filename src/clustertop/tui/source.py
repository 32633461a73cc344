"""What the console needs of whoever runs the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from clustertop.core import Snapshot
    from clustertop.model import OwnCost, Request


class Source(Protocol):
    """The fleet as the console sees it. The console asks; nothing is pushed to it."""

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest moment; another object after each tick. None before the first."""
        ...

    @property
    def title(self) -> str:
        """What is shown, for the top line: ``demo``, ``replay FILE``, or empty."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings that must stay in sight, for example that host keys are not checked."""
        ...

    def cost(self) -> OwnCost | None:
        """What watching costs here; None before it is known."""
        ...

    @property
    def live(self) -> bool:
        """Whether there are probes that can be asked."""
        ...

    def released(self, node: int) -> bool:
        """Whether the operator wants the GPUs of *node* let go, whether or not they are yet."""
        ...

    def request(self, request: Request) -> None:
        """Pass a request to a node's probe; where there are no probes it does nothing."""
        ...
