"""The node's own BMC in band: a program in the tool's place that answers, refuses, hangs, and leaves children behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clustertop.probe import ipmi
from clustertop.probe.files import Call, Tree
from clustertop.probe.ipmi import Ipmi
from clustertop.probe.loop import Probe
from probe.harness import VERSIONS, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from probe.harness import Run

SENSORS = "PS1 Input Power  | 21h | ok  | 10.1 | 412 Watts\\nPS1 Status       | 22h | ok  | 10.1 | Presence detected"
ANSWERS = {
    "sdr elist all": f'printf "{SENSORS}\\n"',
    "dcmi power reading": 'printf "\\n    Instantaneous power reading:   780 Watts\\n    Power reading state is:  activated\\n"',
    "chassis power status": 'echo "Chassis Power is on"',
}


class Tool:
    """A script called ipmitool; how it was called is in ``calls``."""

    def __init__(self, folder: Path, name: str = "ipmitool") -> None:
        self.folder = folder
        self.program = folder / name
        self.answer()

    def answer(self, **answers: str) -> None:
        """Replace answers: ``sdr``, ``dcmi``, ``chassis`` to what the shell does."""
        cases = {words: answers.get(words.split()[0], does) for words, does in ANSWERS.items()}
        body = "\n".join(f'"{words}") {does};;' for words, does in cases.items())
        new = self.folder / "new"
        new.write_text(f'#!/bin/sh\necho "$*" >> {self.folder}/calls\nenv > {self.folder}/env\ncase "$*" in\n{body}\nesac\n')
        new.chmod(0o755)
        new.rename(self.program)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def pids(self, name: str) -> list[int]:
        return [int(line) for line in (self.folder / name).read_text().split()]


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Tool]:
    made = Tool(tmp_path)
    yield made
    for file in tmp_path.glob("*.pid"):
        for pid in file.read_text().split():
            if alive(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def reader(tool: Tool) -> Ipmi:
    return Ipmi(Tree("/", Call()), str(tool.program))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def gone(pid: int, seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


def lines(reading: Any) -> dict[str, str]:
    table = reading.tables["ipmi"]
    assert table.columns == ["text"]
    return {key: cell for (key, _), cell in zip(table.rows, table.cells, strict=True)}


def test_three_questions_that_only_read_and_their_lines_as_they_are(reader: Ipmi, tool: Tool) -> None:
    reading = reader.read(1.0)
    assert (reading.st, reading.e) == ("ok", "")
    assert tool.calls == list(ANSWERS)
    assert lines(reading) == {
        "sdr/000": "PS1 Input Power  | 21h | ok  | 10.1 | 412 Watts",
        "sdr/001": "PS1 Status       | 22h | ok  | 10.1 | Presence detected",
        "dcmi/000": "    Instantaneous power reading:   780 Watts", "dcmi/001": "    Power reading state is:  activated",
        "power/000": "Chassis Power is on"}
    assert reader._child is None


def test_the_tool_gets_nothing_of_our_environment_but_where_programs_are(
    reader: Ipmi, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPMI_PASSWORD", "hunter2")
    reader.read(1.0)
    said = (tool.folder / "env").read_text()
    assert "hunter2" not in said
    assert "LC_ALL=C" in said
    assert "/usr/sbin" in said


def test_what_the_bmc_does_not_have_is_asked_for_seldom_and_said(reader: Ipmi, tool: Tool) -> None:
    tool.answer(dcmi='echo "DCMI request failed because: Invalid command (c1)" >&2; exit 1')
    table = reader.read(1.0).tables["ipmi"]
    assert table.rows[0][1] == {"notes": "dcmi power reading: DCMI request failed because: Invalid command (c1)"}
    reader.read(12.0)
    assert tool.calls.count("dcmi power reading") == 1
    reader.read(2.0 + ipmi.AGAIN_SECONDS)
    assert tool.calls.count("dcmi power reading") == 2
    assert tool.calls.count("sdr elist all") == 3


@pytest.mark.parametrize(("does", "words"), [
    ('echo "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory" >&2; exit 1',
     "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory"),
    ("exit 3", "no sensors and no reason"),
])
def test_a_refusal_is_in_the_tools_words(reader: Ipmi, tool: Tool, does: str, words: str,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    tool.answer(sdr=does)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    reading = reader.read(1.0)
    assert (reading.st, reading.e) == ("error", f"{tool.program}: {words}")
    assert tool.calls == ["sdr elist all"], "what does not answer is not asked more"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert reader.read(12.0).e.startswith(f"{tool.program} needs root on the node: ")


def test_no_such_tool_is_said(tmp_path: Path) -> None:
    reading = Ipmi(Tree("/", Call()), "no-such-ipmitool").read(1.0)
    assert (reading.st, reading.e) == ("error", "no-such-ipmitool cannot be run on the node: ENOENT")


def test_one_that_hangs_is_ended_with_what_it_started(reader: Ipmi, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipmi, "RUN_SECONDS", 0.5)
    monkeypatch.setattr(ipmi, "GRACE_SECONDS", 0.3)
    good = reader.read(1.0)
    # It, and a child of it, take no notice of TERM.
    tool.answer(sdr=f"trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo $! $$ > {tool.folder}/hang.pid; wait; wait")
    reading = reader.read(12.0)
    assert (reading.st, reading.e) == ("error", f"{tool.program} sdr elist all: no answer within 0 s; it was ended")
    assert reading.tables == good.tables, "what was known stays, and grows old"
    assert all(gone(pid) for pid in tool.pids("hang.pid"))
    tool.answer()
    assert reader.read(24.0).st == "ok"


def test_one_that_cannot_be_ended_gets_no_second_beside_it(reader: Ipmi, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipmi, "RUN_SECONDS", 0.3)
    monkeypatch.setattr(ipmi, "GRACE_SECONDS", 0.1)
    kill = os.killpg
    # As one that sleeps in the kernel's driver: no signal reaches it.
    monkeypatch.setattr(os, "killpg", lambda group, number: None)
    tool.answer(sdr=f"echo $$ > {tool.folder}/hang.pid; exec sleep 600")
    assert reader.read(1.0).e.endswith("no answer within 0 s; it cannot be ended")
    (pid,) = tool.pids("hang.pid")
    for now in (12.0, 24.0):
        reading = reader.read(now)
        assert reading.st == "error"
        assert reading.e.startswith(f"{tool.program} hangs in the kernel on the node (pid {pid}, started ")
    assert len(tool.calls) == 1
    monkeypatch.setattr(os, "killpg", kill)
    kill(pid, signal.SIGKILL)
    tool.answer()
    until = time.monotonic() + 60
    while (reading := reader.read(36.0)).st != "ok":
        assert time.monotonic() < until, reading.e
        time.sleep(0.05)


def test_output_has_an_end(reader: Ipmi, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool.answer(sdr="i=0; while [ $i -lt 3000 ]; do echo \"sensor $i | 01h | ok | 7.1 | 1 Watts\"; i=$((i+1)); done")
    assert len(lines(reader.read(1.0))) <= ipmi.MAX_LINES
    monkeypatch.setattr(ipmi, "RUN_SECONDS", 1.0)
    tool.answer(sdr="yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
    assert reader.read(12.0).st == "error"


def test_another_root_has_no_bmc_here(tmp_path: Path, tool: Tool) -> None:
    assert Ipmi(Tree(str(tmp_path), Call()), str(tool.program)).read(1.0).st == "off"
    assert tool.calls == []
    assert "bmc" not in {runner.name for runner in Probe({"root": str(tmp_path)})._runners}


@pytest.mark.parametrize("version", VERSIONS)
def test_over_the_wire(start: Callable[..., Run], tool: Tool, version: str) -> None:
    run = start(interpreter(version), groups=["host", "bmc"], bmc={"tool": str(tool.program)},
                every={"host": 0.1, "bmc": 0.3})
    run.until(lambda values: values.rows.get("ipmi", [])[:1] == ["sdr/000"])
    assert run.values.cell("ipmi", "power/000", "text") == "=Chassis Power is on"
    tool.answer(sdr='echo "Get SDR 0012 command failed" >&2; exit 1')
    run.until(lambda values: values.frame is not None and values.frame.g["bmc"].st == "error")
    assert run.frames[-1].g["bmc"].e.endswith("Get SDR 0012 command failed")


def test_the_probes_end_ends_the_tool(start: Callable[..., Run], tool: Tool) -> None:
    tool.answer(sdr=f"trap '' TERM; echo $$ > {tool.folder}/hang.pid; while :; do sleep 0.1; done")
    run = start(groups=["host", "bmc"], bmc={"tool": str(tool.program)}, every={"host": 0.1, "bmc": 0.3})
    until = time.monotonic() + 60
    while not (tool.folder / "hang.pid").exists() or not tool.pids("hang.pid"):
        assert time.monotonic() < until
        run.next()
    run.request(do="stop")
    run.wait()
    assert gone(tool.pids("hang.pid")[0])
