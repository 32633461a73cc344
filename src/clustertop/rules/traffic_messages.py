"""What alerts about traffic say: which share, by which meter, of how much; which uplink; which other end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.quantity import quantity, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clustertop.model import Attr
    from clustertop.store.view import FleetView

_CROSSES = {"cross-rack": "leaves its rack (cross-rack", "through spine": "goes through the spine (leaf to leaf"}
_METERS = {
    "sockets": "by TCP sockets", "uplinks": "by the leaves' ports", "fabric": "by a fabric query",
    "nccl": "estimated from the NCCL log and what the NICs sent",
}


def _share(view: FleetView, row: int) -> str:
    table = view["traffic"]
    attrs = table.attrs[row]
    meter = str(attrs.get("meter") or "")
    total = table.value("bytes_per_second", row) if meter == "sockets" else None
    text = quantity(table.value("judged_ratio", row), "ratio")
    text += f" of {scaled(total, 'B/s')}" if total else " of its bytes"
    text += f" {_CROSSES.get(str(attrs.get('definition')), 'crosses (')}, {_METERS.get(meter, meter)}"
    text += f" of {attrs.get('nodes_read')} of {attrs.get('nodes')} nodes)" if meter == "sockets" else ")"
    lost = table.value("unplaced_ratio", row)
    if lost and lost >= 0.01 and meter == "sockets":
        text += f"; {quantity(lost, 'ratio')} of the bytes is not placed"
    predicted = table.value("predicted_cross_rack_ratio", row)
    if predicted is not None and attrs.get("better"):
        text += f"; by rank order {quantity(predicted, 'ratio')} of hops cross (predicted), in a better order " \
                f"{attrs['better']}"
    return text


def _uplinks(attrs: Mapping[str, Attr]) -> str:
    return str(attrs.get("uplink") or "an uplink")


def _capacity(view: FleetView, row: int) -> str:
    table = view["traffic"]
    load = quantity(table.value("uplink_load_ratio", row), "ratio")
    return f"uplink {_uplinks(table.attrs[row])} at {load} of its speed"


def _imbalance(view: FleetView, row: int) -> str:
    table = view["traffic"]
    times = 1 + (table.value("uplink_imbalance_ratio", row) or 0.0)
    name = table.attrs[row].get("fullest") or "an uplink"
    every = quantity(table.value("uplinks", row), "")
    return f"uplink {name} carries {times:.1f} times the mean of its {every} uplinks"


def _down(view: FleetView, row: int) -> str:
    table = view["traffic"]
    names = table.attrs[row].get("down")
    said = ", ".join(names[:8]) if isinstance(names, list) else ""
    down, every = table.value("uplinks_down", row), table.value("uplinks", row)
    return f"{quantity(down, '')} of {quantity(every, '')} uplinks down: {said}"


def _discards(view: FleetView, row: int) -> str:
    table = view["traffic"]
    text = f"its uplinks drop {quantity(table.value('uplink_discards_per_second', row), '/s')}"
    load = table.value("uplink_load_ratio", row)
    return text if load is None else f"{text}; the busiest is at {quantity(load, 'ratio')} of its speed"


def _fine(seconds: float | None) -> str:
    """``0.12 ms``: round trips inside a cluster are fractions of one."""
    return "-" if seconds is None else f"{seconds * 1e3:.3g} ms"


def _jitter(view: FleetView, row: int) -> str:
    table = view["node"]
    peers = view.traffic.worst_peer
    other = int(peers[row]) if row < len(peers) else -1
    far = f" to {view.nodes[other].name}" if other >= 0 else ""
    rtt = table.value("tcp_rtt_seconds", row)
    text = f"TCP jitter{far} {_fine(table.value('tcp_jitter_seconds', row))}"
    return text if rtt is None else f"{text}, round trip {_fine(rtt)}"


def _incast(view: FleetView, row: int) -> str:
    table = view["node"]
    count = table.value("tcp_incast_peers", row)
    return (f"round trips of {quantity(count, '')} nodes with this one rose together, jitter to "
            f"{_fine(table.value('tcp_jitter_seconds', row))}: incast")


def _disagree(view: FleetView, row: int) -> str:
    table = view["traffic"]
    notes = table.attrs[row].get("notes")
    said = [note for note in notes if "sockets" in note] if isinstance(notes, list) else []
    text = f"meters differ by {quantity(table.value('disagreement_ratio', row), 'ratio')}"
    return f"{text}: {'; '.join(said)}; the weaker raises nothing" if said else text


LINES: Mapping[str, Callable[[FleetView, int], str]] = {
    "cross_rack_share": _share, "uplink_capacity": _capacity, "uplink_imbalance": _imbalance, "uplink_down": _down,
    "uplink_discards": _discards, "tcp_jitter": _jitter, "tcp_incast": _incast, "meters_disagree": _disagree,
}
"""By rule: its line for one row."""
