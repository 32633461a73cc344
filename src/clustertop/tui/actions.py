"""Every action of the console in one table: bindings, the line of keys, the help screen and docs/console.md."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

SCREENS: tuple[tuple[str, str, str], ...] = (
    ("1", "fleet", "Fleet"), ("2", "alerts", "Alerts"), ("3", "nodes", "Nodes"), ("4", "pcie", "PCIe"),
    ("5", "rdma", "RDMA"), ("6", "power", "Power"), ("7", "traffic", "Traffic"), ("o", "outliers", "Outliers"),
)
"""Key, name and title of each screen that has a tab."""
LISTS = ("fleet", "alerts", "nodes", "pcie", "rdma", "power", "traffic", "outliers")
TABLES = LISTS[1:]
ALL = (*LISTS, "detail", "gpu")


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a key does."""

    id: str
    keys: str
    """Textual's names, with commas between."""
    call: str
    """The app's action, with arguments."""
    shown: str
    """The keys as people write them."""
    words: str
    """Short, for the line of keys; empty: not shown there."""
    help: str
    group: str
    where: tuple[str, ...] = ALL
    """Screens on which it does something."""


ACTIONS: tuple[Action, ...] = (
    *(Action(f"screen-{name}", key, f"screen_to('{name}')", key, "", f"{title} screen", "Screens")
      for key, name, title in SCREENS),
    Action("open", "enter", "open", "Enter", "open",
           "everything about the node or the GPU under the cursor; of a feed, job, rack or leaf: its nodes", "Screens",
           (*LISTS, "gpu")),
    Action("back", "escape", "back", "Esc", "back", "back to the screen before; or: clear the filter", "Screens"),
    Action("next-node", "right_square_bracket", "next_node(1)", "]", "next", "the next node, or the next GPU",
           "Screens", ("detail", "gpu")),
    Action("previous-node", "left_square_bracket", "next_node(-1)", "[", "", "the node or GPU before", "Screens",
           ("detail", "gpu")),
    Action("up", "up,k", "move(0,-1)", "Up k", "", "one line up", "Moving"),
    Action("down", "down,j", "move(0,1)", "Down j", "", "one line down", "Moving"),
    Action("left", "left", "move(-1,0)", "Left", "", "to the node, or the rack, on the left", "Moving",
           ("fleet", "traffic")),
    Action("right", "right", "move(1,0)", "Right", "", "to the node, or the rack, on the right", "Moving",
           ("fleet", "traffic")),
    Action("page-up", "pageup", "page(-1)", "PgUp", "", "one page up", "Moving"),
    Action("page-down", "pagedown", "page(1)", "PgDn", "", "one page down", "Moving"),
    Action("home", "home", "edge(False)", "Home", "", "to the start", "Moving"),
    Action("end", "end", "edge(True)", "End", "", "to the end", "Moving"),
    Action("part", "tab", "part", "Tab", "", "move in the list below, and back", "Moving",
           ("alerts", "pcie", "rdma", "power", "traffic")),
    Action("next-problem", "n", "next_problem(1)", "n", "next problem", "to the next node that is not ok", "Moving",
           ("fleet",)),
    Action("previous-problem", "N", "next_problem(-1)", "N", "", "to the node before that is not ok", "Moving",
           ("fleet",)),
    Action("filter", "slash", "filter", "/", "filter",
           "only what has these words in name, rack, leaf, group, job, label or state", "Showing"),
    Action("freeze", "space", "freeze", "Space", "freeze", "hold the picture; polling goes on", "Showing"),
    Action("metric", "m", "metric(1)", "m", "metric", "the next metric of the map", "Showing", ("fleet",)),
    Action("previous-metric", "M", "metric(-1)", "M", "", "the metric before", "Showing", ("fleet",)),
    Action("density", "z", "density", "z", "density", "tiles with numbers, dense tiles, or what fits", "Showing",
           ("fleet", "traffic")),
    Action("log", "l", "log", "l", "log", "the log of what was raised and cleared, or the alert's detail", "Showing",
           ("alerts",)),
    Action("by-job", "J", "by_job", "J", "by job", "nodes by job, or by rack; a line per job, or per node", "Showing",
           ("fleet", "nodes")),
    Action("per-gpu", "g", "per_gpu", "g", "GPUs",
           "a line per GPU, or per node; of a node or device: the GPU's page", "Showing", ("nodes", "pcie", "detail")),
    Action("virtual", "v", "virtual", "v", "virtual", "virtual functions under their ports, or folded into them",
           "Showing", ("rdma",)),
    Action("all", "a", "all", "a", "all", "every row, or only those in trouble; of alerts: without those known",
           "Showing", ("alerts", "pcie", "rdma", "power", "traffic")),
    Action("unfold", "plus", "unfold", "+", "unfold", "every verdict inside an alert, or the alert alone", "Showing",
           ("alerts",)),
    Action("in-force", "L", "in_force", "L", "", "silences and acknowledgements in force; each can be ended",
           "Showing"),
    Action("sort", "s", "sort(1)", "s", "sort", "order by the next column", "Showing",
           TABLES),
    Action("previous-sort", "S", "sort(-1)", "S", "", "order by the column before", "Showing",
           TABLES),
    Action("reverse", "r", "reverse", "r", "", "turn the order round", "Showing",
           TABLES),
    Action("acknowledge", "A", "acknowledge", "A", "acknowledge",
           "somebody knows of the alert: told again only if worse; or take that back", "Doing", ("alerts",)),
    Action("silence", "Z", "silence", "Z", "silence",
           "tell of nothing from a thing, node, rack or rule for a while; or end that", "Doing",
           ("fleet", "alerts", "nodes", "detail")),
    Action("dismiss", "D", "dismiss", "D", "dismiss", "what is missing is gone for good; asks first", "Doing",
           ("alerts",)),
    Action("copy", "y", "copy", "y", "copy", "copy the row as plain text (OSC 52)", "Doing"),
    Action("full-reading", "u", "full_reading", "u", "",
           "ask the node, and its BMC, for a full reading now; of a feed, its PDU", "Doing"),
    Action("release", "x", "release", "x", "let go",
           "let go of the node's GPUs, so that a reset works; or take them back", "Doing"),
    Action("theme", "t", "theme", "t", "", "the next colour theme", "Console"),
    Action("mouse", "b", "mouse", "b", "", "mouse off, so that the terminal selects text; and on", "Console"),
    Action("redraw", "ctrl+l", "redraw", "Ctrl-L", "", "draw the whole screen again", "Console"),
    Action("palette", "ctrl+p,colon", "command_palette", "Ctrl-P :", "", "commands by name; jump to a node", "Console"),
    Action("help", "question_mark,f1", "help", "? F1", "help", "this page", "Console"),
    Action("suspend", "ctrl+z", "suspend_process", "Ctrl-Z", "", "back to the shell; fg returns", "Console"),
    Action("quit", "q,ctrl+q,ctrl+c", "quit", "q Ctrl-C Ctrl-Q", "quit", "leave", "Console"),
)
WHERE: dict[str, frozenset[str]] = {}
"""By Textual action: the screens on which it does something."""
for _action in ACTIONS:
    _name = _action.call.split("(")[0]
    WHERE[_name] = WHERE.get(_name, frozenset()) | frozenset(_action.where)
GROUPS = ("Screens", "Moving", "Showing", "Doing", "Console")


def bindings() -> list[Binding]:
    """Textual bindings of the whole table."""
    return [
        Binding(key, action.call, action.help, show=False, id=f"{action.id}-{number}",
                priority=key in {"ctrl+q", "ctrl+c", "tab"})
        for action in ACTIONS for number, key in enumerate(action.keys.split(","))
    ]


def keys_for(screen: str) -> list[tuple[str, str]]:
    """What the line of keys shows on *screen*: those of this screen first."""
    shown = [action for action in ACTIONS if action.words and screen in action.where]
    shown.sort(key=lambda action: (action.id not in {"help", "quit"}, len(action.where)))
    return [(action.shown.split()[0], action.words) for action in shown]


def help_rows() -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Groups of (keys, what they do, where)."""
    out = []
    for group in GROUPS:
        rows = [(action.shown, action.help, "" if set(action.where) >= set(LISTS) else ", ".join(action.where))
                for action in ACTIONS if action.group == group]
        out.append((group, rows))
    return out


def markdown() -> str:
    """The table of keys as docs/console.md has it."""
    lines = []
    for group, rows in help_rows():
        lines += [f"### {group}", "", "| key | does | on |", "|---|---|---|"]
        lines += [f"| {' '.join(f'`{key}`' for key in keys.split())} | {words} | {where or 'every screen'} |"
                  for keys, words, where in rows]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
