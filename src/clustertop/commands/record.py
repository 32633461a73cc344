"""``clustertop record``: write the flight recorder's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.commands import common

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``record``."""
    common.add_hosts(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the recording")
    parser.add_argument("--for", dest="seconds", type=common.seconds, metavar="SECONDS", help="end after this long")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument("--max-megabytes", type=common.amount, metavar="N", help="end at this size; 0: none")
    parser.add_argument("--events", action="store_true", help="also print the transitions, as watch does")
    parser.add_argument("--json", action="store_true", help="print them as NDJSON")
    parser.epilog = (
        "ends on SIGINT, SIGTERM or SIGHUP, after SECONDS, at N megabytes, or when FILE cannot be written\n"
        "exit status: 0; 128 and the signal's number; 3 if FILE could not be written")


def run(args: argparse.Namespace) -> int:
    """Record until the end."""
    from clustertop.commands.watch import follow
    from clustertop.config import ConfigError
    from clustertop.record import RecordingError

    try:
        plan, loaded = common.load_plan(args)
        limit = loaded.config.record.max_megabytes if args.max_megabytes is None else args.max_megabytes
        return common.run_async(follow(
            plan, seconds=args.seconds, as_json=args.json, record=args.output, force=args.force,
            max_bytes=int(limit * 1e6), say=args.events or args.json, only_record=True))
    except (ConfigError, RecordingError) as error:
        return common.refuse(error)
