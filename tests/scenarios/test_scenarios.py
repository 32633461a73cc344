"""Every scenario file: what its readings bring about is exactly what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustertop.cli import main
from clustertop.scenario import ScenarioError, line, load, run

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    made = load(file)
    assert [line(change) for change in run(made)] == list(made.expect)


class TestCommand:
    def test_replay_plays_it_and_agrees(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["replay", "--events", "--json", str(HERE / "gpu_temperature.toml")]) == 0
        said = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
        assert [one["kind"] for one in said] == ["raised", "worsened", "eased", "cleared"]

    def test_what_differs_is_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = (HERE / "gpu_temperature.toml").read_text(encoding="utf-8")
        (tmp_path / "s.toml").write_text(text.replace('"7 raised', '"8 raised'), encoding="utf-8")
        assert main(["replay", "--events", str(tmp_path / "s.toml")]) == 2
        said = capsys.readouterr().err
        assert "missing: 8 raised gpu_temperature warning gpu:n1:GPU-0" in said
        assert "not expected: 7 raised gpu_temperature warning gpu:n1:GPU-0" in said

    @pytest.mark.parametrize(("text", "said"), [
        ("about = 1", "Expected `str`, got `int`"),
        ('about = "x"\nend = 5\nexpect = []\nhave = { wheel = ["a"] }', "no table 'wheel'"),
        ('about = "x"\nend = 5\nexpect = []\nonly = ["gpu_heat"]', "no rule 'gpu_heat'"),
        ('about = "x"\nend = 5\nexpect = []\nnodes = "gpu[1-"', "gpu[1-"),
        ('about = "x"\nend = 0\nexpect = []', "end must be 1 to"),
        ("about", "no scenario"),
    ])
    def test_a_file_that_is_none_is_one_sentence(
        self, tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "s.toml").write_text(text, encoding="utf-8")
        with pytest.raises(ScenarioError, match=r"s\.toml"):
            load(tmp_path / "s.toml")
        assert main(["replay", "--events", str(tmp_path / "s.toml")]) == 3
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
