"""What goes through the spine by a leaf's ports, which meter to believe, what an order of ranks predicts. Pure.

Without a map a share is unknown, never 0 % and never 100 %. A figure that is predicted from an order is a
:class:`Ring`, one that was measured at a leaf is a :class:`LeafShare`: they never mix. Shares of flows between nodes
are in :mod:`clustertop.signals.traffic_flows`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.hosts import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CROSS_RACK = "cross-rack"
THROUGH_SPINE = "through spine"
PREDICTED = "predicted from order"
NO_RACK_MAP = "no rack map"
NO_LEAF_MAP = "no leaf map"
NO_TRAFFIC = "no traffic"
NOTHING_PLACED = "no peer is placed"
DISAGREEMENT = 0.2
"""Two meters that differ by more than this share of the stronger one: the weaker is unreliable."""
_Z95 = 1.959963984540054
_SLOTS = re.compile(r"(?<!:):[0-9]+$")


# ---- measured ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeafPort:
    """What a port of a leaf switch carried in one interval."""

    name: str
    role: str
    """``uplink``, ``host`` or empty: not known."""
    in_bytes_per_second: float | None
    """Into the switch; None: unknown."""
    out_bytes_per_second: float | None
    speed_bits_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class LeafShare:
    """One leaf: what its hosts sent in, and what of it left by the uplinks."""

    host_in: float | None
    """Bytes per second from the hosts."""
    uplink_out: float | None
    """Bytes per second to the spines."""
    loads: Mapping[str, float | None] = field(default_factory=dict)
    """Per uplink: of its speed, 0 to 1; None: rate or speed unknown."""
    imbalance: float | None = None
    """The busiest uplink over their mean, minus one; None with fewer than two known or no traffic."""
    unknown_ports: tuple[str, ...] = ()
    """Ports that carry bytes without our knowing whether they are uplinks, or uplinks and host ports without rate."""
    unplaced_in: float = 0.0
    """Bytes per second into ports of unknown role."""
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """Share of the hosts' bytes that goes through a spine; None: see ``why``.

        A little above 1 is possible: the two sides are not read in the same instant, and headers are added.
        """
        if self.why or not self.host_in or self.uplink_out is None:
            return None
        return self.uplink_out / self.host_in


def leaf_share(ports: Sequence[LeafPort]) -> LeafShare:
    """Return the share of one leaf from the rates of its physical ports.

    Unknown where it has no uplink or host port that is known as such (``not measured``), where one of them has no rate,
    or where no host sends.
    """
    uplinks = [port for port in ports if port.role == "uplink"]
    hosts = [port for port in ports if port.role == "host"]
    strange = [port for port in ports if not port.role and (port.in_bytes_per_second or port.out_bytes_per_second)]
    silent = [port for port in uplinks if port.out_bytes_per_second is None]
    silent += [port for port in hosts if port.in_bytes_per_second is None]
    host_in = _whole([port.in_bytes_per_second for port in hosts])
    uplink_out = _whole([port.out_bytes_per_second for port in uplinks])
    why = ""
    if not uplinks or not hosts:
        why = f"not measured: no port is known as {'host port' if uplinks else 'uplink'}"
    elif silent:
        why = f"no rate for {', '.join(port.name for port in silent[:4])}{' ...' if len(silent) > 4 else ''}"
    elif not host_in:
        why = NO_TRAFFIC
    rates = [port.out_bytes_per_second for port in uplinks if port.out_bytes_per_second is not None]
    mean = sum(rates) / len(rates) if rates else 0.0
    return LeafShare(
        host_in=host_in,
        uplink_out=uplink_out,
        loads={port.name: _load(port) for port in uplinks},
        imbalance=max(rates) / mean - 1 if len(rates) > 1 and mean > 0 else None,
        unknown_ports=tuple(port.name for port in [*strange, *silent]),
        unplaced_in=sum(port.in_bytes_per_second or 0.0 for port in strange),
        why=why,
    )


def _whole(rates: Sequence[float | None]) -> float | None:
    """The sum; None where there is none to add, or one is unknown."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None


def _load(port: LeafPort) -> float | None:
    if port.out_bytes_per_second is None or not port.speed_bits_per_second:
        return None
    return port.out_bytes_per_second * 8 / port.speed_bits_per_second


# ---- agreement -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """What two meters say of the same bytes."""

    difference: float | None
    """|weaker - stronger| of the stronger; None: they cannot be compared."""

    @property
    def reliable(self) -> bool | None:
        """Whether the weaker meter may alert; None: not known."""
        return None if self.difference is None else self.difference <= DISAGREEMENT


def agreement(weaker: float | None, stronger: float | None) -> Agreement:
    """Compare two meters of the same traffic; the stronger one (port counters) is the yardstick."""
    if weaker is None or stronger is None or stronger < 0 or weaker < 0:
        return Agreement(None)
    if stronger == 0:
        return Agreement(0.0 if weaker == 0 else math.inf)
    return Agreement(abs(weaker - stronger) / stronger)


def interval95(hits: int, samples: int) -> tuple[float, float] | None:
    """Return the 95 % interval of a sampled share (Wilson's, two-sided), or None without samples.

    Raises:
        ValueError: more hits than samples, or fewer than none.
    """
    if not 0 <= hits <= samples:
        raise ValueError(f"{hits} of {samples} is no share")
    if not samples:
        return None
    share, square = hits / samples, _Z95 * _Z95
    centre = share + square / (2 * samples)
    half = _Z95 * math.sqrt(share * (1 - share) / samples + square / (4 * samples * samples))
    scale = 1 + square / samples
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def may_alert(hits: int, samples: int, limit: float, agreed: Agreement) -> bool:
    """Whether a sampled share is surely above *limit*: its lower bound is, and no stronger meter disagrees."""
    bounds = interval95(hits, samples)
    return bounds is not None and agreed.reliable is not False and bounds[0] > limit


# ---- predicted -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring over nodes in their order of ranks: how many of its hops leave a rack (or leaf)."""

    order: tuple[str, ...]
    """Nodes, in the order of their lowest rank."""
    hops: int
    crossing: int
    unplaced: tuple[str, ...] = ()
    """Nodes that are not in the map; hops at them are in neither count."""
    placed_hops: int = 0
    label: str = PREDICTED

    @property
    def ratio(self) -> float | None:
        """Crossing of the placed hops; None where there are none."""
        return self.crossing / self.placed_hops if self.placed_hops else None


def ring(order: Iterable[str], domains: Mapping[str, str]) -> Ring:
    """Return the hops of the ring over *order* (a node per rank, or a node once) that cross *domains*.

    NCCL joins nodes to rings in the order of their lowest rank, whatever the network; a node is visited once.
    """
    nodes = tuple(dict.fromkeys(order))
    hops = len(nodes) if len(nodes) > 1 else 0
    crossing = placed = 0
    for place in range(hops):
        here, there = domains.get(nodes[place]), domains.get(nodes[(place + 1) % hops])
        if here and there:
            placed += 1
            crossing += here != there
    return Ring(nodes, hops, crossing, tuple(node for node in nodes if not domains.get(node)), placed)


def better_order(order: Iterable[str], domains: Mapping[str, str]) -> Ring | None:
    """Return the ring with the nodes of each rack next to each other, if it crosses less often than *order*'s.

    Racks and nodes keep the order in which they first appear, so that a launcher's own order changes least. Nodes
    without a rack go last. Joined like this, n racks take n crossings, which is the fewest there can be.
    """
    now = ring(order, domains)
    groups: dict[str, list[str]] = {}
    for node in now.order:
        groups.setdefault(domains.get(node) or "", []).append(node)
    loose = groups.pop("", [])
    grouped = [node for members in groups.values() for node in members]
    found = ring([*grouped, *loose], domains)
    return found if found.crossing < now.crossing else None


def read_hostfile(text: str) -> list[str]:
    """Return the nodes of a launcher's host file or list, in order: the order of ranks.

    Read are OpenMPI's (``gpu001 slots=8``), MPICH's (``gpu001:8``), DeepSpeed's, a plain name a line, and Slurm's list
    in one line (``gpu[001-004,007]``). A node that is named again keeps its first place.

    Raises:
        NotationError: a list cannot be read, or names too many hosts.
        ValueError: a line is none of these; it is named with its number.
    """
    nodes: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, *options = line.partition("#")[0].split() or [""]
        if not name:
            continue
        if not all("=" in option for option in options):
            raise ValueError(f"line {number} is not a host, host:slots or host slots=N")
        nodes.update((target.host, None) for target in expand(_SLOTS.sub("", name)))
    return list(nodes)
