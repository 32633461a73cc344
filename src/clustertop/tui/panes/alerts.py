"""Screen 2: what is firing, worst first, with its detail or the log below."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.clock import local_time
from clustertop.quantity import duration, quantity
from clustertop.tui.cells import severity, title
from clustertop.tui.panes.base import Pane
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from collections.abc import Hashable

    from textual.app import ComposeResult

    from clustertop.model import Alert, Transition
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Line, Look, Span

KIND_STYLE = {"raised": "critical", "worsened": "critical", "eased": "warning", "cleared": "ok"}


def _alert(picture: Picture, row: int) -> Alert:
    return picture.snapshot.alerts[row]


def _limit(alert: Alert | Transition) -> str:
    # A limit of 0 means "any at all": the message says it better.
    if not alert.value or not alert.limit or not alert.unit:
        return ""
    return f"{quantity(alert.value, alert.unit)} / {quantity(alert.limit, alert.unit)}"


def _identity(picture: Picture, row: int) -> Hashable:
    alert = picture.snapshot.alerts[row]
    return (alert.rule, alert.thing.id)


class AlertsPane(Pane):
    """The list, and below it the detail of one or the log."""

    TITLE: ClassVar[str] = "Alerts"

    def __init__(self, look: Look, *, id: str = "alerts") -> None:  # noqa: A002
        super().__init__(look, id=id)
        glyphs = look.glyphs
        columns: tuple[Column[Picture], ...] = (
            Column("state", 8, lambda p, r: severity(glyphs, _alert(p, r).severity),
                   lambda p: np.array([float(alert.severity) for alert in p.snapshot.alerts]), "<"),
            Column("for", 8, lambda p, r: (duration(p.view.at - _alert(p, r).since), "muted"),
                   lambda p: np.array([p.view.at - alert.since for alert in p.snapshot.alerts]), rank=1),
            Column("node", 14, lambda p, r: (_alert(p, r).where, "text"),
                   lambda p: [alert.where for alert in p.snapshot.alerts], "<", down=False),
            Column("thing", 14, lambda p, r: (_alert(p, r).thing.label if _alert(p, r).thing.key else "node", "text"),
                   lambda p: [alert.thing.label for alert in p.snapshot.alerts], "<", down=False),
            Column("what", 24, lambda p, r: (_alert(p, r).message, "text"), None, "<", grow=True, want=66),
            Column("value / limit", 16, lambda p, r: (_limit(_alert(p, r)), "muted"), None, rank=4),
            Column("rule", 18, lambda p, r: (_alert(p, r).rule, "muted"),
                   lambda p: [alert.rule for alert in p.snapshot.alerts], "<", rank=5, down=False),
        )
        self.table: Table[Picture] = Table(look, columns, identity=_identity, id="alert-table")
        self.lower = Document(look, id="alert-detail")
        self.log_shown = False
        self.lower.remake = self.draw_lower

    def compose(self) -> ComposeResult:
        """List above, detail below."""
        yield self.table
        yield self.lower

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """List and detail."""
        return [self.table, self.lower]

    def draw(self) -> None:
        """Draw the list and what is below it."""
        picture = self.picture
        if picture is None:
            return
        self.split(self.lower, 2 if self.log_shown else 3, 16, 40 if self.log_shown else 9)
        rows = [number for number, alert in enumerate(picture.snapshot.alerts)
                if picture.matches(picture.atlas.node_of.get(alert.thing.node),
                                   f"{alert.thing.label} {alert.rule} {alert.message} {alert.severity.name}".lower())]
        self.table.name_width(picture.atlas.name_width)
        self.table.show(picture, rows, self._empty(picture))
        self.draw_lower()

    def _empty(self, picture: Picture) -> tuple[str, str]:
        if picture.snapshot.alerts:
            return (f"none of the {len(picture.snapshot.alerts)} alerts matches the filter", "unknown")
        totals = picture.totals
        if not totals.nodes_up:
            return (f"nothing is judged yet: 0 of {totals.nodes} nodes report", "unknown")
        unheard = totals.nodes - totals.nodes_up
        tail = f"; {unheard} nodes do not report and are not judged" if unheard else ""
        rules = sum(rule.enabled for rule in picture.snapshot.engine.rules.values())
        return (f"no alert: {rules} rules over {totals.nodes_up} nodes, {totals.gpus_present} GPUs, "
                f"{len(picture.view['port'])} RDMA ports{tail}", "unknown" if unheard else "ok")

    def draw_lower(self) -> None:
        """The detail of the alert under the cursor, or the log."""
        if self.picture is not None:
            self.lower.show_lines(self._log() if self.log_shown else self._detail())

    def _detail(self) -> list[Line]:
        row, picture = self.table.row, self.picture
        if row is None or picture is None:
            return self._log()
        alert, glyphs = _alert(picture, row), self.look.glyphs
        text, style = severity(glyphs, alert.severity)
        wide = max(self.lower.wide - 11, 10)
        out: list[Line] = [
            ((f" {text}  ", style), (alert.title, "title"), (f"  {alert.thing.node}  {alert.thing.label}", "text")),
        ]
        pairs = [("message", alert.message), ("since", f"{local_time(alert.since_wall)}, "
                                                       f"{duration(picture.view.at - alert.since)} ago"),
                 ("value", _limit(alert)), ("rule", alert.rule)]
        if alert.members:
            pairs.append(("also", ", ".join(alert.members)))
        pairs.append(("look at", alert.hint))
        for name, words in pairs:
            for number, piece in enumerate(wrap(words, wide) if words else []):
                out.append(((f" {'' if number else name:<9}", "muted"), (piece, "text")))
        return out

    def _log(self) -> list[Line]:
        picture = self.picture
        assert picture is not None
        out: list[Line] = [title(" Log", "newest first")]
        for change in reversed(picture.snapshot.log):
            if picture.terms and not picture.matches(
                    picture.atlas.node_of.get(change.thing.node),
                    f"{change.thing.label} {change.rule} {change.message} {change.kind}".lower()):
                continue
            out.append(self._entry(change))
            if len(out) > 400:
                break
        if len(out) == 1:
            out.append(((" nothing has been raised or cleared yet", "muted"),))
        return out

    def _entry(self, change: Transition) -> Line:
        glyphs, picture = self.look.glyphs, self.picture
        assert picture is not None
        text, style = severity(glyphs, change.severity)
        name = min(max(picture.atlas.name_width, 8), 20)
        thing = change.thing.label if change.thing.key else "node"
        spans: list[Span] = [
            (f" {local_time(change.wall)} ", "muted"), (f"{change.kind:<9}", KIND_STYLE.get(change.kind, "text")),
            (f"{text:<8}", "muted" if change.kind == "cleared" else style),
            (glyphs.fit(change.thing.node, name) + " ", "text"), (glyphs.fit(thing, 14) + " ", "text"),
            (change.message, "text"),
        ]
        return tuple(spans)

    def on_table_moved(self, event: Table.Moved) -> None:
        """Another alert: another detail."""
        event.stop()
        if not self.log_shown:
            self.draw_lower()

    def toggle_log(self) -> str:
        """Show the log or the detail."""
        self.log_shown = not self.log_shown
        self.draw()
        return "log" if self.log_shown else "detail"

    def node(self) -> int | None:
        """The node of the alert."""
        row, picture = self.table.row, self.picture
        return None if row is None or picture is None else picture.atlas.node_of.get(_alert(picture, row).thing.node)

    def row_text(self) -> str:
        """The alert as text."""
        return self.table.row_text()


def wrap(text: str, width: int) -> list[str]:
    """Break *text* at blanks into lines of at most *width* characters."""
    out, line = [], ""
    for word in text.split():
        while len(word) > width:
            if line:
                out.append(line)
                line = ""
            out.append(word[:width])
            word = word[width:]
        if line and len(line) + 1 + len(word) > width:
            out.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*out, line] if line else out or [""]
