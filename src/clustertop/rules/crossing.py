"""What share of a job's, a group's or a rack's bytes leaves its rack: the meter of the exit signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.signals.traffic_table import FLEET, key_of
from clustertop.store.shares import NARROWER

if TYPE_CHECKING:
    from clustertop.store.view import FleetView

TOO_LITTLE = "too little traffic to tell"
LEAST_BYTES_PER_SECOND = 1e6


def read(view: FleetView) -> bool:
    """Whether any meter of traffic is read."""
    return any(meter.read for meter in view.traffic.meters if meter.name != "order")


def share(view: FleetView, kind: str, name: str) -> tuple[float | None, str]:
    """(share, definition and meter) of a job, group, rack, or of all nodes; (None, why) where it is not measured.

    *kind* is that of an exit signal's line. Of some of the nodes, that are no job, group or rack, nothing is known.
    """
    if kind == "rack":
        return _of_rack(view, name)
    row = view.traffic.rows.get(key_of(kind, name) if kind != "nodes" else FLEET)
    if row is None or (kind == "nodes" and name != "all nodes"):
        return None, "no share of these nodes alone"
    table = view["traffic"]
    attrs = table.attrs[row]
    found = table.value("share_ratio", row)
    if found is None:
        return None, table.reason("share_ratio", row)
    meter = str(attrs.get("meter"))
    said = f"{attrs.get('definition')}, by {meter}" + (", estimated" if meter == "nccl" else "")
    unreliable = attrs.get("unreliable")
    if isinstance(unreliable, list) and meter in unreliable:
        return None, f"{found * 100:.0f} % {said}, which does not see enough to be judged"
    doubt = table.reason("judged_ratio", row)
    if doubt and doubt != NARROWER:
        return None, f"{found * 100:.0f} % {said}, not judged: {doubt}"
    return found, said


def _of_rack(view: FleetView, name: str) -> tuple[float | None, str]:
    """What leaves a rack or comes into it, of all that its nodes send and get, by sockets."""
    picture = view.traffic
    if name not in picture.racks:
        return None, "no rack map"
    number = picture.racks.index(name)
    known, of = int(picture.rack_read[number]), int(picture.rack_nodes[number])
    if known < of:
        return None, f"{known} of {of} nodes' sockets are read"
    inside = float(picture.matrix[number, number])
    total = float(np.nansum(picture.matrix[number]) + np.nansum(picture.matrix[:, number])) - inside
    if total < LEAST_BYTES_PER_SECOND:
        return None, TOO_LITTLE
    return (total - inside) / total, "cross-rack, by sockets"
