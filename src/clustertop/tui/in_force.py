"""What operators acknowledged and silenced, with when it ends; each can be ended here."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from clustertop.clock import local_until
from clustertop.quantity import duration
from clustertop.rules.hands import Ack, Silence
from clustertop.tui.alert_words import place_words, rule_words
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Hashable

    from textual.app import ComposeResult

    from clustertop.store.view import FleetView
    from clustertop.tui.source import Source
    from clustertop.tui.widgets.lines import Look


class InForce:
    """Silences, then acknowledgements, at one moment."""

    def __init__(self, source: Source, view: FleetView) -> None:
        hands = source.core.hands
        self.view = view
        self.silences = sorted(hands.silences.values(), key=lambda one: one.until)
        self.acks = sorted(hands.acks.values(), key=lambda one: one.at)

    def __len__(self) -> int:
        return len(self.silences) + len(self.acks)

    def __getitem__(self, row: int) -> Silence | Ack:
        return self.silences[row] if row < len(self.silences) else self.acks[row - len(self.silences)]

    def place(self, row: int) -> str:
        """Where it holds."""
        one = self[row]
        return place_words(one.where if isinstance(one, Silence) else one.thing, self.view)

    def until(self, row: int) -> str:
        """When it ends."""
        one = self[row]
        if isinstance(one, Silence):
            return f"{local_until(one.until, self.view.wall)}, {duration(max(one.until - self.view.wall, 0.0))} left"
        return "for good, unless worse" if one.lasting else "over, or worse"

    def key(self, row: int) -> Hashable:
        """What it is."""
        return (type(self[row]), self[row].key)


class InForceScreen(ModalScreen[None]):
    """The list over whatever was there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,L", "close", show=False), Binding("x,delete", "end", show=False),
        Binding("up,k", "move(-1)", show=False), Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False), Binding("pagedown", "move(10)", show=False),
        Binding("home", "edge(False)", show=False), Binding("end", "edge(True)", show=False),
    ]
    DEFAULT_CSS = """
    InForceScreen { background: $background; }
    InForceScreen Table { width: 1fr; height: 1fr; }
    """

    def __init__(self, look: Look, source: Source) -> None:
        super().__init__()
        self._source = source
        columns: tuple[Column[InForce], ...] = (
            Column("what", 8, lambda p, r: ("silence" if isinstance(p[r], Silence) else "ack", "text"), None, "<"),
            Column("on", 18, lambda p, r: (p.place(r), "title"), None, "<"),
            Column("rule", 20, lambda p, r: (rule_words(p[r].rule), "text"), None, "<"),
            Column("until", 24, lambda p, r: (p.until(r), "text"), None, "<"),
            Column("by", 10, lambda p, r: (p[r].by or "?", "muted"), None, "<", rank=2),
            Column("since", 16, lambda p, r: (local_until(p[r].at, p.view.wall), "muted"), None, "<", rank=3),
            Column("reason", 12, lambda p, r: (p[r].reason or "-", "text"), None, "<", rank=1, grow=True),
        )
        self.head, self.keys = Bar(look, id="in-force-head"), Bar(look, id="in-force-keys")
        self.table: Table[InForce] = Table(look, columns, identity=lambda p, r: p.key(r), id="in-force")

    def compose(self) -> ComposeResult:
        """Head, list, keys."""
        yield self.head
        yield self.table
        yield self.keys

    def on_mount(self) -> None:
        """Fill the list, and again every second."""
        self.head.put([((" In force: silences and acknowledgements", "title"),)])
        self.keys.put([((" x", "accent"), (" end it   ", "muted"), ("Esc", "accent"), (" back", "muted"))])
        self.set_interval(1.0, self.show)
        self.call_after_refresh(self.show)

    def show(self) -> None:
        """Draw the list as it is now."""
        snapshot = self._source.snapshot
        if snapshot is not None:
            made = InForce(self._source, snapshot.view)
            self.table.show(made, range(len(made)), ("nothing is silenced, nothing is acknowledged", "ok"))

    def action_end(self) -> None:
        """End the one under the cursor."""
        row, made = self.table.row, self.table.picture
        if row is None or made is None:
            return
        one, core = made[row], self._source.core
        if isinstance(one, Silence):
            core.unsilence(one.where, one.rule)
        else:
            core.end_ack(one.rule, one.thing)
        self._source.evaluate()
        self.show()

    def action_close(self) -> None:
        """Back to the screen before."""
        self.dismiss()

    def action_move(self, lines: int) -> None:
        """Move the cursor."""
        self.table.move(0, lines)

    def action_edge(self, last: bool) -> None:
        """To an end of the list."""
        self.table.edge(last)
