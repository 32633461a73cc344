"""Leaf switches by their own ports: what their hosts sent in, what left by the uplinks, and how the uplinks do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals.traffic import LeafPort, leaf_share
from clustertop.store.traffic_picture import LeafPicture, Uplink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clustertop.model import NodeInfo
    from clustertop.store.table import Table
    from clustertop.store.view import Freshness

UPLINK, HOST, PEER = "uplink", "host", "peer"
NO_READING = "its ports are not read"
ALL_DOWN = "its uplinks are down"
ALL_GONE = "its uplinks are no longer reported"
IDLE = 0.05
"""Of an uplink's speed: with less than this on average nobody minds how it is spread."""
MOST_DROPPING = 8
"""Host ports that drop, of each leaf: those that drop most are named."""
_COLUMNS = ("receive_bytes_per_second", "transmit_bytes_per_second", "speed_bits_per_second", "port_up",
            "discards_per_second", "pause_frames_per_second", "load_ratio")


Port = tuple[str, str]
"""Key and name of a port: indices may be given anew, and rows as well."""


@dataclass(slots=True)
class _Leaf:
    """What is remembered of one leaf between two readings of its ports."""

    rows: list[int]
    meter: str
    mark: object = None
    picture: LeafPicture | None = None
    was_up: set[Port] = field(default_factory=set)
    was_down: set[Port] = field(default_factory=set)
    """Uplinks that were up, then down, and not seen up since."""
    uplinks: set[Port] = field(default_factory=set)
    """Ports that were uplinks when they were last listed."""
    gone: bool = False
    """No port of it is listed any more."""


class Leaves:
    """Keeps a picture per leaf; works one out again only when its ports were read again, or grew old."""

    def __init__(self, ports: Table | None, owners: Sequence[NodeInfo], names: Sequence[str]) -> None:
        """Follow table ``uplink``.

        Args:
            ports: the table; None: there is none.
            owners: whom its rows belong to.
            names: leaves that the map knows, read or not; a switch that has not answered yet is one, too.
        """
        self._ports, self._owners = ports, owners
        switches = {one.leaf or one.name for one in owners if one.kind == "switch"}
        self._unread = {name: _unread(name) for name in sorted(switches.union(names))}
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
            if not leaf.rows:
                continue
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
            # An uplink that is no longer listed has not come up, and may have gone down.
            if not ports.present[row] and (
                name not in before or _port(ports, row) not in before[name].uplinks
            ):
                continue
            meter = "fabric" if getattr(owner, "kind", "") == "fabric" else "uplinks"
            known = self._leaves.get(name)
            if known is None:
                old = before.get(name)
                known = self._leaves[name] = _Leaf([], meter)
                if old is not None:
                    known.was_up, known.was_down, known.uplinks = old.was_up, old.was_down, old.uplinks
            if known.meter == meter:
                known.rows.append(row)
            elif meter == "uplinks":  # two meters of one leaf are not added: the switch's own counters go before
                known.rows, known.meter = [row], meter
        # Of a leaf whose ports are gone nothing is known: it is not over. One that has another name now is.
        for name in before.keys() - self._leaves.keys():
            if before[name].gone or not all(ports.present[row] for row in before[name].rows):
                self._leaves[name] = _Leaf([], before[name].meter, gone=True)

    def _picture(self, name: str, leaf: _Leaf, ports: Table, fresh: NDArray[np.bool_]) -> LeafPicture:
        columns, live = ports.columns, []
        cells = {column: columns.col(column) for column in _COLUMNS}

        def cell(column: str, row: int) -> float | None:
            value = float(cells[column][row])
            return value if fresh[row] and value == value else None

        links, carrying, doubtful = [], [], []
        down: list[str] = []
        dark: list[str] = []
        dropping: list[tuple[str, str, float]] = []
        for row in leaf.rows:
            attrs, there = ports.attrs[row], bool(ports.present[row])
            role, up = str(attrs.get("role") or ""), cell("port_up", row)
            label = str(attrs.get("name") or ports.keys[row])
            into, out = cell("receive_bytes_per_second", row), cell("transmit_bytes_per_second", row)
            speed = cell("speed_bits_per_second", row)
            port = _port(ports, row)
            if up == 1:
                leaf.was_up.add(port)
                leaf.was_down.discard(port)
            if there:
                (leaf.uplinks.add if role == UPLINK else leaf.uplinks.discard)(port)
            if role == UPLINK:
                link = Uplink(
                    label, str(attrs.get("peer") or ""), None if up is None else up == 1, cell("load_ratio", row), out,
                    cell("discards_per_second", row), cell("pause_frames_per_second", row),
                    str(attrs.get("role_by") or ""))
                links.append(link)
                if there and up != 0:
                    carrying.append(link)
                if up == 0:
                    (down if port in leaf.was_up else dark).append(label)
                    if port in leaf.was_up:
                        leaf.was_down.add(port)
                elif up is None and port in leaf.was_down:
                    doubtful.append(f"it is not known whether {label} is still down")
                elif not there:
                    doubtful.append(f"{label} is no longer reported")
            lost = cell("discards_per_second", row)
            if role == HOST and there and lost:
                dropping.append((label, str(attrs.get("peer") or attrs.get("alias") or ""), lost))
            if up != 0 and role != PEER and there:
                live.append(LeafPort(label, role, into, out, speed))
        found = leaf_share(live)
        loads = {one.name: one.load for one in links if one.load is not None}
        busiest = max(loads, key=lambda one: loads[one], default="")
        why = found.why if any(fresh[row] and ports.present[row] for row in leaf.rows) else NO_READING
        if why and why != NO_READING and links and not carrying:
            why = ALL_DOWN if all(one.up is False for one in links) else ALL_GONE
        uneven, fullest = _imbalance(live)
        discards, discards_why = _sum(carrying, "discards_per_second", "counter of discards")
        pause, pause_why = _sum(carrying, "pause_frames_per_second", "counter of pause frames")
        return LeafPicture(
            name, leaf.meter, None if why else found.ratio, found.host_in, found.uplink_out, tuple(links),
            loads.get(busiest), uneven, discards, pause, tuple(down), found.unknown_ports, why, busiest,
            tuple(doubtful), tuple(dark), discards_why, pause_why, fullest, _strange(live),
            tuple(sorted(dropping, key=lambda one: -one[2])[:MOST_DROPPING]))


def _port(ports: Table, row: int) -> Port:
    return ports.keys[row], str(ports.attrs[row].get("name") or "")


def _imbalance(ports: list[LeafPort]) -> tuple[float | None, str]:
    """(the fullest uplink over their mean, minus one; which it is), of what goes out.

    By their loads where all speeds are known, so that a link of twice the speed may carry twice as much. The mean
    counts as at least IDLE: at rest nothing is uneven.
    """
    links = [port for port in ports if port.role == UPLINK]
    rates = {port.name: port.out_bytes_per_second for port in links if port.out_bytes_per_second is not None}
    if len(rates) < 2 or len(rates) < len(links):
        return None, ""
    speeds = {port.name: port.speed_bits_per_second / 8 for port in links if port.speed_bits_per_second}
    floor = 0.0
    if len(speeds) == len(rates):
        rates, floor = {name: rate / speeds[name] for name, rate in rates.items()}, IDLE
    elif speeds:
        floor = IDLE * min(speeds.values())
    mean = sum(rates.values()) / len(rates)
    fullest = max(rates, key=lambda name: rates[name])
    return ((rates[fullest] - mean) / max(mean, floor), fullest) if mean or floor else (None, "")


def _strange(ports: list[LeafPort]) -> float:
    """Bytes per second by ports in no known role, the busier way."""
    loose = [port for port in ports if not port.role]
    return max(sum(port.in_bytes_per_second or 0.0 for port in loose),
               sum(port.out_bytes_per_second or 0.0 for port in loose))


def _unread(name: str) -> LeafPicture:
    return LeafPicture(name, "uplinks", None, None, None, (), None, None, None, None, why=NO_READING)


def _sum(links: Sequence[Uplink], name: str, what: str) -> tuple[float | None, str]:
    """(sum, why it is unknown): unknown where one of *links* does not tell; what is left out may be the most."""
    told = [(one.name, getattr(one, name)) for one in links]
    known = [value for _, value in told if value is not None]
    if len(known) == len(told):
        return (float(sum(known)), "") if known else (None, "")
    silent = [label for label, value in told if value is None]
    return None, f"no {what} of {', '.join(silent[:4])}{' ...' if len(silent) > 4 else ''}" if known else ""
