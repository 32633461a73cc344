"""What is checked of a configuration when all of it has been read: values that bear on one another, files they name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clustertop import config_site
from clustertop.config_read import dotted, nearest
from clustertop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clustertop.config import Expect, Loaded
    from clustertop.config_read import ConfigError
    from clustertop.rules.spec import Rule

_HEX = "[0-9A-Fa-f]"
_DEVICE = re.compile(
    rf"gpu|nic|nvme|(?:{_HEX}{{4,8}}:)?{_HEX}{{2}}:{_HEX}{{2}}\.[0-7]|(?:0x)?{_HEX}{{4}}:(?:0x)?{_HEX}{{4}}"
)
RESIDENT, PER_POLL = GPU_MODES = ("resident", "per-poll")
"""What ``gpu.mode`` may be."""


def check(loaded: Loaded, known_rules: Mapping[str, Rule] | None) -> None:
    """Check values against one another, against the built-in rules, and against the files that they name.

    Raises:
        ConfigError: one is not right.
    """
    config = loaded.config
    for name in ("interval_seconds", "pcie_interval_seconds"):
        if getattr(config.poll, name) < 1 and not config.poll.unsafe:
            raise loaded.error(f"poll.{name}", "must be at least 1 second, or write unsafe = true beside it")
    for name, host in config.host.items():
        if 0 < host.interval_seconds < 1 and not config.poll.unsafe:
            raise loaded.error(f"{dotted('host', name)}.interval_seconds",
                               "must be at least 1 second, or write unsafe = true in [poll]")
    poll = config.poll
    if poll.stale_intervals <= poll.late_intervals:
        least = f"{poll.late_intervals:g}"
        raise loaded.error("poll.stale_intervals", f"must be more than late_intervals ({least})")
    if poll.retry_max_seconds < poll.retry_min_seconds:
        least = f"{poll.retry_min_seconds:g}"
        raise loaded.error("poll.retry_max_seconds", f"must be at least retry_min_seconds ({least})")
    if config.ssh.start_timeout_seconds < config.ssh.connect_timeout_seconds:
        least = f"{config.ssh.connect_timeout_seconds:g}"
        raise loaded.error("ssh.start_timeout_seconds", f"must be at least connect_timeout_seconds ({least})")
    if config.gpu.mode not in GPU_MODES:
        known = " or ".join(f'"{mode}"' for mode in GPU_MODES)
        raise loaded.error("gpu.mode", f'must be {known}, not "{clean(config.gpu.mode, 60)}"')
    config_site.check(loaded)
    for number, expect in enumerate(config.expect):
        _check_expect(loaded, f"expect[{number}]", expect)
    if known_rules is not None and config.rules:
        # Only here, as it needs the tables: a config without rules is read without them.
        from clustertop.rules.configured import in_force

        in_force(loaded, known_rules)
    for key in ("ssh.config_file", "ssh.known_hosts", "inventory.hosts_file"):
        section, name = key.split(".")
        value = getattr(getattr(config, section), name)
        if value and not loaded.beside(value).is_file():
            raise _no_file(loaded, key, value)
    for name in ("slurm", "csv", "groups", "lldp", "ibnetdiscover", "ib_guids"):
        value = getattr(config.topology, name)
        if value and not loaded.beside(value).exists():
            raise _no_file(loaded, f"topology.{name}", value)
    for identity in config.ssh.identity_files:
        if not loaded.beside(identity).is_file():
            raise _no_file(loaded, "ssh.identity_files", identity)


def _no_file(loaded: Loaded, key: str, path: str) -> ConfigError:
    return loaded.error(key, f"names {loaded.beside(path)}, where there is no file; correct the path")


def _check_expect(loaded: Loaded, key: str, expect: Expect) -> None:
    if expect.nodes and expect.group:
        raise loaded.error(f"{key}.group", "cannot stand beside nodes; write one of them")
    if expect.width is None and expect.gpus is None and expect.ports is None:
        raise loaded.error(key, "expects nothing; write gpus = 8, ports = 8, or device and width")
    if expect.width is not None and expect.width not in (1, 2, 4, 8, 12, 16, 32):
        raise loaded.error(f"{key}.width", f"must be 1, 2, 4, 8, 12, 16 or 32 lanes, not {expect.width}")
    if expect.width is not None and not expect.device:
        raise loaded.error(f"{key}.device", 'is missing beside width; write device = "gpu", "nic" or "nvme"')
    if expect.device and not _DEVICE.fullmatch(expect.device):
        kinds = ("gpu", "nic", "nvme")
        close = nearest(expect.device, kinds) if expect.device.isalpha() else ""
        raise loaded.error(
            f"{key}.device",
            f"must be {', '.join(kinds)}, a PCI address like 0000:17:00.0 or vendor:device like 15b3:1021, "
            f'not "{clean(expect.device, 60)}"' + (f"; {close}" if close.startswith("did") else ""),
        )
    if expect.device and expect.width is None:
        raise loaded.error(f"{key}.width", "is missing beside device; write width = 16")
    for name, count in (("gpus", expect.gpus), ("ports", expect.ports)):
        if count is not None and not 0 <= count <= 1024:
            raise loaded.error(f"{key}.{name}", f"must be from 0 to 1024, not {count}")
