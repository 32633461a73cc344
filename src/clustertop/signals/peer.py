"""Peers of a node: what its TCP sockets sent to and got from each address, and how long the way there takes.

Sources: sock_diag(7) and the kernel's tcp_info (linux/tcp.h): tcpi_bytes_acked, tcpi_bytes_received, tcpi_rtt,
tcpi_rttvar. Only sockets of the node's own network namespace; RDMA is not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.signals.metric import Metric, table

if TYPE_CHECKING:
    from collections.abc import Mapping

OTHERS = "*"
"""Key of the row that adds up all peers without a row of their own."""
SINCE = "since"
"""Attribute: the node's monotonic clock, in seconds, when the row's counters were 0."""
_MOST_BYTES, _MOST_SOCKETS, _MOST_SECONDS = 2.0**64, 2.0**24, 2.0**32 / 1e6
_INFO = "https://man7.org/linux/man-pages/man7/tcp.7.html (tcp_info of linux/tcp.h)"

TABLE = table("peer", "sockets", "TCP peers", (
    Metric("transmit_bytes_total", "B", "bytes that the peer has acknowledged, of all TCP sockets to it", "tx_bytes",
           "counter", hi=_MOST_BYTES, cls="traffic", rate="transmit_bytes_per_second",
           source=f"{_INFO}: tcpi_bytes_acked", label="tx"),
    Metric("receive_bytes_total", "B", "bytes received from the peer, of all TCP sockets to it", "rx_bytes", "counter",
           hi=_MOST_BYTES, cls="traffic", rate="receive_bytes_per_second",
           source=f"{_INFO}: tcpi_bytes_received", label="rx"),
    Metric("sockets", "", "TCP sockets to the peer that are open", "sockets", hi=_MOST_SOCKETS, source="https://man7.org/linux/man-pages/man7/sock_diag.7.html",
           label="sockets"),
    Metric("rtt_seconds", "s", "round trip time, median of the sockets that moved bytes last", "rtt_us",
           hi=_MOST_SECONDS, scale=1e-6, source=f"{_INFO}: tcpi_rtt", label="rtt"),
    Metric("rtt_variation_seconds", "s", "jitter: mean deviation of the round trip time, median of the same sockets",
           "rttvar_us", hi=_MOST_SECONDS, scale=1e-6, source=f"{_INFO}: tcpi_rttvar", label="jitter"),
    Metric("rtt_max_seconds", "s", "round trip time, longest of the same sockets", "rtt_max_us", hi=_MOST_SECONDS,
           scale=1e-6, source=f"{_INFO}: tcpi_rtt", label="rtt max"),
    Metric("rtt_variation_max_seconds", "s", "jitter, largest of the same sockets", "rttvar_max_us", hi=_MOST_SECONDS,
           scale=1e-6, source=f"{_INFO}: tcpi_rttvar", label="jitter max"),
))


def label(key: str, attrs: Mapping[str, object]) -> str:
    """The peer's address, or ``others``."""
    return "others" if key == OTHERS else key


def since(attrs: Mapping[str, object]) -> float | None:
    """When the row's counters were 0, the node's monotonic seconds; None: it does not say."""
    value = attrs.get(SINCE)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
