"""``clustertop once``: one plain table of the fleet and exit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.commands import common

if TYPE_CHECKING:
    import argparse

    from clustertop.plan import Plan

READINGS = 2
"""Frames waited for: a rate needs two."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``once``."""
    common.add_hosts(parser)
    parser.add_argument("--json", action="store_true", help="every reading with unit, age and unknown-reason")
    parser.add_argument("--timeout", type=common.seconds, default=15.0, metavar="SECONDS",
                        help="longest wait for nodes that do not answer (15)")
    parser.epilog = "exit status: 0; 3 if no node could be read, or for a wrong config or argument"


def run(args: argparse.Namespace) -> int:
    """Print the fleet once."""
    from clustertop.config import ConfigError

    try:
        plan, _ = common.load_plan(args)
    except ConfigError as error:
        return common.refuse(error)
    return common.run_async(_once(plan, args))


async def _once(plan: Plan, args: argparse.Namespace) -> int:

    from clustertop import plain
    from clustertop.session import Session

    async with Session(plan, keep=False, tell=common.tell) as session:
        await session.wait_readings(READINGS, args.timeout)
        snapshot = session.snapshot
    assert snapshot is not None
    common.Notes().tell(session.notes)
    if args.json:
        print(plain.json_text(plain.fleet_object(snapshot, session.times), indent=1))
    else:
        print("\n".join(plain.fleet_lines(snapshot)))
    read = any(plain.node_state(snapshot.view, row) == plain.UP for row in range(len(snapshot.view.nodes)))
    return common.EXIT_OK if read else common.EXIT_UNKNOWN
