"""``clustertop doctor [HOSTS…]``: what would stop it from working."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clustertop.doctor import Finding
    from clustertop.inventory import Inventory
    from clustertop.places import Site

HELP = "what would stop it from working: keys, known hosts, limits, python, permissions, clocks, PDUs, BMCs, terminal"
MAX_LISTED = 4
"""With more nodes than this, what is fine on a node or a device is only counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "hosts",
        metavar="HOSTS",
        nargs="*",
        help="nodes to look at, with their PDUs and BMCs: gpu[001-064],login1, @group, user@host:port",
    )
    parser.add_argument("-c", "--config", metavar="FILE", help="config file")
    parser.add_argument("--hosts-file", metavar="FILE", help="file with more nodes, one entry a line")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.epilog = "Exit status 0: all is well, 1: warnings, 2: failures, 3: unknown, unreachable or a bad config."


def run(args: argparse.Namespace) -> int:
    """Do what *args* say. Returns 0 ok, 1 warnings, 2 failures, 3 unknown, unreachable or a bad config."""
    import asyncio
    import os

    from clustertop.commands.ending import orderly
    from clustertop.config import BAD_CONFIG, ConfigError, load
    from clustertop.doctor import Place, a_terminal, exit_status, find
    from clustertop.inventory import resolve
    from clustertop.rules.spec import builtin
    from clustertop.settings import poll_settings
    from clustertop.site import resolve as resolve_site
    from clustertop.topology_files import fill

    try:
        loaded = load(args.config, known_rules=builtin())
        inventory = fill(resolve(args.hosts, loaded, args.hosts_file), loaded)
        site = resolve_site(loaded, inventory, whole=not (
            args.hosts or args.hosts_file or loaded.config.inventory.default_group))
    except ConfigError as error:
        print(f"clustertop: {error}", file=sys.stderr)
        return BAD_CONFIG
    settings = poll_settings(loaded)
    findings = find(Place(settings, inventory, os.environ, a_terminal()))
    look = bool(args.hosts or args.hosts_file or inventory.local)
    if look:
        from clustertop.doctor_node import examine

        findings += asyncio.run(orderly(examine(inventory, settings)))
        if site.devices:
            from clustertop.doctor_device import examine as examine_devices

            findings += asyncio.run(orderly(examine_devices(site.devices)))
    if args.json:
        _print_json(findings)
    else:
        _print(findings, inventory, site, look=look)
    return exit_status(findings)


def _print_json(findings: Sequence[Finding]) -> None:
    import json

    from clustertop.doctor import exit_status

    rows = [
        {
            "check": one.check,
            "node": one.node or None,
            "state": one.state,
            "text": one.text,
            "todo": one.todo or None,
        }
        for one in findings
    ]
    print(json.dumps({"exit": exit_status(findings), "findings": rows}, indent=1))


def _print(findings: Sequence[Finding], inventory: Inventory, site: Site, *, look: bool) -> None:
    from clustertop.doctor import count

    for note in (*inventory.notes, *site.notes):
        print(f"note: {note}", file=sys.stderr)
    listed = [one for one in findings if not one.node or one.state != "ok" or len(inventory) <= MAX_LISTED]
    wide = max((len(one.check) for one in listed), default=0)
    node = ""
    for one in listed:
        if one.node != node:
            node = one.node
            print(f"\n{node}")
        print(f"{one.state:7} {one.check:{wide}}  {one.text}")
        if one.todo:
            print(f"{'':7} {'':{wide}}  → {one.todo}")
    if look:
        for total, what, kind in ((len(inventory), "node", "node."), (len(site.devices), "device", "device.")):
            bad = {one.node for one in findings if one.node and one.check.startswith(kind) and one.state != "ok"}
            fine = {one.node for one in findings if one.node and one.check.startswith(kind)} - bad
            if total:
                print(f"{'' if what == 'device' else chr(10)}{len(fine):,} of {count(total, what)} ready")
    else:
        more = f" and {count(len(site.devices), 'device')}" if site.devices else ""
        print(f"\n{count(len(inventory), 'node')}{more} not looked at; name HOSTS, or '@*' for all of them")
