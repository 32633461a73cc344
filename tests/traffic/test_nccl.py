"""The second reader of NCCL's logs: every recorded sample, and our own lines for what they do not show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshares import rack_share
from nccl_reference import MAX_LINE, Finding, NcclLog, estimated_flows
from traffic.shared import needs_shared, sample


def info(host: str, text: str, pid: int = 100, tid: int = 200, device: int = 0) -> str:
    return f"{host}:{pid}:{tid} [{device}] NCCL INFO {text}\n"


SAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("nccl/a100-4node-ib.log", {
        "version": "2.10.3+cuda11.3", "ranks": 32, "completed": 32, "hosts": 4, "networks": {"IB": 32},
        "transports": {"P2P": 112, "NET/IB": 20}, "devices": {f"hfi1_{number}" for number in range(4)},
        "findings": {"no GPUDirect RDMA"}, "rings": None}),
    ("nccl/v100-16node-opa.log", {
        "version": "2.7.8+cuda10.2", "ranks": 64, "completed": 64, "hosts": 16, "networks": {"IB": 14},
        "transports": {"NET/IB": 184}, "devices": {f"hfi1_{number}" for number in range(4)},
        "findings": {"no GPUDirect RDMA"}, "rings": None}),
    ("nccl/v100-1node.log", {
        "version": "2.7.8+cuda10.2", "ranks": 4, "completed": 4, "hosts": 1, "networks": {"IB": 4},
        "transports": {"P2P": 100}, "devices": {f"hfi1_{number}" for number in range(4)}, "findings": set(),
        "rings": [0, 1, 2, 3]}),
    ("nccl/efa-ofi-lines.txt", {
        "version": "2.26.2+cuda12.2", "ranks": 0, "completed": 0, "hosts": 0, "networks": {}, "transports": {},
        "devices": {"OFI"}, "findings": set(), "rings": None}),
    ("nccl/nccl-2.30-doc-lines.txt", {
        "version": "2.30.3+cuda13.0", "ranks": 2, "completed": 0, "hosts": 1, "networks": {"IB": 2},
        "transports": {"SHM": 2, "NET/Socket": 2, "P2P": 2}, "devices": set(), "findings": {"sockets instead of RDMA"},
        "rings": None}),
    ("nccl/nccl-tests-allreduce.log", {
        "version": "", "ranks": 8, "completed": 0, "hosts": 1, "networks": {}, "transports": {}, "devices": set(),
        "findings": set(), "rings": None}),
    ("nccl/net-lines.txt", {
        "version": "", "ranks": 0, "completed": 0, "hosts": 0, "networks": {}, "transports": {},
        "devices": {"eth0", "mlx5_bond_0", *(f"mlx5_{number}" for number in range(8)), *(f"ibs{number}" for number in range(108, 116))},
        "findings": set(), "rings": None}),
    ("recreated/nccl-2.2x-init-timings.log", {
        "version": "", "ranks": 3, "completed": 3, "hosts": 1, "networks": {},
        "transports": {"NET/IB": 1, "NET/IBext": 1, "NET/Socket": 1}, "devices": set(),
        "findings": {"sockets instead of RDMA"}, "rings": None}),
]


@needs_shared
@pytest.mark.parametrize(("path", "want"), SAMPLES, ids=[path for path, _ in SAMPLES])
def test_samples_read_as_noted(path: str, want: dict[str, Any]) -> None:
    log = NcclLog().feed_text(sample(f"logs/{path}"))
    assert {
        "version": log.version, "ranks": len(log.ranks), "completed": log.completed, "hosts": len(set(log.hosts().values())),
        "networks": dict(log.networks), "transports": dict(log.transports()),
        "devices": {name for one in log.devices.values() for name in one},
        "findings": {one.kind for one in log.findings()}, "rings": log.ring(),
    } == want
    assert log.dropped == 0


@needs_shared
def test_sample_with_a_slow_rank() -> None:
    slowest = NcclLog().feed_text(sample("logs/recreated/nccl-2.2x-init-timings.log")).slowest
    assert slowest is not None
    assert (slowest.rank, slowest.host, slowest.seconds, slowest.timed_by) == (6, "node01", 61.4, "NCCL")
    assert slowest.phases["bootstrap"] == 60.52


@needs_shared
def test_sample_peers_are_nodes_next_to_each_other_in_the_ring() -> None:
    log = NcclLog().feed_text(sample("logs/nccl/a100-4node-ib.log"))
    peers = log.peers()
    assert len({host for pair in peers for host in pair}) == 4
    assert all(source != target for source, target in peers)
    assert set(log.hosts().values()) == {host for pair in peers for host in pair}


# ---- our own lines


def test_a_job_of_two_nodes() -> None:
    log = NcclLog()
    for host, rank in (("g1", 0), ("g2", 1)):
        log.feed_text(
            info(host, f"ncclCommInitRank comm 0xab rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xc1 - Init START")
            + info(host, f"Ring 00 : {1 - rank} -> {rank} -> {1 - rank}")
            + info(host, f"Trees [0] {'1/-1/-1->0->-1' if rank == 0 else '-1/-1/-1->1->0'}")
            + info(host, f"Channel 00/0 : {rank}[0] -> {1 - rank}[0] [send] via NET/IB/0/GDRDMA")
            + info(host, f"Channel 00/0 : {1 - rank}[0] -> {rank}[0] [receive] via NET/IB/0/GDRDMA")
            + info(host, f"ncclCommInitRank comm 0xab rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xc1 - Init COMPLETE"))
    assert log.hosts() == {0: "g1", 1: "g2"}
    assert log.peers() == {("g1", "g2"): 1, ("g2", "g1"): 1}
    assert log.ring() == [0, 1]
    assert log.parents == {(("0xc1", 2), 0): {0: -1, 1: 0}}
    assert log.findings(rdma_expected=True) == []


def test_older_logs_name_the_communicator_after_its_channels() -> None:
    log = NcclLog().feed_text(
        info("g1", "Channel 00/02 :    0   1   2")
        + info("g1", "Channel 00 : 0[1b000] -> 1[1b000] [send] via NET/IB/0")
        + info("g1", "comm 0x7f0 rank 0 nranks 3 cudaDev 0 busId 1b000 - Init COMPLETE"))
    assert log.ring() == [0, 1, 2]
    assert [edge.group for edge in log.edges.values()] == [("", 3)]


def test_logs_of_2_4_call_channels_rings() -> None:
    log = NcclLog().feed_text(
        info("g1", "Ring 00 : 3 -> 4 [send] via NET/Socket/0") + info("g1", "Ring 00 : 0[0] -> 1[1] via P2P/IPC")
        + info("g1", "comm 0x7f0 rank 3 nranks 8 cudaDev 3 nvmlDev 3 - Init COMPLETE"))
    assert [(edge.source, edge.target, edge.transport) for edge in log.edges.values()] == [(3, 4, "NET/Socket"), (0, 1, "P2P")]


def test_a_ring_that_is_cut_at_twenty_ranks_is_no_ring() -> None:
    cut = "".join(f" {rank:3}" for rank in range(20))
    log = NcclLog().feed_text(
        info("g1", "comm 0x7f0 rank 0 nranks 32 cudaDev 0 busId 1b000 - Init COMPLETE") + info("g1", f"Channel 00/02 :{cut}"))
    assert log.ring() is None


def test_groups_of_one_size_do_not_lend_each_other_their_hosts() -> None:
    text = ""
    for host, comm in (("g1", "0xa"), ("g2", "0xb")):
        for rank in (0, 1):
            text += info(host, f"comm 0x1 rank {rank} nranks 2 cudaDev {rank} nvmlDev 0 busId 1 commId {comm} - Init COMPLETE", tid=rank)
    named = NcclLog().feed_text(text)
    assert named.hosts(("0xa", 2)) == {0: "g1", 1: "g1"}
    assert named.hosts(("0xb", 2)) == {0: "g2", 1: "g2"}
    unnamed = NcclLog().feed_text(text.replace(" commId 0xa", "").replace(" commId 0xb", ""))
    assert unnamed.hosts() == {}
    unnamed.feed(info("g1", "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0", tid=0))
    assert unnamed.peers() == {("g1", "rank 1"): 1}


@pytest.mark.parametrize(("start", "end", "at", "seconds", "by"), [
    ("[2026-05-05 06:16:47] ", "[2026-05-05 06:17:04] ", (1.0, 2.0), 17.0, "timestamps"),
    ("3: 2026-05-05T06:16:47,500 ", "3: 2026-05-05T06:16:49,250 ", (1.0, 2.0), 1.75, "timestamps"),
    ("", "", (100.0, 123.0), 23.0, "arrival"),
    ("", "", (None, None), None, ""),
    ("", "[2026-05-05 06:17:04] ", (1.0, 2.0), None, ""),
])
def test_older_inits_are_timed_by_their_two_lines(
    start: str, end: str, at: tuple[float | None, float | None], seconds: float | None, by: str
) -> None:
    log = NcclLog()
    line = "comm 0x1 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1 commId 0xc1 - Init"
    log.feed(start + info("g1", f"{line} START"), at[0])
    assert log.slowest is None
    log.feed(end + info("g1", f"{line} COMPLETE"), at[1])
    (rank,) = log.ranks.values()
    assert (rank.complete, rank.seconds, rank.timed_by) == (True, seconds, by)


def test_nccls_own_timing_wins_and_an_init_that_hangs_is_not_complete() -> None:
    log = NcclLog()
    line = "comm 0x1 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 1 commId 0xc1 - Init"
    log.feed(info("g1", f"{line} START"), 0)
    (rank,) = log.ranks.values()
    assert not rank.complete
    log.feed(info("g1", f"{line} COMPLETE"), 9)
    log.feed(info("g1", "Init timings - ncclCommInitRank: rank 3 nranks 8 total 8.50 (kernels 0.5, bootstrap 8.00)"), 9)
    assert len(log.ranks) == 1
    assert (rank.seconds, rank.timed_by, rank.phases) == (8.5, "NCCL", {"kernels": 0.5, "bootstrap": 8.0})


@pytest.mark.parametrize(("via", "transport", "device", "direct"), [
    ("NET/IB/3/GDRDMA", "NET/IB", "3", True),
    ("NET/IB/3/GDRDMA(PCI)", "NET/IB", "3", True),
    ("NET/IB/3(2)/GDRDMA", "NET/IB", "3", True),
    ("NET/IBext_v8/0", "NET/IBext", "0", False),
    ("NET/AWS Libfabric/2/GDRDMA", "NET/AWS Libfabric", "2", True),
    ("NET/Socket/1", "NET/Socket", "1", False),
    ("NET/FastSocket/0", "NET/FastSocket", "0", False),
    ("P2P/CUMEM/read", "P2P", "", False),
    ("SHM/direct/direct", "SHM", "", False),
    ("direct shared memory", "SHM", "", False),
])
def test_transports(via: str, transport: str, device: str, direct: bool) -> None:
    log = NcclLog().feed_text(info("g1", f"Channel 01/0 : 4[4] -> 12[4] [send] via {via}"))
    (edge,) = log.edges.values()
    assert (edge.transport, edge.device, edge.gpu_direct, edge.network) == (transport, device, direct, via.startswith("NET"))
    assert (edge.channel, edge.source, edge.target) == (1, 4, 12)


def test_sockets_are_wrong_only_where_rdma_was_meant() -> None:
    channel = info("g1", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0")
    log = NcclLog().feed_text(channel)
    assert log.findings() == []
    wrong = [Finding("sockets instead of RDMA", ("g1",), 1, 1)]
    assert log.findings(rdma_expected=True) == wrong
    with_card = NcclLog().feed_text(info("g2", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.7.0.1<0>") + channel)
    assert with_card.findings() == wrong
    assert with_card.findings(rdma_expected=False) == []
    assert with_card.devices == {"g2": {"mlx5_0": "1/RoCE"}}


def test_gpu_direct_that_is_missing_on_one_host_is_named() -> None:
    log = NcclLog().feed_text(
        info("g1", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA")
        + info("g2", "Channel 00/0 : 8[0] -> 16[0] [send] via NET/IB/0/GDRDMA")
        + info("g2", "Channel 01/0 : 8[0] -> 16[0] [send] via NET/IB/1"))
    assert log.findings() == [Finding("no GPUDirect RDMA", ("g2",), 1, 2)]


def test_glued_lines_are_two_lines() -> None:
    one = info("gpu-a1", "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0").rstrip()
    two = info("gpu-a2", "Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/1")
    log = NcclLog().feed_text(info("gpu-a2", "Using network IB") + one + two)
    assert [(edge.host, edge.transport, edge.device) for edge in log.edges.values()] == [
        ("gpu-a1", "NET/IB", "0"), ("gpu-a2", "NET/IB", "1")]


def test_what_launchers_put_before_lines_and_jobs_between_them() -> None:
    log = NcclLog().feed_text(
        "12: " + info("g1", "Using network IB")
        + "/opt/python/launch.py:178: FutureWarning: NCCL is nice\n"
        + "[default0]:" + info("g1", "NCCL_IB_DISABLE set by environment to 1.")
        + "g1:7:8 [1] net_ib.cc:99 NCCL WARN Call to ibv_modify_qp failed\n")
    assert (log.lines, log.networks["IB"], log.settings) == (3, 1, {"NCCL_IB_DISABLE": "1"})
    assert log.warnings == ["g1: Call to ibv_modify_qp failed"]


def test_an_estimate_spreads_what_the_cards_sent_over_the_channels() -> None:
    """D2: the log names peers; how much went there is an estimate from the NIC's measured bytes."""
    peers = {("a", "b"): 3, ("a", "c"): 1, ("b", "a"): 2, ("c", "a"): 2}
    flows = estimated_flows(peers, {"a": 400.0, "b": 100.0, "c": None})
    assert flows == [("a", "b", 300.0), ("a", "c", 100.0), ("b", "a", 100.0)]
    assert rack_share(flows, {"a": "r1", "b": "r1", "c": "r2"}).ratio == 0.2
    assert rack_share(flows, {}).ratio is None


def test_hostile_text_is_cleaned_and_bounded() -> None:
    log = NcclLog()
    log.feed("g1:1:2 [0] x.cc:1 NCCL WARN \x1b]0;gone\x07" + "y" * 9000)
    assert "\x1b" not in log.warnings[0]
    assert len(log.warnings[0]) <= MAX_LINE
    for number in range(300):
        log.feed(f"g1:1:2 [0] x.cc:1 NCCL WARN {number}")
    assert len(log.warnings) == 100


def test_the_newest_ranks_and_channels_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nccl_reference.MAX_RANKS", 8)
    monkeypatch.setattr("nccl_reference.MAX_EDGES", 8)
    log = NcclLog()
    for number in range(50):
        log.feed(info("g1", f"comm 0x1 rank {number} nranks 99 cudaDev 0 nvmlDev 0 busId 1 commId 0x{number:x} - Init COMPLETE", tid=number))
        log.feed(info("g1", f"Channel 00/0 : {number}[0] -> 1[0] [send] via NET/IB/0", tid=number))
        log.feed(info("g1", f"Ring 00 : 1 -> {number} -> 1", tid=number))
    assert [rank.rank for rank in log.ranks.values()] == list(range(42, 50))
    assert [edge.source for edge in log.edges.values()] == list(range(42, 50))
    assert (len(log.next_in_ring), log.dropped, log.completed) == (8, 84, 50)


def test_lines_that_look_like_rings_are_none_and_come_back() -> None:
    """A pattern that tried every split of such a line would not come back at all."""
    log = NcclLog()
    log.feed(info("g1", "Channel 00/02 : " + "1" * 4000 + "x"))
    log.feed(info("g1", "Channel 00/02 : " + " 1" * 2000 + "x"))
    assert log.lines == 2
    assert log.next_in_ring == {}


@given(st.lists(st.sampled_from([
    "Channel 00/0 : 0[0] -> 1[0] [send] via ", "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE", "Ring 00 : 1 -> 0 -> 1",
    "g:1:2 [0] NCCL INFO ", "\n", "Init timings: rank 0 nranks 2 total 9", "Trees [0] 1/-1/-1->0->-1", "é\x1b"]), max_size=12))
def test_any_order_of_pieces_is_read_without_an_error(pieces: list[str]) -> None:
    log = NcclLog().feed_text("".join(pieces))
    log.peers()
    log.findings()
    log.ring()
    assert log.dropped == 0
