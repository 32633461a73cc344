"""What an alert says: one line with the value, the limit, and where to look. Facts of the reading only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from clustertop.hosts import fold
from clustertop.model import LinkState
from clustertop.places import DEVICE_PLURAL, DEVICE_WORD
from clustertop.quantity import duration, quantity, scaled
from clustertop.rules import power_words, traffic_messages
from clustertop.signals import gpu, kernel_log, nccl_table, rdma, screen, xid
from clustertop.signals.rdma_catalogue import NARROW
from clustertop.signals.rdma_counters import COUNTERS, spelling
from clustertop.signals.units import speed_of_generation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from clustertop.model import Alert
    from clustertop.rules.gather import Wanted
    from clustertop.rules.spec import Rule
    from clustertop.rules.verdicts import Verdicts
    from clustertop.signals.rdma_counters import Counter as PortCounter
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


def members(name: str, view: FleetView, row: int) -> tuple[str, ...]:
    """Labels of the things that an alert on *row* stands for, beside itself."""
    if name == "rdma_all_ports_down":
        ports = view["port"]
        return tuple(ports.labels[port] for port in ports.rows_of(row) if ports.col("down")[port] == 1)
    if name == "gpu_persistence":
        return _awake_only_with_us(view, row)[1:]
    if name != "pcie_width":
        return ()
    table = view["pcie"]
    return tuple(table.labels[other] for other in _below(table, row) if other != row)


def _below(table: TableView, hop: int) -> list[int]:
    """Endpoints whose narrowest hop is *hop*."""
    narrow = table.col("narrow_hop_row") == hop
    short = table.col("path_width_lanes") < table.col("width_expected_lanes")
    return np.flatnonzero(narrow & short).tolist()


def _pcie_width(view: FleetView, row: int) -> str:
    table = view["pcie"]
    below = _below(table, row)
    first = row if row in below or not below else below[0]
    width, expected = table.value("path_width_lanes", first), table.value("width_expected_lanes", first)
    text = f"{table.labels[first]} is {quantity(width, 'lanes')}, expected {quantity(expected, 'lanes')}"
    hop = table.keys[row]
    text += f", at hop {hop.removeprefix('0000:')}"
    if first != row:
        text += " above it"
    lost = table.value("lost_bytes_per_second", first)
    if lost:
        text += f": {scaled(lost, 'B/s')} lost each way"
    elif lost is None:
        text += ": lost bandwidth unknown"
    if len(below) > 1:
        text += f" (and {len(below) - 1} more below that hop)"
    return text + power_words.told(view, int(table.node[row]), view.at)


def _pcie_speed(view: FleetView, row: int) -> str:
    table = view["pcie"]
    now, missing = table.value("speed_gts", row), table.value("speed_missing_gts", row)
    possible = None if now is None or missing is None else now + missing
    return f"link runs at {quantity(now, 'GT/s')}, it and its slot can do {quantity(possible, 'GT/s')}"


def _kernel_message(view: FleetView, row: int) -> str:
    table = view["pcie"]
    found = [one for name in ("kernel_messages", "kernel_messages_older")
             for one in kernel_log.listed(table.col(name)[row])]
    if not found:
        return "the kernel log speaks of it"
    gravest = max(found, key=lambda one: one.level)
    said = f"kernel log: {gravest.words}" + (f" ({gravest.fault})" if gravest.fault != "unknown" else "")
    said += f": {gravest.todo}" if gravest.todo else ""
    others = len({one.words for one in found if one.level > 0}) - 1
    return said + (f"; and {others} more" if others > 0 else "")


def _pcie_generation(view: FleetView, row: int) -> str:
    table = view["gpu"]
    now = table.value("pcie_generation", row)
    ceiling = (now or 0) + (table.value("generation_missing", row) or 0)
    return (f"PCIe Gen{now or 0:.0f} ({speed_of_generation(now or 0):g} GT/s) under load, "
            f"ceiling Gen{ceiling:.0f} ({speed_of_generation(ceiling):g} GT/s)")


def _gpu_missing(view: FleetView, row: int) -> str:
    table = view["gpu"]
    state = table.value("presence", row)
    where = table.attrs[row].get("pci") or "bus address unknown"
    if state == gpu.MISSING:
        return f"MISSING at {where}: no longer listed, {table.keys[row]}"
    why = table.reason("temperature_celsius", row) or table.reason("utilization_ratio", row)
    code = table.value("xid_worst", row)
    said = f", {xid.words(code)}" if code else ""
    return f"LOST at {where}: {why or 'no answer'}{said}, {table.keys[row]}"


def _gpu_temperature(view: FleetView, row: int) -> str:
    table = view["gpu"]
    if table.value("temperature_slowdown_celsius", row) is None:
        return (f"{quantity(table.value('temperature_celsius', row), '°C')}, "
                f"{quantity(table.value('temperature_margin_celsius', row), '°C')} from its own limit")
    return (f"{quantity(table.value('temperature_celsius', row), '°C')}, slowdown at "
            f"{quantity(table.value('temperature_slowdown_celsius', row), '°C')}")


def _gpu_memory_temperature(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"memory {quantity(table.value('memory_temperature_celsius', row), '°C')}, its limit "
            f"{quantity(table.value('memory_temperature_max_celsius', row), '°C')}")


def _gpu_slowdown(view: FleetView, row: int) -> str:
    mask = view["gpu"].value("clocks_event_reasons", row)
    return "slowed down: " + ", ".join(gpu.reason_words(mask or 0))


def _gpu_power_brake(view: FleetView, row: int) -> str:
    table = view["gpu"]
    text = f"braked by its supply: {quantity(table.value('power_watts', row), 'W')}"
    rows = power_words.feeds_of(view, int(table.node[row]))
    # Here the feeds are always told: it is they that may have asked for it.
    return text + "".join(f"; {power_words.did(view, one, view.at, 'before')}" for one in rows[:2])


def _gpu_utilization(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"utilisation {quantity(table.value('utilization_ratio', row), 'ratio')} with memory in use, "
            f"{quantity(table.value('power_watts', row), 'W')}")


def _gpu_straggler(view: FleetView, row: int) -> str:
    table = view["gpu"]
    util, under = table.value("utilization_ratio", row), table.value("utilization_below_peers_ratio", row)
    return f"utilisation {quantity(util, 'ratio')}, {(under or 0) * 100:.0f} points under the median of its node"


def _gpu_xid(view: FleetView, row: int) -> str:
    table = view["gpu"]
    code, last, count = (table.value(name, row) for name in ("xid_worst", "xid_last", "xids_total"))
    fault = xid.look_up(code or 0)
    text = xid.words(code or 0) + (f": {fault.todo}" if fault.todo else "")
    if last is not None and code is not None and last != code:
        text += f"; last was {xid.words(last)}"
    return text + (f"; {count:.0f} in all" if count is not None and count > 1 else "")


def _nvlink_down(view: FleetView, row: int) -> str:
    table = view["gpu"]
    names = ("nvlink_links", "nvlink_links_up", "nvlink_links_missing")
    known, up, missing = (table.value(name, row) for name in names)
    return f"{quantity(up, '')} of {quantity(known, '')} NVLinks up, {quantity(missing, '')} fewer than its neighbours"


def _nvlink_recoveries(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"NVLink recovers: {quantity(table.value('nvlink_recoveries_per_second', row), '/s')}, "
            f"{quantity(table.value('nvlink_recoveries_total', row), '')} in all")


def _gpu_stalled(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"busy but stalled: {quantity(table.value('utilization_ratio', row), 'ratio')} utilisation at "
            f"{quantity(table.value('power_watts', row), 'W')}, "
            f"{quantity(table.value('power_of_busy_peers_ratio', row), 'ratio')} of what its busy neighbours draw")


def _awake_only_with_us(view: FleetView, row: int) -> tuple[str, ...]:
    """Labels of the GPUs of a row's node that are without persistence mode."""
    table = view["gpu"]
    return tuple(table.labels[other] for other in table.rows_of(int(table.node[row])).tolist()
                 if table.value("persistence_mode", other) == 0)


def _gpu_persistence(view: FleetView, row: int) -> str:
    group = view["group"].row_of(int(view["gpu"].node[row]), "gpu")
    cost = None if group is None else view["group"].value("reading_seconds", group)
    off = _awake_only_with_us(view, row)
    # The line stands at the node's first GPU; where that is none of them it says which are.
    which = "" if view["gpu"].labels[row] in off else f" ({', '.join(off)})"
    return (f"persistence mode off on {len(off)} GPU{'s' if len(off) != 1 else ''}{which}; "
            f"the last reading took {quantity(cost, 's')}")


def _gpu_bar1(view: FleetView, row: int) -> str:
    table = view["gpu"]
    return (f"BAR1 {quantity(table.value('bar1_total_bytes', row), 'B')}, framebuffer "
            f"{quantity(table.value('memory_total_bytes', row), 'B')}: Resizable BAR is off")


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


def _port_counters(view: FleetView, row: int, wanted: Callable[[PortCounter], bool]) -> str:
    """The counters that are not 0, as the port's driver spells them."""
    table = view["port"]
    driver = table.attrs[row].get("driver")
    said = ", ".join(
        f"{spelling(counter.column, driver)} {value:.0f}"
        for counter in COUNTERS if wanted(counter) and (value := table.value(counter.column, row) or 0) > 0)
    return f" ({said} since boot)" if said else ""


def _hard_errors(view: FleetView, row: int) -> str:
    table = view["port"]
    minute, total = table.value("hard_errors_last_minute", row), table.value("hard_errors_total", row)
    return (f"hard errors: {quantity(minute, '')} in the last minute, {quantity(total, '')} since seen"
            + _port_counters(view, row, lambda counter: counter.cls == "hard"))


def _soft_errors(pace: str, metric: str, what: str) -> Callable[[FleetView, int], str]:
    def text(view: FleetView, row: int) -> str:
        value = view["port"].value(metric, row)
        return (what.format("?" if value is None else f"{value:.3g}")
                + _port_counters(view, row, lambda counter: counter.pace == pace))

    return text


def _port_down(view: FleetView, row: int) -> str:
    table = view["port"]
    state = table.value("link", row)
    return f"port {rdma.LINK_WORDS.get(int(state), '?')}" if state is not None else "port down"


def _port_flap(view: FleetView, row: int) -> str:
    downs = view["port"].value("downs_last_ten_minutes", row) or 0
    times = "once" if downs <= 1 else f"{downs:.0f} times"
    return f"port flaps: up again, went down {times} in the last ten minutes"


def _all_ports_down(view: FleetView, row: int) -> str:
    return f"all {view['node'].value('ports_expected', row) or 0:.0f} RDMA ports of the node are down"


def _link_rate(view: FleetView, row: int) -> str:
    table = view["port"]
    code = table.value("rate_text", row)
    said = rdma.RATE_TEXTS.get(int(code), "?") if code is not None else "?"
    expected = table.value("rate_expected_bits_per_second", row)
    return f"runs at {said}, expected {quantity(expected, 'b/s')}"


def _saturated(view: FleetView, row: int) -> str:
    table = view["port"]
    names = [metric.name for metric in table.spec.metrics
             if (metric.bits and (table.value(metric.name, row) or 0) >= metric.saturation)
             or (metric.name in NARROW and table.value(metric.name, row) == (2.0**32 - 1) * metric.scale)]
    return "saturated - true value unknown: " + (", ".join(names) or "a counter")


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
    **traffic_messages.LINES,
    "pcie_width": _pcie_width,
    "pcie_kernel_message": _kernel_message,
    "pcie_generation": _pcie_generation,
    "pcie_speed": _pcie_speed,
    "gpu_missing": _gpu_missing,
    "gpu_temperature": _gpu_temperature,
    "gpu_memory_temperature": _gpu_memory_temperature,
    "gpu_slowdown": _gpu_slowdown,
    "gpu_power_brake": _gpu_power_brake,
    "gpu_utilization": _gpu_utilization,
    "gpu_straggler": _gpu_straggler,
    "gpu_xid": _gpu_xid,
    "gpu_nvlink_down": _nvlink_down,
    "gpu_nvlink_recoveries": _nvlink_recoveries,
    "gpu_stalled": _gpu_stalled,
    "gpu_persistence": _gpu_persistence,
    "disk_full": _disk_full,
    "gpu_bar1": _gpu_bar1,
    "gpu_monitors": _gpu_monitors,
    "nccl_init": _nccl_init,
    "nccl_transport": _nccl_transport,
    "dns_slow": _dns_slow,
    "dns_fails": _dns_fails,
    "rdma_hard_errors": _hard_errors,
    "rdma_symbol_errors": _soft_errors("hour", "symbol_errors_last_hour", "symbol errors: {} in the last hour"),
    "rdma_link_recovery": _soft_errors(
        "minute", "link_recoveries_last_minute", "link recoveries: {} in the last minute"),
    "rdma_soft_errors": _soft_errors("second", "transport_errors_per_second", "soft errors: {} per second"),
    "rdma_link_rate": _link_rate,
    "rdma_port_flap": _port_flap,
    "rdma_port_down": _port_down,
    "rdma_all_ports_down": _all_ports_down,
    "rdma_saturated": _saturated,
    "node_unreachable": _unreachable,
    "node_stale": _silent,
    "node_clock": _clock,
    "probe_hung": _group("hung"),
    "group_failed": _group("cannot be read"),
    "group_stale": _stale,
}

