"""Which nodes are watched: HOSTS, a hosts file or the config, with their racks, leaves and groups."""

from __future__ import annotations

import dataclasses
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from clustertop.config import PER_POLL, Config, ConfigError, Loaded
from clustertop.config_read import dotted, nearest
from clustertop.files import read_bounded
from clustertop.hosts import MAX_NODES, NotationError, Target, expand, expand_all, expand_names, fold
from clustertop.model import LOCAL_HOST, NodeInfo
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "MAX_NODES",
    "Expectation",
    "Inventory",
    "InventoryError",
    "expander",
    "local_inventory",
    "read_hosts_file",
    "resolve",
]


MAX_HOSTS_FILE = 16 << 20
_STRANGE = "has nodes that are not in the inventory"


class InventoryError(ConfigError):
    """HOSTS, a hosts file or a group that is not right: one sentence."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What hardware the config says must be in some nodes."""

    nodes: frozenset[str]
    """Names of the nodes it holds for."""
    device: str = ""
    """``gpu``, ``nic``, ``nvme``, a PCI address or a model name; empty where only a number is expected."""
    width: int | None = None
    """PCIe lanes."""
    gpus: int | None = None
    """Number of GPUs."""
    ports: int | None = None
    """Number of RDMA ports in use."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes, in the order in which they were named."""

    nodes: tuple[NodeInfo, ...]
    local: bool = False
    """True: the one node is this machine, read without ssh."""
    unchecked: frozenset[str] = frozenset()
    """Names of the nodes whose host keys are not checked, because the config says so."""
    per_poll: frozenset[str] = frozenset()
    """Names of the nodes whose GPUs are held only while they are read."""
    expectations: tuple[Expectation, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences that the operator should see: duplicates, nodes in racks that are not in the inventory."""
    index: Mapping[str, int] = field(default_factory=dict)
    """Name to place in ``nodes``."""
    rule_nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By rule that the config scopes to groups or nodes: the names of those here that it is for."""

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def folded(self) -> str:
        """The names, folded: ``gpu[001-064],login1``."""
        return fold(node.name for node in self.nodes)

    @property
    def racks(self) -> tuple[str, ...]:
        """The racks that have a node here, in order of their first node."""
        return tuple(dict.fromkeys(node.rack for node in self.nodes if node.rack))


def local_inventory(config: Config | None = None) -> Inventory:
    """Return the inventory of this machine alone, read without ssh."""
    name = clean(platform.node(), 253) or "localhost"
    per_poll = frozenset({name} if config is not None and config.gpu.mode == PER_POLL else ())
    return Inventory((NodeInfo(name=name, host=LOCAL_HOST),), local=True, per_poll=per_poll, index={name: 0})


def resolve(
    hosts: Sequence[str], config: Config | Loaded | None = None, hosts_file: str | Path | None = None
) -> Inventory:
    """Return the inventory that HOSTS and the configuration name.

    Args:
        hosts: HOSTS of the command line, in host notation; empty takes the config's inventory, or this
            machine if there is none.
        config: the configuration; errors name its file and line where it is a ``Loaded``.
        hosts_file: a hosts file of the command line, read after *hosts*.

    Raises:
        InventoryError: HOSTS or the hosts file cannot be read, or name no node or too many.
        ConfigError: the config's nodes, racks, leaves or groups are not right.
    """
    loaded = config if isinstance(config, Loaded) else Loaded(config or Config())
    book = _Book(loaded)
    notes: list[str] = []
    if hosts or hosts_file is not None:
        targets = book.command_line(hosts, hosts_file, notes)
    else:
        targets = book.configured(notes)
        if not targets:
            here = local_inventory(loaded.config)
            return dataclasses.replace(here, rule_nodes=rule_nodes(here.nodes, loaded))
    whole = not (hosts or hosts_file is not None or loaded.config.inventory.default_group)
    return book.inventory(targets, notes, whole=whole)


def rule_nodes(nodes: Sequence[NodeInfo], loaded: Loaded) -> dict[str, tuple[str, ...]]:
    """Return which of *nodes* each rule is for that the config scopes to groups or nodes, by name.

    Raises:
        ConfigError: a scope names a group that the config does not have.
    """
    return dict(_Book(loaded).rule_nodes([(node.name, (node.name,)) for node in nodes], whole=False))


def expander(loaded: Loaded) -> Callable[[str, str], list[Target]]:
    """Return what gives the hosts that a text of the configuration names, groups, racks and leaves written out.

    It is called with the key that the text stands at, and the text.

    Raises:
        ConfigError: racks, leaves or groups are not right; when called, that the text is not.
    """
    book = _Book(loaded)
    return book.targets


def read_hosts_file(path: str | Path) -> list[tuple[int, str]]:
    """Return the entries of a hosts file with their lines: one entry a line, ``#`` starts a comment.

    Raises:
        InventoryError: it cannot be read.
    """
    file = Path(path).expanduser()
    try:
        text = read_bounded(file, MAX_HOSTS_FILE).decode("utf-8-sig")
    except OSError as error:
        raise InventoryError(f"the hosts file cannot be read: {error.strerror}", file=str(file)) from None
    except UnicodeDecodeError:
        raise InventoryError("the hosts file is not UTF-8 text; save it as UTF-8", file=str(file)) from None
    entries = ((number, line.partition("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, entry) for number, entry in entries if entry]


class _Book:
    """The configuration's names, expanded once."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        config = loaded.config
        self._sets: dict[str, Mapping[str, str]] = {
            "group": config.groups,
            "rack": config.racks,
            "leaf": config.leaves,
        }
        self._sections = {"group": "groups", "rack": "racks", "leaf": "leaves"}
        self._expanded: dict[tuple[str, str], list[Target]] = {}
        self._open: list[tuple[str, str]] = []
        self._refuse_shared_names()
        self._racks = self._membership("rack")
        self._leaves = self._membership("leaf")
        self._groups: dict[str, list[str]] = {}
        for name in config.groups:
            for target in self._members("group", name):
                self._groups.setdefault(_key(target), []).append(name)
        self._hosts = {
            host: (dotted("host", written), override)
            for written, override in config.host.items()
            for host in self._names(dotted("host", written), written)
        }

    def targets(self, key: str, text: str) -> list[Target]:
        """What *text* at *key* names. Raises ConfigError."""
        return self._expand(key, text)[0]

    def command_line(self, hosts: Sequence[str], hosts_file: str | Path | None, notes: list[str]) -> list[Target]:
        """The targets of HOSTS and of a hosts file."""
        try:
            targets, twice = expand_all(hosts, self._group)
        except NotationError as error:
            raise InventoryError(str(error), file="HOSTS") from None
        if hosts_file is not None:
            targets, again = self._with_file(targets, hosts_file)
            twice += again
        if not targets:
            raise InventoryError("no host is left to watch; name at least one", file="HOSTS")
        _note_twice(twice, notes)
        return targets

    def configured(self, notes: list[str]) -> list[Target]:
        """The targets of the configuration, or of its default group; none if it names none."""
        targets = self._all(notes)
        key, group = "inventory.default_group", self._loaded.config.inventory.default_group
        if not group:
            return targets
        chosen = _keys(self._at(key, group))
        targets = [target for target in targets if chosen.intersection(_spellings(target))]
        if not targets:
            raise self._loaded.error(key, "has no node of the inventory; name another group")
        return targets

    def _all(self, notes: list[str]) -> list[Target]:
        wanted = self._loaded.config.inventory
        targets, twice = self._expand("inventory.nodes", wanted.nodes)
        if wanted.hosts_file:
            targets, again = self._with_file(targets, self._loaded.beside(wanted.hosts_file))
            twice += again
        if not targets and not wanted.nodes and not wanted.hosts_file:
            for kind in ("rack", "leaf"):
                if not targets:
                    names = self._sets[kind]
                    targets = [target for name in names for target in self._members(kind, name)]
            targets = list(dict.fromkeys(targets))
        elif not targets:
            key = "inventory.nodes" if wanted.nodes else "inventory.hosts_file"
            raise self._loaded.error(key, "names no node; name at least one")
        if targets:
            self._note_strangers(targets, notes)
        _note_twice(twice, notes)
        return targets

    def inventory(self, targets: list[Target], notes: list[str], *, whole: bool) -> Inventory:
        """The inventory of *targets*, with names, places and ways to reach them."""
        if len(targets) > MAX_NODES:
            most = f"at most {MAX_NODES:,} are watched at once, so name fewer"
            raise InventoryError(f"{len(targets):,} nodes; {most}")
        shared = _shared_hosts(targets)
        nodes = tuple(self._node(target, shared) for target in targets)
        index = {node.name: place for place, node in enumerate(nodes)}
        config = self._loaded.config
        unchecked = _keys(self._expand("ssh.unchecked_hosts", config.ssh.unchecked_hosts)[0])
        per_poll, resident = (_keys(self._expand(f"gpu.{name}", getattr(config.gpu, name))[0])
                              for name in ("per_poll_nodes", "resident_nodes"))
        if both := sorted(per_poll & resident):
            raise self._loaded.error("gpu.resident_nodes", f"has {_few(both)}, as per_poll_nodes has; keep each in one")
        return Inventory(
            nodes,
            unchecked=frozenset(
                node.name
                for node, target in zip(nodes, targets, strict=True)
                if unchecked.intersection((*_spellings(target), node.target))
            ),
            per_poll=frozenset(
                node.name
                for node, target in zip(nodes, targets, strict=True)
                if per_poll.intersection(_spellings(target))
                or (config.gpu.mode == PER_POLL and not resident.intersection(_spellings(target)))
            ),
            expectations=tuple(self._expectations(nodes, targets)),
            notes=tuple(notes),
            index=index,
            rule_nodes=dict(self.rule_nodes(
                [(node.name, (node.name, *_spellings(target))) for node, target in zip(nodes, targets, strict=True)],
                whole=whole)),
        )

    def _node(self, target: Target, shared: Mapping[str, int]) -> NodeInfo:
        name = target.host if shared[target.host] == 1 else target.spec
        _, override = self._hosts.get(target.host, ("", None))
        spellings = _spellings(target)
        return NodeInfo(
            name=name,
            host=(override.host if override else "") or (target.host if name != target.host else ""),
            user=target.user or (override.user if override else ""),
            port=target.port or (override.port if override else 0) or self._loaded.config.ssh.port,
            rack=next((self._racks[spelling] for spelling in spellings if spelling in self._racks), ""),
            leaf=next((self._leaves[spelling] for spelling in spellings if spelling in self._leaves), ""),
            groups=tuple(dict.fromkeys(group for one in spellings for group in self._groups.get(one, ()))),
            interval_seconds=override.interval_seconds if override else 0.0,
        )

    def rule_nodes(
        self, nodes: list[tuple[str, tuple[str, ...]]], *, whole: bool
    ) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Each rule with groups or nodes, and which of *nodes* it is for.

        Args:
            nodes: the name of each, and how a set may list it.
            whole: whether these are all that the config has: then a scope with none of them is an error.

        Raises:
            ConfigError: a scope that is not right.
        """
        for rule, change in self._loaded.config.rules.items():
            key = dotted("rules", rule)
            scopes = []
            if change.groups is not None:
                at = f"{key}.groups"
                scopes.append((at, _keys(target for group in change.groups for target in self._at(at, group))))
            if change.nodes is not None:
                at = f"{key}.nodes"
                scopes.append((at, _keys(self._expand(at, change.nodes)[0])))
            mine = nodes
            for at, wanted in scopes:
                mine = [(name, spellings) for name, spellings in mine if wanted.intersection(spellings)]
                if whole and not mine:
                    raise self._loaded.error(at, "names no node of the inventory, so the rule would be for nothing; "
                                                 "name nodes that are in it")
            if scopes:
                yield rule, tuple(name for name, _ in mine)

    def _expectations(self, nodes: tuple[NodeInfo, ...], targets: list[Target]) -> Iterable[Expectation]:
        for number, expect in enumerate(self._loaded.config.expect):
            key = f"expect[{number}]"
            if expect.group:
                named = self._at(f"{key}.group", expect.group)
            else:
                named, _ = self._expand(f"{key}.nodes", expect.nodes)
            wanted = _keys(named)
            everyone = not (expect.group or expect.nodes)
            yield Expectation(
                nodes=frozenset(
                    node.name
                    for node, target in zip(nodes, targets, strict=True)
                    if everyone or wanted.intersection(_spellings(target))
                ),
                device=expect.device,
                width=expect.width,
                gpus=expect.gpus,
                ports=expect.ports,
            )

    def _with_file(self, targets: list[Target], path: str | Path) -> tuple[list[Target], list[str]]:
        found, twice = dict.fromkeys(targets), list[str]()
        for line, entry in read_hosts_file(path):
            try:
                more, again = expand_all([entry], self._group)
            except NotationError as error:
                raise InventoryError(str(error), file=str(path), line=line) from None
            twice += again + [target.spec for target in more if target in found]
            found.update(dict.fromkeys(more))
            if len(found) > MAX_NODES:
                raise InventoryError(
                    f"more than {MAX_NODES:,} nodes, the most that are watched at once; name fewer",
                    file=str(path),
                    line=line,
                )
        return list(found), twice

    def _group(self, name: str) -> list[Target]:
        """The members of ``@name``. Raises NotationError."""
        kind, colon, rest = name.partition(":")
        if colon and kind not in self._sets:
            raise NotationError(f"@{clean(name, 80)}: write @NAME, @group:NAME, @rack:NAME or @leaf:NAME")
        if name == "*":
            return self._everyone()
        kinds = (kind,) if colon else tuple(self._sets)
        names = expand_names(rest if colon else name)
        if not names:
            raise NotationError("@ alone names no group; write @NAME, or @* for every node of the config")
        members: list[Target] = []
        for wanted in names:
            found = next((one for one in kinds if wanted in self._sets[one]), None)
            if found is None:
                known = {name for one in kinds for name in self._sets[one]}
                what = f"{kind if colon else 'group'} {wanted} is not in the config"
                raise NotationError(f"@{clean(name, 80)}: {what}; {nearest(wanted, known)}")
            members += self._members(found, wanted)
        return members

    def _everyone(self) -> list[Target]:
        place = ("", "*")
        if place in self._open:
            raise NotationError("@* contains itself; write out the nodes of the inventory and its racks")
        self._open.append(place)
        try:
            return self._all([])
        finally:
            self._open.pop()

    def _members(self, kind: str, name: str) -> list[Target]:
        place = (kind, name)
        if place not in self._expanded:
            key = dotted(self._sections[kind], name)
            if place in self._open:
                circle = " → ".join(f"@{one}" for _, one in [*self._open[self._open.index(place) :], place])
                raise self._loaded.error(key, f"contains itself ({circle}); take one of them out")
            self._open.append(place)
            try:
                self._expanded[place], _ = self._expand(key, self._sets[kind][name])
            finally:
                self._open.pop()
        return self._expanded[place]

    def _expand(self, key: str, text: str) -> tuple[list[Target], list[str]]:
        try:
            return expand_all([text], self._group)
        except NotationError as error:
            raise self._loaded.error(key, f"is not right: {error}") from None

    def _at(self, key: str, name: str) -> list[Target]:
        return self._expand(key, name if name.startswith("@") else f"@{name}")[0]

    def _names(self, key: str, text: str) -> list[str]:
        try:
            return [target.host for target in expand(text)]
        except NotationError as error:
            raise self._loaded.error(key, f"is not right: {error}") from None

    def _membership(self, kind: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self._sets[kind]:
            for target in self._members(kind, name):
                other = found.setdefault(_key(target), name)
                if other != name:
                    key = dotted(self._sections[kind], name)
                    message = f"has {_key(target)}, which is in {other} as well; keep it in one"
                    raise self._loaded.error(key, message)
        return found

    def _refuse_shared_names(self) -> None:
        first: dict[str, str] = {}
        for kind, names in self._sets.items():
            for name in names:
                key = dotted(self._sections[kind], name)
                if other := first.get(name):
                    message = f"shares its name with {other}, so @{name} could mean both; rename one"
                    raise self._loaded.error(key, message)
                first[name] = key

    def _note_strangers(self, targets: list[Target], notes: list[str]) -> None:
        known = {spelling for target in targets for spelling in _spellings(target)}
        for kind, section in (("rack", "racks"), ("leaf", "leaves"), ("group", "groups")):
            for name in self._sets[kind]:
                members = self._members(kind, name)
                strange = [target.spec for target in members if _key(target) not in known]
                if strange:
                    notes.append(f"{dotted(section, name)} {_STRANGE}: {_few(strange)}")
        strange = [host for host in self._hosts if host not in known]
        if strange:
            notes.append(f"[host] {_STRANGE}: {_few(strange)}")


def _key(target: Target) -> str:
    """What a set lists: the host, or host and port where the set says a port."""
    return dataclasses.replace(target, user="").spec


def _keys(targets: Iterable[Target]) -> set[str]:
    return {_key(target) for target in targets}


def _spellings(target: Target) -> tuple[str, ...]:
    """The keys by which a set may list *target*, closest first."""
    return (_key(target), target.host) if target.port else (target.host,)


def _shared_hosts(targets: list[Target]) -> dict[str, int]:
    count: dict[str, int] = {}
    for target in targets:
        count[target.host] = count.get(target.host, 0) + 1
    return count


def _note_twice(twice: list[str], notes: list[str]) -> None:
    if names := list(dict.fromkeys(twice)):
        notes.append(f"named more than once, watched once: {_few(names)}")


def _few(names: Sequence[str]) -> str:
    text = fold(names)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(names):,} in all)"
