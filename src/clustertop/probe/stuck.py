"""Whether somebody hangs in the NVIDIA driver already: one more would hang beside him, and help nobody.

A process that hangs in the kernel cannot be ended, so an earlier probe of ours, or an ``nvidia-smi``, may still be
there long after the connection that started it. Source: proc(5), ``status`` (State, voluntary_ctxt_switches).
"""

import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    from .files import Tree

NAME = "clustertop"
"""What a probe's process calls itself, so that the next probe knows it."""
THREAD = "clustertop-gpu"
"""What its thread in the driver is called: one that hangs on a file of /sys is another matter."""
SMI = "nvidia-smi"
LEAST_SECONDS = 30.0
"""Younger ones may well be waking the GPUs, which takes seconds for each."""
STILL_SECONDS = 1.0
"""Who sleeps in the kernel at both ends of this time and has not run in between hangs."""
_HZ = os.sysconf("SC_CLK_TCK")


def mark_process() -> None:
    """Name this process; its threads to come take the name over."""
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(NAME)
    except OSError:
        pass  # only the name is lost


def mark_thread(ctypes: "Any") -> None:
    """Name the calling thread as one that is about to enter the driver, unless it is the only one."""
    if threading.current_thread() is not threading.main_thread():
        try:
            ctypes.CDLL(None).prctl(15, THREAD.encode("ascii"), 0, 0, 0)  # PR_SET_NAME
        except (OSError, AttributeError):
            pass


def found(tree: "Tree") -> str:
    """Return who hangs in the driver, in words; empty where nobody does."""
    asleep = _asleep(tree)
    if not asleep:
        return ""
    time.sleep(STILL_SECONDS)
    still = _asleep(tree)
    for name, (comm, pid, runs, age) in sorted(asleep.items()):
        if name in still and still[name][2] == runs:
            who = "an earlier probe of ours" if comm == NAME else comm
            return "{} hangs in the kernel on the node (pid {}, started {:.0f} s ago)".format(who, pid, age)
    return ""


def _asleep(tree: "Tree") -> "Dict[str, Tuple[str, int, str, float]]":
    """Return the threads that sleep in the kernel: name in /proc → process's name, pid, how often it ran, age."""
    try:
        pids = [name for name in os.listdir(tree.path("proc")) if name.isdigit()]
    except OSError:
        return {}
    out: "Dict[str, Tuple[str, int, str, float]]" = {}
    for pid in pids:
        comm = tree.text("proc/" + pid + "/comm")
        if comm not in (NAME, SMI) or pid == str(os.getpid()):
            continue
        age = _age(tree, pid)
        if age < LEAST_SECONDS:
            continue
        for thread in _threads(tree, pid):
            fields = _status(tree, thread)
            if fields.get("Name") in (THREAD, SMI) and fields.get("State", "").startswith("D"):
                runs = fields.get("voluntary_ctxt_switches", "") + "+" + fields.get("nonvoluntary_ctxt_switches", "")
                out[thread] = (comm, int(pid), runs, age)
    return out


def _threads(tree: "Tree", pid: str) -> "List[str]":
    base = "proc/" + pid
    try:
        return [base + "/task/" + name for name in tree.names(base + "/task")]
    except OSError:
        return [base]


def _status(tree: "Tree", thread: str) -> "Dict[str, str]":
    rows = (row.partition(":") for row in tree.text(thread + "/status").split("\n"))
    return {name: text.strip() for name, _, text in rows}


def _age(tree: "Tree", pid: str) -> float:
    """Return how long a process has been there, in seconds."""
    try:
        began = int(tree.text("proc/" + pid + "/stat").rpartition(")")[2].split()[19]) / _HZ
        return float(tree.text("proc/uptime").split()[0]) - began
    except (ValueError, IndexError):
        return 0.0
