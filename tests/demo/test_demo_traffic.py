"""The demo's sockets and addresses: nodes tell what the rings carry, and the faults of the fabric reach their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from clustertop.core import Core
from clustertop.demo import machine as fixed
from clustertop.demo.cluster import Cluster, schedule
from clustertop.demo.faults import parse
from clustertop.model import LinkEvent, LinkState, NodeInfo
from clustertop.probe.frames import Encoder, line
from clustertop.rules.spec import builtin
from clustertop.signals import peer
from clustertop.wire.frame import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clustertop.model import Transition
    from clustertop.store.view import FleetView

ARGS = {"groups": ["host", "net", "nccl", "rdma", "sockets"], "nccl": {"logs": ["/var/log/nccl/*.log"]},
        "every": {"host": 2.0, "net": 10.0, "rdma": 2.0, "sockets": 2.0}}
WALL = 1.75e9


class Looked:
    """A demo cluster behind a core with its racks and leaves."""

    def __init__(self, count: int, faults: Sequence[str] = ()) -> None:
        self.cluster = Cluster(count, 7, [parse(text) for text in faults])
        plan = self.cluster.plan
        self.core = Core([NodeInfo(one.name, rack=one.rack, leaf=one.leaf) for one in plan.nodes], builtin())
        self.said: list[Transition] = []
        self.core.listen(self.said.extend)
        self.encoders, self.schedules = [Encoder() for _ in plan.nodes], [schedule(ARGS) for _ in plan.nodes]
        for number in range(count):
            self.core.on_link(LinkEvent(number, 50.0, LinkState.UP), WALL)

    def until(self, seconds: float) -> Looked:
        """To the demo's moment *seconds*, in steps of two."""
        now = self.cluster.simulator.seconds
        while now < seconds:
            now += 2.0
            self.cluster.simulator.advance(now)
            for number, node in enumerate(self.cluster.nodes):
                groups = node.update(self.schedules[number], now)
                at = node.machine.boot_seconds + now
                frame = self.encoders[number].encode(groups, at, WALL + now, {}, node.machine.facts)
                payload = line(frame, "")
                raw = payload[payload.index(b"{"):].strip()
                raw = raw[: raw.rindex(b"}") + 1]
                self.core.on_frame(number, 50.0 + now, WALL + now, decode(raw), raw)
            self.core.tick(50.0 + now, WALL + now)
        return self

    @property
    def view(self) -> FleetView:
        assert self.core.snapshot is not None
        return self.core.snapshot.view

    def raised(self, rule: str) -> list[Transition]:
        return [one for one in self.said if one.rule == rule and one.kind == "raised"]


def test_peers_are_placed_by_the_addresses_that_the_nodes_tell() -> None:
    looked = Looked(16).until(40.0)
    view, plan = looked.view, looked.cluster.plan
    table = view["peer"]
    places = view.traffic.peer_node
    assert len(places) == len(table) > 16
    for row, key in enumerate(table.keys):
        want = [number for number in range(16) if fixed.address(number) == key]
        assert places[row] == (want[0] if want else 16)
    after = looked.cluster.traffic.successors()
    sender = next(number for number in range(16) if after[number] >= 0)
    row = table.row_of(sender, fixed.address(int(after[sender])))
    assert row is not None
    sent = next(one.sent_bytes for one in looked.cluster.traffic.peers(sender) if one.node == after[sender])
    assert sent > 1e9
    assert table.value("transmit_bytes_total", row) == pytest.approx(sent, abs=1.0)
    assert sum(key == fixed.STORAGE_ADDRESS for key in table.keys) == 16
    assert view.traffic.strangers[0][0] == fixed.STORAGE_ADDRESS
    fleet = view.traffic.rows["fleet"]
    assert 0 < (view["traffic"].value("unplaced_ratio", fleet) or 0) < 0.01
    assert view.traffic.racks == tuple(sorted({one.rack for one in plan.nodes}))


def test_sockets_agree_with_what_the_ports_counted_and_no_column_is_unknown() -> None:
    looked = Looked(32).until(60.0)
    view = looked.view
    job = next(row for key, row in view.traffic.rows.items() if key.startswith("job/"))
    assert (view["traffic"].value("disagreement_ratio", job) or 0) < 0.05
    table = view["peer"]
    for metric in peer.TABLE.metrics:
        assert not np.isnan(table.values[table.spec.index[metric.name]]).any(), metric.name
    assert not looked.core.snapshot.bad_frames


def test_a_bad_order_of_ranks_is_told_after_five_minutes_and_a_good_one_never() -> None:
    looked = Looked(32, ["cross-rack:20"]).until(18.0)
    job = next(key for key in looked.view.traffic.rows if key.startswith("job/"))
    share = looked.view["traffic"].value("judged_ratio", looked.view.traffic.rows[job])
    assert share is not None
    assert share < 0.3
    looked.until(290.0)
    assert not looked.raised("cross_rack_share")
    looked.until(400.0)
    told = looked.raised("cross_rack_share")
    assert [one.thing.key for one in told] == [job]
    assert told[0].value > 0.9


def test_an_incast_is_told_at_its_target_and_its_ports_carry_what_its_sockets_say() -> None:
    looked = Looked(32, ["incast:30"]).until(28.0)
    assert not looked.raised("tcp_incast")
    looked.until(90.0)
    target = looked.cluster.faults[0].node
    assert [one.thing.node for one in looked.raised("tcp_incast")] == [looked.cluster.plan.nodes[target].name]
    job = next(row for key, row in looked.view.traffic.rows.items() if key.startswith("job/"))
    assert (looked.view["traffic"].value("disagreement_ratio", job) or 0) < 0.2


def test_a_group_that_the_console_does_without_is_not_sent() -> None:
    cluster = Cluster(2)
    plan = schedule({"without": ["sockets"]})
    assert "sockets" not in cluster.nodes[0].update(plan, 0.0)
    assert "net" in cluster.nodes[0].update(plan, 0.0)


def test_the_nccl_log_tells_the_order_of_ranks_before_and_after_it_went_bad() -> None:
    looked = Looked(32, ["cross-rack:20"]).until(18.0)
    job = next(key for key in looked.view.traffic.rows if key.startswith("job/"))

    def seen(column: str) -> float | None:
        return looked.view["traffic"].value(column, looked.view.traffic.rows[job])

    good = seen("predicted_cross_rack_ratio")
    assert good is not None
    assert good < 0.3
    assert seen("nccl_cross_rack_ratio") == pytest.approx(good, abs=0.05)
    looked.until(60.0)
    assert (seen("predicted_cross_rack_ratio") or 0) > 0.9
    assert (seen("nccl_cross_rack_ratio") or 0) > 0.9
    attrs = looked.view["traffic"].attrs[looked.view.traffic.rows[job]]
    assert attrs["order_by"] == "the NCCL log"
    assert len(attrs["better_order"]) == attrs["nodes"]
    assert not [one for one in looked.said if one.rule.startswith("nccl")]
    table = looked.view["nccl"]
    comm = [row for row, attrs in enumerate(table.attrs) if "comm" in attrs and table.present[row]]
    assert len(comm) == looked.view["traffic"].attrs[looked.view.traffic.rows[job]]["nodes"]
    for name in ("ranks", "init_seconds", "network_channels"):
        assert not np.isnan(table.col(name)[comm]).any(), name


def test_without_named_logs_the_demo_reads_none() -> None:
    assert "nccl" not in Cluster(2).nodes[0].update(schedule({}), 0.0)
