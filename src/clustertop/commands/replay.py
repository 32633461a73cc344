"""``clustertop replay``: a recording in the console, or its transitions only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from clustertop.commands import common

if TYPE_CHECKING:
    import argparse

    from clustertop.record import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``replay``."""
    from clustertop.commands.console import add_drawing

    parser.add_argument("file", metavar="FILE", help="a recording; with --events also a scenario (.toml)")
    parser.add_argument("--speed", type=common.amount, default=1.0, metavar="X",
                        help="times faster than it happened; 0: no waiting")
    parser.add_argument("--events", action="store_true", help="print the transitions only, as fast as possible")
    parser.add_argument("--json", action="store_true", help="print them as NDJSON; implies --events")
    add_drawing(parser)


def run(args: argparse.Namespace) -> int:
    """Replay FILE."""
    from clustertop.record import Recording, RecordingError

    if args.file.endswith(".toml"):
        return _scenario(args)
    try:
        recording = Recording(args.file)
    except RecordingError as error:
        return common.refuse(error)
    if args.events or args.json:
        return _events(recording, as_json=args.json)
    from clustertop.commands.console import no_terminal

    if no_terminal():
        return common.refuse("the console needs a terminal; without one use replay --events")
    return common.run_async(_show(recording, args))


def _events(recording: Recording, *, as_json: bool) -> int:
    from clustertop import plain
    from clustertop.replay import transitions

    form = plain.transition_json if as_json else plain.transition_line
    for change in transitions(recording):
        print(form(change))
    if recording.note:
        print(f"clustertop: {recording.path}: {recording.note}", file=sys.stderr)
    return common.EXIT_OK


def _scenario(args: argparse.Namespace) -> int:
    """What a scenario says must come of its readings, and what does; status 2 where they differ."""
    from clustertop import plain
    from clustertop.scenario import ScenarioError, line, load, run

    if not (args.events or args.json):
        return common.refuse(f"{args.file} is a scenario: it has nothing to draw; use replay --events")
    try:
        made = load(args.file)
    except ScenarioError as error:
        return common.refuse(error)
    form = plain.transition_json if args.json else plain.transition_line
    got = []
    for change in run(made):
        got.append(line(change))
        print(form(change))
    if tuple(got) == made.expect:
        return common.EXIT_OK
    for text in [f"missing: {one}" for one in made.expect if one not in got] + [
            f"not expected: {one}" for one in got if one not in made.expect] or ["the order differs"]:
        print(f"clustertop: {args.file}: {text}", file=sys.stderr)
    return common.EXIT_CRITICAL


async def _show(recording: Recording, args: argparse.Namespace) -> int:
    from clustertop.commands.console import draw
    from clustertop.replay import ReplaySession

    async with ReplaySession(recording, args.speed) as session:
        return await draw(session, None, args)
