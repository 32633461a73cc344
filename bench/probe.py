"""What the probe costs its node, and what the same readings cost when they are taken by starting programs.

    python bench/probe.py [--seconds 60] [--python PATH]

The real launcher, loader and bundle start the probe over pipes, on a tree of 8 GPUs (the tests' compiled NVML) and 10
RDMA ports of 48 counters each, once a second. Measured from /proc, in the same run: the probe's CPU time and memory,
the time from the start to its first frame, the bytes of its frames, and the CPU time of (a) starting a stand-in
nvidia-smi, a small C program that prints eight lines and touches no driver, and (b) one ``cat`` over the same files:
each once a second for the rows that it replaces. What a real nvidia-smi costs on top is not in the ratio.
Needs Linux and a C compiler. Exits with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import nvml_lib  # noqa: E402
from clustertop.wire import bundle  # noqa: E402
from clustertop.wire.transport import PollSettings  # noqa: E402
from trees import gpu_node  # noqa: E402

TARGETS = {"cpu": 0.005, "memory": 30e6, "first": 0.4, "bytes": 1500.0}
_HZ = os.sysconf("SC_CLK_TCK")
_SMI = r"""
#include <stdio.h>
int main(void) {
    for (int gpu = 0; gpu < 8; gpu++)
        printf("%d, GPU-%08d, 99, 40, 61440, 81559, 512.00, 61, 70, 1980, 2619, 0x0, P0, 5, 16\n", gpu, gpu);
    return 0;
}
"""


class Probe:
    """The probe behind the real launcher, as a child of ours."""

    def __init__(self, root: Path, library: Path, scenario: Path, python: str) -> None:
        self._nonce = bundle.new_nonce()
        env = {**os.environ, nvml_lib.VARIABLE: str(scenario)}
        self._settings = PollSettings(interval_seconds=1.0, root=str(root), nvml=str(library))
        bundle.probe_body()  # built once a process, not once a connection
        self.began = time.monotonic()
        self.child = subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0)
        assert self.child.stdin is not None
        self.child.stdin.write(bundle.launcher(self._nonce, [python]))
        self._data = b""
        self.frames: list[tuple[float, int]] = []
        while b" ready " not in self._data:
            self._read(10.0)
        self.ready = time.monotonic() - self.began
        self._data = b""
        # The kernel's files are never replaced under the probe; that those of a tree of ours may be is not its cost.
        args = {**bundle.probe_args(self._settings, self._nonce), "stable": True}
        self.child.stdin.write(bundle.bundle(args))
        while not self.frames:
            self._read(10.0)
        self.first = self.frames[0][0] - self.began

    def _read(self, seconds: float) -> None:
        assert self.child.stdout is not None
        out = self.child.stdout.fileno()
        if select.select([out], [], [], seconds)[0]:
            part = os.read(out, 1 << 20)
            if not part:
                raise SystemExit("the probe ended")
            self._data += part
            *whole, self._data = self._data.split(b"\n")
            for line in whole:
                if b" {" in line:
                    self.frames.append((time.monotonic(), len(line) + 1))
                elif line:
                    self._data = line + b"\n" + self._data

    def watch(self, seconds: float) -> list[int]:
        """Take frames for so long; returns the resident memory at each, in bytes."""
        memory, until = [], time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            count = len(self.frames)
            self._read(min(left, 1.0))
            if len(self.frames) > count:
                memory.append(self.memory())
        return memory

    def cpu(self) -> float:
        """CPU seconds so far; to the nanosecond where the kernel says it so."""
        with contextlib.suppress(OSError, ValueError):
            total = 0
            for task in Path(f"/proc/{self.child.pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
            if total:
                return total / 1e9
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _HZ

    def memory(self) -> int:
        """Resident memory, bytes."""
        return int(Path(f"/proc/{self.child.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def peak(self) -> int:
        """Most resident memory so far, bytes."""
        for row in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if row.startswith("VmHWM:"):
                return int(row.split()[1]) * 1024
        return 0

    def close(self) -> None:
        """End of stdin ends it."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(10)


def moving(root: Path, step: int) -> None:
    """Let the counters that move on a busy node move."""
    for port in (root / "sys/class/infiniband").iterdir():
        for name in ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets",
                     "unicast_xmit_packets", "unicast_rcv_packets"):
            path = port / "ports/1/counters" / name
            fd = os.open(path, os.O_WRONLY)
            # A packet of 4 KiB is 1024 of the words that the data counters count.
            count = 10**12 + step * 12_500_000_000 // 4
            os.pwrite(fd, f"{count if name.endswith('data') else count // 1024}\n".encode(), 0)
            os.close(fd)


def gpus(step: int) -> list[str]:
    """Eight GPUs at work: what moves on them moves every second."""
    return ["count 8", *(
        f"{gpu} {name} {value}" for gpu in range(8) for name, value in (
            ("util", 90 + (step + gpu) % 10), ("mem_used", (60 << 30) + ((step * 7 + gpu) % 50 << 20)),
            ("power_mw", 512000 + (step * 977 + gpu * 131) % 90000), ("temp", 55 + (step // 3 + gpu) % 9),
            ("sm_mhz", 1980 - 15 * ((step + gpu) % 4)),
        ))]


def forked(command: list[str], times: int) -> float:
    """CPU seconds of running *command* so often, ours for starting it included."""
    before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    for _ in range(times):
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime for a, b in zip(before, after, strict=True))


def readings(root: Path) -> list[str]:
    """The files that the probe reads every second: ports' state and counters, the host's."""
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    files = [path for port in ports for part in ("state", "phys_state", "rate", "counters/*", "hw_counters/*")
             for path in sorted(port.glob(part))]
    files += [path for path in sorted((root / "proc").rglob("*")) if path.is_file()]
    files += [path for net in sorted((root / "sys/class/net").iterdir())
              for path in sorted(net.glob("statistics/*"))]
    return [str(path) for path in files]


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description="What the probe costs its node.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to watch (default 60)")
    parser.add_argument("--python", default=sys.executable, help="the node's Python (default: this one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        tree = gpu_node(here / "root")
        library = nvml_lib.build(here / "nvml")
        scenario = nvml_lib.Scenario(here / "scenario", *gpus(0))
        source, smi = here / "smi.c", here / "nvidia-smi"
        source.write_text(_SMI)
        subprocess.run(["cc", "-O1", "-o", smi, source], check=True)
        probe = Probe(tree.root, library, scenario.path, arguments.python)
        try:
            probe.watch(2.5)
            cpu, began, count = probe.cpu(), time.monotonic(), len(probe.frames)
            memory: list[int] = []
            for step in range(int(arguments.seconds)):
                moving(tree.root, step)
                scenario.write(*gpus(step))
                memory += probe.watch(1.0)
            seconds = time.monotonic() - began
            share = (probe.cpu() - cpu) / seconds
            sizes = sorted(size for _, size in probe.frames[count:])
            peak = probe.peak()
        finally:
            probe.close()
        times = max(int(arguments.seconds / 3), 5)
        files = readings(tree.root)
        by_smi, by_cat = forked([str(smi)], times) / times, forked(["cat", *files], times) / times
        by_cats = forked(["sh", "-c", 'for f in "$@"; do cat "$f"; done', "sh", *files], 3) / 3
    steady = memory[len(memory) // 2]
    rows = [
        ("CPU, share of one core", f"{share:.2%}", "0.50%", share < TARGETS["cpu"]),
        ("resident memory, steady", f"{steady / 1e6:.1f} MB", "30 MB", steady < TARGETS["memory"]),
        ("resident memory, peak", f"{peak / 1e6:.1f} MB", "30 MB", peak < TARGETS["memory"]),
        ("first frame after the start", f"{probe.first * 1e3:.0f} ms", "400 ms", probe.first < TARGETS["first"]),
        ("steady frame, median", f"{sizes[len(sizes) // 2]} B", "1500 B", sizes[len(sizes) // 2] < TARGETS["bytes"]),
    ]
    print(f"8 GPUs, 10 ports, {len(files)} files a second besides NVML, {seconds:.0f} s, {len(sizes)} frames")
    print(f"bundle {len(bundle.probe_body())} B; Python ready after {probe.ready * 1e3:.0f} ms; "
          f"full frame {max(sizes[-1], probe.frames[0][1])} B")
    for name, value, target, met in rows:
        print(f"{name:<34}{value:>12}   below {target:<9}{'met' if met else 'MISSED'}")
    each = share  # a second's worth
    for name, cost in (("nvidia-smi (stand-in) started", by_smi), ("one cat over the files", by_cat),
                       ("a cat for each file", by_cats)):
        print(f"{name:<34}{cost * 1e3:>9.2f} ms   {cost / each:>6.1f} times all the probe's readings")
    print(f"{'the probe, all readings':<34}{each * 1e3:>9.2f} ms")
    return 0 if all(met for *_, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
