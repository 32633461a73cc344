"""Facts for screening, as the node gives them: its own name, sysctls, known monitors."""

from __future__ import annotations

import json
import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import trees
from clustertop.probe import loop, runner, screening
from clustertop.probe.files import Call, Tree
from clustertop.probe.frames import Err
from clustertop.probe.screening import COLUMNS, Screen
from probe.harness import VERSIONS, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from probe.harness import Run


@pytest.fixture
def tree(tmp_path: Path) -> trees.NodeTree:
    made = trees.NodeTree(tmp_path / "node")
    made.host("gpu007")
    return made


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a thread that has its answer may take a while to tell it."""
    monkeypatch.setattr(screening, "NAME_SECONDS", 60.0)


def found(screen: Screen) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row's cells by column, and its attributes."""
    table = screen.read(0.0).tables["screen"]
    ((key, attrs),) = table.rows
    assert key == ""
    return dict(zip(table.columns, table.cells, strict=True)), attrs


def made(tree: trees.NodeTree, resolve: Callable[[bytes], object] | None = None) -> Screen:
    return Screen(Tree(str(tree.root), Call()), resolve or (lambda host: None))


class TestOwnName:
    def test_it_is_the_node_that_is_asked_for_and_an_answer_is_ok(self, tree: trees.NodeTree) -> None:
        asked: list[bytes] = []
        cells, attrs = found(made(tree, asked.append))
        assert asked == [b"gpu007"]
        assert (cells["dns"], attrs) == ("ok", {"host": "gpu007"})
        assert 0 <= cells["dns_seconds"] < 60

    @pytest.mark.parametrize(("error", "name", "words"), [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "EAI_NONAME", "Name or service not known"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "EAI_AGAIN",
         "Temporary failure in name resolution"),
        (socket.gaierror(-77, "strange"), "EAI -77", "strange"),
        (OSError(24, "Too many open files"), "EMFILE", "Too many open files"),
        (UnicodeError("label too long"), "UnicodeError", "label too long"),
    ])
    def test_a_failure_has_its_name_and_words(
        self, tree: trees.NodeTree, error: Exception, name: str, words: str
    ) -> None:
        def resolve(host: bytes) -> object:
            raise error

        cells, attrs = found(made(tree, resolve))
        assert (cells["dns"], attrs["dns_error"]) == (name, words)

    def test_a_resolver_that_hangs_is_no_answer_and_is_not_asked_twice(
        self, tree: trees.NodeTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(screening, "NAME_SECONDS", 0.2)
        let_go, asked = threading.Event(), []

        def resolve(host: bytes) -> None:
            asked.append(host)
            assert let_go.wait(60)

        screen = made(tree, resolve)
        first, attrs = found(screen)
        assert first["dns"] == "no answer"
        assert first["dns_seconds"] >= 0.2
        assert attrs == {"host": "gpu007"}
        assert first["somaxconn"] == 4096, "the rest is read all the same"
        again, _ = found(screen)
        assert again["dns"] == "no answer"
        assert again["dns_seconds"] > first["dns_seconds"]
        assert len(asked) == 1
        let_go.set()
        monkeypatch.setattr(screening, "NAME_SECONDS", 60.0)
        late, _ = found(screen)
        assert late["dns"] == "ok", "what came late is the next answer"
        assert late["dns_seconds"] >= again["dns_seconds"]
        found(screen)
        assert len(asked) == 2

    def test_nearly_the_same_time_again_is_no_news(self, tree: trees.NodeTree, monkeypatch: pytest.MonkeyPatch) -> None:
        times = iter((100.0, 100.012, 200.0, 200.031))
        monkeypatch.setattr(screening, "time", SimpleNamespace(monotonic=lambda: next(times)))
        screen = made(tree)
        assert found(screen)[0] == found(screen)[0]

    def test_another_machines_name_is_not_looked_up_here(self, tree: trees.NodeTree) -> None:
        cells, attrs = found(Screen(Tree(str(tree.root), Call())))
        assert cells["dns_seconds"] == cells["dns"] == Err("not asked for another root")
        assert attrs == {}

    def test_this_machines_own(self) -> None:
        cells, attrs = found(Screen(Tree("/", Call())))
        assert attrs["host"] == socket.gethostname()
        assert cells["dns"] == "ok"


class TestFiles:
    def test_sysctls_as_they_are(self, tree: trees.NodeTree) -> None:
        cells, _ = found(made(tree))
        assert (cells["somaxconn"], cells["slow_start_after_idle"]) == (4096, 0)

    def test_one_that_cannot_be_read_says_why(self, tree: trees.NodeTree) -> None:
        (tree.root / "proc/sys/net/core/somaxconn").unlink()
        cells, _ = found(made(tree))
        assert (cells["somaxconn"], cells["slow_start_after_idle"]) == (Err("ENOENT"), 0)

    def test_known_monitors_by_name_and_count_and_nothing_else(self, tree: trees.NodeTree) -> None:
        for pid, comm in enumerate(("python3", "nvidia-smi", "nvidia-smi", "nvidia_gpu_prometheus_exporter", "nvtop-ish",
                                    "node_exporter", "a secret name"), start=100):
            tree.process(pid, comm)
        tree.write("proc/100/cmdline", "python3\0--password\0x")
        tree.write("proc/self/comm", "nvtop")
        cells, attrs = found(made(tree))
        assert cells["monitors"] == 4
        assert attrs["monitors"] == ["nvidia-smi 2", "nvidia_gpu_prometheus_exporter 1", "node_exporter 1"] or (
            attrs["monitors"] == ["node_exporter 1", "nvidia-smi 2", "nvidia_gpu_prometheus_exporter 1"])
        assert "secret" not in repr(attrs)
        assert "password" not in repr(attrs)

    def test_none_is_0_and_hidden_processes_are_not(self, tree: trees.NodeTree) -> None:
        cells, attrs = found(made(tree))
        assert cells["monitors"] == 0
        assert "monitors" not in attrs
        (tree.root / "proc/1/comm").unlink()
        assert found(made(tree))[0]["monitors"] == Err("processes hidden: ENOENT")

    def test_a_process_that_ends_meanwhile_costs_nothing(self, tree: trees.NodeTree) -> None:
        tree.directory("proc/77")
        tree.process(78, "telegraf")
        assert found(made(tree))[1]["monitors"] == ["telegraf 1"]

    def test_names_are_told_apart_as_the_kernel_cuts_them(self) -> None:
        assert len(screening._KNOWN) == len(screening.MONITORS)


class TestInTheProbe:
    def test_no_frame_waits_for_it(self, tree: trees.NodeTree, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(screening, "NAME_SECONDS", 20.0)
        let_go = threading.Event()
        monkeypatch.setattr(runner, "Screen", lambda tree: Screen(tree, lambda host: let_go.wait(60)))
        args = {"root": str(tree.root), "groups": ["host", "screen"], "every": {"host": 0.1, "screen": 0.1}}
        runners = {name: runner.Runner(name, args, time.monotonic(), 0.1, 0.0, lambda: None) for name in args["groups"]}
        try:
            for one in runners.values():
                one.thread.start()
            until = time.monotonic() + 60
            while not (runners["host"]._n >= 3 and runners["screen"].call.words() == "getaddrinfo(gpu007)"):
                assert time.monotonic() < until
                time.sleep(0.01)
            now = time.monotonic()
            assert runners["screen"].unread()
            assert not runners["screen"].pending(now)
            assert not runners["screen"].hung(now)
            assert runners["screen"].part(now).st == "wait"
            assert runners["host"].part(now).st == "ok"
        finally:
            let_go.set()
            for one in runners.values():
                one.end()
                one.thread.join(60)

    def test_one_frame_has_it_even_where_there_is_no_answer(
        self, tree: trees.NodeTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(screening, "NAME_SECONDS", 0.2)
        let_go = threading.Event()
        monkeypatch.setattr(runner, "Screen", lambda tree: Screen(tree, lambda host: let_go.wait(60)))
        frame = json.loads(loop.Probe({"root": str(tree.root), "groups": ["host", "screen"]}).once())
        let_go.set()
        said = frame["g"]["screen"]["tb"]["screen"]
        assert said["c"] == list(COLUMNS)
        assert "=no answer" in said["s"]
        assert frame["g"]["host"]["tb"]["node"]

    @pytest.mark.parametrize("version", VERSIONS)
    def test_over_the_wire_and_silent_while_nothing_changes(
        self, start: Callable[..., Run], version: str
    ) -> None:
        run = start(interpreter(version), groups=["host", "screen"])
        values = run.until(lambda values: "screen" in values.rows and values.cell("screen", "", "dns") is not None)
        assert values.cell("screen", "", "dns") == "=ok"
        assert values.attrs["screen"][""]["host"] == socket.gethostname()
        run.until(lambda values: values.frame is not None and not values.frame.full)
        before = run.frames[-1].g["screen"].n
        run.until(lambda values: values.frame is not None and values.frame.g["screen"].n >= before + 3)
        later = [frame for frame in run.frames if not frame.full and frame.g["screen"].n > before]
        assert later
        for frame in later:
            table = frame.g["screen"].tb.get("screen")
            # On a busy machine a lookup may take longer by a tenth of a second: that, and only that, is news.
            assert table is None or (table.i, table.j) == ([COLUMNS.index("dns_seconds"), 1], [])
