"""Screen 1: the fleet as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clustertop.plain import released_words
from clustertop.quantity import duration
from clustertop.tui.alert_words import known_words, what_words
from clustertop.tui.cells import severity
from clustertop.tui.heat import HEATS
from clustertop.tui.panes.base import Pane
from clustertop.tui.picture import DOWN, UNKNOWN
from clustertop.tui.widgets.bars import Bar
from clustertop.tui.widgets.heatmap import DENSITIES, HeatMap

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Look, Span
    from clustertop.tui.widgets.table import Document, Table


MOST_WORST, LEAST_TALL = 6, 14
"""Most alerts below the map, and the height of the pane below which the map needs all of it."""


class FleetPane(Pane):
    """The map, its legend, the worst alerts, and one line on the node under the cursor."""

    TITLE: ClassVar[str] = "Fleet"

    def __init__(self, look: Look, *, id: str = "fleet") -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.legend = Bar(look, id="legend")
        self.map = HeatMap(look, id="map")
        self.worst = Bar(look, id="fleet-worst")
        self.line = Bar(look, id="fleet-line")
        self.worst.display = False
        self.worst.remake = self.draw_worst
        self.legend.remake = self.draw_legend
        self.line.remake = self.draw_line

    def compose(self) -> ComposeResult:
        """Legend above, the map, the worst alerts and the node's line below."""
        yield self.legend
        yield self.map
        yield self.worst
        yield self.line

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """The map."""
        return [self.map]

    def draw(self) -> None:
        """Draw map, legend and line."""
        if self.picture is None:
            return
        self.map.show(self.picture)
        self.draw_legend()
        self.draw_worst()
        self.draw_line()

    def draw_worst(self) -> None:
        """The worst alerts, as many as a fifth of the height holds."""
        if self.picture is None:
            return
        alerts, tall = self.picture.snapshot.alerts, self.size.height
        room = min(max(tall // 5, 1), MOST_WORST) if tall >= LEAST_TALL else 0
        shown = alerts[: room if len(alerts) <= room else room - 1]
        glyphs, now = self.look.glyphs, self.picture.view.at
        lines: list[Line] = []
        for alert in shown:
            word, style = severity(glyphs, alert.severity)
            known = known_words(alert, self.picture.snapshot)
            what = glyphs.plain(f"{f'({known}) ' if known else ''}{what_words(alert, placed=True)}")
            head = f" {word:<8}{duration(now - alert.since):>7}  "
            node = f"{glyphs.plain(alert.where)}  "
            left = self.worst.wide - _cells(head) - _cells(node)
            lines.append(((head, "muted" if known else style), (node, "muted" if known else "title"),
                          (glyphs.fit(what, max(left, 0)), "muted" if known else "text")))
        if len(shown) < len(alerts) and room:
            lines.append(((f" and {len(alerts) - len(shown)} more on screen 2", "muted"),))
        self.worst.put(lines)

    def draw_legend(self) -> None:
        """What the tiles mean."""
        self.legend.put([self._legend()])

    def _legend(self) -> Line:
        metric, glyphs = self.map.metric, self.look.glyphs
        out: list[Span] = [(f" {glyphs.plain(metric.title)} ", "title"), (" ", "text")]
        if metric.styles[0].startswith("t:"):
            for words, style in zip(metric.scale, metric.styles, strict=True):
                if words:
                    out += [("   ", style), (f" {words}  ", "muted")]
        else:
            out.append((f"{glyphs.plain(metric.scale[0])} ", "muted"))
            out += [("  ", style) for style in metric.styles]
            out.append((f" {glyphs.plain(metric.scale[1])}  ", "muted"))
        room = self.legend.wide - sum(len(text) for text, _ in out)
        tail: list[list[Span]] = [[(f"{glyphs.plain(metric.legend)}  ", "muted")]] if self.map.dense else []
        tail += [[(glyphs.lost, "lost"), (" lost  " if metric.things == "GPU" else " down  ", "muted")],
                 [(glyphs.unknown, "unknown"), (" unknown  ", "muted")],
                 *([[(glyphs.released, "info"), (" released  ", "muted")]] if self._any_released() else []),
                 [(glyphs.stale, "stale"), (" stale", "muted")]]
        while tail and room < sum(len(text) for group in tail for text, _ in group):
            tail.pop()
        return (*out, *(piece for group in tail for piece in group))

    def _any_released(self) -> bool:
        return self.picture is not None and self.picture.totals.gpus_released > 0

    def draw_line(self) -> None:
        """One line on the node under the cursor: its state and its worst alert."""
        picture, node = self.picture, self.map.node
        if picture is None:
            return
        if node is None or not self.map.count():
            words = "no node matches the filter" if picture.terms else "no node in the inventory"
            self.line.put([((f" {words}", "unknown"),)])
            return
        glyphs, state = self.look.glyphs, int(picture.state[node])
        mark, style = severity(glyphs, state)
        out: list[Span] = [(f" {picture.atlas.names[node]} ", "title"), (f" {mark} ", style)]
        if state in {DOWN, UNKNOWN}:
            out.append((f" {picture.words_of(node)}: {picture.view.link_reasons[node]}"
                        if picture.view.link_reasons[node] else f" {picture.words_of(node)}", "text"))
        released = released_words(picture.view, node)
        if released and state != DOWN:
            out.append((f" {released}", "info"))
        alerts = picture.alerts_of.get(node, [])
        if alerts and state != DOWN:
            first = alerts[0]
            known = known_words(first, picture.snapshot)
            out.append((f" {f'({known}) ' if known else ''}{what_words(first)}", "text"))
            if len(alerts) > 1:
                out.append((f"  and {len(alerts) - 1} more", "muted"))
        text_room = self.line.wide
        kept: list[Span] = []
        for text, name in out:
            kept.append((glyphs.fit(text, min(_cells(glyphs.plain(text)), max(text_room, 0))), name))
            text_room -= _cells(kept[-1][0])
        self.line.put([tuple(kept)])

    def on_heat_map_moved(self, event: HeatMap.Moved) -> None:
        """Another node: another line."""
        event.stop()
        self.draw_line()

    def node(self) -> int | None:
        """The node under the cursor."""
        return self.map.node if self.map.count() else None

    def row_text(self) -> str:
        """The line of the node."""
        return self.line.text_of(0).strip()

    def cycle_metric(self, step: int) -> str:
        """Show the next metric; returns its title."""
        at = HEATS.index(self.map.metric)
        self.map.metric = HEATS[(at + step) % len(HEATS)]
        self.draw()
        return self.map.metric.title

    def toggle_by_job(self) -> str:
        """Nodes under their jobs, or under their racks."""
        self.map.by_job = not self.map.by_job
        self.draw()
        if not self.map.by_job:
            return "nodes by rack"
        known = self.picture is not None and any(jobs is not None for jobs in self.picture.view.jobs.of_node)
        return "nodes by job" if known else "no job is known: no Slurm cgroups on these nodes"

    def cycle_density(self) -> str:
        """Numbers, dense, or whichever fits."""
        self.map.density = (self.map.density + 1) % len(DENSITIES)
        self.draw()
        return DENSITIES[self.map.density]

    def next_problem(self, step: int) -> str:
        """Go to the next node that is not ok; returns what to say if there is none."""
        if self.picture is None:
            return ""
        nodes = [node for _, mine in self.map.groups() for node in mine
                 if self.picture.shown_nodes[node] and self.picture.state[node] > 1]
        if not nodes:
            return "every node shown is ok"
        order = [node for _, mine in self.map.groups() for node in mine]
        place = {node: at for at, node in enumerate(order)}
        here = place.get(self.map.node if self.map.node is not None else -1, -1)
        after = [node for node in nodes if (place[node] - here) * step > 0]
        chosen = (after or nodes)[0] if step > 0 else (after or nodes)[-1]
        self.map.go(chosen)
        return ""


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
