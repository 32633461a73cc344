"""What is watched beside the nodes: feeds, PDUs, BMCs, leaf switches, the fabric. Words only.

A *feed* is one breaker and what hangs on it. The others are *devices*: each is asked by itself, has a link state of its
own, and what it says is kept under its own name (of a BMC: under its node's).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

DeviceKind = Literal["pdu", "bmc", "switch", "fabric"]
Wiring = Literal["star", "delta"]
DEVICE_PLURAL: Mapping[str, str] = {"pdu": "PDUs", "bmc": "BMCs", "switch": "switches", "fabric": "fabrics"}
DEVICE_WORD: Mapping[str, str] = {"pdu": "PDU", "bmc": "BMC", "switch": "switch", "fabric": "fabric"}


@dataclass(frozen=True, slots=True)
class Supply:
    """One node's end of a feed."""

    node: str
    psus: tuple[str, ...] = ()
    """Names of the node's power supplies on this feed, as its BMC calls them; empty: not said."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One breaker: what it may carry, where its current is read, and what hangs on it."""

    name: str
    rating_amps: float | None = None
    """Of the breaker; None: not configured, then the device's own."""
    volts: float | None = None
    """Nominal; line to neutral for star and single phase, line to line for delta."""
    phases: int = 1
    wiring: Wiring = "star"
    pair: str = ""
    """The other feed of a redundant pair; empty: none."""
    rack: str = ""
    pdu: str = ""
    """Name of the device that measures it; empty: nothing does, its current is estimated."""
    part: str = ""
    """Which part of the PDU: ``inlet 1``, ``bank 2``, ``phase L1``, ``branch B3``; empty: its inlet."""
    supplies: tuple[Supply, ...] = ()
    """Every node that the configuration hangs here, also those that are not watched: they carry current as well."""
    outlets_name_nodes: bool = False
    """The names of the PDU's outlets say which nodes hang here as well; known when the PDU was read."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes with a supply here, in order, each once."""
        return tuple(dict.fromkeys(one.node for one in self.supplies))


@dataclass(frozen=True, slots=True)
class Device:
    """Something that is asked by itself."""

    name: str
    kind: DeviceKind
    access: object
    """How it is asked: ``sources.snmp_target.SnmpTarget``, ``sources.redfish.RedfishTarget``,
    ``sources.ipmi.IpmiTarget``, :class:`SshSwitch`, :class:`FabricHost`, or what else ``poll`` knows; holds secrets
    only as ``sources.secret.Secret``. None: of a recording."""
    where: str = ""
    """Host and port as an operator reads them; no user, no secret."""
    of: str = ""
    """Of a BMC: its node."""
    rack: str = ""
    leaf: str = ""
    """Of a switch: the leaf that it is."""
    interval_seconds: float = 10.0
    options: Mapping[str, object] = field(default_factory=dict)
    """What else the config says of it (a PDU's profile, a switch's uplinks); no secrets."""


@dataclass(frozen=True, slots=True)
class SshSwitch:
    """A switch that runs Linux: it is read by a probe as a node is, of which only the ports count."""

    host: str
    """What ssh would be given."""
    user: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class FabricHost:
    """The host that asks an InfiniBand fabric, by ``ibnetdiscover`` and ``perfquery``."""

    node: str = ""
    """The watched node that it is, whose connection is used; empty: a host of its own, as below."""
    host: str = ""
    user: str = ""
    port: int = 0
    """Of ssh."""
    ca: str = ""
    """Channel adapter (``-C``); empty: the first that is up."""
    ca_port: int = 0
    """Its port (``-P``); 0: the first that is up."""
    timeout_seconds: float = 60.0
    """Deadline of the walk over the fabric."""


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that is watched beside the nodes."""

    feeds: tuple[Feed, ...] = ()
    devices: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences for the operator: both supplies of a node on one feed, a feed that nothing measures."""
    in_band: frozenset[str] = frozenset()
    """Names of the nodes whose probes ask their own BMC."""
    in_band_seconds: Mapping[str, float] = field(default_factory=dict)
    """By their names: the time between two readings."""
    nccl_logs: tuple[str, ...] = ()
    """Paths and patterns of NCCL's logs on the nodes."""
    nccl_nodes: frozenset[str] = frozenset()
    """Names of the nodes that have them."""
    sockets_seconds: float | None = None
    """Between two readings of a node's TCP connections; None: they are not read."""
    order: tuple[str, ...] = ()
    """A job's nodes in the order of ranks, as its host file names them; empty: none is configured."""

    def __bool__(self) -> bool:
        return bool(self.feeds or self.devices or self.in_band)


NO_SITE = Site()
"""Nothing but nodes."""
