"""The whole way over a restart: a real node, ``clustertop watch`` twice, its state, its log and its hook."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from e2e.test_real_node import HEALTHY
from nvml_lib import VARIABLE, Scenario, build
from sshd import running

if TYPE_CHECKING:
    from pathlib import Path

    from sshd import Sshd

pytestmark = [pytest.mark.sshd, pytest.mark.cc]


class Watch:
    """``clustertop watch --json`` as a process of its own, as an operator runs it."""

    def __init__(self, config: Path, state: Path) -> None:
        self._config, self._state = config, state
        self.said: list[dict[str, object]] = []

    async def __aenter__(self) -> Watch:
        env = {**os.environ, "XDG_STATE_HOME": str(self._state), "PYTHONUNBUFFERED": "1"}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "clustertop", "watch", "--json", "-c", str(self._config), env=env,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
        self._reader = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.said.append(json.loads(line))

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await self._process.wait()
            await self._reader

    async def until(self, kind: str, rule: str, seconds: float = 60.0) -> dict[str, object]:
        """Wait for a transition; returns it."""
        async with asyncio.timeout(seconds):
            while True:
                for one in self.said:
                    if (one["kind"], one["rule"]) == (kind, rule):
                        return one
                await asyncio.sleep(0.05)


def config(tmp_path: Path, sshd: Sshd) -> Path:
    """A config for the node, that takes devices for its own after two seconds."""
    node, settings = sshd.node(), sshd.settings()
    hook = tmp_path / "hooked"
    path = tmp_path / "clustertop.toml"
    path.write_text(f'''
[inventory]
nodes = "{node.name}"
[host."{node.name}"]
host = "{node.host}"
port = {node.port}
[ssh]
config_file = "{settings.ssh_config}"
known_hosts = "{settings.known_hosts}"
identity_files = {json.dumps(list(settings.client_keys))}
agent = false
[poll]
interval_seconds = 1
[alerts]
accept_seconds = 2
[notify]
hook = ["/bin/sh", "-c", "cat >> {hook}"]
''', encoding="utf-8")
    return path


async def until_known(state: Path, devices: int) -> None:
    """Wait until the state file holds so many devices."""
    async with asyncio.timeout(60):
        while True:
            for file in state.glob("clustertop/state-*[0-9a-f].json"):
                known = json.loads(file.read_text(encoding="utf-8"))["devices"]
                if sum(len(one) for one in known.values()) >= devices:
                    return
            await asyncio.sleep(0.2)


async def test_a_gpu_lost_between_two_runs_is_missed_and_told(tmp_path: Path) -> None:
    library = build(tmp_path / "lib")
    scenario = Scenario(tmp_path / "scenario", *HEALTHY)
    # As a driver's own library would be found: by its name, on the library path of the node.
    environment = f"SetEnv {VARIABLE}={scenario.path} LD_LIBRARY_PATH={library.parent}"
    state = tmp_path / "state"
    with running(tmp_path / "sshd", environment) as sshd:
        made = config(tmp_path, sshd)
        async with Watch(made, state):
            await until_known(state, 8)
        scenario.drop("count 8")
        scenario.add("count 7")
        async with Watch(made, state) as again:
            missing = await again.until("raised", "gpu_missing")
            assert "MISSING" in str(missing["message"])
        async with Watch(made, state) as third:
            remains = await third.until("remains", "gpu_missing")
            assert remains["since"] == missing["since"]
    told = [("raised", "gpu_missing"), ("remains", "gpu_missing")]
    hooked = [json.loads(line) for line in (tmp_path / "hooked").read_text(encoding="utf-8").splitlines()]
    assert [(one["kind"], one["rule"]) for one in hooked if one["table"] == "gpu"] == told
    log = next(state.glob("clustertop/*-log.ndjson"))
    logged = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [(one["kind"], one["rule"]) for one in logged if one["table"] == "gpu"] == told


@pytest.mark.parametrize(("command", "left"), [(("watch", "--for", "1"), False), (("once",), True)])
def test_a_damaged_state_is_said_and_one_look_leaves_it(tmp_path: Path, command: tuple[str, ...], left: bool) -> None:
    state = tmp_path / "state.json"
    state.write_text('{"clustertop": "state", "version": 1, "firing": 7}', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "clustertop", *command, "--state", str(state)], capture_output=True, text=True,
        timeout=240, check=False)
    assert done.returncode == 0
    assert f"note: {state} {'is' if left else 'was'} damaged" in done.stderr
    assert "Traceback" not in done.stderr
    assert bool(list(tmp_path.glob("state.json.damaged-*"))) != left
