"""Configuration files: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from clustertop.config import NAMED, SECTIONS, Config, ConfigError, Expect, Loaded, default_path, load
from clustertop.config_read import dotted, key_lines, parent
from clustertop.config_text import as_json, reference, settings, show, template
from clustertop.rules.spec import builtin

ROOT = Path(__file__).parents[2]
H8 = ROOT.parent / "shared" / "cases" / "H8"


def write(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str, **options: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text), environ={}, **options)
    return caught.value


def clustertop(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clustertop.cli", *args],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.mark.parametrize(
    ("text", "key", "line", "says"),
    [
        ("[poll]\nintervall_s = 10", "poll.intervall_s", 2, "did you mean interval_seconds?"),
        ("[polls]\n", "polls", 1, "did you mean poll?"),
        ("poll = 3", "poll", 1, "must be a table, headed [poll], not 3"),
        (
            '[poll]\n\ninterval_seconds = "80%"',
            "poll.interval_seconds",
            3,
            'must be a number, not the text "80%"',
        ),
        ("[poll]\ninterval_seconds = -1", "poll.interval_seconds", 2, "must be at least 0.1, not -1"),
        ("[poll]\ninterval_seconds = 9999", "poll.interval_seconds", 2, "must be at most 3600, not 9999"),
        ("[poll]\ninterval_seconds = 0.5", "poll.interval_seconds", 2, "unsafe = true"),
        ("[poll]\ninterval_seconds = nan", "poll.interval_seconds", 2, "must be a finite number"),
        ("[poll]\ninterval_seconds = inf", "poll.interval_seconds", 2, "must be a finite number"),
        ("[poll]\nunsafe = 1", "poll.unsafe", 2, "must be true or false, not 1"),
        ("[poll]\nlate_intervals = 9.0", "poll.stale_intervals", 1, "must be more than late_intervals (9)"),
        ("[poll]\nunsafe = true\nunsafe = false", "poll.unsafe", 3, "given twice, first in line 2"),
        ("[poll]\nunsafe =", "poll.unsafe", 2, "is not TOML"),
        ("[ssh]\nport = 70000", "ssh.port", 2, "must be at most 65535, not 70000"),
        ("[ssh]\nport = 22.5", "ssh.port", 2, "must be a whole number, not 22.5"),
        (
            '[ssh]\nidentity_files = [\n "a", # "\n 3]',
            "ssh.identity_files",
            2,
            "must be text in quotes, not 3",
        ),
        ('[ssh]\nknown_hosts = "absent"', "ssh.known_hosts", 2, "where there is no file"),
        ("[racks]\nr1 = 3", "racks.r1", 2, "must be text in quotes"),
        ('x = """\n[poll]\n"""\n', "x", 1, "is not a section"),
        ("[expect]\ngpus = 8", "expect", 1, "each headed [[expect]]"),
        ("[[expect]]\ngpus = 8\n[[expect]]\nwidht = 8", "expect[1].widht", 4, "did you mean width?"),
        ("[[expect]]\ngpus = 8\n[[expect]]\nwidth = 8", "expect[1].device", 3, "is missing beside width"),
        ('[[expect]]\ndevice = "gpus"\nwidth = 16', "expect[0].device", 2, "did you mean gpu?"),
        (
            '[[expect]]\ndevice = "gpu"\nwidth = 7',
            "expect[0].width",
            3,
            "must be 1, 2, 4, 8, 12, 16 or 32 lanes",
        ),
        ('[[expect]]\nnodes = "a"\ngroup = "b"\ngpus = 8', "expect[0].group", 3, "cannot stand beside nodes"),
        ('[[expect]]\nnodes = "a"', "expect[0]", 1, "expects nothing"),
        ("[rules.gpu_temperatur]\nwarning = 1", "rules.gpu_temperatur", 1, "did you mean gpu_temperature?"),
        ('[rules.gpu_temperature]\nlimit = "80%"', "rules.gpu_temperature.limit", 2, "is not a setting"),
        ('[rules.gpu_temperature]\nwarning = "80%"', "rules.gpu_temperature.warning", 2, "must be a number"),
        (
            "[rules.gpu_temperature]\nfor_seconds = -1",
            "rules.gpu_temperature.for_seconds",
            2,
            "must be 0 or more",
        ),
        ('[host."gpu[001-004]"]\nprt = 1', 'host."gpu[001-004]".prt', 2, "did you mean port?"),
        ("host.a.prt = 3", "host.a.prt", 1, "did you mean port?"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_place(tmp_path: Path, text: str, key: str, line: int, says: str) -> None:
    error = refusal(tmp_path, text, known_rules=builtin())
    assert (error.key, error.line, error.file) == (key, line, str(tmp_path / "config.toml"))
    assert says in error.message
    assert str(error) == f"{error.file}, line {line}: {key} {error.message}"
    assert "\n" not in str(error)


def test_what_is_no_config_at_all(tmp_path: Path) -> None:
    for content, line, says in ((b"[poll]\n\xff = 1", 2, "UTF-8"), (b"#" * (5 << 20), 0, "larger than")):
        path = tmp_path / "bytes.toml"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=says) as caught:
            load(path)
        assert caught.value.line == line
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    assert "nested too deeply" in str(refusal(tmp_path, "a = " + "[" * 20000))


def test_hostile_text_is_cleaned_in_the_sentence(tmp_path: Path) -> None:
    error = refusal(tmp_path, '[poll]\ninterval_seconds = "\\u001b[31m\\u202e"')
    assert str(error).isprintable()


@pytest.mark.skipif(not H8.is_dir(), reason="the field's cases are not beside this checkout")
def test_field_case_h8() -> None:
    for name, expected in json.loads((H8 / "expect.json").read_text()).items():
        if not isinstance(expected, dict):
            continue
        with pytest.raises(ConfigError) as caught:
            load(H8 / f"{name}.toml", known_rules=builtin())
        assert caught.value.key == expected["key"]
        assert caught.value.line == 2
        done = clustertop("config", "check", str(H8 / f"{name}.toml"))
        assert (done.returncode, done.stdout) == (3, "")
        assert expected["key"] in done.stderr


def test_only_a_missing_default_file_gives_the_defaults(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert default_path(environ) == (tmp_path / "clustertop" / "config.toml", False)
    loaded = load(environ=environ)
    assert (loaded.config, loaded.path) == (Config(), None)
    with pytest.raises(ConfigError, match="no such file"):
        load(environ={"CLUSTERTOP_CONFIG": str(tmp_path / "absent.toml")})


def test_where_each_value_came_from(tmp_path: Path) -> None:
    path = write(tmp_path, '[poll]\ninterval_seconds = 3\n[console]\ntheme = "a"\nascii = true\n')
    loaded = load(path, overrides={"poll.pcie_interval_seconds": 30.0}, environ={"CLUSTERTOP_THEME": "b"})
    assert loaded.config.poll.interval_seconds == 3.0
    assert loaded.config.console.theme == "b"
    origins = {
        "poll.interval_seconds": f"{path}:2",
        "poll.pcie_interval_seconds": "command line",
        "console.theme": "environment CLUSTERTOP_THEME",
        "console.ascii": f"{path}:5",
        "console.mouse": "default",
    }
    assert {key: loaded.origin(key) for key in origins} == origins
    values = json.loads(as_json(loaded))["values"]
    assert {key: values[key]["origin"] for key in origins} == origins
    with pytest.raises(ConfigError, match=r"command line: poll\.interval_seconds must be") as caught:
        load(path, overrides={"poll.interval_seconds": 0.01}, environ={})
    assert caught.value.line == 0


FULL = """
[poll]
interval_seconds = 1.5
[racks]
r1 = "gpu[001-002]"
[groups]
"odd name" = "gpu001"
[host."gpu[001-002]"]
port = 2222
[[expect]]
gpus = 8
[[expect]]
nodes = "gpu001"
device = "gpu"
width = 16
[rules.pcie_width]
enabled = false
hint = 'quote " backslash \\ bell'
groups = ["odd name"]
"""


def test_what_show_prints_loads_to_the_same(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, FULL), environ={})
    again = load(write(tmp_path, show(loaded)), environ={})
    assert again.config == loaded.config
    assert again.config.expect[1] == Expect(nodes="gpu001", device="gpu", width=16)


def test_the_template_loads_and_equals_the_defaults(tmp_path: Path) -> None:
    text = template()
    assert load(write(tmp_path, text), environ={}).config == Config()
    sections, named = text.split("\n# Racks", 1)
    assert "[expect" not in sections
    written = re.sub(r"^# (\w+ = )", r"\1", sections, flags=re.MULTILINE)
    assert len(tomllib.loads(written)["ssh"]) == len(SECTIONS["ssh"].__struct_fields__)
    loaded = load(write(tmp_path, written), environ={})
    assert loaded.config == Config()
    assert loaded.origin("poll.interval_seconds") != "default"
    # The examples are right as well: each but the one that stands instead of another.
    examples = re.sub(r"^# (\w+ = |\[)", r"\1", named, flags=re.MULTILINE).replace('group = "a100"', "")
    full = load(write(tmp_path, "# Racks" + examples), known_rules=builtin(), environ={}).config
    assert full.rules
    assert full.expect[0].gpus == 8
    assert full.host["gpu001"].port == 2222


def test_every_key_is_documented_and_every_documented_key_exists() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert reference() in text, "write the output of clustertop.config_text.reference() into docs/configuration.md"
    sections = set(re.findall(r"^### `\[+([a-z]+)", text, flags=re.MULTILINE))
    assert sections == set(Config.__struct_fields__)
    for struct in (*SECTIONS.values(), Expect, NAMED["host"], NAMED["rules"]):
        assert all(one.description for one in settings(struct))


def test_lines_of_keys() -> None:
    text = (
        'a.b = 1\n[t]\n"x y" = """\nk = 1\n"""\nl = [ # ]\n "a]",\n]\nm = \'\'\'\nz=\'\'\'\n'
        "[[n.e]]\nq = {\n}\n[[n.e]]\nq = 2\n"
    )
    assert dict(key_lines(text)) == {
        "a.b": 1,
        "t": 2,
        't."x y"': 3,
        "t.l": 6,
        "t.m": 9,
        "n.e[0]": 11,
        "n.e[0].q": 12,
        "n.e[1]": 14,
        "n.e[1].q": 15,
    }
    assert parent('host."gpu[1-2]".port') == 'host."gpu[1-2]"'
    assert parent("expect[1].width") == "expect[1]"
    assert parent("poll") == ""
    assert dotted("host", 'a"b') == 'host."a\\"b"'


def test_the_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Config().poll.interval_seconds = 1.0
    assert all(issubclass(struct, msgspec.Struct) for struct in SECTIONS.values())
    assert Loaded().origin("poll.interval_seconds") == "default"


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "clustertop" / "config.toml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "deep"), "CLUSTERTOP_CONFIG": ""}
    for action in ((), ("init",), ("check",), ("show",)):
        done = clustertop("config", *action, "--help", **environ)
        assert done.returncode == 0
        assert "usage: clustertop config" in done.stdout
    assert clustertop("config", "init", "-o", "-", **environ).stdout == template()
    assert clustertop("config", "check", **environ).stdout.startswith("ok: no config file")
    assert clustertop("config", "init", **environ).stdout == f"wrote {path}\n"
    again = clustertop("config", "init", **environ)
    assert again.returncode == 3
    assert "exists and is left as it is" in again.stderr
    assert path.read_text("utf-8") == template()
    assert clustertop("config", "check", **environ).stdout.startswith(f"ok: {path}, no nodes")
    path.write_text('[racks]\nr1 = "gpu[001-004]"\nr2 = "gpu[005-008]"\n[inventory]\nnodes = "gpu[001-007]"\n')
    done = clustertop("config", "check", "-c", str(path), **environ)
    assert done.stdout == f"ok: {path}, 7 nodes in 2 racks\n"
    assert done.stderr == "warning: racks.r2 has nodes that are not in the inventory: gpu008\n"
    shown = clustertop("config", "show", **environ).stdout
    assert f'r1 = "gpu[001-004]"  # {path}:2' in shown
    assert json.loads(clustertop("config", "show", "--json", **environ).stdout)["file"] == str(path)


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ('[racks]\nr1 = "a[1-3]"\nr2 = "a[3-4]"', "racks.r2", "has a3, which is in r1 as well"),
        ('[racks]\nr1 = "a1"\n[groups]\nr1 = "a1"', "racks.r1", "shares its name with groups.r1"),
        ('[racks]\nr1 = "a[3-1]"', "racks.r1", "write the lower number first"),
        ('[inventory]\nnodes = "@gpus"\n[groups]\ngpu = "a1"', "inventory.nodes", "did you mean gpu?"),
        ('[groups]\nx = "@y"\ny = "@x"', "groups.x", "contains itself (@x → @y → @x)"),
        (
            '[inventory]\nnodes = "a1"\n[rules.pcie_width]\ngroups = ["b"]',
            "rules.pcie_width.groups", "not in the config",
        ),
        (
            '[inventory]\nnodes = "a1"\ndefault_group = "b"\n[groups]\nb = "c"',
            "inventory.default_group", "has no node",
        ),
        ('[inventory]\nhosts_file = "absent.txt"', "inventory.hosts_file", "where there is no file"),
    ],
)  # fmt: skip
def test_check_finds_what_only_the_whole_shows(tmp_path: Path, text: str, key: str, says: str) -> None:
    done = clustertop("config", "check", str(write(tmp_path, text)))
    assert (done.returncode, done.stdout) == (3, "")
    assert f": {key} " in done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("said", "shown"), [
    ("https://hooks.example/T0/s3cret?token=s3cret", "https://hooks.example/..."),
    ("https://me:s3cret@hooks.example:8443?s3cret", "https://hooks.example:8443/..."),
    ("env:HOOK", "env:HOOK"),
])
def test_a_web_hooks_token_is_not_shown(tmp_path: Path, said: str, shown: str) -> None:
    (tmp_path / "c.toml").write_text(f'[notify]\nwebhook = "{said}"\n', encoding="utf-8")
    loaded = load(tmp_path / "c.toml")
    assert f'webhook = "{shown}"' in show(loaded)
    assert json.loads(as_json(loaded))["values"]["notify.webhook"]["value"] == shown
    assert "s3cret" not in show(loaded) + as_json(loaded)


@pytest.mark.parametrize(("text", "key"), [
    ('[racks]\n"r\\u001b[31m1" = "gpu1"\n', 'racks."r[31m1"'),
    ('[groups]\ng = "gpu\\u009b1"\n', "groups.g"),
    ('[rules.gpu_ecc]\ntitle = "a\\u202eb"\n', "rules.gpu_ecc.title"),
    ('[nccl]\nlogs = ["/a", "/b\\u0007"]\n', "nccl.logs"),
])
def test_what_a_terminal_would_take_as_an_order_is_refused(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=r"holds the control character U\+[0-9A-F]{4}, which no terminal") as error:
        load(write(tmp_path, text))
    assert error.value.key == key
    load(write(tmp_path, '[rules.gpu_ecc]\ntitle = "\u26a0\ufe0f m\u00fcde\\n\\ttwo"\n'))


@pytest.mark.parametrize(("text", "words"), [
    ('[poll]\n[[notify.hook]]\ncommand = "x"\n', "line 2: notify.hook must be text in quotes"),
    ('[poll]\n[expect."@r1"]\ngpus = 8\n', "line 2: expect must be a list of tables"),
])
def test_what_has_a_line_only_below_it_is_told_with_that(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(write(tmp_path, text))
