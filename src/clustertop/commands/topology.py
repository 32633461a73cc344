"""``clustertop topology [HOSTS…]``: the merged map of racks and leaves, with who says what."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clustertop.signals.traffic import Ring
    from clustertop.topology import Claim, Place, Topology

HELP = "where every node hangs: rack, leaves, rail and pod, and which source says so"
MAX_ORDER = 16 << 20
NO_MAP = (
    "no rack map, so what crosses racks is unknown. Write [racks] in the config (r1 = \"gpu[001-016]\"), or name a\n"
    "source in [topology]: csv, groups, slurm (with guess_racks = true), lldp, ibnetdiscover"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("hosts", metavar="HOSTS", nargs="*",
                        help="gpu[001-064],login1  @group; none: the config's, else every node that a source names")
    parser.add_argument("-c", "--config", metavar="FILE", help="another configuration file")
    parser.add_argument("--hosts-file", metavar="FILE", help="a file with one entry of HOSTS a line")
    parser.add_argument("--order", metavar="FILE",
                        help="a job's host file, or - for stdin: how often its ring leaves a rack (predicted)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.epilog = (
        "Exit status 0: every node has a rack; 1: some have none, sources differ or hold what cannot be used;\n"
        "3: no rack is known at all, or the config is bad. No node is asked."
    )


def run(args: argparse.Namespace) -> int:
    """Do what *args* say. Returns 0, 1 for gaps and contradictions, 3 without any rack or for a bad config."""
    from clustertop.commands.common import EXIT_OK, EXIT_UNKNOWN, EXIT_WARNING, refuse
    from clustertop.config import ConfigError, load
    from clustertop.inventory import resolve
    from clustertop.rules.spec import builtin
    from clustertop.topology_files import find

    rings: dict[str, tuple[Ring, Ring | None]] = {}
    try:
        loaded = load(args.config, known_rules=builtin())
        inventory = resolve(args.hosts, loaded, args.hosts_file)
        topology = find(inventory, loaded)
        if args.order:
            rings = _rings(_order(args.order), topology)
    except ConfigError as error:
        return refuse(error)
    if args.json:
        _print_json(topology, rings)
    else:
        for note in (*inventory.notes, *topology.notes):
            print(f"note: {note}", file=sys.stderr)
        _print(topology)
        _print_rings(rings)
    if not topology.racks:
        return EXIT_UNKNOWN
    gaps = topology.without("rack") or topology.contradictions or topology.refused
    return EXIT_WARNING if gaps else EXIT_OK


def _order(file: str) -> list[str]:
    """The nodes of a host file in its order. Raises ConfigError."""
    from pathlib import Path

    from clustertop.config import ConfigError
    from clustertop.files import read_bounded
    from clustertop.signals.traffic import read_hostfile

    try:
        if file == "-":
            text = sys.stdin.read(MAX_ORDER + 1)
            if len(text) > MAX_ORDER:
                raise ConfigError(f"is larger than {MAX_ORDER >> 20} MB", file="stdin")
        else:
            text = read_bounded(Path(file).expanduser(), MAX_ORDER).decode("utf-8-sig", "replace")
        nodes = read_hostfile(text)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from None
    except ValueError as error:
        raise ConfigError(str(error), file=file) from None
    if not nodes:
        raise ConfigError("names no host; write one a line, in the order of ranks", file=file)
    return nodes


def _rings(order: list[str], topology: Topology) -> dict[str, tuple[Ring, Ring | None]]:
    """The ring over *order* and a better one, by what it crosses."""
    from clustertop.signals.traffic import better_order, ring

    def spelt(domains: dict[str, str]) -> dict[str, str]:
        short = {node.lower().partition(".")[0]: value for node, value in domains.items()}
        return {node: domains.get(node) or short.get(node.lower().partition(".")[0], "") for node in order}

    leaves = {node: next(iter(hung)) for node, hung in topology.leaves.items() if len(hung) == 1}
    return {
        what: (ring(order, spelt(domains)), better_order(order, spelt(domains)))
        for what, domains in (("racks", topology.racks), ("leaves", leaves))
        if domains
    }


def _print_rings(rings: dict[str, tuple[Ring, Ring | None]]) -> None:
    from clustertop.hosts import fold

    for what, (now, better) in rings.items():
        if now.ratio is None:
            print(f"{now.label}: no hop of the ring has both ends in the map of {what}")
            continue
        print(f"{now.label}: {now.crossing:,} of {now.placed_hops:,} hops between {what} ({now.ratio * 100:.3g}%)")
        if now.unplaced:
            print(f"  not in the map of {what}: {fold(now.unplaced)}")
        if better is not None:
            print(f"  a better order has {better.crossing:,}: {','.join(better.order)}")


def _print_json(topology: Topology, rings: dict[str, tuple[Ring, Ring | None]]) -> None:
    import json

    def claim(one: Claim | None) -> object:
        if one is None:
            return None
        told: dict[str, object] = {"value": one.value, "sources": one.sources}
        if one.port:
            told["port"] = one.port
        if one.guessed:
            told["guessed"] = True
        return told

    print(json.dumps({
        "nodes": {
            place.node: {"rack": claim(place.rack), "leaves": [claim(one) for one in place.leaves],
                         "rail": claim(place.rail), "pod": claim(place.pod)}
            for place in topology.places.values()
        },
        "rails": topology.rails,
        "off_rail": [
            {"node": one.node, "port": one.port, "leaf": one.leaf, "rail": one.rail} for one in topology.off_rail
        ],
        "contradictions": [
            {"node": one.node, "about": one.kind, "used": one.used or None,
             "claims": [claim(each) for each in one.claims]}
            for one in topology.contradictions
        ],
        "unplaced": {"rack": topology.without("rack"), "leaf": topology.without("leaf")},
        "predicted_from_order": {
            what: {"hops": now.hops, "placed_hops": now.placed_hops, "crossing": now.crossing, "ratio": now.ratio,
                   "unplaced": now.unplaced,
                   "better": {"crossing": better.crossing, "order": better.order} if better else None}
            for what, (now, better) in rings.items()
        },
        "strangers": topology.strangers,
        "guessable_racks": topology.guessable,
        "sources": topology.sources,
        "notes": topology.notes,
        "problem": None if topology.racks else NO_MAP.replace("\n", " "),
    }, indent=1))  # fmt: skip


def _print(topology: Topology) -> None:
    rows = [("NODE", "RACK", "LEAF", "POD", "FROM"), *(_row(place) for place in topology.places.values())]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    if topology.places:
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)]
            print("  ".join([*cells, row[4]]))
        print()
    if topology.contradictions:
        print("sources differ:")
        for one in topology.contradictions:
            said = "; ".join(f"{claim.value} ({', '.join(claim.sources)})" for claim in one.claims)
            print(f"  {one.node}: {one.kind} is {said}: {one.used or 'unknown'}{' holds' if one.used else ''}")
    if topology.rails:
        print(f"rail-optimised: {len(topology.rails)} leaves each carry one port of their nodes, such as "
              f"{', '.join(f'{leaf} {port}' for leaf, port in list(topology.rails.items())[:3])}")  # fmt: skip
    for odd in topology.off_rail:
        print(f"  {odd.node}: {odd.port} is on {odd.leaf}, where others have {odd.rail}")
    _gaps(topology)
    known, total = len(topology.racks), len(topology.places)
    if not known:
        print(NO_MAP)
    else:
        print(f"{known:,} of {total:,} nodes have a rack, {len(topology.leaves):,} have a leaf; "
              f"{len(set(topology.racks.values())):,} racks")  # fmt: skip


def _gaps(topology: Topology) -> None:
    from clustertop.hosts import fold

    def show(what: str, nodes: Sequence[str]) -> None:
        if nodes:
            text = fold(nodes)
            print(f"{what}: {text if len(text) <= 400 else text[:400] + f'… ({len(nodes):,} in all)'}")

    if topology.racks:
        show("no rack", topology.without("rack"))
    if topology.leaves:
        show("no leaf", topology.without("leaf"))
    show("in a source, not in the inventory", topology.strangers)
    if topology.guessable and not any(place.rack and place.rack.guessed for place in topology.places.values()):
        print(f"{topology.guessable:,} racks could be guessed from Slurm's leaves or blocks: guess_racks = true in "
              "[topology]")  # fmt: skip


def _row(place: Place) -> tuple[str, str, str, str, str]:
    leaves = sorted(place.leaf_names)
    shown = ",".join(leaves) if len(leaves) <= 2 else f"{leaves[0]},{leaves[1]} +{len(leaves) - 2}"
    sources: dict[str, None] = {}
    for claim in (place.rack, *place.leaves, place.pod):
        if claim is not None:
            sources.update(dict.fromkeys(source.partition(", line")[0] for source in claim.sources))
    rack = f"{place.rack.value}{' (guess)' if place.rack.guessed else ''}" if place.rack else "unknown"
    return place.node, rack, shown or "unknown", place.pod.value if place.pod else "-", "; ".join(sources) or "-"
