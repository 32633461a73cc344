"""The doctor asks PDUs and BMCs: a real SNMP agent, an HTTPS Redfish service, ipmi_sim, and nobody at all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from bmc.server import PASSWORD, USER, Certificates, RedfishServer, node_tree
from clustertop.doctor import Finding, exit_status
from clustertop.doctor_device import DEVICE_CHECKS, MOST_DEVICES, examine
from clustertop.doctor_node import NODE_CHECKS
from clustertop.places import Device
from clustertop.sources.ipmi import IpmiTarget
from clustertop.sources.secret import Secret
from pdus import snmpsim
from ports import free_port, free_udp_port

if TYPE_CHECKING:
    from pathlib import Path

COMMUNITY = "Rohrdommel-7-still"


def config(tmp_path: Path, agent: int, server: RedfishServer) -> Path:
    """Two PDUs (one with a wrong community), three BMCs (one with a wrong password, one whose secret is open to all)."""
    (tmp_path / "good").write_text(PASSWORD + "\n", encoding="utf-8")
    (tmp_path / "wrong").write_text("Wiedehopf-falsch-3\n", encoding="utf-8")
    (tmp_path / "open").write_text(PASSWORD + "\n", encoding="utf-8")
    for name, mode in (("good", 0o600), ("wrong", 0o600), ("open", 0o644)):
        (tmp_path / name).chmod(mode)
    path = tmp_path / "config.toml"
    lines = ['[inventory]\nnodes = "n[1-3]"', '[ssh]\nconnect_timeout_seconds = 2',
             *(f'[host.n{number}]\nhost = "127.0.0.1"\nport = {free_port()}' for number in (1, 2, 3))]
    for name, community in (("pdu-good", "env:CT_DOCTOR"), ("pdu-bad", "env:CT_DOCTOR_BAD")):
        lines.append(f'[pdus.{name}]\nhost = "127.0.0.1"\nport = {agent}\ncommunity = "{community}"\n'
                     "timeout_seconds = 1\nretries = 0")
        lines.append(f'[feeds.{name}-feed]\nrating_amps = 32\nvolts = 230\npdu = "{name}"\nnodes = "n[1-3]"')
    for number, secret in ((1, "good"), (2, "wrong"), (3, "open")):
        lines.append(f'[bmcs.n{number}]\nhost = "127.0.0.1"\nport = {urlsplit(server.url).port}\nuser = "{USER}"\n'
                     f'password = "file:{tmp_path / secret}"\nca_file = "{server.certificates.ca_file}"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


def test_each_device_is_asked_once_and_says_what_stops_it(tmp_path: Path, certificates: Certificates) -> None:
    from pdus import OURS

    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / f"{COMMUNITY}.snmprec").write_bytes((OURS / "apc-rpdu.snmprec").read_bytes())
    server = RedfishServer(node_tree(), certificates)
    environ = {**os.environ, "CT_DOCTOR": COMMUNITY, "CT_DOCTOR_BAD": "Rohrdommel-8-laut"}
    try:
        with snmpsim({"": tmp_path / "recordings"}, tmp_path / "agent") as agent:
            done = subprocess.run(
                [sys.executable, "-m", "clustertop.cli", "doctor", "n[1-3]", "-c", str(config(tmp_path, agent.port, server)),
                 "--json"], capture_output=True, text=True, timeout=240, check=False, env=environ)
    finally:
        server.close()
    found = {(one["node"], one["check"]): one for one in json.loads(done.stdout)["findings"]}
    assert found["pdu-good", "device.reach"]["state"] == "ok"
    assert found["pdu-good", "device.reading"]["state"] == "ok"
    silent = found["pdu-bad", "device.reach"]
    assert silent["state"] == "fail"
    assert "unreachable: no answer from 127.0.0.1" in silent["text"]
    assert "community" in silent["todo"]
    assert found["n1-bmc", "device.reach"]["state"] == "ok"
    refused = found["n2-bmc", "device.reach"]
    assert (refused["state"], "auth failed" in refused["text"]) == ("fail", True)
    assert "check user and secret" in refused["todo"]
    kept = found["n3-bmc", "device.reach"]
    assert kept["state"] == "fail"
    assert str(tmp_path / "open") in kept["text"]
    # Sessions are given back, and no secret is told.
    assert server.sessions == {}
    for secret in (PASSWORD, COMMUNITY, "Wiedehopf-falsch-3", "Rohrdommel-8-laut"):
        assert secret not in done.stdout + done.stderr


async def test_without_ipmitool_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CT_DOCTOR", "egal")
    target = IpmiTarget("127.0.0.1", "reader", Secret.from_spec("env:CT_DOCTOR"), free_udp_port())
    (found,) = await examine([Device("n1-bmc", "bmc", target, "127.0.0.1", "n1", options={"over": "ipmi"})])
    assert (found.check, found.state, found.node) == ("device.reach", "fail", "n1-bmc")
    assert "ipmitool" in found.text
    assert found.todo == "install ipmitool on this machine"


async def test_what_takes_requests_and_says_nothing_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from clustertop import doctor_device
    from clustertop.sources.redfish import RedfishTarget
    from clustertop.sources.tls import Tls

    monkeypatch.setattr(doctor_device, "READING_SECONDS", 1.0)
    monkeypatch.setenv("CT_DOCTOR", "egal")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}"
        target = RedfishTarget(url, USER, Secret.from_spec("env:CT_DOCTOR"), tls=Tls(insecure=True))
        (found,) = await examine([Device("n1-bmc", "bmc", target, "n1-bmc", "n1", options={"over": "redfish"})])
    assert (found.check, found.state) == ("device.reach", "unknown")
    assert found.text == "BMC at n1-bmc gave no whole reading within 1 s"


async def test_no_more_than_a_few_hundred_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = [Device(f"d{number}", "switch", None, f"d{number}") for number in range(MOST_DEVICES + 3)]
    found = await examine(nobody)
    assert len(found) == MOST_DEVICES + 1
    assert (found[-1].state, found[-1].text) == ("unknown", "3 more devices not asked; name fewer HOSTS")


def test_a_device_out_of_reach_is_unknown_and_no_failure() -> None:
    assert exit_status([Finding("device.reach", "fail", "no answer", "", "pdu-a")]) == 3
    assert exit_status([Finding("device.reading", "warn", "no profile", "", "pdu-a")]) == 1
    assert not {*DEVICE_CHECKS} & {*NODE_CHECKS}
