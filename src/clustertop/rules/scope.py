"""Which things a rule is for, and which things are each other's peers."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals.units import pci_key

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from clustertop.rules.spec import Peers, Rule
    from clustertop.store.view import FleetView

NO_GROUP = -1
_MODEL_ATTRS = {"gpu": ("name",), "port": ("board", "hca"), "net": ("driver",), "pcie": ("name",)}
"""By table: what a device says of its model, the most particular first."""


def in_scope(rule: Rule, view: FleetView) -> NDArray[np.bool_] | None:
    """[rows of the rule's table] what it is for; None: everything."""
    if not rule.groups and rule.nodes is None and not rule.models:
        return None
    table = view[rule.table]
    nodes = np.ones(len(view.owners), np.bool_)
    if rule.groups:
        wanted = set(rule.groups)
        nodes &= np.array([bool(wanted & {*node.groups, node.rack, node.leaf}) for node in view.owners], np.bool_)
    if rule.nodes is not None:
        named = frozenset(rule.nodes)
        nodes &= np.array([node.name in named for node in view.owners], np.bool_)
    out: NDArray[np.bool_] = nodes[table.node]
    if rule.models:
        known: dict[tuple[str, ...], bool] = {}
        for names in (every := models(view, rule.table)):
            if names not in known:
                known[names] = any(fnmatchcase(name.lower(), pattern.lower())
                                   for name in names for pattern in rule.models)
        out &= np.array([known[names] for names in every], np.bool_)
    return out


def models(view: FleetView, name: str) -> list[tuple[str, ...]]:
    """Per row of table *name*: every name of its model; of a node those of its GPUs."""
    table = view[name]
    if name not in _MODEL_ATTRS:
        gpus = view["gpu"]
        of_node: list[dict[str, None]] = [{} for _ in view.owners]
        for node, attrs in zip(gpus.node.tolist(), gpus.attrs, strict=True):
            if attrs.get("name"):
                of_node[node][str(attrs["name"])] = None
        return [tuple(of_node[node]) for node in table.node.tolist()]
    cards: dict[tuple[int, str], str] = {}
    if name == "pcie":
        gpus = view["gpu"]
        cards = {(node, address): str(attrs["name"])
                 for node, attrs in zip(gpus.node.tolist(), gpus.attrs, strict=True)
                 if attrs.get("name") and (address := pci_key(attrs.get("pci")))}
    out = []
    for node, key, attrs in zip(table.node.tolist(), table.keys, table.attrs, strict=True):
        names = [str(attrs[attr]) for attr in _MODEL_ATTRS[name] if attrs.get(attr)]
        if name == "pcie":
            ids = [str(attrs[part]).removeprefix("0x") for part in ("vendor", "device") if attrs.get(part)]
            names = [*filter(None, [cards.get((node, key)), ":".join(ids) if len(ids) == 2 else ""]), *names]
        out.append(tuple(names))
    return out


def peer_groups(view: FleetView, name: str, peers: Peers) -> NDArray[np.intp]:
    """[rows of table *name*] a number that peers share; NO_GROUP where nothing says who they are."""
    table = view[name]
    if peers == "model":
        marks: list[Hashable] = [names[0] if names else None for names in models(view, name)]
    elif peers == "fleet":
        marks = ["fleet"] * len(table)
    else:
        of_node: dict[str, list[Hashable]] = {
            "node": list(range(len(view.owners))), "rack": [node.rack or None for node in view.owners],
            "leaf": [node.leaf or None for node in view.owners], "group": [node.groups or None for node in view.owners]}
        marks = [of_node[peers][node] for node in table.node.tolist()]
    numbers: dict[Hashable, int] = {None: NO_GROUP}
    for mark in marks:
        numbers.setdefault(mark, len(numbers) - 1)
    return np.array([numbers[mark] for mark in marks], np.intp)
