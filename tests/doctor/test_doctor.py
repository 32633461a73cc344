"""The doctor, with real keys, a real agent, a real sshd and the real probe."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from clustertop import doctor
from clustertop.doctor import CHECKS, Check, Finding, Place, exit_status, find
from clustertop.doctor_node import NODE_CHECKS, Listener, report
from clustertop.inventory import Inventory, local_inventory, resolve
from clustertop.model import NodeInfo
from clustertop.wire.transport import PollSettings
from ports import free_port
from sshd import keygen, need_sshd, running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def place(
    settings: PollSettings | None = None,
    inventory: Inventory | None = None,
    environ: Mapping[str, str] | None = None,
) -> Place:
    return Place(settings or PollSettings(), inventory or resolve(["gpu[1-3]"]), environ or {}, None)


def one(check: str, where: Place) -> Finding:
    (found,) = find(where, [item for item in CHECKS if item.id == check])
    return found


def command(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clustertop.cli", "doctor", *args],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **environ},
    )  # fmt: skip


def test_ids_are_unique_and_dotted() -> None:
    ids = [check.id for check in CHECKS] + list(NODE_CHECKS)
    assert len(ids) == len(set(ids))
    assert all(check.count(".") == 1 and check == check.lower() for check in ids)


def test_exit_statuses() -> None:
    def status(*states: str) -> int:
        return exit_status([Finding("a.b", state, "") for state in states])

    assert [status(), status("ok"), status("ok", "warn"), status("warn", "unknown")] == [0, 0, 1, 3]
    assert status("ok", "warn", "fail", "unknown") == 2
    assert exit_status([Finding("node.reach", "fail", "unreachable")]) == 3


def test_a_check_that_breaks_is_unknown_and_costs_only_itself() -> None:
    def broken(_: Place) -> None:
        raise RuntimeError("no \x1b[31m luck")

    found = find(place(), [Check("a.b", "the luck", broken), CHECKS[0]])
    assert [item.state for item in found] == ["unknown", "ok"]
    assert found[0].text == "the luck could not be checked (RuntimeError: no [31m luck)"


def test_this_machine_needs_no_ssh() -> None:
    found = find(place(inventory=local_inventory()))
    assert not [item for item in found if item.check.startswith("ssh.")]
    assert {"local.python", "local.packages", "local.descriptors"} <= {item.check for item in found}


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_sshd()
    monkeypatch.setenv("HOME", str(tmp_path))
    found = one("ssh.keys", place())
    assert (found.state, "no key to log in with" in found.text) == ("fail", True)
    keygen(tmp_path / "plain")
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(locked)], check=True)
    pem = tmp_path / "pem"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "secret", "-f", str(pem)],
        check=True,
    )
    for key in (locked, pem):
        found = one("ssh.keys", place(PollSettings(client_keys=(str(key),))))
        assert (found.state, found.todo) == ("fail", "run ssh-add first")
    assert one("ssh.keys", place(PollSettings(client_keys=(str(tmp_path / "plain"),)))).state == "ok"
    assert one("ssh.keys", place(PollSettings(client_keys=(str(tmp_path / "absent"),)))).state == "warn"
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(f"Host *\n  IdentityFile={tmp_path / 'plain'}\n")
    assert one("ssh.keys", place()).state == "ok"


def test_a_real_agent_is_asked(tmp_path: Path) -> None:
    need_sshd()
    path = str(tmp_path / "agent")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "agent").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        environ = {"SSH_AUTH_SOCK": path}
        assert doctor._agent_keys(place(environ=environ)) == (0, "the ssh agent offers 0 keys")
        keygen(tmp_path / "key")
        subprocess.run(["ssh-add", "-q", str(tmp_path / "key")], check=True, env={**os.environ, **environ})
        assert doctor._agent_keys(place(environ=environ)) == (1, "the ssh agent offers 1 key")
        assert one("ssh.keys", place(environ=environ)).state == "ok"
        assert doctor._agent_keys(place(PollSettings(agent=False), environ=environ))[0] == 0
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(60)
    assert "does not answer" in doctor._agent_keys(place(environ={"SSH_AUTH_SOCK": str(tmp_path / "gone")}))[1]


def test_what_is_no_agent(tmp_path: Path) -> None:
    path = str(tmp_path / "other")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def answer() -> None:
            with server.accept()[0] as conn:
                conn.recv(64)
                conn.sendall(struct.pack(">IBI", 5, 5, 0))

        thread = threading.Thread(target=answer)
        thread.start()
        assert "is not an ssh agent" in doctor._agent_keys(place(environ={"SSH_AUTH_SOCK": path}))[1]
        thread.join(60)


def test_known_hosts_and_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_sshd()
    monkeypatch.setenv("HOME", str(tmp_path))
    key = " ".join(keygen(tmp_path / "key").split()[:2])
    known = tmp_path / "known_hosts"
    settings = PollSettings(known_hosts=str(known))
    known.write_text(f"gpu1,gpu2 {key}\nnot a line\n[gpu3]:2222 {key}\n")
    found = one("ssh.known_hosts", place(settings))
    assert (found.state, found.text) == ("fail", "no host key is known of 1 node: gpu3")
    assert one("ssh.known_hosts", place(settings, resolve(["gpu1,gpu2,gpu3:2222"]))).state == "ok"
    unchecked = Inventory((NodeInfo("gpu1"), NodeInfo("gpu9")), unchecked=frozenset({"gpu9"}))
    found = one("ssh.known_hosts", place(settings, unchecked))
    assert (found.state, found.text) == ("warn", "host keys of gpu9 are not checked")
    config = tmp_path / "ssh_config"
    config.write_text("Port nonsense\n")
    found = one("ssh.config", place(PollSettings(ssh_config=str(config))))
    assert (found.state, "Port" in found.text or "port" in found.text) == ("fail", True)
    config.write_text("Host *\n  Port 22\n")
    assert one("ssh.config", place(PollSettings(ssh_config=str(config)))).state == "ok"


def test_the_terminal() -> None:
    def term(**environ: str) -> list[str | None]:
        found = {item.check: item.state for item in find(place(environ=environ))}
        return [found.get("terminal.type"), found.get("terminal.colours"), found.get("terminal.size")]

    assert term() == [None, None, None]
    assert term(TERM="dumb") == ["fail", None, None]
    assert term(TERM="vt100") == ["ok", "warn", None]
    assert term(TERM="xterm-256color") == ["ok", "ok", None]
    assert term(TERM="xterm", COLORTERM="truecolor") == ["ok", "ok", None]


def test_descriptors_against_nodes() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    nodes = resolve(["a[00001-10000]"])
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        expected = "fail" if hard < 10_064 else "warn"
        assert one("local.descriptors", place(inventory=nodes)).state == expected
        assert one("local.descriptors", place()).state == "ok"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def frame(**changes: object) -> bytes:
    gpu = {"t": 1.0, "iv": 2.0, "ms": 12.0, "tb": {"gpu": {
        "r": [{"k": "GPU-1"}, {"k": "GPU-2"}], "c": ["temp", "ecc_cor"],
        "i": [0, 1], "x": [40.0], "j": [2], "s": ["!EACCES"],
    }}}  # fmt: skip
    body: dict[str, object] = {
        "v": 1, "q": 1, "b": 1, "t": 1.0, "w": time.time() - 357.0, "h": {"python": "3.6.8"},
        "g": {
            "gpu": gpu,
            "rdma": {"t": 1.0, "iv": 2.0, "st": "hung", "w": "reading\x1b /sys/x"},
            "pcie": {"t": 1.0, "iv": 2.0, "st": "wait"},
        },
    }  # fmt: skip
    return json.dumps({**body, **changes}).encode()


def test_what_a_node_says_becomes_findings() -> None:
    heard = Listener()
    heard.on_payload(frame())
    assert not heard.complete.is_set()
    heard.on_noise("noise", b"Welcome\x1b]0;x\x07 to gpu1")
    found = {item.check: item for item in report("gpu1", heard)}
    assert {check: item.state for check, item in found.items()} == {
        "node.reach": "ok", "node.python": "ok", "node.frames": "warn", "node.nvml": "ok", "node.rdma": "fail",
        "node.pcie": "unknown", "node.permissions": "warn", "node.clock": "warn",
    }  # fmt: skip
    assert set(found) == set(NODE_CHECKS)
    assert found["node.permissions"].text == "not allowed to read gpu.ecc_cor"
    assert found["node.clock"].text.startswith("its clock is 357.")
    assert all(item.text.isprintable() and item.node == "gpu1" for item in found.values())
    words = "Driver/library version mismatch"
    heard.on_payload(frame(g={"gpu": {"t": 1.0, "iv": 2.0, "st": "error", "e": words}}))
    assert heard.complete.is_set()
    found = {item.check: item for item in report("gpu1", heard)}
    assert words in found["node.nvml"].text


def test_a_node_that_sends_no_frame_is_not_fine() -> None:
    heard = Listener()
    heard.on_payload(b"{}")
    found = report("gpu1", heard, "")
    assert [(item.check, item.state) for item in found] == [("node.reach", "ok"), ("node.frames", "fail")]


@pytest.mark.sshd
def test_nodes_over_a_real_sshd(tmp_path: Path) -> None:
    with running(tmp_path / "sshd") as server:
        config = tmp_path / "config.toml"
        config.write_text(
            f'[ssh]\nconfig_file = "{server.folder / "ssh_config"}"\nagent = false\n'
            f'identity_files = ["{server.folder / "client_key"}"]\n'
            f'[host.good]\nhost = "127.0.0.1"\nport = {server.port}\n'
            f'[host.bad]\nhost = "127.0.0.1"\nport = {free_port()}\n'
        )
        done = command("good,bad", "-c", str(config), "--json")
    answer = json.loads(done.stdout)
    assert done.stderr == ""
    assert answer["exit"] == done.returncode
    by_node = {name: {} for name in (None, "good", "bad")}
    for row in answer["findings"]:
        by_node[row["node"]][row["check"]] = row
    assert set(by_node["good"]) == set(NODE_CHECKS)
    assert by_node["good"]["node.reach"]["state"] == "ok"
    assert by_node["good"]["node.python"]["state"] == "ok"
    assert by_node["good"]["node.clock"]["state"] == "ok"
    assert set(by_node["bad"]) == {"node.reach"}
    assert by_node["bad"]["node.reach"]["state"] == "fail"
    assert by_node["bad"]["node.reach"]["text"].startswith("unreachable at tcp: 127.0.0.1:")
    assert by_node[None]["ssh.known_hosts"]["text"].startswith("no host key is known of 1 node: bad")
    assert done.returncode == 2


def test_the_command_on_this_machine(tmp_path: Path) -> None:
    done = command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: clustertop doctor" in done.stdout
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "CLUSTERTOP_CONFIG": ""}
    done = command(**environ)
    assert done.stderr == ""
    assert "node.python" in done.stdout
    bad = tmp_path / "bad.toml"
    bad.write_text("[polls]\n")
    done = command("-c", str(bad), **environ)
    assert (done.returncode, done.stdout) == (3, "")
    assert "did you mean poll?" in done.stderr
    few = tmp_path / "few.toml"
    few.write_text('[inventory]\nnodes = "a[1-3]"\n')
    assert "3 nodes not looked at" in command("-c", str(few), **environ).stdout


def test_help_is_quick_and_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom clustertop.cli import main\n"
        "for name in ('config', 'doctor'):\n"
        "    try:\n        main([name, '--help'])\n    except SystemExit:\n        pass\n"
        "heavy = {'textual', 'asyncssh', 'numpy', 'msgspec', 'ClusterShell'} & set(sys.modules)\n"
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_doctor_never_imports_textual(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom clustertop.cli import main\n"
        "main(['doctor', '--json'])\n"
        "assert 'asyncio' in sys.modules\n"
        "assert 'textual' not in sys.modules\n"
    )
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "CLUSTERTOP_CONFIG": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False, env=environ
    )
    assert (done.returncode, done.stderr) == (0, "")
