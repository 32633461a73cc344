"""One snapshot made ready for drawing: verdicts per row, a state per node, sums, and what the filter leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from clustertop.clock import local_minute
from clustertop.jobs import job_lines
from clustertop.model import LinkState, Severity, Why
from clustertop.plain_site import judged
from clustertop.quantity import duration
from clustertop.signals import gpu as gpus
from clustertop.signals import host
from clustertop.store.view import STALE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertop.core import Snapshot
    from clustertop.jobs import JobLine
    from clustertop.model import Alert
    from clustertop.tui.atlas import Atlas
    from clustertop.tui.glyphs import Glyphs

OK, INFO, WARNING, CRITICAL, UNKNOWN, SILENT, DOWN, RELEASED = 0, 1, 2, 3, 4, 5, 6, 7
"""States of a node; the first four are severities. Released: the operator had its GPUs let go, and no alert fires."""
SILENT_SECONDS = 6.0
"""A node whose last frame is older is drawn as stale."""
WORDS = ("ok", "info", "warn", "CRIT", "unknown", "stale", "down", "released")
STYLES = ("ok", "info", "warning", "critical", "unknown", "stale", "critical", "info")
RANK = np.array([0, 2, 5, 7, 1, 4, 6, 3], np.int8)
"""Order of states from least to most urgent."""

_SHORT = {
    LinkState.WAITING: "waiting", LinkState.CONNECTING: "connecting", LinkState.BUSY: "refused",
    LinkState.UNREACHABLE: "unreachable", LinkState.AUTH_FAILED: "auth failed",
    LinkState.HOST_KEY_UNKNOWN: "unknown host key", LinkState.HOST_KEY_CHANGED: "HOST KEY CHANGED",
    LinkState.NO_PYTHON: "no python", LinkState.PROBE_FAILED: "probe failed", LinkState.CLOSED: "closed",
}
_FAILED = frozenset({
    LinkState.UNREACHABLE, LinkState.AUTH_FAILED, LinkState.HOST_KEY_UNKNOWN, LinkState.HOST_KEY_CHANGED,
    LinkState.NO_PYTHON, LinkState.PROBE_FAILED,
})
_FAILED_CODES = np.array(sorted(_FAILED), np.int8)
_LINKS = tuple(LinkState)
_WHOLE = ("job:", "feed:", "rack:", "leaf:", "group:")
"""Terms that find a whole name, not a part of one."""
_JUDGED = {"pcie": "path_width_lanes", "port": "link", "disk": "size_bytes"}
"""The column without which a row was not judged."""


def mark(glyphs: Glyphs, state: int) -> str:
    """The glyph of a state."""
    critical = glyphs.critical
    return (glyphs.ok, glyphs.info, glyphs.warning, critical, glyphs.unknown, glyphs.stale, critical,
            glyphs.released)[state]


@dataclass(frozen=True, slots=True)
class Totals:
    """The summary bar's numbers; None is unknown."""

    nodes: int
    nodes_up: int
    nodes_silent: int
    """Up, but their last frame is old."""
    nodes_tried: int
    """Nodes that have answered or failed at least once."""
    gpus_present: int
    gpus_known: int
    gpus_released: int
    """Of these, the ones that the operator had let go."""
    utilization_ratio: float | None
    power_watts: float | None
    power_partial: bool
    """Some GPUs do not say, so the sum is at least this."""
    newest_seconds: float | None
    oldest_seconds: float | None
    probe_cpu_mean: float | None
    probe_cpu_max: float | None
    alerts: tuple[int, int, int]
    """Critical, warning, info; whatever the operator did about them."""
    acknowledged: int
    """Of these."""
    silenced: int
    """Of these, without those that are also acknowledged."""


class Picture:
    """What the panes draw. Made once per snapshot or change of the filter; compared by identity."""

    def __init__(self, snapshot: Snapshot, atlas: Atlas, terms: tuple[str, ...] = ()) -> None:
        self.snapshot, self.view, self.atlas, self.terms = snapshot, snapshot.view, atlas, terms
        atlas.update(snapshot.view)
        self._severity: dict[str, NDArray[np.uint8]] = {}

    def severity(self, table: str) -> NDArray[np.uint8]:
        """Highest firing severity of each row of *table*."""
        found = self._severity.get(table)
        if found is None:
            found = self._severity[table] = self.snapshot.engine.severity(self.view, table)
        return found

    def row_state(self, table: str, row: int) -> int:
        """State of a PCIe device, port or file system: its severity; UNKNOWN or SILENT where nothing was judged."""
        severity, rows = int(self.severity(table)[row]), self.view[table]
        if severity:
            return severity
        if rows.level[row] == STALE:
            return SILENT
        judged = rows.col(_JUDGED[table])[row]
        return OK if rows.present[row] and judged == judged else UNKNOWN

    @cached_property
    def pcie_severity(self) -> NDArray[np.uint8]:
        """Highest firing severity of each PCIe device; one whose path is narrow has that of the hop where it is."""
        own, table = self.severity("pcie"), self.view["pcie"]
        hop = table.col("narrow_hop_row")
        short = (table.col("path_width_lanes") < table.col("width_expected_lanes")) & ~np.isnan(hop)
        out: NDArray[np.uint8] = own.copy()
        out[short] = np.maximum(own[short], own[hop[short].astype(np.intp)])
        return out

    @cached_property
    def gpu_severity(self) -> NDArray[np.uint8]:
        """Highest firing severity of each GPU, with that of its PCIe device."""
        own, join = self.severity("gpu"), self.atlas.gpu_pcie
        if not len(join) or not len(self.view["pcie"]):
            return own
        link = self.pcie_severity[join]
        return np.maximum(own, np.where(join >= 0, link, 0)).astype(np.uint8)

    @cached_property
    def alerts_of(self) -> dict[int, list[Alert]]:
        """Firing alerts by node, worst first."""
        out: dict[int, list[Alert]] = {}
        for alert in self.snapshot.alerts:
            for node in alert.on:
                out.setdefault(node, []).append(alert)
        return out

    @cached_property
    def link(self) -> list[LinkState]:
        """Per node: where the console stands with it."""
        return [_LINKS[int(state)] for state in np.nan_to_num(self.view["node"].col("link_state")).tolist()]

    @cached_property
    def state(self) -> NDArray[np.int8]:
        """Per node: its severity, or UNKNOWN, SILENT or DOWN, where no verdict counts."""
        # A node is fine only if every group of its probe is fresh.
        out = np.where(self.view.blind(), UNKNOWN, OK).astype(np.int8)
        for node, alerts in self.alerts_of.items():
            out[node] = max(alert.severity for alert in alerts)
        link = np.nan_to_num(self.view["node"].col("link_state")).astype(np.int8)
        age = self.view["node"].col("frame_age_seconds")
        out[(RANK[out] < RANK[RELEASED]) & ~np.isnan(self.released)] = RELEASED
        with np.errstate(invalid="ignore"):
            out[age > SILENT_SECONDS] = SILENT
        out[(link != LinkState.UP) | np.isnan(age)] = UNKNOWN
        out[np.isin(link, _FAILED_CODES)] = DOWN
        return out

    @cached_property
    def released(self) -> NDArray[np.float64]:
        """[nodes] seconds since the operator had the GPUs let go; NaN where they are not."""
        return self.view["node"].col("gpus_released_seconds")

    @cached_property
    def jobs(self) -> dict[str, JobLine]:
        """The jobs by name."""
        return {line.name: line for line in job_lines(self.snapshot)}

    def words_of(self, node: int) -> str:
        """The state of *node* in words, as shown beside the glyph."""
        state = int(self.state[node])
        if state <= CRITICAL:
            return WORDS[state]
        if state == RELEASED:
            return f"released {local_minute(self.view.wall - float(self.released[node]))}"
        if state == SILENT:
            return f"stale {duration(float(self.view['node'].col('frame_age_seconds')[node]))}"
        link = self.link[node]
        if link != LinkState.UP:
            return _SHORT.get(link, "unknown")
        groups = self.view["group"]
        for row in np.flatnonzero(self.view.blind_groups() & (groups.node == node)).tolist():
            said = groups.value("group_state", row)
            word = "stale" if said is None or int(said) == host.OK else host.GROUP_WORDS[int(said)]
            return f"{groups.keys[row]} {word}"
        return "no reading"

    # -- the filter ----------------------------------------------------------------------------------------------

    @cached_property
    def _found(self) -> list[NDArray[np.bool_]]:
        """Per term: the nodes it finds by name, rack, leaf, group, job or state."""
        if not self.terms:
            return []
        words = [f"{fixed} {jobs} {self.words_of(node).lower()}" for node, (fixed, jobs) in enumerate(
            zip(self.atlas.words, self.atlas.job_words, strict=True))]
        # A job is found by its whole number only: 471 is not 4711.
        return [np.array([(f"{term} " if term.startswith(_WHOLE) else term) in text for text in words], np.bool_)
                for term in self.terms]

    @cached_property
    def shown_nodes(self) -> NDArray[np.bool_]:
        """[nodes] what the filter leaves."""
        out = np.ones(len(self.view.nodes), np.bool_)
        for found in self._found:
            out &= found
        return out

    def shown(self, table: str, extra: tuple[str, ...] = ()) -> NDArray[np.bool_]:
        """[rows] what the filter leaves of *table*: each term in the node's words, the label or *extra*."""
        rows = self.view[table]
        out = np.ones(len(rows), np.bool_)
        for term, found in zip(self.terms, self._found, strict=True):
            own = np.array([term in label for label in self.atlas.labels(rows)], np.bool_)
            if extra:
                own |= np.array([term in text for text in extra], np.bool_)
            out &= found[rows.node] | own
        return out

    @cached_property
    def feed_states(self) -> NDArray[np.int8]:
        """[feeds] severity, or UNKNOWN where nothing can be held against a limit."""
        out = self.severity("feed").astype(np.int8)
        out[(out == OK) & ~judged(self.view)] = UNKNOWN
        return out

    @cached_property
    def shown_feeds(self) -> NDArray[np.bool_]:
        """[feeds] what the filter leaves: each term in the feed's own words, or in those of one of its nodes."""
        of, rows = self.view.of, self.view["feed"]
        out = np.ones(len(rows), np.bool_)
        for row, owner in enumerate(rows.node.tolist() if self.terms else ()):
            feed = of.site.feeds[owner - of.first_feed]
            text = f"{feed.name} {feed.rack} {feed.pair} {feed.pdu}".lower()
            nodes = [self.atlas.node_of[name] for name in feed.nodes if name in self.atlas.node_of]
            out[row] = all(term in text or any(found[node] for node in nodes)
                           for term, found in zip(self.terms, self._found, strict=True))
        return out

    def matches(self, node: int | None, text: str) -> bool:
        """Whether every term is in *node*'s words or in *text* (small letters)."""
        return all((node is not None and bool(found[node])) or term in text
                   for term, found in zip(self.terms, self._found, strict=True))

    def matches_any(self, nodes: tuple[int, ...], text: str) -> bool:
        """Whether every term is in *text* or in the words of one and the same of *nodes*."""
        return not self.terms or self.matches(None, text) or any(self.matches(node, text) for node in nodes)

    # -- sums ----------------------------------------------------------------------------------------------------

    @cached_property
    def totals(self) -> Totals:
        """What the summary bar says."""
        node, gpu = self.view["node"], self.view["gpu"]
        present = gpu.col("presence") == gpus.PRESENT
        known = node.col("gpus_known")
        util, power = gpu.col("utilization_ratio")[present], gpu.col("power_watts")[present]
        age, cpu = node.col("frame_age_seconds"), node.col("probe_cpu_ratio")
        up = np.array([link == LinkState.UP for link in self.link], np.bool_)
        tried = up | np.array([link in _FAILED for link in self.link], np.bool_)
        level = [alert.severity for alert in self.snapshot.alerts]
        fresh = gpu.level != STALE
        return Totals(
            len(self.view.nodes), int(up.sum()), int((self.state == SILENT).sum()), int(tried.sum()),
            int((present & fresh).sum()),
            int(max(np.nansum(known), len(gpu))), int((gpu.why_of("presence") == Why.RELEASED).sum()),
            _mean(util), _sum(power),
            bool(np.isnan(power).any()) or int((present & fresh).sum()) < len(gpu), _least(age[up]), _most(age[up]),
            _mean(cpu[up]), _most(cpu[up]),
            (level.count(Severity.CRITICAL), level.count(Severity.WARNING), level.count(Severity.INFO)),
            sum(alert.acked for alert in self.snapshot.alerts),
            sum(alert.silenced and not alert.acked for alert in self.snapshot.alerts),
        )

    @cached_property
    def gpus_answering(self) -> NDArray[np.float64]:
        """[nodes] GPUs that answer; NaN where no GPU of the node has a reading that is not stale."""
        rows = self.view["gpu"]
        presence = rows.col("presence")
        known = ~np.isnan(presence)
        heard = np.bincount(rows.node[known], minlength=len(self.view.nodes))
        answering = np.bincount(rows.node[presence == gpus.PRESENT], minlength=len(heard))
        return np.where(heard > 0, answering.astype(float), np.nan)

    def stale(self, table: str, node: int) -> bool:
        """Whether *node* has rows in *table* that are too old to be shown."""
        rows = self.view[table]
        return bool(((rows.node == node) & (rows.level == STALE)).any())

    def per_node(self, table: str, column: str, how: str) -> NDArray[np.float64]:
        """[nodes] the ``sum``, ``mean`` or ``max`` of the known values of *column*; NaN where none is known."""
        rows = self.view[table]
        values = rows.col(column)
        known = ~np.isnan(values)
        out = np.full(len(self.view.nodes), np.nan)
        if how == "max":
            np.fmax.at(out, rows.node[known], values[known])
            return out
        count = np.bincount(rows.node[known], minlength=len(out))
        total = np.bincount(rows.node[known], values[known], len(out))
        return np.where(count > 0, total / np.maximum(count, 1) if how == "mean" else total, np.nan)


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _sum(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.sum()) if len(known) else None


def _least(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.min()) if len(known) else None


def _most(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None
