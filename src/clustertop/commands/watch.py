"""``clustertop watch``: headless, one line per transition, append-only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from clustertop.commands import common

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import Callable

    from clustertop.model import Transition
    from clustertop.plan import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``watch``."""
    common.add_hosts(parser)
    parser.add_argument("--json", action="store_true", help="NDJSON: one object per line")
    parser.add_argument("--for", dest="seconds", type=common.seconds, metavar="SECONDS", help="end after this long")
    parser.add_argument("--record", metavar="FILE", help="also write the flight recorder's file")
    parser.epilog = "ends on SIGINT, SIGTERM or SIGHUP, or when the reader of its output is gone"


def printer(*, as_json: bool) -> Callable[[list[Transition]], None]:
    """A listener that prints each transition on a line of its own, at once."""
    from clustertop import plain

    form = plain.transition_json if as_json else plain.transition_line

    def say(changes: list[Transition]) -> None:
        # That an alert is now part of another is for programs: whoever reads has the other one's line.
        told = [change for change in changes if as_json or change.kind != "folded"]
        sys.stdout.write("".join(form(change) + "\n" for change in told))
        sys.stdout.flush()

    return say


def run(args: argparse.Namespace) -> int:
    """Print transitions until the end."""
    from clustertop.config import ConfigError
    from clustertop.record import RecordingError

    try:
        plan, _ = common.load_plan(args)
        return common.run_async(follow(plan, seconds=args.seconds, as_json=args.json, record=args.record))
    except (ConfigError, RecordingError) as error:
        return common.refuse(error)


async def follow(
    plan: Plan, *, seconds: float | None, as_json: bool, record: str | None = None, force: bool = False,
    max_bytes: int = 0, say: bool = True, only_record: bool = False,
) -> int:
    """Run a session without a screen.

    Args:
        plan: what to watch.
        seconds: how long; None: until a signal.
        as_json: print NDJSON.
        record: also write this file.
        force: overwrite it.
        max_bytes: size at which recording stops; 0: none.
        say: print the transitions.
        only_record: end when the recording does.

    Returns:
        0, 128 and the signal that ended it, or 3 where only a recording was wanted and could not be written.
    """
    import asyncio

    from clustertop.commands.ending import until_ended
    from clustertop.record import recording
    from clustertop.session import Session

    notes = common.Notes()
    notes.tell(plan.notes)
    print(f"clustertop: watching {plan.inventory.folded}", file=sys.stderr)
    with recording(record, plan, force=force, max_bytes=max_bytes) as tap:
        async with Session(plan, tap=tap, tell=common.tell) as session:
            notes.tell(session.notes)
            session.core.listen(lambda changes: notes.tell(session.notes))
            if say:
                session.core.listen(printer(as_json=as_json))
            ended = asyncio.Event()
            if tap is not None:
                tap.when_ended(lambda: _recording_ended(notes, tap.note, ended if only_record else None))
            status = await until_ended(session, seconds, ended, output=say)
        notes.tell(session.notes)
    return common.EXIT_UNKNOWN if only_record and tap is not None and tap.failed else status


def _recording_ended(notes: common.Notes, note: str, ended: asyncio.Event | None) -> None:
    notes.said.add(note)
    print(f"clustertop: {note}", file=sys.stderr, flush=True)
    if ended is not None:
        ended.set()
