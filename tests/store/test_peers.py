"""TCP peers in the store: first bytes count, what comes back starts anew, and whose address it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clustertop.model import NodeInfo
from clustertop.probe.frames import Err
from clustertop.store import peers as peers_module
from clustertop.store.peers import UNPLACED
from clustertop.store.store import Store
from nodes import Fleet, table
from work import calls

if TYPE_CHECKING:
    import pytest


def peers(**rows: tuple[float, int, int]) -> Any:
    """Rows by address (``_`` for a dot): since when, bytes sent, bytes received."""
    keys = {name: name.replace("_", ".").removeprefix(".") if name != "others" else "*" for name in rows}
    return table({keys[name]: {"tx_bytes": sent, "rx_bytes": got, "sockets": 2, "rtt_us": 120, "rttvar_us": 30,
                               "rtt_max_us": 500, "rttvar_max_us": 90} for name, (_, sent, got) in rows.items()},
                 {keys[name]: {"since": since} for name, (since, _, _) in rows.items()})


def rates(fleet: Fleet, key: str = "10.0.0.2", node: int = 0) -> tuple[float | None, float | None]:
    view = fleet["peer"]
    row = next(row for row in view.rows_of(node).tolist() if view.keys[row] == key and view.present[row])
    return view.value("transmit_bytes_per_second", row), view.value("receive_bytes_per_second", row)


def test_units() -> None:
    fleet = Fleet(rules={})
    fleet.step(10, peer=peers(_10_0_0_2=(510.0, 0, 0), others=(510.0, 0, 0)))
    view = fleet["peer"]
    said = {name: view.value(name, 0) for name in view.spec.names if "rtt" in name or name == "sockets"}
    assert said == {"sockets": 2, "rtt_seconds": 120e-6, "rtt_variation_seconds": 30e-6, "rtt_max_seconds": 500e-6,
                    "rtt_variation_max_seconds": 90e-6}
    assert view.labels == ("10.0.0.2", "others")


def test_the_first_bytes_to_a_peer_are_in_its_first_rate() -> None:
    fleet = Fleet(rules={})
    fleet.step(10, peer=peers(_10_0_0_2=(510.0, 0, 0)))
    assert rates(fleet) == (None, None), "a baseline: nothing can have moved yet"
    fleet.step(2, peer=peers(_10_0_0_2=(510.0, 4000, 20), _10_0_0_3=(510.0, 600, 0)))
    assert rates(fleet) == (2000.0, 10.0)
    assert rates(fleet, "10.0.0.3") == (300.0, 0.0)
    fleet.step(2, peer=peers(_10_0_0_2=(510.0, 4000, 20), _10_0_0_3=(510.0, 800, 8)))
    assert rates(fleet) == (0.0, 0.0)
    assert rates(fleet, "10.0.0.3") == (100.0, 4.0)
    # A full frame with the same rows, then a row that waited for its turn: its rate is over all the time it waited.
    fleet.encoders[0].want_full()
    fleet.step(2, peer=peers(_10_0_0_2=(510.0, 6000, 20), _10_0_0_3=(510.0, 800, 8)))
    assert rates(fleet) == (1000.0, 0.0)
    fleet.step(2, peer=peers(_10_0_0_2=(510.0, 6000, 20), _10_0_0_3=(510.0, 800, 8), _10_0_0_4=(514.0, 40, 0)))
    assert rates(fleet, "10.0.0.4") == (10.0, 0.0)


def test_what_went_and_came_back_starts_anew() -> None:
    fleet = Fleet(rules={})
    fleet.step(10, peer=peers(_10_0_0_2=(510.0, 0, 0), _10_0_0_3=(510.0, 0, 0)))
    fleet.step(2, peer=peers(_10_0_0_2=(510.0, 4000, 0), _10_0_0_3=(510.0, 10, 0)))
    fleet.step(2, peer=peers(_10_0_0_3=(510.0, 10, 0)))
    assert not [row for row, key in enumerate(fleet["peer"].keys) if key == "10.0.0.2" and fleet["peer"].present[row]]
    fleet.step(2, peer=peers(_10_0_0_2=(514.0, 5000, 0), _10_0_0_3=(510.0, 10, 0)))
    assert rates(fleet) == (2500.0, 0.0), "5,000 in 2 s, not 1,000 more than long ago"
    # Another run of the probe, whose counters have already passed where those of the first stood.
    fleet.step(10, peer=peers(_10_0_0_2=(520.0, 9000, 0), _10_0_0_3=(520.0, 40, 0)))
    assert rates(fleet) == (9000.0 / 6, 0.0)
    assert rates(fleet, "10.0.0.3") == (40.0 / 6, 0.0)


def test_the_row_of_a_peer_that_has_gone_is_anothers_and_says_nothing_of_it() -> None:
    fleet = Fleet(rules={})
    for step in range(1, 40):
        fleet.step(2, peer=peers(_10_0_0_2=(500.0, 100 * step, 0), **{f"_10_0_1_{step}": (500.0 + 2 * step, 0, 0)}))
    assert len(fleet["peer"].keys) <= 4
    fleet.step(2, peer=peers(_10_0_0_2=(500.0, 4100, 0), _10_0_9_9=(578.0, 50, 4)))
    assert rates(fleet) == (100.0, 0.0)
    assert rates(fleet, "10.0.9.9") == (25.0, 2.0)


def test_bytes_that_are_unknown_have_a_reason_and_no_rate() -> None:
    fleet = Fleet(rules={})
    for _ in range(2):
        fleet.step(2, peer=table({"10.0.0.2": {"tx_bytes": Err("no byte counters"), "rx_bytes": Err("no byte counters"),
                                               "sockets": 1, "rtt_us": Err("no traffic")}}, {"10.0.0.2": {"since": 501.0}}))
    view = fleet["peer"]
    assert rates(fleet) == (None, None)
    assert view.reason("transmit_bytes_total", 0) == "no byte counters"
    assert view.reason("transmit_bytes_per_second", 0) == "no byte counters"
    assert view.reason("rtt_seconds", 0) == "no traffic"
    assert view.value("sockets", 0) == 1


def test_a_node_without_the_group_has_no_peers() -> None:
    fleet = Fleet(rules={})
    fleet.step(2, link=links(eth0=["10.0.0.1/24"]))
    assert len(fleet["peer"].keys) == 0
    assert fleet.core.store.addresses.of_peers().tolist() == []


# ---- whose address it is -------------------------------------------------------------------------------------------


def links(**interfaces: list[str]) -> Any:
    return table({name: {} for name in interfaces},
                 {name: {"name": name, "addresses": listed} for name, listed in interfaces.items()})


def to(*addresses: str) -> Any:
    return table({one: {"tx_bytes": 0, "rx_bytes": 0, "sockets": 1} for one in addresses},
                 {one: {"since": 500.0} for one in addresses})


def placed(fleet: Fleet) -> dict[tuple[int, str], int]:
    store = fleet.core.store
    rows = store.addresses.of_peers().tolist()
    one = store.tables["peer"]
    return {(int(one.node[row]), one.keys[row]): rows[row] for row in range(one.rows) if one.present[row]}


def test_an_address_is_its_nodes_in_any_spelling() -> None:
    fleet = Fleet(3, rules={})
    fleet.say(0, link=links(eth0=["10.0.0.1/24", "fd00::1/64"]))
    fleet.say(1, link=links(eth0=["10.0.0.2/24"], eth1=["10.1.0.2/24", "fd00:0:0:0::2/64"]))
    fleet.say(0, link=links(eth0=["10.0.0.1/24", "fd00::1/64"]), peer=to("10.0.0.2", "10.1.0.2", "fd00::2", "10.0.0.3", "*"))
    fleet.say(2, peer=to("::ffff:10.0.0.1", "fd00:0::1", "not an address"))
    assert placed(fleet) == {
        (0, "10.0.0.2"): 1, (0, "10.1.0.2"): 1, (0, "fd00::2"): 1, (0, "10.0.0.3"): UNPLACED, (0, "*"): UNPLACED,
        (2, "::ffff:10.0.0.1"): 0, (2, "fd00:0::1"): 0, (2, "not an address"): UNPLACED,
    }  # fmt: skip
    assert fleet.core.store.addresses.node("FD00::0002") == 1


def test_an_address_of_several_nodes_or_of_no_place_is_nobodys() -> None:
    fleet = Fleet(3, rules={})
    everywhere = {"docker0": ["172.17.0.1/16"], "kube-ipvs0": ["10.96.0.1/32", "10.96.0.10/32"]}
    fleet.say(0, link=links(eth0=["10.0.0.1/24", "fe80::1/64"], **everywhere, lo=["127.0.0.5/8"]))
    fleet.say(1, link=links(eth0=["10.0.0.2/24", "169.254.7.7/16"], docker0=["172.17.0.1/16"]))
    fleet.say(2, peer=to("172.17.0.1", "10.96.0.1", "fe80::1", "fe80::1%eth0", "169.254.7.7", "127.0.0.5", "10.0.0.2"))
    assert placed(fleet) == {(2, one): UNPLACED for one in (
        "172.17.0.1", "10.96.0.1", "fe80::1", "fe80::1%eth0", "169.254.7.7", "127.0.0.5")} | {(2, "10.0.0.2"): 1}


def test_an_address_that_moves_is_followed() -> None:
    fleet = Fleet(3, rules={})
    fleet.say(2, peer=to("10.0.0.9"))
    assert placed(fleet) == {(2, "10.0.0.9"): UNPLACED}
    fleet.say(0, link=links(eth0=["10.0.0.1/24", "10.0.0.9/32"], eth1=["10.0.0.9/32"]))
    assert placed(fleet) == {(2, "10.0.0.9"): 0}, "twice on one node is that node"
    fleet.say(1, link=links(eth0=["10.0.0.2/24", "10.0.0.9/32"]))
    assert placed(fleet) == {(2, "10.0.0.9"): UNPLACED}
    fleet.say(0, link=links(eth0=["10.0.0.1/24"], eth1=["10.0.0.9/32"]))
    assert placed(fleet) == {(2, "10.0.0.9"): UNPLACED}
    fleet.say(0, link=links(eth0=["10.0.0.1/24"]))
    assert placed(fleet) == {(2, "10.0.0.9"): 1}, "an interface that has gone has no address"
    fleet.say(1, link=links(eth0=["10.0.0.2/24"]))
    assert placed(fleet) == {(2, "10.0.0.9"): UNPLACED}


def test_a_thousand_nodes_with_a_hundred_peers_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tick pays: nothing while no row changes, and little when one does."""
    count, each = 1024, 100
    store = Store([NodeInfo(f"n{number}") for number in range(count)])
    links_, peers_ = store.tables["link"], store.tables["peer"]
    for node in range(count):
        links_.add(node, "eth0", {"name": "eth0", "addresses": [f"10.{node >> 8}.{node & 255}.1/16", f"fd00::{node:x}/64"]})
        for other in range(1, each + 1):
            to_node = (node + other) % count
            peers_.add(node, f"10.{to_node >> 8}.{to_node & 255}.1", {"since": 1.0})
    found = store.addresses.of_peers()
    assert found.tolist() == [(node + other) % count for node in range(count) for other in range(1, each + 1)]
    assert store.addresses.of_peers() is found
    peers_.add(0, "10.200.0.1", {"since": 1.0})
    links_.add(0, "eth1", {"name": "eth1", "addresses": ["10.200.0.1/16"]})
    spelled: list[str] = []
    monkeypatch.setattr(peers_module, "_place", lambda text, place=peers_module._place: spelled.append(text) or place(text))
    found_again = []
    assert calls(lambda: found_again.append(store.addresses.of_peers())) < 2 * count, "a look at each interface, at no peer"
    (again,) = found_again
    assert sorted(spelled) == ["10.200.0.1", "10.200.0.1/16"], "the others stay as they were"
    assert np.array_equal(again[:-1], found)
    assert again[-1] == 0
