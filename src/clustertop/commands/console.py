"""``clustertop [HOSTS…]``: the console on live nodes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from clustertop.commands import common

if TYPE_CHECKING:
    import argparse

    from clustertop.config import Loaded
    from clustertop.plan import Plan
    from clustertop.tui.source import Source


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """How the console draws."""
    parser.add_argument("--theme", metavar="NAME", help="a theme's name, or the path of a theme file")
    glyphs = parser.add_mutually_exclusive_group()
    glyphs.add_argument("--ascii", action="store_true", default=None, help="draw in ASCII only")
    glyphs.add_argument("--unicode", dest="ascii", action="store_false", help="draw in Unicode whatever the locale")
    parser.add_argument("--no-mouse", dest="mouse", action="store_false", default=None,
                        help="leave the mouse to the terminal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the console."""
    common.add_hosts(parser)
    add_drawing(parser)
    parser.add_argument("--record", metavar="FILE", help="also write the flight recorder's file")


def no_terminal() -> bool:
    """Whether there is nothing to draw on; Textual draws on stderr."""
    import os

    drawn = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return not drawn or os.environ.get("TERM", "dumb") == "dumb"


def run(args: argparse.Namespace) -> int:
    """Run the console; returns the exit status."""
    from clustertop.config import ConfigError

    try:
        plan, loaded = common.load_plan(args)
    except ConfigError as error:
        return common.refuse(error)
    if no_terminal():
        return common.refuse("the console needs a terminal; without one use clustertop watch, once or check")
    return common.run_async(show(plan, loaded, args))


async def show(plan: Plan, loaded: Loaded | None, args: argparse.Namespace) -> int:
    """The console on a live fleet, for as long as the operator stays."""
    from clustertop.record import recording
    from clustertop.session import Session

    with recording(args.record, plan) as tap:
        async with Session(plan, tap=tap, tell=common.tell) as session:
            return await draw(session, loaded, args)


async def draw(source: Source, loaded: Loaded | None, args: argparse.Namespace) -> int:
    """The console over *source*."""
    from clustertop.config import Console
    from clustertop.tui.app import run_console
    from clustertop.tui.theme import DEFAULT

    console = loaded.config.console if loaded is not None else Console()
    return await run_console(
        source, theme=args.theme or console.theme or DEFAULT,
        refresh_seconds=console.refresh_seconds, ascii=(console.ascii or None) if args.ascii is None else args.ascii,
        mouse=console.mouse if args.mouse is None else args.mouse, bell=console.bell)
