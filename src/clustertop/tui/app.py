"""The console: one screen, eight tabs and a page per node, drawn from one snapshot at a time."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Vertical
from textual.reactive import reactive
from textual.widgets import ContentSwitcher, Input
from textual.worker import WorkerFailed

from clustertop.model import Request, Severity
from clustertop.tui import terminal, theme
from clustertop.tui.actions import ALL, LISTS, SCREENS, WHERE, bindings, keys_for
from clustertop.tui.atlas import Atlas
from clustertop.tui.commands import Commands
from clustertop.tui.glyphs import ASCII, UNICODE, utf8_locale
from clustertop.tui.handling import Handling
from clustertop.tui.panes.alerts import AlertsPane
from clustertop.tui.panes.detail import DetailPane
from clustertop.tui.panes.fleet import FleetPane
from clustertop.tui.panes.gpu import GpuPane
from clustertop.tui.panes.nodes import NodesPane
from clustertop.tui.panes.outliers import OutliersPane
from clustertop.tui.panes.pcie import PciePane
from clustertop.tui.panes.power import PowerPane
from clustertop.tui.panes.processes import ASK_SECONDS, RENEW_SECONDS, may_ask
from clustertop.tui.panes.rdma import RdmaPane
from clustertop.tui.panes.traffic import TrafficPane
from clustertop.tui.picture import Picture
from clustertop.tui.source import Source
from clustertop.tui.widgets.bars import Bar, Keys, Moment, Summary, Tabs
from clustertop.tui.widgets.lines import LineView, Look

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from clustertop.core import Snapshot
    from clustertop.tui.panes.base import Pane
    from clustertop.tui.widgets.heatmap import HeatMap
    from clustertop.tui.widgets.matrix import RackMatrix
    from clustertop.tui.widgets.table import Table

__all__ = ["ConsoleApp", "Source", "run_console"]

LOOK_SECONDS = 0.25
"""How often the source is looked at: so late at most is a snapshot drawn, and four times a second at most."""
SAID_SECONDS = 3.0
LOOK_AGAIN_SECONDS = 30.0
"""How often it is said again that somebody looks at a PDU or a BMC; half of how long that holds."""
NEWS = frozenset({"raised", "worsened", "remains"})
"""Transitions that the bell rings for."""
SILENCE_SECONDS = 4.0
"""Without a new snapshot for so long the summary says so."""


class ConsoleApp(Handling):
    """The console. It reads ``source`` and asks nothing else of anybody."""

    TITLE = "clustertop"
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {Commands}  # noqa: RUF012 - Textual's own class attribute
    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]
    CSS = """
    Screen { layout: vertical; background: $background; color: $foreground; }
    #body { height: 1fr; }
    #panes { height: 1fr; }
    Pane { height: 1fr; }
    FleetPane #map, Table, #page, #gpu-page { height: 1fr; }
    Document { height: auto; background: $background; }
    #alert-detail, #rdma-counters, #pcie-detail, #power-detail, #traffic-detail { background: $panel; height: 8; }
    #traffic-middle { height: 10; }
    #traffic-matrix, #traffic-leaves { width: 1fr; height: 1fr; }
    #empty { height: 1fr; }
    #filter { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
    #filter:focus { border: none; }
    #legend, #alerts-head, #pcie-head, #rdma-head, #power-head, #outliers-head { background: $background; }
    #traffic-head { background: $background; }
    #fleet-line { background: $panel; }
    #fleet-worst { background: $background; }
    Palette #--input, Palette #--input.--list-visible, Palette CommandList { border: blank; }
    Palette LoadingIndicator, Palette LoadingIndicator.--visible { display: none; }
    """

    snapshot: reactive[Snapshot | None] = reactive(None, always_update=False, init=False, repaint=False)

    def __init__(
        self, source: Source, *, theme_name: str = theme.DEFAULT, refresh_seconds: float = 1.0,
        ascii_only: bool = False, mouse: bool = True, bell: bool = False,
    ) -> None:
        no_color = bool(os.environ.get("NO_COLOR"))
        super().__init__(ansi_color=True if no_color else None)
        self.source = source
        self.themes, self.problems = theme.load_all()
        self._mono = no_color
        few = self.console.color_system == "standard" and not no_color
        self.theme_name = self._find_theme("ansi" if few and theme_name == theme.DEFAULT else theme_name)
        self.look = Look(self._palette(), ASCII if ascii_only else UNICODE)
        self.atlas = Atlas()
        self.picture: Picture | None = None
        self.paused_at: float | None = None
        self.filter_text = ""
        self.tabs = Tabs(self.look, SCREENS)
        self.summary = Summary(self.look, id="summary")
        self.keys = Keys(self.look, id="keys")
        self.empty = Bar(self.look, id="empty")
        self.panes: dict[str, Pane] = {
            "fleet": FleetPane(self.look), "alerts": AlertsPane(self.look, source), "nodes": NodesPane(self.look),
            "pcie": PciePane(self.look), "rdma": RdmaPane(self.look), "power": PowerPane(self.look),
            "traffic": TrafficPane(self.look), "outliers": OutliersPane(self.look),
            "detail": DetailPane(self.look, source), "gpu": GpuPane(self.look),
        }
        for bar in (self.tabs, self.summary, self.keys):
            bar.remake = self.draw_bars
        self.front = "fleet"
        self._back: list[str] = []
        """Where Esc goes from a page, newest last."""
        self._mouse = mouse
        self._least = max(refresh_seconds, LOOK_SECONDS)
        self._new_at = time.monotonic()
        self._said: tuple[str, float] = ("", 0.0)
        self._tty = False
        self._rings = bell
        self._heard = float("-inf")
        """The moment up to which transitions have been looked at for the bell."""
        self._asking: tuple[int, float] | None = None
        """The node whose processes were asked for last, and when."""
        self._looking: tuple[int, float] | None = None
        """The owner whose devices were asked for all they have last, and when."""

    def compose(self) -> ComposeResult:
        """Tabs, summary, the panes one over the other, the filter, the keys."""
        yield self.tabs
        yield self.summary
        with Vertical(id="body"):
            yield self.empty
            with ContentSwitcher(id="panes", initial="fleet"):
                yield from self.panes.values()
        yield Input(id="filter", placeholder="words in name, rack, job, label or state", select_on_focus=False)
        yield self.keys

    def on_mount(self) -> None:
        """Set the colours and begin to look at the source."""
        for made in self.themes.values():
            self.register_theme(made.textual())
        self.use_theme(self.theme_name)
        box = self.query_one("#filter", Input)
        box.cursor_blink = False
        self.query_one("#panes").display = False
        if self.problems:
            self.say(self.problems[0])
        self._tty = not self.is_headless and os.isatty(0)
        self.set_interval(LOOK_SECONDS, self.look_at_source)
        self.call_after_refresh(self.look_at_source)

    # -- data in -------------------------------------------------------------------------------------------------

    def look_at_source(self) -> None:
        """Take a new snapshot if there is one and it is time, and bring the summary up to date."""
        now = time.monotonic()
        if self._tty and terminal.lost():
            self.exit(129)
            return
        newest = self.source.snapshot
        shown = self.snapshot
        # Counted between the moments shown, not between drawings: else a moment that comes right after a drawing
        # waits for the next one, and so does every moment after it. Half a look's grace against jitter.
        if self.paused_at is None and newest is not None and (
                shown is None or (newest.view.generation != shown.view.generation
                and newest.view.at - shown.view.at >= self._least - LOOK_SECONDS / 2)):
            self._new_at = now
            self.snapshot = newest
        if newest is not None:
            self._ring(newest)
        self._ask_processes(now)
        self._ask_devices(now)
        self.draw_bars()

    def take_newest(self) -> None:
        """Take the newest snapshot now, for what the operator just did to show; a held picture stays."""
        newest = self.source.snapshot
        if self.paused_at is None and newest is not None:
            self._new_at = time.monotonic()
            self.snapshot = newest

    def _ring(self, newest: Snapshot) -> None:
        """Ring once for the ticks since the last look, if something critical is new; also while the picture is held."""
        if newest.view.at <= self._heard:
            return
        news = itertools.takewhile(lambda change: change.at > self._heard, reversed(newest.log))
        if self._rings and any(change.kind in NEWS and change.severity == Severity.CRITICAL and not change.quiet
                               for change in news):
            self.bell()
        self._heard = newest.view.at

    def _ask_processes(self, now: float) -> None:
        """Have the node whose page is open list its processes; nobody else, and nobody any longer than that."""
        pane, picture = self.panes["detail"], self.picture
        if not isinstance(pane, DetailPane):
            return
        node = pane.number
        pane.live = self.source.live
        if self.front != "detail" or node is None or picture is None or not may_ask(picture, node):
            self._asking = None
            pane.asked = None
        elif pane.live and (self._asking is None or self._asking[0] != node or now - self._asking[1] >= RENEW_SECONDS):
            self._asking = (node, now)
            pane.asked = pane.asked or now
            self.source.request(Request(node, {"do": "procs", "seconds": ASK_SECONDS}))

    def _ask_devices(self, now: float) -> None:
        """Have the PDU or the BMC that is looked at say all it has; no other, and none any longer than that."""
        owner = self.panes[self.front].devices_of()
        if owner is None or self.picture is None or not self.picture.view.of.site.devices:
            self._looking = None
        elif self.source.live and (self._looking is None or self._looking[0] != owner
                                   or now - self._looking[1] >= LOOK_AGAIN_SECONDS):
            self._looking = (owner, now)
            self.source.request(Request(owner, {"do": "detail", "seconds": 2 * LOOK_AGAIN_SECONDS}))

    def watch_snapshot(self, snapshot: Snapshot | None) -> None:
        """Make the picture of a new snapshot and draw the pane in front."""
        self.draw()

    def draw(self) -> None:
        """Make the picture again (new snapshot, new filter) and draw the pane in front."""
        if self.snapshot is None:
            return
        first = self.picture is None
        terms = tuple(self.filter_text.lower().split())
        self.picture = Picture(self.snapshot, self.atlas, terms)
        if first:
            self.empty.display = False
            self.query_one("#panes").display = True
            self.call_after_refresh(self.draw_front)
        self.draw_front()

    def draw_front(self) -> None:
        """Draw the pane in front."""
        if self.picture is not None:
            self.panes[self.front].show(self.picture)
        self.draw_bars()

    def draw_bars(self) -> None:
        """Draw tabs, summary and keys."""
        if not self.is_running:
            return
        now = time.monotonic()
        picture = self.picture
        badges = {}
        if picture is not None and picture.snapshot.alerts:
            badges["alerts"] = str(len(picture.snapshot.alerts))
        self.tabs.show(self.front, self.source.title, badges)
        paused = None if self.paused_at is None else now - self.paused_at
        silent = now - self._new_at
        late = paused is None and picture is not None and silent > SILENCE_SECONDS + self._least
        moment = Moment(paused, silent if late else None, self.filter_text, self.source.notes)
        self.summary.show(None if picture is None else picture.totals, self.source.cost(), moment)
        if picture is None:
            self.empty.put([(), ((self.waiting_words(), "unknown"),)])
        said, until = self._said
        self.keys.show(keys_for(self.front), said if now < until else "")

    def waiting_words(self) -> str:
        """What is said before the first snapshot."""
        newest = self.source.snapshot
        if newest is None:
            return "  connecting" + self.look.glyphs.plain("…")
        return f"  connecting to {len(newest.view.nodes)} nodes" + self.look.glyphs.plain("…")

    def say(self, words: str) -> None:
        """Say *words* on the line of keys for a moment."""
        if words:
            self._said = (words, time.monotonic() + SAID_SECONDS)
            self.draw_bars()

    def node_names(self) -> tuple[str, ...]:
        """Every node of the inventory."""
        return self.atlas.names

    # -- colours -------------------------------------------------------------------------------------------------

    def _find_theme(self, name: str) -> str:
        if name in self.themes:
            return name
        if name.endswith(".toml"):
            try:
                made = theme.load(Path(name))
            except theme.ThemeError as error:
                self.problems.insert(0, str(error))
            else:
                self.themes[made.name] = made
                return made.name
        else:
            self.problems.insert(0, f"no theme {name!r}; there are {', '.join(self.themes)}")
        if theme.DEFAULT not in self.themes:
            raise theme.ThemeError(f"{theme.folder()}: no usable theme {theme.DEFAULT!r}: "
                                   f"{'; '.join(self.problems) or 'no files there'}")
        return theme.DEFAULT

    def _palette(self) -> theme.Palette:
        return theme.palette(self.themes[self.theme_name], mono=self._mono)

    def use_theme(self, name: str) -> None:
        """Draw everything in theme *name*."""
        self.theme_name = name
        self.theme = "ansi-dark" if self._mono else f"clustertop-{name}"
        self.look.palette = self._palette()
        for view in self.screen_stack[0].query(LineView) if self.screen_stack else ():
            view.redraw()

    # -- actions: screens ----------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """An action that means nothing on the screen in front does nothing."""
        if action == "part" and len(self.screen_stack) > 1:
            return False  # Tab belongs to the page on top
        allowed = WHERE.get(action)
        return allowed is None or self.front in allowed

    def action_screen_to(self, name: str) -> None:
        """Bring a screen to the front."""
        if name not in ALL:
            return
        self.query_one("#panes", ContentSwitcher).current = name
        if name == self.front:
            self.draw_front()
            return
        if name in LISTS:
            self._back = []
        else:
            # Going round between a node and its GPUs does not make the way back longer.
            self._back = self._back[: self._back.index(name)] if name in self._back else [*self._back, self.front]
        self.front = name
        # The pane has its size only after the next layout.
        self.call_after_refresh(self.draw_front)
        self.draw_front()

    def open_node(self, node: int) -> None:
        """Show everything about one node."""
        pane = self.panes["detail"]
        assert isinstance(pane, DetailPane)
        if pane.number != node:
            pane.number, pane.asked = node, None
        pane.page.scroll_to(y=0, animate=False)
        self.action_screen_to("detail")

    def action_open(self) -> None:
        """Show the node under the cursor; the GPU where lines are GPUs; of a job, its nodes."""
        pane = self.panes[self.front]
        if isinstance(pane, NodesPane):
            if pane.table is pane.gpus:
                self.action_gpu_page()
                return
            job = pane.job()
            if job:
                self.show_job(job)
                return
        if isinstance(pane, AlertsPane) and pane.opens():
            self.say(pane.fold())
            return
        if isinstance(pane, PowerPane):
            feed = pane.feed()
            if feed is not None:
                self.show_nodes_of(f"feed:{feed}")
            return
        if isinstance(pane, TrafficPane):
            self._open_scope(pane.term())
            return
        node = pane.node()
        if node is not None:
            self.open_node(node)

    def _open_scope(self, term: str | None) -> None:
        """The nodes of a scope, a leaf or a rack of the Traffic screen."""
        if term is not None and term.startswith("job:"):
            self.show_job(term.removeprefix("job:"))
        elif term is not None:
            self.show_nodes_of(term)

    async def action_back(self) -> None:
        """Back from a page; else clear the filter."""
        if self.front not in LISTS:
            self.action_screen_to(self._back[-1] if self._back else "fleet")
        elif self.filter_text:
            self.clear_filter()

    def action_next_node(self, step: int) -> None:
        """The next node's page, or the next GPU's."""
        pane = self.panes[self.front]
        if isinstance(pane, DetailPane | GpuPane):
            pane.step(step)

    def on_tabs_chosen(self, event: Tabs.Chosen) -> None:
        """A tab was clicked."""
        self.action_screen_to(event.pane)

    def on_heat_map_opened(self, event: HeatMap.Opened) -> None:
        """A node was opened by the mouse."""
        self.open_node(event.node)

    def on_table_opened(self, event: Table.Opened) -> None:
        """A row was opened by the mouse."""
        self.action_open()

    def on_rack_matrix_opened(self, event: RackMatrix.Opened) -> None:
        """A rack was opened by the mouse."""
        self.action_open()

    def _fatal_error(self) -> None:
        """Say where it went wrong, without the values of variables, which Textual's own shows.

        Of a fleet they take many seconds to write, hide what matters, and may be nobody's business.
        """
        self.bell()
        error = self._exception
        self.panic(Text(terminal.last_words(error.error if isinstance(error, WorkerFailed) else error)))

    def on_resize(self) -> None:
        """Another size: the pane in front is laid out again."""
        self.call_after_refresh(self.draw_front)


async def run_console(
    source: Source, *, theme: str = theme.DEFAULT, refresh_seconds: float = 1.0,
    ascii: bool | None = None, mouse: bool = True, bell: bool = False,  # noqa: A002
) -> int:
    """Run the console over *source* until the operator leaves; returns the exit status.

    The caller runs the fleet around this call and closes it afterwards. Whatever ends the console (a key, an error,
    SIGTERM, SIGHUP, SIGINT, the loss of the terminal) the terminal is given back as it was.

    Args:
        source: what is drawn.
        theme: a theme's name, or the path of a theme file.
        refresh_seconds: shortest time between two pictures; never less than a quarter of a second.
        ascii: draw in ASCII only; None: where the locale is not UTF-8.
        mouse: report the mouse.
        bell: ring when something critical is new.
    """
    app = ConsoleApp(
        source, theme_name=theme, refresh_seconds=refresh_seconds,
        ascii_only=not utf8_locale() if ascii is None else ascii, mouse=mouse, bell=bell)
    with terminal.Guard(app.exit) as guard:
        try:
            result = await app.run_async(mouse=mouse)
        finally:
            terminal.end_input(app._driver)
        guard.left()
    with contextlib.suppress(AttributeError):
        if result is None:
            return app.return_code or 0
    return int(result or 0)
