"""The script under every shell: what it says is what the Python probe says of the same node, and it leaves nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from clustertop.probe import rdma as rdma_probe
from clustertop.probe.files import Call, Tree
from clustertop.probe.frames import Err, Table
from clustertop.probe.host import Host
from clustertop.probe.pcie import Pcie
from clustertop.probe.rdma import Rdma
from clustertop.wire import shprobe
from fleets import until
from shprobe.wired import ANSWERS, SHELLS, Wired, alive, node_tree, shell, stand_in
from sleepers import Sleeper

FAILS = 'echo "Failed to initialize NVML: Driver/library version mismatch"\nexit 18\n'
ONE_LOST = """
case "$*" in
  *'-i 0000:13:00.0 '*) echo "index, uuid, pci.bus_id, utilization.gpu [%]"; echo "0, GPU-a, 00000000:13:00.0, 97 %" ;;
  *) echo "Unable to determine the device handle for GPU0000:1E:00.0: GPU is lost." >&2; exit 15 ;;
esac
"""
OLD = """
case "$*" in
  *clocks_event_reasons.active*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2 ;;
  *gpumax*) echo 'Field "pcie.link.gen.gpumax" is not a valid field to query.'; exit 2 ;;
esac
echo "index, uuid, clocks_throttle_reasons.active"; echo "0, GPU-a, 0x0000000000000004"
"""


def by_python(root: Path) -> dict[str, Table]:
    """What the probe's own readers say of a tree."""
    tables: dict[str, Table] = {}
    for reader in (Pcie(Tree(str(root), Call())), Rdma(Tree(str(root), Call())), Host(Tree(str(root), Call()))):
        tables.update(reader.read(1000.0).tables)
    return tables


def facts(node: Wired) -> dict[str, object]:
    return dict(node.probe._groups["host"].reader.facts)


@pytest.fixture(params=SHELLS)
def command(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return shell(request.param)


async def test_the_same_tables_as_the_probe_in_python(command: tuple[str, ...], tmp_path: Path) -> None:
    tree = node_tree(tmp_path / "node")
    port = tree.root / "sys/class/infiniband/mlx5_1/ports/1"
    (port / "counters/symbol_error").unlink()
    (port / "counters/symbol_error").mkdir()
    (port / "counters/port_rcv_errors").write_text("N/A (no PMA)\n")
    (port / "counters/port_xmit_wait").write_text("")
    (port / "hw_counters/np_cnp_sent").write_text("18446744073709551615\n")
    tree.pci("0000:1f:00.1", "0000:1d:00.0", kind="0x020700")
    tree.virtual_function("0000:1f:00.1", "0000:1f:00.0")
    tree.netdev("veth12")
    tree.netdev("eth0v0", "0000:1f:00.1")
    before = sorted(str(path) for path in tree.root.rglob("*"))
    async with Wired(command, tree.root) as node:
        await node.read("gpu")
        await node.read("host", "rdma", "pcie", times=2)
        expected = by_python(tree.root)
        for group, names in (("rdma", ("port",)), ("pcie", ("pcie",)), ("host", ("node", "net"))):
            for name in names:
                got, right = node.probe._groups[group].reader.tables[name], expected[name]
                assert [key for key, _ in got.rows] == [key for key, _ in right.rows]
                assert [attrs for _, attrs in got.rows] == [attrs for _, attrs in right.rows]
                assert got.columns == right.columns
                wrong = {(right.columns[at // len(right.rows)], at % len(right.rows)): (cell, right.cells[at])
                         for at, cell in enumerate(got.cells) if cell != right.cells[at]}
                unread = {at: got for at, (got, _) in wrong.items() if at[0].startswith("klog")}
                assert set(unread.values()) <= {Err("not provided")}, "the shell reads no kernel log"
                assert not wrong.keys() - unread.keys()
        at = node.probe._groups["rdma"].reader.tables["port"]
        assert at.cells[at.columns.index("c:symbol_error") * 2 + 1] == Err("EISDIR")
        assert {name: text for name, text in facts(node).items() if name != "arch"} == {
            "host": "gpu001", "kernel": "6.8.0-test", "boot_id": "0f0e0d0c-1111-4222-8333-444455556666", "os": "Test Linux 1.0"}
        assert facts(node)["arch"] == os.uname().machine
        gpus = node.view()["gpu"]
        assert gpus.keys == ("GPU-a", "GPU-b") or list(gpus.keys) == ["GPU-a", "GPU-b"]
        assert [gpus.value("utilization_ratio", row) for row in (0, 1)] == [0.97, None]
        assert gpus.reason("utilization_ratio", 1) == "not provided"
        assert gpus.reason("power_watts", 1) == "Unknown Error"
        assert gpus.value("memory_used_bytes", 0) == 70000 << 20
        assert gpus.value("pcie_width_lanes", 1) == 8
        assert node.view()["node"].value("clock_skew_seconds", 0) < 2.0  # type: ignore[operator]
        assert not node.noises
        assert not node.talk.ending.stderr
        if Path("/usr/bin/renice").exists():
            assert os.getpriority(os.PRIO_PROCESS, node.process.pid) == 10
    assert sorted(str(path) for path in tree.root.rglob("*")) == before
    assert node.process.returncode == 0


async def test_a_hung_nvidia_smi_is_said_and_holds_up_nothing(command: tuple[str, ...], tmp_path: Path) -> None:
    hung = f"echo $$ >>{tmp_path}/pids\nexec sleep 600\n"
    tree = node_tree(tmp_path / "node", hung)
    async with Wired(command, tree.root) as node:
        node.talk.request({"do": "every", "group": "gpu", "seconds": 0.2})
        await until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().endswith("\n"))
        await until(lambda: node.state("gpu")[0] == "hung")
        assert node.state("gpu")[1] == "nvidia-smi"
        readings = node.readings("rdma")
        await node.read("rdma", "pcie", "host", times=readings + 2)
        # Never a second one while the first has not come back.
        pid, = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert alive(pid)
    await until(lambda: not alive(pid), what="it was asked to end with the probe")


@pytest.mark.parametrize("how", ["end of stdin", "TERM", "stop"])
async def test_it_ends(how: str, command: tuple[str, ...], tmp_path: Path) -> None:
    tree = node_tree(tmp_path / "node", f"echo $$ >{tmp_path}/pid\nexec sleep 600\n")
    async with Wired(command, tree.root) as node:
        await node.read("host")
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        assert node.process.stdin is not None
        if how == "TERM":
            node.process.send_signal(signal.SIGTERM)
        elif how == "stop":
            node.talk.request({"do": "stop"})
        else:
            node.talk.stop()
            node.process.stdin.close()
        await until(lambda: node.process.returncode is not None)
        await until(lambda: not alive(pid))


async def test_one_lost_gpu_costs_only_itself(command: tuple[str, ...], tmp_path: Path) -> None:
    tree = node_tree(tmp_path / "node")
    async with Wired(command, tree.root) as node:
        node.talk.request({"do": "every", "group": "gpu", "seconds": 0.2})
        await node.read("gpu")
        stand_in(tree.root / "usr/bin", ONE_LOST)
        await until(lambda: node.view()["gpu"].value("presence", 1) == 1)
        gpus = node.view()["gpu"]
        assert gpus.keys[1] == "GPU-b"
        assert gpus.reason("utilization_ratio", 1) == "GPU lost"
        assert gpus.value("utilization_ratio", 0) == 0.97
        assert node.state("gpu")[0] == "ok"
        assert "GPU is lost" in node.state("gpu")[1]
        stand_in(tree.root / "usr/bin", ANSWERS)
        await until(lambda: node.view()["gpu"].value("presence", 1) == 0)


async def test_failures_and_recovery(tmp_path: Path) -> None:
    tree = node_tree(tmp_path / "node", FAILS)
    async with Wired(shell("dash"), tree.root) as node:
        node.talk.request({"do": "every", "group": "gpu", "seconds": 0.2})
        await until(lambda: node.state("gpu")[0] == "error")
        assert node.state("gpu")[1] == (
            "Failed to initialize NVML: Driver/library version mismatch (nvidia-smi exit status 18)")
        assert not node.view()["gpu"].keys
        stand_in(tree.root / "usr/bin", OLD)
        await until(lambda: node.state("gpu")[0] == "ok")
        assert node.view()["gpu"].value("clocks_event_reasons", 0) == 4
        assert "pcie.link.gen.gpumax" not in node.probe._groups["gpu"].reader.question(1)  # type: ignore[attr-defined]
        (tree.root / "sys/class/infiniband").rename(tree.root / "sys/class/gone")
        (tree.root / "sys/class/infiniband").symlink_to("infiniband")
        await node.read("rdma", times=node.readings("rdma") + 1)
        assert node.view()["port"].keys, "a listing that fails is no disappearance"


async def test_a_node_without_devices_and_one_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cat", "ls", "date", "uname", "sleep", "renice"):
        found = next((Path(folder, name) for folder in ("/bin", "/usr/bin") if Path(folder, name).exists()), None)
        if found is not None:
            (tools / name).symlink_to(found)
    bare = tmp_path / "bare"
    from trees import NodeTree

    NodeTree(bare).host()
    async with Wired(("/bin/sh",), bare) as node:
        await node.read("host", "gpu", "rdma", "pcie")
        assert [node.state(group)[0] for group in ("gpu", "rdma", "pcie", "host")] == ["off", "off", "off", "ok"]
    tree = node_tree(tmp_path / "node")
    (tree.root / "usr/bin/nvidia-smi").unlink()
    async with Wired(("/bin/sh",), tree.root) as node:
        await node.read("gpu")
        assert node.state("gpu") == ("error", "an NVIDIA device is there, but no nvidia-smi in PATH")


async def test_g4_where_an_nvidia_smi_hangs_already_no_second_one_is_started(command: tuple[str, ...], tmp_path: Path) -> None:
    """G4a: after a reconnect, or another console's: it is found by its state in /proc, and named."""
    tree = node_tree(tmp_path / "node", f"echo x >>{tmp_path}/ran\n{ANSWERS}")
    Sleeper(tree, 4242, age=312).fall_asleep()
    Sleeper(tree, 4243, age=312, comm="dd").fall_asleep()
    Sleeper(tree, 4244, age=12).fall_asleep()
    async with Wired(command, tree.root) as node:
        node.talk.request({"do": "every", "group": "gpu", "seconds": 0.2})
        await node.read("gpu", times=2)
        assert node.state("gpu") == (
            "hung", "nvidia-smi hangs in the kernel on the node (pid 4242, started 312 s ago)")
        assert not (tmp_path / "ran").exists()
        assert node.core.snapshot is not None
        assert [alert.rule for alert in node.core.snapshot.alerts] == ["probe_hung"]
        await node.read("rdma", "host", "pcie", times=node.readings("rdma") + 1)
        Sleeper(tree, 4242, age=312).wake()
        await until(lambda: node.state("gpu")[0] == "ok")
        assert node.view()["gpu"].value("utilization_ratio", 0) == 0.97


async def test_a_full_frame_on_request(tmp_path: Path) -> None:
    tree = node_tree(tmp_path / "node")
    async with Wired(shell("dash"), tree.root) as node:
        await node.read("gpu", times=1)
        frame = node.probe._encoder._base
        node.talk.request({"do": "full"})
        await until(lambda: node.probe._encoder._base > frame)
        node.talk.request({"do": "every", "group": "gpu", "seconds": "soon"})
        node.talk.request({"do": "dance"})
        await node.read("host", times=node.readings("host") + 1)


async def test_letting_go_of_the_gpus_starts_no_nvidia_smi_until_they_are_taken_again(tmp_path: Path) -> None:
    tree = node_tree(tmp_path / "node")
    async with Wired(shell("dash"), tree.root) as node:
        node.talk.request({"do": "every", "group": "gpu", "seconds": 0.2})
        await node.read("gpu")
        node.talk.request({"do": "release", "group": "gpu", "at": time.time() - 600})
        await until(lambda: node.probe._groups["gpu"].asked_at is None)
        stand_in(tree.root / "usr/bin", f"echo x >>{tmp_path}/ran\n{ANSWERS}")
        await node.read("host", times=node.readings("host") + 4)
        assert not (tmp_path / "ran").exists()
        assert node.view()["gpu"].value("utilization_ratio", 0) is None
        assert node.state("gpu")[1] == "released by the operator"
        view = node.view()
        assert view["gpu"].reason("utilization_ratio", 0) == "released by the operator"
        assert view["node"].value("gpus_released_seconds", 0) == pytest.approx(600, abs=20)
        # It goes on to say so: what is released is not old.
        said = node.readings("gpu")
        await node.read("gpu", times=said + 3)
        assert node.view()["gpu"].age[0] < 5
        node.talk.request({"do": "take", "group": "gpu"})
        await until(lambda: node.view()["gpu"].value("utilization_ratio", 0) == 0.97)


def test_the_script_is_small_plain_and_in_step_with_the_probe() -> None:
    text = shprobe.script("0123456789abcdef").decode("ascii")
    assert len(text) < 12_000
    assert "<<" not in text, "a here document is a temporary file"
    assert "@@CT1 0123" not in text, "a shell that echoes its input is no answer"
    patterns = text[text.index("unicast_*") : text.index("esac", text.index("unicast_*"))]
    seldom = [part.strip(" )\n").removeprefix("*/").removesuffix("*") for line in patterns.split("continue ;;") for part in line.split("|")]
    assert sorted(filter(None, seldom)) == sorted(rdma_probe._SELDOM)
    assert shprobe.script("n", "/a b'c/").startswith(b"n=n\nR='/a b'\"'\"'c'\n")


async def test_a_node_that_was_let_go_before_the_connection_begins_without_its_gpus(tmp_path: Path) -> None:
    tree = node_tree(tmp_path / "node")
    stand_in(tree.root / "usr/bin", f"echo x >>{tmp_path}/ran\n{ANSWERS}")
    node = Wired(shell("dash"), tree.root)
    node.more = {"released": time.time() - 60}
    async with node:
        await node.read("host", times=4)
        assert not (tmp_path / "ran").exists()
        assert node.state("gpu") == ("released", "released by the operator")
        assert node.view()["node"].value("gpus_released_seconds", 0) == pytest.approx(60, abs=20)
