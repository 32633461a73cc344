"""The demo's PDUs, BMCs and leaf switches as servers on loopback: SNMP over UDP, Redfish over HTTPS, a port each.

Community and password are made for the run and kept in files of the demo's own directory that nobody else can read.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from clustertop.demo import bmc_tree, pdu_table
from clustertop.demo.redfish_server import Bmc, Connection, certificate
from clustertop.demo.snmp_agent import SnmpAgent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from clustertop.demo.session import Demo
    from clustertop.demo.snmp_agent import Value
    from clustertop.sources.oids import Oid

HOST = "127.0.0.1"
COMMUNITY_FILE, PASSWORD_FILE = "snmp_community", "bmc_password"
BMC_USER = "monitor"
_PDU_UPTIME_HUNDREDTHS = 91_000_000


class Devices:
    """The servers. :meth:`start` opens them, :meth:`close` ends them."""

    def __init__(self, demo: Demo, directory: Path) -> None:
        self._demo = demo
        self._directory = directory
        self._datagrams: list[asyncio.BaseTransport] = []
        self._servers: list[asyncio.Server] = []
        self.bmcs: list[Bmc] = []
        """One per node."""

    async def start(self) -> dict[str, Any]:
        """Open a port for each; returns what the console has to know of them. Raises OSError."""
        cluster, now = self._demo.cluster, self._demo.now
        community = secret(self._directory / COMMUNITY_FILE).encode()
        password = secret(self._directory / PASSWORD_FILE)

        def uptime() -> int:
            return _PDU_UPTIME_HUNDREDTHS + int(cluster.simulator.seconds * 100)

        pdus = {feed.pdu: await self._agent(pdu_table.table(cluster.power, number, uptime), community)
                for number, feed in enumerate(cluster.wiring.feeds)}  # fmt: skip
        switches = {name: await self._agent(cluster.switches.table(number), community)
                    for number, name in enumerate(cluster.switches.names)}  # fmt: skip
        context, fingerprint = certificate(self._directory)
        loop = asyncio.get_running_loop()
        ports = []
        for number, node in enumerate(cluster.plan.nodes):
            hang = cluster.fault("bmc-hang", number)

            def body(path: str, number: int = number, name: str = node.name) -> Mapping[str, Any] | None:
                now()
                return bmc_tree.body(path, number, name, cluster.power, cluster.simulator)

            def hung(start: float | None = hang) -> bool:
                return start is not None and cluster.simulator.seconds >= start

            bmc = Bmc(BMC_USER, password, body, partial(cluster.power.dark, number), hung)
            self.bmcs.append(bmc)
            server = await loop.create_server(partial(Connection, bmc), HOST, 0, ssl=context, backlog=8)
            self._servers.append(server)
            ports.append(server.sockets[0].getsockname()[1])
        return {"pdus": pdus, "switches": switches, "bmcs": ports, "fingerprint": fingerprint}

    def cut(self) -> None:
        """Let the BMCs go that have no power any more: from now on nothing listens there."""
        for bmc, server in zip(self.bmcs, self._servers, strict=True):
            if server.is_serving() and bmc.dark():
                server.close()
                for connection in list(bmc.connections):
                    connection.abort()

    async def _agent(self, values: Mapping[Oid, Value], community: bytes) -> int:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: SnmpAgent(values, community, self._demo.now), local_addr=(HOST, 0))
        self._datagrams.append(transport)
        port: int = transport.get_extra_info("sockname")[1]
        return port

    def close(self) -> None:
        """End all of them."""
        for transport in self._datagrams:
            transport.close()
        for server in self._servers:
            server.close()


def secret(path: Path) -> str:
    """Make a secret and keep it in *path*, which only its owner can read."""
    made = secrets.token_urlsafe(18)
    path.touch(0o600)
    path.write_text(made + "\n", encoding="ascii")
    return made
