"""The command palette: ``verb: object`` entries, and a jump to every node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider, SearchIcon
from textual.content import Content

from clustertop.tui.actions import SCREENS
from clustertop.tui.heat import HEATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clustertop.tui.app import ConsoleApp

MOST_NODES = 40


class Commands(Provider):
    """What the console can do, by name."""

    @property
    def console(self) -> ConsoleApp:
        """The app."""
        return cast("ConsoleApp", self.app)

    def _fixed(self) -> Iterator[tuple[str, Callable[[], None], str]]:
        app = self.console
        for _, name, title in SCREENS:
            yield f"show: {title}", partial(app.action_screen_to, name), f"the {title} screen"
        for heat in HEATS:
            yield f"map: {heat.name}", partial(app.show_metric, heat.name), app.look.glyphs.plain(heat.title)
        for name in app.themes:
            yield f"theme: {name}", partial(app.use_theme, name), "colours"
        yield "show: lines per GPU", app.action_per_gpu_screen, "the Nodes screen, per GPU"
        yield "show: GPU page", app.action_gpu_page, "everything about the GPU or node under the cursor"
        yield "show: virtual functions", app.action_virtual_screen, "the RDMA screen, unfolded"
        yield "show: lines per job", app.action_jobs_screen, "the Nodes screen, per job"
        yield "map: by job", partial(app.show_by_job, True), "nodes under their jobs"
        yield "map: by rack", partial(app.show_by_job, False), "nodes under their racks"
        yield "node: let go of GPUs, or take them back", app.action_release, "so that a reset works; asks first"
        yield "show: silences and acknowledgements", app.action_in_force, "what is in force, until when; ends them"
        yield "alert: acknowledge, or take that back", app.action_acknowledge, "told again only if it is worse"
        yield "alert: acknowledge for good", app.acknowledge_for_good, "also when it comes back no worse"
        yield "alert: silence", app.action_silence, "thing, node, rack or rule, for a while"
        yield "alert: dismiss", app.action_dismiss, "what is missing is gone for good; asks first"
        yield "alert: unfold", app.action_unfold, "every verdict inside it"
        yield "show: log", app.action_log_screen, "what was raised and cleared"
        yield "freeze: picture", app.action_freeze, "polling goes on"
        yield "filter: nodes", app.action_filter, "words in name, rack, job, label or state"
        yield "filter: nothing", app.clear_filter, "show everything again"
        yield "copy: row", app.action_copy, "as plain text"
        yield "mouse: on or off", app.action_mouse, "off: the terminal's own selection works"
        yield "help: keys", app.action_help, "every key"
        yield "quit: clustertop", app.leave, "leave"

    async def discover(self) -> Hits:
        """What is listed before anything is typed."""
        for name, call, words in self._fixed():
            yield DiscoveryHit(name, call, help=words)

    async def search(self, query: str) -> Hits:
        """What matches *query*."""
        matcher = self.matcher(query)
        for name, call, words in self._fixed():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, Content(name), call, text=name, help=words)
        found = 0
        for node, host in enumerate(self.console.node_names()):
            name = self.console.look.glyphs.plain(f"go to: {host}")
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, Content(name), partial(self.console.open_node, node), text=name, help="this node")
                found += 1
                if found >= MOST_NODES:
                    return


class Palette(CommandPalette):
    """Textual's palette with a narrow mark instead of a picture."""

    def on_mount(self) -> None:
        """Replace the mark, whose width terminals do not agree on."""
        self.query_one(SearchIcon).icon = ">"
