"""What the console costs for one snapshot of a big fleet, and how long a key waits.

    python bench/console.py [NODES]

Headless, 160 x 50, in one process with the nodes' frames made beforehand; CPU time of taking one snapshot and of
drawing it, per screen, and the time from a key to the drawn screen.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "tui"))
os.environ.update(TEXTUAL_COLOR_SYSTEM="truecolor", TEXTUAL_ANIMATIONS="none")

from clustertop.tui.app import ConsoleApp
from fleet import FleetSource

ROUNDS = 9


async def measure(nodes: int) -> None:
    """Print one line per screen."""
    source = FleetSource(nodes, racks=max(nodes // 16, 1))
    source.connect()
    source.run(4)
    for number in range(0, nodes, 40):
        source.nodes[number].width = {3: 8}
        source.full(number)
    source.run(3)
    app = ConsoleApp(source)
    app._least = 1e9  # only this script takes snapshots
    print(f"{nodes} nodes x 8 GPUs, 160x50: CPU ms, median of {ROUNDS} (worst)")
    print(f"{'screen':<10}{'take':>16}{'draw':>16}{'both':>8}{'key p50':>10}{'key max':>9}")
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        for key, screen in (("1", "fleet"), ("2", "alerts"), ("3", "nodes"), ("4", "pcie"), ("5", "rdma")):
            await pilot.press(key)
            await pilot.pause()
            take, draw, keys = [], [], []
            for _ in range(ROUNDS):
                source.tick()
                await pilot.pause()
                gc.collect()
                app._least = 0.0
                began = time.process_time()
                app.look_at_source()
                taken = time.process_time()
                await _drawn(app)
                drawn = time.process_time()
                take.append(taken - began)
                draw.append(drawn - taken)
            for _ in range(20):
                began = time.process_time()
                app.action_move(0, 1)
                await _drawn(app)
                keys.append(time.process_time() - began)
            both = [a + b for a, b in zip(take, draw, strict=True)]
            print(f"{screen:<10}{_ms(take):>16}{_ms(draw):>16}{1000 * statistics.median(both):>8.1f}"
                  f"{1000 * statistics.median(keys):>10.1f}{1000 * max(keys):>9.1f}")


async def _drawn(app: ConsoleApp) -> None:
    """Let the screen notice what is dirty, then draw it now instead of at its next frame."""
    await asyncio.sleep(0)
    for _ in range(6):
        app.screen._on_timer_update()
        await asyncio.sleep(0)


def _ms(seconds: list[float]) -> str:
    return f"{1000 * statistics.median(seconds):.1f} ({1000 * max(seconds):.1f})"


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1024))
