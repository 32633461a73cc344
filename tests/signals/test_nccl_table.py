"""What NCCL logs of many nodes mean together: sockets where RDMA is meant, inits of the last hour, who talks to whom."""

from __future__ import annotations

from typing import Any

import pytest

from clustertop.probe import nccl
from clustertop.probe.frames import Err
from clustertop.signals import nccl_table
from clustertop.signals.nccl_table import NO_GPU_DIRECT, NOTHING_WRONG, SOCKETS
from nodes import Fleet, table

KEY = "/l/a 0xc1/16"


def row(attrs: dict[str, Any] | None = None, port: dict[str, Any] | None = None, **cells: Any) -> dict[str, Any]:
    """What the store makes of one communicator's row, read at the node's second 501."""
    fleet = Fleet()
    more = {}
    if port is not None:
        more["port"] = table({"p/1": {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}}, {"p/1": port})
    fleet.step(1.0, nccl=table({KEY: cells}, {KEY: {"file": "/l/a", "comm": "0xc1", **(attrs or {})}}), **more)
    view = fleet["nccl"]
    return {name: view.value(name, 0) if view.value(name, 0) is not None else view.reason(name, 0) for name in view.spec.names}


def test_every_column_of_the_probe_has_a_meaning() -> None:
    assert set(nccl.COLUMNS) == set(nccl_table.TABLE.raw_index)


@pytest.mark.parametrize(("attrs", "port", "meant"), [
    ({}, None, 0), ({"network": ["Socket"]}, None, 0), ({"found": ["Socket eth0:10.0.0.1<0>"]}, None, 0),
    ({"network": ["IB"]}, None, 1), ({"found": ["IB mlx5_0:1/RoCE"]}, None, 1), ({"found": ["OFI libfabric"]}, None, 1),
    ({"network": ["Socket"]}, {"link_layer": "InfiniBand"}, 1), ({"network": ["Socket"]}, {"link_layer": "Ethernet"}, 0),
])
def test_sockets_are_wrong_where_rdma_is_meant(attrs: dict[str, Any], port: dict[str, Any] | None, meant: int) -> None:
    said = row(attrs, port, network_channels=8, socket_channels=8, direct_channels=0)
    assert (said["rdma_meant"], said["socket_channels"]) == (meant, 8 * meant)
    assert said["transport"] == (SOCKETS if meant else NOTHING_WRONG)


def test_channels_without_gpu_direct() -> None:
    said = row(network_channels=8, socket_channels=0, direct_channels=5)
    assert (said["gdr_missing"], said["transport"]) == (3, NO_GPU_DIRECT)
    assert row(network_channels=0, socket_channels=0, direct_channels=0)["transport"] == NOTHING_WRONG


def test_what_is_not_known_of_the_channels_is_no_nothing_wrong() -> None:
    why = Err("too many channels")
    said = row({"network": ["IB"]}, network_channels=why, socket_channels=why, direct_channels=why)
    assert said["transport"] == said["socket_channels"] == said["gdr_missing"] == "too many channels"


@pytest.mark.parametrize(("cells", "init", "recent"), [
    ({"init": 20.0, "init_time": 490.0}, 20.0, 20.0),
    ({"init": 20.0, "init_time": -3200.0}, 20.0, 0.0),
    ({"init": 20.0, "init_time": 490.0, "running": 0}, 20.0, 0.0),
    ({"init": Err("not timed"), "init_time": 490.0}, "not timed", "not timed"),
    ({"init": Err("not timed"), "init_time": -3200.0}, "not timed", 0.0),
    ({"init": Err("not complete"), "init_time": 471.0, "pending": 2, "pending_time": 471.0}, 30.0, 30.0),
    # One rank is through, another is not: the longer counts.
    ({"init": 3.0, "init_time": 490.0, "pending": 1, "pending_time": 471.0}, 30.0, 30.0),
    # It hangs for hours: over only when its processes are.
    ({"init": Err("not complete"), "init_time": -6699.0, "pending": 2, "pending_time": -6699.0, "running": 8}, 7200.0, 7200.0),
    ({"init": Err("not complete"), "init_time": -6699.0, "pending": 2, "pending_time": -6699.0, "running": 0},
     "not complete", 0.0),
    ({"init": Err("not complete"), "init_time": -6699.0, "pending": 2, "pending_time": -6699.0}, 7200.0, 0.0),
])
def test_inits(cells: dict[str, Any], init: object, recent: object) -> None:
    said = row(**{"ranks": 16, "pending": 0, **cells})
    assert (said["init_seconds"], said["init_recent_seconds"]) == (init, recent)
    assert said["init_known"] == (not isinstance(init, str))


def test_a_row_about_a_file_has_no_init() -> None:
    fleet = Fleet()
    fleet.step(1.0, nccl=table({"/l/a": {"lines": 3, "warnings": 1}}, {"/l/a": {"file": "/l/a"}}))
    view = fleet["nccl"]
    assert view.value("warnings", 0) == 1
    assert view.value("init_known", 0) is view.value("init_recent_seconds", 0) is view.value("transport", 0) is None
    assert view.labels == ("a",)
