"""``clustertop rules``: what is in force, where it came from, on how much it applies; and nothing is connected to."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.rules.spec import builtin
from configs import clustertop, write
from ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
[racks]
r1 = "gpu[001-004]"
r2 = "gpu[005-008]"
[poll]
interval_seconds = 4
[rules.gpu_temperature]
critical = { limit = -2, for_seconds = 30 }
groups = ["r2"]
[rules.rdma_wait]
enabled = false
[rules.too_hot]
title = "too hot"
table = "gpu"
metric = "temperature_celsius"
warning = 75
models = ["*H100*"]
nodes = "gpu[002-003]"
"""


def block(text: str, name: str) -> dict[str, str]:
    """A rule's lines by their first word."""
    lines = next(part for part in text.split("\n\n") if part.startswith(f"{name}:")).splitlines()
    return {"": lines[0], **{line[2:11].strip(): line[12:] for line in lines[1:]}}


def test_every_rule_is_listed_with_its_limits_scope_and_origin(tmp_path: Path) -> None:
    path = write(tmp_path, CONFIG)
    done = clustertop("rules", "-c", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    names = [part.partition(":")[0] for part in done.stdout.split("\n\n")[:-1]]
    assert names == [*builtin(), "too_hot"]
    assert done.stdout.splitlines()[-1] == f"{len(builtin())} rules in force, 1 switched off: rdma_wait"
    temperature = block(done.stdout, "gpu_temperature")
    assert temperature["warning"] == "<= 5 °C at 2 readings; at most 9.0 s late (builtin)"
    assert temperature["critical"] == f"<= -2 °C for 30 s at 2 readings; at most 36 s late ({path}:7)"
    assert temperature["clear"] == "> 8 °C at 3 readings (builtin)"
    assert temperature["for"] == "4 of 8 nodes: gpu[005-008] (groups r2)"
    assert temperature["set"] == f"groups {path}:8"
    assert "now" not in temperature
    own = block(done.stdout, "too_hot")
    assert own[""] == "too_hot: too hot - your own"
    assert own["warning"] == f"> 75 °C; at most 5.0 s late ({path}:15)"
    assert own["for"] == "2 of 8 nodes: gpu[002-003], models *H100*"
    assert block(done.stdout, "rdma_wait")[""] == f"rdma_wait: RDMA port waits far above peers - OFF ({path}:10)"


def test_json_has_every_value_with_its_origin(tmp_path: Path) -> None:
    path = write(tmp_path, CONFIG)
    made = json.loads(clustertop("rules", "gpu003,gpu006", "-c", str(path), "--json").stdout)
    assert made["nodes"] == 2
    rules: dict[str, Any] = {rule["name"]: rule for rule in made["rules"]}
    assert set(rules) == {*builtin(), "too_hot"}
    assert rules["gpu_temperature"]["levels"]["critical"] == {
        "limit": {"value": -2.0, "origin": f"{path}:7"}, "for_seconds": {"value": 30.0, "origin": f"{path}:7"},
        "for_polls": {"value": 2, "origin": "builtin"}, "detects_within_seconds": 4 + 30 + 0.5 + 1}
    assert rules["gpu_temperature"]["scope"] == {
        "nodes": ["gpu006"], "groups": ["r2"], "models": [], "origin": f"{path}:8"}
    assert rules["gpu_ecc"]["scope"]["nodes"] == ["gpu003", "gpu006"]
    assert rules["too_hot"]["scope"]["nodes"] == ["gpu003"]
    assert rules["too_hot"]["built_in"] is False
    assert rules["rdma_wait"]["enabled"] == {"value": False, "origin": f"{path}:10"}
    assert all(rule["applies"] is None for rule in made["rules"])
    assert all(rule["look"]["value"] and rule["source"]["value"] for rule in made["rules"] if rule["built_in"])


def test_without_live_nothing_is_connected_to(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        path = write(tmp_path, f'[inventory]\nnodes = "n1"\n[host.n1]\nhost = "127.0.0.1"\nport = {port}\n')
        assert clustertop("rules", "-c", str(path)).returncode == 0
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_live_counts_the_things_of_this_machine() -> None:
    done = clustertop("rules", "--live", "--seconds", "1", "--json")
    assert (done.returncode, done.stderr) == (0, "note: 1 of 1 nodes read\n")
    rules = {rule["name"]: rule for rule in json.loads(done.stdout)["rules"]}
    assert rules["node_clock"]["applies"] == {"known": 1, "unknown": 0, "why": None}
    assert rules["group_failed"]["applies"]["known"] == 8, "gpu, pcie, rdma, host, net, disk, screen, sockets"
    assert rules["gpu_count"]["applies"]["known"] == 0


def test_live_without_a_node_that_answers_is_status_3(tmp_path: Path) -> None:
    port = free_port()
    path = write(tmp_path, f'[inventory]\nnodes = "n1"\n[host.n1]\nhost = "127.0.0.1"\nport = {port}\n')
    done = clustertop("rules", "-c", str(path), "--seconds", "0.1", "--timeout", "3")
    assert done.returncode == 3
    assert done.stderr == "note: 0 of 1 nodes read\n"
    assert block(done.stdout, "node_unreachable")["now"] == "1 judged"
