"""Rules in the configuration: what is changed and added, where it came from, and what is refused in one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from clustertop.config import Alerts, ConfigError, load
from clustertop.config_text import as_json, show
from clustertop.inventory import resolve
from clustertop.model import NodeInfo, Severity
from clustertop.rules import listing
from clustertop.rules.configured import InForce, in_force, scoped
from clustertop.rules.spec import Clear, Kind, Level, Rule, Together, builtin
from clustertop.settings import expect_width
from clustertop.store.catalogue import SPECS
from configs import clustertop, write
from nodes import Fleet, gpus


def rules(folder: Path, text: str) -> InForce:
    """The rules in force with *text* as the configuration."""
    return in_force(load(write(folder, text), environ={}))


OWN = '[rules.mine]\ntable = "gpu"\nmetric = "temperature_celsius"\n'


@pytest.mark.parametrize(("text", "key", "line", "says"), [
    # unknown words, with the nearest right one
    ("[rules.gpu_temprature]\nwarning = 1", "rules.gpu_temprature", 1, "did you mean gpu_temperature?"),
    ("[rules.my_own]\ncritical = 1", "rules.my_own", 1, "`clustertop rules` lists those that ship"),
    ("[rules.pcie_width]\nfor_second = 1", "rules.pcie_width.for_second", 2, "did you mean for_seconds?"),
    ("[rules.gpu_ecc]\ncritical = { limt = 1 }", "rules.gpu_ecc.critical.limt", 2, "did you mean limit?"),
    ("[rules.gpu_ecc.clear]\npoll = 1", "rules.gpu_ecc.clear.poll", 2, "did you mean polls?"),
    ("[rules.gpu_ecc]\ntogether = { shares = 1 }", "rules.gpu_ecc.together.shares", 2, "did you mean share?"),
    ('[rules.mine]\ntable = "gpus"\nmetric = "x"\nwarning = 1', "rules.mine.table", 2, "did you mean gpu?"),
    ('[rules.mine]\ntable = "gpu"\nmetric = "temperatur_celsius"\nwarning = 1', "rules.mine.metric", 3,
     "did you mean temperature_celsius?"),
    ('[rules.mine]\ntable = "gpu"\nmetric = "load1"\nwarning = 1', "rules.mine.metric", 3, "table node has it"),
    ('[rules.gpu_ecc]\nop = "=>"', "rules.gpu_ecc.op", 2, 'must be ">", ">=", "<" or "<="'),
    (OWN + 'kind = "trends"\nwarning = 1', "rules.mine.kind", 4, "did you mean trend?"),
    (OWN + 'kind = "peers"\npeers = "racks"\nwarning = 1', "rules.mine.peers", 5, "did you mean rack?"),
    ('[rules.gpu_ecc]\nfollows = ["gpu_xids"]', "rules.gpu_ecc.follows", 2, "did you mean gpu_xid?"),
    ('[rules.gpu_ecc]\ncovers = "rack"', "rules.gpu_ecc.covers", 2, 'must be "thing", "node" or "feed"'),
    # wrong types
    ('[rules.gpu_temperature]\nwarning = "80%"', "rules.gpu_temperature.warning", 2, "must be a number or a table"),
    ('[rules.gpu_temperature]\nwarning = { limit = "80%" }', "rules.gpu_temperature.warning.limit", 2,
     'must be a number, not the text "80%"'),
    ("[rules.gpu_temperature]\nwarning = nan", "rules.gpu_temperature.warning", 2, "must be a finite number"),
    ("[rules.gpu_temperature]\nwarning = { limit = inf }", "rules.gpu_temperature.warning.limit", 2, "finite"),
    ("[rules.gpu_temperature]\nfor_polls = 1.5", "rules.gpu_temperature.for_polls", 2, "must be a whole number"),
    ('[rules.gpu_temperature]\ngroups = "a100"', "rules.gpu_temperature.groups", 2, "must be a list"),
    ("[rules.gpu_temperature]\nenabled = 0", "rules.gpu_temperature.enabled", 2, "must be true or false"),
    # impossible limits
    ("[rules.gpu_utilization]\nwarning = 75", "rules.gpu_utilization.warning", 2, "is at most 1"),
    (OWN + "warning = 80\ncritical = 70", "rules.mine.critical", 5, "is milder (70) than warning (80)"),
    ("[rules.gpu_temperature]\ncritical = 6", "rules.gpu_temperature.critical", 2, "it must be below it"),
    ("[rules.gpu_temperature]\nwarning = -1", "rules.gpu_temperature.warning", 2,
     "does not fit the built-in critical, which is milder (0) than warning (-1)"),
    ("[rules.gpu_temperature]\nwarning = 10", "rules.gpu_temperature.warning", 2, "write clear as well"),
    ("[rules.gpu_temperature]\nclear = 3", "rules.gpu_temperature.clear", 2, "wrong side of warning (5)"),
    (OWN + "warning = 80\nclear = { limit = 81 }", "rules.mine.clear", 5, "it must be below it"),
    (OWN + "warning = 900", "rules.mine.warning", 4, "temperature_celsius is -30 to 150 (°C)"),
    (OWN + "warning = 150", "rules.mine.warning", 4, "can never be passed"),
    (OWN + "warning = { for_seconds = 5 }", "rules.mine.warning", 4, "has no limit"),
    (OWN + "info = 1\nwarning = { limit = 80, for_seconds = -5 }", "rules.mine.warning.for_seconds", 5, "0 or more"),
    (OWN + "warning = 80\nfor_seconds = -5", "rules.mine.for_seconds", 5, "must be 0 or more"),
    (OWN + "warning = 80\nfor_polls = 0", "rules.mine.for_polls", 5, "must be from 1 to"),
    (OWN + "warning = 80\ngather_seconds = -1", "rules.mine.gather_seconds", 5, "must be 0 or more"),
    ("[rules.gpu_ecc]\nclear = { polls = 0 }", "rules.gpu_ecc.clear.polls", 2, "must be from 1 to"),
    ("[rules.gpu_ecc]\ntogether = { share = 1.5 }", "rules.gpu_ecc.together.share", 2, "must be from 0 to 1"),
    ("[rules.gpu_ecc]\ntogether = { least = 0 }", "rules.gpu_ecc.together.least", 2, "must be from 1 to"),
    ('[rules.gpu_row_remap_pending]\nfollows = ["gpu_row_remap_failed"]', "rules.gpu_row_remap_pending.follows", 2,
     "goes in a circle (gpu_row_remap_pending → gpu_row_remap_failed → gpu_row_remap_pending)"),
    ('[rules.gpu_ecc]\nfollows = ["gpu_ecc"]', "rules.gpu_ecc.follows", 2, "goes in a circle"),
    # a rule of one's own is whole
    (OWN, "rules.mine", 1, "give at least one of info, warning, critical"),
    ('[rules.mine]\ntable = "gpu"\nwarning = 1', "rules.mine", 1, "has no metric"),
    # kinds and their fields
    (OWN + 'kind = "increase"\nwarning = 1', "rules.mine.window_seconds", 1, "is missing"),
    (OWN + 'kind = "increase"\nwindow_seconds = 1\nwarning = 1', "rules.mine.window_seconds", 5, "must be from 10"),
    (OWN + 'kind = "peers"\nwarning = 1', "rules.mine.peers", 1, "is missing"),
    (OWN + 'kind = "trend"\nop = "<"\nwarning = 60', "rules.mine.reach", 1, "is missing"),
    (OWN + 'kind = "trend"\nreach = 90\nwarning = 60', "rules.mine.op", 1, 'must be "<" or "<="'),
    (OWN + 'kind = "trend"\nop = "<"\nreach = 900\nwarning = 60', "rules.mine.reach", 6, "that temperature_celsius can"),
    ('[rules.mine]\ntable = "gpu"\nmetric = "fan_ratio"\nkind = "trend"\nop = "<"\nreach = 0.9\nwarning = 60',
     "rules.mine.metric", 3, "has no kept past"),
    (OWN + 'kind = "absence"\nop = "<"\nwarning = 1', "rules.mine.op", 5, 'must be ">" or ">="'),
    (OWN + "reach = 5\nwarning = 1", "rules.mine.reach", 4, 'write kind = "trend", or leave it out'),
    (OWN + 'kind = "absence"\nalso = ["power"]\nwarning = 0', "rules.mine.also", 5, "table gpu has no column 'power'"),
    # scopes of nothing, and names given twice
    ("[rules.gpu_ecc]\ngroups = []", "rules.gpu_ecc.groups", 2, "would be for nothing"),
    ("[rules.gpu_ecc]\nmodels = []", "rules.gpu_ecc.models", 2, "would be for nothing"),
    ('[rules.gpu_ecc]\nnodes = ""', "rules.gpu_ecc.nodes", 2, "would be for nothing"),
    ('[rules.gpu_ecc]\ngroups = ["a", "a"]', "rules.gpu_ecc.groups", 2, "has 'a' twice"),
    ("[rules.gpu_ecc]\ncritical = 1\ncritical = 2", "rules.gpu_ecc.critical", 3, "given twice, first in line 2"),
    ("[rules.gpu_ecc]\n[rules.gpu_ecc]\n", "rules.gpu_ecc", 2, "given twice, first in line 1"),
    # how alerts behave
    ("[alerts]\nsettle_second = 1", "alerts.settle_second", 2, "did you mean settle_seconds?"),
    ("[alerts]\nsettle_seconds = -1", "alerts.settle_seconds", 2, "must be at least 0"),
])
def test_H8_what_makes_no_sense_is_refused_in_one_sentence(  # noqa: N802
    tmp_path: Path, text: str, key: str, line: int, says: str
) -> None:
    """H8: a typing error stops the start, with file, line, key and what would be right."""
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), known_rules=builtin(), environ={})
    error = caught.value
    assert (error.key, error.line, error.file) == (key, line, str(tmp_path / "config.toml"))
    assert says in error.message
    assert "\n" not in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(("text", "key", "says"), [
    ('[inventory]\nnodes = "a1"\n[rules.gpu_ecc]\ngroups = ["b"]', "rules.gpu_ecc.groups", "not in the config"),
    ('[groups]\nb = "c1"\n[inventory]\nnodes = "a1"\n[rules.gpu_ecc]\ngroups = ["b"]', "rules.gpu_ecc.groups",
     "names no node of the inventory"),
    ('[inventory]\nnodes = "a1"\n[rules.gpu_ecc]\nnodes = "a2"', "rules.gpu_ecc.nodes", "no node of the inventory"),
    ('[inventory]\nnodes = "a1"\n[rules.gpu_ecc]\nnodes = "a[2-1]"', "rules.gpu_ecc.nodes", "lower number first"),
    ('[rules.gpu_ecc]\ngroups = ["b"]', "rules.gpu_ecc.groups", "not in the config"),
    (OWN + 'warning = "80%"', "rules.mine.warning", "must be a number"),
])
def test_H8_check_refuses_with_status_3_and_starts_nothing(  # noqa: N802
    tmp_path: Path, text: str, key: str, says: str
) -> None:
    """H8b: a check does the same without starting; H8a: so does a start."""
    path = str(write(tmp_path, text))
    for command in (("config", "check", path), ("once", "-c", path), ("rules", "-c", path)):
        done = clustertop(*command)
        assert (done.returncode, done.stdout) == (3, ""), command
        assert f": {key} " in done.stderr
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


def test_H8_the_demo_refuses_the_same(tmp_path: Path) -> None:  # noqa: N802
    path = str(write(tmp_path, '[rules.gpu_ecc]\ngroups = ["b"]'))
    done = clustertop("demo", "-c", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"clustertop: {path}, line 2: rules.gpu_ecc.groups ")


class TestChanges:
    def test_a_number_changes_the_limit_and_a_table_what_it_says(self, tmp_path: Path) -> None:
        made = rules(tmp_path, "[rules.gpu_temperature]\nwarning = 4\ncritical = { limit = -1, for_polls = 5 }\n"
                               "clear = { seconds = 30 }\n")
        rule = made.rules["gpu_temperature"]
        assert rule.warning == Level(4.0, 0.0, 2)
        assert rule.critical == Level(-1.0, 0.0, 5)
        assert rule.clear == Clear(8.0, 30.0, 3)
        path = tmp_path / "config.toml"
        assert {key: made.origin("gpu_temperature", key) for key in (
            "warning.limit", "warning.for_polls", "critical.limit", "critical.for_polls", "clear.limit",
            "clear.seconds", "title")} == {
            "warning.limit": f"{path}:2", "warning.for_polls": "builtin", "critical.limit": f"{path}:3",
            "critical.for_polls": f"{path}:3", "clear.limit": "builtin", "clear.seconds": f"{path}:4",
            "title": "builtin"}

    def test_durations_for_all_levels_leave_those_that_say_their_own(self, tmp_path: Path) -> None:
        made = rules(tmp_path, "[rules.gpu_temperature]\nfor_polls = 4\nfor_seconds = 5\n"
                               "critical = { for_polls = 1 }\n")
        rule = made.rules["gpu_temperature"]
        assert (rule.warning, rule.critical) == (Level(5.0, 5.0, 4), Level(0.0, 5.0, 1))
        assert made.origin("gpu_temperature", "warning.for_polls").endswith(":2")
        assert made.origin("gpu_temperature", "critical.for_polls").endswith(":4")

    def test_tables_of_their_own_say_the_same(self, tmp_path: Path) -> None:
        made = rules(tmp_path, "[rules.gpu_ecc.together]\nshare = 0.2\n\n[rules.gpu_ecc.clear]\npolls = 7\n")
        assert made.rules["gpu_ecc"].together == Together(share=0.2)
        assert made.rules["gpu_ecc"].clear == Clear(polls=7)
        assert made.origin("gpu_ecc", "clear.polls").endswith(":5")

    def test_every_other_field(self, tmp_path: Path) -> None:
        made = rules(tmp_path, '[rules.gpu_ecc]\nenabled = false\ntitle = "t"\nhint = "h"\nlook = "l"\nsource = "s"\n'
                               'covers = "thing"\nfollows = ["gpu_xid"]\ngather_seconds = 3\nsettles = false\n'
                               'models = ["*H100*"]\n')
        assert made.rules["gpu_ecc"] == Rule(
            "t", "gpu", "ecc_uncorrected_total", ">", critical=Level(0.0), clear=Clear(polls=2), hint="h",
            enabled=False, covers="thing", follows=("gpu_xid",), gather_seconds=3.0, settles=False,
            models=("*H100*",), look="l", source="s")
        assert {name for name, rule in made.rules.items() if rule != builtin().get(name)} == {"gpu_ecc"}

    def test_a_rule_of_ones_own(self, tmp_path: Path) -> None:
        made = rules(tmp_path, '[rules.too_hot]\ntable = "gpu"\nmetric = "temperature_celsius"\nwarning = 70\n'
                               "critical = { limit = 80, for_seconds = 5 }\n")
        assert made.rules["too_hot"] == Rule("too_hot", "gpu", "temperature_celsius", ">", warning=Level(70.0),
                                             critical=Level(80.0, 5.0))
        fleet = Fleet(rules={"too_hot": made.rules["too_hot"]})
        for _ in range(8):
            fleet.step(gpu=gpus({"temp": 82}))
        assert [(change.kind, change.severity, change.message) for change in fleet.seen] == [
            ("raised", Severity.WARNING, "too_hot: 82 °C"), ("worsened", Severity.CRITICAL, "too_hot: 82 °C")]

    def test_scopes_by_groups_and_nodes_in_any_notation(self, tmp_path: Path) -> None:
        text = ('[racks]\nr1 = "a[1-4]"\nr2 = "b[1-4]"\n'
                '[rules.gpu_ecc]\ngroups = ["r[1-2]"]\nnodes = "a[2-3],@rack:r2!b4"\n[rules.gpu_xid]\nnodes = "b4"\n')
        loaded = load(write(tmp_path, text), environ={})
        inventory = resolve([], loaded)
        made = scoped(in_force(loaded), inventory.rule_nodes)
        assert made["gpu_ecc"].nodes == ("a2", "a3", "b1", "b2", "b3")
        assert made["gpu_xid"].nodes == ("b4",)
        assert made["gpu_count"].nodes is None
        few = resolve(["a1"], loaded)
        assert scoped(in_force(loaded), few.rule_nodes)["gpu_xid"].nodes == (), "for none of these, not for all"

    def test_the_built_in_rules_make_sense_and_so_do_those_of_the_template(self, tmp_path: Path) -> None:
        assert rules(tmp_path, "").rules == builtin()
        assert rules(tmp_path, "").origins == {}


def test_settling_and_resuming_come_from_the_config(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, "[alerts]\nsettle_seconds = 20\nresume_seconds = 5\n"), environ={})
    alerts = loaded.config.alerts
    made: dict[str, Any] = {"settle_seconds": alerts.settle_seconds, "resume_seconds": alerts.resume_seconds}
    fleet = Fleet(**made)
    fleet.step(gpu=gpus({}))
    fleet.facts[0] = {"boot_id": "b1"}
    fleet.encoders[0] = type(fleet.encoders[0])()
    for _ in range(19):
        fleet.step(gpu=gpus({"temp": 90}))
    assert fleet.seen == []
    for _ in range(3):
        fleet.step(gpu=gpus({"temp": 90}))
    assert fleet.firing == ["gpu_temperature"]
    paused = Fleet(**made)
    paused.step(gpu=gpus({}))
    paused.step(1000, gpu=gpus({"temp": 90}))
    for _ in range(4):
        paused.step(gpu=gpus({"temp": 90}))
    assert paused.seen == []
    paused.step(gpu=gpus({"temp": 90}))
    assert paused.firing == ["gpu_temperature"]


def test_A11_expected_x8_is_recorded_for_a_group_of_nodes(tmp_path: Path) -> None:  # noqa: N802
    """A11a: an operator can record 'expected x8' for a slot or a node model; then 8 is healthy and 4 alerts."""
    text = ('[groups]\nmodel_b = "b[1-4]"\n[inventory]\nnodes = "a1,b[1-4]"\n'
            '[[expect]]\ngroup = "model_b"\ndevice = "gpu"\nwidth = 8\n')
    loaded = load(write(tmp_path, text), environ={})
    inventory = resolve([], loaded)
    for node, width, wanted in (("b1", 8, []), ("b1", 4, ["pcie_width"]), ("a1", 8, ["pcie_width"])):
        fleet = Fleet([NodeInfo(node)], expect_width=expect_width(inventory))
        for _ in range(3):
            fleet.step(gpu=gpus({"pcie_width": width}))
        assert fleet.firing == wanted, (node, width)
    slot = text.replace('group = "model_b"\ndevice = "gpu"', 'nodes = "b1"\ndevice = "0000:10:00.0"')
    inventory = resolve([], load(write(tmp_path, slot), environ={}))
    fleet = Fleet([NodeInfo("b1")], expect_width=expect_width(inventory))
    for _ in range(3):
        fleet.step(gpu=gpus({"pcie_width": 8}, {"pcie_width": 8}))
    assert [alert.thing.label for alert in fleet.alerts] == ["GPU 1 11:00.0"], "the slot is expected so, its neighbour not"


class TestDocs:
    TEXT = (Path(__file__).parents[2] / "docs" / "rules.md").read_text("utf-8")

    def test_every_rule_that_ships_is_documented_as_it_is(self) -> None:
        specs = {spec.name: spec for spec in SPECS}
        assert listing.reference(builtin(), specs) in self.TEXT, (
            "write the output of clustertop.rules.listing.reference() into docs/rules.md")

    def test_the_examples_are_right_and_there_is_one_of_every_kind(self, tmp_path: Path) -> None:
        examples = "\n".join(re.findall(r"```toml\n(.*?)```", self.TEXT, flags=re.DOTALL))
        made = rules(tmp_path, examples).rules
        own = {name: rule for name, rule in made.items() if name not in builtin()}
        assert {rule.kind for rule in own.values()} == set(get_args(Kind))
        assert f"alerts.{next(iter(Alerts.__struct_fields__))}" in self.TEXT


def test_what_show_prints_of_rules_loads_to_the_same(tmp_path: Path) -> None:
    text = (OWN + 'warning = 70\ncritical = { limit = 80, for_seconds = 5 }\nclear = { polls = 3 }\n'
            'together = { share = 0.2 }\nmodels = ["*H100*"]\nnodes = "a[1-2]"\nfollows = ["gpu_xid"]\n'
            "[alerts]\nsettle_seconds = 60\n")
    loaded = load(write(tmp_path, text), environ={})
    printed = show(loaded)
    assert f"critical = {{ limit = 80.0, for_seconds = 5.0 }}  # {tmp_path / 'config.toml'}:5" in printed
    assert f"settle_seconds = 60.0  # {tmp_path / 'config.toml'}:12" in printed
    assert load(write(tmp_path, printed), known_rules=builtin(), environ={}).config == loaded.config
    values = json.loads(as_json(loaded))["values"]
    assert values["rules.mine.critical"]["value"] == {"limit": 80.0, "for_seconds": 5.0}
    assert values["rules.mine.together"]["value"] == {"share": 0.2}


def test_config_check_says_which_rules_differ(tmp_path: Path) -> None:
    path = write(tmp_path, OWN + "warning = 70\n[rules.gpu_ecc]\nenabled = false\n[rules.gpu_xid]\ncritical = 2.5\n")
    done = clustertop("config", "check", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        "rules changed: gpu_xid", "rules added: mine", "rules switched off: gpu_ecc"]
