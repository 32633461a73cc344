"""Readings of switches and fabrics as frames: what arrives in the store is what was read, with its reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from clustertop.model import NodeInfo, Why
from clustertop.places import Device, Site
from clustertop.poll.device_frames import encoded, frame
from clustertop.poll.switch_frames import switch_facts, uplink_part
from clustertop.signals import octets
from clustertop.signals.octets import Rate
from clustertop.signals.uplink import PORT_DOWN
from clustertop.sources.switch import Count, PortReading, SwitchReading
from clustertop.store.store import Store
from clustertop.wire.frame import MAX_PORTS, decode

if TYPE_CHECKING:
    from clustertop.store.traffic_picture import LeafPicture
    from clustertop.store.view import TableView

SITE = Site(devices=(Device("leaf7", "switch", None, leaf="l7"), Device("fabric", "fabric", None)))
SWITCH, FABRIC = 1, 2


class Kept:
    """A store that takes a device's readings as a recording would give them: from their bytes."""

    def __init__(self, owner: int) -> None:
        self.store = Store([NodeInfo("n1")], site=SITE)
        self.owner, self.count = owner, 0
        self.now = 100.0

    def take(self, reading: SwitchReading, leaf: str = "l7") -> TableView:
        self.count += 1
        self.now = reading.at + 1
        part = msgspec.structs.replace(uplink_part(reading, leaf=leaf), iv=10.0, n=self.count)
        group = "switch" if self.owner == SWITCH else "fabric"
        made, raw = encoded(frame(self.count, self.now, 5000.0 + self.now, {group: part}, switch_facts(reading), {}))
        again = decode(raw)
        assert again == made
        assert self.store.frame(self.owner, self.now, 5000.0 + self.now, again)
        self.store.tick(self.now)
        return self.store.view(self.now, 5000.0 + self.now).tables["uplink"]

    def leaf(self, name: str) -> LeafPicture:
        """What the console makes of a leaf's ports."""
        found = self.store.view(self.now, 5000.0 + self.now).traffic.leaf(name)
        assert found is not None
        return found


def port(key: str = "1", **changes: Any) -> PortReading:
    return replace(PortReading(key, f"Ethernet{key}", role="host", role_by="config", up=True, bits_per_second=1e11,
                               into=Rate(1e9), out=Rate(2e9)), **changes)


def reading(*ports: PortReading, at: float = 99.0) -> SwitchReading:
    return SwitchReading("leaf7", "Own OS", at, 0.2, ports)


def test_what_was_read_is_in_the_store() -> None:
    one = port(alias="to gpu01", peer="gpu01", lag="Port-Channel1", in_bytes=10**12, out_bytes=7,
               discards=Count(3, Rate(0.5)), errors=Count(4, Rate(0.0)), pauses=Count(5, Rate(2.0)))
    table = Kept(SWITCH).take(reading(one, port("2", role="", up=False, bits_per_second=None)))
    assert table.keys == ("1", "2")
    assert dict(table.attrs[0]) == {"name": "Ethernet1", "alias": "to gpu01", "role": "host", "role_by": "config", "peer": "gpu01",
                                    "leaf": "l7", "lag": "Port-Channel1"}
    want = {"receive_bytes_total": 1e12, "transmit_bytes_total": 7, "receive_bytes_per_second": 1e9, "port_up": 1,
            "transmit_bytes_per_second": 2e9, "discards_total": 3, "discards_per_second": 0.5, "errors_total": 4, "errors_per_second": 0,
            "pause_frames_total": 5, "pause_frames_per_second": 2, "speed_bits_per_second": 1e11, "load_ratio": 0.16}
    assert {name: table.value(name, 0) for name in want} == pytest.approx(want)
    assert (table.value("port_up", 1), table.reason("speed_bits_per_second", 1)) == (0, "speed unknown")
    assert (table.value("load_ratio", 1), table.why[table.spec.index["load_ratio"], 1]) == (None, PORT_DOWN)
    assert table.age[0] == pytest.approx(1.0)
    assert table.labels[0].endswith("Ethernet1")


@pytest.mark.parametrize(("why", "words"), [
    (Why.RESET, "counter reset"), (Why.FIRST_READING, "first reading"), (octets.OVER_SPEED, "above link speed"),
    (octets.TOO_NARROW, "counter too narrow for its speed"), (Why.UNREADABLE, "unreadable"), (Why.NOT_PROVIDED, "not provided")])
def test_an_unknown_rate_keeps_its_reason(why: int, words: str) -> None:
    table = Kept(SWITCH).take(reading(port(into=Rate(None, why)), port("2")))
    assert (table.value("receive_bytes_per_second", 0), table.reason("receive_bytes_per_second", 0)) == (None, words)
    assert (table.value("load_ratio", 0), table.reason("load_ratio", 0)) == (None, words)
    assert table.value("receive_bytes_per_second", 1) == 1e9


def test_the_store_makes_no_rate_of_its_own_of_totals_that_wrap() -> None:
    kept = Kept(SWITCH)
    kept.take(reading(port(in_bytes=2**32 - 5, into=Rate(None, Why.FIRST_READING))))
    table = kept.take(reading(port(in_bytes=100, into=Rate(10.5)), at=109.0))
    assert table.value("receive_bytes_per_second", 0) == 10.5


def test_a_port_that_is_listed_no_more_is_missing() -> None:
    kept = Kept(SWITCH)
    kept.take(reading(port(), port("2")))
    table = kept.take(reading(port("2"), at=109.0))
    assert [bool(one) for one in table.present] == [False, True]
    assert table.value("receive_bytes_per_second", 0) is None


def test_a_large_fabric_is_folded_so_that_shares_stay_whole() -> None:
    ports = [replace(port(f"{leaf:016x}/{number}"), name=f"l{leaf}/{number}", leaf=f"l{leaf}", role="host" if number < 32 else "uplink",
                     in_bytes=10, out_bytes=20)
             for leaf in range(41) for number in range(64)]
    ports[5] = replace(ports[5], into=Rate(None, Why.RESET))
    ports[70] = replace(ports[70], up=False, into=Rate(None, Why.UNREADABLE))
    kept = Kept(FABRIC)
    assert len(ports) > MAX_PORTS
    table = kept.take(SwitchReading("fabric", "", 99.0, 1.0, tuple(ports)), leaf="")
    assert len(table.keys) == 41 * 33 + 1
    row = table.keys.index(f"{3:016x}/hosts")
    assert table.value("receive_bytes_per_second", row) == 32e9
    assert table.value("speed_bits_per_second", row) == 32e11
    assert table.value("receive_bytes_total", row) == 320
    assert table.attrs[row]["name"] == "l3/32 host ports"
    assert kept.leaf("l0").why == "no rate for l0/32 host ports"
    assert kept.leaf("l1").ratio == pytest.approx(64 / 31)  # the one that is down is left out
    assert kept.leaf("l3").ratio == pytest.approx(2)
    more = [replace(one, key=f"{number:04x}{one.key[4:]}", leaf=f"{one.leaf}.{number}") for number in range(2) for one in ports]
    kept.take(SwitchReading("fabric", "", 109.0, 1.0, tuple(more)), leaf="")
    assert len(kept.store.tables["uplink"].columns) <= MAX_PORTS
    assert kept.leaf("l3.1").ratio == pytest.approx(2)


def test_facts_and_hostile_texts() -> None:
    said = SwitchReading("leaf\x1b[2J7", "", 99.0, 0.2, (), None, ("a note", "another"))
    assert switch_facts(said) == {"name": "leaf[2J7", "notes": "a note; another"}
    table = Kept(SWITCH).take(reading(port(alias="x" * 5000, peer="\u202egpu")))
    assert len(str(table.attrs[0]["alias"])) < 200
    assert table.attrs[0]["peer"] == "gpu"
