"""Leaf switches by their own ports: what their hosts sent in, what left by the uplinks, and how the uplinks do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals.traffic import LeafPort, leaf_share
from clustertop.store.traffic_picture import LeafPicture, Uplink

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from clustertop.model import NodeInfo
    from clustertop.store.table import Table
    from clustertop.store.view import Freshness

UPLINK, HOST, PEER = "uplink", "host", "peer"
NO_READING = "its ports are not read"
ALL_DOWN = "its uplinks are down"
IDLE = 0.05
"""Of an uplink's speed: with less than this on average nobody minds how it is spread."""
_COLUMNS = ("receive_bytes_per_second", "transmit_bytes_per_second", "speed_bits_per_second", "port_up",
            "discards_per_second", "pause_frames_per_second", "load_ratio")


@dataclass(slots=True)
class _Leaf:
    """What is remembered of one leaf between two readings of its ports."""

    rows: list[int]
    meter: str
    mark: object = None
    picture: LeafPicture | None = None
    was_up: set[int] = field(default_factory=set)
    was_down: set[int] = field(default_factory=set)
    """Uplinks that were up, then down, and not seen up since."""


class Leaves:
    """Keeps a picture per leaf; works one out again only when its ports were read again, or grew old."""

    def __init__(self, ports: Table | None, owners: Sequence[NodeInfo], names: Sequence[str]) -> None:
        """Follow table ``uplink``.

        Args:
            ports: the table; None: there is none.
            owners: whom its rows belong to.
            names: leaves that the map knows, read or not.
        """
        self._ports, self._owners = ports, owners
        self._unread = {name: _unread(name) for name in sorted(names)}
        self._listed = -1
        self._leaves: dict[str, _Leaf] = {}

    def update(self, now: float, freshness: Freshness) -> tuple[LeafPicture, ...]:
        """Return every leaf, by name."""
        ports = self._ports
        if ports is None or not ports.rows:
            return tuple(self._unread.values())
        if self._listed != ports.listed:
            self._listed = ports.listed
            self._join(ports)
        fresh = ports.fresh(now, freshness)
        out = dict(self._unread)
        for name, leaf in self._leaves.items():
            rows = np.array(leaf.rows, np.intp)
            mark = (ports.reads[rows].tobytes(), fresh[rows].tobytes(), self._listed)
            if mark != leaf.mark or leaf.picture is None:
                leaf.mark = mark
                leaf.picture = self._picture(name, leaf, ports, fresh)
            out[name] = leaf.picture
        return tuple(out[name] for name in sorted(out))

    def stamps(self) -> dict[str, tuple[float, float]]:
        """By leaf: when its ports were read last (our monotonic clock), and how often they are."""
        ports, out = self._ports, {}
        if ports is None:
            return {}
        for name, leaf in self._leaves.items():
            rows = np.array(leaf.rows, np.intp)
            interval = ports.interval[rows]
            known = interval[~np.isnan(interval)]
            out[name] = float(ports.read_at[rows].max()), float(known.max()) if len(known) else 1.0
        return out

    def _join(self, ports: Table) -> None:
        before, self._leaves = self._leaves, {}
        for row in range(ports.rows):
            attrs = ports.attrs[row]
            owner = self._owners[int(ports.node[row])]
            name = str(attrs.get("leaf") or getattr(owner, "leaf", "") or owner.name)
            # An uplink that was down and is no longer listed has not come up.
            if not ports.present[row] and (name not in before or row not in before[name].was_down):
                continue
            meter = "fabric" if getattr(owner, "kind", "") == "fabric" else "uplinks"
            known = self._leaves.get(name)
            if known is None:
                old = before.get(name)
                known = self._leaves[name] = _Leaf([], meter)
                if old is not None:
                    known.was_up, known.was_down = old.was_up, old.was_down
            if known.meter == meter:
                known.rows.append(row)
            elif meter == "uplinks":  # two meters of one leaf are not added: the switch's own counters go before
                known.rows, known.meter = [row], meter

    def _picture(self, name: str, leaf: _Leaf, ports: Table, fresh: NDArray[np.bool_]) -> LeafPicture:
        columns, live = ports.columns, []
        cells = {column: columns.col(column) for column in _COLUMNS}

        def cell(column: str, row: int) -> float | None:
            value = float(cells[column][row])
            return value if fresh[row] and value == value else None

        links, down, doubtful = [], [], []
        for row in leaf.rows:
            attrs = ports.attrs[row]
            role, up = str(attrs.get("role") or ""), cell("port_up", row)
            label = str(attrs.get("name") or ports.keys[row])
            into, out = cell("receive_bytes_per_second", row), cell("transmit_bytes_per_second", row)
            speed = cell("speed_bits_per_second", row)
            if up == 1:
                leaf.was_up.add(row)
                leaf.was_down.discard(row)
            if role == UPLINK:
                links.append(Uplink(
                    label, str(attrs.get("peer") or ""), None if up is None else up == 1, cell("load_ratio", row), out,
                    cell("discards_per_second", row), cell("pause_frames_per_second", row),
                    str(attrs.get("role_by") or "")))
                if up == 0 and row in leaf.was_up:
                    down.append(label)
                    leaf.was_down.add(row)
                elif up is None and row in leaf.was_down:
                    doubtful.append(label)
            if up != 0 and role != PEER and ports.present[row]:
                live.append(LeafPort(label, role, into, out, speed))
        found = leaf_share(live)
        carrying = [one for one in links if one.up is not False]
        loads = {one.name: one.load for one in links if one.load is not None}
        busiest = max(loads, key=lambda one: loads[one], default="")
        why = found.why if any(fresh[row] for row in leaf.rows) else NO_READING
        if why and why != NO_READING and links and all(one.up is False for one in links):
            why = ALL_DOWN
        return LeafPicture(
            name, leaf.meter, None if why else found.ratio, found.host_in, found.uplink_out, tuple(links),
            loads.get(busiest), _imbalance(live), _sum(one.discards_per_second for one in carrying),
            _sum(one.pause_frames_per_second for one in carrying), tuple(down), found.unknown_ports, why, busiest,
            tuple(doubtful))


def _imbalance(ports: list[LeafPort]) -> float | None:
    """The busiest uplink over their mean, minus one; of a mean of at least IDLE: at rest nothing is uneven."""
    links = [port for port in ports if port.role == UPLINK]
    rates = [port.out_bytes_per_second for port in links if port.out_bytes_per_second is not None]
    if len(rates) < 2 or len(rates) < len(links):
        return None
    mean = sum(rates) / len(rates)
    speeds = [port.speed_bits_per_second / 8 for port in links if port.speed_bits_per_second]
    floor = IDLE * min(speeds) if speeds else mean
    return (max(rates) - mean) / max(mean, floor) if mean or floor else None


def _unread(name: str) -> LeafPicture:
    return LeafPicture(name, "uplinks", None, None, None, (), None, None, None, None, why=NO_READING)


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of what is known, at least so much; None where nothing is, or only zeros are beside what is not."""
    every = list(values)
    known = [value for value in every if value is not None]
    return float(sum(known)) if any(known) or (known and len(known) == len(every)) else None
