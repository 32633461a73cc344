"""The configuration: TOML decoded into frozen structs. Every error names file, line and key, and the cure.

A missing default file gives the defaults. Anything else that is wrong stops the start: a typing error must
never switch a check off unseen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clustertop import config_site
from clustertop.config_check import PER_POLL, RESIDENT, check
from clustertop.config_read import ConfigError, Reader, dotted, parent, read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.rules.spec import Rule

__all__ = [
    "BAD_CONFIG",
    "PER_POLL",
    "RESIDENT",
    "Alerts",
    "Config",
    "ConfigError",
    "Console",
    "Expect",
    "Gpu",
    "HostOverride",
    "InventoryConfig",
    "Loaded",
    "Poll",
    "Record",
    "RuleOverride",
    "Ssh",
    "TopologyFiles",
    "default_path",
    "load",
]

BAD_CONFIG = 3
"""Exit status of every command whose configuration is bad."""

ENVIRONMENT = {
    "CLUSTERTOP_THEME": ("console", "theme"),
}
"""Environment variables that set a value, and which."""


def _text(description: str) -> Any:
    return Meta(description=description)


def _number(description: str, least: float, most: float) -> Any:
    return Meta(ge=least, le=most, description=description)


class Poll(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often nodes are read, and when what they said is too old."""

    interval_seconds: Annotated[
        float, _number("Time between two readings of a node. Below 1 needs unsafe = true.", 0.1, 3600)
    ] = 2.0
    pcie_interval_seconds: Annotated[
        float, _number("Time between two readings of PCIe links and counters.", 0.1, 3600)
    ] = 10.0
    unsafe: Annotated[bool, _text("Allow intervals below 1 second, which cost the nodes more.")] = False
    late_intervals: Annotated[
        float, _number("Older than this many intervals, a value is drawn dim with its age.", 1, 100)
    ] = 2.0
    stale_intervals: Annotated[float, _number("Older than this many intervals, a value is unknown.", 2, 1000)] = 5.0
    silence_seconds: Annotated[
        float, _number("A probe silent for this long (and ten intervals) is started again.", 5, 3600)
    ] = 60.0
    retry_min_seconds: Annotated[
        float, _number("Longest wait before the first new try; it doubles with each.", 0.1, 3600)
    ] = 1.0
    retry_max_seconds: Annotated[float, _number("Longest wait between two tries.", 1, 3600)] = 60.0
    refused_retry_seconds: Annotated[
        float, _number("Wait after a refused login or host key, if nobody asks sooner.", 10, 86400)
    ] = 300.0


class Ssh(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to log in. What is empty here is taken from the ssh configuration."""

    config_file: Annotated[str, _text("The ssh configuration to read. Empty: ~/.ssh/config.")] = ""
    known_hosts: Annotated[str, _text("File of known host keys. Empty: those that ssh would read.")] = ""
    user: Annotated[str, _text("Login name where the inventory and the ssh configuration give none. Empty: yours.")] = (
        ""
    )
    port: Annotated[
        int, _number("Port where the inventory gives none. 0: that of the ssh configuration.", 0, 65535)
    ] = 0
    identity_files: Annotated[tuple[str, ...], _text("Private keys to offer. Empty: those that ssh would offer.")] = ()
    agent: Annotated[bool, _text("Offer the keys of the running ssh agent.")] = True
    keepalive_seconds: Annotated[float, _number("Silence after which a sign of life is asked for.", 1, 3600)] = 5.0
    keepalive_count: Annotated[
        int, _number("Unanswered signs of life after which the connection is given up.", 1, 100)
    ] = 3
    connect_timeout_seconds: Annotated[
        float, _number("Deadline over name lookup, TCP, key exchange and login together.", 0.5, 600)
    ] = 10.0
    start_timeout_seconds: Annotated[
        float, _number("Deadline from the name lookup to the probe being ready.", 1, 600)
    ] = 15.0
    handshakes_at_once: Annotated[int, _number("Logins under way at any moment, over all nodes.", 1, 1024)] = 32
    handshakes_per_host: Annotated[
        int, _number("Logins under way at any moment to one address or through one jump host.", 1, 128)
    ] = 5
    unchecked_hosts: Annotated[
        str, _text('Hosts whose keys are NOT checked, for example "lab[01-02]". Shown on the console.')
    ] = ""


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the GPUs of a node are held. Reading never changes a setting of theirs."""

    mode: Annotated[
        str,
        _text(
            '"resident": the driver library stays open, which costs least, and keeps GPUs awake without persistence '
            'mode. "per-poll": nothing is held between two readings, so that a reset works at any time; no Xid events.'
        ),
    ] = RESIDENT
    per_poll_nodes: Annotated[str, _text('Nodes that are read per poll whatever mode says, for example "@a100".')] = ""
    resident_nodes: Annotated[str, _text("Nodes that are held whatever mode says.")] = ""


class InventoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which nodes there are."""

    nodes: Annotated[
        str, _text('The nodes, for example "gpu[001-064],login1". Empty: those of the racks, else leaves.')
    ] = ""
    hosts_file: Annotated[str, _text("File with more nodes, one entry a line; relative to this file. Empty: none.")] = (
        ""
    )
    default_group: Annotated[
        str, _text("Group, rack or leaf that is watched when no HOSTS are given. Empty: every node.")
    ] = ""


class HostOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to reach one node (or a folded set of them) where it differs."""

    host: Annotated[str, _text("Host name or address to connect to. Empty: the node's name.")] = ""
    user: Annotated[str, _text("User to log in as. Empty: as for every node.")] = ""
    port: Annotated[int, _number("Port to connect to. 0: as for every node.", 0, 65535)] = 0
    interval_seconds: Annotated[
        float, _number("Time between two readings, as poll.interval_seconds. 0: as for every node.", 0, 3600)
    ] = 0.0


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What hardware must be there. Without nodes and group it holds for every node."""

    nodes: Annotated[str, _text('The nodes it holds for, for example "gpu[001-064]".')] = ""
    group: Annotated[str, _text("Instead of nodes: the group, rack or leaf it holds for.")] = ""
    device: Annotated[
        str, _text('What width is about: "gpu", "nic", "nvme", "0000:17:00.0" or vendor:device "15b3:1021".')
    ] = ""
    width: Annotated[int | None, _text("PCIe lanes that the device must have: 1, 2, 4, 8, 16 or 32.")] = None
    gpus: Annotated[int | None, _text("GPUs that each node must have.")] = None
    ports: Annotated[int | None, _text("RDMA ports that must be in use on each node.")] = None


class LevelChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A limit with how long it must be passed. What is not written stays as built in."""

    limit: Annotated[float | None, _text("The limit.")] = None
    for_seconds: Annotated[float | None, _text("How long it must be passed.")] = None
    for_polls: Annotated[int | None, _text("At how many readings it must be passed.")] = None


class ClearChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When an alert is over. What is not written stays as built in."""

    limit: Annotated[float | None, _text("What the reading must be back inside of.")] = None
    seconds: Annotated[float | None, _text("For how long.")] = None
    polls: Annotated[int | None, _text("At how many readings.")] = None


class TogetherChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When the things of one parent are one alert. What is not written stays as built in."""

    share: Annotated[float | None, _text("More than this share of what is judged there, 0 to 1.")] = None
    least: Annotated[int | None, _text("At least so many.")] = None
    many: Annotated[int | None, _text("So many nodes that no smaller parent accounts for.")] = None
    things: Annotated[
        int | None, _text("So many things of one node, whatever their share; 0: as share and least say.")
    ] = None


class RuleOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Changes to a built-in rule (what is not written stays as built in), or a rule of your own."""

    enabled: Annotated[bool | None, _text("false switches the rule off; `clustertop rules` says so.")] = None
    title: Annotated[str | None, _text("What the alert is called.")] = None
    table: Annotated[str | None, _text("Of a rule of your own: the kind of thing it is about.")] = None
    metric: Annotated[str | None, _text("Of a rule of your own: the column that is judged.")] = None
    op: Annotated[str | None, _text('">", ">=", "<" or "<=": on which side of the limit it is wrong.')] = None
    kind: Annotated[
        str | None, _text('What is held against the limit: "threshold", "increase", "peers", "absence" or "trend".')
    ] = None
    info: Annotated[float | LevelChange | None, _text("Limit at which it informs; or a table, as for warning.")] = None
    warning: Annotated[
        float | LevelChange | None, _text("Limit at which it warns; or {limit, for_seconds, for_polls}.")
    ] = None
    critical: Annotated[
        float | LevelChange | None, _text("Limit at which it is critical; or a table, as for warning.")
    ] = None
    clear: Annotated[float | ClearChange | None, _text("Limit at which it clears; or {limit, seconds, polls}.")] = None
    for_seconds: Annotated[float | None, _text("How long any of the limits must be passed first.")] = None
    for_polls: Annotated[int | None, _text("At how many readings any of the limits must be passed first.")] = None
    groups: Annotated[tuple[str, ...] | None, _text("Groups, racks or leaves it holds for; not given: all.")] = None
    nodes: Annotated[str | None, _text("Nodes it holds for, in host notation; not given: all.")] = None
    models: Annotated[
        tuple[str, ...] | None, _text("Models it holds for, as patterns with * and ?; not given: all.")
    ] = None
    window_seconds: Annotated[
        float | None, _text("Of increase: growth over how long. Of peers: growth over it is compared.")
    ] = None
    peers: Annotated[
        str | None, _text('Of peers: with whom, "node", "rack", "leaf", "group", "model" or "fleet".')
    ] = None
    compare: Annotated[str | None, _text('Of peers: "difference" from their median, or "ratio" to it.')] = None
    floor: Annotated[float | None, _text("Of peers by ratio: the median counts as at least this much.")] = None
    gaps: Annotated[int | None, _text("Of absence: so many readings in a row without it.")] = None
    gap_seconds: Annotated[float | None, _text("Of absence: or so long without it.")] = None
    also: Annotated[tuple[str, ...] | None, _text("Of absence: other columns of the table that count as well.")] = None
    reach: Annotated[float | None, _text("Of trend: the value whose coming is foretold; limits are seconds.")] = None
    together: Annotated[
        TogetherChange | None, _text("When the things of one parent are one alert: {share, least, many, things}.")
    ] = None
    covers: Annotated[
        str | None, _text('Alerts of the same "thing" or "node", or of what a "feed" supplies, go under this one.')
    ] = None
    follows: Annotated[tuple[str, ...] | None, _text("Rules that are an early sign of the same fault.")] = None
    gather_seconds: Annotated[
        float | None, _text("How long the first alert waits for its siblings to be one with them.")
    ] = None
    settles: Annotated[bool | None, _text("Whether it waits while a node settles after a boot.")] = None
    hint: Annotated[str | None, _text("What it usually means, shown with the alert.")] = None
    look: Annotated[str | None, _text("What to look at next, shown with the alert.")] = None
    source: Annotated[str | None, _text("Where the limit comes from, shown with the alert.")] = None


class Alerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How alerts behave, whatever their rule."""

    settle_seconds: Annotated[
        float, _number("After a boot nothing is raised of a node for so long: links train, services start.", 0, 86400)
    ] = 300.0
    resume_seconds: Annotated[
        float, _number("After the console itself was stopped nothing is raised for so long.", 0, 3600)
    ] = 15.0
    accept_seconds: Annotated[
        float, _number("A device that has been well for so long is one of its node's: it is missed when it is gone, "
                       "also after a restart.", 0, 86400)
    ] = 60.0


class Console(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the console draws."""

    theme: Annotated[str, _text("Theme to draw with. Empty: the built-in one.")] = ""
    refresh_seconds: Annotated[float, _number("Shortest time between two drawings of new values.", 0.1, 60)] = 0.5
    ascii: Annotated[bool, _text("Draw with plain ASCII only.")] = False
    mouse: Annotated[bool, _text("Take mouse input.")] = True
    bell: Annotated[bool, _text("Ring the terminal's bell when something critical is new.")] = False


class Notify(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ways out for alerts beside the screen. The log belongs on a local disk; hook and webhook hold nothing up."""

    least: Annotated[
        Literal["info", "warning", "critical"], _text("Mildest severity that hook and webhook are told of.")
    ] = "warning"
    hook: Annotated[
        tuple[str, ...], _text("Program and arguments, run for each change of an alert; JSON on stdin. Empty: none.")
    ] = ()
    hook_timeout_seconds: Annotated[float, _number("A hook that takes longer is ended.", 0.1, 600)] = 10.0
    webhook: Annotated[
        str, _text('Address to post each change to as JSON: "https://..." or, where it holds a token, "env:NAME", '
                   '"file:PATH" or "command:PROGRAM ARGUMENTS". Empty: none.')
    ] = ""
    webhook_timeout_seconds: Annotated[float, _number("Deadline of one post; it is tried four times.", 0.1, 600)] = 10.0
    log: Annotated[
        str, _text('File that gets a line of JSON for each change. Empty: beside the state; "none": no log.')
    ] = ""
    log_megabytes: Annotated[float, _number("Size at which the log is put aside and begun anew.", 0.01, 10_000)] = 10.0
    log_keep: Annotated[int, _number("Logs put aside that are kept.", 0, 100)] = 3


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The flight recorder."""

    max_megabytes: Annotated[
        float, _number("A recording stops at this size and says so. 0: no limit.", 0, 1_000_000)
    ] = 0.0


class TopologyFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where racks and leaves are read from, beside [racks] and [leaves]. A folder means every file in it."""

    slurm: Annotated[
        str, _text("Slurm's topology.conf or topology.yaml, or a file with what scontrol show topology printed.")
    ] = ""
    slurm_topology: Annotated[str, _text("Which topology of topology.yaml. Empty: its default one.")] = ""
    csv: Annotated[
        str, _text("CSV with the columns node and rack (leaf, rail, pod), or NetBox's devices as CSV or JSON.")
    ] = ""
    groups: Annotated[
        str, _text('ClusterShell\'s cluster.yaml with a source racks or leaves, or lines like "r1: gpu[001-016]".')
    ] = ""
    lldp: Annotated[
        str, _text("LLDP neighbours: lldpctl, EOS, NX-OS, Junos, NetQ or an SNMP walk; files named after their device.")
    ] = ""
    ibnetdiscover: Annotated[str, _text("What ibnetdiscover printed, in full or with -p.")] = ""
    ib_guids: Annotated[
        str, _text('Lines like "gpu001 0x0c42a10300a1b2c3", for hosts whose InfiniBand description has no name.')
    ] = ""
    guess_racks: Annotated[
        bool, _text("Take Slurm's blocks and lowest switches for racks, where nothing else says a rack.")
    ] = False
    ignored_ports: Annotated[
        tuple[str, ...], _text("Ports of nodes whose switch is no leaf of the fabric; * stands for anything.")
    ] = ("mgmt*", "oob*", "bmc*", "ipmi*", "ilo*", "idrac*")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that can be configured."""

    poll: Poll = Poll()
    ssh: Ssh = Ssh()
    gpu: Gpu = Gpu()
    inventory: InventoryConfig = InventoryConfig()
    console: Console = Console()
    notify: Notify = Notify()
    record: Record = Record()
    topology: TopologyFiles = TopologyFiles()
    alerts: Alerts = Alerts()
    racks: dict[str, str] = {}
    leaves: dict[str, str] = {}
    groups: dict[str, str] = {}
    host: dict[str, HostOverride] = {}
    expect: tuple[Expect, ...] = ()
    rules: dict[str, RuleOverride] = {}
    feeds: dict[str, config_site.Feed] = {}
    pdus: dict[str, config_site.Pdu] = {}
    bmcs: dict[str, config_site.Bmc] = {}
    switches: dict[str, config_site.Switch] = {}
    fabric: config_site.Fabric = config_site.Fabric()
    nccl: config_site.Nccl = config_site.Nccl()
    sockets: config_site.Sockets = config_site.Sockets()
    traffic: config_site.Traffic = config_site.Traffic()


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "poll": Poll,
    "ssh": Ssh,
    "gpu": Gpu,
    "inventory": InventoryConfig,
    "console": Console,
    "notify": Notify,
    "record": Record,
    "topology": TopologyFiles,
    "alerts": Alerts,
    **config_site.SITE_SECTIONS,
}
"""Tables with fixed keys."""
NAMED: dict[str, Any] = {
    "racks": str,
    "leaves": str,
    "groups": str,
    "host": HostOverride,
    "rules": RuleOverride,
    **config_site.SITE_NAMED,
}
"""Tables whose keys are names that the operator chooses, and what each holds."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and where it came from."""

    config: Config = field(default_factory=Config)
    path: Path | None = None
    """The file read; None: there was none."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Key path to line of the file."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Key path to the command line or environment variable that set it."""

    def origin(self, key: str) -> str:
        """Where *key* came from: ``default``, ``file:line``, ``command line`` or ``environment NAME``."""
        if key in self.given:
            return self.given[key]
        line = self.line(key)
        return f"{self.path}:{line}" if line else "default"

    def line(self, key: str) -> int:
        """The line of the file that sets *key*; 0 if none does."""
        return 0 if key in self.given else self.lines.get(key, 0)

    def error(self, key: str, message: str) -> ConfigError:
        """Return the error that says *message* about *key*, with its place."""
        where = self.given.get(key) or (str(self.path) if self.path else "")
        line, above = self.line(key), key
        if not line and key not in self.given:  # only what is below it has a line: [[a.b]], [a.b."c"]
            line = min((at for name, at in self.lines.items() if name.startswith((f"{key}.", f"{key}["))), default=0)
        while not line and above and key not in self.given:
            above = parent(above)
            line = self.line(above)
        return ConfigError(message, file=where, key=key, line=line)

    def beside(self, path: str) -> Path:
        """Return *path* with ``~`` resolved; a relative one stands beside the config file."""
        found = Path(path).expanduser()
        return found if found.is_absolute() or self.path is None else self.path.parent / found


def default_path(environ: Mapping[str, str] | None = None) -> tuple[Path, bool]:
    """Return where the config is looked for, and whether it must be there (``CLUSTERTOP_CONFIG``)."""
    environ = os.environ if environ is None else environ
    if named := environ.get("CLUSTERTOP_CONFIG"):
        return Path(named).expanduser(), True
    base = environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if base.startswith("/") else Path("~/.config").expanduser()
    return folder / "clustertop" / "config.toml", False


def load(
    path: str | Path | None = None,
    *,
    known_rules: Mapping[str, Rule] | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Read and check the configuration.

    Args:
        path: the file; None looks in the default places, where a missing one gives the defaults.
        known_rules: the built-in rules, which ``[rules.NAME]`` changes or adds to; None: they are not looked at.
        overrides: values from the command line, by key path (``poll.interval_seconds``).
        environ: the environment; None takes this process's.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has a key or value that is not right.
    """
    environ = os.environ if environ is None else environ
    file, needed = (Path(path).expanduser(), True) if path is not None else default_path(environ)
    data, lines = read_toml(file, needed=needed)
    found = file if data is not None else None
    data = data or {}
    given: dict[str, str] = {}
    for variable, (section, name) in ENVIRONMENT.items():
        if variable in environ:
            _put(data, section, name, environ[variable])
            given[dotted(section, name)] = f"environment {variable}"
    for key, value in (overrides or {}).items():
        if value is not None:
            section, _, name = key.partition(".")
            _put(data, section, name, value)
            given[key] = "command line"
    loaded = Loaded(_decode(data, Loaded(path=found, lines=lines, given=given)), found, lines, given)
    check(loaded, known_rules)
    return loaded


def _put(data: dict[str, Any], section: str, name: str, value: object) -> None:
    table = data.setdefault(section, {})
    if isinstance(table, dict):
        table[name] = value


def _decode(data: dict[str, Any], place: Loaded) -> Config:
    reader = Reader(place)
    reader.refuse_unknown(data, Config.__struct_fields__)
    parts: dict[str, Any] = {}
    for section, value in data.items():
        if section in SECTIONS:
            parts[section] = reader.convert(reader.table(value, (section,)), SECTIONS[section], (section,))
        elif section in NAMED:
            if section in config_site.SITE_NAMED:
                config_site.guard(place, section, value)
            table = reader.table(value, (section,))
            parts[section] = {
                name: reader.convert(item, NAMED[section], (section, name)) for name, item in table.items()
            }
        else:
            items = reader.array(value, (section,))
            parts[section] = tuple(
                reader.convert(item, Expect, (f"{section}[{number}]",)) for number, item in enumerate(items)
            )
    return Config(**parts)
