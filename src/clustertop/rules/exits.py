"""The three exit signals of the field report: when a training run is better stopped than watched.

Cross-rack share over 30 %, NCCL init over 15 s, utilisation under 75 % for five minutes: per job where jobs are known,
else per group, rack, or the rest of the fleet. What is not measured is never "no".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from clustertop.rules import crossing, inits
from clustertop.signals import host
from clustertop.signals.coverage import LEAST_COVERAGE
from clustertop.signals.jobs import UNKNOWN
from clustertop.store.history import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from clustertop.store.view import FleetView

Signal = Literal["cross_rack_share", "nccl_init", "utilization"]
Answer = Literal["yes", "no", "not measured"]
Kind = Literal["job", "group", "rack", "nodes"]

LIMITS: Mapping[Signal, float] = {"cross_rack_share": 0.30, "nccl_init": 15.0, "utilization": 0.75}
"""Beyond it the answer is yes: above, above, below."""
UNITS: Mapping[Signal, str] = {"cross_rack_share": "ratio", "nccl_init": "s", "utilization": "ratio"}
TITLES: Mapping[Signal, str] = {
    "cross_rack_share": "cross-rack share", "nccl_init": "NCCL init", "utilization": "utilisation"}
SUSTAINED_SECONDS = 300.0
NO_METER: Mapping[Signal, str] = {
    "cross_rack_share": "no meter of traffic between racks is read", "nccl_init": "no NCCL log is read",
    "utilization": ""}


@dataclass(frozen=True, slots=True)
class Figure:
    """What a meter says of one job, group or rack."""

    value: float | None
    """In the unit of its signal; None: it could not be measured."""
    note: str = ""
    """The method, or why there is no value."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One exit signal of one job, group or rack."""

    signal: Signal
    answer: Answer
    value: float | None
    """What was held against the limit; of utilisation the mean of now. None: nothing is known."""
    note: str = ""
    """Why it is not measured; of a "yes" that could not be watched for long enough, for how long it was."""
    known: int | None = None
    """Of utilisation: how many GPUs tell."""
    of: int | None = None
    """And how many are in use, or may be."""
    sustained: bool = True
    """False: it holds now, but was not watched for the whole time that it has to last."""


@dataclass(frozen=True, slots=True)
class Exits:
    """The verdict line of one job, group or rack."""

    kind: Kind
    name: str
    nodes: tuple[int, ...]
    verdicts: tuple[Verdict, ...]


def exits(view: FleetView, meters: Mapping[Signal, Mapping[str, Figure]] | None = None) -> list[Exits]:
    """Judge every job, and what nodes of unknown jobs have in common.

    Args:
        view: the fleet.
        meters: by signal, what its meter says by name of the job, group or rack; a signal that is left out has no
            meter, but for NCCL's init and the share between racks: these are read from the view where they are known.
    """
    meters = meters or {}
    code = view.jobs.gpu
    every = [(Exits("job", name, tuple(view.jobs.members[number].tolist()), ()), code == number)
             for number, name in enumerate(view.jobs.names)]
    owner = view["gpu"].node
    for one in _places(view):
        there = np.isin(owner, one.nodes)
        # Where every GPU there is some job's, the place has no line of its own.
        if not there.any() or (there & (code < 0)).any():
            every.append((one, there & (code < 0)))
    return [Exits(one.kind, one.name, one.nodes, (
        _share(view, one, meters), _init(view, one, meters),
        _utilization(view, one.nodes, mine))) for one, mine in every]


def _places(view: FleetView) -> list[Exits]:
    """What the nodes of which no job is known have in common: their groups, else their rack, else nothing."""
    members: dict[tuple[Kind, str], list[int]] = {}
    rest = []
    for number, node in enumerate(view.nodes):
        if view.jobs.node[number] != UNKNOWN:
            continue
        groups = [group for group in node.groups if group not in {node.rack, node.leaf}]
        for group in groups:
            members.setdefault(("group", group), []).append(number)
        if not groups and node.rack:
            members.setdefault(("rack", node.rack), []).append(number)
        if not groups and not node.rack:
            rest.append(number)
    out = [Exits(kind, name, tuple(nodes), ()) for (kind, name), nodes in sorted(members.items())]
    if rest:
        only = view.nodes[rest[0]].name if len(rest) == 1 else "the other nodes" if out else "all nodes"
        out.append(Exits("nodes", only, tuple(rest), ()))
    return out


def _measured(signal: Signal, name: str, meters: Mapping[Signal, Mapping[str, Figure]]) -> Verdict:
    """A signal whose meter gives one figure: above its limit, or not."""
    if signal not in meters:
        return Verdict(signal, "not measured", None, NO_METER[signal])
    figure = meters[signal].get(name, Figure(None, "nothing is known of it"))
    if figure.value is None or np.isnan(figure.value):
        return Verdict(signal, "not measured", None, figure.note)
    return Verdict(signal, "yes" if figure.value > LIMITS[signal] else "no", figure.value, figure.note)


def _init(view: FleetView, one: Exits, meters: Mapping[Signal, Mapping[str, Figure]]) -> Verdict:
    if "nccl_init" in meters or not inits.read(view):
        return _measured("nccl_init", one.name, meters)
    return _measured("nccl_init", one.name, {
        "nccl_init": {one.name: Figure(*inits.longest(view, one.nodes, LIMITS["nccl_init"]))}})


def _share(view: FleetView, one: Exits, meters: Mapping[Signal, Mapping[str, Figure]]) -> Verdict:
    if "cross_rack_share" in meters or not crossing.read(view):
        return _measured("cross_rack_share", one.name, meters)
    return _measured("cross_rack_share", one.name, {
        "cross_rack_share": {one.name: Figure(*crossing.share(view, one.kind, one.name))}})


def _utilization(view: FleetView, nodes: tuple[int, ...], mine: NDArray[np.bool_]) -> Verdict:
    """Whether the mean over the GPUs in use has been low for as long as it has to be."""
    gpus = view["gpu"]
    unread = _unread_gpus(view, nodes, mine)
    # A GPU in MIG mode has no utilisation of its own; one that holds no memory has no work.
    rows = np.flatnonzero(mine & (gpus.col("mig_mode") != 1) & (gpus.col("in_use") != 0))
    of = len(rows) + unread
    if not of:
        why = "no GPU is in use" if mine.any() else "none of its GPUs is known"
        return Verdict("utilization", "not measured", None, why, 0, 0)
    now = gpus.col("utilization_ratio")[rows]
    known = int((~np.isnan(now)).sum())
    value = float(np.nanmean(now)) if known else None
    if value is None or known < LEAST_COVERAGE * of:
        return Verdict("utilization", "not measured", value, "too few GPUs tell", known, of)
    if value >= LIMITS["utilization"]:
        return Verdict("utilization", "no", value, "", known, of)
    times, samples = view.history.samples("gpu", "utilization_ratio", len(gpus))
    low, watched, since = _low_for(times, samples[:, rows], of, view.at)
    if since is not None:
        return Verdict("utilization", "no", value, f"under the limit for {_seconds(since)}", known, of)
    if low:
        return Verdict("utilization", "yes", value, "", known, of)
    return Verdict("utilization", "yes", value, f"at this moment; watched for {_seconds(watched)} of "
                   f"{_seconds(SUSTAINED_SECONDS)}", known, of, sustained=False)


def _low_for(
    times: NDArray[np.float64], samples: NDArray[np.float32], of: int, now: float
) -> tuple[bool, float, float | None]:
    """(low all the time, seconds watched, None; or seconds since the mean was last not low).

    Args:
        times: [samples] rising.
        samples: [samples, GPUs] NaN where unknown.
        of: how many GPUs there should be; moments at which too few of them tell are not watched.
        now: our monotonic clock.
    """
    recent = times > now - SUSTAINED_SECONDS - STEP_SECONDS
    times, samples = times[recent], samples[recent].astype(np.float64)
    told = (~np.isnan(samples)).sum(axis=1)
    judged = told >= max(LEAST_COVERAGE * of, 1)
    times, told, samples = times[judged], told[judged], samples[judged]
    if not len(times):
        return False, 0.0, None
    mean = np.nansum(samples, axis=1) / told
    high = np.flatnonzero(mean >= LIMITS["utilization"])
    if len(high):
        return False, now - float(times[high[-1]]), now - float(times[high[-1]])
    # The rings hold five minutes: all but a step of it, with hardly a gap, is all of it.
    span = now - float(times[0])
    whole = span >= SUSTAINED_SECONDS - 2 * STEP_SECONDS
    dense = len(times) >= LEAST_COVERAGE * (SUSTAINED_SECONDS / STEP_SECONDS)
    return whole and dense, span, None


def _unread_gpus(view: FleetView, nodes: tuple[int, ...], mine: NDArray[np.bool_]) -> int:
    """How many GPUs nodes are likely to have of which none is listed: as many as their peers, or as was expected."""
    gpus, groups = view["gpu"], view["group"]
    counts = np.bincount(gpus.node, minlength=len(view.nodes))
    usual = max((int(counts[node]) for node in nodes), default=0) or 1
    missing = 0
    for node in nodes:
        if counts[node]:
            continue
        row = groups.row_of(node, "gpu")
        if row is not None and groups.value("group_state", row) == host.OFF:
            continue
        expected = view["node"].value("gpus_known", node)
        missing += int(expected) if expected else usual
    return missing


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
