"""What ss, /proc/net/tcp and conntrack print, and the bytes of each peer between two looks."""

from __future__ import annotations

import socket
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals.sockets import Endpoint, PeerBytes, Socket, endpoint, flows, parse
from clustertop.signals.sockets_proc import parse_conntrack, parse_proc_net_tcp
from tools import need
from traffic.shared import needs_shared, sample


@pytest.mark.parametrize(("text", "address", "port"), [
    ("10.7.0.4:5201", "10.7.0.4", 5201),
    ("[fd12::8]:9", "fd12::8", 9),
    ("[::ffff:10.7.0.4]:22", "10.7.0.4", 22),
    ("::ffff:10.7.0.4:22", "10.7.0.4", 22),
    ("[fe80::3]%ib0:40", "fe80::3%ib0", 40),
    ("127.0.0.53%lo:53", "127.0.0.53", 53),
    ("0.0.0.0%br0:67", "", 67),
    ("*:*", "", 0),
    ("[::]:80", "", 80),
    ("[fd00:0:0:0:0:0:0:5]:7", "fd00::5", 7),
])
def test_endpoints(text: str, address: str, port: int) -> None:
    assert endpoint(text) == Endpoint(address, port)


@pytest.mark.parametrize("text", ["", "host:ssh", "/run/x.sock", "10.7.0.4:70000", "[zz]:1", "10.7.0.4"])
def test_what_is_no_endpoint(text: str) -> None:
    assert endpoint(text) is None


ONE_LINE = ("ESTAB 0 0 10.7.1.1:40000 10.7.2.9:29500 uid:1000 ino:4242 sk:5f cgroup:/job <-> cubic wscale:7,7 rto:204 "
            "rtt:0.41/0.12 mss:8948 cwnd:10 bytes_acked:5001 bytes_received:90 send 3.2Gbps rwnd_limited:14ms(1.8%) busy:9ms")


def test_one_line_and_two_lines_say_the_same() -> None:
    head, rest = ONE_LINE.split(" uid:")
    (one,) = parse(ONE_LINE)
    (two,) = parse(f"{head}\n\t uid:{rest}   \n")
    (netid,) = parse(f"tcp {ONE_LINE}")
    assert one == two == netid
    assert (one.acked, one.received, one.rtt_ms, one.rttvar_ms, one.cookie) == (5001, 90, 0.41, 0.12, "5f")


def test_a_filter_by_state_leaves_its_column_out() -> None:
    (one,) = parse(f"Recv-Q Send-Q Local Address:Port Peer Address:Port\n{ONE_LINE.removeprefix('ESTAB ')}")
    assert one == parse(ONE_LINE)[0]
    assert parse("Recv-Q Send-Q Local Address:Port Peer Address:Port\n0 0 10.7.1.1:40000 10.7.2.9:53\n") == []


def test_a_missing_field_is_zero_only_where_the_kernel_counts() -> None:
    quiet = "ESTAB 0 0 10.7.1.1:1 10.7.2.9:2 cubic rtt:0.4/0.1 mss:1448"
    assert parse(quiet)[0].acked is None
    counted = parse(f"{quiet}\n{ONE_LINE}")[0]
    assert (counted.acked, counted.received) == (0, 0)
    syn = parse(f"SYN-SENT 0 1 10.7.1.1:1 10.7.2.9:2 cubic rto:1000 mss:524\n{ONE_LINE}")[0]
    assert (syn.acked, syn.rtt_ms, syn.leaves) == (None, None, False)


def test_an_unknown_line_and_its_second_line_belong_to_nobody() -> None:
    assert parse("udp UNCONN 0 0 10.7.1.1:9 0.0.0.0:*\n\t bytes_acked:7\nhello there\n\t rtt:1/1\n") == []


@needs_shared
@pytest.mark.parametrize(("name", "count"), [
    ("ss-tin.txt", 6), ("ss-tinH-t1.txt", 6), ("ss-tinH-t2.txt", 6), ("ss-tinH-t3.txt", 6), ("ss-tinHO.txt", 6),
    ("ss-tainH.txt", 6), ("ss-uan.txt", 0), ("telegraf-tcp_no_sockets.txt", 0), ("telegraf-tcp_traffic.txt", 3),
    ("telegraf-udp_traffic.txt", 0),
])
def test_samples_have_as_many_sockets(name: str, count: int) -> None:
    found = parse(sample(f"sockets/ss/{name}"))
    assert len(found) == count
    for one in found:
        assert (one.acked is None) == (one.state in ("SYN-SENT", "LISTEN")), one


@needs_shared
def test_sample_between_two_looks() -> None:
    texts = [sample(f"sockets/ss/ss-tinH-t{number}.txt") for number in (1, 2, 3)]
    t2 = {(one.local, one.peer): one for one in parse(texts[1])}
    one = t2[Endpoint("10.40.1.11", 43281), Endpoint("10.40.2.21", 29500)]
    assert (one.acked, one.received) == (5701828089, 711753663)
    meter = PeerBytes()
    steps = [meter.update(parse(text)) for text in texts]
    assert steps[0].first
    assert all(peer.sent == peer.received == 0 for peer in steps[0].peers.values())
    assert steps[1].peers["10.40.2.21"].sent > 5701828089 - 1369767937
    assert {address for address in steps[1].peers if not address.startswith("10.40.2.")} == {"fd00:40:1::21"}
    again = meter.update(parse(texts[2]))
    assert all(peer.sent == peer.received == 0 for peer in again.peers.values())
    assert all(peer.rtt_ms is None for peer in again.peers.values())


@needs_shared
def test_sample_with_old_units() -> None:
    second = parse(sample("sockets/ss/telegraf-tcp_traffic.txt"))[1]
    assert (second.acked, second.received) == (790782896, 1126)
    assert not second.leaves  # both ends are this node


@needs_shared
def test_samples_with_other_protocols() -> None:
    for name in ("jc-ss-wide-head.txt", "jc-ubuntu-18.04-ss-sudo-tulpen.txt"):
        found = parse(sample(f"sockets/ss/{name}"))
        assert found
        assert all(one.acked is None or not one.leaves or one.cookie for one in found)


def test_the_real_ss_counts_what_was_sent_on_a_real_socket() -> None:
    ss = need("ss", "iproute2")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x" * 12345)
            got = b""
            while len(got) < 12345:
                got += accepted.recv(20000)
            ends = Endpoint(*client.getsockname()), Endpoint(*accepted.getsockname())
            text = subprocess.run([ss, "-tineHO"], check=True, capture_output=True, text=True, timeout=240).stdout
            found = {(one.local, one.peer): one for one in parse(text)}
    there, back = found[ends], found[ends[1], ends[0]]
    assert (there.acked, there.received) == (12346, 0)  # the SYN counts as one
    assert back.received == 12345
    assert there.cookie
    assert there.cookie != back.cookie
    assert there.rtt_ms is not None


# ---- between two looks


def tcp(port: int, acked: int | None, received: int | None = 0, cookie: str = "", peer: str = "10.7.2.9",
        rtt: float | None = None, state: str = "ESTAB") -> Socket:
    return Socket(state, Endpoint("10.7.1.1", port), Endpoint(peer, 29500), cookie, acked, received, rtt, rtt)


def sent(meter: PeerBytes, *sockets: Socket, closed: tuple[Socket, ...] = ()) -> dict[str, tuple[int, int]]:
    step = meter.update(sockets, closed)
    return {address: (peer.sent, peer.received) for address, peer in step.peers.items()}


def test_the_first_look_is_a_baseline_and_later_sockets_count_whole() -> None:
    meter = PeerBytes()
    assert sent(meter, tcp(1, 500, 50)) == {"10.7.2.9": (0, 0)}
    assert sent(meter, tcp(1, 600, 60), tcp(2, 40, 4)) == {"10.7.2.9": (140, 14)}
    assert sent(meter, tcp(1, 600, 60), tcp(2, 40, 4)) == {"10.7.2.9": (0, 0)}


def test_a_port_that_was_taken_again_is_another_socket() -> None:
    meter = PeerBytes()
    sent(meter, tcp(1, 500, cookie="a"))
    assert sent(meter, tcp(1, 700, cookie="b")) == {"10.7.2.9": (700, 0)}
    assert sent(meter, tcp(1, 800, cookie="b")) == {"10.7.2.9": (100, 0)}
    plain = PeerBytes()
    sent(plain, tcp(1, 500))
    assert sent(plain, tcp(1, 30)) == {"10.7.2.9": (30, 0)}


def test_short_sockets_count_by_their_last_reading() -> None:
    meter = PeerBytes()
    sent(meter, tcp(1, 100, cookie="a"))
    assert sent(meter, closed=(tcp(1, 160, cookie="a"), tcp(2, 9, cookie="b"))) == {"10.7.2.9": (69, 0)}
    assert sent(meter) == {}


def test_what_vanished_without_a_last_reading_is_said() -> None:
    meter = PeerBytes()
    meter.update([tcp(1, 100), tcp(2, 100)])
    assert meter.update([tcp(1, 100), tcp(2, 100, state="TIME-WAIT")]).vanished == 1
    assert meter.update([tcp(1, 100)]).vanished == 0


def test_sockets_without_counters_are_counted_as_such() -> None:
    step = PeerBytes().update([tcp(1, None, None), tcp(2, 5)])
    assert (step.uncounted, step.peers["10.7.2.9"].sockets) == (1, 2)


def test_only_what_leaves_the_node_counts() -> None:
    inside = [
        Socket("ESTAB", Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 2), "", 9, 9),
        Socket("ESTAB", Endpoint("10.7.1.1", 1), Endpoint("10.7.1.1", 2), "", 9, 9),
        Socket("ESTAB", Endpoint("::1", 1), Endpoint("::1", 2), "", 9, 9),
        Socket("LISTEN", Endpoint("", 1), Endpoint("", 0)),
    ]
    assert PeerBytes().update(inside).peers == {}


def test_jitter_is_that_of_the_sockets_that_move() -> None:
    meter = PeerBytes()
    meter.update([tcp(1, 0, rtt=9.0), tcp(2, 0, rtt=0.2), tcp(3, 0, rtt=0.4)])
    step = meter.update([tcp(1, 0, rtt=9.0), tcp(2, 7, rtt=0.2), tcp(3, 7, rtt=0.4)])
    assert step.peers["10.7.2.9"].rttvar_ms == pytest.approx(0.3)


def test_a_flow_is_counted_once_though_both_ends_are_asked() -> None:
    a, b = PeerBytes(), PeerBytes()
    a.update([])
    b.update([])
    ends = Endpoint("10.7.1.1", 1), Endpoint("10.7.2.9", 2)
    step_a = a.update([Socket("ESTAB", *ends, "", 1000, 40)]).peers
    step_b = b.update([Socket("ESTAB", ends[1], ends[0], "", 40, 999)]).peers
    node_of = {"10.7.1.1": "a", "10.7.2.9": "b"}
    assert sorted(flows({"a": step_a, "b": step_b}, node_of)) == [("a", "b", 1000), ("b", "a", 40)]
    assert sorted(flows({"a": step_a}, node_of)) == [("a", "b", 1000), ("b", "a", 40)]
    assert ("a", "10.7.2.9", 1000) in flows({"a": step_a}, {"10.7.1.1": "a"})


@given(st.lists(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 10**6)), max_size=5), max_size=6))
def test_bytes_never_go_back(looks: list[list[tuple[int, int]]]) -> None:
    meter = PeerBytes()
    for look in looks:
        step = meter.update([tcp(port, acked) for port, acked in look])
        assert all(peer.sent >= 0 for peer in step.peers.values())


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parse(text)
    parse(f"ESTAB 0 0 10.7.1.1:1 10.7.2.9:2 {text}")
    parse_conntrack(text)
    parse_proc_net_tcp(text)


# ---- the kernel's files

PROC_TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000   117        0 22051 1 0 100 0 0 10 0
   1: 0101070A:9C40 0902070A:733C 01 00000000:00000000 02:000a 00000000  1000        0 4242 2 0 20 4 30 10 -1
"""
PROC_TCP6 = "   0: 0000000000000000FFFF00000101070A:0016 0000000000000000FFFF00000902070A:D431 01 0:0 0\n" \
            "   1: 000012FD000000000000000008000000:0016 00000000000000000000000000000000:0000 0A 0:0 0\n"


def test_proc_net_tcp() -> None:
    listening, open_ = parse_proc_net_tcp(PROC_TCP)
    assert (listening.state, listening.local) == ("LISTEN", Endpoint("127.0.0.1", 3306))
    assert (open_.local, open_.peer) == (Endpoint("10.7.1.1", 40000), Endpoint("10.7.2.9", 29500))
    assert (open_.acked, open_.received) == (None, None)
    mapped, six = parse_proc_net_tcp(PROC_TCP6)
    assert mapped.peer == Endpoint("10.7.2.9", 54321)
    assert six.local == Endpoint("fd12::8", 22)


@needs_shared
@pytest.mark.parametrize("name", ["conntrack-L.txt", "conntrack-L-extended.txt", "proc-nf_conntrack.txt"])
def test_sample_flows_of_the_tracker(name: str) -> None:
    found = parse_conntrack(sample(f"sockets/conntrack/{name}"))
    assert [one.protocol for one in found].count("tcp") == 6
    (udp,) = (one for one in found if one.protocol == "udp")
    assert (udp.sent, udp.replied, udp.target.port) == (30840, False, 4791)
    assert any(":" in one.source.address for one in found)
    if name == "conntrack-L.txt":
        one = next(one for one in found if one.source == Endpoint("10.40.1.13", 45627))
        assert (one.target.address, one.sent, one.received) == ("10.40.2.21", 5292463228, 665200320)


def test_flows_without_accounting_have_no_bytes() -> None:
    (one,) = parse_conntrack("tcp      6 90 ESTABLISHED src=10.7.1.1 dst=10.7.2.9 sport=4 dport=5 "
                             "src=10.7.2.9 dst=10.7.1.1 sport=5 dport=4 [ASSURED] use=1\n")
    assert (one.sent, one.received, one.replied) == (None, None, True)


@needs_shared
def test_sample_statistics_are_no_flows() -> None:
    assert parse_conntrack(sample("sockets/proc/procfs-nf_conntrack-stat.txt")) == []
