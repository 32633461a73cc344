"""Screen 4: PCIe devices below their expected width or speed, or all of them, and the detail of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.quantity import scaled
from clustertop.tui import devices
from clustertop.tui.devices import Judged
from clustertop.tui.panes.base import ListPane
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.table import Column, Document, Table

if TYPE_CHECKING:
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Look, Span


class PciePane(ListPane):
    """Devices with their totals above and the detail of one below."""

    TITLE: ClassVar[str] = "PCIe"

    def __init__(self, look: Look, *, id: str = "pcie") -> None:  # noqa: A002
        super().__init__(look, id=id)
        columns: tuple[Column[Picture], ...] = (
            Column("state", 9, lambda p, r: devices.state(p, r, look.glyphs),
                   lambda p: p.pcie_severity.astype(float), "<"),
            Column("node", 14, lambda p, r: (p.atlas.names[p.view["pcie"].node[r]], "title"),
                   lambda p: [p.atlas.names[node] for node in p.view["pcie"].node.tolist()], "<", down=False),
            Column("kind", 6, self._what, lambda p: p.atlas.pcie_kind, "<", rank=2, down=False),
            Column("device", 16, lambda p, r: (p.view["pcie"].labels[r], "text"), lambda p: p.view["pcie"].labels, "<",
                   down=False),
            Column("lanes", 10, devices.lanes, lambda p: p.view["pcie"].col("path_width_lanes"), "<", down=False),
            Column("link", 12, devices.link, lambda p: p.view["pcie"].col("width_lanes"), "<", down=False),
            Column("note", 12, devices.note, None, "<", rank=1),
            Column("lost", 9, devices.lost, lambda p: p.view["pcie"].col("lost_bytes_per_second"), rank=3),
            Column("from", 7, devices.expected_by, lambda p: p.view["pcie"].col("width_expected_by"), "<", rank=4,
                   down=False),
            Column("dropped", 10, devices.dropped, lambda p: -p.view["pcie"].col("width_drop_seconds"), rank=4),
            Column("AER", 7, devices.aer, devices.aer_rates, rank=4),
            Column("replays", 7, devices.replays, devices.replay_rates, rank=5),
            Column("model", 12, devices.model, None, "<", rank=6, grow=True),
        )
        self.head = Bar(look, id="pcie-head")
        self.table: Table[Picture] = Table(look, columns, id="pcie-table")
        self.lower = Document(look, id="pcie-detail")
        self.all = False
        self.lower.remake = self.draw_lower
        self.head.remake = self.draw

    def _what(self, picture: Picture, row: int) -> Span:
        word = devices.kind_word(picture, row)
        return (word, "muted" if word == "bridge" else "text")

    def draw(self) -> None:
        """Draw totals and table."""
        picture = self.picture
        if picture is None:
            return
        # A drop with what was read around it takes ten lines.
        self.split(self.lower, 2 if self.size.height < 30 else 3, 18, 12)
        table, judged = picture.view["pcie"], Judged(picture)
        shown = picture.shown("pcie", picture.atlas.pcie_kind)
        # What has an alert of another kind (AER errors) is in trouble as well.
        # A bridge or a switch has one only where the kernel's log speaks of it itself.
        mine = judged.endpoint | (table.col("kernel_message_level") > 1)
        trouble = judged.below | (mine & (picture.severity("pcie") > 0))
        rows = np.flatnonzero(shown if self.all else shown & trouble)
        below = judged.below[rows]
        lost = np.nan_to_num(judged.lost)[rows]
        rows = rows[np.lexsort((rows, table.node[rows], -lost, ~below))]
        self.head.put([self._totals(judged)])
        self.table.name_width(picture.atlas.name_width)
        self.table.give_width("device", 24 if self.table.wide >= 150 else 16)
        self.table.show(picture, rows, self._empty(picture, judged))
        self.draw_lower()

    def draw_lower(self) -> None:
        """The device under the cursor."""
        if self.picture is None or not self.lower.display:
            return
        row = self.table.row
        self.lower.show_lines([] if row is None else devices.device_lines(
            self.picture, row, self.look.glyphs, self.lower.wide))

    def _totals(self, judged: Judged) -> tuple[Span, ...]:
        narrow, slow = int(judged.narrow.sum()), int((judged.slow & ~judged.narrow).sum())
        count = int((judged.endpoint & ~judged.unknown).sum())
        unknown = int(judged.unknown.sum())
        lost = judged.lost[judged.narrow]
        known = lost[~np.isnan(lost)]
        full = self.table.wide >= 100
        expected = "expected " if full else ""
        out: list[Span] = [
            (f" {narrow} below {expected}width", "critical" if narrow else "title"),
            (f"  {slow} below {expected}speed", "warning" if slow else "muted"),
        ]
        if narrow:
            tail = f" (+ {len(lost) - len(known)} unknown)" if len(known) < len(lost) else ""
            out.append((f"  {scaled(float(known.sum()), 'B/s')} lost{' each way' if full else ''}{tail}", "text"))
        out.append((f"  {count} judged", "muted"))
        out.append((f"  {unknown} unknown", "unknown" if unknown else "muted"))
        if self.table.wide >= 125:
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

    def gpu(self) -> int | None:
        """The row in the GPU table of the device under the cursor; None where it is none."""
        row = self.table.row
        return None if row is None or self.picture is None else devices.gpu_of(self.picture, row)
