"""What reading PDUs over SNMP costs the console, and what pysnmp's high-level functions cost for the same values.

    python bench/pdu.py [--pdus 64] [--rounds 6] [--secure]

A real agent (snmpsim, in a process of its own) serves the tests' fixtures; as many sources as *--pdus* read them, round
after round, as fast as they are answered. Measured in one run, from this process's CPU time: the whole
read of a PDU, a usual read (what moves), a read with its outlets, and the same usual OIDs by pysnmp's ``get_cmd``. The
share of a core is that of one usual read every 10 s, one with outlets every minute and a whole one every ten minutes.
Exits with 1 where the target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pysnmp.hlapi.v3arch.asyncio import (  # noqa: E402
    CommunityData,
    ContextData,
    Null,
    ObjectIdentifier,
    SnmpEngine,
    UdpTransportTarget,
    get_cmd,
)

from clustertop.sources.pdu import Pace, Pdu  # noqa: E402
from pdus import OURS, Snmpsim, snmpsim  # noqa: E402

TARGET = 0.05
"""Of one core, for 64 PDUs."""
FAMILIES = ("apc-rpdu", "raritan-px2", "eaton-g3", "sentry4", "vertiv-geist", "enlogic", "panduit", "liebert-mph2")
NEVER = 1e12


async def high_level(agents: Snmpsim, pdus: list[Pdu], rounds: int) -> float:
    """CPU seconds of a PDU's usual OIDs by pysnmp's own functions."""
    engine = SnmpEngine()
    target = await UdpTransportTarget.create(("127.0.0.1", agents.port), timeout=5, retries=1)

    async def one(pdu: Pdu) -> None:
        community = CommunityData(pdu.client.agent.who.community.reveal())  # type: ignore[union-attr]
        names = pdu.moving
        for start in range(0, len(names), 24):
            part = [(ObjectIdentifier(name), Null("")) for name in names[start:start + 24]]
            error, *_ = await get_cmd(engine, community, target, ContextData(), *part, lookupMib=False)
            assert not error, error

    await asyncio.gather(*(one(pdu) for pdu in pdus))
    began = time.process_time()
    for _ in range(rounds):
        for pdu in pdus:
            await one(pdu)
    spent = (time.process_time() - began) / rounds / len(pdus)
    engine.close_dispatcher()
    return spent


async def reads(pdus: list[Pdu], rounds: int) -> float:
    """CPU seconds of a read, on average; a few at a time, since one process plays all the agents."""
    few = asyncio.Semaphore(8)

    async def one(pdu: Pdu) -> None:
        async with few:
            await pdu.read()

    began = time.process_time()
    for _ in range(rounds):
        await asyncio.gather(*(one(pdu) for pdu in pdus))
    return (time.process_time() - began) / rounds / len(pdus)


async def measure(agents: Snmpsim, count: int, rounds: int, *, secure: bool) -> bool:
    """Measure and print; returns whether the target was met."""
    def made(number: int, pace: Pace) -> Pdu:
        name = FAMILIES[number % len(FAMILIES)]
        return Pdu(agents.secure(name, timeout=20) if secure else agents.agent(name, timeout=20), pace=pace)

    usual = [made(number, Pace(NEVER, NEVER)) for number in range(count)]
    outlets = [made(number, Pace(NEVER, 0)) for number in range(count)]
    whole = [made(number, Pace(0, NEVER)) for number in range(count)]
    for group in (usual, outlets, whole):
        await reads(group, 1)
    cost = {"whole": await reads(whole, max(1, rounds // 3)), "usual": await reads(usual, rounds),
            "outlets": await reads(outlets, rounds)}
    values = sum(len(pdu.moving) for pdu in usual) / count
    share = count * (cost["usual"] * (1 / 10 - 1 / 60) + cost["outlets"] / 60 + cost["whole"] / 600)
    print(f"{count} PDUs of {len(FAMILIES)} families, {'v3 with privacy' if secure else 'v2c'}, "
          f"{values:.0f} moving values each without outlets")
    for name, seconds in cost.items():
        print(f"  {name:8} {seconds * 1e3:6.1f} ms CPU a read")
    if not secure:
        other = await high_level(agents, usual, rounds)
        times = other / cost["usual"]
        print(f"  get_cmd  {other * 1e3:6.1f} ms CPU for the usual values, {times:.1f} times a usual read")
    print(f"  share of a core: {share:.1%} (target {TARGET * count / 64:.1%})")
    for pdu in (*usual, *outlets, *whole):
        pdu.close()
    return share <= TARGET * count / 64


def main() -> int:
    """Run the bench; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pdus", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--secure", action="store_true", help="SNMPv3 with authentication and privacy")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work, snmpsim({"": OURS}, Path(work)) as agents:
        return 0 if asyncio.run(measure(agents, args.pdus, args.rounds, secure=args.secure)) else 1


if __name__ == "__main__":
    sys.exit(main())
