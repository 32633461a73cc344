"""Whose rank is where and who talks to whom, by what the nodes' logs say together."""

from __future__ import annotations

from clustertop.signals.nccl_ranks import MAX_RANKS, Ranks, work_out
from work import lines

NODES = {"g1": 0, "g2": 1, "g3": 2, "g4": 3}


def test_each_nodes_log_tells_where_its_ranks_are_and_the_others_use_it() -> None:
    found = work_out([
        (0, "/l/a 0xc1/24", {"comm": "0xc1", "members": ["g1 0-7"], "peers": ["#8 4", "#16 2", "#23 1"]}),
        (1, "/l/a 0xc1/24", {"comm": "0xc1", "members": ["3f2a9c 8-15"], "peers": ["#0 4", "#16 2"]}),
        (2, "/l/a 0xc1/24", {"comm": "0xc1", "members": ["g3 16-22", "g1 0-7"], "peers": ["g1 4", "bad", "#8 x"]}),
        (3, "/l/a 0xc2/24", {"comm": "0xc2", "members": ["g4 8-15"], "peers": ["#0 1"]}),
        (3, "/l/a", {"file": "/l/a"})], NODES)
    assert found.channels == {(0, 1): 4, (0, 2): 2, (0, -1): 1, (1, 0): 4, (1, 2): 2, (2, 0): 4, (3, -1): 1}
    assert found.nodes == {0, 1, 2, 3}
    assert found.order_of([0, 1, 2]) is None, "rank 23 is nowhere"


def test_the_order_of_a_whole_communicator() -> None:
    found = work_out([(1, "/l/a 0x1/4", {"comm": "0x1", "members": ["g2 0,3"], "peers": []}),
                      (0, "/l/a 0x1/4", {"comm": "0x1", "members": ["g1 1-2"], "peers": []})], NODES)
    assert found.order_of([0, 1]) == [1, 0]
    assert found.order_of([0]) is None


def test_what_is_no_member_is_left_out() -> None:
    said = ["g1 0-2,8", "g2 3", "g3 x", "g4 5-", "g1 9-7", "", "nobody 4"]
    found = work_out([(0, "/l/a 0x1/9", {"comm": "0x1", "members": said})], NODES)
    assert found.communicators[0].ranks == {0: 0, 1: 0, 2: 0, 8: 0, 3: 1, 5: 3}


def test_without_an_id_a_rank_of_two_nodes_is_nobodys() -> None:
    found = work_out([(0, "/l/a -/2", {"comm": "", "members": ["g1 0"], "peers": ["#1 4"]}),
                      (1, "/l/a -/2", {"comm": "", "members": ["g2 0-1"], "peers": []})], NODES)
    assert found.communicators[0].ranks == {0: -1, 1: 1}


def test_a_node_that_names_ranks_without_end_costs_nothing() -> None:
    flood = [(0, f"/l/{one} 0x1/65536", {"comm": "0x1", "members": ["g1 0-65535"] * 32, "peers": []}) for one in range(1000)]
    said = [*flood, (1, "/l/a 0x2/2", {"comm": "0x2", "members": ["g2 0-1"], "peers": []})]
    out: list[Ranks] = []
    # As many as one may name, a few lines each, and a few for each of the 32,000 that are left out.
    lines(lambda: out.append(work_out(said, NODES)), most=10 * MAX_RANKS)
    found = out[0]
    assert found.order_of([1]) == [1], "another node is heard all the same"
