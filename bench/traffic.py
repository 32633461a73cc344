"""What working out the traffic between nodes costs a tick: many peers and jobs, a tenth of the nodes read each second.

    python bench/traffic.py [NODES] [--peers 100] [--jobs 128] [--profile]

CPU time of ``Traffic.derive`` by itself, in milliseconds, over 60 ticks of a second.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from clustertop.model import NodeInfo
from meters import Rig

RACK = 32
INTERVAL = 10


def main(count: int, peers: int, jobs: int, profile: bool) -> None:
    """Print the figures."""
    rng = np.random.default_rng(3)
    rig = Rig([NodeInfo(f"n{number:04d}", rack=f"r{number // RACK}", leaf=f"l{number // RACK}")
               for number in range(count)])
    table = rig.tables["peer"]
    for number in range(count):
        rig.reads(f"n{number:04d}")
        rig.nic(f"n{number:04d}", 2e9)
        for other in rng.choice(count, peers + 1, replace=False)[:peers].tolist():
            if other != number:
                table.add(number, f"10.0.0.{other}", {})
    each = count // jobs if jobs else 0
    rig.run(**{f"j{number}": [f"n{node:04d}" for node in range(number * each, (number + 1) * each)]
               for number in range(jobs)})
    places = rig.traffic._ends._places()
    rig.traffic._ends._places = lambda: places
    rows = slice(0, table.rows)
    columns = [table.spec.index[name] for name in (
        "transmit_bytes_per_second", "receive_bytes_per_second", "rtt_seconds", "rtt_variation_seconds")]
    table.interval[rows] = INTERVAL
    costs = []
    profiler = cProfile.Profile()
    for tick in range(70):
        mine = np.flatnonzero(table.node[rows] % INTERVAL == tick % INTERVAL) if tick else np.arange(table.rows)
        for column, scale in zip(columns, (2e7, 2e7, 1e-4, 2e-5), strict=True):
            table.values[column, mine] = rng.uniform(0.1, 1, len(mine)) * scale
        table.read_at[mine] = rig.now
        table.reads[mine] += 1
        others = ("group", "net")
        for name in others:
            one = rig.tables[name]
            one.read_at[: one.rows] = rig.now
            one.reads[: one.rows] += 1
        gc.collect()
        if profile and tick > 10:
            profiler.enable()
        began = time.process_time()
        rig.traffic.derive(rig.now, rig.jobs)
        costs.append((time.process_time() - began) * 1000)
        profiler.disable()
        rig.now += 1
    steady = costs[10:]
    print(f"{table.rows} peers of {count} nodes, {jobs} jobs: first {costs[0]:.0f} ms; then median "
          f"{statistics.median(steady):.1f}, nine in ten {sorted(steady)[len(steady) * 9 // 10]:.1f}, worst "
          f"{max(steady):.1f}, mean {statistics.mean(steady):.1f} ms")
    print("last ten:", " ".join(f"{one:.1f}" for one in costs[-10:]))
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int, nargs="?", default=1024)
    parser.add_argument("--peers", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=128)
    parser.add_argument("--profile", action="store_true")
    main(*vars(parser.parse_args()).values())
