"""``clustertop config init|check|show``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "write a commented config, check one, or show the effective one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = actions.add_parser("init", help="write a commented config", description="Write a commented config.")
    init.add_argument("-o", "--output", metavar="FILE", help="where to; - prints it (default: where it is looked for)")
    check = actions.add_parser(
        "check",
        help="check a config without starting anything",
        description="Check a config without starting anything. Exit status 0: it is right; 3: it is not.",
    )
    check.add_argument("file", metavar="FILE", nargs="?", help="default: where it is looked for")
    show = actions.add_parser(
        "show",
        help="show the effective config",
        description="Show the effective config as TOML, with where each value came from.",
    )
    show.add_argument("file", metavar="FILE", nargs="?", help="default: where it is looked for")
    show.add_argument("--json", action="store_true", help="as JSON")
    for action in (check, show):
        action.add_argument("-c", "--config", metavar="FILE", help="the same as FILE")


def run(args: argparse.Namespace) -> int:
    """Do what *args* say. Returns 0, or 3 for a bad config and for a file that cannot be written."""
    from clustertop.config import BAD_CONFIG, ConfigError

    try:
        if args.action == "init":
            return _init(args.output)
        return _check(args.file or args.config) if args.action == "check" else _show(args)
    except ConfigError as error:
        print(f"clustertop: {error}", file=sys.stderr)
        return BAD_CONFIG


def _init(output: str | None) -> int:
    from pathlib import Path

    from clustertop.config import BAD_CONFIG, default_path
    from clustertop.config_text import template

    if output == "-":
        print(template(), end="")
        return 0
    path = Path(output).expanduser() if output else default_path()[0]
    try:
        if not output:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(template())
    except FileExistsError:
        message = f"{path} exists and is left as it is; give another place with -o FILE"
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}; give another place with -o FILE"
    else:
        print(f"wrote {path}")
        return 0
    print(f"clustertop: {message}", file=sys.stderr)
    return BAD_CONFIG


def _check(file: str | None) -> int:
    from clustertop.config import default_path, load
    from clustertop.inventory import resolve
    from clustertop.notify import outlets
    from clustertop.rules.configured import in_force
    from clustertop.rules.spec import builtin
    from clustertop.site import resolve as resolve_site
    from clustertop.site import summary
    from clustertop.topology_files import fill

    loaded = load(file)
    rules = in_force(loaded, shipped := builtin())
    inventory = fill(resolve([], loaded), loaded)
    outlets(loaded, None)
    site = resolve_site(loaded, inventory, whole=not loaded.config.inventory.default_group, strict=True)
    for note in (*inventory.notes, *site.notes):
        print(f"warning: {note}", file=sys.stderr)
    if loaded.path is None:
        print(f"ok: no config file at {default_path()[0]}, so the defaults hold")
    elif inventory.local:
        print(f"ok: {loaded.path}, no nodes: without HOSTS this machine is watched")
    else:
        nodes, racks = len(inventory), len(inventory.racks)
        print(f"ok: {loaded.path}, {_count(nodes, 'node')} in {_count(racks, 'rack')}")
    if site:
        print(f"beside the nodes: {summary(site)}")
    own = [name for name in loaded.config.rules if name not in shipped]
    off = [name for name in loaded.config.rules if not rules.rules[name].enabled]
    changed = [name for name in loaded.config.rules if name not in {*own, *off}]
    for what, names in (("changed", changed), ("added", own), ("switched off", off)):
        if names:
            print(f"rules {what}: {', '.join(names)}")
    return 0


def _show(args: argparse.Namespace) -> int:
    from clustertop.config import load
    from clustertop.config_text import as_json, show
    from clustertop.rules.spec import builtin

    loaded = load(args.file or args.config, known_rules=builtin())
    print(as_json(loaded) if args.json else show(loaded), end="\n" if args.json else "")
    return 0


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
