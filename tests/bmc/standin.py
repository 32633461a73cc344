"""A stand-in for ipmitool: a program on PATH that does what a test orders and writes down how it was called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SDR = """\
Pwr Consumption  | 76h | ok  |  7.1 | 512 Watts
Current 1        | 6Ah | ok  | 10.1 | 1.20 Amps
Voltage 1        | 6Ch | ok  | 10.1 | 230 Volts
PS Redundancy    | 74h | ok  |  7.1 | Fully Redundant
"""


@dataclass
class Standin:
    """The program. ``order`` writes the shell lines for one kind of call (``sdr elist``, ``sel``, ``dcmi``, ...)."""

    folder: Path

    def __post_init__(self) -> None:
        self.program = self.folder / "ipmitool"
        self.orders = self.folder / "orders"
        self.orders.mkdir()
        self.calls = self.folder / "calls"
        self.calls.touch()
        (self.folder / "sdr").write_text(SDR)
        self.program.write_text(f"""#!/bin/sh
here={self.folder}
what=; last=; file=; cache=no
while [ $# -gt 0 ]; do
  case "$1" in
    -v) ;;
    -f) file=$2; shift ;;
    -S) cache=yes; shift ;;
    -*) shift ;;
    *) what="$what$1 "; last=$1 ;;
  esac
  shift
done
echo "$$|$what|$cache" >> $here/calls
tr '\\0' '\\n' < /proc/$$/environ > $here/environ
tr '\\0' ' ' < /proc/$$/cmdline >> $here/cmdlines
echo "$file" > $here/file
cat "$file" > $here/password
for order in $here/orders/*; do
  case "$what" in "$(basename "$order" | tr _ ' ')"*) . "$order" ;; esac
done
case "$what" in
  chassis*) echo "Chassis Power is on" ;;
  "sdr dump"*) echo records > "$last" ;;
  sdr*) cat $here/sdr ;;
  dcmi*) echo "DCMI request failed because: Invalid command (c1)" >&2; exit 1 ;;
  "sel elist"*) n=0; while [ $n -lt "$last" ] && [ $n -lt 500 ]; do n=$((n + 1))
      printf '%4x | 11/03/2025 | 10:15:%02d | Power Supply PS2 | Power Supply AC lost | Asserted\\n' $n $((n % 60)); done ;;
esac
exit 0
""")
        self.program.chmod(0o755)

    def order(self, what: str, lines: str) -> None:
        """Have calls that begin with *what* do *lines* first."""
        part = self.folder / "part"
        part.write_text(lines + "\n")
        part.rename(self.orders / what.replace(" ", "_"))

    def forget(self, what: str) -> None:
        (self.orders / what.replace(" ", "_")).unlink()

    def called(self) -> list[tuple[int, str, str]]:
        """Process id, words and whether a cache was given, of each call."""
        rows = (line.split("|") for line in self.calls.read_text().splitlines())
        return [(int(pid), what.strip(), cache) for pid, what, cache in rows]

    def alive(self) -> list[int]:
        """Leaders that still run."""
        return [pid for pid, _, _ in self.called() if running(pid)]

    def groups(self) -> set[int]:
        """Process groups of calls that still have a member."""
        wanted = {pid for pid, _, _ in self.called()}
        return {group for group in map(group_of, all_pids()) if group in wanted}


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    found = _stat(pid)
    return bool(found) and found[0] != "Z"


def group_of(pid: int) -> int:
    found = _stat(pid)
    return int(found[2]) if found and found[0] != "Z" else 0
