"""The commands without a screen, run as an operator runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clustertop import cli
from clustertop.inventory import Inventory
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.plan import Plan
from clustertop.record import Recorder, Recording
from clustertop.rules.spec import builtin
from clustertop.wire.transport import PollSettings
from sshd import Sshd, running
from trees import gpu_node

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRACE = """
import sys
from clustertop import cli
try:
    status = cli.main(sys.argv[1:])
except SystemExit as end:
    status = end.code
banned = sorted(name for name in {banned} if name in sys.modules)
print("IMPORTED", banned, file=sys.stderr)
sys.exit(status)
"""


def run(*arguments: str, env: dict[str, str] | None = None, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    """Run clustertop; its configuration is nobody's."""
    return subprocess.run(
        [sys.executable, "-m", "clustertop", *arguments], capture_output=True, text=True, timeout=seconds, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent", **(env or {})})


def imported(banned: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run clustertop and say which of *banned* were imported."""
    return subprocess.run(
        [sys.executable, "-c", _TRACE.replace("{banned}", repr(banned)), *arguments], capture_output=True, text=True,
        timeout=240, check=False, stdin=subprocess.DEVNULL, env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Sshd, Path]]:
    """A node behind sshd and a config file that reaches it."""
    with running(tmp_path / "sshd") as sshd:
        config = tmp_path / "config.toml"
        config.write_text(
            f'[ssh]\nconfig_file = "{sshd.folder / "ssh_config"}"\nagent = false\n'
            f'[inventory]\nnodes = "node1"\n[racks]\nr1 = "node1"\n'
            f'[host.node1]\nhost = "127.0.0.1"\nport = {sshd.port}\nuser = "{sshd.node().user}"\n', encoding="utf-8")
        yield sshd, config


@pytest.fixture(scope="module")
def flight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a node that cannot be reached, evaluated often enough to raise 1 alert."""
    path = tmp_path_factory.mktemp("flight") / "flight.ct"
    with Recorder(path, Plan(Inventory((NodeInfo("n1"),)), PollSettings(), builtin())) as tap:
        tap.link(LinkEvent(0, 1.0, LinkState.UNREACHABLE, "tcp", "no route to “n1”"), 1.7e9)
        for at in range(1, 9):
            tap.tick(float(at), 1.7e9 + at)
    return path


class TestArguments:
    @pytest.mark.parametrize(("arguments", "option"), [
        (("check", "--seconds", "nan"), "--seconds"), (("check", "--seconds", "inf"), "--seconds"),
        (("check", "--timeout", "-1"), "--timeout"), (("once", "--timeout", "nan"), "--timeout"),
        (("once", "--timeout", "soon"), "--timeout"), (("watch", "--for", "-1"), "--for"),
        (("record", "-o", "f", "--for", "nan"), "--for"), (("replay", "f", "--speed", "nan"), "--speed"),
        (("record", "-o", "f", "--max-megabytes", "-2"), "--max-megabytes"), (("replay", "f", "--speed", "-1"), "--speed"),
    ], ids=" ".join)
    def test_a_number_that_is_none_is_one_sentence(
        self, arguments: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 3
        first = capsys.readouterr().err.splitlines()[0]
        assert first.startswith(f"clustertop {arguments[0]}: argument {option}: ")
        assert "is not a number" in first


class TestOutput:
    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
    def test_an_encoding_that_lacks_a_character_ends_nothing(self, encoding: str, flight: Path) -> None:
        for option in ("--events", "--json"):
            done = subprocess.run(
                [sys.executable, "-m", "clustertop", "replay", str(flight), option], capture_output=True, timeout=240,
                check=False, env={**os.environ, "PYTHONIOENCODING": encoding})
            assert done.returncode == 0, done.stderr
            (line,) = done.stdout.decode(encoding).splitlines()
            if option == "--json":
                assert json.loads(line)["message"] == "unreachable: no route to “n1”"
            else:
                assert ("“n1”" if encoding == "utf-8" else "?n1?") in line

    def test_a_reader_that_is_gone_ends_a_replay_without_a_word(self, flight: Path) -> None:
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "clustertop", "replay", str(flight), "--events"], stdout=write,
                stderr=subprocess.PIPE, timeout=240, check=False)
        finally:
            os.close(write)
        assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


class TestRecord:
    def test_a_recording_of_this_machine_replays(self, tmp_path: Path) -> None:
        path = tmp_path / "here.ct"
        done = run("record", "-o", str(path), "--for", "3", "--interval", "1")
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        recording = Recording(path)
        steps = list(recording.steps())
        assert sum(step.node >= 0 and step.link is None for step in steps) >= 1
        assert any(step.link is not None and step.link.state == LinkState.UP for step in steps)
        assert recording.note == ""
        assert run("replay", str(path), "--events").returncode == 0

    def test_its_size_ends_it_and_it_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "small.ct"
        done = run("record", "-o", str(path), "--max-megabytes", "0.0001", "--for", "50")
        assert done.returncode == 0
        assert done.stderr.splitlines()[-1] == f"clustertop: recording stopped: {path} has reached 100 B"
        assert Recording(path).inventory.nodes

    def test_a_file_that_cannot_be_written_is_status_3(self) -> None:
        done = run("record", "-o", "/dev/full", "--force", "--for", "50")
        assert done.returncode == 3
        assert done.stderr.splitlines()[-1] == (
            "clustertop: recording stopped: /dev/full cannot be written: No space left on device")

    def test_watch_does_not_overwrite_either(self, flight: Path) -> None:
        before = flight.read_bytes()
        done = run("watch", "--record", str(flight), "--for", "5")
        assert done.returncode == 3
        assert "exists; name another file" in done.stderr
        assert flight.read_bytes() == before


class TestNothingIsDrawn:
    @pytest.mark.parametrize("arguments", [
        ("--help",), ("once", "--help"), ("replay", "--help"), ("demo", "--help"), ("once", "--json"),
        ("check", "--seconds", "0"), ("watch", "--for", "0.2"), ("probe", "--once"), ("config", "init", "-o", "-"),
        ("record", "-o", "flight.ct", "--for", "0.2"), ("replay", "--events", "{flight}"),
        ("replay", "--json", "{flight}"),
    ], ids=" ".join)
    def test_textual_is_not_imported(
        self, arguments: tuple[str, ...], flight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        done = imported({"textual", "rich"}, *(argument.format(flight=flight) for argument in arguments))
        assert done.returncode in {0, 1}, done.stderr
        assert "IMPORTED []" in done.stderr

    @pytest.mark.parametrize("command", [None, "demo", "check", "watch", "once", "record", "replay", "probe", "doctor",
                                         "config"])
    def test_help_loads_nothing_heavy(self, command: str | None) -> None:
        heavy = {"asyncssh", "numpy", "msgspec", "textual", "ClusterShell", "psutil", "cryptography"}
        done = imported(heavy, *([command] if command else []), "--help")
        assert done.returncode == 0
        assert "IMPORTED []" in done.stderr

    @pytest.mark.parametrize("arguments", [(), ("demo",)])
    def test_without_a_terminal_the_console_says_what_to_use(self, arguments: tuple[str, ...]) -> None:
        done = run(*arguments)
        assert done.returncode == 3
        assert done.stdout == ""
        assert "needs a terminal" in done.stderr


class TestOnce:
    def test_this_machine_in_real_values(self) -> None:
        done = run("once", "--json")
        assert done.returncode == 0, done.stderr
        (node,) = json.loads(done.stdout)["nodes"]
        readings = node["tables"]["node"][0]["readings"]
        meminfo = {line.split(":")[0]: int(line.split()[1]) * 1024
                   for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines()}
        assert node["state"] == "up"
        assert readings["cpus"]["value"] == os.cpu_count()
        assert 0 <= readings["cpu_ratio"]["value"] <= 1
        assert readings["memory_total_bytes"] == {"value": meminfo["MemTotal"], "unit": "B"}
        assert abs(readings["memory_available_bytes"]["value"] - meminfo["MemAvailable"]) < meminfo["MemTotal"] / 5
        assert readings["load1"]["value"] >= 0
        names = {row["attrs"]["name"] for row in node["tables"]["net"]}
        there = {path.name for path in Path("/sys/class/net").iterdir()}
        assert names == {name for name in there if not name.startswith("veth")}
        for row in node["tables"]["net"]:
            statistics = Path(f"/sys/class/net/{row['attrs']['name']}/statistics/rx_bytes")
            assert 0 <= row["readings"]["receive_bytes_total"]["value"] <= int(statistics.read_text(encoding="ascii"))

    def test_screening_facts_of_this_machine(self) -> None:
        (node,) = json.loads(run("once", "--json").stdout)["nodes"]
        (screen,) = node["tables"]["screen"]
        assert screen["attrs"]["host"] == os.uname().nodename
        assert screen["readings"]["name_lookup"]["text"] == "resolves"
        somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text(encoding="ascii"))
        assert screen["readings"]["somaxconn"]["value"] == somaxconn

    def test_every_unknown_says_why(self) -> None:
        (node,) = json.loads(run("once", "--json").stdout)["nodes"]
        unknown = [entry for rows in node["tables"].values() for row in rows for entry in row["readings"].values()
                   if entry["value"] is None]
        assert unknown
        assert all(entry["unknown"] for entry in unknown)

    def test_a_table_for_people(self, node: tuple[Sshd, Path]) -> None:
        done = run("once", "-c", str(node[1]))
        assert done.returncode == 0, done.stderr
        head, line, *_ = done.stdout.splitlines()
        assert head.split()[:3] == ["node", "state", "GPUs"]
        assert line.split()[:2] == ["node1", "up"]
        assert "no alerts" in done.stdout

    def test_nothing_reachable_is_status_3_and_not_ok(self, node: tuple[Sshd, Path]) -> None:
        sshd, config = node
        sshd.stop()
        done = run("once", "-c", str(config))
        assert done.returncode == 3
        line = done.stdout.splitlines()[1]
        assert "unreachable" in line
        assert line.rstrip().endswith(("unknown", "CRIT"))


class TestCheck:
    def test_reachable_and_healthy_is_0(self, node: tuple[Sshd, Path]) -> None:
        done = run("check", "--seconds", "1", "--json", "-c", str(node[1]))
        report = json.loads(done.stdout)
        assert done.returncode == report["status"] == 0, done.stderr
        assert report["read"] == report["nodes"] == 1
        assert any(one["known"] == 0 for one in report["judged"])

    def test_the_report_has_facts_and_exit_signals(self, node: tuple[Sshd, Path]) -> None:
        done = run("check", "--seconds", "1", "--json", "-c", str(node[1]))
        report = json.loads(done.stdout)
        assert report["facts"]["own_name"]["asked"] == 1
        (line,) = report["exits"]
        assert (line["kind"], line["name"], line["nodes"]) == ("rack", "r1", ["node1"])
        assert {signal["answer"] for signal in line["signals"].values()} == {"not measured"}
        assert all(signal["note"] for signal in line["signals"].values())
        assert any("PFC" in text for text in report["not_checked"])
        assert {one["table"] for one in report["judged"]} >= {"gpu", "pcie", "port", "node", "screen"}

    def test_this_machine_as_a_schedulers_health_check(self) -> None:
        done = run("check", "--brief", "--seconds", "0", env={"HOME": "/nonexistent", "TERM": ""})
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{os.uname().nodename} ok\n"

    def test_briefly_a_node_that_cannot_be_reached(self, node: tuple[Sshd, Path]) -> None:
        sshd, config = node
        sshd.stop()
        done = run("check", "--brief", "--seconds", "0", "-c", str(config))
        assert done.returncode == 3
        (line,) = done.stdout.splitlines()
        assert line.startswith("node1 unknown: not read: unreachable: ")

    def test_briefly_or_as_json(self) -> None:
        done = run("check", "--brief", "--json")
        assert done.returncode == 3
        assert "not allowed with" in done.stderr

    def test_unreachable_is_3_and_named(self, node: tuple[Sshd, Path]) -> None:
        sshd, config = node
        sshd.stop()
        done = run("check", "--seconds", "0", "-c", str(config))
        assert done.returncode == 3
        assert "0 of 1 nodes read" in done.stdout
        assert "could not be read: 1" in done.stdout
        assert "node1" in done.stdout
        assert done.stdout.rstrip().endswith("result: unknown")

    def test_a_wrong_config_is_one_sentence_and_starts_nothing(self, tmp_path: Path) -> None:
        config = tmp_path / "bad.toml"
        config.write_text("[poll]\nintervall_s = 10\n", encoding="utf-8")
        for command in ("once", "check", "watch"):
            done = run(command, "-c", str(config))
            assert done.returncode == 3
            assert done.stdout == ""
            assert done.stderr.count("\n") == 1
            assert "poll.intervall_s" in done.stderr
            assert str(config) in done.stderr


class TestWatch:
    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "clustertop", "watch", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, stdin=subprocess.DEVNULL, env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"})

    def test_a_node_that_goes_is_one_line_of_json(self, node: tuple[Sshd, Path]) -> None:
        sshd, config = node
        sshd.stop()
        with self._start("--json", "-c", str(config), "--for", "30") as process:
            assert process.stdout is not None
            change: dict[str, Any] = json.loads(process.stdout.readline())
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
            rest = process.stdout.read()
        assert set(change) == {"at", "kind", "rule", "severity", "node", "table", "thing", "label", "message", "value",
                               "limit", "unit", "since", "alert", "into", "members", "quiet"}
        assert (change["kind"], change["rule"], change["node"]) == ("raised", "node_unreachable", "node1")
        assert rest == ""

    def test_ends_after_its_time(self) -> None:
        began = time.monotonic()
        done = run("watch", "--for", "0.5")
        assert done.returncode == 0
        assert time.monotonic() - began >= 0.5
        assert "watching" in done.stderr

    def test_ends_when_nobody_reads_it_although_there_is_nothing_to_say(self) -> None:
        with self._start() as process:
            assert process.stderr is not None
            assert process.stdout is not None
            assert "watching" in process.stderr.readline()
            process.stdout.close()
            assert process.wait(60) == 128 + signal.SIGPIPE
            assert process.stderr.read() == ""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_ends_on_a_signal(self, number: signal.Signals) -> None:
        with self._start() as process:
            assert process.stderr is not None
            assert "watching" in process.stderr.readline()
            process.send_signal(number)
            # Right after its first line it may not listen to signals yet; either way it ends by this one.
            assert process.wait(60) in {128 + number, -number, 130}


class TestProbe:
    def test_another_root(self, tmp_path: Path) -> None:
        gpu_node(tmp_path, gpus=2, ports=3)
        done = run("probe", "--once", "--root", str(tmp_path))
        assert done.returncode == 0, done.stderr
        frame = json.loads(done.stdout)
        rows = frame["g"]["rdma"]["tb"]["port"]["r"]
        assert [row["a"]["dev"] for row in rows] == ["mlx5_0", "mlx5_1", "mlx5_2"]
        assert frame["h"]["kernel"] == "6.8.0-test"
