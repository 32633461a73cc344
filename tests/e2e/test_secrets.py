"""No secret of a device leaves the console: real agents and services, failures, and a search of all that it leaves."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import psutil
import pytest

from bmc.server import PASSWORD, USER, Certificates, RedfishServer, node_tree
from bmc.simulator import PASSWORD as SIM_PASSWORD
from bmc.simulator import USER as SIM_USER
from bmc.simulator import simulated
from pdus import AUTH_KEY, OURS, PRIVACY_KEY, USERS, snmpsim
from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("secrets")
COMMUNITY = "Kormoran-19-leise"
CONTEXT = "secure"
WRONG = "Zaunkoenig-falsch-31"
FILES = {"bmc": PASSWORD, "sim": SIM_PASSWORD, "auth": AUTH_KEY, "privacy": PRIVACY_KEY, "wrong": WRONG}
SECRETS = {*FILES.values(), COMMUNITY}
SECONDS = 26

# Everything that is logged is kept, and after a while two readers break by errors of ours, in the middle of their work.
RUN = """
import logging, sys, time
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[1])
from clustertop.poll import readers
broken = time.monotonic() + float(sys.argv[2])
def breaks(cls, name):
    was = getattr(cls, name)
    async def now(self, *args, **more):
        if time.monotonic() > broken:
            raise RuntimeError(f"broke in {name} of {self!r} with {args!r} {more!r}")
        return await was(self, *args, **more)
    setattr(cls, name, now)
breaks(readers.PduReader, "read")
breaks(readers.BmcReader, "read")
from clustertop.cli import main
sys.exit(main(sys.argv[3:]))
"""


def config(folder: Path, agent: int, server: RedfishServer, sim: int) -> Path:
    for name, text in FILES.items():
        path = folder / f"secret-{name}"
        path.touch(0o600)
        path.write_text(text + "\n", encoding="utf-8")
    port = urlsplit(server.url).port
    lines = ['[inventory]\nnodes = "n[1-4]"', "[ssh]\nconnect_timeout_seconds = 2\nagent = false",
             *(f'[host.n{number}]\nhost = "127.0.0.1"\nport = {free_port()}' for number in range(1, 5))]
    snmp = f'host = "127.0.0.1"\nport = {agent}\ntimeout_seconds = 1\nretries = 0'
    user, auth, privacy = USERS[0]
    for name, keys in (("pdu-secure", "auth"), ("pdu-refused", "wrong")):
        lines.append(f'[pdus.{name}]\n{snmp}\nuser = "{user}"\nauth_protocol = "{auth}"\nprivacy_protocol = "{privacy}"\n'
                     f'auth_key = "file:{folder}/secret-{keys}"\nprivacy_key = "file:{folder}/secret-privacy"\n'
                     f'context = "{CONTEXT}"')
    lines.append(f'[pdus.pdu-plain]\n{snmp}\ncommunity = "file:{folder}/secret-community"')
    lines.append(f'[pdus.pdu-silent]\n{snmp}\ncommunity = "file:{folder}/secret-wrong"')
    (folder / "secret-community").touch(0o600)
    (folder / "secret-community").write_text(COMMUNITY, encoding="utf-8")
    lines += [f'[feeds.{name}-feed]\nrating_amps = 32\nvolts = 230\npdu = "{name}"\nnodes = "n[1-4]"'
              for name in ("pdu-plain", "pdu-secure")]
    for number, secret in ((1, "bmc"), (3, "wrong")):
        lines.append(f'[bmcs.n{number}]\nhost = "127.0.0.1"\nport = {port}\nuser = "{USER}"\n'
                     f'password = "file:{folder}/secret-{secret}"\nca_file = "{server.certificates.ca_file}"')
    for number, secret in ((2, "sim"), (4, "wrong")):
        lines.append(f'[bmcs.n{number}]\nover = "ipmi"\nhost = "127.0.0.1"\nport = {sim}\nuser = "{SIM_USER}"\ncipher = "3"\n'
                     f'password = "file:{folder}/secret-{secret}"')
    path = folder / "config.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class Watcher:
    """Reads what the system shows of a process and of all that it starts, again and again, until it ends."""

    def __init__(self, pid: int) -> None:
        self.seen: set[str] = set()
        self.names: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(pid,))
        self._thread.start()

    def _run(self, pid: int) -> None:
        try:
            top = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return
        while not self._end.wait(0.01):
            try:
                family = [top, *top.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for one in family:
                for what in ("cmdline", "environ"):
                    try:
                        text = Path(f"/proc/{one.pid}/{what}").read_bytes().decode("utf-8", "replace")
                    except OSError:
                        continue
                    self.seen.add(text)
                    if what == "cmdline":
                        self.names.add(Path(text.split("\0")[0]).name)

    def stop(self) -> None:
        self._end.set()
        self._thread.join(60)


def forms(secret: str) -> Iterator[str]:
    """How a secret may be written somewhere."""
    raw = secret.encode()
    yield secret
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    yield quote(secret, safe="")
    yield raw.hex()
    yield base64.b64encode(raw).decode()
    for user in (USER, SIM_USER):
        yield base64.b64encode(f"{user}:{secret}".encode()).decode()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Everything that a run leaves or shows, by where it is."""
    folder = tmp_path_factory.mktemp("secrets")
    for name in ("recordings", "sim"):
        (folder / name).mkdir()
    for name in (COMMUNITY, CONTEXT):
        (folder / "recordings" / f"{name}.snmprec").write_bytes((OURS / "apc-rpdu.snmprec").read_bytes())
    server = RedfishServer(node_tree(), Certificates.make(folder))
    # pytest's own say which test runs, and a test here may be called by a secret.
    environ = {key: value for key, value in os.environ.items() if "PASSWORD" not in key and not key.startswith("PYTEST")} | {
        "HOME": str(folder), "XDG_STATE_HOME": str(folder / "xdg-state"), "XDG_CONFIG_HOME": str(folder / "xdg-config")}
    closed = False
    try:
        with (simulated(folder / "sim") as sim,
              snmpsim({"": folder / "recordings"}, folder / "agent") as agent):
            wanted = config(folder, agent.port, server, sim.port)
            once = subprocess.run(
                [sys.executable, "-m", "clustertop.cli", "once", "-c", str(wanted), "--json", "--timeout", "20"],
                capture_output=True, text=True, timeout=240, check=False, env=environ)
            process = subprocess.Popen(
                [sys.executable, "-c", RUN, str(folder / "log"), str(SECONDS - 8), "watch", "-c", str(wanted), "--json", "--for",
                 str(SECONDS), "--record", str(folder / "flight.ct"), "--state", str(folder / "state")],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
            watcher = Watcher(process.pid)
            try:
                time.sleep(SECONDS - 12)
                server.close()
                closed = True
                out, err = process.communicate(timeout=240)
            finally:
                process.kill()
                watcher.stop()
    finally:
        if not closed:
            server.close()
    found = {"once --json": once.stdout, "once's stderr": once.stderr, "watch --json": out, "watch's stderr": err,
             "log": (folder / "log").read_text("utf-8", "replace"), "processes": "\n".join(watcher.seen),
             "names": " ".join(watcher.names),
             "recording": gzip.decompress((folder / "flight.ct").read_bytes()).decode("utf-8", "replace")}
    for path in (folder / "state", *(folder / "xdg-state").rglob("*")):
        if path.is_file():
            found[f"state {path.name}"] = path.read_text("utf-8", "replace")
    return found


def test_the_run_did_what_could_have_told_them(left: dict[str, str]) -> None:
    """Else the search below finds nothing because there is nothing."""
    made = json.loads(left["once --json"])
    links = {one["name"]: one["link"] for one in made["devices"]}
    assert {name: links[name] for name in ("pdu-plain", "pdu-secure", "pdu-silent", "n1-bmc", "n2-bmc", "n3-bmc")} == {
        "pdu-plain": "up", "pdu-secure": "up", "pdu-silent": "unreachable", "n1-bmc": "up", "n2-bmc": "up",
        "n3-bmc": "auth_failed"}
    assert links["pdu-refused"] == "auth_failed"
    assert links["n4-bmc"] not in {"up", "waiting"}
    assert "ipmitool" in left["names"]
    assert "RuntimeError: broke in read of" in left["watch's stderr"]
    assert "internal error of clustertop: RuntimeError" in left["recording"]
    assert '"pdu"' in left["recording"]
    assert any(name.startswith("state") for name in left)


@pytest.mark.parametrize("secret", sorted(SECRETS))
def test_no_secret_is_anywhere(secret: str, left: dict[str, str]) -> None:
    places = {name: text for name, text in left.items() if any(form in text for form in forms(secret))}
    assert sorted(places) == []
