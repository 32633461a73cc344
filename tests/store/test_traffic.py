"""From tables of meters to matrices, shares, agreement and latency."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop.model import NodeInfo
from clustertop.signals import traffic
from clustertop.store import ends
from flowshares import once, rack_share, spine_share
from meters import MEGA, Rig, nodes

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
TWO_RACKS = {"r1": ("a", "b"), "r2": ("c", "d")}


def case(name: str) -> Any:
    if not (CASES / name).is_dir():
        pytest.skip("needs the shared cases")
    return {path.stem: json.loads(path.read_text()) for path in (CASES / name).glob("*.json")}


def test_a_byte_is_counted_once_though_both_ends_tell() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.says("a", b=(10 * MEGA, 0.0), c=(30 * MEGA, 5 * MEGA))
    rig.says("c", a=(5 * MEGA, 30 * MEGA))
    picture = rig.tick()
    assert picture.racks == ("r1", "r2")
    assert picture.matrix.tolist() == [[10 * MEGA, 30 * MEGA], [5 * MEGA, 0.0]]
    assert rig.value("fleet", "socket_cross_rack_ratio") == pytest.approx(35 / 45)
    assert rig.value("fleet", "bytes_per_second") == pytest.approx(45 * MEGA)
    assert rig.value("fleet", "coverage_ratio") == 0.5
    assert picture.meters[0].coverage == "2/4 nodes"
    assert [(one.source, one.target, one.bytes_per_second) for one in picture.talkers] == [
        (0, 2, 30 * MEGA), (2, 0, 5 * MEGA)]


def test_the_receiver_counts_where_the_sender_is_not_read() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.says("a", c=(0.0, 8 * MEGA))
    picture = rig.tick()
    assert picture.matrix[1, 0] == 8 * MEGA
    assert math.isnan(picture.matrix[1, 1]), "no node of the rack is read: that it is quiet within is not known"
    assert rig.why("fleet", "judged_ratio") == "too few of its nodes are read"


def test_the_senders_word_goes_before_the_receivers() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.says("a", c=(10 * MEGA, 0.0))
    rig.says("c", a=(0.0, 14 * MEGA))
    assert rig.tick().matrix[0, 1] == 10 * MEGA


def test_a_sender_that_is_read_and_has_no_such_peer_sends_it_nothing() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.says("a", c=(0.0, 9 * MEGA))
    rig.reads("c")
    assert rig.tick().matrix[1, 0] == 0.0


def test_a_row_that_is_unknown_is_no_zero() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.flow("a", "c", None, None)
    rig.tick()
    assert rig.value("fleet", "socket_cross_rack_ratio") is None
    rig.flow("c", "a", 0.0, 7 * MEGA)
    assert rig.tick().matrix[0, 1] == 7 * MEGA, "what its peer received is known"


def _a_talks_to_c(**c: tuple[float, float]) -> Rig:
    """What a has open to the address of c, which is read and tells of *c* alone."""
    rig = Rig(nodes(TWO_RACKS))
    rig.put("peer", "a", rig.address("c"), {
        "transmit_bytes_per_second": 30 * MEGA, "receive_bytes_per_second": 20 * MEGA, "sockets": 1.0})
    rig.says("c", **c)
    return rig


def test_who_has_an_address_and_no_socket_with_the_other_end_is_not_the_peer() -> None:
    """A node that is a router, or has a service's address that leads to another one."""
    rig = _a_talks_to_c(d=(5 * MEGA, 5 * MEGA))
    picture = rig.tick()
    assert picture.matrix.tolist() == [[0.0, 0.0], [0.0, 10 * MEGA]]
    assert picture.unplaced.tolist() == [50 * MEGA, 0.0]
    assert picture.strangers == (("10.0.0.2", 30 * MEGA),)
    assert rig.value("fleet", "socket_cross_rack_ratio") == 0.0
    rig.says("c", a=(20 * MEGA, 30 * MEGA))
    picture = rig.tick()
    assert picture.matrix[0, 1] == 30 * MEGA, "now both ends know each other"
    assert picture.unplaced.tolist() == [0.0, 0.0]


def test_it_is_the_peer_where_it_may_have_the_socket_after_all() -> None:
    others = _a_talks_to_c(d=(5 * MEGA, 5 * MEGA))
    others.put("peer", "c", "*", {"transmit_bytes_per_second": 0.0, "receive_bytes_per_second": 0.0, "sockets": 9.0})
    unread = _a_talks_to_c()
    brief = _a_talks_to_c(d=(5 * MEGA, 5 * MEGA))
    brief.put("peer", "a", brief.address("c"), {"sockets": 0.0})
    for rig in (others, unread, brief):
        assert rig.tick().matrix[0, 1] == 30 * MEGA


def test_several_addresses_of_a_node_are_one_peer() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.addresses = {**rig.addresses, "fd00::2": 2}
    rig.says("a", c=(10 * MEGA, 0.0))
    rig.flow("a", "fd00::2", 4 * MEGA)
    assert rig.tick().matrix[0, 1] == 14 * MEGA


def test_an_address_that_moves_to_another_node_moves_its_bytes() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.flow("a", "192.0.2.7", 10 * MEGA)
    assert rig.tick().matrix[0].tolist() == [0.0, 0.0]
    rig.addresses = {**rig.addresses, "192.0.2.7": 3}
    rig.flow("a", "192.0.2.7", 10 * MEGA)
    assert rig.tick().matrix[0].tolist() == [0.0, 10 * MEGA]


def test_d2_without_a_rack_map_the_share_is_unknown_and_says_what_to_write() -> None:
    rig = Rig(nodes({"": ("n1", "n2", "n3")}))
    rig.says("n1", n2=(60 * MEGA, 0.0), n3=(20 * MEGA, 0.0))
    picture = rig.tick()
    for column in ("socket_cross_rack_ratio", "share_ratio", "judged_ratio"):
        assert rig.value("fleet", column) is None
        assert rig.why("fleet", column) == traffic.NO_RACK_MAP
    assert "[racks]" in picture.sentences[0]
    assert "[topology]" in picture.sentences[0]
    assert picture.matrix.size == 0


def test_d2_what_the_map_leaves_out_is_unplaced_beside_the_share() -> None:
    files = case("D2")
    racks = files["flows"]["rack"]
    names = dict.fromkeys(name for flow in files["flows"]["bytes"] for name in flow[:2])
    by_rack: dict[str, list[str]] = {}
    for name in names:
        by_rack.setdefault(racks.get(name, ""), []).append(name)
    rig = Rig(nodes(by_rack))
    for source, target, amount in files["flows"]["bytes"]:
        rig.flow(source, target, amount * MEGA)
    rig.tick()
    assert rig.value("fleet", "socket_cross_rack_ratio") == pytest.approx(files["expect"]["share_of_placed"])
    assert rig.value("fleet", "unplaced_ratio") == pytest.approx(files["expect"]["unplaced_share"])


def test_d2_what_the_map_leaves_out_is_named() -> None:
    rig = Rig(nodes({"r1": ("a", "b"), "": ("x",)}))
    rig.says("a", b=(30 * MEGA, 0.0), x=(50 * MEGA, 0.0))
    rig.flow("a", "203.0.113.9", 20 * MEGA)
    picture = rig.tick()
    assert rig.value("fleet", "unplaced_ratio") == pytest.approx(0.7)
    assert rig.value("fleet", "socket_cross_rack_ratio") == 0.0
    assert picture.strangers == (("x", 50 * MEGA), ("203.0.113.9", 20 * MEGA))
    assert picture.unplaced.tolist() == [70 * MEGA]
    assert any("in no rack: x" in note for note in rig.attrs("fleet")["notes"])


def test_a_heartbeat_is_no_share() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.says("a", c=(2000.0, 2000.0))
    rig.tick()
    assert rig.value("fleet", "share_ratio") is None
    assert rig.why("fleet", "share_ratio") == "too little traffic to tell"


def test_no_traffic_is_no_share_of_zero() -> None:
    rig = Rig(nodes(TWO_RACKS))
    for name in "abcd":
        rig.reads(name)
    picture = rig.tick()
    assert rig.why("fleet", "share_ratio") == traffic.NO_TRAFFIC
    assert picture.matrix.tolist() == [[0.0, 0.0], [0.0, 0.0]], "all are read, and none sends"
    assert rig.value("fleet", "bytes_per_second") == 0.0
    assert rig.value("fleet", "judged_ratio") == 0.0, "nothing crosses: what fired before may end"


def test_readings_that_stop_are_unknown() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.says("a", c=(10 * MEGA, 0.0))
    rig.tick(30.0)
    rig.says("b", a=(10 * MEGA, 0.0))
    picture = rig.tick()
    assert picture.meters[0].read == 1
    assert picture.matrix[0, 1] != 10 * MEGA, "a's last word is half a minute old"


# ---- jobs and groups -----------------------------------------------------------------------------------------------


def test_each_job_has_its_share_and_what_leaves_the_job_is_not_in_it() -> None:
    rig = Rig(nodes({"r1": ("a", "b", "e"), "r2": ("c", "d", "f")}))
    rig.run(j1=("a", "c"), j2=("b", "e"))
    for name in ("a", "b", "c", "d", "e", "f"):
        rig.reads(name)
    rig.says("a", c=(40 * MEGA, 0.0), b=(60 * MEGA, 0.0))
    rig.says("b", e=(20 * MEGA, 0.0))
    rig.tick()
    assert rig.value("job/1", "judged_ratio") == 1.0
    assert rig.value("job/1", "bytes_per_second") == 40 * MEGA
    assert rig.value("job/2", "judged_ratio") == 0.0
    assert rig.value("fleet", "share_ratio") == pytest.approx(40 / 120)
    assert rig.why("fleet", "judged_ratio") == "judged by job or group"
    assert rig.attrs("job/1")["definition"] == "cross-rack"
    assert rig.attrs("job/1")["meter"] == "sockets"


def test_a_group_is_judged_where_no_job_is_known_and_the_fleet_where_there_is_neither() -> None:
    rig = Rig(nodes(TWO_RACKS, groups=("train",)))
    for name in "abcd":
        rig.reads(name)
    rig.says("a", c=(40 * MEGA, 0.0))
    rig.tick()
    assert rig.value("group/train", "judged_ratio") == 1.0
    assert rig.value("fleet", "judged_ratio") is None
    alone = Rig(nodes(TWO_RACKS))
    for name in "abcd":
        alone.reads(name)
    alone.says("a", c=(40 * MEGA, 0.0))
    alone.tick()
    assert alone.value("fleet", "judged_ratio") == 1.0


def test_nodes_of_several_jobs_are_nobodys_and_a_job_that_ends_frees_its_row() -> None:
    rig = Rig(nodes(TWO_RACKS))
    for name in "abcd":
        rig.reads(name)
    rig.says("a", c=(40 * MEGA, 0.0))
    rig.run(j1=("a", "c"), j2=("c", "d"))
    rig.tick()
    assert rig.why("job/1", "judged_ratio") == "its nodes run other jobs, too"
    row = rig.traffic.picture.rows["job/1"]
    rig.run(j2=("c", "d"))
    rig.tick()
    assert rig.tables["traffic"].keys[row] != "job/1"
    assert not rig.tables["traffic"].present[row]
    rig.run(j2=("c", "d"), j3=("a", "b"))
    rig.tick()
    assert rig.traffic.picture.rows["job/3"] == row
    assert rig.tables["traffic"].present[row]


# ---- leaves --------------------------------------------------------------------------------------------------------


def leaf_rig(**options: Any) -> Rig:
    return Rig(nodes(TWO_RACKS, {"l1": ("a", "b"), "l2": ("c", "d")}), ("l1", "l2"), **options)


def test_a_leaf_and_its_uplinks() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 8000 * MEGA, 10 * MEGA)
    rig.switch("l1", "e2", "uplink", 10 * MEGA, 3000 * MEGA, discards_per_second=2.0, pause_frames_per_second=5.0)
    rig.switch("l1", "e3", "uplink", 10 * MEGA, 1000 * MEGA, discards_per_second=0.0, pause_frames_per_second=1.0)
    picture = rig.tick()
    leaf = picture.leaf("l1")
    assert leaf is not None
    assert leaf.ratio == pytest.approx(0.5)
    assert leaf.busiest == "e2"
    assert rig.value("leaf/l1", "uplink_spine_ratio") == pytest.approx(0.5)
    assert rig.value("leaf/l1", "uplink_load_ratio") == pytest.approx(0.24)
    assert rig.value("leaf/l1", "uplink_imbalance_ratio") == pytest.approx(0.5)
    assert rig.value("leaf/l1", "uplink_discards_per_second") == 2.0
    assert rig.value("leaf/l1", "uplink_pause_frames_per_second") == 6.0
    assert rig.value("leaf/l1", "uplinks_down") == 0.0
    assert rig.why("leaf/l2", "uplink_spine_ratio") == "its ports are not read"
    assert rig.value("fleet", "uplink_spine_ratio") is None, "one leaf of two is not the fleet"


def test_shares_by_leaf() -> None:
    rig = leaf_rig()
    rig.switch("l1", "a", "host", 600.0, 1.0)
    rig.switch("l1", "u1", "uplink", 5.0, 90.0)
    rig.switch("l1", "u2", "uplink", 5.0, 30.0)
    rig.switch("l1", "joins two leaves", "peer", 1e9, 1e9)
    rig.switch("l1", "down", "host", None, None, up=0.0)
    rig.switch("l2", "b", "host", 50.0, 1.0)
    rig.switch("l2", "u", "uplink", 0.0, None)
    picture = rig.tick()
    one, other = picture.leaf("l1"), picture.leaf("l2")
    assert one is not None
    assert other is not None
    assert (one.host_in, one.uplink_out, one.ratio, one.why) == (600, 120, 0.2, "")
    assert (other.ratio, other.why) == (None, "no rate for u")


def test_a_port_of_unknown_role_is_said() -> None:
    rig = leaf_rig()
    rig.switch("l1", "a", "host", 10.0, 0.0)
    rig.switch("l1", "u", "uplink", 0.0, 5.0)
    rig.switch("l1", "x", "", 7.0, 0.0)
    leaf = rig.tick().leaf("l1")
    assert leaf is not None
    assert (leaf.ratio, leaf.unknown_ports) == (0.5, ("x",))


def test_a_leaf_at_rest_is_not_uneven() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 9.0, 0.0)
    rig.switch("l1", "e2", "uplink", 0.0, 1000.0)
    rig.switch("l1", "e3", "uplink", 0.0, 0.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_imbalance_ratio") == pytest.approx(0.0, abs=1e-5)


def test_through_the_spine_is_judged_where_no_rack_is_known_and_says_so() -> None:
    rig = Rig(nodes({"": ("a", "b", "c", "d")}, {"l1": ("a", "b"), "l2": ("c", "d")}), ("l1", "l2"))
    for leaf in ("l1", "l2"):
        rig.switch(leaf, "e1", "host", 100 * MEGA, 10 * MEGA)
        rig.switch(leaf, "e2", "uplink", 40 * MEGA, 40 * MEGA)
    rig.tick()
    assert rig.value("fleet", "judged_ratio") == pytest.approx(0.4)
    assert rig.attrs("fleet")["definition"] == "through spine"
    assert rig.attrs("fleet")["meter"] == "uplinks"
    assert rig.value("fleet", "socket_cross_rack_ratio") is None


def test_a_job_on_leaves_of_its_own_has_their_share_and_one_that_shares_them_has_not() -> None:
    rig = leaf_rig()
    for leaf, out in (("l1", 40 * MEGA), ("l2", 90 * MEGA)):
        rig.switch(leaf, "e1", "host", 100 * MEGA, 10 * MEGA)
        rig.switch(leaf, "e2", "uplink", 40 * MEGA, out)
    rig.run(j1=("a", "b"), j2=("c",), j3=("d",))
    rig.tick()
    assert rig.value("job/1", "uplink_spine_ratio") == pytest.approx(0.4)
    assert rig.why("job/2", "uplink_spine_ratio") == "its leaves carry other nodes, too"


def test_an_uplink_that_was_up_is_down_and_one_that_never_was_is_not() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    rig.switch("l1", "e2", "uplink", 0.0, 10 * MEGA)
    rig.switch("l1", "e3", "uplink", 0.0, 10 * MEGA)
    rig.switch("l1", "e9", "uplink", None, None, up=0.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplinks_down") == 0.0
    rig.switch("l1", "e3", "uplink", None, None, up=0.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplinks_down") == 1.0
    assert rig.attrs("leaf/l1")["down"] == ["e3"]
    rig.switch("l1", "e3", "uplink", None, None, up=math.nan)
    rig.tick()
    assert rig.why("leaf/l1", "uplinks_down") == "it is not known whether e3 is still down", "unknown is not up again"
    rig.switch("l1", "e3", "uplink", 0.0, 10 * MEGA)
    rig.tick()
    assert rig.value("leaf/l1", "uplinks_down") == 0.0


def test_a_down_uplink_that_is_no_longer_listed_has_not_come_up() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    rig.switch("l1", "e2", "uplink", 0.0, 10 * MEGA)
    rig.switch("l1", "e3", "uplink", 0.0, 10 * MEGA)
    rig.tick()
    rig.switch("l1", "e3", "uplink", None, None, up=0.0)
    rig.tick()
    rig.gone("l1", "e3")
    picture = rig.tick()
    assert rig.value("leaf/l1", "uplinks_down") is None
    assert rig.why("leaf/l1", "uplinks_down") == "it is not known whether e3 is still down"
    leaf = picture.leaf("l1")
    assert leaf is not None
    assert leaf.ratio == pytest.approx(0.1), "the share is of the ports that are there"
    rig.switch("l1", "e3", "uplink", 0.0, 10 * MEGA)
    rig.tick()
    assert rig.value("leaf/l1", "uplinks_down") == 0.0


def test_what_one_uplink_does_not_tell_is_no_zero_of_the_leaf() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    rig.switch("l1", "e2", "uplink", 0.0, 10 * MEGA, discards_per_second=0.0, pause_frames_per_second=0.0)
    rig.switch("l1", "e3", "uplink", 0.0, 10 * MEGA, discards_per_second=math.nan, pause_frames_per_second=4.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_discards_per_second") is None
    assert rig.value("leaf/l1", "uplink_pause_frames_per_second") == 4.0
    rig.switch("l1", "e2", "uplink", 0.0, 10 * MEGA, discards_per_second=30.0, pause_frames_per_second=0.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_discards_per_second") is None, "what e3 drops may be the most"
    assert rig.why("leaf/l1", "uplink_discards_per_second") == "no counter of discards of e3"
    rig.switch("l1", "e3", "uplink", 0.0, 10 * MEGA, discards_per_second=5.0, pause_frames_per_second=4.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_discards_per_second") == 35.0
    rig.switch("l1", "e3", "uplink", None, None, up=0.0, discards_per_second=math.nan)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_discards_per_second") == 30.0, "one that is down drops nothing"


def test_host_ports_that_drop_are_named_most_first() -> None:
    """Incast drops at the receiver's port, not at an uplink."""
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0, discards_per_second=3.0)
    rig.switch("l1", "e2", "host", 100 * MEGA, 0.0, discards_per_second=240.0)
    rig.switch("l1", "e3", "host", 100 * MEGA, 0.0, discards_per_second=0.0)
    rig.switch("l1", "e4", "uplink", 0.0, 10 * MEGA, discards_per_second=0.0)
    leaf = rig.tick().leaf("l1")
    assert leaf is not None
    assert [(port, lost) for port, _, lost in leaf.dropping] == [("e2", 240.0), ("e1", 3.0)]
    assert leaf.discards == 0.0


def test_uplinks_of_different_speeds_are_even_where_they_are_as_full() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    for name, out, speed in (("e2", 8000, 100e9), ("e3", 2000, 25e9), ("e4", 2000, 25e9), ("e5", 2000, 25e9)):
        rig.switch("l1", name, "uplink", 0.0, out * MEGA, speed=speed)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_imbalance_ratio") == pytest.approx(0.0)
    rig.switch("l1", "e3", "uplink", 0.0, 2800 * MEGA, speed=25e9)
    rig.switch("l1", "e2", "uplink", 12000 * MEGA, 8000 * MEGA, speed=100e9)
    leaf = rig.tick().leaf("l1")
    assert leaf is not None
    assert rig.value("leaf/l1", "uplink_imbalance_ratio") == pytest.approx(0.896 / 0.704 - 1)
    assert (leaf.busiest, leaf.fullest) == ("e2", "e3"), "the busier way in, and what is uneven out"


def test_a_share_beside_much_that_goes_by_unknown_ports_is_not_judged() -> None:
    """They may be hosts or uplinks: the share would be far too high, or far too low."""
    rig = leaf_rig()
    for leaf in ("l1", "l2"):
        rig.switch(leaf, "e1", "host", 100 * MEGA, 0.0)
        rig.switch(leaf, "e2", "uplink", 0.0, 50 * MEGA)
    rig.switch("l1", "e3", "", 300 * MEGA, 0.0)
    rig.tick()
    assert rig.value("fleet", "share_ratio") == 0.5
    assert rig.value("fleet", "judged_ratio") is None
    assert rig.why("fleet", "judged_ratio") == "much goes by switch ports in a role that nobody knows"
    rig.switch("l1", "e3", "", 10 * MEGA, 0.0)
    rig.tick()
    assert rig.value("fleet", "judged_ratio") == 0.5


def test_an_uplink_that_vanishes_while_it_is_up_is_not_forgotten() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    rig.switch("l1", "e2", "uplink", 0.0, 10 * MEGA, discards_per_second=0.0)
    rig.switch("l1", "e3", "uplink", 0.0, 10 * MEGA, discards_per_second=0.0)
    rig.switch("l1", "e4", "", 0.0, 0.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplinks_down") == 0.0
    rig.gone("l1", "e3")
    rig.gone("l1", "e4")
    leaf = rig.tick().leaf("l1")
    assert leaf is not None
    assert rig.value("leaf/l1", "uplinks_down") is None
    assert rig.why("leaf/l1", "uplinks_down") == "e3 is no longer reported"
    assert rig.value("leaf/l1", "uplinks") == 2.0
    assert leaf.ratio == pytest.approx(0.1), "what is left carries all"
    assert leaf.discards == 0.0, "what is gone drops nothing"
    rig.switch("l1", "e2", "uplink", None, None, up=0.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplinks_down") == 1.0, "the other one is down for sure"
    rig.gone("l1", "e2")
    leaf = rig.tick().leaf("l1")
    assert leaf is not None
    assert (leaf.ratio, leaf.why) == (None, "its uplinks are no longer reported")


def test_a_leaf_whose_ports_are_all_gone_is_not_over() -> None:
    """Its row, and so its alerts, would go with it."""
    rig = Rig(nodes(TWO_RACKS), (), fabric="ib")
    for leaf in ("l1", "l2"):
        rig.switch(leaf, f"{leaf}/1", "host", 100 * MEGA, 0.0, owner="ib")
        rig.switch(leaf, f"{leaf}/2", "uplink", 0.0, 99 * MEGA, owner="ib")
    rig.tick()
    for port in ("l1/1", "l1/2"):
        rig.gone("ib", port)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_load_ratio") is None
    assert rig.why("leaf/l1", "uplink_load_ratio") == "its ports are not read"
    assert rig.value("fleet", "fabric_spine_ratio") is None, "half of the leaves are not all"


def test_a_leaf_that_has_another_name_now_is_over() -> None:
    """A switch of a fabric has its name only once the subnet manager has told it."""
    rig = Rig(nodes(TWO_RACKS), (), fabric="ib")
    for leaf in ("SwitchX", "l1"):
        rig.switch(leaf, "0x1/1", "host", 100 * MEGA, 0.0, owner="ib")
        rig.switch(leaf, "0x1/2", "uplink", 0.0, 40 * MEGA, owner="ib")
        rig.tables["uplink"].listed += 1
        picture = rig.tick()
    assert [one.name for one in picture.leaves] == ["l1"]
    assert rig.value("fleet", "fabric_spine_ratio") == pytest.approx(0.4)


def test_an_index_that_another_port_has_now_is_not_the_uplink_of_before() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    rig.switch("l1", "e2", "uplink", 0.0, 40 * MEGA)
    rig.tick()
    row = rig.tables["uplink"].index[rig.number["l1"], "e2"]
    rig.put("uplink", "l1", "e2", {"port_up": 0.0}, {**rig.tables["uplink"].attrs[row], "name": "e9"}, 10.0)
    leaf = rig.tick().leaf("l1")
    assert leaf is not None
    assert (leaf.down, leaf.dark) == ((), ("e9",))


def test_the_fleets_share_is_not_that_of_the_switches_that_answer() -> None:
    rig = Rig(nodes(TWO_RACKS), ("l1", "l2"))
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    rig.switch("l1", "e2", "uplink", 0.0, 90 * MEGA)
    picture = rig.tick()
    assert rig.value("fleet", "uplink_spine_ratio") is None
    assert rig.why("fleet", "uplink_spine_ratio") == "of 1 of 2 leaves not known"
    assert rig.value("fleet", "judged_ratio") is None
    assert rig.why("leaf/l2", "uplink_spine_ratio") == "its ports are not read"
    assert next(one.coverage for one in picture.meters if one.name == "uplinks") == "1/2 leaves"


def test_an_uplink_that_is_down_from_the_start_is_shown_as_that() -> None:
    """Nobody knows whether it is meant to be: no alert, and not a word that all are up."""
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    rig.switch("l1", "e2", "uplink", 0.0, 10 * MEGA)
    rig.switch("l1", "e3", "uplink", None, None, up=0.0)
    leaf = rig.tick().leaf("l1")
    assert leaf is not None
    assert rig.value("leaf/l1", "uplinks_down") == 0.0
    assert leaf.dark == ("e3",)


def test_of_an_uplink_whose_one_way_is_unknown_the_load_is_unknown() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 100 * MEGA, 0.0)
    rig.switch("l1", "e2", "uplink", None, 1000 * MEGA)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_load_ratio") is None


def test_rack_and_leaf_are_different_domains_and_the_rule_is_about_racks_where_they_are_known() -> None:
    rig = Rig(nodes({"r1": ("a",), "r2": ("b", "c")}, {"l1": ("a", "b"), "l2": ("c",)}))
    rig.says("a", b=(30 * MEGA, 0.0), c=(70 * MEGA, 0.0))
    rig.tick()
    assert rig.value("fleet", "socket_cross_rack_ratio") == 1.0
    assert rig.value("fleet", "socket_spine_ratio") == pytest.approx(0.7)
    assert rig.attrs("fleet")["definition"] == "cross-rack"


def test_d2_without_a_leaf_map_the_share_through_the_spine_is_unknown() -> None:
    """D2 a: never 0 % and never 100 %."""
    rig = Rig(nodes(TWO_RACKS))
    rig.says("a", b=(10 * MEGA, 0.0))
    rig.tick()
    assert (rig.value("fleet", "socket_spine_ratio"), rig.why("fleet", "socket_spine_ratio")) == (None, "no leaf map")


def test_a_peer_that_is_no_node_is_not_placed() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.flow("a", "203.0.113.9", 5 * MEGA)
    rig.tick()
    assert rig.why("fleet", "socket_cross_rack_ratio") == traffic.NOTHING_PLACED


def test_on_rails_a_flow_between_nodes_that_share_leaves_is_not_guessed() -> None:
    rails = tuple(f"l{rail}" for rail in range(8))
    infos = [NodeInfo("a", leaves=rails), NodeInfo("b", leaves=rails), NodeInfo("z", leaves=("m1", "m2"))]
    rig = Rig(infos)
    rig.says("a", b=(10 * MEGA, 0.0), z=(5 * MEGA, 0.0))
    rig.tick()
    assert rig.value("fleet", "socket_spine_ratio") == 1.0


def test_rails_cross_racks_without_a_spine() -> None:
    rig = Rig(nodes(TWO_RACKS, leaves=("rail1", "rail2")))
    for name in "abcd":
        rig.reads(name)
    rig.says("a", c=(40 * MEGA, 0.0))
    rig.tick()
    assert rig.value("fleet", "socket_cross_rack_ratio") == 1.0
    assert rig.value("fleet", "socket_spine_ratio") is None, "which rail it took is not told"
    assert rig.why("fleet", "socket_spine_ratio") == traffic.NOTHING_PLACED


def test_d8_without_a_switch_or_a_fabric_query_the_share_is_not_measured() -> None:
    rig = leaf_rig()
    picture = rig.tick()
    assert rig.why("leaf/l1", "uplink_spine_ratio") == "its ports are not read"
    assert [one.why for one in picture.meters if one.name in ("uplinks", "fabric")] == [
        "its ports are not read", "not measured: none is set"]


def test_d8_a_fabric_query_has_its_own_column() -> None:
    rig = Rig(nodes(TWO_RACKS, {"l1": ("a", "b"), "l2": ("c", "d")}), fabric="ib")
    for leaf in ("l1", "l2"):
        rig.switch(leaf, f"{leaf}/1", "host", 100 * MEGA, 0.0, owner="ib")
        rig.switch(leaf, f"{leaf}/2", "uplink", 0.0, 20 * MEGA, owner="ib")
    rig.tick()
    assert rig.value("fleet", "fabric_spine_ratio") == pytest.approx(0.2)
    assert rig.value("fleet", "uplink_spine_ratio") is None


# ---- agreement -----------------------------------------------------------------------------------------------------


def test_d3_bonds_and_their_members_are_not_added() -> None:
    rig = Rig(nodes({"r1": ("a",), "r2": ("b",)}))
    rig.says("a", b=(95 * MEGA, 0.0))
    rig.says("b", a=(0.0, 95 * MEGA))
    for name, sent, physical in (("eth0", 50, 1.0), ("eth1", 50, 1.0), ("bond0", 100, 0.0), ("lo", 30, 0.0)):
        rig.put("net", "a", name, {"transmit_bytes_per_second": sent * MEGA, "physical": physical}, {"name": name})
    rig.tick()
    assert rig.value("fleet", "disagreement_ratio") == pytest.approx(0.05)
    assert rig.value("fleet", "judged_ratio") == 1.0


@pytest.mark.parametrize(("ports", "apart"), [({}, None), ({"ens1": 100.0}, 0.05), ({"ens1": 100.0, "ens2": None}, None)])
def test_d3_every_virtual_kind_stays_out_and_an_unread_port_leaves_the_sum_unknown(
    ports: dict[str, float | None], apart: float | None
) -> None:
    """D3, its kind: tunnels and bridges too."""
    rig = Rig(nodes({"r1": ("a",), "r2": ("b",)}))
    rig.says("a", b=(95 * MEGA, 0.0))
    rig.reads("b")
    for name in ("lo", "bond0", "bond0.7", "br0", "veth1", "wg0", "docker0"):
        rig.put("net", "a", name, {"transmit_bytes_per_second": 1e9, "physical": 0.0}, {"name": name})
    for name, sent in ports.items():
        value = None if sent is None else sent * MEGA
        rig.put("net", "a", name, {"transmit_bytes_per_second": value, "physical": 1.0}, {"name": name, "phys": True})
    rig.tick()
    found = rig.value("fleet", "disagreement_ratio")
    assert found == (None if apart is None else pytest.approx(apart))


def test_d4_a_meter_that_sees_too_little_may_not_be_judged() -> None:
    found = case("D4")["flows"]
    ports, seen = found["port_counter_mbps"] * MEGA / 8, found["flow_estimate_mbps"] * MEGA / 8
    rig = Rig(nodes({"r1": ("a",), "r2": ("b",)}))
    rig.says("a", b=(float(seen), 0.0))
    rig.reads("b")
    rig.nic("a", float(ports))
    rig.tick()
    assert rig.value("fleet", "share_ratio") == 1.0
    assert rig.value("fleet", "judged_ratio") is None
    assert rig.why("fleet", "judged_ratio") == "meters disagree"
    assert rig.attrs("fleet")["unreliable"] == ["sockets"]
    assert rig.value("fleet", "disagreement_ratio") == pytest.approx(1 - seen / ports)


def test_rdma_that_sockets_do_not_see_is_no_disagreement_but_makes_them_blind() -> None:
    rig = Rig(nodes({"r1": ("a",), "r2": ("b",)}))
    rig.says("a", b=(10 * MEGA, 0.0))
    rig.reads("b")
    rig.nic("a", 10 * MEGA)
    rig.port("a", 990 * MEGA, link_layer="Ethernet")
    rig.tick()
    assert rig.value("fleet", "judged_ratio") is None
    assert rig.why("fleet", "judged_ratio") == "RDMA carries the traffic, which sockets do not see"
    assert rig.value("fleet", "disagreement_ratio") is None
    assert "RDMA carries 99 %, which sockets do not see" in rig.attrs("fleet")["notes"]


def test_ip_over_infiniband_is_not_counted_at_its_port_again() -> None:
    rig = Rig(nodes({"r1": ("a",), "r2": ("b",)}))
    rig.says("a", b=(100 * MEGA, 0.0))
    rig.reads("b")
    rig.nic("a", 100 * MEGA, "ib0")
    rig.port("a", 104 * MEGA, link_layer="InfiniBand", netdev="ib0")
    rig.tick()
    assert rig.value("fleet", "judged_ratio") == 1.0


def test_sockets_against_uplinks() -> None:
    rig = leaf_rig()
    for leaf in ("l1", "l2"):
        rig.switch(leaf, "e1", "host", 100 * MEGA, 10 * MEGA)
        rig.switch(leaf, "e2", "uplink", 40 * MEGA, 40 * MEGA)
    for name in "abcd":
        rig.reads(name)
    rig.says("a", c=(10 * MEGA, 0.0))
    rig.tick()
    assert rig.value("fleet", "disagreement_ratio") == pytest.approx(1 - 10 / 80)
    assert rig.attrs("fleet")["unreliable"] == ["sockets"]
    assert rig.attrs("fleet")["meter"] == "uplinks", "the stronger meter's share stands"
    assert rig.value("fleet", "judged_ratio") == pytest.approx(0.4)


def test_what_is_not_placed_may_have_gone_either_way() -> None:
    rig = leaf_rig()
    for leaf in ("l1", "l2"):
        rig.switch(leaf, "e1", "host", 100 * MEGA, 10 * MEGA)
        rig.switch(leaf, "e2", "uplink", 40 * MEGA, 40 * MEGA)
    for name in "abcd":
        rig.reads(name)
    rig.says("a", c=(10 * MEGA, 0.0))
    rig.flow("a", "203.0.113.9", 75 * MEGA)
    rig.tick()
    assert rig.value("fleet", "disagreement_ratio") == 0.0


# ---- estimated and predicted ---------------------------------------------------------------------------------------


def nccl(rig: Rig, node: str, members: list[str], peers: list[str], size: int = 4, comm: str = "0x1") -> None:
    rig.put("nccl", node, f"/l {comm}/{size}", {"ranks": float(size)}, {"comm": comm, "members": members, "peers": peers})


def test_an_estimate_from_the_logs_of_few_nodes_is_shown_and_not_judged() -> None:
    """One node's channels say nothing of the other seven's."""
    rig = Rig(nodes({"r1": tuple("abcd"), "r2": tuple("efgh")}))
    rig.run(j7=tuple("abcdefgh"))
    for name in "abcdefgh":
        rig.nic(name, 1000 * MEGA)
    nccl(rig, "d", [f"{name} {place}" for place, name in enumerate("dabcefgh")], ["e 2"], size=8)
    rig.tick()
    assert rig.value("job/7", "share_ratio") == 1.0
    assert rig.attrs("job/7")["meter"] == "nccl"
    assert rig.value("job/7", "judged_ratio") is None
    assert rig.why("job/7", "judged_ratio") == "too few of its nodes have an NCCL log that is read"
    assert rig.value("job/7", "coverage_ratio") == 1 / 8
    assert "1 of 8 nodes have an NCCL log" in rig.attrs("job/7")["notes"]
    for place, name in enumerate("abcefgh"):
        nccl(rig, name, [f"{name} {place + 1}"], ["d 2"], size=8)
    rig.tick()
    assert rig.value("job/7", "judged_ratio") is not None
    assert rig.value("job/7", "coverage_ratio") == 1.0


def test_channels_of_the_log_times_what_the_cards_sent() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.run(j7=("a", "b", "c", "d"))
    ring = ["a", "c", "b", "d"]
    for place, name in enumerate(ring):
        after = ring[(place + 1) % 4]
        nccl(rig, name, [f"{name} {place}"], [f"{after} 2" if place else f"#{place + 1} 2"])
        rig.port(name, 100 * MEGA)
    rig.tick()
    assert rig.value("job/7", "nccl_cross_rack_ratio") == 1.0
    assert rig.attrs("job/7")["meter"] == "nccl"
    assert rig.attrs("job/7")["order_by"] == "the NCCL log"
    assert rig.value("job/7", "predicted_cross_rack_ratio") == 1.0
    assert rig.attrs("job/7")["better_order"] == ["a", "b", "c", "d"]
    assert rig.attrs("job/7")["better"] == "2 of 4 hops would cross"
    assert rig.value("job/7", "socket_cross_rack_ratio") is None, "an estimate is no measurement"


@pytest.mark.parametrize("number", [0, 1])
def test_d1_a_ring_over_the_given_order(number: int) -> None:
    order, share = ((("r1n1", "r2n1", "r1n2", "r2n2"), 1.0), (("r1n1", "r1n2", "r2n1", "r2n2"), 0.5))[number]
    rig = Rig(nodes({"r1": ("r1n1", "r1n2"), "r2": ("r2n1", "r2n2")}), order=order)
    rig.tick()
    assert rig.value("fleet", "predicted_cross_rack_ratio") == share
    assert rig.value("fleet", "share_ratio") is None, "what is predicted is no measured share"
    assert rig.value("fleet", "judged_ratio") is None
    assert "predicted" in {one.name: one.label for one in rig.traffic.picture.meters}["order"]
    assert rig.attrs("fleet")["better_order"] == ([] if number else ["r1n1", "r1n2", "r2n1", "r2n2"])


def test_a_host_file_is_the_order_of_the_job_that_has_its_nodes() -> None:
    rig = Rig(nodes(TWO_RACKS), order=("a", "c", "d", "gone"))
    rig.run(j1=("a", "c", "d"), j2=("b",))
    rig.tick()
    assert rig.value("job/1", "predicted_cross_rack_ratio") == pytest.approx(2 / 3)
    assert rig.attrs("job/1")["order_by"] == "the host file"
    assert rig.why("job/2", "predicted_cross_rack_ratio") == "order of ranks not known"


def test_a_log_with_a_rank_that_two_nodes_claim_orders_nothing() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.run(j7=("a", "b"))
    nccl(rig, "a", ["a 0-1"], [], size=2)
    nccl(rig, "b", ["b 0-1"], [], size=2)
    rig.tick()
    assert rig.why("job/7", "predicted_cross_rack_ratio") == "order of ranks not known"


# ---- latency -------------------------------------------------------------------------------------------------------


def star(rig: Rig, hub: str, jitter: float, *, others: str = "abcdef") -> None:
    """Everybody talks to everybody; the links of *hub* have that jitter, the others 0.05 ms."""
    for here in others:
        for there in others:
            if here < there:
                bad = hub in (here, there)
                rig.flow(here, there, 5 * MEGA, 5 * MEGA, 1e-4, jitter if bad else 5e-5)


def test_one_bad_end_is_one_nodes_trouble() -> None:
    rig = Rig(nodes({"r1": ("a", "b", "c"), "r2": ("d", "e", "f")}))
    star(rig, "b", 5e-5)
    rig.tick()
    star(rig, "b", 3.8e-3)
    picture = rig.tick()
    assert rig.node("b", "tcp_jitter_seconds") == pytest.approx(3.8e-3)
    for name in "acdef":
        assert rig.node(name, "tcp_jitter_seconds") == pytest.approx(5e-5)
    assert rig.node("b", "tcp_incast_peers") == 5.0
    assert rig.node("a", "tcp_incast_peers") == 0.0
    assert picture.worst_peer[1] >= 0
    assert rig.value("fleet", "jitter_within_seconds") == pytest.approx(5e-5)
    assert rig.value("fleet", "rtt_across_seconds") == pytest.approx(1e-4)
    star(rig, "b", 5e-5)
    rig.tick()
    assert rig.node("b", "tcp_jitter_seconds") == pytest.approx(5e-5), "over is known to be over"
    assert rig.node("b", "tcp_incast_peers") == 0.0


def test_the_spokes_of_a_bad_hub_are_not_to_blame() -> None:
    rig = Rig(nodes({"r1": ("hub", "a", "b", "c", "d")}))
    for name in "abcd":
        rig.flow(name, "hub", 5 * MEGA, 0.0, 1e-4, 3.8e-3)
    rig.tick()
    assert rig.node("hub", "tcp_jitter_seconds") == pytest.approx(3.8e-3)
    assert rig.node("a", "tcp_jitter_seconds") is None
    assert rig.tables["node"].view(rig.now, ("tcp_jitter_seconds",)).reason("tcp_jitter_seconds", 1) == (
        "explained by the other end")
    for name in "abcd":
        rig.flow(name, "hub", 5 * MEGA, 0.0, 1e-4, 1e-4)
    rig.tick()
    assert rig.node("a", "tcp_jitter_seconds") == pytest.approx(1e-4)


def test_a_socket_that_hardly_moves_says_nothing_of_latency() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.flow("a", "b", 900.0, 900.0, 1e-4, 40e-3)
    rig.tick()
    assert rig.node("a", "tcp_jitter_seconds") is None
    assert rig.value("fleet", "jitter_within_seconds") is None


def test_a_way_out_of_the_cluster_is_no_link_of_it() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.flow("a", "203.0.113.9", 50 * MEGA, 0.0, 20e-3, 9e-3)
    rig.tick()
    assert rig.node("a", "tcp_jitter_seconds") is None


# ---- properties ----------------------------------------------------------------------------------------------------

RATES = st.one_of(st.none(), st.integers(0, 10**12).map(float))
REPORTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7), RATES, RATES), max_size=24,
                   unique_by=lambda one: one[:2])


def fed(reports: list[tuple[int, int, float | None, float | None]]) -> Rig:
    rig = Rig(nodes({"r1": ("n0", "n1"), "r2": ("n2", "n3"), "": ("n4", "n5")}))
    for node, peer, sent, received in reports:
        rig.flow(f"n{node}", f"n{peer}" if peer < 6 else f"203.0.113.{peer}", sent, received)
    rig.tick()
    return rig


@settings(max_examples=60, deadline=None)
@given(REPORTS, st.randoms())
def test_the_order_of_reports_does_not_matter(reports: list[Any], random: Any) -> None:
    first = fed(reports)
    random.shuffle(reports)
    second = fed(reports)
    np.testing.assert_allclose(first.traffic.picture.matrix, second.traffic.picture.matrix)
    for column in ("share_ratio", "unplaced_ratio", "bytes_per_second", "coverage_ratio"):
        one, other = first.value("fleet", column), second.value("fleet", column)
        assert one == other or one == pytest.approx(other)


@settings(max_examples=60, deadline=None)
@given(REPORTS)
def test_no_byte_is_invented_or_counted_twice_and_no_zero_either(reports: list[Any]) -> None:
    rig = fed(reports)
    picture = rig.traffic.picture
    told = sum((sent or 0.0) + (received or 0.0) for node, peer, sent, received in reports if node != peer)
    total = rig.value("fleet", "bytes_per_second")
    matrix = np.nansum(picture.matrix)
    assert matrix <= told * (1 + 1e-9)
    if total is None:
        assert not any(sent is not None for _, _, sent, _ in reports)
    else:
        assert matrix <= total * (1 + 1e-9)
        assert total <= told * (1 + 1e-9)
    seen = {node for node, _, sent, _ in reports if sent is not None}
    for number, members in enumerate(((0, 1), (2, 3))):
        if not seen & set(members):
            assert math.isnan(picture.matrix[number, number]), "nobody there is read"
    share = rig.value("fleet", "share_ratio")
    assert share is None or 0.0 <= share <= 1.0


@settings(max_examples=60, deadline=None)
@given(REPORTS)
def test_it_says_what_a_count_over_lists_says(reports: list[Any]) -> None:
    whole = [one for one in reports if one[2] is not None and one[3] is not None]
    rig = fed(whole)
    told: dict[str, dict[str, tuple[float, float]]] = {}
    for node, peer, sent, received in whole:
        told.setdefault(f"n{node}", {})[f"n{peer}"] = sent, received
    share = rack_share(once(told), {"n0": "r1", "n1": "r1", "n2": "r2", "n3": "r2"})
    value = rig.value("fleet", "socket_cross_rack_ratio")
    if share.ratio is None or share.placed_bytes < 1e6:
        assert value is None
    else:
        assert value == pytest.approx(share.ratio)
        assert rig.value("fleet", "unplaced_ratio") == pytest.approx(share.unplaced_ratio)


LEAF_SETS = st.frozensets(st.sampled_from(["l0", "l1", "l2"]), max_size=2)


@settings(max_examples=60, deadline=None)
@given(REPORTS, st.lists(LEAF_SETS, min_size=6, max_size=6))
def test_through_the_spine_it_says_what_a_count_over_lists_says(reports: list[Any], hung: list[frozenset[str]]) -> None:
    rig = Rig([NodeInfo(f"n{number}", leaves=tuple(sorted(mine))) for number, mine in enumerate(hung)])
    told: dict[str, dict[str, tuple[float, float]]] = {}
    for node, peer, sent, received in reports:
        if peer < 6 and sent is not None and received is not None:
            rig.flow(f"n{node}", f"n{peer}", sent, received)
            told.setdefault(f"n{node}", {})[f"n{peer}"] = sent, received
    rig.tick()
    share = spine_share(once(told), {f"n{number}": mine for number, mine in enumerate(hung)})
    value = rig.value("fleet", "socket_spine_ratio")
    if share.ratio is None or share.placed_bytes < 1e6:
        assert value is None
    else:
        assert value == pytest.approx(share.ratio)


def test_what_was_unplaced_until_its_address_was_known_is_so_no_more() -> None:
    """A node's sockets are read before its interfaces are: the mean of what is unplaced begins anew without them."""
    rig = Rig(nodes(TWO_RACKS))
    known, rig.addresses = rig.addresses, {}
    for _ in range(3):
        rig.flow("a", "10.0.0.2", 30 * MEGA)
        rig.flow("a", "203.0.113.9", 2 * MEGA)
        rig.tick()
    assert rig.value("fleet", "unplaced_ratio") == 1.0
    rig.addresses = known
    rig.flow("a", "10.0.0.2", 30 * MEGA)
    rig.flow("a", "203.0.113.9", 2 * MEGA)
    picture = rig.tick()
    assert picture.matrix[0].tolist() == [0.0, 30 * MEGA]
    assert picture.unplaced[0] == 2 * MEGA
    assert rig.value("fleet", "unplaced_ratio") == pytest.approx(2 / 32)


def test_connections_that_have_no_rate_yet_are_not_held_against_the_nics_as_none() -> None:
    rig = Rig(nodes(TWO_RACKS))
    rig.nic("a", 40 * MEGA)
    rig.reads("a")
    rig.flow("a", "c", None, None)
    rig.flow("a", "203.0.113.9", 1 * MEGA)
    rig.tick()
    assert rig.value("fleet", "disagreement_ratio") is None
    rig.nic("a", 40 * MEGA)
    rig.flow("a", "c", 38 * MEGA)
    rig.flow("a", "203.0.113.9", 1 * MEGA)
    rig.tick()
    assert rig.value("fleet", "disagreement_ratio") == pytest.approx(1 / 40)


def test_a_leaf_whose_uplinks_are_all_down_says_so() -> None:
    rig = leaf_rig()
    rig.switch("l1", "e1", "host", 50 * MEGA, 10 * MEGA)
    rig.switch("l1", "e2", "uplink", None, None, up=0.0)
    rig.tick()
    assert rig.value("leaf/l1", "uplink_spine_ratio") is None
    assert rig.why("leaf/l1", "uplink_spine_ratio") == "its uplinks are down"
    rig.switch("l2", "e1", "host", 50 * MEGA, 10 * MEGA)
    rig.tick()
    assert rig.why("leaf/l2", "uplink_spine_ratio") == "not measured: no port is known as uplink"
# ---- a large fleet -------------------------------------------------------------------------------------------------


def _two_talk() -> Rig:
    rig = Rig(nodes(TWO_RACKS))
    rig.flow("a", "c", 30 * MEGA, 0.0, 200e-6, 50e-6)
    rig.flow("a", "b", 10 * MEGA, 0.0, 100e-6, 20e-6)
    return rig


def test_of_a_large_table_all_is_worked_out_though_at_other_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    small = _two_talk()
    small.tick()
    monkeypatch.setattr(ends, "LARGE", 1)
    rig = _two_talk()
    for _ in range(8):
        rig.flow("a", "c", 30 * MEGA, 0.0, 200e-6, 50e-6)
        rig.flow("a", "b", 10 * MEGA, 0.0, 100e-6, 20e-6)
        rig.tick()
    for column in ("socket_cross_rack_ratio", "rtt_within_seconds", "rtt_across_seconds", "jitter_across_seconds"):
        assert rig.value("fleet", column) == small.value("fleet", column) is not None
    assert rig.traffic.picture.talkers == small.traffic.picture.talkers
    assert rig.node("c", "tcp_jitter_seconds") == small.node("c", "tcp_jitter_seconds")


def test_a_row_that_became_another_peers_is_nobodys_until_the_large_table_is_joined_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ends, "LARGE", 1)
    rig = _two_talk()
    rig.tick(2.0)
    table = rig.tables["peer"]
    table.rename(table.index[0, rig.address("c")], rig.address("d"), {})
    rig.flow("a", "d", 30 * MEGA)
    rig.flow("a", "b", 10 * MEGA)
    assert rig.tick(2.0).matrix[0].tolist() == [10 * MEGA, 0.0], "what d gets is not what c gets"
    rig.flow("a", "d", 30 * MEGA)
    rig.flow("a", "b", 10 * MEGA)
    rig.tick(2.0)
    rig.flow("a", "d", 30 * MEGA)
    assert rig.tick().matrix[0, 1] == 30 * MEGA


def test_a_large_table_that_is_seldom_looked_at_is_worked_out_in_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "LARGE", 1)
    rig = _two_talk()
    for _ in range(6):
        rig.flow("a", "c", 30 * MEGA, 0.0, 200e-6, 50e-6)
        rig.flow("a", "b", 10 * MEGA, 0.0, 100e-6, 20e-6)
        picture = rig.tick(3.0)
    assert picture.talkers[0].target == 2
    assert rig.value("fleet", "rtt_across_seconds") == 200e-6


def test_meters_that_are_read_at_different_moments_agree_about_bursts() -> None:
    """Sockets are told each second, a switch's counters every ten; a job reduces for 15 s and computes for 15 s."""
    rig = leaf_rig()

    def rate(second: int) -> float:
        return (2000 if second // 15 % 2 else 100) * MEGA

    found = []
    for second in range(240):
        now = rate(second)
        rig.says("a", c=(now, 0.0), b=(now, 0.0))
        rig.says("c", a=(0.0, now))
        rig.says("b", a=(0.0, now))
        rig.reads("d")
        if second % 10 == 7:
            past = sum(rate(one) for one in range(second - 7, second + 3)) / 10 if second > 10 else now
            for leaf, into in (("l1", 2 * past), ("l2", 0.001 * past)):
                rig.switch(leaf, "e1", "host", into, 0.0)
                rig.switch(leaf, "e2", "uplink", 0.0, past if leaf == "l1" else 0.0)
        rig.tick()
        found.append((rig.attrs("fleet")["unreliable"], rig.attrs("fleet")["meter"]))
    assert {meter for _, meter in found[60:]} == {"sockets"}
    assert not any(doubt for doubt, _ in found[60:])


def test_an_ethernet_and_an_infiniband_each_have_their_own_share() -> None:
    rig = Rig(nodes({"r1": ("a", "b"), "r2": ("c", "d")}), ("e1", "e2"), fabric="ib")
    for leaf, out in (("e1", 10.0), ("e2", 30.0)):
        rig.switch(leaf, "p1", "host", 100 * MEGA, 0.0)
        rig.switch(leaf, "p2", "uplink", 0.0, out * MEGA)
    for leaf, out in (("ib1", 700.0), ("ib2", 500.0)):
        rig.switch(leaf, f"{leaf}/1", "host", 1000 * MEGA, 0.0, owner="ib")
        rig.switch(leaf, f"{leaf}/2", "uplink", 0.0, out * MEGA, owner="ib")
    for name, other in (("a", "c"), ("c", "a")):
        rig.says(name, **{other: (19 * MEGA, 19 * MEGA)})
    rig.tick()
    assert rig.value("fleet", "uplink_spine_ratio") == pytest.approx(0.2)
    assert rig.value("fleet", "fabric_spine_ratio") == pytest.approx(0.6)
    rig.switch("ib2", "ib2/2", "uplink", 0.0, None, owner="ib")
    rig.tick()
    assert rig.value("fleet", "uplink_spine_ratio") == pytest.approx(0.2)
    assert rig.why("fleet", "fabric_spine_ratio") == "of 1 of 2 leaves not known"


def test_sockets_are_compared_with_all_fabrics_together() -> None:
    rig = Rig(nodes({"r1": ("a", "b"), "r2": ("c", "d")}, {"e1": ("a", "b"), "e2": ("c", "d")}), ("e1", "e2"), fabric="ib")
    for leaf in ("e1", "e2"):
        rig.switch(leaf, "p1", "host", 100 * MEGA, 0.0)
        rig.switch(leaf, "p2", "uplink", 0.0, 20 * MEGA)
    for leaf in ("ib1", "ib2"):  # at rest: TCP does not go this way
        rig.switch(leaf, f"{leaf}/1", "host", 0.0, 0.0, owner="ib")
        rig.switch(leaf, f"{leaf}/2", "uplink", 0.0, 0.0, owner="ib")
    for name, other in (("a", "c"), ("c", "a")):
        rig.says(name, **{other: (20 * MEGA, 20 * MEGA)})
    rig.tick()
    assert rig.value("fleet", "disagreement_ratio") == pytest.approx(0.0)
    assert rig.attrs("fleet")["unreliable"] == []


def test_a_job_over_rdma_is_not_at_rest_because_its_sockets_are() -> None:
    """Else what nobody has measured would stand there as fine."""
    rig = Rig(nodes(TWO_RACKS))
    for name, other in (("a", "c"), ("c", "a"), ("b", "d"), ("d", "b")):
        rig.says(name, **{other: (1000.0, 1000.0)})
        rig.port(name, 5000 * MEGA, link_layer="InfiniBand")
    rig.tick()
    told = "RDMA carries the traffic, which sockets do not see"
    for column in ("share_ratio", "judged_ratio"):
        assert (rig.value("fleet", column), rig.why("fleet", column)) == (None, told)
    for _ in range(200):
        for name, other in (("a", "c"), ("c", "a"), ("b", "d"), ("d", "b")):
            rig.says(name, **{other: (1000.0, 1000.0)})
            rig.port(name, 2000.0, link_layer="InfiniBand")
        rig.tick()
    assert rig.value("fleet", "judged_ratio") == pytest.approx(0.004), "now it is at rest: 4 kB of at least 1 MB"


def test_a_share_that_may_be_judged_goes_before_one_that_may_not() -> None:
    """Sockets of one node of four, and all leaves: the leaves' share is the one that is judged."""
    rig = leaf_rig()
    rig.says("a", b=(10 * MEGA, 0.0), c=(90 * MEGA, 0.0))
    for leaf in ("l1", "l2"):
        rig.switch(leaf, "e1", "host", 100 * MEGA, 0.0)
        rig.switch(leaf, "e2", "uplink", 0.0, 45 * MEGA)
    rig.tick()
    assert rig.attrs("fleet")["unreliable"] == []
    assert (rig.attrs("fleet")["definition"], rig.attrs("fleet")["meter"]) == ("through spine", "uplinks")
    assert rig.value("fleet", "judged_ratio") == pytest.approx(0.45)


def test_a_rack_map_of_few_nodes_makes_no_share_that_is_judged() -> None:
    rig = Rig(nodes({"r1": ("a",), "r2": ("b",), "": tuple("cdefgh")}))
    for name, other in (("a", "b"), ("b", "a")):
        rig.says(name, **{other: (10 * MEGA, 10 * MEGA)})
    for name, other in zip("cdefgh", "dcfehg", strict=True):
        rig.says(name, **{other: (500 * MEGA, 500 * MEGA)})
    rig.tick()
    assert rig.value("fleet", "share_ratio") == 1.0
    assert rig.value("fleet", "judged_ratio") is None
    assert rig.why("fleet", "judged_ratio") == "too few of its nodes are in the rack map"
