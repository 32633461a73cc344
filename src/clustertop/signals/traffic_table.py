"""Table ``traffic``: what share of the bytes leaves its rack or goes through the spine, a row per scope.

A scope is the fleet, a job, a configured group or a leaf; its key says which (``fleet``, ``job/4711``, ``group/a``,
``leaf/leaf3``). All columns are worked out at the console (:mod:`clustertop.store.traffic`). Each share has a column of
its own meter and definition; they are never mixed. Estimated and predicted ones say so in their help and label.

Attributes: ``kind`` (fleet|job|group|leaf), ``name``, ``nodes`` (folded), ``definition`` (cross-rack|through spine) and
``meter`` of ``share_ratio``, ``why`` (why there is no share), ``unreliable`` (meters that may not alert, and beside
which stronger one), ``unplaced`` (what is not in the map, most bytes first), ``notes`` (list: coverage, better order,
shared nodes), ``order_by`` (who says the order of ranks), ``uplink`` (of a leaf: the one that ``uplink_load_ratio`` is
of), ``down`` (of a leaf: its uplinks that are down).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.model import Attr

FLEET = "fleet"
KINDS = ("fleet", "job", "group", "leaf")
PLURAL = {"fleet": "fleets", "job": "jobs", "group": "groups", "leaf": "leaves"}
_IFMIB = "https://www.rfc-editor.org/rfc/rfc2863"
_TCP_INFO = "https://man7.org/linux/man-pages/man7/tcp.7.html"


def _share(name: str, words: str, label: str, source: str = "", *, history: bool = False) -> Metric:
    return Metric(name, "ratio", words, kind="derived", label=label, source=source, history=history)


TABLE = table("traffic", "", "traffic between racks and leaves", (
    _share("share_ratio", "bytes that leave their rack, of those placed; through the spine where no rack share is "
           "known; which of them, and by which meter, stands beside it", "share", history=True),
    _share("judged_ratio", "the same where it may be judged: the narrowest scope that is known, enough nodes read, "
           "meters that agree; of at least 1 MB/s, so that what is at rest crosses nothing", "judged", history=True),
    _share("socket_cross_rack_ratio", "TCP bytes that leave their rack, of those whose both ends are placed",
           "cross-rack", _TCP_INFO),
    _share("socket_spine_ratio", "TCP bytes between nodes that share no leaf, of those whose both ends are placed",
           "spine (tcp)", _TCP_INFO),
    _share("uplink_spine_ratio", "bytes out of the leaves' uplinks, of those that their hosts sent in", "spine (leaf)",
           _IFMIB),
    _share("fabric_spine_ratio", "the same by a fabric query (InfiniBand)", "spine (ib)"),
    _share("nccl_cross_rack_ratio", "estimated: what the NICs sent, spread over the channels of the NCCL log",
           "cross-rack (est)"),
    _share("predicted_cross_rack_ratio", "predicted from the order of ranks, not measured: hops of the ring that leave "
           "their rack", "predicted"),
    Metric("bytes_per_second", "B/s", "bytes between nodes, each counted once, and to what is not placed",
           kind="derived", history=True, label="bytes"),
    _share("unplaced_ratio", "bytes of which one end is in no map, of all", "unplaced"),
    _share("coverage_ratio", "nodes of the scope whose meter is read, of all", "coverage"),
    _share("disagreement_ratio", "where the share is judged: by how much its meter differs from a stronger one",
           "disagree"),
    Metric("rtt_within_seconds", "s", "TCP round trip between nodes of one rack, median of pairs", kind="derived",
           source=_TCP_INFO, label="rtt rack"),
    Metric("rtt_across_seconds", "s", "TCP round trip between racks, median of pairs", kind="derived",
           source=_TCP_INFO, label="rtt across"),
    Metric("jitter_within_seconds", "s", "mean deviation of the round trip within racks, median of pairs",
           kind="derived", source=_TCP_INFO, label="jitter rack"),
    Metric("jitter_across_seconds", "s", "mean deviation of the round trip between racks, median of pairs",
           kind="derived", source=_TCP_INFO, label="jitter across"),
    _share("uplink_imbalance_ratio", "of a leaf: its busiest uplink over their mean, minus one; of a mean of at least "
           "5 % of their speed", "imbalance", _IFMIB),
    _share("uplink_load_ratio", "of a leaf: its busiest uplink, of the uplink's speed", "uplink load", _IFMIB,
           history=True),
    Metric("uplinks", "", "of a leaf: uplinks that are known", kind="derived", label="uplinks"),
    Metric("uplinks_down", "", "of a leaf: uplinks that were up and are not", kind="derived", source=_IFMIB,
           label="down"),
    Metric("host_in_bytes_per_second", "B/s", "of a leaf: from its hosts", kind="derived", source=_IFMIB,
           label="hosts in"),
    Metric("uplink_out_bytes_per_second", "B/s", "of a leaf: to the spines", kind="derived", source=_IFMIB,
           label="uplinks out"),
    Metric("uplink_discards_per_second", "/s", "of a leaf: packets that its uplinks dropped", kind="derived",
           source=_IFMIB, label="discards"),
    Metric("uplink_pause_frames_per_second", "/s", "of a leaf: pause frames on its uplinks", kind="derived",
           label="pause"),
))


_OF_LEAVES = ("uplink_imbalance_ratio", "uplink_load_ratio", "uplinks", "uplinks_down", "host_in_bytes_per_second",
              "uplink_out_bytes_per_second", "uplink_discards_per_second", "uplink_pause_frames_per_second")
SCOPE_COLUMNS = tuple(metric.name for metric in TABLE.metrics if metric.name not in _OF_LEAVES)
"""What the fleet, a job or a group has."""
LEAF_COLUMNS = ("share_ratio", "uplink_spine_ratio", "fabric_spine_ratio", *_OF_LEAVES)
"""What a leaf has."""


def key_of(kind: str, name: str = "") -> str:
    """The key of a scope: ``fleet``, or kind and name."""
    return f"{kind}/{name}" if name else kind


def label(key: str, attrs: Mapping[str, Attr]) -> str:
    """``fleet``, ``job 4711``, ``leaf leaf3``."""
    kind, _, name = key.partition("/")
    return f"{kind} {name}" if name else kind
