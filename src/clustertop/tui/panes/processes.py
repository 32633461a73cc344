"""The compute processes of one node, as its page shows them; asked for only while the page is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.model import LinkState
from clustertop.quantity import duration
from clustertop.signals import host
from clustertop.tui.cells import title, value

if TYPE_CHECKING:
    from clustertop.tui.picture import Picture
    from clustertop.tui.widgets.lines import Line, Look

ASK_SECONDS = 45.0
"""What one request asks for; the page being closed, the node stops listing within this time."""
RENEW_SECONDS = 20.0
NARROW = 100
"""Below this width the list leaves out where a job's name comes from."""
LATE_SECONDS = 10.0
"""An answer that has not come after this long is said to be missing."""


def may_ask(picture: Picture, node: int) -> bool:
    """Whether there is somebody who could list processes: a probe in Python, connected, that has the GPUs."""
    return picture.link[node] == LinkState.UP and not _why_not(picture, node)


def _why_not(picture: Picture, node: int) -> str:
    """Why the processes of a connected node cannot be listed; empty where they can."""
    if picture.view.facts[node].get("probe") == "sh":
        return "not readable: the sh probe cannot list processes (no Python there)"
    table = picture.view["group"]
    row = table.row_of(node, "gpu")
    state = table.value("group_state", row) if row is not None else None
    if state == host.RELEASED:
        return "not readable while the GPUs are released"
    if state in {host.HUNG, host.ERROR} and row is not None:
        said = str(table.attrs[row].get("said") or "")
        return f"not readable: GPU readings {'hang' if state == host.HUNG else 'fail'}{f': {said}' if said else ''}"
    if state == host.OFF:
        return "not readable: no NVIDIA driver answers there"
    return "" if state == host.OK else "not read yet"


def process_lines(
    picture: Picture, node: int, look: Look, asked: float | None, live: bool, wide: int
) -> list[Line]:
    """The section on processes; *asked*: seconds since they were first asked for, None if they were not."""
    listed = picture.view.processes[node]
    table, glyphs = picture.view["process"], look.glyphs
    # An old list is no list: what hangs or is gone comes first.
    if picture.link[node] != LinkState.UP:
        words = "not readable: the node is not connected"
    else:
        words = _why_not(picture, node)
    if not words and listed is None:
        if not live:
            words = "not asked for when this was recorded"
        elif asked is None or asked < LATE_SECONDS:
            words = "asked" + glyphs.plain("…")
        else:
            words = f"asked {duration(asked)} ago, no answer yet"
    if words:
        return [title(" Processes"), ((f"   {words}", "unknown"),)]
    rows = [row for row in table.rows_of(node).tolist() if table.present[row]]
    note = "every 5 s while this page is open"
    out: list[Line] = [title(" Processes", note if live else "")]
    if listed:
        out.append(((f"   not all could be listed: {listed}", "warning"),))
    if not rows:
        if not listed:
            out.append((("   no processes", "muted"),))
        return out
    gpu = picture.view["gpu"]
    place = {gpu.keys[row]: (at, gpu.labels[row]) for at, row in enumerate(picture.atlas.gpus[node].tolist())
             if row >= 0} if len(picture.atlas.gpus) else {}
    last = len(place)

    def order(row: int) -> tuple[int, float]:
        used = table.value("gpu_memory_bytes", row)
        return (place.get(str(table.attrs[row].get("gpu")), (last, ""))[0], -(used or 0.0))

    rows.sort(key=order)
    # Where it is narrow the command needs the room more than the job's kind does.
    full = wide >= NARROW
    for_user, for_job = (12, 22) if full else (9, 13)
    out.append(((f"   {'GPU':<7}{'pid':>8}  {'user':<{for_user}}{'used':>9}  {'job':<{for_job}}command", "head"),))
    for row in rows:
        attrs = table.attrs[row]
        label = place.get(str(attrs.get("gpu")), (0, "?"))[1]
        used, style = value(table, "gpu_memory_bytes", row)
        user, command, job = (attrs.get(name) for name in ("user", "command", "job"))
        kind = f" ({attrs['job_kind']})" if full and job and attrs.get("job_kind") else ""
        out.append((
            (f"   {glyphs.fit(label, 7)}", "text"), (f"{attrs.get('pid', '?'):>8}  ", "text"),
            (f"{glyphs.fit(str(user) if user else '?', for_user - 1)} ", "text" if user else "unknown"),
            (f"{used:>9}  ", style),
            (f"{glyphs.fit(f'{job}{kind}' if job else '?', for_job - 1)} ", "text" if job else "unknown"),
            (str(command) if command else "? (hidden by /proc, or over)", "text" if command else "unknown"),
        ))
    return out
