"""An alert in the words of a line: where, what, and what the operator did about it. The same on every screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.clock import local_until
from clustertop.rules.hands import silence_of

if TYPE_CHECKING:
    from clustertop.core import Snapshot
    from clustertop.model import Alert, Thing, Transition
    from clustertop.store.view import FleetView


_OF_THEIR_KIND = frozenset({"devices", "feeds"})
"""Parents that are all of one kind, and are called so."""
_ALONE = frozenset({"feed", "bmc", "device"})
"""Tables of what is the only one of its kind under its name: the word for the kind is enough beside it."""


def many(alert: Alert) -> bool:
    """Whether it stands for many things."""
    return alert.row < 0


def thing_words(thing: Thing, members: int) -> str:
    """What a line says beside the node: the device, ``node`` for the node itself, of a parent how many it holds."""
    if not thing.node:
        return f"{members} {thing.label if thing.table in _OF_THEIR_KIND else 'nodes'}"
    if thing.key == "*":
        return f"{members} {thing.label}"
    if thing.table in _ALONE:
        return thing.label.partition(" ")[0]
    return thing.label if thing.key else "node"


def where_words(change: Alert | Transition) -> str:
    """The node, or the parent of several nodes."""
    return change.thing.node or change.thing.label


def what_words(alert: Alert, *, placed: bool = False) -> str:
    """The message, with the thing before it where the message does not name it.

    *placed*: the line names the node or the parent already.
    """
    thing = alert.thing
    if not thing.node:
        return alert.message if placed else f"{thing.label}: {alert.message}"
    named = thing.key in {"", "*"} or thing.table == "group" or alert.message.startswith(thing.label)
    return alert.message if named else f"{thing.label}: {alert.message}"


def known_words(alert: Alert, snapshot: Snapshot) -> str:
    """``ack``, ``silenced until 14:30``, both, or nothing."""
    words = ["ack"] if alert.acked else []
    if alert.silenced:
        silence = silence_of(alert, snapshot.silences, snapshot.view.owners)
        words.append("silenced" if silence is None else
                     f"silenced until {local_until(silence.until, snapshot.view.wall)}")
    return ", ".join(words)


def rule_words(rule: str) -> str:
    """A silence's rule."""
    return "every rule" if rule == "*" else rule


def place_words(where: str, view: FleetView) -> str:
    """A silence's place, or an acknowledged thing, as an operator calls it: a thing's id is no name."""
    where = where.replace("[*]", "*").replace("[?]", "?").replace("[[]", "[")
    if where == "*":
        return "everywhere"
    table, _, rest = where.partition(":")
    if table in view.tables and rest:
        for number, node in enumerate(view.nodes):
            if rest.startswith(f"{node.name}:"):
                row = view[table].row_of(number, rest[len(node.name) + 1:])
                label = rest[len(node.name) + 1:] if row is None else view[table].labels[row]
                return f"{node.name} {label}".strip()
    if rest.startswith(":"):
        return f"{table} {rest[1:]}".strip()
    if any(node.name == where for node in view.nodes):
        return where
    for kind in ("rack", "leaf"):
        if any(getattr(node, kind) == where for node in view.nodes):
            return f"{kind} {where}"
    return f"group {where}" if any(where in node.groups for node in view.nodes) else where


def nodes_of(thing: Thing, view: FleetView) -> tuple[int, ...]:
    """Numbers of the nodes that a parent of nodes holds."""
    match thing.table:
        case "rack":
            return tuple(number for number, node in enumerate(view.nodes) if node.rack == thing.key)
        case "leaf":
            return tuple(number for number, node in enumerate(view.nodes) if node.leaf == thing.key)
        case "group":
            return tuple(number for number, node in enumerate(view.nodes) if thing.key in node.groups)
    return tuple(range(len(view.nodes)))
