"""Screen 3: a line per node, or a line per GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.signals import gpu as gpus
from clustertop.tui import devices
from clustertop.tui.cells import number, severity, value
from clustertop.tui.panes.base import Pane
from clustertop.tui.picture import CRITICAL, DOWN, RANK, SILENT, STYLES, mark
from clustertop.tui.picture import UNKNOWN as NODE_UNKNOWN
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from textual.app import ComposeResult

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
    present = picture.gpus_answering[node]
    if present != present:
        return (f"?/{known:.0f}", "unknown")
    return (f"{present:.0f}/{known:.0f}", "text" if present == known else "critical")


def _note(picture: Picture, node: int) -> Span:
    if picture.state[node] in {DOWN, NODE_UNKNOWN}:
        return (picture.view.link_reasons[node] or picture.words_of(node), "muted")
    alerts = picture.alerts_of.get(node)
    if not alerts:
        return ("", "muted")
    more = f"  +{len(alerts) - 1}" if len(alerts) > 1 else ""
    return (f"{alerts[0].thing.label}: {alerts[0].message}{more}", "text")


class NodesPane(Pane):
    """Nodes, or GPUs."""

    TITLE: ClassVar[str] = "Nodes"

    def __init__(self, look: Look, *, id: str = "nodes") -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.sums = Sums()
        self.nodes: Table[Picture] = Table(look, self._node_columns(), id="node-table")
        self.gpus: Table[Picture] = Table(look, self._gpu_columns(), id="gpu-table")
        self.gpus.display = False

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
                return ("-", "muted") if p.state[r] <= CRITICAL and not p.stale(table, r) else ("?", "unknown")

            return Column(name, width, cell, lambda p: sums.get(p, table, column, how), rank=rank)

        return (
            Column("state", 18, lambda p, r: (f"{mark(glyphs, p.state[r])} {p.words_of(r)}", STYLES[p.state[r]]),
                   lambda p: RANK[p.state].astype(float), "<"),
            Column("node", 14, lambda p, r: (p.atlas.names[r], "title"), lambda p: p.atlas.names, "<", down=False),
            Column("rack", 8, lambda p, r: (p.view.nodes[r].rack, "muted"),
                   lambda p: [n.rack for n in p.view.nodes], "<", rank=7, down=False),
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
            Column("state", 9, state, lambda p: p.gpu_severity.astype(float), "<"),
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
            Column("model", 22, lambda p, r: (str(p.view["gpu"].attrs[r].get("name") or ""), "muted"),
                   lambda p: [str(a.get("name") or "") for a in p.view["gpu"].attrs], "<", rank=7, down=False),
            Column("clocks event reasons", 14, reasons, None, "<", rank=5, grow=True),
        )

    def compose(self) -> ComposeResult:
        """Both tables; one is hidden."""
        yield self.nodes
        yield self.gpus

    @property
    def table(self) -> Table[Picture]:
        """The table in front."""
        return self.gpus if self.gpus.display else self.nodes

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

    def toggle_gpus(self) -> str:
        """Lines per GPU, or per node."""
        front = not self.gpus.display
        self.gpus.display, self.nodes.display = front, not front
        self.draw()
        return "a line per GPU" if front else "a line per node"

    def node(self) -> int | None:
        """The node under the cursor."""
        row = self.table.row
        if row is None or self.picture is None or self.table is self.nodes:
            return row
        return int(self.picture.view["gpu"].node[row])

    def row_text(self) -> str:
        """The row as text."""
        return self.table.row_text()
