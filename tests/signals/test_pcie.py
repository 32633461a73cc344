"""What width a device should have."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clustertop.signals.pcie import CONFIGURED, LEAST_LANES, NO_MODEL, OWN, PEERS, expected_by, expected_widths

WIDTHS = st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, float("nan")])


def expect(models: list[int], maxima: list[float], configured: list[float] | None = None) -> list[float]:
    """The expected widths as a list."""
    wanted = configured if configured is not None else [float("nan")] * len(models)
    return expected_widths(np.array(models, np.intp), np.array(maxima), np.array(wanted)).tolist()


def test_A10_the_commonest_maximum_beats_the_devices_own() -> None:  # noqa: N802
    assert expect([0] * 8, [16.0] * 5 + [8.0] + [16.0] * 2) == [16.0] * 8


def test_of_two_equally_common_the_wider_is_expected() -> None:
    assert expect([0, 0, 1, 1], [8.0, 16.0, 4.0, 2.0]) == [16.0, 16.0, 4.0, 4.0]


def test_A11_the_operator_has_the_last_word() -> None:  # noqa: N802
    nan = float("nan")
    assert expect([0, 0, 0], [16.0] * 3, [8.0, nan, nan]) == [8.0, 16.0, 16.0]


def test_alone_or_of_no_known_model_its_own_maximum_counts() -> None:
    assert expect([3, NO_MODEL, NO_MODEL], [8.0, 4.0, 16.0]) == [8.0, 4.0, 16.0]


def test_A10_A11_it_is_said_what_the_expectation_goes_by() -> None:  # noqa: N802
    nan = float("nan")

    def by(models: list[int], maxima: list[float], wanted: list[float]) -> list[float]:
        return expected_by(np.array(models, np.intp), np.array(maxima), np.array(wanted)).tolist()

    assert by([0, 0, 1], [16.0, 8.0, 16.0], [nan, nan, nan]) == [PEERS, PEERS, OWN]
    assert by([0, 0, NO_MODEL], [16.0, 16.0, 4.0], [8.0, nan, nan]) == [CONFIGURED, PEERS, OWN]
    # A device that does not tell its maximum has one peer all the same; one alone that does not has nothing.
    assert by([0, 0], [nan, 16.0], [nan, nan]) == [PEERS, OWN]
    assert np.isnan(by([0], [nan], [nan])).all()
    # What is too narrow to be judged goes by nothing, unless the operator says so.
    assert np.array_equal(by([0, 0, 1], [2.0, 2.0, 1.0], [nan, 2.0, nan]), [nan, CONFIGURED, nan], equal_nan=True)


def test_links_of_one_or_two_lanes_are_judged_only_where_the_operator_says_so() -> None:
    nan = float("nan")
    assert np.array_equal(expect([0, 0, 1, 2], [2.0, 2.0, 1.0, 4.0]), [nan, nan, nan, 4.0], equal_nan=True)
    assert expect([0, 1], [2.0, 4.0], [2.0, nan]) == [2.0, 4.0]


def test_nothing_known_is_unknown() -> None:
    assert np.isnan(expect([NO_MODEL], [float("nan")])).all()
    assert expect([0, 0], [float("nan"), 16.0]) == [16.0, 16.0]
    assert expect([], []) == []


@given(st.lists(st.tuples(st.integers(-1, 4), WIDTHS), max_size=40))
def test_agrees_with_counting_one_by_one(devices: list[tuple[int, float]]) -> None:
    counts: dict[int, Counter[float]] = {}
    for model, width in devices:
        if model != NO_MODEL and width == width:
            counts.setdefault(model, Counter())[width] += 1
    want = [max(counts[model], key=lambda width: (counts[model][width], width)) if model in counts else own
            for model, own in devices]
    got = expect([model for model, _ in devices], [width for _, width in devices])
    want = [width if width >= LEAST_LANES else float("nan") for width in want]
    assert np.array_equal(got, want, equal_nan=True)
