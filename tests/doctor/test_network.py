"""The doctor on this machine's own network, in network namespaces that the test makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tools import need

UP = ("ip link add eth9 type veth peer name eth8 && ip addr add 192.0.2.9/24 dev eth9 && ip link set eth8 up"
      " && ip link set eth9 up")


def network(setup: str) -> tuple[str, str]:
    """State and sentence of the check ``local.network`` in a namespace made ready by *setup*."""
    need("ip", "iproute2")
    if os.geteuid() != 0:
        pytest.skip("run as root: network namespaces need it")
    script = f'{setup} && exec "$0" -m clustertop doctor 127.0.0.1:1 --json'
    done = subprocess.run(
        [need("unshare", "util-linux"), "-n", "sh", "-c", script, sys.executable], capture_output=True, text=True,
        timeout=240, check=False, stdin=subprocess.DEVNULL, env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"})
    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "local.network"]
    return found["state"], found["text"]


def test_no_link_is_the_machines_own_fault() -> None:
    assert network("ip link set lo up") == ("fail", "no network link of this machine is up")


def test_a_link_without_a_default_route_is_a_warning() -> None:
    state, text = network(UP)
    assert state == "warn"
    assert "links up: eth8, eth9; no default route" in text


def test_link_and_route_are_named() -> None:
    state, text = network(f"{UP} && ip route add default via 192.0.2.1")
    assert state == "ok"
    assert text == "links up: eth8, eth9; default route by eth9"
