"""The devices that the configuration names: PDUs, BMCs, switches and the fabric, with how each is asked."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, TypeVar

from clustertop.config_read import dotted, nearest
from clustertop.hosts import NotationError, Target, expand
from clustertop.places import Device, FabricHost, SshSwitch
from clustertop.sources.secret import Secret, SecretError
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from clustertop.config import ConfigError, Loaded
    from clustertop.config_site import Bmc, Pdu, Switch
    from clustertop.sources.snmp_target import SnmpTarget
    from clustertop.sources.tls import Tls

_HOST = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,252}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?")
_HOLE = re.compile(r"\{([^{}]*)\}")
_SNMP = ("version", "community", "auth_key", "auth_protocol", "privacy_key", "privacy_protocol", "context",
         "timeout_seconds", "retries")
_TLS = ("ca_file", "fingerprint", "insecure")
_REDFISH = ("password", "basic", *_TLS)
_IPMI = ("cipher", "privilege")
_MAX_NAME = 80
USUAL_PORTS = {"snmp": 161, "redfish": 443, "ipmi": 623, "ssh": 22}

Entry = TypeVar("Entry")


class Secrets:
    """The secrets of a configuration: each made once, looked at without being fetched."""

    def __init__(self, loaded: Loaded, *, strict: bool) -> None:
        """Refuse a secret that cannot be had where *strict*; else it is a note, and what needs it says so itself."""
        self._loaded = loaded
        self._strict = strict
        self._made: dict[str, Secret] = {}
        self.notes: list[str] = []

    def at(self, key: str, spec: str) -> Secret | None:
        """The secret at *key*; None where *spec* is empty. Raises ConfigError, which never holds the secret."""
        if not spec:
            return None
        kind, _, place = spec.partition(":")
        if kind == "file" and place.strip():
            spec = f"file:{self._loaded.beside(place)}"
        if spec not in self._made:
            try:
                secret = Secret.from_spec(spec)
            except SecretError as error:
                raise self._loaded.error(key, f"is not right: {error}") from None
            self._made[spec] = secret
            try:
                secret.check()
            except SecretError as error:
                if self._strict:
                    raise self._loaded.error(key, f"cannot be used: {error}") from None
                self.notes.append(f"{key} cannot be used: {error}")
        return self._made[spec]


def expanded(loaded: Loaded, section: str, entries: Mapping[str, Entry]) -> Iterator[tuple[str, str, Entry]]:
    """Yield the key, the name and the table of each thing of *section*, folded names written out.

    Raises:
        ConfigError: a name is not right, or is there twice.
    """
    seen: dict[str, str] = {}
    for written, entry in entries.items():
        key = dotted(section, written)
        names = [written]
        if "[" in written or "," in written:
            try:
                names = [target.host for target in expand(written)]
            except NotationError as error:
                raise loaded.error(key, f"is not right: {error}") from None
        for name in names:
            if not name.strip() or clean(name, _MAX_NAME) != name or name in {"fleet", "fabric"}:
                raise loaded.error(key, f"is no name that can be shown; use another, of at most {_MAX_NAME} characters")
            if name in seen:
                raise loaded.error(key, f"has {name}, which {seen[name]} has as well; keep it in one")
            seen[name] = key
            yield key, name, entry


def filled(loaded: Loaded, key: str, text: str, name: str, word: str = "name") -> str:
    """Return *text* with ``{name}`` (or another *word*) and ``{1}``, ``{2}`` … (the numbers in the name) filled in.

    ``{1:d}`` is the number without zeros before it, as an address has it.

    Raises:
        ConfigError: it has another word in braces.
    """
    numbers = re.findall("[0-9]+", name)
    known: dict[str, str] = {word: name, "name": name}
    known |= {str(place): number for place, number in enumerate(numbers, 1)}

    def fill(match: re.Match[str]) -> str:
        wanted: str = match[1]
        plain = wanted.endswith(":d") and wanted[:-2].isdecimal()
        if plain and wanted[:-2] in known:
            return str(int(known[wanted[:-2]]))
        if wanted not in known:
            words = ", ".join(f"{{{one}}}" for one in known)
            raise loaded.error(key, f"has {{{clean(wanted, 40)}}}; of {name} there are {words}")
        return known[wanted]

    return _HOLE.sub(fill, text)


def shown(host: str, port: int, usual: int) -> str:
    """Host and port as an operator reads them."""
    if port == usual:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Devices:
    """Makes devices of the configuration's tables."""

    def __init__(self, loaded: Loaded, secrets: Secrets) -> None:
        """Fetch nothing and ask nobody."""
        self._loaded = loaded
        self._secrets = secrets
        self._tls: dict[tuple[str, str, bool], Tls] = {}
        self.keys: dict[tuple[str, str], str] = {}
        """Where PDUs and switches are configured, by kind and name."""

    def pdus(self) -> dict[str, Device]:
        """Every PDU by name. Raises ConfigError."""
        found: dict[str, Device] = {}
        for key, name, entry in expanded(self._loaded, "pdus", self._loaded.config.pdus):
            host = self._host(f"{key}.host", filled(self._loaded, f"{key}.host", entry.host or name, name))
            self._shared(key, entry.host, name)
            if entry.over == "snmp":
                self._foreign(key, entry, _REDFISH, 'over = "redfish"')
                profile = self._profile(key, entry.profile)
                access: object = self._snmp(key, entry, host)
            else:
                profile = ""
                self._foreign(key, entry, (*_SNMP, "profile"), 'over = "snmp"')
                access = self._redfish(key, entry, host)
            port = entry.port or USUAL_PORTS[entry.over]
            self.keys["pdu", name] = key
            found[name] = Device(
                name, "pdu", access, shown(host, port, USUAL_PORTS[entry.over]),
                rack=self._text(key, "rack", entry, name), interval_seconds=entry.interval_seconds,
                options={"over": entry.over, "profile": profile})
        return found

    def switches(self) -> dict[str, Device]:
        """Every switch by name. Raises ConfigError."""
        found: dict[str, Device] = {}
        for key, name, entry in expanded(self._loaded, "switches", self._loaded.config.switches):
            host = self._host(f"{key}.host", filled(self._loaded, f"{key}.host", entry.host or name, name))
            self._shared(key, entry.host, name)
            if both := sorted({*entry.uplinks} & {*entry.host_ports}):
                raise self._loaded.error(f"{key}.host_ports", f"has {_quoted(both[0])}, as uplinks has; keep it in one")
            for ports in ("uplinks", "host_ports"):
                if any(not one.strip() or not one.isprintable() for one in getattr(entry, ports)):
                    raise self._loaded.error(f"{key}.{ports}", 'has an empty pattern; write ports as "Ethernet4*"')
            if entry.over == "ssh":
                self._foreign(key, entry, _SNMP, 'over = "snmp"')
                access: object = SshSwitch(host, entry.user, entry.port)
            else:
                access = self._snmp(key, entry, host)
            port = entry.port or USUAL_PORTS[entry.over]
            self.keys["switch", name] = key
            found[name] = Device(
                name, "switch", access, shown(host, port, USUAL_PORTS[entry.over]),
                rack=self._text(key, "rack", entry, name), leaf=self._text(key, "leaf", entry, name) or name,
                interval_seconds=entry.interval_seconds,
                options={"over": entry.over, "uplinks": entry.uplinks, "host_ports": entry.host_ports})
        return found

    def bmc(self, key: str, node: str, rack: str, entry: Bmc, *, alone: bool) -> Device | None:
        """The BMC of *node* in *rack*, which is the only one of its table where *alone*; None: its probe asks it.

        Raises:
            ConfigError: the table is not right.
        """
        if entry.over == "in-band":
            others = tuple(one for one in entry.__struct_fields__ if one not in {"over", "interval_seconds"})
            self._foreign(key, entry, others, "BMCs that are asked over the network")
            return None
        host = self._host(f"{key}.host", filled(self._loaded, f"{key}.host", entry.host, node, "node"))
        if not alone and not _HOLE.search(entry.host):
            raise self._loaded.error(f"{key}.host", 'is one BMC for several nodes; write "{node}" or "{1}" in it')
        port = entry.port or USUAL_PORTS[entry.over]
        if entry.over == "redfish":
            self._foreign(key, entry, _IPMI, 'over = "ipmi"')
            access: object = self._redfish(key, entry, host)
        else:
            self._foreign(key, entry, ("basic", *_TLS), 'over = "redfish"')
            access = self._ipmi(key, entry, host, port)
        return Device(f"{node}-bmc", "bmc", access, shown(host, port, USUAL_PORTS[entry.over]), of=node, rack=rack,
                      interval_seconds=entry.interval_seconds, options={"over": entry.over})

    def fabric(self, nodes: Mapping[str, str]) -> Device | None:
        """The fabric, where one is asked; *nodes*: names of the watched ones, by how they may be written.

        Raises:
            ConfigError: its host is not one host.
        """
        entry = self._loaded.config.fabric
        if not entry.host:
            return None
        if ":" in entry.host.rpartition("@")[0]:
            raise self._loaded.error("fabric.host", 'has a password in it, or a colon in its user; write "user@host"')
        try:
            targets = expand(entry.host)
        except NotationError as error:
            raise self._loaded.error("fabric.host", f"is not right: {error}") from None
        if len(targets) != 1:
            raise self._loaded.error("fabric.host", f"names {len(targets)} hosts; one asks for the whole fabric")
        if entry.ca and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", entry.ca):
            raise self._loaded.error("fabric.ca", f'must be a name as "mlx5_0", not {_quoted(entry.ca)}')
        target: Target = targets[0]
        node = nodes.get(target.spec) or nodes.get(target.host, "")
        access = FabricHost(node, target.host, target.user, target.port, entry.ca, entry.ca_port, entry.timeout_seconds)
        return Device("fabric", "fabric", access, target.host if node else shown(target.host, target.port or 22, 22),
                      interval_seconds=entry.interval_seconds)

    def _text(self, key: str, field: str, entry: Pdu | Switch, name: str) -> str:
        text: str = getattr(entry, field)
        return filled(self._loaded, f"{key}.{field}", text, name)

    def _shared(self, key: str, host: str, name: str) -> None:
        if host and dotted(key.partition(".")[0], name) != key and not _HOLE.search(host):
            raise self._loaded.error(f"{key}.host", 'is one host for several names; write "{name}" or "{1}" in it')

    def _host(self, key: str, host: str) -> str:
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if _HOST.fullmatch(host):
            if host.replace(".", "").isdecimal() or ":" in host:
                try:
                    ipaddress.ip_address(host)
                except ValueError:
                    raise self._loaded.error(key, f"is no address: {_quoted(host)}; a number without zeros before it "
                                                  'is written "{1:d}"') from None
            return host
        if "@" in host:
            raise self._loaded.error(key, "must be a host name or address alone; a user goes to user, a secret nowhere")
        raise self._loaded.error(key, f"must be a host name or address, not {_quoted(host)}; a port goes to port")

    def _foreign(self, key: str, entry: Pdu | Bmc | Switch, fields: Iterable[str], whose: str) -> None:
        """Refuse what says nothing here: it is a misunderstanding that would go unseen."""
        usual = type(entry)()
        for field in fields:
            if getattr(entry, field) != getattr(usual, field):
                raise self._loaded.error(f"{key}.{field}", f"is for {whose}; here it says nothing, so take it out")

    def _profile(self, key: str, profile: str) -> str:
        """What ``sources.profile.load`` is to be given. Raises ConfigError."""
        if not profile:
            return ""
        from clustertop.sources.profile import ProfileError, load, profiles

        if not profile.endswith(".toml"):
            if profile not in profiles():
                raise self._loaded.error(f"{key}.profile", f"is no profile; {nearest(profile, profiles())}")
            return profile
        path = str(self._loaded.beside(profile))
        try:
            load(path)
        except ProfileError as error:
            raise self._loaded.error(f"{key}.profile", f"cannot be used: {error}") from None
        return path

    def _snmp(self, key: str, entry: Pdu | Switch, host: str) -> SnmpTarget:
        from clustertop.sources.snmp_target import SnmpTarget

        version = entry.version or ("3" if entry.user else "2c")
        if version not in {"1", "2c", "3"}:
            raise self._loaded.error(f"{key}.version", f'must be "1", "2c" or "3", not {_quoted(version)}')
        if version == "3":
            if not entry.user:
                raise self._loaded.error(f"{key}.user", "is missing; SNMP 3 asks for a user")
            self._foreign(key, entry, ("community",), "SNMP 1 and 2c")
            if entry.privacy_key and not entry.auth_key:
                raise self._loaded.error(f"{key}.privacy_key", "needs auth_key: SNMP 3 has no privacy without it")
            self._protocols(key, entry)
        else:
            self._foreign(key, entry, ("user", "auth_key", "auth_protocol", "privacy_key", "privacy_protocol",
                                       "context"), "SNMP 3")
        secret = {field: self._secrets.at(f"{key}.{field}", getattr(entry, field))
                  for field in ("community", "auth_key", "privacy_key")}
        return SnmpTarget(host, version, secret["community"], entry.user, secret["auth_key"], secret["privacy_key"],
                          entry.auth_protocol.upper(), entry.privacy_protocol.upper(), entry.context,
                          entry.port or USUAL_PORTS["snmp"], entry.timeout_seconds, entry.retries)

    def _protocols(self, key: str, entry: Pdu | Switch) -> None:
        from clustertop.sources.snmp_message import AUTH_PROTOCOLS, PRIVACY_PROTOCOLS

        for field, known in (("auth_protocol", AUTH_PROTOCOLS), ("privacy_protocol", PRIVACY_PROTOCOLS)):
            word = getattr(entry, field)
            if word.upper() not in known:
                raise self._loaded.error(f"{key}.{field}", f"must be one of {', '.join(known)}, not {_quoted(word)}")

    def _redfish(self, key: str, entry: Pdu | Bmc, host: str) -> object:
        from clustertop.sources.redfish import RedfishTarget

        address = f"[{host}]" if ":" in host else host
        return RedfishTarget(
            f"https://{address}:{entry.port}" if entry.port else f"https://{address}",
            entry.user, self._login(key, entry), entry.basic, self._checked(key, entry))

    def _ipmi(self, key: str, entry: Bmc, host: str, port: int) -> object:
        from clustertop.sources.ipmi import IpmiTarget

        if not re.fullmatch(r"[0-9]{0,2}", entry.cipher):
            raise self._loaded.error(f"{key}.cipher", f'must be a number as "17", not {_quoted(entry.cipher)}')
        privileges = ("CALLBACK", "USER", "OPERATOR", "ADMINISTRATOR")
        if entry.privilege not in privileges:
            raise self._loaded.error(f"{key}.privilege",
                                     f"must be one of {', '.join(privileges)}, not {_quoted(entry.privilege)}")
        return IpmiTarget(host, entry.user, self._login(key, entry), port, entry.privilege, entry.cipher)

    def _login(self, key: str, entry: Pdu | Bmc) -> Secret:
        """The password, where user and password are there. Raises ConfigError."""
        if not entry.user:
            raise self._loaded.error(f"{key}.user", 'is missing; write user, and password = "env:NAME"')
        secret = self._secrets.at(f"{key}.password", entry.password)
        if secret is None:
            raise self._loaded.error(f"{key}.password", 'is missing; write "env:NAME", "file:PATH" or "command:..."')
        return secret

    def _checked(self, key: str, entry: Pdu | Bmc) -> Tls:
        """How the certificate is checked. Raises ConfigError."""
        from clustertop.sources.tls import Tls, TlsError, context

        given = [field for field in _TLS if getattr(entry, field)]
        if len(given) > 1:
            raise self._loaded.error(f"{key}.{given[1]}", f"cannot stand beside {given[0]}; keep one of them")
        file = str(self._loaded.beside(entry.ca_file)) if entry.ca_file else ""
        wanted = (file, entry.fingerprint, entry.insecure)
        if wanted not in self._tls:
            tls = Tls(*wanted)
            if given and not entry.insecure:
                try:
                    context(tls)
                except TlsError as error:
                    raise self._refused(f"{key}.{given[0]}", str(error)) from None
            self._tls[wanted] = tls
        return self._tls[wanted]

    def _refused(self, key: str, reason: str) -> ConfigError:
        return self._loaded.error(key, f"is not right: {reason}")


def _quoted(text: str) -> str:
    return f'"{clean(text, 60)}"'
