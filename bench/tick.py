"""What a tick costs by its parts, all nodes read at every one: taking frames in, store, view, rules, picture.

    python bench/tick.py [NODES] [--ticks 20]

CPU time of this process, median and worst over the ticks, in milliseconds. 8 GPUs, 8 PCIe devices, 10 ports a node;
there is no site, and no group ``sockets``. To compare two versions, run both in turn: ``PYTHONPATH=.../src`` chooses.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from clustertop.model import NodeInfo
from clustertop.tui.atlas import Atlas
from clustertop.tui.picture import Picture
from clustertop.wire.frame import decode
from nodes import Fleet, gpus, ports

RACK = 32


def main(count: int, ticks: int) -> None:
    """Print the table."""
    fleet = Fleet([NodeInfo(f"gpu{number:04d}", rack=f"r{number // RACK}") for number in range(count)])
    core = fleet.core
    atlas = None
    costs: dict[str, list[float]] = {}

    def cost(name: str, began: float) -> float:
        now = time.process_time()
        costs.setdefault(name, []).append((now - began) * 1000)
        return now

    for tick in range(ticks + 5):
        fleet.now += 1
        table, net = gpus(*[{"util": float(40 + tick)}] * 8), ports(*[{"c:port_xmit_data": 1000 * tick}] * 10)
        frames = [fleet.frame(number, gpu=table, port=net) for number in range(count)]
        frames = [(number, decode(raw), raw) for number, raw in enumerate(frames)]
        gc.collect()
        gc.disable()
        began = time.process_time()
        for number, frame, raw in frames:
            core.on_frame(number, fleet.now, fleet.now, frame, raw)
        began = cost("frames", began)
        core.store.tick(fleet.now)
        began = cost("store", began)
        view = core.store.view(fleet.now, fleet.now)
        began = cost("view", began)
        core.engine.evaluate(view)
        cost("rules", began)
        gc.enable()
        core.tick(fleet.now, fleet.now)
        atlas = atlas or Atlas()
        began = time.process_time()
        picture = Picture(core.snapshot, atlas)
        for name in ("alerts_of", "link", "state", "gpu_severity", "pcie_severity"):
            getattr(picture, name)
        cost("picture", began)
    out = {name: (round(statistics.median(one[5:]), 2), round(max(one[5:]), 2)) for name, one in costs.items()}
    print(json.dumps(out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int, nargs="?", default=1024)
    parser.add_argument("--ticks", type=int, default=20)
    main(*vars(parser.parse_args()).values())
