"""Interfaces by netlink and by files, and what drivers count: in a network namespace with the kernel's own interfaces."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

import trees
from clustertop.probe import links
from clustertop.probe.files import Call, Tree
from clustertop.probe.frames import Err
from clustertop.probe.net import Net
from clustertop.probe.rdma import Rdma
from clustertop.signals import link
from netns import LINKS, inside
from probe.harness import interpreter
from tools import need

_PROBE = Path(links.__file__).resolve().parent.parent
READ = f"""
import json, sys
sys.path.insert(0, {str(_PROBE)!r})
from probe.ethtool import Ethtool
from probe.files import Call
names = json.loads(sys.argv[2])
print(json.dumps(Ethtool(names, Call()).read(sys.argv[3])))
"""
WATCH = """
import json, subprocess, sys, time
from clustertop.wire import bundle, messages
from probe.harness import NONCE, Run
from clustertop.wire.transport import PollSettings

python, how = sys.argv[2:4]
args = bundle.probe_args(PollSettings(interval_seconds=0.2), NONCE)
args["every"] = dict.fromkeys(args["every"], 0.2)
args["groups"] = ["host", "net"]
args["statistics"] = args["statistics"] + ["rx_queue_#_drops"]
run = Run(python, args)
first = run.next()
out = {"first": first.g["net"].st}
run.until(lambda values: "net" in values.facts)
out["before"] = dict(run.values.facts)
if how == "sent":
    run.send(bundle.request_line(messages.request()))
    run.until(lambda values: values.facts.get("net") == "netlink (pyroute2)")
elif how == "broken":
    run.request(do="messages", data="bm8gYnVuZGxl")
    run.until(lambda values: "pyroute2:" in values.facts.get("net", ""))
else:
    run.until(lambda values: "link" in values.rows)
values = run.values
out.update(fact=values.facts["net"], attrs=values.attrs["link"], columns=values.columns["link"],
           drops=values.cell("link", "p0", "e:rx_queue_2_drops"), lo=values.cell("link", "lo", "e:rx_queue_2_drops"))
if how == "sent":
    before = run.frames[-1].g["net"].n
    subprocess.run(["ip", "addr", "add", "10.77.3.1/24", "dev", "p1"], check=True)
    subprocess.run(["ip", "link", "set", "mv0", "master", "br0"], check=True)
    run.until(lambda values: "10.77.3.1/24" in values.attrs["link"]["p1"].get("addresses", [])
              and "mv0" in values.attrs["link"]["br0"].get("members", []))
    out["readings"] = run.frames[-1].g["net"].n - before
status = open("/proc/%d/status" % run.process.pid).read()
out["peak"] = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
run.close()
print(json.dumps(out))
"""


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.11", "3.13"])
def test_what_drivers_count_is_what_the_tool_says(version: str) -> None:
    tool = need("ethtool")
    shown = f"{LINKS}\nping -c 3 -i 0.2 -I p1 ff02::1%p1 >/dev/null 2>&1 || true\n"
    texts = inside("import json,subprocess,sys; print(json.dumps(subprocess.run([sys.argv[2], '-S', 'p0'],"
                   " capture_output=True, text=True, check=True).stdout))", tool, links=shown)
    said = link.parse(texts)
    assert said["peer_ifindex"] > 0
    assert "rx_queue_2_drops" in said
    got = inside(READ, json.dumps([*said, "nothing_like_it"]), "p0", python=interpreter(version), links=shown)
    assert got.keys() == said.keys()
    assert got["peer_ifindex"] == said["peer_ifindex"]
    assert inside(READ, json.dumps(["rx_queue_#_drops"]), "p0", python=interpreter(version)).keys() == {
        "rx_queue_0_drops", "rx_queue_1_drops", "rx_queue_2_drops"}  # fmt: skip


def test_interfaces_without_statistics_and_without_existence_have_none() -> None:
    assert inside(READ, '["rx_queue_#_drops"]', "lo") == {}
    assert inside(READ, '["rx_queue_#_drops"]', "absent0") == {}


@pytest.mark.parametrize("version", ["3.9", "3.11", "3.13"])
def test_netlink_by_the_second_bundle(version: str) -> None:
    """After the first frame; changes of membership and addresses are seen when they happen, not a minute later."""
    got = inside(WATCH, interpreter(version), "sent")
    assert got["first"] == "wait", "the first frame does not wait for it"
    assert got["before"]["net"] == "sysfs (pyroute2 was not sent)"
    assert got["fact"] == "netlink (pyroute2)"
    attrs = got["attrs"]
    assert attrs["br0"]["kind"] == "bridge"
    assert attrs["br0"]["members"] == ["p0"]
    assert attrs["br0"]["addresses"][:2] == ["10.77.1.1/24", "10.77.2.1/25"]
    assert (attrs["p0"]["kind"], attrs["p0"]["master"]) == ("veth", "br0")
    assert "fd00:77::1/64" in attrs["p1"]["addresses"]
    assert (attrs["mv0"]["kind"], attrs["mv0"]["under"]) == ("macvlan", "p1")
    assert "addresses" not in attrs["lo"], "127.0.0.1 is on every machine"
    assert not any(one["phys"] for one in attrs.values())
    assert got["drops"] == 0
    assert got["lo"] is None
    assert got["readings"] < 100, "of the 300 in a minute"
    assert got["peak"] < 30e6


@pytest.mark.parametrize(("version", "how"), [("3.6", "none"), ("3.8", "none"), ("3.13", "none"), ("3.13", "broken")])
def test_without_netlink_the_files_say_the_same(version: str, how: str) -> None:
    got = inside(WATCH, interpreter(version), how)
    attrs = got["attrs"]
    assert attrs["br0"]["kind"] == "bridge"
    assert attrs["br0"]["members"] == ["p0"]
    assert attrs["p0"]["master"] == "br0"
    assert attrs["br0"]["addresses"][:2] == ["10.77.1.1/24", "10.77.2.1/25"]
    assert "fd00:77::1/64" in attrs["p1"]["addresses"]
    assert "addresses" not in attrs["lo"]
    assert attrs["mv0"].get("under", "p1") == "p1"
    assert got["fact"].startswith("sysfs (pyroute2:" if how == "broken" else "sysfs (pyroute2 was not sent)")


def messages() -> Any:
    """The reader of messages with pyroute2 as it is installed here."""
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

    made = links._Messages.__new__(links._Messages)
    made._link, made._address = ifinfmsg, ifaddrmsg
    return made


def encoded(kind: Any, fields: dict[str, Any], attrs: list[tuple[str, Any]]) -> bytes:
    message = kind()
    message["header"]["type"] = 16
    for name, value in fields.items():
        message[name] = value
    message["attrs"] = attrs
    message.encode()
    return bytes(message.data)


def test_d3_bond_vlan_and_their_members() -> None:
    """Case D3: what lies on what is told, so that nothing is counted twice. This kernel may have no bonds: they are
    messages as a kernel that has them writes them."""
    made = messages()
    data = [encoded(made._link, {"index": index}, [("IFLA_IFNAME", name), *attrs]) for index, name, attrs in (
        (2, "nic0", [("IFLA_MASTER", 4)]), (3, "nic1", [("IFLA_MASTER", 4)]),
        (4, "bond0", [("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bond")]})]),
        (5, "bond0.20", [("IFLA_LINK", 4), ("IFLA_LINKINFO", {"attrs": [
            ("IFLA_INFO_KIND", "vlan"), ("IFLA_INFO_DATA", {"attrs": [("IFLA_VLAN_ID", 20)]})]})]),
        (6, "away", [("IFLA_LINK", 2), ("IFLA_LINK_NETNSID", 1)]),
    )]
    told = links.told(made.links(data), made.addresses([
        encoded(made._address, {"family": 2, "prefixlen": 20, "index": 5},
                [("IFA_ADDRESS", "10.9.0.1"), ("IFA_LOCAL", "10.9.0.2")]),
        encoded(made._address, {"family": 2, "prefixlen": 8, "index": 5, "scope": 254}, [("IFA_ADDRESS", "127.0.0.9")]),
        encoded(made._address, {"family": 2, "prefixlen": 8, "index": 99}, [("IFA_ADDRESS", "10.9.9.9")]),
    ]))
    assert told["bond0"] == {"kind": "bond", "members": ["nic0", "nic1"]}
    assert told["nic1"] == {"master": "bond0"}
    assert told["bond0.20"] == {"kind": "vlan", "under": "bond0", "vlan": 20, "addresses": ["10.9.0.2/20"]}
    assert told["away"] == {}, "an index of another namespace is not one of ours"


def test_more_addresses_than_are_told_are_counted() -> None:
    told = links.told({"kube": {}}, {"kube": [f"10.0.{n // 256}.{n % 256}/32" for n in range(300)]})
    assert len(told["kube"]["addresses"]) == links.MAX_ADDRESSES  # type: ignore[arg-type]
    assert told["kube"]["more_addresses"] == 300 - links.MAX_ADDRESSES


def dumped(*parts: bytes) -> Any:
    """Answers to a dump, read from a socket that says what it is told."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    class Kernel:
        def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
            return ours.recv(size), (0, 0)

    with ours, theirs:
        for part in parts:
            theirs.send(part)
        return links._answer(Kernel(), 1)  # type: ignore[arg-type]


def header(size: int, kind: int, flags: int = 0, number: int = 1) -> bytes:
    return struct.pack("=LHHLL", size, kind, flags, number, 0)


def test_answers_of_the_kernel() -> None:
    message = header(20, 16) + b"abcd"
    assert dumped(message + message, header(20, 3) + bytes(4)) == ([message, message], True)
    assert dumped(header(20, 16, number=7) + b"abcd", header(20, 3) + bytes(4)) == ([], True), "another's answer"
    assert dumped(message, header(20, 3, links._DUMP_INTERRUPTED) + bytes(4)) == ([message], False)
    with pytest.raises(OSError, match="not permitted"):
        dumped(header(20, 2) + struct.pack("=i", -1))
    with pytest.raises(ValueError, match="a message of 4000 bytes"):
        dumped(header(4000, 16) + b"abcd")


def bonded(tmp_path: Path) -> trees.NodeTree:
    """Two functions of one adapter in a bond with one RDMA device, and an adapter beside it in another bond."""
    node = trees.NodeTree(tmp_path / "node")
    node.host()
    for bdf in ("0000:31:00.0", "0000:31:00.1", "0000:41:00.0", "0000:41:00.1"):
        node.pci(bdf, kind="0x020000", driver="mlx5_core")
    for name, bdf in (("up0", "0000:31:00.0"), ("up1", "0000:31:00.1"), ("st0", "0000:41:00.0"), ("st1", "0000:41:00.1")):
        base = node.netdev(name, bdf)
        bond = "bond0" if name.startswith("up") else "bond1"
        node.write(f"sys/devices/virtual/net/{bond}/bonding/slaves", "up0 up1" if bond == "bond0" else "st0 st1")
        node.link(f"{base}/master", f"sys/devices/virtual/net/{bond}")
        node.link(f"sys/class/net/{bond}", f"sys/devices/virtual/net/{bond}")
    node.rdma("rocep49s0", "0000:31:00.0", link_layer="Ethernet")
    node.rdma("rocep65s0f0", "0000:41:00.0", link_layer="Ethernet")
    node.rdma("rocep65s0f1", "0000:41:00.1", link_layer="Ethernet")
    return node


def test_b6_a_bonded_device_is_known_by_what_it_carries_not_by_its_name(tmp_path: Path) -> None:
    """Case B6: one device on a bond of two interfaces stands for both; two devices on a bond each for its own."""
    node = bonded(tmp_path)
    reading = Rdma(Tree(str(node.root), Call())).read(0.0)
    rows = {attrs["dev"]: attrs for _, attrs in reading.tables["port"].rows}
    assert (rows["rocep49s0"]["bond"], rows["rocep49s0"]["netdevs"]) == ("bond0", ["up0", "up1"])
    assert rows["rocep49s0"]["netdev"] == "up0"
    assert (rows["rocep65s0f0"]["bond"], rows["rocep65s0f0"]["netdevs"]) == ("bond1", ["st0"])
    assert rows["rocep65s0f1"]["netdevs"] == ["st1"]


def test_below_another_root_only_its_files_count(tmp_path: Path) -> None:
    node = bonded(tmp_path)
    node.write("proc/net/if_inet6", "fd000000000000000000000000000009 02 40 00 80      up0\n"
                                    "00000000000000000000000000000001 01 80 10 80       lo\nbroken line")
    reading = Net(Tree(str(node.root), Call()), Call(), link.catalogue.patterns()).read(0.0)
    rows = {attrs["name"]: attrs for _, attrs in reading.tables["link"].rows}
    assert rows["bond0"]["members"] == ["up0", "up1"]
    assert rows["bond0"]["kind"] == "bond"
    assert rows["up0"]["addresses"] == ["fd00::9/64"]
    assert rows["up0"]["pci"] == "0000:31:00.0"
    assert all("addresses" not in attrs for name, attrs in rows.items() if name != "up0")
    assert reading.tables["link"].columns == []


def test_interfaces_that_cannot_be_listed_are_an_error_not_an_absence(tmp_path: Path) -> None:
    node = bonded(tmp_path)
    net = Net(Tree(str(node.root), Call()), Call(), [])
    before = net.read(0.0).tables["link"]
    (node.root / "sys/class/net").rename(node.root / "sys/class/gone")
    after = net.read(10.0).tables["link"]
    assert after.rows == before.rows
    assert after.error.startswith("ENOENT")


def test_statistics_that_fail_later_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from clustertop.probe import ethtool

    reader = ethtool.Ethtool(["rx_prio#_pause"], Call())
    reader._kept["eth9"] = (4, [(2, "rx_prio3_pause")])

    def gone(*_: object) -> bytes:
        raise OSError(19, "No such device")

    monkeypatch.setattr(ethtool.fcntl, "ioctl", gone)
    assert reader.read("eth9") == {"rx_prio3_pause": Err("ENODEV")}
    reader.close()


def test_a_count_that_changes_between_two_calls_costs_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that has more statistics than were asked for says so instead of writing them (or writes them all)."""
    from clustertop.probe import ethtool

    reader = ethtool.Ethtool(["rx_prio#_pause"], Call())
    reader._kept["eth9"] = (3, [(2, "rx_prio3_pause")])
    monkeypatch.setattr(reader, "_count", lambda name: 3)
    monkeypatch.setattr(reader, "_ioctl", lambda what, name, address: struct.pack_into("II", reader._room, 0, 0x1D, 0))
    assert reader.read("eth9") == {"rx_prio3_pause": Err("EAGAIN")}


def test_the_whole_of_pyroute2_is_not_what_is_sent() -> None:
    """What travels is small enough for one request line and is compiled by the oldest Python that it is sent to."""
    from clustertop.wire import messages as sent

    request = sent.request()
    assert request is not None
    assert len(json.dumps(request)) < 65536
    assert [sent.fits(version) for version in ("3.8.18", "3.9.0", "3.13.0", "?", "4.0.1")] == [
        False, True, True, False, True]  # fmt: skip
    code = ("import base64,json,sys,zlib\nfor name, text in json.loads(zlib.decompress(base64.b64decode(sys.stdin.read())))"
            ":\n    compile(text, name, 'exec')\nprint('compiled')")
    done = subprocess.run([interpreter("3.9"), "-c", code], input=str(request["data"]), capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.stdout.strip() == "compiled", done.stderr


def test_the_second_bundle_comes_after_the_first_frame() -> None:
    import asyncio

    from clustertop.wire.talk import Talk
    from clustertop.wire.transport import PollSettings

    class Receiver:
        def __init__(self) -> None:
            self.payloads: list[bytes] = []

        def on_payload(self, payload: bytes) -> None:
            self.payloads.append(payload)

        def on_noise(self, kind: str, sample: bytes) -> None:
            raise AssertionError(kind)

    async def talk(python: str, settings: PollSettings) -> list[int]:
        written: list[bytes] = []
        receiver = Receiver()
        one = Talk(settings, receiver)
        one.begin(written.append)
        one.feed(f"\n@@CT1 {one.nonce} ready {python}@@\n".encode())
        counts = [sum(b'"messages"' in part for part in written)]
        for number in (1, 2):
            one.feed(f"@@CT1 {one.nonce} {{\"q\":{number}}} {one.nonce} CT1@@\n".encode())
            counts.append(sum(b'"messages"' in part for part in written))
        assert len(receiver.payloads) == 2
        return counts

    assert asyncio.run(talk("3.11.2", PollSettings())) == [0, 1, 1]
    assert asyncio.run(talk("3.8.10", PollSettings())) == [0, 0, 0]
    assert asyncio.run(talk("3.11.2", PollSettings(root="/elsewhere"))) == [0, 0, 0]


