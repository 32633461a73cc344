"""What each node would keep from us: reached, read and asked once, over the same wire as everything else."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from clustertop.doctor import Finding
from clustertop.model import LinkState
from clustertop.text import clean
from clustertop.wire.frame import FrameError, decode
from clustertop.wire.transport import LinkFailure

if TYPE_CHECKING:
    from clustertop.inventory import Inventory
    from clustertop.model import Attr, NodeInfo
    from clustertop.wire.frame import Frame, GroupPart
    from clustertop.wire.ssh import Dialer
    from clustertop.wire.transport import PollSettings, Transport

READING_SECONDS = 10.0
"""Longest wait for every group's first reading."""
MAX_OFFSET_SECONDS = 30.0
"""A node's clock further from ours than this is worth a warning."""
NODES_AT_ONCE = 64
NODE_CHECKS = (
    "node.reach", "node.python", "node.frames", "node.nvml", "node.rdma", "node.pcie", "node.permissions",
    "node.clock",
)  # fmt: skip
"""Ids of the checks of a node, in order."""
_DENIED = frozenset({"!EACCES", "!EPERM", "!Insufficient Permissions", "!no permission"})
_KERNEL_LOG = "look at the node's kernel log"
_CURES = {
    LinkState.UNREACHABLE: "check the name, the network and sshd; `ssh -v HOST` shows where it stops",
    LinkState.BUSY: "raise MaxStartups in its sshd_config, or lower ssh.handshakes_per_host",
    LinkState.AUTH_FAILED: "check user and key: `ssh -v HOST`; load the key with ssh-add",
    LinkState.HOST_KEY_UNKNOWN: "log in once with ssh and compare the fingerprint",
    LinkState.HOST_KEY_CHANGED: "find out why before you trust it; then ssh-keygen -R HOST and log in once",
    LinkState.NO_PYTHON: "install Python 3.6 or newer on the node",
    LinkState.PROBE_FAILED: "see what the node's shell says: `ssh HOST python3 -V`",
}


async def examine(inventory: Inventory, settings: PollSettings) -> list[Finding]:
    """Return the findings of every node of *inventory*, in its order; nothing is left running."""
    from clustertop.wire.ssh import Dialer

    gate = asyncio.Semaphore(NODES_AT_ONCE)
    dialer = Dialer(settings)
    unchecked = Dialer(dataclasses.replace(settings, check_host_keys=False))

    async def one(node: NodeInfo) -> list[Finding]:
        way = unchecked if node.name in inventory.unchecked else dialer
        async with gate:
            try:
                return await _examine(node, inventory, settings, way)
            except Exception as error:  # noqa: BLE001 - the other nodes must still be looked at
                what = clean(f"{type(error).__name__}: {error}", 200)
                return [Finding("node.reach", "unknown", f"it could not be looked at ({what})", "", node.name)]

    found = await asyncio.gather(*(one(node) for node in inventory.nodes))
    return [finding for findings in found for finding in findings]


class Listener:
    """Keeps what a probe says until every group has been read once."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupPart] = {}
        self.facts: dict[str, Attr] = {}
        self.denied: set[str] = set()
        """Columns with a reading that was refused for want of rights."""
        self.offset: float | None = None
        """The node's wall clock less ours, seconds, at the first frame."""
        self.noise = ""
        self.problem = ""
        self.complete = asyncio.Event()
        self._columns: dict[str, tuple[int, list[str]]] = {}

    def on_payload(self, payload: bytes) -> None:
        """Take a frame."""
        try:
            frame = decode(payload)
        except FrameError as error:
            self.problem = str(error)
            return
        if self.offset is None:
            self.offset = frame.w - time.time()
        self.facts.update(frame.h or {})
        for name, group in frame.g.items():
            self.groups[name] = group
            self._note_denied(group)
        self._judge(frame)

    def on_noise(self, kind: str, sample: bytes) -> None:
        """Keep one sample of what is not ours."""
        if not self.noise:
            self.noise = f"{kind}: {clean(sample, 80)}"

    def _note_denied(self, group: GroupPart) -> None:
        for name, table in group.tb.items():
            if table.r is not None and table.c is not None:
                self._columns[name] = (len(table.r), table.c)
            rows, columns = self._columns.get(name, (0, []))
            for cell, text in zip(table.j, table.s, strict=True):
                if text in _DENIED and rows and 0 <= cell // rows < len(columns):
                    self.denied.add(f"{clean(name, 40)}.{clean(columns[cell // rows], 60)}")

    def _judge(self, frame: Frame) -> None:
        if self.groups and all(group.st != "wait" for group in frame.g.values()):
            self.complete.set()


async def _examine(node: NodeInfo, inventory: Inventory, settings: PollSettings, dialer: Dialer) -> list[Finding]:
    from clustertop.wire.local import LocalTransport
    from clustertop.wire.ssh import SshTransport

    listener = Listener()
    transport: Transport
    if inventory.local:
        transport = LocalTransport(settings, listener)
    else:
        transport = SshTransport(node, dialer, listener)
    try:
        try:
            await transport.open()
        except LinkFailure as failure:
            text = clean(f"{failure.state.words} at {failure.stage}: {failure.reason}", 400)
            return [Finding("node.reach", "fail", text, _CURES.get(failure.state, ""), node.name)]
        ended = asyncio.ensure_future(transport.wait_closed())
        complete = asyncio.ensure_future(listener.complete.wait())
        await asyncio.wait({ended, complete}, timeout=READING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        lost = ended.result().reason if ended.done() else ""
        for task in (ended, complete):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return report(node.name, listener, lost)
    finally:
        await transport.close()


def report(node: str, heard: Listener, lost: str = "") -> list[Finding]:
    """Return the findings of a node that could be logged in to.

    Args:
        node: its name.
        heard: what its probe has said.
        lost: why the probe ended, if it did.
    """
    findings = [Finding("node.reach", "ok", "logged in, the probe runs", "", node)]
    if not heard.groups:
        text = lost or heard.problem or f"the probe sent nothing within {READING_SECONDS:g} s"
        findings.append(Finding("node.frames", "fail", text, _CURES[LinkState.PROBE_FAILED], node))
        return findings
    python = heard.facts.get("python")
    if heard.facts.get("probe") == "sh":
        text = "none of 3.6 or newer: its shell reads for us, nvidia-smi included"
        findings.append(Finding("node.python", "warn", text, _CURES[LinkState.NO_PYTHON], node))
    elif python:
        findings.append(Finding("node.python", "ok", f"Python {clean(str(python), 40)}", "", node))
    else:
        findings.append(Finding("node.python", "unknown", "the probe did not say which Python runs it", "", node))
    if heard.problem or lost:
        findings.append(Finding("node.frames", "fail", heard.problem or lost, "look at the node's own log", node))
    elif heard.noise:
        todo = "make its start-up files print to a terminal only"
        findings.append(Finding("node.frames", "warn", f"other output between the frames: {heard.noise}", todo, node))
    else:
        findings.append(Finding("node.frames", "ok", "its frames arrive whole", "", node))
    for check, group, what in (
        ("node.nvml", "gpu", "GPUs"),
        ("node.rdma", "rdma", "RDMA ports"),
        ("node.pcie", "pcie", "PCIe devices"),
    ):
        findings.append(_group(node, check, what, heard.groups.get(group)))
    findings.append(_permissions(node, heard))
    findings.append(_clock(node, heard.offset))
    return findings


def _group(node: str, check: str, what: str, group: GroupPart | None) -> Finding:
    if group is None:
        return Finding(check, "unknown", f"the probe says nothing about {what}", "", node)
    if group.st == "off":
        return Finding(check, "ok", f"no {what} on this node", "", node)
    if group.st == "hung":
        call = clean(group.w, 120) or "a call"
        return Finding(check, "fail", f"reading {what} hangs in {call}", _KERNEL_LOG, node)
    if group.st == "error":
        text = f"{what} cannot be read: {clean(group.e, 200) or 'no reason given'}"
        todo = "reload the driver or reboot the node" if check == "node.nvml" else _KERNEL_LOG
        return Finding(check, "fail", text, todo, node)
    if group.st != "ok":
        return Finding(check, "unknown", f"{what} were not read within {READING_SECONDS:g} s", "", node)
    problem = next((clean(table.e, 200) for table in group.tb.values() if table.e), "")
    if problem:
        return Finding(check, "warn", f"{what} could not be listed: {problem}", _KERNEL_LOG, node)
    return Finding(check, "ok", f"{what} are read in {group.ms:.0f} ms", "", node)


def _permissions(node: str, heard: Listener) -> Finding:
    if heard.denied:
        names = clean(", ".join(sorted(heard.denied)), 200)
        todo = "log in as a user who may read them, or do without: they stay unknown"
        return Finding("node.permissions", "warn", f"not allowed to read {names}", todo, node)
    return Finding("node.permissions", "ok", "no reading is refused", "", node)


def _clock(node: str, offset: float | None) -> Finding:
    if offset is None:
        return Finding("node.clock", "unknown", "no time was received", "", node)
    text = f"its clock is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} ours"
    if abs(offset) > MAX_OFFSET_SECONDS:
        return Finding("node.clock", "warn", text, "start chrony on it; rates are right nevertheless", node)
    return Finding("node.clock", "ok", text, "", node)
