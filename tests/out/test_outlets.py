"""Ways out: delivered or counted as lost, never in the way, nothing of them left behind."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustertop.model import Severity, Thing, Transition
from clustertop.out.hook import Hook
from clustertop.out.log import TransitionLog
from clustertop.out.outlet import QUEUE, DeliveryError, Outlet
from clustertop.out.webhook import Webhook

RAISED = Transition(50.0, 1_700_000_050.0, "raised", "gpu_ecc", Severity.CRITICAL, Thing("gpu", "n1", "GPU-1", "GPU 1"),
                    "uncorrected ECC errors: 2", 2.0, 0.0, "", 50.0, "a1")
CLEARED = replace(RAISED, kind="cleared", at=60.0, wall=1_700_000_060.0)


def script(tmp_path: Path, body: str) -> list[str]:
    """A hook made of Python lines."""
    path = tmp_path / "hook.py"
    path.write_text(f"import os, sys, time\n{body}\n", encoding="utf-8")
    return [sys.executable, str(path)]


async def settle(outlet: Outlet) -> None:
    """Wait until nothing is on its way."""
    while outlet._task is not None and not outlet._task.done():
        await asyncio.sleep(0.01)


class Kept(Outlet):
    """Keeps what it is given; fails as often as it is told to."""

    def __init__(self, fails: int = 0, least: Severity = Severity.WARNING) -> None:
        super().__init__("kept", least, wait_seconds=0.0)
        self.got: list[str] = []
        self.fails, self.tries = fails, 0

    async def deliver(self, change: Transition) -> None:
        self.tries += 1
        if self.tries <= self.fails:
            raise DeliveryError("not now")
        self.got.append(f"{change.kind} {change.alert}")


class TestWhatIsTold:
    async def test_the_end_of_what_was_told_and_of_nothing_else(self) -> None:
        outlet = Kept()
        outlet.tell([replace(RAISED, severity=Severity.INFO, alert="mild"), RAISED])
        outlet.tell([replace(RAISED, kind="eased", severity=Severity.INFO)])
        outlet.tell([replace(CLEARED, alert="mild", severity=Severity.INFO), CLEARED, CLEARED])
        await settle(outlet)
        assert outlet.got == ["raised a1", "cleared a1"]

    async def test_quiet_ones_are_not_and_what_goes_under_another_is(self) -> None:
        outlet = Kept()
        outlet.tell([replace(RAISED, quiet=True, alert="hushed"), replace(CLEARED, alert="hushed")])
        outlet.tell([RAISED, replace(RAISED, kind="folded", into="b2"), CLEARED])
        await settle(outlet)
        assert outlet.got == ["raised a1", "folded a1"]

    async def test_B12_told_only_when_it_was_delivered(self) -> None:  # noqa: N802
        outlet = Kept(fails=2)
        outlet.tell([RAISED])
        assert outlet.delivered == 0
        await settle(outlet)
        assert (outlet.got, outlet.delivered, outlet.lost, outlet.note) == (["raised a1"], 1, 0, "")

    async def test_what_never_gets_through_is_counted_and_the_next_one_tried(self) -> None:
        outlet = Kept(fails=4)
        outlet.tell([RAISED, CLEARED])
        await settle(outlet)
        assert (outlet.got, outlet.lost) == (["cleared a1"], 1)
        assert outlet.note == "kept: 1 not told"

    async def test_the_queue_is_bounded(self) -> None:
        outlet = Kept()
        outlet.tell([replace(RAISED, alert=f"x{number}") for number in range(QUEUE + 50)])
        await settle(outlet)
        assert (len(outlet.got), outlet.lost) == (QUEUE, 50)
        assert outlet.got[0] == "raised x50"


def children() -> set[str]:
    """The processes that this one has started."""
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="ascii").split())


class TestHook:
    async def test_it_reads_the_transition_on_stdin(self, tmp_path: Path) -> None:
        hook = Hook(script(tmp_path, f"open({str(tmp_path / 'out')!r}, 'a').write(sys.stdin.read())"),
                    Severity.WARNING, 20.0)
        hook.tell([RAISED, CLEARED])
        await settle(hook)
        said = [json.loads(line) for line in (tmp_path / "out").read_text(encoding="utf-8").splitlines()]
        assert [(one["kind"], one["rule"], one["node"], one["alert"]) for one in said] == [
            ("raised", "gpu_ecc", "n1", "a1"), ("cleared", "gpu_ecc", "n1", "a1")]
        assert (hook.delivered, hook.note) == (2, "")

    async def test_one_that_does_not_read_is_as_good(self, tmp_path: Path) -> None:
        hook = Hook(script(tmp_path, "sys.stdin.close()"), Severity.WARNING, 20.0)
        hook.tell([replace(RAISED, message="x" * 200_000)])
        await settle(hook)
        assert (hook.delivered, hook.note) == (1, "")

    async def test_a_hanging_one_is_ended_with_its_children(self, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        hook = Hook(script(tmp_path, (
            "import signal, subprocess\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import signal, time\\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\ntime.sleep(600)'])\n"
            f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} {{child.pid}} ')\n"
            "time.sleep(600)")), Severity.WARNING, 900.0, wait_seconds=0.0)
        hook.tell([RAISED])
        async with asyncio.timeout(60):
            while not pids.exists() or len(pids.read_text(encoding="ascii").split()) < 2:
                await asyncio.sleep(0.02)
            await hook.close()
        assert hook.lost == 1
        for pid in pids.read_text(encoding="ascii").split():
            for _ in range(1200):
                if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]:
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail(f"{pid} lives on")

    @pytest.mark.parametrize(("body", "note"), [
        ("sys.exit('disk is full')", "exit status 1: disk is full"),
        ("os.kill(os.getpid(), 9)", "was ended by signal 9"),
    ])
    async def test_a_failure_says_how(self, tmp_path: Path, body: str, note: str) -> None:
        hook = Hook(script(tmp_path, body), Severity.WARNING, 20.0, wait_seconds=0.0)
        hook.tell([RAISED])
        await settle(hook)
        assert hook.lost == 1
        assert note in hook.note

    async def test_one_that_takes_too_long_says_so(self) -> None:
        hook = Hook(["sleep", "600"], Severity.WARNING, 0.1, wait_seconds=0.0)
        hook.tell([RAISED])
        await settle(hook)
        assert (hook.lost, hook.note) == (1, "hook: 1 not told (sleep took longer than 0.1 s)")

    async def test_one_that_is_not_there(self) -> None:
        hook = Hook(["/no/such/program"], Severity.WARNING, 5.0, wait_seconds=0.0)
        hook.tell([RAISED])
        await settle(hook)
        assert hook.note == "hook: 1 not told (/no/such/program cannot be started: No such file or directory)"

    async def test_telling_never_waits_for_it(self, tmp_path: Path) -> None:
        runs = tmp_path / "runs"
        runs.touch()
        hook = Hook(script(tmp_path, f"open({str(runs)!r}, 'a').write('x'); time.sleep(600)"), Severity.WARNING, 900.0)
        others = children()
        # It gives way to nobody: nothing is started before all is told.
        for number in range(200):
            hook.tell([replace(RAISED, alert=f"x{number}")])
        assert children() == others
        async with asyncio.timeout(60):
            while not children() - others:
                await asyncio.sleep(0.01)
            assert len(children() - others) == 1
            await hook.close()
        assert runs.read_text(encoding="ascii") in {"", "x"}


class Receiver:
    """A web server on loopback that answers as it is told."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.got: list[tuple[dict[str, str], dict[str, Any]]] = []

    async def __aenter__(self) -> Receiver:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=s3cret"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers["content-length"]))
                self.got.append((headers, json.loads(body)))
                status = self.answers.pop(0) if self.answers else 204
                if status == 0:
                    await asyncio.sleep(30)
                writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class TestWebhook:
    async def test_it_posts_with_a_key_and_tries_again_with_the_same(self) -> None:
        async with Receiver(503, 200) as receiver:
            hook = Webhook(receiver.url, Severity.WARNING, 5.0, wait_seconds=0.0)
            hook.tell([RAISED, CLEARED])
            await settle(hook)
            await hook.close()
        assert [body["kind"] for _, body in receiver.got] == ["raised", "raised", "cleared"]
        keys = [headers["idempotency-key"] for headers, _ in receiver.got]
        assert keys[0] == keys[1] != keys[2]
        assert (hook.delivered, hook.note) == (2, "")

    async def test_what_is_refused_is_not_tried_again(self) -> None:
        async with Receiver(400) as receiver:
            hook = Webhook(receiver.url, Severity.WARNING, 5.0, wait_seconds=0.0)
            hook.tell([RAISED])
            await settle(hook)
            await hook.close()
        assert len(receiver.got) == 1
        assert hook.note == "webhook: 1 not told (answered 400)"

    async def test_no_answer_has_an_end_and_no_address_is_shown(self) -> None:
        async with Receiver(0, 0, 0, 0) as receiver:
            hook = Webhook(receiver.url, Severity.WARNING, 0.3, wait_seconds=0.0)
            hook.tell([RAISED])
            await settle(hook)
            await hook.close()
        assert hook.lost == 1
        assert hook.note == "webhook: 1 not told (no answer within 0.3 s)"

    @pytest.mark.parametrize("url", ["http://127.0.0.1:9/hook?token=s3cret", "no address s3cret", "ftp://s3cret/"])
    async def test_a_wrong_address_is_a_note_without_it(self, url: str) -> None:
        hook = Webhook(lambda: url, Severity.WARNING, 2.0, wait_seconds=0.0)
        hook.tell([RAISED])
        await settle(hook)
        await hook.close()
        assert hook.lost == 1
        assert "s3cret" not in hook.note


class TestLog:
    def lines(self, path: Path) -> list[str]:
        return [json.loads(line)["alert"] for line in path.read_text(encoding="utf-8").splitlines()]

    async def test_every_transition_is_a_line_and_quiet_ones_too(self, tmp_path: Path) -> None:
        log = TransitionLog(tmp_path / "d" / "alerts.ndjson", 10_000, 2)
        log.tell([RAISED, replace(CLEARED, quiet=True)])
        await log.close()
        again = TransitionLog(tmp_path / "d" / "alerts.ndjson", 10_000, 2)
        again.tell([replace(RAISED, alert="later")])
        await again.close()
        assert self.lines(tmp_path / "d" / "alerts.ndjson") == ["a1", "a1", "later"]
        assert (tmp_path / "d" / "alerts.ndjson").stat().st_mode & 0o777 == 0o600

    async def test_it_never_outgrows_its_limit_and_the_newest_are_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "alerts.ndjson"
        log = TransitionLog(path, 1_000, 2)
        for number in range(40):
            log.tell([replace(RAISED, alert=f"x{number:02}")])
        await log.close()
        files = [path.with_name("alerts.ndjson.2"), path.with_name("alerts.ndjson.1"), path]
        assert sorted(tmp_path.glob("*.ndjson*")) == sorted([*files, path.with_name("alerts.ndjson.lock")])
        assert all(file.stat().st_size <= 1_000 for file in files)
        kept = [name for file in files for name in self.lines(file)]
        assert kept == [f"x{number:02}" for number in range(40 - len(kept), 40)]

    async def test_of_two_consoles_one_writes_and_the_other_takes_over(self, tmp_path: Path) -> None:
        one, two = (TransitionLog(tmp_path / "alerts.ndjson", 10_000, 1) for _ in range(2))
        one.tell([RAISED])
        two.tell([RAISED])
        await one.close()
        two.tell([CLEARED])
        await two.close()
        assert self.lines(tmp_path / "alerts.ndjson") == ["a1", "a1"]
        kinds = [json.loads(line)["kind"] for line in (tmp_path / "alerts.ndjson").read_text().splitlines()]
        assert kinds == ["raised", "cleared"]

    async def test_without_its_lock_nothing_is_written_and_the_note_says_why(self, tmp_path: Path) -> None:
        path = tmp_path / "alerts.ndjson"
        lock = path.with_name("alerts.ndjson.lock")
        lock.mkdir()
        log = TransitionLog(path, 10_000, 1)
        log.tell([RAISED])
        assert log.note == f"{path} cannot be written (Is a directory): 1 transitions wait"
        assert not path.exists()
        lock.rmdir()
        log.tell([CLEARED])
        await log.close()
        assert self.lines(path) == ["a1", "a1"]

    async def test_what_could_not_be_written_is_written_later(self, tmp_path: Path) -> None:
        path = tmp_path / "alerts.ndjson"
        path.mkdir()
        log = TransitionLog(path, 10_000, 1)
        log.tell([RAISED])
        assert log.note == f"{path} cannot be written (Is a directory): 1 transitions wait"
        path.rmdir()
        log.tell([CLEARED])
        await log.close()
        assert self.lines(path) == ["a1", "a1"]
        assert log.note == ""
