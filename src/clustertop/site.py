"""The configuration's feeds and devices among the watched nodes: :class:`~clustertop.places.Site`.

Everything is checked, whatever is watched: what is wrong in the part that HOSTS leave out is wrong as well.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from clustertop.config_read import dotted, nearest
from clustertop.hosts import fold
from clustertop.inventory import expander
from clustertop.places import DEVICE_PLURAL, DEVICE_WORD, Feed, Site, Supply
from clustertop.site_devices import Devices, Secrets, expanded, filled
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from clustertop import config_site
    from clustertop.config import Loaded
    from clustertop.hosts import Target
    from clustertop.inventory import Inventory
    from clustertop.places import Device

_STRANGE = "has nodes that are not in the inventory"
_PART = re.compile(r"(?:(?P<unit>[^:]{1,40}):\s*)?(?P<kind>inlet|phase|bank|branch|outlet)(?:\s+(?P<which>\S.{0,39}))?")
_MAX_HOSTFILE = 16 << 20


def resolve(loaded: Loaded, inventory: Inventory, *, whole: bool = True, strict: bool = False) -> Site:
    """Return what is watched beside the nodes of *inventory*.

    Args:
        loaded: the configuration.
        inventory: the watched nodes, with racks and leaves filled in.
        whole: whether these are all nodes that the configuration has. Else feeds stay that have a watched node (and the
            other feed of their pair), with the devices that they need, BMCs of watched nodes, and switches whose leaf
            has one.
        strict: whether a secret that cannot be had is an error. Else it is a note: the nodes are watched all the same.

    Raises:
        ConfigError: something is not right; one sentence with file, line and key.
    """
    config = loaded.config
    names = _Names(loaded, inventory)
    secrets = Secrets(loaded, strict=strict)
    made = Devices(loaded, secrets)
    notes: list[str] = []
    pdus, switches = made.pdus(), made.switches()
    bmcs, in_band = _bmcs(loaded, names, made, notes if whole else [])
    fabric = made.fabric(names.known)
    feeds = _Feeds(loaded, names, pdus)
    _refuse_shared(loaded, inventory, bmcs, {**made.keys, **{("feed", name): key for name, key in feeds.keys.items()}})
    if whole:
        notes += [f"{key} {_STRANGE}: {_few(strange)}" for key, strange in feeds.strange.items()]
        notes += _odd_places(inventory, feeds.all, pdus, switches, _leaves(loaded, inventory) if switches else set())
        kept = list(feeds.all.values())
    else:
        kept = _kept(feeds.all, names.watched, {node.rack for node in inventory.nodes} - {""})
        pdus, switches = _needed(loaded, inventory, kept, pdus, switches)
        fabric = None
    notes += _unmeasured(kept)
    notes += _one_sided(feeds.all, None if whole else names.watched)
    nccl = config.nccl
    wanted = names.of("nccl.nodes", nccl.nodes) if nccl.nodes else list(names.watched)
    if whole and (strange := [node for node in wanted if node not in names.watched]):
        notes.append(f"nccl.nodes {_STRANGE}: {_few(strange)}")
    return Site(
        feeds=tuple(kept),
        devices=(*pdus.values(), *bmcs, *switches.values(), *((fabric,) if fabric else ())),
        notes=(*secrets.notes, *notes),
        in_band=frozenset(in_band),
        in_band_seconds=in_band,
        nccl_logs=nccl.logs,
        nccl_nodes=frozenset(names.watched.intersection(wanted)) if nccl.logs else frozenset(),
        sockets_seconds=config.sockets.interval_seconds if config.sockets.enabled else None,
        order=_order(loaded),
    )


def summary(site: Site) -> str:
    """Return in words how much there is: ``4 feeds, 4 PDUs, 1 BMC``; empty: nothing."""
    counts = [(len(site.feeds), "feed", "feeds")]
    counts += [(sum(one.kind == kind for one in site.devices), word, DEVICE_PLURAL[kind])
               for kind, word in DEVICE_WORD.items()]
    parts = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    if site.in_band:
        parts.append(f"{len(site.in_band):,} {'node' if len(site.in_band) == 1 else 'nodes'} asked in-band")
    return ", ".join(parts)


class _Names:
    """What the configuration's words mean among the watched nodes."""

    def __init__(self, loaded: Loaded, inventory: Inventory) -> None:
        self._loaded = loaded
        self._expand: Callable[[str, str], list[Target]] | None = None
        self.watched = frozenset(node.name for node in inventory.nodes)
        self.rack = {node.name: node.rack for node in inventory.nodes}
        self.known = {node.name.rpartition("@")[2]: node.name for node in inventory.nodes} | {
            node.name: node.name for node in inventory.nodes}

    def of(self, key: str, text: str) -> list[str]:
        """The nodes that *text* at *key* names, each once: watched ones by their name here, others as written.

        Raises:
            ConfigError: it is not host notation, or names a group that there is not.
        """
        if not text:
            return []
        if self._expand is None:
            self._expand = expander(self._loaded)
        return list(dict.fromkeys(self._name(target) for target in self._expand(key, text)))

    def _name(self, target: Target) -> str:
        spellings = (target.spec, target.spec.rpartition("@")[2], target.host)
        return next((self.known[one] for one in spellings if one in self.known), spellings[1])


class _Feeds:
    """The feeds of a configuration, pairs made mutual."""

    def __init__(self, loaded: Loaded, names: _Names, pdus: Mapping[str, Device]) -> None:
        """Raises ConfigError."""
        self._loaded = loaded
        self.keys: dict[str, str] = {}
        self.all: dict[str, Feed] = {}
        self.strange: dict[str, list[str]] = {}
        """By key: nodes that are not watched."""
        hung: dict[tuple[str, str], list[str]] = {}
        for key, name, entry in expanded(loaded, "feeds", loaded.config.feeds):
            text = filled(loaded, f"{key}.nodes", entry.nodes, name)
            if (key, text) not in hung:
                hung[key, text] = names.of(f"{key}.nodes", text)
            nodes = hung[key, text]
            if strange := [node for node in nodes if node not in names.watched]:
                self.strange.setdefault(f"{key}.nodes", []).extend(strange)
            self.keys[name] = key
            self.all[name] = self._feed(key, name, entry, nodes, pdus)
        self._pair()
        self._refuse_shared_parts()
        self._refuse_shared_supplies()

    def _feed(
        self, key: str, name: str, entry: config_site.Feed, nodes: Sequence[str], pdus: Mapping[str, Device]
    ) -> Feed:
        def text(field: str) -> str:
            return filled(self._loaded, f"{key}.{field}", getattr(entry, field), name)

        pdu = text("pdu")
        if pdu and pdu not in pdus:
            raise self._loaded.error(f"{key}.pdu", f"names {_quoted(pdu)}, which is no table of [pdus]; "
                                                   f"{nearest(pdu, pdus)}")
        return Feed(
            name, entry.rating_amps, entry.volts, entry.phases, "delta" if entry.wiring == "delta" else "star",
            text("pair"), text("rack") or (pdus[pdu].rack if pdu else ""), pdu, self._part(f"{key}.part", text("part")),
            tuple(Supply(node, entry.psus) for node in nodes), entry.outlets_name_nodes)

    def _part(self, key: str, text: str) -> str:
        """*text* with single blanks. Raises ConfigError for what names no part."""
        if not text:
            return ""
        match = _PART.fullmatch(text.strip())
        if not match or (match["which"] is None and match["kind"] != "inlet"):
            raise self._loaded.error(key, 'must be "inlet 1", "bank 2", "phase L1", "branch B3" or "outlet 7", '
                                          f'with "UNIT: " before it where the PDU has several, not {_quoted(text)}')
        unit = f"{match['unit'].strip()}: " if match["unit"] else ""
        return f"{unit}{match['kind']}{' ' + match['which'] if match['which'] else ''}"

    def _pair(self) -> None:
        """Make pairs mutual. Raises ConfigError."""
        for name, feed in list(self.all.items()):
            if not feed.pair:
                continue
            key = f"{self.keys[name]}.pair"
            other = self.all.get(feed.pair)
            if feed.pair == name:
                raise self._loaded.error(key, "is the feed itself; name the other feed of the pair, or take it out")
            if other is None:
                raise self._loaded.error(key, f"names {_quoted(feed.pair)}, which is no table of [feeds]; "
                                              f"{nearest(feed.pair, set(self.all) - {name})}")
            if other.pair not in {"", name}:
                raise self._loaded.error(key, f"is not mutual: {name} has {other.name} as its pair, and {other.name} "
                                              f"has {other.pair}; a feed has one partner")
            if other.phases != feed.phases:
                raise self._loaded.error(key, f"has {_phases(other.phases)}, and {name} has {_phases(feed.phases)}; "
                                              "the two feeds of a pair have as many")
            self.all[other.name] = dataclasses.replace(other, pair=name)

    def _refuse_shared_parts(self) -> None:
        seen: dict[tuple[str, str], str] = {}
        for name, feed in self.all.items():
            if not feed.pdu:
                continue
            other = seen.setdefault((feed.pdu, feed.part), name)
            if other != name:
                raise self._loaded.error(
                    f"{self.keys[name]}.part", f"is {feed.part or 'the inlet'} of {feed.pdu}, which measures {other} "
                                               "as well; name the part that is behind the breaker of each")

    def _refuse_shared_supplies(self) -> None:
        seen: dict[tuple[str, str], str] = {}
        for name, feed in self.all.items():
            for supply in feed.supplies:
                for psu in supply.psus:
                    other = seen.setdefault((supply.node, psu), name)
                    if other != name:
                        raise self._loaded.error(
                            f"{self.keys[name]}.psus", f"has {clean(psu, 60)} of {supply.node}, which hangs on {other} "
                                                       "as well; a supply hangs on one feed")


def _bmcs(
    loaded: Loaded, names: _Names, made: Devices, notes: list[str]
) -> tuple[list[Device], dict[str, float]]:
    """The BMCs of watched nodes, and the nodes that ask their own, with how often. Raises ConfigError."""
    found: list[Device] = []
    in_band: dict[str, float] = {}
    seen: dict[str, str] = {}
    for written, entry in loaded.config.bmcs.items():
        key = dotted("bmcs", written)
        nodes = names.of(key, written)
        if not nodes:
            raise loaded.error(key, 'names no node; head it [bmcs."gpu[001-064]"] or [bmcs."@*"]')
        for node in nodes:
            if node in seen:
                raise loaded.error(key, f"has {node}, which {seen[node]} has as well; keep it in one")
            seen[node] = key
            device = made.bmc(key, node, names.rack.get(node, ""), entry, alone=len(nodes) == 1)
            if node in names.watched:
                if device is None:
                    in_band[node] = entry.interval_seconds
                else:
                    found.append(device)
        if strange := [node for node in nodes if node not in names.watched]:
            notes.append(f"{key} {_STRANGE}: {_few(strange)}")
    return found, in_band


def _refuse_shared(
    loaded: Loaded, inventory: Inventory, bmcs: Iterable[Device], keys: Mapping[tuple[str, str], str]
) -> None:
    """Refuse a name of two things: nobody could say which one an alert is about.

    *keys*: where each thing is configured, by kind and name. Raises ConfigError.
    """
    seen = {node.name: "a node" for node in inventory.nodes} | {one.name: f"the BMC of {one.of}" for one in bmcs}
    for (kind, name), key in keys.items():
        if name in seen:
            raise loaded.error(key, f"shares the name {name} with {seen[name]}; rename one of them")
        seen[name] = f"a {DEVICE_WORD.get(kind, kind)}"


def _kept(feeds: Mapping[str, Feed], watched: frozenset[str], racks: set[str]) -> list[Feed]:
    """The feeds of watched nodes, and the other feed of each pair: what happens there falls on the first."""
    mine = {
        name for name, feed in feeds.items()
        if watched.intersection(feed.nodes) or (feed.outlets_name_nodes and feed.rack in racks)
    }
    return [feed for name, feed in feeds.items() if name in mine or feed.pair in mine]


def _needed(
    loaded: Loaded, inventory: Inventory, feeds: Sequence[Feed], pdus: Mapping[str, Device],
    switches: Mapping[str, Device],
) -> tuple[dict[str, Device], dict[str, Device]]:
    """The PDUs of *feeds*, and the switches that watched nodes hang on."""
    needed = {feed.pdu for feed in feeds}
    leaves = _leaves(loaded, inventory) if switches else set()
    return ({name: one for name, one in pdus.items() if name in needed},
            {name: one for name, one in switches.items() if one.leaf in leaves})


def _leaves(loaded: Loaded, inventory: Inventory) -> set[str]:
    """The leaves that nodes hang on. From the map: on a rail-optimised fabric a node has several, its entry none."""
    from clustertop.topology_files import find

    topology = find(inventory, loaded)
    return {leaf for node in inventory.nodes for leaf in (node.leaf, *topology.leaves.get(node.name, ()))} - {""}


def _odd_places(
    inventory: Inventory, feeds: Mapping[str, Feed], pdus: Mapping[str, Device], switches: Mapping[str, Device],
    leaves: set[str],
) -> list[str]:
    """Racks and leaves that no node has, where nodes have some: mostly a slip of the pen."""
    notes = []
    racks = {node.rack for node in inventory.nodes} - {""}
    written = {feed.rack for feed in feeds.values()} | {one.rack for one in (*pdus.values(), *switches.values())}
    if racks:
        notes += [f"no node is in rack {clean(rack, 60)}; {nearest(rack, racks)}"
                  for rack in sorted(written - racks - {""})]
    if leaves and (odd := sorted({one.leaf for one in switches.values()} - leaves)):
        notes.append(f"no node is below the leaf {', '.join(odd[:8])}{' ...' if len(odd) > 8 else ''}")
    return notes


def _unmeasured(feeds: Iterable[Feed]) -> list[str]:
    """Of the feeds without a PDU: what can be said of them, and what cannot."""
    bare = [feed for feed in feeds if not feed.pdu]
    notes = []
    for what, some in (
        ("volts", [feed for feed in bare if feed.volts is None]),
        ("rating_amps", [feed for feed in bare if feed.volts is not None and feed.rating_amps is None]),
    ):
        if some:
            why = "current cannot be estimated" if what == "volts" else "load is not judged"
            notes.append(f"{_feeds(some)}: no PDU and no {what}, so the {why}")
    if rest := [feed for feed in bare if feed.volts is not None and feed.rating_amps is not None]:
        notes.append(f"{_feeds(rest)}: no PDU, so the current is estimated from what BMCs or GPUs say")
    return notes


def _one_sided(feeds: Mapping[str, Feed], watched: frozenset[str] | None) -> list[str]:
    """Nodes that lose all their power, or all that is known of it, with one feed; of *watched*, else of all."""
    on: dict[str, list[Feed]] = {}
    for feed in feeds.values():
        for node in feed.nodes:
            on.setdefault(node, []).append(feed)
    both: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    lone: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for node, mine in on.items():
        if watched is not None and node not in watched:
            continue
        names = {feed.name for feed in mine}
        psus = next((one.psus for one in mine[0].supplies if one.node == node), ())
        if len(mine) == 1 and len(psus) > 1:
            both.setdefault((mine[0].name, psus, mine[0].pair), []).append(node)
            continue
        for feed in mine:
            # Whose nodes its PDU tells is not known yet.
            if feed.pair and feed.pair not in names and not feeds[feed.pair].outlets_name_nodes:
                lone.setdefault((feed.name, feed.pair, tuple(sorted(names - {feed.name}))), []).append(node)
    notes = []
    for (name, psus, pair), nodes in both.items():
        has, its = ("has", "its") if len(nodes) == 1 else ("have", "their")
        count = "both" if len(psus) == 2 else f"all {len(psus)}"
        cure = f"one of them belongs on {pair}" if pair else f"without {name} nothing feeds " + (
            "it" if len(nodes) == 1 else "them")
        notes.append(f"{_few(nodes)} {has} {count} {its} supplies on feed {name}; {cure}")
    for (name, pair, others), nodes in lone.items():
        verb = "hangs" if len(nodes) == 1 else "hang"
        other = f", but on {', '.join(others)}" if others else ""
        notes.append(f"{_few(nodes)} {verb} on feed {name} and not on its pair {pair}{other}")
    return notes


def _order(loaded: Loaded) -> tuple[str, ...]:
    """The nodes of the host file that the configuration names. Raises ConfigError."""
    file = loaded.config.traffic.hostfile
    if not file:
        return ()
    from clustertop.signals.traffic import read_hostfile

    path = loaded.beside(file)
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MAX_HOSTFILE + 1)
    except OSError as error:
        raise loaded.error("traffic.hostfile", f"names {path}, which cannot be read: {error.strerror}") from None
    if len(raw) > _MAX_HOSTFILE:
        raise loaded.error("traffic.hostfile", f"names {path}, which is larger than {_MAX_HOSTFILE >> 20} MB")
    try:
        order = read_hostfile(raw.decode("utf-8-sig", "replace"))
    except ValueError as error:
        raise loaded.error("traffic.hostfile", f"names {path}, which is no host file: {error}") from None
    return tuple(order)


def _feeds(feeds: Sequence[Feed]) -> str:
    return f"{'feed' if len(feeds) == 1 else 'feeds'} {_few([feed.name for feed in feeds])}"


def _phases(count: int) -> str:
    return "1 phase" if count == 1 else f"{count} phases"


def _few(names: Sequence[str]) -> str:
    text = fold(names)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(names):,} in all)"


def _quoted(text: str) -> str:
    return f'"{clean(text, 60)}"'
