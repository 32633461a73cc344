"""``clustertop rules``: what is in force, where each value came from, and on how much it applies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from clustertop.commands import common

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from clustertop.plan import Plan
    from clustertop.rules.engine import Judged

SAMPLE_SECONDS = 6.0
"""How long a pass samples: growth needs two readings, peers are compared every five seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``rules``."""
    common.add_hosts(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, every value with where it came from")
    parser.add_argument("--live", action="store_true",
                        help="look at the nodes and count on how many things each rule applies now")
    parser.add_argument("--seconds", type=common.seconds, metavar="S",
                        help=f"how long to look ({SAMPLE_SECONDS:g}); implies --live")
    parser.add_argument("--timeout", type=common.seconds, default=15.0, metavar="S",
                        help="longest wait for nodes that do not answer (15)")
    parser.epilog = ("Without --live no node is connected to.\n"
                     "exit status: 0; 3 if --live could read no node, or for a wrong config or argument")


def run(args: argparse.Namespace) -> int:
    """List the rules."""
    from clustertop.config import ConfigError

    try:
        plan, loaded = common.load_plan(args)
    except ConfigError as error:
        return common.refuse(error)
    from clustertop import plain
    from clustertop.rules import latency, listing
    from clustertop.rules.configured import in_force
    from clustertop.rules.spec import builtin
    from clustertop.session import usual_tick_seconds
    from clustertop.store.catalogue import SPECS

    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    judged: Mapping[str, Judged] | None = None
    status = common.EXIT_OK
    if args.live or args.seconds is not None:
        made: dict[str, Judged] = {}
        seconds = SAMPLE_SECONDS if args.seconds is None else args.seconds
        status = common.run_async(_look(plan, seconds, args.timeout, made))
        judged = made
    names = [node.name for node in plan.inventory.nodes]
    rules = listing.listed(
        in_force(loaded), builtin(), {spec.name: spec for spec in SPECS}, names, plan.inventory.rule_nodes,
        latency.times(plan.settings, usual_tick_seconds(len(names))), judged)
    if args.json:
        print(plain.json_text(listing.as_object(rules, len(names)), indent=1))
    else:
        print("\n".join(listing.lines(rules, len(names))))
    return status


async def _look(plan: Plan, seconds: float, longest: float, out: dict[str, Judged]) -> int:
    """Make one pass over the nodes and count; returns the exit status."""
    import asyncio

    from clustertop import plain
    from clustertop.session import Session

    async with Session(plan, tell=common.tell) as session:
        await session.wait_readings(2, longest)
        await asyncio.sleep(seconds)
        session.evaluate()
        snapshot = session.snapshot
    assert snapshot is not None
    out.update(snapshot.engine.judged(snapshot.view))
    read = sum(plain.node_state(snapshot.view, row) == plain.UP for row in range(len(snapshot.view.nodes)))
    print(f"note: {read} of {len(snapshot.view.nodes)} nodes read", file=sys.stderr)
    return common.EXIT_OK if read else common.EXIT_UNKNOWN
