"""What network drivers count, as ``ethtool -S`` spells it, with what kind of news each brings.

One line a counter, or several of one kind with commas between them: name | class | column | what it counts. ``#``
stands for a number; in a column it is the priority, 0 to 7. Classes are those of the RDMA counters. The column of the
link table that holds it: a name, or ``-``: known, told apart from unknown ones, not kept (a part or a repetition of
what is kept, or no news). What counts a queue, a ring or a representor is not listed: the total beside it is.
"""

from __future__ import annotations

_KERNEL = "https://github.com/torvalds/linux/blob/master/drivers/net/ethernet/"

SOURCES = {
    "mlx5_core": "https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html",
    "mlx4_en": _KERNEL + "mellanox/mlx4/en_ethtool.c (main_strings)",
    "bnxt_en": _KERNEL + "broadcom/bnxt/bnxt_ethtool.c (bnxt_port_stats_arr, bnxt_port_stats_ext_arr)",
    "ice": _KERNEL + "intel/ice/ice_ethtool.c (ice_gstrings_pf_stats, ice_gstrings_pfc_stats)",
    "i40e": _KERNEL + "intel/i40e/i40e_ethtool.c (i40e_gstrings_stats, i40e_gstrings_pfc_stats)",
    "ixgbe": _KERNEL + "intel/ixgbe/ixgbe_ethtool.c (ixgbe_gstrings_stats)",
    "ena": "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-network-performance-ena.html",
    "hns3": _KERNEL + "hisilicon/hns3/hns3pf/hclge_main.c (g_mac_stats_string)",
}

BLOCKS = {
    "mlx5_core": """
rx_prio#_pause | congestion | receive_pause_prio#_total | PFC frames received: the switch holds this priority back
tx_prio#_pause | congestion | transmit_pause_prio#_total | PFC frames sent: this port holds the switch back
rx_pause_ctrl_phy | congestion | receive_pause_global_total | pause frames of the whole link received
tx_pause_ctrl_phy | congestion | transmit_pause_global_total | pause frames of the whole link sent
rx_global_pause,tx_global_pause | congestion | - | the same, while global pause is on
rx_prio#_pause_duration,tx_prio#_pause_duration,rx_prio#_pause_transition | info | - | how long and how often paused
tx_pause_storm_warning_events | congestion | pause_storm_warnings_total | sent pauses for long
tx_pause_storm_error_events | hard | pause_storms_total | sent pauses for so long that they were switched off
rx_discards_phy | congestion | receive_discards_total | packets dropped on arrival for want of buffers in the adapter
tx_discards_phy | congestion | transmit_discards_total | packets dropped before sending
rx_prio#_discards,rx_prio#_buf_discard,rx_prio#_cong_discard | congestion | - | parts of rx_discards_phy
rx_out_of_buffer | congestion | no_buffer_total | packets dropped because the host had posted no receive buffer
rx_steer_missed_packets | info | - | packets that no flow table wanted
rx_crc_errors_phy | soft/h | receive_crc_errors_total | packets received with a wrong checksum
rx_symbol_err_phy | soft/h | receive_symbol_errors_total | packets received with a physical coding error
rx_pcs_symbol_err_phy | soft/h | receive_uncorrected_total | symbols that error correction could not mend
rx_corrected_bits_phy | info | - | bits that error correction mended
link_down_events_phy | hard | link_downs_total | times the link went down
rx_pci_signal_integrity | soft/h | pci_receive_errors_total | PCIe errors that the adapter saw on arrival
tx_pci_signal_integrity | soft/h | pci_transmit_errors_total | PCIe errors that the adapter was told of
outbound_pci_stalled_rd_events | congestion | pci_read_stalls_total | seconds with PCIe reads stalled over 30 %
outbound_pci_stalled_wr_events | congestion | pci_write_stalls_total | seconds with PCIe writes stalled over 30 %
outbound_pci_buffer_overflow | congestion | pci_buffer_overflows_total | packets dropped because PCIe was too slow
""",
    "mlx4_en": """
rx_pause_prio_# | congestion | receive_pause_prio#_total | PFC frames received
tx_pause_prio_# | congestion | transmit_pause_prio#_total | PFC frames sent
rx_pause | congestion | receive_pause_global_total | pause frames of the whole link received
tx_pause | congestion | transmit_pause_global_total | pause frames of the whole link sent
""",
    "bnxt_en": """
rx_pfc_ena_frames_pri# | congestion | receive_pause_prio#_total | PFC frames received
tx_pfc_ena_frames_pri# | congestion | transmit_pause_prio#_total | PFC frames sent
rx_pause_frames | congestion | receive_pause_global_total | pause frames of the whole link received
tx_pause_frames | congestion | transmit_pause_global_total | pause frames of the whole link sent
rx_pfc_frames,tx_pfc_frames | congestion | - | PFC frames of all priorities
pfc_pri#_rx_duration_us,pfc_pri#_tx_duration_us | info | - | how long paused
pfc_pri#_rx_transitions,pfc_pri#_tx_transitions | info | - | how often paused
rx_stat_discard | congestion | receive_discards_total | packets dropped on arrival for want of buffers in the adapter
tx_stat_discard | congestion | transmit_discards_total | packets dropped before sending
rx_total_ring_discards | congestion | no_buffer_total | packets dropped because the host had posted no receive buffer
tx_total_ring_discards | congestion | transmit_ring_discards_total | packets of the host's queues dropped before sending
rx_total_oom_discards,rx_total_netpoll_discards | congestion | - | packets the driver dropped for want of memory
rx_discard_packets_cos# | congestion | - | parts of rx_stat_discard
rx_fcs_err_frames | soft/h | receive_crc_errors_total | packets received with a wrong checksum
rx_pcs_symbol_err | soft/h | receive_symbol_errors_total | physical coding errors
rx_fec_uncorrectable_blocks | soft/h | receive_uncorrected_total | blocks that error correction could not mend
rx_fec_corrected_blocks | info | - | blocks that error correction mended
link_down_events | hard | link_downs_total | times the link went down
""",
    "ice": """
rx_priority_#_xoff.nic | congestion | receive_pause_prio#_total | PFC frames received
tx_priority_#_xoff.nic | congestion | transmit_pause_prio#_total | PFC frames sent
link_xoff_rx.nic | congestion | receive_pause_global_total | pause frames of the whole link received
link_xoff_tx.nic | congestion | transmit_pause_global_total | pause frames of the whole link sent
rx_priority_#_xon.nic,tx_priority_#_xon.nic,link_xon_rx.nic,link_xon_tx.nic | info | - | ends of pauses
rx_dropped.nic | congestion | receive_discards_total | packets dropped on arrival for want of buffers in the adapter
tx_dropped_link_down.nic | info | - | packets dropped because the link was down
rx_crc_errors.nic | soft/h | receive_crc_errors_total | packets received with a wrong checksum
mac_local_faults.nic | soft/h | receive_symbol_errors_total | faults of the link seen at this end
mac_remote_faults.nic | info | - | faults of the link told by the other end
""",
    "i40e": """
port.rx_priority_#_xoff | congestion | receive_pause_prio#_total | PFC frames received
port.tx_priority_#_xoff | congestion | transmit_pause_prio#_total | PFC frames sent
port.link_xoff_rx | congestion | receive_pause_global_total | pause frames of the whole link received
port.link_xoff_tx | congestion | transmit_pause_global_total | pause frames of the whole link sent
port.rx_dropped | congestion | receive_discards_total | packets dropped on arrival for want of buffers in the adapter
port.tx_dropped_link_down | info | - | packets dropped because the link was down
port.rx_crc_errors | soft/h | receive_crc_errors_total | packets received with a wrong checksum
port.mac_local_faults | soft/h | receive_symbol_errors_total | faults of the link seen at this end
""",
    "ixgbe": """
rx_pb_#_pxoff | congestion | receive_pause_prio#_total | PFC frames received
tx_pb_#_pxoff | congestion | transmit_pause_prio#_total | PFC frames sent
rx_flow_control_xoff | congestion | receive_pause_global_total | pause frames of the whole link received
tx_flow_control_xoff | congestion | transmit_pause_global_total | pause frames of the whole link sent
rx_no_dma_resources | congestion | no_buffer_total | packets dropped because the host had posted no receive buffer
""",
    "ena": """
bw_in_allowance_exceeded | congestion | receive_bandwidth_shaped_total | shaped: the instance's bandwidth in
bw_out_allowance_exceeded | congestion | transmit_bandwidth_shaped_total | shaped: the instance's bandwidth out
pps_allowance_exceeded | congestion | packet_rate_shaped_total | shaped: the instance's packets a second
conntrack_allowance_exceeded | congestion | connections_shaped_total | dropped: the instance's tracked connections
linklocal_allowance_exceeded | congestion | - | packets dropped to the instance's own services
admin_q_pause,wd_expired,interface_down,interface_up,tx_timeout | info | - | events of the driver
""",
    "hns3": """
mac_rx_pfc_pri#_pkt_num | congestion | receive_pause_prio#_total | PFC frames received
mac_tx_pfc_pri#_pkt_num | congestion | transmit_pause_prio#_total | PFC frames sent
mac_rx_mac_pause_num | congestion | receive_pause_global_total | pause frames of the whole link received
mac_tx_mac_pause_num | congestion | transmit_pause_global_total | pause frames of the whole link sent
mac_rx_fcs_err_pkt_num | soft/h | receive_crc_errors_total | packets received with a wrong checksum
mac_rx_sym_err_pkt_num | soft/h | receive_symbol_errors_total | physical coding errors
""",
}
"""By kernel driver. A name that two drivers share means the same in both."""


def patterns() -> list[str]:
    """What a probe is told to keep, ``#`` for any number."""
    out: set[str] = set()
    for block in BLOCKS.values():
        for line in block.strip().splitlines():
            names, _, column, _ = (part.strip() for part in line.split(" | "))
            if column != "-":
                out.update(names.split(","))
    return sorted(out)
