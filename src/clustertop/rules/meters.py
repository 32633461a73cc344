"""What meters say of the exit signals, for :func:`clustertop.rules.exits.exits`: per job, group, rack, or all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.rules.exits import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.rules.exits import Signal
    from clustertop.store.view import FleetView


def meters(view: FleetView) -> dict[Signal, Mapping[str, Figure]]:
    """Return the figures of every signal that has a meter; a signal that nothing is set up for is left out."""
    if not any(meter.read for meter in view.traffic.meters if meter.name != "order"):
        return {}
    return {"cross_rack_share": cross_rack(view)}


def cross_rack(view: FleetView) -> dict[str, Figure]:
    """By name of job, group or rack, and for ``all nodes``: the share that leaves its rack, or goes through a spine.

    The note says by which definition and meter; without a figure it says why.
    """
    table = view["traffic"]
    out = _racks(view)
    # Where a group and a job share a name the job's figure stands, as the verdict line is the job's then.
    order = sorted(range(len(table)), key=lambda row: table.attrs[row].get("kind") == "job")
    for row in order:
        kind, name = table.attrs[row].get("kind"), str(table.attrs[row].get("name") or "all nodes")
        if kind in {"fleet", "group", "job"}:
            out[name] = _figure(view, row)
    return out


def _figure(view: FleetView, row: int) -> Figure:
    table = view["traffic"]
    attrs = table.attrs[row]
    share = table.value("share_ratio", row)
    if share is None:
        return Figure(None, table.reason("share_ratio", row))
    meter = str(attrs.get("meter"))
    said = f"{attrs.get('definition')}, by {meter}" + (" (estimated)" if meter == "nccl" else "")
    why = table.reason("judged_ratio", row)
    if attrs.get("unreliable") and meter in str(attrs["unreliable"]):
        return Figure(None, f"{why or 'meters disagree'}: {share * 100:.0f} % {said}")
    return Figure(share, said)


def _racks(view: FleetView) -> dict[str, Figure]:
    """What leaves each rack, of what its nodes send and get, by sockets."""
    picture = view.traffic
    out = {}
    for number, rack in enumerate(picture.racks):
        if picture.rack_read[number] < picture.rack_nodes[number]:
            out[rack] = Figure(None, f"{picture.rack_read[number]} of {picture.rack_nodes[number]} nodes read")
            continue
        inside = float(picture.matrix[number, number])
        total = float(np.nansum(picture.matrix[number]) + np.nansum(picture.matrix[:, number])) - inside
        out[rack] = Figure((total - inside) / total, "cross-rack, by sockets") if total >= 1e6 else Figure(
            None, "too little traffic to tell")
    return out
