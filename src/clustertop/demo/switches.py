"""The demo's leaf switches: ports, counters, and their IF-MIB tables (RFC 2863). They move with the simulator.

A leaf of the plan carries all eight compute ports of its nodes, as a bond per node (8 times 400 Gb/s) with the node's
name in its alias, and half as many uplinks of 8 times 800 Gb/s, four at least, so nothing is oversubscribed. It
answers as an Ethernet leaf does, although the nodes' own ports say InfiniBand.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from clustertop.demo import ber
from clustertop.demo.traffic import RAILS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from clustertop.demo.faults import Placed
    from clustertop.demo.plan import Plan
    from clustertop.demo.simulator import Simulator
    from clustertop.demo.snmp_agent import Value
    from clustertop.demo.traffic import Traffic
    from clustertop.sources.oids import Oid

    Floats = NDArray[np.float64]

HOST_MBITS, UPLINK_MBITS = RAILS * 400_000, RAILS * 800_000
FIRST_UPLINK = 101
"""ifIndex of the first uplink; host ports begin at 1."""
MANAGEMENT = 999
_LEAST_UPLINKS = 4
_CONTROL_BYTES_PER_SECOND = 2_000.0
_IF: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1)
_IFX: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
_PAUSE: Oid = (1, 3, 6, 1, 2, 1, 10, 7, 10, 1)
_SYSTEM: Oid = (1, 3, 6, 1, 2, 1, 1)
_OBJECT_ID: Oid = (1, 3, 6, 1, 4, 1, 8072, 3, 2, 10)
_ETHERNET, _UP, _DOWN = 6, 1, 2


class Switches:
    """All leaves. Counters in bytes, frames and packets since the start."""

    def __init__(self, plan: Plan, traffic: Traffic, simulator: Simulator, seed: int, faults: Iterable[Placed] = ()
                 ) -> None:  # fmt: skip
        self._traffic, self._simulator = traffic, simulator
        self.names = list(dict.fromkeys(node.leaf for node in plan.nodes))
        at = {name: number for number, name in enumerate(self.names)}
        self.leaf: NDArray[np.intp] = np.array([at[node.leaf] for node in plan.nodes], np.intp)
        self.node_names = [node.name for node in plan.nodes]
        count = len(plan.nodes)
        self.uplinks = max(_LEAST_UPLINKS, int(np.bincount(self.leaf).max() + 1) // 2)
        """Of each leaf."""
        rng = np.random.default_rng((seed, 6))
        shape = len(self.names), self.uplinks
        self._weights: Floats = rng.normal(1.0, 0.06, (2, *shape)).clip(0.8, 1.2)
        """How flows happen to be spread over the uplinks, out and in."""
        self._down = [(one.start_seconds, int(self.leaf[one.node]), one.device % self.uplinks)
                      for one in faults if one.name == "uplink-down"]  # fmt: skip
        # From the node into the switch, and out of it to the node.
        self.host_in: Floats = rng.uniform(1e14, 4e15, count)
        self.host_out: Floats = rng.uniform(1e14, 4e15, count)
        self.up_out: Floats = rng.uniform(1e14, 4e15, shape)
        self.up_in: Floats = rng.uniform(1e14, 4e15, shape)
        self.out_discards: Floats = np.zeros(count)
        self.sent_pause: Floats = np.zeros(count)
        """Pause frames to a node: it has to wait."""
        self.got_pause: Floats = np.zeros(count)
        self._uptime_hundredths = rng.integers(10**8, 4 * 10**8, len(self.names))

    def up(self) -> NDArray[np.bool_]:
        """Which uplinks are up: [leaves, uplinks]."""
        found = np.ones(self.up_out.shape, np.bool_)
        for start, leaf, uplink in self._down:
            if self._simulator.seconds >= start:
                found[leaf, uplink] = False
        return found

    def uptime(self, leaf: int) -> int:
        """sysUpTime of a leaf, in hundredths of a second."""
        return int(self._uptime_hundredths[leaf]) + int(self._simulator.seconds * 100)

    def move(self, _now: float, dt: float) -> None:
        """Count what one step of *dt* seconds carried."""
        source, target, rate = self._traffic.edges()
        count, leaves = len(self.leaf), len(self.names)
        amount = rate * (RAILS * dt)
        self.host_in += np.bincount(source, amount, count) + _CONTROL_BYTES_PER_SECOND * dt
        self.host_out += np.bincount(target, amount, count) + _CONTROL_BYTES_PER_SECOND * dt
        crossing = self.leaf[source] != self.leaf[target]
        out = np.bincount(self.leaf[source[crossing]], amount[crossing], leaves)
        into = np.bincount(self.leaf[target[crossing]], amount[crossing], leaves)
        open_ = self.up()
        for counters, total, weights in ((self.up_out, out, self._weights[0]), (self.up_in, into, self._weights[1])):
            share = np.where(open_, weights, 0.0)
            share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-9)
            counters += total[:, None] * share + np.where(open_, _CONTROL_BYTES_PER_SECOND * dt, 0.0)
        focus = self._traffic.incast()
        if focus is not None:
            self.out_discards[focus] += 240.0 * dt
            self.sent_pause += np.bincount(source[target == focus], minlength=count) * (1_800.0 * dt)
            self.got_pause[focus] += 5.0 * dt

    def table(self, leaf: int) -> dict[Oid, Value]:
        """The objects of a leaf."""
        name = self.names[leaf]
        rows: dict[Oid, Value] = {
            (*_SYSTEM, 1, 0): _text("Simulated leaf switch of the demo, Linux"),
            (*_SYSTEM, 2, 0): ber.oid(_OBJECT_ID),
            (*_SYSTEM, 3, 0): lambda: ber.integer(self.uptime(leaf), ber.TIMETICKS),
            (*_SYSTEM, 5, 0): _text(name),
        }
        for place, node in enumerate(np.flatnonzero(self.leaf == leaf).tolist()):
            self._host(rows, place, node)
        for uplink in range(self.uplinks):
            self._uplink(rows, leaf, uplink)
        _port(rows, MANAGEMENT, "eth0", "management", 1_000, lambda: True,
              lambda: self._simulator.seconds * 900.0, lambda: self._simulator.seconds * 4_000.0)  # fmt: skip
        return rows

    def _host(self, rows: dict[Oid, Value], place: int, node: int) -> None:
        index = place + 1
        _port(rows, index, f"Ethernet1/{index}", f"{self.node_names[node]} bond0", HOST_MBITS, lambda: True,
              partial(_item, self.host_in, node), partial(_item, self.host_out, node),
              partial(_item, self.out_discards, node))  # fmt: skip
        rows[(*_PAUSE, 3, index)] = partial(_counter, partial(_item, self.got_pause, node), ber.COUNTER32)
        rows[(*_PAUSE, 4, index)] = partial(_counter, partial(_item, self.sent_pause, node), ber.COUNTER32)

    def _uplink(self, rows: dict[Oid, Value], leaf: int, uplink: int) -> None:
        index = FIRST_UPLINK + uplink
        _port(rows, index, f"Ethernet2/{uplink + 1}", f"uplink to spine{uplink // 2 + 1}", UPLINK_MBITS,
              lambda: bool(self.up()[leaf, uplink]), partial(_item, self.up_in[leaf], uplink),
              partial(_item, self.up_out[leaf], uplink))  # fmt: skip


def _item(counters: Floats, place: int) -> float:
    return float(counters[place])


def _text(text: str) -> bytes:
    return ber.cell(ber.OCTETS, text.encode())


def _counter(made: Callable[[], float], tag: int = ber.COUNTER64) -> bytes:
    bits = 64 if tag == ber.COUNTER64 else 32
    return ber.integer(int(made()) % (1 << bits), tag)


def _port(rows: dict[Oid, Value], index: int, name: str, alias: str, mbits: int, up: Callable[[], bool],
          received: Callable[[], float], sent: Callable[[], float], discards: Callable[[], float] = lambda: 0.0
          ) -> None:  # fmt: skip
    """A row of ifTable and ifXTable. 32-bit octets are left out: they would go round within a second."""
    rows.update({
        (*_IF, 1, index): ber.integer(index),
        (*_IF, 2, index): _text(name),
        (*_IF, 3, index): ber.integer(_ETHERNET),
        (*_IF, 5, index): ber.integer(min(mbits * 10**6, 4_294_967_295), ber.GAUGE32),
        (*_IF, 7, index): ber.integer(_UP),
        (*_IF, 8, index): lambda: ber.integer(_UP if up() else _DOWN),
        (*_IF, 13, index): ber.integer(0, ber.COUNTER32),
        (*_IF, 14, index): ber.integer(0, ber.COUNTER32),
        (*_IF, 19, index): partial(_counter, discards, ber.COUNTER32),
        (*_IF, 20, index): ber.integer(0, ber.COUNTER32),
        (*_IFX, 1, index): _text(name),
        (*_IFX, 6, index): partial(_counter, received),
        (*_IFX, 10, index): partial(_counter, sent),
        (*_IFX, 15, index): ber.integer(mbits, ber.GAUGE32),
        (*_IFX, 18, index): _text(alias),
        (*_IFX, 19, index): ber.integer(0, ber.TIMETICKS),
    })
