"""The command line: arguments to config to front end. The one place that wires the layers together."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING

from clustertop import __version__
from clustertop.commands import output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

COMMANDS = {
    "demo": "a simulated cluster behind real SSH servers on loopback, with the console on it",
    "check": "one screening pass, a readable report, exit status by the worst finding",
    "watch": "headless: one line per transition",
    "once": "one plain table of the fleet and exit",
    "record": "write the flight recorder's file",
    "replay": "a recording in the console, or its transitions only",
    "probe": "run the node's probe here and print its raw frame",
    "doctor": "what would stop clustertop from working",
    "topology": "where every node hangs: rack, leaves, rail and pod, and which source says so",
    "rules": "the rules in force, where each value came from, and how late each can be",
    "pdu-walk": "what a PDU says over SNMP, raw beside scaled",
    "config": "write, check or show the configuration",
}
_EPILOG = """\
HOSTS are in the field's notation: gpu[001-064],login1  @group  user@host:port
With no HOSTS and no config: this machine.

exit status: 0 ok; check: 1 warning, 2 critical, 3 unknown or unreachable; 3 also for a wrong config or argument
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(3, f"{self.prog}: {message}\n{self.format_usage()}")


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"clustertop.commands.{name.replace('-', '_')}")


def parser(command: str | None) -> argparse.ArgumentParser:
    """The parser of *command*, or of the console with the list of commands."""
    if command is not None:
        out: argparse.ArgumentParser = _Parser(
            prog=f"clustertop {command}", description=f"{COMMANDS[command]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter)
        _load(command).add_arguments(out)
        return out
    commands = "\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items())
    out = _Parser(
        prog="clustertop", description="The live operations console for GPU training clusters.",
        epilog=f"commands:\n{commands}\n\n{_EPILOG}", formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="clustertop [options] [HOSTS ...]\n       clustertop COMMAND [options]")
    out.add_argument("--version", action="version", version=f"clustertop {__version__}")
    _load("console").add_arguments(out)
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments.pop(0) if arguments and arguments[0] in COMMANDS else None
    try:
        with output.whole():
            options = parser(command).parse_args(arguments)
            return int(_load(command or "console").run(options))
    except output.OutputError as error:
        if error.words and sys.stderr is not None:
            sys.stderr.write(f"clustertop: {error.words}\n")
        return error.status
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
