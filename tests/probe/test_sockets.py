"""TCP bytes by peer: between racks of network namespaces, and by answers of the kernel that were written by hand."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import racks
from clustertop.probe import loop, sockdiag, socktext
from clustertop.probe.files import Call, Tree
from clustertop.probe.frames import Err
from clustertop.probe.peers import IDLE_SECONDS, MAX_PEERS, MAX_SOCKETS, RELIST_SECONDS, RELISTS, Peers
from clustertop.probe.sockdiag import Diag
from clustertop.probe.sockets import MAX_SECONDS, RETRY_SECONDS, Sockets
from clustertop.probe.socktext import Ss, parsed
from netns import inside
from probe.harness import interpreter
from traffic.shared import needs_shared, sample


def missing(got: dict[str, Any], which: str, sent: dict[str, dict[str, int]]) -> list[str]:
    """Flows that are not within 1 % of what was sent."""
    wrong = []
    for source, books in sent.items():
        for target, count in books.items():
            node, other = (source, target) if which == "transmit" else (target, source)
            value = got[which].get(node, {}).get(other, 0.0)
            if not 0.99 * count <= value <= 1.01 * count:
                wrong.append(f"{source} to {target}: {count}, {which} says {value}")
    return wrong


@pytest.mark.parametrize("version", ["3.6", "3.13"])
@pytest.mark.parametrize("way", ["", "ss"])
def test_what_was_sent_between_racks_is_what_is_read(version: str, way: str) -> None:
    """Sockets that were there, that open, that close within an interval; IPv4, IPv6 and mapped; both ends."""
    got = inside(racks.SCRIPT, interpreter(version), way, "" if way else "short", links=racks.LINKS)
    strangers = {"10.88.9.9": 250_000, racks.SHARED: 150_000}
    assert {name: got["sent"]["n0"][name] for name in strangers} == strangers
    assert not missing(got, "transmit", got["sent"]), "nobody's and several nodes' address stand for themselves"
    for name in strangers:
        del got["sent"]["n0"][name]
    # What came from the address of two is n1's by its own socket, but n0 cannot be told to have sent it there.
    got["sent"]["n0"]["n1"] += strangers[racks.SHARED]
    assert not missing(got, "receive", got["sent"])
    words = "ss; short-lived sockets not counted" if way else "sock_diag"
    assert {facts["sockets"] for facts in got["facts"]} == {words}
    known = [values for peers in got["peers"].values() for values in peers.values()]
    assert not {"127.0.0.1", "::1", "10.88.0.1", "fd00:88::1"} & got["peers"]["n0"].keys(), "nothing of it left the node"
    assert not [key for peers in got["peers"].values() for key in peers if key.startswith("::ffff:")]
    # By ss looks are rarer: what moved may be too long ago to tell of its round trips.
    timed = [values for values in known if values["rtt_seconds"] is not None or not way]
    assert all(0 < values["rtt_seconds"] <= values["rtt_max_seconds"] < 1 for values in timed)
    assert all(0 < values["rtt_variation_seconds"] <= values["rtt_variation_max_seconds"] < 1 for values in timed)
    sockets = {(node, key): values["sockets"] for node, peers in got["peers"].items() for key, values in peers.items()}
    assert sockets["n0", "10.88.0.2"] == 2, "one each way"
    assert sockets["n0", "10.88.1.3"] == 1


# ---- answers of the kernel, written by hand ------------------------------------------------------------------------

HERE, THERE, THIRD = "10.1.0.1", "10.1.0.2", "fd00:1::3"


def packed(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def said(peer: str, cookie: int, acked: int = 0, received: int = 0, *, rtt: int = 120, rttvar: int = 7, info: int = 232,
         local: str = HERE, before: bytes = b"", kind: int = 20, number: int = 1) -> bytes:
    """One message about a socket; *info* is how long its tcp_info is, *before* what stands before it."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    body = struct.pack("=BBBBHH16s16sIQ20x", family, 1, 0, 0, 22, 5001, packed(local), packed(peer), 0, cookie)
    tcp = bytes(68) + struct.pack("=II44xQQ", rtt, rttvar, acked, received) + bytes(400)
    body += before
    if info:
        body += struct.pack("=HH", 4 + info, 2) + tcp[:info]
    return header(16 + len(body), kind, number) + body


def header(size: int, kind: int, number: int = 1) -> bytes:
    return struct.pack("=IHHII", size, kind, 2, number, 77)


SHUTDOWN = struct.pack("=HHB3x", 5, 8, 0)
DONE = header(20, 3) + bytes(4)


def read(diag: Diag, data: bytes, number: int = 1) -> tuple[list[Any], bool]:
    diag._data[: len(data)] = data
    return diag._rows(len(data), number)


def flat(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row[1], row[2], struct.unpack("=Q", row[3])[0], row[5], row[6], row[7]) for row in rows]


def counts(acked: int, received: int) -> bytes:
    return struct.pack("=QQ", acked, received)


@pytest.mark.parametrize("kind", [18, 20])
def test_messages_alike_are_read_as_those_that_differ(kind: int) -> None:
    alike = [said(THERE, cookie, 10 * cookie, cookie, before=SHUTDOWN, kind=kind) for cookie in range(1, 9)]
    expected = [(packed(HERE), packed(THERE), cookie, 120, 7, counts(10 * cookie, cookie)) for cookie in range(1, 9)]
    diag = Diag(Call())
    for _ in range(2):  # before the layout is known, and after
        rows, more = read(diag, b"".join(alike))
        assert (flat(rows), more) == (expected, True)
    assert diag._alike(sum(map(len, alike)), 1) is not None
    six = said(THIRD, 9, 5, 6, local="fd00:1::1", kind=kind)
    same_size = said(THIRD, 10, 7, 8, local="fd00:1::1", before=SHUTDOWN, kind=kind)
    assert len(same_size) == len(alike[0])
    moved = said(THERE, 11, 1, 2, info=232, before=struct.pack("=HHI", 8, 15, 0), kind=kind)
    for odd, (peer, local, acked, got) in ((six, (THIRD, "fd00:1::1", 5, 6)), (same_size, (THIRD, "fd00:1::1", 7, 8)),
                                           (moved, (THERE, HERE, 1, 2))):
        rows, _ = read(diag, alike[0] + odd + alike[1] + DONE)
        assert [(row[1], row[2], row[7]) for row in rows][1] == (packed(local), packed(peer), counts(acked, got))
        assert flat(rows)[0::2] == expected[:2]


def test_what_waits_out_its_time_has_no_tcp_info_and_is_no_socket() -> None:
    rows, more = read(Diag(Call()), said(THERE, 1, info=0) + said(THERE, 2, 5, 6) + said(THERE, 3, info=0, before=SHUTDOWN) + DONE)
    assert [row[2] for row in flat(rows)] == [2]
    assert not more


def test_answers_to_somebody_else_are_passed_over() -> None:
    rows, _ = read(Diag(Call()), said(THERE, 1, 1, 1, number=4) + said(THERE, 2, 5, 6))
    assert [row[2] for row in flat(rows)] == [2]
    diag = Diag(Call())
    read(diag, said(THERE, 1))
    assert read(diag, said(THERE, 1, number=4))[0] == []


@pytest.mark.parametrize(("data", "words"), [
    (said(THERE, 1)[:200], "a message of"),
    (said(THERE, 1) + b"\1\0\0", "3 bytes are no message"),
    (header(8, 20) + bytes(8), "a message of 8 bytes"),
    (header(40, 20) + bytes(24), "a socket in 40 bytes"),
    (said(THERE, 1, before=struct.pack("=HHI", 400, 8, 0)), "an attribute of 400 bytes"),
    (said(THERE, 1, before=struct.pack("=HHI", 2, 8, 0)), "an attribute of 2 bytes"),
])
def test_what_is_no_whole_message_is_an_error(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(Diag(Call()), data)


def test_the_kernel_refuses() -> None:
    with pytest.raises(PermissionError):
        read(Diag(Call()), header(20, 2) + struct.pack("=i", -errno.EPERM))
    with pytest.raises(OSError, match="message") as caught:
        read(Diag(Call()), header(16, 2))
    assert caught.value.errno == errno.EBADMSG


@pytest.mark.parametrize(("length", "known"), [(104, False), (120, False), (136, True), (280, True)])
def test_a_kernel_before_4_1_has_no_byte_counters(length: int, known: bool) -> None:
    """Its tcp_info is shorter: the bytes are unknown, not 0; round trips are told."""
    peers, diag = Peers(), Diag(Call())
    for at, acked in ((10.0, 100), (12.0, 700)):
        look(peers, at, read(diag, said(THERE, 1, acked, 5, info=length))[0])
    assert cells(peers, "10.1.0.2")[:2] == ([600, 0] if known else [Err("no byte counters")] * 2)
    assert cells(peers, "10.1.0.2")[2:] == [1, 120, 7, 120, 7]


# ---- adding up -----------------------------------------------------------------------------------------------------


def row(peer: str, cookie: int, acked: int = 0, received: int = 0, rtt: int = 100, local: str = HERE) -> Any:
    return (b"", packed(local), packed(peer), struct.pack("=Q", cookie), b"", rtt, rtt // 2, counts(acked, received))


def look(peers: Peers, at: float, rows: list[Any], ended: list[Any] | None = None) -> None:
    peers.begin(at)
    peers.ended(ended or [])
    peers.take(rows)
    peers.end()


def cells(peers: Peers, key: str) -> list[Any]:
    table = peers.table()
    keys = [one for one, _ in table.rows]
    return [table.cells[at * len(keys) + keys.index(key)] for at in range(len(table.columns))]


def test_what_was_there_at_first_is_a_baseline_and_what_comes_later_counts_whole() -> None:
    peers = Peers()
    look(peers, 10.0, [row(THERE, 1, 1000, 2000)])
    assert cells(peers, THERE)[:3] == [0, 0, 1]
    look(peers, 12.0, [row(THERE, 1, 1500, 2000, 300), row(THERE, 2, 70, 7, 100), row(THIRD, 3, 9, 90)])
    assert cells(peers, THERE) == [570, 7, 2, 200, 100, 300, 150]
    assert cells(peers, THIRD)[:3] == [9, 90, 1]
    assert dict(peers.table().rows) == {THERE: {"since": 10.0}, THIRD: {"since": 10.0}}


def test_last_words_are_counted_once() -> None:
    peers = Peers()
    look(peers, 10.0, [row(THERE, 1, 100, 0)], ended=[row(THERE, 9, 5000, 0)])
    assert cells(peers, THERE)[0] == 0, "it ended before anything was counted"
    # One that was known, one that came and went in between, and one whose last words come a look late.
    look(peers, 12.0, [row(THERE, 3, 40)], ended=[row(THERE, 1, 150, 0), row(THERE, 2, 30, 3)])
    assert cells(peers, THERE)[:3] == [120, 3, 1]
    look(peers, 14.0, [])
    look(peers, 16.0, [], ended=[row(THERE, 3, 45)])
    assert cells(peers, THERE)[:3] == [125, 3, 0]


def test_a_socket_that_one_look_passes_over_is_not_a_new_one() -> None:
    """The kernel's walk may miss one whose chain changes under it."""
    peers = Peers()
    look(peers, 10.0, [row(THERE, 1, 10**9)])
    look(peers, 12.0, [])
    look(peers, 14.0, [row(THERE, 1, 10**9 + 5)])
    assert cells(peers, THERE)[0] == 5


def test_a_look_that_fails_half_way_loses_and_doubles_nothing() -> None:
    peers = Peers()
    look(peers, 10.0, [row(THERE, 1, 100)])
    peers.begin(12.0)
    peers.ended([row(THIRD, 7, 50)])
    peers.take([row(THERE, 1, 130)])  # and then the kernel does not answer any more
    look(peers, 14.0, [row(THERE, 1, 150), row(THERE, 2, 1)])
    assert cells(peers, THERE)[:3] == [51, 0, 2]
    assert cells(peers, THIRD)[:3] == [50, 0, 0]


def test_a_time_without_counters_makes_no_socket_new() -> None:
    """The way of reading may change, to one that counts nothing, and back."""
    peers = Peers()
    look(peers, 10.0, [row(THERE, 1, 10**9), row(THERE, 2, 7)])
    for at in (12.0, 14.0, 16.0):
        look(peers, at, [(*row(THERE, number)[:3], b"ends", *row(THERE, number)[4:7], b"") for number in (1, 2, 3)])
        assert cells(peers, THERE)[:3] == [Err("no byte counters")] * 2 + [3]
    look(peers, 18.0, [row(THERE, 1, 10**9 + 5), row(THERE, 3, 40)])
    assert cells(peers, THERE)[:3] == [45, 0, 2]


def test_mapped_addresses_and_what_never_leaves_the_node() -> None:
    peers = Peers()
    look(peers, 10.0, [])
    look(peers, 12.0, [
        row(THERE, 1, 5), row(f"::ffff:{THERE}", 2, 6, local=f"::ffff:{HERE}"), row("127.0.0.9", 3, 7), row("::1", 4, 8),
        row("::ffff:127.0.0.1", 5, 9), row(HERE, 6, 10, local="10.1.0.7"), row("10.1.0.7", 7, 11),
        row("0.0.0.0", 8, 12), row("::", 9, 13),
    ])  # fmt: skip
    assert [key for key, _ in peers.table().rows] == [THERE]
    assert cells(peers, THERE)[:3] == [11, 0, 2]


def test_round_trips_are_of_sockets_that_moved_bytes_and_not_for_ever() -> None:
    peers = Peers()
    look(peers, 10.0, [row(THERE, 1, 5, rtt=900)])
    assert cells(peers, THERE)[3:] == [Err("no traffic")] * 4
    look(peers, 12.0, [row(THERE, 1, 5, rtt=900), row(THERE, 2, 5, rtt=80)])
    assert cells(peers, THERE)[3:] == [80, 40, 80, 40]
    look(peers, 40.0, [row(THERE, 1, 5, rtt=900), row(THERE, 2, 5, rtt=80)])
    assert cells(peers, THERE)[3] == 80
    look(peers, 43.0, [row(THERE, 1, 5, rtt=900), row(THERE, 2, 5, rtt=80)])
    assert cells(peers, THERE)[3:] == [Err("no traffic")] * 4


def host(number: int) -> str:
    return f"10.2.{number >> 8}.{number & 255}"


def sums(peers: Peers) -> dict[str, int]:
    return {key: cells(peers, key)[0] for key, _ in peers.table().rows}


def test_the_largest_have_rows_and_the_others_are_one() -> None:
    peers, count = Peers(), MAX_PEERS + 50
    look(peers, 10.0, [])
    look(peers, 12.0, [row(host(number), number, 1000 + number) for number in range(1, count + 1)])
    told = sums(peers)
    assert len(told) == MAX_PEERS + 1
    assert set(told) == {"*", *(host(number) for number in range(51, count + 1))}
    assert sum(told.values()) == sum(1000 + number for number in range(1, count + 1))
    assert cells(peers, "*")[2] == 50
    # The smallest one of all has the most now: it gets a row, whose counters begin there.
    at, acked = 12.0, 1001
    for _ in range(12):
        at, acked = at + 2.0, acked + 10**6
        rest = [row(host(number), number, 1000 + number) for number in range(2, count + 1)]
        look(peers, at, [row(host(1), 1, acked), *rest])
    later = sums(peers)
    assert host(1) in later
    assert len(later) == MAX_PEERS + 1
    since = dict(peers.table().rows)[host(1)]["since"]
    assert isinstance(since, float)
    assert since > 12.0
    # What it moved before is among the others; who lost the row takes nothing of what was told with it.
    assert later["*"] - told["*"] + later[host(1)] == acked - 1001


def test_peers_that_have_gone_go_and_come_back_anew() -> None:
    peers = Peers()
    look(peers, 10.0, [row(THERE, 1, 5)])
    look(peers, 12.0, [row(THERE, 1, 50)])
    look(peers, 300.0, [])
    assert cells(peers, THERE)[:3] == [45, 0, 0]
    look(peers, 10.0 + IDLE_SECONDS + 5.0, [])
    assert peers.table().rows == []
    look(peers, 700.0, [row(THERE, 2, 7)])
    assert peers.table().rows == [(THERE, {"since": 10.0 + IDLE_SECONDS + 5.0})]
    assert cells(peers, THERE)[:3] == [7, 0, 1]


def test_rows_are_not_added_at_every_look() -> None:
    """A node with ever new peers does not send all it has each time; nothing of them is lost meanwhile."""
    peers = Peers()
    layouts = set()
    for number in range(1, 61):
        look(peers, 10.0 + 2 * number, [row(host(one), one, 100) for one in range(1, number + 1)])
        layouts.add(tuple(key for key, _ in peers.table().rows))
    assert len(layouts) <= RELISTS + 120 / RELIST_SECONDS + 1
    look(peers, 142.0, [row(host(one), one, 100) for one in range(1, 61)])
    assert sum(sums(peers).values()) == 59 * 100


def test_more_sockets_than_are_followed() -> None:
    peers = Peers()
    look(peers, 10.0, [row(THERE, number, 1000) for number in range(1, MAX_SOCKETS + 11)])
    assert peers.overfull
    # Room again: those that were not followed are not new.
    look(peers, 12.0, [row(THERE, number, 1003) for number in range(6, MAX_SOCKETS + 11)])
    look(peers, 14.0, [row(THERE, number, 1005) for number in range(11, MAX_SOCKETS + 11)])
    look(peers, 16.0, [row(THERE, number, 1005) for number in range(20, MAX_SOCKETS + 11)])
    assert not peers.overfull
    assert cells(peers, THERE)[0] < 6 * MAX_SOCKETS
    before = cells(peers, THERE)[0]
    look(peers, 18.0, [row(THERE, number, 1005) for number in range(20, MAX_SOCKETS + 11)] + [row(THERE, 99999, 40)])
    assert cells(peers, THERE)[0] == before + 40


# ---- other ways ----------------------------------------------------------------------------------------------------

OLD_SS = """State      Recv-Q Send-Q Local Address:Port               Peer Address:Port
ESTAB      0      0      10.1.0.1:22                 10.1.0.2:40000               timer:(keepalive,93min,0) ino:31 sk:1a <->
\t ts sack cubic wscale:7,7 rto:208 rtt:4.511/1.25 ato:40 mss:1448 cwnd:10 bytes_acked:3313 bytes_received:2973
ESTAB      0      0      ::ffff:10.1.0.1:80                 ::ffff:10.1.0.2:40001               ino:32 sk:1b <->
\t cubic rto:201 rtt:0.25/0.125 bytes_received:77
ESTAB      0      0      fd00:1::1:80                 fd00:1::3:40001               ino:33 sk:1c <->
\t cubic rto:201 rtt:1/0.5
TIME-WAIT  0      0      10.1.0.1:22                 10.1.0.4:40000               timer:(timewait,59sec,0) ino:0 sk:1d
LISTEN     0      128    *:22                 *:*                   ino:34 sk:1e <->
"""
NEW_SS = """ESTAB 0 0 10.1.0.1%eth0:22 10.1.0.2:40000 uid:1000 ino:31 sk:1a cgroup:/user.slice <->
\t ts sack cubic wscale:7,7 rto:208 rtt:4.511/1.25 bytes_sent:3400 bytes_retrans:87 bytes_acked:3313 bytes_received:2973
ESTAB 0 0 [::ffff:10.1.0.1]:80 [::ffff:10.1.0.2]:40001 ino:32 sk:1b
\t cubic rto:201 rtt:0.25/0.125 bytes_received:77
ESTAB 0 0 [fd00:1::1]:80 [fd00:1::3]:40001 ino:33 sk:1c
\t cubic rto:201 rtt:1/0.5
TIME-WAIT 0 0 10.1.0.1:22 10.1.0.4:40000 timer:(timewait,59sec,0) ino:0 sk:1d
"""


def program(tmp_path: Path, text: str) -> str:
    """A shell script that stands for ``ss``."""
    path = tmp_path / "ss"
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("text", [OLD_SS, NEW_SS])
def test_ss_old_and_new(tmp_path: Path, text: str) -> None:
    ss = Ss(Call(), (str(tmp_path / "absent"), program(tmp_path, f"[ \"$1\" = -tine ] || exit 9\ncat <<'END'\n{text}END\n")))
    got = [one for rows in ss.rows() for one in rows]
    mapped = packed("::ffff:10.1.0.1"), packed("::ffff:10.1.0.2")
    assert flat(got) == [
        (packed(HERE), packed(THERE), 0x1A, 4511, 1250, counts(3313, 2973)),
        (*mapped, 0x1B, 250, 125, counts(0, 77)),
        (packed("fd00:1::1"), packed(THIRD), 0x1C, 1000, 500, counts(0, 0)),
    ], "a counter that is left out is 0 where others have it"


def test_ss_of_a_kernel_without_counters(tmp_path: Path) -> None:
    text = "ESTAB 0 0 10.1.0.1:22 10.1.0.2:40000 ino:31 sk:1a <->\n\t cubic rto:201 rtt:1/0.5\n"
    rows = [one for rows in Ss(Call(), (program(tmp_path, f"cat <<'END'\n{text}END\n"),)).rows() for one in rows]
    assert flat(rows) == [(packed(HERE), packed(THERE), 0x1A, 1000, 500, b"")]


@pytest.mark.parametrize("text", ["", "ESTAB", "ESTAB 0 0 x y", "ESTAB 0 0 10.1.0.1:22 *:*", "u_str ESTAB 0 0 * 1 * 2",
                                  "SYN-SENT 0 1 10.7.1.1:1 10.7.2.9:2 rto:1000 mss:524", "udp UNCONN 0 0 10.7.1.1:9 0.0.0.0:*",
                                  "hello there", "ESTAB 0 0 [::1:22 10.1.0.2", "\x1b[31mESTAB 0 0 10.1.0.1:22 10.1.0.2:1"])
def test_lines_that_are_no_socket(text: str) -> None:
    assert parsed(text) is None


@pytest.mark.parametrize(("text", "address"), [
    ("10.7.0.4:5201", "10.7.0.4"), ("[fd12::8]:9", "fd12::8"), ("::ffff:10.7.0.4:22", "::ffff:10.7.0.4"),
    ("[::ffff:10.7.0.4]:22", "::ffff:10.7.0.4"), ("[fe80::3]%ib0:40", "fe80::3"), ("127.0.0.53%lo:53", "127.0.0.53"),
    ("[fd00:0:0:0:0:0:0:5]:7", "fd00::5"), ("host:ssh", None), ("/run/x.sock", None), ("[zz]:1", None), ("*:*", None),
])
def test_ends_as_ss_writes_them(text: str, address: str | None) -> None:
    row = parsed(f"ESTAB 0 0 10.1.0.1:22 {text} ino:31 sk:1a <-> rtt:1/0.5")
    assert (row and row[2]) == (address and packed(address))


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parsed(text)
    parsed(f"ESTAB 0 0 10.7.1.1:1 10.7.2.9:2 {text}")


def of_sample(name: str, folder: Path) -> list[Any]:
    """The rows of a recorded ``ss``, with the kernel's cookies, which ``-e`` adds to a line, where it has none."""
    lines = [line if line[:1] in ("", " ", "\t") or " sk:" in line else f"{line.rstrip()} sk:{number + 1:x} <->"
             for number, line in enumerate(sample(f"sockets/ss/{name}").splitlines())]
    (folder / "said").write_text("\n".join([*lines, ""]))
    return [one for rows in Ss(Call(), (program(folder, f"cat '{folder / 'said'}'"),)).rows() for one in rows]


@needs_shared
@pytest.mark.parametrize(("name", "count"), [
    ("ss-tin.txt", 6), ("ss-tinH-t1.txt", 6), ("ss-tinH-t2.txt", 6), ("ss-tinH-t3.txt", 6), ("ss-tinHO.txt", 6),
    ("ss-tainH.txt", 6), ("ss-uan.txt", 0), ("telegraf-tcp_no_sockets.txt", 0), ("telegraf-tcp_traffic.txt", 3),
    ("telegraf-udp_traffic.txt", 0), ("jc-ss-wide-head.txt", 0), ("jc-ubuntu-18.04-ss-sudo-tulpen.txt", 0),
])
def test_samples_have_as_many_sockets_that_carry_data(name: str, count: int, tmp_path: Path) -> None:
    rows = of_sample(name, tmp_path)
    assert len(rows) == count
    assert all(row[7] for row in rows), "each has its counters"


@needs_shared
def test_sample_between_two_looks(tmp_path: Path) -> None:
    looks = [of_sample(f"ss-tinH-t{number}.txt", tmp_path) for number in (1, 2, 3)]
    assert (packed("10.40.1.11"), packed("10.40.2.21"), counts(5701828089, 711753663)) in [
        (row[1], row[2], row[7]) for row in looks[1]]
    peers = Peers()
    look(peers, 10.0, looks[0])
    assert all(cells(peers, key)[:2] == [0, 0] for key, _ in peers.table().rows)
    look(peers, 20.0, looks[1])
    assert {key for key, _ in peers.table().rows if not key.startswith("10.40.2.")} == {"fd00:40:1::21"}
    sent = cells(peers, "10.40.2.21")[0]
    assert sent > 5701828089 - 1369767937
    look(peers, 30.0, looks[1])
    assert cells(peers, "10.40.2.21")[0] == sent, "what stands still adds nothing"


@needs_shared
def test_sample_with_old_units(tmp_path: Path) -> None:
    rows = of_sample("telegraf-tcp_traffic.txt", tmp_path)
    assert rows[1][7] == counts(790782896, 1126)
    peers = Peers()
    look(peers, 10.0, [])
    look(peers, 12.0, rows)
    assert peers.table().rows == [], "both ends of each are this node"


def test_an_ss_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socktext, "SECONDS", 0.3)
    mark = tmp_path / "pid"
    ss = Ss(Call(), (program(tmp_path, f"echo $$ > {mark}\nexec sleep 600\n"),))
    with pytest.raises(OSError, match="did not end in time"):
        list(ss.rows())
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


def test_no_second_ss_beside_one_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sleeps in the kernel does not let itself be ended; here: what is not ended at all."""
    monkeypatch.setattr(socktext, "SECONDS", 0.2)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: None)
    runs = tmp_path / "runs"
    ss = Ss(Call(), (program(tmp_path, f"echo run >> {runs}\nexec sleep 3\n"),))
    with pytest.raises(OSError, match="did not end in time"):
        list(ss.rows())
    with pytest.raises(OSError, match="has not come back"):
        list(ss.rows())
    assert runs.read_text() == "run\n"
    ss._left.wait(60)


def test_an_ss_that_fails_or_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="ss ended with 3"):
        list(Ss(Call(), (program(tmp_path, "exit 3\n"),)).rows())
    with pytest.raises(OSError, match="no ss"):
        list(Ss(Call(), ()).rows())


PROC = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100010A:0016 0200010A:9C40 01 00000000:00000000 02:000A7B1E 00000000     0        0 31 2 ffff 20 4 29 10 -1
   1: 0100010A:0016 0200010A:9C41 06 00000000:00000000 03:00001770 00000000     0        0 0 3 ffff
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 34 1 ffff 100 0 0 10 0
"""
PROC6 = """  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 0000000000000000FFFF00000100010A:0050 0000000000000000FFFF00000200010A:9C41 01 00000000:00000000 00:00000000
"""


def tree(tmp_path: Path) -> Tree:
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/tcp").write_text(PROC)
    (tmp_path / "proc/net/tcp6").write_text(PROC6)
    return Tree(str(tmp_path), Call())


@pytest.mark.skipif(sys.byteorder == "big", reason="addresses stand there in the node's byte order")
def test_below_another_root_its_own_list_counts_and_no_bytes_are_known(tmp_path: Path) -> None:
    reader = Sockets(tree(tmp_path), Call())
    for at in (1.0, 3.0):
        reading = reader.read(at)
    table = reading.tables["peer"]
    assert [key for key, _ in table.rows] == [THERE]
    assert table.cells == [Err("no byte counters"), Err("no byte counters"), 2, None, None, None, None]
    assert reading.facts == {"sockets": "/proc/net/tcp; bytes unknown"}


def test_a_root_without_sockets_is_off(tmp_path: Path) -> None:
    assert Sockets(Tree(str(tmp_path), Call()), Call()).read(1.0).st == "off"


class Refuses:
    """The kernel at the wire: it has no socket of this family for us."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked = 0

    def __call__(self, family: int, *_: object) -> Any:
        self.asked += 1
        assert family == socket.AF_NETLINK
        raise OSError(self.code, os.strerror(self.code))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tree:
    """A tree that counts as this machine, with files of ours."""
    made = tree(tmp_path)
    monkeypatch.setattr(made, "root", "")
    monkeypatch.setattr(made, "read", Tree(str(tmp_path), Call()).read)
    return made


def test_where_the_kernel_refuses_ss_is_asked_and_then_the_list(
    here: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Refuses(errno.EPERM)
    monkeypatch.setattr(sockdiag.socket, "socket", kernel)
    reader = Sockets(here, Call())
    reader._ss = Ss(Call(), (program(tmp_path, f"cat <<'END'\n{NEW_SS}END\n"),))
    reading = reader.read(1.0)
    assert reading.facts == {"sockets": "ss (sock_diag: EPERM); short-lived sockets not counted"}
    assert [key for key, _ in reading.tables["peer"].rows] == [THERE, THIRD]
    asked = kernel.asked
    reader.read(3.0)
    assert kernel.asked == asked, "it is not asked at every look"
    reader.read(1.0 + RETRY_SECONDS["sock_diag"])
    assert kernel.asked > asked
    lost = Sockets(here, Call())
    lost._ss = Ss(Call(), ())
    assert lost.read(1.0).facts == {"sockets": "/proc/net/tcp (sock_diag: EPERM; ss: no ss); bytes unknown"}
    (tmp_path / "proc/net/tcp").unlink()
    reading = lost.read(3.0)
    assert (reading.st, reading.tables) == ("error", {})
    assert reading.e.startswith("sock_diag: EPERM; ss: no ss; proc: No such file")


def test_a_kernel_that_does_not_answer_this_time_is_an_error_not_another_way(
    here: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockdiag.socket, "socket", Refuses(errno.ENOBUFS))
    with pytest.raises(OSError, match="buffer"):
        Sockets(here, Call()).read(1.0)


class Heard:
    """What the socket of last words says, a datagram or an error at a time."""

    def __init__(self, *parts: bytes | int) -> None:
        self._parts = list(parts)

    def recvfrom_into(self, room: bytearray) -> tuple[int, tuple[int, int]]:
        if not self._parts:
            raise BlockingIOError(errno.EAGAIN, "nothing")
        part = self._parts.pop(0)
        if isinstance(part, int):
            raise OSError(part, os.strerror(part))
        room[: len(part)] = part
        return len(part), (0, 1)

    def close(self) -> None:
        pass


def test_last_words_that_are_lost_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def heard(*parts: bytes | int) -> tuple[Diag, list[int]]:
        diag = Diag(Call())
        diag._heard, diag.deaf = Heard(*parts), ""  # type: ignore[assignment]
        return diag, [row[2] for rows in diag.ended() for row in flat(rows)]

    diag, got = heard(said(THERE, 1, number=0), errno.ENOBUFS, said(THERE, 2, number=0))
    assert (got, diag.lost, diag.deaf) == ([1, 2], True, "")
    diag, got = heard(said(THERE, 1, number=0)[:200], said(THERE, 2, number=0))
    assert (got, diag.lost) == ([2], True)
    monkeypatch.setattr(sockdiag, "MAX_EVENTS", 3)
    diag, got = heard(*(said(THERE, number, number=0) for number in range(9)))
    assert (got, diag.deaf) == ([0, 1, 2], "too many")


@pytest.mark.parametrize(("deaf", "lost", "words"), [
    ("EPERM", False, "sock_diag; short-lived sockets not counted (EPERM)"),
    ("", True, "sock_diag; some short-lived sockets not counted"),
    ("", False, "sock_diag"),
])
def test_what_is_not_in_the_figures_is_said(deaf: str, lost: bool, words: str, tmp_path: Path) -> None:
    reader = Sockets(Tree("/", Call()), Call())
    reader._diag.deaf, reader._diag.lost = deaf, lost
    assert reader._words("sock_diag") == words


def test_looks_that_are_dear_are_made_less_often(tmp_path: Path) -> None:
    """A look may cost a hundredth of the time until the next one; one that is dear by chance is no reason."""
    reader = Sockets(Tree("/", Call()), Call())
    reader._cost(0.001)
    reader._cost(0.5)
    assert reader.least_seconds == pytest.approx(0.1)
    for _ in range(3):
        reader._cost(0.05)
    assert reader.least_seconds == pytest.approx(5.0)
    runner = loop.Runner("sockets", {}, 0.0, 2.0, 0.0, lambda: None)
    runner.reader = reader
    runner._stretch(0.05)
    assert runner.effective == pytest.approx(5.0)
    for _ in range(3):
        reader._cost(9.0)
    assert reader.least_seconds == MAX_SECONDS
