"""``clustertop check``: one screening pass, a readable report, an exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.commands import common

if TYPE_CHECKING:
    import argparse

    from clustertop.plan import Plan

PROCESS_SECONDS = 10.0
"""Compute processes are listed for the length of the pass and so long."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``check``."""
    common.add_hosts(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the report as JSON")
    form.add_argument("--brief", action="store_true",
                      help="one line per node: its own state and its worst finding (for a scheduler's health check)")
    parser.add_argument("--seconds", type=common.seconds, default=5.0, metavar="S",
                        help="how long to sample, for rates (5); for-durations do not apply")
    parser.add_argument("--timeout", type=common.seconds, default=15.0, metavar="S",
                        help="longest wait for nodes that do not answer (15)")
    parser.epilog = (
        "exit status: 2 if anything is critical, else 3 if anything could not be read,\n"
        "else 1 for a warning, else 0; 3 also for a wrong config or argument")


def run(args: argparse.Namespace) -> int:
    """Make one pass and report."""
    from clustertop.config import ConfigError

    try:
        plan, _ = common.load_plan(args)
    except ConfigError as error:
        return common.refuse(error)
    return common.run_async(_check(plan, args))


async def _check(plan: Plan, args: argparse.Namespace) -> int:
    import asyncio
    import dataclasses

    from clustertop import plain, report
    from clustertop.model import Request
    from clustertop.session import Session

    plan = dataclasses.replace(plan, rules=report.momentary(plan.rules))
    async with Session(plan, keep=False, tell=common.tell) as session:
        await session.wait_readings(2, args.timeout)
        # Which memory no process holds can only be told where processes are listed.
        session.request(Request(None, {"do": "procs", "seconds": PROCESS_SECONDS + args.seconds}))
        await asyncio.sleep(args.seconds)
        session.evaluate()
        snapshot = session.snapshot
    assert snapshot is not None
    common.Notes().tell(session.notes)
    made = report.make(snapshot, plan.rules, session.times)
    if args.json:
        print(plain.json_text(report.as_object(made), indent=1))
    elif args.brief:
        print("\n".join(report.brief(made)))
    else:
        print("\n".join(report.lines(made)))
    return made.status
