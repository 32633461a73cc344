"""What an alert says: one line with the value, the limit, and where to look. Facts of the reading only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from clustertop.hosts import fold
from clustertop.model import LinkState
from clustertop.places import DEVICE_PLURAL, DEVICE_WORD
from clustertop.quantity import duration, quantity
from clustertop.rules import device_messages, power_words, traffic_messages
from clustertop.signals import nccl_table, screen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from clustertop.model import Alert
    from clustertop.rules.gather import Wanted
    from clustertop.rules.spec import Rule
    from clustertop.rules.verdicts import Verdicts
    from clustertop.store.view import FleetView, TableView

PLURAL = {"node": "nodes", "feed": "feeds", **DEVICE_PLURAL}
NAMES = 80
"""Most characters of node names in one line; the list itself is with the alert."""
FOLDED = 128
"""More nodes than this are not folded whole for a line: it takes milliseconds."""


def firing(name: str, rule: Rule, view: FleetView, row: int, value: float | None) -> str:
    """The line of a verdict that has been raised, worsened or eased."""
    special = _SPECIAL.get(name) or power_words.SPECIAL.get(name)
    if special is not None:
        return special(view, row)
    table = view[rule.table]
    metric = table.spec.metric(rule.metric)
    if rule.kind != "threshold" and value is not None and value == value:
        return f"{rule.title}: {_BY_KIND[rule.kind](rule, table, row, value)}"
    word = metric.words.get(int(value), "") if value is not None and value == value and metric.words else ""
    return f"{rule.title}: {word or quantity(value, metric.unit)}"


def single(state: Verdicts, view: FleetView, one: Wanted) -> str:
    """The line of an alert about one thing."""
    row = int(one.rows[0])
    if one.back:
        return f"over, and its node settles after a restart: {state.rule.title}"
    return firing(state.name, state.rule, view, row, float(state.value[row]))


def many(state: Verdicts, view: FleetView, one: Wanted, devices: Collection[int] = ()) -> str:
    """The line of an alert about many things of one parent; *devices*: rows of silent devices that go with them."""
    rule, table, count = state.rule, view[state.rule.table], len(one.rows)
    if one.scope == 1:
        row = worst_row(state, one.rows)
        return (f"{rule.title}: {count} of {one.size} {one.thing.label}; {table.labels[row]}: "
                f"{firing(state.name, rule, view, row, float(state.value[row]))}")
    nodes = f"{len(one.nodes)} of {one.size} {_plural(view, one.nodes)}"
    if rule.table == "node" and rule.title.startswith("node "):
        text = f"{nodes} {rule.title[5:]}"
    elif rule.table == "device":
        text = f"{nodes}: {rule.title}"
    else:
        text = f"{rule.title} on {nodes}" + (f" ({count} in all)" if count > len(one.nodes) else "")
    if state.name == "device_unreachable":
        text = f"{nodes} do not answer"
    if devices:
        kinds = Counter(str(view["device"].attrs[row].get("kind")) for row in devices)
        said = ", ".join(f"{number} {DEVICE_PLURAL.get(kind, kind) if number > 1 else DEVICE_WORD.get(kind, kind)}"
                         for kind, number in sorted(kinds.items(), key=lambda one: (-one[1], one[0])))
        text = f"{len(one.nodes) + len(devices)} targets {rule.title.removeprefix('node ')}: {nodes}, {said}"
    if one.back:
        text += f", {one.back} of them back and settling"
    text += f": {_names(view, sorted(one.nodes))}"
    if state.name == "node_unreachable":
        reasons = Counter(reason for node in one.nodes if (reason := view.link_reasons[node]))
        if reasons:
            reason, often = reasons.most_common(1)[0]
            text += f" ({reason}{f'; {often} of them' if often < len(one.nodes) else ''})"
        vias = {view.vias[node] for node in one.nodes}
        jump = "".join(vias) if len(vias) == 1 else ""
        if len(one.nodes) == len(view.nodes):
            where = f"jump host {jump}" if jump else "jump host"
            text += f"; everything at once: look at this machine's own network and the {where} first"
        elif jump and one.thing.table == "jump":
            text += f"; all are reached through jump host {jump}: look at it first"
    return text


def _plural(view: FleetView, owners: Collection[int]) -> str:
    """What they are: ``nodes``, ``PDUs``, ``feeds``."""
    kinds = {view.owners[one].kind for one in owners}
    return PLURAL.get(kinds.pop(), "devices") if len(kinds) == 1 else "devices"


def _names(view: FleetView, nodes: list[int]) -> str:
    """The nodes folded, as far as a line has room for them."""
    few = nodes if len(nodes) <= FOLDED else nodes[: FOLDED // 4]
    names = fold(view.owners[node].name for node in few)
    if len(names) > NAMES:
        names = names[: NAMES - 4] + " ..."
    elif len(few) < len(nodes):
        names += " ..."
    return names


def labels(rule: Rule, view: FleetView, one: Wanted) -> tuple[str, ...]:
    """What an alert about many things stands for: its nodes, or one node's things."""
    if one.scope == 1:
        return tuple(view[rule.table].labels[row] for row in one.rows.tolist())
    return tuple(view.owners[node].name for node in sorted(one.nodes))


def worst_row(state: Verdicts, rows: NDArray[np.intp]) -> int:
    """The gravest of a rule's verdicts: by severity, then by how far it is beyond its limit."""
    value = np.nan_to_num(state.value[rows])
    sign = 1.0 if state.rule.op in {">", ">="} else -1.0
    return int(rows[np.lexsort((sign * value, state.level[rows]))[-1]])


def cleared(rule: Rule, alert: Alert, now: float, remain: int) -> str:
    """The line of an alert that is over; *remain*: things of it that are shown by themselves from now on."""
    left = f"; {remain} of them remain" if remain else ""
    return f"over after {duration(now - alert.since)}: {rule.title}{left}"


def _dns_slow(view: FleetView, row: int) -> str:
    table = view["screen"]
    host, seconds = table.attrs[row].get("host") or "?", duration(table.value("name_lookup_seconds", row))
    if table.value("name_lookup", row) == screen.NO_ANSWER:
        return f"own host name {host}: no answer for {seconds}"
    return f"own host name {host} took {seconds} to look up"


def _dns_fails(view: FleetView, row: int) -> str:
    attrs = view["screen"].attrs[row]
    return (f"own host name {attrs.get('host') or '?'}: {attrs.get('dns_error') or 'cannot be looked up'} (after "
            f"{duration(view['screen'].value('name_lookup_seconds', row))})")


def _gpu_monitors(view: FleetView, row: int) -> str:
    found = screen.monitors(view["screen"].attrs[row])
    said = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in found.items())
    return f"monitors beside this one: {said or 'none'}"


def _nccl_init(view: FleetView, row: int) -> str:
    table = view["nccl"]
    took = duration(table.value("init_seconds", row))
    ranks, here = (quantity(table.value(name, row), "") for name in ("ranks", "local_ranks"))
    waiting = table.value("ranks_pending", row) or 0
    if waiting:
        return f"NCCL init not complete after {took}: {waiting:.0f} of {here} ranks here, of {ranks} in all"
    by = nccl_table.TABLE.metric("init_by").words.get(int(table.value("init_by", row) or 0), "?")
    return (f"NCCL init took {took} (by {by}): rank {quantity(table.value('slowest_rank', row), '')}, the longest of "
            f"{here} here, of {ranks} in all")


def _nccl_transport(view: FleetView, row: int) -> str:
    table = view["nccl"]
    attrs = table.attrs[row]
    sockets, missing, network = (
        table.value(name, row) or 0 for name in ("socket_channels", "gdr_missing", "network_channels"))
    said = (f"NCCL uses sockets where RDMA is meant: {sockets:.0f} of {network:.0f} network channels" if sockets else
            f"NCCL without GPUDirect RDMA: {missing:.0f} of {network:.0f} network channels")
    settings = [one for one in nccl_table.texts(attrs, "settings")
                if one.startswith(("NCCL_IB_DISABLE=", "NCCL_NET=", "NCCL_NET_GDR_LEVEL="))]
    return f"{said}; set: {', '.join(settings)}" if settings else said


def _unreachable(view: FleetView, row: int) -> str:
    state = view["node"].value("link_state", row)
    words = LinkState(int(state)).words if state is not None else "unreachable"
    reason = view.link_reasons[row]
    return (f"{words}: {reason}" if reason else words) + power_words.told(view, row, view.at)


def _silent(view: FleetView, row: int) -> str:
    age = view["node"].value("frame_age_seconds", row)
    return f"no frames for {duration(age)}, though the link is up"


def _group(what: str) -> Callable[[FleetView, int], str]:
    def text(view: FleetView, row: int) -> str:
        table = view["group"]
        said = table.attrs[row].get("said")
        return f"{table.keys[row]} {what}{f': {said}' if said else ''}"

    return text


def _stale(view: FleetView, row: int) -> str:
    table = view["group"]
    age, interval = table.value("group_age_seconds", row), table.value("interval_seconds", row)
    return f"{table.keys[row]} is stale: no reading for {duration(age)}, every {duration(interval)} expected"


def _clock(view: FleetView, row: int) -> str:
    offset = view["node"].value("clock_offset_seconds", row) or 0.0
    return f"clock is {duration(abs(offset))} {'ahead' if offset > 0 else 'behind'}"


def _increase(rule: Rule, table: TableView, row: int, value: float) -> str:
    unit = table.spec.metric(rule.metric).unit
    return f"{quantity(value, unit)} more in {duration(rule.window_seconds)}"


def _peers(rule: Rule, table: TableView, row: int, value: float) -> str:
    unit = table.spec.metric(rule.metric).unit
    whose = "its model's" if rule.peers == "model" else f"its {rule.peers}'s"
    grown = f" (growth in {duration(rule.window_seconds)})" if rule.window_seconds else ""
    if rule.compare == "ratio":
        return f"{value:.3g} times {whose} median{grown}"
    return f"{quantity(abs(value), unit)} {'above' if value > 0 else 'below'} {whose} median{grown}"


def _absence(rule: Rule, table: TableView, row: int, value: float) -> str:
    gone = [name for name in (rule.metric, *rule.also) if table.value(name, row) is None]
    said = ", ".join(f"{name} ({table.reason(name, row)})" for name in gone)
    return f"no {said or rule.metric} for {duration(value)}, though it was read before"


def _trend(rule: Rule, table: TableView, row: int, value: float) -> str:
    unit = table.spec.metric(rule.metric).unit
    now, reach = quantity(table.value(rule.metric, row), unit), quantity(rule.reach, unit)
    return f"{now} now, {reach} in {duration(value)} if it goes on like this" if value else f"{now}, {reach} is reached"


_BY_KIND: dict[str, Callable[[Rule, TableView, int, float], str]] = {
    "increase": _increase, "peers": _peers, "absence": _absence, "trend": _trend,
}


def _disk_full(view: FleetView, row: int) -> str:
    table = view["disk"]
    space, inodes = table.value("used_ratio", row), table.value("inodes_used_ratio", row)
    if inodes is not None and (space is None or inodes > space):
        return f"{table.labels[row]}: {quantity(inodes, 'ratio')} of the inodes used"
    left = quantity(table.value("available_bytes", row), "B")
    return f"{table.labels[row]}: {quantity(space, 'ratio')} used, {left} free"


_SPECIAL: dict[str, Callable[[FleetView, int], str]] = {
    **device_messages.LINES,
    **traffic_messages.LINES,
    "disk_full": _disk_full,
    "gpu_monitors": _gpu_monitors,
    "nccl_init": _nccl_init,
    "nccl_transport": _nccl_transport,
    "dns_slow": _dns_slow,
    "dns_fails": _dns_fails,
    "node_unreachable": _unreachable,
    "node_stale": _silent,
    "node_clock": _clock,
    "probe_hung": _group("hung"),
    "group_failed": _group("cannot be read"),
    "group_stale": _stale,
}
