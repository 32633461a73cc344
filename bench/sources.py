"""What polling BMCs and PDUs costs the console.

    python bench/sources.py [--bmcs 256] [--pdus 64] [--interval 10] [--seconds 40] [--supplies 2] [--sensors 24]
                            [--only pdu] [--profile FILE] [--asyncio]

Real parts on loopback, in processes of their own: HTTPS Redfish services, one port and one certificate check each, in
the modern schema (EnvironmentMetrics, power supplies and their metrics) and in the legacy one (Power); SNMP agents by
snmpsim, one port each, with the tests' fixtures. ``poll.devices.Devices`` polls them as the console does, and this
process's CPU time is measured over whole intervals, once what is read only seldom has been read. Printed is the share
of one core for each kind; the program exits with 1 where BMCs of one schema and PDUs together pass the target.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from bmc.server import PASSWORD, SESSIONS, USER, Certificates, node_tree  # noqa: E402
from clustertop.clock import SystemClock  # noqa: E402
from clustertop.model import LinkState  # noqa: E402
from clustertop.places import Device  # noqa: E402
from clustertop.poll.devices import Devices  # noqa: E402
from clustertop.sources.redfish import RedfishTarget  # noqa: E402
from clustertop.sources.secret import Secret  # noqa: E402
from clustertop.sources.snmp import Agent  # noqa: E402
from clustertop.sources.snmp_message import Community, Key  # noqa: E402
from clustertop.sources.tls import Tls  # noqa: E402
from pdus import OURS, free_port, snmpsim  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from clustertop.model import LinkEvent
    from clustertop.wire.frame import Frame

TARGET = 0.15
"""Of one core, for BMCs and PDUs together."""
FAMILIES = ("apc-rpdu", "raritan-px2", "eaton-g3", "sentry4", "vertiv-geist", "enlogic", "panduit", "liebert-mph2")


def modern(supplies: int, sensors: int) -> dict[str, Any]:
    """The tests' node, with as many supplies and sensors."""
    tree = node_tree()
    place = "/redfish/v1/Chassis/Node/Sensors"
    tree[place]["Members"] = [{"@odata.id": f"{place}/T{number}"} for number in range(sensors)]
    for number in range(6, sensors):
        text = json.dumps(tree[f"{place}/T0"]).replace("T0", f"T{number}").replace("Zone 0", f"Zone {number}")
        tree[f"{place}/T{number}"] = json.loads(text)
    base = "/redfish/v1/Chassis/Node/PowerSubsystem/PowerSupplies"
    for number in range(2, supplies):
        for tail in ("", "/Metrics"):
            text = json.dumps(tree[f"{base}/A{tail}"]).replace("PowerSupplies/A", f"PowerSupplies/S{number}")
            tree[f"{base}/S{number}{tail}"] = json.loads(text)
        tree[base]["Members"].append({"@odata.id": f"{base}/S{number}"})
    del tree["/redfish/v1"]["ProtocolFeaturesSupported"]
    return tree


def legacy(supplies: int, sensors: int) -> dict[str, Any]:
    """A chassis with Power and Thermal."""
    base = "/redfish/v1"
    chassis = f"{base}/Chassis/1"
    status = {"State": "Enabled", "Health": "OK"}

    def of(name: str, *paths: str) -> dict[str, Any]:
        return {"@odata.type": f"#{name}Collection.{name}Collection", "Members": [{"@odata.id": one} for one in paths]}

    return {
        base: {"@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "Vendor": "Ours", "Links": {"Sessions": {
            "@odata.id": SESSIONS}}, **{name: {"@odata.id": f"{base}/{name}"} for name in ("Chassis", "Systems")}},
        f"{base}/Chassis": of("Chassis", chassis),
        f"{base}/Systems": of("ComputerSystem", f"{base}/Systems/1"),
        f"{base}/Systems/1": {"@odata.type": "#ComputerSystem.v1_5_0.ComputerSystem", "PowerState": "On"},
        chassis: {"@odata.type": "#Chassis.v1_9_0.Chassis", "Manufacturer": "Ours", "Model": "L-8",
                  "Power": {"@odata.id": f"{chassis}/Power"}, "Thermal": {"@odata.id": f"{chassis}/Thermal"}},
        f"{chassis}/Power": {
            "@odata.type": "#Power.v1_5_0.Power",
            "PowerControl": [{"Name": "System", "PowerConsumedWatts": 6120, "PowerCapacityWatts": 6600}],
            "PowerSupplies": [{"MemberId": f"{n}", "Name": f"PSU {n}", "LineInputVoltage": 230, "Status": status,
                               "PowerInputWatts": 3060 + n, "PowerCapacityWatts": 3300} for n in range(supplies)],
            "Voltages": [{"Name": f"P{n}V", "ReadingVolts": n + 0.5, "Status": status} for n in range(12)],
            "Redundancy": [{"Name": "PSU", "RedundancySet": [{}], "Status": status}]},
        f"{chassis}/Thermal": {
            "@odata.type": "#Thermal.v1_5_0.Thermal", "Fans": [],
            "Temperatures": [{"Name": f"T{n}", "ReadingCelsius": 30 + n, "Status": status} for n in range(sensors)]},
    }


# -- the services, in a process of their own ------------------------------------------------------------------------


async def serve(tree: dict[str, Any], count: int, chain: str) -> None:
    """Serve *tree* at *count* ports, until stdin ends; the ports are printed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    bodies = {path.rstrip("/"): json.dumps(body).encode() for path, body in tree.items()}
    asked = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, path, _ = head[0].split(" ")
                sizes = [line.split(":")[1] for line in head if line.lower().startswith("content-length:")]
                await reader.readexactly(int(sizes[0]) if sizes else 0)
                asked += 1
                status, body, more = "200 OK", bodies.get(path.rstrip("/"), b""), ""
                if method == "POST":
                    status, body, more = "201 Created", b"{}", f"X-Auth-Token: t\r\nLocation: {SESSIONS}/1\r\n"
                elif method == "DELETE":
                    status, body = "200 OK", b"{}"
                elif not body:
                    status, body = "404 Not Found", b"{}"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nOData-Version: 4.0\r\n"
                             f"Cache-Control: no-cache\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    servers = [await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(asked if line else 0, flush=True)


@contextlib.contextmanager
def services(schema: str, args: argparse.Namespace, chain: str) -> Iterator[tuple[list[int], Any]]:
    """Ports of the services, and what tells how many requests there were."""
    with subprocess.Popen(
        [sys.executable, __file__, "--serve", schema, "--bmcs", str(args.bmcs), "--supplies",
         str(args.supplies), "--sensors", str(args.sensors), "--chain", chain],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        out, into = child.stdout, child.stdin

        def asked() -> int:
            into.write("\n")
            into.flush()
            return int(out.readline())

        try:
            yield json.loads(out.readline()), asked
        finally:
            child.kill()


# -- the poller -----------------------------------------------------------------------------------------------------


class Count:
    """A sink that counts what is good."""

    def __init__(self) -> None:
        self.good = 0
        self.seen: set[int] = set()
        self.bad: list[str] = []
        self.octets = 0

    def on_frame(self, node: int, at: float, frame: Frame, raw: bytes) -> None:
        """Count."""
        self.octets += len(raw)
        if all(part.st == "ok" for part in frame.g.values()):
            self.good += 1
            self.seen.add(node)

    def on_link(self, event: LinkEvent) -> None:
        """Keep what is bad."""
        if event.state not in {LinkState.CONNECTING, LinkState.UP, LinkState.CLOSED}:
            self.bad.append(event.reason)


async def measure(devices: list[Device], interval: float, seconds: float, profile: str) -> tuple[float, float, Count]:
    """(share of a core, frames a second, the sink), after everything was read once."""
    sink = Count()
    async with Devices(devices, 0, sink, SystemClock(), random.Random(1), least_interval_seconds=1.0):
        async with asyncio.timeout(300):
            while len(sink.seen) < len(devices):
                await asyncio.sleep(0.5)
        await asyncio.sleep(interval)
        good, began, spent = sink.good, time.monotonic(), time.process_time()
        if profile:
            import cProfile

            watch = cProfile.Profile()
            watch.enable()
        await asyncio.sleep(seconds)
        if profile:
            watch.disable()
            watch.dump_stats(profile)
        took, spent = time.monotonic() - began, time.process_time() - spent
        frames = (sink.good - good) / took
    if sink.bad:
        raise SystemExit(f"not all could be polled: {sink.bad[0]}")
    return spent / took, frames, sink


def bmcs(ports: list[int], certificates: Certificates, interval: float) -> list[Device]:
    """A device for each service."""
    secret, tls = Secret.from_spec("env:CT_BENCH_BMC"), Tls(ca_file=certificates.ca_file)
    return [Device(f"bmc{n}", "bmc", RedfishTarget(f"https://127.0.0.1:{port}", USER, secret, tls=tls), f"bmc{n}",
                   f"gpu{n}", interval_seconds=interval) for n, port in enumerate(ports)]


def run(main: Coroutine[Any, Any, tuple[float, float, Count]], *, plain: bool) -> tuple[float, float, Count]:
    """Run *main* as the console runs: under uvloop where there is one."""
    if not plain:
        with contextlib.suppress(ImportError):
            import uvloop

            return uvloop.run(main)
    return asyncio.run(main)


def said(what: str, interval: float, share: float, frames: float) -> str:
    """One line of the result."""
    return (f"{what}, every {interval:g} s: {share:.1%} of a core, {frames:.1f} readings/s, "
            f"{1e3 * share / max(frames, 1e-9):.2f} ms CPU each")


def main() -> int:
    """Run the bench; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bmcs", type=int, default=256)
    parser.add_argument("--pdus", type=int, default=64)
    parser.add_argument("--interval", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--supplies", type=int, default=2)
    parser.add_argument("--sensors", type=int, default=24)
    parser.add_argument("--only", choices=["modern", "legacy", "pdu"])
    parser.add_argument("--profile", default="", help="write a cProfile of the measured time there (it slows all down)")
    parser.add_argument("--asyncio", action="store_true", help="asyncio's own loop in place of uvloop")
    parser.add_argument("--serve", choices=["modern", "legacy"], help=argparse.SUPPRESS)
    parser.add_argument("--chain", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        tree = {"modern": modern, "legacy": legacy}[args.serve](args.supplies, args.sensors)
        asyncio.run(serve(tree, args.bmcs, args.chain))
        return 0
    os.environ["CT_BENCH_BMC"] = PASSWORD
    shares: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        certificates = Certificates.make(work)
        for schema in ("modern", "legacy"):
            if args.only in {None, schema}:
                with services(schema, args, certificates.chain_file) as (ports, asked):
                    before = asked()
                    devices = bmcs(ports, certificates, args.interval)
                    work_of = measure(devices, args.interval, args.seconds, args.profile)
                    share, frames, _ = run(work_of, plain=args.asyncio)
                    requests = asked() - before
                shares[schema] = share
                what = f"{args.bmcs} BMCs, {schema} schema, {args.supplies} supplies, {args.sensors} sensors"
                print(f"{said(what, args.interval, share, frames)},", f"{requests} requests in all", flush=True)
        if args.only in {None, "pdu"}:
            ends = [free_port() for _ in range(args.pdus - 1)]
            options = [f"--agent-udpv4-endpoint=127.0.0.1:{port}" for port in ends]
            with snmpsim({"": OURS}, work / "snmp", *options) as agents:
                who = [Community(Key(FAMILIES[n % len(FAMILIES)]), 2) for n in range(args.pdus)]
                devices = [Device(f"pdu{n}", "pdu", Agent("127.0.0.1", who[n], port, 5.0, 1), f"pdu{n}",
                                  interval_seconds=args.interval) for n, port in enumerate([agents.port, *ends])]
                share, frames, _ = run(measure(devices, args.interval, args.seconds, args.profile), plain=args.asyncio)
            shares["pdu"] = share
            print(said(f"{args.pdus} PDUs by SNMP v2c", args.interval, share, frames), flush=True)
    worst = max(shares.get("modern", 0.0), shares.get("legacy", 0.0)) + shares.get("pdu", 0.0)
    print(f"the dearer schema and the PDUs: {worst:.1%} of a core (target {TARGET:.0%}); "
          f"load of this machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
