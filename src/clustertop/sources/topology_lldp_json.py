"""LLDP neighbours as JSON: lldpd's ``lldpctl -f json`` and ``json0``, EOS, Junos, NetQ. Text to links, pure.

lldpd keys interfaces by name where there is one neighbour each and lists them where there are several; the chassis is
keyed by its name where it has one. ``json0`` has arrays everywhere. A switch that announces no name is known by its id.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clustertop.sources.facts import Link, Reading, SourceError, name

if TYPE_CHECKING:
    from collections.abc import Iterator

_SWITCH = frozenset({"bridge", "router"})


def read(text: str, where: str = "") -> Reading:
    """Return the links that the JSON holds.

    Raises:
        SourceError: it is not JSON, or none of the forms above.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise SourceError("is not JSON") from None
    reading = Reading("lldp", where=where)
    found = _links(data)
    if found is None:
        raise SourceError("is not LLDP of lldpd, EOS, Junos or NetQ")
    reading.links = list(found)
    return reading


def _links(data: Any) -> Iterator[Link] | None:
    if isinstance(data, list) and any(isinstance(row, dict) and "links" in row for row in data):
        return _netq(data)
    if not isinstance(data, dict):
        return None
    for holder in (data, *(value for value in data.values() if isinstance(value, dict))):
        if "lldp" in holder:
            return _lldpd(holder["lldp"])
        if "lldpNeighbors" in holder:
            return _eos(holder["lldpNeighbors"])
    if "lldp-neighbors-information" in data:
        return _junos(data)
    return None


def _many(value: Any) -> list[dict[str, Any]]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def _value(value: Any) -> str:
    """A text, ``{"value": text}`` or a list of either."""
    if isinstance(value, list):
        value = value[0] if value else ""
    return name(value.get("value", value.get("data"))) if isinstance(value, dict) else name(value)


def _lldpd(data: Any) -> Iterator[Link]:
    for block in _many(data):
        for entry in _many(block.get("interface")):
            if isinstance(entry.get("name"), str):
                yield from _neighbour(name(entry["name"]), entry)
                continue
            for port, value in entry.items():
                for one in _many(value):
                    yield from _neighbour(name(port), one)


def _neighbour(port: str, entry: dict[str, Any]) -> Iterator[Link]:
    chassis = next(iter(_many(entry.get("chassis"))), {})
    told = _value(chassis.get("name"))
    if "id" not in chassis and len(chassis) == 1:
        told, inner = next(iter(chassis.items()))
        told, chassis = name(told), inner if isinstance(inner, dict) else {}
    far = next(iter(_many(entry.get("port"))), {})
    peer = told or _value(chassis.get("id"))
    if not port or not peer:
        return
    able = [one for one in _many(chassis.get("capability")) if isinstance(one.get("type"), str)]
    yield Link(
        "", port, peer, _value(far.get("id")), _value(far.get("descr")) or _value(chassis.get("descr")),
        any(one["type"].lower() in _SWITCH and one.get("enabled") is not False for one in able) if able else None,
    )  # fmt: skip


def _eos(data: Any) -> Iterator[Link]:
    if isinstance(data, list):
        for row in _many(data):
            port, peer = name(row.get("port")), name(row.get("neighborDevice"))
            if port and peer:
                yield Link("", port, peer, name(row.get("neighborPort")))
        return
    for port, value in data.items() if isinstance(data, dict) else ():
        for one in _many(value.get("lldpNeighborInfo") if isinstance(value, dict) else None):
            far = next(iter(_many(one.get("neighborInterfaceInfo"))), {})
            able = one.get("systemCapabilities")
            peer = name(one.get("systemName")) or name(one.get("chassisId"))
            if peer:
                described = name(far.get("interfaceDescription"))
                yield Link(
                    "", name(port), peer, name(far.get("interfaceId")).strip('"'), described,
                    any(able.get(kind) is True for kind in _SWITCH) if isinstance(able, dict) and able else None,
                )  # fmt: skip


def _junos(data: dict[str, Any]) -> Iterator[Link]:
    for block in _many(data["lldp-neighbors-information"]):
        for row in _many(block.get("lldp-neighbor-information")):
            port = _value(row.get("lldp-local-port-id")) or _value(row.get("lldp-local-interface"))
            peer = _value(row.get("lldp-remote-system-name")) or _value(row.get("lldp-remote-chassis-id"))
            if port and peer:
                described = _value(row.get("lldp-remote-port-description"))
                yield Link("", port, peer, _value(row.get("lldp-remote-port-id")), described)


def _netq(data: list[Any]) -> Iterator[Link]:
    for block in _many(data):
        for link in _many(block.get("links")):
            for cable in _many(link.get("compounded_links")) or [link]:
                ends = [(name(one.get("node")), name(one.get("interface"))) for one in _many(cable.get("interfaces"))]
                if len(ends) == 2 and all(node for node, _ in ends):
                    yield Link(ends[0][0], ends[0][1], ends[1][0], ends[1][1])
