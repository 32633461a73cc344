"""What keys and commands do to alerts: acknowledge, silence, dismiss, and take each back."""

from __future__ import annotations

import getpass
import glob
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop.clock import local_until
from clustertop.rules.hands import silence_of
from clustertop.text import clean
from clustertop.tui.acting import Acting
from clustertop.tui.alert_words import place_words, rule_words, thing_words, where_words
from clustertop.tui.ask import Ask
from clustertop.tui.confirm import Confirm
from clustertop.tui.in_force import InForceScreen
from clustertop.tui.panes.alerts import AlertsPane

if TYPE_CHECKING:
    from clustertop.model import Alert, NodeInfo
    from clustertop.rules.hands import Silence
    from clustertop.tui.ask import Answer

TIMES = ((1800.0, "30 min"), (7200.0, "2 h"), (28800.0, "8 h"), (86400.0, "24 h"))
"""For how long a silence can be, seconds and words."""
USUAL = 1
KNOWN = ("until it is over, or worse", "for good: also when it comes back no worse (a slot that is x8 by design)")
GONE = (
    "It is expected no more, on this and every later run. Should it be seen again",
    "and go missing then, that is an alert again.",
    "Nothing on the node is changed.",
)
ON_2 = "no alert under the cursor: choose one on screen 2"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a silence can hold."""

    where: str
    rule: str
    words: str


def operator() -> str:
    """The name of who uses the console; empty where the system has none."""
    try:
        return clean(getpass.getuser(), 32)
    except (OSError, KeyError):
        return ""


def scopes(alert: Alert | None, node: NodeInfo | None) -> list[Scope]:
    """What can be silenced about *alert*, or about *node* where there is none; the narrowest first."""
    out: list[Scope] = []
    if alert is not None and not alert.thing.node:
        name = alert.thing.key or "*"
        out.append(Scope(name, alert.rule, f"{alert.rule} in {alert.thing.label}"))
        out.append(Scope(name, "*", f"every rule in {alert.thing.label}"))
    elif alert is not None:
        thing = alert.thing
        # Of several things of a node the mark is a star, which holds any of them.
        where = thing.id if thing.key == "*" else glob.escape(thing.id)
        if thing.key:
            out.append(Scope(where, alert.rule, f"{alert.rule} on {thing.node} {thing.label}"))
        out.append(Scope(glob.escape(thing.node), alert.rule, f"{alert.rule} on node {thing.node}"))
    if node is not None:
        out.append(Scope(glob.escape(node.name), "*", f"every rule on node {node.name}"))
        places = {node.rack: f"rack {node.rack}", node.leaf: f"leaf {node.leaf}"}
        out += [Scope(glob.escape(name), "*", f"every rule in {words}") for name, words in places.items() if name]
        out += [Scope(glob.escape(name), "*", f"every rule in group {name}") for name in node.groups
                if name not in places]
    if alert is not None and not any(one.where == "*" and one.rule == alert.rule for one in out):
        out.append(Scope("*", alert.rule, f"{alert.rule} everywhere"))
    return out


class Handling(Acting):
    """The actions on alerts."""

    def take_newest(self) -> None:
        """Take the newest snapshot now."""
        raise NotImplementedError

    def _chosen(self, *, head: bool = True) -> Alert | None:
        """The alert under the cursor as it stands now, or None after having said why there is none."""
        pane, newest = self.panes[self.front], self.source.snapshot
        alert = pane.alert(head=head) if isinstance(pane, AlertsPane) else None
        if alert is None or newest is None:
            self.say(ON_2)
            return None
        now = next((one for one in newest.alerts if one.id == alert.id), None)
        if now is None:
            self.say("that alert is over")
            return None
        return now if head or (now.rule, now.thing.id) == (alert.rule, alert.thing.id) else alert

    def _done(self, words: str) -> None:
        """Show at once what was done."""
        self.source.evaluate()
        self.take_newest()
        self.say(words)

    # -- acknowledge ---------------------------------------------------------------------------------------------

    def action_acknowledge(self) -> None:
        """Acknowledge the alert under the cursor, with a reason; or take that back."""
        self._ask_known(0)

    def acknowledge_for_good(self) -> None:
        """Acknowledge it also for when it comes back."""
        self._ask_known(1)

    def _ask_known(self, choice: int) -> None:
        alert = self._chosen()
        if alert is None:
            return
        name = _name(alert)
        if alert.acked:
            self.source.core.unacknowledge(alert)
            self._done(f"no longer acknowledged: {name}")
            return
        ask = Ask(self.look, f"Acknowledge {name}?", KNOWN, (), "acknowledge")
        ask.choice = choice
        self.push_screen(ask, lambda answer: self._acknowledge(alert, answer))

    def _acknowledge(self, alert: Alert, answer: Answer | None) -> None:
        if answer is None:
            return
        self.source.core.acknowledge(alert, by=operator(), reason=answer.reason, lasting=answer.choice == 1)
        self._done(f"acknowledged{' for good' if answer.choice else ''}: {_name(alert)}")

    # -- silence -------------------------------------------------------------------------------------------------

    def action_silence(self) -> None:
        """Tell of nothing from what is under the cursor for a while, or end that."""
        pane, picture = self.panes[self.front], self.picture
        alert = self._chosen(head=False) if isinstance(pane, AlertsPane) else None
        number = pane.node()
        if picture is None or (alert is None and number is None):
            if not isinstance(pane, AlertsPane):
                self.say(self.no_node())
            return
        node = None if number is None else picture.view.nodes[number]
        choices = scopes(alert, node)
        ends = None if alert is None else silence_of(alert, self.source.core.hands.silences.values(),
                                                     picture.view.owners)
        words = [one.words for one in choices]
        if ends is not None:
            words.append(f"end the silence of {rule_words(ends.rule)} on {place_words(ends.where, picture.view)}, "
                         f"until {local_until(ends.until, picture.view.wall)}")
        what = _name(alert) if alert is not None else node.name if node is not None else ""
        ask = Ask(self.look, f"Silence {what}?", words, [text for _, text in TIMES], "do it", time=USUAL)
        self.push_screen(ask, lambda answer: self._silence(choices, ends, answer))

    def _silence(self, choices: list[Scope], ends: Silence | None, answer: Answer | None) -> None:
        if answer is None:
            return
        if answer.choice >= len(choices):
            if ends is not None:
                self.source.core.unsilence(ends.where, ends.rule)
                self._done("no longer silenced")
            return
        one, (seconds, words) = choices[answer.choice], TIMES[answer.time]
        self.source.core.silence(one.where, one.rule, seconds, by=operator(), reason=answer.reason)
        self._done(f"silenced for {words}: {one.words}")

    def action_in_force(self) -> None:
        """The list of silences and acknowledgements."""
        self.push_screen(InForceScreen(self.look, self.source), lambda _: self.take_newest())

    # -- dismiss -------------------------------------------------------------------------------------------------

    def action_dismiss(self) -> None:
        """What the alert misses is gone for good; asks first."""
        alert = self._chosen()
        if alert is None:
            return
        missing = self._missing(alert)
        if not missing:
            self.say("nothing of it is missing: dismissing is for what is gone for good; A acknowledges")
            return
        lines = (f"{missing}, gone since {local_until(alert.since_wall, self._wall())}.", "", *GONE)
        question = Confirm(self.look, f"Dismiss {_name(alert)}?", lines, "it is gone for good")
        self.push_screen(question, lambda yes: self._dismiss(alert) if yes else None)

    def _wall(self) -> float:
        newest = self.source.snapshot
        return 0.0 if newest is None else newest.view.wall

    def _missing(self, alert: Alert) -> str:
        """What the alert is about, in words, if all of it is listed no more; else empty."""
        newest = self.source.snapshot
        if newest is None:
            return ""
        mine = [one for one in newest.engine.inside(newest.view, alert) if one.rule == alert.rule]
        table = newest.view[newest.engine.rules[alert.rule].table]
        if not mine or any(table.present[one.row] for one in mine):
            return ""
        names = [f"{one.thing.node} {one.thing.label}" for one in mine]
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    def _dismiss(self, alert: Alert) -> None:
        self.source.core.dismiss(alert)
        self._done(f"dismissed: {_name(alert)}")

    def action_unfold(self) -> None:
        """Every verdict inside the alert, or the alert alone."""
        pane = self.panes[self.front]
        self.say(pane.fold() if isinstance(pane, AlertsPane) else ON_2)


def _name(alert: Alert) -> str:
    """The alert in a few words."""
    thing = alert.thing
    what = "" if thing.node and not thing.key else f" {thing_words(thing, len(alert.members))}"
    return f"{alert.rule} of {where_words(alert)}{what}"
