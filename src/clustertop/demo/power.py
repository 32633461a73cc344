"""The demo's power: what nodes take, by which supplies and feeds it flows, and what each phase and bank carries.

A node's load is its GPUs' simulated power, fans by their heat, processors by their work, and the rest of the board,
over the supplies' efficiency. It follows the GPUs step by step; the meters smooth it over a second or two and waver a
little.
Power in W, currents in A, [feeds, ...] as ``feeds.Wiring`` numbers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.demo.feeds import PHASES, RATING_AMPS, SUPPLIES, SUPPLY_WATTS, VOLTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.demo.feeds import Wiring
    from clustertop.demo.simulator import Simulator

    Floats = NDArray[np.float64]

POWER_FACTOR = 0.985
BANKS_EACH = 2
"""Banks on each phase, with a breaker each: the first half of the nodes on one, the second half on the other."""
BANK_AMPS = 32.0
RAMP_SECONDS = 285.0
"""In which an overloaded feed climbs to its rating: from 0.34 of it it is at 0.8 after 199 s, at 0.875 after 231 s."""
RAMP_MOST = 1.08
"""Where it stops: a breaker carries this for hours."""
STANDBY_WATTS = 45.0
"""A node that is switched off: its BMC."""
_BOARD_WATTS = 1_050.0
_CPU_IDLE_WATTS, _CPU_WATTS = 250.0, 1_400.0
_FAN_LEAST, _FAN_MOST = 220.0, 900.0
_METER_SECONDS = 1.5
_CALM_SECONDS = 30.0
_BEST_EFFICIENCY, _BEST_LOAD, _LOSS = 0.955, 0.45, 0.03


class Power:
    """The power of all nodes and feeds. It moves with the simulator."""

    def __init__(self, wiring: Wiring, simulator: Simulator, seed: int) -> None:
        self.wiring = wiring
        self._simulator = simulator
        count, feeds = len(wiring.feed_of), len(wiring.feeds)
        rng = np.random.default_rng((seed, 3))
        self._noise = np.random.default_rng((seed, 4))
        split: Floats = rng.normal(1.0, 0.012, (count, PHASES))
        self._split: Floats = split / split.sum(axis=1, keepdims=True)
        """How each node spreads over the phases."""
        self._half = np.zeros(count, np.intp)
        for feed in wiring.feeds:
            self._half[list(feed.nodes[(len(feed.nodes) + 1) // 2 :])] = 1
        self._board: Floats = rng.normal(_BOARD_WATTS, 25.0, count)
        self._base_volts: Floats = rng.normal(VOLTS + 1.0, 0.9, (feeds, PHASES))
        self._wander: Floats = np.zeros((feeds, PHASES))
        self._waver: Floats = np.zeros((feeds, PHASES))
        self._calm: Floats = np.zeros(feeds)
        """Each feed's share of its breaker over the last half minute."""
        self._ramp: dict[int, float] = {}
        self.output: Floats = np.zeros((count, SUPPLIES))
        """What each supply gives to its node."""
        self.input: Floats = np.zeros((count, SUPPLIES))
        """What each supply takes."""
        self.volts: Floats = self._base_volts.copy()
        self.bank_watts: Floats = np.zeros((feeds, BANKS_EACH, PHASES))
        self.kwh: Floats = rng.uniform(2e4, 9e4, feeds)
        self.live: NDArray[np.bool_] = np.ones((count, SUPPLIES), np.bool_)
        """Whether a supply is well and has input."""
        self._move(0.0, 1e9)
        self._calm[:] = self.share()

    @property
    def amps(self) -> Floats:
        """Of each feed's phases: [feeds, 3]."""
        found: Floats = self.bank_amps.sum(axis=1)
        return found

    @property
    def bank_amps(self) -> Floats:
        """Of each bank: [feeds, banks of a phase, phases]."""
        volts = np.where(self.volts > 0, self.volts, np.inf)
        found: Floats = self.bank_watts * (1.0 + self._waver[:, None, :]) / (volts[:, None, :] * POWER_FACTOR)
        return found

    @property
    def phase_watts(self) -> Floats:
        """Of each feed's phases: [feeds, 3]."""
        found: Floats = self.bank_watts.sum(axis=1) * (1.0 + self._waver)
        return found

    def share(self) -> Floats:
        """Of each feed, its worst phase over its breaker's rating."""
        found: Floats = self.amps.max(axis=1) / RATING_AMPS
        return found

    def on(self, node: int) -> bool:
        """Whether the host runs."""
        return bool(self.live[node].any() and self._simulator.seconds < self.wiring.off_from[node])

    def dark(self, node: int) -> bool:
        """Whether a node has no power at all."""
        return not self.live[node].any()

    def failed(self, node: int, supply: int) -> bool:
        """Whether a supply itself is broken."""
        return bool(self._simulator.seconds >= self.wiring.failed_from[node, supply])

    def input_volts(self, node: int, supply: int) -> float:
        """At a supply's input, to neutral."""
        return float(self.volts[self.wiring.feed_of[node, supply]].mean())

    def move(self, now: float, dt: float) -> None:
        """One step of *dt* seconds to the moment *now*."""
        draw = self._noise.normal(0.0, 1.0, (2, *self._wander.shape))
        self._wander += draw[0] * 0.04 - self._wander * 0.01
        self._waver += draw[1] * 0.0008 - self._waver * 0.15
        self._move(now, dt)
        self._calm += (self.share() - self._calm) * (dt / _CALM_SECONDS)
        self.kwh += self.bank_watts.sum(axis=(1, 2)) * (dt / 3.6e6)

    def _move(self, now: float, dt: float) -> None:
        wiring = self.wiring
        fed = now < wiring.dead_from
        self.volts = np.where(fed[:, None], self._base_volts + self._wander, 0.0)
        self.live = fed[wiring.feed_of] & (now < wiring.failed_from)
        sharing = np.maximum(self.live.sum(axis=1, keepdims=True), 1)
        aim = np.where(self.live, self._load(now)[:, None] / sharing, 0.0)
        # A supply without input gives nothing at once; a meter takes a moment to follow what changes.
        follow = min(dt / _METER_SECONDS, 1.0)
        self.output = np.where(self.live, self.output + (aim - self.output) * follow, 0.0)
        efficiency = _BEST_EFFICIENCY - _LOSS * np.abs(self.output / SUPPLY_WATTS - _BEST_LOAD)
        self.input = self.output / efficiency
        self._spread(now, fed)

    def _load(self, now: float) -> Floats:
        """What each node's supplies have to give together."""
        simulator = self._simulator
        heat = np.clip((simulator.temperature.mean(axis=1) - 30.0) / 40.0, 0.0, 1.0)
        fans = _FAN_LEAST + (_FAN_MOST - _FAN_LEAST) * heat * heat
        processors = _CPU_IDLE_WATTS + _CPU_WATTS * simulator.busy_cpu
        running = simulator.power.sum(axis=1) + fans + processors + self._board
        return np.where(now < self.wiring.off_from, running, STANDBY_WATTS)

    def _spread(self, now: float, fed: NDArray[np.bool_]) -> None:
        feeds = len(self.wiring.feeds)
        slot = (self.wiring.feed_of * BANKS_EACH + self._half[:, None]).ravel()
        flat = self.input[:, :, None] * self._split[:, None, :]
        for phase in range(PHASES):
            carried = np.bincount(slot, flat[:, :, phase].ravel(), feeds * BANKS_EACH)
            self.bank_watts[:, :, phase] = carried.reshape(feeds, BANKS_EACH)
        for feed, start in self.wiring.overload.items():
            if now >= start and fed[feed]:
                self._overload(feed, now - start)

    def _overload(self, feed: int, age: float) -> None:
        """Load the feed with what it lacks to a steady climb, evenly over its phases."""
        begin = self._ramp.setdefault(feed, float(self._calm[feed]))
        share = min(begin + age * (1.0 - begin) / RAMP_SECONDS, RAMP_MOST)
        aim = share * RATING_AMPS * self.volts[feed] * POWER_FACTOR
        lacking = np.maximum(aim - self.bank_watts[feed].sum(axis=0), 0.0)
        self.bank_watts[feed] += lacking / BANKS_EACH
