"""What every way to a node has in common: open it, get payloads by callback, send requests, learn its end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.model import LinkState, NodeInfo

STDERR_LIMIT = 4096
"""Bytes of a probe's stderr that are kept, from its beginning."""
CLOSE_SECONDS = 1.4
"""Most time that letting go of a connection may take; after it the connection is aborted."""
REASON_LIMIT = 400
"""Longest reason shown for a link, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollSettings:
    """How nodes are reached and how often they are read."""

    interval_seconds: float = 2.0
    """Between two readings of the groups gpu, rdma and host."""
    pcie_interval_seconds: float = 10.0
    sockets_interval_seconds: float | None = 10.0
    """Between two readings of the TCP connections; None: they are not read."""
    keepalive_seconds: float = 5.0
    keepalive_count: int = 3
    """Unanswered keepalives after which the connection is lost."""
    connect_timeout_seconds: float = 10.0
    """Name lookup, TCP, key exchange and login together."""
    start_timeout_seconds: float = 15.0
    """From the name lookup to the probe's ready line: the one total deadline."""
    handshakes_at_once: int = 32
    handshakes_per_host: int = 5
    """Handshakes at once with one address, or through one jump host: sshd's MaxStartups drops more than 10."""
    retry_min_seconds: float = 1.0
    retry_max_seconds: float = 60.0
    refused_retry_seconds: float = 300.0
    """Wait after a failed login or host key check, unless the operator asks sooner."""
    silence_seconds: float = 60.0
    """Without a frame for this long (and ten intervals) the probe is started again."""
    ssh_config: str = ""
    """An ssh configuration file; empty: ``~/.ssh/config`` where it exists."""
    known_hosts: str = ""
    """A known_hosts file in place of those that ssh would read."""
    check_host_keys: bool = True
    user: str = ""
    """Login name where neither the inventory nor the ssh configuration gives one."""
    client_keys: tuple[str, ...] = ()
    """Private key files in place of those that ssh would offer."""
    agent: bool = True
    """Offer the keys of the ssh agent."""
    nvml: str = ""
    """Another NVML library on the nodes; empty: the driver's own."""
    root: str = ""
    """Another root of /proc and /sys on the nodes; empty: ``/``."""
    nccl_logs: tuple[str, ...] = ()
    """Paths of NCCL logs on the nodes, patterns of the shell's kind allowed; empty: none is read."""
    nccl_nodes: frozenset[str] | None = None
    """Nodes that have them; None: all."""
    in_band: frozenset[str] = frozenset()
    """Nodes whose BMC is read in band, by a tool on the node itself."""
    in_band_seconds: Mapping[str, float] = field(default_factory=dict)
    """By node: between two such readings; of others :attr:`bmc_interval_seconds`."""
    in_band_tool: str = "ipmitool"
    bmc_tool: str = ""
    """Of one node's settings: that tool; empty: its BMC is not read in band."""
    bmc_interval_seconds: float = 10.0
    """Of one node's settings: between two readings of its BMC in band."""

    def of(self, node: NodeInfo) -> PollSettings:
        """These settings with the node's own interval, where it has one; PCIe is not read more often than that."""
        every = node.interval_seconds
        if self.nccl_logs and self.nccl_nodes is not None and node.name not in self.nccl_nodes:
            return replace(self, nccl_logs=()).of(node)
        if node.name in self.in_band and not self.bmc_tool:
            seconds = self.in_band_seconds.get(node.name, self.bmc_interval_seconds)
            return replace(self, bmc_tool=self.in_band_tool, bmc_interval_seconds=seconds).of(node)
        if not every:
            return self
        sockets = self.sockets_interval_seconds
        return replace(self, interval_seconds=every, pcie_interval_seconds=max(every, self.pcie_interval_seconds),
                       sockets_interval_seconds=None if sockets is None else max(every, sockets))



class LinkFailure(Exception):  # noqa: N818 - it is an outcome more than an error: every link ends in one
    """Why a node is not, or no longer, connected.

    Attributes:
        state: what the node's link is now.
        stage: how far it came: name, tcp, banner, kex, login, channel, probe or frames.
        reason: one cleaned sentence.
    """

    def __init__(self, state: LinkState, stage: str, reason: str) -> None:
        self.state = state
        self.stage = stage
        self.reason = clean(reason, REASON_LIMIT)
        super().__init__(f"{state.words} at {stage}: {self.reason}")


class Receiver(Protocol):
    """What a transport calls. Both are called from the event loop and must not block."""

    def on_payload(self, payload: bytes) -> None:
        """One frame's text, as the probe wrote it between the marks."""
        ...

    def on_noise(self, kind: str, sample: bytes) -> None:
        """Something else arrived: ``noise``, ``truncated`` or ``oversized``; *sample* is its beginning."""
        ...


class Transport(Protocol):
    """A way to one node's probe. It may be opened again after it has ended."""

    more: Mapping[str, object]
    """What the next probe is told beside the settings: ``per_poll``, ``released``."""
    via: str
    """The jump hosts on the way, without users; empty: none, or not known yet."""

    async def open(self) -> None:
        """Start a probe and return once it is ready.

        Raises:
            LinkFailure: it could not be started; nothing of this attempt is left running.
        """
        ...

    async def wait_closed(self) -> LinkFailure:
        """Return why the probe's channel ended, once it has."""
        ...

    def send(self, request: Mapping[str, object]) -> None:
        """Send one request to the probe; dropped while there is none."""
        ...

    async def close(self) -> None:
        """Let go of everything within ``CLOSE_SECONDS``. Safe to call at any time and more than once."""
        ...


class Ending:
    """The words with which a probe ended: its own report, its stderr, its exit status."""

    __slots__ = ("failed", "status", "stderr")

    def __init__(self) -> None:
        self.failed = ""
        self.stderr = b""
        self.status: int | None = None

    def add_stderr(self, data: bytes) -> None:
        """Keep *data* up to ``STDERR_LIMIT`` bytes in all."""
        room = STDERR_LIMIT - len(self.stderr)
        if room > 0:
            self.stderr += data[:room]

    def words(self, what: str) -> str:
        """Return *what* happened and what the node said about it, as one cleaned sentence."""
        if self.failed:
            return f"{what}: {clean(self.failed, 300)}"
        # The last line of a traceback or of a shell's complaint is the one that says it.
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        said = clean(lines[-1], 300) if lines else ""
        status = "" if self.status is None else f" (exit status {self.status})"
        return f"{what}{status}: {said}" if said else f"{what}{status}"
