"""The lines that are always there: tabs and title, the summary, the keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from clustertop.quantity import duration, quantity
from clustertop.tui.widgets.lines import BLANK, Line, LineView, Look, Span

if TYPE_CHECKING:
    from textual import events

    from clustertop.model import OwnCost
    from clustertop.tui.picture import Totals


class Bar(LineView):
    """A few fixed lines."""

    DEFAULT_CSS = """
    Bar { height: 1; overflow-y: hidden; background: $panel; }
    """

    def __init__(self, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self._made: list[Line] = []

    def put(self, lines: list[Line]) -> None:
        """Show *lines*; the bar is as tall as they are many."""
        if len(lines) != len(self._made):
            self.styles.height = max(len(lines), 1)
            self.display = bool(lines)
        self._made = lines
        self.changed()

    def count(self) -> int:
        """Lines there are."""
        return len(self._made)

    def build(self, y: int) -> Line:
        """Line *y*."""
        return self._made[y] if y < len(self._made) else BLANK


class Tabs(Bar):
    """The name, what is shown, and the screens."""

    class Chosen(Message):
        """A screen was clicked."""

        def __init__(self, pane: str) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, look: Look, tabs: tuple[tuple[str, str, str], ...]) -> None:
        super().__init__(look, id="tabs")
        self._tabs = tabs
        self._places: list[tuple[int, int, str]] = []

    def show(self, current: str, title: str, badges: dict[str, str]) -> None:
        """Draw the tabs, *current* marked, with a count behind some."""
        fit = self.look.glyphs
        out: list[Span] = [(" clustertop " if self.wide >= 56 else " ", "title")]
        if title and self.wide >= 90:
            out.append((f"{fit.plain(title)[:40]} ", "accent"))
        x = sum(len(text) for text, _ in out)
        names = sum(len(key) + len(name) + 3 + (len(badges[pane]) + 3 if badges.get(pane) else 0)
                    for key, pane, name in self._tabs)
        full = x + names <= self.wide
        self._places = []
        for key, pane, name in self._tabs:
            badge = f"({badges[pane]})" if badges.get(pane) else ""
            if full:
                text = f" {key} {name} {badge} " if badge else f" {key} {name} "
            else:
                text = f" {key}:{name} " if pane == current else f" {key} "
            out.append((text, "tab" if pane == current else "muted"))
            self._places.append((x, x + len(text), pane))
            x += len(text)
        self.put([tuple(out)])

    def on_click(self, event: events.Click) -> None:
        """Go to the screen under the mouse."""
        for left, right, pane in self._places:
            if left <= event.x < right:
                self.post_message(self.Chosen(pane))


@dataclass(frozen=True, slots=True)
class Moment:
    """What the summary says beside the fleet's sums."""

    paused_seconds: float | None
    waiting_seconds: float | None
    """Since the source last gave anything new, where that is long."""
    terms: str
    notes: tuple[str, ...]


class Summary(Bar):
    """Nodes, GPUs, alerts, ages and what watching costs."""

    def show(self, totals: Totals | None, cost: OwnCost | None, moment: Moment) -> None:
        """Draw the sums; where one line is too short they take two, and three beside a filter or a pause."""
        out = [_state(self.look, moment), _fleet(totals), _alerts(self.look, totals), _age(totals), _cost(totals, cost)]
        parts = [part for part in out if part]
        lines: list[Line] = []
        line: list[Span] = []
        used = 0
        room = max(self.wide, 20)
        most = 3 if out[0] else 2
        for part in parts:
            size = sum(len(text) for text, _ in part) + 3
            if line and used + size > room:
                lines.append(tuple(line))
                line, used = [], 0
                if len(lines) == most:
                    break
            line.extend((("   " if line else " ", "text"), *part))
            used += size
        if line and len(lines) < most:
            lines.append(tuple(line))
        for note in moment.notes:
            glyphs = self.look.glyphs
            lines.append(((f" {glyphs.warning} ", "warning"), (glyphs.fit(note, max(room - 4, 1)), "warning")))
        self.put(lines)


def _state(look: Look, moment: Moment) -> list[Span]:
    out: list[Span] = []
    if moment.paused_seconds is not None:
        out.append((f" PAUSED {duration(moment.paused_seconds)} ", "paused"))
    if moment.waiting_seconds is not None:
        out.append((f" no new data for {duration(moment.waiting_seconds)} ", "paused"))
    if moment.terms:
        out.append((f" filter: {look.glyphs.plain(moment.terms)[:30]} ", "accent"))
    return out


def _fleet(totals: Totals | None) -> list[Span]:
    if totals is None:
        return [("no reading yet", "unknown")]
    bad = totals.nodes_up < totals.nodes_tried
    lost = totals.gpus_present + totals.gpus_released < totals.gpus_known
    unknown = ("?", "unknown")
    return [
        ("nodes ", "muted"), (f"{totals.nodes_up}/{totals.nodes}", "critical" if bad else "title"),
        *([(f" ({totals.nodes_silent} stale)", "stale")] if totals.nodes_silent else []),
        ("  GPUs ", "muted"), (f"{totals.gpus_present}/{totals.gpus_known}", "critical" if lost else "title"),
        *([(f" ({totals.gpus_released} released)", "info")] if totals.gpus_released else []),
        ("  util ", "muted"), *([unknown] if totals.utilization_ratio is None else
                                [(quantity(totals.utilization_ratio, "ratio"), "title")]),
        ("  power ", "muted"), *([unknown] if totals.power_watts is None else
                                 [("at least " if totals.power_partial else "", "muted"),
                                  (quantity(totals.power_watts, "W"), "title")]),
    ]


def _alerts(look: Look, totals: Totals | None) -> list[Span]:
    if totals is None:
        return []
    critical, warning, info = totals.alerts
    if not any(totals.alerts):
        return [(f"{look.glyphs.ok} no alert", "ok" if totals.nodes_up else "muted")]
    out: list[Span] = []
    for count, glyph, word, style in ((critical, look.glyphs.critical, "CRIT", "critical"),
                                      (warning, look.glyphs.warning, "warn", "warning"),
                                      (info, look.glyphs.info, "info", "info")):
        if count:
            out.append((f"{glyph} {count} {word}  ", style))
    known = [f"{count} {word}" for count, word in (
        (totals.acknowledged, "acknowledged"), (totals.silenced, "silenced")) if count]
    if known:
        out.append((f"({', '.join(known)})", "muted"))
    else:
        out[-1] = (out[-1][0].rstrip(), out[-1][1])
    return out


def _age(totals: Totals | None) -> list[Span]:
    if totals is None or totals.newest_seconds is None or totals.oldest_seconds is None:
        return []
    old = totals.oldest_seconds > 6.0
    return [("age ", "muted"), (duration(totals.newest_seconds), "text"), (" to ", "muted"),
            (duration(totals.oldest_seconds), "stale" if old else "text")]


def _cost(totals: Totals | None, cost: OwnCost | None) -> list[Span]:
    out: list[Span] = [("watching costs ", "muted")]
    if cost is not None:
        out += [("here ", "muted"),
                (f"{quantity(cost.cpu_ratio, 'ratio')} CPU {quantity(cost.memory_bytes, 'B')}", "text")]
    if totals is not None and totals.probe_cpu_mean is not None and totals.probe_cpu_max is not None:
        out += [(", nodes " if cost is not None else "nodes ", "muted"),
                (f"{quantity(totals.probe_cpu_mean, 'ratio')}", "text"),
                (" max ", "muted"), (f"{quantity(totals.probe_cpu_max, 'ratio')}", "text")]
    return out if len(out) > 1 else []


class Keys(Bar):
    """The keys that do something here; or, for a moment, what was just done."""

    def show(self, keys: list[tuple[str, str]], said: str) -> None:
        """Draw the keys that fit, or *said*."""
        if said:
            self.put([((" ", "text"), (self.look.glyphs.plain(said), "accent"))])
            return
        out: list[Span] = []
        used = 0
        for key, words in keys:
            size = len(key) + len(words) + 3
            if used + size > self.wide:
                break
            out += [(f" {key}", "accent"), (f" {words} ", "muted")]
            used += size
        self.put([tuple(out)])
