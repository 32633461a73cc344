"""``clustertop demo``: a simulated cluster behind real SSH servers on loopback, with the console on it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from clustertop.commands import common

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from clustertop.config import Loaded
    from clustertop.demo.faults import Fault
    from clustertop.plan import Plan

DEFAULT_NODES = 64
DEFAULT_SEED = 7
PCIE_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the demo."""
    from clustertop.commands.console import add_drawing
    from clustertop.demo.faults import FAULTS, START_SECONDS

    parser.add_argument("--nodes", type=int, default=DEFAULT_NODES, metavar="N",
                        help=f"number of nodes, 1 to 2048 ({DEFAULT_NODES})")
    parser.add_argument("--fault", action="extend", nargs="+", default=[], metavar="NAME",
                        help="what goes wrong, as often as you like: NAME, NAME@NODE, NAME:SECONDS, NAME@NODE:SECONDS")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, metavar="S",
                        help=f"the same seed gives the same cluster and the same life ({DEFAULT_SEED})")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS",
                        help="time between two readings of a node, 0.25 to 60 (1)")
    parser.add_argument("-c", "--config", metavar="FILE", help="another configuration file, for rules and console")
    parser.add_argument("--record", metavar="FILE", help="also write the flight recorder's file")
    add_drawing(parser)
    wide = max(len(name) for name in FAULTS)
    listed = "\n".join(f"  {name:{wide}}  {words}" for name, words in FAULTS.items())
    parser.epilog = (
        f"faults:\n{listed}\n\n"
        f"A fault begins {START_SECONDS:g} s after the first frame, or at :SECONDS, and hits a node that the seed\n"
        "picks, or @NODE (a name such as gpu003, or its number). For example:\n"
        "  clustertop demo --fault x8@gpu003:10 rdma-errors node-down:30"
    )


def wanted_faults(args: argparse.Namespace) -> list[Fault]:
    """Return the faults of *args*, after all that can be said without starting anything has been checked.

    Raises:
        ValueError: one sentence about the argument that makes no sense.
    """
    from clustertop.demo.faults import parse, place
    from clustertop.demo.plan import make_plan

    if not 0.25 <= args.interval <= 60.0:
        raise ValueError(f"--interval {args.interval:g}: the demo reads every 0.25 to 60 seconds")
    faults = [parse(text) for text in args.fault]
    place(faults, make_plan(args.nodes, args.seed), args.seed)
    return faults


@contextlib.asynccontextmanager
async def running(
    args: argparse.Namespace, faults: list[Fault], loaded: Loaded | None = None
) -> AsyncIterator[Plan]:
    """Run the demo cluster that *args* describe; yields what a session needs to watch it. Raises DemoError."""
    from clustertop.demo.launch import start_demo
    from clustertop.inventory import Inventory, rule_nodes
    from clustertop.plan import Plan
    from clustertop.rules.configured import in_force, scoped
    from clustertop.rules.spec import builtin

    async with start_demo(args.nodes, faults=faults, seed=args.seed) as demo:
        index = {node.name: number for number, node in enumerate(demo.nodes)}
        inventory = Inventory(demo.nodes, index=index)
        plan = Plan(inventory, demo.settings(args.interval, PCIE_SECONDS), builtin(), title="demo",
                    site=demo.site)
        if loaded is not None:
            alerts, rules = loaded.config.alerts, in_force(loaded)
            plan = dataclasses.replace(
                plan, rules=scoped(rules, rule_nodes(demo.nodes, loaded)), origins=rules.origins,
                settle_seconds=alerts.settle_seconds, resume_seconds=alerts.resume_seconds)
        yield plan


def run(args: argparse.Namespace) -> int:
    """Run the demo with the console on it; returns the exit status (3: the arguments make no sense)."""
    from clustertop.commands.console import no_terminal
    from clustertop.config import ConfigError, load
    from clustertop.demo.launch import DemoError
    from clustertop.inventory import rule_nodes
    from clustertop.rules.spec import builtin

    try:
        faults = wanted_faults(args)
        loaded = load(args.config, known_rules=builtin())
        rule_nodes((), loaded)  # refuses a scope that names no group, before anything is started
    except (ConfigError, ValueError) as error:
        return common.refuse(error)
    if no_terminal():
        return common.refuse("the demo's console needs a terminal")
    try:
        return common.run_async(show(args, faults, loaded))
    except DemoError as error:
        return common.refuse(error)


async def show(args: argparse.Namespace, faults: list[Fault], loaded: Loaded) -> int:
    """The console on the demo cluster, for as long as the operator stays."""
    from clustertop.commands.console import draw
    from clustertop.record import recording
    from clustertop.session import Session

    async with running(args, faults, loaded) as plan:
        with recording(args.record, plan) as tap:
            async with Session(plan, tap=tap, tell=common.tell) as session:
                return await draw(session, loaded, args)
