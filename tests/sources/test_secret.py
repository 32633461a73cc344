"""Secrets come from the environment, a private file or a command, and show nowhere."""

from __future__ import annotations

import copy
import logging
import pickle
import sys
import traceback
from typing import TYPE_CHECKING

import pytest

from clustertop.sources import secret
from clustertop.sources.secret import Secret, SecretError

if TYPE_CHECKING:
    from pathlib import Path

WORD = "tr0ub4dor"


def test_the_three_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", WORD)
    file = tmp_path / "key"
    file.write_text(f"{WORD}\nsecond line\n")
    file.chmod(0o600)
    for spec in ("env:LAB_KEY", f"file:{file}", f"command:{sys.executable} -c \"print('{WORD}')\""):
        assert Secret.from_spec(spec).reveal() == WORD


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o604, 0o666])
def test_a_file_that_others_can_read_or_write_is_refused(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(WORD)
    file.chmod(mode)
    with pytest.raises(SecretError, match="chmod 600") as error:
        Secret.from_spec(f"file:{file}")
    assert WORD not in str(error.value)


@pytest.mark.parametrize(("spec", "said"), [
    ("env:NO_SUCH_NAME", "the environment has no NO_SUCH_NAME"), ("file:/nowhere/key", "No such file"),
    ("file:/dev/zero", "not a regular file"), ("command:/bin/false", "status 1"), ("command:no-such-tool", "No such file"),
    ("command:'", "open quote"), ("command:   ", "empty"), ("command:true", "is empty"),
    (WORD, "never as itself"), (f"plain:{WORD}", "never as itself"), ("env:", "never as itself"), ("", "never as itself")])
def test_what_cannot_be_had_is_one_sentence(spec: str, said: str) -> None:
    with pytest.raises(SecretError, match=said) as error:
        Secret.from_spec(spec)
    assert WORD not in "".join(traceback.format_exception(error.value))


def test_a_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "COMMAND_SECONDS", 0.1)
    with pytest.raises(SecretError, match="gave no secret"):
        Secret.from_spec("command:sleep 5")


def test_a_command_is_no_shell_line(tmp_path: Path) -> None:
    Secret.from_spec(f"command:echo {WORD} ; touch {tmp_path}/made $(touch {tmp_path}/made)")
    assert not (tmp_path / "made").exists()


def test_it_shows_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    one = Secret(WORD, "env LAB_KEY")
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("x").warning("%s %r %s", one, one, [one])
    assert WORD not in caplog.text + repr(one) + str(one) + f"{one} {one!r} {one:>20}" + repr({"a": (one,)})
    with pytest.raises(TypeError):
        pickle.dumps(one)
    with pytest.raises(TypeError):
        copy.copy(one)
    assert one == Secret(WORD)
    assert one != WORD
