"""What front ends draw of the traffic between racks and leaves. Frozen; table ``traffic`` has the figures by scope."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

NO_RACKS = (
    'no rack map, so what crosses racks is unknown: write [racks] in the config (r1 = "gpu[001-016]"), or name a '
    "source in [topology]: csv, groups, slurm (with guess_racks = true), lldp, ibnetdiscover"
)
NO_METER = (
    "no meter of traffic is read: switch [sockets] on for TCP, name the leaf switches under [switches.NAME] or a "
    "fabric query under [fabric], or point [nccl] at the logs of NCCL"
)


@dataclass(frozen=True, slots=True)
class Meter:
    """One way of measuring, and how much of the fleet it sees."""

    name: str
    """``sockets``, ``uplinks``, ``fabric``, ``nccl``, ``order``."""
    label: str
    """What it is, and whether it measures, estimates or predicts."""
    definition: str
    """``cross-rack``, ``through spine``, or both."""
    read: int
    of: int
    unit: str
    """What is counted: ``nodes``, ``leaves``, ``jobs``."""
    why: str = ""
    """Why it says nothing; empty where it does."""

    @property
    def coverage(self) -> str:
        """``28/32 nodes``."""
        return f"{self.read}/{self.of} {self.unit}"


@dataclass(frozen=True, slots=True)
class Talker:
    """Bytes from one node to another in another rack."""

    source: int
    target: int
    source_rack: str
    target_rack: str
    bytes_per_second: float
    rtt_seconds: float | None
    jitter_seconds: float | None


@dataclass(frozen=True, slots=True)
class Uplink:
    """One uplink of a leaf. None: unknown."""

    name: str
    peer: str
    up: bool | None
    load: float | None
    """Of its speed, the busier direction."""
    out_bytes_per_second: float | None
    discards_per_second: float | None
    pause_frames_per_second: float | None
    role_by: str = ""


@dataclass(frozen=True, slots=True)
class LeafPicture:
    """One leaf switch, by its own counters. None: unknown, see ``why``."""

    name: str
    meter: str
    """``uplinks`` or ``fabric``."""
    ratio: float | None
    host_in: float | None
    """Bytes per second from its hosts."""
    uplink_out: float | None
    uplinks: tuple[Uplink, ...]
    load: float | None
    """Of the busiest uplink."""
    imbalance: float | None
    discards: float | None
    """Of its uplinks, per second."""
    pause: float | None
    down: tuple[str, ...] = ()
    """Uplinks that were up and are not."""
    unknown_ports: tuple[str, ...] = ()
    """Ports that carry bytes in a role that nobody knows, or have no rate."""
    why: str = ""
    busiest: str = ""
    doubtful: tuple[str, ...] = ()
    """Of uplinks that were down when their state was last known, or are no longer reported: what is not known now."""
    dark: tuple[str, ...] = ()
    """Uplinks that are down, and were not seen up since the console began."""
    discards_why: str = ""
    """Which uplinks do not tell, where others do; then there is no sum."""
    pause_why: str = ""
    fullest: str = ""
    """The uplink that ``imbalance`` is of: by what goes out."""
    unplaced: float = 0.0
    """Bytes per second by ports in a role that nobody knows, the busier way."""
    dropping: tuple[tuple[str, str, float], ...] = ()
    """Host ports that drop packets: name, who hangs there by LLDP or the alias, how many a second; most first."""


def _none() -> NDArray[np.float64]:
    return np.empty(0)


@dataclass(frozen=True, eq=False, slots=True)
class TrafficPicture:
    """Everything about traffic at one moment."""

    at: float = float("-inf")
    """Our monotonic clock."""
    sentences: tuple[str, ...] = ()
    """What to configure for what is unknown; empty where nothing is missing."""
    racks: tuple[str, ...] = ()
    """In order of name."""
    matrix: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    """[racks, racks] bytes per second from the row's rack to the column's, by sockets; NaN where no node of either rack
    is read. At least that much where ``rack_read`` is less than ``rack_nodes``."""
    unplaced: NDArray[np.float64] = field(default_factory=_none)
    """[racks] between the rack and what is in no rack, both ways."""
    rack_nodes: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    rack_read: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    """[racks] nodes, and nodes whose sockets are read."""
    talkers: tuple[Talker, ...] = ()
    """Pairs of nodes in different racks, most bytes first."""
    strangers: tuple[tuple[str, float], ...] = ()
    """Addresses and nodes in no rack, with their bytes per second, most first."""
    meters: tuple[Meter, ...] = ()
    leaves: tuple[LeafPicture, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    """Key of a scope to its row in table ``traffic``."""
    worst_peer: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    """[nodes] the peer of the node's worst link; negative: none is known."""

    peer_node: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    """[rows of table ``peer``] the node that has the peer's address; as many as there are nodes where none of ours has.
    Of a row that is not in it yet nothing is known."""

    def leaf(self, name: str) -> LeafPicture | None:
        """The leaf of that name."""
        return next((one for one in self.leaves if one.name == name), None)
