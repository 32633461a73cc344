"""What the script's words become, by hand and by garbage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustertop.probe.frames import Encoder, Err, Group, line
from clustertop.wire.frame import decode
from clustertop.wire.shanswer import Section, reason
from clustertop.wire.shgpus import Gpus
from clustertop.wire.shtables import Host, Pcie, Rdma

READERS = (Host, Pcie, Rdma, Gpus)


def section(*lines: str) -> Section:
    return Section([line.replace(" | ", "\t").encode() for line in lines])


@pytest.mark.parametrize(("words", "errno"), [
    ("Invalid argument", "EINVAL"), ("Permission denied", "EACCES"), ("I/O error", "EIO"), ("Input/output error", "EIO"),
    ("No such device", "ENODEV"), ("Operation not supported", "EOPNOTSUPP"), ("cosmic ray", "cosmic ray"), ("", "unreadable"),
])
def test_what_cat_says_is_an_errno(words: str, errno: str) -> None:
    assert reason(words) == Err(errno)


def test_one_counter_that_cannot_be_read_costs_itself() -> None:
    rdma = Rdma()
    rdma.take(section("begin=1.0 | >mlx5_0 | path=/sys/devices/pci0000:00/0000:00:01.0", ">mlx5_0/1 | state=4: ACTIVE | c:a=7 | c:b!Invalid argument | h:c=9"))
    table = rdma.tables["port"]
    assert table.rows[0][0] == "0000:00:01.0/1"
    assert dict(zip(table.columns, table.cells, strict=True)) == {
        "state": "4: ACTIVE", "phys_state": None, "rate": None, "c:a": 7, "c:b": Err("EINVAL"), "h:c": 9}
    rdma.take(section(">mlx5_0/1 | state=4: ACTIVE | c:a=8 | end=2.0"))
    assert rdma.tables["port"].cells[3:] == [8, Err("EINVAL"), 9], "what was not read this time is what it was"
    rdma.take(section("list!Input/output error | end=3.0"))
    assert rdma.tables["port"].error == "EIO: /sys/class/infiniband"
    assert [key for key, _ in rdma.tables["port"].rows] == ["0000:00:01.0/1"]


def test_a_port_that_came_is_listed_at_the_next_request() -> None:
    rdma = Rdma()
    assert rdma.incomplete
    rdma.take(section(">a | fw_ver=1 | >a/1 | state=4: ACTIVE | end=1.0"))
    assert not rdma.incomplete
    rdma.take(section(">a/1 | state=4: ACTIVE | >b/1 | state=1: DOWN | end=2.0"))
    assert rdma.incomplete


def test_both_ports_of_one_function_have_keys_of_their_own() -> None:
    rdma = Rdma()
    rdma.take(section(">mlx4_0 | path=/sys/devices/0000:04:00.0 | net=0 ib0 | net=1 ib1", ">mlx4_0/1 | state=4: ACTIVE", ">mlx4_0/2 | state=1: DOWN"))
    rows = rdma.tables["port"].rows
    assert [key for key, _ in rows] == ["0000:04:00.0/1", "0000:04:00.0/2"]
    assert [attrs["netdev"] for _, attrs in rows] == ["ib0", "ib1"]


def test_an_answer_without_its_exit_status_is_no_data() -> None:
    gpus = Gpus()
    assert gpus.take(section("ask=", "row=index, utilization.gpu", "row=0, 5", "end=1.0")), "asked one by one"
    assert not gpus.tables


def test_a_gpu_that_was_not_asked_in_time_says_so() -> None:
    gpus = Gpus()
    gpus.take(section("ask=", "status=15", "err=boom"))
    gpus.take(section("ask=0000:13:00.0", "row=index, uuid, pci.bus_id, pstate", "row=0, GPU-a, 00000000:13:00.0, P0", "status=0", "late=0000:1e:00.0"))
    table = gpus.tables["gpu"]
    assert [key for key, _ in table.rows] == ["GPU-a", "pci:0000:1e:00.0"]
    assert table.cells[1] == Err("not asked in time")
    assert gpus.waits_for(section("ask=0000:1e:00.0")) == "nvidia-smi -i 0000:1e:00.0"


def test_a_date_without_a_fraction_and_none() -> None:
    host = Host()
    for date, wall in (("1796093772.25", 1796093772.25), ("1796093772.%N", 1796093772.5), ("", None), ("soon", None)):
        host.wall = None
        host.take(section(f"ncpu=4 | date={date} | end=1.0"))
        assert host.wall == wall


WORDS = st.sampled_from([
    ">", ">mlx5_0", ">mlx5_0/1", ">0000:13:00.0", ">eth0", "=", "!", "state=4: ACTIVE", "c:x=1", "c:x!Invalid argument", "path=/sys/0000:13:00.0",
    "class=0x030200", "class=0x060400", "list!no", "none=", "nosmi=", "ask=", "ask=0000:13:00.0", "row=index, pstate", "row=0, P0", "status=0",
    "status=-1", "err=boom", "late=x", "ncpu=4", "ncpu=-1", "stat=cpu 1 2 3 4", "load=1 2 3", "date=9", "MemTotal:=7 kB", "begin=1", "end=2", "end=x",
    "psi_cpu=some avg10=1.00", 'row=Field "index" is not a valid field to query.', "cur_width=16", "physfn=/0000:13:00.1", "net=0 eth0", "\udcff=\x00",
])  # fmt: skip
LINES = st.lists(st.one_of(st.binary(max_size=60), st.lists(WORDS, max_size=12).map(
    lambda words: "\t".join(words).encode("utf-8", "surrogatepass"))), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=4))
def test_garbage_becomes_frames_that_can_be_read_or_nothing(answers: list[list[bytes]]) -> None:
    for make in READERS:
        reader, encoder = make(), Encoder()
        for lines in answers:
            got = Section(lines)
            reader.take(got)
            assert reader.state in ("ok", "off", "error", "wait")
            assert reader.waits_for(got)
            group = Group(1.0, 1.0, reader.tables, 0.0, reader.state, "", reader.error, 1)
            decode(line(encoder.encode({"g": group}, 1.0, 1.0, {}, reader.facts), "").strip())
