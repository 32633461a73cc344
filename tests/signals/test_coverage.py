"""Means and sums over things that do not all tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals import coverage


def test_H3_missing_is_not_zero_and_the_coverage_is_said() -> None:  # noqa: N802
    """H3: [96, null, 94, null] is 95 over 2 of 4; too little to call it low."""
    found = coverage.mean(np.array([96.0, np.nan, 94.0, np.nan]))
    assert (found.value, found.known, found.of, found.note) == (95.0, 2, 4, "2/4")
    assert (found.share, found.judged, found.whole) == (0.5, None, False)


@pytest.mark.parametrize(("known", "of", "judged"), [(4, 5, True), (8, 10, True), (7, 10, False), (0, 3, False)])
def test_a_low_mean_needs_four_fifths_of_its_things(known: int, of: int, judged: bool) -> None:
    values = np.array([10.0] * known + [np.nan] * (of - known))
    assert (coverage.mean(values).judged is not None) is judged


def test_of_nothing_nothing_is_known() -> None:
    for found in (coverage.mean(np.empty(0)), coverage.total(np.empty(0)), coverage.total(np.array([np.nan]))):
        assert found.value is None
        assert found.judged is None


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e9)), max_size=30))
def test_sums_and_means_are_over_what_is_known(cells: list[float | None]) -> None:
    values = np.array([np.nan if cell is None else cell for cell in cells])
    known = [cell for cell in cells if cell is not None]
    total, mean = coverage.total(values), coverage.mean(values)
    assert (total.known, total.of) == (mean.known, mean.of) == (len(known), len(cells))
    if known:
        assert total.value == pytest.approx(sum(known))
        assert mean.value is not None
        assert min(known) - 1e-3 <= mean.value <= max(known) + 1e-3
