"""What working out the feeds costs a tick: 512 busy ones whose current rises, each read every ten seconds.

    python bench/feeds.py [FEEDS] [--spread] [--profile]

CPU time of ``Feeds.derive`` by itself, in milliseconds. Without ``--spread`` all PDUs are read at the same tick.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from feeds import Feed, Place, inlet

INTERVAL = 10


def main(count: int, spread: bool, profile: bool) -> None:
    """Print the figures."""
    place = Place([Feed(f"f{number}", 32.0, 230.0, pdu=f"pdu-{number}",
                        pair=f"f{number ^ 1}" if number ^ 1 < count else "") for number in range(count)], rules={})
    store = place.core.store
    costs, profiler = [], cProfile.Profile()
    for tick in range(70 * INTERVAL):
        place.now += 1.0
        for number in range(count):
            if tick % INTERVAL == (number % INTERVAL if spread else 0):
                place.pdu(f"pdu-{number}", inlet(14.0 + 0.013 * tick + number % 7 * 0.1))
        for table in store.tables.values():
            table.refresh()
        late = tick > 60 * INTERVAL
        if tick % 5 == 0:
            gc.collect()
        if profile and late:
            profiler.enable()
        began = time.process_time()
        store._feeds.derive(place.now)
        if late:
            costs.append((time.process_time() - began) * 1000)
        profiler.disable()
    print(f"{count} feeds: median {statistics.median(costs):.1f}, nine in ten "
          f"{sorted(costs)[len(costs) * 9 // 10]:.1f}, worst {max(costs):.1f} ms")
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("feeds", type=int, nargs="?", default=512)
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--profile", action="store_true")
    main(*vars(parser.parse_args()).values())
