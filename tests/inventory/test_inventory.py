"""From HOSTS, a hosts file and the config to nodes with their places."""

from __future__ import annotations

import dataclasses
import platform
from typing import TYPE_CHECKING

import pytest

from clustertop.config import Config, ConfigError, Expect, HostOverride, InventoryConfig, Ssh, load
from clustertop.inventory import InventoryError, local_inventory, read_hosts_file, resolve
from clustertop.settings import expect_gpus, expect_width, poll_settings
from clustertop.wire.transport import PollSettings

if TYPE_CHECKING:
    from pathlib import Path

FLEET = Config(
    inventory=InventoryConfig(nodes="gpu[001-004],login1"),
    racks={"r1": "gpu[001-002]", "r2": "gpu[003-004]"},
    leaves={"leaf1": "@r[1-2]"},
    groups={"a100": "gpu[001-003]", "train": "@a100,gpu004"},
    host={"gpu[003-004]": HostOverride(host="10.0.0.9", port=2222, user="ops")},
    ssh=Ssh(unchecked_hosts="@r2"),
)


def test_nothing_said_is_this_machine() -> None:
    inventory = resolve([])
    assert inventory == local_inventory()
    assert inventory.local
    assert [node.name for node in inventory.nodes] == [platform.node()]
    assert not resolve(["localhost"]).local


def test_the_config_places_its_nodes() -> None:
    inventory = resolve([], FLEET)
    assert inventory.folded == "gpu[001-004],login1"
    assert inventory.racks == ("r1", "r2")
    node = inventory.nodes[inventory.index["gpu003"]]
    assert (node.rack, node.leaf, node.groups) == ("r2", "leaf1", ("a100", "train"))
    assert (node.target, node.port, node.user) == ("10.0.0.9", 2222, "ops")
    first = inventory.nodes[0]
    assert (first.target, first.port, first.user) == ("gpu001", 0, "")
    assert inventory.unchecked == {"gpu003", "gpu004"}
    assert inventory.notes == ()


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        (["@r2"], ["gpu003", "gpu004"]),
        (["@rack:r1", "login1"], ["gpu001", "gpu002", "login1"]),
        (["@leaf:leaf1!@r1"], ["gpu003", "gpu004"]),
        (["@train&@r1"], ["gpu001", "gpu002"]),
        (["@*"], ["gpu001", "gpu002", "gpu003", "gpu004", "login1"]),
        (["login1", "gpu[002,001]"], ["login1", "gpu002", "gpu001"]),
    ],
)
def test_hosts_name_groups_and_keep_order(hosts: list[str], names: list[str]) -> None:
    assert [node.name for node in resolve(hosts, FLEET).nodes] == names


def test_what_is_written_at_the_host_counts_before_the_config() -> None:
    node = resolve(["me@gpu003:22"], FLEET).nodes[0]
    assert (node.name, node.target, node.user, node.port, node.rack) == ("gpu003", "10.0.0.9", "me", 22, "r2")
    assert resolve(["x"], Config(ssh=Ssh(port=2022))).nodes[0].port == 2022


def test_one_host_on_several_ports_is_several_nodes() -> None:
    config = Config(racks={"r1": "127.0.0.1:2201"})
    nodes = resolve(["127.0.0.1:2201,127.0.0.1:2202"], config).nodes
    assert [node.name for node in nodes] == ["127.0.0.1:2201", "127.0.0.1:2202"]
    assert [(node.target, node.port, node.rack) for node in nodes] == [
        ("127.0.0.1", 2201, "r1"),
        ("127.0.0.1", 2202, ""),
    ]
    assert len({node.name for node in resolve(["a@h,b@h,h:1,[::1]:5,::1"]).nodes}) == 5


def test_without_an_inventory_the_racks_are_it() -> None:
    assert resolve([], Config(racks={"r1": "a[1-2]"}, leaves={"l": "b1"})).folded == "a[1-2]"
    assert resolve([], Config(leaves={"l": "b1"})).folded == "b1"
    assert resolve([], with_inventory(default_group="a100")).folded == "gpu[001-003]"


def with_inventory(**inventory: str) -> Config:
    return Config(inventory=InventoryConfig(nodes="gpu[001-004],login1", **inventory), groups={"a100": "gpu[001-003]"})


def test_a_hosts_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_bytes(b"\xef\xbb\xbf# the fleet\r\n\r\ngpu[1-2] # two\r\nops@gpu3:22\r\ngpu1\r\n")
    assert read_hosts_file(path) == [(3, "gpu[1-2]"), (4, "ops@gpu3:22"), (5, "gpu1")]
    inventory = resolve(["login1"], None, path)
    assert [node.name for node in inventory.nodes] == ["login1", "gpu1", "gpu2", "gpu3"]
    assert inventory.notes == ("named more than once, watched once: gpu1",)
    config = tmp_path / "config.toml"
    config.write_text('[inventory]\nhosts_file = "hosts.txt"\n')
    assert resolve([], load(config, environ={})).folded == "gpu[1-3]"
    path.write_text("a\nb[1-\n")
    for hosts, file in (([], None), (["x"], path)):
        with pytest.raises(InventoryError, match="a bracket is not closed") as caught:
            resolve(hosts, load(config, environ={}), file)
        assert (caught.value.file, caught.value.line) == (str(path), 2)
    path.write_text("a[1-6000]\nb[1-6000]\n")
    with pytest.raises(InventoryError, match="more than 10,000 nodes"):
        resolve([], None, path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(InventoryError, match="not UTF-8"):
        resolve([], None, path)
    with pytest.raises(InventoryError, match="cannot be read"):
        resolve([], None, tmp_path / "absent")


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        (["gpu[1-"], "a bracket is not closed"),
        (["@nope"], "group nope is not in the config"),
        (["@rack:a100"], "rack a100 is not in the config; known are r1, r2"),
        (["@row:1"], "write @NAME, @group:NAME, @rack:NAME or @leaf:NAME"),
        (["@"], "@ alone names no group"),
        ([""], "no host is left"),
        (["gpu001!gpu001"], "no host is left"),
        (["a[1-20000]"], "at most 10,000"),
    ],
)
def test_wrong_hosts_are_one_sentence(hosts: list[str], says: str) -> None:
    with pytest.raises(InventoryError) as caught:
        resolve(hosts, FLEET)
    assert says in str(caught.value)
    assert str(caught.value).startswith("HOSTS: ")
    assert isinstance(caught.value, ConfigError)


def test_ten_thousand_racked_nodes() -> None:
    config = Config(racks={f"r{n:03d}": f"n[{n * 100:05d}-{n * 100 + 99:05d}]" for n in range(100)})
    inventory = resolve([], config)
    assert len(inventory) == 10_000
    assert inventory.nodes[150].rack == "r001"


WIDTHS = (
    Expect(gpus=8),
    Expect(group="r2", gpus=4),
    Expect(device="gpu", width=16),
    Expect(nodes="gpu001", device="nic", width=8),
    Expect(device="15b3:0x1021", width=4),
    Expect(device="17:00.0", width=2),
)


def test_expected_hardware() -> None:
    inventory = resolve([], Config(inventory=FLEET.inventory, racks=FLEET.racks, expect=WIDTHS))
    gpus, width = expect_gpus(inventory), expect_width(inventory)
    assert [gpus(node) for node in inventory.nodes] == [8, 8, 4, 4, 8]
    first, second = inventory.nodes[:2]
    gpu = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"}
    nic = {"class": "0x020000", "vendor": "0x8086", "device": "0x1021"}
    model = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021"}
    assert width(first, "0000:18:00.0", gpu) == 16.0
    assert width(first, "0000:17:00.0", gpu) == 2.0
    assert width(first, "0001:17:00.0", gpu) == 16.0
    assert (width(first, "0000:01:00.0", nic), width(second, "0000:01:00.0", nic)) == (8.0, None)
    assert width(first, "0000:01:00.0", model) == 4.0
    assert width(first, "0000:02:00.0", {}) is None


def test_settings_of_the_wire(tmp_path: Path) -> None:
    assert poll_settings(Config()) == PollSettings()
    (tmp_path / "kh").touch()
    path = tmp_path / "config.toml"
    path.write_text('[ssh]\nknown_hosts = "kh"\nidentity_files = ["kh"]\nagent = false\n[poll]\ninterval_seconds = 5\n')
    found = poll_settings(load(path, environ={}), nvml="/lib/x.so")
    assert found == dataclasses.replace(
        PollSettings(), known_hosts=str(tmp_path / "kh"), client_keys=(str(tmp_path / "kh"),), agent=False,
        interval_seconds=5.0, nvml="/lib/x.so",
    )  # fmt: skip
