"""What watching N nodes costs: the floor, the headless core and the console, each against the same demo cluster.

    python bench/fleet.py 256 [--seconds 30] [--parts floor core console] [--json FILE]

The N nodes are ``clustertop demo``'s SSH servers in a process of their own, one frame a second each, started anew for
every part. The parts run one after the other, each in its own process:

    floor    bare asyncssh: the same login, launcher and probe; lines are counted and thrown away
    core     clustertop without a screen: wire, poller, store, rules, verdicts as often as ever
    console  the same with the console on a real pseudo-terminal of 160 x 50, one key press every 0.4 s

CPU is user and system time of the part's process over the measured seconds, as a share of one core. A value's age when
it is drawn runs from the node's reading (one machine, one clock) to the tick (core) or the picture (console) that
first holds it. A key press counts from the write to the terminal to the first output that answers it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import pty
import resource
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from clustertop.model import Transition
    from clustertop.wire.frame import Frame

PARTS = ("floor", "core", "console")
SETTLE_SECONDS = 5.0
CONNECT_LIMIT_SECONDS = 120.0
KEY_SECONDS = 0.4
COLUMNS, ROWS = 160, 50
FLOOR_AT_ONCE = 32


def percentile(values: list[float], share: float) -> float | None:
    """The value below which *share* of *values* lie."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else None


def cpu_seconds() -> float:
    """CPU that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def clean_descriptor_limit() -> None:
    """Take as many descriptors as we may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- the parts: each runs in a process of its own ----------------------------------------------------------------------


class Window:
    """The measured seconds: settles first, then counts."""

    def __init__(self, task: dict[str, Any], frames: Callable[[], int], heard: Callable[[], int]) -> None:
        self._task = task
        self._frames, self._heard = frames, heard
        self.measuring = False

    async def measure(self) -> dict[str, Any]:
        """Wait for every node's first frame, settle, measure; returns the numbers."""
        began = time.monotonic()
        cpu = cpu_seconds()
        while self._heard() < self._task["nodes"] and time.monotonic() - began < CONNECT_LIMIT_SECONDS:
            await asyncio.sleep(0.02)
        out: dict[str, Any] = {"heard": self._heard(), "connect_seconds": time.monotonic() - began,
                               "connect_cpu_seconds": cpu_seconds() - cpu}
        await asyncio.sleep(SETTLE_SECONDS)
        server = psutil.Process(self._task["server"])
        self.measuring = True
        Path(os.environ["BENCH_DONE"]).with_suffix(".begun").touch()  # from now on our parent presses keys
        frames, cpu, at = self._frames(), cpu_seconds(), time.monotonic()
        server_cpu = sum(server.cpu_times()[:2])
        await asyncio.sleep(self._task["seconds"])
        took = time.monotonic() - at
        self.measuring = False
        return {**out, "frames_per_second": (self._frames() - frames) / took, "cpu": (cpu_seconds() - cpu) / took,
                "server_cpu": (sum(server.cpu_times()[:2]) - server_cpu) / took,
                "rss_bytes": psutil.Process().memory_info().rss}


async def floor(task: dict[str, Any]) -> dict[str, Any]:
    """Bare asyncssh sessions that count lines."""
    import asyncssh

    from clustertop.wire import bundle

    lines = 0
    heard = 0

    class Count(asyncssh.SSHClientSession[bytes]):
        def __init__(self) -> None:
            self.nonce = bundle.new_nonce()
            self.state = 0
            self.chan: asyncssh.SSHClientChannel[bytes] | None = None

        def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
            self.chan = chan

        def session_started(self) -> None:
            assert self.chan is not None
            self.chan.write(bundle.launcher(self.nonce))

        def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
            nonlocal lines, heard
            if self.state == 0:
                if b" ready " in data:
                    self.state = 1
                    every = {"gpu": 1.0, "rdma": 1.0, "host": 1.0, "pcie": task["pcie"]}
                    assert self.chan is not None
                    self.chan.write(bundle.bundle({"nonce": self.nonce, "every": every}))
                return
            found = data.count(b"\n")
            lines += found
            if self.state == 1 and found:
                self.state = 2
                heard += 1

    gate = asyncio.Semaphore(FLOOR_AT_ONCE)
    options = asyncssh.SSHClientConnectionOptions(
        config=None, username=task["user"], client_keys=[asyncssh.read_private_key(task["client_key"])],
        known_hosts=asyncssh.read_known_hosts(task["known_hosts"]),  # once: it has a line for every node
        agent_path=None, keepalive_interval=5,
        encryption_algs="^aes128-gcm@openssh.com,aes256-gcm@openssh.com",  # as clustertop asks for
    )  # fmt: skip
    open_ones: list[asyncssh.SSHClientConnection] = []

    async def join(port: int) -> None:
        async with gate:
            conn = await asyncssh.connect("127.0.0.1", port, options=options)
            await conn.create_session(Count, bundle.COMMAND, encoding=None)
            open_ones.append(conn)

    starts = [asyncio.create_task(join(node["port"])) for node in task["inventory"]]
    result = await Window(task, lambda: lines, lambda: heard).measure()
    await asyncio.gather(*starts)
    return result


async def core(task: dict[str, Any], *, console: bool = False) -> dict[str, Any]:
    """clustertop's session, with or without the console on it."""
    from clustertop.inventory import Inventory
    from clustertop.model import NodeInfo
    from clustertop.plan import Plan
    from clustertop.rules.spec import builtin
    from clustertop.session import Session
    from clustertop.wire.transport import PollSettings

    nodes = tuple(NodeInfo(**node) for node in task["inventory"])
    settings = PollSettings(
        interval_seconds=1.0, pcie_interval_seconds=task["pcie"], handshakes_at_once=FLOOR_AT_ONCE,
        handshakes_per_host=FLOOR_AT_ONCE, ssh_config=task["ssh_config"], known_hosts=task["known_hosts"],
        user=task["user"], client_keys=(task["client_key"],), agent=False,
    )  # fmt: skip
    ages: list[float] = []
    tick_costs: list[float] = []
    fresh: list[float] = []
    held: list[float] = []
    seen = [False] * len(nodes)
    count = 0

    class Measured(Session):
        def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
            nonlocal count
            count += 1
            seen[node] = True
            fresh.append(frame.w)
            super().on_frame(node, at, frame, raw)

    def drawn() -> None:
        now = time.time()
        if window.measuring:
            ages.extend(now - one for one in held)
        held.clear()

    session = Measured(Plan(Inventory(nodes, index={node.name: number for number, node in enumerate(nodes)}), settings,
                            builtin(), title="bench"))  # fmt: skip
    window = Window(task, lambda: count, lambda: sum(seen))
    tick = session.core.tick

    def timed_tick(now: float, wall: float) -> list[Transition]:
        began = time.perf_counter()
        out = tick(now, wall)
        if window.measuring:
            tick_costs.append(time.perf_counter() - began)
        held.extend(fresh)
        fresh.clear()
        if not console:
            drawn()
        return out

    session.core.tick = timed_tick  # type: ignore[method-assign]
    async with session:
        if console:
            result = await _with_console(session, window, drawn)
        else:
            result = await window.measure()
    return {**result, "age_p50": percentile(ages, 0.5), "age_p99": percentile(ages, 0.99),
            "tick_p50": percentile(tick_costs, 0.5), "tick_p99": percentile(tick_costs, 0.99),
            "skipped_ticks": session.skipped_ticks}  # fmt: skip


async def _with_console(session: Any, window: Window, drawn: Callable[[], None]) -> dict[str, Any]:
    from clustertop.tui.app import ConsoleApp, run_console

    shown = ConsoleApp.watch_snapshot

    def watch(self: ConsoleApp, snapshot: Any) -> None:
        shown(self, snapshot)
        # The picture is made; it is on the terminal when what is queued now has been drawn.
        self.call_after_refresh(drawn)

    ConsoleApp.watch_snapshot = watch  # type: ignore[method-assign]
    measure = asyncio.create_task(window.measure())
    show = asyncio.create_task(run_console(session, refresh_seconds=1.0, mouse=False))
    await asyncio.wait({measure, show}, return_when=asyncio.FIRST_COMPLETED)
    if not measure.done():
        measure.cancel()
        raise RuntimeError(f"the console ended by itself: {show.result()}")
    result = measure.result()
    Path(os.environ["BENCH_DONE"]).write_text("measured", encoding="ascii")  # our parent presses q now
    await asyncio.wait({show}, timeout=10.0)
    return result


def run_part(part: str, task_file: str) -> None:
    """Run *part* and write its numbers beside its task."""
    clean_descriptor_limit()
    path = Path(task_file)
    task = json.loads(path.read_text())
    main: Coroutine[Any, Any, dict[str, Any]]
    main = floor(task) if part == "floor" else core(task, console=part == "console")
    import uvloop

    try:
        result = uvloop.run(main)
    except BaseException:  # noqa: BLE001 - whatever it is, our parent must read it
        # Its stderr is the console's screen.
        Path(os.environ["BENCH_ERRORS"]).write_text(traceback.format_exc(), encoding="utf-8")
        os._exit(1)
    path.with_suffix(".result").write_text(json.dumps(result))
    os._exit(0)  # closing a thousand connections in order is not what is measured


# -- the parent --------------------------------------------------------------------------------------------------------


class Keys:
    """Presses ``m`` on a console's terminal and waits for the name of the next metric."""

    def __init__(self, master: int) -> None:
        from clustertop.tui.heat import HEATS

        self._master = master
        self._titles = [heat.title.encode() for heat in HEATS]
        self._at = 0
        self._tail = b""
        self._sent = 0.0
        self._next = 0.0
        self.latencies: list[float] = []
        self.lost = 0
        self.begun = False

    def step(self) -> None:
        """Read what the console writes; press when it is time."""
        ready, _, _ = select.select([self._master], [], [], 0.005)
        now = time.monotonic()
        if ready:
            with contextlib.suppress(OSError):
                self._tail = self._tail[-80:] + os.read(self._master, 1 << 16)
            if self._sent and self._titles[self._at] in self._tail:
                self.latencies.append(now - self._sent)
                self._sent = 0.0
                self._next = now + KEY_SECONDS
        if self._sent and now - self._sent > 5.0:
            self.lost += 1
            self._sent = 0.0
        if self.begun and not self._sent and now >= self._next:
            self._at = (self._at + 1) % len(self._titles)
            self._tail = b""
            self._sent = now
            os.write(self._master, b"m")


def run_on_terminal(command: list[str], env: dict[str, str], limit: float) -> Keys:
    """Run *command* on a pseudo-terminal of its own, pressing keys while it measures."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    done = Path(env["BENCH_DONE"])
    begun = done.with_suffix(".begun")
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    keys = Keys(master)
    began = time.monotonic()
    asked = False
    while process.poll() is None and time.monotonic() - began < limit:
        keys.begun = begun.exists() and not done.exists()
        keys.step()
        if done.exists() and not asked:
            asked = True
            os.write(master, b"q")
    if process.poll() is None:
        process.kill()
    process.wait()
    os.close(master)
    return keys


async def measure(part: str, args: argparse.Namespace) -> dict[str, Any]:
    """Start a demo cluster, run *part* against it in a process of its own, return its numbers."""
    from clustertop.demo.launch import start_demo

    async with start_demo(args.nodes, seed=args.seed) as demo:
        with tempfile.TemporaryDirectory(prefix="clustertop-bench-") as folder:
            task = Path(folder) / "task.json"
            task.write_text(json.dumps({
                "nodes": args.nodes, "seconds": args.seconds, "pcie": 10.0, "server": demo.pid, "user": "demo",
                "client_key": str(demo.client_key), "known_hosts": str(demo.known_hosts),
                "ssh_config": str(demo.ssh_config),
                "inventory": [{"name": node.name, "host": node.host, "user": node.user, "port": node.port,
                               "rack": node.rack, "leaf": node.leaf} for node in demo.nodes],
            }))  # fmt: skip
            command = [sys.executable, __file__, "--run", part, str(task)]
            env = {**os.environ, "BENCH_DONE": str(Path(folder) / "done"), "BENCH_ERRORS": str(Path(folder) / "errors"),
                   "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}  # fmt: skip
            limit = CONNECT_LIMIT_SECONDS + SETTLE_SECONDS + args.seconds + 30.0
            keys = None
            if part == "console":
                keys = await asyncio.to_thread(run_on_terminal, command, env, limit)
            else:
                await asyncio.to_thread(subprocess.run, command, env=env, timeout=limit, check=False)
            result, errors = task.with_suffix(".result"), Path(env["BENCH_ERRORS"])
            if not result.exists():
                said = errors.read_text()[-2000:] if errors.exists() else f"it took longer than {limit:g} s"
                raise SystemExit(f"the {part} part did not finish: {said}")
            out: dict[str, Any] = json.loads(result.read_text())
    if keys is not None:
        out.update(keys=len(keys.latencies), keys_lost=keys.lost, key_p50=percentile(keys.latencies, 0.5),
                   key_p99=percentile(keys.latencies, 0.99))  # fmt: skip
    return out


ROWS_SHOWN: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("CPU, of one core", "cpu", lambda v: f"{v * 100:.1f} %"),
    ("memory", "rss_bytes", lambda v: f"{v / 1e6:.0f} MB"),
    ("frames per second", "frames_per_second", lambda v: f"{v:.0f}"),
    ("all nodes heard after", "connect_seconds", lambda v: f"{v:.1f} s"),
    ("CPU until then", "connect_cpu_seconds", lambda v: f"{v:.1f} s"),
    ("age of a value when drawn, p50", "age_p50", lambda v: f"{v * 1000:.0f} ms"),
    ("age of a value when drawn, p99", "age_p99", lambda v: f"{v * 1000:.0f} ms"),
    ("tick (store, rules, view), p50", "tick_p50", lambda v: f"{v * 1000:.0f} ms"),
    ("tick (store, rules, view), p99", "tick_p99", lambda v: f"{v * 1000:.0f} ms"),
    ("key press, p50", "key_p50", lambda v: f"{v * 1000:.0f} ms"),
    ("key press, p99", "key_p99", lambda v: f"{v * 1000:.0f} ms"),
    ("the demo servers' CPU meanwhile", "server_cpu", lambda v: f"{v * 100:.1f} %"),
)


def table(nodes: int, results: dict[str, dict[str, Any]]) -> str:
    """The numbers as a Markdown table."""
    lines = [f"| {nodes} nodes | " + " | ".join(results) + " |", "|---|" + "---:|" * len(results)]
    for title, key, form in ROWS_SHOWN:
        cells = [form(result[key]) if result.get(key) is not None else "" for result in results.values()]
        if any(cells):
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    if "floor" in results:
        base = results["floor"]["cpu"]
        ratios = " | ".join(f"{one['cpu'] / base:.2f}" for one in results.values())
        lines.append(f"| CPU, times the floor | {ratios} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--run"]:
        run_part(*sys.argv[2:4])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", type=int, help="number of nodes, for example 64, 256, 1024")
    parser.add_argument("--seconds", type=float, default=30.0, help="measured seconds of each part (30)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", metavar="FILE", help="also write the numbers here ('-': in place of the table)")
    args = parser.parse_args()
    clean_descriptor_limit()
    results = {}
    for part in args.parts:
        print(f"{part} ...", file=sys.stderr, flush=True)
        results[part] = asyncio.run(measure(part, args))
        wrong = args.nodes - results[part]["heard"]
        if wrong:
            print(f"  {wrong} nodes were not heard within {CONNECT_LIMIT_SECONDS:g} s", file=sys.stderr)
    whole = json.dumps({"nodes": args.nodes, "seconds": args.seconds, "parts": results}, indent=1)
    if args.json == "-":
        print(whole)
        return
    if args.json:
        Path(args.json).write_text(whole + "\n")
    print(table(args.nodes, results))


if __name__ == "__main__":
    main()
