"""Every RDMA counter the console knows: where it lies, how wide it is, and what kind of news it brings.

Classes: ``hard`` (any increase is a fault), ``soft`` (a rate is a fault), ``congestion``, ``traffic``, ``info``.
``counters/`` holds IBTA counters, which stop at their field's end; ``hw_counters/`` is the driver's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustertop.signals.metric import CounterClass

_IBTA = "https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband)"
_MLX5 = "https://enterprise-support.nvidia.com/s/article/understanding-mlx5-linux-counters-and-status-parameters"
_EFA = "https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/efa/efa_verbs.c"


@dataclass(frozen=True, slots=True)
class Counter:
    """One file of ``counters/`` (family ``c``) or ``hw_counters/`` (family ``h``)."""

    name: str
    family: str
    cls: CounterClass
    meaning: str
    source: str
    bits: int = 0
    scale: int = 1
    """Unit of the file in bytes where it counts words: 4 for the two data counters, nothing else."""
    rate: str = ""
    is_bytes: bool = False


def _ibta(name: str, cls: CounterClass, meaning: str, bits: int, *, scale: int = 1, rate: str = "") -> Counter:
    return Counter(name, "c", cls, meaning, _IBTA, bits, scale, rate)


def _hw(name: str, cls: CounterClass, meaning: str, source: str = _MLX5, *, rate: str = "",
        is_bytes: bool = False) -> Counter:
    return Counter(name, "h", cls, meaning, source, 0, 1, rate, is_bytes)


COUNTERS: tuple[Counter, ...] = (
    _ibta("symbol_error", "soft", "minor link errors on one or more lanes", 16),
    _ibta("link_error_recovery", "soft", "link error recoveries that succeeded", 8),
    _ibta("link_downed", "hard", "link error recoveries that failed: the link went down", 8),
    _ibta("port_rcv_errors", "hard", "packets received with an error", 16),
    _ibta("port_rcv_remote_physical_errors", "soft", "packets received with the end-bad delimiter", 16),
    _ibta("port_rcv_switch_relay_errors", "info", "packets that could not be relayed (mostly multicast noise)", 16),
    _ibta("port_xmit_discards", "congestion", "packets discarded because the port was down or congested", 16),
    _ibta("port_xmit_constraint_errors", "hard", "packets not sent for a partition or raw filter", 8),
    _ibta("port_rcv_constraint_errors", "hard", "packets discarded for a partition or raw filter", 8),
    _ibta("local_link_integrity_errors", "hard", "times local physical errors passed their limit", 4),
    _ibta("excessive_buffer_overrun_errors", "hard", "overrun errors in consecutive flow-control periods", 4),
    _ibta("VL15_dropped", "info", "management packets dropped", 16),
    _ibta("port_xmit_wait", "congestion", "ticks with data to send and no credit", 32),
    _ibta("port_xmit_data", "traffic", "data sent", 0, scale=4, rate="transmit_bytes_per_second"),
    _ibta("port_rcv_data", "traffic", "data received", 0, scale=4, rate="receive_bytes_per_second"),
    _ibta("port_xmit_packets", "traffic", "packets sent", 0, rate="transmit_packets_per_second"),
    _ibta("port_rcv_packets", "traffic", "packets received", 0, rate="receive_packets_per_second"),
    _ibta("unicast_xmit_packets", "traffic", "unicast packets sent", 0),
    _ibta("unicast_rcv_packets", "traffic", "unicast packets received", 0),
    _ibta("multicast_xmit_packets", "traffic", "multicast packets sent", 0),
    _ibta("multicast_rcv_packets", "traffic", "multicast packets received", 0),
    _hw("out_of_sequence", "soft", "packets received out of sequence"),
    _hw("packet_seq_err", "soft", "NAK sequence errors received"),
    _hw("implied_nak_seq_err", "soft", "acknowledgements beyond the expected sequence number"),
    _hw("local_ack_timeout_err", "soft", "acknowledgement timer expired at the sender"),
    _hw("rnr_nak_retry_err", "hard", "receiver-not-ready retries used up"),
    _hw("req_remote_access_errors", "soft", "requests refused by the remote side: access"),
    _hw("req_remote_invalid_request", "soft", "requests refused by the remote side: invalid"),
    _hw("req_cqe_error", "soft", "requests completed in error"),
    _hw("req_cqe_flush_error", "info", "requests flushed in error (a queue was torn down)"),
    _hw("resp_cqe_error", "soft", "responses completed in error"),
    _hw("resp_cqe_flush_error", "info", "responses flushed in error (a queue was torn down)"),
    _hw("resp_local_length_error", "soft", "responder: local length errors"),
    _hw("resp_remote_access_errors", "soft", "responder: remote access errors"),
    _hw("rx_icrc_encapsulated", "soft", "RoCE packets with a wrong ICRC"),
    _hw("roce_adp_retrans", "soft", "adaptive retransmissions"),
    _hw("roce_adp_retrans_to", "soft", "adaptive retransmission timeouts"),
    _hw("roce_slow_restart", "soft", "slow restarts"),
    _hw("roce_slow_restart_cnps", "congestion", "slow restarts with CNPs"),
    _hw("roce_slow_restart_trans", "info", "slow restart state changes"),
    _hw("duplicate_request", "info", "duplicate requests received"),
    _hw("np_cnp_sent", "congestion", "congestion notification packets sent"),
    _hw("rp_cnp_handled", "congestion", "congestion notification packets handled"),
    _hw("rp_cnp_ignored", "congestion", "congestion notification packets ignored"),
    _hw("np_ecn_marked_roce_packets", "congestion", "RoCE packets that arrived marked by ECN"),
    _hw("out_of_buffer", "congestion", "drops for want of a receive buffer"),
    _hw("rx_dct_connect", "info", "DCT connections"),
    _hw("rx_read_requests", "traffic", "RDMA READ requests received"),
    _hw("rx_write_requests", "traffic", "RDMA WRITE requests received"),
    _hw("rx_atomic_requests", "traffic", "atomic requests received"),
    _hw("lifespan", "info", "how long the counters are cached, milliseconds"),
    _hw("tx_bytes", "traffic", "bytes sent", _EFA, is_bytes=True, rate="hw_transmit_bytes_per_second"),
    _hw("rx_bytes", "traffic", "bytes received", _EFA, is_bytes=True, rate="hw_receive_bytes_per_second"),
    _hw("tx_pkts", "traffic", "packets sent", _EFA),
    _hw("rx_pkts", "traffic", "packets received", _EFA),
    _hw("rx_drops", "congestion", "packets dropped", _EFA),
    _hw("retrans_pkts", "soft", "packets sent again", _EFA),
    _hw("retrans_bytes", "info", "bytes sent again", _EFA, is_bytes=True),
    _hw("retrans_timeout_events", "soft", "retransmission timeouts", _EFA),
    _hw("send_bytes", "traffic", "bytes sent by SEND", _EFA, is_bytes=True),
    _hw("recv_bytes", "traffic", "bytes received by SEND", _EFA, is_bytes=True),
    _hw("rdma_read_bytes", "traffic", "bytes read", _EFA, is_bytes=True),
    _hw("rdma_write_bytes", "traffic", "bytes written", _EFA, is_bytes=True),
)

BY_NAME = {counter.name: counter for counter in COUNTERS}
