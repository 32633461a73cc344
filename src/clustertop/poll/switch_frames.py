"""A switch's or a fabric's reading as the group ``switch`` or ``fabric``: table ``uplink``, a row per port. Pure.

Rates are told as they were worked out where the counters were read, with their reasons: the totals may wrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.model import Why, reason
from clustertop.poll.device_frames import Cell, GroupPart, Row, cell, sentence, table_part, word
from clustertop.signals.octets import Rate
from clustertop.sources.switch import Count, PortReading
from clustertop.wire.frame import MAX_PORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clustertop.model import Attr
    from clustertop.sources.switch import SwitchReading

SWITCH, FABRIC = "switch", "fabric"
_NO_SPEED, _NO_STATE = "speed unknown", "state unknown"


def uplink_part(reading: SwitchReading, *, leaf: str = "") -> GroupPart:
    """The group of a reading.

    Args:
        reading: what was read.
        leaf: the leaf that the switch is; of a fabric each port says its own.

    Where there are more ports than a frame may hold, those of each leaf that lead to hosts stand as one row, with their
    sums, then its uplinks too; so the shares stay whole.
    """
    ports: Sequence[PortReading] = reading.ports
    for role in ("host", "uplink"):
        if len(ports) > MAX_PORTS:
            ports = _folded(ports, role)
    rows = [Row(port.key, _attrs(port, leaf)) for port in ports]
    columns: dict[str, list[Cell]] = {
        "rx": [cell(port.in_bytes) for port in ports],
        "tx": [cell(port.out_bytes) for port in ports],
        "discards": [cell(port.discards.total) for port in ports],
        "errors": [cell(port.errors.total) for port in ports],
        "pauses": [cell(port.pauses.total) for port in ports],
        "rx_rate": [_rate(port.into) for port in ports],
        "tx_rate": [_rate(port.out) for port in ports],
        "discard_rate": [_rate(port.discards.rate) for port in ports],
        "error_rate": [_rate(port.errors.rate) for port in ports],
        "pause_rate": [_rate(port.pauses.rate) for port in ports],
        "speed": [cell(port.bits_per_second, _NO_SPEED) for port in ports],
        "up": [cell(None if port.up is None else float(port.up), _NO_STATE) for port in ports],
    }
    return GroupPart(reading.at, tb={"uplink": table_part(rows, columns, MAX_PORTS)})


def switch_facts(reading: SwitchReading) -> dict[str, Attr]:
    """Who the switch is, and what is to be said of it."""
    facts: dict[str, Attr] = {
        "name": word(reading.name), "model": word(reading.description), "notes": sentence(reading.notes)}
    return {name: said for name, said in facts.items() if said}


def _attrs(port: PortReading, leaf: str) -> dict[str, Attr]:
    said: dict[str, Attr] = {
        "name": word(port.name), "alias": word(port.alias), "role": port.role, "role_by": word(port.role_by),
        "peer": word(port.peer), "leaf": word(port.leaf or leaf), "lag": word(port.lag)}
    return {name: text for name, text in said.items() if text or name == "role"}


def _rate(one: Rate) -> Cell:
    return cell(one.value, reason(one.why))


def _folded(ports: Sequence[PortReading], role: str) -> list[PortReading]:
    """*ports* with those of *role* of each leaf as one."""
    kept = [port for port in ports if port.role != role or port.up is False]
    folded: dict[str, list[PortReading]] = {}
    for port in ports:
        if port.role == role and port.up is not False:
            folded.setdefault(port.leaf, []).append(port)
    return [*(_together(leaf, role, some) for leaf, some in folded.items()), *kept]


def _together(leaf: str, role: str, ports: Sequence[PortReading]) -> PortReading:
    def of(get: Callable[[PortReading], Count]) -> Count:
        counts = [get(port) for port in ports]
        return Count(_total([one.total for one in counts]), _sum([one.rate for one in counts]))

    speeds = [port.bits_per_second for port in ports]
    key = ports[0].key.partition("/")[0]
    return PortReading(
        f"{key}/{role}s", f"{leaf}/{len(ports)} {role} ports", "", role, ports[0].role_by, "", "", leaf,
        True if all(port.up for port in ports) else None,
        None if None in speeds else sum(speed for speed in speeds if speed is not None),
        _total([port.in_bytes for port in ports]), _total([port.out_bytes for port in ports]),
        _sum([port.into for port in ports]), _sum([port.out for port in ports]), of(lambda port: port.discards),
        of(lambda port: port.errors), of(lambda port: port.pauses))  # fmt: skip


def _total(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value is not None)


def _sum(rates: Sequence[Rate]) -> Rate:
    """All together; unknown where one is, for its reason."""
    return next((one for one in rates if one.value is None),
                Rate(sum(one.value or 0.0 for one in rates), Why.KNOWN))


__all__ = ["FABRIC", "SWITCH", "switch_facts", "uplink_part"]
