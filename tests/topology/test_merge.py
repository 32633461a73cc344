"""Facts of several sources become one map: who says what, where they differ, who is missing."""

from __future__ import annotations

import pytest

from clustertop.model import NodeInfo
from clustertop.sources import topology_groups, topology_ib, topology_lldp_json, topology_lldp_snmp, topology_slurm
from clustertop.sources.facts import Fact, Link, Reading
from clustertop.topology import OffRail, Topology, merge, placed
from flowshares import rack_share, spine_share
from traffic.shared import needs_shared, sample

NODES = tuple(NodeInfo(f"g{number}") for number in range(1, 5))


def says(source: str, *facts: tuple[str, str, str], where: str = "", guess: bool = False) -> Reading:
    """A reading of (node, kind, value); kind may be ``leaf:port``."""
    return Reading(source, [
        Fact(node, kind.partition(":")[0], value, line, kind.partition(":")[2], guess=guess)  # type: ignore[arg-type]
        for line, (node, kind, value) in enumerate(facts, 1)], where=where)


def test_two_sources_that_agree_are_both_named() -> None:
    found = merge(NODES, [says("csv", ("g1", "rack", "r1"), where="dc.csv"), says("netbox", ("G1.dc.example.net", "rack", "r1"))])
    rack = found.places["g1"].rack
    assert rack is not None
    assert (rack.value, rack.sources) == ("r1", ("csv dc.csv, line 1", "netbox, line 1"))
    assert found.without("rack") == ("g2", "g3", "g4")
    assert found.strangers == ()


def test_a_rack_in_capitals_is_the_same_rack() -> None:
    found = merge(NODES, [says("csv", ("g1", "rack", "A07")), says("netbox", ("g1", "rack", "a07"))])
    assert (found.racks, found.contradictions) == ({"g1": "A07"}, ())


def test_two_sources_that_differ_leave_the_rack_unknown_and_are_both_named() -> None:
    found = merge(NODES, [says("csv", ("g1", "rack", "r1"), ("g2", "rack", "r1")), says("netbox", ("g1", "rack", "r2"))])
    (doubt,) = found.contradictions
    assert (doubt.node, doubt.kind, doubt.used) == ("g1", "rack", "")
    assert {claim.value: claim.sources for claim in doubt.claims} == {"r1": ("csv, line 1",), "r2": ("netbox, line 1",)}
    assert found.racks == {"g2": "r1"}
    share = rack_share([("g1", "g2", 5.0), ("g2", "g2", 1.0)], found.racks)
    assert (share.ratio, share.unplaced_bytes) == (None, 5.0)


def test_the_inventory_goes_before_every_source_and_the_difference_is_said() -> None:
    nodes = (NodeInfo("g1", rack="r7"), NodeInfo("g2"))
    found = merge(nodes, [says("csv", ("g1", "rack", "r1"), ("g2", "rack", "r1"))])
    assert found.racks == {"g1": "r7", "g2": "r1"}
    assert [(one.node, one.used) for one in found.contradictions] == [("g1", "r7")]


def test_one_source_can_contradict_itself() -> None:
    reading = topology_groups.read_yaml("racks:\n  r1: g[1-3]\n  r2: g[3-4]\n")
    found = merge(NODES, [reading])
    assert [one.node for one in found.contradictions] == ["g3"]
    assert found.racks == {"g1": "r1", "g2": "r1", "g4": "r2"}


@needs_shared
def test_a_sample_that_contradicts_itself() -> None:
    found = merge((), [topology_groups.read_yaml(sample("topology/hostlist/clustershell-cluster.yaml"))])
    assert [one.node for one in found.contradictions] == [f"example{number}" for number in range(156, 160)]
    assert len(found.without("rack")) == 4


def test_a_guess_is_taken_only_on_request_and_never_against_a_word() -> None:
    slurm = topology_slurm.read_text("SwitchName=s1 Nodes=g[1-3]\n", "topology.conf")
    word = says("csv", ("g1", "rack", "r1"))
    plain = merge(NODES, [slurm, word])
    assert plain.racks == {"g1": "r1"}
    assert (plain.guessable, plain.contradictions) == (2, ())
    guessed = merge(NODES, [slurm, word], guess_racks=True)
    assert guessed.racks == {"g1": "r1", "g2": "s1", "g3": "s1"}
    assert guessed.contradictions == ()
    assert guessed.places["g2"].rack is not None
    assert guessed.places["g2"].rack.guessed
    assert plain.leaves == {node: frozenset({"s1"}) for node in ("g1", "g2", "g3")}


def test_an_alias_is_told_with_the_source() -> None:
    found = merge((), [topology_slurm.read_text("# b1=nvl-3\nBlockName=b1 Nodes=g1\n", "t.conf")], guess_racks=True)
    assert found.places["g1"].rack is not None
    assert found.places["g1"].rack.sources == ("slurm t.conf, line 2 (nvl-3)",)


def test_names_match_without_case_and_domain_only_where_that_is_certain() -> None:
    nodes = (NodeInfo("gpu1.a.net"), NodeInfo("gpu1.b.net"), NodeInfo("Login1", host="10.0.0.5"))
    found = merge(nodes, [says("csv", ("gpu1", "rack", "r1"), ("LOGIN1.dc", "rack", "r2"), ("10.0.0.7", "rack", "r3"))])
    assert found.racks == {"Login1": "r2"}
    assert found.strangers == ("gpu1", "10.0.0.7")


def rails(swap: str = "") -> list[Reading]:
    facts = []
    for node in ("g1", "g2", "g3", "g4"):
        for rail in range(2):
            leaf = f"ib{1 - rail if node == swap else rail}"
            facts.append((node, f"leaf:mlx5_{rail}", leaf))
    return [says("ibnetdiscover", *facts), says("csv", ("g1", "rack", "ra"), ("g2", "rack", "rb"))]


def test_a_node_on_many_leaves_is_rail_optimised_and_has_no_one_leaf() -> None:
    found = merge(NODES, rails())
    assert found.rails == {"ib0": "mlx5_0", "ib1": "mlx5_1"}
    assert found.off_rail == ()
    assert found.leaves["g1"] == {"ib0", "ib1"}
    assert found.places["g1"].leaf == ""
    flow = [("g1", "g2", 9.0)]
    assert rack_share(flow, found.racks).ratio == 1.0
    assert spine_share(flow, found.leaves).ratio is None  # which NIC carried it, a flow between nodes does not say


def test_swapped_cables_are_named() -> None:
    found = merge(NODES, rails(swap="g3"))
    assert found.off_rail == (OffRail("g3", "mlx5_0", "ib1", "mlx5_1"), OffRail("g3", "mlx5_1", "ib0", "mlx5_0"))


@needs_shared
def test_a_sample_fabric_on_rails_with_two_cables_swapped() -> None:
    found = merge((), [topology_ib.read(sample("rdma/ibnetdiscover/dgx-gb200-xdr.txt"))])
    assert len(found.rails) > 20
    assert {"b08-p1-dgx-08-c01"} <= {one.node for one in found.off_rail}
    assert ("b08-p1-dgx-08-c01", "HCA-5", "HCA-6") in {(one.node, one.port, one.rail) for one in found.off_rail}


def test_two_cables_to_one_pair_of_leaves_are_no_rails() -> None:
    same = [says("lldp", *((node, f"leaf:eth{port}", f"tor{rack}") for rack, node in enumerate(("g1", "g2")) for port in range(2)))]
    assert merge(NODES, same).rails == {}


def test_one_port_cannot_hang_on_two_leaves() -> None:
    found = merge(NODES, [says("lldp", ("g1", "leaf:eth2", "t1")), says("csv", ("g1", "leaf:eth2", "t2"))])
    assert [one.kind for one in found.contradictions] == ["leaf of eth2"]
    assert found.leaves == {}


def test_links_from_both_ends_with_an_inventory() -> None:
    node_side = Reading("lldp", links=[
        Link("", "eth2", "tor1", "swp1", peer_is_switch=True), Link("", "mgmt0", "oob-sw", "7", peer_is_switch=True),
        Link("", "eth9", "printer", "", peer_is_switch=False)], where="/etc/lldp/g1.json")
    switch_side = Reading("lldp", links=[Link("tor1", "swp2", "g2", "eth2"), Link("tor1", "swp49", "spine1", "1")], where="x")
    found = merge(NODES, [node_side, switch_side], ignored_ports=("mgmt*",))
    assert found.leaves == {"g1": {"tor1"}, "g2": {"tor1"}}
    assert found.places["g1"].leaf == "tor1"
    assert found.places["g1"].leaves[0].sources == ("lldp /etc/lldp/g1.json",)


def test_links_without_an_inventory_go_by_what_is_announced() -> None:
    found = merge((), [
        Reading("lldp", links=[Link("", "eth2", "tor1", "swp1", peer_is_switch=True)], where="g1.txt"),
        Reading("lldp", links=[
            Link("tor1", "swp2", "g2", "eth2", peer_is_switch=False), Link("tor1", "swp49", "spine1", "1", peer_is_switch=True)]),
    ])
    assert found.leaves == {"g1": {"tor1"}, "g2": {"tor1"}}


@needs_shared
def test_sample_switch_sees_no_node_of_ours() -> None:
    walk = topology_lldp_snmp.read(sample("switch/snmp/snmpsim-arista-7150s.snmprec"), "leaf01.snmprec")
    found = merge(NODES, [walk, topology_lldp_json.read(sample("switch/lldp/lldpctl-dpu.json"), "g1.json")])
    assert found.leaves == {"g1": {"DC1-R03-B17-IPMI-01"}}


@needs_shared
def test_sample_fabric_in_pieces_is_still_a_map() -> None:
    found = merge((), [topology_slurm.read_text(sample("topology/slurm/topology-disconnected.conf"))])
    assert len(found.places) == 40
    assert len({leaf for place in found.places.values() for leaf in place.leaf_names}) == 5
    assert found.places["node33"].pod is None
    assert found.places["node1"].pod is not None


def test_nothing_says_nothing() -> None:
    assert merge((), []) == Topology()
    empty = merge(NODES, [topology_slurm.read_text(""), topology_ib.read("")])
    assert (empty.racks, empty.leaves, empty.contradictions) == ({}, {}, ())
    assert empty.without("rack") == tuple(node.name for node in NODES)


@pytest.mark.parametrize(("node", "rack", "leaf"), [
    (NodeInfo("g1"), "r1", "l1"), (NodeInfo("g1", rack="mine"), "mine", "l1"), (NodeInfo("g1", leaf="mine"), "r1", "mine"),
    (NodeInfo("g2"), "", ""),
])
def test_the_map_fills_what_the_inventory_does_not_say(node: NodeInfo, rack: str, leaf: str) -> None:
    facts = says("csv", ("g1", "rack", "r1"), ("g1", "leaf", "l1"))
    (filled,) = placed((node,), merge((node,), [facts]))
    assert (filled.rack, filled.leaf, filled.name) == (rack, leaf, node.name)


def test_a_node_on_rails_keeps_all_its_leaves() -> None:
    facts = says("lldp", ("g1", "leaf:eth1", "rail1"), ("g1", "leaf:eth2", "rail2"))
    (filled,) = placed((NodeInfo("g1"),), merge((NodeInfo("g1"),), [facts]))
    assert (filled.leaf, filled.leaves) == ("", ("rail1", "rail2"))
