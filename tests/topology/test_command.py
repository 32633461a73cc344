"""``clustertop topology`` and the config's [topology], as an operator has them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from clustertop import cli
from clustertop.config import ConfigError, load
from clustertop.inventory import resolve
from clustertop.topology_files import fill
from traffic.shared import SAMPLES, needs_shared

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Four nodes; a CSV, Slurm's file and LLDP of one node beside it."""
    (tmp_path / "dc.csv").write_text("node,rack\ng1,r1\ng2,r1\ng3,r2\nold9,r9\n", "utf-8")
    (tmp_path / "topology.conf").write_text("SwitchName=s1 Nodes=g[1-4]\nSwitchName=s2 Nodes=h[1-99999]\n", "utf-8")
    lldp = tmp_path / "lldp"
    lldp.mkdir()
    (lldp / "g4.txt").write_text("Interface:    eth2, via: LLDP\n    SysName:      s7\n    PortID:       ifname e1\n", "utf-8")
    (lldp / ".hidden").write_text("{", "utf-8")
    file = tmp_path / "config.toml"
    file.write_text('[inventory]\nnodes = "g[1-4]"\n[topology]\ncsv = "dc.csv"\nslurm = "topology.conf"\nlldp = "lldp"\n', "utf-8")
    return file


def test_the_map_as_text(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "-c", str(config)]) == 1
    out, err = capsys.readouterr()
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith("g")}
    assert rows["g1"][1:3] == ["r1", "s1"]
    assert rows["g4"][1:3] == ["unknown", "s7"]
    assert "no rack: g4" in out
    assert "in a source, not in the inventory: old9" in out
    assert "3 of 4 nodes have a rack, 4 have a leaf; 2 racks" in out
    assert "guess_racks = true" in out
    assert "10,000" in err  # the list that was refused


def test_the_map_as_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "g1,g4", "-c", str(config), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert list(told["nodes"]) == ["g1", "g4"]
    assert told["nodes"]["g1"]["rack"] == {"value": "r1", "sources": [f"csv {config.parent / 'dc.csv'}, line 2"]}
    assert told["nodes"]["g4"]["rack"] is None
    assert {claim["value"]: claim.get("port") for claim in told["nodes"]["g4"]["leaves"]} == {"s1": None, "s7": "eth2"}
    assert told["unplaced"] == {"rack": ["g4"], "leaf": []}
    assert told["problem"] is None
    assert any("10,000" in note for note in told["notes"])


def test_guesses_are_marked_and_differences_end_with_1(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(config.read_text("utf-8") + "guess_racks = true\n[racks]\nr2 = \"g1\"\n", "utf-8")
    assert cli.main(["topology", "-c", str(config)]) == 1
    out = capsys.readouterr().out
    assert "s1 (guess)" in out
    assert "g1: rack is r2 (inventory); r1 (csv " in out
    assert "r2 holds" in out


def test_all_placed_ends_with_0_unless_something_was_refused(config: Path) -> None:
    assert cli.main(["topology", "g[1-3]", "-c", str(config)]) == 1
    slurm = config.parent / "topology.conf"
    slurm.write_text(slurm.read_text("utf-8").replace("h[1-99999]", "h[1-9]"), "utf-8")
    assert cli.main(["topology", "g[1-3]", "-c", str(config)]) == 0


def test_without_a_map_it_says_what_to_configure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D2 a: unknown, and what would make it known."""
    file = tmp_path / "config.toml"
    file.write_text('[inventory]\nnodes = "g[1-2]"\n', "utf-8")
    assert cli.main(["topology", "-c", str(file)]) == 3
    out = capsys.readouterr().out
    assert "no rack map, so what crosses racks is unknown" in out
    assert "[racks]" in out
    assert "[topology]" in out
    assert cli.main(["topology", "-c", str(file), "--json"]) == 3
    assert "no rack map" in json.loads(capsys.readouterr().out)["problem"]


def test_d1_the_order_of_a_job_is_judged_and_labelled_as_predicted(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D1 a, b: on a host file, with a better order."""
    job = config.parent / "hosts"
    job.write_text("g1 slots=8\ng3.dc.net slots=8\nG2 slots=8\nnew1\n", "utf-8")
    assert cli.main(["topology", "-c", str(config), "--order", str(job)]) == 1
    out = capsys.readouterr().out
    assert "predicted from order: 2 of 2 hops between racks (100%)" in out
    assert "not in the map of racks: new1" in out
    job.write_text("g1\ng3\ng2\n", "utf-8")
    assert cli.main(["topology", "-c", str(config), "--order", str(job), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["predicted_from_order"]
    assert (told["racks"]["crossing"], told["racks"]["placed_hops"]) == (2, 3)
    assert told["racks"]["better"] is None  # three nodes in two racks cannot do better
    assert told["leaves"]["crossing"] == 0
    (config.parent / "dc.csv").write_text("node,rack\ng1,r1\ng2,r1\ng3,r2\ng4,r2\n", "utf-8")
    job.write_text("g1\ng3\ng2\ng4\n", "utf-8")
    assert cli.main(["topology", "-c", str(config), "--order", str(job)]) == 1
    out = capsys.readouterr().out
    assert "predicted from order: 4 of 4 hops between racks (100%)" in out
    assert "a better order has 2: g1,g2,g3,g4" in out


@pytest.mark.parametrize(("text", "words"), [("", "names no host"), ("a b c\n", "line 1 is not a host"), (None, "cannot be read")])
def test_a_host_file_that_is_none_says_so(text: str | None, words: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = config.parent / "hosts"
    if text is not None:
        job.write_text(text, "utf-8")
    assert cli.main(["topology", "-c", str(config), "--order", str(job)]) == 3
    assert words in capsys.readouterr().err


@needs_shared
@pytest.mark.parametrize(("key", "path", "nodes", "status"), [
    ("slurm", "topology/slurm/topology.yaml", 4, 3),
    ("slurm", "topology/slurm/topology-3level.conf", 400, 3),
    ("groups", "topology/hostlist/clustershell-cluster.yaml", 146, 1),
    ("csv", "topology/netbox/demo-v2.11-racks-power.json", 48, 1),
    ("ibnetdiscover", "rdma/ibsim-run/ibnetdiscover.txt", 4, 3),
    ("lldp", "switch/lldp/lldpctl-dpu.json", 1, 3),
])
def test_sample_files_by_their_key(
    key: str, path: str, nodes: int, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[topology]\n{key} = "{SAMPLES / path}"\n', "utf-8")
    assert cli.main(["topology", "-c", str(file), "--json"]) == status
    assert len(json.loads(capsys.readouterr().out)["nodes"]) == nodes


@pytest.mark.parametrize(("line", "words"), [
    ('csv = "none.csv"', "where there is no file"),
    ('csv = "notes.txt"', "no header row"),
    ('ignored_ports = "mgmt0"', "must be a list"),
    ('slurmm = "x"', "did you mean slurm"),
])
def test_a_wrong_setting_stops_the_start_with_its_line(
    line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("just notes\n", "utf-8")
    file = tmp_path / "config.toml"
    file.write_text(f'[inventory]\nnodes = "g1"\n[topology]\n{line}\n', "utf-8")
    for command in (["topology", "-c", str(file)], ["config", "check", str(file)]):
        assert cli.main(command) == 3
        err = capsys.readouterr().err
        assert words in err
        assert f"{file}, line 4: topology." in err


def test_config_check_says_what_the_map_does_not_settle(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "check", str(config)]) == 0
    out, err = capsys.readouterr()
    assert "4 nodes in 2 racks" in out
    assert "1 nodes have no rack" in err
    assert "1 entries could not be used" in err


def test_the_inventory_is_filled_for_every_command(config: Path) -> None:
    loaded = load(config, environ={})
    nodes = fill(resolve([], loaded), loaded).nodes
    assert [(node.name, node.rack, node.leaf) for node in nodes] == [
        ("g1", "r1", "s1"), ("g2", "r1", "s1"), ("g3", "r2", "s1"), ("g4", "", "s1")]


def test_a_file_that_is_too_large_is_refused(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustertop.topology_files.MAX_BYTES", 20)
    loaded = load(config, environ={})
    with pytest.raises(ConfigError, match="larger than"):
        fill(resolve([], loaded), loaded)


def test_help_does_without_numpy_and_what_draws() -> None:
    code = ("import sys\nfrom clustertop import cli\ntry:\n    cli.main(['topology', '--help'])\nexcept SystemExit:\n    pass\n"
            "print([name for name in ('numpy', 'textual', 'msgspec', 'asyncssh', 'yaml') if name in sys.modules], file=sys.stderr)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert "topology" in done.stdout
    assert done.stderr.strip() == "[]"
