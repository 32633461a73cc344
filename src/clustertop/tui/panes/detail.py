"""Screen 6: everything that is known of one node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustertop.model import Why
from clustertop.plain import released_words
from clustertop.quantity import duration
from clustertop.signals import gpu as gpus
from clustertop.signals import host
from clustertop.signals.link import SUMS
from clustertop.tui import devices, ports, traffic
from clustertop.tui.alert_words import known_words, many, thing_words
from clustertop.tui.cells import severity, title, value
from clustertop.tui.machine import interval, machine_lines, probe_lines, unknown_lines
from clustertop.tui.panes.base import Pane
from clustertop.tui.panes.processes import process_lines
from clustertop.tui.picture import STYLES, mark
from clustertop.tui.power import node_lines
from clustertop.tui.widgets.table import Document, Table

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from clustertop.model import Alert
    from clustertop.tui.picture import Picture
    from clustertop.tui.source import Source
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.lines import Line, Look, Span

MOST_INSIDE = 8
"""Most verdicts listed below an alert about many things."""
_FACTS = ("host", "os", "kernel", "arch", "driver", "cuda", "nvml", "python", "boot_id")


class DetailPane(Pane):
    """One node, as one long page."""

    TITLE: ClassVar[str] = "Node"

    def __init__(self, look: Look, source: Source, *, id: str = "detail") -> None:  # noqa: A002
        super().__init__(look, id=id)
        self.source = source
        self.page = Document(look, id="page")
        self.number: int | None = None
        self.live = True
        self.asked: float | None = None
        """When the processes of this node were first asked for, :func:`time.monotonic`."""
        self.page.remake = self.draw

    def compose(self) -> ComposeResult:
        """The page."""
        yield self.page

    def parts(self) -> list[HeatMap | Table[Picture] | Document]:
        """The page."""
        return [self.page]

    def node(self) -> int | None:
        """The node shown."""
        return self.number

    def devices_of(self) -> int | None:
        """The node shown, for its BMC."""
        return self.number

    def draw(self) -> None:
        """Draw the page."""
        if self.picture is not None and self.number is not None:
            self.page.show_lines(self._lines(self.picture, self.number))

    def row_text(self) -> str:
        """The page's first lines."""
        return "\n".join(self.page.text_of(y) for y in range(min(self.page.count(), 3)))

    def _lines(self, picture: Picture, node: int) -> list[Line]:
        out: list[Line] = [self._head(picture, node)]
        if picture.view.link_reasons[node]:
            out.append(((f" {picture.view.link_reasons[node]}", STYLES[int(picture.state[node])]),))
        released = released_words(picture.view, node)
        if released:
            out.append(((f" {self.look.glyphs.released} {released}", "info"),
                        (f"   not read, not judged{'; x takes them back' if self.live else ''}", "muted")))
        bad = picture.snapshot.bad_frames.get(node)
        if bad:
            out.append(((f" its last frame could not be used: {bad}", "warning"),))
        alerts = picture.alerts_of.get(node, [])
        for alert in alerts:
            out += self._alert(picture, node, alert)
        if not alerts and picture.state[node] == 0:
            out.append(((f" {self.look.glyphs.ok} no alert on this node", "ok"),))
        out += self._differs(picture, node)
        wide = self.page.wide
        for section in (machine_lines(picture, node, wide), probe_lines(picture, node, wide),
                        self._groups(picture, node), self._gpus(picture, node), self._processes(picture, node),
                        node_lines(picture, node, self.look.glyphs, wide),
                        traffic.node_lines(picture, node, self.look.glyphs, wide), self._ports(picture, node),
                        self._pcie(picture, node), self._net(picture, node),
                        self._disks(picture, node), unknown_lines(picture, node, wide), self._facts(picture, node)):
            if section:
                out.append(())
                out += section
        return out

    def _alert(self, picture: Picture, node: int, alert: Alert) -> list[Line]:
        """An alert on the node; of one about many things, what of it is here."""
        text, style = severity(self.look.glyphs, alert.severity)
        known = known_words(alert, picture.snapshot)
        what = alert.thing.label if alert.thing.key or not alert.thing.node else "node"
        out: list[Line] = [
            ((f" {text:<7} ", "muted" if known else style),
             (f"{duration(picture.view.at - alert.since):>7}  ", "muted"),
             ("" if alert.message.startswith(what) else f"{what}: ", "title"),
             *([(f"({known}) ", "info")] if known else []), (alert.message, "text"))]
        newest = self.source.snapshot
        if many(alert) and newest is not None:
            mine = [one for one in newest.engine.inside(newest.view, alert) if one.on == (node,)]
            out += [((f"{'':18}{thing_words(one.thing, 0)}: ", "muted"), (one.message, "muted"))
                    for one in mine[:MOST_INSIDE]]
            if len(mine) > MOST_INSIDE:
                out.append(((f"{'':18}and {len(mine) - MOST_INSIDE} more", "muted"),))
        return out

    def _head(self, picture: Picture, node: int) -> Line:
        info, state = picture.view.nodes[node], int(picture.state[node])
        where = "  ".join(text for text in (
            f"rack {info.rack}" if info.rack else "", f"leaf {info.leaf}" if info.leaf else "",
            f"host {info.host}" if info.host and info.host != info.name else "", _jobs(picture, node),
            " ".join(f"@{g}" for g in info.groups),
        ) if text)
        age = picture.view["node"].value("frame_age_seconds", node)
        seen = "never heard of" if age is None else f"last frame {duration(age)} ago"
        return ((f" {picture.atlas.names[node]}  ", "title"),
                (f"{mark(self.look.glyphs, state)} {picture.words_of(node)}", STYLES[state]),
                (f"  {where}  {seen}", "muted"))

    def _processes(self, picture: Picture, node: int) -> list[Line]:
        if not self._has_gpus(picture, node):
            return []
        asked = None if self.asked is None else time.monotonic() - self.asked
        return process_lines(picture, node, self.look, asked, self.live, self.page.wide)

    def _has_gpus(self, picture: Picture, node: int) -> bool:
        return bool(len(picture.atlas.gpus)) and bool((picture.atlas.gpus[node] >= 0).any())

    def _facts(self, picture: Picture, node: int) -> list[Line]:
        facts = picture.view.facts[node]
        if not facts:
            return [title(" Facts", "none told yet")]
        names = [*(name for name in _FACTS if name in facts), *(name for name in facts if name not in _FACTS)]
        return [title(" Facts"),
                *(((f"   {name:<12} ", "muted"), (str(facts[name]), "text"))
                  for name in names if facts[name] is not None)]

    def _differs(self, picture: Picture, node: int) -> list[Line]:
        """What sets the node apart from its peers."""
        return [((f" {self.look.glyphs.info} differs ", "info"), (f"{one.things}: ", "title"),
                 (one.words(), "text"))
                for one in picture.atlas.differences.of(picture.view, picture.view.nodes[node].name)]

    def _groups(self, picture: Picture, node: int) -> list[Line]:
        table = picture.view["group"]
        rows = table.rows_of(node).tolist()
        out: list[Line] = [title(" Groups of readings")]
        for row in rows:
            state = table.value("group_state", row)
            style = {host.OK: "ok", host.HUNG: "critical", host.ERROR: "critical"}.get(
                host.OK if state is None else int(state), "muted")
            text = host.GROUP_WORDS.get(int(state), "?") if state is not None else "?"
            said = str(table.attrs[row].get("said") or "")
            every = interval(table, row)
            out.append((
                (f"   {table.keys[row]:<6}", "text"), (f"{text:<13}", style if state is not None else "unknown"),
                ("age ", "muted"), (f"{value(table, 'group_age_seconds', row)[0]:>8}", "text"),
                ("  every ", "muted"), (f"{every[0]:>7}", every[1]),
                ("  costs ", "muted"), (f"{value(table, 'reading_seconds', row)[0]:>7}", "text"),
                (f"  {said}", "critical" if state == host.HUNG else "warning"),
            ))
        if not rows:
            out.append((("   none read yet", "unknown"),))
        return out

    def _gpus(self, picture: Picture, node: int) -> list[Line]:
        table, glyphs, wide = picture.view["gpu"], self.look.glyphs, self.page.wide
        slots = [row for row in picture.atlas.gpus[node].tolist() if row >= 0] if len(picture.atlas.gpus) else []
        names = {str(table.attrs[row].get("name") or "") for row in slots}
        if not slots:
            known = picture.view["group"].row_of(node, "gpu")
            state = picture.view["group"].value("group_state", known) if known is not None else None
            words = {host.OFF: "no GPU on this node", host.RELEASED: "released"}
            return [title(" GPUs", words.get(int(state), "none known") if state is not None else "none known")]
        trend = 0 if wide < 89 else min(16, (wide - 83) // 3)
        gap = trend + 1 if trend else 0
        head = f"   {'GPU':<7}{'state':<11}{'util':>9} {'':{gap}}{'power':>8} {'':{gap}}{'temp':>7} {'':{gap}}"
        head += f"{'used':>9}{'SM':>9}  {'link':<12}"
        out: list[Line] = [title(" GPUs", ", ".join(sorted(names))), ((head, "head"),)]
        out += [self._gpu(picture, row, trend) for row in slots]
        if trend:
            out.append(((f"   curves: the last {duration(trend * (1 if glyphs.ascii else 2) * 2.0)}", "muted"),))
        return out

    def _gpu(self, picture: Picture, row: int, trend: int) -> Line:
        table, glyphs = picture.view["gpu"], self.look.glyphs
        presence = table.value("presence", row)
        if presence in {gpus.LOST, gpus.MISSING}:
            state: Span = (f"{glyphs.lost} {'LOST' if presence == gpus.LOST else 'MISSING'}", "critical")
        elif table.why_of("presence")[row] == Why.RELEASED:
            state = (f"{glyphs.released} released", "info")
        elif presence is None:
            state = (f"{glyphs.stale} stale", "stale")
        else:
            state = severity(glyphs, int(picture.gpu_severity[row]))
        limit = table.value("power_limit_watts", row) or 700.0
        spans: list[Span] = [(f"   {table.labels[row]:<7}", "text"), (f"{state[0]:<11}", state[1])]
        for column, width, lo, hi in (("utilization_ratio", 9, 0.0, 1.0), ("power_watts", 8, 0.0, limit),
                                      ("temperature_celsius", 7, 20.0, 95.0)):
            text, style = value(table, column, row)
            spans.append((f"{glyphs.plain(text):>{width}} ", style))
            if trend:
                series = picture.view.history.series("gpu", column, row)
                spans.append((glyphs.spark(series.tolist(), trend, lo, hi) + " ", "accent"))
        for column in ("memory_used_bytes", "sm_clock_hertz"):
            text, style = value(table, column, row)
            spans.append((f"{text:>9}", style))
        text, style = devices.gpu_link(picture, row)
        spans.append((f"  {text:<12}", style))
        mask = table.value("clocks_event_reasons", row)
        if mask:
            spans.append((f"  {', '.join(gpus.reason_words(mask))}", "muted"))
        return tuple(spans)

    def _ports(self, picture: Picture, node: int) -> list[Line]:
        table, glyphs = picture.view["port"], self.look.glyphs
        rows = table.rows_of(node).tolist()
        virtual = [row for row in rows if table.value("virtual", row) == 1]
        rows = [row for row in rows if row not in virtual]
        full = self.page.wide >= 116
        name, across = (14, 18) if full else (12, 15)
        columns = [("tx", "transmit_bytes_per_second", 10), ("rx", "receive_bytes_per_second", 10),
                   ("hard/min", "hard_errors_last_minute", 9), ("soft/min", "soft_errors_last_minute", 9)]
        if full:
            columns = [("rate", "rate_bits_per_second", 9), *columns, ("hard", "hard_errors_total", 9),
                       ("soft", "soft_errors_total", 9)]
        out: list[Line] = [title(" RDMA ports", (f"with {len(virtual)} virtual functions (on the RDMA screen: v)"
                                             if virtual else "") if rows else "none known")]
        if rows:
            head = "".join(f"{words:>{width}}" for words, _, width in columns)
            out.append(((f"   {'port':<{name}}{'state':<10}{'link':<{across}}{head}", "head"),))
        for row in rows:
            mark_text, style = ports.state(picture, row, glyphs)
            words, link_style = ports.link(picture, row, short=not full)
            spans: list[Span] = [(f"   {glyphs.fit(table.labels[row], name - 1)} ", "text"),
                                 (f"{mark_text:<10}", style), (f"{glyphs.fit(words, across - 1)} ", link_style)]
            for _, column, width in columns:
                text, own = value(table, column, row)
                bad = "errors" in column and (table.value(column, row) or 0) > 0
                spans.append((f"{text:>{width}}", ("critical" if "hard" in column else "warning") if bad else own))
            out.append(tuple(spans))
        return out

    def _pcie(self, picture: Picture, node: int) -> list[Line]:
        table, glyphs = picture.view["pcie"], self.look.glyphs
        rows: list[int] = table.rows_of(node).tolist()
        ends = [row for row in rows if table.value("endpoint", row) == 1]
        bridges = len(rows) - len(ends)
        out: list[Line] = [title(" PCIe devices", f"{bridges} bridges above them" if rows else "none known")]
        if ends:
            out.append(((f"   {'device':<17}{'state':<10}{'lanes':<11}{'link':<13}{'note':<13}{'lost':>9}  "
                         f"{'kind':<6}", "head"),))
        ends.sort(key=lambda row: -(table.value("lost_bytes_per_second", row) or 0))
        for row in ends:
            mark_text, style = devices.state(picture, row, glyphs)
            lanes, hop, lost, link_now = (made(picture, row) for made in (
                devices.lanes, devices.note, devices.lost, devices.link))
            out.append((
                (f"   {glyphs.fit(table.labels[row], 16)} ", "text"), (f"{mark_text:<10}", style),
                (f"{lanes[0]:<11}", lanes[1]), (f"{link_now[0]:<13}", link_now[1]),
                (f"{glyphs.fit(hop[0], 12)} ", hop[1]), (f"{lost[0]:>9}  ", lost[1]),
                (f"{devices.kind_word(picture, row):<6}", "muted"),
            ))
        return out

    def _net(self, picture: Picture, node: int) -> list[Line]:
        table, glyphs = picture.view["net"], self.look.glyphs
        rows = table.rows_of(node).tolist()
        out: list[Line] = [title(" Network interfaces", "" if rows else "none known")]
        if rows:
            out.append(((f"   {'name':<16}{'state':<7}{'speed':>10}{'rx':>12}{'tx':>12}{'rx err/s':>10}{'tx err/s':>10}"
                         f"{'drops/s':>9}{'MTU':>9}", "head"),))
        for row in rows:
            state = value(table, "operational", row)
            spans: list[Span] = [(f"   {glyphs.fit(table.labels[row], 15)} ", "text"),
                                 (f"{state[0]:<7}", "muted" if state[0] == "down" else state[1])]
            for column, width in (("speed_bits_per_second", 10), ("receive_bytes_per_second", 12),
                                  ("transmit_bytes_per_second", 12), ("receive_errors_per_second", 10),
                                  ("transmit_errors_per_second", 10), ("receive_drops_per_second", 9),
                                  ("mtu_bytes", 9)):
                amount = table.value(column, row)
                text, style = value(table, column, row)
                if column == "mtu_bytes" and amount is not None:
                    text = f"{amount:.0f}"
                spans.append((f"{text:>{width}}", style))
            out.append(tuple(spans))
            out += self._link(picture, node, table.labels[row])
        return out

    def _link(self, picture: Picture, node: int, name: str) -> list[Line]:
        """What an interface belongs to, its addresses, and pauses and drops where there are any."""
        table = picture.view["link"]
        row = next((row for row in table.rows_of(node).tolist() if table.labels[row] == name), None)
        if row is None:
            return []
        attrs = table.attrs[row]
        words = [str(attrs["kind"])] if attrs.get("kind") else []
        words += [f"{word} {attrs[key]}" for key, word in (("vlan", "id"), ("under", "on"), ("master", "in"))
                  if attrs.get(key)]
        for key, word in (("members", "of "), ("addresses", "")):
            several = attrs.get(key)
            if isinstance(several, list) and several:
                words.append(word + " ".join(several))
        if attrs.get("more_addresses"):
            words.append(f"and {attrs['more_addresses']} more")
        spans: list[Span] = [(f"     {self.look.glyphs.plain('  '.join(words))}", "muted")] if words else []
        spans += [(f"  {table.spec.metric(column).label} {value(table, column, row)[0]}", "warning")
                  for column in SUMS if table.value(column, row)]
        return [tuple(spans)] if spans else []

    def _disks(self, picture: Picture, node: int) -> list[Line]:
        table, glyphs = picture.view["disk"], self.look.glyphs
        rows = table.rows_of(node).tolist()
        out: list[Line] = [title(" Local file systems", "" if rows else "none known")]
        if rows:
            out.append(((f"   {'place':<20}{'state':<10}{'used':>7}{'free':>11}{'size':>11}{'inodes':>8}  "
                         f"{'type':<8}{'device':<20}", "head"),))
        for row in rows:
            mark_text, style = severity(glyphs, picture.row_state("disk", row))
            spans: list[Span] = [(f"   {glyphs.fit(table.labels[row], 19)} ", "text"), (f"{mark_text:<10}", style)]
            for column, width in (("used_ratio", 7), ("available_bytes", 11), ("size_bytes", 11),
                                  ("inodes_used_ratio", 8)):
                text, own = value(table, column, row)
                spans.append((f"{text:>{width}}", own))
            attrs = table.attrs[row]
            kind, device = (str(attrs.get(key) or "") for key in ("type", "device"))
            mode = "  read-only" if attrs.get("read_only") else ""
            spans.append((f"  {glyphs.fit(kind, 7)} {glyphs.fit(device, 20)}{mode}", "muted"))
            out.append(tuple(spans))
        return out

    def step(self, by: int) -> str:
        """Go to the next node in the inventory that the filter leaves; returns its name."""
        if self.picture is None or self.number is None:
            return ""
        order = np.flatnonzero(self.picture.shown_nodes)
        if not len(order):
            return ""
        later = order[order > self.number] if by > 0 else order[order < self.number][::-1]
        self.number = int(later[0]) if len(later) else int(order[0 if by > 0 else -1])
        self.asked = None
        self.page.scroll_to(y=0, animate=False)
        self.draw()
        return self.picture.atlas.names[self.number]


def _jobs(picture: Picture, node: int) -> str:
    names = picture.view.jobs.of_node[node]
    if names is None:
        return ""
    return f"job{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else "no job"
