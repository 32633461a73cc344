"""Tables of meters filled by hand, for tests of what the console makes of them: no wire, no frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clustertop.model import NodeInfo
from clustertop.signals import host, rdma, traffic_table, uplink
from clustertop.signals import jobs as job_words
from clustertop.signals.metric import Metric, table
from clustertop.store.history import History
from clustertop.store.table import Table
from clustertop.store.traffic import Traffic
from clustertop.store.view import Freshness

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clustertop.signals.metric import TableSpec
    from clustertop.store.traffic_picture import TrafficPicture

PEER = table("peer", "sockets", "peers", (
    Metric("transmit_bytes_total", "B", "t", "tx", "counter", hi=2.0**64, rate="transmit_bytes_per_second"),
    Metric("receive_bytes_total", "B", "r", "rx", "counter", hi=2.0**64, rate="receive_bytes_per_second"),
    Metric("rtt_seconds", "s", "rtt", "rtt"), Metric("rtt_variation_seconds", "s", "var", "var"),
    Metric("sockets", "", "n", "sockets")))
"""The columns that table ``peer`` has in any case."""
NCCL = table("nccl", "nccl", "logs", (Metric("ranks", "", "n", "ranks"),))
SPECS: dict[str, TableSpec] = {
    "traffic": traffic_table.TABLE, "node": host.NODE, "group": host.GROUP, "net": host.NET, "port": rdma.TABLE,
    "uplink": uplink.TABLE, "peer": PEER, "nccl": NCCL}
MEGA = 1e6


def nodes(racks: Mapping[str, Sequence[str]], hung: Mapping[str, Sequence[str]] | None = None,
          **more: Any) -> list[NodeInfo]:
    """Nodes in racks, and hung on leaves, in order of mention; an empty rack: in none."""
    leaf = {name: one for one, names in (hung or {}).items() for name in names}
    return [NodeInfo(name, rack=rack, leaf=leaf.get(name, ""), **more) for rack, names in racks.items()
            for name in names]


class Rig:
    """Tables, a clock, and :class:`Traffic` over them. Node number i has address ``10.0.0.<i>``."""

    def __init__(self, infos: Sequence[NodeInfo], switches: Sequence[str] = (), *, have: Sequence[str] = tuple(SPECS),
                 fabric: str = "", **options: Any) -> None:
        self.nodes = list(infos)
        self.owners = [*self.nodes, *(NodeInfo(name, leaf=name, kind="switch") for name in switches),
                       *([NodeInfo(fabric, kind="fabric")] if fabric else []), NodeInfo("fleet", kind="fleet")]
        self.number = {one.name: number for number, one in enumerate(self.owners)}
        self.tables = {name: Table(SPECS[name], traffic_table.label) for name in have}
        for number, node in enumerate(self.nodes):
            self.tables["node"].add(number, "", {"name": node.name})
        self.history = History((traffic_table.TABLE,))
        self.addresses = {f"10.0.0.{number}": number for number in range(len(self.nodes))}
        self.now = 1000.0
        self.jobs = job_words.nothing(len(self.nodes))
        self.traffic = Traffic(self.nodes, self.tables, self.history, Freshness(), owners=self.owners,
                               places=self._places, **options)

    def _places(self) -> np.ndarray:
        return np.array([self.addresses.get(key, -1) for key in self.tables["peer"].keys], np.intp)

    def address(self, name: str) -> str:
        """Of a node by its name; what is none is an address already."""
        return f"10.0.0.{self.number[name]}" if name in self.number else name

    def put(self, name: str, owner: str, key: str, values: Mapping[str, float | None],
            attrs: Mapping[str, Any] | None = None, interval: float = 1.0) -> int:
        """Let one row be read now; None: it could not be."""
        one = self.tables[name]
        row = one.index.get((self.number[owner], key))
        if row is None or not one.present[row] or dict(attrs or {}) != one.attrs[row]:
            row = one.add(self.number[owner], key, dict(attrs or {}))
        assert row is not None
        for column, value in values.items():
            one.values[one.spec.index[column], row] = np.nan if value is None else value
        one.read_at[row], one.interval[row] = self.now, interval
        one.reads[row] += 1
        return row

    def says(self, node: str, **peers: tuple[float | None, float | None]) -> None:
        """*node* tells its bytes per second to and from each peer (by node name)."""
        for peer, (sent, received) in peers.items():
            self.flow(node, peer, sent, received)

    def flow(self, node: str, peer: str, sent: float | None, received: float | None = 0.0,
             rtt: float | None = None, jitter: float | None = None) -> None:
        """One row of *node*'s peers."""
        self.put("peer", node, self.address(peer), {
            "transmit_bytes_per_second": sent, "receive_bytes_per_second": received, "rtt_seconds": rtt,
            "rtt_variation_seconds": jitter})

    def reads(self, node: str) -> None:
        """*node*'s sockets were looked at twice: what it does not tell of, it does not have."""
        self.put("group", node, "sockets", {"group_state": 0.0})
        self.tables["group"].reads[self.tables["group"].index[self.number[node], "sockets"]] = 2

    def nic(self, node: str, sent: float, name: str = "eth0") -> None:
        """What *node*'s interface sent, by its own counter."""
        self.put("net", node, name, {"transmit_bytes_per_second": sent, "physical": 1.0}, {"name": name, "phys": True})

    def port(self, node: str, sent: float, **attrs: Any) -> None:
        """What *node*'s RDMA port sent."""
        self.put("port", node, "0000:17:00.0/1", {"transmit_bytes_per_second": sent, "virtual": 0.0}, attrs)

    def switch(self, leaf: str, name: str, role: str, into: float | None, out: float | None, *, up: float = 1.0,
               speed: float | None = 100e9, owner: str = "", **values: float) -> None:
        """One port of a leaf."""
        self.put("uplink", owner or leaf, name, {
            "receive_bytes_per_second": into, "transmit_bytes_per_second": out, "port_up": up,
            "speed_bits_per_second": speed, **values}, {"name": name, "role": role, "leaf": leaf, "peer": ""}, 10.0)

    def gone(self, leaf: str, name: str) -> None:
        """The switch no longer lists this port."""
        ports = self.tables["uplink"]
        row = ports.index[self.number[leaf], name]
        ports.present[row] = False
        ports.values[:, row] = np.nan
        ports.reads[row] += 1
        ports.listed += 1

    def run(self, **jobs: Sequence[str]) -> None:
        """These jobs, ``j4711=("n1", "n2")``, are on these nodes from now on, and no other."""
        names = tuple(name.removeprefix("j") for name in jobs)
        members = tuple(np.array([self.number[node] for node in mine], np.intp) for mine in jobs.values())
        code = np.full(len(self.nodes), job_words.NO_JOB, np.int32)
        for number, mine in enumerate(members):
            code[mine] = number
        self.jobs = job_words.Jobs(names, (None,) * len(self.nodes), code, np.empty(0, np.int32), members)

    def tick(self, seconds: float = 1.0) -> TrafficPicture:
        """Work it out as the store does, then move the clock."""
        uplink.derive(self.tables["uplink"].columns)
        self.traffic.derive(self.now, self.jobs)
        self.now += seconds
        return self.traffic.picture

    def value(self, key: str, column: str) -> float | None:
        """What table ``traffic`` says of a scope."""
        one = self.tables["traffic"]
        row = self.traffic.picture.rows[key]
        value = float(one.values[one.spec.index[column], row])
        return None if value != value else value

    def why(self, key: str, column: str) -> str:
        """Why it says nothing."""
        return self.tables["traffic"].view(self.now - 1, traffic_table.TABLE.names).reason(column, self.traffic.picture.rows[key])

    def attrs(self, key: str) -> Mapping[str, Any]:
        """Of a scope's row."""
        return self.tables["traffic"].attrs[self.traffic.picture.rows[key]]

    def node(self, name: str, column: str) -> float | None:
        """What the node table says."""
        return self.tables["node"].view(self.now, (column,)).value(column, self.number[name])
