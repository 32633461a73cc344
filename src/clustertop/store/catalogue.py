"""The tables of the store: their columns, how their rows are called, and which group feeds each."""

from __future__ import annotations

from clustertop.signals import (
    bmc,
    device,
    disk,
    feed,
    gpu,
    host,
    link,
    nccl_table,
    pcie,
    pdu,
    peer,
    rdma,
    screen,
    traffic_table,
    uplink,
)

LABELS = {
    "node": host.node_label, "group": host.group_label, "gpu": gpu.label, "pcie": pcie.label, "port": rdma.label,
    "net": host.net_label, "process": gpu.process_label, "link": link.label, "disk": disk.label,
    "screen": screen.label, "device": device.label, "pdu": pdu.label, "bmc": bmc.label, "psu": bmc.psu_label,
    "sensor": bmc.sensor_label, "feed": feed.label, "uplink": uplink.label, "traffic": traffic_table.label,
    "nccl": nccl_table.label,
    "peer": peer.label,
}
SPECS = (
    host.NODE, host.GROUP, gpu.TABLE, pcie.TABLE, rdma.TABLE, host.NET, gpu.PROCESS, link.TABLE, disk.TABLE,
    screen.TABLE, device.TABLE,
    pdu.TABLE, bmc.TABLE, bmc.PSU, bmc.SENSOR,
    feed.TABLE,
    uplink.TABLE,
    traffic_table.TABLE,
    nccl_table.TABLE,
    peer.TABLE,
)
GROUPS = ("gpu", "pcie", "rdma", "host", "net", "disk", "screen", "sockets", "bmc", "nccl")
DEVICE_GROUPS = ("pdu", "bmc", "switch", "fabric")
"""Groups of which devices tell."""
SAME_TABLES = {"fabric": "switch"}
"""By group: the one whose tables it fills; a fabric's leaves have ports as switches have."""
KEEP = {
    "node": tuple(
        metric.name for metric in host.NODE.metrics if not metric.raw and metric.name not in host.OF_HOST),
    "group": ("group_state", "hung", "failed", "group_age_seconds", "age_intervals", "interval_seconds",
              "interval_wanted_seconds"),
    "port": ("was_up", "virtual", "never_used"),
    "pcie": ("endpoint", "width_expected_lanes", "width_expected_by"),
    "device": device.TABLE.names, "feed": feed.TABLE.names,
    # It is worked out of fresh readings only, and says itself what is unknown and why.
    "traffic": traffic_table.TABLE.names,
}
"""By table: the columns that rows past the stale limit keep."""
