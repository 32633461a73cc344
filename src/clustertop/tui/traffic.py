"""Traffic between racks and leaves in words and bars: scopes, cells of the matrix, leaves, a node's own peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.hosts import fold
from clustertop.model import Severity
from clustertop.quantity import quantity
from clustertop.store.shares import NARROWER
from clustertop.store.view import STALE
from clustertop.tui.cells import explained, pairs, severity, title, value, wrap
from clustertop.tui.picture import OK, RANK, SILENT, UNKNOWN
from clustertop.tui.widgets.matrix import natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from clustertop.store.traffic_picture import LeafPicture, Uplink
    from clustertop.store.view import TableView
    from clustertop.tui.glyphs import Glyphs
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Span

UNJUDGED, ELSEWHERE, ALONE = 8, 9, 10
"""Beside the states of a node: the share is known but may not be judged; it is judged by a narrower scope; it is one
node, which has nobody to send to in another rack."""
_STANDS = {UNJUDGED: 1.5, ELSEWHERE: -1.0, ALONE: -2.0}
WARN_SHARE = 0.3
"""The field report's limit; the rule in force may have another, and its alert says which."""
WARN_LOAD, CRIT_LOAD = 0.8, 0.95
MOST_TALKERS, MOST_STRANGERS, MOST_PEERS, MOST_NODES = 20, 8, 12, 64
_GUESSED = {"nccl": "est ", "order": "pred "}
_SHARES = (
    ("socket_cross_rack_ratio", "cross-rack by sockets"),
    ("socket_spine_ratio", "through spine by sockets"),
    ("uplink_spine_ratio", "through spine by uplinks"),
    ("fabric_spine_ratio", "through spine by fabric"),
    ("nccl_cross_rack_ratio", "cross-rack by NCCL log (estimated)"),
    ("predicted_cross_rack_ratio", "cross-rack by order (predicted)"),
)


def scope_rows(picture: Picture) -> list[int]:
    """Rows of the fleet, the jobs and the groups in table ``traffic``; the fleet first, then the worst."""
    table, states = picture.view["traffic"], scope_states(picture)
    rows = [row for key, row in picture.view.traffic.rows.items()
            if not key.startswith("leaf/") and row < len(table) and table.present[row]]
    share = np.nan_to_num(table.col("share_ratio"))

    def worth(row: int) -> tuple[bool, float, float, tuple[tuple[int, int, str], ...]]:
        state = int(states[row])
        rank = _STANDS[state] if state in _STANDS else float(RANK[state])
        return table.keys[row] != "fleet", -rank, -float(share[row]), natural(table.keys[row])

    return sorted(rows, key=worth)


def leaf_rows(picture: Picture) -> list[int]:
    """Rows of the leaves in table ``traffic``: those in trouble first, then the fullest."""
    table, found = picture.view["traffic"], picture.severity("traffic")
    rows = [row for key, row in picture.view.traffic.rows.items()
            if key.startswith("leaf/") and row < len(table) and table.present[row]]
    load = table.col("uplink_load_ratio")
    return sorted(rows, key=lambda row: (
        -int(found[row]), -float(np.nan_to_num(load[row], nan=-1.0)), natural(table.keys[row])))


def scope_states(picture: Picture) -> NDArray[np.int8]:
    """[rows of table ``traffic``] severity; where nothing is judged UNJUDGED, ELSEWHERE or UNKNOWN."""
    table = picture.view["traffic"]
    out = picture.severity("traffic").astype(np.int8)
    calm = out == OK
    leaf = np.array([key.startswith("leaf/") for key in table.keys], np.bool_)
    judged = ~np.isnan(np.where(leaf, table.col("uplink_load_ratio"), table.col("judged_ratio")))
    share = ~np.isnan(table.col("share_ratio"))
    out[calm & ~judged] = np.where(share, UNJUDGED, UNKNOWN)[calm & ~judged]
    for row in np.flatnonzero(out == UNJUDGED).tolist():
        if table.reason("judged_ratio", row) == NARROWER:
            out[row] = ELSEWHERE
    for row in np.flatnonzero(out == UNKNOWN).tolist():
        if table.attrs[row].get("kind") == "job" and table.attrs[row].get("nodes") == 1:
            out[row] = ALONE
    out[calm & (table.level == STALE) & np.isfinite(table.age)] = SILENT
    return out


def state_words(glyphs: Glyphs, state: int) -> Span:
    """Glyph and word of a scope's state."""
    if state in {ELSEWHERE, ALONE}:
        return ("  by job" if state == ELSEWHERE else "  one node", "muted")
    return (f"{glyphs.unknown} unjudged", "unknown") if state == UNJUDGED else severity(glyphs, state)


def name_of(table: TableView, row: int) -> str:
    """``fleet``, ``job 4711``, ``group train``; of a leaf its name alone."""
    kind, _, name = table.keys[row].partition("/")
    return name if kind == "leaf" else f"{kind} {name}".strip()


def share_words(table: TableView, row: int) -> Span:
    """The share, with what is estimated or predicted marked."""
    ratio = table.value("share_ratio", row)
    if ratio is None:
        return value(table, "share_ratio", row)
    style = "stale" if table.level[row] != 0 else "warning" if ratio > WARN_SHARE else "text"
    return (_GUESSED.get(str(table.attrs[row].get("meter") or ""), "") + quantity(ratio, "ratio"), style)


def meter_words(table: TableView, row: int) -> Span:
    """``cross-rack, sockets``; or why there is no share."""
    attrs = table.attrs[row]
    if table.value("share_ratio", row) is None:
        return (str(attrs.get("why") or table.reason("share_ratio", row) or "?"), "unknown")
    meter = str(attrs.get("meter") or "?")
    doubt = meter in _list(attrs.get("unreliable"))
    return (f"{attrs.get('definition') or '?'}, {meter}{' (unreliable)' if doubt else ''}",
            "warning" if doubt else "text")


def read_words(table: TableView, row: int) -> Span:
    """``28/32``: nodes of the scope whose sockets are read."""
    attrs = table.attrs[row]
    of, read = attrs.get("nodes"), attrs.get("nodes_read")
    if not isinstance(of, int) or not isinstance(read, int):
        return ("?", "unknown")
    return (f"{read}/{of}", "text" if read == of else "unknown" if not read else "warning")


def small(seconds: float | None) -> str:
    """A round trip: ``62 us``, ``3.8 ms``."""
    if seconds is None or seconds != seconds:
        return "-"
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.0995 else quantity(seconds, "s")


def part(table: TableView, name: str, row: int) -> Span:
    """A part of a whole; what is less than a thousandth, but not nothing, says so."""
    ratio = table.value(name, row)
    return ("<0.1 %", "text") if ratio is not None and 0 < ratio < 5e-4 else value(table, name, row)


def trip(table: TableView, name: str, row: int) -> Span:
    """A round trip or its jitter."""
    seconds = table.value(name, row)
    if seconds is None:
        return value(table, name, row)
    return (small(seconds), "warning" if name.startswith("jitter") and seconds > 3e-4 else "text")


def trend(picture: Picture, row: int, width: int, glyphs: Glyphs) -> str:
    """The share over the last minutes, from nothing to the limit and a little more, or to its own most."""
    values = picture.view.history.series("traffic", "share_ratio", row).tolist()
    most = max((one for one in values if one == one), default=0.0)
    return glyphs.spark(values, width, 0.0, max(most, 1.33 * WARN_SHARE))


def bar(glyphs: Glyphs, ratio: float | None, width: int) -> str:
    """An uplink's load in *width* cells; ``|`` at 80 %."""
    full = "#" if glyphs.ascii else "\u28ff"
    known = ratio is not None and ratio == ratio
    filled = min(round(ratio * width), width) if known and ratio is not None else 0
    cells = [full] * filled + [" "] * (width - filled)
    cells[min(int(WARN_LOAD * width), width - 1)] = "|"
    return "".join(cells)


def load_style(ratio: float | None) -> str:
    """The style of an uplink's load."""
    if ratio is None or ratio != ratio:
        return "unknown"
    return "critical" if ratio > CRIT_LOAD else "warning" if ratio > WARN_LOAD else "ok"


def leaf_nodes(picture: Picture, name: str) -> list[int]:
    """Numbers of the nodes that hang on a leaf."""
    return [number for number, node in enumerate(picture.view.nodes) if name == node.leaf or name in node.leaves]


def _list(found: object) -> list[str]:
    return [str(one) for one in found] if isinstance(found, list) else []


# ---- the head ------------------------------------------------------------------------------------------------------


def head_lines(picture: Picture, wide: int) -> list[Line]:
    """How many racks and nodes are seen, which meters say something, and what to configure for the rest."""
    traffic = picture.view.traffic
    read, of = int(traffic.rack_read.sum()), len(picture.view.nodes)
    racks = f"{len(traffic.racks)} racks" if traffic.racks else "no rack map"
    placed = int(traffic.rack_nodes.sum())
    out: list[Span] = [(f" {racks}", "title" if traffic.racks else "unknown")]
    if traffic.racks and placed < of:
        out.append((f", {of - placed} nodes in none", "warning"))
    for one in traffic.meters:
        known = bool(one.read)
        text = f"{one.read}/{one.of}" if one.of else "-"
        out += [(f"  {one.name} ", "muted"),
                (text, "text" if known and one.read == one.of else "warning" if known else "unknown")]
    loose = picture.view["traffic"].row_of(len(picture.view.owners) - 1, "fleet")
    if loose is not None and read:
        moved = picture.view["traffic"].value("bytes_per_second", loose)
        lost = picture.view["traffic"].value("unplaced_ratio", loose)
        if moved is not None and wide >= 100:
            out.append((f"   {quantity(moved, 'B/s')} by TCP", "text"))
        if lost is not None and wide >= 100:
            words = part(picture.view["traffic"], "unplaced_ratio", loose)[0]
            out.append((f", {words} unplaced", "text" if lost < 0.1 else "warning"))
    lines: list[Line] = [tuple(out)]
    # Without racks the first stands where the matrix would.
    shown = traffic.sentences if traffic.racks else traffic.sentences[1:]
    for sentence in shown:
        lines += [((f" {line}", "unknown"),) for line in wrap(sentence, max(wide - 2, 20))]
    return lines


# ---- one thing, in full --------------------------------------------------------------------------------------------


def scope_lines(picture: Picture, row: int, glyphs: Glyphs, wide: int) -> list[Line]:
    """Everything about the fleet, a job or a group: each meter's figure, talkers, order of ranks."""
    table = picture.view["traffic"]
    attrs = table.attrs[row]
    state = state_words(glyphs, int(scope_states(picture)[row]))
    out: list[Line] = [((f" {name_of(table, row)}  ", "title"), (state[0].strip(), state[1]), ("  ", "text"),
                        share_words(table, row), ("  ", "text"), meter_words(table, row),
                        (f"  {read_words(table, row)[0]} nodes' sockets read", "muted"))]
    out += pairs([(label, explained(table, name, row)) for name, label in _SHARES], wide)
    judged = explained(table, "judged_ratio", row)
    out += pairs([
        ("judged", judged), ("meters differ by", explained(table, "disagreement_ratio", row)),
        ("bytes", explained(table, "bytes_per_second", row)), ("unplaced", part(table, "unplaced_ratio", row)),
        ("rtt within racks", trip(table, "rtt_within_seconds", row)),
        ("across", trip(table, "rtt_across_seconds", row)),
        ("jitter within", trip(table, "jitter_within_seconds", row)),
        ("across", trip(table, "jitter_across_seconds", row)),
    ], wide)
    doubt = _list(attrs.get("unreliable"))
    if doubt:
        out.append(((f"   not relied on: {', '.join(doubt)}", "warning"),))
    for note in _list(attrs.get("notes")):
        out += [((f"   {line}", "info"),) for line in wrap(note, max(wide - 4, 20))]
    better = _list(attrs.get("better_order"))
    if better:
        words = f"a better order of its ranks (now by {attrs.get('order_by')}): {attrs.get('better')}"
        out.append(((f"   {words}", "info"),))
        out += [((f"     {line}", "text"),) for line in wrap(" ".join(better), max(wide - 6, 20))]
    elif table.value("predicted_cross_rack_ratio", row) is not None:
        out.append(((f"   order of ranks by {attrs.get('order_by')}: none crosses less", "muted"),))
    members = _members(picture, table.keys[row])
    out += talker_lines(picture, members, glyphs)
    if members is None:
        out += stranger_lines(picture, glyphs, wide)
        out += meter_lines(picture, glyphs, wide)
    return out


def _members(picture: Picture, key: str) -> frozenset[int] | None:
    """The nodes of a job or a group; None: of the fleet, all."""
    kind, _, name = key.partition("/")
    if kind == "job" and name in picture.view.jobs.names:
        return frozenset(picture.view.jobs.members[picture.view.jobs.names.index(name)].tolist())
    if kind == "group":
        return frozenset(number for number, node in enumerate(picture.view.nodes) if name in node.groups)
    return None if kind == "fleet" else frozenset()


def talker_lines(
    picture: Picture, members: frozenset[int] | None, glyphs: Glyphs, racks: tuple[str, str] | None = None
) -> list[Line]:
    """Who moves most between racks: of all, of some nodes, or from one rack to another."""
    traffic, names = picture.view.traffic, picture.atlas.names
    shown = [one for one in traffic.talkers
             if (members is None or (one.source in members and one.target in members))
             and (racks is None or (one.source_rack, one.target_rack) == racks)]
    if not shown:
        return []
    out: list[Line] = [(), title(" Top talkers across racks", f"of the {len(traffic.talkers)} of most bytes")]
    for one in shown[:MOST_TALKERS]:
        jitter = one.jitter_seconds
        out.append((
            (f"   {glyphs.fit(names[one.source], 14)} {glyphs.fit(one.source_rack, 8)} > ", "text"),
            (f"{glyphs.fit(names[one.target], 14)} {glyphs.fit(one.target_rack, 8)} ", "text"),
            (f"{quantity(one.bytes_per_second, 'B/s'):>10}", "title"),
            (f"  rtt {small(one.rtt_seconds):>7}", "muted"),
            (f"  jitter {small(jitter):>7}", "warning" if jitter is not None and jitter > 3e-4 else "muted")))
    if len(shown) > MOST_TALKERS:
        out.append(((f"   and {len(shown) - MOST_TALKERS} more", "muted"),))
    return out


def stranger_lines(picture: Picture, glyphs: Glyphs, wide: int) -> list[Line]:
    """What is in no rack and moves most."""
    strangers = picture.view.traffic.strangers
    if not strangers:
        return []
    return [(), title(" In no rack", "addresses and nodes, most bytes first"),
            *pairs([(glyphs.plain(name), (quantity(rate, "B/s"), "text")) for name, rate in strangers[:MOST_STRANGERS]],
                   wide)]


def meter_lines(picture: Picture, glyphs: Glyphs, wide: int) -> list[Line]:
    """The meters: what each sees, of how much, and why it says nothing."""
    out: list[Line] = [(), title(" Meters")]
    for one in picture.view.traffic.meters:
        known = bool(one.read)
        text = f"{one.coverage}  {one.label}" if known else f"{one.why or 'nothing'}  ({one.label})"
        out.append(((f"   {one.name:<8} ", "text"),
                    (glyphs.fit(text, max(wide - 13, 20)), "muted" if known else "unknown")))
    return out


def cell_lines(picture: Picture, row: int | None, column: int | None, glyphs: Glyphs, wide: int) -> list[Line]:
    """One cell of the matrix: both directions, how much of each rack is read, who talks. *column* None: in no rack."""
    traffic = picture.view.traffic
    if row is None or row >= len(traffic.racks):
        return []
    here = traffic.racks[row]
    read = f"{int(traffic.rack_read[row])}/{int(traffic.rack_nodes[row])} nodes of {here} read"
    if column is None:
        return [((f" {here} and what is in no rack  ", "title"), _rate(traffic.unplaced[row]),
                 (f"  both ways, {read}", "muted")), *stranger_lines(picture, glyphs, wide)]
    there = traffic.racks[column]
    if row == column:
        return [((f" within {here}  ", "title"), _rate(traffic.matrix[row, row]), (f"  {read}", "muted"))]
    other = f"{int(traffic.rack_read[column])}/{int(traffic.rack_nodes[column])} of {there}"
    return [((f" {here} > {there}  ", "title"), _rate(traffic.matrix[row, column]),
             (f"  {there} > {here} ", "muted"), _rate(traffic.matrix[column, row]), (f"  {read}, {other}", "muted")),
            *talker_lines(picture, None, glyphs, (here, there))]


def _rate(rate: float) -> Span:
    return ("? not read", "unknown") if rate != rate else (quantity(float(rate), "B/s"), "text")


def leaf_lines(picture: Picture, row: int, glyphs: Glyphs, wide: int) -> list[Line]:
    """One leaf: its share, each of its uplinks, its nodes."""
    table = picture.view["traffic"]
    name = name_of(table, row)
    leaf = picture.view.traffic.leaf(name)
    nodes = [picture.view.nodes[number].name for number in leaf_nodes(picture, name)]
    hung = f"{len(nodes)} nodes" if nodes else "no node hangs here by the map"
    if leaf is None:
        return [((f" leaf {name}  ", "title"), (hung, "muted"))]
    by = {"uplinks": "by its own counters", "fabric": "by a fabric query"}.get(leaf.meter, leaf.meter)
    out: list[Line] = [((f" leaf {name}  ", "title"), (f"{hung}  {by}", "muted"))]
    if leaf.why:
        out.append(((f"   ? {leaf.why}", "unknown"),))
    out += pairs([
        ("through spine", value(table, "share_ratio", row)),
        ("from its hosts", value(table, "host_in_bytes_per_second", row)),
        ("to the spines", value(table, "uplink_out_bytes_per_second", row)),
        ("uneven", value(table, "uplink_imbalance_ratio", row)),
        ("uplinks drop", explained(table, "uplink_discards_per_second", row)),
        ("pause frames", explained(table, "uplink_pause_frames_per_second", row)),
    ], wide)
    if leaf.down:
        out.append(((f"   down: {', '.join(leaf.down)}", "critical"),))
    if leaf.dark:
        out.append(((f"   down, and not seen up since the console began: {fold(leaf.dark)}", "warning"),))
    out += [((f"   ? {one}", "unknown"),) for one in leaf.doubtful]
    if leaf.dropping:
        words = ", ".join(f"{port} ({who}) {_number(lost, '/s')}" if who else f"{port} {_number(lost, '/s')}"
                          for port, who, lost in leaf.dropping)
        out += [((f"   {line}", "warning"),) for line in wrap(f"host ports that drop: {words}", max(wide - 4, 20))]
    if leaf.unknown_ports:
        words = f"no rate, or a role that nobody knows: {fold(leaf.unknown_ports)}"
        out += [((f"   {line}", "warning"),) for line in wrap(words, max(wide - 4, 20))]
    out += [_uplink(one, glyphs, wide) for one in leaf.uplinks]
    if nodes:
        out += [((f"   {line}", "muted"),) for line in wrap("nodes " + fold(nodes), max(wide - 4, 20))]
    return out


def _uplink(one: Uplink, glyphs: Glyphs, wide: int) -> Line:
    width = 20 if wide >= 100 else 10
    state: Span = ("? ", "unknown") if one.up is None else ("up", "ok") if one.up else ("DOWN", "critical")
    load = "?" if one.load is None else quantity(one.load, "ratio")
    return (
        (f"   {glyphs.fit(one.name, 14)} ", "text"), (f"{state[0]:<5}", state[1]),
        (bar(glyphs, one.load, width), load_style(one.load)), (f" {load:>5}", load_style(one.load)),
        (f"{_number(one.out_bytes_per_second, 'B/s'):>11} out", "text"),
        (f"  drops {_number(one.discards_per_second, '/s'):>7}", "warning" if one.discards_per_second else "muted"),
        (f"  pause {_number(one.pause_frames_per_second, '/s'):>7}",
         "warning" if one.pause_frames_per_second else "muted"),
        (f"  {one.peer}", "muted"), (f"  by {one.role_by}" if one.role_by else "", "muted"))


def _number(amount: float | None, unit: str) -> str:
    return "?" if amount is None else quantity(amount, unit)


def leaf_words(leaf: LeafPicture) -> Line:
    """One leaf in a line, for the page of a node that hangs on it."""
    if leaf.why and not leaf.uplinks:
        return ((f"   leaf {leaf.name}  ", "text"), (f"? {leaf.why}", "unknown"))
    load = leaf.load
    out: list[Span] = [(f"   leaf {leaf.name}  ", "text"), ("busiest uplink ", "muted"),
                       (f"{leaf.busiest} {_number(load, 'ratio')}".strip(), load_style(load)),
                       ("  imbalance ", "muted"), (_number(leaf.imbalance, "ratio"), "text"),
                       ("  drops ", "muted"), (_number(leaf.discards, "/s"), "warning" if leaf.discards else "text"),
                       ("  pause ", "muted"), (_number(leaf.pause, "/s"), "warning" if leaf.pause else "text")]
    if leaf.down:
        out.append((f"  down: {', '.join(leaf.down)}", "critical"))
    return tuple(out)


# ---- a node's page -------------------------------------------------------------------------------------------------


def peer_place(picture: Picture, row: int) -> int | None:
    """The node behind the address in *row* of table ``peer``; None: it is none of ours, or not placed yet."""
    found = picture.view.traffic.peer_node
    if row >= len(found) or not 0 <= found[row] < len(picture.view.nodes):
        return None
    return int(found[row])


def node_lines(picture: Picture, node: int, glyphs: Glyphs, wide: int) -> list[Line]:
    """A node's traffic for its page: its leaves' uplinks and its peers by rate; nothing where no meter is set up."""
    traffic, info = picture.view.traffic, picture.view.nodes[node]
    leaves = [leaf for name in dict.fromkeys((*info.leaves, info.leaf)) if name and (leaf := traffic.leaf(name))]
    read = [one for one in leaves if one.uplinks or any(other.uplinks for other in traffic.leaves)]
    out = [leaf_words(one) for one in read]
    out += _peer_lines(picture, node, glyphs)
    return [title(" Traffic"), *out] if out else []


def _peer_lines(picture: Picture, node: int, glyphs: Glyphs) -> list[Line]:
    table = picture.view["peer"]
    rows = [row for row in table.rows_of(node).tolist() if table.present[row]]
    if not rows:
        group = picture.view["group"].row_of(node, "sockets")
        return [] if group is None else [(("   no TCP peer is told of", "muted"),)]
    sent, got = table.col("transmit_bytes_per_second"), table.col("receive_bytes_per_second")
    rows.sort(key=lambda row: -float(np.nansum((sent[row], got[row]))))
    head = f"   {'peer':<18}{'rack':<10}{'sent':>11}{'received':>11}{'rtt':>9}{'jitter':>9}{'sockets':>9}"
    out: list[Line] = [((head, "head"),)]
    mine = picture.view.nodes[node].rack
    for row in rows[:MOST_PEERS]:
        other = peer_place(picture, row)
        rack = picture.view.nodes[other].rack if other is not None else ""
        where: Span = ("unplaced", "unknown") if not rack else (rack, "text" if rack == mine else "accent")
        name = table.labels[row] if other is None else picture.atlas.names[other]
        spans: list[Span] = [(f"   {glyphs.fit(name, 17)} ", "text"), (glyphs.fit(where[0], 9) + " ", where[1])]
        for column, width in (("transmit_bytes_per_second", 11), ("receive_bytes_per_second", 11)):
            text, style = value(table, column, row)
            spans.append((f"{text:>{width}}", style))
        for column in ("rtt_seconds", "rtt_variation_seconds"):
            seconds = table.value(column, row)
            high = column != "rtt_seconds" and seconds is not None and seconds > 3e-4
            spans.append((f"{small(seconds):>9}", "warning" if high else "text" if seconds is not None else "muted"))
        spans.append((f"{value(table, 'sockets', row)[0]:>9}", "muted"))
        out.append(tuple(spans))
    if len(rows) > MOST_PEERS:
        out.append(((f"   and {len(rows) - MOST_PEERS} more", "muted"),))
    return out


def filtered(picture: Picture, rows: Sequence[int]) -> list[int]:
    """Of rows of table ``traffic``, those that the filter leaves: by their own words or those of one of their nodes."""
    if not picture.terms:
        return list(rows)
    table, out = picture.view["traffic"], []
    for row in rows:
        kind, _, name = table.keys[row].partition("/")
        nodes: Iterable[int] = leaf_nodes(picture, name) if kind == "leaf" else _members(picture, table.keys[row]) or ()
        if picture.matches_any(tuple(nodes), table.labels[row].lower()):
            out.append(row)
    return out


def worst(picture: Picture) -> tuple[int, int]:
    """How many rows of table ``traffic`` are critical, and warnings."""
    found = picture.severity("traffic")
    return int((found == Severity.CRITICAL).sum()), int((found == Severity.WARNING).sum())


