"""The readers of topology, each on its samples and on inputs of our own."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.sources import (
    topology_csv,
    topology_groups,
    topology_ib,
    topology_lldp_json,
    topology_lldp_snmp,
    topology_lldp_text,
    topology_slurm,
)
from clustertop.sources.facts import Link, Reading, SourceError
from traffic.shared import CASES, case, needs_shared, sample


def values(reading: Reading, kind: str) -> dict[str, list[str]]:
    """Value to the nodes that have it, in the text's order."""
    found: dict[str, list[str]] = {}
    for fact in reading.facts:
        if fact.kind == kind:
            found.setdefault(fact.value, []).append(fact.node)
    return found


# ---- Slurm


@needs_shared
def test_d7_compact_lists_keep_zeros_and_order() -> None:
    """D7 a: blocks and switches in one text."""
    reading = topology_slurm.read_text((CASES / "D7" / "topology.conf").read_text("utf-8"))
    expect = case("D7", "expect.json")
    racks = values(reading, "rack")
    assert racks["b1"] == expect["b1"]
    assert racks["rack02"] == expect["rack02"]
    assert racks["rack01"] == [f"gpu{number:03}" for number in range(1, 19)]
    assert len(racks["rack01"]) == expect["rack01_count"]
    assert (reading.notes, reading.roots) == ([], ["spine"])


def test_d7_a_list_above_the_limit_is_refused_with_its_line_and_not_cut() -> None:
    """D7 b; the rest of the text is used."""
    reading = topology_slurm.read_text("SwitchName=s1 Nodes=a[1-20000]\nSwitchName=s2 Nodes=b[8-10,1]\n")
    assert values(reading, "leaf") == {"s2": ["b8", "b9", "b10", "b1"]}
    (note,) = reading.notes
    assert note.startswith("line 1: ")
    assert "10,000" in note


def test_d7_lists_within_lists_and_several_dimensions() -> None:
    """D7, its kind."""
    reading = topology_slurm.read_text("SwitchName=s1 Nodes=a[1-2],b3,r[1-2]n[01-02]  \n")
    assert values(reading, "leaf")["s1"] == ["a1", "a2", "b3", "r1n01", "r1n02", "r2n01", "r2n02"]


def test_slurm_comments_continued_lines_cases_and_aliases() -> None:
    reading = topology_slurm.read_text(
        "# b1 = nvl-07\n\nblockname=b1 NODES=n[1-2] # first\nSwitchName=s1 \\\n  Nodes=n[1-2]\nBlockSizes=2,4\nhello\nNodes=n9\n")
    assert values(reading, "rack") == {"b1": ["n1", "n2"], "s1": ["n1", "n2"]}
    assert {fact.alias for fact in reading.facts if fact.value == "b1"} == {"nvl-07"}
    assert all(fact.guess for fact in reading.facts if fact.kind == "rack")
    assert next(fact.line for fact in reading.facts if fact.value == "s1") == 4
    assert [note.partition(":")[0] for note in reading.notes] == ["line 7", "line 8"]


def test_slurm_children_that_are_not_described_are_said() -> None:
    reading = topology_slurm.read_text("SwitchName=top Switches=s[1-2]\nSwitchName=s1 Nodes=n1\n")
    assert any("s2" in note for note in reading.notes)


@needs_shared
@pytest.mark.parametrize(("name", "kind", "sizes", "roots"), [
    ("topology-disconnected.conf", "leaf", [8] * 5, ["spineA", "spineB", "leafC"]),
    ("topology-3level.conf", "leaf", [20] * 20, ["root"]),
    ("topology-block.conf", "rack", [4] * 8, []),
    ("topograph-block-nvl.conf", "rack", [8] * 12, []),
])
def test_sample_confs(name: str, kind: str, sizes: list[int], roots: list[str]) -> None:
    reading = topology_slurm.read_text(sample(f"topology/slurm/{name}"))
    assert [len(nodes) for nodes in values(reading, kind).values()] == sizes
    assert (reading.roots, reading.notes) == (roots, [])


@needs_shared
def test_sample_confs_in_detail() -> None:
    levels = topology_slurm.read_text(sample("topology/slurm/topology-3level.conf"))
    assert values(levels, "leaf")["leaf100"] == [f"peta{number}" for number in range(10000, 10020)]
    assert {len(nodes) for nodes in values(levels, "pod").values()} == {200}
    blocks = topology_slurm.read_text(sample("topology/slurm/topograph-block-nvl.conf"))
    assert values(blocks, "rack")["rack11"] == [f"srv{number}" for number in range(1101, 1109)]
    assert next(fact for fact in blocks.facts if fact.value == "rack11").alias == "nvl-1-1"


@needs_shared
def test_sample_scontrol_takes_the_lowest_level_only() -> None:
    reading = topology_slurm.read_text(sample("topology/recreated/scontrol-show-topology-tree.txt"))
    leaves = values(reading, "leaf")
    assert {leaf: len(nodes) for leaf, nodes in leaves.items()} == {"leaf01": 4, "leaf02": 4, "leaf03": 31}
    assert leaves["leaf02"] == ["node5", "node6", "node7", "node9"]
    assert len(values(reading, "rack")) == 3


def test_scontrol_blocks_that_are_sums_are_no_blocks() -> None:
    reading = topology_slurm.read_text(
        "BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\nAggregatedBlock=b1-2 BlockIndex=2 Nodes=n[1-8] BlockSize=8\n")
    assert values(reading, "rack") == {"b1": ["n1", "n2", "n3", "n4"]}
    assert reading.notes == []


@needs_shared
@pytest.mark.parametrize(("topology", "kind", "found"), [
    ("", "leaf", {"s1": 2, "s2": 2}),
    ("topo2", "rack", {"b1": 4, "b2": 4, "b3": 4, "b4": 4}),
    ("topo3", "leaf", {}), ("topo3a", "leaf", {}), ("topo4", "leaf", {}), ("topo5", "rack", {}),
])
def test_sample_yaml(topology: str, kind: str, found: dict[str, int]) -> None:
    reading = topology_slurm.read_yaml(sample("topology/slurm/topology.yaml"), topology=topology)
    assert {value: len(nodes) for value, nodes in values(reading, kind).items()} == found
    assert bool(found) == (len(reading.notes) == 1)  # what says nothing says so


@pytest.mark.parametrize(("text", "topology", "words"), [
    ("a: [", "", "not YAML at line"), ("name: x", "", "list of topologies"), ("- topology: t\n", "u", "has no topology u; it has t"),
])
def test_a_yaml_that_is_none_says_so(text: str, topology: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        topology_slurm.read_yaml(text, topology=topology)


def test_empty_texts_say_nothing() -> None:
    assert topology_slurm.read_text("").facts == []
    assert topology_slurm.read_yaml("").facts == []
    assert topology_csv.read_csv("\n").facts == []
    assert topology_groups.read_yaml("").facts == []
    assert topology_groups.read_lines("# none\n").facts == []
    assert topology_ib.read("").facts == []
    assert topology_lldp_text.read("").links == []


# ---- tables


@pytest.mark.parametrize("text", [
    "node,rack,leaf\ng01,r1,l1\ng02,r2,l1\n",
    "\ufeffHostname;Leaf Switch;Rack\r\ng01;l1;r1\r\ng02;l1;r2\r\n",
    'name\track\tleaf\n"g01"\tr1\tl1\n# g07\tr9\tl9\ng02\tr2\tl1\n',
    "Name,Status,Site,Rack,Leaf\ng01,Active,dc1,r1,l1\ng02,Active,dc1,r2,l1\ng03,Planned,dc1,—,\n",
])
def test_tables_of_all_kinds(text: str) -> None:
    reading = topology_csv.read_csv(text)
    assert values(reading, "rack") == {"r1": ["g01"], "r2": ["g02"]}
    assert values(reading, "leaf") == {"l1": ["g01", "g02"]}
    assert reading.facts[0].line == 2


def test_a_cell_may_hold_a_list_of_nodes_or_of_leaves() -> None:
    reading = topology_csv.read_csv("node,rack,leaf\ng[01-02],r1,\"l1,l2\"\n")
    assert values(reading, "rack") == {"r1": ["g01", "g02"]}
    assert [(fact.value, fact.port) for fact in reading.facts if fact.kind == "leaf" and fact.node == "g01"] == [
        ("l1", "leaf 1"), ("l2", "leaf 2")]


@pytest.mark.parametrize("text", ["g01,r1\ng02,r2\n", "node,colour\ng01,red\n", "just text\n", ",", " ; ;\n\x0b,\n", '""'])
def test_a_table_without_a_header_is_none(text: str) -> None:
    with pytest.raises(SourceError, match="header"):
        topology_csv.read_csv(text)


def test_netbox_pages_and_racks_of_one_name_in_two_sites() -> None:
    reading = topology_csv.read_netbox(
        '{"count": 3, "results": [{"name": "g01", "rack": {"name": "A1"}, "site": {"name": "dc1"}},'
        '{"name": "g02", "rack": {"display": "A1"}, "site": {"name": "dc2"}},'
        '{"name": "g03", "rack": null, "site": {"name": "dc2"}}, {"name": null, "rack": {"name": "A1"}}]}')
    assert values(reading, "rack") == {"dc1/A1": ["g01"], "dc2/A1": ["g02"]}


@needs_shared
def test_sample_netbox() -> None:
    text = sample("topology/netbox/demo-v2.11-racks-power.json")
    reading = topology_csv.read_netbox(text)
    assert len(reading.facts) == 50  # of 63 devices, 13 are in no rack
    assert "DM-Akron/Comms closet" in values(reading, "rack")
    assert len(values(reading, "rack")) <= 42


@pytest.mark.parametrize("text", ["[", '{"results": 3}', '[{"id": 3}]', "[1"])
def test_json_that_is_no_netbox(text: str) -> None:
    with pytest.raises(SourceError):
        topology_csv.read_netbox(text)


# ---- groups


@needs_shared
def test_sample_groups() -> None:
    reading = topology_groups.read_yaml(sample("topology/hostlist/clustershell-cluster.yaml"))
    racks = values(reading, "rack")
    assert set(racks) == {f"rack{number}" for number in range(1, 6)}  # old and new are views of them
    assert racks["rack1"] == ["example0", "example2"]
    assert len(racks["rack3"]) == 128
    assert racks["rack5"][-1] == "example406"


def test_groups_of_groups_and_circles() -> None:
    reading = topology_groups.read_yaml(
        "racks:\n  r1: 'g[1-2],@spare'\n  spare: g9\n  all_of_them: '@r1,@spare'\n  loop: 'g5,@loop'\nleaves:\n  l1: '@racks:spare,g1'\n")
    assert values(reading, "rack") == {"r1": ["g1", "g2", "g9"], "spare": ["g9"]}
    assert values(reading, "leaf") == {"l1": ["g9", "g1"]}
    assert any("contains itself" in note for note in reading.notes)
    with pytest.raises(SourceError, match="racks or leaves; it has roles"):
        topology_groups.read_yaml("roles:\n  adm: g1\n")


def test_an_alias_bomb_is_no_text() -> None:
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nracks:\n  r1: *c\n  r2: g1\n"
    assert values(topology_groups.read_yaml(bomb), "rack") == {"r2": ["g1"]}


def test_lines_of_racks() -> None:
    reading = topology_groups.read_lines("r1: g[01-02]  # left\nleaf ib7: g[01-02]\nrail 0 = g01\nwhat is this\n")
    assert values(reading, "rack") == {"r1": ["g01", "g02"]}
    assert values(reading, "leaf") == {"ib7": ["g01", "g02"]}
    assert values(reading, "rail") == {"0": ["g01"]}
    assert reading.notes[0].startswith("line 4")


# ---- InfiniBand

IB = """\
vendid=0x2c9
switchguid=0x0b0001(b0001)
Switch	64 "S-00000000000b0001"		# "MF0;ib07:MQM9700/U1" enhanced port 0 lid 31 lmc 0
[1]	"H-00000000000c0001"[1](c0002) 		# "gpu01 mlx5_0" lid 4 4xNDR
[2]	"H-00000000000c0003"[2](c0004) 		# "gpu02 mlx5_3" lid 5 4xNDR
[3]	"H-00000000000c0005"[1](c0005) 		# "MT4129 ConnectX7 Mellanox Technologies" lid 6 4xNDR
[5]	"S-00000000000b0002"[9]		# "Quantum-2 Mellanox Technologies" lid 8 4xNDR
[65]	"H-00000000000b0011"[1](b0011) 		# "Mellanox Technologies Aggregation Node" lid 9 4xNDR

Switch	64 "S-00000000000b0003"		# "Quantum-2 Mellanox Technologies" base port 0 lid 12 lmc 0
"""


def test_leaves_of_a_fabric() -> None:
    reading = topology_ib.read(IB)
    assert [(fact.node, fact.value, fact.port, fact.line) for fact in reading.facts] == [
        ("gpu01", "ib07", "mlx5_0", 4), ("gpu02", "ib07", "mlx5_3/2", 5)]
    assert any(note.startswith("1 ports belong to hosts whose description has no name") for note in reading.notes)
    assert reading.roots == ["Quantum-2 Mellanox Technologies 00000000000b0002", "Quantum-2 Mellanox Technologies 00000000000b0003"]


def test_guids_name_hosts_whatever_their_zeros() -> None:
    guids = topology_ib.read_guids("gpu03 0x0000000c0005ff\nVM_hostname gpu04\n0000:0000:000c:0005\n\nnothing\n")
    assert guids == {0xC0005FF: "gpu03", 0xC0005: "gpu04"}
    nodes = {fact.node for fact in topology_ib.read(IB, guids=guids).facts}
    assert nodes == {"gpu01", "gpu02", "gpu04"}


@needs_shared
@pytest.mark.parametrize(("path", "facts", "leaves", "roots"), [
    ("ibsim-run/ibnetdiscover.txt", 7, {"leaf01": 4, "leaf02": 3}, 2),
    ("ibsim-run/ibnetdiscover-p.txt", 7, {"leaf01": 4, "leaf02": 3}, 2),
    ("treydock/ibnetdiscover-test.txt", 3, {"sw-i1l1s01": 2, "sw-i4l1s01": 1}, 2),
    ("ibnetdiscover/ibsim-net.1.txt", 2, {"Switch1": 2}, 0),
    ("ibnetdiscover/ibsim-net.2sw2path4hca2port.txt", 4, {"Switch1": 2, "Switch2": 2}, 0),
    ("ibnetdiscover/bad-only-ca.txt", 0, {}, 0),
    ("ibnetdiscover/azure-hdr-faked.txt", 10, None, 3),
    ("ibnetdiscover/qdr-fdr10-2014.txt", 145, None, 1),
])
def test_sample_fabrics(path: str, facts: int, leaves: dict[str, int] | None, roots: int) -> None:
    reading = topology_ib.read(sample(f"rdma/{path}"))
    assert (len(reading.facts), len(reading.roots)) == (facts, roots)
    if leaves is not None:
        assert Counter(fact.value for fact in reading.facts) == leaves


@needs_shared
def test_samples_say_what_is_odd() -> None:
    alone = topology_ib.read(sample("rdma/ibnetdiscover/bad-only-ca.txt"))
    assert alone.notes == ["dgx-gb200-n01-c1 HCA-1 sees no switch: it is isolated"]
    assert "1 ports have no known speed" in topology_ib.read(sample("rdma/treydock/ibnetdiscover-test.txt")).notes


@needs_shared
def test_sample_guids_join_without_regard_to_zeros() -> None:
    guids = topology_ib.read_guids(sample("rdma/ibnetdiscover/azure-hdr-ibstat-guids.txt"))
    reading = topology_ib.read(sample("rdma/ibnetdiscover/azure-hdr-faked.txt"), guids=guids)
    assert {fact.node for fact in reading.facts} >= set(guids.values())
    assert all(fact.node.startswith("vm") for fact in reading.facts)


# ---- LLDP

LLDP_JSON = """{"lldp": {"interface": [
 {"eth2": {"via": "LLDP", "chassis": {"leaf07": {"id": {"type": "mac", "value": "aa:bb:cc:00:00:07"}, "descr": "NOS 5",
   "capability": [{"type": "Bridge", "enabled": true}, {"type": "Router", "enabled": false}]}},
   "port": {"id": {"type": "ifname", "value": "swp1"}, "descr": "to gpu01"}}},
 {"eth3": {"chassis": {"id": {"type": "mac", "value": "aa:bb:cc:00:00:08"}}, "port": {"id": {"type": "mac", "value": "x"}}}}]}}"""
LLDP_JSON0 = """{"lldp": [{"interface": [{"name": "eth2", "chassis": [{"id": [{"type": "mac", "value": "aa:bb:cc:00:00:07"}],
 "name": [{"value": "leaf07"}], "capability": [{"type": "Station", "enabled": true}, {"type": "Bridge", "enabled": true}]}],
 "port": [{"id": [{"type": "ifname", "value": "swp1"}], "descr": [{"value": "to gpu01"}]}]}]}]}"""
LLDP_KEYVALUE = """\
lldp.eth2.via=LLDP
lldp.eth2.rid=1
lldp.eth2.chassis.mac=aa:bb:cc:00:00:07
lldp.eth2.chassis.name=leaf07
lldp.eth2.chassis.Bridge.enabled=on
lldp.eth2.chassis.Router.enabled=off
lldp.eth2.port.ifname=swp1
lldp.eth2.port.descr=to gpu01
lldp.eth2.via=LLDP
lldp.eth2.chassis.mac=aa:bb:cc:00:00:09
lldp.eth2.chassis.Station.enabled=on
"""
LLDPCTL = """\
-------------------------------------------------------------------------------
LLDP neighbors:
-------------------------------------------------------------------------------
Interface:    eth2, via: LLDP, RID: 1, Time: 0 day, 01:02:03
  Chassis:
    ChassisID:    mac aa:bb:cc:00:00:07
    SysName:      leaf07
    SysDescr:     NOS 5: all of it
    Capability:   Bridge, on
    Capability:   Router, off
  Port:
    PortID:       ifname swp1
    PortDescr:    to gpu01
-------------------------------------------------------------------------------
"""


@pytest.mark.parametrize(("reader", "text"), [
    (topology_lldp_json, LLDP_JSON), (topology_lldp_json, LLDP_JSON0), (topology_lldp_text, LLDP_KEYVALUE),
    (topology_lldp_text, LLDPCTL),
], ids=["json", "json0", "keyvalue", "text"])
def test_lldpd_says_the_same_in_all_forms(reader: object, text: str) -> None:
    links = reader.read(text).links  # type: ignore[attr-defined]
    first = links[0]
    assert (first.port, first.peer, first.peer_port, first.note, first.peer_is_switch) == ("eth2", "leaf07", "swp1", "to gpu01", True)


def test_lldpd_without_a_name_and_with_two_neighbours() -> None:
    assert topology_lldp_json.read(LLDP_JSON).links[1].peer == "aa:bb:cc:00:00:08"
    second = topology_lldp_text.read(LLDP_KEYVALUE).links[1]
    assert (second.peer, second.peer_is_switch) == ("aa:bb:cc:00:00:09", False)


@needs_shared
@pytest.mark.parametrize(("path", "count", "first"), [
    ("switch/lldp/lldpctl-dpu.json", 3, ("oob_net0", "DC1-R03-B17-IPMI-01", "swp7")),
    ("switch/lldp/gcm-eth_learn_good.json", 2, ("enp97s0f0", "rscfee5001", "ifname_value")),
    ("switch/lldp/suzieq-cumulus.json", 2, ("swp3", "leaf03", "Ethernet5")),
    ("switch/lldp/suzieq-junos-qfx.json", 18, ("et-0/0/26", "CSW03.JFK00", "")),
    ("switch/json/eos-lldp-detail-issue1153.json", 3, ("Ethernet1/1", "some-server", "0200.0084.7013")),
    ("topology/netq/topologyGraph.json", 79, ("swp17s0", "node12", "ens4f0np0")),
])
def test_sample_lldp_json(path: str, count: int, first: tuple[str, str, str]) -> None:
    links = topology_lldp_json.read(sample(path)).links
    assert len(links) == count
    assert (links[0].port, links[0].peer, links[0].peer_port) == first
    if "dpu" in path:
        assert {(link.peer, link.peer_port) for link in links} == {first[1:]}


@needs_shared
def test_sample_lldp_text() -> None:
    eos = topology_lldp_text.read(sample("switch/cli/arista_eos_show_lldp_neighbors2.txt")).links
    assert [(link.port, link.peer, link.peer_port) for link in eos] == [
        (f"Et{number}", "arista2", f"Ethernet{number}") for number in range(2, 8)]
    nxos = topology_lldp_text.read(sample("switch/cli/nxos-ShowLldpNeighborsDetail-golden_output2_output.txt")).links
    assert [link.port for link in nxos][:3] == ["Eth1/14", "Eth1/38", "Eth1/40"]
    assert [link.peer for link in nxos][:3] == ["3935-5A43-4A37-39373638-35303036574C", "VPN-1", "MX-L0"]


@needs_shared
@pytest.mark.parametrize(("name", "count"), [
    ("arista-eos.snmprec", 6), ("dell-sonic.snmprec", 23), ("dnos-z9100.snmprec", 1), ("snmpsim-arista-7150s.snmprec", 2),
    ("snmpsim-nexus5000.snmprec", 11), ("aruba-cx-100g.snmprec", 0), ("mellanox-onyx.snmpwalk", 0),
])
def test_sample_lldp_walks(name: str, count: int) -> None:
    links = topology_lldp_snmp.read(sample(f"switch/snmp/{name}")).links
    assert len(links) == count
    assert all(link.port and link.peer for link in links)
    if name == "snmpsim-arista-7150s.snmprec":
        assert (links[0].port, links[0].peer, links[0].peer_is_switch) == ("Ethernet47", "SITE2-Bak-Arista", True)


def test_an_nxos_table_and_a_walk_of_our_own() -> None:
    table = topology_lldp_text.read(
        "Capability codes:\n  (B) Bridge\nDevice ID            Local Intf      Hold-time  Capability  Port ID  \n"
        "gpu01                Eth1/1          120        S           eth2\n"
        "spine1               Eth1/49         120        BR          Ethernet4/1\nTotal entries displayed: 2\n")
    assert [(link.port, link.peer, link.peer_port) for link in table.links] == [
        ("Eth1/1", "gpu01", "eth2"), ("Eth1/49", "spine1", "Ethernet4/1")]
    walk = topology_lldp_snmp.read(
        ".1.3.6.1.2.1.1.5.0 = STRING: \"leaf07\"\n"
        ".1.0.8802.1.1.2.1.3.7.1.3.5 = STRING: \"swp5\"\n"
        ".1.0.8802.1.1.2.1.4.1.1.5.900.5.1 = Hex-STRING: AA BB CC 00 00 01 \n"
        ".1.0.8802.1.1.2.1.4.1.1.7.900.5.1 = STRING: \"eth2\"\n"
        ".1.0.8802.1.1.2.1.4.1.1.9.900.5.1 = STRING: \"gpu01\"\n"
        ".1.0.8802.1.1.2.1.4.1.1.12.900.5.1 = Hex-STRING: 01 00 \n")
    assert walk.links == [Link("leaf07", "swp5", "gpu01", "eth2", "", False)]


def test_a_text_of_no_known_form_says_so() -> None:
    assert topology_lldp_text.read("hello\n").notes
    with pytest.raises(SourceError, match="LLDP"):
        topology_lldp_json.read('{"a": 1}')


JUNK = st.one_of(st.text(max_size=80), st.text("[]{}:,-#=\"' \n\tSwitchNameodlp0123", max_size=120))


@given(JUNK)
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for reader in (
        topology_slurm.read_text, topology_slurm.read_yaml, topology_csv.read_csv, topology_csv.read_netbox,
        topology_groups.read_yaml, topology_groups.read_lines, topology_ib.read, topology_lldp_json.read,
        topology_lldp_text.read, topology_lldp_snmp.read,
    ):
        try:
            reading = reader(text)
        except SourceError as error:
            assert str(error)
        else:
            assert all(fact.node and fact.value for fact in reading.facts)
