"""The node's page: what interfaces belong to and lose, and how full its file systems are."""

from __future__ import annotations

import json

import pytest

from clustertop.probe.frames import Table, encode_table
from clustertop.wire.frame import decode
from tui.fleet import FleetSource
from tui.test_console import console, settle

LINKS = [
    ("bond0", {"name": "bond0", "kind": "bond", "members": ["nic0", "nic1"], "addresses": ["10.4.0.9/22", "fd00::9/64"]}),
    ("bond0.20", {"name": "bond0.20", "kind": "vlan", "under": "bond0", "vlan": 20}),
    ("nic0", {"name": "nic0", "master": "bond0", "addresses": [f"10.5.0.{n}/32" for n in range(3)], "more_addresses": 7}),
]


@pytest.fixture
def source() -> FleetSource:
    fleet = FleetSource(nodes=2)
    fleet.connect()
    for reading in (1, 2):
        fleet.now += 10
        fleet.full(0)
        frame = fleet.frame(fleet.nodes[0])
        groups = dict(frame["g"])  # type: ignore[call-overload]
        net = Table([(name, {"name": name, "phys": False}) for name, _ in LINKS], ["mtu"], [9000] * 3)
        link = Table(LINKS, ["e:rx_prio3_pause"], [None, None, reading * 1000])  # type: ignore[arg-type]
        disk = Table([("/", {"place": "/", "type": "ext4", "device": "/dev/md0", "read_only": False}),
                      ("/scratch", {"place": "/scratch", "type": "xfs", "device": "/dev/nvme3n1", "read_only": True})],
                     ["size", "free", "available", "inodes", "inodes_free"],
                     [2**40, 2**40, 2**38, 2**39, 2**38, 2**39, 1000, 1000, 900, 500])
        groups["host"]["tb"]["net"] = encode_table(net)
        for name, tables in (("net", {"link": link}), ("disk", {"disk": disk})):
            groups[name] = {"t": fleet.now + 5000, "iv": 10.0, "n": reading, "ms": 1.0,
                            "tb": {key: encode_table(one) for key, one in tables.items()}}
        raw = json.dumps({**frame, "g": groups}).encode()
        fleet.core.on_frame(0, fleet.now, fleet.wall, decode(raw), raw)
        fleet.core.tick(fleet.now, fleet.wall)
    return fleet


async def test_links_and_file_systems_on_the_node_page(source: FleetSource) -> None:
    async with console(source) as (app, pilot):
        await pilot.press("enter")
        await settle(pilot)
        page = app.panes["detail"].page
        lines = [page.text_of(y).rstrip() for y in range(page.count())]
    text = "\n".join(lines)
    assert app.front == "detail"
    assert "bond  of nic0 nic1  10.4.0.9/22 fd00::9/64" in text
    assert "vlan  id 20  on bond0" in text
    assert "in bond0  10.5.0.0/32 10.5.0.1/32 10.5.0.2/32  and 7 more  pause rx 100/s" in text
    root = next(line for line in lines if line.strip().startswith("/ "))
    assert all(word in root for word in ("75 %", "256 GiB", "1.0 TiB", "10 %", "ext4", "/dev/md0"))
    assert next(line for line in lines if line.strip().startswith("/scratch")).endswith("read-only")
