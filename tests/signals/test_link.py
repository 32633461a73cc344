"""What network drivers count: the catalogue, the text of ``ethtool -S``, and the recorded output of real adapters."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals import ethtool_catalogue, link
from clustertop.signals.columns import Columns

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "samples" / "rdma" / "ethtool"
RIGHT = {
    "bnxt_en": {"no_buffer_total": 655430134, "receive_discards_total": 49337, "receive_crc_errors_total": 0,
                "receive_pause_prio3_total": 0, "link_downs_total": 0},
    "mlx5_core": {"pci_transmit_errors_total": 34, "pci_receive_errors_total": 0, "receive_discards_total": 0,
                  "no_buffer_total": 0, "receive_pause_global_total": 0, "link_downs_total": 0},
    "ice": {"receive_crc_errors_total": 0, "receive_discards_total": 0, "receive_pause_prio0_total": 0,
            "transmit_pause_prio7_total": 0, "receive_pause_global_total": 0},
    "i40e": {"receive_crc_errors_total": 0, "receive_discards_total": 0, "receive_pause_prio5_total": 0,
             "transmit_pause_global_total": 0},
    "ena": {},
}
"""Driver: what NOTES and the file say."""


@pytest.mark.parametrize("driver", RIGHT)
def test_recorded_output(driver: str) -> None:
    path = SAMPLES / f"{driver}.S.txt"
    if not path.is_file():
        pytest.skip("needs the recorded samples beside the project")
    said = link.parse(path.read_text())
    assert len(said) > 90
    kept = link.kept(said)
    assert {name: kept[name] for name in RIGHT[driver]} == RIGHT[driver]
    assert {one.driver for name in said if (one := link.known(name)) is not None and one.column} <= {driver}
    if not RIGHT[driver]:
        assert kept == {}
    # Nothing of one queue is added to a total.
    assert not [name for name in said if link.known(name) is not None and re.search(r"\[\d+\]|queue|^[rt]x\d|^[rt]x-\d",
                                                                                   name)]


def test_text_with_and_without_a_heading_with_colons_and_with_noise() -> None:
    text = ("NIC statistics:\n     rx_prio3_pause: 41\n     [2]: rx_errors: 5\n     rx_priority_1_xoff.nic: 7\n"
            "     rx_discards_phy: 18446744073709551615\n  too_much: 18446744073709551616\n  endless: 1234567890123456789012\n"
            "     no number: here\n     negative: -3\n     half: 1.5\n\n     with_colon:in_it: 6\n     \x1b[31mred: 2\n")
    said = link.parse(text)
    assert said == {"rx_prio3_pause": 41, "[2]: rx_errors": 5, "rx_priority_1_xoff.nic": 7,
                    "rx_discards_phy": 2**64 - 1, "with_colon:in_it": 6, "[31mred": 2}
    assert link.kept(said) == {"receive_pause_prio3_total": 41, "receive_pause_prio1_total": 7,
                               "receive_discards_total": 2**64 - 1}
    assert link.parse("rx_prio0_pause: 1") == {"rx_prio0_pause": 1}
    assert link.parse("no stats available\n") == {}
    assert link.parse("") == {}


@given(st.text(max_size=300))
def test_no_text_is_too_odd(text: str) -> None:
    for name, number in link.parse(text).items():
        assert 0 <= number < 2**64
        assert "\x1b" not in name


def test_the_catalogue_says_one_thing_of_each_name() -> None:
    seen: dict[str, str] = {}
    for one in link.CATALOGUE:
        assert one.source.startswith("https://")
        assert one.meaning
        assert seen.setdefault(one.name, one.column) == one.column, one.name
    assert set(ethtool_catalogue.BLOCKS) == set(ethtool_catalogue.SOURCES)
    columns = {one.column for one in link.CATALOGUE if one.column}
    assert columns == set(link.TABLE.names[: len(columns)])
    for name, members in link.SUMS.items():
        assert name in link.TABLE.index
        assert members
        assert set(members) <= columns
    assert set(link.OF_PORT) <= set(link.SUMS)
    # Pauses of the whole link and of its priorities are different frames; PFC sums are parts of the latter.
    assert len(link.SUMS["receive_pause_frames_per_second"]) == 9


def test_the_probe_is_told_what_is_kept_and_nothing_else() -> None:
    patterns = set(ethtool_catalogue.patterns())
    for one in link.CATALOGUE:
        asked = one.name in patterns or re.sub(r"\d+", "#", one.name) in patterns
        assert asked == bool(one.column), one.name
    assert len(patterns) < 120


def test_a_sum_of_which_a_part_was_reset_is_unknown() -> None:
    t = Columns.empty(link.TABLE, 4)
    counters = tuple(metric.name for metric in link.TABLE.metrics if metric.kind == "counter")
    growth = np.full((len(counters), 4), np.nan)
    three, four = (counters.index(f"receive_pause_prio{number}_total") for number in (3, 4))
    t.put("receive_pause_prio3_total", np.array([10.0, 10.0, 10.0, np.nan]))
    t.put("receive_pause_prio4_total", np.array([1.0, 1.0, np.nan, np.nan]))
    growth[three] = [50.0, 50.0, 50.0, np.nan]
    growth[four] = [5.0, np.nan, np.nan, np.nan]
    link.rates(t, growth, counters, np.full(4, 10.0), np.ones(4, np.bool_))
    rate = t.col("receive_pause_frames_per_second")
    assert rate[0] == 5.5
    assert np.isnan(rate[1]), "priority 4 was reset"
    assert rate[2] == 5.0, "a driver without priority 4 says all it has"
    assert np.isnan(rate[3])
    assert np.isnan(t.col("discards_per_second")).all()
