"""``clustertop probe``: run the node's probe on this machine and print its raw frame."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "run the node's probe here and print its raw frame"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--once", action="store_true", help="one frame, complete; else one a tick until ^C")
    parser.add_argument("--root", metavar="DIR", default="", help="read DIR/proc and DIR/sys instead")
    parser.add_argument("--nvml", metavar="LIB", default="", help="load this NVML library")
    parser.add_argument("--pretty", action="store_true", help="indent the frame; needs --once")


def run(args: argparse.Namespace) -> int:
    """Run the probe; return the exit status (3: the arguments make no sense)."""
    if args.root and not Path(args.root).is_dir():
        print(f"clustertop probe: --root {args.root}: not a directory", file=sys.stderr)
        return 3
    if args.nvml and not Path(args.nvml).is_file():
        print(f"clustertop probe: --nvml {args.nvml}: no such file", file=sys.stderr)
        return 3
    if args.pretty and not args.once:
        print("clustertop probe: --pretty needs --once", file=sys.stderr)
        return 3
    # Imported here: the other commands' --help must not wait for it.
    from clustertop.probe import loop
    from clustertop.signals.ethtool_catalogue import patterns

    nvml = str(Path(args.nvml).resolve()) if args.nvml else ""
    settings = {"root": args.root, "nvml": nvml, "statistics": patterns()}
    if not args.once:
        return loop.main(settings)
    text = loop.Probe(settings).once().decode("ascii")
    if args.pretty:
        text = json.dumps(json.loads(text), indent=2) + "\n"
    sys.stdout.write(text)
    return 0
