"""InfiniBand: what ``ibnetdiscover`` prints, in full or with ``-p``, and files for ibsim. Text to facts, pure.

In full, a switch's or adapter's header is followed by a line per cable; with ``-p`` a line is a port. GUIDs lose their
leading zeros in some places and not in others, so they are compared as numbers. A host is known by its node description
(``gpu001 mlx5_0``, set by rdma-ndd); where that is the adapter's model only, a list of GUIDs can name it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertop.sources.facts import Fact, Reading, name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HEADER = re.compile(r'(Switch|Ca|Hca|Rt|Router)\s+(\d{1,3})\s+"([^"]+)"\s*(?:#\s*"([^"]*)"(.*))?$', re.IGNORECASE)
_CABLE = re.compile(
    r'\[(\d{1,3})\](?:\[[^\]]*\])?(?:\(([0-9a-fA-F]+)\))?\s+"([^"]+)"\s*\[(\d{1,3})\](?:\[[^\]]*\])?'
    r"(?:\(([0-9a-fA-F]+)\))?(?:\[[^\]]*\])?\s*(?:#(.*))?$"
)
_PORT_LINE = re.compile(
    r"(CA|SW|RT)\s+(\d+)\s+(\d+)\s+(0x[0-9a-fA-F]+)\s+(\S+)\s+(\S+)\s+"
    r"(?:-\s+(CA|SW|RT)\s+(\d+)\s+(\d+)\s+(0x[0-9a-fA-F]+)\s+\(\s*'(.*)' - '(.*)'\s*\)|'(.*)')\s*$"
)
_GUID_LINE = re.compile(r"\w*guid=0x([0-9a-fA-F]+)")
_SPEED = re.compile(r"(\d+x)\s?(\S+)")
_LID = re.compile(r"\blid (\d+)")
_QUOTED = re.compile(r'"([^"]*)"')
_ID_GUID = re.compile(r"[SHR]-([0-9a-fA-F]{1,16})")
_HOST_WORD = re.compile(r"[A-Za-z0-9_][\w.-]{0,252}")
_DEVICE_WORD = re.compile(r"HCA-\d+|(?:mlx\d|hfi\d|ib|roce|bnxt|irdma|rdma|qib|opa|hns)[\w-]*", re.IGNORECASE)
_MANAGED = re.compile(r"MF0;([^:]+):[^/]*(?:/(.+))?")
_NO_NAME = frozenset({"localhost", "localhost.localdomain", "(none)", "none"})
SHARP = "Aggregation Node"
"""In a description: the switch's own reduction engine, which is no host."""


@dataclass(slots=True)
class Device:
    """A switch or an adapter of the fabric."""

    id: str
    """As the text has it: ``S-...`` and ``H-...`` with a GUID, or a name in ibsim's files."""
    kind: str = ""
    """``switch``, ``host`` or ``router``."""
    description: str = ""
    lid: int | None = None
    """Of the switch; of the adapter's first port that is known."""
    guids: set[int] = field(default_factory=set)
    """Of the device and its ports."""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Cable:
    """One end of a link between two ports."""

    device: str
    port: int
    peer: str
    peer_port: int
    width: str = ""
    """``4x``."""
    speed: str = ""
    """``NDR``; ``???`` is as printed: not known."""
    line: int = 0


@dataclass(slots=True)
class Fabric:
    """Everything that one look at a fabric found."""

    devices: dict[str, Device] = field(default_factory=dict)
    cables: dict[tuple[str, int], Cable] = field(default_factory=dict)
    """By device and port; a link that both ends print is in it twice."""
    unlinked: dict[tuple[str, int], str] = field(default_factory=dict)
    """Ports without a partner (only ``-p`` prints them) and the speed that stands there."""
    strange: list[int] = field(default_factory=list)
    """Lines that are nothing of the kind."""

    def names(self) -> dict[str, str]:
        """Return device to name: of switches what their description says, made unique where several say the same."""
        switches = [one for one in self.devices.values() if one.kind != "host"]
        said = {one.id: switch_name(one.description) or name(one.id) for one in switches}
        count = Counter(said.values())
        found = {}
        for device, text in said.items():
            guid = next(iter(self.devices[device].guids), None)
            found[device] = f"{text} {guid:016x}" if count[text] > 1 and guid is not None else text
        return found

    def pieces(self) -> list[set[str]]:
        """Return the devices that reach each other, largest piece first; more than one: the fabric is in pieces."""
        near: dict[str, set[str]] = {one: set() for one in self.devices}
        for cable in self.cables.values():
            near[cable.device].add(cable.peer)
            near[cable.peer].add(cable.device)
        found: list[set[str]] = []
        left = set(near)
        while left:
            piece, edge = set[str](), {left.pop()}
            while edge:
                piece |= edge
                edge = {other for one in edge for other in near[one]} - piece
            left -= piece
            found.append(piece)
        return sorted(found, key=len, reverse=True)

    def add(self, device: str, kind: str, description: str = "", lid: int | None = None, line: int = 0) -> Device:
        """Return the device of that id, with what is newly known of it."""
        one = self.devices.setdefault(device, Device(device))
        one.kind = one.kind or kind
        one.description = one.description or description
        one.lid = one.lid if one.lid is not None else lid
        one.line = one.line or line
        if match := _ID_GUID.fullmatch(device):
            one.guids.add(int(match[1], 16))
        return one


def parse(text: str) -> Fabric:
    """Return the fabric of ``ibnetdiscover`` output; a text that is cut short gives what it has."""
    fabric = Fabric()
    here: Device | None = None
    for number, written in enumerate(text.splitlines(), 1):
        line = written.strip()
        if not line or line.startswith("#"):
            continue
        if match := _PORT_LINE.match(line):
            _port_line(fabric, match, number)
        elif match := _HEADER.match(line):
            kind = {"s": "switch", "c": "host", "h": "host"}.get(match[1][0].lower(), "router")
            here = fabric.add(match[3], kind, name(match[4] or ""), _lid(match[5]), number)
        elif (match := _CABLE.match(line)) and here is not None:
            _cable(fabric, here, match, number)
        elif _GUID_LINE.match(line) or re.match(r"(?:vendid|devid|Chassis)\b|ib\w+: ", line):
            continue
        else:
            fabric.strange.append(number)
    return fabric


def _lid(text: str | None) -> int | None:
    match = _LID.search(text or "")
    return int(match[1]) if match and int(match[1]) else None


def _cable(fabric: Fabric, here: Device, match: re.Match[str], number: int) -> None:
    port, own_guid, peer, peer_port, peer_guid, comment = match.groups()
    comment = comment or ""
    quoted = _QUOTED.search(comment)
    before, after = (comment[: quoted.start()], comment[quoted.end() :]) if quoted else ("", comment)
    kind = {"S": "switch", "H": "host", "R": "router"}.get(peer[0], "") if _ID_GUID.fullmatch(peer) else ""
    other = fabric.add(peer, kind, name(quoted[1]) if quoted else "", _lid(after))
    if here.kind == "host":
        here.lid = here.lid if here.lid is not None else _lid(before)
        if own_guid:
            here.guids.add(int(own_guid, 16))
    if peer_guid:
        other.guids.add(int(peer_guid, 16))
    speed = _SPEED.search(after)
    width, data_rate = speed.groups() if speed else ("", "")
    fabric.cables[here.id, int(port)] = Cable(here.id, int(port), other.id, int(peer_port), width, data_rate, number)


def _port_line(fabric: Fabric, match: re.Match[str], number: int) -> None:
    kinds = {"CA": "host", "SW": "switch", "RT": "router"}
    kind, lid, port, guid, width, speed, *far, mine, other, alone = match.groups()
    one = fabric.add(_id(kind, guid), kinds[kind], name(alone if alone is not None else mine), int(lid) or None, number)
    one.guids.add(int(guid, 16))
    if alone is not None:
        fabric.unlinked[one.id, int(port)] = f"{width} {speed}"
        return
    peer = fabric.add(_id(far[0], far[3]), kinds[far[0]], name(other), int(far[1]) or None)
    peer.guids.add(int(far[3], 16))
    fabric.cables[one.id, int(port)] = Cable(one.id, int(port), peer.id, int(far[2]), width, speed, number)


def _id(kind: str, guid: str) -> str:
    return f"{'H' if kind == 'CA' else kind[0]}-{int(guid, 16):016x}"


def switch_name(description: str) -> str:
    """Return the name in a switch's description: ``MF0;ib07:MQM9700/U1`` is ``ib07``. A director's parts differ."""
    match = _MANAGED.fullmatch(description)
    if match is None:
        return description
    inner = (match[2] or "").removesuffix("U1").strip("/")
    return f"{match[1]}/{inner}" if inner else match[1]


def host_name(description: str) -> tuple[str, str]:
    """Return (host, device) of an adapter's description, empty where it does not say."""
    words = description.strip("'").split()
    if not words or SHARP in description or not _HOST_WORD.fullmatch(words[0]) or words[0].lower() in _NO_NAME:
        return "", ""
    if len(words) == 1:
        return words[0], ""
    if len(words) == 2 and _DEVICE_WORD.fullmatch(words[1]):
        return words[0], words[1]
    return "", ""


def read_guids(text: str) -> dict[int, str]:
    """Return GUID to node of a list: ``gpu001 0x2c90300a1b2c3`` a line, or ``VM_hostname gpu001`` before its GUIDs."""
    found: dict[int, str] = {}
    node = ""
    for line in text.splitlines():
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        if words[0].lower() in ("vm_hostname", "host", "hostname", "node") and len(words) == 2:
            node, words = name(words[1]), []
        elif not _guid(words[0]):
            node, words = name(words[0]), words[1:]
        for word in words:
            if (guid := _guid(word)) and node:
                found[guid] = node
    return found


def _guid(text: str) -> int:
    """The number of a GUID as sysfs (``0c42:a103:...``), ibstat (``0x...``) or a list writes it; 0: it is none."""
    digits = text.lower().removeprefix("0x").replace(":", "")
    return int(digits, 16) if re.fullmatch("[0-9a-f]{12,16}", digits) else 0


def read(text: str, where: str = "", guids: Mapping[int, str] | None = None) -> Reading:
    """Return which leaf each port of each host hangs on.

    Args:
        text: ``ibnetdiscover`` output.
        where: the file or host that it came from.
        guids: GUID to node; it goes before descriptions.
    """
    fabric = parse(text)
    reading = Reading("ibnetdiscover", where=where)
    switches = fabric.names()
    nameless = 0
    ends: dict[tuple[str, int], tuple[str, int]] = {}
    for cable in fabric.cables.values():
        for one, port, other in ((cable.device, cable.port, cable.peer), (cable.peer, cable.peer_port, cable.device)):
            if fabric.devices[one].kind != "switch" and fabric.devices[other].kind == "switch":
                ends.setdefault((one, port), (other, cable.line))
    for (one, port), (leaf, line) in ends.items():
        device = fabric.devices[one]
        if SHARP in device.description or device.kind == "router":
            continue
        node, adapter = _who(device, guids or {})
        if not node:
            nameless += 1
            continue
        label = f"{adapter}/{port}" if adapter and port > 1 else adapter or f"port {port}"
        reading.add(Fact(node, "leaf", switches[leaf], line, port=label))
    _say(reading, fabric, nameless)
    return reading


def _who(device: Device, guids: Mapping[int, str]) -> tuple[str, str]:
    said, adapter = host_name(device.description or ("" if _ID_GUID.fullmatch(device.id) else device.id))
    listed = next((guids[guid] for guid in device.guids if guid in guids), "")
    words = device.description.split()
    return (listed, adapter or (words[1] if len(words) == 2 else "")) if listed else (said, adapter)


def _say(reading: Reading, fabric: Fabric, nameless: int) -> None:
    for number in fabric.strange[:20]:
        reading.note(number, "is not what ibnetdiscover prints")
    if nameless:
        reading.note(0, f"{nameless} ports belong to hosts whose description has no name; name them by their GUIDs")
    if unknown := sum("?" in cable.speed for cable in fabric.cables.values()) + sum(
        "?" in speed for speed in fabric.unlinked.values()
    ):
        reading.note(0, f"{unknown} ports have no known speed")
    pieces = fabric.pieces()
    lonely = [one for piece in pieces if len(piece) == 1 for one in piece if fabric.devices[one].kind == "host"]
    for one in lonely[:20]:
        reading.note(0, f"{fabric.devices[one].description or one} sees no switch: it is isolated")
    whole = [piece for piece in pieces if len(piece) > 1]
    if len(whole) > 1:
        reading.note(0, f"the fabric is in {len(whole)} pieces")
    reading.roots = _tops(fabric)


def _tops(fabric: Fabric) -> list[str]:
    """Switches without hosts: the spines, as far as cables tell."""
    hosts: defaultdict[str, bool] = defaultdict(bool)
    for cable in fabric.cables.values():
        for one, other in ((cable.device, cable.peer), (cable.peer, cable.device)):
            peer = fabric.devices[other]
            hosts[one] |= peer.kind == "host" and SHARP not in peer.description
    names = fabric.names()
    return [names[one.id] for one in _switches(fabric.devices.values()) if not hosts[one.id]]


def _switches(devices: Iterable[Device]) -> Iterable[Device]:
    return (one for one in devices if one.kind == "switch")
