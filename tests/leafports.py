"""What the ports of one leaf carried, as a share counts it, straight from a reading or two looks: no store between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.signals import ifmib
from clustertop.signals.ifmib import PEER, Role
from clustertop.signals.traffic import LeafPort, LeafShare, leaf_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.signals.ifmib import Look
    from clustertop.sources.switch import SwitchReading


def of_reading(reading: SwitchReading) -> LeafShare:
    """The share of all ports of *reading* but for those that are down and peer links."""
    return leaf_share([
        LeafPort(port.name, port.role, port.into.value, port.out.value, port.bits_per_second)
        for port in reading.ports if port.up is not False and port.role != PEER])


def by_leaf(reading: SwitchReading) -> dict[str, LeafShare]:
    """The same of each leaf of a fabric's reading."""
    ports: dict[str, list[LeafPort]] = {}
    for port in reading.ports:
        if port.up is not False and port.role != PEER:
            ports.setdefault(port.leaf, []).append(
                LeafPort(port.name, port.role, port.into.value, port.out.value, port.bits_per_second))
    return {leaf: leaf_share(some) for leaf, some in ports.items()}


def of_looks(last: Look | None, now: Look, known: Mapping[int, Role]) -> LeafShare:
    """The share of a switch's data ports between two looks, their roles being *known*."""
    found = []
    for port in now.switch.data_ports():
        role = known.get(port.index, Role("")).role
        if port.up is not False and role != PEER:
            into, out = ifmib.rates(last, now, port.index)
            found.append(LeafPort(port.name, role, into.value, out.value, port.bits_per_second))
    return leaf_share(found)
