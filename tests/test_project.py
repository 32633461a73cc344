"""What is shipped, and what the README and the help promise."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from clustertop import __version__, cli

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_holds_code_rules_probe_and_themes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True)
    wheel = next(tmp_path.glob("*.whl"))
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {f"clustertop/{path.relative_to(ROOT / 'src/clustertop')}"
               for path in (ROOT / "src/clustertop").rglob("*")
               if path.is_file() and "__pycache__" not in path.parts}
    themes = {f"clustertop/themes/{path.name}" for path in (ROOT / "themes").glob("*.toml")}
    assert themes
    assert sources | themes <= names


def test_every_dependency_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    lines = [line for line in block.group(1).splitlines() if line.strip()]
    assert len(lines) == len(tomllib.loads(text)["project"]["dependencies"])
    assert all(re.search(r"#\s+\S", line) for line in lines)


def test_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__


@pytest.mark.parametrize("command", [None, *cli.COMMANDS])
def test_every_command_has_help(command: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parser(command).parse_args(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: clustertop")
    assert ("commands:" in said) == (command is None)


def test_readme_names_every_command_and_only_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"clustertop {name}" in text for name in cli.COMMANDS)
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
    assert "python3 dev.py demo" in text
    assert "python3 dev.py test" in text


def test_wrong_argument_is_one_sentence_and_status_3(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parser("once").parse_args(["--no-such-option"])
    assert ended.value.code == 3
    assert "clustertop once: unrecognized arguments: --no-such-option" in capsys.readouterr().err


def test_no_machine_of_ours_is_named() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout; run the tests from a clone")
    bad = re.compile(r"/(?:work|home|root)/(?:main|venv|shared|\.pyenv)")
    found = [name for name in tracked.stdout.split() if (ROOT / name).is_file()
             and bad.search((ROOT / name).read_text(encoding="utf-8", errors="ignore"))
             and name != "tests/test_project.py"]
    assert found == []
