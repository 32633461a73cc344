"""What sets a node apart from its peers: the configuration that most like nodes share and this one does not.

Like nodes are those of the same inventory groups; where there are no groups, those with the same GPUs. A difference
is no fault by itself; it is the first thing to look at when one node is slow.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clustertop.quantity import duration, quantity
from clustertop.signals import gpu, pcie, screen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clustertop.store.view import FleetView, TableView

LEAST_PEERS = 3
"""Fewer like things than this have no common value."""
LEAST_SHARE = 0.6
"""What fewer than this share of them have in common is not called common."""

_FACTS = ("driver", "cuda", "kernel", "os", "arch")
_GPU = ("memory_total_bytes", "power_limit_watts", "sm_clock_max_hertz", "bar1_total_bytes", "persistence_mode",
        "ecc_mode", "mig_mode", "pcie_generation_max")
_NODE = ("cpus",)
_NET = ("mtu_bytes", "speed_bits_per_second")
_PORT_ATTRS = ("fw", "board", "link_layer")
_SCREEN = ("name_lookup", "somaxconn", "slow_start_after_idle")
_PCIE = ("width_lanes", "width_max_lanes")
SLOW_NAME_SECONDS = 1.0
"""A name looked up in less is looked up fast, however much its peers differ."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """One difference: *node* has *value* where *common* of *of* like things have *usual*."""

    node: str
    label: str
    """The thing on the node, for example ``GPU 3``; empty: the node itself."""
    what: str
    value: str
    usual: str
    common: int
    of: int

    def __str__(self) -> str:
        where = f"{self.node} {self.label}".rstrip()
        return f"{where}: {self.what} {self.value}, {self.common} of {self.of} peers have {self.usual}"


def outliers(view: FleetView) -> list[Outlier]:
    """Return every difference of *view*, those that the most peers agree on first. Unknown values are no difference."""
    kinds = _kinds(view)
    said: dict[tuple[object, ...], list[tuple[int, str, str]]] = {}
    for key, node, label, value in _values(view):
        said.setdefault((kinds[node], *key), []).append((node, label, value))
    found: list[Outlier] = []
    for key, entries in said.items():
        counts = Counter(value for _, _, value in entries)
        usual, common = counts.most_common(1)[0]
        if len(entries) < LEAST_PEERS or common < LEAST_SHARE * len(entries) or common == len(entries):
            continue
        found += [
            Outlier(view.nodes[node].name, label, str(key[-1]), value, usual, common, len(entries))
            for node, label, value in entries if value != usual
        ]
    return sorted(found, key=lambda one: (-one.common / one.of, one.node, one.what, one.label))


def _kinds(view: FleetView) -> list[tuple[str, ...]]:
    """Per node: what makes it like another."""
    table = view["gpu"]
    models: list[Counter[str]] = [Counter() for _ in view.nodes]
    for row in range(len(table)):
        models[int(table.node[row])][str(table.attrs[row].get("name", ""))] += 1
    return [
        node.groups or tuple(f"{count} x {name}" for name, count in sorted(models[number].items()))
        for number, node in enumerate(view.nodes)
    ]


def _values(view: FleetView) -> Iterator[tuple[tuple[object, ...], int, str, str]]:
    """Every value that like things are expected to share: (what is compared, node, label, value as text)."""
    for number, facts in enumerate(view.facts):
        for name in _FACTS:
            value = facts.get(name)
            if value not in (None, ""):
                yield ("fact", name), number, "", str(value)
    gpus = view["gpu"]
    counts = Counter(int(node) for node, state in zip(gpus.node, gpus.col("presence"), strict=True)
                     if state == gpu.PRESENT)
    for number, count in counts.items():
        yield ("gpus", "GPUs present"), number, "", str(count)
    yield from _columns(gpus, _GPU, "name")
    yield from _columns(view["node"], _NODE, "")
    net = view["net"]
    physical = net.col("physical") == 1
    for key, node, label, value in _columns(net, _NET, "driver", physical.tolist()):
        yield key, node, label, value
    yield from _screening(view["screen"])
    yield from _slots(view["pcie"])
    ports = view["port"]
    for row in range(len(ports)):
        attrs = ports.attrs[row]
        if attrs.get("physfn"):
            continue
        for name in _PORT_ATTRS:
            if attrs.get(name):
                key = ("port", attrs.get("driver"), attrs.get("hca"), name)
                yield key, int(ports.node[row]), ports.labels[row], str(attrs[name])


def _screening(table: TableView) -> Iterator[tuple[tuple[object, ...], int, str, str]]:
    """Sysctls, what looking up the node's own name gives, and which monitors run."""
    yield from _columns(table, _SCREEN, "")
    for row, (seconds, count) in enumerate(zip(table.col("name_lookup_seconds").tolist(),
                                               table.col("monitors").tolist(), strict=True)):
        node = int(table.node[row])
        if seconds == seconds:
            fast = seconds < SLOW_NAME_SECONDS
            yield ("screen", "own name looked up"), node, "", "fast" if fast else f"in {duration(seconds)}"
        if count == count:
            # How many there are of each comes and goes; which there are is how the node was set up.
            names = ", ".join(screen.monitors(table.attrs[row]))
            yield ("screen", "other monitors"), node, "", names or "none"


def _slots(table: TableView) -> Iterator[tuple[tuple[object, ...], int, str, str]]:
    """PCIe width of like devices, and on which NUMA node the one at each address is."""
    endpoint = table.col("endpoint")
    for row, attrs in enumerate(table.attrs):
        if endpoint[row] != 1 or attrs.get("physfn"):
            continue
        node, label = int(table.node[row]), table.labels[row]
        for name in _PCIE:
            width = table.value(name, row)
            if width is not None and pcie.model(attrs):
                yield ("pcie", pcie.model(attrs), name), node, label, quantity(width, "lanes")
        numa = attrs.get("numa")
        if isinstance(numa, int) and not isinstance(numa, bool):
            yield ("numa", table.keys[row], "NUMA node"), node, label, "none" if numa < 0 else str(numa)


def _columns(
    table: TableView, names: tuple[str, ...], model: str, use: list[bool] | None = None
) -> Iterator[tuple[tuple[object, ...], int, str, str]]:
    """Values of *names*, compared among rows whose attribute *model* is the same."""
    for name in names:
        metric = table.spec.metric(name)
        for row, value in enumerate(table.col(name).tolist()):
            if value != value or (use is not None and not use[row]):
                continue
            words = metric.words.get(int(value)) if metric.words else None
            label = "" if table.spec.name in {"node", "screen"} else table.labels[row]
            yield ((table.spec.name, table.attrs[row].get(model), name), int(table.node[row]), label,
                   words or quantity(value, metric.unit))
