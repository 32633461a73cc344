"""Feeds, PDUs, BMCs, switches and the fabric in the configuration: what they become, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clustertop.config import ConfigError, load
from clustertop.config_site import SITE_NAMED, secret_keys
from clustertop.config_text import as_json, show, template
from clustertop.inventory import resolve as resolve_nodes
from clustertop.places import Feed, Site, SshSwitch, Supply
from clustertop.site import resolve, summary
from clustertop.sources.ipmi import Ipmi, IpmiTarget
from clustertop.sources.redfish import Redfish, RedfishTarget
from clustertop.sources.snmp_message import Community, Key, User
from clustertop.sources.snmp_target import SnmpTarget
from clustertop.topology_files import fill
from configs import clustertop, write

if TYPE_CHECKING:
    from clustertop.places import Device

PROFILES = Path(__file__).parents[2] / "src" / "clustertop" / "sources" / "profiles"
SECRET = "hunter2-in-clear"
NODES = """
[inventory]
nodes = "gpu[001-004]"
[racks]
r1 = "gpu[001-002]"
r2 = "gpu[003-004]"
[leaves]
leaf1 = "gpu[001-002]"
leaf2 = "gpu[003-004]"
"""
FULL = NODES + """
[feeds."r[1-2]-A"]
rating_amps = 32
volts = 230.0
phases = 3
pair = "r{1}-B"
pdu = "pdu-r{1}-a"
part = "inlet  1"
nodes = "@rack:r{1}"
psus = ["PSU1"]
[feeds."r[1-2]-B"]
rating_amps = 32
volts = 230.0
phases = 3
pdu = "pdu-r{1}-b"
nodes = "@rack:r{1}"
psus = ["PSU2"]
[pdus."pdu-r[1-2]-a,pdu-r[1-2]-b"]
host = "{name}.oob"
rack = "r{1}"
community = "env:TEST_COMMUNITY"
[bmcs."gpu[001-003]"]
host = "{node}.bmc"
user = "reader"
password = "env:TEST_PASSWORD"
[bmcs.gpu004]
over = "in-band"
interval_seconds = 90
[switches."leaf[1-2]"]
host = "{name}.oob"
uplinks = ["Ethernet4?"]
[fabric]
host = "gpu001"
ca = "mlx5_0"
"""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_COMMUNITY", SECRET)
    monkeypatch.setenv("TEST_PASSWORD", SECRET)


def site(folder: Path, text: str, *hosts: str, strict: bool = True) -> Site:
    loaded = load(write(folder, text), environ={})
    inventory = fill(resolve_nodes(hosts, loaded), loaded)
    return resolve(loaded, inventory, whole=not hosts, strict=strict)


def refusal(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        site(folder, text)
    assert SECRET not in str(caught.value)
    assert str(folder / "config.toml") in str(caught.value)
    return caught.value


def names(found: Site, kind: str) -> list[str]:
    return [one.name for one in found.devices if one.kind == kind]


def one(found: Site, name: str) -> Device:
    return next(each for each in found.devices if each.name == name)


def test_everything_is_resolved(tmp_path: Path) -> None:
    found = site(tmp_path, FULL)
    assert [feed.name for feed in found.feeds] == ["r1-A", "r2-A", "r1-B", "r2-B"]
    assert found.feeds[1] == Feed(
        "r2-A", 32.0, 230.0, 3, "star", "r2-B", "r2", "pdu-r2-a", "inlet 1",
        (Supply("gpu003", ("PSU1",)), Supply("gpu004", ("PSU1",))))
    assert found.feeds[2].pair == "r1-A", "a pair that one feed names is mutual"
    assert names(found, "pdu") == ["pdu-r1-a", "pdu-r2-a", "pdu-r1-b", "pdu-r2-b"]
    pdu = one(found, "pdu-r2-b")
    assert (pdu.where, pdu.rack, pdu.interval_seconds, pdu.options["profile"]) == ("pdu-r2-b.oob", "r2", 10.0, "")
    assert [(each.name, each.of, each.where, each.rack) for each in found.devices if each.kind == "bmc"] == [
        ("gpu001-bmc", "gpu001", "gpu001.bmc", "r1"), ("gpu002-bmc", "gpu002", "gpu002.bmc", "r1"),
        ("gpu003-bmc", "gpu003", "gpu003.bmc", "r2")]
    assert (found.in_band, found.in_band_seconds) == ({"gpu004"}, {"gpu004": 90.0})
    switch = one(found, "leaf2")
    assert (switch.leaf, switch.options["uplinks"]) == ("leaf2", ("Ethernet4?",))
    fabric = one(found, "fabric").access
    assert (getattr(fabric, "node", None), getattr(fabric, "ca", None)) == ("gpu001", "mlx5_0")
    assert found.notes == ()
    assert summary(found) == "4 feeds, 4 PDUs, 3 BMCs, 2 switches, 1 fabric, 1 node asked in-band"
    assert found
    assert not Site()


def test_without_any_section_there_is_nothing_but_sockets(tmp_path: Path) -> None:
    assert site(tmp_path, NODES) == Site(sockets_seconds=10.0)
    assert site(tmp_path, NODES + "[sockets]\nenabled = false").sockets_seconds is None
    assert site(tmp_path, NODES + "[sockets]\ninterval_seconds = 30").sockets_seconds == 30.0


def test_how_a_pdu_is_asked(tmp_path: Path) -> None:
    found = site(tmp_path, NODES + """
[pdus.a]
community = "env:TEST_COMMUNITY"
version = "1"
[pdus.b]
host = "fd00::7"
port = 1161
user = "reader"
auth_key = "env:TEST_PASSWORD"
auth_protocol = "sha512"
timeout_seconds = 5
retries = 0
profile = "apc-rpdu"
[pdus.c]
host = "[fd00::8]"
over = "redfish"
user = "reader"
password = "env:TEST_PASSWORD"
insecure = true
port = 8443
[pdus.d]
""")
    a, b, c, d = (one(found, name).access for name in "abcd")
    assert isinstance(a, SnmpTarget)
    assert a.agent().who == Community(Key(SECRET), 1)
    assert isinstance(b, SnmpTarget)
    agent = b.agent()
    assert (agent.host, agent.port, agent.timeout, agent.retries) == ("fd00::7", 1161, 5.0, 0)
    assert agent.who == User("reader", Key(SECRET), None, "SHA512", "AES")
    assert one(found, "b").where == "[fd00::7]:1161"
    assert one(found, "b").options["profile"] == "apc-rpdu"
    assert isinstance(c, RedfishTarget)
    assert (c.url, c.tls.insecure, one(found, "c").where) == ("https://[fd00::8]:8443", True, "[fd00::8]:8443")
    assert isinstance(d, SnmpTarget)
    assert d.agent().who == Community(Key("public"), 2)
    for each in found.devices:
        assert SECRET not in repr(each)


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    text = NODES + '[pdus.p]\nprofile = "mine.toml"'
    assert "No such file" in str(refusal(tmp_path, text))
    (tmp_path / "mine.toml").write_text("parts = 3  # no list")
    assert refusal(tmp_path, text).key == "pdus.p.profile"
    (tmp_path / "mine.toml").write_text((PROFILES / "apc-rpdu.toml").read_text("utf-8"))
    assert one(site(tmp_path, text), "p").options["profile"] == str(tmp_path / "mine.toml")


def test_what_is_made_of_bmcs_can_be_used(tmp_path: Path) -> None:
    pin = "ab" * 32
    found = site(tmp_path, NODES + f"""
[bmcs."@rack:r1"]
host = "10.0.0.{{1:d}}"
user = "reader"
password = "env:TEST_PASSWORD"
fingerprint = "{pin}"
basic = true
[bmcs."gpu[003-004]"]
over = "ipmi"
user = "reader"
password = "env:TEST_PASSWORD"
cipher = "17"
port = 6230
interval_seconds = 30
""")
    redfish, ipmi = one(found, "gpu002-bmc"), one(found, "gpu003-bmc")
    assert isinstance(redfish.access, RedfishTarget)
    assert (redfish.access.url, redfish.access.basic, redfish.interval_seconds) == ("https://10.0.0.2", True, 60.0)
    assert redfish.access.password.reveal() == SECRET
    Redfish(redfish.access)
    assert isinstance(ipmi.access, IpmiTarget)
    assert (ipmi.access.host, ipmi.access.port, ipmi.access.cipher, ipmi.access.privilege) == (
        "gpu003-bmc", 6230, "17", "USER")
    assert (ipmi.where, ipmi.interval_seconds) == ("gpu003-bmc:6230", 30.0)
    Ipmi(ipmi.access)


def test_a_switch_over_ssh_and_a_fabric_asked_from_elsewhere(tmp_path: Path) -> None:
    found = site(tmp_path, NODES + """
[switches.sw9]
over = "ssh"
leaf = "leaf1"
user = "ops"
port = 2222
[fabric]
host = "ops@head1:2200"
""")
    assert one(found, "sw9").access == SshSwitch("sw9", "ops", 2222)
    assert (one(found, "sw9").leaf, one(found, "sw9").where) == ("leaf1", "sw9:2222")
    fabric = one(found, "fabric").access
    assert [getattr(fabric, field) for field in ("node", "host", "user", "port")] == ["", "head1", "ops", 2200]


def test_a_secrets_file_is_beside_the_configuration(tmp_path: Path) -> None:
    text = NODES + '[pdus.a]\ncommunity = "file:keys/pdu"'
    assert refusal(tmp_path, text).key == "pdus.a.community"
    (tmp_path / "keys").mkdir()
    file = tmp_path / "keys" / "pdu"
    file.write_text(SECRET)
    file.chmod(0o644)
    error = refusal(tmp_path, text)
    assert "lets others read it" in str(error)
    assert "chmod 600" in str(error)
    noted = site(tmp_path, text, strict=False)
    assert len(noted.devices) == 1, "the nodes are watched all the same, and the PDU says why it is not"
    assert "pdus.a.community cannot be used" in noted.notes[0]
    file.chmod(0o600)
    access = site(tmp_path, text).devices[0].access
    assert isinstance(access, SnmpTarget)
    assert access.agent().who == Community(Key(SECRET), 2)


PDU = '[pdus."p[1-3]"]\n'
SNMP3 = '[pdus.p]\nuser = "u"\n'
BMC = '[bmcs."gpu001"]\nuser = "u"\npassword = "env:TEST_PASSWORD"\n'


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        # feeds
        ('[feeds.a]\nnodes = "gpu001"\npair = "b"', "feeds.a.pair", 'names "b", which is no table of [feeds]'),
        ('[feeds.r1A]\nnodes = "gpu001"\npair = "r1BB"\n[feeds.r1B]\nnodes = "gpu001"', "feeds.r1A.pair",
         "did you mean r1B?"),
        ('[feeds.a]\nnodes = "gpu001"\npair = "a"', "feeds.a.pair", "is the feed itself"),
        ('[feeds.a]\nnodes = "gpu001"\npair = "b"\n[feeds.b]\nnodes = "gpu001"\npair = "c"\n'
         '[feeds.c]\nnodes = "gpu001"', "feeds.a.pair", "is not mutual: a has b as its pair, and b has c"),
        ('[feeds.a]\nnodes = "gpu001"\npair = "c"\n[feeds.b]\nnodes = "gpu001"\npair = "c"\n'
         '[feeds.c]\nnodes = "gpu001"', "feeds.b.pair", "is not mutual: b has c as its pair, and c has a"),
        ('[feeds.a]\nnodes = "gpu001"\npair = "b"\n[feeds.b]\nnodes = "gpu001"\nphases = 3', "feeds.a.pair",
         "has 3 phases, and a has 1 phase"),
        ('[feeds.a]\npdu = "p4"\n' + PDU, "feeds.a.pdu", 'names "p4", which is no table of [pdus]; known are p1, p2, p3'),
        ('[feeds.a]\npdu = "p1"\npart = "rail 1"\n' + PDU, "feeds.a.part", '"branch B3" or "outlet 7"'),
        ('[feeds.a]\npdu = "p1"\npart = "bank"\n' + PDU, "feeds.a.part", 'not "bank"'),
        ('[feeds.a]\nnodes = "gpu001"\npart = "bank 1"', "feeds.a.part", "there is no pdu"),
        ('[feeds.a]\npdu = "p1"\n[feeds.b]\npdu = "p1"\n' + PDU, "feeds.b.part", "is the inlet of p1, which measures a"),
        ('[feeds.a]\npdu = "p1"\npart = "bank 1"\n[feeds.b]\npdu = "p1"\npart = "bank  1"\n' + PDU, "feeds.b.part",
         "is bank 1 of p1"),
        ('[feeds.a]\nnodes = "gpu001"\npsus = ["P1", "P2"]\n[feeds.b]\nnodes = "gpu[001-002]"\npsus = ["P2"]',
         "feeds.b.psus", "has P2 of gpu001, which hangs on a as well"),
        ('[feeds.a]\nnodes = "gpu001"\npsus = ["P1", "P1"]', "feeds.a.psus", "named twice"),
        ('[feeds.a]\npdu = "p1"\npsus = ["P1"]\n' + PDU, "feeds.a.psus", "there are no nodes"),
        ('[feeds.a]\nrating_amps = 16', "feeds.a", "is measured by nothing and no node hangs on it"),
        ('[feeds.a]\nnodes = "gpu001"\noutlets_name_nodes = true', "feeds.a.outlets_name_nodes", "needs a PDU"),
        ('[feeds.a]\nnodes = "gpu001"\nrating_amps = 0', "feeds.a.rating_amps", "must be more than 0"),
        ('[feeds.a]\nnodes = "gpu001"\nrating_amps = -16.0', "feeds.a.rating_amps", "not -16"),
        ('[feeds.a]\nnodes = "gpu001"\nvolts = 23000', "feeds.a.volts", "must be from 40 to 700 V"),
        ('[feeds.a]\nnodes = "gpu001"\nvolts = 12', "feeds.a.volts", "must be from 40 to 700 V"),
        ('[feeds.a]\nnodes = "gpu001"\nphases = 3\nvolts = 400', "feeds.a.volts", 'write 231, or wiring = "delta"'),
        ('[feeds.a]\nnodes = "gpu001"\nphases = 2', "feeds.a.phases", "must be 1 or 3, not 2"),
        ('[feeds.a]\nnodes = "gpu001"\nwiring = "wye"', "feeds.a.wiring", 'must be star or delta, not "wye"'),
        ('[feeds.a]\nnodes = "gpu[1"', "feeds.a.nodes", "a bracket is not closed"),
        ('[feeds.a]\nnodes = "@rack:r9"', "feeds.a.nodes", "rack r9 is not in the config"),
        ('[feeds.a]\nnodes = "@rack:r{1}"', "feeds.a.nodes", "has {1}; of a there are {name}"),
        ('[feeds.a]\nrating = 16', "feeds.a.rating", "did you mean rating_amps?"),
        ('[feeds."a[1-2"]\nnodes = "gpu001"', 'feeds."a[1-2"', "a bracket is not closed"),
        ('[feeds."a[1-2]"]\nnodes = "gpu001"\n[feeds.a2]\nnodes = "gpu001"', "feeds.a2", "has a2, which"),
        ('[feeds.fleet]\nnodes = "gpu001"', "feeds.fleet", "is no name that can be shown"),
        ('[feeds.gpu001]\nnodes = "gpu001"', "feeds.gpu001", "shares the name gpu001 with a node"),
        ('[feeds.p1]\nnodes = "gpu001"\n' + PDU, "feeds.p1", "shares the name p1 with a PDU"),
        ('[switches.p2]\n' + PDU, "switches.p2", "shares the name p2 with a PDU"),
        # PDUs
        ('[pdus.p]\ninterval_seconds = 5', "pdus.p.interval_seconds", "must be at least 10, not 5"),
        ('[pdus.p]\nprofile = "apc-rpd"', "pdus.p.profile", "is no profile; did you mean apc-rpdu?"),
        ('[pdus.p]\nover = "telnet"', "pdus.p.over", 'must be snmp or redfish, not "telnet"'),
        ('[pdus.p]\nversion = "4"', "pdus.p.version", 'must be "1", "2c" or "3", not "4"'),
        ('[pdus.p]\nversion = "3"', "pdus.p.user", "SNMP 3 asks for a user"),
        ('[pdus.p]\nversion = "2c"\nuser = "u"', "pdus.p.user", "is for SNMP 3"),
        (SNMP3 + 'community = "env:TEST_COMMUNITY"', "pdus.p.community", "is for SNMP 1 and 2c"),
        (SNMP3 + 'privacy_key = "env:TEST_COMMUNITY"', "pdus.p.privacy_key", "needs auth_key"),
        (SNMP3 + 'auth_protocol = "SHA3"', "pdus.p.auth_protocol", "must be one of MD5, SHA,"),
        (SNMP3 + 'privacy_protocol = "AES512"', "pdus.p.privacy_protocol", "must be one of DES,"),
        ('[pdus.p]\npassword = "env:TEST_PASSWORD"', "pdus.p.password", 'is for over = "redfish"'),
        ('[pdus.p]\nover = "redfish"\nuser = "u"\ncommunity = "env:TEST_COMMUNITY"', "pdus.p.community",
         'is for over = "snmp"'),
        ('[pdus.p]\nover = "redfish"', "pdus.p.user", "is missing"),
        ('[pdus.p]\nover = "redfish"\nuser = "u"', "pdus.p.password", "is missing"),
        ('[pdus.p]\nhost = "p 1"', "pdus.p.host", 'not "p 1"; a port goes to port'),
        ('[pdus.p]\nhost = "--help"', "pdus.p.host", "must be a host name or address"),
        (f'[pdus.p]\nhost = "admin:{SECRET}@p1"', "pdus.p.host", "a secret nowhere"),
        ('[pdus."p[01-02]"]\nhost = "10.0.0.{1}"', 'pdus."p[01-02]".host', 'is no address: "10.0.0.01"; a number'),
        ('[pdus.p]\nhost = "fd00:::1"', "pdus.p.host", "is no address"),
        (PDU + 'host = "p.oob"', 'pdus."p[1-3]".host', "is one host for several names"),
        # secrets
        (f'[pdus.p]\ncommunity = "{SECRET}"', "pdus.p.community", "never as the secret itself"),
        ('[pdus.p]\ncommunity = 12345', "pdus.p.community", "never as the secret itself"),
        (f'[pdus]\ncommunity = "{SECRET}"', "pdus.community", "write it under [pdus.NAME]"),
        (f'[fabric]\nhost = "root:{SECRET}@head1"', "fabric.host", "has a password in it"),
        (f'[pdus]\np = "{SECRET}"', "pdus.p", "must be a table"),
        ('[pdus.p]\ncommunity = "env:TEST_ABSENT"', "pdus.p.community", "the environment has no TEST_ABSENT"),
        ('[pdus.p]\ncommunity = "command:"', "pdus.p.community", "empty"),
        (f'[bmcs."gpu001"]\npassword = "{SECRET}"', "bmcs.gpu001.password", "never as the secret itself"),
        (f'[bmcs."gpu001"]\npasswort = "{SECRET}"', "bmcs.gpu001.passwort", "did you mean password?"),
        # BMCs
        (BMC + "interval_seconds = 9.5", "bmcs.gpu001.interval_seconds", "must be at least 10, not 9.5"),
        (BMC + 'over = "ilo"', "bmcs.gpu001.over", "must be redfish or ipmi or in-band"),
        ('[bmcs."gpu001"]\nuser = "u"', "bmcs.gpu001.password", "is missing"),
        ('[bmcs."gpu001"]\npassword = "env:TEST_PASSWORD"', "bmcs.gpu001.user", "is missing"),
        ('[bmcs."gpu001"]\nover = "in-band"\nuser = "u"', "bmcs.gpu001.user", "asked over the network"),
        (BMC + 'cipher = "3"', "bmcs.gpu001.cipher", 'is for over = "ipmi"'),
        (BMC + 'over = "ipmi"\nbasic = true', "bmcs.gpu001.basic", 'is for over = "redfish"'),
        (BMC + 'over = "ipmi"\ncipher = "x"', "bmcs.gpu001.cipher", 'must be a number as "17"'),
        (BMC + 'over = "ipmi"\nprivilege = "ROOT"', "bmcs.gpu001.privilege", "must be one of CALLBACK, USER"),
        (BMC + 'fingerprint = "ab"', "bmcs.gpu001.fingerprint", "64 hexadecimal digits"),
        (BMC + 'ca_file = "absent.pem"', "bmcs.gpu001.ca_file", "No such file"),
        (BMC + 'ca_file = "a.pem"\ninsecure = true', "bmcs.gpu001.insecure", "cannot stand beside ca_file"),
        (BMC + 'host = "{rack}-bmc"', "bmcs.gpu001.host", "has {rack}; of gpu001 there are {node}"),
        (BMC.replace("gpu001", "gpu[001-002]") + 'host = "bmc"', 'bmcs."gpu[001-002]".host', "one BMC for several"),
        (BMC + '[bmcs."gpu[001-002]"]\nover = "in-band"', 'bmcs."gpu[001-002]"', "has gpu001, which"),
        ('[bmcs."@gpus"]\nover = "in-band"', 'bmcs."@gpus"', "is not in the config"),
        # switches, fabric, the rest
        ('[switches.s]\ninterval_seconds = 1', "switches.s.interval_seconds", "must be at least 10"),
        ('[switches.s]\nover = "eapi"', "switches.s.over", 'must be snmp or ssh, not "eapi"'),
        ('[switches.s]\nover = "ssh"\ncommunity = "env:TEST_COMMUNITY"', "switches.s.community", 'over = "snmp"'),
        ('[switches.s]\nuplinks = ["e1"]\nhost_ports = ["e1"]', "switches.s.host_ports", 'has "e1", as uplinks has'),
        ('[switches.s]\nuplinks = [" "]', "switches.s.uplinks", "empty pattern"),
        ('[fabric]\nhost = "gpu[001-002]"', "fabric.host", "names 2 hosts; one asks"),
        ('[fabric]\nhost = "gpu001"\nca = "-x"', "fabric.ca", 'must be a name as "mlx5_0"'),
        ('[fabric]\ninterval_seconds = 2', "fabric.interval_seconds", "must be at least 10"),
        ('[nccl]\nlogs = ["~/nccl.log"]', "nccl.logs", "must be absolute paths"),
        ('[nccl]\nlogs = ["/var/log/../x"]', "nccl.logs", "must be absolute paths"),
        ('[nccl]\nnodes = "@x"', "nccl.nodes", "is not in the config"),
        ('[sockets]\ninterval_seconds = 1', "sockets.interval_seconds", "must be at least 2"),
        ('[traffic]\nhostfile = "absent"', "traffic.hostfile", "cannot be read: No such file"),
        ('[traffic]\nhostfile = "config.toml"', "traffic.hostfile", "is no host file: "),
    ],
)
def test_refusals(tmp_path: Path, text: str, key: str, says: str) -> None:
    error = refusal(tmp_path, NODES + text)
    assert error.key == key
    assert says in str(error)
    assert error.line > NODES.count("\n")


def test_a_section_that_is_a_secret_is_not_repeated(tmp_path: Path) -> None:
    error = refusal(tmp_path, f'pdus = "{SECRET}"')
    assert (error.key, error.line) == ("pdus", 1)
    assert "must be tables, each headed [pdus.NAME]" in str(error)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ('[feeds.a]\nvolts = 230\nrating_amps = 16\nnodes = "gpu[003-006]"',
         "feeds.a.nodes has nodes that are not in the inventory: gpu[005-006]"),
        ('[bmcs."gpu[003-005]"]\nover = "in-band"',
         'bmcs."gpu[003-005]" has nodes that are not in the inventory: gpu005'),
        ('[nccl]\nlogs = ["/l"]\nnodes = "login1"', "nccl.nodes has nodes that are not in the inventory: login1"),
        ('[feeds.a]\nnodes = "gpu001"', "feed a: no PDU and no volts, so the current cannot be estimated"),
        ('[feeds.a]\nvolts = 230\nnodes = "gpu001"', "feed a: no PDU and no rating_amps, so the load is not judged"),
        ('[feeds."a[1-2]"]\nvolts = 230\nrating_amps = 16\nnodes = "gpu001"',
         "feeds a[1-2]: no PDU, so the current is estimated from what BMCs or GPUs say"),
        ('[feeds.a]\npdu = "p"\nnodes = "gpu003"\npsus = ["P1", "P2"]\npair = "b"\n'
         '[feeds.b]\npdu = "q"\nnodes = "gpu001"\n[pdus.p]\n[pdus.q]',
         "gpu003 has both its supplies on feed a; one of them belongs on b"),
        ('[feeds.a]\npdu = "p"\nnodes = "gpu[003-004]"\npsus = ["P1", "P2", "P3"]\n[pdus.p]',
         "gpu[003-004] have all 3 their supplies on feed a; without a nothing feeds them"),
        ('[feeds.a]\npdu = "p"\nnodes = "gpu[001-003]"\npair = "b"\n[feeds.b]\npdu = "q"\nnodes = "gpu001"\n'
         "[pdus.p]\n[pdus.q]", "gpu[002-003] hang on feed a and not on its pair b"),
        ('[feeds.a]\npdu = "p"\nnodes = "gpu001"\npair = "b"\n[feeds.b]\npdu = "q"\n'
         '[feeds.c]\npdu = "s"\nnodes = "gpu001"\n[pdus.p]\n[pdus.q]\n[pdus.s]',
         "gpu001 hangs on feed a and not on its pair b, but on c"),
        ('[pdus.p]\nrack = "r3"', "no node is in rack r3; known are r1, r2"),
        ("[switches.leaf9]", "no node is below the leaf leaf9"),
    ],
)
def test_notes(tmp_path: Path, text: str, note: str) -> None:
    found = site(tmp_path, NODES + text)
    assert [said for said in found.notes if note in said], found.notes
    done = clustertop("config", "check", str(tmp_path / "config.toml"))
    assert done.returncode == 0
    assert f"warning: {note}" in done.stderr


def test_nodes_that_the_pdu_names_are_not_missed(tmp_path: Path) -> None:
    found = site(tmp_path, NODES + """
[feeds.a]
pdu = "p"
pair = "b"
nodes = "gpu001"
[feeds.b]
pdu = "q"
outlets_name_nodes = true
[pdus."p,q"]
""")
    assert found.notes == ()
    assert found.feeds[1].outlets_name_nodes


@pytest.mark.parametrize(
    ("part", "means"),
    [("", ""), ("inlet", "inlet"), ("phase L1", "phase L1"), ("branch  B3", "branch B3"), ("2: bank 1", "2: bank 1"),
     ("PDU 2:outlet 7", "PDU 2: outlet 7")],
)
def test_parts(tmp_path: Path, part: str, means: str) -> None:
    found = site(tmp_path, NODES + f'[feeds.a]\npdu = "p"\npart = "{part}"\n[pdus.p]')
    assert found.feeds[0].part == means


def test_hosts_keep_what_bears_on_them(tmp_path: Path) -> None:
    found = site(tmp_path, FULL, "gpu003")
    assert [feed.name for feed in found.feeds] == ["r2-A", "r2-B"]
    assert found.feeds[0].nodes == ("gpu003", "gpu004"), "what is not watched carries current as well"
    assert names(found, "pdu") == ["pdu-r2-a", "pdu-r2-b"]
    assert names(found, "bmc") == ["gpu003-bmc"]
    assert names(found, "switch") == ["leaf2"]
    assert names(found, "fabric") == []
    assert found.in_band == set()
    assert found.notes == ()


def test_hosts_keep_the_other_feed_of_a_pair(tmp_path: Path) -> None:
    text = NODES + """
[feeds.a]
pdu = "p"
pair = "b"
nodes = "gpu[001-002]"
[feeds.b]
pdu = "q"
nodes = "gpu002"
[feeds.c]
pdu = "s"
outlets_name_nodes = true
rack = "r2"
[pdus."p,q,s"]
"""
    found = site(tmp_path, text, "gpu001")
    assert [feed.name for feed in found.feeds] == ["a", "b"]
    assert found.notes == ("gpu001 hangs on feed a and not on its pair b",)
    assert names(found, "pdu") == ["p", "q"]
    assert [feed.name for feed in site(tmp_path, text, "gpu004").feeds] == ["c"]
    assert site(tmp_path, text, "gpu002").notes == ()


def test_hosts_with_a_leaf_from_files_keep_all_leaves_of_a_rail_optimised_node(tmp_path: Path) -> None:
    rows = ["node,port,leaf", "gpu001,ib0,rail1", "gpu001,ib1,rail2", "gpu002,ib0,rail3"]
    (tmp_path / "map.csv").write_text("\n".join(rows) + "\n")
    text = '[inventory]\nnodes = "gpu[001-002]"\n[topology]\ncsv = "map.csv"\n[switches."rail[1-3]"]\n'
    found = site(tmp_path, text, "gpu001")
    assert names(found, "switch") == ["rail1", "rail2"]
    assert site(tmp_path, text).notes == ()


def test_a_wrong_part_that_hosts_leave_out_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no table of"):
        site(tmp_path, NODES + '[feeds.a]\npdu = "x"\nnodes = "gpu004"', "gpu001")


def test_names_with_user_and_port(tmp_path: Path) -> None:
    found = site(tmp_path, """
[inventory]
nodes = "ops@lab:2201,ops@lab:2202,ops@gpu9"
[feeds.a]
volts = 230
rating_amps = 16
nodes = "lab:2202,gpu9"
[bmcs."lab:2201"]
over = "in-band"
""")
    assert found.feeds[0].nodes == ("ops@lab:2202", "gpu9")
    assert found.in_band == {"ops@lab:2201"}


def test_nccl_logs_and_the_order_of_ranks(tmp_path: Path) -> None:
    (tmp_path / "job.hosts").write_text("gpu003 slots=8\ngpu001 slots=8\n")
    found = site(tmp_path, NODES + '[nccl]\nlogs = ["/var/log/nccl/*.log"]\n[traffic]\nhostfile = "job.hosts"')
    assert found.nccl_logs == ("/var/log/nccl/*.log",)
    assert found.nccl_nodes == {"gpu001", "gpu002", "gpu003", "gpu004"}
    assert found.order == ("gpu003", "gpu001")
    found = site(tmp_path, NODES + '[nccl]\nlogs = ["/l"]\nnodes = "@rack:r1"', "gpu[002-003]")
    assert found.nccl_nodes == {"gpu002"}


def test_secrets_are_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(SECRET)
    file.chmod(0o600)
    text = FULL + f"""
[pdus.x]
user = "reader"
auth_key = "file:{file}"
privacy_key = "command:/bin/echo {SECRET}"
"""
    loaded = load(write(tmp_path, text), environ={})
    found = site(tmp_path, text)
    outputs = [show(loaded), as_json(loaded), repr(found), repr(loaded.config.racks)]
    for args in (("show",), ("show", "--json"), ("check",)):
        done = clustertop("config", *args, "-c", str(tmp_path / "config.toml"), TEST_COMMUNITY=SECRET,
                          TEST_PASSWORD=SECRET)
        assert done.returncode == 0, done.stderr
        outputs += [done.stdout, done.stderr]
    assert all(SECRET not in output for output in outputs)
    assert 'community = "env:TEST_COMMUNITY"' in outputs[0]
    assert 'privacy_key = "command:/bin/echo ..."' in outputs[0]
    assert json.loads(outputs[1])["values"]["pdus.x.auth_key"]["value"] == f"file:{file}"
    assert "beside the nodes: 4 feeds, 5 PDUs, 3 BMCs, 2 switches, 1 fabric, 1 node asked in-band\n" in outputs[-2]


def test_every_secret_is_marked_as_one() -> None:
    for struct in SITE_NAMED.values():
        written = {name for name in struct.__struct_fields__ if re.search("password|community|_key$", name)}
        assert secret_keys(struct) == written


def test_check_runs_no_command_and_start_goes_on_without_a_secret(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    path = write(tmp_path, NODES + f'[pdus.p]\ncommunity = "command:/usr/bin/touch {ran}"\n'
                                   '[pdus.q]\ncommunity = "env:TEST_ABSENT"')
    done = clustertop("config", "check", str(path))
    assert done.returncode == 3
    assert "pdus.q.community cannot be used: the environment has no TEST_ABSENT" in done.stderr
    loaded = load(path, environ={})
    found = resolve(loaded, resolve_nodes((), loaded))
    assert names(found, "pdu") == ["p", "q"]
    assert not ran.exists()


def test_the_plan_has_the_site(tmp_path: Path) -> None:
    import argparse

    from clustertop.commands.common import load_plan

    path = write(tmp_path, FULL)
    args = {"config": str(path), "hosts_file": None, "interval": None, "state": "none", "unsafe": None}
    plan, _ = load_plan(argparse.Namespace(hosts=[], **args))
    assert len(plan.site.feeds) == 4
    plan, _ = load_plan(argparse.Namespace(hosts=["gpu001"], **args))
    assert [feed.name for feed in plan.site.feeds] == ["r1-A", "r1-B"]
    path.write_text(FULL.replace('default_group = ""', "").replace("[racks]", 'default_group = "r2"\n[racks]', 1))
    plan, _ = load_plan(argparse.Namespace(hosts=[], **args))
    assert [feed.name for feed in plan.site.feeds] == ["r2-A", "r2-B"]


def test_the_examples_of_the_template_make_a_site(tmp_path: Path) -> None:
    text = template()
    start = text.index("# One breaker and what hangs on it")
    examples = re.sub(r"^# (\w+ = |\[)", r"\1", text[start:], flags=re.MULTILINE)
    examples = examples.replace("env:", "command:/bin/echo ").replace("file:", "command:/bin/echo ")
    more = ('[feeds."r[1-8]-B"]\nnodes = "@rack:r{1}"\nphases = 3\nvolts = 230\n[inventory]\nnodes = "gpu[001-064]"\n'
            "[racks]\n" + "".join(f'r{rack} = "gpu[{rack * 8 - 7:03}-{rack * 8:03}]"\n' for rack in range(1, 9)))
    found = site(tmp_path, examples + more)
    assert summary(found) == "16 feeds, 8 PDUs, 64 BMCs, 4 switches"


def test_the_examples_of_the_documentation_are_right(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "power.md").read_text("utf-8")
    rack, racks, switches = (
        re.sub(r'"(?:env|file):[^"]*"', '"env:TEST_PASSWORD"', block)
        for block in re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL))
    assert summary(site(tmp_path, rack)) == "2 feeds, 2 PDUs, 16 BMCs"
    nodes = "[racks]\n" + "".join(f'r{one} = "gpu[{one * 16 - 15:03}-{one * 16:03}]"\n' for one in range(1, 9))
    found = site(tmp_path, nodes + racks + switches)
    assert summary(found) == "16 feeds, 16 PDUs, 128 BMCs, 5 switches, 1 fabric"
    assert found.notes == ()
    assert one(found, "gpu007-bmc").where == "10.0.8.7"
    kinds = {match[1] for match in re.finditer(r"^config\.toml, line \d+: \S+ (.{12})", text, flags=re.MULTILINE)}
    assert kinds == {"is not mutua", "is line to n"}


def test_a_site_costs_a_start_little(tmp_path: Path) -> None:
    """Without sections nothing of SNMP, HTTP or TLS is loaded."""
    code = ("import sys\nfrom clustertop.config import load\nfrom clustertop.inventory import resolve as nodes\n"
            "from clustertop.site import resolve\n"
            "loaded = load(sys.argv[1], environ={})\nresolve(loaded, nodes((), loaded))\n"
            "print([name for name in ('pysnmp', 'httpx', 'asyncssh') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code, str(write(tmp_path, NODES))], capture_output=True, text=True,
                          timeout=240, check=True)
    assert done.stdout == "[]\n"
