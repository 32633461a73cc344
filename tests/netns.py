"""Network namespaces of our own: interfaces that the kernel really has, and nothing outside them is touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools import need

_HERE = Path(__file__).resolve().parent
LINKS = """
mount -t sysfs none /sys
ip link set lo up
ip link add br0 type bridge
ip link add p0 numtxqueues 3 numrxqueues 3 type veth peer name p1
ip link set p0 master br0
ip link set p0 mtu 1400 up
ip link set p1 up
ip link set br0 up
ip addr add 10.77.1.1/24 dev br0
ip addr add 10.77.2.1/25 dev br0
ip addr add fd00:77::1/64 dev p1 nodad
ip link add link p1 name mv0 type macvlan
"""
"""A bridge with one end of a veth pair, a macvlan on the other, two IPv4 addresses and one IPv6."""


def inside(script: str, *arguments: str, python: str = sys.executable, links: str = LINKS,
           seconds: float = 240) -> Any:
    """Run *script*, Python that prints JSON, in a namespace with *links*; its module path is ours."""
    need("ip", "iproute2")
    shell = f"set -e\n{links}\nexec \"$0\" -c \"$1\" \"$@\""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": f"{_HERE}:{_HERE.parent / 'src'}"}
    done = subprocess.run(
        [need("unshare", "util-linux"), "-n", "-m", "--propagation", "private", "sh", "-c", shell, python, script,
         *arguments], capture_output=True, text=True, timeout=seconds, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
