"""clustertop and its published peers, one after the other on the same real sshd listeners.

    sudo python bench/peers.py --venvs DIR [--nodes 8 32 64] [--seconds 20] [--tools NAME ...] [--json FILE]

Needs root, OpenSSH's sshd, a C compiler and Linux: everything runs in a network namespace of its own that has nothing
but loopback, in which each node is an sshd process on port 22 of its own address. In DIR stands a virtual environment
for each peer, named like the package, into which it was installed (``pip install NAME``); a peer that is not there, or
that does not show all nodes, is said to be so. On every node a stand-in ``nvidia-smi`` (8 GPUs, 50 ms a call) is in
PATH; clustertop's probe, which does not call it, gets the tests' stand-in NVML.

Every tool draws on a pseudo-terminal with a line for every GPU, at its own default interval. Measured:

    first picture   from the start until a picture holds all nodes' values
    CPU, memory     of the tool's whole process tree (ssh clients and detached masters included); memory is the sum of
                    proportional set sizes, and of resident sets
    ssh             most ssh client processes at one time
    logins          that the nodes' sshds accepted, per minute, once the tool is under way
    fault           from the change of a node's readings until they are on the terminal, median and worst of three
    sweep           from the change of all nodes' readings at once until a picture holds them all
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
GPUS = 8
BUSY, FAULTY, SWEPT = 88, 37, 53
"""Utilisations that stand nowhere else on any tool's screen."""
START_LIMIT, FAULT_LIMIT, SWEEP_LIMIT = 90.0, 40.0, 60.0
SETTLE_SECONDS = 8.0
COLUMNS = 200
PR_SET_CHILD_SUBREAPER = 36
NOT_RUN = "not to be had"


def address(number: int) -> str:
    """The loopback address of node *number*."""
    return f"127.0.{1 + number // 200}.{1 + number % 200}"


@dataclass
class Cluster:
    """N real sshds and a jump host, each on an address of its own."""

    folder: Path
    count: int

    def __post_init__(self) -> None:
        self._servers: list[subprocess.Popen[bytes]] = []
        self.names = [f"node{number + 1:03d}" for number in range(self.count)]

    def start(self) -> None:
        """Make keys and files, start every sshd, wait until all of them answer."""
        folder = self.folder
        (folder / "home" / ".ssh").mkdir(parents=True, mode=0o700)
        (folder / "bin").mkdir()
        subprocess.run(["cc", "-O1", "-o", folder / "bin/nvidia-smi", HERE / "standin_smi.c"], check=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "bin/libnvidia-ml.so.1",
                        HERE.parent / "tests/nvml/nvml.c", "-lpthread"], check=True)  # fmt: skip
        for name in ("host_key", "client_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        # A login shell resets PATH; this is how a node's own profile would put it back.
        path = f"{folder}/bin:{Path(sys.executable).resolve().parent}:/usr/bin:/bin:/usr/sbin:/sbin"
        (folder / "home/.bash_profile").write_text(f"export PATH={path}\n")
        host = (folder / "host_key.pub").read_text().split()
        known = [f"{address(number)},{name} {host[0]} {host[1]}\n" for number, name in enumerate(self.names)]
        known.append(f"127.0.250.1,jump {host[0]} {host[1]}\n")
        (folder / "known_hosts").write_text("".join(known))
        shutil.copy(folder / "known_hosts", folder / "home/.ssh/known_hosts")
        blocks = [f"Host {name}\n  HostName {address(number)}\n" for number, name in enumerate(self.names)]
        config = "".join(blocks) + (f"Host *\n  User root\n  IdentityFile {folder}/client_key\n  IdentitiesOnly yes\n"
                                    f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n")
        (folder / "ssh_config").write_text(config)
        shutil.copy(folder / "ssh_config", folder / "home/.ssh/config")
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for number in range(self.count):
            self.util(number, BUSY)
            self._serve(number, address(number), path)
        self._serve(self.count, "127.0.250.1", path)
        deadline = time.monotonic() + 20.0
        for number in range(self.count + 1):
            log = folder / f"sshd{number}.log"
            while "Server listening" not in log.read_text():
                if time.monotonic() > deadline:
                    raise SystemExit(f"an sshd did not start: {log.read_text()[-500:]}")
                time.sleep(0.02)

    def _serve(self, number: int, listen: str, path: str) -> None:
        folder = self.folder
        env = (f"PATH={path} HOME={folder}/home LD_LIBRARY_PATH={folder}/bin "
               f"CLUSTERTOP_TEST_NVML={folder}/node{number}.scenario")
        config = folder / f"sshd{number}.conf"
        config.write_text(
            f"ListenAddress {listen}:22\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/client_key.pub\n"
            f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"PermitRootLogin prohibit-password\nPrintMotd no\nUseDNS no\nLogLevel INFO\nSetEnv {env}\n")
        with open(folder / f"sshd{number}.log", "wb") as log:
            self._servers.append(subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(config)],
                                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log))  # fmt: skip

    def util(self, number: int, percent: int) -> None:
        """Make every GPU of node *number* *percent* busy from now on."""
        path = self.folder / f"node{number}.scenario"
        part = path.with_suffix(".part")
        part.write_text(f"all util {percent}\n")
        part.replace(path)

    def logins(self) -> int:
        """How many logins the nodes have accepted."""
        return sum((self.folder / f"sshd{number}.log").read_bytes().count(b"Accepted publickey")
                   for number in range(self.count))  # fmt: skip

    def stop(self) -> None:
        """End every sshd and what it serves."""
        for server in self._servers:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(server.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            server.kill()
        for server in self._servers:
            server.wait()


# -- the tools ---------------------------------------------------------------------------------------------------------


@dataclass
class Tool:
    """How one tool is started on the cluster."""

    name: str
    command: list[str]
    env: dict[str, str]
    accumulates: bool = False
    """It writes what changed only, so what was written since a moment counts, not one picture."""
    keys: bytes = b""
    """Pressed once it draws, so that it shows a line per GPU."""
    interval: str = ""


def clustertop(cluster: Cluster, venvs: Path) -> Tool:
    """clustertop's console, with a line per GPU."""
    config = cluster.folder / "clustertop.toml"
    config.write_text(f'[ssh]\nconfig_file = "{cluster.folder}/ssh_config"\nagent = false\n')
    hosts = f"node[001-{cluster.count:03d}]"
    return Tool("clustertop", [sys.executable, "-m", "clustertop", "-c", str(config), hosts], {}, accumulates=True,
                keys=b"3g", interval="2 s")  # fmt: skip


def mnvitop(cluster: Cluster, venvs: Path) -> Tool:
    """mnvitop: nvidia-smi loops over system ssh with ControlMaster."""
    config = cluster.folder / "mnvitop.toml"
    args = f'ssh_args = ["-F", "{cluster.folder}/ssh_config"]'
    config.write_text("hosts = [\n" + "".join(
        f'  {{ name = "{name}", ssh = "{name}", {args} }},\n' for name in cluster.names) + "]\n")
    return Tool("mnvitop", [str(venvs / "mnvitop/bin/mnvitop"), "-c", str(config)], {}, interval="0.5 s")


def ssh_gpu_monitor(cluster: Cluster, venvs: Path) -> Tool:
    """ssh-gpu-monitor: asyncssh through a jump host, nvidia-smi -q -x each round."""
    config = cluster.folder / "monitor.yaml"
    config.write_text(
        f"ssh: {{username: root, key_path: {cluster.folder}/client_key, jump_host: 127.0.250.1, timeout: 10}}\n"
        "targets:\n  individual:\n" + "".join(f"    - {{host: {address(n)}}}\n" for n in range(cluster.count)) +
        "  patterns: []\ndisplay: {refresh_rate: 5}\n"
        "debug: {enabled: false, log_dir: logs, log_file: log, log_max_size: 1000, log_backup_count: 1}\n")
    return Tool("ssh-gpu-monitor", [str(venvs / "ssh-gpu-monitor/bin/ssh-gpu-monitor"), "--config", str(config)], {},
                interval="5 s")


def nvitop_cluster(cluster: Cluster, venvs: Path) -> Tool:
    """nvitop-cluster: a login per node and round, its probe found on a shared file system."""
    hosts = cluster.folder / "hostfile"
    hosts.write_text("".join(f"{name} slots=8\n" for name in cluster.names))
    return Tool("nvitop-cluster", [str(venvs / "nvitop-cluster/bin/nvitop-cluster"), "-f", str(hosts)],
                {"NVITOP_CLUSTER_SSH_CONFIG": f"{cluster.folder}/ssh_config"}, interval="2 s")


TOOLS: dict[str, Callable[[Cluster, Path], Tool]] = {
    "clustertop": clustertop, "mnvitop": mnvitop, "ssh-gpu-monitor": ssh_gpu_monitor, "nvitop-cluster": nvitop_cluster,
}  # fmt: skip


class Screen:
    """What a tool has written, cut into pictures, without escape sequences."""

    _CUT = re.compile(r"\x1b\[(?:1;1)?H|(?:\x1b\[1A\x1b\[2K)+")
    _ESCAPE = re.compile(r"\x1b\[[0-9;?:<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")

    def __init__(self, master: int, *, accumulates: bool) -> None:
        self._master = master
        self._accumulates = accumulates
        self.written = ""

    def read(self, seconds: float) -> None:
        """Take what is written within *seconds* at most."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            with contextlib.suppress(OSError):
                self.written += os.read(self._master, 1 << 18).decode("utf-8", "replace")

    def forget(self) -> None:
        """Start over."""
        self.written = ""

    def count(self, percent: int) -> int:
        """How often the number stands in the best picture since :meth:`forget`."""
        pictures = [self.written] if self._accumulates else self._CUT.split(self.written)
        pattern = re.compile(rf"(?<![\d.:]){percent}(?:\.0)?(?![\d:])")
        best = max((len(pattern.findall(self._ESCAPE.sub(" ", one))) for one in pictures), default=0)
        if not self._accumulates and len(pictures) > 3:
            self.written = self.written[self.written.rfind(pictures[-2]) :]  # bounded: older pictures are judged
        return best


class Tree:
    """CPU and memory of everything below this process, detached children included."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._me = psutil.Process()

    def reap(self) -> None:
        """Bury orphans that have come to us, so that their CPU is counted."""
        for child in self._me.children():
            if child.status() == psutil.STATUS_ZOMBIE:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)

    def cpu(self) -> float:
        """CPU seconds so far, ours not included."""
        own = self._me.cpu_times()
        total = own.children_user + own.children_system
        for child in self._me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(child.cpu_times()[:4])
        return float(total)

    def memory(self) -> tuple[int, int, int]:
        """Proportional and resident bytes, and the number of ssh clients."""
        proportional = resident = clients = 0
        for child in self._me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                info = child.memory_full_info()
                proportional, resident = proportional + info.pss, resident + info.rss
                clients += child.name() == "ssh"
        return proportional, resident, clients

    def end(self) -> None:
        """End everything below us."""
        for child in self._me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


def watch(cluster: Cluster, tool: Tool, seconds: float) -> dict[str, Any]:
    """Run *tool* on *cluster* and measure it; runs in a process of its own."""
    tree = Tree()
    lines = GPUS * cluster.count + 6 * cluster.count + 40
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", min(lines, 2000), COLUMNS, 0, 0))
    env = {**os.environ, "HOME": str(cluster.folder / "home"), "TERM": "xterm-256color", "COLORTERM": "truecolor",
           "LANG": "C.UTF-8", "LINES": str(lines), "COLUMNS": str(COLUMNS), **tool.env}  # fmt: skip
    env.pop("SSH_AUTH_SOCK", None)
    began = time.monotonic()
    process = subprocess.Popen(tool.command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cluster.folder,
                               start_new_session=True)  # fmt: skip
    os.close(slave)
    screen = Screen(master, accumulates=tool.accumulates)

    def until(percent: int, wanted: int, limit: float) -> float | None:
        start = time.monotonic()
        while time.monotonic() - start < limit and process.poll() is None:
            screen.read(0.05)
            if screen.count(percent) >= wanted:
                return time.monotonic() - start
        return None

    if tool.keys:
        while time.monotonic() - began < 10.0 and len(screen.written) < 500:
            screen.read(0.05)
        os.write(master, tool.keys)
    out: dict[str, Any] = {"interval": tool.interval}
    if until(BUSY, GPUS * cluster.count, START_LIMIT) is None:
        last = Screen._ESCAPE.sub("", screen.written)[-400:]
        shown = screen.count(BUSY) / GPUS
        out["failed"] = f"showed {shown:.0f} of {cluster.count} nodes within {START_LIMIT:g} s; last words: {last!r}"
        tree.end()
        return out
    out["first_picture_seconds"] = time.monotonic() - began
    out["logins_to_start"] = cluster.logins()
    _pass(screen, tree, SETTLE_SECONDS)
    cpu, logins, at = tree.cpu(), cluster.logins(), time.monotonic()
    samples = []
    while time.monotonic() - at < seconds:
        _pass(screen, tree, 1.0)
        if len(samples) < 5:
            samples.append(tree.memory())
    took = time.monotonic() - at
    out["cpu"] = (tree.cpu() - cpu) / took
    out["logins_per_minute"] = (cluster.logins() - logins) * 60.0 / took
    out["pss_bytes"], out["rss_bytes"], out["ssh_processes"] = (max(one[n] for one in samples) for n in range(3))
    faults = []
    for number in (0, cluster.count // 2, cluster.count - 1):
        screen.forget()
        cluster.util(number, FAULTY)
        faults.append(until(FAULTY, GPUS, FAULT_LIMIT))
        cluster.util(number, BUSY)
        _pass(screen, tree, 6.3)
    out["fault_seconds"] = faults
    screen.forget()
    for number in range(cluster.count):
        cluster.util(number, SWEPT)
    out["sweep_seconds"] = until(SWEPT, GPUS * cluster.count, SWEEP_LIMIT)
    tree.end()
    process.wait()
    return out


def _pass(screen: Screen, tree: Tree, seconds: float) -> None:
    """Let time go by while the terminal is read."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        screen.read(min(left, 0.2))
        screen.forget()
    tree.reap()


def run(count: int, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one tool on a cluster of its own."""
    # Short: OpenSSH's control sockets have paths of at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="ctp-", dir="/tmp"))
    cluster = Cluster(folder, count)
    try:
        cluster.start()
        tool = TOOLS[name](cluster, Path(args.venvs).resolve())
        if not Path(tool.command[0]).exists():
            return {"failed": f"{NOT_RUN}: {tool.command[0]} is not there"}
        result = folder / "result"
        child = os.fork()
        if child == 0:
            try:
                result.write_text(json.dumps(watch(cluster, tool, args.seconds)))
            except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must read it
                result.write_text(json.dumps({"failed": f"{type(error).__name__}: {error}"}))
            os._exit(0)
        limit = START_LIMIT + SETTLE_SECONDS + args.seconds + 3 * (FAULT_LIMIT + 8.0) + SWEEP_LIMIT + 60.0
        deadline = time.monotonic() + limit
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return {"failed": f"not done within {limit:g} s"}
            time.sleep(0.1)
        out: dict[str, Any] = json.loads(result.read_text())
        return out
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def table(count: int, results: dict[str, dict[str, Any]]) -> str:
    """The numbers as a Markdown table."""
    lines = [f"| {count} nodes | interval | first picture | CPU of a core | memory (PSS / RSS) | ssh processes "
             "| logins per minute | fault on the screen, median / worst | sweep |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for name, one in results.items():
        if "failed" in one:
            lines.append(f"| {name} | {one.get('interval', '')} | {one['failed'].split(';')[0]} |  |  |  |  |  |  |")
            continue
        faults = sorted(float("inf") if value is None else value for value in one["fault_seconds"])

        def words(value: float | None) -> str:
            return "not within the limit" if value is None or value == float("inf") else f"{value:.1f} s"

        lines.append(
            f"| {name} | {one['interval']} | {one['first_picture_seconds']:.1f} s | {one['cpu'] * 100:.1f} % "
            f"| {one['pss_bytes'] / 1e6:.0f} / {one['rss_bytes'] / 1e6:.0f} MB | {one['ssh_processes']} "
            f"| {one['logins_per_minute']:.0f} | {words(faults[1])} / {words(faults[2])} "
            f"| {words(one['sweep_seconds'])} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venvs", required=True, metavar="DIR", help="folder with a virtual environment for each peer")
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of CPU measurement (20)")
    parser.add_argument("--tools", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--json", metavar="FILE", help="also write the numbers here")
    args = parser.parse_args()
    if os.environ.get("BENCH_NAMESPACE") != "1":
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            sys.exit("bench/peers.py: needs root and unshare(1), for a network namespace with nothing but loopback")
        os.environ["BENCH_NAMESPACE"] = "1"
        inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvp("unshare", ["unshare", "--net", *inside])
    whole = {}
    for count in args.nodes:
        results = {}
        for name in args.tools:
            print(f"{count} nodes, {name} ...", file=sys.stderr, flush=True)
            results[name] = run(count, name, args)
            if "failed" in results[name]:
                print(f"  {results[name]['failed']}", file=sys.stderr)
        whole[count] = results
        print(table(count, results), flush=True)
        print(flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
