"""Screen 3: a line per node, per GPU, or per job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.model import Why
from clustertop.plain import released_words
from clustertop.signals import gpu as gpus
from clustertop.signals.jobs import NO_JOB
from clustertop.tui import devices
from clustertop.tui.alert_words import known_words, what_words
from clustertop.tui.cells import number, severity, value
from clustertop.tui.panes.base import Pane
from clustertop.tui.picture import CRITICAL, DOWN, RANK, SILENT, STYLES, mark
from clustertop.tui.picture import UNKNOWN as NODE_UNKNOWN
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from textual.app import ComposeResult

    from clustertop.jobs import JobLine
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Look, Span


class Sums:
    """Sums per node, made once a picture and only when they are looked at."""

    def __init__(self) -> None:
        self._picture: Picture | None = None
        self._made: dict[tuple[str, str, str], NDArray[np.float64]] = {}

    def get(self, picture: Picture, table: str, column: str, how: str) -> NDArray[np.float64]:
        """[nodes] the ``sum``, ``mean`` or ``max`` of *column*."""
        if picture is not self._picture:
            self._picture, self._made = picture, {}
        key = (table, column, how)
        if key not in self._made:
            self._made[key] = picture.per_node(table, column, how)
        return self._made[key]


def _gpus(picture: Picture, node: int) -> Span:
    known = picture.view["node"].value("gpus_known", node)
    if known is None:
        return ("-", "muted") if picture.state[node] <= CRITICAL else ("?", "unknown")
    if picture.released[node] == picture.released[node]:
        return (f"-/{known:.0f}", "info")
    present = picture.gpus_answering[node]
    if present != present:
        return (f"?/{known:.0f}", "unknown")
    return (f"{present:.0f}/{known:.0f}", "text" if present == known else "critical")


def _note(picture: Picture, node: int) -> Span:
    if picture.state[node] in {DOWN, NODE_UNKNOWN}:
        return (picture.view.link_reasons[node] or picture.words_of(node), "muted")
    alerts = picture.alerts_of.get(node)
    if not alerts:
        return (released_words(picture.view, node), "info")
    more = f"  +{len(alerts) - 1}" if len(alerts) > 1 else ""
    known = known_words(alerts[0], picture.snapshot)
    return (f"{f'({known}) ' if known else ''}{what_words(alerts[0])}{more}", "muted" if known else "text")


def _job(picture: Picture, node: int) -> Span:
    """The job of a node; how many it has; ``-`` for none, ``?`` where that is not known."""
    jobs = picture.view.jobs
    code, names = int(jobs.node[node]), jobs.of_node[node]
    if names is None:
        return ("?", "unknown")
    if code >= 0:
        return (jobs.names[code], "text")
    return ("-", "muted") if code == NO_JOB else (f"{len(names)} jobs", "text")


def _gpu_job(picture: Picture, row: int) -> Span:
    jobs = picture.view.jobs
    code = int(jobs.gpu[row])
    return (jobs.names[code], "text") if code >= 0 else ("-", "muted") if code == NO_JOB else ("?", "unknown")


def _line(picture: Picture, row: int) -> JobLine:
    return picture.jobs[picture.view.jobs.names[row]]


def _worst_alert(picture: Picture, row: int) -> Span:
    first = [alerts[0] for node in picture.view.jobs.members[row].tolist() if (alerts := picture.alerts_of.get(node))]
    if not first:
        return ("", "muted")
    worst = min(first, key=lambda alert: (-alert.severity, alert.since))
    return (f"{worst.where} {what_words(worst, placed=True)}", "text")


class NodesPane(Pane):
    """Nodes, GPUs, or jobs."""

    TITLE: ClassVar[str] = "Nodes"

    def __init__(self, look: Look, *, id: str = "nodes") -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.sums = Sums()
        self.nodes: Table[Picture] = Table(look, self._node_columns(), id="node-table")
        self.gpus: Table[Picture] = Table(look, self._gpu_columns(), id="gpu-table")
        self.jobs: Table[Picture] = Table(look, self._job_columns(), id="job-table",
                                          identity=lambda p, r: p.view.jobs.names[r])
        self.gpus.display = self.jobs.display = False

    def _node_columns(self) -> tuple[Column[Picture], ...]:
        glyphs, sums = self.look.glyphs, self.sums

        def own(name: str, column: str, width: int, rank: int) -> Column[Picture]:
            return Column(name, width, lambda p, r: value(p.view["node"], column, r),
                          lambda p: p.view["node"].col(column), rank=rank)

        def summed(name: str, table: str, column: str, how: str, unit: str, width: int, rank: int) -> Column[Picture]:
            def cell(p: Picture, r: int) -> Span:
                amount = sums.get(p, table, column, how)[r]
                if amount == amount:
                    return number(amount, unit)
                if p.state[r] == SILENT:
                    return ("~", "stale")
                if table == "gpu" and p.released[r] == p.released[r]:
                    return ("-", "muted")
                return ("-", "muted") if p.state[r] <= CRITICAL and not p.stale(table, r) else ("?", "unknown")

            return Column(name, width, cell, lambda p: sums.get(p, table, column, how), rank=rank)

        return (
            Column("state", 18, lambda p, r: (f"{mark(glyphs, p.state[r])} {p.words_of(r)}", STYLES[p.state[r]]),
                   lambda p: RANK[p.state].astype(float), "<"),
            Column("node", 14, lambda p, r: (p.atlas.names[r], "title"), lambda p: p.atlas.names, "<", down=False),
            Column("rack", 8, lambda p, r: (p.view.nodes[r].rack, "muted"),
                   lambda p: [n.rack for n in p.view.nodes], "<", rank=7, down=False),
            Column("job", 9, _job, lambda p: p.view.jobs.node.astype(float), "<", rank=4, down=False),
            Column("GPUs", 5, _gpus, lambda p: p.gpus_answering, rank=1, down=False),
            summed("util", "gpu", "utilization_ratio", "mean", "ratio", 6, 1),
            summed("power", "gpu", "power_watts", "sum", "W", 8, 2),
            summed("max temp", "gpu", "temperature_celsius", "max", "°C", 8, 3),
            summed("GPU mem", "gpu", "memory_used_bytes", "sum", "B", 8, 6),
            own("cpu", "cpu_ratio", 5, 3),
            own("mem", "memory_used_ratio", 5, 4),
            own("load", "load1", 6, 6),
            summed("rdma tx", "port", "transmit_bytes_per_second", "sum", "B/s", 9, 5),
            summed("rdma rx", "port", "receive_bytes_per_second", "sum", "B/s", 9, 5),
            own("net rx", "network_receive_bytes_per_second", 9, 8),
            own("net tx", "network_transmit_bytes_per_second", 9, 8),
            own("age", "frame_age_seconds", 6, 4),
            own("probe", "probe_cpu_ratio", 6, 9),
            Column("what", 12, _note, None, "<", rank=3, grow=True, want=36),
        )

    def _gpu_columns(self) -> tuple[Column[Picture], ...]:
        glyphs = self.look.glyphs

        def own(name: str, column: str, width: int, rank: int, *, down: bool = True) -> Column[Picture]:
            return Column(name, width, lambda p, r: value(p.view["gpu"], column, r),
                          lambda p: p.view["gpu"].col(column), rank=rank, down=down)

        def state(p: Picture, r: int) -> Span:
            presence = p.view["gpu"].value("presence", r)
            if presence is None and p.view["gpu"].why_of("presence")[r] == Why.RELEASED:
                return (f"{glyphs.released} released", "info")
            if presence in {gpus.LOST, gpus.MISSING} or not p.view["gpu"].present[r]:
                word = "LOST" if presence == gpus.LOST else "MISSING"
                return (f"{glyphs.lost} {word}", "critical")
            if presence is None:
                return (f"{glyphs.stale} stale", "stale")
            return severity(glyphs, int(p.gpu_severity[r]))

        def reasons(p: Picture, r: int) -> Span:
            mask = p.view["gpu"].value("clocks_event_reasons", r)
            return (", ".join(gpus.reason_words(mask)), "muted") if mask else ("", "muted")

        return (
            Column("state", 10, state, lambda p: p.gpu_severity.astype(float), "<"),
            Column("node", 14, lambda p, r: (p.atlas.names[p.view["gpu"].node[r]], "title"),
                   lambda p: [p.atlas.names[node] for node in p.view["gpu"].node.tolist()], "<", down=False),
            Column("GPU", 7, lambda p, r: (p.view["gpu"].labels[r], "text"), lambda p: p.view["gpu"].labels, "<",
                   down=False),
            own("util", "utilization_ratio", 9, 1),
            own("used", "memory_used_bytes", 8, 2),
            own("power", "power_watts", 6, 1),
            own("limit", "power_limit_watts", 6, 6),
            own("temp", "temperature_celsius", 6, 1),
            own("margin", "temperature_margin_celsius", 6, 4, down=False),
            own("mem temp", "memory_temperature_celsius", 8, 5),
            own("SM clock", "sm_clock_hertz", 8, 5),
            own("P", "performance_state", 2, 6),
            Column("link", 12, devices.gpu_link, lambda p: p.view["gpu"].col("pcie_width_lanes"), "<", rank=2,
                   down=False),
            own("ECC unc", "ecc_uncorrected_total", 7, 6),
            Column("job", 9, lambda p, r: _gpu_job(p, r), lambda p: p.view.jobs.gpu.astype(float), "<", rank=5,
                   down=False),
            Column("model", 22, lambda p, r: (str(p.view["gpu"].attrs[r].get("name") or ""), "muted"),
                   lambda p: [str(a.get("name") or "") for a in p.view["gpu"].attrs], "<", rank=7, down=False),
            Column("clocks event reasons", 14, reasons, None, "<", rank=5, grow=True),
        )

    def _job_columns(self) -> tuple[Column[Picture], ...]:
        glyphs = self.look.glyphs

        def of(name: str, column: str, unit: str, width: int, rank: int) -> Column[Picture]:
            def amounts(p: Picture) -> NDArray[np.float64]:
                found = [getattr(line, column) for line in p.jobs.values()]
                return np.array([np.nan if value is None else value for value in found], np.float64)

            def cell(p: Picture, r: int) -> Span:
                line = _line(p, r)
                text, style = number(float("nan") if (value := getattr(line, column)) is None else value, unit)
                partial = column == "power_watts" and line.partial and style != "unknown"
                return (f">={text}" if partial else text, style)

            return Column(name, width, cell, amounts, rank=rank)

        def state(p: Picture, r: int) -> Span:
            level = _line(p, r).severity
            return (f"{glyphs.unknown} unknown", "unknown") if level is None else severity(glyphs, level)

        def nodes(p: Picture, r: int) -> Span:
            line = _line(p, r)
            return (f"{line.nodes_up}/{line.nodes}", "text" if line.nodes_up == line.nodes else "critical")

        def gpu_count(p: Picture, r: int) -> Span:
            line = _line(p, r)
            return (f"{line.gpus_present}/{line.gpus}", "text" if line.gpus_present == line.gpus else "unknown")

        def racks(p: Picture, r: int) -> Span:
            found = dict.fromkeys(p.view.nodes[node].rack for node in p.view.jobs.members[r].tolist())
            return (" ".join(rack or "-" for rack in found), "muted")

        return (
            Column("state", 10, state, lambda p: np.array(
                [-1.0 if line.severity is None else float(line.severity) for line in p.jobs.values()]), "<"),
            Column("job", 14, lambda p, r: (p.view.jobs.names[r], "title"), None, "<"),
            Column("nodes", 9, nodes, lambda p: np.array([float(line.nodes) for line in p.jobs.values()])),
            Column("GPUs", 9, gpu_count, lambda p: np.array([float(line.gpus) for line in p.jobs.values()]), rank=1),
            of("median util", "utilization_ratio", "ratio", 11, 1),
            of("power", "power_watts", "W", 10, 2),
            Column("shared", 6, lambda p, r: (str(_line(p, r).shared or "-"), "text"),
                   lambda p: np.array([float(line.shared) for line in p.jobs.values()]), rank=5),
            Column("racks", 16, racks, None, "<", rank=4),
            Column("worst alert", 14, _worst_alert, None, "<", rank=3, grow=True, want=36),
        )

    def compose(self) -> ComposeResult:
        """The tables; one is shown."""
        yield self.nodes
        yield self.gpus
        yield self.jobs

    @property
    def table(self) -> Table[Picture]:
        """The table in front."""
        return self.gpus if self.gpus.display else self.jobs if self.jobs.display else self.nodes

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """The table in front."""
        return [self.table]

    def draw(self) -> None:
        """Draw the table in front."""
        picture = self.picture
        if picture is None:
            return
        if self.table is self.nodes:
            rows = np.flatnonzero(picture.shown_nodes)
            self.nodes.name_width(picture.atlas.name_width)
            self.nodes.show(picture, rows, ("no node matches the filter", "unknown"))
            return
        if self.table is self.jobs:
            self._draw_jobs(picture)
            return
        table = picture.view["gpu"]
        rows = np.flatnonzero(picture.shown("gpu"))
        rows = rows[np.lexsort((rows, table.node[rows]))]
        if len(table):
            words = "no GPU matches the filter"
        elif picture.totals.nodes_up:
            words = f"no GPU on any of the {picture.totals.nodes_up} nodes that report"
        else:
            words = f"nothing is known yet: 0 of {len(picture.view.nodes)} nodes report"
        self.gpus.name_width(picture.atlas.name_width)
        self.gpus.show(picture, rows, (words, "unknown"))

    def _draw_jobs(self, picture: Picture) -> None:
        jobs = picture.view.jobs
        rows = [row for row, name in enumerate(jobs.names) if not picture.terms
                or picture.shown_nodes[jobs.members[row]].any() or picture.matches(None, f"job:{name} ".lower())]
        known = sum(told is not None for told in jobs.of_node)
        words = "no job matches the filter" if jobs.names else (
            f"no job on any of the {known} nodes that tell" if known else "no job is known: no Slurm cgroups there")
        self.jobs.show(picture, rows, (words, "unknown"))

    def _front(self, table: Table[Picture]) -> None:
        for one in (self.nodes, self.gpus, self.jobs):
            one.display = one is table
        self.draw()

    def toggle_gpus(self) -> str:
        """Lines per GPU, or per node."""
        front = self.table is not self.gpus
        self._front(self.gpus if front else self.nodes)
        return "a line per GPU" if front else "a line per node"

    def toggle_jobs(self) -> str:
        """Lines per job, or per node."""
        front = self.table is not self.jobs
        self._front(self.jobs if front else self.nodes)
        return "a line per job" if front else "a line per node"

    def job(self) -> str:
        """The job under the cursor, where there is a line per job."""
        row = self.jobs.row if self.table is self.jobs else None
        return "" if row is None or self.picture is None else self.picture.view.jobs.names[row]

    def node(self) -> int | None:
        """The node under the cursor."""
        row = self.table.row
        if self.table is self.jobs:
            return None
        if row is None or self.picture is None or self.table is self.nodes:
            return row
        return int(self.picture.view["gpu"].node[row])

    def row_text(self) -> str:
        """The row as text."""
        return self.table.row_text()
