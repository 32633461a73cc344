"""The fleet as a heat map: a tile per GPU (or port), a strip of tiles per node, racks under their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from clustertop.model import LinkState
from clustertop.quantity import quantity
from clustertop.tui.cells import severity
from clustertop.tui.heat import HEATS, LOST, NOTHING, OLD, RELEASED, UNJUDGED, UNKNOWN, HeatMetric
from clustertop.tui.picture import DOWN, STYLES, mark
from clustertop.tui.picture import UNKNOWN as NODE_UNKNOWN
from clustertop.tui.widgets.lines import BLANK, Line, LineView, Look, Span

if TYPE_CHECKING:
    from textual import events

    from clustertop.jobs import JobLine
    from clustertop.tui.glyphs import Glyphs
    from clustertop.tui.heat import Heat
    from clustertop.tui.picture import Picture

AUTO, NUMBERS, DENSE = 0, 1, 2
DENSITIES = ("auto", "numbers", "dense")
_GAP = 2


class HeatMap(LineView):
    """The map. The cursor moves over nodes."""

    class Opened(Message):
        """The node under the cursor was asked for."""

        def __init__(self, node: int) -> None:
            super().__init__()
            self.node = node

    def __init__(self, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.metric: HeatMetric = HEATS[0]
        self.density = AUTO
        self.by_job = False
        """Nodes stand under their jobs, not under their racks."""
        self.picture: Picture | None = None
        self._heat: Heat | None = None
        self._rows: list[tuple[str, tuple[int, ...]]] = []
        """A rack's or job's heading (no nodes), or the nodes of one line."""
        self._where: dict[int, tuple[int, int]] = {}
        self._key: object = None
        self._numbers = True
        self._name_cells = 8
        self.node: int | None = None
        self.remake = self.lay_out

    # -- what is shown -------------------------------------------------------------------------------------------

    def show(self, picture: Picture) -> None:
        """Draw *picture*."""
        self.picture = picture
        self._heat = self.metric.fill(picture)
        self.lay_out()
        self.changed()

    def groups(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Headings and their nodes: racks, or jobs."""
        if self.picture is None:
            return ()
        return self.picture.atlas.by_job if self.by_job else self.picture.atlas.racks

    @property
    def tile(self) -> int:
        """Cells of one tile."""
        return 4 if self._numbers else 1

    @property
    def slots(self) -> int:
        """Tiles of a node."""
        return max(self._heat.value.shape[1] if self._heat is not None else 0, 8)

    @property
    def strip(self) -> int:
        """Cells of one node: mark, name, tiles."""
        return 2 + self._name_cells + 1 + self.slots * self.tile

    @property
    def dense(self) -> bool:
        """Whether tiles are one letter."""
        return not self._numbers

    def lay_out(self) -> None:
        """Lay the nodes out in lines, if the nodes, the width or the density changed."""
        picture = self.picture
        if picture is None or self._heat is None:
            return
        shown = picture.shown_nodes
        key = (shown.tobytes(), self.wide, self.tall, self.density, self.slots, self.groups())
        if key == self._key:
            return
        self._key = key
        names = [len(picture.atlas.names[node]) for node in range(len(shown)) if shown[node]]
        self._name_cells = min(max([6, *names]), 20 if self.wide >= 60 else 10)
        if self.density == AUTO:
            self._numbers = True
            self._lay(shown.tolist())
            self._numbers = len(self._rows) <= max(self.tall, 1)
        else:
            self._numbers = self.density == NUMBERS
        self._lay(shown.tolist())
        if self.node is None or self.node not in self._where:
            self.node = next((node for _, nodes in self._rows for node in nodes), None)

    def _lay(self, shown: list[bool]) -> None:
        assert self.picture is not None
        per_line = max(1, (self.wide + _GAP) // (self.strip + _GAP))
        rows: list[tuple[str, tuple[int, ...]]] = []
        racks = self.groups()
        for rack, nodes in racks:
            mine = [node for node in nodes if shown[node]]
            if not mine:
                continue
            if len(racks) > 1 or rack or self.by_job:
                rows.append((rack or "no rack", ()))
            rows.extend(("", tuple(mine[at:at + per_line])) for at in range(0, len(mine), per_line))
        self._rows = rows
        self._where = {node: (y, x) for y, (_, nodes) in enumerate(rows) for x, node in enumerate(nodes)}

    def count(self) -> int:
        """Lines of the map."""
        return len(self._rows)

    def build(self, y: int) -> Line:
        """A rack's heading or a line of nodes."""
        if self.picture is None or y >= len(self._rows):
            return BLANK
        rack, nodes = self._rows[y]
        if not nodes:
            return self._heading(rack)
        out: list[Span] = []
        for node in nodes:
            if out:
                out.append((" " * _GAP, "text"))
            out.extend(self._strip_of(node))
        return tuple(out)

    def _heading(self, rack: str) -> Line:
        assert self.picture is not None
        nodes = next((mine for name, mine in self.groups() if (name or "no rack") == rack), ())
        states = self.picture.state
        up = sum(1 for node in nodes if states[node] not in {DOWN, NODE_UNKNOWN})
        job = self.picture.jobs.get(rack) if self.by_job else None
        if job is not None:
            return _job_heading(self.look.glyphs, job)
        text = f"{rack}  "
        return ((text, "head"), (f"{up}/{len(nodes)} up", "muted"))

    def _strip_of(self, node: int) -> list[Span]:
        picture, heat = self.picture, self._heat
        assert picture is not None
        assert heat is not None
        glyphs = self.look.glyphs
        state = int(picture.state[node])
        at = "@" if node == self.node else ""
        out = [
            (f"{mark(glyphs, state)} ", STYLES[state] + at),
            (glyphs.fit(picture.atlas.names[node], self._name_cells),
             ("text" if state < NODE_UNKNOWN else "muted") + at),
            (" ", "text" + at),
        ]
        width = self.slots * self.tile
        link = picture.link[node]
        if link != LinkState.UP or state in {DOWN, NODE_UNKNOWN}:
            words = picture.words_of(node)
            out.append((glyphs.fit(words, width), "critical" if state == DOWN else "unknown"))
            return out
        codes = heat.code[node].tolist()
        if not any(codes) and picture.released[node] == picture.released[node]:
            out.append((glyphs.fit("GPUs released", width), "info"))
            return out
        if not any(codes):
            known = picture.view["node"].value("gpus_known", node)
            words = f"no {self.metric.things}" if self.metric.things != "GPU" or not known else "?"
            out.append((glyphs.fit(words, width), "muted"))
            return out
        values, levels = heat.value[node].tolist(), heat.level[node].tolist()
        lates, numbers = heat.late[node].tolist(), self._numbers
        write = self.metric.wide if numbers else self.metric.narrow
        for code, value, level, late in zip(codes, values, levels, lates, strict=True):
            if code == NOTHING:
                text, style = "", "text"
            elif code == UNKNOWN:
                text, style = glyphs.unknown, "unknown"
            elif code == OLD:
                text, style = glyphs.stale, "stale"
            elif code == UNJUDGED:
                text, style = "-", "muted"
            elif code == LOST:
                text, style = glyphs.lost, "lost"
            elif code == RELEASED:
                text, style = glyphs.released, "info"
            else:
                text, style = write(value), "stale" if late else self.metric.styles[level]
            if numbers:
                out.append((f"{text:>3}", style if code != NOTHING else "text"))
                out.append((" ", "text"))
            else:
                out.append((text or " ", style))
        rest = width - len(codes) * self.tile
        if rest > 0:
            out.append((" " * rest, "text"))
        return out

    # -- the cursor ----------------------------------------------------------------------------------------------

    def move(self, dx: int, dy: int) -> None:
        """Move the cursor by nodes across and lines down."""
        if self.node is None or self.node not in self._where:
            return
        y, x = self._where[self.node]
        if dx:
            order = list(self._where)
            place = order.index(self.node) + dx
            self.go(order[min(max(place, 0), len(order) - 1)])
            return
        step = 1 if dy > 0 else -1
        left, at = abs(dy), y
        while left and 0 <= at + step < len(self._rows):
            at += step
            if self._rows[at][1]:
                y, left = at, left - 1
        nodes = self._rows[y][1]
        self.go(nodes[min(x, len(nodes) - 1)])

    def edge(self, last: bool) -> None:
        """Move to the first or the last node."""
        order = list(self._where)
        if order:
            self.go(order[-1 if last else 0])

    def go(self, node: int) -> None:
        """Put the cursor on *node* and show it, with its rack's name where that is just above."""
        if node not in self._where:
            return
        self.node = node
        y = self._where[node][0]
        above = 1 if y > 0 and not self._rows[y - 1][1] else 0
        self.show_line(y, also=above)
        self.changed()
        self.post_message(self.Moved(node))

    class Moved(Message):
        """The cursor stands on another node."""

        def __init__(self, node: int) -> None:
            super().__init__()
            self.node = node

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one on the same node opens it."""
        y = int(event.y) + self.top
        if not 0 <= y < len(self._rows):
            return
        nodes = self._rows[y][1]
        x = int(event.x) // (self.strip + _GAP)
        if x < len(nodes):
            self.go(nodes[x])
            if event.chain == 2:
                self.post_message(self.Opened(nodes[x]))


def _job_heading(glyphs: Glyphs, job: JobLine) -> Line:
    """``4711  4/4 up  32 GPUs  median 96 %  19.8 kW  ok``."""
    out: list[Span] = [(f"job {job.name}  ", "head")]
    missing = job.nodes_up < job.nodes
    out.append((f"{job.nodes_up}/{job.nodes} up", "critical" if missing else "muted"))
    if job.shared:
        out.append((f", {job.shared} shared", "muted"))
    lost = job.gpus_present < job.gpus
    out += [("  GPUs ", "muted"), (f"{job.gpus_present}/{job.gpus}" if lost else f"{job.gpus}",
                                   "unknown" if lost else "muted"),
            ("  median util ", "muted"), _or_unknown(job.utilization_ratio, "ratio"), ("  power ", "muted")]
    if job.partial and job.power_watts is not None:
        out.append(("at least ", "muted"))
    out += [_or_unknown(job.power_watts, "W"), ("  ", "muted"),
            (f"{glyphs.unknown} not all judged", "unknown") if job.severity is None else severity(glyphs, job.severity)]
    return tuple(out)


def _or_unknown(value: float | None, unit: str) -> Span:
    return ("?", "unknown") if value is None else (quantity(value, unit), "text")
