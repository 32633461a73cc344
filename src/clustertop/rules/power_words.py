"""What alerts about power say, and what a node's feeds did around another fault. Facts of the reading only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.clock import local_minute
from clustertop.model import LinkState
from clustertop.quantity import duration, quantity
from clustertop.signals import bmc, feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from clustertop.store.view import FleetView, TableView

BEFORE_SECONDS = 180.0
"""What a feed did in so long before a fault is told with it."""
SAG = 0.95
"""A voltage below this share of the configured one is told."""
SAME_SECONDS = 0.5
"""Readings so near in time are of one moment."""
MOVED = 0.1
"""A current that moved by this share of the breaker's rating is told with where it came from."""


def amps(value: float | None) -> str:
    """A current with a decimal, as meters show it."""
    return "-" if value is None or value != value else f"{value:.1f} A"


def carries(table: TableView, row: int) -> str:
    """``25.7 A of 32 A (80 %)``; of an estimate with its coverage."""
    now, rating, share = (table.value(name, row) for name in ("amps", "rating_amps", "share_ratio"))
    if now is None:
        return f"current unknown ({table.reason('amps', row)})"
    text = amps(now) + (f" of {quantity(rating, 'A')}" if rating is not None else "")
    if share is not None:
        text += f" ({quantity(share, 'ratio')})"
    return text + estimated(table, row)


def estimated(table: TableView, row: int) -> str:
    """What is to be said of a current that no PDU measures, or not all of it; else nothing."""
    if table.value("estimated", row) != 1:
        return ", at least: not every phase is known" if table.value("lower_bound", row) == 1 else ""
    source = str(table.attrs[row].get("source") or "estimated")
    if source == "pdu":
        return ", worked out from the loads between its lines"
    coverage, nodes = table.value("coverage_ratio", row), table.value("nodes", row)
    whole = "" if coverage is None or nodes is None else f", {coverage * nodes:.0f} of {nodes:.0f} nodes"
    least = "at least: " if (coverage is not None and coverage < 1) or "GPU" in source else ""
    return f", {least}{source}{whole}"


def _current(view: FleetView, row: int) -> str:
    table = view["feed"]
    text = carries(table, row)
    trip, critical = table.value("trip_seconds", row), table.value("to_critical_seconds", row)
    if trip is not None:
        text += f"; its breaker trips within {duration(trip)}"
    elif critical:
        text += f"; {_ahead(view, critical)}"
    pair = table.attrs[row].get("pair")
    return text + (f"; the other feed of its pair is {pair}" if pair else "")


def _ahead(view: FleetView, seconds: float) -> str:
    """When it is critical: by the clock as well, for a line is read later than it is written."""
    return f"critical in {duration(seconds)}, at {local_minute(view.wall + seconds)}, if it goes on like this"


def _limit(view: FleetView, row: int) -> str:
    table = view["feed"]
    text = carries(table, row)
    if table.attrs[row].get("limits") == "device limits":
        warning, critical = table.value("warning_amps", row), table.value("critical_amps", row)
        text += f"; the PDU's own limits are {amps(warning)} and {amps(critical)}"
    return "; ".join([text, *_beyond(view, str(table.attrs[row].get("pdu") or ""))[:2]])


def _beyond(view: FleetView, pdu: str) -> list[str]:
    """Parts of a PDU that feeds stand for and that the device itself calls near or beyond a limit, in its words."""
    table, out = view["pdu"], []
    owner = view.of.number("pdu", pdu)
    for row in () if owner is None else table.rows_of(owner).tolist():
        if table.attrs[row].get("kind") == "outlet" or table.value("part_level", row):
            continue
        watts, most = table.value("watts", row), table.value("critical_watts", row)
        least = table.value("warning_watts", row)
        limit = most if most is not None and watts is not None and watts >= most else least
        if watts is not None and limit is not None and watts >= limit:
            out.append(f"{table.labels[row]} {quantity(watts, 'W')}, its own limit is {quantity(limit, 'W')}")
        elif (state := table.value("part_state", row)) in {1.0, 2.0}:
            word = table.attrs[row].get("state") or table.spec.metric("part_state").words[int(state)]
            out.append(f"the device says of {table.labels[row]}: {word}")
    return out


def _failover(view: FleetView, row: int) -> str:
    table = view["feed"]
    other = _other(table, row)
    if other is None:
        return "no failover headroom"
    both = [table.value("amps", one) for one in (row, other)]
    rating = [value for one in (row, other) if (value := table.value("rating_amps", one)) is not None]
    names = [str(table.attrs[one].get("name")) for one in (row, other)]
    least = "" if None not in both else "at least "
    total = sum(value for value in both if value is not None)
    text = (f"{names[0]} {amps(both[0])} and {names[1]} {amps(both[1])}: one alone would carry {least}{amps(total)}"
            + (f" of {quantity(min(rating), 'A')}" if rating else "")
            + f" ({quantity(table.value('pair_ratio', row), 'ratio')})")
    return text + (estimated(table, row) or estimated(table, other))


def _other(table: TableView, row: int) -> int | None:
    """The other feed of its pair, whichever of the two names it."""
    name, pair = table.attrs[row].get("name"), table.attrs[row].get("pair")
    return next((one for one, attrs in enumerate(table.attrs)
                 if (pair and attrs.get("name") == pair) or (name and attrs.get("pair") == name)), None)


def _event(what: str) -> Callable[[FleetView, int], str]:
    def text(view: FleetView, row: int) -> str:
        table = view["feed"]
        ago, before = table.value("event_seconds", row), table.value("before_amps", row)
        said = f"{what}: " + ("what it carried before is not known" if before is None else f"carried {amps(before)}"
                              + (f" until {duration(ago)} before" if ago else ""))
        lost, nodes = table.value("nodes_lost", row), table.value("nodes", row)
        if lost:
            said += f"; {lost:.0f} of {nodes or 0:.0f} nodes on it {'does' if lost == 1 else 'do'} not answer"
        other = _other(table, row)
        return said if other is None else f"{said}; {_partner(table, row, other)}"

    return text


def _partner(table: TableView, row: int, other: int) -> str:
    """What the *other* feed of a pair carries, or carried when it was last read: before *row* lost its load."""
    name, said = table.attrs[other].get("name"), carries(table, other)
    before = float(table.age[other] - table.age[row])
    if table.value("amps", other) is None:
        return f"{name}: {said}"
    if before > SAME_SECONDS:
        return f"{name} carried {said} {duration(before)} before, and was not read since"
    return f"{name} carries {said}"


def _forecast(view: FleetView, row: int) -> str:
    table = view["feed"]
    slope, sure = table.value("slope_amps_per_second", row), table.value("forecast_confidence_ratio", row)
    left = table.value("to_critical_seconds", row)
    text = carries(table, row)
    if left:
        text += f", {_ahead(view, left)}"
    if slope is not None:
        text += f": {60 * slope:+.2g} A a minute"
    return text + (f", sure to {quantity(sure, 'ratio')}" if sure is not None else "")


def _scale(view: FleetView, row: int) -> str:
    table = view["feed"]
    now, rating, share = (table.value(name, row) for name in ("amps", "rating_amps", "share_ratio"))
    if share is not None and share > 1:
        return f"implausible scale: {amps(now)} on a breaker of {quantity(rating, 'A')}, not an overload"
    return (f"implausible scale: {amps(now)} at {quantity(table.value('volts', row), 'V')} cannot be "
            f"{quantity(table.value('watts', row), 'W')}")


def _disagree(view: FleetView, row: int) -> str:
    table = view["feed"]
    return (f"{table.attrs[row].get('disagreement') or 'the device says otherwise'}; configured is "
            f"{quantity(table.value('rating_amps', row), 'A')}")


def _part(view: FleetView, row: int) -> str:
    table = view["pdu"]
    said = str(table.attrs[row].get("state") or "")
    if table.value("tripped", row) == 1:
        return f"{table.labels[row]} has tripped" + (f" ({said})" if said else "")
    if table.attrs[row].get("kind") == "pdu":
        return f"{table.labels[row]}: {said or 'raised'}"
    text = f"{table.labels[row]}: {amps(table.value('amps', row))}"
    limits = [f"{word} {amps(value)}" for word, name in (
        ("its own warning", "warning_amps"), ("its own limit", "critical_amps"), ("rating", "rating_amps"))
        if (value := table.value(name, row)) is not None]
    text += f" ({', '.join(limits)})" if limits else ""
    return text + (f"; the device says: {said}" if said else "")


def _redundancy(view: FleetView, row: int) -> str:
    psus = view["psu"]
    bad = [f"{psus.labels[one]} {bmc.PSU.metric('psu_state').words.get(int(state), '?')}"
           for one in psus.rows_of(int(view["bmc"].node[row])).tolist()
           if (state := psus.value("psu_state", one)) is not None and state != bmc.PSU_OK]
    return "power supply redundancy lost" + (f": {', '.join(bad)}" if bad else "")


def _alarms(view: FleetView, row: int) -> str:
    table = view["bmc"]
    return f"its BMC has raised: {table.attrs[row].get('alarms') or 'an alarm without words'}"


def _supply(view: FleetView, row: int) -> str:
    table = view["psu"]
    state = table.value("psu_state", row)
    word = table.spec.metric("psu_state").words.get(int(state), "?") if state is not None else "?"
    said = str(table.attrs[row].get("words") or "")
    # A slot that was always empty is no fault.
    word += ", and was there before" if state == bmc.PSU_ABSENT else ""
    text = f"{table.labels[row]}: {word}" + (f" ({said})" if said else "")
    on = table.attrs[row].get("feed")
    return text + (f"; on feed {on}" if on else "")


def _device(view: FleetView, row: int) -> str:
    table = view["device"]
    state, age = table.value("link_state", row), table.value("age_seconds", row)
    words = LinkState(int(state)).words if state is not None else "no answer"
    reason = view.link_reasons[int(table.node[row])]
    return (f"{table.labels[row]} {words}" + (f": {reason}" if reason else "")
            + (f"; last reading {duration(age)} before" if age is not None else "; never read"))


def _device_stale(view: FleetView, row: int) -> str:
    table = view["device"]
    return (f"{table.labels[row]}: no reading for {duration(table.value('age_seconds', row))}, every "
            f"{duration(table.value('interval_seconds', row))} expected")


def _replaced(view: FleetView, row: int) -> str:
    table = view["device"]
    now, before = table.attrs[row].get("serial"), table.attrs[row].get("serial_before")
    return f"{table.labels[row]} tells serial number {now or '?'}, at first it was {before or '?'}"


SPECIAL: dict[str, Callable[[FleetView, int], str]] = {
    "feed_current": _current,
    "feed_limit": _limit,
    "feed_failover": _failover,
    "feed_lost": _event("feed lost"),
    "feed_tripped": _event("breaker tripped"),
    "feed_load_gone": _event("load gone, cause not known"),
    "feed_forecast": _forecast,
    "feed_scale": _scale,
    "feed_limits_disagree": _disagree,
    "pdu_part": _part,
    "psu_redundancy": _redundancy,
    "bmc_alarm": _alarms,
    "psu_failed": _supply,
    "device_unreachable": _device,
    "device_stale": _device_stale,
    "device_replaced": _replaced,
}


# -- what a node's feeds did ------------------------------------------------------------------------------------------


def feeds_of(view: FleetView, node: int) -> list[int]:
    """Rows of the feed table that node number *node* hangs on."""
    if not 0 <= node < len(view.nodes):
        return []
    return list(view.of.feeds_of(node))


def did(view: FleetView, row: int, at: float, since: str = "ago") -> str:
    """What a feed does, and what it did in the minutes before *at* (our monotonic clock).

    *since*: ``ago`` of what is said of now, ``before`` in a line that stays.
    """
    table = view["feed"]
    text = f"feed {table.attrs[row].get('name')} {carries(table, row)}"
    event = table.value("event", row)
    if event:
        ago = table.value("event_seconds", row)
        before = table.value("before_amps", row)
        text += f": {feed.EVENT_WORDS[int(event)]}" + (f" {duration(ago)} {since}" if ago is not None else "")
        text += f", carried {amps(before)}" if before is not None else ""
    volts, nominal = table.value("volts", row), view.of.site.feeds[row].volts
    if volts is not None and nominal and volts < SAG * nominal:
        text += f", only {volts:.0f} V of {nominal:.0f} V"
    times, samples = view.history.samples("feed", "amps", row + 1)
    near = (times >= at - BEFORE_SECONDS) & (times <= at) & ~np.isnan(samples[:, row])
    rating, now = table.value("rating_amps", row), table.value("amps", row)
    if near.any() and rating and now is not None and not event:
        past = samples[near, row]
        low, high = float(past.min()), float(past.max())
        if high - low >= MOVED * rating or abs(now - float(past[0])) >= MOVED * rating:
            text += f", {low:.1f} to {high:.1f} A in the {duration(BEFORE_SECONDS)} before"
    return text


def told(view: FleetView, node: int, at: float) -> str:
    """The end of a line about node number *node*: its feeds, where something happened to them; empty if not."""
    rows = feeds_of(view, node)
    table = view["feed"]
    odd = [row for row in rows if table.value("event", row) or (table.value("share_ratio", row) or 0.0) >= 0.8
           or _strange(did(view, row, at))]
    return "".join(f"; {did(view, row, at, 'before')}" for row in odd[:2])


def _strange(said: str) -> bool:
    """Whether what :func:`did` said tells of a voltage that sags or a current that moved."""
    return said.endswith(" before") or " V of " in said
