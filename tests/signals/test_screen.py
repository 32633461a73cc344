"""What screening facts mean."""

from __future__ import annotations

import pytest

from clustertop.probe import screening
from clustertop.signals import screen


@pytest.mark.parametrize(("text", "right"), [
    ("ok", screen.RESOLVES), ("no answer", screen.NO_ANSWER), ("EAI_AGAIN", screen.FAILS), ("", screen.FAILS)])
def test_lookup(text: str, right: int) -> None:
    assert screen.lookup(text) == right


def test_what_a_node_says_of_monitors_is_taken_apart_and_what_is_none_is_left_out() -> None:
    said = ["nvidia-smi 2", "dcgm-exporter 1", "nvtop", "", "x -1", "y ²", " 3"]
    assert screen.monitors({"monitors": said}) == {"nvidia-smi": 2, "dcgm-exporter": 1}
    assert screen.monitors({}) == screen.monitors({"monitors": "nvtop 1"}) == {}


def test_the_probe_looks_for_every_gpu_monitor_and_others_are_none() -> None:
    assert set(screening.MONITORS) >= screen.GPU_MONITORS
    assert screen.gpu_monitored({"monitors": ["nvtop 1"]})
    assert not screen.gpu_monitored({"monitors": ["node_exporter 1", "telegraf 2"]})


def test_every_column_of_the_probe_has_a_meaning() -> None:
    assert set(screening.COLUMNS) == set(screen.TABLE.raw_index)
