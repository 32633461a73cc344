"""What keys and commands do to the screen in front."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.app import App
from textual.widgets import Input

from clustertop.model import LinkState, Request
from clustertop.tui import terminal
from clustertop.tui.commands import Palette
from clustertop.tui.confirm import Confirm
from clustertop.tui.heat import HEATS
from clustertop.tui.help import HelpScreen
from clustertop.tui.panes.alerts import AlertsPane
from clustertop.tui.panes.fleet import FleetPane
from clustertop.tui.panes.gpu import GpuPane
from clustertop.tui.panes.nodes import NodesPane
from clustertop.tui.panes.outliers import OutliersPane
from clustertop.tui.panes.pcie import PciePane
from clustertop.tui.panes.power import PowerPane
from clustertop.tui.panes.rdma import RdmaPane
from clustertop.tui.panes.traffic import TrafficPane
from clustertop.tui.widgets.lines import LineView

if TYPE_CHECKING:
    from clustertop.tui.atlas import Atlas
    from clustertop.tui.panes.base import Pane
    from clustertop.tui.picture import Picture
    from clustertop.tui.source import Source
    from clustertop.tui.theme import Theme
    from clustertop.tui.widgets.lines import Look
    from clustertop.tui.widgets.table import Table


LET_GO = (
    "clustertop closes the driver library there, so that nvidia-smi -r works.",
    "Until they are taken back, with the same key, nothing of these GPUs is",
    "read or judged; that holds over reconnects and restarts of clustertop.",
    "What else has them open (persistence daemon, DCGM, a job) stays open.",
    "Nothing on the node is changed.",
)
TAKE = ("They are read and judged again, from the next reading on.",)


class Acting(App[int]):
    """The actions; :class:`clustertop.tui.app.ConsoleApp` has the data and the drawing."""

    source: Source
    look: Look
    atlas: Atlas
    picture: Picture | None
    panes: dict[str, Pane]
    front: str
    filter_text: str
    paused_at: float | None
    themes: dict[str, Theme]
    theme_name: str
    _mono: bool
    _mouse: bool
    _new_at: float

    def draw(self) -> None:
        """Make the picture again and draw."""
        raise NotImplementedError

    def draw_front(self) -> None:
        """Draw the pane in front."""
        raise NotImplementedError

    def look_at_source(self) -> None:
        """Take a new snapshot if there is one."""
        raise NotImplementedError

    def say(self, words: str) -> None:
        """Say *words* for a moment."""
        raise NotImplementedError

    def use_theme(self, name: str) -> None:
        """Draw everything in theme *name*."""
        raise NotImplementedError

    def action_screen_to(self, name: str) -> None:
        """Bring a screen to the front."""
        raise NotImplementedError

    # -- actions: moving -----------------------------------------------------------------------------------------

    def action_move(self, dx: int, dy: int) -> None:
        """Move the cursor."""
        self.panes[self.front].target.move(dx, dy)

    def action_page(self, pages: int) -> None:
        """Move by pages."""
        target = self.panes[self.front].target
        target.move(0, pages * max(target.tall - 1, 1))

    def action_edge(self, last: bool) -> None:
        """Move to an end."""
        self.panes[self.front].target.edge(last)

    def action_part(self) -> None:
        """Move in the other list."""
        self.panes[self.front].next_part()

    def action_next_problem(self, step: int) -> None:
        """To the next node that is not ok."""
        pane = self.panes["fleet"]
        if isinstance(pane, FleetPane):
            self.say(pane.next_problem(step))

    # -- actions: showing ----------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Open the filter's line."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.value = self.filter_text
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        if event.input.id == "filter" and event.value != self.filter_text:
            self.filter_text = event.value
            self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the keys."""
        if event.input.id == "filter":
            self._close_filter()

    def _close_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = False
        self.set_focus(None)
        self.call_after_refresh(self.draw_front)

    def clear_filter(self) -> None:
        """Show everything again."""
        self.filter_text = ""
        self._close_filter()
        self.draw()

    def action_freeze(self) -> None:
        """Hold the picture, or let it go on."""
        self.paused_at = time.monotonic() if self.paused_at is None else None
        self._new_at = time.monotonic()
        self.look_at_source()

    def action_metric(self, step: int) -> None:
        """The next metric of the map."""
        pane = self.panes["fleet"]
        if isinstance(pane, FleetPane):
            self.say(pane.cycle_metric(step))

    def show_metric(self, name: str) -> None:
        """The map of metric *name*."""
        pane = self.panes["fleet"]
        if isinstance(pane, FleetPane):
            pane.map.metric = next(heat for heat in HEATS if heat.name == name)
            self.action_screen_to("fleet")

    def action_density(self) -> None:
        """Numbers or dense tiles."""
        pane = self.panes[self.front]
        if isinstance(pane, FleetPane):
            self.say(f"tiles: {pane.cycle_density()}")
        elif isinstance(pane, TrafficPane):
            self.say(f"matrix: {pane.cycle_density()}")

    def action_log(self) -> None:
        """The log, or the detail."""
        pane = self.panes["alerts"]
        if isinstance(pane, AlertsPane):
            pane.toggle_log()
            self.call_after_refresh(self.draw_front)

    def action_log_screen(self) -> None:
        """The alerts with the log below."""
        pane = self.panes["alerts"]
        if isinstance(pane, AlertsPane) and not pane.log_shown:
            pane.toggle_log()
        self.action_screen_to("alerts")

    def open_gpu(self, node: int, row: int | None = None) -> None:
        """Show everything about one GPU; None: the one of *node* that is worst off."""
        pane = self.panes["gpu"]
        if isinstance(pane, GpuPane) and self.picture is not None:
            pane.open(self.picture, node, row)
            self.action_screen_to("gpu")

    def action_gpu_page(self) -> None:
        """The page of the GPU under the cursor, or of the worst GPU of the node under it."""
        front = self.panes[self.front]
        node = front.node()
        row = None
        if isinstance(front, NodesPane) and front.table is front.gpus:
            row = front.gpus.row
        elif isinstance(front, PciePane):
            row = front.gpu()
            if row is None:
                self.say("not a GPU that NVML answers for")
                return
        if node is not None:
            self.open_gpu(node, row)

    def action_virtual(self) -> None:
        """Virtual functions, or not."""
        pane = self.panes["rdma"]
        if isinstance(pane, RdmaPane):
            self.say(pane.toggle_virtual())

    def action_virtual_screen(self) -> None:
        """The ports with their virtual functions."""
        pane = self.panes["rdma"]
        if isinstance(pane, RdmaPane) and not pane.unfolded:
            pane.toggle_virtual()
        self.action_screen_to("rdma")

    def action_per_gpu(self) -> None:
        """Lines per GPU, or per node; elsewhere the page of the GPU."""
        pane = self.panes["nodes"]
        if self.front != "nodes":
            self.action_gpu_page()
        elif isinstance(pane, NodesPane):
            self.say(pane.toggle_gpus())
            self.call_after_refresh(self.draw_front)

    def action_per_gpu_screen(self) -> None:
        """The nodes, a line per GPU."""
        pane = self.panes["nodes"]
        if isinstance(pane, NodesPane) and pane.table is pane.nodes:
            pane.toggle_gpus()
        self.action_screen_to("nodes")

    def action_all(self) -> None:
        """Every row, or those in trouble."""
        pane = self.panes[self.front]
        if isinstance(pane, PciePane | PowerPane | RdmaPane | TrafficPane):
            self.say(pane.toggle_all())
        elif isinstance(pane, AlertsPane):
            self.say(pane.toggle_known())

    def _table(self) -> Table[Picture] | None:
        pane = self.panes[self.front]
        if isinstance(pane, AlertsPane | NodesPane | OutliersPane | PciePane | PowerPane | RdmaPane | TrafficPane):
            return pane.table
        return None

    def action_sort(self, step: int) -> None:
        """Order by the next column."""
        table = self._table()
        if table is not None:
            name = table.cycle_sort(step)
            self.draw_front()
            self.say(f"ordered by {name}" if name else "worst first")

    def action_reverse(self) -> None:
        """Turn the order round."""
        table = self._table()
        if table is not None:
            table.flip()
            self.draw_front()

    # -- actions: the rest ---------------------------------------------------------------------------------------

    def action_copy(self) -> None:
        """Copy the row under the cursor as plain text."""
        text = self.panes[self.front].row_text()
        if text:
            self.copy_to_clipboard(text)
            self.say("copied: " + text.replace("\n", " "))

    def action_full_reading(self) -> None:
        """Ask the node for a full frame, and its BMC for a reading; of a feed, its PDU."""
        node, picture = self.panes[self.front].node(), self.picture
        device = self.panes[self.front].devices_of()
        if node is None and device is not None and picture is not None:
            self.source.request(Request(device, {"do": "full"}))
            self.say(f"asked {picture.view.owners[device].name} for a reading, as soon as it can bear one")
        elif node is not None:
            self.source.request(Request(node, {"do": "full"}))
            self.say(f"asked {self.atlas.names[node]} for a full reading")
        else:
            self.say(self.no_node())

    def no_node(self) -> str:
        """Why there is no node to do something with."""
        pane = self.panes[self.front]
        if isinstance(pane, AlertsPane) and pane.opens():
            return "an alert about many nodes: + unfolds it"
        return "no node under the cursor"

    def action_release(self) -> None:
        """Let go of the GPUs of the node under the cursor, or take them back; asks first."""
        node = self.panes[self.front].node()
        if node is None:
            self.say(self.no_node())
            return
        name = self.atlas.names[node]
        if not self.source.live:
            self.say("a recording: there is no node to ask")
            return
        held = not self.source.released(node)
        question = Confirm(self.look, f"Let go of the GPUs of {name}?" if held else f"Take the GPUs of {name} back?",
                           LET_GO if held else TAKE, "let go" if held else "take them back")
        self.push_screen(question, lambda yes: self._release(node, release=held) if yes else None)

    def _release(self, node: int, *, release: bool) -> None:
        name = self.atlas.names[node]
        self.source.request(Request(node, {"do": "release" if release else "take", "group": "gpu"}))
        up = self.picture is not None and self.picture.link[node] == LinkState.UP
        what = "to let go of its GPUs" if release else "to take its GPUs again"
        then = "it comes back without its GPUs" if release else "it takes its GPUs when it is back"
        self.say(f"asked {name} {what}" if up else f"{name} is not connected: {then}")

    def action_by_job(self) -> None:
        """Nodes under their jobs; or lines per job."""
        pane = self.panes[self.front]
        if isinstance(pane, FleetPane):
            self.say(pane.toggle_by_job())
        elif isinstance(pane, NodesPane):
            self.say(pane.toggle_jobs())
            self.call_after_refresh(self.draw_front)

    def show_by_job(self, by_job: bool) -> None:
        """The map by job, or by rack."""
        pane = self.panes["fleet"]
        if isinstance(pane, FleetPane) and pane.map.by_job != by_job:
            self.say(pane.toggle_by_job())
        self.action_screen_to("fleet")

    def action_jobs_screen(self) -> None:
        """The nodes, a line per job."""
        pane = self.panes["nodes"]
        if isinstance(pane, NodesPane) and pane.table is not pane.jobs:
            pane.toggle_jobs()
        self.action_screen_to("nodes")

    def show_job(self, name: str) -> None:
        """The nodes of one job."""
        pane = self.panes["nodes"]
        if isinstance(pane, NodesPane) and pane.table is pane.jobs:
            pane.toggle_jobs()
        self.show_nodes_of(f"job:{name}")

    def show_nodes_of(self, term: str) -> None:
        """The nodes that the filter's *term* finds."""
        self.filter_text = term
        self.action_screen_to("nodes")
        self.draw()

    def action_theme(self) -> None:
        """The next theme."""
        if self._mono:
            self.say("NO_COLOR is set: no colours")
            return
        names = list(self.themes)
        self.use_theme(names[(names.index(self.theme_name) + 1) % len(names)])
        self.say(f"theme: {self.theme_name}")

    def action_mouse(self) -> None:
        """Switch mouse reporting off or on."""
        self._mouse = not self._mouse
        if self._driver is not None:
            self._driver.write(terminal.MOUSE_ON if self._mouse else terminal.MOUSE_OFF)
            self._driver.flush()
        self.say("mouse on" if self._mouse else "mouse off: the terminal selects text")

    def action_redraw(self) -> None:
        """Draw the whole screen again."""
        if self._driver is not None:
            self._driver.write("\x1b[2J")
        self.refresh(layout=True)
        for view in self.screen.query(LineView):
            view.redraw()

    def action_help(self) -> None:
        """Show every key."""
        self.push_screen(HelpScreen(self.look))

    def action_command_palette(self) -> None:
        """Commands by name."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette", placeholder="command or node"))

    async def action_quit(self) -> None:
        """Leave."""
        self.leave()

    def leave(self) -> None:
        """Leave with status 0."""
        self.exit(0)
