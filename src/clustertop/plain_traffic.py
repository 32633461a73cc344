"""Traffic between racks and leaves as plain rows and for JSON: for ``once`` and ``check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.plain_table import table
from clustertop.quantity import quantity
from clustertop.signals.traffic_table import LEAF_COLUMNS, SCOPE_COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.store.traffic_picture import LeafPicture, Talker
    from clustertop.store.view import FleetView, TableView

SCOPE_HEAD = ("traffic", "share", "of what, by which meter", "judged", "nodes read", "bytes", "unplaced", "remarks")
LEAF_HEAD = ("leaf", "through spine", "busiest uplink", "uneven", "drops", "pause", "down", "why unknown")
UNREAD = "no node of either rack is read"
MARKS = {"nccl": "estimated", "order": "predicted"}


def traffic_lines(view: FleetView) -> list[str]:
    """A line per scope and per leaf, and what to configure for what is unknown; nothing where no meter is read."""
    picture, rows_of = view.traffic, view["traffic"]
    if not any(meter.read for meter in picture.meters):
        return []
    scopes = [row for key, row in picture.rows.items() if not key.startswith("leaf/")]
    lines = ["", *table(SCOPE_HEAD, [_scope(rows_of, row) for row in scopes], left=4)]
    if any(leaf.uplinks for leaf in picture.leaves):
        lines += ["", *table(LEAF_HEAD, [_leaf(leaf) for leaf in picture.leaves], left=1)]
    return [*lines, *picture.sentences]


def _scope(rows: TableView, row: int) -> list[str]:
    attrs = rows.attrs[row]
    share = rows.value("share_ratio", row)
    meter = str(attrs.get("meter") or "")
    what = f"{attrs.get('definition')}, {meter}{f' ({MARKS[meter]})' if meter in MARKS else ''}" if meter else (
        f"unknown: {attrs.get('why') or rows.reason('share_ratio', row)}")
    judged = rows.value("judged_ratio", row)
    return [
        rows.labels[row], "?" if share is None else quantity(share, "ratio"), what,
        f"no: {rows.reason('judged_ratio', row)}" if judged is None else "yes",
        f"{attrs.get('nodes_read', '?')}/{attrs.get('nodes', '?')}", _cell(rows, "bytes_per_second", row),
        _cell(rows, "unplaced_ratio", row), "; ".join(_list(attrs.get("notes"))),
    ]


def _leaf(leaf: LeafPicture) -> list[str]:
    load = "?" if leaf.load is None else f"{leaf.busiest} {quantity(leaf.load, 'ratio')}"
    known = any(one.up is not None for one in leaf.uplinks) and (leaf.down or not leaf.doubtful)
    return [leaf.name, _number(leaf.ratio, "ratio"), load, _number(leaf.imbalance, "ratio"),
            _number(leaf.discards, "/s"), _number(leaf.pause, "/s"),
            f"{len(leaf.down) + len(leaf.dark)}/{len(leaf.uplinks)}" if known else "?",
            "; ".join(filter(None, (leaf.why, *leaf.doubtful, leaf.discards_why, leaf.pause_why)))]


def _cell(rows: TableView, name: str, row: int) -> str:
    return _number(rows.value(name, row), rows.spec.metric(name).unit)


def _number(amount: float | None, unit: str) -> str:
    if amount is None:
        return "?"
    # What is there is not rounded to nothing.
    return "<0.1 %" if unit == "ratio" and 0 < amount < 5e-4 else quantity(amount, unit)


def _list(found: object) -> list[str]:
    return [str(one) for one in found] if isinstance(found, list) else []


# ---- JSON ----------------------------------------------------------------------------------------------------------


def traffic_object(view: FleetView) -> dict[str, object]:
    """Everything about traffic for JSON; what is null has its reason beside it."""
    picture, rows = view.traffic, view["traffic"]
    read = [int(one) for one in picture.rack_read]
    nodes = [int(one) for one in picture.rack_nodes]
    return {
        "missing": list(picture.sentences),
        "meters": [{"name": one.name, "label": one.label, "definition": one.definition, "read": one.read, "of": one.of,
                    "unit": one.unit, "unknown": one.why or None} for one in picture.meters],
        "scopes": [_scope_object(rows, row) for key, row in picture.rows.items() if not key.startswith("leaf/")],
        "matrix": {
            "racks": [{"name": name, "nodes": nodes[place], "nodes_read": read[place]}
                      for place, name in enumerate(picture.racks)],
            "unit": "B/s", "meter": "sockets", "from_row_to_column": [_row(line) for line in picture.matrix],
            "unplaced": _row(picture.unplaced), "unknown": UNREAD},
        "leaves": [_leaf_object(rows, picture.rows.get(f"leaf/{leaf.name}"), leaf) for leaf in picture.leaves],
        "talkers": [_talker(view, one) for one in picture.talkers],
        "unplaced": [{"name": name, "bytes_per_second": rate} for name, rate in picture.strangers],
    }


def _row(rates: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(rate) else float(rate) for rate in rates]


def _readings(rows: TableView, row: int, names: tuple[str, ...]) -> dict[str, object]:
    out: dict[str, object] = {}
    for name in names:
        amount = rows.value(name, row)
        entry: dict[str, object] = {"value": amount, "unit": rows.spec.metric(name).unit}
        if amount is None:
            entry["unknown"] = rows.reason(name, row)
        out[name] = entry
    return out


def _scope_object(rows: TableView, row: int) -> dict[str, object]:
    attrs = rows.attrs[row]
    return {
        "scope": rows.keys[row], "kind": attrs.get("kind"), "name": attrs.get("name") or None,
        "definition": attrs.get("definition") or None, "meter": attrs.get("meter") or None,
        "quality": MARKS.get(str(attrs.get("meter")), "measured") if attrs.get("meter") else None,
        "unknown": attrs.get("why") or None, "unreliable": _list(attrs.get("unreliable")),
        "notes": _list(attrs.get("notes")), "nodes": attrs.get("nodes"), "nodes_read": attrs.get("nodes_read"),
        "order_by": attrs.get("order_by") or None, "better_order": _list(attrs.get("better_order")),
        "readings": _readings(rows, row, SCOPE_COLUMNS),
    }


def _leaf_object(rows: TableView, row: int | None, leaf: LeafPicture) -> dict[str, object]:
    return {
        "leaf": leaf.name, "meter": leaf.meter, "unknown": leaf.why or None, "down": list(leaf.down),
        "down_from_the_start": list(leaf.dark), "doubtful": list(leaf.doubtful),
        "host_ports_that_drop": [{"name": port, "peer": who or None, "discards_per_second": lost}
                                 for port, who, lost in leaf.dropping],
        "unknown_ports": list(leaf.unknown_ports), "busiest": leaf.busiest or None,
        "readings": {} if row is None else _readings(rows, row, LEAF_COLUMNS),
        "uplinks": [{"name": one.name, "peer": one.peer or None, "up": one.up, "load_ratio": one.load,
                     "transmit_bytes_per_second": one.out_bytes_per_second,
                     "discards_per_second": one.discards_per_second,
                     "pause_frames_per_second": one.pause_frames_per_second, "role_by": one.role_by or None}
                    for one in leaf.uplinks],
    }


def _talker(view: FleetView, one: Talker) -> dict[str, object]:
    return {"from": view.nodes[one.source].name, "to": view.nodes[one.target].name, "from_rack": one.source_rack,
            "to_rack": one.target_rack, "bytes_per_second": one.bytes_per_second, "rtt_seconds": one.rtt_seconds,
            "jitter_seconds": one.jitter_seconds}
