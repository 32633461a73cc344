"""Processes of a tree of ours that sleep in the kernel, as /proc tells of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trees import NodeTree

UPTIME = 86400
HZ = os.sysconf("SC_CLK_TCK")


class Sleeper:
    """One process of a tree: /proc/PID with comm, stat, status and its threads."""

    def __init__(self, tree: NodeTree, pid: int, *, age: float, comm: str = "nvidia-smi", threads: tuple[str, ...] = ()) -> None:
        self._tree, self._base, self._names = tree, f"proc/{pid}", {pid: comm}
        self._names |= {pid + 1 + place: name for place, name in enumerate(threads)}
        tree.write("proc/uptime", f"{UPTIME}.00 {UPTIME}.00")
        tree.write(f"{self._base}/comm", comm)
        began = int((UPTIME - age) * HZ)
        # A name may hold whatever the process likes.
        tree.write(f"{self._base}/stat", f"{pid} ({comm[:5]}) x) D 1 {pid} {pid} 0 -1 4194304 1 0 0 0 3 4 0 0 20 0 1 0 {began} 7 8")
        self.runs = 7

    def fall_asleep(self, thread: int = 0, state: str = "D (disk sleep)") -> Sleeper:
        """Its thread number *thread* is in *state*, the others wait for something."""
        for place, (number, name) in enumerate(self._names.items()):
            said = (f"Name:\t{name}\nUmask:\t0022\nState:\t{state if place == thread else 'S (sleeping)'}\nPid:\t{number}\n"
                    f"voluntary_ctxt_switches:\t{self.runs}\nnonvoluntary_ctxt_switches:\t2")
            self._tree.write(f"{self._base}/task/{number}/status", said)
            if place == 0:
                self._tree.write(f"{self._base}/status", said)
        return self

    def wake(self) -> None:
        """It runs."""
        self.runs += 1
        self.fall_asleep(state="R (running)")
