"""Where secrets come from, what is refused, and that they show up nowhere."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import stat
import time
import traceback
from pathlib import Path

import pytest

from clustertop.sources import secret
from clustertop.sources.secret import Lent, Secret, SecretError

WORD = "Möwe:7 and a blank"


def written(folder: Path, mode: int = 0o600, text: str = f"{WORD}\n") -> Path:
    path = folder / "password"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CT_TEST_SECRET", WORD)
    found = Secret.from_spec("env:CT_TEST_SECRET")
    found.check()
    assert found.reveal() == WORD
    monkeypatch.delenv("CT_TEST_SECRET")
    for call in (found.check, found.reveal):
        with pytest.raises(SecretError, match="the environment has no CT_TEST_SECRET"):
            call()


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_own_file(tmp_path: Path, mode: int) -> None:
    found = Secret.from_spec(f"file:{written(tmp_path, mode)}")
    found.check()
    assert found.reveal() == WORD


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o620, 0o601, 0o777])
def test_file_that_others_reach_is_refused_in_one_sentence(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, mode)
    for call in (Secret.from_spec(f"file:{path}").check, Secret.from_spec(f"file:{path}").reveal):
        with pytest.raises(SecretError) as refused:
            call()
        said = str(refused.value)
        assert str(path) in said
        assert f"{mode:04o}" in said
        assert "0600" in said
        assert "\n" not in said
        assert WORD not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_somebody_elses_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    os.chown(path, 12345, 12345)
    with pytest.raises(SecretError, match="belongs to user id 12345"):
        Secret.from_spec(f"file:{path}").reveal()


def test_what_is_no_secret_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for place, said in ((tmp_path, "not a regular file"), (pipe, "not a regular file"),
                        (tmp_path / "none", "No such file"), ("/dev/zero", "not a regular file")):
        with pytest.raises(SecretError, match=said):
            Secret.from_spec(f"file:{place}").reveal()


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    path = written(tmp_path, 0o644)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(SecretError, match="0644"):
        Secret.from_spec(f"file:{link}").reveal()
    path.chmod(stat.S_IRUSR)
    assert Secret.from_spec(f"file:{link}").reveal() == WORD


@pytest.mark.parametrize(("text", "said"), [
    ("", "is empty"), ("\n", "is empty"), ("one\ntwo\n", "more than one line"), ("a\x1bb", "control characters"),
    ("x" * 5000, "longer than"),
])
def test_contents_that_are_no_secret(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SecretError, match=said) as refused:
        Secret.from_spec(f"file:{written(tmp_path, text=text)}").reveal()
    assert "xxx" not in str(refused.value)
    assert "two" not in str(refused.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(b"\xff\xfesecret")
    with pytest.raises(SecretError, match="not UTF-8") as refused:
        Secret.from_spec(f"file:{path}").reveal()
    assert "secret\"" not in "".join(traceback.format_exception(refused.value))


def test_command_runs_without_a_shell(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = Secret.from_spec(f"command:printf '%s\\n' '$HOME; touch {mark}'")
    assert found.reveal() == f"$HOME; touch {mark}"
    assert not mark.exists()


def test_command_that_fails(tmp_path: Path) -> None:
    for spec, said in (("command:false", "exit status 1"), ("command:/no/such/program x", "No such file"),
                       ("command:printf ''", "is empty"), ("command:printf 'a\\nb'", "more than one line")):
        with pytest.raises(SecretError, match=said):
            Secret.from_spec(spec).reveal()


def test_command_that_hangs_is_ended_with_what_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(secret, "COMMAND_SECONDS", 0.3)
    pids = tmp_path / "pids"
    with pytest.raises(SecretError, match=r"no answer within 0\.3 s"):
        Secret.from_spec(f"command:sh -c 'sleep 600 & echo $! > {pids}; exit 0'").reveal()
    with pytest.raises(SecretError, match=r"no answer within 0\.3 s"):
        Secret.from_spec("command:sh -c 'trap \"\" TERM; sleep 600'").reveal()
    child = Path(f"/proc/{pids.read_text().strip()}/stat")
    deadline = time.monotonic() + 60
    with contextlib.suppress(OSError):  # gone
        while child.read_text().rpartition(")")[2].split()[0] != "Z":  # or dead, and waiting for init to take note
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("spec", [WORD, "", "hunter2", "env:", "file: ", "command:", "command:'x", "plain:hunter2", "Env:X",
                                  "file:a\0b"])
def test_a_secret_written_out_is_refused_and_not_repeated(spec: str) -> None:
    with pytest.raises(SecretError) as refused:
        Secret.from_spec(spec)
    assert "hunter2" not in str(refused.value)
    assert WORD not in str(refused.value)


def test_nothing_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CT_TEST_SECRET", WORD)
    found = Secret.from_spec("env:CT_TEST_SECRET")
    hidden = Secret.from_spec(f"command:echo {WORD.replace(' ', '')}")
    assert found.reveal() == WORD
    for each in (found, hidden):
        for text in (repr(each), str(each), f"{each}", each.source):
            assert WORD not in text
            assert WORD.replace(" ", "") not in text
        assert not hasattr(each, "__dict__")
        for copying in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="not pickled"):
                copying(each)


async def test_a_command_is_not_run_for_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "ask"
    script.write_text(f"#!/bin/sh\necho x >> {tmp_path}/runs\necho '{WORD}'\n")
    script.chmod(0o700)
    lent = Lent(Secret.from_spec(f"command:{script}"))

    def runs() -> int:
        return (tmp_path / "runs").read_text().count("x")

    assert [await lent.reveal() for _ in range(4)] == [WORD] * 4
    assert runs() == 1
    lent.forget()
    assert await lent.reveal() == WORD
    assert runs() == 2
    monkeypatch.setattr(secret, "HELD_SECONDS", -1.0)
    lent.forget()
    await lent.reveal()
    await lent.reveal()
    assert runs() == 4
    assert WORD not in repr(lent)
    assert not hasattr(lent, "__dict__")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(lent)
