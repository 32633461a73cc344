"""What the configuration says of everything beside the nodes: feeds, PDUs, BMCs, switches, the fabric, NCCL, sockets.

The tables, their limits, and the refusal of secrets that are written literally. What they mean together with the
inventory is worked out by :mod:`clustertop.site`.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from clustertop.config_read import dotted

if TYPE_CHECKING:
    from clustertop.config import Loaded
    from clustertop.config_read import Place

LEAST_SECONDS = 10.0
"""No device is asked more often: BMCs, PDUs and switches have weak processors."""
MOST_AMPS = 6300.0
"""The largest breaker there is on a low-voltage board."""
LEAST_VOLTS, MOST_VOLTS = 40.0, 700.0
"""From a 48 V busbar to 690 V line to line."""
MOST_STAR_VOLTS = 350.0
"""Line to neutral; 347 V is the most that is in use. More is a line-to-line figure in the wrong place."""
_NOT_LITERAL = "is written as env:NAME, file:PATH or command:PROGRAM ARGUMENTS, never as the secret itself"


def _text(description: str) -> Any:
    return Meta(description=description)


def _number(description: str, least: float, most: float) -> Any:
    return Meta(ge=least, le=most, description=description)


def _secret(description: str) -> Any:
    return Meta(description=f'{description}: "env:NAME", "file:PATH" or "command:PROGRAM ARGUMENTS".',
                extra={"secret": True})


class Feed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One breaker and what hangs on it. "{1}" in a value is the first number of the feed's name ("{1:d}": no zeros)."""

    rating_amps: Annotated[float | None, _text("What the breaker may carry; not given: as the PDU says.")] = None
    volts: Annotated[
        float | None, _text("Nominal volts: line to neutral for one phase and for star, line to line for delta.")
    ] = None
    phases: Annotated[int, _text("1 or 3.")] = 1
    wiring: Annotated[str, _text('Of three phases: "star" (loads to neutral) or "delta" (loads between lines).')] = (
        "star"
    )
    pair: Annotated[str, _text("The other feed of a redundant pair; one of the two may say it.")] = ""
    rack: Annotated[str, _text("The rack that it is in. Empty: that of its PDU.")] = ""
    pdu: Annotated[str, _text("Name of the [pdus] table that measures it. Empty: none, it is estimated.")] = ""
    part: Annotated[
        str, _text('Which part of the PDU: "inlet 1", "bank 2", "phase L1", "branch B3" or "outlet 7"; with '
                   '"UNIT: " before it where the PDU speaks for several. Empty: its inlet.')
    ] = ""
    nodes: Annotated[str, _text('Nodes with a supply here, for example "gpu[001-016]" or "@rack:r1".')] = ""
    psus: Annotated[
        tuple[str, ...], _text("Which supplies of these nodes hang here, as the BMC calls them. Empty: not said.")
    ] = ()
    outlets_name_nodes: Annotated[bool, _text("The names of the PDU's outlets say which nodes hang here as well.")] = (
        False
    )


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a PDU or a switch is asked."""

    host: Annotated[str, _text('Host name or address; "{name}" stands for the name. Empty: the name itself.')] = ""
    port: Annotated[int, _number("Port. 0: the usual one.", 0, 65535)] = 0
    version: Annotated[str, _text('SNMP: "1", "2c" or "3". Empty: 3 where a user is given, else 2c.')] = ""
    community: Annotated[str, _secret("SNMP 1 and 2c; not given: public. Where the community is")] = ""
    user: Annotated[str, _text("Login name (SNMP 3, Redfish, ssh).")] = ""
    auth_key: Annotated[str, _secret("SNMP 3: where the authentication key is")] = ""
    auth_protocol: Annotated[str, _text("SNMP 3: MD5, SHA, SHA224, SHA256, SHA384 or SHA512.")] = "SHA256"
    privacy_key: Annotated[str, _secret("SNMP 3: where the privacy key is")] = ""
    privacy_protocol: Annotated[str, _text("SNMP 3: DES, 3DES, AES, AES192 or AES256.")] = "AES"
    context: Annotated[str, _text("SNMP 3: the context.")] = ""
    timeout_seconds: Annotated[float, _number("SNMP: until a request is sent again.", 0.1, 60)] = 2.0
    retries: Annotated[int, _number("SNMP: how often a request is sent again.", 0, 10)] = 2
    rack: Annotated[str, _text("The rack that it stands in.")] = ""


class Pdu(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A PDU (or a folded set of them), which is only read."""

    over: Annotated[str, _text('"snmp" or "redfish".')] = "snmp"
    profile: Annotated[
        str, _text("Device profile (`clustertop pdu-walk --profiles` lists them), or a file of your own: FILE.toml. "
                   "Empty: it is recognised.")
    ] = ""
    interval_seconds: Annotated[float, _number("Time between two readings.", LEAST_SECONDS, 3600)] = 10.0
    password: Annotated[str, _secret("Redfish: where the password is")] = ""
    basic: Annotated[bool, _text("Redfish: send the password with each request instead of holding a session.")] = False
    ca_file: Annotated[str, _text("Redfish: PEM file of the CAs that sign its certificate. Empty: the system's.")] = ""
    fingerprint: Annotated[str, _text("Redfish: SHA-256 of its certificate, instead of a CA.")] = ""
    insecure: Annotated[bool, _text("Redfish: accept any certificate. Whoever answers gets the password.")] = False


class Bmc(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The BMCs of a node or of a set of them, which are only read."""

    host: Annotated[
        str, _text('Host name or address; "{node}" stands for the node, "{1}" for its first number, "{1:d}" for that '
                   "without zeros before it.")
    ] = "{node}-bmc"
    over: Annotated[
        str, _text('"redfish"; "ipmi" (with ipmitool on this machine); "in-band": the node\'s probe asks its own BMC.')
    ] = "redfish"
    user: Annotated[str, _text("Login name.")] = ""
    password: Annotated[str, _secret("Where the password is")] = ""
    basic: Annotated[bool, _text("Redfish: send the password with each request instead of holding a session.")] = False
    port: Annotated[int, _number("Port. 0: the usual one (443, IPMI 623).", 0, 65535)] = 0
    ca_file: Annotated[str, _text("Redfish: PEM file of the CAs that sign the certificates. Empty: the system's.")] = ""
    fingerprint: Annotated[str, _text("Redfish: SHA-256 of the certificate, instead of a CA.")] = ""
    insecure: Annotated[bool, _text("Redfish: accept any certificate. Whoever answers gets the password.")] = False
    cipher: Annotated[str, _text("IPMI: cipher suite, a number. Empty: the best that both know.")] = ""
    privilege: Annotated[str, _text("IPMI: privilege to ask for. USER is enough to read.")] = "USER"
    interval_seconds: Annotated[
        float, _number("Time between two readings. BMCs are slow; a whole reading over IPMI may take 30 s.",
                       LEAST_SECONDS, 3600)
    ] = 60.0


class Switch(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A leaf switch (or a folded set of them), whose ports tell what goes through the spine. It is only read."""

    over: Annotated[str, _text('"snmp", or "ssh" for a switch that runs Linux.')] = "snmp"
    leaf: Annotated[str, _text('Name in [leaves] of the leaf that it is; "{name}" stands for the name.')] = "{name}"
    uplinks: Annotated[
        tuple[str, ...], _text('Ports towards the spine, as patterns: "Ethernet4[0-9]", "swp3?". Empty: as LLDP says.')
    ] = ()
    host_ports: Annotated[tuple[str, ...], _text("Ports towards nodes, as patterns. Empty: as LLDP says.")] = ()
    interval_seconds: Annotated[float, _number("Time between two readings.", LEAST_SECONDS, 3600)] = 30.0


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An InfiniBand fabric, asked from one host that may run ibnetdiscover and perfquery. Nothing is reset."""

    host: Annotated[
        str, _text('A node of the inventory, or another host to log in to: "ops@head1". Empty: none is asked.')
    ] = ""
    interval_seconds: Annotated[float, _number("Time between two readings.", LEAST_SECONDS, 3600)] = 60.0
    ca: Annotated[str, _text('Channel adapter to ask through, as "mlx5_0". Empty: the first one that is up.')] = ""
    ca_port: Annotated[int, _number("Port of the channel adapter. 0: the first one that is up.", 0, 255)] = 0
    timeout_seconds: Annotated[float, _number("Deadline of the walk over the fabric.", 5, 600)] = 60.0


class Nccl(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Logs that NCCL writes on the nodes (NCCL_DEBUG_FILE), for the rings and transports that jobs chose."""

    logs: Annotated[
        tuple[str, ...], _text('Files on the nodes, as "/var/log/nccl/*.log"; * and ? as in a shell. Empty: none.')
    ] = ()
    nodes: Annotated[str, _text('Nodes that have them, for example "@a100". Empty: all.')] = ""


class Sockets(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bytes and round trips of the nodes' TCP connections, by peer."""

    enabled: Annotated[bool, _text("Read them.")] = True
    interval_seconds: Annotated[float, _number("Time between two readings.", 2, 3600)] = 10.0


class Traffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What share of the traffic leaves its rack."""

    hostfile: Annotated[
        str, _text("A job's host file in the order of ranks, for the share that its ring is predicted to have; "
                   "relative to this file. Empty: none.")
    ] = ""


SITE_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "fabric": Fabric, "nccl": Nccl, "sockets": Sockets, "traffic": Traffic,
}
"""Tables with fixed keys."""
SITE_NAMED: dict[str, type[msgspec.Struct]] = {"feeds": Feed, "pdus": Pdu, "bmcs": Bmc, "switches": Switch}
"""Tables whose keys are names that the operator chooses."""


def secret_keys(struct: type[msgspec.Struct]) -> frozenset[str]:
    """Return which keys of *struct* name where a secret is."""
    return frozenset(
        name for name, hint in typing.get_type_hints(struct, include_extras=True).items()
        if any(isinstance(meta, Meta) and (meta.extra or {}).get("secret") for meta in typing.get_args(hint)))


def without_arguments(spec: str) -> str:
    """Return where a secret is, as it may be shown: a command's arguments may be half the secret."""
    kind, colon, rest = spec.partition(":")
    words = rest.split()
    return f"{kind}:{words[0]} ..." if colon and kind == "command" and len(words) > 1 else spec


def guard(place: Place, section: str, table: object) -> None:
    """Refuse a secret that is written literally in *table*, the tables of *section*, before a message can repeat it.

    Raises:
        ConfigError: it names the key, never the value.
    """
    from clustertop.sources.secret import Secret, SecretError

    struct = SITE_NAMED[section]
    secrets = secret_keys(struct)
    if not isinstance(table, dict):
        raise place.error(section, f"must be tables, each headed [{section}.NAME]")
    for name, entry in table.items():
        if not isinstance(entry, dict):
            message = f"must be a table, headed [{dotted(section, 'NAME')}]"
            if name in struct.__struct_fields__:
                message = f"stands in no table of its own; write it under [{section}.NAME]"
            raise place.error(dotted(section, name), message)
        for key in secrets & entry.keys():
            spec = entry[key]
            if spec == "":
                continue
            if not isinstance(spec, str):
                raise place.error(dotted(section, name, key), _NOT_LITERAL)
            try:
                Secret.from_spec(spec)
            except SecretError as error:
                known = spec.startswith(("env:", "file:", "command:"))
                raise place.error(dotted(section, name, key), f"is not right: {error}" if known else _NOT_LITERAL
                                  ) from None


def check(loaded: Loaded) -> None:
    """Refuse values that cannot be, each on its own. Raises ConfigError."""
    for name, feed in loaded.config.feeds.items():
        _check_feed(loaded, dotted("feeds", name), feed)
    for name, pdu in loaded.config.pdus.items():
        _one_of(loaded, f"{dotted('pdus', name)}.over", pdu.over, ("snmp", "redfish"))
    for name, bmc in loaded.config.bmcs.items():
        _one_of(loaded, f"{dotted('bmcs', name)}.over", bmc.over, ("redfish", "ipmi", "in-band"))
    for name, switch in loaded.config.switches.items():
        _one_of(loaded, f"{dotted('switches', name)}.over", switch.over, ("snmp", "ssh"))
    for path in loaded.config.nccl.logs:
        if not path.startswith("/") or not path.isprintable() or ".." in path.split("/"):
            raise loaded.error("nccl.logs", f'must be absolute paths as "/var/log/nccl/*.log", not {_quoted(path)}; '
                                            "~ and .. are not followed")


def _check_feed(loaded: Loaded, key: str, feed: Feed) -> None:
    if feed.rating_amps is not None and not 0 < feed.rating_amps <= MOST_AMPS:
        raise loaded.error(f"{key}.rating_amps",
                           f"must be more than 0 and at most {MOST_AMPS:g} A, not {feed.rating_amps:g}")
    if feed.phases not in (1, 3):
        raise loaded.error(f"{key}.phases", f"must be 1 or 3, not {feed.phases}")
    _one_of(loaded, f"{key}.wiring", feed.wiring, ("star", "delta"))
    if feed.volts is not None and not LEAST_VOLTS <= feed.volts <= MOST_VOLTS:
        raise loaded.error(f"{key}.volts", f"must be from {LEAST_VOLTS:g} to {MOST_VOLTS:g} V, not {feed.volts:g}")
    if feed.volts is not None and feed.phases == 3 and feed.wiring == "star" and feed.volts > MOST_STAR_VOLTS:
        neutral = feed.volts / 3**0.5
        raise loaded.error(f"{key}.volts", f"is line to neutral in star wiring, so {feed.volts:g} V is not plausible; "
                                           f'write {neutral:.0f}, or wiring = "delta"')
    if any(not psu.strip() for psu in feed.psus) or len(set(feed.psus)) != len(feed.psus):
        raise loaded.error(f"{key}.psus", "has a supply that is empty or named twice; name each once")
    if feed.psus and not feed.nodes:
        raise loaded.error(f"{key}.psus", "says which supplies of nodes, but there are no nodes; write nodes beside it")
    if feed.outlets_name_nodes and not feed.pdu:
        raise loaded.error(f"{key}.outlets_name_nodes", "needs a PDU whose outlets are read; write pdu beside it")
    if feed.part and not feed.pdu:
        raise loaded.error(f"{key}.part", "is a part of a PDU, but there is no pdu; write pdu beside it")
    if not feed.pdu and not feed.nodes:
        raise loaded.error(key, "is measured by nothing and no node hangs on it; write pdu, nodes, or both")


def _one_of(loaded: Loaded, key: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise loaded.error(key, f"must be {' or '.join(known)}, not {_quoted(word)}")


def _quoted(text: str) -> str:
    from clustertop.text import clean

    return f'"{clean(text, 60)}"'
