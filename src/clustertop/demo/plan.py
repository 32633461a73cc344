"""The demo cluster on paper: nodes, racks, leaves, and which job trains where. Decided by the seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

MAX_NODES = 2048
SMALL_FLEET = 128
"""Up to this many nodes a rack holds 8, beyond it 16."""
NODES_PER_FEED = 4
"""Nodes next to each other that hang on one feed, or one pair of feeds. A rack holds a whole number of such groups."""
_JOB_SIZES = (1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 64)
_IDLE_SHARE = 0.06


_FIRST_JOB = 48_213
_USERS = ("amara", "bjarne", "chidi", "dalia", "emeka", "farah")
_COMMANDS = (
    "python3 -u pretrain.py --config configs/70b.yaml --tp 8 --zero 1",
    "python3 train.py --model vit-g --epochs 90 --amp",
    "python3 finetune.py --base 8b --lora-rank 64",
)


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node of the demo: its name, where it stands, and its job (-1: idle)."""

    name: str
    rack: str
    leaf: str
    job: int


@dataclass(frozen=True, slots=True)
class Job:
    """A training job's rhythm. Times in seconds."""

    period: float
    """One step: compute, then all-reduce."""
    reduce_share: float
    """Of a step, the part in which all wait for the all-reduce."""
    phase: float
    checkpoint_every: float
    checkpoint_for: float
    first_checkpoint: float
    utilization: float
    """Mean while it computes, 0 to 1."""
    watts: float
    """Mean of a GPU while it computes."""
    reduce_bytes_per_second: float
    """Through each compute port while it reduces."""
    memory_share: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes and jobs."""

    nodes: tuple[PlannedNode, ...]
    jobs: tuple[Job, ...]


def slurm_id(job: int) -> str:
    """The number that Slurm gave to job *job* of the plan."""
    return str(_FIRST_JOB + 7 * job)


def owner(job: int) -> tuple[str, str]:
    """User and command of job *job*."""
    return _USERS[job % len(_USERS)], _COMMANDS[job % len(_COMMANDS)]


def make_plan(count: int, seed: int) -> Plan:
    """Return the plan of *count* nodes. Raises ValueError outside 1 to 2,048."""
    if not 1 <= count <= MAX_NODES:
        raise ValueError(f"--nodes {count}: the demo has 1 to {MAX_NODES} nodes")
    rng = random.Random(f"{seed}/plan")  # noqa: S311 - a repeatable choice, not a secret
    digits = max(3, len(str(count)))
    per_rack = 8 if count <= SMALL_FLEET else 16
    # At least one idle node, where there are enough for anyone to miss it.
    idle = set(rng.sample(range(count), max(1, round(count * _IDLE_SHARE)))) if count >= 4 else set()
    nodes: list[PlannedNode] = []
    jobs: list[Job] = []
    left = 0
    for number in range(count):
        job = -1
        if number not in idle:
            if left == 0:
                left = rng.choice(_JOB_SIZES)
                jobs.append(_job(rng))
            left -= 1
            job = len(jobs) - 1
        rack = number // per_rack + 1
        nodes.append(PlannedNode(f"gpu{number + 1:0{digits}d}", f"r{rack}", f"leaf{(rack + 1) // 2}", job))
    return Plan(tuple(nodes), tuple(jobs))


def _job(rng: random.Random) -> Job:
    period = rng.uniform(4.0, 14.0)
    every = rng.uniform(240.0, 420.0)
    return Job(
        period=period,
        reduce_share=rng.uniform(0.12, 0.28),
        phase=rng.uniform(0.0, period),
        checkpoint_every=every,
        checkpoint_for=rng.uniform(8.0, 16.0),
        first_checkpoint=rng.uniform(0.6, 1.0) * every,
        utilization=rng.uniform(0.93, 0.99),
        watts=rng.uniform(560.0, 665.0),
        reduce_bytes_per_second=rng.uniform(24e9, 42e9),
        memory_share=rng.uniform(0.72, 0.95),
    )
