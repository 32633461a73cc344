"""Bytes to an address that is placed later: unplaced until then, and not after."""

from __future__ import annotations

import pytest

from tui.traffic_fleet import Wires, ring


def test_what_is_placed_now_is_not_shown_as_unplaced_any_more() -> None:
    wires = Wires(2, 2)
    wires.flows = {**ring([0, 1, 2, 3], 1e9), (0, -1): 2e8}
    wires.nameless = {0, 1, 2, 3}
    wires.run(30)
    found = wires.snapshot.view
    row = found.traffic.rows["fleet"]
    assert found["traffic"].value("unplaced_ratio", row) == pytest.approx(1.0)
    wires.nameless = set()
    wires.run(3)
    found = wires.snapshot.view
    assert found["traffic"].value("unplaced_ratio", row) == pytest.approx(0.2 / 4.2, rel=0.02)
    assert found["traffic"].value("bytes_per_second", row) == pytest.approx(4.2e9, rel=0.02)
    assert found["traffic"].value("socket_cross_rack_ratio", row) == pytest.approx(0.5, rel=0.02)
