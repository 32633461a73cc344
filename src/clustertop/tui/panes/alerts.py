"""Screen 2: what is firing, worst first, what is known behind it; below, one alert explained, or the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.clock import local_time
from clustertop.quantity import duration, quantity
from clustertop.tui.alert_words import known_words, many, nodes_of, thing_words, what_words, where_words
from clustertop.tui.cells import severity, title
from clustertop.tui.explained import explained
from clustertop.tui.panes.base import ListPane
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from clustertop.model import Alert, Transition
    from clustertop.tui.picture import Picture
    from clustertop.tui.source import Source
    from clustertop.tui.widgets.lines import Line, Look, Span

KIND_STYLE = {"raised": "critical", "worsened": "critical", "remains": "critical", "spread": "warning",
              "eased": "warning", "cleared": "ok", "acknowledged": "info", "silenced": "info", "dismissed": "info",
              "folded": "muted"}
MOST_LOG = 400
"""Entries of the log that are drawn."""


def _limit(alert: Alert) -> str:
    # A limit of 0 means "any at all": the message says it better.
    if not alert.value or not alert.limit or not alert.unit:
        return ""
    return f"{quantity(alert.value, alert.unit)} / {quantity(alert.limit, alert.unit)}"


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """A line of the list: an alert, or a verdict inside the one above it."""

    alert: Alert
    under: int | None
    """Number of the alert that it is inside of; None: it is one itself."""


class AlertTable(Table["Picture"]):
    """Lines of alerts; what is inside an alert stays below it in any order."""

    def __init__(self, look: Look, columns: Sequence[Column[Picture]],
                 identity: Callable[[Picture, int], Hashable]) -> None:
        super().__init__(look, columns, identity=identity, id="alert-table")
        self.inside: dict[int, list[int]] = {}
        """By line of an alert: the lines of what is inside it."""

    def _sort(self, picture: Picture, rows: NDArray[np.intp]) -> list[int]:
        under = {line for mine in self.inside.values() for line in mine}
        heads = np.array([row for row in rows.tolist() if row not in under], np.intp)
        return [line for head in super()._sort(picture, heads) for line in (head, *self.inside.get(head, ()))]


class AlertsPane(ListPane):
    """The list, and below it one alert explained or the log."""

    TITLE: ClassVar[str] = "Alerts"
    table: AlertTable

    def __init__(self, look: Look, source: Source, *, id: str = "alerts") -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.source = source
        self.entries: list[Entry] = []
        self.opened: set[str] = set()
        """Ids of the alerts that are unfolded."""
        self.known_shown = True
        """Whether what is acknowledged or silenced is in the list; its number is in the summary either way."""
        self.head = Bar(look, id="alerts-head")
        self.head.display = False
        self.table = AlertTable(look, self._columns(), self._identity)
        self.lower = Document(look, id="alert-detail")
        self.log_shown = False
        self.lower.remake = self.draw_lower

    def _columns(self) -> tuple[Column[Picture], ...]:
        glyphs = self.look.glyphs

        def of(row: int) -> Alert:
            return self.entries[row].alert

        def heads() -> list[Alert]:
            return [entry.alert for entry in self.entries]

        def dim(row: int, style: str) -> str:
            entry = self.entries[row]
            head = entry.alert if entry.under is None else self.entries[entry.under].alert
            return "muted" if head.acked or head.silenced else style

        def state(picture: Picture, row: int) -> Span:
            text, style = severity(glyphs, of(row).severity)
            return (text, dim(row, style))

        def node(picture: Picture, row: int) -> Span:
            return (f"{'  ' if self._under(row) else ''}{where_words(of(row))}", dim(row, "text"))

        def thing(picture: Picture, row: int) -> Span:
            alert = of(row)
            mark = ("- " if alert.id in self.opened else "+ ") if many(alert) else ""
            return (f"{'  ' if self._under(row) else mark}{thing_words(alert.thing, len(alert.members))}",
                    dim(row, "text"))

        def what(picture: Picture, row: int) -> Span:
            known = known_words(of(row), picture.snapshot)
            return (f"({known}) {of(row).message}" if known else of(row).message, dim(row, "text"))

        return (
            Column("state", 8, state, lambda p: np.array([float(alert.severity) for alert in heads()]), "<"),
            Column("for", 8, lambda p, r: (duration(p.view.at - of(r).since), "muted"),
                   lambda p: np.array([p.view.at - alert.since for alert in heads()]), rank=1),
            Column("node", 14, node, lambda p: [alert.where for alert in heads()], "<", down=False),
            Column("thing", 14, thing, lambda p: [alert.thing.label for alert in heads()], "<", down=False),
            Column("what", 24, what, None, "<", grow=True, want=66),
            Column("value / limit", 16, lambda p, r: (_limit(of(r)), "muted"), None, rank=4),
            Column("rule", 18, lambda p, r: (of(r).rule, "muted"), lambda p: [alert.rule for alert in heads()], "<",
                   rank=5, down=False),
        )

    def _under(self, row: int) -> bool:
        return self.entries[row].under is not None

    def _identity(self, picture: Picture, row: int) -> Hashable:
        entry = self.entries[row]
        if entry.under is None:
            return entry.alert.id
        return (entry.alert.id, entry.alert.rule, entry.alert.thing.id)

    def draw(self) -> None:
        """Draw the list and what is below it."""
        picture = self.picture
        if picture is None:
            return
        self.split(self.lower, 2, 16, 40 if self.log_shown else 18)
        rows = self._list(picture)
        self._say_hidden(picture)
        self.table.name_width(picture.atlas.name_width + (2 if self.table.inside else 0))
        self.table.show(picture, rows, self._empty(picture))
        self.draw_lower()

    def _list(self, picture: Picture) -> list[int]:
        """Make the lines anew: the alerts by their number, then what is inside those unfolded. Returns those shown."""
        alerts = picture.snapshot.alerts
        self.entries = [Entry(alert, None) for alert in alerts]
        self.table.inside = {}
        self.opened &= {alert.id for alert in alerts}
        rows = []
        for number, alert in enumerate(alerts):
            if not self.known_shown and (alert.acked or alert.silenced):
                continue
            words = self._words(picture, alert)
            if not picture.matches_any(alert.on, words):
                continue
            rows.append(number)
            if alert.id in self.opened:
                first = len(self.entries)
                self.entries += [Entry(one, number) for one in self._verdicts(alert)
                                 if picture.matches_any(one.on, f"{words} {self._words(picture, one)}")]
                self.table.inside[number] = list(range(first, len(self.entries)))
        return rows

    def _words(self, picture: Picture, alert: Alert) -> str:
        """What a filter finds, in small letters; empty where there is none."""
        if not picture.terms:
            return ""
        return (f"{alert.thing.label} {alert.rule} {alert.message} {alert.severity.name} "
                f"{known_words(alert, picture.snapshot)}".lower())

    def _verdicts(self, alert: Alert) -> list[Alert]:
        """What is inside *alert*, worst first, without its own verdict where it is about one thing."""
        newest = self.source.snapshot
        if newest is None:
            return []
        # Rows are those of the newest moment, also while an older one is held on the screen.
        return [one for one in newest.engine.inside(newest.view, alert)
                if (one.rule, one.thing.id) != (alert.rule, alert.thing.id)]

    def _say_hidden(self, picture: Picture) -> None:
        hidden = 0 if self.known_shown else sum(alert.acked or alert.silenced for alert in picture.snapshot.alerts)
        self.head.put([((f" {hidden} of {len(picture.snapshot.alerts)} alerts are acknowledged or silenced and not "
                         f"in this list: a shows them", "info"),)] if hidden else [])

    def _empty(self, picture: Picture) -> tuple[str, str]:
        count = len(picture.snapshot.alerts)
        if count and not picture.terms:
            return ("nothing else fires", "muted")
        if count:
            return (f"none of the {count} alerts matches the filter", "unknown")
        totals = picture.totals
        if not totals.nodes_up:
            return (f"nothing is judged yet: 0 of {totals.nodes} nodes report", "unknown")
        unheard = totals.nodes - totals.nodes_up
        tail = f"; {unheard} nodes do not report and are not judged" if unheard else ""
        rules = sum(rule.enabled for rule in picture.snapshot.engine.rules.values())
        return (f"no alert: {rules} rules over {totals.nodes_up} nodes, {totals.gpus_present} GPUs, "
                f"{len(picture.view['port'])} RDMA ports{tail}", "unknown" if unheard else "ok")

    def draw_lower(self) -> None:
        """The alert under the cursor explained, or the log."""
        if self.picture is not None:
            self.lower.show_lines(self._log() if self.log_shown else self._detail())

    def _detail(self) -> list[Line]:
        alert, picture = self.alert(), self.picture
        if alert is None or picture is None:
            return self._log()
        return explained(picture.snapshot, alert, self.source, self.look, self.lower.wide)

    # -- the log -------------------------------------------------------------------------------------------------

    def _log(self) -> list[Line]:
        picture = self.picture
        assert picture is not None
        out: list[Line] = [title(" Log", "newest first")]
        log = picture.snapshot.log
        # What an alert is called: as it stands, or as it was last told of.
        names = {change.alert: f"{where_words(change)}: {change.message}" for change in log}
        names.update((alert.id, what_words(alert)) for alert in picture.snapshot.alerts)
        for change in reversed(log):
            if picture.terms:
                nodes = nodes_of(change.thing, picture.view)
                if change.thing.node:
                    nodes = (picture.atlas.node_of.get(change.thing.node, -1),)
                words = f"{change.thing.label} {change.rule} {change.message} {change.kind}".lower()
                if not picture.matches_any(tuple(node for node in nodes if node >= 0), words):
                    continue
            out.append(self._entry(change, names.get(change.into, "")))
            if len(out) > MOST_LOG:
                break
        if len(out) == 1:
            out.append(((" nothing has been raised or cleared yet", "muted"),))
        return out

    def _entry(self, change: Transition, into: str) -> Line:
        glyphs, picture = self.look.glyphs, self.picture
        assert picture is not None
        text, style = severity(glyphs, change.severity)
        name = min(max(picture.atlas.name_width, 8), 20)
        message = change.message
        if change.kind == "folded":
            message = f"now part of {into}" if into else f"now part of another alert: {message}"
        dim = change.quiet or change.kind == "folded"
        over = dim or change.kind == "cleared"
        spans: list[Span] = [
            (f" {local_time(change.wall)} ", "muted"),
            (f"{change.kind:<13}", "muted" if dim else KIND_STYLE.get(change.kind, "text")),
            (f"{text:<8}", "muted" if over else style),
            (glyphs.fit(where_words(change), name) + " ", "muted" if dim else "text"),
            (glyphs.fit(thing_words(change.thing, change.members), 14) + " ", "muted" if dim else "text"),
            (message, "muted" if dim else "text"),
        ]
        return tuple(spans)

    # -- what keys do --------------------------------------------------------------------------------------------

    def row_moved(self) -> None:
        """Another alert: another detail, from its start."""
        if not self.log_shown:
            self.lower.scroll_to(y=0, animate=False)
            self.draw_lower()

    def toggle_log(self) -> str:
        """Show the log or the detail."""
        self.log_shown = not self.log_shown
        self.draw()
        return "log" if self.log_shown else "detail"

    def toggle_known(self) -> str:
        """Have what is acknowledged or silenced in the list, or not."""
        self.known_shown = not self.known_shown
        self.draw()
        return "every alert" if self.known_shown else "without what is acknowledged or silenced"

    def fold(self) -> str:
        """Unfold the alert under the cursor, or fold it; returns what to say where there is nothing inside."""
        head = self.alert(head=True)
        if head is None:
            return ""
        if head.id in self.opened:
            self.opened.discard(head.id)
            at = next((place for place, row in enumerate(self.table.rows)
                       if self.entries[row].alert.id == head.id), None)
            if at is not None:
                self.table.go(at)
        elif self._verdicts(head):
            self.opened.add(head.id)
        else:
            return "one thing: nothing else is inside"
        self.draw()
        return ""

    def opens(self) -> bool:
        """Whether the line under the cursor is an alert about many things, which unfolds."""
        row = self.table.row
        return row is not None and not self._under(row) and many(self.entries[row].alert)

    def alert(self, *, head: bool = False) -> Alert | None:
        """The alert or verdict under the cursor; *head*: the alert itself, also where a verdict inside it is."""
        row = self.table.row
        if row is None:
            return None
        entry = self.entries[row]
        return self.entries[entry.under].alert if head and entry.under is not None else entry.alert

    def node(self) -> int | None:
        """The node of the alert; None where it is about many."""
        alert, picture = self.alert(), self.picture
        return None if alert is None or picture is None else picture.atlas.node_of.get(alert.thing.node)
