"""The demo cluster's life: jobs that compute, reduce and checkpoint; GPUs that warm and cool; counters that count.

Time goes in steps of a fixed length, so that what a moment looks like depends on the seed and on the moment alone,
not on who asked before. All nodes are moved together, as columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clustertop.demo.machine import (
    COMPUTE_PORTS,
    CPUS,
    GPU_MEMORY_BYTES,
    GPUS,
    HOST_MEMORY_BYTES,
    PORTS,
    SLOWDOWN_CELSIUS,
    SM_MHZ_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from clustertop.demo.faults import Placed
    from clustertop.demo.plan import Plan

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

STEP_SECONDS = 0.25
JIFFIES_PER_SECOND = 100
_COOLING_SECONDS = 25.0
_HOT_SECONDS = 15.0
_HOT_TARGET_CELSIUS = SLOWDOWN_CELSIUS + 33.0
"""What it warms towards with its cooling gone; the card slows itself down long before."""
_HOT_MOST_CELSIUS = SLOWDOWN_CELSIUS + 3.0
_IDLE_WATTS = 72.0
_PACKET_BYTES = 4096.0
_HW_THERMAL = 0x8 | 0x40
_IDLE_BIT, _POWER_CAP = 0x1, 0x4


class Simulator:
    """All nodes of *plan* from 0 seconds on. *faults* that bear on heat and speed act here, others on the readings."""

    def __init__(self, plan: Plan, seed: int, faults: Iterable[Placed] = ()) -> None:
        count = len(plan.nodes)
        rng = np.random.default_rng((seed, 1))
        self._noise = np.random.default_rng((seed, 2))
        self._faults = [one for one in faults if one.name in {"hot-gpu", "hot-x8", "straggler", "gpu-lost"}]
        jobs = plan.jobs
        # One more than there are jobs: the last column is the idle node's "job".
        self._job = np.array([node.job if node.job >= 0 else len(jobs) for node in plan.nodes], np.intp)
        self._idle = self._job == len(jobs)

        def column(name: str, idle: float) -> Floats:
            return np.array([*(getattr(job, name) for job in jobs), idle])

        self._period, self._phase = column("period", 1.0), column("phase", 0.0)
        self._reduce_share = column("reduce_share", -1.0)
        self._every, self._for = column("checkpoint_every", 1e9), column("checkpoint_for", 0.0)
        self._first = column("first_checkpoint", 1e12)
        self._util, self._watts = column("utilization", 0.0), column("watts", _IDLE_WATTS)
        self._traffic = column("reduce_bytes_per_second", 0.0)
        self._gpu_factor = rng.normal(1.0, 0.012, (count, GPUS))
        self._port_factor = rng.normal(1.0, 0.01, (count, COMPUTE_PORTS))
        self._inlet = rng.uniform(22.0, 27.0, (count, 1)) + rng.normal(0.0, 1.2, (count, GPUS))
        self._resistance = rng.normal(0.058, 0.003, (count, GPUS))
        share = column("memory_share", 0.0)[self._job][:, None]
        self._memory = np.where(share > 0, GPU_MEMORY_BYTES * share + rng.normal(0, 3e8, (count, GPUS)), 4.6e8)
        self.step = 0
        self.util: Floats = np.repeat(self._util[self._job][:, None], GPUS, axis=1)
        self.power: Floats = self._watts[self._job][:, None] * self._gpu_factor
        self.temperature: Floats = self._inlet + self.power * self._resistance
        self._clock: Floats = np.full((count, GPUS), float(SM_MHZ_MAX))
        self._hot = np.zeros((count, GPUS), np.bool_)
        self.sent: Floats = rng.uniform(1e14, 4e15, (count, PORTS))
        self.received: Floats = self.sent * rng.normal(1.0, 0.001, (count, PORTS))
        self._waits: Floats = rng.uniform(1e5, 1e8, (count, PORTS))
        self.busy_cpu: Floats = np.where(self._idle, 0.008, 0.14)
        """Of all CPUs of a node, 0 to 1."""
        self.flow: Floats = np.zeros(count)
        """Bytes per second that each compute port of a node sends for its job."""
        self.followers: list[Callable[[float, float], None]] = []
        """What moves with the nodes: called after each step with the moment and the step's length in seconds."""
        self.bent: Callable[[], tuple[Floats, Floats] | None] = lambda: None
        """What each compute port of a node sends and receives per second, where that is not simply its job's flow."""
        uptime = rng.uniform(3e5, 4e6, count)
        self._jiffies: Floats = np.floor(uptime * CPUS * JIFFIES_PER_SECOND)
        self._idle_jiffies: Floats = np.floor(self._jiffies * 0.87)
        self._load: Floats = np.repeat((self.busy_cpu * CPUS)[None, :], 3, axis=0)
        self._host_memory = HOST_MEMORY_BYTES * np.where(self._idle, 0.97, rng.uniform(0.62, 0.8, count))
        self._management: Floats = rng.uniform(1e10, 1e12, (count, 2))
        self._blocks: tuple[int, Ints, Ints, list[list[float]]] | None = None

    @property
    def seconds(self) -> float:
        """The moment that the state shows, in seconds since the start."""
        return self.step * STEP_SECONDS

    def inlet(self, node: int) -> float:
        """Temperature of the air that a node takes in, in degrees Celsius."""
        return float(self._inlet[node].mean())

    def advance(self, seconds: float) -> None:
        """Go on to the last step at or before *seconds*; never back."""
        last = int(seconds / STEP_SECONDS + 1e-6)
        while self.step < last:
            self.step += 1
            self._move(self.seconds)
            for follow in self.followers:
                follow(self.seconds, STEP_SECONDS)

    def _move(self, now: float) -> None:
        dt = STEP_SECONDS
        position = np.mod(now + self._phase, self._period) / self._period
        reducing = position >= 1.0 - self._reduce_share
        reducing[-1] = False
        saving = np.mod(now - self._first, self._every) < self._for
        saving &= now >= self._first
        job = self._job
        reduce_now, save_now = reducing[job], saving[job]
        util = np.where(save_now, 0.12, np.where(reduce_now, 0.97, 1.0) * self._util[job])
        watts = np.where(save_now, 150.0, np.where(reduce_now, 0.72, 1.0) * self._watts[job])
        noise = self._noise.normal(0.0, 1.0, (len(job), GPUS))
        working = ~self._idle[:, None]
        target = np.clip(util[:, None] * (self._gpu_factor + 0.01 * noise), 0.0, 1.0) * working
        power = watts[:, None] * (self._gpu_factor + np.where(working, 0.02, 0.003) * noise)
        clock = np.where(self._hot, 1185.0, SM_MHZ_MAX - np.clip(power - 620.0, 0.0, 80.0) * 3.0)
        self._apply(now, target, power, clock)
        self._clock = clock
        self.util += (target - self.util) * 0.5
        self.power += (np.minimum(power, 700.0) - self.power) * 0.4
        settled = self._inlet + self.power * self._resistance
        self.temperature += (settled - self.temperature) * (dt / _COOLING_SECONDS)
        self._heat(now, dt)
        self._count(dt, reduce_now, save_now)

    def _apply(self, now: float, util: Floats, power: Floats, clock: Floats) -> None:
        """Bend what the GPUs aim at by the faults that have begun."""
        for one in self._faults:
            if now < one.start_seconds:
                continue
            at = one.node, one.device
            if one.name == "straggler":
                util[at] *= 0.58
                power[at] *= 0.6
                clock[at] = 1095.0
            elif one.name == "gpu-lost":
                util[at] = power[at] = 0.0
            elif self._hot[at]:
                power[at] *= 0.55

    def _heat(self, now: float, dt: float) -> None:
        for one in self._faults:
            if one.name in {"hot-gpu", "hot-x8"} and now >= one.start_seconds:
                at = one.node, one.device
                warmer = self.temperature[at] + (_HOT_TARGET_CELSIUS - self.temperature[at]) * dt / _HOT_SECONDS
                self.temperature[at] = min(warmer, _HOT_MOST_CELSIUS)
                self._hot[at] = self.temperature[at] >= SLOWDOWN_CELSIUS

    def _count(self, dt: float, reducing: NDArray[np.bool_], saving: NDArray[np.bool_]) -> None:
        """Advance the counters by one step."""
        self.flow = self._traffic[self._job] * np.where(saving, 0.0, np.where(reducing, 1.0, 0.08))
        bent = self.bent()
        sent, received = bent if bent is not None else (self.flow, self.flow)
        compute = (sent * dt)[:, None] * self._port_factor
        back = (received * dt)[:, None] * self._port_factor[:, ::-1]
        store_out = np.where(saving, 9e9, np.where(self._idle, 2e4, 1.5e7))[:, None] * dt
        store_in = np.where(self._idle, 3e4, 6e8)[:, None] * dt
        self.sent[:, :COMPUTE_PORTS] += compute
        self.received[:, :COMPUTE_PORTS] += back
        self.sent[:, COMPUTE_PORTS:] += store_out
        self.received[:, COMPUTE_PORTS:] += store_in
        self._waits[:, :COMPUTE_PORTS] += compute / 9e6
        busy = np.where(self._idle, 0.008, np.where(saving, 0.31, np.where(reducing, 0.11, 0.16)))
        self.busy_cpu += (busy - self.busy_cpu) * 0.3
        jiffies = CPUS * JIFFIES_PER_SECOND * dt
        self._jiffies += jiffies
        self._idle_jiffies += jiffies * (1.0 - self.busy_cpu)
        load = self.busy_cpu * CPUS
        self._load += (load - self._load) * np.array([[dt / 60.0], [dt / 300.0], [dt / 900.0]])
        self._management += np.array([4.2e4, 9.1e4]) * dt

    def blocks(self) -> tuple[Ints, Ints, list[list[float]]]:
        """Return what moves, as numbers to send: [nodes, columns, GPUs], [nodes, columns, ports], a list per node.

        The columns are ``machine.GPU_MOVING`` and ``machine.PORT_MOVING``. The list holds jiffies, idle jiffies,
        three loads, available memory, and bytes received and sent of ``eno1``.
        """
        if self._blocks is None or self._blocks[0] != self.step:
            self._blocks = (self.step, self._gpu_block(), self._port_block(), self._host_block())
        return self._blocks[1:]

    def _gpu_block(self) -> Ints:
        util = np.clip(self.util * 100.0, 0.0, 100.0)
        reasons = np.where(self._idle[:, None], _IDLE_BIT, np.where(self.power > 640.0, _POWER_CAP, 0))
        reasons = np.where(self._hot, _HW_THERMAL, reasons)
        block = np.stack((util, util * 0.62, self._memory, self.power * 1000.0, self.temperature,
                          self.temperature + 9.0, np.round(self._clock / 15.0) * 15.0, reasons), axis=1)  # fmt: skip
        whole: Ints = np.rint(block).astype(np.int64)
        return whole

    def _port_block(self) -> Ints:
        out, back = self.sent / _PACKET_BYTES, self.received / _PACKET_BYTES
        block = np.stack((self.sent / 4.0, self.received / 4.0, out, back, out, back,
                          np.mod(self._waits, 4e9), back * 0.9, back * 0.001), axis=1)  # fmt: skip
        whole: Ints = block.astype(np.int64)
        return whole

    def _host_block(self) -> list[list[float]]:
        stack = np.stack((self._jiffies, self._idle_jiffies, *self._load, self._host_memory,
                          self._management[:, 0], self._management[:, 1]), axis=1)  # fmt: skip
        out: list[list[float]] = stack.tolist()
        return out
