"""The console in a process of its own, for tests that end it the hard way: ``python console_child.py [FAULT]``.

The fault comes at SIGUSR1; with ``stuck`` the console never ends when it is told to.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from clustertop.tui import app as console
from clustertop.tui import terminal
from clustertop.tui.widgets.heatmap import HeatMap
from tui.fleet import FleetSource


async def main(fault: str) -> int:
    """Run until ended; *fault* is what goes wrong when it is told to."""
    source = FleetSource(4, racks=1)
    source.connect()
    source.run(3)

    def go_wrong() -> None:
        raise RuntimeError("a fault in a callback")

    def broken(self: object, y: int) -> None:
        raise RuntimeError("a fault in drawing")

    if fault == "stuck":
        console.ConsoleApp.exit = lambda *_: None  # type: ignore[method-assign,assignment]
        terminal.GRACE_SECONDS = 0.3
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, told.set)

    async def watch() -> None:
        if not fault or fault == "stuck":
            return
        await told.wait()
        if fault == "render":
            HeatMap.build = broken  # type: ignore[method-assign,assignment]
            source.tick()
        elif fault == "callback":
            running[0].call_later(go_wrong)
        elif fault == "worker":
            async def work() -> None:
                go_wrong()
            running[0].run_worker(work())

    running: list[console.ConsoleApp] = []
    plain_init = console.ConsoleApp.__init__

    def init(self: console.ConsoleApp, *args: object, **kwargs: object) -> None:
        plain_init(self, *args, **kwargs)  # type: ignore[arg-type]
        running.append(self)

    console.ConsoleApp.__init__ = init  # type: ignore[method-assign]
    watcher = asyncio.create_task(watch())
    status = await console.run_console(source, refresh_seconds=0.25)
    await watcher
    return status


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "")))
