"""What a site costs the console beside its nodes: 64 PDUs, a BMC for each node and a feed for each PDU, or none.

    python bench/beside.py [NODES] [--ticks 30]

CPU time of this process, in milliseconds a second: taking in the devices' frames (a tenth of them each second), and a
tick. Both fleets run in turn, tick by tick, so that the load of the machine is the same for both.
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

from clustertop.places import Device, Feed, Site, Supply
from clustertop.probe.frames import Encoder, Group
from clustertop.wire.frame import decode
from nodes import Fleet, gpus, ports, table

PDUS, SENSORS, INTERVAL = 64, 24, 10


def devices(count: int) -> Site:
    """64 PDUs, a feed on each, and a BMC for each node."""
    feeds = tuple(
        Feed(f"f{pdu}", 32.0, 230.0, pdu=f"p{pdu}", pair=f"f{pdu ^ 1}",
             supplies=tuple(Supply(f"n{node}") for node in range(pdu // 2, count, PDUS // 2))) for pdu in range(PDUS))
    return Site(feeds, (*(Device(f"p{pdu}", "pdu", None) for pdu in range(PDUS)),
                        *(Device(f"b{node}", "bmc", None, of=f"n{node}") for node in range(count))))


def said(number: int, at: float, tick: int) -> bytes:
    """A device's frame."""
    if number < PDUS:
        part = table({"inlet/1/1": {"amps": 14.0 + 0.01 * tick, "volts": 231.0, "watts": 3200.0}},
                     {"inlet/1/1": {"kind": "inlet", "name": "inlet", "unit": "1"}})
        group, tables = "pdu", {"pdu": part}
    else:
        group, tables = "bmc", {
            "bmc": table({"": {"watts": 5000.0 + tick, "host": 1.0}}),
            "psu": table({f"psu{one}": {"in_watts": 2500.0 + tick} for one in range(2)}),
            "sensor": table({f"s{one}": {"reading": 40.0 + tick % 3} for one in range(SENSORS)},
                            {f"s{one}": {"name": f"Temp {one}", "unit": "Cel"} for one in range(SENSORS)})}
    made = Encoder().encode({group: Group(at, float(INTERVAL), tables, n=tick)}, at, at, {}, {})
    return json.dumps(made).encode()


def main(count: int, ticks: int) -> None:
    """Print the figures."""
    site = devices(count)
    fleets = {"without": Fleet(count), "with": Fleet(count, site=site)}
    costs: dict[str, list[float]] = {"without": [], "with": [], "frames": []}
    for tick in range(2 * INTERVAL + ticks):
        every = [number for number in range(PDUS + count) if number % INTERVAL == tick % INTERVAL]
        for name, fleet in fleets.items():
            fleet.now += 1.0
            mine, net = gpus(*[{"util": float(tick)}] * 8), ports(*[{"c:port_xmit_data": 1000 * tick}] * 10)
            for number in range(count):
                fleet.say(number, gpu=mine, port=net)
            if name == "with":
                raws = [(count + number, said(number, fleet.now, tick + 1)) for number in every]
                began = time.process_time()
                for owner, raw in raws:
                    fleet.core.on_frame(owner, fleet.now, fleet.now, decode(raw), raw)
                costs["frames"].append((time.process_time() - began) * 1000)
            gc.collect()
            began = time.process_time()
            fleet.tick()
            costs[name].append((time.process_time() - began) * 1000)
    found = {name: statistics.median(one[2 * INTERVAL:]) for name, one in costs.items()}
    print(f"{count} nodes, {PDUS} PDUs, {count} BMCs: devices' frames {found['frames']:.1f} ms a second; tick "
          f"{found['without']:.1f} ms without a site, {found['with']:.1f} ms with one")
    for name in ("without", "with"):
        print(f"worst tick {name}: {max(costs[name][2 * INTERVAL:]):.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int, nargs="?", default=256)
    parser.add_argument("--ticks", type=int, default=30)
    main(*vars(parser.parse_args()).values())
