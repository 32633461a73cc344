"""What judging costs: every rule over 1,024 nodes with 8 GPUs and 10 ports each, by how many things are near a limit.

    python bench/rules.py [NODES]

For each share of GPUs near their slowdown limit (half of them over it, changing each tick): milliseconds of one
evaluation, rows looked at one by one, and how long one bare pass over the same columns takes in the same run.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from clustertop.model import NodeInfo
from clustertop.rules.engine import Engine
from clustertop.rules.spec import builtin
from nodes import Fleet, gpus, ports

TICKS = 60
RACK = 32
SHARES = (0.0, 0.01, 0.05, 0.2)


def main(count: int = 1024) -> None:
    """Print the table."""
    nodes = [NodeInfo(f"gpu{number:04d}", rack=f"r{number // RACK}") for number in range(count)]
    fleet = Fleet(nodes)
    fleet.now += 1
    for number in range(count):
        fleet.say(number, gpu=gpus(count=8), port=ports(*[{"c:symbol_error": 0}] * 10))
    fleet.tick()
    view, rules = fleet.view, builtin()
    columns = [view[rule.table].col(rule.metric) for rule in rules.values()]
    begun = time.perf_counter()
    for _ in range(TICKS):
        for column in columns:
            with np.errstate(invalid="ignore"):
                np.flatnonzero(column > 1e300)
    bare = (time.perf_counter() - begun) / TICKS * 1000
    print(f"{count} nodes, {len(view['gpu'])} GPUs, {len(view['port'])} ports, {len(rules)} rules; "
          f"one bare comparison of each rule's column: {bare:.2f} ms")
    print(f"{'near a limit':>13} {'median ms':>10} {'worst ms':>9} {'rows touched':>13} {'alerts':>7} "
          "of the bare pass")
    for share in SHARES:
        engine, rng = Engine(rules, view.owners), np.random.default_rng(7)
        near = rng.choice(len(view["gpu"]), int(share * len(view["gpu"])), replace=False)
        costs, touched = [], []
        for tick in range(TICKS):
            gpu = view["gpu"]
            values = gpu.values.copy()
            values[gpu.spec.index["temperature_margin_celsius"], near] = rng.uniform(0, 12, len(near))
            table = dataclasses.replace(gpu, values=values, reads=gpu.reads + tick)
            moment = dataclasses.replace(view, at=view.at + tick, tables={**view.tables, "gpu": table})
            begun = time.perf_counter()
            engine.evaluate(moment)
            costs.append((time.perf_counter() - begun) * 1000)
            touched.append(engine.touched)
        median = statistics.median(costs[5:])
        print(f"{share:>13.0%} {median:>10.2f} {max(costs[5:]):>9.2f} {statistics.median(touched[5:]):>13.0f} "
              f"{len(engine.alerts()):>7} {median / bare:>17.1f}")


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:]))
