"""The demo's feeds, PDUs, BMCs and leaf switches as the console's own words for them, with how each is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clustertop.demo.devices import BMC_USER, COMMUNITY_FILE, HOST, PASSWORD_FILE
from clustertop.demo.feeds import PHASES, RATING_AMPS, SUPPLY_NAMES, VOLTS
from clustertop.places import Device, Feed, Site, Supply
from clustertop.sources.redfish import RedfishTarget
from clustertop.sources.secret import Secret
from clustertop.sources.snmp import Agent
from clustertop.sources.snmp_message import Community, Key
from clustertop.sources.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from clustertop.demo.feeds import Wiring
    from clustertop.demo.plan import Plan
    from clustertop.places import DeviceKind

INTERVAL_SECONDS = 10.0


def make_site(plan: Plan, wiring: Wiring, directory: Path, told: Mapping[str, Any]) -> Site:
    """Return what is watched beside the nodes. *told* is what ``devices.Devices.start`` returned.

    Raises:
        SecretError: the demo's own files cannot be read.
    """
    community = Community(Key(Secret.from_spec(f"file:{directory / COMMUNITY_FILE}").reveal()))
    password = Secret.from_spec(f"file:{directory / PASSWORD_FILE}")
    tls = Tls(fingerprint=told["fingerprint"])
    devices = [
        _device(feed.pdu, "pdu", Agent(HOST, community, told["pdus"][feed.pdu]), told["pdus"][feed.pdu], rack=feed.rack)
        for feed in wiring.feeds
    ]
    devices += [
        _device(f"{node.name}-bmc", "bmc", RedfishTarget(f"https://{HOST}:{port}", BMC_USER, password, tls=tls), port,
                of=node.name, rack=node.rack)
        for node, port in zip(plan.nodes, told["bmcs"], strict=True)
    ]  # fmt: skip
    devices += [
        _device(leaf, "switch", Agent(HOST, community, port), port, leaf=leaf)
        for leaf, port in told["switches"].items()
    ]
    return Site(feeds(plan, wiring), tuple(devices))


def _device(name: str, kind: DeviceKind, access: object, port: int, **more: str) -> Device:
    over = "redfish" if kind == "bmc" else "snmp"
    return Device(name, kind, access, f"{HOST}:{port}", more.get("of", ""), more.get("rack", ""), more.get("leaf", ""),
                  INTERVAL_SECONDS, {"over": over})  # fmt: skip


def feeds(plan: Plan, wiring: Wiring) -> tuple[Feed, ...]:
    """The demo's feeds, each with its nodes and their supplies."""
    out = []
    for number, feed in enumerate(wiring.feeds):
        supplies = []
        for node in feed.nodes:
            hung = [name for place, name in enumerate(SUPPLY_NAMES) if wiring.feed_of[node, place] == number]
            supplies.append(Supply(plan.nodes[node].name, tuple(hung)))
        out.append(Feed(feed.name, RATING_AMPS, VOLTS, PHASES, pair=feed.pair, rack=feed.rack, pdu=feed.pdu,
                        supplies=tuple(supplies)))  # fmt: skip
    return tuple(out)
