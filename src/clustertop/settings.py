"""The configuration as the other layers take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustertop.config import Config, Loaded
from clustertop.wire.transport import PollSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clustertop.inventory import Expectation, Inventory
    from clustertop.model import NodeInfo

_CLASSES = {"gpu": "03", "nic": "02", "nvme": "0108"}
"""PCI class codes, as a device's ``class`` begins."""


def poll_settings(config: Config | Loaded, *, nvml: str = "", root: str = "") -> PollSettings:
    """Return how nodes are reached and how often, as *config* says.

    Args:
        config: the configuration; relative paths stand beside its file where it is a ``Loaded``.
        nvml: another NVML library on the nodes.
        root: another root of /proc and /sys on the nodes.
    """
    loaded = config if isinstance(config, Loaded) else Loaded(config)
    poll, ssh, sockets = loaded.config.poll, loaded.config.ssh, loaded.config.sockets

    def path(text: str) -> str:
        return str(loaded.beside(text)) if text else ""

    return PollSettings(
        interval_seconds=poll.interval_seconds,
        pcie_interval_seconds=poll.pcie_interval_seconds,
        sockets_interval_seconds=sockets.interval_seconds if sockets.enabled else None,
        keepalive_seconds=ssh.keepalive_seconds,
        keepalive_count=ssh.keepalive_count,
        connect_timeout_seconds=ssh.connect_timeout_seconds,
        start_timeout_seconds=ssh.start_timeout_seconds,
        handshakes_at_once=ssh.handshakes_at_once,
        handshakes_per_host=ssh.handshakes_per_host,
        retry_min_seconds=poll.retry_min_seconds,
        retry_max_seconds=poll.retry_max_seconds,
        refused_retry_seconds=poll.refused_retry_seconds,
        silence_seconds=poll.silence_seconds,
        ssh_config=path(ssh.config_file),
        known_hosts=path(ssh.known_hosts),
        user=ssh.user,
        client_keys=tuple(path(file) for file in ssh.identity_files),
        agent=ssh.agent,
        nvml=nvml,
        root=root,
    )


def expect_gpus(inventory: Inventory) -> Callable[[NodeInfo], int | None]:
    """Return what tells how many GPUs a node must have; the last ``[[expect]]`` that says so holds."""
    wanted: dict[str, int] = {}
    for expect in inventory.expectations:
        if expect.gpus is not None:
            wanted.update(dict.fromkeys(expect.nodes, expect.gpus))
    return lambda node: wanted.get(node.name)


def expect_ports(inventory: Inventory) -> Callable[[NodeInfo], int | None]:
    """Return what tells how many RDMA ports of a node must be in use; the last ``[[expect]]`` that says so holds."""
    wanted: dict[str, int] = {}
    for expect in inventory.expectations:
        if expect.ports is not None:
            wanted.update(dict.fromkeys(expect.nodes, expect.ports))
    return lambda node: wanted.get(node.name)


def expect_width(inventory: Inventory) -> Callable[[NodeInfo, str, Mapping[str, object]], float | None]:
    """Return what tells how many PCIe lanes a device must have, by node, PCI address and attributes.

    An address counts before a model, a model before a kind; of equals the last ``[[expect]]`` holds.
    """
    wanted = [expect for expect in inventory.expectations if expect.width is not None]

    def width(node: NodeInfo, key: str, attrs: Mapping[str, object]) -> float | None:
        best, lanes = 0, None
        for expect in wanted:
            if node.name in expect.nodes and (rank := _matches(expect, key, attrs)) and rank >= best:
                best, lanes = rank, expect.width
        return None if lanes is None else float(lanes)

    return width


def _matches(expect: Expectation, key: str, attrs: Mapping[str, object]) -> int:
    """How closely *expect* names the device: 3 its address, 2 its model, 1 its kind, 0 not at all."""
    device = expect.device.lower()
    if device in _CLASSES:
        code = str(attrs.get("class", "")).lower().removeprefix("0x").zfill(6)
        return int(code.startswith(_CLASSES[device]))
    if "." in device:
        address = device if device.count(":") == 2 else f"0000:{device}"
        return 3 * (key.lower() == address)
    ids = [str(attrs.get(name, "")).lower().removeprefix("0x") for name in ("vendor", "device")]
    return 2 * (ids == [part.removeprefix("0x") for part in device.split(":")])
