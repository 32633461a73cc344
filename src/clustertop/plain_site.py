"""What is watched beside the nodes, in words and for JSON: feeds, PDUs, BMCs, switches, the fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.model import LinkState
from clustertop.places import DEVICE_WORD
from clustertop.plain_table import SEVERITY_WORDS, row_object, table
from clustertop.quantity import duration, quantity
from clustertop.signals import feed
from clustertop.store.devices import DOWN
from clustertop.store.view import STALE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.core import Snapshot
    from clustertop.store.view import FleetView, TableView

UNKNOWN_RANK = 1.5
"""Where a feed stands of which nothing can be judged: before what is fine, behind what is not."""
_AHEAD = (("to_warning_seconds", "warning", "warning"), ("to_critical_seconds", "critical", "warning"),
          ("to_rating_seconds", "rating", "critical"))


def judged(view: FleetView) -> NDArray[np.bool_]:
    """[feeds] whether anything can be held against a limit: what is not judged is not fine.

    A device's word alone tells of what is wrong; without a limit of its own it does not say how near that is.
    """
    feeds = view["feed"]
    by_device = feeds.why_of("judged_ratio") == feed.BY_DEVICE
    out: NDArray[np.bool_] = ~np.isnan(feeds.col("judged_ratio")) | (by_device & ~np.isnan(feeds.col("limit_level")))
    return out


def order(view: FleetView, rank: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows of the feed table: the worst *rank* first, then the least headroom; a pair stands together."""
    feeds = view["feed"]
    if not len(feeds):
        return np.empty(0, np.intp)
    worth = rank * 10.0 + np.nan_to_num(np.fmax(feeds.col("share_ratio"), 0.8 * feeds.col("failover_ratio")))
    names = [str(attrs.get("name") or "") for attrs in feeds.attrs]
    place = {name: row for row, name in enumerate(names)}
    done: set[int] = set()
    groups: list[tuple[float, list[int]]] = []
    for row in np.argsort(-worth, kind="stable").tolist():
        if row in done:
            continue
        other = place.get(str(feeds.attrs[row].get("pair") or ""), -1)
        mine = sorted({row, other} - {-1} - done, key=lambda one: names[one])
        done.update(mine)
        groups.append((float(worth[mine].max()), mine))
    return np.array([row for _, mine in groups for row in mine], np.intp)


def amps_text(feeds: TableView, row: int) -> str | None:
    """``18.2/32 A``, ``est`` before what is estimated, ``>=`` before what is a part of the whole; None: unknown."""
    amps, rating = feeds.value("amps", row), feeds.value("rating_amps", row)
    if amps is None:
        return None
    least = ">=" if feeds.value("lower_bound", row) == 1 else ""
    text = f"{least}{amps:.1f}/{'?' if rating is None else f'{rating:g}'} A"
    return f"est {text}" if feeds.value("estimated", row) else text


def outlook(feeds: TableView, row: int) -> tuple[str, str]:
    """What happened to its load, or when which limit is reached; and how grave that is (``critical``, ``warning``)."""
    event = feeds.value("event", row)
    if event:
        since = feeds.value("event_seconds", row)
        return (f"{feed.EVENT_WORDS[int(event)]}{f' {duration(since)} ago' if since is not None else ''}",
                "critical" if event != feed.GONE else "warning")
    trip = feeds.value("trip_seconds", row)
    if trip is not None:
        return (f"trips within {duration(trip)}", "critical")
    for column, words, style in _AHEAD:
        seconds = feeds.value(column, row)
        if seconds is not None and seconds > 0:
            sure = feeds.value("forecast_confidence_ratio", row)
            words = _share_of_warning(feeds, row) if column == "to_warning_seconds" else words
            return (f"{words} in {duration(seconds)}" + (f" ({sure:.0%} sure)" if sure is not None else ""), style)
    if feeds.value("implausible", row):
        return ("wrong scale?", "warning")
    return ("", "muted")


def _share_of_warning(feeds: TableView, row: int) -> str:
    """``80 %``: from which share of its rating a warning is due; ``warning`` where that is no share."""
    warning, rating = feeds.value("warning_amps", row), feeds.value("rating_amps", row)
    return quantity(warning / rating, "ratio") if warning is not None and rating else "warning"


def feed_lines(snapshot: Snapshot) -> list[str]:
    """A line per feed, the worst and those with the least headroom first; nothing where none is configured."""
    view, feeds = snapshot.view, snapshot.view["feed"]
    if not len(feeds):
        return []
    worst, known = snapshot.engine.severity(view, "feed"), judged(view)
    rank = np.where((worst == 0) & ~known, UNKNOWN_RANK, worst.astype(float))
    rows = []
    for row in order(view, rank).tolist():
        state = SEVERITY_WORDS[worst[row]] if worst[row] else "ok" if known[row] else "unknown"
        said = outlook(feeds, row)[0]
        if not known[row] and not said:
            said = feeds.reason("judged_ratio", row)
        alone = feeds.value("failover_ratio", row)
        rows.append((view.owners[int(feeds.node[row])].name, state, quantity(feeds.value("share_ratio", row), "ratio"),
                     amps_text(feeds, row) or "-",
                     quantity(alone, "ratio") if alone is not None or feeds.attrs[row].get("pair") else "no pair",
                     quantity(feeds.value("watts", row), "W"), said))
    head = ("feed", "state", "share", "amps", "alone", "power", "")
    return [f"{len(rows)} feed{'s' if len(rows) > 1 else ''}", *table(head, rows)]


def unread_devices(view: FleetView) -> list[tuple[str, str]]:
    """(device, why) of every PDU, BMC, switch or fabric that says nothing now."""
    devices, out = view["device"], []
    for row, owner in enumerate(devices.node.tolist()):
        name, age = view.owners[owner].name, devices.value("age_seconds", row)
        state, said = devices.value("link_state", row), view.link_reasons[owner]
        link = LinkState(int(state)) if state is not None else LinkState.WAITING
        word = DEVICE_WORD.get(view.owners[owner].kind, "device")
        if link in DOWN or link == LinkState.CLOSED:
            out.append((name, f"{word} {link.words}{f': {said}' if said else ''}"))
        elif age is None:
            out.append((name, f"{word} not read yet ({link.words}{f': {said}' if said else ''})"))
        elif devices.level[row] == STALE:
            out.append((name, f"{word} stale: no reading for {duration(age)}{f' ({said})' if said else ''}"))
    return out


def feed_objects(view: FleetView) -> list[dict[str, object]]:
    """Every feed for JSON, in the order of the configuration."""
    feeds, out = view["feed"], []
    for row, owner in enumerate(feeds.node.tolist()):
        said = view.of.site.feeds[owner - view.of.first_feed]
        out.append({"name": said.name, "rack": said.rack or None, "pair": said.pair or None, "pdu": said.pdu or None,
                    "part": said.part or None, "nodes": list(said.nodes), **row_object(feeds, row)})
    return out


def device_objects(snapshot: Snapshot) -> list[dict[str, object]]:
    """Every device for JSON; what a BMC says is among the tables of its node."""
    view, devices, out = snapshot.view, snapshot.view["device"], []
    for row, owner in enumerate(devices.node.tolist()):
        info = view.owners[owner]
        state = devices.value("link_state", row)
        out.append({
            "name": info.name, "kind": info.kind, "of": info.of or None, "where": info.host or None,
            "rack": info.rack or None, "leaf": info.leaf or None,
            "link": LinkState(int(state)).name.lower() if state is not None else None,
            "reason": view.link_reasons[owner] or snapshot.bad_frames.get(owner) or None,
            **row_object(devices, row),
            "tables": {name: [row_object(one, int(mine)) for mine in one.rows_of(owner)]
                       for name, one in view.tables.items()
                       if name != "device" and len(one.rows_of(owner))},
        })
    return out


def fleet_rows(view: FleetView) -> dict[str, list[dict[str, object]]]:
    """By table: the rows that are the fleet's as a whole, for JSON."""
    return {name: [row_object(one, int(row)) for row in one.rows_of(view.of.fleet)]
            for name, one in view.tables.items() if len(one.rows_of(view.of.fleet))}

