"""The RDMA counters of every driver, as the kernel spells them, with what kind of news each brings.

One line a counter, or several of one kind with commas between them: name | class | column | what it counts. Classes:
``hard`` (any increase is a fault), ``soft/h``, ``soft/m``, ``soft/s`` (a fault by the hour, the minute or the second),
``congestion``, ``traffic``, ``info``. The column of the port table that holds it: ``.`` one of its own; a name: the
column of a counter that means the same in another driver's spelling; ``-`` none: known, told apart from unknown ones,
not kept (a job's own mistakes, allocations, or the parts of a sum that is kept).
"""

from __future__ import annotations

_KERNEL = "https://github.com/torvalds/linux/blob/master/drivers/infiniband/"

SOURCES = {
    "ibta": "https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband)",
    "ext": "https://github.com/torvalds/linux/blob/v4.4/drivers/infiniband/core/sysfs.c (counters_ext)",
    "mlx5": "https://enterprise-support.nvidia.com/s/article/understanding-mlx5-linux-counters-and-status-parameters",
    "mlx4": _KERNEL + "hw/mlx4/main.c (diag_basic, diag_ext)",
    "bnxt_re": _KERNEL + "hw/bnxt_re/hw_counters.c",
    "irdma": _KERNEL + "hw/irdma/verbs.c (irdma_hw_stat_names)",
    "efa": _KERNEL + "hw/efa/efa_verbs.c",
    "erdma": _KERNEL + "hw/erdma/erdma_verbs.c (erdma_descs)",
    "mana": _KERNEL + "hw/mana/counters.c",
    "hns": _KERNEL + "hw/hns/hns_roce_main.c (hns_roce_port_stats_descs)",
    "ionic": "https://github.com/pensando (rdma_stats_hdrs: the adapter names its own counters)",
    "cxgb4": _KERNEL + "hw/cxgb4/provider.c",
    "rxe": _KERNEL + "sw/rxe/rxe_hw_counters.c",
}
"""Where each block's names come from. qedr, ocrdma, siw, usnic and hfi1's ``hw_counters`` have none of their own."""

FAMILY = {"ibta": "c", "ext": "x"}
"""Directory of a block: ``counters`` (c), ``counters_ext`` (x), else ``hw_counters`` (h)."""

DRIVERS = {
    "mlx5_core": "mlx5", "mlx5_ib": "mlx5", "mlx4_core": "mlx4", "mlx4_ib": "mlx4", "bnxt_en": "bnxt_re",
    "bnxt_re": "bnxt_re", "ice": "irdma", "i40e": "irdma", "idpf": "irdma", "irdma": "irdma", "i40iw": "irdma",
    "efa": "efa", "erdma": "erdma", "mana": "mana", "hns3": "hns", "hns_roce": "hns", "ionic": "ionic",
    "cxgb4": "cxgb4", "iw_cxgb4": "cxgb4", "rdma_rxe": "rxe",
}
"""Kernel driver of a device, as its link in sysfs says, to block."""

BITS = {
    "symbol_error": 16, "link_error_recovery": 8, "link_downed": 8, "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16, "port_rcv_switch_relay_errors": 16, "port_xmit_discards": 16,
    "port_xmit_constraint_errors": 8, "port_rcv_constraint_errors": 8, "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4, "VL15_dropped": 16, "port_xmit_wait": 32,
}
"""Of fields that stop at their end instead of wrapping (IBTA PortCounters; drivers/infiniband/core/sysfs.c)."""
NARROW = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")
"""Of devices without the extended counters: 32 bits, then they stop. A 64-bit one stands at that value for a moment."""

BLOCKS = {
    "ibta": """
symbol_error | soft/h | . | minor link errors on one or more lanes
link_error_recovery | soft/m | . | link error recoveries that succeeded
link_downed | hard | . | link error recoveries that failed: the link went down
port_rcv_errors | hard | . | packets received with an error
port_rcv_remote_physical_errors | soft/h | . | packets received with the end-bad delimiter
port_rcv_switch_relay_errors | info | . | packets that could not be relayed (mostly multicast noise)
port_xmit_discards | congestion | . | packets discarded because the port was down or congested
port_xmit_constraint_errors | hard | . | packets not sent for a partition or raw filter
port_rcv_constraint_errors | hard | . | packets discarded for a partition or raw filter
local_link_integrity_errors | hard | . | times local physical errors passed their limit
excessive_buffer_overrun_errors | hard | . | overrun errors in consecutive flow-control periods
VL15_dropped | info | . | management packets dropped
port_xmit_wait | congestion | . | ticks with data to send and no credit
port_xmit_data | traffic | . | data sent
port_rcv_data | traffic | . | data received
port_xmit_packets | traffic | . | packets sent
port_rcv_packets | traffic | . | packets received
unicast_xmit_packets | traffic | . | unicast packets sent
unicast_rcv_packets | traffic | . | unicast packets received
multicast_xmit_packets | traffic | . | multicast packets sent
multicast_rcv_packets | traffic | . | multicast packets received
""",
    "ext": """
port_xmit_data_64 | traffic | . | data sent, 64-bit counter
port_rcv_data_64 | traffic | . | data received, 64-bit counter
port_xmit_packets_64 | traffic | - | packets sent, 64-bit counter
port_rcv_packets_64 | traffic | - | packets received, 64-bit counter
port_unicast_xmit_packets | traffic | - | unicast packets sent
port_unicast_rcv_packets | traffic | - | unicast packets received
port_multicast_xmit_packets | traffic | - | multicast packets sent
port_multicast_rcv_packets | traffic | - | multicast packets received
""",
    "mlx5": """
out_of_sequence | soft/s | . | packets received out of sequence
packet_seq_err | soft/s | . | NAK sequence errors received
implied_nak_seq_err | soft/s | . | acknowledgements beyond the expected sequence number
local_ack_timeout_err | soft/s | . | acknowledgement timer expired at the sender
rnr_nak_retry_err | hard | . | receiver-not-ready NAKs received
req_transport_retries_exceeded | hard | . | transport retries used up
req_rnr_retries_exceeded | hard | . | receiver-not-ready retries used up
req_remote_access_errors | soft/s | . | requests refused by the remote side: access
req_remote_invalid_request | soft/s | . | requests refused by the remote side: invalid
req_cqe_error | soft/s | . | requests completed in error
req_cqe_flush_error | info | . | requests flushed in error (a queue was torn down)
resp_cqe_error | soft/s | . | responses completed in error
resp_cqe_flush_error | info | . | responses flushed in error (a queue was torn down)
resp_local_length_error | soft/s | . | responder: local length errors
resp_remote_access_errors | soft/s | . | responder: remote access errors
rx_icrc_encapsulated | soft/h | . | RoCE packets with a wrong ICRC
roce_adp_retrans | soft/s | . | adaptive retransmissions
roce_adp_retrans_to | soft/s | . | adaptive retransmission timeouts
roce_slow_restart | soft/s | . | slow restarts
roce_slow_restart_cnps | congestion | . | slow restarts with CNPs
roce_slow_restart_trans | info | . | slow restart state changes
duplicate_request | info | . | duplicate requests received
np_cnp_sent | congestion | . | congestion notification packets sent
rp_cnp_handled | congestion | . | congestion notification packets handled
rp_cnp_ignored | congestion | . | congestion notification packets ignored
np_ecn_marked_roce_packets | congestion | . | RoCE packets that arrived marked by ECN
out_of_buffer | congestion | . | drops for want of a receive buffer
rx_dct_connect | info | . | DCT connections
rx_read_requests | traffic | . | RDMA READ requests received
rx_write_requests | traffic | . | RDMA WRITE requests received
rx_atomic_requests | traffic | . | atomic requests received
lifespan | info | . | how long the counters are cached, milliseconds
cc_rx_ce_pkts | congestion | - | packets received with congestion experienced (optional counter)
cc_rx_cnp_pkts | congestion | - | CNPs received (optional counter)
cc_tx_cnp_pkts | congestion | - | CNPs sent (optional counter)
rdma_tx_packets | traffic | - | packets sent (optional counter)
rdma_tx_bytes | traffic | - | bytes sent (optional counter)
rdma_rx_packets | traffic | - | packets received (optional counter)
rdma_rx_bytes | traffic | - | bytes received (optional counter)
""",
    "mlx4": """
rq_num_lle | soft/s | resp_local_length_error | responder: local length errors
sq_num_lle | soft/s | - | requester: local length errors
rq_num_lqpoe | soft/s | - | responder: local QP operation errors
sq_num_lqpoe | soft/s | - | requester: local QP operation errors
rq_num_lpe | soft/s | - | responder: local protection errors
sq_num_lpe | soft/s | - | requester: local protection errors
rq_num_wrfe | info | - | responder: work requests flushed in error
sq_num_wrfe | info | - | requester: work requests flushed in error
sq_num_mwbe | soft/s | - | memory window bind errors
sq_num_bre | soft/s | - | bad responses
sq_num_rire | soft/s | req_remote_invalid_request | requests refused by the remote side: invalid
rq_num_rire | soft/s | - | responder: invalid requests received
sq_num_rae | soft/s | req_remote_access_errors | requests refused by the remote side: access
rq_num_rae | soft/s | resp_remote_access_errors | responder: remote access errors
sq_num_roe | soft/s | - | remote operation errors
sq_num_tree | hard | req_transport_retries_exceeded | transport retries used up
sq_num_rree | hard | req_rnr_retries_exceeded | receiver-not-ready retries used up
rq_num_rnr | congestion | rnr_nak_sent | receiver-not-ready NAKs sent
sq_num_rnr | hard | rnr_nak_retry_err | receiver-not-ready NAKs received
rq_num_oos | soft/s | out_of_sequence | packets received out of sequence
sq_num_oos | soft/s | packet_seq_err | NAK sequence errors received
rq_num_dup | info | duplicate_request | duplicate requests received
sq_num_to | soft/s | local_ack_timeout_err | acknowledgement timer expired at the sender
rq_num_udsdprd | info | - | UD packets dropped for want of a receive buffer
num_cqovf | info | - | completion queue overflows
""",
    "bnxt_re": """
tx_pkts | traffic | . | packets sent
rx_pkts | traffic | . | packets received
tx_bytes | traffic | . | bytes sent
rx_bytes | traffic | . | bytes received
to_retransmits | soft/s | local_ack_timeout_err | retransmissions after a timeout
seq_err_naks_rcvd | soft/s | packet_seq_err | NAK sequence errors received
max_retry_exceeded | hard | req_transport_retries_exceeded | transport retries used up
rnr_naks_rcvd | hard | rnr_nak_retry_err | receiver-not-ready NAKs received
missing_resp | soft/s | implied_nak_seq_err | responses that never came
oos_drop_count | soft/s | out_of_sequence | packets dropped because out of sequence
unrecoverable_err | hard | . | errors that the adapter could not recover from
recoverable_errors | info | . | errors that the adapter recovered from
rx_roce_errors | soft/s | . | packets received with an error
tx_roce_errors | soft/s | . | packets that could not be sent
rx_roce_discards | congestion | rx_drops | packets received and discarded
tx_roce_discards | congestion | . | packets not sent but discarded
rx_out_of_buffer | congestion | out_of_buffer | drops for want of a receive buffer
tx_cnp_pkts | congestion | np_cnp_sent | CNPs sent
np_cnp_pkts | congestion | np_cnp_sent | CNPs sent
rx_cnp_pkts | congestion | rp_cnp_handled | CNPs received
rx_ecn_marked_pkts | congestion | np_ecn_marked_roce_packets | packets that arrived marked by ECN
pacing_alerts | congestion | - | doorbell pacing alerts
pacing_reschedule | info | - | doorbell pacing reschedules
pacing_complete | info | - | doorbell pacing completions
db_fifo_register | info | - | doorbell FIFO register
remote_invalid_req_err | soft/s | req_remote_invalid_request | requests refused by the remote side: invalid
remote_access_err | soft/s | req_remote_access_errors | requests refused by the remote side: access
remote_op_err | soft/s | - | remote operation errors
bad_resp_err | soft/s | . | bad responses
local_qp_op_err | soft/s | - | requester: local QP operation errors
local_protection_err | soft/s | - | requester: local protection errors
mem_mgmt_op_err | soft/s | - | memory management errors
dup_req | info | duplicate_request | duplicate requests received
res_length_mismatch | soft/s | resp_local_length_error | responder: length mismatches
res_tx_pci_err | hard | . | responder: PCIe errors while sending
res_rx_pci_err | hard | . | responder: PCIe errors while receiving
rx_atomic_req | traffic | rx_atomic_requests | atomic requests received
rx_read_req | traffic | rx_read_requests | RDMA READ requests received
rx_write_req | traffic | rx_write_requests | RDMA WRITE requests received
rx_roce_only_pkts | traffic | - | RoCE packets received
rx_roce_only_bytes | traffic | - | RoCE bytes received
tx_roce_only_pkts | traffic | - | RoCE packets sent
tx_roce_only_bytes | traffic | - | RoCE bytes sent
rx_roce_good_pkts,rx_roce_good_bytes,rx_good_pkts,rx_good_bytes | traffic | - | good packets and bytes received
rx_read_resp,rx_send_req | traffic | - | requests by kind
tx_atomic_req,tx_read_req,tx_read_resp,tx_send_req,tx_write_req | traffic | - | requests by kind
res_exceed_max,res_exceeds_wqe,res_opcode_err,res_rx_invalid_rkey | soft/s | - | responder: bad requests
res_rx_domain_err,res_rx_no_perm,res_rx_range_err,res_tx_invalid_rkey,res_tx_domain_err | soft/s | - | bad keys
res_tx_no_perm,res_tx_range_err,res_irrq_oflow,res_unsup_opcode | soft/s | - | responder: bad requests
res_unaligned_atomic,res_rem_inv_err | soft/s | - | responder: bad requests
res_mem_err,res_srq_err,res_cmp_err,res_invalid_dup_rkey,res_wqe_format_err | soft/s | - | responder: local errors
res_cq_load_err,res_srq_load_err | soft/s | - | responder: local errors
active_pds,active_ahs,active_qps,active_rc_qps,active_ud_qps | info | - | in use
active_srqs,active_cqs,active_mrs,active_mws | info | - | in use
watermark_pds,watermark_ahs,watermark_qps,watermark_rc_qps,watermark_ud_qps,watermark_srqs | info | - | most in use
watermark_cqs,watermark_mrs,watermark_mws,resize_cq_cnt | info | - | most in use
""",
    "irdma": """
ip4OutOctets | traffic | tx_bytes | bytes sent over IPv4
ip4InOctets | traffic | rx_bytes | bytes received over IPv4
ip6OutOctets | traffic | . | bytes sent over IPv6
ip6InOctets | traffic | . | bytes received over IPv6
ip4OutPkts | traffic | tx_pkts | packets sent over IPv4
ip4InPkts | traffic | rx_pkts | packets received over IPv4
ip4InDiscards | congestion | rx_drops | IPv4 packets discarded
ip6InDiscards | congestion | . | IPv6 packets discarded
cnpHandled | congestion | rp_cnp_handled | CNPs handled
cnpIgnored | congestion | rp_cnp_ignored | CNPs ignored
cnpSent | congestion | np_cnp_sent | CNPs sent
RxECNMrkd | congestion | np_ecn_marked_roce_packets | packets that arrived marked by ECN
tcpRetransSegs | soft/s | retrans_pkts | segments sent again
RetransSegs | soft/s | retrans_pkts | segments sent again
tcpInOptErrors | soft/s | - | TCP option errors
InOptErrors | soft/s | - | TCP option errors
tcpInProtoErrors | soft/s | rx_roce_errors | protocol errors received
InProtoErrors | soft/s | rx_roce_errors | protocol errors received
rxVlanErrors | info | - | frames of another VLAN
iwInRdmaReads | traffic | rx_read_requests | RDMA READ requests received
InRdmaReads | traffic | rx_read_requests | RDMA READ requests received
iwInRdmaWrites | traffic | rx_write_requests | RDMA WRITE requests received
InRdmaWrites | traffic | rx_write_requests | RDMA WRITE requests received
RNR sent | congestion | rnr_nak_sent | receiver-not-ready NAKs sent
RNR received | hard | rnr_nak_retry_err | receiver-not-ready NAKs received
Nak Sequence Error | soft/s | packet_seq_err | NAK sequence errors received
Nak Sequence Error Implied | soft/s | implied_nak_seq_err | implied NAK sequence errors
RTO | soft/s | local_ack_timeout_err | retransmission timeouts
Rcvd Out of order packets | soft/s | out_of_sequence | packets received out of order
CRC errors | soft/h | rx_icrc_encapsulated | packets with a wrong ICRC
Rx atomics | traffic | rx_atomic_requests | atomic requests received
Tx atomics | traffic | - | atomic requests sent
Rx ATS | traffic | - | translation requests received
Tx ATS | traffic | - | translation requests sent
ord limit count | info | - | times outstanding reads were at their limit
ird limit count | info | - | times incoming reads were at their limit
ip4InTruncatedPkts,ip4OutNoRoutes,ip6InTruncatedPkts,ip6OutNoRoutes | info | - | IP layer
ip4InReasmRqd,ip4InMcastPkts,ip4OutSegRqd,ip4OutMcastPkts,ip4InMcastOctets,ip4OutMcastOctets | traffic | - | IPv4
ip6InReasmRqd,ip6InMcastPkts,ip6OutSegRqd,ip6OutMcastPkts,ip6InMcastOctets,ip6OutMcastOctets | traffic | - | IPv6
ip6InPkts,ip6OutPkts,tcpInSegs,tcpOutSegs,InSegs,OutSegs,RxUDP,TxUDP | traffic | - | packets by protocol
iwInRdmaSends,iwOutRdmaReads,iwOutRdmaSends,iwOutRdmaWrites,iwRdmaBnd,iwRdmaInv | traffic | - | requests by kind
InRdmaSends,OutRdmaReads,OutRdmaSends,OutRdmaWrites,RdmaBnd,RdmaInv | traffic | - | requests by kind
""",
    "efa": """
tx_bytes | traffic | . | bytes sent
rx_bytes | traffic | . | bytes received
tx_pkts | traffic | . | packets sent
rx_pkts | traffic | . | packets received
rx_drops | congestion | . | packets dropped
retrans_pkts | soft/s | . | packets sent again
retrans_bytes | info | . | bytes sent again
retrans_timeout_events | soft/s | . | retransmission timeouts that changed the network path
unresponsive_remote_events | soft/s | . | times a remote side did not respond
impaired_remote_conn_events | soft/s | . | times a connection was found impaired
send_bytes | traffic | . | bytes sent by SEND
recv_bytes | traffic | . | bytes received by SEND
rdma_read_bytes | traffic | . | bytes read
rdma_write_bytes | traffic | . | bytes written
rdma_read_wr_err | soft/s | . | RDMA READ work requests that failed
rdma_write_wr_err | soft/s | . | RDMA WRITE work requests that failed
send_wrs,recv_wrs,rdma_read_wrs,rdma_write_wrs,rdma_read_resp_bytes,rdma_write_recv_bytes | traffic | - | work requests
submitted_cmds,completed_cmds,cmds_err,no_completion_cmds,keep_alive_rcvd | info | - | admin queue
alloc_pd_err,create_qp_err,create_cq_err,reg_mr_err,alloc_ucontext_err,create_ah_err,mmap_err | info | - | allocations
""",
    "erdma": """
tx_bytes_cnt,hw_tx_bytes_cnt | traffic | tx_bytes | bytes sent
rx_bytes_cnt,hw_rx_bytes_cnt | traffic | rx_bytes | bytes received
tx_packets_cnt,hw_tx_packets_cnt | traffic | tx_pkts | packets sent
rx_packets_cnt,hw_rx_packets_cnt | traffic | rx_pkts | packets received
rx_disable_drop_cnt,hw_rx_disable_drop_cnt | congestion | rx_drops | packets dropped: receiving is disabled
tx_bps_limit_drop_cnt,hw_bps_limit_drop_cnt | congestion | tx_roce_discards | packets dropped: bandwidth limit
tx_disable_drop_cnt,hw_disable_drop_cnt,tx_pps_limit_drop_cnt | congestion | - | packets dropped
hw_pps_limit_drop_cnt | congestion | - | packets dropped: packet rate limit
rx_bps_limit_drop_cnt,hw_rx_bps_limit_drop_cnt | congestion | - | packets dropped: bandwidth limit
rx_pps_limit_drop_cnt,hw_rx_pps_limit_drop_cnt | congestion | - | packets dropped: packet rate limit
tx_reqs_cnt,hw_tx_reqs_cnt | traffic | - | requests sent
""",
    "mana": """
requester_timeout | soft/s | local_ack_timeout_err | acknowledgement timer expired at the sender
requester_oos_nak | soft/s | packet_seq_err | NAK sequence errors received
requester_rnr_nak | hard | rnr_nak_retry_err | receiver-not-ready NAKs received
responder_rnr_nak | congestion | rnr_nak_sent | receiver-not-ready NAKs sent
responder_oos | soft/s | out_of_sequence | packets received out of sequence
responder_dup_request | info | duplicate_request | duplicate requests received
requester_implicit_nak | soft/s | implied_nak_seq_err | implied NAK sequence errors
requester_readresp_psn_mismatch | soft/s | - | read responses with a wrong sequence number
nak_inv_req | soft/s | req_remote_invalid_request | requests refused by the remote side: invalid
nak_access_error | soft/s | req_remote_access_errors | requests refused by the remote side: access
nak_opp_error,nak_inv_read,requestor_local_prot_error | soft/s | - | requests that failed
responder_local_len_error | soft/s | resp_local_length_error | responder: local length errors
responder_rem_access_error | soft/s | resp_remote_access_errors | responder: remote access errors
responder_local_qp_error,responder_malformed_wqe | soft/s | - | responder: local errors
total_fatal_error | hard | unrecoverable_err | errors that the adapter could not recover from
general_hw_error | info | - | adapter errors of any kind
requester_rnr_nak_retries_exceeded | hard | req_rnr_retries_exceeded | receiver-not-ready retries used up
requester_retries_exceeded | hard | req_transport_retries_exceeded | transport retries used up
received_cnps | congestion | rp_cnp_handled | CNPs received
num_qps_congested,rate_inc_events,num_qps_recovered,current_rate | info | - | rate control
dup_rx_requests | info | - | duplicate requests received
tx_packets | traffic | tx_pkts | packets sent
rx_packets | traffic | rx_pkts | packets received
rx_send_requests | traffic | - | SEND requests received
""",
    "hns": """
tx_pkt | traffic | tx_pkts | packets sent
rx_pkt | traffic | rx_pkts | packets received
tx_err_pkt | soft/s | tx_roce_errors | packets that could not be sent
rx_err_pkt | soft/s | rx_roce_errors | packets received with an error
tx_cnp_pkt | congestion | np_cnp_sent | CNPs sent
rx_cnp_pkt | congestion | rp_cnp_handled | CNPs received
rx_rc_pkt,rx_uc_pkt,rx_ud_pkt,rx_xrc_pkt,tx_rc_pkt,tx_uc_pkt,tx_ud_pkt,tx_xrc_pkt | traffic | - | packets by service
aeqe,ceqe,cmds,cmds_err,posted_mbx,polled_mbx,mbx_event,cq_cqe,cq_poe,cq_notify | info | - | events and commands
qp_create_err,qp_modify_err,cq_create_err,srq_create_err,xrcd_alloc_err,mr_reg_err,mr_rereg_err | info | - | allocations
ah_create_err,uctx_alloc_err | info | - | allocations
""",
    "ionic": """
tx_rdma_ucast_bytes | traffic | tx_bytes | bytes sent
rx_rdma_ucast_bytes | traffic | rx_bytes | bytes received
tx_rdma_ucast_pkts | traffic | tx_pkts | packets sent
rx_rdma_ucast_pkts | traffic | rx_pkts | packets received
tx_rdma_cnp_pkts | congestion | np_cnp_sent | CNPs sent
rx_rdma_cnp_pkts | congestion | rp_cnp_handled | CNPs received
rx_rdma_ecn_pkts | congestion | np_ecn_marked_roce_packets | packets that arrived marked by ECN
rx_rdma_mtu_discard_pkts | congestion | rx_drops | packets discarded for their size
tx_rdma_ack_timeout | soft/s | local_ack_timeout_err | acknowledgement timer expired at the sender
tx_rdma_retx_pkts | soft/s | retrans_pkts | packets sent again
tx_rdma_retx_bytes | info | retrans_bytes | bytes sent again
req_rx_pkt_seq_err | soft/s | packet_seq_err | NAK sequence errors received
req_rx_impl_nak_seq_err | soft/s | implied_nak_seq_err | implied NAK sequence errors
req_rx_rnr_retry_err | hard | req_rnr_retries_exceeded | receiver-not-ready retries used up
req_rx_rmt_acc_err | soft/s | req_remote_access_errors | requests refused by the remote side: access
req_rx_rmt_req_err | soft/s | req_remote_invalid_request | requests refused by the remote side: invalid
req_rx_cqe_err | soft/s | req_cqe_error | requests completed in error
req_rx_cqe_flush | info | req_cqe_flush_error | requests flushed in error
req_tx_retry_excd_err | hard | req_transport_retries_exceeded | transport retries used up
resp_rx_dup_request | info | duplicate_request | duplicate requests received
resp_rx_outof_buf | congestion | out_of_buffer | drops for want of a receive buffer
resp_rx_outouf_seq | soft/s | out_of_sequence | packets received out of sequence
resp_rx_cqe_err | soft/s | resp_cqe_error | responses completed in error
resp_rx_cqe_flush | info | resp_cqe_flush_error | responses flushed in error
resp_rx_loc_len_err | soft/s | resp_local_length_error | responder: local length errors
resp_tx_rmt_acc_err | soft/s | resp_remote_access_errors | responder: remote access errors
resp_tx_rnr_retry_err | congestion | rnr_nak_sent | receiver-not-ready NAKs sent
tx_rdma_mcast_bytes,tx_rdma_mcast_pkts,rx_rdma_mcast_bytes,rx_rdma_mcast_pkts | traffic | - | multicast
req_rx_oper_err,req_rx_dup_response,req_rx_inval_pkts,req_tx_loc_acc_err,req_tx_loc_oper_err | soft/s | - | requester
req_tx_mem_mgmt_err,req_tx_loc_sgl_inv_err | soft/s | - | requester: local errors
resp_rx_inval_request,resp_rx_loc_oper_err,resp_rx_outof_atomic,resp_tx_pkt_seq_err | soft/s | - | responder
resp_tx_rmt_inval_req_err,resp_tx_rmt_oper_err,resp_tx_loc_sgl_inv_err | soft/s | - | responder
""",
    "cxgb4": """
ip4InSegs,ip4OutSegs,ip4OutRsts,ip6InSegs,ip6OutSegs,ip6OutRsts | traffic | - | TCP segments
ip4RetransSegs | soft/s | retrans_pkts | segments sent again
ip6RetransSegs | soft/s | - | segments sent again over IPv6
""",
    "rxe": """
sent_pkts | traffic | tx_pkts | packets sent
rcvd_pkts | traffic | rx_pkts | packets received
out_of_seq_request | soft/s | out_of_sequence | packets received out of sequence
rcvd_seq_err | soft/s | packet_seq_err | NAK sequence errors received
rcvd_rnr_err | hard | rnr_nak_retry_err | receiver-not-ready NAKs received
send_rnr_err | congestion | rnr_nak_sent | receiver-not-ready NAKs sent
retry_exceeded_err | hard | req_transport_retries_exceeded | transport retries used up
retry_rnr_exceeded_err | hard | req_rnr_retries_exceeded | receiver-not-ready retries used up
completer_retry_err | soft/s | local_ack_timeout_err | retries by the completer
send_err | soft/s | tx_roce_errors | packets that could not be sent
link_downed | hard | hw_link_downed | the network interface below went down
ack_deferred | info | - | acknowledgements deferred
rdma_sends,rdma_recvs | traffic | - | requests
""",
}
