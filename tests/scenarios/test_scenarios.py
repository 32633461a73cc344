"""Every scenario file: what its readings bring about is exactly what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustertop.cli import main
from clustertop.rules.spec import builtin
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


class TestAllRules:
    def test_every_rule_is_raised_and_cleared_with_each_of_its_severities(self) -> None:
        told = {tuple(text.split()[1:4]) for file in FILES for text in load(file).expect}
        for name, rule in builtin().items():
            mine = {(kind, severity) for kind, of, severity in told if of == name}
            kinds = {kind for kind, _ in mine}
            # An early sign may end as part of the fault that it became.
            assert kinds & {"raised", "worsened"}, f"no scenario raises {name}"
            assert "cleared" in kinds, f"no scenario clears {name}"
            said = {severity for kind, severity in mine if kind in {"raised", "worsened", "eased"}}
            assert {severity.name.lower() for severity, _ in rule.levels()} <= said, name

    @pytest.mark.parametrize("what", ["restart = true", "boot = ", "paused = ", "silence = ", "ack = ", "dismiss = ",
                                      "still = ", "silent = true", 'link = "unreachable"', "st = \"error\"",
                                      "st = \"hung\"", '"!'])
    def test_every_thing_that_happens_is_in_one_of_them(self, what: str) -> None:
        assert any(what in file.read_text(encoding="utf-8") for file in FILES)

    def test_they_are_commented_and_short(self) -> None:
        for file in FILES:
            assert len(load(file).about) > 20, file.name
            assert len(file.read_text(encoding="utf-8").splitlines()) < 70, file.name


def test_an_operator_can_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--events", str(HERE / "group_rack.toml")]) == 0
    said = capsys.readouterr().out
    assert "4 of 4 nodes unreachable: n[1-4]" in said
    assert "rack r1" in said
