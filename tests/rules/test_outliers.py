"""Differences between like nodes."""

from __future__ import annotations

import json

from clustertop.core import Core
from clustertop.model import NodeInfo
from clustertop.rules.outliers import outliers
from clustertop.wire.frame import decode


def _core(drivers: list[str | None], limits: list[float | None], groups: list[tuple[str, ...]] | None = None) -> Core:
    nodes = [NodeInfo(f"n{number}", groups=(groups or [()] * len(drivers))[number]) for number in range(len(drivers))]
    core = Core(nodes, {})
    for number, (driver, limit) in enumerate(zip(drivers, limits, strict=True)):
        row = {"k": f"GPU-{number}", "a": {"index": 0, "name": "H100"}}
        cells = {"i": [0, 1], "x": [limit]} if limit is not None else {"j": [0], "s": ["!Not Supported"]}
        part = {"t": 1.0, "iv": 1.0, "n": 1, "tb": {"gpu": {"r": [row], "c": ["power_limit_mw"], **cells}}}
        facts = {"driver": driver} if driver else {}
        raw = json.dumps({"v": 1, "q": 1, "b": 1, "t": 1.0, "w": 0.0, "g": {"gpu": part}, "h": facts}).encode()
        assert core.on_frame(number, 10.0, 0.0, decode(raw), raw)
    core.tick(10.1, 0.0)
    return core


def _found(core: Core) -> list[str]:
    assert core.snapshot is not None
    return [str(one) for one in outliers(core.snapshot.view)]


def test_one_node_of_five_has_another_driver_and_another_limit() -> None:
    core = _core(["570.1"] * 4 + ["565.9"], [700e3] * 4 + [500e3])
    assert _found(core) == [
        "n4: driver 565.9, 4 of 5 peers have 570.1",
        "n4 GPU 0: power_limit_watts 500 W, 4 of 5 peers have 700 W",
    ]


def test_no_majority_no_outlier() -> None:
    assert _found(_core(["a", "a", "b", "b"], [700e3] * 4)) == []


def test_unknown_is_no_difference_and_no_peer() -> None:
    core = _core(["a", "a", "a", None], [700e3, 700e3, 700e3, None])
    assert _found(core) == []


def test_groups_are_compared_within_themselves() -> None:
    core = _core(["a", "a", "a", "b", "b", "b"], [700e3] * 6, [("x",)] * 3 + [("y",)] * 3)
    assert _found(core) == []
