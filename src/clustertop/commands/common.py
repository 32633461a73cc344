"""What the commands that look at nodes share: their arguments, and the plan made of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine, Iterable
    from pathlib import Path

    from clustertop.config import Loaded
    from clustertop.plan import Plan

MOST = 1e9
"""Most of anything on the command line: some thirty years in seconds."""
EXIT_OK, EXIT_WARNING, EXIT_CRITICAL, EXIT_UNKNOWN = 0, 1, 2, 3


def seconds(text: str) -> float:
    """A length of time on the command line. Raises ArgumentTypeError."""
    return amount(text, "seconds")


def amount(text: str, what: str = "") -> float:
    """A finite number that is not negative. Raises ArgumentTypeError."""
    from argparse import ArgumentTypeError

    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST:
        raise ArgumentTypeError(f"{text} is not a number{' of ' + what if what else ''} from 0 to {MOST:.0f}")
    return value


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """HOSTS and what says how they are reached and read."""
    parser.add_argument("hosts", nargs="*", metavar="HOSTS",
                        help="gpu[001-064],login1  @group  user@host:port; none: the config's, else this machine")
    parser.add_argument("-c", "--config", metavar="FILE", help="another configuration file")
    parser.add_argument("--hosts-file", metavar="FILE", help="a file with one entry of HOSTS a line")
    parser.add_argument("--interval", type=float, metavar="SECONDS", help="time between two readings of a node (2)")
    parser.add_argument("--state", metavar="FILE", help="where known devices, acknowledgements and firing alerts are "
                        'kept over restarts; "none": nowhere (with a config: beside your other state; else none)')
    parser.add_argument("--unsafe", action="store_true", default=None,
                        help="allow intervals below 1 second, which cost the nodes more")


def load_plan(args: argparse.Namespace) -> tuple[Plan, Loaded]:
    """Return what a session needs, and the configuration it came from.

    Raises:
        ConfigError: the configuration, HOSTS or a rule is not right; its text is one sentence.
    """
    import dataclasses

    from clustertop.config import load
    from clustertop.inventory import resolve
    from clustertop.notify import outlets
    from clustertop.plan import Plan
    from clustertop.released import ReleasedNodes
    from clustertop.rules.configured import in_force, scoped
    from clustertop.rules.spec import builtin
    from clustertop.settings import expect_gpus, expect_ports, expect_width, poll_settings
    from clustertop.site import resolve as resolve_site
    from clustertop.state import default_path
    from clustertop.store.view import Freshness
    from clustertop.topology_files import fill

    loaded = load(args.config, overrides={"poll.interval_seconds": args.interval, "poll.unsafe": args.unsafe})
    rules = in_force(loaded, builtin())
    inventory = fill(resolve(args.hosts, loaded, args.hosts_file), loaded)
    poll = loaded.config.poll
    site = resolve_site(loaded, inventory, whole=not (
        args.hosts or args.hosts_file is not None or loaded.config.inventory.default_group))
    notes = [*inventory.notes, *site.notes]
    if inventory.unchecked:
        few = ", ".join(sorted(inventory.unchecked)[:3]) + (" ..." if len(inventory.unchecked) > 3 else "")
        notes.append(f"host keys are not checked for {len(inventory.unchecked)} nodes: {few}")
    state, alerts = _state(args.state, loaded, default_path), loaded.config.alerts
    settings = dataclasses.replace(
        poll_settings(loaded), nccl_logs=site.nccl_logs, nccl_nodes=site.nccl_nodes, in_band=site.in_band,
        in_band_seconds=site.in_band_seconds)
    plan = Plan(
        inventory, settings, scoped(rules, inventory.rule_nodes), expect_width(inventory),
        expect_gpus(inventory), expect_ports(inventory), Freshness(poll.late_intervals, poll.stale_intervals),
        released=ReleasedNodes.usual(), notes=tuple(notes), outlets=outlets(loaded, state), state=state,
        settle_seconds=alerts.settle_seconds, resume_seconds=alerts.resume_seconds,
        accept_seconds=alerts.accept_seconds, origins=rules.origins, site=site)
    return plan, loaded


def _state(wanted: str | None, loaded: Loaded, default_path: Callable[[Path], Path]) -> Path | None:
    """Where the state is kept: as asked for; else, for the fleet of a config, its usual place. Raises ConfigError."""
    from pathlib import Path

    from clustertop.config import ConfigError
    from clustertop.files import is_other

    if wanted:
        if is_other(path := Path(wanted).expanduser()):
            raise ConfigError("is no regular file; name one, or none to keep nothing", file=f"--state {wanted}")
        return None if wanted == "none" else path
    return default_path(loaded.path) if loaded.path is not None else None


class Notes:
    """Tells on stderr what must not go unseen, each note once."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def tell(self, notes: Iterable[str]) -> None:
        """Print those of *notes* that have not been said."""
        for note in notes:
            if note not in self.said:
                self.said.add(note)
                print(f"note: {note}", file=sys.stderr, flush=True)


def run_async(main: Coroutine[object, object, int]) -> int:
    """Run *main* to its end, also where a signal ends it.

    A fleet too large for this process, and a recording that cannot be begun, are one sentence and status 3.
    """
    from clustertop.commands.ending import orderly
    from clustertop.poll.fleet import DescriptorLimitError
    from clustertop.record import RecordingError
    from clustertop.session import run

    try:
        return run(orderly(main))
    except (DescriptorLimitError, RecordingError) as error:
        return refuse(error)
    finally:
        main.close()  # where it has not come to its first line


def refuse(error: object) -> int:
    """Say on stderr what was wrong; returns the exit status for it."""
    print(f"clustertop: {error}", file=sys.stderr)
    return EXIT_UNKNOWN


def tell(words: str) -> None:
    """Say on stderr what an operator should know while a command ends."""
    print(f"clustertop: {words}", file=sys.stderr, flush=True)
