"""What the console needs of whoever runs the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.core import Core, Snapshot
    from clustertop.model import OwnCost, Request
    from clustertop.rules.latency import Times


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

    @property
    def core(self) -> Core:
        """What takes acknowledgements, silences and dismissals."""
        ...

    def evaluate(self) -> None:
        """Judge now, beside the regular ticks, so that what the operator did shows at once."""
        ...

    @property
    def origins(self) -> Mapping[str, Mapping[str, str]]:
        """By rule and key: where its value came from; what is not here is built in."""
        ...

    @property
    def times(self) -> Times | None:
        """How often nodes are read and judged: how late an alert can be. None: not known."""
        ...

    def request(self, request: Request) -> None:
        """Pass a request to a node's probe; where there are no probes it does nothing."""
        ...
