"""An alert explained, as lines for the screen: the facts of :mod:`clustertop.rules.explain`, and what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.clock import local_time, local_until
from clustertop.quantity import duration, quantity
from clustertop.rules import words
from clustertop.rules.explain import explain
from clustertop.rules.hands import silence_of
from clustertop.tui.alert_words import place_words, rule_words, thing_words, where_words
from clustertop.tui.cells import severity, wrap

if TYPE_CHECKING:
    from clustertop.core import Snapshot
    from clustertop.model import Alert
    from clustertop.rules.explain import Explanation
    from clustertop.tui.source import Source
    from clustertop.tui.widgets.lines import Line, Look, Span

NAME = 10
"""Cells of the names at the left."""
CURVE = 40
"""Most cells of the curve of the last readings."""
SHORT = 16
"""Cells of a curve that stands beside others."""
_BESIDE = {
    "gpu": (("temperature_celsius", "temperature"), ("power_watts", "power"), ("utilization_ratio", "util")),
    "port": (("transmit_bytes_per_second", "tx"), ("receive_bytes_per_second", "rx")),
    "node": (("cpu_ratio", "CPU"), ("memory_used_ratio", "memory"), ("gpu_utilization_ratio", "GPU util")),
}
"""By table: readings whose past is kept, and what they are called."""


def explained(snapshot: Snapshot, alert: Alert, source: Source, look: Look, wide: int) -> list[Line]:
    """Everything that can be said of *alert* in lines of *wide* cells, the most needed first."""
    one = explain(alert, snapshot.view, snapshot.engine, source.origins, source.times)
    glyphs, rule, unit = look.glyphs, one.rule, one.rule.unit(one.spec)
    text, style = severity(glyphs, alert.severity)
    made = _Lines(max(wide - NAME - 2, 10))
    made.out.append(((f" {text}  ", style), (alert.title, "title"),
                     (f"  {where_words(alert)}  {thing_words(alert.thing, len(alert.members))}", "text")))
    _done(made, snapshot, alert)
    made.add("message", alert.message)
    made.add("now", _now(one))
    if alert.value and alert.limit:
        made.add("told", f"{quantity(alert.value, unit)}, limit {rule.op} {quantity(alert.limit, unit)}")
    if not _readings(made, one, look):
        _beside(made, snapshot, alert, look)
    made.add("means", rule.hint)
    made.add("look at", rule.look)
    late = "" if one.detects_within is None else f"; raised at most {duration(one.detects_within)} after it happened"
    made.add("since", f"{local_time(alert.since_wall)}, {duration(one.at - alert.since)} ago{late}")
    limits = ", ".join(f"{limit.severity.name.lower()} {limit.text} ({limit.origin})" for limit in one.limits)
    made.add("rule", f"{alert.rule}: {words.judged(rule, one.spec)}; {limits}; over at {one.clear} "
                     f"({one.clear_origin})")
    made.add("source", rule.source)
    made.add("stands for", ", ".join(alert.members))
    return made.out


class _Lines:
    """Named paragraphs."""

    def __init__(self, wide: int) -> None:
        self.wide = wide
        self.out: list[Line] = []

    def add(self, name: str, text: str, style: str = "text") -> None:
        for number, piece in enumerate(wrap(text, self.wide) if text else []):
            self.out.append(((f" {'' if number else name:<{NAME}} ", "muted"), (piece, style)))


def _done(made: _Lines, snapshot: Snapshot, alert: Alert) -> None:
    """What the operator did, with the reason and by whom."""
    now, view = snapshot.view.wall, snapshot.view
    ack = snapshot.acks.get((alert.rule, alert.thing.id)) if alert.acked else None
    if ack is not None:
        until = "for good, as long as it is no worse" if ack.lasting else "until it is over, or worse"
        made.add("known", f"acknowledged {local_until(ack.at, now)}{_by(ack.by)}, {until}{_reason(ack.reason)}", "info")
    silence = silence_of(alert, snapshot.silences, view.owners) if alert.silenced else None
    if silence is not None:
        made.add("silenced", f"until {local_until(silence.until, now)}{_by(silence.by)}: {rule_words(silence.rule)} "
                             f"on {place_words(silence.where, view)}{_reason(silence.reason)}", "info")


def _by(name: str) -> str:
    return f" by {name}" if name else ""


def _reason(text: str) -> str:
    return f'; "{text}"' if text else ""


def _now(one: Explanation) -> str:
    if one.alert.row < 0:
        return ""
    unit = one.rule.unit(one.spec)
    value = quantity(one.now, unit) if one.now is not None else f"? ({one.why})"
    return f"{value}: {words.judged(one.rule, one.spec)}"


def _readings(made: _Lines, one: Explanation, look: Look) -> bool:
    """A curve of the last readings, with their range and age; False: none are kept of what the rule looks at."""
    known = [value for _, value in one.readings if value is not None]
    if len(known) < 2:
        return False
    unit, glyphs = one.spec.metric(one.rule.metric).unit, look.glyphs
    low, high = min(known), max(known)
    wide = min(CURVE, len(one.readings) if glyphs.ascii else (len(one.readings) + 1) // 2)
    shown = one.readings[-wide * (1 if glyphs.ascii else 2):]
    curve = glyphs.spark([float("nan") if value is None else value for _, value in shown], wide, low, high)
    spans: tuple[Span, ...] = (
        (f" {'readings':<{NAME}} ", "muted"), (curve, "accent"),
        (f"  {quantity(low, unit)} to {quantity(high, unit)} in the last {duration(shown[0][0])}"
         f"{', not all of them known' if len(known) < len(one.readings) else ''}", "text"))
    made.out.append(spans)
    return True


def _beside(made: _Lines, snapshot: Snapshot, alert: Alert, look: Look) -> None:
    """What is kept of the same thing's other readings: one line of short curves."""
    view, wide = snapshot.view, made.wide
    if alert.row < 0 or alert.thing.table not in _BESIDE:
        return
    table, spans, left = view[alert.thing.table], [(f" {'beside it':<{NAME}} ", "muted")], wide
    for metric, name in _BESIDE[alert.thing.table]:
        series = view.history.series(table.spec.name, metric, alert.row).astype(float)
        known = series[series == series]
        if len(known) < 2:
            continue
        unit = table.spec.metric(metric).unit
        curve = look.glyphs.spark(series.tolist(), SHORT, float(known.min()), float(known.max()))
        words = f" {quantity(float(known.min()), unit)} to {quantity(float(known.max()), unit)}   "
        left -= len(name) + 1 + SHORT + len(words)
        if left < 0:
            break
        spans += [(f"{name} ", "muted"), (curve, "accent"), (words, "text")]
    if len(spans) > 1:
        made.out.append(tuple(spans))
