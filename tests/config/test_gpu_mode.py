"""How GPUs are held: ``[gpu]`` of the configuration, as inventory, poller and probe take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clustertop.clock import SystemClock
from clustertop.config import ConfigError, load
from clustertop.config_text import as_json, show, template
from clustertop.inventory import resolve
from clustertop.poll.fleet import Fleet
from fleets import Remember

if TYPE_CHECKING:
    from pathlib import Path


def per_poll(tmp_path: Path, text: str, *hosts: str) -> list[str]:
    file = tmp_path / "config.toml"
    file.write_text(text)
    loaded = load(file, environ={})
    return sorted(resolve(list(hosts), loaded).per_poll)


NODES = '[inventory]\nnodes = "gpu[1-4]"\n[groups]\na100 = "gpu[1-2]"\n[gpu]\n'


@pytest.mark.parametrize(("text", "right"), [
    ("", []),
    ('mode = "resident"', []),
    ('mode = "per-poll"', ["gpu1", "gpu2", "gpu3", "gpu4"]),
    ('per_poll_nodes = "@a100"', ["gpu1", "gpu2"]),
    ('per_poll_nodes = "gpu[3-9]"', ["gpu3", "gpu4"]),
    ('mode = "per-poll"\nresident_nodes = "@a100,gpu4"', ["gpu3"]),
])
def test_mode_by_node_and_group(tmp_path: Path, text: str, right: list[str]) -> None:
    assert per_poll(tmp_path, NODES + text) == right


def test_it_holds_for_hosts_of_the_command_line_and_for_this_machine(tmp_path: Path) -> None:
    assert per_poll(tmp_path, NODES + 'per_poll_nodes = "gpu2"', "gpu2,gpu3") == ["gpu2"]
    assert len(per_poll(tmp_path, '[gpu]\nmode = "per-poll"')) == 1


@pytest.mark.parametrize(("text", "words"), [
    ('mode = "per_poll"', 'line 6: gpu.mode must be "resident" or "per-poll", not "per_poll"'),
    ("mode = 1", "gpu.mode"),
    ('per_poll_nodes = "@nosuch"', "gpu.per_poll_nodes is not right: @nosuch"),
    ('per_poll_nodes = "gpu[1-2]"\nresident_nodes = "gpu2"', "gpu.resident_nodes has gpu2, as per_poll_nodes has"),
    ('pol_nodes = "gpu1"', "gpu.pol_nodes is not a setting; did you mean"),
])
def test_what_is_wrong_is_one_sentence_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        per_poll(tmp_path, NODES + text)
    assert words in str(wrong.value)


def test_show_and_template_have_it(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[gpu]\nmode = "per-poll"\n')
    loaded = load(file, environ={})
    assert f'[gpu]\nmode = "per-poll"  # {file}:2\n' in show(loaded)
    assert '"gpu.mode": {' in as_json(loaded)
    assert "# mode = " in template()


async def test_each_nodes_probe_is_told_its_own(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(NODES + 'per_poll_nodes = "gpu2"')
    inventory = resolve([], load(file, environ={}))
    (tmp_path / "ssh").touch()
    from clustertop.wire.transport import PollSettings

    settings = PollSettings(ssh_config=str(tmp_path / "ssh"), agent=False)
    fleet = Fleet(inventory.nodes, settings, Remember(), SystemClock(), per_poll=inventory.per_poll,
                  released={"gpu3": 5.0})
    assert [fleet._more(node) for node in inventory.nodes] == [{}, {"per_poll": True}, {"released": 5.0}, {}]
