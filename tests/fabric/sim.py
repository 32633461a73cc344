"""A simulated InfiniBand fabric: ibsim behind the real tools, which see it through a preloaded umad library."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustertop.sources.fabric import Output, run_here
from tools import need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TWO_LEVELS = """\
# ours: two leaves with two nodes each, and one spine
switchguid=0xaa0001(aa0001)
Switch	8 "S-0000000000aa0001"		# "MF0;torA:SIM/U1" base port 0 lid 21 lmc 0
[1]	"H-0000000000bb0010"[1]		# "n1 mlx5_0"
[2]	"H-0000000000bb0020"[1]		# "n2 mlx5_0"
[7]	"S-0000000000aa0009"[1]		# "spine"

Switch	8 "S-0000000000aa0002"		# "MF0;torB:SIM/U1" base port 0 lid 22 lmc 0
[1]	"H-0000000000bb0030"[1]		# "n3 mlx5_0"
[2]	"H-0000000000bb0040"[1]		# "n4 mlx5_0"
[7]	"S-0000000000aa0009"[2]		# "spine"

Switch	8 "S-0000000000aa0009"		# "spine" base port 0 lid 29 lmc 0
[1]	"S-0000000000aa0001"[7]
[2]	"S-0000000000aa0002"[7]

Ca	1 "H-0000000000bb0010"		# "n1 mlx5_0"
[1]	"S-0000000000aa0001"[1]

Ca	1 "H-0000000000bb0020"		# "n2 mlx5_0"
[1]	"S-0000000000aa0001"[2]

Ca	1 "H-0000000000bb0030"		# "n3 mlx5_0"
[1]	"S-0000000000aa0002"[1]

Ca	1 "H-0000000000bb0040"		# "n4 mlx5_0"
[1]	"S-0000000000aa0002"[2]
"""


class Fabric:
    """A running simulator, seen from one of its hosts."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, environ: dict[str, str]) -> None:
        self._process, self._log, self.environ = process, log, environ

    async def run(self, argv: Sequence[str], seconds: float) -> Output:
        """Run a tool of infiniband-diags on the fabric."""
        return await run_here(argv, seconds, self.environ)

    def tell(self, command: str, answer: str = "") -> None:
        """Give the simulator a command; *answer* is what its log has to say to it."""
        assert self._process.stdin is not None
        before = self._log.read_text("utf-8").count("sim>")
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        self._wait(lambda: self._log.read_text("utf-8").count("sim>") > before, command)
        assert answer in self._log.read_text("utf-8")

    def set(self, node: str, port: int, received: int, sent: int) -> None:
        """Set a port's 64-bit counters of data, in words of 4 octets."""
        for name, value in (("PortRcvData", received), ("PortXmitData", sent)):
            self.tell(f'PerformanceSet "{node}"[{port}] PortCountersExtended.{name}={value}', f"{name} has been set to {value}")

    def _wait(self, ready: object, what: str) -> None:
        deadline = time.monotonic() + 60
        while not ready():  # type: ignore[operator]
            assert self._process.poll() is None, self._log.read_text("utf-8")
            assert time.monotonic() < deadline, f"{what}: {self._log.read_text('utf-8')[-500:]}"
            time.sleep(0.02)


@contextmanager
def running(net: str, host: str, folder: Path, *, manager: str = "") -> Iterator[Fabric]:
    """Run ibsim on *net*, with routes made by opensm; tools attach at *host*, by its id or description.

    *manager* names another host where opensm goes on running, as tools that ask the subnet's administration need it.
    """
    need("ibnetdiscover", "infiniband-diags")
    opensm = need("opensm")
    simulator = need("ibsim", "ibsim-utils")
    libraries = sorted(Path("/usr").glob("lib*/**/umad2sim/libumad2sim.so"))
    if not libraries:
        pytest.fail("install ibsim-utils: its libumad2sim.so is missing")
    file, log = folder / "net", folder / "ibsim.log"
    file.write_text(net, "utf-8")
    name = f"ct{os.getpid()}.{abs(hash(str(folder))) % 99999}"
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "IBSIM_SOCKNAME": name, "OSM_CACHE_DIR": str(folder),
               "OSM_TMP_DIR": str(folder)}
    with log.open("wb") as out, subprocess.Popen(
            [simulator, "-s", file], stdin=subprocess.PIPE, stdout=out, stderr=out, env=environ) as process:
        service = None
        try:
            fabric = Fabric(process, log, {**environ, "LD_PRELOAD": str(libraries[0]), "SIM_HOST": host})
            fabric._wait(lambda: "sim>" in log.read_text("utf-8"), "start")
            command = [opensm, "-f", str(folder / "opensm.log")]
            if manager:
                service = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL, env={**fabric.environ, "SIM_HOST": manager})
                fabric._wait(lambda: b"Summary" in subprocess.run(
                    ["ibqueryerrors"], capture_output=True, timeout=240, check=False, env=fabric.environ).stdout, "subnet")
            else:
                subprocess.run([*command, "-o"], check=True, timeout=240, capture_output=True, env=fabric.environ)
            yield fabric
        finally:
            for one in (service, process):
                if one is not None:
                    one.terminate()
                    one.wait(60)
