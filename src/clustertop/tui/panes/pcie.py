"""Screen 4: PCIe devices below their expected width or speed, or all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.quantity import quantity, scaled
from clustertop.signals.units import generation, speed_of_generation
from clustertop.tui.cells import severity, value
from clustertop.tui.panes.base import Pane
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from textual.app import ComposeResult

    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Look, Span


class Judged:
    """What the PCIe table of one picture comes to."""

    def __init__(self, picture: Picture) -> None:
        table = picture.view["pcie"]
        self.endpoint = table.col("endpoint") == 1
        path, expected = table.col("path_width_lanes"), table.col("width_expected_lanes")
        self.unknown = self.endpoint & (np.isnan(path) | np.isnan(expected))
        self.narrow = self.endpoint & (path < expected)
        slow = np.nan_to_num(table.col("speed_missing_gts")) > 0
        # A GPU's generation is judged on the GPU table, under load only.
        join = picture.atlas.pcie_gpu
        behind = np.full(len(table), np.nan)
        if len(picture.view["gpu"]) and len(join):
            behind = np.where(join >= 0, picture.view["gpu"].col("generation_missing")[join], np.nan)
        self.slow = self.endpoint & (slow | (behind > 0))
        self.lost = np.where(self.narrow, table.col("lost_bytes_per_second"), np.nan)

    @property
    def below(self) -> NDArray[np.bool_]:
        """[rows] below expected in width or in speed."""
        out: NDArray[np.bool_] = self.narrow | self.slow
        return out


def _lanes(picture: Picture, row: int) -> Span:
    table = picture.view["pcie"]
    path, expected = table.value("path_width_lanes", row), table.value("width_expected_lanes", row)
    if path is None:
        return value(table, "path_width_lanes", row)
    if table.value("endpoint", row) != 1:
        return (quantity(path, "lanes"), "muted")
    if expected is None:
        return (f"{quantity(path, 'lanes')} of ?", "unknown")
    return (f"{quantity(path, 'lanes')} of {quantity(expected, 'lanes')}", "critical" if path < expected else "ok")


def _hop(picture: Picture, row: int) -> Span:
    table = picture.view["pcie"]
    path, expected = table.value("path_width_lanes", row), table.value("width_expected_lanes", row)
    if path is None or expected is None or path >= expected or table.value("endpoint", row) != 1:
        return ("", "muted")
    hop = table.value("narrow_hop_row", row)
    if hop is None:
        return ("?", "unknown")
    if int(hop) == row:
        return ("its own link", "text")
    key = table.keys[int(hop)]
    return (f"{key.removeprefix('0000:')} above it", "warning")


def _speed(picture: Picture, row: int) -> Span:
    table = picture.view["pcie"]
    now = table.value("speed_gts", row)
    join = picture.atlas.pcie_gpu
    gpu = int(join[row]) if row < len(join) else -1
    missing = table.value("speed_missing_gts", row)
    if gpu >= 0:
        behind = picture.view["gpu"].value("generation_missing", gpu)
        gen = picture.view["gpu"].value("pcie_generation", gpu)
        if gen is not None and behind:
            return (f"Gen{gen:.0f} of {gen + behind:.0f}", "warning")
        if now is None and gen is not None:
            now = speed_of_generation(gen)
    if now is None:
        return value(table, "speed_gts", row)
    if missing:
        return (f"Gen{generation(now)} of {generation(now + missing)}", "warning")
    return (f"Gen{generation(now)}", "text")


def _lost(picture: Picture, row: int) -> Span:
    table = picture.view["pcie"]
    if table.value("endpoint", row) != 1:
        return ("", "muted")
    lost = table.value("lost_bytes_per_second", row)
    if lost is None:
        return value(table, "lost_bytes_per_second", row)
    return (scaled(lost, "B/s"), "critical") if lost else ("0", "muted")


def kind_word(picture: Picture, row: int) -> str:
    """GPU, NIC, NVMe, bridge or other."""
    word = picture.atlas.pcie_kind[row]
    return {"nic": "NIC", "nvme": "NVMe", "gpu": "GPU"}.get(word, word)


class PciePane(Pane):
    """The table with its totals above."""

    TITLE: ClassVar[str] = "PCIe"

    def __init__(self, look: Look, *, id: str = "pcie") -> None:  # noqa: A002
        super().__init__(look, id=id)
        glyphs = look.glyphs
        columns: tuple[Column[Picture], ...] = (
            Column("state", 9, lambda p, r: severity(glyphs, p.row_state("pcie", r)),
                   lambda p: p.severity("pcie").astype(float), "<"),
            Column("node", 14, lambda p, r: (p.atlas.names[p.view["pcie"].node[r]], "title"),
                   lambda p: [p.atlas.names[node] for node in p.view["pcie"].node.tolist()], "<", down=False),
            Column("kind", 6, self._what, lambda p: p.atlas.pcie_kind, "<", rank=1, down=False),
            Column("device", 17, lambda p, r: (p.view["pcie"].labels[r], "text"), lambda p: p.view["pcie"].labels, "<",
                   down=False),
            Column("lanes", 10, _lanes, lambda p: p.view["pcie"].col("path_width_lanes"), "<", down=False),
            Column("narrow at", 18, _hop, None, "<", rank=1),
            Column("lost each way", 13, _lost, lambda p: p.view["pcie"].col("lost_bytes_per_second"), rank=2),
            Column("speed", 10, _speed, lambda p: p.view["pcie"].col("speed_gts"), "<", rank=3, down=False),
            Column("AER cor", 9, lambda p, r: value(p.view["pcie"], "aer_correctable_total", r, "muted"),
                   lambda p: p.view["pcie"].col("aer_correctable_total"), rank=5),
            Column("nonfatal", 9, lambda p, r: value(p.view["pcie"], "aer_nonfatal_total", r, "muted"),
                   lambda p: p.view["pcie"].col("aer_nonfatal_total"), rank=6),
            Column("fatal", 6, lambda p, r: value(p.view["pcie"], "aer_fatal_total", r, "muted"),
                   lambda p: p.view["pcie"].col("aer_fatal_total"), rank=6),
            Column("model", 12, self._model, None, "<", rank=4, grow=True),
        )
        self.head = Bar(look, id="pcie-head")
        self.table: Table[Picture] = Table(look, columns, id="pcie-table")
        self.all = False
        self.head.remake = self.draw

    def compose(self) -> ComposeResult:
        """Totals above the table."""
        yield self.head
        yield self.table

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """The table."""
        return [self.table]

    def _what(self, picture: Picture, row: int) -> Span:
        word = kind_word(picture, row)
        return (word, "muted" if word == "bridge" else "text")

    def _model(self, picture: Picture, row: int) -> Span:
        attrs = picture.view["pcie"].attrs[row]
        gpu = int(picture.atlas.pcie_gpu[row]) if row < len(picture.atlas.pcie_gpu) else -1
        if gpu >= 0 and picture.view["gpu"].attrs[gpu].get("name"):
            return (str(picture.view["gpu"].attrs[gpu]["name"]), "muted")
        return (" ".join(str(attrs[key]) for key in ("driver", "vendor", "device") if attrs.get(key)), "muted")

    def draw(self) -> None:
        """Draw totals and table."""
        picture = self.picture
        if picture is None:
            return
        table, judged = picture.view["pcie"], Judged(picture)
        shown = picture.shown("pcie", picture.atlas.pcie_kind)
        rows = np.flatnonzero(shown if self.all else shown & judged.below)
        below = judged.below[rows]
        lost = np.nan_to_num(judged.lost)[rows]
        rows = rows[np.lexsort((rows, table.node[rows], -lost, ~below))]
        self.head.put([self._totals(judged)])
        self.table.name_width(picture.atlas.name_width)
        self.table.show(picture, rows, self._empty(picture, judged))

    def _totals(self, judged: Judged) -> tuple[Span, ...]:
        narrow, slow = int(judged.narrow.sum()), int((judged.slow & ~judged.narrow).sum())
        count = int((judged.endpoint & ~judged.unknown).sum())
        unknown = int(judged.unknown.sum())
        lost = judged.lost[judged.narrow]
        known = lost[~np.isnan(lost)]
        out: list[Span] = [
            (f" {narrow} below expected width", "critical" if narrow else "title"),
            (f"  {slow} below expected speed", "warning" if slow else "muted"),
        ]
        if narrow:
            tail = f" (+ {len(lost) - len(known)} unknown)" if len(known) < len(lost) else ""
            out.append((f"  {scaled(float(known.sum()), 'B/s')} lost each way{tail}", "text"))
        out.append((f"  {count} judged", "muted"))
        out.append((f"  {unknown} unknown", "unknown" if unknown else "muted"))
        if self.table.wide >= 100:
            out.append(("  all devices" if self.all else "  only those below; a: all", "muted"))
        return tuple(out)

    def _empty(self, picture: Picture, judged: Judged) -> tuple[str, str]:
        if not len(picture.view["pcie"]):
            return ("no node has told of a PCIe device yet", "unknown")
        count, unknown = int((judged.endpoint & ~judged.unknown).sum()), int(judged.unknown.sum())
        if self.all or judged.below.any():
            return ("no device matches the filter", "unknown")
        if not count:
            return (f"no device could be judged ({unknown} unknown)", "unknown")
        return (f"nothing is below expected width ({count} devices judged, {unknown} unknown)",
                "unknown" if unknown else "ok")

    def toggle_all(self) -> str:
        """All devices, or those below expected only."""
        self.all = not self.all
        self.draw()
        return "all devices, those below expected first" if self.all else "devices below expected only"

    def node(self) -> int | None:
        """The node of the device."""
        row = self.table.row
        return None if row is None or self.picture is None else int(self.picture.view["pcie"].node[row])

    def row_text(self) -> str:
        """The row as text."""
        return self.table.row_text()
