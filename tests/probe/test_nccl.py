"""NCCL logs on a node: files that grow, are turned over, cannot be read; what is counted of them, and nothing more."""

from __future__ import annotations

import errno
import os
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

import trees
from clustertop.probe import nccl, nccl_log
from clustertop.probe.files import Call, Tree
from clustertop.probe.frames import Err
from clustertop.probe.loop import ON_REQUEST, Probe
from clustertop.signals import nccl_table
from nccl_reference import NcclLog
from probe.harness import VERSIONS, interpreter, named, samples
from work import growth

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from probe.harness import Run

COMM = "comm 0xab rank {rank} nranks {size} cudaDev 0 nvmlDev 0 busId 1b000 commId {id} - Init {what}"


def info(text: str, host: str = "gpu007", pid: int = 100, tid: int = 200) -> str:
    return f"{host}:{pid}:{tid} [0] NCCL INFO {text}\n"


def init(what: str, rank: int = 0, size: int = 16, ident: str = "0xc1", **more: Any) -> str:
    return info(COMM.format(rank=rank, size=size, id=ident, what=what), tid=200 + rank, **more)


def channel(source: int, target: int, via: str, way: str = " [send]", number: int = 0, **more: Any) -> str:
    return info(f"Channel {number:02}/0 : {source}[0] -> {target}[0]{way} via {via}", **{"tid": 200 + source, **more})


class Logs:
    """A node with a folder of logs, and the group that reads it, with its clock in our hands."""

    def __init__(self, folder: Path, pattern: str = "/var/log/nccl/*.log") -> None:
        self.tree = trees.NodeTree(folder / "node")
        self.tree.host("gpu007")
        self.folder = self.tree.root / "var/log/nccl"
        self.folder.mkdir(parents=True)
        self.reader = nccl.Nccl(Tree(str(self.tree.root), Call()), [pattern])
        self.now = 1000.0

    def add(self, text: str, name: str = "job.log") -> Path:
        path = self.folder / name
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        return path

    def read(self, seconds: float = 5.0) -> dict[str, dict[str, Any]]:
        """Rows by key: cells and attributes together; what is not provided is left out."""
        self.now += seconds
        reading = self.reader.read(self.now)
        table = reading.tables["nccl"]
        count = len(table.rows)
        return {key: {**attrs, **{name: cell for at, name in enumerate(table.columns)
                                  if (cell := table.cells[at * count + row]) is not None}}
                for row, (key, attrs) in enumerate(table.rows)}


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


FILE = "/var/log/nccl/job.log"
ROW = FILE + " 0xc1/16"


class TestCounting:
    def test_a_start_with_its_time_channels_and_peers(self, logs: Logs) -> None:
        logs.add(info("NCCL version 2.27.3+cuda12.9") + info("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>")
                 + info("Using network IB") + init("START") + channel(0, 8, "NET/IB/0/GDRDMA")
                 + channel(0, 8, "NET/IB/1(1)/GDRDMA(PCI)", number=1) + channel(8, 0, "NET/IB/0/GDRDMA", " [receive]", tid=200)
                 + channel(0, 1, "P2P/CUMEM", "") + init("COMPLETE")
                 + info("Init timings - ncclCommInitRank: rank 0 nranks 16 total 17.25 (kernels 0.1, bootstrap 17.0)", tid=200))
        rows = logs.read()
        assert set(rows) == {FILE, ROW}
        row = rows[ROW]
        assert (row["ranks"], row["local_ranks"], row["complete"], row["pending"]) == (16, 1, 1, 0)
        assert (row["init"], row["init_by"], row["init_rank"]) == (17.25, nccl_log.BY_NCCL, 0)
        assert (row["channels"], row["network_channels"], row["socket_channels"], row["direct_channels"]) == (3, 2, 0, 2)
        assert row["via"] == ["NET/IB/GDRDMA 1", "NET/IB/GDRDMA(PCI) 1", "P2P/CUMEM 1"]
        assert (row["members"], row["peers"]) == (["gpu007 0"], ["#8 2"])
        assert (row["version"], row["network"], row["found"]) == ("2.27.3+cuda12.9", ["IB"], ["IB mlx5_0:1/IB"])
        assert rows[FILE]["lines"] == 10
        assert "channels" not in rows[FILE]
        assert logs.read() == rows, "and a log that stands still is no news"

    def test_the_file_row_holds_what_belongs_to_no_communicator(self, logs: Logs) -> None:
        logs.add(channel(0, 8, "NET/Socket/0"))
        row = logs.read()[FILE]
        assert (row["channels"], row["network_channels"], row["socket_channels"], row["direct_channels"]) == (1, 1, 1, 0)
        logs.add(init("COMPLETE", ident="0xc1"))
        rows = logs.read()
        assert rows[ROW]["socket_channels"] == 1, "older logs name it last"
        assert "channels" not in rows[FILE]

    def test_warnings_are_counted_and_the_newest_is_told_once_a_minute(self, logs: Logs) -> None:
        for number in range(3):
            logs.add(f"gpu007:1:2 [0] net_ib.cc:9 NCCL WARN failed {number}\n")
        row = logs.read()[FILE]
        assert (row["warnings"], row["warning"]) == (3, "failed 2")
        logs.add("gpu007:1:2 [0] net_ib.cc:9 NCCL WARN worse\n")
        row = logs.read()[FILE]
        assert (row["warnings"], row["warning"]) == (4, "failed 2"), "a flood must not make each frame a full one"
        assert logs.read(60.0)[FILE]["warning"] == "worse"

    def test_other_nodes_lines_in_one_file_are_theirs(self, logs: Logs) -> None:
        logs.add(init("COMPLETE", 0) + init("COMPLETE", 8, host="gpu008") + channel(0, 8, "NET/IB/0")
                 + channel(8, 0, "NET/Socket/0", host="gpu008"))
        row = logs.read()[ROW]
        assert (row["local_ranks"], row["channels"], row["socket_channels"], row["other_hosts"]) == (1, 1, 0, 1)
        assert (row["members"], row["peers"]) == (["gpu007 0", "gpu008 8"], ["gpu008 1"])

    def test_in_a_container_the_host_has_another_name(self, logs: Logs) -> None:
        logs.add(init("COMPLETE", 0, host="3f2a9c") + channel(0, 8, "NET/IB/0", host="3f2a9c"))
        row = logs.read()[ROW]
        assert (row["local_ranks"], row["channels"], row["other_hosts"], row["members"]) == (1, 1, 0, ["3f2a9c 0"])

    def test_glued_lines_are_two(self, logs: Logs) -> None:
        logs.add(init("COMPLETE", 0) + channel(0, 8, "NET/IB/0").rstrip() + channel(0, 9, "NET/IB/1"))
        assert logs.read()[ROW]["via"] == ["NET/IB 2"]

    def test_only_facts_of_nccl_leave_the_node(self, logs: Logs) -> None:
        logs.add("password=hunter2\nNCCL is nice, said the job with token=abc\n" + init("COMPLETE")
                 + info("Launch mode Parallel secret=xyz"))
        said = repr(logs.read())
        assert not re.search("hunter2|abc|xyz", said)


class TestTimes:
    def test_old_logs_are_timed_by_arrival_where_we_watched_it(self, logs: Logs) -> None:
        logs.add("begun\n")
        logs.read()
        logs.add(init("START", 3))
        row = logs.read()[ROW]
        assert (row["init"], row["pending"], row["pending_time"]) == (Err("not complete"), 1, logs.now)
        logs.add(init("COMPLETE", 3))
        row = logs.read(20.0)[ROW]
        assert (row["init"], row["init_by"], row["init_rank"], row["init_time"]) == (20.0, nccl_log.BY_ARRIVAL, 3, logs.now)

    def test_when_it_was_is_not_after_the_frame_that_tells_it(self, logs: Logs) -> None:
        logs.add("begun\n")
        logs.read()
        logs.add(init("START", 3) + init("START", 4) + init("COMPLETE", 4))
        row = logs.read(0.096)[ROW]
        assert row["pending_time"] == row["init_time"] == logs.now - 0.096

    def test_both_lines_in_one_reading_time_nothing(self, logs: Logs) -> None:
        logs.add("begun\n")
        logs.read()
        logs.add(init("START") + init("COMPLETE"))
        row = logs.read()[ROW]
        assert (row["init"], row["complete"]) == (Err("not timed"), 1)
        assert "init_by" not in row

    def test_timestamps_before_the_lines_time_it_whenever_it_is_read(self, logs: Logs) -> None:
        logs.add("[2026-05-05 23:59:47] " + init("START") + "1: 2026-05-06T00:00:10,500 " + init("COMPLETE"))
        row = logs.read()[ROW]
        assert (row["init"], row["init_by"]) == (23.5, nccl_log.BY_TIMES)

    def test_what_was_there_before_is_as_old_as_the_file(self, logs: Logs) -> None:
        path = logs.add(init("START") + info("Init timings: rank 0 nranks 16 total 61.4 (bootstrap 60)", tid=200))
        old = time.time() - 7200
        os.utime(path, (old, old))
        row = logs.read()[ROW]
        assert row["init"] == 61.4
        assert row["init_time"] == pytest.approx(logs.now - 7200, abs=5)

    def test_processes_that_ended_are_told_from_those_that_cannot_be_seen(self, logs: Logs) -> None:
        logs.tree.process(100, "python3")
        logs.add(init("START"))
        assert logs.read()[ROW]["running"] == 1
        (logs.tree.root / "proc/100/comm").unlink()
        (logs.tree.root / "proc/100").rmdir()
        assert logs.read()[ROW]["running"] == 0
        logs.add(init("START", ident="0xc2", pid=555))
        assert "running" not in logs.read()[FILE + " 0xc2/16"]


class TestFiles:
    def test_nothing_to_read_is_off_and_no_group_at_all_where_nothing_is_said(self, tmp_path: Path) -> None:
        assert nccl.Nccl(Tree(str(tmp_path), Call()), []).read(0.0).st == "off"
        assert "nccl" in ON_REQUEST
        assert "nccl" not in {runner.name for runner in Probe({"root": str(tmp_path)})._runners}
        assert "nccl" in {runner.name for runner in Probe({"root": str(tmp_path), "nccl": {"logs": ["/x"]}})._runners}

    def test_a_line_that_is_not_whole_waits_for_its_end(self, logs: Logs) -> None:
        line = init("COMPLETE")
        logs.add(line[:50])
        assert set(logs.read()) == {FILE}
        logs.add(line[50:])
        assert set(logs.read()) == {FILE, ROW}

    def test_a_log_that_is_cut_short_and_one_that_is_turned_over(self, logs: Logs) -> None:
        path = logs.add(init("COMPLETE", ident="0xc1"))
        logs.read()
        path.write_text(init("COMPLETE", ident="0xc2")[:-30])
        path.write_text(init("START", ident="0xc2"))
        assert set(logs.read()) >= {ROW, FILE + " 0xc2/16"}
        path.rename(path.with_suffix(".log.1"))
        logs.add("x" * 5000 + "\n" + init("COMPLETE", ident="0xc3"))
        assert FILE + " 0xc3/16" in logs.read()

    def test_a_file_that_appears_is_found(self, logs: Logs) -> None:
        assert logs.read() == {}
        logs.add(init("COMPLETE"))
        assert set(logs.read(nccl.LIST_SECONDS)) == {FILE, ROW}

    def test_of_a_long_file_the_end_is_read_in_parts(self, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nccl_log, "FIRST_BYTES", 40_000)
        monkeypatch.setattr(nccl_log, "FILE_BYTES", 10_000)
        filler = info("filler") * 4000
        logs.add(init("COMPLETE", ident="0xc0") + filler + init("COMPLETE", ident="0xc1"))
        row = logs.read()[FILE]
        assert row["behind"] == 30_000
        for _ in range(3):
            rows = logs.read()
        assert rows[FILE]["behind"] == 0
        assert set(rows) == {FILE, ROW}, "what is far from the end is passed over"
        assert 1000 < rows[FILE]["lines"] < 40_000 // len(info("filler")) + 2
        # One that grows faster than it is read is not followed for ever.
        logs.add(filler + init("COMPLETE", ident="0xc2"))
        assert logs.read()[FILE]["behind"] == 30_000

    def test_the_newest_few_files_are_read(self, logs: Logs) -> None:
        for number in range(nccl.MAX_FILES + 3):
            path = logs.add(info("Using network IB"), f"{number:02}.log")
            os.utime(path, (2000 + number, 2000 + number))
        logs.now += 1
        assert logs.reader.read(logs.now).facts == {"nccl_files": "3 more files match and are not read"}
        assert set(logs.read()) == {f"/var/log/nccl/{number:02}.log" for number in range(3, nccl.MAX_FILES + 3)}

    def test_what_is_no_file_costs_itself_only(self, logs: Logs) -> None:
        logs.add(init("COMPLETE"))
        os.mkfifo(logs.folder / "pipe.log")
        (logs.folder / "folder.log").mkdir()
        (logs.folder / "gone.log").symlink_to("nowhere")
        rows = logs.read()
        assert rows[ROW]["complete"] == 1
        assert {row["lines"] for key, row in rows.items() if not key.startswith(FILE)} == {
            Err("not a regular file"), Err("ENOENT")}
        assert rows["/var/log/nccl/pipe.log"]["lines"] == Err("not a regular file")

    def test_a_file_that_cannot_be_read_any_more_loses_its_values_not_its_rows(self, logs: Logs) -> None:
        path = logs.add(init("COMPLETE"))
        logs.read()
        path.unlink()
        path.mkdir()
        rows = logs.read(1.0)
        assert set(rows) == {FILE, ROW}
        assert rows[ROW]["complete"] == rows[ROW]["init"] == Err("not a regular file")

    def test_a_folder_that_may_not_be_listed_is_named(self, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
        listdir = os.listdir

        def refused(path: str) -> list[str]:
            """As the kernel does it to a user; root may list everything."""
            if str(path) == str(logs.folder):
                raise PermissionError(errno.EACCES, "Permission denied")
            return listdir(path)

        monkeypatch.setattr(os, "listdir", refused)
        assert logs.read()["/var/log/nccl/*.log"]["lines"] == Err("EACCES")
        monkeypatch.undo()
        logs.add(init("COMPLETE"))
        assert set(logs.read(nccl.LIST_SECONDS)) == {FILE, ROW}

    def test_long_and_strange_names_keep_their_files_apart(self, logs: Logs) -> None:
        for name in ("a" * 100 + ".log", "b" * 100 + ".log", "c\x1b.log", "c .log", "c\u202e.log"):
            logs.add(init("COMPLETE"), name)
        rows = logs.read()
        assert len(rows) == 10
        assert all(len(key) <= 128 and key.isprintable() for key in rows)


class TestBounds:
    def test_the_largest_and_newest_communicators_are_kept(self, logs: Logs) -> None:
        logs.add(init("COMPLETE", ident="0xbig", size=512).replace("0xbig", "0xb19"))
        for number in range(nccl_log.MAX_COMMS + 20):
            logs.add(init("COMPLETE", ident=f"0x{number:x}", size=2))
        rows = logs.read()
        assert len(rows) == 1 + nccl_log.MAX_COMMS
        assert FILE + " 0xb19/512" in rows
        assert FILE + f" 0x{nccl_log.MAX_COMMS + 19:x}/2" in rows

    def test_too_many_channels_are_no_number(self, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nccl_log, "MAX_CHANNELS", 64)
        logs.add(init("COMPLETE") + "".join(channel(0, 8, "NET/IB/0", number=number) for number in range(65)))
        assert logs.read()[ROW]["channels"] == Err("too many channels")

    def test_lists_fit_what_a_console_takes(self, logs: Logs) -> None:
        logs.add("".join(init("COMPLETE", rank, 900, host=f"host{rank:03}" + "x" * 80) for rank in range(0, 800, 2))
                 + "".join(channel(0, rank, f"NET/Plugin{rank}/0", host="host000" + "x" * 80) for rank in range(1, 200, 2)))
        row = logs.read()[FILE + " 0xc1/900"]
        for name in ("members", "peers", "via"):
            assert len(row[name]) == nccl_log.MAX_LIST
            assert all(len(one) <= 64 for one in row[name])

    @pytest.mark.parametrize("text", [
        "comm 0x" + "a" * 1500 + " - Init " * 40, "comm 0x1 rank 1 nranks 2 cudaDev 1 " * 60, "NCCL_NET set to " + " " * 1900 + "x",
        "NET/" * 500, "Channel 0 : 1 -> 2" * 100, "9:9:9 [1] " * 200, "g:1:2 [0] NCCL INFO " * 100, "x-" * 1000 + ":1:2"],
        ids=lambda text: repr(text[:20]))
    def test_a_line_that_is_longer_costs_no_more_than_that(self, logs: Logs, text: str) -> None:
        logs.add("gpu007:1:2 [0] NCCL INFO " + text + "\n")
        logs.read()

        def read(line: str) -> None:
            nccl_log.File("job.log")._line("gpu007:1:2 [0] NCCL INFO " + line, 1000.0)

        assert growth(read, text * 16) < 64, "sixteen times as long: about sixteen, not its square"


ANSWERS: dict[str, dict[str, Any]] = {
    "a100-4node-ib.log": {"local_ranks": 32, "complete": 32, "channels": 132, "network_channels": 20, "socket_channels": 0,
                          "direct_channels": 0, "hosts": 4, "via": {"NET/IB": 20, "P2P/IPC/read": 112},
                          "version": "2.10.3+cuda11.3", "network": ["IB"], "found": ["IB hfi1_1:1/IB"]},
    "v100-16node-opa.log": {"local_ranks": 64, "complete": 64, "channels": 184, "network_channels": 184, "socket_channels": 0,
                            "direct_channels": 0, "hosts": 16, "via": {"NET/IB": 184}, "version": "2.7.8+cuda10.2",
                            "network": ["IB"], "found": ["IB hfi1_2:1/IB"]},
    "v100-1node.log": {"local_ranks": 4, "complete": 4, "channels": 100, "network_channels": 0, "socket_channels": 0,
                       "direct_channels": 0, "hosts": 1, "via": {"P2P/IPC": 100}, "version": "2.7.8+cuda10.2",
                       "network": ["IB"], "found": ["IB hfi1_2:1/IB"]},
    "efa-ofi-lines.txt": {"local_ranks": 0, "complete": 0, "channels": 0, "network_channels": 0, "socket_channels": 0,
                          "direct_channels": 0, "hosts": 0, "via": {}, "version": "2.26.2+cuda12.2", "network": None,
                          "found": ["OFI libfabric"]},
    "nccl-2.30-doc-lines.txt": {"local_ranks": 2, "complete": 1, "channels": 6, "network_channels": 2, "socket_channels": 2,
                                "direct_channels": 0, "hosts": 1, "version": "2.30.3+cuda13.0", "network": ["IB"], "found": None,
                                "via": {"NET/Socket": 2, "P2P/CUMEM": 2, "SHM/direct/direct": 2}},
    "nccl-tests-allreduce.log": {"local_ranks": 0, "complete": 0, "channels": 0, "network_channels": 0, "socket_channels": 0,
                                 "direct_channels": 0, "hosts": 0, "via": {}, "version": None, "network": None, "found": None},
    "net-lines.txt": {"local_ranks": 0, "complete": 0, "channels": 0, "network_channels": 0, "socket_channels": 0,
                      "direct_channels": 0, "hosts": 0, "via": {}, "version": None, "network": None,
                      "found": ["FastSocket ibs108:10.0.19.12<0>", "IB mlx5_0:1/IB", "Socket eth0:10.0.0.23<0>"]},
    "nccl-2.2x-init-timings.log": {"local_ranks": 3, "complete": 3, "channels": 3, "network_channels": 3, "socket_channels": 1,
                                   "direct_channels": 2, "hosts": 2, "version": None, "network": None, "found": None,
                                   "via": {"NET/Socket": 1, "NET/IB/GDRDMA": 1, "NET/IBext_v8/GDRDMA(PCI)": 1}},
}


class TestSamples:
    @pytest.mark.skipif(samples() is None, reason="the recorded samples are not beside this checkout")
    @pytest.mark.parametrize("path", [*named("logs/nccl/*"), *named("logs/recreated/nccl*")], ids=lambda path: path.name)
    def test_right_answers(self, path: Path) -> None:
        table = nccl.Nccl(Tree("/", Call()), [str(path)]).read(1e6).tables["nccl"]
        count, attrs = len(table.rows), [attrs for _, attrs in table.rows]
        found: dict[str, Any] = {
            name: sum(cell for cell in table.cells[at * count : (at + 1) * count] if cell)
            for at, name in enumerate(table.columns) if name in ANSWERS[path.name]}
        found["via"] = {via: int(channels) for one in attrs for via, channels in (item.rsplit(" ", 1) for item in one.get("via", []))}
        found["hosts"] = len({member.split(" ")[0] for one in attrs for member in one.get("members", [])})
        found.update((name, attrs[0].get(name)) for name in ("version", "network", "found"))
        assert found == ANSWERS[path.name]

    @pytest.mark.skipif(samples() is None, reason="the recorded samples are not beside this checkout")
    def test_a_sample_with_a_slow_rank(self) -> None:
        (path,) = named("logs/recreated/nccl-2.2x-init-timings.log")
        table = nccl.Nccl(Tree("/", Call()), [str(path)]).read(1e6).tables["nccl"]
        count = len(table.rows)
        rows = [dict(zip(table.columns, table.cells[at::count], strict=True)) for at in range(count)]
        slow = max(rows, key=lambda row: row["init"] if isinstance(row["init"], float) else 0.0)
        assert (slow["init"], slow["init_rank"], slow["init_by"]) == (61.4, 6, nccl_log.BY_NCCL)

    @pytest.mark.skipif(samples() is None, reason="the recorded samples are not beside this checkout")
    @pytest.mark.parametrize("path", [*named("logs/nccl/*"), *named("logs/recreated/nccl*")], ids=lambda path: path.name)
    def test_the_node_counts_what_the_console_reads(self, path: Path) -> None:
        """Two readers of the same text, written apart."""
        table = nccl.Nccl(Tree("/", Call()), [str(path)]).read(1e6).tables["nccl"]
        count = len(table.rows)
        rows = [dict(zip(table.columns, table.cells[row::count], strict=True)) for row in range(count)]
        comms = [row for row, (_, attrs) in zip(rows, table.rows, strict=True) if nccl_table.is_communicator(attrs)]
        log = NcclLog().feed_text(path.read_text(encoding="utf-8"))
        ranks = [one for one in log.ranks.values() if one.nranks]
        assert sum(row["local_ranks"] for row in comms) == len(ranks)
        assert sum(row["complete"] for row in comms) == sum(one.complete for one in ranks)
        assert sum(row["channels"] or 0 for row in rows) == log.transports().total()
        network = sum(count for name, count in log.transports().items() if name.startswith("NET/"))
        assert sum(row["network_channels"] or 0 for row in rows) == network
        assert rows[0]["lines"] == log.lines
        slowest = log.slowest.seconds if log.slowest else None
        assert max((row["init"] for row in comms if not isinstance(row["init"], Err)), default=None) == slowest
        assert any(attrs.get("version") == log.version for _, attrs in table.rows) or not log.version

    @pytest.mark.skipif(samples() is None, reason="the recorded samples are not beside this checkout")
    @pytest.mark.parametrize("path", [*named("logs/nccl/*.log")], ids=lambda path: path.name)
    def test_a_sample_that_grows_through_a_real_probe(self, path: Path, tmp_path: Path, start: Callable[..., Run]) -> None:
        text, log = path.read_bytes(), tmp_path / "job.log"
        log.write_bytes(text[:1000])
        run = start(groups=["host", "nccl"], nccl={"logs": [str(tmp_path / "*.log")]},
                    every={"host": 0.1, "nccl": 0.1})
        whole = NcclLog().feed_text(text.decode())
        key = nccl._key(str(log))
        run.until(lambda values: key in values.rows.get("nccl", ()))
        for at in range(1000, len(text), 20_000):
            with log.open("ab") as file:
                file.write(text[at : at + 20_000])
            run.next()
        run.until(lambda values: values.cell("nccl", key, "lines") == whole.lines)
        sums = [value for key in run.values.rows["nccl"]
                if isinstance(value := run.values.cell("nccl", key, "channels"), float)]
        assert sum(sums) == whole.transports().total()


@pytest.mark.parametrize("version", VERSIONS)
def test_over_the_wire_and_silent_while_nothing_is_written(start: Callable[..., Run], version: str, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(init("START", host="x1") + channel(0, 8, "NET/IB/0", host="x1"))
    run = start(interpreter(version), groups=["host", "nccl"], nccl={"logs": [str(tmp_path / "*.log")]},
                every={"host": 0.1, "nccl": 0.1})
    row = nccl._key(str(log)) + " 0xc1/16"
    run.until(lambda values: row in values.rows.get("nccl", ()))
    with log.open("a") as file:
        file.write(init("COMPLETE", host="x1"))
    run.until(lambda values: values.cell("nccl", row, "complete") == 1)
    run.request(do="full")
    run.until(lambda values: values.frame is not None and values.frame.full)
    before = run.frames[-1].g["nccl"].n
    run.until(lambda values: values.frame is not None and values.frame.g["nccl"].n >= before + 5)
    later = [frame for frame in run.frames if frame.g["nccl"].n > before]
    assert later
    assert not any(frame.g["nccl"].tb for frame in later)
